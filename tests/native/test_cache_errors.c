/* SPDX-License-Identifier: MIT
 *
 * What vmkv_cache_create refuses, and which structs the functions take. Texts say what was wrong
 * and what would be right.
 */
#include "cache_fixture.h"

/* ---- options out of their range ------------------------------------------------------------- */

/* Refused with both parts in the text, and nothing is left on the device. */
static void check_refused(struct rig *r, int error, const char *part, const char *other_part)
{
	vmkv_cache *before = r->cache;

	CHECK_EQ(vmkv_cache_create(r->device, &r->options, &r->cache), error);
	CHECK(r->cache == before); /* not written */
	CHECK_CONTAINS(r->text, part);
	CHECK_CONTAINS(r->text, other_part);
	CHECK_EQ(atomic_load(&r->device->caches), 0);
	r->options.error = NULL;
	CHECK_EQ(vmkv_cache_create(r->device, &r->options, &r->cache), error);
	CHECK_EQ(vmkv_device_close(r->device), 0);
}

#define REFUSED(field, value, error, part, other_part)                                             \
	do {                                                                                       \
		struct rig r_;                                                                     \
		rig_prepare(&r_, open_host("host"));                                               \
		r_.options.field = value;                                                          \
		check_refused(&r_, error, part, other_part);                                       \
	} while (0)

static void pages_of_a_wrong_size(void)
{
	const char *right = "power of two from the device's granule, 4096, to 2097152";

	REFUSED(page_bytes, 1, -EINVAL, "page_bytes 1 ", right);
	REFUSED(page_bytes, 2048, -EINVAL, "page_bytes 2048", right);
	REFUSED(page_bytes, 3 * 4096, -EINVAL, "page_bytes 12288", right);
	REFUSED(page_bytes, 4 * MIB, -EINVAL, "page_bytes 4194304", right);
	REFUSED(page_bytes, UINT64_MAX, -EINVAL, "page_bytes 18446744073709551615", right);
	REFUSED(page_bytes, UINT64_C(1) << 63, -EINVAL, "page_bytes 9223372036854775808", right);
}

static void slabs_of_a_wrong_size(void)
{
	REFUSED(slab_bytes, MIB, -EINVAL, "slab_bytes 1048576", "a multiple of 2097152");
	REFUSED(slab_bytes, 2 * MIB + 1, -EINVAL, "slab_bytes 2097153", "a multiple of 2097152");
	REFUSED(slab_bytes, UINT64_C(1) << 41, -EINVAL, "slab_bytes 2199023255552", "2^40");
}

static void budgets_out_of_range(void)
{
	REFUSED(budget_bytes, 0, -EINVAL, "a budget of 0 bytes", "2 spans x 65536 bytes = 131072");
	REFUSED(budget_bytes, 131071, -EINVAL, "a budget of 131071 bytes",
	        "one page for every span of a sequence");
	REFUSED(budget_bytes, UINT64_MAX, -EOVERFLOW, "a budget of 18446744073709551615 bytes",
	        "raise page_bytes");
}

static void the_least_budget_is_a_page_for_every_span(void)
{
	struct rig r;
	vmkv_seq seq;

	rig_prepare(&r, open_host("host"));
	r.options.budget_bytes = 2 * PAGE;
	rig_create(&r);
	seq = seq_of(&r, 4);
	CHECK_EQ(try_step(&r, seq, 5, 0), -ENOSPC);
	CHECK_EQ(stats_of(&r).slab_bytes, 2 * PAGE);
	rig_end(&r);
}

static void slots_out_of_range(void)
{
	REFUSED(max_slots, 0, -EINVAL, "max_slots 0", "between 1 and 524288");
	REFUSED(max_slots, 524289, -EINVAL, "max_slots 524289", "between 1 and 524288");
	REFUSED(max_slots, UINT32_MAX, -EINVAL, "max_slots 4294967295", "between 1 and 524288");
	REFUSED(slot_count, 3, -EINVAL, "slot_count 3", "less than max_slots 4");
	REFUSED(slot_count, 1048577, -EINVAL, "slot_count 1048577", "more than 1048576");
}

static void lengths_out_of_range(void)
{
	REFUSED(max_tokens, 0, -EINVAL, "max_tokens", "at least 1");
	REFUSED(max_tokens, UINT32_MAX, -EOVERFLOW, "max_tokens 4294967295", "4294967294");
	REFUSED(read_align_tokens, UINT32_MAX, -EOVERFLOW, "read_align_tokens 4294967295",
	        "max_tokens");
}

static void mappings_shorter_than_a_page(void)
{
	REFUSED(mapping_max_bytes, 65535, -EINVAL, "mapping_max_bytes 65535", "less than a page");
	REFUSED(window_mapping_max_bytes, 1, -EINVAL, "window_mapping_max_bytes 1",
	        "less than a page");
}

static void values_of_no_enum(void)
{
	REFUSED(layout, 2, -EINVAL, "layout 2", "enum vmkv_layout");
	REFUSED(zero, 2, -EINVAL, "zero 2", "enum vmkv_zero");
}

