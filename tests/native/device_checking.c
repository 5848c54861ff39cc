/* SPDX-License-Identifier: MIT */
#include "device_checking.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device_checking_record.h"

/* The lock is held here and below, unless told. */

/* Wait until what the inner device did has taken effect; lagging is done here. */
static void inner_settle(struct checking_device *c, uint64_t point)
{
	int error = -EIO;

	/* Whatever the wait failed for, the point is there to be waited for again. */
	for (int i = 0; i < 3 && error && point && c->inner->ops->wait; i++) {
		error = c->inner->ops->wait(c->inner, point, UINT64_MAX);
		if (error == -ENODEV)
			inner_failed(c, error);
	}
}

/* ---- the timeline: calls that have been issued and not reached ------------------------------- */

struct checking_op {
	struct checking_op *next;
	uint64_t point;
	uint64_t polls; /* how many more looks until it is reached */
	size_t n;
	struct vmkv_unmap *unmaps; /* n of these, ... */
	struct vmkv_fill *fills;   /* ... or n of these, or neither */
};

/* Returns the point of something that is carried out later, with its arrays, or was carried out
 * already. The arrays are freed. */
static uint64_t op_issue(struct checking_device *c, struct vmkv_unmap *unmaps,
                         struct vmkv_fill *fills, size_t n)
{
	struct checking_op *op = checking_alloc(1, sizeof(*op));
	uint64_t polls = c->options.lag_polls ? c->options.lag_polls : 4;

	op->point = ++c->last_point;
	op->polls = checking_random(&c->lag_random) % (polls + 1);
	op->n = n;
	op->unmaps = unmaps;
	op->fills = fills;
	*c->ops_tail = op;
	c->ops_tail = &op->next;
	return op->point;
}

static void inner_unmap_late(struct checking_device *c, const struct checking_op *op)
{
	size_t issued = 0;
	uint64_t point = 0;

	for (size_t i = 0; i < op->n; i++) {
		struct vmkv_unmap inner = op->unmaps[i];

		inner.slab = inner.slab ? checking_slab_of(inner.slab)->inner : NULL;
		if (c->inner->ops->unmap(c->inner, &inner, 1, &issued, &point))
			inner_failed_late(c, "unmap");
		inner_settle(c, point);
		record_unmapped(c, inner.address, inner.bytes);
	}
}

static void inner_fill_late(struct checking_device *c, const struct checking_op *op)
{
	uint64_t point = 0;

	for (size_t i = 0; i < op->n; i++) {
		struct vmkv_fill inner = op->fills[i];

		record_fill(c, &inner, -1);
		inner.slab = checking_slab_of(inner.slab)->inner;
		if (c->inner->ops->fill(c->inner, &inner, 1, &point))
			inner_failed_late(c, "fill");
		inner_settle(c, point);
	}
}

/* Reach the oldest op. */
static void op_reach(struct checking_device *c)
{
	struct checking_op *op = c->ops;

	if (op->unmaps)
		inner_unmap_late(c, op);
	if (op->fills)
		inner_fill_late(c, op);
	c->ops = op->next;
	if (!c->ops)
		c->ops_tail = &c->ops;
	atomic_store_explicit(&c->base.completed, op->point, memory_order_release);
	free(op->unmaps);
	free(op->fills);
	free(op);
}

static void ops_drain(struct checking_device *c)
{
	while (c->ops)
		op_reach(c);
}

static int checking_wait(struct vmkv_device *device, uint64_t point, uint64_t timeout_ns)
{
	struct checking_device *c = checking_of(device);
	int error = 0;

	pthread_mutex_lock(&c->lock);
	if (vmkv_device_is_lost(device))
		error = -ENODEV;
	else if (timeout_ns && point > c->last_point)
		error = refuse(c, "wait for point %llu, which was never given",
		               (unsigned long long)point);
	else if (timeout_ns)
		while (atomic_load(&device->completed) < point)
			op_reach(c);
	else if (c->ops && c->ops->polls)
		c->ops->polls--;
	else
		while (c->ops && !c->ops->polls)
			op_reach(c);
	if (!error && atomic_load(&device->completed) < point)
		error = -ETIME;
	pthread_mutex_unlock(&c->lock);
	return error;
}

