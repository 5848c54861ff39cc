/* SPDX-License-Identifier: MIT
 *
 * Pages: their life, taking and putting back, dirty marks, slabs that come and go, and their
 * tables.
 */
#include <errno.h>
#include <stdlib.h>

#include "pages_fixture.h"

/* ---- the life ------------------------------------------------------------------------------- */

static void the_life_has_these_edges_and_no_others(void)
{
	/* Of the picture in pages.h. */
	static const struct {
		enum vmkv_page_state from, to;
	} edges[] = {
		{ VMKV_PAGE_FREE_DIRTY, VMKV_PAGE_ZEROING },
		{ VMKV_PAGE_ZEROING, VMKV_PAGE_FREE_CLEAN },
		{ VMKV_PAGE_ZEROING, VMKV_PAGE_FREE_DIRTY }, /* the fill failed */
		{ VMKV_PAGE_FREE_CLEAN, VMKV_PAGE_HELD },
		{ VMKV_PAGE_FREE_DIRTY, VMKV_PAGE_HELD }, /* filled by who takes it */
		{ VMKV_PAGE_HELD, VMKV_PAGE_MAPPED },
		{ VMKV_PAGE_HELD, VMKV_PAGE_FREE_CLEAN }, /* undone before it was issued */
		{ VMKV_PAGE_HELD, VMKV_PAGE_FREE_DIRTY },
		{ VMKV_PAGE_HELD, VMKV_PAGE_UNMAPPING }, /* undone after */
		{ VMKV_PAGE_HELD, VMKV_PAGE_WARM }, /* the same, kept ahead */
		{ VMKV_PAGE_MAPPED, VMKV_PAGE_RETIRING },
		{ VMKV_PAGE_RETIRING, VMKV_PAGE_UNMAPPING },
		{ VMKV_PAGE_RETIRING, VMKV_PAGE_WARM },
		{ VMKV_PAGE_WARM, VMKV_PAGE_MAPPED },
		{ VMKV_PAGE_WARM, VMKV_PAGE_UNMAPPING },
		{ VMKV_PAGE_UNMAPPING, VMKV_PAGE_FREE_DIRTY },
		{ VMKV_PAGE_UNMAPPING, VMKV_PAGE_FREE_CLEAN }, /* it was warm */
	};
	bool allowed[VMKV_PAGE_STATES][VMKV_PAGE_STATES] = { 0 };

	for (size_t i = 0; i < sizeof(edges) / sizeof(*edges); i++)
		allowed[edges[i].from][edges[i].to] = true;
	for (int from = 0; from < VMKV_PAGE_STATES; from++) {
		for (int to = 0; to < VMKV_PAGE_STATES; to++) {
			if (vmkv_page_may(from, to) != allowed[from][to])
				CHECK_FAIL("from state %d to %d is %s", from, to,
				           allowed[from][to] ? "refused" : "allowed");
		}
	}
}

static void a_page_goes_all_the_way_round(void)
{
	static const enum vmkv_page_state way[] = {
		VMKV_PAGE_HELD,     VMKV_PAGE_MAPPED,    VMKV_PAGE_RETIRING,
		VMKV_PAGE_WARM,     VMKV_PAGE_MAPPED,    VMKV_PAGE_RETIRING,
		VMKV_PAGE_UNMAPPING, VMKV_PAGE_FREE_DIRTY, VMKV_PAGE_ZEROING,
		VMKV_PAGE_FREE_CLEAN,
	};
	struct vmkv_run run;
	struct store s;

	store_begin(&s, PAGE_BYTES, 4 * MIB);
	store_add(&s, 4 * MIB, true);
	run = take(&s, VMKV_PAGE_NONE, 0, 3, false);
	CHECK_RUN(run, 0, 3);
	for (size_t i = 1; i < sizeof(way) / sizeof(*way); i++) {
		move(&s, run, way[i - 1], way[i]);
		CHECK_EQ(s.pages.count[way[i]], way[i] == VMKV_PAGE_FREE_CLEAN ? 8 : 3);
		CHECK_EQ(vmkv_pages_state(&s.pages, 2), way[i]);
		CHECK_EQ(vmkv_pages_state(&s.pages, 3), VMKV_PAGE_FREE_CLEAN);
		CHECK_EQ(vmkv_pages_free(&s.pages), i >= 9 || i == 7 ? 8 : 5);
		check_store(&s);
	}
	store_end(&s);
}

