/* SPDX-License-Identifier: MIT
 *
 * What all devices share: names, the error text, points, and the checks before a copy or fill.
 */
#include "device.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "util.h"

uint32_t vmkv_version(void)
{
	return VMKV_VERSION_MAJOR << 16 | VMKV_VERSION_MINOR << 8 | VMKV_VERSION_PATCH;
}

/* ---- the base of a device ------------------------------------------------------------------- */

int vmkv_device_init(struct vmkv_device *device, const struct vmkv_device_ops *ops)
{
	int error = pthread_mutex_init(&device->error_lock, NULL);

	if (error)
		return -error;
	device->ops = ops;
	memset(&device->info, 0, sizeof(device->info));
	device->info.struct_size = sizeof(device->info);
	device->info.max_mappings = UINT64_MAX;
	atomic_init(&device->completed, 0);
	atomic_init(&device->mappings, 0);
	atomic_init(&device->lost, 0);
	atomic_init(&device->addresses_left, UINT64_C(1) << 40);
	atomic_init(&device->caches, 0);
	device->error[0] = 0;
	return 0;
}

void vmkv_device_fini(struct vmkv_device *device)
{
	pthread_mutex_destroy(&device->error_lock);
}

int vmkv_device_fail(struct vmkv_device *device, int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	pthread_mutex_lock(&device->error_lock);
	vmkv_text_v(device->error, sizeof(device->error), format, args);
	pthread_mutex_unlock(&device->error_lock);
	va_end(args);
	if (error == -ENODEV)
		atomic_store(&device->lost, 1);
	return error;
}

size_t vmkv_device_error(const vmkv_device *device, char *text, size_t text_bytes)
{
	/* The lock is no part of what const promises. */
	vmkv_device *locked = (vmkv_device *)device;
	size_t length;

	if (!device)
		return 0;
	pthread_mutex_lock(&locked->error_lock);
	length = strlen(device->error);
	vmkv_text(text, text_bytes, "%s", device->error);
	pthread_mutex_unlock(&locked->error_lock);
	return length;
}

/* ---- open and close ------------------------------------------------------------------------- */

/* Parts of a name: kind[:place][?options]. */
struct name_parts {
	char kind[16], place[128];
	const char *options;
};

static int name_split(const char *name, struct name_parts *parts)
{
	size_t kind = strcspn(name, ":?");
	const char *place = name[kind] == ':' ? name + kind + 1 : name + kind;
	size_t length = strcspn(place, "?");

	if (kind >= sizeof(parts->kind) || length >= sizeof(parts->place))
		return -EINVAL;
	vmkv_text(parts->kind, sizeof(parts->kind), "%.*s", (int)kind, name);
	vmkv_text(parts->place, sizeof(parts->place), "%.*s", (int)length, place);
	parts->options = place[length] ? place + length + 1 : "";
	return 0;
}

/* Whether the rest of the options, from an '&' on, has this one too. */
static bool option_is_again(const char *rest, const char *name)
{
	size_t length = strlen(name);

	while (*rest) {
		rest++;
		if (!strncmp(rest, name, length) && rest[length] == '=')
			return true;
		rest += strcspn(rest, "&");
	}
	return false;
}

int vmkv_option_next(const char **options, const char *device, struct vmkv_option *ret, char *error,
                     size_t error_bytes)
{
	const char *text = *options;
	size_t length = strcspn(text, "&");
	char *value;

	if (!*text)
		return 0;
	vmkv_text(ret->name, sizeof(ret->name), "%.*s", (int)(length < 127 ? length : 127), text);
	value = strchr(ret->name, '=');
	if (!value || length >= sizeof(ret->name)) {
		vmkv_text(error, error_bytes,
		          "malformed option \"%.40s\" of device %s: write name=value&name=value",
		          ret->name, device);
		return -EINVAL;
	}
	*value++ = 0;
	if (option_is_again(text + length, ret->name)) {
		vmkv_text(error, error_bytes, "option \"%.40s\" of device %s is given twice", ret->name,
		          device);
		return -EINVAL;
	}
	ret->value = value;
	*options = text + length + (text[length] == '&');
	return 1;
}

