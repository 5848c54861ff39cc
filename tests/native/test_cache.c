/* SPDX-License-Identifier: MIT
 *
 * A cache: what it tells of itself, that it takes and leaves nothing, and several at once.
 */
#include "cache_fixture.h"

/* ---- what it tells -------------------------------------------------------------------------- */

static void info_tells_the_options(void)
{
	struct vmkv_cache_info info = { .struct_size = sizeof(info) };
	struct rig r;

	rig_prepare(&r, open_host("host"));
	model_plain(&r.m, VMKV_POLICY_WINDOW, 1, 500)->window_tokens = 16;
	model_plain(&r.m, VMKV_POLICY_STATE, 2, 1000);
	r.options.page_bytes = 8 * KIB;
	r.options.slot_count = 7;
	r.options.read_align_tokens = 256;
	r.options.max_tokens = 1000;
	r.options.layout = VMKV_LAYOUT_TOKEN;
	rig_create(&r);
	CHECK_EQ(vmkv_cache_info(r.cache, &info), 0);
	CHECK_EQ(info.struct_size, sizeof(info));
	CHECK_EQ(info.page_bytes, 8 * KIB);
	CHECK_EQ(info.slab_bytes, 16 * MIB);
	CHECK_EQ(info.bytes_per_token, 2 * ROW + 500);
	CHECK_EQ(info.fixed_bytes, 2000);
	CHECK_EQ(info.reserved_bytes, 7 * (32 + 2 + 2) * MIB);
	CHECK_EQ(info.slot_count, 7);
	CHECK_EQ(info.max_slots, 4);
	CHECK_EQ(info.max_tokens, 1000);
	CHECK_EQ(info.read_align_tokens, 256);
	CHECK_EQ(info.layout, VMKV_LAYOUT_TOKEN);
	CHECK_EQ(info.group_count, 3);
	rig_end(&r);
}

static void zero_means_the_default(void)
{
	struct vmkv_cache_info info = { .struct_size = sizeof(info) };
	struct rig r;

	rig_prepare(&r, open_host("host"));
	r.options.slab_bytes = 0;
	rig_create(&r);
	CHECK_EQ(vmkv_cache_info(r.cache, &info), 0);
	CHECK_EQ(info.page_bytes, 64 * KIB);
	CHECK_EQ(info.slab_bytes, 64 * MIB);
	CHECK_EQ(info.slot_count, 8); /* 2 * max_slots */
	CHECK_EQ(info.read_align_tokens, 1);
	CHECK_EQ(info.layout, VMKV_LAYOUT_LAYER);
	rig_end(&r);
}

static void the_geometry_is_copied(void)
{
	struct vmkv_cache_info info = { .struct_size = sizeof(info) };
	struct rig r;
	vmkv_seq seq;

	rig_prepare(&r, open_host("host"));
	rig_create(&r);
	memset(&r.m, 0xff, sizeof(r.m));
	memset(&r.options, 0xff, sizeof(r.options));
	CHECK_EQ(vmkv_cache_info(r.cache, &info), 0);
	CHECK_EQ(info.bytes_per_token, 2 * ROW);
	seq = seq_of(&r, 100);
	CHECK_EQ(span_of(&r, seq, 0, 1, 0).row_bytes, ROW);
	rig_end(&r);
}

static void need_bytes_are_what_a_sequence_maps(void)
{
	static const uint32_t lengths[] = { 0, 1, 4, 5, 128, 129, 1024 };
	struct rig r;

	rig_begin(&r);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		uint64_t bytes = 77;

		CHECK_EQ(vmkv_cache_need_bytes(r.cache, lengths[i], 0, &bytes), 0);
		CHECK_EQ(bytes, mapped_by(lengths[i]));
		CHECK_EQ(vmkv_cache_need_bytes(r.cache, lengths[i], 3, &bytes), 0);
		CHECK_EQ(bytes, mapped_by(lengths[i]));
	}
	rig_end(&r);
}

