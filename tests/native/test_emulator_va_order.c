/* SPDX-License-Identifier: MIT
 *
 * What page-table jobs of the emulated kernel wait for, what submissions wait for, and the syncobjs of
 * GEM_VA on 7.2.
 */
#include <time.h>

#include "vm_fixture.h"

static const char *kernel;
static struct card card;
static int fd;
static uint32_t bo; /* 2 MiB; its page table at VA is made */

static bool kernel_is(const char *name)
{
	return !strcmp(kernel, name);
}

static void let_threads_run(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
}

/* ---- jobs ---------------------------------------------------------------------------------------- */

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

/* ---- submissions --------------------------------------------------------------------------------- */

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

/* Page-table jobs stop at the map of a buffer that is being moved, of which a submission knows nothing. */
static struct emu_fence *block_page_tables(uint32_t moving)
{
	struct emu_fence *move = hold(fd, MOVE_OF_BUFFER, moving);

	CHECK_EQ(va_map(fd, moving, 0, VA + 64 * PAGE, 0, PAGE), 0);
	return move;
}

static void written_and_read_later(uint32_t what, const uint32_t *handles, uint32_t n, uint32_t delay)
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

/* ---- updates by the CPU --------------------------------------------------------------------------- */

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

/* ---- syncobjs of GEM_VA -------------------------------------------------------------------------- */

static uint32_t syncobj_create(void)
{
	struct drm_syncobj_create args = { 0 };

	CHECK_EQ(call(fd, DRM_IOCTL_SYNCOBJ_CREATE, &args), 0);
	return args.handle;
}

static void syncobj_destroy(uint32_t handle)
{
	struct drm_syncobj_destroy args = { .handle = handle };

	CHECK_EQ(call(fd, DRM_IOCTL_SYNCOBJ_DESTROY, &args), 0);
}

static int syncobj_wait(uint32_t handle, int64_t timeout_ns)
{
	struct drm_syncobj_wait args = { .handles = (uintptr_t)&handle, .count_handles = 1,
		                         .timeout_nsec = timeout_ns };

	return call(fd, DRM_IOCTL_SYNCOBJ_WAIT, &args);
}

static int point_wait(uint32_t handle, uint64_t point, int64_t timeout_ns)
{
	struct drm_syncobj_timeline_wait args = { .handles = (uintptr_t)&handle,
		                                  .points = (uintptr_t)&point,
		                                  .count_handles = 1,
		                                  .timeout_nsec = timeout_ns };

	return call(fd, DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT, &args);
}

struct tail {
	uint32_t out;
	uint64_t point;
	const uint32_t *in;
	uint32_t in_count;
};

static int va_synced(uint32_t operation, uint32_t flags, uint64_t address, struct tail tail)
{
	struct drm_amdgpu_gem_va args = { .handle = bo, .operation = operation, .flags = flags,
		                          .va_address = address, .map_size = PAGE,
		                          .vm_timeline_syncobj_out = tail.out,
		                          .vm_timeline_point = tail.point,
		                          .input_fence_syncobj_handles = (uintptr_t)tail.in,
		                          .num_syncobj_handles = tail.in_count };

	return call(fd, DRM_IOCTL_AMDGPU_GEM_VA, &args);
}

static void older_kernels_ignore_the_tail(void)
{
	uint32_t unknown = 999;

	CHECK_EQ(va_synced(AMDGPU_VA_OP_MAP, RW | DELAY, VA,
	                   (struct tail){ 999, 1, &unknown, 1 }), 0);
	CHECK_EQ(va_synced(AMDGPU_VA_OP_UNMAP, 0, VA, (struct tail){ 999, 0, NULL, 7 }), 0);
}

static void delay_with_a_timeline_is_refused(void)
{
	uint32_t out = syncobj_create();

	CHECK_EQ(va_synced(AMDGPU_VA_OP_MAP, RW | DELAY, VA, (struct tail){ .out = out }), -EINVAL);
	/* Before the syncobj is looked up, before the handle is. */
	CHECK_EQ(va_synced(AMDGPU_VA_OP_MAP, RW | DELAY, VA, (struct tail){ .out = 999 }), -EINVAL);
	CHECK_EQ(va_clear(fd, 0, VA, PAGE), 0);
	syncobj_destroy(out);
}

static void unknown_syncobjs_are_enoent_and_change_nothing(void)
{
	uint32_t unknown = 999, zero = 0, empty = syncobj_create();
	uint64_t before = stats(&card).mappings;

	CHECK_EQ(va_synced(AMDGPU_VA_OP_MAP, RW, VA, (struct tail){ .out = 999 }), -ENOENT);
	CHECK_EQ(va_synced(AMDGPU_VA_OP_MAP, RW, VA, (struct tail){ .in = &unknown, .in_count = 1 }),
	         -ENOENT);
	CHECK_EQ(va_synced(AMDGPU_VA_OP_MAP, RW, VA, (struct tail){ .in = &zero, .in_count = 1 }),
	         -EINVAL);
	CHECK_EQ(va_synced(AMDGPU_VA_OP_MAP, RW, VA, (struct tail){ .in = &empty, .in_count = 1 }),
	         -EINVAL);
	CHECK_EQ(va_synced(AMDGPU_VA_OP_MAP, RW, VA,
	                   (struct tail){ .in = (const uint32_t *)16, .in_count = 1 }),
	         -EFAULT);
	/* Inputs come before the timeline, and both before the operation's own errors. */
	CHECK_EQ(va_synced(AMDGPU_VA_OP_MAP, RW, VA,
	                   (struct tail){ .out = 999, .in = &zero, .in_count = 1 }),
	         -EINVAL);
	CHECK_EQ(va_synced(AMDGPU_VA_OP_MAP, RW, VA + 1, (struct tail){ .out = 999 }), -ENOENT);
	CHECK_EQ(stats(&card).mappings, before);
	syncobj_destroy(empty);
}

