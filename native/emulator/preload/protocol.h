/* SPDX-License-Identifier: MIT
 *
 * What the process that has the card (serve.c) and programs with the preload library say to each other.
 *
 * A connection is a socket and a channel. The channel is a file that both have mapped, and which holds one
 * request and then its answer. The socket passes descriptors, and its end is the end of either side. A
 * program makes as many connections as it has ioctls at work at the same time.
 */
#ifndef EMU_PROTOCOL_H
#define EMU_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>

#include "abi/amdgpu.h"
#include "abi/drm.h"

/* The position of a DRM file's descriptors says which one they are of. */
#define EMU_POSITION_MARK (0x5eedULL << 48)
#define EMU_POSITION_PRIMARY (1ULL << 47)
/* The card is one that is served: a program may have cards of its own besides. */
#define EMU_POSITION_SERVED (1ULL << 46)
#define EMU_POSITION_ID (EMU_POSITION_SERVED - 1)
#define EMU_POSITION_IS_MARKED(position) ((position) >> 48 == EMU_POSITION_MARK >> 48)
#define EMU_POSITION_IS_SERVED(position)                                                           \
	(EMU_POSITION_IS_MARKED(position) && (position) & EMU_POSITION_SERVED)

enum emu_request {
	EMU_REQUEST_OPEN_RENDER,
	EMU_REQUEST_OPEN_PRIMARY,
	EMU_REQUEST_IOCTL,
	EMU_REQUEST_CLOSED, /* a descriptor of some DRM file was closed */
	EMU_REQUEST_MAP, /* may a file be mapped, at the offset `request`, `argument` bytes long? */
	EMU_REQUEST_FDINFO, /* the text that a file's fdinfo ends with, into data */
	EMU_REQUEST_VRAM_USED, /* what the files of that name in /sys say, into data */
	EMU_REQUEST_GTT_USED,
};

enum emu_channel_state { EMU_CHANNEL_IDLE, EMU_CHANNEL_REQUESTED, EMU_CHANNEL_ANSWERED, EMU_CHANNEL_GONE };

#define EMU_CHANNEL_DATA 16384 /* an ioctl's argument is shorter */

/* Ioctls whose answers never change, or some of them: a program may keep those, and count the calls. */
enum emu_constant { EMU_CONSTANT_GET_CAP, EMU_CONSTANT_VERSION, EMU_CONSTANT_INFO, EMU_CONSTANTS };

/* What an answer writes besides the argument. */
struct emu_output {
	uint64_t address;
	uint32_t bytes; /* that follow */
	uint32_t reserved;
};

struct emu_channel {
	/* A futex, and whether anybody sleeps on it. */
	uint32_t state, server_sleeps, client_sleeps;
	/* The request; it is still there when the answer comes. */
	uint32_t kind;       /* enum emu_request */
	uint64_t position;   /* of the descriptor */
	uint64_t request;    /* ioctl(2)'s ... */
	uint64_t argument;   /* ... and where the argument is in the program */
	uint32_t bytes;      /* of it that are in data */
	uint32_t sends_fd;   /* a descriptor is in the socket */
	uint32_t collects;   /* outputs are to follow the argument in data */
	/* The answer: 0 or more, or a negative errno. */
	int32_t result;
	uint32_t written;    /* data has changed */
	uint32_t answers_fd; /* a descriptor is in the socket ... */
	uint32_t fd_cloexec; /* ... that exec is to close */
	uint32_t outputs_bytes; /* of struct emu_output and bytes, in data from `bytes` on */
	/* From the start: whether answers may be kept. Then how often they were used. */
	uint32_t may_keep;
	uint64_t kept_uses[EMU_CONSTANTS];
	uint8_t data[EMU_CHANNEL_DATA];
};

/* By type and number alone, as the kernel knows them. */
#define EMU_IS_SAME_IOCTL(a, b) (((a) & 0xffff) == ((b) & 0xffff))

/* Where in an ioctl's argument a descriptor is: one that the program passes, or one that it gets. */
struct emu_fd_field {
	unsigned long request;
	uint32_t offset;
	uint32_t sends, answers;
};

static const struct emu_fd_field emu_fd_fields[] = {
	{ DRM_IOCTL_PRIME_HANDLE_TO_FD, offsetof(struct drm_prime_handle, fd), 0, 1 },
	{ DRM_IOCTL_PRIME_FD_TO_HANDLE, offsetof(struct drm_prime_handle, fd), 1, 0 },
	{ DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD, offsetof(struct drm_syncobj_handle, fd), 0, 1 },
	{ DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE, offsetof(struct drm_syncobj_handle, fd), 1, 0 },
	{ DRM_IOCTL_SYNCOBJ_EVENTFD, offsetof(struct drm_syncobj_eventfd, fd), 1, 0 },
	{ DRM_IOCTL_AMDGPU_FENCE_TO_HANDLE, 0, 0, 1 }, /* unless it is a syncobj's handle */
	{ DRM_IOCTL_AMDGPU_SCHED, offsetof(struct drm_amdgpu_sched_in, fd), 1, 0 },
};

static inline const struct emu_fd_field *emu_fd_field_find(unsigned long request)
{
	for (size_t i = 0; i < sizeof(emu_fd_fields) / sizeof(emu_fd_fields[0]); i++)
		if (EMU_IS_SAME_IOCTL(emu_fd_fields[i].request, request))
			return &emu_fd_fields[i];
	return NULL;
}

#endif
