/* SPDX-License-Identifier: MIT
 *
 * The kernel's interface to DRM files, as of Linux 7.2: the part that a GPU without displays has.
 * Names, numbers and layouts are those of include/uapi/drm/drm.h. An older kernel knows shorter
 * versions of some structs; its fields have the same places.
 *
 * Don't include it together with libdrm's headers, which define the same names.
 */
#ifndef VMKV_ABI_DRM_H
#define VMKV_ABI_DRM_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

#define DRM_IOCTL_BASE 'd'
#define DRM_IO(nr) _IO(DRM_IOCTL_BASE, nr)
#define DRM_IOR(nr, type) _IOR(DRM_IOCTL_BASE, nr, type)
#define DRM_IOW(nr, type) _IOW(DRM_IOCTL_BASE, nr, type)
#define DRM_IOWR(nr, type) _IOWR(DRM_IOCTL_BASE, nr, type)

/* Numbers from here to the end are the driver's own. */
#define DRM_COMMAND_BASE 0x40
#define DRM_COMMAND_END 0xa0

/* ---- the file -------------------------------------------------------------------------------- */

/* The lengths say how long the buffers are, and then how long the texts would be. */
struct drm_version {
	int version_major;
	int version_minor;
	int version_patchlevel;
	size_t name_len;
	char *name;
	size_t date_len;
	char *date;
	size_t desc_len;
	char *desc;
};

struct drm_unique {
	size_t unique_len;
	char *unique;
};

struct drm_client {
	int idx;
	int auth;
	unsigned long pid;
	unsigned long uid;
	unsigned long magic;
	unsigned long iocs;
};

struct drm_auth {
	unsigned int magic;
};

struct drm_stats {
	unsigned long count;
	struct {
		unsigned long value;
		int type;
	} data[15];
};

struct drm_set_version {
	int drm_di_major;
	int drm_di_minor;
	int drm_dd_major;
	int drm_dd_minor;
};

#define DRM_CAP_DUMB_BUFFER 0x1
#define DRM_CAP_VBLANK_HIGH_CRTC 0x2
#define DRM_CAP_DUMB_PREFERRED_DEPTH 0x3
#define DRM_CAP_DUMB_PREFER_SHADOW 0x4
#define DRM_CAP_PRIME 0x5
#define DRM_PRIME_CAP_IMPORT 0x1
#define DRM_PRIME_CAP_EXPORT 0x2
#define DRM_CAP_TIMESTAMP_MONOTONIC 0x6
#define DRM_CAP_ASYNC_PAGE_FLIP 0x7
#define DRM_CAP_CURSOR_WIDTH 0x8
#define DRM_CAP_CURSOR_HEIGHT 0x9
#define DRM_CAP_ADDFB2_MODIFIERS 0x10
#define DRM_CAP_PAGE_FLIP_TARGET 0x11
#define DRM_CAP_CRTC_IN_VBLANK_EVENT 0x12
#define DRM_CAP_SYNCOBJ 0x13
#define DRM_CAP_SYNCOBJ_TIMELINE 0x14
#define DRM_CAP_ATOMIC_ASYNC_PAGE_FLIP 0x15

struct drm_get_cap {
	uint64_t capability;
	uint64_t value;
};

#define DRM_CLIENT_CAP_STEREO_3D 1
#define DRM_CLIENT_CAP_UNIVERSAL_PLANES 2
#define DRM_CLIENT_CAP_ATOMIC 3
#define DRM_CLIENT_CAP_ASPECT_RATIO 4
#define DRM_CLIENT_CAP_WRITEBACK_CONNECTORS 5

struct drm_set_client_cap {
	uint64_t capability;
	uint64_t value;
};

/* From Linux 6.13 on. */
struct drm_set_client_name {
	uint64_t name_len;
	uint64_t name; /* pointer */
};

/* ---- buffers --------------------------------------------------------------------------------- */

struct drm_gem_close {
	uint32_t handle;
	uint32_t pad;
};

struct drm_gem_flink {
	uint32_t handle;
	uint32_t name; /* out */
};

struct drm_gem_open {
	uint32_t name;
	uint32_t handle; /* out */
	uint64_t size;   /* out */
};

#define DRM_CLOEXEC O_CLOEXEC
#define DRM_RDWR O_RDWR

struct drm_prime_handle {
	uint32_t handle;
	uint32_t flags; /* DRM_CLOEXEC | DRM_RDWR */
	int32_t fd;
};

/* ---- syncobjs -------------------------------------------------------------------------------- */

#define DRM_SYNCOBJ_CREATE_SIGNALED (1u << 0)

struct drm_syncobj_create {
	uint32_t handle; /* out */
	uint32_t flags;
};

