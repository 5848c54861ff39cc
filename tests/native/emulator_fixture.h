/* SPDX-License-Identifier: MIT
 *
 * An emulated card with one open file, for tests that speak to it by raw ioctls.
 */
#ifndef EMULATOR_FIXTURE_H
#define EMULATOR_FIXTURE_H

#include <errno.h>
#include <stdint.h>

#include "check.h"
#include "emu.h"

struct emulated {
	vmkv_emulator *gpu;
	int fd;
};

static inline vmkv_emulator *emulated_create(const char *spec)
{
	char error[256] = "";
	vmkv_emulator *gpu;

	if (vmkv_emulator_create(spec, error, sizeof(error), &gpu))
		CHECK_FAIL("%s: %s", spec, error);
	return gpu;
}

static inline struct emulated emulated_open(const char *spec)
{
	struct emulated emulated = { emulated_create(spec), -1 };

	CHECK_EQ(vmkv_emulator_open(emulated.gpu, &emulated.fd), 0);
	return emulated;
}

static inline void emulated_close(struct emulated *emulated)
{
	CHECK_EQ(vmkv_emulator_close(emulated->fd), 0);
	vmkv_emulator_destroy(emulated->gpu);
}

/* What the ioctl returns, or its negative errno. */
static inline int emulated_call(int fd, unsigned long request, void *argument)
{
	int result = vmkv_emulator_ioctl(fd, request, argument);

	return result < 0 ? -errno : result;
}

static inline struct vmkv_emulator_stats emulated_stats(vmkv_emulator *gpu)
{
	struct vmkv_emulator_stats stats = { .struct_size = sizeof(stats) };

	CHECK_EQ(vmkv_emulator_stats(gpu, &stats), 0);
	return stats;
}

static inline uint64_t emulated_count(vmkv_emulator *gpu, const char *ioctl, uint32_t operation)
{
	uint64_t count = UINT64_MAX;

	CHECK_EQ(vmkv_emulator_count(gpu, ioctl, operation, &count), 0);
	return count;
}

/* INFO of `query`, with that many bytes of room; the rest of the request is set by the caller. */
static inline int emulated_info(int fd, struct drm_amdgpu_info request, uint32_t query, void *to,
                                uint32_t bytes)
{
	request.return_pointer = (uint64_t)(uintptr_t)to;
	request.return_size = bytes;
	request.query = query;
	return emulated_call(fd, DRM_IOCTL_AMDGPU_INFO, &request);
}

#endif
