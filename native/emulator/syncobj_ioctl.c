/* SPDX-License-Identifier: MIT
 *
 * The ioctls on syncobjs, but for the waits.
 */
#include <errno.h>
#include <stdlib.h>

#include "syncobj_array.h"

/* ---- handles ------------------------------------------------------------------------------------- */

static int handle_create(struct emu_file *file, struct emu_fence *fence, uint32_t *handle)
{
	struct emu_syncobj *syncobj;
	int error = emu_syncobj_new(file->gpu, fence, &syncobj);

	if (error)
		return error;
	error = emu_ids_add(&file->syncobjs, syncobj, handle);
	if (error)
		emu_syncobj_put(syncobj);
	return error;
}

int emu_syncobj_create(struct emu_file *file, void *data)
{
	struct drm_syncobj_create *args = data;
	struct emu_gpu *gpu = file->gpu;
	struct emu_fence *fence = NULL;
	int error;

	if (args->flags & ~DRM_SYNCOBJ_CREATE_SIGNALED)
		return emu_refuse(gpu, -EINVAL, "SYNCOBJ_CREATE: unknown flags 0x%x", args->flags);
	pthread_mutex_lock(&gpu->lock);
	if (args->flags & DRM_SYNCOBJ_CREATE_SIGNALED)
		fence = emu_fence_signalled(gpu);
	error = handle_create(file, fence, &args->handle);
	pthread_mutex_unlock(&gpu->lock);
	return error;
}

int emu_syncobj_destroy(struct emu_file *file, void *data)
{
	const struct drm_syncobj_destroy *args = data;
	struct emu_gpu *gpu = file->gpu;
	struct emu_syncobj *syncobj;

	if (args->pad)
		return -EINVAL;
	pthread_mutex_lock(&gpu->lock);
	syncobj = emu_ids_remove(&file->syncobjs, args->handle);
	emu_syncobj_put(syncobj);
	emu_exports_sweep(gpu);
	pthread_mutex_unlock(&gpu->lock);
	return syncobj ? 0 : -EINVAL;
}

/* ---- descriptors --------------------------------------------------------------------------------- */

/* Of both directions; points in sync files came with the longer argument. */
static int handle_check(struct emu_gpu *gpu, const struct drm_syncobj_handle *args)
{
	uint32_t known = DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_EXPORT_SYNC_FILE;

	if (gpu->kernel->syncobj_handle_bytes >= sizeof(*args))
		known |= DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_TIMELINE;
	if (args->pad)
		return -EINVAL;
	if (args->flags & ~known)
		return emu_refuse(gpu, -EINVAL, "syncobj descriptor: unknown flags 0x%x", args->flags);
	return 0;
}

static uint64_t handle_point(const struct drm_syncobj_handle *args)
{
	return args->flags & DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_TIMELINE ? args->point : 0;
}

static int sync_file_export(struct emu_file *file, struct drm_syncobj_handle *args)
{
	struct emu_fence *fence;
	int fd, error = emu_syncobj_find_fence(file, args->handle, handle_point(args), 0, &fence);

	if (error)
		return error;
	error = emu_export_fence(fence, &fd);
	emu_fence_put(fence);
	if (!error)
		args->fd = fd;
	return error;
}

static int syncobj_export(struct emu_file *file, struct drm_syncobj_handle *args)
{
	struct emu_syncobj *syncobj = emu_syncobj_find(file, args->handle);
	int fd, error;

	if (!syncobj)
		return -EINVAL;
	error = emu_export_syncobj(syncobj, &fd);
	if (!error)
		args->fd = fd;
	return error;
}

int emu_syncobj_handle_to_fd(struct emu_file *file, void *data)
{
	struct drm_syncobj_handle *args = data;
	int error = handle_check(file->gpu, args);

	if (error)
		return error;
	pthread_mutex_lock(&file->gpu->lock);
	if (args->flags & DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_EXPORT_SYNC_FILE)
		error = sync_file_export(file, args);
	else if (handle_point(args))
		error = -EINVAL;
	else
		error = syncobj_export(file, args);
	pthread_mutex_unlock(&file->gpu->lock);
	return error;
}

