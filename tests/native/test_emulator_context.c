/* SPDX-License-Identifier: MIT
 *
 * Contexts, buffer lists and priorities: CTX, BO_LIST, SCHED.
 */
#include <linux/capability.h>
#include <sys/syscall.h>

#include "cs_fixture.h"

static struct bench bench;

static int ctx_call(uint32_t op, uint32_t context, uint32_t flags, int32_t priority,
                    union drm_amdgpu_ctx_out *out)
{
	union drm_amdgpu_ctx args = { .in = { .op = op, .flags = flags, .ctx_id = context,
		                              .priority = priority } };
	int error = call(bench.fd, DRM_IOCTL_AMDGPU_CTX, &args);

	if (out)
		*out = args.out;
	return error;
}

static int context_try(int32_t priority, uint32_t *ret)
{
	union drm_amdgpu_ctx_out out;
	int error = ctx_call(AMDGPU_CTX_OP_ALLOC_CTX, 0, 0, priority, &out);

	*ret = out.alloc.ctx_id;
	return error;
}

static uint64_t flags_of(uint32_t context)
{
	union drm_amdgpu_ctx_out out;

	CHECK_EQ(ctx_call(AMDGPU_CTX_OP_QUERY_STATE2, context, 0, 0, &out), 0);
	return out.state.flags;
}

static uint32_t status_of(uint32_t context)
{
	union drm_amdgpu_ctx_out out;

	CHECK_EQ(ctx_call(AMDGPU_CTX_OP_QUERY_STATE, context, 0, 0, &out), 0);
	return out.state.reset_status;
}

/* ---- CTX ----------------------------------------------------------------------------------------- */

static void contexts_have_the_lowest_free_number(void)
{
	uint32_t a = context_create(bench.fd), b = context_create(bench.fd);

	CHECK_EQ(stats(&bench.card).contexts, 3);
	context_destroy(bench.fd, a);
	CHECK_EQ(context_create(bench.fd), a);
	context_destroy(bench.fd, a);
	context_destroy(bench.fd, b);
	CHECK_EQ(stats(&bench.card).contexts, 1);
}

static void unknown_contexts_are_invalid(void)
{
	for (uint32_t op = AMDGPU_CTX_OP_FREE_CTX; op <= AMDGPU_CTX_OP_SET_STABLE_PSTATE; op++)
		CHECK_EQ(ctx_call(op, 4711, 0, 0, NULL), -EINVAL);
}

static void unknown_operations_and_flags_are_refused(void)
{
	uint64_t refused = stats(&bench.card).refused;

	CHECK_EQ(ctx_call(0, 0, 0, 0, NULL), -EINVAL);
	CHECK_EQ(ctx_call(7, 0, 0, 0, NULL), -EINVAL);
	for (uint32_t op = AMDGPU_CTX_OP_ALLOC_CTX; op <= AMDGPU_CTX_OP_GET_STABLE_PSTATE; op++)
		CHECK_EQ(ctx_call(op, bench.context, 1, 0, NULL), -EINVAL);
	CHECK_EQ(ctx_call(AMDGPU_CTX_OP_SET_STABLE_PSTATE, bench.context, 5, 0, NULL), -EINVAL);
	CHECK_EQ(ctx_call(AMDGPU_CTX_OP_SET_STABLE_PSTATE, bench.context, 0x10, 0, NULL), -EINVAL);
	CHECK_EQ(stats(&bench.card).refused, refused + 9);
}

/* Take CAP_SYS_NICE away from this thread, or give it back if it had it. */
static void capability_take(bool away)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { { 0 } };

	CHECK_EQ(syscall(SYS_capget, &header, data), 0);
	if (away)
		data[0].effective &= ~(1u << CAP_SYS_NICE);
	else
		data[0].effective |= data[0].permitted & 1u << CAP_SYS_NICE;
	CHECK_EQ(syscall(SYS_capset, &header, data), 0);
}

