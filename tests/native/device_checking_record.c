/* SPDX-License-Identifier: MIT */
#include "device_checking_record.h"

#include <errno.h>
#include <search.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define X(number) ((unsigned long long)(number))

void *checking_alloc(size_t n, size_t bytes)
{
	void *memory = calloc(n ? n : 1, bytes);

	if (!memory)
		abort();
	return memory;
}

/* ---- violations ----------------------------------------------------------------------------- */

static void violate_text(struct checking_device *c, const char *text)
{
	if (c->report.violations++ == 0)
		snprintf(c->report.violation, sizeof(c->report.violation), "%s", text);
}

void violate(struct checking_device *c, const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	violate_text(c, text);
}

int refuse(struct checking_device *c, const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	violate_text(c, text);
	return vmkv_device_fail(&c->base, -EINVAL, "%s", text);
}

/* ---- ranges --------------------------------------------------------------------------------- */

/* Ranges that overlap are equal, so that a search finds one that does. */
static int range_compare(const void *left, const void *right)
{
	const struct range *a = left, *b = right;

	return a->end <= b->begin ? -1 : b->end <= a->begin;
}

void *range_find(void *const *root, uint64_t begin, uint64_t end)
{
	struct range key = { begin, end };
	void *node = tfind(&key, root, range_compare);

	return node ? *(void **)node : NULL;
}

void range_insert(void **root, void *range)
{
	if (!tsearch(range, root, range_compare))
		abort();
}

void range_remove(void **root, void *range)
{
	tdelete(range, root, range_compare);
	free(range);
}

/* The mapping that begins at or covers an address. */
static struct mapping *mapping_at(struct checking_device *c, uint64_t address)
{
	return range_find(&c->mappings, address, address + 1);
}

/* ---- reservations --------------------------------------------------------------------------- */

void record_reserve(struct checking_device *c, uint64_t address, uint64_t bytes, uint64_t align)
{
	struct range *range;

	if (address % align || range_find(&c->reservations, address, address + bytes)) {
		violate(c, "the inner device reserved 0x%llx for alignment 0x%llx, or reserved it twice",
		        X(address), X(align));
		return;
	}
	range = checking_alloc(1, sizeof(*range));
	range->begin = address;
	range->end = address + bytes;
	range_insert(&c->reservations, range);
	c->report.reservations++;
}

bool record_release(struct checking_device *c, uint64_t address, uint64_t bytes)
{
	struct range *range = range_find(&c->reservations, address, address + bytes);
	struct mapping *mapping;

	if (!range || range->begin != address || range->end != address + bytes) {
		violate(c, "release of 0x%llx, 0x%llx bytes: no such reservation", X(address), X(bytes));
		return false;
	}
	while ((mapping = range_find(&c->mappings, address, address + bytes))) {
		if (mapping->state != MAPPED) {
			violate(c, "release of 0x%llx while another call is at work on 0x%llx",
			        X(address), X(mapping->range.begin));
			return false;
		}
		c->report.released_mappings++;
		record_unmapped(c, mapping->range.begin, mapping->range.end - mapping->range.begin);
	}
	range_remove(&c->reservations, range);
	c->report.reservations--;
	return true;
}

/* ---- slabs ---------------------------------------------------------------------------------- */

struct vmkv_slab *record_slab_create(struct checking_device *c, struct vmkv_slab *inner)
{
	struct checking_slab *slab = checking_alloc(1, sizeof(*slab));

	slab->base = *inner;
	slab->inner = inner;
	slab->number = ++c->slab_number;
	slab->pages = checking_alloc(inner->bytes / c->base.info.granule_bytes, sizeof(*slab->pages));
	slab->next = c->slabs;
	c->slabs = slab;
	c->report.slabs++;
	c->slab_bytes += inner->bytes;
	record_safe_slab(c, inner);
	return &slab->base;
}

static struct checking_slab **slab_find(struct checking_device *c, const struct vmkv_slab *slab)
{
	struct checking_slab **link = &c->slabs;

	while (*link && &(*link)->base != slab)
		link = &(*link)->next;
	return link;
}