static void point_zero_replaces_the_binary_fence(void)
{
	uint32_t out = syncobj_create();
	struct emu_fence *move = hold(fd, MOVE_OF_BUFFER, bo);

	CHECK_EQ(va_synced(AMDGPU_VA_OP_MAP, RW, VA, (struct tail){ .out = out }), 0);
	CHECK_EQ(syncobj_wait(out, 0), -ETIME);
	let_go(move);
	CHECK_EQ(syncobj_wait(out, INT64_MAX), 0);
	CHECK_EQ(walk_now(fd, VA).valid, 1);
	CHECK_EQ(va_unmap(fd, bo, 0, VA), 0);
	syncobj_destroy(out);
}

static void other_points_are_added_to_the_timeline(void)
{
	uint32_t out = syncobj_create();
	struct emu_fence *submission;

	CHECK_EQ(va_synced(AMDGPU_VA_OP_MAP, RW, VA, (struct tail){ .out = out, .point = 3 }), 0);
	CHECK_EQ(point_wait(out, 3, INT64_MAX), 0);
	CHECK_EQ(walk_now(fd, VA).valid, 1);
	submission = hold(fd, SUBMISSION_OF_THIS_VM, 0);
	CHECK_EQ(va_synced(AMDGPU_VA_OP_UNMAP, 0, VA, (struct tail){ .out = out, .point = 4 }), 0);
	CHECK_EQ(point_wait(out, 3, 0), 0);
	CHECK_EQ(point_wait(out, 4, 0), -ETIME);
	CHECK_EQ(walk_now(fd, VA).valid, 1);
	let_go(submission);
	CHECK_EQ(point_wait(out, 4, INT64_MAX), 0);
	CHECK_EQ(walk_now(fd, VA).valid, 0);
	syncobj_destroy(out);
}

static void a_call_that_writes_nothing_still_signals(void)
{
	uint32_t out = syncobj_create();

	CHECK_EQ(va_synced(AMDGPU_VA_OP_CLEAR, 0, VA, (struct tail){ .out = out, .point = 1 }), 0);
	CHECK_EQ(point_wait(out, 1, INT64_MAX), 0);
	syncobj_destroy(out);
}

static void a_failed_call_signals_nothing(void)
{
	uint32_t out = syncobj_create();

	CHECK_EQ(va_synced(AMDGPU_VA_OP_UNMAP, 0, VA, (struct tail){ .out = out }), -ENOENT);
	CHECK_EQ(syncobj_wait(out, 0), -EINVAL); /* no fence */
	syncobj_destroy(out);
}

struct waiting_call {
	uint32_t in;
	volatile int done;
};

static void *waiting_call_run(void *argument)
{
	struct waiting_call *waiting = argument;
	int error = va_synced(AMDGPU_VA_OP_MAP, RW, VA,
	                      (struct tail){ .in = &waiting->in, .in_count = 1 });

	__atomic_store_n(&waiting->done, error ? error : 1, __ATOMIC_RELEASE);
	return NULL;
}

static void inputs_are_waited_for_within_the_call_and_without_the_vm(void)
{
	struct waiting_call waiting = { .in = syncobj_create() };
	struct emu_fence *move = hold(fd, MOVE_OF_BUFFER, bo);
	pthread_t thread;

	/* The syncobj is that of a job that can't run yet. */
	CHECK_EQ(va_synced(AMDGPU_VA_OP_MAP, RW, VA + PAGE, (struct tail){ .out = waiting.in }), 0);
	CHECK_EQ(pthread_create(&thread, NULL, waiting_call_run, &waiting), 0);
	let_threads_run();
	CHECK_EQ(__atomic_load_n(&waiting.done, __ATOMIC_ACQUIRE), 0);
	CHECK_EQ(va_map(fd, bo, DELAY, VA + 2 * PAGE, 0, PAGE), 0); /* others get through */
	CHECK_EQ(va_map(fd, bo, DELAY, VA, 0, PAGE), 0);
	CHECK_EQ(va_unmap(fd, bo, DELAY, VA), 0); /* it has nothing mapped yet */
	let_go(move);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(waiting.done, 1);
	CHECK_MAPPED(fd, VA, bo, 0);
	CHECK_EQ(va_clear(fd, 0, VA, HUGE), 0);
	syncobj_destroy(waiting.in);
}

static void run_syncobjs(void)
{
	if (!kernel_is("7.2")) {
		RUN(older_kernels_ignore_the_tail);
		return;
	}
	RUN(delay_with_a_timeline_is_refused);
	RUN(unknown_syncobjs_are_enoent_and_change_nothing);
	RUN(point_zero_replaces_the_binary_fence);
	RUN(other_points_are_added_to_the_timeline);
	RUN(a_call_that_writes_nothing_still_signals);
	RUN(a_failed_call_signals_nothing);
	RUN(inputs_are_waited_for_within_the_call_and_without_the_vm);
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
		run_syncobjs();
		card_close(&card);
	}
	return 0;
}
