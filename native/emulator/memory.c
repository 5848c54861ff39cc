/* SPDX-License-Identifier: MIT
 *
 * The card's memory: its heaps, what lies at a physical address, and freeing what others had to
 * finish with.
 */
#include <errno.h>

#include "memory_parts.h"

#define RESERVED_BYTES (8ULL << 20) /* what the kernel keeps back for page tables when asked */

/* ---- life ------------------------------------------------------------------------------------ */

static int heap_init(struct emu_heap *heap, uint64_t bytes, uint64_t base)
{
	heap->bytes = bytes;
	heap->base = base;
	heap->buddy = emu_buddy_create(bytes >> EMU_PAGE_SHIFT);
	return heap->buddy ? 0 : -ENOMEM;
}

int emu_memory_init(struct emu_gpu *gpu)
{
	struct emu_memory *memory = &gpu->memory;
	uint64_t vram = gpu->options.vram_bytes;
	int error = emu_storage_init(gpu);

	if (error)
		return error;
	for (int i = 0; i < EMU_HEAPS; i++)
		emu_list_init(&memory->lru[i]);
	emu_list_init(&memory->handovers);
	emu_list_init(&memory->dying);
	emu_list_init(&memory->dmabufs);
	error = heap_init(&memory->heaps[EMU_HEAP_VRAM], vram, 0);
	if (!error)
		error = heap_init(&memory->heaps[EMU_HEAP_GTT], gpu->options.gtt_bytes, vram);
	if (error)
		emu_memory_fini(gpu);
	return error;
}

void emu_memory_fini(struct emu_gpu *gpu)
{
	struct emu_memory *memory = &gpu->memory;

	emu_dmabufs_reap(gpu, true);
	EMU_FOR_EACH(item, &memory->dying)
		emu_bo_free(EMU_ENTRY(item, struct emu_bo, dying));
	for (int i = 0; i < EMU_HEAPS; i++) {
		emu_fence_put(memory->emptied[i]);
		emu_buddy_destroy(memory->heaps[i].buddy);
		memory->heaps[i].buddy = NULL;
		memory->emptied[i] = NULL;
	}
	emu_ids_fini(&memory->names);
	emu_storage_fini(gpu);
}

/* ---- what lies where ------------------------------------------------------------------------- */

static struct emu_bo *page_owner(const struct emu_gpu *gpu, enum emu_heap_kind heap, uint64_t page,
                                 uint64_t *bo_page, uint64_t *pages)
{
	const struct emu_memory *memory = &gpu->memory;
	struct emu_bo *bo;

	if (emu_list_is_empty(&memory->handovers))
		return emu_buddy_find(memory->heaps[heap].buddy, page, bo_page, pages);
	bo = emu_handover_find(gpu, heap, page, bo_page, pages);
	if (bo)
		return bo;
	bo = emu_buddy_find(memory->heaps[heap].buddy, page, bo_page, pages);
	*pages = 1; /* the next may be one that somebody left */
	return bo;
}

uint8_t *emu_memory_at(struct emu_gpu *gpu, uint64_t physical, uint64_t *bytes, struct emu_bo **bo)
{
	const struct emu_memory *memory = &gpu->memory;
	enum emu_heap_kind heap =
	    physical < memory->heaps[EMU_HEAP_GTT].base ? EMU_HEAP_VRAM : EMU_HEAP_GTT;
	uint64_t page = (physical - memory->heaps[heap].base) >> EMU_PAGE_SHIFT;
	uint64_t inside = physical & (EMU_PAGE_BYTES - 1), bo_page, pages, offset;
	struct emu_bo *owner = page_owner(gpu, heap, page, &bo_page, &pages);

	if (!owner)
		return NULL;
	offset = (bo_page << EMU_PAGE_SHIFT) + inside;
	/* A block may reach beyond the buffer; and nobody sees page tables through page tables. */
	if (owner->is_table || offset >= owner->bytes)
		return NULL;
	if (*bytes > (pages << EMU_PAGE_SHIFT) - inside)
		*bytes = (pages << EMU_PAGE_SHIFT) - inside;
	if (*bytes > owner->bytes - offset)
		*bytes = owner->bytes - offset;
	if (bo)
		*bo = owner;
	if (owner->user_pointer)
		return (uint8_t *)owner->user_pointer + offset;
	return memory->view + owner->storage + offset;
}

uint64_t emu_memory_usable(struct emu_gpu *gpu, enum emu_heap_kind heap)
{
	uint64_t bytes = gpu->memory.heaps[heap].bytes;

	return heap == EMU_HEAP_VRAM ? bytes - gpu->memory.pinned_bytes - RESERVED_BYTES : bytes;
}

/* ---- freeing later --------------------------------------------------------------------------- */

/* Fences come in order more often than not, so the last tells most. */
static bool resv_is_busy(const struct emu_resv *resv)
{
	return resv->count && !resv->fences[resv->count - 1].fence->signalled;
}

static void emptied_drop(struct emu_memory *memory)
{
	for (int i = 0; i < EMU_HEAPS; i++) {
		if (!memory->emptied[i] || !memory->emptied[i]->signalled)
			continue;
		emu_fence_put(memory->emptied[i]);
		memory->emptied[i] = NULL;
	}
}

void emu_memory_sweep(struct emu_gpu *gpu)
{
	struct emu_memory *memory = &gpu->memory;

	EMU_FOR_EACH(item, &memory->dying) {
		struct emu_bo *bo = EMU_ENTRY(item, struct emu_bo, dying);

		if (!resv_is_busy(&bo->resv) && emu_bo_is_idle(bo))
			emu_bo_free(bo);
	}
	emu_handovers_prune(gpu, NULL);
	emptied_drop(memory);
	emu_dmabufs_reap(gpu, false);
}

static struct emu_fence *dying_fence(const struct emu_memory *memory)
{
	EMU_FOR_EACH(item, &memory->dying) {
		const struct emu_bo *bo = EMU_ENTRY(item, struct emu_bo, dying);
		const struct emu_resv *resv = &bo->resv;

		if (bo->moving && !bo->moving->signalled)
			return bo->moving;
		for (uint32_t i = 0; i < resv->count; i++)
			if (!resv->fences[i].fence->signalled)
				return resv->fences[i].fence;
	}
	return NULL;
}

bool emu_memory_wait_for_dying(struct emu_gpu *gpu)
{
	struct emu_fence *fence = dying_fence(&gpu->memory);
	bool was_short = gpu->memory.storage_was_short;

	gpu->memory.storage_was_short = false;
	if (!was_short || !fence)
		return false;
	(void)emu_fence_wait(fence, INT64_MAX);
	return true;
}

/* ---- submissions ----------------------------------------------------------------------------- */

void emu_memory_submission_begin(struct emu_gpu *gpu, struct emu_vm *vm)
{
	gpu->memory.submitting = vm;
	gpu->memory.submission_began = ++gpu->memory.clock;
	vm->used_at = gpu->memory.clock;
}

void emu_memory_submission_end(struct emu_gpu *gpu)
{
	gpu->memory.submitting = NULL;
}
