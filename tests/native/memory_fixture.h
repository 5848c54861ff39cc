/* SPDX-License-Identifier: MIT
 *
 * What the tests of heaps and buffers share, besides what those of the address space do.
 */
#ifndef MEMORY_FIXTURE_H
#define MEMORY_FIXTURE_H

#include "vm_fixture.h"

/* A card with heaps of that many MiB. more: "" or "&identity=1" and the like. */
static inline struct card card_sized(const char *kernel, unsigned vram, unsigned gtt,
                                     const char *more)
{
	struct card card = { .fd = -1 };
	char spec[256], error[256] = "";

	snprintf(spec, sizeof(spec), "gfx1201?kernel=%s&vram=%uMiB&gtt=%uMiB%s", kernel, vram, gtt,
	         more);
	if (vmkv_emulator_create(spec, error, sizeof(error), &card.gpu))
		CHECK_FAIL("%s: %s", spec, error);
	CHECK_EQ(vmkv_emulator_open(card.gpu, &card.fd), 0);
	return card;
}

static inline int bo_try_create(int fd, uint64_t bytes, uint64_t alignment, uint64_t domains,
                                uint64_t flags, uint32_t *handle)
{
	union drm_amdgpu_gem_create args = { .in = { .bo_size = bytes, .alignment = alignment,
		                                     .domains = domains, .domain_flags = flags } };
	int error = call(fd, DRM_IOCTL_AMDGPU_GEM_CREATE, &args);

	*handle = error ? 0 : args.out.handle;
	return error;
}

static inline int bo_create_error(int fd, uint64_t bytes, uint64_t alignment, uint64_t domains,
                                  uint64_t flags)
{
	uint32_t handle;
	int error = bo_try_create(fd, bytes, alignment, domains, flags, &handle);

	if (!error)
		CHECK_EQ(bo_close(fd, handle), 0);
	return error;
}

/* timeout: absolute. 1 busy, 0 idle, or a negative errno. */
static inline int bo_wait_until(int fd, uint32_t handle, uint64_t timeout)
{
	union drm_amdgpu_gem_wait_idle args = { .in = { .handle = handle, .timeout = timeout } };
	int error = call(fd, DRM_IOCTL_AMDGPU_GEM_WAIT_IDLE, &args);

	return error ? error : (int)args.out.status;
}

static inline int bo_wait(int fd, uint32_t handle)
{
	return bo_wait_until(fd, handle, UINT64_MAX);
}

static inline struct drm_amdgpu_gem_create_in bo_info(int fd, uint32_t handle)
{
	struct drm_amdgpu_gem_create_in info = { 0 };
	struct drm_amdgpu_gem_op args = { .handle = handle, .op = AMDGPU_GEM_OP_GET_GEM_CREATE_INFO,
		                          .value = (uintptr_t)&info };

	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_GEM_OP, &args), 0);
	return info;
}

/* ---- inside the card ------------------------------------------------------------------------- */

static inline enum emu_heap_kind bo_heap(int fd, uint32_t handle)
{
	struct emu_file *file = emu_file_get(fd);
	enum emu_heap_kind heap;

	CHECK(file != NULL);
	pthread_mutex_lock(&file->gpu->lock);
	heap = emu_handle_find(file, handle)->bo->heap;
	pthread_mutex_unlock(&file->gpu->lock);
	emu_file_put(file);
	return heap;
}

/* Validate as a submission with that budget does; NULL: without bound. */
static inline int bo_validate(int fd, uint32_t handle, uint64_t *budget)
{
	struct emu_file *file = emu_file_get(fd);
	int error;

	pthread_mutex_lock(&file->gpu->lock);
	emu_memory_submission_begin(file->gpu, file->vm);
	error = emu_bo_validate(emu_handle_find(file, handle)->bo, budget);
	emu_memory_submission_end(file->gpu);
	pthread_mutex_unlock(&file->gpu->lock);
	emu_file_put(file);
	return error;
}

/* A file on the primary node. */
static inline int primary_open(const struct card *card)
{
	int fd;

	CHECK_EQ(vmkv_emulator_open_primary(card->gpu, &fd), 0);
	return fd;
}

#endif
