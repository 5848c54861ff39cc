/* SPDX-License-Identifier: MIT
 *
 * Syncobjs and sync files as descriptors. Each is the read end of a pipe; its inode says which one it is,
 * however it was duplicated or passed on. We keep the write end: polling it tells when there are no readers
 * left, and a byte in it makes the read end readable, as a sync file is whose fence is signalled.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "emu.h"

#define POLLED_AT_ONCE 64

struct emu_export {
	struct emu_list link;
	ino_t inode;
	dev_t device;
	int write_end;
	struct emu_syncobj *syncobj; /* a reference; or ... */
	struct emu_fence *fence;     /* ... a reference */
	bool written;
};

static void export_free(struct emu_gpu *gpu, struct emu_export *export)
{
	emu_list_remove(&export->link);
	gpu->jobs.export_count--;
	close(export->write_end);
	emu_syncobj_put(export->syncobj);
	emu_fence_put(export->fence);
	free(export);
}

static void export_show(struct emu_export *export)
{
	/* The pipe is empty, and its readers leave it alone: a byte fits. */
	export->written = write(export->write_end, "", 1) == 1;
}

static uint32_t exports_take(struct emu_list *from, struct emu_export **taken, struct pollfd *polls)
{
	uint32_t n = 0;

	EMU_FOR_EACH(item, from) {
		if (n == POLLED_AT_ONCE)
			break;
		taken[n] = EMU_ENTRY(item, struct emu_export, link);
		polls[n] = (struct pollfd){ .fd = taken[n]->write_end };
		emu_list_remove(item);
		n++;
	}
	return n;
}

void emu_exports_sweep(struct emu_gpu *gpu)
{
	struct emu_list rest;

	emu_list_init(&rest);
	emu_list_splice(&rest, &gpu->jobs.exports);
	while (!emu_list_is_empty(&rest)) {
		struct pollfd polls[POLLED_AT_ONCE];
		struct emu_export *taken[POLLED_AT_ONCE];
		uint32_t n = exports_take(&rest, taken, polls);
		bool polled = poll(polls, n, 0) >= 0;

		for (uint32_t i = 0; i < n; i++) {
			emu_list_append(&gpu->jobs.exports, &taken[i]->link);
			if (polled && polls[i].revents & POLLERR)
				export_free(gpu, taken[i]);
		}
	}
}

void emu_exports_fini(struct emu_gpu *gpu)
{
	EMU_FOR_EACH(item, &gpu->jobs.exports)
		export_free(gpu, EMU_ENTRY(item, struct emu_export, link));
}

static int pipe_make(struct emu_export *export, int *read_end)
{
	struct stat status;
	int ends[2];

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return -errno;
	if (fstat(ends[0], &status)) {
		close(ends[0]);
		close(ends[1]);
		return -EMFILE;
	}
	export->inode = status.st_ino;
	export->device = status.st_dev;
	export->write_end = ends[1];
	*read_end = ends[0];
	return 0;
}

static int export_make(struct emu_gpu *gpu, struct emu_export **ret, int *fd)
{
	struct emu_export *export;
	int error;

	emu_exports_sweep(gpu);
	export = calloc(1, sizeof(*export));
	if (!export)
		return -ENOMEM;
	error = pipe_make(export, fd);
	if (error) {
		free(export);
		return error;
	}
	emu_list_append(&gpu->jobs.exports, &export->link);
	gpu->jobs.export_count++;
	*ret = export;
	return 0;
}

int emu_export_syncobj(struct emu_syncobj *syncobj, int *fd)
{
	struct emu_export *export;
	int error = export_make(syncobj->gpu, &export, fd);

	if (error)
		return error;
	emu_syncobj_get(syncobj);
	export->syncobj = syncobj;
	return 0;
}

int emu_export_fence(struct emu_fence *fence, int *fd)
{
	struct emu_export *export;
	int error = export_make(fence->gpu, &export, fd);

	if (error)
		return error;
	emu_fence_get(fence);
	export->fence = fence;
	if (fence->signalled)
		export_show(export);
	return 0;
}

void emu_exports_signal(struct emu_gpu *gpu, struct emu_fence *fence)
{
	EMU_FOR_EACH(item, &gpu->jobs.exports) {
		struct emu_export *export = EMU_ENTRY(item, struct emu_export, link);

		if (export->fence == fence && !export->written)
			export_show(export);
	}
}

static struct emu_export *export_find(struct emu_gpu *gpu, int fd)
{
	struct stat status;

	emu_exports_sweep(gpu);
	if (fstat(fd, &status) || !S_ISFIFO(status.st_mode))
		return NULL;
	EMU_FOR_EACH(item, &gpu->jobs.exports) {
		struct emu_export *export = EMU_ENTRY(item, struct emu_export, link);

		if (export->inode == status.st_ino && export->device == status.st_dev)
			return export;
	}
	return NULL;
}

struct emu_syncobj *emu_import_syncobj(struct emu_gpu *gpu, int fd)
{
	struct emu_export *export = export_find(gpu, fd);

	if (!export || !export->syncobj)
		return NULL;
	emu_syncobj_get(export->syncobj);
	return export->syncobj;
}

struct emu_fence *emu_import_fence(struct emu_gpu *gpu, int fd)
{
	struct emu_export *export = export_find(gpu, fd);

	if (!export)
		return NULL;
	emu_fence_get(export->fence);
	return export->fence;
}
