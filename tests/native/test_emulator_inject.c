/* SPDX-License-Identifier: MIT
 *
 * inject=: how it is said, faults of single calls, and timelines that are ignored.
 */
#include <string.h>

#include "cs_fixture.h"
#include "inject_fixture.h"

/* ---- specs ----------------------------------------------------------------------------------- */

static void spec_fails(const char *options, const char *text)
{
	char spec[1200], error[256] = "";
	vmkv_emulator *gpu;

	snprintf(spec, sizeof(spec), "gfx1201?%s", options);
	if (vmkv_emulator_create(spec, error, sizeof(error), &gpu) != -EINVAL)
		CHECK_FAIL("%s: it was taken", spec);
	if (!strstr(error, text) || strchr(error, '\n'))
		CHECK_FAIL("%s: \"%s\" lacks \"%s\"", spec, error, text);
	CHECK_EQ(vmkv_emulator_create(spec, NULL, 0, &gpu), -EINVAL);
}

static void bad_specs_are_told(void)
{
	char many[800] = "inject=ioctl:CS:1:5";
	uint32_t named = 1;

	spec_fails("inject=", "no such fault");
	spec_fails("inject=bogus", "inject=bogus");
	spec_fails("inject=bogus", "alias-diverges");
	spec_fails("inject=bogus", "ioctl:NAME:N:ERRNO");
	spec_fails("inject=stale-translation,bogus", "inject=bogus");
	spec_fails("inject=stale-translation,", "no such fault");
	spec_fails("inject=stale-translation,,late-visibility", "no such fault");
	spec_fails("inject=Stale-Translation", "no such fault");
	spec_fails("inject=late-visibility,late-visibility", "late-visibility is given twice");
	spec_fails("inject=stale-translation:3", "takes no number");
	spec_fails("inject=device-lost:0", "device-lost:N");
	spec_fails("inject=device-lost:", "whole number");
	spec_fails("inject=device-lost:x", "whole number");
	spec_fails("inject=device-lost:-1", "whole number");
	spec_fails("inject=device-lost:1:2", "device-lost:N");
	spec_fails("inject=device-lost:99999999999999999999", "whole number");
	spec_fails("inject=timeline-ignored", "kernel=7.2");
	spec_fails("inject=timeline-ignored&kernel=6.1", "Linux 6.1");
	spec_fails("inject=ioctl", "ioctl:GEM_VA:3:ENOMEM");
	spec_fails("inject=ioctl:GEM_VA:1", "three parts");
	spec_fails("inject=ioctl:GEM_VA:1:ENOMEM:5", "three parts");
	spec_fails("inject=ioctl:GEM_VB:1:ENOMEM", "no such ioctl");
	spec_fails("inject=ioctl:GEM_VA:0:ENOMEM", "from 1");
	spec_fails("inject=ioctl:GEM_VA::ENOMEM", "from 1");
	spec_fails("inject=ioctl:GEM_VA:1:ENOMEMORY", "no such error");
	spec_fails("inject=ioctl:GEM_VA:1:0", "no such error");
	spec_fails("inject=ioctl:GEM_VA:1:4096", "no such error");
	spec_fails("inject=ioctl:GEM_VA:1:EIO,ioctl:GEM_VA:2:EIO", "has its order");
	spec_fails("late_us=0", "late_us=0");
	spec_fails("late_us=-5", "late_us=-5");
	spec_fails("inject=device-lost&inject=silent-gtt", "given twice");
	for (uint32_t i = 0; named < 17 && vmkv_emulator_ioctl_name(i); i++) {
		const char *name = vmkv_emulator_ioctl_name(i);

		if (!strcmp(name, "CS"))
			continue;
		snprintf(many + strlen(many), sizeof(many) - strlen(many), ",ioctl:%s:1:5", name);
		named++;
	}
	spec_fails(many, "more than 16");
	memset(many + 7, 'x', 400);
	many[407] = '\0';
	spec_fails(many, "no such fault");
}

