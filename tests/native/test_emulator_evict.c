/* SPDX-License-Identifier: MIT
 *
 * Memory pressure on the emulated card: who is evicted for whom, what submissions move, and when
 * memory that was given up is free.
 */
#include "memory_fixture.h"

#define VRAM_MIB 64

/* Leave that much of VRAM to the test; page tables made before are part of it. */
static uint32_t vram_fill(const struct card *card, uint64_t leave, uint64_t flags)
{
	struct vmkv_emulator_stats now = stats(card);

	return bo_create(card->fd, now.vram_bytes - now.vram_used_bytes - leave, flags);
}

/* ---- creating -------------------------------------------------------------------------------- */

static void a_buffer_for_vram_evicts_others_to_gtt(void)
{
	struct card card = card_sized("6.12", VRAM_MIB, 64, "");
	uint32_t old = bo_create(card.fd, 32 * MIB, 0), new;

	new = bo_create(card.fd, 40 * MIB, 0);
	CHECK_EQ(bo_heap(card.fd, new), EMU_HEAP_VRAM);
	CHECK_EQ(bo_heap(card.fd, old), EMU_HEAP_GTT);
	CHECK_EQ(stats(&card).evictions, 1);
	CHECK_EQ(stats(&card).moved_bytes, 32 * MIB);
	CHECK_EQ(stats(&card).gtt_used_bytes, 32 * MIB);
	card_close(&card);
}

static void what_was_used_last_goes_last(void)
{
	struct card card = card_sized("6.12", VRAM_MIB, 64, "");
	uint32_t a = bo_create(card.fd, 16 * MIB, 0), b = bo_create(card.fd, 16 * MIB, 0);
	uint32_t c = bo_create(card.fd, 16 * MIB, 0);

	CHECK_EQ(bo_validate(card.fd, a, NULL), 0);
	(void)bo_create(card.fd, 30 * MIB, 0);
	CHECK_EQ(bo_heap(card.fd, b), EMU_HEAP_GTT);
	CHECK_EQ(bo_heap(card.fd, a), EMU_HEAP_VRAM);
	CHECK_EQ(bo_heap(card.fd, c), EMU_HEAP_VRAM);
	card_close(&card);
}

static void always_valid_buffers_count_as_used_by_each_submission(void)
{
	struct card card = card_sized("6.12", VRAM_MIB, 64, "");
	uint32_t always = bo_create(card.fd, 16 * MIB, ALWAYS);
	uint32_t other = bo_create(card.fd, 16 * MIB, 0);

	CHECK_EQ(cs_nop(&card, NULL, 0), 0);
	(void)bo_create(card.fd, 40 * MIB, 0);
	CHECK_EQ(bo_heap(card.fd, other), EMU_HEAP_GTT);
	CHECK_EQ(bo_heap(card.fd, always), EMU_HEAP_VRAM);
	card_close(&card);
}

static void a_buffer_for_either_evicts_nobody_while_there_is_room(void)
{
	struct card card = card_sized("6.12", VRAM_MIB, 64, "");
	uint32_t new;

	(void)vram_fill(&card, MIB, 0);
	new = bo_create_in(card.fd, 8 * MIB, VRAM | GTT, 0);
	CHECK_EQ(bo_heap(card.fd, new), EMU_HEAP_GTT);
	CHECK_EQ(stats(&card).evictions, 0);
	new = bo_create_in(card.fd, MIB / 2, VRAM | GTT, 0);
	CHECK_EQ(bo_heap(card.fd, new), EMU_HEAP_VRAM);
	card_close(&card);
}

static void without_room_in_gtt_buffers_leave_for_the_system(void)
{
	struct card card = card_sized("6.12", VRAM_MIB, 32, "");
	uint32_t old = bo_create(card.fd, 24 * MIB, 0);
	uint32_t gtt = bo_create_in(card.fd, 24 * MIB, GTT, 0);

	(void)bo_create(card.fd, 60 * MIB, 0);
	CHECK_EQ(bo_heap(card.fd, old), EMU_HEAP_NONE);
	CHECK_EQ(bo_heap(card.fd, gtt), EMU_HEAP_GTT);
	/* A buffer for GTT evicts from there as well. */
	(void)bo_create_in(card.fd, 24 * MIB, GTT, 0);
	CHECK_EQ(bo_heap(card.fd, gtt), EMU_HEAP_NONE);
	CHECK_EQ(stats(&card).evictions, 2);
	card_close(&card);
}

