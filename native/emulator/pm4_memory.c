/* SPDX-License-Identifier: MIT
 *
 * Packets that write, copy and change memory and registers.
 */
#include <errno.h>

#include "pm4.h"

static bool is_aligned(uint64_t address, uint32_t bytes)
{
	return !(address & (bytes - 1));
}

/* ---- WRITE_DATA ---------------------------------------------------------------------------------- */

#define WRITE_REGISTER 0
#define WRITE_GDS 3
#define WRITE_ONE_ADDRESS (1u << 16)

static int registers_write(struct emu_pm4 *pm4, uint32_t index, uint32_t n, bool one)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t value;
		int error = emu_gpu_read(pm4->vm, &value, pm4->address + 16 + 4ULL * i, 4);

		if (!error && index + (one ? 0 : i) >= EMU_REGISTERS)
			error = emu_pm4_refuse(pm4, "there is no such register");
		if (!error)
			error = emu_register_write(pm4->gpu, index + (one ? 0 : i), value);
		if (error)
			return error;
	}
	return 0;
}

int emu_pm4_write_data(struct emu_pm4 *pm4)
{
	uint32_t to = pm4->body[0] >> 8 & 0xf, n = pm4->count - 3;
	uint64_t address = emu_pm4_address(pm4, 1), data = pm4->address + 16;
	bool one = pm4->body[0] & WRITE_ONE_ADDRESS;

	if (to == WRITE_REGISTER)
		return registers_write(pm4, pm4->body[1], n, one);
	if (to == WRITE_GDS || to > 5 || to == 4)
		return emu_pm4_refuse(pm4, "only memory and registers are written");
	if (!is_aligned(address, 4))
		return emu_pm4_refuse(pm4, "its address isn't a multiple of 4");
	if (one) /* what is written last stays */
		return emu_gpu_copy(pm4->vm, address, data + 4ULL * (n - 1), 4);
	return emu_gpu_copy(pm4->vm, address, data, 4ULL * n);
}

/* ---- COPY_DATA ----------------------------------------------------------------------------------- */

#define COPY_REGISTER 0
#define COPY_MEMORY 1
#define COPY_L2 2
#define COPY_PERF 4
#define COPY_IMMEDIATE 5 /* as a source; as a destination memory, too */
#define COPY_CLOCK 9
#define COPY_WIDE (1u << 16)

static int source_read(struct emu_pm4 *pm4, uint32_t bytes, uint64_t *ret)
{
	uint64_t address = emu_pm4_address(pm4, 1);
	uint32_t index = pm4->body[1];

	switch (pm4->body[0] & 0xf) {
	case COPY_REGISTER:
	case COPY_PERF:
		if (index >= EMU_REGISTERS - 1)
			return emu_pm4_refuse(pm4, "there is no such register");
		*ret = emu_register_read(pm4->gpu, index);
		if (bytes == 8)
			*ret |= (uint64_t)emu_register_read(pm4->gpu, index + 1) << 32;
		return 0;
	case COPY_MEMORY:
	case COPY_L2:
		if (!is_aligned(address, bytes))
			return emu_pm4_refuse(pm4, "its source isn't a multiple of its size");
		return emu_gpu_load(pm4->vm, address, bytes, ret);
	case COPY_IMMEDIATE:
		*ret = address;
		return 0;
	case COPY_CLOCK:
		*ret = emu_gpu_clock(pm4->gpu);
		return 0;
	default:
		return emu_pm4_refuse(pm4, "its source isn't emulated");
	}
}

static int register_put(struct emu_pm4 *pm4, uint32_t index, uint32_t bytes, uint64_t value)
{
	int error;

	if (index >= EMU_REGISTERS - 1)
		return emu_pm4_refuse(pm4, "there is no such register");
	error = emu_register_write(pm4->gpu, index, (uint32_t)value);
	if (!error && bytes == 8)
		error = emu_register_write(pm4->gpu, index + 1, (uint32_t)(value >> 32));
	return error;
}

int emu_pm4_copy_data(struct emu_pm4 *pm4)
{
	uint32_t bytes = pm4->body[0] & COPY_WIDE ? 8 : 4;
	uint64_t to = emu_pm4_address(pm4, 3), value;
	int error = source_read(pm4, bytes, &value);

	if (error)
		return error;
	switch (pm4->body[0] >> 8 & 0xf) {
	case COPY_REGISTER:
	case COPY_PERF:
		return register_put(pm4, pm4->body[3], bytes, value);
	case COPY_MEMORY:
	case COPY_L2:
	case COPY_IMMEDIATE:
		if (!is_aligned(to, bytes))
			return emu_pm4_refuse(pm4, "its address isn't a multiple of its size");
		return emu_gpu_write(pm4->vm, to, &value, bytes);
	default:
		return emu_pm4_refuse(pm4, "its destination isn't emulated");
	}
}

/* ---- DMA_DATA ------------------------------------------------------------------------------------ */

#define DMA_BYTES 0x3ffffffu
#define DMA_REGISTERS (3u << 26)
#define DMA_FIXED (3u << 28)
#define DMA_ON_CHIP 1
#define DMA_NOWHERE 2 /* as a destination: it only brings the source nearer */
#define DMA_VALUE 2   /* as a source */

int emu_pm4_dma_data(struct emu_pm4 *pm4)
{
	uint32_t from = pm4->body[0] >> 29 & 3, to = pm4->body[0] >> 20 & 3, command = pm4->body[5];
	uint64_t source = emu_pm4_address(pm4, 1), target = emu_pm4_address(pm4, 3);
	uint64_t bytes = command & DMA_BYTES;

	if (command & (DMA_REGISTERS | DMA_FIXED))
		return emu_pm4_refuse(pm4, "only memory is copied, and forwards");
	/* Nothing to copy: it is there to wait for what others copy. */
	if (!bytes || to == DMA_NOWHERE)
		return 0;
	if (from == DMA_ON_CHIP || to == DMA_ON_CHIP)
		return emu_pm4_refuse(pm4, "GDS isn't emulated");
	if (from != DMA_VALUE)
		return emu_gpu_copy(pm4->vm, target, source, bytes);
	if (!is_aligned(target | bytes, 4))
		return emu_pm4_refuse(pm4, "its address or size isn't a multiple of 4");
	return emu_gpu_fill(pm4->vm, target, pm4->body[1], bytes);
}

/* ---- ATOMIC_MEM ---------------------------------------------------------------------------------- */

#define ATOMIC_LOOP 1u

int emu_pm4_atomic_mem(struct emu_pm4 *pm4)
{
	uint32_t operation = pm4->body[0] & 0x7f, command = pm4->body[0] >> 8 & 0xf;
	uint32_t bytes = emu_atomic_bytes(operation);
	uint64_t address = emu_pm4_address(pm4, 1), compare = emu_pm4_address(pm4, 5), old;
	int error;

	if (!bytes || command > ATOMIC_LOOP)
		return emu_pm4_refuse(pm4, "its operation isn't emulated");
	if (!is_aligned(address, bytes))
		return emu_pm4_refuse(pm4, "its address isn't a multiple of its size");
	error = emu_gpu_atomic(pm4->vm, address, operation, emu_pm4_address(pm4, 3), compare, &old);
	if (!error && command == ATOMIC_LOOP && emu_atomic_failed(operation, compare, old))
		return -EAGAIN;
	return error;
}
