/* SPDX-License-Identifier: MIT
 *
 * The ioctls that make, map, close and wait for buffers.
 */
#include <errno.h>
#include <string.h>

#include "memory_parts.h"

int emu_gem_create(struct emu_file *file, void *data)
{
	union drm_amdgpu_gem_create *args = data;
	struct emu_gpu *gpu = file->gpu;
	struct emu_bo_request request = { .bytes = args->in.bo_size,
		                          .alignment = args->in.alignment,
		                          .flags = args->in.domain_flags,
		                          .domains = (uint32_t)args->in.domains,
		                          .owner = file->vm };
	struct emu_bo *bo;
	uint32_t handle;
	int error;

	if (args->in.domains >> 32)
		return emu_refuse(gpu, -EINVAL, "GEM_CREATE: domains 0x%llx",
		                  (unsigned long long)args->in.domains);
	emu_files_sweep(gpu);
	pthread_mutex_lock(&gpu->lock);
	do {
		error = emu_bo_create(gpu, &request, &bo);
	} while (error == -ENOMEM && emu_memory_wait_for_dying(gpu));
	if (!error)
		error = emu_handle_create(file, bo, &handle);
	pthread_mutex_unlock(&gpu->lock);
	if (error)
		return error;
	memset(args, 0, sizeof(*args));
	args->out.handle = handle;
	return 0;
}

static bool is_mappable(const struct emu_bo *bo)
{
	return !bo->user_pointer && !(bo->flags & AMDGPU_GEM_CREATE_NO_CPU_ACCESS);
}

int emu_gem_mmap(struct emu_file *file, void *data)
{
	union drm_amdgpu_gem_mmap *args = data;
	const struct emu_handle *handle;
	int error = 0;

	pthread_mutex_lock(&file->gpu->lock);
	handle = emu_handle_find(file, args->in.handle);
	if (!handle) {
		error = -ENOENT;
	} else if (!is_mappable(handle->bo)) {
		error = -EPERM;
	} else {
		file->mapped_handle = args->in.handle;
		handle->bo->offset_told = true;
		args->out.addr_ptr = handle->bo->storage;
	}
	pthread_mutex_unlock(&file->gpu->lock);
	return error;
}

static bool is_at(const struct emu_handle *handle, uint64_t offset)
{
	return handle && !handle->bo->user_pointer && handle->bo->storage == offset;
}

static const struct emu_handle *handle_at(const struct emu_file *file, uint64_t offset)
{
	const struct emu_handle *handle;

	handle = emu_ids_find(&file->handles, file->mapped_handle);
	if (is_at(handle, offset))
		return handle;
	for (uint32_t id = 1; (handle = emu_ids_next(&file->handles, &id)); id++)
		if (is_at(handle, offset))
			return handle;
	return NULL;
}

static bool others_have(const struct emu_gpu *gpu, uint64_t offset)
{
	EMU_FOR_EACH(item, &gpu->files)
		if (handle_at(EMU_ENTRY(item, struct emu_file, link), offset))
			return true;
	return false;
}

int emu_gem_map_check(struct emu_file *file, uint64_t offset, uint64_t bytes)
{
	const struct emu_handle *handle;
	int error = 0;

	pthread_mutex_lock(&file->gpu->lock);
	handle = handle_at(file, offset);
	if (!handle)
		error = others_have(file->gpu, offset) ? -EACCES : -EINVAL;
	else if (bytes > handle->bo->bytes)
		error = -EINVAL;
	else if (!is_mappable(handle->bo))
		error = -EPERM;
	pthread_mutex_unlock(&file->gpu->lock);
	return error;
}

int emu_gem_close(struct emu_file *file, void *data)
{
	const struct drm_gem_close *args = data;
	int error;

	pthread_mutex_lock(&file->gpu->lock);
	error = emu_handle_close(file, args->handle);
	pthread_mutex_unlock(&file->gpu->lock);
	return error;
}

/* Page-table updates don't count; the time is absolute, and one that is negative never comes. */
int emu_gem_wait_idle(struct emu_file *file, void *data)
{
	union drm_amdgpu_gem_wait_idle *args = data;
	int64_t deadline = (int64_t)args->in.timeout;
	const struct emu_handle *handle;
	int error = -ENOENT;

	if (deadline < 0)
		deadline = INT64_MAX;
	pthread_mutex_lock(&file->gpu->lock);
	handle = emu_handle_find(file, args->in.handle);
	if (handle) {
		struct emu_bo *bo = handle->bo;

		emu_bo_get(bo);
		error = emu_resv_wait(emu_bo_resv(bo), EMU_USAGE_WRITE, deadline);
		emu_bo_put(bo);
	}
	pthread_mutex_unlock(&file->gpu->lock);
	if (error && error != -ETIME)
		return error;
	memset(args, 0, sizeof(*args));
	args->out.status = error == -ETIME;
	return 0;
}

/* ---- the process's own memory ---------------------------------------------------------------- */

#define USERPTR_FLAGS                                                                              \
	(AMDGPU_GEM_USERPTR_READONLY | AMDGPU_GEM_USERPTR_ANONONLY |                               \
	 AMDGPU_GEM_USERPTR_VALIDATE | AMDGPU_GEM_USERPTR_REGISTER)

static int userptr_check(struct emu_gpu *gpu, const struct drm_amdgpu_gem_userptr *args)
{
	if ((args->addr | args->size) & (EMU_PAGE_BYTES - 1))
		return -EINVAL;
	if (args->flags & ~USERPTR_FLAGS)
		return emu_refuse(gpu, -EINVAL, "GEM_USERPTR: unknown flags 0x%x", args->flags);
	/* Who writes there must notice when the process changes its mappings. */
	if (!(args->flags & (AMDGPU_GEM_USERPTR_READONLY | AMDGPU_GEM_USERPTR_REGISTER)))
		return -EACCES;
	if (args->addr + args->size < args->addr)
		return -EINVAL;
	return args->addr ? 0 : -EFAULT;
}

static int userptr_create(struct emu_file *file, const struct drm_amdgpu_gem_userptr *args,
                          struct emu_bo **ret)
{
	struct emu_bo_request request = { .bytes = args->size, .domains = AMDGPU_GEM_DOMAIN_CPU,
		                          .user_pointer = (void *)(uintptr_t)args->addr };
	struct emu_bo *bo;
	int error = emu_bo_create(file->gpu, &request, &bo);

	if (error)
		return error;
	bo->preferred_domains = bo->allowed_domains = AMDGPU_GEM_DOMAIN_GTT;
	bo->user_process = emu_caller_process();
	bo->user_readonly = args->flags & AMDGPU_GEM_USERPTR_READONLY;
	bo->user_anonymous = args->flags & AMDGPU_GEM_USERPTR_ANONONLY;
	if (args->flags & AMDGPU_GEM_USERPTR_VALIDATE)
		error = emu_bo_validate(bo, NULL);
	if (error) {
		emu_bo_put(bo);
		return error;
	}
	*ret = bo;
	return 0;
}

int emu_gem_userptr(struct emu_file *file, void *data)
{
	struct drm_amdgpu_gem_userptr *args = data;
	struct emu_gpu *gpu = file->gpu;
	struct emu_bo *bo;
	int error = userptr_check(gpu, args);

	if (error)
		return error;
	pthread_mutex_lock(&gpu->lock);
	error = userptr_create(file, args, &bo);
	if (!error)
		error = emu_handle_create(file, bo, &args->handle);
	pthread_mutex_unlock(&gpu->lock);
	return error;
}
