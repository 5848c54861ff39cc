/* SPDX-License-Identifier: MIT
 *
 * Waiting for submissions, and their fences as other things: WAIT_CS, WAIT_FENCES, FENCE_TO_HANDLE.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "emu.h"

/* Negative as a signed number: for ever. */
static int64_t deadline_of(uint64_t timeout)
{
	return (int64_t)timeout < 0 ? INT64_MAX : (int64_t)timeout;
}

/* *ret is a reference, or NULL if it was signalled long ago. */
static int fence_find(struct emu_file *file, const struct drm_amdgpu_fence *user,
                      struct emu_fence **ret)
{
	struct emu_context *context = emu_context_find(file, user->ctx_id);
	struct emu_ring *ring;
	int error;

	if (!context)
		return -EINVAL;
	error = emu_context_ring(context, user->ip_type, user->ip_instance, user->ring, &ring);
	return error ? error : emu_ring_fence(ring, user->seq_no, ret);
}

/* ---- WAIT_CS ------------------------------------------------------------------------------------- */

static int wait_cs(struct emu_file *file, union drm_amdgpu_wait_cs *args)
{
	const struct drm_amdgpu_fence user = { .ctx_id = args->in.ctx_id,
		                               .ip_type = args->in.ip_type,
		                               .ip_instance = args->in.ip_instance,
		                               .ring = args->in.ring,
		                               .seq_no = args->in.handle };
	struct emu_fence *fence;
	bool busy = false;
	int error = fence_find(file, &user, &fence);

	if (error)
		return error;
	if (fence) {
		busy = emu_fence_wait(fence, deadline_of(args->in.timeout)) != 0;
		error = busy ? 0 : fence->error;
		emu_fence_put(fence);
	}
	if (error)
		return error;
	memset(args, 0, sizeof(*args));
	args->out.status = busy;
	return 0;
}

int emu_wait_cs(struct emu_file *file, void *data)
{
	int error;

	pthread_mutex_lock(&file->gpu->lock);
	error = wait_cs(file, data);
	pthread_mutex_unlock(&file->gpu->lock);
	return error;
}

/* ---- WAIT_FENCES --------------------------------------------------------------------------------- */

/* One after the other, each looked up when its turn comes. */
static int wait_all(struct emu_file *file, const struct drm_amdgpu_fence *users, uint32_t n,
                    int64_t deadline, struct drm_amdgpu_wait_fences_out *out)
{
	for (uint32_t i = 0; i < n; i++) {
		struct emu_fence *fence;
		bool busy;
		int error = fence_find(file, &users[i], &fence);

		if (error)
			return error;
		if (!fence)
			continue;
		busy = emu_fence_wait(fence, deadline) != 0;
		error = busy ? 0 : fence->error;
		emu_fence_put(fence);
		if (error || busy)
			return error;
	}
	out->status = 1;
	return 0;
}

/* The first that is signalled; n: none. */
static uint32_t first_signalled(struct emu_fence **fences, uint32_t n)
{
	uint32_t i = 0;

	while (i < n && fences[i] && !fences[i]->signalled)
		i++;
	return i;
}

static int fences_wait_any(struct emu_gpu *gpu, struct emu_fence **fences, uint32_t n, int64_t deadline,
                           struct drm_amdgpu_wait_fences_out *out)
{
	struct timespec time = { .tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000 };
	bool late = deadline <= 0;
	uint32_t first;

	while ((first = first_signalled(fences, n)) == n && !late)
		late = pthread_cond_timedwait(&gpu->changed, &gpu->lock, &time) == ETIMEDOUT;
	out->status = first < n;
	out->first_signaled = first < n ? first : UINT32_MAX;
	return first < n && fences[first] ? fences[first]->error : 0;
}

