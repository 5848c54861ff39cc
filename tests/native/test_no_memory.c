/* SPDX-License-Identifier: MIT
 *
 * The k-th allocation fails, for every k of a mixed workload: the same as in test_faults.c. The linker
 * puts the functions below in the place of malloc, calloc, realloc and aligned_alloc.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "faults_workload.h"

/* ---- allocations that fail ------------------------------------------------------------------- */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__real_aligned_alloc(size_t align, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);

static uint64_t count, fail_at, failed;
static bool armed; /* a call of the manager is at work, and not within the device */

static bool fails(void)
{
	if (!armed || ++count != fail_at)
		return false;
	failed++;
	return true;
}

void *__wrap_malloc(size_t bytes)
{
	return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return fails() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
	return fails() ? NULL : __real_realloc(old, bytes);
}

void *__wrap_aligned_alloc(size_t align, size_t bytes)
{
	return fails() ? NULL : __real_aligned_alloc(align, bytes);
}

/* ---- a device that always has memory --------------------------------------------------------- */

static const struct vmkv_device_ops *inner;

#define SPARED(call)                                                                               \
	do {                                                                                       \
		bool was = armed;                                                                  \
		armed = false;                                                                     \
		int rc = (call);                                                                   \
		armed = was;                                                                       \
		return rc;                                                                         \
	} while (0)

static int spared_reserve(struct vmkv_device *device, uint64_t bytes, uint64_t align,
                          uint64_t *address)
{
	SPARED(inner->reserve(device, bytes, align, address));
}

static int spared_slab_create(struct vmkv_device *device, uint64_t bytes, struct vmkv_slab **ret)
{
	SPARED(inner->slab_create(device, bytes, ret));
}

static int spared_map(struct vmkv_device *device, const struct vmkv_map *maps, size_t n,
                      size_t *issued, uint64_t *point)
{
	SPARED(inner->map(device, maps, n, issued, point));
}

static int spared_unmap(struct vmkv_device *device, const struct vmkv_unmap *unmaps, size_t n,
                        size_t *issued, uint64_t *point)
{
	SPARED(inner->unmap(device, unmaps, n, issued, point));
}

static int spared_fill(struct vmkv_device *device, const struct vmkv_fill *fills, size_t n,
                       uint64_t *point)
{
	SPARED(inner->fill(device, fills, n, point));
}

/* Returns a checking device whose own allocations don't count. */
static vmkv_device *device_create(struct checking_report *end, struct vmkv_device_ops *ops)
{
	struct checking_options options = { .dirty_slabs = true, .report = end };
	struct vmkv_device_options open = { .struct_size = sizeof(open), .name = "host" };
	vmkv_device *host, *device;

	CHECK_EQ(vmkv_device_open(&open, &host), 0);
	CHECK_EQ(vmkv_device_checking_wrap(host, &options, &device), 0);
	inner = device->ops;
	*ops = *inner;
	ops->reserve = spared_reserve;
	ops->slab_create = spared_slab_create;
	ops->map = spared_map;
	ops->unmap = spared_unmap;
	ops->fill = spared_fill;
	device->ops = ops;
	return device;
}

static void check_end(const struct checking_report *end, uint64_t k)
{
	if (end->violations + end->mappings + end->slabs + end->reservations > 0)
		CHECK_FAIL("allocation %" PRIu64 " fails: leaked %" PRIu64 " mappings, %" PRIu64
		           " slabs, %" PRIu64 " reservations; %" PRIu64 " violations: %s", k,
		           end->mappings, end->slabs, end->reservations, end->violations,
		           end->violation);
}

/* ---- the workload ---------------------------------------------------------------------------- */

static uint64_t failures(struct workload *w)
{
	(void)w;
	return failed;
}

static void arm(struct workload *w)
{
	(void)w;
	armed = true;
}

static void disarm(struct workload *w)
{
	(void)w;
	armed = false;
}

static void run(struct workload *w, const struct workload *plain, uint64_t k, uint32_t layout)
{
	struct vmkv_device_ops ops;
	struct checking_report end;
	char what[80];

	memset(w, 0, sizeof(*w));
	snprintf(what, sizeof(what), "layout %u, allocation %" PRIu64 " fails", layout, k);
	w->oracle.what = what;
	w->oracle.device = device_create(&end, &ops);
	w->error = -ENOMEM;
	w->failures = failures;
	w->begin = arm;
	w->end = disarm;
	w->plain = plain;
	count = failed = 0;
	fail_at = k;
	workload_run(w, layout, false);
	check_end(&end, k);
}

static void operations(void)
{
	static struct workload plain, w;

	for (uint32_t layout = 0; layout <= VMKV_LAYOUT_TOKEN; layout++) {
		uint64_t k = 0;

		run(&plain, NULL, 0, layout);
		do
			run(&w, &plain, ++k, layout);
		while (failed > 0);
		printf("layout %u: %" PRIu64 " allocations\n", layout, k - 1);
		CHECK(k > 50);
	}
}

/* ---- creating a cache ------------------------------------------------------------------------ */

static void creation(void)
{
	const struct vmkv_tensor tensors[] = { { .row_bytes = 100 }, { .row_bytes = 200 } };
	const struct vmkv_group group = { .struct_size = sizeof(group), .layers = 3,
		                          .tensors = tensors, .tensor_count = 2 };
	const struct vmkv_geometry geometry = { .struct_size = sizeof(geometry), .groups = &group,
		                                .group_count = 1 };
	char text[128];
	struct vmkv_cache_options options = {
		.struct_size = sizeof(options), .geometry = &geometry, .budget_bytes = 4 << 20,
		.max_slots = 2, .max_tokens = 100, .error = text, .error_bytes = sizeof(text),
	};
	struct vmkv_device_ops ops;
	struct checking_report end;
	uint64_t k = 0;
	int rc;

	do {
		vmkv_device *device = device_create(&end, &ops);
		vmkv_cache *cache = NULL;

		text[0] = 0;
		count = failed = 0;
		fail_at = ++k;
		armed = true;
		rc = vmkv_cache_create(device, &options, &cache);
		armed = false;
		CHECK_EQ(rc, failed > 0 ? -ENOMEM : 0);
		CHECK((cache == NULL) == (rc != 0) && (text[0] == 0) == (rc == 0));
		vmkv_cache_destroy(cache);
		CHECK_EQ(vmkv_device_close(device), 0);
		check_end(&end, k);
	} while (rc != 0);
	CHECK(k > 5);
}

int main(void)
{
	RUN(creation);
	RUN(operations);
	return 0;
}
