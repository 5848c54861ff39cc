/* SPDX-License-Identifier: MIT
 *
 * inject=: what engines, and the identity window, see of a VM's page tables, page by page, where faults
 * make that differ from what the tables say. Pages that were never mapped have no record.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "entry.h"
#include "inject_map.h"
#include "memory_parts.h"
#include "vm_parts.h"

/* An address's page. */
struct seen {
	uint64_t entry;   /* what is used of it; 0: nothing, and what page tables say counts */
	uint64_t from_ns; /* late visibility: when the GPU sees it */
	uint64_t storage; /* alias: which page of the memory file it is; 0: none that counts */
	uint64_t next;    /* alias: the address's page that was mapped next to the same; 0: none */
	bool mapped;      /* page tables have a valid entry */
	bool stale;       /* not the one that is used */
	bool copied;      /* alias: its bytes are in the chunk's copies, not in the storage */
};

/* A VM's. */
struct emu_tlb {
	uint32_t faults;
	uint64_t late_ns;
	struct emu_page_map pages; /* struct seen, by the address's page; chunks' `extra` is of copies */
	struct emu_page_map holders; /* alias: by page of the memory file, the address's that came first */
};

/* A call of emu_tlb_set. */
struct change {
	struct emu_vm *vm;
	struct emu_tlb *tlb;
	struct emu_identity_run *run;
	uint64_t now_ns;
};

/* ---- life ------------------------------------------------------------------------------------ */

bool emu_tlb_is_needed(const struct emu_gpu *gpu)
{
	return gpu->options.inject.faults & EMU_INJECT_TRANSLATIONS;
}

int emu_tlb_create(struct emu_vm *vm)
{
	const struct emu_inject_options *options = &vm->gpu->options.inject;
	struct emu_tlb *tlb = calloc(1, sizeof(*tlb));

	if (!tlb)
		return -ENOMEM;
	tlb->faults = options->faults;
	if (tlb->faults & EMU_INJECT_LATE_VISIBILITY)
		tlb->late_ns = (uint64_t)(options->late_us * 1e3);
	tlb->pages.item_bytes = sizeof(struct seen);
	tlb->holders.item_bytes = sizeof(uint64_t);
	vm->tlb = tlb;
	return 0;
}

static uint64_t copies_bytes(void)
{
	return EMU_MAP_PAGES * EMU_PAGE_BYTES;
}

void emu_tlb_destroy(struct emu_vm *vm)
{
	struct emu_tlb *tlb = vm->tlb;

	if (!tlb)
		return;
	emu_late_forget(vm);
	for (uint64_t i = 0; i < tlb->pages.count; i++)
		if (tlb->pages.chunks[i]->extra)
			emu_storage_give(vm->gpu, tlb->pages.chunks[i]->extra, copies_bytes(),
			                 false, 0);
	emu_page_map_fini(&tlb->pages);
	emu_page_map_fini(&tlb->holders);
	free(tlb);
	vm->tlb = NULL;
}

/* ---- showing --------------------------------------------------------------------------------- */

static struct seen *seen_find(struct emu_tlb *tlb, uint64_t page, struct emu_page_chunk **chunk)
{
	return emu_page_map_find(&tlb->pages, page, chunk);
}

static uint64_t copy_offset(const struct emu_page_chunk *chunk, uint64_t page)
{
	return chunk->extra + (page % EMU_MAP_PAGES) * EMU_PAGE_BYTES;
}

/* The GPU looks at the clock with each access; the process sees a page a little earlier. */
static uint64_t process_from_ns(const struct emu_vm *vm, const struct seen *seen)
{
	return seen->from_ns ? seen->from_ns - emu_late_ahead_ns(vm->gpu) : 0;
}

static bool memory_is_there(struct emu_gpu *gpu, uint64_t entry)
{
	uint64_t bytes = EMU_PAGE_BYTES;

	return emu_memory_at(gpu, entry & EMU_PTE_ADDRESS, &bytes, NULL);
}