static int wait_any(struct emu_file *file, const struct drm_amdgpu_fence *users, uint32_t n,
                    int64_t deadline, struct drm_amdgpu_wait_fences_out *out)
{
	struct emu_fence **fences = calloc(n, sizeof(struct emu_fence *));
	uint32_t found = 0;
	bool done = false;
	int error = 0;

	if (!fences)
		return -ENOMEM;
	/* Those behind one that was signalled long ago aren't looked at. */
	while (found < n && !done && !error) {
		error = fence_find(file, &users[found], &fences[found]);
		if (!error)
			done = !fences[found++];
	}
	if (!error && done) {
		out->status = 1;
		out->first_signaled = found - 1;
	} else if (!error) {
		error = fences_wait_any(file->gpu, fences, n, deadline, out);
	}
	for (uint32_t i = 0; i < found; i++)
		emu_fence_put(fences[i]);
	free(fences);
	return error;
}

static int wait_fences(struct emu_file *file, union drm_amdgpu_wait_fences *args)
{
	const struct drm_amdgpu_wait_fences_in in = args->in;
	struct drm_amdgpu_wait_fences_out out = { 0 };
	void *users;
	int error;

	/* Checked since April 2026, in the older kernels' stable series too. */
	if (!in.fence_count)
		return -EINVAL;
	error = emu_array_in(in.fences, in.fence_count, sizeof(struct drm_amdgpu_fence),
	                     EMU_KMALLOC_MOST, &users);
	if (error)
		return error;
	error = (in.wait_all ? wait_all : wait_any)(file, users, in.fence_count,
	                                            deadline_of(in.timeout_ns), &out);
	free(users);
	if (error)
		return error;
	memset(args, 0, sizeof(*args));
	args->out = out;
	return 0;
}

int emu_wait_fences(struct emu_file *file, void *data)
{
	int error;

	pthread_mutex_lock(&file->gpu->lock);
	error = wait_fences(file, data);
	pthread_mutex_unlock(&file->gpu->lock);
	return error;
}

/* ---- FENCE_TO_HANDLE ----------------------------------------------------------------------------- */

static int fence_as_syncobj(struct emu_file *file, struct emu_fence *fence, bool as_descriptor,
                            uint32_t *handle)
{
	struct emu_syncobj *syncobj;
	int fd, error = emu_syncobj_new(file->gpu, fence, &syncobj);

	if (error)
		return error;
	if (!as_descriptor) {
		error = emu_ids_add(&file->syncobjs, syncobj, handle);
		if (error)
			emu_syncobj_put(syncobj);
		return error;
	}
	error = emu_export_syncobj(syncobj, &fd);
	emu_syncobj_put(syncobj);
	if (!error)
		*handle = (uint32_t)fd;
	return error;
}

static int fence_as(struct emu_file *file, struct emu_fence *fence, uint32_t what, uint32_t *handle)
{
	int fd, error;

	switch (what) {
	case AMDGPU_FENCE_TO_HANDLE_GET_SYNCOBJ:
		return fence_as_syncobj(file, fence, false, handle);
	case AMDGPU_FENCE_TO_HANDLE_GET_SYNCOBJ_FD:
		return fence_as_syncobj(file, fence, true, handle);
	case AMDGPU_FENCE_TO_HANDLE_GET_SYNC_FILE_FD:
		error = emu_export_fence(fence, &fd);
		if (!error)
			*handle = (uint32_t)fd;
		return error;
	default:
		return emu_refuse(file->gpu, -EINVAL, "FENCE_TO_HANDLE: unknown kind %u", what);
	}
}

int emu_fence_to_handle(struct emu_file *file, void *data)
{
	union drm_amdgpu_fence_to_handle *args = data;
	struct emu_fence *fence;
	uint32_t handle = 0;
	int error;

	pthread_mutex_lock(&file->gpu->lock);
	error = fence_find(file, &args->in.fence, &fence);
	if (!error) {
		if (!fence) {
			fence = emu_fence_signalled(file->gpu);
			emu_fence_get(fence);
		}
		error = fence_as(file, fence, args->in.what, &handle);
		emu_fence_put(fence);
	}
	pthread_mutex_unlock(&file->gpu->lock);
	if (!error)
		args->out.handle = handle;
	return error;
}
