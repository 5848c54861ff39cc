/* SPDX-License-Identifier: MIT
 *
 * inject=: faults that happen at some time: calls that fail, the card that is lost, memory that others
 * take or that isn't what was asked for.
 */
#include <errno.h>
#include <stdlib.h>

#include "entry.h"
#include "memory_parts.h"

#define CALLS_FAIL_NS 1000000 /* a retry this much later works */
#define SPILL_LEAST (2ULL << 20)

static bool is_on(const struct emu_gpu *gpu, uint32_t fault)
{
	return gpu->options.inject.faults & fault;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* The nth call fails, and so do those that don't leave the card a millisecond. */
static int call_fails(struct emu_gpu *gpu)
{
	struct emu_inject *inject = &gpu->inject;
	uint64_t now = emu_now_ns();

	if (now < inject->calls_fail_until_ns)
		return -ENOMEM;
	if (++inject->calls % gpu->options.inject.enomem_every)
		return 0;
	inject->calls_fail_until_ns = now + CALLS_FAIL_NS;
	return -ENOMEM;
}

int emu_inject_call(struct emu_gpu *gpu, bool is_cs_or_va)
{
	if (!emu_list_is_empty(&gpu->inject.late))
		emu_late_show(gpu);
	return is_on(gpu, EMU_INJECT_TRANSIENT_ENOMEM) && is_cs_or_va ? call_fails(gpu) : 0;
}

/* ---- the card is lost ------------------------------------------------------------------------ */

/* What was in VRAM is gone; the driver makes the page tables anew. Work that is on its way is cancelled,
 * of all contexts; the one whose work it was is guilty. */
static void card_lose(struct emu_gpu *gpu, struct emu_job *job)
{
	EMU_FOR_EACH(item, &gpu->memory.lru[EMU_HEAP_VRAM]) {
		const struct emu_bo *bo = EMU_ENTRY(item, struct emu_bo, lru);

		emu_storage_zero(gpu, bo->storage, bo->bytes);
	}
	gpu->vram_lost_count++;
	gpu->jobs.reset_count++;
	job->context->guilty = true;
	gpu->inject.lost_order = gpu->jobs.pushed;
	emu_error_set(gpu, "the card was reset and lost its VRAM: inject=device-lost");
}

/* ---- VRAM is taken --------------------------------------------------------------------------- */

#define STOLEN_LEFT (8ULL << 20) /* what the kernel keeps for page tables */
#define STOLEN_PIECE (256ULL << 20)
#define STOLEN_PIECES 8192 /* of the largest card, with room to spare */

static uint64_t evictable_bytes(const struct emu_gpu *gpu)
{
	uint64_t bytes = 0;

	EMU_FOR_EACH(item, &gpu->memory.lru[EMU_HEAP_VRAM]) {
		const struct emu_bo *bo = EMU_ENTRY(item, struct emu_bo, lru);

		if (!bo->pins && bo->references)
			bytes += bo->bytes;
	}
	return bytes;
}

/* A buffer in VRAM that stays there: its process uses it all the time. */
static bool piece_steal(struct emu_gpu *gpu, uint64_t bytes)
{
	const struct emu_bo_request request = { .bytes = bytes, .alignment = EMU_PAGE_BYTES,
		                                .domains = AMDGPU_GEM_DOMAIN_VRAM,
		                                .flags = AMDGPU_GEM_CREATE_NO_CPU_ACCESS };
	struct emu_bo *bo;

	if (emu_bo_create(gpu, &request, &bo))
		return false;
	if (bo->heap != EMU_HEAP_VRAM) {
		emu_bo_put(bo);
		return false;
	}
	bo->pins++;
	gpu->memory.buffer_count--; /* no file of this process has it */
	gpu->inject.stolen[gpu->inject.stolen_count++] = bo;
	return true;
}

/* All that is free and half of what others have there. */
static void vram_steal(struct emu_gpu *gpu)
{
	const struct emu_heap *vram = &gpu->memory.heaps[EMU_HEAP_VRAM];
	uint64_t wanted, piece = STOLEN_PIECE;

	emu_memory_sweep(gpu);
	wanted = vram->bytes - vram->used_bytes + evictable_bytes(gpu) / 2;
	wanted -= wanted < STOLEN_LEFT ? wanted : STOLEN_LEFT;
	while (piece >= EMU_PAGE_BYTES && gpu->inject.stolen_count < STOLEN_PIECES) {
		if (piece <= wanted && piece_steal(gpu, piece))
			wanted -= piece;
		else
			piece /= 2;
	}
}

static void stolen_give(struct emu_gpu *gpu)
{
	struct emu_inject *inject = &gpu->inject;

	for (uint32_t i = 0; i < inject->stolen_count; i++) {
		inject->stolen[i]->pins--;
		gpu->memory.buffer_count++;
		emu_bo_put(inject->stolen[i]);
	}
	free(inject->stolen);
	inject->stolen = NULL;
	inject->stolen_count = 0;
}

/* ---- submissions ----------------------------------------------------------------------------- */

int emu_inject_run(struct emu_gpu *gpu, struct emu_job *job)
{
	const struct emu_inject_options *options = &gpu->options.inject;
	/* Of a gang's jobs the leader is the submission: it alone has a number. */
	uint64_t number = job->done->number ? ++gpu->inject.submissions : 0;

	if (is_on(gpu, EMU_INJECT_VRAM_STOLEN) && number == options->stolen_at)
		vram_steal(gpu);
	if (!is_on(gpu, EMU_INJECT_DEVICE_LOST))
		return 0;
	if (number == options->lost_at)
		card_lose(gpu, job);
	return job->order <= gpu->inject.lost_order ? -ECANCELED : 0;
}

/* ---- buffers --------------------------------------------------------------------------------- */

/* The first, and then every nth; not those of whoever steals, who has no VM. */
bool emu_inject_spills(struct emu_gpu *gpu, const struct emu_bo_request *request)
{
	if (!is_on(gpu, EMU_INJECT_SILENT_GTT) || request->domains != AMDGPU_GEM_DOMAIN_VRAM ||
	    request->bytes < SPILL_LEAST || !request->owner)
		return false;
	return gpu->inject.vram_creates++ % gpu->options.inject.spill_every == 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

int emu_inject_init(struct emu_gpu *gpu)
{
	const struct emu_inject_options *options = &gpu->options.inject;
	int error;

	for (uint32_t i = 0; i < options->ioctl_count; i++) {
		struct emu_ioctl_count *count = &gpu->ioctls[options->ioctls[i].index];

		count->fail_at = options->ioctls[i].n;
		count->fail_error = options->ioctls[i].error;
	}
	if (is_on(gpu, EMU_INJECT_VRAM_STOLEN)) {
		gpu->inject.stolen = calloc(STOLEN_PIECES, sizeof(struct emu_bo *));
		if (!gpu->inject.stolen)
			return -ENOMEM;
	}
	error = emu_late_init(gpu);
	if (error)
		stolen_give(gpu);
	return error;
}

void emu_inject_fini(struct emu_gpu *gpu)
{
	emu_late_fini(gpu);
	stolen_give(gpu);
}
