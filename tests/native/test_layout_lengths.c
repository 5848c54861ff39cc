/* SPDX-License-Identifier: MIT
 *
 * Layout: tokens and pages against brute force, and what a sequence needs on its way against
 * stepping.
 */
#include "layout_fixture.h"
#include "seeded.h"

#define MAX_TOKENS 700u

/* A layout of one span with random rows, pages and alignment. */
static void random_layout(struct seeded *s, struct vmkv_addresses *l, enum vmkv_policy policy)
{
	static struct model m;
	struct vmkv_cache_options options;
	struct vmkv_group *group;

	model_begin(&m);
	group = model_plain(&m, policy, 1, seeded_from(s, 1, seeded_from(s, 1, 20000)));
	if (policy == VMKV_POLICY_WINDOW) {
		group->window_tokens = seeded_from(s, 1, 150);
		group->slack_tokens = seeded_from(s, 0, 1) * seeded_from(s, 0, 100);
	}
	options = layout_options(&m, seeded_from(s, 0, 1), seeded_from(s, 1, MAX_TOKENS));
	options.page_bytes = (4 * KIB) << seeded_from(s, 0, 9);
	options.read_align_tokens = seeded_from(s, 0, 1) ? 1 : seeded_from(s, 1, 300);
	options.window_mapping_max_bytes = options.page_bytes * seeded_from(s, 1, 5);
	layout_make(l, &options);
}

/* ---- tokens and pages ----------------------------------------------------------------------- */

/* The page of the last byte that may be read when there are `tokens`, plus one. */
static uint32_t slow_pages(const struct vmkv_addresses *l, uint32_t tokens)
{
	uint64_t read = tokens;
	uint32_t pages = 0;

	while (read % l->read_align_tokens != 0)
		read++;
	while (pages * l->page_bytes < read * l->regions[0].token_bytes)
		pages++;
	return pages;
}

static void pages_and_tokens_fit(void)
{
	struct seeded s = seeded_begin(__func__);

	for (int round = 0; round < 300; round++) {
		struct vmkv_addresses l;
		const struct vmkv_region *region;
		uint32_t fits = 0, pages = 0;

		random_layout(&s, &l, VMKV_POLICY_FULL);
		region = &l.regions[0];
		CHECK(l.reserved_tokens >= l.max_tokens);
		CHECK(l.reserved_tokens < l.max_tokens + l.read_align_tokens);
		CHECK_EQ(l.reserved_tokens % l.read_align_tokens, 0);
		for (uint32_t t = 0; t <= l.max_tokens; t++) {
			uint32_t need = slow_pages(&l, t);

			CHECK_EQ(vmkv_region_pages(&l, region, t), need);
			CHECK(need * l.page_bytes <= region->slot_stride);
			/* So many pages as there were before fit exactly the tokens before. */
			for (; pages < need; pages++)
				CHECK_EQ(vmkv_region_tokens(&l, region, pages), fits);
			fits = (t + l.read_align_tokens - 1) / l.read_align_tokens *
			       l.read_align_tokens;
		}
		CHECK(vmkv_region_tokens(&l, region, pages) >= l.max_tokens);
		CHECK(vmkv_region_tokens(&l, region, UINT32_MAX / 2) == l.reserved_tokens);
		vmkv_layout_fini(&l);
	}
}

/* Whether every token that has a byte in the page is dead. */
static bool page_is_dead(const struct vmkv_region *region, uint64_t page_bytes, uint32_t page,
                         uint32_t tokens)
{
	uint64_t last_byte = (page + 1) * page_bytes - 1;

	return last_byte / region->token_bytes + region->window_tokens < tokens;
}

static void dead_pages_are_dead(void)
{
	struct seeded s = seeded_begin(__func__);

	for (int round = 0; round < 300; round++) {
		struct vmkv_addresses l;
		const struct vmkv_region *region;
		uint32_t dead = 0;

		random_layout(&s, &l, VMKV_POLICY_WINDOW);
		region = &l.regions[0];
		for (uint32_t t = 0; t <= MAX_TOKENS; t++) {
			for (; page_is_dead(region, l.page_bytes, dead, t); dead++)
				CHECK_EQ(vmkv_region_dead_at(&l, region, dead + 1), t);
			CHECK_EQ(vmkv_region_dead_pages(&l, region, t), dead);
		}
		CHECK(vmkv_region_dead_at(&l, region, dead + 1) > MAX_TOKENS);
		vmkv_layout_fini(&l);
	}
}

/* ---- stepping ------------------------------------------------------------------------------- */

/* A span's pages that have memory, as pieces that go back whole, and those that the step before
 * gave back, which the engine retires only after this one. */
struct span {
	struct {
		uint32_t from, to;
	} pieces[MAX_TOKENS * 8];
	uint32_t first, count;
	uint32_t end;
	uint64_t mapped, retiring;
};

static void span_grow(struct span *span, const struct vmkv_region *region, uint32_t need)
{
	while (span->end < need) {
		uint32_t most = region->mapping_max_pages;
		uint32_t to = span->end - span->end % most + most;

		CHECK(span->count < MAX_TOKENS * 8);
		if (to > need)
			to = need;
		span->pieces[span->count].from = span->end;
		span->pieces[span->count++].to = to;
		span->mapped += to - span->end;
		span->end = to;
	}
}

