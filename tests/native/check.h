/* SPDX-License-Identifier: MIT
 *
 * Checks for the C tests: the first that fails prints where and what, and ends the test.
 */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *check_running = "main";

/* Call a test function that takes nothing. */
#define RUN(test)                                                                                  \
	do {                                                                                       \
		check_running = #test;                                                             \
		test();                                                                            \
	} while (0)

#define CHECK_FAIL(...)                                                                            \
	do {                                                                                       \
		fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, check_running);                 \
		fprintf(stderr, __VA_ARGS__);                                                      \
		fputc('\n', stderr);                                                               \
		exit(1);                                                                           \
	} while (0)

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			CHECK_FAIL("%s is false", #condition);                                     \
	} while (0)

/* For integers of any type. */
#define CHECK_EQ(actual, expected)                                                                 \
	do {                                                                                       \
		long long actual_ = (long long)(actual), expected_ = (long long)(expected);        \
		if (actual_ != expected_)                                                          \
			CHECK_FAIL("%s is %lld (0x%llx), not %s = %lld (0x%llx)", #actual,         \
			           actual_, (unsigned long long)actual_, #expected, expected_,     \
			           (unsigned long long)expected_);                                 \
	} while (0)

#define CHECK_STR(actual, expected)                                                                \
	do {                                                                                       \
		const char *actual_ = (actual), *expected_ = (expected);                           \
		if (strcmp(actual_, expected_))                                                    \
			CHECK_FAIL("%s is \"%s\", not \"%s\"", #actual, actual_, expected_);       \
	} while (0)

#define CHECK_CONTAINS(text, part)                                                                 \
	do {                                                                                       \
		const char *text_ = (text), *part_ = (part);                                       \
		if (!strstr(text_, part_))                                                         \
			CHECK_FAIL("%s is \"%s\", without \"%s\"", #text, text_, part_);           \
	} while (0)

#endif
