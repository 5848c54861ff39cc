/* SPDX-License-Identifier: MIT
 *
 * What runs when: submissions are asynchronous, in order on a ring, in any order otherwise, and as they are
 * told by fences; and how others wait for them.
 */
#include <pthread.h>

#include "cs_fixture.h"

static struct bench bench;
static int fd;

/* A slot whose IB writes a value at data word `where`. */
static void slot_writes(uint32_t i, uint32_t where, uint32_t value)
{
	memset(slot(&bench, i), 0, PAGE);
	put_write(slot(&bench, i), DATA_VA + 4 * where, value);
}

/* ... or copies a word. */
static void slot_copies(uint32_t i, uint32_t to, uint32_t from)
{
	memset(slot(&bench, i), 0, PAGE);
	put_copy(slot(&bench, i), DATA_VA + 4 * to, DATA_VA + 4 * from, 4);
}

static int ring_submit(uint32_t i, uint32_t ring, const struct drm_amdgpu_cs_chunk_dep *after)
{
	struct drm_amdgpu_cs_chunk_ib ib = ib_of(AMDGPU_HW_IP_DMA, ring, SLOT_VA(i), SLOT_DWORDS);
	struct chunks chunks = { 0 };

	chunk_add(&chunks, AMDGPU_CHUNK_ID_IB, &ib, sizeof(ib));
	if (after)
		chunk_add(&chunks, AMDGPU_CHUNK_ID_DEPENDENCIES, after, sizeof(*after));
	return chunks_submit(&bench, &chunks, NULL);
}

static int ring_wait(uint32_t ring)
{
	union drm_amdgpu_wait_cs args = { .in = { .handle = UINT64_MAX, .timeout = UINT64_MAX,
		                                  .ip_type = AMDGPU_HW_IP_DMA, .ring = ring,
		                                  .ctx_id = bench.context } };

	return call(fd, DRM_IOCTL_AMDGPU_WAIT_CS, &args);
}

/* ---- asynchrony ---------------------------------------------------------------------------------- */

static void cs_returns_before_its_job_ran(void)
{
	uint64_t number = 0, status;
	int64_t deadline;

	slot_writes(0, 0, 1);
	bench.words[DATA] = 0;
	vmkv_emulator_pause(bench.card.gpu);
	CHECK_EQ(slot_submit(&bench, 0, &number), 0);
	CHECK(is_busy(&bench, number));
	deadline = SOON;
	CHECK_EQ(wait_until(&bench, number, deadline, &status), 0);
	CHECK_EQ(status, 1);
	CHECK(time_ns() >= deadline);
	CHECK_EQ(bench.words[DATA], 0);
	vmkv_emulator_resume(bench.card.gpu);
	CHECK_EQ(wait_for(&bench, number), 0);
	CHECK_EQ(bench.words[DATA], 1);
	CHECK(!is_busy(&bench, number));
}

static void a_closed_file_runs_what_it_submitted_even_on_a_paused_card(void)
{
	struct bench other = bench;
	uint64_t number = 0;

	CHECK_EQ(vmkv_emulator_open(bench.card.gpu, &other.fd), 0);
	other.context = context_create(other.fd);
	vmkv_emulator_pause(bench.card.gpu);
	CHECK_EQ(slot_submit(&other, 0, &number), 0);
	CHECK_EQ(vmkv_emulator_close(other.fd), 0);
	CHECK_EQ(stats(&bench.card).files, 1);
	vmkv_emulator_resume(bench.card.gpu);
}

static void a_ring_takes_so_many_jobs_and_then_waits(void)
{
	uint64_t number = 0, first = 0;

	memset(slot(&bench, 0), 0, PAGE);
	CHECK_EQ(slot_submit(&bench, 0, &first), 0);
	for (uint32_t i = 1; i < 3 * EMU_CONTEXT_FENCES; i++)
		CHECK_EQ(slot_submit(&bench, 0, &number), 0);
	CHECK(!is_busy(&bench, number - EMU_CONTEXT_FENCES));
	CHECK_EQ(wait_for(&bench, first), 0); /* long forgotten: done */
	CHECK_EQ(wait_for(&bench, number), 0);
}

/* ---- order --------------------------------------------------------------------------------------- */

