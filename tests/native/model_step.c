/* SPDX-License-Identifier: MIT
 *
 * Random steps: what they must return, and what they must say when memory is short.
 */
#include "model_ops.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "check.h"

struct attempt {
	struct vmkv_step_request request;
	struct vmkv_step_result result;
	vmkv_seq seqs[ORACLE_SLOTS + 1];
	uint32_t tokens[ORACLE_SLOTS + 1];
	uint64_t needed[ORACLE_SLOTS + 1];
	uint32_t slots[ORACLE_SLOTS + 1];
	int expected;       /* what the request is refused with, or 0 */
	uint64_t need;      /* bytes that it newly takes */
	uint64_t available; /* bytes that it can be given ... */
	uint64_t unused;    /* ... of which so many are not kept warm */
};

/* ---- what to ask for ------------------------------------------------------------------------- */

static uint32_t length_draw(struct model_run *run, uint32_t live)
{
	struct seeded *random = &run->oracle.random;
	uint32_t left = run->oracle.info.max_tokens - live;
	uint32_t most = left;

	switch (seeded_from(random, 0, 9)) {
	case 0:
		return live;
	case 1:
		break;
	case 2:
	case 3:
		most = left < 64 ? left : 64;
		break;
	case 4:
		most = left / 4;
		break;
	default:
		most = left < 3 ? left : 3;
	}
	return live + seeded_from(random, 0, most);
}

static void request_draw(struct model_run *run, struct attempt *a)
{
	struct oracle *o = &run->oracle;
	uint32_t percent = seeded_from(&o->random, 10, 100);
	uint32_t start = seeded_from(&o->random, 0, o->slot_count - 1);

	for (uint32_t i = 0; i < o->slot_count; i++) {
		uint32_t s = (start + i) % o->slot_count;

		if (o->slots[s].state != ORACLE_OPEN || !model_chance(&o->random, percent))
			continue;
		a->slots[a->request.n] = s;
		a->seqs[a->request.n] = o->slots[s].seq;
		a->tokens[a->request.n++] = length_draw(run, o->slots[s].live);
	}
	a->request.struct_size = sizeof(a->request);
	a->request.seqs = a->seqs;
	a->request.tokens = a->tokens;
	a->request.busy_until = model_busy_draw(run);
	a->request.seq_needed_bytes = a->needed;
	a->result.struct_size = sizeof(a->result);
}

/* Make one element of the request wrong. */
static void request_spoil(struct model_run *run, struct attempt *a)
{
	struct oracle *o = &run->oracle;
	uint32_t n = a->request.n, i = n > 0 ? seeded_from(&o->random, 0, n - 1) : 0;

	switch (n > 0 ? seeded_from(&o->random, 0, 5) : 3) {
	case 0:
		if (o->slots[a->slots[i]].live == 0)
			break;
		a->tokens[i] = seeded_from(&o->random, 0, o->slots[a->slots[i]].live - 1);
		a->expected = -EINVAL;
		break;
	case 1:
		a->slots[n] = a->slots[i];
		a->seqs[n] = a->seqs[i];
		a->tokens[n] = a->tokens[i];
		a->request.n++;
		a->expected = -EINVAL;
		break;
	case 2:
		a->tokens[i] = o->info.max_tokens + 1;
		a->expected = -ERANGE;
		break;
	case 3:
		a->seqs[i] = run->last_closed;
		a->request.n += n == 0;
		a->expected = -ESTALE;
		break;
	case 4:
		a->seqs[i] ^= UINT64_C(1) << 63;
		a->expected = -ESTALE;
		break;
	default:
		a->request.struct_size = 1;
		a->expected = -EINVAL;
	}
}

/* ---- what it must come to -------------------------------------------------------------------- */

