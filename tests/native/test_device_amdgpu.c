/* SPDX-License-Identifier: MIT
 *
 * The amdgpu device, through the system's libdrm_amdgpu, on an emulated card: what it asks of the
 * kernel, counted, and what its memory then holds, seen through the card's own copy engine.
 */
#include <dlfcn.h>
#include <stdio.h>

#include "cache_fixture.h"
#include "emulator/vmkv_emulator.h"

#define CARD "emulated:gfx1201?vram=1GiB"
#define OPERATION_MAP 1
#define OPERATION_UNMAP 2
#define OPERATION_CLEAR 3

struct card {
	vmkv_emulator *emulator; /* borrowed */
	vmkv_device *device;
	int fd;
};

static struct card card_open(const char *name)
{
	struct card card = { .device = open_named(name) };

	card.fd = info_of(card.device).drm_fd;
	card.emulator = vmkv_emulator_of(card.fd);
	CHECK(card.emulator);
	return card;
}

static uint64_t count(struct card *card, const char *ioctl, uint32_t operation)
{
	uint64_t ret;

	CHECK_EQ(vmkv_emulator_count(card->emulator, ioctl, operation, &ret), 0);
	return ret;
}

static struct vmkv_emulator_stats emulator_stats(struct card *card)
{
	struct vmkv_emulator_stats stats = { .struct_size = sizeof(stats) };

	CHECK_EQ(vmkv_emulator_stats(card->emulator, &stats), 0);
	return stats;
}

/* A cache of the geometry of rig_prepare, and one sequence of so many tokens. */
static vmkv_seq sequence_of(struct rig *r, uint32_t tokens, uint64_t *ready)
{
	struct vmkv_step_result result = { .struct_size = sizeof(result) };
	vmkv_seq seq;
	struct vmkv_step_request request = {
		.struct_size = sizeof(request), .seqs = &seq, .tokens = &tokens, .n = 1,
	};

	CHECK_EQ(vmkv_seq_open(r->cache, NULL, &seq), 0);
	CHECK_EQ(vmkv_step(r->cache, &request, &result), 0);
	*ready = result.ready;
	return seq;
}

static uint64_t span_address(struct rig *r, vmkv_seq seq, uint32_t layer)
{
	struct vmkv_span span = { .struct_size = sizeof(span) };

	CHECK_EQ(vmkv_span(r->cache, seq, 0, layer, 0, &span), 0);
	return span.address;
}

static void growth_is_delayed_maps_and_one_submission(void)
{
	struct card card = card_open(CARD);
	struct vmkv_emulator_stats before, after;
	struct rig r;
	uint64_t maps, submissions, ready;
	vmkv_seq seq;

	rig_prepare(&r, card.device);
	rig_create(&r);
	before = emulator_stats(&card);
	maps = count(&card, "GEM_VA", UINT32_MAX);
	submissions = count(&card, "CS", UINT32_MAX);
	seq = sequence_of(&r, 256, &ready); /* 4 MiB a span: two mappings of 2 MiB */
	after = emulator_stats(&card);
	CHECK_EQ(count(&card, "CS", UINT32_MAX) - submissions, 1);
	CHECK_EQ(count(&card, "GEM_VA", UINT32_MAX) - maps, 2 * 2 + 1); /* and the slab's alias */
	CHECK_EQ(after.delayed_maps - before.delayed_maps, 5);
	CHECK(ready > 0);
	maps = after.ioctls;
	CHECK_EQ(vmkv_step(r.cache,
	                   &(struct vmkv_step_request){ .struct_size = sizeof(struct vmkv_step_request),
	                                                .seqs = &seq,
	                                                .tokens = (uint32_t[]){ 256 },
	                                                .n = 1 },
	                   NULL),
	         0);
	CHECK_EQ(emulator_stats(&card).ioctls, maps); /* nothing to map: not one ioctl */
	vmkv_cache_destroy(r.cache);
	CHECK_EQ(vmkv_device_close(card.device), 0);
}

static void closing_is_one_clear_a_span(void)
{
	struct card card = card_open(CARD);
	uint64_t clears, unmaps, ready;
	struct rig r;
	vmkv_seq seq;

	rig_prepare(&r, card.device);
	r.options.warm_max_bytes = VMKV_WARM_OFF;
	rig_create(&r);
	seq = sequence_of(&r, 256, &ready);
	CHECK_EQ(vmkv_wait(card.device, ready, UINT64_MAX), 0);
	clears = count(&card, "GEM_VA", OPERATION_CLEAR);
	unmaps = count(&card, "GEM_VA", OPERATION_UNMAP);
	CHECK_EQ(vmkv_seq_close(r.cache, seq, 0), 0);
	CHECK_EQ(count(&card, "GEM_VA", OPERATION_CLEAR) - clears, 2);
	CHECK_EQ(count(&card, "GEM_VA", OPERATION_UNMAP) - unmaps, 0);
	vmkv_cache_destroy(r.cache);
	CHECK_EQ(vmkv_device_close(card.device), 0);
}

