/* SPDX-License-Identifier: MIT
 *
 * The packets of GFX and COMPUTE rings: each, what is refused, and waiting.
 */
#include "cs_fixture.h"

static struct bench bench;
static uint32_t ip; /* the ring on which packets are tried */

#define PACKET(op, n) (3u << 30 | ((uint32_t)(n) - 1) << 16 | (op) << 8)
#define FILLER 0xffff1000u
#define TO_MEMORY (5u << 8 | 1u << 20)
#define IB_DWORDS_USED 128

static uint32_t *words(void)
{
	return bench.words + DATA;
}

static uint32_t *empty(uint32_t i)
{
	for (uint32_t j = 0; j < SLOT_DWORDS; j++)
		slot(&bench, i)[j] = FILLER;
	return slot(&bench, i);
}

static int submit(uint64_t *number)
{
	struct drm_amdgpu_cs_chunk_ib ib = ib_of(ip, 0, SLOT_VA(0), IB_DWORDS_USED);
	struct chunks chunks = { 0 };

	chunk_add(&chunks, AMDGPU_CHUNK_ID_IB, &ib, sizeof(ib));
	return chunks_submit(&bench, &chunks, number);
}

static int wait_pm4(uint64_t number, uint64_t deadline, uint64_t *busy)
{
	union drm_amdgpu_wait_cs args = { .in = { .handle = number, .timeout = deadline, .ip_type = ip,
		                                  .ctx_id = bench.context } };
	int error = call(bench.fd, DRM_IOCTL_AMDGPU_WAIT_CS, &args);

	*busy = args.out.status;
	return error;
}

/* What is in slot 0. A job that fails takes its context with it. */
static int run(void)
{
	uint64_t number = 0, busy;
	int error = submit(&number);

	if (!error)
		error = wait_pm4(number, UINT64_MAX, &busy);
	if (error) {
		context_destroy(bench.fd, bench.context);
		bench.context = context_create(bench.fd);
	}
	return error;
}

#define CHECK_REFUSED(text)                                                                        \
	do {                                                                                       \
		uint64_t refused_ = stats(&bench.card).refused;                                    \
		CHECK_EQ(run(), -EINVAL);                                                          \
		CHECK_EQ(stats(&bench.card).refused, refused_ + 1);                                \
		CHECK_CONTAINS(error_text(&bench), text);                                          \
	} while (0)

static uint32_t *write_data(uint32_t *at, uint64_t to, uint32_t value)
{
	return PUT(at, PACKET(0x37, 4), TO_MEMORY, LO(to), HI(to), value);
}

/* ---- form ---------------------------------------------------------------------------------------- */

static void nops_skip_their_body_or_stand_alone(void)
{
	uint32_t *at = PUT(empty(0), 0x80000000, FILLER, PACKET(0x10, 3), 1, 2, 3);

	words()[0] = 0;
	write_data(at, DATA_VA, 4);
	CHECK_EQ(run(), 0);
	CHECK_EQ(words()[0], 4);
}

static void a_packet_may_not_end_behind_its_ib(void)
{
	PUT(empty(0) + IB_DWORDS_USED - 4, PACKET(0x37, 4));
	CHECK_REFUSED("WRITE_DATA (0xc0033700)");
	PUT(empty(0) + IB_DWORDS_USED - 4, PACKET(0x10, 4));
	CHECK_REFUSED("ends within");
}

static void packets_that_need_shaders_fail_and_are_named(void)
{
	static const struct {
		uint32_t op;
		const char *name;
	} packets[] = {
		{ 0x15, "DISPATCH_DIRECT" }, { 0x16, "DISPATCH_INDIRECT" }, { 0x2d, "DRAW_INDEX_AUTO" },
		{ 0x27, "DRAW_INDEX_2" }, { 0xaa, "DISPATCH_TASKMESH_DIRECT_ACE" },
	};

	for (size_t i = 0; i < sizeof(packets) / sizeof(packets[0]); i++) {
		PUT(empty(0), PACKET(packets[i].op, 4), 1, 1, 1, 1);
		CHECK_REFUSED(packets[i].name);
		CHECK_CONTAINS(error_text(&bench), "shaders");
	}
}

