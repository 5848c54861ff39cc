/* SPDX-License-Identifier: MIT
 *
 * Contexts and their rings: CTX, SCHED.
 */
#include <errno.h>
#include <stdlib.h>

#include "emu.h"

/* ---- life ---------------------------------------------------------------------------------------- */

struct emu_context *emu_context_find(struct emu_file *file, uint32_t id)
{
	return emu_ids_find(&file->contexts, id);
}

void emu_context_get(struct emu_context *context)
{
	context->references++;
}

static void ring_free(struct emu_ring *ring)
{
	if (!ring)
		return;
	for (uint32_t i = 0; i < EMU_CONTEXT_FENCES; i++)
		emu_fence_put(ring->fences[i]);
	free(ring);
}

/* Jobs hold their context, so its queues are empty. */
void emu_context_put(struct emu_context *context)
{
	struct emu_jobs *jobs;

	if (--context->references)
		return;
	jobs = &context->file->gpu->jobs;
	if (jobs->pstate_holder == context) {
		jobs->pstate_holder = NULL;
		jobs->pstate = AMDGPU_CTX_STABLE_PSTATE_NONE;
	}
	for (uint32_t ip = 0; ip < AMDGPU_HW_IP_NUM; ip++)
		for (uint32_t i = 0; i < EMU_RINGS; i++)
			ring_free(context->rings[ip][i]);
	free(context);
}

/* ---- rings --------------------------------------------------------------------------------------- */

static uint32_t ring_count(const struct emu_model *model, uint32_t ip)
{
	uint32_t count = 0;

	if (ip == AMDGPU_HW_IP_GFX)
		count = model->gfx_rings;
	else if (ip == AMDGPU_HW_IP_COMPUTE)
		count = model->compute_rings;
	else if (ip == AMDGPU_HW_IP_DMA)
		count = model->sdma_rings;
	return count < EMU_RINGS ? count : EMU_RINGS;
}

int emu_context_ring(struct emu_context *context, uint32_t ip, uint32_t instance, uint32_t ring,
                     struct emu_ring **ret)
{
	struct emu_gpu *gpu = context->file->gpu;
	struct emu_ring **place;

	if (ip >= AMDGPU_HW_IP_NUM || instance || ring >= ring_count(gpu->model, ip))
		return emu_refuse(gpu, -EINVAL, "no ring: IP type %u, instance %u, ring %u", ip,
		                  instance, ring);
	place = &context->rings[ip][ring];
	if (!*place) {
		*place = calloc(1, sizeof(**place));
		if (!*place)
			return -ENOMEM;
		emu_entity_init(&(*place)->entity);
		(*place)->next = 1;
	}
	*ret = *place;
	return 0;
}

int emu_ring_fence(const struct emu_ring *ring, uint64_t number, struct emu_fence **ret)
{
	struct emu_fence *fence;

	if (number == UINT64_MAX)
		number = ring->next - 1;
	if (number >= ring->next)
		return -EINVAL;
	*ret = NULL;
	if (number + EMU_CONTEXT_FENCES < ring->next)
		return 0;
	fence = ring->fences[number % EMU_CONTEXT_FENCES];
	if (!fence)
		return 0;
	emu_fence_get(fence);
	*ret = fence;
	return 0;
}

/* ---- permissions --------------------------------------------------------------------------------- */

static bool priority_is_valid(int32_t priority)
{
	switch (priority) {
	case AMDGPU_CTX_PRIORITY_VERY_LOW:
	case AMDGPU_CTX_PRIORITY_LOW:
	case AMDGPU_CTX_PRIORITY_NORMAL:
	case AMDGPU_CTX_PRIORITY_HIGH:
	case AMDGPU_CTX_PRIORITY_VERY_HIGH:
		return true;
	default:
		/* UNSET too: it is what garbage from before there were priorities becomes. */
		return false;
	}
}

/* ---- CTX ----------------------------------------------------------------------------------------- */

static int context_alloc(struct emu_file *file, int32_t priority, uint32_t *id)
{
	struct emu_gpu *gpu = file->gpu;
	struct emu_context *context;
	int error;

	if (file->contexts.used >= EMU_CONTEXTS)
		return -ENOSPC;
	if (priority > AMDGPU_CTX_PRIORITY_NORMAL && gpu->master != file && !emu_caller_is_nice())
		return -EACCES;
	context = calloc(1, sizeof(*context));
	if (!context)
		return -ENOMEM;
	context->file = file;
	context->references = 1;
	context->priority = priority;
	context->override = AMDGPU_CTX_PRIORITY_UNSET;
	context->reset_count = context->reset_seen = gpu->jobs.reset_count;
	context->vram_lost_count = gpu->vram_lost_count;
	error = emu_ids_add(&file->contexts, context, id);
	if (error)
		free(context);
	return error;
}

static int context_free(struct emu_file *file, uint32_t id)
{
	struct emu_context *context = emu_ids_remove(&file->contexts, id);

	if (!context)
		return -EINVAL;
	emu_context_put(context);
	return 0;
}

static int context_query(struct emu_file *file, uint32_t id, union drm_amdgpu_ctx_out *out)
{
	struct emu_context *context = emu_context_find(file, id);
	uint64_t resets = file->gpu->jobs.reset_count;

	if (!context)
		return -EINVAL;
	out->state.flags = 0;
	out->state.hangs = 0;
	out->state.reset_status = context->reset_seen == resets ? AMDGPU_CTX_NO_RESET
	                                                        : AMDGPU_CTX_UNKNOWN_RESET;
	context->reset_seen = resets;
	return 0;
}