/* Bytes of kept pages that the request can do without. */
static uint64_t spare_bytes(const struct oracle *o, const struct attempt *a)
{
	bool in_request[ORACLE_SLOTS] = { false };
	uint64_t pages = 0;

	for (uint32_t i = 0; i < a->request.n; i++) {
		in_request[a->slots[i]] = true;
		for (uint32_t r = 0; r < o->region_count; r++) {
			const struct oracle_page *span = o->slots[a->slots[i]].pages[r];
			uint32_t need = oracle_region_pages(o, &o->regions[r], a->tokens[i]);

			for (uint32_t p = need; p < o->regions[r].pages; p++)
				pages += span[p].state == ORACLE_KEPT && span[p].first >= need;
		}
	}
	return pages * o->info.page_bytes + oracle_kept_bytes(o, in_request);
}

static void foresee(const struct oracle *o, struct attempt *a)
{
	const struct vmkv_stats *stats = &o->stats;
	uint64_t page = o->info.page_bytes, budget = o->budget_bytes / page * page;
	uint64_t unused = stats->free_clean_bytes + stats->free_dirty_bytes;
	uint64_t used = stats->slab_bytes - unused;

	for (uint32_t i = 0; i < a->request.n; i++)
		a->need += oracle_need_bytes(o, a->slots[i], a->tokens[i]);
	if (budget > stats->slab_bytes)
		unused += budget - stats->slab_bytes;
	a->available = budget > used ? budget - used : 0;
	if (unused < a->available)
		a->available = unused;
	a->unused = a->available;
	a->available += spare_bytes(o, a);
}

static void shortage_check(const struct oracle *o, const struct attempt *a)
{
	const struct vmkv_shortage *shortage = &a->result.shortage;
	uint64_t until = 0;

	for (uint32_t i = 0; i < a->request.n; i++) {
		uint64_t need = oracle_need_bytes(o, a->slots[i], a->tokens[i]);

		if (a->needed[i] != need && !o->faults)
			oracle_fail(o, "slot %u is said to be short of %" PRIu64 " bytes, not %" PRIu64,
			            a->slots[i], a->needed[i], need);
	}
	if (shortage->missing == 0 || shortage->missing > shortage->needed)
		oracle_fail(o, "a shortage of %" PRIu64 " of %" PRIu64, shortage->missing,
		            shortage->needed);
	for (uint32_t s = 0; s < o->slot_count; s++) {
		const struct oracle_slot *slot = &o->slots[s];

		for (uint32_t r = 0; r < o->region_count; r++) {
			for (uint32_t p = 0; p < o->regions[r].pages; p++) {
				if (slot->pages[r][p].state == ORACLE_RETIRING &&
				    slot->pages[r][p].until > until)
					until = slot->pages[r][p].until;
			}
		}
	}
	if (shortage->retiring_bytes != o->stats.retiring_bytes ||
	    (shortage->retiring_until != until && !o->faults))
		oracle_fail(o, "%" PRIu64 " bytes are said to retire until %" PRIu64 ", not %" PRIu64
		            " until %" PRIu64, shortage->retiring_bytes, shortage->retiring_until,
		            o->stats.retiring_bytes, until);
	if (shortage->transit_bytes != o->stats.unmapping_bytes + o->stats.zeroing_bytes ||
	    (shortage->transit_point != 0 && shortage->transit_bytes == 0))
		oracle_fail(o, "%" PRIu64 " bytes are said to be in transit",
		            shortage->transit_bytes);
}

/* A device that is short of mappings or memory itself can need what is kept warm sooner. */
static bool device_is_small(const struct oracle *o)
{
	return o->device->info.max_mappings < 100 || o->device->info.memory_bytes < 10 << 20;
}

static void short_of_bytes(struct oracle *o, const struct attempt *a)
{
	uint64_t need = 0;

	o->seen.shortages_bytes++;
	for (uint32_t i = 0; i < a->request.n; i++)
		need += oracle_need_bytes(o, a->slots[i], a->tokens[i]);
	if (a->result.shortage.needed != need && !o->faults)
		oracle_fail(o, "a step is said to need %" PRIu64 " bytes, not %" PRIu64,
		            a->result.shortage.needed, need);
	if (!o->faults && a->need <= a->available && !device_is_small(o))
		oracle_fail(o, "short of bytes, where %" PRIu64 " are needed and %" PRIu64
		            " were to be had", a->need, a->available);
}