static int open_auto(const struct name_parts *parts, char *error, size_t error_bytes,
                     vmkv_device **ret)
{
	if (!*parts->options)
		return vmkv_device_host_open("", error, error_bytes, ret);
	vmkv_text(error, error_bytes,
	          "device \"auto\" takes no options: name the device, as in \"host?%.80s\"",
	          parts->options);
	return -EINVAL;
}

static int open_by_name(const struct vmkv_device_options *given, const char *name,
                        vmkv_device **ret)
{
	struct name_parts parts = { .options = "" };
	char *error = given->error;
	size_t n = given->error_bytes;
	bool known = name_split(name, &parts) == 0;

	if (known && !strcmp(parts.kind, "amdgpu"))
		return vmkv_device_amdgpu_open(parts.place, parts.options, given, error, n, ret);
	if (given->adopt || given->window_begin || given->window_end) {
		vmkv_text(error, n, "adopt and window_begin are for device \"amdgpu\", not for \"%.80s\"",
		          name);
		return -EINVAL;
	}
	if (known && !strcmp(parts.kind, "emulated"))
		return vmkv_device_emulated_open(parts.place, parts.options, error, n, ret);
	if (known && !parts.place[0] && !strcmp(parts.kind, "host"))
		return vmkv_device_host_open(parts.options, error, n, ret);
	if (known && !parts.place[0] && !strcmp(parts.kind, "auto"))
		return open_auto(&parts, error, n, ret);
	if (known && !parts.kind[0]) {
		vmkv_text(error, n, "a device's name is missing: \"host\", \"amdgpu\" or \"auto\"");
		return -EINVAL;
	}
	vmkv_text(error, n,
	          "unknown device \"%.80s\": this version drives \"host\", \"amdgpu\" and "
	          "\"emulated:MODEL\"", name);
	return -ENODEV;
}

int vmkv_device_open(const struct vmkv_device_options *options, vmkv_device **ret)
{
	struct vmkv_device_options given;
	int error = vmkv_struct_in(&given, sizeof(given), options);

	if (error == -E2BIG)
		vmkv_text(given.error, given.error_bytes,
		          "the device options set a field that this version of the library doesn't know");
	if (!error && !ret) {
		vmkv_text(given.error, given.error_bytes,
		          "there is no place to put the device: ret is NULL");
		error = -EINVAL;
	}
	if (error)
		return error;
	return open_by_name(&given, given.name ? given.name : "auto", ret);
}

int vmkv_device_close(vmkv_device *device)
{
	if (!device)
		return 0;
	if (atomic_load(&device->caches))
		return vmkv_device_fail(device, -EBUSY,
		                        "caches still use the device (%u): destroy them first",
		                        (unsigned)atomic_load(&device->caches));
	device->ops->destroy(device);
	return 0;
}

int vmkv_device_info(const vmkv_device *device, struct vmkv_device_info *ret)
{
	struct vmkv_device_info info;

	if (!device)
		return -EINVAL;
	info = device->info;
	info.mappings = atomic_load(&device->mappings);
	info.lost = atomic_load(&device->lost);
	return vmkv_struct_out(ret, &info, sizeof(info));
}

int vmkv_device_health(vmkv_device *device, struct vmkv_device_health *ret)
{
	struct vmkv_device_health health = { .struct_size = sizeof(health) };
	int error = 0;

	if (!device)
		return -EINVAL;
	if (device->ops->health && !vmkv_device_is_lost(device))
		error = device->ops->health(device, &health);
	/* Also if that is what the question brought to light. */
	health.lost = atomic_load(&device->lost);
	return error && error != -ENODEV ? error : vmkv_struct_out(ret, &health, sizeof(health));
}

/* ---- counting mappings ---------------------------------------------------------------------- */

static uint64_t count_take(_Atomic uint64_t *count, uint64_t max, uint64_t n)
{
	uint64_t now = atomic_load_explicit(count, memory_order_relaxed);
	uint64_t room;

	do {
		room = now < max ? max - now : 0;
		if (n > room)
			return n - room;
	} while (!atomic_compare_exchange_weak(count, &now, now + n));
	return 0;
}

uint64_t vmkv_device_take_shared(struct vmkv_device *device, uint64_t n)
{
	return device->shared_mappings
	           ? count_take(device->shared_mappings, device->shared_max_mappings, n)
	           : 0;
}

