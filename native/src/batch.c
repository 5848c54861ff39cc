/* SPDX-License-Identifier: MIT
 *
 * Batches: pieces on their way back, being unmapped and zeroed. Their driver calls take what they ask
 * for from the stack: the way back must not need memory.
 */
#include <errno.h>
#include <stdlib.h>

#include "cache.h"

#define CHUNK 128 /* ranges of one driver call */

/* ---- batches --------------------------------------------------------------------------------- */

struct vmkv_batch *vmkv_batch_create(size_t capacity)
{
	struct vmkv_batch *batch = calloc(1, sizeof(*batch));

	if (batch == NULL)
		return NULL;
	batch->gone = malloc((capacity + 1) * sizeof(*batch->gone));
	batch->capacity = (uint32_t)capacity;
	if (batch->gone == NULL) {
		free(batch);
		return NULL;
	}
	return batch;
}

void vmkv_batch_destroy(struct vmkv_batch *batch)
{
	if (batch != NULL)
		free(batch->gone);
	free(batch);
}

void vmkv_batch_append(struct vmkv_cache *cache, struct vmkv_batch *batch)
{
	batch->next = NULL;
	*cache->batches_end = batch;
	cache->batches_end = &batch->next;
}

struct vmkv_gone vmkv_piece_gone(const struct vmkv_piece *piece, uint32_t slot, uint32_t region)
{
	return (struct vmkv_gone){
		.slot = slot,
		.region = region,
		.page = piece->page,
		.phys = piece->phys,
		.n = piece->n,
		.flags = piece->counted ? VMKV_GONE_COUNTED : 0,
	};
}

struct vmkv_gone vmkv_piece_pop_front(struct vmkv_cache *cache, uint32_t slot, uint32_t region)
{
	struct vmkv_span_table *table = &cache->cold[slot].spans[region];
	struct vmkv_piece *piece = &table->pieces[table->first++];
	struct vmkv_gone gone = vmkv_piece_gone(piece, slot, region);

	/* The run goes on, if the next piece belongs to it. */
	if (piece->counted && table->first < table->count && !piece[1].counted) {
		piece[1].counted = 1;
		gone.flags = 0;
	}
	cache->slots[slot].pending++;
	return gone;
}

void vmkv_pieces_unmap(struct vmkv_cache *cache, struct vmkv_batch *batch, uint32_t slot,
                         uint32_t region, uint32_t from, bool open)
{
	struct vmkv_span_table *table = &cache->cold[slot].spans[region];

	for (uint32_t i = from; i < table->count; i++) {
		struct vmkv_gone gone = vmkv_piece_gone(&table->pieces[i], slot, region);
		bool warm = i >= table->used;

		vmkv_gone_move(cache, &gone, warm ? VMKV_PAGE_WARM : VMKV_PAGE_RETIRING,
		               VMKV_PAGE_UNMAPPING);
		if (warm) {
			gone.flags |= cache->cold[slot].ahead_dirty ? 0 : VMKV_GONE_CLEAN;
			cache->cold[slot].warm_pages -= gone.n;
		}
		if (open) {
			gone.flags |= VMKV_GONE_TAIL;
			cache->cold[slot].pending_tail++;
		}
		cache->slots[slot].pending++;
		batch->gone[batch->n++] = gone;
	}
	table->count = from;
	if (table->used > from)
		table->used = from;
	if (table->first == from)
		table->first = table->used = table->count = 0;
}

/* ---- driver calls ---------------------------------------------------------------------------- */

/* Fill a chunk with ranges of the batch's pieces from `from` on; returns how many there are. */
static size_t unmap_chunk(const struct vmkv_cache *cache, const struct vmkv_batch *batch,
                          uint32_t from, struct vmkv_unmap *chunk)
{
	uint32_t shift = cache->pages.page_shift;
	size_t n = 0;

	for (uint32_t i = from; i < batch->n; i++) {
		const struct vmkv_gone *gone = &batch->gone[i];
		const struct vmkv_gone *before = &batch->gone[i - (i > from)];
		uint64_t bytes = (uint64_t)gone->n << shift;

		if (i > from && gone->slot == before->slot && gone->region == before->region &&
		    gone->page == before->page + before->n) {
			chunk[n - 1].bytes += bytes;
			chunk[n - 1].mappings++;
			chunk[n - 1].slab = NULL;
			continue;
		}
		if (n == CHUNK)
			break;
		chunk[n++] = (struct vmkv_unmap){
			.address = vmkv_page_address(cache, gone->slot, gone->region, gone->page),
			.bytes = bytes,
			.mappings = 1,
			.slab = vmkv_pages_slab(&cache->pages, gone->phys),
		};
	}
	return n;
}

static void piece_free_clean(struct vmkv_cache *cache, const struct vmkv_gone *gone)
{
	if (gone->flags & VMKV_GONE_CLEAN)
		vmkv_gone_move(cache, gone, VMKV_PAGE_UNMAPPING, VMKV_PAGE_FREE_CLEAN);
}

