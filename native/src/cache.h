/* SPDX-License-Identifier: MIT
 *
 * What the parts of a cache share: slots, mappings, and what waits to be given back.
 *
 * Rules
 * - Everything here is under cache->lock, which is never held across a driver call. A call that
 *   drops it marks what it works on: its slots are `busy` (others get -EBUSY), its pages held or
 *   zeroing, its batch is off the list.
 * - Order inside a change: plan, take pages and bookkeeping (may fail), driver calls (may fail: undo
 *   in reverse), publish (may not fail).
 */
#ifndef VMKV_CACHE_H
#define VMKV_CACHE_H

#include "device.h"
#include "layout.h"
#include "pages.h"
#include "publish.h"
#include "util.h"

/* One mapping of a span: pages [page, page + n) of its addresses, behind them pages from `phys` on. */
struct vmkv_piece {
	uint32_t page;
	uint32_t phys;
	uint32_t n : 31;
	uint32_t counted : 1; /* it begins a run, see vmkv_device_take_mappings */
};

/* What is mapped behind one span, in order of address and without gaps: pieces [first, count). Those
 * below `used` belong to the open sequence; those from it on are warm: mapped and zeroed, but not
 * asked for yet, and given back when memory is short. In a closed slot all are warm. */
struct vmkv_span_table {
	struct vmkv_piece *pieces;
	uint32_t first, used, count, capacity;
};

enum vmkv_slot_state { VMKV_SLOT_FREE, VMKV_SLOT_OPEN, VMKV_SLOT_RETIRING };

/* What the hot path reads, one cache line a slot. */
struct vmkv_slot {
	vmkv_seq seq;         /* the open sequence, or 0 */
	uint64_t busy_until;  /* greatest value given for it */
	uint64_t ready_point; /* the newest point its memory depends on; 0 once known to be reached */
	uint64_t stamp;       /* of the last step it was seen in: finds a sequence given twice */
	uint32_t live;        /* its length */
	uint32_t previous;    /* ... before the last step: what windows are trimmed by */
	uint32_t mapped;      /* up to this length there is nothing to map ... */
	uint32_t trim_at;     /* ... and below this present length nothing to trim */
	uint32_t pending;     /* pieces of it that are retiring or unmapping, slot closed or not */
	uint32_t generation;
	uint8_t state;        /* enum vmkv_slot_state */
	uint8_t busy;         /* a call is at work on it */
};

/* What the slow paths need besides. */
struct vmkv_slot_cold {
	struct vmkv_span_table *spans; /* region_count of them; NULL until the slot is first opened */
	uint64_t warm_point;           /* when its warm pages are zeroed */
	uint32_t pending_tail;         /* pieces still unmapping at addresses the slot grows into */
	uint32_t warm_pages;
	bool ahead_dirty; /* what is warm ahead of the open sequence could not be zeroed yet */
};

/* A piece that was taken out of its span. */
struct vmkv_gone {
	uint32_t slot, region;
	uint32_t page, phys;
	uint32_t n;
	uint32_t flags; /* VMKV_GONE_* */
};
#define VMKV_GONE_COUNTED 1u /* as vmkv_piece.counted */
#define VMKV_GONE_CLEAN 2u   /* the pages are zero already */
#define VMKV_GONE_TAIL 4u    /* counted in pending_tail */

/* Pieces on their way back: those below `done` are free of addresses, those below `issued` are being
 * unmapped and will be at `point`, the others still have to be. Then all of them are zeroed. */
struct vmkv_batch {
	struct vmkv_batch *next;
	struct vmkv_gone *gone;
	uint32_t n, capacity;
	uint32_t done, issued;
	uint64_t point;
	bool tried;   /* an unmap failed: next at a retire */
	bool zeroing; /* all are unmapped, a fill is under way until `point` */
	bool warming; /* instead: pieces of a closed slot, to be zeroed where they are */
};

/* What waits for vmkv_retire: a trimmed piece, or a closed slot (gone.region is REGION_ALL). */
struct vmkv_waiting {
	uint64_t until;
	struct vmkv_gone gone;
};
#define VMKV_REGION_ALL UINT32_MAX

/* From here to there in the fewest mappings. */
struct vmkv_plan {
	struct vmkv_map *maps;   /* what the driver will be asked for */
	struct vmkv_gone *gone;  /* the same pieces: on failure this becomes a batch ... */
	struct vmkv_batch *undo; /* ... with this */
	uint32_t n, capacity;
	uint64_t pages;
	uint64_t runs;
	bool runs_taken;         /* counted with the device */
	struct vmkv_fill *fills; /* taken pages that are not zero yet; by address with no_alias */
	size_t fill_count;
};

