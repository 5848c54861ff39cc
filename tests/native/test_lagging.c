/* SPDX-License-Identifier: MIT
 *
 * A device whose calls take effect late: nothing is reached until somebody waits for it.
 */
#include "cache_fixture.h"
#include "device_checking.h"

static struct checking_report end;

static void rig_lagging(struct rig *r, const char *host, uint64_t warm_max_bytes)
{
	struct checking_options options = { .report = &end,
		                            .lag_seed = 1,
		                            .lag_polls = UINT32_MAX - 1 };

	rig_prepare(r, target_open_checking(host, &options));
	r->options.warm_max_bytes = warm_max_bytes;
	rig_create(r);
}

static void rig_end_clean(struct rig *r)
{
	rig_end(r);
	if (end.violations > 0)
		CHECK_FAIL("%s", end.violation);
	CHECK_EQ(end.reservations + end.slabs + end.mappings, 0);
}

/* All that was begun so far has taken effect. */
static void reach_all(struct rig *r, vmkv_seq seq)
{
	uint64_t point = 0;

	CHECK_EQ(vmkv_fill(r->device, span_of(r, seq, 0, 0, 0).address, 4, 0, &point), 0);
	CHECK_EQ(vmkv_wait(r->device, point, UINT64_MAX), 0);
}

static uint64_t step_ready(struct rig *r, vmkv_seq seq, uint32_t tokens)
{
	struct vmkv_step_result result = { .struct_size = sizeof(result) };

	CHECK_EQ(try_steps(r, &seq, &tokens, 1, 0, &result), 0);
	return result.ready;
}

/* ---- new memory ----------------------------------------------------------------------------- */

static void memory_is_ready_when_its_point_is_reached(void)
{
	const uint32_t *ready_tokens;
	uint64_t ready, later;
	struct rig r;
	vmkv_seq seq;

	rig_lagging(&r, "host", 0);
	ready_tokens = vmkv_ready_tokens(r.cache);
	seq = seq_open(&r);
	ready = step_ready(&r, seq, 4);
	CHECK(ready > 0);
	CHECK_EQ(vmkv_wait(r.device, ready, 0), -ETIME);
	CHECK_EQ(ready_tokens[0], 0);
	CHECK_EQ(step_ready(&r, seq, 4), ready); /* still under way */
	CHECK_EQ(ready_tokens[0], 0);
	CHECK_EQ(vmkv_wait(r.device, ready, UINT64_MAX), 0);
	CHECK_EQ(step_ready(&r, seq, 4), 0);
	CHECK_EQ(ready_tokens[0], 4);
	later = step_ready(&r, seq, 8);
	CHECK(later > ready);
	CHECK_EQ(ready_tokens[0], 4); /* what was there is there */
	CHECK_EQ(vmkv_wait(r.device, later, UINT64_MAX), 0);
	retire(&r, 0); /* any call that sees it */
	CHECK_EQ(ready_tokens[0], 8);
	rig_end_clean(&r);
}

/* A step tells the newest point of all its sequences, whether or not they are what grew. */
static void a_step_tells_the_newest_point(void)
{
	struct vmkv_step_result result = { .struct_size = sizeof(result) };
	struct rig r;
	vmkv_seq seqs[2];
	uint64_t first, second;

	rig_lagging(&r, "host", 0);
	seqs[0] = seq_open(&r);
	seqs[1] = seq_open(&r);
	first = step_ready(&r, seqs[0], 4);
	second = step_ready(&r, seqs[1], 4);
	CHECK(second > first);
	CHECK_EQ(try_steps(&r, seqs, (const uint32_t[]){ 4, 4 }, 2, 0, &result), 0);
	CHECK_EQ(result.ready, second);
	CHECK_EQ(step_ready(&r, seqs[0], 4), first);
	rig_end_clean(&r);
}

/* ---- the way back --------------------------------------------------------------------------- */

