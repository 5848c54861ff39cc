/* SPDX-License-Identifier: MIT
 *
 * Opening.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload.h"

#define TEXT_BYTES 16384

static int fail(int error)
{
	errno = error;
	return -1;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int node_open(bool primary, const char *placeholder, int flags)
{
	int fd;

	if (flags & O_PATH)
		return (int)syscall(SYS_openat, AT_FDCWD, placeholder, flags, 0);
	if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL))
		return fail(EEXIST);
	if (flags & O_DIRECTORY)
		return fail(ENOTDIR);
	fd = preload_open(primary, flags);
	return fd < 0 ? fail(-fd) : fd;
}

/* What the system says of the descriptor, but for the position and the lock, which are ours. */
static int fdinfo_write(int to, const char *path)
{
	FILE *(*next)(const char *, const char *) = (FILE *(*)(const char *, const char *))
	    dlsym(RTLD_NEXT, "fopen");
	FILE *from = next(path, "re");
	char line[256];
	int error = 0;

	if (!from)
		return -errno;
	while (!error && fgets(line, sizeof(line), from)) {
		if (!strncmp(line, "pos:", 4))
			strcpy(line, "pos:\t0\n");
		if (strncmp(line, "lock:", 5) && dprintf(to, "%s", line) < 0)
			error = -EIO;
	}
	(void)fclose(from);
	return error;
}

/* A file that holds what the server says now. */
static int text_open(enum emu_request kind, const char *path, int flags)
{
	bool is_fdinfo = kind == EMU_REQUEST_FDINFO;
	uint64_t position = is_fdinfo ? preload_proc_position(path) : 0;
	char text[TEXT_BYTES];
	int fd, error;

	if ((flags & O_ACCMODE) != O_RDONLY)
		return fail(EACCES);
	error = preload_text(kind, position, text, sizeof(text));
	if (error < 0)
		return fail(-error);
	fd = memfd_create("vmkv-text", flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
	if (fd < 0)
		return -1;
	error = is_fdinfo ? fdinfo_write(fd, path) : 0;
	if (!error && dprintf(fd, "%s", text) < 0)
		error = -EIO;
	if (!error && lseek(fd, 0, SEEK_SET) < 0)
		error = -errno;
	if (!error)
		return fd;
	(void)syscall(SYS_close, fd);
	return fail(-error);
}

int preload_open_at(int dirfd, const char *path, int flags, mode_t mode)
{
	char buffer[PATH_BYTES];
	enum preload_view view;
	const char *found = preload_view(dirfd, path, buffer, &view);

	switch (view) {
	case PRELOAD_RENDER:
	case PRELOAD_PRIMARY:
		return node_open(view == PRELOAD_PRIMARY, found, flags);
	case PRELOAD_FDINFO:
		return text_open(EMU_REQUEST_FDINFO, found, flags);
	case PRELOAD_VRAM_USED:
	case PRELOAD_GTT_USED:
		return text_open(view == PRELOAD_VRAM_USED ? EMU_REQUEST_VRAM_USED
		                                           : EMU_REQUEST_GTT_USED, found, flags);
	case PRELOAD_TREE:
		return (int)syscall(SYS_openat, AT_FDCWD, found, flags, mode);
	default:
		return (int)syscall(SYS_openat, dirfd, path, flags, mode);
	}
}

static mode_t mode_of(int flags, va_list args)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, mode_t) : 0;
}

#define OPEN_HOOKS(name)                                                                           \
	HOOK int name(const char *path, int flags, ...)                                            \
	{                                                                                          \
		va_list args;                                                                      \
		mode_t mode;                                                                       \
                                                                                                   \
		va_start(args, flags);                                                             \
		mode = mode_of(flags, args);                                                       \
		va_end(args);                                                                      \
		return preload_open_at(AT_FDCWD, path, flags, mode);                               \
	}

#define OPENAT_HOOKS(name)                                                                         \
	HOOK int name(int dirfd, const char *path, int flags, ...)                                 \
	{                                                                                          \
		va_list args;                                                                      \
		mode_t mode;                                                                       \
                                                                                                   \
		va_start(args, flags);                                                             \
		mode = mode_of(flags, args);                                                       \
		va_end(args);                                                                      \
		return preload_open_at(dirfd, path, flags, mode);                                  \
	}

/* Those with 64 differ on machines of 32 bits only; those with 2 are what _FORTIFY_SOURCE makes of them. */
OPEN_HOOKS(open)
OPEN_HOOKS(open64)
OPEN_HOOKS(__open)
OPEN_HOOKS(__open64)
OPENAT_HOOKS(openat)
OPENAT_HOOKS(openat64)

HOOK int __open_2(const char *path, int flags)
{
	return preload_open_at(AT_FDCWD, path, flags, 0);
}

HOOK int __open64_2(const char *path, int flags)
{
	return preload_open_at(AT_FDCWD, path, flags, 0);
}

HOOK int __openat_2(int dirfd, const char *path, int flags)
{
	return preload_open_at(dirfd, path, flags, 0);
}

HOOK int __openat64_2(int dirfd, const char *path, int flags)
{
	return preload_open_at(dirfd, path, flags, 0);
}

HOOK int creat(const char *path, mode_t mode)
{
	return preload_open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

HOOK int creat64(const char *path, mode_t mode)
{
	return preload_open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

/* ---- streams --------------------------------------------------------------------------------- */

static int mode_flags(const char *mode)
{
	int flags = strchr(mode, '+') ? O_RDWR : *mode == 'r' ? O_RDONLY : O_WRONLY;

	return strchr(mode, 'e') ? flags | O_CLOEXEC : flags;
}

static FILE *stream_open(const char *name, const char *path, const char *mode)
{
	FILE *(*next)(const char *, const char *) = (FILE *(*)(const char *, const char *))
	    dlsym(RTLD_NEXT, name);
	char buffer[PATH_BYTES];
	enum preload_view view;
	const char *found = preload_view(AT_FDCWD, path, buffer, &view);
	FILE *stream;
	int fd;

	if (view == PRELOAD_REAL || view == PRELOAD_TREE)
		return next(found, mode);
	fd = preload_open_at(AT_FDCWD, path, mode_flags(mode), 0);
	if (fd < 0)
		return NULL;
	stream = fdopen(fd, mode);
	if (!stream)
		(void)syscall(SYS_close, fd);
	return stream;
}

HOOK FILE *fopen(const char *path, const char *mode)
{
	return stream_open("fopen", path, mode);
}

HOOK FILE *fopen64(const char *path, const char *mode)
{
	return stream_open("fopen64", path, mode);
}