struct vmkv_cache {
	pthread_mutex_t lock;
	pthread_cond_t slabs_changed; /* a slab was created, or could not be */
	struct vmkv_device *device;
	struct vmkv_mirror *mirror;   /* NULL: the cache isn't shared */
	struct vmkv_addresses layout;
	struct vmkv_pages pages;
	uint32_t max_slots;
	uint32_t tag; /* top bits of its sequences, never 0 */
	bool zero;
	/* The device's safe modes. Slots are used once: no piece is ever unmapped behind a slot that
	 * can grow, and none mapped behind one that was closed. */
	bool never_reuse;
	bool no_alias; /* pages are reached only where they are mapped, and mapped only when unmapped */
	uint64_t slab_bytes;
	uint64_t budget_bytes;
	uint64_t slab_bytes_held;    /* of slabs in `pages`, and of those being created */
	uint64_t slab_bytes_pending; /* of the latter */
	int device_full;             /* why it refused a slab, -ENOSPC or -EMLINK: not asked again
	                                before the next retire */
	uint64_t warm_max_bytes;     /* 0: a quarter of the budget */

	struct vmkv_slot *slots;
	struct vmkv_slot_cold *cold;
	uint64_t *open_bits; /* slots that can be opened: free, nothing pending, not busy */
	_Atomic uint32_t *ready_tokens;
	uint64_t *window_dead; /* sum over open slots of dead tokens, for each group */
	uint32_t open_count;
	uint32_t unready;      /* open slots with a ready_point that is not known to be reached */
	uint64_t stamp;
	uint64_t completed;    /* greatest value that was retired */

	struct vmkv_waiting *waiting; /* a binary heap, least `until` first */
	size_t waiting_count, waiting_capacity;
	size_t waiting_promised;      /* to steps that are at work, for what they will trim */
	struct vmkv_batch *batches;   /* in the order in which they were begun */
	struct vmkv_batch **batches_end;
	uint64_t last_point;          /* newest point of any driver call of this cache */
	uint64_t warming_pages;       /* in batches that are warming */

	uint64_t total_live;  /* tokens of open sequences */
	uint64_t states_live; /* sequences whose state groups have memory */
	uint64_t runs;        /* counted with the device */
	uint64_t piece_count; /* mappings that exist */
	size_t table_bytes;   /* of all tables but those of `pages` and `layout` */
	bool reserved_apart;  /* one reservation a region, not one for all */
	struct vmkv_plan spare; /* tables of the last plan */
	struct vmkv_stats counters;
	char error[256];
};

static inline void vmkv_cache_lock(struct vmkv_cache *cache)
{
	pthread_mutex_lock(&cache->lock);
}

/* Runs of mappings that no longer exist. */
static inline void vmkv_cache_give_runs(struct vmkv_cache *cache, uint64_t n)
{
	cache->runs -= n;
	vmkv_device_give_mappings(cache->device, n);
}

static inline void vmkv_cache_unlock(struct vmkv_cache *cache)
{
	if (cache->mirror != NULL)
		vmkv_mirror_commit(cache);
	pthread_mutex_unlock(&cache->lock);
}

