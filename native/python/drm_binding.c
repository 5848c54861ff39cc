/* SPDX-License-Identifier: MIT
 *
 * What vmkv.drm needs besides libdrm's own functions.
 */
#include <errno.h>
#include <stdlib.h>

#include "drm_binding.h"

int vmkv_drm_id_create(amdgpu_device_handle device,
                       int (*destroy)(amdgpu_device_handle device, uint32_t id),
                       struct vmkv_drm_id **ret)
{
	struct vmkv_drm_id *id = malloc(sizeof(*id));

	if (!id)
		return -ENOMEM;
	id->device = device;
	id->destroy = destroy;
	id->id = 0;
	*ret = id;
	return 0;
}

int vmkv_drm_id_destroy(struct vmkv_drm_id *id)
{
	int ret = id->id ? vmkv_libdrm_result(id->destroy(id->device, id->id)) : 0;

	if (ret)
		return ret;
	free(id);
	return 0;
}

int vmkv_drm_view_end(const struct vmkv_libdrm *libdrm, amdgpu_bo_handle buffer, void *address)
{
	(void)address; /* libdrm maps a buffer once, and counts */
	return libdrm->amdgpu_bo_cpu_unmap(buffer);
}

int vmkv_drm_device_leave(amdgpu_device_handle device)
{
	(void)device;
	return 0;
}
