/* SPDX-License-Identifier: MIT
 *
 * The device seam: the only thing that the manager knows of a driver, and all that a port has to
 * write. It assumes no more than four drivers can do: amdgpu (any piece of a buffer object at any
 * address, taking effect later), Vulkan sparse binding, CUDA/HIP virtual memory (whole handles,
 * access set afterwards) and mmap of a memfd.
 *
 * Holds for every function below:
 * - The manager calls it with no lock held, from any thread, several at once. Two calls never touch
 *   the same addresses or the same bytes of a slab at the same time: pages in transition belong to
 *   the operation that moves them.
 * - Addresses, offsets and sizes are multiples of info.granule_bytes (except of copies and fills by
 *   address: any byte, and multiples of 4); ranges lie within one reservation and one slab; maps go
 *   only to addresses that have nothing behind them; unmaps name whole mappings.
 * - It returns 0 or a negative errno and, but for -ETIME, says why with vmkv_device_fail(). -ENODEV
 *   means that the device is lost: the manager makes no further call but destroy functions.
 * - Outputs are written on success; `issued` is written always.
 */
#ifndef VMKV_DEVICE_H
#define VMKV_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmkv.h"

/* One physical allocation. A device embeds it in a struct of its own and fills in all fields. */
struct vmkv_slab {
	uint64_t bytes;
	/* Where its permanent private mapping lies, through which fills reach its pages whether or
	 * not they are mapped elsewhere. A GPU address, or 0 if the device has other means, or with
	 * VMKV_SAFE_NO_ALIAS none: then the manager fills by address alone. */
	uint64_t alias;
};

struct vmkv_map {
	uint64_t address;
	uint64_t bytes;
	struct vmkv_slab *slab;
	uint64_t offset;
};

struct vmkv_unmap {
	uint64_t address;
	uint64_t bytes;
	uint32_t mappings;      /* how many neighbouring mappings the range holds, at least 1 */
	struct vmkv_slab *slab; /* the slab of the only mapping; NULL if there are several */
};

struct vmkv_fill {
	struct vmkv_slab *slab; /* NULL: offset is a GPU address */
	uint64_t offset;
	uint64_t bytes;
	uint32_t value;
};

struct vmkv_device_ops {
	/* Frees the device. pre: no reservation and no slab is left. */
	void (*destroy)(struct vmkv_device *device);

	/* Reserve addresses with nothing behind them. align is a power of two. -ENOSPC: no such range.
	 * release takes the whole range back. pre: nothing is mapped in it, or the device is lost, or
	 * the cache is being destroyed; then release unmaps what is left. */
	int (*reserve)(struct vmkv_device *device, uint64_t bytes, uint64_t align, uint64_t *address);
	void (*release)(struct vmkv_device *device, uint64_t address, uint64_t bytes);

	/* Take physical memory and map its alias; give it back to the system. bytes is a multiple of
	 * the granule. -ENOSPC: the device has no more memory. -EMLINK: its bound on mappings leaves
	 * none for the alias. destroy pre: none of it is mapped
	 * (but by the alias) or in use by a fill. */
	int (*slab_create)(struct vmkv_device *device, uint64_t bytes, struct vmkv_slab **ret);
	void (*slab_destroy)(struct vmkv_device *device, struct vmkv_slab *slab);

	/* Put memory behind addresses. *point: when it can be used. On failure the first *issued maps
	 * may have taken effect, and the manager unmaps them; the others have none. With
	 * VMKV_SAFE_NEVER_REUSE_ADDRESSES it keeps them instead, and on failure too *point is written
	 * if *issued > 0. -ENOSPC: the driver's bound on mappings is reached. */
	int (*map)(struct vmkv_device *device, const struct vmkv_map *maps, size_t n, size_t *issued,
	           uint64_t *point);

	/* Take it away. *point: when nothing can reach it any more, work that was submitted before
	 * included. On failure the first *issued are under way, and *point is written for them if
	 * *issued > 0; the manager tries the others again later. */
	int (*unmap)(struct vmkv_device *device, const struct vmkv_unmap *unmaps, size_t n,
	             size_t *issued, uint64_t *point);

	/* Fill by slab and offset, or by address, in the order given. Runs after every map, unmap and
	 * fill issued before, and before every map issued after. -EFAULT: an address has nothing
	 * behind it. */
	int (*fill)(struct vmkv_device *device, const struct vmkv_fill *fills, size_t n,
	            uint64_t *point);

	/* Copy by address. -EFAULT: an address has nothing behind it. */
	int (*copy)(struct vmkv_device *device, uint64_t destination, uint64_t source, uint64_t bytes,
	            uint64_t *point);

	/* Store the newest reached point in device->completed, waiting at most timeout_ns until it is
	 * at least `point` (which may be 0: only look). -ETIME: not in that time. NULL if all points
	 * are 0. */
	int (*wait)(struct vmkv_device *device, uint64_t point, uint64_t timeout_ns);

