/* SPDX-License-Identifier: MIT
 *
 * Sharing buffers between files: by name (FLINK), and by descriptor (PRIME).
 *
 * A dma-buf is a memory file of its own, of the buffer's size and empty, known by its inode.
 * Descriptors of it can only write: that gives the size to who seeks the end, and lets no mmap show
 * bytes that aren't the buffer's. Each descriptor that is given out has a lock on one byte of the
 * file, which its duplicates share, and which goes with the last of them: so we learn whether
 * anybody still has one.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory_parts.h"

#define DMABUF_NAME "vmkv-dmabuf"

struct emu_dmabuf {
	struct emu_list link; /* in emu_memory.dmabufs */
	struct emu_bo *bo;    /* a reference */
	int fd;
	dev_t device;
	ino_t inode;
	int64_t given; /* how often: the next byte to lock */
};

/* ---- dma-bufs -------------------------------------------------------------------------------- */

static int file_make(struct emu_dmabuf *dmabuf, uint64_t bytes)
{
	struct stat status;

	dmabuf->fd = memfd_create(DMABUF_NAME, MFD_CLOEXEC);
	if (dmabuf->fd < 0)
		return -errno;
	if (ftruncate(dmabuf->fd, (off_t)bytes) || fstat(dmabuf->fd, &status)) {
		close(dmabuf->fd);
		return -ENOMEM;
	}
	dmabuf->device = status.st_dev;
	dmabuf->inode = status.st_ino;
	return 0;
}

static int dmabuf_get(struct emu_bo *bo, struct emu_dmabuf **ret)
{
	struct emu_dmabuf *dmabuf = bo->dmabuf;
	int error;

	if (!dmabuf) {
		dmabuf = calloc(1, sizeof(*dmabuf));
		if (!dmabuf)
			return -ENOMEM;
		error = file_make(dmabuf, bo->bytes);
		if (error) {
			free(dmabuf);
			return error;
		}
		emu_bo_get(bo);
		dmabuf->bo = bo;
		bo->dmabuf = dmabuf;
		emu_list_append(&bo->gpu->memory.dmabufs, &dmabuf->link);
	}
	*ret = dmabuf;
	return 0;
}

static void dmabuf_destroy(struct emu_dmabuf *dmabuf)
{
	struct emu_bo *bo = dmabuf->bo;

	emu_list_remove(&dmabuf->link);
	close(dmabuf->fd);
	bo->dmabuf = NULL;
	free(dmabuf);
	emu_bo_put(bo);
}

static int descriptor_give(struct emu_dmabuf *dmabuf, bool cloexec, int *ret)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = dmabuf->given,
		              .l_len = 1 };
	char path[40];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", dmabuf->fd);
	fd = open(path, O_WRONLY | (cloexec ? O_CLOEXEC : 0));
	if (fd < 0)
		return -errno;
	if (fcntl(fd, F_OFD_SETLK, &lock)) {
		int error = -errno;

		close(fd);
		return error;
	}
	dmabuf->given++;
	*ret = fd;
	return 0;
}

static bool dmabuf_is_open(const struct emu_dmabuf *dmabuf)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	return fcntl(dmabuf->fd, F_OFD_GETLK, &lock) || lock.l_type != F_UNLCK;
}

void emu_dmabufs_reap(struct emu_gpu *gpu, bool all)
{
	EMU_FOR_EACH(item, &gpu->memory.dmabufs) {
		struct emu_dmabuf *dmabuf = EMU_ENTRY(item, struct emu_dmabuf, link);

		if (all || (!dmabuf->bo->handle_count && !dmabuf_is_open(dmabuf)))
			dmabuf_destroy(dmabuf);
	}
}

/* ---- export ---------------------------------------------------------------------------------- */

static int handle_export(struct emu_file *file, struct drm_prime_handle *args)
{
	struct emu_handle *handle = emu_handle_find(file, args->handle);
	struct emu_dmabuf *dmabuf;
	int error;

	if (!handle)
		return -ENOENT;
	if (handle->bo->owner || handle->bo->user_pointer)
		return -EPERM;
	error = dmabuf_get(handle->bo, &dmabuf);
	if (!error)
		error = descriptor_give(dmabuf, args->flags & DRM_CLOEXEC, &args->fd);
	if (!error)
		handle->prime = true;
	return error;
}

