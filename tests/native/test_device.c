/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#include "device_fixture.h"

/* ---- open, info, close ---------------------------------------------------------------------- */

static void names_open_the_host(void)
{
	static const char *const names[] = { NULL, "auto", "host", "host?" };
	struct vmkv_device_info info = { .struct_size = sizeof(info) };

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		vmkv_device *device = open_named(names[i]);

		CHECK_EQ(vmkv_device_info(device, &info), 0);
		CHECK_STR(info.name, "host");
		CHECK_EQ(info.granule_bytes, sysconf(_SC_PAGESIZE));
		CHECK_EQ(info.memory_bytes, sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
		CHECK_EQ(info.features, VMKV_FEATURE_CPU_ADDRESSES | VMKV_FEATURE_ZEROED_SLABS);
		CHECK_EQ(info.lost, 0);
		CHECK_EQ(vmkv_device_close(device), 0);
	}
}

static void options_show_in_info_and_name(void)
{
	vmkv_device *device = open_named("host?memory=8GiB&max_mappings=200");
	vmkv_device *again;
	struct vmkv_device_info info = { .struct_size = sizeof(info) };
	struct vmkv_device_info second = { .struct_size = sizeof(second) };

	CHECK_EQ(vmkv_device_info(device, &info), 0);
	CHECK_EQ(info.max_mappings, 200);
	CHECK_EQ(info.memory_bytes, UINT64_C(8) << 30);
	CHECK_STR(info.name, "host?max_mappings=200&memory=8589934592");
	again = open_named(info.name);
	CHECK_EQ(vmkv_device_info(again, &second), 0);
	CHECK(!memcmp(&info, &second, sizeof(info)));
	CHECK_EQ(vmkv_device_close(device), 0);
	CHECK_EQ(vmkv_device_close(again), 0);
}

static void bad_names_are_told(void)
{
	static const struct {
		const char *name;
		int error;
		const char *text;
	} bad[] = {
		{ "", -EINVAL, "missing" },
		{ "?memory=1GiB", -EINVAL, "missing" },
		{ "hosts", -ENODEV, "unknown device \"hosts\": this version drives \"host\"" },
		{ "hos", -ENODEV, "unknown device" },
		{ "amdgpu:/no/such/node", -ENODEV, "cannot open /no/such/node" },
		{ "vulkan:0", -ENODEV, "this version drives \"host\"" },
		{ "no\nsuch", -ENODEV, "no?such" },
		{ "auto?memory=1GiB", -EINVAL, "takes no options" },
		{ "host?memory", -EINVAL, "name=value" },
		{ "host?&", -EINVAL, "name=value" },
		{ "host?memory=1GiB&&", -EINVAL, "name=value" },
		{ "host?color=red", -EINVAL, "unknown option \"color\"" },
		{ "host?memory=8GX", -EINVAL, "memory=8GX is no size" },
		{ "host?memory=0", -EINVAL, "is no size" },
		{ "host?memory=99999999TiB", -EINVAL, "is no size" },
		{ "host?memory=1GiB&memory=2GiB", -EINVAL, "twice" },
		{ "host?safe=no-alias&safe=no-alias", -EINVAL, "twice" },
		{ "host?safe=wait-after-map&wait_us=7&wait_us=7", -EINVAL, "twice" },
		{ "host?max_mappings=0", -EINVAL, "at least 1" },
		{ "host?max_mappings=-1", -EINVAL, "at least 1" },
		{ "host?max_mappings=1KiB", -EINVAL, "at least 1" },
		{ "host?max_mappings=99999999999", -EINVAL, "vm.max_map_count" },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		vmkv_device *device = NULL;
		char text[256] = "";

		CHECK_EQ(open_name(bad[i].name, text, sizeof(text), &device), bad[i].error);
		CHECK_CONTAINS(text, bad[i].text);
		CHECK(!strchr(text, '\n'));
		CHECK(!device);
		CHECK_EQ(open_name(bad[i].name, NULL, 0, &device), bad[i].error);
		CHECK_EQ(open_name(bad[i].name, text, 8, &device), bad[i].error);
		CHECK_EQ(strlen(text), 7);
	}
}

static void version_is_the_headers(void)
{
	CHECK_EQ(vmkv_version(), VMKV_VERSION_MAJOR << 16 | VMKV_VERSION_MINOR << 8 |
	                             VMKV_VERSION_PATCH);
}

static void open_tells_why_the_system_refused(void)
{
	vmkv_device *device = NULL;
	struct rlimit limit, low;
	char text[256] = "";
	int error;

	CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
	low = limit;
	low.rlim_cur = 3;
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
	error = open_name("host", text, sizeof(text), &device);
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
	CHECK_EQ(error, -EMFILE);
	CHECK_CONTAINS(text, "memory file");
	CHECK(!device);
}

static void open_checks_its_structs(void)
{
	struct { struct vmkv_device_options options; size_t later; } newer = { .later = 0 };
	vmkv_device *device = NULL;
	char text[256] = "";

	CHECK_EQ(vmkv_device_open(NULL, &device), -EINVAL);
	newer.options.struct_size = 0;
	CHECK_EQ(vmkv_device_open(&newer.options, &device), -EINVAL);
	newer.options.struct_size = sizeof(newer);
	newer.options.error = text;
	newer.options.error_bytes = sizeof(text);
	CHECK_EQ(vmkv_device_open(&newer.options, NULL), -EINVAL);
	CHECK_CONTAINS(text, "ret is NULL");
	newer.later = 1;
	CHECK_EQ(vmkv_device_open(&newer.options, &device), -E2BIG);
	CHECK_CONTAINS(text, "doesn't know");
	CHECK(!device);
	newer.later = 0;
	CHECK_EQ(vmkv_device_open(&newer.options, &device), 0);
	CHECK_EQ(vmkv_device_close(device), 0);
	newer.options.struct_size = sizeof(size_t); /* all defaults */
	CHECK_EQ(vmkv_device_open(&newer.options, &device), 0);
	CHECK_EQ(vmkv_device_close(device), 0);
}