static void need_bytes_past_max_tokens(void)
{
	struct rig r;
	uint64_t bytes = 77;

	rig_begin(&r);
	CHECK_EQ(vmkv_cache_need_bytes(r.cache, 1025, 0, &bytes), -ERANGE);
	CHECK_TEXT(&r, "1025 tokens is past max_tokens 1024");
	CHECK_EQ(bytes, 77);
	CHECK_EQ(vmkv_cache_need_bytes(NULL, 1, 0, &bytes), -EINVAL);
	CHECK_EQ(vmkv_cache_need_bytes(r.cache, 1, 0, NULL), -EINVAL);
	rig_end(&r);
}

static void the_error_text_is_kept(void)
{
	struct rig r;
	char little[8];

	rig_begin(&r);
	CHECK_EQ(vmkv_cache_error(r.cache, NULL, 0), 0);
	CHECK_EQ(vmkv_seq_close(r.cache, 0, 0), -ESTALE);
	CHECK_EQ(vmkv_cache_error(r.cache, NULL, 0), strlen("0 is not a sequence"));
	CHECK_EQ(vmkv_cache_error(r.cache, little, sizeof(little)), strlen("0 is not a sequence"));
	CHECK_STR(little, "0 is no");
	seq_open(&r);
	CHECK_TEXT(&r, "0 is not a sequence"); /* success doesn't touch it */
	CHECK_EQ(vmkv_cache_error(NULL, little, sizeof(little)), 0);
	rig_end(&r);
}

/* ---- what it takes -------------------------------------------------------------------------- */

static void a_new_cache_takes_no_memory(void)
{
	struct vmkv_stats s;
	struct rig r;

	rig_begin(&r);
	seq_open(&r);
	s = stats_of(&r);
	CHECK_EQ(held_bytes(r.device), 0);
	CHECK_EQ(s.slab_bytes, 0);
	CHECK_EQ(s.slabs, 0);
	CHECK_EQ(s.mapped_bytes, 0);
	CHECK_EQ(s.mappings, 0);
	CHECK_EQ(s.map_calls + s.unmap_calls + s.fill_calls + s.slab_calls, 0);
	CHECK_EQ(s.budget_bytes, 64 * MIB);
	CHECK_EQ(s.reserved_bytes, 8 * 2 * 16 * MIB);
	CHECK_EQ(s.sequences, 1);
	CHECK(s.table_bytes > 0);
	rig_end(&r);
}

/* Open, retiring and warm sequences are all there when the cache goes. */
static void destroy_gives_everything_back(void)
{
	struct vmkv_device_info info = { .struct_size = sizeof(info) };
	struct vmkv_span span;
	struct rig r;
	vmkv_seq warm, retiring;

	rig_begin(&r);
	warm = seq_of(&r, 10);
	retiring = seq_of(&r, 300);
	seq_close(&r, warm, 0);
	seq_close(&r, retiring, 9);
	span = span_of(&r, seq_of(&r, 500), 0, 0, 0);
	memset(host_pointer(span.address), 1, 500 * ROW);
	CHECK(held_bytes(r.device) > 0);
	CHECK_EQ(vmkv_device_close(r.device), -EBUSY);
	CHECK_CONTAINS(last_error(r.device), "caches still use the device (1)");
	vmkv_cache_destroy(r.cache);
	CHECK_EQ(held_bytes(r.device), 0);
	CHECK_EQ(vmkv_device_info(r.device, &info), 0);
	CHECK_EQ(info.mappings, 0);
	CHECK_EQ(vmkv_device_close(r.device), 0);
	vmkv_cache_destroy(NULL);
}

/* ---- several -------------------------------------------------------------------------------- */

static void fill_rows(struct rig *r, vmkv_seq seq, uint32_t value)
{
	struct vmkv_span span = span_of(r, seq, 0, 1, 0);

	CHECK_EQ(vmkv_fill(r->device, span.address, span.live_tokens * span.row_bytes, value, NULL),
	         0);
}