static void what_is_no_packet_of_this_card_is_refused(void)
{
	PUT(empty(0), PACKET(0xfe, 1), 0);
	CHECK_REFUSED("unknown (0xc000fe00)");
	PUT(empty(0), PACKET(0x59, 1), 0);
	CHECK_REFUSED("REWIND");
	PUT(empty(0), 0);
	CHECK_REFUSED("type 0");
	PUT(empty(0), 0x40000000);
	CHECK_REFUSED("type 1");
	PUT(empty(0), PACKET(0x50, 5), 0, 0, 0, 0, 0);
	CHECK_REFUSED("its length is wrong");
}

/* ---- memory -------------------------------------------------------------------------------------- */

static void write_data_writes_its_dwords(void)
{
	memset(words(), 0, 64);
	PUT(empty(0), PACKET(0x37, 6), TO_MEMORY, LO(DATA_VA + 4), HI(DATA_VA), 11, 12, 13);
	CHECK_EQ(run(), 0);
	CHECK_EQ(words()[0], 0);
	CHECK_EQ(words()[1], 11);
	CHECK_EQ(words()[3], 13);
	CHECK_EQ(words()[4], 0);
	/* All to one address */
	PUT(empty(0), PACKET(0x37, 6), TO_MEMORY | 1u << 16, LO(DATA_VA), HI(DATA_VA), 21, 22, 23);
	CHECK_EQ(run(), 0);
	CHECK_EQ(words()[0], 23);
	CHECK_EQ(words()[1], 11);
	write_data(empty(0), DATA_VA + 2, 1);
	CHECK_REFUSED("multiple of 4");
	PUT(empty(0), PACKET(0x37, 4), 3 << 8, LO(DATA_VA), HI(DATA_VA), 1);
	CHECK_REFUSED("only memory");
}

static void an_unmapped_write_faults(void)
{
	write_data(empty(0), UNMAPPED_VA, 1);
	CHECK_EQ(run(), -ECANCELED);
	CHECK_CONTAINS(error_text(&bench), "GPU fault: write");
}

static void copy_data_copies_from_memory_values_and_the_clock(void)
{
	uint64_t *wide = (uint64_t *)words();
	uint32_t *at = empty(0);

	memset(words(), 0, 64);
	words()[0] = 0x11111111;
	words()[1] = 0x22222222;
	at = PUT(at, PACKET(0x40, 5), 1 | 5 << 8, LO(DATA_VA), HI(DATA_VA), LO(DATA_VA + 8),
	         HI(DATA_VA));
	at = PUT(at, PACKET(0x40, 5), 2 | 2 << 8 | 1 << 16, LO(DATA_VA), HI(DATA_VA),
	         LO(DATA_VA + 16), HI(DATA_VA));
	at = PUT(at, PACKET(0x40, 5), 5 | 5 << 8 | 1 << 16, 0x33, 0x44, LO(DATA_VA + 24), HI(DATA_VA));
	PUT(at, PACKET(0x40, 5), 9 | 5 << 8 | 1 << 16, 0, 0, LO(DATA_VA + 32), HI(DATA_VA));
	CHECK_EQ(run(), 0);
	CHECK_EQ(wide[1], 0x11111111);
	CHECK_EQ(wide[2], 0x2222222211111111);
	CHECK_EQ(wide[3], 0x4400000033);
	CHECK(wide[4] > 0);
	PUT(empty(0), PACKET(0x40, 5), 3 | 5 << 8, 0, 0, LO(DATA_VA), HI(DATA_VA));
	CHECK_REFUSED("source");
	PUT(empty(0), PACKET(0x40, 5), 5 | 3 << 8, 0, 0, LO(DATA_VA), HI(DATA_VA));
	CHECK_REFUSED("destination");
}

