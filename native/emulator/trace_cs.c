/* SPDX-License-Identifier: MIT
 *
 * The trace: what submissions and buffer lists point to.
 */
#include <string.h>

#include "entry.h"

#define LISTED_MOST 64 /* of chunks, and of elements in one: more are only counted */

static unsigned long long ull(uint64_t value)
{
	return value;
}

static void ib_print(FILE *out, const void *element)
{
	struct drm_amdgpu_cs_chunk_ib ib;

	memcpy(&ib, element, sizeof(ib));
	fprintf(out, "{\"va_start\":\"0x%llx\",\"ib_bytes\":%u,\"ip_type\":%u,\"ip_instance\":%u,",
	        ull(ib.va_start), ib.ib_bytes, ib.ip_type, ib.ip_instance);
	fprintf(out, "\"ring\":%u,\"flags\":%u}", ib.ring, ib.flags);
}

static void fence_print(FILE *out, const void *element)
{
	struct drm_amdgpu_cs_chunk_fence fence;

	memcpy(&fence, element, sizeof(fence));
	fprintf(out, "{\"handle\":%u,\"offset\":%u}", fence.handle, fence.offset);
}

static void dep_print(FILE *out, const void *element)
{
	struct drm_amdgpu_cs_chunk_dep dep;

	memcpy(&dep, element, sizeof(dep));
	fprintf(out, "{\"ip_type\":%u,\"ring\":%u,\"ctx_id\":%u,\"handle\":%llu}", dep.ip_type,
	        dep.ring, dep.ctx_id, ull(dep.handle));
}

static void sem_print(FILE *out, const void *element)
{
	struct drm_amdgpu_cs_chunk_sem sem;

	memcpy(&sem, element, sizeof(sem));
	fprintf(out, "%u", sem.handle);
}

static void point_print(FILE *out, const void *element)
{
	struct drm_amdgpu_cs_chunk_syncobj point;

	memcpy(&point, element, sizeof(point));
	fprintf(out, "{\"handle\":%u,\"flags\":%u,\"point\":%llu}", point.handle, point.flags,
	        ull(point.point));
}

static void entry_print(FILE *out, const void *element)
{
	struct drm_amdgpu_bo_list_entry entry;

	memcpy(&entry, element, sizeof(entry));
	fprintf(out, "%u", entry.bo_handle);
}

typedef void element_print(FILE *out, const void *element);

static const struct {
	const char *name;
	uint32_t bytes;
	element_print *print;
} kinds[] = {
	[AMDGPU_CHUNK_ID_IB] = { "IB", sizeof(struct drm_amdgpu_cs_chunk_ib), ib_print },
	[AMDGPU_CHUNK_ID_FENCE] = { "FENCE", sizeof(struct drm_amdgpu_cs_chunk_fence),
	                            fence_print },
	[AMDGPU_CHUNK_ID_DEPENDENCIES] = { "DEPENDENCIES", sizeof(struct drm_amdgpu_cs_chunk_dep),
	                                   dep_print },
	[AMDGPU_CHUNK_ID_SYNCOBJ_IN] = { "SYNCOBJ_IN", sizeof(struct drm_amdgpu_cs_chunk_sem),
	                                 sem_print },
	[AMDGPU_CHUNK_ID_SYNCOBJ_OUT] = { "SYNCOBJ_OUT", sizeof(struct drm_amdgpu_cs_chunk_sem),
	                                  sem_print },
	[AMDGPU_CHUNK_ID_SCHEDULED_DEPENDENCIES] = {
		"SCHEDULED_DEPENDENCIES", sizeof(struct drm_amdgpu_cs_chunk_dep), dep_print },
	[AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT] = {
		"SYNCOBJ_TIMELINE_WAIT", sizeof(struct drm_amdgpu_cs_chunk_syncobj), point_print },
	[AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL] = {
		"SYNCOBJ_TIMELINE_SIGNAL", sizeof(struct drm_amdgpu_cs_chunk_syncobj), point_print },
};

/* "[...]", cut off where the caller's memory ends. */
static void elements_print(FILE *out, uint64_t from, uint64_t count, uint32_t bytes,
                           element_print *print)
{
	uint64_t element[8];

	fputc('[', out);
	for (uint64_t i = 0; i < count && i < LISTED_MOST; i++) {
		if (emu_copy_in(element, from + i * bytes, bytes))
			break;
		if (i)
			fputc(',', out);
		print(out, element);
	}
	fputc(']', out);
}

/* The list of a BO_HANDLES chunk, or of BO_LIST. */
static void entries_print(FILE *out, const struct drm_amdgpu_bo_list_in *list)
{
	fprintf(out, "\"entries\":");
	elements_print(out, list->bo_info_ptr, list->bo_number,
	               sizeof(struct drm_amdgpu_bo_list_entry), entry_print);
}

static void chunk_print(FILE *out, const struct drm_amdgpu_cs_chunk *chunk)
{
	struct drm_amdgpu_bo_list_in list;
	uint32_t id = chunk->chunk_id;

	if (id == AMDGPU_CHUNK_ID_BO_HANDLES) {
		fprintf(out, "{\"id\":\"BO_HANDLES\",");
		if (chunk->length_dw * 4ULL >= sizeof(list) &&
		    !emu_copy_in(&list, chunk->chunk_data, sizeof(list)))
			fprintf(out, "\"bo_number\":%u,", list.bo_number);
		else
			memset(&list, 0, sizeof(list));
		entries_print(out, &list);
		fputc('}', out);
	} else if (id < sizeof(kinds) / sizeof(kinds[0]) && kinds[id].name) {
		fprintf(out, "{\"id\":\"%s\",\"data\":", kinds[id].name);
		elements_print(out, chunk->chunk_data, chunk->length_dw * 4ULL / kinds[id].bytes,
		               kinds[id].bytes, kinds[id].print);
		fputc('}', out);
	} else {
		fprintf(out, "{\"id\":%u,\"length_dw\":%u}", id, chunk->length_dw);
	}
}

static void pointer_print(FILE *out, const void *element)
{
	struct drm_amdgpu_cs_chunk chunk;
	uint64_t pointer;

	memcpy(&pointer, element, sizeof(pointer));
	if (emu_copy_in(&chunk, pointer, sizeof(chunk)))
		fputs("null", out);
	else
		chunk_print(out, &chunk);
}

void emu_trace_chunks(FILE *out, const struct drm_amdgpu_cs_in *cs)
{
	fputs(",\"chunks\":", out);
	elements_print(out, cs->chunks, cs->num_chunks, sizeof(uint64_t), pointer_print);
}

void emu_trace_entries(FILE *out, const struct drm_amdgpu_bo_list_in *list)
{
	fputc(',', out);
	entries_print(out, list->operation == AMDGPU_BO_LIST_OP_DESTROY
	                       ? &(const struct drm_amdgpu_bo_list_in){ 0 }
	                       : list);
}