static void a_high_priority_needs_a_capability(void)
{
	uint32_t context;

	capability_take(true);
	CHECK_EQ(context_try(AMDGPU_CTX_PRIORITY_HIGH, &context), -EACCES);
	CHECK_EQ(context_try(AMDGPU_CTX_PRIORITY_VERY_HIGH, &context), -EACCES);
	CHECK_EQ(context_try(AMDGPU_CTX_PRIORITY_LOW, &context), 0);
	context_destroy(bench.fd, context);
	capability_take(false);
}

static void garbage_for_a_priority_is_normal(void)
{
	uint32_t context;

	CHECK_EQ(context_try(1234567, &context), 0);
	context_destroy(bench.fd, context);
	CHECK_EQ(context_try(AMDGPU_CTX_PRIORITY_UNSET, &context), 0);
	context_destroy(bench.fd, context);
}

static void a_file_has_4095_contexts_at_most(void)
{
	uint32_t context;

	for (int i = 1; i < 4095; i++)
		CHECK_EQ(context_try(0, &context), 0);
	CHECK_EQ(context_try(0, &context), -ENOSPC);
	for (uint32_t i = 1; i <= 4095; i++)
		if (i != bench.context)
			context_destroy(bench.fd, i);
}

static void one_context_at_a_time_sets_the_clocks(void)
{
	uint32_t other = context_create(bench.fd);
	union drm_amdgpu_ctx_out out;

	CHECK_EQ(ctx_call(AMDGPU_CTX_OP_SET_STABLE_PSTATE, bench.context,
	                  AMDGPU_CTX_STABLE_PSTATE_PEAK, 0, NULL),
	         0);
	CHECK_EQ(ctx_call(AMDGPU_CTX_OP_GET_STABLE_PSTATE, other, 0, 0, &out), 0);
	CHECK_EQ(out.pstate.flags, AMDGPU_CTX_STABLE_PSTATE_PEAK);
	CHECK_EQ(ctx_call(AMDGPU_CTX_OP_SET_STABLE_PSTATE, other, 1, 0, NULL), -EBUSY);
	CHECK_EQ(ctx_call(AMDGPU_CTX_OP_SET_STABLE_PSTATE, bench.context, 0, 0, NULL), 0);
	CHECK_EQ(ctx_call(AMDGPU_CTX_OP_SET_STABLE_PSTATE, other, 1, 0, NULL), 0);
	context_destroy(bench.fd, other); /* takes it back */
	CHECK_EQ(ctx_call(AMDGPU_CTX_OP_GET_STABLE_PSTATE, bench.context, 0, 0, &out), 0);
	CHECK_EQ(out.pstate.flags, AMDGPU_CTX_STABLE_PSTATE_NONE);
}

/* ---- after a fault ------------------------------------------------------------------------------- */

static void a_fault_makes_the_context_guilty(void)
{
	uint32_t innocent = context_create(bench.fd), guilty = bench.context, later;
	struct drm_amdgpu_cs_chunk_syncobj point = { .handle = syncobj_make(bench.fd, 0), .point = 1 };
	uint64_t faulty = 0, queued = 0, dependent = 0, number = 0;

	memset(slot(&bench, 0), 0, 3 * PAGE);
	put_write(slot(&bench, 0), UNMAPPED_VA, 1);
	put_write(slot(&bench, 1), DATA_VA, 2);
	put_write(slot(&bench, 2), DATA_VA + 4, 3);
	bench.words[DATA] = bench.words[DATA + 1] = 0;
	vmkv_emulator_pause(bench.card.gpu);
	CHECK_EQ(slot_submit(&bench, 0, &faulty), 0);
	CHECK_EQ(slot_submit_with(&bench, 1, AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL, &point,
	                          sizeof(point), &queued),
	         0);
	bench.context = innocent;
	CHECK_EQ(slot_submit_with(&bench, 2, AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT, &point,
	                          sizeof(point), &dependent),
	         0);
	vmkv_emulator_resume(bench.card.gpu);
	CHECK_EQ(wait_for(&bench, dependent), 0); /* errors aren't handed on */
	CHECK_EQ(bench.words[DATA + 1], 3);
	bench.context = guilty;
	CHECK_EQ(wait_for(&bench, faulty), -ECANCELED);
	CHECK_EQ(wait_for(&bench, queued), -ECANCELED);
	CHECK_EQ(bench.words[DATA], 0); /* it didn't run */
	CHECK_EQ(slot_submit(&bench, 2, &number), -ECANCELED);
	CHECK_EQ(flags_of(guilty), AMDGPU_CTX_QUERY2_FLAGS_GUILTY | AMDGPU_CTX_QUERY2_FLAGS_RESET);
	CHECK_EQ(flags_of(innocent), AMDGPU_CTX_QUERY2_FLAGS_RESET);
	CHECK_EQ(status_of(guilty), AMDGPU_CTX_UNKNOWN_RESET);
	CHECK_EQ(status_of(guilty), AMDGPU_CTX_NO_RESET); /* told once */
	later = context_create(bench.fd);
	CHECK_EQ(flags_of(later), 0);
	bench.context = later;
	CHECK_EQ(slot_run(&bench, 2), 0);
	context_destroy(bench.fd, innocent);
	context_destroy(bench.fd, guilty);
	CHECK_EQ(syncobj_end(bench.fd, point.handle), 0);
}

