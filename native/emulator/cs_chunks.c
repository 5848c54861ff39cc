/* SPDX-License-Identifier: MIT
 *
 * The chunks of a submission, in two passes, as the kernel goes over them.
 */
#include <errno.h>
#include <stdlib.h>

#include "cs.h"

#define IB_FLAGS                                                                                   \
	(AMDGPU_IB_FLAG_CE | AMDGPU_IB_FLAG_PREAMBLE | AMDGPU_IB_FLAG_PREEMPT |                    \
	 AMDGPU_IB_FLAG_TC_WB_NOT_INVALIDATE | AMDGPU_IB_FLAG_RESET_GDS_MAX_WAVE_ID |              \
	 AMDGPU_IB_FLAGS_SECURE | AMDGPU_IB_FLAG_EMIT_MEM_SYNC)
/* Of where an IB may begin: the SDMA engines drop lower bits, the others' rings have no room for them. */
#define DMA_IB_ALIGN 32
#define IB_ALIGN 4

/* ---- copying ------------------------------------------------------------------------------------- */

static int chunk_copy(struct emu_cs *cs, uint64_t address)
{
	struct drm_amdgpu_cs_chunk user;
	struct emu_cs_chunk *chunk = &cs->chunks[cs->chunk_count];
	int error = emu_copy_in(&user, address, sizeof(user));

	if (error)
		return error;
	error = emu_array_in(user.chunk_data, user.length_dw, 4, EMU_KVMALLOC_MOST, &chunk->data);
	if (error)
		return error;
	chunk->id = user.chunk_id;
	chunk->bytes = (size_t)user.length_dw * 4;
	cs->chunk_count++;
	return 0;
}

void emu_cs_chunks_put(struct emu_cs *cs)
{
	for (uint32_t i = 0; i < cs->chunk_count; i++)
		free(cs->chunks[i].data);
	free(cs->chunks);
}

/* ---- the first pass ------------------------------------------------------------------------------ */

uint32_t emu_ibs_most(uint32_t ip)
{
	if (ip == AMDGPU_HW_IP_GFX)
		return 192;
	return ip == AMDGPU_HW_IP_COMPUTE ? 125 : 49;
}

/* Which of the submission's members has a ring's IBs; one more if there is none. -EINVAL: too many. */
static int member_find(struct emu_cs *cs, struct emu_ring *ring, uint32_t ip, uint32_t *ret)
{
	uint32_t i = 0;

	while (i < cs->member_count && cs->members[i].ring != ring)
		i++;
	if (i == EMU_GANG)
		return -EINVAL;
	if (i == cs->member_count)
		cs->members[cs->member_count++] = (struct emu_cs_member){ .ring = ring, .ip = ip };
	*ret = i;
	return 0;
}

static int ib_member(struct emu_cs *cs, const struct drm_amdgpu_cs_chunk_ib *ib, uint32_t *ret)
{
	struct emu_ring *ring;
	int error = emu_context_ring(cs->context, ib->ip_type, ib->ip_instance, ib->ring, &ring);

	return error ? error : member_find(cs, ring, ib->ip_type, ret);
}

static int ib_look(struct emu_cs *cs, const struct drm_amdgpu_cs_chunk_ib *ib)
{
	uint32_t i;
	int error = ib_member(cs, ib, &i);

	if (error)
		return error;
	if (cs->members[i].ib_count >= emu_ibs_most(ib->ip_type))
		return -EINVAL;
	cs->members[i].ib_count++;
	cs->leader = i;
	return 0;
}

static int fence_look(struct emu_cs *cs, const struct drm_amdgpu_cs_chunk_fence *fence)
{
	struct emu_handle *handle;

	if (cs->fence_bo)
		return -EINVAL;
	handle = emu_handle_find(cs->file, fence->handle);
	if (!handle)
		return -EINVAL;
	if (handle->bo->bytes != EMU_PAGE_BYTES || fence->offset > EMU_PAGE_BYTES - 8 ||
	    handle->bo->user_pointer)
		return -EINVAL;
	emu_bo_get(handle->bo);
	cs->fence_bo = handle->bo;
	cs->fence_offset = fence->offset;
	return 0;
}

static int list_look(struct emu_cs *cs, const struct drm_amdgpu_bo_list_in *in)
{
	return cs->list ? -EINVAL : emu_bo_list_create(cs->file, in, &cs->list);
}

static bool knows_shadow(const struct emu_kernel *kernel)
{
	return kernel->drm_minor >= 53;
}

static int shadow_look(struct emu_cs *cs)
{
	return emu_refuse(cs->gpu, -EINVAL, "CS: the chunk CP_GFX_SHADOW isn't emulated");
}