struct vmkv_slab *record_slab_destroy(struct checking_device *c, struct vmkv_slab *slab)
{
	struct checking_slab **link = slab_find(c, slab), *found = *link;
	struct vmkv_slab *inner;

	if (!found) {
		violate(c, "destroy of a slab that doesn't exist");
		return NULL;
	}
	for (uint64_t i = 0; i < slab->bytes / c->base.info.granule_bytes; i++) {
		const struct checking_page *page = &found->pages[i];

		if (page->maps || page->fills) {
			violate(c, "destroy of a slab with page %llu still %s", X(i),
			        page->maps ? "mapped" : "being filled");
			return NULL;
		}
		if (page->until > c->completed)
			violate(c, "destroy of a slab with page %llu in use until %llu", X(i),
			        X(page->until));
	}
	inner = found->inner;
	*link = found->next;
	c->report.slabs--;
	c->slab_bytes -= slab->bytes;
	free(found->pages);
	free(found);
	return inner;
}

/* The pages of a slab's range, or NULL after a violation. */
static struct checking_page *pages_check(struct checking_device *c, const char *what,
                                         struct vmkv_slab *slab, uint64_t offset, uint64_t bytes)
{
	const uint64_t granule = c->base.info.granule_bytes;

	if (!*slab_find(c, slab))
		refuse(c, "%s of a slab that doesn't exist", what);
	else if (!bytes || (offset | bytes) % granule || bytes > slab->bytes ||
	         offset > slab->bytes - bytes)
		refuse(c, "%s of a slab's range 0x%llx, 0x%llx bytes: not in it, or no whole granules",
		       what, X(offset), X(bytes));
	else
		return &checking_slab_of(slab)->pages[offset / granule];
	return NULL;
}

/* No other call may be at work on the pages, nor a queue. */
static int pages_idle(struct checking_device *c, const char *what,
                      const struct checking_page *pages, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes / c->base.info.granule_bytes; i++) {
		/* Fills that lag are no calls: what is issued after them comes after them. */
		if (pages[i].mapping || (pages[i].fills && !c->options.lag_seed))
			return refuse(c, "%s of a page that another call is at work on", what);
		if (pages[i].until > c->completed)
			violate(c, "%s of a page that is in use until %llu (completed: %llu)", what,
			        X(pages[i].until), X(c->completed));
	}
	return 0;
}

/* ---- maps ----------------------------------------------------------------------------------- */

static int map_check_addresses(struct checking_device *c, const struct vmkv_map *map)
{
	const uint64_t end = map->address + map->bytes;
	struct range *range = range_find(&c->reservations, map->address, map->address + 1);
	struct mapping *there = range_find(&c->mappings, map->address, end);

	if (map->address % c->base.info.granule_bytes)
		return refuse(c, "map at 0x%llx: no multiple of the granule", X(map->address));
	if (!range || end < map->address || end > range->end)
		return refuse(c, "map at 0x%llx, 0x%llx bytes: not within one reservation",
		              X(map->address), X(map->bytes));
	if (there)
		return refuse(c, "map at 0x%llx: 0x%llx is %s", X(map->address), X(there->range.begin),
		              there->state == UNMAPPING ? "not unmapped yet" : "mapped already");
	return 0;
}

int record_map_begin(struct checking_device *c, const struct vmkv_map *map)
{
	struct checking_page *pages = pages_check(c, "map", map->slab, map->offset, map->bytes);
	struct mapping *mapping;

	if (!pages || map_check_addresses(c, map) || pages_idle(c, "map", pages, map->bytes) ||
	    record_safe_map(c, map, pages))
		return -EINVAL;
	mapping = checking_alloc(1, sizeof(*mapping));
	*mapping = (struct mapping){
		.range = { map->address, map->address + map->bytes },
		.slab = checking_slab_of(map->slab),
		.offset = map->offset,
		.state = MAPPING,
	};
	range_insert(&c->mappings, mapping);
	c->report.mappings++;
	for (uint64_t i = 0; i < map->bytes / c->base.info.granule_bytes; i++) {
		pages[i].maps++;
		pages[i].mapping = true;
	}
	return 0;
}

