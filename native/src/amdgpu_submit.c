/* SPDX-License-Identifier: MIT
 *
 * Submissions of the amdgpu device to the SDMA ring, the points that they signal, and waiting for
 * them.
 */
#include "amdgpu.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "util.h"

#define RING_BYTES (UINT64_C(4) * AMDGPU_CHUNKS * AMDGPU_CHUNK_DWORDS + NOP_BYTES)
/* At its beginning lies what a commit runs: NOPs, as many as a ring's alignment asks for. */
#define NOP_BYTES UINT64_C(4096)
#define NOP_DWORDS 8
#define SDMA_NOP 0

void amdgpu_pause(void)
{
	const struct timespec millisecond = { .tv_nsec = 1000000 };

	nanosleep(&millisecond, NULL);
}

/* ---- submitting ------------------------------------------------------------------------------ */

/* The chunks of one CS, and what they point to. */
struct submission {
	struct drm_amdgpu_cs_chunk chunks[3];
	struct drm_amdgpu_cs_chunk_ib ib;
	struct drm_amdgpu_cs_chunk_syncobj signal;
	struct drm_amdgpu_bo_list_in list;
	struct drm_amdgpu_bo_list_entry *entries;
	int count;
};

static void chunk_add(struct submission *cs, uint32_t id, const void *data, size_t bytes)
{
	cs->chunks[cs->count++] = (struct drm_amdgpu_cs_chunk){
		.chunk_id = id,
		.length_dw = (uint32_t)(bytes / 4),
		.chunk_data = (uint64_t)(uintptr_t)data,
	};
}

/* Slabs that are not always-valid: only buffers that a submission lists are brought up to date. */
static int list_add(struct vmkv_amdgpu *gpu, struct submission *cs)
{
	struct amdgpu_slab *slab;
	uint32_t n = 0;

	pthread_mutex_lock(&gpu->lists_lock);
	cs->entries = calloc(gpu->slab_count + 1, sizeof(*cs->entries));
	if (cs->entries) {
		cs->entries[n++].bo_handle = gpu->ring_handle;
		for (slab = gpu->slabs; slab; slab = slab->next)
			cs->entries[n++].bo_handle = slab->kms_handle;
	}
	pthread_mutex_unlock(&gpu->lists_lock);
	if (!cs->entries)
		return vmkv_device_fail(&gpu->base, -ENOMEM, "no host memory for a list of slabs");
	cs->list = (struct drm_amdgpu_bo_list_in){
		.operation = ~0u,
		.list_handle = ~0u,
		.bo_number = n,
		.bo_info_size = sizeof(*cs->entries),
		.bo_info_ptr = (uint64_t)(uintptr_t)cs->entries,
	};
	chunk_add(cs, AMDGPU_CHUNK_ID_BO_HANDLES, &cs->list, sizeof(cs->list));
	return 0;
}

/* After a GPU fault or reset the kernel takes no more work for a context. If memory survived, a new
 * one goes on. */
static int context_renew(struct vmkv_amdgpu *gpu)
{
	amdgpu_context_handle context;
	uint32_t lost = 0;

	if (gpu->drm.amdgpu_query_info(gpu->handle, AMDGPU_INFO_VRAM_LOST_COUNTER, sizeof(lost),
	                               &lost) ||
	    lost != gpu->vram_lost_count)
		return -ENODEV;
	if (gpu->drm.amdgpu_cs_ctx_create2(gpu->handle, AMDGPU_CTX_PRIORITY_NORMAL, &context))
		return -ENODEV;
	/* The old one's numbers mean nothing in the new one. */
	amdgpu_outcomes_settle(gpu);
	gpu->drm.amdgpu_cs_ctx_free(gpu->context);
	gpu->context = context;
	return 0;
}

