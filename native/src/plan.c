/* SPDX-License-Identifier: MIT
 *
 * From the pages that a sequence has to those that its new length needs, in the fewest mappings:
 * neighbouring pages become one piece, as long as the region's bounds allow.
 */
#include <errno.h>
#include <stdlib.h>

#include "cache.h"

/* Larger tables than that are not worth keeping. */
#define SPARE_PIECES 16384

static size_t plan_bytes(const struct vmkv_plan *plan)
{
	return plan->capacity * (sizeof(*plan->maps) + sizeof(*plan->gone));
}

void vmkv_plan_init(struct vmkv_cache *cache, struct vmkv_plan *plan)
{
	*plan = cache->spare;
	cache->table_bytes -= plan_bytes(plan);
	cache->spare = (struct vmkv_plan){ 0 };
}

void vmkv_plan_keep(struct vmkv_cache *cache, struct vmkv_plan *plan)
{
	struct vmkv_plan *spare = &cache->spare;

	if (plan->capacity <= spare->capacity || plan->capacity > SPARE_PIECES)
		return;
	cache->table_bytes -= plan_bytes(spare);

	struct vmkv_plan former = *spare;

	*spare = (struct vmkv_plan){ .maps = plan->maps,
		                     .gone = plan->gone,
		                     .undo = plan->undo,
		                     .capacity = plan->capacity };
	cache->table_bytes += plan_bytes(spare);
	plan->maps = former.maps;
	plan->gone = former.gone;
	plan->undo = former.undo;
}

void vmkv_plan_fini(struct vmkv_plan *plan)
{
	free(plan->maps);
	free(plan->gone);
	free(plan->undo);
	free(plan->fills);
}

static int plan_reserve(struct vmkv_plan *plan)
{
	uint32_t n = plan->capacity * 2 + 128;
	struct vmkv_map *maps;
	struct vmkv_gone *gone;

	if (plan->n < plan->capacity)
		return 0;
	if (plan->undo == NULL) {
		plan->undo = calloc(1, sizeof(*plan->undo));
		if (plan->undo == NULL)
			return -ENOMEM;
	}
	maps = realloc(plan->maps, n * sizeof(*maps));
	if (maps == NULL)
		return -ENOMEM;
	plan->maps = maps;
	gone = realloc(plan->gone, n * sizeof(*gone));
	if (gone == NULL)
		return -ENOMEM;
	plan->gone = gone;
	plan->capacity = n;
	return 0;
}

static int table_reserve(struct vmkv_cache *cache, struct vmkv_span_table *table)
{
	if (table->count < table->capacity)
		return 0;
	if (table->first > 0 && table->first >= table->capacity / 2) {
		for (uint32_t i = table->first; i < table->count; i++)
			table->pieces[i - table->first] = table->pieces[i];
		table->count -= table->first;
		table->used -= table->first;
		table->first = 0;
		return 0;
	}

	uint32_t n = table->capacity + table->capacity / 4 + 4;
	struct vmkv_piece *grown = realloc(table->pieces, n * sizeof(*grown));

	if (grown == NULL)
		return -ENOMEM;
	cache->table_bytes += (n - table->capacity) * sizeof(*grown);
	table->pieces = grown;
	table->capacity = n;
	return 0;
}

/* The page of addresses behind the last one that is mapped, warm ones included. */
static uint32_t table_end(const struct vmkv_span_table *table)
{
	if (table->count == table->first)
		return 0;

	const struct vmkv_piece *last = &table->pieces[table->count - 1];

	return last->page + last->n;
}

uint64_t vmkv_plan_need_pages(const struct vmkv_cache *cache, uint32_t slot, uint32_t tokens)
{
	const struct vmkv_addresses *layout = &cache->layout;
	uint64_t sum = 0;

	for (uint32_t r = 0; r < layout->region_count; r++) {
		uint32_t need = vmkv_region_pages(layout, &layout->regions[r], tokens);
		uint32_t end = table_end(&cache->cold[slot].spans[r]);

		sum += need > end ? need - end : 0;
	}
	return sum;
}

uint64_t vmkv_plan_need_stretches(const struct vmkv_cache *cache, uint32_t slot, uint32_t tokens)
{
	const struct vmkv_addresses *layout = &cache->layout;
	uint32_t shift = cache->pages.stretch_shift, round = cache->pages.stretch_pages - 1;
	uint64_t sum = 0;

	for (uint32_t r = 0; r < layout->region_count; r++) {
		uint32_t need = vmkv_region_pages(layout, &layout->regions[r], tokens);
		uint32_t begun = (table_end(&cache->cold[slot].spans[r]) + round) >> shift;

		need = (need + round) >> shift;
		sum += need > begun ? need - begun : 0;
	}
	return sum;
}

