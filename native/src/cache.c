/* SPDX-License-Identifier: MIT
 *
 * Creating and destroying a cache, and what it tells about itself.
 */
#include "cache.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define PAGE_DEFAULT_BYTES ((uint64_t)64 << 10)
#define SLAB_DEFAULT_BYTES ((uint64_t)64 << 20)
#define MAX_SLOTS (1u << 19)
#define ONCE_DEFAULT_SLOTS (1u << 16) /* that are used once */

int vmkv_cache_fail(struct vmkv_cache *cache, int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vmkv_text_v(cache->error, sizeof(cache->error), format, args);
	va_end(args);
	return error;
}

int vmkv_cache_fail_output(const struct vmkv_cache *cache, const char *what)
{
	/* The error text is all that changes. */
	struct vmkv_cache *mutable = (struct vmkv_cache *)(uintptr_t)cache;

	vmkv_cache_lock(mutable);
	vmkv_cache_fail(mutable, -EINVAL, "%s: it needs a place to write to, with its struct_size",
	                what);
	vmkv_cache_unlock(mutable);
	return -EINVAL;
}

int vmkv_cache_fail_device(struct vmkv_cache *cache, int error, const char *what)
{
	char text[sizeof(cache->device->error)];

	vmkv_device_error(cache->device, text, sizeof(text));
	return vmkv_cache_fail(cache, error, "%s: %s", what, text);
}

/* ---- options --------------------------------------------------------------------------------- */

#define FAIL(options, rc, ...) \
	(vmkv_text((options)->error, (options)->error_bytes, __VA_ARGS__), (rc))

static void options_defaults(struct vmkv_cache_options *o, const struct vmkv_device_info *info)
{
	if (o->page_bytes == 0)
		o->page_bytes = info->granule_bytes > PAGE_DEFAULT_BYTES ? info->granule_bytes
		                                                         : PAGE_DEFAULT_BYTES;
	if (o->slab_bytes == 0)
		o->slab_bytes = SLAB_DEFAULT_BYTES;
	if (o->slot_count == 0 && !(info->safe & VMKV_SAFE_NEVER_REUSE_ADDRESSES))
		o->slot_count = o->max_slots * 2;
	if (o->read_align_tokens == 0)
		o->read_align_tokens = 1;
}

static int options_check_sizes(const struct vmkv_cache_options *o,
                               const struct vmkv_device_info *info)
{
	if (o->page_bytes % info->granule_bytes != 0 || o->page_bytes > VMKV_STRETCH_BYTES ||
	    (o->page_bytes & (o->page_bytes - 1)) != 0)
		return FAIL(o, -EINVAL,
		            "page_bytes %" PRIu64 " is not a power of two from the device's granule, "
		            "%" PRIu64 ", to 2097152",
		            o->page_bytes, info->granule_bytes);
	if (o->slab_bytes % VMKV_STRETCH_BYTES != 0 || o->slab_bytes > UINT64_C(1) << 40)
		return FAIL(o, -EINVAL,
		            "slab_bytes %" PRIu64 " is not a multiple of 2097152 up to 2^40",
		            o->slab_bytes);
	if (o->mapping_max_bytes != 0 && o->mapping_max_bytes < o->page_bytes)
		return FAIL(o, -EINVAL, "mapping_max_bytes %" PRIu64 " is less than a page",
		            o->mapping_max_bytes);
	if (o->window_mapping_max_bytes != 0 && o->window_mapping_max_bytes < o->page_bytes)
		return FAIL(o, -EINVAL, "window_mapping_max_bytes %" PRIu64 " is less than a page",
		            o->window_mapping_max_bytes);
	return 0;
}

