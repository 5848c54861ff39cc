/* SPDX-License-Identifier: MIT
 *
 * The numbers of amdgpu's ioctls, and the sizes of their arguments as of Linux 7.2.
 * Include amdgpu.h.
 */
#ifndef VMKV_ABI_AMDGPU_IOCTL_H
#define VMKV_ABI_AMDGPU_IOCTL_H

#define DRM_AMDGPU_GEM_CREATE 0x00
#define DRM_AMDGPU_GEM_MMAP 0x01
#define DRM_AMDGPU_CTX 0x02
#define DRM_AMDGPU_BO_LIST 0x03
#define DRM_AMDGPU_CS 0x04
#define DRM_AMDGPU_INFO 0x05
#define DRM_AMDGPU_GEM_METADATA 0x06
#define DRM_AMDGPU_GEM_WAIT_IDLE 0x07
#define DRM_AMDGPU_GEM_VA 0x08
#define DRM_AMDGPU_WAIT_CS 0x09
#define DRM_AMDGPU_GEM_OP 0x10
#define DRM_AMDGPU_GEM_USERPTR 0x11
#define DRM_AMDGPU_WAIT_FENCES 0x12
#define DRM_AMDGPU_VM 0x13
#define DRM_AMDGPU_FENCE_TO_HANDLE 0x14
#define DRM_AMDGPU_SCHED 0x15
#define DRM_AMDGPU_USERQ 0x16
#define DRM_AMDGPU_USERQ_SIGNAL 0x17
#define DRM_AMDGPU_USERQ_WAIT 0x18
#define DRM_AMDGPU_GEM_LIST_HANDLES 0x19 /* 7.2 */

#define DRM_AMDGPU_IOWR(nr, type) DRM_IOWR(DRM_COMMAND_BASE + (nr), type)
#define DRM_AMDGPU_IOW(nr, type) DRM_IOW(DRM_COMMAND_BASE + (nr), type)

#define DRM_IOCTL_AMDGPU_GEM_CREATE                                                                \
	DRM_AMDGPU_IOWR(DRM_AMDGPU_GEM_CREATE, union drm_amdgpu_gem_create)
#define DRM_IOCTL_AMDGPU_GEM_MMAP DRM_AMDGPU_IOWR(DRM_AMDGPU_GEM_MMAP, union drm_amdgpu_gem_mmap)
#define DRM_IOCTL_AMDGPU_CTX DRM_AMDGPU_IOWR(DRM_AMDGPU_CTX, union drm_amdgpu_ctx)
#define DRM_IOCTL_AMDGPU_BO_LIST DRM_AMDGPU_IOWR(DRM_AMDGPU_BO_LIST, union drm_amdgpu_bo_list)
#define DRM_IOCTL_AMDGPU_CS DRM_AMDGPU_IOWR(DRM_AMDGPU_CS, union drm_amdgpu_cs)
#define DRM_IOCTL_AMDGPU_INFO DRM_AMDGPU_IOW(DRM_AMDGPU_INFO, struct drm_amdgpu_info)
#define DRM_IOCTL_AMDGPU_GEM_METADATA                                                              \
	DRM_AMDGPU_IOWR(DRM_AMDGPU_GEM_METADATA, struct drm_amdgpu_gem_metadata)
#define DRM_IOCTL_AMDGPU_GEM_WAIT_IDLE                                                             \
	DRM_AMDGPU_IOWR(DRM_AMDGPU_GEM_WAIT_IDLE, union drm_amdgpu_gem_wait_idle)
#define DRM_IOCTL_AMDGPU_GEM_VA DRM_AMDGPU_IOW(DRM_AMDGPU_GEM_VA, struct drm_amdgpu_gem_va)
#define DRM_IOCTL_AMDGPU_WAIT_CS DRM_AMDGPU_IOWR(DRM_AMDGPU_WAIT_CS, union drm_amdgpu_wait_cs)
#define DRM_IOCTL_AMDGPU_GEM_OP DRM_AMDGPU_IOWR(DRM_AMDGPU_GEM_OP, struct drm_amdgpu_gem_op)
#define DRM_IOCTL_AMDGPU_GEM_USERPTR                                                               \
	DRM_AMDGPU_IOWR(DRM_AMDGPU_GEM_USERPTR, struct drm_amdgpu_gem_userptr)
