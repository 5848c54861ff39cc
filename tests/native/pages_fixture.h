/* SPDX-License-Identifier: MIT
 *
 * What the tests of pages share: slabs that are none, and a check of all tables against the states
 * of the pages.
 */
#ifndef PAGES_FIXTURE_H
#define PAGES_FIXTURE_H

#include "check.h"
#include "pages.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)

/* Small enough to draw: stretches of 4 pages. */
#define PAGE_BYTES (512 * KIB)

#define SLABS 16

struct store {
	struct vmkv_pages pages;
	struct vmkv_slab slabs[SLABS];
	uint32_t slab_count;
};

static inline void store_begin(struct store *s, uint64_t page_bytes, uint64_t slab_bytes)
{
	memset(s, 0, sizeof(*s));
	CHECK_EQ(vmkv_pages_init(&s->pages, page_bytes, slab_bytes), 0);
}

static inline void store_end(struct store *s)
{
	vmkv_pages_fini(&s->pages);
}

static inline struct vmkv_slab *store_add(struct store *s, uint64_t bytes, bool clean)
{
	struct vmkv_slab *slab = &s->slabs[s->slab_count++];

	CHECK(s->slab_count <= SLABS);
	slab->bytes = bytes;
	CHECK_EQ(vmkv_pages_add_slab(&s->pages, slab, clean), 0);
	return slab;
}

/* n pages at place `at` of a span, behind page `after`; none is n == 0. */
static inline struct vmkv_run take(struct store *s, uint32_t after, uint32_t at, uint32_t n,
                                   bool split)
{
	struct vmkv_want want = { after, at, n, split };
	struct vmkv_run run = { VMKV_PAGE_NONE, 0 };

	if (vmkv_pages_take(&s->pages, &want, &run))
		CHECK(run.n >= 1 && run.n <= n);
	return run;
}

#define CHECK_RUN(taken, first, count)                                                             \
	do {                                                                                       \
		struct vmkv_run run_ = (taken);                                                    \
		CHECK_EQ(run_.page, first);                                                        \
		CHECK_EQ(run_.n, count);                                                           \
	} while (0)

static inline void move(struct store *s, struct vmkv_run run, enum vmkv_page_state from,
                        enum vmkv_page_state to)
{
	vmkv_pages_move(&s->pages, run, from, to);
}

/* From held all the way round to free and dirty. */
static inline void use_and_give_back(struct store *s, struct vmkv_run run)
{
	vmkv_pages_held_clean(&s->pages, run);
	move(s, run, VMKV_PAGE_HELD, VMKV_PAGE_MAPPED);
	move(s, run, VMKV_PAGE_MAPPED, VMKV_PAGE_RETIRING);
	move(s, run, VMKV_PAGE_RETIRING, VMKV_PAGE_UNMAPPING);
	move(s, run, VMKV_PAGE_UNMAPPING, VMKV_PAGE_FREE_DIRTY);
}

/* ---- the tables against the states ---------------------------------------------------------- */

static inline bool bit_of(const uint64_t *words, uint32_t i)
{
	return words[i / 64] >> (i % 64) & 1;
}

static inline uint32_t check_stretch(const struct vmkv_pages *p, uint32_t slab, uint32_t i,
                                     uint64_t counts[])
{
	const struct vmkv_slab_table *t = &p->slabs[slab];
	uint32_t unused = 0;

	for (uint32_t at = 0; at < p->stretch_pages; at++) {
		uint32_t place = i * p->stretch_pages + at;
		bool is_free = false;

		if (place < t->pages) {
			uint8_t state = t->states[place] & (uint8_t)~VMKV_PAGE_DIRTY_MARK;

			CHECK(state < VMKV_PAGE_STATES);
			CHECK(state == t->states[place] || state == VMKV_PAGE_HELD);
			counts[state]++;
			is_free = state == VMKV_PAGE_FREE_CLEAN || state == VMKV_PAGE_FREE_DIRTY;
		}
		CHECK_EQ(bit_of(t->free_bits + i * p->words_per_stretch, at), is_free);
		unused += is_free;
	}
	CHECK_EQ(t->stretches[i].free, unused);
	return unused;
}

static inline const struct vmkv_stretch *stretch_of(const struct vmkv_pages *p, uint32_t stretch)
{
	uint32_t page = stretch << p->stretch_shift;

	return &p->slabs[vmkv_pages_slab_index(p, page)]
	            .stretches[vmkv_pages_place(p, page) >> p->stretch_shift];
}

static inline void check_lists(const struct vmkv_pages *p, uint64_t partial, uint64_t whole)
{
	for (uint32_t n = 0; n <= p->stretch_pages; n++) {
		uint32_t before = VMKV_PAGE_NONE;

		CHECK_EQ(bit_of(p->partial_bits, n), p->partial_heads[n] != VMKV_PAGE_NONE);
		for (uint32_t i = p->partial_heads[n]; i != VMKV_PAGE_NONE; partial--) {
			const struct vmkv_stretch *s = stretch_of(p, i);

			CHECK_EQ(s->free, n);
			CHECK_EQ(s->previous, before);
			before = i;
			i = s->next;
		}
	}
	for (uint32_t n = 0; n <= p->slab_stretches; n++) {
		uint32_t before = VMKV_PAGE_NONE;

		CHECK_EQ(bit_of(p->whole_bits, n), p->whole_heads[n] != VMKV_PAGE_NONE);
		for (uint32_t i = p->whole_heads[n]; i != VMKV_PAGE_NONE; whole--) {
			CHECK_EQ(p->slabs[i].whole, n);
			CHECK_EQ(p->slabs[i].previous, before);
			before = i;
			i = p->slabs[i].next;
		}
	}
	CHECK_EQ(partial, 0);
	CHECK_EQ(whole, 0);
}

static inline void check_store(const struct store *s)
{
	const struct vmkv_pages *p = &s->pages;
	uint64_t counts[VMKV_PAGE_STATES] = { 0 }, total = 0, partial = 0, with_whole = 0;
	uint32_t in_use = 0;

	for (uint32_t slab = 0; slab < p->slab_count; slab++) {
		const struct vmkv_slab_table *t = &p->slabs[slab];
		uint32_t unused = 0, whole = 0;

		if (!t->slab)
			continue;
		in_use++;
		CHECK_EQ(t->pages, t->slab->bytes / p->page_bytes);
		for (uint32_t i = 0; i < p->slab_stretches; i++) {
			uint32_t n = check_stretch(p, slab, i, counts);

			unused += n;
			whole += n == p->stretch_pages;
			CHECK_EQ(bit_of(t->whole_map, i), n == p->stretch_pages);
			partial += n > 0 && n < p->stretch_pages;
		}
		CHECK_EQ(t->free, unused);
		CHECK_EQ(t->whole, whole);
		with_whole += whole > 0;
		total += t->pages;
	}
	CHECK_EQ(p->slabs_in_use, in_use);
	CHECK_EQ(p->total, total);
	for (int i = 0; i < VMKV_PAGE_STATES; i++)
		CHECK_EQ(p->count[i], counts[i]);
	check_lists(p, partial, with_whole);
}

#endif
