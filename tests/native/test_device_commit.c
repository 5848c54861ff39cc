/* SPDX-License-Identifier: MIT
 *
 * commit=bo: page tables are written buffer by buffer, with no submission, for queues that the kernel
 * doesn't see. From DRM 3.64 on a point tells when; before, nothing does.
 */
#include "cache_fixture.h"
#include "emulator/vmkv_emulator.h"

#define CARD "emulated:gfx1201?vram=1GiB&commit=bo"
#define OPERATION_MAP 1
#define TOKENS 700 /* with two spans of 11 MiB: more than one slab */

struct card {
	struct rig r;
	vmkv_emulator *emulator;
	int fd;
	uint64_t ready;
};

static void card_begin(struct card *card, const char *option)
{
	struct vmkv_amdgpu_info info;
	char name[128];
	vmkv_device *device;

	memset(card, 0, sizeof(*card));
	snprintf(name, sizeof(name), CARD "%s", option);
	device = open_named(name);
	info = info_of(device);
	CHECK_EQ(info.commit, VMKV_COMMIT_BO);
	card->fd = info.drm_fd;
	card->emulator = vmkv_emulator_of(card->fd);
	rig_prepare(&card->r, device);
	card->r.options.warm_max_bytes = VMKV_WARM_OFF;
	rig_create(&card->r);
}

static void card_end(struct card *card)
{
	vmkv_cache_destroy(card->r.cache);
	CHECK_EQ(vmkv_device_close(card->r.device), 0);
}

static vmkv_seq seq_grown(struct card *card, uint32_t tokens)
{
	struct vmkv_step_result result = { .struct_size = sizeof(result) };
	vmkv_seq seq = seq_open(&card->r);

	CHECK_EQ(try_steps(&card->r, &seq, &tokens, 1, 1, &result), 0);
	card->ready = result.ready;
	return seq;
}

/* How many of a sequence's pieces of 64 KiB are in the page tables. */
static uint64_t pieces_there(struct card *card, uint64_t address, uint32_t tokens)
{
	uint64_t count = 0;

	for (uint64_t at = 0; at < (uint64_t)tokens * ROW; at += 64 * KIB) {
		struct vmkv_emulator_entry entry = { .struct_size = sizeof(entry) };

		CHECK_EQ(vmkv_emulator_walk(card->fd, address + at, &entry), 0);
		count += entry.valid;
	}
	return count;
}

static uint64_t count_of(struct card *card, const char *ioctl, uint32_t operation)
{
	uint64_t count;

	CHECK_EQ(vmkv_emulator_count(card->emulator, ioctl, operation, &count), 0);
	return count;
}

static uint64_t flushing_maps(struct card *card)
{
	struct vmkv_emulator_stats stats = { .struct_size = sizeof(stats) };

	CHECK_EQ(vmkv_emulator_stats(card->emulator, &stats), 0);
	return count_of(card, "GEM_VA", OPERATION_MAP) - stats.delayed_maps;
}

/* All but the last map of each slab only list, and nothing is submitted. */
static void each_slab_is_flushed_once(const char *option)
{
	uint64_t submissions, flushes, slabs;
	struct card card;
	vmkv_seq seq;

	card_begin(&card, option);
	submissions = count_of(&card, "CS", UINT32_MAX);
	flushes = flushing_maps(&card);
	seq = seq_grown(&card, TOKENS);
	slabs = stats_of(&card.r).slabs;
	CHECK(slabs > 1);
	CHECK_EQ(flushing_maps(&card) - flushes, slabs);
	CHECK_EQ(count_of(&card, "CS", UINT32_MAX), submissions);
	CHECK_EQ(vmkv_wait(card.r.device, card.ready, UINT64_MAX), 0);
	for (uint32_t layer = 0; layer < 2; layer++)
		CHECK_EQ(pieces_there(&card, span_of(&card.r, seq, 0, layer, 0).address, TOKENS),
		         TOKENS / 4);
	card_end(&card);
}

/* What a span holds, written and read by the card itself. */
static void contents_are_right(const char *option)
{
	struct card card;
	vmkv_seq one, two;
	uint64_t from, to;
	uint64_t bytes = 300 * ROW;

	card_begin(&card, option);
	one = seq_grown(&card, 300);
	two = seq_grown(&card, 300);
	CHECK_EQ(vmkv_wait(card.r.device, card.ready, UINT64_MAX), 0);
	from = span_of(&card.r, one, 0, 1, 0).address;
	to = span_of(&card.r, two, 0, 0, 0).address;
	CHECK_EQ(vmkv_fill(card.r.device, from, bytes, 0x1234, NULL), 0);
	CHECK_EQ(vmkv_copy(card.r.device, to, from, bytes, NULL), 0);
	for (uint64_t at = 0; at < bytes; at += 4096) {
		CHECK_EQ(*words(to + at), 0x1234);
		CHECK_EQ(*words(span_of(&card.r, two, 0, 1, 0).address + at), 0);
	}
	card_end(&card);
}

