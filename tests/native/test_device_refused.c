/* SPDX-License-Identifier: MIT
 *
 * What the amdgpu device can't be opened on: each is told in one line that says what was wrong, and nothing
 * is left behind.
 */
#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "engine_fixture.h"

#define CARD "gfx1201?vram=256MiB"

static char text[256];

static int try_open(struct vmkv_device_options options, vmkv_device **device)
{
	options.struct_size = sizeof(options);
	options.error = text;
	options.error_bytes = sizeof(text);
	text[0] = 0;
	*device = NULL;
	return vmkv_device_open(&options, device);
}

static void check_refused(struct vmkv_device_options options, int error, const char *part)
{
	vmkv_device *device;

	CHECK_EQ(try_open(options, &device), error);
	CHECK(!device);
	CHECK_CONTAINS(text, part);
	CHECK(!strchr(text, '\n') && strlen(text) < sizeof(text) - 1);
}

static void check_name(const char *name, int error, const char *part)
{
	check_refused((struct vmkv_device_options){ .name = name }, error, part);
}

static void check_fd(int fd, int error, const char *part)
{
	check_refused((struct vmkv_device_options){ .name = "amdgpu", .adopt = VMKV_ADOPT_FD,
	                                            .drm_fd = fd },
	              error, part);
}

/* ---- nodes --------------------------------------------------------------------------------------- */

/* A file of its own, open. */
static int file_create(char *path, size_t n)
{
	int file;

	snprintf(path, n, P_tmpdir "/vmkv-test-%d", (int)getpid());
	file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	CHECK(file >= 0);
	return file;
}

static void what_is_no_node_is_told(void)
{
	char path[64], name[80];
	int pipes[2], file = file_create(path, sizeof(path));

	snprintf(name, sizeof(name), "amdgpu:%s", path);
	check_name(name, -ENODEV, "is no DRM node");
	CHECK_CONTAINS(text, path);
	check_fd(file, -ENODEV, "descriptor ");
	CHECK_CONTAINS(text, " is no DRM node");
	close(file);
	unlink(path);
	check_fd(file, -EINVAL, " isn't open");
	check_name(name, -ENODEV, "cannot open " P_tmpdir "/vmkv-test-");
	check_name("amdgpu:/dev/null", -ENODEV, "/dev/null is no DRM node");
	check_name("amdgpu:/dev", -ENODEV, "cannot open /dev: ");
	CHECK_EQ(pipe(pipes), 0);
	check_fd(pipes[0], -ENODEV, " is no DRM node");
	close(pipes[0]);
	close(pipes[1]);
}

/* By the rights of a user that has none, in a process of its own. */
static void check_permission(const char *name, const char *part)
{
	pid_t child = fork();
	int status;

	CHECK(child >= 0);
	if (child == 0) {
		if (geteuid() == 0) {
			CHECK_EQ(setgroups(0, NULL), 0);
			CHECK_EQ(setegid(65534), 0);
			CHECK_EQ(seteuid(65534), 0);
		}
		check_name(name, -EACCES, part);
		_exit(0);
	}
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
}

#define NAMELESS_GROUP 4294000000u

static void who_may_not_open_a_node_is_told_why(void)
{
	char path[64], name[80], part[160];
	const struct group *group = getgrgid(1);
	int file = file_create(path, sizeof(path));

	CHECK(group);
	snprintf(name, sizeof(name), "amdgpu:%s", path);
	if (geteuid() == 0) { /* nobody else may give a file away */
		CHECK_EQ(fchmod(file, 0660), 0);
		CHECK_EQ(fchown(file, 0, 0), 0);
		check_permission(name, "it is root's and of group root; give it to the group of such "
		                       "nodes with: sudo chgrp render " P_tmpdir "/vmkv-test-");
		CHECK_EQ(fchown(file, 0, NAMELESS_GROUP), 0);
		check_permission(name, "it is for group 4294000000, which has no name here");
		CHECK_EQ(fchown(file, 0, 1), 0);
		snprintf(part, sizeof(part), "%s: its group is %s; join it with: sudo usermod -aG %s $USER",
		         path, group->gr_name, group->gr_name);
		check_permission(name, part);
		CHECK_EQ(fchmod(file, 0640), 0);
		snprintf(part, sizeof(part), "not for its group %s either: allow it with: sudo chmod g+rw",
		         group->gr_name);
		check_permission(name, part);
	} else {
		CHECK_EQ(fchmod(file, 0), 0);
		check_permission(name, "no permission to open " P_tmpdir "/vmkv-test-");
	}
	close(file);
	unlink(path);
}