/* What is used of a page goes to the window. said: what page tables have. */
static void page_show(struct change *change, const struct emu_page_chunk *chunk,
                      const struct seen *seen, uint64_t page, uint64_t said)
{
	uint64_t backing = EMU_BACKED_AS_SAID;

	if (!seen->entry || (!seen->mapped && !(change->tlb->faults & EMU_INJECT_UNMAP_IGNORED))) {
		emu_identity_show(change->run, page << EMU_PAGE_SHIFT, EMU_PAGE_BYTES, said,
		                  EMU_BACKED_AS_SAID);
		return;
	}
	if (change->now_ns < process_from_ns(change->vm, seen))
		backing = EMU_BACKED_BY_NOTHING;
	else if (seen->copied)
		backing = copy_offset(chunk, page);
	else if (!memory_is_there(change->vm->gpu, seen->entry))
		backing = EMU_BACKED_BY_NOTHING; /* freed: as the GPU finds it */
	emu_identity_show(change->run, page << EMU_PAGE_SHIFT, EMU_PAGE_BYTES, seen->entry, backing);
}

/* ---- aliases --------------------------------------------------------------------------------- */

/* The page of the memory file behind an entry; 0: none (file offset 0 is nobody's). */
static uint64_t storage_of(struct emu_gpu *gpu, uint64_t entry)
{
	uint64_t bytes = EMU_PAGE_BYTES, offset;
	const uint8_t *memory = emu_memory_at(gpu, entry & EMU_PTE_ADDRESS, &bytes, NULL);

	if (!memory || memory < gpu->memory.view)
		return 0;
	offset = (uint64_t)(memory - gpu->memory.view);
	return offset < gpu->memory.view_bytes ? offset >> EMU_PAGE_SHIFT : 0;
}

/* What is all zeros takes no memory, on either side. */
static void page_copy(struct emu_gpu *gpu, uint64_t to, uint64_t from)
{
	static const uint8_t zeros[EMU_PAGE_BYTES];
	uint8_t bytes[EMU_PAGE_BYTES];

	if (pread(gpu->memory.fd, bytes, sizeof(bytes), (off_t)from) != (ssize_t)sizeof(bytes))
		memcpy(bytes, gpu->memory.view + from, sizeof(bytes));
	if (memcmp(bytes, zeros, sizeof(bytes)))
		memcpy(gpu->memory.view + to, bytes, sizeof(bytes));
	else
		emu_storage_zero(gpu, to, EMU_PAGE_BYTES);
}

/* A copy of its own for a page whose storage another address has too. */
static int copy_make(struct change *change, struct emu_page_chunk *chunk, struct seen *seen,
                     uint64_t page)
{
	struct emu_gpu *gpu = change->vm->gpu;

	if (!chunk->extra && emu_storage_take(gpu, copies_bytes(), false, &chunk->extra))
		return -ENOMEM;
	page_copy(gpu, copy_offset(chunk, page), seen->storage << EMU_PAGE_SHIFT);
	seen->copied = true;
	return 0;
}

static void copy_drop(struct change *change, struct emu_page_chunk *chunk, struct seen *seen,
                      uint64_t page)
{
	if (seen->copied)
		emu_storage_zero(change->vm->gpu, copy_offset(chunk, page), EMU_PAGE_BYTES);
	seen->copied = false;
}

static int alias_enter(struct change *change, struct emu_page_chunk *chunk, struct seen *seen,
                       uint64_t page)
{
	struct emu_tlb *tlb = change->tlb;
	struct emu_page_chunk *storage = emu_page_map_make(&tlb->holders, seen->storage);
	uint64_t *holder;
	struct seen *last;

	if (!storage)
		return -ENOMEM;
	holder = emu_page_chunk_item(&tlb->holders, storage, seen->storage);
	seen->next = 0;
	if (!*holder) {
		*holder = page;
		return 0;
	}
	if (copy_make(change, chunk, seen, page))
		return -ENOMEM;
	last = seen_find(tlb, *holder, NULL);
	while (last->next)
		last = seen_find(tlb, last->next, NULL);
	last->next = page;
	return 0;
}

