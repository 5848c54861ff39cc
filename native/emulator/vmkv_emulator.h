/* SPDX-License-Identifier: MIT
 *
 * An amdgpu kernel driver in user space: what libdrm_amdgpu and its users see of one, with the state
 * behind it: heaps, buffer objects, page tables, contexts, syncobjs, and jobs of SDMA and PM4 packets, but
 * no shaders. No GPU, no /dev, no root, no preload. libdrm stays as the system ships it;
 * vmkv_emulator_attach points its imports of ioctl here for file descriptors of emulated nodes, and lets
 * all others through.
 *
 * Every function returns 0 or a negative errno and may be called from any thread, unless it says
 * otherwise. A spec is MODEL[?name=value&...]:
 *   MODEL          gfx1030, gfx1100, gfx1201, gfx942
 *   kernel=        6.1, 6.12 (default) or 7.2: whose checks, errnos and sizes apply
 *   vram=, gtt=    sizes of the heaps, such as 16GiB (default: the model's VRAM; as much GTT)
 *   identity=1     every mapping in the identity window also appears at its own address in the
 *                  process, so that CPU code can use GPU addresses
 *   window=        size of the identity window (default 64GiB, at most 256GiB)
 *   vm_update=     sdma (default: page tables change later, in jobs) or cpu (within the ioctl)
 *   seed=          draws the order in which jobs that are ready run (default: as they came)
 *   ioctl_us=, pte_us=  latency model: microseconds of each ioctl, and of each page-table job (0)
 *   trace=         a file that gets a JSON line for each ioctl
 *   break=         a deliberate error, to see tests fail: flush-all, clean-split, ignore-delay
 *   inject=        faults that real cards were reported to have, separated by commas; see below
 *   late_us=       of late-visibility (default 2000)
 *
 * Faults. None is on unless named, and several may be; the process sees in the identity window what the
 * GPU sees. N is a whole number from 1.
 *   stale-translation   An address that was mapped, unmapped and is mapped again keeps the page that it
 *                       was mapped to first, whatever the new mapping says, for as long as its file is
 *                       open. Meanwhile unmapped, it faults as it should. An address that is mapped once
 *                       only is sound, also if its buffer is moved. (hipfire: Linux 7.14, gfx1201.)
 *   late-visibility     What is mapped at an address that had no mapping isn't seen until late_us after
 *                       the page tables have it, which is when a fence or submission says so: reads give
 *                       zeros, also those of packets, which zeros make NOPs on SDMA rings (the others
 *                       refuse them); stores are lost; nothing faults. More submissions don't help. The
 *                       process sees it from half that time on, and keeps what it stored itself until
 *                       then.
 *                       (rocm-systems#11693: Linux 7.2.4, gfx1201, 1 to 2 ms.)
 *   alias-diverges      A page that is mapped at a second address while it is at a first one in the same
 *                       file has bytes of its own there, which begin as those of the page; no write
 *                       through one address is seen through the other, and nothing fails. What is written
 *                       through the second one is lost as it is unmapped; if the first one goes before,
 *                       it becomes what the page holds. (kvcached#501: Intel's driver; no AMD card.)
 *   vram-stolen[:N]     As the Nth submission (16) starts, another process takes what VRAM is free, but for
 *                       8 MiB, and half of what others have there, whose buffers are evicted. It keeps
 *                       that. (llama.cpp#24066.)
 *   silent-gtt[:N]      Of buffers of 2 MiB and more that ask for VRAM alone, the first and then each Nth
 *                       (2: every other) lie in GTT and stay there, however much VRAM is free. All else
 *                       says VRAM, but the counters of INFO (MEMORY, VRAM_USAGE, GTT_USAGE) and what
 *                       fdinfo says is resident tell where they are. (SteamOS#2811, llama.cpp#24066.)
 *   unmap-ignored       UNMAP, CLEAR and REPLACE by PRT succeed, and page tables follow, but the GPU goes
 *                       on with what it knew, until another buffer is mapped there. (Inferred from
 *                       Linux 6.12 and 7.2, where a flush of the TLB may be left out; nobody reported it.)
 *   timeline-ignored    GEM_VA ignores vm_timeline_syncobj_out: nobody submits its point, so that a wait
 *                       for submission never ends, and any other fails with EINVAL. Of kernel=7.2 only:
 *                       those before know no timelines and do the same. (rocm-systems#9820.)
 *   device-lost[:N]     The Nth submission (16) hangs and the card is reset: VRAM reads as zeros,
 *                       VRAM_LOST_COUNTER grows, submissions that are under way fail with ECANCELED, the
 *                       hanging one's context is guilty, all others are told of a reset that lost VRAM,
 *                       and none of them takes more, while new ones do. Once.
 *                       (What amdgpu does after a hang.)
 *   transient-enomem[:N] Each Nth call (8) of CS and GEM_VA, and those within a millisecond of it, fail
 *                       with ENOMEM and change nothing; later ones work. (ROCm#6215: gfx1201.)
 *   ioctl:NAME:N:ERRNO  The Nth call of that ioctl fails, as with vmkv_emulator_fail; ERRNO is a name
 *                       such as ENOMEM, or a number.
 */