/* ---- options ------------------------------------------------------------------------------------- */

static void malformed_options_are_told(void)
{
	static const struct {
		const char *name, *part;
	} bad[] = {
		{ "emulated:", "no model \"\"; there are gfx1030, gfx1100, gfx1201, gfx942" },
		{ "emulated", "no model \"\"" },
		{ "emulated:?vram=1GiB", "no model \"\"" },
		{ "emulated:gfx12", "no model \"gfx12\"" },
		{ "emulated:gfx1201?kernel=6.13", "kernel=6.13: it takes 6.1, 6.12 or 7.2" },
		{ "emulated:gfx1201?vram=0", "vram=0: it takes a size from 16MiB to 1TiB" },
		{ "emulated:gfx1201?vram=99999TiB", "vram=99999TiB: it takes a size" },
		{ "emulated:gfx1201?vram=99999999999999999999", "it takes a size" },
		{ "emulated:gfx1201?vram=-1", "vram=-1: it takes a size" },
		{ "emulated:gfx1201?vram=1GiBs", "vram=1GiBs: it takes a size" },
		{ "emulated:gfx1201?vram", "\"vram\" lacks a value" },
		{ "emulated:gfx1201?=1", "no option \"\"" },
		{ "emulated:gfx1201?speed=1", "no option \"speed\"; there are kernel, vram" },
		{ "emulated:gfx1201?vram=1GiB&vram=1GiB", "\"vram\" is given twice" },
		{ "emulated:gfx1201?commit=cs&vram=1GiB&commit=bo", "\"commit\" of device amdgpu is given "
		                                                   "twice" },
		{ "emulated:gfx1201?slabs=listed&slabs=listed", "\"slabs\" of device amdgpu is given twice" },
		{ "emulated:gfx1201?commit=", "commit= is none of cs, engine and bo" },
		{ "emulated:gfx1201?identity=yes", "identity=yes: it takes 0 or 1" },
	};
	char name[1200];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		check_name(bad[i].name, -EINVAL, bad[i].part);
	memset(name, 'x', sizeof(name) - 1);
	memcpy(name, "emulated:gfx1201?trace=", 23);
	name[sizeof(name) - 1] = 0;
	check_name(name, -EINVAL, "are too long");
}

static void windows_that_can_not_be_are_told(void)
{
	static const struct {
		uint64_t begin, end;
		const char *part;
	} bad[] = {
		{ 0x200000000000, 0x100000000000, "give whole pages, the end after the beginning" },
		{ 0x200000000000, 0, "the end after the beginning" },
		{ 0x200000000001, 0x300000000000, "give whole pages" },
		{ 0x1000, 0x100000, "leaves the card's address space" },
		{ 0x7f0000000000, 0x900000000000, "leaves the card's address space" },
	};
	static const char *const texts[] = { "amdgpu?window=1-", "amdgpu?window=2-1", "amdgpu?window=",
		                             "amdgpu?window=0x1000", "amdgpu?window=-5-6" };
	struct engine e;

	engine_begin(&e, CARD);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		check_refused((struct vmkv_device_options){ .name = "amdgpu",
		                                            .adopt = VMKV_ADOPT_AMDGPU,
		                                            .amdgpu_device = e.handle,
		                                            .window_begin = bad[i].begin,
		                                            .window_end = bad[i].end },
		              -EINVAL, bad[i].part);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		check_refused((struct vmkv_device_options){ .name = texts[i],
		                                            .adopt = VMKV_ADOPT_AMDGPU,
		                                            .amdgpu_device = e.handle },
		              -EINVAL, "is no range of addresses: write window=0x200000000000-");
	/* The engine's own buffer lies there. */
	check_refused((struct vmkv_device_options){ .name = "amdgpu",
	                                            .adopt = VMKV_ADOPT_AMDGPU,
	                                            .amdgpu_device = e.handle,
	                                            .window_begin = e.address,
	                                            .window_end = e.address + GIB },
	              -EINVAL, "isn't free: it overlaps what is allocated from libdrm");
	engine_end(&e);
}

