/* SPDX-License-Identifier: MIT
 *
 * Points for others: an engine's submissions wait for them on the card, other files and poll(2) in the
 * process.
 */
#include <poll.h>
#include <time.h>

#include "engine_fixture.h"

#define CARD "gfx1201?vram=256MiB"
#define WORDS 1024
#define SEEDS 24 /* orders in which jobs that may run do */

struct waiting {
	struct engine e;
	struct rig r;
	uint64_t address;
	uint64_t point; /* of a fill of WORDS words at address that the card hasn't begun */
};

/* The card is paused. */
static void waiting_begin(struct waiting *w, const char *spec)
{
	vmkv_seq seq;
	struct vmkv_step_result result = { .struct_size = sizeof(result) };

	engine_begin(&w->e, spec);
	rig_prepare(&w->r, engine_adopted(&w->e, "amdgpu"));
	rig_create(&w->r);
	seq = seq_open(&w->r);
	CHECK_EQ(try_steps(&w->r, &seq, (uint32_t[]){ 100 }, 1, 0, &result), 0);
	CHECK_EQ(vmkv_wait(w->r.device, result.ready, UINT64_MAX), 0);
	w->address = span_of(&w->r, seq, 0, 0, 0).address;
	vmkv_emulator_pause(w->e.emulator);
	CHECK_EQ(vmkv_fill(w->r.device, w->address, 4 * WORDS, 0x5eed, &w->point), 0);
	CHECK(w->point > result.ready);
	CHECK_EQ(vmkv_wait(w->r.device, w->point, 0), -ETIME);
}

static void waiting_end(struct waiting *w)
{
	vmkv_cache_destroy(w->r.cache);
	CHECK_EQ(vmkv_device_close(w->r.device), 0);
	engine_end(&w->e);
}

static int file_call(struct waiting *w, int fd, unsigned long request, void *argument)
{
	return vmkv_libdrm_result(w->e.drm.drmIoctl(fd, request, argument));
}

/* ---- the engine's own submission waits ------------------------------------------------------------ */

enum what { NOTHING, SYNC_FILE, TIMELINE };

/* A syncobj of the engine's that holds a sync file's fence. */
static uint32_t syncobj_of(struct waiting *w, uint64_t point)
{
	uint32_t syncobj;
	int fd;

	CHECK_EQ(vmkv_point_export(w->r.device, point, &fd), 0);
	CHECK_EQ(w->e.drm.amdgpu_cs_create_syncobj2(w->e.handle, 0, &syncobj), 0);
	CHECK_EQ(w->e.drm.amdgpu_cs_syncobj_import_sync_file(w->e.handle, syncobj, fd), 0);
	close(fd);
	return syncobj;
}

static struct engine_wants wants_of(struct waiting *w, enum what what)
{
	struct engine_wants wants = { 0 };

	if (what == SYNC_FILE) {
		wants.wait = syncobj_of(w, w->point);
	} else if (what == TIMELINE) {
		wants.wait = info_of(w->r.device).syncobj;
		wants.wait_point = w->point;
	}
	return wants;
}

/* Whether the engine's submission, which copies what the fill writes, came after it. */
static bool comes_after(enum what what, int seed)
{
	struct waiting w;
	struct engine_wants wants;
	char spec[64];
	uint64_t sequence;
	bool after;

	snprintf(spec, sizeof(spec), CARD "&seed=%d", seed);
	waiting_begin(&w, spec);
	wants = wants_of(&w, what);
	engine_copy(&w.e, engine_data(&w.e, 0), w.address, 4 * WORDS);
	CHECK_EQ(engine_submit(&w.e, &wants, &sequence), 0);
	vmkv_emulator_resume(w.e.emulator);
	CHECK_EQ(engine_wait(&w.e, sequence), 0);
	CHECK_EQ(w.e.words[ENGINE_DATA], w.e.words[ENGINE_DATA + WORDS - 1]);
	after = w.e.words[ENGINE_DATA] == 0x5eed;
	CHECK(after || w.e.words[ENGINE_DATA] == 0);
	if (what == SYNC_FILE)
		CHECK_EQ(w.e.drm.amdgpu_cs_destroy_syncobj(w.e.handle, wants.wait), 0);
	waiting_end(&w);
	return after;
}

static void an_engines_submission_waits_for_a_point(void)
{
	int after[3] = { 0 };

	for (int seed = 1; seed <= SEEDS; seed++)
		for (int what = NOTHING; what <= TIMELINE; what++)
			after[what] += comes_after((enum what)what, seed);
	CHECK_EQ(after[SYNC_FILE], SEEDS);
	CHECK_EQ(after[TIMELINE], SEEDS);
	/* Or the two above would show nothing. */
	CHECK(after[NOTHING] < SEEDS);
}

/* ---- others wait ---------------------------------------------------------------------------------- */

static int64_t soon_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec + 10 * 1000000;
}

static void a_sync_file_can_be_polled(void)
{
	struct waiting w;
	struct pollfd poller = { .events = POLLIN };

	waiting_begin(&w, CARD);
	CHECK_EQ(vmkv_point_export(w.r.device, w.point, &poller.fd), 0);
	CHECK_EQ(poll(&poller, 1, 10), 0);
	vmkv_emulator_resume(w.e.emulator);
	CHECK_EQ(poll(&poller, 1, -1), 1);
	CHECK_EQ(poller.revents, POLLIN);
	CHECK_EQ(vmkv_wait(w.r.device, w.point, 0), 0);
	close(poller.fd);
	CHECK_EQ(vmkv_point_export(w.r.device, w.point, &poller.fd), 0); /* reached by now */
	CHECK_EQ(poll(&poller, 1, 0), 1);
	close(poller.fd);
	waiting_end(&w);
}

