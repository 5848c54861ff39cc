/* SPDX-License-Identifier: MIT
 *
 * Where a growing span gets its next pages from. In the pictures a letter is a page of that span,
 * `.` a free one, `|` the border of a stretch of 4 pages, `||` that of a slab.
 */
#include "pages_fixture.h"

#define NONE VMKV_PAGE_NONE

static void begin(struct store *s, int stretches)
{
	store_begin(s, PAGE_BYTES, 16 * MIB);
	store_add(s, (uint64_t)stretches * 2 * MIB, true);
}

/* Make the pages [page, page + n) somebody's, for a picture. */
static void occupy(struct store *s, uint32_t page, uint32_t n)
{
	move(s, (struct vmkv_run){ page, n }, VMKV_PAGE_FREE_CLEAN, VMKV_PAGE_HELD);
}

static void release(struct store *s, uint32_t page, uint32_t n)
{
	use_and_give_back(s, (struct vmkv_run){ page, n });
}

/* 1. a grows by 1, b by 1, a by 2, b by 3:   a a a . | b b b b */
static void spans_in_turn_get_a_stretch_each(void)
{
	struct store s;

	begin(&s, 2);
	CHECK_RUN(take(&s, NONE, 0, 1, false), 0, 1);
	CHECK_RUN(take(&s, NONE, 0, 1, false), 4, 1);
	CHECK_RUN(take(&s, 0, 1, 2, false), 1, 2);
	CHECK_RUN(take(&s, 4, 1, 3, false), 5, 3);
	store_end(&s);
}

/* 1. a begins at page 6 of its span, which is place 2 of a stretch:   . . a . */
static void a_page_has_its_place_of_the_addresses(void)
{
	struct store s;

	begin(&s, 2);
	CHECK_RUN(take(&s, NONE, 6, 1, false), 2, 1);
	/* 2. wants 3 from page 7 on, but the stretch ends behind it:   . . a a */
	CHECK_RUN(take(&s, 2, 7, 3, false), 3, 1);
	store_end(&s);
}

/* 1. before    a a a a | . . . . | . . . .
 * 2. a grows   a a a a | a a . . | . . . . */
static void at_a_stretchs_end_the_next_goes_on(void)
{
	struct store s;

	begin(&s, 3);
	CHECK_RUN(take(&s, NONE, 0, 4, false), 0, 4);
	CHECK_RUN(take(&s, 3, 4, 2, false), 4, 2);
	store_end(&s);
}

/* 1. before    a a a a | b . . . | . . . .
 * 2. a grows   a a a a | b . . . | a a . . */
static void but_not_if_somebody_has_begun_it(void)
{
	struct store s;

	begin(&s, 3);
	CHECK_RUN(take(&s, NONE, 0, 4, false), 0, 4);
	CHECK_RUN(take(&s, NONE, 0, 1, false), 4, 1);
	CHECK_RUN(take(&s, 3, 4, 2, false), 8, 2);
	store_end(&s);
}

/* 1. before    b b b . | a a a a | b b . . | . . . .      (a shares, out of its place by one)
 * 2. a grows   b b b . | a a a a | b b . . | . . . a      page 7 of its span */
static void a_span_out_of_place_goes_back_to_its_place(void)
{
	struct store s;

	begin(&s, 4);
	occupy(&s, 0, 3);
	occupy(&s, 4, 4);
	occupy(&s, 8, 2);
	CHECK_RUN(take(&s, 7, 7, 2, false), 15, 1);
	store_end(&s);
}

/* 1. before    . . . . | b b b . | a a a a | . . . .
 * 2. a grows by 2, out of place at page 6 of its span: the next stretch would not fit
 *              . . a a | b b b . | a a a a | . . . . */
static void a_next_stretch_must_fit_the_place(void)
{
	struct store s;

	begin(&s, 4);
	occupy(&s, 4, 3);
	occupy(&s, 8, 4);
	CHECK_RUN(take(&s, 11, 6, 2, false), 2, 2);
	store_end(&s);
}

/* 1. before    . . . . | b b b . | . . . . | . . . . | . . . .
 * 2. 10 pages from place 0 need 3 stretches in a row
 *              . . . . | b b b . | a a a a | a a a a | a a . . */
static void many_pages_get_neighbouring_stretches(void)
{
	struct vmkv_run run;
	struct store s;

	begin(&s, 5);
	occupy(&s, 4, 3);
	run = take(&s, NONE, 0, 10, false);
	CHECK_RUN(run, 8, 4);
	run = take(&s, run.page + 3, 4, 6, false);
	CHECK_RUN(run, 12, 4);
	CHECK_RUN(take(&s, run.page + 3, 8, 2, false), 16, 2);
	store_end(&s);
}

