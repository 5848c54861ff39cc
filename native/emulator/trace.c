/* SPDX-License-Identifier: MIT
 *
 * The trace: a JSON object a line for each ioctl, with the argument as it came and what it gave
 * back.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "entry.h"

#define SIGNED 1u
#define OUT 2u /* only known afterwards */
#define HEX 4u

struct field {
	const char *name;
	uint16_t offset;
	uint8_t bytes, flags;
};

#define AT(type, member, name, flags)                                                              \
	{ name, offsetof(type, member), sizeof(((type *)0)->member), flags }
#define IN(type, member) AT(type, member, #member, 0)
#define FIELDS(...) { __VA_ARGS__, { NULL, 0, 0, 0 } }
#define FIELDS_MOST 10

#define CREATE union drm_amdgpu_gem_create
#define VA struct drm_amdgpu_gem_va
#define CTX union drm_amdgpu_ctx
#define TIMELINE struct drm_syncobj_timeline_array
#define WAIT struct drm_syncobj_wait
#define TIMELINE_WAIT struct drm_syncobj_timeline_wait
#define PRIME struct drm_prime_handle
#define SYNCOBJ struct drm_syncobj_handle

static const struct {
	const char *ioctl;
	struct field fields[FIELDS_MOST];
} arguments[] = {
	{ "GEM_VA",
	  FIELDS(IN(VA, handle), IN(VA, operation), IN(VA, flags),
	         AT(VA, va_address, "va_address", HEX), IN(VA, offset_in_bo), IN(VA, map_size),
	         IN(VA, vm_timeline_syncobj_out), IN(VA, vm_timeline_point),
	         IN(VA, num_syncobj_handles)) },
	{ "GEM_CREATE",
	  FIELDS(AT(CREATE, in.bo_size, "bo_size", 0), AT(CREATE, in.alignment, "alignment", 0),
	         AT(CREATE, in.domains, "domains", 0),
	         AT(CREATE, in.domain_flags, "domain_flags", 0),
	         AT(CREATE, out.handle, "handle", OUT)) },
	{ "GEM_CLOSE", FIELDS(IN(struct drm_gem_close, handle)) },
	{ "GEM_MMAP",
	  FIELDS(AT(union drm_amdgpu_gem_mmap, in.handle, "handle", 0),
	         AT(union drm_amdgpu_gem_mmap, out.addr_ptr, "addr_ptr", OUT)) },
	{ "GEM_WAIT_IDLE",
	  FIELDS(AT(union drm_amdgpu_gem_wait_idle, in.handle, "handle", 0),
	         AT(union drm_amdgpu_gem_wait_idle, in.timeout, "timeout", 0),
	         AT(union drm_amdgpu_gem_wait_idle, out.status, "status", OUT)) },
	{ "GEM_METADATA",
	  FIELDS(IN(struct drm_amdgpu_gem_metadata, handle),
	         IN(struct drm_amdgpu_gem_metadata, op)) },
	{ "GEM_OP",
	  FIELDS(IN(struct drm_amdgpu_gem_op, handle), IN(struct drm_amdgpu_gem_op, op),
	         IN(struct drm_amdgpu_gem_op, value)) },
	{ "GEM_USERPTR",
	  FIELDS(AT(struct drm_amdgpu_gem_userptr, addr, "addr", HEX),
	         IN(struct drm_amdgpu_gem_userptr, size),
	         IN(struct drm_amdgpu_gem_userptr, flags),
	         AT(struct drm_amdgpu_gem_userptr, handle, "handle", OUT)) },
	{ "GEM_FLINK",
	  FIELDS(IN(struct drm_gem_flink, handle),
	         AT(struct drm_gem_flink, name, "name", OUT)) },
	{ "GEM_OPEN",
	  FIELDS(IN(struct drm_gem_open, name),
	         AT(struct drm_gem_open, handle, "handle", OUT)) },
	{ "PRIME_HANDLE_TO_FD",
	  FIELDS(IN(PRIME, handle), IN(PRIME, flags), AT(PRIME, fd, "fd", OUT | SIGNED)) },
	{ "PRIME_FD_TO_HANDLE",
	  FIELDS(AT(PRIME, fd, "fd", SIGNED), AT(PRIME, handle, "handle", OUT)) },
	{ "CTX",
	  FIELDS(AT(CTX, in.op, "op", 0), AT(CTX, in.flags, "flags", 0),
	         AT(CTX, in.ctx_id, "ctx_id", 0), AT(CTX, in.priority, "priority", SIGNED),
	         AT(CTX, out.alloc.ctx_id, "word0", OUT),
	         AT(CTX, out.state.hangs, "word2", OUT)) },
	{ "BO_LIST",
	  FIELDS(AT(union drm_amdgpu_bo_list, in.operation, "operation", 0),
	         AT(union drm_amdgpu_bo_list, in.list_handle, "list", 0),
	         AT(union drm_amdgpu_bo_list, in.bo_number, "bo_number", 0),
	         AT(union drm_amdgpu_bo_list, out.list_handle, "list_handle", OUT)) },
	{ "CS",
	  FIELDS(AT(union drm_amdgpu_cs, in.ctx_id, "ctx_id", 0),
	         AT(union drm_amdgpu_cs, in.bo_list_handle, "bo_list_handle", 0),
	         AT(union drm_amdgpu_cs, in.num_chunks, "num_chunks", 0),
	         AT(union drm_amdgpu_cs, in.flags, "flags", 0),
	         AT(union drm_amdgpu_cs, out.handle, "handle", OUT)) },
	{ "WAIT_CS",
	  FIELDS(AT(union drm_amdgpu_wait_cs, in.handle, "handle", 0),
	         AT(union drm_amdgpu_wait_cs, in.timeout, "timeout", 0),
	         AT(union drm_amdgpu_wait_cs, in.ip_type, "ip_type", 0),
	         AT(union drm_amdgpu_wait_cs, in.ring, "ring", 0),
	         AT(union drm_amdgpu_wait_cs, in.ctx_id, "ctx_id", 0),
	         AT(union drm_amdgpu_wait_cs, out.status, "status", OUT)) },
	{ "WAIT_FENCES",
	  FIELDS(AT(union drm_amdgpu_wait_fences, in.fence_count, "fence_count", 0),
	         AT(union drm_amdgpu_wait_fences, in.wait_all, "wait_all", 0),
	         AT(union drm_amdgpu_wait_fences, in.timeout_ns, "timeout", 0),
	         AT(union drm_amdgpu_wait_fences, out.status, "status", OUT)) },
	{ "FENCE_TO_HANDLE",
	  FIELDS(AT(union drm_amdgpu_fence_to_handle, in.fence.ctx_id, "ctx_id", 0),
	         AT(union drm_amdgpu_fence_to_handle, in.fence.seq_no, "seq_no", 0),
	         AT(union drm_amdgpu_fence_to_handle, in.what, "what", 0),
	         AT(union drm_amdgpu_fence_to_handle, out.handle, "handle", OUT)) },
	{ "INFO",
	  FIELDS(AT(struct drm_amdgpu_info, query, "query", HEX),
	         IN(struct drm_amdgpu_info, return_size),
	         AT(struct drm_amdgpu_info, read_mmr_reg.dword_offset, "word0", 0),
	         AT(struct drm_amdgpu_info, read_mmr_reg.count, "word1", 0)) },
	{ "GET_CAP",
	  FIELDS(IN(struct drm_get_cap, capability),
	         AT(struct drm_get_cap, value, "value", OUT)) },
	{ "SYNCOBJ_CREATE",
	  FIELDS(IN(struct drm_syncobj_create, flags),
	         AT(struct drm_syncobj_create, handle, "handle", OUT)) },
	{ "SYNCOBJ_DESTROY", FIELDS(IN(struct drm_syncobj_destroy, handle)) },
	{ "SYNCOBJ_HANDLE_TO_FD",
	  FIELDS(IN(SYNCOBJ, handle), IN(SYNCOBJ, flags), IN(SYNCOBJ, point),
	         AT(SYNCOBJ, fd, "fd", OUT | SIGNED)) },
	{ "SYNCOBJ_FD_TO_HANDLE",
	  FIELDS(AT(SYNCOBJ, fd, "fd", SIGNED), IN(SYNCOBJ, flags), IN(SYNCOBJ, point),
	         AT(SYNCOBJ, handle, "handle", OUT)) },
	{ "SYNCOBJ_WAIT",
	  FIELDS(IN(WAIT, count_handles), IN(WAIT, flags),
	         AT(WAIT, timeout_nsec, "timeout", SIGNED),
	         AT(WAIT, first_signaled, "first_signaled", OUT)) },
	{ "SYNCOBJ_TIMELINE_WAIT",
	  FIELDS(IN(TIMELINE_WAIT, count_handles), IN(TIMELINE_WAIT, flags),
	         AT(TIMELINE_WAIT, timeout_nsec, "timeout", SIGNED),
	         AT(TIMELINE_WAIT, first_signaled, "first_signaled", OUT)) },
	{ "SYNCOBJ_RESET", FIELDS(IN(struct drm_syncobj_array, count_handles)) },
	{ "SYNCOBJ_SIGNAL", FIELDS(IN(struct drm_syncobj_array, count_handles)) },
	{ "SYNCOBJ_QUERY", FIELDS(IN(TIMELINE, count_handles), IN(TIMELINE, flags)) },
	{ "SYNCOBJ_TIMELINE_SIGNAL", FIELDS(IN(TIMELINE, count_handles), IN(TIMELINE, flags)) },
	{ "SYNCOBJ_TRANSFER",
	  FIELDS(IN(struct drm_syncobj_transfer, src_handle),
	         IN(struct drm_syncobj_transfer, src_point),
	         IN(struct drm_syncobj_transfer, dst_handle),
	         IN(struct drm_syncobj_transfer, dst_point),
	         IN(struct drm_syncobj_transfer, flags)) },
};

