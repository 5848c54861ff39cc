/* SPDX-License-Identifier: MIT
 *
 * The emulated SDMA engines: each packet, what they refuse, and their faults.
 */
#include "cs_fixture.h"

static struct bench bench;

static void begin(const char *model)
{
	char spec[64], error[256];

	snprintf(spec, sizeof(spec), "%s?vram=256MiB&gtt=256MiB", model);
	bench = (struct bench){ 0 };
	if (vmkv_emulator_create(spec, error, sizeof(error), &bench.card.gpu))
		CHECK_FAIL("%s", error);
	CHECK_EQ(vmkv_emulator_open(bench.card.gpu, &bench.card.fd), 0);
	bench.fd = bench.card.fd;
	bench.work = bo_create_in(bench.fd, WORK_BYTES, GTT, ALWAYS);
	bench.words = bo_view(bench.fd, bench.work, WORK_BYTES);
	CHECK_EQ(va_map(bench.fd, bench.work, 0, WORK_VA, 0, WORK_BYTES), 0);
	bench.context = context_create(bench.fd);
}

static void finish(void)
{
	bench_close(&bench);
}

/* A context that no failed job made guilty. */
static int run(uint32_t i)
{
	int error = slot_run(&bench, i);

	if (error) {
		context_destroy(bench.fd, bench.context);
		bench.context = context_create(bench.fd);
	}
	return error;
}

static uint32_t *empty(uint32_t i)
{
	memset(slot(&bench, i), 0, PAGE);
	return slot(&bench, i);
}

/* Refused, counted, named, and with the error of its fence. */
#define CHECK_REFUSED(text)                                                                        \
	do {                                                                                       \
		uint64_t refused_ = stats(&bench.card).refused;                                    \
		CHECK_EQ(run(0), -EINVAL);                                                         \
		CHECK_EQ(stats(&bench.card).refused, refused_ + 1);                                \
		CHECK_CONTAINS(error_text(&bench), text);                                          \
	} while (0)

static void nop_skips_as_many_dwords_as_it_says(void)
{
	uint32_t *at = PUT(empty(0), 3u << 16, 0xdeadbeef, 0xdeadbeef, 0xdeadbeef);

	put_write(at, DATA_VA, 7);
	bench.words[DATA] = 0;
	CHECK_EQ(run(0), 0);
	CHECK_EQ(bench.words[DATA], 7);
	PUT(empty(0), 0x4000ff00);
	CHECK_REFUSED("NOP");
}

static void write_linear_writes_its_dwords(void)
{
	PUT(empty(0), 2, LO(DATA_VA + 4), HI(DATA_VA), 2, 11, 12, 13);
	memset(bench.words + DATA, 0xff, 32);
	CHECK_EQ(run(0), 0);
	CHECK_EQ(bench.words[DATA], 0xffffffff);
	CHECK_EQ(bench.words[DATA + 1], 11);
	CHECK_EQ(bench.words[DATA + 3], 13);
	CHECK_EQ(bench.words[DATA + 4], 0xffffffff);
	PUT(empty(0), 2, LO(DATA_VA + 2), HI(DATA_VA), 0, 1);
	CHECK_REFUSED("multiple of 4");
	PUT(empty(0), 2, LO(DATA_VA), HI(DATA_VA), 1u << 20, 1);
	CHECK_REFUSED("field");
	bench.words[DATA] = 0x77;
	PUT(empty(0), 2, LO(DATA_VA), HI(DATA_VA), SLOT_DWORDS - 4, 1);
	CHECK_REFUSED("ends within");
	CHECK_EQ(bench.words[DATA], 0x77);
}

static void copy_linear_copies_any_bytes(void)
{
	uint8_t *data = (uint8_t *)(bench.words + DATA);

	for (int i = 0; i < 5000; i++)
		data[i] = (uint8_t)(i * 7);
	memset(data + 20001, 0, 5000);
	put_copy(empty(0), DATA_VA + 20001, DATA_VA + 3, 4567);
	CHECK_EQ(run(0), 0);
	CHECK(!memcmp(data + 20001, data + 3, 4567));
	CHECK_EQ(data[20001 + 4567], 0);
}

