/* SPDX-License-Identifier: MIT
 *
 * The emulated VM's states: when page-table entries change, who flushes what, what splitting a
 * mapping does, what submissions wait for, evictions. Run with entries written by jobs and by the
 * CPU.
 */
#include "vm_fixture.h"

static const char *kernel;
static bool cpu; /* with vm_update=cpu */
static struct card card;
static int fd;

static uint32_t mapped_bo(uint64_t flags, uint64_t address)
{
	uint32_t bo = bo_create(fd, HUGE, flags);

	CHECK_EQ(va_map(fd, bo, 0, address, 0, HUGE), 0);
	return bo;
}

/* ---- what is flushed ------------------------------------------------------------------------- */

static void a_call_without_delay_changes_entries(void)
{
	uint32_t bo = mapped_bo(0, VA);

	CHECK_MAPPED(fd, VA + PAGE, bo, PAGE);
	CHECK_EQ(va_unmap(fd, bo, 0, VA), 0);
	CHECK_UNMAPPED(fd, VA + PAGE);
	CHECK_EQ(bo_close(fd, bo), 0);
}

static void delay_changes_lists_only(void)
{
	uint32_t bo = bo_create(fd, HUGE, 0);
	uint64_t before = stats(&card).delayed_maps;

	CHECK_EQ(va_map(fd, bo, DELAY, VA, 0, PAGE), 0);
	CHECK_UNMAPPED(fd, VA);
	CHECK_EQ(va_map(fd, bo, 0, VA + PAGE, PAGE, PAGE), 0);
	CHECK_EQ(va_unmap(fd, bo, DELAY, VA + PAGE), 0);
	CHECK_MAPPED(fd, VA + PAGE, bo, PAGE);
	CHECK_EQ(stats(&card).delayed_maps, before + 2);
	CHECK_EQ(bo_close(fd, bo), 0);
	CHECK_UNMAPPED(fd, VA + PAGE);
}

static void a_call_without_delay_flushes_freed_and_its_own_buffer_only(void)
{
	uint32_t one = bo_create(fd, HUGE, 0), two = bo_create(fd, HUGE, 0);
	uint32_t gone = mapped_bo(0, VA);

	CHECK_EQ(va_map(fd, one, DELAY, VA + HUGE, 0, PAGE), 0);
	CHECK_EQ(va_map(fd, two, DELAY, VA + 2 * HUGE, 0, PAGE), 0);
	CHECK_EQ(va_map(fd, two, DELAY, VA + 3 * HUGE, 0, PAGE), 0);
	CHECK_EQ(va_unmap(fd, gone, DELAY, VA), 0);
	CHECK_MAPPED(fd, VA, gone, 0);
	CHECK_EQ(va_map(fd, two, 0, VA + 4 * HUGE, 0, PAGE), 0);
	CHECK_UNMAPPED(fd, VA);               /* freed: whoever's it was */
	CHECK_UNMAPPED(fd, VA + HUGE);        /* another buffer's */
	CHECK_MAPPED(fd, VA + 2 * HUGE, two, 0); /* all of its own */
	CHECK_MAPPED(fd, VA + 3 * HUGE, two, 0);
	CHECK_MAPPED(fd, VA + 4 * HUGE, two, 0);
	CHECK_EQ(bo_close(fd, one), 0);
	CHECK_EQ(bo_close(fd, two), 0);
	CHECK_EQ(bo_close(fd, gone), 0);
}

static void unmap_and_clear_flush_no_maps(void)
{
	uint32_t bo = bo_create(fd, HUGE, 0);

	CHECK_EQ(va_map(fd, bo, DELAY, VA, 0, PAGE), 0);
	CHECK_EQ(va_map(fd, bo, DELAY, VA + HUGE, 0, PAGE), 0);
	CHECK_EQ(va_unmap(fd, bo, 0, VA + HUGE), 0);
	CHECK_UNMAPPED(fd, VA);
	CHECK_EQ(va_clear(fd, 0, VA + HUGE, PAGE), 0);
	CHECK_UNMAPPED(fd, VA);
	CHECK_EQ(va_replace(fd, bo, 0, VA + HUGE, 0, PAGE), 0);
	CHECK_MAPPED(fd, VA, bo, 0);
	CHECK_EQ(bo_close(fd, bo), 0);
}

