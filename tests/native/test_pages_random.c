/* SPDX-License-Identifier: MIT
 *
 * Pages taken, moved and given back at random, against a plain array of what each page is.
 */
#include <stdlib.h>

#include "pages_fixture.h"
#include "seeded.h"

#define PAGES_MAX 8192u /* over all slabs */
#define RUNS_MAX 4096u

/* What is believed. A run has one state; a held one may have dirty pages. */
struct belief {
	struct store s;
	struct seeded random;
	bool there[PAGES_MAX]; /* the page exists */
	bool free[PAGES_MAX];
	struct {
		struct vmkv_run run;
		enum vmkv_page_state state;
	} runs[RUNS_MAX];
	uint32_t run_count;
};

static void belief_begin(struct belief *b, const char *what)
{
	b->random = seeded_begin(what);
}

/* A new store: pages of 64 KiB to 2 MiB, slabs of 4 to 16 MiB. */
static void belief_renew(struct belief *b)
{
	uint64_t page_bytes = (64 * KIB) << seeded_from(&b->random, 0, 5);
	uint64_t slab_bytes = 2 * MIB * seeded_from(&b->random, 2, 8);

	memset(b->there, 0, sizeof(b->there));
	memset(b->free, 0, sizeof(b->free));
	b->run_count = 0;
	store_begin(&b->s, page_bytes, slab_bytes);
}

static void add_slab(struct belief *b, bool whole)
{
	struct vmkv_pages *p = &b->s.pages;
	uint32_t n = whole ? p->slab_pages : seeded_from(&b->random, 1, p->slab_pages);
	uint32_t i = 0, slab = 0;

	while (i < SLABS && b->s.slabs[i].bytes != 0)
		i++;
	if (i == SLABS)
		return;
	b->s.slabs[i].bytes = n * p->page_bytes;
	CHECK_EQ(vmkv_pages_add_slab(p, &b->s.slabs[i], seeded_from(&b->random, 0, 1)), 0);
	while (p->slabs[slab].slab != &b->s.slabs[i])
		slab++;
	for (i = 0; i < n; i++)
		b->there[(slab << p->slab_shift) + i] = b->free[(slab << p->slab_shift) + i] = true;
}

static void remove_slab(struct belief *b)
{
	struct vmkv_pages *p = &b->s.pages;
	uint32_t from = 0, first = p->slab_count;
	struct vmkv_slab *slab = NULL;

	/* The first one that is wholly free. */
	for (uint32_t t = p->slab_count; t-- > 0;) {
		uint32_t page = t << p->slab_shift, end = page + p->slabs[t].pages;

		while (page < end && b->free[page])
			page++;
		if (p->slabs[t].slab && page == end) {
			first = t;
			slab = p->slabs[t].slab;
		}
	}
	CHECK(vmkv_pages_remove_free_slab(p, &from) == slab);
	CHECK_EQ(from, slab ? first + 1 : p->slab_count);
	if (!slab)
		return;
	slab->bytes = 0;
	memset(b->there + (first << p->slab_shift), 0, p->slab_pages);
	memset(b->free + (first << p->slab_shift), 0, p->slab_pages);
}

/* ---- the rules of placement, the slow way --------------------------------------------------- */

static bool stretch_is_whole(const struct belief *b, uint32_t stretch)
{
	uint32_t n = b->s.pages.stretch_pages, page = stretch * n, end = page + n;

	while (page < end && b->there[page] && b->free[page])
		page++;
	return page == end;
}

static bool any_whole(const struct belief *b)
{
	uint32_t stretches = PAGES_MAX / b->s.pages.stretch_pages;

	for (uint32_t i = 0; i < stretches; i++)
		if (stretch_is_whole(b, i))
			return true;
	return false;
}

/* Whether the page behind `after` is the one that must be taken. */
static bool must_follow(const struct belief *b, const struct vmkv_want *want)
{
	const struct vmkv_pages *p = &b->s.pages;
	uint32_t page = want->after + 1;

	if (want->after == VMKV_PAGE_NONE || vmkv_pages_place(p, page) == 0)
		return false;
	if (page % p->stretch_pages == 0)
		return want->span_page % p->stretch_pages == 0 &&
		       stretch_is_whole(b, page / p->stretch_pages);
	return b->there[page] && b->free[page];
}

static void check_taken(const struct belief *b, const struct vmkv_want *want, struct vmkv_run run)
{
	const struct vmkv_pages *p = &b->s.pages;
	uint32_t stretch = run.page / p->stretch_pages, end = (stretch + 1) * p->stretch_pages;

	/* Neighbours, free, within one stretch, and as many as were wanted and are there. */
	CHECK(run.n >= 1 && run.n <= want->n && run.page + run.n <= end);
	for (uint32_t i = 0; i < run.n; i++)
		CHECK(b->there[run.page + i] && b->free[run.page + i]);
	if (run.n < want->n && run.page + run.n < end)
		CHECK(!b->there[run.page + run.n] || !b->free[run.page + run.n]);
	if (must_follow(b, want)) {
		CHECK_EQ(run.page, want->after + 1);
	} else if (any_whole(b)) {
		CHECK(stretch_is_whole(b, stretch));
		CHECK_EQ(run.page % p->stretch_pages, want->span_page % p->stretch_pages);
	} else {
		CHECK(want->may_split);
	}
}