void vmkv_device_give_shared(struct vmkv_device *device, uint64_t n)
{
	if (device->shared_mappings)
		atomic_fetch_sub(device->shared_mappings, n);
}

uint64_t vmkv_device_take_mappings(struct vmkv_device *device, uint64_t n)
{
	uint64_t missing = count_take(&device->mappings, device->info.max_mappings, n);

	if (missing)
		return missing;
	missing = vmkv_device_take_shared(device, n);
	if (missing)
		atomic_fetch_sub(&device->mappings, n);
	return missing;
}

void vmkv_device_give_mappings(struct vmkv_device *device, uint64_t n)
{
	atomic_fetch_sub(&device->mappings, n);
	vmkv_device_give_shared(device, n);
}

/* ---- points --------------------------------------------------------------------------------- */

void vmkv_device_poll(struct vmkv_device *device)
{
	if (device->ops->wait && !vmkv_device_is_lost(device))
		device->ops->wait(device, 0, 0);
}

static int error_if_lost(vmkv_device *device)
{
	/* The text stays the one that told how it was lost. */
	return vmkv_device_is_lost(device) ? -ENODEV : 0;
}

int vmkv_wait(vmkv_device *device, uint64_t point, uint64_t timeout_ns)
{
	int error;

	if (!device)
		return -EINVAL;
	error = error_if_lost(device);
	if (!error && !vmkv_device_reached(device, point)) {
		if (!device->ops->wait)
			return vmkv_device_fail(device, -EINVAL,
			                        "point %llu never came from this device: all of its points "
			                        "are 0",
			                        (unsigned long long)point);
		error = device->ops->wait(device, point, timeout_ns);
	}
	return error || !device->ops->outcome ? error : device->ops->outcome(device, point);
}

/* What copy and fill do with the point of their work. */
static int hand_over(vmkv_device *device, uint64_t point, uint64_t *ret)
{
	if (!ret)
		return vmkv_wait(device, point, UINT64_MAX);
	*ret = point;
	return 0;
}

/* ---- copy and fill -------------------------------------------------------------------------- */

static int check_range(vmkv_device *device, const char *what, uint64_t address, uint64_t bytes)
{
	if (bytes && bytes - 1 > UINT64_MAX - address)
		return vmkv_device_fail(device, -EINVAL,
		                        "%s of %llu bytes at 0x%llx goes past the end of the address space",
		                        what, (unsigned long long)bytes, (unsigned long long)address);
	return 0;
}

static int check_copy(vmkv_device *device, uint64_t destination, uint64_t source, uint64_t bytes)
{
	uint64_t distance = destination > source ? destination - source : source - destination;
	int error = error_if_lost(device);

	if (!error)
		error = check_range(device, "copy to", destination, bytes);
	if (!error)
		error = check_range(device, "copy from", source, bytes);
	if (!error && distance < bytes)
		return vmkv_device_fail(device, -EINVAL,
		                        "copy of %llu bytes from 0x%llx to 0x%llx: the ranges overlap",
		                        (unsigned long long)bytes, (unsigned long long)source,
		                        (unsigned long long)destination);
	return error;
}

int vmkv_copy(vmkv_device *device, uint64_t destination, uint64_t source, uint64_t bytes,
              uint64_t *point)
{
	uint64_t done = 0;
	int error;

	if (!device)
		return -EINVAL;
	error = check_copy(device, destination, source, bytes);
	if (!error && bytes)
		error = device->ops->copy(device, destination, source, bytes, &done);
	return error ? error : hand_over(device, done, point);
}

int vmkv_fill(vmkv_device *device, uint64_t destination, uint64_t bytes, uint32_t value,
              uint64_t *point)
{
	struct vmkv_fill fill = { .offset = destination, .bytes = bytes, .value = value };
	uint64_t done = 0;
	int error;

	if (!device)
		return -EINVAL;
	error = error_if_lost(device);
	if (!error && (destination | bytes) % 4)
		return vmkv_device_fail(device, -EINVAL,
		                        "fill of %llu bytes at 0x%llx: both must be multiples of 4",
		                        (unsigned long long)bytes, (unsigned long long)destination);
	if (!error)
		error = check_range(device, "fill", destination, bytes);
	if (!error && bytes)
		error = device->ops->fill(device, &fill, 1, &done);
	return error ? error : hand_over(device, done, point);
}
