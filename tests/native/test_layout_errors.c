/* SPDX-License-Identifier: MIT
 *
 * Layout: what is refused, and that the text says what was wrong and what would be right.
 */
#include <errno.h>

#include "layout_fixture.h"

/* A model with one group of each policy, and options for it, to be spoilt by a test. */
struct spoilt {
	struct model m;
	struct vmkv_cache_options options;
};

static void begin(struct spoilt *s)
{
	model_begin(&s->m);
	model_group(&s->m, VMKV_POLICY_FULL, 4);
	model_tensor(&s->m, VMKV_DTYPE_F16, 8, 128);
	model_tensor(&s->m, VMKV_DTYPE_F16, 8, 128);
	model_plain(&s->m, VMKV_POLICY_WINDOW, 2, 1024)->window_tokens = 128;
	model_plain(&s->m, VMKV_POLICY_STATE, 2, 1024);
	s->options = layout_options(&s->m, VMKV_LAYOUT_LAYER, 1000);
}

/* In both layouts: refused, nothing is left, and `parts` of the text are there. */
static void check_refused(struct spoilt *s, int error, const char *part, const char *other_part)
{
	for (uint32_t layout = VMKV_LAYOUT_LAYER; layout <= VMKV_LAYOUT_TOKEN; layout++) {
		static const struct vmkv_addresses nothing;
		struct vmkv_addresses l;
		char text[256] = "";

		s->options.layout = layout;
		CHECK_EQ(vmkv_layout_init(&l, &s->options, text, sizeof(text)), error);
		CHECK_CONTAINS(text, part);
		CHECK_CONTAINS(text, other_part);
		CHECK(!memcmp(&l.regions, &nothing.regions, sizeof(l.regions)));
		CHECK(!l.places);
		CHECK(!l.groups);
		CHECK_EQ(vmkv_layout_init(&l, &s->options, NULL, 0), error);
	}
}

/* ---- rows ----------------------------------------------------------------------------------- */

static void an_unknown_dtype(void)
{
	struct spoilt s;

	begin(&s);
	s.m.tensors[0][1].dtype = 6;
	check_refused(&s, -EINVAL, "group 0, tensor 1: dtype 6", "enum vmkv_dtype");
}

static void a_q8_row_of_part_of_a_block(void)
{
	struct spoilt s;

	begin(&s);
	s.m.tensors[0][0] = (struct vmkv_tensor){ VMKV_DTYPE_Q8_0, 5, 8, 0, 0 };
	check_refused(&s, -EINVAL, "multiple of 32 elements, not 40", "group 0, tensor 0");
	s.m.tensors[0][0].row_bytes = 4096; /* which doesn't help */
	check_refused(&s, -EINVAL, "multiple of 32 elements, not 40", "group 0, tensor 0");
}

static void row_bytes_too_few(void)
{
	struct spoilt s;

	begin(&s);
	s.m.tensors[0][1].row_bytes = 2047;
	check_refused(&s, -EINVAL, "row_bytes 2047", "less than the 2048 bytes");
	s.m.tensors[0][1].dtype = VMKV_DTYPE_Q8_0;
	s.m.tensors[0][1].row_bytes = 1087;
	check_refused(&s, -EINVAL, "row_bytes 1087", "less than the 1088 bytes");
}

static void a_tensor_of_nothing(void)
{
	struct spoilt s;

	begin(&s);
	s.m.tensors[1][0].row_bytes = 0;
	check_refused(&s, -EINVAL, "group 1, tensor 0", "heads, head_dim and dtype, or row_bytes");
	begin(&s);
	s.m.tensors[0][0].heads = 0;
	check_refused(&s, -EINVAL, "group 0, tensor 0", "heads, head_dim and dtype, or row_bytes");
}

static void rows_past_the_bound(void)
{
	struct spoilt s;

	begin(&s);
	s.m.tensors[1][0].row_bytes = (UINT64_C(1) << 40) + 1;
	check_refused(&s, -EOVERFLOW, "a row of 1099511627777 bytes", "2^40");
	begin(&s);
	s.m.tensors[0][0].heads = 1 << 20;
	s.m.tensors[0][0].head_dim = 1 << 20;
	check_refused(&s, -EOVERFLOW, "a row of 2199023255552 bytes", "2^40");
}

