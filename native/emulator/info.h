/* SPDX-License-Identifier: MIT
 *
 * The answers to INFO: each query fills its struct, info.c copies what was asked for.
 */
#ifndef EMU_INFO_H
#define EMU_INFO_H

#include "emu.h"

#define EMU_INFO_BYTES 512

/* An answer: the bytes, as many as this kernel's struct has. */
struct emu_answer {
	uint64_t data[EMU_INFO_BYTES / 8];
	uint32_t bytes;
};

/* Zeros of that many bytes, to be filled in. */
void *emu_answer_begin(struct emu_answer *answer, size_t bytes);
int emu_answer_u32(struct emu_answer *answer, uint32_t value);
int emu_answer_u64(struct emu_answer *answer, uint64_t value);

/* Called without gpu->lock. 0 or the ioctl's negative errno. */
typedef int emu_query(struct emu_file *file, const struct drm_amdgpu_info *info,
                      struct emu_answer *answer);

/* info_device.c */
emu_query emu_query_device, emu_query_hw_ip, emu_query_hw_ip_count, emu_query_firmware,
    emu_query_max_ibs, emu_query_video_caps,
    emu_query_num_handles, emu_query_vce_clocks, emu_query_gds;
/* info_chip.c */
emu_query emu_query_registers, emu_query_sensor, emu_query_vbios, emu_query_ras, emu_query_queue_areas;
/* info_memory.c */
emu_query emu_query_memory, emu_query_vram_gtt, emu_query_usage, emu_query_fault;

#endif
