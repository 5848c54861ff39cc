/* SPDX-License-Identifier: MIT
 *
 * After each operation: whether memory can be used when it is said to be, is zero at first, and keeps
 * what a sequence wrote.
 */
#include "oracle.h"

#include <inttypes.h>

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

static uint64_t *stamp_place(const struct oracle *o, uint64_t address, uint32_t i)
{
	const uint64_t page = o->info.page_bytes;
	const uint64_t at[ORACLE_STAMPS] = { 0, page / 2 - 64, page - 8 };

	return (uint64_t *)(uintptr_t)(address + at[i]);
}

static uint64_t stamp_value(const struct oracle_slot *slot, uint32_t r, uint32_t p, uint32_t i)
{
	return slot->serial << 32 | (uint64_t)r << 24 | (uint64_t)p << 4 | (i + 1);
}

static void page_begin(struct oracle *o, uint32_t s, uint32_t r, uint32_t p)
{
	const struct oracle_slot *slot = &o->slots[s];
	uint64_t address = oracle_address(o, s, r, p);

	for (uint32_t i = 0; i < ORACLE_STAMPS; i++) {
		uint64_t *word = stamp_place(o, address, i);

		if (o->zero && *word != 0)
			oracle_fail(o,
			            "slot %u, region %u, page %u: new memory holds 0x%" PRIx64
			            " at stamp %u",
			            s, r, p, *word, i);
		*word = stamp_value(slot, r, p, i);
	}
	o->seen.zero_checked += o->zero;
}

static void page_check(struct oracle *o, uint32_t s, uint32_t r, uint32_t p, uint32_t i)
{
	uint64_t found = *stamp_place(o, oracle_address(o, s, r, p), i);
	uint64_t expected = stamp_value(&o->slots[s], r, p, i);

	if (found != expected)
		oracle_fail(o,
		            "slot %u, region %u, page %u: holds 0x%" PRIx64
		            " at stamp %u, not 0x%" PRIx64,
		            s, r, p, found, i, expected);
	o->seen.stamps_checked++;
}

void oracle_check_contents(struct oracle *o)
{
	for (uint32_t s = 0; s < o->slot_count; s++) {
		const struct oracle_slot *slot = &o->slots[s];
		bool ready = vmkv_device_reached(o->device, slot->ready);

		for (uint32_t r = 0; slot->state == ORACLE_OPEN && r < o->region_count; r++) {
			for (uint32_t p = 0; p < o->regions[r].pages; p++) {
				struct oracle_page *page = &slot->pages[r][p];

				if (page->state != ORACLE_USED)
					continue;
				if (page->stamped)
					page_check(o, s, r, p,
					           (uint32_t)(o->operation % ORACLE_STAMPS));
				else if (ready)
					page_begin(o, s, r, p);
				page->stamped |= ready;
			}
		}
	}
}
