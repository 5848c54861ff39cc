/* SPDX-License-Identifier: MIT
 *
 * Fills and copies of the amdgpu device: packets for the card's own copy engine, SDMA (gfx9 to
 * gfx12).
 */
#include "amdgpu.h"

#include <errno.h>
#include <string.h>

#define SDMA_COPY_LINEAR 1u
#define SDMA_CONST_FILL 11u
#define SDMA_FILL_DWORDS (2u << 30) /* the value is a dword's */

#define COPY_DWORDS 7
#define FILL_DWORDS 5

/* Packets on their way into chunks. */
struct packets {
	struct vmkv_amdgpu *gpu;
	uint32_t chunk, dwords;
	uint32_t *words; /* NULL: no chunk is begun */
	bool by_address;
	uint64_t before; /* the point before the first submission */
	uint64_t point;  /* of what was submitted last */
};

static int packets_submit(struct packets *packets)
{
	struct vmkv_amdgpu *gpu = packets->gpu;
	struct amdgpu_outcome *outcome = &gpu->outcomes[gpu->next_outcome];
	uint64_t sequence;
	int rc;

	if (!packets->words)
		return 0;
	packets->words = NULL;
	rc = amdgpu_chunk_submit(gpu, packets->chunk, packets->dwords, &sequence, &packets->point);
	packets->dwords = 0;
	if (!rc && packets->by_address) {
		*outcome = (struct amdgpu_outcome){ .point = packets->point, .sequence = sequence };
		gpu->next_outcome = (gpu->next_outcome + 1) % AMDGPU_OUTCOMES;
	}
	return rc;
}

/* Submit the rest. All outcomes are asked for by the last point. */
static int packets_end(struct packets *packets, uint64_t *point)
{
	int rc = packets_submit(packets);

	if (rc)
		return rc;
	for (uint32_t i = 0; packets->by_address && i < AMDGPU_OUTCOMES; i++)
		if (packets->gpu->outcomes[i].point > packets->before)
			packets->gpu->outcomes[i].point = packets->point;
	*point = packets->point;
	return 0;
}

/* Room for a packet; a full chunk is submitted. *n: how many of the bytes it can do. Returns NULL
 * with *rc set. */
static uint32_t *packet_begin(struct packets *packets, uint32_t dwords, uint64_t bytes, uint32_t *n,
                              int *rc)
{
	uint32_t most = packets->gpu->sdma_packet_bytes, *words;

	*n = bytes < most ? (uint32_t)bytes : most;
	*rc = 0;
	if (packets->dwords + dwords > AMDGPU_CHUNK_DWORDS)
		*rc = packets_submit(packets);
	if (!*rc && !packets->words)
		*rc = amdgpu_chunk_take(packets->gpu, &packets->chunk, &packets->words);
	if (*rc)
		return NULL;
	words = packets->words + packets->dwords;
	packets->dwords += dwords;
	return words;
}

static int fill_add(struct packets *packets, uint64_t address, uint64_t bytes, uint32_t value)
{
	while (bytes > 0) {
		uint32_t n;
		int rc;
		uint32_t *words = packet_begin(packets, FILL_DWORDS, bytes, &n, &rc);

		if (!words)
			return rc;
		words[0] = SDMA_CONST_FILL | SDMA_FILL_DWORDS;
		words[1] = (uint32_t)address;
		words[2] = (uint32_t)(address >> 32);
		words[3] = value;
		words[4] = n - 1;
		address += n;
		bytes -= n;
	}
	return 0;
}

static int copy_add(struct packets *packets, uint64_t destination, uint64_t source, uint64_t bytes)
{
	while (bytes > 0) {
		uint32_t n;
		int rc;
		uint32_t *words = packet_begin(packets, COPY_DWORDS, bytes, &n, &rc);

		if (!words)
			return rc;
		words[0] = SDMA_COPY_LINEAR;
		words[1] = n - 1;
		words[2] = 0;
		words[3] = (uint32_t)source;
		words[4] = (uint32_t)(source >> 32);
		words[5] = (uint32_t)destination;
		words[6] = (uint32_t)(destination >> 32);
		source += n;
		destination += n;
		bytes -= n;
	}
	return 0;
}

