/* SPDX-License-Identifier: MIT
 *
 * INFO: heaps, counters and faults, from the card's state.
 */
#include <errno.h>

#include "info.h"

/* All VRAM can be reached by the CPU: a card with a large BAR. */
static void heap_fill(struct emu_gpu *gpu, enum emu_heap_kind kind,
                      struct drm_amdgpu_heap_info *ret)
{
	const struct emu_heap *heap = &gpu->memory.heaps[kind];

	ret->total_heap_size = heap->bytes;
	ret->usable_heap_size = emu_memory_usable(gpu, kind);
	ret->heap_usage = heap->used_bytes;
	ret->max_allocation = ret->usable_heap_size * 3 / 4;
}

int emu_query_memory(struct emu_file *file, const struct drm_amdgpu_info *info,
                     struct emu_answer *answer)
{
	struct drm_amdgpu_memory_info *memory = emu_answer_begin(answer, sizeof(*memory));

	(void)info;
	pthread_mutex_lock(&file->gpu->lock);
	emu_memory_sweep(file->gpu);
	heap_fill(file->gpu, EMU_HEAP_VRAM, &memory->vram);
	heap_fill(file->gpu, EMU_HEAP_VRAM, &memory->cpu_accessible_vram);
	heap_fill(file->gpu, EMU_HEAP_GTT, &memory->gtt);
	pthread_mutex_unlock(&file->gpu->lock);
	return 0;
}

int emu_query_vram_gtt(struct emu_file *file, const struct drm_amdgpu_info *info,
                       struct emu_answer *answer)
{
	struct drm_amdgpu_info_vram_gtt *sizes = emu_answer_begin(answer, sizeof(*sizes));

	(void)info;
	pthread_mutex_lock(&file->gpu->lock);
	sizes->vram_size = emu_memory_usable(file->gpu, EMU_HEAP_VRAM);
	sizes->vram_cpu_accessible_size = sizes->vram_size;
	sizes->gtt_size = emu_memory_usable(file->gpu, EMU_HEAP_GTT);
	pthread_mutex_unlock(&file->gpu->lock);
	return 0;
}

static int usage_answer(const struct emu_gpu *gpu, uint32_t query, struct emu_answer *answer)
{
	switch (query) {
	case AMDGPU_INFO_VRAM_USAGE:
	case AMDGPU_INFO_VIS_VRAM_USAGE:
		return emu_answer_u64(answer, gpu->memory.heaps[EMU_HEAP_VRAM].used_bytes);
	case AMDGPU_INFO_GTT_USAGE:
		return emu_answer_u64(answer, gpu->memory.heaps[EMU_HEAP_GTT].used_bytes);
	case AMDGPU_INFO_NUM_BYTES_MOVED:
		return emu_answer_u64(answer, gpu->counts.moved_bytes);
	case AMDGPU_INFO_NUM_EVICTIONS:
		return emu_answer_u64(answer, gpu->counts.evictions);
	case AMDGPU_INFO_NUM_VRAM_CPU_PAGE_FAULTS:
		return emu_answer_u64(answer, 0); /* nothing is out of the CPU's reach */
	case AMDGPU_INFO_VRAM_LOST_COUNTER:
		return emu_answer_u32(answer, (uint32_t)gpu->vram_lost_count);
	default:
		return -EINVAL;
	}
}

int emu_query_usage(struct emu_file *file, const struct drm_amdgpu_info *info,
                    struct emu_answer *answer)
{
	int err;

	pthread_mutex_lock(&file->gpu->lock);
	emu_memory_sweep(file->gpu);
	err = usage_answer(file->gpu, info->query, answer);
	pthread_mutex_unlock(&file->gpu->lock);
	return err;
}

/* The file's last fault, which reading doesn't clear. */
int emu_query_fault(struct emu_file *file, const struct drm_amdgpu_info *info,
                    struct emu_answer *answer)
{
	struct drm_amdgpu_info_gpuvm_fault *fault = emu_answer_begin(answer, sizeof(*fault));

	(void)info;
	pthread_mutex_lock(&file->gpu->lock);
	fault->addr = file->fault_address;
	fault->status = file->fault_status;
	fault->vmhub = file->fault_hub;
	pthread_mutex_unlock(&file->gpu->lock);
	return 0;
}
