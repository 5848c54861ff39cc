/* SPDX-License-Identifier: MIT
 *
 * What the parts of the emulated kernel share. One lock per card (gpu->lock) protects everything
 * that belongs to it; functions named *_locked, and all those of memory.h, vm.h and jobs.h unless
 * they say otherwise, are called with it held. Ioctl handlers are called without it, take it, and
 * return 0 (or a positive result) or a negative errno, as the kernel's do.
 *
 * Names follow the kernel's (bo, bo_va, vm, resv, entity, fence), so that who knows it finds his
 * way.
 */
#ifndef EMU_H
#define EMU_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "abi/amdgpu.h"
#include "abi/drm.h"
#include "vmkv_emulator.h"

#define EMU_PAGE_BYTES 4096ULL
#define EMU_PAGE_SHIFT 12
#define EMU_HUGE_PAGES 512ULL /* of 4 KiB in what one PDE0 covers */
#define EMU_ADDRESS_BITS 48
#define EMU_HOLE_BEGIN 0x800000000000ULL /* from here ... */
#define EMU_HOLE_END 0xffff800000000000ULL /* ... to here are no addresses */

struct emu_gpu;
struct emu_file;
struct emu_bo;
struct emu_vm;
struct emu_fence;

/* ---- lists: intrusive, doubly linked, circular ----------------------------------------------- */

struct emu_list {
	struct emu_list *previous, *next;
};

void emu_list_init(struct emu_list *list);
bool emu_list_is_empty(const struct emu_list *list);
void emu_list_append(struct emu_list *list, struct emu_list *item);
/* The item is a list of its own afterwards, so taking it out twice is harmless. */
void emu_list_remove(struct emu_list *item);
/* Append all items of `from`, which is empty afterwards. */
void emu_list_splice(struct emu_list *list, struct emu_list *from);

