/* SPDX-License-Identifier: MIT
 *
 * The hot call: lengths, all or nothing, and what it refuses.
 */
#include "cache_fixture.h"

/* ---- lengths -------------------------------------------------------------------------------- */

static void a_step_maps_what_the_length_needs(void)
{
	static const uint32_t lengths[] = { 1, 4, 5, 127, 128, 129, 1000, 1024 };
	struct rig r;
	vmkv_seq seq;

	rig_begin(&r);
	seq = seq_open(&r);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		struct vmkv_stats s;

		step(&r, seq, lengths[i]);
		s = stats_of(&r);
		CHECK_EQ(s.mapped_bytes, mapped_by(lengths[i]));
		CHECK_EQ(s.live_bytes, lengths[i] * 2 * ROW);
		CHECK_EQ(s.mapped_pages, mapped_by(lengths[i]) / PAGE);
		CHECK_EQ(s.mapped_bytes_peak, s.mapped_bytes);
		CHECK_EQ(s.live_bytes_peak, s.live_bytes);
	}
	rig_end(&r);
}

static void memory_is_there_and_reads_zero(void)
{
	struct rig r;
	const volatile uint32_t *at;

	rig_begin(&r);
	at = words(span_of(&r, seq_of(&r, 130), 0, 1, 0).address);
	for (uint64_t i = 0; i < 132 * ROW / 4; i++)
		CHECK_EQ(at[i], 0);
	rig_end(&r);
}

static void memory_that_is_there_needs_no_call(void)
{
	struct vmkv_stats before, after;
	struct rig r;
	vmkv_seq seq;

	rig_begin(&r);
	seq = seq_of(&r, 5);
	before = stats_of(&r);
	step(&r, seq, 5);
	step(&r, seq, 7);
	step(&r, seq, 8);
	after = stats_of(&r);
	CHECK_EQ(after.steps, before.steps + 3);
	CHECK_EQ(after.growing_steps, before.growing_steps);
	CHECK_EQ(after.map_calls, before.map_calls);
	CHECK_EQ(after.mapped_bytes, before.mapped_bytes);
	CHECK_EQ(after.live_bytes, 8 * 2 * ROW);
	step(&r, seq, 9);
	after = stats_of(&r);
	CHECK_EQ(after.growing_steps, before.growing_steps + 1);
	CHECK_EQ(after.map_calls, before.map_calls + 2); /* one for each span */
	rig_end(&r);
}

static void nothing_to_do(void)
{
	struct vmkv_step_result result = { .struct_size = sizeof(result), .ready = 77 };
	struct rig r;
	vmkv_seq seq;

	rig_begin(&r);
	CHECK_EQ(try_steps(&r, NULL, NULL, 0, 5, &result), 0);
	CHECK_EQ(result.ready, 0);
	seq = seq_open(&r);
	step(&r, seq, 0);
	CHECK_EQ(stats_of(&r).mapped_bytes, 0);
	CHECK_EQ(stats_of(&r).steps, 2);
	rig_end(&r);
}

static void several_at_once(void)
{
	struct vmkv_step_result result = { .struct_size = sizeof(result), .ready = 77 };
	uint32_t tokens[3] = { 4, 300, 9 };
	struct rig r;
	vmkv_seq seqs[3];

	rig_begin(&r);
	for (int i = 0; i < 3; i++)
		seqs[i] = seq_open(&r);
	CHECK_EQ(try_steps(&r, seqs, tokens, 3, 0, &result), 0);
	CHECK_EQ(result.ready, 0);
	CHECK_EQ(result.shortage.kind, VMKV_SHORTAGE_NONE);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(span_of(&r, seqs[i], 0, 0, 0).live_tokens, tokens[i]);
	CHECK_EQ(stats_of(&r).mapped_bytes, mapped_by(4) + mapped_by(300) + mapped_by(9));
	CHECK_EQ(stats_of(&r).steps, 1);
	tokens[1] = 301; /* one that has nothing new, one that has, one that stays */
	tokens[0] = 5;
	CHECK_EQ(try_steps(&r, seqs, tokens, 3, 0, &result), 0);
	CHECK_EQ(stats_of(&r).mapped_bytes, mapped_by(5) + mapped_by(301) + mapped_by(9));
	rig_end(&r);
}

/* ---- refused -------------------------------------------------------------------------------- */

/* The step fails, and nothing is other than it was. */
static void check_refused(struct rig *r, const vmkv_seq *seqs, const uint32_t *tokens, uint32_t n,
                          int error, const char *part)
{
	struct vmkv_step_result result = { .struct_size = sizeof(result), .ready = 77 };
	struct vmkv_stats before = stats_of(r), after;

	CHECK_EQ(try_steps(r, seqs, tokens, n, 1000, &result), error);
	CHECK_TEXT(r, part);
	CHECK_EQ(result.ready, 77);
	after = stats_of(r);
	CHECK(!memcmp(&before, &after, sizeof(before)));
	for (uint32_t i = 0; i < 8; i++)
		CHECK(vmkv_ready_tokens(r->cache)[i] <= 12);
}