static void delayed_map_and_unmap_cancel_for_free(void)
{
	uint32_t bo = bo_create(fd, HUGE, 0);
	uint64_t before;

	settle(fd);
	before = stats(&card).pte_jobs;
	for (int i = 0; i < 5; i++) {
		CHECK_EQ(va_map(fd, bo, DELAY, VA, 0, HUGE), 0);
		CHECK_EQ(va_unmap(fd, bo, DELAY, VA), 0);
	}
	CHECK_EQ(va_unmap(fd, bo, 0, VA), -ENOENT);
	CHECK_EQ(va_clear(fd, 0, VA, HUGE), 0);
	settle(fd);
	CHECK_EQ(stats(&card).pte_jobs, before);
	CHECK_EQ(bo_close(fd, bo), 0);
}

static void there_is_a_job_for_each_freed_and_each_invalid_mapping(void)
{
	uint32_t bo = bo_create(fd, HUGE, 0);
	uint64_t before;

	CHECK_EQ(va_map(fd, bo, 0, VA, 0, PAGE), 0); /* makes the table */
	settle(fd);
	before = stats(&card).pte_jobs;
	for (uint64_t i = 1; i < 5; i++)
		CHECK_EQ(va_map(fd, bo, DELAY, VA + i * PAGE, 0, PAGE), 0);
	CHECK_EQ(va_map(fd, bo, 0, VA + 5 * PAGE, 0, PAGE), 0);
	settle(fd);
	CHECK_EQ(stats(&card).pte_jobs, before + 5);
	for (uint64_t i = 0; i < 3; i++)
		CHECK_EQ(va_unmap(fd, bo, DELAY, VA + i * PAGE), 0);
	CHECK_EQ(va_map(fd, bo, 0, VA, 0, PAGE), 0);
	settle(fd);
	CHECK_EQ(stats(&card).pte_jobs, before + 5 + 3 + 1);
	CHECK_EQ(bo_close(fd, bo), 0);
}

static void an_ioctl_returns_before_the_card_writes_entries(void)
{
	uint32_t bo = bo_create_in(fd, HUGE, GTT, 0); /* which isn't cleared: nothing to wait for */

	settle(fd);
	vmkv_emulator_pause(card.gpu);
	CHECK_EQ(va_map(fd, bo, 0, VA, 0, PAGE), 0);
	CHECK_EQ(walk_now(fd, VA).valid, cpu);
	vmkv_emulator_resume(card.gpu);
	CHECK_MAPPED(fd, VA, bo, 0);
	CHECK_EQ(bo_close(fd, bo), 0);
}

/* ---- submissions ----------------------------------------------------------------------------- */

static void a_submission_flushes_freed_prt_listed_and_always_valid(void)
{
	uint32_t listed = bo_create(fd, HUGE, 0), other = bo_create(fd, HUGE, 0);
	uint32_t always = bo_create(fd, HUGE, ALWAYS), gone = mapped_bo(0, VA);

	CHECK_EQ(va_map(fd, listed, DELAY, VA + HUGE, 0, PAGE), 0);
	CHECK_EQ(va_map(fd, other, DELAY, VA + 2 * HUGE, 0, PAGE), 0);
	CHECK_EQ(va_map(fd, always, DELAY, VA + 3 * HUGE, 0, PAGE), 0);
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_MAP, 0, PRT | DELAY, VA + 4 * HUGE, 0, PAGE), 0);
	CHECK_EQ(va_unmap(fd, gone, DELAY, VA), 0);
	CHECK_EQ(cs_nop(&card, &listed, 1), 0);
	CHECK_UNMAPPED(fd, VA);
	CHECK_MAPPED(fd, VA + HUGE, listed, 0);
	CHECK_UNMAPPED(fd, VA + 2 * HUGE); /* neither listed nor always valid */
	CHECK_MAPPED(fd, VA + 3 * HUGE, always, 0);
	CHECK_EQ(walk(fd, VA + 4 * HUGE).prt, 1);
	CHECK_EQ(va_clear(fd, 0, VA, 8 * HUGE), 0);
	CHECK_EQ(bo_close(fd, listed), 0);
	CHECK_EQ(bo_close(fd, other), 0);
	CHECK_EQ(bo_close(fd, always), 0);
	CHECK_EQ(bo_close(fd, gone), 0);
}

