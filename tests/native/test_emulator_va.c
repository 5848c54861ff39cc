/* SPDX-License-Identifier: MIT
 *
 * GEM_VA on the emulated kernel: each check with its errno, the order of the checks, and what the
 * four operations do to the list of mappings.
 */
#include "vm_fixture.h"

#define HIGH UINT64_C(0xffff800000000000)

static const char *kernel;
static struct card card;
static int fd;
static uint32_t bo; /* 2 MiB */

static uint64_t bottom(void)
{
	return strcmp(kernel, "6.1") ? 64 * KIB : 2 * MIB;
}

static uint64_t top(void)
{
	return (UINT64_C(1) << 48) - (strcmp(kernel, "6.1") ? 0x410000 : 2 * MIB);
}

static int map_at(uint64_t address, uint64_t bytes)
{
	return va_map(fd, bo, DELAY, address, 0, bytes);
}

/* ---- addresses ------------------------------------------------------------------------------- */

static void an_address_below_the_bottom_is_refused(void)
{
	CHECK_EQ(map_at(bottom() - PAGE, PAGE), -EINVAL);
	CHECK_EQ(map_at(0, PAGE), -EINVAL);
	CHECK_EQ(map_at(bottom(), PAGE), 0);
	CHECK_EQ(va_unmap(fd, bo, DELAY, bottom() - PAGE), -EINVAL);
	CHECK_EQ(va_unmap(fd, bo, DELAY, bottom()), 0);
}

static void an_address_in_the_hole_is_refused(void)
{
	CHECK_EQ(map_at(UINT64_C(0x800000000000), PAGE), -EINVAL);
	CHECK_EQ(map_at(HIGH - PAGE, PAGE), -EINVAL);
	CHECK_EQ(map_at(UINT64_C(0x7ffffffff000), PAGE), 0);
	CHECK_EQ(map_at(HIGH, PAGE), 0);
	CHECK_EQ(va_clear(fd, DELAY, UINT64_C(0x800000000000), PAGE), -EINVAL);
	CHECK_EQ(va_unmap(fd, bo, DELAY, HIGH), 0);
	CHECK_EQ(va_unmap(fd, bo, DELAY, UINT64_C(0x7ffffffff000)), 0);
}

static void a_high_address_is_masked_to_48_bits(void)
{
	CHECK_EQ(va_map(fd, bo, 0, HIGH + 16 * MIB, 0, PAGE), 0);
	CHECK_MAPPED(fd, HIGH + 16 * MIB, bo, 0);
	CHECK_EQ(walk(fd, HIGH + 16 * MIB).address, UINT64_C(0x800000000000) + 16 * MIB);
	CHECK_EQ(va_unmap(fd, bo, 0, HIGH + 16 * MIB), 0);
}

static void a_range_that_passes_the_top_is_refused_for_every_operation(void)
{
	uint64_t high_top = top() | UINT64_C(0xffff000000000000);

	CHECK_EQ(map_at(high_top - PAGE, 2 * PAGE), -EINVAL);
	CHECK_EQ(map_at(high_top - PAGE, PAGE), 0);
	CHECK_EQ(va_replace(fd, bo, DELAY, high_top, 0, PAGE), -EINVAL);
	CHECK_EQ(va_clear(fd, DELAY, high_top - PAGE, 2 * PAGE), -EINVAL);
	/* UNMAP ignores the size but for this. */
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_UNMAP, bo, DELAY, high_top - PAGE, 0, 2 * PAGE), -EINVAL);
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_UNMAP, bo, DELAY, high_top - PAGE, 0, PAGE), 0);
}

static void only_72_refuses_a_size_that_wraps_around(void)
{
	uint64_t wraps = UINT64_MAX - VA + PAGE + 1; /* VA + wraps == PAGE */
	bool checked = !strcmp(kernel, "7.2");

	CHECK_EQ(map_at(VA, PAGE), 0);
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_UNMAP, bo, DELAY, VA, 0, wraps), checked ? -EINVAL : 0);
	CHECK_EQ(va_unmap(fd, bo, DELAY, VA), checked ? 0 : -ENOENT);
	CHECK_EQ(map_at(VA, wraps), -EINVAL);
}

