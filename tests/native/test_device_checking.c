/* SPDX-License-Identifier: MIT
 *
 * Proves that the checking device sees what it is there to see: each rule is broken once.
 */
#include <errno.h>

#include "device_checking_fixture.h"

/* ---- what is right passes ------------------------------------------------------------------- */

static void right_use_is_no_violation(void)
{
	struct bench b;

	setup(&b, NULL);
	CHECK_STR(b.device->info.name, target_name());
	map(b.device, b.address, 2 * PIECE, b.slab, 3 * PIECE);
	map(b.device, b.address + 2 * PIECE, PIECE, b.other, 0);
	CHECK(checking_usable(b.device, b.address, 3 * PIECE));
	CHECK(!checking_usable(b.device, b.address, 3 * PIECE + 1));
	checking_use(b.device, b.address + 5, 3 * PIECE - 5, 4);
	*words(b.address + PIECE) = 9;
	checking_complete(b.device, 4);
	fill_slab(b.device, b.slab, 4 * PIECE, PIECE, 7);
	CHECK_EQ(*words(b.address + PIECE), 7);
	CHECK_EQ(vmkv_copy(b.device, b.address, b.address + PIECE, 4, NULL), 0);
	CHECK_EQ(vmkv_fill(b.device, b.address + 4, 4, 8, NULL), 0);
	CHECK_EQ(*words(b.address), 7);
	CHECK_EQ(*words(b.address + 4), 8);
	unmap(b.device, b.address, 3 * PIECE, 2, NULL);
	CHECK_EQ(vmkv_fill(b.device, b.address, 4, 8, NULL), -EFAULT);
	CHECK_CONTAINS(last_error(b.device), target_is_host() ? "cannot fill" : "no memory behind it");
	map(b.device, b.address, PIECE, b.slab, 0);
	unmap(b.device, b.address, PIECE, 1, b.slab);
	teardown(&b, 0, "");
	CHECK_EQ(b.end.calls[CHECKING_RESERVE], 1);
	CHECK_EQ(b.end.calls[CHECKING_SLAB_CREATE], 2);
	CHECK_EQ(b.end.calls[CHECKING_MAP], 3);
	CHECK_EQ(b.end.calls[CHECKING_UNMAP], 2);
	CHECK_EQ(b.end.calls[CHECKING_FILL], 3);
	CHECK_EQ(b.end.calls[CHECKING_COPY], 1);
	CHECK_EQ(b.end.releases, 1);
	CHECK_EQ(b.end.slab_destroys, 2);
	CHECK_EQ(b.end.released_mappings, 0);
}

static void leaks_are_told(void)
{
	struct checking_report end;
	struct checking_options options = { .report = &end };
	vmkv_device *device = wrap_host(&options);
	uint64_t address = reserve(device, SLAB);
	struct vmkv_slab *slab = slab_create(device, SLAB);

	map(device, address, PIECE, slab, 0);
	map(device, address + PIECE, PIECE, slab, PIECE);
	CHECK_EQ(vmkv_device_close(device), 0);
	CHECK_EQ(end.reservations, 1);
	CHECK_EQ(end.slabs, 1);
	CHECK_EQ(end.mappings, 2);
	CHECK_EQ(end.violations, 0);
}

static void release_tells_what_it_unmapped(void)
{
	struct bench b;

	setup(&b, NULL);
	map(b.device, b.address, PIECE, b.slab, 0);
	teardown(&b, 0, "");
	CHECK_EQ(b.end.released_mappings, 1);
}

/* ---- broken preconditions ------------------------------------------------------------------- */

static void bad_reservations(void)
{
	struct bench b;
	uint64_t address;

	setup(&b, NULL);
	CHECK_EQ(b.device->ops->reserve(b.device, 100, PIECE, &address), -EINVAL);
	CHECK_EQ(b.device->ops->reserve(b.device, PIECE, 3 * PIECE, &address), -EINVAL);
	CHECK_EQ(b.device->ops->reserve(b.device, 0, PIECE, &address), -EINVAL);
	CHECK_EQ(violations(&b), 3);
	b.device->ops->release(b.device, b.address, PIECE);
	CHECK_EQ(violations(&b), 4);
	b.device->ops->release(b.device, b.address + PIECE, SLAB - PIECE);
	teardown(&b, 5, "reserve of 0x64 bytes");
}

