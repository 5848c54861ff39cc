/* SPDX-License-Identifier: MIT
 *
 * Where buffers lie: their blocks in a heap, and what is still at work in places that they left.
 */
#include <errno.h>
#include <stdlib.h>

#include "memory_parts.h"

#define VRAM_BLOCK_MOST (1ULL << 19) /* pages: 2 GiB */
#define GTT_BLOCK_MOST (1ULL << 10)  /* pages: what the system's page allocator gives at most */

struct emu_handover {
	struct emu_list link; /* in emu_memory.handovers */
	struct emu_bo *bo;    /* no reference: it outlives the move, or takes itself out */
	struct emu_place place;
	struct emu_fence *until;
};

uint32_t emu_heap_domain(enum emu_heap_kind kind)
{
	switch (kind) {
	case EMU_HEAP_VRAM:
		return AMDGPU_GEM_DOMAIN_VRAM;
	case EMU_HEAP_GTT:
		return AMDGPU_GEM_DOMAIN_GTT;
	default:
		return AMDGPU_GEM_DOMAIN_CPU;
	}
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* The kernel's rule for the least block, in pages; whole multiples of 2 MiB get no smaller ones. */
static uint64_t vram_block_least(const struct emu_bo *bo)
{
	uint64_t pages = bo->bytes >> EMU_PAGE_SHIFT, least = bo->alignment >> EMU_PAGE_SHIFT;
	uint64_t large = least > EMU_HUGE_PAGES ? least : EMU_HUGE_PAGES;

	if (pages >= large && pages % large == 0)
		return large;
	return least ? least : 1;
}

static int blocks_allocate(struct emu_bo *bo, enum emu_heap_kind kind)
{
	struct emu_buddy *buddy = bo->gpu->memory.heaps[kind].buddy;
	uint64_t pages = bo->bytes >> EMU_PAGE_SHIFT, least = 1, most = GTT_BLOCK_MOST;

	if (kind == EMU_HEAP_VRAM) {
		least = vram_block_least(bo);
		most = VRAM_BLOCK_MOST;
		if (least & (least - 1))
			return -EINVAL;
		if (most < least)
			most = least;
		pages = (pages + least - 1) & ~(least - 1);
	}
	return emu_buddy_allocate(buddy, pages, least, most, &bo->blocks, &bo->block_count);
}

static void used_count(struct emu_heap *heap)
{
	heap->used_bytes = emu_buddy_used(heap->buddy) << EMU_PAGE_SHIFT;
}

static void place_enter(struct emu_bo *bo, enum emu_heap_kind kind)
{
	bo->heap = kind;
	if (!bo->pins)
		emu_list_append(&bo->gpu->memory.lru[kind], &bo->lru);
}

int emu_bo_place(struct emu_bo *bo, enum emu_heap_kind kind)
{
	struct emu_heap *heap = &bo->gpu->memory.heaps[kind];
	uint64_t first = 0;
	int error = blocks_allocate(bo, kind);

	if (error)
		return error;
	for (uint32_t i = 0; i < bo->block_count; i++) {
		bo->blocks[i].first = first;
		emu_buddy_own(heap->buddy, bo->blocks[i].page, bo, first);
		first += bo->blocks[i].pages;
	}
	used_count(heap);
	place_enter(bo, kind);
	return 0;
}

static void place_free(struct emu_gpu *gpu, const struct emu_place *place)
{
	struct emu_heap *heap = &gpu->memory.heaps[place->heap];

	for (uint32_t i = 0; i < place->count; i++)
		emu_buddy_free(heap->buddy, place->blocks[i].page, place->blocks[i].pages);
	used_count(heap);
}

struct emu_place emu_place_take(struct emu_bo *bo)
{
	struct emu_place place = { .heap = bo->heap, .blocks = bo->blocks,
		                   .count = bo->block_count };

	emu_list_remove(&bo->lru);
	bo->heap = EMU_HEAP_NONE;
	bo->blocks = NULL;
	bo->block_count = 0;
	return place;
}

void emu_place_return(struct emu_bo *bo, const struct emu_place *place)
{
	bo->blocks = place->blocks;
	bo->block_count = place->count;
	if (place->heap != EMU_HEAP_NONE)
		place_enter(bo, place->heap);
}

void emu_bo_unplace(struct emu_bo *bo)
{
	struct emu_place place = emu_place_take(bo);

	if (place.heap != EMU_HEAP_NONE)
		place_free(bo->gpu, &place);
	free(place.blocks);
}

static const struct emu_block *block_find(const struct emu_block *blocks, uint32_t count,
                                          uint64_t bo_page)
{
	uint32_t low = 0, high = count;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (blocks[middle].first <= bo_page)
			low = middle;
		else
			high = middle;
	}
	return &blocks[low];
}

uint64_t emu_bo_physical(const struct emu_bo *bo, uint64_t offset, uint64_t *run_bytes)
{
	const struct emu_block *block, *end;
	uint64_t page = offset >> EMU_PAGE_SHIFT, last, physical;

	if (!bo->block_count) { /* in no heap: the caller makes no valid entry of it */
		*run_bytes = bo->bytes - offset;
		return 0;
	}
	end = bo->blocks + bo->block_count;
	block = block_find(bo->blocks, bo->block_count, page);
	physical = bo->gpu->memory.heaps[bo->heap].base +
	           ((block->page + (page - block->first)) << EMU_PAGE_SHIFT) +
	           (offset & (EMU_PAGE_BYTES - 1));
	/* The kernel maps VRAM block by block, but joins system pages that follow one another. */
	last = block->first + block->pages;
	while (bo->heap == EMU_HEAP_GTT && block + 1 < end &&
	       block[1].page == block->page + block->pages) {
		block++;
		last += block->pages;
	}
	*run_bytes = (last << EMU_PAGE_SHIFT) - offset;
	return physical;
}

/* ---- places that were left ------------------------------------------------------------------- */

struct emu_handover *emu_handover_create(void)
{
	return calloc(1, sizeof(struct emu_handover));
}

void emu_handover_add(struct emu_handover *handover, struct emu_bo *bo,
                      const struct emu_place *place, struct emu_fence *until)
{
	handover->bo = bo;
	handover->place = *place;
	handover->until = until;
	emu_fence_get(until);
	place_free(bo->gpu, place);
	emu_list_append(&bo->gpu->memory.handovers, &handover->link);
}

void emu_handovers_prune(struct emu_gpu *gpu, const struct emu_bo *bo)
{
	EMU_FOR_EACH(item, &gpu->memory.handovers) {
		struct emu_handover *handover = EMU_ENTRY(item, struct emu_handover, link);

		if (!handover->until->signalled && handover->bo != bo)
			continue;
		emu_list_remove(item);
		emu_fence_put(handover->until);
		free(handover->place.blocks);
		free(handover);
	}
}

struct emu_bo *emu_handover_find(const struct emu_gpu *gpu, enum emu_heap_kind heap, uint64_t page,
                                 uint64_t *bo_page, uint64_t *pages)
{
	EMU_FOR_EACH(item, &gpu->memory.handovers) {
		const struct emu_handover *handover = EMU_ENTRY(item, struct emu_handover, link);
		const struct emu_place *place = &handover->place;

		if (handover->until->signalled || place->heap != heap)
			continue;
		for (uint32_t i = 0; i < place->count; i++) {
			const struct emu_block *block = &place->blocks[i];

			if (page < block->page || page >= block->page + block->pages)
				continue;
			*bo_page = block->first + (page - block->page);
			*pages = block->page + block->pages - page;
			return handover->bo;
		}
	}
	return NULL;
}
