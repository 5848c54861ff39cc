/* SPDX-License-Identifier: MIT
 *
 * The packets of the SDMA engines, v4 (gfx9) to v7 (gfx12): those that a process needs to move its memory
 * about. Every address goes through the page tables of the process, that of the packets too.
 */
#include <errno.h>
#include <inttypes.h>

#include "emu.h"

#define OP_NOP 0
#define OP_COPY 1
#define OP_WRITE 2
#define OP_FENCE 5
#define OP_POLL_REGMEM 8
#define OP_ATOMIC 10
#define OP_CONST_FILL 11
#define OP_TIMESTAMP 13
#define SUB_LINEAR 0
#define SUB_GLOBAL 2
#define PACKET_DWORDS 8 /* of the longest head */

#define ATOMIC_LOOP (1u << 16)
#define POLL_MEMORY (1u << 31)
#define COPY_TMZ (1u << 18)
#define COPY_CPV (1u << 19) /* v7: a dword on compression follows */

/* One IB on its way. */
struct reader {
	struct emu_gpu *gpu;
	struct emu_vm *vm;
	struct emu_job *job;
	uint64_t address; /* of the packet ... */
	uint32_t left;    /* ... and the dwords from there to the end of the IB */
	uint32_t packet[PACKET_DWORDS];
	uint32_t dwords; /* of the packet that were read */
	uint64_t packets;
};

static const char *op_name(uint32_t op)
{
	static const char *const names[] = {
		[0] = "NOP",          [1] = "COPY",      [2] = "WRITE",       [4] = "INDIRECT",
		[5] = "FENCE",        [6] = "TRAP",      [7] = "SEMAPHORE",   [8] = "POLL_REGMEM",
		[9] = "COND_EXE",     [10] = "ATOMIC",   [11] = "CONST_FILL", [12] = "GEN_PTEPDE",
		[13] = "TIMESTAMP",   [14] = "SRBM_WRITE", [15] = "PRE_EXE",  [16] = "GPUVM_INV",
		[17] = "GCR_REQ",     [32] = "DUMMY_TRAP",
	};

	return op < sizeof(names) / sizeof(names[0]) && names[op] ? names[op] : "unknown";
}

static int packet_refuse(const struct reader *reader, const char *why)
{
	uint32_t header = reader->packet[0];

	return emu_refuse(reader->gpu, -EINVAL, "SDMA packet %s (0x%08x) at 0x%" PRIx64 ": %s",
	                  op_name(header & 0xff), header, reader->address, why);
}

/* The first dwords of the packet; no more than the IB has. */
static int packet_read(struct reader *reader)
{
	reader->dwords = reader->left < PACKET_DWORDS ? reader->left : PACKET_DWORDS;
	return emu_gpu_read(reader->vm, reader->packet, reader->address,
	                    (uint64_t)reader->dwords * 4);
}

static uint64_t address_at(const struct reader *reader, uint32_t i)
{
	return (uint64_t)reader->packet[i + 1] << 32 | reader->packet[i];
}

static bool header_is(const struct reader *reader, uint32_t allowed)
{
	return !(reader->packet[0] & ~allowed);
}

/* How many bits counts of bytes have: 22 until SDMA 5.0, apart from 4.4; 30 since. */
static uint32_t count_bits(const struct emu_model *model)
{
	if (model->sdma_major == 4)
		return model->sdma_minor >= 4 ? 30 : 22;
	return model->sdma_major == 5 && model->sdma_minor < 2 ? 22 : 30;
}

static bool count_is_valid(const struct reader *reader, uint32_t count)
{
	return !(count >> count_bits(reader->gpu->model));
}

/* ---- packets: each returns its length in dwords, or an error ------------------------------------------ */

static int64_t nop_run(struct reader *reader)
{
	if (!header_is(reader, 0x3fff00ff))
		return packet_refuse(reader, "unknown bits");
	return 1 + ((reader->packet[0] >> 16) & 0x3fff);
}

