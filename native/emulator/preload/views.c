/* SPDX-License-Identifier: MIT
 *
 * Which paths show something else than the machine's own files.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload.h"

#define SELF "/proc/self/"

/* ---- the tree -------------------------------------------------------------------------------- */

/* What it stands for, each with all that is below. The card's own directory is another one. */
static const char *const shown[] = {
	"/dev/dri",         "/sys/class/drm",      "/sys/dev/char/226:128",
	"/sys/dev/char/226:0", "/sys/bus/pci",     "/sys/module/amdgpu",
};

/* All that is in it is listed, though only what stands above is in the tree. */
#define LISTED "/sys/class"
#define CARD_DIRECTORY "/sys/devices/pci0000:00/"

static bool is_below(const char *path, const char *directory)
{
	size_t length = strlen(directory);

	return !strncmp(path, directory, length) && (!path[length] || path[length] == '/');
}

static bool is_shown(const char *path)
{
	size_t length = strlen(CARD_DIRECTORY);

	for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++)
		if (is_below(path, shown[i]))
			return true;
	return !strncmp(path, CARD_DIRECTORY, length) &&
	       is_below(path + length, preload_settings.slot);
}

/* Without doubled slashes and dots that mean nothing. */
static bool path_tidy(const char *path, char *to, size_t room)
{
	size_t n = 0;

	while (*path) {
		if (*path == '/' && (path[1] == '/' || (path[1] == '.' && (path[2] == '/' || !path[2])))) {
			path += path[1] == '/' ? 1 : 2;
			continue;
		}
		if (n + 1 >= room)
			return false;
		to[n++] = *path++;
	}
	to[n] = '\0';
	return true;
}

static const char *absolute_view(const char *path, char *buffer, enum preload_view *ret)
{
	size_t length = preload_settings.tree_length;

	if (strncmp(path, "/dev", 4) && strncmp(path, "/sys", 4) && path[1] != '/' && path[1] != '.')
		return path;
	memcpy(buffer, preload_settings.tree, length);
	if (!path_tidy(path, buffer + length, PATH_BYTES - length) || !is_shown(buffer + length))
		return path;
	*ret = PRELOAD_TREE;
	return buffer;
}

bool preload_is_node(dev_t device, ino_t inode, bool *primary)
{
	const struct preload_settings *settings = &preload_settings;

	if (!settings->server[0] || device != settings->device ||
	    (inode != settings->render && inode != settings->primary))
		return false;
	*primary = inode == settings->primary;
	return true;
}

void preload_path_hide(char *path)
{
	size_t length = preload_settings.tree_length;

	if (preload_settings.server[0] && !strncmp(path, preload_settings.tree, length) &&
	    path[length] == '/')
		memmove(path, path + length, strlen(path + length) + 1);
}

const char *preload_listing(const char *path, char buffer[PATH_BYTES])
{
	size_t length = preload_settings.tree_length;

	if (preload_settings.server[0] && path && !strncmp(path, "/sys", 4)) {
		memcpy(buffer, preload_settings.tree, length);
		if (path_tidy(path, buffer + length, PATH_BYTES - length) &&
		    (!strcmp(buffer + length, LISTED) || !strcmp(buffer + length, LISTED "/")))
			return buffer;
	}
	return preload_path(path, buffer);
}

bool preload_fd_is_sys(int fd)
{
	char link[40], path[PATH_BYTES];
	size_t length = preload_settings.tree_length;
	long n;

	if (!preload_settings.server[0])
		return false;
	snprintf(link, sizeof(link), SELF "fd/%d", fd);
	n = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof(path) - 1);
	if (n <= (long)length)
		return false;
	path[n] = '\0';
	return !strncmp(path, preload_settings.tree, length) && is_below(path + length, "/sys");
}

/* ---- /proc ----------------------------------------------------------------------------------- */

static bool is_number(const char *text)
{
	return *text && text[strspn(text, "0123456789")] == '\0';
}

/* /proc/WHOSE/... /fd/N or /fdinfo/N: where the last two parts begin. */
static const char *proc_entry(const char *path)
{
	const char *number = strrchr(path, '/'), *fd;

	if (strncmp(path, "/proc/", 6) || !number || !is_number(number + 1))
		return NULL;
	for (fd = number; fd > path && fd[-1] != '/'; fd--)
		;
	if (!strncmp(fd, "fd/", 3) || !strncmp(fd, "fdinfo/", 7))
		return fd;
	return NULL;
}

