/* What programs that `vmkv emulate` runs share: each check of theirs is a function, and the program's
 * argument says which to run. */
#ifndef PRELOAD_CHECK_H
#define PRELOAD_CHECK_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "abi/amdgpu.h"
#include "abi/drm.h"

#define RENDER "/dev/dri/renderD128"
#define BUFFER_BYTES (4ULL << 20)

#define REQUIRE(condition)                                                                         \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "line %d: %s (errno %s)\n", __LINE__, #condition,          \
			        strerror(errno));                                                  \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static inline int node_open(void)
{
	int fd = open(RENDER, O_RDWR | O_CLOEXEC);

	REQUIRE(fd >= 0);
	return fd;
}

static inline uint32_t buffer_create(int fd)
{
	union drm_amdgpu_gem_create args = { .in = { .bo_size = BUFFER_BYTES, .alignment = 4096,
		                                     .domains = AMDGPU_GEM_DOMAIN_VRAM } };

	REQUIRE(!ioctl(fd, DRM_IOCTL_AMDGPU_GEM_CREATE, &args));
	return args.out.handle;
}

static inline volatile uint32_t *buffer_map(int fd, uint32_t handle)
{
	union drm_amdgpu_gem_mmap args = { .in = { .handle = handle } };
	void *place;

	REQUIRE(!ioctl(fd, DRM_IOCTL_AMDGPU_GEM_MMAP, &args));
	place = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
	             (off_t)args.out.addr_ptr);
	REQUIRE(place != MAP_FAILED);
	return place;
}

static inline uint64_t vram_used(int fd)
{
	uint64_t used = 0;
	struct drm_amdgpu_info args = { .return_pointer = (uintptr_t)&used, .return_size = sizeof(used),
		                        .query = AMDGPU_INFO_VRAM_USAGE };

	REQUIRE(!ioctl(fd, DRM_IOCTL_AMDGPU_INFO, &args));
	return used;
}

/* A buffer goes when the card is done with it: new ones are cleared, in its own time. */
static inline void vram_used_await(int fd, uint64_t expected)
{
	for (int i = 0; i < 5000 && vram_used(fd) != expected; i++)
		usleep(1000);
	REQUIRE(vram_used(fd) == expected);
}

static inline void child_wait(pid_t child, int expected)
{
	int status;

	REQUIRE(waitpid(child, &status, 0) == child);
	REQUIRE(status == expected);
}

struct check {
	const char *name;
	void (*run)(void);
};

/* The program's exit code. */
static inline int check_run(const struct check *checks, size_t n, const char *name)
{
	for (size_t i = 0; name && i < n; i++) {
		if (strcmp(checks[i].name, name))
			continue;
		checks[i].run();
		return 0;
	}
	fprintf(stderr, "no check of that name\n");
	return 2;
}

#endif
