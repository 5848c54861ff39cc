/* SPDX-License-Identifier: MIT
 *
 * The grammar of ioctls: which fields an argument has, and what a program would put there.
 */
#include <string.h>

#include "fuzz.h"

enum kind {
	END,
	HANDLE,
	SYNCOBJ,
	CONTEXT,
	LIST,
	NAME,
	IP,
	RING,
	NUMBER, /* of a submission */
	COUNT,
	OPERATION, /* below `most` */
	ONE_OF,    /* from 1 to `most` */
	FLAGS,     /* of the bits `most` */
	DOMAINS,
	PAGE_FLAGS,
	PRIORITY,
	QUERY,
	ENTRY_SIZE,
	FD,
	SIZE,
	OFFSET,
	ALIGNMENT,
	ADDRESS,
	POINT,
	TIME,
	/* Pointers, to arrays or to room for an answer. */
	TO_ROOM,
	TO_SYNCOBJS,
	TO_POINTS,
	TO_FENCES,
	TO_ENTRIES,
	TO_USER,
};

struct field {
	uint16_t offset;
	uint8_t bytes, kind;
	uint64_t most;
};

#define AT(type, member, ...)                                                                      \
	{ offsetof(type, member), sizeof(((type *)0)->member), __VA_ARGS__ }

#define FIELDS 12

