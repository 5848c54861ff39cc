/* SPDX-License-Identifier: MIT
 *
 * Submissions, and the packets that they run: sound ones, damaged ones, and some that are neither.
 */
#include <string.h>

#include "fuzz.h"
#include "pm4.h"

#define SLOT_DWORDS 1024
#define IB_DWORDS 512 /* that IBs have */

/* ---- packets --------------------------------------------------------------------------------- */

/* A packet of at most so many dwords on its way into a slot. */
#define PACKET_MOST 40

struct packet {
	uint32_t dwords[PACKET_MOST];
	uint32_t count;
};

static void put(struct packet *packet, uint32_t dword)
{
	if (packet->count < PACKET_MOST)
		packet->dwords[packet->count++] = dword;
}

static void put_address(struct fuzz *fuzz, struct packet *packet)
{
	uint64_t address = fuzz_address(fuzz);

	put(packet, (uint32_t)address);
	put(packet, (uint32_t)(address >> 32));
}

/* So many bytes less one, up to 64 KiB; few are more. */
static uint32_t length(struct fuzz *fuzz)
{
	uint32_t bytes = fuzz_byte(fuzz) + 1u;

	bytes *= fuzz_byte(fuzz) & 1 ? 4 : 256;
	return fuzz_once_in(fuzz, 64) ? (uint32_t)fuzz_garbage(fuzz) & 0x1ffffff : bytes - 1;
}

static void data_put(struct fuzz *fuzz, struct packet *packet, uint32_t n)
{
	while (n-- > 0)
		put(packet, fuzz_byte(fuzz));
}

static void sdma_copy(struct fuzz *fuzz, struct packet *packet)
{
	bool compressed = fuzz_once_in(fuzz, 8);

	put(packet, 1 | (compressed ? 1u << 19 : 0));
	put(packet, length(fuzz));
	put(packet, 0);
	put_address(fuzz, packet);
	put_address(fuzz, packet);
	if (compressed)
		put(packet, 0);
}

static void sdma_packet(struct fuzz *fuzz, struct packet *packet)
{
	uint32_t which = fuzz_byte(fuzz), n = fuzz_byte(fuzz) % 8;

	switch (which % 9) {
	case 0:
		put(packet, n << 16);
		data_put(fuzz, packet, n);
		break;
	case 1:
		sdma_copy(fuzz, packet);
		break;
	case 2:
		put(packet, 2);
		put_address(fuzz, packet);
		put(packet, n);
		data_put(fuzz, packet, n + 1);
		break;
	case 3:
		put(packet, 5 | 3u << 16);
		put_address(fuzz, packet);
		put(packet, which);
		break;
	case 4:
		put(packet, 8 | 1u << 31 | n << 28);
		put_address(fuzz, packet);
		data_put(fuzz, packet, 3);
		break;
	case 5:
		put(packet, 10 | (uint32_t)fuzz_byte(fuzz) << 25 | (n & 1) << 16);
		put_address(fuzz, packet);
		data_put(fuzz, packet, 5);
		break;
	case 6:
		put(packet, 11 | 2u << 30);
		put_address(fuzz, packet);
		put(packet, which);
		put(packet, length(fuzz));
		break;
	case 7:
		put(packet, 13 | 2u << 8);
		put_address(fuzz, packet);
		break;
	default:
		put(packet, fuzz_u32(fuzz));
		data_put(fuzz, packet, n);
	}
}

/* Bodies of packets whose fields are worth knowing. */
static void pm4_body(struct fuzz *fuzz, struct packet *packet, uint32_t op)
{
	uint32_t control = fuzz_u32(fuzz);

	switch (op) {
	case 0x37: /* WRITE_DATA */
		put(packet, (control & 0x100f0f00) | (control & 1 ? 5u << 8 : 0));
		put_address(fuzz, packet);
		break;
	case 0x40: /* COPY_DATA */
		put(packet, control & 0x10f0f);
		put_address(fuzz, packet);
		put_address(fuzz, packet);
		break;
	case 0x50: /* DMA_DATA */
		put(packet, control & 0x60300000);
		put_address(fuzz, packet);
		put_address(fuzz, packet);
		put(packet, length(fuzz));
		break;
	case 0x1e: /* ATOMIC_MEM */
		put(packet, control & 0xf7f);
		put_address(fuzz, packet);
		break;
	case 0x3c: /* WAIT_REG_MEM */
		put(packet, control & 0x17);
		put_address(fuzz, packet);
		break;
	case 0x49: /* RELEASE_MEM */
		put(packet, control);
		put(packet, control & 0x3fff << 16 ? control << 3 : 1u << 29);
		put_address(fuzz, packet);
		break;
	case 0x3f: /* INDIRECT_BUFFER */
	case 0x22: /* COND_EXEC */
		put_address(fuzz, packet);
		break;
	}
}

