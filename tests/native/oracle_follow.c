/* SPDX-License-Identifier: MIT
 *
 * After each operation: what the checking device's record has behind every page of addresses, and
 * whether the page's life has a way from there to here.
 */
#include "oracle.h"

#include <inttypes.h>
#include <search.h>
#include <string.h>

/* ---- the record ------------------------------------------------------------------------------ */

static void record_forget(struct oracle *o)
{
	for (uint32_t s = 0; s < o->slot_count; s++) {
		for (uint32_t r = 0; r < o->region_count; r++) {
			struct oracle_page *pages = o->slots[s].pages[r];

			for (uint32_t p = 0; p < o->regions[r].pages; p++) {
				pages[p].now_phys = 0;
				pages[p].now_unmapping = false;
			}
		}
	}
	memset(o->phys_seen, 0, o->phys_capacity * sizeof(*o->phys_seen));
	o->record_mappings = o->record_runs = 0;
	memset(&o->last_mapping, 0, sizeof(o->last_mapping));
}

static void phys_note(struct oracle *o, uint64_t phys)
{
	size_t i = phys / o->info.page_bytes * 2654435761u % o->phys_capacity;

	while (o->phys_seen[i] != 0) {
		if (o->phys_seen[i] == phys)
			oracle_fail(o, "one physical page is behind two addresses");
		i = (i + 1) % o->phys_capacity;
	}
	o->phys_seen[i] = phys;
}

static void mapping_note(struct oracle *o, const struct mapping *mapping)
{
	uint64_t begin = mapping->range.begin, bytes = mapping->range.end - begin;
	uint64_t page_bytes = o->info.page_bytes, phys = (uint64_t)mapping->slab->number << 40 | mapping->offset;
	uint32_t r = 0;

	while (r < o->region_count && (begin < o->regions[r].base ||
	                               begin - o->regions[r].base >=
	                                   o->regions[r].slot_stride * o->slot_count))
		r++;
	if (r == o->region_count)
		oracle_fail(o, "a mapping at 0x%" PRIx64 ", outside of all spans", begin);

	uint64_t at = begin - o->regions[r].base;
	uint32_t slot = (uint32_t)(at / o->regions[r].slot_stride);

	at %= o->regions[r].slot_stride;
	if (at % page_bytes != 0 || bytes % page_bytes != 0 ||
	    at / page_bytes + bytes / page_bytes > o->regions[r].pages)
		oracle_fail(o, "a mapping of 0x%" PRIx64 " bytes at page %" PRIu64 " of a span of %u",
		            bytes, at / page_bytes, o->regions[r].pages);
	for (uint32_t i = 0; i < bytes / page_bytes; i++) {
		struct oracle_page *page = &o->slots[slot].pages[r][at / page_bytes + i];

		page->now_phys = phys + i * page_bytes;
		page->now_first = (uint32_t)(at / page_bytes);
		page->now_n = (uint32_t)(bytes / page_bytes);
		page->now_unmapping = mapping->state == UNMAPPING;
		if (!page->now_unmapping)
			phys_note(o, page->now_phys);
	}
	o->record_mappings++;
	/* Neighbours in address and memory are one to a driver with a bound. */
	o->record_runs += at == 0 || o->last_mapping.range.end != begin ||
	                  o->last_mapping.slab != mapping->slab ||
	                  o->last_mapping.offset + o->last_mapping.range.end -
	                          o->last_mapping.range.begin != mapping->offset;
	o->last_mapping = *mapping;
}

static void mapping_visit(const void *node, VISIT which, void *data)
{
	if (which == postorder || which == leaf)
		mapping_note(data, *(struct mapping *const *)node);
}

void oracle_read_record(struct oracle *o)
{
	struct checking_device *c = checking_of(o->device);

	record_forget(o);
	pthread_mutex_lock(&c->lock);
	twalk_r(c->mappings, mapping_visit, o);
	pthread_mutex_unlock(&c->lock);
}

/* ---- the ways of a page ---------------------------------------------------------------------- */

struct at {
	uint32_t slot, region, page;
};