#define EMU_ENTRY(item, type, member) ((type *)((char *)(item) - offsetof(type, member)))
#define EMU_FOR_EACH(position, list)                                                              \
	for (struct emu_list *position = (list)->next, *position##_next = position->next;         \
	     position != (list); position = position##_next, position##_next = position->next)

/* ---- ids: handles, syncobjs, contexts, lists ------------------------------------------------- */

/* Small numbers from 1, the lowest free one first, as the kernel's idr. */
struct emu_ids {
	void **items;
	uint32_t size, used, lowest;
};

int emu_ids_add(struct emu_ids *ids, void *item, uint32_t *id); /* -ENOMEM */
void *emu_ids_find(const struct emu_ids *ids, uint32_t id);     /* NULL: none */
void *emu_ids_remove(struct emu_ids *ids, uint32_t id);         /* NULL: none */
/* The first item with a number of at least *id (which is set to it), or NULL: for walking
 * through. */
void *emu_ids_next(const struct emu_ids *ids, uint32_t *id);
void emu_ids_fini(struct emu_ids *ids);

/* ---- numbers that look like random ones ------------------------------------------------------- */

/* The nth of splitmix64 is that of n times its step. */
#define EMU_MIX_STEP 0x9e3779b97f4a7c15

static inline uint64_t emu_mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

/* ---- kernels and cards are data -------------------------------------------------------------- */

/* Whose fdinfo a kernel has. */
enum emu_fdinfo_kind { EMU_FDINFO_6_1, EMU_FDINFO_6_12, EMU_FDINFO_7_2 };

struct emu_kernel {
	const char *name;       /* "6.12" */
	const char *date;       /* what VERSION says */
	uint32_t drm_minor;     /* 49, 61, 64 */
	uint64_t va_bottom;     /* lowest address that GEM_VA takes */
	uint64_t va_top_bytes;  /* what is kept at the top of the 48 bits */
	uint32_t gem_va_bytes;  /* 40 or 64 */
	uint32_t dev_info_bytes, hw_ip_bytes, gem_op_bytes;
	uint32_t syncobj_handle_bytes, syncobj_wait_bytes, syncobj_timeline_wait_bytes;
	uint32_t hw_ip_types;   /* that INFO knows */
	uint64_t create_flags;  /* that GEM_CREATE accepts */
	enum emu_fdinfo_kind fdinfo;
	bool always_clears;     /* new VRAM is zeroed with or without VRAM_CLEARED */
	bool has_timeline;      /* GEM_VA takes syncobjs */
	bool has_fault_query;   /* INFO GPUVM_FAULT */
	bool has_max_ibs;       /* INFO MAX_IBS */
	bool has_pcie_info;     /* DEV_INFO tells of the slot */
	bool has_peak_sensors;  /* INFO SENSOR knows the peak clocks */
	bool has_list_handles, has_mapping_info;
	bool checks_va_overflow;
	bool has_eventfd, has_client_name;
	bool has_close_framebuffer;
	int vmid_error;         /* of a second file that reserves a VMID; 0: it may */
	bool has_user_queues;   /* the ioctls, which say that there are none */
	bool has_queue_query;   /* INFO UQ_FW_AREAS */
	bool counts_engines;    /* INFO HW_IP_COUNT */
	bool tells_gangs;       /* in DEV_INFO's flags */
	bool blocks_ce;         /* IBs for the constant engine are refused on every card */
	uint32_t max_ib_dwords; /* 0: no bound */
};

struct emu_firmware {
	uint32_t version, feature;
};

struct emu_model {
	const char *name; /* "gfx1201" */
	uint32_t device_id, revision, family, external_rev, chip_rev;
	uint64_t vram_bytes;
	uint32_t gfx_major, gfx_minor, gfx_revision;    /* of the GC IP */
	uint32_t sdma_major, sdma_minor, sdma_revision; /* of the SDMA IP */
	uint32_t gfx_block_minor, sdma_block_minor; /* of the driver's blocks, as HW_IP_INFO has them */
	uint32_t gfx_rings, compute_rings, sdma_rings; /* that contexts can reach */
	uint32_t sdma_instances;
	uint32_t shader_engines, shader_arrays_per_engine, cus, cus_per_array, wave_size, vgprs;
	uint32_t cu_bitmap[4][4], cu_always_on[4][4], cu_always_on_mask;
	uint32_t rb_mask, rbs;
	uint32_t vram_type, vram_bits;
	uint32_t engine_clock_khz, memory_clock_khz; /* greatest ... */
	uint32_t engine_clock_low_khz, memory_clock_low_khz; /* ... and least */
	uint32_t counter_khz;
	uint32_t gb_addr_config; /* what READ_MMR_REG 0x263e answers */
	uint32_t ids_flags, pcie_gen, pcie_lanes;
	uint32_t ce_ram_bytes, offchip_lds_buffers, tcc_blocks;
	uint32_t gds_bytes, gws, oa;
	/* Caches, from gfx11 on: in KiB but for the last, which is in bytes. */
	uint32_t tcp_kib, sqcs_per_wgp, sqc_data_kib, sqc_code_kib, gl1c_kib, gl2c_kib;
	uint64_t mall_bytes;
	struct emu_firmware me, pfp, mec;
};

const struct emu_kernel *emu_kernel_find(const char *name); /* NULL: none */
const struct emu_model *emu_model_find(const char *name);
void emu_kernel_names(char *text, size_t n); /* "6.1, 6.12, 7.2": for error texts */
void emu_model_names(char *text, size_t n);

#include "inject.h"

struct emu_options {
	const struct emu_model *model;
	const struct emu_kernel *kernel;
	uint64_t vram_bytes, gtt_bytes, window_bytes;
	bool identity, cpu_update;
	bool break_flush_all, break_clean_split, break_ignore_delay;
	uint64_t seed; /* 0: jobs run in the order they came */
	double ioctl_us, pte_us;
	char trace[256]; /* "" : none */
	struct emu_inject_options inject;
};

int emu_options_parse(const char *spec, struct emu_options *options, char *error, size_t n);
bool emu_number_parse(const char *text, uint64_t *ret); /* all of text is a whole number */

/* ---- the card -------------------------------------------------------------------------------- */

#include "jobs.h"
#include "memory.h"
#include "vm.h"

#define EMU_IOCTLS 128 /* at most as many different ioctls */

struct emu_ioctl_count {
	uint64_t calls;
	uint64_t by_operation[8]; /* GEM_VA only */
	uint64_t fail_at;         /* the number of the call that is to fail; 0: none */
	int fail_error;
};

struct emu_gpu {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* a job was queued, a fence signalled, the card resumed or is ending */
	struct emu_options options;
	const struct emu_model *model;
	const struct emu_kernel *kernel;
	struct emu_list link; /* in the process's list of cards */
	uint64_t id;          /* never used twice in a process */
	pid_t process;        /* whose it is: a child of fork has no thread that runs its jobs */
	bool served;          /* its buffers may be mapped in any process */
	bool going;           /* nobody may wait any more for what others would have to submit */
	struct emu_list files;
	struct emu_file *master; /* of the primary node; NULL: nobody */
	uint64_t masters; /* that there have been */
	bool has_unique; /* atomically */
	struct emu_memory memory;
	struct emu_jobs jobs;
	struct emu_inject inject;
	/* Only the counts of events; counts of things are taken from the things. */
	struct vmkv_emulator_stats counts;
	uint64_t refused; /* also without the lock, atomically: not in counts, which are copied whole */
	struct emu_ioctl_count ioctls[EMU_IOCTLS];
	FILE *trace;
	uint64_t window_begin, window_end; /* identity: addresses; equal: none */
	struct emu_vm *vmid_owner;         /* who reserved a VMID; NULL: nobody */
	struct emu_vm *window_vm;          /* whose mappings appear there; NULL: nobody's yet */
	void *window_spares;               /* identity.c's; NULL: the process is at its limit */
	uint32_t window_unmaps;            /* since then */
	uint64_t vram_lost_count;
	char error[256];
};

struct emu_file {
	struct emu_gpu *gpu;
	struct emu_list link;
	uint64_t id; /* never used twice in a process */
	uint32_t references; /* ioctls at work, and 1 while open */
	bool is_open;
	bool primary;
	bool served; /* opened when the card was, for some program */
	bool authenticated, was_master; /* drm_auth.c's, as all up to the name */
	bool magic_is_open;
	uint64_t master_number; /* of its own, or of who was master when it was opened */
	uint32_t magic;
	pid_t opener;
	char *client_name; /* NULL: none */
	bool locked; /* atomically: with its last descriptor a lock goes (files.c) */
	struct emu_ids handles;  /* struct emu_handle */
	uint32_t mapped_handle;  /* that GEM_MMAP was last asked for; 0: none yet */
	struct emu_ids syncobjs; /* struct emu_syncobj */
	struct emu_ids contexts; /* struct emu_context */
	struct emu_ids bo_lists; /* struct emu_bo_list */
	struct emu_vm *vm;
	bool closing; /* its jobs don't wait for memory any more, and what isn't run soon is dropped */
	uint64_t closing_ns; /* since when */
	uint64_t engine_ns[AMDGPU_HW_IP_NUM]; /* that its jobs had */
	/* The last GPU fault: INFO GPUVM_FAULT. */
	uint64_t fault_address;
	uint32_t fault_status, fault_hub;
};

/* Count and describe something unknown: an ioctl, flag, chunk, packet. Returns `error`. With or
 * without gpu->lock, as emu_error_set. */
int emu_refuse(struct emu_gpu *gpu, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Set gpu->error, which only these two may touch. */
void emu_error_set(struct emu_gpu *gpu, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- ioctls ---------------------------------------------------------------------------------- */

/* data is as long as the newest kernel's struct, or longer: filled from the caller's argument, zeros
 * beyond it. What the card's kernel doesn't know of it may hold anything that the caller put there, and
 * is not to be looked at. It is copied back by the dispatcher as far as the caller's reaches, if both
 * directions allow it, also on error. Pointers in it are only followed with emu_copy_*. */
typedef int emu_ioctl_handler(struct emu_file *file, void *data);

/* The process that this thread serves (serve.c), in whose memory an ioctl's pointers are; NULL: this one.
 * The argument itself came with the request, and goes back with the answer. */
struct emu_caller {
	pid_t process;
	bool gone; /* atomically: nobody waits for the answer any more */
	uint64_t argument;
	size_t bytes;
	uint8_t *data;
	bool written;
	/* What is written elsewhere goes into `outputs` while there is room, and with the answer; NULL: to
	 * where it belongs. Each is a struct emu_output (preload/protocol.h) and its bytes. */
	uint8_t *outputs;
	size_t outputs_bytes, outputs_room;
};

extern _Thread_local struct emu_caller *emu_caller;
pid_t emu_caller_process(void);
/* What a caller waits for won't come: the card is going, or the caller has gone. */
bool emu_wait_is_vain(const struct emu_gpu *gpu);

/* Each returns -EFAULT if the caller can't read or write there; never crashes. */
int emu_copy_in(void *to, uint64_t from, size_t n);
int emu_copy_out(uint64_t to, const void *from, size_t n);
/* The same in the memory of a process, whoever calls. */
int emu_process_copy_in(pid_t process, void *to, uint64_t from, size_t n);
int emu_process_copy_out(pid_t process, uint64_t to, const void *from, size_t n);
/* A copy of an array of the caller's, which is the caller's to free: -EFAULT, or -ENOMEM, also if it has
 * more than `most` bytes, which is what the kernel's own allocator gives. */
#define EMU_KMALLOC_MOST ((size_t)4 << 20)
#define EMU_KVMALLOC_MOST ((size_t)INT32_MAX)
int emu_array_in(uint64_t from, uint64_t n, size_t bytes_each, size_t most, void **ret);

/* memory.h's */
emu_ioctl_handler emu_gem_create, emu_gem_mmap, emu_gem_close, emu_gem_wait_idle, emu_gem_metadata,
    emu_gem_op, emu_gem_userptr, emu_gem_flink, emu_gem_open, emu_gem_list_handles,
    emu_prime_handle_to_fd, emu_prime_fd_to_handle;
/* vm.h's */
emu_ioctl_handler emu_gem_va, emu_vm_ioctl;
/* jobs.h's */
emu_ioctl_handler emu_ctx, emu_bo_list, emu_cs, emu_wait_cs, emu_wait_fences, emu_fence_to_handle,
    emu_sched, emu_userq;
emu_ioctl_handler emu_syncobj_create, emu_syncobj_destroy, emu_syncobj_handle_to_fd,
    emu_syncobj_fd_to_handle, emu_syncobj_wait, emu_syncobj_reset, emu_syncobj_signal,
    emu_syncobj_timeline_wait, emu_syncobj_query, emu_syncobj_transfer, emu_syncobj_timeline_signal,
    emu_syncobj_eventfd;
/* the rest */
emu_ioctl_handler emu_version, emu_get_client, emu_get_cap, emu_set_client_cap, emu_set_version,
    emu_get_unique, emu_get_magic, emu_auth_magic, emu_set_master, emu_drop_master, emu_get_stats,
    emu_set_client_name, emu_mode_none, emu_mode_noop, emu_mode_create_dumb, emu_mode_map_dumb,
    emu_mode_destroy_dumb, emu_info;

bool emu_caller_is_nice(void); /* drm_auth.c: it has CAP_SYS_NICE */

/* files.c: the file of a descriptor, with a reference that keeps it while in use; NULL with
 * errno: ENOTTY: not an emulated one, ENODEV: released meanwhile. Called without gpu->lock,
 * both. */
struct emu_file *emu_file_get(int fd);
/* The same by the position of its descriptors. */
struct emu_file *emu_file_get_at(uint64_t position);
void emu_file_put(struct emu_file *file);

/* Release the files whose last descriptor was closed as any other. Without gpu->lock. */
void emu_files_sweep(struct emu_gpu *gpu);

/* fdinfo.c: what /proc/PID/fdinfo says of the file after the system's own lines; its length. Without
 * gpu->lock. */
size_t emu_fdinfo(struct emu_file *file, char *text, size_t room);

/* gem.c: may a process that has the file map bytes of it from there on? 0, -EINVAL, -EACCES or -EPERM.
 * Without gpu->lock. */
int emu_gem_map_check(struct emu_file *file, uint64_t offset, uint64_t bytes);

/* Open the card's primary node, or its render node. */
int emu_file_open(struct emu_gpu *gpu, bool primary, int *fd);

/* Called by files.c as a file is released; they leave nothing behind. */
void emu_file_memory_fini(struct emu_file *file); /* closes all handles */
void emu_file_jobs_fini(struct emu_file *file);   /* waits for its jobs; contexts, lists, syncobjs */

#endif