static const struct grammar {
	const char *ioctl;
	struct field fields[FIELDS];
} grammars[] = {
	{ "GEM_VA",
	  { AT(struct drm_amdgpu_gem_va, handle, HANDLE, 0),
	    AT(struct drm_amdgpu_gem_va, operation, ONE_OF, 4),
	    AT(struct drm_amdgpu_gem_va, flags, PAGE_FLAGS, 0),
	    AT(struct drm_amdgpu_gem_va, va_address, ADDRESS, 0),
	    AT(struct drm_amdgpu_gem_va, offset_in_bo, OFFSET, 0),
	    AT(struct drm_amdgpu_gem_va, map_size, SIZE, 0),
	    AT(struct drm_amdgpu_gem_va, vm_timeline_point, POINT, 0),
	    AT(struct drm_amdgpu_gem_va, vm_timeline_syncobj_out, SYNCOBJ, 0),
	    AT(struct drm_amdgpu_gem_va, num_syncobj_handles, COUNT, 0),
	    AT(struct drm_amdgpu_gem_va, input_fence_syncobj_handles, TO_SYNCOBJS, 0) } },
	{ "CS", { AT(struct drm_amdgpu_cs_in, ctx_id, CONTEXT, 0) } }, /* fuzz_submission */
	{ "WAIT_CS",
	  { AT(struct drm_amdgpu_wait_cs_in, handle, NUMBER, 0),
	    AT(struct drm_amdgpu_wait_cs_in, timeout, TIME, 0),
	    AT(struct drm_amdgpu_wait_cs_in, ip_type, IP, 0),
	    AT(struct drm_amdgpu_wait_cs_in, ring, RING, 0),
	    AT(struct drm_amdgpu_wait_cs_in, ctx_id, CONTEXT, 0) } },
	{ "WAIT_FENCES",
	  { AT(struct drm_amdgpu_wait_fences_in, fences, TO_FENCES, 0),
	    AT(struct drm_amdgpu_wait_fences_in, fence_count, COUNT, 0),
	    AT(struct drm_amdgpu_wait_fences_in, wait_all, OPERATION, 2),
	    AT(struct drm_amdgpu_wait_fences_in, timeout_ns, TIME, 0) } },
	{ "FENCE_TO_HANDLE",
	  { AT(struct drm_amdgpu_fence, ctx_id, CONTEXT, 0), AT(struct drm_amdgpu_fence, ip_type, IP, 0),
	    AT(struct drm_amdgpu_fence, ring, RING, 0), AT(struct drm_amdgpu_fence, seq_no, NUMBER, 0),
	    { offsetof(union drm_amdgpu_fence_to_handle, in.what), 4, OPERATION, 4 } } },
	{ "GEM_CREATE",
	  { AT(struct drm_amdgpu_gem_create_in, bo_size, SIZE, 0),
	    AT(struct drm_amdgpu_gem_create_in, alignment, ALIGNMENT, 0),
	    AT(struct drm_amdgpu_gem_create_in, domains, DOMAINS, 0),
	    AT(struct drm_amdgpu_gem_create_in, domain_flags, FLAGS, 0x1ffff) } },
	{ "GEM_CLOSE", { AT(struct drm_gem_close, handle, HANDLE, 0) } },
	{ "GEM_MMAP", { AT(struct drm_amdgpu_gem_mmap_in, handle, HANDLE, 0) } },
	{ "GEM_WAIT_IDLE",
	  { AT(struct drm_amdgpu_gem_wait_idle_in, handle, HANDLE, 0),
	    AT(struct drm_amdgpu_gem_wait_idle_in, timeout, TIME, 0) } },
	{ "GEM_METADATA",
	  { AT(struct drm_amdgpu_gem_metadata, handle, HANDLE, 0),
	    AT(struct drm_amdgpu_gem_metadata, op, ONE_OF, 2),
	    AT(struct drm_amdgpu_gem_metadata, data.data_size_bytes, OPERATION, 300) } },
	{ "GEM_OP",
	  { AT(struct drm_amdgpu_gem_op, handle, HANDLE, 0),
	    AT(struct drm_amdgpu_gem_op, op, OPERATION, 4),
	    AT(struct drm_amdgpu_gem_op, value, TO_ROOM, 0),
	    AT(struct drm_amdgpu_gem_op, num_entries, COUNT, 0) } },
	{ "GEM_USERPTR",
	  { AT(struct drm_amdgpu_gem_userptr, addr, TO_USER, 0),
	    AT(struct drm_amdgpu_gem_userptr, size, SIZE, 0),
	    AT(struct drm_amdgpu_gem_userptr, flags, FLAGS, 0xf) } },
	{ "GEM_LIST_HANDLES",
	  { AT(struct drm_amdgpu_gem_list_handles, entries, TO_ROOM, 0),
	    AT(struct drm_amdgpu_gem_list_handles, num_entries, COUNT, 0) } },
	{ "GEM_FLINK", { AT(struct drm_gem_flink, handle, HANDLE, 0) } },
	{ "GEM_OPEN", { AT(struct drm_gem_open, name, NAME, 0) } },
	{ "PRIME_HANDLE_TO_FD",
	  { AT(struct drm_prime_handle, handle, HANDLE, 0),
	    AT(struct drm_prime_handle, flags, FLAGS, DRM_CLOEXEC | DRM_RDWR) } },
	{ "PRIME_FD_TO_HANDLE", { AT(struct drm_prime_handle, fd, FD, 0) } },
	{ "CTX",
	  { AT(struct drm_amdgpu_ctx_in, op, ONE_OF, 6),
	    AT(struct drm_amdgpu_ctx_in, flags, FLAGS, 1),
	    AT(struct drm_amdgpu_ctx_in, ctx_id, CONTEXT, 0),
	    AT(struct drm_amdgpu_ctx_in, priority, PRIORITY, 0) } },
	{ "BO_LIST",
	  { AT(struct drm_amdgpu_bo_list_in, operation, OPERATION, 4),
	    AT(struct drm_amdgpu_bo_list_in, list_handle, LIST, 0),
	    AT(struct drm_amdgpu_bo_list_in, bo_number, COUNT, 0),
	    AT(struct drm_amdgpu_bo_list_in, bo_info_size, ENTRY_SIZE, 0),
	    AT(struct drm_amdgpu_bo_list_in, bo_info_ptr, TO_ENTRIES, 0) } },
	{ "VM", { AT(struct drm_amdgpu_vm_in, op, ONE_OF, 2) } },
	{ "SCHED",
	  { AT(struct drm_amdgpu_sched_in, op, ONE_OF, 2), AT(struct drm_amdgpu_sched_in, fd, FD, 0),
	    AT(struct drm_amdgpu_sched_in, priority, PRIORITY, 0),
	    AT(struct drm_amdgpu_sched_in, ctx_id, CONTEXT, 0) } },
	{ "SYNCOBJ_CREATE", { AT(struct drm_syncobj_create, flags, FLAGS, 1) } },
	{ "SYNCOBJ_DESTROY", { AT(struct drm_syncobj_destroy, handle, SYNCOBJ, 0) } },
	{ "SYNCOBJ_HANDLE_TO_FD",
	  { AT(struct drm_syncobj_handle, handle, SYNCOBJ, 0),
	    AT(struct drm_syncobj_handle, flags, FLAGS, 3),
	    AT(struct drm_syncobj_handle, point, POINT, 0) } },
	{ "SYNCOBJ_FD_TO_HANDLE",
	  { AT(struct drm_syncobj_handle, handle, SYNCOBJ, 0),
	    AT(struct drm_syncobj_handle, flags, FLAGS, 3),
	    AT(struct drm_syncobj_handle, fd, FD, 0), AT(struct drm_syncobj_handle, point, POINT, 0) } },
	{ "SYNCOBJ_WAIT",
	  { AT(struct drm_syncobj_wait, handles, TO_SYNCOBJS, 0),
	    AT(struct drm_syncobj_wait, timeout_nsec, TIME, 0),
	    AT(struct drm_syncobj_wait, count_handles, COUNT, 0),
	    AT(struct drm_syncobj_wait, flags, FLAGS, 0xf) } },
	{ "SYNCOBJ_TIMELINE_WAIT",
	  { AT(struct drm_syncobj_timeline_wait, handles, TO_SYNCOBJS, 0),
	    AT(struct drm_syncobj_timeline_wait, points, TO_POINTS, 0),
	    AT(struct drm_syncobj_timeline_wait, timeout_nsec, TIME, 0),
	    AT(struct drm_syncobj_timeline_wait, count_handles, COUNT, 0),
	    AT(struct drm_syncobj_timeline_wait, flags, FLAGS, 0xf) } },
	{ "SYNCOBJ_RESET",
	  { AT(struct drm_syncobj_array, handles, TO_SYNCOBJS, 0),
	    AT(struct drm_syncobj_array, count_handles, COUNT, 0) } },
	{ "SYNCOBJ_SIGNAL",
	  { AT(struct drm_syncobj_array, handles, TO_SYNCOBJS, 0),
	    AT(struct drm_syncobj_array, count_handles, COUNT, 0) } },
	{ "SYNCOBJ_TIMELINE_SIGNAL",
	  { AT(struct drm_syncobj_timeline_array, handles, TO_SYNCOBJS, 0),
	    AT(struct drm_syncobj_timeline_array, points, TO_POINTS, 0),
	    AT(struct drm_syncobj_timeline_array, count_handles, COUNT, 0) } },
	{ "SYNCOBJ_QUERY",
	  { AT(struct drm_syncobj_timeline_array, handles, TO_SYNCOBJS, 0),
	    AT(struct drm_syncobj_timeline_array, points, TO_POINTS, 0),
	    AT(struct drm_syncobj_timeline_array, count_handles, COUNT, 0),
	    AT(struct drm_syncobj_timeline_array, flags, FLAGS, 1) } },
	{ "SYNCOBJ_TRANSFER",
	  { AT(struct drm_syncobj_transfer, src_handle, SYNCOBJ, 0),
	    AT(struct drm_syncobj_transfer, dst_handle, SYNCOBJ, 0),
	    AT(struct drm_syncobj_transfer, src_point, POINT, 0),
	    AT(struct drm_syncobj_transfer, dst_point, POINT, 0),
	    AT(struct drm_syncobj_transfer, flags, FLAGS, 2) } },
	{ "SYNCOBJ_EVENTFD",
	  { AT(struct drm_syncobj_eventfd, handle, SYNCOBJ, 0),
	    AT(struct drm_syncobj_eventfd, flags, FLAGS, 4),
	    AT(struct drm_syncobj_eventfd, point, POINT, 0), AT(struct drm_syncobj_eventfd, fd, FD, 0) } },
	{ "INFO",
	  { AT(struct drm_amdgpu_info, return_pointer, TO_ROOM, 0),
	    AT(struct drm_amdgpu_info, return_size, OPERATION, 600),
	    AT(struct drm_amdgpu_info, query, QUERY, 0),
	    { offsetof(struct drm_amdgpu_info, query) + 4, 4, OPERATION, 16 },
	    { offsetof(struct drm_amdgpu_info, query) + 8, 4, OPERATION, 4 } } },
	{ "VERSION",
	  { AT(struct drm_version, name_len, OPERATION, 40), AT(struct drm_version, name, TO_ROOM, 0),
	    AT(struct drm_version, date_len, OPERATION, 40), AT(struct drm_version, date, TO_ROOM, 0),
	    AT(struct drm_version, desc_len, OPERATION, 40), AT(struct drm_version, desc, TO_ROOM, 0) } },
	{ "GET_UNIQUE",
	  { AT(struct drm_unique, unique_len, OPERATION, 40),
	    AT(struct drm_unique, unique, TO_ROOM, 0) } },
	{ "GET_CAP", { AT(struct drm_get_cap, capability, OPERATION, 0x18) } },
	{ "SET_CLIENT_NAME",
	  { AT(struct drm_set_client_name, name_len, OPERATION, 80),
	    AT(struct drm_set_client_name, name, TO_ROOM, 0) } },
	{ "SET_CLIENT_CAP",
	  { AT(struct drm_set_client_cap, capability, OPERATION, 8),
	    AT(struct drm_set_client_cap, value, OPERATION, 3) } },
	{ "SET_VERSION",
	  { AT(struct drm_set_version, drm_di_major, OPERATION, 3),
	    AT(struct drm_set_version, drm_di_minor, OPERATION, 6),
	    AT(struct drm_set_version, drm_dd_major, OPERATION, 5),
	    AT(struct drm_set_version, drm_dd_minor, OPERATION, 80) } },
	{ "AUTH_MAGIC", { AT(struct drm_auth, magic, OPERATION, 5) } },
	{ "MODE_CREATE_DUMB",
	  { AT(struct drm_mode_create_dumb, height, OPERATION, 2000),
	    AT(struct drm_mode_create_dumb, width, OPERATION, 2000),
	    AT(struct drm_mode_create_dumb, bpp, OPERATION, 65) } },
	{ "MODE_MAP_DUMB", { AT(struct drm_mode_map_dumb, handle, HANDLE, 0) } },
	{ "MODE_DESTROY_DUMB", { AT(struct drm_mode_destroy_dumb, handle, HANDLE, 0) } },
};