/* A file's page tables never leave VRAM. */
static void page_tables_stay(void)
{
	struct card card = card_sized("6.12", 16, 16, "");
	uint32_t small = bo_create(card.fd, PAGE, 0);
	uint64_t tables;

	CHECK_EQ(va_map(card.fd, small, 0, VA, 0, PAGE), 0);
	tables = stats(&card).page_table_bytes;
	CHECK(tables >= 4 * PAGE);
	for (int i = 0; i < 12; i++)
		(void)bo_create(card.fd, 4 * MIB, 0);
	CHECK_EQ(stats(&card).page_table_bytes, tables);
	CHECK(stats(&card).vram_used_bytes >= tables);
	/* The last pages of VRAM can't be had together with them. */
	CHECK_EQ(bo_heap(card.fd, bo_create(card.fd, 16 * MIB - PAGE, 0)), EMU_HEAP_GTT);
	card_close(&card);
}

static void a_buffer_is_not_evicted_for_its_own_page_tables(void)
{
	struct card card = card_sized("6.12", VRAM_MIB, 64, "");
	uint32_t a = bo_create(card.fd, 32 * MIB, 0), b;

	b = vram_fill(&card, 0, 0);
	CHECK_EQ(va_map(card.fd, a, 0, VA, PAGE, PAGE), 0);
	CHECK_EQ(bo_heap(card.fd, b), EMU_HEAP_GTT);
	CHECK_EQ(bo_heap(card.fd, a), EMU_HEAP_VRAM);
	CHECK_MAPPED(card.fd, VA, a, PAGE);
	card_close(&card);
}

/* ---- contents and entries -------------------------------------------------------------------- */

static void an_evicted_buffer_keeps_its_contents(void)
{
	struct card card = card_sized("6.12", VRAM_MIB, 64, "");
	uint32_t handle = bo_create(card.fd, 8 * MIB, 0), value;
	uint32_t *view = bo_view(card.fd, handle, 8 * MIB);

	CHECK_EQ(va_map(card.fd, handle, 0, VA, 0, 8 * MIB), 0);
	CHECK_EQ(gpu_write(&card, VA + 4 * MIB, 11), 0);
	(void)bo_create(card.fd, 60 * MIB, 0);
	CHECK_EQ(bo_heap(card.fd, handle), EMU_HEAP_GTT);
	CHECK_EQ(view[MIB], 11);
	view[MIB + 1] = 12;
	/* A submission that lists it writes its entries anew, where it may have moved back. */
	CHECK_EQ(cs_nop(&card, &handle, 1), 0);
	CHECK_EQ(gpu_read(&card, VA + 4 * MIB + 4, &value), 0);
	CHECK_EQ(value, 12);
	CHECK_MAPPED(card.fd, VA + 4 * MIB, handle, 4 * MIB);
	CHECK_EQ(munmap(view, 8 * MIB), 0);
	card_close(&card);
}

static void an_evicted_always_valid_buffer_comes_back_by_itself(void)
{
	struct card card = card_sized("6.12", VRAM_MIB, 64, "");
	uint32_t handle = bo_create(card.fd, MIB, ALWAYS), value, other;

	CHECK_EQ(va_map(card.fd, handle, 0, VA, 0, MIB), 0);
	CHECK_EQ(gpu_write(&card, VA, 11), 0);
	other = vram_fill(&card, 0, 0);
	other = bo_create(card.fd, 2 * MIB, 0);
	CHECK_EQ(bo_heap(card.fd, handle), EMU_HEAP_GTT);
	CHECK_EQ(bo_close(card.fd, other), 0);
	CHECK_EQ(gpu_read(&card, VA, &value), 0);
	CHECK_EQ(value, 11);
	CHECK_EQ(bo_heap(card.fd, handle), EMU_HEAP_VRAM);
	card_close(&card);
}

/* before: a submission that writes to buffer A is queued;  request: B, which needs A's place;
 * after: the write goes to A, and not to B, which has the place by then */
