/* SPDX-License-Identifier: MIT
 *
 * How a step gets memory: from free pages, new slabs, what is warm, and what has come back; and what it
 * tells when that isn't enough.
 */
#include <errno.h>
#include <inttypes.h>

#include "cache.h"

/* ---- shortages ------------------------------------------------------------------------------- */

/* What the step's own sequences have warm beyond their new lengths. */
static uint64_t own_warm_pages(const struct vmkv_cache *cache,
                               const struct vmkv_step_request *request)
{
	const struct vmkv_addresses *layout = &cache->layout;
	uint64_t sum = 0;

	for (uint32_t i = 0; i < request->n; i++) {
		const struct vmkv_slot_cold *cold = &cache->cold[vmkv_slot_of(request->seqs[i])];

		if (!vmkv_slot_may_drop(cache, vmkv_slot_of(request->seqs[i])))
			continue;
		for (uint32_t r = 0; cold->warm_pages > 0 && r < layout->region_count; r++) {
			const struct vmkv_span_table *table = &cold->spans[r];
			uint32_t need = vmkv_region_pages(layout, &layout->regions[r],
			                                  request->tokens[i]);
			uint32_t at = table->count;

			while (at > table->used && table->pieces[at - 1].page >= need)
				sum += table->pieces[--at].n;
		}
	}
	return sum;
}

static int short_of_mappings(struct vmkv_cache *cache, struct vmkv_growth *growth, uint64_t need,
                             uint64_t missing)
{
	const char *hint = cache->device->mappings_hint;

	growth->shortage.kind = VMKV_SHORTAGE_MAPPINGS;
	growth->shortage.needed = need;
	growth->shortage.missing = missing;
	return vmkv_cache_fail(cache, -ENOSPC,
	                       "short of %" PRIu64 " mappings: the step needs %" PRIu64
	                       " more, and the device has room for %" PRIu64 "%s%s",
	                       missing, need, need - missing, hint != NULL ? ": " : "",
	                       hint != NULL ? hint : "");
}

static int short_of_bytes(struct vmkv_cache *cache, struct vmkv_growth *growth, uint64_t need,
                          uint64_t has)
{
	uint32_t shift = cache->pages.page_shift;
	struct vmkv_shortage *out = &growth->shortage;

	/* The budget has room, but a new slab would need a mapping for its alias. */
	if (cache->device_full == -EMLINK)
		return short_of_mappings(cache, growth, 1, 1);
	has += vmkv_warm_pages(cache) + own_warm_pages(cache, growth->request);
	/* Warm memory that can't be had now, since its unmaps fail, doesn't count. */
	has = has < need ? has : need - 1;
	out->kind = VMKV_SHORTAGE_BYTES;
	out->needed = need << shift;
	out->missing = (need - has) << shift;
	return vmkv_cache_fail(cache, -ENOSPC,
	                       "short of %" PRIu64 " bytes: the step needs %" PRIu64 ", and %" PRIu64
	                       " of the budget of %" PRIu64 " are to be had%s",
	                       out->missing, out->needed, has << shift, cache->budget_bytes,
	                       cache->device_full != 0 ? " (the device has no more)" : "");
}

/* Whether there is memory in what waits: a sequence may have been closed without any. */
static bool waiting_has_memory(const struct vmkv_cache *cache, const struct vmkv_gone *gone)
{
	if (gone->region != VMKV_REGION_ALL)
		return true;
	for (uint32_t r = 0; r < cache->layout.region_count; r++) {
		const struct vmkv_span_table *table = &cache->cold[gone->slot].spans[r];

		if (table->used > table->first)
			return true;
	}
	return false;
}

void vmkv_grow_report(struct vmkv_cache *cache, struct vmkv_growth *growth)
{
	const struct vmkv_step_request *request = growth->request;
	const uint64_t *count = cache->pages.count;
	uint32_t shift = cache->pages.page_shift;
	struct vmkv_shortage *out = &growth->shortage;

	out->retiring_bytes = count[VMKV_PAGE_RETIRING] << shift;
	out->transit_bytes = (count[VMKV_PAGE_UNMAPPING] + count[VMKV_PAGE_ZEROING]) << shift;
	out->transit_point = out->transit_bytes > 0 ? cache->last_point : 0;
	for (size_t i = 0; i < cache->waiting_count; i++) {
		if (cache->waiting[i].until > out->retiring_until &&
		    waiting_has_memory(cache, &cache->waiting[i].gone))
			out->retiring_until = cache->waiting[i].until;
	}
	for (uint32_t i = 0; request->seq_needed_bytes != NULL && i < request->n; i++)
		request->seq_needed_bytes[i] =
		    vmkv_plan_need_pages(cache, vmkv_slot_of(request->seqs[i]),
		                         request->tokens[i])
		    << shift;
	cache->counters.shortages++;
	vmkv_mirror_shortage(cache, out, request->seqs[0]);
}