struct drm_syncobj_destroy {
	uint32_t handle;
	uint32_t pad;
};

#define DRM_SYNCOBJ_FD_TO_HANDLE_FLAGS_IMPORT_SYNC_FILE (1u << 0)
#define DRM_SYNCOBJ_FD_TO_HANDLE_FLAGS_TIMELINE (1u << 1)
#define DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_EXPORT_SYNC_FILE (1u << 0)
#define DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_TIMELINE (1u << 1)

struct drm_syncobj_handle {
	uint32_t handle;
	uint32_t flags;
	int32_t fd;
	uint32_t pad;
	uint64_t point; /* from Linux 6.16 on: with ..._TIMELINE */
};

struct drm_syncobj_transfer {
	uint32_t src_handle;
	uint32_t dst_handle;
	uint64_t src_point;
	uint64_t dst_point;
	uint32_t flags;
	uint32_t pad;
};

#define DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL (1u << 0)
#define DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT (1u << 1)
#define DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE (1u << 2) /* until the point is submitted */
#define DRM_SYNCOBJ_WAIT_FLAGS_WAIT_DEADLINE (1u << 3)

struct drm_syncobj_wait {
	uint64_t handles;     /* pointer to uint32_t */
	int64_t timeout_nsec; /* absolute, CLOCK_MONOTONIC */
	uint32_t count_handles;
	uint32_t flags;
	uint32_t first_signaled; /* out, without WAIT_ALL */
	uint32_t pad;
	uint64_t deadline_nsec; /* from Linux 6.6 on */
};

struct drm_syncobj_timeline_wait {
	uint64_t handles; /* pointer to uint32_t */
	uint64_t points;  /* pointer to uint64_t */
	int64_t timeout_nsec;
	uint32_t count_handles;
	uint32_t flags;
	uint32_t first_signaled; /* out, without WAIT_ALL */
	uint32_t pad;
	uint64_t deadline_nsec; /* from Linux 6.6 on */
};

/* From Linux 6.6 on. */
struct drm_syncobj_eventfd {
	uint32_t handle;
	uint32_t flags;
	uint64_t point;
	int32_t fd;
	uint32_t pad;
};

struct drm_syncobj_array {
	uint64_t handles; /* pointer to uint32_t */
	uint32_t count_handles;
	uint32_t pad;
};

#define DRM_SYNCOBJ_QUERY_FLAGS_LAST_SUBMITTED (1u << 0)

struct drm_syncobj_timeline_array {
	uint64_t handles; /* pointer to uint32_t */
	uint64_t points;  /* pointer to uint64_t */
	uint32_t count_handles;
	uint32_t flags;
};

/* ---- buffers for displays -------------------------------------------------------------------- */

struct drm_mode_create_dumb {
	uint32_t height;
	uint32_t width;
	uint32_t bpp;
	uint32_t flags;
	uint32_t handle; /* out, as all that follow */
	uint32_t pitch;
	uint64_t size;
};

struct drm_mode_map_dumb {
	uint32_t handle;
	uint32_t pad;
	uint64_t offset; /* out */
};

struct drm_mode_destroy_dumb {
	uint32_t handle;
};

/* ---- numbers --------------------------------------------------------------------------------- */