static int context_query2(struct emu_file *file, uint32_t id, union drm_amdgpu_ctx_out *out)
{
	struct emu_context *context = emu_context_find(file, id);

	if (!context)
		return -EINVAL;
	out->state.flags = 0;
	out->state.hangs = 0;
	if (context->reset_count != file->gpu->jobs.reset_count)
		out->state.flags |= AMDGPU_CTX_QUERY2_FLAGS_RESET;
	if (context->vram_lost_count != file->gpu->vram_lost_count)
		out->state.flags |= AMDGPU_CTX_QUERY2_FLAGS_VRAMLOST;
	if (context->guilty)
		out->state.flags |= AMDGPU_CTX_QUERY2_FLAGS_GUILTY;
	return 0;
}

static int context_pstate_set(struct emu_file *file, uint32_t id, uint32_t pstate)
{
	struct emu_jobs *jobs = &file->gpu->jobs;
	struct emu_context *context = emu_context_find(file, id);

	if (!context)
		return -EINVAL;
	if (jobs->pstate_holder && jobs->pstate_holder != context)
		return -EBUSY;
	jobs->pstate = pstate;
	jobs->pstate_holder = pstate == AMDGPU_CTX_STABLE_PSTATE_NONE ? NULL : context;
	return 0;
}

static int context_pstate_get(struct emu_file *file, uint32_t id, union drm_amdgpu_ctx_out *out)
{
	if (!emu_context_find(file, id))
		return -EINVAL;
	out->pstate.flags = file->gpu->jobs.pstate;
	return 0;
}

static int ctx_flags_refuse(struct emu_gpu *gpu, const struct drm_amdgpu_ctx_in *in)
{
	return emu_refuse(gpu, -EINVAL, "CTX: unknown flags 0x%x for operation %u", in->flags, in->op);
}

static int ctx_run(struct emu_file *file, union drm_amdgpu_ctx *args)
{
	const struct drm_amdgpu_ctx_in in = args->in;
	/* Processes from before there were priorities leave garbage there. */
	int32_t priority = priority_is_valid(in.priority) ? in.priority : AMDGPU_CTX_PRIORITY_NORMAL;
	uint32_t id;
	int error;

	if (in.op == AMDGPU_CTX_OP_SET_STABLE_PSTATE) {
		if (in.flags > AMDGPU_CTX_STABLE_PSTATE_PEAK)
			return ctx_flags_refuse(file->gpu, &in);
		return context_pstate_set(file, in.ctx_id, in.flags);
	}
	if (in.op < AMDGPU_CTX_OP_ALLOC_CTX || in.op > AMDGPU_CTX_OP_SET_STABLE_PSTATE)
		return emu_refuse(file->gpu, -EINVAL, "CTX: unknown operation %u", in.op);
	if (in.flags)
		return ctx_flags_refuse(file->gpu, &in);
	switch (in.op) {
	case AMDGPU_CTX_OP_ALLOC_CTX:
		error = context_alloc(file, priority, &id);
		if (!error)
			args->out.alloc.ctx_id = id;
		return error;
	case AMDGPU_CTX_OP_FREE_CTX:
		return context_free(file, in.ctx_id);
	case AMDGPU_CTX_OP_QUERY_STATE:
		return context_query(file, in.ctx_id, &args->out);
	case AMDGPU_CTX_OP_QUERY_STATE2:
		return context_query2(file, in.ctx_id, &args->out);
	default:
		return context_pstate_get(file, in.ctx_id, &args->out);
	}
}

int emu_ctx(struct emu_file *file, void *data)
{
	int error;

	pthread_mutex_lock(&file->gpu->lock);
	error = ctx_run(file, data);
	pthread_mutex_unlock(&file->gpu->lock);
	return error;
}

/* ---- SCHED: priorities of another file's contexts -------------------------------------------------- */

static void override_all(struct emu_file *file, int32_t priority)
{
	struct emu_context *context;

	for (uint32_t id = 1; (context = emu_ids_next(&file->contexts, &id)); id++)
		context->override = priority;
}

static int override_one(struct emu_file *file, uint32_t id, int32_t priority)
{
	struct emu_context *context = emu_context_find(file, id);

	if (!context)
		return -EINVAL;
	context->override = priority;
	return 0;
}

int emu_sched(struct emu_file *file, void *data)
{
	const struct drm_amdgpu_sched_in *in = &((union drm_amdgpu_sched *)data)->in;
	struct emu_file *target;
	int error = 0;

	if (in->op != AMDGPU_SCHED_OP_PROCESS_PRIORITY_OVERRIDE &&
	    in->op != AMDGPU_SCHED_OP_CONTEXT_PRIORITY_OVERRIDE)
		return emu_refuse(file->gpu, -EINVAL, "SCHED: unknown operation %u", in->op);
	if (!priority_is_valid(in->priority))
		return -EINVAL;
	target = emu_file_get((int)in->fd);
	if (!target)
		return -EINVAL;
	pthread_mutex_lock(&target->gpu->lock);
	if (in->op == AMDGPU_SCHED_OP_PROCESS_PRIORITY_OVERRIDE)
		override_all(target, in->priority);
	else
		error = override_one(target, in->ctx_id, in->priority);
	pthread_mutex_unlock(&target->gpu->lock);
	emu_file_put(target);
	return error;
}

/* ---- USERQ, USERQ_SIGNAL, USERQ_WAIT --------------------------------------------------------------- */

#define ENOTSUPP 524 /* the kernel's own, which it gives out all the same */

/* This card's firmware has no queues of the process's own. */
int emu_userq(struct emu_file *file, void *data)
{
	(void)file;
	(void)data;
	return -ENOTSUPP;
}
