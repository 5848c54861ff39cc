/* SPDX-License-Identifier: MIT
 *
 * Finding room: who is evicted for whom, moves, and what a submission validates.
 *
 * A move takes no time here and copies nothing, since storage stays; its job keeps the order.
 * Others may have the old place at once, as with the kernel: whoever uses it first waits for the
 * move.
 */
#include <errno.h>
#include <stdlib.h>

#include "memory_parts.h"

int emu_bo_set_moving(struct emu_bo *bo, struct emu_fence *fence)
{
	int error = emu_resv_add(emu_bo_resv(bo), fence, EMU_USAGE_KERNEL);

	if (error)
		return error;
	emu_fence_get(fence);
	emu_fence_put(bo->moving);
	bo->moving = fence;
	return 0;
}

/* ---- moves ----------------------------------------------------------------------------------- */

/* What a move needs, made before anything changes. */
struct move {
	struct emu_bo *bo;
	struct emu_job *job;
	struct emu_handover *handover;
	struct emu_place old;
	bool discards;
};

static int move_init(struct move *move, struct emu_bo *bo, bool discards)
{
	struct emu_gpu *gpu = bo->gpu;
	int error;

	*move = (struct move){ .bo = bo, .discards = discards,
		               .old = { .heap = EMU_HEAP_NONE } };
	move->handover = emu_handover_create();
	if (!move->handover)
		return -ENOMEM;
	error = emu_job_create(gpu, discards ? EMU_JOB_CLEAR : EMU_JOB_MOVE, NULL, &move->job);
	if (error) {
		free(move->handover);
		return error;
	}
	move->job->bo = bo;
	error = emu_job_wait_for_resv(move->job, emu_bo_resv(bo), EMU_USAGE_WRITE, NULL, NULL);
	if (!error)
		error = emu_job_wait_for(move->job, bo->moving);
	if (error) {
		emu_job_destroy(move->job);
		free(move->handover);
	}
	return error;
}

static void move_cancel(struct move *move)
{
	emu_place_return(move->bo, &move->old);
	emu_job_destroy(move->job);
	free(move->handover);
}

static void emptied_set(struct emu_gpu *gpu, enum emu_heap_kind heap, struct emu_fence *fence)
{
	emu_fence_get(fence);
	emu_fence_put(gpu->memory.emptied[heap]);
	gpu->memory.emptied[heap] = fence;
}

/* The buffer has its new place, or none. */
static int move_finish(struct move *move, bool evicted)
{
	struct emu_gpu *gpu = move->bo->gpu;
	struct emu_fence *done = move->job->done;
	int error = emu_bo_set_moving(move->bo, done);

	if (error) {
		emu_bo_unplace(move->bo);
		move_cancel(move);
		return error;
	}
	if (move->old.heap != EMU_HEAP_NONE) {
		emu_handover_add(move->handover, move->bo, &move->old, done);
		emptied_set(gpu, move->old.heap, done);
	} else {
		free(move->handover);
	}
	if (move->discards)
		move->bo->clear_due = true;
	emu_job_push(move->job, &gpu->jobs.kernel);
	emu_vm_bo_invalidate(move->bo, evicted);
	return 0;
}

/* ---- evicting -------------------------------------------------------------------------------- */

static bool bo_is_dying(const struct emu_bo *bo)
{
	return !bo->references;
}

static uint64_t bo_last_used(const struct emu_bo *bo)
{
	if (bo_is_dying(bo))
		return 0;
	return bo->owner && bo->owner->used_at > bo->used_at ? bo->owner->used_at : bo->used_at;
}

/* The kernel holds the reservations of what it is about to use. */
static bool bo_may_go(const struct emu_bo *bo, const struct emu_vm *spared)
{
	const struct emu_memory *memory = &bo->gpu->memory;

	if (bo->pins)
		return false;
	if (bo_is_dying(bo))
		return true;
	if (bo->owner && (bo->owner == spared || bo->owner == memory->submitting))
		return false;
	return !memory->submitting || bo->used_at <= memory->submission_began;
}

/* Least recently used first; an always-valid buffer was used by its VM's last submission. */
static struct emu_bo *victim_find(struct emu_gpu *gpu, enum emu_heap_kind heap,
                                  const struct emu_bo *claimant, const struct emu_vm *spared)
{
	struct emu_bo *victim = NULL;

	EMU_FOR_EACH(item, &gpu->memory.lru[heap]) {
		struct emu_bo *bo = EMU_ENTRY(item, struct emu_bo, lru);

		if (bo == claimant || !bo_may_go(bo, spared))
			continue;
		if (!victim || bo_last_used(bo) < bo_last_used(victim))
			victim = bo;
	}
	return victim;
}

/* From VRAM to GTT if that has room, else to the system's memory, which is no heap. What may be
 * discarded loses its contents instead; what is dying only leaves earlier. */
