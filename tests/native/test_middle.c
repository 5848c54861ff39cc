/* SPDX-License-Identifier: MIT
 *
 * Calls that come in the middle of another one's driver call, when the cache's lock is not held. A
 * hook in the device makes them, mostly in the same thread: so the order is always the same.
 */
#include <pthread.h>
#include <unistd.h>

#include "cache_fixture.h"

/* ---- a device that calls back --------------------------------------------------------------- */

static const struct vmkv_device_ops *plain;
static struct vmkv_device_ops hooked;
static void (*hook)(struct rig *r);
static struct rig *hook_rig;
static unsigned hook_calls;

static void call_hook(void)
{
	void (*once)(struct rig *) = hook;

	hook = NULL;
	if (once) {
		hook_calls++;
		once(hook_rig);
	}
}

static int hooked_map(struct vmkv_device *device, const struct vmkv_map *maps, size_t n,
                      size_t *issued, uint64_t *point)
{
	call_hook();
	return plain->map(device, maps, n, issued, point);
}

static int hooked_unmap(struct vmkv_device *device, const struct vmkv_unmap *unmaps, size_t n,
                        size_t *issued, uint64_t *point)
{
	call_hook();
	return plain->unmap(device, unmaps, n, issued, point);
}

static int hooked_fill(struct vmkv_device *device, const struct vmkv_fill *fills, size_t n,
                       uint64_t *point)
{
	call_hook();
	return plain->fill(device, fills, n, point);
}

static int hooked_slab_create(struct vmkv_device *device, uint64_t bytes, struct vmkv_slab **ret)
{
	call_hook();
	return plain->slab_create(device, bytes, ret);
}

static void rig_hooked(struct rig *r)
{
	rig_prepare(r, open_host("host"));
	plain = r->device->ops;
	hooked = *plain;
	r->device->ops = &hooked;
	hook_rig = r;
	hook = NULL;
	hook_calls = 0;
}

/* The sequences that a hook works on. */
static vmkv_seq seqs[3];

/* ---- in the middle of a step ---------------------------------------------------------------- */

static void check_busy(struct rig *r, vmkv_seq seq)
{
	struct vmkv_span span = { .struct_size = sizeof(span) };
	size_t n;

	CHECK_EQ(try_step(r, seq, 1000, 0), -EBUSY);
	CHECK_TEXT(r, "another call is at work on it");
	CHECK_EQ(vmkv_seq_close(r->cache, seq, 0), -EBUSY);
	CHECK_EQ(vmkv_span(r->cache, seq, 0, 0, 0, &span), -EBUSY);
	CHECK_EQ(vmkv_seq_mappings(r->cache, seq, 0, 0, 0, NULL, 0, &n), -EBUSY);
}

static void use_what_is_being_mapped(struct rig *r)
{
	struct vmkv_stats s = { .struct_size = sizeof(s) };
	uint32_t tokens[2] = { 5, 40 };

	check_busy(r, seqs[0]);
	check_busy(r, seqs[1]);
	CHECK_EQ(try_steps(r, (const vmkv_seq[]){ seqs[2], seqs[1] }, tokens, 2, 0, NULL), -EBUSY);
	CHECK_EQ(vmkv_ready_tokens(r->cache)[0], 4);
	CHECK_EQ(vmkv_ready_tokens(r->cache)[1], 0);
	CHECK_EQ(vmkv_cache_stats(r->cache, &s), 0);
	CHECK_EQ(s.held_bytes, mapped_by(100) + mapped_by(20) - mapped_by(4));
	CHECK_EQ(s.slab_bytes, s.mapped_bytes + s.held_bytes + s.free_clean_bytes);
	CHECK_EQ(s.steps, 1);
	/* Another one can do what it likes. */
	step(r, seqs[2], 5);
	CHECK_EQ(span_of(r, seqs[2], 0, 0, 0).live_tokens, 5);
	seq_close(r, seqs[2], 0);
	seqs[2] = seq_open(r);
	CHECK_EQ(span_of(r, seqs[2], 0, 0, 0).slot, 2);
}

static void a_sequence_in_a_step_is_busy(void)
{
	struct rig r;

	rig_hooked(&r);
	rig_create(&r);
	hooked.map = hooked_map;
	seqs[0] = seq_of(&r, 4);
	seqs[1] = seq_open(&r);
	seqs[2] = seq_open(&r);
	hook = use_what_is_being_mapped;
	CHECK_EQ(try_steps(&r, seqs, (const uint32_t[]){ 100, 20 }, 2, 0, NULL), 0);
	CHECK_EQ(hook_calls, 1);
	CHECK_EQ(span_of(&r, seqs[0], 0, 0, 0).live_tokens, 100);
	CHECK_EQ(span_of(&r, seqs[1], 0, 0, 0).live_tokens, 20);
	seq_close(&r, seqs[0], 0); /* busy no more */
	rig_end(&r);
}