/* Pages 2 to 9 of 12, through three stretches of 4. */
static void a_run_may_lie_in_several_stretches(void)
{
	struct vmkv_run all[3], run = { 2, 8 };
	struct store s;

	store_begin(&s, PAGE_BYTES, 6 * MIB);
	store_add(&s, 6 * MIB, true);
	for (uint32_t i = 0; i < 3; i++) {
		all[i] = take(&s, VMKV_PAGE_NONE, 0, 4, false);
		CHECK_RUN(all[i], 4 * i, 4);
		move(&s, all[i], VMKV_PAGE_HELD, VMKV_PAGE_MAPPED);
	}
	move(&s, run, VMKV_PAGE_MAPPED, VMKV_PAGE_RETIRING);
	move(&s, run, VMKV_PAGE_RETIRING, VMKV_PAGE_UNMAPPING);
	move(&s, run, VMKV_PAGE_UNMAPPING, VMKV_PAGE_FREE_DIRTY);
	check_store(&s);
	CHECK_EQ(s.pages.slabs[0].whole, 1);
	CHECK_EQ(s.pages.slabs[0].stretches[0].free, 2);
	CHECK_EQ(s.pages.slabs[0].stretches[2].free, 2);
	store_end(&s);
}

/* ---- taking and putting back ---------------------------------------------------------------- */

/* 1. before:   C C C C | D D D C      C clean, D dirty
 * 2. take 4 and 4:      H H H H | h h h H      h held and dirty
 * 3. put back: as before
 */
static void what_is_put_back_is_as_it_was(void)
{
	struct vmkv_run clean, dirty, tail = { 7, 1 };
	struct store s;

	store_begin(&s, PAGE_BYTES, 4 * MIB);
	store_add(&s, 4 * MIB, false);
	clean = take(&s, VMKV_PAGE_NONE, 0, 4, false);
	CHECK_RUN(clean, 0, 4);
	vmkv_pages_put_back(&s.pages, clean);
	CHECK_EQ(s.pages.count[VMKV_PAGE_FREE_DIRTY], 8);
	move(&s, clean, VMKV_PAGE_FREE_DIRTY, VMKV_PAGE_ZEROING);
	move(&s, clean, VMKV_PAGE_ZEROING, VMKV_PAGE_FREE_CLEAN);
	move(&s, tail, VMKV_PAGE_FREE_DIRTY, VMKV_PAGE_ZEROING);
	move(&s, tail, VMKV_PAGE_ZEROING, VMKV_PAGE_FREE_CLEAN);

	clean = take(&s, VMKV_PAGE_NONE, 0, 4, false);
	dirty = take(&s, VMKV_PAGE_NONE, 0, 4, false);
	CHECK_RUN(clean, 0, 4);
	CHECK_RUN(dirty, 4, 4);
	CHECK_EQ(s.pages.count[VMKV_PAGE_HELD], 8);
	CHECK_EQ(vmkv_pages_free(&s.pages), 0);
	CHECK_EQ(vmkv_pages_state(&s.pages, 4), VMKV_PAGE_HELD);
	check_store(&s);
	vmkv_pages_put_back(&s.pages, dirty);
	vmkv_pages_put_back(&s.pages, clean);
	check_store(&s);
	for (uint32_t page = 0; page < 8; page++)
		CHECK_EQ(vmkv_pages_state(&s.pages, page),
		         page >= 4 && page < 7 ? VMKV_PAGE_FREE_DIRTY : VMKV_PAGE_FREE_CLEAN);
	store_end(&s);
}

/* Taken from D C D D: runs to fill are 0 and 2 to 3. */
static void dirty_pages_are_listed_until_filled(void)
{
	struct vmkv_run run, dirty, second = { 1, 1 };
	struct store s;
	uint32_t at = 0;

	store_begin(&s, PAGE_BYTES, 2 * MIB);
	store_add(&s, 2 * MIB, false);
	move(&s, second, VMKV_PAGE_FREE_DIRTY, VMKV_PAGE_ZEROING);
	move(&s, second, VMKV_PAGE_ZEROING, VMKV_PAGE_FREE_CLEAN);
	run = take(&s, VMKV_PAGE_NONE, 0, 4, false);
	CHECK_RUN(run, 0, 4);
	CHECK(vmkv_pages_held_dirty(&s.pages, run, &at, &dirty));
	CHECK_RUN(dirty, 0, 1);
	CHECK(vmkv_pages_held_dirty(&s.pages, run, &at, &dirty));
	CHECK_RUN(dirty, 2, 2);
	CHECK(!vmkv_pages_held_dirty(&s.pages, run, &at, &dirty));
	at = 0;
	CHECK(vmkv_pages_held_dirty(&s.pages, (struct vmkv_run){ 1, 2 }, &at, &dirty));
	CHECK_RUN(dirty, 2, 1);
	CHECK(!vmkv_pages_held_dirty(&s.pages, (struct vmkv_run){ 1, 2 }, &at, &dirty));

	vmkv_pages_held_clean(&s.pages, run);
	at = 0;
	CHECK(!vmkv_pages_held_dirty(&s.pages, run, &at, &dirty));
	vmkv_pages_put_back(&s.pages, run);
	CHECK_EQ(s.pages.count[VMKV_PAGE_FREE_CLEAN], 4);
	check_store(&s);
	store_end(&s);
}