#define DRM_IOCTL_AMDGPU_WAIT_FENCES                                                               \
	DRM_AMDGPU_IOWR(DRM_AMDGPU_WAIT_FENCES, union drm_amdgpu_wait_fences)
#define DRM_IOCTL_AMDGPU_VM DRM_AMDGPU_IOWR(DRM_AMDGPU_VM, union drm_amdgpu_vm)
#define DRM_IOCTL_AMDGPU_FENCE_TO_HANDLE                                                           \
	DRM_AMDGPU_IOWR(DRM_AMDGPU_FENCE_TO_HANDLE, union drm_amdgpu_fence_to_handle)
#define DRM_IOCTL_AMDGPU_SCHED DRM_AMDGPU_IOW(DRM_AMDGPU_SCHED, union drm_amdgpu_sched)
#define DRM_IOCTL_AMDGPU_GEM_LIST_HANDLES                                                          \
	DRM_AMDGPU_IOWR(DRM_AMDGPU_GEM_LIST_HANDLES, struct drm_amdgpu_gem_list_handles)

_Static_assert(sizeof(union drm_amdgpu_gem_create) == 32, "drm_amdgpu_gem_create");
_Static_assert(sizeof(union drm_amdgpu_gem_mmap) == 8, "drm_amdgpu_gem_mmap");
_Static_assert(sizeof(struct drm_amdgpu_gem_userptr) == 24, "drm_amdgpu_gem_userptr");
_Static_assert(sizeof(struct drm_amdgpu_gem_metadata) == 288, "drm_amdgpu_gem_metadata");
_Static_assert(sizeof(union drm_amdgpu_gem_wait_idle) == 16, "drm_amdgpu_gem_wait_idle");
_Static_assert(sizeof(struct drm_amdgpu_gem_vm_entry) == 32, "drm_amdgpu_gem_vm_entry");
_Static_assert(sizeof(struct drm_amdgpu_gem_op) == 24, "drm_amdgpu_gem_op");
_Static_assert(sizeof(struct drm_amdgpu_gem_list_handles) == 16, "drm_amdgpu_gem_list_handles");
_Static_assert(sizeof(struct drm_amdgpu_gem_list_handles_entry) == 40, "..._list_handles_entry");
_Static_assert(sizeof(struct drm_amdgpu_gem_va) == 64, "drm_amdgpu_gem_va");
_Static_assert(sizeof(union drm_amdgpu_vm) == 8, "drm_amdgpu_vm");
_Static_assert(sizeof(union drm_amdgpu_bo_list) == 24, "drm_amdgpu_bo_list");
_Static_assert(sizeof(struct drm_amdgpu_bo_list_entry) == 8, "drm_amdgpu_bo_list_entry");
_Static_assert(sizeof(union drm_amdgpu_ctx) == 16, "drm_amdgpu_ctx");
_Static_assert(sizeof(union drm_amdgpu_sched) == 16, "drm_amdgpu_sched");
_Static_assert(sizeof(struct drm_amdgpu_cs_chunk) == 16, "drm_amdgpu_cs_chunk");
_Static_assert(sizeof(union drm_amdgpu_cs) == 24, "drm_amdgpu_cs");
_Static_assert(sizeof(struct drm_amdgpu_cs_chunk_ib) == 32, "drm_amdgpu_cs_chunk_ib");
_Static_assert(sizeof(struct drm_amdgpu_cs_chunk_dep) == 24, "drm_amdgpu_cs_chunk_dep");
_Static_assert(sizeof(struct drm_amdgpu_cs_chunk_fence) == 8, "drm_amdgpu_cs_chunk_fence");
_Static_assert(sizeof(struct drm_amdgpu_cs_chunk_syncobj) == 16, "drm_amdgpu_cs_chunk_syncobj");
_Static_assert(sizeof(union drm_amdgpu_wait_cs) == 32, "drm_amdgpu_wait_cs");
_Static_assert(sizeof(struct drm_amdgpu_fence) == 24, "drm_amdgpu_fence");
_Static_assert(sizeof(union drm_amdgpu_wait_fences) == 24, "drm_amdgpu_wait_fences");
_Static_assert(sizeof(union drm_amdgpu_fence_to_handle) == 32, "drm_amdgpu_fence_to_handle");

#endif
