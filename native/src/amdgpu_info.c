/* SPDX-License-Identifier: MIT
 *
 * What an engine on the same card asks of an amdgpu device.
 */
#include <errno.h>
#include <string.h>

#include "amdgpu.h"
#include "util.h"

static struct vmkv_amdgpu *amdgpu_if(vmkv_device *device)
{
	if (!device)
		return NULL;
	if (device->ops->reserve == amdgpu_reserve)
		return amdgpu_of(device);
	vmkv_device_fail(device, -EINVAL, "device \"%s\" isn't an amdgpu device", device->info.name);
	return NULL;
}

int vmkv_amdgpu_info(const vmkv_device *device, struct vmkv_amdgpu_info *ret)
{
	struct vmkv_amdgpu *gpu = amdgpu_if((vmkv_device *)device);
	struct vmkv_amdgpu_info info;

	if (!gpu)
		return -EINVAL;
	info = (struct vmkv_amdgpu_info){
		.drm_fd = gpu->fd,
		.syncobj = gpu->syncobj,
		.amdgpu_device = gpu->handle,
		.commit = gpu->commit,
		.listed = gpu->listed,
		.window_begin = gpu->window_begin,
		.window_end = gpu->window_end,
		.drm_minor = gpu->drm_minor,
		.family = gpu->card.family,
		.external_rev = gpu->card.external_rev,
		.device_id = gpu->card.device_id,
	};
	pthread_mutex_lock(&gpu->lists_lock);
	info.slab_changes = gpu->slab_changes;
	pthread_mutex_unlock(&gpu->lists_lock);
	return vmkv_struct_out(ret, &info, sizeof(info));
}

int vmkv_amdgpu_slabs(vmkv_device *device, uint32_t *handles, size_t n, size_t *ret)
{
	struct vmkv_amdgpu *gpu = amdgpu_if(device);
	size_t count = 0;

	if (!gpu || (!handles && n > 0) || !ret)
		return -EINVAL;
	pthread_mutex_lock(&gpu->lists_lock);
	for (struct amdgpu_slab *slab = gpu->slabs; slab; slab = slab->next, count++)
		if (count < n)
			handles[count] = slab->kms_handle;
	pthread_mutex_unlock(&gpu->lists_lock);
	*ret = count;
	return 0;
}

int vmkv_point_export(vmkv_device *device, uint64_t point, int *fd)
{
	struct vmkv_amdgpu *gpu = amdgpu_if(device);
	int rc, file;

	if (!gpu || !fd)
		return -EINVAL;
	if (vmkv_device_is_lost(device))
		return -ENODEV;
	if (point == 0)
		return vmkv_device_fail(device, -EINVAL,
		                        "point 0 is always reached: no sync file stands for it");
	rc = amdgpu_submit_promised(gpu);
	if (rc)
		return rc;
	if (point > atomic_load(&gpu->submitted))
		return vmkv_device_fail(device, -EINVAL, "point %llu never came from this device",
		                        (unsigned long long)point);
	rc = vmkv_libdrm_result(gpu->drm.amdgpu_cs_syncobj_export_sync_file2(
	    gpu->handle, gpu->syncobj, point, 0, &file));
	if (rc < 0)
		return vmkv_device_fail(device, rc, "the kernel exported no sync file: %s", strerror(-rc));
	*fd = file;
	return 0;
}

int amdgpu_health(struct vmkv_device *device, struct vmkv_device_health *ret)
{
	struct vmkv_amdgpu *gpu = amdgpu_of(device);
	struct drm_amdgpu_info_gpuvm_fault fault = { 0 };
	struct drm_amdgpu_memory_info memory = { 0 };
	uint32_t lost = (uint32_t)gpu->vram_lost_count;

	gpu->drm.amdgpu_query_info(gpu->handle, AMDGPU_INFO_VRAM_LOST_COUNTER, sizeof(lost), &lost);
	gpu->drm.amdgpu_query_info(gpu->handle, AMDGPU_INFO_MEMORY, sizeof(memory), &memory);
	gpu->drm.amdgpu_query_info(gpu->handle, AMDGPU_INFO_NUM_EVICTIONS, sizeof(ret->evictions),
	                           &ret->evictions);
	gpu->drm.amdgpu_query_info(gpu->handle, AMDGPU_INFO_NUM_BYTES_MOVED, sizeof(ret->moved_bytes),
	                           &ret->moved_bytes);
	/* Kernels before DRM 3.55 refuse to tell. */
	gpu->drm.amdgpu_query_info(gpu->handle, AMDGPU_INFO_GPUVM_FAULT, sizeof(fault), &fault);
	ret->fault_address = fault.addr;
	ret->fault_status = fault.status;
	ret->vram_bytes = memory.vram.total_heap_size;
	ret->vram_used_bytes = memory.vram.heap_usage;
	pthread_mutex_lock(&gpu->lists_lock);
	ret->slabs_refused = gpu->spilled;
	for (struct amdgpu_slab *slab = gpu->slabs; slab; slab = slab->next)
		ret->slab_bytes += slab->slab.bytes;
	pthread_mutex_unlock(&gpu->lists_lock);
	if (lost != gpu->vram_lost_count)
		return vmkv_device_fail(device, -ENODEV,
		                        "the card was reset and lost its memory: open it anew");
	return 0;
}
