/* SPDX-License-Identifier: MIT
 *
 * Fences, what is made of several of them, and reservations.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "emu.h"

/* ---- life ---------------------------------------------------------------------------------------- */

static void fence_init(struct emu_gpu *gpu, struct emu_fence *fence)
{
	fence->gpu = gpu;
	fence->references = 1;
	emu_list_init(&fence->waiting);
	emu_list_init(&fence->link);
	for (int i = 0; i < 2; i++) {
		emu_list_init(&fence->parts[i].link);
		fence->parts[i].whole = fence;
	}
}

int emu_fence_create(struct emu_gpu *gpu, struct emu_vm *owner, struct emu_fence **ret)
{
	struct emu_fence *fence = calloc(1, sizeof(*fence));

	if (!fence)
		return -ENOMEM;
	fence_init(gpu, fence);
	fence->owner = owner;
	fence->counted = true;
	gpu->jobs.fence_count++;
	*ret = fence;
	return 0;
}

struct emu_fence *emu_fence_signalled(struct emu_gpu *gpu)
{
	struct emu_fence *fence = &gpu->jobs.signalled;

	/* The reference that it starts with is never given back. */
	if (!fence->gpu) {
		fence_init(gpu, fence);
		fence->signalled = true;
	}
	return fence;
}

void emu_fence_get(struct emu_fence *fence)
{
	if (fence)
		fence->references++;
}

void emu_fence_put(struct emu_fence *fence)
{
	if (!fence || --fence->references)
		return;
	if (fence->counted)
		fence->gpu->jobs.fence_count--;
	free(fence);
}

/* ---- signalling ---------------------------------------------------------------------------------- */

/* One that is waited for is part of others: those that it was the last part of go to `next`. */
static void fence_set(struct emu_fence *fence, int error, struct emu_list *next)
{
	fence->signalled = true;
	fence->error = error;
	emu_exports_signal(fence->gpu, fence);
	emu_eventfds_signal(fence->gpu, fence);
	EMU_FOR_EACH(item, &fence->waiting) {
		struct emu_fence *whole = EMU_ENTRY(item, struct emu_fence_part, link)->whole;

		emu_list_remove(item);
		if (--whole->parts_left)
			emu_fence_put(whole);
		else
			emu_list_append(next, &whole->link);
	}
}

void emu_fence_signal(struct emu_fence *fence, int error)
{
	struct emu_list next;

	if (fence->signalled)
		return;
	/* A list instead of recursion: a timeline is a chain of any length. */
	emu_list_init(&next);
	fence_set(fence, error, &next);
	while (!emu_list_is_empty(&next)) {
		struct emu_fence *whole = EMU_ENTRY(next.next, struct emu_fence, link);

		emu_list_remove(&whole->link);
		fence_set(whole, 0, &next);
		emu_fence_put(whole);
	}
	pthread_cond_broadcast(&fence->gpu->changed);
}

static void part_add(struct emu_fence *whole, struct emu_fence *part)
{
	if (!part || part->signalled)
		return;
	emu_list_append(&part->waiting, &whole->parts[whole->parts_left++].link);
	emu_fence_get(whole); /* the part's list holds it */
}

void emu_fence_join(struct emu_fence *whole, struct emu_fence *a, struct emu_fence *b)
{
	part_add(whole, a);
	part_add(whole, b);
	if (!whole->parts_left)
		emu_fence_signal(whole, 0);
}

int emu_fence_wait(struct emu_fence *fence, int64_t deadline_ns)
{
	struct emu_gpu *gpu = fence->gpu;
	struct timespec deadline = { .tv_sec = deadline_ns / 1000000000,
		                     .tv_nsec = deadline_ns % 1000000000 };
	int error = 0;

	emu_fence_get(fence);
	while (!fence->signalled && !error) {
		if (deadline_ns == INT64_MAX)
			pthread_cond_wait(&gpu->changed, &gpu->lock);
		else if (deadline_ns <= 0 ||
		         pthread_cond_timedwait(&gpu->changed, &gpu->lock, &deadline) == ETIMEDOUT)
			error = -ETIME;
	}
	if (fence->signalled)
		error = 0;
	emu_fence_put(fence);
	return error;
}

/* ---- reservations -------------------------------------------------------------------------------- */

static void resv_prune(struct emu_resv *resv)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < resv->count; i++) {
		if (resv->fences[i].fence->signalled)
			emu_fence_put(resv->fences[i].fence);
		else
			resv->fences[kept++] = resv->fences[i];
	}
	resv->count = kept;
}

static int resv_grow(struct emu_resv *resv)
{
	uint32_t room;
	struct emu_resv_fence *fences;

	resv_prune(resv);
	/* Half free, or pruning would be done for each fence that is added. */
	if (resv->count < resv->room / 2)
		return 0;
	room = resv->room ? resv->room * 2 : 8;
	fences = realloc(resv->fences, room * sizeof(*fences));
	if (!fences)
		return resv->count < resv->room ? 0 : -ENOMEM;
	resv->fences = fences;
	resv->room = room;
	return 0;
}

int emu_resv_add(struct emu_resv *resv, struct emu_fence *fence, enum emu_usage usage)
{
	if (!fence || fence->signalled)
		return 0;
	/* A submission adds its own once for each buffer that shares the reservation. */
	if (resv->count && resv->fences[resv->count - 1].fence == fence &&
	    resv->fences[resv->count - 1].usage <= usage)
		return 0;
	/* The oldest is done, so others may be: a reservation that is never full would keep them. */
	if (resv->count && resv->fences[0].fence->signalled)
		resv_prune(resv);
	if (resv->count == resv->room) {
		int error = resv_grow(resv);

		if (error)
			return error;
	}
	emu_fence_get(fence);
	resv->fences[resv->count].fence = fence;
	resv->fences[resv->count++].usage = usage;
	return 0;
}

static struct emu_fence *resv_busy(const struct emu_resv *resv, enum emu_usage up_to)
{
	for (uint32_t i = 0; i < resv->count; i++)
		if (resv->fences[i].usage <= up_to && !resv->fences[i].fence->signalled)
			return resv->fences[i].fence;
	return NULL;
}

bool emu_resv_is_idle(struct emu_resv *resv, enum emu_usage up_to)
{
	resv_prune(resv);
	return !resv_busy(resv, up_to);
}

int emu_resv_wait(struct emu_resv *resv, enum emu_usage up_to, int64_t deadline_ns)
{
	struct emu_fence *fence;

	while ((fence = resv_busy(resv, up_to))) {
		int error = emu_fence_wait(fence, deadline_ns);

		if (error)
			return error;
	}
	return 0;
}

void emu_resv_fini(struct emu_resv *resv)
{
	for (uint32_t i = 0; i < resv->count; i++)
		emu_fence_put(resv->fences[i].fence);
	free(resv->fences);
	*resv = (struct emu_resv){ 0 };
}