int emu_prime_handle_to_fd(struct emu_file *file, void *data)
{
	struct drm_prime_handle *args = data;
	int error;

	if (args->flags & ~(uint32_t)(DRM_CLOEXEC | DRM_RDWR))
		return emu_refuse(file->gpu, -EINVAL, "PRIME_HANDLE_TO_FD: unknown flags 0x%x",
		                  args->flags);
	pthread_mutex_lock(&file->gpu->lock);
	emu_memory_sweep(file->gpu);
	error = handle_export(file, args);
	pthread_mutex_unlock(&file->gpu->lock);
	return error;
}

/* ---- import ---------------------------------------------------------------------------------- */

static struct emu_dmabuf *dmabuf_find(struct emu_gpu *gpu, const struct stat *status)
{
	EMU_FOR_EACH(item, &gpu->memory.dmabufs) {
		struct emu_dmabuf *dmabuf = EMU_ENTRY(item, struct emu_dmabuf, link);

		if (dmabuf->device == status->st_dev && dmabuf->inode == status->st_ino)
			return dmabuf;
	}
	return NULL;
}

/* One of another card is refused: its memory isn't this card's. */
static int import_refuse(struct emu_gpu *gpu, int fd)
{
	char path[40], name[64] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (readlink(path, name, sizeof(name) - 1) > 0 && strstr(name, DMABUF_NAME))
		return emu_refuse(gpu, -EINVAL,
		                  "PRIME_FD_TO_HANDLE: descriptor %d is another card's", fd);
	return -EINVAL;
}

/* A file knows a dma-buf by one handle, which it is given again. */
static uint32_t handle_again(struct emu_file *file, const struct emu_bo *bo)
{
	const struct emu_handle *handle;

	for (uint32_t id = 1; (handle = emu_ids_next(&file->handles, &id)); id++)
		if (handle->bo == bo && handle->prime)
			return id;
	return 0;
}

static int fd_import(struct emu_file *file, struct drm_prime_handle *args)
{
	struct emu_dmabuf *dmabuf;
	struct stat status;
	uint32_t id;
	int error;

	if (fstat(args->fd, &status))
		return -EBADF;
	dmabuf = dmabuf_find(file->gpu, &status);
	if (!dmabuf)
		return import_refuse(file->gpu, args->fd);
	id = handle_again(file, dmabuf->bo);
	if (!id) {
		emu_bo_get(dmabuf->bo);
		error = emu_handle_create(file, dmabuf->bo, &id);
		if (error)
			return error;
		emu_handle_find(file, id)->prime = true;
	}
	args->handle = id;
	return 0;
}

int emu_prime_fd_to_handle(struct emu_file *file, void *data)
{
	struct drm_prime_handle *args = data;
	int error;

	pthread_mutex_lock(&file->gpu->lock);
	emu_memory_sweep(file->gpu);
	error = fd_import(file, args);
	pthread_mutex_unlock(&file->gpu->lock);
	return error;
}

/* ---- names ----------------------------------------------------------------------------------- */

int emu_gem_flink(struct emu_file *file, void *data)
{
	struct drm_gem_flink *args = data;
	const struct emu_handle *handle;
	int error = 0;

	pthread_mutex_lock(&file->gpu->lock);
	handle = emu_handle_find(file, args->handle);
	if (!handle)
		error = -ENOENT;
	else if (!handle->bo->name)
		error = emu_ids_add(&file->gpu->memory.names, handle->bo, &handle->bo->name);
	if (!error)
		args->name = handle->bo->name;
	pthread_mutex_unlock(&file->gpu->lock);
	return error;
}

int emu_gem_open(struct emu_file *file, void *data)
{
	struct drm_gem_open *args = data;
	struct emu_bo *bo;
	int error = -ENOENT;

	pthread_mutex_lock(&file->gpu->lock);
	bo = emu_ids_find(&file->gpu->memory.names, args->name);
	if (bo) {
		uint64_t bytes = bo->bytes;

		emu_bo_get(bo);
		error = emu_handle_create(file, bo, &args->handle);
		if (!error)
			args->size = bytes;
	}
	pthread_mutex_unlock(&file->gpu->lock);
	return error;
}
