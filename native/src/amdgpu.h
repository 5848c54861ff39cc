/* SPDX-License-Identifier: MIT
 *
 * What the parts of the amdgpu device share. It drives the card through libdrm_amdgpu, unmodified,
 * and asks the stock kernel driver for nothing but what the stock kernel gives:
 *
 * - A slab is a VRAM buffer object, mapped whole at an address of its own, its alias.
 * - A map or unmap is a GEM_VA with DELAY, which only lists the change. A submission to the SDMA
 *   ring then makes the kernel write the page tables, in its own order: what was unmapped, then
 *   what was mapped. It is a NOP, or the fills and copies that were asked for.
 * - A point is a point on one timeline syncobj, signalled by that submission.
 *
 * Why not per buffer object, as plain GEM_VA does it: without DELAY each call would write, swallow
 * its errors, and return before the hardware has seen anything, with no fence to wait for.
 */
#ifndef VMKV_AMDGPU_H
#define VMKV_AMDGPU_H

#include "abi/amdgpu.h"
#include "device.h"
#include "libdrm.h"

/* From this DRM minor on GEM_VA can signal a syncobj; before, it ignores the wish in silence. */
#define AMDGPU_TIMELINE_DRM_MINOR 64

/* Packets go through a ring of chunks; a chunk is free again when its submission is done. */
#define AMDGPU_CHUNKS 16
#define AMDGPU_CHUNK_DWORDS 1024
#define AMDGPU_OUTCOMES 64 /* fills and copies by address whose outcome is remembered */

struct amdgpu_range {
	uint64_t address, bytes;
	amdgpu_va_handle va; /* NULL within an explicit window */
	struct amdgpu_range *next;
};

struct amdgpu_slab {
	struct vmkv_slab slab;
	amdgpu_bo_handle bo;
	uint32_t kms_handle;
	size_t last_map; /* in a call of map, under flush_lock: the last of this slab's */
	struct amdgpu_range *alias;
	struct amdgpu_slab *next;
};

/* A submission of a fill or copy by address, whose outcome will be asked for. */
struct amdgpu_outcome {
	uint64_t point;    /* that tells the whole fill or copy; 0: none */
	uint64_t sequence; /* the submission's number on the context */
	bool failed;       /* known to have failed */
};

struct vmkv_amdgpu {
	struct vmkv_device base;
	struct vmkv_libdrm drm;
	amdgpu_device_handle handle;
	bool adopted_handle; /* the engine's: not ours to deinitialize */
	int fd;              /* libdrm's own descriptor of the file: borrowed */
	uint32_t commit; /* enum vmkv_commit */
	bool listed; /* slabs are not always-valid: whoever submits lists them */
	uint32_t drm_minor;
	uint32_t sdma_packet_bytes; /* most that one packet fills or copies */
	uint64_t vram_lost_count;   /* when the device was opened */
	struct drm_amdgpu_info_device card;

	/* Submissions: one at a time, so that points are signalled in order. */
	pthread_mutex_t submit_lock;
	amdgpu_context_handle context;
	uint32_t syncobj;            /* the timeline */
	_Atomic uint64_t submitted;  /* newest point that is under way */
	_Atomic uint64_t promised;   /* newest point that amdgpu_submit_promise gave */
	uint64_t chunk_points[AMDGPU_CHUNKS];
	uint32_t next_chunk;
	amdgpu_bo_handle ring;
	uint32_t ring_handle;
	struct amdgpu_range *ring_range;
	uint32_t *ring_words;
	struct amdgpu_outcome outcomes[AMDGPU_OUTCOMES];
	uint32_t next_outcome;

	pthread_mutex_t flush_lock; /* maps by buffer: one call at a time */

	/* Addresses and slabs. */
	pthread_mutex_t lists_lock;
	struct amdgpu_range *ranges; /* within a window: in order of address */
	uint64_t window_begin, window_end;
	amdgpu_va_handle window;
	struct amdgpu_slab *slabs;
	uint32_t slab_count;
	uint64_t slab_changes; /* how often a slab came or went */
	bool slabs_going;      /* some were destroyed, and their memory may still be on its way back */
	uint64_t spilled;      /* slabs refused because they landed outside VRAM */

	/* Called last when the device is destroyed: the emulated card that it is on. */
	void (*on_destroy)(void *owner);
	void *owner;
};

static inline struct vmkv_amdgpu *amdgpu_of(struct vmkv_device *device)
{
	return (struct vmkv_amdgpu *)device;
}

static inline struct amdgpu_slab *amdgpu_slab_of(struct vmkv_slab *slab)
{
	return (struct amdgpu_slab *)slab;
}

/* Call the driver again while it says that memory is short for a moment (-ENOMEM from a submission
 * or a map under pressure, with nothing wrong a millisecond later): at most this often, 1 ms
 * apart. */
