/* SPDX-License-Identifier: MIT
 *
 * Maps and unmaps of the amdgpu device: GEM_VA calls, and what makes the page tables follow.
 */
#include "amdgpu.h"

#include <errno.h>
#include <string.h>

#define PIECE_FLAGS (AMDGPU_VM_PAGE_READABLE | AMDGPU_VM_PAGE_WRITEABLE)

int amdgpu_va(struct vmkv_amdgpu *gpu, amdgpu_bo_handle bo, uint32_t operation, uint64_t flags,
              uint64_t offset, uint64_t address, uint64_t bytes)
{
	static const char *const names[] = { "?", "map", "unmap", "clear", "replace" };
	int rc = -ENOMEM;

	for (uint32_t i = 0; rc == -ENOMEM && i < AMDGPU_RETRIES; i++) {
		if (i > 0)
			amdgpu_pause();
		rc = vmkv_libdrm_result(gpu->drm.amdgpu_bo_va_op_raw(
		    gpu->handle, bo, offset, bytes, address, flags, operation));
	}
	if (rc < 0)
		return vmkv_device_fail(&gpu->base, rc,
		                        "the kernel refused to %s %llu bytes at 0x%llx: %s",
		                        names[operation <= 4 ? operation : 0], (unsigned long long)bytes,
		                        (unsigned long long)address, strerror(-rc));
	return 0;
}

/* ---- by buffer: without a submission --------------------------------------------------------- */

/* A GEM_VA without DELAY writes the page tables of its own buffer, and of what was unmapped. With a
 * timeline, which old kernels ignore in silence, it also tells when: libdrm's own call for it is
 * too new to count on. */
static int flush_by_bo(struct vmkv_amdgpu *gpu, uint32_t kms_handle, uint32_t operation,
                       uint64_t offset, uint64_t address, uint64_t bytes, uint64_t *point)
{
	bool timeline = gpu->drm_minor >= AMDGPU_TIMELINE_DRM_MINOR;
	struct drm_amdgpu_gem_va va = {
		.handle = kms_handle,
		.operation = operation,
		.flags = operation == AMDGPU_VA_OP_MAP ? PIECE_FLAGS : 0,
		.va_address = address,
		.offset_in_bo = offset,
		.map_size = bytes,
	};
	uint64_t next;
	int rc;

	pthread_mutex_lock(&gpu->submit_lock);
	next = atomic_load(&gpu->submitted) + 1;
	if (timeline) {
		va.vm_timeline_syncobj_out = gpu->syncobj;
		va.vm_timeline_point = next;
	}
	rc = vmkv_libdrm_result(
	    gpu->drm.drmCommandWriteRead(gpu->fd, DRM_AMDGPU_GEM_VA, &va, sizeof(va)));
	if (rc == 0 && timeline)
		atomic_store(&gpu->submitted, next);
	pthread_mutex_unlock(&gpu->submit_lock);
	if (rc < 0)
		return vmkv_device_fail(&gpu->base, rc,
		                        "the kernel refused to change %llu bytes at 0x%llx: %s",
		                        (unsigned long long)bytes, (unsigned long long)address,
		                        strerror(-rc));
	*point = timeline ? next : 0;
	return 0;
}

/* Which maps are the last of their slab: those flush it. */
static void mark_last(const struct vmkv_map *maps, size_t n)
{
	for (size_t i = 0; i < n; i++)
		amdgpu_slab_of(maps[i].slab)->last_map = i;
}

static int map_by_bo(struct vmkv_amdgpu *gpu, const struct vmkv_map *maps, size_t n, size_t *issued,
                     uint64_t *point)
{
	uint64_t newest = 0;
	int rc = 0;
	size_t i;

	pthread_mutex_lock(&gpu->flush_lock);
	mark_last(maps, n);
	for (i = 0; i < n; i++) {
		struct amdgpu_slab *slab = amdgpu_slab_of(maps[i].slab);

		if (slab->last_map == i)
			rc = flush_by_bo(gpu, slab->kms_handle, AMDGPU_VA_OP_MAP, maps[i].offset,
			                 maps[i].address, maps[i].bytes, &newest);
		else
			rc = amdgpu_va(gpu, slab->bo, AMDGPU_VA_OP_MAP,
			               AMDGPU_VM_DELAY_UPDATE | PIECE_FLAGS, maps[i].offset,
			               maps[i].address, maps[i].bytes);
		if (rc)
			break;
	}
	pthread_mutex_unlock(&gpu->flush_lock);
	*issued = i;
	if (!rc)
		*point = newest;
	return rc;
}