static void more_addresses_than_there_are(void)
{
	struct rig r;

	rig_prepare(&r, open_host("host"));
	r.m.tensors[0][0].row_bytes = UINT64_C(1) << 30; /* 2^40 a span, 2^49 in all */
	r.options.slot_count = 256;
	check_refused(&r, -EOVERFLOW, "562949953421312 bytes of addresses",
	              "256 slots of 1024 tokens");
	rig_prepare(&r, open_host("host"));
	r.m.tensors[0][0].row_bytes = UINT64_C(1) << 37; /* 2^47 a span, 2^64 in all */
	r.options.page_bytes = 2 * MIB;
	r.options.slot_count = 1 << 16;
	check_refused(&r, -EOVERFLOW, "65536 slots of 1024 tokens",
	              "lower max_tokens or slot_count");
}

static void a_geometry_of_nothing(void)
{
	struct rig r;

	REFUSED(geometry, NULL, -EINVAL, "geometry", "missing");
	rig_prepare(&r, open_host("host"));
	r.m.geometry.group_count = 0;
	check_refused(&r, -EINVAL, "geometry", "1 to 65535 groups");
	rig_prepare(&r, open_host("host"));
	r.m.geometry.group_count = 65536;
	check_refused(&r, -EINVAL, "geometry", "1 to 65535 groups");
	rig_prepare(&r, open_host("host"));
	r.m.geometry.groups = NULL;
	check_refused(&r, -EINVAL, "geometry", "groups");
	rig_prepare(&r, open_host("host"));
	r.m.groups[0].layers = 0;
	check_refused(&r, -EINVAL, "group 0", "at least one layer");
}

/* ---- structs of other headers --------------------------------------------------------------- */

static void options_without_struct_size(void)
{
	struct vmkv_cache_options options = { .struct_size = 0 };
	vmkv_device *device = open_host("host");
	vmkv_cache *cache = NULL;

	CHECK_EQ(vmkv_cache_create(device, NULL, &cache), -EINVAL);
	CHECK_EQ(vmkv_cache_create(device, &options, &cache), -EINVAL);
	options.struct_size = sizeof(size_t) - 1;
	CHECK_EQ(vmkv_cache_create(device, &options, &cache), -EINVAL);
	options.struct_size = sizeof(size_t); /* no geometry */
	CHECK_EQ(vmkv_cache_create(device, &options, &cache), -EINVAL);
	CHECK(!cache);
	CHECK_EQ(vmkv_device_close(device), 0);
}

static void options_of_an_older_header(void)
{
	struct rig r;

	rig_prepare(&r, open_host("host"));
	r.options.struct_size = offsetof(struct vmkv_cache_options, read_align_tokens);
	r.options.read_align_tokens = 77; /* behind the end */
	r.options.zero = 99;
	r.options.warm_max_bytes = VMKV_WARM_OFF;
	rig_create(&r);
	seq_close(&r, seq_of(&r, 4), 0);
	CHECK_EQ(stats_of(&r).warm_bytes, 2 * PAGE);
	rig_end(&r);
}

struct longer_options {
	struct vmkv_cache_options known;
	uint64_t unknown;
};

static void options_of_a_newer_header(void)
{
	struct longer_options longer = { .unknown = 1 };
	vmkv_cache *cache = NULL;
	struct rig r;

	rig_prepare(&r, open_host("host"));
	longer.known = r.options;
	longer.known.struct_size = sizeof(longer);
	CHECK_EQ(vmkv_cache_create(r.device, &longer.known, &cache), -E2BIG);
	CHECK_CONTAINS(r.text, "doesn't know");
	longer.unknown = 0;
	CHECK_EQ(vmkv_cache_create(r.device, &longer.known, &cache), 0);
	vmkv_cache_destroy(cache);
	CHECK_EQ(vmkv_device_close(r.device), 0);
}

static void geometries_of_other_headers(void)
{
	struct {
		struct vmkv_geometry known;
		uint64_t unknown;
	} longer = { .unknown = 1 };
	struct rig r;

	rig_prepare(&r, open_host("host"));
	longer.known = r.m.geometry;
	longer.known.struct_size = sizeof(longer);
	r.options.geometry = &longer.known;
	CHECK_EQ(rig_try_create(&r), -E2BIG);
	CHECK_CONTAINS(r.text, "geometry");
	longer.unknown = 0;
	rig_create(&r);
	vmkv_cache_destroy(r.cache);
	r.options.geometry = &r.m.geometry;
	r.m.geometry.reserved = 1;
	CHECK_EQ(rig_try_create(&r), -E2BIG);
	r.m.geometry.struct_size = offsetof(struct vmkv_geometry, reserved);
	rig_create(&r);
	vmkv_cache_destroy(r.cache);
	r.m.geometry.struct_size = 0;
	check_refused(&r, -EINVAL, "geometry", "struct_size");
}