/* Behind which page of addresses a piece that begins at `page` must end. */
static uint32_t piece_limit(const struct vmkv_cache *cache, const struct vmkv_region *region,
                            uint32_t page)
{
	uint32_t most = region->mapping_max_pages, round = cache->pages.stretch_pages - 1;
	uint32_t end = page + most;

	if (region->mapping_aligned)
		return end - page % most;
	/* Rather end where a stretch does than in the middle of one. */
	return (end & ~round) > page ? end & ~round : end;
}

static bool same_slab(const struct vmkv_cache *cache, uint32_t a, uint32_t b)
{
	return vmkv_pages_slab_index(&cache->pages, a) == vmkv_pages_slab_index(&cache->pages, b);
}

/* Append pages to the plan's last piece, if it is of this span and they go on where it ends; returns
 * how many could be. */
static uint32_t piece_extend(struct vmkv_cache *cache, struct vmkv_plan *plan, uint32_t from,
                             const struct vmkv_region *region, struct vmkv_span_table *table,
                             struct vmkv_run run)
{
	if (plan->n == from)
		return 0;

	struct vmkv_gone *last = &plan->gone[plan->n - 1];

	if (last->phys + last->n != run.page || !same_slab(cache, last->phys, run.page))
		return 0;

	uint32_t room = piece_limit(cache, region, last->page) - (last->page + last->n);
	uint32_t n = room < run.n ? room : run.n;

	last->n += n;
	table->pieces[table->count - 1].n = last->n & INT32_MAX;
	plan->maps[plan->n - 1].bytes += (uint64_t)n << cache->pages.page_shift;
	return n;
}

static void piece_add(struct vmkv_cache *cache, struct vmkv_plan *plan, uint32_t slot, uint32_t r,
                      uint32_t page, struct vmkv_run run)
{
	struct vmkv_span_table *table = &cache->cold[slot].spans[r];
	const struct vmkv_piece *before =
	    table->count > table->first ? &table->pieces[table->count - 1] : NULL;
	bool counted = before == NULL || before->phys + before->n != run.page ||
	               !same_slab(cache, before->phys, run.page);
	uint32_t shift = cache->pages.page_shift;

	table->pieces[table->count++] = (struct vmkv_piece){
		.page = page, .phys = run.page, .n = run.n & INT32_MAX, .counted = counted
	};
	plan->gone[plan->n] = (struct vmkv_gone){
		.slot = slot,
		.region = r,
		.page = page,
		.phys = run.page,
		.n = run.n,
		.flags = counted ? VMKV_GONE_COUNTED : 0,
	};
	plan->maps[plan->n] = (struct vmkv_map){
		.address = vmkv_page_address(cache, slot, r, page),
		.bytes = (uint64_t)run.n << shift,
		.slab = vmkv_pages_slab(&cache->pages, run.page),
		.offset = vmkv_pages_offset(&cache->pages, run.page),
	};
	plan->n++;
	plan->runs += counted;
	if (cache->mirror != NULL)
		__builtin_prefetch(vmkv_mirror_expect(cache->mirror, &cache->pages, run.page), 1);
}

/* Turn a run of held pages into pieces. On -ENOMEM what is left of the run is put back. */
static int run_add(struct vmkv_cache *cache, struct vmkv_plan *plan, uint32_t from, uint32_t slot,
                   uint32_t r, uint32_t page, struct vmkv_run run)
{
	const struct vmkv_region *region = &cache->layout.regions[r];
	struct vmkv_span_table *table = &cache->cold[slot].spans[r];
	uint32_t n = piece_extend(cache, plan, from, region, table, run);

	for (;;) {
		page += n;
		run.page += n;
		run.n -= n;
		if (run.n == 0)
			return 0;
		if (plan_reserve(plan) != 0 || table_reserve(cache, table) != 0) {
			vmkv_pages_put_back(&cache->pages, run);
			return -ENOMEM;
		}

		uint32_t room = piece_limit(cache, region, page) - page;

		n = room < run.n ? room : run.n;
		piece_add(cache, plan, slot, r, page, (struct vmkv_run){ run.page, n });
	}
}

int vmkv_plan_add(struct vmkv_cache *cache, struct vmkv_plan *plan, uint32_t slot, uint32_t tokens,
                  bool may_split)
{
	const struct vmkv_addresses *layout = &cache->layout;

	for (uint32_t r = 0; r < layout->region_count; r++) {
		struct vmkv_span_table *table = &cache->cold[slot].spans[r];
		uint32_t need = vmkv_region_pages(layout, &layout->regions[r], tokens);
		uint32_t from = plan->n;

		for (uint32_t page = table_end(table); page < need;) {
			struct vmkv_want want = { VMKV_PAGE_NONE, page, need - page, may_split };
			struct vmkv_run run;

			if (page > 0) {
				const struct vmkv_piece *last = &table->pieces[table->count - 1];

				want.after = last->phys + last->n - 1;
			}
			if (!vmkv_pages_take(&cache->pages, &want, &run))
				return may_split ? -ENOSPC : -EAGAIN;

			int rc = run_add(cache, plan, from, slot, r, page, run);

			if (rc != 0)
				return rc;
			page += run.n;
			plan->pages += run.n;
		}
	}
	return 0;
}

