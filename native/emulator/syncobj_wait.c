/* SPDX-License-Identifier: MIT
 *
 * Waiting for syncobjs.
 */
#include <errno.h>
#include <stdlib.h>

#include "syncobj_array.h"

struct wait {
	struct emu_list link; /* in emu_jobs.waits */
	struct emu_syncobj **syncobjs;
	struct emu_fence **fences; /* references; NULL: not submitted yet */
	uint64_t *points;
	uint32_t count, flags;
	int64_t deadline_ns;
	uint32_t first;
};

/* Take what is submitted by now; a fence that was taken stays, whatever becomes of the syncobj. */
static void fence_take(struct wait *wait, uint32_t i)
{
	struct emu_fence *fence;

	if (wait->fences[i] || emu_syncobj_fence(wait->syncobjs[i], wait->points[i], &fence))
		return;
	if (!fence) {
		fence = emu_fence_signalled(wait->syncobjs[i]->gpu);
		emu_fence_get(fence);
	}
	wait->fences[i] = fence;
}

static uint32_t fences_take(struct wait *wait)
{
	uint32_t missing = 0;

	for (uint32_t i = 0; i < wait->count; i++) {
		fence_take(wait, i);
		missing += !wait->fences[i];
	}
	return missing;
}

void emu_waits_submitted(const struct emu_syncobj *syncobj)
{
	EMU_FOR_EACH(item, &syncobj->gpu->jobs.waits) {
		struct wait *wait = EMU_ENTRY(item, struct wait, link);

		for (uint32_t i = 0; i < wait->count; i++)
			if (wait->syncobjs[i] == syncobj)
				fence_take(wait, i);
	}
}

static bool fence_counts(const struct wait *wait, uint32_t i)
{
	const struct emu_fence *fence = wait->fences[i];

	return fence &&
	       (wait->flags & DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE || fence->signalled);
}

static bool is_over(struct wait *wait)
{
	uint32_t counted = 0;

	for (uint32_t i = wait->count; i-- > 0;)
		if (fence_counts(wait, i)) {
			counted++;
			wait->first = i;
		}
	if (wait->flags & DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL)
		return counted == wait->count;
	return counted > 0;
}

static int wait_run(struct emu_gpu *gpu, struct wait *wait)
{
	struct timespec deadline = { .tv_sec = wait->deadline_ns / 1000000000,
		                     .tv_nsec = wait->deadline_ns % 1000000000 };
	bool may_miss = wait->flags & (DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT |
	                               DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE);
	bool late = wait->deadline_ns <= 0;

	if (fences_take(wait) && !may_miss)
		return -EINVAL;
	emu_list_append(&gpu->jobs.waits, &wait->link);
	while (!is_over(wait) && !late && !emu_wait_is_vain(gpu))
		late = pthread_cond_timedwait(&gpu->changed, &gpu->lock, &deadline) == ETIMEDOUT;
	emu_list_remove(&wait->link);
	if (is_over(wait))
		return 0;
	return late ? -ETIME : -ENODEV;
}

static int wait_syncobjs(struct emu_file *file, struct wait *wait, uint64_t handles, uint64_t points)
{
	struct emu_gpu *gpu = file->gpu;
	int error;

	wait->first = UINT32_MAX;
	pthread_mutex_lock(&gpu->lock);
	error = emu_syncobj_array_get(file, handles, wait->count, &wait->syncobjs);
	if (error)
		goto unlock;
	error = emu_syncobj_points_get(points, wait->count, &wait->points);
	if (error)
		goto put;
	wait->fences = calloc(wait->count, sizeof(struct emu_fence *));
	error = wait->fences ? wait_run(gpu, wait) : -ENOMEM;
	for (uint32_t i = 0; wait->fences && i < wait->count; i++)
		emu_fence_put(wait->fences[i]);
	free(wait->fences);
	free(wait->points);
put:
	emu_syncobj_array_put(wait->syncobjs, wait->count);
unlock:
	pthread_mutex_unlock(&gpu->lock);
	return error;
}

/* A deadline is a hint for clocks, which has none to reach here. */
static int flags_check(struct emu_gpu *gpu, uint32_t flags, uint32_t known, bool has_deadline)
{
	if (has_deadline)
		known |= DRM_SYNCOBJ_WAIT_FLAGS_WAIT_DEADLINE;
	known |= DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL | DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT;
	if (flags & ~known)
		return emu_refuse(gpu, -EINVAL, "syncobj wait: unknown flags 0x%x", flags & ~known);
	return 0;
}

int emu_syncobj_wait(struct emu_file *file, void *data)
{
	struct drm_syncobj_wait *args = data;
	struct emu_gpu *gpu = file->gpu;
	struct wait wait = { .count = args->count_handles, .flags = args->flags,
		             .deadline_ns = args->timeout_nsec };
	bool is_new = gpu->kernel->syncobj_wait_bytes >= sizeof(*args);
	int error = flags_check(gpu, args->flags, 0, is_new);

	/* With the deadline came that waiting for nothing is over at once. */
	if (!error && is_new && !args->count_handles)
		return 0;
	if (!error)
		error = wait_syncobjs(file, &wait, args->handles, 0);
	if (!error)
		args->first_signaled = wait.first;
	return error;
}

int emu_syncobj_timeline_wait(struct emu_file *file, void *data)
{
	struct drm_syncobj_timeline_wait *args = data;
	struct emu_gpu *gpu = file->gpu;
	struct wait wait = { .count = args->count_handles, .flags = args->flags,
		             .deadline_ns = args->timeout_nsec };
	bool is_new = gpu->kernel->syncobj_timeline_wait_bytes >= sizeof(*args);
	int error = flags_check(gpu, args->flags, DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE, is_new);

	if (!error && is_new && !args->count_handles)
		return 0;
	if (!error)
		error = wait_syncobjs(file, &wait, args->handles, args->points);
	if (!error)
		args->first_signaled = wait.first;
	return error;
}