static void bad_slabs(void)
{
	struct bench b;
	struct vmkv_slab none = { PIECE, 0 }, *slab;

	setup(&b, NULL);
	CHECK_EQ(b.device->ops->slab_create(b.device, 100, &slab), -EINVAL);
	b.device->ops->slab_destroy(b.device, &none);
	CHECK_EQ(try_map(&b, 0, PIECE, &none, 0), -EINVAL);
	CHECK_EQ(try_fill(&b, &none, 0, PIECE), -EINVAL);
	teardown(&b, 4, "a slab of 0x64 bytes");
}

static void maps_only_on_empty_addresses(void)
{
	struct bench b;

	setup(&b, NULL);
	map(b.device, b.address + PIECE, 2 * PIECE, b.slab, 0);
	CHECK_EQ(try_map(&b, PIECE, PIECE, b.other, 0), -EINVAL);
	CHECK_EQ(try_map(&b, 0, 2 * PIECE, b.other, 0), -EINVAL);
	CHECK_EQ(try_map(&b, 2 * PIECE, 4 * PIECE, b.other, 0), -EINVAL);
	CHECK_EQ(try_map(&b, 3 * PIECE, PIECE, b.other, 0), 0);
	teardown(&b, 3, "mapped already");
}

static void maps_only_within_reservation_slab_and_granule(void)
{
	struct bench b;

	setup(&b, NULL);
	CHECK_EQ(try_map(&b, SLAB - PIECE, 2 * PIECE, b.slab, 0), -EINVAL);
	CHECK_EQ(try_map(&b, SLAB, PIECE, b.slab, 0), -EINVAL);
	CHECK_EQ(try_map(&b, 0, PIECE, b.slab, SLAB), -EINVAL);
	CHECK_EQ(try_map(&b, 0, 2 * PIECE, b.slab, SLAB - PIECE), -EINVAL);
	CHECK_EQ(try_map(&b, 0, PIECE, b.slab, 100), -EINVAL);
	CHECK_EQ(try_map(&b, 100, PIECE, b.slab, 0), -EINVAL);
	CHECK_EQ(try_map(&b, 0, 100, b.slab, 0), -EINVAL);
	CHECK_EQ(try_map(&b, 0, 0, b.slab, 0), -EINVAL);
	teardown(&b, 8, "not within one reservation");
}

static void unmaps_only_whole_mappings(void)
{
	struct bench b;

	setup(&b, NULL);
	map(b.device, b.address, 2 * PIECE, b.slab, 0);
	map(b.device, b.address + 2 * PIECE, PIECE, b.slab, 2 * PIECE);
	CHECK_EQ(try_unmap(&b, 0, PIECE, 1, b.slab), -EINVAL);
	CHECK_EQ(try_unmap(&b, PIECE, PIECE, 1, b.slab), -EINVAL);
	CHECK_EQ(try_unmap(&b, 0, 4 * PIECE, 3, NULL), -EINVAL);
	CHECK_EQ(try_unmap(&b, 0, 3 * PIECE, 1, b.slab), -EINVAL);
	CHECK_EQ(try_unmap(&b, 0, 3 * PIECE, 3, NULL), -EINVAL);
	CHECK_EQ(try_unmap(&b, 0, 3 * PIECE, 2, b.slab), -EINVAL);
	CHECK_EQ(try_unmap(&b, 0, 2 * PIECE, 1, b.other), -EINVAL);
	CHECK_EQ(try_unmap(&b, 0, 2 * PIECE, 1, NULL), -EINVAL);
	CHECK_EQ(try_unmap(&b, 5 * PIECE, PIECE, 1, b.slab), -EINVAL);
	CHECK_EQ(try_unmap(&b, 0, 0, 0, NULL), -EINVAL);
	CHECK_EQ(violations(&b), 10);
	CHECK_EQ(try_unmap(&b, 0, 3 * PIECE, 2, NULL), 0);
	CHECK_EQ(try_unmap(&b, 0, 2 * PIECE, 1, b.slab), -EINVAL);
	teardown(&b, 11, "cuts the mapping");
}

