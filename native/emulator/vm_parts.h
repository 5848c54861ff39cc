/* SPDX-License-Identifier: MIT
 *
 * What the files of the address space share among themselves.
 */
#ifndef EMU_VM_PARTS_H
#define EMU_VM_PARTS_H

#include "emu.h"

#define EMU_TABLE_ENTRIES 512
#define EMU_TABLE_BITS 9
#define EMU_TABLE_ROOT_LEVEL 3

/* A page table, or a directory of tables. Level 0 holds PTEs (PTB), 1 is PDB0, 3 the root. */
struct emu_page_table {
	struct emu_page_table *parent;
	uint32_t level, slot; /* slot: which of the parent's entries */
	uint64_t first_page;  /* of the addresses that it covers */
	struct emu_bo *bo;    /* its place in VRAM; the entries are kept here */
	struct emu_list link; /* in vm->relocated or vm->tables_freed */
	uint64_t free_after;  /* the number of the job after which nothing refers to it */
	/* Directories only: the tables below as the kernel knows them, and as the entries name
	 * them. */
	struct emu_page_table **children, **named;
	uint64_t entries[EMU_TABLE_ENTRIES];
};

/* How many bits of the page number lie below one entry of a table of that level. */
static inline uint32_t emu_table_shift(uint32_t level)
{
	return level * EMU_TABLE_BITS;
}

/* ---- mapping_tree.c -------------------------------------------------------------------------- */

void emu_mappings_init(struct emu_mappings *mappings);
/* The first that ends at or after a page; NULL: none. */
struct emu_mapping *emu_mapping_at_or_after(const struct emu_mappings *mappings, uint64_t page);
/* The one behind it, or the first (mapping is NULL); NULL: none. */
struct emu_mapping *emu_mapping_next(const struct emu_mappings *mappings,
                                     const struct emu_mapping *mapping);
/* Before what emu_mapping_at_or_after says of its start. Pre: it overlaps none. Its start stays as it is
 * until it is removed. */
void emu_mapping_insert(struct emu_mappings *mappings, struct emu_mapping *mapping,
                        struct emu_mapping *after);
void emu_mapping_remove(struct emu_mappings *mappings, struct emu_mapping *mapping);

/* ---- vm_mapping.c: lists only, no page tables ------------------------------------------------ */

struct emu_map_request {
	uint64_t address, offset, bytes;
	uint64_t flags; /* AMDGPU_VM_PAGE_*, AMDGPU_VM_MTYPE_* */
};

int emu_vm_map(struct emu_bo_va *bo_va, const struct emu_map_request *request);
int emu_vm_unmap(struct emu_bo_va *bo_va, uint64_t address);
int emu_vm_clear(struct emu_vm *vm, uint64_t address, uint64_t bytes);
int emu_vm_replace(struct emu_bo_va *bo_va, const struct emu_map_request *request);
/* Take all mappings of a bo_va out, as the last handle's close does. */
void emu_vm_forget(struct emu_bo_va *bo_va);

/* ---- vm_update.c: the page-table jobs -------------------------------------------------------- */

/* No page table may change between an eviction and the submission that repairs it. */
bool emu_vm_is_ready(const struct emu_vm *vm);
/* Clear what was freed. *last (may be NULL) becomes a reference to the last job's fence if there
 * was one. */
int emu_vm_clear_freed(struct emu_vm *vm, struct emu_fence **last);
/* Write the entries of all invalids, and of valids too if the buffer moved. */
int emu_vm_bo_update(struct emu_bo_va *bo_va);
bool emu_bo_is_preferred(const struct emu_bo *bo); /* where it lies */
int emu_vm_handle_moved(struct emu_vm *vm);
/* Let directory entries name the new tables. */
int emu_vm_update_pdes(struct emu_vm *vm);

/* ---- page_table.c ---------------------------------------------------------------------------- */

int emu_page_table_create(struct emu_vm *vm, struct emu_page_table *parent, uint32_t slot,
                          struct emu_page_table **ret);
/* Free the tables whose last job has run; all: every table of the VM. */
void emu_page_table_reap(struct emu_vm *vm, bool all);
/* The writes that make pages [start, end) go to `physical` and on; tables that are missing are
 * made. What was added to the job stays there if it fails with -ENOMEM. */
int emu_page_table_plan(struct emu_vm *vm, struct emu_job *job, uint64_t start, uint64_t end,
                        uint64_t physical, uint64_t flags);
int emu_page_table_add_write(struct emu_job *job, const struct emu_pte_write *write);

/* ---- vm_update.c's, for page_table.c --------------------------------------------------------- */

/* The job that clears a new table. */
int emu_vm_push_table_clear(struct emu_vm *vm);

/* ---- identity.c ------------------------------------------------------------------------------ */

/* A run of addresses that the process sees the same way. */
struct emu_identity_run {
	struct emu_vm *vm;
	uint64_t begin, end; /* addresses; equal: none yet */
	uint64_t offset;     /* in the memory file */
	int protection;      /* PROT_NONE: nothing behind it */
	int error;           /* the first that failed */
};

/* May this VM map the addresses? Takes the window for it if nobody has it. -EINVAL: another's. */
int emu_identity_claim(struct emu_vm *vm, uint64_t address, uint64_t bytes);
/* Entries for `bytes` from an address are now `entry` (the physical address going on). */
void emu_identity_set(struct emu_identity_run *run, uint64_t address, uint64_t bytes,
                      uint64_t entry);
/* What emu_identity_set does unless faults are injected: show the window what an entry leads to, its
 * bytes being where `backing` (EMU_BACKED_*, or an offset in the memory file) says. */
void emu_identity_show(struct emu_identity_run *run, uint64_t address, uint64_t bytes,
                       uint64_t entry, uint64_t backing);
/* Make the last run visible. 0 or the first error of all. */
int emu_identity_finish(struct emu_identity_run *run);
/* The VM goes. */
void emu_identity_release(struct emu_vm *vm);

#endif