static int bo_evict(struct emu_bo *bo, uint64_t *moved_bytes)
{
	struct emu_gpu *gpu = bo->gpu;
	bool dying = bo_is_dying(bo);
	bool discards = !dying && bo->flags & AMDGPU_GEM_CREATE_DISCARDABLE;
	struct move move;
	int error = move_init(&move, bo, discards);

	if (error)
		return error;
	move.old = emu_place_take(bo);
	if (!dying && !discards && move.old.heap == EMU_HEAP_VRAM) {
		error = emu_bo_place(bo, EMU_HEAP_GTT);
		if (error && error != -ENOSPC) {
			move_cancel(&move);
			return error;
		}
	}
	error = move_finish(&move, true);
	if (error || dying || discards)
		return error;
	gpu->counts.evictions++;
	gpu->counts.moved_bytes += bo->bytes;
	*moved_bytes += bo->bytes;
	return 0;
}

/* A new place is empty only when the last move out of its heap is done. */
static int place_wait(struct emu_bo *bo)
{
	struct emu_fence *emptied = bo->gpu->memory.emptied[bo->heap];
	int error;

	if (!emptied || emptied->signalled)
		return 0;
	error = emu_bo_set_moving(bo, emptied);
	if (error)
		emu_bo_unplace(bo);
	return error;
}

static int heap_make_room(struct emu_bo *bo, enum emu_heap_kind heap, const struct emu_vm *spared,
                          uint64_t *moved_bytes)
{
	int error;

	while ((error = emu_bo_place(bo, heap)) == -ENOSPC) {
		struct emu_bo *victim = victim_find(bo->gpu, heap, bo, spared);

		if (!victim)
			return -ENOSPC;
		error = bo_evict(victim, moved_bytes);
		if (error)
			return error;
	}
	return error;
}

/* Also if no domain is named. */
static bool domains_have_system(uint32_t domains)
{
	return domains & AMDGPU_GEM_DOMAIN_CPU ||
	       !(domains & (AMDGPU_GEM_DOMAIN_VRAM | AMDGPU_GEM_DOMAIN_GTT));
}

int emu_bo_find_place(struct emu_bo *bo, uint32_t domains, const struct emu_vm *spared,
                      uint64_t *moved_bytes)
{
	int error = -ENOSPC;

	for (int evicting = 0; evicting < 2 && error == -ENOSPC; evicting++) {
		for (int heap = 0; heap < EMU_HEAPS && error == -ENOSPC; heap++) {
			if (!(domains & emu_heap_domain(heap)))
				continue;
			error = evicting ? heap_make_room(bo, heap, spared, moved_bytes)
			                 : emu_bo_place(bo, heap);
			if (!error)
				return place_wait(bo);
		}
		/* The system's memory, the last choice, always has room. */
		if (error == -ENOSPC && domains_have_system(domains))
			return 0;
	}
	return error == -ENOSPC ? -ENOMEM : error;
}

/* ---- validating ------------------------------------------------------------------------------ */

static bool bo_is_in(const struct emu_bo *bo, uint32_t domains)
{
	if (bo->heap != EMU_HEAP_NONE)
		return domains & emu_heap_domain(bo->heap);
	return domains_have_system(domains);
}

static int bo_move(struct emu_bo *bo, uint32_t domains, uint64_t *moved_bytes)
{
	struct move move;
	int error = move_init(&move, bo, false);

	if (error)
		return error;
	move.old = emu_place_take(bo);
	error = emu_bo_find_place(bo, domains, bo->owner, moved_bytes);
	if (error) {
		move_cancel(&move);
		return error;
	}
	/* Nobody could be at work in the system's memory. Who comes from there has nothing to copy
	 * but does take part in the order. */
	error = emu_job_wait_for(move.job, bo->moving);
	if (!error)
		error = move_finish(&move, false);
	else {
		emu_bo_unplace(bo);
		move_cancel(&move);
	}
	if (error)
		return error;
	bo->gpu->counts.moved_bytes += bo->bytes;
	*moved_bytes += bo->bytes;
	return 0;
}

static void bo_touch(struct emu_bo *bo)
{
	bo->used_at = ++bo->gpu->memory.clock;
	if (bo->heap == EMU_HEAP_NONE)
		return;
	emu_list_remove(&bo->lru);
	emu_list_append(&bo->gpu->memory.lru[bo->heap], &bo->lru);
}

/* Once the allowance is used up, a buffer may stay in the second best place. */
int emu_bo_validate(struct emu_bo *bo, uint64_t *budget_bytes)
{
	uint32_t domains = !budget_bytes || *budget_bytes ? bo->preferred_domains
	                                                  : bo->allowed_domains;
	uint64_t moved = 0;
	int error = 0;

	if (bo->pins || bo->onchip)
		return 0;
	if (bo->user_pointer)
		error = emu_user_memory_check(bo);
	if (error)
		return error;
	if (!bo_is_in(bo, domains))
		error = bo_move(bo, domains, &moved);
	if (error == -ENOMEM && domains != bo->allowed_domains)
		error = bo_is_in(bo, bo->allowed_domains)
		            ? 0
		            : bo_move(bo, bo->allowed_domains, &moved);
	if (budget_bytes)
		*budget_bytes -= moved < *budget_bytes ? moved : *budget_bytes;
	bo_touch(bo);
	return error;
}
