/* SPDX-License-Identifier: MIT
 *
 * The command processor's registers: they keep what is written to them. One set serves all rings, as they
 * have no effect.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pm4.h"

/* Only the card's thread is here. */
int emu_register_write(struct emu_gpu *gpu, uint32_t index, uint32_t value)
{
	struct emu_jobs *jobs = &gpu->jobs;

	if (!jobs->registers)
		jobs->registers = calloc(EMU_REGISTERS, sizeof(*jobs->registers));
	if (!jobs->registers)
		return -ENOMEM;
	jobs->registers[index] = value;
	return 0;
}

uint32_t emu_register_read(const struct emu_gpu *gpu, uint32_t index)
{
	return gpu->jobs.registers ? gpu->jobs.registers[index] : 0;
}

/* ---- spaces -------------------------------------------------------------------------------------- */

struct space {
	uint32_t begin, end; /* dwords */
};

#define CONFIG { 0x2000, 0x2c00 }
#define SHADERS { 0x2c00, 0x3000 }
#define CONTEXT { 0xa000, 0xc000 }
#define USER { 0xc000, 0x10000 }

static const struct space spaces[256] = {
	[0x51] = CONTEXT, [0x68] = CONFIG,  [0x69] = CONTEXT, [0x6a] = CONTEXT, [0x76] = SHADERS,
	[0x79] = USER,    [0x7a] = USER,    [0x9b] = SHADERS, [0xb8] = CONTEXT, [0xb9] = CONTEXT,
	[0xba] = SHADERS, [0xbb] = SHADERS, [0xbd] = SHADERS, [0xbe] = USER,
};

static int space_write(struct emu_pm4 *pm4, uint32_t offset, uint32_t value)
{
	const struct space *space = &spaces[pm4->header >> 8 & 0xff];

	if (offset >= space->end - space->begin)
		return emu_pm4_refuse(pm4, "there is no such register");
	return emu_register_write(pm4->gpu, space->begin + offset, value);
}

static int dword_read(const struct emu_pm4 *pm4, uint32_t i, uint32_t *ret)
{
	return emu_gpu_read(pm4->vm, ret, pm4->address + 4 + 4ULL * i, 4);
}

/* ---- packets ------------------------------------------------------------------------------------- */

/* Where the first one is, and a value for each from there on. */
int emu_pm4_set_registers(struct emu_pm4 *pm4)
{
	uint32_t first = pm4->body[0] & 0xffff, value;
	int error = 0;

	for (uint32_t i = 1; i < pm4->count && !error; i++) {
		error = dword_read(pm4, i, &value);
		if (!error)
			error = space_write(pm4, first + i - 1, value);
	}
	return error;
}

/* A place and a value each. */
int emu_pm4_set_pairs(struct emu_pm4 *pm4)
{
	uint32_t offset, value;
	int error = pm4->count % 2 ? emu_pm4_refuse(pm4, "its length is wrong") : 0;

	for (uint32_t i = 0; i < pm4->count && !error; i += 2) {
		error = dword_read(pm4, i, &offset);
		if (!error)
			error = dword_read(pm4, i + 1, &value);
		if (!error)
			error = space_write(pm4, offset & 0xffff, value);
	}
	return error;
}

static int packed_write(struct emu_pm4 *pm4, uint32_t i)
{
	uint32_t offsets, values[2];
	int error = dword_read(pm4, i, &offsets);

	for (uint32_t j = 0; j < 2 && !error; j++) {
		error = dword_read(pm4, i + 1 + j, &values[j]);
		if (!error)
			error = space_write(pm4, offsets >> (16 * j) & 0xffff, values[j]);
	}
	return error;
}

/* How many; then two places in a dword, and their values. */
int emu_pm4_set_packed(struct emu_pm4 *pm4)
{
	uint32_t n = pm4->body[0];
	int error = 0;

	if (n % 2 || pm4->count != 1 + 3ULL * n / 2)
		return emu_pm4_refuse(pm4, "its length is wrong");
	for (uint32_t i = 1; i < pm4->count && !error; i += 3)
		error = packed_write(pm4, i);
	return error;
}

int emu_pm4_rmw_register(struct emu_pm4 *pm4)
{
	uint32_t offset = pm4->body[0] & 0xffff, mask = pm4->body[1], old;
	const struct space *space = &spaces[pm4->header >> 8 & 0xff];

	if (offset >= space->end - space->begin)
		return emu_pm4_refuse(pm4, "there is no such register");
	old = emu_register_read(pm4->gpu, space->begin + offset);
	return emu_register_write(pm4->gpu, space->begin + offset,
	                          (old & ~mask) | (pm4->body[2] & mask));
}

/* What context registers begin with isn't modelled: zeros. */
int emu_pm4_clear_state(struct emu_pm4 *pm4)
{
	const struct space context = CONTEXT;
	uint32_t *registers = pm4->gpu->jobs.registers;

	if (registers)
		memset(registers + context.begin, 0, (context.end - context.begin) * 4);
	return 0;
}
