/* SPDX-License-Identifier: MIT
 *
 * Addresses of the amdgpu device: ranges from libdrm's manager of them, or from a window that is
 * ours alone (one that the engine gave us, or that an emulated card shows to the CPU).
 */
#include "amdgpu.h"

#include <errno.h>
#include <stdlib.h>

int amdgpu_window_init(struct vmkv_amdgpu *gpu, uint64_t begin, uint64_t end)
{
	uint64_t base, half = begin >> 63 ? AMDGPU_VA_RANGE_HIGH : 0;
	int rc;

	if (begin == end) {
		atomic_store(&gpu->base.addresses_left,
		             gpu->card.virtual_address_max - gpu->card.virtual_address_offset);
		return 0;
	}
	if (begin > end || (begin | end) & (gpu->base.info.granule_bytes - 1))
		return vmkv_device_fail(&gpu->base, -EINVAL,
		                        "the address window 0x%llx to 0x%llx is none: give whole pages, "
		                        "the end after the beginning",
		                        (unsigned long long)begin, (unsigned long long)end);
	/* Taken from libdrm too, so that it gives none of it to anybody else in the process. */
	rc = gpu->drm.amdgpu_va_range_alloc(gpu->handle, amdgpu_gpu_va_range_general, end - begin, 0,
	                                    begin, &base, &gpu->window, half);
	if (rc)
		return vmkv_device_fail(&gpu->base, -EINVAL,
		                        "the address window 0x%llx to 0x%llx isn't free: it overlaps what "
		                        "is allocated from libdrm, or leaves the card's address space",
		                        (unsigned long long)begin, (unsigned long long)end);
	gpu->window_begin = begin;
	gpu->window_end = end;
	atomic_store(&gpu->base.addresses_left, end - begin);
	return 0;
}

static void range_free(struct vmkv_amdgpu *gpu, struct amdgpu_range *range)
{
	if (range->va)
		gpu->drm.amdgpu_va_range_free(range->va);
	free(range);
}

void amdgpu_window_fini(struct vmkv_amdgpu *gpu)
{
	struct amdgpu_range *range, *next;

	/* What was given back and not to be used again. */
	for (range = gpu->ranges; range; range = next) {
		next = range->next;
		range_free(gpu, range);
	}
	if (gpu->window)
		gpu->drm.amdgpu_va_range_free(gpu->window);
}

/* The lowest place in the window. pre: lists_lock is held. */
static int window_take(struct vmkv_amdgpu *gpu, struct amdgpu_range *range, uint64_t align)
{
	struct amdgpu_range **link = &gpu->ranges;
	uint64_t at = gpu->window_begin;

	for (;;) {
		uint64_t end = *link ? (*link)->address : gpu->window_end;
		uint64_t begin = (at + align - 1) & ~(align - 1);

		if (begin >= at && begin <= end && end - begin >= range->bytes) {
			range->address = begin;
			range->next = *link;
			*link = range;
			return 0;
		}
		if (!*link)
			return -ENOSPC;
		at = (*link)->address + (*link)->bytes;
		link = &(*link)->next;
	}
}

int amdgpu_range_create(struct vmkv_amdgpu *gpu, uint64_t bytes, uint64_t align,
                        struct amdgpu_range **ret)
{
	struct amdgpu_range *range = calloc(1, sizeof(*range));
	int rc;

	if (!range)
		return -ENOMEM;
	range->bytes = bytes;
	if (gpu->window_begin != gpu->window_end) {
		pthread_mutex_lock(&gpu->lists_lock);
		rc = window_take(gpu, range, align);
		pthread_mutex_unlock(&gpu->lists_lock);
	} else {
		rc = gpu->drm.amdgpu_va_range_alloc(gpu->handle, amdgpu_gpu_va_range_general, bytes,
		                                    align, 0, &range->address, &range->va, 0);
		if (!rc) {
			pthread_mutex_lock(&gpu->lists_lock);
			range->next = gpu->ranges;
			gpu->ranges = range;
			pthread_mutex_unlock(&gpu->lists_lock);
		}
	}
	if (rc) {
		free(range);
		return vmkv_device_fail(&gpu->base, -ENOSPC,
		                        "the card's address space has no %llu bytes in one piece%s%s",
		                        (unsigned long long)bytes,
		                        gpu->window_end ? " within its window" : "",
		                        vmkv_device_is_safe(&gpu->base, VMKV_SAFE_NEVER_REUSE_ADDRESSES)
		                            ? "; used ones come back when the device is opened anew"
		                            : "");
	}
	atomic_fetch_sub(&gpu->base.addresses_left, bytes);
	*ret = range;
	return 0;
}

void amdgpu_range_destroy(struct vmkv_amdgpu *gpu, struct amdgpu_range *range)
{
	struct amdgpu_range **link;

	/* It stays taken. */
	if (vmkv_device_is_safe(&gpu->base, VMKV_SAFE_NEVER_REUSE_ADDRESSES))
		return;
	pthread_mutex_lock(&gpu->lists_lock);
	for (link = &gpu->ranges; *link && *link != range; link = &(*link)->next)
		;
	if (*link)
		*link = range->next;
	pthread_mutex_unlock(&gpu->lists_lock);
	atomic_fetch_add(&gpu->base.addresses_left, range->bytes);
	range_free(gpu, range);
}

int amdgpu_reserve(struct vmkv_device *device, uint64_t bytes, uint64_t align, uint64_t *address)
{
	struct amdgpu_range *range;
	int rc = amdgpu_range_create(amdgpu_of(device), bytes, align, &range);

	if (!rc)
		*address = range->address;
	return rc;
}

void amdgpu_release(struct vmkv_device *device, uint64_t address, uint64_t bytes)
{
	struct vmkv_amdgpu *gpu = amdgpu_of(device);
	struct amdgpu_range *range;

	pthread_mutex_lock(&gpu->lists_lock);
	for (range = gpu->ranges; range && range->address != address; range = range->next)
		;
	pthread_mutex_unlock(&gpu->lists_lock);
	if (!range)
		return;
	/* What is left in it goes; without DELAY, so that the page tables follow before anybody maps
	 * something there. On a lost device nothing maps any more. */
	amdgpu_va(gpu, NULL, AMDGPU_VA_OP_CLEAR, 0, 0, address, bytes);
	amdgpu_range_destroy(gpu, range);
}
