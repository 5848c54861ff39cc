/* SPDX-License-Identifier: MIT
 *
 * SYNCOBJ_EVENTFD: what an eventfd is told of a syncobj, and when; and waiting for no syncobj at all.
 */
#include <sys/eventfd.h>

#include "cs_fixture.h"

#define AVAILABLE DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE

static struct bench bench;
static int fd;

static int watch(uint32_t syncobj, uint64_t point, uint32_t flags, int eventfd)
{
	struct drm_syncobj_eventfd args = { .handle = syncobj, .flags = flags, .point = point,
		                            .fd = eventfd };

	return call(fd, DRM_IOCTL_SYNCOBJ_EVENTFD, &args);
}

/* How often it was told since the last look. */
static uint64_t told(int eventfd)
{
	uint64_t n = 0;

	return read(eventfd, &n, sizeof(n)) == sizeof(n) ? n : 0;
}

static int eventfd_make(void)
{
	int made = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

	CHECK(made >= 0);
	return made;
}

static void a_reached_point_tells_at_once(void)
{
	uint32_t binary = syncobj_make(fd, DRM_SYNCOBJ_CREATE_SIGNALED), timeline = syncobj_make(fd, 0);
	int event = eventfd_make();

	CHECK_EQ(watch(binary, 0, 0, event), 0);
	CHECK_EQ(told(event), 1);
	CHECK_EQ(point_signal(fd, timeline, 5), 0);
	CHECK_EQ(watch(timeline, 4, 0, event), 0);
	CHECK_EQ(watch(timeline, 5, AVAILABLE, event), 0);
	CHECK_EQ(told(event), 2);
	close(event);
	syncobj_end(fd, binary);
	syncobj_end(fd, timeline);
}

static void a_point_to_come_tells_when_it_is_reached(void)
{
	uint32_t timeline = syncobj_make(fd, 0);
	struct drm_amdgpu_cs_chunk_syncobj out = { .handle = timeline, .point = 3 };
	int reached = eventfd_make(), available = eventfd_make(), later = eventfd_make();
	uint64_t number = 0;

	CHECK_EQ(watch(timeline, 3, 0, reached), 0);
	CHECK_EQ(watch(timeline, 2, AVAILABLE, available), 0);
	CHECK_EQ(watch(timeline, 4, 0, later), 0);
	CHECK_EQ(told(reached) + told(available), 0);
	vmkv_emulator_pause(bench.card.gpu);
	memset(slot(&bench, 0), 0, PAGE);
	CHECK_EQ(slot_submit_with(&bench, 0, AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL, &out, sizeof(out),
	                          &number), 0);
	CHECK_EQ(told(available), 1);
	CHECK_EQ(told(reached), 0);
	vmkv_emulator_resume(bench.card.gpu);
	CHECK_EQ(wait_for(&bench, number), 0);
	CHECK_EQ(told(reached), 1);
	CHECK_EQ(told(later), 0);
	/* Once only */
	CHECK_EQ(point_signal(fd, timeline, 5), 0);
	CHECK_EQ(told(reached) + told(available), 0);
	CHECK_EQ(told(later), 1);
	syncobj_end(fd, timeline);
	close(reached);
	close(available);
	close(later);
}

static void who_watches_a_syncobj_that_goes_is_told_nothing(void)
{
	uint32_t syncobj = syncobj_make(fd, 0);
	int event = eventfd_make();

	CHECK_EQ(watch(syncobj, 0, 0, event), 0);
	CHECK_EQ(syncobj_end(fd, syncobj), 0);
	CHECK_EQ(told(event), 0);
	close(event);
}

static void arguments_are_checked(void)
{
	struct drm_syncobj_eventfd args = { .handle = syncobj_make(fd, 0), .fd = eventfd_make(), .pad = 1 };
	int file = open("/dev/null", O_RDONLY | O_CLOEXEC);

	CHECK_EQ(call(fd, DRM_IOCTL_SYNCOBJ_EVENTFD, &args), -EINVAL);
	CHECK_EQ(watch(args.handle, 0, DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL, args.fd), -EINVAL);
	CHECK_EQ(watch(args.handle + 1, 0, 0, args.fd), -ENOENT);
	CHECK_EQ(watch(args.handle, 0, 0, file), -EINVAL);
	CHECK_EQ(watch(args.handle, 0, 0, -1), -EBADF);
	close(file);
	close(args.fd);
	syncobj_end(fd, args.handle);
}

static void kernel_6_1_has_no_eventfds_and_waits_for_something(void)
{
	FOR_EACH_KERNEL(kernel) {
		bool old = !strcmp(kernel, "6.1");
		struct card card = card_open(kernel, "");
		struct drm_syncobj_eventfd args = { .fd = eventfd_make() };
		struct drm_syncobj_wait wait = { .timeout_nsec = 0 };

		CHECK_EQ(call(card.fd, DRM_IOCTL_SYNCOBJ_EVENTFD, &args), old ? -EINVAL : -ENOENT);
		CHECK_EQ(call(card.fd, DRM_IOCTL_SYNCOBJ_WAIT, &wait), old ? -EINVAL : 0);
		wait.flags = 1u << 9;
		CHECK_EQ(call(card.fd, DRM_IOCTL_SYNCOBJ_WAIT, &wait), -EINVAL);
		CHECK_EQ(points_wait(card.fd, NULL, NULL, 0, 0, 0), old ? -EINVAL : 0);
		close(args.fd);
		card_close(&card);
	}
}

int main(void)
{
	bench = bench_open("6.12", "");
	fd = bench.fd;
	RUN(a_reached_point_tells_at_once);
	RUN(a_point_to_come_tells_when_it_is_reached);
	RUN(who_watches_a_syncobj_that_goes_is_told_nothing);
	RUN(arguments_are_checked);
	RUN(kernel_6_1_has_no_eventfds_and_waits_for_something);
	bench_close(&bench);
	return 0;
}