/* ---- growing --------------------------------------------------------------------------------- */

static uint64_t need_pages(const struct vmkv_cache *cache, const struct vmkv_step_request *request)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < request->n; i++) {
		uint32_t slot = vmkv_slot_of(request->seqs[i]);

		if (request->tokens[i] > cache->slots[slot].mapped)
			sum += vmkv_plan_need_pages(cache, slot, request->tokens[i]);
	}
	return sum;
}

/* Pages of as many stretches as the step would newly begin and are not there, at least one. */
static uint64_t lacking_pages(const struct vmkv_cache *cache,
                              const struct vmkv_step_request *request)
{
	uint64_t whole = vmkv_pages_whole_stretches(&cache->pages), need = 0;

	for (uint32_t i = 0; i < request->n; i++)
		need += vmkv_plan_need_stretches(cache, vmkv_slot_of(request->seqs[i]),
		                                 request->tokens[i]);
	return need > whole ? (need - whole) << cache->pages.stretch_shift : 1;
}

/* Plan all sequences, or nothing. */
static int plan_all(struct vmkv_cache *cache, struct vmkv_growth *growth, bool may_split)
{
	const struct vmkv_step_request *request = growth->request;
	struct vmkv_plan *plan = &growth->plan;
	bool dirty = cache->zero && cache->pages.count[VMKV_PAGE_FREE_DIRTY] > 0;
	int rc = 0;

	plan->fill_count = 0;
	for (uint32_t i = 0; i < request->n && rc == 0; i++) {
		uint32_t slot = vmkv_slot_of(request->seqs[i]);

		if (request->tokens[i] > cache->slots[slot].mapped)
			rc = vmkv_plan_add(cache, plan, slot, request->tokens[i], may_split);
	}
	if (rc == 0 && dirty)
		rc = vmkv_plan_collect_fills(cache, plan);
	if (rc != 0)
		vmkv_plan_undo(cache, plan, 0);
	return rc;
}

/* Count the plan's runs with the device, or undo it. Returns how many are too many. */
static uint64_t plan_count(struct vmkv_cache *cache, struct vmkv_plan *plan)
{
	uint64_t missing = vmkv_device_take_mappings(cache->device, plan->runs);

	if (missing > 0) {
		vmkv_plan_undo(cache, plan, 0);
		return missing;
	}
	cache->runs += plan->runs;
	plan->runs_taken = true;
	return 0;
}

/* Drop what the step's own sequences have warm beyond their new lengths. Returns whether any was. */
static bool reclaim_own(struct vmkv_cache *cache, const struct vmkv_step_request *request)
{
	uint64_t before = cache->pages.count[VMKV_PAGE_WARM];

	for (uint32_t i = 0; i < request->n; i++)
		vmkv_warm_drop(cache, vmkv_slot_of(request->seqs[i]), request->tokens[i], true);
	return cache->pages.count[VMKV_PAGE_WARM] < before;
}

/* What was on its way back may have arrived. Drops the lock. Returns whether there is more now. */
static bool settle_more(struct vmkv_cache *cache)
{
	uint64_t unused = vmkv_pages_free(&cache->pages), runs = cache->runs;

	vmkv_cache_settle(cache, false);
	return vmkv_pages_free(&cache->pages) > unused || cache->runs < runs;
}

/* Make memory for `need` pages available: by waiting for slabs that another call creates, from what is
 * warm, and from what has come back. Drops the lock. Returns -EAGAIN if it is worth looking again. */
static int make_room(struct vmkv_cache *cache, struct vmkv_growth *growth, uint64_t need,
                     uint64_t has)
{
	if (cache->slab_bytes_pending > 0) {
		pthread_cond_wait(&cache->slabs_changed, &cache->lock);
		return -EAGAIN;
	}
	if (has + cache->pages.count[VMKV_PAGE_WARM] >= need &&
	    (vmkv_warm_reclaim(cache, need - has, 0) || reclaim_own(cache, growth->request))) {
		vmkv_warm_settle(cache);
		return -EAGAIN;
	}
	if (settle_more(cache))
		return -EAGAIN;
	return short_of_bytes(cache, growth, need, has);
}

/* Take pages for everything. Drops the lock while slabs are created or warm memory is unmapped; what
 * it decides by is read anew each time. */