static struct checking_page *mapping_pages(struct checking_device *c, const struct mapping *mapping)
{
	return &mapping->slab->pages[mapping->offset / c->base.info.granule_bytes];
}

void record_map_end(struct checking_device *c, const struct vmkv_map *map, bool mapped,
                    uint64_t point)
{
	struct mapping *mapping = mapping_at(c, map->address);
	struct checking_page *pages = mapping_pages(c, mapping);

	for (uint64_t i = 0; i < map->bytes / c->base.info.granule_bytes; i++)
		pages[i].mapping = false;
	mapping->state = MAPPED;
	mapping->point = point;
	if (mapped)
		return;
	record_safe_unmapped(c, map);
	record_unmapped(c, map->address, map->bytes);
}

/* ---- unmaps --------------------------------------------------------------------------------- */

/* The range must be made of whole mappings that nothing else is at work on. */
static int unmap_check(struct checking_device *c, const struct vmkv_unmap *unmap)
{
	const uint64_t end = unmap->address + unmap->bytes;
	struct mapping *mapping = NULL;
	uint32_t n = 0;

	for (uint64_t at = unmap->address; at < end; at = mapping->range.end, n++) {
		mapping = mapping_at(c, at);
		if (!mapping)
			return refuse(c, "unmap of 0x%llx: nothing is mapped there", X(at));
		if (mapping->range.begin != at || mapping->range.end > end)
			return refuse(c, "unmap of 0x%llx, 0x%llx bytes cuts the mapping at 0x%llx",
			              X(unmap->address), X(unmap->bytes), X(mapping->range.begin));
		if (mapping->state != MAPPED)
			return refuse(c, "unmap of 0x%llx: %s", X(at),
			              mapping->state == MAPPING ? "another call is at work on it"
			                                        : "it is unmapped already");
	}
	if (!mapping || n != unmap->mappings)
		return refuse(c, "unmap of 0x%llx names %u mappings where there are %u",
		              X(unmap->address), unmap->mappings, n);
	if (unmap->slab != (n == 1 ? &mapping->slab->base : NULL))
		return refuse(c, "unmap of 0x%llx names the wrong slab", X(unmap->address));
	if (!range_find(&c->reservations, unmap->address, unmap->address + 1) ||
	    range_find(&c->reservations, unmap->address, unmap->address + 1) !=
	        range_find(&c->reservations, end - 1, end))
		return refuse(c, "unmap of 0x%llx is not within one reservation", X(unmap->address));
	return 0;
}

int record_unmap_begin(struct checking_device *c, const struct vmkv_unmap *unmap)
{
	struct mapping *mapping;
	int error = unmap_check(c, unmap);

	if (error)
		return error;
	for (uint64_t at = unmap->address; at < unmap->address + unmap->bytes;
	     at = mapping->range.end) {
		mapping = mapping_at(c, at);
		if (mapping->until > c->completed)
			violate(c, "unmap of 0x%llx, which is in use until %llu (completed: %llu)", X(at),
			        X(mapping->until), X(c->completed));
		mapping->state = UNMAPPING;
	}
	return 0;
}

void record_unmap_undo(struct checking_device *c, const struct vmkv_unmap *unmap)
{
	struct mapping *mapping;

	for (uint64_t at = unmap->address; at < unmap->address + unmap->bytes;
	     at = mapping->range.end) {
		mapping = mapping_at(c, at);
		mapping->state = MAPPED;
	}
}

void record_unmapped(struct checking_device *c, uint64_t address, uint64_t bytes)
{
	const uint64_t granule = c->base.info.granule_bytes;
	struct mapping *mapping;

	for (uint64_t at = address, end; at < address + bytes; at = end) {
		mapping = mapping_at(c, at);
		end = mapping->range.end;
		for (uint64_t i = 0; i < (end - at) / granule; i++)
			mapping_pages(c, mapping)[i].maps--;
		range_remove(&c->mappings, mapping);
		c->report.mappings--;
	}
}

/* ---- fills ---------------------------------------------------------------------------------- */

