/* SPDX-License-Identifier: MIT
 *
 * Slabs of the amdgpu device: VRAM buffer objects.
 */
#include "amdgpu.h"

#include <errno.h>
#include <stdlib.h>

/* So large pieces get whole 2 MiB blocks of VRAM, which fragments need. */
#define SLAB_ALIGN_BYTES (UINT64_C(2) << 20)

/* The kernel may put a buffer that VRAM has no room for into system memory, and says so only in the
 * domains that it allows from then on. Attention over such memory is several times slower, and nobody
 * would know why: it counts as no memory. */
static bool landed_outside(struct vmkv_amdgpu *gpu, amdgpu_bo_handle bo)
{
	struct amdgpu_bo_info info = { 0 };

	return gpu->drm.amdgpu_bo_query_info(bo, &info) == 0 &&
	       info.preferred_heap & ~(uint64_t)AMDGPU_GEM_DOMAIN_VRAM;
}

/* Left free for page tables, which the kernel puts into VRAM, and for which it evicts nothing of our own:
 * 8 bytes for each 4 KiB mapped, a slab's alias included, are 0.4 percent. */
#define HEADROOM_BYTES (UINT64_C(16) << 20)

/* Whether free VRAM holds it. Asked before, because the kernel would make room by moving other programs'
 * buffers into system memory, and at last our own. */
static bool has_room(struct vmkv_amdgpu *gpu, uint64_t bytes)
{
	struct drm_amdgpu_memory_info memory = { 0 };
	uint64_t usable, used;

	if (gpu->drm.amdgpu_query_info(gpu->handle, AMDGPU_INFO_MEMORY, sizeof(memory), &memory))
		return true;
	usable = memory.vram.usable_heap_size;
	used = memory.vram.heap_usage + HEADROOM_BYTES;
	return used <= usable && bytes <= usable - used;
}

static int bo_create(struct vmkv_amdgpu *gpu, uint64_t bytes, amdgpu_bo_handle *ret)
{
	struct amdgpu_bo_alloc_request request = {
		.alloc_size = bytes,
		.phys_alignment = bytes % SLAB_ALIGN_BYTES ? 0 : SLAB_ALIGN_BYTES,
		.preferred_heap = AMDGPU_GEM_DOMAIN_VRAM,
		/* Cleared: on kernels before 6.12 nothing else promises zeros. */
		.flags = AMDGPU_GEM_CREATE_NO_CPU_ACCESS | AMDGPU_GEM_CREATE_VRAM_CLEARED |
		         (gpu->listed ? 0 : AMDGPU_GEM_CREATE_VM_ALWAYS_VALID),
	};
	int rc = has_room(gpu, bytes) ? -ENOMEM : -ENOSPC;

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
		return vmkv_device_fail(&gpu->base, rc, "the kernel gave no slab of %llu bytes: error %d",
		                        (unsigned long long)bytes, -rc);
	if (!landed_outside(gpu, *ret))
		return 0;
	gpu->drm.amdgpu_bo_free(*ret);
	pthread_mutex_lock(&gpu->lists_lock);
	gpu->spilled++;
	pthread_mutex_unlock(&gpu->lists_lock);
	return vmkv_device_fail(&gpu->base, -ENOSPC,
	                        "VRAM is full: the kernel put a slab of %llu bytes into system memory, and "
	                        "it was given back", (unsigned long long)bytes);
}

/* pre: slab->bo is there. */
static int alias_create(struct vmkv_amdgpu *gpu, struct amdgpu_slab *slab)
{
	uint64_t align = slab->slab.bytes < SLAB_ALIGN_BYTES ? gpu->base.info.granule_bytes
	                                                     : SLAB_ALIGN_BYTES;
	int rc = gpu->drm.amdgpu_bo_export(slab->bo, amdgpu_bo_handle_type_kms, &slab->kms_handle);

	if (rc)
		return vmkv_device_fail(&gpu->base, rc, "libdrm didn't tell a slab's handle: error %d", -rc);
	if (vmkv_device_take_shared(&gpu->base, 1))
		return vmkv_device_fail(&gpu->base, -EMLINK,
		                        "no mapping is left for another slab's alias: raise it with sysctl "
		                        "vm.max_map_count");
	rc = amdgpu_range_create(gpu, slab->slab.bytes, align, &slab->alias);
	if (!rc) {
		slab->slab.alias = slab->alias->address;
		/* The next submission brings it into the page tables; nothing uses it before. */
		rc = amdgpu_va(gpu, slab->bo, AMDGPU_VA_OP_MAP,
		               AMDGPU_VM_DELAY_UPDATE | AMDGPU_VM_PAGE_READABLE |
		                   AMDGPU_VM_PAGE_WRITEABLE,
		               0, slab->slab.alias, slab->slab.bytes);
		if (!rc)
			return 0;
		amdgpu_range_destroy(gpu, slab->alias);
	}
	vmkv_device_give_shared(&gpu->base, 1);
	return rc;
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
		rc = alias_create(gpu, slab);
		if (rc)
			gpu->drm.amdgpu_bo_free(slab->bo);
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
	pthread_mutex_unlock(&gpu->lists_lock);
	/* Closing a buffer that is still mapped is the safe order: the kernel clears its entries after the
	 * jobs that run, and frees the memory after that. */
	gpu->drm.amdgpu_bo_free(slab->bo);
	amdgpu_range_destroy(gpu, slab->alias);
	vmkv_device_give_shared(device, 1);
	free(slab);
}
