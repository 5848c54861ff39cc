/* SPDX-License-Identifier: MIT
 *
 * What the tests of the emulated address space share: raw ioctls in their usual forms, on one file
 * of one card, and looks into the page tables.
 */
#ifndef VM_FIXTURE_H
#define VM_FIXTURE_H

#include <errno.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "emu.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define PAGE UINT64_C(4096)
#define HUGE (2 * MIB)
#define VA (UINT64_C(128) * GIB) /* where tests map: aligned to what entries up to 1 GiB need */
#define VA_BITS ((UINT64_C(1) << 48) - 1)
#define IB_VA (UINT64_C(64) * GIB)
#define RESULT_VA (IB_VA + MIB)

#define RW (AMDGPU_VM_PAGE_READABLE | AMDGPU_VM_PAGE_WRITEABLE)
#define DELAY AMDGPU_VM_DELAY_UPDATE
#define PRT AMDGPU_VM_PAGE_PRT
#define ALWAYS AMDGPU_GEM_CREATE_VM_ALWAYS_VALID
#define VRAM AMDGPU_GEM_DOMAIN_VRAM
#define GTT AMDGPU_GEM_DOMAIN_GTT

static const char *const all_kernels[] = { "6.1", "6.12", "7.2" };

#define FOR_EACH_KERNEL(name)                                                                      \
	for (const char *const *name##_at = all_kernels, *name = *name##_at;                       \
	     name##_at < all_kernels + 3 && (name = *name##_at); name##_at++)

/* A card with one open file, and what a submission needs. */
struct card {
	vmkv_emulator *gpu;
	int fd;
	uint32_t ib, result; /* handles of buffers; 0: not made yet */
	uint32_t *ib_view, *result_view;
};

static inline int call(int fd, unsigned long request, void *argument)
{
	return vmkv_emulator_ioctl(fd, request, argument) < 0 ? -errno : 0;
}

static inline struct card card_open_spec(const char *spec)
{
	struct card card = { .fd = -1 };
	char error[256] = "";

	if (vmkv_emulator_create(spec, error, sizeof(error), &card.gpu))
		CHECK_FAIL("%s: %s", spec, error);
	CHECK_EQ(vmkv_emulator_open(card.gpu, &card.fd), 0);
	return card;
}

/* more: "" or "&vm_update=cpu" and the like. */
static inline struct card card_open_sized(const char *kernel, const char *vram, const char *more)
{
	char spec[256];

	snprintf(spec, sizeof(spec), "gfx1201?kernel=%s&vram=%s&gtt=1GiB%s", kernel, vram, more);
	return card_open_spec(spec);
}

static inline struct card card_open(const char *kernel, const char *more)
{
	return card_open_sized(kernel, "1GiB", more);
}

static inline void card_close(struct card *card)
{
	if (card->ib_view) {
		munmap(card->ib_view, PAGE);
		munmap(card->result_view, PAGE);
	}
	CHECK_EQ(vmkv_emulator_close(card->fd), 0);
	vmkv_emulator_destroy(card->gpu);
}

static inline uint32_t bo_create_in(int fd, uint64_t bytes, uint32_t domain, uint64_t flags)
{
	union drm_amdgpu_gem_create args = { .in = { .bo_size = bytes, .alignment = PAGE,
		                                     .domains = domain, .domain_flags = flags } };

	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_GEM_CREATE, &args), 0);
	return args.out.handle;
}

static inline uint32_t bo_create(int fd, uint64_t bytes, uint64_t flags)
{
	return bo_create_in(fd, bytes, VRAM, flags);
}

static inline int bo_close(int fd, uint32_t handle)
{
	struct drm_gem_close args = { .handle = handle };

	return call(fd, DRM_IOCTL_GEM_CLOSE, &args);
}

static inline void *bo_view(int fd, uint32_t handle, uint64_t bytes)
{
	union drm_amdgpu_gem_mmap args = { .in = { .handle = handle } };
	void *view;

	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_GEM_MMAP, &args), 0);
	view = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)args.out.addr_ptr);
	CHECK(view != MAP_FAILED);
	return view;
}

/* ---- GEM_VA ---------------------------------------------------------------------------------- */

static inline int va_op(int fd, uint32_t operation, uint32_t handle, uint32_t flags,
                        uint64_t address, uint64_t offset, uint64_t bytes)
{
	struct drm_amdgpu_gem_va args = { .handle = handle, .operation = operation, .flags = flags,
		                          .va_address = address, .offset_in_bo = offset,
		                          .map_size = bytes };

	return call(fd, DRM_IOCTL_AMDGPU_GEM_VA, &args);
}

static inline int va_map(int fd, uint32_t handle, uint32_t delay, uint64_t address, uint64_t offset,
                         uint64_t bytes)
{
	return va_op(fd, AMDGPU_VA_OP_MAP, handle, RW | delay, address, offset, bytes);
}