/* ---- the seam -------------------------------------------------------------------------------- */

static int map_by_commit(struct vmkv_amdgpu *gpu, const struct vmkv_map *maps, size_t n,
                         size_t *issued, uint64_t *point)
{
	int rc = 0;
	size_t i;

	for (i = 0; i < n; i++) {
		rc = amdgpu_va(gpu, amdgpu_slab_of(maps[i].slab)->bo, AMDGPU_VA_OP_MAP,
		               AMDGPU_VM_DELAY_UPDATE | PIECE_FLAGS, maps[i].offset, maps[i].address,
		               maps[i].bytes);
		if (rc)
			break;
	}
	*issued = i;
	/* With the engine's commits: at its next submission. */
	if (rc || gpu->commit == VMKV_COMMIT_ENGINE)
		return rc;
	return amdgpu_submit_commit(gpu, point);
}

int amdgpu_map(struct vmkv_device *device, const struct vmkv_map *maps, size_t n, size_t *issued,
               uint64_t *point)
{
	struct vmkv_amdgpu *gpu = amdgpu_of(device);
	bool keeps = vmkv_device_is_safe(device, VMKV_SAFE_NEVER_REUSE_ADDRESSES);
	uint64_t reached = 0;
	int settle_rc = 0;
	int rc = gpu->commit == VMKV_COMMIT_BO ? map_by_bo(gpu, maps, n, issued, &reached)
	                                       : map_by_commit(gpu, maps, n, issued, &reached);

	if (rc == -ENODEV || (rc && (!keeps || *issued == 0)))
		return rc;
	/* Those that were issued stay: the next submission brings them into the page tables. */
	if (rc && gpu->commit != VMKV_COMMIT_ENGINE && amdgpu_submit_commit(gpu, &reached))
		reached = amdgpu_submit_promise(gpu);
	settle_rc = amdgpu_submit_settle(gpu, reached);
	if (!settle_rc || keeps)
		*point = reached;
	return rc ? rc : settle_rc;
}

/* A single mapping goes by UNMAP at its exact start, neighbours by one CLEAR: neither splits any,
 * since ranges are of whole mappings. */
static int unmap_one(struct vmkv_amdgpu *gpu, const struct vmkv_unmap *unmap, bool delay,
                     uint64_t *point)
{
	struct amdgpu_slab *slab = unmap->slab ? amdgpu_slab_of(unmap->slab) : NULL;
	uint32_t operation = slab ? AMDGPU_VA_OP_UNMAP : AMDGPU_VA_OP_CLEAR;

	if (!delay)
		return flush_by_bo(gpu, slab ? slab->kms_handle : 0, operation, 0, unmap->address,
		                   unmap->bytes, point);
	return amdgpu_va(gpu, slab ? slab->bo : NULL, operation, AMDGPU_VM_DELAY_UPDATE, 0,
	                 unmap->address, unmap->bytes);
}

int amdgpu_unmap(struct vmkv_device *device, const struct vmkv_unmap *unmaps, size_t n,
                 size_t *issued, uint64_t *point)
{
	struct vmkv_amdgpu *gpu = amdgpu_of(device);
	bool by_bo = gpu->commit == VMKV_COMMIT_BO;
	uint64_t reached = 0;
	int rc = 0, commit_rc = 0;
	size_t i;

	for (i = 0; i < n; i++) {
		rc = unmap_one(gpu, &unmaps[i], !by_bo || i + 1 < n, &reached);
		if (rc)
			break;
	}
	*issued = i;
	/* Without submissions, the last one flushed those before; if it failed, nothing did. */
	if (!by_bo || (rc && i > 0))
		commit_rc = amdgpu_submit_commit(gpu, &reached);
	if (commit_rc == -ENODEV)
		return commit_rc;
	/* They are on the kernel's list of what to clear: the next submission does it. */
	if (commit_rc)
		reached = amdgpu_submit_promise(gpu);
	if (i > 0)
		*point = reached;
	return rc;
}
