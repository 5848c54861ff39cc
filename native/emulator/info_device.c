/* SPDX-License-Identifier: MIT
 *
 * INFO: what the card is, from its model's data, as far as this kernel knows to tell it.
 */
#include <errno.h>
#include <string.h>

#include "info.h"

#define HW_CONTEXTS 8

/* ---- DEV_INFO -------------------------------------------------------------------------------- */

static void device_fill_addresses(const struct emu_kernel *kernel,
                                  struct drm_amdgpu_info_device *device)
{
	uint64_t end = (1ULL << EMU_ADDRESS_BITS) - kernel->va_top_bytes;

	device->virtual_address_offset = kernel->va_bottom;
	device->virtual_address_max = EMU_HOLE_BEGIN;
	device->high_va_offset = EMU_HOLE_END;
	device->high_va_max = EMU_HOLE_END | end;
	device->virtual_address_alignment = EMU_PAGE_BYTES;
	device->pte_fragment_size = EMU_PAGE_BYTES * EMU_HUGE_PAGES;
	device->gart_page_size = EMU_PAGE_BYTES;
}

static void device_fill_shaders(const struct emu_model *model,
                                struct drm_amdgpu_info_device *device)
{
	device->num_shader_engines = model->shader_engines;
	device->num_shader_arrays_per_engine = model->shader_arrays_per_engine;
	device->cu_active_number = model->cus;
	device->cu_ao_mask = model->cu_always_on_mask;
	memcpy(device->cu_bitmap, model->cu_bitmap, sizeof(device->cu_bitmap));
	memcpy(device->cu_ao_bitmap, model->cu_always_on, sizeof(device->cu_ao_bitmap));
	device->enabled_rb_pipes_mask = model->rb_mask;
	device->num_rb_pipes = model->rbs;
	device->num_hw_gfx_contexts = HW_CONTEXTS;
	device->wave_front_size = model->wave_size;
	device->num_shader_visible_vgprs = model->vgprs;
	device->num_cu_per_sh = model->cus_per_array;
	device->gc_double_offchip_lds_buf = model->offchip_lds_buffers;
	device->ce_ram_size = model->ce_ram_bytes;
	/* These are the same on all models. */
	device->gs_vgt_table_depth = 32;
	device->gs_prim_buffer_depth = 1792;
	device->max_gs_waves_per_vgt = 32;
}

static void device_fill_memory(const struct emu_model *model,
                               struct drm_amdgpu_info_device *device)
{
	device->vram_type = model->vram_type;
	device->vram_bit_width = model->vram_bits;
	device->num_tcc_blocks = model->tcc_blocks;
	device->tcp_cache_size = model->tcp_kib;
	device->num_sqc_per_wgp = model->sqcs_per_wgp;
	device->sqc_data_cache_size = model->sqc_data_kib;
	device->sqc_inst_cache_size = model->sqc_code_kib;
	device->gl1c_cache_size = model->gl1c_kib;
	device->gl2c_cache_size = model->gl2c_kib;
	device->mall_size = model->mall_bytes;
}

int emu_query_device(struct emu_file *file, const struct drm_amdgpu_info *info,
                     struct emu_answer *answer)
{
	const struct emu_model *model = file->gpu->model;
	const struct emu_kernel *kernel = file->gpu->kernel;
	struct drm_amdgpu_info_device *device = emu_answer_begin(answer, kernel->dev_info_bytes);

	_Static_assert(sizeof(*device) <= EMU_INFO_BYTES, "emu_answer");
	(void)info;
	device->device_id = model->device_id;
	device->chip_rev = model->chip_rev;
	device->external_rev = model->external_rev;
	device->pci_rev = model->revision;
	device->family = model->family;
	device->ids_flags = model->ids_flags;
	if (kernel->tells_gangs)
		device->ids_flags |= AMDGPU_IDS_FLAGS_GANG_SUBMIT;
	device->gpu_counter_freq = model->counter_khz;
	device->max_engine_clock = model->engine_clock_khz;
	device->max_memory_clock = model->memory_clock_khz;
	device->min_engine_clock = model->engine_clock_low_khz;
	device->min_memory_clock = model->memory_clock_low_khz;
	if (kernel->has_pcie_info) {
		device->pcie_gen = model->pcie_gen;
		device->pcie_num_lanes = model->pcie_lanes;
	}
	device_fill_addresses(kernel, device);
	device_fill_shaders(model, device);
	device_fill_memory(model, device);
	return 0;
}

/* ---- IPs ------------------------------------------------------------------------------------- */

static uint32_t ip_version(uint32_t major, uint32_t minor, uint32_t revision)
{
	return major << 16 | minor << 8 | revision;
}

static void ip_fill_gfx(const struct emu_model *model, uint32_t rings,
                        struct drm_amdgpu_info_hw_ip *ip)
{
	ip->hw_ip_version_major = model->gfx_major;
	ip->hw_ip_version_minor = model->gfx_block_minor;
	ip->ip_discovery_version =
	    ip_version(model->gfx_major, model->gfx_minor, model->gfx_revision);
	ip->available_rings = (1u << rings) - 1;
	ip->ib_start_alignment = 32;
	ip->ib_size_alignment = 32;
}

static void ip_fill_sdma(const struct emu_model *model, struct drm_amdgpu_info_hw_ip *ip)
{
	ip->hw_ip_version_major = model->sdma_major;
	ip->hw_ip_version_minor = model->sdma_block_minor;
	ip->ip_discovery_version =
	    ip_version(model->sdma_major, model->sdma_minor, model->sdma_revision);
	ip->available_rings = (1u << model->sdma_rings) - 1;
	ip->ib_start_alignment = 256;
	ip->ib_size_alignment = 4;
}

