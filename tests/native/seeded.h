/* SPDX-License-Identifier: MIT
 *
 * Random numbers that can be had again: VMKV_TEST_SEED says where they begin, 1 if it is not set.
 */
#ifndef SEEDED_H
#define SEEDED_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct seeded {
	uint64_t state;
};

/* Begin anew, and print where. */
static inline struct seeded seeded_begin(const char *what)
{
	const char *text = getenv("VMKV_TEST_SEED");
	unsigned long long seed = text ? strtoull(text, NULL, 10) : 1;

	printf("%s: VMKV_TEST_SEED=%llu\n", what, seed);
	fflush(stdout);
	return (struct seeded){ seed };
}

static inline uint64_t seeded_next(struct seeded *s)
{
	uint64_t z = s->state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* A number from least to most. */
static inline uint32_t seeded_from(struct seeded *s, uint32_t least, uint32_t most)
{
	return least + (uint32_t)(seeded_next(s) % ((uint64_t)most - least + 1));
}

#endif
