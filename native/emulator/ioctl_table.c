/* SPDX-License-Identifier: MIT
 *
 * The ioctls that there are.
 */
#include <string.h>

#include "entry.h"

#define ON_RENDER(what, number, function, ...)                                                     \
	{                                                                                          \
		.name = #what, .request = DRM_IOCTL_##number, .handler = function,                 \
		.flags = EMU_IOCTL_RENDER, __VA_ARGS__                                             \
	}
#define FIELD(field) offsetof(struct emu_kernel, field)
#define RENDER(what, number, function) ON_RENDER(what, number, function, .bytes_field = 0)
/* Its size, or whether it exists, is a field of struct emu_kernel. */
#define SIZED(what, number, function, field)                                                       \
	ON_RENDER(what, number, function, .bytes_field = FIELD(field))
#define SINCE(what, number, function, field)                                                       \
	ON_RENDER(what, number, function, .has_field = FIELD(field))
#define PRIMARY(what, number, function)                                                            \
	{ .name = #what, .request = DRM_IOCTL_##number, .handler = function }

/* Those that are called often come first. */
static const struct emu_ioctl ioctls[] = {
	SIZED(GEM_VA, AMDGPU_GEM_VA, emu_gem_va, gem_va_bytes),
	RENDER(CS, AMDGPU_CS, emu_cs),
	RENDER(WAIT_CS, AMDGPU_WAIT_CS, emu_wait_cs),
	SIZED(SYNCOBJ_TIMELINE_WAIT, SYNCOBJ_TIMELINE_WAIT, emu_syncobj_timeline_wait,
	      syncobj_timeline_wait_bytes),
	SIZED(SYNCOBJ_WAIT, SYNCOBJ_WAIT, emu_syncobj_wait, syncobj_wait_bytes),
	RENDER(SYNCOBJ_QUERY, SYNCOBJ_QUERY, emu_syncobj_query),
	RENDER(GEM_CREATE, AMDGPU_GEM_CREATE, emu_gem_create),
	RENDER(GEM_CLOSE, GEM_CLOSE, emu_gem_close),
	RENDER(GEM_MMAP, AMDGPU_GEM_MMAP, emu_gem_mmap),
	RENDER(GEM_WAIT_IDLE, AMDGPU_GEM_WAIT_IDLE, emu_gem_wait_idle),
	RENDER(GEM_METADATA, AMDGPU_GEM_METADATA, emu_gem_metadata),
	SIZED(GEM_OP, AMDGPU_GEM_OP, emu_gem_op, gem_op_bytes),
	RENDER(GEM_USERPTR, AMDGPU_GEM_USERPTR, emu_gem_userptr),
	SINCE(GEM_LIST_HANDLES, AMDGPU_GEM_LIST_HANDLES, emu_gem_list_handles, has_list_handles),
	PRIMARY(GEM_FLINK, GEM_FLINK, emu_gem_flink),
	PRIMARY(GEM_OPEN, GEM_OPEN, emu_gem_open),
	RENDER(PRIME_HANDLE_TO_FD, PRIME_HANDLE_TO_FD, emu_prime_handle_to_fd),
	RENDER(PRIME_FD_TO_HANDLE, PRIME_FD_TO_HANDLE, emu_prime_fd_to_handle),
	RENDER(CTX, AMDGPU_CTX, emu_ctx),
	RENDER(BO_LIST, AMDGPU_BO_LIST, emu_bo_list),
	RENDER(WAIT_FENCES, AMDGPU_WAIT_FENCES, emu_wait_fences),
	RENDER(FENCE_TO_HANDLE, AMDGPU_FENCE_TO_HANDLE, emu_fence_to_handle),
	RENDER(VM, AMDGPU_VM, emu_vm_ioctl),
	PRIMARY(SCHED, AMDGPU_SCHED, emu_sched),
	RENDER(SYNCOBJ_CREATE, SYNCOBJ_CREATE, emu_syncobj_create),
	RENDER(SYNCOBJ_DESTROY, SYNCOBJ_DESTROY, emu_syncobj_destroy),
	SIZED(SYNCOBJ_HANDLE_TO_FD, SYNCOBJ_HANDLE_TO_FD, emu_syncobj_handle_to_fd,
	      syncobj_handle_bytes),
	SIZED(SYNCOBJ_FD_TO_HANDLE, SYNCOBJ_FD_TO_HANDLE, emu_syncobj_fd_to_handle,
	      syncobj_handle_bytes),
	RENDER(SYNCOBJ_RESET, SYNCOBJ_RESET, emu_syncobj_reset),
	RENDER(SYNCOBJ_SIGNAL, SYNCOBJ_SIGNAL, emu_syncobj_signal),
	RENDER(SYNCOBJ_TRANSFER, SYNCOBJ_TRANSFER, emu_syncobj_transfer),
	RENDER(SYNCOBJ_TIMELINE_SIGNAL, SYNCOBJ_TIMELINE_SIGNAL, emu_syncobj_timeline_signal),
	RENDER(INFO, AMDGPU_INFO, emu_info),
	RENDER(VERSION, VERSION, emu_version),
	RENDER(GET_CAP, GET_CAP, emu_get_cap),
	/* A real render node refuses GET_CLIENT. libdrm asks it only of files that it can't tell
	 * to be render nodes, and then needs an answer: that it isn't authenticated. */
	RENDER(GET_CLIENT, GET_CLIENT, emu_get_client),
	PRIMARY(SET_CLIENT_CAP, SET_CLIENT_CAP, emu_set_client_cap),
	PRIMARY(SET_VERSION, SET_VERSION, emu_set_version),
	PRIMARY(GET_UNIQUE, GET_UNIQUE, emu_get_unique),
	PRIMARY(GET_MAGIC, GET_MAGIC, emu_get_magic),
	PRIMARY(AUTH_MAGIC, AUTH_MAGIC, emu_auth_magic),
};

#define IOCTLS (sizeof(ioctls) / sizeof(ioctls[0]))
_Static_assert(IOCTLS <= EMU_IOCTLS, "emu_gpu.ioctls");

static bool kernel_has(const struct emu_kernel *kernel, const struct emu_ioctl *ioctl)
{
	return !ioctl->has_field || *(const bool *)((const char *)kernel + ioctl->has_field);
}

const struct emu_ioctl *emu_ioctl_find(const struct emu_kernel *kernel, unsigned long request)
{
	for (size_t i = 0; i < IOCTLS; i++) {
		if (_IOC_NR(ioctls[i].request) == _IOC_NR(request))
			return kernel_has(kernel, &ioctls[i]) ? &ioctls[i] : NULL;
	}
	return NULL;
}

const struct emu_ioctl *emu_ioctl_find_name(const char *name)
{
	for (size_t i = 0; i < IOCTLS; i++) {
		if (name && !strcmp(ioctls[i].name, name))
			return &ioctls[i];
	}
	return NULL;
}

uint32_t emu_ioctl_index(const struct emu_ioctl *ioctl)
{
	return (uint32_t)(ioctl - ioctls);
}

uint32_t emu_ioctl_bytes(const struct emu_ioctl *ioctl, const struct emu_kernel *kernel)
{
	if (ioctl->bytes_field)
		return *(const uint32_t *)((const char *)kernel + ioctl->bytes_field);
	return _IOC_SIZE(ioctl->request);
}

VMKV_API const char *vmkv_emulator_ioctl_name(uint32_t index)
{
	return index < IOCTLS ? ioctls[index].name : NULL;
}
