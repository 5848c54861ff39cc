/* SPDX-License-Identifier: MIT
 *
 * Slots and sequences: opening, closing, and where their spans lie.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"

#define GENERATION_MASK ((UINT32_C(1) << VMKV_GENERATION_BITS) - 1)

int vmkv_slot_find(struct vmkv_cache *cache, vmkv_seq seq, uint32_t *ret)
{
	uint32_t slot = vmkv_slot_of(seq);

	if (seq != 0 && slot < cache->layout.slot_count && cache->slots[slot].seq == seq) {
		if (cache->slots[slot].busy)
			return vmkv_cache_fail(cache, -EBUSY,
			                       "sequence %#" PRIx64 " (slot %u): another call is at work on it",
			                       seq, slot);
		*ret = slot;
		return 0;
	}
	if (seq == 0)
		return vmkv_cache_fail(cache, -ESTALE, "0 is not a sequence");
	if (seq >> (VMKV_SLOT_BITS + VMKV_GENERATION_BITS) != cache->tag)
		return vmkv_cache_fail(cache, -ESTALE,
		                       "sequence %#" PRIx64 " is not of this cache", seq);
	return vmkv_cache_fail(cache, -ESTALE,
	                       "sequence %#" PRIx64 " (slot %u) was closed", seq, slot);
}

/* ---- what a slot can do now ------------------------------------------------------------------ */

void vmkv_slot_publish(struct vmkv_cache *cache, uint32_t slot)
{
	struct vmkv_slot *s = &cache->slots[slot];

	vmkv_mirror_slot(cache, slot);
	if (s->state != VMKV_SLOT_OPEN)
		atomic_store_explicit(&cache->ready_tokens[slot], 0, memory_order_release);
	else if (s->ready_point == 0)
		atomic_store_explicit(&cache->ready_tokens[slot], s->mapped, memory_order_release);
}

static uint32_t used_end(const struct vmkv_span_table *table)
{
	const struct vmkv_piece *last;

	if (table->used == table->first)
		return 0;
	last = &table->pieces[table->used - 1];
	return last->page + last->n;
}

void vmkv_slot_refresh(struct vmkv_cache *cache, uint32_t slot)
{
	const struct vmkv_addresses *layout = &cache->layout;
	struct vmkv_slot *s = &cache->slots[slot];
	const struct vmkv_region *before = NULL;
	uint32_t mapped = layout->max_tokens, trim_at = UINT32_MAX, end_before = 0;

	for (uint32_t r = 0; r < layout->region_count; r++) {
		const struct vmkv_region *region = &layout->regions[r];
		const struct vmkv_span_table *table = &cache->cold[slot].spans[r];
		uint32_t end = used_end(table);

		/* Most regions are like the one before: that saves a division for each. */
		if (before == NULL || end != end_before ||
		    region->token_bytes != before->token_bytes ||
		    region->fixed_bytes != before->fixed_bytes) {
			uint32_t tokens = vmkv_region_tokens(layout, region, end);

			mapped = tokens < mapped ? tokens : mapped;
		}
		before = region;
		end_before = end;
		if (region->window && table->used > table->first) {
			const struct vmkv_piece *piece = &table->pieces[table->first];
			uint32_t at = vmkv_region_dead_at(layout, region, piece->page + piece->n);

			trim_at = at < trim_at ? at : trim_at;
		}
	}
	s->mapped = mapped;
	s->trim_at = trim_at;
}

void vmkv_slot_update_open(struct vmkv_cache *cache, uint32_t slot)
{
	const struct vmkv_slot *s = &cache->slots[slot];
	uint64_t bit = UINT64_C(1) << (slot % 64);

	vmkv_mirror_slot(cache, slot);

	bool idle = s->state == VMKV_SLOT_FREE && s->pending == 0 && !s->busy;
	bool used_up = cache->never_reuse && s->generation > 0;

	if (idle && !used_up)
		cache->open_bits[slot / 64] |= bit;
	else
		cache->open_bits[slot / 64] &= ~bit;
	if (idle && used_up)
		vmkv_slot_free_tables(cache, slot);
}

