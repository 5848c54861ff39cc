/* SPDX-License-Identifier: MIT
 *
 * How much physical memory the cache holds: slabs come and go here.
 */
#include <errno.h>
#include <inttypes.h>

#include "cache.h"

static uint64_t to_pages(const struct vmkv_cache *cache, uint64_t bytes)
{
	return bytes >> cache->pages.page_shift;
}

uint64_t vmkv_cache_available_pages(const struct vmkv_cache *cache, bool may_grow)
{
	uint64_t unused = vmkv_pages_free(&cache->pages);
	uint64_t used = cache->pages.total - unused;
	uint64_t budget = to_pages(cache, cache->budget_bytes);

	if (may_grow && cache->device_full == 0 && cache->budget_bytes > cache->slab_bytes_held)
		unused += to_pages(cache, cache->budget_bytes - cache->slab_bytes_held);
	/* After the budget was lowered, slabs may hold more than it allows to be used. */
	uint64_t left = budget > used ? budget - used : 0;

	return unused < left ? unused : left;
}

/* Create one slab. Drops the lock. */
static int slab_add(struct vmkv_cache *cache, uint64_t bytes)
{
	struct vmkv_device *device = cache->device;
	struct vmkv_slab *slab = NULL;
	int rc;

	cache->slab_bytes_held += bytes;
	cache->slab_bytes_pending += bytes;
	vmkv_cache_unlock(cache);
	rc = device->ops->slab_create(device, bytes, &slab);
	vmkv_cache_lock(cache);
	cache->slab_bytes_pending -= bytes;
	cache->counters.slab_calls++;
	cache->counters.failed_calls += rc != 0;
	vmkv_mirror_touch(cache);
	if (rc != 0) {
		vmkv_cache_fail_device(cache, rc, "no new slab");
	} else {
		rc = vmkv_pages_add_slab(&cache->pages, slab,
		                         (device->info.features & VMKV_FEATURE_ZEROED_SLABS) != 0);
		if (rc != 0) {
			vmkv_cache_unlock(cache);
			device->ops->slab_destroy(device, slab);
			vmkv_cache_lock(cache);
			cache->counters.slab_calls++;
			vmkv_cache_fail(cache, rc, "no host memory for a slab's tables");
		}
	}
	if (rc != 0)
		cache->slab_bytes_held -= bytes;
	else
		vmkv_mirror_slab(cache, slab);
	if (cache->slab_bytes_held > cache->counters.slab_bytes_peak)
		cache->counters.slab_bytes_peak = cache->slab_bytes_held;
	pthread_cond_broadcast(&cache->slabs_changed);
	return rc;
}

/* A slab, or a smaller one if the device has no more than that. */
static int slab_add_fitting(struct vmkv_cache *cache, uint64_t *bytes)
{
	int rc = slab_add(cache, *bytes);

	while (rc == -ENOSPC && *bytes > cache->pages.page_bytes) {
		*bytes = to_pages(cache, *bytes / 2) << cache->pages.page_shift;
		rc = slab_add(cache, *bytes);
	}
	cache->device_full = rc == -ENOSPC || rc == -EMLINK ? rc : 0;
	return rc;
}

uint64_t vmkv_cache_grow(struct vmkv_cache *cache, uint64_t pages, int *error)
{
	uint64_t added = 0;

	*error = 0;
	while (added < pages && cache->device_full == 0 &&
	       cache->budget_bytes > cache->slab_bytes_held) {
		uint64_t left = to_pages(cache, cache->budget_bytes - cache->slab_bytes_held);
		uint64_t bytes = left << cache->pages.page_shift;

		if (bytes > cache->slab_bytes)
			bytes = cache->slab_bytes;
		if (bytes == 0)
			break;
		if (!vmkv_pages_can_add(&cache->pages)) {
			*error = cache->device_full = -ENOSPC;
			break;
		}
		*error = slab_add_fitting(cache, &bytes);
		if (*error != 0)
			break;
		added += to_pages(cache, bytes);
	}
	return added;
}