/* ---- flags, operations, handles -------------------------------------------------------------- */

static void unknown_flags_are_refused(void)
{
	uint64_t before = stats(&card).refused;

	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_MAP, bo, RW | 1u << 10, VA, 0, PAGE), -EINVAL);
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_CLEAR, 0, 1u << 31, VA, 0, PAGE), -EINVAL);
	CHECK_EQ(stats(&card).refused, before + 2);
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_MAP, bo,
	               DELAY | RW | AMDGPU_VM_PAGE_EXECUTABLE | AMDGPU_VM_MTYPE_MASK |
	                   AMDGPU_VM_PAGE_NOALLOC,
	               VA, 0, PAGE),
	         0);
	CHECK_EQ(va_unmap(fd, bo, DELAY, VA), 0);
}

static void prt_combines_only_with_delay(void)
{
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_MAP, 0, PRT | AMDGPU_VM_PAGE_READABLE, VA, 0, PAGE),
	         -EINVAL);
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_MAP, 0, PRT | AMDGPU_VM_MTYPE_NC, VA, 0, PAGE), -EINVAL);
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_MAP, 0, PRT, VA, 0, PAGE), 0);
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_MAP, 0, PRT | DELAY, VA + PAGE, 0, PAGE), 0);
	CHECK_EQ(va_clear(fd, 0, VA, 2 * PAGE), 0);
}

static void unknown_operations_are_refused(void)
{
	CHECK_EQ(va_op(fd, 0, bo, RW, VA, 0, PAGE), -EINVAL);
	CHECK_EQ(va_op(fd, 5, bo, RW, VA, 0, PAGE), -EINVAL);
	CHECK_EQ(va_op(fd, UINT32_MAX, bo, RW, VA, 0, PAGE), -EINVAL);
}

static void an_unknown_handle_is_enoent_but_for_clear_and_prt(void)
{
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_MAP, 999, RW, VA, 0, PAGE), -ENOENT);
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_UNMAP, 999, RW, VA, 0, PAGE), -ENOENT);
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_REPLACE, 0, RW, VA, 0, PAGE), -ENOENT);
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_CLEAR, 999, 0, VA, 0, PAGE), 0);
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_MAP, 999, PRT, VA, 0, PAGE), 0);
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_UNMAP, 999, PRT, VA, 0, PAGE), 0);
}

static void the_checks_come_in_the_kernels_order(void)
{
	/* Each call has this error and the next one's: the first counts, so all but the last
	 * EINVAL, and an unknown handle comes before what the operation finds wrong. */
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_MAP, 999, 1u << 31, 0, 0, PAGE), -EINVAL);
	CHECK_EQ(va_op(fd, 9, 999, RW, VA, 0, PAGE), -EINVAL);
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_MAP, 999, RW, VA + 1, 0, PAGE), -ENOENT);
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_MAP, bo, RW, VA + 1, 0, PAGE), -EINVAL);
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_UNMAP, 999, RW, top(), 0, PAGE), -EINVAL);
}

/* ---- the operations -------------------------------------------------------------------------- */

static void map_and_replace_want_whole_aligned_pages(void)
{
	for (uint32_t op = AMDGPU_VA_OP_MAP; op <= AMDGPU_VA_OP_REPLACE; op += 3) {
		CHECK_EQ(va_op(fd, op, bo, RW, VA + 512, 0, PAGE), -EINVAL);
		CHECK_EQ(va_op(fd, op, bo, RW, VA, 512, PAGE), -EINVAL);
		CHECK_EQ(va_op(fd, op, bo, RW, VA, 0, PAGE + 512), -EINVAL);
		CHECK_EQ(va_op(fd, op, bo, RW, VA, 0, 0), -EINVAL);
	}
	CHECK_UNMAPPED(fd, VA);
}

