/* SPDX-License-Identifier: MIT
 *
 * A card that is served: what another process asks through the preload library's connections, which are
 * part of this program, is answered by that process's rights.
 */
#include <linux/capability.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

#include "emulator_fixture.h"
#include "preload/connection.c"
#include "preload/kept.c"

struct preload_settings preload_settings;

/* The child asks; a check that fails there ends it with 1. */
static void child_run(void (*check)(void))
{
	pid_t child;
	int status;

	fflush(NULL);
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		check();
		_exit(0);
	}
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
}

static void admin_drop(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	CHECK(!syscall(SYS_capget, &header, data));
	data[0].effective &= ~CAP_TO_MASK(CAP_SYS_ADMIN);
	CHECK(!syscall(SYS_capset, &header, data));
}

static uint64_t served_open(bool primary)
{
	int fd = preload_open(primary, O_CLOEXEC);

	CHECK(fd >= 0);
	return preload_position(fd);
}

static int authenticated(uint64_t position)
{
	struct drm_client client = { 0 };

	CHECK_EQ(preload_ioctl(position, DRM_IOCTL_GET_CLIENT, &client), 0);
	return client.auth;
}

/* A question whose answer never changes. */
static int info_ask(uint64_t position)
{
	uint32_t works = 0;
	struct drm_amdgpu_info info = { .return_pointer = (uintptr_t)&works,
		                        .return_size = sizeof(works),
		                        .query = AMDGPU_INFO_ACCEL_WORKING };
	int error = preload_ioctl(position, DRM_IOCTL_AMDGPU_INFO, &info);

	CHECK_EQ(works, !error);
	return error;
}

/* ---- rights: this process, which serves, may have more than who asks ----------------------------- */

static uint64_t inherited;

static void another_process_asks(void)
{
	CHECK_EQ(preload_ioctl(inherited, DRM_IOCTL_SET_MASTER, NULL), -EACCES);
	CHECK_EQ(preload_ioctl(inherited, DRM_IOCTL_GET_CAP, &(struct drm_get_cap){ DRM_CAP_PRIME, 0 }),
	         0);
}

static void masters_are_asked(void)
{
	uint64_t other;

	admin_drop();
	inherited = served_open(true);
	other = served_open(true);
	CHECK_EQ(authenticated(inherited), 1);
	CHECK_EQ(authenticated(other), 0);
	CHECK_EQ(preload_ioctl(other, DRM_IOCTL_SET_MASTER, NULL), -EACCES);
	CHECK_EQ(preload_ioctl(inherited, DRM_IOCTL_DROP_MASTER, NULL), 0);
	child_run(another_process_asks);
	CHECK_EQ(preload_ioctl(inherited, DRM_IOCTL_SET_MASTER, NULL), 0);
}

static void masters_are_who_asks(void)
{
	child_run(masters_are_asked);
}

static void kept_answers_are_asked(void)
{
	uint64_t render, master, other;

	admin_drop();
	render = served_open(false);
	master = served_open(true);
	other = served_open(true);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(info_ask(render), 0);
		CHECK_EQ(info_ask(master), 0);
		CHECK_EQ(info_ask(other), -EACCES);
	}
}

static void kept_answers_are_for_those_who_may_ask(void)
{
	child_run(kept_answers_are_asked);
}

/* ---- files that nobody has any more -------------------------------------------------------------- */

/* The server is told of a close long before it means that the file has gone, as if who closes were kept
 * from running in between. */
static void late_closed(void)
{
	int fd = preload_open(false, O_CLOEXEC), other, error = 0;
	uint64_t position = preload_position(fd);
	struct flock lock = { .l_type = F_UNLCK, .l_whence = SEEK_SET, .l_len = 1,
		              .l_start = (off_t)(position & ~EMU_POSITION_SERVED) };
	struct drm_syncobj_create made = { 0 };
	char path[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	other = open(path, O_RDWR | O_CLOEXEC);
	CHECK(other >= 0);
	CHECK_EQ(close(other), 0);
	usleep(50000);
	CHECK_EQ(preload_ioctl(position, DRM_IOCTL_SYNCOBJ_CREATE, &made), 0);
	CHECK_EQ(fcntl(fd, F_OFD_SETLK, &lock), 0);
	for (int i = 0; i < 200 && !error; i++) {
		usleep(10000);
		error = preload_ioctl(position, DRM_IOCTL_SYNCOBJ_CREATE, &made);
	}
	CHECK_EQ(error, -ENODEV);
}

static void a_close_may_be_told_of_early(void)
{
	child_run(late_closed);
}

/* ---- descriptors --------------------------------------------------------------------------------- */

static void eventfd_is_told(void)
{
	uint64_t position = served_open(false), count = 0;
	int fd = eventfd(0, EFD_CLOEXEC);
	struct drm_syncobj_create made = { 0 };
	struct drm_syncobj_eventfd wait = { .fd = fd };
	struct drm_syncobj_array signal = { .count_handles = 1 };

	CHECK_EQ(preload_ioctl(position, DRM_IOCTL_SYNCOBJ_CREATE, &made), 0);
	wait.handle = made.handle;
	CHECK_EQ(preload_ioctl(position, DRM_IOCTL_SYNCOBJ_EVENTFD, &wait), 0);
	CHECK_EQ(wait.fd, fd);
	signal.handles = (uintptr_t)&made.handle;
	CHECK_EQ(preload_ioctl(position, DRM_IOCTL_SYNCOBJ_SIGNAL, &signal), 0);
	CHECK_EQ(read(fd, &count, sizeof(count)), sizeof(count));
	CHECK_EQ(count, 1);
	wait.fd = -1;
	CHECK_EQ(preload_ioctl(position, DRM_IOCTL_SYNCOBJ_EVENTFD, &wait), -EBADF);
}

static void eventfds_are_passed(void)
{
	child_run(eventfd_is_told);
}

int main(void)
{
	vmkv_emulator *gpu = emulated_create("gfx1201?vram=64MiB");
	vmkv_emulator_server *server;

	snprintf(preload_settings.server, sizeof(preload_settings.server), "vmkv-test-%d", (int)getpid());
	CHECK_EQ(vmkv_emulator_serve(gpu, preload_settings.server, &server), 0);
	RUN(masters_are_who_asks);
	RUN(kept_answers_are_for_those_who_may_ask);
	RUN(a_close_may_be_told_of_early);
	RUN(eventfds_are_passed);
	vmkv_emulator_serve_end(server);
	CHECK_EQ(emulated_stats(gpu).files, 0);
	vmkv_emulator_destroy(gpu);
	return 0;
}
