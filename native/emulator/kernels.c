/* SPDX-License-Identifier: MIT
 *
 * What differs between kernels, as data. Read from the sources of Linux 6.1.192, 6.12.117 and
 * 7.2.13.
 */
#include <errno.h>
#include <string.h>

#include "emu.h"

/* Those that all know. ENCRYPTED is refused by cards without TMZ, which is for GEM_CREATE to
 * check. */
#define CREATE_FLAGS_6_1                                                                           \
	(AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED | AMDGPU_GEM_CREATE_NO_CPU_ACCESS |                 \
	 AMDGPU_GEM_CREATE_CPU_GTT_USWC | AMDGPU_GEM_CREATE_VRAM_CLEARED |                         \
	 AMDGPU_GEM_CREATE_VM_ALWAYS_VALID | AMDGPU_GEM_CREATE_EXPLICIT_SYNC |                     \
	 AMDGPU_GEM_CREATE_ENCRYPTED | AMDGPU_GEM_CREATE_DISCARDABLE)
#define CREATE_FLAGS_6_12 (CREATE_FLAGS_6_1 | AMDGPU_GEM_CREATE_GFX12_DCC)
#define CREATE_FLAGS_7_2                                                                           \
	(CREATE_FLAGS_6_12 | AMDGPU_GEM_CREATE_VRAM_WIPE_ON_RELEASE | AMDGPU_GEM_CREATE_COHERENT | \
	 AMDGPU_GEM_CREATE_UNCACHED | AMDGPU_GEM_CREATE_EXT_COHERENT)

static const struct emu_kernel kernels[] = {
	{
		.name = "6.1",
		.date = "20150101",
		.drm_minor = 49,
		.va_bottom = 2 << 20,
		.va_top_bytes = 2 << 20,
		.gem_va_bytes = 40,
		.dev_info_bytes = 368,
		.hw_ip_bytes = 32,
		.gem_op_bytes = 16,
		.hw_ip_types = 9,
		.syncobj_handle_bytes = 16,
		.syncobj_wait_bytes = 32,
		.syncobj_timeline_wait_bytes = 40,
		.create_flags = CREATE_FLAGS_6_1,
		.fdinfo = EMU_FDINFO_6_1,
		.vmid_error = -EINVAL,
	},
	{
		.name = "6.12",
		.date = "20150101",
		.drm_minor = 61,
		.va_bottom = 64 << 10,
		.va_top_bytes = 0x410000, /* CSA, sequence numbers, trap handler */
		.gem_va_bytes = 40,
		.dev_info_bytes = 440,
		.hw_ip_bytes = 32,
		.gem_op_bytes = 16,
		.hw_ip_types = 10,
		.syncobj_handle_bytes = 16,
		.syncobj_wait_bytes = 40,
		.syncobj_timeline_wait_bytes = 48,
		.create_flags = CREATE_FLAGS_6_12,
		.fdinfo = EMU_FDINFO_6_12,
		.always_clears = true,
		.has_fault_query = true,
		.has_max_ibs = true,
		.has_pcie_info = true,
		.has_peak_sensors = true,
		.has_eventfd = true,
		.counts_engines = true,
		.has_close_framebuffer = true,
	},
	{
		.name = "7.2",
		.date = "0",
		.drm_minor = 64,
		.va_bottom = 64 << 10,
		.va_top_bytes = 0x410000,
		.gem_va_bytes = 64,
		.dev_info_bytes = 440,
		.hw_ip_bytes = 40,
		.gem_op_bytes = 24,
		.hw_ip_types = 10,
		.syncobj_handle_bytes = 24,
		.syncobj_wait_bytes = 40,
		.syncobj_timeline_wait_bytes = 48,
		.create_flags = CREATE_FLAGS_7_2,
		.fdinfo = EMU_FDINFO_7_2,
		.vmid_error = -ENOENT,
		.has_user_queues = true,
		.always_clears = true,
		.has_timeline = true,
		.has_fault_query = true,
		.has_max_ibs = true,
		.has_pcie_info = true,
		.has_peak_sensors = true,
		.has_list_handles = true,
		.has_eventfd = true,
		.has_queue_query = true,
		.counts_engines = true,
		.tells_gangs = true,
		.has_close_framebuffer = true,
		.has_client_name = true,
		.has_mapping_info = true,
		.checks_va_overflow = true,
		.blocks_ce = true,
		.max_ib_dwords = 0xfffff,
	},
};

#define KERNELS (sizeof(kernels) / sizeof(kernels[0]))

const struct emu_kernel *emu_kernel_find(const char *name)
{
	for (size_t i = 0; i < KERNELS; i++) {
		if (!strcmp(kernels[i].name, name))
			return &kernels[i];
	}
	return NULL;
}

void emu_kernel_names(char *text, size_t n)
{
	size_t used = 0;

	for (size_t i = 0; i < KERNELS && used < n; i++)
		used += (size_t)snprintf(text + used, n - used, "%s%s", i ? ", " : "",
		                         kernels[i].name);
}
