/* SPDX-License-Identifier: MIT
 *
 * What the files of heaps and buffers share among themselves.
 */
#ifndef EMU_MEMORY_PARTS_H
#define EMU_MEMORY_PARTS_H

#include "emu.h"

/* ---- memory.c -------------------------------------------------------------------------------- */

/* If a buffer wasn't made for want of storage, and some that are dying will give theirs back: wait
 * for one of them, with the lock given up, and return true. */
bool emu_memory_wait_for_dying(struct emu_gpu *gpu);

/* ---- buddy.c --------------------------------------------------------------------------------- */

struct emu_buddy *emu_buddy_create(uint64_t pages); /* NULL: no memory */
void emu_buddy_destroy(struct emu_buddy *buddy);
uint64_t emu_buddy_used(const struct emu_buddy *buddy); /* pages */
/* `pages`, a multiple of `least`, in blocks of at least and at most so many pages, both powers of
 * two; the greatest that are free. *blocks is the caller's to free. 0, -ENOSPC or -ENOMEM. */
int emu_buddy_allocate(struct emu_buddy *buddy, uint64_t pages, uint64_t least, uint64_t most,
                       struct emu_block **blocks, uint32_t *count);
/* The same in one piece. */
int emu_buddy_allocate_run(struct emu_buddy *buddy, uint64_t pages, uint64_t *page);
/* Any range of what is taken. */
void emu_buddy_free(struct emu_buddy *buddy, uint64_t page, uint64_t pages);
/* Note whose a taken block is, and which of the owner's pages it begins with. */
void emu_buddy_own(struct emu_buddy *buddy, uint64_t page, void *owner, uint64_t owner_page);
/* The owner of a page, which of its pages that is, and how many from there on are in the same
 * block. NULL: nobody's. */
void *emu_buddy_find(const struct emu_buddy *buddy, uint64_t page, uint64_t *owner_page,
                     uint64_t *pages);

/* ---- storage.c: the memory file -------------------------------------------------------------- */

int emu_storage_init(struct emu_gpu *gpu);
void emu_storage_fini(struct emu_gpu *gpu);
/* A range that reads as zeros; or, if `dirty`, one that may hold what a freed buffer left there.
 * -ENOMEM: the file has no room. */
int emu_storage_take(struct emu_gpu *gpu, uint64_t bytes, bool dirty, uint64_t *offset);
/* keep: leave what is there to be seen by a later taker, as far as `most` bytes of such are
 * kept. */
void emu_storage_give(struct emu_gpu *gpu, uint64_t offset, uint64_t bytes, bool keep,
                      uint64_t most);
void emu_storage_zero(struct emu_gpu *gpu, uint64_t offset, uint64_t bytes);

/* ---- storage_mapped.c: ranges that processes may still have mapped ---------------------------- */

int emu_left_init(struct emu_gpu *gpu); /* -ENOMEM */
void emu_left_fini(struct emu_gpu *gpu);
/* Give a range back once nobody has it mapped; `keep` as above. */
void emu_left_add(struct emu_gpu *gpu, uint64_t offset, uint64_t bytes, bool keep);
/* Look which of them nobody has mapped any more: room, or old bytes, are wanted. */
void emu_left_review(struct emu_gpu *gpu);

/* ---- place.c: where buffers lie in the heaps ------------------------------------------------- */

uint32_t emu_heap_domain(enum emu_heap_kind kind); /* AMDGPU_GEM_DOMAIN_* */

struct emu_place {
	enum emu_heap_kind heap;
	struct emu_block *blocks;
	uint32_t count;
};

/* Give a buffer that has no place one in a heap, without evicting anybody. 0, -ENOSPC, -ENOMEM, or
 * -EINVAL for an alignment that VRAM can't have. */
int emu_bo_place(struct emu_bo *bo, enum emu_heap_kind kind);
void emu_bo_unplace(struct emu_bo *bo); /* its blocks are free from now on; does nothing without */
/* Take its place away from a buffer, for emu_handover_add or emu_place_return. */
struct emu_place emu_place_take(struct emu_bo *bo);
void emu_place_return(struct emu_bo *bo, const struct emu_place *place);

/* A place that is free for others, but what reads or writes there still means the old buffer until
 * the move away from it is done. */
struct emu_handover *emu_handover_create(void); /* NULL: no memory */
void emu_handover_add(struct emu_handover *handover, struct emu_bo *bo,
                      const struct emu_place *place, struct emu_fence *until);
/* Forget those that are done, and those of `bo` (may be NULL). */
void emu_handovers_prune(struct emu_gpu *gpu, const struct emu_bo *bo);
/* Whose place a page of a heap is until a move is done; NULL: nobody's. */
struct emu_bo *emu_handover_find(const struct emu_gpu *gpu, enum emu_heap_kind heap, uint64_t page,
                                 uint64_t *bo_page, uint64_t *pages);

/* ---- evict.c --------------------------------------------------------------------------------- */

/* Find a place in one of the domains: the first that has room, else by evicting others, but for the
 * always-valid ones of `spared` (may be NULL). The bytes that were moved are added to *moved_bytes.
 * Then nobody may use the buffer before bo->moving. 0, -ENOMEM, -EINVAL. */
int emu_bo_find_place(struct emu_bo *bo, uint32_t domains, const struct emu_vm *spared,
                      uint64_t *moved_bytes);
int emu_bo_set_moving(struct emu_bo *bo, struct emu_fence *fence); /* also in its reservation */

/* ---- userptr.c ------------------------------------------------------------------------------- */

/* Whether the process can reach its memory there: 0, -EFAULT, or -EPERM for a file's if only
 * anonymous memory is asked for. */
int emu_user_memory_check(const struct emu_bo *bo);

/* ---- bo.c ------------------------------------------------------------------------------------ */

bool emu_bo_is_idle(struct emu_bo *bo); /* pre: it has no owner */
void emu_bo_free(struct emu_bo *bo); /* pre: nothing is at work on it */

/* ---- handle.c -------------------------------------------------------------------------------- */

int emu_handle_close(struct emu_file *file, uint32_t id); /* -EINVAL: no such */

/* ---- prime.c --------------------------------------------------------------------------------- */

/* Drop the dma-bufs of buffers without handles that nobody has open any more; or all. */
void emu_dmabufs_reap(struct emu_gpu *gpu, bool all);

#endif
