/* SPDX-License-Identifier: MIT
 *
 * What is about displays, on a card that has none: there is no modesetting, but buffers that a display could
 * show can be made all the same.
 */
#include <errno.h>

#include "memory_parts.h"

/* As drivers without DRIVER_MODESET answer. */
int emu_mode_none(struct emu_file *file, void *data)
{
	(void)file;
	(void)data;
	return -EOPNOTSUPP;
}

int emu_mode_noop(struct emu_file *file, void *data)
{
	(void)file;
	(void)data;
	return 0;
}

/* ---- dumb buffers -------------------------------------------------------------------------------- */

/* Rows of a linear surface, in bytes. */
static uint32_t pitch_of(uint32_t width, uint32_t bytes_each)
{
	uint32_t mask = bytes_each == 1 ? 255 : bytes_each == 2 ? 127 : bytes_each <= 4 ? 63 : 0;

	return ((width + mask) & ~mask) * bytes_each;
}

static int dumb_check(const struct drm_mode_create_dumb *args)
{
	uint32_t bytes_each, row;

	if (!args->width || !args->height || !args->bpp || args->bpp > UINT32_MAX - 8)
		return -EINVAL;
	bytes_each = (args->bpp + 7) / 8;
	if (bytes_each > UINT32_MAX / args->width)
		return -EINVAL;
	row = bytes_each * args->width;
	return args->height > UINT32_MAX / row ? -EINVAL : 0;
}

int emu_mode_create_dumb(struct emu_file *file, void *data)
{
	struct drm_mode_create_dumb *args = data;
	struct emu_bo_request request = { .domains = AMDGPU_GEM_DOMAIN_VRAM,
		                          .flags = AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED |
		                                   AMDGPU_GEM_CREATE_CPU_GTT_USWC };
	struct emu_bo *bo;
	int error = dumb_check(args);

	if (error)
		return error;
	args->pitch = pitch_of(args->width, (args->bpp + 7) / 8);
	args->size = ((uint64_t)args->pitch * args->height + EMU_PAGE_BYTES - 1) & ~(EMU_PAGE_BYTES - 1);
	request.bytes = args->size;
	pthread_mutex_lock(&file->gpu->lock);
	error = emu_bo_create(file->gpu, &request, &bo) ? -ENOMEM : 0;
	if (!error)
		error = emu_handle_create(file, bo, &args->handle);
	pthread_mutex_unlock(&file->gpu->lock);
	return error;
}

int emu_mode_map_dumb(struct emu_file *file, void *data)
{
	struct drm_mode_map_dumb *args = data;
	union drm_amdgpu_gem_mmap map = { .in = { .handle = args->handle } };
	int error = emu_gem_mmap(file, &map);

	if (!error)
		args->offset = map.out.addr_ptr;
	return error;
}

int emu_mode_destroy_dumb(struct emu_file *file, void *data)
{
	struct drm_gem_close close = { .handle = ((struct drm_mode_destroy_dumb *)data)->handle };

	return emu_gem_close(file, &close);
}
