/* SPDX-License-Identifier: MIT
 *
 * What waits for vmkv_retire, and where it goes then: to a batch, or it stays warm.
 */
#include <errno.h>
#include <stdlib.h>

#include "cache.h"

#define TRIMMED 128 /* pieces of a batch */

/* ---- the heap of what waits ------------------------------------------------------------------ */

int vmkv_waiting_reserve(struct vmkv_cache *cache, size_t n)
{
	size_t need = cache->waiting_count + cache->waiting_promised + cache->open_count + n;
	struct vmkv_waiting *grown;

	if (need <= cache->waiting_capacity)
		return 0;
	need += need / 2 + 16;
	grown = realloc(cache->waiting, need * sizeof(*grown));
	if (grown == NULL)
		return vmkv_cache_fail(cache, -ENOMEM, "no memory for what waits to be retired");
	cache->table_bytes += (need - cache->waiting_capacity) * sizeof(*grown);
	cache->waiting = grown;
	cache->waiting_capacity = need;
	return 0;
}

/* Pieces that are due at the same time come in order of address: neighbours go by one call. */
static bool waiting_before(const struct vmkv_waiting *a, const struct vmkv_waiting *b)
{
	if (a->until != b->until)
		return a->until < b->until;
	if (a->gone.slot != b->gone.slot)
		return a->gone.slot < b->gone.slot;
	if (a->gone.region != b->gone.region)
		return a->gone.region < b->gone.region;
	return a->gone.page < b->gone.page;
}

