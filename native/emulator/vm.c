/* SPDX-License-Identifier: MIT
 *
 * A file's address space: its life, its buffers' membership, and its part in submissions.
 */
#include <errno.h>
#include <stdlib.h>

#include "vm_parts.h"

/* ---- buffers in a VM ------------------------------------------------------------------------- */

static void bo_va_set_evicted(struct emu_bo_va *bo_va)
{
	bo_va->moved = true;
	emu_list_remove(&bo_va->status);
	emu_list_append(&bo_va->vm->evicted, &bo_va->status);
}

int emu_bo_va_create(struct emu_vm *vm, struct emu_bo *bo, struct emu_bo_va **ret)
{
	struct emu_bo_va *bo_va = calloc(1, sizeof(*bo_va));

	if (!bo_va)
		return -ENOMEM;
	bo_va->vm = vm;
	bo_va->bo = bo;
	bo_va->references = 1;
	emu_list_init(&bo_va->bo_link);
	emu_list_init(&bo_va->valids);
	emu_list_init(&bo_va->invalids);
	emu_list_init(&bo_va->status);
	*ret = bo_va;
	if (!bo)
		return 0;
	emu_list_append(&bo->bo_vas, &bo_va->bo_link);
	/* An always-valid buffer for which its place had no room keeps the VM from being ready. */
	if (bo->owner == vm && !emu_bo_is_preferred(bo))
		bo_va_set_evicted(bo_va);
	return 0;
}

struct emu_bo_va *emu_bo_va_find(const struct emu_vm *vm, const struct emu_bo *bo)
{
	EMU_FOR_EACH(item, &bo->bo_vas) {
		struct emu_bo_va *bo_va = EMU_ENTRY(item, struct emu_bo_va, bo_link);

		if (bo_va->vm == vm)
			return bo_va;
	}
	return NULL;
}

static void bo_va_free(struct emu_bo_va *bo_va)
{
	emu_list_remove(&bo_va->bo_link);
	emu_list_remove(&bo_va->status);
	emu_vm_forget(bo_va);
	emu_fence_put(bo_va->last_pt_update);
	free(bo_va);
}

void emu_bo_va_destroy(struct emu_bo_va *bo_va)
{
	struct emu_vm *vm = bo_va->vm;
	struct emu_bo *bo = bo_va->bo;
	struct emu_fence *cleared = NULL;

	bo_va_free(bo_va);
	/* Its entries stay until a submission if the VM isn't ready, although the memory may go
	 * now. */
	if (!emu_vm_is_ready(vm))
		return;
	/* Errors end here, as in the kernel. */
	(void)emu_vm_clear_freed(vm, &cleared);
	if (cleared)
		(void)emu_resv_add(emu_bo_resv(bo), cleared, EMU_USAGE_BOOKKEEP);
	emu_fence_put(cleared);
}

void emu_vm_bo_invalidate(struct emu_bo *bo, bool evicted)
{
	EMU_FOR_EACH(item, &bo->bo_vas) {
		struct emu_bo_va *bo_va = EMU_ENTRY(item, struct emu_bo_va, bo_link);
		bool always_valid = bo->owner == bo_va->vm;

		if (evicted && always_valid) {
			bo_va_set_evicted(bo_va);
			continue;
		}
		if (bo_va->moved)
			continue;
		bo_va->moved = true;
		emu_list_remove(&bo_va->status);
		emu_list_append(always_valid ? &bo_va->vm->moved : &bo_va->vm->invalidated,
		                &bo_va->status);
	}
}

/* ---- submissions ----------------------------------------------------------------------------- */

int emu_vm_validate(struct emu_vm *vm, uint64_t *budget_bytes)
{
	while (!emu_list_is_empty(&vm->evicted)) {
		struct emu_bo_va *bo_va = EMU_ENTRY(vm->evicted.next, struct emu_bo_va, status);
		int error = emu_bo_validate(bo_va->bo, budget_bytes);

		if (error)
			return error;
		emu_list_remove(&bo_va->status);
		emu_list_append(&vm->moved, &bo_va->status);
	}
	return 0;
}

