/* SPDX-License-Identifier: MIT
 *
 * Buffer objects: making them, as GEM_CREATE does with its checks and second chances, and their
 * end.
 */
#include <errno.h>
#include <stdlib.h>

#include "memory_parts.h"

#define DOMAINS_ONCHIP                                                                             \
	(AMDGPU_GEM_DOMAIN_GDS | AMDGPU_GEM_DOMAIN_GWS | AMDGPU_GEM_DOMAIN_OA)
#define DOMAINS_KNOWN                                                                              \
	(AMDGPU_GEM_DOMAIN_CPU | AMDGPU_GEM_DOMAIN_GTT | AMDGPU_GEM_DOMAIN_VRAM | DOMAINS_ONCHIP)

/* ---- checks ---------------------------------------------------------------------------------- */

static int flags_check(struct emu_gpu *gpu, const struct emu_bo_request *request)
{
	uint64_t unknown = request->flags & ~gpu->kernel->create_flags;

	if (unknown)
		return emu_refuse(gpu, -EINVAL, "GEM_CREATE: flags 0x%llx, which Linux %s refuses",
		                  (unsigned long long)unknown, gpu->kernel->name);
	if (request->flags & AMDGPU_GEM_CREATE_ENCRYPTED) {
		emu_error_set(gpu, "GEM_CREATE: no secure buffers on this card");
		return -EINVAL;
	}
	return 0;
}

static int domains_check(struct emu_gpu *gpu, const struct emu_bo_request *request)
{
	uint32_t unknown = request->domains & ~DOMAINS_KNOWN;
	uint32_t onchip = request->domains & DOMAINS_ONCHIP;

	if (unknown)
		return emu_refuse(gpu, -EINVAL, "GEM_CREATE: domains 0x%x", unknown);
	if (!onchip)
		return 0;
	if (request->domains & (request->domains - 1)) {
		emu_error_set(gpu, "GEM_CREATE: GDS, GWS and OA go with no other domain");
		return -EINVAL;
	}
	if (request->flags & AMDGPU_GEM_CREATE_VM_ALWAYS_VALID) {
		emu_error_set(gpu, "GEM_CREATE: GDS, GWS and OA can't be always valid");
		return -EINVAL;
	}
	return 0;
}

/* The kernel lets a buffer be as large as a heap but for one page; GTT's is what counts if that is
 * among its domains. */
static int size_check(const struct emu_gpu *gpu, uint64_t bytes, uint32_t domains)
{
	const struct emu_heap *heaps = gpu->memory.heaps;

	if (domains & AMDGPU_GEM_DOMAIN_GTT)
		return bytes < heaps[EMU_HEAP_GTT].bytes ? 0 : -ENOMEM;
	if (domains & AMDGPU_GEM_DOMAIN_VRAM)
		return bytes < heaps[EMU_HEAP_VRAM].bytes ? 0 : -ENOMEM;
	return 0;
}

/* ---- on the chip ----------------------------------------------------------------------------- */

static uint64_t onchip_size(const struct emu_model *model, uint32_t kind)
{
	return kind == 0 ? model->gds_bytes : kind == 1 ? model->gws : model->oa;
}

static uint32_t onchip_kind(uint32_t domain)
{
	return domain == AMDGPU_GEM_DOMAIN_GDS ? 0 : domain == AMDGPU_GEM_DOMAIN_GWS ? 1 : 2;
}

static int onchip_take(struct emu_bo *bo, uint64_t units)
{
	struct emu_gpu *gpu = bo->gpu;
	uint32_t kind = onchip_kind(bo->preferred_domains);
	uint64_t size = onchip_size(gpu->model, kind);

	if (units > size || gpu->memory.onchip_used[kind] > size - units)
		return -ENOMEM;
	gpu->memory.onchip_used[kind] += units;
	bo->onchip = units;
	return 0;
}

/* ---- making ---------------------------------------------------------------------------------- */

static struct emu_bo *bo_allocate(struct emu_gpu *gpu, const struct emu_bo_request *request)
{
	struct emu_bo *bo = calloc(1, sizeof(*bo));