static void who_is_at_work_in_a_place_never_meets_the_next_there(void)
{
	struct card card = card_sized("6.12", VRAM_MIB, 64, "");
	uint32_t a = bo_create(card.fd, 40 * MIB, 0), b, context;
	uint32_t *a_view, *b_view;
	uint64_t number, physical;

	card_prepare_submissions(&card);
	CHECK_EQ(va_map(card.fd, a, 0, VA, 0, 40 * MIB), 0);
	physical = walk(card.fd, VA).physical;
	context = context_create(card.fd);
	card.result_view[1] = 0x1234;
	ib_copy(&card, VA, RESULT_VA + 4, 4);
	vmkv_emulator_pause(card.gpu);
	CHECK_EQ(cs_submit(&card, context, 8, &a, 1, &number), 0);
	b = bo_create(card.fd, 60 * MIB, 0);
	CHECK_EQ(bo_heap(card.fd, a), EMU_HEAP_GTT);
	CHECK_EQ(bo_heap(card.fd, b), EMU_HEAP_VRAM);
	vmkv_emulator_resume(card.gpu);
	CHECK_EQ(cs_wait(card.fd, context, number), 0);
	CHECK_EQ(bo_wait(card.fd, b), 0);
	a_view = bo_view(card.fd, a, 40 * MIB);
	b_view = bo_view(card.fd, b, 60 * MIB);
	CHECK_EQ(a_view[0], 0x1234);
	for (uint64_t i = 0; i < 60 * MIB / 4; i += PAGE / 4)
		CHECK_EQ(b_view[i], 0);
	/* Its entries are as they were: nobody asked for others. */
	CHECK_EQ(walk(card.fd, VA).physical, physical);
	CHECK_EQ(munmap(a_view, 40 * MIB) | munmap(b_view, 60 * MIB), 0);
	context_destroy(card.fd, context);
	card_close(&card);
}

/* Entries that weren't written since lead to whoever has the place once the move is done. */
static void a_stale_entry_leads_to_the_next_in_the_place(void)
{
	struct card card = card_sized("6.12", VRAM_MIB, 64, "");
	uint32_t a = bo_create(card.fd, 40 * MIB, 0), b;

	CHECK_EQ(va_map(card.fd, a, 0, VA, 0, 40 * MIB), 0);
	CHECK_EQ(walk(card.fd, VA).handle, a);
	b = bo_create(card.fd, 60 * MIB, 0);
	CHECK_EQ(bo_wait(card.fd, b), 0);
	CHECK_EQ(walk(card.fd, VA).handle, b);
	card_close(&card);
}

static void what_may_be_discarded_is_zero_after_eviction(void)
{
	struct card card = card_sized("6.12", VRAM_MIB, 64, "");
	uint32_t handle = bo_create(card.fd, 8 * MIB, AMDGPU_GEM_CREATE_DISCARDABLE);
	uint32_t *view = bo_view(card.fd, handle, 8 * MIB);

	view[0] = 7;
	(void)bo_create(card.fd, 60 * MIB, 0);
	CHECK_EQ(bo_heap(card.fd, handle), EMU_HEAP_NONE);
	CHECK_EQ(bo_wait(card.fd, handle), 0);
	CHECK_EQ(view[0], 0);
	CHECK_EQ(stats(&card).gtt_used_bytes, 0);
	CHECK_EQ(munmap(view, 8 * MIB), 0);
	card_close(&card);
}

/* ---- validating ------------------------------------------------------------------------------ */

static void a_submission_brings_back_what_its_budget_allows(void)
{
	struct card card = card_sized("6.12", VRAM_MIB, 64, "");
	uint32_t a = bo_create(card.fd, 8 * MIB, 0), b = bo_create(card.fd, 8 * MIB, 0), other;
	uint64_t budget = 4 * MIB;

	other = bo_create(card.fd, 60 * MIB, 0);
	CHECK_EQ(bo_wait(card.fd, other), 0);
	CHECK_EQ(bo_close(card.fd, other), 0);
	CHECK_EQ(bo_heap(card.fd, a), EMU_HEAP_GTT);
	CHECK_EQ(bo_heap(card.fd, b), EMU_HEAP_GTT);
	/* The first move may go beyond it; then it is spent. */
	CHECK_EQ(bo_validate(card.fd, a, &budget), 0);
	CHECK_EQ(budget, 0);
	CHECK_EQ(bo_heap(card.fd, a), EMU_HEAP_VRAM);
	CHECK_EQ(bo_validate(card.fd, b, &budget), 0);
	CHECK_EQ(bo_heap(card.fd, b), EMU_HEAP_GTT);
	budget = 100 * MIB;
	CHECK_EQ(bo_validate(card.fd, b, &budget), 0);
	CHECK_EQ(bo_heap(card.fd, b), EMU_HEAP_VRAM);
	CHECK_EQ(budget, 92 * MIB);
	CHECK_EQ(stats(&card).evictions, 2);
	card_close(&card);
}

