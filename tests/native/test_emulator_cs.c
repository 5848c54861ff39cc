/* SPDX-License-Identifier: MIT
 *
 * CS: what each chunk needs to be, and that a submission refused leaves nothing behind.
 */
#include "cs_fixture.h"

static struct bench bench;

static int refused_by(struct chunks *chunks)
{
	struct vmkv_emulator_stats before = stats(&bench.card), after;
	int error = chunks_submit(&bench, chunks, NULL);

	after = stats(&bench.card);
	CHECK_EQ(after.submissions, before.submissions + !error);
	if (error) {
		CHECK_EQ(after.fences, before.fences);
		CHECK_EQ(after.syncobjs, before.syncobjs);
		CHECK_EQ(after.buffer_lists, before.buffer_lists);
	}
	return error;
}

/* The result of submitting one IB, changed as the statement says. */
#define SUBMIT_IB(change)                                                                          \
	({                                                                                         \
		struct drm_amdgpu_cs_chunk_ib ib = ib_slot(0);                                     \
		struct chunks chunks_ = { 0 };                                                     \
		change;                                                                            \
		chunk_add(&chunks_, AMDGPU_CHUNK_ID_IB, &ib, sizeof(ib));                          \
		refused_by(&chunks_);                                                              \
	})

/* The result of submitting an IB with one more chunk. */
static int with(uint32_t id, const void *data, size_t bytes)
{
	struct drm_amdgpu_cs_chunk_ib ib = ib_slot(0);
	struct chunks chunks = { 0 };

	chunk_add(&chunks, AMDGPU_CHUNK_ID_IB, &ib, sizeof(ib));
	chunk_add(&chunks, id, data, bytes);
	return refused_by(&chunks);
}

/* ---- the submission as a whole ------------------------------------------------------------------- */

static void no_chunks_are_invalid(void)
{
	struct chunks chunks = { 0 };

	CHECK_EQ(refused_by(&chunks), -EINVAL);
}

static void an_unknown_context_is_invalid(void)
{
	uint32_t context = bench.context;
	int error;

	bench.context = context + 1;
	error = SUBMIT_IB();
	bench.context = context;
	CHECK_EQ(error, -EINVAL);
}

static void a_submission_without_an_ib_is_invalid(void)
{
	struct chunks chunks = { 0 };

	chunk_add(&chunks, AMDGPU_CHUNK_ID_SYNCOBJ_IN, NULL, 0);
	CHECK_EQ(refused_by(&chunks), -EINVAL);
}

static void pointers_that_lead_nowhere_are_faults(void)
{
	struct chunks chunks = { 0 };
	uint64_t pointer = 8;
	union drm_amdgpu_cs args = { .in = { .ctx_id = bench.context, .num_chunks = 1, .chunks = 8 } };

	CHECK_EQ(call(bench.fd, DRM_IOCTL_AMDGPU_CS, &args), -EFAULT);
	args.in.chunks = (uintptr_t)&pointer;
	CHECK_EQ(call(bench.fd, DRM_IOCTL_AMDGPU_CS, &args), -EFAULT);
	chunk_add(&chunks, AMDGPU_CHUNK_ID_IB, (void *)8, sizeof(struct drm_amdgpu_cs_chunk_ib));
	CHECK_EQ(refused_by(&chunks), -EFAULT);
}

static void unknown_chunks_and_flags_are_refused_and_counted(void)
{
	struct drm_amdgpu_cs_chunk_ib ib = ib_slot(0);
	uint64_t refused = stats(&bench.card).refused;
	struct chunks chunks = { .flags = 1 };

	CHECK_EQ(with(0, &ib, sizeof(ib)), -EINVAL);
	CHECK_EQ(with(11, &ib, sizeof(ib)), -EINVAL);
	CHECK_CONTAINS(error_text(&bench), "chunk 11");
	chunk_add(&chunks, AMDGPU_CHUNK_ID_IB, &ib, sizeof(ib));
	CHECK_EQ(refused_by(&chunks), -EINVAL);
	CHECK_EQ(SUBMIT_IB(ib.flags = 1u << 7), -EINVAL);
	CHECK_EQ(stats(&bench.card).refused, refused + 4);
}

