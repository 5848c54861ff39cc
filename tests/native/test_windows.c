/* SPDX-License-Identifier: MIT
 *
 * Groups that aren't full: windows that trim themselves, and states. And memory for reads beyond
 * the length.
 */
#include "cache_fixture.h"

/* One group of one layer with 4 rows a page: window 8, slack 2. */
static void window_rig(struct rig *r, uint64_t mapping_bytes)
{
	struct vmkv_group *window;

	rig_prepare(r, open_host("host"));
	model_begin(&r->m);
	window = model_plain(&r->m, VMKV_POLICY_WINDOW, 1, ROW);
	window->window_tokens = 8;
	window->slack_tokens = 2;
	r->options.window_mapping_max_bytes = mapping_bytes;
	r->options.warm_max_bytes = VMKV_WARM_OFF;
	rig_create(r);
}

static void check_there(struct rig *r, vmkv_seq seq, uint32_t first, uint32_t end)
{
	struct vmkv_span span = span_of(r, seq, 0, 0, 0);

	CHECK_EQ(span.first_token, first);
	CHECK_EQ(span.mapped_tokens, end);
	/* Memory begins exactly there, and ends there. */
	CHECK_EQ(vmkv_fill(r->device, span.address + first * ROW, (end - first) * ROW, 1, NULL), 0);
	if (first > 0)
		CHECK_EQ(vmkv_fill(r->device, span.address + first * ROW - 4, 4, 1, NULL), -EFAULT);
	CHECK_EQ(vmkv_fill(r->device, span.address + end * ROW, 4, 1, NULL), -EFAULT);
}

/* ---- windows -------------------------------------------------------------------------------- */

/* By one token at a time: a step from length 14 has 4 tokens below 14 - 8 - 2, which are page 0. */
static void a_window_trims_at_its_exact_boundary(void)
{
	struct rig r;
	vmkv_seq seq;

	window_rig(&r, PAGE);
	seq = seq_open(&r);
	for (uint32_t tokens = 1; tokens <= 60; tokens++) {
		uint32_t before = tokens - 1, dead = before > 10 ? before - 10 : 0;

		step(&r, seq, tokens);
		check_there(&r, seq, dead / 4 * 4, (tokens + 3) / 4 * 4);
		CHECK_EQ(stats_of(&r).live_bytes, (tokens - dead) * ROW);
		CHECK_EQ(stats_of(&r).mapped_bytes, ((tokens + 3) / 4 - dead / 4) * PAGE);
		CHECK_EQ(vmkv_ready_tokens(r.cache)[0], (tokens + 3) / 4 * 4);
	}
	CHECK_EQ(stats_of(&r).retiring_bytes, 0);
	rig_end(&r);
}

/* 64 tokens in one step are 4 mappings of 4 pages. The next step finds 54 dead tokens, 13.5 pages:
 *
 *     1. before   aaaa bbbb cccc dddd
 *     2. after    .... .... .... dddd e
 */
static void only_whole_mappings_go(void)
{
	struct vmkv_mapping m[8];
	struct rig r;
	vmkv_seq seq;

	window_rig(&r, 4 * PAGE);
	seq = seq_of(&r, 64);
	CHECK_EQ(mappings_of(&r, seq, 0, 0, m, 8), 4);
	check_there(&r, seq, 0, 64);
	step(&r, seq, 65);
	check_there(&r, seq, 48, 68);
	CHECK_EQ(mappings_of(&r, seq, 0, 0, m, 8), 2);
	CHECK_EQ(m[0].bytes, 4 * PAGE);
	CHECK_EQ(m[1].bytes, PAGE);
	CHECK_EQ(stats_of(&r).mapped_bytes, 5 * PAGE);
	CHECK_EQ(stats_of(&r).live_bytes, (65 - 54) * ROW);
	step(&r, seq, 74); /* from 65: 55 dead, and page 15 is not wholly */
	check_there(&r, seq, 48, 76);
	step(&r, seq, 75); /* from 74: 64 dead */
	check_there(&r, seq, 64, 76);
	rig_end(&r);
}

