/* SPDX-License-Identifier: MIT
 *
 * Find the card as device managers do: by the names in /sys/class, and step by step along a path, each
 * link followed by hand. Prints what was found.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define STEPS_MOST 64

/* The next part of *path, or NULL at its end. */
static char *part_take(char **path)
{
	char *part = strsep(path, "/");

	while (part && !*part)
		part = strsep(path, "/");
	return part;
}

/* A descriptor of where `path` leads from the root on, or -1. */
static int walk(const char *path)
{
	char todo[PATH_MAX], link[PATH_MAX], rest[PATH_MAX], *at = todo, *part;
	int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	snprintf(todo, sizeof(todo), "%s", path);
	for (int i = 0; i < STEPS_MOST && fd >= 0 && (part = part_take(&at)); i++) {
		int next = openat(fd, part, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		struct stat status;
		ssize_t n;

		if (next < 0 || fstat(next, &status) || !S_ISLNK(status.st_mode)) {
			close(fd);
			fd = next;
			continue;
		}
		close(next);
		n = readlinkat(fd, part, link, sizeof(link) - 1);
		if (n < 0) {
			close(fd);
			return -1;
		}
		link[n] = '\0';
		snprintf(rest, sizeof(rest), "%s", at ? at : "");
		n = snprintf(todo, sizeof(todo), "%s/%s", link, rest);
		if (n >= (ssize_t)sizeof(todo))
			return -1;
		at = todo;
	}
	return fd;
}

static void walk_print(const char *path)
{
	char link[64], place[PATH_MAX];
	struct statfs system;
	int fd = walk(path);
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = fd < 0 ? -1 : readlink(link, place, sizeof(place));
	if (n < 0 || fstatfs(fd, &system)) {
		printf("%s leads nowhere\n", path);
		return;
	}
	printf("%s: %.*s sysfs %d uevent %d\n", path, (int)n, place, system.f_type == SYSFS_MAGIC,
	       faccessat(fd, "uevent", F_OK, 0));
	close(fd);
}

int main(void)
{
	DIR *directory = opendir("/sys/class");
	struct dirent *entry;
	int drm = 0, others = 0;

	while (directory && (entry = readdir(directory))) {
		drm += !strcmp(entry->d_name, "drm");
		others += entry->d_name[0] != '.' && strcmp(entry->d_name, "drm") != 0;
	}
	closedir(directory);
	printf("classes: drm %d, others %d\n", drm, others > 0);
	walk_print("/sys/class/drm/card0");
	walk_print("/sys/dev/char/226:128");
	walk_print("/sys/devices/pci0000:00/0000:03:00.0");
	walk_print("/sys/class/drm/card7");
	return 0;
}
