/* SPDX-License-Identifier: MIT
 *
 * Mapping, which a DRM file allows of its own buffers alone, shared and from their beginning.
 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload.h"

/* 0, or a negative errno. */
static int map_check(int fd, off_t offset, size_t bytes, int protection, int flags)
{
	uint64_t position = fd >= 0 && !(flags & MAP_ANONYMOUS) ? preload_position(fd) : 0;
	int error, saved = errno;

	if (!position || !bytes)
		return 0;
	error = preload_map_check(position, (uint64_t)offset, bytes);
	errno = saved;
	/* A private one would be a copy as soon as somebody writes to it. */
	if (!error && (flags & MAP_TYPE) == MAP_PRIVATE && protection != PROT_NONE)
		error = -EINVAL;
	return error;
}

static void *map(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	int error = map_check(fd, offset, bytes, protection, flags);

	if (!error)
		return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
	errno = -error;
	return MAP_FAILED;
}

HOOK void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	return map(at, bytes, protection, flags, fd, offset);
}

HOOK void *mmap64(void *at, size_t bytes, int protection, int flags, int fd, off64_t offset)
{
	return map(at, bytes, protection, flags, fd, offset);
}