static void dma_data_copies_any_bytes(void)
{
	uint8_t *bytes = (uint8_t *)words();

	for (int i = 0; i < 5000; i++)
		bytes[i] = (uint8_t)(i * 7);
	memset(bytes + 20001, 0, 5000);
	PUT(empty(0), PACKET(0x50, 6), 1u << 31 | 3u << 29 | 3u << 20, LO(DATA_VA + 3), HI(DATA_VA),
	    LO(DATA_VA + 20001), HI(DATA_VA), 4567 | 1u << 30);
	CHECK_EQ(run(), 0);
	CHECK(!memcmp(bytes + 20001, bytes + 3, 4567));
	CHECK_EQ(bytes[20001 + 4567], 0);
}

static void dma_data_fills_with_its_value(void)
{
	memset(words(), 0, 64);
	PUT(empty(0), PACKET(0x50, 6), 1u << 31 | 2u << 29, 0x12345678, 0, LO(DATA_VA + 8), HI(DATA_VA),
	    12);
	CHECK_EQ(run(), 0);
	CHECK_EQ(words()[1], 0);
	CHECK_EQ(words()[2], 0x12345678);
	CHECK_EQ(words()[4], 0x12345678);
	CHECK_EQ(words()[5], 0);
	PUT(empty(0), PACKET(0x50, 6), 2u << 29, 1, 0, LO(DATA_VA), HI(DATA_VA), 13);
	CHECK_REFUSED("multiple of 4");
}

/* RADV waits with nothing to copy, and prefetches with nowhere to go. */
static void dma_data_may_copy_nothing_and_nowhere(void)
{
	uint32_t *at = PUT(empty(0), PACKET(0x50, 6), 1u << 31 | 3u << 29 | 3u << 20, 0, 0, 0, 0, 0);

	PUT(at, PACKET(0x50, 6), 3u << 29 | 2u << 20, LO(DATA_VA), HI(DATA_VA), LO(DATA_VA),
	    HI(DATA_VA), 256);
	CHECK_EQ(run(), 0);
	PUT(empty(0), PACKET(0x50, 6), 1u << 29, 0, 0, LO(DATA_VA), HI(DATA_VA), 4);
	CHECK_REFUSED("GDS");
	PUT(empty(0), PACKET(0x50, 6), 0, 0, 0, LO(DATA_VA), HI(DATA_VA), 4 | 1u << 26);
	CHECK_REFUSED("only memory");
}

