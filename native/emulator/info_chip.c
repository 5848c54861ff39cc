/* SPDX-License-Identifier: MIT
 *
 * INFO: registers, sensors, the video BIOS, and what protects memory.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "info.h"

/* ---- registers ------------------------------------------------------------------------------- */

#define REGISTERS_MOST 128
#define ENGINES_MOST 4
#define ARRAYS_MOST 2

#define GB_ADDR_CONFIG 0x263e
#define GRBM_STATUS 0x2004
#define GUI_ACTIVE (1u << 31)
#define CP_BUSY (1u << 29)
#define SDMA_IDLE 1u

/* Those that drivers let be read since Vega, the same for all models: each says what it is when the
 * engines are at work. */
enum reading { ZERO, CONFIG, GRAPHICS, COMMANDS, ENGINES, COPIES };

static const struct {
	uint32_t first, last;
	enum reading reading;
} readable[] = {
	{ 0x1285, 0x1285, COPIES },   /* SDMA0_STATUS_REG */
	{ 0x1885, 0x1885, COPIES },   /* SDMA1_STATUS_REG */
	{ 0x2002, 0x2002, ZERO },     /* GRBM_STATUS2 */
	{ GRBM_STATUS, GRBM_STATUS, GRAPHICS },
	{ 0x2005, 0x2006, ENGINES },  /* GRBM_STATUS_SE0, _SE1 */
	{ 0x200e, 0x200f, ENGINES },  /* GRBM_STATUS_SE2, _SE3 */
	{ 0x2084, 0x2089, ZERO },     /* CP_CPC_STATUS to CP_CPF_STALLED_STAT1 */
	{ 0x219c, 0x219f, ZERO },     /* CP_STALLED_STAT3 to CP_BUSY_STAT */
	{ 0x21a0, 0x21a0, COMMANDS }, /* CP_STAT */
	{ GB_ADDR_CONFIG, GB_ADDR_CONFIG, CONFIG },
};

static bool register_selects(uint32_t instance, uint32_t shift, uint32_t mask, uint32_t most)
{
	uint32_t index = instance >> shift & mask;

	return index == mask || index < most;
}

/* Whether a ring of GFX or COMPUTE, or of the SDMA engines, has a job under way. */
static bool engine_is_busy(struct emu_gpu *gpu, bool sdma)
{
	bool busy = false;

	pthread_mutex_lock(&gpu->lock);
	if (gpu->jobs.running)
		EMU_FOR_EACH(item, &gpu->jobs.entities) {
			const struct emu_entity *entity = EMU_ENTRY(item, struct emu_entity, link);
			const struct emu_job *job = EMU_ENTRY(entity->jobs.next, struct emu_job, link);

			if (job->begun)
				busy |= (job->ibs[0].ip == AMDGPU_HW_IP_DMA) == sdma;
		}
	pthread_mutex_unlock(&gpu->lock);
	return busy;
}

static uint32_t reading_of(struct emu_gpu *gpu, enum reading reading)
{
	bool busy = reading >= GRAPHICS && engine_is_busy(gpu, reading == COPIES);

	switch (reading) {
	case CONFIG:
		return gpu->model->gb_addr_config;
	case GRAPHICS:
		return busy ? GUI_ACTIVE | CP_BUSY : 0;
	case COMMANDS:
		return busy ? 1u << 31 : 0;
	case COPIES:
		return busy ? 0 : SDMA_IDLE;
	default:
		return 0;
	}
}

static bool register_read(struct emu_gpu *gpu, uint32_t index, uint32_t *ret)
{
	for (size_t i = 0; i < sizeof(readable) / sizeof(readable[0]); i++) {
		if (index < readable[i].first || index > readable[i].last)
			continue;
		*ret = reading_of(gpu, readable[i].reading);
		return true;
	}
	return false;
}

/* Others aren't allowed: -EFAULT, as the kernel. */
int emu_query_registers(struct emu_file *file, const struct drm_amdgpu_info *info,
                        struct emu_answer *answer)
{
	uint32_t instance = info->read_mmr_reg.instance, count = info->read_mmr_reg.count;
	uint32_t first = info->read_mmr_reg.dword_offset, *values;

	_Static_assert(REGISTERS_MOST * 4 <= EMU_INFO_BYTES, "emu_answer");
	if (!register_selects(instance, AMDGPU_INFO_MMR_SE_INDEX_SHIFT,
	                      AMDGPU_INFO_MMR_SE_INDEX_MASK, ENGINES_MOST) ||
	    !register_selects(instance, AMDGPU_INFO_MMR_SH_INDEX_SHIFT,
	                      AMDGPU_INFO_MMR_SH_INDEX_MASK, ARRAYS_MOST) ||
	    count > REGISTERS_MOST)
		return -EINVAL;
	values = emu_answer_begin(answer, count * sizeof(*values));
	for (uint32_t i = 0; i < count; i++)
		if (!register_read(file->gpu, first + i, &values[i]))
			return emu_refuse(file->gpu, -EFAULT, "INFO: no register 0x%x", first + i);
	return 0;
}

/* ---- sensors --------------------------------------------------------------------------------- */

static bool gpu_is_busy(struct emu_gpu *gpu)
{
	bool busy;

	pthread_mutex_lock(&gpu->lock);
	busy = gpu->jobs.running;
	pthread_mutex_unlock(&gpu->lock);
	return busy;
}

/* Clocks in MHz and load follow from the jobs; heat (thousandths of a degree), power (W) and voltage (mV) are
 * two guesses each. */
