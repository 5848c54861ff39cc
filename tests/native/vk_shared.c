/* SPDX-License-Identifier: MIT
 *
 * A Vulkan engine and vmkv in one process: one DRM file, one address space. What RADV's own submissions
 * find at vmkv's addresses is shown with copies, since nothing here runs shaders: a sparse buffer of RADV's
 * takes the addresses, its entries are cleared, and vmkv gets them as its window. So a copy
 * through that buffer is one through vmkv's mappings, which RADV knows nothing of and lists nowhere.
 *
 *     vk_shared HOW
 *
 *   same     one libdrm device for both
 *   engine   vmkv's maps are there with RADV's next submission
 *   cs       a submission of RADV's waits for vmkv's point
 *   back     what a sequence gave back is gone from RADV's submissions, too
 *   listed   buffers that RADV would have to list: its submission faults
 *   apart    vmkv on a file of its own: RADV's submission faults
 */
#include <amdgpu.h>
#include <amdgpu_drm.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include <vmkv.h>

#include "vk_fixture.h"

#define NODE "/dev/dri/renderD128"
#define WINDOW_BYTES (1ull << 30)
#define TOKENS 256
#define ROW_BYTES 16384
#define SPAN_BYTES (TOKENS * ROW_BYTES) /* 4 MiB */

typedef int initialize2(int fd, bool deduplicate, uint32_t *major, uint32_t *minor,
                        amdgpu_device_handle *ret);

struct shared {
	struct vk vk;
	struct vk_buffer window, data; /* data: two halves, of a span's length each */
	uint64_t window_address;
	amdgpu_device_handle radvs; /* the device that RADV has of libdrm */
	amdgpu_device_handle given; /* what vmkv gets: the same file, but its own view of addresses */
	vmkv_device *device;
	vmkv_cache *cache;
};

/* ---- libdrm's devices ----------------------------------------------------------------------------- */

static amdgpu_device_handle device_of_node(void)
{
	amdgpu_device_handle handle;
	uint32_t major, minor;
	int fd = open(NODE, O_RDWR | O_CLOEXEC);

	CHECK(fd >= 0);
	CHECK_EQ(amdgpu_device_initialize(fd, &major, &minor, &handle), 0);
	close(fd);
	return handle;
}

/* libdrm's manager of addresses gives none twice, so RADV's are taken; which is why a window within a
 * buffer of RADV's needs a device with another manager. */
static amdgpu_device_handle device_beside(int fd)
{
	initialize2 *initialize = (initialize2 *)dlsym(RTLD_DEFAULT, "amdgpu_device_initialize2");
	amdgpu_device_handle handle;
	uint32_t major, minor;

	if (!initialize) {
		fprintf(stderr, "skipped: needs libdrm_amdgpu 2.4.121 or newer\n");
		exit(77);
	}
	CHECK_EQ(initialize(fd, false, &major, &minor, &handle), 0);
	return handle;
}

/* ---- one device ----------------------------------------------------------------------------------- */

static vmkv_device *vmkv_open_as(const char *name, amdgpu_device_handle adopted)
{
	char error[256] = "";
	struct vmkv_device_options options = {
		.struct_size = sizeof(options), .name = name, .error = error,
		.error_bytes = sizeof(error), .adopt = adopted ? VMKV_ADOPT_AMDGPU : VMKV_ADOPT_NONE,
		.amdgpu_device = adopted,
	};
	vmkv_device *device = NULL;

	if (vmkv_device_open(&options, &device))
		CHECK_FAIL("%s: %s", name, error);
	return device;
}

static struct vmkv_amdgpu_info info_of(vmkv_device *device)
{
	struct vmkv_amdgpu_info info = { .struct_size = sizeof(info) };

	CHECK_EQ(vmkv_amdgpu_info(device, &info), 0);
	return info;
}

/* 0: it is free. */
static int address_take(amdgpu_device_handle handle, uint64_t address)
{
	uint64_t flags = address >> 63 ? AMDGPU_VA_RANGE_HIGH : 0, got;
	amdgpu_va_handle range;
	int rc = amdgpu_va_range_alloc(handle, amdgpu_gpu_va_range_general, 4096, 0, address, &got,
	                               &range, flags);

	if (!rc)
		CHECK_EQ(amdgpu_va_range_free(range), 0);
	return rc;
}