static void a_fault_is_recorded_on_its_file(void)
{
	FOR_EACH_KERNEL(kernel) {
		struct bench before = bench;
		struct emu_file *file;

		bench = bench_open(kernel, "");
		put_write(slot(&bench, 0), UNMAPPED_VA + 0x234, 1);
		CHECK_EQ(slot_run(&bench, 0), -ECANCELED);
		file = emu_file_get(bench.fd);
		CHECK_EQ(file->fault_address, UNMAPPED_VA);
		CHECK(file->fault_status != 0);
		emu_file_put(file);
		bench_close(&bench);
		bench = before;
	}
}

static void a_freed_context_runs_what_it_submitted(void)
{
	uint32_t context = context_create(bench.fd), own = bench.context;
	uint64_t number = 0, fences;

	memset(slot(&bench, 0), 0, PAGE);
	put_write(slot(&bench, 0), DATA_VA, 77);
	bench.words[DATA] = 0;
	fences = stats(&bench.card).fences;
	bench.context = context;
	vmkv_emulator_pause(bench.card.gpu);
	CHECK_EQ(slot_submit(&bench, 0, &number), 0);
	context_destroy(bench.fd, context);
	bench.context = own;
	vmkv_emulator_resume(bench.card.gpu);
	CHECK_EQ(slot_run(&bench, 4), 0); /* behind it: the oldest first */
	CHECK_EQ(bench.words[DATA], 77);
	CHECK(stats(&bench.card).fences <= fences + 2);
}

/* ---- BO_LIST ------------------------------------------------------------------------------------- */

static int list_call(uint32_t operation, uint32_t list, const void *entries, uint32_t n, uint32_t bytes,
                     uint32_t *ret)
{
	union drm_amdgpu_bo_list args = { .in = { .operation = operation, .list_handle = list,
		                                  .bo_number = n, .bo_info_size = bytes,
		                                  .bo_info_ptr = (uintptr_t)entries } };
	int error = call(bench.fd, DRM_IOCTL_AMDGPU_BO_LIST, &args);

	if (ret)
		*ret = args.out.list_handle;
	return error;
}

static int submit_with_list(uint32_t list)
{
	struct drm_amdgpu_cs_chunk_ib ib = ib_slot(4);
	struct chunks chunks = { .list = list };

	chunk_add(&chunks, AMDGPU_CHUNK_ID_IB, &ib, sizeof(ib));
	return chunks_submit(&bench, &chunks, NULL);
}