static inline int va_replace(int fd, uint32_t handle, uint32_t delay, uint64_t address,
                             uint64_t offset, uint64_t bytes)
{
	return va_op(fd, AMDGPU_VA_OP_REPLACE, handle, RW | delay, address, offset, bytes);
}

static inline int va_unmap(int fd, uint32_t handle, uint32_t delay, uint64_t address)
{
	return va_op(fd, AMDGPU_VA_OP_UNMAP, handle, RW | delay, address, 0, PAGE);
}

static inline int va_clear(int fd, uint32_t delay, uint64_t address, uint64_t bytes)
{
	return va_op(fd, AMDGPU_VA_OP_CLEAR, 0, delay, address, 0, bytes);
}

/* Long enough for what doesn't wait to be done; that nothing happened is only likely, never sure. */
static inline void let_threads_run(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
}

/* ---- looking --------------------------------------------------------------------------------- */

/* Wait until all page-table jobs that were made have run. */
static inline void settle(int fd)
{
	struct emu_file *file = emu_file_get(fd);
	struct emu_fence *fence;

	CHECK(file != NULL);
	pthread_mutex_lock(&file->gpu->lock);
	fence = file->vm->last_job;
	if (fence) {
		emu_fence_get(fence);
		emu_fence_wait(fence, INT64_MAX);
		emu_fence_put(fence);
	}
	pthread_mutex_unlock(&file->gpu->lock);
	emu_file_put(file);
}

static inline struct vmkv_emulator_entry walk_now(int fd, uint64_t address)
{
	struct vmkv_emulator_entry entry = { .struct_size = sizeof(entry) };

	CHECK_EQ(vmkv_emulator_walk(fd, address, &entry), 0);
	return entry;
}

static inline struct vmkv_emulator_entry walk(int fd, uint64_t address)
{
	settle(fd);
	return walk_now(fd, address);
}

/* ---- inside the card: fences that a test signals when it likes ------------------------------- */

enum held_by { SUBMISSION_OF_THIS_VM, SUBMISSION_OF_ANOTHER, MOVE_OF_BUFFER };

/* What keeps a VM, or a buffer (by handle), busy until it is let go. */
static inline struct emu_fence *hold(int fd, enum held_by what, uint32_t handle)
{
	struct emu_file *file = emu_file_get(fd);
	struct emu_fence *fence = NULL;
	struct emu_resv *resv = &file->vm->resv;

	pthread_mutex_lock(&file->gpu->lock);
	if (what == MOVE_OF_BUFFER)
		resv = emu_bo_resv(emu_handle_find(file, handle)->bo);
	CHECK_EQ(emu_fence_create(file->gpu, what == SUBMISSION_OF_THIS_VM ? file->vm : NULL,
	                          &fence),
	         0);
	CHECK_EQ(emu_resv_add(resv, fence,
	                      what == MOVE_OF_BUFFER ? EMU_USAGE_KERNEL : EMU_USAGE_WRITE),
	         0);
	pthread_mutex_unlock(&file->gpu->lock);
	emu_file_put(file);
	return fence;
}

static inline void let_go(struct emu_fence *fence)
{
	struct emu_gpu *gpu = fence->gpu;

	pthread_mutex_lock(&gpu->lock);
	emu_fence_signal(fence, 0);
	emu_fence_put(fence);
	pthread_mutex_unlock(&gpu->lock);
}

/* The buffer and the place in it that an address leads to. */
#define CHECK_MAPPED(fd, where, its_handle, its_offset)                                            \
	do {                                                                                       \
		struct vmkv_emulator_entry entry_ = walk(fd, where);                               \
		CHECK_EQ(entry_.valid, 1);                                                         \
		CHECK_EQ(entry_.handle, its_handle);                                               \
		CHECK_EQ(entry_.offset + (((where) - entry_.address) & VA_BITS), its_offset);      \
	} while (0)
#define CHECK_UNMAPPED(fd, where) CHECK_EQ(walk(fd, where).valid, 0)

static inline struct vmkv_emulator_stats stats(const struct card *card)
{
	struct vmkv_emulator_stats stats = { .struct_size = sizeof(stats) };

	CHECK_EQ(vmkv_emulator_stats(card->gpu, &stats), 0);
	return stats;
}

/* ---- submissions ----------------------------------------------------------------------------- */

#define SDMA_NOP 0u
#define IB_DWORDS 256

