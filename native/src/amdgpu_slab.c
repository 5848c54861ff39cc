/* SPDX-License-Identifier: MIT
 *
 * Slabs of the amdgpu device: VRAM buffer objects.
 */
#include "amdgpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* So large pieces get whole 2 MiB blocks of VRAM, which fragments need. */
#define SLAB_ALIGN_BYTES (UINT64_C(2) << 20)
#define BO_TRIES 3 /* until a slab that lands outside VRAM is a shortage */

/* What the kernel says of its heaps; zeros if it doesn't. Of all processes: what the card has,
 * whoever took it. */
static struct drm_amdgpu_memory_info heaps_query(struct vmkv_amdgpu *gpu)
{
	struct drm_amdgpu_memory_info heaps = { 0 };

	if (gpu->drm.amdgpu_query_info(gpu->handle, AMDGPU_INFO_MEMORY, sizeof(heaps), &heaps))
		return (struct drm_amdgpu_memory_info){ 0 };
	return heaps;
}

/* The kernel may put a buffer that VRAM has no room for into system memory, and says so only in the
 * domains that it allows from then on; cards were seen that don't even say that, and only the usage
 * of the heaps tells. Attention over such memory is several times slower, and nobody would know
 * why: it counts as no memory. */
static bool landed_outside(struct vmkv_amdgpu *gpu, amdgpu_bo_handle bo, uint64_t bytes,
                           const struct drm_amdgpu_memory_info *before)
{
	struct amdgpu_bo_info info = { 0 };
	struct drm_amdgpu_memory_info now = heaps_query(gpu);

	if (gpu->drm.amdgpu_bo_query_info(bo, &info) == 0 &&
	    info.preferred_heap & ~(uint64_t)AMDGPU_GEM_DOMAIN_VRAM)
		return true;
	return now.vram.heap_usage < before->vram.heap_usage + bytes &&
	       now.gtt.heap_usage >= before->gtt.heap_usage + bytes;
}

/* Left free for page tables, which the kernel puts into VRAM, and for which it evicts nothing of
 * our own: 8 bytes for each 4 KiB mapped, a slab's alias included, are 0.4 percent. */
#define HEADROOM_BYTES (UINT64_C(16) << 20)

/* Whether free VRAM holds it. Asked before, because the kernel would make room by moving other
 * programs' buffers into system memory, and at last our own. */
static bool has_room(struct vmkv_amdgpu *gpu, uint64_t bytes, struct drm_amdgpu_memory_info *heaps)
{
	uint64_t usable, used;

	*heaps = heaps_query(gpu);
	usable = heaps->vram.usable_heap_size;
	used = heaps->vram.heap_usage + HEADROOM_BYTES;
	return usable == 0 || (used <= usable && bytes <= usable - used);
}

/* Memory of slabs that were just destroyed comes back when no page table leads to it any more:
 * after the next submission. Worth waiting for once, before it is called a shortage. */
static bool wait_for_room(struct vmkv_amdgpu *gpu, uint64_t bytes,
                          struct drm_amdgpu_memory_info *heaps)
{
	uint64_t point;
	bool going;

	if (has_room(gpu, bytes, heaps))
		return true;
	pthread_mutex_lock(&gpu->lists_lock);
	going = gpu->slabs_going;
	gpu->slabs_going = false;
	pthread_mutex_unlock(&gpu->lists_lock);
	if (!going || amdgpu_submit_commit(gpu, &point) || amdgpu_wait(&gpu->base, point, UINT64_MAX))
		return false;
	for (uint32_t i = 0; i < AMDGPU_RETRIES && !has_room(gpu, bytes, heaps); i++)
		amdgpu_pause();
	return has_room(gpu, bytes, heaps);
}

/* A buffer in VRAM or in system memory: the kernel's choice. *before: the heaps without it. */
static int bo_alloc(struct vmkv_amdgpu *gpu, uint64_t bytes, struct drm_amdgpu_memory_info *before,
                    amdgpu_bo_handle *ret)
{
	struct amdgpu_bo_alloc_request request = {
		.alloc_size = bytes,
		.phys_alignment = bytes % SLAB_ALIGN_BYTES ? 0 : SLAB_ALIGN_BYTES,
		.preferred_heap = AMDGPU_GEM_DOMAIN_VRAM,
		/* Cleared: on kernels before 6.12 nothing else promises zeros. */
		.flags = AMDGPU_GEM_CREATE_NO_CPU_ACCESS | AMDGPU_GEM_CREATE_VRAM_CLEARED |
		         (gpu->listed ? 0 : AMDGPU_GEM_CREATE_VM_ALWAYS_VALID),
	};
	int rc = wait_for_room(gpu, bytes, before) ? -ENOMEM : -ENOSPC;

	/* Short: without memory to be had it is refused as often. */
	for (uint32_t i = 0; rc == -ENOMEM && i < 3; i++) {
		if (i > 0)
			amdgpu_pause();
		rc = gpu->drm.amdgpu_bo_alloc(gpu->handle, &request, ret);
	}
	if (rc == -ENOMEM || rc == -ENOSPC)
		return vmkv_device_fail(&gpu->base, -ENOSPC,
		                        "the card has no %llu bytes of VRAM left for a slab",
		                        (unsigned long long)bytes);
	if (rc)
		return vmkv_device_fail(&gpu->base, rc, "the kernel gave no slab of %llu bytes: %s",
		                        (unsigned long long)bytes, strerror(-rc));
	return 0;
}

