/* SPDX-License-Identifier: MIT
 *
 * Sequences: handles, slots, spans and mappings.
 */
#include "cache_fixture.h"

/* ---- handles -------------------------------------------------------------------------------- */

static int span_try(struct rig *r, vmkv_seq seq)
{
	struct vmkv_span span = { .struct_size = sizeof(span) };

	return vmkv_span(r->cache, seq, 0, 0, 0, &span);
}

static int mappings_try(struct rig *r, vmkv_seq seq)
{
	size_t n;

	return vmkv_seq_mappings(r->cache, seq, 0, 0, 0, NULL, 0, &n);
}

/* No call takes it, and each says why. */
static void check_stale(struct rig *r, vmkv_seq seq, const char *why)
{
	struct vmkv_stats before = stats_of(r), after;

	CHECK_EQ(vmkv_seq_close(r->cache, seq, 0), -ESTALE);
	CHECK_TEXT(r, why);
	CHECK_EQ(try_step(r, seq, 1, 0), -ESTALE);
	CHECK_TEXT(r, why);
	CHECK_EQ(span_try(r, seq), -ESTALE);
	CHECK_TEXT(r, why);
	CHECK_EQ(mappings_try(r, seq), -ESTALE);
	CHECK_TEXT(r, why);
	after = stats_of(r);
	CHECK(!memcmp(&before, &after, sizeof(before)));
}

static void zero_is_no_sequence(void)
{
	struct rig r;

	rig_begin(&r);
	check_stale(&r, 0, "0 is not a sequence");
	seq_open(&r);
	check_stale(&r, 0, "0 is not a sequence");
	rig_end(&r);
}

static void a_closed_sequence_is_stale(void)
{
	struct rig r;
	vmkv_seq first, second;

	rig_begin(&r);
	first = seq_of(&r, 5);
	seq_close(&r, first, 3);
	check_stale(&r, first, "(slot 0) was closed");
	retire(&r, 3);
	check_stale(&r, first, "(slot 0) was closed");
	second = seq_open(&r);
	CHECK_EQ(span_of(&r, second, 0, 0, 0).slot, 0);
	check_stale(&r, first, "(slot 0) was closed");
	CHECK(first != second);
	rig_end(&r);
}

static void made_up_handles_are_stale(void)
{
	struct rig r;
	vmkv_seq seq;

	rig_begin(&r);
	seq = seq_open(&r);
	check_stale(&r, 1, "is not of this cache");
	check_stale(&r, UINT64_MAX, "is not of this cache");
	check_stale(&r, seq ^ (UINT64_C(1) << 63), "is not of this cache");
	check_stale(&r, seq + 1, "was closed");          /* another slot, never opened */
	check_stale(&r, seq + 0xfffff, "was closed");    /* no such slot */
	check_stale(&r, seq + (1 << 20), "was closed");  /* a generation to come */
	rig_end(&r);
}

static void generations_differ(void)
{
	struct rig r;
	vmkv_seq last = 0;

	rig_begin(&r);
	for (int i = 0; i < 1000; i++) {
		vmkv_seq seq = seq_open(&r);

		CHECK(seq != last);
		seq_close(&r, seq, 0);
		last = seq;
	}
	rig_end(&r);
}

/* ---- opening -------------------------------------------------------------------------------- */

static int try_open(struct rig *r, uint32_t prefer, uint32_t slot, vmkv_seq *ret)
{
	struct vmkv_open_options options = { .struct_size = sizeof(options) };

	options.prefer = prefer;
	options.slot = slot;
	return vmkv_seq_open(r->cache, &options, ret);
}

static void the_lowest_free_slot_is_taken(void)
{
	struct rig r;
	vmkv_seq seqs[4];

	rig_begin(&r);
	for (uint32_t i = 0; i < 4; i++) {
		CHECK_EQ(vmkv_seq_open(r.cache, NULL, &seqs[i]), 0);
		CHECK_EQ(span_of(&r, seqs[i], 0, 0, 0).slot, i);
	}
	seq_close(&r, seqs[3], 0);
	seq_close(&r, seqs[1], 0);
	seqs[1] = seq_open(&r);
	CHECK_EQ(span_of(&r, seqs[1], 0, 0, 0).slot, 1);
	seqs[3] = seq_open(&r);
	CHECK_EQ(span_of(&r, seqs[3], 0, 0, 0).slot, 3);
	rig_end(&r);
}