/* Where the kernel puts two reservations side by side, as it likes to: the address between them. */
static uint64_t reserve_neighbours(struct bench *b, uint64_t addresses[8])
{
	uint64_t seam = 0;

	for (size_t i = 0; i < 8; i++) {
		CHECK_EQ(b->device->ops->reserve(b->device, SLAB, 4096, &addresses[i]), 0);
		for (size_t k = 0; k < i; k++) {
			if (addresses[k] + SLAB == addresses[i])
				seam = addresses[i];
			if (addresses[i] + SLAB == addresses[k])
				seam = addresses[k];
		}
	}
	return seam;
}

static void unmaps_only_within_one_reservation(void)
{
	struct bench b;
	uint64_t addresses[8], seam, point, expected = 0;
	size_t issued;

	setup(&b, NULL);
	seam = reserve_neighbours(&b, addresses);
	if (seam) {
		struct vmkv_unmap across = { seam - PIECE, 2 * PIECE, 2, NULL };

		map(b.device, seam - PIECE, PIECE, b.slab, 0);
		map(b.device, seam, PIECE, b.slab, PIECE);
		CHECK_EQ(b.device->ops->unmap(b.device, &across, 1, &issued, &point), -EINVAL);
		expected = 1;
	} else {
		printf("skipped: no two reservations lie side by side\n");
	}
	for (size_t i = 0; i < 8; i++)
		b.device->ops->release(b.device, addresses[i], SLAB);
	teardown(&b, expected, "");
}

static void slabs_go_only_when_unmapped(void)
{
	struct bench b;

	setup(&b, NULL);
	map(b.device, b.address, PIECE, b.slab, 5 * PIECE);
	b.device->ops->slab_destroy(b.device, b.slab);
	CHECK_EQ(violations(&b), 1);
	CHECK_EQ(*words(b.address), 0); /* it was refused */
	teardown(&b, 1, "destroy of a slab with page 80 still mapped");
}

static void fills_only_within_the_slab(void)
{
	struct bench b;

	setup(&b, NULL);
	CHECK_EQ(try_fill(&b, b.slab, SLAB, PIECE), -EINVAL);
	CHECK_EQ(try_fill(&b, b.slab, SLAB - PIECE, 2 * PIECE), -EINVAL);
	CHECK_EQ(try_fill(&b, b.slab, 4, PIECE), -EINVAL);
	CHECK_EQ(try_fill(&b, b.slab, 0, 4), -EINVAL);
	teardown(&b, 4, "fill of a slab's range");
}

/* ---- memory in use -------------------------------------------------------------------------- */

static void unmap_of_memory_in_use(void)
{
	struct bench b;

	setup(&b, NULL);
	map(b.device, b.address, 2 * PIECE, b.slab, 0);
	map(b.device, b.address + 2 * PIECE, PIECE, b.slab, 2 * PIECE);
	checking_use(b.device, b.address + PIECE, 1, 9);
	checking_use(b.device, b.address + PIECE, 1, 5);
	checking_complete(b.device, 8);
	checking_complete(b.device, 7);
	CHECK_EQ(try_unmap(&b, 2 * PIECE, PIECE, 1, b.slab), 0);
	CHECK_EQ(violations(&b), 0);
	CHECK_EQ(try_unmap(&b, 0, 2 * PIECE, 1, b.slab), 0);
	checking_complete(b.device, 9);
	teardown(&b, 1, "is in use until 9 (completed: 8)");
}