/* 5 pages from place 3 reach into the second stretch: 2 in a row.
 * 1. before    . . . . | b . . . | . . . . | . . . .
 * 2. after     . . . . | b . . . | . . . a | a a a a */
static void the_place_counts_for_how_many(void)
{
	struct store s;

	begin(&s, 4);
	occupy(&s, 4, 1);
	CHECK_RUN(take(&s, NONE, 3, 5, false), 11, 1);
	CHECK_RUN(take(&s, 11, 4, 4, false), 12, 4);
	store_end(&s);
}

/* 1. before    . . . . | b . . . | . . . . | . . . . | b . . .
 * 2. 12 pages would need 3 in a row, and the longest is 2
 *              . . . . | b . . . | a a a a | . . . . | b . . . */
static void else_the_longest_row_will_do(void)
{
	struct store s;

	begin(&s, 5);
	occupy(&s, 4, 1);
	occupy(&s, 16, 1);
	CHECK_RUN(take(&s, NONE, 0, 12, false), 8, 4);
	store_end(&s);
}

/* Slabs with 8, 2 and 5 whole stretches. */
static void three_slabs(struct store *s)
{
	begin(s, 8);
	store_add(s, 16 * MIB, true);
	store_add(s, 16 * MIB, true);
	occupy(s, 32, 24);
	occupy(s, 64, 12);
}

static void the_fullest_slab_that_will_do(void)
{
	static const struct {
		uint32_t n, page;
	} wants[] = {
		{ 1, 56 },  /* 1 stretch: the slab with 2 */
		{ 8, 56 },  /* 2 */
		{ 9, 76 },  /* 3: the slab with 5 */
		{ 20, 76 }, /* 5 */
		{ 21, 0 },  /* 6: the slab with 8 */
		{ 32, 0 },
		{ 1000, 0 }, /* more than a slab has */
	};

	for (size_t i = 0; i < sizeof(wants) / sizeof(*wants); i++) {
		struct store s;

		three_slabs(&s);
		CHECK_EQ(take(&s, NONE, 0, wants[i].n, false).page, wants[i].page);
		check_store(&s);
		store_end(&s);
	}
}

static void else_the_slab_with_the_most(void)
{
	struct store s;

	three_slabs(&s);
	occupy(&s, 0, 16); /* 4 stretches are left there: slabs have 4, 2 and 5 */
	CHECK_EQ(take(&s, NONE, 0, 32, false).page, 76);
	store_end(&s);
}

/* a . . . | b . . . : c must share, but only if told so. */
static void no_whole_stretch_is_left(void)
{
	struct store s;

	begin(&s, 2);
	CHECK_RUN(take(&s, NONE, 0, 1, false), 0, 1);
	CHECK_RUN(take(&s, NONE, 0, 1, false), 4, 1);
	CHECK_RUN(take(&s, NONE, 0, 1, false), NONE, 0);
	CHECK_RUN(take(&s, 0, 1, 1, false), 1, 1); /* those who are there go on */
	CHECK(take(&s, NONE, 0, 1, true).n == 1);
	store_end(&s);
}

/* 1. before   a a . . | b . . . | c c c .
 * 2. d takes from the emptiest stretch, from the middle of its free run on:
 *             a a . . | b . d d | c c c .
 * 3. b goes on from below; e finds the run of 2 of a, and leaves it one:
 *             a a . e | b b d d | c c c . */
static void the_emptiest_is_shared_from_its_middle(void)
{
	struct store s;

	begin(&s, 3);
	occupy(&s, 0, 2);
	occupy(&s, 4, 1);
	occupy(&s, 8, 3);
	CHECK_RUN(take(&s, NONE, 0, 2, true), 6, 2);
	CHECK_RUN(take(&s, 4, 1, 1, true), 5, 1);
	CHECK_RUN(take(&s, NONE, 0, 2, true), 3, 1);
	store_end(&s);
}

/* 1. before   . . a . : the longest run begins the stretch, so nobody grows into it from below
 * 2. after    b b a . */
static void a_run_that_begins_a_stretch_is_taken_whole(void)
{
	struct store s;

	begin(&s, 1);
	occupy(&s, 2, 1);
	CHECK_RUN(take(&s, NONE, 3, 4, true), 0, 2);
	CHECK_RUN(take(&s, NONE, 0, 1, true), 3, 1);
	CHECK_RUN(take(&s, NONE, 0, 1, true), NONE, 0);
	store_end(&s);
}

/* Stretches of 32 pages:
 * 1. before   a, 5 free, b, 10 free, c, the other 14 free
 * 2. d takes 7 pages from the middle of the longest run: from 25 on */