__attribute__((noreturn)) static void page_fail(const struct oracle *o, struct at at,
                                                const char *what)
{
	const struct oracle_page *page = &o->slots[at.slot].pages[at.region][at.page];

	oracle_fail(o,
	            "slot %u, region %u, page %u: %s (was state %u of mapping %u + %u, until %" PRIu64
	            ", completed %" PRIu64 "; now %s of mapping %u + %u; live %u, before %u)",
	            at.slot, at.region, at.page, what, page->state, page->first, page->n,
	            page->until, o->completed,
	            page->now_phys == 0 ? "none" : page->now_unmapping ? "unmapping" : "mapped",
	            page->now_first, page->now_n, o->slots[at.slot].live,
	            o->slots[at.slot].previous);
}

static void page_adopt(struct oracle *o, struct at at, enum oracle_state state)
{
	struct oracle_page *page = &o->slots[at.slot].pages[at.region][at.page];
	const struct oracle_region *region = &o->regions[at.region];
	uint32_t most = region->mapping_max_pages;

	/* Mostly a stretch's pages lie behind addresses in the same order. */
	if (at.page > 0 && page[-1].phys + o->info.page_bytes != page->now_phys &&
	    page[-1].state == ORACLE_USED && at.page * o->info.page_bytes % (2 << 20) != 0)
		o->seen.broken++;
	page->phys = page->now_phys;
	page->first = page->now_first;
	page->n = page->now_n;
	page->state = (uint8_t)state;
	page->stamped = false;
	o->slots[at.slot].reused |= o->never_reuse && state == ORACLE_KEPT;
	if (page->n > most)
		page_fail(o, at, "the mapping is too long");
	if (region->mapping_aligned && page->first / most != (page->first + page->n - 1) / most)
		page_fail(o, at, "the mapping crosses a multiple of its bound");
}

static void page_forget(struct oracle *o, struct at at)
{
	o->slots[at.slot].pages[at.region][at.page].state = ORACLE_NONE;
	o->slots[at.slot].pending |= o->lag || o->faults;
}

/* Whether kept pages may go in this operation. */
static bool may_drop(const struct oracle *o, const struct oracle_allowed *allowed, struct at at)
{
	const struct oracle_slot *slot = &o->slots[at.slot];
	const struct oracle_page *page = &slot->pages[at.region][at.page];

	if (allowed->drop_kept || o->faults)
		return true;
	if (slot->state == ORACLE_CLOSED)
		return slot->busy_until <= o->completed;
	if (allowed->open_tokens == 0 ||
	    (slot->state == ORACLE_OPEN && slot->seq != allowed->opened))
		return false;
	return page->first + page->n >
	       oracle_region_pages(o, &o->regions[at.region], allowed->open_tokens);
}

static void kept_follow(struct oracle *o, const struct oracle_allowed *allowed, struct at at,
                        bool wanted, bool same)
{
	struct oracle_page *page = &o->slots[at.slot].pages[at.region][at.page];
	bool there = page->now_phys != 0 && !page->now_unmapping;

	if (!same && o->never_reuse && o->slots[at.slot].state == ORACLE_OPEN)
		page_fail(o, at, "memory ahead of a sequence was taken away");
	if (there && !same) {
		if (!o->faults || o->slots[at.slot].state != ORACLE_OPEN)
			page_fail(o, at, "something else is mapped there");
		page_adopt(o, at, wanted ? ORACLE_USED : ORACLE_KEPT);
	} else if (same) {
		/* The whole mapping is used if its beginning is. */
		if (wanted)
			page->state = ORACLE_USED;
		page->stamped = false;
	} else {
		if (!may_drop(o, allowed, at))
			page_fail(o, at, "kept memory was dropped");
		page_forget(o, at);
		o->seen.reclaimed++;
	}
}

static void retiring_follow(struct oracle *o, struct at at, bool same)
{
	struct oracle_page *page = &o->slots[at.slot].pages[at.region][at.page];
	bool there = page->now_phys != 0 && !page->now_unmapping;

	if (page->until > o->completed) {
		if (!same)
			page_fail(o, at, "it was taken away before its busy_until");
	} else if (!there) {
		page_forget(o, at);
	} else {
		if (!same)
			page_fail(o, at, "something else is mapped where it was retiring");
		if (page->trimmed && !o->faults)
			page_fail(o, at, "it was trimmed and retired, and is still there");
		if (page->trimmed)
			return;
		if (o->never_reuse && !o->faults)
			page_fail(o, at, "it is kept behind a slot that nobody opens again");
		page->state = ORACLE_KEPT;
		o->seen.kept++;
	}
}

