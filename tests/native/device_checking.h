/* SPDX-License-Identifier: MIT
 *
 * A device for tests that wraps another one and checks what a manager does with it: every
 * precondition of device.h, and that memory is left alone while a queue may use it. On request it
 * lags (points are reached late, in order), gives dirty slabs and fails chosen calls.
 *
 * A broken rule is a violation: it is counted, the first one's text is kept, and a call that would
 * do harm is refused with -EINVAL.
 */
#ifndef DEVICE_CHECKING_H
#define DEVICE_CHECKING_H

#include "device.h"

enum checking_kind {
	CHECKING_RESERVE,
	CHECKING_SLAB_CREATE,
	CHECKING_MAP,   /* each map of an array is a call of its own */
	CHECKING_UNMAP, /* so is each unmap */
	CHECKING_FILL,
	CHECKING_COPY,
	CHECKING_KINDS
};

/* Which calls fail. One that fails in an array leaves those before it issued. */
struct checking_fault {
	uint32_t kinds;       /* count and fail only these: bits 1 << enum checking_kind; 0: all */
	uint64_t call;        /* the call that fails, counted from 1 since the fault was set; 0: none */
	bool forever;         /* all later ones too */
	uint32_t per_million; /* any call fails with this probability ... */
	uint64_t seed;        /* ... by this seed */
	int error;            /* 0: -EIO; -ENODEV: the device is lost */
};

struct checking_report {
	uint64_t violations;
	char violation[256]; /* the first; "" if there was none */
	uint64_t calls[CHECKING_KINDS], failed[CHECKING_KINDS]; /* failed: those made to fail */
	uint64_t releases, slab_destroys;
	uint64_t calls_after_loss;
	uint64_t released_mappings; /* what release had to unmap */
	/* What exists now; at destroy: what was leaked. */
	uint64_t reservations, slabs, mappings;
};

struct checking_options {
	/* Not 0: points lag. Each is reached after up to lag_polls (0: 4) looks, or once waited for.
	 * Unmaps and fills by slab are carried out only then. 0: all points are 0. */
	uint64_t lag_seed;
	uint32_t lag_polls;
	bool dirty_slabs; /* new slabs are full of 0xa5 */
	/* Narrower bounds than the inner device's; 0: those. */
	uint64_t max_mappings, memory_bytes;
	struct checking_fault fault;
	struct checking_report *report; /* written at destroy, unless NULL */
};

/* *ret owns inner from then on; vmkv_device_close closes both. options may be NULL. */
int vmkv_device_checking_wrap(struct vmkv_device *inner, const struct checking_options *options,
                              struct vmkv_device **ret);

/* For the test's engine: a queue may use these addresses until `until`; all queues have passed
 * `completed`. */
void checking_use(struct vmkv_device *device, uint64_t address, uint64_t bytes, uint64_t until);
void checking_complete(struct vmkv_device *device, uint64_t completed);

/* Whether all of the range may be used now: mapped, its points reached, no fill of it pending. */
bool checking_usable(struct vmkv_device *device, uint64_t address, uint64_t bytes);

void checking_fault_set(struct vmkv_device *device, const struct checking_fault *fault);
void checking_report(struct vmkv_device *device, struct checking_report *ret);

#endif