/* ---- cards --------------------------------------------------------------------------------------- */

static struct vmkv_emulator_stats stats_now(struct engine *e)
{
	struct vmkv_emulator_stats stats = { .struct_size = sizeof(stats) };

	CHECK_EQ(vmkv_emulator_stats(e->emulator, &stats), 0);
	return stats;
}

/* Opens with the nth call of an ioctl refused, for every n. */
static void refusals_are_told(struct engine *e, const char *ioctl, int error, const char *part)
{
	struct vmkv_emulator_stats before = stats_now(e), after;
	vmkv_device *device = NULL;
	int told = 0;
	uint64_t calls;

	for (uint64_t n = 1; !device; n++) {
		uint64_t begun = engine_count(e, ioctl, UINT32_MAX);
		int rc;

		CHECK_EQ(vmkv_emulator_fail(e->emulator, ioctl, n, error), 0);
		rc = try_open((struct vmkv_device_options){ .name = "amdgpu",
		                                            .adopt = VMKV_ADOPT_AMDGPU,
		                                            .amdgpu_device = e->handle },
		              &device);
		calls = engine_count(e, ioctl, UINT32_MAX) - begun;
		if (rc == 0 && calls >= n) { /* it can do without that one */
			CHECK_EQ(vmkv_device_close(device), 0);
			device = NULL;
			continue;
		}
		CHECK_EQ(vmkv_emulator_fail(e->emulator, ioctl, 0, error), 0);
		if (rc == 0)
			break;
		CHECK(strlen(text) > 20 && !strchr(text, '\n'));
		told += strstr(text, part) != NULL;
		after = stats_now(e);
		CHECK_EQ(after.handles, before.handles);
		CHECK_EQ(after.mappings, before.mappings);
		CHECK_EQ(after.contexts, before.contexts);
		CHECK_EQ(after.syncobjs, before.syncobjs);
	}
	CHECK_EQ(vmkv_device_close(device), 0);
	if (!told)
		CHECK_FAIL("no refused %s was told as \"%s\"", ioctl, part);
}

static void a_card_that_refuses_is_told(void)
{
	struct engine e;

	engine_begin(&e, CARD);
	refusals_are_told(&e, "INFO", EINVAL, "the card offers no SDMA ring");
	refusals_are_told(&e, "INFO", EIO, "the kernel tells nothing of the card");
	refusals_are_told(&e, "VERSION", EINVAL, "the engine's amdgpu device has no open DRM node");
	refusals_are_told(&e, "CTX", ENOMEM, "the kernel gave no context: Cannot allocate memory");
	refusals_are_told(&e, "SYNCOBJ_CREATE", EOPNOTSUPP, "the kernel gave no syncobj: ");
	refusals_are_told(&e, "GEM_CREATE", ENOSPC, "no memory for the SDMA ring's packets: No space");
	refusals_are_told(&e, "GEM_MMAP", EINVAL, "no memory for the SDMA ring's packets: Invalid");
	refusals_are_told(&e, "GEM_VA", EINVAL, "the kernel refused to map");
	engine_end(&e);
}

/* libdrm's own questions, when it makes its device of a descriptor. */
static void a_card_that_libdrm_can_not_drive_is_told(void)
{
	vmkv_emulator *other; /* than the engine's: libdrm has no device of it yet */
	struct engine e;
	int fd;

	engine_begin(&e, CARD);
	CHECK_EQ(vmkv_emulator_create(CARD, NULL, 0, &other), 0);
	CHECK_EQ(vmkv_emulator_open(other, &fd), 0);
	CHECK_EQ(vmkv_emulator_fail(other, "VERSION", 1, EIO), 0);
	check_fd(fd, -ENODEV, " is no DRM node");
	CHECK_EQ(vmkv_emulator_fail(other, "INFO", 1, EIO), 0);
	check_fd(fd, -ENODEV, "libdrm_amdgpu can't drive the card: Input/output error");
	/* What libdrm returns when ACCEL_WORKING is 0. */
	CHECK_EQ(vmkv_emulator_fail(other, "INFO", 1, EBADF), 0);
	check_fd(fd, -ENOTSUP, "acceleration doesn't work on this card");
	CHECK_EQ(vmkv_emulator_close(fd), 0);
	check_fd(fd, -EINVAL, " isn't open");
	vmkv_emulator_destroy(other);
	engine_end(&e);
}

