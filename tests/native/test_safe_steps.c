/* SPDX-License-Identifier: MIT
 *
 * Safe modes in the manager: slots that serve once, steps that fail half way, pages without aliases.
 */
#include "safe_fixture.h"

#define NEVER "safe=never-reuse-addresses"

/* ---- never-reuse-addresses ------------------------------------------------------------------------ */

static void a_slot_serves_one_sequence(void)
{
	struct rig r;
	struct vmkv_open_options options = { .struct_size = sizeof(options),
		                             .prefer = VMKV_PREFER_SLOT };
	vmkv_seq seq = 0;

	safe_begin(&r, "host", NEVER, NULL);
	r.options.slot_count = 5;
	r.options.max_slots = 2;
	rig_create(&r);
	for (uint32_t i = 0; i < 5; i++) {
		seq = seq_of(&r, 100);
		CHECK_EQ(span_of(&r, seq, 0, 0, 0).slot, i);
		seq_close(&r, seq, 0);
		retire(&r, 0);
		CHECK_EQ(stats_of(&r).warm_bytes, 0);
		CHECK_EQ(stats_of(&r).mappings, 0);
	}
	CHECK_EQ(vmkv_seq_open(r.cache, NULL, &seq), -ENOSPC);
	CHECK_TEXT(&r, "addresses are used up: each of the 5 slots has served a sequence");
	CHECK_TEXT(&r, "make the cache anew");
	CHECK_EQ(vmkv_seq_open(r.cache, &options, &seq), -EBUSY);
	CHECK_TEXT(&r, "it serves one sequence");
	safe_end(&r);
}

/* The tables of a slot that was used go: 200 lives cost no more than one. */
static void tables_do_not_grow_with_lives(void)
{
	struct rig r;
	uint64_t before = 0;

	safe_begin(&r, "host", NEVER, NULL);
	r.options.slot_count = 300;
	rig_create(&r);
	for (int i = 0; i < 200; i++) {
		seq_close(&r, seq_of(&r, 8), 0);
		if (i == 1)
			before = stats_of(&r).table_bytes;
	}
	CHECK_EQ(stats_of(&r).table_bytes, before);
	safe_end(&r);
}

/* ---- steps that fail half way ---------------------------------------------------------------------- */

static void what_a_failed_step_mapped_stays_ahead(const char *modes)
{
	struct checking_report report;
	struct rig r;
	vmkv_seq seq;
	uint64_t maps;

	safe_begin(&r, "host", modes, NULL);
	r.options.budget_bytes = 32 * MIB;
	rig_create(&r);
	seq = second_life(&r);
	maps = stats_of(&r).map_calls;
	fail_call(&r, CHECKING_MAP, 12, false);
	CHECK_EQ(try_step(&r, seq, 1024, 0), -EIO);
	/* 8 pieces of 2 MiB for one span, and 3 for the other. */
	CHECK_EQ(stats_of(&r).mappings, 11);
	CHECK_EQ(stats_of(&r).warm_bytes, 22 * MIB);
	CHECK_EQ(stats_of(&r).mapped_bytes, 0);
	/* Nobody else gets it. */
	CHECK_EQ(vmkv_cache_shrink(r.cache, 0, NULL), 0);
	CHECK_EQ(vmkv_cache_set_budget(r.cache, 16 * MIB), 0);
	CHECK_EQ(vmkv_cache_set_budget(r.cache, 32 * MIB), 0);
	CHECK_EQ(try_step(&r, seq_open(&r), 512, 0), -ENOSPC);
	CHECK_EQ(stats_of(&r).warm_bytes, 22 * MIB);
	/* The sequence does, first what it had, then what it lacks. */
	step(&r, seq, 384);
	CHECK_EQ(stats_of(&r).map_calls, maps + 12);
	fill_span(&r, seq, 0, 384, 1);
	step(&r, seq, 1024);
	fill_span(&r, seq, 384, 1024, 1);
	check_span(&r, seq, 1024, 1);
	CHECK_EQ(stats_of(&r).map_calls, maps + 12 + 5);
	CHECK_EQ(stats_of(&r).warm_bytes, 0);
	checking_report(r.device, &report);
	CHECK_EQ(report.calls[CHECKING_UNMAP], stats_of(&r).unmap_calls);
	safe_end(&r);
}

static void what_a_failed_step_mapped_is_used_later(void)
{
	what_a_failed_step_mapped_stays_ahead("safe=never-reuse-addresses");
	what_a_failed_step_mapped_stays_ahead("safe=never-reuse-addresses,no-alias");
}

static void check_usable(struct rig *r, vmkv_seq seq, uint32_t tokens, bool usable)
{
	uint64_t address = span_of(r, seq, 0, 1, 0).address;

	CHECK_EQ(checking_usable(r->device, address, tokens * ROW), usable);
}

/* It is ready no sooner than the driver says, which is no more than begun when the step fails. */
static void what_is_ahead_is_ready_in_its_time(void)
{
	struct checking_options checking = { .lag_seed = 3 };
	struct vmkv_step_result result = { .struct_size = sizeof(result) };
	uint32_t tokens = 384;
	struct rig r;
	vmkv_seq seq;

	for (int no_alias = 0; no_alias < 2; no_alias++) {
		safe_begin(&r, "host", no_alias ? NEVER ",no-alias" : NEVER, &checking);
		rig_create(&r);
		seq = seq_open(&r);
		fail_call(&r, CHECKING_MAP, 12, false);
		CHECK_EQ(try_step(&r, seq, 1024, 0), -EIO);
		CHECK_EQ(try_steps(&r, &seq, &tokens, 1, 0, &result), 0);
		CHECK(result.ready > 0);
		CHECK_EQ(vmkv_ready_tokens(r.cache)[0], 0);
		check_usable(&r, seq, 384, false);
		CHECK_EQ(vmkv_wait(r.device, result.ready, UINT64_MAX), 0);
		check_usable(&r, seq, 384, true);
		fill_span(&r, seq, 0, 384, 1);
		safe_end(&r);
	}
}