void vmkv_slots_advance(struct vmkv_cache *cache)
{
	for (uint32_t i = 0; cache->unready > 0 && i < cache->layout.slot_count; i++) {
		struct vmkv_slot *s = &cache->slots[i];

		if (s->ready_point == 0 || !vmkv_device_reached(cache->device, s->ready_point))
			continue;
		s->ready_point = 0;
		cache->unready--;
		vmkv_slot_publish(cache, i);
	}
}

/* ---- open ------------------------------------------------------------------------------------ */

static int slot_prepare(struct vmkv_cache *cache, uint32_t slot)
{
	struct vmkv_slot_cold *cold = &cache->cold[slot];

	if (cold->spans != NULL)
		return 0;
	cold->spans = calloc(cache->layout.region_count, sizeof(*cold->spans));
	if (cold->spans == NULL)
		return vmkv_cache_fail(cache, -ENOMEM, "no memory for the tables of slot %u", slot);
	cache->table_bytes += cache->layout.region_count * sizeof(*cold->spans);
	return 0;
}

static bool can_open(const struct vmkv_cache *cache, uint32_t slot)
{
	return slot < cache->layout.slot_count &&
	       (cache->open_bits[slot / 64] >> (slot % 64) & 1) != 0;
}

/* The lowest slot from `from` on that can be opened, or slot_count. */
static uint32_t lowest_from(const struct vmkv_cache *cache, uint32_t from)
{
	uint32_t n = cache->layout.slot_count;

	for (uint32_t w = from / 64; w < (n + 63) / 64; w++) {
		uint64_t word = cache->open_bits[w];

		if (w == from / 64)
			word &= ~UINT64_C(0) << (from % 64);
		if (word != 0)
			return w * 64 + (uint32_t)__builtin_ctzll(word);
	}
	return n;
}

/* The warm slot with the fewest pages that has at least `pages`, else the one with the most; or
 * slot_count if none is warm. */
static uint32_t best_warm(const struct vmkv_cache *cache, uint64_t pages)
{
	uint32_t n = cache->layout.slot_count, best = n;

	for (uint32_t i = lowest_from(cache, 0); i < n; i = lowest_from(cache, i + 1)) {
		uint32_t has = cache->cold[i].warm_pages;
		uint32_t best_has = best < n ? cache->cold[best].warm_pages : 0;

		if (has == 0)
			continue;
		if (best == n || (has >= pages ? best_has < pages || has < best_has
		                               : best_has < pages && has > best_has))
			best = i;
	}
	return best;
}

/* Give back what a warm slot has beyond the expected length. Drops the lock. Returns false if that is
 * still under way, so that another slot must do. */
static bool warm_fit(struct vmkv_cache *cache, uint32_t slot, uint32_t expected_tokens)
{
	struct vmkv_slot *s = &cache->slots[slot];
	uint64_t point;

	if (expected_tokens == 0 || cache->cold[slot].warm_pages == 0)
		return true;
	s->busy = 1;
	vmkv_slot_update_open(cache, slot);
	if (vmkv_warm_drop(cache, slot, expected_tokens, false) == 0 && s->pending > 0) {
		vmkv_cache_settle(cache, false);
		point = cache->last_point;
		if (s->pending > 0) {
			vmkv_cache_unlock(cache);
			vmkv_wait(cache->device, point, UINT64_MAX);
			vmkv_cache_lock(cache);
			vmkv_cache_settle(cache, false);
		}
	}
	s->busy = 0;
	vmkv_slot_update_open(cache, slot);
	return can_open(cache, slot);
}

