/* SPDX-License-Identifier: MIT
 *
 * How few mappings, and how little memory, real loads take: exact counts for qwen3-8b with pages of
 * 64 KiB in a budget of 10 GB. No memory is touched.
 */
#include "cache_fixture.h"

#define AGENTS_MAX 80
#define MAPPINGS_MAX 4096

static void rig_qwen3_8b(struct rig *r, enum vmkv_layout layout, uint32_t agents)
{
	rig_prepare(r, open_host("host"));
	model_qwen3_8b(&r->m);
	r->options.budget_bytes = UINT64_C(10000000000);
	r->options.slab_bytes = 0;
	r->options.layout = layout;
	r->options.max_slots = agents;
	r->options.max_tokens = 16000;
	rig_create(r);
}

struct counts {
	uint64_t mappings, runs, pages;
};

/* Of one span (in the token layout: of the one range that all share). */
static struct counts count(struct rig *r, vmkv_seq seq, uint32_t layer, uint32_t tensor)
{
	static struct vmkv_mapping m[MAPPINGS_MAX];
	struct counts c = { 0 };
	size_t n = 0;

	CHECK_EQ(vmkv_seq_mappings(r->cache, seq, 0, layer, tensor, m, MAPPINGS_MAX, &n), 0);
	CHECK(n <= MAPPINGS_MAX);
	for (size_t i = 0; i < n; i++) {
		const struct vmkv_mapping *before = &m[i - (i > 0)];
		bool goes_on = i > 0 && before->slab == m[i].slab &&
		               before->slab_offset + before->bytes == m[i].slab_offset;

		if (i > 0)
			CHECK_EQ(before->address + before->bytes, m[i].address);
		c.runs += !goes_on;
		c.pages += m[i].bytes / PAGE;
	}
	c.mappings = n;
	return c;
}

/* The most of any span of the sequences; pages are summed up. */
static struct counts count_all(struct rig *r, const vmkv_seq *seqs, uint32_t n, uint32_t spans)
{
	struct counts most = { 0 };

	for (uint32_t i = 0; i < n * spans; i++) {
		struct counts c = count(r, seqs[i / spans], i % spans / 2, i % 2);

		most.mappings = c.mappings > most.mappings ? c.mappings : most.mappings;
		most.runs = c.runs > most.runs ? c.runs : most.runs;
		most.pages += c.pages;
	}
	return most;
}

static void open_agents(struct rig *r, vmkv_seq *seqs, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		seqs[i] = seq_open(r);
}

/* All in turn, by so many tokens at a time. */
static void grow_in_turn(struct rig *r, const vmkv_seq *seqs, uint32_t n, uint32_t tokens,
                         uint32_t chunk)
{
	for (uint32_t live = 0; live < tokens;) {
		live = tokens - live < chunk ? tokens : live + chunk;
		for (uint32_t i = 0; i < n; i++)
			step(r, seqs[i], live);
	}
}

/* ---- prefill -------------------------------------------------------------------------------- */

static void prefill_in_one_step_by_layer(void)
{
	struct counts c;
	struct rig r;
	vmkv_seq seq;

	rig_qwen3_8b(&r, VMKV_LAYOUT_LAYER, 8);
	seq = seq_of(&r, 3000);
	c = count_all(&r, &seq, 1, 72);
	CHECK_EQ(c.mappings, 3); /* 94 pages: 32 + 32 + 30 */
	CHECK_EQ(c.pages, 6768);
	CHECK_EQ(stats_of(&r).mapped_bytes, 6768 * PAGE);
	CHECK_EQ(stats_of(&r).mappings, 72 * 3);
	CHECK_EQ(stats_of(&r).map_calls, 72 * 3);
	rig_end(&r);
}

static void prefill_in_one_step_by_token(void)
{
	struct counts c;
	struct rig r;
	vmkv_seq seq;

	rig_qwen3_8b(&r, VMKV_LAYOUT_TOKEN, 8);
	seq = seq_of(&r, 3000);
	c = count_all(&r, &seq, 1, 1);
	CHECK(c.mappings <= 16);
	CHECK_EQ(c.mappings, 14); /* 421.9 MiB by 32 */
	CHECK_EQ(c.pages, 6750);
	rig_end(&r);
}

/* ---- eight agents in turn by chunks --------------------------------------------------------- */

static void eight_in_turn_by_layer(void)
{
	struct counts c;
	struct rig r;
	vmkv_seq seqs[8];

	rig_qwen3_8b(&r, VMKV_LAYOUT_LAYER, 8);
	open_agents(&r, seqs, 8);
	grow_in_turn(&r, seqs, 8, 3000, 512);
	c = count_all(&r, seqs, 8, 72);
	CHECK_EQ(c.mappings, 6); /* a chunk is 16 pages: one each */
	CHECK(c.runs <= 4);
	CHECK_EQ(c.runs, 3); /* a stretch each */
	CHECK_EQ(c.pages, 8 * 6768);
	rig_end(&r);
}

