/* SPDX-License-Identifier: MIT
 *
 * Syncobjs: binary ones, timelines, descriptors.
 */
#include <poll.h>
#include <pthread.h>

#include "cs_fixture.h"

#define ALL DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL
#define FOR_SUBMIT DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT
#define AVAILABLE DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE
#define LAST_SUBMITTED DRM_SYNCOBJ_QUERY_FLAGS_LAST_SUBMITTED

static struct bench bench;
static int fd;

static int array_call(unsigned long request, const uint32_t *handles, uint32_t n)
{
	struct drm_syncobj_array args = { .handles = (uintptr_t)handles, .count_handles = n };

	return call(fd, request, &args);
}

static int reset(uint32_t handle)
{
	return array_call(DRM_IOCTL_SYNCOBJ_RESET, &handle, 1);
}

static int signal_one(uint32_t handle)
{
	return array_call(DRM_IOCTL_SYNCOBJ_SIGNAL, &handle, 1);
}

/* A submission that signals, while the card is paused. */
static void submit_point(uint32_t handle, uint64_t point)
{
	struct drm_amdgpu_cs_chunk_syncobj out = { .handle = handle, .point = point };

	CHECK_EQ(slot_submit_with(&bench, 0, AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL, &out, sizeof(out),
	                          NULL),
	         0);
}

static void pause_card(void)
{
	vmkv_emulator_pause(bench.card.gpu);
}

static void resume_card(void)
{
	vmkv_emulator_resume(bench.card.gpu);
}

/* ---- handles ------------------------------------------------------------------------------------- */

static void syncobjs_are_made_and_destroyed(void)
{
	struct drm_syncobj_create create = { .flags = 2 };
	struct drm_syncobj_destroy destroy = { .handle = 1, .pad = 1 };
	uint32_t a = syncobj_make(fd, 0);

	CHECK_EQ(call(fd, DRM_IOCTL_SYNCOBJ_CREATE, &create), -EINVAL);
	CHECK_EQ(call(fd, DRM_IOCTL_SYNCOBJ_DESTROY, &destroy), -EINVAL);
	CHECK_EQ(stats(&bench.card).syncobjs, 1);
	CHECK_EQ(syncobj_end(fd, a), 0);
	CHECK_EQ(syncobj_end(fd, a), -EINVAL);
	CHECK_EQ(stats(&bench.card).syncobjs, 0);
}

static void one_may_be_made_signalled(void)
{
	uint32_t a = syncobj_make(fd, DRM_SYNCOBJ_CREATE_SIGNALED);

	CHECK_EQ(syncobj_wait_one(fd, a, 0), 0);
	CHECK_EQ(reset(a), 0);
	CHECK_EQ(syncobj_wait_one(fd, a, 0), -EINVAL);
	CHECK_EQ(signal_one(a), 0);
	CHECK_EQ(syncobj_wait_one(fd, a, 0), 0);
	CHECK_EQ(syncobj_end(fd, a), 0);
}

static void arrays_are_checked(void)
{
	uint32_t handles[2] = { syncobj_make(fd, DRM_SYNCOBJ_CREATE_SIGNALED), 4711 };
	struct drm_syncobj_array padded = { .handles = (uintptr_t)handles, .count_handles = 1, .pad = 1 };
	static const unsigned long requests[] = { DRM_IOCTL_SYNCOBJ_RESET, DRM_IOCTL_SYNCOBJ_SIGNAL };

	for (int i = 0; i < 2; i++) {
		CHECK_EQ(array_call(requests[i], handles, 0), -EINVAL);
		CHECK_EQ(array_call(requests[i], handles, 2), -ENOENT);
		CHECK_EQ(array_call(requests[i], (uint32_t *)8, 1), -EFAULT);
		CHECK_EQ(call(fd, requests[i], &padded), -EINVAL);
	}
	CHECK_EQ(syncobj_wait_one(fd, handles[0], 0), 0); /* none of them did a thing */
	CHECK_EQ(syncobjs_wait(fd, handles, 2, 0, 0, NULL), -ENOENT);
	CHECK_EQ(syncobjs_wait(fd, (uint32_t *)8, 1, 0, 0, NULL), -EFAULT);
	CHECK_EQ(points_wait(fd, handles, (uint64_t *)8, 1, 0, 0), -EFAULT);
	CHECK_EQ(syncobj_end(fd, handles[0]), 0);
}