#define DRM_IOCTL_VERSION DRM_IOWR(0x00, struct drm_version)
#define DRM_IOCTL_GET_UNIQUE DRM_IOWR(0x01, struct drm_unique)
#define DRM_IOCTL_GET_MAGIC DRM_IOR(0x02, struct drm_auth)
#define DRM_IOCTL_GET_CLIENT DRM_IOWR(0x05, struct drm_client)
#define DRM_IOCTL_GET_STATS DRM_IOR(0x06, struct drm_stats)
#define DRM_IOCTL_SET_VERSION DRM_IOWR(0x07, struct drm_set_version)
#define DRM_IOCTL_GEM_CLOSE DRM_IOW(0x09, struct drm_gem_close)
#define DRM_IOCTL_GEM_FLINK DRM_IOWR(0x0a, struct drm_gem_flink)
#define DRM_IOCTL_GEM_OPEN DRM_IOWR(0x0b, struct drm_gem_open)
#define DRM_IOCTL_GET_CAP DRM_IOWR(0x0c, struct drm_get_cap)
#define DRM_IOCTL_SET_CLIENT_CAP DRM_IOW(0x0d, struct drm_set_client_cap)
#define DRM_IOCTL_AUTH_MAGIC DRM_IOW(0x11, struct drm_auth)
#define DRM_IOCTL_SET_MASTER DRM_IO(0x1e)
#define DRM_IOCTL_DROP_MASTER DRM_IO(0x1f)
#define DRM_IOCTL_PRIME_HANDLE_TO_FD DRM_IOWR(0x2d, struct drm_prime_handle)
#define DRM_IOCTL_PRIME_FD_TO_HANDLE DRM_IOWR(0x2e, struct drm_prime_handle)
#define DRM_IOCTL_MODE_CREATE_DUMB DRM_IOWR(0xb2, struct drm_mode_create_dumb)
#define DRM_IOCTL_MODE_MAP_DUMB DRM_IOWR(0xb3, struct drm_mode_map_dumb)
#define DRM_IOCTL_MODE_DESTROY_DUMB DRM_IOWR(0xb4, struct drm_mode_destroy_dumb)
#define DRM_IOCTL_SYNCOBJ_CREATE DRM_IOWR(0xbf, struct drm_syncobj_create)
#define DRM_IOCTL_SYNCOBJ_DESTROY DRM_IOWR(0xc0, struct drm_syncobj_destroy)
#define DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD DRM_IOWR(0xc1, struct drm_syncobj_handle)
#define DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE DRM_IOWR(0xc2, struct drm_syncobj_handle)
#define DRM_IOCTL_SYNCOBJ_WAIT DRM_IOWR(0xc3, struct drm_syncobj_wait)
#define DRM_IOCTL_SYNCOBJ_RESET DRM_IOWR(0xc4, struct drm_syncobj_array)
#define DRM_IOCTL_SYNCOBJ_SIGNAL DRM_IOWR(0xc5, struct drm_syncobj_array)
#define DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT DRM_IOWR(0xca, struct drm_syncobj_timeline_wait)
#define DRM_IOCTL_SYNCOBJ_QUERY DRM_IOWR(0xcb, struct drm_syncobj_timeline_array)
#define DRM_IOCTL_SYNCOBJ_TRANSFER DRM_IOWR(0xcc, struct drm_syncobj_transfer)
#define DRM_IOCTL_SYNCOBJ_TIMELINE_SIGNAL DRM_IOWR(0xcd, struct drm_syncobj_timeline_array)
#define DRM_IOCTL_SYNCOBJ_EVENTFD DRM_IOWR(0xcf, struct drm_syncobj_eventfd)
#define DRM_IOCTL_SET_CLIENT_NAME DRM_IOWR(0xd1, struct drm_set_client_name)

_Static_assert(sizeof(struct drm_version) == 64, "drm_version");
_Static_assert(sizeof(struct drm_unique) == 16, "drm_unique");
_Static_assert(sizeof(struct drm_client) == 40, "drm_client");
_Static_assert(sizeof(struct drm_auth) == 4, "drm_auth");
_Static_assert(sizeof(struct drm_stats) == 248, "drm_stats");
_Static_assert(sizeof(struct drm_mode_create_dumb) == 32, "drm_mode_create_dumb");
_Static_assert(sizeof(struct drm_mode_map_dumb) == 16, "drm_mode_map_dumb");
_Static_assert(sizeof(struct drm_set_version) == 16, "drm_set_version");
_Static_assert(sizeof(struct drm_get_cap) == 16, "drm_get_cap");
_Static_assert(sizeof(struct drm_set_client_cap) == 16, "drm_set_client_cap");
_Static_assert(sizeof(struct drm_set_client_name) == 16, "drm_set_client_name");
_Static_assert(sizeof(struct drm_gem_close) == 8, "drm_gem_close");
_Static_assert(sizeof(struct drm_gem_flink) == 8, "drm_gem_flink");
_Static_assert(sizeof(struct drm_gem_open) == 16, "drm_gem_open");
_Static_assert(sizeof(struct drm_prime_handle) == 12, "drm_prime_handle");
_Static_assert(sizeof(struct drm_syncobj_create) == 8, "drm_syncobj_create");
_Static_assert(sizeof(struct drm_syncobj_destroy) == 8, "drm_syncobj_destroy");
_Static_assert(sizeof(struct drm_syncobj_handle) == 24, "drm_syncobj_handle");
_Static_assert(sizeof(struct drm_syncobj_transfer) == 32, "drm_syncobj_transfer");
_Static_assert(sizeof(struct drm_syncobj_wait) == 40, "drm_syncobj_wait");
_Static_assert(sizeof(struct drm_syncobj_timeline_wait) == 48, "drm_syncobj_timeline_wait");
_Static_assert(sizeof(struct drm_syncobj_eventfd) == 24, "drm_syncobj_eventfd");
_Static_assert(sizeof(struct drm_syncobj_array) == 16, "drm_syncobj_array");
_Static_assert(sizeof(struct drm_syncobj_timeline_array) == 24, "drm_syncobj_timeline_array");

#endif
