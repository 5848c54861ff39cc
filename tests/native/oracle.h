/* SPDX-License-Identifier: MIT
 *
 * The manager's model: what must be behind every page of addresses, by the page's life as the design
 * states it. It is fed with the calls that a test makes and their results, and knows of the manager
 * only what its public functions tell, and of the device what the checking device's record holds.
 *
 *   none --a step that needs it--> used --trimmed, closed--> retiring --retired--> none | kept
 *   kept (warm) --slot reopened, length reached--> used        kept --shortage, shrink--> none
 */
#ifndef ORACLE_H
#define ORACLE_H

#include "device_checking_record.h"
#include "memory_access.h"
#include "seeded.h"

#define ORACLE_SLOTS 72
#define ORACLE_REGIONS 12
#define ORACLE_PLACES 16
#define ORACLE_STAMPS 3

enum oracle_state { ORACLE_NONE, ORACLE_USED, ORACLE_KEPT, ORACLE_RETIRING };

/* What is behind one page of addresses. */
struct oracle_page {
	uint64_t phys;  /* its slab's number << 40 + its place there */
	uint64_t until; /* retiring: until this is retired */
	uint32_t first, n; /* the mapping that it is part of, in pages of its span */
	uint8_t state;     /* enum oracle_state */
	bool trimmed;      /* retiring: not by a close */
	bool stamped;      /* used: holds stamps of the sequence */
	/* The record's view, read anew after every operation. */
	uint64_t now_phys; /* 0: nothing is there */
	uint32_t now_first, now_n;
	bool now_unmapping;
};

/* One contiguous range of addresses for each slot. */
struct oracle_region {
	uint32_t group, layer, tensor; /* of the first tensor in it */
	uint64_t base, slot_stride;
	uint64_t token_bytes, fixed_bytes; /* one of them is 0 */
	uint64_t window_tokens;            /* window + slack; 0: no window */
	uint32_t pages;                    /* of a span */
	uint32_t mapping_max_pages;
	bool mapping_aligned;
};

/* One tensor of one layer. */
struct oracle_place {
	uint32_t group, layer, tensor, region;
	uint64_t offset, row_bytes;
};

enum oracle_slot_state { ORACLE_FREE, ORACLE_OPEN, ORACLE_CLOSED };

struct oracle_slot {
	enum oracle_slot_state state;
	vmkv_seq seq;
	uint32_t live, previous; /* length, and length before the last step */
	uint64_t busy_until;     /* greatest value given for it */
	uint64_t ready;          /* no later point than this one is needed for what it has */
	uint64_t serial;         /* for its stamps */
	uint32_t chunk;          /* the longest step so far */
	uint32_t ready_tokens;   /* as told before */
	bool reused;             /* it began with kept pages, or got some by a step that failed */
	bool used_up;            /* it served a sequence, and serves no other: never_reuse */
	bool pending;            /* something was unmapped, and may not be done yet */
	struct oracle_page *pages[ORACLE_REGIONS];
};

/* A stamp of a page. */
struct oracle_look {
	uint32_t slot, region, page, stamp;
};

/* What the last operation was allowed to do. */
struct oracle_allowed {
	bool drop_kept;          /* reclaim kept pages anywhere ... */
	uint32_t open_tokens;    /* ... of free slots beyond this length, unless 0, ... */
	vmkv_seq opened;         /* ... and of this sequence's */
	bool grow[ORACLE_SLOTS]; /* map up to the live length */
	bool new_slabs;
	bool look; /* it was to look which points were reached */
};

struct oracle {
	vmkv_device *device;
	vmkv_cache *cache;
	struct vmkv_cache_options options;
	struct vmkv_cache_info info;
	const char *what;        /* who is told on failure */
	uint64_t operation;
	struct seeded random;
	bool lag, zero;
	/* The device's safe modes: nothing is kept for others, only ahead of a sequence; what is free may
	 * be dirty. */
	bool never_reuse, no_alias;
	/* Driver calls or allocations are made to fail: what is on its way back may stay where it is, as
	 * if it were kept. */
	bool faults;