int vmkv_grow_plan(struct vmkv_cache *cache, struct vmkv_growth *growth)
{
	bool may_grow = true;

	for (;;) {
		uint64_t need = need_pages(cache, growth->request);
		uint64_t has = vmkv_cache_available_pages(cache, may_grow);
		int rc, error = 0;

		if (vmkv_device_is_lost(cache->device))
			return vmkv_cache_fail(cache, -ENODEV, "the device is lost");
		if (need == 0)
			return 0;
		if (has < need) {
			rc = make_room(cache, growth, need, has);
			if (rc != -EAGAIN)
				return rc;
			may_grow = true; /* others may have given slabs back meanwhile */
			continue;
		}
		rc = plan_all(cache, growth, false);
		if (rc == -EAGAIN) {
			/* No stretch is whole any more: new slabs have some; else share. */
			uint64_t added = 0;

			if (may_grow)
				added = vmkv_cache_grow(cache, lacking_pages(cache, growth->request),
				                        &error);
			if (error != 0 && error != -ENOSPC && error != -EMLINK)
				return error; /* whose text is on the cache */
			if (added > 0)
				continue;
			may_grow = false;
			rc = plan_all(cache, growth, true);
			if (rc == -ENOSPC)
				continue; /* others took what there was: look again */
		}
		if (rc != 0)
			return vmkv_cache_fail(cache, rc, "no host memory for the step's tables");

		uint64_t runs = growth->plan.runs, missing = plan_count(cache, &growth->plan);

		if (missing == 0)
			return 0;
		if (vmkv_warm_reclaim(cache, 0, missing) || reclaim_own(cache, growth->request))
			vmkv_cache_settle(cache, false);
		else if (!settle_more(cache))
			return short_of_mappings(cache, growth, runs, missing);
	}
}

/* What the open slot has depends on a further point. */
static void slot_depend(struct vmkv_cache *cache, uint32_t slot, uint64_t point)
{
	struct vmkv_slot *s = &cache->slots[slot];

	if (point <= s->ready_point || vmkv_device_reached(cache->device, point))
		return;
	cache->unready += s->ready_point == 0;
	s->ready_point = point;
}

/* What became of a plan's driver calls. */
struct applied {
	size_t issued;              /* maps */
	bool map_failed, fill_failed;
	size_t maps, fills;       /* of the calls that were made ... */
	/* ... and when those were, if the cache is shared */
	uint64_t map_began, map_ended, fill_began, fill_ended;
};

static int plan_fill(const struct vmkv_cache *cache, struct vmkv_growth *growth,
                     struct applied *applied)
{
	struct vmkv_device *device = cache->device;
	uint64_t point = 0;
	int rc = 0;

	if (growth->plan.fill_count > 0) {
		applied->fill_began = vmkv_mirror_clock(cache);
		rc = device->ops->fill(device, growth->plan.fills, growth->plan.fill_count, &point);
		applied->fill_ended = vmkv_mirror_clock(cache);
		applied->fills = growth->plan.fill_count;
	}
	applied->fill_failed = rc != 0;
	if (point > growth->point)
		growth->point = point;
	return rc;
}

static int plan_map(const struct vmkv_cache *cache, struct vmkv_growth *growth,
                    struct applied *applied)
{
	struct vmkv_device *device = cache->device;
	struct vmkv_plan *plan = &growth->plan;
	uint64_t point = 0;
	int rc;

	applied->map_began = vmkv_mirror_clock(cache);
	rc = device->ops->map(device, plan->maps, plan->n, &applied->issued, &point);
	applied->map_ended = vmkv_mirror_clock(cache);
	applied->maps = plan->n;
	applied->map_failed = rc != 0;
	if (point > growth->point)
		growth->point = point;
	return rc;
}

/* Pages are zeroed before they have an address, or where they can't be reached then, by their
 * address before it is ready. Without the lock. */
static int plan_carry_out(const struct vmkv_cache *cache, struct vmkv_growth *growth,
                          struct applied *applied)
{
	struct vmkv_device *device = cache->device;
	int rc;

	if (cache->no_alias) {
		rc = plan_map(cache, growth, applied);
		return rc != 0 ? rc : plan_fill(cache, growth, applied);
	}
	rc = plan_fill(cache, growth, applied);
	if (rc != 0)
		return rc;

	uint64_t filled = growth->point;

	rc = plan_map(cache, growth, applied);
	/* What is put back must not be filled later. */
	if (rc != 0)
		vmkv_wait(device, filled, UINT64_MAX);
	return rc;
}

static int apply_failed(struct vmkv_cache *cache, struct vmkv_growth *growth,
                        const struct applied *applied, int rc)
{
	struct vmkv_plan *plan = &growth->plan;
	uint64_t runs = plan->runs;

	cache->counters.failed_calls++;
	cache->piece_count += applied->issued;
	vmkv_cache_note_peaks(cache);
	for (size_t i = 0; cache->never_reuse && i < applied->issued; i++)
		slot_depend(cache, plan->gone[i].slot, growth->point);
	vmkv_plan_undo(cache, plan, (uint32_t)applied->issued);
	if (rc == -ENOSPC)
		rc = short_of_mappings(cache, growth, runs > 0 ? runs : 1, 1);
	else
		rc = vmkv_cache_fail_device(cache, rc, "the step could not be mapped");
	vmkv_cache_settle(cache, false);
	return rc;
}