static void map_and_replace_stay_within_the_buffer(void)
{
	uint32_t odd = bo_create(fd, 5000, 0);

	for (uint32_t op = AMDGPU_VA_OP_MAP; op <= AMDGPU_VA_OP_REPLACE; op += 3) {
		CHECK_EQ(va_op(fd, op, odd, RW | DELAY, VA, 0, 3 * PAGE), -EINVAL);
		CHECK_EQ(va_op(fd, op, odd, RW | DELAY, VA, PAGE, 2 * PAGE), -EINVAL);
		CHECK_EQ(va_op(fd, op, odd, RW | DELAY, VA, -PAGE, 2 * PAGE), -EINVAL);
		CHECK_EQ(va_op(fd, op, odd, RW | DELAY, VA, 0, 2 * PAGE), 0); /* rounded to pages */
		CHECK_EQ(va_unmap(fd, odd, DELAY, VA), 0);
	}
	CHECK_EQ(bo_close(fd, odd), 0);
}

static void map_refuses_any_overlap(void)
{
	CHECK_EQ(map_at(VA + 2 * PAGE, 2 * PAGE), 0);
	CHECK_EQ(map_at(VA + 2 * PAGE, 2 * PAGE), -EINVAL);
	CHECK_EQ(map_at(VA + PAGE, 2 * PAGE), -EINVAL);
	CHECK_EQ(map_at(VA + 3 * PAGE, 4 * PAGE), -EINVAL);
	CHECK_EQ(map_at(VA, 16 * PAGE), -EINVAL);
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_MAP, 0, PRT, VA + 3 * PAGE, 0, PAGE), -EINVAL);
	CHECK_EQ(map_at(VA, 2 * PAGE), 0);
	CHECK_EQ(map_at(VA + 4 * PAGE, PAGE), 0);
	CHECK_EQ(stats(&card).mappings, 3);
	CHECK_EQ(va_clear(fd, 0, VA, 16 * PAGE), 0);
}

static void one_buffer_may_appear_at_many_addresses(void)
{
	for (uint64_t i = 0; i < 10; i++)
		CHECK_EQ(va_map(fd, bo, 0, VA + i * HUGE, 4 * PAGE, 2 * PAGE), 0);
	for (uint64_t i = 0; i < 10; i++)
		CHECK_MAPPED(fd, VA + i * HUGE + PAGE, bo, 5 * PAGE);
	CHECK_EQ(va_clear(fd, 0, VA, 10 * HUGE), 0);
	CHECK_EQ(stats(&card).mappings, 0);
}

static void unmap_needs_the_exact_start_page(void)
{
	CHECK_EQ(map_at(VA, 4 * PAGE), 0);
	CHECK_EQ(va_unmap(fd, bo, DELAY, VA + PAGE), -ENOENT);
	CHECK_EQ(va_unmap(fd, bo, DELAY, VA - PAGE), -ENOENT);
	CHECK_EQ(stats(&card).mappings, 1);
	CHECK_EQ(va_unmap(fd, bo, DELAY, VA), 0);
	CHECK_EQ(va_unmap(fd, bo, DELAY, VA), -ENOENT);
}

static void unmap_checks_no_alignment(void)
{
	CHECK_EQ(map_at(VA, 4 * PAGE), 0);
	CHECK_EQ(va_unmap(fd, bo, DELAY, VA + 4095), 0);
	CHECK_EQ(stats(&card).mappings, 0);
}

static void unmap_ignores_the_size(void)
{
	CHECK_EQ(map_at(VA, 4 * PAGE), 0);
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_UNMAP, bo, DELAY, VA, 0, 0), 0);
	CHECK_EQ(map_at(VA, 4 * PAGE), 0);
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_UNMAP, bo, DELAY, VA, 77, 12345), 0);
	CHECK_EQ(stats(&card).mappings, 0);
}

static void unmap_finds_only_its_own_buffers_mappings(void)
{
	uint32_t other = bo_create(fd, MIB, 0);

	CHECK_EQ(map_at(VA, PAGE), 0);
	CHECK_EQ(va_unmap(fd, other, DELAY, VA), -ENOENT);
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_UNMAP, bo, PRT, VA, 0, PAGE), -ENOENT);
	CHECK_EQ(va_unmap(fd, bo, DELAY, VA), 0);
	CHECK_EQ(bo_close(fd, other), 0);
}

