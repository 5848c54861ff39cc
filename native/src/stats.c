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

int vmkv_cache_stats(vmkv_cache *cache, struct vmkv_stats *ret)
{
	struct vmkv_stats stats;
	uint32_t shift;

	if (cache == NULL)
		return -EINVAL;
	if (ret == NULL || ret->struct_size < sizeof(size_t))
		return vmkv_cache_fail_output(cache, "struct vmkv_stats");
	vmkv_cache_lock(cache);
	shift = cache->pages.page_shift;
	stats = cache->counters;
	stats.budget_bytes = cache->budget_bytes;
	stats.slab_bytes = cache->pages.total << shift;
	stats.mapped_bytes = cache->pages.count[VMKV_PAGE_MAPPED] << shift;
	stats.warm_bytes = cache->pages.count[VMKV_PAGE_WARM] << shift;
	stats.retiring_bytes = cache->pages.count[VMKV_PAGE_RETIRING] << shift;
	stats.unmapping_bytes = cache->pages.count[VMKV_PAGE_UNMAPPING] << shift;
	stats.zeroing_bytes = cache->pages.count[VMKV_PAGE_ZEROING] << shift;
	stats.held_bytes = cache->pages.count[VMKV_PAGE_HELD] << shift;
	stats.free_clean_bytes = cache->pages.count[VMKV_PAGE_FREE_CLEAN] << shift;
	stats.free_dirty_bytes = cache->pages.count[VMKV_PAGE_FREE_DIRTY] << shift;
	stats.live_bytes = vmkv_cache_live_bytes(cache);
	stats.reserved_bytes = cache->layout.reserved_bytes;
	stats.table_bytes =
	    cache->table_bytes + cache->pages.table_bytes + cache->layout.table_bytes;
	stats.sequences = cache->open_count;
	stats.mappings = cache->piece_count;
	stats.slabs = cache->pages.slabs_in_use;
	vmkv_cache_unlock(cache);
	return vmkv_struct_out(ret, &stats, sizeof(stats));
}
