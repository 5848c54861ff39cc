/* SPDX-License-Identifier: MIT
 *
 * What page-table jobs of the emulated kernel wait for, and what submissions wait for.
 */
#include "vm_fixture.h"

static const char *kernel;
static struct card card;
static int fd;
static uint32_t bo; /* 2 MiB; its page table at VA is made */

static bool kernel_is(const char *name)
{
	return !strcmp(kernel, name);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static void clears_wait_for_submissions_of_this_vm(void)
{
	struct emu_fence *submission;

	CHECK_EQ(va_map(fd, bo, 0, VA, 0, PAGE), 0);
	settle(fd);
	submission = hold(fd, SUBMISSION_OF_THIS_VM, 0);
	CHECK_EQ(va_unmap(fd, bo, 0, VA), 0);
	let_threads_run();
	CHECK_EQ(walk_now(fd, VA).valid, 1);
	let_go(submission);
	CHECK_UNMAPPED(fd, VA);
}

static void clears_do_not_wait_for_others(void)
{
	struct emu_fence *submission = hold(fd, SUBMISSION_OF_ANOTHER, 0);

	CHECK_EQ(va_map(fd, bo, 0, VA, 0, PAGE), 0);
	CHECK_EQ(va_unmap(fd, bo, 0, VA), 0);
	CHECK_UNMAPPED(fd, VA);
	let_go(submission);
}

static void maps_do_not_wait_for_submissions(void)
{
	struct emu_fence *submission = hold(fd, SUBMISSION_OF_THIS_VM, 0);

	CHECK_EQ(va_map(fd, bo, 0, VA, 0, PAGE), 0);
	CHECK_MAPPED(fd, VA, bo, 0);
	let_go(submission);
	CHECK_EQ(va_unmap(fd, bo, 0, VA), 0);
	settle(fd);
}

static void maps_wait_for_moves_of_their_buffer(void)
{
	struct emu_fence *move = hold(fd, MOVE_OF_BUFFER, bo);

	CHECK_EQ(va_map(fd, bo, 0, VA, 0, PAGE), 0);
	let_threads_run();
	CHECK_EQ(walk_now(fd, VA).valid, 0);
	let_go(move);
	CHECK_MAPPED(fd, VA, bo, 0);
	CHECK_EQ(va_unmap(fd, bo, 0, VA), 0);
	settle(fd);
}

static void prt_maps_wait_for_submissions_before_72(void)
{
	struct emu_fence *submission;

	CHECK_EQ(va_map(fd, bo, 0, VA + PAGE, 0, PAGE), 0);
	settle(fd);
	submission = hold(fd, SUBMISSION_OF_THIS_VM, 0);
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_MAP, 0, PRT, VA, 0, PAGE), 0);
	let_threads_run();
	CHECK_EQ(walk_now(fd, VA).prt, kernel_is("7.2"));
	let_go(submission);
	CHECK_EQ(walk(fd, VA).prt, 1);
	CHECK_EQ(va_clear(fd, 0, VA, HUGE), 0);
}

static void page_table_jobs_of_a_vm_run_in_order(void)
{
	struct emu_fence *submission;

	CHECK_EQ(va_map(fd, bo, 0, VA, 0, PAGE), 0);
	settle(fd);
	submission = hold(fd, SUBMISSION_OF_THIS_VM, 0);
	CHECK_EQ(va_unmap(fd, bo, 0, VA), 0);
	CHECK_EQ(va_map(fd, bo, 0, VA, 8 * PAGE, PAGE), 0); /* waits for nothing but its turn */
	let_threads_run();
	CHECK_EQ(walk_now(fd, VA).offset, 0);
	let_go(submission);
	CHECK_MAPPED(fd, VA, bo, 8 * PAGE);
	CHECK_EQ(va_unmap(fd, bo, 0, VA), 0);
	settle(fd);
}

/* However many are queued: what looks through the reservation stays quick. */
static void queued_page_table_jobs_take_one_place_in_the_reservation(void)
{
	struct emu_file *file = emu_file_get(fd);
	uint32_t before;

	settle(fd);
	before = file->vm->resv.count;
	vmkv_emulator_pause(card.gpu);
	for (uint64_t i = 0; i < 100; i++)
		CHECK_EQ(va_map(fd, bo, 0, VA + i * PAGE, 0, PAGE), 0);
	CHECK(file->vm->resv.count <= before + 1);
	vmkv_emulator_resume(card.gpu);
	emu_file_put(file);
	CHECK_EQ(va_clear(fd, 0, VA, HUGE), 0);
}

/* ---- submissions ----------------------------------------------------------------------------- */

