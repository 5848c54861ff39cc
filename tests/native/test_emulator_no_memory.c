/* SPDX-License-Identifier: MIT
 *
 * The k-th allocation of the emulated kernel fails, for every k of a card's short life: each call works
 * or fails with ENOMEM, and nothing is left or used that is gone. The linker puts the functions below in
 * the place of malloc, calloc and realloc.
 */
#include "cs_fixture.h"

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

static _Atomic uint64_t count, fail_at; /* fail_at 0: none fails */

static bool fails(void)
{
	return fail_at && ++count == fail_at;
}

void *__wrap_malloc(size_t bytes)
{
	return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return fails() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
	return fails() ? NULL : __real_realloc(old, bytes);
}

/* ---- a life -------------------------------------------------------------------------------------- */

static const char *kernel, *more;
static vmkv_emulator *gpu;

/* Whether the call worked. */
static bool works(int error)
{
	if (error && error != -ENOMEM)
		CHECK_FAIL("Linux %s, allocation %llu: error %d", kernel, (unsigned long long)fail_at,
		           error);
	return !error;
}

static uint32_t try_buffer(int fd, uint64_t flags)
{
	union drm_amdgpu_gem_create args = { .in = { .bo_size = HUGE, .domains = VRAM,
		                                     .domain_flags = flags } };

	return works(call(fd, DRM_IOCTL_AMDGPU_GEM_CREATE, &args)) ? args.out.handle : 0;
}

static uint32_t try_syncobj(int fd)
{
	struct drm_syncobj_create args = { .flags = 0 };

	return works(call(fd, DRM_IOCTL_SYNCOBJ_CREATE, &args)) ? args.handle : 0;
}

static void try_submission(int fd, uint32_t listed, uint32_t syncobj)
{
	union drm_amdgpu_ctx context = { .in = { .op = AMDGPU_CTX_OP_ALLOC_CTX } };
	struct drm_amdgpu_cs_chunk_ib ib = { .va_start = VA, .ib_bytes = 32,
		                             .ip_type = AMDGPU_HW_IP_DMA };
	struct drm_amdgpu_cs_chunk_syncobj signal = { .handle = syncobj, .point = 1 };
	struct drm_amdgpu_bo_list_entry entry = { .bo_handle = listed };
	struct drm_amdgpu_bo_list_in list = { .bo_number = 1, .bo_info_size = sizeof(entry),
		                              .bo_info_ptr = (uintptr_t)&entry };
	struct drm_amdgpu_cs_chunk chunks[] = {
		{ AMDGPU_CHUNK_ID_IB, sizeof(ib) / 4, (uintptr_t)&ib },
		{ AMDGPU_CHUNK_ID_BO_HANDLES, sizeof(list) / 4, (uintptr_t)&list },
		{ AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL, sizeof(signal) / 4, (uintptr_t)&signal },
	};
	uint64_t pointers[] = { (uintptr_t)&chunks[0], (uintptr_t)&chunks[1], (uintptr_t)&chunks[2] };
	union drm_amdgpu_cs cs = { .in = { .num_chunks = 3, .chunks = (uintptr_t)pointers } };

	if (!works(call(fd, DRM_IOCTL_AMDGPU_CTX, &context)))
		return;
	cs.in.ctx_id = context.out.alloc.ctx_id;
	if (listed && syncobj)
		works(call(fd, DRM_IOCTL_AMDGPU_CS, &cs));
}

/* While the card is paused, so that buffers are closed with their clears and jobs still to come. */
static void file_live(int fd)
{
	uint32_t brief = try_buffer(fd, ALWAYS | AMDGPU_GEM_CREATE_VRAM_CLEARED), own, listed;
	struct drm_prime_handle prime = { .flags = DRM_CLOEXEC };

	if (brief)
		CHECK_EQ(bo_close(fd, brief), 0); /* nothing but its clear is at work on it */
	own = try_buffer(fd, ALWAYS);
	prime.handle = listed = try_buffer(fd, 0);
	if (own)
		works(va_map(fd, own, 0, VA, 0, HUGE));
	if (listed)
		works(va_map(fd, listed, DELAY, VA + HUGE, 0, HUGE));
	try_submission(fd, listed, try_syncobj(fd));
	works(va_clear(fd, 0, VA + MIB, 64 * KIB));
	if (listed && works(call(fd, DRM_IOCTL_PRIME_HANDLE_TO_FD, &prime)))
		close(prime.fd);
	if (own)
		CHECK_EQ(bo_close(fd, own), 0);
	if (listed)
		CHECK_EQ(bo_close(fd, listed), 0);
}

static void card_live(void)
{
	int fd, error;

	vmkv_emulator_pause(gpu);
	error = vmkv_emulator_open(gpu, &fd);
	if (works(error)) {
		file_live(fd);
		vmkv_emulator_resume(gpu);
		CHECK_EQ(vmkv_emulator_close(fd), 0);
	}
	vmkv_emulator_resume(gpu);
}

static void nothing_is_left_whichever_allocation_fails(void)
{
	bool all = false;

	for (uint64_t k = 1; !all; k++) {
		char spec[200], error[200] = "";
		struct vmkv_emulator_stats now = { .struct_size = sizeof(now) };

		snprintf(spec, sizeof(spec), "gfx1201?kernel=%s&vram=64MiB&gtt=64MiB%s", kernel, more);
		count = 0;
		fail_at = k;
		if (works(vmkv_emulator_create(spec, error, sizeof(error), &gpu))) {
			card_live();
			fail_at = 0;
			CHECK_EQ(vmkv_emulator_stats(gpu, &now), 0);
			CHECK_EQ(now.buffers + now.handles + now.mappings + now.files, 0);
			CHECK_EQ(now.vram_used_bytes + now.gtt_used_bytes + now.page_table_bytes, 0);
			vmkv_emulator_destroy(gpu);
		}
		fail_at = 0;
		all = count < k;
	}
}

int main(void)
{
	static const char *const kinds[] = { "", "&inject=stale-translation,alias-diverges" };

	FOR_EACH_KERNEL(name) {
		kernel = name;
		for (int i = 0; i < 2; i++) {
			more = kinds[i];
			RUN(nothing_is_left_whichever_allocation_fails);
		}
	}
	return 0;
}
