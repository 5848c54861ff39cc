/* SPDX-License-Identifier: MIT
 *
 * The emulated card's page tables: fragments, huge pages, the tables' own memory, accesses by
 * address with their faults.
 */
#include "vm_fixture.h"

static const char *kernel;
static struct card card;
static int fd;

static uint64_t table_bytes(void)
{
	settle(fd);
	return stats(&card).page_table_bytes;
}

/* ---- entries --------------------------------------------------------------------------------- */

static void an_entry_carries_the_permissions_of_its_mapping(void)
{
	static const uint32_t flags[] = { 0, AMDGPU_VM_PAGE_READABLE, RW, AMDGPU_VM_PAGE_EXECUTABLE,
		                          RW | AMDGPU_VM_PAGE_EXECUTABLE };
	uint32_t bo = bo_create(fd, HUGE, 0);

	for (uint32_t i = 0; i < 5; i++) {
		struct vmkv_emulator_entry entry;

		CHECK_EQ(va_op(fd, AMDGPU_VA_OP_MAP, bo, flags[i], VA + i * PAGE, i * PAGE, PAGE),
		         0);
		entry = walk(fd, VA + i * PAGE);
		CHECK_EQ(entry.valid, 1);
		CHECK_EQ(entry.prt, 0);
		CHECK_EQ(entry.readable, !!(flags[i] & AMDGPU_VM_PAGE_READABLE));
		CHECK_EQ(entry.writable, !!(flags[i] & AMDGPU_VM_PAGE_WRITEABLE));
		CHECK_EQ(entry.executable, !!(flags[i] & AMDGPU_VM_PAGE_EXECUTABLE));
	}
	CHECK_EQ(bo_close(fd, bo), 0);
}

static void vram_and_gtt_have_physical_ranges_of_their_own(void)
{
	uint32_t vram = bo_create(fd, HUGE, 0), gtt = bo_create_in(fd, HUGE, GTT, 0);

	CHECK_EQ(va_map(fd, vram, 0, VA, 0, HUGE), 0);
	CHECK_EQ(va_map(fd, gtt, 0, VA + HUGE, 0, HUGE), 0);
	CHECK(walk(fd, VA).physical < GIB);
	CHECK(walk(fd, VA + HUGE).physical >= GIB);
	CHECK_MAPPED(fd, VA + HUGE + 5 * PAGE, gtt, 5 * PAGE);
	CHECK_EQ(bo_close(fd, vram), 0);
	CHECK_EQ(bo_close(fd, gtt), 0);
}

static void prt_entries_are_not_valid(void)
{
	struct vmkv_emulator_entry entry;

	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_MAP, 0, PRT, VA, 0, HUGE), 0);
	entry = walk(fd, VA + 7 * PAGE);
	CHECK_EQ(entry.prt, 1);
	CHECK_EQ(entry.valid, 0);
	CHECK_EQ(entry.handle, 0);
	CHECK_EQ(va_clear(fd, 0, VA, HUGE), 0);
	CHECK_EQ(walk(fd, VA).prt, 0);
}

/* ---- fragments ------------------------------------------------------------------------------- */

static void a_fragment_is_bounded_by_address_and_by_what_remains(void)
{
	uint32_t bo = bo_create(fd, HUGE, 0);

	CHECK_EQ(va_map(fd, bo, 0, VA + 16 * PAGE, 16 * PAGE, 16 * PAGE), 0);
	CHECK_EQ(walk(fd, VA + 16 * PAGE).fragment, 4);
	CHECK_EQ(walk(fd, VA + 31 * PAGE).fragment, 4);
	/* From page 33 on: 1, 2, 4, 8, 16 pages, and 1 that remains. */
	CHECK_EQ(va_map(fd, bo, 0, VA + 33 * PAGE, 33 * PAGE, 32 * PAGE), 0);
	CHECK_EQ(walk(fd, VA + 33 * PAGE).fragment, 0);
	CHECK_EQ(walk(fd, VA + 34 * PAGE).fragment, 1);
	CHECK_EQ(walk(fd, VA + 36 * PAGE).fragment, 2);
	CHECK_EQ(walk(fd, VA + 40 * PAGE).fragment, 3);
	CHECK_EQ(walk(fd, VA + 48 * PAGE).fragment, 4);
	CHECK_EQ(walk(fd, VA + 64 * PAGE).fragment, 0);
	CHECK_MAPPED(fd, VA + 64 * PAGE, bo, 64 * PAGE);
	CHECK_EQ(bo_close(fd, bo), 0);
}