static void evictions_use_up_the_budget_too(void)
{
	struct card card = card_sized("6.12", VRAM_MIB, 64, "");
	uint32_t a = bo_create(card.fd, 8 * MIB, 0);
	uint64_t budget = 100 * MIB;

	(void)bo_create(card.fd, 60 * MIB, 0);
	CHECK_EQ(bo_validate(card.fd, a, &budget), 0);
	CHECK_EQ(bo_heap(card.fd, a), EMU_HEAP_VRAM);
	CHECK_EQ(budget, 32 * MIB);
	card_close(&card);
}

/* Two that don't fit together: the second stays where it is, and the first isn't touched for it. */
static void what_a_submission_validated_isnt_evicted_by_it(void)
{
	struct card card = card_sized("6.12", VRAM_MIB, 128, "");
	uint32_t a = bo_create(card.fd, 40 * MIB, 0), b = bo_create(card.fd, 40 * MIB, 0);
	struct emu_file *file = emu_file_get(card.fd);

	CHECK_EQ(bo_heap(card.fd, a), EMU_HEAP_GTT);
	CHECK_EQ(bo_heap(card.fd, b), EMU_HEAP_VRAM);
	pthread_mutex_lock(&file->gpu->lock);
	emu_memory_submission_begin(file->gpu, file->vm);
	CHECK_EQ(emu_bo_validate(emu_handle_find(file, a)->bo, NULL), 0);
	CHECK_EQ(emu_bo_validate(emu_handle_find(file, b)->bo, NULL), 0);
	emu_memory_submission_end(file->gpu);
	pthread_mutex_unlock(&file->gpu->lock);
	emu_file_put(file);
	CHECK_EQ(bo_heap(card.fd, a), EMU_HEAP_VRAM);
	CHECK_EQ(bo_heap(card.fd, b), EMU_HEAP_GTT);
	card_close(&card);
}

static void a_submission_never_evicts_its_vms_always_valid_buffers(void)
{
	struct card card = card_sized("6.12", VRAM_MIB, 128, "");
	uint32_t listed = bo_create(card.fd, 20 * MIB, 0), always;

	card_prepare_submissions(&card);
	always = vram_fill(&card, 12 * MIB, ALWAYS);
	CHECK_EQ(bo_heap(card.fd, listed), EMU_HEAP_VRAM);
	(void)bo_create(card.fd, 14 * MIB, ALWAYS); /* listed has to go */
	CHECK_EQ(bo_heap(card.fd, listed), EMU_HEAP_GTT);
	CHECK_EQ(bo_validate(card.fd, listed, NULL), 0);
	CHECK_EQ(bo_heap(card.fd, listed), EMU_HEAP_GTT);
	CHECK_EQ(bo_heap(card.fd, always), EMU_HEAP_VRAM);
	card_close(&card);
}

/* ---- freeing --------------------------------------------------------------------------------- */

static void memory_is_free_when_what_is_at_work_on_it_is_done(void)
{
	struct card card = card_open("6.12", "");
	uint64_t before = stats(&card).vram_used_bytes;
	uint32_t handle = bo_create(card.fd, MIB, 0);
	struct emu_fence *fence;

	CHECK_EQ(bo_wait(card.fd, handle), 0);
	fence = hold(card.fd, MOVE_OF_BUFFER, handle);
	CHECK_EQ(bo_close(card.fd, handle), 0);
	CHECK_EQ(stats(&card).vram_used_bytes, before + MIB);
	CHECK_EQ(stats(&card).buffers, 1);
	let_go(fence);
	CHECK_EQ(stats(&card).vram_used_bytes, before);
	CHECK_EQ(stats(&card).buffers, 0);
	card_close(&card);
}

