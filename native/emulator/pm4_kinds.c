/* SPDX-License-Identifier: MIT
 *
 * The packets of type 3 that there are, gfx9 to gfx12, and which of them are emulated.
 */
#include "pm4.h"

#define BODY_MOST 0x4000
#define GFX EMU_PM4_GFX

#define DOES(what, how, ...) { .name = #what, .run = emu_pm4_##how, __VA_ARGS__ }
#define STATE(what, dwords) { .name = #what, .run = emu_pm4_nothing, .least = dwords, .flags = GFX }
#define REGISTERS(what, how, n, ...)                                                               \
	{ .name = #what, .run = emu_pm4_##how, .least = n, .most = BODY_MOST, __VA_ARGS__ }
#define SHADES(what) { .name = #what, .flags = EMU_PM4_SHADERS }
#define NAMED(what) { .name = #what }

static const struct emu_pm4_kind kinds[256] = {
	[0x10] = DOES(NOP, nothing, .most = BODY_MOST),
	[0x11] = STATE(SET_BASE, 3),
	[0x12] = DOES(CLEAR_STATE, clear_state, .least = 1, .flags = GFX),
	[0x13] = STATE(INDEX_BUFFER_SIZE, 1),
	[0x15] = SHADES(DISPATCH_DIRECT),
	[0x16] = SHADES(DISPATCH_INDIRECT),
	[0x1e] = DOES(ATOMIC_MEM, atomic_mem, .least = 8),
	[0x1f] = NAMED(OCCLUSION_QUERY),
	[0x20] = DOES(SET_PREDICATION, set_predication, .least = 2, .most = 3),
	[0x21] = NAMED(REG_RMW),
	[0x22] = DOES(COND_EXEC, cond_exec, .least = 4),
	[0x23] = NAMED(PRED_EXEC),
	[0x24] = SHADES(DRAW_INDIRECT),
	[0x25] = SHADES(DRAW_INDEX_INDIRECT),
	[0x26] = STATE(INDEX_BASE, 2),
	[0x27] = SHADES(DRAW_INDEX_2),
	[0x28] = DOES(CONTEXT_CONTROL, nothing, .least = 2, .flags = GFX),
	[0x2a] = STATE(INDEX_TYPE, 1),
	[0x2c] = SHADES(DRAW_INDIRECT_MULTI),
	[0x2d] = SHADES(DRAW_INDEX_AUTO),
	[0x2e] = SHADES(DRAW_INDEX_IMMD),
	[0x2f] = STATE(NUM_INSTANCES, 1),
	[0x30] = SHADES(DRAW_INDEX_MULTI_AUTO),
	[0x33] = NAMED(INDIRECT_BUFFER_CONST),
	[0x34] = NAMED(STRMOUT_BUFFER_UPDATE),
	[0x35] = SHADES(DRAW_INDEX_OFFSET_2),
	[0x36] = STATE(DRAW_PREAMBLE, 3),
	[0x37] = DOES(WRITE_DATA, write_data, .least = 4, .most = BODY_MOST),
	[0x38] = SHADES(DRAW_INDEX_INDIRECT_MULTI),
	[0x39] = NAMED(MEM_SEMAPHORE),
	[0x3b] = NAMED(COPY_DW),
	[0x3c] = DOES(WAIT_REG_MEM, wait_reg_mem, .least = 6),
	[0x3f] = DOES(INDIRECT_BUFFER, indirect_buffer, .least = 3),
	[0x40] = DOES(COPY_DATA, copy_data, .least = 5),
	[0x41] = NAMED(CP_DMA),
	[0x42] = DOES(PFP_SYNC_ME, nothing, .least = 1, .flags = GFX),
	[0x43] = NAMED(SURFACE_SYNC),
	[0x45] = NAMED(COND_WRITE),
	[0x46] = DOES(EVENT_WRITE, event_write, .least = 1, .most = 3),
	[0x47] = NAMED(EVENT_WRITE_EOP),
	[0x48] = NAMED(EVENT_WRITE_EOS),
	/* The last dword is for interrupts; gfx9's firmware takes it as well. */
	[0x49] = DOES(RELEASE_MEM, release_mem, .least = 6, .most = 7),
	[0x4c] = SHADES(DISPATCH_MESH_INDIRECT_MULTI),
	[0x4d] = SHADES(DISPATCH_TASKMESH_GFX),
	[0x4e] = SHADES(DISPATCH_MESH_DIRECT),
	[0x50] = DOES(DMA_DATA, dma_data, .least = 6),
	[0x51] = DOES(CONTEXT_REG_RMW, rmw_register, .least = 3, .flags = GFX),
	/* gfx9's has a dword less than later ones. */
	[0x58] = DOES(ACQUIRE_MEM, nothing, .least = 6, .most = 7),
	[0x59] = NAMED(REWIND),
	[0x5d] = DOES(PRIME_UTCL2, nothing, .least = 4),
	[0x5e] = NAMED(LOAD_UCONFIG_REG),
	[0x5f] = NAMED(LOAD_SH_REG),
	[0x60] = NAMED(LOAD_CONFIG_REG),
	[0x61] = NAMED(LOAD_CONTEXT_REG),
	[0x63] = NAMED(LOAD_SH_REG_INDEX),
	[0x68] = REGISTERS(SET_CONFIG_REG, set_registers, 2, .flags = GFX),
	[0x69] = REGISTERS(SET_CONTEXT_REG, set_registers, 2, .flags = GFX),
	[0x6a] = REGISTERS(SET_CONTEXT_REG_INDEX, set_registers, 2, .flags = GFX),
	[0x76] = REGISTERS(SET_SH_REG, set_registers, 2),
	[0x77] = NAMED(SET_SH_REG_OFFSET),
	[0x79] = REGISTERS(SET_UCONFIG_REG, set_registers, 2),
	[0x7a] = REGISTERS(SET_UCONFIG_REG_INDEX, set_registers, 2),
	[0x80] = NAMED(LOAD_CONST_RAM),
	[0x81] = NAMED(WRITE_CONST_RAM),
	[0x83] = NAMED(DUMP_CONST_RAM),
	/* IBs run one after the other, so what one engine waits for has been done. */
	[0x84] = DOES(INCREMENT_CE_COUNTER, nothing, .least = 1, .flags = GFX),
	[0x85] = DOES(INCREMENT_DE_COUNTER, nothing, .least = 1, .flags = GFX),
	[0x86] = DOES(WAIT_ON_CE_COUNTER, nothing, .least = 1, .flags = GFX),
	[0x88] = DOES(WAIT_ON_DE_COUNTER_DIFF, nothing, .least = 1, .flags = GFX),
	[0x89] = DOES(SET_CE_DE_COUNTERS, nothing, .least = 1, .flags = GFX),
	[0x9b] = REGISTERS(SET_SH_REG_INDEX, set_registers, 2),
	[0x9f] = NAMED(LOAD_CONTEXT_REG_INDEX),
	[0xa9] = SHADES(DISPATCH_TASK_STATE_INIT),
	[0xaa] = SHADES(DISPATCH_TASKMESH_DIRECT_ACE),
	[0xad] = SHADES(DISPATCH_TASKMESH_INDIRECT_MULTI_ACE),
	[0xb1] = NAMED(EVENT_WRITE_ZPASS),
	[0xb8] = REGISTERS(SET_CONTEXT_REG_PAIRS, set_pairs, 2, .flags = GFX),
	[0xb9] = REGISTERS(SET_CONTEXT_REG_PAIRS_PACKED, set_packed, 1, .flags = GFX),
	[0xba] = REGISTERS(SET_SH_REG_PAIRS, set_pairs, 2),
	[0xbb] = REGISTERS(SET_SH_REG_PAIRS_PACKED, set_packed, 1),
	[0xbd] = REGISTERS(SET_SH_REG_PAIRS_PACKED_N, set_packed, 1),
	[0xbe] = REGISTERS(SET_UCONFIG_REG_PAIRS, set_pairs, 2),
};

const struct emu_pm4_kind *emu_pm4_kind(uint32_t op)
{
	return &kinds[op & 0xff];
}
