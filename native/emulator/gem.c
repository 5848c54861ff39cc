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

int emu_gem_mmap(struct emu_file *file, void *data)
{
	union drm_amdgpu_gem_mmap *args = data;
	const struct emu_handle *handle;
	int error = 0;

	pthread_mutex_lock(&file->gpu->lock);
	handle = emu_handle_find(file, args->in.handle);
	if (!handle)
		error = -ENOENT;
	else if (handle->bo->user_pointer ||
	         handle->bo->flags & AMDGPU_GEM_CREATE_NO_CPU_ACCESS)
		error = -EPERM;
	else
		args->out.addr_ptr = handle->bo->storage;
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
	bo->user_process = file->vm->user_process = emu_caller_process();
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