static void what_a_step_refuses(void)
{
	struct rig r;
	vmkv_seq seqs[4];

	rig_begin(&r);
	for (int i = 0; i < 3; i++)
		seqs[i] = seq_of(&r, 9);
	seqs[3] = seqs[1];
	check_refused(&r, seqs, (const uint32_t[]){ 10, 11, 12, 11 }, 4, -EINVAL,
	              "(slot 1) is in this step twice");
	check_refused(&r, seqs, (const uint32_t[]){ 500, 11, 8 }, 3, -EINVAL,
	              "(slot 2): a step can't shrink it from 9 to 8 tokens");
	check_refused(&r, seqs, (const uint32_t[]){ 500, 1025, 10 }, 3, -ERANGE,
	              "(slot 1): 1025 tokens is past max_tokens 1024");
	check_refused(&r, seqs, (const uint32_t[]){ 500, UINT32_MAX, 10 }, 3, -ERANGE,
	              "4294967295 tokens is past max_tokens 1024");
	seqs[3] = seqs[2] + (1 << 20);
	check_refused(&r, seqs, (const uint32_t[]){ 500, 10, 10, 10 }, 4, -ESTALE, "was closed");
	seqs[3] = 0;
	check_refused(&r, seqs, (const uint32_t[]){ 500, 10, 10, 10 }, 4, -ESTALE,
	              "0 is not a sequence");
	/* A failed step leaves no trace that makes the next one fail. */
	CHECK_EQ(try_steps(&r, seqs, (const uint32_t[]){ 10, 10, 10 }, 3, 0, NULL), 0);
	rig_end(&r);
}

/* A busy_until that came with a refused step doesn't hold the memory back. */
static void a_refused_step_gives_no_busy_until(void)
{
	struct rig r;
	vmkv_seq seq;

	rig_begin(&r);
	seq = seq_of(&r, 9);
	CHECK_EQ(try_step(&r, seq, 8, 50), -EINVAL);
	seq_close(&r, seq, 0);
	CHECK_EQ(stats_of(&r).retiring_bytes, 0);
	rig_end(&r);
}

struct longer_request {
	struct vmkv_step_request known;
	uint64_t unknown;
};

static void requests_are_checked(void)
{
	struct longer_request longer = { .known.struct_size = sizeof(longer), .unknown = 1 };
	struct vmkv_step_request request = { .struct_size = sizeof(request), .n = 1 };
	struct vmkv_step_result result = { .struct_size = sizeof(result) };
	const uint32_t tokens = 5;
	struct rig r;
	vmkv_seq seq;

	rig_begin(&r);
	seq = seq_open(&r);
	CHECK_EQ(vmkv_step(r.cache, NULL, &result), -EINVAL);
	CHECK_EQ(vmkv_step(r.cache, &request, &result), -EINVAL);
	CHECK_TEXT(&r, "seqs and tokens");
	request.seqs = &seq;
	CHECK_EQ(vmkv_step(r.cache, &request, &result), -EINVAL);
	request.tokens = &tokens;
	result.struct_size = 7;
	CHECK_EQ(vmkv_step(r.cache, &request, &result), -EINVAL);
	CHECK_TEXT(&r, "struct_size");
	request.struct_size = 0;
	CHECK_EQ(vmkv_step(r.cache, &request, NULL), -EINVAL);
	CHECK_TEXT(&r, "struct_size");
	request.struct_size = sizeof(request);
	request.reserved = 1;
	CHECK_EQ(vmkv_step(r.cache, &request, NULL), -E2BIG);
	CHECK_TEXT(&r, "doesn't know");
	CHECK_EQ(vmkv_step(r.cache, &longer.known, NULL), -E2BIG);
	CHECK_TEXT(&r, "doesn't know");
	CHECK_EQ(stats_of(&r).steps, 0);
	longer.unknown = 0;
	CHECK_EQ(vmkv_step(r.cache, &longer.known, NULL), 0);
	rig_end(&r);
}

/* An older header's request ends behind n: no busy_until, no seq_needed_bytes. */
static void requests_of_an_older_header(void)
{
	uint64_t needed = 77;
	uint32_t tokens = 5;
	struct vmkv_step_request request = {
		.struct_size = offsetof(struct vmkv_step_request, busy_until),
		.tokens = &tokens,
		.n = 1,
		.busy_until = 99,
		.seq_needed_bytes = &needed,
	};
	struct rig r;
	vmkv_seq seq;

	rig_prepare(&r, open_host("host"));
	r.options.budget_bytes = 8 * PAGE;
	rig_create(&r);
	seq = seq_open(&r);
	request.seqs = &seq;
	CHECK_EQ(vmkv_step(r.cache, &request, NULL), 0);
	tokens = 500;
	CHECK_EQ(vmkv_step(r.cache, &request, NULL), -ENOSPC);
	CHECK_EQ(needed, 77);
	seq_close(&r, seq, 0);
	CHECK_EQ(stats_of(&r).retiring_bytes, 0);
	rig_end(&r);
}

