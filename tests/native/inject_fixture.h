/* SPDX-License-Identifier: MIT
 *
 * What the tests of injected faults share: each does the same on a card with the fault and on a sound one.
 */
#ifndef INJECT_FIXTURE_H
#define INJECT_FIXTURE_H

#include "vm_fixture.h"

#define LATE_US 100000
#define LATE "&late_us=100000"

/* A card with a window, ready for submissions: what was mapped for them is seen by now. */
static inline struct card card_with(const char *kernel, const char *inject, const char *more)
{
	char options[200];
	struct card card;

	snprintf(options, sizeof(options), "&identity=1&window=16GiB%s%s%s",
	         *inject ? "&inject=" : "", inject, more);
	card = card_open(kernel, options);
	card_prepare_submissions(&card);
	settle(card.fd);
	return card;
}

static inline uint64_t card_window(const struct card *card)
{
	uint64_t begin, end;

	CHECK_EQ(vmkv_emulator_window(card->gpu, &begin, &end), 0);
	return begin;
}

/* What the GPU, and what the process finds at an address. */
static inline uint32_t gpu_sees(struct card *card, uint64_t address)
{
	uint32_t value;

	CHECK_EQ(gpu_read(card, address, &value), 0);
	return value;
}

/* Not for TSan, which takes it for a race that the card may change what is behind an address just now. */
__attribute__((no_sanitize("thread"), noinline, unused)) static uint32_t cpu_sees(uint64_t address)
{
	return *(const volatile uint32_t *)(uintptr_t)address;
}

static inline void sleep_us(uint64_t us)
{
	nanosleep(&(struct timespec){ .tv_sec = (time_t)(us / 1000000),
		                      .tv_nsec = (long)(us % 1000000 * 1000) },
	          NULL);
}

static inline uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* A buffer whose first words of pages are base + page. */
static inline uint32_t bo_numbered(int fd, uint64_t bytes, uint32_t base)
{
	uint32_t bo = bo_create(fd, bytes, 0), *view = bo_view(fd, bo, bytes);

	for (uint64_t page = 0; page < bytes / PAGE; page++)
		view[page * PAGE / 4] = base + (uint32_t)page;
	munmap(view, bytes);
	return bo;
}

static inline uint64_t info_u64(int fd, uint32_t query)
{
	uint64_t value = 0;
	struct drm_amdgpu_info request = { .return_pointer = (uintptr_t)&value,
		                           .return_size = sizeof(value), .query = query };

	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_INFO, &request), 0);
	return value;
}

#endif
