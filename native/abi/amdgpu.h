/* SPDX-License-Identifier: MIT
 *
 * The kernel's interface to amdgpu, as of Linux 7.2: buffers, address space, contexts, submissions.
 * INFO and its answers are in amdgpu_info.h. Names, numbers and layouts are those of
 * include/uapi/drm/amdgpu_drm.h. An older kernel knows shorter versions of GEM_VA and GEM_OP; their
 * fields have the same places.
 *
 * Don't include it together with libdrm's headers, which define the same names.
 */
#ifndef VMKV_ABI_AMDGPU_H
#define VMKV_ABI_AMDGPU_H

#include "drm.h"

/* ---- GEM_CREATE, GEM_MMAP, GEM_USERPTR ------------------------------------------------------- */

#define AMDGPU_GEM_DOMAIN_CPU 0x1
#define AMDGPU_GEM_DOMAIN_GTT 0x2
#define AMDGPU_GEM_DOMAIN_VRAM 0x4
#define AMDGPU_GEM_DOMAIN_GDS 0x8
#define AMDGPU_GEM_DOMAIN_GWS 0x10
#define AMDGPU_GEM_DOMAIN_OA 0x20
#define AMDGPU_GEM_DOMAIN_DOORBELL 0x40
#define AMDGPU_GEM_DOMAIN_MMIO_REMAP 0x80
/* Without MMIO_REMAP, and on kernels without doorbells without DOORBELL, in older headers. */
#define AMDGPU_GEM_DOMAIN_MASK 0xff

#define AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED (1u << 0)
#define AMDGPU_GEM_CREATE_NO_CPU_ACCESS (1u << 1)
#define AMDGPU_GEM_CREATE_CPU_GTT_USWC (1u << 2)
#define AMDGPU_GEM_CREATE_VRAM_CLEARED (1u << 3)
#define AMDGPU_GEM_CREATE_VRAM_CONTIGUOUS (1u << 5) /* refused from user space */
#define AMDGPU_GEM_CREATE_VM_ALWAYS_VALID (1u << 6)
#define AMDGPU_GEM_CREATE_EXPLICIT_SYNC (1u << 7)
#define AMDGPU_GEM_CREATE_CP_MQD_GFX9 (1u << 8)
#define AMDGPU_GEM_CREATE_VRAM_WIPE_ON_RELEASE (1u << 9)
#define AMDGPU_GEM_CREATE_ENCRYPTED (1u << 10)
#define AMDGPU_GEM_CREATE_PREEMPTIBLE (1u << 11)
#define AMDGPU_GEM_CREATE_DISCARDABLE (1u << 12)
#define AMDGPU_GEM_CREATE_COHERENT (1u << 13)
#define AMDGPU_GEM_CREATE_UNCACHED (1u << 14)
#define AMDGPU_GEM_CREATE_EXT_COHERENT (1u << 15)
#define AMDGPU_GEM_CREATE_GFX12_DCC (1u << 16)

struct drm_amdgpu_gem_create_in {
	uint64_t bo_size;
	uint64_t alignment;
	uint64_t domains;
	uint64_t domain_flags;
};

struct drm_amdgpu_gem_create_out {
	uint32_t handle;
	uint32_t _pad;
};

union drm_amdgpu_gem_create {
	struct drm_amdgpu_gem_create_in in;
	struct drm_amdgpu_gem_create_out out;
};

struct drm_amdgpu_gem_mmap_in {
	uint32_t handle;
	uint32_t _pad;
};

struct drm_amdgpu_gem_mmap_out {
	uint64_t addr_ptr; /* an offset for mmap of the DRM file */
};

union drm_amdgpu_gem_mmap {
	struct drm_amdgpu_gem_mmap_in in;
	struct drm_amdgpu_gem_mmap_out out;
};

#define AMDGPU_GEM_USERPTR_READONLY (1u << 0)
#define AMDGPU_GEM_USERPTR_ANONONLY (1u << 1)
#define AMDGPU_GEM_USERPTR_VALIDATE (1u << 2)
#define AMDGPU_GEM_USERPTR_REGISTER (1u << 3)

struct drm_amdgpu_gem_userptr {
	uint64_t addr;
	uint64_t size;
	uint32_t flags;
	uint32_t handle; /* out */
};

/* ---- GEM_METADATA, GEM_WAIT_IDLE, GEM_OP, GEM_LIST_HANDLES ----------------------------------- */

#define AMDGPU_GEM_METADATA_OP_SET_METADATA 1
#define AMDGPU_GEM_METADATA_OP_GET_METADATA 2

struct drm_amdgpu_gem_metadata {
	uint32_t handle;
	uint32_t op;
	struct {
		uint64_t flags;
		uint64_t tiling_info;
		uint32_t data_size_bytes;
		uint32_t data[64];
	} data;
};