static int chunk_look(struct emu_cs *cs, const struct emu_cs_chunk *chunk)
{
	static const size_t least[] = {
		[AMDGPU_CHUNK_ID_IB] = sizeof(struct drm_amdgpu_cs_chunk_ib),
		[AMDGPU_CHUNK_ID_FENCE] = sizeof(struct drm_amdgpu_cs_chunk_fence),
		[AMDGPU_CHUNK_ID_BO_HANDLES] = sizeof(struct drm_amdgpu_bo_list_in),
		[AMDGPU_CHUNK_ID_CP_GFX_SHADOW] = sizeof(struct drm_amdgpu_cs_chunk_cp_gfx_shadow),
	};

	if (!chunk->id || chunk->id >= sizeof(least) / sizeof(least[0]) ||
	    (chunk->id == AMDGPU_CHUNK_ID_CP_GFX_SHADOW && !knows_shadow(cs->gpu->kernel)))
		return emu_refuse(cs->gpu, -EINVAL, "CS: unknown chunk %u", chunk->id);
	if (chunk->bytes < least[chunk->id])
		return -EINVAL;
	switch (chunk->id) {
	case AMDGPU_CHUNK_ID_IB:
		return ib_look(cs, chunk->data);
	case AMDGPU_CHUNK_ID_FENCE:
		return fence_look(cs, chunk->data);
	case AMDGPU_CHUNK_ID_BO_HANDLES:
		return list_look(cs, chunk->data);
	case AMDGPU_CHUNK_ID_CP_GFX_SHADOW:
		return shadow_look(cs);
	default:
		return 0;
	}
}

int emu_cs_chunks_get(struct emu_cs *cs, const struct drm_amdgpu_cs_in *in)
{
	uint64_t *addresses;
	void *copy;
	int error = emu_array_in(in->chunks, in->num_chunks, sizeof(*addresses), EMU_KVMALLOC_MOST,
	                         &copy);

	if (error)
		return error;
	addresses = copy;
	error = -ENOMEM;
	cs->chunks = calloc(in->num_chunks, sizeof(*cs->chunks));
	if (!cs->chunks)
		goto out;
	for (uint32_t i = 0; i < in->num_chunks; i++) {
		error = chunk_copy(cs, addresses[i]);
		if (!error)
			error = chunk_look(cs, &cs->chunks[i]);
		if (error)
			goto out;
	}
	if (!cs->member_count)
		error = -EINVAL;
	else if (cs->context->vram_lost_count != cs->gpu->vram_lost_count)
		error = -ECANCELED; /* what it was to work on is gone */
out:
	free(addresses);
	return error;
}

/* ---- the second pass ----------------------------------------------------------------------------- */

static int ib_check(struct emu_cs *cs, const struct drm_amdgpu_cs_chunk_ib *ib)
{
	uint32_t align = ib->ip_type == AMDGPU_HW_IP_DMA ? DMA_IB_ALIGN : IB_ALIGN;
	uint32_t bound = cs->gpu->kernel->max_ib_dwords;

	if (ib->flags & ~IB_FLAGS)
		return emu_refuse(cs->gpu, -EINVAL, "CS: unknown IB flags 0x%x",
		                  ib->flags & ~IB_FLAGS);
	if (ib->flags & AMDGPU_IB_FLAGS_SECURE)
		return emu_refuse(cs->gpu, -EINVAL, "CS: encrypted IBs aren't emulated");
	/* Others run it on the GFX ring's constant engine, or as any IB where there is none. */
	if (ib->flags & AMDGPU_IB_FLAG_CE && cs->gpu->kernel->blocks_ce)
		return -EINVAL;
	if (bound && ib->ib_bytes / 4 > bound)
		return -EINVAL;
	if (ib->va_start % align)
		return emu_refuse(cs->gpu, -EINVAL, "CS: the IB at 0x%llx isn't aligned to %u bytes",
		                  (unsigned long long)ib->va_start, align);
	return 0;
}

static int ib_apply(struct emu_cs *cs, const struct drm_amdgpu_cs_chunk_ib *ib)
{
	struct emu_job *job;
	uint32_t i;
	int error = ib_check(cs, ib);

	if (!error)
		error = ib_member(cs, ib, &i);
	if (error)
		return error;
	job = cs->members[i].job;
	job->ibs[job->ib_count++] = (struct emu_ib){ .address = ib->va_start,
		                                     .dwords = ib->ib_bytes / 4,
		                                     .ip = ib->ip_type,
		                                     .flags = ib->flags };
	return 0;
}

static int dependency_apply(struct emu_cs *cs, const struct drm_amdgpu_cs_chunk_dep *dependency)
{
	struct emu_context *context = emu_context_find(cs->file, dependency->ctx_id);
	struct emu_ring *ring;
	struct emu_fence *fence;
	int error;

	if (!context)
		return -EINVAL;
	error = emu_context_ring(context, dependency->ip_type, dependency->ip_instance,
	                         dependency->ring, &ring);
	if (!error)
		error = emu_ring_fence(ring, dependency->handle, &fence);
	if (error)
		return error;
	error = emu_job_wait_for(emu_cs_job(cs), fence);
	emu_fence_put(fence);
	return error;
}

