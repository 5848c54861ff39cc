/* SPDX-License-Identifier: MIT
 *
 * The checking device's lag, dirty slabs and faults.
 */
#include <errno.h>

#include "device_checking_fixture.h"

/* ---- lagging points ------------------------------------------------------------------------- */

static const struct checking_options lagging = { .lag_seed = 5 };

static uint64_t map_lagging(struct bench *b, uint64_t at, struct vmkv_slab *slab, uint64_t offset)
{
	struct vmkv_map one = { b->address + at, PIECE, slab, offset };
	size_t issued;
	uint64_t point = 0;

	CHECK_EQ(b->device->ops->map(b->device, &one, 1, &issued, &point), 0);
	CHECK_EQ(issued, 1);
	CHECK(point > 0);
	return point;
}

static uint64_t unmap_lagging(struct bench *b, uint64_t at, struct vmkv_slab *slab)
{
	struct vmkv_unmap one = { b->address + at, PIECE, 1, slab };
	size_t issued;
	uint64_t point = 0;

	CHECK_EQ(b->device->ops->unmap(b->device, &one, 1, &issued, &point), 0);
	CHECK_EQ(issued, 1);
	CHECK(point > 0);
	return point;
}

static uint64_t fill_lagging(struct bench *b, struct vmkv_slab *slab, uint64_t offset,
                             uint32_t value)
{
	struct vmkv_fill fill = { slab, offset, PIECE, value };
	uint64_t point = 0;

	CHECK_EQ(b->device->ops->fill(b->device, &fill, 1, &point), 0);
	CHECK(point > 0);
	return point;
}

static void maps_become_usable_late(void)
{
	struct bench b;
	uint64_t point;

	setup(&b, &lagging);
	CHECK(b.device->info.features & VMKV_FEATURE_ASYNCHRONOUS);
	point = map_lagging(&b, 0, b.slab, 0);
	CHECK(!checking_usable(b.device, b.address, 1));
	CHECK(!vmkv_device_reached(b.device, point));
	CHECK_EQ(vmkv_wait(b.device, point, UINT64_MAX), 0);
	CHECK(vmkv_device_reached(b.device, point));
	CHECK(checking_usable(b.device, b.address, PIECE));
	CHECK_EQ(try_unmap(&b, 0, PIECE, 1, b.slab), 0);
	CHECK(!checking_usable(b.device, b.address, 1));
	teardown(&b, 0, "");
}

static void unmaps_take_effect_late(void)
{
	struct bench b;
	uint64_t point;

	setup(&b, &lagging);
	map_lagging(&b, 0, b.slab, 0);
	point = unmap_lagging(&b, 0, b.slab);
	*words(b.address) = 1; /* still there */
	CHECK_EQ(*words(b.slab->alias), 1);
	CHECK_EQ(try_map(&b, 0, PIECE, b.slab, PIECE), -EINVAL);
	CHECK_EQ(try_unmap(&b, 0, PIECE, 1, b.slab), -EINVAL);
	CHECK_EQ(violations(&b), 2);
	b.device->ops->slab_destroy(b.device, b.slab);
	CHECK_EQ(violations(&b), 3);
	CHECK_EQ(vmkv_wait(b.device, point, 1), 0);
	CHECK_EQ(vmkv_fill(b.device, b.address, 4, 1, NULL), -EFAULT);
	map_lagging(&b, 0, b.slab, PIECE);
	teardown(&b, 3, "not unmapped yet");
}

static void fills_take_effect_late_and_in_order(void)
{
	struct bench b;
	uint64_t mapped, filled, again;

	setup(&b, &lagging);
	mapped = map_lagging(&b, 0, b.slab, 0);
	filled = fill_lagging(&b, b.slab, 0, 7);
	CHECK_EQ(vmkv_wait(b.device, mapped, UINT64_MAX), 0);
	if (!vmkv_device_reached(b.device, filled)) {
		CHECK_EQ(*words(b.address), 0);
		CHECK(!checking_usable(b.device, b.address, 1));
	}
	again = fill_lagging(&b, b.slab, 0, 8);
	CHECK_EQ(vmkv_wait(b.device, again, UINT64_MAX), 0);
	CHECK_EQ(*words(b.address), 8);
	CHECK(checking_usable(b.device, b.address, 1));
	fill_lagging(&b, b.slab, 0, 9);
	CHECK_EQ(vmkv_fill(b.device, b.address, 4, 10, NULL), 0); /* comes after it */
	CHECK_EQ(*words(b.address), 10);
	CHECK_EQ(*words(b.address + 4), 9);
	CHECK_EQ(vmkv_copy(b.device, b.address, b.address + 4, 4, &again), 0);
	CHECK(!vmkv_device_reached(b.device, again));
	fill_lagging(&b, b.other, 0, 1);
	b.device->ops->slab_destroy(b.device, b.other);
	CHECK_EQ(violations(&b), 1);
	teardown(&b, 1, "still being filled");
}