static int slot_choose(struct vmkv_cache *cache, const struct vmkv_open_options *options,
                       uint32_t *ret)
{
	uint32_t n = cache->layout.slot_count, slot = n;
	uint32_t others = cache->open_count - 1;
	uint32_t expected = options->expected_tokens < cache->layout.max_tokens
	                        ? options->expected_tokens
	                        : cache->layout.max_tokens;

	if (options->prefer == VMKV_PREFER_SLOT) {
		if (options->slot >= n)
			return vmkv_cache_fail(cache, -EINVAL,
			                       "there is no slot %u: slots are 0 to %u",
			                       options->slot, n - 1);
		if (!can_open(cache, options->slot) || !warm_fit(cache, options->slot, expected))
			return vmkv_cache_fail(cache, -EBUSY, "slot %u isn't free%s", options->slot,
			                       cache->never_reuse
			                           ? ": it serves one sequence, since the device "
			                             "never reuses addresses"
			                           : "");
		*ret = options->slot;
		return 0;
	}
	if (options->prefer == VMKV_PREFER_WARM)
		slot = best_warm(cache,
		                 expected > 0 ? vmkv_layout_need_pages(&cache->layout, expected, 0)
		                              : UINT64_MAX);
	if (slot < n && warm_fit(cache, slot, expected)) {
		*ret = slot;
		return 0;
	}
	for (slot = lowest_from(cache, 0); slot < n; slot = lowest_from(cache, slot + 1)) {
		if (warm_fit(cache, slot, expected)) {
			*ret = slot;
			return 0;
		}
	}
	if (cache->never_reuse)
		return vmkv_cache_fail(cache, -ENOSPC,
		                       "addresses are used up: each of the %u slots has served a "
		                       "sequence, and with never-reuse-addresses serves no other; make "
		                       "the cache anew, with a larger slot_count or less max_tokens",
		                       n);
	return vmkv_cache_fail(cache, -ENOSPC,
	                       "no slot is free: %u sequences are open, and the other %u slots wait "
	                       "to be retired",
	                       others, n - others);
}

static int open_locked(struct vmkv_cache *cache, const struct vmkv_open_options *options,
                       vmkv_seq *ret)
{
	uint32_t slot = 0;
	int rc;

	if (vmkv_device_is_lost(cache->device))
		return vmkv_cache_fail(cache, -ENODEV, "the device is lost");
	if (options->prefer > VMKV_PREFER_SLOT)
		return vmkv_cache_fail(cache, -EINVAL, "prefer %u is not one of enum vmkv_prefer",
		                       options->prefer);
	if (cache->open_count >= cache->max_slots)
		return vmkv_cache_fail(cache, -ENOSPC,
		                       "%u sequences are open, as many as max_slots allows: close "
		                       "one first",
		                       cache->open_count);
	/* Counted at once, since choosing may drop the lock. */
	cache->open_count++;
	rc = vmkv_waiting_reserve(cache, 0);
	if (rc == 0)
		rc = slot_choose(cache, options, &slot);
	/* Once more, when what has been reached meanwhile was seen. */
	if (rc == -ENOSPC && cache->batches != NULL) {
		vmkv_cache_settle(cache, false);
		rc = slot_choose(cache, options, &slot);
	}
	if (rc == 0)
		rc = slot_prepare(cache, slot);
	if (rc != 0) {
		cache->open_count--;
		return rc;
	}

	struct vmkv_slot *s = &cache->slots[slot];
	struct vmkv_slot_cold *cold = &cache->cold[slot];

	s->generation = (s->generation + 1) & GENERATION_MASK;
	s->seq = (uint64_t)cache->tag << (VMKV_SLOT_BITS + VMKV_GENERATION_BITS) |
	         (uint64_t)s->generation << VMKV_SLOT_BITS | slot;
	s->state = VMKV_SLOT_OPEN;
	s->busy_until = 0;
	s->live = 0;
	s->previous = 0;
	s->stamp = 0;
	s->ready_point = cold->warm_pages > 0 ? cold->warm_point : 0;
	if (vmkv_device_reached(cache->device, s->ready_point))
		s->ready_point = 0;
	cache->unready += s->ready_point != 0;
	vmkv_slot_refresh(cache, slot);
	vmkv_slot_update_open(cache, slot);
	vmkv_slot_publish(cache, slot);
	vmkv_mirror_opened(cache, slot);
	*ret = s->seq;
	return 0;
}