static void pieces_issued(struct vmkv_cache *cache, struct vmkv_batch *batch, uint32_t to)
{
	for (; batch->issued < to; batch->issued++) {
		/* Zero, and used by nobody: whoever maps them next is ordered after the unmap. But with
		 * no_alias nobody may before that is reached. */
		if (!cache->no_alias)
			piece_free_clean(cache, &batch->gone[batch->issued]);
	}
}

/* Unmap the batch's pieces from `issued` on. Returns whether any could be. */
static bool batch_unmap(struct vmkv_cache *cache, struct vmkv_batch *batch)
{
	struct vmkv_device *device = cache->device;
	uint32_t first = batch->issued;
	struct vmkv_unmap chunk[CHUNK];
	int rc = 0;

	while (batch->issued < batch->n && rc == 0) {
		size_t n = unmap_chunk(cache, batch, batch->issued, chunk), issued = 0;
		uint32_t to = batch->issued;
		uint64_t point = 0, began, ended;

		if (vmkv_device_is_lost(device)) {
			pieces_issued(cache, batch, batch->n);
			break;
		}
		vmkv_cache_unlock(cache);
		began = vmkv_mirror_clock(cache);
		rc = device->ops->unmap(device, chunk, n, &issued, &point);
		ended = vmkv_mirror_clock(cache);
		vmkv_cache_lock(cache);
		vmkv_mirror_called(cache, VMKV_PUBLISHED_CALL_UNMAP, n, began, ended);
		cache->counters.unmap_calls += issued + (rc != 0);
		cache->counters.failed_calls += rc != 0;
		for (size_t i = 0; i < issued; i++)
			to += chunk[i].mappings;
		vmkv_mirror_unmapped(cache, &batch->gone[batch->issued], to - batch->issued);
		if (issued > 0 && point > batch->point)
			batch->point = point;
		if (point > cache->last_point)
			cache->last_point = point;
		pieces_issued(cache, batch, rc == -ENODEV ? batch->n : to);
	}
	batch->tried = true;
	return batch->issued > first;
}

/* Fill a chunk with the batch's pages from piece *at on that need zeroing. Without aliases those
 * are mapped: they stay warm. */
static size_t fill_chunk(const struct vmkv_cache *cache, const struct vmkv_batch *batch,
                         uint32_t *at, struct vmkv_fill *chunk)
{
	const struct vmkv_pages *pages = &cache->pages;
	size_t n = 0;

	for (; *at < batch->n; ++*at) {
		const struct vmkv_gone *gone = &batch->gone[*at];
		uint64_t offset = vmkv_pages_offset(pages, gone->phys);
		struct vmkv_slab *slab = vmkv_pages_slab(pages, gone->phys);
		uint64_t bytes = (uint64_t)gone->n << pages->page_shift;

		if (gone->flags & VMKV_GONE_CLEAN)
			continue;
		if (cache->no_alias) {
			slab = NULL;
			offset = vmkv_page_address(cache, gone->slot, gone->region, gone->page);
		}
		if (n > 0 && chunk[n - 1].slab == slab &&
		    chunk[n - 1].offset + chunk[n - 1].bytes == offset) {
			chunk[n - 1].bytes += bytes;
			continue;
		}
		if (n == CHUNK)
			break;
		chunk[n++] = (struct vmkv_fill){ .slab = slab, .offset = offset, .bytes = bytes };
	}
	return n;
}

int vmkv_cache_fill(struct vmkv_cache *cache, const struct vmkv_fill *fills, size_t n,
                    uint64_t *point)
{
	struct vmkv_device *device = cache->device;
	uint64_t began, ended;
	int rc;

	*point = 0;
	vmkv_cache_unlock(cache);
	began = vmkv_mirror_clock(cache);
	rc = device->ops->fill(device, fills, n, point);
	ended = vmkv_mirror_clock(cache);
	vmkv_cache_lock(cache);
	vmkv_mirror_called(cache, VMKV_PUBLISHED_CALL_FILL, n, began, ended);
	cache->counters.fill_calls += n;
	cache->counters.failed_calls += rc != 0;
	if (*point > cache->last_point)
		cache->last_point = *point;
	return rc;
}

/* Zero the batch's pages. On failure some may be zero, and none counts as such. */
static int batch_fill(struct vmkv_cache *cache, struct vmkv_batch *batch)
{
	struct vmkv_fill chunk[CHUNK];
	uint32_t at = 0;
	int rc = 0;

	batch->point = 0;
	while (rc == 0) {
		size_t n = fill_chunk(cache, batch, &at, chunk);
		uint64_t point;

		if (n == 0)
			return 0;
		if (vmkv_device_is_lost(cache->device))
			return -ENODEV;
		rc = vmkv_cache_fill(cache, chunk, n, &point);
		if (rc == 0 && point > batch->point)
			batch->point = point;
	}
	return rc;
}