static void an_always_valid_buffer_waits_for_its_vm_as_it_was_then(void)
{
	struct card card = card_open("6.12", "");
	uint64_t before = stats(&card).vram_used_bytes;
	uint32_t handle = bo_create(card.fd, MIB, ALWAYS);
	struct emu_fence *fence, *later;

	CHECK_EQ(bo_wait(card.fd, handle), 0);
	fence = hold(card.fd, SUBMISSION_OF_THIS_VM, 0);
	CHECK_EQ(bo_close(card.fd, handle), 0);
	later = hold(card.fd, SUBMISSION_OF_THIS_VM, 0);
	CHECK_EQ(stats(&card).vram_used_bytes, before + MIB);
	let_go(fence);
	CHECK_EQ(stats(&card).vram_used_bytes, before);
	let_go(later);
	card_close(&card);
}

static void a_mapped_buffer_that_is_closed_goes_after_its_entries(void)
{
	struct card card = card_open("6.12", "");
	uint32_t handle = bo_create(card.fd, MIB, 0);
	struct emu_fence *fence;

	CHECK_EQ(va_map(card.fd, handle, 0, VA, 0, MIB), 0);
	settle(card.fd);
	CHECK_EQ(bo_wait(card.fd, handle), 0);
	fence = hold(card.fd, SUBMISSION_OF_THIS_VM, 0);
	CHECK_EQ(bo_close(card.fd, handle), 0);
	/* Clearing waits for the submission, the memory for the clearing. */
	CHECK_EQ(stats(&card).buffers, 1);
	CHECK_EQ(walk_now(card.fd, VA).valid, 1);
	let_go(fence);
	CHECK_UNMAPPED(card.fd, VA);
	CHECK_EQ(stats(&card).buffers, 0);
	CHECK_EQ(stats(&card).stale_accesses, 0);
	card_close(&card);
}

/* The hazard: nothing of an UNMAP holds the memory of a buffer with a reservation of its own. */
static void a_buffer_that_is_unmapped_then_closed_may_go_too_early(void)
{
	struct card card = card_open("6.12", "");
	uint32_t handle = bo_create(card.fd, MIB, 0);
	struct emu_fence *fence;

	CHECK_EQ(va_map(card.fd, handle, 0, VA, 0, MIB), 0);
	settle(card.fd);
	CHECK_EQ(bo_wait(card.fd, handle), 0);
	fence = hold(card.fd, SUBMISSION_OF_THIS_VM, 0);
	CHECK_EQ(va_unmap(card.fd, handle, 0, VA), 0);
	CHECK_EQ(bo_close(card.fd, handle), 0);
	CHECK_EQ(stats(&card).buffers, 0);
	CHECK_EQ(walk_now(card.fd, VA).valid, 1);
	CHECK_EQ(walk_now(card.fd, VA).handle, 0); /* memory that nobody has */
	let_go(fence);
	card_close(&card);
}

static void always_valid_buffers_are_safe_from_that(void)
{
	struct card card = card_open("6.12", "");
	uint32_t handle = bo_create(card.fd, MIB, ALWAYS);
	struct emu_fence *fence;

	CHECK_EQ(va_map(card.fd, handle, 0, VA, 0, MIB), 0);
	settle(card.fd);
	CHECK_EQ(bo_wait(card.fd, handle), 0);
	fence = hold(card.fd, SUBMISSION_OF_THIS_VM, 0);
	CHECK_EQ(va_unmap(card.fd, handle, 0, VA), 0);
	CHECK_EQ(bo_close(card.fd, handle), 0);
	CHECK_EQ(stats(&card).buffers, 1);
	let_go(fence);
	CHECK_UNMAPPED(card.fd, VA);
	CHECK_EQ(stats(&card).buffers, 0);
	card_close(&card);
}