static void fill_of_memory_in_use(void)
{
	struct bench b;

	setup(&b, NULL);
	map(b.device, b.address, 2 * PIECE, b.slab, 4 * PIECE);
	checking_use(b.device, b.address + PIECE, PIECE, 3);
	checking_use(b.device, b.address + PIECE, PIECE, 1);
	checking_complete(b.device, 2);
	CHECK_EQ(try_fill(&b, b.slab, 4 * PIECE, PIECE), 0);
	CHECK_EQ(violations(&b), 0);
	CHECK_EQ(try_fill(&b, b.slab, 5 * PIECE, PIECE), 0);
	CHECK_EQ(violations(&b), PIECE / 4096);
	checking_complete(b.device, 3);
	CHECK_EQ(try_fill(&b, b.slab, 4 * PIECE, 2 * PIECE), 0);
	teardown(&b, PIECE / 4096, "fill of a page that is in use until 3 (completed: 2)");
}

static void handing_on_memory_in_use(void)
{
	struct bench b;

	setup(&b, NULL);
	map(b.device, b.address, PIECE, b.slab, 0);
	checking_use(b.device, b.address, 1, 3);
	CHECK_EQ(try_map(&b, PIECE, PIECE, b.slab, 0), 0);
	checking_complete(b.device, 3);
	CHECK_EQ(try_map(&b, 2 * PIECE, PIECE, b.slab, 0), 0);
	teardown(&b, 1, "map of a page that is in use until 3");
}

static void slab_destroyed_in_use(void)
{
	struct bench b;

	setup(&b, NULL);
	map(b.device, b.address, PIECE, b.slab, 0);
	checking_use(b.device, b.address, 1, 3);
	CHECK_EQ(try_unmap(&b, 0, PIECE, 1, b.slab), 0);
	b.device->ops->slab_destroy(b.device, b.slab);
	CHECK_EQ(violations(&b), 2);
	b.slab = slab_create(b.device, SLAB);
	teardown(&b, 2, "unmap of");
}

static void use_of_nothing(void)
{
	struct bench b;

	setup(&b, NULL);
	map(b.device, b.address, PIECE, b.slab, 0);
	checking_use(b.device, b.address, PIECE + 1, 3);
	checking_complete(b.device, 3);
	teardown(&b, 1, "has nothing behind it");
}

/* ---- calls at once -------------------------------------------------------------------------- */

/* A device whose fills and maps take until they are let go. */
struct slow {
	struct vmkv_device base;
	vmkv_device *host;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool inside, go;
};

static void slow_wait(struct slow *slow)
{
	pthread_mutex_lock(&slow->lock);
	slow->inside = true;
	pthread_cond_broadcast(&slow->changed);
	while (!slow->go)
		pthread_cond_wait(&slow->changed, &slow->lock);
	slow->inside = slow->go = false;
	pthread_mutex_unlock(&slow->lock);
}

static int slow_fill(struct vmkv_device *device, const struct vmkv_fill *fills, size_t n,
                     uint64_t *point)
{
	struct slow *slow = (struct slow *)device;

	slow_wait(slow);
	return slow->host->ops->fill(slow->host, fills, n, point);
}

static int slow_map(struct vmkv_device *device, const struct vmkv_map *maps, size_t n,
                    size_t *issued, uint64_t *point)
{
	struct slow *slow = (struct slow *)device;

	slow_wait(slow);
	return slow->host->ops->map(slow->host, maps, n, issued, point);
}

static int slow_reserve(struct vmkv_device *device, uint64_t bytes, uint64_t align,
                        uint64_t *address)
{
	struct slow *slow = (struct slow *)device;

	return slow->host->ops->reserve(slow->host, bytes, align, address);
}

static void slow_release(struct vmkv_device *device, uint64_t address, uint64_t bytes)
{
	struct slow *slow = (struct slow *)device;

	slow->host->ops->release(slow->host, address, bytes);
}

static int slow_slab_create(struct vmkv_device *device, uint64_t bytes, struct vmkv_slab **ret)
{
	struct slow *slow = (struct slow *)device;

	return slow->host->ops->slab_create(slow->host, bytes, ret);
}

