/* SPDX-License-Identifier: MIT
 *
 * From a cache to the sections of its file, and the tables that go with it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "cache.h"
#include "publish.h"
#include "publish_process.h"

#define SECTIONS 10
#define ALIGN 64
/* Slabs beyond those of the budget: where the device had no whole ones, there are more of less. */
#define SPARE_SLABS 3

_Static_assert(offsetof(struct vmkv_published_header, epoch) == 64, "on a cache line of its own");
_Static_assert(offsetof(struct vmkv_published_header, pid) == 128, "");
_Static_assert(sizeof(struct vmkv_published_piece) == 16, "four entries are a cache line");
_Static_assert((int)VMKV_PUBLISHED_PIECE_UNMAPPING < 1 << VMKV_PUBLISHED_STATE_BITS, "");
_Static_assert(2 * sizeof(struct vmkv_published_live) == 64, "an entry is a cache line");
_Static_assert(sizeof(struct vmkv_published_event) == 64, "an entry is a cache line");
_Static_assert((int)VMKV_PUBLISHED_SLOT_OPEN == (int)VMKV_SLOT_OPEN &&
                   (int)VMKV_PUBLISHED_SLOT_RETIRING == (int)VMKV_SLOT_RETIRING,
               "states of slots are told as they are");

/* ---- sections -------------------------------------------------------------------------------- */

/* How many slabs can come to be. */
static uint64_t slab_capacity(const struct vmkv_cache *cache)
{
	return (cache->budget_bytes - 1) / cache->slab_bytes + 1 + SPARE_SLABS;
}

#define SECTION(of, many, n, record) \
	{ .id = VMKV_PUBLISHED_##of, .versions = (many), .count = (n), .entry_bytes = sizeof(record) }

/* Fill in the table. Returns the size of the file. */
static uint64_t sections_lay_out(const struct vmkv_cache *cache,
                                 struct vmkv_published_section sections[SECTIONS])
{
	const struct vmkv_addresses *layout = &cache->layout;
	const struct vmkv_group_layout *last = &layout->groups[layout->group_count - 1];
	uint64_t slots = layout->slot_count, slabs = slab_capacity(cache);
	uint64_t places = last->first_place + (uint64_t)last->layers * last->tensor_count;
	uint64_t at = sizeof(struct vmkv_published_header) + SECTIONS * sizeof(*sections);
	/* What a growing step writes lies together, but for the large ones. */
	const struct vmkv_published_section table[SECTIONS] = {
		SECTION(STATE, 2, 1, struct vmkv_published_state),
		SECTION(LIVES, 2, slots, struct vmkv_published_live),
		SECTION(SLOTS, 2, slots, struct vmkv_published_slot),
		SECTION(SLABS, 2, slabs, struct vmkv_published_slab),
		SECTION(TIMES, 1, VMKV_PUBLISHED_CALLS, struct vmkv_published_times),
		SECTION(PIECES, 1, slabs * cache->pages.slab_pages, struct vmkv_published_piece),
		SECTION(RING, 1, VMKV_PUBLISHED_EVENTS, struct vmkv_published_event),
		SECTION(GROUPS, 1, layout->group_count, struct vmkv_published_group),
		SECTION(REGIONS, 1, layout->region_count, struct vmkv_published_region),
		SECTION(PLACES, 1, places, struct vmkv_published_place),
	};

	memcpy(sections, table, sizeof(table));
	for (uint32_t i = 0; i < SECTIONS; i++) {
		struct vmkv_published_section *s = &sections[i];

		at = (at + ALIGN - 1) / ALIGN * ALIGN;
		s->offset = at;
		at += s->versions * s->entry_bytes * s->count;
	}
	return at;
}

/* Where a section is. */
static void *section_at(const struct vmkv_mirror *mirror, enum vmkv_published_id id)
{
	const struct vmkv_published_section *table = (const void *)(mirror->header + 1);

	for (uint32_t i = 0; i < SECTIONS; i++) {
		if (table[i].id == (uint32_t)id)
			return mirror->file.bytes + table[i].offset;
	}
	return NULL;
}

/* How many bits the number has. */
static uint8_t bits_of(uint64_t number)
{
	return number > 0 ? (uint8_t)(64 - __builtin_clzll(number)) : 0;
}

/* How the place of a piece is written. */
static int place_lay_out(const struct vmkv_cache *cache, struct vmkv_mirror *mirror)
{
	const struct vmkv_addresses *layout = &cache->layout;
	uint64_t pages = 0;

	for (uint32_t r = 0; r < layout->region_count; r++) {
		uint64_t stride = layout->regions[r].slot_stride >> layout->page_shift;

		pages = stride > pages ? stride : pages;
	}
	mirror->page_shift = bits_of(cache->pages.slab_pages);
	mirror->region_shift = mirror->page_shift + bits_of(pages - 1);
	mirror->slot_shift = mirror->region_shift + bits_of(layout->region_count - 1);
	mirror->place_bits = mirror->slot_shift + bits_of(layout->slot_count - 1);
	return mirror->place_bits < 64 ? 0 : -EOVERFLOW;
}

/* ---- what is constant ------------------------------------------------------------------------ */

/* The card's PCI id, from the kernel's list of what the device's descriptor is of. */
static void pci_id_find(const struct vmkv_device *device, char *text, size_t n)
{
	struct vmkv_amdgpu_info info = { .struct_size = sizeof(info) };
	char path[64], target[256];
	const char *name;
	struct stat node;
	ssize_t length;

	if (vmkv_amdgpu_info(device, &info) != 0 || fstat(info.drm_fd, &node) != 0 ||
	    !S_ISCHR(node.st_mode))
		return;
	snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/device", major(node.st_rdev),
	         minor(node.st_rdev));
	length = readlink(path, target, sizeof(target) - 1);
	if (length <= 0)
		return;
	target[length] = 0;
	name = strrchr(target, '/') != NULL ? strrchr(target, '/') + 1 : target;
	if (strchr(name, ':') != NULL)
		vmkv_text(text, n, "%s", name);
}

