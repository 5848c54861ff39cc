/* SPDX-License-Identifier: MIT
 *
 * libdrm, found at run time.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "libdrm.h"
#include "util.h"

#define AMDGPU_SONAME "libdrm_amdgpu.so.1"
#define DRM_SONAME "libdrm.so.2"
/* The oldest one that is tried, and known to have all that isn't optional. */
#define OLDEST "2.4.114"

struct symbol {
	const char *name;
	size_t offset; /* of its pointer in the table */
	bool optional;
	const char *release; /* the first that has it, or OLDEST if that one does */
};

#define REQUIRED(function)                                                                         \
	{                                                                                          \
		#function, offsetof(struct vmkv_libdrm, function), false, OLDEST                   \
	}
#define OPTIONAL(function, release)                                                                \
	{                                                                                          \
		#function, offsetof(struct vmkv_libdrm, function), true, release                   \
	}

static const struct symbol symbols[] = {
	REQUIRED(amdgpu_device_initialize),
	REQUIRED(amdgpu_device_deinitialize),
	REQUIRED(amdgpu_device_get_fd),
	REQUIRED(amdgpu_get_marketing_name),
	REQUIRED(amdgpu_query_info),
	REQUIRED(amdgpu_query_heap_info),
	REQUIRED(amdgpu_query_hw_ip_count),
	REQUIRED(amdgpu_query_hw_ip_info),
	REQUIRED(amdgpu_read_mm_registers),
	REQUIRED(amdgpu_vm_reserve_vmid),
	REQUIRED(amdgpu_vm_unreserve_vmid),
	REQUIRED(amdgpu_bo_alloc),
	REQUIRED(amdgpu_bo_free),
	REQUIRED(amdgpu_bo_export),
	REQUIRED(amdgpu_bo_import),
	REQUIRED(amdgpu_bo_cpu_map),
	REQUIRED(amdgpu_bo_cpu_unmap),
	REQUIRED(amdgpu_bo_wait_for_idle),
	REQUIRED(amdgpu_bo_query_info),
	REQUIRED(amdgpu_bo_set_metadata),
	REQUIRED(amdgpu_bo_list_create_raw),
	REQUIRED(amdgpu_bo_list_destroy_raw),
	REQUIRED(amdgpu_va_range_query),
	REQUIRED(amdgpu_va_range_alloc),
	REQUIRED(amdgpu_va_range_free),
	REQUIRED(amdgpu_bo_va_op_raw),
	REQUIRED(amdgpu_cs_ctx_create2),
	REQUIRED(amdgpu_cs_ctx_free),
	REQUIRED(amdgpu_cs_query_reset_state2),
	REQUIRED(amdgpu_cs_submit_raw2),
	REQUIRED(amdgpu_cs_query_fence_status),
	REQUIRED(amdgpu_cs_wait_fences),
	REQUIRED(amdgpu_cs_chunk_fence_to_dep),
	REQUIRED(amdgpu_cs_fence_to_handle),
	REQUIRED(amdgpu_cs_create_syncobj2),
	REQUIRED(amdgpu_cs_destroy_syncobj),
	REQUIRED(amdgpu_cs_syncobj_reset),
	REQUIRED(amdgpu_cs_syncobj_signal),
	REQUIRED(amdgpu_cs_syncobj_timeline_signal),
	REQUIRED(amdgpu_cs_syncobj_wait),
	REQUIRED(amdgpu_cs_syncobj_timeline_wait),
	REQUIRED(amdgpu_cs_syncobj_query),
	REQUIRED(amdgpu_cs_syncobj_query2),
	REQUIRED(amdgpu_cs_export_syncobj),
	REQUIRED(amdgpu_cs_import_syncobj),
	REQUIRED(amdgpu_cs_syncobj_import_sync_file),
	REQUIRED(amdgpu_cs_syncobj_export_sync_file2),
	REQUIRED(amdgpu_cs_syncobj_import_sync_file2),
	REQUIRED(amdgpu_cs_syncobj_transfer),
	REQUIRED(drmIoctl),
	REQUIRED(drmCommandWriteRead),
	REQUIRED(drmGetVersion),
	REQUIRED(drmFreeVersion),
	REQUIRED(drmPrimeFDToHandle),
	OPTIONAL(amdgpu_device_initialize2, "2.4.121"),
	OPTIONAL(amdgpu_query_gpuvm_fault_info, "2.4.117"),
	OPTIONAL(amdgpu_va_get_start_addr, "2.4.119"),
	OPTIONAL(amdgpu_va_manager_alloc, "2.4.121"),
	OPTIONAL(amdgpu_va_manager_init, "2.4.121"),
	OPTIONAL(amdgpu_va_manager_deinit, "2.4.121"),
	OPTIONAL(amdgpu_va_range_alloc2, "2.4.121"),
	OPTIONAL(amdgpu_bo_va_op_raw2, "2.4.125"),
};