static void numbers_count_up_by_ring(void)
{
	uint64_t first = 0, second = 0;
	struct drm_amdgpu_cs_chunk_ib ib = ib_of(AMDGPU_HW_IP_DMA, 1, SLOT_VA(0), 8);
	struct chunks chunks = { 0 };

	CHECK_EQ(slot_submit(&bench, 0, &first), 0);
	CHECK_EQ(SUBMIT_IB(ib.flags = 1u << 7), -EINVAL); /* takes no number */
	CHECK_EQ(slot_submit(&bench, 0, &second), 0);
	CHECK_EQ(second, first + 1);
	chunk_add(&chunks, AMDGPU_CHUNK_ID_IB, &ib, sizeof(ib));
	CHECK_EQ(chunks_submit(&bench, &chunks, &first), 0);
	CHECK_EQ(first, 1);
}

/* ---- IBs ----------------------------------------------------------------------------------------- */

static void a_chunk_may_not_be_shorter_than_its_struct(void)
{
	struct drm_amdgpu_cs_chunk_ib ib = ib_slot(0);
	struct chunks chunks = { 0 };
	struct drm_amdgpu_bo_list_in list = { .bo_info_size = 8 };
	struct drm_amdgpu_cs_chunk_fence fence = { 0 };

	chunk_add(&chunks, AMDGPU_CHUNK_ID_IB, &ib, sizeof(ib) - 4);
	CHECK_EQ(refused_by(&chunks), -EINVAL);
	CHECK_EQ(with(AMDGPU_CHUNK_ID_BO_HANDLES, &list, sizeof(list) - 4), -EINVAL);
	CHECK_EQ(with(AMDGPU_CHUNK_ID_FENCE, &fence, sizeof(fence) - 4), -EINVAL);
	CHECK_EQ(with(AMDGPU_CHUNK_ID_BO_HANDLES, &list, sizeof(list)), 0);
}

static void an_ib_names_a_ring_that_there_is(void)
{
	CHECK_EQ(SUBMIT_IB(ib.ip_type = AMDGPU_HW_IP_NUM), -EINVAL);
	CHECK_EQ(SUBMIT_IB(ib.ip_type = AMDGPU_HW_IP_UVD), -EINVAL);
	CHECK_EQ(SUBMIT_IB(ib.ip_instance = 1), -EINVAL);
	CHECK_EQ(SUBMIT_IB(ib.ring = 2), -EINVAL);
	CHECK_EQ(SUBMIT_IB(ib.ip_type = AMDGPU_HW_IP_GFX; ib.ring = 1), -EINVAL);
	CHECK_EQ(SUBMIT_IB(ib.ip_type = AMDGPU_HW_IP_COMPUTE; ib.ring = 4), -EINVAL);
	CHECK_EQ(SUBMIT_IB(ib.ring = 1), 0);
}

/* Submits n IBs, and waits for them. */
static int ibs_run(uint32_t ip, uint32_t n)
{
	static struct drm_amdgpu_cs_chunk chunks[256];
	static uint64_t pointers[256];
	struct drm_amdgpu_cs_chunk_ib ib = ib_of(ip, 0, SLOT_VA(1), 8);
	union drm_amdgpu_cs args = { .in = { .ctx_id = bench.context, .num_chunks = n,
		                             .chunks = (uintptr_t)pointers } };
	union drm_amdgpu_wait_cs last = { .in = { .handle = UINT64_MAX, .timeout = UINT64_MAX,
		                                  .ip_type = ip, .ctx_id = bench.context } };
	int error;

	for (int i = 0; i < 8; i++)
		slot(&bench, 1)[i] = ip == AMDGPU_HW_IP_DMA ? 0 : 0xffff1000;
	for (uint32_t i = 0; i < n; i++) {
		chunks[i] = (struct drm_amdgpu_cs_chunk){ AMDGPU_CHUNK_ID_IB, sizeof(ib) / 4,
			                                  (uintptr_t)&ib };
		pointers[i] = (uintptr_t)&chunks[i];
	}
	error = call(bench.fd, DRM_IOCTL_AMDGPU_CS, &args);
	CHECK_EQ(call(bench.fd, DRM_IOCTL_AMDGPU_WAIT_CS, &last), 0);
	return error;
}

