/* SPDX-License-Identifier: MIT */
#include "target.h"

#include <dlfcn.h>
#include <inttypes.h>

#include "amdgpu.h"
#include "check.h"
#include "emulator/vmkv_emulator.h"

static const char *name_set;

const char *target_name(void)
{
	const char *name = name_set ? name_set : getenv("VMKV_TEST_DEVICE");

	return name && *name ? name : "host";
}

void target_name_set(const char *name)
{
	name_set = name;
}

bool target_is_host(void)
{
	return !strncmp(target_name(), "host", 4);
}

void target_need_libdrm(void)
{
	void *library = dlopen("libdrm_amdgpu.so.1", RTLD_LAZY | RTLD_LOCAL);

	if (!library) {
		fprintf(stderr, "skipped: needs libdrm_amdgpu.so.1\n");
		exit(77);
	}
	dlclose(library);
}

uint64_t target_stride(uint64_t usual)
{
	const char *text = getenv("VMKV_TEST_STRIDE");
	uint64_t stride = text ? strtoull(text, NULL, 10) : usual;

	CHECK(stride > 0);
	return stride;
}

/* ---- open ------------------------------------------------------------------------------------ */

static void bounds_parse(const char *options, struct checking_options *bounds)
{
	unsigned long long n;
	int length;

	for (; *options; options += length + (options[length] == '&')) {
		if (sscanf(options, "max_mappings=%llu%n", &n, &length) == 1)
			bounds->max_mappings = n;
		else if (sscanf(options, "memory=%lluMiB%n", &n, &length) == 1 &&
		         options[length - 1] == 'B')
			bounds->memory_bytes = (uint64_t)n << 20;
		else if (sscanf(options, "memory=%llu%n", &n, &length) == 1)
			bounds->memory_bytes = n;
		else
			CHECK_FAIL("%s: a test's option that only the host knows", options);
	}
}

vmkv_device *target_open(const char *options, struct checking_options *bounds)
{
	struct vmkv_device_options open = { .struct_size = sizeof(open) };
	bool in_name = options && *options && target_is_host();
	char text[256] = "", name[256];
	vmkv_device *device = NULL;

	snprintf(name, sizeof(name), "%s%s%s", target_name(),
	         !in_name ? "" : strchr(target_name(), '?') ? "&" : "?", in_name ? options : "");
	open.name = name;
	open.error = text;
	open.error_bytes = sizeof(text);
	if (vmkv_device_open(&open, &device) != 0)
		CHECK_FAIL("%s: %s", name, text);
	if (options && !in_name)
		bounds_parse(options, bounds);
	return device;
}

static const char *options_of(const char *host_name)
{
	const char *options = strchr(host_name, '?');

	return options ? options + 1 : NULL;
}

vmkv_device *target_open_checking(const char *host_name, const struct checking_options *options)
{
	struct checking_options bounded = { 0 };
	vmkv_device *device = NULL, *inner;

	if (options)
		bounded = *options;
	inner = target_open(options_of(host_name), &bounded);
	CHECK_EQ(vmkv_device_checking_wrap(inner, &bounded, &device), 0);
	return device;
}

vmkv_device *target_open_waiting(const char *host_name)
{
	return target_open_checking(host_name, NULL);
}

/* ---- what exists ----------------------------------------------------------------------------- */

void target_look(vmkv_device *device, struct target_things *ret)
{
	struct vmkv_emulator_stats stats = { .struct_size = sizeof(stats) };
	struct vmkv_amdgpu_info info = { .struct_size = sizeof(info) };
	vmkv_emulator *emulator;
	uint64_t bytes = UINT64_C(1) << 30, point;

	*ret = (struct target_things){ 0 };
	if (vmkv_amdgpu_info(device, &info))
		return;
	if (!vmkv_device_is_safe(device, VMKV_SAFE_NEVER_REUSE_ADDRESSES)) {
		CHECK_EQ(device->ops->reserve(device, bytes, 2 << 20, &ret->address), 0);
		device->ops->release(device, ret->address, bytes);
	}
	/* What a job still holds goes when it has run: a submission comes after those before. */
	CHECK_EQ(amdgpu_submit_commit(amdgpu_of(device), &point), 0);
	CHECK_EQ(vmkv_wait(device, point, UINT64_MAX), 0);
	emulator = vmkv_emulator_of(info.drm_fd);
	if (!emulator)
		return;
	CHECK_EQ(vmkv_emulator_stats(emulator, &stats), 0);
	ret->buffers = stats.buffers;
	ret->handles = stats.handles;
	ret->mappings = stats.mappings;
	ret->contexts = stats.contexts;
	ret->syncobjs = stats.syncobjs;
}

void target_check_same(vmkv_device *device, const struct target_things *before, const char *what)
{
	struct target_things now;

	target_look(device, &now);
	if (!memcmp(&now, before, sizeof(now)))
		return;
	CHECK_FAIL("%s: there were %" PRIu64 " buffers, %" PRIu64 " handles, %" PRIu64
	           " mappings, %" PRIu64 " contexts and %" PRIu64 " syncobjs, and a reservation got 0x%"
	           PRIx64 "; now %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64
	           " and 0x%" PRIx64, what, before->buffers, before->handles, before->mappings,
	           before->contexts, before->syncobjs, before->address, now.buffers, now.handles,
	           now.mappings, now.contexts, now.syncobjs, now.address);
}
