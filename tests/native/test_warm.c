/* SPDX-License-Identifier: MIT
 *
 * Memory kept warm behind closed slots: who gets it, that it reads zero, and how much there is.
 */
#include "cache_fixture.h"

static void rig_warm(struct rig *r, uint64_t warm_max_bytes)
{
	rig_prepare(r, open_host("host"));
	r->options.warm_max_bytes = warm_max_bytes;
	rig_create(r);
}

static vmkv_seq seq_used(struct rig *r, uint32_t tokens, uint32_t value)
{
	vmkv_seq seq = seq_of(r, tokens);

	for (uint32_t layer = 0; layer < 2; layer++) {
		struct vmkv_span span = span_of(r, seq, 0, layer, 0);

		CHECK_EQ(vmkv_fill(r->device, span.address, span.mapped_tokens * ROW, value, NULL),
		         0);
	}
	return seq;
}

/* All memory that is mapped behind the sequence. */
static void check_reads(struct rig *r, vmkv_seq seq, uint32_t value)
{
	for (uint32_t layer = 0; layer < 2; layer++) {
		struct vmkv_span span = span_of(r, seq, 0, layer, 0);
		const volatile uint32_t *at = words(span.address);

		for (uint64_t i = 0; i < span.mapped_tokens * ROW / 4; i++)
			CHECK_EQ(at[i], value);
	}
}

/* ---- reuse ---------------------------------------------------------------------------------- */

static void a_closed_slot_stays_mapped(void)
{
	struct vmkv_stats before, after;
	struct rig r;
	vmkv_seq seq;

	rig_warm(&r, 0);
	seq_close(&r, seq_used(&r, 200, 0xdead), 0);
	before = stats_of(&r);
	CHECK_EQ(before.warm_bytes, mapped_by(200));
	CHECK_EQ(before.mapped_bytes, 0);
	CHECK_EQ(before.mappings, 4);
	CHECK_EQ(before.unmap_calls, 0);
	seq = seq_of(&r, 200);
	after = stats_of(&r);
	CHECK_EQ(after.warm_bytes, 0);
	CHECK_EQ(after.mapped_bytes, mapped_by(200));
	CHECK_EQ(after.map_calls, before.map_calls);
	CHECK_EQ(after.growing_steps, before.growing_steps); /* nothing was mapped */
	check_reads(&r, seq, 0);
	rig_end(&r);
}

static void zeroing_can_be_turned_off(void)
{
	struct rig r;
	vmkv_seq seq;

	rig_prepare(&r, open_host("host"));
	r.options.zero = VMKV_ZERO_OFF;
	rig_create(&r);
	seq_close(&r, seq_used(&r, 200, 0xdead), 0);
	CHECK_EQ(stats_of(&r).warm_bytes, mapped_by(200));
	seq = seq_of(&r, 200);
	check_reads(&r, seq, 0xdead);
	CHECK_EQ(stats_of(&r).fill_calls, 0);
	rig_end(&r);
}

static void dirty_pages_are_handed_on_without_zeroing(void)
{
	struct rig r;
	vmkv_seq seq;

	rig_prepare(&r, open_host("host"));
	r.options.zero = VMKV_ZERO_OFF;
	r.options.warm_max_bytes = VMKV_WARM_OFF;
	r.options.budget_bytes = mapped_by(200);
	rig_create(&r);
	seq_close(&r, seq_used(&r, 200, 0xdead), 0);
	CHECK_EQ(stats_of(&r).free_dirty_bytes, mapped_by(200));
	seq = seq_of(&r, 200);
	check_reads(&r, seq, 0xdead);
	CHECK_EQ(stats_of(&r).fill_calls, 0);
	rig_end(&r);
}

/* With nothing kept warm: the pages come back through the free ones. */
static void memory_of_another_slot_reads_zero(void)
{
	struct rig r;

	rig_prepare(&r, open_host("host"));
	r.options.budget_bytes = mapped_by(200);
	r.options.warm_max_bytes = VMKV_WARM_OFF;
	rig_create(&r);
	seq_close(&r, seq_used(&r, 200, 0xdead), 0);
	CHECK_EQ(stats_of(&r).warm_bytes, 0);
	CHECK_EQ(stats_of(&r).free_clean_bytes, mapped_by(200));
	CHECK_EQ(stats_of(&r).mappings, 0);
	seq_open(&r);
	check_reads(&r, seq_of(&r, 200), 0);
	rig_end(&r);
}