static void take_back_what_there_is(struct rig *r)
{
	uint64_t released = 77;

	CHECK_EQ(vmkv_cache_shrink(r->cache, 0, &released), 0);
	CHECK_EQ(released, 0); /* the slab has held pages */
	CHECK_EQ(vmkv_cache_set_budget(r->cache, 2 * PAGE), 0);
	retire(r, 1000);
}

static void held_pages_are_nobody_elses(void)
{
	struct rig r;

	rig_hooked(&r);
	rig_create(&r);
	hooked.map = hooked_map;
	seqs[0] = seq_open(&r);
	hook = take_back_what_there_is;
	step(&r, seqs[0], 100);
	CHECK_EQ(hook_calls, 1);
	CHECK_EQ(stats_of(&r).mapped_bytes, mapped_by(100));
	CHECK_EQ(stats_of(&r).slabs, 1);
	CHECK_EQ(stats_of(&r).budget_bytes, 2 * PAGE);
	CHECK_EQ(*words(span_of(&r, seqs[0], 0, 1, 0).address + 99 * ROW), 0);
	rig_end(&r);
}

/* Rows and pieces of a page, a window of 1: all but the last token of a former length go. */
static void window_rig(struct rig *r)
{
	rig_hooked(r);
	model_begin(&r->m);
	model_plain(&r->m, VMKV_POLICY_WINDOW, 1, PAGE)->window_tokens = 1;
	r->options.window_mapping_max_bytes = PAGE;
	rig_create(r);
	hooked.map = hooked_map;
}

static void trim_another(struct rig *r)
{
	step_until(r, seqs[1], 101, 9);
}

/* Each has made sure of room for its 99 pieces before either puts them there. */
static void two_windows_trim_at_once(void)
{
	struct rig r;

	window_rig(&r);
	seqs[0] = seq_of(&r, 100);
	seqs[1] = seq_of(&r, 100);
	hook = trim_another;
	step_until(&r, seqs[0], 101, 9);
	CHECK_EQ(hook_calls, 1);
	CHECK_EQ(stats_of(&r).retiring_bytes, 2 * 99 * PAGE);
	CHECK_EQ(stats_of(&r).mapped_bytes, 2 * 2 * PAGE);
	retire(&r, 9);
	CHECK_EQ(stats_of(&r).retiring_bytes, 0);
	rig_end(&r);
}

static void open_and_close_many(struct rig *r)
{
	for (int i = 0; i < 2; i++)
		seq_close(r, seqs[1 + i], 9);
	for (int i = 0; i < 3; i++)
		seq_close(r, seq_open(r), 9);
}

/* What is closed in the middle has its room too. */
static void a_window_trims_while_others_close(void)
{
	struct rig r;

	window_rig(&r);
	for (int i = 0; i < 3; i++)
		seqs[i] = seq_of(&r, 100);
	hook = open_and_close_many;
	step_until(&r, seqs[0], 101, 9);
	CHECK_EQ(hook_calls, 1);
	CHECK_EQ(stats_of(&r).retiring_bytes, (99 + 200) * PAGE);
	retire(&r, 9);
	CHECK_EQ(stats_of(&r).retiring_bytes, 0);
	rig_end(&r);
}

/* ---- in the middle of a new slab ------------------------------------------------------------ */

static void step_another(struct rig *r)
{
	step(r, seqs[1], 64);
	CHECK(stats_of(r).slab_bytes <= 32 * MIB);
}

/* Both need a slab of 16 MiB, and there is budget for 2. */
static void two_need_a_slab_at_once(void)
{
	struct rig r;

	rig_hooked(&r);
	r.options.budget_bytes = 32 * MIB;
	rig_create(&r);
	hooked.slab_create = hooked_slab_create;
	seqs[0] = seq_open(&r);
	seqs[1] = seq_open(&r);
	hook = step_another;
	step(&r, seqs[0], 64);
	CHECK_EQ(hook_calls, 1);
	CHECK_EQ(stats_of(&r).slab_bytes, 32 * MIB);
	CHECK_EQ(stats_of(&r).slab_bytes_peak, 32 * MIB);
	CHECK_EQ(stats_of(&r).mapped_bytes, 2 * mapped_by(64));
	rig_end(&r);
}

static pthread_t waiter;

static void *step_in_a_thread(void *rig)
{
	step(rig, seqs[1], 64);
	return NULL;
}

