/* SPDX-License-Identifier: MIT
 *
 * Shortages: of bytes and of mappings, what is told about them, and that nothing is half done.
 */
#include "cache_fixture.h"
#include "device_checking.h"

/* A step that must be short; what is told of it. */
static struct vmkv_shortage step_short(struct rig *r, const vmkv_seq *seqs, const uint32_t *tokens,
                                       uint32_t n, uint64_t *seq_needed)
{
	struct vmkv_step_request request = { .struct_size = sizeof(request),
		                             .seqs = seqs,
		                             .tokens = tokens,
		                             .n = n,
		                             .seq_needed_bytes = seq_needed };
	struct vmkv_step_result result = { .struct_size = sizeof(result), .ready = 77 };
	uint64_t shortages = stats_of(r).shortages;
	int rc = vmkv_step(r->cache, &request, &result);

	if (rc != -ENOSPC)
		CHECK_FAIL("the step is not short but %d: %s", rc, cache_text(r));
	CHECK_EQ(result.ready, 0);
	CHECK_EQ(stats_of(r).shortages, shortages + 1);
	return result.shortage;
}

static struct vmkv_shortage step_one_short(struct rig *r, vmkv_seq seq, uint32_t tokens)
{
	return step_short(r, &seq, &tokens, 1, NULL);
}

/* 16 pages, warm memory off: 32 tokens in all. */
static void rig_of_16_pages(struct rig *r, vmkv_device *device)
{
	rig_prepare(r, device);
	r->options.budget_bytes = 16 * PAGE;
	r->options.warm_max_bytes = VMKV_WARM_OFF;
	rig_create(r);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static void the_numbers_of_a_shortage(void)
{
	struct vmkv_shortage s;
	uint64_t needed[3] = { 0 };
	struct rig r;
	vmkv_seq seqs[3];

	rig_of_16_pages(&r, open_host("host"));
	for (int i = 0; i < 3; i++)
		seqs[i] = seq_of(&r, 4); /* 2 pages each: 10 are left */
	s = step_short(&r, seqs, (const uint32_t[]){ 16, 4, 17 }, 3, needed);
	CHECK_EQ(s.kind, VMKV_SHORTAGE_BYTES);
	CHECK_EQ(needed[0], 6 * PAGE);
	CHECK_EQ(needed[1], 0);
	CHECK_EQ(needed[2], 8 * PAGE);
	CHECK_EQ(s.needed, 14 * PAGE);
	CHECK_EQ(s.missing, 4 * PAGE);
	CHECK_EQ(s.retiring_bytes, 0);
	CHECK_EQ(s.retiring_until, 0);
	CHECK_EQ(s.transit_bytes, 0);
	CHECK_EQ(s.transit_point, 0);
	CHECK_TEXT(&r, "short of 262144 bytes: the step needs 917504");
	CHECK_TEXT(&r, "of the budget of 1048576");
	rig_end(&r);
}

static void nothing_is_half_done(void)
{
	struct vmkv_stats before, after;
	struct rig r;
	vmkv_seq seqs[2];

	rig_of_16_pages(&r, open_host("host"));
	seqs[0] = seq_of(&r, 4);
	seqs[1] = seq_of(&r, 4);
	before = stats_of(&r);
	step_short(&r, seqs, (const uint32_t[]){ 28, 8 }, 2, NULL); /* the first alone would fit */
	after = stats_of(&r);
	after.shortages--;
	CHECK(!memcmp(&before, &after, sizeof(before)));
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(span_of(&r, seqs[i], 0, 0, 0).live_tokens, 4);
		CHECK_EQ(span_of(&r, seqs[i], 0, 0, 0).mapped_tokens, 4);
	}
	CHECK_EQ(try_steps(&r, seqs, (const uint32_t[]){ 28, 4 }, 2, 0, NULL), 0);
	rig_end(&r);
}