/* The first 128 tokens are one mapping a span, and warm; beyond it there is memory of another. */
static void a_longer_sequence_goes_on_behind_the_warm_part(void)
{
	struct rig r;
	vmkv_seq seq, other;

	rig_warm(&r, 0);
	seq = seq_used(&r, 100, 0xdead);
	other = seq_used(&r, 300, 0xbeef);
	seq_close(&r, seq, 0);
	seq_close(&r, other, 0);
	seq = seq_of(&r, 250);
	CHECK_EQ(span_of(&r, seq, 0, 0, 0).slot, 0);
	check_reads(&r, seq, 0);
	CHECK_EQ(stats_of(&r).mapped_bytes, mapped_by(250));
	rig_end(&r);
}

/* A shorter one takes the mappings that it needs; the others stay warm until it grows into them. */
static void a_shorter_sequence_leaves_the_rest_warm(void)
{
	struct vmkv_stats s;
	struct rig r;
	vmkv_seq seq;

	rig_warm(&r, 0);
	seq_close(&r, seq_used(&r, 400, 0xdead), 0);
	seq = seq_of(&r, 130); /* the second mapping of 32 pages is touched */
	s = stats_of(&r);
	CHECK_EQ(s.mapped_bytes, mapped_by(256));
	CHECK_EQ(s.warm_bytes, mapped_by(400) - mapped_by(256));
	CHECK_EQ(s.live_bytes, 130 * 2 * ROW);
	CHECK_EQ(vmkv_ready_tokens(r.cache)[0], 256);
	step(&r, seq, 400);
	CHECK_EQ(stats_of(&r).warm_bytes, 0);
	check_reads(&r, seq, 0);
	rig_end(&r);
}

static void warm_memory_of_an_open_slot_closes_with_it(void)
{
	struct rig r;

	rig_warm(&r, 0);
	seq_close(&r, seq_used(&r, 400, 0xdead), 0);
	seq_close(&r, seq_used(&r, 130, 0xbeef), 0);
	CHECK_EQ(stats_of(&r).warm_bytes, mapped_by(400));
	check_reads(&r, seq_of(&r, 400), 0);
	seq_close(&r, seq_open(&r), 0); /* one that never had any */
	CHECK_EQ(stats_of(&r).mapped_bytes, mapped_by(400));
	rig_end(&r);
}

/* ---- which slot ----------------------------------------------------------------------------- */

/* Slots 0 to 3 have 10, 400, 200 and 50 tokens warm. */
static void four_warm_slots(struct rig *r)
{
	static const uint32_t tokens[] = { 10, 400, 200, 50 };
	vmkv_seq seqs[4];

	rig_warm(r, 64 * MIB);
	for (int i = 0; i < 4; i++)
		seqs[i] = seq_of(r, tokens[i]);
	for (int i = 0; i < 4; i++)
		seq_close(r, seqs[i], 0);
	CHECK_EQ(stats_of(r).warm_bytes,
	         mapped_by(10) + mapped_by(400) + mapped_by(200) + mapped_by(50));
}

static void the_best_fit_of_the_warm_slots(void)
{
	static const struct {
		uint32_t expected, slot;
	} fits[] = {
		{ 0, 1 },   /* none expected: the most */
		{ 1, 0 },   { 12, 0 },  { 13, 3 }, { 52, 3 }, { 53, 2 },
		{ 200, 2 }, { 201, 1 }, { 400, 1 },
		{ 401, 1 }, /* none has that: the most */
		{ 99999, 1 },
	};

	for (size_t i = 0; i < sizeof(fits) / sizeof(*fits); i++) {
		struct rig r;
		vmkv_seq seq;

		four_warm_slots(&r);
		seq = seq_open_with(&r, VMKV_PREFER_WARM, 0, fits[i].expected);
		if (span_of(&r, seq, 0, 0, 0).slot != fits[i].slot)
			CHECK_FAIL("%u tokens are expected: slot %u is opened, not %u",
			           fits[i].expected, span_of(&r, seq, 0, 0, 0).slot, fits[i].slot);
		rig_end(&r);
	}
}

static void else_the_lowest(void)
{
	struct rig r;
	vmkv_seq seq;

	rig_warm(&r, 0);
	seq_close(&r, seq_open(&r), 5); /* slot 0 is not free */
	seq = seq_open_with(&r, VMKV_PREFER_WARM, 0, 100);
	CHECK_EQ(span_of(&r, seq, 0, 0, 0).slot, 1);
	rig_end(&r);
}

/* What the next one isn't expected to need is given back when its slot is opened. */
static void warm_memory_is_cut_to_what_is_expected(void)
{
	struct rig r;
	vmkv_seq seq;

	rig_warm(&r, 0);
	seq_close(&r, seq_used(&r, 400, 0xdead), 0);
	seq = seq_open_with(&r, VMKV_PREFER_LOWEST, 0, 256);
	CHECK_EQ(span_of(&r, seq, 0, 0, 0).slot, 0);
	CHECK_EQ(stats_of(&r).warm_bytes, mapped_by(256));
	CHECK_EQ(stats_of(&r).mappings, 4);
	step(&r, seq, 300);
	CHECK_EQ(stats_of(&r).mapped_bytes, mapped_by(300));
	check_reads(&r, seq, 0);
	rig_end(&r);
}