static void atomics_do_what_their_numbers_say(void)
{
	static const struct {
		uint32_t op, before, source, compare, after;
	} cases[] = {
		{ 0x07, 1, 2, 0, 2 },          { 0x08, 1, 2, 1, 2 },   { 0x08, 1, 2, 3, 1 },
		{ 0x0f, 1, 2, 0, 3 },          { 0x10, 1, 2, 0, 0xffffffff },
		{ 0x11, 1, 0xffffffff, 0, 0xffffffff }, { 0x12, 1, 0xffffffff, 0, 1 },
		{ 0x13, 1, 0xffffffff, 0, 1 }, { 0x14, 1, 0xffffffff, 0, 0xffffffff },
		{ 0x15, 6, 3, 0, 2 },          { 0x16, 6, 3, 0, 7 },   { 0x17, 6, 3, 0, 5 },
		{ 0x18, 6, 9, 0, 7 },          { 0x18, 9, 9, 0, 0 },   { 0x19, 6, 9, 0, 5 },
		{ 0x19, 0, 9, 0, 9 },          { 0x4f, 1, 2, 0, 3 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		words()[0] = cases[i].before;
		words()[1] = 0x77;
		PUT(empty(0), PACKET(0x1e, 8), cases[i].op, LO(DATA_VA), HI(DATA_VA), cases[i].source, 0,
		    cases[i].compare, 0, 0);
		CHECK_EQ(run(), 0);
		CHECK_EQ(words()[0], cases[i].after);
		CHECK_EQ(words()[1], 0x77);
	}
	words()[0] = 5; /* what is above 32 bits doesn't count */
	PUT(empty(0), PACKET(0x1e, 8), 0x08 | 1 << 8, LO(DATA_VA), HI(DATA_VA), 6, 1, 5, 1, 0);
	CHECK_EQ(run(), 0);
	CHECK_EQ(words()[0], 6);
	PUT(empty(0), PACKET(0x1e, 8), 0x1f, LO(DATA_VA), HI(DATA_VA), 1, 0, 0, 0, 0);
	CHECK_REFUSED("operation");
}

/* ---- order --------------------------------------------------------------------------------------- */

static void release_mem_writes_what_its_selector_says(void)
{
	uint64_t *wide = (uint64_t *)words();

	for (uint32_t select = 0; select < 4; select++) {
		wide[0] = 0x5555555566666666;
		PUT(empty(0), PACKET(0x49, 7), 0x14 | 5 << 8, select << 29, LO(DATA_VA), HI(DATA_VA), 7,
		    8, 0);
		CHECK_EQ(run(), 0);
		if (select == 3)
			CHECK(wide[0] > 0 && wide[0] != 0x5555555566666666);
		else
			CHECK_EQ(wide[0], select == 0   ? 0x5555555566666666
			                  : select == 1 ? 0x5555555500000007
			                                : 0x800000007);
	}
	PUT(empty(0), PACKET(0x49, 7), 0x14, 5u << 29, LO(DATA_VA), HI(DATA_VA), 7, 8, 0);
	CHECK_REFUSED("RELEASE_MEM");
	PUT(empty(0), PACKET(0x49, 7), 0x14, 2u << 29, LO(DATA_VA + 4), HI(DATA_VA), 7, 8, 0);
	CHECK_REFUSED("multiple");
}

static void packets_about_caches_and_order_do_nothing(void)
{
	uint32_t *at = PUT(empty(0), PACKET(0x58, 7), 0, 0xffffffff, 0xff, 0, 0, 0xa, 0);

	at = PUT(at, PACKET(0x46, 1), 7 | 4 << 8);
	at = PUT(at, PACKET(0x46, 3), 0x38 | 1 << 8, 0, 0);
	if (ip == AMDGPU_HW_IP_GFX) {
		at = PUT(at, PACKET(0x42, 1), 0);
		PUT(at, PACKET(0x28, 2), 1u << 31, 1u << 31);
	}
	CHECK_EQ(run(), 0);
	PUT(empty(0), PACKET(0x46, 3), 0x15 | 1 << 8, LO(DATA_VA), HI(DATA_VA));
	CHECK_REFUSED("event 0x15");
}

static void what_only_gfx_rings_have_is_refused_on_compute(void)
{
	PUT(empty(0), PACKET(0x42, 1), 0);
	if (ip == AMDGPU_HW_IP_GFX)
		CHECK_EQ(run(), 0);
	else
		CHECK_REFUSED("COMPUTE");
}

static void wait_reg_mem_waits_for_each_relation(void)
{
	static const struct {
		uint32_t function, value;
	} cases[] = { { 0, 77 }, { 1, 4 }, { 2, 5 }, { 3, 5 }, { 4, 6 }, { 5, 5 }, { 6, 6 } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint32_t *at = PUT(empty(0), PACKET(0x3c, 6), cases[i].function | 1 << 4, LO(DATA_VA),
		                   HI(DATA_VA), 5, 0xff, 4);

		words()[0] = 0x100 | cases[i].value; /* under the mask */
		words()[1] = 0;
		write_data(at, DATA_VA + 4, 1);
		CHECK_EQ(run(), 0);
		CHECK_EQ(words()[1], 1);
	}
	PUT(empty(0), PACKET(0x3c, 6), 7 | 1 << 4, LO(DATA_VA), HI(DATA_VA), 5, 0xff, 4);
	CHECK_REFUSED("WAIT_REG_MEM");
}

static void a_job_that_waits_lets_others_run(void)
{
	uint64_t number = 0, busy;

	words()[0] = words()[1] = 0;
	write_data(PUT(empty(0), PACKET(0x3c, 6), 3 | 1 << 4, LO(DATA_VA), HI(DATA_VA), 9, 0xffffffff, 4),
	           DATA_VA + 4, 1);
	CHECK_EQ(submit(&number), 0);
	let_threads_run();
	CHECK_EQ(wait_pm4(number, 0, &busy), 0);
	CHECK_EQ(busy, 1);
	CHECK_EQ(words()[1], 0);
	/* What it waits for comes from another ring. */
	memset(slot(&bench, 1), 0, PAGE);
	put_write(slot(&bench, 1), DATA_VA, 9);
	CHECK_EQ(slot_run(&bench, 1), 0);
	CHECK_EQ(wait_pm4(number, UINT64_MAX, &busy), 0);
	CHECK_EQ(words()[1], 1);
}

static void a_file_can_be_closed_while_its_job_waits(void)
{
	struct bench other = bench_open("6.12", ""), kept = bench;
	uint64_t number = 0;
	char text[256];

	bench = other;
	words()[0] = 0;
	PUT(empty(0), PACKET(0x3c, 6), 3 | 1 << 4, LO(DATA_VA), HI(DATA_VA), 9, 0xffffffff, 4);
	CHECK_EQ(submit(&number), 0);
	munmap(bench.words, WORK_BYTES);
	CHECK_EQ(vmkv_emulator_close(bench.fd), 0);
	vmkv_emulator_error(bench.card.gpu, text, sizeof(text));
	CHECK_STR(text, ""); /* it didn't have to be taken for hung */
	vmkv_emulator_destroy(bench.card.gpu);
	bench = kept;
}

/* ---- other IBs ----------------------------------------------------------------------------------- */

static void a_chained_ib_takes_the_place_of_the_rest(void)
{
	memset(words(), 0, 16);
	PUT(empty(0), PACKET(0x3f, 3), LO(SLOT_VA(1)), HI(SLOT_VA(1)), 8 | 1 << 20 | 1 << 23);
	write_data(slot(&bench, 0) + 4, DATA_VA, 1);
	write_data(empty(1), DATA_VA + 4, 2);
	CHECK_EQ(run(), 0);
	CHECK_EQ(words()[0], 0);
	CHECK_EQ(words()[1], 2);
}

static void a_called_ib_comes_before_the_rest_on_gfx(void)
{
	memset(words(), 0, 16);
	PUT(empty(0), PACKET(0x3f, 3), LO(SLOT_VA(1)), HI(SLOT_VA(1)), 8 | 1 << 23);
	PUT(slot(&bench, 0) + 4, PACKET(0x40, 5), 1 | 5 << 8, LO(DATA_VA), HI(DATA_VA), LO(DATA_VA + 4),
	    HI(DATA_VA));
	write_data(empty(1), DATA_VA, 3);
	if (ip == AMDGPU_HW_IP_COMPUTE) {
		CHECK_REFUSED("chain");
		return;
	}
	CHECK_EQ(run(), 0);
	CHECK_EQ(words()[1], 3);
	/* One that calls itself */
	PUT(empty(0), PACKET(0x3f, 3), LO(SLOT_VA(0)), HI(SLOT_VA(0)), 8 | 1 << 23);
	CHECK_REFUSED("deeply");
}

static void a_chain_without_an_end_is_a_hang(void)
{
	PUT(empty(0), PACKET(0x3f, 3), LO(SLOT_VA(0)), HI(SLOT_VA(0)), 8 | 1 << 20 | 1 << 23);
	CHECK_REFUSED("without an end");
}

static void cond_exec_skips_if_memory_is_zero(void)
{
	for (uint32_t there = 0; there < 2; there++) {
		uint32_t *at = PUT(empty(0), PACKET(0x22, 4), LO(DATA_VA), HI(DATA_VA), 0, 5);

		words()[0] = there;
		words()[1] = words()[2] = 0;
		at = write_data(at, DATA_VA + 4, 1);
		write_data(at, DATA_VA + 8, 1);
		CHECK_EQ(run(), 0);
		CHECK_EQ(words()[1], there);
		CHECK_EQ(words()[2], 1);
	}
}

/* ---- registers ----------------------------------------------------------------------------------- */

static uint32_t *register_copy(uint32_t *at, uint32_t index, uint64_t to)
{
	return PUT(at, PACKET(0x40, 5), 0 | 5 << 8, index, 0, LO(to), HI(to));
}

static void registers_keep_what_is_written(void)
{
	uint32_t *at = PUT(empty(0), PACKET(0x79, 3), 0x10, 0xaa, 0xbb);

	at = PUT(at, PACKET(0x76, 2), 0x20, 0xcc);
	at = PUT(at, PACKET(0xba, 4), 0x30, 0xd0, 0x32, 0xd2);
	at = PUT(at, PACKET(0xbb, 4), 2, 0x40 | 0x42 << 16, 0xe0, 0xe2);
	at = register_copy(at, 0xc010, DATA_VA);
	at = register_copy(at, 0xc011, DATA_VA + 4);
	at = register_copy(at, 0x2c20, DATA_VA + 8);
	at = register_copy(at, 0x2c32, DATA_VA + 12);
	register_copy(at, 0x2c42, DATA_VA + 16);
	CHECK_EQ(run(), 0);
	CHECK_EQ(words()[0], 0xaa);
	CHECK_EQ(words()[1], 0xbb);
	CHECK_EQ(words()[2], 0xcc);
	CHECK_EQ(words()[3], 0xd2);
	CHECK_EQ(words()[4], 0xe2);
	at = PUT(empty(0), PACKET(0x37, 5), 0, 0xc020, 0, 0x11, 0x22);
	at = PUT(at, PACKET(0x37, 5), 1u << 16, 0xffff, 0, 0x33, 0x44);
	register_copy(at, 0xc021, DATA_VA);
	CHECK_EQ(run(), 0);
	CHECK_EQ(words()[0], 0x22);
	PUT(empty(0), PACKET(0x37, 5), 0, 0xffff, 0, 1, 2);
	CHECK_REFUSED("no such register");
	PUT(empty(0), PACKET(0x76, 2), 0x400, 1);
	CHECK_REFUSED("no such register");
	PUT(empty(0), PACKET(0xbb, 4), 4, 0, 0, 0);
	CHECK_REFUSED("length");
}

static void context_registers_are_cleared_on_gfx(void)
{
	uint32_t *at;

	if (ip == AMDGPU_HW_IP_COMPUTE)
		return;
	at = PUT(empty(0), PACKET(0x69, 2), 5, 0x55);
	at = PUT(at, PACKET(0x51, 3), 5, 0xf0, 0xa0);
	at = register_copy(at, 0xa005, DATA_VA);
	at = PUT(at, PACKET(0x12, 1), 0);
	register_copy(at, 0xa005, DATA_VA + 4);
	CHECK_EQ(run(), 0);
	CHECK_EQ(words()[0], 0xa5);
	CHECK_EQ(words()[1], 0);
}

static void all(void)
{
	RUN(nops_skip_their_body_or_stand_alone);
	RUN(a_packet_may_not_end_behind_its_ib);
	RUN(packets_that_need_shaders_fail_and_are_named);
	RUN(what_is_no_packet_of_this_card_is_refused);
	RUN(write_data_writes_its_dwords);
	RUN(an_unmapped_write_faults);
	RUN(copy_data_copies_from_memory_values_and_the_clock);
	RUN(dma_data_copies_any_bytes);
	RUN(dma_data_fills_with_its_value);
	RUN(dma_data_may_copy_nothing_and_nowhere);
	RUN(atomics_do_what_their_numbers_say);
	RUN(release_mem_writes_what_its_selector_says);
	RUN(packets_about_caches_and_order_do_nothing);
	RUN(what_only_gfx_rings_have_is_refused_on_compute);
	RUN(wait_reg_mem_waits_for_each_relation);
	RUN(a_job_that_waits_lets_others_run);
	RUN(a_file_can_be_closed_while_its_job_waits);
	RUN(a_chained_ib_takes_the_place_of_the_rest);
	RUN(a_called_ib_comes_before_the_rest_on_gfx);
	RUN(a_chain_without_an_end_is_a_hang);
	RUN(cond_exec_skips_if_memory_is_zero);
	RUN(registers_keep_what_is_written);
	RUN(context_registers_are_cleared_on_gfx);
}

int main(void)
{
	bench = bench_open("6.12", "");
	for (ip = AMDGPU_HW_IP_GFX; ip <= AMDGPU_HW_IP_COMPUTE; ip++)
		all();
	bench_close(&bench);
	return 0;
}
