/* SPDX-License-Identifier: MIT
 *
 * Pages: what physical memory is accounted and recycled in. This file knows slabs, the state of each
 * page, and where a growing span should get its next page from. It makes no driver call and takes no
 * lock: the cache calls it under its own.
 *
 * A page's life. `op` is the call that moves the page; only it may touch a page that is held or
 * zeroing, and nobody touches one that is retiring or unmapping.
 *
 *   free-dirty --fill--> zeroing(op, point) --reached--> free-clean --take--> held(op)
 *   held --issued, reached--> mapped
 *   held --undo, never issued--> its former state
 *   held --undo, issued--> unmapping(point) | warm (addresses are never reused: it stays ahead)
 *   mapped --reference dropped, busy_until--> retiring
 *   retiring --retire--> unmapping(point) | warm (closed slot, plenty of memory; zeroed)
 *   warm --slot reopened, or open; length reached--> mapped
 *   warm --shortage or shrink--> unmapping(point)
 *   unmapping --reached--> free-dirty (free-clean if it was warm)
 *   a slab that is wholly free --shrink--> returned to the device
 *
 * Placement. A slab is a row of stretches of 2 MiB of physical memory. A span that grows into a new
 * 2 MiB of addresses is given a stretch of its own, and its pages take the same place in the stretch
 * as in the 2 MiB of addresses: so runs stay long although many spans grow in turn, and 2 MiB
 * fragments can form. When there is no untouched stretch left, spans take pages from the stretch that
 * has most free, from the middle of its longest free run on: its owner, who grows from below, and the
 * newcomer both keep room to go on. Among slabs the fullest that will do is used first, so that
 * others drain.
 */
#ifndef VMKV_PAGES_H
#define VMKV_PAGES_H

#include "device.h"

#define VMKV_STRETCH_BYTES ((uint64_t)2 << 20)
#define VMKV_PAGE_NONE UINT32_MAX

enum vmkv_page_state {
	VMKV_PAGE_FREE_CLEAN,
	VMKV_PAGE_FREE_DIRTY,
	VMKV_PAGE_ZEROING,
	VMKV_PAGE_HELD,
	VMKV_PAGE_MAPPED,
	VMKV_PAGE_RETIRING,
	VMKV_PAGE_UNMAPPING,
	VMKV_PAGE_WARM,
	VMKV_PAGE_STATES
};

/* Set on held pages that were dirty when they were taken, until they are filled. */
#define VMKV_PAGE_DIRTY_MARK 0x80

/* Whether the life above has the edge `from` -> `to`. */
bool vmkv_page_may(enum vmkv_page_state from, enum vmkv_page_state to);

/* Pages are numbered over all slabs: slab index << slab_shift, plus the place in the slab; stretches
 * likewise. */
struct vmkv_run {
	uint32_t page;
	uint32_t n;
};

struct vmkv_stretch {
	uint32_t previous, next; /* in the list of partly free stretches with as many free pages */
	uint32_t free;
};

struct vmkv_slab_table {
	struct vmkv_slab *slab; /* NULL: this index is not in use */
	uint32_t pages;
	uint32_t free;              /* pages that are free, clean or dirty */
	uint32_t whole;             /* stretches that are wholly free */
	uint32_t previous, next;    /* in the list of slabs with as many whole stretches */
	struct vmkv_stretch *stretches;
	uint64_t *free_bits;        /* words_per_stretch words for each stretch */
	uint64_t *whole_map;        /* a bit for each stretch: it is wholly free */
	uint8_t *states;            /* enum vmkv_page_state of each page, and VMKV_PAGE_DIRTY_MARK */
};

struct vmkv_pages {
	uint64_t page_bytes;
	uint32_t page_shift;
	uint32_t slab_pages;        /* of a whole slab */
	uint32_t slab_shift;        /* the least with slab_pages <= 1 << slab_shift */
	uint32_t stretch_pages;
	uint32_t stretch_shift;
	uint32_t slab_stretches;    /* of a whole slab */
	uint32_t words_per_stretch;
	struct vmkv_slab_table *slabs;
	uint32_t slab_count;        /* entries of slabs, in use or not */
	uint32_t slabs_in_use;
	uint64_t count[VMKV_PAGE_STATES];
	uint64_t total;             /* pages of all slabs */
	uint64_t table_bytes;
	/* Heads of the lists, by number of free pages (1 to stretch_pages - 1) and of whole stretches
	 * (1 to slab_stretches), and which of them are not empty. */
	uint32_t *partial_heads;
	uint64_t *partial_bits;
	uint32_t *whole_heads;
	uint64_t *whole_bits;
};