int vmkv_grow_apply(struct vmkv_cache *cache, struct vmkv_growth *growth)
{
	struct vmkv_plan *plan = &growth->plan;
	struct applied applied = { 0 };
	int rc;

	if (plan->n == 0)
		return 0;
	vmkv_cache_unlock(cache);
	rc = plan_carry_out(cache, growth, &applied);
	vmkv_cache_lock(cache);
	if (applied.fills > 0)
		vmkv_mirror_called(cache, VMKV_PUBLISHED_CALL_FILL, applied.fills,
		                   applied.fill_began, applied.fill_ended);
	if (applied.maps > 0)
		vmkv_mirror_called(cache, VMKV_PUBLISHED_CALL_MAP, applied.maps, applied.map_began,
		                   applied.map_ended);
	if (growth->point > cache->last_point)
		cache->last_point = growth->point;
	if (!cache->no_alias || !applied.map_failed)
		cache->counters.fill_calls += plan->fill_count;
	cache->counters.map_calls += applied.issued + applied.map_failed;
	if (!applied.fill_failed && !(cache->no_alias && applied.map_failed))
		vmkv_plan_filled(cache, plan);
	if (rc != 0)
		return apply_failed(cache, growth, &applied, rc);
	vmkv_plan_publish(cache, plan);
	return 0;
}

/* ---- what is ahead --------------------------------------------------------------------------- */

#define CHUNK 128 /* fills of one driver call */

/* Fills for the pieces of a span from *at on that are ahead. */
static size_t ahead_chunk(const struct vmkv_cache *cache, uint32_t slot, uint32_t r, uint32_t *at,
                          struct vmkv_fill *chunk)
{
	const struct vmkv_span_table *table = &cache->cold[slot].spans[r];
	size_t n = 0;

	for (; *at < table->count && n < CHUNK; ++*at) {
		const struct vmkv_piece *piece = &table->pieces[*at];

		chunk[n++] = (struct vmkv_fill){
			.offset = vmkv_page_address(cache, slot, r, piece->page),
			.bytes = (uint64_t)piece->n << cache->pages.page_shift,
		};
	}
	return n;
}

static int ahead_zero(struct vmkv_cache *cache, uint32_t slot)
{
	struct vmkv_fill chunk[CHUNK];
	size_t n;

	for (uint32_t r = 0; r < cache->layout.region_count; r++) {
		uint32_t at = cache->cold[slot].spans[r].used;

		while ((n = ahead_chunk(cache, slot, r, &at, chunk)) > 0) {
			uint64_t point;
			int rc = vmkv_cache_fill(cache, chunk, n, &point);

			if (rc != 0)
				return rc;
			slot_depend(cache, slot, point);
		}
	}
	cache->cold[slot].ahead_dirty = false;
	return 0;
}

int vmkv_grow_clean(struct vmkv_cache *cache, struct vmkv_growth *growth)
{
	const struct vmkv_step_request *request = growth->request;
	int rc = 0;

	for (uint32_t i = 0; i < request->n && rc == 0; i++) {
		uint32_t slot = vmkv_slot_of(request->seqs[i]);

		if (cache->cold[slot].ahead_dirty && request->tokens[i] > cache->slots[slot].mapped)
			rc = ahead_zero(cache, slot);
	}
	if (rc == -ENOSPC)
		return short_of_mappings(cache, growth, 1, 1);
	if (rc != 0)
		return vmkv_cache_fail_device(cache, rc, "memory ahead could not be zeroed");
	return 0;
}

void vmkv_grow_use(struct vmkv_cache *cache, uint32_t slot, uint32_t tokens, uint64_t point)
{
	const struct vmkv_addresses *layout = &cache->layout;

	for (uint32_t r = 0; r < layout->region_count; r++) {
		struct vmkv_span_table *table = &cache->cold[slot].spans[r];

		if (cache->cold[slot].warm_pages == 0) {
			table->used = table->count;
			continue;
		}

		uint32_t need = vmkv_region_pages(layout, &layout->regions[r], tokens);

		for (; table->used < table->count; table->used++) {
			const struct vmkv_piece *piece = &table->pieces[table->used];

			if (piece->page >= need)
				break;
			if (vmkv_pages_state(&cache->pages, piece->phys) != VMKV_PAGE_WARM)
				continue;

			struct vmkv_gone gone = vmkv_piece_gone(piece, slot, r);

			vmkv_gone_move(cache, &gone, VMKV_PAGE_WARM, VMKV_PAGE_MAPPED);
			cache->cold[slot].warm_pages -= piece->n;
		}
	}
	slot_depend(cache, slot, point);
}