/* What zeroes n pages of a mapping from its page `from` on. */
static struct vmkv_fill fill_of(const struct vmkv_cache *cache, const struct vmkv_map *map,
                                uint32_t from, uint32_t n)
{
	uint64_t at = (uint64_t)from << cache->pages.page_shift;

	return (struct vmkv_fill){
		.slab = cache->no_alias ? NULL : map->slab,
		.offset = (cache->no_alias ? map->address : map->offset) + at,
		.bytes = (uint64_t)n << cache->pages.page_shift,
	};
}

int vmkv_plan_collect_fills(struct vmkv_cache *cache, struct vmkv_plan *plan)
{
	struct vmkv_pages *pages = &cache->pages;
	size_t capacity = 0;

	plan->fill_count = 0;
	for (uint32_t i = 0; i < plan->n; i++) {
		struct vmkv_run piece = { plan->gone[i].phys, plan->gone[i].n };
		struct vmkv_run run;
		uint32_t at = 0;

		while (vmkv_pages_held_dirty(pages, piece, &at, &run)) {
			if (plan->fill_count == capacity) {
				struct vmkv_fill *grown;

				capacity = capacity * 2 + 64;
				grown = realloc(plan->fills, capacity * sizeof(*grown));
				if (grown == NULL)
					return -ENOMEM;
				plan->fills = grown;
			}
			plan->fills[plan->fill_count++] =
			    fill_of(cache, &plan->maps[i], run.page - piece.page, run.n);
		}
	}
	return 0;
}

void vmkv_plan_filled(struct vmkv_cache *cache, struct vmkv_plan *plan)
{
	for (uint32_t i = 0; plan->fill_count > 0 && i < plan->n; i++)
		vmkv_pages_held_clean(&cache->pages,
		                      (struct vmkv_run){ plan->gone[i].phys, plan->gone[i].n });
}

/* The piece stays mapped, ahead of its sequence. */
static void piece_keep(struct vmkv_cache *cache, const struct vmkv_gone *gone)
{
	struct vmkv_slot_cold *cold = &cache->cold[gone->slot];
	struct vmkv_run run = { gone->phys, gone->n };

	vmkv_pages_held_clean(&cache->pages, run);
	vmkv_gone_move(cache, gone, VMKV_PAGE_HELD, VMKV_PAGE_WARM);
	cold->warm_pages += gone->n;
	/* Without aliases it would have been zeroed only now. */
	cold->ahead_dirty |= cache->no_alias && cache->zero;
	cache->counters.mapped_pages += gone->n;
}

void vmkv_plan_undo(struct vmkv_cache *cache, struct vmkv_plan *plan, uint32_t issued)
{
	uint64_t runs = 0;

	for (uint32_t i = plan->n; i-- > 0;) {
		struct vmkv_gone *gone = &plan->gone[i];
		struct vmkv_run run = { gone->phys, gone->n };

		if (i < issued && cache->never_reuse) {
			piece_keep(cache, gone);
			continue;
		}
		cache->cold[gone->slot].spans[gone->region].count--;
		if (i < issued) {
			vmkv_pages_held_clean(&cache->pages, run);
			vmkv_gone_move(cache, gone, VMKV_PAGE_HELD, VMKV_PAGE_UNMAPPING);
			gone->flags |= VMKV_GONE_TAIL;
			cache->slots[gone->slot].pending++;
			cache->cold[gone->slot].pending_tail++;
			continue;
		}
		vmkv_pages_put_back(&cache->pages, run);
		runs += (gone->flags & VMKV_GONE_COUNTED) != 0;
	}
	if (plan->runs_taken)
		vmkv_cache_give_runs(cache, runs);
	if (issued > 0 && !cache->never_reuse) {
		plan->undo->gone = plan->gone;
		plan->undo->n = issued;
		vmkv_batch_append(cache, plan->undo);
		plan->gone = NULL;
		plan->undo = NULL;
		plan->capacity = 0; /* of both arrays: .maps is freed with the plan */
	}
	plan->n = 0;
	plan->pages = 0;
	plan->runs = 0;
	plan->runs_taken = false;
}

void vmkv_plan_publish(struct vmkv_cache *cache, struct vmkv_plan *plan)
{
	for (uint32_t i = 0; i < plan->n; i++) {
		struct vmkv_run run = { plan->gone[i].phys, plan->gone[i].n };

		if (!cache->zero)
			vmkv_pages_held_clean(&cache->pages, run);
		vmkv_pages_move(&cache->pages, run, VMKV_PAGE_HELD, VMKV_PAGE_MAPPED);
	}
	if (cache->mirror != NULL)
		vmkv_mirror_mapped(cache, plan->gone, plan->n);
	cache->piece_count += plan->n;
	cache->counters.mapped_pages += plan->pages;
}
