/* SPDX-License-Identifier: MIT
 *
 * Heaps, storage and buffer objects.
 *
 * A buffer has two places. Its *storage* is a range of the card's memory file and holds its bytes,
 * for as long as the buffer lives: what a process mmaps. Its *blocks* are where it lies in a heap,
 * which page-table entries name and which change when it is evicted. So moving a buffer costs no
 * copy, and a process's mapping of it stays right, as the kernel's does by faulting it in anew.
 */
#ifndef EMU_MEMORY_H
#define EMU_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define EMU_ONCHIP 3 /* GDS, GWS, OA */

enum emu_heap_kind { EMU_HEAP_NONE = -1, EMU_HEAP_VRAM = 0, EMU_HEAP_GTT = 1, EMU_HEAPS = 2 };

/* A buddy allocator of 4 KiB pages over a range of any size. */
struct emu_buddy;

struct emu_block {
	uint64_t page;  /* first page within the heap */
	uint64_t pages; /* a power of two */
	uint64_t first; /* which of the buffer's pages it begins with */
};

struct emu_heap {
	struct emu_buddy *buddy;
	uint64_t bytes, used_bytes;
	uint64_t base; /* physical address of its first byte: VRAM 0, GTT after it */
};

struct emu_memory {
	int fd;             /* the memory file: what DRM descriptors refer to */
	uint8_t *view;      /* all of it, mapped once; the kernel's own view */
	uint64_t view_bytes;
	struct emu_storage *storage; /* storage.c's: which ranges of the file are free */
	struct emu_left *left;       /* storage_mapped.c's: of buffers that are gone */
	struct emu_heap heaps[EMU_HEAPS];
	struct emu_list lru[EMU_HEAPS]; /* evictable buffers, oldest use first: emu_bo.lru */
	uint64_t pinned_bytes; /* of VRAM, what the kernel keeps there for ever; no page tables */
	uint64_t page_table_bytes;
	uint64_t buffer_count;
	uint64_t onchip_used[EMU_ONCHIP]; /* GDS in bytes, GWS, OA */
	uint64_t clock;                   /* counts uses: emu_bo.used_at */
	/* The submission that is being prepared: what it validated isn't evicted. */
	struct emu_vm *submitting;
	uint64_t submission_began; /* on the clock */
	struct emu_list handovers; /* places where old buffers are still at work, oldest first */
	struct emu_fence *emptied[EMU_HEAPS]; /* the last move out of the heap, or NULL */
	struct emu_list dying;     /* buffers without references that aren't idle yet */
	bool storage_was_short;    /* since emu_memory_wait_for_dying looked */
	struct emu_list dmabufs;   /* prime.c's */
	struct emu_ids names;      /* FLINK */
};

struct emu_bo {
	struct emu_gpu *gpu;
	uint32_t references;
	uint64_t bytes; /* whole pages */
	uint64_t alignment;
	uint64_t storage; /* offset in the memory file */
	uint32_t preferred_domains, allowed_domains; /* AMDGPU_GEM_DOMAIN_* */
	uint64_t flags;                              /* AMDGPU_GEM_CREATE_* */
	enum emu_heap_kind heap;
	struct emu_block *blocks; /* in order of the buffer's pages */
	uint32_t block_count;
	uint32_t pins; /* never evicted */
	struct emu_list lru;
	uint64_t used_at; /* on emu_memory.clock */
	struct emu_list dying; /* in emu_memory.dying: no reference is left */
	uint64_t onchip;       /* in units of its only domain, which is GDS, GWS or OA */
	bool is_table;         /* a page table */
	bool offset_told;      /* by GEM_MMAP: a process may have it mapped */
	bool spilled;          /* inject=silent-gtt: asked for in VRAM, made in GTT */
	bool clear_due;        /* DISCARDABLE, evicted: the clear job is to zero it */
	struct emu_list bo_vas; /* emu_bo_va.bo_link: all VMs that have it */
	/* VM_ALWAYS_VALID: the VM whose reservation it shares; NULL otherwise. Gone with the VM. */
	struct emu_vm *owner;
	struct emu_resv resv; /* what is still at work on it; unused if it has an owner */
	uint32_t handle_count; /* in all files */
	struct emu_fence *moving; /* a move or clear under way, or NULL */
	uint64_t metadata_flags, tiling_info;
	uint32_t metadata_bytes;
	uint8_t metadata[256];
	uint32_t name;       /* FLINK, 0: none */
	struct emu_dmabuf *dmabuf; /* NULL: none */
	void *user_pointer;  /* USERPTR: a process's own memory is its storage ... */
	pid_t user_process;  /* ... this one's */
	bool user_readonly;  /* USERPTR: entries aren't writable, whatever the mapping says */
	bool user_anonymous; /* USERPTR: refused if a file is mapped there */
};

