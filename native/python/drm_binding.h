/* SPDX-License-Identifier: MIT
 *
 * What vmkv.drm needs besides libdrm's own functions: things that Python owns, and destroys when it
 * collects them, have to be pointers, and their destructors may run no Python code.
 */
#ifndef VMKV_DRM_BINDING_H
#define VMKV_DRM_BINDING_H

#include <stdint.h>

#include "libdrm.h"

/* Something that libdrm tells by a number on a device: a syncobj or a list of buffers. */
struct vmkv_drm_id {
	amdgpu_device_handle device;
	int (*destroy)(amdgpu_device_handle device, uint32_t id);
	uint32_t id; /* 0: nothing yet */
};

/* -ENOMEM. Whoever gets a number from libdrm then stores it in ->id. */
int vmkv_drm_id_create(amdgpu_device_handle device,
                       int (*destroy)(amdgpu_device_handle device, uint32_t id),
                       struct vmkv_drm_id **ret);
/* 0, or what libdrm returned as a negative errno; then it stays as it was. */
int vmkv_drm_id_destroy(struct vmkv_drm_id *id);

/* The end of a view of a buffer, made by amdgpu_bo_cpu_map, at that address. */
int vmkv_drm_view_end(const struct vmkv_libdrm *libdrm, amdgpu_bo_handle buffer, void *address);

/* The end of a device that somebody else owns: nothing. Returns 0. */
int vmkv_drm_device_leave(amdgpu_device_handle device);

#endif