static void an_unmap_waits_for_submissions_and_is_seen_by_later_ones(void)
{
	uint32_t context = context_create(fd), always = bo_create(fd, HUGE, ALWAYS);
	uint64_t before = 0, after = 0;

	CHECK_EQ(va_map(fd, always, 0, VA, 0, PAGE), 0);
	CHECK_EQ(gpu_write(&card, VA, 0x600d), 0);
	vmkv_emulator_pause(card.gpu);
	card.result_view[0] = 0;
	ib_copy(&card, RESULT_VA, VA, 4);
	CHECK_EQ(cs_submit(&card, context, 8, NULL, 0, &before), 0);
	CHECK_EQ(va_unmap(fd, always, 0, VA), 0);
	CHECK_EQ(cs_submit(&card, context, 8, NULL, 0, &after), 0);
	vmkv_emulator_resume(card.gpu);
	CHECK_EQ(cs_wait(fd, context, before), 0);
	CHECK_EQ(card.result_view[0], 0x600d);
	CHECK(cs_wait(fd, context, after) < 0);
	context_destroy(fd, context);
	CHECK_EQ(bo_close(fd, always), 0);
}

/* Page-table jobs stop at the map of a buffer that is being moved, of which a submission knows
 * nothing. */
static struct emu_fence *block_page_tables(uint32_t moving)
{
	struct emu_fence *move = hold(fd, MOVE_OF_BUFFER, moving);

	CHECK_EQ(va_map(fd, moving, 0, VA + 64 * PAGE, 0, PAGE), 0);
	return move;
}

static void written_and_read_later(uint32_t what, const uint32_t *handles, uint32_t n,
                                   uint32_t delay)
{
	uint32_t context = context_create(fd), moving = bo_create(fd, HUGE, 0);
	struct emu_fence *move;
	uint64_t number = 0;

	CHECK_EQ(va_map(fd, what, 0, VA, 0, PAGE), 0);
	CHECK_EQ(cs_nop(&card, &what, 1), 0);
	CHECK_EQ(gpu_write(&card, VA, 0xabcd), 0);
	CHECK_EQ(va_unmap(fd, what, 0, VA), 0);
	settle(fd);
	move = block_page_tables(moving);
	CHECK_EQ(va_map(fd, what, delay, VA, 0, PAGE), 0);
	ib_copy(&card, RESULT_VA, VA, 4);
	card.result_view[0] = 0;
	CHECK_EQ(cs_submit(&card, context, 8, handles, n, &number), 0);
	let_threads_run();
	CHECK_EQ(card.result_view[0], 0);
	let_go(move);
	CHECK_EQ(cs_wait(fd, context, number), 0);
	CHECK_EQ(card.result_view[0], 0xabcd);
	context_destroy(fd, context);
	CHECK_EQ(va_clear(fd, 0, VA, HUGE), 0);
	CHECK_EQ(bo_close(fd, moving), 0);
}

static void a_listed_buffers_map_is_waited_for(void)
{
	written_and_read_later(bo, &bo, 1, 0);
	written_and_read_later(bo, &bo, 1, DELAY);
}

static void an_always_valid_buffers_map_is_waited_for(void)
{
	uint32_t always = bo_create(fd, HUGE, ALWAYS);

	written_and_read_later(always, NULL, 0, 0);
	written_and_read_later(always, NULL, 0, DELAY);
	CHECK_EQ(bo_close(fd, always), 0);
}

/* Neither listed nor always valid: the submission reads before the entry is there. */
static void an_unlisted_buffers_own_map_is_not_waited_for(void)
{
	uint32_t context = context_create(fd);
	struct emu_fence *move;
	uint64_t number = 0, faults;

	card_prepare_submissions(&card);
	CHECK_EQ(va_map(fd, bo, 0, VA + PAGE, 0, PAGE), 0); /* the table is there */
	CHECK_EQ(cs_nop(&card, &bo, 1), 0);
	settle(fd);
	faults = stats(&card).faults;
	move = hold(fd, MOVE_OF_BUFFER, bo);
	CHECK_EQ(va_map(fd, bo, 0, VA, 0, PAGE), 0);
	ib_copy(&card, RESULT_VA, VA, 4);
	CHECK_EQ(cs_submit(&card, context, 8, NULL, 0, &number), 0);
	CHECK(cs_wait(fd, context, number) < 0);
	CHECK_EQ(stats(&card).faults, faults + 1);
	let_go(move);
	CHECK_MAPPED(fd, VA, bo, 0);
	context_destroy(fd, context);
	CHECK_EQ(va_clear(fd, 0, VA, HUGE), 0);
}

/* ---- updates by the CPU ---------------------------------------------------------------------- */

struct slow_call {
	int fd;
	uint32_t handle, operation;
	int done;
};

static void *slow_call_run(void *argument)
{
	struct slow_call *slow = argument;
	int error = va_op(slow->fd, slow->operation, slow->handle, RW, VA, 0, PAGE);

	__atomic_store_n(&slow->done, error ? error : 1, __ATOMIC_RELEASE);
	return NULL;
}

/* The call returns only after that, and then the entry is as it should be. */
static void call_waits_for(int on, struct slow_call slow, struct emu_fence *held, uint32_t valid)
{
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, slow_call_run, &slow), 0);
	let_threads_run();
	CHECK_EQ(__atomic_load_n(&slow.done, __ATOMIC_ACQUIRE), 0);
	CHECK_EQ(walk_now(on, VA).valid, !valid);
	let_go(held);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(slow.done, 1);
	CHECK_EQ(walk_now(on, VA).valid, valid);
}