/* What landed in system memory is held until there is a better one, else the next would land there
 * too; then it is given back. */
static int bo_create(struct vmkv_amdgpu *gpu, uint64_t bytes, amdgpu_bo_handle *ret)
{
	amdgpu_bo_handle outside[BO_TRIES];
	uint32_t n = 0;
	bool landed = false;
	int rc = 0;

	while (!landed && n < BO_TRIES) {
		struct drm_amdgpu_memory_info before;

		rc = bo_alloc(gpu, bytes, &before, ret);
		if (rc)
			break;
		landed = !landed_outside(gpu, *ret, bytes, &before);
		if (!landed)
			outside[n++] = *ret;
	}
	pthread_mutex_lock(&gpu->lists_lock);
	gpu->spilled += n;
	pthread_mutex_unlock(&gpu->lists_lock);
	for (uint32_t i = 0; i < n; i++)
		gpu->drm.amdgpu_bo_free(outside[i]);
	if (rc || landed)
		return rc;
	return vmkv_device_fail(&gpu->base, -ENOSPC,
	                        "the kernel put a slab of %llu bytes into system memory %u times, as "
	                        "if VRAM were full, and it was given back",
	                        (unsigned long long)bytes, n);
}

/* The next submission brings a new alias into the page tables; nothing uses it before. Where even
 * that is too early for fills, there is one now. */
static int alias_map(struct vmkv_amdgpu *gpu, struct amdgpu_slab *slab)
{
	uint64_t point;
	int rc = amdgpu_va(gpu, slab->bo, AMDGPU_VA_OP_MAP,
	                   AMDGPU_VM_DELAY_UPDATE | AMDGPU_VM_PAGE_READABLE | AMDGPU_VM_PAGE_WRITEABLE,
	                   0, slab->slab.alias, slab->slab.bytes);

	if (rc || !vmkv_device_is_safe(&gpu->base, VMKV_SAFE_WAIT_AFTER_MAP))
		return rc;
	rc = amdgpu_submit_commit(gpu, &point);
	return rc ? rc : amdgpu_submit_settle(gpu, point);
}

/* pre: the slab is among gpu->slabs, for the submission. */
static int alias_create(struct vmkv_amdgpu *gpu, struct amdgpu_slab *slab)
{
	uint64_t align = slab->slab.bytes < SLAB_ALIGN_BYTES ? gpu->base.info.granule_bytes
	                                                     : SLAB_ALIGN_BYTES;
	int rc;

	if (vmkv_device_is_safe(&gpu->base, VMKV_SAFE_NO_ALIAS))
		return 0;
	if (vmkv_device_take_shared(&gpu->base, 1))
		return vmkv_device_fail(&gpu->base, -EMLINK,
		                        "no mapping is left for another slab's alias: raise it with sysctl "
		                        "vm.max_map_count");
	rc = amdgpu_range_create(gpu, slab->slab.bytes, align, &slab->alias);
	if (rc) {
		vmkv_device_give_shared(&gpu->base, 1);
		return rc;
	}
	slab->slab.alias = slab->alias->address;
	return alias_map(gpu, slab);
}

int amdgpu_slab_create(struct vmkv_device *device, uint64_t bytes, struct vmkv_slab **ret)
{
	struct vmkv_amdgpu *gpu = amdgpu_of(device);
	struct amdgpu_slab *slab = calloc(1, sizeof(*slab));
	int rc;

	if (!slab)
		return vmkv_device_fail(device, -ENOMEM, "no host memory for a slab's record");
	slab->slab.bytes = bytes;
	rc = bo_create(gpu, bytes, &slab->bo);
	if (!rc) {
		rc = gpu->drm.amdgpu_bo_export(slab->bo, amdgpu_bo_handle_type_kms, &slab->kms_handle);
		if (rc) {
			gpu->drm.amdgpu_bo_free(slab->bo);
			vmkv_device_fail(device, rc, "libdrm didn't tell a slab's handle: %s",
			                 strerror(-rc));
		}
	}
	if (rc) {
		free(slab);
		return rc;
	}
	pthread_mutex_lock(&gpu->lists_lock);
	slab->next = gpu->slabs;
	gpu->slabs = slab;
	gpu->slab_count++;
	gpu->slab_changes++;
	pthread_mutex_unlock(&gpu->lists_lock);
	rc = alias_create(gpu, slab);
	if (rc) {
		amdgpu_slab_destroy(device, &slab->slab);
		return rc;
	}
	*ret = &slab->slab;
	return 0;
}

void amdgpu_slab_destroy(struct vmkv_device *device, struct vmkv_slab *given)
{
	struct vmkv_amdgpu *gpu = amdgpu_of(device);
	struct amdgpu_slab *slab = amdgpu_slab_of(given), **link;

	pthread_mutex_lock(&gpu->lists_lock);
	for (link = &gpu->slabs; *link != slab; link = &(*link)->next)
		;
	*link = slab->next;
	gpu->slab_count--;
	gpu->slab_changes++;
	gpu->slabs_going = true;
	pthread_mutex_unlock(&gpu->lists_lock);
	/* Closing a buffer that is still mapped is the safe order: the kernel clears its entries after
	 * the jobs that run, and frees the memory after that. */
	gpu->drm.amdgpu_bo_free(slab->bo);
	if (slab->alias) {
		amdgpu_range_destroy(gpu, slab->alias);
		vmkv_device_give_shared(device, 1);
	}
	free(slab);
}