/* ---- values ---------------------------------------------------------------------------------- */

uint64_t fuzz_garbage(struct fuzz *fuzz)
{
	static const uint64_t strange[] = { 0, 1, 3, 0x7f, 0xfff, 0x1000, 0x7fffffff, 0x80000000,
		                            0xffffffff, 0x100000000, 0x7fffffffffff, 0x800000000000,
		                            0x7fffffffffffffff, 0x8000000000000000,
		                            0xffffffffffff0000, 0xffffffffffffffff };
	uint8_t which = fuzz_byte(fuzz);

	if (which < 128)
		return strange[which % 16];
	if (which < 192)
		return (uint64_t)1 << (which & 63);
	return fuzz_u64(fuzz);
}

static uint64_t place(struct fuzz *fuzz)
{
	const uint64_t bases[] = { FUZZ_WORK_VA, FUZZ_WORK_VA + FUZZ_SLOTS * 4096, FUZZ_WORK_VA << 1,
		                          0x10000, 0x200000, fuzz->window, 0xffff800000000000,
		                          0xffffffffffa00000 };
	static const uint64_t units[] = { 4096, 65536, 2 << 20, 4 };
	uint8_t which = fuzz_byte(fuzz), step = fuzz_byte(fuzz);

	if (which == 255)
		return fuzz_garbage(fuzz);
	return bases[which & 7] + (step & 63) * units[step >> 6];
}