static void flags_that_a_kernel_lacks_are_refused(void)
{
	FOR_EACH_KERNEL(kernel) {
		struct bench before = bench;
		bool old = !strcmp(kernel, "6.1");
		uint64_t point = 0, refused;
		struct drm_syncobj_timeline_array args = { .points = (uintptr_t)&point,
			                                   .count_handles = 1, .flags = 2 };
		uint32_t a;

		bench = bench_open(kernel, "");
		a = syncobj_make(bench.fd, DRM_SYNCOBJ_CREATE_SIGNALED);
		args.handles = (uintptr_t)&a;
		refused = stats(&bench.card).refused;
		CHECK_EQ(syncobjs_wait(bench.fd, &a, 1, AVAILABLE, 0, NULL), -EINVAL);
		CHECK_EQ(syncobjs_wait(bench.fd, &a, 1, 1u << 4, 0, NULL), -EINVAL);
		CHECK_EQ(point_wait(bench.fd, a, 0, 1u << 4, 0), -EINVAL);
		CHECK_EQ(call(bench.fd, DRM_IOCTL_SYNCOBJ_QUERY, &args), -EINVAL);
		args.flags = 1;
		CHECK_EQ(call(bench.fd, DRM_IOCTL_SYNCOBJ_TIMELINE_SIGNAL, &args), -EINVAL);
		CHECK_EQ(stats(&bench.card).refused, refused + 5);
		CHECK_EQ(syncobjs_wait(bench.fd, &a, 1, DRM_SYNCOBJ_WAIT_FLAGS_WAIT_DEADLINE, 0, NULL),
		         old ? -EINVAL : 0);
		bench_close(&bench);
		bench = before;
	}
}

/* ---- waiting ------------------------------------------------------------------------------------- */

static void a_wait_ends_at_its_deadline(void)
{
	struct drm_amdgpu_cs_chunk_sem out = { .handle = syncobj_make(fd, 0) };
	int64_t deadline;

	pause_card();
	CHECK_EQ(slot_submit_with(&bench, 0, AMDGPU_CHUNK_ID_SYNCOBJ_OUT, &out, sizeof(out), NULL), 0);
	CHECK_EQ(syncobj_wait_one(fd, out.handle, 0), -ETIME);
	CHECK_EQ(syncobj_wait_one(fd, out.handle, 1), -ETIME); /* long past */
	CHECK_EQ(syncobj_wait_one(fd, out.handle, -1), -ETIME);
	deadline = SOON;
	CHECK_EQ(syncobj_wait_one(fd, out.handle, deadline), -ETIME);
	CHECK(time_ns() >= deadline);
	resume_card();
	CHECK_EQ(syncobj_wait_one(fd, out.handle, INT64_MAX), 0);
	CHECK_EQ(syncobj_end(fd, out.handle), 0);
}

static void waiting_for_any_tells_which(void)
{
	uint32_t handles[3] = { syncobj_make(fd, 0), syncobj_make(fd, 0), syncobj_make(fd, 0) }, first;

	CHECK_EQ(syncobjs_wait(fd, handles, 3, 0, 0, &first), -EINVAL); /* none is submitted */
	CHECK_EQ(syncobjs_wait(fd, handles, 3, FOR_SUBMIT, SOON, &first), -ETIME);
	CHECK_EQ(signal_one(handles[1]), 0);
	CHECK_EQ(syncobjs_wait(fd, handles, 3, 0, 0, &first), -EINVAL);
	CHECK_EQ(syncobjs_wait(fd, handles, 3, FOR_SUBMIT, 0, &first), 0);
	CHECK_EQ(first, 1);
	CHECK_EQ(syncobjs_wait(fd, handles, 3, FOR_SUBMIT | ALL, SOON, &first), -ETIME);
	CHECK_EQ(signal_one(handles[0]), 0);
	CHECK_EQ(signal_one(handles[2]), 0);
	CHECK_EQ(syncobjs_wait(fd, handles, 3, ALL, 0, &first), 0);
	CHECK_EQ(syncobjs_wait(fd, handles, 3, 0, 0, &first), 0);
	CHECK_EQ(first, 0);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(syncobj_end(fd, handles[i]), 0);
}

static void *signal_later(void *handle)
{
	usleep(20000);
	CHECK_EQ(point_signal(fd, *(uint32_t *)handle, 5), 0);
	return NULL;
}

static void waiting_for_a_submission_wakes_up(void)
{
	uint32_t a = syncobj_make(fd, 0);
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, signal_later, &a), 0);
	CHECK_EQ(point_wait(fd, a, 3, FOR_SUBMIT, INT64_MAX), 0);
	pthread_join(thread, NULL);
	CHECK_EQ(syncobj_end(fd, a), 0);
}

