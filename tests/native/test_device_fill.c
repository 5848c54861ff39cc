/* SPDX-License-Identifier: MIT */
#include <errno.h>

#include "device_fixture.h"

#define MiB (UINT64_C(1) << 20)

static void check_words(uint64_t address, uint64_t bytes, uint32_t value)
{
	for (uint64_t at = 0; at < bytes; at += 4)
		CHECK_EQ(*words(address + at), value);
}

/* ---- fill by slab --------------------------------------------------------------------------- */

static void fill_by_slab_shows_through_a_mapping(void)
{
	vmkv_device *device = open_host("host");
	uint64_t address = reserve(device, SLAB);
	struct vmkv_slab *slab = slab_create(device, SLAB);

	map(device, address, 3 * PIECE, slab, PIECE);
	fill_slab(device, slab, 2 * PIECE, PIECE, 0x11223344);
	check_words(address, PIECE, 0);
	check_words(address + PIECE, PIECE, 0x11223344);
	check_words(address + 2 * PIECE, PIECE, 0);
	device->ops->release(device, address, SLAB);
	device->ops->slab_destroy(device, slab);
	CHECK_EQ(vmkv_device_close(device), 0);
}

static void fills_go_in_order(void)
{
	vmkv_device *device = open_host("host");
	struct vmkv_slab *slab = slab_create(device, SLAB);
	struct vmkv_fill fills[3] = { { slab, 0, SLAB, 7 }, { slab, PIECE, 2 * PIECE, 0 },
		                      { slab, 2 * PIECE, PIECE, 9 } };
	uint64_t point = 77;

	CHECK_EQ(device->ops->fill(device, fills, 3, &point), 0);
	CHECK_EQ(point, 0);
	check_words(slab->alias, PIECE, 7);
	check_words(slab->alias + PIECE, PIECE, 0);
	check_words(slab->alias + 2 * PIECE, PIECE, 9);
	check_words(slab->alias + 3 * PIECE, SLAB - 3 * PIECE, 7);
	device->ops->slab_destroy(device, slab);
	CHECK_EQ(vmkv_device_close(device), 0);
}

/* Zeroing goes by blocks of 64 KiB: what was touched may grow to its block, and no further. */
static void zero_fill_takes_little_memory(void)
{
	vmkv_device *device = open_host("host");
	const uint64_t page = device->info.granule_bytes;
	struct vmkv_slab *slab = slab_create(device, 64 * MiB), *behind = slab_create(device, SLAB);

	fill_slab(device, slab, 0, slab->bytes, 0);
	CHECK_EQ(held_bytes(device), 0);
	*words(slab->alias + 5 * page) = 1;
	*words(slab->alias + 40 * page) = 1;
	*words(behind->alias) = 1;
	fill_slab(device, slab, 0, slab->bytes, 0);
	CHECK(held_bytes(device) >= 3 * page);
	CHECK(held_bytes(device) <= 2 * (64 << 10) + page);
	CHECK_EQ(*words(slab->alias + 5 * page), 0);
	CHECK_EQ(*words(slab->alias + 40 * page), 0);
	CHECK_EQ(*words(behind->alias), 1);
	device->ops->slab_destroy(device, slab);
	device->ops->slab_destroy(device, behind);
	CHECK_EQ(vmkv_device_close(device), 0);
}

/* Data that begins and ends before, at and behind the range's ends. */
static void zero_fill_keeps_to_its_range(void)
{
	vmkv_device *device = open_host("host");
	const uint64_t page = device->info.granule_bytes;
	struct vmkv_slab *front = slab_create(device, SLAB), *slab = slab_create(device, SLAB);

	CHECK_EQ(host_range_of(slab)->offset, SLAB); /* so offsets count from where the slab lies */
	for (uint64_t first = 0; first < 6; first++) {
		for (uint64_t last = first + 1; last <= 6; last++) {
			fill_slab(device, front, 0, SLAB, 3);
			fill_slab(device, slab, page, 4 * page, 3);
			fill_slab(device, slab, first * page, (last - first) * page, 0);
			for (uint64_t i = 0; i < 6; i++) {
				bool kept = i >= 1 && i < 5 && (i < first || i >= last);

				check_words(slab->alias + i * page, page, kept ? 3 : 0);
			}
			check_words(front->alias, SLAB, 3);
		}
	}
	device->ops->slab_destroy(device, front);
	device->ops->slab_destroy(device, slab);
	CHECK_EQ(vmkv_device_close(device), 0);
}