static int submit_again(struct vmkv_amdgpu *gpu, struct submission *cs, uint64_t *sequence)
{
	bool renewed = false;
	int rc = -ENOMEM;

	for (uint32_t i = 0; i < AMDGPU_RETRIES; i++) {
		rc = vmkv_libdrm_result(gpu->drm.amdgpu_cs_submit_raw2(
		    gpu->handle, gpu->context, 0, cs->count, cs->chunks, sequence));
		if (rc == -ECANCELED && !renewed) {
			renewed = true;
			rc = context_renew(gpu);
			if (rc)
				break;
		} else if (rc == -ENOMEM) {
			amdgpu_pause();
		} else {
			break;
		}
	}
	return rc;
}

/* pre: submit_lock is held. */
static int submit(struct vmkv_amdgpu *gpu, uint64_t address, uint32_t dwords, uint64_t *sequence,
                  uint64_t *point)
{
	struct submission cs = {
		.ib = {
			.va_start = address,
			.ib_bytes = dwords * 4,
			.ip_type = AMDGPU_HW_IP_DMA,
		},
		.signal = {
			.handle = gpu->syncobj,
			.point = atomic_load(&gpu->submitted) + 1,
		},
	};
	int rc = 0;

	chunk_add(&cs, AMDGPU_CHUNK_ID_IB, &cs.ib, sizeof(cs.ib));
	chunk_add(&cs, AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL, &cs.signal, sizeof(cs.signal));
	if (gpu->listed)
		rc = list_add(gpu, &cs);
	if (!rc) {
		rc = submit_again(gpu, &cs, sequence);
		if (rc == -ENODEV || rc == -ECANCELED)
			rc = vmkv_device_fail(&gpu->base, -ENODEV,
			                      "the card was reset and lost its memory: open it anew");
		else if (rc < 0)
			vmkv_device_fail(&gpu->base, rc, "the kernel took no work for the SDMA ring: %s",
			                 strerror(-rc));
	}
	free(cs.entries);
	if (rc < 0)
		return rc;
	atomic_store(&gpu->submitted, cs.signal.point);
	*point = cs.signal.point;
	return 0;
}

int amdgpu_submit_commit(struct vmkv_amdgpu *gpu, uint64_t *point)
{
	uint64_t sequence;
	int rc;

	pthread_mutex_lock(&gpu->submit_lock);
	rc = submit(gpu, gpu->ring_range->address, NOP_DWORDS, &sequence, point);
	pthread_mutex_unlock(&gpu->submit_lock);
	return rc;
}

uint64_t amdgpu_submit_promise(struct vmkv_amdgpu *gpu)
{
	uint64_t point = atomic_load(&gpu->submitted) + 1, now = atomic_load(&gpu->promised);

	while (now < point && !atomic_compare_exchange_weak(&gpu->promised, &now, point))
		;
	return point;
}

int amdgpu_submit_promised(struct vmkv_amdgpu *gpu)
{
	uint64_t point;

	/* A submission that failed before: without it what was unmapped never comes back. */
	if (atomic_load(&gpu->promised) > atomic_load(&gpu->submitted))
		return amdgpu_submit_commit(gpu, &point);
	return 0;
}

/* ---- chunks of the ring ---------------------------------------------------------------------- */

static int point_wait(struct vmkv_amdgpu *gpu, uint64_t point, uint64_t timeout_ns);

int amdgpu_chunk_take(struct vmkv_amdgpu *gpu, uint32_t *chunk, uint32_t **words)
{
	uint32_t i = gpu->next_chunk;
	int rc = 0;

	if (gpu->chunk_points[i] > atomic_load(&gpu->base.completed))
		rc = point_wait(gpu, gpu->chunk_points[i], UINT64_MAX);
	if (rc)
		return rc;
	gpu->next_chunk = (i + 1) % AMDGPU_CHUNKS;
	*chunk = i;
	*words = gpu->ring_words + NOP_BYTES / 4 + i * AMDGPU_CHUNK_DWORDS;
	return 0;
}