uint64_t fuzz_address(struct fuzz *fuzz)
{
	uint8_t which = fuzz_byte(fuzz);

	/* Among the packets themselves now and then. */
	if (which < 224)
		return FUZZ_WORK_VA + (which & 1 ? 0 : FUZZ_WORK_BYTES / 2) + 16 * fuzz_byte(fuzz);
	return place(fuzz);
}

static uint64_t size(struct fuzz *fuzz)
{
	static const uint64_t units[] = { 4096, 65536, 2 << 20, 1000 };
	uint8_t which = fuzz_byte(fuzz);

	if (which >= 250)
		return (uint64_t)fuzz_byte(fuzz) << 28; /* more than there is */
	return ((which & 3 ? which & 3 : which & 63) + 1) * units[which >> 6];
}

/* No bit, one of them, or any. */
static uint64_t flags(struct fuzz *fuzz, uint64_t known)
{
	uint8_t which = fuzz_byte(fuzz);
	uint64_t one = (uint64_t)1 << (which & 31);

	if (which < 128)
		return which < 96 || !(one & known) ? 0 : one;
	return which < 224 ? one & known : fuzz_u64(fuzz) & known;
}

static uint64_t domains(struct fuzz *fuzz)
{
	static const uint8_t usual[] = { 2, 4, 6, 2, 4, 1, 3, 8, 16, 32, 7, 0 };

	return usual[fuzz_byte(fuzz) % sizeof(usual)];
}