/* ---- steps of a batch ------------------------------------------------------------------------ */

static void pieces_move(struct vmkv_cache *cache, const struct vmkv_batch *batch,
                        enum vmkv_page_state from, enum vmkv_page_state to)
{
	for (uint32_t i = 0; i < batch->n; i++) {
		const struct vmkv_gone *gone = &batch->gone[i];

		if ((gone->flags & VMKV_GONE_CLEAN) == 0)
			vmkv_gone_move(cache, gone, from, to);
	}
}

/* The issued pieces have no address any more. */
static void pieces_done(struct vmkv_cache *cache, struct vmkv_batch *batch)
{
	uint64_t runs = 0;

	for (; batch->done < batch->issued; batch->done++) {
		const struct vmkv_gone *gone = &batch->gone[batch->done];

		if (cache->no_alias)
			piece_free_clean(cache, gone);
		runs += (gone->flags & VMKV_GONE_COUNTED) != 0;
		cache->slots[gone->slot].pending--;
		cache->cold[gone->slot].pending_tail -= (gone->flags & VMKV_GONE_TAIL) != 0;
		cache->piece_count--;
		vmkv_slot_update_open(cache, gone->slot);
	}
	vmkv_cache_give_runs(cache, runs);
}

void vmkv_slot_warmed(struct vmkv_cache *cache, uint32_t slot, uint64_t point)
{
	struct vmkv_slot_cold *cold = &cache->cold[slot];

	for (uint32_t r = 0; r < cache->layout.region_count; r++) {
		struct vmkv_span_table *table = &cold->spans[r];

		for (uint32_t i = table->first; i < table->used; i++) {
			struct vmkv_gone gone = vmkv_piece_gone(&table->pieces[i], slot, r);

			vmkv_gone_move(cache, &gone, VMKV_PAGE_RETIRING, VMKV_PAGE_WARM);
			cold->warm_pages += gone.n;
		}
		table->used = table->first;
	}
	if (point > cold->warm_point)
		cold->warm_point = point;
	cache->slots[slot].state = VMKV_SLOT_FREE;
	vmkv_slot_update_open(cache, slot);
}

/* Returns whether the batch is done with. If the fill fails, the slot's memory goes the long way. */
static bool batch_warm(struct vmkv_cache *cache, struct vmkv_batch *batch)
{
	uint32_t slot = batch->gone[0].slot;
	int rc = batch_fill(cache, batch);

	for (uint32_t i = 0; i < batch->n; i++)
		cache->warming_pages -= batch->gone[i].n;
	if (rc == 0) {
		vmkv_slot_warmed(cache, slot, batch->point);
		return true;
	}
	/* There is room for the warm tails of its spans too. */
	batch->n = 0;
	for (uint32_t r = 0; r < cache->layout.region_count; r++)
		vmkv_pieces_unmap(cache, batch, slot, r, cache->cold[slot].spans[r].first, false);
	cache->slots[slot].state = VMKV_SLOT_FREE;
	batch->warming = false;
	batch->point = 0;
	return false;
}

/* All pieces are unmapped: zero what needs it. Returns whether the batch is done with. */
static bool batch_zero(struct vmkv_cache *cache, struct vmkv_batch *batch)
{
	pieces_move(cache, batch, VMKV_PAGE_UNMAPPING, VMKV_PAGE_FREE_DIRTY);
	/* Without aliases they can be when they are mapped again. */
	if (!cache->zero || cache->no_alias)
		return true;
	pieces_move(cache, batch, VMKV_PAGE_FREE_DIRTY, VMKV_PAGE_ZEROING);
	if (batch_fill(cache, batch) != 0) {
		pieces_move(cache, batch, VMKV_PAGE_ZEROING, VMKV_PAGE_FREE_DIRTY);
		return true;
	}
	batch->zeroing = true;
	return false;
}

bool vmkv_batch_advance(struct vmkv_cache *cache, struct vmkv_batch *batch, bool retry,
                          bool *finished)
{
	bool moved = false;

	*finished = false;
	if (batch->warming) {
		*finished = batch_warm(cache, batch);
		return true;
	}
	if (!batch->zeroing && batch->issued == batch->done && batch->done < batch->n &&
	    (!batch->tried || retry))
		moved = batch_unmap(cache, batch);
	if (!batch->zeroing && batch->issued > batch->done &&
	    vmkv_device_reached(cache->device, batch->point)) {
		pieces_done(cache, batch);
		moved = true;
	}
	if (!batch->zeroing && batch->done == batch->n) {
		*finished = batch_zero(cache, batch);
		moved = true;
	}
	if (batch->zeroing && vmkv_device_reached(cache->device, batch->point)) {
		pieces_move(cache, batch, VMKV_PAGE_ZEROING, VMKV_PAGE_FREE_CLEAN);
		*finished = true;
		moved = true;
	}
	return moved;
}
