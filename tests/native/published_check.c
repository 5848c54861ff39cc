/* SPDX-License-Identifier: MIT
 *
 * Whether a published state is whole.
 */
#include <inttypes.h>

#include "check.h"
#include "published.h"

/* Pages by state, and pieces. */
struct tally {
	uint64_t pages[5], pieces;
};

static bool tally_same(struct published *p, const char *what, uint64_t i, const struct tally *t,
                       struct tally told)
{
	for (int state = 1; state <= 4; state++) {
		if (t->pages[state] != told.pages[state])
			return published_wrong(p, "%s %" PRIu64 ": %" PRIu64 " pages in state %d, told are %"
			                       PRIu64, what, i, t->pages[state], state, told.pages[state]);
	}
	return t->pieces == told.pieces ||
	       published_wrong(p, "%s %" PRIu64 ": %" PRIu64 " pieces, told are %" PRIu64, what, i,
	                       t->pieces, told.pieces);
}

/* What an entry of slots or slabs tells. */
#define TOLD(of)                                                                                   \
	(struct tally)                                                                             \
	{                                                                                          \
		{ 0, (of).mapped_pages, (of).warm_pages, (of).retiring_pages, (of).unmapping_pages }, \
		    (of).pieces                                                                    \
	}

static bool piece_check(struct published *p, uint64_t i, uint8_t *taken)
{
	const struct published_piece *piece = &p->pieces[i];
	uint64_t slab = i / p->header->slab_pages, place = piece->phys % p->header->slab_pages;
	uint64_t page_bytes = p->header->page_bytes;

	if (piece->state > 4)
		return published_wrong(p, "piece %" PRIu64 ": state %u", i, piece->state);
	if ((place + piece->pages) * page_bytes > p->slabs[slab].bytes)
		return published_wrong(p, "piece %" PRIu64 " ends behind its slab", i);
	if (piece->slot >= p->slot_count || piece->region >= p->region_count)
		return published_wrong(p, "piece %" PRIu64 ": slot %u, region %u", i, piece->slot, piece->region);
	if ((uint64_t)(piece->page + piece->pages) * page_bytes >
	    p->regions[piece->region].slot_stride)
		return published_wrong(p, "piece %" PRIu64 " ends behind its slot", i);
	for (uint64_t n = 0; n < piece->pages; n++) {
		if (taken[piece->phys + n]++)
			return published_wrong(p, "page %" PRIu64 " belongs to two pieces", piece->phys + n);
	}
	if (piece->state == VMKV_PUBLISHED_PIECE_MAPPED &&
	    p->slots[piece->slot].state != VMKV_PUBLISHED_SLOT_OPEN)
		return published_wrong(p, "piece %" PRIu64 " is mapped, and slot %u not open", i, piece->slot);
	return true;
}

/* Pages that tokens of a region take. */
static uint64_t region_need(const struct published *p, const struct vmkv_published_region *r,
                            uint32_t tokens)
{
	uint64_t bytes = r->token_bytes != 0 ? tokens * r->token_bytes : tokens > 0 ? r->fixed_bytes : 0;

	return (bytes + p->header->page_bytes - 1) / p->header->page_bytes;
}

/* An open slot's spans have no hole, and reach as far as its tokens. */
static bool spans_check(struct published *p, const uint64_t *ends, const uint64_t *starts,
                        const uint64_t *mapped)
{
	for (uint64_t i = 0; i < p->slot_count * p->region_count; i++) {
		uint64_t slot = i / p->region_count;
		const struct vmkv_published_region *r = &p->regions[i % p->region_count];
		const struct vmkv_published_group *g = &p->groups[r->group];
		const struct vmkv_published_live *live = &p->lives[slot];
		uint64_t need = region_need(p, r, live->tokens), dead = 0;

		if (p->slots[slot].state != VMKV_PUBLISHED_SLOT_OPEN || live->tokens == 0)
			continue;
		if (g->window_tokens != 0 && live->previous > g->window_tokens)
			dead = (live->previous - g->window_tokens) * r->token_bytes / p->header->page_bytes;
		if (ends[i] < need)
			return published_wrong(p, "slot %" PRIu64 ", region %" PRIu64 ": %u tokens need %" PRIu64
			                       " pages, and %" PRIu64 " are mapped", slot, i % p->region_count,
			                       live->tokens, need, ends[i]);
		if (need > dead && (starts[i] > dead || mapped[i] != ends[i] - starts[i]))
			return published_wrong(p, "slot %" PRIu64 ", region %" PRIu64 ": pages %" PRIu64 " to %"
			                       PRIu64 " with %" PRIu64 " mapped, and %" PRIu64 " are dead", slot,
			                       i % p->region_count, starts[i], ends[i], mapped[i], dead);
	}
	return true;
}

