/* SPDX-License-Identifier: MIT
 *
 * amdgpu's INFO ioctl and its answers, as of Linux 7.2. Include amdgpu.h.
 */
#ifndef VMKV_ABI_AMDGPU_INFO_H
#define VMKV_ABI_AMDGPU_INFO_H

#define AMDGPU_INFO_ACCEL_WORKING 0x00
#define AMDGPU_INFO_CRTC_FROM_ID 0x01
#define AMDGPU_INFO_HW_IP_INFO 0x02
#define AMDGPU_INFO_HW_IP_COUNT 0x03
#define AMDGPU_INFO_TIMESTAMP 0x05
#define AMDGPU_INFO_FW_VERSION 0x0e
#define AMDGPU_INFO_NUM_BYTES_MOVED 0x0f
#define AMDGPU_INFO_VRAM_USAGE 0x10
#define AMDGPU_INFO_GTT_USAGE 0x11
#define AMDGPU_INFO_GDS_CONFIG 0x13
#define AMDGPU_INFO_VRAM_GTT 0x14
#define AMDGPU_INFO_READ_MMR_REG 0x15
#define AMDGPU_INFO_DEV_INFO 0x16
#define AMDGPU_INFO_VIS_VRAM_USAGE 0x17
#define AMDGPU_INFO_NUM_EVICTIONS 0x18
#define AMDGPU_INFO_MEMORY 0x19
#define AMDGPU_INFO_VCE_CLOCK_TABLE 0x1a
#define AMDGPU_INFO_VBIOS 0x1b
#define AMDGPU_INFO_NUM_HANDLES 0x1c
#define AMDGPU_INFO_SENSOR 0x1d
#define AMDGPU_INFO_NUM_VRAM_CPU_PAGE_FAULTS 0x1e
#define AMDGPU_INFO_VRAM_LOST_COUNTER 0x1f
#define AMDGPU_INFO_RAS_ENABLED_FEATURES 0x20
#define AMDGPU_INFO_VIDEO_CAPS 0x21
#define AMDGPU_INFO_MAX_IBS 0x22
#define AMDGPU_INFO_GPUVM_FAULT 0x23 /* from DRM 3.55 on */
#define AMDGPU_INFO_UQ_FW_AREAS 0x24

/* What FW_VERSION is asked for. */
#define AMDGPU_INFO_FW_VCE 0x1
#define AMDGPU_INFO_FW_UVD 0x2
#define AMDGPU_INFO_FW_GMC 0x03
#define AMDGPU_INFO_FW_GFX_ME 0x04
#define AMDGPU_INFO_FW_GFX_PFP 0x05
#define AMDGPU_INFO_FW_GFX_CE 0x06
#define AMDGPU_INFO_FW_GFX_RLC 0x07
#define AMDGPU_INFO_FW_GFX_MEC 0x08
#define AMDGPU_INFO_FW_SMC 0x0a
#define AMDGPU_INFO_FW_SDMA 0x0b
#define AMDGPU_INFO_FW_SOS 0x0c
#define AMDGPU_INFO_FW_ASD 0x0d
#define AMDGPU_INFO_FW_VCN 0x0e
#define AMDGPU_INFO_FW_GFX_RLC_RESTORE_LIST_CNTL 0x0f
#define AMDGPU_INFO_FW_GFX_RLC_RESTORE_LIST_GPM_MEM 0x10
#define AMDGPU_INFO_FW_GFX_RLC_RESTORE_LIST_SRM_MEM 0x11
#define AMDGPU_INFO_FW_DMCU 0x12
#define AMDGPU_INFO_FW_TA 0x13
#define AMDGPU_INFO_FW_DMCUB 0x14
#define AMDGPU_INFO_FW_TOC 0x15
#define AMDGPU_INFO_FW_CAP 0x16
#define AMDGPU_INFO_FW_GFX_RLCP 0x17
#define AMDGPU_INFO_FW_GFX_RLCV 0x18
#define AMDGPU_INFO_FW_MES_KIQ 0x19
#define AMDGPU_INFO_FW_MES 0x1a
#define AMDGPU_INFO_FW_IMU 0x1b
#define AMDGPU_INFO_FW_VPE 0x1c