static void slow_slab_destroy(struct vmkv_device *device, struct vmkv_slab *slab)
{
	struct slow *slow = (struct slow *)device;

	slow->host->ops->slab_destroy(slow->host, slab);
}

static void slow_destroy(struct vmkv_device *device)
{
	struct slow *slow = (struct slow *)device;

	CHECK_EQ(vmkv_device_close(slow->host), 0);
	vmkv_device_fini(device);
}

static const struct vmkv_device_ops slow_ops = {
	.destroy = slow_destroy, .reserve = slow_reserve, .release = slow_release,
	.slab_create = slow_slab_create, .slab_destroy = slow_slab_destroy,
	.map = slow_map, .fill = slow_fill,
};

static void *fill_one_piece(void *argument)
{
	CHECK_EQ(try_fill(argument, ((struct bench *)argument)->slab, 0, PIECE), 0);
	return NULL;
}

static void *map_one_piece(void *argument)
{
	CHECK_EQ(try_map(argument, 0, PIECE, ((struct bench *)argument)->slab, 0), 0);
	return NULL;
}

/* Start work in a thread, wait until it is in the driver, break rules, let it go. */
static void two_calls_on_the_same_memory(void)
{
	struct slow slow = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
	void *(*const works[2])(void *) = { fill_one_piece, map_one_piece };
	struct bench b = { 0 };
	struct checking_options options = { .report = &b.end };

	slow.host = open_host("host");
	CHECK_EQ(vmkv_device_init(&slow.base, &slow_ops), 0);
	slow.base.info = slow.host->info;
	CHECK_EQ(vmkv_device_checking_wrap(&slow.base, &options, &b.device), 0);
	b.address = reserve(b.device, SLAB);
	b.slab = slab_create(b.device, SLAB);
	b.other = slab_create(b.device, SLAB);
	for (size_t i = 0; i < 2; i++) {
		pthread_t thread;
		uint64_t before = violations(&b);

		CHECK_EQ(pthread_create(&thread, NULL, works[i], &b), 0);
		pthread_mutex_lock(&slow.lock);
		while (!slow.inside)
			pthread_cond_wait(&slow.changed, &slow.lock);
		pthread_mutex_unlock(&slow.lock);
		CHECK_EQ(try_fill(&b, b.slab, 0, PIECE), -EINVAL);
		CHECK_EQ(try_map(&b, PIECE, PIECE, b.slab, 0), -EINVAL);
		CHECK_EQ(violations(&b), before + 2);
		if (works[i] == map_one_piece) {
			CHECK_EQ(try_map(&b, 0, PIECE, b.other, 0), -EINVAL);
			CHECK_EQ(try_unmap(&b, 0, PIECE, 1, b.slab), -EINVAL);
			b.device->ops->release(b.device, b.address, SLAB);
			CHECK_EQ(violations(&b), before + 5);
		}
		pthread_mutex_lock(&slow.lock);
		slow.go = true;
		pthread_cond_broadcast(&slow.changed);
		pthread_mutex_unlock(&slow.lock);
		CHECK_EQ(pthread_join(thread, NULL), 0);
	}
	teardown(&b, 7, "another call is at work on");
}

int main(void)
{
	RUN(right_use_is_no_violation);
	RUN(leaks_are_told);
	RUN(release_tells_what_it_unmapped);
	RUN(bad_reservations);
	RUN(bad_slabs);
	RUN(maps_only_on_empty_addresses);
	RUN(maps_only_within_reservation_slab_and_granule);
	RUN(unmaps_only_whole_mappings);
	RUN(unmaps_only_within_one_reservation);
	RUN(slabs_go_only_when_unmapped);
	RUN(fills_only_within_the_slab);
	RUN(unmap_of_memory_in_use);
	RUN(fill_of_memory_in_use);
	RUN(handing_on_memory_in_use);
	RUN(slab_destroyed_in_use);
	RUN(use_of_nothing);
	RUN(two_calls_on_the_same_memory);
	return 0;
}
