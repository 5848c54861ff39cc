/* SPDX-License-Identifier: MIT
 *
 * What the tests of the host device share: its calls in their usual forms, checked.
 */
#ifndef DEVICE_FIXTURE_H
#define DEVICE_FIXTURE_H

#include <sys/stat.h>

#include "check.h"
#include "device_checking_record.h"
#include "device_host.h"
#include "target.h"

#define PIECE UINT64_C(65536)
#define SLAB (16 * PIECE)

static inline int open_name(const char *name, char *error, size_t error_bytes, vmkv_device **ret)
{
	struct vmkv_device_options options = {
		.struct_size = sizeof(options), .name = name, .error = error, .error_bytes = error_bytes,
	};

	return vmkv_device_open(&options, ret);
}

static inline vmkv_device *open_named(const char *name)
{
	char error[256] = "";
	vmkv_device *device = NULL;

	if (open_name(name, error, sizeof(error), &device))
		CHECK_FAIL("%s: %s", name, error);
	return device;
}

static inline struct vmkv_amdgpu_info info_of(vmkv_device *device)
{
	struct vmkv_amdgpu_info info = { .struct_size = sizeof(info) };

	CHECK_EQ(vmkv_amdgpu_info(device, &info), 0);
	return info;
}

/* The host by this name, or what the tests run on instead. */
static inline vmkv_device *open_host(const char *name)
{
	return target_is_host() ? open_named(name) : target_open_waiting(name);
}

static inline uint64_t reserve(vmkv_device *device, uint64_t bytes)
{
	uint64_t address = 0;

	CHECK_EQ(device->ops->reserve(device, bytes, PIECE, &address), 0);
	return address;
}

static inline struct vmkv_slab *slab_create(vmkv_device *device, uint64_t bytes)
{
	struct vmkv_slab *slab = NULL;

	CHECK_EQ(device->ops->slab_create(device, bytes, &slab), 0);
	CHECK_EQ(slab->bytes, bytes);
	return slab;
}

static inline void map(vmkv_device *device, uint64_t address, uint64_t bytes,
                       struct vmkv_slab *slab, uint64_t offset)
{
	struct vmkv_map one = { address, bytes, slab, offset };
	size_t issued = 77;
	uint64_t point = 77;

	CHECK_EQ(device->ops->map(device, &one, 1, &issued, &point), 0);
	CHECK_EQ(issued, 1);
	CHECK_EQ(point, 0);
}

static inline void unmap(vmkv_device *device, uint64_t address, uint64_t bytes, uint32_t mappings,
                         struct vmkv_slab *slab)
{
	struct vmkv_unmap one = { address, bytes, mappings, slab };
	size_t issued = 77;
	uint64_t point = 77;

	CHECK_EQ(device->ops->unmap(device, &one, 1, &issued, &point), 0);
	CHECK_EQ(issued, 1);
	CHECK_EQ(point, 0);
}

static inline void fill_slab(vmkv_device *device, struct vmkv_slab *slab, uint64_t offset,
                             uint64_t bytes, uint32_t value)
{
	struct vmkv_fill fill = { slab, offset, bytes, value };
	uint64_t point = 77;

	CHECK_EQ(device->ops->fill(device, &fill, 1, &point), 0);
	CHECK_EQ(point, 0);
}

static inline volatile uint32_t *words(uint64_t address)
{
	return host_pointer(address);
}

/* Memory that the device really holds: on the host what of it was touched. */
static inline uint64_t held_bytes(vmkv_device *device)
{
	struct vmkv_device_health health = { .struct_size = sizeof(health) };
	struct stat status;

	if (!target_is_host()) {
		CHECK_EQ(vmkv_device_health(checking_of(device)->inner, &health), 0);
		return health.slab_bytes;
	}
	CHECK_EQ(fstat(host_of(device)->fd, &status), 0);
	return (uint64_t)status.st_blocks * 512;
}

static inline const char *last_error(vmkv_device *device)
{
	static char text[256];

	vmkv_device_error(device, text, sizeof(text));
	return text;
}

#endif