struct emu_handle {
	struct emu_bo *bo;
	struct emu_bo_va *bo_va; /* in the file's VM; the first handle makes it */
	bool prime; /* what importing the buffer's dma-buf gives again, uncounted */
};

/* memory.c: heaps and storage */
int emu_memory_init(struct emu_gpu *gpu);
void emu_memory_fini(struct emu_gpu *gpu); /* pre: no buffer is left */
/* The kernel's pointer to the storage byte behind a physical address, and how many bytes from there
 * on lie in one piece (at most `bytes`); NULL if nobody has that memory (any more). *bo (may be
 * NULL): whose it is. */
uint8_t *emu_memory_at(struct emu_gpu *gpu, uint64_t physical, uint64_t *bytes, struct emu_bo **bo);
uint64_t emu_memory_usable(struct emu_gpu *gpu, enum emu_heap_kind heap); /* INFO MEMORY */
/* Free what waited for fences that are signalled by now. Cheap if there is nothing; called after
 * each job and before anybody looks at the heaps. */
void emu_memory_sweep(struct emu_gpu *gpu);
/* Around a submission's validation and page-table updates: what it needs isn't evicted for it, and
 * the VM's always-valid buffers count as used. */
void emu_memory_submission_begin(struct emu_gpu *gpu, struct emu_vm *vm);
void emu_memory_submission_end(struct emu_gpu *gpu);

struct emu_bo_request {
	uint64_t bytes, alignment, flags;
	uint32_t domains;
	struct emu_vm *owner; /* for VM_ALWAYS_VALID; if pinned: whose page table it is */
	bool pinned;          /* a page table: it has a place in VRAM, but no storage */
	void *user_pointer;   /* USERPTR: storage that is the process's; NULL: none */
};

/* bo.c: with the kernel's fallbacks and evictions; checks arguments as amdgpu_gem_create_ioctl
 * does. Never waits. Clearing is a job whose fence is bo->moving. */
int emu_bo_create(struct emu_gpu *gpu, const struct emu_bo_request *request, struct emu_bo **ret);
void emu_bo_get(struct emu_bo *bo);
void emu_bo_put(struct emu_bo *bo); /* the last frees it once its resv is idle; NULL: nothing */
/* The physical address of a byte of it, and how many bytes from there on are contiguous in its
 * block (VRAM) or run (GTT). */
uint64_t emu_bo_physical(const struct emu_bo *bo, uint64_t offset, uint64_t *run_bytes);
/* Make it resident where it should be, within what moves a submission is allowed (budget_bytes,
 * lowered by what was moved; NULL: no bound). Evicts others. Puts it last in its LRU. 0, or
 * -ENOMEM. */
int emu_bo_validate(struct emu_bo *bo, uint64_t *budget_bytes);
uint32_t emu_bo_told_domains(const struct emu_bo *bo); /* those that it prefers, as is told */
struct emu_resv *emu_bo_resv(struct emu_bo *bo); /* its own, or its owner's */
/* What a CLEAR job does when it runs. New storage is zero from the start (a process may write to it
 * before the job has run); the job keeps the order that the kernel's has. */
void emu_bo_clear(struct emu_bo *bo);

/* handle.c; find returns NULL if there is none; neither takes a reference. */
struct emu_handle *emu_handle_find(struct emu_file *file, uint32_t handle);
/* Takes the reference of bo over, also if it fails. -EPERM: it is always valid in another VM. */
int emu_handle_create(struct emu_file *file, struct emu_bo *bo, uint32_t *handle);

#endif
