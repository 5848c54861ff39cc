/* SPDX-License-Identifier: MIT
 *
 * The hot call. With nothing to map it is two loops over the sequences; else the sequences become
 * busy, the lock is dropped for the driver calls, and all of it happens or nothing.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "cache.h"

struct step {
	struct vmkv_growth growth;
	size_t promised; /* of cache->waiting_promised */
	uint64_t ready;
	bool grew;
};

/* ---- checks, and the way that needs no driver ------------------------------------------------ */

/* Why sequence i of the request is refused. */
static int check_fail(struct vmkv_cache *cache, const struct vmkv_step_request *request, uint32_t i)
{
	vmkv_seq seq = request->seqs[i];
	uint32_t tokens = request->tokens[i], slot;
	int rc = vmkv_slot_find(cache, seq, &slot);

	if (rc != 0)
		return rc;

	const struct vmkv_slot *s = &cache->slots[slot];

	if (s->stamp == cache->stamp)
		return vmkv_cache_fail(cache, -EINVAL,
		                       "sequence %#" PRIx64 " (slot %u) is in this step twice", seq,
		                       slot);
	if (tokens < s->live)
		return vmkv_cache_fail(cache, -EINVAL,
		                       "sequence %#" PRIx64 " (slot %u): a step can't shrink it from "
		                       "%u to %u tokens",
		                       seq, slot, s->live, tokens);
	return vmkv_cache_fail(cache, -ERANGE,
	                       "sequence %#" PRIx64 " (slot %u): %u tokens is past max_tokens %u",
	                       seq, slot, tokens, cache->layout.max_tokens);
}

/* Check all sequences. *slow: one of them has something to map or to trim. */
static int check_all(struct vmkv_cache *cache, const struct vmkv_step_request *request, bool *slow)
{
	uint64_t stamp = ++cache->stamp;
	uint32_t slots = cache->layout.slot_count, most = cache->layout.max_tokens;
	bool any = false;

	for (uint32_t i = 0; i < request->n; i++) {
		vmkv_seq seq = request->seqs[i];
		uint32_t tokens = request->tokens[i], slot = vmkv_slot_of(seq);
		struct vmkv_slot *s = &cache->slots[slot < slots ? slot : 0];

		if (s->seq != seq || seq == 0 || s->busy || s->stamp == stamp ||
		    tokens < s->live || tokens > most)
			return check_fail(cache, request, i);
		s->stamp = stamp;
		any |= tokens > s->mapped || s->live >= s->trim_at;
	}
	*slow = any;
	return 0;
}

/* Tell the new lengths. */
static uint64_t publish(struct vmkv_cache *cache, const struct vmkv_step_request *request)
{
	bool windows = cache->layout.window_groups > 0;
	uint64_t ready = 0, grown = 0;

	for (uint32_t i = 0; i < request->n; i++) {
		struct vmkv_slot *s = &cache->slots[vmkv_slot_of(request->seqs[i])];
		uint32_t tokens = request->tokens[i];

		grown += tokens - s->live;
		cache->states_live += s->live == 0 && tokens > 0;
		if (windows)
			vmkv_cache_change_dead(cache, s->previous, s->live);
		s->previous = s->live;
		s->live = tokens;
		if (request->busy_until > s->busy_until)
			s->busy_until = request->busy_until;
		if (s->ready_point == 0)
			continue;
		if (vmkv_device_reached(cache->device, s->ready_point)) {
			s->ready_point = 0;
			cache->unready--;
			vmkv_slot_publish(cache, vmkv_slot_of(request->seqs[i]));
		} else if (s->ready_point > ready) {
			ready = s->ready_point;
		}
	}
	cache->total_live += grown;
	cache->counters.steps++;

	uint64_t live = vmkv_cache_live_bytes(cache);

	if (live > cache->counters.live_bytes_peak)
		cache->counters.live_bytes_peak = live;
	if (cache->mirror != NULL)
		vmkv_mirror_step(cache, request);
	return ready;
}

/* ---- windows --------------------------------------------------------------------------------- */

/* Pieces at the front of a span that are wholly dead at the sequence's present length. */
static uint32_t dead_pieces(const struct vmkv_cache *cache, uint32_t slot, uint32_t r,
                            uint32_t tokens)
{
	const struct vmkv_span_table *table = &cache->cold[slot].spans[r];
	uint32_t pages =
	    vmkv_region_dead_pages(&cache->layout, &cache->layout.regions[r], tokens);
	uint32_t i = table->first;

	while (i < table->used && table->pieces[i].page + table->pieces[i].n <= pages)
		i++;
	return i - table->first;
}

static int trim_reserve(struct vmkv_cache *cache, struct step *step)
{
	const struct vmkv_step_request *request = step->growth.request;
	size_t n = 0;
	int rc;

	for (uint32_t i = 0; i < request->n; i++) {
		uint32_t slot = vmkv_slot_of(request->seqs[i]);

		for (uint32_t r = 0; r < cache->layout.region_count; r++)
			n += dead_pieces(cache, slot, r, cache->slots[slot].live);
	}
	rc = vmkv_waiting_reserve(cache, n);
	if (rc != 0)
		return rc;
	/* The lock is dropped before they are put there. */
	step->promised = n;
	cache->waiting_promised += n;
	return 0;
}