	struct oracle_region regions[ORACLE_REGIONS];
	uint32_t region_count;
	struct oracle_place places[ORACLE_PLACES];
	uint32_t place_count;

	struct oracle_slot slots[ORACLE_SLOTS];
	uint32_t slot_count, open_count;
	uint64_t serial;
	uint64_t completed;
	uint64_t budget_bytes;
	uint64_t steps, shortages;
	struct vmkv_stats stats; /* after the last operation */
	uint64_t mapped_peak, live_peak;
	uint64_t count[ORACLE_RETIRING + 1]; /* pages in each state */
	uint64_t record_mappings, record_runs;
	struct mapping last_mapping;          /* while the record is read */

	struct memory_access *memory;         /* of the device inside the checking one */
	struct memory_word *words;            /* while contents are looked at: what is read ... */
	struct oracle_look *looks;            /* ... and where that is */
	size_t word_count, word_capacity;

	uint64_t *phys_seen;     /* a hash of the pages that are behind something now */
	size_t phys_capacity;
	/* How often things happened, so that a run can tell that it tested them. */
	struct {
		uint64_t opens, warm_opens, steps, grown, shortages_bytes, shortages_mappings, trims,
		    closes, kept, reclaimed, errors, zero_checked, stamps_checked, drained,
		    late, broken, over_budget, faults, unmapping, zeroing;
	} seen;
};

/* End the test with where and what. */
void oracle_fail(const struct oracle *o, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));

/* Everything must be 0 but device, what and random; the cache is created here. */
void oracle_create(struct oracle *o, const struct vmkv_cache_options *options, bool lag);
void oracle_destroy(struct oracle *o);

/* ---- arithmetic ------------------------------------------------------------------------------ */

uint32_t oracle_region_pages(const struct oracle *o, const struct oracle_region *region,
                             uint32_t tokens);
/* Tokens that are dead, and pages that are wholly dead, for a length before the last step. */
uint32_t oracle_dead_tokens(const struct oracle_region *region, uint32_t previous);
uint32_t oracle_dead_pages(const struct oracle *o, const struct oracle_region *region,
                           uint32_t previous);
/* The page behind the last one that is there. */
uint32_t oracle_span_end(const struct oracle *o, uint32_t slot, uint32_t region);
uint64_t oracle_live_bytes(const struct oracle *o);
uint64_t oracle_need_bytes(const struct oracle *o, uint32_t slot, uint32_t tokens);
/* Bytes in kept pages: of slots that are not in `but`. */
uint64_t oracle_kept_bytes(const struct oracle *o, const bool but[ORACLE_SLOTS]);

static inline uint64_t oracle_address(const struct oracle *o, uint32_t slot, uint32_t region,
                                      uint32_t page)
{
	const struct oracle_region *r = &o->regions[region];

	return r->base + slot * r->slot_stride + (uint64_t)page * o->info.page_bytes;
}

/* ---- operations: what a call that succeeded did ---------------------------------------------- */

void oracle_opened(struct oracle *o, vmkv_seq seq);
void oracle_stepped(struct oracle *o, const struct vmkv_step_request *request, uint64_t ready,
                    struct oracle_allowed *allowed);
void oracle_closed(struct oracle *o, uint32_t slot, uint64_t busy_until);
void oracle_retired(struct oracle *o, uint64_t completed);

/* A queue uses all that the sequence has, until busy_until. */
void oracle_use(struct oracle *o, uint32_t slot, uint64_t busy_until);

/* ---- checks ---------------------------------------------------------------------------------- */

/* Read the record and everything that the cache tells, compare, and follow. */
void oracle_verify(struct oracle *o, const struct oracle_allowed *allowed);

/* oracle_verify, in parts. */
void oracle_read_record(struct oracle *o);
void oracle_follow(struct oracle *o, const struct oracle_allowed *allowed);
void oracle_check_stats(struct oracle *o, const struct oracle_allowed *allowed);
void oracle_check_spans(struct oracle *o);
void oracle_check_ready(struct oracle *o, const struct oracle_allowed *allowed);
void oracle_check_contents(struct oracle *o);

#endif