static uint64_t calls(struct bench *b, enum checking_kind kind)
{
	struct checking_report report;

	checking_report(b->device, &report);
	return report.calls[kind];
}

static void copy_and_fill_wait_unless_given_a_point(void)
{
	struct bench b;
	uint64_t point = 77;

	setup(&b, &lagging);
	map_lagging(&b, 0, b.slab, 0);
	CHECK_EQ(vmkv_fill(b.device, b.address, 8, 1, &point), 0);
	CHECK(!vmkv_device_reached(b.device, point));
	CHECK_EQ(vmkv_fill(b.device, b.address, 8, 1, NULL), 0);
	CHECK(vmkv_device_reached(b.device, point + 1));
	CHECK_EQ(vmkv_copy(b.device, b.address, b.address + 4, 4, &point), 0);
	CHECK(!vmkv_device_reached(b.device, point));
	CHECK_EQ(vmkv_copy(b.device, b.address, b.address + 4, 4, NULL), 0);
	CHECK(vmkv_device_reached(b.device, point + 1));
	CHECK_EQ(vmkv_copy(b.device, b.address, b.address + 4, 0, &point), 0);
	CHECK_EQ(point, 0);
	CHECK_EQ(vmkv_fill(b.device, b.address, 0, 1, NULL), 0);
	CHECK_EQ(calls(&b, CHECKING_FILL), 2); /* none for no bytes */
	CHECK_EQ(calls(&b, CHECKING_COPY), 2);
	teardown(&b, 0, "");
}

static void points_are_reached_by_looking(void)
{
	struct bench b;
	uint64_t points[50], looks = 0, late = 0;

	setup(&b, &lagging);
	for (size_t i = 0; i < 50; i++)
		points[i] = fill_lagging(&b, b.slab, 0, 1);
	for (size_t i = 0; i < 50; i++) {
		CHECK(i == 0 || points[i] > points[i - 1]);
		for (uint64_t before = looks; !vmkv_device_reached(b.device, points[i]); looks++) {
			CHECK_EQ(vmkv_wait(b.device, points[49] + 1, 0), -ETIME);
			late += looks > before;
		}
	}
	CHECK(looks >= 50 && looks <= 50 * 5);
	CHECK(late > 10);
	CHECK_EQ(vmkv_wait(b.device, points[49] + 1, 1), -EINVAL);
	teardown(&b, 1, "never given");
}

static void the_seed_tells_the_lag(void)
{
	uint64_t looks[3] = { 0 };
	static const uint64_t seeds[3] = { 11, 11, 12 };

	for (size_t i = 0; i < 3; i++) {
		struct checking_options options = { .lag_seed = seeds[i], .lag_polls = 1000 };
		struct bench b;
		uint64_t point;

		setup(&b, &options);
		point = map_lagging(&b, 0, b.slab, 0);
		for (; !vmkv_device_reached(b.device, point); looks[i]++)
			vmkv_device_poll(b.device);
		teardown(&b, 0, "");
	}
	CHECK_EQ(looks[0], looks[1]);
	CHECK(looks[0] != looks[2]);
}

/* Its inner device may lag too: without a lag of its own it waits for it. */
static void an_inner_lag_is_waited_for(void)
{
	struct checking_report end;
	struct checking_options inner_options = lagging, outer_options = { .report = &end };
	vmkv_device *inner = NULL, *device = NULL;
	struct vmkv_slab *slab;
	uint64_t address;

	inner_options.dirty_slabs = true;
	inner = target_open_checking("host", &inner_options);
	CHECK_EQ(vmkv_device_checking_wrap(inner, &outer_options, &device), 0);
	CHECK_EQ(device->info.features, VMKV_FEATURE_CPU_ADDRESSES);
	address = reserve(device, SLAB);
	slab = slab_create(device, SLAB);
	map(device, address, PIECE, slab, 0);
	fill_slab(device, slab, 0, PIECE, 6);
	CHECK_EQ(*words(address), 6);
	unmap(device, address, PIECE, 1, slab);
	CHECK_EQ(vmkv_fill(device, address, 4, 1, NULL), -EFAULT);
	device->ops->release(device, address, SLAB);
	device->ops->slab_destroy(device, slab);
	CHECK_EQ(vmkv_device_close(device), 0);
	CHECK_EQ(end.violations, 0);
}