static int sync_file_import(struct emu_file *file, const struct drm_syncobj_handle *args)
{
	struct emu_fence *fence = emu_import_fence(file->gpu, args->fd);
	struct emu_syncobj *syncobj = emu_syncobj_find(file, args->handle);
	uint64_t point = handle_point(args);
	int error = 0;

	if (!fence)
		return -EINVAL;
	if (!syncobj)
		error = -ENOENT;
	else if (!point)
		emu_syncobj_replace(syncobj, fence);
	else
		error = emu_syncobj_reserve(syncobj);
	if (!error && point)
		emu_syncobj_add_point(syncobj, point, fence);
	emu_fence_put(fence);
	return error;
}

/* Each import is a handle of its own. */
static int syncobj_import(struct emu_file *file, struct drm_syncobj_handle *args)
{
	struct emu_syncobj *syncobj = emu_import_syncobj(file->gpu, args->fd);
	int error;

	if (!syncobj)
		return -EINVAL;
	error = emu_ids_add(&file->syncobjs, syncobj, &args->handle);
	if (error)
		emu_syncobj_put(syncobj);
	return error;
}

int emu_syncobj_fd_to_handle(struct emu_file *file, void *data)
{
	struct drm_syncobj_handle *args = data;
	int error = handle_check(file->gpu, args);

	if (error)
		return error;
	pthread_mutex_lock(&file->gpu->lock);
	if (args->flags & DRM_SYNCOBJ_FD_TO_HANDLE_FLAGS_IMPORT_SYNC_FILE)
		error = sync_file_import(file, args);
	else if (handle_point(args))
		error = -EINVAL;
	else
		error = syncobj_import(file, args);
	pthread_mutex_unlock(&file->gpu->lock);
	return error;
}

/* ---- arrays -------------------------------------------------------------------------------------- */

void emu_syncobj_array_put(struct emu_syncobj **syncobjs, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		emu_syncobj_put(syncobjs[i]);
	free(syncobjs);
}

static int array_find(struct emu_file *file, const uint32_t *handles, uint32_t n,
                      struct emu_syncobj ***ret)
{
	struct emu_syncobj **syncobjs = NULL;

	if (n <= EMU_KMALLOC_MOST / sizeof(*syncobjs))
		syncobjs = calloc(n, sizeof(struct emu_syncobj *));
	if (!syncobjs)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		syncobjs[i] = emu_syncobj_find(file, handles[i]);
		if (!syncobjs[i]) {
			emu_syncobj_array_put(syncobjs, i);
			return -ENOENT;
		}
		emu_syncobj_get(syncobjs[i]);
	}
	*ret = syncobjs;
	return 0;
}

int emu_syncobj_array_get(struct emu_file *file, uint64_t handles, uint32_t n,
                          struct emu_syncobj ***ret)
{
	void *copy;
	int error;

	if (!n)
		return -EINVAL;
	error = emu_array_in(handles, n, sizeof(uint32_t), EMU_KMALLOC_MOST, &copy);
	if (error)
		return error;
	error = array_find(file, copy, n, ret);
	free(copy);
	return error;
}

int emu_syncobj_points_get(uint64_t points, uint32_t n, uint64_t **ret)
{
	void *copy;
	int error = 0;

	if (points)
		error = emu_array_in(points, n, sizeof(**ret), EMU_KMALLOC_MOST, &copy);
	else
		copy = calloc(n, sizeof(**ret));
	if (error || !copy)
		return error ? error : -ENOMEM;
	*ret = copy;
	return 0;
}

static int replace_all(struct emu_file *file, const struct drm_syncobj_array *args,
                       struct emu_fence *fence)
{
	struct emu_syncobj **syncobjs;
	int error;

	if (args->pad)
		return -EINVAL;
	error = emu_syncobj_array_get(file, args->handles, args->count_handles, &syncobjs);
	if (error)
		return error;
	for (uint32_t i = 0; i < args->count_handles; i++)
		emu_syncobj_replace(syncobjs[i], fence);
	emu_syncobj_array_put(syncobjs, args->count_handles);
	return 0;
}

int emu_syncobj_reset(struct emu_file *file, void *data)
{
	int error;

	pthread_mutex_lock(&file->gpu->lock);
	error = replace_all(file, data, NULL);
	pthread_mutex_unlock(&file->gpu->lock);
	return error;
}