/* Four mappings that go on from each other are one of the kernel's, until the last of them goes. */
static void a_run_that_is_trimmed_from_its_front_goes_on(void)
{
	struct vmkv_device_info info = { .struct_size = sizeof(info) };
	struct rig r;
	vmkv_seq seq;

	window_rig(&r, 4 * PAGE);
	seq = seq_of(&r, 64);
	CHECK_EQ(stats_of(&r).mappings, 4);
	CHECK_EQ(vmkv_device_info(r.device, &info), 0);
	CHECK_EQ(info.mappings, 1);
	step(&r, seq, 64);
	CHECK_EQ(stats_of(&r).mappings, 1);
	CHECK_EQ(vmkv_device_info(r.device, &info), 0);
	CHECK_EQ(info.mappings, 1);
	seq_close(&r, seq, 0);
	CHECK_EQ(vmkv_device_info(r.device, &info), 0);
	CHECK_EQ(info.mappings, 0);
	rig_end(&r);
}

/* Rows of 10,000 bytes in pages of 64 KiB: 20 dead tokens are 200,000 bytes, of which 3 whole pages
 * go, and with them the beginning of the last of these rows. */
static void the_first_token_is_whole(void)
{
	struct vmkv_group *window;
	struct rig r;
	vmkv_seq seq;

	rig_prepare(&r, open_host("host"));
	model_begin(&r.m);
	window = model_plain(&r.m, VMKV_POLICY_WINDOW, 1, 10000);
	window->window_tokens = 10;
	r.options.window_mapping_max_bytes = PAGE;
	rig_create(&r);
	seq = seq_of(&r, 30);
	step(&r, seq, 30);
	CHECK_EQ(stats_of(&r).mapped_bytes, 2 * PAGE);
	CHECK_EQ(span_of(&r, seq, 0, 0, 0).first_token, 20);
	CHECK_EQ(span_of(&r, seq, 0, 0, 0).mapped_tokens, 32);
	rig_end(&r);
}

static void a_step_without_growth_trims_too(void)
{
	struct rig r;
	vmkv_seq seq;

	window_rig(&r, PAGE);
	seq = seq_of(&r, 64);
	step(&r, seq, 64);
	check_there(&r, seq, 52, 64);
	CHECK_EQ(stats_of(&r).growing_steps, 1);
	rig_end(&r);
}

static void trimmed_memory_waits_for_the_queues(void)
{
	struct rig r;
	vmkv_seq seq;

	window_rig(&r, PAGE);
	seq = seq_open(&r);
	step_until(&r, seq, 64, 7);
	step_until(&r, seq, 65, 5); /* 7 was given before */
	CHECK_EQ(stats_of(&r).retiring_bytes, 13 * PAGE);
	CHECK_EQ(span_of(&r, seq, 0, 0, 0).first_token, 52);
	CHECK_EQ(*words(span_of(&r, seq, 0, 0, 0).address), 0); /* still mapped */
	step_until(&r, seq, 80, 9);
	retire(&r, 6);
	CHECK_EQ(stats_of(&r).retiring_bytes, 13 * PAGE);
	step_until(&r, seq, 90, 9); /* 70 dead tokens are 17 pages: 4 more */
	CHECK_EQ(stats_of(&r).retiring_bytes, (13 + 4) * PAGE);
	retire(&r, 7);
	CHECK_EQ(stats_of(&r).retiring_bytes, 4 * PAGE);
	retire(&r, 9);
	CHECK_EQ(stats_of(&r).retiring_bytes, 0);
	check_there(&r, seq, 68, 92);
	rig_end(&r);
}

static void a_slot_waits_for_what_was_trimmed(void)
{
	struct rig r;
	vmkv_seq seq;

	window_rig(&r, PAGE);
	seq = seq_of(&r, 64);
	step_until(&r, seq, 65, 9);
	seq_close(&r, seq, 3);
	retire(&r, 8);
	CHECK_EQ(span_of(&r, seq_open(&r), 0, 0, 0).slot, 1);
	CHECK_EQ(stats_of(&r).retiring_bytes, (13 + 4) * PAGE);
	retire(&r, 9);
	CHECK_EQ(stats_of(&r).retiring_bytes, 0);
	seq = seq_open(&r);
	CHECK_EQ(span_of(&r, seq, 0, 0, 0).slot, 0);
	step(&r, seq, 64); /* from token 0 on */
	check_there(&r, seq, 0, 64);
	rig_end(&r);
}