struct drm_amdgpu_gem_wait_idle_in {
	uint32_t handle;
	uint32_t flags;
	uint64_t timeout; /* absolute ns, CLOCK_MONOTONIC */
};

struct drm_amdgpu_gem_wait_idle_out {
	uint32_t status; /* 1: still busy */
	uint32_t domain;
};

union drm_amdgpu_gem_wait_idle {
	struct drm_amdgpu_gem_wait_idle_in in;
	struct drm_amdgpu_gem_wait_idle_out out;
};

#define AMDGPU_GEM_OP_GET_GEM_CREATE_INFO 0
#define AMDGPU_GEM_OP_SET_PLACEMENT 1
#define AMDGPU_GEM_OP_GET_MAPPING_INFO 2 /* 7.2 */

struct drm_amdgpu_gem_vm_entry {
	uint64_t addr;
	uint64_t size;
	uint64_t offset;
	uint64_t flags;
};

struct drm_amdgpu_gem_op {
	uint32_t handle;
	uint32_t op;
	uint64_t value; /* a number, or a pointer to drm_amdgpu_gem_create_in or ..._vm_entry */
	/* 7.2: room for entries, then how many there are. */
	uint32_t num_entries;
	uint32_t padding;
};

#define AMDGPU_GEM_LIST_HANDLES_FLAG_IS_IMPORT (1u << 0)

struct drm_amdgpu_gem_list_handles {
	uint64_t entries; /* pointer to drm_amdgpu_gem_list_handles_entry */
	uint32_t num_entries;
	uint32_t padding;
};

struct drm_amdgpu_gem_list_handles_entry {
	uint32_t gem_handle;
	uint32_t flags;
	uint64_t size;
	uint64_t preferred_domains;
	uint64_t alloc_flags;
	uint64_t alignment;
};

/* ---- GEM_VA, VM ------------------------------------------------------------------------------ */

#define AMDGPU_VA_OP_MAP 1
#define AMDGPU_VA_OP_UNMAP 2
#define AMDGPU_VA_OP_CLEAR 3
#define AMDGPU_VA_OP_REPLACE 4

#define AMDGPU_VM_DELAY_UPDATE (1u << 0)
#define AMDGPU_VM_PAGE_READABLE (1u << 1)
#define AMDGPU_VM_PAGE_WRITEABLE (1u << 2)
#define AMDGPU_VM_PAGE_EXECUTABLE (1u << 3)
#define AMDGPU_VM_PAGE_PRT (1u << 4)
#define AMDGPU_VM_MTYPE_MASK (0xfu << 5)
#define AMDGPU_VM_MTYPE_DEFAULT (0u << 5)
#define AMDGPU_VM_MTYPE_NC (1u << 5)
#define AMDGPU_VM_MTYPE_WC (2u << 5)
#define AMDGPU_VM_MTYPE_CC (3u << 5)
#define AMDGPU_VM_MTYPE_UC (4u << 5)
#define AMDGPU_VM_MTYPE_RW (5u << 5)
#define AMDGPU_VM_PAGE_NOALLOC (1u << 9)

struct drm_amdgpu_gem_va {
	uint32_t handle;
	uint32_t _pad;
	uint32_t operation;
	uint32_t flags;
	uint64_t va_address;
	uint64_t offset_in_bo;
	uint64_t map_size;
	/* From DRM 3.64 (Linux 7.2) on; 40 bytes before. */
	uint64_t vm_timeline_point;
	uint32_t vm_timeline_syncobj_out;
	uint32_t num_syncobj_handles;
	uint64_t input_fence_syncobj_handles; /* pointer to uint32_t */
};

#define AMDGPU_VM_OP_RESERVE_VMID 1
#define AMDGPU_VM_OP_UNRESERVE_VMID 2

struct drm_amdgpu_vm_in {
	uint32_t op;
	uint32_t flags;
};

struct drm_amdgpu_vm_out {
	uint64_t flags;
};

union drm_amdgpu_vm {
	struct drm_amdgpu_vm_in in;
	struct drm_amdgpu_vm_out out;
};

/* ---- BO_LIST, CTX, SCHED --------------------------------------------------------------------- */

#define AMDGPU_BO_LIST_OP_CREATE 0
#define AMDGPU_BO_LIST_OP_DESTROY 1
#define AMDGPU_BO_LIST_OP_UPDATE 2

struct drm_amdgpu_bo_list_in {
	uint32_t operation; /* UINT32_MAX in a BO_HANDLES chunk */
	uint32_t list_handle;
	uint32_t bo_number;
	uint32_t bo_info_size;
	uint64_t bo_info_ptr; /* pointer to drm_amdgpu_bo_list_entry */
};