static int options_check(const struct vmkv_cache_options *o, const struct vmkv_device_info *info)
{
	if (o->geometry->groups == NULL || o->geometry->group_count == 0 ||
	    o->geometry->group_count > UINT16_MAX)
		return FAIL(o, -EINVAL, "the geometry needs 1 to 65535 groups, not %u",
		            o->geometry->groups != NULL ? o->geometry->group_count : 0);
	if (o->layout > VMKV_LAYOUT_TOKEN)
		return FAIL(o, -EINVAL, "layout %u is not one of enum vmkv_layout", o->layout);
	if (o->zero > VMKV_ZERO_OFF)
		return FAIL(o, -EINVAL, "zero %u is not one of enum vmkv_zero", o->zero);
	if (o->max_slots == 0 || o->max_slots > MAX_SLOTS)
		return FAIL(o, -EINVAL, "max_slots %u is not between 1 and %u", o->max_slots,
		            MAX_SLOTS);
	if (o->slot_count != 0 && o->slot_count < o->max_slots)
		return FAIL(o, -EINVAL, "slot_count %u is less than max_slots %u", o->slot_count,
		            o->max_slots);
	if (o->max_tokens == 0)
		return FAIL(o, -EINVAL, "max_tokens must be at least 1");
	return options_check_sizes(o, info);
}

/* The caller's geometry as this library knows it. */
static int geometry_read(const struct vmkv_cache_options *o, struct vmkv_geometry *ret)
{
	int rc;

	if (o->geometry == NULL)
		return FAIL(o, -EINVAL, "the geometry is missing");
	rc = vmkv_struct_in(ret, sizeof(*ret), o->geometry);
	if (rc == 0 && ret->reserved != 0)
		rc = -E2BIG;
	if (rc != 0)
		return FAIL(o, rc, "the geometry: %s",
		            rc == -E2BIG ? "sets a field that this library doesn't know"
		                         : "struct_size is not its size");
	return 0;
}

/* ---- addresses ------------------------------------------------------------------------------- */

static uint64_t region_bytes(const struct vmkv_cache *cache, const struct vmkv_region *region)
{
	return region->slot_stride * cache->layout.slot_count;
}

static void addresses_release(struct vmkv_cache *cache, uint32_t regions)
{
	struct vmkv_device *device = cache->device;

	if (!cache->reserved_apart && regions == cache->layout.region_count) {
		device->ops->release(device, cache->layout.regions[0].base,
		                     cache->layout.reserved_bytes);
		return;
	}
	for (uint32_t r = 0; r < regions; r++)
		device->ops->release(device, cache->layout.regions[r].base,
		                     region_bytes(cache, &cache->layout.regions[r]));
}

/* All regions in one range, so that a group's layers lie at even distances; on a device that has no
 * range as long as that, each region in its own. */
static int addresses_reserve(struct vmkv_cache *cache)
{
	struct vmkv_device *device = cache->device;
	struct vmkv_addresses *layout = &cache->layout;
	uint64_t base;
	int rc = device->ops->reserve(device, layout->reserved_bytes, VMKV_STRETCH_BYTES, &base);

	if (rc == 0) {
		for (uint32_t r = 0; r < layout->region_count; r++) {
			layout->regions[r].base = base;
			base += region_bytes(cache, &layout->regions[r]);
		}
		return 0;
	}
	if (rc != -ENOSPC)
		return rc;
	cache->reserved_apart = true;
	for (uint32_t r = 0; r < layout->region_count; r++) {
		rc = device->ops->reserve(device, region_bytes(cache, &layout->regions[r]),
		                          VMKV_STRETCH_BYTES, &layout->regions[r].base);
		if (rc != 0) {
			addresses_release(cache, r);
			return rc;
		}
	}
	return 0;
}

/* ---- create and destroy ---------------------------------------------------------------------- */