static void results_are_filled_as_far_as_they_reach(void)
{
	struct {
		struct vmkv_step_result known;
		uint64_t beyond;
	} result = { .beyond = 77 };
	struct rig r;
	vmkv_seq seq;

	rig_prepare(&r, open_host("host"));
	r.options.budget_bytes = 8 * PAGE;
	rig_create(&r);
	seq = seq_open(&r);
	result.known.struct_size = sizeof(result);
	CHECK_EQ(try_steps(&r, &seq, (const uint32_t[]){ 500 }, 1, 0, &result.known), -ENOSPC);
	CHECK_EQ(result.known.shortage.kind, VMKV_SHORTAGE_BYTES);
	CHECK_EQ(result.beyond, 0);
	memset(&result, 0xee, sizeof(result));
	result.known.struct_size = offsetof(struct vmkv_step_result, shortage) + 8;
	CHECK_EQ(try_steps(&r, &seq, (const uint32_t[]){ 500 }, 1, 0, &result.known), -ENOSPC);
	CHECK_EQ(result.known.shortage.kind, VMKV_SHORTAGE_BYTES);
	CHECK_EQ(result.known.shortage.needed, UINT64_C(0xeeeeeeeeeeeeeeee));
	rig_end(&r);
}

/* ---- busy_until ----------------------------------------------------------------------------- */

/* Given 5, then 3, then 4 at close: the memory waits for 5. */
static void the_greatest_busy_until_counts(void)
{
	struct rig r;
	vmkv_seq seq;

	rig_begin(&r);
	seq = seq_open(&r);
	step_until(&r, seq, 4, 5);
	step_until(&r, seq, 8, 3);
	seq_close(&r, seq, 4);
	CHECK_EQ(stats_of(&r).retiring_bytes, mapped_by(8));
	retire(&r, 4);
	CHECK_EQ(stats_of(&r).retiring_bytes, mapped_by(8));
	retire(&r, 5);
	CHECK_EQ(stats_of(&r).retiring_bytes, 0);
	rig_end(&r);
}

static void a_step_without_growth_counts_too(void)
{
	struct rig r;
	vmkv_seq seq;

	rig_begin(&r);
	seq = seq_of(&r, 4);
	step_until(&r, seq, 4, 9);
	seq_close(&r, seq, 0);
	retire(&r, 8);
	CHECK_EQ(stats_of(&r).retiring_bytes, mapped_by(4));
	retire(&r, 9);
	CHECK_EQ(stats_of(&r).retiring_bytes, 0);
	rig_end(&r);
}

static void retire_goes_only_forward(void)
{
	struct rig r;
	vmkv_seq seq;

	rig_begin(&r);
	retire(&r, 100); /* beyond anything given */
	retire(&r, 50);
	seq = seq_of(&r, 4);
	seq_close(&r, seq, 100); /* which is passed already: within the call */
	CHECK_EQ(stats_of(&r).retiring_bytes, 0);
	seq = seq_of(&r, 4);
	seq_close(&r, seq, 101);
	CHECK_EQ(stats_of(&r).retiring_bytes, mapped_by(4));
	retire(&r, UINT64_MAX);
	CHECK_EQ(stats_of(&r).retiring_bytes, 0);
	rig_end(&r);
}

/* Closed in the order 3, 1, 2; each goes in its turn. */
static void retirees_go_by_their_number(void)
{
	static const uint64_t until[] = { 3, 1, 2, 1 };
	struct rig r;
	vmkv_seq seqs[4];

	rig_begin(&r);
	for (int i = 0; i < 4; i++)
		seqs[i] = seq_of(&r, 4);
	for (int i = 0; i < 4; i++)
		seq_close(&r, seqs[i], until[i]);
	CHECK_EQ(stats_of(&r).retiring_bytes, 4 * mapped_by(4));
	retire(&r, 1);
	CHECK_EQ(stats_of(&r).retiring_bytes, 2 * mapped_by(4));
	retire(&r, 2);
	CHECK_EQ(stats_of(&r).retiring_bytes, mapped_by(4));
	retire(&r, 3);
	CHECK_EQ(stats_of(&r).retiring_bytes, 0);
	rig_end(&r);
}

int main(void)
{
	RUN(a_step_maps_what_the_length_needs);
	RUN(memory_is_there_and_reads_zero);
	RUN(memory_that_is_there_needs_no_call);
	RUN(nothing_to_do);
	RUN(several_at_once);
	RUN(what_a_step_refuses);
	RUN(a_refused_step_gives_no_busy_until);
	RUN(requests_are_checked);
	RUN(requests_of_an_older_header);
	RUN(results_are_filled_as_far_as_they_reach);
	RUN(the_greatest_busy_until_counts);
	RUN(a_step_without_growth_counts_too);
	RUN(retire_goes_only_forward);
	RUN(retirees_go_by_their_number);
	return 0;
}