#ifndef VMKV_EMULATOR_H
#define VMKV_EMULATOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef VMKV_API
#define VMKV_API __attribute__((visibility("default")))
#endif

/* Where the card says that it is. */
#define VMKV_EMULATOR_PCI "0000:03:00.0"

/* One emulated card. */
typedef struct vmkv_emulator vmkv_emulator;

/* Make a card. error (may be NULL) gets one line if the call fails. The caller owns *ret.
 * -EINVAL: a malformed spec. -ENOMEM: the machine can't hold the card's memory file or window. */
VMKV_API int vmkv_emulator_create(const char *spec, char *error, size_t error_bytes,
                                  vmkv_emulator **ret);

/* Take a card away, with the files that are still open on it; NULL does nothing. Must be the last call
 * on it. Descriptors that are left fail with ENODEV, and so do waits for what nobody has submitted.
 * A card is its process's alone: in a child of fork its descriptors fail with ENODEV, and taking it away
 * does nothing. */
VMKV_API void vmkv_emulator_destroy(vmkv_emulator *emulator);

/* Open the card's render node: *fd is a descriptor of a new DRM file, with handles and a VM of its own.
 * Duplicates of it are the same file. It goes by vmkv_emulator_close, or with the last close(2) of its
 * descriptors, which is noticed when it matters: as memory or counts are asked for, as buffers are made and
 * as files are opened. */
VMKV_API int vmkv_emulator_open(vmkv_emulator *emulator, int *fd);

/* The same with the card's primary node, as /dev/dri/card0 is one. Its first file is its master, which may
 * ask for contexts of high priority. It is authenticated, as are those of processes with CAP_SYS_ADMIN, and
 * those that the master lets be (AUTH_MAGIC): others may do little. Displays there are none. */
VMKV_API int vmkv_emulator_open_primary(vmkv_emulator *emulator, int *fd);

/* Close fd, and release its DRM file with all that it holds, as the last close(2) of a real one does.
 * It waits for the file's jobs; a card that is paused runs jobs until those are done.
 * Duplicates that are left fail with ENODEV. -EBADF: no descriptor of an emulated file. */
VMKV_API int vmkv_emulator_close(int fd);

/* The card of an emulated file: borrowed. NULL: fd is no descriptor of one. */
VMKV_API vmkv_emulator *vmkv_emulator_of(int fd);

/* Let other programs of this user share the card, with what `vmkv emulate` preloads into them: they find
 * it by name, a socket's in the abstract namespace. The caller owns *ret. A file that a program
 * opened goes with the last close(2) of its descriptors, in whatever process.
 * -EADDRINUSE: the name is taken. -EINVAL: it is too long. -EMFILE, -ENOMEM. */
typedef struct vmkv_emulator_server vmkv_emulator_server;
VMKV_API int vmkv_emulator_serve(vmkv_emulator *emulator, const char *name, vmkv_emulator_server **ret);

/* Before the card is taken away; NULL does nothing. Programs that are left find no card. */
VMKV_API void vmkv_emulator_serve_end(vmkv_emulator_server *server);

/* What ioctl(2) does on an emulated file: 0 or more, or -1 with errno. ENOTTY: not an emulated file. */
VMKV_API int vmkv_emulator_ioctl(int fd, unsigned long request, void *argument);

/* Point the imports of libdrm.so.2 and libdrm_amdgpu.so.1, as loaded in this process, here. Done once;
 * more calls do nothing. -ENOENT: libdrm.so.2 isn't loaded. */
VMKV_API int vmkv_emulator_attach(void);

/* The identity window: half-open addresses. -ENOENT: the spec had no identity=1. */
VMKV_API int vmkv_emulator_window(const vmkv_emulator *emulator, uint64_t *begin, uint64_t *end);