/* ---- addresses and slabs -------------------------------------------------------------------- */

static int checking_reserve(struct vmkv_device *device, uint64_t bytes, uint64_t align,
                            uint64_t *address)
{
	struct checking_device *c = checking_of(device);
	int error;

	pthread_mutex_lock(&c->lock);
	error = call_count(c, CHECKING_RESERVE);
	if (!error && (!bytes || bytes % device->info.granule_bytes || !align || align & (align - 1)))
		error = refuse(c, "reserve of 0x%llx bytes aligned to 0x%llx",
		               (unsigned long long)bytes, (unsigned long long)align);
	if (!error) {
		error = c->inner->ops->reserve(c->inner, bytes, align, address);
		if (error)
			inner_failed(c, error);
		else
			record_reserve(c, *address, bytes, align);
	}
	pthread_mutex_unlock(&c->lock);
	return error;
}

static void checking_release(struct vmkv_device *device, uint64_t address, uint64_t bytes)
{
	struct checking_device *c = checking_of(device);

	pthread_mutex_lock(&c->lock);
	ops_drain(c);
	c->report.releases++;
	if (record_release(c, address, bytes))
		c->inner->ops->release(c->inner, address, bytes);
	pthread_mutex_unlock(&c->lock);
}

static int checking_slab_create(struct vmkv_device *device, uint64_t bytes, struct vmkv_slab **ret)
{
	struct checking_device *c = checking_of(device);
	struct vmkv_fill garbage = { .bytes = bytes, .value = 0xa5a5a5a5 };
	int error;

	pthread_mutex_lock(&c->lock);
	error = call_count(c, CHECKING_SLAB_CREATE);
	if (!error && (!bytes || bytes % device->info.granule_bytes))
		error = refuse(c, "a slab of 0x%llx bytes", (unsigned long long)bytes);
	if (!error && c->options.memory_bytes && bytes > c->options.memory_bytes - c->slab_bytes)
		error = vmkv_device_fail(&c->base, -ENOSPC, "the device has %llu bytes for slabs, and "
		                         "%llu are taken",
		                         (unsigned long long)c->options.memory_bytes,
		                         (unsigned long long)c->slab_bytes);
	if (!error) {
		error = c->inner->ops->slab_create(c->inner, bytes, &garbage.slab);
		if (error)
			inner_failed(c, error);
	}
	if (!error && c->options.dirty_slabs) {
		error = checking_dirty(c->inner, &garbage);
		if (error) {
			inner_failed(c, error);
			c->inner->ops->slab_destroy(c->inner, garbage.slab);
		}
	}
	if (!error)
		*ret = record_slab_create(c, garbage.slab);
	pthread_mutex_unlock(&c->lock);
	return error;
}

static void checking_slab_destroy(struct vmkv_device *device, struct vmkv_slab *slab)
{
	struct checking_device *c = checking_of(device);
	struct vmkv_slab *inner;

	pthread_mutex_lock(&c->lock);
	/* All points count as reached then, and nobody waits for them any more. */
	if (vmkv_device_is_lost(device))
		ops_drain(c);
	c->report.slab_destroys++;
	inner = record_slab_destroy(c, slab);
	if (inner)
		c->inner->ops->slab_destroy(c->inner, inner);
	pthread_mutex_unlock(&c->lock);
}

/* ---- map and unmap -------------------------------------------------------------------------- */