/* ---- splitting ------------------------------------------------------------------------------- */

/* After a CLEAR of pages 2 and 3 of 8. */
static uint32_t split_bo(uint64_t flags)
{
	uint32_t bo = bo_create(fd, HUGE, flags);

	CHECK_EQ(va_map(fd, bo, 0, VA, 0, 8 * PAGE), 0);
	CHECK_EQ(va_clear(fd, 0, VA + 2 * PAGE, 2 * PAGE), 0);
	return bo;
}

static void a_remainder_that_is_unmapped_before_a_refresh_leaves_stale_entries(void)
{
	uint32_t bo = split_bo(0);

	CHECK_EQ(va_unmap(fd, bo, 0, VA), 0);
	CHECK_EQ(va_clear(fd, 0, VA, 8 * PAGE), 0);
	CHECK_MAPPED(fd, VA, bo, 0);           /* nobody knows of it any more */
	CHECK_UNMAPPED(fd, VA + 4 * PAGE);     /* CLEAR frees unconditionally */
	CHECK_EQ(bo_close(fd, bo), 0);
	CHECK_EQ(walk(fd, VA).valid, 1);
	bo = mapped_bo(0, VA); /* and only another mapping there repairs it */
	CHECK_EQ(va_unmap(fd, bo, 0, VA), 0);
	CHECK_UNMAPPED(fd, VA);
	CHECK_EQ(bo_close(fd, bo), 0);
}

static void closing_a_handle_after_a_split_leaves_stale_entries(void)
{
	uint32_t bo = split_bo(0), next;
	struct vmkv_emulator_entry entry;

	CHECK_EQ(bo_close(fd, bo), 0);
	entry = walk(fd, VA + 4 * PAGE);
	CHECK_EQ(entry.valid, 1);
	CHECK_EQ(entry.handle, 0);
	next = mapped_bo(0, VA);
	CHECK_EQ(va_unmap(fd, next, 0, VA), 0);
	CHECK_EQ(bo_close(fd, next), 0);
}

static void a_remainder_that_was_refreshed_is_unmapped_cleanly(void)
{
	uint32_t bo = split_bo(0);

	CHECK_EQ(va_map(fd, bo, 0, VA + HUGE, 0, PAGE), 0);
	CHECK_EQ(va_unmap(fd, bo, 0, VA), 0);
	CHECK_UNMAPPED(fd, VA);
	CHECK_MAPPED(fd, VA + 4 * PAGE, bo, 4 * PAGE);
	CHECK_EQ(bo_close(fd, bo), 0);
	CHECK_UNMAPPED(fd, VA + 4 * PAGE);
}

static void the_rest_of_a_split_huge_page_is_unmapped_until_its_buffers_next_map(void)
{
	uint32_t bo = mapped_bo(0, VA), other = bo_create(fd, HUGE, 0);

	CHECK_EQ(walk(fd, VA).bytes, HUGE);
	CHECK_EQ(va_clear(fd, 0, VA + 64 * KIB, 64 * KIB), 0);
	CHECK_UNMAPPED(fd, VA);
	CHECK_UNMAPPED(fd, VA + MIB);
	CHECK_EQ(va_map(fd, other, 0, VA + HUGE, 0, PAGE), 0);
	CHECK_UNMAPPED(fd, VA + MIB);
	CHECK_EQ(cs_nop(&card, &other, 1), 0); /* a submission that doesn't list it */
	CHECK_UNMAPPED(fd, VA + MIB);
	CHECK_EQ(va_map(fd, bo, 0, VA + 2 * HUGE, 0, PAGE), 0);
	CHECK_MAPPED(fd, VA, bo, 0);
	CHECK_UNMAPPED(fd, VA + 64 * KIB);
	CHECK_MAPPED(fd, VA + MIB, bo, MIB);
	CHECK_EQ(bo_close(fd, bo), 0);
	CHECK_EQ(bo_close(fd, other), 0);
}

