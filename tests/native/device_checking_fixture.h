/* SPDX-License-Identifier: MIT
 *
 * What the tests of the checking device share.
 */
#ifndef DEVICE_CHECKING_FIXTURE_H
#define DEVICE_CHECKING_FIXTURE_H

#include "device_checking.h"
#include "device_fixture.h"

/* A checking device on the host, or what the tests run on, with one reservation of SLAB bytes and two slabs of that size. */
struct bench {
	vmkv_device *device;
	uint64_t address;
	struct vmkv_slab *slab, *other;
	struct checking_report end;
};

static inline vmkv_device *wrap_host(const struct checking_options *options)
{
	return target_open_checking("host", options);
}

static inline void setup(struct bench *b, const struct checking_options *options)
{
	struct checking_options own = { 0 };

	if (options)
		own = *options;
	own.report = &b->end;
	b->device = wrap_host(&own);
	b->address = reserve(b->device, SLAB);
	b->slab = slab_create(b->device, SLAB);
	b->other = slab_create(b->device, SLAB);
}

static inline uint64_t violations(struct bench *b)
{
	struct checking_report report;

	checking_report(b->device, &report);
	return report.violations;
}

/* Give all back; exactly `expected` rules were broken, the first as `text` says. */
static inline void teardown(struct bench *b, uint64_t expected, const char *text)
{
	b->device->ops->release(b->device, b->address, SLAB);
	b->device->ops->slab_destroy(b->device, b->slab);
	b->device->ops->slab_destroy(b->device, b->other);
	CHECK_EQ(vmkv_device_close(b->device), 0);
	CHECK_CONTAINS(b->end.violation, text);
	CHECK_EQ(b->end.violations, expected);
	CHECK_EQ(b->end.reservations + b->end.slabs + b->end.mappings, 0);
}

static inline int try_map(struct bench *b, uint64_t at, uint64_t bytes, struct vmkv_slab *slab,
                          uint64_t offset)
{
	struct vmkv_map one = { b->address + at, bytes, slab, offset };
	size_t issued;
	uint64_t point;

	return b->device->ops->map(b->device, &one, 1, &issued, &point);
}

static inline int try_unmap(struct bench *b, uint64_t at, uint64_t bytes, uint32_t mappings,
                            struct vmkv_slab *slab)
{
	struct vmkv_unmap one = { b->address + at, bytes, mappings, slab };
	size_t issued;
	uint64_t point;

	return b->device->ops->unmap(b->device, &one, 1, &issued, &point);
}

static inline int try_fill(struct bench *b, struct vmkv_slab *slab, uint64_t offset, uint64_t bytes)
{
	struct vmkv_fill fill = { slab, offset, bytes, 0 };
	uint64_t point;

	return b->device->ops->fill(b->device, &fill, 1, &point);
}

#endif