#define SYMBOLS (sizeof(symbols) / sizeof(symbols[0]))

_Static_assert(sizeof(void (*)(void)) == sizeof(void *), "dlsym returns function pointers");
/* The two libraries, and all functions of the table. */
_Static_assert(sizeof(struct vmkv_libdrm) == (2 + SYMBOLS) * sizeof(void *),
               "each function has its line");

static void *library_open(const char *soname, char *error, size_t error_bytes)
{
	void *library = dlopen(soname, RTLD_NOW | RTLD_LOCAL);

	if (!library)
		vmkv_text(error, error_bytes,
		          "libdrm with its amdgpu part, " OLDEST " or newer, is needed: %s",
		          dlerror());
	return library;
}

int vmkv_libdrm_load(struct vmkv_libdrm *ret, char *error, size_t error_bytes)
{
	struct vmkv_libdrm table = { 0 };

	table.amdgpu_library = library_open(AMDGPU_SONAME, error, error_bytes);
	if (table.amdgpu_library)
		table.drm_library = library_open(DRM_SONAME, error, error_bytes);
	if (!table.drm_library) {
		vmkv_libdrm_unload(&table);
		return -ENOENT;
	}
	for (size_t i = 0; i < SYMBOLS; i++) {
		const struct symbol *symbol = &symbols[i];
		bool amdgpu = !strncmp(symbol->name, "amdgpu_", strlen("amdgpu_"));
		void *library = amdgpu ? table.amdgpu_library : table.drm_library;
		void *pointer = dlsym(library, symbol->name);

		if (!pointer && !symbol->optional) {
			vmkv_text(error, error_bytes, "%s has no %s: libdrm %s or newer is needed",
			          amdgpu ? AMDGPU_SONAME : DRM_SONAME, symbol->name,
			          symbol->release);
			vmkv_libdrm_unload(&table);
			return -ENOSYS;
		}
		memcpy((char *)&table + symbol->offset, &pointer, sizeof(pointer));
	}
	*ret = table;
	return 0;
}

void vmkv_libdrm_unload(struct vmkv_libdrm *libdrm)
{
	if (libdrm->drm_library)
		dlclose(libdrm->drm_library);
	if (libdrm->amdgpu_library)
		dlclose(libdrm->amdgpu_library);
	memset(libdrm, 0, sizeof(*libdrm));
}

const char *vmkv_libdrm_release(const char *function)
{
	for (size_t i = 0; i < SYMBOLS; i++)
		if (!strcmp(symbols[i].name, function))
			return symbols[i].release;
	return NULL;
}

int vmkv_libdrm_result(int value)
{
	/* -1 is -EPERM too; then errno is EPERM as well. */
	if (value == -1 && errno > 0)
		return -errno;
	return value;
}

/* Names of the loaded objects, each ended by NUL. dlopen must not be called while they are told. */
struct names {
	char *text;
	size_t bytes;
	bool failed;
};

static int name_add(struct dl_phdr_info *info, size_t size, void *data)
{
	struct names *names = data;
	size_t bytes = info->dlpi_name ? strlen(info->dlpi_name) + 1 : 1;
	char *text;

	(void)size;
	if (bytes == 1)
		return 0;
	text = realloc(names->text, names->bytes + bytes);
	if (!text) {
		names->failed = true;
		return 1;
	}
	memcpy(text + names->bytes, info->dlpi_name, bytes);
	names->text = text;
	names->bytes += bytes;
	return 0;
}

/* Whether a loaded object has the function from another copy than this one. */
static bool object_is_foreign(const char *name, const void *known)
{
	void *library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
	void *function;

	if (!library)
		return false;
	function = dlsym(library, "amdgpu_device_initialize");
	dlclose(library);
	return function && function != known;
}

static bool library_is_only_one(const struct vmkv_libdrm *libdrm)
{
	void *known = dlsym(libdrm->amdgpu_library, "amdgpu_device_initialize");
	struct names names = { 0 };
	bool only = true;

	dl_iterate_phdr(name_add, &names);
	for (size_t at = 0; at < names.bytes && only; at += strlen(names.text + at) + 1)
		only = !object_is_foreign(names.text + at, known);
	free(names.text);
	return only && !names.failed;
}

int vmkv_libdrm_check_device(const struct vmkv_libdrm *libdrm, amdgpu_device_handle device)
{
	int fd = libdrm->amdgpu_device_get_fd(device);
	amdgpu_device_handle again;
	uint32_t major, minor;
	drmVersionPtr version;
	int ret;

	version = fd >= 0 ? libdrm->drmGetVersion(fd) : NULL;
	if (!version)
		return -EBADF;
	libdrm->drmFreeVersion(version);
	if (library_is_only_one(libdrm))
		return 0;
	ret = libdrm->amdgpu_device_initialize(fd, &major, &minor, &again);
	if (ret)
		return -EXDEV;
	libdrm->amdgpu_device_deinitialize(again);
	return again == device ? 0 : -EXDEV;
}