static void physical_alignment_does_not_matter_for_fragments(void)
{
	uint32_t bo = bo_create(fd, HUGE, 0);

	CHECK_EQ(va_map(fd, bo, 0, VA, PAGE, 16 * PAGE), 0);
	CHECK_EQ(walk(fd, VA).fragment, 4);
	CHECK(walk(fd, VA).physical & (16 * PAGE - 1));
	CHECK_EQ(bo_close(fd, bo), 0);
}

static void a_fragment_stays_within_one_block(void)
{
	/* 24 KiB are no power of two: blocks of 16 and 8, or smaller ones. */
	uint32_t bo = bo_create(fd, 6 * PAGE, 0);
	uint64_t end;

	CHECK_EQ(va_map(fd, bo, 0, VA, 0, 6 * PAGE), 0);
	for (uint64_t i = 0; i < 6; i++) {
		struct vmkv_emulator_entry entry = walk(fd, VA + i * PAGE);

		CHECK(entry.fragment <= 2);
		end = (i | ((UINT64_C(1) << entry.fragment) - 1)) + 1;
		for (uint64_t j = i; j < end; j++)
			CHECK_EQ(walk(fd, VA + j * PAGE).physical, entry.physical + (j - i) * PAGE);
	}
	CHECK_EQ(bo_close(fd, bo), 0);
}

static void two_mib_pieces_that_are_aligned_are_one_directory_entry(void)
{
	uint32_t bo = bo_create(fd, 4 * HUGE, 0);
	uint64_t before;
	struct vmkv_emulator_entry entry;

	CHECK_EQ(va_map(fd, bo, 0, VA, HUGE, HUGE), 0);
	before = table_bytes();
	entry = walk(fd, VA + MIB + PAGE);
	CHECK_EQ(entry.bytes, HUGE);
	CHECK_EQ(entry.address, VA);
	CHECK_EQ(entry.fragment, 9);
	CHECK_MAPPED(fd, VA + MIB + PAGE, bo, HUGE + MIB + PAGE);
	CHECK_EQ(va_map(fd, bo, 0, VA + HUGE, 0, HUGE), 0);
	CHECK_EQ(table_bytes(), before); /* no table of pages is needed */
	CHECK_EQ(va_map(fd, bo, 0, VA + 2 * HUGE, 0, 64 * KIB), 0);
	CHECK_EQ(table_bytes(), before + PAGE);
	CHECK_EQ(walk(fd, VA + 2 * HUGE).bytes, PAGE);
	CHECK_EQ(walk(fd, VA + 2 * HUGE).fragment, 4);
	CHECK_EQ(bo_close(fd, bo), 0);
}

static void a_whole_buffer_of_two_mib_pieces_needs_no_tables_of_pages(void)
{
	uint32_t bo = bo_create(fd, 64 * MIB, 0);
	uint64_t before;

	CHECK_EQ(va_map(fd, bo, 0, VA, 0, HUGE), 0);
	before = table_bytes();
	CHECK_EQ(va_map(fd, bo, 0, VA + 64 * MIB, 0, 64 * MIB), 0);
	CHECK_EQ(table_bytes(), before);
	for (uint64_t at = 0; at < 64 * MIB; at += HUGE) {
		CHECK_EQ(walk(fd, VA + 64 * MIB + at).bytes, HUGE);
		CHECK(walk(fd, VA + 64 * MIB + at).fragment >= 9);
		CHECK_MAPPED(fd, VA + 64 * MIB + at, bo, at);
	}
	CHECK_EQ(bo_close(fd, bo), 0);
}

