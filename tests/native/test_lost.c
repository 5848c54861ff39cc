/* SPDX-License-Identifier: MIT
 *
 * Drivers that fail, and devices that are lost, under a cache.
 */
#include "cache_fixture.h"
#include "device_checking.h"

static struct checking_report end;

static void rig_checking(struct rig *r, bool lagging)
{
	struct checking_options options = { .report = &end, .lag_seed = lagging ? 3 : 0 };

	rig_prepare(r, target_open_checking("host", &options));
	rig_create(r);
}

/* The next call of the kind fails, or all of them from now on. */
static void fail_next(struct rig *r, enum checking_kind kind, int error, bool forever)
{
	struct checking_fault fault = { .kinds = 1u << kind, .call = 1, .forever = forever,
		                        .error = error };

	checking_fault_set(r->device, &fault);
}

static void fail_nothing(struct rig *r)
{
	struct checking_fault none = { 0 };

	checking_fault_set(r->device, &none);
}

/* Everything is given back, and no rule of device.h was broken. */
static void rig_end_clean(struct rig *r)
{
	rig_end(r);
	if (end.violations > 0)
		CHECK_FAIL("%s", end.violation);
	CHECK_EQ(end.reservations + end.slabs + end.mappings, 0);
	CHECK_EQ(end.calls_after_loss, 0);
}

/* ---- calls that fail once ------------------------------------------------------------------- */

/* But for the counts of calls and shortages. */
static void check_same_state(struct rig *r, const struct vmkv_stats *before)
{
	struct vmkv_stats now = stats_of(r);

	CHECK_EQ(now.mapped_bytes, before->mapped_bytes);
	CHECK_EQ(now.live_bytes, before->live_bytes);
	CHECK_EQ(now.warm_bytes, before->warm_bytes);
	CHECK_EQ(now.unmapping_bytes, 0);
	CHECK_EQ(now.zeroing_bytes, 0);
	CHECK_EQ(now.mappings, before->mappings);
	CHECK_EQ(now.steps, before->steps);
	CHECK_EQ(now.growing_steps, before->growing_steps);
}

static void a_step_that_cannot_map(void)
{
	struct vmkv_stats before;
	struct rig r;
	vmkv_seq seqs[2];

	rig_checking(&r, false);
	seqs[0] = seq_of(&r, 4);
	seqs[1] = seq_of(&r, 4);
	before = stats_of(&r);
	for (uint64_t call = 1; call <= 4; call++) { /* 2 spans each */
		struct checking_fault fault = { .kinds = 1u << CHECKING_MAP, .call = call };

		checking_fault_set(r.device, &fault);
		CHECK_EQ(try_steps(&r, seqs, (const uint32_t[]){ 100, 200 }, 2, 0, NULL), -EIO);
		CHECK_TEXT(&r, "the step could not be mapped");
		CHECK_TEXT(&r, "was made to fail");
		check_same_state(&r, &before);
		CHECK_EQ(stats_of(&r).failed_calls, call);
	}
	fail_nothing(&r);
	CHECK_EQ(try_steps(&r, seqs, (const uint32_t[]){ 100, 200 }, 2, 0, NULL), 0);
	rig_end_clean(&r);
}

static void a_step_that_gets_no_slab(void)
{
	struct vmkv_stats before;
	struct rig r;
	vmkv_seq seq;

	rig_checking(&r, false);
	seq = seq_open(&r);
	before = stats_of(&r);
	fail_next(&r, CHECKING_SLAB_CREATE, 0, false);
	CHECK_EQ(try_step(&r, seq, 4, 0), -EIO);
	CHECK_TEXT(&r, "no new slab");
	CHECK_TEXT(&r, "was made to fail");
	check_same_state(&r, &before);
	step(&r, seq, 4);
	rig_end_clean(&r);
}

static void a_slab_that_the_device_has_no_memory_for(void)
{
	struct vmkv_step_result result = { .struct_size = sizeof(result) };
	const uint32_t tokens = 4;
	struct rig r;
	vmkv_seq seq;

	rig_checking(&r, false);
	seq = seq_open(&r);
	fail_next(&r, CHECKING_SLAB_CREATE, -ENOSPC, true);
	CHECK_EQ(try_steps(&r, &seq, &tokens, 1, 0, &result), -ENOSPC);
	CHECK_EQ(result.shortage.kind, VMKV_SHORTAGE_BYTES);
	CHECK_EQ(result.shortage.needed, 2 * PAGE);
	CHECK_EQ(result.shortage.missing, 2 * PAGE);
	fail_nothing(&r);
	retire(&r, 0); /* before which it isn't asked again */
	step(&r, seq, 4);
	rig_end_clean(&r);
}

