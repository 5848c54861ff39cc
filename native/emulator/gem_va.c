/* SPDX-License-Identifier: MIT
 *
 * DRM_IOCTL_AMDGPU_GEM_VA: the checks in the kernel's order, the operation, and what of it reaches
 * the page tables at once.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "vm_parts.h"

#define VA_MASK ((1ULL << EMU_ADDRESS_BITS) - 1)

#define VALID_FLAGS                                                                                \
	(AMDGPU_VM_DELAY_UPDATE | AMDGPU_VM_PAGE_READABLE | AMDGPU_VM_PAGE_WRITEABLE |             \
	 AMDGPU_VM_PAGE_EXECUTABLE | AMDGPU_VM_MTYPE_MASK | AMDGPU_VM_PAGE_NOALLOC)
#define PRT_FLAGS (AMDGPU_VM_DELAY_UPDATE | AMDGPU_VM_PAGE_PRT)

/* One call, and what it holds. */
struct va_call {
	struct emu_file *file;
	struct emu_gpu *gpu;
	struct emu_vm *vm;
	const struct drm_amdgpu_gem_va *args; /* the tail only with has_timeline */
	uint64_t address;
	struct emu_bo *bo;       /* a reference, or NULL */
	struct emu_bo_va *bo_va; /* NULL for CLEAR */
	struct emu_syncobj *timeline; /* a reference, or NULL */
};

/* ---- checks ---------------------------------------------------------------------------------- */

/* For whoever wonders which of the many EINVALs it was: the kernel says it in its log. */
static int address_refuse(struct va_call *call, const char *why)
{
	emu_error_set(call->gpu, "GEM_VA: 0x%" PRIx64 " bytes at 0x%" PRIx64 " %s",
	              call->args->map_size, call->args->va_address, why);
	return -EINVAL;
}

static int address_check(struct va_call *call)
{
	const struct emu_kernel *kernel = call->gpu->kernel;
	uint64_t address = call->args->va_address, size = call->args->map_size;

	if (address < kernel->va_bottom)
		return address_refuse(call, "begin below the lowest address");
	if (address >= EMU_HOLE_BEGIN && address < EMU_HOLE_END)
		return address_refuse(call, "begin in the hole of the address space");
	address &= VA_MASK;
	/* Older kernels let the sum wrap around. */
	if ((kernel->checks_va_overflow && address + size < address) ||
	    address + size > (1ULL << EMU_ADDRESS_BITS) - kernel->va_top_bytes)
		return address_refuse(call, "pass the highest address");
	call->address = address;
	return 0;
}

static int arguments_check(struct va_call *call)
{
	const struct drm_amdgpu_gem_va *args = call->args;
	int error = address_check(call);

	if (error)
		return error;
	if (args->flags & ~VALID_FLAGS && args->flags & ~PRT_FLAGS)
		return emu_refuse(call->gpu, -EINVAL, "GEM_VA: invalid flags 0x%x", args->flags);
	if (args->operation < AMDGPU_VA_OP_MAP || args->operation > AMDGPU_VA_OP_REPLACE)
		return emu_refuse(call->gpu, -EINVAL, "GEM_VA: unknown operation %u",
		                  args->operation);
	if (call->gpu->kernel->has_timeline && args->flags & AMDGPU_VM_DELAY_UPDATE &&
	    args->vm_timeline_syncobj_out)
		return -EINVAL;
	return 0;
}

static int buffer_find(struct va_call *call)
{
	const struct emu_handle *handle;

	if (call->args->operation == AMDGPU_VA_OP_CLEAR || call->args->flags & AMDGPU_VM_PAGE_PRT)
		return 0;
	handle = emu_handle_find(call->file, call->args->handle);
	if (!handle)
		return -ENOENT;
	call->bo = handle->bo;
	emu_bo_get(call->bo);
	return 0;
}

/* After waiting, when others may have closed the handle. */
static int bo_va_find(struct va_call *call)
{
	if (call->args->operation == AMDGPU_VA_OP_CLEAR)
		return 0;
	call->bo_va = call->bo ? emu_bo_va_find(call->vm, call->bo) : call->vm->prt_va;
	return call->bo_va ? 0 : -ENOENT;
}

/* ---- syncobjs (7.2) -------------------------------------------------------------------------- */

static int input_wait(struct va_call *call, uint32_t handle)
{
	struct emu_syncobj *syncobj;
	struct emu_fence *fence = NULL;
	int error;

	if (!handle)
		return -EINVAL;
	syncobj = emu_syncobj_find(call->file, handle);
	if (!syncobj)
		return -ENOENT;
	error = emu_syncobj_fence(syncobj, 0, &fence);
	if (error)
		return error;
	if (fence)
		(void)emu_fence_wait(fence, INT64_MAX);
	emu_fence_put(fence);
	return 0;
}

/* One after the other, each waited for within the call. */
static int inputs_wait(struct va_call *call)
{
	const struct drm_amdgpu_gem_va *args = call->args;
	uint32_t n = args->num_syncobj_handles;
	void *handles;
	int error;

	if (!call->gpu->kernel->has_timeline || !n)
		return 0;
	error = emu_array_in(args->input_fence_syncobj_handles, n, sizeof(uint32_t), EMU_KMALLOC_MOST,
	                     &handles);
	if (error)
		return error;
	for (uint32_t i = 0; i < n && !error; i++)
		error = input_wait(call, ((const uint32_t *)handles)[i]);
	free(handles);
	return error;
}