/* Whatever is retired a step late, need_bytes is enough. */
static void need_bytes_is_enough_with_windows(void)
{
	uint64_t need, most = 0;
	struct rig r;
	vmkv_seq seq;

	window_rig(&r, 2 * PAGE);
	CHECK_EQ(vmkv_cache_need_bytes(r.cache, 1000, 16, &need), 0);
	seq = seq_open(&r);
	for (uint32_t i = 0; i * 16 < 1000; i++) {
		struct vmkv_stats s;

		step_until(&r, seq, i * 16 + 16 < 1000 ? i * 16 + 16 : 1000, i + 1);
		s = stats_of(&r);
		if (s.mapped_bytes + s.retiring_bytes > most)
			most = s.mapped_bytes + s.retiring_bytes;
		retire(&r, i);
	}
	CHECK(most <= need);
	CHECK(need < 1000 * ROW / 4);
	rig_end(&r);
}

/* A cache whose budget is exactly that serves it to the end. */
static void need_bytes_as_budget_serves_a_window(void)
{
	uint64_t need;
	struct rig r;
	vmkv_seq seq;

	window_rig(&r, 2 * PAGE);
	CHECK_EQ(vmkv_cache_need_bytes(r.cache, 1000, 16, &need), 0);
	CHECK_EQ(vmkv_cache_set_budget(r.cache, need), 0);
	seq = seq_open(&r);
	for (uint32_t i = 0; i * 16 < 1000; i++) {
		step_until(&r, seq, i * 16 + 16 < 1000 ? i * 16 + 16 : 1000, i + 1);
		retire(&r, i);
	}
	CHECK(stats_of(&r).slab_bytes <= need);
	rig_end(&r);
}

/* ---- groups side by side -------------------------------------------------------------------- */

static void mixed_rig(struct rig *r)
{
	rig_prepare(r, open_host("host"));
	model_plain(&r->m, VMKV_POLICY_WINDOW, 1, ROW)->window_tokens = 100;
	model_plain(&r->m, VMKV_POLICY_STATE, 3, 100 * KIB);
	rig_create(r);
}

static void each_group_by_its_policy(void)
{
	struct vmkv_stats s;
	struct rig r;
	vmkv_seq seq;

	mixed_rig(&r);
	seq = seq_of(&r, 512);
	step(&r, seq, 1000);
	s = stats_of(&r);
	/* 412 dead tokens, 103 pages: 25 mappings of 4 pages. */
	CHECK_EQ(s.mapped_bytes, (2 * 250 + 250 - 100 + 5) * PAGE);
	CHECK_EQ(s.live_bytes, 3 * 1000 * ROW - 412 * ROW + 300 * KIB);
	CHECK_EQ(span_of(&r, seq, 0, 0, 0).first_token, 0);
	CHECK_EQ(span_of(&r, seq, 1, 0, 0).first_token, 400);
	CHECK_EQ(span_of(&r, seq, 2, 0, 0).first_token, 0);
	seq_close(&r, seq, 0);
	s = stats_of(&r);
	CHECK_EQ(s.live_bytes, 0);
	CHECK_EQ(s.mapped_bytes, 0);
	rig_end(&r);
}

/* What is left of a window is no use to the next sequence; the rest is. */
static void a_trimmed_window_is_not_kept_warm(void)
{
	struct rig r;
	vmkv_seq seq;

	mixed_rig(&r);
	seq = seq_of(&r, 120);
	step(&r, seq, 128);
	seq_close(&r, seq, 0);
	/* 20 dead tokens are 5 pages, one mapping of 4: the window's other 28 pages go. */
	CHECK_EQ(stats_of(&r).warm_bytes, (2 * 32 + 5) * PAGE);
	seq = seq_of(&r, 100); /* not trimmed yet */
	/* The mappings that it needs are its own, the last 2 pages of each full span are not. */
	CHECK_EQ(stats_of(&r).warm_bytes, 2 * 2 * PAGE);
	seq_close(&r, seq, 0);
	CHECK_EQ(stats_of(&r).warm_bytes, (2 * 32 + 5 + 25) * PAGE);
	rig_end(&r);
}

/* ---- states --------------------------------------------------------------------------------- */