/* Who opens the card's node gets the same libdrm device: vmkv does, adopting or not, and RADV has, whose
 * buffers' addresses are taken there. */
static void one_device_for_both(struct shared *s)
{
	struct vk_buffer buffer = vk_host_buffer(&s->vk, 65536);
	uint64_t address = vk_address(&s->vk, &buffer);
	vmkv_device *opened = vmkv_open_as("amdgpu:" NODE, NULL);
	vmkv_device *adopted = vmkv_open_as("amdgpu?commit=engine", s->radvs);

	CHECK(info_of(opened).amdgpu_device == s->radvs);
	CHECK(info_of(adopted).amdgpu_device == s->radvs);
	CHECK_EQ(info_of(opened).drm_fd, amdgpu_device_get_fd(s->radvs));
	CHECK(address_take(s->radvs, address) != 0);
	CHECK(address_take(s->radvs, s->window_address) != 0);
	CHECK_EQ(address_take(s->given, address), 0); /* or this would show nothing */
	CHECK_EQ(address_take(s->given, s->window_address), 0);
	CHECK_EQ(vmkv_device_close(opened), 0);
	CHECK_EQ(vmkv_device_close(adopted), 0);
	vk_buffer_destroy(&s->vk, &buffer);
	CHECK_EQ(address_take(s->radvs, address), 0);
}

/* ---- spans within RADV's buffer -------------------------------------------------------------------- */

static void cache_create(struct shared *s, const char *options)
{
	struct vmkv_tensor tensor = { .row_bytes = ROW_BYTES };
	struct vmkv_group group = { .struct_size = sizeof(group), .layers = 2, .tensors = &tensor,
		                    .tensor_count = 1 };
	struct vmkv_geometry geometry = { .struct_size = sizeof(geometry), .groups = &group,
		                          .group_count = 1 };
	char name[128], error[256] = "";
	struct vmkv_cache_options create = {
		.struct_size = sizeof(create), .geometry = &geometry, .budget_bytes = 64 << 20,
		.slab_bytes = 16 << 20, .max_slots = 4, .max_tokens = 1024, .error = error,
		.error_bytes = sizeof(error),
		/* Or a fill of vmkv's would make the page tables follow. */
		.zero = VMKV_ZERO_OFF, .warm_max_bytes = VMKV_WARM_OFF,
	};

	snprintf(name, sizeof(name), "amdgpu?%s&window=0x%llx-0x%llx", options,
	         (unsigned long long)s->window_address,
	         (unsigned long long)(s->window_address + WINDOW_BYTES));
	s->device = vmkv_open_as(name, s->given);
	if (vmkv_cache_create(s->device, &create, &s->cache))
		CHECK_FAIL("%s", error);
}

static vmkv_seq sequence_grow(struct shared *s, uint64_t *ready)
{
	uint32_t tokens = TOKENS;
	vmkv_seq sequence;
	struct vmkv_step_request request = { .struct_size = sizeof(request), .seqs = &sequence,
		                             .tokens = &tokens, .n = 1, .busy_until = 1 };
	struct vmkv_step_result result = { .struct_size = sizeof(result) };

	CHECK_EQ(vmkv_seq_open(s->cache, NULL, &sequence), 0);
	CHECK_EQ(vmkv_step(s->cache, &request, &result), 0);
	*ready = result.ready;
	return sequence;
}

static uint64_t span_address(struct shared *s, vmkv_seq sequence, uint32_t layer)
{
	struct vmkv_span span = { .struct_size = sizeof(span) };

	CHECK_EQ(vmkv_span(s->cache, sequence, 0, layer, 0, &span), 0);
	CHECK(span.address >= s->window_address);
	CHECK(span.address + SPAN_BYTES <= s->window_address + WINDOW_BYTES);
	return span.address;
}

/* RADV's commands: data's first half to the span, and from there to its second half. */
static void there_and_back(struct shared *s, uint64_t address, uint32_t seed)
{
	VkDeviceSize offset = address - s->window_address;
	uint32_t *words = (uint32_t *)s->data.view;

	for (uint32_t i = 0; i < SPAN_BYTES / 4; i++) {
		words[i] = seed * 0x9e3779b9u + i;
		words[SPAN_BYTES / 4 + i] = 0;
	}
	vk_copy(&s->vk, &s->data, 0, &s->window, offset, SPAN_BYTES);
	vk_copy(&s->vk, &s->window, offset, &s->data, SPAN_BYTES, SPAN_BYTES);
}

