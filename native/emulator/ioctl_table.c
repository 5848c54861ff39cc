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
/* The driver's own, which primary nodes give to those alone that are authenticated. */
#define DRIVER(what, function, ...)                                                                \
	{                                                                                          \
		.name = #what, .request = DRM_IOCTL_AMDGPU_##what, .handler = function,            \
		.flags = EMU_IOCTL_RENDER | EMU_IOCTL_AUTH, __VA_ARGS__                            \
	}
#define FIELD(field) offsetof(struct emu_kernel, field)
#define RENDER(what, number, function) ON_RENDER(what, number, function, .bytes_field = 0)
/* Its size, or whether it exists, is a field of struct emu_kernel. */
#define SIZED(what, number, function, field)                                                       \
	ON_RENDER(what, number, function, .bytes_field = FIELD(field))
#define SINCE(what, number, function, field)                                                       \
	ON_RENDER(what, number, function, .has_field = FIELD(field))
#define PRIMARY(what, number, function, who)                                                       \
	{ .name = #what, .request = DRM_IOCTL_##number, .handler = function, .flags = who }
#define USERQ(number)                                                                              \
	{                                                                                          \
		.name = #number, .request = DRM_IO(DRM_COMMAND_BASE + DRM_AMDGPU_##number),     \
		.handler = emu_userq, .flags = EMU_IOCTL_RENDER | EMU_IOCTL_AUTH,                  \
		.has_field = FIELD(has_user_queues)                                                \
	}
#define ALL 0
#define AUTH EMU_IOCTL_AUTH
#define MASTER EMU_IOCTL_MASTER
/* Of displays; what it would take is never looked at. */
#define MODE(what, number, function, who)                                                          \
	{ .name = "MODE_" #what, .request = DRM_IO(number), .handler = function, .flags = who }

/* Those that are called often come first. */
static const struct emu_ioctl ioctls[] = {
	DRIVER(GEM_VA, emu_gem_va, .bytes_field = FIELD(gem_va_bytes)),
	DRIVER(CS, emu_cs, .bytes_field = 0),
	DRIVER(WAIT_CS, emu_wait_cs, .bytes_field = 0),
	SIZED(SYNCOBJ_TIMELINE_WAIT, SYNCOBJ_TIMELINE_WAIT, emu_syncobj_timeline_wait,
	      syncobj_timeline_wait_bytes),
	SIZED(SYNCOBJ_WAIT, SYNCOBJ_WAIT, emu_syncobj_wait, syncobj_wait_bytes),
	RENDER(SYNCOBJ_QUERY, SYNCOBJ_QUERY, emu_syncobj_query),
	DRIVER(GEM_CREATE, emu_gem_create, .bytes_field = 0),
	RENDER(GEM_CLOSE, GEM_CLOSE, emu_gem_close),
	DRIVER(GEM_MMAP, emu_gem_mmap, .bytes_field = 0),
	DRIVER(GEM_WAIT_IDLE, emu_gem_wait_idle, .bytes_field = 0),
	DRIVER(GEM_METADATA, emu_gem_metadata, .bytes_field = 0),
	DRIVER(GEM_OP, emu_gem_op, .bytes_field = FIELD(gem_op_bytes)),
	DRIVER(GEM_USERPTR, emu_gem_userptr, .bytes_field = 0),
	DRIVER(GEM_LIST_HANDLES, emu_gem_list_handles, .has_field = FIELD(has_list_handles)),
	PRIMARY(GEM_FLINK, GEM_FLINK, emu_gem_flink, AUTH),
	PRIMARY(GEM_OPEN, GEM_OPEN, emu_gem_open, AUTH),
	RENDER(PRIME_HANDLE_TO_FD, PRIME_HANDLE_TO_FD, emu_prime_handle_to_fd),
	RENDER(PRIME_FD_TO_HANDLE, PRIME_FD_TO_HANDLE, emu_prime_fd_to_handle),
	DRIVER(CTX, emu_ctx, .bytes_field = 0),
	DRIVER(BO_LIST, emu_bo_list, .bytes_field = 0),
	DRIVER(WAIT_FENCES, emu_wait_fences, .bytes_field = 0),
	DRIVER(FENCE_TO_HANDLE, emu_fence_to_handle, .bytes_field = 0),
	DRIVER(VM, emu_vm_ioctl, .bytes_field = 0),
	USERQ(USERQ),
	USERQ(USERQ_SIGNAL),
	USERQ(USERQ_WAIT),
	PRIMARY(SCHED, AMDGPU_SCHED, emu_sched, MASTER),
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
	DRIVER(INFO, emu_info, .bytes_field = 0),
	RENDER(VERSION, VERSION, emu_version),
	RENDER(GET_CAP, GET_CAP, emu_get_cap),
	/* A real render node refuses GET_CLIENT. libdrm asks it only of files that it can't tell
	 * to be render nodes, and then needs an answer: that it isn't authenticated. */
	RENDER(GET_CLIENT, GET_CLIENT, emu_get_client),
	SINCE(SYNCOBJ_EVENTFD, SYNCOBJ_EVENTFD, emu_syncobj_eventfd, has_eventfd),
	SINCE(SET_CLIENT_NAME, SET_CLIENT_NAME, emu_set_client_name, has_client_name),
	PRIMARY(SET_CLIENT_CAP, SET_CLIENT_CAP, emu_set_client_cap, ALL),
	PRIMARY(SET_VERSION, SET_VERSION, emu_set_version, MASTER),
	PRIMARY(GET_UNIQUE, GET_UNIQUE, emu_get_unique, ALL),
	PRIMARY(GET_STATS, GET_STATS, emu_get_stats, ALL),
	PRIMARY(GET_MAGIC, GET_MAGIC, emu_get_magic, ALL),
	PRIMARY(AUTH_MAGIC, AUTH_MAGIC, emu_auth_magic, MASTER),
	PRIMARY(SET_MASTER, SET_MASTER, emu_set_master, ALL),
	PRIMARY(DROP_MASTER, DROP_MASTER, emu_drop_master, ALL),
	PRIMARY(MODE_CREATE_DUMB, MODE_CREATE_DUMB, emu_mode_create_dumb, ALL),
	PRIMARY(MODE_MAP_DUMB, MODE_MAP_DUMB, emu_mode_map_dumb, ALL),
	PRIMARY(MODE_DESTROY_DUMB, MODE_DESTROY_DUMB, emu_mode_destroy_dumb, ALL),
	{ .name = "WAIT_VBLANK", .request = DRM_IO(0x3a), .handler = emu_mode_none },
	{ .name = "MODESET_CTL", .request = DRM_IO(0x08), .handler = emu_mode_noop },
	{ .name = "CRTC_GET_SEQUENCE", .request = DRM_IO(0x3b), .handler = emu_mode_none },
	{ .name = "CRTC_QUEUE_SEQUENCE", .request = DRM_IO(0x3c), .handler = emu_mode_none },
	MODE(GETRESOURCES, 0xa0, emu_mode_none, ALL),
	MODE(GETCRTC, 0xa1, emu_mode_none, ALL),
	MODE(SETCRTC, 0xa2, emu_mode_none, MASTER),
	MODE(CURSOR, 0xa3, emu_mode_none, MASTER),
	MODE(GETGAMMA, 0xa4, emu_mode_none, ALL),
	MODE(SETGAMMA, 0xa5, emu_mode_none, MASTER),
	MODE(GETENCODER, 0xa6, emu_mode_none, ALL),
	MODE(GETCONNECTOR, 0xa7, emu_mode_none, ALL),
	MODE(ATTACHMODE, 0xa8, emu_mode_noop, MASTER),
	MODE(DETACHMODE, 0xa9, emu_mode_noop, MASTER),
	MODE(GETPROPERTY, 0xaa, emu_mode_none, ALL),
	MODE(SETPROPERTY, 0xab, emu_mode_none, MASTER),
	MODE(GETPROPBLOB, 0xac, emu_mode_none, ALL),
	MODE(GETFB, 0xad, emu_mode_none, ALL),
	MODE(ADDFB, 0xae, emu_mode_none, ALL),
	MODE(RMFB, 0xaf, emu_mode_none, ALL),
	MODE(PAGE_FLIP, 0xb0, emu_mode_none, MASTER),
	MODE(DIRTYFB, 0xb1, emu_mode_none, MASTER),
	MODE(GETPLANERESOURCES, 0xb5, emu_mode_none, ALL),
	MODE(GETPLANE, 0xb6, emu_mode_none, ALL),
	MODE(SETPLANE, 0xb7, emu_mode_none, MASTER),
	MODE(ADDFB2, 0xb8, emu_mode_none, ALL),
	MODE(OBJ_GETPROPERTIES, 0xb9, emu_mode_none, ALL),
	MODE(OBJ_SETPROPERTY, 0xba, emu_mode_none, MASTER),
	MODE(CURSOR2, 0xbb, emu_mode_none, MASTER),
	MODE(ATOMIC, 0xbc, emu_mode_none, MASTER),
	MODE(CREATEPROPBLOB, 0xbd, emu_mode_none, ALL),
	MODE(DESTROYPROPBLOB, 0xbe, emu_mode_none, ALL),
	MODE(CREATE_LEASE, 0xc6, emu_mode_none, MASTER),
	MODE(LIST_LESSEES, 0xc7, emu_mode_none, MASTER),
	MODE(GET_LEASE, 0xc8, emu_mode_none, MASTER),
	MODE(REVOKE_LEASE, 0xc9, emu_mode_none, MASTER),
	MODE(GETFB2, 0xce, emu_mode_none, ALL),
	{ .name = "MODE_CLOSEFB", .request = DRM_IO(0xd0), .handler = emu_mode_none,
	  .has_field = FIELD(has_close_framebuffer) },
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
