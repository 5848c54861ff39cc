/* SPDX-License-Identifier: MIT
 *
 * Answers that never change are kept, so that what a program asks again and again costs next to nothing
 * however busy the machine is.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "kept.h"

#define KEPT_MOST 32
#define OUTPUT_BYTES 512

enum { EMPTY, WRITING, READY };

struct kept {
	uint32_t state;
	struct kept_question question;
	int result;
	bool written;
	uint8_t argument[KEPT_ARGUMENT];
	uint32_t output_bytes[KEPT_POINTERS]; /* to each of the pointers */
	uint8_t outputs[OUTPUT_BYTES];        /* one after another */
};

/* The ioctls, and where pointers are in their arguments. */
static const struct {
	unsigned long request;
	uint32_t bytes, pointers;
	uint32_t at[KEPT_POINTERS];
} known[] = {
	[EMU_CONSTANT_GET_CAP] = { DRM_IOCTL_GET_CAP, sizeof(struct drm_get_cap), 0, { 0 } },
	[EMU_CONSTANT_VERSION] = { DRM_IOCTL_VERSION, sizeof(struct drm_version), 3,
	                           { offsetof(struct drm_version, name),
	                             offsetof(struct drm_version, date),
	                             offsetof(struct drm_version, desc) } },
	[EMU_CONSTANT_INFO] = { DRM_IOCTL_AMDGPU_INFO, sizeof(struct drm_amdgpu_info), 1,
	                        { offsetof(struct drm_amdgpu_info, return_pointer) } },
};

static const uint32_t constant_queries[] = {
	AMDGPU_INFO_ACCEL_WORKING, AMDGPU_INFO_HW_IP_INFO, AMDGPU_INFO_HW_IP_COUNT,
	AMDGPU_INFO_FW_VERSION,    AMDGPU_INFO_GDS_CONFIG, AMDGPU_INFO_DEV_INFO,
	AMDGPU_INFO_VIDEO_CAPS,    AMDGPU_INFO_MAX_IBS,
};

static struct kept kept[KEPT_MOST];

/* ---- questions ------------------------------------------------------------------------------- */

static bool is_constant(uint32_t kind, const uint8_t *argument)
{
	uint32_t query;

	if (kind != EMU_CONSTANT_INFO)
		return true;
	memcpy(&query, argument + offsetof(struct drm_amdgpu_info, query), sizeof(query));
	for (size_t i = 0; i < sizeof(constant_queries) / sizeof(constant_queries[0]); i++)
		if (constant_queries[i] == query)
			return true;
	return false;
}

static int kind_of(unsigned long request)
{
	for (int i = 0; i < EMU_CONSTANTS; i++)
		if (EMU_IS_SAME_IOCTL(known[i].request, request) &&
		    _IOC_SIZE(request) == known[i].bytes)
			return i;
	return -1;
}

bool kept_question(unsigned long request, void *argument, struct kept_question *ret)
{
	int kind = kind_of(request);

	if (kind < 0)
		return false;
	memset(ret, 0, sizeof(*ret));
	ret->kind = (uint32_t)kind;
	ret->request = request;
	if (preload_self_copy(ret->argument, argument, known[kind].bytes, true) ||
	    !is_constant(ret->kind, ret->argument))
		return false;
	/* Where the answer goes is no part of the question, but whether it is wanted. */
	for (uint32_t i = 0; i < known[kind].pointers; i++) {
		uint64_t wanted;

		memcpy(&ret->pointers[i], ret->argument + known[kind].at[i], sizeof(uint64_t));
		wanted = ret->pointers[i] != 0;
		memcpy(ret->argument + known[kind].at[i], &wanted, sizeof(wanted));
	}
	return true;
}

/* ---- answers --------------------------------------------------------------------------------- */

static bool is_same(const struct kept_question *a, const struct kept_question *b)
{
	return a->kind == b->kind && a->request == b->request &&
	       !memcmp(a->argument, b->argument, sizeof(a->argument));
}

const struct kept *kept_find(const struct kept_question *question)
{
	for (int i = 0; i < KEPT_MOST; i++) {
		uint32_t state = __atomic_load_n(&kept[i].state, __ATOMIC_ACQUIRE);

		if (state == EMPTY)
			break;
		if (state == READY && is_same(&kept[i].question, question))
			return &kept[i];
	}
	return NULL;
}

/* All at once. The argument's pointers are the caller's own. */
int kept_answer(const struct kept *answer, const struct kept_question *question, void *argument)
{
	struct iovec from[KEPT_POINTERS + 1], to[KEPT_POINTERS + 1];
	const uint8_t *output = answer->outputs;
	uint8_t copy[KEPT_ARGUMENT];
	int n = 0;

	memcpy(copy, answer->argument, sizeof(copy));
	for (uint32_t i = 0; i < known[question->kind].pointers; i++) {
		uint32_t bytes = answer->output_bytes[i];

		memcpy(copy + known[question->kind].at[i], &question->pointers[i], sizeof(uint64_t));
		if (!bytes)
			continue;
		from[n] = (struct iovec){ (void *)(uintptr_t)output, bytes };
		to[n++] = (struct iovec){ (void *)(uintptr_t)question->pointers[i], bytes };
		output += bytes;
	}
	if (answer->written) {
		from[n] = (struct iovec){ copy, known[question->kind].bytes };
		to[n++] = (struct iovec){ argument, known[question->kind].bytes };
	}
	return preload_self_write(from, to, n) ? -EFAULT : answer->result;
}

/* ---- keeping --------------------------------------------------------------------------------- */

static bool outputs_keep(struct kept *entry, const struct kept_question *question,
                         const struct emu_channel *channel)
{
	const uint8_t *at = channel->data + channel->bytes, *end = at + channel->outputs_bytes;
	size_t used = 0;
	uint32_t i = 0;

	/* They come in the order of the pointers. */
	while (at < end) {
		struct emu_output output;

		memcpy(&output, at, sizeof(output));
		at += sizeof(output);
		while (i < KEPT_POINTERS && question->pointers[i] != output.address)
			i++;
		if (i == KEPT_POINTERS || output.bytes > OUTPUT_BYTES - used)
			return false;
		memcpy(entry->outputs + used, at, output.bytes);
		entry->output_bytes[i++] = output.bytes;
		used += output.bytes;
		at += output.bytes;
	}
	return true;
}

void kept_add(const struct kept_question *question, const struct emu_channel *channel)
{
	for (int i = 0; i < KEPT_MOST; i++) {
		struct kept *entry = &kept[i];
		uint32_t empty = EMPTY;

		if (!__atomic_compare_exchange_n(&entry->state, &empty, WRITING, false, __ATOMIC_ACQ_REL,
		                                 __ATOMIC_ACQUIRE))
			continue;
		entry->question = *question;
		entry->result = channel->result;
		entry->written = channel->written;
		memcpy(entry->argument, channel->data, known[question->kind].bytes);
		/* One that can't be kept stays as it is, and is never found. */
		if (outputs_keep(entry, question, channel))
			__atomic_store_n(&entry->state, READY, __ATOMIC_RELEASE);
		return;
	}
}