static void an_overlapping_copy_goes_forward(void)
{
	uint8_t *data = (uint8_t *)(bench.words + DATA), expected[4096];

	for (int i = 0; i < 8192; i++)
		data[i] = (uint8_t)(i ^ i >> 8);
	memcpy(expected, data + 64, sizeof(expected));
	put_copy(empty(0), DATA_VA, DATA_VA + 64, 4096);
	CHECK_EQ(run(0), 0);
	CHECK(!memcmp(data, expected, 4096));
	/* Up by a burst: the first burst is repeated. */
	memcpy(expected, data, 64);
	put_copy(empty(0), DATA_VA + 64, DATA_VA, 640);
	CHECK_EQ(run(0), 0);
	for (int i = 0; i < 11; i++)
		CHECK(!memcmp(data + 64 * i, expected, 64));
}

static void const_fill_fills_with_dwords_in_both_forms(void)
{
	for (uint32_t fillsize = 0; fillsize <= 2; fillsize += 2) {
		memset(bench.words + DATA, 0, 64);
		PUT(empty(0), 11 | fillsize << 30, LO(DATA_VA + 8), HI(DATA_VA), 0x12345678, 11);
		CHECK_EQ(run(0), 0);
		CHECK_EQ(bench.words[DATA + 1], 0);
		for (int i = 2; i < 5; i++)
			CHECK_EQ(bench.words[DATA + i], 0x12345678);
		CHECK_EQ(bench.words[DATA + 5], 0);
	}
	PUT(empty(0), 11 | 1u << 30, LO(DATA_VA), HI(DATA_VA), 1, 11);
	CHECK_REFUSED("dwords");
	PUT(empty(0), 11 | 2u << 30, LO(DATA_VA), HI(DATA_VA), 1, 12);
	CHECK_REFUSED("multiple of 4");
}

static void fence_writes_its_value(void)
{
	PUT(empty(0), 5 | 3u << 16, LO(DATA_VA), HI(DATA_VA), 0xfe);
	bench.words[DATA] = bench.words[DATA + 1] = 0x55;
	CHECK_EQ(run(0), 0);
	CHECK_EQ(bench.words[DATA], 0xfe);
	CHECK_EQ(bench.words[DATA + 1], 0x55);
	PUT(empty(0), 5, LO(DATA_VA + 1), HI(DATA_VA), 1);
	CHECK_REFUSED("multiple of 4");
}

static void packets_that_are_not_emulated_are_refused_by_name(void)
{
	static const struct {
		uint32_t header;
		const char *name;
	} packets[] = {
		{ 6, "TRAP" },        { 8, "POLL_REGMEM" }, { 9, "COND_EXE" },
		{ 1 | 4 << 8, "COPY" }, { 2 | 1 << 8, "WRITE" }, { 77, "unknown" },
	};

	for (size_t i = 0; i < sizeof(packets) / sizeof(packets[0]); i++) {
		PUT(empty(0), packets[i].header);
		CHECK_REFUSED(packets[i].name);
	}
	PUT(empty(0), 1 | 1u << 18, 3, 0, LO(DATA_VA), HI(DATA_VA), LO(DATA_VA), HI(DATA_VA));
	CHECK_REFUSED("encrypted");
	PUT(empty(0), 1 | 1u << 25, 3, 0, LO(DATA_VA), HI(DATA_VA), LO(DATA_VA), HI(DATA_VA));
	CHECK_REFUSED("unknown bits");
	PUT(empty(0), 1, 3, 1, LO(DATA_VA), HI(DATA_VA), LO(DATA_VA), HI(DATA_VA));
	CHECK_REFUSED("swapping");
}

static void a_packet_may_not_end_behind_its_ib(void)
{
	empty(0);
	PUT(slot(&bench, 0) + SLOT_DWORDS - 6, 1, 3, 0, LO(DATA_VA), HI(DATA_VA), LO(DATA_VA));
	CHECK_REFUSED("ends within");
	empty(0);
	PUT(slot(&bench, 0) + SLOT_DWORDS - 2, 2u << 16, 0);
	CHECK_REFUSED("ends within");
}