/* page_bytes is a power of two up to 2 MiB, slab_bytes a multiple of 2 MiB. -ENOMEM. */
int vmkv_pages_init(struct vmkv_pages *pages, uint64_t page_bytes, uint64_t slab_bytes);
/* Frees the tables; the slabs themselves are the caller's to destroy. */
void vmkv_pages_fini(struct vmkv_pages *pages);

/* Whether one more slab can be numbered. */
static inline bool vmkv_pages_can_add(const struct vmkv_pages *pages)
{
	return pages->slabs_in_use < VMKV_PAGE_NONE >> pages->slab_shift;
}

/* Add a slab, all of it free. -ENOMEM, -EOVERFLOW (it can't be numbered). */
int vmkv_pages_add_slab(struct vmkv_pages *pages, struct vmkv_slab *slab, bool clean);
/* Take the next slab that is wholly free out of the tables, or return NULL. Slabs beyond the first
 * are looked for from *from on, which is advanced; begin with 0. */
struct vmkv_slab *vmkv_pages_remove_free_slab(struct vmkv_pages *pages, uint32_t *from);

/* Stretches that nobody has begun. */
uint64_t vmkv_pages_whole_stretches(const struct vmkv_pages *pages);

static inline uint64_t vmkv_pages_free(const struct vmkv_pages *pages)
{
	return pages->count[VMKV_PAGE_FREE_CLEAN] + pages->count[VMKV_PAGE_FREE_DIRTY];
}

/* The index of the slab that a page lies in, and the page's place there. */
static inline uint32_t vmkv_pages_slab_index(const struct vmkv_pages *pages, uint32_t page)
{
	return page >> pages->slab_shift;
}

static inline uint32_t vmkv_pages_place(const struct vmkv_pages *pages, uint32_t page)
{
	return page & ((UINT32_C(1) << pages->slab_shift) - 1);
}

static inline struct vmkv_slab *vmkv_pages_slab(const struct vmkv_pages *pages, uint32_t page)
{
	return pages->slabs[vmkv_pages_slab_index(pages, page)].slab;
}

static inline uint64_t vmkv_pages_offset(const struct vmkv_pages *pages, uint32_t page)
{
	return (uint64_t)vmkv_pages_place(pages, page) << pages->page_shift;
}

static inline enum vmkv_page_state vmkv_pages_state(const struct vmkv_pages *pages, uint32_t page)
{
	uint8_t byte = pages->slabs[vmkv_pages_slab_index(pages, page)]
	                   .states[vmkv_pages_place(pages, page)];

	return (enum vmkv_page_state)(byte & ~VMKV_PAGE_DIRTY_MARK);
}

struct vmkv_want {
	uint32_t after;     /* the page behind the page of addresses just below, or VMKV_PAGE_NONE */
	uint32_t span_page; /* place of the first wanted page in its span */
	uint32_t n;         /* how many, at least 1 */
	bool may_split;     /* use partly free stretches when no whole one is left */
};

/* Take up to want->n neighbouring free pages and make them held. Returns false if there is none, or
 * none but in partly free stretches and want->may_split is false. */
bool vmkv_pages_take(struct vmkv_pages *pages, const struct vmkv_want *want, struct vmkv_run *ret);

/* Move a run, which lies in one slab and is all in state `from`, to state `to`. */
void vmkv_pages_move(struct vmkv_pages *pages, struct vmkv_run run, enum vmkv_page_state from,
                     enum vmkv_page_state to);

/* Within [run.page, run.page + run.n): the first run of held pages that were dirty when they were
 * taken, at or after *at; advances *at behind it. Returns false if there is none. */
bool vmkv_pages_held_dirty(const struct vmkv_pages *pages, struct vmkv_run run, uint32_t *at,
                           struct vmkv_run *ret);
/* The dirty mark of held pages goes: they were filled. */
void vmkv_pages_held_clean(struct vmkv_pages *pages, struct vmkv_run run);
/* Undo a take: held pages go back to the state they were taken from. */
void vmkv_pages_put_back(struct vmkv_pages *pages, struct vmkv_run run);

#endif
