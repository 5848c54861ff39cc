/* SPDX-License-Identifier: MIT
 *
 * What the two halves of the host device share: device_host.c has its addresses, mappings and
 * options, device_host_memory.c its memory.
 */
#ifndef VMKV_DEVICE_HOST_H
#define VMKV_DEVICE_HOST_H

#include "device.h"

/* A range of the file: a slab, or a free range. One struct serves both, so that a slab can be given
 * back without allocating anything. */
struct host_range {
	struct vmkv_slab slab;
	uint64_t offset;
	struct host_range *next; /* of the free ranges */
};

struct host_device {
	struct vmkv_device base;
	int fd;                     /* the memfd that holds all slabs */
	uint64_t memory_max_bytes;  /* bound on slab_bytes; UINT64_MAX: none */
	pthread_mutex_t file_lock;  /* for all below */
	uint64_t file_bytes;        /* where the file's last slab ends */
	uint64_t file_size;         /* at least that */
	uint64_t slab_bytes;        /* of all slabs that exist */
	struct host_range *free_ranges; /* in order of offset, never two that touch */
	struct host_range *addresses; /* never-reuse-addresses: all ever reserved, at .offset */
};

static inline struct host_device *host_of(struct vmkv_device *device)
{
	return (struct host_device *)device;
}

static inline struct host_range *host_range_of(struct vmkv_slab *slab)
{
	return (struct host_range *)slab;
}

static inline void *host_pointer(uint64_t address)
{
	return (void *)(uintptr_t)address;
}

/* Report that an mmap failed, with errno set; "cannot <what>". -ENOSPC at the kernel's bound on
 * mappings, else what errno says. */
int host_fail_mmap(struct host_device *host, const char *what, uint64_t address, uint64_t bytes);

/* Let a device whose mappings are the process's count them with all others of the process. */
void host_share_bound(struct vmkv_device *device);

/* Addresses were mapped: note them, where they may not be used again before the device's end.
 * -ENOMEM. Give them back: with what is behind them, to the process or to nobody. */
int host_addresses_note(struct host_device *host, uint64_t address, uint64_t bytes);
void host_addresses_give(struct host_device *host, uint64_t address, uint64_t bytes);

/* Create the file; give back what is left of it. */
int host_memory_init(struct host_device *host);
void host_memory_fini(struct host_device *host);

int host_slab_create(struct vmkv_device *device, uint64_t bytes, struct vmkv_slab **ret);
void host_slab_destroy(struct vmkv_device *device, struct vmkv_slab *slab);
int host_fill(struct vmkv_device *device, const struct vmkv_fill *fills, size_t n, uint64_t *point);
int host_copy(struct vmkv_device *device, uint64_t destination, uint64_t source, uint64_t bytes,
              uint64_t *point);

#endif