/* qwen3-8b has K and V of 2 KiB in 36 layers: 72 spans. */
static void a_prefill_of_3000_tokens_is_four_maps_a_span_at_most(void)
{
	struct card card = card_open("emulated:gfx1201?vram=4GiB");
	struct vmkv_emulator_stats before, after;
	struct vmkv_stats stats = { .struct_size = sizeof(stats) };
	uint64_t maps, submissions, clears, ready;
	struct rig r;
	vmkv_seq seq;

	rig_prepare(&r, card.device);
	model_begin(&r.m);
	model_plain(&r.m, VMKV_POLICY_FULL, 72, 2 * KIB);
	r.options.budget_bytes = GIB;
	r.options.slab_bytes = 64 * MIB;
	r.options.max_tokens = 16384;
	r.options.warm_max_bytes = VMKV_WARM_OFF;
	rig_create(&r);
	before = emulator_stats(&card);
	maps = count(&card, "GEM_VA", OPERATION_MAP);
	submissions = count(&card, "CS", UINT32_MAX);
	seq = sequence_of(&r, 3000, &ready);
	after = emulator_stats(&card);
	CHECK_EQ(vmkv_cache_stats(r.cache, &stats), 0);
	CHECK(stats.slabs > 0);
	CHECK(count(&card, "GEM_VA", OPERATION_MAP) - maps <= 4 * 72 + stats.slabs);
	CHECK_EQ(count(&card, "GEM_VA", OPERATION_MAP) - maps,
	         after.delayed_maps - before.delayed_maps);
	CHECK_EQ(count(&card, "CS", UINT32_MAX) - submissions, 1);
	CHECK_EQ(vmkv_wait(card.device, ready, UINT64_MAX), 0);
	clears = count(&card, "GEM_VA", OPERATION_CLEAR);
	CHECK_EQ(vmkv_seq_close(r.cache, seq, 0), 0);
	CHECK_EQ(count(&card, "GEM_VA", OPERATION_CLEAR) - clears, 72);
	vmkv_cache_destroy(r.cache);
	CHECK_EQ(vmkv_device_close(card.device), 0);
}

/* The card's copy engine copies from one span to another, through GPU addresses alone. */
static void rows_go_through_gpu_addresses(void)
{
	struct card card = card_open(CARD "&identity=1");
	uint64_t ready, one, two;
	struct rig r;

	rig_prepare(&r, card.device);
	rig_create(&r);
	one = span_address(&r, sequence_of(&r, 100, &ready), 0);
	two = span_address(&r, sequence_of(&r, 100, &ready), 1);
	CHECK_EQ(vmkv_wait(card.device, ready, UINT64_MAX), 0);
	CHECK_EQ(vmkv_fill(card.device, one, 100 * ROW, 0xabcd1234, NULL), 0);
	CHECK_EQ(vmkv_copy(card.device, two, one, 100 * ROW, NULL), 0);
	CHECK_EQ(*words(two + 100 * ROW - 4), 0xabcd1234);
	CHECK_EQ(*words(two), 0xabcd1234);
	*words(two + 8) = 7;
	CHECK_EQ(vmkv_copy(card.device, one, two, 4096, NULL), 0);
	CHECK_EQ(*words(one + 8), 7);
	vmkv_cache_destroy(r.cache);
	CHECK_EQ(vmkv_device_close(card.device), 0);
}

static void what_has_no_memory_faults(void)
{
	struct card card = card_open(CARD);
	struct vmkv_device_health health = { .struct_size = sizeof(health) };
	uint64_t ready, address;
	struct rig r;
	char text[256];

	rig_prepare(&r, card.device);
	rig_create(&r);
	address = span_address(&r, sequence_of(&r, 4, &ready), 0);
	CHECK_EQ(vmkv_fill(card.device, address, PAGE, 1, NULL), 0);
	CHECK_EQ(vmkv_fill(card.device, address + PAGE, 4096, 1, NULL), -EFAULT);
	vmkv_device_error(card.device, text, sizeof(text));
	CHECK_CONTAINS(text, "no memory behind it");
	CHECK_EQ(emulator_stats(&card).faults, 1);
	CHECK_EQ(vmkv_device_health(card.device, &health), 0);
	CHECK_EQ(health.fault_address & ~4095ULL, address + PAGE);
	/* The device goes on. */
	CHECK_EQ(vmkv_fill(card.device, address, PAGE, 2, NULL), 0);
	vmkv_cache_destroy(r.cache);
	CHECK_EQ(vmkv_device_close(card.device), 0);
}

