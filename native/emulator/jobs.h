/* SPDX-License-Identifier: MIT
 *
 * Fences, the card's thread that runs jobs, contexts, submissions and syncobjs.
 *
 * What a job does that a card can't: an access that faults (no valid entry, or a write to a read-only one)
 * or a packet that isn't emulated. Nothing of the piece at fault is written, the rest of the job isn't run,
 * and the job counts as one that hung and that the driver got rid of by a reset of its queue:
 * - its fence has an error, -ECANCELED after a fault and -EINVAL for a packet, which WAIT_CS returns;
 * - its context is guilty: QUERY_STATE2 says RESET and GUILTY, its other jobs are cancelled, and CS on it
 *   returns -ECANCELED, for ever;
 * - to all other contexts there was a reset (RESET without GUILTY), which harmed nothing of theirs. No
 *   memory is lost.
 * Jobs that waited for it run; also the kernel doesn't hand errors on.
 * A job whose packet waits for memory lets others run meanwhile; after 10 s (EMU_HANG_NS) it counts as
 * hung, too.
 */
#ifndef EMU_JOBS_H
#define EMU_JOBS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- fences ------------------------------------------------------------------------------------ */

/* What keeps a fence from being signalled: another one that isn't yet. */
struct emu_fence_part {
	struct emu_list link; /* in `waiting` of the other; in no list: it is signalled */
	struct emu_fence *whole;
};

struct emu_fence {
	struct emu_gpu *gpu;
	uint32_t references;
	bool signalled, counted;
	int error;            /* negative errno of the job; 0: fine */
	struct emu_vm *owner; /* whose submission or page-table job it is; NULL: the kernel's own */
	uint64_t number;      /* on its context and ring; what CS returned */
	struct emu_list waiting; /* emu_fence_part.link of fences made of this one */
	struct emu_fence_part parts[2];
	uint32_t parts_left;
	struct emu_list link; /* among spares, or about to be signalled */
};

/* The fence of what is done already. Not counted, and without a reference to give back (but one may). */
struct emu_fence *emu_fence_signalled(struct emu_gpu *gpu);
/* Make `whole`, that is new, a fence that is signalled when both others are. */
void emu_fence_join(struct emu_fence *whole, struct emu_fence *a, struct emu_fence *b);
int emu_fence_create(struct emu_gpu *gpu, struct emu_vm *owner, struct emu_fence **ret);
void emu_fence_get(struct emu_fence *fence); /* NULL does nothing, in both */
void emu_fence_put(struct emu_fence *fence);
void emu_fence_signal(struct emu_fence *fence, int error);
/* Wait with gpu->lock held (given up while waiting) until signalled; deadline_ns is CLOCK_MONOTONIC,
 * INT64_MAX for ever. 0 or -ETIME. */
int emu_fence_wait(struct emu_fence *fence, int64_t deadline_ns);

/* ---- reservations: which fences are at work on a buffer or a VM --------------------------------- */

enum emu_usage {
	EMU_USAGE_KERNEL,   /* moves and clears: everyone waits for them */
	EMU_USAGE_WRITE,    /* submissions */
	EMU_USAGE_BOOKKEEP, /* page-table updates: no implicit sync */
};

struct emu_resv {
	struct emu_resv_fence *fences; /* pruned of signalled ones as it grows */
	uint32_t count, room;
};
struct emu_resv_fence {
	struct emu_fence *fence;
	enum emu_usage usage;
};

int emu_resv_add(struct emu_resv *resv, struct emu_fence *fence, enum emu_usage usage);
bool emu_resv_is_idle(struct emu_resv *resv, enum emu_usage up_to);
int emu_resv_wait(struct emu_resv *resv, enum emu_usage up_to, int64_t deadline_ns);
void emu_resv_fini(struct emu_resv *resv);

/* ---- jobs -------------------------------------------------------------------------------------- */

/* A queue of jobs that run in order: one per context and ring, one per VM, one of the kernel's. */
struct emu_entity {
	struct emu_list jobs; /* the first one may be running */
	struct emu_list link; /* in emu_jobs.entities as long as there are jobs */
};

enum emu_job_kind {
	EMU_JOB_IBS,   /* runs the packets of ibs, without gpu->lock */
	EMU_JOB_PTES,  /* emu_page_table_write, after options.pte_us */
	EMU_JOB_CLEAR, /* emu_bo_clear */
	EMU_JOB_MOVE   /* nothing: storage stays, so it takes part in ordering only */
};