static void packets_are_counted_when_they_ran(void)
{
	uint64_t before = stats(&bench.card).packets;
	uint32_t *at = put_write(empty(0), DATA_VA, 1);

	at = put_write(at, DATA_VA, 2);
	PUT(at, (uint32_t)(slot(&bench, 0) + SLOT_DWORDS - at - 1) << 16);
	CHECK_EQ(run(0), 0);
	CHECK_EQ(stats(&bench.card).packets, before + 3);
	at = put_write(empty(0), DATA_VA, 1);
	put_write(at, UNMAPPED_VA, 2);
	CHECK_EQ(run(0), -ECANCELED);
	CHECK_EQ(stats(&bench.card).packets, before + 4);
}

/* ---- what differs by generation ------------------------------------------------------------------ */

static void the_eighth_dword_of_a_copy_is_there_with_cpv_on_gfx12(void)
{
	uint32_t *at = PUT(empty(0), 1 | 1u << 19, 3, 0, LO(DATA_VA), HI(DATA_VA), LO(DATA_VA + 4),
	                   HI(DATA_VA), 0);

	put_write(at, DATA_VA + 8, 21);
	bench.words[DATA] = 20;
	CHECK_EQ(run(0), 0);
	CHECK_EQ(bench.words[DATA + 1], 20);
	CHECK_EQ(bench.words[DATA + 2], 21);
	PUT(empty(0), 1 | 1u << 19, 3, 0, LO(DATA_VA), HI(DATA_VA), LO(DATA_VA), HI(DATA_VA), 5);
	CHECK_REFUSED("compression");
	finish();
	begin("gfx1100");
	PUT(empty(0), 1 | 1u << 19, 3, 0, LO(DATA_VA), HI(DATA_VA), LO(DATA_VA), HI(DATA_VA), 0);
	CHECK_REFUSED("unknown bits");
	finish();
	begin("gfx1201");
}

static void all_models_know_all_packets(void)
{
	static const char *const models[] = { "gfx1030", "gfx1100", "gfx1201", "gfx942" };

	for (size_t i = 0; i < 4; i++) {
		uint32_t *at;

		begin(models[i]);
		at = put_fill(empty(0), DATA_VA, 5, 16);
		at = put_copy(at, DATA_VA + 32, DATA_VA, 16);
		at = put_write(at, DATA_VA, 6);
		PUT(at, 5, LO(DATA_VA + 4), HI(DATA_VA), 7);
		CHECK_EQ(run(0), 0);
		CHECK_EQ(bench.words[DATA], 6);
		CHECK_EQ(bench.words[DATA + 1], 7);
		CHECK_EQ(bench.words[DATA + 8], 5);
		PUT(empty(0), 1, 1u << 30, 0, LO(DATA_VA), HI(DATA_VA), LO(DATA_VA), HI(DATA_VA));
		CHECK_REFUSED("field");
		finish();
	}
}

/* ---- faults -------------------------------------------------------------------------------------- */

static void an_unmapped_write_faults_and_touches_nothing(void)
{
	uint64_t faults = stats(&bench.card).faults;
	uint32_t *at = put_write(empty(0), DATA_VA, 1);

	at = put_write(at, UNMAPPED_VA, 2);
	put_write(at, DATA_VA + 4, 3);
	bench.words[DATA] = bench.words[DATA + 1] = 0;
	CHECK_EQ(run(0), -ECANCELED);
	CHECK_EQ(bench.words[DATA], 1); /* before it */
	CHECK_EQ(bench.words[DATA + 1], 0); /* behind it */
	CHECK_EQ(stats(&bench.card).faults, faults + 1);
	CHECK_CONTAINS(error_text(&bench), "not mapped");
}