static void clear_wants_whole_aligned_pages(void)
{
	CHECK_EQ(va_clear(fd, 0, VA + 512, PAGE), -EINVAL);
	CHECK_EQ(va_clear(fd, 0, VA, 512), -EINVAL);
	CHECK_EQ(va_clear(fd, 0, VA, 0), -EINVAL);
}

static void clear_of_an_empty_range_succeeds(void)
{
	CHECK_EQ(va_clear(fd, 0, VA, 64 * GIB), 0);
	CHECK_EQ(va_clear(fd, DELAY, VA, PAGE), 0);
}

static void clear_trims_and_splits_across_all_buffers(void)
{
	uint32_t other = bo_create(fd, MIB, ALWAYS);

	CHECK_EQ(va_map(fd, bo, 0, VA, 8 * PAGE, 8 * PAGE), 0);
	CHECK_EQ(va_map(fd, other, 0, VA + 8 * PAGE, 0, PAGE), 0);
	CHECK_EQ(va_map(fd, other, 0, VA + 9 * PAGE, 16 * PAGE, 8 * PAGE), 0);
	CHECK_EQ(va_clear(fd, 0, VA + 6 * PAGE, 5 * PAGE), 0);
	CHECK_EQ(stats(&card).mappings, 2);
	CHECK_MAPPED(fd, VA + 5 * PAGE, bo, 13 * PAGE);
	for (uint64_t i = 6; i < 11; i++)
		CHECK_UNMAPPED(fd, VA + i * PAGE);
	/* The right remainder begins elsewhere in its buffer, and at another address. */
	CHECK_EQ(va_unmap(fd, other, DELAY, VA + 9 * PAGE), -ENOENT);
	CHECK_EQ(va_unmap(fd, other, DELAY, VA + 11 * PAGE), 0);
	CHECK_EQ(va_unmap(fd, bo, DELAY, VA), 0);
	CHECK_EQ(bo_close(fd, other), 0);
}

static void clear_within_a_mapping_leaves_both_sides_with_their_offsets(void)
{
	CHECK_EQ(va_map(fd, bo, 0, VA, 4 * PAGE, 8 * PAGE), 0);
	CHECK_EQ(va_clear(fd, 0, VA + 2 * PAGE, 3 * PAGE), 0);
	CHECK_EQ(stats(&card).mappings, 2);
	/* Another MAP of the buffer writes what was split. */
	CHECK_EQ(va_map(fd, bo, 0, VA + HUGE, 0, PAGE), 0);
	CHECK_MAPPED(fd, VA + PAGE, bo, 5 * PAGE);
	CHECK_UNMAPPED(fd, VA + 2 * PAGE);
	CHECK_UNMAPPED(fd, VA + 4 * PAGE);
	CHECK_MAPPED(fd, VA + 5 * PAGE, bo, 9 * PAGE);
	CHECK_MAPPED(fd, VA + 7 * PAGE, bo, 11 * PAGE);
	CHECK_EQ(va_clear(fd, 0, VA, 2 * HUGE), 0);
}

static void replace_is_clear_and_map(void)
{
	uint32_t other = bo_create(fd, MIB, 0);

	CHECK_EQ(va_map(fd, bo, 0, VA, 0, 8 * PAGE), 0);
	CHECK_EQ(va_replace(fd, other, 0, VA + 2 * PAGE, 0, 2 * PAGE), 0);
	CHECK_EQ(stats(&card).mappings, 3);
	CHECK_MAPPED(fd, VA + 3 * PAGE, other, PAGE);
	CHECK_EQ(va_replace(fd, bo, 0, VA, 0, 8 * PAGE), 0);
	CHECK_EQ(stats(&card).mappings, 1);
	CHECK_MAPPED(fd, VA + 3 * PAGE, bo, 3 * PAGE);
	CHECK_EQ(va_replace(fd, bo, 0, VA + HUGE, 0, PAGE), 0); /* where nothing was */
	CHECK_MAPPED(fd, VA + HUGE, bo, 0);
	CHECK_EQ(va_clear(fd, 0, VA, 2 * HUGE), 0);
	CHECK_EQ(bo_close(fd, other), 0);
}

