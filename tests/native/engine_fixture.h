/* SPDX-License-Identifier: MIT
 *
 * An engine on an emulated card: it has libdrm, a device, a context and a buffer of its own before vmkv
 * comes, and submits to the SDMA ring itself.
 */
#ifndef ENGINE_FIXTURE_H
#define ENGINE_FIXTURE_H

#include <dlfcn.h>
#include <unistd.h>

#include "abi/amdgpu.h"
#include "abi/drm.h"
#include "cache_fixture.h"
#include "emulator/vmkv_emulator.h"
#include "libdrm.h"

/* Of the engine's buffer: packets at its beginning, data behind. In words, and in bytes. */
#define ENGINE_DATA 1024
#define ENGINE_DATA_BYTES (4 * ENGINE_DATA)
#define ENGINE_BYTES (64 * KIB)

struct engine {
	vmkv_emulator *emulator;
	struct vmkv_libdrm drm;
	int fd; /* libdrm's */
	amdgpu_device_handle handle;
	amdgpu_context_handle context;
	amdgpu_bo_handle buffer;
	amdgpu_va_handle range;
	uint32_t buffer_handle;
	uint64_t address;
	uint32_t *words;
	uint32_t dwords; /* of packets */
};

/* What a submission asks for besides running the packets. */
struct engine_wants {
	const uint32_t *handles; /* of buffers that it lists */
	size_t handle_count;
	uint32_t wait;       /* a syncobj to wait for; 0: none */
	uint64_t wait_point; /* of it as a timeline; 0: it is binary */
};

static inline void engine_begin_context(struct engine *e)
{
	if (e->context)
		CHECK_EQ(e->drm.amdgpu_cs_ctx_free(e->context), 0);
	CHECK_EQ(e->drm.amdgpu_cs_ctx_create2(e->handle, AMDGPU_CTX_PRIORITY_NORMAL, &e->context), 0);
}

static inline void engine_buffer_create(struct engine *e)
{
	struct amdgpu_bo_alloc_request request = {
		.alloc_size = ENGINE_BYTES,
		.preferred_heap = AMDGPU_GEM_DOMAIN_GTT,
		.flags = AMDGPU_GEM_CREATE_VM_ALWAYS_VALID,
	};
	void *view;

	CHECK_EQ(e->drm.amdgpu_bo_alloc(e->handle, &request, &e->buffer), 0);
	CHECK_EQ(e->drm.amdgpu_bo_export(e->buffer, amdgpu_bo_handle_type_kms, &e->buffer_handle), 0);
	CHECK_EQ(e->drm.amdgpu_bo_cpu_map(e->buffer, &view), 0);
	CHECK_EQ(e->drm.amdgpu_va_range_alloc(e->handle, amdgpu_gpu_va_range_general, ENGINE_BYTES,
	                                      4096, 0, &e->address, &e->range, 0),
	         0);
	CHECK_EQ(e->drm.amdgpu_bo_va_op_raw(e->handle, e->buffer, 0, ENGINE_BYTES, e->address,
	                                    AMDGPU_VM_PAGE_READABLE | AMDGPU_VM_PAGE_WRITEABLE |
	                                        AMDGPU_VM_PAGE_EXECUTABLE,
	                                    AMDGPU_VA_OP_MAP),
	         0);
	e->words = view;
	memset(e->words, 0, ENGINE_BYTES);
}

static inline void engine_begin(struct engine *e, const char *spec)
{
	char error[256] = "";
	uint32_t major, minor;
	int fd;

	memset(e, 0, sizeof(*e));
	CHECK_EQ(vmkv_libdrm_load(&e->drm, error, sizeof(error)), 0);
	if (vmkv_emulator_create(spec, error, sizeof(error), &e->emulator))
		CHECK_FAIL("%s: %s", spec, error);
	CHECK_EQ(vmkv_emulator_attach(), 0);
	CHECK_EQ(vmkv_emulator_open(e->emulator, &fd), 0);
	CHECK_EQ(e->drm.amdgpu_device_initialize(fd, &major, &minor, &e->handle), 0);
	e->fd = e->drm.amdgpu_device_get_fd(e->handle);
	close(fd); /* libdrm has a duplicate */
	engine_begin_context(e);
	engine_buffer_create(e);
}

static inline void engine_end(struct engine *e)
{
	int fd = dup(e->fd);

	CHECK_EQ(e->drm.amdgpu_cs_ctx_free(e->context), 0);
	CHECK_EQ(e->drm.amdgpu_bo_cpu_unmap(e->buffer), 0);
	CHECK_EQ(e->drm.amdgpu_bo_free(e->buffer), 0);
	CHECK_EQ(e->drm.amdgpu_va_range_free(e->range), 0);
	CHECK_EQ(e->drm.amdgpu_device_deinitialize(e->handle), 0);
	CHECK_EQ(vmkv_emulator_close(fd), 0);
	vmkv_emulator_destroy(e->emulator);
	vmkv_libdrm_unload(&e->drm);
}