static void good_specs_are_taken(void)
{
	static const char *const all =
	    "gfx1201?vram=1GiB&late_us=0.5&inject=stale-translation,late-visibility,alias-diverges,"
	    "vram-stolen:18446744073709551615,silent-gtt:7,unmap-ignored,timeline-ignored,"
	    "device-lost:100,transient-enomem:1000,ioctl:CS:1:ECANCELED,ioctl:GEM_VA:2:4095&kernel=7.2";
	char error[256] = "";
	vmkv_emulator *gpu;

	if (vmkv_emulator_create(all, error, sizeof(error), &gpu))
		CHECK_FAIL("%s", error);
	vmkv_emulator_destroy(gpu);
	/* The order of options doesn't matter. */
	CHECK_EQ(vmkv_emulator_create("gfx1100?kernel=7.2&inject=timeline-ignored", NULL, 0, &gpu), 0);
	vmkv_emulator_destroy(gpu);
}

/* ---- ioctl:NAME:N:ERRNO ---------------------------------------------------------------------- */

static void the_nth_call_fails(void)
{
	FOR_EACH_KERNEL(kernel) {
		struct card card = card_open(kernel, "&inject=ioctl:GEM_CREATE:2:ENOSPC,"
		                                      "ioctl:GEM_VA:3:116");
		union drm_amdgpu_gem_create args;
		uint32_t bo = bo_create(card.fd, MIB, 0);

		for (int i = 0; i < 4; i++) {
			args = (union drm_amdgpu_gem_create){ .in = { .bo_size = PAGE, .domains = VRAM } };
			CHECK_EQ(call(card.fd, DRM_IOCTL_AMDGPU_GEM_CREATE, &args), i ? 0 : -ENOSPC);
		}
		for (int i = 0; i < 5; i++)
			CHECK_EQ(va_map(card.fd, bo, 0, VA + i * PAGE, 0, PAGE), i == 2 ? -116 : 0);
		settle(card.fd);
		CHECK_UNMAPPED(card.fd, VA + 2 * PAGE);
		CHECK_MAPPED(card.fd, VA + 4 * PAGE, bo, 0);
		card_close(&card);
	}
}

/* ---- timeline-ignored ------------------------------------------------------------------------ */

static int map_with_point(int fd, uint32_t bo, uint64_t address, uint32_t syncobj, uint64_t point)
{
	struct drm_amdgpu_gem_va args = { .handle = bo, .operation = AMDGPU_VA_OP_MAP, .flags = RW,
		                          .va_address = address, .map_size = PAGE,
		                          .vm_timeline_point = point,
		                          .vm_timeline_syncobj_out = syncobj };

	return call(fd, DRM_IOCTL_AMDGPU_GEM_VA, &args);
}

#define FOR_SUBMIT DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT

static void timeline_is_ignored(void)
{
	for (int ignored = 0; ignored < 2; ignored++) {
		struct card card = card_with("7.2", ignored ? "timeline-ignored" : "", "");
		uint32_t bo = bo_create(card.fd, MIB, 0), syncobj = syncobj_make(card.fd, 0);
		int64_t deadline = ignored ? SOON : INT64_MAX;

		CHECK_EQ(map_with_point(card.fd, bo, VA, syncobj, 1), 0);
		settle(card.fd);
		CHECK_MAPPED(card.fd, VA, bo, 0);
		CHECK_EQ(point_wait(card.fd, syncobj, 1, FOR_SUBMIT, deadline), ignored ? -ETIME : 0);
		CHECK_EQ(point_query(card.fd, syncobj, 0), ignored ? 0u : 1u);
		CHECK_EQ(map_with_point(card.fd, bo, VA + PAGE, syncobj, 0), 0);
		CHECK_EQ(syncobjs_wait(card.fd, &syncobj, 1, FOR_SUBMIT, ignored ? SOON : INT64_MAX, NULL),
		         ignored ? -ETIME : 0);
		/* As with a kernel that never looks there. */
		CHECK_EQ(map_with_point(card.fd, bo, VA + 2 * PAGE, 999, 1), ignored ? 0 : -ENOENT);
		/* Submissions still signal points. */
		CHECK_EQ(cs_nop(&card, NULL, 0), 0);
		CHECK_EQ(point_signal(card.fd, syncobj, 5), 0);
		CHECK_EQ(point_wait(card.fd, syncobj, 5, 0, INT64_MAX), 0);
		card_close(&card);
	}
}

int main(void)
{
	RUN(bad_specs_are_told);
	RUN(good_specs_are_taken);
	RUN(the_nth_call_fails);
	RUN(timeline_is_ignored);
	return 0;
}