/* ---- handles -------------------------------------------------------------------------------------- */

static void a_device_whose_file_was_closed_is_refused(void)
{
	amdgpu_device_handle handle;
	uint32_t major, minor;
	vmkv_emulator *other;
	struct engine e;
	int fd;

	engine_begin(&e, CARD);
	CHECK_EQ(vmkv_emulator_create(CARD, NULL, 0, &other), 0);
	CHECK_EQ(vmkv_emulator_open(other, &fd), 0);
	CHECK_EQ(e.drm.amdgpu_device_initialize(fd, &major, &minor, &handle), 0);
	CHECK_EQ(vmkv_emulator_close(fd), 0);
	check_refused((struct vmkv_device_options){ .name = "amdgpu", .adopt = VMKV_ADOPT_AMDGPU,
	                                            .amdgpu_device = handle },
	              -EINVAL, "the engine's amdgpu device has no open DRM node");
	CHECK_EQ(e.drm.amdgpu_device_deinitialize(handle), 0);
	vmkv_emulator_destroy(other);
	engine_end(&e);
}

static void file_copy(const char *from, const char *to)
{
	int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_EXCL, 0700);
	char bytes[4096];
	ssize_t n;

	CHECK(in >= 0 && out >= 0);
	while ((n = read(in, bytes, sizeof(bytes))) > 0)
		CHECK_EQ(write(out, bytes, (size_t)n), n);
	CHECK_EQ(n, 0);
	close(in);
	close(out);
}

/* As an engine has that brings a libdrm_amdgpu along: its devices, and so address spaces, are others. */
static void a_device_of_another_libdrm_is_refused(void)
{
	char path[64];
	__typeof__(((struct vmkv_libdrm *)0)->amdgpu_device_initialize) initialize;
	__typeof__(((struct vmkv_libdrm *)0)->amdgpu_device_deinitialize) deinitialize;
	struct vmkv_device_options options = { .name = "amdgpu", .adopt = VMKV_ADOPT_AMDGPU };
	amdgpu_device_handle handle;
	uint32_t major, minor;
	vmkv_device *device;
	struct engine e;
	Dl_info info;
	void *copy;

	engine_begin(&e, CARD);
	CHECK(dladdr((void *)e.drm.amdgpu_device_initialize, &info));
	snprintf(path, sizeof(path), "./libdrm_amdgpu-copy-%d.so", (int)getpid());
	file_copy(info.dli_fname, path);
	copy = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	CHECK(copy);
	CHECK_EQ(vmkv_emulator_attach(), 0); /* its ioctls too */
	*(void **)&initialize = dlsym(copy, "amdgpu_device_initialize");
	*(void **)&deinitialize = dlsym(copy, "amdgpu_device_deinitialize");
	CHECK_EQ(initialize(e.fd, &major, &minor, &handle), 0);
	CHECK(handle != e.handle);
	options.amdgpu_device = handle;
	check_refused(options, -EXDEV, "is of another copy of libdrm_amdgpu: link the system's, or give "
	                               "the DRM descriptor and a window instead");
	options.amdgpu_device = e.handle; /* with the copy in the process, its own still is */
	CHECK_EQ(try_open(options, &device), 0);
	CHECK_EQ(vmkv_device_close(device), 0);
	CHECK_EQ(deinitialize(handle), 0);
	dlclose(copy);
	unlink(path);
	engine_end(&e);
}

int main(void)
{
	target_need_libdrm();
	RUN(what_is_no_node_is_told);
	RUN(who_may_not_open_a_node_is_told_why);
	RUN(malformed_options_are_told);
	RUN(windows_that_can_not_be_are_told);
	RUN(a_card_that_refuses_is_told);
	RUN(a_card_that_libdrm_can_not_drive_is_told);
	RUN(a_device_whose_file_was_closed_is_refused);
	RUN(a_device_of_another_libdrm_is_refused);
	return 0;
}