/* Let the GPU's thread start no further job, or go on: to see what is asynchronous. */
VMKV_API void vmkv_emulator_pause(vmkv_emulator *emulator);
VMKV_API void vmkv_emulator_resume(vmkv_emulator *emulator);

/* Let the nth call from now (1: the next) of the ioctl of that name (as in the trace: "GEM_VA") fail
 * with error, a positive errno, before it does anything. n = 0 takes the order back.
 * -EINVAL: no such ioctl. */
VMKV_API int vmkv_emulator_fail(vmkv_emulator *emulator, const char *ioctl, uint64_t n, int error);

/* How often an ioctl was called, refused ones included; operation UINT32_MAX counts all, else only those
 * with that GEM_VA operation. -EINVAL: no such ioctl. */
VMKV_API int vmkv_emulator_count(vmkv_emulator *emulator, const char *ioctl, uint32_t operation,
                                 uint64_t *ret);

/* The name of the ioctl with that index, from 0; NULL past the last. */
VMKV_API const char *vmkv_emulator_ioctl_name(uint32_t index);

/* What a bus would tell of the card. */
struct vmkv_emulator_identity {
	size_t struct_size;
	uint32_t vendor_id, device_id, subsystem_vendor_id, subsystem_device_id, revision;
	uint32_t drm_minor;
	uint64_t vram_bytes, gtt_bytes;
	char pci_slot[16]; /* VMKV_EMULATOR_PCI */
};

VMKV_API int vmkv_emulator_identify(const vmkv_emulator *emulator,
                                    struct vmkv_emulator_identity *ret);

struct vmkv_emulator_stats {
	size_t struct_size;
	/* Counts of things that exist, on all files of the card. */
	uint64_t files, buffers, handles, mappings, contexts, buffer_lists, syncobjs, fences;
	/* Bytes. */
	uint64_t vram_bytes, vram_used_bytes, gtt_bytes, gtt_used_bytes, page_table_bytes;
	/* Counts since the card was made. */
	uint64_t ioctls;
	uint64_t refused;      /* unknown ioctls, flags, chunks and packets */
	uint64_t submissions;  /* CS accepted */
	uint64_t packets;      /* of SDMA engines and command processors that ran */
	uint64_t pte_jobs;     /* page-table jobs that ran ... */
	uint64_t ptes_written; /* ... and entries that they wrote or cleared */
	uint64_t evictions;    /* buffers moved from VRAM to GTT ... */
	uint64_t moved_bytes;  /* ... and bytes moved either way */
	uint64_t faults;       /* accesses without a valid entry, or writes to read-only ones */
	uint64_t stale_accesses; /* accesses through entries whose memory was freed meanwhile */
	uint64_t delayed_maps;   /* GEM_VA calls with DELAY */
};

VMKV_API int vmkv_emulator_stats(vmkv_emulator *emulator, struct vmkv_emulator_stats *ret);

/* What the page tables say of an address in the VM of fd's file, right now. */
struct vmkv_emulator_entry {
	size_t struct_size;
	uint64_t address;  /* where the entry's range begins ... */
	uint64_t bytes;    /* ... and how long it is: 4 KiB, or 2 MiB for a PDE used as PTE */
	uint64_t physical; /* heap address; VRAM from 0, GTT from vram_bytes */
	uint32_t valid, readable, writable, executable, prt;
	uint32_t fragment; /* log2 of 4 KiB pages that the entry says are contiguous */
	uint32_t handle;   /* the buffer's handle in this file; 0: its memory was freed, or not its own */
	uint32_t reserved;
	uint64_t offset;   /* where in the buffer */
};

VMKV_API int vmkv_emulator_walk(int fd, uint64_t address, struct vmkv_emulator_entry *ret);

/* What the driver adds to /proc/PID/fdinfo/FD of a file: its memory and the time of its jobs, in the words of
 * the card's kernel; without the lines that any file has (pos, flags, mnt_id, ino). *length becomes the whole
 * text's. -EBADF: not an emulated file. */
VMKV_API int vmkv_emulator_fdinfo(int fd, char *text, size_t text_bytes, size_t *length);

/* The text of what the emulator refused or failed last (an unknown packet, a fault), "" if nothing;
 * returns the whole text's length. */
VMKV_API size_t vmkv_emulator_error(vmkv_emulator *emulator, char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif

#endif