/* The driver's own bound comes earlier than the one that was counted. */
static void a_map_that_finds_no_mapping_left(void)
{
	struct vmkv_step_result result = { .struct_size = sizeof(result) };
	const uint32_t tokens = 200;
	struct rig r;
	vmkv_seq seq;

	rig_checking(&r, false);
	seq = seq_of(&r, 4);
	fail_next(&r, CHECKING_MAP, -ENOSPC, false);
	CHECK_EQ(try_steps(&r, &seq, &tokens, 1, 0, &result), -ENOSPC);
	CHECK_EQ(result.shortage.kind, VMKV_SHORTAGE_MAPPINGS);
	CHECK(result.shortage.missing >= 1);
	CHECK_EQ(stats_of(&r).mapped_bytes, mapped_by(4));
	step(&r, seq, 200);
	rig_end_clean(&r);
}

/* close never fails for the driver's sake; what could not be unmapped stays where it is, its slot
 * blocked, until a retire manages it. */
static void memory_that_cannot_be_unmapped_now(void)
{
	struct rig r;
	vmkv_seq seq;

	rig_checking(&r, false);
	vmkv_cache_destroy(r.cache);
	r.options.warm_max_bytes = VMKV_WARM_OFF;
	rig_create(&r);
	seq = seq_of(&r, 200);
	fail_next(&r, CHECKING_UNMAP, 0, true);
	seq_close(&r, seq, 0);
	CHECK_EQ(stats_of(&r).unmapping_bytes, mapped_by(200));
	CHECK_EQ(stats_of(&r).mappings, 4);
	CHECK_EQ(stats_of(&r).failed_calls, 1);
	retire(&r, 1);
	CHECK_EQ(stats_of(&r).unmapping_bytes, mapped_by(200));
	CHECK_EQ(stats_of(&r).failed_calls, 2);
	CHECK_EQ(span_of(&r, seq_open(&r), 0, 0, 0).slot, 1);
	fail_nothing(&r);
	CHECK_EQ(stats_of(&r).unmapping_bytes, mapped_by(200));
	retire(&r, 1);
	CHECK_EQ(stats_of(&r).unmapping_bytes, 0);
	CHECK_EQ(stats_of(&r).mappings, 0);
	CHECK_EQ(span_of(&r, seq_open(&r), 0, 0, 0).slot, 0);
	rig_end_clean(&r);
}

/* Memory that could not be zeroed is no longer warm, and is zeroed before its next use. */
static void memory_that_cannot_be_zeroed_now(void)
{
	struct vmkv_span span;
	struct rig r;
	vmkv_seq seq;

	rig_checking(&r, false);
	seq = seq_of(&r, 100);
	span = span_of(&r, seq, 0, 0, 0);
	CHECK_EQ(vmkv_fill(r.device, span.address, 100 * ROW, 0xdead, NULL), 0);
	fail_next(&r, CHECKING_FILL, 0, true);
	seq_close(&r, seq, 0);
	CHECK_EQ(stats_of(&r).warm_bytes, 0);
	CHECK_EQ(stats_of(&r).free_dirty_bytes, mapped_by(100));
	seq = seq_open(&r);
	fail_next(&r, CHECKING_FILL, 0, false);
	CHECK_EQ(try_step(&r, seq, 100, 0), -EIO); /* the first pages of the slab again */
	CHECK_EQ(stats_of(&r).free_dirty_bytes, mapped_by(100));
	CHECK_EQ(stats_of(&r).mappings, 0);
	step(&r, seq, 100);
	CHECK_EQ(stats_of(&r).free_dirty_bytes, 0);
	span = span_of(&r, seq, 0, 0, 0);
	for (uint64_t i = 0; i < 100 * ROW / 4; i += 16)
		CHECK_EQ(words(span.address)[i], 0);
	rig_end_clean(&r);
}

/* ---- lost ----------------------------------------------------------------------------------- */

/* What still works, and what says -ENODEV. */
static void check_lost(struct rig *r, vmkv_seq open)
{
	struct vmkv_open_options options = { .struct_size = sizeof(options) };
	struct vmkv_device_info info = { .struct_size = sizeof(info) };
	vmkv_cache *cache = NULL;
	vmkv_seq seq = 0;

	CHECK_EQ(vmkv_device_info(r->device, &info), 0);
	CHECK_EQ(info.lost, 1);
	CHECK_EQ(try_step(r, open, 4, 0), -ENODEV);
	CHECK_TEXT(r, "lost");
	CHECK_EQ(vmkv_seq_open(r->cache, &options, &seq), -ENODEV);
	CHECK_EQ(vmkv_retire(r->cache, 100), -ENODEV);
	CHECK_EQ(vmkv_cache_shrink(r->cache, 0, NULL), -ENODEV);
	CHECK_EQ(vmkv_cache_set_budget(r->cache, 64 * MIB), -ENODEV);
	CHECK_EQ(vmkv_cache_create(r->device, &r->options, &cache), -ENODEV);
	CHECK_CONTAINS(r->text, "lost");
	CHECK_EQ(vmkv_wait(r->device, 1, UINT64_MAX), -ENODEV);
	CHECK_EQ(vmkv_fill(r->device, 4096, 4, 0, NULL), -ENODEV);
	stats_of(r);
	CHECK_EQ(vmkv_seq_close(r->cache, open, 1000), 0);
	CHECK_EQ(stats_of(r).sequences, 0);
	/* All points count as reached, and what waited needn't any longer. */
	CHECK_EQ(stats_of(r).retiring_bytes, 0);
	CHECK_EQ(stats_of(r).unmapping_bytes, 0);
	CHECK_EQ(stats_of(r).zeroing_bytes, 0);
}