static void warm_memory_is_kept_if_nothing_is_expected(void)
{
	struct rig r;

	rig_warm(&r, 0);
	seq_close(&r, seq_of(&r, 400), 0);
	seq_open(&r);
	CHECK_EQ(stats_of(&r).warm_bytes, mapped_by(400));
	rig_end(&r);
}

/* ---- how much ------------------------------------------------------------------------------- */

static void none_if_it_is_off(void)
{
	struct rig r;

	rig_warm(&r, VMKV_WARM_OFF);
	seq_close(&r, seq_of(&r, 200), 0);
	CHECK_EQ(stats_of(&r).warm_bytes, 0);
	CHECK_EQ(stats_of(&r).mappings, 0);
	rig_end(&r);
}

/* A slot is kept whole or not at all: 150 tokens fit, 151 would not. */
static void no_more_than_the_bound(void)
{
	struct rig r;
	vmkv_seq first, second;

	rig_warm(&r, mapped_by(152));
	first = seq_of(&r, 100);
	second = seq_of(&r, 60);
	seq_close(&r, first, 0);
	seq_close(&r, second, 0);
	CHECK_EQ(stats_of(&r).warm_bytes, mapped_by(100));
	second = seq_open_with(&r, VMKV_PREFER_SLOT, 1, 0);
	step(&r, second, 52);
	seq_close(&r, second, 0);
	CHECK_EQ(stats_of(&r).warm_bytes, mapped_by(152));
	rig_end(&r);
}

static void a_quarter_of_the_budget_by_default(void)
{
	struct rig r;
	vmkv_seq first, second;

	rig_prepare(&r, open_host("host"));
	r.options.budget_bytes = 4 * mapped_by(100);
	rig_create(&r);
	first = seq_of(&r, 100);
	second = seq_of(&r, 4);
	seq_close(&r, first, 0);
	seq_close(&r, second, 0);
	CHECK_EQ(stats_of(&r).warm_bytes, mapped_by(100));
	rig_end(&r);
}

/* Also if one call of vmkv_retire retires them all. */
static void the_bound_holds_for_many_at_once(void)
{
	struct rig r;
	vmkv_seq seqs[4];

	rig_warm(&r, mapped_by(250));
	for (int i = 0; i < 4; i++)
		seqs[i] = seq_of(&r, 100);
	for (int i = 0; i < 4; i++)
		seq_close(&r, seqs[i], 5);
	retire(&r, 5);
	CHECK_EQ(stats_of(&r).warm_bytes, 2 * mapped_by(100));
	CHECK_EQ(stats_of(&r).free_clean_bytes,
	         stats_of(&r).slab_bytes - 2 * mapped_by(100));
	rig_end(&r);
}

/* Memory that is short is taken from closed slots, the highest first. */
static void the_lowest_slot_stays_warm_longest(void)
{
	struct rig r;
	vmkv_seq seqs[3];

	rig_prepare(&r, open_host("host"));
	r.options.budget_bytes = mapped_by(400);
	r.options.warm_max_bytes = 64 * MIB;
	rig_create(&r);
	for (int i = 0; i < 3; i++)
		seqs[i] = seq_of(&r, 100);
	seq_close(&r, seqs[0], 0);
	seq_close(&r, seqs[1], 0);
	step(&r, seqs[2], 204); /* 4 tokens more than there are */
	CHECK_EQ(stats_of(&r).warm_bytes, mapped_by(100));
	seqs[0] = seq_of(&r, 100);
	CHECK_EQ(span_of(&r, seqs[0], 0, 0, 0).slot, 0);
	CHECK_EQ(stats_of(&r).warm_bytes, 0);
	rig_end(&r);
}

int main(void)
{
	RUN(a_closed_slot_stays_mapped);
	RUN(zeroing_can_be_turned_off);
	RUN(dirty_pages_are_handed_on_without_zeroing);
	RUN(memory_of_another_slot_reads_zero);
	RUN(a_longer_sequence_goes_on_behind_the_warm_part);
	RUN(a_shorter_sequence_leaves_the_rest_warm);
	RUN(warm_memory_of_an_open_slot_closes_with_it);
	RUN(the_best_fit_of_the_warm_slots);
	RUN(else_the_lowest);
	RUN(warm_memory_is_cut_to_what_is_expected);
	RUN(warm_memory_is_kept_if_nothing_is_expected);
	RUN(none_if_it_is_off);
	RUN(no_more_than_the_bound);
	RUN(a_quarter_of_the_budget_by_default);
	RUN(the_bound_holds_for_many_at_once);
	RUN(the_lowest_slot_stays_warm_longest);
	return 0;
}