static void eight_in_turn_by_token(void)
{
	struct counts c;
	struct rig r;
	vmkv_seq seqs[8];

	rig_qwen3_8b(&r, VMKV_LAYOUT_TOKEN, 8);
	open_agents(&r, seqs, 8);
	grow_in_turn(&r, seqs, 8, 3000, 512);
	c = count_all(&r, seqs, 8, 1);
	CHECK(c.mappings <= 24);
	CHECK_EQ(c.mappings, 17); /* 5 chunks of 72 MiB and one of 61.9, by 32 */
	CHECK_EQ(c.pages, 8 * 6750);
	rig_end(&r);
}

/* ---- waste and tables ----------------------------------------------------------------------- */

static void eight_at_3000_waste_little(void)
{
	struct vmkv_stats s;
	struct rig r;
	vmkv_seq seqs[8];

	rig_qwen3_8b(&r, VMKV_LAYOUT_LAYER, 8);
	open_agents(&r, seqs, 8);
	grow_in_turn(&r, seqs, 8, 3000, 512);
	s = stats_of(&r);
	CHECK_EQ(s.sequences, 8);
	CHECK_EQ(s.live_bytes, 8 * UINT64_C(442368000));
	CHECK_EQ(s.mapped_bytes, 8 * UINT64_C(443547648));
	CHECK((s.mapped_bytes - s.live_bytes) * 100 < s.mapped_bytes); /* 0.27 percent */
	CHECK(s.slab_bytes <= UINT64_C(10000000000));
	CHECK_EQ(s.reserved_bytes, 16 * 72 * 32 * MIB); /* of which far more than 10 GB */
	rig_end(&r);
}

static void tables_take_few_bytes_a_page(void)
{
	struct vmkv_stats s;
	struct rig r;
	vmkv_seq seqs[8];

	for (uint32_t layout = VMKV_LAYOUT_LAYER; layout <= VMKV_LAYOUT_TOKEN; layout++) {
		rig_qwen3_8b(&r, layout, 8);
		open_agents(&r, seqs, 8);
		grow_in_turn(&r, seqs, 8, 3000, 512);
		s = stats_of(&r);
		CHECK(s.table_bytes <= 24 * s.mapped_bytes / PAGE);
		rig_end(&r);
	}
}

/* ---- decoding in turn ----------------------------------------------------------------------- */

/* The mean length of a run in pages, over all spans. */
static double mean_run(struct rig *r, const vmkv_seq *seqs, uint32_t n)
{
	uint64_t runs = 0, pages = 0;

	for (uint32_t i = 0; i < n * 72; i++) {
		struct counts c = count(r, seqs[i / 72], i % 72 / 2, i % 2);

		runs += c.runs;
		pages += c.pages;
	}
	return (double)pages / (double)runs;
}

/* Growth by 32 tokens is that by single ones: a page is 32. */
static void sixty_four_decode_in_long_runs(void)
{
	struct rig r;
	vmkv_seq seqs[64];

	rig_qwen3_8b(&r, VMKV_LAYOUT_LAYER, 64);
	open_agents(&r, seqs, 64);
	grow_in_turn(&r, seqs, 64, 1000, 32);
	CHECK_EQ(stats_of(&r).mapped_bytes, 64 * 72 * 32 * PAGE);
	CHECK_EQ((uint64_t)mean_run(&r, seqs, 64), 32); /* one run a span; at least 16 are wanted */
	rig_end(&r);
}

/* 80 x 72 spans are more than the 4,768 stretches that there are: some must share. */
static void eighty_decode_where_stretches_run_out(void)
{
	struct rig r;
	vmkv_seq seqs[80];

	rig_qwen3_8b(&r, VMKV_LAYOUT_LAYER, 80);
	open_agents(&r, seqs, 80);
	grow_in_turn(&r, seqs, 80, 800, 32);
	CHECK_EQ(stats_of(&r).mapped_bytes, 80 * 72 * 25 * PAGE);
	CHECK(mean_run(&r, seqs, 80) >= 10); /* of 25 */
	rig_end(&r);
}

int main(void)
{
	RUN(prefill_in_one_step_by_layer);
	RUN(prefill_in_one_step_by_token);
	RUN(eight_in_turn_by_layer);
	RUN(eight_in_turn_by_token);
	RUN(eight_at_3000_waste_little);
	RUN(tables_take_few_bytes_a_page);
	RUN(sixty_four_decode_in_long_runs);
	RUN(eighty_decode_where_stretches_run_out);
	return 0;
}
