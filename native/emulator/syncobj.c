/* SPDX-License-Identifier: MIT
 *
 * Syncobjs: a place for a fence, or a timeline of fences.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "entry.h"

/* ---- life ---------------------------------------------------------------------------------------- */

int emu_syncobj_new(struct emu_gpu *gpu, struct emu_fence *fence, struct emu_syncobj **ret)
{
	struct emu_syncobj *syncobj = calloc(1, sizeof(*syncobj));

	if (!syncobj)
		return -ENOMEM;
	syncobj->gpu = gpu;
	syncobj->references = 1;
	emu_list_init(&syncobj->spares);
	emu_list_init(&syncobj->eventfds);
	emu_fence_get(fence);
	syncobj->fence = fence;
	*ret = syncobj;
	return 0;
}

struct emu_syncobj *emu_syncobj_find(struct emu_file *file, uint32_t handle)
{
	return emu_ids_find(&file->syncobjs, handle);
}

void emu_syncobj_get(struct emu_syncobj *syncobj)
{
	syncobj->references++;
}

static struct emu_fence *spare_take(struct emu_syncobj *syncobj)
{
	struct emu_fence *fence = EMU_ENTRY(syncobj->spares.next, struct emu_fence, link);

	emu_list_remove(&fence->link);
	syncobj->spare_count--;
	return fence;
}

void emu_syncobj_put(struct emu_syncobj *syncobj)
{
	if (!syncobj || --syncobj->references)
		return;
	emu_eventfds_drop(&syncobj->eventfds);
	emu_syncobj_replace(syncobj, NULL);
	while (syncobj->spare_count)
		emu_fence_put(spare_take(syncobj));
	free(syncobj->points);
	free(syncobj);
}

/* ---- fences -------------------------------------------------------------------------------------- */

/* Forget the points from the front: all when `all` is set, else those that are reached. */
static void points_drop(struct emu_syncobj *syncobj, bool all)
{
	uint32_t n = 0;

	for (; n < syncobj->point_count; n++) {
		struct emu_point *point = &syncobj->points[n];

		if (!all && !point->fence->signalled)
			break;
		if (!all)
			syncobj->reached = point->point;
		emu_fence_put(point->fence);
	}
	if (!n)
		return;
	syncobj->point_count -= n;
	memmove(syncobj->points, syncobj->points + n, syncobj->point_count * sizeof(*syncobj->points));
}

static void fence_set(struct emu_syncobj *syncobj, struct emu_fence *fence)
{
	emu_fence_get(fence);
	emu_fence_put(syncobj->fence);
	syncobj->fence = fence;
	emu_waits_submitted(syncobj);
	pthread_cond_broadcast(&syncobj->gpu->changed); /* who waits for a submission */
	emu_eventfds_submitted(syncobj);
}

void emu_syncobj_replace(struct emu_syncobj *syncobj, struct emu_fence *fence)
{
	points_drop(syncobj, true);
	syncobj->is_timeline = false;
	syncobj->submitted = syncobj->reached = 0;
	fence_set(syncobj, fence);
}

int emu_syncobj_reserve_points(struct emu_syncobj *syncobj, uint32_t n)
{
	uint32_t needed;

	points_drop(syncobj, false);
	needed = syncobj->point_count + n;
	if (needed > syncobj->point_room) {
		uint32_t room = needed + needed / 2;
		struct emu_point *points = realloc(syncobj->points, room * sizeof(*points));

		if (!points)
			return -ENOMEM;
		syncobj->points = points;
		syncobj->point_room = room;
	}
	while (syncobj->spare_count < n) {
		struct emu_fence *fence;

		if (emu_fence_create(syncobj->gpu, NULL, &fence))
			return -ENOMEM;
		/* It is counted once it is used. */
		fence->counted = false;
		syncobj->gpu->jobs.fence_count--;
		emu_list_append(&syncobj->spares, &fence->link);
		syncobj->spare_count++;
	}
	return 0;
}

int emu_syncobj_reserve(struct emu_syncobj *syncobj)
{
	return emu_syncobj_reserve_points(syncobj, 1);
}