/* The point belongs to the page tables: it isn't reached before they are written. */
static void a_point_tells_when(void)
{
	struct card card;
	vmkv_seq seq;
	uint64_t address;

	card_begin(&card, "&kernel=7.2");
	vmkv_emulator_pause(card.emulator);
	seq = seq_grown(&card, 256);
	address = span_of(&card.r, seq, 0, 1, 0).address;
	CHECK(card.ready > 0);
	CHECK_EQ(vmkv_wait(card.r.device, card.ready, 0), -ETIME);
	CHECK_EQ(pieces_there(&card, address, 256), 0);
	CHECK_EQ(vmkv_ready_tokens(card.r.cache)[0], 0);
	vmkv_emulator_resume(card.emulator);
	CHECK_EQ(vmkv_wait(card.r.device, card.ready, UINT64_MAX), 0);
	CHECK_EQ(pieces_there(&card, address, 256), 64);
	retire(&card.r, 0);
	CHECK(vmkv_ready_tokens(card.r.cache)[0] >= 256);
	card_end(&card);
}

/* Older kernels tell nothing: points are 0, which is true only where they write at once. */
static void before_3_64_points_are_0(const char *kernel)
{
	char option[64];
	struct card card;
	vmkv_seq seq;

	snprintf(option, sizeof(option), "&kernel=%s&vm_update=cpu", kernel);
	card_begin(&card, option);
	seq = seq_grown(&card, 256);
	CHECK_EQ(card.ready, 0);
	CHECK_EQ(pieces_there(&card, span_of(&card.r, seq, 0, 1, 0).address, 256), 64);
	card_end(&card);
	snprintf(option, sizeof(option), "&kernel=%s", kernel);
	card_begin(&card, option);
	vmkv_emulator_pause(card.emulator);
	seq = seq_grown(&card, 256);
	CHECK_EQ(card.ready, 0);
	CHECK_EQ(pieces_there(&card, span_of(&card.r, seq, 0, 1, 0).address, 256), 0);
	vmkv_emulator_resume(card.emulator);
	card_end(&card);
}

/* Unmaps need no submission either. */
static void what_is_given_back_goes(const char *option)
{
	struct card card;
	struct vmkv_stats stats;
	uint64_t address, submissions;
	vmkv_seq seq;

	card_begin(&card, option);
	vmkv_cache_destroy(card.r.cache);
	card.r.options.zero = VMKV_ZERO_OFF; /* fills are submissions */
	rig_create(&card.r);
	seq = seq_grown(&card, 256);
	address = span_of(&card.r, seq, 0, 1, 0).address;
	CHECK_EQ(vmkv_wait(card.r.device, card.ready, UINT64_MAX), 0);
	CHECK_EQ(pieces_there(&card, address, 256), 64);
	submissions = count_of(&card, "CS", UINT32_MAX);
	seq_close(&card.r, seq, 1);
	CHECK_EQ(pieces_there(&card, address, 256), 64); /* submission 1 may still use it */
	do {
		retire(&card.r, 1);
		stats = stats_of(&card.r);
	} while (stats.unmapping_bytes || stats.retiring_bytes);
	CHECK_EQ(pieces_there(&card, address, 256), 0);
	CHECK_EQ(count_of(&card, "CS", UINT32_MAX), submissions);
	card_end(&card);
}

int main(void)
{
	/* Those on which points are true. */
	static const char *const options[] = {
		"&identity=1&kernel=7.2",
		"&identity=1&kernel=7.2&slabs=listed",
		"&identity=1&kernel=7.2&vm_update=cpu",
		"&identity=1&kernel=6.12&vm_update=cpu",
		"&identity=1&kernel=6.1&vm_update=cpu",
	};

	target_need_libdrm();
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		each_slab_is_flushed_once(options[i]);
		contents_are_right(options[i]);
		what_is_given_back_goes(options[i]);
	}
	RUN(a_point_tells_when);
	before_3_64_points_are_0("6.12");
	before_3_64_points_are_0("6.1");
	return 0;
}