/* Long enough for the other to find that the only slab is being created. */
static void start_a_thread(struct rig *r)
{
	CHECK_EQ(pthread_create(&waiter, NULL, step_in_a_thread, r), 0);
	usleep(50000);
}

/* Who finds the memory that he needs on its way waits for it, rather than to be short. */
static void a_step_waits_for_anothers_slab(void)
{
	struct rig r;

	rig_hooked(&r);
	r.options.budget_bytes = 16 * MIB;
	rig_create(&r);
	hooked.slab_create = hooked_slab_create;
	seqs[0] = seq_open(&r);
	seqs[1] = seq_open(&r);
	hook = start_a_thread;
	step(&r, seqs[0], 64);
	CHECK_EQ(pthread_join(waiter, NULL), 0);
	CHECK_EQ(hook_calls, 1);
	CHECK_EQ(stats_of(&r).shortages, 0);
	CHECK_EQ(stats_of(&r).mapped_bytes, 2 * mapped_by(64));
	rig_end(&r);
}

/* ---- in the middle of the way back ---------------------------------------------------------- */

static void open_what_is_being_unmapped(struct rig *r)
{
	struct vmkv_open_options options = { .struct_size = sizeof(options),
		                             .prefer = VMKV_PREFER_SLOT };
	vmkv_seq seq = 0;

	CHECK_EQ(stats_of(r).unmapping_bytes, mapped_by(300));
	CHECK_EQ(vmkv_seq_open(r->cache, &options, &seq), -EBUSY);
	CHECK_EQ(span_of(r, seq_of(r, 300), 0, 0, 0).slot, 1);
	retire(r, 5); /* this one has nothing to do */
	CHECK_EQ(stats_of(r).unmapping_bytes, mapped_by(300));
}

static void a_slot_being_unmapped_is_not_free(void)
{
	struct rig r;

	rig_hooked(&r);
	r.options.warm_max_bytes = VMKV_WARM_OFF;
	rig_create(&r);
	hooked.unmap = hooked_unmap;
	seqs[0] = seq_of(&r, 300);
	hook = open_what_is_being_unmapped;
	seq_close(&r, seqs[0], 0);
	CHECK_EQ(hook_calls, 1);
	CHECK_EQ(stats_of(&r).unmapping_bytes, 0);
	CHECK_EQ(span_of(&r, seq_open(&r), 0, 0, 0).slot, 0);
	rig_end(&r);
}

static void want_what_is_being_zeroed(struct rig *r)
{
	struct vmkv_open_options options = { .struct_size = sizeof(options),
		                             .prefer = VMKV_PREFER_SLOT };
	vmkv_seq seq = 0;

	CHECK_EQ(vmkv_seq_open(r->cache, &options, &seq), -EBUSY);
	CHECK_EQ(vmkv_cache_shrink(r->cache, 0, NULL), 0);
	CHECK_EQ(stats_of(r).slabs, 1);
	CHECK_EQ(stats_of(r).warm_bytes, 0);
}

static void a_slot_being_warmed_is_not_free(void)
{
	struct rig r;

	rig_hooked(&r);
	rig_create(&r);
	hooked.fill = hooked_fill;
	seqs[0] = seq_of(&r, 100);
	hook = want_what_is_being_zeroed;
	seq_close(&r, seqs[0], 0);
	CHECK_EQ(hook_calls, 1);
	CHECK_EQ(stats_of(&r).warm_bytes, mapped_by(100));
	CHECK_EQ(span_of(&r, seq_open(&r), 0, 0, 0).slot, 0);
	rig_end(&r);
}

/* Others that close meanwhile count the memory that is on its way to being warm. */
static void close_another(struct rig *r)
{
	seq_close(r, seqs[1], 0);
}

static void warming_memory_counts_as_warm(void)
{
	struct rig r;

	rig_hooked(&r);
	r.options.warm_max_bytes = mapped_by(150);
	rig_create(&r);
	hooked.fill = hooked_fill;
	seqs[0] = seq_of(&r, 100);
	seqs[1] = seq_of(&r, 100);
	hook = close_another;
	seq_close(&r, seqs[0], 0);
	CHECK_EQ(hook_calls, 1);
	CHECK_EQ(stats_of(&r).warm_bytes, mapped_by(100));
	rig_end(&r);
}

int main(void)
{
	RUN(a_sequence_in_a_step_is_busy);
	RUN(held_pages_are_nobody_elses);
	RUN(two_windows_trim_at_once);
	RUN(a_window_trims_while_others_close);
	RUN(two_need_a_slab_at_once);
	RUN(a_step_waits_for_anothers_slab);
	RUN(a_slot_being_unmapped_is_not_free);
	RUN(a_slot_being_warmed_is_not_free);
	RUN(warming_memory_counts_as_warm);
	return 0;
}
