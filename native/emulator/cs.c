/* SPDX-License-Identifier: MIT
 *
 * Submissions: CS. Whatever can fail comes before the job is given up to the card's thread.
 */
#include <errno.h>
#include <stdlib.h>

#include "cs.h"

/* ---- what may be moved --------------------------------------------------------------------------- */

#define PLENTY_BYTES (128ULL << 20)
/* What the kernel's default rate (8 MB/s) allows for the longest time that it lets add up (200 ms). */
#define LEAST_MOVED_BYTES 1600000ULL

/* How much a submission may move. The kernel's allowance grows with time; this one is what it is after a
 * long pause, so that it doesn't depend on the clock. */
static uint64_t move_budget(const struct emu_gpu *gpu)
{
	const struct emu_heap *vram = &gpu->memory.heaps[EMU_HEAP_VRAM];
	uint64_t total = vram->bytes - gpu->memory.pinned_bytes;
	uint64_t unused = vram->used_bytes < total ? total - vram->used_bytes : 0;

	if ((unused >= PLENTY_BYTES || unused >= total / 8) && unused / 4 > LEAST_MOVED_BYTES)
		return unused / 4;
	return LEAST_MOVED_BYTES;
}

/* ---- buffers ------------------------------------------------------------------------------------- */

static uint32_t listed_count(const struct emu_cs *cs)
{
	return cs->list ? cs->list->count : 0;
}

static int buffers_validate(struct emu_cs *cs)
{
	uint64_t budget = move_budget(cs->gpu);
	int error = emu_vm_validate(cs->file->vm, &budget);

	for (uint32_t i = 0; i < listed_count(cs) && !error; i++)
		error = emu_bo_validate(cs->list->items[i].bo, &budget);
	if (!error && cs->fence_bo)
		error = emu_bo_validate(cs->fence_bo, &budget);
	return error;
}

static int vm_update(struct emu_cs *cs)
{
	uint32_t n = listed_count(cs);
	struct emu_bo_va **listed = calloc((size_t)n + 1, sizeof(struct emu_bo_va *));
	int error;

	if (!listed)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		listed[i] = emu_bo_va_find(cs->file->vm, cs->list->items[i].bo);
	error = emu_vm_submit(cs->file->vm, listed, n, emu_cs_job(cs));
	free(listed);
	return error;
}

/* Wait for what others do with it, and tell others of this submission. If it fails later, its fence is
 * signalled, and so goes from the reservation by itself. */
static int resv_sync(struct emu_cs *cs, struct emu_resv *resv, bool is_explicit)
{
	int error = emu_job_wait_for_resv(emu_cs_job(cs), resv,
	                                  is_explicit ? EMU_USAGE_KERNEL : EMU_USAGE_WRITE,
	                                  is_explicit ? NULL : cs->file->vm, NULL);

	for (uint32_t i = 0; i < cs->member_count && !error; i++)
		error = emu_resv_add(resv, cs->members[i].job->done, EMU_USAGE_WRITE);
	return error;
}

static int buffer_sync(struct emu_cs *cs, struct emu_bo *bo)
{
	int error = emu_job_wait_for(emu_cs_job(cs), bo->moving);

	if (error)
		return error;
	return resv_sync(cs, emu_bo_resv(bo), bo->flags & AMDGPU_GEM_CREATE_EXPLICIT_SYNC);
}

static int buffers_sync(struct emu_cs *cs)
{
	int error = resv_sync(cs, &cs->file->vm->resv, false);

	for (uint32_t i = 0; i < listed_count(cs) && !error; i++)
		error = buffer_sync(cs, cs->list->items[i].bo);
	if (!error && cs->fence_bo)
		error = buffer_sync(cs, cs->fence_bo);
	return error;
}

/* All begin when the leader may, and run beside one another. */
static int gang_sync(struct emu_cs *cs)
{
	const struct emu_job *leader = emu_cs_job(cs);
	int error = 0;

	for (uint32_t i = 0; i < cs->member_count; i++)
		for (uint32_t j = 0; i != cs->leader && j < leader->wait_count && !error; j++)
			error = emu_job_wait_for(cs->members[i].job, leader->waits[j]);
	return error;
}

static int memory_prepare(struct emu_cs *cs)
{
	int error;

	emu_memory_submission_begin(cs->gpu, cs->file->vm);
	error = buffers_validate(cs);
	if (!error)
		error = vm_update(cs);
	if (!error)
		error = buffers_sync(cs);
	if (!error)
		error = gang_sync(cs);
	emu_memory_submission_end(cs->gpu);
	return error;
}

/* ---- submitting ---------------------------------------------------------------------------------- */

static int ring_wait(struct emu_cs *cs)
{
	struct emu_ring *ring = cs->members[cs->leader].ring;
	struct emu_fence *fence;

	while ((fence = ring->fences[ring->next % EMU_CONTEXT_FENCES]) && !fence->signalled)
		(void)emu_fence_wait(fence, INT64_MAX);
	return cs->context->guilty ? -ECANCELED : 0;
}