static void check_rows(struct rig *r, vmkv_seq seq, uint32_t value)
{
	struct vmkv_span span = span_of(r, seq, 0, 1, 0);
	volatile uint32_t *at = words(span.address);

	for (uint64_t i = 0; i < span.live_tokens * span.row_bytes / 4; i += 1024)
		CHECK_EQ(at[i], value);
}

static void caches_of_one_device_keep_apart(void)
{
	struct rig a, b;
	vmkv_seq seq_a, seq_b;

	rig_begin(&a);
	rig_prepare(&b, a.device);
	b.options.layout = VMKV_LAYOUT_TOKEN;
	rig_create(&b);
	seq_a = seq_of(&a, 300);
	seq_b = seq_of(&b, 200);
	fill_rows(&a, seq_a, 0xaaaaaaaa);
	CHECK_EQ(vmkv_fill(b.device, span_of(&b, seq_b, 0, 0, 0).address, 200 * 2 * ROW, 0xbbbbbbbb,
	                   NULL),
	         0);
	check_rows(&a, seq_a, 0xaaaaaaaa);
	CHECK_EQ(*words(span_of(&b, seq_b, 0, 1, 0).address + 199 * 2 * ROW), 0xbbbbbbbb);
	vmkv_cache_destroy(b.cache);
	check_rows(&a, seq_a, 0xaaaaaaaa);
	rig_end(&a);
}

static void a_sequence_is_of_its_cache(void)
{
	struct rig a, b;
	vmkv_seq seq;

	rig_begin(&a);
	rig_prepare(&b, a.device);
	rig_create(&b);
	seq = seq_open(&a);
	seq_open(&b); /* in the same slot */
	CHECK_EQ(vmkv_seq_close(b.cache, seq, 0), -ESTALE);
	CHECK_TEXT(&b, "is not of this cache");
	CHECK_EQ(try_step(&b, seq, 5, 0), -ESTALE);
	CHECK_EQ(stats_of(&b).sequences, 1);
	step(&a, seq, 5);
	vmkv_cache_destroy(b.cache);
	rig_end(&a);
}

static void devices_keep_apart(void)
{
	struct rig a, b;
	vmkv_seq seq_a, seq_b;

	rig_begin(&a);
	rig_begin(&b);
	seq_a = seq_of(&a, 64);
	seq_b = seq_of(&b, 64);
	fill_rows(&a, seq_a, 1);
	fill_rows(&b, seq_b, 2);
	rig_end(&b);
	check_rows(&a, seq_a, 1);
	rig_end(&a);
}

/* The device's bound is for all of its caches together. */
static void caches_share_the_devices_memory(void)
{
	struct rig a, b;
	vmkv_seq seq;

	rig_prepare(&a, open_host("host?memory=32MiB"));
	rig_create(&a);
	rig_prepare(&b, a.device);
	rig_create(&b);
	seq_of(&a, 512); /* 16 MiB: one slab */
	seq = seq_of(&b, 512);
	CHECK_EQ(try_step(&b, seq, 513, 0), -ENOSPC);
	CHECK_EQ(stats_of(&b).slab_bytes, 16 * MIB);
	vmkv_cache_destroy(a.cache);
	retire(&b, 0); /* it doesn't ask again at every step */
	step(&b, seq, 513);
	CHECK_EQ(stats_of(&b).slab_bytes, 32 * MIB);
	rig_end(&b);
}

int main(void)
{
	RUN(info_tells_the_options);
	RUN(zero_means_the_default);
	RUN(the_geometry_is_copied);
	RUN(need_bytes_are_what_a_sequence_maps);
	RUN(need_bytes_past_max_tokens);
	RUN(the_error_text_is_kept);
	RUN(a_new_cache_takes_no_memory);
	RUN(destroy_gives_everything_back);
	RUN(caches_of_one_device_keep_apart);
	RUN(a_sequence_is_of_its_cache);
	RUN(devices_keep_apart);
	RUN(caches_share_the_devices_memory);
	return 0;
}