static void what_retires_is_told(void)
{
	struct vmkv_shortage s;
	struct rig r;
	vmkv_seq seqs[3];

	rig_of_16_pages(&r, open_host("host"));
	for (int i = 0; i < 3; i++)
		seqs[i] = seq_of(&r, 8); /* 4 pages each */
	seq_close(&r, seqs[0], 30);
	seq_close(&r, seqs[1], 20);
	s = step_one_short(&r, seqs[2], 20); /* 6 more, and 4 are left */
	CHECK_EQ(s.needed, 6 * PAGE);
	CHECK_EQ(s.missing, 2 * PAGE);
	CHECK_EQ(s.retiring_bytes, 8 * PAGE);
	CHECK_EQ(s.retiring_until, 30);
	retire(&r, 20);
	step(&r, seqs[2], 20);
	s = step_one_short(&r, seqs[2], 28); /* 4 more, and 2 are left */
	CHECK_EQ(s.missing, 2 * PAGE);
	CHECK_EQ(s.retiring_bytes, 4 * PAGE);
	CHECK_EQ(s.retiring_until, 30);
	retire(&r, 30);
	step(&r, seqs[2], 32);
	CHECK_EQ(stats_of(&r).mapped_bytes, 16 * PAGE);
	rig_end(&r);
}

/* Exactly the budget can be used, also where it is no multiple of a stretch or a slab. */
static void the_budget_can_be_used_up(void)
{
	static const uint64_t budgets[] = { 2, 31, 32, 33, 64, 255, 256, 257, 300 };

	for (size_t i = 0; i < sizeof(budgets) / sizeof(*budgets); i++) {
		uint32_t pages = (uint32_t)budgets[i] / 2; /* in each of two spans */
		struct rig r;
		vmkv_seq seq;

		rig_prepare(&r, open_host("host"));
		r.options.budget_bytes = budgets[i] * PAGE + PAGE - 1; /* whole pages only */
		rig_create(&r);
		seq = seq_of(&r, 4 * pages);
		CHECK_EQ(step_one_short(&r, seq, 4 * pages + 1).missing,
		         (2 - budgets[i] % 2) * PAGE);
		CHECK_EQ(stats_of(&r).slab_bytes, (budgets[i] - budgets[i] % 2) * PAGE <= 16 * MIB
		                                      ? stats_of(&r).slab_bytes
		                                      : budgets[i] * PAGE);
		CHECK_EQ(stats_of(&r).mapped_bytes, 2 * pages * PAGE);
		rig_end(&r);
	}
}

/* Warm memory goes before anybody is short, and counts as there when one is. */
static void warm_memory_is_no_shortage(void)
{
	struct vmkv_shortage s;
	struct rig r;
	vmkv_seq seqs[2];

	rig_prepare(&r, open_host("host"));
	r.options.budget_bytes = 16 * PAGE;
	r.options.warm_max_bytes = 16 * PAGE;
	rig_create(&r);
	seqs[0] = seq_of(&r, 16); /* 8 pages */
	seqs[1] = seq_of(&r, 4);  /* 2 */
	seq_close(&r, seqs[0], 0);
	CHECK_EQ(stats_of(&r).warm_bytes, 8 * PAGE);
	s = step_one_short(&r, seqs[1], 33); /* 16 more; 6 are free, 8 warm */
	CHECK_EQ(s.needed, 16 * PAGE);
	CHECK_EQ(s.missing, 2 * PAGE);
	step(&r, seqs[1], 32);
	CHECK_EQ(stats_of(&r).warm_bytes, 0);
	rig_end(&r);
}

/* ---- the device's memory -------------------------------------------------------------------- */

static void the_device_may_have_less_than_the_budget(void)
{
	struct vmkv_shortage s;
	struct rig r;
	vmkv_seq seq;

	rig_begin(&r);
	vmkv_cache_destroy(r.cache);
	CHECK_EQ(vmkv_device_close(r.device), 0);
	rig_prepare(&r, open_host("host?memory=16MiB")); /* one slab */
	rig_create(&r);
	seq = seq_of(&r, 512);
	CHECK_EQ(stats_of(&r).mapped_bytes, 16 * MIB);
	s = step_one_short(&r, seq, 517);
	CHECK_EQ(s.kind, VMKV_SHORTAGE_BYTES);
	CHECK_EQ(s.needed, 4 * PAGE);
	CHECK_EQ(s.missing, 4 * PAGE);
	CHECK_EQ(stats_of(&r).slab_bytes, 16 * MIB);
	rig_end(&r);
}

/* ---- mappings ------------------------------------------------------------------------------- */

/* 8 mappings for the sequences, whatever the slabs' aliases take. */
static void rig_of_8_mappings(struct rig *r)
{
	rig_prepare(r, open_host("host?max_mappings=8"));
	r->options.warm_max_bytes = 16 * MIB;
	rig_create(r);
}