static int checking_map(struct vmkv_device *device, const struct vmkv_map *maps, size_t n,
                        size_t *issued, uint64_t *point)
{
	struct checking_device *c = checking_of(device);
	struct vmkv_map *inner = checking_alloc(n, sizeof(*inner));
	size_t ready, done = 0;
	uint64_t inner_point = 0, reached_at = 0;
	int error = 0, inner_error = 0;
	bool keeps;

	pthread_mutex_lock(&c->lock);
	for (ready = 0; ready < n; ready++) {
		error = call_count(c, CHECKING_MAP);
		if (!error)
			error = record_map_begin(c, &maps[ready]);
		if (error)
			break;
		inner[ready] = maps[ready];
		inner[ready].slab = checking_slab_of(maps[ready].slab)->inner;
	}
	pthread_mutex_unlock(&c->lock);
	if (ready)
		inner_error = c->inner->ops->map(c->inner, inner, ready, &done, &inner_point);
	if (inner_error)
		error = inner_failed(c, inner_error);
	else if (ready)
		inner_settle(c, inner_point);
	pthread_mutex_lock(&c->lock);
	if (inner_error)
		calls_recount(c, CHECKING_MAP, ready, done);
	keeps = done > 0 && vmkv_device_is_safe(device, VMKV_SAFE_NEVER_REUSE_ADDRESSES);
	if (n && (!error || keeps) && c->options.lag_seed)
		reached_at = op_issue(c, NULL, NULL, 0);
	for (size_t i = 0; i < ready; i++)
		record_map_end(c, &maps[i], i < done, reached_at);
	pthread_mutex_unlock(&c->lock);
	free(inner);
	*issued = done;
	if (!error || keeps)
		*point = reached_at;
	return error;
}

/* Carry the unmaps out now. pre: lock is not held. */
static int unmap_now(struct checking_device *c, const struct vmkv_unmap *unmaps, size_t n,
                     size_t *issued)
{
	struct vmkv_unmap *inner = checking_alloc(n, sizeof(*inner));
	uint64_t point = 0;
	int error;

	for (size_t i = 0; i < n; i++) {
		inner[i] = unmaps[i];
		inner[i].slab = inner[i].slab ? checking_slab_of(inner[i].slab)->inner : NULL;
	}
	error = c->inner->ops->unmap(c->inner, inner, n, issued, &point);
	if (error)
		inner_failed(c, error);
	inner_settle(c, point);
	pthread_mutex_lock(&c->lock);
	if (error)
		calls_recount(c, CHECKING_UNMAP, n, *issued);
	for (size_t i = 0; i < n; i++)
		if (i < *issued)
			record_unmapped(c, unmaps[i].address, unmaps[i].bytes);
		else
			record_unmap_undo(c, &unmaps[i]);
	pthread_mutex_unlock(&c->lock);
	free(inner);
	return error;
}

static int checking_unmap(struct vmkv_device *device, const struct vmkv_unmap *unmaps, size_t n,
                          size_t *issued, uint64_t *point)
{
	struct checking_device *c = checking_of(device);
	size_t ready;
	uint64_t reached_at = 0;
	int error = 0, now_error = 0;

	pthread_mutex_lock(&c->lock);
	for (ready = 0; ready < n; ready++) {
		error = call_count(c, CHECKING_UNMAP);
		if (!error)
			error = record_unmap_begin(c, &unmaps[ready]);
		if (error)
			break;
	}
	*issued = ready;
	if (ready && c->options.lag_seed) {
		struct vmkv_unmap *copy = checking_alloc(ready, sizeof(*copy));

		memcpy(copy, unmaps, ready * sizeof(*copy));
		reached_at = op_issue(c, copy, NULL, ready);
	}
	pthread_mutex_unlock(&c->lock);
	if (ready && !c->options.lag_seed)
		now_error = unmap_now(c, unmaps, ready, issued);
	if (!error)
		error = now_error;
	if (!error || *issued)
		*point = reached_at;
	return error;
}

/* ---- fill and copy -------------------------------------------------------------------------- */

/* Check the fills and mark what they touch. Sets *late if they can be carried out late: by address
 * they can't, since that can fail. */
static int fill_begin(struct checking_device *c, const struct vmkv_fill *fills, size_t n,
                      bool *late)
{
	int error = call_count(c, CHECKING_FILL);

	*late = n && c->options.lag_seed;
	for (size_t i = 0; i < n && !error; i++) {
		*late = *late && fills[i].slab;
		error = record_fill_check(c, &fills[i]);
	}
	for (size_t i = 0; i < n && !error; i++)
		record_fill(c, &fills[i], 1);
	return error;
}

