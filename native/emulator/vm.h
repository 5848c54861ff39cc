/* SPDX-License-Identifier: MIT
 *
 * A file's GPU address space: mappings as the kernel lists them (valids, invalids, freed), and the
 * page tables that the hardware would walk, which follow later, in jobs.
 */
#ifndef EMU_VM_H
#define EMU_VM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A page-table entry. Both a PTB's entries and a PDE0 used as one. */
#define EMU_PTE_VALID (1ULL << 0)
#define EMU_PTE_SYSTEM (1ULL << 1)
#define EMU_PTE_EXECUTABLE (1ULL << 4)
#define EMU_PTE_READABLE (1ULL << 5)
#define EMU_PTE_WRITABLE (1ULL << 6)
#define EMU_PTE_FRAGMENT(pte) ((uint32_t)((pte) >> 7) & 31)
#define EMU_PTE_PRT (1ULL << 51)
#define EMU_PTE_HUGE (1ULL << 54)
#define EMU_PTE_ADDRESS 0x0000fffffffff000ULL

struct emu_mapping {
	uint64_t start, last; /* pages, both included */
	/* mapping_tree.c's, until it is freed. Searching needs these five only. */
	struct emu_mapping *left, *right;
	uint64_t priority;
	struct emu_list order;
	uint64_t offset; /* bytes in the buffer */
	uint64_t flags;  /* AMDGPU_VM_* that became the entry's */
	struct emu_bo_va *bo_va; /* NULL once freed */
	struct emu_list link;    /* in valids, invalids or freed */
	bool valid;              /* in valids */
};

/* In order of their addresses; they don't overlap. */
struct emu_mappings {
	struct emu_mapping *root;
	struct emu_list order; /* emu_mapping.order */
};

struct emu_bo_va {
	struct emu_vm *vm;
	struct emu_bo *bo; /* NULL: prt_va */
	uint32_t references;
	struct emu_list bo_link; /* emu_bo.bo_vas */
	struct emu_list valids, invalids;
	struct emu_list status; /* in vm->moved, invalidated or evicted, or in none */
	bool moved;             /* valids must be written again: the buffer moved */
	struct emu_fence *last_pt_update;
	uint64_t told; /* in which of vm->tellings */
};

struct emu_vm {
	struct emu_gpu *gpu;
	struct emu_file *file;
	struct emu_mappings mappings;
	uint64_t mapping_count;
	struct emu_list freed;
	/* bo_vas that the next submission writes: always-valid ones with invalids or a moved
	 * buffer, and others whose buffer moved. One that merely has invalids, and isn't always
	 * valid, is in neither. */
	struct emu_list moved, invalidated;
	struct emu_list evicted; /* always-valid bo_vas whose buffer must be validated first */
	struct emu_bo_va *prt_va;
	struct emu_resv resv;    /* of the root page directory and all always-valid buffers */
	struct emu_entity entity; /* page-table jobs, in order */
	uint64_t jobs_pushed, jobs_run; /* of the entity */
	struct emu_fence *last_job;     /* of the entity */
	/* What submissions wait for: clears, directories and always-valid buffers. */
	struct emu_fence *last_update;
	uint64_t used_at; /* by a submission, on emu_memory.clock: for choosing what is evicted */
	struct emu_page_table *root;
	struct emu_list relocated;   /* tables that no directory entry names yet */
	struct emu_list tables_freed; /* that go when the jobs pushed so far are done */
	uint64_t page_table_bytes;
	uint64_t tellings; /* fdinfo was asked so often */
	struct emu_tlb *tlb; /* inject=: engines see this; NULL: they see the page tables */
};

/* vm.c */
int emu_vm_create(struct emu_file *file, struct emu_vm **ret);
/* Forget all mappings and page tables; jobs that still use it must be done. */
void emu_vm_destroy(struct emu_vm *vm);
int emu_bo_va_create(struct emu_vm *vm, struct emu_bo *bo, struct emu_bo_va **ret);
struct emu_bo_va *emu_bo_va_find(const struct emu_vm *vm, const struct emu_bo *bo); /* NULL: none */
/* As GEM_CLOSE of the last handle: mappings go to freed, and are cleared as the kernel does. */
void emu_bo_va_destroy(struct emu_bo_va *bo_va);
/* The buffer moved to another place, or out of VRAM: its entries must be written again. */
void emu_vm_bo_invalidate(struct emu_bo *bo, bool evicted);

/* The VM's part of a submission, in the kernel's order: clear_freed, prt_va, listed buffers'
 * updates, moved ones, directories. Listed buffers are validated by the caller before. Adds to the
 * job what it must wait for. 0, or -ENOMEM. */
struct emu_job;
int emu_vm_submit(struct emu_vm *vm, struct emu_bo_va **listed, uint32_t n, struct emu_job *job);
/* Validate the always-valid buffers that were evicted. */
int emu_vm_validate(struct emu_vm *vm, uint64_t *budget_bytes);

/* page_table.c: what the hardware sees. */
struct emu_walk {
	uint64_t entry; /* 0: none */
	uint64_t address, bytes; /* the range that this entry covers */
	uint64_t physical;       /* of `address` */
};
void emu_page_table_walk(struct emu_vm *vm, uint64_t address, struct emu_walk *ret);
/* Where an access of at most ret->bytes at a GPU address goes: ret->bytes becomes what lies in one
 * piece. 0, or -EFAULT after recording a fault on the file (INFO GPUVM_FAULT, counts, error text).
 * ret->memory is NULL (and 0 returned) where reads give zeros and writes are dropped: PRT, and freed
 * memory (counted). */
int emu_vm_access(struct emu_vm *vm, uint64_t address, bool write, struct emu_piece *ret);

/* One piece of a page-table job's work: `count` entries of one table, from `first` on, the nth of
 * which becomes value + n * step. With a child, the one entry is a directory entry that names it.
 */
struct emu_pte_write {
	struct emu_page_table *table, *child;
	uint32_t first, count;
	uint64_t value, step;
};
/* What a page-table job does when it runs; counts it, and must be called for each, also with n = 0.
 * 0, or the error for its fence: -ENOMEM if the identity window couldn't follow. */
int emu_page_table_write(struct emu_vm *vm, const struct emu_pte_write *writes, uint32_t n);

/* identity.c: with identity=1, a part of the process's own address space in which the mappings of
 * one VM, the first that maps something there, appear at their GPU addresses. Others can't map
 * there. */
int emu_identity_init(struct emu_gpu *gpu); /* no window without identity=1. 0 or -ENOMEM */
void emu_identity_fini(struct emu_gpu *gpu);

#endif