uint64_t preload_proc_position(const char *path)
{
	const char *entry = preload_settings.server[0] && path ? proc_entry(path) : NULL;
	char info[PATH_BYTES], text[64] = "";
	uint64_t position;
	int fd, saved = errno;

	if (!entry)
		return 0;
	if ((size_t)snprintf(info, sizeof(info), "%.*sfdinfo%s", (int)(entry - path), path,
	                     strrchr(entry, '/')) >= sizeof(info))
		return 0;
	fd = (int)syscall(SYS_openat, AT_FDCWD, info, O_RDONLY | O_CLOEXEC, 0);
	if (fd >= 0) {
		(void)!syscall(SYS_read, fd, text, sizeof(text) - 1);
		(void)syscall(SYS_close, fd);
	}
	errno = saved;
	position = strncmp(text, "pos:", 4) ? 0 : strtoull(text + 4, NULL, 10);
	return EMU_POSITION_IS_SERVED(position) ? position : 0;
}

/* A descriptor's entry opens its node once more. */
static enum preload_view proc_view(const char *path)
{
	uint64_t position = preload_proc_position(path);

	if (!position)
		return PRELOAD_REAL;
	if (strstr(path, "/fdinfo/"))
		return PRELOAD_FDINFO;
	return position & EMU_POSITION_PRIMARY ? PRELOAD_PRIMARY : PRELOAD_RENDER;
}

/* ---- any path -------------------------------------------------------------------------------- */

/* One below a directory that is open, or the working one: where that is. */
static const char *relative_view(int dirfd, const char *path, char *buffer, enum preload_view *ret)
{
	char link[40], whole[PATH_BYTES];
	long n;

	if (dirfd == AT_FDCWD && !preload_settings.cwd_in_tree)
		return path;
	if (dirfd == AT_FDCWD)
		strcpy(link, SELF "cwd");
	else
		snprintf(link, sizeof(link), SELF "fd/%d", dirfd);
	n = syscall(SYS_readlinkat, AT_FDCWD, link, whole, sizeof(whole) - 1);
	if (n <= 0 || (size_t)n + strlen(path) + 2 > sizeof(whole))
		return path;
	whole[n] = '/';
	strcpy(whole + n + 1, path);
	if (is_below(whole, preload_settings.tree))
		*ret = PRELOAD_TREE;
	else if (absolute_view(whole, buffer, ret) == buffer)
		return buffer;
	else
		*ret = proc_view(whole);
	return *ret == PRELOAD_REAL ? path : strcpy(buffer, whole);
}

/* A node may be behind a link. */
static enum preload_view tree_view(const char *path)
{
	const char *name = strrchr(path, '/') + 1;
	struct stat status;
	bool primary;

	if (!strcmp(name, "mem_info_vram_used") || !strcmp(name, "mem_info_vis_vram_used"))
		return PRELOAD_VRAM_USED;
	if (!strcmp(name, "mem_info_gtt_used"))
		return PRELOAD_GTT_USED;
	if (syscall(SYS_newfstatat, AT_FDCWD, path, &status, 0) ||
	    !preload_is_node(status.st_dev, status.st_ino, &primary))
		return PRELOAD_TREE;
	return primary ? PRELOAD_PRIMARY : PRELOAD_RENDER;
}

const char *preload_view(int dirfd, const char *path, char buffer[PATH_BYTES], enum preload_view *ret)
{
	int saved = errno;
	const char *found = path;

	*ret = PRELOAD_REAL;
	if (!preload_settings.server[0] || !path || !*path)
		return path;
	if (*path != '/')
		found = relative_view(dirfd, path, buffer, ret);
	else if (strncmp(path, "/proc/", 6))
		found = absolute_view(path, buffer, ret);
	else
		*ret = proc_view(path);
	if (*ret == PRELOAD_TREE)
		*ret = tree_view(found);
	errno = saved;
	return found;
}

const char *preload_path(const char *path, char buffer[PATH_BYTES])
{
	enum preload_view view = PRELOAD_REAL;

	if (!preload_settings.server[0] || !path)
		return path;
	return *path == '/' ? absolute_view(path, buffer, &view) : path;
}

const char *preload_path_at(int dirfd, const char *path, char buffer[PATH_BYTES])
{
	enum preload_view view = PRELOAD_REAL;
	int saved = errno;
	const char *found;

	if (!preload_settings.server[0] || dirfd == AT_FDCWD || !path || !*path || *path == '/')
		return preload_path(path, buffer);
	found = relative_view(dirfd, path, buffer, &view);
	errno = saved;
	return view == PRELOAD_TREE ? found : path;
}