	if (!bo)
		return NULL;
	bo->gpu = gpu;
	bo->references = 1;
	bo->bytes = (request->bytes + EMU_PAGE_BYTES - 1) & ~(EMU_PAGE_BYTES - 1);
	bo->alignment = (request->alignment + EMU_PAGE_BYTES - 1) & ~(EMU_PAGE_BYTES - 1);
	bo->flags = request->flags;
	bo->user_pointer = request->user_pointer;
	bo->heap = EMU_HEAP_NONE;
	bo->preferred_domains = bo->allowed_domains = request->domains;
	if (!request->pinned && request->domains == AMDGPU_GEM_DOMAIN_VRAM)
		bo->allowed_domains |= AMDGPU_GEM_DOMAIN_GTT;
	bo->is_table = request->pinned;
	if (request->pinned)
		bo->pins = 1;
	else if (request->flags & AMDGPU_GEM_CREATE_VM_ALWAYS_VALID)
		bo->owner = request->owner;
	emu_list_init(&bo->lru);
	emu_list_init(&bo->dying);
	emu_list_init(&bo->bo_vas);
	bo->used_at = ++gpu->memory.clock;
	gpu->memory.buffer_count += !request->pinned;
	return bo;
}

static bool is_cleared(const struct emu_bo *bo)
{
	return bo->flags & AMDGPU_GEM_CREATE_VRAM_CLEARED;
}

static int clear_push(struct emu_bo *bo)
{
	struct emu_gpu *gpu = bo->gpu;
	struct emu_job *job;
	int error = emu_job_create(gpu, EMU_JOB_CLEAR, NULL, &job);

	if (error)
		return error;
	job->bo = bo;
	error = emu_job_wait_for(job, bo->moving);
	if (!error)
		error = emu_bo_set_moving(bo, job->done);
	if (error)
		emu_job_destroy(job);
	else
		emu_job_push(job, &gpu->jobs.kernel);
	return error;
}

/* Where it can be; then its storage, which only in VRAM may hold old bytes; then clearing. */
static int bo_fill(struct emu_bo *bo, uint32_t domains)
{
	struct emu_gpu *gpu = bo->gpu;
	uint64_t moved = 0;
	bool vram;
	int error = emu_bo_find_place(bo, domains, NULL, &moved);

	if (error)
		return error;
	if (bo->user_pointer)
		return 0;
	vram = bo->heap == EMU_HEAP_VRAM;
	error = emu_storage_take(gpu, bo->bytes, vram && !is_cleared(bo), &bo->storage);
	gpu->memory.storage_was_short |= error == -ENOMEM;
	if (!error && vram && is_cleared(bo))
		error = clear_push(bo);
	return error;
}

static int bo_create_in(struct emu_gpu *gpu, const struct emu_bo_request *request, uint32_t domains,
                        struct emu_bo **ret)
{
	struct emu_bo *bo = bo_allocate(gpu, request);
	int error;

	if (!bo)
		return -ENOMEM;
	error = size_check(gpu, bo->bytes, domains);
	if (!error && !bo->bytes)
		error = -ENOSPC; /* it gets no range of mmap offsets */
	if (!error && request->domains & DOMAINS_ONCHIP) {
		bo->bytes = request->bytes << EMU_PAGE_SHIFT;
		error = onchip_take(bo, request->bytes);
	} else if (!error) {
		error = bo_fill(bo, domains);
	}
	if (error) {
		bo->references = 0;
		emu_bo_free(bo);
		return error;
	}
	*ret = bo;
	return 0;
}

/* A page table's place in VRAM; its entries are kept elsewhere. */
static int table_create(struct emu_gpu *gpu, const struct emu_bo_request *request,
                        struct emu_bo **ret)
{
	struct emu_bo *bo = bo_allocate(gpu, request);
	uint64_t moved = 0;
	int error;

	if (!bo)
		return -ENOMEM;
	error = emu_bo_find_place(bo, request->domains, request->owner, &moved);
	if (error) {
		emu_bo_free(bo);
		return error;
	}
	*ret = bo;
	return 0;
}

/* In GTT, where it stays, though what it tells of itself is VRAM. */
static int spilled_create(struct emu_gpu *gpu, const struct emu_bo_request *request,
                          struct emu_bo **ret)
{
	struct emu_bo_request spilled = *request;
	int error;

	spilled.domains = AMDGPU_GEM_DOMAIN_GTT;
	error = bo_create_in(gpu, &spilled, spilled.domains, ret);
	if (!error)
		(*ret)->spilled = true;
	return error;
}