/* Slots that wait to be retired are passed over. */
static void a_retiring_slot_is_not_free(void)
{
	struct rig r;
	vmkv_seq seq;

	rig_begin(&r);
	seq_close(&r, seq_open(&r), 7);
	seq = seq_open(&r);
	CHECK_EQ(span_of(&r, seq, 0, 0, 0).slot, 1);
	CHECK_EQ(try_open(&r, VMKV_PREFER_SLOT, 0, &seq), -EBUSY);
	CHECK_TEXT(&r, "slot 0 isn't free");
	retire(&r, 6);
	CHECK_EQ(try_open(&r, VMKV_PREFER_SLOT, 0, &seq), -EBUSY);
	retire(&r, 7);
	CHECK_EQ(try_open(&r, VMKV_PREFER_SLOT, 0, &seq), 0);
	CHECK_EQ(span_of(&r, seq, 0, 0, 0).slot, 0);
	rig_end(&r);
}

static void a_slot_may_be_named(void)
{
	struct rig r;
	vmkv_seq seq = 0;

	rig_begin(&r);
	CHECK_EQ(try_open(&r, VMKV_PREFER_SLOT, 7, &seq), 0);
	CHECK_EQ(span_of(&r, seq, 0, 0, 0).slot, 7);
	CHECK_EQ(try_open(&r, VMKV_PREFER_SLOT, 7, &seq), -EBUSY);
	CHECK_TEXT(&r, "slot 7 isn't free");
	CHECK_EQ(try_open(&r, VMKV_PREFER_SLOT, 8, &seq), -EINVAL);
	CHECK_TEXT(&r, "there is no slot 8: slots are 0 to 7");
	CHECK_EQ(try_open(&r, VMKV_PREFER_SLOT, UINT32_MAX, &seq), -EINVAL);
	CHECK_EQ(stats_of(&r).sequences, 1);
	rig_end(&r);
}

static void no_more_than_max_slots(void)
{
	struct rig r;
	vmkv_seq seqs[5] = { 0 };

	rig_begin(&r);
	for (int i = 0; i < 4; i++)
		seqs[i] = seq_open(&r);
	CHECK_EQ(try_open(&r, VMKV_PREFER_LOWEST, 0, &seqs[4]), -ENOSPC);
	CHECK_TEXT(&r, "4 sequences are open, as many as max_slots allows");
	CHECK_EQ(try_open(&r, VMKV_PREFER_SLOT, 6, &seqs[4]), -ENOSPC);
	CHECK_EQ(seqs[4], 0);
	seq_close(&r, seqs[2], 100);
	CHECK_EQ(try_open(&r, VMKV_PREFER_LOWEST, 0, &seqs[4]), 0);
	CHECK_EQ(span_of(&r, seqs[4], 0, 0, 0).slot, 4); /* another slot: 2 is retiring */
	rig_end(&r);
}

static void every_slot_may_wait(void)
{
	struct rig r;
	vmkv_seq seq = 0;

	rig_prepare(&r, open_host("host"));
	r.options.slot_count = 5;
	rig_create(&r);
	for (int i = 0; i < 4; i++)
		seq_close(&r, seq_open(&r), 10);
	seq_open(&r);
	CHECK_EQ(try_open(&r, VMKV_PREFER_LOWEST, 0, &seq), -ENOSPC);
	CHECK_TEXT(&r, "no slot is free: 1 sequences are open, and the other 4 slots wait");
	CHECK_EQ(try_open(&r, VMKV_PREFER_WARM, 0, &seq), -ENOSPC);
	CHECK_EQ(seq, 0);
	CHECK_EQ(stats_of(&r).sequences, 1);
	retire(&r, 10);
	CHECK_EQ(try_open(&r, VMKV_PREFER_LOWEST, 0, &seq), 0);
	rig_end(&r);
}