int emu_syncobj_signal(struct emu_file *file, void *data)
{
	int error;

	pthread_mutex_lock(&file->gpu->lock);
	error = replace_all(file, data, emu_fence_signalled(file->gpu));
	pthread_mutex_unlock(&file->gpu->lock);
	return error;
}

/* ---- timelines ----------------------------------------------------------------------------------- */

static int points_signal(struct emu_gpu *gpu, const struct drm_syncobj_timeline_array *args,
                         struct emu_syncobj **syncobjs)
{
	uint64_t *points;
	int error = emu_syncobj_points_get(args->points, args->count_handles, &points);

	if (error)
		return error;
	for (uint32_t i = 0; i < args->count_handles && !error; i++) {
		error = emu_syncobj_reserve(syncobjs[i]);
		if (!error)
			emu_syncobj_add_point(syncobjs[i], points[i], emu_fence_signalled(gpu));
	}
	free(points);
	return error;
}

int emu_syncobj_timeline_signal(struct emu_file *file, void *data)
{
	const struct drm_syncobj_timeline_array *args = data;
	struct emu_syncobj **syncobjs;
	int error;

	if (args->flags)
		return emu_refuse(file->gpu, -EINVAL, "SYNCOBJ_TIMELINE_SIGNAL: unknown flags 0x%x",
		                  args->flags);
	pthread_mutex_lock(&file->gpu->lock);
	error = emu_syncobj_array_get(file, args->handles, args->count_handles, &syncobjs);
	if (!error) {
		error = points_signal(file->gpu, args, syncobjs);
		emu_syncobj_array_put(syncobjs, args->count_handles);
	}
	pthread_mutex_unlock(&file->gpu->lock);
	return error;
}

static int points_query(const struct drm_syncobj_timeline_array *args, struct emu_syncobj **syncobjs)
{
	bool last = args->flags & DRM_SYNCOBJ_QUERY_FLAGS_LAST_SUBMITTED;

	for (uint32_t i = 0; i < args->count_handles; i++) {
		uint64_t point = last ? syncobjs[i]->submitted : emu_syncobj_reached(syncobjs[i]);
		int error = emu_copy_out(args->points + i * sizeof(point), &point, sizeof(point));

		if (error)
			return error;
	}
	return 0;
}

int emu_syncobj_query(struct emu_file *file, void *data)
{
	const struct drm_syncobj_timeline_array *args = data;
	struct emu_syncobj **syncobjs;
	int error;

	if (args->flags & ~DRM_SYNCOBJ_QUERY_FLAGS_LAST_SUBMITTED)
		return emu_refuse(file->gpu, -EINVAL, "SYNCOBJ_QUERY: unknown flags 0x%x",
		                  args->flags);
	pthread_mutex_lock(&file->gpu->lock);
	error = emu_syncobj_array_get(file, args->handles, args->count_handles, &syncobjs);
	if (!error) {
		error = points_query(args, syncobjs);
		emu_syncobj_array_put(syncobjs, args->count_handles);
	}
	pthread_mutex_unlock(&file->gpu->lock);
	return error;
}

static int transfer(struct emu_file *file, const struct drm_syncobj_transfer *args)
{
	struct emu_syncobj *target = emu_syncobj_find(file, args->dst_handle);
	struct emu_fence *fence;
	int error;

	if (!target)
		return -ENOENT;
	emu_syncobj_get(target);
	error = emu_syncobj_find_fence(file, args->src_handle, args->src_point, args->flags, &fence);
	if (!error) {
		if (args->dst_point)
			error = emu_syncobj_reserve(target);
		if (!error && args->dst_point)
			emu_syncobj_add_point(target, args->dst_point, fence);
		else if (!error)
			emu_syncobj_replace(target, fence);
		emu_fence_put(fence);
	}
	emu_syncobj_put(target);
	return error;
}

int emu_syncobj_transfer(struct emu_file *file, void *data)
{
	const struct drm_syncobj_transfer *args = data;
	int error;

	if (args->pad)
		return -EINVAL;
	pthread_mutex_lock(&file->gpu->lock);
	error = transfer(file, args);
	pthread_mutex_unlock(&file->gpu->lock);
	return error;
}