int record_fill_check(struct checking_device *c, const struct vmkv_fill *fill)
{
	struct checking_page *pages;

	if (!fill->slab)
		return 0;
	pages = pages_check(c, "fill", fill->slab, fill->offset, fill->bytes);
	return pages ? pages_idle(c, "fill", pages, fill->bytes) : -EINVAL;
}

void record_fill(struct checking_device *c, const struct vmkv_fill *fill, int change)
{
	const uint64_t granule = c->base.info.granule_bytes;
	struct checking_slab *slab = checking_slab_of(fill->slab);

	for (uint64_t i = 0; slab && i < fill->bytes / granule; i++)
		slab->pages[fill->offset / granule + i].fills += (uint32_t)change;
}

void record_fill_address(struct checking_device *c, const struct vmkv_fill *fill, uint64_t point)
{
	const uint64_t end = fill->offset + fill->bytes;
	struct mapping *mapping;

	for (uint64_t at = fill->offset; !fill->slab && at < end; at = mapping->range.end) {
		mapping = mapping_at(c, at);
		if (!mapping)
			return;
		mapping->point = point > mapping->point ? point : mapping->point;
	}
}

/* ---- for the test's engine ------------------------------------------------------------------ */

void checking_complete(struct vmkv_device *device, uint64_t completed)
{
	struct checking_device *c = checking_of(device);

	pthread_mutex_lock(&c->lock);
	if (completed > c->completed)
		c->completed = completed;
	pthread_mutex_unlock(&c->lock);
}

static void page_use(struct checking_device *c, uint64_t address, uint64_t until)
{
	const uint64_t granule = c->base.info.granule_bytes;
	struct mapping *mapping = mapping_at(c, address);
	struct checking_page *page;

	if (!mapping || mapping->state != MAPPED) {
		violate(c, "use of 0x%llx, which has nothing behind it", X(address));
		return;
	}
	page = mapping_pages(c, mapping) + (address - mapping->range.begin) / granule;
	if (until > mapping->until)
		mapping->until = until;
	if (until > page->until)
		page->until = until;
}

void checking_use(struct vmkv_device *device, uint64_t address, uint64_t bytes, uint64_t until)
{
	struct checking_device *c = checking_of(device);
	const uint64_t granule = device->info.granule_bytes, end = address + bytes;

	pthread_mutex_lock(&c->lock);
	for (uint64_t at = address - address % granule; at < end; at += granule)
		page_use(c, at, until);
	pthread_mutex_unlock(&c->lock);
}

static bool page_usable(struct checking_device *c, uint64_t address)
{
	struct mapping *mapping = mapping_at(c, address);

	return mapping && mapping->state == MAPPED && mapping->point <= c->base.completed &&
	       !mapping_pages(c, mapping)[(address - mapping->range.begin) /
	                                  c->base.info.granule_bytes].fills;
}

bool checking_usable(struct vmkv_device *device, uint64_t address, uint64_t bytes)
{
	struct checking_device *c = checking_of(device);
	const uint64_t granule = device->info.granule_bytes, end = address + bytes;
	bool usable = true;

	pthread_mutex_lock(&c->lock);
	for (uint64_t at = address - address % granule; at < end && usable; at += granule)
		usable = page_usable(c, at);
	pthread_mutex_unlock(&c->lock);
	return usable;
}

void checking_report(struct vmkv_device *device, struct checking_report *ret)
{
	struct checking_device *c = checking_of(device);

	pthread_mutex_lock(&c->lock);
	*ret = c->report;
	pthread_mutex_unlock(&c->lock);
}

/* ---- the end -------------------------------------------------------------------------------- */

void record_fini(struct checking_device *c)
{
	record_safe_fini(c);
	while (c->mappings)
		range_remove(&c->mappings, *(void **)c->mappings);
	while (c->reservations) {
		struct range *range = *(void **)c->reservations;

		c->inner->ops->release(c->inner, range->begin, range->end - range->begin);
		range_remove(&c->reservations, range);
	}
	while (c->slabs) {
		struct checking_slab *slab = c->slabs;

		c->slabs = slab->next;
		c->inner->ops->slab_destroy(c->inner, slab->inner);
		free(slab->pages);
		free(slab);
	}
}