static int64_t copy_run(struct reader *reader)
{
	bool v7 = reader->gpu->model->sdma_major >= 7;
	uint32_t header = reader->packet[0];
	uint32_t length = v7 && header & COPY_CPV ? 8 : 7;
	int error;

	if (header & COPY_TMZ)
		return packet_refuse(reader, "encrypted memory isn't emulated");
	if (!header_is(reader, v7 ? 0xffffu | COPY_CPV : 0xffffu))
		return packet_refuse(reader, "unknown bits");
	if (reader->dwords < length)
		return packet_refuse(reader, "the IB ends within it");
	if (!count_is_valid(reader, reader->packet[1]))
		return packet_refuse(reader, "more bytes than its field holds");
	if (reader->packet[2])
		return packet_refuse(reader, "swapping isn't emulated");
	if (length == 8 && reader->packet[7])
		return packet_refuse(reader, "compression isn't emulated");
	error = emu_gpu_copy(reader->vm, address_at(reader, 5), address_at(reader, 3),
	                     (uint64_t)reader->packet[1] + 1);
	return error ? error : (int64_t)length;
}

static int64_t write_run(struct reader *reader)
{
	uint32_t count;
	int error;

	if (!header_is(reader, 0xffff))
		return packet_refuse(reader, "unknown bits");
	if (reader->dwords < 4)
		return packet_refuse(reader, "the IB ends within it");
	count = reader->packet[3];
	if (count >> 20)
		return packet_refuse(reader, "more dwords than its field holds");
	if (reader->left < 4 || reader->left - 4 < count + 1)
		return packet_refuse(reader, "the IB ends within it");
	if (reader->packet[1] & 3)
		return packet_refuse(reader, "its address isn't a multiple of 4");
	error = emu_gpu_copy(reader->vm, address_at(reader, 1), reader->address + 16,
	                     (uint64_t)(count + 1) * 4);
	return error ? error : (int64_t)count + 5;
}

/* fillsize (bits 31:30) is 2 for dwords. The kernel's own packets have 0 there and mean dwords too. */
static int64_t fill_run(struct reader *reader)
{
	uint32_t fillsize = reader->packet[0] >> 30;
	int error;

	if (!header_is(reader, 0xc000ffff))
		return packet_refuse(reader, "unknown bits");
	if (fillsize != 0 && fillsize != 2)
		return packet_refuse(reader, "only fills with dwords are emulated");
	if (reader->dwords < 5)
		return packet_refuse(reader, "the IB ends within it");
	if (!count_is_valid(reader, reader->packet[4]))
		return packet_refuse(reader, "more bytes than its field holds");
	if (fillsize == 2 && ((reader->packet[1] & 3) || (reader->packet[4] & 3) != 3))
		return packet_refuse(reader, "its address or size isn't a multiple of 4");
	error = emu_gpu_fill(reader->vm, address_at(reader, 1), reader->packet[3],
	                     (uint64_t)reader->packet[4] + 1);
	return error ? error : 5;
}

static int64_t fence_run(struct reader *reader)
{
	int error;

	/* MTYPE, snooping and the like, bits 16 to 31, are about caches. */
	if (reader->packet[0] & 0xff00)
		return packet_refuse(reader, "unknown kind");
	if (reader->dwords < 4)
		return packet_refuse(reader, "the IB ends within it");
	if (reader->packet[1] & 3)
		return packet_refuse(reader, "its address isn't a multiple of 4");
	error = emu_gpu_write(reader->vm, address_at(reader, 1), &reader->packet[3], 4);
	return error ? error : 4;
}

/* Header: bit 16 loops until the comparison holds, bit 18 is TMZ, the operation is in bits 31:25. */
static int64_t atomic_run(struct reader *reader)
{
	uint32_t operation = reader->packet[0] >> 25, bytes = emu_atomic_bytes(operation);
	uint64_t compare = address_at(reader, 5), old;
	int error;

	if (reader->dwords < 8)
		return packet_refuse(reader, "the IB ends within it");
	if (!bytes)
		return packet_refuse(reader, "its operation isn't emulated");
	if (!header_is(reader, 0xfe0100ff))
		return packet_refuse(reader, "unknown bits, or encrypted memory");
	if (reader->packet[1] & (bytes - 1))
		return packet_refuse(reader, "its address isn't a multiple of its size");
	error = emu_gpu_atomic(reader->vm, address_at(reader, 1), operation, address_at(reader, 3),
	                       compare, &old);
	if (!error && reader->packet[0] & ATOMIC_LOOP && emu_atomic_failed(operation, compare, old))
		return -EAGAIN;
	return error ? error : 8;
}

