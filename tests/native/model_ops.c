/* SPDX-License-Identifier: MIT */
#include "model_ops.h"

#include <errno.h>
#include <inttypes.h>

#include "check.h"

/* ---- drawing --------------------------------------------------------------------------------- */

/* An open slot drawn at random, or slot_count. */
static uint32_t pick_open(struct model_run *run)
{
	struct oracle *o = &run->oracle;
	uint32_t left = o->open_count > 0 ? seeded_from(&o->random, 0, o->open_count - 1) : 0;

	for (uint32_t s = 0; s < o->slot_count; s++) {
		if (o->slots[s].state == ORACLE_OPEN && left-- == 0)
			return s;
	}
	return o->slot_count;
}

/* Several queues number what they submit, so values come in any order. */
uint64_t model_busy_draw(struct model_run *run)
{
	struct seeded *random = &run->oracle.random;
	uint64_t back;

	if (run->idle || model_chance(random, 10))
		return 0;
	run->submitted += seeded_from(random, 0, 2);
	back = model_chance(random, 30) ? seeded_from(random, 0, 4) : 0;
	return run->submitted > back ? run->submitted - back : 0;
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* Whether the slot can be opened: 1, 0, or -1 if that depends on what the cache has seen. */
static int slot_free(const struct oracle *o, uint32_t s)
{
	const struct oracle_slot *slot = &o->slots[s];

	if (slot->state != ORACLE_FREE || slot->used_up)
		return 0;
	if (o->faults)
		return -1;
	for (uint32_t r = 0; r < o->region_count; r++) {
		for (uint32_t p = 0; p < o->regions[r].pages; p++) {
			if (slot->pages[r][p].state == ORACLE_RETIRING)
				return 0;
			if (slot->pages[r][p].now_unmapping)
				return -1;
		}
	}
	return slot->pending ? -1 : 1;
}

static uint64_t kept_pages(const struct oracle *o, uint32_t s)
{
	bool others[ORACLE_SLOTS];

	for (uint32_t i = 0; i < ORACLE_SLOTS; i++)
		others[i] = i != s;
	return oracle_kept_bytes(o, others) / o->info.page_bytes;
}

struct opening {
	struct vmkv_open_options options;
	uint32_t lowest;     /* free slot, for sure */
	bool any;            /* may be free */
	uint64_t fit;        /* pages of the best warm slot; 0: none is warm */
	uint64_t kept[ORACLE_SLOTS];
	int expected;        /* or 1: success or failure will do */
};

static bool fits_better(uint64_t has, uint64_t best, uint64_t pages)
{
	if (has >= pages)
		return best < pages || has < best;
	return best < pages && has > best;
}

static void opening_foresee(struct oracle *o, struct opening *opening)
{
	const struct vmkv_open_options *options = &opening->options;
	uint32_t tokens = options->expected_tokens;
	uint64_t pages = UINT64_MAX;

	if (tokens > o->info.max_tokens)
		tokens = o->info.max_tokens;
	if (tokens > 0)
		CHECK_EQ(vmkv_cache_need_bytes(o->cache, tokens, 0, &pages), 0);
	if (tokens > 0)
		pages /= o->info.page_bytes;
	opening->lowest = o->slot_count;
	for (uint32_t s = o->slot_count; s-- > 0;) {
		opening->any |= slot_free(o, s) != 0;
		if (slot_free(o, s) != 1)
			continue;
		opening->lowest = s;
		opening->kept[s] = kept_pages(o, s);
		if (opening->kept[s] > 0 && fits_better(opening->kept[s], opening->fit, pages))
			opening->fit = opening->kept[s];
	}
	if (options->prefer > VMKV_PREFER_SLOT)
		opening->expected = -EINVAL;
	else if (o->open_count == o->info.max_slots)
		opening->expected = -ENOSPC;
	else if (options->prefer != VMKV_PREFER_SLOT)
		opening->expected = opening->lowest < o->slot_count ? 0 : opening->any ? 1 : -ENOSPC;
	else if (options->slot >= o->slot_count)
		opening->expected = -EINVAL;
	else
		opening->expected = slot_free(o, options->slot) == 1   ? 0
		                    : slot_free(o, options->slot) == 0 ? -EBUSY
		                                                       : 1;
}

static void opening_check(const struct oracle *o, const struct opening *opening, vmkv_seq seq)
{
	struct vmkv_span span = { .struct_size = sizeof(span) };
	uint32_t prefer = opening->options.prefer;

	CHECK_EQ(vmkv_span(o->cache, seq, 0, 0, 0, &span), 0);
	if (prefer == VMKV_PREFER_SLOT && span.slot != opening->options.slot)
		oracle_fail(o, "open gave slot %u, not %u", span.slot, opening->options.slot);
	bool sure = !o->lag && !o->faults;

	if (prefer == VMKV_PREFER_LOWEST ||
	    (prefer == VMKV_PREFER_WARM && opening->fit == 0 && sure)) {
		if (span.slot > opening->lowest || (sure && span.slot != opening->lowest))
			oracle_fail(o, "open gave slot %u, and %u was the lowest", span.slot,
			            opening->lowest);
	} else if (prefer == VMKV_PREFER_WARM && sure &&
	           opening->kept[span.slot] != opening->fit) {
		oracle_fail(o, "open gave slot %u with %" PRIu64 " pages, not one with %" PRIu64,
		            span.slot, opening->kept[span.slot], opening->fit);
	}
}

static void model_open(struct model_run *run)
{
	struct oracle *o = &run->oracle;
	struct opening opening = {
		.options = { .struct_size = sizeof(opening.options),
		             .prefer = seeded_from(&o->random, 0, 11) % 3,
		             .slot = seeded_from(&o->random, 0, o->slot_count) },
	};
	struct oracle_allowed allowed = { 0 };
	vmkv_seq seq = 0;
	int rc;

	if (model_chance(&o->random, 40))
		opening.options.expected_tokens =
		    seeded_from(&o->random, 0, o->info.max_tokens + o->info.max_tokens / 8);
	if (model_chance(&o->random, 2))
		opening.options.prefer = VMKV_PREFER_SLOT + 1;
	opening_foresee(o, &opening);
	rc = vmkv_seq_open(o->cache, &opening.options, &seq);
	if (opening.expected <= 0 ? rc != opening.expected : rc != 0 && rc != -ENOSPC && rc != -EBUSY)
		oracle_fail(o, "open returned %d, not %d", rc, opening.expected);
	allowed.open_tokens = opening.options.expected_tokens;
	if (allowed.open_tokens > o->info.max_tokens)
		allowed.open_tokens = o->info.max_tokens;
	if (rc == 0) {
		allowed.opened = seq;
		opening_check(o, &opening, seq);
		oracle_opened(o, seq);
	} else {
		CHECK_EQ(seq, 0);
		o->seen.errors++;
	}
	oracle_verify(o, &allowed);
}

static void model_close(struct model_run *run)
{
	struct oracle *o = &run->oracle;
	struct oracle_allowed allowed = { 0 };
	uint32_t s = pick_open(run);
	uint64_t busy = model_busy_draw(run);
	int rc;

	if (s == o->slot_count) {
		rc = vmkv_seq_close(o->cache, run->last_closed, busy);
		if (rc != -ESTALE)
			oracle_fail(o, "a close of a closed sequence returned %d", rc);
		oracle_verify(o, &allowed);
		return;
	}
	oracle_use(o, s, busy);
	rc = vmkv_seq_close(o->cache, o->slots[s].seq, busy);
	if (rc != 0)
		oracle_fail(o, "close returned %d", rc);
	run->last_closed = o->slots[s].seq;
	oracle_closed(o, s, busy);
	oracle_verify(o, &allowed);
}

/* ---- what gives back ------------------------------------------------------------------------- */

static void retire(struct model_run *run, uint64_t completed)
{
	struct oracle *o = &run->oracle;
	struct oracle_allowed allowed = { .look = o->stats.slab_bytes <= o->budget_bytes };
	int rc;

	checking_complete(o->device, completed);
	rc = vmkv_retire(o->cache, completed);
	if (rc != 0)
		oracle_fail(o, "retire returned %d", rc);
	oracle_retired(o, completed);
	oracle_verify(o, &allowed);
}

static void model_retire(struct model_run *run)
{
	struct oracle *o = &run->oracle;
	uint64_t completed = o->completed, ahead = 0;

	if (run->submitted > completed)
		ahead = run->submitted - completed;
	switch (seeded_from(&o->random, 0, 9)) {
	case 0:
		completed = completed > 3 ? completed - 3 : 0;
		break;
	case 1:
		completed += ahead + seeded_from(&o->random, 1, 9);
		run->submitted = completed;
		break;
	case 2:
	case 3:
		completed += ahead;
		break;
	default:
		completed += ahead > 0 ? seeded_next(&o->random) % (ahead + 1) : 0;
	}
	retire(run, completed);
}

void model_quiesce(struct model_run *run)
{
	struct oracle *o = &run->oracle;

	struct checking_fault none = { 0 };

	checking_fault_set(o->device, &none);
	for (int i = 0; i < 6; i++) {
		CHECK_EQ(vmkv_wait(o->device, checking_of(o->device)->last_point, UINT64_MAX), 0);
		retire(run, o->completed);
	}
	if (o->stats.unmapping_bytes + o->stats.zeroing_bytes != 0)
		oracle_fail(o, "%" PRIu64 " bytes are still being unmapped, %" PRIu64 " being zeroed",
		            o->stats.unmapping_bytes, o->stats.zeroing_bytes);
	if (o->stats.mappings != o->record_mappings)
		oracle_fail(o, "%" PRIu64 " mappings are told, and %" PRIu64 " there",
		            o->stats.mappings, o->record_mappings);
	for (uint32_t s = 0; s < o->slot_count; s++)
		o->slots[s].pending = false;
	if (o->faults && o->stats.warm_bytes != o->count[ORACLE_KEPT] * o->info.page_bytes)
		oracle_fail(o, "%" PRIu64 " bytes are warm, and %" PRIu64 " pages there",
		            o->stats.warm_bytes, o->count[ORACLE_KEPT]);
	run->fault.seed++;
	if (o->faults)
		checking_fault_set(o->device, &run->fault);
}

/* No more is held than that, or nothing that could be given back. */
static void check_held(const struct oracle *o, uint64_t keep_bytes)
{
	if (o->stats.slab_bytes <= keep_bytes || o->lag || o->faults)
		return;
	if (o->stats.warm_bytes > 0)
		oracle_fail(o, "%" PRIu64 " bytes are kept warm, and more than %" PRIu64 " held",
		            o->stats.warm_bytes, keep_bytes);
	for (struct checking_slab *slab = checking_of(o->device)->slabs; slab; slab = slab->next) {
		uint64_t granules = slab->base.bytes / o->device->info.granule_bytes, maps = 0;

		for (uint64_t i = 0; i < granules && maps == 0; i++)
			maps += slab->pages[i].maps;
		if (maps == 0)
			oracle_fail(o, "a slab is wholly free, and more than %" PRIu64 " held",
			            keep_bytes);
	}
}

static void model_set_budget(struct model_run *run)
{
	struct oracle *o = &run->oracle;
	struct oracle_allowed allowed = { .drop_kept = true };
	uint64_t budget = model_budget_draw(run->config, &o->random);
	int rc;

	if (model_chance(&o->random, 5)) {
		rc = vmkv_cache_set_budget(o->cache, o->region_count * o->info.page_bytes - 1);
		if (rc != -EINVAL)
			oracle_fail(o, "set_budget of less than a page a span returned %d", rc);
		allowed.drop_kept = false;
		oracle_verify(o, &allowed);
		return;
	}
	rc = vmkv_cache_set_budget(o->cache, budget);
	if (rc != 0)
		oracle_fail(o, "set_budget returned %d", rc);
	o->budget_bytes = budget;
	oracle_verify(o, &allowed);
	check_held(o, budget);
}

static void model_shrink(struct model_run *run)
{
	struct oracle *o = &run->oracle;
	struct oracle_allowed allowed = { .drop_kept = true };
	uint64_t before = o->stats.slab_bytes, released = 0;
	uint64_t keep = model_chance(&o->random, 50) ? 0 : seeded_next(&o->random) % (before + 1);
	int rc = vmkv_cache_shrink(o->cache, keep, &released);

	if (rc != 0)
		oracle_fail(o, "shrink returned %d", rc);
	oracle_verify(o, &allowed);
	if (before - o->stats.slab_bytes != released)
		oracle_fail(o, "shrink released %" PRIu64 " bytes, and says %" PRIu64,
		            before - o->stats.slab_bytes, released);
	check_held(o, keep);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void model_ask(struct model_run *run)
{
	struct oracle *o = &run->oracle;
	struct oracle_allowed allowed = { 0 };
	struct vmkv_span span = { .struct_size = sizeof(span) };
	uint32_t s = pick_open(run), groups = o->info.group_count;
	uint64_t need = 0;
	size_t n = 77;

	if (s < o->slot_count) {
		CHECK_EQ(vmkv_span(o->cache, o->slots[s].seq, groups, 0, 0, &span), -ERANGE);
		CHECK_EQ(vmkv_span(o->cache, o->slots[s].seq, 0, 99, 0, &span), -ERANGE);
		CHECK_EQ(vmkv_span(o->cache, o->slots[s].seq, 0, 0, 99, &span), -ERANGE);
	}
	CHECK_EQ(vmkv_span(o->cache, run->last_closed, 0, 0, 0, &span), -ESTALE);
	CHECK_EQ(vmkv_seq_mappings(o->cache, run->last_closed, 0, 0, 0, NULL, 0, &n), -ESTALE);
	CHECK_EQ(vmkv_cache_need_bytes(o->cache, o->info.max_tokens + 1, 0, &need), -ERANGE);
	CHECK(n == 77 && need == 0 && span.address == 0);
	oracle_verify(o, &allowed);
}

/* Close and open again while no queue is busy: before points are reached, if they lag. */
static void model_turn_over(struct model_run *run)
{
	retire(run, run->submitted);
	run->idle = true;
	for (int i = 0; i < 2; i++) {
		model_step(run);
		model_close(run);
		model_open(run);
	}
	model_step(run);
	run->idle = false;
}

void model_operate(struct model_run *run)
{
	uint32_t draw = seeded_from(&run->oracle.random, 0, 99);

	if (draw < 48)
		model_step(run);
	else if (draw < 62)
		model_open(run);
	else if (draw < 72)
		model_close(run);
	else if (draw < 90)
		model_retire(run);
	else if (draw < 93)
		model_set_budget(run);
	else if (draw < 95)
		model_shrink(run);
	else if (draw < 97)
		model_ask(run);
	else if (draw < 98)
		model_turn_over(run);
	else
		model_quiesce(run);
}