static void a_submission_that_lists_it_maps_the_rest_of_a_split_huge_page(void)
{
	uint32_t bo = mapped_bo(0, VA);

	CHECK_EQ(va_clear(fd, 0, VA + 64 * KIB, 64 * KIB), 0);
	CHECK_UNMAPPED(fd, VA + MIB);
	CHECK_EQ(cs_nop(&card, &bo, 1), 0);
	CHECK_MAPPED(fd, VA + MIB, bo, MIB);
	CHECK_EQ(bo_close(fd, bo), 0);
}

static void any_submission_maps_the_rest_of_an_always_valid_huge_page(void)
{
	uint32_t bo = mapped_bo(ALWAYS, VA);

	CHECK_EQ(va_clear(fd, 0, VA + 64 * KIB, 64 * KIB), 0);
	CHECK_UNMAPPED(fd, VA + MIB);
	CHECK_EQ(cs_nop(&card, NULL, 0), 0);
	CHECK_MAPPED(fd, VA + MIB, bo, MIB);
	CHECK_EQ(bo_close(fd, bo), 0);
}

/* ---- closing --------------------------------------------------------------------------------- */

static void closing_the_last_handle_clears_its_entries(void)
{
	uint32_t bo = mapped_bo(0, VA);

	CHECK_EQ(va_map(fd, bo, DELAY, VA + HUGE, 0, PAGE), 0);
	CHECK_EQ(bo_close(fd, bo), 0);
	CHECK_UNMAPPED(fd, VA);
	CHECK_UNMAPPED(fd, VA + HUGE);
	CHECK_EQ(va_clear(fd, 0, VA, 2 * HUGE), 0);
}

static void closing_a_mapped_buffer_keeps_its_memory_until_entries_are_cleared(void)
{
	uint32_t bo = mapped_bo(0, VA);
	uint64_t used = stats(&card).vram_used_bytes;
	struct emu_fence *submission;

	settle(fd);
	submission = hold(fd, SUBMISSION_OF_THIS_VM, 0);
	CHECK_EQ(bo_close(fd, bo), 0);
	CHECK(stats(&card).vram_used_bytes >= used);
	CHECK_EQ(walk_now(fd, VA).valid, 1);
	let_go(submission);
	CHECK_UNMAPPED(fd, VA);
	bo = bo_create(fd, PAGE, 0); /* memory that became idle is given back by now */
	CHECK(stats(&card).vram_used_bytes < used);
	CHECK_EQ(bo_close(fd, bo), 0);
}

/* ---- evictions ------------------------------------------------------------------------------- */

static void invalidate(uint32_t handle, bool evicted)
{
	struct emu_file *file = emu_file_get(fd);

	pthread_mutex_lock(&file->gpu->lock);
	emu_vm_bo_invalidate(emu_handle_find(file, handle)->bo, evicted);
	pthread_mutex_unlock(&file->gpu->lock);
	emu_file_put(file);
}

static void while_evicting_nothing_is_written_until_a_submission(void)
{
	uint32_t always = mapped_bo(ALWAYS, VA), other = mapped_bo(0, VA + HUGE);

	invalidate(always, true);
	CHECK_EQ(va_map(fd, other, 0, VA + 2 * HUGE, 0, PAGE), 0);
	CHECK_EQ(va_unmap(fd, other, 0, VA + HUGE), 0);
	CHECK_EQ(va_map(fd, always, 0, VA + 3 * HUGE, 0, PAGE), 0);
	CHECK_UNMAPPED(fd, VA + 2 * HUGE);
	CHECK_MAPPED(fd, VA + HUGE, other, 0);
	CHECK_UNMAPPED(fd, VA + 3 * HUGE);
	CHECK_EQ(cs_nop(&card, &other, 1), 0);
	CHECK_MAPPED(fd, VA + 2 * HUGE, other, 0);
	CHECK_UNMAPPED(fd, VA + HUGE);
	CHECK_MAPPED(fd, VA + 3 * HUGE, always, 0);
	CHECK_EQ(va_map(fd, other, 0, VA + HUGE, 0, PAGE), 0);
	CHECK_MAPPED(fd, VA + HUGE, other, 0);
	CHECK_EQ(bo_close(fd, always), 0);
	CHECK_EQ(bo_close(fd, other), 0);
}