static int checking_fill(struct vmkv_device *device, const struct vmkv_fill *fills, size_t n,
                         uint64_t *point)
{
	struct checking_device *c = checking_of(device);
	struct vmkv_fill *copy = checking_alloc(n, sizeof(*copy));
	uint64_t inner_point = 0;
	bool late;
	int error;

	if (n)
		memcpy(copy, fills, n * sizeof(*copy));
	pthread_mutex_lock(&c->lock);
	error = fill_begin(c, fills, n, &late);
	if (!error && late) {
		*point = op_issue(c, NULL, copy, n);
		pthread_mutex_unlock(&c->lock);
		return 0;
	}
	if (!error)
		ops_drain(c);
	pthread_mutex_unlock(&c->lock);
	for (size_t i = 0; i < n && !error; i++)
		copy[i].slab = copy[i].slab ? checking_slab_of(copy[i].slab)->inner : NULL;
	if (!error) {
		error = c->inner->ops->fill(c->inner, copy, n, &inner_point);
		if (!error)
			error = vmkv_wait(c->inner, inner_point, UINT64_MAX);
		if (error)
			inner_failed(c, error);
		pthread_mutex_lock(&c->lock);
		for (size_t i = 0; i < n; i++)
			record_fill(c, &fills[i], -1);
		if (!error)
			*point = c->options.lag_seed ? op_issue(c, NULL, NULL, 0) : 0;
		for (size_t i = 0; i < n && !error; i++)
			record_fill_address(c, &fills[i], *point);
		pthread_mutex_unlock(&c->lock);
	}
	free(copy);
	return error;
}

static int checking_copy(struct vmkv_device *device, uint64_t destination, uint64_t source,
                         uint64_t bytes, uint64_t *point)
{
	struct checking_device *c = checking_of(device);
	uint64_t inner_point = 0;
	int error;

	pthread_mutex_lock(&c->lock);
	error = call_count(c, CHECKING_COPY);
	if (!error) {
		ops_drain(c);
		error = c->inner->ops->copy(c->inner, destination, source, bytes, &inner_point);
		if (!error)
			error = vmkv_wait(c->inner, inner_point, UINT64_MAX);
		if (error)
			inner_failed(c, error);
	}
	if (!error)
		*point = c->options.lag_seed ? op_issue(c, NULL, NULL, 0) : 0;
	pthread_mutex_unlock(&c->lock);
	return error;
}

/* ---- wrap and destroy ----------------------------------------------------------------------- */

static void checking_destroy(struct vmkv_device *device)
{
	struct checking_device *c = checking_of(device);

	ops_drain(c);
	if (c->options.report)
		*c->options.report = c->report;
	record_fini(c);
	c->inner->ops->destroy(c->inner);
	pthread_mutex_destroy(&c->lock);
	vmkv_device_fini(device);
	free(c);
}

static const struct vmkv_device_ops checking_ops = {
	.destroy = checking_destroy,
	.reserve = checking_reserve,
	.release = checking_release,
	.slab_create = checking_slab_create,
	.slab_destroy = checking_slab_destroy,
	.map = checking_map,
	.unmap = checking_unmap,
	.fill = checking_fill,
	.copy = checking_copy,
	.wait = checking_wait,
};

int vmkv_device_checking_wrap(struct vmkv_device *inner, const struct checking_options *options,
                              struct vmkv_device **ret)
{
	struct checking_device *c = checking_alloc(1, sizeof(*c));
	int error = vmkv_device_init(&c->base, &checking_ops);

	if (error) {
		free(c);
		return error;
	}
	if (options)
		c->options = *options;
	c->inner = inner;
	c->ops_tail = &c->ops;
	c->lag_random = c->options.lag_seed;
	c->fault_random = c->options.fault.seed;
	pthread_mutex_init(&c->lock, NULL);
	c->base.info = inner->info;
	if (c->options.max_mappings)
		c->base.info.max_mappings = c->options.max_mappings;
	if (c->options.memory_bytes)
		c->base.info.memory_bytes = c->options.memory_bytes;
	c->base.info.features &= ~(uint32_t)VMKV_FEATURE_ASYNCHRONOUS;
	if (c->options.lag_seed)
		c->base.info.features |= VMKV_FEATURE_ASYNCHRONOUS;
	if (c->options.dirty_slabs)
		c->base.info.features &= ~(uint32_t)VMKV_FEATURE_ZEROED_SLABS;
	*ret = &c->base;
	return 0;
}