static void dying_memory_can_be_had_by_others_behind_its_fences(void)
{
	FOR_EACH_KERNEL(kernel) {
		struct card card = card_sized(kernel, VRAM_MIB, 64, "");
		uint32_t old = bo_create(card.fd, 60 * MIB, 0), new;
		struct emu_fence *fence;

		CHECK_EQ(bo_wait(card.fd, old), 0);
		fence = hold(card.fd, MOVE_OF_BUFFER, old);
		CHECK_EQ(bo_close(card.fd, old), 0);
		new = bo_create(card.fd, 50 * MIB, 0);
		CHECK_EQ(bo_heap(card.fd, new), EMU_HEAP_VRAM);
		CHECK_EQ(stats(&card).evictions, 0);
		CHECK_EQ(bo_wait_until(card.fd, new, 0), 1);
		let_go(fence);
		CHECK_EQ(bo_wait(card.fd, new), 0);
		CHECK_EQ(stats(&card).buffers, 1);
		card_close(&card);
	}
}

static void nothing_is_left_of_an_eviction(void)
{
	struct card card = card_sized("6.12", VRAM_MIB, 64, "");
	uint32_t old = bo_create(card.fd, 32 * MIB, 0), new = bo_create(card.fd, 40 * MIB, 0);

	CHECK_EQ(stats(&card).evictions, 1);
	CHECK_EQ(bo_wait(card.fd, new), 0);
	CHECK_EQ(bo_wait(card.fd, old), 0);
	CHECK_EQ(bo_close(card.fd, new), 0);
	CHECK_EQ(bo_close(card.fd, old), 0);
	CHECK_EQ(stats(&card).fences, 0);
	card_close(&card);
}

static void nothing_is_left_of_many_buffers(void)
{
	struct card card = card_sized("6.1", VRAM_MIB, 64, "");
	uint64_t before = stats(&card).vram_used_bytes;
	uint32_t handles[16] = { 0 };

	for (uint32_t i = 0; i < 20000; i++) {
		uint32_t *handle = &handles[i * 7 % 16];

		if (*handle)
			CHECK_EQ(bo_close(card.fd, *handle), 0);
		*handle = bo_create_in(card.fd, (i * 31 % 64 + 1) * 64 * KIB, i % 3 ? VRAM : GTT,
		                       i % 2 ? ALWAYS : AMDGPU_GEM_CREATE_VRAM_CLEARED);
	}
	for (int i = 0; i < 16; i++) {
		CHECK_EQ(bo_wait(card.fd, handles[i]), 0);
		CHECK_EQ(bo_close(card.fd, handles[i]), 0);
	}
	CHECK_EQ(stats(&card).buffers, 0);
	CHECK_EQ(stats(&card).vram_used_bytes, before);
	CHECK_EQ(stats(&card).gtt_used_bytes, 0);
	card_close(&card);
}

int main(void)
{
	RUN(a_buffer_for_vram_evicts_others_to_gtt);
	RUN(what_was_used_last_goes_last);
	RUN(always_valid_buffers_count_as_used_by_each_submission);
	RUN(a_buffer_for_either_evicts_nobody_while_there_is_room);
	RUN(without_room_in_gtt_buffers_leave_for_the_system);
	RUN(page_tables_stay);
	RUN(a_buffer_is_not_evicted_for_its_own_page_tables);
	RUN(an_evicted_buffer_keeps_its_contents);
	RUN(an_evicted_always_valid_buffer_comes_back_by_itself);
	RUN(who_is_at_work_in_a_place_never_meets_the_next_there);
	RUN(a_stale_entry_leads_to_the_next_in_the_place);
	RUN(what_may_be_discarded_is_zero_after_eviction);
	RUN(a_submission_brings_back_what_its_budget_allows);
	RUN(evictions_use_up_the_budget_too);
	RUN(what_a_submission_validated_isnt_evicted_by_it);
	RUN(a_submission_never_evicts_its_vms_always_valid_buffers);
	RUN(memory_is_free_when_what_is_at_work_on_it_is_done);
	RUN(an_always_valid_buffer_waits_for_its_vm_as_it_was_then);
	RUN(a_mapped_buffer_that_is_closed_goes_after_its_entries);
	RUN(a_buffer_that_is_unmapped_then_closed_may_go_too_early);
	RUN(always_valid_buffers_are_safe_from_that);
	RUN(dying_memory_can_be_had_by_others_behind_its_fences);
	RUN(nothing_is_left_of_an_eviction);
	RUN(nothing_is_left_of_many_buffers);
	return 0;
}