static void lost_in(enum checking_kind kind, bool lagging)
{
	struct rig r;
	vmkv_seq open, other;

	rig_checking(&r, lagging);
	open = seq_of(&r, 100);
	other = seq_of(&r, 50);
	seq_close(&r, seq_of(&r, 20), 7); /* something that waits */
	fail_next(&r, kind, -ENODEV, false);
	if (kind == CHECKING_MAP || kind == CHECKING_SLAB_CREATE)
		CHECK_EQ(try_step(&r, other, 1000, 0), -ENODEV);
	else
		CHECK_EQ(vmkv_seq_close(r.cache, other, 0), 0);
	if (kind == CHECKING_UNMAP)
		CHECK_EQ(vmkv_cache_shrink(r.cache, 0, NULL), -ENODEV);
	if (kind == CHECKING_MAP || kind == CHECKING_SLAB_CREATE)
		CHECK_EQ(vmkv_seq_close(r.cache, other, 9), 0);
	check_lost(&r, open);
	rig_end_clean(&r);
}

static void a_device_lost_in_any_call(void)
{
	for (int lagging = 0; lagging < 2; lagging++) {
		lost_in(CHECKING_MAP, lagging);
		lost_in(CHECKING_SLAB_CREATE, lagging);
		lost_in(CHECKING_FILL, lagging);
		lost_in(CHECKING_UNMAP, lagging);
	}
}

/* Lost while warm memory is unmapped for a step: which then asks the device for nothing more. */
static void a_device_lost_while_room_is_made(void)
{
	struct rig r;
	vmkv_seq seq;

	rig_checking(&r, false);
	CHECK_EQ(vmkv_cache_set_budget(r.cache, mapped_by(100)), 0);
	seq = seq_of(&r, 4);
	seq_close(&r, seq_of(&r, 20), 0);
	CHECK_EQ(stats_of(&r).warm_bytes, mapped_by(20));
	fail_next(&r, CHECKING_UNMAP, -ENODEV, false);
	CHECK_EQ(try_step(&r, seq, 100, 0), -ENODEV);
	CHECK_EQ(span_of(&r, seq, 0, 0, 0).live_tokens, 4);
	check_lost(&r, seq);
	rig_end_clean(&r);
}

/* ---- cache_create --------------------------------------------------------------------------- */

static void a_cache_that_gets_no_addresses(void)
{
	struct rig r;

	rig_checking(&r, false);
	vmkv_cache_destroy(r.cache);
	fail_next(&r, CHECKING_RESERVE, 0, false);
	CHECK_EQ(rig_try_create(&r), -EIO);
	CHECK_CONTAINS(r.text, "was made to fail");
	/* No range for all: each span gets its own. */
	fail_next(&r, CHECKING_RESERVE, -ENOSPC, false);
	rig_create(&r);
	seq_of(&r, 500);
	vmkv_cache_destroy(r.cache);
	fail_next(&r, CHECKING_RESERVE, -ENOSPC, true);
	CHECK_EQ(rig_try_create(&r), -EOVERFLOW);
	CHECK_CONTAINS(r.text, "bytes of addresses");
	fail_nothing(&r);
	CHECK_EQ(vmkv_device_close(r.device), 0);
	CHECK_EQ(end.violations, 0);
	CHECK_EQ(end.reservations + end.slabs + end.mappings, 0);
}

int main(void)
{
	RUN(a_step_that_cannot_map);
	RUN(a_step_that_gets_no_slab);
	RUN(a_slab_that_the_device_has_no_memory_for);
	RUN(a_map_that_finds_no_mapping_left);
	RUN(memory_that_cannot_be_unmapped_now);
	RUN(memory_that_cannot_be_zeroed_now);
	RUN(a_device_lost_in_any_call);
	RUN(a_device_lost_while_room_is_made);
	RUN(a_cache_that_gets_no_addresses);
	return 0;
}
