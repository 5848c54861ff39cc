/* SPDX-License-Identifier: MIT
 *
 * What there is, in numbers.
 */
#include <errno.h>

#include "cache.h"

uint64_t vmkv_cache_live_bytes(const struct vmkv_cache *cache)
{
	const struct vmkv_addresses *layout = &cache->layout;
	uint64_t bytes =
	    cache->total_live * layout->token_bytes + cache->states_live * layout->fixed_bytes;

	for (uint32_t g = 0; layout->window_groups > 0 && g < layout->group_count; g++)
		bytes -= cache->window_dead[g] * layout->groups[g].token_bytes;
	return bytes;
}

void vmkv_cache_note_peaks(struct vmkv_cache *cache)
{
	uint64_t mapped = cache->pages.count[VMKV_PAGE_MAPPED] << cache->pages.page_shift;

	if (mapped > cache->counters.mapped_bytes_peak)
		cache->counters.mapped_bytes_peak = mapped;
	if (cache->piece_count > cache->counters.mappings_peak)
		cache->counters.mappings_peak = cache->piece_count;
}

void vmkv_slots_report(const struct vmkv_cache *cache, struct vmkv_shortage *ret)
{
	const uint64_t *count = cache->pages.count;
	uint32_t shift = cache->pages.page_shift;

	*ret = (struct vmkv_shortage){ .kind = VMKV_SHORTAGE_SLOTS, .needed = 1, .missing = 1 };
	if (cache->open_count >= cache->max_slots || cache->never_reuse)
		return; /* only a close helps, or nothing */
	ret->retiring_bytes = count[VMKV_PAGE_RETIRING] << shift;
	ret->transit_bytes = (count[VMKV_PAGE_UNMAPPING] + count[VMKV_PAGE_ZEROING]) << shift;
	for (size_t i = 0; i < cache->waiting_count; i++) {
		const struct vmkv_waiting *waiting = &cache->waiting[i];

		if (waiting->gone.region == VMKV_REGION_ALL &&
		    (ret->retiring_until == 0 || waiting->until < ret->retiring_until))
			ret->retiring_until = waiting->until;
	}
	for (uint32_t i = 0; i < cache->layout.slot_count; i++) {
		if (cache->slots[i].state == VMKV_SLOT_FREE && cache->slots[i].pending > 0)
			ret->transit_point = cache->last_point;
	}
}

void vmkv_cache_count(const struct vmkv_cache *cache, struct vmkv_stats *ret)
{
	uint32_t shift = cache->pages.page_shift;

	*ret = cache->counters;
	ret->budget_bytes = cache->budget_bytes;
	ret->slab_bytes = cache->pages.total << shift;
	ret->mapped_bytes = cache->pages.count[VMKV_PAGE_MAPPED] << shift;
	ret->warm_bytes = cache->pages.count[VMKV_PAGE_WARM] << shift;
	ret->retiring_bytes = cache->pages.count[VMKV_PAGE_RETIRING] << shift;
	ret->unmapping_bytes = cache->pages.count[VMKV_PAGE_UNMAPPING] << shift;
	ret->zeroing_bytes = cache->pages.count[VMKV_PAGE_ZEROING] << shift;
	ret->held_bytes = cache->pages.count[VMKV_PAGE_HELD] << shift;
	ret->free_clean_bytes = cache->pages.count[VMKV_PAGE_FREE_CLEAN] << shift;
	ret->free_dirty_bytes = cache->pages.count[VMKV_PAGE_FREE_DIRTY] << shift;
	ret->live_bytes = vmkv_cache_live_bytes(cache);
	ret->reserved_bytes = cache->layout.reserved_bytes;
	ret->table_bytes =
	    cache->table_bytes + cache->pages.table_bytes + cache->layout.table_bytes;
	ret->sequences = cache->open_count;
	ret->mappings = cache->piece_count;
	ret->slabs = cache->pages.slabs_in_use;
}

int vmkv_cache_stats(vmkv_cache *cache, struct vmkv_stats *ret)
{
	struct vmkv_stats stats;

	if (cache == NULL)
		return -EINVAL;
	if (ret == NULL || ret->struct_size < sizeof(size_t))
		return vmkv_cache_fail_output(cache, "struct vmkv_stats");
	vmkv_cache_lock(cache);
	vmkv_cache_count(cache, &stats);
	vmkv_cache_unlock(cache);
	return vmkv_struct_out(ret, &stats, sizeof(stats));
}
