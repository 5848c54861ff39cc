/* SPDX-License-Identifier: MIT
 *
 * What the files of the command processor (GFX and COMPUTE rings) share.
 */
#ifndef EMU_PM4_H
#define EMU_PM4_H

#include "emu.h"

#define EMU_PM4_DWORDS 16 /* of a packet's body that are read beforehand; data is read where it goes */

/* One packet on its way. */
struct emu_pm4 {
	struct emu_gpu *gpu;
	struct emu_vm *vm;
	struct emu_job *job;
	uint64_t address; /* of the header */
	uint32_t header;
	uint32_t ip;    /* AMDGPU_HW_IP_* */
	uint32_t count; /* dwords of the body */
	uint32_t body[EMU_PM4_DWORDS];
};

/* 0; -EAGAIN: the same packet again, later; or the error with which the job fails. */
typedef int emu_pm4_run_packet(struct emu_pm4 *pm4);

#define EMU_PM4_GFX 1u     /* there is none on COMPUTE rings */
#define EMU_PM4_SHADERS 2u /* it runs shaders */

struct emu_pm4_kind {
	const char *name;
	emu_pm4_run_packet *run; /* NULL: it isn't emulated */
	uint16_t least, most;    /* dwords of the body; most 0: as many as least */
	uint16_t flags;
};

/* pm4_kinds.c: never NULL; one without a name is unknown. */
const struct emu_pm4_kind *emu_pm4_kind(uint32_t op);

/* pm4.c */
int emu_pm4_refuse(const struct emu_pm4 *pm4, const char *why);
/* Go on in another IB: instead of this one, or before the rest of it. */
int emu_pm4_jump(struct emu_pm4 *pm4, uint64_t address, uint32_t dwords, bool chain);
/* Pass over the next dwords of the IB. */
int emu_pm4_skip(struct emu_pm4 *pm4, uint32_t dwords);
static inline uint64_t emu_pm4_address(const struct emu_pm4 *pm4, uint32_t i)
{
	return (uint64_t)pm4->body[i + 1] << 32 | pm4->body[i];
}

/* pm4_memory.c */
emu_pm4_run_packet emu_pm4_write_data, emu_pm4_copy_data, emu_pm4_dma_data, emu_pm4_atomic_mem;
/* pm4_sync.c */
emu_pm4_run_packet emu_pm4_nothing, emu_pm4_release_mem, emu_pm4_wait_reg_mem, emu_pm4_event_write,
    emu_pm4_indirect_buffer, emu_pm4_cond_exec, emu_pm4_set_predication;
/* pm4_registers.c: they keep what is written to them, and have no effect. */
emu_pm4_run_packet emu_pm4_set_registers, emu_pm4_set_pairs, emu_pm4_set_packed, emu_pm4_rmw_register,
    emu_pm4_clear_state;
#define EMU_REGISTERS 0x10000u
int emu_register_write(struct emu_gpu *gpu, uint32_t index, uint32_t value); /* -ENOMEM */
uint32_t emu_register_read(const struct emu_gpu *gpu, uint32_t index);

#endif