/* The oldest one goes: what was written through the next one is what memory holds from now on. */
static void alias_succeed(struct change *change, uint64_t page)
{
	struct emu_page_chunk *chunk;
	struct seen *seen = seen_find(change->tlb, page, &chunk);

	page_copy(change->vm->gpu, seen->storage << EMU_PAGE_SHIFT, copy_offset(chunk, page));
	copy_drop(change, chunk, seen, page);
	page_show(change, chunk, seen, page, seen->entry);
}

static void alias_leave(struct change *change, struct emu_page_chunk *chunk, struct seen *seen,
                        uint64_t page)
{
	struct emu_tlb *tlb = change->tlb;
	uint64_t *holder = emu_page_map_find(&tlb->holders, seen->storage, NULL);
	struct seen *before;

	copy_drop(change, chunk, seen, page);
	if (*holder == page) {
		*holder = seen->next;
		if (*holder)
			alias_succeed(change, *holder);
	} else {
		before = seen_find(tlb, *holder, NULL);
		while (before->next != page)
			before = seen_find(tlb, before->next, NULL);
		before->next = seen->next;
	}
	seen->storage = seen->next = 0;
}

/* The entry that is used of a page is another, or none any more (0). */
static void alias_follow(struct change *change, struct emu_page_chunk *chunk, struct seen *seen,
                         uint64_t page, uint64_t entry)
{
	uint64_t storage = entry ? storage_of(change->vm->gpu, entry) : 0;

	/* A buffer that moves keeps its storage. */
	if (!(change->tlb->faults & EMU_INJECT_ALIAS_DIVERGES) || storage == seen->storage)
		return;
	if (seen->storage)
		alias_leave(change, chunk, seen, page);
	seen->storage = storage;
	if (storage && alias_enter(change, chunk, seen, page)) {
		seen->storage = 0; /* it goes without divergence, which the fence tells */
		change->run->error = -ENOMEM;
	}
}

/* ---- changes --------------------------------------------------------------------------------- */

static void page_hide(struct change *change, struct seen *seen, uint64_t page)
{
	const struct emu_gpu *gpu = change->vm->gpu;
	uint64_t address = page << EMU_PAGE_SHIFT;

	seen->from_ns = change->now_ns + change->tlb->late_ns;
	if (gpu->window_vm != change->vm || address < gpu->window_begin || address >= gpu->window_end)
		return;
	if (emu_late_add(change->vm, address, process_from_ns(change->vm, seen)))
		seen->from_ns = 0;
}

static void page_map(struct change *change, struct emu_page_chunk *chunk, struct seen *seen,
                     uint64_t page, uint64_t entry)
{
	bool again = !seen->mapped && seen->entry;

	if (change->tlb->faults & EMU_INJECT_STALE_TRANSLATION && (again || seen->stale)) {
		seen->stale = true;
		entry = seen->entry;
	}
	alias_follow(change, chunk, seen, page, entry);
	if (!seen->mapped && change->tlb->late_ns)
		page_hide(change, seen, page);
	seen->entry = entry;
	seen->mapped = true;
}

static void page_unmap(struct change *change, struct emu_page_chunk *chunk, struct seen *seen,
                       uint64_t page)
{
	seen->mapped = false;
	if (change->tlb->faults & EMU_INJECT_UNMAP_IGNORED)
		return;
	alias_follow(change, chunk, seen, page, 0);
	if (!(change->tlb->faults & EMU_INJECT_STALE_TRANSLATION))
		seen->entry = 0;
}

