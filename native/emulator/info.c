/* SPDX-License-Identifier: MIT
 *
 * The INFO ioctl.
 */
#include <errno.h>
#include <string.h>

#include "info.h"

void *emu_answer_begin(struct emu_answer *answer, size_t bytes)
{
	memset(answer->data, 0, sizeof(answer->data));
	answer->bytes = (uint32_t)bytes;
	return answer->data;
}

int emu_answer_u32(struct emu_answer *answer, uint32_t value)
{
	memcpy(emu_answer_begin(answer, sizeof(value)), &value, sizeof(value));
	return 0;
}

int emu_answer_u64(struct emu_answer *answer, uint64_t value)
{
	memcpy(emu_answer_begin(answer, sizeof(value)), &value, sizeof(value));
	return 0;
}

static int query_accel_working(struct emu_file *file, const struct drm_amdgpu_info *info,
                               struct emu_answer *answer)
{
	(void)file;
	(void)info;
	return emu_answer_u32(answer, 1);
}

/* There are no displays. */
static int query_crtc(struct emu_file *file, const struct drm_amdgpu_info *info,
                      struct emu_answer *answer)
{
	(void)file;
	(void)info;
	(void)answer;
	return -EINVAL;
}

static int query_timestamp(struct emu_file *file, const struct drm_amdgpu_info *info,
                           struct emu_answer *answer)
{
	(void)info;
	return emu_answer_u64(answer, emu_gpu_clock(file->gpu));
}

/* Those that this kernel doesn't know. */
static int query_refused(struct emu_file *file, const struct drm_amdgpu_info *info,
                         struct emu_answer *answer)
{
	(void)answer;
	return emu_refuse(file->gpu, -EINVAL, "INFO: there is no query 0x%x", info->query);
}

static emu_query *const queries[] = {
	[AMDGPU_INFO_ACCEL_WORKING] = query_accel_working,
	[AMDGPU_INFO_CRTC_FROM_ID] = query_crtc,
	[AMDGPU_INFO_HW_IP_INFO] = emu_query_hw_ip,
	[AMDGPU_INFO_HW_IP_COUNT] = emu_query_hw_ip_count,
	[AMDGPU_INFO_TIMESTAMP] = query_timestamp,
	[AMDGPU_INFO_FW_VERSION] = emu_query_firmware,
	[AMDGPU_INFO_NUM_BYTES_MOVED] = emu_query_usage,
	[AMDGPU_INFO_VRAM_USAGE] = emu_query_usage,
	[AMDGPU_INFO_GTT_USAGE] = emu_query_usage,
	[AMDGPU_INFO_GDS_CONFIG] = emu_query_gds,
	[AMDGPU_INFO_VRAM_GTT] = emu_query_vram_gtt,
	[AMDGPU_INFO_READ_MMR_REG] = emu_query_registers,
	[AMDGPU_INFO_DEV_INFO] = emu_query_device,
	[AMDGPU_INFO_VIS_VRAM_USAGE] = emu_query_usage,
	[AMDGPU_INFO_NUM_EVICTIONS] = emu_query_usage,
	[AMDGPU_INFO_MEMORY] = emu_query_memory,
	[AMDGPU_INFO_VCE_CLOCK_TABLE] = emu_query_vce_clocks,
	[AMDGPU_INFO_VBIOS] = emu_query_vbios,
	[AMDGPU_INFO_NUM_HANDLES] = emu_query_num_handles,
	[AMDGPU_INFO_SENSOR] = emu_query_sensor,
	[AMDGPU_INFO_NUM_VRAM_CPU_PAGE_FAULTS] = emu_query_usage,
	[AMDGPU_INFO_VRAM_LOST_COUNTER] = emu_query_usage,
	[AMDGPU_INFO_RAS_ENABLED_FEATURES] = emu_query_ras,
	[AMDGPU_INFO_VIDEO_CAPS] = emu_query_video_caps,
	[AMDGPU_INFO_MAX_IBS] = emu_query_max_ibs,
	[AMDGPU_INFO_GPUVM_FAULT] = emu_query_fault,
	[AMDGPU_INFO_UQ_FW_AREAS] = emu_query_queue_areas,
};

#define QUERIES (sizeof(queries) / sizeof(queries[0]))

static emu_query *query_find(const struct emu_kernel *kernel, uint32_t query)
{
	if (query >= QUERIES || !queries[query])
		return query_refused;
	if (query == AMDGPU_INFO_MAX_IBS && !kernel->has_max_ibs)
		return query_refused;
	if (query == AMDGPU_INFO_UQ_FW_AREAS && !kernel->has_queue_query)
		return query_refused;
	if (query == AMDGPU_INFO_GPUVM_FAULT && !kernel->has_fault_query)
		return query_refused;
	return queries[query];
}

static bool asks_what_is_free(uint32_t query)
{
	return query == AMDGPU_INFO_MEMORY || query == AMDGPU_INFO_VRAM_GTT ||
	       query == AMDGPU_INFO_VRAM_USAGE || query == AMDGPU_INFO_VIS_VRAM_USAGE ||
	       query == AMDGPU_INFO_GTT_USAGE;
}

int emu_info(struct emu_file *file, void *data)
{
	const struct drm_amdgpu_info *info = data;
	struct emu_answer answer;
	int err;

	if (!info->return_size || !info->return_pointer)
		return -EINVAL;
	if (asks_what_is_free(info->query))
		emu_files_sweep(file->gpu);
	err = query_find(file->gpu->kernel, info->query)(file, info, &answer);
	if (err)
		return err;
	if (info->return_size < answer.bytes)
		answer.bytes = info->return_size;
	return emu_copy_out(info->return_pointer, answer.data, answer.bytes);
}
