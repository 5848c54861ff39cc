/* SPDX-License-Identifier: MIT
 *
 * An emulated card that outlives the devices on it, so that calls can be made to fail from the first on,
 * and what a device left behind can be seen when it is closed.
 */
#ifndef CARD_FIXTURE_H
#define CARD_FIXTURE_H

#include <dirent.h>
#include <dlfcn.h>
#include <unistd.h>

#include "check.h"
#include "emulator/vmkv_emulator.h"
#include "target.h"

struct card {
	vmkv_emulator *emulator;
	int fd;
	uint64_t descriptors; /* that were open before a device was */
	char device[64];      /* what opens a device on it */
};

static inline uint64_t descriptors_count(void)
{
	DIR *directory = opendir("/proc/self/fd");
	uint64_t n = 0;

	CHECK(directory);
	while (readdir(directory))
		n++;
	closedir(directory);
	return n;
}

/* The target's name in two: the card's spec, and the device's options. identity=1 goes: only the device
 * that makes the card itself takes the window. */
static inline void name_divide(const char *name, char *spec, char *device)
{
	const char *option = strchr(name, '?');

	sprintf(spec, "%.*s", (int)strcspn(name, "?"), name);
	strcpy(device, "amdgpu");
	for (option = option ? option + 1 : ""; *option; option += *option == '&') {
		int length = (int)strcspn(option, "&");
		bool of_device = !strncmp(option, "commit=", 7) || !strncmp(option, "slabs=", 6) ||
		                 !strncmp(option, "safe=", 5);
		char *to = of_device ? device : spec;

		if (strncmp(option, "identity=", 9) && strncmp(option, "window=", 7))
			sprintf(to + strlen(to), "%c%.*s", strchr(to, '?') ? '&' : '?', length, option);
		option += length;
	}
}

/* Of the target, or a small one where that is the host. */
static inline struct card card_create(void)
{
	const char *name = target_is_host() ? "emulated:gfx1201?vram=256MiB" : target_name();
	char error[256] = "", spec[256];
	struct card card;

	if (strncmp(name, "emulated:", 9))
		CHECK_FAIL("%s is no emulated card", name);
	name_divide(name + 9, spec, card.device);
	CHECK(dlopen("libdrm_amdgpu.so.1", RTLD_NOW | RTLD_LOCAL)); /* stays loaded, as an engine's */
	if (vmkv_emulator_create(spec, error, sizeof(error), &card.emulator))
		CHECK_FAIL("%s: %s", spec, error);
	CHECK_EQ(vmkv_emulator_attach(), 0);
	CHECK_EQ(vmkv_emulator_open(card.emulator, &card.fd), 0);
	card.descriptors = descriptors_count();
	return card;
}

static inline int card_device_open(struct card *card, vmkv_device **ret, char *text, size_t n)
{
	struct vmkv_device_options options = {
		.struct_size = sizeof(options), .name = card->device, .error = text, .error_bytes = n,
		.adopt = VMKV_ADOPT_FD, .drm_fd = card->fd,
	};

	*ret = NULL;
	return vmkv_device_open(&options, ret);
}

static inline struct vmkv_emulator_stats card_stats(const struct card *card)
{
	struct vmkv_emulator_stats stats = { .struct_size = sizeof(stats) };

	CHECK_EQ(vmkv_emulator_stats(card->emulator, &stats), 0);
	return stats;
}

static inline uint64_t card_calls(const struct card *card, const char *ioctl)
{
	uint64_t n;

	CHECK_EQ(vmkv_emulator_count(card->emulator, ioctl, UINT32_MAX, &n), 0);
	return n;
}

/* No device is open: nothing of any is left, once the jobs have run that still hold something. */
static inline void card_check_empty(const struct card *card, const char *what)
{
	struct vmkv_emulator_stats s = card_stats(card);

	for (int i = 0; i < 5000 && s.buffers > 0; i++) {
		usleep(1000);
		s = card_stats(card);
	}
	if (s.buffers + s.handles + s.mappings + s.contexts + s.buffer_lists + s.syncobjs > 0)
		CHECK_FAIL("%s: left behind: %llu buffers, %llu handles, %llu mappings, %llu contexts, "
		           "%llu buffer lists, %llu syncobjs", what,
		           (unsigned long long)s.buffers, (unsigned long long)s.handles,
		           (unsigned long long)s.mappings, (unsigned long long)s.contexts,
		           (unsigned long long)s.buffer_lists, (unsigned long long)s.syncobjs);
	if (descriptors_count() != card->descriptors)
		CHECK_FAIL("%s: %llu descriptors are open, before %llu", what,
		           (unsigned long long)descriptors_count(),
		           (unsigned long long)card->descriptors);
}

static inline void card_destroy(struct card *card)
{
	CHECK_EQ(vmkv_emulator_close(card->fd), 0);
	vmkv_emulator_destroy(card->emulator);
}

#endif