static void pm4_packet(struct fuzz *fuzz, struct packet *packet)
{
	static const uint8_t usual[] = { 0x10, 0x37, 0x40, 0x50, 0x1e, 0x3c, 0x49, 0x3f, 0x22, 0x46, 0x58,
		                         0x68, 0x69, 0x76, 0x79, 0x20, 0x51, 0xb8, 0xb9, 0xba, 0xbb, 0x12 };
	uint32_t which = fuzz_byte(fuzz), body;
	uint32_t op = which < 192 ? usual[which % sizeof(usual)] : fuzz_byte(fuzz);
	const struct emu_pm4_kind *kind = emu_pm4_kind(op);

	put(packet, 0);
	pm4_body(fuzz, packet, op);
	while (packet->count - 1 < kind->least)
		put(packet, fuzz_byte(fuzz));
	if (kind->most > kind->least)
		data_put(fuzz, packet, fuzz_byte(fuzz) % 8);
	if (packet->count == 1)
		put(packet, 0);
	body = packet->count - 1;
	packet->dwords[0] = 3u << 30 | (body - 1) << 16 | op << 8;
}

static void damage(struct fuzz *fuzz, struct packet *packet)
{
	uint32_t at = fuzz_byte(fuzz) % packet->count;

	if (fuzz_byte(fuzz) & 1)
		packet->dwords[at] ^= 1u << (fuzz_byte(fuzz) & 31);
	else
		packet->count = at;
}

static void slot_fill(struct fuzz *fuzz, uint32_t *words, bool sdma)
{
	uint32_t packets = fuzz_byte(fuzz) % 8 + 1, used = 0;

	for (uint32_t i = 0; i < packets; i++) {
		struct packet packet = { .count = 0 };

		(sdma ? sdma_packet : pm4_packet)(fuzz, &packet);
		if (fuzz_once_in(fuzz, 16))
			damage(fuzz, &packet);
		memcpy(words + used, packet.dwords, packet.count * 4);
		used += packet.count;
	}
	/* Fillers to the end, which the next IB may overwrite in part. */
	for (; used < IB_DWORDS; used++)
		words[used] = sdma ? 0 : 0xffff1000;
}

/* The engines may be running it. */
void fuzz_packets(struct fuzz *fuzz, struct fuzz_file *file)
{
	uint32_t slot = fuzz_byte(fuzz) % FUZZ_SLOTS, words[IB_DWORDS];

	if (!file->words)
		return;
	slot_fill(fuzz, words, slot & 1);
	for (uint32_t i = 0; i < IB_DWORDS; i++)
		__atomic_store_n(&file->words[slot * SLOT_DWORDS + i], words[i], __ATOMIC_RELAXED);
}

/* ---- chunks ---------------------------------------------------------------------------------- */

static void ib_make(struct fuzz *fuzz, struct drm_amdgpu_cs_chunk_ib *ib)
{
	uint32_t slot = fuzz_byte(fuzz) % FUZZ_SLOTS, which = fuzz_byte(fuzz);

	*ib = (struct drm_amdgpu_cs_chunk_ib){
		.va_start = FUZZ_WORK_VA + slot * 4096,
		.ib_bytes = which & 4 ? 4 * IB_DWORDS : (which & 0x3f) * 32,
		.ip_type = slot & 1                   ? AMDGPU_HW_IP_DMA
		           : fuzz->gpu->model->gfx_rings ? which >> 6 & 1
		                                         : AMDGPU_HW_IP_COMPUTE,
		.ring = which == 3,
	};
	if (fuzz_once_in(fuzz, 16))
		ib->va_start = fuzz_address(fuzz);
	if (fuzz_once_in(fuzz, 16))
		ib->ib_bytes = (uint32_t)fuzz_garbage(fuzz) & 0x7ffff; /* longer ones just take long */
	if (fuzz_once_in(fuzz, 32))
		ib->flags = (uint32_t)fuzz_garbage(fuzz);
	if (fuzz_once_in(fuzz, 32))
		ib->ip_type = (uint32_t)fuzz_garbage(fuzz);
	if (fuzz_once_in(fuzz, 32))
		ib->ring = (uint32_t)fuzz_garbage(fuzz);
}

