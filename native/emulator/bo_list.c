/* SPDX-License-Identifier: MIT
 *
 * Lists of buffers that a submission uses: BO_LIST.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "emu.h"

#define LIST_MAX (128u << 10)
#define PRIORITY_MAX 32u

void emu_bo_list_put(struct emu_bo_list *list)
{
	if (!list || --list->references)
		return;
	for (uint32_t i = 0; i < list->count; i++)
		emu_bo_put(list->items[i].bo);
	free(list->items);
	free(list);
}

/* Entries as the caller has them may be shorter or longer than ours. */
static int entries_copy(const struct drm_amdgpu_bo_list_in *in,
                        struct drm_amdgpu_bo_list_entry *entries)
{
	size_t known = sizeof(*entries), part = in->bo_info_size < known ? in->bo_info_size : known;

	if (in->bo_info_size == known)
		return emu_copy_in(entries, in->bo_info_ptr, in->bo_number * known);
	for (uint32_t i = 0; i < in->bo_number; i++) {
		int error = emu_copy_in(&entries[i],
		                        in->bo_info_ptr + (uint64_t)i * in->bo_info_size, part);

		if (error)
			return error;
	}
	return 0;
}

static int entries_get(const struct drm_amdgpu_bo_list_in *in,
                       struct drm_amdgpu_bo_list_entry **ret)
{
	struct drm_amdgpu_bo_list_entry *entries;
	int error;

	if (in->bo_number > LIST_MAX)
		return -EINVAL;
	entries = calloc(in->bo_number + 1, sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	error = entries_copy(in, entries);
	if (error) {
		free(entries);
		return error;
	}
	*ret = entries;
	return 0;
}

static int list_make(struct emu_file *file, const struct drm_amdgpu_bo_list_entry *entries, uint32_t n,
                     struct emu_bo_list **ret)
{
	struct emu_bo_list *list = calloc(1, sizeof(*list));

	if (list)
		list->items = calloc((size_t)n + 1, sizeof(*list->items));
	if (!list || !list->items) {
		free(list);
		return -ENOMEM;
	}
	list->references = 1;
	for (uint32_t i = 0; i < n; i++) {
		struct emu_handle *handle = emu_handle_find(file, entries[i].bo_handle);
		uint32_t priority = entries[i].bo_priority;

		if (!handle) {
			emu_bo_list_put(list);
			return -ENOENT;
		}
		emu_bo_get(handle->bo);
		list->items[i].bo = handle->bo;
		list->items[i].priority = priority < PRIORITY_MAX ? priority : PRIORITY_MAX;
		list->count++;
	}
	*ret = list;
	return 0;
}

int emu_bo_list_create(struct emu_file *file, const struct drm_amdgpu_bo_list_in *in,
                       struct emu_bo_list **ret)
{
	struct drm_amdgpu_bo_list_entry *entries;
	int error = entries_get(in, &entries);

	if (error)
		return error;
	error = list_make(file, entries, in->bo_number, ret);
	free(entries);
	return error;
}

/* ---- BO_LIST ------------------------------------------------------------------------------------- */

static int op_create(struct emu_file *file, const struct drm_amdgpu_bo_list_in *in, uint32_t *id)
{
	struct emu_bo_list *list;
	int error = emu_bo_list_create(file, in, &list);

	if (error)
		return error;
	error = emu_ids_add(&file->bo_lists, list, id);
	if (error)
		emu_bo_list_put(list);
	return error;
}

static int op_update(struct emu_file *file, const struct drm_amdgpu_bo_list_in *in)
{
	struct emu_bo_list *list, *old;
	int error = emu_bo_list_create(file, in, &list);

	if (error)
		return error;
	old = emu_ids_find(&file->bo_lists, in->list_handle);
	if (!old) {
		emu_bo_list_put(list);
		return -ENOENT;
	}
	/* The number stays, and who uses the old list at the moment keeps that. */
	file->bo_lists.items[in->list_handle - 1] = list;
	emu_bo_list_put(old);
	return 0;
}

/* The array is read for each operation, and a list that isn't there is destroyed without a word. */
static int op_destroy(struct emu_file *file, const struct drm_amdgpu_bo_list_in *in)
{
	struct drm_amdgpu_bo_list_entry *entries;
	int error = entries_get(in, &entries);

	if (error)
		return error;
	free(entries);
	emu_bo_list_put(emu_ids_remove(&file->bo_lists, in->list_handle));
	return 0;
}

static int op_run(struct emu_file *file, const struct drm_amdgpu_bo_list_in *in, uint32_t *id)
{
	switch (in->operation) {
	case AMDGPU_BO_LIST_OP_CREATE:
		return op_create(file, in, id);
	case AMDGPU_BO_LIST_OP_DESTROY:
		*id = 0;
		return op_destroy(file, in);
	case AMDGPU_BO_LIST_OP_UPDATE:
		return op_update(file, in);
	default:
		return emu_refuse(file->gpu, -EINVAL, "BO_LIST: unknown operation %u",
		                  in->operation);
	}
}

int emu_bo_list(struct emu_file *file, void *data)
{
	union drm_amdgpu_bo_list *args = data;
	uint32_t id = args->in.list_handle;
	int error;

	pthread_mutex_lock(&file->gpu->lock);
	error = op_run(file, &args->in, &id);
	pthread_mutex_unlock(&file->gpu->lock);
	if (error)
		return error;
	memset(args, 0, sizeof(*args));
	args->out.list_handle = id;
	return 0;
}