int vmkv_seq_open(vmkv_cache *cache, const struct vmkv_open_options *options, vmkv_seq *ret)
{
	struct vmkv_open_options known = { 0 };
	int rc = 0;

	if (cache == NULL)
		return -EINVAL;
	if (ret == NULL)
		return vmkv_cache_fail_output(cache, "vmkv_seq_open");
	if (options != NULL)
		rc = vmkv_struct_in(&known, sizeof(known), options);
	if (rc == 0 && known.reserved != 0)
		rc = -E2BIG;
	vmkv_cache_lock(cache);
	if (rc != 0)
		rc = vmkv_cache_fail(cache, rc, "struct vmkv_open_options: %s",
		                     rc == -E2BIG ? "sets a field that this library doesn't know"
		                                  : "struct_size is not its size");
	else
		rc = open_locked(cache, &known, ret);
	if (rc == -ENOSPC)
		vmkv_mirror_shortage(cache,
		                     &(const struct vmkv_shortage){ .kind = VMKV_SHORTAGE_SLOTS,
		                                                    .missing = 1 },
		                     0);
	if (rc == -ENOSPC && known.shortage != NULL)
		vmkv_slots_report(cache, known.shortage);
	vmkv_cache_unlock(cache);
	return rc;
}

/* ---- close ----------------------------------------------------------------------------------- */

static void close_locked(struct vmkv_cache *cache, uint32_t slot, uint64_t busy_until)
{
	struct vmkv_slot *s = &cache->slots[slot];
	struct vmkv_slot_cold *cold = &cache->cold[slot];
	const struct vmkv_gone all = { .slot = slot, .region = VMKV_REGION_ALL };

	vmkv_mirror_closed(cache, slot);
	for (uint32_t r = 0; r < cache->layout.region_count; r++) {
		const struct vmkv_span_table *table = &cold->spans[r];

		for (uint32_t i = table->first; i < table->used; i++) {
			struct vmkv_gone gone = vmkv_piece_gone(&table->pieces[i], slot, r);

			vmkv_gone_move(cache, &gone, VMKV_PAGE_MAPPED, VMKV_PAGE_RETIRING);
		}
	}
	vmkv_cache_change_dead(cache, s->previous, 0);
	cache->total_live -= s->live;
	cache->states_live -= s->live > 0;
	cache->unready -= s->ready_point != 0;
	if (busy_until > s->busy_until)
		s->busy_until = busy_until;
	/* What is kept warm without being zeroed still depends on it. */
	if (s->ready_point > cold->warm_point)
		cold->warm_point = s->ready_point;
	s->ready_point = 0;
	s->seq = 0;
	s->live = 0;
	s->state = VMKV_SLOT_RETIRING;
	cache->open_count--;
	vmkv_slot_publish(cache, slot);
	vmkv_waiting_push(cache, s->busy_until, &all);
}

int vmkv_seq_close(vmkv_cache *cache, vmkv_seq seq, uint64_t busy_until)
{
	uint32_t slot;
	int rc;

	if (cache == NULL)
		return -EINVAL;
	vmkv_cache_lock(cache);
	rc = vmkv_slot_find(cache, seq, &slot);
	if (rc == 0) {
		close_locked(cache, slot, busy_until);
		vmkv_cache_settle(cache, false);
	}
	vmkv_cache_unlock(cache);
	return rc;
}

/* ---- where things lie ------------------------------------------------------------------------ */

static int place_find(struct vmkv_cache *cache, const uint32_t at[3], const struct vmkv_place **ret)
{
	const struct vmkv_addresses *layout = &cache->layout;

	if (at[0] >= layout->group_count)
		return vmkv_cache_fail(cache, -ERANGE, "there is no group %u: groups are 0 to %u",
		                       at[0], layout->group_count - 1);

	const struct vmkv_group_layout *group = &layout->groups[at[0]];

	if (at[1] >= group->layers || at[2] >= group->tensor_count)
		return vmkv_cache_fail(cache, -ERANGE,
		                       "group %u has no layer %u, tensor %u: it has %u layers of %u "
		                       "tensors",
		                       at[0], at[1], at[2], group->layers, group->tensor_count);
	*ret = &layout->places[group->first_place + at[1] * group->tensor_count + at[2]];
	return 0;
}

