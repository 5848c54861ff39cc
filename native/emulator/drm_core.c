/* SPDX-License-Identifier: MIT
 *
 * What a DRM file of any driver answers: who it is, and what it can do.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "emu.h"

#define DRM_MAJOR 3

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
	client->auth = file->primary;
	client->pid = (unsigned long)getpid();
	client->uid = geteuid();
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

/* Nobody has set a bus id. */
int emu_get_unique(struct emu_file *file, void *data)
{
	struct drm_unique *unique = data;

	(void)file;
	unique->unique_len = 0;
	return 0;
}

/* A primary node's file is authenticated from the start: there is no other master. */
int emu_get_magic(struct emu_file *file, void *data)
{
	struct drm_auth *auth = data;

	auth->magic = (unsigned int)file->id;
	return 0;
}

int emu_auth_magic(struct emu_file *file, void *data)
{
	const struct drm_auth *auth = data;
	int err = -EINVAL;

	pthread_mutex_lock(&file->gpu->lock);
	EMU_FOR_EACH(item, &file->gpu->files) {
		const struct emu_file *other = EMU_ENTRY(item, struct emu_file, link);

		if (other->primary && (unsigned int)other->id == auth->magic)
			err = 0;
	}
	pthread_mutex_unlock(&file->gpu->lock);
	return err;
}