/* ---- slabs ---------------------------------------------------------------------------------- */

static void pages_know_their_slab_and_offset(void)
{
	struct vmkv_slab *first, *second;
	struct store s;

	store_begin(&s, PAGE_BYTES, 4 * MIB);
	first = store_add(&s, 4 * MIB, true);
	second = store_add(&s, 3 * MIB, true); /* the next slab's pages begin at 8 all the same */
	CHECK(vmkv_pages_slab(&s.pages, 7) == first);
	CHECK(vmkv_pages_slab(&s.pages, 8) == second);
	CHECK_EQ(vmkv_pages_offset(&s.pages, 7), 7 * PAGE_BYTES);
	CHECK_EQ(vmkv_pages_offset(&s.pages, 8), 0);
	CHECK_EQ(vmkv_pages_offset(&s.pages, 13), 5 * PAGE_BYTES);
	CHECK_EQ(s.pages.total, 14);
	store_end(&s);
}

/* Slabs of 12 pages begin at multiples of 16 all the same. */
static void slabs_of_any_size_have_round_numbers(void)
{
	struct vmkv_slab *first, *second;
	struct store s;

	store_begin(&s, PAGE_BYTES, 6 * MIB);
	first = store_add(&s, 6 * MIB, true);
	second = store_add(&s, 6 * MIB, true);
	CHECK_RUN(take(&s, VMKV_PAGE_NONE, 0, 12, false), 16, 4);
	CHECK_RUN(take(&s, 19, 4, 4, false), 20, 4);
	CHECK_RUN(take(&s, 23, 8, 4, false), 24, 4);
	CHECK_RUN(take(&s, 27, 12, 4, false), 0, 4); /* 28 is no page */
	CHECK(vmkv_pages_slab(&s.pages, 11) == first);
	CHECK(vmkv_pages_slab(&s.pages, 16) == second);
	CHECK_EQ(vmkv_pages_offset(&s.pages, 27), 11 * PAGE_BYTES);
	check_store(&s);
	store_end(&s);
}

/* Three slabs of 8 pages; one page of the middle one is in use. */
static void only_wholly_free_slabs_go(void)
{
	struct vmkv_slab *slabs[3];
	struct vmkv_run run;
	struct store s;
	uint32_t from = 0;

	store_begin(&s, PAGE_BYTES, 4 * MIB);
	for (int i = 0; i < 3; i++)
		slabs[i] = store_add(&s, 4 * MIB, i == 0);
	run = (struct vmkv_run){ 9, 1 };
	move(&s, run, VMKV_PAGE_FREE_DIRTY, VMKV_PAGE_ZEROING);
	CHECK(vmkv_pages_remove_free_slab(&s.pages, &from) == slabs[0]);
	check_store(&s);
	CHECK_EQ(s.pages.count[VMKV_PAGE_FREE_CLEAN], 0);
	CHECK(vmkv_pages_remove_free_slab(&s.pages, &from) == slabs[2]);
	CHECK(vmkv_pages_remove_free_slab(&s.pages, &from) == NULL);
	CHECK(vmkv_pages_remove_free_slab(&s.pages, &from) == NULL);
	check_store(&s);
	CHECK_EQ(s.pages.total, 8);
	move(&s, run, VMKV_PAGE_ZEROING, VMKV_PAGE_FREE_CLEAN);
	from = 0;
	CHECK(vmkv_pages_remove_free_slab(&s.pages, &from) == slabs[1]);
	check_store(&s);
	CHECK_EQ(s.pages.total, 0);
	CHECK_RUN(take(&s, VMKV_PAGE_NONE, 0, 1, true), VMKV_PAGE_NONE, 0);
	store_end(&s);
}

