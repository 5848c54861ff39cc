/* SPDX-License-Identifier: MIT
 *
 * The file of a cache that is shared: in a directory that is the user's alone, with all the room
 * that it will ever need, and no name before it is filled in.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "publish.h"
#include "publish_process.h"
#include "util.h"

#define FAIL(rc, ...) (vmkv_text(error, error_bytes, __VA_ARGS__), (rc))

int vmkv_mirror_wanted(uint32_t share, bool *ret, char *error, size_t error_bytes)
{
	const char *text = getenv("VMKV_STATS");
	bool given = text != NULL && text[0] != 0;

	if (share > VMKV_SHARE_OFF)
		return FAIL(-EINVAL, "share %u is not one of enum vmkv_share", share);
	if (given && strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
		return FAIL(-EINVAL, "VMKV_STATS is \"%.32s\": it must be 0 or 1", text);
	*ret = share == VMKV_SHARE_ON || (share == VMKV_SHARE_DEFAULT && given);
	if (given && text[0] == '0')
		*ret = false;
	return 0;
}

/* ---- the directory --------------------------------------------------------------------------- */

static int directory_check(int fd, const char *path, char *error, size_t error_bytes)
{
	struct stat found;

	if (fstat(fd, &found) != 0)
		return FAIL(-errno, "%s: %s", path, strerror(errno));
	if (found.st_uid != geteuid())
		return FAIL(-EACCES, "%s belongs to user %u, not %u: nothing is published there", path,
		            found.st_uid, geteuid());
	if ((found.st_mode & 07777) != 0700)
		return FAIL(-EACCES, "%s has mode %03o: it must be 700, as what is published is for its "
		            "owner alone",
		            path, found.st_mode & 07777u);
	return 0;
}

/* Open the directory `name` in an open one, and make it if need be. Closes `parent`. */
static int directory_open(int parent, const char *name, const char *path, char *error,
                          size_t error_bytes)
{
	int made = mkdirat(parent, name, 0700) == 0 || errno == EEXIST ? 0 : -errno;
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int rc = fd >= 0 ? 0 : -errno;

	close(parent);
	if (rc == -ELOOP || rc == -ENOTDIR)
		return FAIL(-EACCES, "%s is a link or no directory: nothing is published there", path);
	if (rc != 0) {
		rc = made != 0 ? made : rc;
		return FAIL(rc, "%s can't be made: %s", path, strerror(-rc));
	}
	rc = directory_check(fd, path, error, error_bytes);
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

/* Returns a descriptor or what is wrong. */
static int directory_find(struct vmkv_mirror_file *file, char *error, size_t error_bytes)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	char name[32];
	int parent;

	/* A path that is relative or too long means nothing; one that isn't there is of another
	 * time. */
	if (runtime != NULL && runtime[0] == '/' &&
	    strlen(runtime) + sizeof("/vmkv") <= sizeof(file->path)) {
		parent = open(runtime, flags);
		vmkv_text(file->path, sizeof(file->path), "%s/vmkv", runtime);
		if (parent >= 0)
			return directory_open(parent, "vmkv", file->path, error, error_bytes);
	}
	parent = open("/dev/shm", flags);
	if (parent < 0)
		return FAIL(-errno, "there is no XDG_RUNTIME_DIR, and /dev/shm can't be opened: %s",
		            strerror(errno));
	snprintf(name, sizeof(name), "vmkv-%u", geteuid());
	snprintf(file->path, sizeof(file->path), "/dev/shm/%s", name);
	return directory_open(parent, name, file->path, error, error_bytes);
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Give an open file its size, with memory or disk behind all of it. */
static int file_reserve(int fd, const struct vmkv_mirror_file *file, char *error,
                        size_t error_bytes)
{
	struct rlimit limit;
	int rc;

	/* Beyond it there is not only an error, but a signal. */
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
	    limit.rlim_cur < file->size)
		return FAIL(-EFBIG, "sharing the cache takes a file of %zu bytes in %s, and RLIMIT_FSIZE "
		            "allows %" PRIu64,
		            file->size, file->path, (uint64_t)limit.rlim_cur);
	rc = posix_fallocate(fd, 0, (off_t)file->size);
	if (rc != 0)
		return FAIL(-rc, "sharing the cache takes a file of %zu bytes in %s: %s", file->size,
		            file->path, strerror(rc));
	return 0;
}

static int file_map(int fd, struct vmkv_mirror_file *file, char *error, size_t error_bytes)
{
	int rc = file_reserve(fd, file, error, error_bytes);
	void *bytes;

	if (rc != 0)
		return rc;
	bytes = mmap(NULL, file->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (bytes == MAP_FAILED)
		return FAIL(-errno, "the shared file of %zu bytes can't be mapped: %s", file->size,
		            strerror(errno));
	/* The faults of a first write come here, and not when the cache grows. */
	memset(bytes, 0, file->size);
	file->bytes = bytes;
	return 0;
}

int vmkv_mirror_file_create(struct vmkv_mirror_file *file, uint32_t tag, size_t size, char *error,
                            size_t error_bytes)
{
	int fd, rc;

	file->size = size;
	file->pid = getpid();
	file->bytes = NULL;
	file->directory = directory_find(file, error, error_bytes);
	if (file->directory < 0)
		return file->directory;
	vmkv_mirror_reap(file->directory);
	snprintf(file->name, sizeof(file->name), ".%d-%05x.kv", file->pid, tag);
	fd = openat(file->directory, file->name,
	            O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0) {
		rc = FAIL(-errno, "%s/%s can't be made: %s", file->path, file->name, strerror(errno));
		close(file->directory);
		return rc;
	}
	rc = file_map(fd, file, error, error_bytes);
	close(fd);
	if (rc != 0)
		vmkv_mirror_file_destroy(file);
	return rc;
}

int vmkv_mirror_file_show(struct vmkv_mirror_file *file, char *error, size_t error_bytes)
{
	if (renameat2(file->directory, file->name, file->directory, file->name + 1,
	              RENAME_NOREPLACE) != 0)
		return FAIL(-errno, "%s/%s can't get its name: %s", file->path, file->name,
		            strerror(errno));
	memmove(file->name, file->name + 1, strlen(file->name));
	return 0;
}

void vmkv_mirror_file_destroy(struct vmkv_mirror_file *file)
{
	if (file->bytes != NULL)
		munmap(file->bytes, file->size);
	if (file->pid == getpid())
		unlinkat(file->directory, file->name, 0);
	close(file->directory);
}