static void open_options_are_checked(void)
{
	struct {
		struct vmkv_open_options known;
		uint64_t unknown;
	} longer = { .known.struct_size = sizeof(longer), .unknown = 1 };
	struct rig r;
	vmkv_seq seq = 0;

	rig_begin(&r);
	CHECK_EQ(try_open(&r, 3, 0, &seq), -EINVAL);
	CHECK_TEXT(&r, "prefer 3 is not one of enum vmkv_prefer");
	CHECK_EQ(vmkv_seq_open(r.cache, &longer.known, &seq), -E2BIG);
	CHECK_TEXT(&r, "doesn't know");
	longer.known.reserved = 1;
	longer.unknown = 0;
	CHECK_EQ(vmkv_seq_open(r.cache, &longer.known, &seq), -E2BIG);
	longer.known.reserved = 0;
	longer.known.struct_size = 0;
	CHECK_EQ(vmkv_seq_open(r.cache, &longer.known, &seq), -EINVAL);
	CHECK_TEXT(&r, "struct_size");
	CHECK_EQ(vmkv_seq_open(r.cache, NULL, NULL), -EINVAL);
	CHECK_EQ(seq, 0);
	longer.known.struct_size = sizeof(longer);
	CHECK_EQ(vmkv_seq_open(r.cache, &longer.known, &seq), 0);
	longer.known.struct_size = sizeof(size_t); /* all defaults */
	longer.known.prefer = 99;
	CHECK_EQ(vmkv_seq_open(r.cache, &longer.known, &seq), 0);
	CHECK_EQ(span_of(&r, seq, 0, 0, 0).slot, 1);
	rig_end(&r);
}

/* ---- spans ---------------------------------------------------------------------------------- */

static void addresses_are_affine(void)
{
	struct rig r;
	struct vmkv_span base;

	for (uint32_t layout = VMKV_LAYOUT_LAYER; layout <= VMKV_LAYOUT_TOKEN; layout++) {
		rig_prepare(&r, open_host("host"));
		r.options.layout = layout;
		rig_create(&r);
		base = span_of(&r, seq_open_with(&r, VMKV_PREFER_SLOT, 0, 0), 0, 1, 0);
		CHECK_EQ(base.token_stride, layout == VMKV_LAYOUT_TOKEN ? 2 * ROW : ROW);
		CHECK_EQ(base.slot_stride % (2 * MIB), 0);
		for (uint32_t slot = 1; slot < 8; slot += 3) {
			struct vmkv_span span =
			    span_of(&r, seq_open_with(&r, VMKV_PREFER_SLOT, slot, 0), 0, 1, 0);

			CHECK_EQ(span.slot, slot);
			CHECK_EQ(span.address, base.address + slot * base.slot_stride);
			CHECK_EQ(span.token_stride, base.token_stride);
			CHECK_EQ(span.slot_stride, base.slot_stride);
		}
		rig_end(&r);
	}
}

static void a_span_tells_what_there_is(void)
{
	struct rig r;
	struct vmkv_span span;
	vmkv_seq seq;

	rig_begin(&r);
	seq = seq_open(&r);
	span = span_of(&r, seq, 0, 1, 0);
	CHECK_EQ(span.live_tokens, 0);
	CHECK_EQ(span.mapped_tokens, 0);
	CHECK_EQ(span.first_token, 0);
	CHECK_EQ(span.reserved_tokens, 1024);
	CHECK_EQ(span.row_bytes, ROW);
	step(&r, seq, 5);
	CHECK_EQ(span_of(&r, seq, 0, 1, 0).address, span.address);
	span = span_of(&r, seq, 0, 1, 0);
	CHECK_EQ(span.live_tokens, 5);
	CHECK_EQ(span.mapped_tokens, 8); /* two pages of 4 */
	rig_end(&r);
}

static void spans_of_a_sequence_do_not_overlap(void)
{
	struct rig r;
	struct vmkv_span first, second;
	vmkv_seq seq;

	rig_begin(&r);
	seq = seq_of(&r, 1024);
	first = span_of(&r, seq, 0, 0, 0);
	second = span_of(&r, seq, 0, 1, 0);
	CHECK_EQ(vmkv_fill(r.device, first.address, 1024 * ROW, 1, NULL), 0);
	CHECK_EQ(vmkv_fill(r.device, second.address, 1024 * ROW, 2, NULL), 0);
	CHECK_EQ(*words(first.address), 1);
	CHECK_EQ(*words(first.address + 1023 * ROW), 1);
	CHECK_EQ(*words(second.address), 2);
	CHECK_EQ(*words(second.address + 1024 * ROW - 4), 2);
	CHECK_EQ(vmkv_copy(r.device, first.address + 500 * ROW, second.address, 300 * ROW, NULL),
	         0);
	CHECK_EQ(*words(first.address + 500 * ROW), 2);
	CHECK_EQ(*words(first.address + 800 * ROW - 4), 2);
	CHECK_EQ(*words(first.address + 800 * ROW), 1);
	CHECK_EQ(*words(first.address + 500 * ROW - 4), 1);
	rig_end(&r);
}

