/* SPDX-License-Identifier: MIT
 *
 * stat(2) in all its forms, and access(2). The kernel's struct stat is libc's on machines of 64 bits.
 */
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "preload.h"

#define NODE_MODE (S_IFCHR | 0666)

static void status_make_node(struct stat *status, bool primary)
{
	status->st_mode = NODE_MODE;
	status->st_rdev = makedev(DRM_MAJOR, primary ? PRIMARY_MINOR : RENDER_MINOR);
	status->st_dev = preload_settings.device;
	status->st_ino = primary ? preload_settings.primary : preload_settings.render;
	status->st_size = 0;
	status->st_blocks = 0;
}

/* Of a descriptor, or of its entry in /proc. */
static uint64_t position_of(int dirfd, const char *path, int flags)
{
	if (*path)
		return flags & AT_SYMLINK_NOFOLLOW ? 0 : preload_proc_position(path);
	return flags & AT_EMPTY_PATH ? preload_position(dirfd) : 0;
}

static int status_get(int dirfd, const char *path, struct stat *status, int flags)
{
	char buffer[PATH_BYTES];
	uint64_t position;
	bool primary;
	int result;

	if (!preload_settings.server[0] || !path)
		return (int)syscall(SYS_newfstatat, dirfd, path, status, flags);
	result = (int)syscall(SYS_newfstatat, dirfd, preload_path_at(dirfd, path, buffer), status, flags);
	if (result || !S_ISREG(status->st_mode))
		return result;
	if (preload_is_node(status->st_dev, status->st_ino, &primary)) {
		status_make_node(status, primary);
		return 0;
	}
	position = position_of(dirfd, path, flags);
	if (position)
		status_make_node(status, position & EMU_POSITION_PRIMARY);
	return 0;
}

#define AS_STAT(status) ((struct stat *)(status))

HOOK int fstatat(int dirfd, const char *path, struct stat *status, int flags)
{
	return status_get(dirfd, path, status, flags);
}

HOOK int fstatat64(int dirfd, const char *path, struct stat64 *status, int flags)
{
	return status_get(dirfd, path, AS_STAT(status), flags);
}

HOOK int stat(const char *path, struct stat *status)
{
	return status_get(AT_FDCWD, path, status, 0);
}

HOOK int stat64(const char *path, struct stat64 *status)
{
	return status_get(AT_FDCWD, path, AS_STAT(status), 0);
}