/* As far as the chunk goes; returns the page where it ends. */
static uint64_t chunk_set(struct change *change, struct emu_page_chunk *chunk, uint64_t page,
                          uint64_t end, uint64_t entry, uint64_t step)
{
	uint64_t last = (chunk->number + 1) * EMU_MAP_PAGES;

	for (; page < end && page < last; page++, entry += step) {
		struct seen *seen = emu_page_chunk_item(&change->tlb->pages, chunk, page);

		if (entry & EMU_PTE_VALID)
			page_map(change, chunk, seen, page, entry);
		else
			page_unmap(change, chunk, seen, page);
		page_show(change, chunk, seen, page, entry);
	}
	return page;
}

void emu_tlb_set(struct emu_identity_run *run, uint64_t address, uint64_t bytes, uint64_t entry)
{
	struct change change = { .vm = run->vm, .tlb = run->vm->tlb, .run = run };
	uint64_t page = address >> EMU_PAGE_SHIFT, end = (address + bytes) >> EMU_PAGE_SHIFT;
	uint64_t step = entry & EMU_PTE_VALID ? EMU_PAGE_BYTES : 0, first = page;

	change.now_ns = change.tlb->late_ns ? emu_now_ns() : 0;
	while (page < end) {
		struct emu_page_chunk *chunk =
		    entry & EMU_PTE_VALID ? emu_page_map_make(&change.tlb->pages, page)
		                          : emu_page_map_from(&change.tlb->pages, page);
		uint64_t begin = chunk ? chunk->number * EMU_MAP_PAGES : end;

		if (!chunk && entry & EMU_PTE_VALID)
			run->error = -ENOMEM;
		if (begin > page) { /* nothing was ever mapped there, or there's no memory for it */
			uint64_t until = begin < end ? begin : end;

			emu_identity_show(run, page << EMU_PAGE_SHIFT,
			                  (until - page) << EMU_PAGE_SHIFT,
			                  entry + (page - first) * step, EMU_BACKED_AS_SAID);
			page = until;
		}
		if (page < end)
			page = chunk_set(&change, chunk, page, end,
			                 entry + (page - first) * step, step);
	}
}

void emu_tlb_show_late(struct emu_identity_run *run, uint64_t begin, uint64_t end, uint64_t due_ns)
{
	struct change change = { .vm = run->vm, .tlb = run->vm->tlb, .run = run,
		                 .now_ns = UINT64_MAX };

	for (uint64_t page = begin >> EMU_PAGE_SHIFT; page < end >> EMU_PAGE_SHIFT; page++) {
		struct emu_page_chunk *chunk;
		const struct seen *seen = seen_find(change.tlb, page, &chunk);

		/* Otherwise it was mapped once more since, and has its turn later. */
		if (seen && seen->mapped && process_from_ns(run->vm, seen) <= due_ns)
			page_show(&change, chunk, seen, page, seen->entry);
	}
}

/* ---- looking --------------------------------------------------------------------------------- */

void emu_tlb_look(struct emu_vm *vm, uint64_t address, struct emu_walk *walk, uint64_t *backing)
{
	uint64_t page = (address & ((1ULL << EMU_ADDRESS_BITS) - 1)) >> EMU_PAGE_SHIFT;
	struct emu_tlb *tlb = vm->tlb;
	struct emu_page_chunk *chunk;
	const struct seen *seen = seen_find(tlb, page, &chunk);

	*backing = EMU_BACKED_AS_SAID;
	if (!seen || !seen->entry || (!seen->mapped && !(tlb->faults & EMU_INJECT_UNMAP_IGNORED)))
		return;
	walk->entry = seen->entry;
	walk->address = page << EMU_PAGE_SHIFT;
	walk->bytes = EMU_PAGE_BYTES;
	walk->physical = seen->entry & EMU_PTE_ADDRESS;
	if (seen->from_ns && emu_now_ns() < seen->from_ns)
		*backing = EMU_BACKED_BY_NOTHING;
	else if (seen->copied)
		*backing = copy_offset(chunk, page);
}