static void a_submission_has_so_many_ibs_at_most(void)
{
	static const struct {
		uint32_t ip, most;
	} kinds[] = { { AMDGPU_HW_IP_GFX, 192 }, { AMDGPU_HW_IP_COMPUTE, 125 }, { AMDGPU_HW_IP_DMA, 49 } };

	for (int i = 0; i < 3; i++) {
		CHECK_EQ(ibs_run(kinds[i].ip, kinds[i].most), 0);
		CHECK_EQ(ibs_run(kinds[i].ip, kinds[i].most + 1), -EINVAL);
	}
}

static void an_ib_is_bounded_from_7_2_on(void)
{
	FOR_EACH_KERNEL(kernel) {
		struct bench before = bench;
		bool bounded = !strcmp(kernel, "7.2");

		bench = bench_open(kernel, "");
		vmkv_emulator_pause(bench.card.gpu); /* they lead beyond the memory that is there */
		CHECK_EQ(SUBMIT_IB(ib.ib_bytes = 0x100000 * 4), bounded ? -EINVAL : 0);
		CHECK_EQ(SUBMIT_IB(ib.ib_bytes = 0x100000 * 4 - 1), 0);
		bench_close(&bench);
		bench = before;
	}
}

static void an_ib_begins_at_a_multiple_of_32_bytes(void)
{
	CHECK_EQ(SUBMIT_IB(ib.va_start += 16; ib.ib_bytes = 32), -EINVAL);
	CHECK_CONTAINS(error_text(&bench), "aligned");
	CHECK_EQ(SUBMIT_IB(ib.va_start += 32; ib.ib_bytes = 32), 0);
}

/* How many packets ran, with nothing under way. */
static uint64_t packets_before(void)
{
	memset(slot(&bench, 0), 0, PAGE);
	CHECK_EQ(slot_run(&bench, 0), 0);
	return stats(&bench.card).packets;
}

/* Nobody can wait for those that don't lead. */
static void packets_await(uint64_t n)
{
	for (int i = 0; i < 1000 && stats(&bench.card).packets < n; i++)
		let_threads_run();
	CHECK_EQ(stats(&bench.card).packets, n);
}

/* The fence of a gang is its leader's, which is whose IB comes last; but all of it runs. */
static void a_submission_may_have_ibs_for_four_rings(void)
{
	struct drm_amdgpu_cs_chunk_ib ibs[5] = {
		ib_of(AMDGPU_HW_IP_COMPUTE, 0, SLOT_VA(1), 8), ib_of(AMDGPU_HW_IP_COMPUTE, 1, SLOT_VA(1), 8),
		ib_of(AMDGPU_HW_IP_DMA, 1, SLOT_VA(0), 8), ib_of(AMDGPU_HW_IP_DMA, 0, SLOT_VA(0), 8),
		ib_of(AMDGPU_HW_IP_GFX, 0, SLOT_VA(1), 8),
	};
	uint64_t number = 0, before = packets_before();
	struct chunks chunks = { 0 };

	for (int i = 0; i < 8; i++)
		slot(&bench, 1)[i] = 0xffff1000;
	for (int i = 0; i < 4; i++)
		chunk_add(&chunks, AMDGPU_CHUNK_ID_IB, &ibs[i], sizeof(ibs[i]));
	CHECK_EQ(chunks_submit(&bench, &chunks, &number), 0);
	CHECK_EQ(wait_for(&bench, number), 0);
	packets_await(before + 32);
	chunk_add(&chunks, AMDGPU_CHUNK_ID_IB, &ibs[4], sizeof(ibs[4]));
	CHECK_EQ(refused_by(&chunks), -EINVAL);
}

