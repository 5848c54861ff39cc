/* SPDX-License-Identifier: MIT
 *
 * From the lists to the page tables: one job for each freed and each invalid mapping, one for the
 * directories, in the order in which the kernel makes them. All jobs of a VM run in that order.
 */
#include <stdlib.h>
#include <string.h>

#include "entry.h"
#include "vm_parts.h"

bool emu_vm_is_ready(const struct emu_vm *vm)
{
	return emu_list_is_empty(&vm->evicted);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

/* A job whose fence the VM's reservation already has: nothing can fail once tables have changed. */
static int job_create(struct emu_vm *vm, struct emu_job **ret)
{
	struct emu_job *job;
	int error = emu_job_create(vm->gpu, EMU_JOB_PTES, vm, &job);

	if (error)
		return error;
	job->vm = vm;
	error = emu_resv_add(&vm->resv, job->done, EMU_USAGE_BOOKKEEP);
	if (error) {
		emu_job_destroy(job);
		return error;
	}
	*ret = job;
	return 0;
}

static void fence_replace(struct emu_fence **place, struct emu_fence *fence)
{
	emu_fence_get(fence);
	emu_fence_put(*place);
	*place = fence;
}

/* Jobs of a VM run in order, so that the last one's fence tells of all. */
static void resv_drop(struct emu_resv *resv, struct emu_fence *fence)
{
	for (uint32_t i = 0; fence && i < resv->count; i++) {
		if (resv->fences[i].fence != fence)
			continue;
		memmove(&resv->fences[i], &resv->fences[i + 1],
		        (--resv->count - i) * sizeof(resv->fences[0]));
		emu_fence_put(fence);
		return;
	}
}

/* With vm_update=cpu a job that waits for nothing is done within the call. One that must wait is
 * left to the card's thread, and the ioctl waits for it at its end: emu_gem_va. */
static bool job_can_run_now(const struct emu_vm *vm, const struct emu_job *job)
{
	return vm->gpu->options.cpu_update && !job->wait_count &&
	       (!vm->last_job || vm->last_job->signalled);
}

static void latency_spend(const struct emu_gpu *gpu)
{
	if (gpu->options.pte_us > 0)
		emu_wait_until_ns(emu_now_ns() + (uint64_t)(gpu->options.pte_us * 1e3));
}

/* *last (may be NULL) becomes a reference to its fence. */
static void job_push(struct emu_vm *vm, struct emu_job *job, struct emu_fence **last)
{
	bool now = job_can_run_now(vm, job);

	job->done->number = ++vm->jobs_pushed;
	resv_drop(&vm->resv, vm->last_job);
	fence_replace(&vm->last_job, job->done);
	if (last)
		fence_replace(last, job->done);
	if (!now) {
		emu_job_push(job, &vm->entity);
		return;
	}
	latency_spend(vm->gpu);
	emu_fence_signal(job->done, emu_page_table_write(vm, job->writes, job->write_count));
	emu_job_destroy(job);
}

int emu_vm_push_table_clear(struct emu_vm *vm)
{
	struct emu_job *job;
	int error = job_create(vm, &job);

	if (error)
		return error;
	job_push(vm, job, NULL); /* a new table is empty: this only takes its turn */
	return 0;
}

/* ---- clearing -------------------------------------------------------------------------------- */

/* Clears run after the submissions of this VM that are under way. */
static int job_wait_for_own_submissions(struct emu_vm *vm, struct emu_job *job)
{
	return emu_job_wait_for_resv(job, &vm->resv, EMU_USAGE_WRITE, NULL, vm);
}

static int mapping_clear(struct emu_vm *vm, const struct emu_mapping *mapping,
                         struct emu_fence **last)
{
	struct emu_job *job;
	int error = job_create(vm, &job);

	if (error)
		return error;
	error = job_wait_for_own_submissions(vm, job);
	if (error) {
		emu_job_destroy(job);
		return error;
	}
	error = emu_page_table_plan(vm, job, mapping->start, mapping->last + 1, 0, 0);
	job_push(vm, job, &vm->last_update);
	if (last)
		fence_replace(last, vm->last_update);
	return error;
}

int emu_vm_clear_freed(struct emu_vm *vm, struct emu_fence **last)
{
	while (!emu_list_is_empty(&vm->freed)) {
		struct emu_mapping *mapping = EMU_ENTRY(vm->freed.next, struct emu_mapping, link);
		int error;

		emu_list_remove(&mapping->link);
		error = mapping_clear(vm, mapping, last);
		free(mapping);
		if (error)
			return error;
	}
	return 0;
}

/* ---- mapping --------------------------------------------------------------------------------- */

static uint64_t mapping_entry_flags(const struct emu_mapping *mapping, const struct emu_bo *bo)
{
	uint64_t flags = 0;

	if (mapping->flags & AMDGPU_VM_PAGE_PRT)
		return EMU_PTE_PRT | EMU_PTE_SYSTEM;
	if (!bo || bo->heap == EMU_HEAP_NONE)
		return 0;
	flags = EMU_PTE_VALID;
	if (bo->heap == EMU_HEAP_GTT)
		flags |= EMU_PTE_SYSTEM;
	if (mapping->flags & AMDGPU_VM_PAGE_READABLE)
		flags |= EMU_PTE_READABLE;
	if (mapping->flags & AMDGPU_VM_PAGE_WRITEABLE && !bo->user_readonly)
		flags |= EMU_PTE_WRITABLE;
	if (mapping->flags & AMDGPU_VM_PAGE_EXECUTABLE)
		flags |= EMU_PTE_EXECUTABLE;
	return flags;
}

/* What a mapping's job waits for: moves of the buffer, nothing else. Without a buffer older kernels
 * treat it as a clear. */
static int job_wait_before_map(struct emu_bo_va *bo_va, struct emu_job *job)
{
	struct emu_bo *bo = bo_va->bo;
	int error;

	if (!bo)
		return bo_va->vm->gpu->kernel->has_timeline
		           ? 0
		           : job_wait_for_own_submissions(bo_va->vm, job);
	error = emu_job_wait_for(job, bo->moving);
	if (error)
		return error;
	return emu_job_wait_for_resv(job, emu_bo_resv(bo), EMU_USAGE_KERNEL, NULL, NULL);
}

/* Physical addresses are those of now; each contiguous run has fragments of its own. */
static int mapping_plan(struct emu_bo_va *bo_va, struct emu_job *job,
                        const struct emu_mapping *mapping)
{
	uint64_t flags = mapping_entry_flags(mapping, bo_va->bo);
	uint64_t page = mapping->start, end = mapping->last + 1, offset = mapping->offset;

	if (!bo_va->bo)
		return emu_page_table_plan(bo_va->vm, job, page, end, 0, flags);
	while (page < end) {
		uint64_t run, physical = emu_bo_physical(bo_va->bo, offset, &run);
		uint64_t pages = run >> EMU_PAGE_SHIFT;
		int error;

		if (pages > end - page)
			pages = end - page;
		error = emu_page_table_plan(bo_va->vm, job, page, page + pages, physical, flags);
		if (error)
			return error;
		page += pages;
		offset += pages << EMU_PAGE_SHIFT;
	}
	return 0;
}

static int mapping_write(struct emu_bo_va *bo_va, const struct emu_mapping *mapping,
                         struct emu_fence **last)
{
	struct emu_job *job;
	int error = job_create(bo_va->vm, &job);

	if (error)
		return error;
	error = job_wait_before_map(bo_va, job);
	if (error) {
		emu_job_destroy(job);
		return error;
	}
	error = mapping_plan(bo_va, job, mapping);
	job_push(bo_va->vm, job, last);
	return error;
}

bool emu_bo_is_preferred(const struct emu_bo *bo)
{
	return bo->preferred_domains &
	       (bo->heap == EMU_HEAP_VRAM ? AMDGPU_GEM_DOMAIN_VRAM : AMDGPU_GEM_DOMAIN_GTT);
}

/* The kernel holds the buffer's reservation meanwhile: no table's making evicts it. */
static int invalids_write(struct emu_bo_va *bo_va, struct emu_fence **last)
{
	int error = 0;

	if (bo_va->bo)
		bo_va->bo->pins++;
	EMU_FOR_EACH(item, &bo_va->invalids)
		if (!error)
			error = mapping_write(bo_va, EMU_ENTRY(item, struct emu_mapping, link),
			                      last);
	if (bo_va->bo)
		bo_va->bo->pins--;
	return error;
}

static void mappings_move(struct emu_list *to, struct emu_list *from, bool valid)
{
	EMU_FOR_EACH(item, from)
		EMU_ENTRY(item, struct emu_mapping, link)->valid = valid;
	emu_list_splice(to, from);
}

int emu_vm_bo_update(struct emu_bo_va *bo_va)
{
	struct emu_vm *vm = bo_va->vm;
	bool always_valid = bo_va->bo && bo_va->bo->owner == vm;
	int error;

	if (bo_va->moved)
		mappings_move(&bo_va->invalids, &bo_va->valids, false);
	error = invalids_write(bo_va, always_valid ? &vm->last_update : &bo_va->last_pt_update);
	if (error)
		return error;
	emu_list_remove(&bo_va->status);
	/* A buffer that isn't where it should be is validated again by the next submission. */
	bo_va->moved = always_valid && !emu_bo_is_preferred(bo_va->bo);
	if (bo_va->moved)
		emu_list_append(&vm->evicted, &bo_va->status);
	mappings_move(&bo_va->valids, &bo_va->invalids, true);
	return 0;
}

static int list_update(struct emu_list *list)
{
	while (!emu_list_is_empty(list)) {
		int error = emu_vm_bo_update(EMU_ENTRY(list->next, struct emu_bo_va, status));

		if (error)
			return error;
	}
	return 0;
}

int emu_vm_handle_moved(struct emu_vm *vm)
{
	int error = list_update(&vm->moved);

	return error ? error : list_update(&vm->invalidated);
}

int emu_vm_update_pdes(struct emu_vm *vm)
{
	struct emu_job *job;
	int error;

	if (emu_list_is_empty(&vm->relocated))
		return 0;
	error = job_create(vm, &job);
	if (error)
		return error;
	/* Parents come first in the list: no walk gets to a table before its directories. */
	while (!emu_list_is_empty(&vm->relocated)) {
		struct emu_page_table *table =
		    EMU_ENTRY(vm->relocated.next, struct emu_page_table, link);
		uint64_t run;
		struct emu_pte_write write = { .table = table->parent, .child = table,
			                       .first = table->slot, .count = 1,
			                       .value = emu_bo_physical(table->bo, 0, &run) |
			                                EMU_PTE_VALID };

		error = emu_page_table_add_write(job, &write);
		if (error)
			break;
		emu_list_remove(&table->link);
	}
	job_push(vm, job, &vm->last_update);
	return error;
}