void vmkv_waiting_push(struct vmkv_cache *cache, uint64_t until, const struct vmkv_gone *gone)
{
	const struct vmkv_waiting new = { until, *gone };
	struct vmkv_waiting *heap = cache->waiting;
	size_t i = cache->waiting_count++;

	for (; i > 0 && waiting_before(&new, &heap[(i - 1) / 2]); i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = new;
}

static void waiting_pop(struct vmkv_cache *cache)
{
	struct vmkv_waiting *heap = cache->waiting;
	size_t n = --cache->waiting_count;
	struct vmkv_waiting last = heap[n];
	size_t i = 0, child;

	for (; (child = 2 * i + 1) < n; i = child) {
		if (child + 1 < n && waiting_before(&heap[child + 1], &heap[child]))
			child++;
		if (!waiting_before(&heap[child], &last))
			break;
		heap[i] = heap[child];
	}
	heap[i] = last;
}

/* ---- what is due ----------------------------------------------------------------------------- */

static bool keep_warm(const struct vmkv_cache *cache, uint64_t pages)
{
	uint64_t most = cache->warm_max_bytes == 0 ? cache->budget_bytes / 4 : cache->warm_max_bytes;
	uint64_t now = (cache->pages.count[VMKV_PAGE_WARM] + cache->warming_pages)
	               << cache->pages.page_shift;

	/* With never_reuse nobody opens the slot again. */
	return !cache->never_reuse && most != VMKV_WARM_OFF &&
	       cache->slab_bytes_held <= cache->budget_bytes &&
	       !vmkv_device_is_lost(cache->device) &&
	       now + (pages << cache->pages.page_shift) <= most;
}

/* A closed slot was retired. Returns false if there is no memory to go on; nothing changed then. */
static bool slot_retired(struct vmkv_cache *cache, uint32_t slot)
{
	struct vmkv_slot_cold *cold = &cache->cold[slot];
	struct vmkv_batch *unmap, *warm;
	uint64_t pages = 0;
	size_t n = 0, used = 0;

	for (uint32_t r = 0; r < cache->layout.region_count; r++) {
		const struct vmkv_span_table *table = &cold->spans[r];

		n += table->count - table->first;
		if (table->count == table->first || table->pieces[table->first].page > 0)
			continue;
		for (uint32_t i = table->first; i < table->used; i++, used++)
			pages += table->pieces[i].n;
	}
	unmap = vmkv_batch_create(n);
	warm = vmkv_batch_create(n);
	if (unmap == NULL || warm == NULL) {
		vmkv_batch_destroy(unmap);
		vmkv_batch_destroy(warm);
		return false;
	}

	bool keep = keep_warm(cache, pages);

	for (uint32_t r = 0; r < cache->layout.region_count; r++) {
		struct vmkv_span_table *table = &cold->spans[r];

		/* A window's front is gone: the next sequence would lack it. */
		if (!keep || (table->count > table->first && table->pieces[table->first].page > 0))
			vmkv_pieces_unmap(cache, unmap, slot, r, table->first, false);
		for (uint32_t i = table->first; i < table->used; i++)
			warm->gone[warm->n++] = vmkv_piece_gone(&table->pieces[i], slot, r);
	}
	if (unmap->n > 0)
		vmkv_batch_append(cache, unmap);
	else
		vmkv_batch_destroy(unmap);
	warm->warming = true;
	if (warm->n > 0 && cache->zero) {
		for (uint32_t i = 0; i < warm->n; i++)
			cache->warming_pages += warm->gone[i].n;
		vmkv_batch_append(cache, warm);
		return true;
	}
	vmkv_batch_destroy(warm);
	vmkv_slot_warmed(cache, slot, 0);
	return true;
}

/* Put what was retired on batches. Returns whether there was anything. */
static bool waiting_advance(struct vmkv_cache *cache)
{
	bool lost = vmkv_device_is_lost(cache->device), moved = false;
	struct vmkv_batch *pieces = NULL;

	while (cache->waiting_count > 0 && (lost || cache->waiting[0].until <= cache->completed)) {
		struct vmkv_gone gone = cache->waiting[0].gone;

		if (gone.region == VMKV_REGION_ALL) {
			if (!slot_retired(cache, gone.slot))
				break;
		} else {
			if (pieces == NULL || pieces->n == pieces->capacity) {
				if (pieces != NULL)
					vmkv_batch_append(cache, pieces);
				pieces = vmkv_batch_create(TRIMMED);
				if (pieces == NULL)
					break;
			}
			vmkv_gone_move(cache, &gone, VMKV_PAGE_RETIRING, VMKV_PAGE_UNMAPPING);
			pieces->gone[pieces->n++] = gone;
		}
		vmkv_mirror_given(cache, &gone, VMKV_PUBLISHED_EVENT_RETIRE);
		waiting_pop(cache);
		moved = true;
	}
	if (pieces != NULL && pieces->n > 0)
		vmkv_batch_append(cache, pieces);
	else
		vmkv_batch_destroy(pieces);
	return moved;
}

void vmkv_cache_settle(struct vmkv_cache *cache, bool retry)
{
	bool moved = cache->waiting_count > 0 || cache->batches != NULL;

	while (moved) {
		struct vmkv_batch *batch, *next;

		moved = waiting_advance(cache);
		batch = cache->batches;
		cache->batches = NULL;
		cache->batches_end = &cache->batches;
		for (; batch != NULL; batch = next) {
			bool finished;

			next = batch->next;
			moved |= vmkv_batch_advance(cache, batch, retry, &finished);
			if (finished)
				vmkv_batch_destroy(batch);
			else
				vmkv_batch_append(cache, batch);
		}
		retry = false;
	}
}

int vmkv_retire(vmkv_cache *cache, uint64_t completed)
{
	int rc = 0;

	if (cache == NULL)
		return -EINVAL;
	vmkv_device_poll(cache->device);
	vmkv_cache_lock(cache);
	if (completed > cache->completed)
		cache->completed = completed;
	cache->device_full = 0;
	vmkv_cache_settle(cache, true);
	vmkv_slots_advance(cache);
	if (cache->slab_bytes_held > cache->budget_bytes)
		vmkv_cache_drain(cache, cache->budget_bytes);
	if (vmkv_device_is_lost(cache->device))
		rc = vmkv_cache_fail(cache, -ENODEV, "the device is lost");
	vmkv_cache_unlock(cache);
	return rc;
}

/* ---- warm memory ----------------------------------------------------------------------------- */

int vmkv_warm_drop(struct vmkv_cache *cache, uint32_t slot, uint32_t keep_tokens, bool keep_parts)
{
	const struct vmkv_addresses *layout = &cache->layout;
	struct vmkv_slot_cold *cold = &cache->cold[slot];
	struct vmkv_batch *batch;
	size_t n = 0;

	if (cold->warm_pages == 0 || !vmkv_slot_may_drop(cache, slot))
		return 0;
	for (uint32_t r = 0; r < layout->region_count; r++)
		n += cold->spans[r].count - cold->spans[r].used;
	batch = vmkv_batch_create(n);
	if (batch == NULL)
		return -ENOMEM;
	for (uint32_t r = 0; r < layout->region_count; r++) {
		const struct vmkv_span_table *table = &cold->spans[r];
		uint32_t keep = keep_tokens == 0
		                    ? 0
		                    : vmkv_region_pages(layout, &layout->regions[r], keep_tokens);
		uint32_t from = table->count;

		while (from > table->used &&
		       table->pieces[from - 1].page +
		               (keep_parts ? 1 : table->pieces[from - 1].n) > keep)
			from--;
		vmkv_pieces_unmap(cache, batch, slot, r, from,
		             cache->slots[slot].state == VMKV_SLOT_OPEN);
	}
	if (batch->n > 0)
		vmkv_batch_append(cache, batch);
	else
		vmkv_batch_destroy(batch);
	return 0;
}

/* Drop one slot's warm memory and take what that frees off the wanted amounts. */
static bool warm_reclaim_slot(struct vmkv_cache *cache, uint32_t slot, uint64_t *pages,
                              uint64_t *runs)
{
	const struct vmkv_slot_cold *cold = &cache->cold[slot];
	uint64_t had = cold->warm_pages, counted = 0;

	for (uint32_t r = 0; had > 0 && r < cache->layout.region_count; r++) {
		for (uint32_t i = cold->spans[r].used; i < cold->spans[r].count; i++)
			counted += cold->spans[r].pieces[i].counted;
	}
	if (had == 0 || !vmkv_slot_may_drop(cache, slot) ||
	    vmkv_warm_drop(cache, slot, 0, false) != 0)
		return false;
	*pages -= had < *pages ? had : *pages;
	*runs -= counted < *runs ? counted : *runs;
	vmkv_slot_update_open(cache, slot);
	return true;
}

uint64_t vmkv_warm_pages(const struct vmkv_cache *cache)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < cache->layout.slot_count; i++) {
		if (!cache->slots[i].busy && vmkv_slot_may_drop(cache, i))
			sum += cache->cold[i].warm_pages;
	}
	return sum;
}

bool vmkv_warm_reclaim(struct vmkv_cache *cache, uint64_t pages, uint64_t runs)
{
	static const uint8_t order[] = { VMKV_SLOT_FREE, VMKV_SLOT_RETIRING, VMKV_SLOT_OPEN };
	bool any = false;

	/* Closed slots first, and the highest first: the lowest is opened next. */
	for (size_t o = 0; o < sizeof(order); o++) {
		for (uint32_t i = cache->layout.slot_count; i-- > 0 && (pages > 0 || runs > 0);) {
			if (cache->slots[i].state == order[o] && !cache->slots[i].busy)
				any |= warm_reclaim_slot(cache, i, &pages, &runs);
		}
	}
	return any;
}

void vmkv_warm_settle(struct vmkv_cache *cache)
{
	vmkv_cache_settle(cache, false);
	if (!cache->no_alias || cache->pages.count[VMKV_PAGE_UNMAPPING] == 0)
		return;

	uint64_t point = cache->last_point;

	vmkv_cache_unlock(cache);
	vmkv_wait(cache->device, point, UINT64_MAX);
	vmkv_cache_lock(cache);
	vmkv_cache_settle(cache, false);
}