static void a_failed_replace_clears_nothing(void)
{
	CHECK_EQ(va_map(fd, bo, 0, VA, 0, PAGE), 0);
	CHECK_EQ(va_replace(fd, bo, 0, VA, HUGE, PAGE), -EINVAL);
	CHECK_MAPPED(fd, VA, bo, 0);
	CHECK_EQ(va_unmap(fd, bo, 0, VA), 0);
}

static void two_files_have_two_address_spaces(void)
{
	int second;
	uint32_t other;

	CHECK_EQ(vmkv_emulator_open(card.gpu, &second), 0);
	other = bo_create(second, MIB, 0);
	CHECK_EQ(va_map(fd, bo, 0, VA, 0, PAGE), 0);
	CHECK_UNMAPPED(second, VA);
	CHECK_EQ(va_map(second, other, 0, VA, 8 * PAGE, PAGE), 0);
	CHECK_MAPPED(second, VA, other, 8 * PAGE);
	CHECK_MAPPED(fd, VA, bo, 0);
	CHECK_EQ(vmkv_emulator_close(second), 0);
	CHECK_MAPPED(fd, VA, bo, 0);
	CHECK_EQ(va_unmap(fd, bo, 0, VA), 0);
}

static int vm_ioctl(uint32_t op, uint32_t flags)
{
	union drm_amdgpu_vm args = { .in = { .op = op, .flags = flags } };

	return call(fd, DRM_IOCTL_AMDGPU_VM, &args);
}

static void the_vm_ioctl_reserves_vmids_and_refuses_the_rest(void)
{
	uint64_t before = stats(&card).refused;

	CHECK_EQ(vm_ioctl(AMDGPU_VM_OP_RESERVE_VMID, 0), 0);
	CHECK_EQ(vm_ioctl(AMDGPU_VM_OP_UNRESERVE_VMID, 0), 0);
	CHECK_EQ(vm_ioctl(AMDGPU_VM_OP_RESERVE_VMID, 1), -EINVAL);
	CHECK_EQ(vm_ioctl(3, 0), -EINVAL);
	CHECK_EQ(stats(&card).refused, before + 2);
}

static void a_vmid_is_reserved_for_one_file(void)
{
	static const int errors[] = { -EINVAL, 0, -ENOENT };

	for (int i = 0; i < 3; i++) {
		struct card other = card_open(all_kernels[i], "");
		union drm_amdgpu_vm args = { .in = { .op = AMDGPU_VM_OP_RESERVE_VMID } };
		int second;

		CHECK_EQ(vmkv_emulator_open(other.gpu, &second), 0);
		CHECK_EQ(call(second, DRM_IOCTL_AMDGPU_VM, &args), 0);
		args.in.op = AMDGPU_VM_OP_RESERVE_VMID;
		CHECK_EQ(call(second, DRM_IOCTL_AMDGPU_VM, &args), 0);
		CHECK_EQ(call(other.fd, DRM_IOCTL_AMDGPU_VM, &args), errors[i]);
		CHECK_EQ(vmkv_emulator_close(second), 0);
		CHECK_EQ(call(other.fd, DRM_IOCTL_AMDGPU_VM, &args), 0);
		card_close(&other);
	}
}

static void there_are_no_user_queues(void)
{
	FOR_EACH_KERNEL(kernel) {
		struct card other = card_open(kernel, "");
		uint64_t argument[16] = { 0 };

		for (uint32_t number = 0x56; number <= 0x58; number++)
			CHECK_EQ(call(other.fd, _IOWR('d', number, argument), argument),
			         strcmp(kernel, "7.2") ? -EINVAL : -524);
		CHECK_EQ(stats(&other).refused, strcmp(kernel, "7.2") ? 3 : 0);
		card_close(&other);
	}
}

/* Against a plain array of pages: MAP, UNMAP, CLEAR and REPLACE at random, each page's place told
 * right after a submission has written all. */
