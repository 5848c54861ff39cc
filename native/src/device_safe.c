/* SPDX-License-Identifier: MIT
 *
 * Safe modes: which are asked for, and the wait of one of them. What the others mean is up to the
 * ports and the manager.
 */
#include "device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "util.h"

#define WAIT_DEFAULT_US 4000
#define WAIT_MAX_US 1000000

static const struct {
	const char *name;
	enum vmkv_safe mode;
} modes[] = {
	{ "never-reuse-addresses", VMKV_SAFE_NEVER_REUSE_ADDRESSES },
	{ "wait-after-map", VMKV_SAFE_WAIT_AFTER_MAP },
	{ "no-alias", VMKV_SAFE_NO_ALIAS },
};
#define MODES (sizeof(modes) / sizeof(modes[0]))

static int safe_parse(struct vmkv_device_info *info, const char *value, char *error,
                      size_t error_bytes)
{
	size_t length, i;

	for (;; value += length + 1) {
		length = strcspn(value, ",");
		for (i = 0; i < MODES; i++)
			if (strlen(modes[i].name) == length && !strncmp(value, modes[i].name, length))
				break;
		if (i == MODES) {
			vmkv_text(error, error_bytes,
			          "safe=%.*s is none of never-reuse-addresses, wait-after-map and "
			          "no-alias: give those, with commas between",
			          (int)(length < 40 ? length : 40), value);
			return -EINVAL;
		}
		info->safe |= (uint32_t)modes[i].mode;
		if (!value[length])
			return 0;
	}
}

static int wait_parse(struct vmkv_device_info *info, const char *value, char *error,
                      size_t error_bytes)
{
	char *end;
	unsigned long long us = strtoull(value, &end, 10);

	if (*value < '0' || *value > '9' || *end || us < 1 || us > WAIT_MAX_US) {
		vmkv_text(error, error_bytes,
		          "wait_us=%.40s is no wait: write 1 to %d microseconds", value, WAIT_MAX_US);
		return -EINVAL;
	}
	info->wait_after_map_us = (uint32_t)us;
	return 0;
}

int vmkv_safe_option(struct vmkv_device_info *info, const char *name, const char *value,
                     bool *known, char *error, size_t error_bytes)
{
	bool safe = !strcmp(name, "safe");

	*known = safe || !strcmp(name, "wait_us");
	if (!*known)
		return 0;
	return safe ? safe_parse(info, value, error, error_bytes)
	            : wait_parse(info, value, error, error_bytes);
}

int vmkv_safe_options_end(struct vmkv_device_info *info, char *error, size_t error_bytes)
{
	bool waits = (info->safe & VMKV_SAFE_WAIT_AFTER_MAP) != 0;

	if (waits && !info->wait_after_map_us)
		info->wait_after_map_us = WAIT_DEFAULT_US;
	if (waits || !info->wait_after_map_us)
		return 0;
	vmkv_text(error, error_bytes,
	          "wait_us is how long safe=wait-after-map waits: give that too, or neither");
	return -EINVAL;
}

void vmkv_safe_text(const struct vmkv_device_info *info, char *text, size_t n)
{
	uint32_t wait_us = info->wait_after_map_us;
	char list[80] = "";
	size_t at = 0;

	for (size_t i = 0; i < MODES; i++) {
		if (!(info->safe & (uint32_t)modes[i].mode))
			continue;
		vmkv_text(list + at, sizeof(list) - at, "%s%s", at ? "," : "safe=", modes[i].name);
		at = strlen(list);
	}
	if (wait_us && wait_us != WAIT_DEFAULT_US)
		vmkv_text(text, n, "%s&wait_us=%u", list, wait_us);
	else
		vmkv_text(text, n, "%s", list);
}

void vmkv_device_wait_after_map(const struct vmkv_device *device)
{
	uint64_t us = device->info.wait_after_map_us;
	struct timespec left = {
		.tv_sec = (time_t)(us / 1000000),
		.tv_nsec = (long)(us % 1000000) * 1000,
	};

	while (us && nanosleep(&left, &left) && errno == EINTR)
		;
}