int emu_bo_create(struct emu_gpu *gpu, const struct emu_bo_request *request, struct emu_bo **ret)
{
	struct emu_bo_request now = *request;
	uint32_t domains = request->domains;
	int error;

	emu_memory_sweep(gpu);
	if (request->pinned)
		return table_create(gpu, request, ret);
	error = flags_check(gpu, request);
	if (!error)
		error = domains_check(gpu, request);
	if (error)
		return error;
	if (gpu->kernel->always_clears && !request->user_pointer)
		now.flags |= AMDGPU_GEM_CREATE_VRAM_CLEARED;
	if (domains & DOMAINS_ONCHIP)
		now.flags |= AMDGPU_GEM_CREATE_NO_CPU_ACCESS;
	if (emu_inject_spills(gpu, &now) && !spilled_create(gpu, &now, ret))
		return 0;
	error = bo_create_in(gpu, &now, domains, ret);
	if (error && now.flags & AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED) {
		now.flags &= ~(uint64_t)AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED;
		error = bo_create_in(gpu, &now, domains, ret);
	}
	if (error && domains == AMDGPU_GEM_DOMAIN_VRAM)
		error = bo_create_in(gpu, &now, domains | AMDGPU_GEM_DOMAIN_GTT, ret);
	return error;
}

/* ---- using ----------------------------------------------------------------------------------- */

uint32_t emu_bo_told_domains(const struct emu_bo *bo)
{
	return bo->spilled ? AMDGPU_GEM_DOMAIN_VRAM : bo->preferred_domains;
}

struct emu_resv *emu_bo_resv(struct emu_bo *bo)
{
	return bo->owner ? &bo->owner->resv : &bo->resv;
}

void emu_bo_clear(struct emu_bo *bo)
{
	if (bo->clear_due)
		emu_storage_zero(bo->gpu, bo->storage, bo->bytes);
	bo->clear_due = false;
}

void emu_bo_get(struct emu_bo *bo)
{
	bo->references++;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void storage_give(struct emu_bo *bo, bool was_vram)
{
	struct emu_gpu *gpu = bo->gpu;
	const struct emu_heap *vram = &gpu->memory.heaps[EMU_HEAP_VRAM];
	bool keep = was_vram && !gpu->kernel->always_clears;

	if (bo->storage && bo->offset_told)
		emu_left_add(gpu, bo->storage, bo->bytes, keep);
	else if (bo->storage)
		emu_storage_give(gpu, bo->storage, bo->bytes, keep, vram->bytes - vram->used_bytes);
}

void emu_bo_free(struct emu_bo *bo)
{
	struct emu_gpu *gpu = bo->gpu;
	bool was_vram = bo->heap == EMU_HEAP_VRAM;

	emu_list_remove(&bo->dying);
	emu_handovers_prune(gpu, bo);
	emu_bo_unplace(bo);
	storage_give(bo, was_vram);
	if (bo->onchip)
		gpu->memory.onchip_used[onchip_kind(bo->preferred_domains)] -= bo->onchip;
	gpu->memory.buffer_count -= !bo->is_table;
	emu_resv_fini(&bo->resv);
	emu_fence_put(bo->moving);
	free(bo);
}

/* From now on it is nobody's; what is at work on it, now, is what its memory waits for. */
static void resv_leave_owner(struct emu_bo *bo)
{
	const struct emu_resv *from;

	if (!bo->owner)
		return;
	from = &bo->owner->resv;
	/* Without memory for that, some of it isn't waited for, which the kernel would do by
	 * sleeping; but its own moves and clears are: bo->moving is the last of them. */
	for (uint32_t i = 0; i < from->count; i++)
		(void)emu_resv_add(&bo->resv, from->fences[i].fence, from->fences[i].usage);
	bo->owner = NULL;
}

bool emu_bo_is_idle(struct emu_bo *bo)
{
	return (!bo->moving || bo->moving->signalled) &&
	       emu_resv_is_idle(&bo->resv, EMU_USAGE_BOOKKEEP);
}

void emu_bo_put(struct emu_bo *bo)
{
	if (!bo || --bo->references)
		return;
	resv_leave_owner(bo);
	if (emu_bo_is_idle(bo))
		emu_bo_free(bo);
	else
		emu_list_append(&bo->gpu->memory.dying, &bo->dying);
}