static void short_of_mappings(struct oracle *o, const struct attempt *a)
{
	const struct vmkv_device *device = o->device;
	bool in_request[ORACLE_SLOTS] = { false };

	o->seen.shortages_mappings++;
	for (uint32_t i = 0; i < a->request.n; i++)
		in_request[a->slots[i]] = true;
	if (o->faults)
		return;
	if (atomic_load(&device->mappings) + a->result.shortage.needed <= device->info.max_mappings)
		oracle_fail(o, "short of mappings, where %" PRIu64 " are left",
		            device->info.max_mappings - atomic_load(&device->mappings));
	if (oracle_kept_bytes(o, in_request) > 0)
		oracle_fail(o, "short of mappings, with some kept warm");
}

/* ---- the operation --------------------------------------------------------------------------- */

static void succeeded(struct model_run *run, struct attempt *a)
{
	struct oracle *o = &run->oracle;
	struct oracle_allowed allowed = {
		.drop_kept = a->need > a->unused || device_is_small(o),
		.new_slabs = true,
	};

	if (a->result.ready > checking_of(o->device)->last_point ||
	    (a->result.ready > 0 && vmkv_device_reached(o->device, a->result.ready)))
		oracle_fail(o, "ready is %" PRIu64 ", the device has reached %" PRIu64 " of %" PRIu64,
		            a->result.ready, atomic_load(&o->device->completed),
		            checking_of(o->device)->last_point);
	if (a->need > a->available && !o->lag && !o->faults)
		oracle_fail(o, "a step took %" PRIu64 " bytes, where %" PRIu64 " were to be had",
		            a->need, a->available);
	oracle_stepped(o, &a->request, a->result.ready, &allowed);
	oracle_verify(o, &allowed);
	o->seen.steps++;
	for (uint32_t i = 0; i < a->request.n && a->request.busy_until > 0; i++)
		oracle_use(o, a->slots[i], a->request.busy_until);
	if (a->result.ready > 0 && model_chance(&o->random, 30))
		CHECK_EQ(vmkv_wait(o->device, a->result.ready, UINT64_MAX), 0);
}

void model_step(struct model_run *run)
{
	struct oracle *o = &run->oracle;
	struct oracle_allowed allowed = { .drop_kept = true, .new_slabs = true };
	struct attempt a = { 0 };
	int rc;

	request_draw(run, &a);
	if (model_chance(&o->random, 6))
		request_spoil(run, &a);
	if (a.expected == 0)
		foresee(o, &a);
	else
		allowed = (struct oracle_allowed){ 0 };
	memset(a.needed, 0xee, sizeof(a.needed));
	rc = vmkv_step(o->cache, &a.request,
	               model_chance(&o->random, 5) && a.expected ? NULL : &a.result);
	if (rc == 0 && a.expected == 0) {
		succeeded(run, &a);
		return;
	}
	if (rc != (a.expected ? a.expected : -ENOSPC) &&
	    (a.expected || !o->faults || (rc != run->fault.error && rc != -EBUSY)))
		oracle_fail(o, "a step returned %d, not %d", rc, a.expected);
	o->shortages += rc == -ENOSPC;
	o->seen.errors += rc != -ENOSPC;
	oracle_verify(o, &allowed);
	if (rc != -ENOSPC) {
		CHECK(a.result.ready == 0 && a.result.shortage.kind == 0);
		CHECK_EQ(a.needed[0], UINT64_C(0xeeeeeeeeeeeeeeee));
		return;
	}
	shortage_check(o, &a);
	if (a.result.shortage.kind == VMKV_SHORTAGE_BYTES)
		short_of_bytes(o, &a);
	else
		short_of_mappings(o, &a);
}
