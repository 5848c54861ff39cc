/* SPDX-License-Identifier: MIT
 *
 * libdrm, found at run time: the functions of libdrm_amdgpu.so.1 and libdrm.so.2 that vmkv uses, as
 * a table of pointers. Nothing links to libdrm, and building needs none of its headers.
 *
 * Functions, structs and constants have the names and types that libdrm gave them; where <amdgpu.h>
 * or <xf86drm.h> was included before, theirs are used. What they do is libdrm's to say. Unless
 * noted, a function returns 0 or a negative errno; see vmkv_libdrm_result for the others.
 */
#ifndef VMKV_LIBDRM_H
#define VMKV_LIBDRM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In native/abi/amdgpu.h. */
struct drm_amdgpu_bo_list_entry;
struct drm_amdgpu_cs_chunk;
struct drm_amdgpu_cs_chunk_dep;
struct drm_amdgpu_info_hw_ip;

#ifndef _AMDGPU_H_

typedef struct amdgpu_device *amdgpu_device_handle;
typedef struct amdgpu_context *amdgpu_context_handle;
typedef struct amdgpu_bo *amdgpu_bo_handle;
typedef struct amdgpu_va *amdgpu_va_handle;

enum amdgpu_bo_handle_type {
	amdgpu_bo_handle_type_gem_flink_name = 0,
	amdgpu_bo_handle_type_kms = 1,
	amdgpu_bo_handle_type_dma_buf_fd = 2,
	amdgpu_bo_handle_type_kms_noimport = 3
};

enum amdgpu_gpu_va_range { amdgpu_gpu_va_range_general = 0 };

/* Flags of amdgpu_va_range_alloc. */
enum {
	AMDGPU_VA_RANGE_32_BIT = 0x1,
	AMDGPU_VA_RANGE_HIGH = 0x2,
	AMDGPU_VA_RANGE_REPLAYABLE = 0x4
};

struct amdgpu_bo_alloc_request {
	uint64_t alloc_size;
	uint64_t phys_alignment;
	uint32_t preferred_heap; /* AMDGPU_GEM_DOMAIN_* */
	uint64_t flags;          /* AMDGPU_GEM_CREATE_* */
};

struct amdgpu_bo_metadata {
	uint64_t flags;
	uint64_t tiling_info;
	uint32_t size_metadata; /* bytes of umd_metadata that count */
	uint32_t umd_metadata[64];
};

struct amdgpu_bo_info {
	uint64_t alloc_size;
	uint64_t phys_alignment;
	uint32_t preferred_heap;
	uint64_t alloc_flags;
	struct amdgpu_bo_metadata metadata;
};

struct amdgpu_bo_import_result {
	amdgpu_bo_handle buf_handle;
	uint64_t alloc_size;
};

struct amdgpu_cs_fence {
	amdgpu_context_handle context;
	uint32_t ip_type;
	uint32_t ip_instance;
	uint32_t ring;
	uint64_t fence;
};

struct amdgpu_heap_info {
	uint64_t heap_size;
	uint64_t heap_usage;
	uint64_t max_allocation;
};

#endif

#ifndef _XF86DRM_H_

typedef struct _drmVersion {
	int version_major;
	int version_minor;
	int version_patchlevel;
	int name_len;
	char *name;
	int date_len;
	char *date;
	int desc_len;
	char *desc;
} drmVersion, *drmVersionPtr;

#endif

/* Since 2.4.121; older headers lack its name. */
struct amdgpu_va_manager;

struct vmkv_libdrm {
	void *amdgpu_library; /* from dlopen */
	void *drm_library;

	/* The device. One card gives one handle, counted, but for initialize2(fd, false). */
	int (*amdgpu_device_initialize)(int fd, uint32_t *major, uint32_t *minor,
	                                amdgpu_device_handle *device);
	int (*amdgpu_device_deinitialize)(amdgpu_device_handle device);
	int (*amdgpu_device_get_fd)(amdgpu_device_handle device); /* it stays libdrm's */
	const char *(*amdgpu_get_marketing_name)(amdgpu_device_handle device);
	int (*amdgpu_query_info)(amdgpu_device_handle device, unsigned query, unsigned size,
	                         void *value);
	int (*amdgpu_query_heap_info)(amdgpu_device_handle device, uint32_t heap, uint32_t flags,
	                              struct amdgpu_heap_info *info);
	int (*amdgpu_query_hw_ip_count)(amdgpu_device_handle device, unsigned type,
	                                uint32_t *count);
	int (*amdgpu_query_hw_ip_info)(amdgpu_device_handle device, unsigned type,
	                               unsigned instance, struct drm_amdgpu_info_hw_ip *info);
	int (*amdgpu_read_mm_registers)(amdgpu_device_handle device, unsigned dword_offset,
	                                unsigned count, uint32_t instance, uint32_t flags,
	                                uint32_t *values);
	int (*amdgpu_vm_reserve_vmid)(amdgpu_device_handle device, uint32_t flags);
	int (*amdgpu_vm_unreserve_vmid)(amdgpu_device_handle device, uint32_t flags);