struct emu_trace_line {
	struct emu_gpu *gpu;
	const struct field *fields; /* NULL: none are known */
	uint32_t bytes;             /* how long this kernel's argument is */
	uint64_t began_ns;
	char *text;
	size_t text_bytes;
	FILE *out; /* into text */
};

static const struct field *fields_find(const struct emu_ioctl *ioctl)
{
	for (size_t i = 0; ioctl && i < sizeof(arguments) / sizeof(arguments[0]); i++) {
		if (!strcmp(arguments[i].ioctl, ioctl->name))
			return arguments[i].fields;
	}
	return NULL;
}

static void field_print(FILE *out, const struct field *field, const void *data)
{
	const char *at = (const char *)data + field->offset;
	uint64_t value = 0;
	uint32_t word;

	if (field->bytes == 8) {
		memcpy(&value, at, sizeof(value));
	} else {
		memcpy(&word, at, sizeof(word));
		value = field->flags & SIGNED ? (uint64_t)(int64_t)(int32_t)word : word;
	}
	if (field->flags & HEX)
		fprintf(out, "\"%s\":\"0x%llx\"", field->name, (unsigned long long)value);
	else if (field->flags & SIGNED)
		fprintf(out, "\"%s\":%lld", field->name, (long long)value);
	else
		fprintf(out, "\"%s\":%llu", field->name, (unsigned long long)value);
}