uint64_t vmkv_cache_drain(struct vmkv_cache *cache, uint64_t keep_bytes)
{
	struct vmkv_device *device = cache->device;
	uint64_t released = 0;
	uint32_t from = 0;

	/* On a lost device nothing was really unmapped: slabs stay until the addresses are released. */
	while (cache->slab_bytes_held > keep_bytes && !vmkv_device_is_lost(device)) {
		struct vmkv_slab *slab = vmkv_pages_remove_free_slab(&cache->pages, &from);
		uint64_t point = cache->last_point;

		if (slab == NULL)
			break;
		vmkv_mirror_slab_gone(cache, from - 1);
		released += slab->bytes;
		cache->slab_bytes_held -= slab->bytes;
		cache->device_full = 0;
		cache->counters.slab_calls++;
		vmkv_cache_unlock(cache);
		/* An unmap of pages that were free of use at once may still be under way. */
		vmkv_wait(device, point, UINT64_MAX);
		device->ops->slab_destroy(device, slab);
		vmkv_cache_lock(cache);
	}
	return released;
}

/* Drop warm memory and return slabs until keep_bytes are held. */
static uint64_t shrink(struct vmkv_cache *cache, uint64_t keep_bytes)
{
	uint64_t released = vmkv_cache_drain(cache, keep_bytes);

	if (cache->slab_bytes_held > keep_bytes && vmkv_warm_reclaim(cache, UINT64_MAX, 0)) {
		vmkv_warm_settle(cache);
		released += vmkv_cache_drain(cache, keep_bytes);
	}
	/* Before a slab went, what was unmapped of it had to be done. */
	if (released > 0)
		vmkv_cache_settle(cache, false);
	return released;
}

int vmkv_cache_shrink(vmkv_cache *cache, uint64_t keep_bytes, uint64_t *released_bytes)
{
	uint64_t released = 0;
	int rc = 0;

	if (cache == NULL)
		return -EINVAL;
	vmkv_device_poll(cache->device);
	vmkv_cache_lock(cache);
	vmkv_cache_settle(cache, true);
	if (!vmkv_device_is_lost(cache->device))
		released = shrink(cache, keep_bytes);
	if (vmkv_device_is_lost(cache->device))
		rc = vmkv_cache_fail(cache, -ENODEV, "the device is lost");
	if (rc == 0 && released_bytes != NULL)
		*released_bytes = released;
	vmkv_cache_unlock(cache);
	return rc;
}

int vmkv_cache_check_budget(struct vmkv_cache *cache, uint64_t budget_bytes, char *error,
                            size_t error_bytes)
{
	uint64_t least = (uint64_t)cache->layout.region_count << cache->layout.page_shift;
	uint64_t most = (uint64_t)(UINT32_MAX / 2) << cache->layout.page_shift;

	if (budget_bytes > most) {
		vmkv_text(error, error_bytes,
		          "a budget of %" PRIu64 " bytes is more than 2^31 pages of %" PRIu64
		          " bytes: raise page_bytes",
		          budget_bytes, cache->layout.page_bytes);
		return -EOVERFLOW;
	}
	if (budget_bytes >= least)
		return 0;
	vmkv_text(error, error_bytes,
	          "a budget of %" PRIu64 " bytes is less than one page for every span of a sequence: "
	          "%u spans x %" PRIu64 " bytes = %" PRIu64,
	          budget_bytes, cache->layout.region_count, cache->layout.page_bytes, least);
	return -EINVAL;
}

int vmkv_cache_set_budget(vmkv_cache *cache, uint64_t budget_bytes)
{
	int rc;

	if (cache == NULL)
		return -EINVAL;
	vmkv_device_poll(cache->device);
	vmkv_cache_lock(cache);
	rc = vmkv_cache_check_budget(cache, budget_bytes, cache->error, sizeof(cache->error));
	if (rc == 0 && vmkv_device_is_lost(cache->device))
		rc = vmkv_cache_fail(cache, -ENODEV, "the device is lost");
	if (rc == 0) {
		cache->budget_bytes = budget_bytes;
		vmkv_mirror_budget(cache);
		cache->device_full = 0;
		vmkv_cache_settle(cache, true);
		shrink(cache, budget_bytes);
	}
	vmkv_cache_unlock(cache);
	return rc;
}