static void an_engine_commits_with_its_own_submission(void)
{
	struct card card = card_open(CARD "&commit=engine");
	uint64_t submissions, ready;
	struct rig r;

	rig_prepare(&r, card.device);
	rig_create(&r);
	submissions = count(&card, "CS", UINT32_MAX);
	sequence_of(&r, 256, &ready);
	CHECK_EQ(ready, 0);
	CHECK_EQ(count(&card, "CS", UINT32_MAX), submissions);
	vmkv_cache_destroy(r.cache);
	CHECK_EQ(vmkv_device_close(card.device), 0);
}

/* Sequences of 1,024 tokens until the card is full; returns how many there were. */
static uint32_t fill_card(struct rig *r, struct card *card)
{
	uint32_t tokens = 1024, n = 0;
	vmkv_seq seq;
	int rc = 0;

	rig_prepare(r, card->device);
	r->options.budget_bytes = GIB;
	r->options.max_slots = 16;
	rig_create(r);
	for (; n < 16; n++) {
		CHECK_EQ(vmkv_seq_open(r->cache, NULL, &seq), 0);
		rc = vmkv_step(r->cache,
		               &(struct vmkv_step_request){ .struct_size = sizeof(struct vmkv_step_request),
		                                            .seqs = &seq,
		                                            .tokens = &tokens,
		                                            .n = 1 },
		               NULL);
		if (rc)
			break;
	}
	CHECK_EQ(rc, -ENOSPC);
	return n;
}

/* The kernel frees a buffer's memory after the jobs that clear what led to it, which take long here. */
static void memory_of_a_destroyed_cache_is_waited_for(void)
{
	struct card card = card_open("emulated:gfx1201?vram=256MiB&pte_us=2000");
	struct rig r;
	uint32_t n = fill_card(&r, &card);

	CHECK(n > 0);
	vmkv_cache_destroy(r.cache);
	CHECK_EQ(fill_card(&r, &card), n);
	vmkv_cache_destroy(r.cache);
	CHECK_EQ(vmkv_device_close(card.device), 0);
}

static void a_full_card_is_a_shortage(void)
{
	struct card card = card_open("emulated:gfx1201?vram=256MiB");
	struct vmkv_step_result result = { .struct_size = sizeof(result) };
	uint32_t tokens = 1024;
	vmkv_seq seq[16];
	int rc = 0;
	struct rig r;

	rig_prepare(&r, card.device);
	r.options.budget_bytes = GIB;
	r.options.max_slots = 16;
	rig_create(&r);
	for (uint32_t i = 0; i < 16 && rc == 0; i++) {
		CHECK_EQ(vmkv_seq_open(r.cache, NULL, &seq[i]), 0);
		rc = vmkv_step(r.cache,
		               &(struct vmkv_step_request){ .struct_size = sizeof(struct vmkv_step_request),
		                                            .seqs = &seq[i],
		                                            .tokens = &tokens,
		                                            .n = 1 },
		               &result);
	}
	vmkv_cache_error(r.cache, r.text, sizeof(r.text));
	if (rc != -ENOSPC)
		CHECK_FAIL("%d: %s", rc, r.text);
	CHECK_EQ(result.shortage.kind, VMKV_SHORTAGE_BYTES);
	CHECK_EQ(emulator_stats(&card).evictions, 0);
	vmkv_cache_destroy(r.cache);
	CHECK_EQ(vmkv_device_close(card.device), 0);
}

static void nothing_is_left_behind(void)
{
	struct card card = card_open(CARD);
	struct vmkv_emulator_stats before = emulator_stats(&card), after;

	for (int i = 0; i < 20; i++) {
		struct rig r;
		uint64_t ready;

		rig_prepare(&r, card.device);
		rig_create(&r);
		sequence_of(&r, 300, &ready);
		sequence_of(&r, 700, &ready);
		vmkv_cache_destroy(r.cache);
	}
	CHECK_EQ(vmkv_fill(card.device, 4096, 0, 0, NULL), 0);
	after = emulator_stats(&card);
	CHECK_EQ(after.handles, before.handles);
	CHECK_EQ(after.mappings, before.mappings);
	CHECK_EQ(after.syncobjs, before.syncobjs);
	CHECK_EQ(after.contexts, before.contexts);
	CHECK_EQ(vmkv_device_close(card.device), 0);
}

/* An engine's own card: an emulated one, opened without the device. */
static vmkv_emulator *engine_open(int *fd)
{
	vmkv_emulator *emulator;
	void *libdrm = dlopen("libdrm_amdgpu.so.1", RTLD_NOW | RTLD_LOCAL);

	CHECK(libdrm); /* stays loaded, as an engine's does */
	CHECK_EQ(vmkv_emulator_create("gfx1201?vram=256MiB", NULL, 0, &emulator), 0);
	CHECK_EQ(vmkv_emulator_attach(), 0);
	CHECK_EQ(vmkv_emulator_open(emulator, fd), 0);
	return emulator;
}