static uint32_t draw_tag(const struct vmkv_cache *cache)
{
	uint32_t mask = (1u << (64 - VMKV_SLOT_BITS - VMKV_GENERATION_BITS)) - 1;
	uint32_t tag = 0;

	if (getrandom(&tag, sizeof(tag), GRND_NONBLOCK) != sizeof(tag)) {
		struct timespec now;

		clock_gettime(CLOCK_MONOTONIC, &now);
		tag = (uint32_t)now.tv_nsec * 2654435761u ^ (uint32_t)((uintptr_t)cache >> 4);
	}
	tag &= mask;
	return tag != 0 ? tag : 1;
}

static int tables_create(struct vmkv_cache *cache)
{
	uint32_t slots = cache->layout.slot_count;
	uint32_t groups = cache->layout.group_count;
	size_t slots_bytes = slots * sizeof(*cache->slots);

	cache->slots = aligned_alloc(64, slots_bytes);
	cache->cold = calloc(slots, sizeof(*cache->cold));
	cache->open_bits = calloc((slots + 63) / 64, sizeof(*cache->open_bits));
	cache->ready_tokens = calloc(slots, sizeof(*cache->ready_tokens));
	cache->window_dead = calloc(groups, sizeof(*cache->window_dead));
	if (cache->slots == NULL || cache->cold == NULL || cache->open_bits == NULL ||
	    cache->ready_tokens == NULL || cache->window_dead == NULL)
		return -ENOMEM;
	memset(cache->slots, 0, slots_bytes);
	cache->table_bytes = sizeof(*cache) + slots_bytes +
	                     slots * (sizeof(*cache->cold) + sizeof(*cache->ready_tokens)) +
	                     (slots + 63) / 64 * sizeof(uint64_t) + groups * sizeof(uint64_t);
	for (uint32_t i = 0; i < slots; i++)
		vmkv_slot_update_open(cache, i);
	return 0;
}

void vmkv_slot_free_tables(struct vmkv_cache *cache, uint32_t slot)
{
	struct vmkv_span_table *spans = cache->cold[slot].spans;
	uint32_t regions = cache->layout.region_count;

	if (spans == NULL)
		return;
	for (uint32_t r = 0; r < regions; r++) {
		cache->table_bytes -= spans[r].capacity * sizeof(*spans[r].pieces);
		free(spans[r].pieces);
	}
	cache->table_bytes -= regions * sizeof(*spans);
	free(spans);
	cache->cold[slot].spans = NULL;
}

/* Frees everything but what the device gave. */
static void cache_free(struct vmkv_cache *cache)
{
	while (cache->batches != NULL) {
		struct vmkv_batch *next = cache->batches->next;

		free(cache->batches->gone);
		free(cache->batches);
		cache->batches = next;
	}
	for (uint32_t i = 0; cache->cold != NULL && i < cache->layout.slot_count; i++)
		vmkv_slot_free_tables(cache, i);
	vmkv_plan_fini(&cache->spare);
	free(cache->waiting);
	free(cache->slots);
	free(cache->cold);
	free(cache->open_bits);
	free(cache->ready_tokens);
	free(cache->window_dead);
	vmkv_pages_fini(&cache->pages);
	vmkv_layout_fini(&cache->layout);
	pthread_cond_destroy(&cache->slabs_changed);
	pthread_mutex_destroy(&cache->lock);
	free(cache);
}

/* Slots that are used once: as many as are worth their tables and leave addresses to others. */
static int slots_settle(const struct vmkv_device *device, struct vmkv_cache_options *o)
{
	uint64_t left = atomic_load(&device->addresses_left) / 2, n;
	struct vmkv_addresses layout = { 0 };
	int rc;

	o->slot_count = o->max_slots;
	rc = vmkv_layout_init(&layout, o, o->error, o->error_bytes);
	if (rc == 0) {
		n = left / (layout.reserved_bytes / o->slot_count);
		n = n < ONCE_DEFAULT_SLOTS ? n : ONCE_DEFAULT_SLOTS;
		if (n > o->slot_count)
			o->slot_count = (uint32_t)n;
	}
	vmkv_layout_fini(&layout);
	return rc;
}

