/* SPDX-License-Identifier: MIT
 *
 * Handles: a file's names for buffers. With the first in a file the buffer joins the file's VM,
 * with the last it leaves it.
 */
#include <errno.h>
#include <stdlib.h>

#include "memory_parts.h"

struct emu_handle *emu_handle_find(struct emu_file *file, uint32_t handle)
{
	return emu_ids_find(&file->handles, handle);
}

static int bo_va_get(struct emu_file *file, struct emu_bo *bo, struct emu_bo_va **ret)
{
	*ret = emu_bo_va_find(file->vm, bo);
	if (!*ret)
		return emu_bo_va_create(file->vm, bo, ret);
	(*ret)->references++;
	return 0;
}

static void bo_va_put(struct emu_bo_va *bo_va)
{
	if (!--bo_va->references)
		emu_bo_va_destroy(bo_va);
}

int emu_handle_create(struct emu_file *file, struct emu_bo *bo, uint32_t *handle)
{
	struct emu_handle *made = NULL;
	int error = bo->owner && bo->owner != file->vm ? -EPERM : 0;

	if (!error) {
		made = calloc(1, sizeof(*made));
		error = made ? bo_va_get(file, bo, &made->bo_va) : -ENOMEM;
	}
	if (!error) {
		error = emu_ids_add(&file->handles, made, handle);
		if (error)
			bo_va_put(made->bo_va);
	}
	if (error) {
		free(made);
		emu_bo_put(bo);
		return error;
	}
	made->bo = bo;
	bo->handle_count++;
	return 0;
}

/* Without handles a buffer has no name, and what was exported of it lives by its descriptors
 * alone. */
static void handles_gone(struct emu_bo *bo)
{
	if (bo->name)
		(void)emu_ids_remove(&bo->gpu->memory.names, bo->name);
	bo->name = 0;
}

int emu_handle_close(struct emu_file *file, uint32_t id)
{
	struct emu_handle *handle = emu_ids_remove(&file->handles, id);
	struct emu_bo *bo;

	if (!handle)
		return -EINVAL;
	bo = handle->bo;
	bo_va_put(handle->bo_va);
	free(handle);
	if (!--bo->handle_count)
		handles_gone(bo);
	emu_bo_put(bo);
	return 0;
}

void emu_file_memory_fini(struct emu_file *file)
{
	for (uint32_t id = 1; emu_ids_next(&file->handles, &id); id++)
		(void)emu_handle_close(file, id);
	emu_dmabufs_reap(file->gpu, false);
}