/* IPs that the kernel knows and the card hasn't (no video, say) are all zero. */
int emu_query_hw_ip(struct emu_file *file, const struct drm_amdgpu_info *info,
                    struct emu_answer *answer)
{
	const struct emu_model *model = file->gpu->model;
	struct drm_amdgpu_info_hw_ip *ip =
	    emu_answer_begin(answer, file->gpu->kernel->hw_ip_bytes);

	if (info->query_hw_ip.ip_instance >= AMDGPU_HW_IP_INSTANCE_MAX_COUNT ||
	    info->query_hw_ip.type >= file->gpu->kernel->hw_ip_types)
		return -EINVAL;
	if (info->query_hw_ip.type == AMDGPU_HW_IP_GFX)
		ip_fill_gfx(model, model->gfx_rings, ip);
	else if (info->query_hw_ip.type == AMDGPU_HW_IP_COMPUTE)
		ip_fill_gfx(model, model->compute_rings, ip);
	else if (info->query_hw_ip.type == AMDGPU_HW_IP_DMA)
		ip_fill_sdma(model, ip);
	return 0;
}

/* Older kernels count blocks of the driver, of which all engines of a kind make one. */
static int blocks_count(const struct emu_kernel *kernel, uint32_t type, struct emu_answer *answer)
{
	if (type >= kernel->hw_ip_types)
		return -EINVAL;
	return emu_answer_u32(answer, type <= AMDGPU_HW_IP_DMA);
}

int emu_query_hw_ip_count(struct emu_file *file, const struct drm_amdgpu_info *info,
                          struct emu_answer *answer)
{
	if (!file->gpu->kernel->counts_engines)
		return blocks_count(file->gpu->kernel, info->query_hw_ip.type, answer);
	switch (info->query_hw_ip.type) {
	case AMDGPU_HW_IP_GFX:
	case AMDGPU_HW_IP_COMPUTE:
		return emu_answer_u32(answer, 1);
	case AMDGPU_HW_IP_DMA:
		return emu_answer_u32(answer, file->gpu->model->sdma_instances);
	default:
		return -EINVAL;
	}
}

static int firmware_answer(struct emu_answer *answer, struct emu_firmware firmware)
{
	struct drm_amdgpu_info_firmware *ret = emu_answer_begin(answer, sizeof(*ret));

	ret->ver = firmware.version;
	ret->feature = firmware.feature;
	return 0;
}

/* Firmware that isn't loaded has version 0. */
int emu_query_firmware(struct emu_file *file, const struct drm_amdgpu_info *info,
                       struct emu_answer *answer)
{
	const struct emu_model *model = file->gpu->model;
	const struct drm_amdgpu_query_fw *query = &info->query_fw;
	const struct emu_firmware none = { 0, 0 };

	if (query->ip_instance)
		return -EINVAL;
	switch (query->fw_type) {
	case AMDGPU_INFO_FW_GFX_ME:
		return firmware_answer(answer, model->me);
	case AMDGPU_INFO_FW_GFX_PFP:
		return firmware_answer(answer, model->pfp);
	case AMDGPU_INFO_FW_GFX_MEC:
		return query->index > 1 ? -EINVAL : firmware_answer(answer, model->mec);
	case AMDGPU_INFO_FW_SDMA:
		if (query->index >= model->sdma_instances)
			return -EINVAL;
		return firmware_answer(answer, none);
	case 0:
	case 9:
		return -EINVAL;
	default:
		if (query->fw_type > AMDGPU_INFO_FW_VPE)
			return -EINVAL;
		return firmware_answer(answer, none);
	}
}

/* ---- limits and engines that aren't there ---------------------------------------------------- */

int emu_query_max_ibs(struct emu_file *file, const struct drm_amdgpu_info *info,
                      struct emu_answer *answer)
{
	uint32_t types = file->gpu->kernel->hw_ip_types;
	uint32_t *most = emu_answer_begin(answer, types * sizeof(*most));

	(void)info;
	for (uint32_t type = 0; type < types; type++)
		most[type] = emu_ibs_most(type);
	return 0;
}

int emu_query_video_caps(struct emu_file *file, const struct drm_amdgpu_info *info,
                         struct emu_answer *answer)
{
	(void)file;
	emu_answer_begin(answer, sizeof(struct drm_amdgpu_info_video_caps));
	return info->video_cap.type > AMDGPU_INFO_VIDEO_CAPS_ENCODE ? -EINVAL : 0;
}

int emu_query_num_handles(struct emu_file *file, const struct drm_amdgpu_info *info,
                          struct emu_answer *answer)
{
	(void)file;
	(void)answer;
	return info->query_hw_ip.type == AMDGPU_HW_IP_UVD ? -ENODATA : -EINVAL;
}

int emu_query_vce_clocks(struct emu_file *file, const struct drm_amdgpu_info *info,
                         struct emu_answer *answer)
{
	(void)file;
	(void)info;
	emu_answer_begin(answer, sizeof(struct drm_amdgpu_info_vce_clock_table));
	return 0;
}

int emu_query_gds(struct emu_file *file, const struct drm_amdgpu_info *info,
                  struct emu_answer *answer)
{
	const struct emu_model *model = file->gpu->model;
	struct drm_amdgpu_info_gds *gds = emu_answer_begin(answer, sizeof(*gds));

	(void)info;
	gds->compute_partition_size = model->gds_bytes;
	gds->gds_total_size = model->gds_bytes;
	gds->gws_per_compute_partition = model->gws;
	gds->oa_per_compute_partition = model->oa;
	return 0;
}