static void jobs_of_a_ring_run_in_order(void)
{
	vmkv_emulator_pause(bench.card.gpu);
	for (uint32_t i = 0; i < 32; i++) {
		slot_copies(i, i + 1, i);
		CHECK_EQ(slot_submit(&bench, i, NULL), 0);
	}
	memset(bench.words + DATA, 0, PAGE);
	bench.words[DATA] = 42;
	vmkv_emulator_resume(bench.card.gpu);
	CHECK_EQ(ring_wait(0), 0);
	CHECK_EQ(bench.words[DATA + 32], 42);
}

/* Of two rings, the one that the word tells wrote last. */
static uint32_t last_of_two_rings(bool dependent)
{
	struct drm_amdgpu_cs_chunk_dep dep = { .ip_type = AMDGPU_HW_IP_DMA, .ctx_id = bench.context,
		                               .handle = UINT64_MAX };

	slot_writes(0, 0, 1);
	slot_writes(1, 0, 2);
	vmkv_emulator_pause(bench.card.gpu);
	CHECK_EQ(ring_submit(0, 0, NULL), 0);
	CHECK_EQ(ring_submit(1, 1, dependent ? &dep : NULL), 0);
	vmkv_emulator_resume(bench.card.gpu);
	CHECK_EQ(ring_wait(0), 0);
	CHECK_EQ(ring_wait(1), 0);
	return bench.words[DATA];
}

static void rings_run_in_the_order_they_were_given_without_a_seed(void)
{
	for (int i = 0; i < 20; i++)
		CHECK_EQ(last_of_two_rings(false), 2);
}

static void rings_run_in_any_order_with_a_seed_unless_told(void)
{
	struct bench before = bench;
	uint32_t seen[3] = { 0 };

	bench = bench_open("6.12", "&seed=7");
	fd = bench.fd;
	for (int i = 0; i < 64; i++)
		seen[last_of_two_rings(false)]++;
	CHECK(seen[1] > 5);
	CHECK(seen[2] > 5);
	for (int i = 0; i < 32; i++)
		CHECK_EQ(last_of_two_rings(true), 2);
	bench_close(&bench);
	bench = before;
	fd = bench.fd;
}

static void syncobjs_order_contexts(void)
{
	struct drm_amdgpu_cs_chunk_syncobj point = { .handle = syncobj_make(fd, 0), .point = 1 };
	uint32_t own = bench.context, other = context_create(fd);
	uint64_t number = 0;

	slot_writes(0, 0, 5);
	slot_copies(1, 1, 0);
	bench.words[DATA] = bench.words[DATA + 1] = 0;
	vmkv_emulator_pause(bench.card.gpu);
	CHECK_EQ(slot_submit_with(&bench, 0, AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL, &point,
	                          sizeof(point), NULL),
	         0);
	bench.context = other;
	CHECK_EQ(slot_submit_with(&bench, 1, AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT, &point,
	                          sizeof(point), &number),
	         0);
	vmkv_emulator_resume(bench.card.gpu);
	CHECK_EQ(wait_for(&bench, number), 0);
	CHECK_EQ(bench.words[DATA + 1], 5);
	bench.context = own;
	context_destroy(fd, other);
	CHECK_EQ(syncobj_end(fd, point.handle), 0);
}

static void a_clear_runs_after_submissions_of_its_vm(void)
{
	uint32_t bo = bo_create_in(fd, PAGE, GTT, ALWAYS);
	uint32_t *view = bo_view(fd, bo, PAGE);
	uint64_t before = 0, after = 0;

	CHECK_EQ(va_map(fd, bo, 0, VA, 0, PAGE), 0);
	slot_writes(0, 0, 0);
	put_write(slot(&bench, 0), VA, 9);
	vmkv_emulator_pause(bench.card.gpu);
	CHECK_EQ(slot_submit(&bench, 0, &before), 0);
	CHECK_EQ(va_unmap(fd, bo, 0, VA), 0); /* returns, though the job uses it */
	CHECK_EQ(slot_submit(&bench, 0, &after), 0);
	vmkv_emulator_resume(bench.card.gpu);
	CHECK_EQ(wait_for(&bench, before), 0);
	CHECK_EQ(wait_for(&bench, after), -ECANCELED);
	CHECK_EQ(view[0], 9);
	munmap(view, PAGE);
	CHECK_EQ(bo_close(fd, bo), 0);
	context_destroy(fd, bench.context);
	bench.context = context_create(fd);
}

