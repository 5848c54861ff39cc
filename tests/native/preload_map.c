/* SPDX-License-Identifier: MIT
 *
 * Map buffers of a DRM file in ways that are allowed and in ways that aren't, and print what each says.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "abi/amdgpu.h"

#define RENDER "/dev/dri/renderD128"
#define PAGE 4096

static uint32_t buffer_make(int fd, uint64_t bytes, uint64_t flags)
{
	union drm_amdgpu_gem_create make = { .in = { .bo_size = bytes, .alignment = PAGE,
		                                     .domains = AMDGPU_GEM_DOMAIN_GTT,
		                                     .domain_flags = flags } };

	return ioctl(fd, DRM_IOCTL_AMDGPU_GEM_CREATE, &make) ? 0 : make.out.handle;
}

static off_t offset_of(int fd, uint32_t buffer)
{
	union drm_amdgpu_gem_mmap map = { .in = { .handle = buffer } };

	return ioctl(fd, DRM_IOCTL_AMDGPU_GEM_MMAP, &map) ? -1 : (off_t)map.out.addr_ptr;
}

static void try(const char *how, int fd, off_t offset, size_t bytes, int protection, int flags)
{
	void *view = mmap(NULL, bytes, protection, flags, fd, offset);

	printf("%s: %s\n", how, view == MAP_FAILED ? strerrorname_np(errno) : "mapped");
	if (view != MAP_FAILED)
		munmap(view, bytes);
}

int main(void)
{
	const int rw = PROT_READ | PROT_WRITE;
	int fd = open(RENDER, O_RDWR), other = open(RENDER, O_RDWR);
	uint32_t buffer = buffer_make(fd, 4 * PAGE, 0);
	uint32_t hidden = buffer_make(fd, PAGE, AMDGPU_GEM_CREATE_NO_CPU_ACCESS);
	off_t at = offset_of(fd, buffer), others = offset_of(other, buffer_make(other, PAGE, 0));

	try("whole", fd, at, 4 * PAGE, rw, MAP_SHARED);
	try("beginning", fd, at, PAGE, rw, MAP_SHARED);
	try("more", fd, at, 4 * PAGE + 1, rw, MAP_SHARED);
	try("middle", fd, at + PAGE, PAGE, rw, MAP_SHARED);
	try("nowhere", fd, 0, PAGE, rw, MAP_SHARED);
	try("private", fd, at, PAGE, PROT_READ, MAP_PRIVATE);
	try("private, unused", fd, at, PAGE, PROT_NONE, MAP_PRIVATE);
	try("other's", fd, others, PAGE, rw, MAP_SHARED);
	printf("hidden: %d\n", (int)offset_of(fd, hidden));
	try("anonymous", -1, 0, PAGE, rw, MAP_PRIVATE | MAP_ANONYMOUS);
	return 0;
}