/* What VBIOS, SENSOR and VIDEO_CAPS are asked for. */
#define AMDGPU_INFO_VBIOS_SIZE 0x1
#define AMDGPU_INFO_VBIOS_IMAGE 0x2
#define AMDGPU_INFO_VBIOS_INFO 0x3

#define AMDGPU_INFO_SENSOR_GFX_SCLK 0x1
#define AMDGPU_INFO_SENSOR_GFX_MCLK 0x2
#define AMDGPU_INFO_SENSOR_GPU_TEMP 0x3
#define AMDGPU_INFO_SENSOR_GPU_LOAD 0x4
#define AMDGPU_INFO_SENSOR_GPU_AVG_POWER 0x5
#define AMDGPU_INFO_SENSOR_VDDNB 0x6
#define AMDGPU_INFO_SENSOR_VDDGFX 0x7
#define AMDGPU_INFO_SENSOR_STABLE_PSTATE_GFX_SCLK 0x8
#define AMDGPU_INFO_SENSOR_STABLE_PSTATE_GFX_MCLK 0x9
#define AMDGPU_INFO_SENSOR_PEAK_PSTATE_GFX_SCLK 0xa
#define AMDGPU_INFO_SENSOR_PEAK_PSTATE_GFX_MCLK 0xb
#define AMDGPU_INFO_SENSOR_GPU_INPUT_POWER 0xc

#define AMDGPU_INFO_VIDEO_CAPS_DECODE 0
#define AMDGPU_INFO_VIDEO_CAPS_ENCODE 1

#define AMDGPU_INFO_MMR_SE_INDEX_SHIFT 0
#define AMDGPU_INFO_MMR_SE_INDEX_MASK 0xff
#define AMDGPU_INFO_MMR_SH_INDEX_SHIFT 8
#define AMDGPU_INFO_MMR_SH_INDEX_MASK 0xff

struct drm_amdgpu_query_fw {
	uint32_t fw_type;
	uint32_t ip_instance;
	uint32_t index;
	uint32_t _pad;
};

struct drm_amdgpu_info {
	uint64_t return_pointer;
	uint32_t return_size; /* how much of the answer is wanted */
	uint32_t query;
	union {
		struct {
			uint32_t id;
			uint32_t _pad;
		} mode_crtc;
		struct {
			uint32_t type;
			uint32_t ip_instance;
		} query_hw_ip;
		struct {
			uint32_t dword_offset;
			uint32_t count;
			uint32_t instance;
			uint32_t flags;
		} read_mmr_reg;
		struct drm_amdgpu_query_fw query_fw;
		struct {
			uint32_t type;
			uint32_t offset;
		} vbios_info;
		struct {
			uint32_t type;
		} sensor_info;
		struct {
			uint32_t type;
		} video_cap;
	};
};

/* ---- memory ---------------------------------------------------------------------------------- */

struct drm_amdgpu_info_gds {
	uint32_t gds_gfx_partition_size;
	uint32_t compute_partition_size;
	uint32_t gds_total_size;
	uint32_t gws_per_gfx_partition;
	uint32_t gws_per_compute_partition;
	uint32_t oa_per_gfx_partition;
	uint32_t oa_per_compute_partition;
	uint32_t _pad;
};

struct drm_amdgpu_info_vram_gtt {
	uint64_t vram_size;
	uint64_t vram_cpu_accessible_size;
	uint64_t gtt_size;
};

struct drm_amdgpu_heap_info {
	uint64_t total_heap_size;
	uint64_t usable_heap_size;
	uint64_t heap_usage;
	uint64_t max_allocation;
};