/* Room for as many points as each timeline gets. */
static int posts_reserve(struct emu_cs *cs)
{
	for (uint32_t i = 0; i < cs->post_count; i++) {
		uint32_t points = 0;
		int error;

		for (uint32_t j = 0; j < cs->post_count; j++)
			points += cs->posts[j].point && cs->posts[j].syncobj == cs->posts[i].syncobj;
		error = points ? emu_syncobj_reserve_points(cs->posts[i].syncobj, points) : 0;
		if (error)
			return error;
	}
	return 0;
}

static void posts_signal(const struct emu_cs *cs, struct emu_fence *fence)
{
	for (uint32_t i = 0; i < cs->post_count; i++) {
		const struct emu_cs_post *post = &cs->posts[i];

		if (post->point)
			emu_syncobj_add_point(post->syncobj, post->point, fence);
		else
			emu_syncobj_replace(post->syncobj, fence);
	}
}

/* Can't fail. Returns the submission's number. */
static uint64_t job_submit(struct emu_cs *cs)
{
	struct emu_ring *ring = cs->members[cs->leader].ring;
	struct emu_fence *fence = emu_cs_job(cs)->done;
	struct emu_fence **place = &ring->fences[ring->next % EMU_CONTEXT_FENCES];

	fence->number = ring->next++;
	emu_fence_get(fence);
	emu_fence_put(*place);
	*place = fence;
	posts_signal(cs, fence);
	for (uint32_t i = 0; i < cs->member_count; i++) {
		emu_job_push(cs->members[i].job, &cs->members[i].ring->entity);
		cs->members[i].job = NULL;
	}
	cs->gpu->counts.submissions++;
	return fence->number;
}

static int job_make(struct emu_cs *cs, struct emu_cs_member *member)
{
	struct emu_job *job;
	int error = emu_job_create(cs->gpu, EMU_JOB_IBS, cs->file->vm, &member->job);

	if (error)
		return error;
	job = member->job;
	job->vm = cs->file->vm;
	emu_context_get(cs->context);
	job->context = cs->context;
	job->ibs = calloc(member->ib_count, sizeof(*job->ibs));
	return job->ibs ? 0 : -ENOMEM;
}

static int jobs_make(struct emu_cs *cs)
{
	int error = 0;

	for (uint32_t i = 0; i < cs->member_count && !error; i++)
		error = job_make(cs, &cs->members[i]);
	if (!error && cs->fence_bo) {
		emu_bo_get(cs->fence_bo);
		emu_cs_job(cs)->user_fence_bo = cs->fence_bo;
		emu_cs_job(cs)->user_fence_offset = cs->fence_offset;
	}
	return error;
}

static int list_find(struct emu_cs *cs, uint32_t handle)
{
	if (!handle)
		return 0;
	if (cs->list)
		return -EINVAL;
	cs->list = emu_ids_find(&cs->file->bo_lists, handle);
	if (!cs->list)
		return -ENOENT;
	cs->list->references++;
	return 0;
}

static int cs_run(struct emu_cs *cs, union drm_amdgpu_cs *args)
{
	int error = emu_cs_chunks_get(cs, &args->in);

	if (!error)
		error = jobs_make(cs);
	if (!error)
		error = emu_cs_chunks_apply(cs);
	if (!error)
		error = list_find(cs, args->in.bo_list_handle);
	if (!error)
		error = ring_wait(cs);
	if (!error)
		error = memory_prepare(cs);
	if (!error)
		error = posts_reserve(cs);
	if (!error)
		args->out.handle = job_submit(cs);
	return error;
}

static int cs_init(struct emu_cs *cs, const struct drm_amdgpu_cs_in *in)
{
	struct emu_context *context = emu_context_find(cs->file, in->ctx_id);

	if (!in->num_chunks || !context)
		return -EINVAL;
	if (context->guilty)
		return -ECANCELED;
	if (in->flags)
		return emu_refuse(cs->gpu, -EINVAL, "CS: unknown flags 0x%x", in->flags);
	emu_context_get(context);
	cs->context = context;
	return 0;
}

static void cs_fini(struct emu_cs *cs)
{
	for (uint32_t i = 0; i < cs->member_count; i++)
		if (cs->members[i].job)
			emu_job_destroy(cs->members[i].job);
	for (uint32_t i = 0; i < cs->post_count; i++)
		emu_syncobj_put(cs->posts[i].syncobj);
	free(cs->posts);
	emu_bo_list_put(cs->list);
	if (cs->fence_bo)
		emu_bo_put(cs->fence_bo);
	emu_cs_chunks_put(cs);
	if (cs->context)
		emu_context_put(cs->context);
}

int emu_cs(struct emu_file *file, void *data)
{
	struct emu_cs cs = { .gpu = file->gpu, .file = file };
	union drm_amdgpu_cs *args = data;
	int error;

	pthread_mutex_lock(&file->gpu->lock);
	error = cs_init(&cs, &args->in);
	if (!error)
		error = cs_run(&cs, args);
	cs_fini(&cs);
	pthread_mutex_unlock(&file->gpu->lock);
	return error;
}