struct emu_ib {
	uint64_t address;
	uint32_t dwords;
	uint32_t ip, flags;
};

/* How deep IBs may call one another. */
#define EMU_STREAMS 3

/* cs_chunks.c: of one submission to a ring, at most. */
uint32_t emu_ibs_most(uint32_t ip);

/* A place in an IB. */
struct emu_stream {
	uint64_t address;
	uint32_t left; /* dwords from there to its end */
};

struct emu_job {
	enum emu_job_kind kind;
	struct emu_list link;
	struct emu_entity *entity;
	uint64_t order; /* of all jobs of the card, as they were pushed */
	struct emu_fence **waits; /* references */
	uint32_t wait_count, wait_room;
	struct emu_fence *done;
	struct emu_vm *vm; /* IBS, PTES */
	struct emu_context *context; /* IBS: a reference */
	struct emu_ib *ibs;
	uint32_t ib_count;
	/* IBS: the IB in which it is, and where; deeper ones come later. None: that one begins. */
	uint32_t ib_at, stream_count;
	struct emu_stream streams[EMU_STREAMS];
	uint32_t jumps; /* from IB to IB */
	bool begun;
	bool polls;              /* it waits for memory to become what a packet says ... */
	uint64_t polls_since_ns; /* ... since then; 0: it doesn't */
	struct emu_bo *user_fence_bo; /* IBS: a reference; gets done->number, unless the job fails; or NULL */
	uint32_t user_fence_offset;
	struct emu_pte_write *writes;
	uint32_t write_count, write_room;
	struct emu_bo *bo; /* CLEAR, MOVE: who makes the job keeps it alive until `done` is signalled */
};

struct emu_jobs {
	pthread_t thread;
	bool started, ending, paused, running;
	uint32_t polling; /* jobs that wait for memory, and aren't tried again before another one has run */
	uint32_t *registers; /* pm4_registers.c's; NULL: all are zero */
	uint32_t draining; /* somebody waits for a queue to end: pausing doesn't count then */
	struct emu_list entities; /* with jobs */
	struct emu_entity kernel; /* clears and moves */
	uint64_t random, pushed;
	uint64_t fence_count; /* that exist */
	struct emu_fence signalled;
	uint64_t reset_count; /* see above */
	struct emu_list exports; /* struct emu_export: export.c */
	uint32_t export_count;
	struct emu_list eventfds; /* struct emu_eventfd: that wait for a fence */
	struct emu_list waits;    /* syncobj_wait.c's: of calls that wait */
	struct emu_context *pstate_holder; /* who set the clocks; NULL: nobody */
	uint32_t pstate;
};

int emu_jobs_init(struct emu_gpu *gpu); /* starts the thread */
void emu_jobs_fini(struct emu_gpu *gpu); /* runs what is queued; no file is left */
void emu_entity_init(struct emu_entity *entity);
/* Waits until its jobs are done. */
void emu_entity_fini(struct emu_gpu *gpu, struct emu_entity *entity);
/* Make a job with its fence `done`; what a job waits for can then be added. */
int emu_job_create(struct emu_gpu *gpu, enum emu_job_kind kind, struct emu_vm *owner,
                   struct emu_job **ret);
int emu_job_wait_for(struct emu_job *job, struct emu_fence *fence); /* NULL or signalled: nothing */
int emu_job_wait_for_resv(struct emu_job *job, struct emu_resv *resv, enum emu_usage up_to,
                          const struct emu_vm *not_of, const struct emu_vm *only_of);
/* Give it up to the thread, which frees it (its `writes` and `ibs` too). */
void emu_job_push(struct emu_job *job, struct emu_entity *entity);
/* One that isn't pushed: its fence is signalled with -ECANCELED, unless it is signalled already. */
void emu_job_destroy(struct emu_job *job);

/* ---- contexts, lists, syncobjs ------------------------------------------------------------------- */

#define EMU_RINGS 8
#define EMU_CONTEXTS 4095 /* of a file, at most */
/* Jobs in flight on a ring, at most: one more waits within CS, as with amdgpu.sched_jobs of that value.
 * Older fences count as signalled. */
#define EMU_CONTEXT_FENCES 1024

struct emu_ring {
	struct emu_entity entity;
	uint64_t next; /* the number that the next submission gets, from 1 */
	struct emu_fence *fences[EMU_CONTEXT_FENCES]; /* by number modulo */
};

