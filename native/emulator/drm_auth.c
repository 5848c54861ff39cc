/* SPDX-License-Identifier: MIT
 *
 * Who may do what on the primary node: its master, which is whoever opens it first, and those whom that one
 * authenticates. Render nodes need neither.
 */
#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "entry.h"

static bool caller_is_capable(uint32_t capability)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3,
		                                   .pid = emu_caller_process() };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { { 0 } };

	return !syscall(SYS_capget, &header, data) &&
	       data[CAP_TO_INDEX(capability)].effective & CAP_TO_MASK(capability);
}

bool emu_caller_is_nice(void)
{
	return caller_is_capable(CAP_SYS_NICE);
}

static void master_become(struct emu_file *file)
{
	file->gpu->master = file;
	if (!file->was_master) {
		file->master_number = ++file->gpu->masters;
		file->magic = 0;
		file->magic_is_open = false;
	}
	file->was_master = true;
	file->authenticated = true;
}

void emu_auth_open(struct emu_file *file)
{
	file->opener = emu_caller_process();
	if (!file->primary)
		return;
	file->authenticated = caller_is_capable(CAP_SYS_ADMIN);
	if (file->gpu->master)
		file->master_number = file->gpu->master->master_number;
	else
		master_become(file);
}

void emu_auth_close(struct emu_file *file)
{
	if (file->gpu->master == file)
		file->gpu->master = NULL;
	free(file->client_name);
	file->client_name = NULL;
}

int emu_auth_check(struct emu_file *file, uint32_t flags)
{
	struct emu_gpu *gpu = file->gpu;
	int error = 0;

	if (!file->primary)
		return flags & EMU_IOCTL_RENDER ? 0 : -EACCES;
	if (!(flags & (EMU_IOCTL_AUTH | EMU_IOCTL_MASTER)))
		return 0;
	pthread_mutex_lock(&gpu->lock);
	if ((flags & EMU_IOCTL_AUTH && !file->authenticated) ||
	    (flags & EMU_IOCTL_MASTER && gpu->master != file))
		error = -EACCES;
	pthread_mutex_unlock(&gpu->lock);
	return error;
}

/* ---- magic --------------------------------------------------------------------------------------- */

/* The least that no other file of the same master has. -ENOMEM. */
static int magic_pick(struct emu_file *file)
{
	uint32_t n = 1, magic = 1;
	bool *taken;

	EMU_FOR_EACH(item, &file->gpu->files)
		n++;
	taken = calloc(n + 1, sizeof(*taken));
	if (!taken)
		return -ENOMEM;
	EMU_FOR_EACH(item, &file->gpu->files) {
		struct emu_file *other = EMU_ENTRY(item, struct emu_file, link);

		if (other->master_number == file->master_number && other->magic <= n)
			taken[other->magic] = true;
	}
	while (taken[magic])
		magic++;
	free(taken);
	file->magic = magic;
	file->magic_is_open = true;
	return 0;
}

int emu_get_magic(struct emu_file *file, void *data)
{
	struct drm_auth *auth = data;
	struct emu_gpu *gpu = file->gpu;
	int error = 0;

	pthread_mutex_lock(&gpu->lock);
	if (!file->magic)
		error = magic_pick(file);
	auth->magic = file->magic;
	pthread_mutex_unlock(&gpu->lock);
	return error;
}

/* A magic number serves once, and only the master who was there when its file was opened. */
int emu_auth_magic(struct emu_file *file, void *data)
{
	const struct drm_auth *auth = data;
	struct emu_gpu *gpu = file->gpu;
	int error = -EINVAL;

	pthread_mutex_lock(&gpu->lock);
	EMU_FOR_EACH(item, &gpu->files) {
		struct emu_file *other = EMU_ENTRY(item, struct emu_file, link);

		if (!other->magic_is_open || other->magic != auth->magic ||
		    other->master_number != file->master_number)
			continue;
		other->authenticated = true;
		other->magic_is_open = false;
		error = 0;
	}
	pthread_mutex_unlock(&gpu->lock);
	return error;
}

/* ---- masters ------------------------------------------------------------------------------------- */

/* Who was master once may be again, if it is the process that opened the file. */
static bool may_change_master(const struct emu_file *file)
{
	return (file->was_master && file->opener == emu_caller_process()) ||
	       caller_is_capable(CAP_SYS_ADMIN);
}

int emu_set_master(struct emu_file *file, void *data)
{
	struct emu_gpu *gpu = file->gpu;
	int error = 0;

	(void)data;
	pthread_mutex_lock(&gpu->lock);
	if (!may_change_master(file))
		error = -EACCES;
	else if (gpu->master && gpu->master != file)
		error = -EBUSY;
	else
		master_become(file);
	pthread_mutex_unlock(&gpu->lock);
	return error;
}

int emu_drop_master(struct emu_file *file, void *data)
{
	struct emu_gpu *gpu = file->gpu;
	int error = 0;

	(void)data;
	pthread_mutex_lock(&gpu->lock);
	if (!may_change_master(file))
		error = -EACCES;
	else if (gpu->master != file)
		error = -EINVAL;
	else
		gpu->master = NULL;
	pthread_mutex_unlock(&gpu->lock);
	return error;
}

/* ---- names --------------------------------------------------------------------------------------- */

#define NAME_MOST 64

static bool name_is_valid(const char *name, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (name[i] <= ' ' || name[i] >= 127)
			return false;
	return true;
}

/* What fdinfo calls the file; nothing takes the name away. */
int emu_set_client_name(struct emu_file *file, void *data)
{
	const struct drm_set_client_name *args = data;
	char *name = NULL, *old;
	int error;

	if (args->name_len > NAME_MOST)
		return -EINVAL;
	if (args->name_len) {
		name = calloc(1, args->name_len + 1);
		error = name ? emu_copy_in(name, args->name, args->name_len) : -ENOMEM;
		if (!error && !name_is_valid(name, args->name_len))
			error = -EINVAL;
		if (error) {
			free(name);
			return error;
		}
	}
	pthread_mutex_lock(&file->gpu->lock);
	old = file->client_name;
	file->client_name = name;
	pthread_mutex_unlock(&file->gpu->lock);
	free(old);
	return 0;
}
