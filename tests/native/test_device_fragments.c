/* SPDX-License-Identifier: MIT
 *
 * What the card's page tables hold behind spans: entries that say how much is contiguous, as its TLBs like
 * them, and directory entries in place of whole tables.
 */
#include "cache_fixture.h"
#include "emulator/vmkv_emulator.h"

#define CARD "emulated:gfx1201?vram=1GiB&identity=1"
#define HUGE (2 * MIB)
#define SMALL UINT64_C(4096)
#define SEQS 3
#define TOKENS_PER_HUGE (HUGE / ROW)

static const char *const options[] = { "", "&slabs=listed", "&kernel=6.1", "&kernel=7.2" };

struct card {
	struct rig r;
	int fd;
	vmkv_seq seqs[SEQS];
	uint32_t tokens[SEQS];
};

static void card_begin(struct card *card, const char *option, uint64_t page_bytes)
{
	char name[128];
	vmkv_device *device;

	memset(card, 0, sizeof(*card));
	snprintf(name, sizeof(name), CARD "%s", option);
	device = open_named(name);
	card->fd = info_of(device).drm_fd;
	rig_prepare(&card->r, device);
	card->r.options.budget_bytes = 128 * MIB;
	card->r.options.page_bytes = page_bytes;
	rig_create(&card->r);
	for (int i = 0; i < SEQS; i++)
		card->seqs[i] = seq_open(&card->r);
}

static void card_end(struct card *card)
{
	vmkv_cache_destroy(card->r.cache);
	CHECK_EQ(vmkv_device_close(card->r.device), 0);
}

/* One step for one sequence, waited for. */
static void grow(struct card *card, int i, uint32_t by)
{
	struct vmkv_step_result result = { .struct_size = sizeof(result) };

	card->tokens[i] += by;
	CHECK_EQ(try_steps(&card->r, &card->seqs[i], &card->tokens[i], 1, 0, &result), 0);
	CHECK_EQ(vmkv_wait(card->r.device, result.ready, UINT64_MAX), 0);
}

static uint64_t span_begin(struct card *card, int i, uint32_t layer)
{
	return span_of(&card->r, card->seqs[i], 0, layer, 0).address;
}

static struct vmkv_emulator_entry walk(struct card *card, uint64_t address)
{
	struct vmkv_emulator_entry entry = { .struct_size = sizeof(entry) };

	CHECK_EQ(vmkv_emulator_walk(card->fd, address, &entry), 0);
	return entry;
}

/* Every entry behind a span: valid, and of contiguous physical memory as far as its fragment says. Returns
 * how many of them stand for 2 MiB. */
static uint32_t span_check(struct card *card, int i, uint32_t layer, uint32_t fragment_least)
{
	uint64_t at = span_begin(card, i, layer), end = at + (uint64_t)card->tokens[i] * ROW;
	uint32_t huge = 0;

	while (at < end) {
		struct vmkv_emulator_entry entry = walk(card, at);
		uint64_t fragment_bytes = SMALL << entry.fragment;
		uint64_t first = at & ~(fragment_bytes - 1);

		CHECK(entry.valid && entry.readable && entry.writable);
		CHECK_EQ(entry.address, at);
		CHECK(entry.fragment >= fragment_least);
		CHECK(entry.bytes == SMALL || entry.bytes == HUGE);
		CHECK(entry.bytes <= fragment_bytes);
		CHECK_EQ(walk(card, first).physical, entry.physical - (at - first));
		huge += entry.bytes == HUGE;
		at += entry.bytes;
	}
	return huge;
}

/* Each span is filled by the card with a number of its own, and holds that. */
static void contents_check(struct card *card)
{
	for (int i = 0; i < SEQS; i++)
		for (uint32_t layer = 0; layer < 2; layer++)
			CHECK_EQ(vmkv_fill(card->r.device, span_begin(card, i, layer),
			                   (uint64_t)card->tokens[i] * ROW, 1 + 2 * i + layer, NULL),
			         0);
	for (int i = 0; i < SEQS; i++)
		for (uint32_t layer = 0; layer < 2; layer++)
			for (uint64_t at = 0; at < (uint64_t)card->tokens[i] * ROW; at += SMALL)
				CHECK_EQ(*words(span_begin(card, i, layer) + at), 1 + 2 * i + layer);
}

/* Page by page, and several at once, in turn. */
static void pages_of_64_kib_have_their_fragments(const char *option)
{
	static const uint32_t steps[] = { 1, 3, 4, 8, 20, 1, 60, 32, 131, 9 };
	struct card card;

	card_begin(&card, option, 64 * KIB);
	for (size_t s = 0; s < sizeof(steps) / sizeof(steps[0]); s++)
		for (int i = 0; i < SEQS; i++)
			grow(&card, i, steps[(s + (size_t)i) % 10]);
	for (int i = 0; i < SEQS; i++)
		for (uint32_t layer = 0; layer < 2; layer++)
			span_check(&card, i, layer, 4);
	contents_check(&card);
	card_end(&card);
}

/* A long prompt at once needs no tables for its whole 2 MiB pieces, though pages are of 64 KiB. */
static void a_long_prompt_has_directory_entries(const char *option)
{
	struct card card;

	card_begin(&card, option, 64 * KIB);
	for (int i = 0; i < SEQS; i++)
		grow(&card, i, 3 * TOKENS_PER_HUGE + 10);
	for (int i = 0; i < SEQS; i++)
		for (uint32_t layer = 0; layer < 2; layer++)
			CHECK_EQ(span_check(&card, i, layer, 4), 3);
	contents_check(&card);
	card_end(&card);
}

static void pages_of_2_mib_are_directory_entries(const char *option)
{
	struct card card;

	card_begin(&card, option, HUGE);
	for (uint32_t s = 0; s < 4; s++)
		for (int i = 0; i < SEQS; i++)
			grow(&card, i, 50 + 50 * i);
	for (int i = 0; i < SEQS; i++) {
		uint32_t pieces = (card.tokens[i] + TOKENS_PER_HUGE - 1) / TOKENS_PER_HUGE;

		for (uint32_t layer = 0; layer < 2; layer++)
			CHECK_EQ(span_check(&card, i, layer, 9), pieces);
	}
	contents_check(&card);
	card_end(&card);
}

/* 2 MiB pages take no page table's memory; 64 KiB pages take one of 4 KiB for each 2 MiB. */
static void tables_are_spared(void)
{
	static const uint64_t pages[] = { 64 * KIB, HUGE };
	uint64_t bytes[2];

	for (int p = 0; p < 2; p++) {
		struct vmkv_emulator_stats stats = { .struct_size = sizeof(stats) };
		struct card card;

		card_begin(&card, "", pages[p]);
		for (uint32_t s = 0; s < 4 * TOKENS_PER_HUGE / 4; s++)
			grow(&card, 0, 4);
		CHECK_EQ(vmkv_emulator_stats(vmkv_emulator_of(card.fd), &stats), 0);
		bytes[p] = stats.page_table_bytes;
		card_end(&card);
	}
	CHECK_EQ(bytes[0] - bytes[1], 2 * 4 * SMALL); /* two spans of 8 MiB */
}

int main(void)
{
	target_need_libdrm();
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		pages_of_64_kib_have_their_fragments(options[i]);
		a_long_prompt_has_directory_entries(options[i]);
		pages_of_2_mib_are_directory_entries(options[i]);
	}
	RUN(tables_are_spared);
	return 0;
}