int amdgpu_chunk_submit(struct vmkv_amdgpu *gpu, uint32_t chunk, uint32_t dwords,
                        uint64_t *sequence, uint64_t *point)
{
	uint64_t address = gpu->ring_range->address + NOP_BYTES + chunk * 4ULL * AMDGPU_CHUNK_DWORDS;
	uint32_t *words = gpu->ring_words + NOP_BYTES / 4 + chunk * AMDGPU_CHUNK_DWORDS;
	int rc;

	while (dwords % NOP_DWORDS)
		words[dwords++] = SDMA_NOP;
	rc = submit(gpu, address, dwords, sequence, point);
	if (!rc)
		gpu->chunk_points[chunk] = *point;
	return rc;
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void completed_raise(struct vmkv_device *device, uint64_t point)
{
	uint64_t now = atomic_load(&device->completed);

	while (now < point && !atomic_compare_exchange_weak(&device->completed, &now, point))
		;
}

static int64_t deadline_ns(uint64_t timeout_ns)
{
	int64_t ns = (int64_t)vmkv_clock_ns(CLOCK_MONOTONIC);

	return timeout_ns > (uint64_t)(INT64_MAX - ns) ? INT64_MAX : ns + (int64_t)timeout_ns;
}

/* Only look. */
static int look(struct vmkv_amdgpu *gpu, uint64_t point)
{
	uint64_t reached = 0;
	int rc = vmkv_libdrm_result(
	    gpu->drm.amdgpu_cs_syncobj_query(gpu->handle, &gpu->syncobj, &reached, 1));

	if (rc < 0)
		return vmkv_device_fail(&gpu->base, rc, "the kernel didn't tell the timeline's point: %s",
		                        strerror(-rc));
	completed_raise(&gpu->base, reached);
	return reached >= point ? 0 : -ETIME;
}

/* Of a submission that was made; submits nothing, so that it may be called with submit_lock
 * held. */
static int point_wait(struct vmkv_amdgpu *gpu, uint64_t point, uint64_t timeout_ns)
{
	int rc;

	if (timeout_ns == 0)
		return look(gpu, point);
	rc = vmkv_libdrm_result(gpu->drm.amdgpu_cs_syncobj_timeline_wait(
	    gpu->handle, &gpu->syncobj, &point, 1, deadline_ns(timeout_ns), 0, NULL));
	if (rc == -ETIME)
		return rc;
	if (rc < 0)
		return vmkv_device_fail(&gpu->base, rc, "waiting for point %llu failed: %s",
		                        (unsigned long long)point, strerror(-rc));
	completed_raise(&gpu->base, point);
	return 0;
}

int amdgpu_wait(struct vmkv_device *device, uint64_t point, uint64_t timeout_ns)
{
	struct vmkv_amdgpu *gpu = amdgpu_of(device);
	uint64_t promised = atomic_load(&gpu->promised);
	int rc = amdgpu_submit_promised(gpu);

	if (rc && (point == 0 || point == promised))
		return rc;
	if (point == 0 && atomic_load(&device->completed) == atomic_load(&gpu->submitted))
		return 0;
	if (point == 0)
		return look(gpu, 0);
	if (point > atomic_load(&gpu->submitted))
		return vmkv_device_fail(device, -EINVAL, "point %llu never came from this device",
		                        (unsigned long long)point);
	return point_wait(gpu, point, timeout_ns);
}

int amdgpu_submit_settle(struct vmkv_amdgpu *gpu, uint64_t point)
{
	int rc = 0;

	if (!vmkv_device_is_safe(&gpu->base, VMKV_SAFE_WAIT_AFTER_MAP))
		return 0;
	/* Without a timeline a GEM_VA doesn't tell; a submission comes after it. */
	if (!point)
		rc = amdgpu_submit_commit(gpu, &point);
	if (!rc)
		rc = amdgpu_wait(&gpu->base, point, UINT64_MAX);
	if (rc)
		return rc;
	vmkv_device_wait_after_map(&gpu->base);
	/* An emulated card shows late memory to the CPU when it is called, at the latest. */
	return amdgpu_wait(&gpu->base, point, UINT64_MAX);
}

/* ---- begin and end --------------------------------------------------------------------------- */

static int ring_create(struct vmkv_amdgpu *gpu)
{
	struct amdgpu_bo_alloc_request request = {
		.alloc_size = RING_BYTES,
		.preferred_heap = AMDGPU_GEM_DOMAIN_GTT,
		.flags = gpu->listed ? 0 : AMDGPU_GEM_CREATE_VM_ALWAYS_VALID,
	};
	uint64_t point;
	void *words;
	int rc = gpu->drm.amdgpu_bo_alloc(gpu->handle, &request, &gpu->ring);

	if (!rc)
		rc = gpu->drm.amdgpu_bo_export(gpu->ring, amdgpu_bo_handle_type_kms, &gpu->ring_handle);
	if (!rc)
		rc = gpu->drm.amdgpu_bo_cpu_map(gpu->ring, &words);
	if (rc)
		return vmkv_device_fail(&gpu->base, rc, "no memory for the SDMA ring's packets: %s",
		                        strerror(-rc));
	gpu->ring_words = words;
	memset(words, SDMA_NOP, NOP_BYTES);
	rc = amdgpu_range_create(gpu, RING_BYTES, 4096, &gpu->ring_range);
	if (!rc)
		rc = amdgpu_va(gpu, gpu->ring, AMDGPU_VA_OP_MAP,
		               AMDGPU_VM_PAGE_READABLE | AMDGPU_VM_PAGE_WRITEABLE |
		                   AMDGPU_VM_PAGE_EXECUTABLE,
		               0, gpu->ring_range->address, RING_BYTES);
	if (rc || !vmkv_device_is_safe(&gpu->base, VMKV_SAFE_WAIT_AFTER_MAP))
		return rc;
	/* Its NOPs do nothing, whether they are seen or not. */
	rc = amdgpu_submit_commit(gpu, &point);
	return rc ? rc : amdgpu_submit_settle(gpu, point);
}

int amdgpu_submit_init(struct vmkv_amdgpu *gpu)
{
	int rc = vmkv_libdrm_result(
	    gpu->drm.amdgpu_cs_ctx_create2(gpu->handle, AMDGPU_CTX_PRIORITY_NORMAL, &gpu->context));

	if (rc < 0)
		return vmkv_device_fail(&gpu->base, rc, "the kernel gave no context: %s", strerror(-rc));
	rc = vmkv_libdrm_result(gpu->drm.amdgpu_cs_create_syncobj2(gpu->handle, 0, &gpu->syncobj));
	if (rc < 0)
		return vmkv_device_fail(&gpu->base, rc, "the kernel gave no syncobj: %s", strerror(-rc));
	return ring_create(gpu);
}

/* Also after an init that failed half way. */
void amdgpu_submit_fini(struct vmkv_amdgpu *gpu)
{
	uint64_t last = atomic_load(&gpu->submitted);

	if (last > 0 && !vmkv_device_is_lost(&gpu->base))
		amdgpu_wait(&gpu->base, last, UINT64_MAX);
	if (gpu->ring_words)
		gpu->drm.amdgpu_bo_cpu_unmap(gpu->ring);
	if (gpu->ring)
		gpu->drm.amdgpu_bo_free(gpu->ring);
	if (gpu->ring_range)
		amdgpu_range_destroy(gpu, gpu->ring_range);
	if (gpu->syncobj)
		gpu->drm.amdgpu_cs_destroy_syncobj(gpu->handle, gpu->syncobj);
	if (gpu->context)
		gpu->drm.amdgpu_cs_ctx_free(gpu->context);
}