/* SCHEDULED_DEPENDENCIES too: a job that waits until another one has begun may wait until it is done,
 * since here nothing else goes on between. */
static int dependencies_apply(struct emu_cs *cs, const struct emu_cs_chunk *chunk)
{
	const struct drm_amdgpu_cs_chunk_dep *dependencies = chunk->data;

	for (size_t i = 0; i < chunk->bytes / sizeof(*dependencies); i++) {
		int error = dependency_apply(cs, &dependencies[i]);

		if (error)
			return error;
	}
	return 0;
}

static int syncobj_wait_for(struct emu_cs *cs, uint32_t handle, uint64_t point, uint32_t flags)
{
	struct emu_fence *fence;
	int error = emu_syncobj_find_fence(cs->file, handle, point, flags, &fence);

	if (error)
		return error;
	error = emu_job_wait_for(emu_cs_job(cs), fence);
	emu_fence_put(fence);
	return error;
}

static int syncobjs_in_apply(struct emu_cs *cs, const struct emu_cs_chunk *chunk)
{
	const struct drm_amdgpu_cs_chunk_sem *items = chunk->data;

	for (size_t i = 0; i < chunk->bytes / sizeof(*items); i++) {
		int error = syncobj_wait_for(cs, items[i].handle, 0, 0);

		if (error)
			return error;
	}
	return 0;
}

static int timeline_in_apply(struct emu_cs *cs, const struct emu_cs_chunk *chunk)
{
	const struct drm_amdgpu_cs_chunk_syncobj *items = chunk->data;

	for (size_t i = 0; i < chunk->bytes / sizeof(*items); i++) {
		int error = syncobj_wait_for(cs, items[i].handle, items[i].point, items[i].flags);

		if (error)
			return error;
	}
	return 0;
}

/* One chunk of those that signal, of either kind. */
static int posts_make(struct emu_cs *cs, size_t n)
{
	if (cs->has_posts)
		return -EINVAL;
	cs->has_posts = true;
	cs->posts = calloc(n + 1, sizeof(*cs->posts));
	return cs->posts ? 0 : -ENOMEM;
}

static int post_add(struct emu_cs *cs, uint32_t handle, uint64_t point)
{
	struct emu_syncobj *syncobj = emu_syncobj_find(cs->file, handle);

	if (!syncobj)
		return -EINVAL;
	emu_syncobj_get(syncobj);
	cs->posts[cs->post_count].syncobj = syncobj;
	cs->posts[cs->post_count++].point = point;
	return 0;
}

static int syncobjs_out_apply(struct emu_cs *cs, const struct emu_cs_chunk *chunk)
{
	const struct drm_amdgpu_cs_chunk_sem *items = chunk->data;
	size_t n = chunk->bytes / sizeof(*items);
	int error = posts_make(cs, n);

	for (size_t i = 0; i < n && !error; i++)
		error = post_add(cs, items[i].handle, 0);
	return error;
}

static int timeline_out_apply(struct emu_cs *cs, const struct emu_cs_chunk *chunk)
{
	const struct drm_amdgpu_cs_chunk_syncobj *items = chunk->data;
	size_t n = chunk->bytes / sizeof(*items);
	int error = posts_make(cs, n);

	/* Flags aren't looked at: RADV sends some. */
	for (size_t i = 0; i < n && !error; i++)
		error = post_add(cs, items[i].handle, items[i].point);
	return error;
}

static int chunk_apply(struct emu_cs *cs, const struct emu_cs_chunk *chunk)
{
	switch (chunk->id) {
	case AMDGPU_CHUNK_ID_IB:
		return ib_apply(cs, chunk->data);
	case AMDGPU_CHUNK_ID_DEPENDENCIES:
	case AMDGPU_CHUNK_ID_SCHEDULED_DEPENDENCIES:
		return dependencies_apply(cs, chunk);
	case AMDGPU_CHUNK_ID_SYNCOBJ_IN:
		return syncobjs_in_apply(cs, chunk);
	case AMDGPU_CHUNK_ID_SYNCOBJ_OUT:
		return syncobjs_out_apply(cs, chunk);
	case AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT:
		return timeline_in_apply(cs, chunk);
	case AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL:
		return timeline_out_apply(cs, chunk);
	default:
		return 0; /* FENCE and BO_HANDLES: the first pass did all */
	}
}

int emu_cs_chunks_apply(struct emu_cs *cs)
{
	for (uint32_t i = 0; i < cs->chunk_count; i++) {
		int error = chunk_apply(cs, &cs->chunks[i]);

		if (error)
			return error;
	}
	return 0;
}
