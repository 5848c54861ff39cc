/* SPDX-License-Identifier: MIT
 *
 * The emulated card as a device: the emulator, which is a library of its own that engines on real
 * cards never load, and the amdgpu device on top of it through the system's libdrm, as on a real
 * one.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "amdgpu.h"
#include "device_host.h"
#include "emulator/vmkv_emulator.h"
#include "util.h"

/* The emulator's functions, as found in its library, and the card that they made. */
struct emulated {
	void *library;
	__typeof__(vmkv_emulator_create) *create;
	__typeof__(vmkv_emulator_destroy) *destroy;
	__typeof__(vmkv_emulator_open) *open;
	__typeof__(vmkv_emulator_close) *close;
	__typeof__(vmkv_emulator_attach) *attach;
	__typeof__(vmkv_emulator_window) *window;
	vmkv_emulator *card;
	int fd;
};

static void emulated_destroy(void *owner)
{
	struct emulated *emulated = owner;

	if (emulated->fd >= 0)
		emulated->close(emulated->fd);
	if (emulated->card)
		emulated->destroy(emulated->card);
	/* The library stays loaded: libdrm's imports point into it. */
	free(emulated);
}

static int library_load(struct emulated *emulated, char *error, size_t error_bytes)
{
	struct {
		const char *name;
		void *function;
	} symbols[] = {
		{ "vmkv_emulator_create", &emulated->create },
		{ "vmkv_emulator_destroy", &emulated->destroy },
		{ "vmkv_emulator_open", &emulated->open },
		{ "vmkv_emulator_close", &emulated->close },
		{ "vmkv_emulator_attach", &emulated->attach },
		{ "vmkv_emulator_window", &emulated->window },
	};

	emulated->library = dlopen(VMKV_EMULATOR_SONAME, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!emulated->library) {
		vmkv_text(error, error_bytes, "the emulator's library can't be loaded: %s", dlerror());
		return -ENODEV;
	}
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		void *found = dlsym(emulated->library, symbols[i].name);

		if (!found) {
			vmkv_text(error, error_bytes,
			          VMKV_EMULATOR_SONAME " lacks %s: it is of another version",
			          symbols[i].name);
			return -ENODEV;
		}
		memcpy(symbols[i].function, &found, sizeof(found));
	}
	return 0;
}

/* Options of the amdgpu device go there, the others to the emulator. */
static int options_split(const char *model, const char *options, char *spec, char *device, size_t n)
{
	char *to_spec = spec + strlen(strcpy(spec, model)), *to_device = device;
	char first = '?';

	*device = 0;
	if (strlen(model) + strlen(options) + 2 > n)
		return -EINVAL;
	while (*options) {
		int length = (int)strcspn(options, "&");

		if (!strncmp(options, "commit=", 7) || !strncmp(options, "slabs=", 6) ||
		    !strncmp(options, "safe=", 5) || !strncmp(options, "wait_us=", 8)) {
			to_device += sprintf(to_device, "%s%.*s", to_device > device ? "&" : "", length,
			                     options);
		} else {
			to_spec += sprintf(to_spec, "%c%.*s", first, length, options);
			first = '&';
		}
		options += length + (options[length] == '&');
	}
	return 0;
}

/* libdrm is loaded by now, and nothing was asked of it yet. */
static int attach(struct vmkv_amdgpu *gpu, struct amdgpu_open *request)
{
	struct emulated *emulated = request->owner;
	int rc = emulated->attach();

	if (!rc)
		rc = emulated->open(emulated->card, &emulated->fd);
	if (rc)
		return vmkv_device_fail(&gpu->base, rc, "libdrm can't be pointed at the emulated card: %s",
		                        strerror(-rc));
	request->fd = emulated->fd;
	emulated->window(emulated->card, &request->window_begin, &request->window_end);
	return 0;
}

int vmkv_device_emulated_open(const char *model, const char *options, char *error,
                              size_t error_bytes, struct vmkv_device **ret)
{
	struct emulated *emulated = calloc(1, sizeof(*emulated));
	struct vmkv_amdgpu *gpu;
	char spec[512], device_options[512], name[256];
	struct amdgpu_open request = {
		.fd = -1, .options = device_options, .name = name, .before = attach, .owner = emulated,
		.private_device = true,
	};
	int rc;

	if (!emulated) {
		vmkv_text(error, error_bytes, "no host memory for the device");
		return -ENOMEM;
	}
	emulated->fd = -1;
	vmkv_text(name, sizeof(name), "emulated:%s%s%s", model, *options ? "?" : "", options);
	rc = library_load(emulated, error, error_bytes);
	if (!rc) {
		rc = options_split(model, options, spec, device_options, sizeof(spec));
		if (rc)
			vmkv_text(error, error_bytes, "the options of \"%.60s\" are too long", name);
	}
	if (!rc)
		rc = emulated->create(spec, error, error_bytes, &emulated->card);
	if (!rc)
		rc = amdgpu_device_open(&request, error, error_bytes, &gpu);
	if (rc) {
		emulated_destroy(emulated);
		return rc;
	}
	gpu->on_destroy = emulated_destroy;
	gpu->owner = emulated;
	if (gpu->window_begin != gpu->window_end) {
		/* Each mapping is one of this process too. */
		gpu->base.info.features |= VMKV_FEATURE_CPU_ADDRESSES;
		host_share_bound(&gpu->base);
	}
	*ret = &gpu->base;
	return 0;
}
