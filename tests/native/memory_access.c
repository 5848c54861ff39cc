/* SPDX-License-Identifier: MIT */
#include "memory_access.h"

#include "amdgpu.h"
#include "check.h"

#define STAGING_WORDS 4096
#define STAGING_BYTES (STAGING_WORDS * sizeof(uint64_t))
#define BATCH 32 /* copies whose outcome is asked for at once: no more are remembered */
/* What the buffer holds where no copy has come. */
#define UNTOUCHED UINT64_C(0x5ca1ab1e0ddba11d)

struct memory_access {
	struct vmkv_device *device;
	pthread_mutex_t lock;
	/* NULL: by CPU. */
	amdgpu_bo_handle buffer;
	struct amdgpu_range *range;
	volatile uint64_t *words;
};

/* ---- the buffer between ---------------------------------------------------------------------- */

static void buffer_create(struct memory_access *access)
{
	struct vmkv_amdgpu *gpu = amdgpu_of(access->device);
	struct vmkv_amdgpu_info info = { .struct_size = sizeof(info) };
	struct amdgpu_bo_alloc_request request = {
		.alloc_size = STAGING_BYTES,
		.preferred_heap = AMDGPU_GEM_DOMAIN_GTT,
		.flags = AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED | AMDGPU_GEM_CREATE_VM_ALWAYS_VALID,
	};
	void *words = NULL;
	uint64_t point;

	if (vmkv_amdgpu_info(access->device, &info))
		CHECK_FAIL("%s: the test can't reach this device's memory", access->device->info.name);
	CHECK_EQ(gpu->drm.amdgpu_bo_alloc(gpu->handle, &request, &access->buffer), 0);
	CHECK_EQ(gpu->drm.amdgpu_bo_cpu_map(access->buffer, &words), 0);
	access->words = words;
	CHECK_EQ(amdgpu_range_create(gpu, STAGING_BYTES, 4096, &access->range), 0);
	CHECK_EQ(amdgpu_va(gpu, access->buffer, AMDGPU_VA_OP_MAP,
	                   AMDGPU_VM_PAGE_READABLE | AMDGPU_VM_PAGE_WRITEABLE, 0,
	                   access->range->address, STAGING_BYTES), 0);
	/* Without DELAY it is there for what is submitted next; where it isn't, the device knows. */
	CHECK_EQ(amdgpu_submit_commit(gpu, &point), 0);
	CHECK_EQ(amdgpu_submit_settle(gpu, point), 0);
}

struct memory_access *memory_access_create(struct vmkv_device *device)
{
	struct memory_access *access = calloc(1, sizeof(*access));

	CHECK(access);
	access->device = device;
	pthread_mutex_init(&access->lock, NULL);
	if (!(device->info.features & VMKV_FEATURE_CPU_ADDRESSES))
		buffer_create(access);
	return access;
}

void memory_access_destroy(struct memory_access *access)
{
	struct vmkv_amdgpu *gpu = amdgpu_of(access->device);

	if (access->buffer) {
		CHECK_EQ(gpu->drm.amdgpu_bo_cpu_unmap(access->buffer), 0);
		CHECK_EQ(gpu->drm.amdgpu_bo_free(access->buffer), 0);
		amdgpu_range_destroy(gpu, access->range);
	}
	pthread_mutex_destroy(&access->lock);
	free(access);
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* One point tells of a copy whether it met an address without memory. */
static void copies_wait(struct memory_access *access, const uint64_t *points, size_t n)
{
	char text[256];

	for (size_t i = n; i-- > 0;) {
		if (!vmkv_wait(access->device, points[i], UINT64_MAX))
			continue;
		vmkv_device_error(access->device, text, sizeof(text));
		CHECK_FAIL("the copy engine can't reach a word that should be there: %s", text);
	}
}

/* To or from the buffer: at most STAGING_WORDS. */
static void words_copy(struct memory_access *access, const struct memory_word *words, size_t n,
                       bool from_buffer)
{
	uint64_t points[BATCH];
	size_t under_way = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t there = words[i].address, here = access->range->address + i * sizeof(uint64_t);

		CHECK_EQ(vmkv_copy(access->device, from_buffer ? there : here, from_buffer ? here : there,
		                   sizeof(uint64_t), &points[under_way++]), 0);
		if (under_way < BATCH && i + 1 < n)
			continue;
		copies_wait(access, points, under_way);
		under_way = 0;
	}
}

static void buffer_read(struct memory_access *access, struct memory_word *words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		access->words[i] = UNTOUCHED;
	words_copy(access, words, n, false);
	for (size_t i = 0; i < n; i++)
		words[i].value = access->words[i];
}

static void buffer_write(struct memory_access *access, const struct memory_word *words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		access->words[i] = words[i].value;
	words_copy(access, words, n, true);
}

/* ---- both ways ------------------------------------------------------------------------------- */

static volatile uint64_t *pointer(uint64_t address)
{
	return (volatile uint64_t *)(uintptr_t)address;
}

static size_t piece(size_t left)
{
	return left < STAGING_WORDS ? left : STAGING_WORDS;
}

void memory_words_read(struct memory_access *access, struct memory_word *words, size_t n)
{
	for (size_t i = 0; !access->buffer && i < n; i++)
		words[i].value = *pointer(words[i].address);
	if (!access->buffer)
		return;
	pthread_mutex_lock(&access->lock);
	for (size_t i = 0; i < n; i += STAGING_WORDS)
		buffer_read(access, words + i, piece(n - i));
	pthread_mutex_unlock(&access->lock);
}

void memory_words_write(struct memory_access *access, const struct memory_word *words, size_t n)
{
	for (size_t i = 0; !access->buffer && i < n; i++)
		*pointer(words[i].address) = words[i].value;
	if (!access->buffer)
		return;
	pthread_mutex_lock(&access->lock);
	for (size_t i = 0; i < n; i += STAGING_WORDS)
		buffer_write(access, words + i, piece(n - i));
	pthread_mutex_unlock(&access->lock);
}