/* Closed instead: it goes the usual way, and is zero for whoever comes next. */
static void what_is_ahead_of_a_closed_sequence_goes(void)
{
	static const char *const modes[] = { "safe=never-reuse-addresses",
		                             "safe=never-reuse-addresses,no-alias" };
	struct rig r;
	vmkv_seq seq;

	for (int i = 0; i < 2; i++) {
		safe_begin(&r, "host", modes[i], NULL);
		r.options.budget_bytes = 32 * MIB;
		rig_create(&r);
		seq = second_life(&r);
		fail_call(&r, CHECKING_MAP, 12, false);
		CHECK_EQ(try_step(&r, seq, 1024, 0), -EIO);
		seq_close(&r, seq, 0);
		CHECK_EQ(stats_of(&r).mappings, 0);
		CHECK_EQ(stats_of(&r).warm_bytes, 0);
		seq = seq_of(&r, 1024);
		fill_span(&r, seq, 0, 1024, 1);
		safe_end(&r);
	}
}

/* Without aliases, pages are zeroed when they are mapped; if that fails, nothing is lost. */
static void a_fill_that_fails_after_the_maps_is_undone(void)
{
	struct rig r;
	vmkv_seq seq;

	for (int never = 0; never < 2; never++) {
		safe_begin(&r, "host",
		           never ? "safe=no-alias,never-reuse-addresses" : "safe=no-alias", NULL);
		r.options.warm_max_bytes = VMKV_WARM_OFF;
		r.options.budget_bytes = 32 * MIB;
		rig_create(&r);
		seq = second_life(&r);
		CHECK_EQ(stats_of(&r).free_dirty_bytes, 32 * MIB);
		fail_call(&r, CHECKING_FILL, 1, true);
		CHECK_EQ(try_step(&r, seq, 1024, 0), -EIO);
		CHECK_EQ(try_step(&r, seq, 1024, 0), -EIO);
		CHECK_EQ(stats_of(&r).warm_bytes, never ? 32 * MIB : 0);
		CHECK_EQ(stats_of(&r).free_dirty_bytes, never ? 0 : 32 * MIB);
		CHECK_EQ(stats_of(&r).mapped_bytes, 0);
		fail_call(&r, CHECKING_FILL, 0, false);
		step(&r, seq, 1024);
		fill_span(&r, seq, 0, 1024, 1);
		safe_end(&r);
	}
}

/* ---- no-alias --------------------------------------------------------------------------------------- */

static void warm_pages_are_zeroed_where_they_are(void)
{
	struct checking_report report;
	struct vmkv_slab *slab;
	struct rig r;
	vmkv_seq seq;

	safe_begin(&r, "host", "safe=no-alias", NULL);
	r.options.warm_max_bytes = 64 * MIB;
	rig_create(&r);
	seq = second_life(&r);
	CHECK_EQ(stats_of(&r).warm_bytes, 32 * MIB);
	step(&r, seq, 1024);
	fill_span(&r, seq, 0, 1024, 1);
	checking_report(r.device, &report);
	CHECK_EQ(report.calls[CHECKING_UNMAP], 0);
	/* There is no other way to them. */
	CHECK_EQ(r.device->ops->slab_create(r.device, 2 * MIB, &slab), 0);
	CHECK_EQ(slab->alias, 0);
	r.device->ops->slab_destroy(r.device, slab);
	safe_end(&r);
}

/* What was warm may be mapped elsewhere only when it isn't any more where it was. */
static void warm_pages_are_unmapped_before_they_are_mapped(void)
{
	struct checking_options checking = { .lag_seed = 5 };
	struct vmkv_step_result result = { .struct_size = sizeof(result) };
	uint32_t tokens = 1024;
	struct rig r;
	vmkv_seq seq;

	safe_begin(&r, "host", "safe=no-alias", &checking);
	r.options.budget_bytes = 32 * MIB;
	r.options.warm_max_bytes = 32 * MIB;
	rig_create(&r);
	seq = seq_of(&r, 1024);
	CHECK_EQ(vmkv_wait(r.device, 1, UINT64_MAX), 0);
	seq_close(&r, seq, 0);
	seq = seq_open_with(&r, VMKV_PREFER_SLOT, 1, 0);
	CHECK_EQ(try_steps(&r, &seq, &tokens, 1, 0, &result), 0);
	CHECK_EQ(vmkv_wait(r.device, result.ready, UINT64_MAX), 0);
	fill_span(&r, seq, 0, 1024, 1);
	safe_end(&r);
}

int main(void)
{
	RUN(a_slot_serves_one_sequence);
	RUN(tables_do_not_grow_with_lives);
	RUN(what_a_failed_step_mapped_is_used_later);
	RUN(what_is_ahead_is_ready_in_its_time);
	RUN(what_is_ahead_of_a_closed_sequence_goes);
	RUN(a_fill_that_fails_after_the_maps_is_undone);
	RUN(warm_pages_are_zeroed_where_they_are);
	RUN(warm_pages_are_unmapped_before_they_are_mapped);
	return 0;
}