struct drm_amdgpu_memory_info {
	struct drm_amdgpu_heap_info vram;
	struct drm_amdgpu_heap_info cpu_accessible_vram;
	struct drm_amdgpu_heap_info gtt;
};

#define AMDGPU_VMHUB_TYPE_MASK 0xff
#define AMDGPU_VMHUB_TYPE_SHIFT 0
#define AMDGPU_VMHUB_TYPE_GFX 0
#define AMDGPU_VMHUB_TYPE_MM0 1
#define AMDGPU_VMHUB_TYPE_MM1 2
#define AMDGPU_VMHUB_IDX_MASK 0xff00
#define AMDGPU_VMHUB_IDX_SHIFT 8

struct drm_amdgpu_info_gpuvm_fault {
	uint64_t addr;
	uint32_t status;
	uint32_t vmhub;
};

/* ---- the device ------------------------------------------------------------------------------ */

#define AMDGPU_FAMILY_UNKNOWN 0
#define AMDGPU_FAMILY_SI 110
#define AMDGPU_FAMILY_CI 120
#define AMDGPU_FAMILY_KV 125
#define AMDGPU_FAMILY_VI 130
#define AMDGPU_FAMILY_CZ 135
#define AMDGPU_FAMILY_AI 141 /* Vega, Instinct */
#define AMDGPU_FAMILY_RV 142
#define AMDGPU_FAMILY_NV 143 /* Navi 1x, 2x */
#define AMDGPU_FAMILY_VGH 144
#define AMDGPU_FAMILY_GC_11_0_0 145 /* Navi 3x */
#define AMDGPU_FAMILY_YC 146
#define AMDGPU_FAMILY_GC_11_0_1 148
#define AMDGPU_FAMILY_GC_10_3_6 149
#define AMDGPU_FAMILY_GC_11_5_0 150
#define AMDGPU_FAMILY_GC_10_3_7 151
#define AMDGPU_FAMILY_GC_12_0_0 152 /* Navi 4x */

#define AMDGPU_IDS_FLAGS_FUSION 0x01
#define AMDGPU_IDS_FLAGS_PREEMPTION 0x02
#define AMDGPU_IDS_FLAGS_TMZ 0x04
#define AMDGPU_IDS_FLAGS_CONFORMANT_TRUNC_COORD 0x08
#define AMDGPU_IDS_FLAGS_GANG_SUBMIT 0x10
#define AMDGPU_IDS_FLAGS_MODE_MASK 0x300
#define AMDGPU_IDS_FLAGS_MODE_SHIFT 0x8
#define AMDGPU_IDS_FLAGS_MODE_PF 0x0
#define AMDGPU_IDS_FLAGS_MODE_VF 0x1
#define AMDGPU_IDS_FLAGS_MODE_PT 0x2

#define AMDGPU_VRAM_TYPE_UNKNOWN 0
#define AMDGPU_VRAM_TYPE_GDDR1 1
#define AMDGPU_VRAM_TYPE_DDR2 2
#define AMDGPU_VRAM_TYPE_GDDR3 3
#define AMDGPU_VRAM_TYPE_GDDR4 4
#define AMDGPU_VRAM_TYPE_GDDR5 5
#define AMDGPU_VRAM_TYPE_HBM 6
#define AMDGPU_VRAM_TYPE_DDR3 7
#define AMDGPU_VRAM_TYPE_DDR4 8
#define AMDGPU_VRAM_TYPE_GDDR6 9
#define AMDGPU_VRAM_TYPE_DDR5 10
#define AMDGPU_VRAM_TYPE_LPDDR4 11
#define AMDGPU_VRAM_TYPE_LPDDR5 12
#define AMDGPU_VRAM_TYPE_HBM3E 13
#define AMDGPU_VRAM_TYPE_HBM4 14