static void lists_are_made_updated_and_destroyed(void)
{
	struct drm_amdgpu_bo_list_entry entry = { .bo_handle = bench.work };
	uint32_t list, same;

	CHECK_EQ(list_call(AMDGPU_BO_LIST_OP_CREATE, 0, &entry, 1, 8, &list), 0);
	CHECK_EQ(stats(&bench.card).buffer_lists, 1);
	CHECK_EQ(submit_with_list(list), 0);
	CHECK_EQ(list_call(AMDGPU_BO_LIST_OP_UPDATE, list, NULL, 0, 8, &same), 0);
	CHECK_EQ(same, list);
	CHECK_EQ(submit_with_list(list), 0);
	CHECK_EQ(list_call(AMDGPU_BO_LIST_OP_UPDATE, list + 1, NULL, 0, 8, NULL), -ENOENT);
	CHECK_EQ(list_call(AMDGPU_BO_LIST_OP_DESTROY, list, NULL, 0, 8, NULL), 0);
	CHECK_EQ(list_call(AMDGPU_BO_LIST_OP_DESTROY, list, NULL, 0, 8, NULL), 0); /* no matter */
	CHECK_EQ(stats(&bench.card).buffer_lists, 0);
	CHECK_EQ(submit_with_list(list), -ENOENT);
	CHECK_EQ(list_call(3, 0, NULL, 0, 8, NULL), -EINVAL);
}

static void entries_of_other_sizes_are_understood(void)
{
	struct {
		struct drm_amdgpu_bo_list_entry entry;
		uint64_t more;
	} longer[2] = { { { bench.work, 0 }, 99 }, { { bench.work, 1 }, 99 } };
	uint32_t shorter[2] = { bench.work, bench.work }, list;

	CHECK_EQ(list_call(AMDGPU_BO_LIST_OP_CREATE, 0, longer, 2, 16, &list), 0);
	CHECK_EQ(list_call(AMDGPU_BO_LIST_OP_UPDATE, list, shorter, 2, 4, NULL), 0);
	CHECK_EQ(list_call(AMDGPU_BO_LIST_OP_UPDATE, list, longer, 2, 12, NULL), -ENOENT);
	CHECK_EQ(list_call(AMDGPU_BO_LIST_OP_UPDATE, list, (void *)8, 1, 8, NULL), -EFAULT);
	CHECK_EQ(list_call(AMDGPU_BO_LIST_OP_DESTROY, list, NULL, 0, 8, NULL), 0);
}

static void unknown_buffers_and_too_many_are_errors(void)
{
	struct drm_amdgpu_bo_list_entry entry = { .bo_handle = 9999 };
	uint64_t buffers = stats(&bench.card).buffers;
	struct drm_amdgpu_bo_list_entry *many = calloc((128 << 10) + 1, sizeof(*many));
	uint32_t list;

	CHECK_EQ(list_call(AMDGPU_BO_LIST_OP_CREATE, 0, &entry, 1, 8, NULL), -ENOENT);
	for (uint32_t i = 0; i <= 128 << 10; i++)
		many[i].bo_handle = bench.work;
	CHECK_EQ(list_call(AMDGPU_BO_LIST_OP_CREATE, 0, many, (128 << 10) + 1, 8, NULL), -EINVAL);
	CHECK_EQ(list_call(AMDGPU_BO_LIST_OP_CREATE, 0, many, 128 << 10, 8, &list), 0);
	CHECK_EQ(list_call(AMDGPU_BO_LIST_OP_DESTROY, list, NULL, 0, 8, NULL), 0);
	CHECK_EQ(stats(&bench.card).buffers, buffers);
	free(many);
}

static void a_list_keeps_its_buffers(void)
{
	uint32_t bo = bo_create_in(bench.fd, PAGE, GTT, 0), list;
	struct drm_amdgpu_bo_list_entry entry = { .bo_handle = bo };
	uint64_t buffers = stats(&bench.card).buffers;

	CHECK_EQ(list_call(AMDGPU_BO_LIST_OP_CREATE, 0, &entry, 1, 8, &list), 0);
	CHECK_EQ(bo_close(bench.fd, bo), 0);
	CHECK_EQ(stats(&bench.card).buffers, buffers);
	CHECK_EQ(submit_with_list(list), 0); /* though it is in the VM no more */
	CHECK_EQ(list_call(AMDGPU_BO_LIST_OP_DESTROY, list, NULL, 0, 8, NULL), 0);
	CHECK_EQ(slot_run(&bench, 4), 0);
	CHECK_EQ(stats(&bench.card).buffers, buffers - 1);
}