static int timeline_find(struct va_call *call)
{
	struct emu_syncobj *syncobj;

	if (!call->gpu->kernel->has_timeline || !call->args->vm_timeline_syncobj_out ||
	    call->gpu->options.inject.faults & EMU_INJECT_TIMELINE_IGNORED)
		return 0;
	syncobj = emu_syncobj_find(call->file, call->args->vm_timeline_syncobj_out);
	if (!syncobj)
		return -ENOENT;
	emu_syncobj_get(syncobj);
	call->timeline = syncobj;
	return call->args->vm_timeline_point ? emu_syncobj_reserve(syncobj) : 0;
}

/* The later of two page-table jobs: all of a VM's run in order. */
static struct emu_fence *fence_later(struct emu_fence *a, struct emu_fence *b)
{
	if (!a || !b)
		return a ? a : b;
	return a->number > b->number ? a : b;
}

static void timeline_signal(struct va_call *call)
{
	struct emu_fence *fence = call->vm->last_update;
	bool maps = call->args->operation == AMDGPU_VA_OP_MAP ||
	            call->args->operation == AMDGPU_VA_OP_REPLACE;

	if (!call->timeline)
		return;
	if (maps)
		fence = fence_later(fence, call->bo_va->last_pt_update);
	if (!fence)
		fence = emu_fence_signalled(call->gpu);
	if (call->args->vm_timeline_point)
		emu_syncobj_add_point(call->timeline, call->args->vm_timeline_point, fence);
	else
		emu_syncobj_replace(call->timeline, fence);
}

/* ---- the operation --------------------------------------------------------------------------- */

static int operation_run(struct va_call *call)
{
	const struct drm_amdgpu_gem_va *args = call->args;
	const struct emu_map_request request = { .address = call->address,
		                                 .offset = args->offset_in_bo,
		                                 .bytes = args->map_size,
		                                 .flags = args->flags & ~AMDGPU_VM_DELAY_UPDATE };
	int error;

	if (args->operation == AMDGPU_VA_OP_CLEAR)
		return emu_vm_clear(call->vm, call->address, args->map_size);
	if (args->operation == AMDGPU_VA_OP_UNMAP)
		return emu_vm_unmap(call->bo_va, call->address);
	error = emu_identity_claim(call->vm, call->address, args->map_size);
	if (error)
		return error;
	if (args->operation == AMDGPU_VA_OP_MAP)
		return emu_vm_map(call->bo_va, &request);
	return emu_vm_replace(call->bo_va, &request);
}

/* The deliberate error: every buffer's invalids are written, not only those of the call's own. */
static int all_update(struct emu_vm *vm)
{
	const struct emu_mapping *mapping = NULL;
	int error = 0;

	while (!error && (mapping = emu_mapping_next(&vm->mappings, mapping)))
		if (!emu_list_is_empty(&mapping->bo_va->invalids))
			error = emu_vm_bo_update(mapping->bo_va);
	return error;
}

/* Freed mappings of all buffers, but invalids only of this one. */
static int tables_update(struct va_call *call)
{
	const struct emu_options *options = &call->gpu->options;
	uint32_t operation = call->args->operation;
	int error = emu_vm_clear_freed(call->vm, NULL);

	if (!error && (operation == AMDGPU_VA_OP_MAP || operation == AMDGPU_VA_OP_REPLACE))
		error = emu_vm_bo_update(call->bo_va);
	if (!error && options->break_flush_all)
		error = all_update(call->vm);
	if (!error && options->break_clean_split)
		error = emu_vm_handle_moved(call->vm);
	return error ? error : emu_vm_update_pdes(call->vm);
}

static void changes_flush(struct va_call *call)
{
	if (call->args->flags & AMDGPU_VM_DELAY_UPDATE && !call->gpu->options.break_ignore_delay)
		return;
	/* As in the kernel nobody learns of an error; what wasn't written stays in the lists. */
	if (emu_vm_is_ready(call->vm) && tables_update(call))
		emu_error_set(call->gpu, "GEM_VA: no memory to update page tables at 0x%" PRIx64,
		              call->address);
	timeline_signal(call);
}

static void cpu_update_wait(struct emu_vm *vm)
{
	struct emu_fence *fence = vm->last_job;

	if (!vm->gpu->options.cpu_update || !fence || fence->signalled)
		return;
	emu_fence_get(fence);
	(void)emu_fence_wait(fence, INT64_MAX);
	emu_fence_put(fence);
}

int emu_gem_va(struct emu_file *file, void *data)
{
	struct va_call call = { .file = file, .gpu = file->gpu, .vm = file->vm, .args = data };
	int error;

	pthread_mutex_lock(&call.gpu->lock);
	call.gpu->counts.delayed_maps += !!(call.args->flags & AMDGPU_VM_DELAY_UPDATE);
	error = arguments_check(&call);
	if (!error)
		error = buffer_find(&call);
	if (!error)
		error = inputs_wait(&call);
	if (!error)
		error = bo_va_find(&call);
	if (!error)
		error = timeline_find(&call);
	if (!error)
		error = operation_run(&call);
	if (!error) {
		changes_flush(&call);
		cpu_update_wait(call.vm);
	}
	if (call.timeline)
		emu_syncobj_put(call.timeline);
	emu_bo_put(call.bo);
	pthread_mutex_unlock(&call.gpu->lock);
	return error;
}
