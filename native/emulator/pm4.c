/* SPDX-License-Identifier: MIT
 *
 * The packets of GFX and COMPUTE rings. They take submissions, for their order and fences; of the packets
 * only those that do nothing are emulated.
 */
#include <errno.h>
#include <inttypes.h>

#include "emu.h"

#define TYPE_2 2u /* filler */
#define TYPE_3 3u
#define OP_NOP 0x10
#define NOP_ALONE 0x3fffu /* a count that stands for no dword at all */

static const char *op_name(uint32_t op)
{
	static const struct {
		uint32_t op;
		const char *name;
	} names[] = {
		{ 0x15, "DISPATCH_DIRECT" }, { 0x1e, "ATOMIC_MEM" },   { 0x28, "CONTEXT_CONTROL" },
		{ 0x2d, "DRAW_INDEX_AUTO" }, { 0x37, "WRITE_DATA" },   { 0x3c, "WAIT_REG_MEM" },
		{ 0x3f, "INDIRECT_BUFFER" }, { 0x40, "COPY_DATA" },    { 0x46, "EVENT_WRITE" },
		{ 0x49, "RELEASE_MEM" },     { 0x50, "DMA_DATA" },     { 0x58, "ACQUIRE_MEM" },
		{ 0x68, "SET_CONFIG_REG" },  { 0x69, "SET_CONTEXT_REG" }, { 0x76, "SET_SH_REG" },
		{ 0x79, "SET_UCONFIG_REG" },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].op == op)
			return names[i].name;
	return "unknown";
}

/* Its length in dwords, or an error. */
static int64_t packet_run(struct emu_gpu *gpu, uint32_t header, uint64_t address)
{
	uint32_t type = header >> 30, op = header >> 8 & 0xff, count = header >> 16 & 0x3fff;

	if (type == TYPE_2)
		return 1;
	if (type != TYPE_3)
		return emu_refuse(gpu, -EINVAL, "PM4 packet of type %u (0x%08x) at 0x%" PRIx64
		                  " isn't emulated", type, header, address);
	if (op != OP_NOP)
		return emu_refuse(gpu, -EINVAL, "PM4 packet %s (0x%08x) at 0x%" PRIx64
		                  " isn't emulated", op_name(op), header, address);
	return count == NOP_ALONE ? 1 : count + 2;
}

int emu_pm4_run(struct emu_gpu *gpu, struct emu_job *job, const struct emu_ib *ib)
{
	for (uint64_t done = 0; done < ib->dwords;) {
		uint64_t address = ib->address + done * 4;
		uint32_t header;
		int64_t length = emu_gpu_read(job->vm, &header, address, sizeof(header));

		if (!length)
			length = packet_run(gpu, header, address);
		if (length < 0)
			return (int)length;
		done += (uint64_t)length;
		if (done > ib->dwords)
			return emu_refuse(gpu, -EINVAL, "PM4 packet NOP (0x%08x) at 0x%" PRIx64
			                  ": the IB ends within it", header, address);
	}
	return 0;
}
