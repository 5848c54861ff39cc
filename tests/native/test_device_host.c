/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "device_fixture.h"

/* ---- mappings ------------------------------------------------------------------------------- */

static void reservations_are_aligned_and_empty(void)
{
	vmkv_device *device = open_host("host");
	const uint64_t align = UINT64_C(1) << 30, bytes = 3 * PIECE;
	uint64_t address = 0, other = 0;
	unsigned char resident[64];

	CHECK_EQ(device->ops->reserve(device, bytes, align, &address), 0);
	CHECK(address && address % align == 0);
	CHECK_EQ(device->ops->reserve(device, bytes, 1, &other), 0);
	CHECK(other + bytes <= address || address + bytes <= other);
	CHECK_EQ(vmkv_copy(device, address, other, 16, NULL), -EFAULT);
	device->ops->release(device, address, bytes);
	CHECK_EQ(mincore(host_pointer(address), bytes, resident), -1);
	device->ops->release(device, other, bytes);
	other = 77;
	CHECK_EQ(device->ops->reserve(device, UINT64_C(1) << 60, PIECE, &other), -ENOSPC);
	CHECK_EQ(device->ops->reserve(device, UINT64_MAX - 4095, PIECE, &other), -ENOSPC);
	CHECK_CONTAINS(last_error(device), "reserve");
	CHECK_EQ(other, 77);
	CHECK_EQ(vmkv_device_close(device), 0);
}