static void the_longest_run_of_the_stretch(void)
{
	struct store s;

	store_begin(&s, 64 * KIB, 2 * MIB);
	store_add(&s, 2 * MIB, true);
	occupy(&s, 0, 1);
	occupy(&s, 6, 1);
	occupy(&s, 17, 1);
	CHECK_RUN(take(&s, NONE, 0, 9, true), 25, 7);
	CHECK_RUN(take(&s, NONE, 0, 9, true), 12, 5); /* then of the 10 */
	store_end(&s);
}

/* Stretches of 512 pages: runs go on through the words of the bits. */
static void runs_go_through_words(void)
{
	struct store s;

	store_begin(&s, 4 * KIB, 2 * MIB);
	store_add(&s, 2 * MIB, true);
	CHECK_RUN(take(&s, NONE, 60, 300, false), 60, 300);
	check_store(&s);
	CHECK_RUN(take(&s, 359, 360, 300, false), 360, 152);
	check_store(&s);
	CHECK_RUN(take(&s, NONE, 0, 300, true), 0, 60);
	check_store(&s);
	release(&s, 100, 200);
	check_store(&s);
	CHECK_RUN(take(&s, 110, 0, 300, false), 111, 189); /* behind 110, up to what is in use */
	CHECK_RUN(take(&s, NONE, 0, 300, true), 105, 6);
	CHECK_RUN(take(&s, NONE, 0, 300, true), 102, 3);
	check_store(&s);
	store_end(&s);
}

/* A slab of 6 pages: | . . . . | . . || . Its end is no whole stretch, and is used last. */
static void a_short_slabs_end(void)
{
	struct store s;

	store_begin(&s, PAGE_BYTES, 16 * MIB);
	store_add(&s, 6 * PAGE_BYTES, true);
	CHECK_RUN(take(&s, NONE, 0, 8, false), 0, 4);
	CHECK_RUN(take(&s, 3, 4, 4, false), NONE, 0);
	CHECK_RUN(take(&s, 3, 4, 4, true), 4, 2);
	CHECK_RUN(take(&s, 5, 6, 4, true), NONE, 0);
	check_store(&s);
	store_end(&s);
}

/* a a a a || . . . . : the page behind a slab's last is another slab's. */
static void nothing_goes_on_behind_a_slab(void)
{
	struct store s;

	store_begin(&s, PAGE_BYTES, 2 * MIB);
	store_add(&s, 2 * MIB, true);
	CHECK_RUN(take(&s, NONE, 0, 4, false), 0, 4);
	CHECK_RUN(take(&s, 3, 4, 1, true), NONE, 0);
	store_add(&s, 2 * MIB, true);
	CHECK_RUN(take(&s, 3, 6, 1, true), 6, 1); /* at its place, not at 4 */
	store_end(&s);
}

/* 1. before   a a a a | a a a a || a a a a | a a a a
 * 2. freed    a . . a | . . . . || . . . . | . . . .
 * 3. one of each is taken: the slab with one whole stretch fills up before the other is touched */
static void slabs_drain(void)
{
	struct store s;

	store_begin(&s, PAGE_BYTES, 4 * MIB);
	store_add(&s, 4 * MIB, true);
	store_add(&s, 4 * MIB, true);
	occupy(&s, 0, 8);
	occupy(&s, 8, 8);
	release(&s, 8, 8);
	release(&s, 1, 2);
	release(&s, 4, 4);
	CHECK_EQ(take(&s, NONE, 0, 1, true).page, 4);
	CHECK_EQ(take(&s, NONE, 0, 1, true).page, 8);
	store_end(&s);
}

int main(void)
{
	RUN(spans_in_turn_get_a_stretch_each);
	RUN(a_page_has_its_place_of_the_addresses);
	RUN(at_a_stretchs_end_the_next_goes_on);
	RUN(but_not_if_somebody_has_begun_it);
	RUN(a_span_out_of_place_goes_back_to_its_place);
	RUN(a_next_stretch_must_fit_the_place);
	RUN(many_pages_get_neighbouring_stretches);
	RUN(the_place_counts_for_how_many);
	RUN(else_the_longest_row_will_do);
	RUN(the_fullest_slab_that_will_do);
	RUN(else_the_slab_with_the_most);
	RUN(no_whole_stretch_is_left);
	RUN(the_emptiest_is_shared_from_its_middle);
	RUN(a_run_that_begins_a_stretch_is_taken_whole);
	RUN(the_longest_run_of_the_stretch);
	RUN(runs_go_through_words);
	RUN(a_short_slabs_end);
	RUN(nothing_goes_on_behind_a_slab);
	RUN(slabs_drain);
	return 0;
}
