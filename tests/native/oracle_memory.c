/* SPDX-License-Identifier: MIT
 *
 * After each operation: whether memory can be used when it is said to be, is zero at first, and keeps
 * what a sequence wrote.
 */
#include "oracle.h"

#include <inttypes.h>

#include "check.h"

/* ---- what can be used ------------------------------------------------------------------------ */

/* The longest length that the slot's memory is enough for. */
static uint32_t mapped_tokens(const struct oracle *o, uint32_t s)
{
	uint32_t least = o->info.max_tokens;

	for (uint32_t r = 0; r < o->region_count; r++) {
		const struct oracle_region *region = &o->regions[r];
		uint64_t bytes = 0, tokens = least;

		for (uint32_t p = 0; p < region->pages; p++) {
			if (o->slots[s].pages[r][p].state == ORACLE_USED)
				bytes = (p + 1) * o->info.page_bytes;
		}
		if (region->fixed_bytes > 0 && bytes < region->fixed_bytes)
			tokens = 0;
		if (region->fixed_bytes == 0)
			tokens = bytes / region->token_bytes / o->info.read_align_tokens *
			         o->info.read_align_tokens;
		least = tokens < least ? (uint32_t)tokens : least;
	}
	return least;
}

static void check_usable(const struct oracle *o, uint32_t s, uint32_t tokens)
{
	for (uint32_t r = 0; r < o->region_count; r++) {
		const struct oracle_region *region = &o->regions[r];
		uint32_t end = oracle_region_pages(o, region, tokens);

		for (uint32_t p = oracle_dead_pages(o, region, o->slots[s].previous); p < end; p++) {
			if (!checking_usable(o->device, oracle_address(o, s, r, p), 1))
				oracle_fail(o,
				            "slot %u, region %u, page %u can't be used yet, of %u "
				            "tokens that were said to be ready",
				            s, r, p, tokens);
		}
	}
}

void oracle_check_ready(struct oracle *o, const struct oracle_allowed *allowed)
{
	const uint32_t *told = vmkv_ready_tokens(o->cache);

	for (uint32_t s = 0; s < o->slot_count; s++) {
		struct oracle_slot *slot = &o->slots[s];
		uint32_t now = __atomic_load_n(&told[s], __ATOMIC_ACQUIRE), mapped = 0;

		if (slot->state == ORACLE_OPEN)
			mapped = mapped_tokens(o, s);
		bool reached = vmkv_device_reached(o->device, slot->ready);
		bool seen = !o->lag || (allowed->look && reached);

		/* It may not have been seen yet that what was mapped last is ready. */
		if (now != mapped && (seen || now != slot->ready_tokens || mapped < now))
			oracle_fail(o, "slot %u: %u tokens are said to be ready, before %u, not %u", s,
			            now, slot->ready_tokens, mapped);
		if (now != slot->ready_tokens)
			check_usable(o, s, now);
		slot->ready_tokens = now;
		if (slot->state != ORACLE_OPEN || !reached)
			continue;
		o->seen.late += slot->ready > 0;
		slot->ready = 0;
		check_usable(o, s, mapped);
	}
}

/* ---- what is there --------------------------------------------------------------------------- */

static uint64_t stamp_address(const struct oracle *o, const struct oracle_look *look)
{
	const uint64_t page = o->info.page_bytes;
	const uint64_t at[ORACLE_STAMPS] = { 0, page / 2 - 64, page - 8 };

	return oracle_address(o, look->slot, look->region, look->page) + at[look->stamp];
}

static uint64_t stamp_value(const struct oracle *o, const struct oracle_look *look)
{
	return o->slots[look->slot].serial << 32 | (uint64_t)look->region << 24 |
	       (uint64_t)look->page << 4 | (look->stamp + 1);
}

static void look_add(struct oracle *o, struct oracle_look look)
{
	if (o->word_count == o->word_capacity) {
		o->word_capacity = 2 * o->word_capacity + 256;
		o->words = realloc(o->words, o->word_capacity * sizeof(*o->words));
		o->looks = realloc(o->looks, o->word_capacity * sizeof(*o->looks));
		CHECK(o->words && o->looks);
	}
	o->looks[o->word_count] = look;
	o->words[o->word_count++].address = stamp_address(o, &look);
}

/* List what to look at: one stamp of pages that hold them, all of those that begin now. */
static void looks_list(struct oracle *o, bool begins)
{
	o->word_count = 0;
	for (uint32_t s = 0; s < o->slot_count; s++) {
		const struct oracle_slot *slot = &o->slots[s];
		bool ready = vmkv_device_reached(o->device, slot->ready);

		for (uint32_t r = 0; slot->state == ORACLE_OPEN && r < o->region_count; r++) {
			for (uint32_t p = 0; p < o->regions[r].pages; p++) {
				const struct oracle_page *page = &slot->pages[r][p];
				uint32_t i = (uint32_t)(o->operation % ORACLE_STAMPS);
				uint32_t end = begins ? ORACLE_STAMPS : i + 1;

				if (page->state != ORACLE_USED || page->stamped == begins ||
				    (begins && !ready))
					continue;
				for (i = begins ? 0 : i; i < end; i++)
					look_add(o, (struct oracle_look){ s, r, p, i });
			}
		}
	}
}

static void stamp_check(const struct oracle *o, size_t i)
{
	const struct oracle_look *look = &o->looks[i];
	uint64_t expected = stamp_value(o, look);

	if (o->words[i].value != expected)
		oracle_fail(o,
		            "slot %u, region %u, page %u: holds 0x%" PRIx64
		            " at stamp %u, not 0x%" PRIx64,
		            look->slot, look->region, look->page, o->words[i].value, look->stamp,
		            expected);
}

static void stamp_begin(struct oracle *o, size_t i)
{
	const struct oracle_look *look = &o->looks[i];

	if (o->zero && o->words[i].value != 0)
		oracle_fail(o,
		            "slot %u, region %u, page %u: new memory holds 0x%" PRIx64 " at stamp %u",
		            look->slot, look->region, look->page, o->words[i].value, look->stamp);
	o->slots[look->slot].pages[look->region][look->page].stamped = true;
	o->words[i].value = stamp_value(o, look);
	o->seen.zero_checked += o->zero && look->stamp == 0;
}

void oracle_check_contents(struct oracle *o)
{
	looks_list(o, false);
	memory_words_read(o->memory, o->words, o->word_count);
	for (size_t i = 0; i < o->word_count; i++)
		stamp_check(o, i);
	o->seen.stamps_checked += o->word_count;
	looks_list(o, true);
	memory_words_read(o->memory, o->words, o->word_count);
	for (size_t i = 0; i < o->word_count; i++)
		stamp_begin(o, i);
	memory_words_write(o->memory, o->words, o->word_count);
}
