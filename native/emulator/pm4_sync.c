/* SPDX-License-Identifier: MIT
 *
 * Packets that wait, tell, and lead on. Caches aren't modelled: a packet sees what the one before it wrote.
 */
#include <errno.h>
#include <stdio.h>

#include "pm4.h"

int emu_pm4_nothing(struct emu_pm4 *pm4)
{
	(void)pm4;
	return 0;
}

/* ---- RELEASE_MEM --------------------------------------------------------------------------------- */

#define DATA_NONE 0
#define DATA_32 1
#define DATA_64 2
#define DATA_CLOCK 3

int emu_pm4_release_mem(struct emu_pm4 *pm4)
{
	uint32_t select = pm4->body[1] >> 29;
	uint64_t address = emu_pm4_address(pm4, 2), value = emu_pm4_address(pm4, 4);
	uint32_t bytes = select == DATA_32 ? 4 : 8;

	if (select == DATA_NONE)
		return 0;
	if (select > DATA_CLOCK)
		return emu_pm4_refuse(pm4, "only a value or the clock is written");
	if (address & (bytes - 1))
		return emu_pm4_refuse(pm4, "its address isn't a multiple of its size");
	if (select == DATA_CLOCK)
		value = emu_gpu_clock(pm4->gpu);
	return emu_gpu_write(pm4->vm, address, &value, bytes);
}

/* ---- WAIT_REG_MEM -------------------------------------------------------------------------------- */

#define WAIT_MEMORY 1

int emu_pm4_wait_reg_mem(struct emu_pm4 *pm4)
{
	uint32_t function = pm4->body[0] & 7, space = pm4->body[0] >> 4 & 3;
	uint64_t value;
	int error = 0;

	if (space > WAIT_MEMORY || pm4->body[0] >> 6 & 3 || function == 7)
		return emu_pm4_refuse(pm4, "it only waits for a register or memory");
	if (space != WAIT_MEMORY) {
		if (pm4->body[1] >= EMU_REGISTERS)
			return emu_pm4_refuse(pm4, "there is no such register");
		value = emu_register_read(pm4->gpu, pm4->body[1]);
	} else {
		if (pm4->body[1] & 3)
			return emu_pm4_refuse(pm4, "its address isn't a multiple of 4");
		error = emu_gpu_load(pm4->vm, emu_pm4_address(pm4, 1), 4, &value);
	}
	if (error)
		return error;
	return emu_wait_is_over(function, (uint32_t)value & pm4->body[4], pm4->body[3]) ? 0 : -EAGAIN;
}

/* ---- EVENT_WRITE --------------------------------------------------------------------------------- */

#define EVENT_STAT_CONTROL 0x38 /* from gfx11 on: what is counted, in place of an address */

/* Without an address it is about the order of things. With one it writes what was counted. */
int emu_pm4_event_write(struct emu_pm4 *pm4)
{
	uint32_t event = pm4->body[0] & 0x3f;
	char why[64];

	if (pm4->count == 1 || event == EVENT_STAT_CONTROL)
		return 0;
	snprintf(why, sizeof(why), "event 0x%x, which writes counters, isn't emulated", event);
	return emu_pm4_refuse(pm4, why);
}

/* ---- other IBs ----------------------------------------------------------------------------------- */

#define IB_DWORDS 0xfffffu
#define IB_CHAIN (1u << 20)

int emu_pm4_indirect_buffer(struct emu_pm4 *pm4)
{
	if (pm4->body[0] & 3)
		return emu_pm4_refuse(pm4, "its address isn't a multiple of 4");
	return emu_pm4_jump(pm4, emu_pm4_address(pm4, 0), pm4->body[2] & IB_DWORDS,
	                    pm4->body[2] & IB_CHAIN);
}

/* What follows is skipped if the dword in memory is 0. */
int emu_pm4_cond_exec(struct emu_pm4 *pm4)
{
	uint64_t value;
	int error;

	if (pm4->body[0] & 3)
		return emu_pm4_refuse(pm4, "its address isn't a multiple of 4");
	error = emu_gpu_load(pm4->vm, emu_pm4_address(pm4, 0), 4, &value);
	if (error || value)
		return error;
	return emu_pm4_skip(pm4, pm4->body[3] & 0x3fff);
}

/* Only what turns it off. */
int emu_pm4_set_predication(struct emu_pm4 *pm4)
{
	if (pm4->body[0] >> 16 & 7)
		return emu_pm4_refuse(pm4, "predication isn't emulated");
	return 0;
}
