/* SPDX-License-Identifier: MIT
 *
 * What the fuzzer holds an emulated card to: nothing that the kernel refuses is taken, what failed left no
 * trace, and nothing is left when all is closed. The rules are written down again here, from the kernel's.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "vm_parts.h"

#define LONG_NS 5000000000ULL /* no job takes so long */

void fuzz_fail(const struct fuzz *fuzz, const char *format, ...)
{
	va_list args;
	char text[256] = "";

	if (fuzz->gpu)
		vmkv_emulator_error((vmkv_emulator *)fuzz->gpu, text, sizeof(text));
	va_start(args, format);
	fprintf(stderr, "fuzz: ");
	vfprintf(stderr, format, args);
	fprintf(stderr, "\nthe card's last error: %s\n", text);
	va_end(args);
	abort();
}

struct vmkv_emulator_stats fuzz_stats(const struct fuzz *fuzz)
{
	struct vmkv_emulator_stats stats = { .struct_size = sizeof(stats) };

	if (vmkv_emulator_stats((vmkv_emulator *)fuzz->gpu, &stats))
		fuzz_fail(fuzz, "no counts");
	return stats;
}

#define REFUSE_IF(condition)                                                                       \
	do {                                                                                       \
		if (condition)                                                                     \
			fuzz_fail(fuzz, "%s was taken, though %s", call->ioctl->name, #condition); \
	} while (0)

static bool kernel_is(const struct fuzz *fuzz, const char *name)
{
	return !strcmp(fuzz->gpu->kernel->name, name);
}

static bool is_injected(const struct fuzz *fuzz)
{
	return fuzz->gpu->options.inject.faults || fuzz->gpu->options.inject.ioctl_count;
}

static bool is_power_of_two(uint64_t n)
{
	return n && !(n & (n - 1));
}

/* ---- GEM_CREATE and its kin ------------------------------------------------------------------ */

static void gem_create_check(struct fuzz *fuzz, const struct fuzz_call *call)
{
	const struct drm_amdgpu_gem_create_in *in = (const void *)call->before;
	const struct drm_amdgpu_gem_create_out *out = (const void *)call->after;
	uint64_t flags = kernel_is(fuzz, "7.2")    ? 0x1f2cf | 1u << 9
	                 : kernel_is(fuzz, "6.12") ? 0x114cf
	                                           : 0x14cf;
	bool onchip = in->domains & 0x38;

	flags &= ~(uint64_t)AMDGPU_GEM_CREATE_ENCRYPTED;
	REFUSE_IF(!in->bo_size);
	REFUSE_IF(in->domain_flags & ~flags);
	REFUSE_IF(in->domains & ~(uint64_t)0x3f);
	REFUSE_IF(onchip && !is_power_of_two(in->domains));
	REFUSE_IF(onchip && in->domain_flags & AMDGPU_GEM_CREATE_VM_ALWAYS_VALID);
	REFUSE_IF(!onchip && in->domains & 6 &&
	          in->bo_size >= fuzz->fresh.vram_bytes + fuzz->fresh.gtt_bytes);
	REFUSE_IF(!out->handle);
}

static void userptr_check(struct fuzz *fuzz, const struct fuzz_call *call)
{
	const struct drm_amdgpu_gem_userptr *in = (const void *)call->before;

	REFUSE_IF((in->addr | in->size) & 0xfff);
	REFUSE_IF(!in->size);
	REFUSE_IF(in->flags & ~0xfu);
	REFUSE_IF(!(in->flags & (AMDGPU_GEM_USERPTR_READONLY | AMDGPU_GEM_USERPTR_REGISTER)));
	REFUSE_IF(in->flags & AMDGPU_GEM_USERPTR_VALIDATE &&
	          (in->addr < (uintptr_t)fuzz->user ||
	           in->addr + in->size > (uintptr_t)fuzz->user + FUZZ_USER_BYTES));
}

/* ---- GEM_VA ---------------------------------------------------------------------------------- */

static void va_arguments_check(struct fuzz *fuzz, const struct fuzz_call *call)
{
	const struct drm_amdgpu_gem_va *in = (const void *)call->before;
	uint64_t bottom = kernel_is(fuzz, "6.1") ? 2 << 20 : 64 << 10;
	uint64_t top = (1ULL << 48) - (kernel_is(fuzz, "6.1") ? 2 << 20 : 0x410000);
	uint64_t low = in->va_address & 0xffffffffffff;
	bool ranged = in->operation != AMDGPU_VA_OP_UNMAP;

	REFUSE_IF(in->va_address < bottom);
	REFUSE_IF(in->va_address >= 0x800000000000 && in->va_address < 0xffff800000000000);
	REFUSE_IF(low + in->map_size > top); /* which may wrap */
	REFUSE_IF(kernel_is(fuzz, "7.2") && low + in->map_size < low);
	REFUSE_IF(in->flags & ~0x3efu && in->flags & ~0x11u);
	REFUSE_IF(in->operation < 1 || in->operation > 4);
	REFUSE_IF(ranged && (in->map_size & 0xfff || !in->map_size || in->va_address & 0xfff));
	REFUSE_IF(ranged && in->operation != AMDGPU_VA_OP_CLEAR && in->offset_in_bo & 0xfff);
	REFUSE_IF(kernel_is(fuzz, "7.2") && in->flags & 1 && in->vm_timeline_syncobj_out);
}

/* With the card's lock. */
static void jobs_await(const struct fuzz *fuzz, struct emu_vm *vm)
{
	struct emu_fence *fence = vm->last_job;

	if (!fence)
		return;
	emu_fence_get(fence);
	if (emu_fence_wait(fence, (int64_t)(emu_now_ns() + LONG_NS)))
		fuzz_fail(fuzz, "a page-table job doesn't end");
	emu_fence_put(fence);
}

static bool text_has(const struct fuzz *fuzz, const char *part)
{
	char text[256];

	vmkv_emulator_error((vmkv_emulator *)fuzz->gpu, text, sizeof(text));
	return strstr(text, part);
}

/* Where a mapping leads is what was asked for. With the card's lock. */
static void entry_check(const struct fuzz *fuzz, const struct fuzz_call *call, struct emu_file *file,
                        const struct emu_bo *bo)
{
	const struct drm_amdgpu_gem_va *in = (const void *)call->before;
	uint64_t address = in->va_address & 0xffffffffffff, bytes = 1, physical;
	struct emu_walk walk;
	struct emu_bo *found = NULL;

	jobs_await(fuzz, file->vm);
	emu_page_table_walk(file->vm, address, &walk);
	if (in->flags & AMDGPU_VM_PAGE_PRT) {
		if (walk.entry & EMU_PTE_VALID || !(walk.entry & EMU_PTE_PRT))
			fuzz_fail(fuzz, "PRT mapped, but the entry is 0x%llx", (unsigned long long)walk.entry);
		return;
	}
	if (!(walk.entry & EMU_PTE_VALID))
		fuzz_fail(fuzz, "mapped, but the entry is 0x%llx", (unsigned long long)walk.entry);
	if (!!(walk.entry & EMU_PTE_READABLE) != !!(in->flags & AMDGPU_VM_PAGE_READABLE) ||
	    !!(walk.entry & EMU_PTE_WRITABLE) != !!(in->flags & AMDGPU_VM_PAGE_WRITEABLE))
		fuzz_fail(fuzz, "mapped with 0x%x, but the entry is 0x%llx", in->flags,
		          (unsigned long long)walk.entry);
	physical = walk.physical + address - walk.address;
	(void)emu_memory_at(fuzz->gpu, physical, &bytes, &found);
	if (found != bo || physical != emu_bo_physical(bo, in->offset_in_bo, &bytes))
		fuzz_fail(fuzz, "mapped, but the entry leads elsewhere");
}

static bool is_looked_at(const struct fuzz_call *call, const struct emu_bo *bo)
{
	const struct drm_amdgpu_gem_va *in = (const void *)call->before;

	if (in->flags & AMDGPU_VM_DELAY_UPDATE || !call->was_ready)
		return false;
	return in->flags & AMDGPU_VM_PAGE_PRT || (bo && bo->heap != EMU_HEAP_NONE && !bo->user_pointer);
}

static void va_check(struct fuzz *fuzz, const struct fuzz_call *call)
{
	const struct drm_amdgpu_gem_va *in = (const void *)call->before;
	uint64_t page = (in->va_address & 0xffffffffffff) >> 12;
	bool maps = in->operation == AMDGPU_VA_OP_MAP || in->operation == AMDGPU_VA_OP_REPLACE;
	struct emu_file *file = emu_file_get(call->file->fd);
	const struct emu_mapping *mapping;
	const struct emu_handle *handle;
	const struct emu_bo *bo = NULL;

	va_arguments_check(fuzz, call);
	pthread_mutex_lock(&fuzz->gpu->lock);
	handle = emu_handle_find(file, in->handle);
	if (handle && !(in->flags & AMDGPU_VM_PAGE_PRT))
		bo = handle->bo;
	REFUSE_IF(maps && !bo && !(in->flags & AMDGPU_VM_PAGE_PRT));
	REFUSE_IF(maps && bo && in->map_size + in->offset_in_bo > bo->bytes);
	mapping = emu_mapping_at_or_after(&file->vm->mappings, page);
	if (in->operation == AMDGPU_VA_OP_UNMAP)
		REFUSE_IF(mapping && mapping->start <= page);
	else if (in->operation == AMDGPU_VA_OP_CLEAR)
		REFUSE_IF(mapping && mapping->start < page + (in->map_size >> 12));
	else
		REFUSE_IF(!mapping || mapping->start != page ||
		          mapping->last != page + (in->map_size >> 12) - 1 || mapping->bo_va->bo != bo);
	if (maps && !is_injected(fuzz) && is_looked_at(call, bo) && !text_has(fuzz, "no memory to update"))
		entry_check(fuzz, call, file, bo);
	pthread_mutex_unlock(&fuzz->gpu->lock);
	emu_file_put(file);
}

/* ---- all others ------------------------------------------------------------------------------ */

static void simple_check(struct fuzz *fuzz, const struct fuzz_call *call)
{
	const uint32_t *in = (const void *)call->before;
	const char *name = call->ioctl->name;

	if (!strcmp(name, "CTX"))
		REFUSE_IF(in[0] < 1 || in[0] > 6 || (in[0] != 6 && in[1]) || in[1] > 4);
	else if (!strcmp(name, "VM"))
		REFUSE_IF(in[0] < 1 || in[0] > 2 || in[1]);
	else if (!strcmp(name, "BO_LIST"))
		REFUSE_IF(in[0] > 2 || (in[0] != 1 && in[2] > 128 * 1024));
	else if (!strcmp(name, "GEM_OP"))
		REFUSE_IF(in[1] > 2 || (in[1] == 2 && !kernel_is(fuzz, "7.2")));
	else if (!strcmp(name, "GEM_METADATA"))
		REFUSE_IF(in[1] < 1 || in[1] > 2 || (in[1] == 1 && in[6] > 256));
	else if (!strcmp(name, "CS"))
		REFUSE_IF(!in[2] || in[3]);
	else if (!strcmp(name, "INFO"))
		REFUSE_IF(!(in[0] | in[1]) || !in[2] || in[3] > 0x40);
	else if (!strcmp(name, "FENCE_TO_HANDLE"))
		REFUSE_IF(in[6] > 2);
	else if (!strcmp(name, "SYNCOBJ_CREATE"))
		REFUSE_IF(in[1] & ~1u);
	else if (!strcmp(name, "SYNCOBJ_DESTROY"))
		REFUSE_IF(in[1]);
	else if (!strcmp(name, "SYNCOBJ_RESET") || !strcmp(name, "SYNCOBJ_SIGNAL"))
		REFUSE_IF(in[3] || !in[2]);
	else if (!strcmp(name, "SYNCOBJ_TIMELINE_SIGNAL"))
		REFUSE_IF(in[5]);
	else if (!strcmp(name, "SYNCOBJ_QUERY"))
		REFUSE_IF(in[5] & ~1u);
	else if (!strcmp(name, "SYNCOBJ_TRANSFER"))
		REFUSE_IF(in[7]);
	else if (!strcmp(name, "PRIME_HANDLE_TO_FD"))
		REFUSE_IF(in[1] & ~(uint32_t)(DRM_CLOEXEC | DRM_RDWR));
}

static void success_check(struct fuzz *fuzz, const struct fuzz_call *call)
{
	REFUSE_IF(!call->file->primary && !(call->ioctl->flags & EMU_IOCTL_RENDER));
	/* Of what wasn't told in full the rest counts as zeros, so the rules hold for that. */
	if (call->ioctl->handler == emu_gem_create)
		gem_create_check(fuzz, call);
	else if (call->ioctl->handler == emu_gem_userptr)
		userptr_check(fuzz, call);
	else if (call->ioctl->handler == emu_gem_va)
		va_check(fuzz, call);
	else
		simple_check(fuzz, call);
}

static void unchanged_check(struct fuzz *fuzz, const struct fuzz_call *call)
{
	struct vmkv_emulator_stats now = fuzz_stats(fuzz);
	const struct vmkv_emulator_stats *was = &call->was;

	/* Buffers that others gave up may go meanwhile. */
	if (now.files != was->files || now.buffers > was->buffers || now.handles != was->handles ||
	    now.mappings != was->mappings || now.contexts != was->contexts ||
	    now.buffer_lists != was->buffer_lists || now.syncobjs != was->syncobjs)
		fuzz_fail(fuzz, "%s failed with %s, and changed counts",
		          call->ioctl ? call->ioctl->name : "no ioctl", strerror(-call->result));
}

void fuzz_call_check(struct fuzz *fuzz, const struct fuzz_call *call)
{
	if (!call->ioctl && call->result >= 0)
		fuzz_fail(fuzz, "request 0x%lx was taken", call->request);
	if (call->result < -4095 || call->result == -ENOSYS)
		fuzz_fail(fuzz, "request 0x%lx failed with %d", call->request, call->result);
	if (call->result >= 0)
		success_check(fuzz, call);
	else if (call->result != -EFAULT) /* as the kernel's, it may have come after all else */
		unchanged_check(fuzz, call);
}

/* ---- the end --------------------------------------------------------------------------------- */

static bool is_fresh(const struct fuzz *fuzz)
{
	struct vmkv_emulator_stats now = fuzz_stats(fuzz);
	const struct vmkv_emulator_stats *fresh = &fuzz->fresh;

	bool is_stolen = fuzz->gpu->options.inject.faults & EMU_INJECT_VRAM_STOLEN;

	return !now.files && !now.handles && !now.mappings && !now.contexts && !now.buffer_lists &&
	       !now.syncobjs && !now.page_table_bytes &&
	       (fuzz->fds_lost || (!now.buffers && now.gtt_used_bytes == fresh->gtt_used_bytes)) &&
	       (fuzz->fds_lost || is_stolen ||
	        (!now.fences && now.vram_used_bytes == fresh->vram_used_bytes));
}

void fuzz_end_check(struct fuzz *fuzz)
{
	uint64_t until = emu_now_ns() + LONG_NS;
	struct vmkv_emulator_stats now;

	/* The kernel's own jobs may still be at it. */
	while (!is_fresh(fuzz) && emu_now_ns() < until)
		usleep(50);
	if (is_fresh(fuzz))
		return;
	now = fuzz_stats(fuzz);
	fuzz_fail(fuzz, "left are %llu files, %llu buffers, %llu handles, %llu mappings, %llu contexts, "
	          "%llu lists, %llu syncobjs, %llu fences, %llu bytes of page tables, %llu of VRAM "
	          "(fresh: %llu), %llu of GTT",
	          (unsigned long long)now.files, (unsigned long long)now.buffers,
	          (unsigned long long)now.handles, (unsigned long long)now.mappings,
	          (unsigned long long)now.contexts, (unsigned long long)now.buffer_lists,
	          (unsigned long long)now.syncobjs, (unsigned long long)now.fences,
	          (unsigned long long)now.page_table_bytes, (unsigned long long)now.vram_used_bytes,
	          (unsigned long long)fuzz->fresh.vram_used_bytes, (unsigned long long)now.gtt_used_bytes);
}
