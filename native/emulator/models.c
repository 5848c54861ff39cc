/* SPDX-License-Identifier: MIT
 *
 * Cards, as data.
 *
 * What DEV_INFO, HW_IP_INFO, FW_VERSION and the register say of gfx1030, gfx1100 and gfx1201 was
 * read from real cards by others: Mesa, src/amd/common/amdgpu_devices.c (navi21, navi31, gfx1201).
 * For gfx942 there is no such record: its ids, revisions and the register are from the kernel
 * (drivers/gpu/drm/amd/amdgpu/soc15.c, gfx_v9_4_3.c), sizes and clocks from AMD's data sheet of the
 * MI300X. GDS, GWS and OA are the kernel's (gfx_v*_set_gds_init).
 */
#include <string.h>

#include "emu.h"

static const struct emu_model models[] = {
	{
		.name = "gfx1030", /* AMD Radeon RX 6800 */
		.device_id = 0x73bf,
		.revision = 0xc3,
		.family = AMDGPU_FAMILY_NV,
		.external_rev = 0x29,
		.chip_rev = 0x01,
		.vram_bytes = 16ULL << 30,
		.gfx_major = 10, .gfx_minor = 3, .gfx_revision = 0,
		.sdma_major = 5, .sdma_minor = 2, .sdma_revision = 0,
		.gfx_block_minor = 0, .sdma_block_minor = 2,
		.gfx_rings = 1, .compute_rings = 4, .sdma_rings = 2,
		.sdma_instances = 4,
		.shader_engines = 4, .shader_arrays_per_engine = 2,
		.cus = 60, .cus_per_array = 10, .wave_size = 32, .vgprs = 1024,
		.cu_bitmap = { { 0x3ff, 0x3ff }, { 0 }, { 0x3ff, 0x3ff }, { 0x3ff, 0x3ff } },
		.cu_always_on = { { 0x3ff, 0x3ff }, { 0 }, { 0x3ff, 0x3ff }, { 0x3ff, 0x3ff } },
		.cu_always_on_mask = 0x3ffff,
		.rb_mask = 0xff0f, .rbs = 16,
		.vram_type = AMDGPU_VRAM_TYPE_GDDR6, .vram_bits = 256,
		.engine_clock_khz = 2475000, .memory_clock_khz = 1000000,
		.engine_clock_low_khz = 500000, .memory_clock_low_khz = 96000,
		.counter_khz = 100000,
		.gb_addr_config = 0x00000444,
		.pcie_gen = 3, .pcie_lanes = 16,
		.ce_ram_bytes = 65536, .offchip_lds_buffers = 1, .tcc_blocks = 16,
		.gds_bytes = 0x10000, .gws = 64, .oa = 16,
		.mall_bytes = 128 << 20,
		.me = { 64, 42 }, .pfp = { 95, 42 }, .mec = { 104, 42 },
	},
	{
		.name = "gfx1100", /* AMD Radeon RX 7900 XTX */
		.device_id = 0x744c,
		.revision = 0xc8,
		.family = AMDGPU_FAMILY_GC_11_0_0,
		.external_rev = 0x01,
		.chip_rev = 0x00,
		.vram_bytes = 24ULL << 30,
		.gfx_major = 11, .gfx_minor = 0, .gfx_revision = 0,
		.sdma_major = 6, .sdma_minor = 0, .sdma_revision = 0,
		.gfx_block_minor = 0, .sdma_block_minor = 0,
		.gfx_rings = 1, .compute_rings = 4, .sdma_rings = 2,
		.sdma_instances = 2,
		.shader_engines = 6, .shader_arrays_per_engine = 2,
		.cus = 96, .cus_per_array = 8, .wave_size = 32, .vgprs = 1536,
		.cu_bitmap = { { 0xff, 0xff, 0xff, 0xff }, { 0xff, 0xff, 0xff, 0xff },
		               { 0xff, 0xff }, { 0xff, 0xff } },
		.rb_mask = 0xffffff, .rbs = 24,
		.vram_type = AMDGPU_VRAM_TYPE_GDDR6, .vram_bits = 384,
		.engine_clock_khz = 2371000, .memory_clock_khz = 1249000,
		.engine_clock_low_khz = 500000, .memory_clock_low_khz = 96000,
		.counter_khz = 100000,
		.gb_addr_config = 0x00000545,
		.ids_flags = AMDGPU_IDS_FLAGS_CONFORMANT_TRUNC_COORD,
		.pcie_gen = 4, .pcie_lanes = 16,
		.tcc_blocks = 24,
		.gds_bytes = 0x1000, .gws = 64, .oa = 16,
		.tcp_kib = 32, .sqcs_per_wgp = 1, .sqc_data_kib = 16, .sqc_code_kib = 32,
		.gl1c_kib = 256, .gl2c_kib = 6144, .mall_bytes = 96 << 20,
		.me = { 1486, 29 }, .pfp = { 1525, 29 }, .mec = { 494, 29 },
	},
	{
		.name = "gfx1201", /* AMD Radeon RX 9070 XT */
		.device_id = 0x7550,
		.revision = 0xc0,
		.family = AMDGPU_FAMILY_GC_12_0_0,
		.external_rev = 0x51,
		.chip_rev = 0x01,
		.vram_bytes = 16ULL << 30,
		.gfx_major = 12, .gfx_minor = 0, .gfx_revision = 1,
		.sdma_major = 7, .sdma_minor = 0, .sdma_revision = 1,
		.gfx_block_minor = 0, .sdma_block_minor = 0,
		.gfx_rings = 1, .compute_rings = 4, .sdma_rings = 2,
		.sdma_instances = 2,
		.shader_engines = 4, .shader_arrays_per_engine = 2,
		.cus = 64, .cus_per_array = 8, .wave_size = 32, .vgprs = 1536,
		.cu_bitmap = { { 0xff, 0xff }, { 0xff, 0xff }, { 0xff, 0xff }, { 0xff, 0xff } },
		.rb_mask = 0xffff, .rbs = 16,
		.vram_type = AMDGPU_VRAM_TYPE_GDDR6, .vram_bits = 256,
		.engine_clock_khz = 2460000, .memory_clock_khz = 1258000,
		.engine_clock_low_khz = 500000, .memory_clock_low_khz = 96000,
		.counter_khz = 100000,
		.gb_addr_config = 0x08200545,
		.pcie_gen = 4, .pcie_lanes = 8,
		.offchip_lds_buffers = 64, .tcc_blocks = 32,
		.gds_bytes = 0x1000, .gws = 64, .oa = 16,
		.tcp_kib = 32, .sqcs_per_wgp = 1, .sqc_data_kib = 16, .sqc_code_kib = 32,
		.gl1c_kib = 256, .gl2c_kib = 8192, .mall_bytes = 64 << 20,
		.me = { 2590, 29 }, .pfp = { 2630, 29 }, .mec = { 2800, 29 },
	},
	{
		.name = "gfx942", /* AMD Instinct MI300X */
		.device_id = 0x74a1,
		.revision = 0x00,
		.family = AMDGPU_FAMILY_AI,
		.external_rev = 0x47,
		.chip_rev = 0x01,
		.vram_bytes = 192ULL << 30,
		.gfx_major = 9, .gfx_minor = 4, .gfx_revision = 3,
		.sdma_major = 4, .sdma_minor = 4, .sdma_revision = 2,
		.gfx_block_minor = 4, .sdma_block_minor = 4,
		.gfx_rings = 0, .compute_rings = 4, .sdma_rings = 2,
		.sdma_instances = 16,
		.shader_engines = 4, .shader_arrays_per_engine = 1,
		.cus = 304, .cus_per_array = 10, .wave_size = 64, .vgprs = 256,
		.cu_bitmap = { { 0x3ff }, { 0x1ff }, { 0x3ff }, { 0x1ff } }, /* of one of 8 dies */
		.vram_type = AMDGPU_VRAM_TYPE_HBM, .vram_bits = 8192,
		.engine_clock_khz = 2100000, .memory_clock_khz = 1300000,
		.engine_clock_low_khz = 132000, .memory_clock_low_khz = 900000,
		.counter_khz = 100000,
		.gb_addr_config = 0x2a114042,
		.pcie_gen = 5, .pcie_lanes = 16,
		.offchip_lds_buffers = 1, .tcc_blocks = 16,
		.gws = 64, .oa = 16,
	},
};

#define MODELS (sizeof(models) / sizeof(models[0]))

const struct emu_model *emu_model_find(const char *name)
{
	for (size_t i = 0; i < MODELS; i++) {
		if (!strcmp(models[i].name, name))
			return &models[i];
	}
	return NULL;
}

void emu_model_names(char *text, size_t n)
{
	size_t used = 0;

	for (size_t i = 0; i < MODELS && used < n; i++)
		used += (size_t)snprintf(text + used, n - used, "%s%s", i ? ", " : "",
		                         models[i].name);
}