static void page_follow(struct oracle *o, const struct oracle_allowed *allowed, struct at at)
{
	const struct oracle_slot *slot = &o->slots[at.slot];
	struct oracle_page *page = &slot->pages[at.region][at.page];
	bool there = page->now_phys != 0 && !page->now_unmapping;
	bool same = there && page->now_phys == page->phys && page->now_first == page->first &&
	            page->now_n == page->n;
	bool wanted = allowed->grow[at.slot] &&
	              (there ? page->now_first : at.page) <
	                  oracle_region_pages(o, &o->regions[at.region], slot->live);

	switch (page->state) {
	case ORACLE_NONE:
		if (!there)
			break;
		if (wanted && page->now_first + page->now_n >
		                  oracle_region_pages(o, &o->regions[at.region], slot->live))
			page_fail(o, at, "more was mapped than is needed");
		if (!wanted && (!o->faults || slot->state != ORACLE_OPEN))
			page_fail(o, at, "it was mapped though nobody needs it");
		page_adopt(o, at, wanted ? ORACLE_USED : ORACLE_KEPT);
		break;
	case ORACLE_USED:
		if (!same)
			page_fail(o, at, "it is in use, and not the same any more");
		break;
	case ORACLE_KEPT:
		kept_follow(o, allowed, at, wanted, same);
		break;
	default:
		retiring_follow(o, at, same);
	}
}

/* ---- what must hold of a whole span ---------------------------------------------------------- */

static void span_follow(struct oracle *o, uint32_t s, uint32_t r)
{
	const struct oracle_slot *slot = &o->slots[s];
	const struct oracle_page *pages = slot->pages[r];
	const struct oracle_region *region = &o->regions[r];
	uint32_t need = oracle_region_pages(o, region, slot->live);
	uint32_t dead = oracle_dead_pages(o, region, slot->previous);
	bool open = slot->state == ORACLE_OPEN, kept = false;
	uint32_t next = open ? UINT32_MAX : 0; /* where the next kept page must be */

	for (uint32_t p = 0; p < region->pages; p++) {
		o->count[pages[p].state]++;
		if (open && p >= dead && p < need && pages[p].state != ORACLE_USED)
			page_fail(o, (struct at){ s, r, p }, "live tokens have no memory");
		if (o->faults || (pages[p].state != ORACLE_USED && pages[p].state != ORACLE_KEPT))
			continue;
		if (pages[p].state == ORACLE_USED && (kept || pages[p].first >= need))
			page_fail(o, (struct at){ s, r, p }, "it is used beyond the live length");
		kept |= pages[p].state == ORACLE_KEPT;
		if (slot->state != ORACLE_CLOSED && next != UINT32_MAX && p != next)
			page_fail(o, (struct at){ s, r, p }, "there is a gap before kept memory");
		next = p + 1;
	}
}

static void slot_follow(struct oracle *o, const struct oracle_allowed *allowed, uint32_t s)
{
	struct oracle_slot *slot = &o->slots[s];

	for (uint32_t r = 0; r < o->region_count; r++) {
		for (uint32_t p = 0; p < o->regions[r].pages; p++)
			page_follow(o, allowed, (struct at){ s, r, p });
	}
	if (slot->state == ORACLE_CLOSED && slot->busy_until <= o->completed)
		slot->state = ORACLE_FREE;
	for (uint32_t r = 0; r < o->region_count; r++)
		span_follow(o, s, r);
}

void oracle_follow(struct oracle *o, const struct oracle_allowed *allowed)
{
	uint64_t kept_before = o->count[ORACLE_KEPT];
	uint64_t most = o->options.warm_max_bytes;

	memset(o->count, 0, sizeof(o->count));
	for (uint32_t s = 0; s < o->slot_count; s++)
		slot_follow(o, allowed, s);
	if (most == 0)
		most = o->budget_bytes / 4;
	if (most == VMKV_WARM_OFF)
		most = 0;
	if (!o->faults && o->count[ORACLE_KEPT] > kept_before &&
	    o->count[ORACLE_KEPT] * o->info.page_bytes > most)
		oracle_fail(o, "%" PRIu64 " pages are kept warm, more than %" PRIu64 " bytes",
		            o->count[ORACLE_KEPT], most);
}
