/* SPDX-License-Identifier: MIT
 *
 * The ioctls that ask and tell about buffers: METADATA, OP, LIST_HANDLES.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "memory_parts.h"

/* ---- METADATA -------------------------------------------------------------------------------- */

static void metadata_get(const struct emu_bo *bo, struct drm_amdgpu_gem_metadata *args)
{
	args->data.tiling_info = bo->tiling_info;
	args->data.flags = bo->metadata_flags;
	args->data.data_size_bytes = bo->metadata_bytes;
	memcpy(args->data.data, bo->metadata, bo->metadata_bytes);
}

/* The flags go with the data: without data they stay as they were. */
static int metadata_set(struct emu_bo *bo, const struct drm_amdgpu_gem_metadata *args)
{
	uint32_t bytes = args->data.data_size_bytes;

	if (bytes > sizeof(args->data.data))
		return -EINVAL;
	bo->tiling_info = args->data.tiling_info;
	bo->metadata_bytes = bytes;
	if (!bytes)
		return 0;
	bo->metadata_flags = args->data.flags;
	memcpy(bo->metadata, args->data.data, bytes);
	return 0;
}

int emu_gem_metadata(struct emu_file *file, void *data)
{
	struct drm_amdgpu_gem_metadata *args = data;
	const struct emu_handle *handle;
	int error = 0;

	pthread_mutex_lock(&file->gpu->lock);
	handle = emu_handle_find(file, args->handle);
	if (!handle)
		error = -ENOENT;
	else if (args->op == AMDGPU_GEM_METADATA_OP_GET_METADATA)
		metadata_get(handle->bo, args);
	else if (args->op == AMDGPU_GEM_METADATA_OP_SET_METADATA)
		error = metadata_set(handle->bo, args);
	else
		error = emu_refuse(file->gpu, -EINVAL, "GEM_METADATA: unknown operation %u",
		                   args->op);
	pthread_mutex_unlock(&file->gpu->lock);
	return error;
}

/* ---- OP -------------------------------------------------------------------------------------- */

static int create_info_get(const struct emu_bo *bo, const struct drm_amdgpu_gem_op *args)
{
	const struct drm_amdgpu_gem_create_in info = { .bo_size = bo->bytes,
		                                       .alignment = bo->alignment,
		                                       .domains = emu_bo_told_domains(bo),
		                                       .domain_flags = bo->flags };

	return emu_copy_out(args->value, &info, sizeof(info));
}

static int placement_set(struct emu_bo *bo, const struct drm_amdgpu_gem_op *args)
{
	if (bo->user_pointer)
		return -EPERM;
	bo->spilled = false;
	bo->preferred_domains = args->value & (AMDGPU_GEM_DOMAIN_VRAM | AMDGPU_GEM_DOMAIN_GTT |
	                                       AMDGPU_GEM_DOMAIN_CPU);
	bo->allowed_domains = bo->preferred_domains;
	if (bo->allowed_domains == AMDGPU_GEM_DOMAIN_VRAM)
		bo->allowed_domains |= AMDGPU_GEM_DOMAIN_GTT;
	if (bo->owner)
		emu_vm_bo_invalidate(bo, true);
	return 0;
}

struct entries {
	struct drm_amdgpu_gem_vm_entry *items;
	uint32_t count, room;
};

static void entries_add(struct entries *entries, const struct emu_list *mappings)
{
	EMU_FOR_EACH(item, mappings) {
		const struct emu_mapping *mapping = EMU_ENTRY(item, struct emu_mapping, link);

		if (entries->count < entries->room)
			entries->items[entries->count] = (struct drm_amdgpu_gem_vm_entry){
				.addr = mapping->start << EMU_PAGE_SHIFT,
				.size = (mapping->last - mapping->start + 1) << EMU_PAGE_SHIFT,
				.offset = mapping->offset,
				.flags = mapping->flags,
			};
		entries->count++;
	}
}

/* How many there are; and they themselves if all of them fit. */
static int mapping_info_get(const struct emu_bo_va *bo_va, struct drm_amdgpu_gem_op *args)
{
	struct entries entries = { 0 };
	int error = 0;

	entries_add(&entries, &bo_va->valids);
	entries_add(&entries, &bo_va->invalids);
	if (entries.count && entries.count <= args->num_entries) {
		entries.room = entries.count;
		entries.count = 0;
		entries.items = calloc(entries.room, sizeof(*entries.items));
		if (!entries.items)
			return -ENOMEM;
		entries_add(&entries, &bo_va->valids);
		entries_add(&entries, &bo_va->invalids);
		error = emu_copy_out(args->value, entries.items,
		                     entries.count * sizeof(*entries.items));
	}
	args->num_entries = entries.count;
	free(entries.items);
	return error;
}

static int op_run(struct emu_file *file, struct drm_amdgpu_gem_op *args)
{
	const struct emu_handle *handle = emu_handle_find(file, args->handle);

	if (!handle)
		return -ENOENT;
	switch (args->op) {
	case AMDGPU_GEM_OP_GET_GEM_CREATE_INFO:
		return create_info_get(handle->bo, args);
	case AMDGPU_GEM_OP_SET_PLACEMENT:
		return placement_set(handle->bo, args);
	case AMDGPU_GEM_OP_GET_MAPPING_INFO:
		if (file->gpu->kernel->has_mapping_info)
			return mapping_info_get(handle->bo_va, args);
		break;
	}
	return emu_refuse(file->gpu, -EINVAL, "GEM_OP: unknown operation %u", args->op);
}

int emu_gem_op(struct emu_file *file, void *data)
{
	struct drm_amdgpu_gem_op *args = data;
	int error;

	if (args->padding)
		return -EINVAL;
	pthread_mutex_lock(&file->gpu->lock);
	error = op_run(file, args);
	pthread_mutex_unlock(&file->gpu->lock);
	return error;
}

/* ---- LIST_HANDLES ---------------------------------------------------------------------------- */

/* No buffer here is another driver's, so none has the flag of an import. */
static int handles_copy(const struct emu_file *file, uint64_t to)
{
	const struct emu_handle *handle;
	int error = 0;

	for (uint32_t id = 1; !error && (handle = emu_ids_next(&file->handles, &id)); id++) {
		const struct emu_bo *bo = handle->bo;
		const struct drm_amdgpu_gem_list_handles_entry entry = {
			.gem_handle = id,
			.size = bo->bytes,
			.preferred_domains = emu_bo_told_domains(bo),
			.alloc_flags = bo->flags,
			.alignment = bo->alignment,
		};

		error = emu_copy_out(to, &entry, sizeof(entry));
		to += sizeof(entry);
	}
	return error;
}

int emu_gem_list_handles(struct emu_file *file, void *data)
{
	struct drm_amdgpu_gem_list_handles *args = data;
	int error = 0;

	if (args->padding)
		return -EINVAL;
	pthread_mutex_lock(&file->gpu->lock);
	if (file->handles.used <= args->num_entries)
		error = handles_copy(file, args->entries);
	args->num_entries = file->handles.used;
	pthread_mutex_unlock(&file->gpu->lock);
	return error;
}