static void a_submission_waits_for_a_point_to_come(void)
{
	struct drm_amdgpu_cs_chunk_syncobj in = { .handle = syncobj_make(fd, 0), .point = 5,
		                                  .flags = FOR_SUBMIT };
	pthread_t thread;
	uint64_t number = 0;

	CHECK_EQ(pthread_create(&thread, NULL, signal_later, &in.handle), 0);
	CHECK_EQ(slot_submit_with(&bench, 0, AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT, &in, sizeof(in),
	                          &number),
	         0);
	CHECK_EQ(wait_for(&bench, number), 0);
	pthread_join(thread, NULL);
	CHECK_EQ(syncobj_end(fd, in.handle), 0);
}

/* ---- timelines ----------------------------------------------------------------------------------- */

static void points_are_reached_in_order(void)
{
	uint32_t a = syncobj_make(fd, 0);

	CHECK_EQ(point_query(fd, a, 0), 0);
	pause_card();
	submit_point(a, 3);
	CHECK_EQ(point_signal(fd, a, 7), 0); /* done, but what is before it isn't */
	CHECK_EQ(point_query(fd, a, 0), 0);
	CHECK_EQ(point_query(fd, a, LAST_SUBMITTED), 7);
	CHECK_EQ(point_wait(fd, a, 1, 0, 0), -ETIME);
	CHECK_EQ(point_wait(fd, a, 7, 0, 0), -ETIME);
	CHECK_EQ(point_wait(fd, a, 7, AVAILABLE, 0), 0);
	CHECK_EQ(point_wait(fd, a, 8, 0, 0), -EINVAL);
	CHECK_EQ(point_wait(fd, a, 8, AVAILABLE, SOON), -ETIME);
	resume_card();
	CHECK_EQ(point_wait(fd, a, 7, 0, INT64_MAX), 0);
	CHECK_EQ(point_query(fd, a, 0), 7);
	CHECK_EQ(point_wait(fd, a, 1, 0, 0), 0);
	CHECK_EQ(point_wait(fd, a, 0, 0, 0), 0);
	CHECK_EQ(reset(a), 0);
	CHECK_EQ(point_query(fd, a, LAST_SUBMITTED), 0);
	CHECK_EQ(syncobj_end(fd, a), 0);
}

static void a_point_that_does_not_go_up_begins_anew(void)
{
	uint32_t a = syncobj_make(fd, 0);

	CHECK_EQ(point_signal(fd, a, 5), 0);
	CHECK_EQ(point_query(fd, a, 0), 5);
	pause_card();
	submit_point(a, 4);
	CHECK_EQ(point_query(fd, a, 0), 0);
	CHECK_EQ(point_query(fd, a, LAST_SUBMITTED), 5);
	CHECK_EQ(point_wait(fd, a, 2, 0, 0), -ETIME);
	resume_card();
	CHECK_EQ(point_wait(fd, a, 5, 0, INT64_MAX), 0);
	CHECK_EQ(point_query(fd, a, 0), 5);
	CHECK_EQ(syncobj_end(fd, a), 0);
}

static int transfer(uint32_t to, uint64_t to_point, uint32_t from, uint64_t from_point, uint32_t flags)
{
	struct drm_syncobj_transfer args = { .src_handle = from, .dst_handle = to,
		                             .src_point = from_point, .dst_point = to_point,
		                             .flags = flags };

	return call(fd, DRM_IOCTL_SYNCOBJ_TRANSFER, &args);
}

static void transfers_go_between_points_and_binary_ones(void)
{
	uint32_t a = syncobj_make(fd, 0), b = syncobj_make(fd, 0), c = syncobj_make(fd, 0);
	struct drm_syncobj_transfer padded = { .src_handle = a, .dst_handle = b, .pad = 1 };

	CHECK_EQ(transfer(b, 0, a, 0, 0), -EINVAL); /* no fence there */
	CHECK_EQ(transfer(4711, 0, a, 0, 0), -ENOENT);
	CHECK_EQ(transfer(b, 0, 4711, 0, 0), -ENOENT);
	CHECK_EQ(call(fd, DRM_IOCTL_SYNCOBJ_TRANSFER, &padded), -EINVAL);
	CHECK_EQ(transfer(b, 0, a, 0, ALL), -EINVAL);
	pause_card();
	submit_point(a, 2);
	CHECK_EQ(transfer(b, 0, a, 2, 0), 0);
	CHECK_EQ(transfer(c, 9, b, 0, 0), 0);
	CHECK_EQ(transfer(b, 0, a, 3, 0), -EINVAL);
	CHECK_EQ(reset(a), 0);
	CHECK_EQ(syncobj_wait_one(fd, b, 0), -ETIME);
	CHECK_EQ(point_wait(fd, c, 9, 0, 0), -ETIME);
	resume_card();
	CHECK_EQ(point_wait(fd, c, 9, 0, INT64_MAX), 0);
	CHECK_EQ(syncobj_wait_one(fd, b, INT64_MAX), 0);
	CHECK_EQ(syncobj_end(fd, a), 0);
	CHECK_EQ(syncobj_end(fd, b), 0);
	CHECK_EQ(syncobj_end(fd, c), 0);
}