static void a_submission_has_one_list(void)
{
	struct drm_amdgpu_bo_list_in in = { .bo_info_size = 8 };
	struct drm_amdgpu_cs_chunk_ib ib = ib_slot(4);
	struct chunks chunks = { 0 };

	CHECK_EQ(list_call(AMDGPU_BO_LIST_OP_CREATE, 0, NULL, 0, 8, &chunks.list), 0);
	chunk_add(&chunks, AMDGPU_CHUNK_ID_IB, &ib, sizeof(ib));
	CHECK_EQ(chunks_submit(&bench, &chunks, NULL), 0);
	chunk_add(&chunks, AMDGPU_CHUNK_ID_BO_HANDLES, &in, sizeof(in));
	CHECK_EQ(chunks_submit(&bench, &chunks, NULL), -EINVAL);
	CHECK_EQ(list_call(AMDGPU_BO_LIST_OP_DESTROY, chunks.list, NULL, 0, 8, NULL), 0);
	chunks.list = 0;
	CHECK_EQ(chunks_submit(&bench, &chunks, NULL), 0);
	chunk_add(&chunks, AMDGPU_CHUNK_ID_BO_HANDLES, &in, sizeof(in));
	CHECK_EQ(chunks_submit(&bench, &chunks, NULL), -EINVAL);
}

/* ---- SCHED --------------------------------------------------------------------------------------- */

static int sched_call(int fd, uint32_t op, int target, int32_t priority, uint32_t context)
{
	union drm_amdgpu_sched args = { .in = { .op = op, .fd = (uint32_t)target, .priority = priority,
		                                .ctx_id = context } };

	return call(fd, DRM_IOCTL_AMDGPU_SCHED, &args);
}

static void priorities_of_others_are_the_masters_to_set(void)
{
	const uint32_t all = AMDGPU_SCHED_OP_PROCESS_PRIORITY_OVERRIDE;
	const uint32_t one = AMDGPU_SCHED_OP_CONTEXT_PRIORITY_OVERRIDE;
	int master;

	CHECK_EQ(sched_call(bench.fd, all, bench.fd, 0, 0), -EACCES);
	CHECK_EQ(emu_file_open((struct emu_gpu *)bench.card.gpu, true, &master), 0);
	CHECK_EQ(sched_call(master, all, bench.fd, AMDGPU_CTX_PRIORITY_HIGH, 0), 0);
	CHECK_EQ(sched_call(master, one, bench.fd, AMDGPU_CTX_PRIORITY_LOW, bench.context), 0);
	CHECK_EQ(sched_call(master, one, bench.fd, AMDGPU_CTX_PRIORITY_LOW, 4711), -EINVAL);
	CHECK_EQ(sched_call(master, all, bench.fd, 17, 0), -EINVAL);
	CHECK_EQ(sched_call(master, all, -1, 0, 0), -EINVAL);
	CHECK_EQ(sched_call(master, 3, bench.fd, 0, 0), -EINVAL);
	CHECK_EQ(vmkv_emulator_close(master), 0);
}

int main(void)
{
	bench = bench_open("6.12", "");
	RUN(contexts_have_the_lowest_free_number);
	RUN(unknown_contexts_are_invalid);
	RUN(unknown_operations_and_flags_are_refused);
	RUN(a_high_priority_needs_a_capability);
	RUN(garbage_for_a_priority_is_normal);
	RUN(a_file_has_4095_contexts_at_most);
	RUN(one_context_at_a_time_sets_the_clocks);
	RUN(a_fault_makes_the_context_guilty);
	RUN(a_fault_is_recorded_on_its_file);
	RUN(a_freed_context_runs_what_it_submitted);
	RUN(lists_are_made_updated_and_destroyed);
	RUN(entries_of_other_sizes_are_understood);
	RUN(unknown_buffers_and_too_many_are_errors);
	RUN(a_list_keeps_its_buffers);
	RUN(a_submission_has_one_list);
	RUN(priorities_of_others_are_the_masters_to_set);
	bench_close(&bench);
	return 0;
}
