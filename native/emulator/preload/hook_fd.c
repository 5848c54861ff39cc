/* SPDX-License-Identifier: MIT
 *
 * What is done with descriptors: ioctl, and ways to close them.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload.h"

HOOK int ioctl(int fd, unsigned long request, ...)
{
	uint64_t position = 0;
	va_list args;
	void *argument;
	int result;

	va_start(args, request);
	argument = va_arg(args, void *);
	va_end(args);
	if (_IOC_TYPE(request) == DRM_IOCTL_BASE)
		position = preload_position(fd);
	if (!position)
		return (int)syscall(SYS_ioctl, fd, request, argument);
	result = preload_ioctl(position, request, argument);
	if (result >= 0)
		return result;
	errno = -result;
	return -1;
}

/* DRM files have no position that a program might see or change: theirs says which they are. */
HOOK off_t lseek(int fd, off_t offset, int whence)
{
	if (!preload_position(fd))
		return syscall(SYS_lseek, fd, offset, whence);
	errno = ESPIPE;
	return -1;
}

HOOK off64_t lseek64(int fd, off64_t offset, int whence)
{
	return lseek(fd, offset, whence);
}

/* ---- closing --------------------------------------------------------------------------------- */

static int close_ours_not(void)
{
	errno = EBADF;
	return -1;
}

HOOK int close(int fd)
{
	bool was_drm;
	int result;

	if (preload_is_ours(fd))
		return close_ours_not();
	was_drm = preload_position(fd);
	result = (int)syscall(SYS_close, fd);
	if (was_drm)
		preload_closed();
	return result;
}

HOOK int dup3(int from, int to, int flags)
{
	bool was_drm;
	int result;

	if (preload_is_ours(to))
		return close_ours_not();
	was_drm = from != to && preload_position(to);
	result = (int)syscall(SYS_dup3, from, to, flags);
	if (was_drm)
		preload_closed();
	return result;
}

HOOK int dup2(int from, int to)
{
	if (from == to)
		return (int)syscall(SYS_fcntl, from, F_GETFD) < 0 ? -1 : to;
	return dup3(from, to, 0);
}

/* Our own are left out. */
HOOK int close_range(unsigned int first, unsigned int last, int flags)
{
	int ours = first > INT_MAX ? -1 : preload_ours_next((int)first);
	int result = 0;

	while (!result && ours >= 0 && (unsigned int)ours <= last) {
		if ((unsigned int)ours > first)
			result = (int)syscall(SYS_close_range, first, (unsigned int)ours - 1, flags);
		if ((unsigned int)ours == last)
			goto out;
		first = (unsigned int)ours + 1;
		ours = preload_ours_next((int)first);
	}
	if (!result)
		result = (int)syscall(SYS_close_range, first, last, flags);
out:
	if (preload_settings.server[0] && !(flags & CLOSE_RANGE_CLOEXEC))
		preload_closed();
	return result;
}

HOOK void closefrom(int first)
{
	(void)close_range(first < 0 ? 0 : (unsigned int)first, UINT_MAX, 0);
}