static void info_fills_what_the_caller_has(void)
{
	vmkv_device *device = open_host("host");
	struct vmkv_device_info info = { .struct_size = sizeof(size_t) + 64 };

	CHECK_EQ(vmkv_device_info(device, &info), 0);
	CHECK(!strncmp(info.name, target_name(), 63));
	CHECK_EQ(info.granule_bytes, 0);
	CHECK_EQ(vmkv_device_info(device, NULL), -EINVAL);
	CHECK_EQ(vmkv_device_info(NULL, &info), -EINVAL);
	info.struct_size = 1;
	CHECK_EQ(vmkv_device_info(device, &info), -EINVAL);
	CHECK_EQ(vmkv_device_close(device), 0);
}

static void close_refuses_while_caches_live(void)
{
	vmkv_device *device = open_host("host");

	atomic_fetch_add(&device->caches, 2);
	CHECK_EQ(vmkv_device_close(device), -EBUSY);
	CHECK_CONTAINS(last_error(device), "caches still use the device (2)");
	atomic_fetch_sub(&device->caches, 2);
	CHECK_EQ(vmkv_device_close(device), 0);
	CHECK_EQ(vmkv_device_close(NULL), 0);
}

static void error_text_is_cut_but_its_length_told(void)
{
	vmkv_device *device = open_host("host");
	char text[8] = "unset", line[400];

	CHECK_EQ(vmkv_device_error(device, text, sizeof(text)), 0);
	CHECK_STR(text, "");
	CHECK_EQ(vmkv_device_fail(device, -EIO, "%s %d", "number", 12), -EIO);
	CHECK_EQ(vmkv_device_error(device, text, sizeof(text)), 9);
	CHECK_STR(text, "number ");
	CHECK_EQ(vmkv_device_error(device, NULL, 0), 9);
	memset(line, 'x', sizeof(line));
	vmkv_device_fail(device, -EIO, "%.*s", (int)sizeof(line), line);
	CHECK_EQ(vmkv_device_error(device, text, 1), sizeof(device->error) - 1);
	CHECK_STR(text, "");
	CHECK_EQ(vmkv_device_error(NULL, text, sizeof(text)), 0);
	CHECK_EQ(vmkv_device_close(device), 0);
}

static void lost_device_says_so(void)
{
	vmkv_device *device = open_host("host");
	struct vmkv_device_info info = { .struct_size = sizeof(info) };
	uint64_t point;

	CHECK(!vmkv_device_reached(device, 5));
	CHECK_EQ(vmkv_device_fail(device, -ENODEV, "it fell off the bus"), -ENODEV);
	CHECK(vmkv_device_reached(device, 5));
	CHECK_EQ(vmkv_device_info(device, &info), 0);
	CHECK_EQ(info.lost, 1);
	CHECK_EQ(vmkv_wait(device, 5, 0), -ENODEV);
	CHECK_EQ(vmkv_fill(device, 4096, 4096, 0, &point), -ENODEV);
	CHECK_EQ(vmkv_copy(device, 4096, 8192, 1, &point), -ENODEV);
	CHECK_STR(last_error(device), "it fell off the bus");
	vmkv_device_poll(device);
	CHECK_EQ(vmkv_device_close(device), 0);
}

static void points_are_all_reached(void)
{
	vmkv_device *device = open_host("host");

	vmkv_device_poll(device);
	CHECK_EQ(vmkv_wait(device, 0, UINT64_MAX), 0);
	CHECK_EQ(vmkv_wait(device, 5, UINT64_MAX), -EINVAL);
	CHECK_CONTAINS(last_error(device), "point 5");
	CHECK_EQ(vmkv_wait(NULL, 0, 0), -EINVAL);
	CHECK_EQ(vmkv_device_close(device), 0);
}

static void mappings_are_counted_up_to_the_bound(void)
{
	vmkv_device *device = open_host("host?max_mappings=10");
	struct vmkv_device_info info = { .struct_size = sizeof(info) };

	CHECK_EQ(vmkv_device_take_mappings(device, 7), 0);
	CHECK_EQ(vmkv_device_take_mappings(device, 8), 5);
	CHECK_EQ(vmkv_device_info(device, &info), 0);
	CHECK_EQ(info.mappings, 7);
	CHECK_EQ(vmkv_device_take_mappings(device, 3), 0);
	CHECK_EQ(vmkv_device_take_mappings(device, 1), 1);
	CHECK_EQ(vmkv_device_take_mappings(device, 0), 0);
	vmkv_device_give_mappings(device, 10);
	CHECK_EQ(vmkv_device_take_mappings(device, 11), 1);
	CHECK_EQ(vmkv_device_close(device), 0);
}

int main(void)
{
	RUN(names_open_the_host);
	RUN(options_show_in_info_and_name);
	RUN(bad_names_are_told);
	RUN(version_is_the_headers);
	RUN(open_tells_why_the_system_refused);
	RUN(open_checks_its_structs);
	RUN(info_fills_what_the_caller_has);
	RUN(close_refuses_while_caches_live);
	RUN(error_text_is_cut_but_its_length_told);
	RUN(lost_device_says_so);
	RUN(points_are_all_reached);
	RUN(mappings_are_counted_up_to_the_bound);
	return 0;
}