static void header_fill(const struct vmkv_cache *cache, struct vmkv_published_header *header)
{
	const struct vmkv_device_info *info = &cache->device->info;
	const struct vmkv_addresses *layout = &cache->layout;

	vmkv_mirror_identify(header);
	header->version_major = VMKV_PUBLISHED_MAJOR;
	header->version_minor = VMKV_PUBLISHED_MINOR;
	header->header_bytes = sizeof(*header);
	header->section_count = SECTIONS;
	header->section_bytes = sizeof(struct vmkv_published_section);
	header->library = vmkv_version();
	header->file_bytes = cache->mirror->file.size;
	vmkv_text(header->device, sizeof(header->device), "%s", info->name);
	vmkv_text(header->driver, sizeof(header->driver), "%.*s", (int)strcspn(info->name, ":?"),
	          info->name);
	if (strcmp(header->driver, "amdgpu") == 0)
		pci_id_find(cache->device, header->pci_id, sizeof(header->pci_id));
	header->safe = info->safe;
	header->wait_after_map_us = info->wait_after_map_us;
	header->tag = cache->tag;
	header->layout = layout->layout;
	header->page_bytes = layout->page_bytes;
	header->slab_bytes = cache->slab_bytes;
	header->reserved_bytes = layout->reserved_bytes;
	header->bytes_per_token = layout->token_bytes;
	header->fixed_bytes = layout->fixed_bytes;
	header->slot_count = layout->slot_count;
	header->max_slots = cache->max_slots;
	header->max_tokens = layout->max_tokens;
	header->read_align_tokens = layout->read_align_tokens;
	header->slab_pages = cache->pages.slab_pages;
	header->stretch_pages = cache->pages.stretch_pages;
	header->pages_bits = cache->mirror->page_shift;
	header->page_bits = cache->mirror->region_shift - cache->mirror->page_shift;
	header->region_bits = cache->mirror->slot_shift - cache->mirror->region_shift;
	header->slot_bits = cache->mirror->place_bits - cache->mirror->slot_shift;
	header->zero = cache->zero;
}

static void group_fill(const struct vmkv_mirror *mirror, const struct vmkv_addresses *layout,
                       uint32_t g)
{
	struct vmkv_published_group *group =
	    (struct vmkv_published_group *)section_at(mirror, VMKV_PUBLISHED_GROUPS) + g;
	struct vmkv_published_place *place = section_at(mirror, VMKV_PUBLISHED_PLACES);
	const struct vmkv_group_layout *from = &layout->groups[g];
	uint32_t n = from->layers * from->tensor_count;

	*group = (struct vmkv_published_group){
		.policy = from->policy,
		.layers = from->layers,
		.tensors = from->tensor_count,
		.first_place = from->first_place,
		.token_bytes = from->token_bytes,
		.window_tokens = from->policy == VMKV_POLICY_WINDOW ? from->window_tokens : 0,
	};
	for (uint32_t i = 0; i < n; i++) {
		const struct vmkv_place *p = &layout->places[from->first_place + i];

		place[from->first_place + i] = (struct vmkv_published_place){
			.offset = p->offset,
			.row_bytes = p->row_bytes,
			.region = p->region,
			.group = g,
			.layer = i / from->tensor_count,
			.tensor = i % from->tensor_count,
		};
	}
}