static void mappings_are_bounded(void)
{
	struct vmkv_device_info info = { .struct_size = sizeof(info) };
	struct vmkv_shortage s;
	struct rig r;
	vmkv_seq seqs[4];

	rig_of_8_mappings(&r);
	for (int i = 0; i < 3; i++)
		seqs[i] = seq_of(&r, 4); /* 2 runs each, in stretches of their own */
	CHECK_EQ(vmkv_device_info(r.device, &info), 0);
	CHECK_EQ(info.max_mappings, 8);
	CHECK_EQ(info.mappings, 6);
	step(&r, seqs[0], 128); /* goes on in its stretch: no further run */
	CHECK_EQ(vmkv_device_info(r.device, &info), 0);
	CHECK_EQ(info.mappings, 6);
	CHECK_EQ(stats_of(&r).mappings, 8);
	seqs[3] = seq_open(&r);
	s = step_short(&r, (const vmkv_seq[]){ seqs[3], seqs[0] }, (const uint32_t[]){ 4, 132 }, 2,
	               NULL);
	CHECK_EQ(s.kind, VMKV_SHORTAGE_MAPPINGS);
	CHECK_EQ(s.needed, 4);
	CHECK_EQ(s.missing, 2);
	CHECK_TEXT(&r, "short of 2 mappings: the step needs 4 more");
	CHECK_TEXT(&r, "and the device has room for");
	CHECK_EQ(span_of(&r, seqs[0], 0, 0, 0).live_tokens, 128);
	step(&r, seqs[3], 4);
	seq_close(&r, seqs[1], 5);
	s = step_one_short(&r, seqs[0], 132);
	CHECK_EQ(s.missing, 2);
	CHECK_EQ(s.retiring_until, 5);
	retire(&r, 5); /* warm from then on, and given back for it */
	step(&r, seqs[0], 132);
	CHECK_EQ(stats_of(&r).warm_bytes, 0);
	rig_end(&r);
}

/* ---- a device that takes its time ----------------------------------------------------------- */

static vmkv_device *lagging(void)
{
	struct checking_options options = { .lag_seed = 1, .lag_polls = 50 };

	return target_open_checking("host", &options);
}

/* What is under way is told with the point that frees it; once that is reached, the step succeeds
 * without another call between. Unmapping and zeroing may be a point each. */
static void what_is_under_way_is_told(void)
{
	struct vmkv_step_result result = { .struct_size = sizeof(result) };
	const uint32_t tokens = 32;
	struct rig r;
	vmkv_seq seqs[2];
	int rounds = 0;

	rig_of_16_pages(&r, lagging());
	seqs[0] = seq_of(&r, 24);
	seqs[1] = seq_open(&r);
	seq_close(&r, seqs[0], 0);
	CHECK_EQ(stats_of(&r).unmapping_bytes, 12 * PAGE);
	while (try_steps(&r, &seqs[1], &tokens, 1, 0, &result) == -ENOSPC) {
		CHECK_EQ(result.shortage.kind, VMKV_SHORTAGE_BYTES);
		CHECK_EQ(result.shortage.needed, 16 * PAGE);
		CHECK_EQ(result.shortage.missing, 12 * PAGE);
		CHECK_EQ(result.shortage.transit_bytes, 12 * PAGE);
		CHECK(result.shortage.transit_point > 0);
		CHECK_EQ(vmkv_wait(r.device, result.shortage.transit_point, UINT64_MAX), 0);
		CHECK(++rounds <= 2);
	}
	CHECK(rounds > 0);
	CHECK_EQ(stats_of(&r).mapped_bytes, 16 * PAGE);
	CHECK(result.ready > 0);
	CHECK_EQ(vmkv_wait(r.device, result.ready, UINT64_MAX), 0);
	for (uint64_t i = 0; i < 32 * ROW / 4; i += 512)
		CHECK_EQ(words(span_of(&r, seqs[1], 0, 0, 0).address)[i], 0);
	vmkv_cache_destroy(r.cache);
	CHECK_EQ(vmkv_device_close(r.device), 0);
}

int main(void)
{
	RUN(the_numbers_of_a_shortage);
	RUN(nothing_is_half_done);
	RUN(what_retires_is_told);
	RUN(the_budget_can_be_used_up);
	RUN(warm_memory_is_no_shortage);
	RUN(the_device_may_have_less_than_the_budget);
	RUN(mappings_are_bounded);
	RUN(what_is_under_way_is_told);
	return 0;
}
