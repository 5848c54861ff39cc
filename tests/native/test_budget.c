/* SPDX-License-Identifier: MIT
 *
 * The budget, and memory that is given back to the system.
 */
#include "cache_fixture.h"

/* Use all memory behind a sequence, so that the system has to find it. */
static void touch(struct rig *r, vmkv_seq seq)
{
	for (uint32_t layer = 0; layer < 2; layer++) {
		struct vmkv_span span = span_of(r, seq, 0, layer, 0);

		CHECK_EQ(vmkv_fill(r->device, span.address, span.live_tokens * ROW, 1, NULL), 0);
	}
}

static vmkv_seq seq_touched(struct rig *r, uint32_t tokens)
{
	vmkv_seq seq = seq_of(r, tokens);

	touch(r, seq);
	return seq;
}

/* ---- shrink --------------------------------------------------------------------------------- */

static void shrink_returns_memory_to_the_system(void)
{
	uint64_t released = 77;
	struct rig r;
	vmkv_seq seq;

	rig_begin(&r); /* slabs of 16 MiB */
	seq = seq_touched(&r, 1000);
	CHECK_EQ(stats_of(&r).slab_bytes, 32 * MIB);
	CHECK(held_bytes(r.device) >= 1000 * 2 * ROW);
	seq_close(&r, seq, 0);
	CHECK(held_bytes(r.device) >= 1000 * 2 * ROW); /* kept, until asked */
	CHECK_EQ(vmkv_cache_shrink(r.cache, 0, &released), 0);
	CHECK_EQ(released, 32 * MIB);
	CHECK_EQ(held_bytes(r.device), 0);
	CHECK_EQ(stats_of(&r).slab_bytes, 0);
	CHECK_EQ(stats_of(&r).slabs, 0);
	CHECK_EQ(stats_of(&r).mappings, 0);
	CHECK_EQ(stats_of(&r).slab_bytes_peak, 32 * MIB);
	CHECK_EQ(stats_of(&r).slab_calls, 4);
	seq_touched(&r, 1000); /* and takes it again */
	CHECK_EQ(stats_of(&r).slab_bytes, 32 * MIB);
	rig_end(&r);
}

static void shrink_keeps_what_it_is_told(void)
{
	uint64_t released = 77;
	struct rig r;

	rig_prepare(&r, open_host("host"));
	r.options.warm_max_bytes = VMKV_WARM_OFF;
	rig_create(&r);
	seq_close(&r, seq_touched(&r, 1000), 0);
	CHECK_EQ(vmkv_cache_shrink(r.cache, 32 * MIB, &released), 0);
	CHECK_EQ(released, 0);
	CHECK_EQ(vmkv_cache_shrink(r.cache, 32 * MIB - 1, &released), 0);
	CHECK_EQ(released, 16 * MIB);
	CHECK_EQ(stats_of(&r).slab_bytes, 16 * MIB);
	CHECK_EQ(vmkv_cache_shrink(r.cache, UINT64_MAX, NULL), 0);
	CHECK_EQ(stats_of(&r).slab_bytes, 16 * MIB);
	rig_end(&r);
}

/* Warm memory stays where there is enough to give without it. */
static void shrink_takes_what_is_warm_last(void)
{
	uint64_t released = 77;
	struct rig r;
	vmkv_seq warm, other;

	rig_begin(&r);
	warm = seq_touched(&r, 100); /* warm in the first slab: a quarter of 64 MiB may be */
	other = seq_touched(&r, 1000);
	seq_close(&r, warm, 0);
	seq_close(&r, other, 0);
	CHECK_EQ(stats_of(&r).warm_bytes, mapped_by(100));
	CHECK_EQ(stats_of(&r).slab_bytes, 48 * MIB);
	CHECK_EQ(vmkv_cache_shrink(r.cache, 16 * MIB, &released), 0);
	CHECK_EQ(released, 32 * MIB);
	CHECK_EQ(stats_of(&r).warm_bytes, mapped_by(100));
	CHECK_EQ(vmkv_cache_shrink(r.cache, 0, &released), 0);
	CHECK_EQ(released, 16 * MIB);
	CHECK_EQ(stats_of(&r).warm_bytes, 0);
	rig_end(&r);
}

static void shrink_leaves_what_is_in_use(void)
{
	uint64_t released = 77;
	struct rig r;
	vmkv_seq open, retiring;

	rig_begin(&r);
	open = seq_touched(&r, 4);
	retiring = seq_touched(&r, 1000);
	seq_close(&r, retiring, 5);
	CHECK_EQ(vmkv_cache_shrink(r.cache, 0, &released), 0);
	CHECK_EQ(released, 0);
	CHECK_EQ(stats_of(&r).retiring_bytes, mapped_by(1000));
	retire(&r, 5);
	CHECK_EQ(vmkv_cache_shrink(r.cache, 0, &released), 0);
	CHECK(released >= 16 * MIB);
	CHECK_EQ(stats_of(&r).slab_bytes, 16 * MIB); /* that of the open one */
	CHECK_EQ(*words(span_of(&r, open, 0, 1, 0).address), 1);
	step(&r, open, 1000);
	rig_end(&r);
}

