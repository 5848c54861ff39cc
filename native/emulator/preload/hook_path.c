/* SPDX-License-Identifier: MIT
 *
 * Directories, links, and where a path leads.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload.h"

/* The function that a hook stands before, with the hook's own type. */
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* ---- directories: those of the tree are directories ------------------------------------------ */

HOOK DIR *opendir(const char *path)
{
	char buffer[PATH_BYTES];

	return NEXT(opendir)(preload_listing(path, buffer));
}

HOOK int scandir(const char *path, struct dirent ***list, int (*filter)(const struct dirent *),
                 int (*compare)(const struct dirent **, const struct dirent **))
{
	char buffer[PATH_BYTES];

	return NEXT(scandir)(preload_listing(path, buffer), list, filter, compare);
}

HOOK int scandir64(const char *path, struct dirent64 ***list, int (*filter)(const struct dirent64 *),
                   int (*compare)(const struct dirent64 **, const struct dirent64 **))
{
	char buffer[PATH_BYTES];

	return NEXT(scandir64)(preload_listing(path, buffer), list, filter, compare);
}

HOOK int chdir(const char *path)
{
	char buffer[PATH_BYTES];
	const char *found = preload_path(path, buffer);
	int result = (int)syscall(SYS_chdir, found);

	if (!result && *path == '/')
		preload_settings.cwd_in_tree = found != path;
	return result;
}

HOOK char *getcwd(char *to, size_t bytes)
{
	char *result = NEXT(getcwd)(to, bytes);

	if (result)
		preload_path_hide(result);
	return result;
}

/* ---- links ----------------------------------------------------------------------------------- */

static const char *node_name(uint64_t position)
{
	return position & EMU_POSITION_PRIMARY ? "/dev/dri/card0" : "/dev/dri/renderD128";
}

static bool is_in_tree(const char *path, ssize_t n)
{
	ssize_t length = (ssize_t)preload_settings.tree_length;

	return preload_settings.server[0] && n > length && path[length] == '/' &&
	       !memcmp(path, preload_settings.tree, (size_t)length);
}

/* What a link says; one of /proc may lead into the tree. */
static ssize_t link_read(int dirfd, const char *path, char *to, size_t bytes)
{
	ssize_t n = syscall(SYS_readlinkat, dirfd, path, to, bytes);
	char whole[PATH_BYTES];
	size_t length;

	if (!is_in_tree(to, n))
		return n;
	n = syscall(SYS_readlinkat, dirfd, path, whole, sizeof(whole));
	if (!is_in_tree(whole, n))
		return n;
	length = (size_t)n - preload_settings.tree_length;
	if (length > bytes)
		length = bytes;
	memcpy(to, whole + preload_settings.tree_length, length);
	return (ssize_t)length;
}

/* What a link in the tree says needs no change: it leads on from where it is. */
HOOK ssize_t readlinkat(int dirfd, const char *path, char *to, size_t bytes)
{
	char buffer[PATH_BYTES];
	uint64_t position = preload_proc_position(path);
	const char *name;
	size_t length;

	if (!position)
		return link_read(dirfd, preload_path_at(dirfd, path, buffer), to, bytes);
	name = node_name(position);
	length = strlen(name) < bytes ? strlen(name) : bytes;
	memcpy(to, name, length);
	return (ssize_t)length;
}

HOOK ssize_t readlink(const char *path, char *to, size_t bytes)
{
	return readlinkat(AT_FDCWD, path, to, bytes);
}

ssize_t __readlink_chk(const char *path, char *to, size_t bytes, size_t room);
ssize_t __readlinkat_chk(int dirfd, const char *path, char *to, size_t bytes, size_t room);

HOOK ssize_t __readlink_chk(const char *path, char *to, size_t bytes, size_t room)
{
	return readlinkat(AT_FDCWD, path, to, bytes < room ? bytes : room);
}

HOOK ssize_t __readlinkat_chk(int dirfd, const char *path, char *to, size_t bytes, size_t room)
{
	return readlinkat(dirfd, path, to, bytes < room ? bytes : room);
}

/* ---- rights, which nodes have as their placeholders do ----------------------------------------- */

HOOK int chmod(const char *path, mode_t mode)
{
	char buffer[PATH_BYTES];

	return (int)syscall(SYS_fchmodat, AT_FDCWD, preload_path(path, buffer), mode);
}

HOOK int fchmodat(int dirfd, const char *path, mode_t mode, int flags)
{
	char buffer[PATH_BYTES];

	return NEXT(fchmodat)(dirfd, preload_path(path, buffer), mode, flags);
}

HOOK int fchownat(int dirfd, const char *path, uid_t user, gid_t group, int flags)
{
	char buffer[PATH_BYTES];

	return (int)syscall(SYS_fchownat, dirfd, preload_path(path, buffer), user, group, flags);
}

HOOK int chown(const char *path, uid_t user, gid_t group)
{
	return fchownat(AT_FDCWD, path, user, group, 0);
}

HOOK int lchown(const char *path, uid_t user, gid_t group)
{
	return fchownat(AT_FDCWD, path, user, group, AT_SYMLINK_NOFOLLOW);
}

/* ---- where a path leads ---------------------------------------------------------------------- */

static const char *path_begin(const char *path, char buffer[PATH_BYTES])
{
	uint64_t position = preload_proc_position(path);

	return preload_path(position ? node_name(position) : path, buffer);
}

HOOK char *realpath(const char *restrict path, char *restrict to)
{
	char buffer[PATH_BYTES], *result = NEXT(realpath)(path_begin(path, buffer), to);

	if (result)
		preload_path_hide(result);
	return result;
}

char *__realpath_chk(const char *path, char *to, size_t room);

HOOK char *__realpath_chk(const char *path, char *to, size_t room)
{
	char buffer[PATH_BYTES], *result = NEXT(__realpath_chk)(path_begin(path, buffer), to, room);

	if (result)
		preload_path_hide(result);
	return result;
}

HOOK char *canonicalize_file_name(const char *path)
{
	return realpath(path, NULL);
}