int amdgpu_fill(struct vmkv_device *device, const struct vmkv_fill *fills, size_t n,
                uint64_t *point)
{
	struct vmkv_amdgpu *gpu = amdgpu_of(device);
	struct packets packets = { .gpu = gpu };
	int rc = 0;

	pthread_mutex_lock(&gpu->submit_lock);
	packets.before = packets.point = atomic_load(&gpu->submitted);
	for (size_t i = 0; i < n && !rc; i++) {
		uint64_t address = fills[i].offset;

		if (fills[i].slab)
			address += fills[i].slab->alias;
		else
			packets.by_address = true;
		rc = fill_add(&packets, address, fills[i].bytes, fills[i].value);
	}
	if (!rc)
		rc = packets_end(&packets, point);
	pthread_mutex_unlock(&gpu->submit_lock);
	return rc;
}

int amdgpu_copy(struct vmkv_device *device, uint64_t destination, uint64_t source, uint64_t bytes,
                uint64_t *point)
{
	struct vmkv_amdgpu *gpu = amdgpu_of(device);
	struct packets packets = { .gpu = gpu, .by_address = true };
	int rc;

	pthread_mutex_lock(&gpu->submit_lock);
	packets.before = packets.point = atomic_load(&gpu->submitted);
	rc = copy_add(&packets, destination, source, bytes);
	if (!rc)
		rc = packets_end(&packets, point);
	pthread_mutex_unlock(&gpu->submit_lock);
	return rc;
}

/* ---- what became of them --------------------------------------------------------------------- */

/* 0, or -EFAULT: it was given up half way. Other errors are the question's own. */
static int submission_result(struct vmkv_amdgpu *gpu, uint64_t sequence)
{
	struct amdgpu_cs_fence fence = {
		.context = gpu->context,
		.ip_type = AMDGPU_HW_IP_DMA,
		.fence = sequence,
	};
	uint32_t expired;
	int rc = vmkv_libdrm_result(
	    gpu->drm.amdgpu_cs_query_fence_status(&fence, 0, 0, &expired));

	/* What a fence's error can be after a reset or a fault. */
	return rc == -ECANCELED || rc == -ETIME || rc == -ENODATA ? -EFAULT : rc < 0 ? rc : 0;
}

void amdgpu_outcomes_settle(struct vmkv_amdgpu *gpu)
{
	for (uint32_t i = 0; i < AMDGPU_OUTCOMES; i++)
		if (gpu->outcomes[i].point && !gpu->outcomes[i].failed)
			gpu->outcomes[i].failed = submission_result(gpu, gpu->outcomes[i].sequence) != 0;
}

int amdgpu_outcome(struct vmkv_device *device, uint64_t point)
{
	struct vmkv_amdgpu *gpu = amdgpu_of(device);
	int result = 0;

	pthread_mutex_lock(&gpu->submit_lock);
	for (uint32_t i = 0; point && i < AMDGPU_OUTCOMES; i++) {
		struct amdgpu_outcome *outcome = &gpu->outcomes[i];
		int rc;

		if (outcome->point != point)
			continue;
		rc = outcome->failed ? -EFAULT : submission_result(gpu, outcome->sequence);
		outcome->point = 0;
		result = result == -EFAULT || rc == 0 ? result : rc;
	}
	pthread_mutex_unlock(&gpu->submit_lock);
	if (result == -EFAULT)
		return vmkv_device_fail(device, -EFAULT,
		                        "a copy or fill met an address that has no memory behind it");
	if (result)
		return vmkv_device_fail(device, result,
		                        "the kernel didn't tell what became of a copy or fill: %s",
		                        strerror(-result));
	return 0;
}