/* Linux 6.1's has 368 bytes and ends before min_engine_clock. 6.12's has 440, the last 4 of them
 * padding where 7.2's, as long, has userq_ip_mask. */
struct drm_amdgpu_info_device {
	uint32_t device_id;
	uint32_t chip_rev;
	uint32_t external_rev;
	uint32_t pci_rev;
	uint32_t family;
	uint32_t num_shader_engines;
	uint32_t num_shader_arrays_per_engine;
	uint32_t gpu_counter_freq; /* kHz, as all clocks */
	uint64_t max_engine_clock;
	uint64_t max_memory_clock;
	uint32_t cu_active_number;
	uint32_t cu_ao_mask;
	uint32_t cu_bitmap[4][4];
	uint32_t enabled_rb_pipes_mask;
	uint32_t num_rb_pipes;
	uint32_t num_hw_gfx_contexts;
	uint32_t pcie_gen;
	uint64_t ids_flags;
	uint64_t virtual_address_offset;
	uint64_t virtual_address_max;
	uint32_t virtual_address_alignment;
	uint32_t pte_fragment_size;
	uint32_t gart_page_size;
	uint32_t ce_ram_size;
	uint32_t vram_type;
	uint32_t vram_bit_width;
	uint32_t vce_harvest_config;
	uint32_t gc_double_offchip_lds_buf;
	uint64_t prim_buf_gpu_addr;
	uint64_t pos_buf_gpu_addr;
	uint64_t cntl_sb_buf_gpu_addr;
	uint64_t param_buf_gpu_addr;
	uint32_t prim_buf_size;
	uint32_t pos_buf_size;
	uint32_t cntl_sb_buf_size;
	uint32_t param_buf_size;
	uint32_t wave_front_size;
	uint32_t num_shader_visible_vgprs;
	uint32_t num_cu_per_sh;
	uint32_t num_tcc_blocks;
	uint32_t gs_vgt_table_depth;
	uint32_t gs_prim_buffer_depth;
	uint32_t max_gs_waves_per_vgt;
	uint32_t pcie_num_lanes;
	uint32_t cu_ao_bitmap[4][4];
	uint64_t high_va_offset;
	uint64_t high_va_max;
	uint32_t pa_sc_tile_steering_override;
	uint64_t tcc_disabled_mask;
	uint64_t min_engine_clock;
	uint64_t min_memory_clock;
	uint32_t tcp_cache_size; /* KiB, as all cache sizes but the last; from gfx11 on, else 0 */
	uint32_t num_sqc_per_wgp;
	uint32_t sqc_data_cache_size;
	uint32_t sqc_inst_cache_size;
	uint32_t gl1c_cache_size;
	uint32_t gl2c_cache_size;
	uint64_t mall_size; /* bytes */
	uint32_t enabled_rb_pipes_mask_hi;
	uint32_t shadow_size;
	uint32_t shadow_alignment;
	uint32_t csa_size;
	uint32_t csa_alignment;
	uint32_t userq_ip_mask;
	uint32_t pad;
};

struct drm_amdgpu_info_hw_ip {
	uint32_t hw_ip_version_major;
	uint32_t hw_ip_version_minor;
	uint64_t capabilities_flags;
	uint32_t ib_start_alignment;
	uint32_t ib_size_alignment;
	uint32_t available_rings; /* a mask */
	uint32_t ip_discovery_version; /* major << 16 | minor << 8 | revision */
	uint32_t userq_num_slots; /* 7.2; 32 bytes before */
};

struct drm_amdgpu_info_firmware {
	uint32_t ver;
	uint32_t feature;
};

struct drm_amdgpu_info_vbios {
	uint8_t name[64];
	uint8_t vbios_pn[64];
	uint32_t version;
	uint32_t pad;
	uint8_t vbios_ver_str[32];
	uint8_t date[32];
};

/* ---- video ----------------------------------------------------------------------------------- */

struct drm_amdgpu_info_num_handles {
	uint32_t uvd_max_handles;
	uint32_t uvd_used_handles;
};