static void while_evicting_closing_a_handle_clears_nothing(void)
{
	uint32_t always = mapped_bo(ALWAYS, VA), bo = mapped_bo(0, VA + HUGE);

	settle(fd);
	invalidate(always, true);
	CHECK_EQ(bo_close(fd, bo), 0);
	CHECK_EQ(walk(fd, VA + HUGE).valid, 1);
	CHECK_EQ(cs_nop(&card, NULL, 0), 0);
	CHECK_UNMAPPED(fd, VA + HUGE);
	CHECK_EQ(bo_close(fd, always), 0);
}

/* Always-valid buffers that don't fit: one of them stays where it isn't wanted, and the VM isn't
 * ready between submissions. */
static void a_misplaced_always_valid_buffer_defers_all_updates_to_submissions(void)
{
	struct card small = card_open_sized(kernel, "64MiB", cpu ? "&vm_update=cpu" : "");
	uint32_t fits = bo_create(small.fd, 40 * MIB, ALWAYS), bo;

	bo = bo_create(small.fd, HUGE, 0);
	CHECK_EQ(va_map(small.fd, bo, 0, VA, 0, PAGE), 0);
	CHECK_MAPPED(small.fd, VA, bo, 0);
	(void)bo_create(small.fd, 40 * MIB, ALWAYS);
	CHECK_EQ(va_map(small.fd, bo, 0, VA + PAGE, PAGE, PAGE), 0);
	CHECK_UNMAPPED(small.fd, VA + PAGE);
	CHECK_EQ(cs_nop(&small, &bo, 1), 0);
	CHECK_MAPPED(small.fd, VA + PAGE, bo, PAGE);
	CHECK_EQ(va_map(small.fd, bo, 0, VA + 2 * PAGE, 0, PAGE), 0);
	CHECK_UNMAPPED(small.fd, VA + 2 * PAGE);
	/* Once there is room a submission brings it back, and all is as before. */
	CHECK_EQ(bo_close(small.fd, fits), 0);
	for (int i = 0; i < 20; i++)
		CHECK_EQ(cs_nop(&small, &bo, 1), 0);
	CHECK_EQ(va_map(small.fd, bo, 0, VA + 3 * PAGE, 0, PAGE), 0);
	CHECK_MAPPED(small.fd, VA + 3 * PAGE, bo, 0);
	card_close(&small);
}

/* Its place is taken for good, as by page tables. */
static void a_buffer_that_is_made_in_the_wrong_place_defers_updates_from_the_start(void)
{
	struct card small = card_open_sized(kernel, "64MiB", cpu ? "&vm_update=cpu" : "");
	uint32_t pinned = bo_create(small.fd, 40 * MIB, 0), bo = bo_create(small.fd, HUGE, 0);
	struct emu_file *file = emu_file_get(small.fd);

	pthread_mutex_lock(&file->gpu->lock);
	emu_handle_find(file, pinned)->bo->pins++;
	pthread_mutex_unlock(&file->gpu->lock);
	(void)bo_create(small.fd, 40 * MIB, ALWAYS);
	CHECK_EQ(va_map(small.fd, bo, 0, VA, 0, PAGE), 0);
	CHECK_UNMAPPED(small.fd, VA);
	CHECK_EQ(cs_nop(&small, &bo, 1), 0);
	CHECK_MAPPED(small.fd, VA, bo, 0);
	pthread_mutex_lock(&file->gpu->lock);
	emu_handle_find(file, pinned)->bo->pins--;
	pthread_mutex_unlock(&file->gpu->lock);
	emu_file_put(file);
	card_close(&small);
}

static void a_moved_buffer_is_written_again_by_any_submission(void)
{
	uint32_t bo = mapped_bo(0, VA), always = mapped_bo(ALWAYS, VA + HUGE);
	uint64_t before;

	CHECK_EQ(cs_nop(&card, NULL, 0), 0);
	settle(fd);
	before = stats(&card).pte_jobs;
	invalidate(bo, true); /* evicted concerns only always-valid ones */
	invalidate(always, false);
	CHECK_EQ(cs_nop(&card, NULL, 0), 0);
	settle(fd);
	CHECK_EQ(stats(&card).pte_jobs, before + 2);
	CHECK_EQ(cs_nop(&card, NULL, 0), 0);
	CHECK_EQ(stats(&card).pte_jobs, before + 2);
	CHECK_EQ(bo_close(fd, bo), 0);
	CHECK_EQ(bo_close(fd, always), 0);
}