/* What was issued can't fail any more: if the inner device does, that is told as a violation. */
static void late_failures_are_told(void)
{
	struct bench b;
	struct checking_options options = lagging;
	vmkv_device *inner = NULL;
	uint64_t point;

	options.report = &b.end;
	inner = target_open_checking("host", NULL);
	CHECK_EQ(vmkv_device_checking_wrap(inner, &options, &b.device), 0);
	b.address = reserve(b.device, SLAB);
	b.slab = slab_create(b.device, SLAB);
	b.other = slab_create(b.device, SLAB);
	point = fill_lagging(&b, b.slab, 0, 1);
	checking_fault_set(inner, &(struct checking_fault){ .call = 1 });
	CHECK_EQ(vmkv_wait(b.device, point, UINT64_MAX), 0);
	teardown(&b, 1, "the inner device failed a lagging fill");
}

static void new_slabs_are_dirty(void)
{
	struct checking_options options = { .dirty_slabs = true };
	struct bench b;

	setup(&b, &options);
	CHECK_EQ(b.device->info.features, VMKV_FEATURE_CPU_ADDRESSES);
	for (uint64_t at = 0; at < SLAB; at += 4)
		CHECK_EQ(*words(b.slab->alias + at), 0xa5a5a5a5);
	teardown(&b, 0, "");
}

/* ---- faults --------------------------------------------------------------------------------- */

static void the_chosen_call_fails(void)
{
	struct bench b;
	struct vmkv_map maps[4];
	struct vmkv_unmap unmaps[4];
	size_t issued;
	uint64_t point = 77;

	setup(&b, NULL);
	for (uint64_t i = 0; i < 4; i++) {
		maps[i] = (struct vmkv_map){ b.address + i * PIECE, PIECE, b.slab, i * PIECE };
		unmaps[i] = (struct vmkv_unmap){ b.address + i * PIECE, PIECE, 1, b.slab };
	}
	checking_fault_set(b.device, &(struct checking_fault){ .call = 3 });
	CHECK_EQ(b.device->ops->map(b.device, maps, 4, &issued, &point), -EIO);
	CHECK_EQ(issued, 2);
	CHECK_EQ(point, 77);
	CHECK_CONTAINS(last_error(b.device), "call 3 was made to fail");
	CHECK(checking_usable(b.device, b.address, 2 * PIECE));
	CHECK(!checking_usable(b.device, b.address + 2 * PIECE, 1));
	CHECK_EQ(b.device->ops->map(b.device, maps + 2, 2, &issued, &point), 0);
	CHECK_EQ(issued, 2);
	checking_fault_set(b.device, &(struct checking_fault){ .call = 2, .error = -ENOSPC });
	point = 77;
	CHECK_EQ(b.device->ops->unmap(b.device, unmaps, 4, &issued, &point), -ENOSPC);
	CHECK_EQ(issued, 1);
	CHECK_EQ(point, 0);
	CHECK(!checking_usable(b.device, b.address, 1));
	CHECK(checking_usable(b.device, b.address + PIECE, 3 * PIECE));
	CHECK_EQ(b.device->ops->unmap(b.device, unmaps + 1, 3, &issued, &point), 0);
	teardown(&b, 0, "");
	CHECK_EQ(b.end.failed[CHECKING_MAP], 1);
	CHECK_EQ(b.end.failed[CHECKING_UNMAP], 1);
}

static void faults_choose_kinds_and_last(void)
{
	struct bench b;
	struct checking_fault fault = { .call = 2, .forever = true, .kinds = 1u << CHECKING_FILL };
	struct vmkv_slab *slab = NULL;
	uint64_t address;

	setup(&b, NULL);
	checking_fault_set(b.device, &fault);
	CHECK_EQ(try_fill(&b, b.slab, 0, PIECE), 0);
	CHECK_EQ(try_map(&b, 0, PIECE, b.slab, 0), 0);
	CHECK_EQ(try_fill(&b, b.slab, 0, PIECE), -EIO);
	CHECK_EQ(try_fill(&b, b.slab, 0, PIECE), -EIO);
	fault.kinds = 1u << CHECKING_RESERVE | 1u << CHECKING_SLAB_CREATE | 1u << CHECKING_COPY;
	fault.call = 1;
	checking_fault_set(b.device, &fault);
	CHECK_EQ(try_fill(&b, b.slab, 0, PIECE), 0);
	CHECK_EQ(b.device->ops->reserve(b.device, PIECE, PIECE, &address), -EIO);
	CHECK_EQ(b.device->ops->slab_create(b.device, PIECE, &slab), -EIO);
	CHECK_EQ(vmkv_copy(b.device, b.address, b.address + 4, 4, NULL), -EIO);
	CHECK(!slab);
	teardown(&b, 0, "");
}

