/* SPDX-License-Identifier: MIT
 *
 * The identity window: a range of the process's addresses in which GPU addresses work for CPU code.
 * What page-table entries say of an address in it is what mmap says too: the same bytes, read-only
 * entries read-only, and PROT_NONE where there is no entry.
 *
 * One VM owns the window: that of the first file that maps something there; mapping there from
 * another file is refused. Unbacked ranges (PRT) read zeros; a CPU's write to one faults, where the
 * GPU drops it.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include "vm_parts.h"

#define WINDOW_ALIGNMENT (1ULL << 30)
#define OFFSET_ZEROS EMU_BACKED_BY_NOTHING /* of a run: no memory, reads give zeros */
#define NOBODY (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

/* ---- how many ranges a process may have ------------------------------------------------------ */

/* A process that has as many separate ranges as vm.max_map_count allows can't even unmap, or grow
 * its heap. So a few that serve nothing are kept; when the limit is met they go, and nothing more
 * is mapped in the window until there is room for them again. */
#define SPARE_RANGES 128
#define SPARE_BYTES (SPARE_RANGES * EMU_PAGE_BYTES)
#define UNMAPS_UNTIL_RETRY 256

static void *spares_create(void)
{
	uint8_t *spares = mmap(NULL, SPARE_BYTES, PROT_NONE, NOBODY, -1, 0);

	if (spares == MAP_FAILED)
		return NULL;
	for (uint64_t at = 0; at < SPARE_BYTES; at += 2 * EMU_PAGE_BYTES) {
		if (!mprotect(spares + at, EMU_PAGE_BYTES, PROT_READ))
			continue;
		(void)munmap(spares, SPARE_BYTES);
		return NULL;
	}
	return spares;
}

static void spares_destroy(struct emu_gpu *gpu)
{
	if (gpu->window_spares)
		(void)munmap(gpu->window_spares, SPARE_BYTES);
	gpu->window_spares = NULL;
	gpu->window_unmaps = 0;
}

static bool window_is_full(struct emu_gpu *gpu)
{
	if (!gpu->window_spares && gpu->window_unmaps >= UNMAPS_UNTIL_RETRY) {
		gpu->window_spares = spares_create();
		gpu->window_unmaps = 0;
	}
	return !gpu->window_spares;
}

/* ---- the window ------------------------------------------------------------------------------ */

int emu_identity_init(struct emu_gpu *gpu)
{
	uint64_t bytes = gpu->options.window_bytes, begin;
	void *place;

	if (!gpu->options.identity)
		return 0;
	/* More than needed, so that a well-aligned part can be kept. */
	place = mmap(NULL, bytes + WINDOW_ALIGNMENT, PROT_NONE, NOBODY, -1, 0);
	if (place == MAP_FAILED)
		return -ENOMEM;
	begin = ((uintptr_t)place + WINDOW_ALIGNMENT - 1) & ~(WINDOW_ALIGNMENT - 1);
	if (begin > (uintptr_t)place)
		(void)munmap(place, begin - (uintptr_t)place);
	if (begin < (uintptr_t)place + WINDOW_ALIGNMENT)
		(void)munmap((void *)(uintptr_t)(begin + bytes),
		             (uintptr_t)place + WINDOW_ALIGNMENT - begin);
	gpu->window_begin = begin;
	gpu->window_end = begin + bytes;
	gpu->window_spares = spares_create();
	return 0;
}

void emu_identity_fini(struct emu_gpu *gpu)
{
	spares_destroy(gpu);
	if (gpu->window_end > gpu->window_begin)
		(void)munmap((void *)(uintptr_t)gpu->window_begin,
		             gpu->window_end - gpu->window_begin);
	gpu->window_begin = gpu->window_end = 0;
}