/* Those that come in, or those that go out. */
static void fields_print(struct emu_trace_line *line, const void *data, uint32_t out)
{
	const char *comma = "";

	for (const struct field *field = line->fields; field && field->name; field++) {
		if ((field->flags & OUT) != out ||
		    (uint32_t)field->offset + field->bytes > line->bytes)
			continue;
		fputs(comma, line->out);
		field_print(line->out, field, data);
		comma = ",";
	}
}

static void line_begin(struct emu_trace_line *line, const struct emu_file *file,
                       unsigned long request, const struct emu_ioctl *ioctl)
{
	char number[32];

	snprintf(number, sizeof(number), "0x%lx", request);
	fprintf(line->out, "{\"t_us\":%.3f,\"pid\":%ld,\"tid\":%ld,", (double)line->began_ns / 1000,
	        (long)emu_caller_process(), syscall(SYS_gettid));
	fprintf(line->out, "\"card\":%llu,\"file\":%llu,\"ioctl\":\"%s\"",
	        (unsigned long long)file->gpu->id, (unsigned long long)file->id,
	        ioctl ? ioctl->name : number);
}

struct emu_trace_line *emu_trace_begin(struct emu_file *file, unsigned long request,
                                       const struct emu_ioctl *ioctl, const void *data)
{
	struct emu_trace_line *line = file->gpu->trace ? calloc(1, sizeof(*line)) : NULL;

	if (!line)
		return NULL;
	line->out = open_memstream(&line->text, &line->text_bytes);
	if (!line->out) {
		free(line);
		return NULL;
	}
	line->gpu = file->gpu;
	line->began_ns = emu_now_ns();
	line->fields = fields_find(ioctl);
	line->bytes = ioctl ? emu_ioctl_bytes(ioctl, file->gpu->kernel) : 0;
	line_begin(line, file, request, ioctl);
	fputs(",\"args\":{", line->out);
	fields_print(line, data, 0);
	if (ioctl && ioctl->handler == emu_cs)
		emu_trace_chunks(line->out, data);
	if (ioctl && ioctl->handler == emu_bo_list)
		emu_trace_entries(line->out, data);
	fputc('}', line->out);
	return line;
}

void emu_trace_end(struct emu_trace_line *line, const void *data, int result)
{
	if (!line)
		return;
	if (result >= 0) {
		fputs(",\"out\":{", line->out);
		fields_print(line, data, OUT);
		fputc('}', line->out);
	}
	fprintf(line->out, ",\"result\":%d,\"us\":%.3f}\n", result,
	        (double)(emu_now_ns() - line->began_ns) / 1000);
	if (!fclose(line->out))
		fwrite(line->text, 1, line->text_bytes, line->gpu->trace);
	free(line->text);
	free(line);
}