/* ---- fill by address ------------------------------------------------------------------------ */

static void fill_by_address_writes_exactly_its_range(void)
{
	static const uint64_t sizes[] = { 4, 8, 4096, 16384, 16388, 70000, 1 * MiB, 3 * MiB + 12 };
	vmkv_device *device = open_host("host");
	uint64_t address = reserve(device, 4 * MiB), point;
	struct vmkv_slab *slab = slab_create(device, 4 * MiB);

	map(device, address, 4 * MiB, slab, 0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		fill_slab(device, slab, 0, slab->bytes, 0);
		point = 77;
		CHECK_EQ(vmkv_fill(device, address + 4092, sizes[i], 0xdeadbeef, &point), 0);
		CHECK_EQ(point, 0);
		check_words(address, 4092, 0);
		check_words(address + 4092, sizes[i], 0xdeadbeef);
		check_words(address + 4092 + sizes[i], 4096, 0);
	}
	device->ops->release(device, address, 4 * MiB);
	device->ops->slab_destroy(device, slab);
	CHECK_EQ(vmkv_device_close(device), 0);
}

static void fill_stops_where_nothing_is(void)
{
	vmkv_device *device = open_host("host");
	uint64_t address = reserve(device, 4 * MiB), point = 77;
	struct vmkv_slab *slab = slab_create(device, 4 * MiB);

	map(device, address, 2 * MiB, slab, 0);
	CHECK_EQ(vmkv_fill(device, address, 4 * MiB, 5, &point), -EFAULT);
	CHECK_EQ(point, 77);
	check_words(address, 2 * MiB, 5); /* what came before it stays */
	CHECK_CONTAINS(last_error(device), "cannot fill");
	CHECK_EQ(vmkv_fill(device, address + 2 * MiB - 4, 8, 6, NULL), -EFAULT);
	CHECK_EQ(vmkv_fill(device, 0, 4, 6, NULL), -EFAULT);
	CHECK_EQ(vmkv_fill(device, UINT64_MAX - 3, 4, 6, NULL), -EFAULT);
	device->ops->release(device, address, 4 * MiB);
	CHECK_EQ(vmkv_fill(device, address, 4, 6, NULL), -EFAULT);
	device->ops->slab_destroy(device, slab);
	CHECK_EQ(vmkv_device_close(device), 0);
}

static void fill_checks_its_arguments(void)
{
	vmkv_device *device = open_host("host");
	uint64_t point = 77;

	CHECK_EQ(vmkv_fill(NULL, 4096, 4, 0, NULL), -EINVAL);
	CHECK_EQ(vmkv_fill(device, 4098, 4, 0, NULL), -EINVAL);
	CHECK_EQ(vmkv_fill(device, 4096, 6, 0, NULL), -EINVAL);
	CHECK_CONTAINS(last_error(device), "multiples of 4");
	CHECK_EQ(vmkv_fill(device, UINT64_MAX - 3, 8, 0, &point), -EINVAL);
	CHECK_CONTAINS(last_error(device), "past the end");
	CHECK_EQ(point, 77);
	CHECK_EQ(vmkv_fill(device, 4096, 0, 0, NULL), 0);
	CHECK_EQ(vmkv_fill(device, 4096, 0, 0, &point), 0);
	CHECK_EQ(point, 0);
	CHECK_EQ(vmkv_device_close(device), 0);
}

/* ---- copy ----------------------------------------------------------------------------------- */