static void a_slot_is_free_when_it_is_unmapped(void)
{
	struct rig r;
	vmkv_seq seq, other;

	rig_lagging(&r, "host", VMKV_WARM_OFF);
	other = seq_of(&r, 4);
	seq = seq_of(&r, 100);
	reach_all(&r, seq);
	seq_close(&r, seq, 0);
	CHECK_EQ(stats_of(&r).unmapping_bytes, mapped_by(100));
	seq = seq_open(&r);
	CHECK_EQ(span_of(&r, seq, 0, 0, 0).slot, 2);
	seq_close(&r, seq, 0);
	reach_all(&r, other);
	CHECK_EQ(stats_of(&r).unmapping_bytes, mapped_by(100)); /* nobody has looked yet */
	retire(&r, 0);
	CHECK_EQ(stats_of(&r).unmapping_bytes, 0);
	CHECK_EQ(stats_of(&r).zeroing_bytes, mapped_by(100));
	CHECK_EQ(span_of(&r, seq_open(&r), 0, 0, 0).slot, 1);
	reach_all(&r, other);
	retire(&r, 0);
	CHECK_EQ(stats_of(&r).zeroing_bytes, 0);
	CHECK_EQ(stats_of(&r).free_clean_bytes, stats_of(&r).slab_bytes - mapped_by(4));
	rig_end_clean(&r);
}

/* A slot that is being zeroed can be opened; its memory is ready when that is done. */
static void warm_memory_is_ready_when_it_is_zeroed(void)
{
	struct vmkv_span span;
	struct rig r;
	uint64_t ready;
	vmkv_seq seq;

	rig_lagging(&r, "host", 0);
	seq = seq_of(&r, 100);
	reach_all(&r, seq);
	span = span_of(&r, seq, 0, 0, 0);
	CHECK_EQ(vmkv_fill(r.device, span.address, 100 * ROW, 0xdead, NULL), 0);
	seq_close(&r, seq, 0);
	CHECK_EQ(stats_of(&r).warm_bytes, mapped_by(100));
	seq = seq_open(&r);
	CHECK_EQ(span_of(&r, seq, 0, 0, 0).slot, 0);
	ready = step_ready(&r, seq, 100);
	CHECK(ready > 0);
	CHECK_EQ(vmkv_ready_tokens(r.cache)[0], 0);
	CHECK_EQ(*words(span.address), 0xdead); /* as promised: not ready */
	CHECK_EQ(vmkv_wait(r.device, ready, UINT64_MAX), 0);
	for (uint64_t i = 0; i < 100 * ROW / 4; i += 16)
		CHECK_EQ(words(span.address)[i], 0);
	rig_end_clean(&r);
}

static void cutting_warm_memory_waits_for_it(void)
{
	struct rig r;
	vmkv_seq seq;

	rig_lagging(&r, "host", 0);
	seq = seq_of(&r, 400);
	reach_all(&r, seq);
	seq_close(&r, seq, 0);
	seq = seq_open_with(&r, VMKV_PREFER_LOWEST, 0, 256);
	CHECK_EQ(span_of(&r, seq, 0, 0, 0).slot, 0);
	CHECK_EQ(stats_of(&r).warm_bytes, mapped_by(256));
	CHECK_EQ(stats_of(&r).unmapping_bytes, 0);
	step(&r, seq, 400); /* the addresses behind it are free at once */
	rig_end_clean(&r);
}

/* Of two spans' maps the second fails: the first is taken back. The next step waits until that is
 * done. */
static void a_failed_steps_addresses_are_blocked_for_a_while(void)
{
	struct checking_fault second_map = { .kinds = 1u << CHECKING_MAP, .call = 2 };
	struct rig r;
	vmkv_seq seq;

	rig_lagging(&r, "host", 0);
	seq = seq_of(&r, 4);
	checking_fault_set(r.device, &second_map);
	CHECK_EQ(try_step(&r, seq, 100, 0), -EIO);
	CHECK_EQ(stats_of(&r).unmapping_bytes, mapped_by(100) / 2 - PAGE);
	step(&r, seq, 4); /* what it has, it has */
	CHECK_EQ(stats_of(&r).unmapping_bytes, mapped_by(100) / 2 - PAGE);
	step(&r, seq, 100);
	CHECK_EQ(stats_of(&r).unmapping_bytes, 0);
	CHECK_EQ(stats_of(&r).mapped_bytes, mapped_by(100));
	rig_end_clean(&r);
}