/* Header: the function in bits 30:28, bit 31 for memory; the last dword says how often to look. */
static int64_t poll_run(struct reader *reader)
{
	uint32_t header = reader->packet[0];
	uint64_t value;
	int error;

	if (reader->dwords < 6)
		return packet_refuse(reader, "the IB ends within it");
	if (!(header & POLL_MEMORY) || !header_is(reader, 0xf00000ff) || (header >> 28 & 7) == 7)
		return packet_refuse(reader, "only memory is polled, and with functions 0 to 6");
	if (reader->packet[1] & 3)
		return packet_refuse(reader, "its address isn't a multiple of 4");
	error = emu_gpu_load(reader->vm, address_at(reader, 1), 4, &value);
	if (error)
		return error;
	if (!emu_wait_is_over(header >> 28 & 7, (uint32_t)value & reader->packet[4],
	                      reader->packet[3]))
		return -EAGAIN;
	return 6;
}

/* The GPU's clock; sub 0 and 1 would set and read local ones. */
static int64_t timestamp_run(struct reader *reader)
{
	uint64_t now = emu_gpu_clock(reader->gpu);
	int error;

	if (!header_is(reader, 0xffff) || (reader->packet[0] >> 8 & 0xff) != SUB_GLOBAL)
		return packet_refuse(reader, "only the global clock is emulated");
	if (reader->dwords < 3)
		return packet_refuse(reader, "the IB ends within it");
	if (reader->packet[1] & 7)
		return packet_refuse(reader, "its address isn't a multiple of 8");
	error = emu_gpu_write(reader->vm, address_at(reader, 1), &now, sizeof(now));
	return error ? error : 3;
}

static int64_t packet_run(struct reader *reader)
{
	uint32_t op = reader->packet[0] & 0xff, sub = reader->packet[0] >> 8 & 0xff;

	if (op == OP_NOP)
		return nop_run(reader);
	if (op == OP_COPY && sub == SUB_LINEAR)
		return copy_run(reader);
	if (op == OP_WRITE && sub == SUB_LINEAR)
		return write_run(reader);
	if (op == OP_CONST_FILL && sub == 0)
		return fill_run(reader);
	if (op == OP_FENCE)
		return fence_run(reader);
	if (op == OP_ATOMIC)
		return atomic_run(reader);
	if (op == OP_POLL_REGMEM && sub == 0)
		return poll_run(reader);
	if (op == OP_TIMESTAMP)
		return timestamp_run(reader);
	return packet_refuse(reader, "it isn't emulated");
}

static int packet_next(struct reader *reader)
{
	int64_t length = packet_read(reader);

	if (!length)
		length = packet_run(reader);
	if (length < 0)
		return (int)length;
	if (length > reader->left)
		return packet_refuse(reader, "the IB ends within it");
	reader->address += (uint64_t)length * 4;
	reader->left -= (uint32_t)length;
	reader->packets++;
	reader->job->polls_since_ns = 0;
	return 0;
}

int emu_sdma_run(struct emu_gpu *gpu, struct emu_job *job)
{
	struct emu_stream *stream = &job->streams[0];
	struct reader reader = { .gpu = gpu, .vm = job->vm, .job = job,
		                 .address = stream->address, .left = stream->left };
	int error = 0;

	while (reader.left && !error)
		error = packet_next(&reader);
	*stream = (struct emu_stream){ .address = reader.address, .left = reader.left };
	if (!error)
		job->stream_count = 0;
	pthread_mutex_lock(&gpu->lock);
	gpu->counts.packets += reader.packets;
	pthread_mutex_unlock(&gpu->lock);
	return error;
}