/* Whichever of them begins: they run beside one another. */
static void a_gang_may_wait_for_one_another(void)
{
	struct drm_amdgpu_cs_chunk_ib compute = ib_of(AMDGPU_HW_IP_COMPUTE, 0, SLOT_VA(1), 14);
	struct drm_amdgpu_cs_chunk_ib dma = ib_slot(0);
	uint64_t number = 0, before = packets_before();
	uint32_t *at = slot(&bench, 1);
	struct chunks chunks = { 0 };

	memset(slot(&bench, 0), 0, PAGE);
	bench.words[DATA] = bench.words[DATA + 1] = 0;
	/* Each says that it is there, and waits for the other. */
	at = PUT(at, 0xc0033700, 5 << 8 | 1 << 20, LO(DATA_VA), HI(DATA_VA), 1);
	at = PUT(at, 0xc0053c00, 3 | 1 << 4, LO(DATA_VA + 4), HI(DATA_VA), 1, 0xffffffff, 4);
	PUT(at, 0xffff1000, 0xffff1000);
	at = put_write(slot(&bench, 0), DATA_VA + 4, 1);
	PUT(at, 8 | 3u << 28 | 1u << 31, LO(DATA_VA), HI(DATA_VA), 1, 0xffffffff, 0xa);
	chunk_add(&chunks, AMDGPU_CHUNK_ID_IB, &compute, sizeof(compute));
	chunk_add(&chunks, AMDGPU_CHUNK_ID_IB, &dma, sizeof(dma));
	CHECK_EQ(chunks_submit(&bench, &chunks, &number), 0);
	CHECK_EQ(wait_for(&bench, number), 0);
	packets_await(before + 4 + 2 + SLOT_DWORDS - 11);
}

/* Those that don't lead wait for what the submission depends on, too. */
static void all_of_a_gang_waits_for_its_dependencies(void)
{
	struct drm_amdgpu_cs_chunk_ib member = ib_of(AMDGPU_HW_IP_DMA, 1, SLOT_VA(0), 8), leader = ib_slot(2);
	struct drm_amdgpu_cs_chunk_dep dep = { .ip_type = AMDGPU_HW_IP_GFX, .ctx_id = bench.context };
	struct drm_amdgpu_cs_chunk_ib first = ib_of(AMDGPU_HW_IP_GFX, 0, SLOT_VA(1), 8);
	struct chunks chunks = { 0 }, gang = { 0 };
	uint64_t number = 0, before = packets_before();

	memset(slot(&bench, 0), 0, 3 * PAGE);
	bench.words[DATA] = bench.words[DATA + 1] = 0;
	PUT(slot(&bench, 1), 0xc0053c00, 3 | 1 << 4, LO(DATA_VA), HI(DATA_VA), 1, 0xffffffff, 4, 0xffff1000);
	put_write(slot(&bench, 0), DATA_VA + 4, 1);
	chunk_add(&chunks, AMDGPU_CHUNK_ID_IB, &first, sizeof(first));
	CHECK_EQ(chunks_submit(&bench, &chunks, (uint64_t *)&dep.handle), 0);
	chunk_add(&gang, AMDGPU_CHUNK_ID_IB, &member, sizeof(member));
	chunk_add(&gang, AMDGPU_CHUNK_ID_IB, &leader, sizeof(leader));
	chunk_add(&gang, AMDGPU_CHUNK_ID_DEPENDENCIES, &dep, sizeof(dep));
	CHECK_EQ(chunks_submit(&bench, &gang, &number), 0);
	let_threads_run();
	CHECK_EQ(bench.words[DATA + 1], 0);
	__atomic_store_n(&bench.words[DATA], 1, __ATOMIC_SEQ_CST);
	CHECK_EQ(wait_for(&bench, number), 0);
	packets_await(before + 2 + 4 + SLOT_DWORDS);
	CHECK_EQ(bench.words[DATA + 1], 1);
}