static uint64_t page_flags(struct fuzz *fuzz)
{
	static const uint32_t usual[] = { 0xe, 0xe, 0xe, 0xf, 0x10, 0x11, 2, 6, 7, 0, 0x2e, 0x20e };
	uint8_t which = fuzz_byte(fuzz);

	return which < 240 ? usual[which % 12] : fuzz_u32(fuzz);
}

static int fd(struct fuzz *fuzz)
{
	uint8_t which = fuzz_byte(fuzz);

	if (which < 192 && fuzz->fd_count)
		return fuzz->fds[which % fuzz->fd_count];
	return which & 1 ? fuzz->files[which % FUZZ_FILES].fd : 1000000;
}

static uint64_t when(struct fuzz *fuzz)
{
	uint8_t which = fuzz_byte(fuzz);

	if (which < 128)
		return which;
	/* Negative is for ever in some, and over in others. */
	return emu_now_ns() + (which - 128) * 1000;
}

static int32_t priority(struct fuzz *fuzz)
{
	static const int32_t all[] = { 0, AMDGPU_CTX_PRIORITY_LOW, AMDGPU_CTX_PRIORITY_HIGH,
		                       AMDGPU_CTX_PRIORITY_VERY_LOW, AMDGPU_CTX_PRIORITY_VERY_HIGH,
		                       AMDGPU_CTX_PRIORITY_UNSET, 1, 5000 };

	return all[fuzz_byte(fuzz) % 8];
}

/* ---- pointers -------------------------------------------------------------------------------- */

void *fuzz_room(struct fuzz *fuzz, uint32_t bytes)
{
	void *room;

	bytes = (bytes + 7) & ~7u;
	if (bytes > FUZZ_ARENA_BYTES - fuzz->arena_used)
		fuzz->arena_used = 0; /* what was there is overwritten */
	room = fuzz->arena + fuzz->arena_used;
	fuzz->arena_used += bytes;
	return room;
}

uint64_t fuzz_nowhere(struct fuzz *fuzz)
{
	uint64_t end = (uintptr_t)fuzz->arena + FUZZ_ARENA_BYTES;
	uint8_t which = fuzz_byte(fuzz);
	const uint64_t all[] = { 0, 8, end, end - 4, end - 24, 0x800000000000, UINT64_MAX - 7,
		                 UINT64_MAX };

	return all[which & 7];
}

uint32_t fuzz_small(struct fuzz *fuzz)
{
	uint8_t which = fuzz_byte(fuzz);

	if (which < 192)
		return which % 4 + 1;
	return which == 255 ? (uint32_t)fuzz_garbage(fuzz) : which & 15;
}

static void fence_fill(struct fuzz *fuzz, struct drm_amdgpu_fence *fence)
{
	uint8_t which = fuzz_byte(fuzz);

	*fence = (struct drm_amdgpu_fence){ .ctx_id = fuzz_small(fuzz), .ip_type = which % 3,
		                            .ring = which >> 7, .seq_no = fuzz_small(fuzz) };
}

static uint64_t array(struct fuzz *fuzz, enum kind kind)
{
	uint32_t n = fuzz_byte(fuzz) % 9;
	uint32_t *words = fuzz_room(fuzz, 32 * n + 8);

	for (uint32_t i = 0; i < n; i++) {
		if (kind == TO_SYNCOBJS)
			words[i] = fuzz_small(fuzz);
		else if (kind == TO_POINTS)
			((uint64_t *)words)[i] = fuzz_small(fuzz);
		else if (kind == TO_FENCES)
			fence_fill(fuzz, (struct drm_amdgpu_fence *)words + i);
		else if (kind == TO_ENTRIES)
			((struct drm_amdgpu_bo_list_entry *)words)[i] =
			    (struct drm_amdgpu_bo_list_entry){ fuzz_small(fuzz), fuzz_small(fuzz) };
	}
	return (uintptr_t)words;
}