static void back_check(struct shared *s)
{
	CHECK(!memcmp(s->data.view, s->data.view + SPAN_BYTES, SPAN_BYTES));
}

/* What vmkv's own copy engine brings from one span to another is what RADV wrote, and is read by RADV. */
static void both_see_it(struct shared *s, vmkv_seq sequence, uint32_t seed)
{
	uint64_t first = span_address(s, sequence, 0), second = span_address(s, sequence, 1);

	there_and_back(s, first, seed);
	vk_run(&s->vk);
	CHECK_EQ(vmkv_copy(s->device, second, first, SPAN_BYTES, NULL), 0);
	memset(s->data.view + SPAN_BYTES, 0, SPAN_BYTES);
	vk_copy(&s->vk, &s->window, second - s->window_address, &s->data, SPAN_BYTES, SPAN_BYTES);
	vk_run(&s->vk);
	back_check(s);
}

static void cache_finish(struct shared *s)
{
	vmkv_cache_destroy(s->cache);
	CHECK_EQ(vmkv_device_close(s->device), 0);
}

/* commit=engine: vmkv submits nothing, and RADV's first submission already writes to the span. */
static void maps_come_with_radvs_submission(struct shared *s)
{
	uint64_t ready;
	vmkv_seq sequence;

	cache_create(s, "commit=engine");
	sequence = sequence_grow(s, &ready);
	CHECK_EQ(ready, 0);
	there_and_back(s, span_address(s, sequence, 1), 1);
	vk_run(&s->vk);
	back_check(s);
	both_see_it(s, sequence, 2);
	cache_finish(s);
}

/* ---- points --------------------------------------------------------------------------------------- */

static VkSemaphore semaphore_of(struct shared *s, uint64_t point)
{
	VkSemaphoreCreateInfo create = { .sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO };
	VkImportSemaphoreFdInfoKHR import = {
		.sType = VK_STRUCTURE_TYPE_IMPORT_SEMAPHORE_FD_INFO_KHR,
		.flags = VK_SEMAPHORE_IMPORT_TEMPORARY_BIT,
		.handleType = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_SYNC_FD_BIT,
	};
	PFN_vkImportSemaphoreFdKHR import_fd = (PFN_vkImportSemaphoreFdKHR)vkGetDeviceProcAddr(
	    s->vk.device, "vkImportSemaphoreFdKHR");

	CHECK(import_fd != NULL);
	VK_OK(vkCreateSemaphore(s->vk.device, &create, NULL, &import.semaphore));
	CHECK_EQ(vmkv_point_export(s->device, point, &import.fd), 0);
	VK_OK(import_fd(s->vk.device, &import)); /* the descriptor is Vulkan's now */
	return import.semaphore;
}

/* Of a step, and of vmkv's own copies. That RADV's submissions wait for them is seen in the trace: this
 * card's jobs run in the order in which they came. */
static void radv_waits_for_points(struct shared *s)
{
	uint64_t ready, first, second, point;
	VkSemaphore semaphore;
	vmkv_seq sequence;

	cache_create(s, "commit=cs");
	sequence = sequence_grow(s, &ready);
	CHECK(ready != 0);
	first = span_address(s, sequence, 0);
	second = span_address(s, sequence, 1);
	semaphore = semaphore_of(s, ready);
	there_and_back(s, first, 3);
	VK_OK(vk_try_submit(&s->vk, semaphore));
	VK_OK(vk_try_wait(&s->vk));
	back_check(s);
	vkDestroySemaphore(s->vk.device, semaphore, NULL);

	memset(s->data.view + SPAN_BYTES, 0, SPAN_BYTES);
	CHECK_EQ(vmkv_copy(s->device, second, first, SPAN_BYTES, &point), 0);
	semaphore = semaphore_of(s, point);
	vk_copy(&s->vk, &s->window, second - s->window_address, &s->data, SPAN_BYTES, SPAN_BYTES);
	VK_OK(vk_try_submit(&s->vk, semaphore));
	VK_OK(vk_try_wait(&s->vk));
	back_check(s);
	vkDestroySemaphore(s->vk.device, semaphore, NULL);
	cache_finish(s);
}