/* Products that come out small, or 0, modulo 2^64. */
static void rows_past_64_bits(void)
{
	static const struct {
		uint32_t dtype, heads, head_dim;
	} wrapping[] = {
		{ VMKV_DTYPE_F32, UINT32_C(1) << 31, UINT32_C(1) << 31 },
		{ VMKV_DTYPE_F32, (UINT32_C(1) << 31) + 1, UINT32_C(1) << 31 },
		{ VMKV_DTYPE_BF16, UINT32_MAX, UINT32_MAX },
		{ VMKV_DTYPE_Q8_0, UINT32_MAX - 31, UINT32_MAX - 31 },
	};

	for (size_t i = 0; i < sizeof(wrapping) / sizeof(*wrapping); i++) {
		struct spoilt s;

		begin(&s);
		s.m.tensors[0][0].dtype = wrapping[i].dtype;
		s.m.tensors[0][0].heads = wrapping[i].heads;
		s.m.tensors[0][0].head_dim = wrapping[i].head_dim;
		check_refused(&s, -EOVERFLOW, "a row of", "2^40");
	}
}

/* ---- groups --------------------------------------------------------------------------------- */

static void an_unknown_policy(void)
{
	struct spoilt s;

	begin(&s);
	s.m.groups[2].policy = 3;
	check_refused(&s, -EINVAL, "group 2: policy 3", "enum vmkv_policy");
}

static void a_group_of_nothing(void)
{
	struct spoilt s;

	begin(&s);
	s.m.groups[1].layers = 0;
	check_refused(&s, -EINVAL, "group 1", "at least one layer and one tensor");
	begin(&s);
	s.m.groups[0].tensor_count = 0;
	check_refused(&s, -EINVAL, "group 0", "at least one layer and one tensor");
	begin(&s);
	s.m.groups[2].tensors = NULL;
	check_refused(&s, -EINVAL, "group 2", "at least one layer and one tensor");
}

static void windows_where_they_belong(void)
{
	struct spoilt s;

	begin(&s);
	s.m.groups[1].window_tokens = 0;
	check_refused(&s, -EINVAL, "group 1", "window_tokens of at least 1");
	begin(&s);
	s.m.groups[0].window_tokens = 5;
	check_refused(&s, -EINVAL, "group 0", "go with VMKV_POLICY_WINDOW");
	begin(&s);
	s.m.groups[2].slack_tokens = 5;
	check_refused(&s, -EINVAL, "group 2", "go with VMKV_POLICY_WINDOW");
}

static void too_many_layers(void)
{
	struct spoilt s;

	begin(&s);
	s.m.groups[0].layers = UINT32_MAX; /* times 2 */
	check_refused(&s, -EOVERFLOW, "group 0: more than 65536", "layers x tensors");
	s.m.groups[0].layers = 32769;
	check_refused(&s, -EOVERFLOW, "group 0: more than 65536", "layers x tensors");
	s.m.groups[0].layers = 32767; /* the others have 4 */
	check_refused(&s, -EOVERFLOW, "more than 65536 layers x tensors", "in all");
}

static void fields_of_a_newer_header(void)
{
	struct spoilt s;

	begin(&s);
	s.m.groups[1].reserved = 1;
	check_refused(&s, -E2BIG, "group 1", "doesn't know");
	begin(&s);
	s.m.tensors[0][1].reserved = 1;
	check_refused(&s, -E2BIG, "group 0, tensor 1", "doesn't know");
}

/* ---- struct_size is the stride of the groups ------------------------------------------------ */

struct longer_group {
	struct vmkv_group known;
	uint64_t unknown;
};

static void longer_groups(void)
{
	struct longer_group groups[2] = { 0 };
	struct vmkv_addresses l;
	struct spoilt s;

	begin(&s);
	for (int i = 0; i < 2; i++) {
		groups[i].known = s.m.groups[i];
		groups[i].known.struct_size = sizeof(groups[i]);
	}
	s.m.geometry.groups = &groups[0].known;
	s.m.geometry.group_count = 2;
	layout_make(&l, &s.options);
	CHECK_EQ(l.group_count, 2);
	CHECK_EQ(l.groups[1].policy, VMKV_POLICY_WINDOW);
	CHECK_EQ(l.groups[1].layers, 2);
	vmkv_layout_fini(&l);
	groups[1].unknown = 1;
	check_refused(&s, -E2BIG, "group 1", "doesn't know");
	groups[1].unknown = 0;
	groups[1].known.struct_size = sizeof(groups[1].known);
	check_refused(&s, -EINVAL, "group 1", "struct_size");
}

/* An older header's, which ends behind tensor_count: no windows. */
static void shorter_groups(void)
{
	enum { SHORT = offsetof(struct vmkv_group, window_tokens) };
	_Static_assert(SHORT % _Alignof(struct vmkv_group) == 4, "padded to the alignment below");
	_Alignas(struct vmkv_group) char bytes[2 * (SHORT + 4)];
	struct vmkv_addresses l;
	struct spoilt s;

	begin(&s);
	for (int i = 0; i < 2; i++) {
		struct vmkv_group group = s.m.groups[0];

		group.layers = (uint32_t)i + 1;
		group.struct_size = SHORT + 4;
		memcpy(bytes + i * (SHORT + 4), &group, SHORT + 4);
	}
	s.m.geometry.groups = (const struct vmkv_group *)(const void *)bytes;
	s.m.geometry.group_count = 2;
	layout_make(&l, &s.options);
	CHECK_EQ(l.groups[0].layers, 1);
	CHECK_EQ(l.groups[1].layers, 2);
	CHECK_EQ(l.groups[1].window_tokens, 0);
	vmkv_layout_fini(&l);
}