/* Returns its dwords. */
static uint32_t chunk_fill(struct fuzz *fuzz, uint32_t id, void **data)
{
	uint32_t n = fuzz_byte(fuzz) % 5;
	uint32_t *words = fuzz_room(fuzz, 256);

	*data = words;
	switch (id) {
	case AMDGPU_CHUNK_ID_IB:
		ib_make(fuzz, (struct drm_amdgpu_cs_chunk_ib *)words);
		return sizeof(struct drm_amdgpu_cs_chunk_ib) / 4;
	case AMDGPU_CHUNK_ID_FENCE:
		words[0] = fuzz_small(fuzz);
		words[1] = fuzz_once_in(fuzz, 8) ? (uint32_t)fuzz_garbage(fuzz) : 0;
		return 2;
	case AMDGPU_CHUNK_ID_DEPENDENCIES:
	case AMDGPU_CHUNK_ID_SCHEDULED_DEPENDENCIES:
		for (uint32_t i = 0; i < n; i++)
			((struct drm_amdgpu_cs_chunk_dep *)words)[i] = (struct drm_amdgpu_cs_chunk_dep){
				.ip_type = fuzz_byte(fuzz) % 3, .ctx_id = fuzz_small(fuzz),
				.ring = fuzz_once_in(fuzz, 8), .handle = fuzz_small(fuzz) };
		return n * sizeof(struct drm_amdgpu_cs_chunk_dep) / 4;
	case AMDGPU_CHUNK_ID_BO_HANDLES:
		*(struct drm_amdgpu_bo_list_in *)words = (struct drm_amdgpu_bo_list_in){
			.operation = UINT32_MAX, .list_handle = UINT32_MAX, .bo_number = n,
			.bo_info_size = 8, .bo_info_ptr = fuzz_entries(fuzz) };
		return sizeof(struct drm_amdgpu_bo_list_in) / 4;
	case AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT:
	case AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL:
		for (uint32_t i = 0; i < n; i++)
			((struct drm_amdgpu_cs_chunk_syncobj *)words)[i] =
			    (struct drm_amdgpu_cs_chunk_syncobj){ .handle = fuzz_small(fuzz),
				                                  .flags = fuzz_byte(fuzz) & 3,
				                                  .point = fuzz_small(fuzz) };
		return n * sizeof(struct drm_amdgpu_cs_chunk_syncobj) / 4;
	default:
		for (uint32_t i = 0; i < n; i++)
			words[i] = fuzz_small(fuzz);
		return n;
	}
}

static uint64_t chunk_make(struct fuzz *fuzz, uint32_t id)
{
	struct drm_amdgpu_cs_chunk *chunk = fuzz_room(fuzz, sizeof(*chunk));
	struct drm_amdgpu_cs_chunk made = { .chunk_id = id };
	void *data;

	made.length_dw = chunk_fill(fuzz, id, &data);
	made.chunk_data = (uintptr_t)data;
	if (fuzz_once_in(fuzz, 32))
		made.length_dw = (uint32_t)fuzz_garbage(fuzz) & 0xffffff;
	if (fuzz_once_in(fuzz, 32))
		made.chunk_data = fuzz_nowhere(fuzz);
	*chunk = made;
	return (uintptr_t)chunk;
}

/* ---- submissions ----------------------------------------------------------------------------- */

void fuzz_submission(struct fuzz *fuzz, union drm_amdgpu_cs *args)
{
	uint32_t n = fuzz_byte(fuzz) & 1 ? fuzz_byte(fuzz) % 4 + 2 : 1;
	uint64_t *chunks = fuzz_room(fuzz, 64);

	args->in.ctx_id = fuzz_once_in(fuzz, 16) ? fuzz_u32(fuzz) : fuzz_once_in(fuzz, 3) + 1;
	args->in.bo_list_handle = fuzz_once_in(fuzz, 4) ? fuzz_byte(fuzz) & 3 : 0;
	args->in.num_chunks = n;
	args->in.chunks = (uintptr_t)chunks;
	for (uint32_t i = 0; i < n; i++)
		chunks[i] = chunk_make(fuzz, i ? fuzz_byte(fuzz) % 11 : AMDGPU_CHUNK_ID_IB);
	if (fuzz_once_in(fuzz, 32))
		chunks[n - 1] = fuzz_nowhere(fuzz);
	if (fuzz_once_in(fuzz, 32))
		args->in.chunks = fuzz_nowhere(fuzz);
	if (fuzz_once_in(fuzz, 32))
		args->in.num_chunks = (uint32_t)fuzz_garbage(fuzz);
	if (fuzz_once_in(fuzz, 32))
		args->in.flags = (uint32_t)fuzz_garbage(fuzz);
}
