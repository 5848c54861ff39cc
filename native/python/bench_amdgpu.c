/* SPDX-License-Identifier: MIT
 *
 * The floor of the amdgpu device: the libdrm calls that a plan can't do without, and nothing around
 * them. It works on the device's own libdrm handle and address space.
 */
#include "bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "abi/amdgpu.h"
#include "libdrm.h"
#include "util.h"

#define IB_BYTES 4096
#define IB_NOPS 8 /* as many as a ring's alignment asks for; a NOP is 0 */
#define ALIGN_BYTES ((uint64_t)2 << 20)
#define MAP_FLAGS (AMDGPU_VM_PAGE_READABLE | AMDGPU_VM_PAGE_WRITEABLE)

struct floor_slab {
	amdgpu_bo_handle bo; /* NULL: not used yet */
	amdgpu_va_handle alias;
	uint64_t alias_address;
};

struct vmkv_bench_amdgpu {
	const struct vmkv_bench_plan *plan;
	struct vmkv_libdrm drm;
	amdgpu_device_handle device;
	bool submits;
	amdgpu_context_handle context;
	uint32_t syncobj;
	uint64_t point; /* the newest that was submitted */
	amdgpu_bo_handle ib;
	amdgpu_va_handle ib_range;
	uint64_t ib_address;
	amdgpu_va_handle *ranges; /* the plan's */
	struct floor_slab *slabs;
};

/* ---- what isn't timed ------------------------------------------------------------------------ */

static int range_take(struct vmkv_bench_amdgpu *floor, uint64_t bytes, uint64_t required,
                      uint64_t *address, amdgpu_va_handle *range)
{
	return floor->drm.amdgpu_va_range_alloc(floor->device, amdgpu_gpu_va_range_general, bytes,
	                                        ALIGN_BYTES, required, address, range, 0);
}

/* The plan's addresses are free again, its cache being gone. Where they come from libdrm they are
 * taken anew, so that no alias gets them; a window is the device's alone. */
static int addresses_take(struct vmkv_bench_amdgpu *floor, bool window)
{
	const struct vmkv_bench_plan *plan = floor->plan;
	int error = 0;

	for (size_t i = 0; !error && !window && i < plan->range_count; i++) {
		uint64_t address;

		error = range_take(floor, plan->ranges[i].bytes, plan->ranges[i].address, &address,
		                   &floor->ranges[i]);
	}
	for (size_t i = 0; !error && i < plan->slab_count; i++)
		error = range_take(floor, plan->slab_bytes, 0, &floor->slabs[i].alias_address,
		                   &floor->slabs[i].alias);
	if (!error)
		error = range_take(floor, IB_BYTES, 0, &floor->ib_address, &floor->ib_range);
	return error;
}

static int ib_create(struct vmkv_bench_amdgpu *floor)
{
	struct amdgpu_bo_alloc_request request = {
		.alloc_size = IB_BYTES,
		.preferred_heap = AMDGPU_GEM_DOMAIN_GTT,
		.flags = AMDGPU_GEM_CREATE_VM_ALWAYS_VALID,
	};
	void *words;
	int error = floor->drm.amdgpu_bo_alloc(floor->device, &request, &floor->ib);

	if (error)
		return error;
	error = floor->drm.amdgpu_bo_cpu_map(floor->ib, &words);
	if (error)
		return error;
	memset(words, 0, IB_BYTES);
	floor->drm.amdgpu_bo_cpu_unmap(floor->ib);
	return vmkv_libdrm_result(floor->drm.amdgpu_bo_va_op_raw(
	    floor->device, floor->ib, 0, IB_BYTES, floor->ib_address,
	    AMDGPU_VM_DELAY_UPDATE | MAP_FLAGS | AMDGPU_VM_PAGE_EXECUTABLE, AMDGPU_VA_OP_MAP));
}

static int floor_init(struct vmkv_bench_amdgpu *floor, const vmkv_device *device)
{
	struct vmkv_amdgpu_info info = { .struct_size = sizeof(info) };
	int error = vmkv_amdgpu_info(device, &info);

	if (error)
		return error;
	if (info.listed || info.commit == VMKV_COMMIT_BO)
		return -ENOTSUP;
	floor->device = info.amdgpu_device;
	floor->submits = info.commit == VMKV_COMMIT_CS;
	error = vmkv_libdrm_load(&floor->drm, NULL, 0);
	if (!error)
		error = vmkv_libdrm_result(floor->drm.amdgpu_cs_ctx_create2(
		    floor->device, AMDGPU_CTX_PRIORITY_NORMAL, &floor->context));
	if (!error)
		error = vmkv_libdrm_result(
		    floor->drm.amdgpu_cs_create_syncobj2(floor->device, 0, &floor->syncobj));
	if (!error)
		error = addresses_take(floor, info.window_begin != info.window_end);
	if (!error)
		error = ib_create(floor);
	return error;
}

static bool plan_is_sound(const struct vmkv_bench_plan *plan)
{
	for (size_t i = 0; i < plan->piece_count; i++)
		if (plan->pieces[i].slab >= plan->slab_count ||
		    plan->pieces[i].step >= plan->step_count ||
		    (i > 0 && plan->pieces[i].step < plan->pieces[i - 1].step))
			return false;
	return true;
}

int vmkv_bench_amdgpu_create(const vmkv_device *device, const struct vmkv_bench_plan *plan,
                             struct vmkv_bench_amdgpu **ret)
{
	struct vmkv_bench_amdgpu *floor;
	int error = -ENOMEM;