static bool pieces_check(struct published *p, struct tally *slots, struct tally *slabs,
                         struct tally *all)
{
	size_t spans = p->slot_count * p->region_count;
	uint8_t *taken = calloc(p->piece_count + p->header->slab_pages, 1);
	uint64_t *ends = calloc(spans, 8), *starts = calloc(spans, 8), *mapped = calloc(spans, 8);
	bool good = true;

	CHECK(taken != NULL && ends != NULL && starts != NULL && mapped != NULL);
	for (uint64_t i = 0; i < p->piece_count && good; i++) {
		const struct published_piece *piece = &p->pieces[i];
		size_t span = (size_t)piece->slot * p->region_count + piece->region;

		if (piece->pages == 0)
			continue;
		good = piece_check(p, i, taken);
		if (!good)
			break;
		slots[piece->slot].pages[piece->state] += piece->pages;
		slots[piece->slot].pieces++;
		slabs[i / p->header->slab_pages].pages[piece->state] += piece->pages;
		slabs[i / p->header->slab_pages].pieces++;
		all->pages[piece->state] += piece->pages;
		if (piece->state != VMKV_PUBLISHED_PIECE_MAPPED)
			continue;
		if (ends[span] == 0 || piece->page < starts[span])
			starts[span] = piece->page;
		if (piece->page + piece->pages > ends[span])
			ends[span] = piece->page + piece->pages;
		mapped[span] += piece->pages;
	}
	good = good && (p->state.left_out > 0 || spans_check(p, ends, starts, mapped));
	free(taken);
	free(ends);
	free(starts);
	free(mapped);
	return good;
}

static bool sums_check(struct published *p, const struct tally *slots, const struct tally *slabs,
                       const struct tally *all)
{
	const struct vmkv_published_state *s = &p->state;
	const uint64_t told[4] = { s->mapped_bytes, s->warm_bytes, s->retiring_bytes, s->unmapping_bytes };
	uint64_t open = 0, there = 0, bytes = 0;

	for (uint64_t i = 0; i < p->slot_count; i++) {
		open += p->slots[i].state == VMKV_PUBLISHED_SLOT_OPEN;
		if (!tally_same(p, "slot", i, &slots[i], TOLD(p->slots[i])))
			return false;
	}
	for (uint64_t i = 0; i < p->slab_count; i++) {
		there += p->slabs[i].bytes != 0;
		bytes += p->slabs[i].bytes;
		if (!tally_same(p, "slab", i, &slabs[i], TOLD(p->slabs[i])))
			return false;
	}
	for (int state = 1; state <= 4; state++) {
		if (all->pages[state] * p->header->page_bytes != told[state - 1])
			return published_wrong(p, "%" PRIu64 " pages in state %d, and %" PRIu64 " bytes told",
			                       all->pages[state], state, told[state - 1]);
	}
	if (open != s->sequences || there != s->slabs)
		return published_wrong(p, "%" PRIu64 " open, %" PRIu64 " slabs; told are %" PRIu64 ", %" PRIu64,
		                       open, there, s->sequences, s->slabs);
	if (bytes != s->slab_bytes ||
	    bytes != s->mapped_bytes + s->warm_bytes + s->retiring_bytes + s->unmapping_bytes +
	                 s->zeroing_bytes + s->held_bytes + s->free_clean_bytes + s->free_dirty_bytes)
		return published_wrong(p, "slabs of %" PRIu64 " bytes, and %" PRIu64 " told, or another sum", bytes,
		                       s->slab_bytes);
	return true;
}