	/* What became of the fill or copy by address whose point this is and was reached: 0 or -EFAULT,
	 * told once; 0 for all other points. NULL if fill and copy tell it themselves. */
	int (*outcome)(struct vmkv_device *device, uint64_t point);

	/* Fill in what the driver tells, in a struct of zeros; NULL: nothing. */
	int (*health)(struct vmkv_device *device, struct vmkv_device_health *ret);
};

/* A device embeds this at its beginning. */
struct vmkv_device {
	const struct vmkv_device_ops *ops;
	struct vmkv_device_info info; /* constant but for .mappings and .lost, which are kept below */
	_Atomic uint64_t completed;   /* the newest point known to be reached */
	_Atomic uint64_t mappings;    /* runs of mappings that exist, see vmkv_device_take_mappings */
	/* If the bound is not the device's alone: the count of all that share it, and where it is. */
	_Atomic uint64_t *shared_mappings;
	uint64_t shared_max_mappings;
	const char *mappings_hint; /* what raises the bound; NULL: nothing known */
	_Atomic uint64_t addresses_left; /* bytes that reserve can give in all, roughly */
	_Atomic uint32_t lost;
	_Atomic uint32_t caches;
	pthread_mutex_t error_lock;
	char error[256];
};

/* For the ports: fill in the base; free what it holds. */
int vmkv_device_init(struct vmkv_device *device, const struct vmkv_device_ops *ops);
void vmkv_device_fini(struct vmkv_device *device);

/* Set the text of the device's last error and return `error`, a negative errno; -ENODEV also marks
 * the device as lost. */
int vmkv_device_fail(struct vmkv_device *device, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static inline bool vmkv_device_is_safe(const struct vmkv_device *device, enum vmkv_safe mode)
{
	return (device->info.safe & (uint32_t)mode) != 0;
}

/* For the ports: take the next of a device's options, "name=value&name=value", and go on behind it.
 * Returns 1, 0 at their end, or -EINVAL with a line in error: it is malformed, or is given once
 * more. */
struct vmkv_option {
	char name[128];
	const char *value; /* in there too */
};
int vmkv_option_next(const char **options, const char *device, struct vmkv_option *ret, char *error,
                     size_t error_bytes);

/* The options that all devices have, safe= and wait_us=. Sets *known to whether it is one of them.
 * -EINVAL with a line in error: a value that means nothing, or at the end, options that don't fit.
 * What they ask for is in info->safe and wait_after_map_us. */
int vmkv_safe_option(struct vmkv_device_info *info, const char *name, const char *value,
                     bool *known, char *error, size_t error_bytes);
int vmkv_safe_options_end(struct vmkv_device_info *info, char *error, size_t error_bytes);
/* The options that ask for the same again: "" or "safe=...", with a wait_us that isn't the usual
 * one. */
void vmkv_safe_text(const struct vmkv_device_info *info, char *text, size_t n);
/* Maps were issued and their point is reached: with VMKV_SAFE_WAIT_AFTER_MAP, wait until they are
 * seen. */
void vmkv_device_wait_after_map(const struct vmkv_device *device);

/* For the manager. */
static inline bool vmkv_device_is_lost(const struct vmkv_device *device)
{
	return atomic_load_explicit(&device->lost, memory_order_relaxed) != 0;
}

/* Whether point is known to be reached; never asks the driver. */
static inline bool vmkv_device_reached(const struct vmkv_device *device, uint64_t point)
{
	return point == 0 ||
	       point <= atomic_load_explicit(&device->completed, memory_order_acquire) ||
	       vmkv_device_is_lost(device);
}

/* Learn which points were reached, without waiting. */
void vmkv_device_poll(struct vmkv_device *device);

/* Count n further mappings, or return how many of them are too many (and count none). What is counted
 * are runs: a mapping that goes on, in address and in slab offset, where the one before it in its span
 * ends, is not counted, because drivers with a bound (the kernel's mmap) merge it. */
uint64_t vmkv_device_take_mappings(struct vmkv_device *device, uint64_t n);
void vmkv_device_give_mappings(struct vmkv_device *device, uint64_t n);
/* For the ports: the same for what the device needs for itself, such as slabs' aliases, in the shared
 * count only. */
uint64_t vmkv_device_take_shared(struct vmkv_device *device, uint64_t n);
void vmkv_device_give_shared(struct vmkv_device *device, uint64_t n);

/* The ports. options is what follows '?' in the name, or "". An error text goes to error. */
int vmkv_device_host_open(const char *options, char *error, size_t error_bytes,
                          struct vmkv_device **ret);
/* path: the node that the name gives, or "". */
int vmkv_device_amdgpu_open(const char *path, const char *options,
                            const struct vmkv_device_options *given, char *error,
                            size_t error_bytes, struct vmkv_device **ret);
int vmkv_device_emulated_open(const char *model, const char *options, char *error,
                              size_t error_bytes, struct vmkv_device **ret);

#endif