/* Every struct that is filled in is so as far as it reaches, and zero beyond what is known. */
#define CHECK_FILLED(type, call)                                                                   \
	do {                                                                                       \
		struct {                                                                           \
			struct type known;                                                         \
			uint64_t beyond[2];                                                        \
		} whole_, short_;                                                                  \
		struct type *ret = &whole_.known;                                                  \
		size_t half_ = (sizeof(struct type) / 2 + 7) / 8 * 8;                              \
		memset(&whole_, 0xee, sizeof(whole_));                                             \
		memset(&short_, 0xee, sizeof(short_));                                             \
		whole_.known.struct_size = sizeof(whole_);                                         \
		CHECK_EQ(call, 0);                                                                 \
		CHECK_EQ(whole_.known.struct_size, sizeof(whole_));                                \
		CHECK_EQ(whole_.beyond[0] | whole_.beyond[1], 0);                                  \
		ret = &short_.known;                                                               \
		short_.known.struct_size = half_;                                                  \
		CHECK_EQ(call, 0);                                                                 \
		CHECK(!memcmp((char *)&short_ + 8, (char *)&whole_ + 8, half_ - 8));               \
		CHECK_EQ(((unsigned char *)&short_)[half_], 0xee);                                 \
		short_.known.struct_size = sizeof(size_t) - 1;                                     \
		CHECK_EQ(call, -EINVAL);                                                           \
		ret = NULL;                                                                        \
		CHECK_EQ(call, -EINVAL);                                                           \
	} while (0)

static void outputs_are_filled_as_far_as_they_reach(void)
{
	struct rig r;
	vmkv_seq seq;

	rig_begin(&r);
	seq = seq_of(&r, 10);
	CHECK_FILLED(vmkv_cache_info, vmkv_cache_info(r.cache, ret));
	CHECK_FILLED(vmkv_stats, vmkv_cache_stats(r.cache, ret));
	CHECK_FILLED(vmkv_span, vmkv_span(r.cache, seq, 0, 0, 0, ret));
	CHECK_FILLED(vmkv_device_info, vmkv_device_info(r.device, ret));
	rig_end(&r);
}

/* ---- nothing where something must be -------------------------------------------------------- */

static void a_cache_needs_a_device_and_a_place(void)
{
	struct rig r;
	vmkv_cache *cache = NULL;

	rig_prepare(&r, open_host("host"));
	CHECK_EQ(vmkv_cache_create(NULL, &r.options, &cache), -EINVAL);
	CHECK_CONTAINS(r.text, "a device and a place");
	CHECK_EQ(vmkv_cache_create(r.device, &r.options, NULL), -EINVAL);
	CHECK_EQ(vmkv_device_close(r.device), 0);
}

static void no_cache(void)
{
	struct vmkv_step_request request = { .struct_size = sizeof(request) };
	struct vmkv_cache_info info = { .struct_size = sizeof(info) };
	struct vmkv_stats stats = { .struct_size = sizeof(stats) };
	struct vmkv_span span = { .struct_size = sizeof(span) };
	struct vmkv_mapping mapping;
	vmkv_seq seq;
	size_t n;

	CHECK_EQ(vmkv_cache_info(NULL, &info), -EINVAL);
	CHECK_EQ(vmkv_cache_stats(NULL, &stats), -EINVAL);
	CHECK_EQ(vmkv_cache_set_budget(NULL, GIB), -EINVAL);
	CHECK_EQ(vmkv_cache_shrink(NULL, 0, NULL), -EINVAL);
	CHECK_EQ(vmkv_seq_open(NULL, NULL, &seq), -EINVAL);
	CHECK_EQ(vmkv_seq_close(NULL, 1, 0), -EINVAL);
	CHECK_EQ(vmkv_step(NULL, &request, NULL), -EINVAL);
	CHECK_EQ(vmkv_retire(NULL, 0), -EINVAL);
	CHECK_EQ(vmkv_span(NULL, 1, 0, 0, 0, &span), -EINVAL);
	CHECK_EQ(vmkv_seq_mappings(NULL, 1, 0, 0, 0, &mapping, 1, &n), -EINVAL);
	CHECK(!vmkv_ready_tokens(NULL));
}

int main(void)
{
	RUN(pages_of_a_wrong_size);
	RUN(slabs_of_a_wrong_size);
	RUN(budgets_out_of_range);
	RUN(the_least_budget_is_a_page_for_every_span);
	RUN(slots_out_of_range);
	RUN(lengths_out_of_range);
	RUN(mappings_shorter_than_a_page);
	RUN(values_of_no_enum);
	RUN(more_addresses_than_there_are);
	RUN(a_geometry_of_nothing);
	RUN(options_without_struct_size);
	RUN(options_of_an_older_header);
	RUN(options_of_a_newer_header);
	RUN(geometries_of_other_headers);
	RUN(outputs_are_filled_as_far_as_they_reach);
	RUN(a_cache_needs_a_device_and_a_place);
	RUN(no_cache);
	return 0;
}
