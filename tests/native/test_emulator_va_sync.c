/* SPDX-License-Identifier: MIT
 *
 * The syncobjs of GEM_VA, which Linux 7.2 added and older kernels ignore.
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
	CHECK_EQ(va_synced(AMDGPU_VA_OP_MAP, RW, VA,
	                   (struct tail){ .in = &unknown, .in_count = 1 }),
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
		run_syncobjs();
		card_close(&card);
	}
	return 0;
}