int emu_query_sensor(struct emu_file *file, const struct drm_amdgpu_info *info,
                     struct emu_answer *answer)
{
	const struct emu_model *model = file->gpu->model;
	uint32_t type = info->sensor_info.type;
	bool busy = gpu_is_busy(file->gpu);

	switch (type) {
	case AMDGPU_INFO_SENSOR_GFX_SCLK:
		return emu_answer_u32(answer, (busy ? model->engine_clock_khz
		                                    : model->engine_clock_low_khz) / 1000);
	case AMDGPU_INFO_SENSOR_GFX_MCLK:
		return emu_answer_u32(answer, (busy ? model->memory_clock_khz
		                                    : model->memory_clock_low_khz) / 1000);
	case AMDGPU_INFO_SENSOR_GPU_TEMP:
		return emu_answer_u32(answer, busy ? 60000 : 40000);
	case AMDGPU_INFO_SENSOR_GPU_LOAD:
		return emu_answer_u32(answer, busy ? 100 : 0);
	case AMDGPU_INFO_SENSOR_GPU_AVG_POWER:
		return emu_answer_u32(answer, busy ? 200 : 20);
	case AMDGPU_INFO_SENSOR_VDDGFX:
		return emu_answer_u32(answer, busy ? 1000 : 700);
	case AMDGPU_INFO_SENSOR_STABLE_PSTATE_GFX_SCLK:
		return emu_answer_u32(answer, model->engine_clock_khz / 1000);
	case AMDGPU_INFO_SENSOR_STABLE_PSTATE_GFX_MCLK:
		return emu_answer_u32(answer, model->memory_clock_khz / 1000);
	case AMDGPU_INFO_SENSOR_PEAK_PSTATE_GFX_SCLK:
	case AMDGPU_INFO_SENSOR_PEAK_PSTATE_GFX_MCLK:
		if (!file->gpu->kernel->has_peak_sensors)
			return -EINVAL;
		return emu_answer_u32(answer, (type == AMDGPU_INFO_SENSOR_PEAK_PSTATE_GFX_SCLK
		                                   ? model->engine_clock_khz
		                                   : model->memory_clock_khz) / 1000);
	case AMDGPU_INFO_SENSOR_VDDNB: /* of processors with graphics */
	case AMDGPU_INFO_SENSOR_GPU_INPUT_POWER:
		return -EINVAL;
	default:
		return emu_refuse(file->gpu, -EINVAL, "INFO: there is no sensor %u", type);
	}
}

/* ---- the video BIOS -------------------------------------------------------------------------- */

#define VBIOS_BYTES 512u /* the least that an option ROM has */

static void vbios_fill(const struct emu_model *model, uint8_t *image)
{
	image[0] = 0x55; /* what option ROMs begin with, and their size in units of 512 bytes */
	image[1] = 0xaa;
	image[2] = VBIOS_BYTES / 512;
	snprintf((char *)image + 0x40, 64, "emulated %s", model->name);
}

static int vbios_info(const struct emu_model *model, struct emu_answer *answer)
{
	struct drm_amdgpu_info_vbios *vbios = emu_answer_begin(answer, sizeof(*vbios));

	snprintf((char *)vbios->name, sizeof(vbios->name), "emulated %s", model->name);
	snprintf((char *)vbios->vbios_pn, sizeof(vbios->vbios_pn), "VMKV-EMULATED");
	snprintf((char *)vbios->vbios_ver_str, sizeof(vbios->vbios_ver_str), "000.000.000.000");
	snprintf((char *)vbios->date, sizeof(vbios->date), "2000/01/01 00:00");
	return 0;
}

int emu_query_vbios(struct emu_file *file, const struct drm_amdgpu_info *info,
                    struct emu_answer *answer)
{
	const struct emu_model *model = file->gpu->model;
	uint32_t offset = info->vbios_info.offset;
	uint8_t *bytes;

	_Static_assert(VBIOS_BYTES <= EMU_INFO_BYTES, "emu_answer");
	switch (info->vbios_info.type) {
	case AMDGPU_INFO_VBIOS_SIZE:
		return emu_answer_u32(answer, VBIOS_BYTES);
	case AMDGPU_INFO_VBIOS_IMAGE:
		if (offset >= VBIOS_BYTES)
			return -EINVAL;
		bytes = emu_answer_begin(answer, VBIOS_BYTES - offset);
		vbios_fill(model, bytes);
		memmove(bytes, bytes + offset, VBIOS_BYTES - offset);
		return 0;
	case AMDGPU_INFO_VBIOS_INFO:
		return vbios_info(model, answer);
	default:
		return -EINVAL;
	}
}

/* ---- what protects memory -------------------------------------------------------------------- */

#define RAS_BLOCKS 0xfu /* UMC, SDMA, GFX, MMHUB */

/* Cards for games have none. */
int emu_query_ras(struct emu_file *file, const struct drm_amdgpu_info *info, struct emu_answer *answer)
{
	(void)info;
	if (file->gpu->model->gfx_rings)
		return -EINVAL;
	return emu_answer_u64(answer, (uint64_t)RAS_BLOCKS << 32 | RAS_BLOCKS);
}

/* No queues of the process's own. */
int emu_query_queue_areas(struct emu_file *file, const struct drm_amdgpu_info *info,
                          struct emu_answer *answer)
{
	(void)file;
	(void)answer;
	return info->query_hw_ip.type == AMDGPU_HW_IP_GFX ? -EOPNOTSUPP : -EINVAL;
}