static void copies_between_sequences(void)
{
	struct rig r;
	struct vmkv_span first, second;
	uint64_t point = 77;

	rig_begin(&r);
	first = span_of(&r, seq_of(&r, 10), 0, 0, 0);
	second = span_of(&r, seq_of(&r, 10), 0, 0, 0);
	CHECK_EQ(vmkv_fill(r.device, first.address, 10 * ROW, 0x01020304, &point), 0);
	CHECK_EQ(point, 0);
	CHECK_EQ(vmkv_copy(r.device, second.address, first.address, 10 * ROW, &point), 0);
	CHECK_EQ(*words(second.address + 10 * ROW - 4), 0x01020304);
	/* Past the mapped pages there is nothing. */
	CHECK_EQ(vmkv_copy(r.device, second.address, first.address, 13 * ROW, NULL), -EFAULT);
	CHECK_EQ(vmkv_fill(r.device, second.address + 12 * ROW, 4, 0, NULL), -EFAULT);
	rig_end(&r);
}

static void there_is_no_such_place(void)
{
	struct vmkv_span span = { .struct_size = sizeof(span), .slot = 77 };
	struct vmkv_mapping mapping;
	struct rig r;
	vmkv_seq seq;
	size_t n = 77;

	rig_begin(&r);
	seq = seq_of(&r, 1);
	CHECK_EQ(vmkv_span(r.cache, seq, 1, 0, 0, &span), -ERANGE);
	CHECK_TEXT(&r, "there is no group 1: groups are 0 to 0");
	CHECK_EQ(vmkv_span(r.cache, seq, 0, 2, 0, &span), -ERANGE);
	CHECK_TEXT(&r, "group 0 has no layer 2, tensor 0: it has 2 layers of 1 tensors");
	CHECK_EQ(vmkv_span(r.cache, seq, 0, 0, 1, &span), -ERANGE);
	CHECK_TEXT(&r, "group 0 has no layer 0, tensor 1");
	CHECK_EQ(vmkv_seq_mappings(r.cache, seq, UINT32_MAX, 0, 0, &mapping, 1, &n), -ERANGE);
	CHECK_EQ(vmkv_seq_mappings(r.cache, seq, 0, UINT32_MAX, 0, &mapping, 1, &n), -ERANGE);
	CHECK_EQ(vmkv_seq_mappings(r.cache, seq, 0, 0, UINT32_MAX, &mapping, 1, &n), -ERANGE);
	CHECK_EQ(span.slot, 77);
	CHECK_EQ(n, 77);
	rig_end(&r);
}

/* ---- mappings ------------------------------------------------------------------------------- */

static void mappings_tile_the_span(void)
{
	struct vmkv_mapping m[8];
	struct rig r;
	uint64_t at;
	vmkv_seq seq;

	rig_begin(&r);
	seq = seq_of(&r, 300); /* 75 pages: 32 + 32 + 11 */
	at = span_of(&r, seq, 0, 1, 0).address;
	CHECK_EQ(mappings_of(&r, seq, 0, 1, m, 8), 3);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(m[i].address, at);
		CHECK_EQ(m[i].bytes, i < 2 ? 2 * MIB : 11 * PAGE);
		CHECK(m[i].slab_offset + m[i].bytes <= 16 * MIB);
		CHECK_EQ(m[i].slab, 0);
		at += m[i].bytes;
	}
	CHECK_EQ(stats_of(&r).mappings, 6);
	rig_end(&r);
}

/* Grown by 2 and then by 8 pages. At most 3 pages, and across no multiple of 3 of the span; but the
 * full groups of the token layout need not heed multiples.
 *
 *     layer    aa b ccc ddd e
 *     token    aa bbb ccc dd
 */
