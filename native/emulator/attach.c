/* SPDX-License-Identifier: MIT
 *
 * libdrm and libdrm_amdgpu stay as the system ships them; their imports of ioctl are pointed here,
 * where descriptors of emulated files go to the emulator and all others to ioctl(2).
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "entry.h"

#define OBJECTS_MOST 16 /* instances of a library in a process */

typedef char *name_function(int fd);

static pthread_mutex_t attach_lock = PTHREAD_MUTEX_INITIALIZER;
static name_function *next_name; /* libdrm's own */

static int hook_ioctl(int fd, unsigned long request, ...)
{
	int saved = errno, result;
	struct emu_file *file;
	va_list args;
	void *argument;

	va_start(args, request);
	argument = va_arg(args, void *);
	va_end(args);
	file = emu_file_get(fd);
	if (!file && errno == ENODEV)
		return -1;
	errno = saved;
	if (!file)
		return ioctl(fd, request, argument);
	result = emu_ioctl_run(file, request, argument);
	emu_file_put(file);
	errno = result < 0 ? -result : saved;
	return result < 0 ? -1 : result;
}

/* libdrm_amdgpu takes descriptors whose cards have the same name for one device, and such as
 * have no name, too. So each emulated card gets one. */
static char *hook_name(int fd)
{
	int saved = errno;
	struct emu_file *file = emu_file_get(fd);
	char text[48];

	if (!file && errno == ENODEV) {
		/* A device that outlived its card is no other card's. */
		errno = saved;
		snprintf(text, sizeof(text), "/dev/dri/emulated-gone-%lld",
		         (long long)lseek(fd, 0, SEEK_CUR));
		return strdup(text);
	}
	if (!file) {
		name_function *next = __atomic_load_n(&next_name, __ATOMIC_ACQUIRE);

		errno = saved;
		return next ? next(fd) : NULL;
	}
	snprintf(text, sizeof(text), "/dev/dri/emulated-%llu", (unsigned long long)file->gpu->id);
	emu_file_put(file);
	return strdup(text);
}

#define NAME_FUNCTION "drmGetPrimaryDeviceNameFromFd"

/* While it is held, the object stays loaded. */
static void *object_hold(const struct emu_object *object)
{
	return dlopen(object->path, RTLD_LAZY | RTLD_NOLOAD);
}

static int object_attach(const struct emu_object *object)
{
	const struct emu_import imports[] = {
		{ "ioctl", (void *)hook_ioctl },
		{ NAME_FUNCTION, (void *)hook_name },
	};
	void *handle = object_hold(object), *next;
	int err;

	if (!handle)
		return 0; /* unloaded meanwhile */
	next = dlsym(handle, NAME_FUNCTION);
	if (next)
		__atomic_store_n(&next_name, (name_function *)next, __ATOMIC_RELEASE);
	err = emu_object_redirect(object, imports, sizeof(imports) / sizeof(imports[0]));
	dlclose(handle);
	return err;
}

/* What calls into this library must not outlive it. */
static void self_hold(void)
{
	Dl_info info;

	if (dladdr((void *)hook_ioctl, &info) && info.dli_fname)
		dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

static int library_attach(const char *stem, uint32_t *count)
{
	struct emu_object objects[OBJECTS_MOST];
	int err = 0;

	*count = emu_objects_find(stem, objects, OBJECTS_MOST);
	for (uint32_t i = 0; i < *count && !err; i++)
		err = object_attach(&objects[i]);
	return err;
}

VMKV_API int vmkv_emulator_attach(void)
{
	uint32_t count, amdgpu_count;
	int err;

	pthread_mutex_lock(&attach_lock);
	err = library_attach("libdrm", &count);
	if (!err && !count)
		err = -ENOENT;
	if (!err)
		err = library_attach("libdrm_amdgpu", &amdgpu_count);
	if (!err)
		self_hold();
	pthread_mutex_unlock(&attach_lock);
	return err;
}