/* ---- what RADV doesn't find ----------------------------------------------------------------------- */

/* A wait ends well, as the kernel has it; the next submission is told. */
static void submission_faults(struct shared *s, uint64_t address)
{
	there_and_back(s, address, 4);
	vk_run(&s->vk);
	for (uint32_t i = SPAN_BYTES; i < 2 * SPAN_BYTES; i++)
		CHECK_EQ(s->data.view[i], 0);
	CHECK_EQ(vk_try_submit(&s->vk, VK_NULL_HANDLE), VK_ERROR_DEVICE_LOST);
}

static void what_was_given_back_is_gone(struct shared *s)
{
	struct vmkv_stats stats = { .struct_size = sizeof(stats) };
	uint64_t ready, address;
	vmkv_seq sequence;

	cache_create(s, "commit=engine");
	sequence = sequence_grow(s, &ready);
	address = span_address(s, sequence, 0);
	both_see_it(s, sequence, 5);
	CHECK_EQ(vmkv_seq_close(s->cache, sequence, 1), 0);
	do {
		CHECK_EQ(vmkv_retire(s->cache, 1), 0);
		CHECK_EQ(vmkv_cache_stats(s->cache, &stats), 0);
	} while (stats.unmapping_bytes);
	submission_faults(s, address);
	cache_finish(s);
}

static void radv_lists_no_slabs(struct shared *s)
{
	uint64_t ready;
	vmkv_seq sequence;

	cache_create(s, "commit=engine&slabs=listed");
	sequence = sequence_grow(s, &ready);
	submission_faults(s, span_address(s, sequence, 0));
	cache_finish(s);
}

/* Even where vmkv's maps are long in force. */
static void another_file_is_another_space(struct shared *s)
{
	uint64_t ready;
	vmkv_seq sequence;

	cache_create(s, "commit=cs");
	sequence = sequence_grow(s, &ready);
	CHECK_EQ(vmkv_wait(s->device, ready, UINT64_MAX), 0);
	submission_faults(s, span_address(s, sequence, 0));
	cache_finish(s);
}

/* ---- beginning and end ---------------------------------------------------------------------------- */

static void shared_begin(struct shared *s, bool apart)
{
	static const char *const extensions[] = { "VK_KHR_external_semaphore_fd" };
	int fd;

	memset(s, 0, sizeof(*s));
	vk_begin(&s->vk, "gfx", extensions, 1);
	s->data = vk_host_buffer(&s->vk, 2 * SPAN_BYTES);
	s->window = vk_sparse_buffer(&s->vk, WINDOW_BYTES);
	s->window_address = vk_address(&s->vk, &s->window);
	s->radvs = device_of_node();
	fd = apart ? open(NODE, O_RDWR | O_CLOEXEC) : dup(amdgpu_device_get_fd(s->radvs));
	s->given = device_beside(fd);
	close(fd);
	/* What makes its unbound pages read as zeros would be in the way of vmkv's mappings. */
	CHECK_EQ(amdgpu_bo_va_op_raw(s->radvs, NULL, 0, WINDOW_BYTES, s->window_address, 0,
	                             AMDGPU_VA_OP_CLEAR),
	         0);
}

static void shared_end(struct shared *s)
{
	CHECK_EQ(amdgpu_device_deinitialize(s->given), 0);
	vk_buffer_destroy(&s->vk, &s->window);
	vk_buffer_destroy(&s->vk, &s->data);
	vk_end(&s->vk);
	CHECK_EQ(amdgpu_device_deinitialize(s->radvs), 0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *how;
		void (*run)(struct shared *);
	} all[] = {
		{ "same", one_device_for_both },
		{ "engine", maps_come_with_radvs_submission },
		{ "cs", radv_waits_for_points },
		{ "back", what_was_given_back_is_gone },
		{ "listed", radv_lists_no_slabs },
		{ "apart", another_file_is_another_space },
	};
	const char *how = argc > 1 ? argv[1] : "";
	struct shared shared;

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (strcmp(all[i].how, how))
			continue;
		check_running = how;
		shared_begin(&shared, !strcmp(how, "apart"));
		all[i].run(&shared);
		shared_end(&shared);
		return 0;
	}
	CHECK_FAIL("\"%s\": there are same, engine, cs, back, listed and apart", how);
	return 1;
}