static void random_operations_match_a_plain_array(void)
{
	enum { PAGES = 64, STEPS = 400 };
	int place[PAGES]; /* page of the buffer, or -1 */
	uint64_t random = 20261130, at = VA + GIB; /* where no test left stale entries */

	fprintf(stderr, "seed %llu\n", (unsigned long long)random);
	memset(place, -1, sizeof(place));
	for (int step = 0; step < STEPS; step++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		uint64_t first = (random >> 33) % PAGES, n = 1 + (random >> 40) % (PAGES - first);
		uint64_t offset = (random >> 50) % (512 - n), kind = (random >> 60) % 3;
		bool empty = true;

		for (uint64_t i = first; i < first + n; i++)
			empty = empty && place[i] < 0;
		if (kind == 0)
			CHECK_EQ(va_map(fd, bo, step & 1, at + first * PAGE, offset * PAGE,
			                n * PAGE),
			         empty ? 0 : -EINVAL);
		else if (kind == 1)
			CHECK_EQ(va_replace(fd, bo, step & 1, at + first * PAGE, offset * PAGE,
			                    n * PAGE),
			         0);
		else
			CHECK_EQ(va_clear(fd, step & 1, at + first * PAGE, n * PAGE), 0);
		for (uint64_t i = first; i < first + n && (kind || empty); i++)
			place[i] = kind == 2 ? -1 : (int)(offset + i - first);
		if (step % 8)
			continue;
		CHECK_EQ(cs_nop(&card, &bo, 1), 0);
		settle(fd);
		for (int i = 0; i < PAGES; i++) {
			struct vmkv_emulator_entry entry = walk_now(fd, at + i * PAGE);

			CHECK_EQ(entry.valid, place[i] >= 0);
			if (entry.valid)
				CHECK_EQ(entry.offset, place[i] * PAGE);
		}
	}
	CHECK_EQ(va_clear(fd, 0, at, PAGES * PAGE), 0);
}

static void run_all(void)
{
	RUN(an_address_below_the_bottom_is_refused);
	RUN(an_address_in_the_hole_is_refused);
	RUN(a_high_address_is_masked_to_48_bits);
	RUN(a_range_that_passes_the_top_is_refused_for_every_operation);
	RUN(only_72_refuses_a_size_that_wraps_around);
	RUN(unknown_flags_are_refused);
	RUN(prt_combines_only_with_delay);
	RUN(unknown_operations_are_refused);
	RUN(an_unknown_handle_is_enoent_but_for_clear_and_prt);
	RUN(the_checks_come_in_the_kernels_order);
	RUN(map_and_replace_want_whole_aligned_pages);
	RUN(map_and_replace_stay_within_the_buffer);
	RUN(map_refuses_any_overlap);
	RUN(one_buffer_may_appear_at_many_addresses);
	RUN(unmap_needs_the_exact_start_page);
	RUN(unmap_checks_no_alignment);
	RUN(unmap_ignores_the_size);
	RUN(unmap_finds_only_its_own_buffers_mappings);
	RUN(clear_wants_whole_aligned_pages);
	RUN(clear_of_an_empty_range_succeeds);
	RUN(clear_trims_and_splits_across_all_buffers);
	RUN(clear_within_a_mapping_leaves_both_sides_with_their_offsets);
	RUN(replace_is_clear_and_map);
	RUN(a_failed_replace_clears_nothing);
	RUN(two_files_have_two_address_spaces);
	RUN(the_vm_ioctl_reserves_vmids_and_refuses_the_rest);
	RUN(a_vmid_is_reserved_for_one_file);
	RUN(there_are_no_user_queues);
	RUN(random_operations_match_a_plain_array);
}

int main(void)
{
	FOR_EACH_KERNEL(name) {
		kernel = name;
		for (int cpu = 0; cpu < 2; cpu++) {
			card = card_open(kernel, cpu ? "&vm_update=cpu" : "");
			fd = card.fd;
			bo = bo_create(fd, HUGE, 0);
			run_all();
			card_close(&card);
		}
	}
	return 0;
}