static void faults_come_with_a_probability(void)
{
	struct bench b;
	uint64_t failed[2] = { 0 };

	setup(&b, NULL);
	for (size_t i = 0; i < 2; i++) {
		checking_fault_set(b.device, &(struct checking_fault){ .per_million = 200000,
		                                                       .seed = 3 });
		for (int k = 0; k < 1000; k++)
			failed[i] += try_fill(&b, b.slab, 0, 4096) == -EIO;
	}
	CHECK(failed[0] > 100 && failed[0] < 300);
	CHECK_EQ(failed[0], failed[1]);
	teardown(&b, 0, "");
}

static void the_device_is_lost(void)
{
	struct bench b;
	uint64_t point;

	setup(&b, &lagging);
	map_lagging(&b, 0, b.slab, 0);
	point = unmap_lagging(&b, 0, b.slab);
	checking_fault_set(b.device, &(struct checking_fault){ .call = 1, .error = -ENODEV });
	CHECK_EQ(try_fill(&b, b.slab, 0, PIECE), -ENODEV);
	CHECK(vmkv_device_reached(b.device, point));
	CHECK_EQ(vmkv_wait(b.device, point, 0), -ENODEV);
	CHECK_EQ(try_map(&b, PIECE, PIECE, b.slab, 0), -ENODEV);
	b.device->ops->slab_destroy(b.device, b.slab); /* its unmap counts as reached */
	b.device->ops->release(b.device, b.address, SLAB);
	b.device->ops->slab_destroy(b.device, b.other);
	CHECK_EQ(vmkv_device_close(b.device), 0);
	CHECK_EQ(b.end.violations, 0);
	CHECK_EQ(b.end.calls_after_loss, 1);
	CHECK_EQ(b.end.slabs + b.end.reservations + b.end.mappings, 0);
}

/* What the inner device refuses is passed on, and leaves the record right. The inner one is a
 * checking device too, so that it can be made to fail. */
static void inner_failures_are_passed_on(void)
{
	struct bench b;
	struct checking_options options = { .report = &b.end };
	vmkv_device *inner = NULL;
	struct vmkv_slab *slab = NULL;
	struct vmkv_map maps[2];
	size_t issued;
	uint64_t point;

	inner = target_open_checking("host?memory=2MiB", NULL);
	CHECK_EQ(vmkv_device_checking_wrap(inner, &options, &b.device), 0);
	b.address = reserve(b.device, SLAB);
	b.slab = slab_create(b.device, SLAB);
	b.other = slab_create(b.device, SLAB);
	CHECK_EQ(b.device->ops->slab_create(b.device, PIECE, &slab), -ENOSPC);
	CHECK_CONTAINS(last_error(b.device), "2097152");
	maps[0] = (struct vmkv_map){ b.address, PIECE, b.slab, 0 };
	maps[1] = (struct vmkv_map){ b.address + PIECE, PIECE, b.slab, PIECE };
	checking_fault_set(inner, &(struct checking_fault){ .call = 2 });
	CHECK_EQ(b.device->ops->map(b.device, maps, 2, &issued, &point), -EIO);
	CHECK_EQ(issued, 1);
	CHECK_EQ(try_map(&b, PIECE, PIECE, b.slab, PIECE), 0);
	checking_fault_set(inner, &(struct checking_fault){ .call = 1 });
	CHECK_EQ(try_unmap(&b, 0, PIECE, 1, b.slab), -EIO);
	CHECK(checking_usable(b.device, b.address, 2 * PIECE));
	CHECK_EQ(try_unmap(&b, 0, 2 * PIECE, 2, NULL), 0);
	checking_fault_set(inner, &(struct checking_fault){ .call = 1 });
	CHECK_EQ(try_fill(&b, b.slab, 0, PIECE), -EIO);
	CHECK_EQ(try_fill(&b, b.slab, 0, PIECE), 0);
	teardown(&b, 0, "");
}

int main(void)
{
	RUN(maps_become_usable_late);
	RUN(unmaps_take_effect_late);
	RUN(fills_take_effect_late_and_in_order);
	RUN(copy_and_fill_wait_unless_given_a_point);
	RUN(points_are_reached_by_looking);
	RUN(the_seed_tells_the_lag);
	RUN(an_inner_lag_is_waited_for);
	RUN(late_failures_are_told);
	RUN(new_slabs_are_dirty);
	RUN(the_chosen_call_fails);
	RUN(faults_choose_kinds_and_last);
	RUN(faults_come_with_a_probability);
	RUN(the_device_is_lost);
	RUN(inner_failures_are_passed_on);
	return 0;
}
