/* SPDX-License-Identifier: MIT */
#include "util.h"

#include <errno.h>

#include "check.h"

/* A struct as an old library knows it, and as a newer header has it. */
struct old {
	size_t struct_size;
	uint64_t first;
};

struct new {
	size_t struct_size;
	uint64_t first;
	uint64_t second;
};

static void struct_in_refuses_null_and_tiny(void)
{
	struct old given = { sizeof(size_t) - 1, 7 }, taken = { 1, 1 };

	CHECK_EQ(vmkv_struct_in(&taken, sizeof(taken), NULL), -EINVAL);
	CHECK_EQ(taken.first, 0);
	taken.first = 1;
	CHECK_EQ(vmkv_struct_in(&taken, sizeof(taken), &given), -EINVAL);
	CHECK_EQ(taken.first, 0);
	given.struct_size = 0;
	CHECK_EQ(vmkv_struct_in(&taken, sizeof(taken), &given), -EINVAL);
}

static void struct_in_zeroes_what_the_caller_lacks(void)
{
	struct old given = { sizeof(given), 7 };
	struct new taken = { 1, 1, 1 };

	CHECK_EQ(vmkv_struct_in(&taken, sizeof(taken), &given), 0);
	CHECK_EQ(taken.struct_size, sizeof(given));
	CHECK_EQ(taken.first, 7);
	CHECK_EQ(taken.second, 0);
	given.struct_size = sizeof(size_t);
	CHECK_EQ(vmkv_struct_in(&taken, sizeof(taken), &given), 0);
	CHECK_EQ(taken.first, 0);
}

static void struct_in_refuses_what_it_does_not_know(void)
{
	struct new given = { sizeof(given), 7, 0 };
	struct old taken;

	CHECK_EQ(vmkv_struct_in(&taken, sizeof(taken), &given), 0);
	CHECK_EQ(taken.first, 7);
	given.second = UINT64_C(1) << 63;
	taken.first = 0;
	CHECK_EQ(vmkv_struct_in(&taken, sizeof(taken), &given), -E2BIG);
	CHECK_EQ(taken.first, 7); /* the known part, for the error buffer's sake */
}

static void element_in_wants_the_stride(void)
{
	struct new array[2] = { { sizeof(*array), 1, 0 }, { sizeof(*array), 2, 0 } };
	struct old taken;

	CHECK_EQ(vmkv_element_in(&taken, sizeof(taken), &array[1], sizeof(*array)), 0);
	CHECK_EQ(taken.first, 2);
	array[1].struct_size = sizeof(struct old);
	CHECK_EQ(vmkv_element_in(&taken, sizeof(taken), &array[1], sizeof(*array)), -EINVAL);
	CHECK_EQ(vmkv_element_in(&taken, sizeof(taken), NULL, sizeof(*array)), -EINVAL);
}

static void struct_out_fills_as_far_as_it_reaches(void)
{
	struct new source = { sizeof(source), 7, 8 };
	struct { struct old old; uint64_t behind; } small = { { sizeof(small.old), 1 }, 5 };
	struct new big = { sizeof(big), 1, 1 };

	CHECK_EQ(vmkv_struct_out(&small, &source, sizeof(source)), 0);
	CHECK_EQ(small.old.struct_size, sizeof(struct old));
	CHECK_EQ(small.old.first, 7);
	CHECK_EQ(small.behind, 5);
	CHECK_EQ(vmkv_struct_out(&big, &source, sizeof(struct old)), 0);
	CHECK_EQ(big.first, 7);
	CHECK_EQ(big.second, 0); /* what the library doesn't know is not left as it was */
	CHECK_EQ(vmkv_struct_out(NULL, &source, sizeof(source)), -EINVAL);
	big.struct_size = sizeof(size_t) - 1;
	CHECK_EQ(vmkv_struct_out(&big, &source, sizeof(source)), -EINVAL);
	CHECK_EQ(big.first, 7);
}

static void text_is_one_line_and_ends(void)
{
	char text[8] = "unset";

	vmkv_text(text, sizeof(text), "%s", "a\nb\tc\x7f");
	CHECK_STR(text, "a?b?c?");
	vmkv_text(text, sizeof(text), "%d and more", 12345);
	CHECK_STR(text, "12345 a");
	vmkv_text(text, 1, "x");
	CHECK_STR(text, "");
	text[0] = 'k';
	vmkv_text(text, 0, "x");
	CHECK_EQ(text[0], 'k');
	vmkv_text(NULL, 8, "x");
}

static void sizes_are_read_with_their_units(void)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {
		{ "0", 0 }, { "4096", 4096 }, { "64KiB", 65536 }, { "3MiB", 3 << 20 },
		{ "8GiB", UINT64_C(8) << 30 }, { "2TiB", UINT64_C(2) << 40 }, { "1kB", 1000 },
		{ "5MB", 5000000 }, { "10GB", UINT64_C(10000000000) },
		{ "1TB", UINT64_C(1000000000000) }, { "18446744073709551615", UINT64_MAX },
	};
	static const char *const bad[] = { "", "GiB", "-1", "+1", " 1", "1 ", "1gib", "1KB", "1G",
		                           "0x10", "1.5GiB", "1GiBs" };
	static const char *const far[] = { "18446744073709551616", "16777216TiB", "99999999999999GB" };
	uint64_t bytes = 77;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		CHECK_EQ(vmkv_size_parse(bad[i], &bytes), -EINVAL);
	for (size_t i = 0; i < sizeof(far) / sizeof(*far); i++)
		CHECK_EQ(vmkv_size_parse(far[i], &bytes), -ERANGE);
	CHECK_EQ(bytes, 77);
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		CHECK_EQ(vmkv_size_parse(good[i].text, &bytes), 0);
		CHECK_EQ(bytes, good[i].bytes);
	}
}

int main(void)
{
	RUN(struct_in_refuses_null_and_tiny);
	RUN(struct_in_zeroes_what_the_caller_lacks);
	RUN(struct_in_refuses_what_it_does_not_know);
	RUN(element_in_wants_the_stride);
	RUN(struct_out_fills_as_far_as_it_reaches);
	RUN(text_is_one_line_and_ends);
	RUN(sizes_are_read_with_their_units);
	return 0;
}