/* ---- implicit synchronisation --------------------------------------------------------------------- */

/* Whether a submission that lists the buffer waits for what another does with it, as it should or not. */
static bool waits_for(uint32_t bo, enum held_by who, bool should)
{
	struct emu_file *file = emu_file_get(fd);
	struct drm_amdgpu_bo_list_entry entry = { .bo_handle = bo };
	struct drm_amdgpu_bo_list_in list = { .bo_number = 1, .bo_info_size = 8,
		                              .bo_info_ptr = (uintptr_t)&entry };
	struct emu_fence *fence;
	uint64_t number = 0, status;
	bool waits;

	pthread_mutex_lock(&file->gpu->lock);
	CHECK_EQ(emu_fence_create(file->gpu, who == SUBMISSION_OF_THIS_VM ? file->vm : NULL, &fence), 0);
	CHECK_EQ(emu_resv_add(emu_bo_resv(emu_handle_find(file, bo)->bo), fence,
	                      who == MOVE_OF_BUFFER ? EMU_USAGE_KERNEL : EMU_USAGE_WRITE),
	         0);
	pthread_mutex_unlock(&file->gpu->lock);
	emu_file_put(file);
	memset(slot(&bench, 0), 0, PAGE);
	CHECK_EQ(slot_submit_with(&bench, 0, AMDGPU_CHUNK_ID_BO_HANDLES, &list, sizeof(list), &number),
	         0);
	CHECK_EQ(wait_until(&bench, number, should ? SOON : time_ns() + 10000000000, &status), 0);
	waits = status == 1;
	let_go(fence);
	CHECK_EQ(wait_for(&bench, number), 0);
	return waits;
}

static void listed_buffers_are_waited_for_unless_explicit(void)
{
	uint32_t implicit = bo_create_in(fd, PAGE, GTT, 0);
	uint32_t explicit = bo_create_in(fd, PAGE, GTT, AMDGPU_GEM_CREATE_EXPLICIT_SYNC);

	CHECK(waits_for(implicit, SUBMISSION_OF_ANOTHER, true));
	CHECK(!waits_for(implicit, SUBMISSION_OF_THIS_VM, false));
	CHECK(waits_for(implicit, MOVE_OF_BUFFER, true));
	CHECK(!waits_for(explicit, SUBMISSION_OF_ANOTHER, false));
	CHECK(waits_for(explicit, MOVE_OF_BUFFER, true));
	CHECK_EQ(bo_close(fd, implicit), 0);
	CHECK_EQ(bo_close(fd, explicit), 0);
}

/* Who is fenced by a submission: its VM, and what it lists. */
static bool is_idle(uint32_t bo)
{
	struct emu_file *file = emu_file_get(fd);
	bool idle;

	pthread_mutex_lock(&file->gpu->lock);
	idle = emu_resv_is_idle(emu_bo_resv(emu_handle_find(file, bo)->bo), EMU_USAGE_WRITE);
	pthread_mutex_unlock(&file->gpu->lock);
	emu_file_put(file);
	return idle;
}

static void a_submission_fences_its_vm_and_what_it_lists(void)
{
	uint32_t listed = bo_create_in(fd, PAGE, GTT, 0), unlisted = bo_create_in(fd, PAGE, GTT, 0);
	struct drm_amdgpu_bo_list_entry entry = { .bo_handle = listed };
	struct drm_amdgpu_bo_list_in list = { .bo_number = 1, .bo_info_size = 8,
		                              .bo_info_ptr = (uintptr_t)&entry };

	CHECK_EQ(ring_wait(0), 0);
	vmkv_emulator_pause(bench.card.gpu);
	CHECK_EQ(slot_submit_with(&bench, 0, AMDGPU_CHUNK_ID_BO_HANDLES, &list, sizeof(list), NULL), 0);
	CHECK(!is_idle(listed));
	CHECK(!is_idle(bench.work)); /* always valid */
	CHECK(is_idle(unlisted));
	vmkv_emulator_resume(bench.card.gpu);
	CHECK_EQ(ring_wait(0), 0);
	CHECK(is_idle(listed));
	CHECK_EQ(bo_close(fd, listed), 0);
	CHECK_EQ(bo_close(fd, unlisted), 0);
}