static void layout_fill(const struct vmkv_mirror *mirror, const struct vmkv_addresses *layout)
{
	struct vmkv_published_region *region = section_at(mirror, VMKV_PUBLISHED_REGIONS);

	for (uint32_t g = 0; g < layout->group_count; g++)
		group_fill(mirror, layout, g);
	for (uint32_t r = 0; r < layout->region_count; r++) {
		const struct vmkv_region *from = &layout->regions[r];

		region[r] = (struct vmkv_published_region){
			.base = from->base,
			.slot_stride = from->slot_stride,
			.token_bytes = from->token_bytes,
			.fixed_bytes = from->fixed_bytes,
			.group = from->group,
		};
	}
}

/* ---- create and destroy ---------------------------------------------------------------------- */

/* n zeroed elements, counted in table_bytes. */
static void *table_create(struct vmkv_mirror *mirror, size_t n, size_t bytes, bool *failed)
{
	void *table = calloc(n, bytes);

	mirror->table_bytes += n * bytes;
	*failed |= table == NULL;
	return table;
}

static int tables_create(struct vmkv_cache *cache, struct vmkv_mirror *mirror)
{
	size_t slots = cache->layout.slot_count, slabs = slab_capacity(cache);
	bool failed = false;

#define TABLE(of, n) mirror->of = table_create(mirror, n, sizeof(*mirror->of), &failed)
	mirror->slab_capacity = (uint32_t)slabs;
	mirror->table_bytes = sizeof(*mirror);
	TABLE(slot_now, slots);
	TABLE(slot_tally, slots);
	TABLE(slots_changed, slots);
	TABLE(slot_marked, slots);
	TABLE(slab_now, slabs);
	TABLE(slab_tally, slabs);
	TABLE(slabs_changed, slabs);
	TABLE(slab_marked, slabs);
#undef TABLE
	return failed ? -ENOMEM : 0;
}

static void mirror_free(struct vmkv_mirror *mirror)
{
	free(mirror->slot_now);
	free(mirror->slot_tally);
	free(mirror->slots_changed);
	free(mirror->slot_marked);
	free(mirror->slab_now);
	free(mirror->slab_tally);
	free(mirror->slabs_changed);
	free(mirror->slab_marked);
	free(mirror);
}

static void file_fill(struct vmkv_cache *cache, const struct vmkv_published_section *sections)
{
	struct vmkv_mirror *mirror = cache->mirror;

	mirror->header = (struct vmkv_published_header *)(void *)mirror->file.bytes;
	memcpy(mirror->header + 1, sections, SECTIONS * sizeof(*sections));
	mirror->state = section_at(mirror, VMKV_PUBLISHED_STATE);
	mirror->lives = section_at(mirror, VMKV_PUBLISHED_LIVES);
	mirror->slots = section_at(mirror, VMKV_PUBLISHED_SLOTS);
	mirror->pieces = section_at(mirror, VMKV_PUBLISHED_PIECES);
	mirror->slabs = section_at(mirror, VMKV_PUBLISHED_SLABS);
	mirror->ring = section_at(mirror, VMKV_PUBLISHED_RING);
	mirror->times = section_at(mirror, VMKV_PUBLISHED_TIMES);
	header_fill(cache, mirror->header);
	layout_fill(mirror, &cache->layout);
	/* The state as it is now, with nothing in it, is the first change. */
	mirror->changed = true;
	vmkv_mirror_commit(cache);
	mirror->header->magic = VMKV_PUBLISHED_MAGIC;
}

int vmkv_mirror_create(struct vmkv_cache *cache, char *error, size_t error_bytes)
{
	struct vmkv_published_section sections[SECTIONS];
	uint64_t bytes = sections_lay_out(cache, sections);
	struct vmkv_mirror *mirror = calloc(1, sizeof(*mirror));
	int rc = mirror != NULL ? tables_create(cache, mirror) : -ENOMEM;

	if (rc == 0)
		rc = place_lay_out(cache, mirror);
	if (rc == -EOVERFLOW)
		vmkv_text(error, error_bytes,
		          "a cache of so many slots, layers and tokens can't be shared: raise "
		          "page_bytes");
	else if (rc != 0)
		vmkv_text(error, error_bytes, "no host memory for what is shared");
	else
		rc = vmkv_mirror_file_create(&mirror->file, cache->tag, bytes, error, error_bytes);
	if (rc != 0) {
		if (mirror != NULL)
			mirror_free(mirror);
		return rc;
	}
	cache->table_bytes += mirror->table_bytes;
	cache->mirror = mirror;
	file_fill(cache, sections);
	rc = vmkv_mirror_file_show(&mirror->file, error, error_bytes);
	if (rc != 0)
		vmkv_mirror_destroy(cache);
	return rc;
}

void vmkv_mirror_destroy(struct vmkv_cache *cache)
{
	struct vmkv_mirror *mirror = cache->mirror;

	if (mirror == NULL)
		return;
	cache->mirror = NULL;
	cache->table_bytes -= mirror->table_bytes;
	vmkv_mirror_file_destroy(&mirror->file);
	mirror_free(mirror);
}
