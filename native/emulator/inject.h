/* SPDX-License-Identifier: MIT
 *
 * Faults on demand (inject=): the emulated card misbehaves as real ones were reported to. What each fault
 * does is told in vmkv_emulator.h. Without any, nothing here runs: a card's options say so in one word,
 * and its VMs have no TLB.
 *
 * All but parsing is called with gpu->lock held.
 */
#ifndef EMU_INJECT_H
#define EMU_INJECT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct emu_options;
struct emu_identity_run;
struct emu_job;
struct emu_bo_request;
struct emu_walk;

#define EMU_INJECT_STALE_TRANSLATION (1u << 0)
#define EMU_INJECT_LATE_VISIBILITY (1u << 1)
#define EMU_INJECT_ALIAS_DIVERGES (1u << 2)
#define EMU_INJECT_VRAM_STOLEN (1u << 3)
#define EMU_INJECT_SILENT_GTT (1u << 4)
#define EMU_INJECT_UNMAP_IGNORED (1u << 5)
#define EMU_INJECT_TIMELINE_IGNORED (1u << 6)
#define EMU_INJECT_DEVICE_LOST (1u << 7)
#define EMU_INJECT_TRANSIENT_ENOMEM (1u << 8)
/* Those in which engines see something else than what page tables say. */
#define EMU_INJECT_TRANSLATIONS                                                                    \
	(EMU_INJECT_STALE_TRANSLATION | EMU_INJECT_LATE_VISIBILITY | EMU_INJECT_ALIAS_DIVERGES |   \
	 EMU_INJECT_UNMAP_IGNORED)

#define EMU_INJECT_IOCTLS 16

/* What a spec says. */
struct emu_inject_options {
	uint32_t faults; /* EMU_INJECT_* */
	double late_us;
	uint64_t stolen_at, lost_at; /* the number of the submission, from 1 */
	uint64_t spill_every;        /* of VRAM buffers */
	uint64_t enomem_every;       /* of CS and GEM_VA calls */
	struct emu_inject_ioctl {
		uint32_t index; /* emu_ioctl_index */
		uint64_t n;
		int error; /* a positive errno */
	} ioctls[EMU_INJECT_IOCTLS];
	uint32_t ioctl_count;
};

/* A card's state. */
struct emu_inject {
	uint64_t submissions;  /* that began to run */
	uint64_t vram_creates; /* of buffers that might be spilled */
	uint64_t calls;        /* of CS and GEM_VA that might fail */
	uint64_t calls_fail_until_ns;
	uint64_t lost_order; /* jobs pushed up to here were on their way when the card was lost */
	struct emu_bo **stolen; /* what the other process has */
	uint32_t stolen_count;
	/* Late visibility in the identity window: inject_late.c. */
	struct emu_list late; /* struct late, the next that is due first */
	pthread_t thread;
	pthread_cond_t late_changed;
	bool thread_started, thread_ending;
};

/* inject.c: list is what inject= says (NULL: nothing), the rest of the options are known. 0, or -EINVAL
 * with one line in error. */
int emu_inject_parse(const char *list, struct emu_options *options, char *error, size_t n);

/* ---- inject_events.c ------------------------------------------------------------------------- */

int emu_inject_init(struct emu_gpu *gpu); /* 0 or -ENOMEM */
void emu_inject_fini(struct emu_gpu *gpu); /* pre: no file and no job is left, the heaps are */
/* An ioctl begins. 0, or the negative errno with which it fails. */
int emu_inject_call(struct emu_gpu *gpu, bool is_cs_or_va);
/* A submission is about to run. 0, or the error that its fence gets. */
int emu_inject_run(struct emu_gpu *gpu, struct emu_job *job);
/* Whether a buffer that is being made goes to GTT, although it asks for VRAM. */
bool emu_inject_spills(struct emu_gpu *gpu, const struct emu_bo_request *request);

/* ---- inject_tlb.c: what engines, and the identity window, see of page tables -------------------- */

struct emu_tlb;

/* Where the bytes behind an entry are; anything less is an offset in the memory file. */
#define EMU_BACKED_BY_NOTHING UINT64_MAX    /* reads give zeros, writes are lost */
#define EMU_BACKED_AS_SAID (UINT64_MAX - 1) /* by the entry */

bool emu_tlb_is_needed(const struct emu_gpu *gpu);
int emu_tlb_create(struct emu_vm *vm); /* 0 or -ENOMEM */
void emu_tlb_destroy(struct emu_vm *vm); /* NULL as its TLB does nothing */
/* Page tables now say `entry` of these addresses, the physical address going on. Shows the window what
 * is seen there instead. */
void emu_tlb_set(struct emu_identity_run *run, uint64_t address, uint64_t bytes, uint64_t entry);
/* What is seen of an address: `walk`, which has what page tables say, becomes it, and *backing where its
 * bytes are. */
void emu_tlb_look(struct emu_vm *vm, uint64_t address, struct emu_walk *walk, uint64_t *backing);
/* Show the window pages of [begin, end) that are due by then. */
void emu_tlb_show_late(struct emu_identity_run *run, uint64_t begin, uint64_t end, uint64_t due_ns);

/* ---- inject_late.c --------------------------------------------------------------------------- */

int emu_late_init(struct emu_gpu *gpu); /* 0 or -ENOMEM */
void emu_late_fini(struct emu_gpu *gpu);
/* When, before the GPU sees a new mapping, the window shows it: so that who waits as long as the GPU needs
 * finds it there. */
uint64_t emu_late_ahead_ns(const struct emu_gpu *gpu);
/* A page of the window is to be shown at that time. 0 or -ENOMEM. */
int emu_late_add(struct emu_vm *vm, uint64_t address, uint64_t due_ns);
void emu_late_show(struct emu_gpu *gpu); /* what is due */
void emu_late_forget(struct emu_vm *vm);

#endif