static void a_misaligned_two_mib_piece_needs_tables_of_pages(void)
{
	uint32_t bo = bo_create(fd, 2 * HUGE, 0);

	CHECK_EQ(va_map(fd, bo, 0, VA + 64 * KIB, 0, HUGE), 0);
	CHECK_EQ(walk(fd, VA + MIB).bytes, PAGE);
	CHECK_MAPPED(fd, VA + HUGE, bo, HUGE - 64 * KIB);
	CHECK_EQ(bo_close(fd, bo), 0);
	CHECK_UNMAPPED(fd, VA + HUGE);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void a_huge_entry_over_a_table_frees_it(void)
{
	uint32_t bo = bo_create(fd, HUGE, 0);
	uint64_t before;

	CHECK_EQ(va_map(fd, bo, 0, VA, 0, HUGE), 0);
	CHECK_EQ(va_unmap(fd, bo, 0, VA), 0);
	before = table_bytes();
	CHECK_EQ(va_map(fd, bo, 0, VA, 0, 64 * KIB), 0);
	CHECK_EQ(table_bytes(), before + PAGE);
	CHECK_EQ(va_unmap(fd, bo, 0, VA), 0);
	CHECK_EQ(table_bytes(), before + PAGE); /* a partial clear keeps the table */
	CHECK_EQ(va_map(fd, bo, 0, VA, 0, HUGE), 0);
	CHECK_EQ(table_bytes(), before);
	CHECK_MAPPED(fd, VA + 8 * PAGE, bo, 8 * PAGE);
	CHECK_EQ(bo_close(fd, bo), 0);
}

static void a_clear_of_all_that_a_table_covers_frees_it(void)
{
	uint32_t bo = bo_create(fd, 2 * HUGE, 0);
	uint64_t before;

	CHECK_EQ(va_map(fd, bo, 0, VA, 0, 2 * HUGE), 0);
	before = table_bytes();
	CHECK_EQ(va_clear(fd, 0, VA + HUGE, HUGE), 0);
	CHECK_EQ(table_bytes(), before);
	CHECK_EQ(va_clear(fd, 0, VA, 64 * KIB), 0);
	CHECK_EQ(table_bytes(), before + PAGE);
	CHECK_EQ(va_map(fd, bo, 0, VA, 0, 64 * KIB), 0);
	CHECK_EQ(va_clear(fd, 0, VA, 4 * HUGE), 0); /* two mappings: freed one by one */
	CHECK_EQ(table_bytes(), before + PAGE);
	CHECK_EQ(va_map(fd, bo, 0, VA, 0, 2 * HUGE), 0);
	CHECK_EQ(va_unmap(fd, bo, 0, VA), 0);
	CHECK_EQ(table_bytes(), before);
	CHECK_EQ(bo_close(fd, bo), 0);
}

/* A job that frees one may have to wait for others that write it. */
static void a_table_lives_until_the_job_that_takes_it_away_has_run(void)
{
	uint32_t bo = bo_create(fd, HUGE, 0), other = bo_create(fd, HUGE, 0);
	struct emu_fence *submission;
	uint64_t before;

	CHECK_EQ(va_map(fd, other, 0, VA + 2 * HUGE, 0, PAGE), 0);
	CHECK_EQ(va_map(fd, bo, 0, VA, 0, PAGE), 0);
	CHECK_EQ(va_map(fd, bo, 0, VA + PAGE, PAGE, PAGE), 0);
	before = table_bytes();
	submission = hold(fd, SUBMISSION_OF_THIS_VM, 0);
	vmkv_emulator_pause(card.gpu);
	CHECK_EQ(va_map(fd, other, 0, VA + 2 * HUGE + PAGE, 0, PAGE), 0);
	CHECK_EQ(va_unmap(fd, bo, 0, VA), 0);
	CHECK_EQ(va_unmap(fd, bo, 0, VA + PAGE), 0);
	CHECK_EQ(va_map(fd, bo, 0, VA, 0, HUGE), 0);
	vmkv_emulator_resume(card.gpu);
	while (!walk_now(fd, VA + 2 * HUGE + PAGE).valid)
		usleep(100);
	CHECK_EQ(stats(&card).page_table_bytes, before);
	CHECK_EQ(walk_now(fd, VA).bytes, PAGE);
	let_go(submission);
	CHECK_EQ(table_bytes(), before - PAGE);
	CHECK_MAPPED(fd, VA + MIB, bo, MIB);
	CHECK_EQ(bo_close(fd, bo), 0);
	CHECK_EQ(bo_close(fd, other), 0);
}

static void tables_lie_in_vram_and_go_with_the_file(void)
{
	uint64_t tables = table_bytes(), used = stats(&card).vram_used_bytes;
	uint32_t bo;
	int second;

	CHECK_EQ(vmkv_emulator_open(card.gpu, &second), 0);
	CHECK_EQ(stats(&card).page_table_bytes, tables + PAGE);
	bo = bo_create(second, MIB, 0);
	for (uint64_t i = 0; i < 8; i++)
		CHECK_EQ(va_map(second, bo, 0, VA + i * GIB, 0, PAGE), 0);
	settle(second);
	/* The root, one of 512 GiB, eight of 1 GiB, eight of 2 MiB. */
	CHECK_EQ(stats(&card).page_table_bytes, tables + 18 * PAGE);
	CHECK_EQ(stats(&card).vram_used_bytes, used + MIB + 18 * PAGE);
	CHECK_EQ(vmkv_emulator_close(second), 0);
	CHECK_EQ(stats(&card).page_table_bytes, tables);
	CHECK_EQ(stats(&card).vram_used_bytes, used);
}

static void entries_are_counted(void)
{
	uint32_t bo = bo_create(fd, HUGE, 0);
	uint64_t before;

	CHECK_EQ(va_map(fd, bo, 0, VA + HUGE - PAGE, 0, PAGE), 0);
	settle(fd);
	before = stats(&card).ptes_written;
	CHECK_EQ(va_map(fd, bo, 0, VA, 0, 100 * PAGE), 0);
	settle(fd);
	CHECK_EQ(stats(&card).ptes_written, before + 100);
	CHECK_EQ(va_unmap(fd, bo, 0, VA), 0);
	settle(fd);
	CHECK_EQ(stats(&card).ptes_written, before + 200);
	CHECK_EQ(va_map(fd, bo, 0, VA + HUGE, 0, HUGE), 0);
	settle(fd);
	CHECK_EQ(stats(&card).ptes_written, before + 201);
	CHECK_EQ(bo_close(fd, bo), 0);
}

static void run_all(void)
{
	RUN(an_entry_carries_the_permissions_of_its_mapping);
	RUN(vram_and_gtt_have_physical_ranges_of_their_own);
	RUN(prt_entries_are_not_valid);
	RUN(a_fragment_is_bounded_by_address_and_by_what_remains);
	RUN(physical_alignment_does_not_matter_for_fragments);
	RUN(a_fragment_stays_within_one_block);
	RUN(two_mib_pieces_that_are_aligned_are_one_directory_entry);
	RUN(a_whole_buffer_of_two_mib_pieces_needs_no_tables_of_pages);
	RUN(a_misaligned_two_mib_piece_needs_tables_of_pages);
	RUN(a_huge_entry_over_a_table_frees_it);
	RUN(a_clear_of_all_that_a_table_covers_frees_it);
	RUN(a_table_lives_until_the_job_that_takes_it_away_has_run);
	RUN(tables_lie_in_vram_and_go_with_the_file);
	RUN(entries_are_counted);
}

int main(void)
{
	FOR_EACH_KERNEL(name) {
		kernel = name;
		card = card_open(kernel, "");
		fd = card.fd;
		run_all();
		card_close(&card);
	}
	return 0;
}
