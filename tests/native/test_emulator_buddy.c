/* SPDX-License-Identifier: MIT
 *
 * The buddy allocator of the emulated card's heaps, against a map of pages.
 */
#include <errno.h>

#include "check.h"
#include "memory_parts.h"
#include "seeded.h"

#define MANY (1ULL << 19)

static struct emu_buddy *buddy_of(uint64_t pages)
{
	struct emu_buddy *buddy = emu_buddy_create(pages);

	CHECK(buddy != NULL);
	return buddy;
}

static uint32_t take(struct emu_buddy *buddy, uint64_t pages, uint64_t least, uint64_t most,
                     struct emu_block **blocks)
{
	uint32_t count = 0;

	CHECK_EQ(emu_buddy_allocate(buddy, pages, least, most, blocks, &count), 0);
	return count;
}

static void a_block_is_a_power_of_two_at_a_multiple_of_its_size(void)
{
	struct emu_buddy *buddy = buddy_of(1024);
	struct emu_block *blocks;
	uint32_t count = take(buddy, 1 + 2 + 8 + 256, 1, MANY, &blocks);

	CHECK_EQ(count, 4);
	CHECK_EQ(blocks[0].pages, 256);
	CHECK_EQ(blocks[1].pages, 8);
	CHECK_EQ(blocks[2].pages, 2);
	CHECK_EQ(blocks[3].pages, 1);
	for (uint32_t i = 0; i < count; i++)
		CHECK_EQ(blocks[i].page % blocks[i].pages, 0);
	CHECK_EQ(emu_buddy_used(buddy), 267);
	free(blocks);
	emu_buddy_destroy(buddy);
}

static void a_range_that_is_no_power_of_two_is_used_to_its_last_page(void)
{
	const uint64_t sizes[] = { 1, 3, 1000, 4095, 4097, 262143 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct emu_buddy *buddy = buddy_of(sizes[i]);
		struct emu_block *blocks, *more;
		uint32_t count;

		(void)take(buddy, sizes[i], 1, MANY, &blocks);
		CHECK_EQ(emu_buddy_used(buddy), sizes[i]);
		CHECK_EQ(emu_buddy_allocate(buddy, 1, 1, MANY, &more, &count), -ENOSPC);
		free(blocks);
		emu_buddy_destroy(buddy);
	}
}

/* before:   [0, 256) free but for pages 64 and 192
 * request:  192 pages in blocks of 64          after: refused, although 254 are free
 * request:  128 pages in blocks of 64          after: [0, 64) and [128, 192) are taken too */
static void no_block_is_smaller_than_asked(void)
{
	struct emu_buddy *buddy = buddy_of(256);
	struct emu_block *all, *blocks;
	uint32_t count;

	(void)take(buddy, 256, 256, 256, &all);
	emu_buddy_free(buddy, 0, 64);
	emu_buddy_free(buddy, 65, 127);
	emu_buddy_free(buddy, 193, 63);
	free(all);
	CHECK_EQ(emu_buddy_used(buddy), 2);
	CHECK_EQ(emu_buddy_allocate(buddy, 192, 64, MANY, &blocks, &count), -ENOSPC);
	CHECK_EQ(emu_buddy_used(buddy), 2); /* nothing is kept of what was refused */
	count = take(buddy, 128, 64, MANY, &blocks);
	CHECK_EQ(count, 2);
	free(blocks);
	emu_buddy_destroy(buddy);
}

static void no_block_is_larger_than_asked(void)
{
	struct emu_buddy *buddy = buddy_of(1 << 14);
	struct emu_block *blocks;
	uint32_t count = take(buddy, 4096, 1, 1024, &blocks);

	CHECK_EQ(count, 4);
	free(blocks);
	emu_buddy_destroy(buddy);
}

static void halves_that_are_free_merge(void)
{
	struct emu_buddy *buddy = buddy_of(1024);
	struct emu_block *blocks, *all;

	(void)take(buddy, 1024, 1, 1, &blocks);
	for (uint64_t i = 0; i < 1024; i++)
		emu_buddy_free(buddy, (i * 611) % 1024, 1);
	CHECK_EQ(emu_buddy_used(buddy), 0);
	CHECK_EQ(take(buddy, 1024, 1024, 1024, &all), 1);
	free(blocks);
	free(all);
	emu_buddy_destroy(buddy);
}

static void a_run_takes_no_more_than_its_pages(void)
{
	struct emu_buddy *buddy = buddy_of(1024);
	uint64_t first, second, third;

	CHECK_EQ(emu_buddy_allocate_run(buddy, 513, &first), 0);
	CHECK_EQ(emu_buddy_used(buddy), 513);
	CHECK_EQ(emu_buddy_allocate_run(buddy, 256, &second), 0);
	CHECK(second >= first + 513 || second + 256 <= first);
	CHECK_EQ(emu_buddy_allocate_run(buddy, 256, &third), -ENOSPC);
	emu_buddy_free(buddy, first, 513);
	emu_buddy_free(buddy, second, 256);
	CHECK_EQ(emu_buddy_allocate_run(buddy, 1024, &first), 0);
	emu_buddy_destroy(buddy);
}

