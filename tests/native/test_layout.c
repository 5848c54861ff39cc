/* SPDX-License-Identifier: MIT
 *
 * Layout: where rows lie, by figures worked out by hand.
 */
#include <errno.h>

#include "layout_fixture.h"

/* ---- qwen3-8b: 36 layers of K and V, 8 heads of 128 in f16 ---------------------------------- */

static void qwen3_8b_by_layer(void)
{
	struct model m;
	struct vmkv_cache_options options;
	struct vmkv_addresses l;

	model_qwen3_8b(&m);
	options = layout_options(&m, VMKV_LAYOUT_LAYER, 16384);
	layout_make(&l, &options);
	CHECK_EQ(l.token_bytes, 147456); /* 36 * 2 * 8 * 128 * 2 */
	CHECK_EQ(l.full_token_bytes, 147456);
	CHECK_EQ(l.fixed_bytes, 0);
	CHECK_EQ(l.region_count, 72);
	for (uint32_t i = 0; i < 72; i++) {
		CHECK_EQ(place_of(&l, 0, i / 2, i % 2)->region, i);
		CHECK_EQ(place_of(&l, 0, i / 2, i % 2)->offset, 0);
		CHECK_EQ(place_of(&l, 0, i / 2, i % 2)->row_bytes, 2048);
		CHECK_EQ(l.regions[i].token_bytes, 2048);
		CHECK_EQ(l.regions[i].slot_stride, 32 * MIB);                   /* 16384 * 2048 */
		CHECK_EQ(vmkv_region_pages(&l, &l.regions[i], 3000), 94);       /* 93.75 */
		CHECK_EQ(vmkv_region_tokens(&l, &l.regions[i], 94), 3008);      /* 32 a page */
	}
	CHECK_EQ(vmkv_layout_need_pages(&l, 3000, 0), 6768); /* 72 * 94 */
	CHECK_EQ(l.reserved_bytes, 72 * 16 * 32 * MIB);
	vmkv_layout_fini(&l);
}

static void qwen3_8b_by_token(void)
{
	struct model m;
	struct vmkv_cache_options options;
	struct vmkv_addresses l;

	model_qwen3_8b(&m);
	options = layout_options(&m, VMKV_LAYOUT_TOKEN, 16384);
	layout_make(&l, &options);
	CHECK_EQ(l.token_bytes, 147456);
	CHECK_EQ(l.region_count, 1);
	CHECK_EQ(l.regions[0].token_bytes, 147456);
	CHECK_EQ(l.regions[0].slot_stride, 2304 * MIB); /* 16384 * 147456 */
	for (uint32_t i = 0; i < 72; i++) {
		CHECK_EQ(place_of(&l, 0, i / 2, i % 2)->region, 0);
		CHECK_EQ(place_of(&l, 0, i / 2, i % 2)->offset, i * 2048);
	}
	CHECK_EQ(vmkv_layout_need_pages(&l, 3000, 0), 6750); /* 3000 * 2.25 */
	CHECK_EQ(vmkv_region_tokens(&l, &l.regions[0], 6750), 3000);
	CHECK_EQ(vmkv_region_tokens(&l, &l.regions[0], 6749), 2999);
	vmkv_layout_fini(&l);
}

/* ---- rows ----------------------------------------------------------------------------------- */

