/* SPDX-License-Identifier: MIT
 *
 * What a DRM file of any driver answers: who it is, and what it can do.
 */
#include <errno.h>
#include <string.h>

#include "emu.h"

#define DRM_MAJOR 3
#define NO_UID 65534 /* what stands for users that aren't told */

/* The part of a text that there is room for; *bytes becomes the whole text's length. */
static int text_out(const char *text, char *to, size_t *bytes)
{
	size_t length = strlen(text), part = *bytes < length ? *bytes : length;

	*bytes = length;
	return part && to ? emu_copy_out((uint64_t)(uintptr_t)to, text, part) : 0;
}

int emu_version(struct emu_file *file, void *data)
{
	struct drm_version *version = data;
	int err;

	version->version_major = DRM_MAJOR;
	version->version_minor = (int)file->gpu->kernel->drm_minor;
	version->version_patchlevel = 0;
	err = text_out("amdgpu", version->name, &version->name_len);
	if (!err)
		err = text_out(file->gpu->kernel->date, version->date, &version->date_len);
	if (!err)
		err = text_out("AMD GPU", version->desc, &version->desc_len);
	return err;
}

/* Only the file's own entry, 0, exists. */
int emu_get_client(struct emu_file *file, void *data)
{
	struct drm_client *client = data;

	if (client->idx)
		return -EINVAL;
	client->auth = file->authenticated;
	client->pid = (unsigned long)emu_caller_process();
	client->uid = NO_UID;
	client->magic = 0;
	client->iocs = 0;
	return 0;
}

/* There are no displays, so nothing of what they could do. */
int emu_get_cap(struct emu_file *file, void *data)
{
	struct drm_get_cap *cap = data;

	(void)file;
	cap->value = 0;
	switch (cap->capability) {
	case DRM_CAP_TIMESTAMP_MONOTONIC:
	case DRM_CAP_SYNCOBJ:
	case DRM_CAP_SYNCOBJ_TIMELINE:
		cap->value = 1;
		return 0;
	case DRM_CAP_PRIME:
		cap->value = DRM_PRIME_CAP_IMPORT | DRM_PRIME_CAP_EXPORT;
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

int emu_set_client_cap(struct emu_file *file, void *data)
{
	(void)file;
	(void)data;
	return -EOPNOTSUPP;
}

/* -1 leaves a version alone; what is asked for must be one that there is. */
int emu_set_version(struct emu_file *file, void *data)
{
	struct drm_set_version *version = data;
	int minor = (int)file->gpu->kernel->drm_minor, err = 0;

	if (version->drm_di_major != -1 &&
	    (version->drm_di_major != 1 || version->drm_di_minor < 0 || version->drm_di_minor > 4))
		err = -EINVAL;
	else if (version->drm_di_major != -1 && version->drm_di_minor >= 1)
		__atomic_store_n(&file->gpu->has_unique, true, __ATOMIC_RELAXED);
	if (version->drm_dd_major != -1 &&
	    (version->drm_dd_major != DRM_MAJOR || version->drm_dd_minor < 0 ||
	     version->drm_dd_minor > minor))
		err = -EINVAL;
	version->drm_di_major = 1;
	version->drm_di_minor = 4;
	version->drm_dd_major = DRM_MAJOR;
	version->drm_dd_minor = minor;
	return err;
}

/* The bus id, which asking for a version of the interface sets. */
int emu_get_unique(struct emu_file *file, void *data)
{
	struct drm_unique *unique = data;
	const char *text = __atomic_load_n(&file->gpu->has_unique, __ATOMIC_RELAXED)
	                       ? "pci:" VMKV_EMULATOR_PCI : "";
	size_t length = strlen(text);
	int error = 0;

	if (unique->unique_len >= length && length)
		error = emu_copy_out((uint64_t)(uintptr_t)unique->unique, text, length);
	unique->unique_len = length;
	return error;
}

/* Nobody counts. */
int emu_get_stats(struct emu_file *file, void *data)
{
	(void)file;
	memset(data, 0, sizeof(struct drm_stats));
	return 0;
}