static void take_some(struct belief *b, uint32_t most, bool split)
{
	struct vmkv_want want = { VMKV_PAGE_NONE, seeded_from(&b->random, 0, 1000),
		                  seeded_from(&b->random, 1, most), split };
	struct vmkv_run run;

	if (b->run_count == RUNS_MAX)
		return;
	if (b->run_count > 0 && seeded_from(&b->random, 0, 2) > 0) {
		run = b->runs[seeded_from(&b->random, 0, b->run_count - 1)].run;
		want.after = run.page + run.n - 1;
		if (seeded_from(&b->random, 0, 1))
			want.span_page = (want.after + 1) % b->s.pages.slab_pages;
	}
	if (!vmkv_pages_take(&b->s.pages, &want, &run)) {
		CHECK(!must_follow(b, &want) && !any_whole(b));
		CHECK(!split || vmkv_pages_free(&b->s.pages) == 0);
		return;
	}
	check_taken(b, &want, run);
	memset(b->free + run.page, 0, run.n);
	b->runs[b->run_count].run = run;
	b->runs[b->run_count++].state = VMKV_PAGE_HELD;
}

/* ---- the life, at random -------------------------------------------------------------------- */

static void forget(struct belief *b, uint32_t i)
{
	memset(b->free + b->runs[i].run.page, 1, b->runs[i].run.n);
	b->runs[i] = b->runs[--b->run_count];
}

/* Move run i on by one of the edges that lead away from its state. */
static void move_on(struct belief *b, uint32_t i)
{
	struct vmkv_pages *p = &b->s.pages;
	enum vmkv_page_state from = b->runs[i].state, to;

	if (from == VMKV_PAGE_HELD && seeded_from(&b->random, 0, 3) == 0) {
		vmkv_pages_put_back(p, b->runs[i].run);
		forget(b, i);
		return;
	}
	do {
		to = seeded_from(&b->random, 0, VMKV_PAGE_STATES - 1);
	} while (!vmkv_page_may(from, to) ||
	         (from == VMKV_PAGE_HELD && (to == VMKV_PAGE_FREE_CLEAN || to == VMKV_PAGE_FREE_DIRTY)));
	if (from == VMKV_PAGE_HELD)
		vmkv_pages_held_clean(p, b->runs[i].run);
	vmkv_pages_move(p, b->runs[i].run, from, to);
	b->runs[i].state = to;
	if (to == VMKV_PAGE_FREE_CLEAN || to == VMKV_PAGE_FREE_DIRTY)
		forget(b, i);
}

/* Give back half of a run, so that borders of runs and of stretches differ. */
static void cut(struct belief *b, uint32_t i)
{
	uint32_t n = b->runs[i].run.n / 2;

	if (n == 0 || b->run_count == RUNS_MAX)
		return;
	b->runs[b->run_count] = b->runs[i];
	b->runs[b->run_count].run.page += n;
	b->runs[b->run_count++].run.n -= n;
	b->runs[i].run.n = n;
}

static void check_belief(const struct belief *b)
{
	const struct vmkv_pages *p = &b->s.pages;
	uint64_t unused = 0;

	check_store(&b->s);
	for (uint32_t page = 0; page < PAGES_MAX; page++)
		unused += b->free[page];
	CHECK_EQ(vmkv_pages_free(p), unused);
	for (uint32_t i = 0; i < b->run_count; i++)
		for (uint32_t n = 0; n < b->runs[i].run.n; n++)
			CHECK_EQ(vmkv_pages_state(p, b->runs[i].run.page + n), b->runs[i].state);
}

static void pages_at_random(void)
{
	static struct belief b;

	belief_begin(&b, __func__);
	for (int store = 0; store < 20; store++) {
		belief_renew(&b);
		for (int i = 0; i < 800; i++) {
			uint32_t what = seeded_from(&b.random, 0, 99);

			if (what < 3)
				add_slab(&b, what < 2);
			else if (what < 5)
				remove_slab(&b);
			else if (what < 45 || b.run_count == 0)
				take_some(&b, 80, what % 2);
			else if (what < 50)
				cut(&b, seeded_from(&b.random, 0, b.run_count - 1));
			else
				move_on(&b, seeded_from(&b.random, 0, b.run_count - 1));
			if (i % 16 == 0)
				check_belief(&b);
		}
		check_belief(&b);
		store_end(&b.s);
	}
}

/* Fill until nothing is left, free a part in any order, fill again; then all of it. */
static void fill_free_and_refill(void)
{
	static struct belief b;

	belief_begin(&b, __func__);
	for (int store = 0; store < 20; store++) {
		uint64_t held;

		belief_renew(&b);
		for (int i = 0; i < 4; i++)
			add_slab(&b, i > 0);
		for (int part = 4; part > 0; part--) {
			while (vmkv_pages_free(&b.s.pages) > 0)
				take_some(&b, 80, true);
			CHECK_EQ(b.s.pages.count[VMKV_PAGE_HELD], b.s.pages.total);
			check_belief(&b);
			held = b.run_count / (uint32_t)part;
			while (held-- > 0) {
				uint32_t i = seeded_from(&b.random, 0, b.run_count - 1);

				vmkv_pages_put_back(&b.s.pages, b.runs[i].run);
				forget(&b, i);
			}
			check_belief(&b);
		}
		CHECK_EQ(vmkv_pages_free(&b.s.pages), b.s.pages.total);
		for (uint32_t i = 0; i < b.s.pages.slab_count; i++)
			CHECK_EQ(b.s.pages.slabs[i].whole,
			         b.s.pages.slabs[i].pages / b.s.pages.stretch_pages);
		store_end(&b.s);
	}
}

int main(void)
{
	RUN(pages_at_random);
	RUN(fill_free_and_refill);
	return 0;
}
