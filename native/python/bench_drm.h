/* SPDX-License-Identifier: MIT
 *
 * What `vmkv bench --hardware` times on a card: single changes of its page tables, each until it is
 * done. In C, because Python takes as long for a call as the driver does for a small one.
 */
#ifndef VMKV_BENCH_DRM_H
#define VMKV_BENCH_DRM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libdrm.h"

/* What a loop works on; all of it is the caller's, of one device. */
struct vmkv_bench_card {
	const struct vmkv_libdrm *libdrm;
	amdgpu_device_handle device;
	amdgpu_context_handle context;
	amdgpu_bo_handle buffer; /* always valid, of twice the size of a piece */
	uint32_t handle;         /* its GEM handle */
	uint32_t syncobj;        /* a timeline: what is done signals its next point */
	uint64_t point;          /* the last one that was given to it */
	uint64_t nops;           /* address of 32 bytes of NOPs for the SDMA ring */
	/* How changes are committed. By submission: GEM_VA with DELAY, then a CS, whose fence says when
	 * they are done. By buffer: GEM_VA without DELAY, told by its own timeline point, or, before
	 * DRM 3.64, by a submission that follows. */
	bool by_buffer;
	bool timeline;
	uint64_t refusals; /* how often the kernel had no memory, and was asked again 1 ms later */
};

/* In the order of a cycle: the first map of an address has to make page tables, later ones find
 * them. */
enum vmkv_bench_change {
	VMKV_BENCH_FIRST_MAP,
	VMKV_BENCH_REMAP, /* unmap, and map other memory at the same address */
	VMKV_BENCH_UNMAP,
	VMKV_BENCH_MAP,
	VMKV_BENCH_CLEAR,
	VMKV_BENCH_CHANGES
};

struct vmkv_bench_time {
	uint64_t call_ns; /* until the calls that ask for the change had returned */
	uint64_t done_ns; /* until its fence was reached */
};

/* One cycle of changes of a piece at an address that has nothing behind it, and has nothing in the
 * end. ret has VMKV_BENCH_CHANGES elements. -ETIME: a fence wasn't reached within ten seconds. On
 * an error something may still be mapped there. */
int vmkv_bench_card_cycle(struct vmkv_bench_card *card, uint64_t address, uint64_t bytes,
                          struct vmkv_bench_time *ret);

#endif