static void a_page_leads_to_its_owner(void)
{
	struct emu_buddy *buddy = buddy_of(1000);
	struct emu_block *blocks;
	uint32_t count = take(buddy, 24, 1, MANY, &blocks);
	uint64_t page, pages;
	int owner;

	CHECK_EQ(count, 2);
	emu_buddy_own(buddy, blocks[0].page, &owner, 100);
	CHECK(emu_buddy_find(buddy, blocks[0].page + 5, &page, &pages) == &owner);
	CHECK_EQ(page, 105);
	CHECK_EQ(pages, 11);
	CHECK(emu_buddy_find(buddy, blocks[1].page, &page, &pages) == NULL);
	/* A part that is given back isn't his; the rest still is, by the same numbers. */
	emu_buddy_free(buddy, blocks[0].page, 4);
	CHECK(emu_buddy_find(buddy, blocks[0].page + 3, &page, &pages) == NULL);
	CHECK(emu_buddy_find(buddy, blocks[0].page + 13, &page, &pages) == &owner);
	CHECK_EQ(page, 113);
	CHECK(emu_buddy_find(buddy, 1000, &page, &pages) == NULL);
	CHECK(emu_buddy_find(buddy, UINT64_MAX, &page, &pages) == NULL);
	free(blocks);
	emu_buddy_destroy(buddy);
}

/* ---- at random ------------------------------------------------------------------------------- */

#define PAGES 3001
#define HELD 64

struct held {
	struct emu_block *blocks;
	uint32_t count;
};

static int owners[HELD];

static void held_check(struct emu_buddy *buddy, const int8_t *map)
{
	uint64_t used = 0;

	for (uint64_t i = 0; i < PAGES; i++) {
		uint64_t page, pages;
		const int *owner = emu_buddy_find(buddy, i, &page, &pages);

		used += map[i] >= 0;
		CHECK_EQ(owner ? owner - owners : -1, map[i]);
	}
	CHECK_EQ(emu_buddy_used(buddy), used);
}

static void held_take(struct emu_buddy *buddy, struct held *held, int8_t *map, int who,
                      uint64_t pages, uint64_t least)
{
	uint64_t number = 0;
	int error = emu_buddy_allocate(buddy, pages, least, MANY, &held->blocks, &held->count);

	if (error) {
		CHECK_EQ(error, -ENOSPC);
		held->count = 0;
		return;
	}
	for (uint32_t i = 0; i < held->count; i++) {
		const struct emu_block *block = &held->blocks[i];

		CHECK(block->pages >= least);
		emu_buddy_own(buddy, block->page, &owners[who], number);
		number += block->pages;
		for (uint64_t j = 0; j < block->pages; j++) {
			CHECK_EQ(map[block->page + j], -1);
			map[block->page + j] = (int8_t)who;
		}
	}
	CHECK_EQ(number, pages);
}

static void held_give(struct emu_buddy *buddy, struct held *held, int8_t *map)
{
	for (uint32_t i = 0; i < held->count; i++) {
		emu_buddy_free(buddy, held->blocks[i].page, held->blocks[i].pages);
		memset(map + held->blocks[i].page, -1, held->blocks[i].pages);
	}
	free(held->blocks);
	*held = (struct held){ 0 };
}

static void fill_free_and_refill_agree_with_a_map(void)
{
	struct emu_buddy *buddy = buddy_of(PAGES);
	struct held held[HELD] = { 0 };
	int8_t map[PAGES];
	struct emu_block *blocks;
	struct seeded seeded = seeded_begin("buddy");

	memset(map, -1, sizeof(map));
	for (int step = 0; step < 3000; step++) {
		int who = (int)(seeded_next(&seeded) % HELD);
		uint64_t least = 1ULL << seeded_next(&seeded) % 4;

		if (held[who].count)
			held_give(buddy, &held[who], map);
		else
			held_take(buddy, &held[who], map, who,
			          (1 + seeded_next(&seeded) % 30) * least, least);
		if (step % 10 == 0)
			held_check(buddy, map);
	}
	for (int who = 0; who < HELD; who++)
		held_give(buddy, &held[who], map);
	held_check(buddy, map);
	/* 3001 = 2048 + 512 + 256 + 128 + 32 + 16 + 8 + 1: whole again */
	CHECK_EQ(take(buddy, PAGES, 1, MANY, &blocks), 8);
	free(blocks);
	emu_buddy_destroy(buddy);
}

int main(void)
{
	RUN(a_block_is_a_power_of_two_at_a_multiple_of_its_size);
	RUN(a_range_that_is_no_power_of_two_is_used_to_its_last_page);
	RUN(no_block_is_smaller_than_asked);
	RUN(no_block_is_larger_than_asked);
	RUN(halves_that_are_free_merge);
	RUN(a_run_takes_no_more_than_its_pages);
	RUN(a_page_leads_to_its_owner);
	RUN(fill_free_and_refill_agree_with_a_map);
	return 0;
}