/* Set the text of the cache's last error and return `error`. Under the lock. */
int vmkv_cache_fail(struct vmkv_cache *cache, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* -EINVAL for an output that is NULL or has no struct_size; takes the lock to say so. */
int vmkv_cache_fail_output(const struct vmkv_cache *cache, const char *what);
/* The same with the device's text, for a driver's errno. */
int vmkv_cache_fail_device(struct vmkv_cache *cache, int error, const char *what);

/* The length that windows are trimmed by changes for one sequence. */
static inline void vmkv_cache_change_dead(struct vmkv_cache *cache, uint32_t from, uint32_t to)
{
	const struct vmkv_addresses *layout = &cache->layout;

	for (uint32_t g = 0; layout->window_groups > 0 && g < layout->group_count; g++) {
		uint64_t window = layout->groups[g].window_tokens;

		if (layout->groups[g].policy == VMKV_POLICY_WINDOW)
			cache->window_dead[g] +=
			    (uint64_t)vmkv_window_dead(window, to) - vmkv_window_dead(window, from);
	}
}

/* A sequence: tag << 44 | generation << 20 | slot. */
#define VMKV_SLOT_BITS 20
#define VMKV_GENERATION_BITS 24

static inline uint32_t vmkv_slot_of(vmkv_seq seq)
{
	return (uint32_t)(seq & ((UINT64_C(1) << VMKV_SLOT_BITS) - 1));
}

/* Whether what the slot has warm can be given back before all else. */
static inline bool vmkv_slot_may_drop(const struct vmkv_cache *cache, uint32_t slot)
{
	return !cache->never_reuse || cache->slots[slot].state != VMKV_SLOT_OPEN;
}

/* Where page `page` of a span lies. */
static inline uint64_t vmkv_page_address(const struct vmkv_cache *cache, uint32_t slot,
                                         uint32_t region, uint32_t page)
{
	const struct vmkv_region *r = &cache->layout.regions[region];

	return r->base + slot * r->slot_stride + ((uint64_t)page << cache->layout.page_shift);
}

/* Move the pages of a mapping, which is all that they ever do with an address. */
static inline void vmkv_gone_move(struct vmkv_cache *cache, const struct vmkv_gone *gone,
                                  enum vmkv_page_state from, enum vmkv_page_state to)
{
	vmkv_pages_move(&cache->pages, (struct vmkv_run){ gone->phys, gone->n }, from, to);
	if (cache->mirror != NULL)
		vmkv_mirror_piece(cache, gone, from, to);
}

/* cache.c */
void vmkv_slot_free_tables(struct vmkv_cache *cache, uint32_t slot);

/* slots.c */
int vmkv_slot_find(struct vmkv_cache *cache, vmkv_seq seq, uint32_t *ret);
/* Compute mapped and trim_at anew from the slot's spans, and tell ready_tokens. */
void vmkv_slot_refresh(struct vmkv_cache *cache, uint32_t slot);
void vmkv_slot_publish(struct vmkv_cache *cache, uint32_t slot);
/* Set or clear the slot's bit in open_bits as its state has it. One that is used up loses its
 * tables. */
void vmkv_slot_update_open(struct vmkv_cache *cache, uint32_t slot);
/* Learn which slots' points were reached. */
void vmkv_slots_advance(struct vmkv_cache *cache);

/* plan.c */
/* Begin with the tables that the last plan left, and leave them to the next. Under the lock. */
void vmkv_plan_init(struct vmkv_cache *cache, struct vmkv_plan *plan);
void vmkv_plan_keep(struct vmkv_cache *cache, struct vmkv_plan *plan);
void vmkv_plan_fini(struct vmkv_plan *plan);
/* Pages that the slot's spans lack for a length of `tokens`. */
uint64_t vmkv_plan_need_pages(const struct vmkv_cache *cache, uint32_t slot, uint32_t tokens);
/* Stretches that they would newly begin. */
uint64_t vmkv_plan_need_stretches(const struct vmkv_cache *cache, uint32_t slot, uint32_t tokens);
/* Take pages and append pieces for that. -EAGAIN: no whole stretch is left and may_split is false;
 * -ENOSPC: no page is left; -ENOMEM. On failure the pieces so far stay in the plan, to be undone. */
int vmkv_plan_add(struct vmkv_cache *cache, struct vmkv_plan *plan, uint32_t slot, uint32_t tokens,
                  bool may_split);
/* List what must be zeroed first. -ENOMEM. */
int vmkv_plan_collect_fills(struct vmkv_cache *cache, struct vmkv_plan *plan);
/* It has been zeroed. */
void vmkv_plan_filled(struct vmkv_cache *cache, struct vmkv_plan *plan);
/* Give everything back and empty the plan, in reverse: the first `issued` pieces are unmapped by a
 * batch, or with never_reuse stay warm ahead of their sequences; the others were never mapped. */
void vmkv_plan_undo(struct vmkv_cache *cache, struct vmkv_plan *plan, uint32_t issued);
/* All of it is mapped. May not fail. */
void vmkv_plan_publish(struct vmkv_cache *cache, struct vmkv_plan *plan);

/* grow.c: a step's way to memory. */
struct vmkv_growth {
	const struct vmkv_step_request *request;
	struct vmkv_plan plan;
	struct vmkv_shortage shortage;
	uint64_t point; /* of the driver calls */
};

/* Take pages for all sequences, or for none. Drops the lock while slabs are created or warm memory is
 * unmapped. -ENOSPC with the shortage told; -ENOMEM, -ENODEV or the driver's errno. */
int vmkv_grow_plan(struct vmkv_cache *cache, struct vmkv_growth *growth);
/* Zero what a failed step left mapped ahead of the request's sequences. Drops the lock. */
int vmkv_grow_clean(struct vmkv_cache *cache, struct vmkv_growth *growth);
/* Zero and map what was planned, or undo it. Drops the lock. Errors as above. */
int vmkv_grow_apply(struct vmkv_cache *cache, struct vmkv_growth *growth);
/* The pieces that a length needs become the sequence's: warm ones, and those just mapped. */
void vmkv_grow_use(struct vmkv_cache *cache, uint32_t slot, uint32_t tokens, uint64_t point);
/* Fill in the rest of the shortage, and the request's seq_needed_bytes. */
void vmkv_grow_report(struct vmkv_cache *cache, struct vmkv_growth *growth);

/* batch.c */
/* NULL: no memory. */
struct vmkv_batch *vmkv_batch_create(size_t capacity);
void vmkv_batch_destroy(struct vmkv_batch *batch);
void vmkv_batch_append(struct vmkv_cache *cache, struct vmkv_batch *batch);
/* Move a batch on as far as it goes. Drops the lock for driver calls; the batch is off the list then.
 * Returns whether it moved; *finished: it is done with. retry: also what failed before. */
bool vmkv_batch_advance(struct vmkv_cache *cache, struct vmkv_batch *batch, bool retry,
                        bool *finished);
struct vmkv_gone vmkv_piece_gone(const struct vmkv_piece *piece, uint32_t slot, uint32_t region);
/* Take the first piece out of a span, which goes on behind it. */
struct vmkv_gone vmkv_piece_pop_front(struct vmkv_cache *cache, uint32_t slot, uint32_t region);
/* Move the pieces of a span from index `from` on, retiring or warm, to a batch with room for them. */
void vmkv_pieces_unmap(struct vmkv_cache *cache, struct vmkv_batch *batch, uint32_t slot,
                       uint32_t region, uint32_t from, bool open);
/* Have the driver zero ranges, and count that. Drops the lock. */
int vmkv_cache_fill(struct vmkv_cache *cache, const struct vmkv_fill *fills, size_t n,
                    uint64_t *point);
/* A closed slot's memory is zero from `point` on, or needn't be: it waits for the next sequence. */
void vmkv_slot_warmed(struct vmkv_cache *cache, uint32_t slot, uint64_t point);

/* retire.c */
/* Room for n more waiting pieces, besides what was promised, and for all open sequences to be closed.
 * -ENOMEM. */
int vmkv_waiting_reserve(struct vmkv_cache *cache, size_t n);
/* pre: reserved. */
void vmkv_waiting_push(struct vmkv_cache *cache, uint64_t until, const struct vmkv_gone *gone);
/* Drop the warm pieces of a slot that end behind what keep_tokens need (0: all), with keep_parts those
 * that begin there, to a batch. -ENOMEM: nothing changed. */
int vmkv_warm_drop(struct vmkv_cache *cache, uint32_t slot, uint32_t keep_tokens, bool keep_parts);
/* Warm pages of slots that no call is at work on. */
uint64_t vmkv_warm_pages(const struct vmkv_cache *cache);
/* Drop warm pieces of such slots until `pages` pages and `runs` runs of them were dropped. Returns
 * whether any was. */
bool vmkv_warm_reclaim(struct vmkv_cache *cache, uint64_t pages, uint64_t runs);
/* Go on with what was dropped, until it is free to take. Drops the lock. Without aliases it can't
 * be mapped before its unmaps are reached, so that this waits for them. */
void vmkv_warm_settle(struct vmkv_cache *cache);
/* Move everything that is due one step on, until nothing moves: waiting pieces that were retired,
 * batches whose points were reached, unmaps and fills. Drops the lock for driver calls. With retry,
 * unmaps that failed before are tried once more. */
void vmkv_cache_settle(struct vmkv_cache *cache, bool retry);

/* budget.c */
/* Add slabs for `pages` more pages, as the budget and the device allow. Drops the lock. Returns how many
 * pages were added; *error is the device's, if it stopped short for that. */
uint64_t vmkv_cache_grow(struct vmkv_cache *cache, uint64_t pages, int *error);
/* Pages that can be taken without reclaiming any: free ones within the budget, and with may_grow what
 * new slabs would add. */
uint64_t vmkv_cache_available_pages(const struct vmkv_cache *cache, bool may_grow);
/* Return wholly free slabs until at most keep_bytes are held. Drops the lock. */
uint64_t vmkv_cache_drain(struct vmkv_cache *cache, uint64_t keep_bytes);
/* With one line in error: -EINVAL, less than one page for every span; -EOVERFLOW, more pages than can
 * be numbered. */
int vmkv_cache_check_budget(struct vmkv_cache *cache, uint64_t budget_bytes, char *error,
                            size_t error_bytes);

/* stats.c */
/* All but struct_size. */
void vmkv_cache_count(const struct vmkv_cache *cache, struct vmkv_stats *ret);
uint64_t vmkv_cache_live_bytes(const struct vmkv_cache *cache);
void vmkv_cache_note_peaks(struct vmkv_cache *cache);

/* No slot is free: what could free one. */
void vmkv_slots_report(const struct vmkv_cache *cache, struct vmkv_shortage *ret);

#endif