static void copy_moves_bytes(void)
{
	vmkv_device *device = open_host("host");
	uint64_t address = reserve(device, SLAB), point = 77;
	struct vmkv_slab *slab = slab_create(device, SLAB);
	unsigned char *bytes = host_pointer(address);

	map(device, address, SLAB, slab, 0);
	for (uint64_t i = 0; i < 3 * PIECE; i++)
		bytes[i] = (unsigned char)(i * 7 + i / 256);
	CHECK_EQ(vmkv_copy(device, address + 8 * PIECE + 3, address + 1, 2 * PIECE, &point), 0);
	CHECK_EQ(point, 0);
	CHECK(!memcmp(bytes + 8 * PIECE + 3, bytes + 1, 2 * PIECE));
	CHECK_EQ(bytes[8 * PIECE + 2], 0);
	CHECK_EQ(bytes[10 * PIECE + 3], 0);
	CHECK_EQ(vmkv_copy(device, address + 100, address, 100, NULL), 0); /* they touch only */
	CHECK(!memcmp(bytes + 100, bytes, 100));
	device->ops->release(device, address, SLAB);
	device->ops->slab_destroy(device, slab);
	CHECK_EQ(vmkv_device_close(device), 0);
}

static void copy_reports_addresses_with_nothing_behind(void)
{
	vmkv_device *device = open_host("host");
	uint64_t address = reserve(device, SLAB), point = 77;
	struct vmkv_slab *slab = slab_create(device, SLAB);

	map(device, address, 4 * PIECE, slab, 0);
	fill_slab(device, slab, 0, 4 * PIECE, 0x01010101);
	CHECK_EQ(vmkv_copy(device, address, address + 4 * PIECE, 1, &point), -EFAULT);
	CHECK_EQ(vmkv_copy(device, address + 4 * PIECE, address, 1, &point), -EFAULT);
	CHECK_EQ(point, 77);
	CHECK_CONTAINS(last_error(device), "cannot copy");
	fill_slab(device, slab, 3 * PIECE, PIECE, 0x02020202);
	CHECK_EQ(vmkv_copy(device, address, address + 3 * PIECE, 2 * PIECE, NULL), -EFAULT);
	check_words(address, PIECE, 0x02020202); /* what came before it stays */
	check_words(address + PIECE, PIECE, 0x01010101);
	CHECK_EQ(vmkv_copy(device, 0, address, 4, NULL), -EFAULT);
	CHECK_EQ(vmkv_copy(device, address, UINT64_MAX - 3, 4, NULL), -EFAULT);
	device->ops->release(device, address, SLAB);
	device->ops->slab_destroy(device, slab);
	CHECK_EQ(vmkv_device_close(device), 0);
}

static void copy_checks_its_arguments(void)
{
	vmkv_device *device = open_host("host");
	uint64_t point = 77;

	CHECK_EQ(vmkv_copy(NULL, 0, 64, 1, NULL), -EINVAL);
	CHECK_EQ(vmkv_copy(device, 4096, 4097, 2, &point), -EINVAL);
	CHECK_EQ(vmkv_copy(device, 4097, 4096, 2, &point), -EINVAL);
	CHECK_EQ(vmkv_copy(device, 4096, 4096, 1, &point), -EINVAL);
	CHECK_CONTAINS(last_error(device), "overlap");
	CHECK_EQ(vmkv_copy(device, 4096, UINT64_MAX, 2, &point), -EINVAL);
	CHECK_CONTAINS(last_error(device), "copy from");
	CHECK_EQ(vmkv_copy(device, UINT64_MAX, 4096, 2, &point), -EINVAL);
	CHECK_CONTAINS(last_error(device), "copy to");
	CHECK_EQ(point, 77);
	CHECK_EQ(vmkv_copy(device, 4096, 4096, 0, &point), 0);
	CHECK_EQ(point, 0);
	CHECK_EQ(vmkv_copy(device, 0, 0, 0, NULL), 0);
	CHECK_EQ(vmkv_device_close(device), 0);
}

int main(void)
{
	RUN(fill_by_slab_shows_through_a_mapping);
	RUN(fills_go_in_order);
	if (target_is_host()) /* others hold all of a slab at once */
		RUN(zero_fill_takes_little_memory);
	RUN(zero_fill_keeps_to_its_range);
	RUN(fill_by_address_writes_exactly_its_range);
	RUN(fill_stops_where_nothing_is);
	RUN(fill_checks_its_arguments);
	RUN(copy_moves_bytes);
	RUN(copy_reports_addresses_with_nothing_behind);
	RUN(copy_checks_its_arguments);
	return 0;
}