/* Of this process's whole address space. */
static uint64_t address_bytes(void)
{
	unsigned long long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	CHECK(file && fscanf(file, "%llu", &pages) == 1);
	fclose(file);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void addresses_are_given_back(void)
{
	const uint64_t GiB = UINT64_C(1) << 30;
	vmkv_device *device = open_host("host");
	uint64_t addresses[16], before = address_bytes();

	for (size_t i = 0; i < 16; i++)
		CHECK_EQ(device->ops->reserve(device, SLAB, GiB, &addresses[i]), 0);
	CHECK(address_bytes() - before < GiB); /* what alignment needed was trimmed */
	for (size_t i = 0; i < 16; i++)
		device->ops->release(device, addresses[i], SLAB);
	for (size_t i = 0; i < 16; i++)
		device->ops->slab_destroy(device, slab_create(device, GiB));
	CHECK(address_bytes() - before < GiB || address_bytes() < before);
	CHECK_EQ(vmkv_device_close(device), 0);
}

static void maps_show_the_slab(void)
{
	vmkv_device *device = open_host("host");
	uint64_t address = reserve(device, 8 * PIECE);
	struct vmkv_slab *first = slab_create(device, SLAB), *second = slab_create(device, SLAB);

	map(device, address, 2 * PIECE, second, 3 * PIECE);
	map(device, address + 4 * PIECE, PIECE, second, 4 * PIECE);
	map(device, address + 5 * PIECE, PIECE, first, 4 * PIECE);
	*words(address + PIECE) = 123;
	CHECK_EQ(*words(address + 4 * PIECE), 123);
	CHECK_EQ(*words(second->alias + 4 * PIECE), 123);
	CHECK_EQ(*words(address + 5 * PIECE), 0);
	*words(first->alias + 4 * PIECE) = 9;
	CHECK_EQ(*words(address + 5 * PIECE), 9);
	device->ops->release(device, address, 8 * PIECE); /* unmaps what is left */
	device->ops->slab_destroy(device, first);
	device->ops->slab_destroy(device, second);
	CHECK_EQ(vmkv_device_close(device), 0);
}

static void unmapped_addresses_fault(void)
{
	vmkv_device *device = open_host("host");
	uint64_t address = reserve(device, 8 * PIECE);
	struct vmkv_slab *slab = slab_create(device, SLAB);

	map(device, address, 2 * PIECE, slab, 0);
	map(device, address + 2 * PIECE, PIECE, slab, 8 * PIECE);
	map(device, address + 3 * PIECE, PIECE, slab, 5 * PIECE);
	unmap(device, address, 3 * PIECE, 2, NULL);
	CHECK_EQ(vmkv_fill(device, address, 4, 1, NULL), -EFAULT);
	CHECK_EQ(vmkv_fill(device, address + 3 * PIECE - 4, 4, 1, NULL), -EFAULT);
	CHECK_EQ(vmkv_fill(device, address + 3 * PIECE, 4, 1, NULL), 0);
	unmap(device, address + 3 * PIECE, PIECE, 1, slab);
	CHECK_EQ(vmkv_fill(device, address + 3 * PIECE, 4, 1, NULL), -EFAULT);
	map(device, address, PIECE, slab, 5 * PIECE); /* the addresses are still ours */
	CHECK_EQ(*words(address), 1);
	device->ops->release(device, address, 8 * PIECE);
	device->ops->slab_destroy(device, slab);
	CHECK_EQ(vmkv_device_close(device), 0);
}

static void failed_calls_tell_how_far_they_got(void)
{
	vmkv_device *device = open_host("host");
	uint64_t address = reserve(device, 8 * PIECE), point = 77;
	struct vmkv_slab *slab = slab_create(device, SLAB);
	struct vmkv_map maps[3] = {
		{ address, PIECE, slab, 0 },
		{ address + PIECE + 1, PIECE, slab, PIECE }, /* no multiple of the granule */
		{ address + 2 * PIECE, PIECE, slab, 2 * PIECE },
	};
	struct vmkv_unmap unmaps[2] = {
		{ address, PIECE, 1, slab },
		{ address + 2 * PIECE + 1, PIECE, 1, slab },
	};
	size_t issued = 77;

	CHECK_EQ(device->ops->map(device, maps, 3, &issued, &point), -EINVAL);
	CHECK_EQ(issued, 1);
	CHECK_EQ(point, 77);
	CHECK_CONTAINS(last_error(device), "cannot map memory");
	CHECK_EQ(vmkv_fill(device, address, 4, 1, NULL), 0);
	CHECK_EQ(vmkv_fill(device, address + 2 * PIECE, 4, 1, NULL), -EFAULT);
	CHECK_EQ(device->ops->unmap(device, unmaps, 2, &issued, &point), -EINVAL);
	CHECK_EQ(issued, 1);
	CHECK_EQ(point, 0);
	CHECK_EQ(vmkv_fill(device, address, 4, 1, NULL), -EFAULT);
	CHECK_EQ(device->ops->unmap(device, unmaps + 1, 1, &issued, &point), -EINVAL);
	CHECK_EQ(issued, 0);
	device->ops->release(device, address, 8 * PIECE);
	device->ops->slab_destroy(device, slab);
	CHECK_EQ(vmkv_device_close(device), 0);
}

/* Every second page, so that the kernel can join none of them. Returns how many it could map. */
static size_t map_scattered(vmkv_device *device, uint64_t address, struct vmkv_slab *slab, size_t n,
                            int *error)
{
	const uint64_t page = device->info.granule_bytes;
	size_t issued = 1, done = 0;
	uint64_t point;

	for (*error = 0; done < n && !*error; done += issued) {
		struct vmkv_map one = { address + 2 * done * page, page, slab, 0 };

		*error = device->ops->map(device, &one, 1, &issued, &point);
	}
	return done;
}

/* Whether a test can walk up to the kernel's bound on mappings. */
static bool bound_in_reach(vmkv_device *device)
{
	if (device->info.max_mappings <= 200000)
		return true;
	printf("skipped: vm.max_map_count is too high to be reached in a test\n");
	return false;
}

static void default_bound_keeps_headroom(void)
{
	vmkv_device *device = open_host("host");
	const uint64_t n = device->info.max_mappings, page = device->info.granule_bytes;
	uint64_t address = reserve(device, 2 * n * page);
	struct vmkv_slab *slab = slab_create(device, SLAB), *more;
	int error;

	if (bound_in_reach(device)) {
		CHECK_EQ(map_scattered(device, address, slab, n, &error), n);
		CHECK_EQ(error, 0);
		more = slab_create(device, SLAB);
		for (uint64_t i = 0; i < n; i++)
			unmap(device, address + 2 * i * page, page, 1, slab);
		device->ops->slab_destroy(device, more);
	}
	device->ops->release(device, address, 2 * n * page);
	device->ops->slab_destroy(device, slab);
	CHECK_EQ(vmkv_device_close(device), 0);
}

static void kernels_bound_is_told_from_lack_of_memory(void)
{
#ifdef __SANITIZE_THREAD__
	printf("skipped: ThreadSanitizer needs mappings for itself\n");
#else
	vmkv_device *device = open_host("host");
	const uint64_t n = 4 * device->info.max_mappings, page = device->info.granule_bytes;
	uint64_t address = reserve(device, 2 * n * page);
	struct vmkv_slab *slab = slab_create(device, SLAB);
	int error = 0;

	if (bound_in_reach(device)) {
		CHECK(map_scattered(device, address, slab, n, &error) > n / 4);
		device->ops->release(device, address, 2 * n * page);
		CHECK_EQ(error, -ENOSPC);
		CHECK_CONTAINS(last_error(device), "raise it with: sysctl -w vm.max_map_count=");
	}
	device->ops->slab_destroy(device, slab);
	CHECK_EQ(vmkv_device_close(device), 0);
#endif
}

/* ---- memory --------------------------------------------------------------------------------- */

static uint64_t told_bytes(vmkv_device *device)
{
	struct vmkv_device_health health = { .struct_size = sizeof(health) };

	CHECK_EQ(vmkv_device_health(device, &health), 0);
	return health.slab_bytes;
}

static void destroyed_slabs_return_their_memory(void)
{
	vmkv_device *device = open_host("host");
	struct vmkv_slab *first = slab_create(device, SLAB), *second = slab_create(device, SLAB);

	CHECK_EQ(held_bytes(device), 0);
	memset(host_pointer(first->alias), 1, SLAB);
	memset(host_pointer(second->alias), 2, SLAB);
	CHECK_EQ(held_bytes(device), 2 * SLAB);
	CHECK_EQ(told_bytes(device), 2 * SLAB);
	device->ops->slab_destroy(device, first);
	CHECK_EQ(held_bytes(device), SLAB);
	CHECK_EQ(told_bytes(device), SLAB);
	CHECK_EQ(*words(second->alias), 0x02020202);
	device->ops->slab_destroy(device, second);
	CHECK_EQ(held_bytes(device), 0);
	CHECK_EQ(told_bytes(device), 0);
	CHECK_EQ(vmkv_device_close(device), 0);
}

static void new_slabs_are_zero_where_old_ones_were(void)
{
	vmkv_device *device = open_host("host");
	struct vmkv_slab *slab = slab_create(device, SLAB);

	memset(host_pointer(slab->alias), 1, SLAB);
	device->ops->slab_destroy(device, slab);
	slab = slab_create(device, SLAB);
	CHECK_EQ(host_range_of(slab)->offset, 0);
	for (uint64_t at = 0; at < SLAB; at += 4)
		CHECK_EQ(*words(slab->alias + at), 0);
	device->ops->slab_destroy(device, slab);
	CHECK_EQ(vmkv_device_close(device), 0);
}

/* Whatever order slabs go in, their ranges join again. */
static void free_ranges_join(void)
{
	static const int orders[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
		                          { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
	vmkv_device *device = open_host("host");

	for (size_t i = 0; i < 6; i++) {
		struct vmkv_slab *slabs[3], *small, *rest;

		for (size_t k = 0; k < 3; k++)
			slabs[k] = slab_create(device, SLAB);
		CHECK_EQ(host_of(device)->file_bytes, 3 * SLAB);
		for (size_t k = 0; k < 3; k++)
			device->ops->slab_destroy(device, slabs[orders[i][k]]);
		small = slab_create(device, PIECE);
		rest = slab_create(device, 3 * SLAB - PIECE);
		CHECK_EQ(host_of(device)->file_bytes, 3 * SLAB);
		CHECK(!host_of(device)->free_ranges);
		device->ops->slab_destroy(device, small);
		device->ops->slab_destroy(device, rest);
		CHECK_EQ(host_of(device)->free_ranges->slab.bytes, 3 * SLAB);
	}
	CHECK_EQ(vmkv_device_close(device), 0);
}

static void memory_option_bounds_slabs(void)
{
	vmkv_device *device = open_host("host?memory=2MiB");
	struct vmkv_slab *first = slab_create(device, SLAB), *second = NULL;

	CHECK_EQ(device->ops->slab_create(device, SLAB + PIECE, &second), -ENOSPC);
	CHECK_CONTAINS(last_error(device), "1048576 of memory=2097152 are left");
	CHECK(!second);
	second = slab_create(device, SLAB);
	device->ops->slab_destroy(device, first);
	first = slab_create(device, SLAB);
	device->ops->slab_destroy(device, first);
	device->ops->slab_destroy(device, second);
	CHECK_EQ(host_of(device)->slab_bytes, 0);
	CHECK_EQ(vmkv_device_close(device), 0);
}

static void limit_on_file_sizes_is_no_signal(void)
{
	vmkv_device *device = open_host("host");
	struct rlimit limit, low;
	struct vmkv_slab *slab = NULL;
	int error;

	CHECK_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
	low = limit;
	low.rlim_cur = SLAB - 1;
	CHECK_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
	error = device->ops->slab_create(device, SLAB, &slab);
	CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
	CHECK_EQ(error, -ENOSPC);
	CHECK_EQ(device->ops->slab_create(device, UINT64_MAX - 4095, &slab), -ENOSPC);
	CHECK_EQ(host_of(device)->slab_bytes, 0);
	CHECK_EQ(vmkv_device_close(device), 0);
}

static void slab_too_big_for_its_alias_leaves_nothing(void)
{
	vmkv_device *device = open_host("host");
	struct vmkv_slab *slab = NULL;

	CHECK_EQ(device->ops->slab_create(device, UINT64_C(1) << 50, &slab), -ENOMEM);
	CHECK_EQ(host_of(device)->slab_bytes, 0);
	CHECK(!slab);
	CHECK_EQ(vmkv_device_close(device), 0);
}

static void *work_on_slabs(void *argument)
{
	vmkv_device *device = argument;
	uint64_t address = reserve(device, SLAB);

	for (int i = 0; i < 200; i++) {
		struct vmkv_slab *slab = slab_create(device, (uint64_t)(1 + i % 4) * PIECE);

		map(device, address, slab->bytes, slab, 0);
		CHECK_EQ(*words(address), 0);
		fill_slab(device, slab, 0, slab->bytes, 0xabcdef01);
		CHECK_EQ(*words(address + slab->bytes - 4), 0xabcdef01);
		fill_slab(device, slab, 0, slab->bytes, 0);
		CHECK_EQ(*words(address + slab->bytes - 4), 0);
		*words(address) = 1;
		unmap(device, address, slab->bytes, 1, slab);
		device->ops->slab_destroy(device, slab);
	}
	device->ops->release(device, address, SLAB);
	return NULL;
}

static void threads_share_the_file(void)
{
	vmkv_device *device = open_host("host");
	pthread_t threads[4];

	for (size_t i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, work_on_slabs, device), 0);
	for (size_t i = 0; i < 4; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	CHECK_EQ(held_bytes(device), 0);
	CHECK_EQ(host_of(device)->slab_bytes, 0);
	CHECK_EQ(vmkv_device_close(device), 0);
}

int main(void)
{
	RUN(reservations_are_aligned_and_empty);
	RUN(addresses_are_given_back);
	RUN(maps_show_the_slab);
	RUN(unmapped_addresses_fault);
	RUN(failed_calls_tell_how_far_they_got);
	RUN(default_bound_keeps_headroom);
	RUN(kernels_bound_is_told_from_lack_of_memory);
	RUN(destroyed_slabs_return_their_memory);
	RUN(new_slabs_are_zero_where_old_ones_were);
	RUN(free_ranges_join);
	RUN(memory_option_bounds_slabs);
	RUN(limit_on_file_sizes_is_no_signal);
	RUN(slab_too_big_for_its_alias_leaves_nothing);
	RUN(threads_share_the_file);
	return 0;
}