int emu_identity_claim(struct emu_vm *vm, uint64_t address, uint64_t bytes)
{
	struct emu_gpu *gpu = vm->gpu;

	if (gpu->window_begin == gpu->window_end || address >= gpu->window_end ||
	    address + bytes <= gpu->window_begin)
		return 0;
	if (!gpu->window_vm)
		gpu->window_vm = vm;
	if (gpu->window_vm == vm)
		return 0;
	return emu_refuse(gpu, -EINVAL,
	                  "GEM_VA: 0x%" PRIx64 " is in the identity window, which file %" PRIu64
	                  " uses; a card has one",
	                  address, gpu->window_vm->file->id);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static int range_map(const struct emu_identity_run *run)
{
	struct emu_gpu *gpu = run->vm->gpu;
	void *at = (void *)(uintptr_t)run->begin, *place;
	size_t bytes = run->end - run->begin;

	if (run->protection != PROT_NONE && window_is_full(gpu))
		return -ENOMEM;
	gpu->window_unmaps += run->protection == PROT_NONE;
	for (int attempt = 0; attempt < 2; attempt++) {
		if (run->protection != PROT_NONE && run->offset != OFFSET_ZEROS)
			place = mmap(at, bytes, run->protection, MAP_SHARED | MAP_FIXED,
			             gpu->memory.fd, (off_t)run->offset);
		else
			place = mmap(at, bytes, run->protection, NOBODY | MAP_FIXED, -1, 0);
		if (place != MAP_FAILED)
			return 0;
		if (errno != ENOMEM)
			return -errno;
		spares_destroy(gpu);
		if (run->protection != PROT_NONE)
			break; /* what is left is for unmapping */
	}
	return -ENOMEM;
}

static void run_fail(struct emu_identity_run *run, int error, const char *why)
{
	if (!run->error)
		run->error = error;
	(void)emu_refuse(run->vm->gpu, error,
	                 "identity window: 0x%" PRIx64 " bytes at 0x%" PRIx64 " %s: %s",
	                 run->end - run->begin, run->begin, why, strerror(-error));
}

static void run_flush(struct emu_identity_run *run)
{
	int error;

	if (run->begin == run->end)
		return;
	error = range_map(run);
	if (error)
		run_fail(run, error,
		         error == -ENOMEM ? "can't be mapped (vm.max_map_count)"
		                          : "can't be mapped");
	run->begin = run->end = 0;
}

/* Add a piece to the run if it goes on from it; else show the run and begin another. */
static void run_add(struct emu_identity_run *run, uint64_t address, uint64_t bytes, uint64_t offset,
                    int protection)
{
	bool file = protection != PROT_NONE && offset != OFFSET_ZEROS;
	bool same = run->begin < run->end && run->end == address && run->protection == protection;

	if (same && file)
		same = run->offset != OFFSET_ZEROS &&
		       run->offset + (address - run->begin) == offset;
	else if (same && protection != PROT_NONE)
		same = run->offset == OFFSET_ZEROS;
	if (same) {
		run->end += bytes;
		return;
	}
	run_flush(run);
	run->begin = address;
	run->end = address + bytes;
	run->offset = offset;
	run->protection = protection;
}

/* Memory behind a valid entry. What nobody has any more, or isn't in the memory file (USERPTR),
 * can't be shown. */
static void memory_add(struct emu_identity_run *run, uint64_t address, uint64_t bytes,
                       uint64_t entry, int protection)
{
	struct emu_gpu *gpu = run->vm->gpu;
	uint64_t physical = entry & EMU_PTE_ADDRESS;

	while (bytes) {
		uint64_t piece = bytes;
		const uint8_t *memory = emu_memory_at(gpu, physical, &piece, NULL);
		uint64_t offset = memory ? (uint64_t)(memory - gpu->memory.view) : 0;

		if (!memory || offset >= gpu->memory.view_bytes) {
			piece = EMU_PAGE_BYTES;
			run_add(run, address, piece, 0, PROT_NONE);
			if (memory)
				run_fail(run, -EOPNOTSUPP, "is the process's own memory");
		} else {
			piece = piece < bytes ? piece : bytes;
			run_add(run, address, piece, offset, protection);
		}
		address += piece;
		physical += piece;
		bytes -= piece;
	}
}

void emu_identity_set(struct emu_identity_run *run, uint64_t address, uint64_t bytes,
                      uint64_t entry)
{
	if (run->vm->tlb)
		emu_tlb_set(run, address, bytes, entry);
	else
		emu_identity_show(run, address, bytes, entry, EMU_BACKED_AS_SAID);
}

void emu_identity_show(struct emu_identity_run *run, uint64_t address, uint64_t bytes,
                       uint64_t entry, uint64_t backing)
{
	const struct emu_gpu *gpu = run->vm->gpu;
	int protection = PROT_NONE;
	uint64_t end = address + bytes;

	if (gpu->window_vm != run->vm || end <= gpu->window_begin || address >= gpu->window_end)
		return;
	/* Only entries without memory are so large that they begin before the window, as it is
	 * aligned. */
	if (address < gpu->window_begin)
		address = gpu->window_begin;
	if (end > gpu->window_end)
		end = gpu->window_end;
	if (entry & EMU_PTE_PRT) {
		run_add(run, address, end - address, OFFSET_ZEROS, PROT_READ);
		return;
	}
	if (entry & EMU_PTE_VALID && entry & EMU_PTE_READABLE)
		protection |= PROT_READ;
	if (entry & EMU_PTE_VALID && entry & EMU_PTE_WRITABLE)
		protection |= PROT_WRITE;
	if (protection == PROT_NONE)
		run_add(run, address, end - address, 0, PROT_NONE);
	else if (backing != EMU_BACKED_AS_SAID)
		run_add(run, address, end - address, backing, protection);
	else
		memory_add(run, address, end - address, entry, protection);
}

int emu_identity_finish(struct emu_identity_run *run)
{
	run_flush(run);
	return run->error;
}

void emu_identity_release(struct emu_vm *vm)
{
	struct emu_gpu *gpu = vm->gpu;
	struct emu_identity_run all = { .vm = vm,
		                        .begin = gpu->window_begin,
		                        .end = gpu->window_end,
		                        .protection = PROT_NONE };

	if (gpu->window_vm != vm)
		return;
	run_flush(&all);
	gpu->window_vm = NULL;
}