/* ---- WAIT_CS, WAIT_FENCES, FENCE_TO_HANDLE ------------------------------------------------------- */

static void wait_cs_checks_what_it_waits_for(void)
{
	union drm_amdgpu_wait_cs args = { .in = { .ip_type = AMDGPU_HW_IP_DMA } };
	uint64_t number = 0, status;
	uint32_t own = bench.context;

	bench.context = 4711;
	CHECK_EQ(wait_until(&bench, 0, 0, &status), -EINVAL);
	bench.context = own;
	CHECK_EQ(wait_until(&bench, 0, 0, &status), 0);
	CHECK_EQ(status, 0);
	CHECK_EQ(slot_submit(&bench, 0, &number), 0);
	CHECK_EQ(wait_until(&bench, number + 1, 0, &status), -EINVAL);
	CHECK_EQ(wait_until(&bench, UINT64_MAX, -1, &status), 0);
	args.in.ctx_id = own;
	args.in.ring = 2;
	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_WAIT_CS, &args), -EINVAL);
}

static int fences_wait(const struct drm_amdgpu_fence *fences, uint32_t n, bool all, int64_t deadline,
                       struct drm_amdgpu_wait_fences_out *out)
{
	union drm_amdgpu_wait_fences args = { .in = { .fences = (uintptr_t)fences, .fence_count = n,
		                                      .wait_all = all,
		                                      .timeout_ns = (uint64_t)deadline } };
	int error = call(fd, DRM_IOCTL_AMDGPU_WAIT_FENCES, &args);

	*out = args.out;
	return error;
}

static void wait_fences_waits_for_all_or_any(void)
{
	struct drm_amdgpu_fence fences[2] = { { .ctx_id = bench.context, .ip_type = AMDGPU_HW_IP_DMA,
		                                .ring = 0 },
		                              { .ctx_id = bench.context, .ip_type = AMDGPU_HW_IP_DMA,
		                                .ring = 1 } };
	struct drm_amdgpu_wait_fences_out out;

	CHECK_EQ(fences_wait(fences, 0, true, 0, &out), -EINVAL);
	CHECK_EQ(fences_wait((void *)8, 1, true, 0, &out), -EFAULT);
	CHECK_EQ(ring_submit(0, 1, NULL), 0);
	CHECK_EQ(ring_wait(1), 0);
	vmkv_emulator_pause(bench.card.gpu);
	CHECK_EQ(slot_submit(&bench, 0, (uint64_t *)&fences[0].seq_no), 0);
	fences[1].seq_no = UINT64_MAX;
	CHECK_EQ(fences_wait(fences, 2, true, SOON, &out), 0);
	CHECK_EQ(out.status, 0);
	CHECK_EQ(fences_wait(fences, 1, false, SOON, &out), 0);
	CHECK_EQ(out.status, 0);
	CHECK_EQ(out.first_signaled, UINT32_MAX);
	CHECK_EQ(fences_wait(fences, 2, false, 0, &out), 0);
	CHECK_EQ(out.status, 1);
	CHECK_EQ(out.first_signaled, 1);
	fences[1].ctx_id = 4711;
	CHECK_EQ(fences_wait(fences, 2, false, 0, &out), -EINVAL);
	fences[1].ctx_id = bench.context;
	vmkv_emulator_resume(bench.card.gpu);
	CHECK_EQ(fences_wait(fences, 2, true, -1, &out), 0);
	CHECK_EQ(out.status, 1);
}

static int fence_to(const struct drm_amdgpu_fence *fence, uint32_t what, uint32_t *ret)
{
	union drm_amdgpu_fence_to_handle args = { .in = { .fence = *fence, .what = what } };
	int error = call(fd, DRM_IOCTL_AMDGPU_FENCE_TO_HANDLE, &args);

	*ret = args.out.handle;
	return error;
}

