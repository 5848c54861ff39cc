/* SPDX-License-Identifier: MIT */
#include "publish_process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "util.h"

#define HIDDEN_SECONDS 60 /* a file without its name may still be filled in for so long */

/* Read a small file into text, without the end of its line. Returns whether it could be. */
static bool text_read(const char *path, char *text, size_t n)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd >= 0 ? read(fd, text, n - 1) : -1;

	if (fd >= 0)
		close(fd);
	text[got > 0 ? got : 0] = 0;
	text[strcspn(text, "\n")] = 0;
	return got > 0;
}

/* When the process began, in ticks since the machine did; 0 if it is dead, or a zombie. */
static uint64_t start_ticks(uint32_t pid)
{
	char path[48], text[1024], *at;

	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	if (!text_read(path, text, sizeof(text)))
		return 0;
	/* The name, in parentheses, may hold anything. Behind it is the state, which is field 3. */
	at = strrchr(text, ')');
	if (at == NULL || at[1] != ' ' || at[2] == 'Z' || at[2] == 'X')
		return 0;
	at++;
	for (int field = 3; field <= 22 && at != NULL; field++)
		at = strchr(at + (field > 3), ' ');
	return at != NULL ? strtoull(at, NULL, 10) : 0;
}

static uint64_t pid_namespace(void)
{
	struct stat found;

	return stat("/proc/self/ns/pid", &found) == 0 ? found.st_ino : 0;
}

void vmkv_mirror_identify(struct vmkv_published_header *header)
{
	header->pid = (uint32_t)getpid();
	header->uid = geteuid();
	header->pid_namespace = pid_namespace();
	header->start_ticks = start_ticks(header->pid);
	header->created_ns = vmkv_clock_ns(CLOCK_MONOTONIC);
	header->created_realtime_ns = vmkv_clock_ns(CLOCK_REALTIME);
	text_read("/proc/sys/kernel/random/boot_id", header->boot_id, sizeof(header->boot_id));
	text_read("/proc/self/comm", header->program, sizeof(header->program));
}

/* ---- what the dead left ---------------------------------------------------------------------- */

/* Whether the name is [.]PID-TAG.kv. */
static bool name_parse(const char *name, bool *hidden, uint32_t *pid)
{
	char *end;
	unsigned long value;

	*hidden = name[0] == '.';
	name += *hidden;
	if (name[0] < '1' || name[0] > '9')
		return false;
	value = strtoul(name, &end, 10);
	*pid = (uint32_t)value;
	return value <= INT32_MAX && end[0] == '-' && strspn(end + 1, "0123456789abcdef") == 5 &&
	       strcmp(end + 6, ".kv") == 0;
}

/* Whether the process is dead that filled in this file. */
static bool header_dead(int fd, const struct vmkv_published_header *me)
{
	struct vmkv_published_header header;

	if (pread(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header) ||
	    header.magic != VMKV_PUBLISHED_MAGIC || header.version_major != VMKV_PUBLISHED_MAJOR)
		return false;
	if (strncmp(header.boot_id, me->boot_id, sizeof(header.boot_id)) != 0)
		return me->boot_id[0] != 0 && header.boot_id[0] != 0;
	if (header.pid_namespace != me->pid_namespace || header.start_ticks == 0)
		return false;
	return start_ticks(header.pid) != header.start_ticks;
}

static bool file_dead(int directory, const char *name, const struct vmkv_published_header *me)
{
	struct stat found;
	bool hidden, dead = false;
	uint32_t pid;
	int fd;

	if (!name_parse(name, &hidden, &pid))
		return false;
	fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == me->uid) {
		if (hidden)
			dead = time(NULL) - found.st_mtime > HIDDEN_SECONDS &&
			       kill((pid_t)pid, 0) != 0 && errno == ESRCH;
		else
			dead = header_dead(fd, me);
	}
	close(fd);
	return dead;
}

void vmkv_mirror_reap(int directory)
{
	struct vmkv_published_header me = { 0 };
	int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *entries = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;

	if (entries == NULL) {
		if (fd >= 0)
			close(fd);
		return;
	}
	vmkv_mirror_identify(&me);
	while ((entry = readdir(entries)) != NULL) {
		if (file_dead(directory, entry->d_name, &me))
			unlinkat(directory, entry->d_name, 0);
	}
	closedir(entries);
}
