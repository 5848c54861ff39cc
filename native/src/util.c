/* SPDX-License-Identifier: MIT */
#include "util.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static size_t struct_size_of(const void *any)
{
	size_t size;

	memcpy(&size, any, sizeof(size));
	return size;
}

int vmkv_struct_in(void *dst, size_t dst_size, const void *src)
{
	if (!src) {
		memset(dst, 0, dst_size);
		return -EINVAL;
	}
	return vmkv_element_in(dst, dst_size, src, struct_size_of(src));
}

int vmkv_element_in(void *dst, size_t dst_size, const void *src, size_t src_size)
{
	size_t known = src_size < dst_size ? src_size : dst_size;
	const unsigned char *bytes = src;

	memset(dst, 0, dst_size);
	if (!src || src_size < sizeof(size_t) || struct_size_of(src) != src_size)
		return -EINVAL;
	memcpy(dst, src, known);
	for (size_t i = known; i < src_size; i++)
		if (bytes[i])
			return -E2BIG;
	return 0;
}

int vmkv_struct_out(void *dst, const void *src, size_t src_size)
{
	size_t dst_size, known;

	if (!dst)
		return -EINVAL;
	dst_size = struct_size_of(dst);
	if (dst_size < sizeof(size_t))
		return -EINVAL;
	known = src_size < dst_size ? src_size : dst_size;
	memcpy((char *)dst + sizeof(size_t), (const char *)src + sizeof(size_t),
	       known - sizeof(size_t));
	memset((char *)dst + known, 0, dst_size - known);
	return 0;
}

void vmkv_text_v(char *buf, size_t n, const char *fmt, va_list args)
{
	if (!buf || n == 0)
		return;
	if (vsnprintf(buf, n, fmt, args) < 0)
		buf[0] = 0;
	/* Texts quote names that come from outside, and are promised to be one line. */
	for (unsigned char *c = (unsigned char *)buf; *c; c++)
		if (*c < 0x20 || *c == 0x7f)
			*c = '?';
}

void vmkv_text(char *buf, size_t n, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vmkv_text_v(buf, n, fmt, args);
	va_end(args);
}

int vmkv_size_parse(const char *text, uint64_t *ret)
{
	static const struct {
		const char *name;
		uint64_t bytes;
	} units[] = {
		{ "", 1 },
		{ "KiB", UINT64_C(1) << 10 }, { "MiB", UINT64_C(1) << 20 },
		{ "GiB", UINT64_C(1) << 30 }, { "TiB", UINT64_C(1) << 40 },
		{ "kB", 1000 }, { "MB", 1000000 },
		{ "GB", UINT64_C(1000000000) }, { "TB", UINT64_C(1000000000000) },
	};
	uint64_t number = 0;
	const char *c = text;

	for (; *c >= '0' && *c <= '9'; c++)
		if (__builtin_mul_overflow(number, 10, &number) ||
		    __builtin_add_overflow(number, (uint64_t)(*c - '0'), &number))
			return -ERANGE;
	if (c == text)
		return -EINVAL;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(c, units[i].name))
			continue;
		if (__builtin_mul_overflow(number, units[i].bytes, &number))
			return -ERANGE;
		*ret = number;
		return 0;
	}
	return -EINVAL;
}

uint64_t vmkv_clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