static void a_new_map_of_a_moved_buffer_writes_all_its_mappings(void)
{
	uint32_t bo = mapped_bo(0, VA);
	uint64_t before;

	CHECK_EQ(va_map(fd, bo, 0, VA + HUGE, 0, PAGE), 0);
	settle(fd);
	before = stats(&card).pte_jobs;
	invalidate(bo, false);
	CHECK_EQ(va_map(fd, bo, 0, VA + HUGE + PAGE, 0, PAGE), 0);
	settle(fd);
	CHECK_EQ(stats(&card).pte_jobs, before + 3);
	CHECK_EQ(bo_close(fd, bo), 0);
}

/* Entries follow a buffer out of VRAM; its contents stay. */
static void an_eviction_under_pressure_reaches_entries_with_the_next_submission(void)
{
	uint32_t always = mapped_bo(ALWAYS, VA), value, pressure;

	CHECK_EQ(gpu_write(&card, VA + MIB, 0xfeedf00d), 0);
	CHECK(walk(fd, VA + MIB).physical < GIB);
	pressure = bo_create(fd, GIB - 64 * MIB, 0);
	for (int i = 0; i < 200 && stats(&card).evictions == 0; i++)
		(void)bo_create(fd, MIB, 0);
	CHECK(stats(&card).evictions > 0);
	CHECK_EQ(gpu_read(&card, VA + MIB, &value), 0);
	CHECK_EQ(value, 0xfeedf00d);
	CHECK_EQ(stats(&card).stale_accesses, 0);
	CHECK_EQ(bo_close(fd, pressure), 0);
	CHECK_EQ(bo_close(fd, always), 0);
}

static void run_all(void)
{
	RUN(a_call_without_delay_changes_entries);
	RUN(delay_changes_lists_only);
	RUN(a_call_without_delay_flushes_freed_and_its_own_buffer_only);
	RUN(unmap_and_clear_flush_no_maps);
	RUN(delayed_map_and_unmap_cancel_for_free);
	RUN(there_is_a_job_for_each_freed_and_each_invalid_mapping);
	RUN(an_ioctl_returns_before_the_card_writes_entries);
	RUN(a_submission_flushes_freed_prt_listed_and_always_valid);
	RUN(a_remainder_that_is_unmapped_before_a_refresh_leaves_stale_entries);
	RUN(closing_a_handle_after_a_split_leaves_stale_entries);
	RUN(a_remainder_that_was_refreshed_is_unmapped_cleanly);
	RUN(the_rest_of_a_split_huge_page_is_unmapped_until_its_buffers_next_map);
	RUN(a_submission_that_lists_it_maps_the_rest_of_a_split_huge_page);
	RUN(any_submission_maps_the_rest_of_an_always_valid_huge_page);
	RUN(closing_the_last_handle_clears_its_entries);
	RUN(closing_a_mapped_buffer_keeps_its_memory_until_entries_are_cleared);
	RUN(while_evicting_nothing_is_written_until_a_submission);
	RUN(while_evicting_closing_a_handle_clears_nothing);
	RUN(a_misplaced_always_valid_buffer_defers_all_updates_to_submissions);
	RUN(a_buffer_that_is_made_in_the_wrong_place_defers_updates_from_the_start);
	RUN(a_moved_buffer_is_written_again_by_any_submission);
	RUN(a_new_map_of_a_moved_buffer_writes_all_its_mappings);
	RUN(an_eviction_under_pressure_reaches_entries_with_the_next_submission);
}

int main(void)
{
	FOR_EACH_KERNEL(name) {
		kernel = name;
		for (int i = 0; i < 2; i++) {
			cpu = i;
			card = card_open(kernel, cpu ? "&vm_update=cpu" : "");
			fd = card.fd;
			run_all();
			card_close(&card);
		}
	}
	return 0;
}