struct emu_context {
	struct emu_file *file;
	uint32_t references; /* the file's, calls at work and jobs */
	int32_t priority, override; /* both for show: no job overtakes another for it */
	bool guilty;
	struct emu_ring *rings[AMDGPU_HW_IP_NUM][EMU_RINGS]; /* made at first use */
	uint64_t reset_count; /* of the card, when it was made ... */
	uint64_t reset_seen;  /* ... and at the last QUERY_STATE */
	uint64_t vram_lost_count;
};

/* context.c. find takes no reference. */
struct emu_context *emu_context_find(struct emu_file *file, uint32_t id);
void emu_context_get(struct emu_context *context);
void emu_context_put(struct emu_context *context);
/* The ring that a submission or fence names. -EINVAL: there is none; -ENOMEM. */
int emu_context_ring(struct emu_context *context, uint32_t ip, uint32_t instance, uint32_t ring,
                     struct emu_ring **ret);
/* *ret is a reference, NULL if it was signalled long ago. UINT64_MAX: the last. -EINVAL: not submitted. */
int emu_ring_fence(const struct emu_ring *ring, uint64_t number, struct emu_fence **ret);

struct emu_bo_list {
	uint32_t references;
	uint32_t count;
	struct emu_bo_list_item {
		struct emu_bo *bo; /* a reference */
		uint32_t priority;
	} *items;
};

/* bo_list.c: from what BO_LIST or a BO_HANDLES chunk holds. */
int emu_bo_list_create(struct emu_file *file, const struct drm_amdgpu_bo_list_in *in,
                       struct emu_bo_list **ret);
void emu_bo_list_put(struct emu_bo_list *list); /* NULL does nothing */

/* A timeline's fences are made of the point's own and all before it. */
struct emu_syncobj {
	struct emu_gpu *gpu;
	uint32_t references; /* handles, exports and calls at work */
	struct emu_fence *fence; /* the last submitted; NULL: none */
	bool is_timeline;
	uint64_t submitted; /* the last point */
	uint64_t reached;   /* the greatest point known to be reached */
	struct emu_point {
		uint64_t point;
		struct emu_fence *fence;
	} *points; /* in order, those that aren't reached, or not known to be */
	uint32_t point_count, point_room;
	struct emu_list spares; /* fences, for points to come */
	struct emu_list eventfds; /* struct emu_eventfd: that wait for a submission */
	uint32_t spare_count;
};

/* syncobj.c; find takes no reference. fence: -EINVAL if none is submitted (wait for submit is the
 * caller's); *ret is a reference, NULL if the point is long reached. */
int emu_syncobj_new(struct emu_gpu *gpu, struct emu_fence *fence, struct emu_syncobj **ret);
struct emu_syncobj *emu_syncobj_find(struct emu_file *file, uint32_t handle);
void emu_syncobj_get(struct emu_syncobj *syncobj);
void emu_syncobj_put(struct emu_syncobj *syncobj); /* NULL does nothing */
int emu_syncobj_fence(struct emu_syncobj *syncobj, uint64_t point, struct emu_fence **ret);
/* The same by handle, waiting with DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT for at most 5 s, as the kernel.
 * *ret is never NULL. -ENOENT, -EINVAL, -ETIME. */
int emu_syncobj_find_fence(struct emu_file *file, uint32_t handle, uint64_t point, uint64_t flags,
                           struct emu_fence **ret);
void emu_syncobj_replace(struct emu_syncobj *syncobj, struct emu_fence *fence); /* binary; or NULL */
/* Make room first, so that adding a point (n points) after a submission can't fail. */
int emu_syncobj_reserve(struct emu_syncobj *syncobj);
int emu_syncobj_reserve_points(struct emu_syncobj *syncobj, uint32_t n);
void emu_syncobj_add_point(struct emu_syncobj *syncobj, uint64_t point, struct emu_fence *fence);
/* The greatest point that is reached; 0 for a binary one. */
uint64_t emu_syncobj_reached(struct emu_syncobj *syncobj);

/* syncobj_wait.c: it has another fence, which those who wait for it get. */
void emu_waits_submitted(const struct emu_syncobj *syncobj);

/* ---- syncobj_eventfd.c ---------------------------------------------------------------------------- */