static inline void card_prepare_submissions(struct card *card)
{
	if (card->ib)
		return;
	card->ib = bo_create_in(card->fd, PAGE, GTT, 0);
	card->result = bo_create_in(card->fd, PAGE, GTT, 0);
	card->ib_view = bo_view(card->fd, card->ib, PAGE);
	card->result_view = bo_view(card->fd, card->result, PAGE);
	CHECK_EQ(va_map(card->fd, card->ib, 0, IB_VA, 0, PAGE), 0);
	CHECK_EQ(va_map(card->fd, card->result, 0, RESULT_VA, 0, PAGE), 0);
}

static inline uint32_t context_create(int fd)
{
	union drm_amdgpu_ctx args = { .in = { .op = AMDGPU_CTX_OP_ALLOC_CTX } };

	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_CTX, &args), 0);
	return args.out.alloc.ctx_id;
}

static inline void context_destroy(int fd, uint32_t context)
{
	union drm_amdgpu_ctx args = { .in = { .op = AMDGPU_CTX_OP_FREE_CTX, .ctx_id = context } };

	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_CTX, &args), 0);
}

/* Submit what lies in the IB buffer (n dwords), with the buffers listed besides those of the
 * card's. */
static inline int cs_submit(struct card *card, uint32_t context, uint32_t dwords,
                            const uint32_t *handles, uint32_t n, uint64_t *ret)
{
	struct drm_amdgpu_bo_list_entry entries[16] = { { card->ib, 0 }, { card->result, 0 } };
	struct drm_amdgpu_bo_list_in list = { .operation = ~0u,
		                              .list_handle = ~0u,
		                              .bo_number = n + 2,
		                              .bo_info_size = sizeof(entries[0]),
		                              .bo_info_ptr = (uintptr_t)entries };
	struct drm_amdgpu_cs_chunk_ib ib = { .va_start = IB_VA, .ib_bytes = 4 * dwords,
		                             .ip_type = AMDGPU_HW_IP_DMA };
	struct drm_amdgpu_cs_chunk chunks[2] = {
		{ AMDGPU_CHUNK_ID_IB, sizeof(ib) / 4, (uintptr_t)&ib },
		{ AMDGPU_CHUNK_ID_BO_HANDLES, sizeof(list) / 4, (uintptr_t)&list },
	};
	uint64_t pointers[2] = { (uintptr_t)&chunks[0], (uintptr_t)&chunks[1] };
	union drm_amdgpu_cs args = { .in = { .ctx_id = context, .num_chunks = 2,
		                             .chunks = (uintptr_t)pointers } };
	int error;

	for (uint32_t i = 0; i < n; i++)
		entries[i + 2].bo_handle = handles[i];
	error = call(card->fd, DRM_IOCTL_AMDGPU_CS, &args);
	if (!error)
		*ret = args.out.handle;
	return error;
}

static inline int cs_wait(int fd, uint32_t context, uint64_t number)
{
	union drm_amdgpu_wait_cs args = { .in = { .handle = number,
		                                  .timeout = INT64_MAX,
		                                  .ip_type = AMDGPU_HW_IP_DMA,
		                                  .ctx_id = context } };

	return call(fd, DRM_IOCTL_AMDGPU_WAIT_CS, &args);
}

/* Submit, wait; the error of either. */
static inline int cs_run(struct card *card, uint32_t dwords, const uint32_t *handles, uint32_t n)
{
	uint32_t context = context_create(card->fd);
	uint64_t number = 0;
	int error = cs_submit(card, context, dwords, handles, n, &number);

	if (!error)
		error = cs_wait(card->fd, context, number);
	context_destroy(card->fd, context);
	return error;
}

static inline int cs_nop(struct card *card, const uint32_t *handles, uint32_t n)
{
	card_prepare_submissions(card);
	memset(card->ib_view, 0, 8 * 4);
	return cs_run(card, 8, handles, n);
}

/* The dwords of a copy of `bytes`. */
static inline void ib_copy(struct card *card, uint64_t to, uint64_t from, uint32_t bytes)
{
	const uint32_t packet[8] = { 1, bytes - 1, 0, (uint32_t)from, (uint32_t)(from >> 32),
		                     (uint32_t)to, (uint32_t)(to >> 32), SDMA_NOP };

	memcpy(card->ib_view, packet, sizeof(packet));
}

/* Copy by the card from one address to another. */
static inline int gpu_copy(struct card *card, uint64_t to, uint64_t from, uint32_t bytes)
{
	card_prepare_submissions(card);
	ib_copy(card, to, from, bytes);
	return cs_run(card, 8, NULL, 0);
}

static inline int gpu_read(struct card *card, uint64_t address, uint32_t *ret)
{
	int error = gpu_copy(card, RESULT_VA, address, 4);

	*ret = card->result_view ? card->result_view[0] : 0;
	return error;
}

static inline int gpu_write(struct card *card, uint64_t address, uint32_t value)
{
	card_prepare_submissions(card);
	card->result_view[1] = value;
	return gpu_copy(card, address, RESULT_VA + 4, 4);
}

#endif
