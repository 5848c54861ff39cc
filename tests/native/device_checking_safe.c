/* SPDX-License-Identifier: MIT
 *
 * The checking device's rules for safe modes: no address is mapped twice, no page at two addresses.
 */
#include <errno.h>

#include "device_checking_record.h"

static bool is_safe(const struct checking_device *c, enum vmkv_safe mode)
{
	return vmkv_device_is_safe(&c->base, mode);
}

/* Note that the addresses are mapped. Returns false if they ever were. */
static bool ever_note(struct checking_device *c, uint64_t address, uint64_t bytes)
{
	struct range *range;

	if (!is_safe(c, VMKV_SAFE_NEVER_REUSE_ADDRESSES))
		return true;
	if (range_find(&c->ever, address, address + bytes))
		return false;
	range = checking_alloc(1, sizeof(*range));
	range->begin = address;
	range->end = address + bytes;
	range_insert(&c->ever, range);
	return true;
}

void record_safe_slab(struct checking_device *c, const struct vmkv_slab *slab)
{
	if (slab->alias && !ever_note(c, slab->alias, slab->bytes))
		violate(c, "an alias at 0x%llx, which had memory before", (unsigned long long)slab->alias);
}

int record_safe_map(struct checking_device *c, const struct vmkv_map *map,
                    const struct checking_page *pages)
{
	for (uint64_t i = 0; i < map->bytes / c->base.info.granule_bytes; i++)
		if (is_safe(c, VMKV_SAFE_NO_ALIAS) && (pages[i].maps || map->slab->alias))
			return refuse(c, "map at 0x%llx of a page that has an address, without aliases",
			              (unsigned long long)map->address);
	if (!ever_note(c, map->address, map->bytes))
		return refuse(c, "map at 0x%llx, which had memory before: addresses are never reused",
		              (unsigned long long)map->address);
	return 0;
}

void record_safe_unmapped(struct checking_device *c, const struct vmkv_map *map)
{
	if (is_safe(c, VMKV_SAFE_NEVER_REUSE_ADDRESSES))
		range_remove(&c->ever, range_find(&c->ever, map->address, map->address + 1));
}

void record_safe_fini(struct checking_device *c)
{
	while (c->ever)
		range_remove(&c->ever, *(void **)c->ever);
}

/* ---- a new slab's garbage ------------------------------------------------------------------------ */

int checking_dirty(struct vmkv_device *inner, const struct vmkv_fill *fill)
{
	uint64_t align = UINT64_C(2) << 20, bytes = fill->slab->bytes, address = 0, point = 0;
	struct vmkv_map map = { .bytes = bytes, .slab = fill->slab };
	struct vmkv_unmap unmap = { .bytes = bytes, .mappings = 1, .slab = fill->slab };
	size_t issued;
	int rc;

	if (fill->slab->alias) {
		rc = inner->ops->fill(inner, fill, 1, &point);
		return rc ? rc : vmkv_wait(inner, point, UINT64_MAX);
	}
	/* It has no alias: by an address of its own, for so long. */
	rc = inner->ops->reserve(inner, bytes, align, &address);
	map.address = unmap.address = address;
	if (!rc)
		rc = inner->ops->map(inner, &map, 1, &issued, &point);
	if (!rc)
		rc = vmkv_wait(inner, point, UINT64_MAX);
	if (!rc)
		rc = vmkv_fill(inner, address, bytes, fill->value, NULL);
	if (!rc)
		rc = inner->ops->unmap(inner, &unmap, 1, &issued, &point);
	if (!rc)
		rc = vmkv_wait(inner, point, UINT64_MAX);
	if (!rc)
		inner->ops->release(inner, address, bytes);
	return rc;
}
