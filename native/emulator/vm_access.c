/* SPDX-License-Identifier: MIT
 *
 * Accesses by GPU address, as a job makes them, and the faults that come of it.
 */
#include <errno.h>
#include <inttypes.h>

#include "util.h"
#include "vm_parts.h"

/* Fields of GCVM_L2_PROTECTION_FAULT_STATUS (gfx9 to gfx12), which GPUVM_FAULT hands out. */
#define FAULT_WALKER_ERROR (1u << 1)
#define FAULT_PERMISSION_VALID (1u << 4) /* the entry isn't valid */
#define FAULT_PERMISSION_READ (1u << 5)
#define FAULT_PERMISSION_WRITE (1u << 6)
#define FAULT_RW (1u << 18) /* it was a write */

#define HUB_GFX 0
#define HUB_MM0 1

static void fault_record(struct emu_vm *vm, uint64_t address, bool write,
                         const struct emu_walk *walk)
{
	struct emu_gpu *gpu = vm->gpu;
	struct emu_file *file = vm->file;
	uint32_t status = write ? FAULT_PERMISSION_WRITE | FAULT_RW : FAULT_PERMISSION_READ;
	bool valid = walk->entry & EMU_PTE_VALID;

	if (!valid)
		status |= FAULT_PERMISSION_VALID;
	if (!walk->entry && walk->bytes > EMU_PAGE_BYTES)
		status |= FAULT_WALKER_ERROR;
	/* The kernel keeps the page of the fault, as it came from the hardware: 48 bits. */
	file->fault_address = address & ((1ULL << EMU_ADDRESS_BITS) - EMU_PAGE_BYTES);
	file->fault_status = status;
	/* Where the SDMA engines translate: with gfx9 in the multimedia hub. */
	file->fault_hub = gpu->model->gfx_major == 9 ? HUB_MM0 : HUB_GFX;
	gpu->counts.faults++;
	emu_error_set(gpu,
	              "GPU fault: %s at 0x%" PRIx64 ", which is %s (status 0x%x, file %" PRIu64 ")",
	              write ? "write" : "read", address,
	              !valid  ? "not mapped"
	              : write ? "not writable"
	                      : "not readable",
	              status, file->id);
}

/* Bits 63 to 47 are all the same. */
static bool address_is_canonical(uint64_t address)
{
	uint64_t top = address >> (EMU_ADDRESS_BITS - 1);

	return !top || top == (1ULL << (65 - EMU_ADDRESS_BITS)) - 1;
}

/* Nobody has the memory behind an entry: how far that goes isn't known, a page at a time is right. */
static uint64_t stale_access(struct emu_vm *vm, uint64_t address, bool write)
{
	vm->gpu->counts.stale_accesses++;
	emu_error_set(vm->gpu, "stale access: %s at 0x%" PRIx64 ", whose memory was freed",
	              write ? "write" : "read", address);
	return EMU_PAGE_BYTES - (address & (EMU_PAGE_BYTES - 1));
}

int emu_vm_access(struct emu_vm *vm, uint64_t address, bool write, struct emu_piece *ret)
{
	uint64_t needed = write ? EMU_PTE_WRITABLE : EMU_PTE_READABLE, inside, run;
	uint64_t backing = EMU_BACKED_AS_SAID;
	struct emu_walk walk = { .bytes = 1ULL << EMU_ADDRESS_BITS };
	struct emu_bo *bo = NULL;

	if (address_is_canonical(address))
		emu_page_table_walk(vm, address, &walk);
	if (vm->tlb && address_is_canonical(address))
		emu_tlb_look(vm, address, &walk, &backing);
	needed |= EMU_PTE_VALID;
	if (!(walk.entry & EMU_PTE_PRT) && (walk.entry & needed) != needed) {
		fault_record(vm, address, write, &walk);
		return -EFAULT;
	}
	inside = (address & ((1ULL << EMU_ADDRESS_BITS) - 1)) - walk.address;
	if (ret->bytes > walk.bytes - inside)
		ret->bytes = walk.bytes - inside;
	ret->memory = NULL;
	ret->foreign = false;
	if (walk.entry & EMU_PTE_PRT || backing == EMU_BACKED_BY_NOTHING)
		return 0;
	if (backing != EMU_BACKED_AS_SAID) {
		ret->memory = vm->gpu->memory.view + backing + inside;
		return 0;
	}
	run = ret->bytes;
	ret->memory = emu_memory_at(vm->gpu, walk.physical + inside, &run, &bo);
	if (!ret->memory)
		run = stale_access(vm, address, write);
	if (ret->bytes > run)
		ret->bytes = run;
	if (bo && bo->user_pointer) {
		ret->foreign = true;
		ret->process = bo->user_process;
	}
	return 0;
}

/* ---- looking, for tests ---------------------------------------------------------------------- */

static void entry_add_buffer(struct emu_file *file, struct vmkv_emulator_entry *entry)
{
	uint64_t bytes = entry->bytes;
	struct emu_bo *bo = NULL;
	const uint8_t *memory = emu_memory_at(file->gpu, entry->physical, &bytes, &bo);
	const struct emu_handle *handle;

	if (!memory || !bo)
		return;
	for (uint32_t id = 1; (handle = emu_ids_next(&file->handles, &id)); id++) {
		if (handle->bo != bo)
			continue;
		entry->handle = id;
		entry->offset = (uint64_t)(memory - file->gpu->memory.view) - bo->storage;
		if (bo->user_pointer)
			entry->offset = (uint64_t)(memory - (const uint8_t *)bo->user_pointer);
		return;
	}
}

int vmkv_emulator_walk(int fd, uint64_t address, struct vmkv_emulator_entry *ret)
{
	struct vmkv_emulator_entry entry = { 0 };
	struct emu_walk walk;
	struct emu_file *file;

	file = emu_file_get(fd);
	if (!file)
		return -EBADF;
	pthread_mutex_lock(&file->gpu->lock);
	emu_page_table_walk(file->vm, address, &walk);
	entry.address = walk.address;
	entry.bytes = walk.bytes;
	entry.valid = !!(walk.entry & EMU_PTE_VALID);
	entry.prt = !!(walk.entry & EMU_PTE_PRT);
	entry.readable = !!(walk.entry & EMU_PTE_READABLE);
	entry.writable = !!(walk.entry & EMU_PTE_WRITABLE);
	entry.executable = !!(walk.entry & EMU_PTE_EXECUTABLE);
	entry.fragment = EMU_PTE_FRAGMENT(walk.entry);
	if (entry.valid) {
		entry.physical = walk.physical;
		entry_add_buffer(file, &entry);
	}
	pthread_mutex_unlock(&file->gpu->lock);
	emu_file_put(file);
	return vmkv_struct_out(ret, &entry, sizeof(entry));
}