/* vmkv on the engine's device. */
static inline vmkv_device *engine_adopted(struct engine *e, const char *name)
{
	char error[256] = "";
	struct vmkv_device_options options = {
		.struct_size = sizeof(options), .name = name, .error = error,
		.error_bytes = sizeof(error), .adopt = VMKV_ADOPT_AMDGPU, .amdgpu_device = e->handle,
	};
	vmkv_device *device = NULL;

	if (vmkv_device_open(&options, &device))
		CHECK_FAIL("%s: %s", name, error);
	return device;
}

/* ---- submissions ------------------------------------------------------------------------------- */

/* The next packet: a copy between addresses. */
static inline void engine_copy(struct engine *e, uint64_t to, uint64_t from, uint32_t bytes)
{
	const uint32_t packet[7] = { 1, bytes - 1, 0, (uint32_t)from, (uint32_t)(from >> 32),
		                     (uint32_t)to, (uint32_t)(to >> 32) };

	memcpy(e->words + e->dwords, packet, sizeof(packet));
	e->dwords += 7;
}

static inline uint64_t engine_data(const struct engine *e, uint32_t word)
{
	return e->address + ENGINE_DATA_BYTES + 4 * word;
}

static inline int engine_submit(struct engine *e, const struct engine_wants *wants, uint64_t *sequence)
{
	struct drm_amdgpu_bo_list_entry entries[16] = { { .bo_handle = e->buffer_handle } };
	struct drm_amdgpu_bo_list_in list = {
		.operation = ~0u, .list_handle = ~0u, .bo_number = (uint32_t)wants->handle_count + 1,
		.bo_info_size = sizeof(entries[0]), .bo_info_ptr = (uintptr_t)entries,
	};
	struct drm_amdgpu_cs_chunk_ib ib = { .va_start = e->address, .ip_type = AMDGPU_HW_IP_DMA };
	struct drm_amdgpu_cs_chunk_sem binary = { wants->wait };
	struct drm_amdgpu_cs_chunk_syncobj timeline = { wants->wait, 0, wants->wait_point };
	struct drm_amdgpu_cs_chunk chunks[3] = {
		{ AMDGPU_CHUNK_ID_IB, sizeof(ib) / 4, (uintptr_t)&ib },
		{ AMDGPU_CHUNK_ID_BO_HANDLES, sizeof(list) / 4, (uintptr_t)&list },
		{ AMDGPU_CHUNK_ID_SYNCOBJ_IN, sizeof(binary) / 4, (uintptr_t)&binary },
	};

	CHECK(wants->handle_count < 16);
	for (size_t i = 0; i < wants->handle_count; i++)
		entries[i + 1].bo_handle = wants->handles[i];
	while (e->dwords == 0 || e->dwords % 8)
		e->words[e->dwords++] = 0;
	ib.ib_bytes = 4 * e->dwords;
	e->dwords = 0;
	if (wants->wait_point)
		chunks[2] = (struct drm_amdgpu_cs_chunk){ AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT,
			                                  sizeof(timeline) / 4, (uintptr_t)&timeline };
	return vmkv_libdrm_result(e->drm.amdgpu_cs_submit_raw2(
	    e->handle, e->context, 0, wants->wait ? 3 : 2, chunks, sequence));
}

/* 0: done. -ECANCELED: it faulted. */
static inline int engine_wait(struct engine *e, uint64_t sequence)
{
	struct amdgpu_cs_fence fence = { .context = e->context, .ip_type = AMDGPU_HW_IP_DMA,
		                         .fence = sequence };
	uint32_t expired = 0;
	int rc = vmkv_libdrm_result(
	    e->drm.amdgpu_cs_query_fence_status(&fence, UINT64_MAX, 0, &expired));

	CHECK(rc || expired);
	return rc;
}

static inline int engine_run(struct engine *e, const uint32_t *handles, size_t n)
{
	uint64_t sequence;
	int rc = engine_submit(e, &(struct engine_wants){ .handles = handles, .handle_count = n },
	                       &sequence);

	return rc ? rc : engine_wait(e, sequence);
}

/* ---- looking ----------------------------------------------------------------------------------- */

static inline struct vmkv_emulator_entry engine_walk(struct engine *e, uint64_t address)
{
	struct vmkv_emulator_entry entry = { .struct_size = sizeof(entry) };

	CHECK_EQ(vmkv_emulator_walk(e->fd, address, &entry), 0);
	return entry;
}

static inline uint64_t engine_count(struct engine *e, const char *ioctl, uint32_t operation)
{
	uint64_t count;

	CHECK_EQ(vmkv_emulator_count(e->emulator, ioctl, operation, &count), 0);
	return count;
}

#endif