static void a_states_memory_comes_with_the_first_step(void)
{
	struct vmkv_span span;
	struct rig r;
	vmkv_seq seq;

	mixed_rig(&r);
	seq = seq_open(&r);
	span = span_of(&r, seq, 2, 1, 0);
	CHECK_EQ(span.mapped_tokens, 0);
	CHECK_EQ(span.reserved_tokens, 1);
	CHECK_EQ(span.token_stride, 0);
	CHECK_EQ(span.row_bytes, 100 * KIB);
	CHECK_EQ(span.slot_stride, 2 * MIB);
	CHECK_EQ(span.address, span_of(&r, seq, 2, 0, 0).address + 100 * KIB);
	step(&r, seq, 1);
	span = span_of(&r, seq, 2, 2, 0);
	CHECK_EQ(span.mapped_tokens, 1);
	CHECK_EQ(span.live_tokens, 1);
	CHECK_EQ(vmkv_fill(r.device, span.address, span.row_bytes, 5, NULL), 0);
	step(&r, seq, 1000);
	CHECK_EQ(*words(span.address + span.row_bytes - 4), 5);
	CHECK_EQ(span_of(&r, seq, 2, 2, 0).mapped_tokens, 1);
	rig_end(&r);
}

static void a_cache_of_states_only(void)
{
	struct rig r;
	uint64_t need = 0;
	vmkv_seq seq;

	rig_prepare(&r, open_host("host"));
	model_begin(&r.m);
	model_plain(&r.m, VMKV_POLICY_STATE, 2, 40 * KIB);
	rig_create(&r);
	seq = seq_of(&r, 0);
	CHECK_EQ(stats_of(&r).mapped_bytes, 0);
	step(&r, seq, 0);
	CHECK_EQ(stats_of(&r).live_bytes, 0);
	step(&r, seq, 1);
	CHECK_EQ(stats_of(&r).mapped_bytes, 2 * PAGE);
	CHECK_EQ(stats_of(&r).live_bytes, 80 * KIB);
	CHECK_EQ(vmkv_ready_tokens(r.cache)[0], 1024);
	step(&r, seq, 1024);
	CHECK_EQ(stats_of(&r).growing_steps, 1);
	CHECK_EQ(stats_of(&r).live_bytes, 80 * KIB);
	CHECK_EQ(vmkv_cache_need_bytes(r.cache, 1, 0, &need), 0);
	CHECK_EQ(need, 2 * PAGE);
	CHECK_EQ(vmkv_cache_need_bytes(r.cache, 0, 0, &need), 0);
	CHECK_EQ(need, 0);
	rig_end(&r);
}

/* ---- reads beyond the length ---------------------------------------------------------------- */

static void memory_goes_on_to_the_read_alignment(void)
{
	struct vmkv_span span;
	struct rig r;
	vmkv_seq seq;

	rig_prepare(&r, open_host("host"));
	r.options.max_tokens = 1000;
	r.options.read_align_tokens = 256;
	rig_create(&r);
	seq = seq_of(&r, 1);
	span = span_of(&r, seq, 0, 1, 0);
	CHECK_EQ(span.mapped_tokens, 256);
	CHECK_EQ(span.live_tokens, 1);
	CHECK_EQ(span.reserved_tokens, 1024);
	CHECK_EQ(vmkv_ready_tokens(r.cache)[0], 256);
	CHECK_EQ(*words(span.address + 256 * ROW - 4), 0);
	CHECK_EQ(vmkv_fill(r.device, span.address + 256 * ROW, 4, 0, NULL), -EFAULT);
	step(&r, seq, 256);
	CHECK_EQ(stats_of(&r).growing_steps, 1);
	step(&r, seq, 257);
	CHECK_EQ(stats_of(&r).mapped_bytes, mapped_by(512));
	step(&r, seq, 1000);
	CHECK_EQ(stats_of(&r).mapped_bytes, mapped_by(1024));
	CHECK_EQ(vmkv_ready_tokens(r.cache)[0], 1000);
	CHECK_EQ(try_step(&r, seq, 1001, 0), -ERANGE);
	rig_end(&r);
}

int main(void)
{
	RUN(a_window_trims_at_its_exact_boundary);
	RUN(only_whole_mappings_go);
	RUN(a_run_that_is_trimmed_from_its_front_goes_on);
	RUN(the_first_token_is_whole);
	RUN(a_step_without_growth_trims_too);
	RUN(trimmed_memory_waits_for_the_queues);
	RUN(a_slot_waits_for_what_was_trimmed);
	RUN(need_bytes_is_enough_with_windows);
	RUN(need_bytes_as_budget_serves_a_window);
	RUN(each_group_by_its_policy);
	RUN(a_trimmed_window_is_not_kept_warm);
	RUN(a_states_memory_comes_with_the_first_step);
	RUN(a_cache_of_states_only);
	RUN(memory_goes_on_to_the_read_alignment);
	return 0;
}
