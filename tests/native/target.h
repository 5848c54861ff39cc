/* SPDX-License-Identifier: MIT
 *
 * The device that a test of the manager runs on: what VMKV_TEST_DEVICE names, or "host". The tests are
 * the same on all; what a device can't do for them is done here.
 */
#ifndef TARGET_H
#define TARGET_H

#include "device_checking.h"

const char *target_name(void);
void target_name_set(const char *name); /* borrowed */
bool target_is_host(void);
/* End the test as skipped where there is none. */
void target_need_libdrm(void);
/* Of tests that go through every k: only each so many-th, from a first one that the seed draws.
 * VMKV_TEST_STRIDE says how many; else what is usual for the test. */
uint64_t target_stride(uint64_t usual);
/* The same where there are so few of a kind that it would pass them by. */
static inline uint64_t target_stride_of(uint64_t calls, uint64_t usual)
{
	uint64_t stride = target_stride(usual);

	return stride < calls / 4 + 1 ? stride : calls / 4 + 1;
}

/* Open it. options is what the host takes ("memory=5MiB&max_mappings=20"), or NULL; on another device
 * they become bounds for vmkv_device_checking_wrap. bounds may be NULL if options is. */
vmkv_device *target_open(const char *options, struct checking_options *bounds);

/* Open it by the host's name for what is wanted ("host?memory=5MiB"), in a checking device. */
vmkv_device *target_open_checking(const char *host_name, const struct checking_options *options);

/* The same for tests that know nothing of points: a checking device waits for each call. Not for the
 * host, which has nothing to wait for. */
vmkv_device *target_open_waiting(const char *host_name);

/* What exists on an emulated card, the caller's own things included; zeros on other devices. */
struct target_things {
	uint64_t buffers, handles, mappings, contexts, syncobjs;
	uint64_t address; /* that a reservation of 1 GiB gets, on any device but the host, if addresses
	                   * are used again */
};

void target_look(vmkv_device *device, struct target_things *ret);
/* End the test if something was left behind since then, and tell what. */
void target_check_same(vmkv_device *device, const struct target_things *before, const char *what);

#endif