/* RADV asks to wait for a submission even where it signals. */
static void flags_of_a_point_to_signal_are_not_looked_at(void)
{
	struct drm_amdgpu_cs_chunk_syncobj point = { .handle = syncobj_make(bench.fd, 0), .flags = 2,
		                                     .point = 1 };

	CHECK_EQ(with(AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL, &point, sizeof(point)), 0);
	CHECK_EQ(point_wait(bench.fd, point.handle, 1, 0, INT64_MAX), 0);
	CHECK_EQ(syncobj_end(bench.fd, point.handle), 0);
}

static void encrypted_ibs_are_refused(void)
{
	CHECK_EQ(SUBMIT_IB(ib.flags = AMDGPU_IB_FLAGS_SECURE), -EINVAL);
	CHECK_EQ(SUBMIT_IB(ib.flags = AMDGPU_IB_FLAG_PREAMBLE | AMDGPU_IB_FLAG_EMIT_MEM_SYNC), 0);
}

static void the_ibs_of_a_submission_run_in_order(void)
{
	struct drm_amdgpu_cs_chunk_ib second = ib_slot(1);
	uint64_t number = 0;

	memset(slot(&bench, 0), 0, 2 * PAGE);
	put_write(slot(&bench, 0), DATA_VA, 1);
	put_copy(slot(&bench, 1), DATA_VA + 4, DATA_VA, 4);
	bench.words[DATA] = bench.words[DATA + 1] = 0;
	CHECK_EQ(slot_submit_with(&bench, 0, AMDGPU_CHUNK_ID_IB, &second, sizeof(second), &number), 0);
	CHECK_EQ(wait_for(&bench, number), 0);
	CHECK_EQ(bench.words[DATA + 1], 1);
}

/* ---- the user fence ------------------------------------------------------------------------------ */

static void the_user_fence_gets_the_number(void)
{
	uint32_t bo = bo_create_in(bench.fd, PAGE, GTT, 0);
	uint64_t *view = bo_view(bench.fd, bo, PAGE), number;
	struct drm_amdgpu_cs_chunk_fence fence = { .handle = bo, .offset = PAGE - 8 };

	view[511] = UINT64_MAX;
	CHECK_EQ(slot_submit_with(&bench, 0, AMDGPU_CHUNK_ID_FENCE, &fence, sizeof(fence), &number), 0);
	CHECK_EQ(wait_for(&bench, number), 0);
	CHECK_EQ(view[511], number);
	munmap(view, PAGE);
	CHECK_EQ(bo_close(bench.fd, bo), 0);
}

static void the_user_fence_lies_in_a_buffer_of_one_page(void)
{
	uint32_t one = bo_create_in(bench.fd, PAGE, GTT, 0);
	uint32_t two = bo_create_in(bench.fd, 2 * PAGE, GTT, 0);
	struct drm_amdgpu_cs_chunk_fence fence = { .handle = two };
	struct drm_amdgpu_cs_chunk_ib ib = ib_slot(0);
	struct chunks chunks = { 0 };

	CHECK_EQ(with(AMDGPU_CHUNK_ID_FENCE, &fence, sizeof(fence)), -EINVAL);
	fence.handle = 9999;
	CHECK_EQ(with(AMDGPU_CHUNK_ID_FENCE, &fence, sizeof(fence)), -EINVAL);
	fence = (struct drm_amdgpu_cs_chunk_fence){ .handle = one, .offset = PAGE - 7 };
	CHECK_EQ(with(AMDGPU_CHUNK_ID_FENCE, &fence, sizeof(fence)), -EINVAL);
	fence.offset = 8;
	chunk_add(&chunks, AMDGPU_CHUNK_ID_IB, &ib, sizeof(ib));
	chunk_add(&chunks, AMDGPU_CHUNK_ID_FENCE, &fence, sizeof(fence));
	CHECK_EQ(refused_by(&chunks), 0);
	chunk_add(&chunks, AMDGPU_CHUNK_ID_FENCE, &fence, sizeof(fence));
	CHECK_EQ(refused_by(&chunks), -EINVAL); /* only one */
	CHECK_EQ(bo_close(bench.fd, one), 0);
	CHECK_EQ(bo_close(bench.fd, two), 0);
}