static void rows_of_each_dtype(void)
{
	static const struct {
		enum vmkv_dtype dtype;
		uint32_t heads, head_dim;
		uint64_t given, row_bytes;
	} rows[] = {
		{ VMKV_DTYPE_F32, 8, 128, 0, 4096 },
		{ VMKV_DTYPE_F16, 8, 128, 0, 2048 },
		{ VMKV_DTYPE_BF16, 4, 96, 0, 768 },
		{ VMKV_DTYPE_F8, 8, 128, 0, 1024 },
		{ VMKV_DTYPE_Q8_0, 8, 128, 0, 1088 }, /* 32 blocks of 34 */
		{ VMKV_DTYPE_Q8_0, 1, 32, 0, 34 },
		{ VMKV_DTYPE_Q8_0, 2, 16, 0, 34 }, /* a block may span heads */
		{ VMKV_DTYPE_NONE, 0, 0, 777, 777 },
		{ VMKV_DTYPE_NONE, 8, 128, 1, 1 },
		{ VMKV_DTYPE_F16, 8, 128, 2048, 2048 },
		{ VMKV_DTYPE_F16, 8, 128, 2304, 2304 }, /* padded */
		{ VMKV_DTYPE_Q8_0, 8, 128, 1152, 1152 },
		{ VMKV_DTYPE_F16, 1, 1, 0, 2 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct vmkv_cache_options options;
		struct vmkv_addresses l;
		struct model m;

		model_begin(&m);
		model_group(&m, VMKV_POLICY_FULL, 1);
		model_tensor(&m, rows[i].dtype, rows[i].heads, rows[i].head_dim)->row_bytes =
		    rows[i].given;
		options = layout_options(&m, VMKV_LAYOUT_LAYER, 1000);
		layout_make(&l, &options);
		CHECK_EQ(l.places[0].row_bytes, rows[i].row_bytes);
		CHECK_EQ(l.regions[0].token_bytes, rows[i].row_bytes);
		CHECK_EQ(l.token_bytes, rows[i].row_bytes);
		vmkv_layout_fini(&l);
	}
}

static void keys_and_values_may_differ(void)
{
	struct vmkv_cache_options options;
	struct vmkv_addresses l;
	struct model m;

	model_begin(&m);
	model_group(&m, VMKV_POLICY_FULL, 3);
	model_tensor(&m, VMKV_DTYPE_F16, 8, 192);
	model_tensor(&m, VMKV_DTYPE_Q8_0, 8, 128);
	options = layout_options(&m, VMKV_LAYOUT_LAYER, 4096);
	layout_make(&l, &options);
	CHECK_EQ(l.token_bytes, 3 * (3072 + 1088));
	for (uint32_t layer = 0; layer < 3; layer++) {
		CHECK_EQ(region_of(&l, 0, layer, 0)->token_bytes, 3072);
		CHECK_EQ(region_of(&l, 0, layer, 0)->slot_stride, 12 * MIB);
		CHECK_EQ(region_of(&l, 0, layer, 1)->token_bytes, 1088);
		CHECK_EQ(region_of(&l, 0, layer, 1)->slot_stride, 6 * MIB); /* of 4.25 */
	}
	CHECK_EQ(l.reserved_bytes, 16 * 3 * 18 * MIB);
	vmkv_layout_fini(&l);

	options.layout = VMKV_LAYOUT_TOKEN;
	layout_make(&l, &options);
	CHECK_EQ(l.regions[0].token_bytes, 3 * 4160);
	CHECK_EQ(place_of(&l, 0, 0, 1)->offset, 3072);
	CHECK_EQ(place_of(&l, 0, 1, 0)->offset, 4160);
	CHECK_EQ(place_of(&l, 0, 2, 1)->offset, 2 * 4160 + 3072);
	vmkv_layout_fini(&l);
}

/* deepseek-v3: one latent of 512 + 64 in each of 61 layers. */
static void a_latent_is_one_tensor(void)
{
	struct vmkv_cache_options options;
	struct vmkv_addresses l;
	struct model m;

	model_begin(&m);
	model_group(&m, VMKV_POLICY_FULL, 61);
	model_tensor(&m, VMKV_DTYPE_BF16, 1, 576);
	options = layout_options(&m, VMKV_LAYOUT_LAYER, 16384);
	layout_make(&l, &options);
	CHECK_EQ(l.token_bytes, 70272);
	CHECK_EQ(l.region_count, 61);
	CHECK_EQ(place_of(&l, 0, 60, 0)->region, 60);
	CHECK_EQ(vmkv_layout_need_pages(&l, 3000, 0), 61 * 53); /* 52.7 */
	vmkv_layout_fini(&l);
}

/* ---- states --------------------------------------------------------------------------------- */

/* Rows of 100 and 1,000 bytes in two layers begin at multiples of 256:
 *
 *     0   100  256        1256  1280  1380  1536        2536  2560
 *     | 0.0 |   |    0.1    |    | 1.0 |     |    1.1    |     |
 */
static void a_state_lies_together(void)
{
	for (uint32_t layout = VMKV_LAYOUT_LAYER; layout <= VMKV_LAYOUT_TOKEN; layout++) {
		struct vmkv_cache_options options;
		struct vmkv_addresses l;
		struct model m;

		model_begin(&m);
		model_group(&m, VMKV_POLICY_STATE, 2);
		model_rows(&m, 100);
		model_rows(&m, 1000);
		options = layout_options(&m, layout, 5000);
		layout_make(&l, &options);
		CHECK_EQ(l.region_count, 1);
		CHECK_EQ(place_of(&l, 0, 0, 0)->offset, 0);
		CHECK_EQ(place_of(&l, 0, 0, 1)->offset, 256);
		CHECK_EQ(place_of(&l, 0, 1, 0)->offset, 1280);
		CHECK_EQ(place_of(&l, 0, 1, 1)->offset, 1536);
		CHECK_EQ(l.regions[0].fixed_bytes, 2560);
		CHECK_EQ(l.regions[0].token_bytes, 0);
		CHECK_EQ(l.regions[0].slot_stride, 2 * MIB);
		CHECK_EQ(l.fixed_bytes, 2200);
		CHECK_EQ(l.token_bytes, 0);
		CHECK_EQ(vmkv_region_pages(&l, &l.regions[0], 1), 1);
		CHECK_EQ(vmkv_region_pages(&l, &l.regions[0], 5000), 1);
		CHECK_EQ(vmkv_region_tokens(&l, &l.regions[0], 0), 0);
		CHECK_EQ(vmkv_region_tokens(&l, &l.regions[0], 1), 5000);
		vmkv_layout_fini(&l);
	}
}

static void a_long_state_needs_all_its_pages(void)
{
	struct vmkv_cache_options options;
	struct vmkv_addresses l;
	struct model m;

	model_begin(&m);
	model_plain(&m, VMKV_POLICY_STATE, 1, 3 * MIB + 1);
	options = layout_options(&m, VMKV_LAYOUT_LAYER, 100);
	layout_make(&l, &options);
	CHECK_EQ(l.regions[0].slot_stride, 4 * MIB);
	CHECK_EQ(vmkv_region_pages(&l, &l.regions[0], 1), 49);
	CHECK_EQ(vmkv_region_tokens(&l, &l.regions[0], 48), 0);
	CHECK_EQ(vmkv_region_tokens(&l, &l.regions[0], 49), 100);
	CHECK_EQ(vmkv_layout_need_pages(&l, 1, 0), 49);
	CHECK_EQ(vmkv_layout_need_pages(&l, 0, 0), 0);
	vmkv_layout_fini(&l);
}

/* ---- groups together ------------------------------------------------------------------------ */

static void three_policies_side_by_side(struct vmkv_addresses *l, enum vmkv_layout layout)
{
	static struct model m;
	struct vmkv_cache_options options;
	struct vmkv_group *window;

	model_begin(&m);
	model_group(&m, VMKV_POLICY_FULL, 2);
	model_rows(&m, 1000);
	model_rows(&m, 500);
	window = model_plain(&m, VMKV_POLICY_WINDOW, 3, 200);
	window->window_tokens = UINT32_MAX;
	window->slack_tokens = 7;
	model_plain(&m, VMKV_POLICY_STATE, 4, 10);
	options = layout_options(&m, layout, 1000);
	layout_make(l, &options);
	CHECK_EQ(l->token_bytes, 3600);
	CHECK_EQ(l->full_token_bytes, 3000);
	CHECK_EQ(l->fixed_bytes, 40);
	CHECK_EQ(l->group_count, 3);
	CHECK_EQ(l->window_groups, 1);
	CHECK_EQ(l->groups[0].token_bytes, 3000);
	CHECK_EQ(l->groups[1].token_bytes, 600);
	CHECK_EQ(l->groups[2].token_bytes, 0);
	CHECK_EQ(l->groups[1].window_tokens, UINT64_C(0x100000006));
	CHECK_EQ(l->groups[2].first_place, 7);
}

static void groups_follow_each_other(void)
{
	struct vmkv_addresses l;

	three_policies_side_by_side(&l, VMKV_LAYOUT_LAYER);
	CHECK_EQ(l.region_count, 8); /* 2 * 2 + 3 + 1 */
	CHECK_EQ(place_of(&l, 1, 2, 0)->region, 6);
	CHECK_EQ(place_of(&l, 2, 3, 0)->region, 7);
	CHECK(region_of(&l, 1, 0, 0)->window);
	CHECK(!region_of(&l, 0, 1, 1)->window);
	CHECK(!region_of(&l, 2, 0, 0)->window);
	CHECK_EQ(region_of(&l, 1, 0, 0)->group, 1);
	CHECK_EQ(region_of(&l, 2, 0, 0)->group, 2);
	vmkv_layout_fini(&l);
	three_policies_side_by_side(&l, VMKV_LAYOUT_TOKEN);
	CHECK_EQ(l.region_count, 3);
	CHECK_EQ(place_of(&l, 1, 2, 0)->region, 1);
	CHECK_EQ(place_of(&l, 1, 2, 0)->offset, 400);
	CHECK_EQ(region_of(&l, 1, 0, 0)->token_bytes, 600);
	vmkv_layout_fini(&l);
}

/* ---- bounds of mappings --------------------------------------------------------------------- */

static void check_bound(const struct vmkv_cache_options *options, uint32_t group, uint32_t pages,
                        bool aligned)
{
	struct vmkv_addresses l;

	layout_make(&l, options);
	CHECK_EQ(region_of(&l, group, 0, 0)->mapping_max_pages, pages);
	CHECK_EQ(region_of(&l, group, 0, 0)->mapping_aligned, aligned);
	vmkv_layout_fini(&l);
}

static void mappings_are_bounded(void)
{
	struct vmkv_cache_options options;
	struct model m;

	model_begin(&m);
	model_plain(&m, VMKV_POLICY_FULL, 1, 2048);
	model_plain(&m, VMKV_POLICY_WINDOW, 1, 2048)->window_tokens = 128;
	model_plain(&m, VMKV_POLICY_STATE, 1, 2048);
	options = layout_options(&m, VMKV_LAYOUT_LAYER, 1000);
	check_bound(&options, 0, 32, true); /* 2 MiB */
	check_bound(&options, 1, 4, true);  /* 256 KiB */
	check_bound(&options, 2, 32, true);
	options.page_bytes = 2 * MIB;
	check_bound(&options, 0, 1, true);
	check_bound(&options, 1, 1, true);
	options.page_bytes = 64 * KIB;
	options.layout = VMKV_LAYOUT_TOKEN;
	check_bound(&options, 0, 512, false); /* 32 MiB */
	check_bound(&options, 1, 4, true);
	check_bound(&options, 2, 512, true); /* only full groups may cross */
	options.mapping_max_bytes = 200 * KIB; /* rounded down */
	options.window_mapping_max_bytes = 130 * KIB;
	check_bound(&options, 0, 3, false);
	check_bound(&options, 1, 2, true);
	options.mapping_max_bytes = UINT64_MAX;
	check_bound(&options, 0, UINT32_MAX / 2, false);
}

/* ---- lengths -------------------------------------------------------------------------------- */

static void strides_are_the_least_multiple_of_2_mib(void)
{
	struct vmkv_cache_options options;
	struct vmkv_addresses l;
	struct model m;

	model_begin(&m);
	model_plain(&m, VMKV_POLICY_FULL, 1, 1024);
	options = layout_options(&m, VMKV_LAYOUT_LAYER, 2047);
	for (; options.max_tokens < 2050; options.max_tokens++) {
		layout_make(&l, &options);
		CHECK_EQ(l.regions[0].slot_stride, options.max_tokens <= 2048 ? 2 * MIB : 4 * MIB);
		vmkv_layout_fini(&l);
	}
	options.max_tokens = 1;
	layout_make(&l, &options);
	CHECK_EQ(l.regions[0].slot_stride, 2 * MIB);
	vmkv_layout_fini(&l);
}

/* Tokens 0 to 999 in steps of 256: what may be read ends at 256, 512, 768 or 1024. */
static void reads_go_on_to_a_multiple(void)
{
	struct vmkv_cache_options options;
	struct vmkv_addresses l;
	struct model m;

	model_begin(&m);
	model_plain(&m, VMKV_POLICY_FULL, 1, 1000);
	options = layout_options(&m, VMKV_LAYOUT_LAYER, 1000);
	options.read_align_tokens = 256;
	layout_make(&l, &options);
	CHECK_EQ(l.max_tokens, 1000);
	CHECK_EQ(l.reserved_tokens, 1024);
	CHECK_EQ(vmkv_region_pages(&l, &l.regions[0], 0), 0);
	CHECK_EQ(vmkv_region_pages(&l, &l.regions[0], 1), 4);    /* 256,000 bytes */
	CHECK_EQ(vmkv_region_pages(&l, &l.regions[0], 256), 4);
	CHECK_EQ(vmkv_region_pages(&l, &l.regions[0], 257), 8);  /* 512,000 */
	CHECK_EQ(vmkv_region_pages(&l, &l.regions[0], 1000), 16); /* 1,024,000 */
	CHECK_EQ(vmkv_region_tokens(&l, &l.regions[0], 3), 0);   /* 196 whole rows: not enough */
	CHECK_EQ(vmkv_region_tokens(&l, &l.regions[0], 4), 256);
	CHECK_EQ(vmkv_region_tokens(&l, &l.regions[0], 7), 256);
	CHECK_EQ(vmkv_region_tokens(&l, &l.regions[0], 99), 1024);
	vmkv_layout_fini(&l);
}

static void the_longest_sequence(void)
{
	struct vmkv_cache_options options;
	struct vmkv_addresses l;
	struct model m;

	model_begin(&m);
	model_plain(&m, VMKV_POLICY_FULL, 1, 1);
	options = layout_options(&m, VMKV_LAYOUT_LAYER, UINT32_MAX - 1);
	layout_make(&l, &options);
	CHECK_EQ(l.regions[0].slot_stride, 4 * GIB);
	CHECK_EQ(vmkv_region_pages(&l, &l.regions[0], UINT32_MAX - 1), 65536);
	CHECK_EQ(vmkv_region_tokens(&l, &l.regions[0], 65536), UINT32_MAX - 1);
	vmkv_layout_fini(&l);
}

/* ---- windows -------------------------------------------------------------------------------- */

/* Rows of 16 KiB, 4 a page; window 8, slack 2:
 *
 *     length before the step   10 11 12 13 14 ... 17 18
 *     dead tokens               0  1  2  3  4      7  8
 *     wholly dead pages         0  0  0  0  1      1  2
 */
static void a_window_leaves_dead_pages(void)
{
	struct vmkv_cache_options options;
	struct vmkv_group *window;
	struct vmkv_addresses l;
	struct model m;

	model_begin(&m);
	window = model_plain(&m, VMKV_POLICY_WINDOW, 1, 16 * KIB);
	window->window_tokens = 8;
	window->slack_tokens = 2;
	options = layout_options(&m, VMKV_LAYOUT_LAYER, 1000);
	layout_make(&l, &options);
	CHECK_EQ(vmkv_region_dead_pages(&l, &l.regions[0], 0), 0);
	CHECK_EQ(vmkv_region_dead_pages(&l, &l.regions[0], 13), 0);
	CHECK_EQ(vmkv_region_dead_pages(&l, &l.regions[0], 14), 1);
	CHECK_EQ(vmkv_region_dead_pages(&l, &l.regions[0], 17), 1);
	CHECK_EQ(vmkv_region_dead_pages(&l, &l.regions[0], 18), 2);
	CHECK_EQ(vmkv_region_dead_at(&l, &l.regions[0], 1), 14);
	CHECK_EQ(vmkv_region_dead_at(&l, &l.regions[0], 2), 18);
	vmkv_layout_fini(&l);
}

static void other_groups_keep_everything(void)
{
	struct vmkv_addresses l;

	three_policies_side_by_side(&l, VMKV_LAYOUT_LAYER);
	CHECK_EQ(vmkv_region_dead_pages(&l, region_of(&l, 0, 0, 0), 1000), 0);
	CHECK_EQ(vmkv_region_dead_at(&l, region_of(&l, 0, 0, 0), 1), UINT32_MAX);
	CHECK_EQ(vmkv_region_dead_pages(&l, region_of(&l, 2, 0, 0), 1000), 0);
	CHECK_EQ(vmkv_region_dead_at(&l, region_of(&l, 2, 0, 0), 1), UINT32_MAX);
	/* A window of nearly 2^32 tokens and its slack don't wrap around. */
	CHECK_EQ(vmkv_region_dead_pages(&l, region_of(&l, 1, 0, 0), 1000), 0);
	CHECK_EQ(vmkv_region_dead_at(&l, region_of(&l, 1, 0, 0), 1), UINT32_MAX);
	vmkv_layout_fini(&l);
}

int main(void)
{
	RUN(qwen3_8b_by_layer);
	RUN(qwen3_8b_by_token);
	RUN(rows_of_each_dtype);
	RUN(keys_and_values_may_differ);
	RUN(a_latent_is_one_tensor);
	RUN(a_state_lies_together);
	RUN(a_long_state_needs_all_its_pages);
	RUN(groups_follow_each_other);
	RUN(mappings_are_bounded);
	RUN(strides_are_the_least_multiple_of_2_mib);
	RUN(reads_go_on_to_a_multiple);
	RUN(the_longest_sequence);
	RUN(a_window_leaves_dead_pages);
	RUN(other_groups_keep_everything);
	return 0;
}