struct drm_amdgpu_bo_list_entry {
	uint32_t bo_handle;
	uint32_t bo_priority;
};

struct drm_amdgpu_bo_list_out {
	uint32_t list_handle;
	uint32_t _pad;
};

union drm_amdgpu_bo_list {
	struct drm_amdgpu_bo_list_in in;
	struct drm_amdgpu_bo_list_out out;
};

#define AMDGPU_CTX_OP_ALLOC_CTX 1
#define AMDGPU_CTX_OP_FREE_CTX 2
#define AMDGPU_CTX_OP_QUERY_STATE 3
#define AMDGPU_CTX_OP_QUERY_STATE2 4
#define AMDGPU_CTX_OP_GET_STABLE_PSTATE 5
#define AMDGPU_CTX_OP_SET_STABLE_PSTATE 6

#define AMDGPU_CTX_NO_RESET 0
#define AMDGPU_CTX_GUILTY_RESET 1
#define AMDGPU_CTX_INNOCENT_RESET 2
#define AMDGPU_CTX_UNKNOWN_RESET 3

#define AMDGPU_CTX_QUERY2_FLAGS_RESET (1u << 0)
#define AMDGPU_CTX_QUERY2_FLAGS_VRAMLOST (1u << 1)
#define AMDGPU_CTX_QUERY2_FLAGS_GUILTY (1u << 2)
#define AMDGPU_CTX_QUERY2_FLAGS_RAS_CE (1u << 3)
#define AMDGPU_CTX_QUERY2_FLAGS_RAS_UE (1u << 4)
#define AMDGPU_CTX_QUERY2_FLAGS_RESET_IN_PROGRESS (1u << 5)

#define AMDGPU_CTX_PRIORITY_UNSET (-2048)
#define AMDGPU_CTX_PRIORITY_VERY_LOW (-1023)
#define AMDGPU_CTX_PRIORITY_LOW (-512)
#define AMDGPU_CTX_PRIORITY_NORMAL 0
#define AMDGPU_CTX_PRIORITY_HIGH 512
#define AMDGPU_CTX_PRIORITY_VERY_HIGH 1023

#define AMDGPU_CTX_STABLE_PSTATE_FLAGS_MASK 0xf
#define AMDGPU_CTX_STABLE_PSTATE_NONE 0
#define AMDGPU_CTX_STABLE_PSTATE_STANDARD 1
#define AMDGPU_CTX_STABLE_PSTATE_MIN_SCLK 2
#define AMDGPU_CTX_STABLE_PSTATE_MIN_MCLK 3
#define AMDGPU_CTX_STABLE_PSTATE_PEAK 4

struct drm_amdgpu_ctx_in {
	uint32_t op;
	uint32_t flags;
	uint32_t ctx_id;
	int32_t priority;
};

union drm_amdgpu_ctx_out {
	struct {
		uint32_t ctx_id;
		uint32_t _pad;
	} alloc;
	struct {
		uint64_t flags; /* AMDGPU_CTX_QUERY2_FLAGS_* */
		uint32_t hangs;
		uint32_t reset_status;
	} state;
	struct {
		uint32_t flags;
		uint32_t _pad;
	} pstate;
};

union drm_amdgpu_ctx {
	struct drm_amdgpu_ctx_in in;
	union drm_amdgpu_ctx_out out;
};

#define AMDGPU_SCHED_OP_PROCESS_PRIORITY_OVERRIDE 1
#define AMDGPU_SCHED_OP_CONTEXT_PRIORITY_OVERRIDE 2

struct drm_amdgpu_sched_in {
	uint32_t op;
	uint32_t fd;
	int32_t priority;
	uint32_t ctx_id;
};

union drm_amdgpu_sched {
	struct drm_amdgpu_sched_in in;
};

/* ---- CS -------------------------------------------------------------------------------------- */

#define AMDGPU_HW_IP_GFX 0
#define AMDGPU_HW_IP_COMPUTE 1
#define AMDGPU_HW_IP_DMA 2
#define AMDGPU_HW_IP_UVD 3
#define AMDGPU_HW_IP_VCE 4
#define AMDGPU_HW_IP_UVD_ENC 5
#define AMDGPU_HW_IP_VCN_DEC 6
#define AMDGPU_HW_IP_VCN_ENC 7
#define AMDGPU_HW_IP_VCN_JPEG 8
#define AMDGPU_HW_IP_VPE 9
#define AMDGPU_HW_IP_NUM 10
#define AMDGPU_HW_IP_INSTANCE_MAX_COUNT 1