static void a_slabs_number_is_used_again(void)
{
	struct vmkv_slab *slab;
	struct store s;
	uint32_t from = 1;

	store_begin(&s, PAGE_BYTES, 4 * MIB);
	for (int i = 0; i < 3; i++)
		store_add(&s, 4 * MIB, true);
	CHECK(vmkv_pages_remove_free_slab(&s.pages, &from) == &s.slabs[1]);
	slab = store_add(&s, 1 * MIB, true);
	CHECK(vmkv_pages_slab(&s.pages, 8) == slab);
	check_store(&s);
	store_end(&s);
}

/* A slab of 5 pages, the last of which is a stretch by itself. */
static void a_short_slab_comes_and_goes(void)
{
	struct store s;
	uint32_t from = 0;

	store_begin(&s, PAGE_BYTES, 8 * MIB);
	store_add(&s, 5 * PAGE_BYTES, true);
	check_store(&s);
	CHECK_EQ(s.pages.slabs[0].whole, 1);
	CHECK(vmkv_pages_remove_free_slab(&s.pages, &from) == &s.slabs[0]);
	check_store(&s);
	store_end(&s);
}

static void pages_of_2_mib_are_stretches(void)
{
	struct vmkv_run run;
	struct store s;

	store_begin(&s, 2 * MIB, 8 * MIB);
	store_add(&s, 6 * MIB, false);
	check_store(&s);
	for (uint32_t i = 0; i < 3; i++) {
		run = take(&s, i > 0 ? i - 1 : VMKV_PAGE_NONE, i, 3, false);
		CHECK_RUN(run, i, 1);
		check_store(&s);
	}
	CHECK_RUN(take(&s, 2, 3, 1, true), VMKV_PAGE_NONE, 0);
	vmkv_pages_put_back(&s.pages, run);
	CHECK_RUN(take(&s, 0, 1, 1, false), 2, 1);
	store_end(&s);
}

/* ---- tables --------------------------------------------------------------------------------- */

static void tables_take_few_bytes_a_page(void)
{
	struct store s;
	uint64_t empty, with_slabs;
	uint32_t from = 0;

	store_begin(&s, 64 * KIB, 64 * MIB);
	store_add(&s, 64 * MIB, true);
	empty = s.pages.table_bytes;
	store_add(&s, 64 * MIB, true);
	store_add(&s, 64 * MIB, true);
	with_slabs = s.pages.table_bytes - empty;
	/* A byte of state a page, for each stretch of 32 pages a word of bits and 3 numbers, and a
	 * bit for each of these 32. */
	CHECK_EQ(with_slabs, 2 * (1024 + 32 * (8 + 12) + 8));
	CHECK(vmkv_pages_remove_free_slab(&s.pages, &from));
	CHECK(vmkv_pages_remove_free_slab(&s.pages, &from));
	CHECK_EQ(s.pages.table_bytes, empty);
	store_end(&s);
}

/* Slabs of 2^14 pages: with 2^18 of them the last page would be numbered VMKV_PAGE_NONE. */
static void pages_past_their_numbers(void)
{
	static struct vmkv_slab slab = { .bytes = 4 * KIB };
	uint32_t most = (1 << 18) - 1, before = most - 2;
	struct vmkv_pages pages;

	CHECK_EQ(vmkv_pages_init(&pages, 4 * KIB, 64 * MIB), 0);
	pages.slabs = calloc(before, sizeof(*pages.slabs));
	CHECK(pages.slabs);
	pages.slab_count = before; /* as if they were all in use */
	pages.slabs_in_use = before;
	CHECK_EQ(vmkv_pages_add_slab(&pages, &slab, true), 0);
	pages.slabs_in_use = before + 1;
	for (uint32_t i = 0; i < before; i++)
		pages.slabs[i].slab = &slab;
	CHECK_EQ(vmkv_pages_add_slab(&pages, &slab, true), 0);
	CHECK_EQ(vmkv_pages_add_slab(&pages, &slab, true), -EOVERFLOW);
	CHECK_EQ(pages.slabs_in_use, most);
	vmkv_pages_fini(&pages);
}

int main(void)
{
	RUN(the_life_has_these_edges_and_no_others);
	RUN(a_page_goes_all_the_way_round);
	RUN(a_run_may_lie_in_several_stretches);
	RUN(what_is_put_back_is_as_it_was);
	RUN(dirty_pages_are_listed_until_filled);
	RUN(pages_know_their_slab_and_offset);
	RUN(slabs_of_any_size_have_round_numbers);
	RUN(only_wholly_free_slabs_go);
	RUN(a_slabs_number_is_used_again);
	RUN(a_short_slab_comes_and_goes);
	RUN(pages_of_2_mib_are_stretches);
	RUN(tables_take_few_bytes_a_page);
	RUN(pages_past_their_numbers);
	return 0;
}
