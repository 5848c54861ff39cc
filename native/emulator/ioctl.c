/* SPDX-License-Identifier: MIT
 *
 * From ioctl(2) to a handler and back, as drm_ioctl() does it: by the number alone, with the
 * kernel's own idea of the argument's size and direction.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "entry.h"

#define STACK_BYTES 256

/* One call on its way. */
struct call {
	struct emu_file *file;
	unsigned long request;
	const struct emu_ioctl *ioctl;
	uint64_t argument;
	size_t in_bytes, out_bytes;
	void *data;
};

/* Count the call. Returns the error that it is to fail with, or 0. */
static int call_count(const struct call *call)
{
	struct emu_gpu *gpu = call->file->gpu;
	struct emu_ioctl_count *count;
	int error = 0;

	pthread_mutex_lock(&gpu->lock);
	gpu->counts.ioctls++;
	if (call->ioctl) {
		count = &gpu->ioctls[emu_ioctl_index(call->ioctl)];
		count->calls++;
		if (call->ioctl->handler == emu_gem_va) {
			uint32_t operation = ((struct drm_amdgpu_gem_va *)call->data)->operation;

			if (operation < sizeof(count->by_operation) / sizeof(uint64_t))
				count->by_operation[operation]++;
		}
		if (count->fail_at == count->calls) {
			error = -count->fail_error;
			count->fail_at = 0;
		}
		if (!error && gpu->options.inject.faults)
			error = emu_inject_call(gpu, call->ioctl->handler == emu_gem_va ||
			                                 call->ioctl->handler == emu_cs);
	}
	pthread_mutex_unlock(&gpu->lock);
	return error;
}

static int call_handle(const struct call *call)
{
	int error = call_count(call);

	if (error)
		return error;
	error = emu_auth_check(call->file, call->ioctl->flags);
	if (error)
		return error;
	return call->ioctl->handler(call->file, call->data);
}

static int call_run(struct call *call)
{
	struct emu_trace_line *line;
	int error = emu_copy_in(call->data, call->argument, call->in_bytes);
	int result;

	line = emu_trace_begin(call->file, call->request, call->ioctl, call->data);
	if (error) {
		call_count(call);
		result = error;
	} else {
		result = call_handle(call);
		error = emu_copy_out(call->argument, call->data, call->out_bytes);
		if (error)
			result = error;
	}
	emu_trace_end(line, call->data, result);
	return result;
}

/* Zeros stand for what the caller's argument lacks, and for what only newer kernels' have. */
static int call_run_sized(struct call *call)
{
	uint64_t small[STACK_BYTES / 8];
	unsigned long declared = call->ioctl->request;
	size_t given = _IOC_SIZE(call->request);
	size_t bytes = _IOC_SIZE(declared);
	int result;

	call->in_bytes = call->request & declared & IOC_IN ? given : 0;
	call->out_bytes = call->request & declared & IOC_OUT ? given : 0;
	if (bytes < call->in_bytes)
		bytes = call->in_bytes;
	if (bytes < call->out_bytes)
		bytes = call->out_bytes;
	call->data = bytes <= sizeof(small) ? small : malloc(bytes);
	if (!call->data)
		return -ENOMEM;
	memset(call->data, 0, bytes);
	result = call_run(call);
	if (call->data != small)
		free(call->data);
	return result;
}

static int call_refuse(const struct call *call)
{
	struct emu_trace_line *line = emu_trace_begin(call->file, call->request, NULL, NULL);
	int result;

	call_count(call);
	if (_IOC_TYPE(call->request) != DRM_IOCTL_BASE)
		result = emu_refuse(call->file->gpu, -ENOTTY, "ioctl 0x%lx isn't one of DRM files",
		                    call->request);
	else
		result = emu_refuse(call->file->gpu, -EINVAL, "no ioctl 0x%lx (number 0x%lx)",
		                    call->request, (unsigned long)_IOC_NR(call->request));
	emu_trace_end(line, NULL, result);
	return result;
}

int emu_ioctl_run(struct emu_file *file, unsigned long request, void *argument)
{
	struct call call = {
		.file = file,
		.request = request,
		.argument = (uint64_t)(uintptr_t)argument,
	};
	double us = file->gpu->options.ioctl_us;
	uint64_t began = us > 0 ? emu_now_ns() : 0;
	int result;

	if (_IOC_TYPE(request) == DRM_IOCTL_BASE)
		call.ioctl = emu_ioctl_find(file->gpu->kernel, request);
	result = call.ioctl ? call_run_sized(&call) : call_refuse(&call);
	if (us > 0)
		emu_wait_until_ns(began + (uint64_t)(us * 1000));
	return result;
}

VMKV_API int vmkv_emulator_ioctl(int fd, unsigned long request, void *argument)
{
	struct emu_file *file = emu_file_get(fd);
	int result;

	if (!file)
		return -1;
	result = emu_ioctl_run(file, request, argument);
	emu_file_put(file);
	if (result >= 0)
		return result;
	errno = -result;
	return -1;
}