void emu_eventfds_submitted(struct emu_syncobj *syncobj); /* it has another fence */
void emu_eventfds_signal(struct emu_gpu *gpu, const struct emu_fence *fence); /* it is signalled now */
void emu_eventfds_drop(struct emu_list *list);

/* ---- descriptors --------------------------------------------------------------------------------- */

/* export.c: syncobjs and fences (sync files) as descriptors of pipes, told apart by their inode; the pipe
 * of a signalled fence has something to read. An export ends when the last duplicate of its descriptor is
 * closed, which is noticed by the next call that makes, reads or ends one. */
int emu_export_syncobj(struct emu_syncobj *syncobj, int *fd);
int emu_export_fence(struct emu_fence *fence, int *fd);
/* NULL: not one of this card. Both take a reference for the caller. */
struct emu_syncobj *emu_import_syncobj(struct emu_gpu *gpu, int fd);
struct emu_fence *emu_import_fence(struct emu_gpu *gpu, int fd);
void emu_exports_signal(struct emu_gpu *gpu, struct emu_fence *fence); /* it is signalled now */
void emu_exports_sweep(struct emu_gpu *gpu);
void emu_exports_fini(struct emu_gpu *gpu);

/* ---- what runs ------------------------------------------------------------------------------------ */

/* How long a job may wait for memory before the driver takes it for hung, and a submission for a fence
 * that nobody has submitted. A fuzzer has less patience. */
#ifndef EMU_HANG_NS
#define EMU_HANG_NS 10000000000ULL
#define EMU_SUBMIT_NS 5000000000LL
#endif

/* Run a job's IB from where it is. 0, or the negative errno that its fence gets; -EAGAIN: it waits for
 * memory, and is to be run again later. Called without gpu->lock, which they take for each address that
 * they look up. sdma.c: HW_IP_DMA. pm4.c: GFX and COMPUTE. */
int emu_sdma_run(struct emu_gpu *gpu, struct emu_job *job);
int emu_pm4_run(struct emu_gpu *gpu, struct emu_job *job);
/* gpu_atomic.c: whole words, as other processors see them. bytes: 4 or 8, and the address is a multiple
 * of it. 0 or -EFAULT. */
int emu_gpu_load(struct emu_vm *vm, uint64_t address, uint32_t bytes, uint64_t *ret);
/* The width of an operation (TC_OP_ATOMIC_*), 4 or 8; 0: it isn't emulated. */
uint32_t emu_atomic_bytes(uint32_t operation);
/* Only the compare-and-swap operations look at compare. *old is what was there. */
int emu_gpu_atomic(struct emu_vm *vm, uint64_t address, uint32_t operation, uint64_t source,
                   uint64_t compare, uint64_t *old);
/* Whether an operation with COMMAND 1 is to be tried again. */
bool emu_atomic_failed(uint32_t operation, uint64_t compare, uint64_t old);
/* What packets that wait compare: 0 always, then <, <=, ==, !=, >=, >. */
bool emu_wait_is_over(uint32_t function, uint32_t value, uint32_t reference);
uint64_t emu_gpu_clock(const struct emu_gpu *gpu); /* as packets and INFO TIMESTAMP read it */
/* gpu_memory.c: what is behind a GPU address, as far as it goes on in one piece. */
struct emu_piece {
	uint8_t *memory; /* NULL: reads give zeros, writes are dropped */
	uint64_t bytes;  /* no more than asked for */
	bool foreign;    /* a process's own (USERPTR), which it may have unmapped ... */
	pid_t process;   /* ... this one's */
};
int emu_piece_find(struct emu_vm *vm, uint64_t address, bool write, uint64_t bytes,
                   struct emu_piece *ret);
int emu_piece_read(const struct emu_piece *piece, void *to, uint64_t bytes);
int emu_piece_write(const struct emu_piece *piece, const void *from, uint64_t bytes);
/* Between the process's memory and GPU addresses, or among those; without gpu->lock. 0, or
 * -EFAULT at the first piece that faults. Copies go forward. */
int emu_gpu_read(struct emu_vm *vm, void *to, uint64_t from, uint64_t bytes);
int emu_gpu_write(struct emu_vm *vm, uint64_t to, const void *from, uint64_t bytes);
int emu_gpu_copy(struct emu_vm *vm, uint64_t to, uint64_t from, uint64_t bytes);
int emu_gpu_fill(struct emu_vm *vm, uint64_t to, uint32_t pattern, uint64_t bytes);

#endif