HOOK int lstat(const char *path, struct stat *status)
{
	return status_get(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}

HOOK int lstat64(const char *path, struct stat64 *status)
{
	return status_get(AT_FDCWD, path, AS_STAT(status), AT_SYMLINK_NOFOLLOW);
}

HOOK int fstat(int fd, struct stat *status)
{
	return status_get(fd, "", status, AT_EMPTY_PATH);
}

HOOK int fstat64(int fd, struct stat64 *status)
{
	return status_get(fd, "", AS_STAT(status), AT_EMPTY_PATH);
}

/* ---- as programs for older versions of libc call them ---------------------------------------- */

int __xstat(int version, const char *path, struct stat *status);
int __xstat64(int version, const char *path, struct stat64 *status);
int __lxstat(int version, const char *path, struct stat *status);
int __lxstat64(int version, const char *path, struct stat64 *status);
int __fxstat(int version, int fd, struct stat *status);
int __fxstat64(int version, int fd, struct stat64 *status);
int __fxstatat(int version, int dirfd, const char *path, struct stat *status, int flags);
int __fxstatat64(int version, int dirfd, const char *path, struct stat64 *status, int flags);

HOOK int __xstat(int version, const char *path, struct stat *status)
{
	(void)version;
	return stat(path, status);
}

HOOK int __xstat64(int version, const char *path, struct stat64 *status)
{
	(void)version;
	return stat64(path, status);
}

HOOK int __lxstat(int version, const char *path, struct stat *status)
{
	(void)version;
	return lstat(path, status);
}

HOOK int __lxstat64(int version, const char *path, struct stat64 *status)
{
	(void)version;
	return lstat64(path, status);
}

HOOK int __fxstat(int version, int fd, struct stat *status)
{
	(void)version;
	return fstat(fd, status);
}

HOOK int __fxstat64(int version, int fd, struct stat64 *status)
{
	(void)version;
	return fstat64(fd, status);
}

HOOK int __fxstatat(int version, int dirfd, const char *path, struct stat *status, int flags)
{
	(void)version;
	return fstatat(dirfd, path, status, flags);
}

HOOK int __fxstatat64(int version, int dirfd, const char *path, struct stat64 *status, int flags)
{
	(void)version;
	return fstatat64(dirfd, path, status, flags);
}

/* ---- statx ----------------------------------------------------------------------------------- */

HOOK int statx(int dirfd, const char *restrict path, int flags, unsigned int mask,
               struct statx *restrict ret)
{
	char buffer[PATH_BYTES];
	struct stat status;
	int result = (int)syscall(SYS_statx, dirfd, preload_path_at(dirfd, path, buffer), flags, mask, ret);

	if (result || !preload_settings.server[0] || !S_ISREG(ret->stx_mode) ||
	    status_get(dirfd, path, &status, flags & (AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW)) ||
	    !S_ISCHR(status.st_mode))
		return result;
	ret->stx_mode = (uint16_t)status.st_mode;
	ret->stx_rdev_major = major(status.st_rdev);
	ret->stx_rdev_minor = minor(status.st_rdev);
	ret->stx_dev_major = major(status.st_dev);
	ret->stx_dev_minor = minor(status.st_dev);
	ret->stx_ino = status.st_ino;
	ret->stx_size = ret->stx_blocks = 0;
	return 0;
}

/* ---- the kind of file system ----------------------------------------------------------------- */

HOOK int fstatfs(int fd, struct statfs *ret)
{
	int result = (int)syscall(SYS_fstatfs, fd, ret);

	if (!result && preload_fd_is_sys(fd))
		ret->f_type = SYSFS_MAGIC;
	return result;
}

HOOK int fstatfs64(int fd, struct statfs64 *ret)
{
	return fstatfs(fd, (struct statfs *)ret);
}

/* ---- access ---------------------------------------------------------------------------------- */

HOOK int access(const char *path, int mode)
{
	char buffer[PATH_BYTES];

	return (int)syscall(SYS_faccessat, AT_FDCWD, preload_path(path, buffer), mode);
}

HOOK int faccessat(int dirfd, const char *path, int mode, int flags)
{
	char buffer[PATH_BYTES];
	const char *found = preload_path_at(dirfd, path, buffer);

	if (!flags)
		return (int)syscall(SYS_faccessat, dirfd, found, mode);
	return (int)syscall(SYS_faccessat2, dirfd, found, mode, flags);
}

HOOK int eaccess(const char *path, int mode)
{
	return faccessat(AT_FDCWD, path, mode, AT_EACCESS);
}

HOOK int euidaccess(const char *path, int mode)
{
	return faccessat(AT_FDCWD, path, mode, AT_EACCESS);
}

/* ---- extended attributes, of which there are none that matter -------------------------------- */

HOOK ssize_t getxattr(const char *path, const char *name, void *value, size_t bytes)
{
	char buffer[PATH_BYTES];

	return syscall(SYS_getxattr, preload_path(path, buffer), name, value, bytes);
}

HOOK ssize_t lgetxattr(const char *path, const char *name, void *value, size_t bytes)
{
	char buffer[PATH_BYTES];

	return syscall(SYS_lgetxattr, preload_path(path, buffer), name, value, bytes);
}

HOOK ssize_t listxattr(const char *path, char *names, size_t bytes)
{
	char buffer[PATH_BYTES];

	return syscall(SYS_listxattr, preload_path(path, buffer), names, bytes);
}

HOOK ssize_t llistxattr(const char *path, char *names, size_t bytes)
{
	char buffer[PATH_BYTES];

	return syscall(SYS_llistxattr, preload_path(path, buffer), names, bytes);
}