#define AMDGPU_RETRIES 20
void amdgpu_pause(void);

/* ---- amdgpu_addresses.c ---------------------------------------------------------------------- */

int amdgpu_window_init(struct vmkv_amdgpu *gpu, uint64_t begin, uint64_t end);
/* Also gives back all ranges that are left. */
void amdgpu_window_fini(struct vmkv_amdgpu *gpu);
int amdgpu_range_create(struct vmkv_amdgpu *gpu, uint64_t bytes, uint64_t align,
                        struct amdgpu_range **ret);
void amdgpu_range_destroy(struct vmkv_amdgpu *gpu, struct amdgpu_range *range);
int amdgpu_reserve(struct vmkv_device *device, uint64_t bytes, uint64_t align, uint64_t *address);
void amdgpu_release(struct vmkv_device *device, uint64_t address, uint64_t bytes);

/* ---- amdgpu_slab.c --------------------------------------------------------------------------- */

int amdgpu_slab_create(struct vmkv_device *device, uint64_t bytes, struct vmkv_slab **ret);
void amdgpu_slab_destroy(struct vmkv_device *device, struct vmkv_slab *slab);

/* ---- amdgpu_map.c ---------------------------------------------------------------------------- */

/* GEM_VA: MAP and UNMAP take a buffer, CLEAR none. */
int amdgpu_va(struct vmkv_amdgpu *gpu, amdgpu_bo_handle bo, uint32_t operation, uint64_t flags,
              uint64_t offset, uint64_t address, uint64_t bytes);
int amdgpu_map(struct vmkv_device *device, const struct vmkv_map *maps, size_t n, size_t *issued,
               uint64_t *point);
int amdgpu_unmap(struct vmkv_device *device, const struct vmkv_unmap *unmaps, size_t n,
                 size_t *issued, uint64_t *point);

/* ---- amdgpu_submit.c ------------------------------------------------------------------------- */

int amdgpu_submit_init(struct vmkv_amdgpu *gpu);
void amdgpu_submit_fini(struct vmkv_amdgpu *gpu); /* waits for what is under way */
/* What was mapped is there at `point` (0: it isn't known when): with VMKV_SAFE_WAIT_AFTER_MAP, wait
 * until it can be seen. */
int amdgpu_submit_settle(struct vmkv_amdgpu *gpu, uint64_t point);
/* Submit a NOP: the kernel brings the page tables up to date first. */
int amdgpu_submit_commit(struct vmkv_amdgpu *gpu, uint64_t *point);
/* The point of the next submission; and make that, unless somebody did. */
uint64_t amdgpu_submit_promise(struct vmkv_amdgpu *gpu);
int amdgpu_submit_promised(struct vmkv_amdgpu *gpu);
int amdgpu_wait(struct vmkv_device *device, uint64_t point, uint64_t timeout_ns);

/* ---- amdgpu_sdma.c --------------------------------------------------------------------------- */

int amdgpu_fill(struct vmkv_device *device, const struct vmkv_fill *fills, size_t n,
                uint64_t *point);
int amdgpu_copy(struct vmkv_device *device, uint64_t destination, uint64_t source, uint64_t bytes,
                uint64_t *point);
int amdgpu_outcome(struct vmkv_device *device, uint64_t point);

/* For amdgpu_sdma.c, under submit_lock: take a free chunk of the ring, and submit what was written
 * to it. */
int amdgpu_chunk_take(struct vmkv_amdgpu *gpu, uint32_t *chunk, uint32_t **words);
int amdgpu_chunk_submit(struct vmkv_amdgpu *gpu, uint32_t chunk, uint32_t dwords,
                        uint64_t *sequence, uint64_t *point);
/* Note which of the submissions of fills and copies by address have failed. */
void amdgpu_outcomes_settle(struct vmkv_amdgpu *gpu);

/* ---- device_amdgpu.c ------------------------------------------------------------------------- */

struct amdgpu_open {
	int fd;              /* a DRM file: borrowed, libdrm duplicates it; -1: use handle */
	void *handle;        /* an amdgpu_device_handle of the engine's */
	const char *options; /* commit=, slabs=, window=, safe=, wait_us= */
	const char *name;    /* for vmkv_device_info */
	const char *what;    /* what fd is, for error texts; NULL: name */
	uint64_t window_begin, window_end;
	bool private_device; /* not libdrm's shared one for the card, where it has a choice */
	/* Called when libdrm is loaded and before it is used: may fill in the fields above. */
	int (*before)(struct vmkv_amdgpu *gpu, struct amdgpu_open *request);
	void *owner;
};

int amdgpu_device_open(const struct amdgpu_open *request, char *error, size_t error_bytes,
                       struct vmkv_amdgpu **ret);

/* ---- amdgpu_info.c --------------------------------------------------------------------------- */

int amdgpu_health(struct vmkv_device *device, struct vmkv_device_health *ret);

#endif