/* A span's map is issued, the other's fails, and so does taking back. */
static void addresses_that_the_driver_keeps(void)
{
	struct checking_fault fault = { .kinds = 1u << CHECKING_MAP | 1u << CHECKING_UNMAP,
		                        .call = 2, .forever = true };
	struct checking_fault none = { 0 };
	struct rig r;
	vmkv_seq seq;

	rig_lagging(&r, "host", 0);
	seq = seq_of(&r, 4);
	checking_fault_set(r.device, &fault);
	CHECK_EQ(try_step(&r, seq, 100, 0), -EIO);
	CHECK_EQ(try_step(&r, seq, 100, 0), -EBUSY);
	CHECK_TEXT(&r, "(slot 0): memory behind its next addresses is still being unmapped");
	CHECK_EQ(stats_of(&r).unmapping_bytes, mapped_by(100) / 2 - PAGE);
	CHECK_EQ(stats_of(&r).mapped_bytes, mapped_by(4));
	checking_fault_set(r.device, &none);
	step(&r, seq, 100);
	CHECK_EQ(stats_of(&r).mapped_bytes, mapped_by(100));
	rig_end_clean(&r);
}

static void mappings_under_way_are_told(void)
{
	struct vmkv_step_result result = { .struct_size = sizeof(result) };
	const uint32_t tokens = 4;
	struct rig r;
	vmkv_seq seqs[4];

	rig_lagging(&r, "host?max_mappings=6", VMKV_WARM_OFF);
	for (int i = 0; i < 3; i++)
		seqs[i] = seq_of(&r, 4);
	seqs[3] = seq_open(&r);
	seq_close(&r, seqs[1], 0);
	CHECK_EQ(try_steps(&r, &seqs[3], &tokens, 1, 0, &result), -ENOSPC);
	CHECK_EQ(result.shortage.kind, VMKV_SHORTAGE_MAPPINGS);
	CHECK_EQ(result.shortage.needed, 2);
	CHECK_EQ(result.shortage.missing, 2);
	CHECK_EQ(result.shortage.transit_bytes, mapped_by(4));
	CHECK_EQ(vmkv_wait(r.device, result.shortage.transit_point, UINT64_MAX), 0);
	step(&r, seqs[3], 4);
	rig_end_clean(&r);
}

/* All slots were closed: one waits to be retired, the other to be unmapped. */
static void the_point_that_frees_a_slot_is_told(void)
{
	struct vmkv_shortage shortage;
	struct vmkv_open_options options = { .struct_size = sizeof(options), .shortage = &shortage };
	vmkv_seq seqs[2], seq = 0;
	struct rig r;

	rig_lagging(&r, "host", VMKV_WARM_OFF);
	vmkv_cache_destroy(r.cache);
	r.options.max_slots = r.options.slot_count = 2;
	rig_create(&r);
	for (int i = 0; i < 2; i++)
		seqs[i] = seq_of(&r, 4);
	CHECK_EQ(vmkv_seq_open(r.cache, &options, &seq), -ENOSPC);
	CHECK_EQ(shortage.kind, VMKV_SHORTAGE_SLOTS);
	CHECK_EQ(shortage.missing, 1);
	CHECK_EQ(shortage.retiring_until + shortage.transit_point, 0); /* only a close helps */
	seq_close(&r, seqs[0], 7);
	CHECK_EQ(vmkv_seq_open(r.cache, &options, &seq), -ENOSPC);
	CHECK_EQ(shortage.retiring_until, 7);
	CHECK_EQ(shortage.retiring_bytes, mapped_by(4));
	CHECK_EQ(shortage.transit_point, 0);
	seq_close(&r, seqs[1], 0);
	CHECK_EQ(vmkv_seq_open(r.cache, &options, &seq), -ENOSPC);
	CHECK_EQ(shortage.retiring_until, 7);
	CHECK_EQ(shortage.transit_bytes, mapped_by(4));
	CHECK(shortage.transit_point > 0);
	CHECK_EQ(vmkv_wait(r.device, shortage.transit_point, UINT64_MAX), 0);
	CHECK_EQ(vmkv_seq_open(r.cache, &options, &seq), 0);
	CHECK_EQ(span_of(&r, seq, 0, 0, 0).slot, 1);
	rig_end_clean(&r);
}