/* After a step: what lies below its former length - window - slack retires. */
static void trim(struct vmkv_cache *cache, uint32_t slot)
{
	const struct vmkv_slot *s = &cache->slots[slot];

	for (uint32_t r = 0; r < cache->layout.region_count; r++) {
		if (!cache->layout.regions[r].window)
			continue;
		for (uint32_t n = dead_pieces(cache, slot, r, s->previous); n > 0; n--) {
			struct vmkv_gone gone = vmkv_piece_pop_front(cache, slot, r);

			vmkv_gone_move(cache, &gone, VMKV_PAGE_MAPPED, VMKV_PAGE_RETIRING);
			vmkv_mirror_given(cache, &gone, VMKV_PUBLISHED_EVENT_TRIM);
			vmkv_waiting_push(cache, s->busy_until, &gone);
		}
	}
}

/* ---- the slow way ---------------------------------------------------------------------------- */

/* Addresses that a sequence grows into may still be on their way back, after a shortage. Drops the
 * lock to wait for them. */
static int check_tails(struct vmkv_cache *cache, const struct vmkv_step_request *request)
{
	for (uint32_t i = 0; i < request->n; i++) {
		uint32_t slot = vmkv_slot_of(request->seqs[i]);

		if (cache->cold[slot].pending_tail == 0 ||
		    vmkv_plan_need_pages(cache, slot, request->tokens[i]) == 0)
			continue;
		vmkv_cache_settle(cache, true);
		if (cache->cold[slot].pending_tail > 0) {
			uint64_t point = cache->last_point;

			vmkv_cache_unlock(cache);
			vmkv_wait(cache->device, point, UINT64_MAX);
			vmkv_cache_lock(cache);
			vmkv_cache_settle(cache, false);
		}
		if (cache->cold[slot].pending_tail > 0)
			return vmkv_cache_fail(cache, -EBUSY,
			                       "sequence %#" PRIx64 " (slot %u): memory behind its "
			                       "next addresses is still being unmapped",
			                       request->seqs[i], slot);
	}
	return 0;
}

static int step_slow(struct vmkv_cache *cache, struct step *step)
{
	const struct vmkv_step_request *request = step->growth.request;
	int rc;

	for (uint32_t i = 0; i < request->n; i++)
		cache->slots[vmkv_slot_of(request->seqs[i])].busy = 1;
	vmkv_plan_init(cache, &step->growth.plan);
	rc = check_tails(cache, request);
	if (rc == 0)
		rc = vmkv_grow_clean(cache, &step->growth);
	if (rc == 0)
		rc = vmkv_grow_plan(cache, &step->growth);
	if (rc == 0) {
		rc = trim_reserve(cache, step);
		if (rc != 0)
			vmkv_plan_undo(cache, &step->growth.plan, 0);
	}
	step->grew = step->growth.plan.n > 0;
	if (rc == 0)
		rc = vmkv_grow_apply(cache, &step->growth);
	cache->waiting_promised -= step->promised;
	for (uint32_t i = 0; i < request->n; i++) {
		uint32_t slot = vmkv_slot_of(request->seqs[i]);

		cache->slots[slot].busy = 0;
		if (rc == 0 && request->tokens[i] > cache->slots[slot].mapped)
			vmkv_grow_use(cache, slot, request->tokens[i], step->growth.point);
	}
	if (rc == -ENOSPC)
		vmkv_grow_report(cache, &step->growth);
	if (rc != 0)
		return rc;
	step->ready = publish(cache, request);
	cache->counters.growing_steps += step->grew;
	for (uint32_t i = 0; i < request->n; i++) {
		uint32_t slot = vmkv_slot_of(request->seqs[i]);

		if (cache->layout.window_groups > 0)
			trim(cache, slot);
		vmkv_slot_refresh(cache, slot);
		vmkv_slot_publish(cache, slot);
	}
	vmkv_cache_note_peaks(cache);
	return 0;
}

static int step_locked(struct vmkv_cache *cache, struct step *step)
{
	bool slow = false;
	int rc;

	if (vmkv_device_is_lost(cache->device))
		return vmkv_cache_fail(cache, -ENODEV, "the device is lost");
	rc = check_all(cache, step->growth.request, &slow);
	if (rc != 0)
		return rc;
	if (!slow) {
		step->ready = publish(cache, step->growth.request);
		return 0;
	}
	rc = step_slow(cache, step);
	/* Trimmed memory whose busy_until was passed already goes within the call. */
	if (rc == 0 && cache->layout.window_groups > 0)
		vmkv_cache_settle(cache, false);
	return rc;
}

int vmkv_step(vmkv_cache *cache, const struct vmkv_step_request *request,
              struct vmkv_step_result *result)
{
	struct vmkv_step_request known;
	struct step step = { .growth.request = &known };
	struct vmkv_step_result out;
	int rc;

	if (cache == NULL)
		return -EINVAL;
	rc = vmkv_struct_in(&known, sizeof(known), request);
	if (rc == 0 && known.reserved != 0)
		rc = -E2BIG;
	if (rc == 0 && result != NULL && result->struct_size < sizeof(size_t))
		rc = -EINVAL;
	if (rc == 0 && known.n > 0 && (known.seqs == NULL || known.tokens == NULL))
		rc = -EINVAL;
	vmkv_cache_lock(cache);
	if (rc != 0)
		vmkv_cache_fail(cache, rc, "struct vmkv_step_request: %s",
		                rc == -E2BIG ? "sets a field that this library doesn't know"
		                             : "it needs struct_size, seqs and tokens, and the "
		                               "result its struct_size");
	else
		rc = step_locked(cache, &step);
	vmkv_plan_keep(cache, &step.growth.plan);
	vmkv_cache_unlock(cache);
	vmkv_plan_fini(&step.growth.plan);
	if (result != NULL && (rc == 0 || rc == -ENOSPC)) {
		out = (struct vmkv_step_result){ .ready = step.ready, .shortage = step.growth.shortage };
		vmkv_struct_out(result, &out, sizeof(out));
	}
	return rc;
}