static void updates_by_the_cpu_wait_within_the_call(void)
{
	struct card other = card_open(kernel, "&vm_update=cpu");
	struct slow_call slow = { .fd = other.fd, .handle = bo_create(other.fd, HUGE, 0) };

	slow.operation = AMDGPU_VA_OP_MAP;
	call_waits_for(other.fd, slow, hold(other.fd, MOVE_OF_BUFFER, slow.handle), 1);
	slow.operation = AMDGPU_VA_OP_UNMAP;
	call_waits_for(other.fd, slow, hold(other.fd, SUBMISSION_OF_THIS_VM, 0), 0);
	card_close(&other);
}

/* ---- many at once ---------------------------------------------------------------------------- */

enum { THREADS = 3, ROUNDS = 200 };

struct worker {
	pthread_t thread;
	uint32_t handle;
	uint64_t at;
	int error;
};

static void *worker_run(void *argument)
{
	struct worker *worker = argument;

	for (int i = 0; i < ROUNDS && !worker->error; i++) {
		uint32_t delay = i & 1 ? DELAY : 0;
		uint64_t at = worker->at + (i % 16) * 16 * PAGE;

		worker->error = va_replace(fd, worker->handle, delay, at, 0, 16 * PAGE);
		if (!worker->error && i % 3 == 0)
			worker->error = va_unmap(fd, worker->handle, delay, at);
		if (!worker->error && i % 5 == 0)
			worker->error = va_clear(fd, delay, worker->at, 8 * PAGE);
		if (!worker->error && i % 50 == 0)
			worker->error = va_clear(fd, 0, worker->at, HUGE);
	}
	if (!worker->error)
		worker->error = va_clear(fd, DELAY, worker->at, HUGE);
	if (!worker->error)
		worker->error = va_map(fd, worker->handle, 0, worker->at, HUGE, HUGE);
	return NULL;
}

static void many_threads_may_change_one_address_space(void)
{
	struct worker workers[THREADS] = { 0 };

	card_prepare_submissions(&card);
	for (uint64_t i = 0; i < THREADS; i++) {
		workers[i].handle = bo_create(fd, 2 * HUGE, i & 1 ? ALWAYS : 0);
		workers[i].at = VA + GIB + i * HUGE;
		CHECK_EQ(pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]), 0);
	}
	for (int i = 0; i < ROUNDS; i++)
		CHECK_EQ(cs_nop(&card, &workers[0].handle, 1), 0);
	for (int i = 0; i < THREADS; i++) {
		CHECK_EQ(pthread_join(workers[i].thread, NULL), 0);
		CHECK_EQ(workers[i].error, 0);
	}
	for (int i = 0; i < THREADS; i++) {
		CHECK_MAPPED(fd, workers[i].at + MIB, workers[i].handle, HUGE + MIB);
		CHECK_EQ(bo_close(fd, workers[i].handle), 0);
	}
}

static void many_operations_leave_nothing(void)
{
	struct vmkv_emulator_stats before, after;

	CHECK_EQ(cs_nop(&card, &bo, 1), 0);
	settle(fd);
	before = stats(&card);
	for (uint64_t i = 0; i < 20000; i++) {
		uint64_t at = VA + (i % 500) * PAGE;

		CHECK_EQ(va_map(fd, bo, i % 7 ? DELAY : 0, at, 0, PAGE), 0);
		if (i % 500 == 499)
			CHECK_EQ(va_clear(fd, 0, VA, HUGE), 0);
	}
	CHECK_EQ(cs_nop(&card, &bo, 1), 0);
	settle(fd);
	after = stats(&card);
	CHECK_EQ(after.mappings, before.mappings);
	CHECK_EQ(after.page_table_bytes, before.page_table_bytes);
	CHECK_EQ(after.vram_used_bytes, before.vram_used_bytes);
	CHECK(after.fences <= before.fences + 4);
}

int main(void)
{
	FOR_EACH_KERNEL(name) {
		kernel = name;
		card = card_open(kernel, "");
		fd = card.fd;
		bo = bo_create(fd, HUGE, 0);
		CHECK_EQ(va_map(fd, bo, 0, VA, 0, PAGE), 0);
		CHECK_EQ(va_unmap(fd, bo, 0, VA), 0);
		settle(fd);
		RUN(clears_wait_for_submissions_of_this_vm);
		RUN(clears_do_not_wait_for_others);
		RUN(maps_do_not_wait_for_submissions);
		RUN(maps_wait_for_moves_of_their_buffer);
		RUN(prt_maps_wait_for_submissions_before_72);
		RUN(page_table_jobs_of_a_vm_run_in_order);
		RUN(queued_page_table_jobs_take_one_place_in_the_reservation);
		RUN(an_unmap_waits_for_submissions_and_is_seen_by_later_ones);
		RUN(a_listed_buffers_map_is_waited_for);
		RUN(an_always_valid_buffers_map_is_waited_for);
		RUN(an_unlisted_buffers_own_map_is_not_waited_for);
		RUN(updates_by_the_cpu_wait_within_the_call);
		RUN(many_threads_may_change_one_address_space);
		RUN(many_operations_leave_nothing);
		card_close(&card);
	}
	return 0;
}