/* ---- dependencies and syncobjs ------------------------------------------------------------------- */

static void a_dependency_is_on_something_submitted(void)
{
	struct drm_amdgpu_cs_chunk_dep dep = { .ip_type = AMDGPU_HW_IP_DMA, .ctx_id = bench.context };

	for (uint32_t id = AMDGPU_CHUNK_ID_DEPENDENCIES;
	     id <= AMDGPU_CHUNK_ID_SCHEDULED_DEPENDENCIES; id += 4) {
		CHECK_EQ(slot_submit(&bench, 0, (uint64_t *)&dep.handle), 0);
		CHECK_EQ(with(id, &dep, sizeof(dep)), 0);
		dep.handle += 2;
		CHECK_EQ(with(id, &dep, sizeof(dep)), -EINVAL);
		dep.handle = 0;
		CHECK_EQ(with(id, &dep, sizeof(dep)), 0);
		dep.ring = 2;
		CHECK_EQ(with(id, &dep, sizeof(dep)), -EINVAL);
		dep.ring = 0;
		dep.ctx_id++;
		CHECK_EQ(with(id, &dep, sizeof(dep)), -EINVAL);
		dep.ctx_id--;
	}
}

static void a_syncobj_to_wait_for_exists_and_has_a_fence(void)
{
	struct drm_amdgpu_cs_chunk_sem sem = { .handle = 77 };
	struct drm_amdgpu_cs_chunk_syncobj point = { .handle = 77, .point = 1 };

	CHECK_EQ(with(AMDGPU_CHUNK_ID_SYNCOBJ_IN, &sem, sizeof(sem)), -ENOENT);
	CHECK_EQ(with(AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT, &point, sizeof(point)), -ENOENT);
	sem.handle = point.handle = syncobj_make(bench.fd, 0);
	CHECK_EQ(with(AMDGPU_CHUNK_ID_SYNCOBJ_IN, &sem, sizeof(sem)), -EINVAL);
	CHECK_EQ(with(AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT, &point, sizeof(point)), -EINVAL);
	CHECK_EQ(point_signal(bench.fd, sem.handle, 1), 0);
	CHECK_EQ(with(AMDGPU_CHUNK_ID_SYNCOBJ_IN, &sem, sizeof(sem)), 0);
	CHECK_EQ(with(AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT, &point, sizeof(point)), 0);
	point.flags = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL;
	CHECK_EQ(with(AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT, &point, sizeof(point)), -EINVAL);
	CHECK_EQ(syncobj_end(bench.fd, sem.handle), 0);
}

static void a_syncobj_to_signal_exists(void)
{
	struct drm_amdgpu_cs_chunk_sem sem = { .handle = 77 };
	struct drm_amdgpu_cs_chunk_syncobj point = { .handle = 77, .point = 1 };
	struct drm_amdgpu_cs_chunk_ib ib = ib_slot(0);
	struct chunks chunks = { 0 };

	CHECK_EQ(with(AMDGPU_CHUNK_ID_SYNCOBJ_OUT, &sem, sizeof(sem)), -EINVAL);
	CHECK_EQ(with(AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL, &point, sizeof(point)), -EINVAL);
	sem.handle = point.handle = syncobj_make(bench.fd, 0);
	chunk_add(&chunks, AMDGPU_CHUNK_ID_IB, &ib, sizeof(ib));
	chunk_add(&chunks, AMDGPU_CHUNK_ID_SYNCOBJ_OUT, &sem, sizeof(sem));
	chunk_add(&chunks, AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL, &point, sizeof(point));
	CHECK_EQ(refused_by(&chunks), -EINVAL); /* one kind or the other */
	CHECK_EQ(syncobj_wait_one(bench.fd, sem.handle, 0), -EINVAL); /* it got nothing */
	CHECK_EQ(syncobj_end(bench.fd, sem.handle), 0);
}