static void mappings_end_at_multiples(void)
{
	static const uint64_t pages[2][6] = { { 2, 1, 3, 3, 1, 0 }, { 2, 3, 3, 2, 0, 0 } };
	static const size_t counts[] = { 5, 4 };

	for (uint32_t layout = VMKV_LAYOUT_LAYER; layout <= VMKV_LAYOUT_TOKEN; layout++) {
		struct vmkv_mapping m[8];
		struct rig r;
		vmkv_seq seq;

		rig_prepare(&r, open_host("host"));
		r.m.groups[0].layers = 1; /* so that a span has 4 tokens a page in both */
		r.options.layout = layout;
		r.options.mapping_max_bytes = 4 * PAGE - 1; /* rounded down */
		rig_create(&r);
		seq = seq_of(&r, 8);
		step(&r, seq, 40);
		CHECK_EQ(mappings_of(&r, seq, 0, 0, m, 8), counts[layout]);
		for (size_t i = 0; i < counts[layout]; i++)
			CHECK_EQ(m[i].bytes, pages[layout][i] * PAGE);
		rig_end(&r);
	}
}

static void as_many_mappings_as_there_is_room_for(void)
{
	struct vmkv_mapping m[2] = { { 0 }, { .bytes = 77 } };
	struct rig r;
	size_t n = 77;
	vmkv_seq seq;

	rig_begin(&r);
	seq = seq_open(&r);
	CHECK_EQ(mappings_of(&r, seq, 0, 0, NULL, 0), 0);
	step(&r, seq, 300);
	CHECK_EQ(mappings_of(&r, seq, 0, 0, NULL, 0), 3);
	CHECK_EQ(mappings_of(&r, seq, 0, 0, m, 1), 3);
	CHECK_EQ(m[0].bytes, 2 * MIB);
	CHECK_EQ(m[1].bytes, 77);
	CHECK_EQ(vmkv_seq_mappings(r.cache, seq, 0, 0, 0, NULL, 1, &n), -EINVAL);
	CHECK_EQ(vmkv_seq_mappings(r.cache, seq, 0, 0, 0, m, 1, NULL), -EINVAL);
	CHECK_EQ(n, 77);
	rig_end(&r);
}

/* ---- ready_tokens --------------------------------------------------------------------------- */

static void ready_tokens_tell_what_needs_no_step(void)
{
	const uint32_t *ready;
	struct rig r;
	vmkv_seq seq;

	rig_begin(&r);
	ready = vmkv_ready_tokens(r.cache);
	for (int i = 0; i < 8; i++)
		CHECK_EQ(ready[i], 0);
	seq = seq_open_with(&r, VMKV_PREFER_SLOT, 5, 0);
	CHECK_EQ(ready[5], 0);
	step(&r, seq, 5);
	CHECK_EQ(ready[5], 8);
	step(&r, seq, 8);
	CHECK_EQ(ready[5], 8);
	CHECK_EQ(stats_of(&r).growing_steps, 1);
	step(&r, seq, 1024);
	CHECK_EQ(ready[5], 1024);
	CHECK(vmkv_ready_tokens(r.cache) == ready);
	seq_close(&r, seq, 9);
	CHECK_EQ(ready[5], 0);
	rig_end(&r);
}

int main(void)
{
	RUN(zero_is_no_sequence);
	RUN(a_closed_sequence_is_stale);
	RUN(made_up_handles_are_stale);
	RUN(generations_differ);
	RUN(the_lowest_free_slot_is_taken);
	RUN(a_retiring_slot_is_not_free);
	RUN(a_slot_may_be_named);
	RUN(no_more_than_max_slots);
	RUN(every_slot_may_wait);
	RUN(open_options_are_checked);
	RUN(addresses_are_affine);
	RUN(a_span_tells_what_there_is);
	RUN(spans_of_a_sequence_do_not_overlap);
	RUN(copies_between_sequences);
	RUN(there_is_no_such_place);
	RUN(mappings_tile_the_span);
	RUN(mappings_end_at_multiples);
	RUN(as_many_mappings_as_there_is_room_for);
	RUN(ready_tokens_tell_what_needs_no_step);
	return 0;
}