	/* Buffers. */
	int (*amdgpu_bo_alloc)(amdgpu_device_handle device, struct amdgpu_bo_alloc_request *request,
	                       amdgpu_bo_handle *buffer);
	int (*amdgpu_bo_free)(amdgpu_bo_handle buffer);
	int (*amdgpu_bo_export)(amdgpu_bo_handle buffer, enum amdgpu_bo_handle_type type,
	                        uint32_t *shared);
	int (*amdgpu_bo_import)(amdgpu_device_handle device, enum amdgpu_bo_handle_type type,
	                        uint32_t shared, struct amdgpu_bo_import_result *result);
	int (*amdgpu_bo_cpu_map)(amdgpu_bo_handle buffer, void **address);
	int (*amdgpu_bo_cpu_unmap)(amdgpu_bo_handle buffer);
	int (*amdgpu_bo_wait_for_idle)(amdgpu_bo_handle buffer, uint64_t timeout_ns, bool *busy);
	int (*amdgpu_bo_query_info)(amdgpu_bo_handle buffer, struct amdgpu_bo_info *info);
	int (*amdgpu_bo_set_metadata)(amdgpu_bo_handle buffer, struct amdgpu_bo_metadata *metadata);
	int (*amdgpu_bo_list_create_raw)(amdgpu_device_handle device, uint32_t count,
	                                 struct drm_amdgpu_bo_list_entry *entries, uint32_t *list);
	int (*amdgpu_bo_list_destroy_raw)(amdgpu_device_handle device, uint32_t list);

	/* Addresses. va_op_raw takes no buffer (NULL) for CLEAR and PRT. */
	int (*amdgpu_va_range_query)(amdgpu_device_handle device, enum amdgpu_gpu_va_range type,
	                             uint64_t *start, uint64_t *end);
	int (*amdgpu_va_range_alloc)(amdgpu_device_handle device, enum amdgpu_gpu_va_range type,
	                             uint64_t size, uint64_t alignment, uint64_t required,
	                             uint64_t *address, amdgpu_va_handle *range, uint64_t flags);
	int (*amdgpu_va_range_free)(amdgpu_va_handle range);
	int (*amdgpu_bo_va_op_raw)(amdgpu_device_handle device, amdgpu_bo_handle buffer,
	                           uint64_t offset, uint64_t size, uint64_t address, uint64_t flags,
	                           uint32_t operation);

	/* Contexts and submission. */
	int (*amdgpu_cs_ctx_create2)(amdgpu_device_handle device, uint32_t priority,
	                             amdgpu_context_handle *context);
	int (*amdgpu_cs_ctx_free)(amdgpu_context_handle context);
	int (*amdgpu_cs_query_reset_state2)(amdgpu_context_handle context, uint64_t *flags);
	int (*amdgpu_cs_submit_raw2)(amdgpu_device_handle device, amdgpu_context_handle context,
	                             uint32_t list, int count, struct drm_amdgpu_cs_chunk *chunks,
	                             uint64_t *fence);
	int (*amdgpu_cs_query_fence_status)(struct amdgpu_cs_fence *fence, uint64_t timeout_ns,
	                                    uint64_t flags, uint32_t *expired);
	int (*amdgpu_cs_wait_fences)(struct amdgpu_cs_fence *fences, uint32_t count, bool all,
	                             uint64_t timeout_ns, uint32_t *status, uint32_t *first);
	void (*amdgpu_cs_chunk_fence_to_dep)(struct amdgpu_cs_fence *fence,
	                                     struct drm_amdgpu_cs_chunk_dep *dependency);
	int (*amdgpu_cs_fence_to_handle)(amdgpu_device_handle device, struct amdgpu_cs_fence *fence,
	                                 uint32_t what, uint32_t *handle);