#define AMDGPU_CHUNK_ID_IB 0x01
#define AMDGPU_CHUNK_ID_FENCE 0x02
#define AMDGPU_CHUNK_ID_DEPENDENCIES 0x03
#define AMDGPU_CHUNK_ID_SYNCOBJ_IN 0x04
#define AMDGPU_CHUNK_ID_SYNCOBJ_OUT 0x05
#define AMDGPU_CHUNK_ID_BO_HANDLES 0x06
#define AMDGPU_CHUNK_ID_SCHEDULED_DEPENDENCIES 0x07
#define AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT 0x08
#define AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL 0x09
#define AMDGPU_CHUNK_ID_CP_GFX_SHADOW 0x0a

struct drm_amdgpu_cs_chunk {
	uint32_t chunk_id;
	uint32_t length_dw;
	uint64_t chunk_data; /* pointer */
};

struct drm_amdgpu_cs_in {
	uint32_t ctx_id;
	uint32_t bo_list_handle;
	uint32_t num_chunks;
	uint32_t flags;
	uint64_t chunks; /* pointer to uint64_t, each a pointer to drm_amdgpu_cs_chunk */
};

struct drm_amdgpu_cs_out {
	uint64_t handle;
};

union drm_amdgpu_cs {
	struct drm_amdgpu_cs_in in;
	struct drm_amdgpu_cs_out out;
};

#define AMDGPU_IB_FLAG_CE (1u << 0)
#define AMDGPU_IB_FLAG_PREAMBLE (1u << 1)
#define AMDGPU_IB_FLAG_PREEMPT (1u << 2)
#define AMDGPU_IB_FLAG_TC_WB_NOT_INVALIDATE (1u << 3)
#define AMDGPU_IB_FLAG_RESET_GDS_MAX_WAVE_ID (1u << 4)
#define AMDGPU_IB_FLAGS_SECURE (1u << 5)
#define AMDGPU_IB_FLAG_EMIT_MEM_SYNC (1u << 6)

struct drm_amdgpu_cs_chunk_ib {
	uint32_t _pad;
	uint32_t flags;
	uint64_t va_start;
	uint32_t ib_bytes;
	uint32_t ip_type;
	uint32_t ip_instance;
	uint32_t ring;
};

struct drm_amdgpu_cs_chunk_dep {
	uint32_t ip_type;
	uint32_t ip_instance;
	uint32_t ring;
	uint32_t ctx_id;
	uint64_t handle;
};

struct drm_amdgpu_cs_chunk_fence {
	uint32_t handle;
	uint32_t offset;
};

struct drm_amdgpu_cs_chunk_sem {
	uint32_t handle;
};

struct drm_amdgpu_cs_chunk_syncobj {
	uint32_t handle;
	uint32_t flags;
	uint64_t point;
};

struct drm_amdgpu_cs_chunk_cp_gfx_shadow {
	uint64_t shadow_va;
	uint64_t csa_va;
	uint64_t gds_va;
	uint64_t flags;
};

/* ---- WAIT_CS, WAIT_FENCES, FENCE_TO_HANDLE --------------------------------------------------- */

struct drm_amdgpu_wait_cs_in {
	uint64_t handle;  /* 0: nothing to wait for; UINT64_MAX: the last */
	uint64_t timeout; /* absolute ns, CLOCK_MONOTONIC */
	uint32_t ip_type;
	uint32_t ip_instance;
	uint32_t ring;
	uint32_t ctx_id;
};

struct drm_amdgpu_wait_cs_out {
	uint64_t status; /* 1: still busy */
};

union drm_amdgpu_wait_cs {
	struct drm_amdgpu_wait_cs_in in;
	struct drm_amdgpu_wait_cs_out out;
};

struct drm_amdgpu_fence {
	uint32_t ctx_id;
	uint32_t ip_type;
	uint32_t ip_instance;
	uint32_t ring;
	uint64_t seq_no;
};

struct drm_amdgpu_wait_fences_in {
	uint64_t fences; /* pointer to drm_amdgpu_fence */
	uint32_t fence_count;
	uint32_t wait_all;
	uint64_t timeout_ns;
};

struct drm_amdgpu_wait_fences_out {
	uint32_t status; /* 1: signalled */
	uint32_t first_signaled;
};

union drm_amdgpu_wait_fences {
	struct drm_amdgpu_wait_fences_in in;
	struct drm_amdgpu_wait_fences_out out;
};

#define AMDGPU_FENCE_TO_HANDLE_GET_SYNCOBJ 0
#define AMDGPU_FENCE_TO_HANDLE_GET_SYNCOBJ_FD 1
#define AMDGPU_FENCE_TO_HANDLE_GET_SYNC_FILE_FD 2

union drm_amdgpu_fence_to_handle {
	struct {
		struct drm_amdgpu_fence fence;
		uint32_t what;
		uint32_t pad;
	} in;
	struct {
		uint32_t handle;
	} out;
};

#include "amdgpu_info.h"
#include "amdgpu_ioctl.h"

#endif