/* ---- set_budget ----------------------------------------------------------------------------- */

static void the_budget_can_be_raised(void)
{
	struct rig r;
	vmkv_seq seq;

	rig_prepare(&r, open_host("host"));
	r.options.budget_bytes = 8 * PAGE;
	rig_create(&r);
	seq = seq_of(&r, 16);
	CHECK_EQ(try_step(&r, seq, 17, 0), -ENOSPC);
	CHECK_EQ(vmkv_cache_set_budget(r.cache, 10 * PAGE), 0);
	CHECK_EQ(stats_of(&r).budget_bytes, 10 * PAGE);
	step(&r, seq, 20);
	CHECK_EQ(try_step(&r, seq, 21, 0), -ENOSPC);
	CHECK_EQ(vmkv_cache_set_budget(r.cache, 64 * MIB), 0);
	step(&r, seq, 1000);
	CHECK(stats_of(&r).slab_bytes <= 64 * MIB);
	rig_end(&r);
}

static void lowering_gives_back_at_once(void)
{
	struct rig r;

	rig_begin(&r);
	seq_close(&r, seq_touched(&r, 1000), 0); /* 31 MiB: too much to be kept warm */
	seq_close(&r, seq_touched(&r, 100), 0);
	CHECK_EQ(stats_of(&r).warm_bytes, mapped_by(100));
	CHECK_EQ(stats_of(&r).slab_bytes, 32 * MIB);
	CHECK_EQ(vmkv_cache_set_budget(r.cache, 4 * MIB), 0);
	CHECK_EQ(stats_of(&r).slab_bytes, 0);
	CHECK_EQ(held_bytes(r.device), 0);
	seq_touched(&r, 100);
	CHECK_EQ(stats_of(&r).slab_bytes, 4 * MIB);
	rig_end(&r);
}

/* Slabs can't be given back in part: what is in use stays, and no more is taken until enough is
 * gone. */
static void what_is_in_use_stays(void)
{
	struct rig r;
	vmkv_seq first, second;

	rig_prepare(&r, open_host("host"));
	r.options.warm_max_bytes = 64 * MIB;
	rig_create(&r);
	first = seq_touched(&r, 400);
	second = seq_touched(&r, 400);
	CHECK_EQ(stats_of(&r).slab_bytes, 32 * MIB);
	CHECK_EQ(vmkv_cache_set_budget(r.cache, mapped_by(500)), 0);
	CHECK_EQ(stats_of(&r).budget_bytes, mapped_by(500));
	CHECK_EQ(stats_of(&r).mapped_bytes, 2 * mapped_by(400));
	CHECK_EQ(*words(span_of(&r, first, 0, 0, 0).address + 399 * ROW), 1);
	CHECK_EQ(try_step(&r, first, 401, 0), -ENOSPC);
	step(&r, first, 400);
	seq_close(&r, second, 0);
	CHECK_EQ(stats_of(&r).warm_bytes, 0); /* over its budget, it keeps none */
	step(&r, first, 500);
	CHECK_EQ(try_step(&r, first, 501, 0), -ENOSPC);
	rig_end(&r);
}

static void budgets_are_checked(void)
{
	struct rig r;

	rig_begin(&r);
	CHECK_EQ(vmkv_cache_set_budget(r.cache, 2 * PAGE - 1), -EINVAL);
	CHECK_TEXT(&r, "a budget of 131071 bytes is less than one page for every span");
	CHECK_TEXT(&r, "2 spans x 65536 bytes = 131072");
	CHECK_EQ(stats_of(&r).budget_bytes, 64 * MIB);
	CHECK_EQ(vmkv_cache_set_budget(r.cache, 2 * PAGE), 0);
	rig_end(&r);
}

/* Raised by a page at a time, each with a slab of its own. */
static void a_budget_that_creeps_up(void)
{
	struct rig r;
	vmkv_seq seq;

	rig_prepare(&r, open_host("host"));
	r.options.budget_bytes = 2 * PAGE;
	rig_create(&r);
	seq = seq_open(&r);
	for (uint32_t pages = 2; pages <= 80; pages += 2) {
		CHECK_EQ(vmkv_cache_set_budget(r.cache, pages * PAGE), 0);
		step(&r, seq, pages / 2 * 4);
		CHECK_EQ(stats_of(&r).slab_bytes, pages * PAGE);
		CHECK_EQ(stats_of(&r).slabs, pages / 2);
	}
	touch(&r, seq);
	seq_close(&r, seq, 0);
	CHECK_EQ(vmkv_cache_shrink(r.cache, 0, NULL), 0);
	CHECK_EQ(stats_of(&r).slab_bytes, 0);
	CHECK_EQ(held_bytes(r.device), 0);
	rig_end(&r);
}

int main(void)
{
	RUN(shrink_returns_memory_to_the_system);
	RUN(shrink_keeps_what_it_is_told);
	RUN(shrink_takes_what_is_warm_last);
	RUN(shrink_leaves_what_is_in_use);
	RUN(the_budget_can_be_raised);
	RUN(lowering_gives_back_at_once);
	RUN(what_is_in_use_stays);
	RUN(budgets_are_checked);
	RUN(a_budget_that_creeps_up);
	return 0;
}