	/* Syncobjs. Timeouts of waits are absolute, in ns of CLOCK_MONOTONIC. All of these can also
	 * return -1 with the error in errno. */
	int (*amdgpu_cs_create_syncobj2)(amdgpu_device_handle device, uint32_t flags,
	                                 uint32_t *syncobj);
	int (*amdgpu_cs_destroy_syncobj)(amdgpu_device_handle device, uint32_t syncobj);
	int (*amdgpu_cs_syncobj_reset)(amdgpu_device_handle device, const uint32_t *syncobjs,
	                               uint32_t count);
	int (*amdgpu_cs_syncobj_signal)(amdgpu_device_handle device, const uint32_t *syncobjs,
	                                uint32_t count);
	int (*amdgpu_cs_syncobj_timeline_signal)(amdgpu_device_handle device,
	                                         const uint32_t *syncobjs, uint64_t *points,
	                                         uint32_t count);
	int (*amdgpu_cs_syncobj_wait)(amdgpu_device_handle device, uint32_t *syncobjs,
	                              unsigned count, int64_t deadline_ns, unsigned flags,
	                              uint32_t *first);
	int (*amdgpu_cs_syncobj_timeline_wait)(amdgpu_device_handle device, uint32_t *syncobjs,
	                                       uint64_t *points, unsigned count,
	                                       int64_t deadline_ns, unsigned flags,
	                                       uint32_t *first);
	int (*amdgpu_cs_syncobj_query)(amdgpu_device_handle device, uint32_t *syncobjs,
	                               uint64_t *points, unsigned count);
	int (*amdgpu_cs_syncobj_query2)(amdgpu_device_handle device, uint32_t *syncobjs,
	                                uint64_t *points, unsigned count, uint32_t flags);
	int (*amdgpu_cs_export_syncobj)(amdgpu_device_handle device, uint32_t syncobj, int *fd);
	int (*amdgpu_cs_import_syncobj)(amdgpu_device_handle device, int fd, uint32_t *syncobj);
	int (*amdgpu_cs_syncobj_import_sync_file)(amdgpu_device_handle device, uint32_t syncobj,
	                                          int fd);
	int (*amdgpu_cs_syncobj_export_sync_file2)(amdgpu_device_handle device, uint32_t syncobj,
	                                           uint64_t point, uint32_t flags, int *fd);
	int (*amdgpu_cs_syncobj_import_sync_file2)(amdgpu_device_handle device, uint32_t syncobj,
	                                           uint64_t point, int fd);
	int (*amdgpu_cs_syncobj_transfer)(amdgpu_device_handle device, uint32_t to,
	                                  uint64_t to_point, uint32_t from, uint64_t from_point,
	                                  uint32_t flags);

	/* libdrm itself. drmIoctl and drmPrimeFDToHandle return -1 with the error in errno. */
	int (*drmIoctl)(int fd, unsigned long request, void *argument);
	int (*drmCommandWriteRead)(int fd, unsigned long command, void *data, unsigned long bytes);
	drmVersionPtr (*drmGetVersion)(int fd);
	void (*drmFreeVersion)(drmVersionPtr version);
	int (*drmPrimeFDToHandle)(int fd, int prime, uint32_t *handle);

	/* NULL where this libdrm lacks them; vmkv_libdrm_release says which one first had them. */
	int (*amdgpu_device_initialize2)(int fd, bool deduplicate, uint32_t *major, uint32_t *minor,
	                                 amdgpu_device_handle *device);
	int (*amdgpu_query_gpuvm_fault_info)(amdgpu_device_handle device, unsigned size,
	                                     void *value);
	uint64_t (*amdgpu_va_get_start_addr)(amdgpu_va_handle range);
	struct amdgpu_va_manager *(*amdgpu_va_manager_alloc)(void); /* freed with free(3) */
	void (*amdgpu_va_manager_init)(struct amdgpu_va_manager *manager, uint64_t low_start,
	                               uint64_t low_end, uint64_t high_start, uint64_t high_end,
	                               uint32_t alignment);
	void (*amdgpu_va_manager_deinit)(struct amdgpu_va_manager *manager);
	int (*amdgpu_va_range_alloc2)(struct amdgpu_va_manager *manager,
	                              enum amdgpu_gpu_va_range type, uint64_t size,
	                              uint64_t alignment, uint64_t required, uint64_t *address,
	                              amdgpu_va_handle *range, uint64_t flags);
	int (*amdgpu_bo_va_op_raw2)(amdgpu_device_handle device, amdgpu_bo_handle buffer,
	                            uint64_t offset, uint64_t size, uint64_t address,
	                            uint64_t flags, uint32_t operation, uint32_t timeline_syncobj,
	                            uint64_t timeline_point, uint64_t wait_syncobjs,
	                            uint32_t wait_count);
};

/* Load both libraries by their sonames and fill in the table, or write one line to error (which may
 * be NULL). May be called several times; each table is unloaded once.
 * -ENOENT: a library isn't installed. -ENOSYS: a function that must be there is missing. */
int vmkv_libdrm_load(struct vmkv_libdrm *ret, char *error, size_t error_bytes);

/* pre: nothing that came from the table is in use. A table of zeros is fine. */
void vmkv_libdrm_unload(struct vmkv_libdrm *libdrm);

/* The first release of libdrm that has a function; NULL: not one of the table. */
const char *vmkv_libdrm_release(const char *function);

/* What a function's return value says, as 0 or more, or a negative errno: -1 stands for errno,
 * which libdrm left as the ioctl set it. */
int vmkv_libdrm_result(int value);

/* Whether a device handle that somebody else made is one of this libdrm: a second copy in the
 * process (engines bring theirs along) has devices, and so address spaces, of its own. With one
 * copy it always is; with several, if this one gives the same handle for the handle's descriptor.
 * 0, or -EXDEV: it may not be. -EBADF: it has no descriptor of a DRM device. */
int vmkv_libdrm_check_device(const struct vmkv_libdrm *libdrm, amdgpu_device_handle device);

#endif