static int listed_update(struct emu_bo_va *bo_va, struct emu_job *job)
{
	int error = emu_vm_bo_update(bo_va);

	return error ? error : emu_job_wait_for(job, bo_va->last_pt_update);
}

int emu_vm_submit(struct emu_vm *vm, struct emu_bo_va **listed, uint32_t n, struct emu_job *job)
{
	int error = emu_vm_clear_freed(vm, NULL);

	if (!error)
		error = listed_update(vm->prt_va, job);
	for (uint32_t i = 0; i < n && !error; i++)
		if (listed[i])
			error = listed_update(listed[i], job);
	if (!error)
		error = emu_vm_handle_moved(vm);
	if (!error)
		error = emu_vm_update_pdes(vm);
	return error ? error : emu_job_wait_for(job, vm->last_update);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void vm_free(struct emu_vm *vm)
{
	if (vm->prt_va)
		bo_va_free(vm->prt_va);
	EMU_FOR_EACH(item, &vm->freed)
		free(EMU_ENTRY(item, struct emu_mapping, link));
	emu_tlb_destroy(vm);
	emu_page_table_reap(vm, true);
	emu_resv_fini(&vm->resv);
	emu_fence_put(vm->last_job);
	emu_fence_put(vm->last_update);
	free(vm);
}

int emu_vm_create(struct emu_file *file, struct emu_vm **ret)
{
	struct emu_vm *vm = calloc(1, sizeof(*vm));
	int error;

	if (!vm)
		return -ENOMEM;
	vm->gpu = file->gpu;
	vm->file = file;
	emu_mappings_init(&vm->mappings);
	emu_list_init(&vm->freed);
	emu_list_init(&vm->moved);
	emu_list_init(&vm->invalidated);
	emu_list_init(&vm->evicted);
	emu_list_init(&vm->relocated);
	emu_list_init(&vm->tables_freed);
	error = emu_page_table_create(vm, NULL, 0, &vm->root);
	if (!error)
		error = emu_bo_va_create(vm, NULL, &vm->prt_va);
	if (!error && emu_tlb_is_needed(vm->gpu))
		error = emu_tlb_create(vm);
	if (error) {
		vm_free(vm);
		return error;
	}
	emu_entity_init(&vm->entity);
	*ret = vm;
	return 0;
}

void emu_vm_destroy(struct emu_vm *vm)
{
	if (!vm)
		return;
	emu_entity_fini(vm->gpu, &vm->entity);
	if (vm->gpu->vmid_owner == vm)
		vm->gpu->vmid_owner = NULL;
	emu_identity_release(vm);
	vm_free(vm);
}

/* ---- the VM ioctl ---------------------------------------------------------------------------- */

/* A VMID of one's own changes nothing here, as each VM has its tables to itself; but only one file may have
 * one. Linux 6.12 lets those that reserve share it. */
static int vmid_reserve(struct emu_vm *vm)
{
	struct emu_gpu *gpu = vm->gpu;

	if (!gpu->kernel->vmid_error)
		return 0;
	if (gpu->vmid_owner && gpu->vmid_owner != vm)
		return gpu->kernel->vmid_error;
	gpu->vmid_owner = vm;
	return 0;
}

static void vmid_release(struct emu_vm *vm)
{
	if (vm->gpu->vmid_owner == vm)
		vm->gpu->vmid_owner = NULL;
}

int emu_vm_ioctl(struct emu_file *file, void *data)
{
	const union drm_amdgpu_vm *args = data;
	struct emu_gpu *gpu = file->gpu;
	int error = 0;

	pthread_mutex_lock(&gpu->lock);
	if (args->in.flags)
		error = emu_refuse(gpu, -EINVAL, "VM: unknown flags 0x%x", args->in.flags);
	else if (args->in.op == AMDGPU_VM_OP_RESERVE_VMID)
		error = vmid_reserve(file->vm);
	else if (args->in.op == AMDGPU_VM_OP_UNRESERVE_VMID)
		vmid_release(file->vm);
	else
		error = emu_refuse(gpu, -EINVAL, "VM: unknown operation %u", args->in.op);
	pthread_mutex_unlock(&gpu->lock);
	return error;
}