static void nothing_is_under_way(void)
{
	struct vmkv_step_result result = { .struct_size = sizeof(result) };
	const uint32_t tokens = 1024;
	struct rig r;
	vmkv_seq seq;

	rig_lagging(&r, "host?memory=16MiB", 0);
	seq = seq_of(&r, 100);
	CHECK_EQ(try_steps(&r, &seq, &tokens, 1, 0, &result), -ENOSPC);
	CHECK_EQ(result.shortage.kind, VMKV_SHORTAGE_BYTES);
	CHECK_EQ(result.shortage.transit_bytes, 0);
	CHECK_EQ(result.shortage.transit_point, 0);
	rig_end_clean(&r);
}

static void shrink_leaves_what_is_under_way(void)
{
	uint64_t released = 77;
	struct rig r;
	vmkv_seq seq, other;

	rig_lagging(&r, "host", VMKV_WARM_OFF);
	other = seq_of(&r, 4);
	seq = seq_of(&r, 600);
	reach_all(&r, seq);
	CHECK_EQ(stats_of(&r).slabs, 2);
	seq_close(&r, seq, 0);
	CHECK_EQ(vmkv_cache_shrink(r.cache, 0, &released), 0);
	CHECK_EQ(released, 0);
	reach_all(&r, other); /* unmapped */
	CHECK_EQ(vmkv_cache_shrink(r.cache, 0, &released), 0);
	CHECK_EQ(released, 0);
	reach_all(&r, other); /* zeroed */
	CHECK_EQ(vmkv_cache_shrink(r.cache, 0, &released), 0);
	CHECK_EQ(released, 16 * MIB);
	rig_end_clean(&r);
}

/* A slab that was returned had nothing behind an address any more, and so it is counted. */
static void shrink_leaves_no_mapping_of_what_it_returned(void)
{
	uint64_t released = 0;
	struct rig r;
	vmkv_seq seq;

	rig_lagging(&r, "host", 0);
	seq = seq_of(&r, 100);
	reach_all(&r, seq);
	seq_close(&r, seq, 0);
	CHECK_EQ(stats_of(&r).warm_bytes, mapped_by(100));
	CHECK_EQ(vmkv_cache_shrink(r.cache, 0, &released), 0);
	CHECK_EQ(released, 16 * MIB);
	CHECK_EQ(stats_of(&r).slab_bytes, 0);
	CHECK_EQ(stats_of(&r).mappings, 0);
	rig_end_clean(&r);
}

/* ---- the end -------------------------------------------------------------------------------- */

static void a_cache_goes_in_the_middle_of_everything(void)
{
	struct rig r;
	vmkv_seq seqs[4];

	rig_lagging(&r, "host", mapped_by(100));
	for (uint32_t i = 0; i < 4; i++)
		seqs[i] = seq_of(&r, 100 + 50 * i);
	seq_close(&r, seqs[0], 0); /* is zeroed where it is */
	seq_close(&r, seqs[1], 0); /* is unmapped */
	seq_close(&r, seqs[2], 9); /* waits */
	step(&r, seqs[3], 500);
	rig_end_clean(&r);
}

int main(void)
{
	RUN(memory_is_ready_when_its_point_is_reached);
	RUN(a_step_tells_the_newest_point);
	RUN(a_slot_is_free_when_it_is_unmapped);
	RUN(warm_memory_is_ready_when_it_is_zeroed);
	RUN(cutting_warm_memory_waits_for_it);
	RUN(a_failed_steps_addresses_are_blocked_for_a_while);
	RUN(addresses_that_the_driver_keeps);
	RUN(mappings_under_way_are_told);
	RUN(the_point_that_frees_a_slot_is_told);
	RUN(nothing_is_under_way);
	RUN(shrink_leaves_what_is_under_way);
	RUN(shrink_leaves_no_mapping_of_what_it_returned);
	RUN(a_cache_goes_in_the_middle_of_everything);
	return 0;
}