static void span_trim(struct span *span, uint32_t dead)
{
	span->retiring = 0;
	for (; span->first < span->count && span->pieces[span->first].to <= dead; span->first++)
		span->retiring += span->pieces[span->first].to - span->pieces[span->first].from;
	span->mapped -= span->retiring;
}

/* Step from 0 to tokens by at most chunk; the most pages that were held on the way. */
static uint64_t walk(struct seeded *s, const struct vmkv_addresses *l, uint32_t tokens,
                     uint32_t chunk, bool random_chunks)
{
	static struct span span;
	const struct vmkv_region *region = &l->regions[0];
	uint64_t peak = 0;

	memset(&span, 0, sizeof(span));
	for (uint32_t live = 0; live < tokens;) {
		uint32_t before = live, step = random_chunks ? seeded_from(s, 1, chunk) : chunk;

		live = tokens - live < step ? tokens : live + step;
		span_grow(&span, region, vmkv_region_pages(l, region, live));
		if (span.mapped + span.retiring > peak)
			peak = span.mapped + span.retiring;
		span_trim(&span, vmkv_region_dead_pages(l, region, before));
	}
	return peak;
}

static void what_a_window_needs_is_enough(void)
{
	struct seeded s = seeded_begin(__func__);
	uint64_t closest = UINT64_MAX;

	for (int round = 0; round < 2000; round++) {
		struct vmkv_addresses l;
		uint32_t tokens, chunk;
		uint64_t need, most;

		random_layout(&s, &l, VMKV_POLICY_WINDOW);
		tokens = seeded_from(&s, 1, l.max_tokens);
		chunk = seeded_from(&s, 1, seeded_from(&s, 1, tokens));
		need = vmkv_layout_need_pages(&l, tokens, chunk);
		most = walk(&s, &l, tokens, chunk, seeded_from(&s, 0, 1));
		if (most > need)
			CHECK_FAIL("round %d: %u tokens by %u: %llu pages held, %llu told", round,
			           tokens, chunk, (unsigned long long)most,
			           (unsigned long long)need);
		CHECK(need <= vmkv_region_pages(&l, &l.regions[0], tokens));
		if (need < vmkv_region_pages(&l, &l.regions[0], tokens) && need - most < closest)
			closest = need - most;
		vmkv_layout_fini(&l);
	}
	CHECK(closest <= 1); /* nor is it far more than enough */
}

static void what_a_full_group_needs_is_exact(void)
{
	struct seeded s = seeded_begin(__func__);

	for (int round = 0; round < 300; round++) {
		struct vmkv_addresses l;
		uint32_t tokens, chunk;

		random_layout(&s, &l, VMKV_POLICY_FULL);
		tokens = seeded_from(&s, 1, l.max_tokens);
		chunk = seeded_from(&s, 1, tokens);
		CHECK_EQ(walk(&s, &l, tokens, chunk, true),
		         vmkv_layout_need_pages(&l, tokens, chunk));
		CHECK_EQ(vmkv_layout_need_pages(&l, tokens, 0), slow_pages(&l, tokens));
		CHECK_EQ(vmkv_layout_need_pages(&l, tokens, UINT32_MAX), slow_pages(&l, tokens));
		vmkv_layout_fini(&l);
	}
}

/* gpt-oss-120b: 18 full and 18 sliding layers of window 128. A long context costs the sliding ones
 * no more than a short one. */
static void a_window_does_not_grow_with_the_context(void)
{
	struct vmkv_cache_options options;
	struct vmkv_addresses l;
	struct model m;
	uint64_t full = 36 * 3125;

	model_begin(&m);
	model_group(&m, VMKV_POLICY_FULL, 18);
	model_tensor(&m, VMKV_DTYPE_BF16, 8, 64);
	model_tensor(&m, VMKV_DTYPE_BF16, 8, 64);
	model_group(&m, VMKV_POLICY_WINDOW, 18)->window_tokens = 128;
	model_tensor(&m, VMKV_DTYPE_BF16, 8, 64);
	model_tensor(&m, VMKV_DTYPE_BF16, 8, 64);
	options = layout_options(&m, VMKV_LAYOUT_LAYER, 200000);
	layout_make(&l, &options);
	/* 64 rows a page: 128 + 3 * 512 + 1 are 26.02 pages, which reach into 28, and 3 more of a
	 * mapping of 4 that is dead but for its last page. */
	CHECK_EQ(vmkv_layout_need_pages(&l, 200000, 512), full + 36 * 31);
	CHECK_EQ(vmkv_layout_need_pages(&l, 200000, 0), full + 36 * 3125);
	CHECK_EQ(vmkv_layout_need_pages(&l, 200000, 1), full + 36 * 7);
	vmkv_layout_fini(&l);
}

int main(void)
{
	RUN(pages_and_tokens_fit);
	RUN(dead_pages_are_dead);
	RUN(what_a_window_needs_is_enough);
	RUN(what_a_full_group_needs_is_exact);
	RUN(a_window_does_not_grow_with_the_context);
	return 0;
}