	if (!plan_is_sound(plan))
		return -EINVAL;
	floor = calloc(1, sizeof(*floor));
	if (!floor)
		return -ENOMEM;
	floor->plan = plan;
	floor->ranges = calloc(plan->range_count + 1, sizeof(*floor->ranges));
	floor->slabs = calloc(plan->slab_count + 1, sizeof(*floor->slabs));
	if (floor->ranges && floor->slabs)
		error = floor_init(floor, device);
	if (error)
		vmkv_bench_amdgpu_destroy(floor);
	else
		*ret = floor;
	return error;
}

/* Buffers end while they are mapped, as a cache's do: the kernel clears what led to them. */
static void memory_release(struct vmkv_bench_amdgpu *floor)
{
	const struct vmkv_bench_plan *plan = floor->plan;

	for (size_t i = 0; floor->slabs && i < plan->slab_count; i++) {
		if (floor->slabs[i].bo)
			floor->drm.amdgpu_bo_free(floor->slabs[i].bo);
		if (floor->slabs[i].alias)
			floor->drm.amdgpu_va_range_free(floor->slabs[i].alias);
	}
	if (floor->ib)
		floor->drm.amdgpu_bo_free(floor->ib);
	if (floor->ib_range)
		floor->drm.amdgpu_va_range_free(floor->ib_range);
	for (size_t i = 0; floor->ranges && i < plan->range_count; i++)
		if (floor->ranges[i])
			floor->drm.amdgpu_va_range_free(floor->ranges[i]);
}

void vmkv_bench_amdgpu_destroy(struct vmkv_bench_amdgpu *floor)
{
	if (!floor)
		return;
	if (floor->point)
		floor->drm.amdgpu_cs_syncobj_timeline_wait(floor->device, &floor->syncobj, &floor->point,
		                                           1, INT64_MAX, 0, NULL);
	memory_release(floor);
	if (floor->syncobj)
		floor->drm.amdgpu_cs_destroy_syncobj(floor->device, floor->syncobj);
	if (floor->context)
		floor->drm.amdgpu_cs_ctx_free(floor->context);
	vmkv_libdrm_unload(&floor->drm);
	free(floor->slabs);
	free(floor->ranges);
	free(floor);
}

/* ---- what is timed --------------------------------------------------------------------------- */

static int slab_create(struct vmkv_bench_amdgpu *floor, struct floor_slab *slab)
{
	struct amdgpu_bo_alloc_request request = {
		.alloc_size = floor->plan->slab_bytes,
		.phys_alignment = ALIGN_BYTES,
		.preferred_heap = AMDGPU_GEM_DOMAIN_VRAM,
		.flags = AMDGPU_GEM_CREATE_NO_CPU_ACCESS | AMDGPU_GEM_CREATE_VRAM_CLEARED |
		         AMDGPU_GEM_CREATE_VM_ALWAYS_VALID,
	};
	int error = floor->drm.amdgpu_bo_alloc(floor->device, &request, &slab->bo);

	if (error)
		return error;
	return vmkv_libdrm_result(floor->drm.amdgpu_bo_va_op_raw(
	    floor->device, slab->bo, 0, floor->plan->slab_bytes, slab->alias_address,
	    AMDGPU_VM_DELAY_UPDATE | MAP_FLAGS, AMDGPU_VA_OP_MAP));
}

static int submit(struct vmkv_bench_amdgpu *floor)
{
	struct drm_amdgpu_cs_chunk_ib ib = {
		.va_start = floor->ib_address,
		.ib_bytes = IB_NOPS * 4,
		.ip_type = AMDGPU_HW_IP_DMA,
	};
	struct drm_amdgpu_cs_chunk_syncobj signal = {
		.handle = floor->syncobj,
		.point = floor->point + 1,
	};
	struct drm_amdgpu_cs_chunk chunks[2] = {
		{ AMDGPU_CHUNK_ID_IB, sizeof(ib) / 4, (uintptr_t)&ib },
		{ AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL, sizeof(signal) / 4, (uintptr_t)&signal },
	};
	uint64_t sequence;
	int error = vmkv_libdrm_result(floor->drm.amdgpu_cs_submit_raw2(
	    floor->device, floor->context, 0, 2, chunks, &sequence));

	if (!error)
		floor->point = signal.point;
	return error;
}

static int map(struct vmkv_bench_amdgpu *floor, const struct vmkv_bench_piece *piece)
{
	struct floor_slab *slab = &floor->slabs[piece->slab];
	int error = slab->bo ? 0 : slab_create(floor, slab);

	if (error)
		return error;
	return vmkv_libdrm_result(floor->drm.amdgpu_bo_va_op_raw(
	    floor->device, slab->bo, piece->slab_offset, piece->bytes, piece->address,
	    AMDGPU_VM_DELAY_UPDATE | MAP_FLAGS, AMDGPU_VA_OP_MAP));
}

int vmkv_bench_amdgpu_run(struct vmkv_bench_amdgpu *floor, uint64_t *ret_ns)
{
	const struct vmkv_bench_plan *plan = floor->plan;
	size_t i = 0;

	for (size_t step = 0; step < plan->step_count; step++) {
		uint64_t begin_ns = vmkv_clock_ns(CLOCK_MONOTONIC);
		size_t first = i;
		int error = 0;

		for (; !error && i < plan->piece_count && plan->pieces[i].step == step; i++)
			error = map(floor, &plan->pieces[i]);
		if (!error && i > first && floor->submits)
			error = submit(floor);
		if (error)
			return error;
		ret_ns[step] = vmkv_clock_ns(CLOCK_MONOTONIC) - begin_ns;
	}
	return 0;
}