static int adopt(struct vmkv_device_options *options, vmkv_device **device, char *text, size_t n)
{
	options->struct_size = sizeof(*options);
	options->name = options->name ? options->name : "amdgpu";
	options->error = text;
	options->error_bytes = n;
	text[0] = 0;
	*device = NULL;
	return vmkv_device_open(options, device);
}

static void file_adopt(uint64_t window_begin)
{
	const uint64_t middle = window_begin + (8ull << 40), end = window_begin + (16ull << 40);
	struct vmkv_amdgpu_info info;
	vmkv_device *device, *second;
	vmkv_emulator *emulator;
	char text[256];
	struct rig r;
	uint64_t ready, address;
	int fd;

	emulator = engine_open(&fd);
	CHECK_EQ(adopt(&(struct vmkv_device_options){ .adopt = VMKV_ADOPT_FD,
	                                              .drm_fd = fd,
	                                              .window_begin = window_begin,
	                                              .window_end = end },
	               &device, text, sizeof(text)),
	         0);
	info = info_of(device);
	CHECK(vmkv_emulator_of(info.drm_fd) == emulator);
	rig_prepare(&r, device);
	rig_create(&r);
	address = span_address(&r, sequence_of(&r, 10, &ready), 1);
	CHECK(address >= window_begin && address < end);
	/* The engine's file and the device's are one address space: what it walks is mapped. */
	CHECK_EQ(vmkv_wait(device, ready, UINT64_MAX), 0);
	struct vmkv_emulator_entry entry = { .struct_size = sizeof(entry) };
	CHECK_EQ(vmkv_emulator_walk(fd, address, &entry), 0);
	CHECK(entry.valid && entry.writable);
	/* By the handle, too: the same libdrm, the same address space, and no window twice. */
	CHECK_EQ(adopt(&(struct vmkv_device_options){ .adopt = VMKV_ADOPT_AMDGPU,
	                                              .amdgpu_device = info.amdgpu_device,
	                                              .window_begin = middle,
	                                              .window_end = end },
	               &second, text, sizeof(text)),
	         -EINVAL);
	CHECK_CONTAINS(text, "isn't free");
	CHECK_EQ(adopt(&(struct vmkv_device_options){ .adopt = VMKV_ADOPT_AMDGPU,
	                                              .amdgpu_device = info.amdgpu_device },
	               &second, text, sizeof(text)),
	         0);
	CHECK_EQ(vmkv_fill(second, address, 10 * ROW, 5, NULL), 0);
	CHECK_EQ(vmkv_device_close(second), 0);
	vmkv_cache_destroy(r.cache);
	CHECK_EQ(vmkv_device_close(device), 0);
	CHECK_EQ(vmkv_emulator_close(fd), 0);
	vmkv_emulator_destroy(emulator);
}

/* With a window in either half of the addresses: high ones are libdrm's for Vulkan drivers. */
static void an_engines_file_is_adopted(void)
{
	file_adopt(0x200000000000);
	file_adopt(0xffff900000000000);
}

static void what_can_not_be_adopted_is_told(void)
{
	vmkv_device *device;
	char text[256];

	CHECK_EQ(adopt(&(struct vmkv_device_options){ .adopt = VMKV_ADOPT_FD, .drm_fd = -1 }, &device,
	               text, sizeof(text)),
	         -EINVAL);
	CHECK_CONTAINS(text, "adopt takes");
	CHECK_EQ(adopt(&(struct vmkv_device_options){ .adopt = VMKV_ADOPT_FD, .drm_fd = 0,
	                                              .name = "amdgpu:/dev/dri/card0" },
	               &device, text, sizeof(text)),
	         -EINVAL);
	CHECK_EQ(adopt(&(struct vmkv_device_options){ .adopt = VMKV_ADOPT_AMDGPU }, &device, text,
	               sizeof(text)),
	         -EINVAL);
	CHECK_EQ(adopt(&(struct vmkv_device_options){ .adopt = VMKV_ADOPT_FD, .name = "host" }, &device,
	               text, sizeof(text)),
	         -EINVAL);
	CHECK_CONTAINS(text, "are for device \"amdgpu\"");
}

int main(void)
{
	target_need_libdrm();
	growth_is_delayed_maps_and_one_submission();
	closing_is_one_clear_a_span();
	a_prefill_of_3000_tokens_is_four_maps_a_span_at_most();
	rows_go_through_gpu_addresses();
	what_has_no_memory_faults();
	an_engine_commits_with_its_own_submission();
	memory_of_a_destroyed_cache_is_waited_for();
	a_full_card_is_a_shortage();
	nothing_is_left_behind();
	an_engines_file_is_adopted();
	what_can_not_be_adopted_is_told();
	return 0;
}