#define AMDGPU_VCE_CLOCK_TABLE_ENTRIES 6

struct drm_amdgpu_info_vce_clock_table_entry {
	uint32_t sclk;
	uint32_t mclk;
	uint32_t eclk;
	uint32_t pad;
};

struct drm_amdgpu_info_vce_clock_table {
	struct drm_amdgpu_info_vce_clock_table_entry entries[AMDGPU_VCE_CLOCK_TABLE_ENTRIES];
	uint32_t num_valid_entries;
	uint32_t pad;
};

#define AMDGPU_INFO_VIDEO_CAPS_CODEC_IDX_MPEG2 0
#define AMDGPU_INFO_VIDEO_CAPS_CODEC_IDX_MPEG4 1
#define AMDGPU_INFO_VIDEO_CAPS_CODEC_IDX_VC1 2
#define AMDGPU_INFO_VIDEO_CAPS_CODEC_IDX_MPEG4_AVC 3
#define AMDGPU_INFO_VIDEO_CAPS_CODEC_IDX_HEVC 4
#define AMDGPU_INFO_VIDEO_CAPS_CODEC_IDX_JPEG 5
#define AMDGPU_INFO_VIDEO_CAPS_CODEC_IDX_VP9 6
#define AMDGPU_INFO_VIDEO_CAPS_CODEC_IDX_AV1 7
#define AMDGPU_INFO_VIDEO_CAPS_CODEC_IDX_COUNT 8

struct drm_amdgpu_info_video_codec_info {
	uint32_t valid;
	uint32_t max_width;
	uint32_t max_height;
	uint32_t max_pixels_per_frame;
	uint32_t max_level;
	uint32_t pad;
};

struct drm_amdgpu_info_video_caps {
	struct drm_amdgpu_info_video_codec_info codec_info[AMDGPU_INFO_VIDEO_CAPS_CODEC_IDX_COUNT];
};

_Static_assert(sizeof(struct drm_amdgpu_info) == 32, "drm_amdgpu_info");
_Static_assert(sizeof(struct drm_amdgpu_info_gds) == 32, "drm_amdgpu_info_gds");
_Static_assert(sizeof(struct drm_amdgpu_info_vram_gtt) == 24, "drm_amdgpu_info_vram_gtt");
_Static_assert(sizeof(struct drm_amdgpu_memory_info) == 96, "drm_amdgpu_memory_info");
_Static_assert(sizeof(struct drm_amdgpu_info_gpuvm_fault) == 16, "drm_amdgpu_info_gpuvm_fault");
_Static_assert(offsetof(struct drm_amdgpu_info_device, min_engine_clock) == 368, "Linux 6.1's");
_Static_assert(offsetof(struct drm_amdgpu_info_device, userq_ip_mask) == 436, "Linux 6.12's");
_Static_assert(sizeof(struct drm_amdgpu_info_device) == 448, "drm_amdgpu_info_device");
_Static_assert(offsetof(struct drm_amdgpu_info_hw_ip, userq_num_slots) == 32, "Linux 6.12's");
_Static_assert(sizeof(struct drm_amdgpu_info_hw_ip) == 40, "drm_amdgpu_info_hw_ip");
_Static_assert(sizeof(struct drm_amdgpu_info_firmware) == 8, "drm_amdgpu_info_firmware");
_Static_assert(sizeof(struct drm_amdgpu_info_vbios) == 200, "drm_amdgpu_info_vbios");
_Static_assert(sizeof(struct drm_amdgpu_info_num_handles) == 8, "drm_amdgpu_info_num_handles");
_Static_assert(sizeof(struct drm_amdgpu_info_vce_clock_table) == 104, "..._vce_clock_table");
_Static_assert(sizeof(struct drm_amdgpu_info_video_caps) == 192, "drm_amdgpu_info_video_caps");

#endif