static int cache_init(struct vmkv_cache *cache, struct vmkv_cache_options *o)
{
	int rc = o->slot_count == 0 ? slots_settle(cache->device, o) : 0;

	if (rc == 0)
		rc = vmkv_layout_init(&cache->layout, o, o->error, o->error_bytes);
	if (rc != 0)
		return rc;
	rc = vmkv_cache_check_budget(cache, o->budget_bytes, o->error, o->error_bytes);
	if (rc != 0)
		return rc;
	rc = vmkv_pages_init(&cache->pages, o->page_bytes, o->slab_bytes);
	if (rc == 0)
		rc = tables_create(cache);
	if (rc != 0)
		return FAIL(o, rc, "no host memory for the tables of %u slots", o->slot_count);
	cache->max_slots = o->max_slots;
	cache->tag = draw_tag(cache);
	cache->zero = o->zero == VMKV_ZERO_ON;
	cache->never_reuse = vmkv_device_is_safe(cache->device, VMKV_SAFE_NEVER_REUSE_ADDRESSES);
	cache->no_alias = vmkv_device_is_safe(cache->device, VMKV_SAFE_NO_ALIAS);
	cache->slab_bytes = o->slab_bytes;
	cache->budget_bytes = o->budget_bytes;
	cache->warm_max_bytes = o->warm_max_bytes;
	rc = addresses_reserve(cache);
	if (rc != 0) {
		char text[sizeof(cache->device->error)];

		vmkv_device_error(cache->device, text, sizeof(text));
		rc = rc == -ENOSPC ? -EOVERFLOW : rc;
		return FAIL(o, rc,
		            "%" PRIu64 " bytes of addresses for %u slots of %u tokens: %s; lower "
		            "max_tokens, max_slots or slot_count",
		            cache->layout.reserved_bytes, o->slot_count,
		            cache->layout.reserved_tokens, text);
	}
	return 0;
}

/* Publish it, if that is wanted. */
static int cache_share(struct vmkv_cache *cache, const struct vmkv_cache_options *o)
{
	bool wanted;
	int rc = vmkv_mirror_wanted(o->share, &wanted, o->error, o->error_bytes);

	if (rc == 0 && wanted)
		rc = vmkv_mirror_create(cache, o->error, o->error_bytes);
	if (rc != 0)
		addresses_release(cache, cache->layout.region_count);
	return rc;
}

int vmkv_cache_create(vmkv_device *device, const struct vmkv_cache_options *options,
                      vmkv_cache **ret)
{
	struct vmkv_cache_options o;
	struct vmkv_geometry geometry;
	struct vmkv_cache *cache;
	int rc = vmkv_struct_in(&o, sizeof(o), options);

	if (rc == 0 && o.reserved != 0)
		rc = -E2BIG;
	if (rc != 0)
		return FAIL(&o, rc, "struct vmkv_cache_options: %s",
		            rc == -E2BIG ? "sets a field that this library doesn't know"
		                         : "struct_size is not its size");
	if (device == NULL || ret == NULL)
		return FAIL(&o, -EINVAL, "a cache needs a device and a place for its handle");
	if (vmkv_device_is_lost(device))
		return FAIL(&o, -ENODEV, "the device is lost");
	rc = geometry_read(&o, &geometry);
	if (rc != 0)
		return rc;
	o.geometry = &geometry;
	options_defaults(&o, &device->info);
	rc = options_check(&o, &device->info);
	if (rc != 0)
		return rc;
	cache = calloc(1, sizeof(*cache));
	if (cache == NULL)
		return FAIL(&o, -ENOMEM, "no host memory for a cache");
	cache->device = device;
	cache->batches_end = &cache->batches;
	pthread_mutex_init(&cache->lock, NULL);
	pthread_cond_init(&cache->slabs_changed, NULL);
	rc = cache_init(cache, &o);
	if (rc == 0)
		rc = cache_share(cache, &o);
	if (rc != 0) {
		cache_free(cache);
		return rc;
	}
	atomic_fetch_add(&device->caches, 1);
	*ret = cache;
	return 0;
}