static void span_fill(const struct vmkv_cache *cache, uint32_t slot, const struct vmkv_place *place,
                      struct vmkv_span *ret)
{
	const struct vmkv_addresses *layout = &cache->layout;
	const struct vmkv_region *region = &layout->regions[place->region];
	const struct vmkv_span_table *table = &cache->cold[slot].spans[place->region];
	uint64_t end = (uint64_t)used_end(table) << layout->page_shift;

	*ret = (struct vmkv_span){
		.address = region->base + slot * region->slot_stride + place->offset,
		.token_stride = region->token_bytes,
		.slot_stride = region->slot_stride,
		.row_bytes = place->row_bytes,
		.slot = slot,
		.live_tokens = cache->slots[slot].live,
		.reserved_tokens = 1,
		.mapped_tokens = end > 0,
	};
	if (region->token_bytes == 0)
		return;

	uint64_t tokens = end / region->token_bytes;

	ret->reserved_tokens = layout->reserved_tokens;
	ret->mapped_tokens =
	    tokens < layout->reserved_tokens ? (uint32_t)tokens : layout->reserved_tokens;
	if (table->used > table->first && table->pieces[table->first].page > 0) {
		uint64_t start = (uint64_t)table->pieces[table->first].page << layout->page_shift;

		ret->first_token =
		    (uint32_t)((start + region->token_bytes - 1) / region->token_bytes);
	}
}

int vmkv_span(vmkv_cache *cache, vmkv_seq seq, uint32_t group, uint32_t layer, uint32_t tensor,
              struct vmkv_span *ret)
{
	const uint32_t at[3] = { group, layer, tensor };
	const struct vmkv_place *place = NULL;
	struct vmkv_span span;
	uint32_t slot;
	int rc;

	if (cache == NULL)
		return -EINVAL;
	if (ret == NULL || ret->struct_size < sizeof(size_t))
		return vmkv_cache_fail_output(cache, "struct vmkv_span");
	vmkv_cache_lock(cache);
	rc = place_find(cache, at, &place);
	if (rc == 0)
		rc = vmkv_slot_find(cache, seq, &slot);
	if (rc == 0)
		span_fill(cache, slot, place, &span);
	vmkv_cache_unlock(cache);
	return rc == 0 ? vmkv_struct_out(ret, &span, sizeof(span)) : rc;
}

int vmkv_seq_mappings(vmkv_cache *cache, vmkv_seq seq, uint32_t group, uint32_t layer,
                      uint32_t tensor, struct vmkv_mapping *mappings, size_t n, size_t *ret)
{
	const uint32_t at[3] = { group, layer, tensor };
	const struct vmkv_place *place = NULL;
	uint32_t slot;
	int rc;

	if (cache == NULL)
		return -EINVAL;
	if (ret == NULL || (mappings == NULL && n > 0))
		return vmkv_cache_fail_output(cache, "vmkv_seq_mappings");
	vmkv_cache_lock(cache);
	rc = place_find(cache, at, &place);
	if (rc == 0)
		rc = vmkv_slot_find(cache, seq, &slot);
	if (rc == 0) {
		const struct vmkv_region *region = &cache->layout.regions[place->region];
		const struct vmkv_span_table *table = &cache->cold[slot].spans[place->region];
		uint32_t shift = cache->layout.page_shift;

		*ret = table->count - table->first;
		for (size_t i = 0; i < *ret && i < n; i++) {
			const struct vmkv_piece *piece = &table->pieces[table->first + i];

			mappings[i] = (struct vmkv_mapping){
				.address = region->base + slot * region->slot_stride +
				           ((uint64_t)piece->page << shift),
				.bytes = (uint64_t)piece->n << shift,
				.slab = vmkv_pages_slab_index(&cache->pages, piece->phys),
				.slab_offset = vmkv_pages_offset(&cache->pages, piece->phys),
			};
		}
	}
	vmkv_cache_unlock(cache);
	return rc;
}
