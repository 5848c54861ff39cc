/* SPDX-License-Identifier: MIT */
#include "bench_drm.h"

#include <errno.h>
#include <time.h>

#include "../abi/amdgpu.h"
#include "../abi/amdgpu_ioctl.h"
#include "util.h"

#define PATIENCE_NS UINT64_C(10000000000)
#define NOP_BYTES 32
#define RETRIES 50
#define RETRY_PAUSE_NS 1000000
#define PIECE_FLAGS (AMDGPU_VM_PAGE_READABLE | AMDGPU_VM_PAGE_WRITEABLE)

/* Whether to ask again for what the kernel had no memory for just now. */
static bool again(struct vmkv_bench_card *card, int rc, unsigned *tries)
{
	const struct timespec pause = { .tv_nsec = RETRY_PAUSE_NS };

	if (rc != -ENOMEM || ++*tries > RETRIES)
		return false;
	card->refusals++;
	nanosleep(&pause, NULL);
	return true;
}

/* A submission of NOPs: it makes the page tables follow, and signals the next point. */
static int submit(struct vmkv_bench_card *card)
{
	struct drm_amdgpu_cs_chunk_ib ib = {
		.va_start = card->nops, .ib_bytes = NOP_BYTES, .ip_type = AMDGPU_HW_IP_DMA,
	};
	struct drm_amdgpu_cs_chunk_syncobj signal = { .handle = card->syncobj,
		                                      .point = card->point + 1 };
	struct drm_amdgpu_cs_chunk chunks[] = {
		{ AMDGPU_CHUNK_ID_IB, sizeof(ib) / 4, (uintptr_t)&ib },
		{ AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL, sizeof(signal) / 4, (uintptr_t)&signal },
	};
	uint64_t sequence;
	unsigned tries = 0;
	int rc;

	do
		rc = vmkv_libdrm_result(card->libdrm->amdgpu_cs_submit_raw2(
		    card->device, card->context, 0, 2, chunks, &sequence));
	while (again(card, rc, &tries));
	if (!rc)
		card->point++;
	return rc;
}

static int wait(struct vmkv_bench_card *card)
{
	int64_t until_ns = (int64_t)(vmkv_clock_ns(CLOCK_MONOTONIC) + PATIENCE_NS);

	return vmkv_libdrm_result(card->libdrm->amdgpu_cs_syncobj_timeline_wait(
	    card->device, &card->syncobj, &card->point, 1, until_ns, 0, NULL));
}

struct change {
	uint32_t operation;
	uint64_t address, bytes, offset;
};

static uint64_t flags_of(const struct change *change)
{
	return change->operation == AMDGPU_VA_OP_MAP ? PIECE_FLAGS : 0;
}

static int change_delayed(struct vmkv_bench_card *card, const struct change *change)
{
	return vmkv_libdrm_result(card->libdrm->amdgpu_bo_va_op_raw(
	    card->device, change->operation == AMDGPU_VA_OP_CLEAR ? NULL : card->buffer,
	    change->offset, change->bytes, change->address,
	    flags_of(change) | AMDGPU_VM_DELAY_UPDATE, change->operation));
}

/* Without DELAY, with a point where the kernel gives one. libdrm's own call for that is younger
 * than the kernels that have it. */
static int change_flushed(struct vmkv_bench_card *card, const struct change *change)
{
	struct drm_amdgpu_gem_va va = {
		.handle = change->operation == AMDGPU_VA_OP_CLEAR ? 0 : card->handle,
		.operation = change->operation,
		.flags = (uint32_t)flags_of(change),
		.va_address = change->address,
		.offset_in_bo = change->offset,
		.map_size = change->bytes,
		.vm_timeline_syncobj_out = card->timeline ? card->syncobj : 0,
		.vm_timeline_point = card->timeline ? card->point + 1 : 0,
	};
	int rc = vmkv_libdrm_result(
	    card->libdrm->drmCommandWriteRead(card->libdrm->amdgpu_device_get_fd(card->device),
	                                      DRM_AMDGPU_GEM_VA, &va, sizeof(va)));

	if (!rc && card->timeline)
		card->point++;
	return rc;
}

/* Ask for changes that are committed together, and wait until they are done. */
static int commit(struct vmkv_bench_card *card, const struct change *changes, size_t n,
                  struct vmkv_bench_time *ret)
{
	uint64_t begin_ns = vmkv_clock_ns(CLOCK_MONOTONIC);
	int rc = 0;

	for (size_t i = 0; !rc && i < n; i++) {
		bool last = i + 1 == n;
		unsigned tries = 0;

		do
			rc = card->by_buffer && last ? change_flushed(card, &changes[i])
			                             : change_delayed(card, &changes[i]);
		while (again(card, rc, &tries));
	}
	if (!rc && !card->by_buffer)
		rc = submit(card);
	ret->call_ns = vmkv_clock_ns(CLOCK_MONOTONIC) - begin_ns;
	if (!rc && card->by_buffer && !card->timeline)
		rc = submit(card);
	if (!rc)
		rc = wait(card);
	ret->done_ns = vmkv_clock_ns(CLOCK_MONOTONIC) - begin_ns;
	return rc;
}

int vmkv_bench_card_cycle(struct vmkv_bench_card *card, uint64_t address, uint64_t bytes,
                          struct vmkv_bench_time *ret)
{
	const struct change map = { AMDGPU_VA_OP_MAP, address, bytes, 0 };
	const struct change other = { AMDGPU_VA_OP_MAP, address, bytes, bytes };
	const struct change unmap = { AMDGPU_VA_OP_UNMAP, address, bytes, 0 };
	const struct change clear = { AMDGPU_VA_OP_CLEAR, address, bytes, 0 };
	const struct change both[] = { unmap, other };
	int rc = commit(card, &map, 1, &ret[VMKV_BENCH_FIRST_MAP]);

	if (!rc)
		rc = commit(card, both, 2, &ret[VMKV_BENCH_REMAP]);
	if (!rc)
		rc = commit(card, &unmap, 1, &ret[VMKV_BENCH_UNMAP]);
	if (!rc)
		rc = commit(card, &map, 1, &ret[VMKV_BENCH_MAP]);
	if (!rc)
		rc = commit(card, &clear, 1, &ret[VMKV_BENCH_CLEAR]);
	return rc;
}