static void a_fence_becomes_a_syncobj_or_a_descriptor(void)
{
	struct drm_amdgpu_fence fence = { .ctx_id = bench.context, .ip_type = AMDGPU_HW_IP_DMA };
	struct drm_syncobj_handle in = { 0 };
	uint32_t handle, descriptor, file, scratch = syncobj_make(fd, 0);

	vmkv_emulator_pause(bench.card.gpu);
	CHECK_EQ(slot_submit(&bench, 0, (uint64_t *)&fence.seq_no), 0);
	CHECK_EQ(fence_to(&fence, AMDGPU_FENCE_TO_HANDLE_GET_SYNCOBJ, &handle), 0);
	CHECK_EQ(fence_to(&fence, AMDGPU_FENCE_TO_HANDLE_GET_SYNCOBJ_FD, &descriptor), 0);
	CHECK_EQ(fence_to(&fence, AMDGPU_FENCE_TO_HANDLE_GET_SYNC_FILE_FD, &file), 0);
	CHECK_EQ(fence_to(&fence, 3, &scratch), -EINVAL);
	in.fd = (int)descriptor;
	CHECK_EQ(call(fd, DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE, &in), 0);
	CHECK_EQ(syncobj_wait_one(fd, handle, 0), -ETIME);
	CHECK_EQ(syncobj_wait_one(fd, in.handle, 0), -ETIME);
	vmkv_emulator_resume(bench.card.gpu);
	CHECK_EQ(syncobj_wait_one(fd, handle, INT64_MAX), 0);
	CHECK_EQ(syncobj_wait_one(fd, in.handle, 0), 0);
	close((int)descriptor);
	close((int)file);
	CHECK_EQ(syncobj_end(fd, handle), 0);
	CHECK_EQ(syncobj_end(fd, in.handle), 0);
	fence.seq_no = 0; /* of nothing: signalled */
	CHECK_EQ(fence_to(&fence, AMDGPU_FENCE_TO_HANDLE_GET_SYNCOBJ, &handle), 0);
	CHECK_EQ(syncobj_wait_one(fd, handle, 0), 0);
	CHECK_EQ(syncobj_end(fd, handle), 0);
	fence.seq_no = 1u << 30;
	CHECK_EQ(fence_to(&fence, AMDGPU_FENCE_TO_HANDLE_GET_SYNCOBJ, &handle), -EINVAL);
}

/* ---- threads ------------------------------------------------------------------------------------- */

#define THREADS 4
#define ROUNDS 200

static void *thread_submits(void *argument)
{
	struct bench own = bench;
	uint32_t i = 8 + (uint32_t)(uintptr_t)argument, *word = bench.words + DATA + 512 + i;

	own.context = context_create(fd);
	memset(slot(&own, i), 0, PAGE);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		struct drm_amdgpu_cs_chunk_sem out = { .handle = syncobj_make(fd, 0) };

		put_write(slot(&own, i), DATA_VA + 4 * (512 + i), round);
		CHECK_EQ(slot_submit_with(&own, i, AMDGPU_CHUNK_ID_SYNCOBJ_OUT, &out, sizeof(out), NULL),
		         0);
		CHECK_EQ(syncobj_wait_one(fd, out.handle, INT64_MAX), 0);
		CHECK_EQ(*word, round);
		CHECK_EQ(syncobj_end(fd, out.handle), 0);
	}
	context_destroy(fd, own.context);
	return NULL;
}

static void threads_submit_side_by_side(void)
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, thread_submits, (void *)i), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

int main(void)
{
	bench = bench_open("6.12", "");
	fd = bench.fd;
	RUN(cs_returns_before_its_job_ran);
	RUN(a_closed_file_runs_what_it_submitted_even_on_a_paused_card);
	RUN(a_ring_takes_so_many_jobs_and_then_waits);
	RUN(jobs_of_a_ring_run_in_order);
	RUN(rings_run_in_the_order_they_were_given_without_a_seed);
	RUN(rings_run_in_any_order_with_a_seed_unless_told);
	RUN(syncobjs_order_contexts);
	RUN(a_clear_runs_after_submissions_of_its_vm);
	RUN(listed_buffers_are_waited_for_unless_explicit);
	RUN(a_submission_fences_its_vm_and_what_it_lists);
	RUN(wait_cs_checks_what_it_waits_for);
	RUN(wait_fences_waits_for_all_or_any);
	RUN(a_fence_becomes_a_syncobj_or_a_descriptor);
	RUN(threads_submit_side_by_side);
	bench_close(&bench);
	return 0;
}
