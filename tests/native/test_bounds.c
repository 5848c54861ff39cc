/* SPDX-License-Identifier: MIT
 *
 * Bounds that are not one cache's alone: the kernel's on mappings, which all host devices of a process
 * share and slabs' aliases count on, and the numbers that there are for pages.
 */
#include "cache_fixture.h"

static int step_short(struct rig *r, vmkv_seq seq, uint32_t tokens, struct vmkv_shortage *ret)
{
	struct vmkv_step_result result = { .struct_size = sizeof(result) };
	int rc = try_steps(r, &seq, &tokens, 1, 0, &result);

	*ret = result.shortage;
	return rc;
}

/* As if the kernel left the process so many more mappings. */
static void leave(struct rig *r, uint64_t n)
{
	r->device->shared_max_mappings = atomic_load(r->device->shared_mappings) + n;
}

static void a_slabs_alias_counts(void)
{
	uint64_t before;
	struct rig r;

	rig_begin(&r);
	before = atomic_load(r.device->shared_mappings);
	step(&r, seq_open(&r), 4); /* two spans, one slab */
	CHECK_EQ(atomic_load(r.device->shared_mappings), before + 3);
	rig_end(&r);
}

static void a_slab_without_a_mapping_is_a_shortage_of_mappings(void)
{
	struct vmkv_shortage s;
	struct rig r;
	vmkv_seq seq;

	rig_begin(&r);
	seq = seq_open(&r);
	leave(&r, 0);
	CHECK_EQ(step_short(&r, seq, 4, &s), -ENOSPC);
	CHECK_EQ(s.kind, VMKV_SHORTAGE_MAPPINGS);
	CHECK_TEXT(&r, "vm.max_map_count");
	leave(&r, 3);
	retire(&r, 0); /* what the device refused is asked for again */
	step(&r, seq, 4);
	rig_end(&r);
}

static void devices_of_a_process_share_the_bound(void)
{
	struct vmkv_shortage s;
	struct rig a, b;
	vmkv_seq seq;

	rig_begin(&a);
	rig_begin(&b);
	seq = seq_open(&b);
	leave(&b, 3);
	step(&a, seq_open(&a), 4);
	CHECK_EQ(step_short(&b, seq, 4, &s), -ENOSPC);
	CHECK_EQ(s.kind, VMKV_SHORTAGE_MAPPINGS);
	rig_end(&a);
	retire(&b, 0);
	step(&b, seq, 4);
	rig_end(&b);
}

/* Slabs of 2^40 bytes in pages of 4 KiB: there are numbers for 15 of them, whatever they hold. A device
 * with little memory gives smaller and smaller ones; then it is a shortage like any other. */
static void slabs_that_cannot_be_numbered_are_a_shortage_of_bytes(void)
{
	struct vmkv_shortage s;
	struct rig r;
	vmkv_seq seq;
	int rc = 0;

	rig_prepare(&r, open_host("host?memory=1073737728"));
	r.options.page_bytes = 4 * KIB;
	r.options.slab_bytes = UINT64_C(1) << 40;
	r.options.budget_bytes = UINT64_C(1) << 42;
	r.options.max_tokens = 1 << 16;
	rig_create(&r);
	seq = seq_open(&r);
	for (uint32_t tokens = 500; rc == 0; tokens += 500)
		rc = step_short(&r, seq, tokens, &s);
	CHECK_EQ(rc, -ENOSPC);
	CHECK_EQ(s.kind, VMKV_SHORTAGE_BYTES);
	CHECK(s.missing > 0);
	CHECK_TEXT(&r, "the device has no more");
	rig_end(&r);
}

static void addresses_that_do_not_fit_say_what_would(void)
{
	struct rig r;

	rig_prepare(&r, open_host("host"));
	r.options.max_tokens = UINT32_MAX - 1;
	CHECK_EQ(rig_try_create(&r), -EOVERFLOW);
	CHECK_CONTAINS(r.text, "lower max_tokens, max_slots or slot_count");
	CHECK_EQ(vmkv_device_close(r.device), 0);
}

int main(void)
{
	RUN(a_slabs_alias_counts);
	RUN(a_slab_without_a_mapping_is_a_shortage_of_mappings);
	RUN(devices_of_a_process_share_the_bound);
	RUN(slabs_that_cannot_be_numbered_are_a_shortage_of_bytes);
	RUN(addresses_that_do_not_fit_say_what_would);
	return 0;
}