static bool slots_check(struct published *p)
{
	for (uint64_t i = 0; i < p->slot_count; i++) {
		const struct vmkv_published_slot *slot = &p->slots[i];

		if (slot->state > VMKV_PUBLISHED_SLOT_RETIRING ||
		    (slot->seq != 0 && ((slot->seq & 0xfffff) != i ||
		                        slot->seq >> 44 != p->header->tag)))
			return published_wrong(p, "slot %" PRIu64 ": state %u, sequence %#" PRIx64, i, slot->state,
			                       slot->seq);
		if (slot->state != VMKV_PUBLISHED_SLOT_OPEN)
			continue;
		if (slot->seq == 0 || p->lives[i].tokens > slot->mapped_tokens ||
		    slot->ready_tokens > slot->mapped_tokens ||
		    p->lives[i].step > p->state.steps + (p->epoch - p->state.epoch))
			return published_wrong(p, "slot %" PRIu64 ": %u tokens, %u mapped, %u ready, step %" PRIu64,
			                       i, p->lives[i].tokens, slot->mapped_tokens, slot->ready_tokens,
			                       p->lives[i].step);
	}
	return true;
}

/* All events of the state that the ring still holds. */
static bool events_check(struct published *p)
{
	uint64_t held = 0, last = p->state.events, newest = 0;

	for (uint64_t i = 0; i < VMKV_PUBLISHED_EVENTS; i++) {
		uint64_t serial = p->ring[i].serial;

		if (serial == 0)
			continue;
		if ((serial - 1) % VMKV_PUBLISHED_EVENTS != i || p->ring[i].kind == 0 ||
		    p->ring[i].kind > VMKV_PUBLISHED_EVENT_LOST)
			return published_wrong(p, "entry %" PRIu64 " of the ring holds %" PRIu64 " of kind %u", i,
			                       serial, p->ring[i].kind);
		held += serial <= last;
		newest = serial > newest ? serial : newest;
	}
	/* What goes beyond it, and one that is being written, took the place of old ones. */
	uint64_t lost = newest > last ? newest - last + 1 : 1;
	uint64_t kept = last < VMKV_PUBLISHED_EVENTS ? last : VMKV_PUBLISHED_EVENTS;

	return held + lost >= kept ||
	       published_wrong(p, "the ring holds %" PRIu64 " events of %" PRIu64, held, last);
}

bool published_check(struct published *p)
{
	struct tally *slots = calloc(p->slot_count, sizeof(*slots));
	struct tally *slabs = calloc(p->slab_count, sizeof(*slabs)), all = { 0 };
	bool good;

	CHECK(slots != NULL && slabs != NULL);
	good = p->state.epoch != 0 || published_wrong(p, "there is no state");
	good = good && pieces_check(p, slots, slabs, &all) && slots_check(p) && events_check(p);
	good = good && (p->state.left_out > 0 || sums_check(p, slots, slabs, &all));
	free(slots);
	free(slabs);
	return good;
}

bool published_same(const struct published *a, struct published *b)
{
	if (a->epoch != b->epoch)
		return published_wrong(b, "epoch %" PRIu64 " after %" PRIu64, b->epoch, a->epoch);
	if (memcmp(&a->state, &b->state, sizeof(a->state)) != 0)
		return published_wrong(b, "another state");
	if (memcmp(a->lives, b->lives, a->slot_count * sizeof(*a->lives)) != 0)
		return published_wrong(b, "other lives");
	if (memcmp(a->slots, b->slots, a->slot_count * sizeof(*a->slots)) != 0)
		return published_wrong(b, "other slots");
	if (memcmp(a->pieces, b->pieces, a->piece_count * sizeof(*a->pieces)) != 0)
		return published_wrong(b, "other pieces");
	if (memcmp(a->slabs, b->slabs, a->slab_count * sizeof(*a->slabs)) != 0)
		return published_wrong(b, "other slabs");
	return true;
}