static uint64_t pointer(struct fuzz *fuzz, enum kind kind)
{
	uint8_t which = fuzz_byte(fuzz);

	if (which >= 248)
		return fuzz_nowhere(fuzz);
	if (kind == TO_USER)
		return (uintptr_t)fuzz->user + (which & 15) * 4096 + (which >= 240 ? 100 : 0);
	if (kind == TO_ROOM)
		return (uintptr_t)fuzz_room(fuzz, 640);
	return array(fuzz, kind);
}

uint64_t fuzz_entries(struct fuzz *fuzz)
{
	return pointer(fuzz, TO_ENTRIES);
}

/* ---- fields ---------------------------------------------------------------------------------- */

static uint64_t value(struct fuzz *fuzz, const struct field *field)
{
	switch ((enum kind)field->kind) {
	case HANDLE:
	case LIST:
	case NAME:
	case NUMBER:
	case POINT:
	case SYNCOBJ:
	case CONTEXT:
		return fuzz_small(fuzz);
	case IP:
		return fuzz_byte(fuzz) % 3;
	case RING:
		return fuzz_once_in(fuzz, 4);
	case COUNT:
		return fuzz_byte(fuzz) % 9;
	case OPERATION:
		return (field->most > 256 ? fuzz_u32(fuzz) : fuzz_byte(fuzz)) % field->most;
	case ONE_OF:
		return fuzz_byte(fuzz) % field->most + 1;
	case FLAGS:
		return flags(fuzz, field->most);
	case DOMAINS:
		return domains(fuzz);
	case PAGE_FLAGS:
		return page_flags(fuzz);
	case PRIORITY:
		return (uint64_t)priority(fuzz);
	case ENTRY_SIZE:
		return fuzz_once_in(fuzz, 8) ? fuzz_byte(fuzz) : 8;
	case QUERY:
		return fuzz_byte(fuzz) & 0x3f;
	case FD:
		return (uint64_t)fd(fuzz);
	case SIZE:
		return size(fuzz);
	case OFFSET:
		return fuzz_once_in(fuzz, 4) ? size(fuzz) : 0;
	case ALIGNMENT:
		return fuzz_once_in(fuzz, 4) ? 4096 << (fuzz_byte(fuzz) & 15) : 0;
	case ADDRESS:
		return place(fuzz);
	default:
		return 0;
	}
}

static bool is_safe_garbage(enum kind kind)
{
	return kind != FD && kind != TIME && kind < TO_ROOM;
}

static void field_fill(struct fuzz *fuzz, const struct field *field, uint8_t *data)
{
	uint64_t filled;

	if (field->kind == TIME)
		filled = when(fuzz);
	else if (field->kind >= TO_ROOM)
		filled = pointer(fuzz, field->kind);
	else if (is_safe_garbage(field->kind) && fuzz_once_in(fuzz, 24))
		filled = fuzz_garbage(fuzz);
	else
		filled = value(fuzz, field);
	memcpy(data + field->offset, &filled, field->bytes);
}

void fuzz_argument(struct fuzz *fuzz, const char *ioctl, void *data, uint32_t bytes)
{
	bool noisy = fuzz_once_in(fuzz, 24);

	for (uint32_t i = 0; i < bytes; i++)
		((uint8_t *)data)[i] = noisy ? fuzz_byte(fuzz) : 0;
	if (!strcmp(ioctl, "CS")) {
		fuzz_submission(fuzz, data);
		return;
	}
	for (size_t i = 0; i < sizeof(grammars) / sizeof(grammars[0]); i++) {
		const struct grammar *grammar = &grammars[i];

		if (strcmp(grammar->ioctl, ioctl))
			continue;
		for (size_t j = 0; j < FIELDS && grammar->fields[j].kind; j++)
			field_fill(fuzz, &grammar->fields[j], data);
	}
}
