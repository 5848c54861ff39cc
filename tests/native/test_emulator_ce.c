/* SPDX-License-Identifier: MIT
 *
 * IBs for the constant engine, which GFX rings up to gfx10 have, and kernels up to 6.12 let be used.
 */
#include "cs_fixture.h"

#define INCREMENT_CE_COUNTER 0xc0008400u
#define INCREMENT_DE_COUNTER 0xc0008500u
#define WAIT_ON_CE_COUNTER 0xc0008600u
#define WAIT_ON_DE_COUNTER_DIFF 0xc0008800u
#define SET_CE_DE_COUNTERS 0xc0008900u
#define WRITE_CONST_RAM 0xc0018100u

#define SIZES "&vram=1GiB&gtt=1GiB"

static struct bench bench;

/* Submit slot 0 for the constant engine and slot 1 for the other one, and wait for both. */
static int run(uint32_t ip, uint32_t ce_dwords, uint32_t de_dwords)
{
	struct drm_amdgpu_cs_chunk_ib ce = ib_of(ip, 0, SLOT_VA(0), ce_dwords);
	struct drm_amdgpu_cs_chunk_ib de = ib_of(ip, 0, SLOT_VA(1), de_dwords);
	union drm_amdgpu_wait_cs wait = { .in = { .timeout = UINT64_MAX, .ip_type = ip,
		                                  .ctx_id = bench.context } };
	struct chunks chunks = { 0 };
	uint64_t number = 0;
	int error;

	ce.flags = AMDGPU_IB_FLAG_CE;
	chunk_add(&chunks, AMDGPU_CHUNK_ID_IB, &ce, sizeof(ce));
	chunk_add(&chunks, AMDGPU_CHUNK_ID_IB, &de, sizeof(de));
	error = chunks_submit(&bench, &chunks, &number);
	wait.in.handle = number;
	return error ? error : call(bench.fd, DRM_IOCTL_AMDGPU_WAIT_CS, &wait);
}

/* What an engine puts there, so that one waits for the other. */
static int pair_run(uint32_t ip)
{
	uint32_t *at = PUT(slot(&bench, 0), SET_CE_DE_COUNTERS, 0, WAIT_ON_DE_COUNTER_DIFF, 1);

	PUT(at, INCREMENT_CE_COUNTER, 1);
	at = PUT(slot(&bench, 1), WAIT_ON_CE_COUNTER, 1, 0xc0033700, 5 << 8 | 1 << 20, LO(DATA_VA),
	         HI(DATA_VA), 4711);
	PUT(at, INCREMENT_DE_COUNTER, 0);
	bench.words[DATA] = 0;
	return run(ip, 6, 9);
}

static void gfx10_runs_both(void)
{
	static const char *const cards[] = { "gfx1030?kernel=6.1" SIZES,
		                             "gfx1030?kernel=6.12" SIZES };

	for (int i = 0; i < 2; i++) {
		bench = bench_on(card_open_spec(cards[i]));
		CHECK_EQ(pair_run(AMDGPU_HW_IP_GFX), 0);
		CHECK_EQ(bench.words[DATA], 4711);
		bench_close(&bench);
	}
}

static void its_memory_is_not_emulated(void)
{
	bench = bench_on(card_open_spec("gfx1030?kernel=6.12" SIZES));
	PUT(slot(&bench, 0), WRITE_CONST_RAM, 0, 1);
	PUT(slot(&bench, 1), 0xffff1000);
	CHECK_EQ(run(AMDGPU_HW_IP_GFX, 3, 1), -EINVAL);
	CHECK(strstr(error_text(&bench), "WRITE_CONST_RAM"));
	bench_close(&bench);
}

/* A write alone, which any ring does. */
static void write_run(const char *spec, uint32_t ip)
{
	bench = bench_on(card_open_spec(spec));
	PUT(slot(&bench, 0), 0xc0033700, 5 << 8 | 1 << 20 | 2u << 30, LO(DATA_VA), HI(DATA_VA), 4711);
	PUT(slot(&bench, 1), 0xffff1000);
	bench.words[DATA] = 0;
	CHECK_EQ(run(ip, 5, 1), 0);
	CHECK_EQ(bench.words[DATA], 4711);
	bench_close(&bench);
}

static void rings_without_one_run_it_as_any(void)
{
	write_run("gfx1030?kernel=6.12" SIZES, AMDGPU_HW_IP_GFX);
	write_run("gfx1100?kernel=6.1" SIZES, AMDGPU_HW_IP_GFX);
	write_run("gfx1030?kernel=6.12" SIZES, AMDGPU_HW_IP_COMPUTE);
}

static void newer_kernels_block_it(void)
{
	bench = bench_on(card_open_spec("gfx1030?kernel=7.2" SIZES));
	CHECK_EQ(pair_run(AMDGPU_HW_IP_GFX), -EINVAL);
	bench_close(&bench);
}

int main(void)
{
	RUN(gfx10_runs_both);
	RUN(its_memory_is_not_emulated);
	RUN(rings_without_one_run_it_as_any);
	RUN(newer_kernels_block_it);
	return 0;
}