static void a_long_timeline_costs_no_stack_and_no_fences(void)
{
	uint32_t a = syncobj_make(fd, 0);
	uint64_t fences;

	pause_card();
	submit_point(a, 1);
	fences = stats(&bench.card).fences;
	for (uint64_t point = 2; point <= 100000; point++)
		CHECK_EQ(point_signal(fd, a, point), 0);
	CHECK_EQ(point_query(fd, a, 0), 0);
	resume_card();
	CHECK_EQ(point_wait(fd, a, 100000, 0, INT64_MAX), 0);
	CHECK_EQ(point_query(fd, a, 0), 100000);
	CHECK(stats(&bench.card).fences <= fences + 1);
	CHECK_EQ(syncobj_end(fd, a), 0);
}

/* ---- descriptors --------------------------------------------------------------------------------- */

static int handle_call(unsigned long request, uint32_t handle, uint32_t flags, int in, uint32_t *out,
                       int *out_fd)
{
	struct drm_syncobj_handle args = { .handle = handle, .flags = flags, .fd = in };
	int error = call(fd, request, &args);

	if (out)
		*out = args.handle;
	if (out_fd)
		*out_fd = args.fd;
	return error;
}

#define TO_FD(handle, flags, out)                                                                  \
	handle_call(DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD, handle, flags, -1, NULL, out)
#define FROM_FD(in, out) handle_call(DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE, 0, 0, in, out, NULL)
#define SYNC_FILE_INTO(handle, in) handle_call(DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE, handle, 1, in, NULL, NULL)

static void a_descriptor_is_the_same_syncobj(void)
{
	uint32_t a = syncobj_make(fd, 0), b;
	int out, copy;

	CHECK_EQ(TO_FD(4711, 0, &out), -EINVAL);
	CHECK_EQ(TO_FD(a, 4, &out), -EINVAL);
	CHECK_EQ(TO_FD(a, 0, &out), 0);
	copy = dup(out);
	close(out);
	CHECK_EQ(FROM_FD(copy, &b), 0);
	CHECK(b != a);
	CHECK_EQ(signal_one(a), 0);
	CHECK_EQ(syncobj_wait_one(fd, b, 0), 0);
	CHECK_EQ(syncobj_end(fd, a), 0);
	CHECK_EQ(syncobj_wait_one(fd, b, 0), 0);
	CHECK_EQ(syncobj_end(fd, b), 0);
	CHECK_EQ(FROM_FD(copy, &b), 0); /* the descriptor alone keeps it */
	CHECK_EQ(syncobj_wait_one(fd, b, 0), 0);
	CHECK_EQ(SYNC_FILE_INTO(b, copy), -EINVAL); /* it is no sync file */
	close(copy);
	CHECK_EQ(syncobj_end(fd, b), 0);
	CHECK_EQ(FROM_FD(0, &b), -EINVAL);
	CHECK_EQ(FROM_FD(-1, &b), -EINVAL);
}

static bool is_readable(int descriptor)
{
	struct pollfd poll_fd = { .fd = descriptor, .events = POLLIN };

	CHECK(poll(&poll_fd, 1, 0) >= 0);
	return poll_fd.revents & POLLIN;
}