static void a_shadow_is_unknown_to_6_1_and_not_emulated_later(void)
{
	struct drm_amdgpu_cs_chunk_cp_gfx_shadow shadow = { 0 };

	FOR_EACH_KERNEL(kernel) {
		struct bench before = bench;

		bench = bench_open(kernel, "");
		CHECK_EQ(with(AMDGPU_CHUNK_ID_CP_GFX_SHADOW, &shadow, sizeof(shadow)), -EINVAL);
		CHECK_CONTAINS(error_text(&bench),
		               strcmp(kernel, "6.1") ? "CP_GFX_SHADOW" : "unknown chunk");
		bench_close(&bench);
		bench = before;
	}
}

/* ---- nothing leaks ------------------------------------------------------------------------------- */

static void fences_do_not_leak(void)
{
	struct drm_amdgpu_cs_chunk_syncobj point = { .handle = syncobj_make(bench.fd, 0) };
	uint64_t number = 0, fences = 0;

	memset(slot(&bench, 0), 0, PAGE);
	/* A ring keeps the fences of its last submissions: fill it first. */
	for (uint32_t i = 0; i < 3 * EMU_CONTEXT_FENCES; i++) {
		point.point++;
		CHECK_EQ(slot_submit_with(&bench, 0, AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL, &point,
		                          sizeof(point), &number),
		         0);
		if (i + 1 == 2 * EMU_CONTEXT_FENCES) {
			CHECK_EQ(wait_for(&bench, number), 0);
			fences = stats(&bench.card).fences;
		}
	}
	CHECK_EQ(wait_for(&bench, number), 0);
	CHECK_EQ(point_query(bench.fd, point.handle, 0), point.point);
	CHECK(stats(&bench.card).fences <= fences);
	CHECK_EQ(syncobj_end(bench.fd, point.handle), 0);
	context_destroy(bench.fd, bench.context);
	CHECK(stats(&bench.card).fences < fences - EMU_CONTEXT_FENCES + 8);
	bench.context = context_create(bench.fd);
}

int main(void)
{
	bench = bench_open("6.12", "");
	RUN(no_chunks_are_invalid);
	RUN(an_unknown_context_is_invalid);
	RUN(a_submission_without_an_ib_is_invalid);
	RUN(pointers_that_lead_nowhere_are_faults);
	RUN(unknown_chunks_and_flags_are_refused_and_counted);
	RUN(numbers_count_up_by_ring);
	RUN(a_chunk_may_not_be_shorter_than_its_struct);
	RUN(an_ib_names_a_ring_that_there_is);
	RUN(a_submission_has_so_many_ibs_at_most);
	RUN(an_ib_is_bounded_from_7_2_on);
	RUN(an_ib_begins_at_a_multiple_of_32_bytes);
	RUN(a_submission_may_have_ibs_for_four_rings);
	RUN(a_gang_may_wait_for_one_another);
	RUN(all_of_a_gang_waits_for_its_dependencies);
	RUN(flags_of_a_point_to_signal_are_not_looked_at);
	RUN(encrypted_ibs_are_refused);
	RUN(the_ibs_of_a_submission_run_in_order);
	RUN(the_user_fence_gets_the_number);
	RUN(the_user_fence_lies_in_a_buffer_of_one_page);
	RUN(a_dependency_is_on_something_submitted);
	RUN(a_syncobj_to_wait_for_exists_and_has_a_fence);
	RUN(a_syncobj_to_signal_exists);
	RUN(a_shadow_is_unknown_to_6_1_and_not_emulated_later);
	RUN(fences_do_not_leak);
	bench_close(&bench);
	return 0;
}