static void a_copy_stops_at_the_page_that_faults(void)
{
	uint32_t bo = bo_create_in(bench.fd, 2 * PAGE, GTT, ALWAYS);
	uint32_t *view = bo_view(bench.fd, bo, 2 * PAGE);

	CHECK_EQ(va_map(bench.fd, bo, 0, VA, 0, PAGE), 0);
	memset(view, 0, 2 * PAGE);
	memset(bench.words + DATA, 0x11, 2 * PAGE);
	put_copy(empty(0), VA, DATA_VA, 2 * PAGE);
	CHECK_EQ(run(0), -ECANCELED);
	CHECK_EQ(view[PAGE / 4 - 1], 0x11111111);
	CHECK_EQ(view[PAGE / 4], 0);
	munmap(view, 2 * PAGE);
	CHECK_EQ(bo_close(bench.fd, bo), 0);
}

static void a_write_to_read_only_memory_faults(void)
{
	uint32_t bo = bo_create_in(bench.fd, PAGE, GTT, ALWAYS);
	uint32_t *view = bo_view(bench.fd, bo, PAGE);

	CHECK_EQ(va_op(bench.fd, AMDGPU_VA_OP_MAP, bo, AMDGPU_VM_PAGE_READABLE, VA, 0, PAGE), 0);
	view[0] = 9;
	put_copy(empty(0), DATA_VA, VA, 4);
	CHECK_EQ(run(0), 0);
	CHECK_EQ(bench.words[DATA], 9);
	put_write(empty(0), VA, 1);
	CHECK_EQ(run(0), -ECANCELED);
	CHECK_EQ(view[0], 9);
	CHECK_CONTAINS(error_text(&bench), "not writable");
	munmap(view, PAGE);
	CHECK_EQ(bo_close(bench.fd, bo), 0);
}

static void an_unmapped_ib_faults(void)
{
	struct drm_amdgpu_cs_chunk_ib ib = ib_of(AMDGPU_HW_IP_DMA, 0, UNMAPPED_VA, 8);
	struct chunks chunks = { 0 };
	uint64_t number = 0;

	chunk_add(&chunks, AMDGPU_CHUNK_ID_IB, &ib, sizeof(ib));
	CHECK_EQ(chunks_submit(&bench, &chunks, &number), 0);
	CHECK_EQ(wait_for(&bench, number), -ECANCELED);
	context_destroy(bench.fd, bench.context);
	bench.context = context_create(bench.fd);
}

static void holes_read_as_zeros_and_swallow_writes(void)
{
	CHECK_EQ(va_op(bench.fd, AMDGPU_VA_OP_MAP, 0, PRT, VA, 0, PAGE), 0);
	put_copy(put_write(empty(0), VA, 5), DATA_VA, VA, 4);
	bench.words[DATA] = 0xff;
	CHECK_EQ(run(0), 0);
	CHECK_EQ(bench.words[DATA], 0);
	CHECK_EQ(va_clear(bench.fd, 0, VA, PAGE), 0);
}

/* ---- words, clocks and waiting ------------------------------------------------------------------- */

#define ATOMIC(operation, loop) (10u | (loop) << 16 | (uint32_t)(operation) << 25)

static void an_atomic_changes_a_word(void)
{
	bench.words[DATA] = 5;
	PUT(empty(0), ATOMIC(0x0f, 0), LO(DATA_VA), HI(DATA_VA), 7, 0, 0, 0, 0);
	CHECK_EQ(run(0), 0);
	CHECK_EQ(bench.words[DATA], 12);
	/* 64 bits, with a carry */
	bench.words[DATA] = 0xffffffff;
	bench.words[DATA + 1] = 1;
	PUT(empty(0), ATOMIC(0x2f, 0), LO(DATA_VA), HI(DATA_VA), 1, 0, 0, 0, 0);
	CHECK_EQ(run(0), 0);
	CHECK_EQ(bench.words[DATA], 0);
	CHECK_EQ(bench.words[DATA + 1], 2);
	PUT(empty(0), ATOMIC(0x01, 0), LO(DATA_VA), HI(DATA_VA), 1, 0, 0, 0, 0);
	CHECK_REFUSED("operation");
	PUT(empty(0), ATOMIC(0x2f, 0), LO(DATA_VA + 4), HI(DATA_VA), 1, 0, 0, 0, 0);
	CHECK_REFUSED("multiple");
}