/* Another DRM file, as of another process or driver, and a syncobj of its own. */
static void another_file_waits_for_a_sync_file(void)
{
	struct waiting w;
	struct drm_syncobj_create create = { 0 };
	struct drm_syncobj_wait wait = { .count_handles = 1 };
	struct drm_syncobj_handle import = {
		.flags = DRM_SYNCOBJ_FD_TO_HANDLE_FLAGS_IMPORT_SYNC_FILE,
	};
	int fd;

	waiting_begin(&w, CARD);
	CHECK_EQ(vmkv_emulator_open(w.e.emulator, &fd), 0);
	CHECK_EQ(file_call(&w, fd, DRM_IOCTL_SYNCOBJ_CREATE, &create), 0);
	wait.handles = (uintptr_t)&create.handle;
	import.handle = create.handle;
	CHECK_EQ(vmkv_point_export(w.r.device, w.point, &import.fd), 0);
	CHECK_EQ(file_call(&w, fd, DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE, &import), 0);
	close(import.fd);
	wait.timeout_nsec = soon_ns();
	CHECK_EQ(file_call(&w, fd, DRM_IOCTL_SYNCOBJ_WAIT, &wait), -ETIME);
	vmkv_emulator_resume(w.e.emulator);
	wait.timeout_nsec = INT64_MAX;
	CHECK_EQ(file_call(&w, fd, DRM_IOCTL_SYNCOBJ_WAIT, &wait), 0);
	CHECK_EQ(vmkv_wait(w.r.device, w.point, 0), 0);
	CHECK_EQ(vmkv_emulator_close(fd), 0);
	waiting_end(&w);
}

/* The timeline itself, shared with another file: its points are the device's. */
static void another_file_waits_on_the_timeline(void)
{
	struct waiting w;
	struct vmkv_amdgpu_info info;
	struct drm_syncobj_handle shared = { 0 };
	struct drm_syncobj_timeline_wait wait = { .count_handles = 1 };
	int fd;

	waiting_begin(&w, CARD);
	info = info_of(w.r.device);
	CHECK_EQ(vmkv_emulator_open(w.e.emulator, &fd), 0);
	shared.handle = info.syncobj;
	CHECK_EQ(file_call(&w, info.drm_fd, DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD, &shared), 0);
	CHECK_EQ(file_call(&w, fd, DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE, &shared), 0);
	close(shared.fd);
	wait.handles = (uintptr_t)&shared.handle;
	wait.points = (uintptr_t)&w.point;
	wait.timeout_nsec = soon_ns();
	CHECK_EQ(file_call(&w, fd, DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT, &wait), -ETIME);
	vmkv_emulator_resume(w.e.emulator);
	wait.timeout_nsec = INT64_MAX;
	CHECK_EQ(file_call(&w, fd, DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT, &wait), 0);
	CHECK_EQ(vmkv_emulator_close(fd), 0);
	waiting_end(&w);
}

static void a_point_without_a_submission_is_refused(void)
{
	struct waiting w;
	char text[256];
	int fd = 77;

	waiting_begin(&w, CARD);
	vmkv_emulator_resume(w.e.emulator);
	CHECK_EQ(vmkv_point_export(w.r.device, w.point + 1000, &fd), -EINVAL);
	CHECK_EQ(fd, 77);
	vmkv_device_error(w.r.device, text, sizeof(text));
	CHECK_CONTAINS(text, "never came from this device");
	CHECK_EQ(vmkv_point_export(w.r.device, 0, &fd), -EINVAL);
	vmkv_device_error(w.r.device, text, sizeof(text));
	CHECK_CONTAINS(text, "point 0 is always reached");
	waiting_end(&w);
}

/* What could not be committed is by the next submission: exporting its point makes that. */
static void a_point_of_a_submission_to_come_is_exported(void)
{
	struct waiting w;
	struct vmkv_unmap unmap;
	struct pollfd poller = { .events = POLLIN };
	uint64_t point;
	size_t issued;

	waiting_begin(&w, CARD);
	vmkv_emulator_resume(w.e.emulator);
	CHECK_EQ(vmkv_wait(w.r.device, w.point, UINT64_MAX), 0);
	unmap = (struct vmkv_unmap){ .address = w.address, .bytes = 4 * WORDS, .mappings = 1 };
	CHECK_EQ(vmkv_emulator_fail(w.e.emulator, "CS", 1, EINVAL), 0);
	CHECK_EQ(w.r.device->ops->unmap(w.r.device, &unmap, 1, &issued, &point), 0);
	CHECK_EQ(point, w.point + 1);
	CHECK_EQ(vmkv_point_export(w.r.device, point, &poller.fd), 0);
	CHECK_EQ(poll(&poller, 1, 10000), 1);
	close(poller.fd);
	CHECK_EQ(vmkv_wait(w.r.device, point, 0), 0);
	waiting_end(&w);
}

int main(void)
{
	target_need_libdrm();
	RUN(an_engines_submission_waits_for_a_point);
	RUN(a_sync_file_can_be_polled);
	RUN(another_file_waits_for_a_sync_file);
	RUN(another_file_waits_on_the_timeline);
	RUN(a_point_without_a_submission_is_refused);
	RUN(a_point_of_a_submission_to_come_is_exported);
	return 0;
}