static void a_struct_size_of_nothing(void)
{
	struct spoilt s;

	begin(&s);
	s.m.groups[0].struct_size = 0;
	check_refused(&s, -EINVAL, "group 0", "struct_size");
	s.m.groups[0].struct_size = sizeof(size_t) - 1;
	check_refused(&s, -EINVAL, "group 0", "struct_size");
}

/* ---- lengths -------------------------------------------------------------------------------- */

static void too_many_slots(void)
{
	struct vmkv_addresses l;
	struct spoilt s;

	begin(&s);
	s.options.slot_count = 1 << 20;
	layout_make(&l, &s.options);
	vmkv_layout_fini(&l);
	s.options.slot_count++;
	check_refused(&s, -EINVAL, "slot_count 1048577", "more than 1048576");
}

static void lengths_past_32_bits(void)
{
	struct spoilt s;

	begin(&s);
	s.options.max_tokens = UINT32_MAX;
	check_refused(&s, -EOVERFLOW, "max_tokens 4294967295", "more than 4294967294");
	s.options.max_tokens = (UINT32_C(1) << 31) + 1;
	s.options.read_align_tokens = UINT32_C(1) << 31;
	check_refused(&s, -EOVERFLOW, "max_tokens 2147483649", "read_align_tokens 2147483648");
	s.options.max_tokens = 1;
	s.options.read_align_tokens = UINT32_MAX;
	check_refused(&s, -EOVERFLOW, "max_tokens 1", "read_align_tokens 4294967295");
}

/* Pages of a span are numbered with 31 bits: 128 TiB of 64 KiB. */
static void spans_past_their_page_numbers(void)
{
	struct spoilt s;

	begin(&s);
	s.m.geometry.group_count = 1;
	s.m.groups[0].layers = 1;
	s.m.groups[0].tensor_count = 1;
	s.m.tensors[0][0].row_bytes = 64 * KIB;
	s.options.max_tokens = UINT32_C(1) << 31;
	check_refused(&s, -EOVERFLOW, "2147483648 tokens x 65536 bytes", "lower max_tokens");
	s.m.tensors[0][0].row_bytes = UINT64_C(1) << 40; /* 2^71 bytes */
	check_refused(&s, -EOVERFLOW, "2147483648 tokens x 1099511627776 bytes",
	              "raise page_bytes");
}

static void states_past_their_page_numbers(void)
{
	struct spoilt s;

	begin(&s);
	s.m.groups[2].layers = 200;
	s.m.tensors[2][0].row_bytes = UINT64_C(1) << 40;
	check_refused(&s, -EOVERFLOW, "a state of 219902325555200 bytes", "raise page_bytes");
}

static void addresses_past_64_bits(void)
{
	struct spoilt s;

	begin(&s);
	s.m.geometry.group_count = 1;
	s.m.groups[0].layers = 1;
	s.m.groups[0].tensor_count = 1;
	s.m.tensors[0][0].row_bytes = UINT64_C(1) << 40;
	s.options.max_tokens = 64;
	s.options.slot_count = 1 << 18; /* 2^46 * 2^18: exactly too many */
	check_refused(&s, -EOVERFLOW, "262144 slots of 64 tokens pass 64 bits",
	              "lower max_tokens or slot_count");
	s.options.slot_count = (1 << 18) - 1; /* once, but not twice */
	s.m.groups[0].layers = 2;
	s.options.max_tokens = 63;
	check_refused(&s, -EOVERFLOW, "pass 64 bits", "lower max_tokens or slot_count");
}

int main(void)
{
	RUN(an_unknown_dtype);
	RUN(a_q8_row_of_part_of_a_block);
	RUN(row_bytes_too_few);
	RUN(a_tensor_of_nothing);
	RUN(rows_past_the_bound);
	RUN(rows_past_64_bits);
	RUN(an_unknown_policy);
	RUN(a_group_of_nothing);
	RUN(windows_where_they_belong);
	RUN(too_many_layers);
	RUN(fields_of_a_newer_header);
	RUN(longer_groups);
	RUN(shorter_groups);
	RUN(a_struct_size_of_nothing);
	RUN(too_many_slots);
	RUN(lengths_past_32_bits);
	RUN(spans_past_their_page_numbers);
	RUN(states_past_their_page_numbers);
	RUN(addresses_past_64_bits);
	return 0;
}