void vmkv_cache_destroy(vmkv_cache *cache)
{
	struct vmkv_device *device;

	if (cache == NULL)
		return;
	device = cache->device;
	vmkv_mirror_destroy(cache);
	vmkv_wait(device, cache->last_point, UINT64_MAX);
	addresses_release(cache, cache->layout.region_count);
	for (uint32_t i = 0; i < cache->pages.slab_count; i++) {
		if (cache->pages.slabs[i].slab != NULL)
			device->ops->slab_destroy(device, cache->pages.slabs[i].slab);
	}
	vmkv_cache_give_runs(cache, cache->runs);
	cache_free(cache);
	atomic_fetch_sub(&device->caches, 1);
}

/* ---- what it is ------------------------------------------------------------------------------ */

int vmkv_cache_info(const vmkv_cache *cache, struct vmkv_cache_info *ret)
{
	const struct vmkv_addresses *layout;
	struct vmkv_cache_info info;

	if (cache == NULL)
		return -EINVAL;
	if (ret == NULL || ret->struct_size < sizeof(size_t))
		return vmkv_cache_fail_output(cache, "struct vmkv_cache_info");
	layout = &cache->layout;
	info = (struct vmkv_cache_info){
		.page_bytes = layout->page_bytes,
		.slab_bytes = cache->slab_bytes,
		.bytes_per_token = layout->token_bytes,
		.fixed_bytes = layout->fixed_bytes,
		.reserved_bytes = layout->reserved_bytes,
		.slot_count = layout->slot_count,
		.max_slots = cache->max_slots,
		.max_tokens = layout->max_tokens,
		.read_align_tokens = layout->read_align_tokens,
		.layout = layout->layout,
		.group_count = layout->group_count,
	};
	return vmkv_struct_out(ret, &info, sizeof(info));
}

size_t vmkv_cache_error(const vmkv_cache *cache, char *text, size_t text_bytes)
{
	struct vmkv_cache *mutable = (struct vmkv_cache *)(uintptr_t)cache;
	size_t n;

	if (cache == NULL)
		return 0;
	vmkv_cache_lock(mutable);
	n = strlen(cache->error);
	if (text != NULL)
		vmkv_text(text, text_bytes, "%s", cache->error);
	vmkv_cache_unlock(mutable);
	return n;
}

int vmkv_cache_need_bytes(const vmkv_cache *cache, uint32_t tokens, uint32_t chunk_tokens,
                          uint64_t *ret)
{
	struct vmkv_cache *mutable = (struct vmkv_cache *)(uintptr_t)cache;
	int rc;

	if (cache == NULL)
		return -EINVAL;
	if (ret == NULL)
		return vmkv_cache_fail_output(cache, "vmkv_cache_need_bytes");
	if (tokens <= cache->layout.max_tokens) {
		*ret = vmkv_layout_need_pages(&cache->layout, tokens, chunk_tokens)
		       << cache->layout.page_shift;
		return 0;
	}
	vmkv_cache_lock(mutable);
	rc = vmkv_cache_fail(mutable, -ERANGE, "%u tokens is past max_tokens %u", tokens,
	                     cache->layout.max_tokens);
	vmkv_cache_unlock(mutable);
	return rc;
}

const uint32_t *vmkv_ready_tokens(const vmkv_cache *cache)
{
	/* An atomic 32-bit number has the representation of a plain one on every platform that this
	 * builds for; the header asks readers for atomic loads. */
	_Static_assert(sizeof(_Atomic uint32_t) == sizeof(uint32_t), "atomic numbers are plain");
	return cache == NULL ? NULL : (const uint32_t *)(const void *)cache->ready_tokens;
}