static void a_sync_file_is_readable_once_its_fence_is_signalled(void)
{
	uint32_t a = syncobj_make(fd, 0), b = syncobj_make(fd, 0);
	struct drm_amdgpu_cs_chunk_sem out = { .handle = a };
	struct pollfd poll_fd = { .events = POLLIN };
	int file, done;

	CHECK_EQ(TO_FD(a, 1, &file), -EINVAL); /* nothing in it */
	CHECK_EQ(TO_FD(4711, 1, &file), -ENOENT);
	pause_card();
	CHECK_EQ(slot_submit_with(&bench, 0, AMDGPU_CHUNK_ID_SYNCOBJ_OUT, &out, sizeof(out), NULL), 0);
	CHECK_EQ(TO_FD(a, 1, &file), 0);
	CHECK_EQ(signal_one(a), 0); /* the file keeps its fence */
	CHECK(!is_readable(file));
	CHECK_EQ(SYNC_FILE_INTO(b, file), 0);
	CHECK_EQ(SYNC_FILE_INTO(4711, file), -ENOENT);
	CHECK_EQ(FROM_FD(file, &(uint32_t){ 0 }), -EINVAL); /* it is no syncobj */
	CHECK_EQ(syncobj_wait_one(fd, b, 0), -ETIME);
	resume_card();
	poll_fd.fd = file;
	CHECK_EQ(poll(&poll_fd, 1, 10000), 1);
	CHECK_EQ(syncobj_wait_one(fd, b, 0), 0);
	CHECK_EQ(TO_FD(a, 1, &done), 0);
	CHECK(is_readable(done));
	close(done);
	close(file);
	CHECK_EQ(syncobj_end(fd, a), 0);
	CHECK_EQ(syncobj_end(fd, b), 0);
}

static uint32_t descriptors_open(void)
{
	uint32_t n = 0;

	for (int i = 0; i < 1024; i++)
		n += fcntl(i, F_GETFD) >= 0;
	return n;
}

static void closed_descriptors_keep_nothing(void)
{
	struct vmkv_emulator_stats before = stats(&bench.card);
	uint32_t descriptors = descriptors_open();

	for (int i = 0; i < 300; i++) {
		struct drm_amdgpu_cs_chunk_sem out = { .handle = syncobj_make(fd, 0) };
		int opened[2];

		CHECK_EQ(slot_submit_with(&bench, 0, AMDGPU_CHUNK_ID_SYNCOBJ_OUT, &out, sizeof(out),
		                          NULL),
		         0);
		CHECK_EQ(TO_FD(out.handle, 0, &opened[0]), 0);
		CHECK_EQ(TO_FD(out.handle, 1, &opened[1]), 0);
		close(opened[0]);
		close(opened[1]);
		CHECK_EQ(syncobj_end(fd, out.handle), 0);
	}
	CHECK_EQ(slot_run(&bench, 0), 0);
	CHECK_EQ(slot_run(&bench, 0), 0); /* the VM forgets what is done when there is something new */
	context_destroy(fd, bench.context);
	bench.context = context_create(fd);
	CHECK_EQ(descriptors_open(), descriptors);
	CHECK(stats(&bench.card).fences <= before.fences + 4); /* what the VM last waited for */
}

/* On 7.2 a sync file goes from and to a point. */
static void points_have_sync_files_on_7_2(void)
{
	struct bench before = bench;
	struct drm_syncobj_handle args = { .flags = 3, .point = 4 };
	uint32_t a;

	args.handle = a = syncobj_make(fd, 0);
	CHECK_EQ(point_signal(fd, a, 4), 0);
	CHECK_EQ(call(fd, DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD, &args), -EINVAL);
	CHECK_EQ(syncobj_end(fd, a), 0);
	bench = bench_open("7.2", "");
	args.handle = a = syncobj_make(bench.fd, 0);
	CHECK_EQ(call(bench.fd, DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD, &args), -EINVAL);
	CHECK_EQ(point_signal(bench.fd, a, 4), 0);
	CHECK_EQ(call(bench.fd, DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD, &args), 0);
	args.point = 6;
	CHECK_EQ(call(bench.fd, DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE, &args), 0);
	CHECK_EQ(point_query(bench.fd, a, 0), 6);
	close(args.fd);
	bench_close(&bench);
	bench = before;
}

int main(void)
{
	bench = bench_open("6.12", "");
	fd = bench.fd;
	memset(slot(&bench, 0), 0, PAGE);
	RUN(syncobjs_are_made_and_destroyed);
	RUN(one_may_be_made_signalled);
	RUN(arrays_are_checked);
	RUN(flags_that_a_kernel_lacks_are_refused);
	RUN(a_wait_ends_at_its_deadline);
	RUN(waiting_for_any_tells_which);
	RUN(waiting_for_a_submission_wakes_up);
	RUN(a_submission_waits_for_a_point_to_come);
	RUN(points_are_reached_in_order);
	RUN(a_point_that_does_not_go_up_begins_anew);
	RUN(transfers_go_between_points_and_binary_ones);
	RUN(a_long_timeline_costs_no_stack_and_no_fences);
	RUN(a_descriptor_is_the_same_syncobj);
	RUN(a_sync_file_is_readable_once_its_fence_is_signalled);
	RUN(closed_descriptors_keep_nothing);
	RUN(points_have_sync_files_on_7_2);
	bench_close(&bench);
	return 0;
}