static void a_looping_atomic_waits_until_its_comparison_holds(void)
{
	uint64_t number = 0;

	bench.words[DATA] = 1;
	PUT(empty(0), ATOMIC(0x08, 1), LO(DATA_VA), HI(DATA_VA), 0x12345678, 0, 0xdeadbeef, 0, 0x100);
	CHECK_EQ(slot_submit(&bench, 0, &number), 0);
	CHECK(is_busy(&bench, number));
	__atomic_store_n(&bench.words[DATA], 0xdeadbeef, __ATOMIC_SEQ_CST);
	CHECK_EQ(wait_for(&bench, number), 0);
	CHECK_EQ(bench.words[DATA], 0x12345678);
}

static void a_poll_waits_for_memory(void)
{
	uint32_t *at = PUT(empty(0), 8 | 3u << 28 | 1u << 31, LO(DATA_VA), HI(DATA_VA), 0x50, 0xf0, 0xa);
	uint64_t number = 0;

	put_write(at, DATA_VA + 4, 9);
	bench.words[DATA] = bench.words[DATA + 1] = 0;
	CHECK_EQ(slot_submit(&bench, 0, &number), 0);
	CHECK(is_busy(&bench, number));
	CHECK_EQ(bench.words[DATA + 1], 0);
	__atomic_store_n(&bench.words[DATA], 0x55, __ATOMIC_SEQ_CST);
	CHECK_EQ(wait_for(&bench, number), 0);
	CHECK_EQ(bench.words[DATA + 1], 9);
	PUT(empty(0), 8 | 3u << 28, LO(DATA_VA), HI(DATA_VA), 0, 0, 0);
	CHECK_REFUSED("only memory");
}

static void a_timestamp_is_the_clock_that_info_tells(void)
{
	struct drm_amdgpu_info info = { .return_size = 8, .query = AMDGPU_INFO_TIMESTAMP };
	uint64_t before = 0, after = 0, *told = (uint64_t *)(bench.words + DATA);

	info.return_pointer = (uintptr_t)&before;
	CHECK_EQ(call(bench.fd, DRM_IOCTL_AMDGPU_INFO, &info), 0);
	PUT(empty(0), 13 | 2 << 8, LO(DATA_VA), HI(DATA_VA));
	CHECK_EQ(run(0), 0);
	info.return_pointer = (uintptr_t)&after;
	CHECK_EQ(call(bench.fd, DRM_IOCTL_AMDGPU_INFO, &info), 0);
	CHECK(before <= *told && *told <= after);
	PUT(empty(0), 13, LO(DATA_VA), HI(DATA_VA));
	CHECK_REFUSED("clock");
}

int main(void)
{
	begin("gfx1201");
	RUN(nop_skips_as_many_dwords_as_it_says);
	RUN(write_linear_writes_its_dwords);
	RUN(copy_linear_copies_any_bytes);
	RUN(an_overlapping_copy_goes_forward);
	RUN(const_fill_fills_with_dwords_in_both_forms);
	RUN(fence_writes_its_value);
	RUN(packets_that_are_not_emulated_are_refused_by_name);
	RUN(a_packet_may_not_end_behind_its_ib);
	RUN(packets_are_counted_when_they_ran);
	RUN(the_eighth_dword_of_a_copy_is_there_with_cpv_on_gfx12);
	RUN(an_unmapped_write_faults_and_touches_nothing);
	RUN(a_copy_stops_at_the_page_that_faults);
	RUN(a_write_to_read_only_memory_faults);
	RUN(an_unmapped_ib_faults);
	RUN(holes_read_as_zeros_and_swallow_writes);
	RUN(an_atomic_changes_a_word);
	RUN(a_looping_atomic_waits_until_its_comparison_holds);
	RUN(a_poll_waits_for_memory);
	RUN(a_timestamp_is_the_clock_that_info_tells);
	finish();
	RUN(all_models_know_all_packets);
	return 0;
}