/* A fence that is signalled when `fence` and all that was submitted before are; a reference. */
static struct emu_fence *chain(struct emu_syncobj *syncobj, struct emu_fence *fence)
{
	struct emu_fence *before = syncobj->fence, *whole;

	if (!before || before->signalled) {
		emu_fence_get(fence);
		return fence;
	}
	whole = spare_take(syncobj);
	whole->counted = true;
	syncobj->gpu->jobs.fence_count++;
	emu_fence_join(whole, before, fence);
	return whole;
}

void emu_syncobj_add_point(struct emu_syncobj *syncobj, uint64_t point, struct emu_fence *fence)
{
	struct emu_fence *whole = chain(syncobj, fence);

	/* One that doesn't go up begins a timeline anew, at the old one's last point: what was submitted
	 * before still comes first, but which of its points are reached isn't known any more. */
	if (syncobj->is_timeline && point <= syncobj->submitted) {
		points_drop(syncobj, true);
		point = syncobj->submitted;
		syncobj->reached = 0;
	}
	syncobj->is_timeline = true;
	syncobj->submitted = point;
	syncobj->points[syncobj->point_count].point = point;
	syncobj->points[syncobj->point_count++].fence = whole;
	fence_set(syncobj, whole);
}

uint64_t emu_syncobj_reached(struct emu_syncobj *syncobj)
{
	points_drop(syncobj, false);
	return syncobj->is_timeline ? syncobj->reached : 0;
}

int emu_syncobj_fence(struct emu_syncobj *syncobj, uint64_t point, struct emu_fence **ret)
{
	struct emu_fence *fence = syncobj->fence;

	if (!fence)
		return -EINVAL;
	if (point) {
		if (!syncobj->is_timeline || syncobj->submitted < point)
			return -EINVAL;
		points_drop(syncobj, false);
		fence = NULL;
		for (uint32_t i = syncobj->point_count; i > 0 && syncobj->points[i - 1].point >= point;)
			fence = syncobj->points[--i].fence;
		/* Reached points are forgotten; what is left of the last one may still be asked for. */
		if (fence && syncobj->reached >= point)
			fence = NULL;
	}
	emu_fence_get(fence);
	*ret = fence;
	return 0;
}

/* ---- by handle ----------------------------------------------------------------------------------- */

/* Until there is a fence; another thread may take the handle away meanwhile. */
static int submit_wait(struct emu_syncobj *syncobj, uint64_t point, struct emu_fence **ret)
{
	struct emu_gpu *gpu = syncobj->gpu;
	int64_t deadline = (int64_t)emu_now_ns() + EMU_SUBMIT_NS;
	struct timespec time = { .tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000 };
	int error, late = 0;

	emu_syncobj_get(syncobj);
	while ((error = emu_syncobj_fence(syncobj, point, ret)) && !late && !emu_wait_is_vain(gpu))
		late = pthread_cond_timedwait(&gpu->changed, &gpu->lock, &time);
	emu_syncobj_put(syncobj);
	if (error)
		error = emu_wait_is_vain(gpu) ? -ENODEV : -ETIME;
	return error;
}

int emu_syncobj_find_fence(struct emu_file *file, uint32_t handle, uint64_t point, uint64_t flags,
                           struct emu_fence **ret)
{
	struct emu_syncobj *syncobj = emu_syncobj_find(file, handle);
	struct emu_fence *fence;
	int error;

	if (flags & ~(uint64_t)DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT)
		return emu_refuse(file->gpu, -EINVAL, "syncobj: unknown flags 0x%llx for a fence",
		                  (unsigned long long)flags);
	if (!syncobj)
		return -ENOENT;
	error = emu_syncobj_fence(syncobj, point, &fence);
	if (error && flags)
		error = submit_wait(syncobj, point, &fence);
	if (error)
		return error;
	if (!fence) {
		fence = emu_fence_signalled(file->gpu);
		emu_fence_get(fence);
	}
	*ret = fence;
	return 0;
}
