/* SPDX-License-Identifier: MIT
 *
 * Bitmaps of 64-bit words.
 */
#ifndef VMKV_BITS_H
#define VMKV_BITS_H

#include <stdbool.h>
#include <stdint.h>

#define VMKV_BITS_NONE UINT32_MAX

static inline void vmkv_bits_set(uint64_t *words, uint32_t i)
{
	words[i / 64] |= 1ull << (i % 64);
}

static inline void vmkv_bits_clear(uint64_t *words, uint32_t i)
{
	words[i / 64] &= ~(1ull << (i % 64));
}

/* The lowest set bit at or above `from`, below n; or VMKV_BITS_NONE. */
static inline uint32_t vmkv_bits_first(const uint64_t *words, uint32_t from, uint32_t n)
{
	for (uint32_t w = from / 64; w * 64 < n; w++) {
		uint64_t word = words[w];

		if (w == from / 64)
			word &= ~0ull << (from % 64);
		if (word != 0) {
			uint32_t i = w * 64 + (uint32_t)__builtin_ctzll(word);

			return i < n ? i : VMKV_BITS_NONE;
		}
	}
	return VMKV_BITS_NONE;
}

/* The highest set bit below n, or VMKV_BITS_NONE. */
static inline uint32_t vmkv_bits_last(const uint64_t *words, uint32_t n)
{
	for (uint32_t w = (n + 63) / 64; w-- > 0;) {
		if (words[w] != 0)
			return w * 64 + 63 - (uint32_t)__builtin_clzll(words[w]);
	}
	return VMKV_BITS_NONE;
}

/* How many bits are set one after another from `from` on, at most up to n. */
static inline uint32_t vmkv_bits_run(const uint64_t *words, uint32_t from, uint32_t n)
{
	uint32_t i = from;

	while (i < n) {
		uint64_t clear = ~(words[i / 64] >> (i % 64));
		uint32_t left = 64 - i % 64;
		uint32_t ones = clear == 0 ? 64 : (uint32_t)__builtin_ctzll(clear);

		if (ones < left) {
			i += ones;
			break;
		}
		i += left;
	}
	return (i < n ? i : n) - from;
}

static inline void vmkv_bits_write(uint64_t *words, uint32_t from, uint32_t n, bool value)
{
	while (n > 0) {
		uint32_t here = 64 - from % 64 < n ? 64 - from % 64 : n;
		uint64_t mask = (here == 64 ? ~0ull : (1ull << here) - 1) << (from % 64);

		if (value)
			words[from / 64] |= mask;
		else
			words[from / 64] &= ~mask;
		from += here;
		n -= here;
	}
}

#endif
