/* SPDX-License-Identifier: MIT
 *
 * vmkv: KV-cache memory for engines that want flat spans.
 *
 * An engine opens a sequence and gets, for every layer and tensor, one contiguous range of GPU
 * addresses, long enough for the longest context. vmkv puts physical memory behind exactly the part
 * that the sequence uses, and takes it away again. Attention kernels need no block table:
 *
 *     address(tensor, slot, token) = base[tensor] + slot * slot_stride[tensor]
 *                                                 + token * token_stride[tensor]
 *
 * A span's address never changes while its sequence is open.
 *
 * Conventions
 * - A function that can fail returns 0 or a negative errno value; outputs come last and are written
 *   only on success (the one exception: the shortage that is reported with -ENOSPC). The
 *   library never prints, exits or aborts. The text of the last error lives on the handle.
 * - A struct that begins with struct_size is versioned by it: set it to sizeof(the struct) and zero
 *   the rest; a zero field means its default. A caller's struct that is longer than the library's
 *   must be zero in the part that the library doesn't know, or the call returns -E2BIG; an output
 *   struct is filled as far as its struct_size reaches. struct_size below sizeof(size_t): -EINVAL.
 * - Bytes are bytes, tokens are counts of tokens, ranges are half-open, pointers are borrowed for
 *   the time of the call unless said otherwise.
 *
 * Threads: every function may be called from any thread at the same time as any other, on the same
 * handle too, except that a destroy or close of a *handle* (vmkv_device_close, vmkv_cache_destroy)
 * must be the last call on it. A cache has one lock, which is never held across a driver call. Two
 * calls at once on the same *sequence* do not wait for each other: the second returns -EBUSY.
 * After fork() only the parent may go on using a handle.
 *
 * Errors that every call on a cache or device can return, and that are not repeated below:
 *   -EINVAL  a NULL handle or pointer that must not be NULL, a bad struct_size, an unknown enum value
 *   -E2BIG   a struct from a newer header sets a field that this library doesn't know
 *   -ENOMEM  no host memory for bookkeeping; nothing changed
 *   -ENODEV  the device is lost (vmkv_seq_close, vmkv_cache_destroy, vmkv_device_close and
 *            the statistics still work; all points count as reached)
 *   others   an errno of the driver; nothing changed
 */
#ifndef VMKV_H
#define VMKV_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef VMKV_API
#define VMKV_API __attribute__((visibility("default")))
#endif

#define VMKV_VERSION_MAJOR 0
#define VMKV_VERSION_MINOR 1
#define VMKV_VERSION_PATCH 0

/* The version of the library that is loaded: major << 16 | minor << 8 | patch. */
VMKV_API uint32_t vmkv_version(void);

/* ---- devices ------------------------------------------------------------------------------- */

typedef struct vmkv_device vmkv_device;

struct vmkv_device_options {
	size_t struct_size;
	/* What to open; NULL means "auto".
	 *   "host"    the process's own address space: memory is a memfd, a mapping is an mmap.
	 *             Options, as in "host?max_mappings=2000&memory=8GiB":
	 *             max_mappings   bound on mappings (default: what vm.max_map_count leaves)
	 *             memory         bound on slab bytes of all caches together (default: none)
	 *             safe, wait_us  as for "amdgpu"
	 *   "amdgpu"  a Radeon, through libdrm_amdgpu and the stock kernel driver;
	 *             "amdgpu:/dev/dri/..." names the render node, else the first one is taken.
	 *             Options:
	 *             commit=cs      (default) new memory is ready at a point of its own
	 *             commit=engine  it is ready with the engine's next submission on the same address
	 *                            space: points of new memory are 0, the manager submits less
	 *             commit=bo      page tables are written buffer by buffer, for queues that the
	 *                            kernel doesn't see (HIP). Before DRM 3.64 the kernel can't tell
	 *                            when: points are 0, and the memory is there only where the kernel
	 *                            writes page tables at once (compute, all VRAM in the CPU's reach)
	 *             slabs=always-valid (default) or listed: whether submissions reach all slabs, or
	 *                            those alone that list them (vmkv_amdgpu_slabs)
	 *             window=A-B     use no addresses but these, as in 0x200000000000-0x300000000000
	 *             safe=A,B       safe modes, for a card or driver with a fault that is known: names
	 *                            are those of enum vmkv_safe, as in no-alias,wait-after-map
	 *             wait_us=       how long wait-after-map waits (default: 4000)
	 *   "emulated:MODEL" such a card emulated in this process, with no GPU at all: gfx1030,
	 *             gfx1100, gfx1201 or gfx942. Options of "amdgpu" but for window, and of
	 *             vmkv_emulator.h, as in "emulated:gfx1201?vram=16GiB&kernel=6.12&identity=1".
	 *   "auto"    the host: whether a card can be trusted, this library doesn't try. `vmkv doctor`
	 *             does, and names the device to open. */
	const char *name;
	/* Where to write one line that says what was wrong, if the call fails (may be NULL). */
	char *error;
	size_t error_bytes;
	/* amdgpu only: what of the engine's to use instead of opening a node of its own, so that both
	 * share one address space. The engine keeps it open until the device is closed. */
	uint32_t adopt; /* enum vmkv_adopt */
	int32_t drm_fd; /* VMKV_ADOPT_FD: a file of the card's node, whatever opened it */
	void *amdgpu_device; /* VMKV_ADOPT_AMDGPU: an amdgpu_device_handle */
	/* amdgpu only: as window=; both 0: addresses come from libdrm's manager of them. An engine that
	 * places its own buffers without libdrm must give one, and keep off it. */
	uint64_t window_begin, window_end;
};

enum vmkv_adopt {
	VMKV_ADOPT_NONE = 0,
	VMKV_ADOPT_FD = 1,
	VMKV_ADOPT_AMDGPU = 2
};

/* Open a device. The caller owns *ret and closes it with vmkv_device_close.
 * -EINVAL: a malformed name or option, a window that isn't free, a descriptor that isn't open.
 * -ENODEV: an unknown device, or none such on this machine. -ENOENT: libdrm_amdgpu isn't installed.
 * -ENOSYS: it lacks a function that is needed. -EACCES: no permission on the node.
 * -EXDEV: amdgpu_device is of another copy of libdrm_amdgpu than the one that this library found.
 * -ENOTSUP: the card, its kernel or its libdrm lacks what is needed. */
VMKV_API int vmkv_device_open(const struct vmkv_device_options *options, vmkv_device **ret);

/* Close a device; NULL does nothing. -EBUSY: a cache still uses it (it stays open). */
VMKV_API int vmkv_device_close(vmkv_device *device);

/* Flags of vmkv_device_info.features. */
enum {
	/* GPU addresses are addresses of this process: a CPU can read and write through a span. */
	VMKV_FEATURE_CPU_ADDRESSES = 1 << 0,
	/* New slabs are known to be zero, so they need no fill before their first use. */
	VMKV_FEATURE_ZEROED_SLABS = 1 << 1,
	/* Driver calls return before they have taken effect: points can be other than 0. */
	VMKV_FEATURE_ASYNCHRONOUS = 1 << 2
};

/* Flags of vmkv_device_info.safe: what the manager does without, on a device that can't be trusted
 * with it. They work together, and with every other option but for what is said here. */
enum vmkv_safe {
	/* never-reuse-addresses: an address that had memory behind it never gets any again, as long as
	 * the device is open, for where an address keeps its former translation. A slot serves one
	 * sequence; nothing stays warm behind it. What was mapped by a step that then failed stays
	 * behind the sequence's addresses, and its next steps use it. Addresses are used up one day:
	 * vmkv_seq_open then fails with -ENOSPC, and the cache, or at last the device, is to be made
	 * anew. */
	VMKV_SAFE_NEVER_REUSE_ADDRESSES = 1 << 0,
	/* wait-after-map: for where new memory is not seen at once. Calls that map return only when the
	 * driver says that it is there and wait_after_map_us have passed besides: steps that grow take
	 * so much longer, and points, exported ones too, are never early. Not with commit=engine, where
	 * it is the engine's submission that maps. */
	VMKV_SAFE_WAIT_AFTER_MAP = 1 << 1,
	/* no-alias: no page is ever behind two addresses. New memory is zeroed through its own address
	 * when it is mapped already, before it is ready; memory that was given back is zeroed only
	 * then. */
	VMKV_SAFE_NO_ALIAS = 1 << 2
};

struct vmkv_device_info {
	size_t struct_size;
	char name[256];         /* "host"; what vmkv_device_open would take again */
	uint64_t granule_bytes; /* the smallest piece that can be mapped; pages are multiples of it */
	uint64_t memory_bytes;  /* physical memory that the device can give to slabs at most */
	uint64_t max_mappings;  /* bound on mappings that are not contiguous with the one before;
	                           UINT64_MAX: no bound known */
	uint64_t mappings;      /* how many of those there are now, over all caches of the device */
	uint32_t features;      /* VMKV_FEATURE_* */
	uint32_t lost;          /* 1 after the device was lost */
	uint32_t safe;    /* VMKV_SAFE_*: which are in force */
	uint32_t wait_after_map_us; /* 0 without VMKV_SAFE_WAIT_AFTER_MAP */
};

VMKV_API int vmkv_device_info(const vmkv_device *device, struct vmkv_device_info *ret);

/* Copy the text of the device's last error into text (always terminated when text_bytes > 0);
 * returns the length of the whole text, 0 if there was no error yet. */
VMKV_API size_t vmkv_device_error(const vmkv_device *device, char *text, size_t text_bytes);

/* Points. A point is a number on the device's one timeline; 0 is a point that is always reached.
 * A later point is never reached before an earlier one. */

/* Wait until the device has reached point, at most timeout_ns (UINT64_MAX: for ever; 0: only look).
 * -ETIME: not reached in that time. */
VMKV_API int vmkv_wait(vmkv_device *device, uint64_t point, uint64_t timeout_ns);

/* Copy bytes from one GPU address to another on the device's own copy engine. With point == NULL the
 * call returns when the copy is done; else *point is when it will be. The ranges must not overlap.
 * -EINVAL: they overlap or wrap around. -EFAULT: an address has no memory behind it (on devices that
 * can tell; what was copied before the fault stays). */
VMKV_API int vmkv_copy(vmkv_device *device, uint64_t destination, uint64_t source, uint64_t bytes,
                       uint64_t *point);

/* Fill bytes at a GPU address with a 32-bit value; address and bytes are multiples of 4, else -EINVAL.
 * point and -EFAULT as in vmkv_copy. */
VMKV_API int vmkv_fill(vmkv_device *device, uint64_t destination, uint64_t bytes, uint32_t value,
                       uint64_t *point);

/* ---- amdgpu: what an engine on the same card needs ------------------------------------------- */

enum vmkv_commit {
	VMKV_COMMIT_CS = 0,
	VMKV_COMMIT_ENGINE = 1,
	VMKV_COMMIT_BO = 2
};

struct vmkv_amdgpu_info {
	size_t struct_size;
	int32_t drm_fd;       /* of the device's DRM file: borrowed, never closed by the engine */
	uint32_t syncobj;     /* on that file; the device's points are points of this timeline */
	void *amdgpu_device;  /* amdgpu_device_handle, borrowed */
	uint32_t commit;      /* enum vmkv_commit */
	uint32_t listed;      /* 1: slabs=listed */
	uint64_t slab_changes; /* goes up whenever vmkv_amdgpu_slabs would tell something else */
	uint64_t window_begin, window_end; /* both 0: none */
	uint32_t drm_minor;   /* of the kernel's amdgpu interface 3.x */
	uint32_t family, external_rev, device_id;
};

/* -EINVAL: not an amdgpu device. */
VMKV_API int vmkv_amdgpu_info(const vmkv_device *device, struct vmkv_amdgpu_info *ret);

/* The GEM handles of all slabs on the device's DRM file: with slabs=listed an engine puts them into
 * the buffer list of its submissions. Writes at most n and sets *ret to how many there are.
 * -EINVAL: not an amdgpu device. */
VMKV_API int vmkv_amdgpu_slabs(vmkv_device *device, uint32_t *handles, size_t n, size_t *ret);

/* A descriptor of a sync file that is signalled when the point is reached: for poll(2), Vulkan or
 * another driver. The caller owns *fd. -EINVAL: not an amdgpu device, or never one of its points;
 * or 0, which nobody has to wait for. */
VMKV_API int vmkv_point_export(vmkv_device *device, uint64_t point, int *fd);

struct vmkv_device_health {
	size_t struct_size;
	/* Physical bytes, of slabs of all caches of the device. */
	uint64_t slab_bytes;
	uint64_t slabs_refused; /* that landed outside VRAM and were given back, since it was opened */
	/* The card's, over all processes; 0 where the device can't tell. */
	uint64_t vram_bytes, vram_used_bytes;
	uint64_t evictions;   /* buffers moved out of VRAM since the driver was loaded */
	uint64_t moved_bytes;
	uint64_t fault_address; /* of this address space's last GPU fault ... */
	uint32_t fault_status;  /* ... and its status register; 0: none, or the kernel can't tell */
	uint32_t lost;          /* 1: the card was reset and lost its memory; the device is lost */
};

/* Ask the driver how the device is. Works on every device; fields that mean nothing there are 0. */
VMKV_API int vmkv_device_health(vmkv_device *device, struct vmkv_device_health *ret);

/* ---- geometry: what one token needs --------------------------------------------------------- */

enum vmkv_dtype {
	VMKV_DTYPE_NONE = 0, /* opaque rows: row_bytes must be given */
	VMKV_DTYPE_F32 = 1,
	VMKV_DTYPE_F16 = 2,
	VMKV_DTYPE_BF16 = 3,
	VMKV_DTYPE_F8 = 4,
	VMKV_DTYPE_Q8_0 = 5 /* ggml's q8_0: blocks of 32 elements in 34 bytes */
};

enum vmkv_policy {
	VMKV_POLICY_FULL = 0,   /* every token stays until the sequence closes */
	VMKV_POLICY_WINDOW = 1, /* the last window_tokens + slack_tokens stay */
	VMKV_POLICY_STATE = 2   /* fixed bytes a sequence, whatever its length: recurrent layers */
};

struct vmkv_tensor {
	uint32_t dtype;     /* enum vmkv_dtype */
	uint32_t heads;     /* KV heads; 0 with opaque rows */
	uint32_t head_dim;  /* elements of a head; heads * head_dim is a multiple of 32 for q8_0 */
	uint32_t reserved;  /* 0 */
	uint64_t row_bytes; /* bytes of one token (of the whole state, for VMKV_POLICY_STATE) in one
	                       layer; 0: computed from the three above. If both are given, row_bytes
	                       may be larger (padded rows), never smaller. */
};

struct vmkv_group {
	size_t struct_size; /* the same in all elements of an array: it is the array's stride */
	uint32_t policy;    /* enum vmkv_policy */
	uint32_t layers;    /* how many layers share this description */
	const struct vmkv_tensor *tensors;
	uint32_t tensor_count;  /* 2 for K and V, 1 for a latent (MLA) */
	uint32_t window_tokens; /* VMKV_POLICY_WINDOW only, at least 1 */
	uint32_t slack_tokens;  /* VMKV_POLICY_WINDOW only: how many older tokens are kept besides */
	uint32_t reserved;      /* 0 */
};

struct vmkv_geometry {
	size_t struct_size;
	const struct vmkv_group *groups;
	uint32_t group_count;
	uint32_t reserved; /* 0 */
};

/* ---- caches --------------------------------------------------------------------------------- */

typedef struct vmkv_cache vmkv_cache;

/* A sequence. 0 is never one. Holds a slot, a generation and a tag drawn when the cache was created,
 * so that a sequence that was closed, or that belongs to another cache, is refused (-ESTALE). */
typedef uint64_t vmkv_seq;

enum vmkv_layout {
	/* One address range a layer and tensor; token_stride is the row. */
	VMKV_LAYOUT_LAYER = 0,
	/* All layers of a group interleaved token by token; token_stride is the sum of the rows, and a
	 * layer's tensor lies at an offset. One growth maps one range instead of layers x tensors.
	 * Byte offsets from the slot's start pass a signed 32-bit number early: at token 14,564 of a
	 * model with 147,456 bytes a token (qwen3-8b in F16). Kernels need 64-bit offsets. */
	VMKV_LAYOUT_TOKEN = 1
};

enum vmkv_zero {
	VMKV_ZERO_ON = 0, /* memory that comes from another sequence reads as zero */
	VMKV_ZERO_OFF = 1 /* it may hold what the other sequence wrote */
};

/* Whether a cache tells of itself to `vmkv stats` and other readers, in a file of the user's: see
 * vmkv_cache_options.share. VMKV_STATS must be 0 or 1, if it is set. */
enum vmkv_share {
	VMKV_SHARE_DEFAULT = 0, /* if the environment has VMKV_STATS=1 */
	VMKV_SHARE_ON = 1,      /* unless it has VMKV_STATS=0 */
	VMKV_SHARE_OFF = 2
};

/* warm_max_bytes: keep nothing mapped behind closed slots. */
#define VMKV_WARM_OFF UINT64_MAX

struct vmkv_cache_options {
	size_t struct_size;
	const struct vmkv_geometry *geometry; /* copied */
	uint64_t budget_bytes; /* bound on physical memory (slabs); at least one page for every span of
	                          a sequence */
	uint64_t page_bytes;   /* what is accounted and recycled: a power of two, a multiple of the
	                          device's granule, at most 2 MiB; 0: 64 KiB */
	uint64_t slab_bytes;   /* one physical allocation, a multiple of 2 MiB; 0: 64 MiB */
	uint32_t layout;       /* enum vmkv_layout */
	uint32_t max_slots;    /* bound on open sequences, 1 to 2^19 */
	uint32_t slot_count;   /* address slots, at least max_slots: closed sequences keep theirs until
	                          retired; 0: 2 * max_slots, or with never-reuse-addresses as many as
	                          half of the device's unused addresses hold, at most 65536 */
	uint32_t max_tokens;   /* bound on the length of a sequence, at least 1 */
	uint32_t read_align_tokens; /* memory is there up to the live length rounded up to this (but not
	                               past max_tokens rounded up to it); 0: 1 */
	uint32_t zero;              /* enum vmkv_zero */
	uint64_t mapping_max_bytes; /* longest piece mapped by one driver call and given back whole;
	                               rounded down to pages; 0: 2 MiB (layer) or 32 MiB (token).
	                               Except in the full groups of the token layout a piece never
	                               crosses a multiple of it within its span. */
	uint64_t window_mapping_max_bytes; /* the same in window groups; 0: 256 KiB or one page,
	                                      whichever is more */
	uint64_t warm_max_bytes; /* how much may stay mapped behind closed slots for whoever opens
	                            them next; always given back when memory is short; 0: a quarter
	                            of the budget; VMKV_WARM_OFF: none */
	/* Where to write one line that says what was wrong, if the call fails (may be NULL). */
	char *error;
	size_t error_bytes;
	/* Whether to mirror the cache's tables in $XDG_RUNTIME_DIR/vmkv/, or without that in
	 * /dev/shm/vmkv-UID/, for its user alone to read: lengths, slots, mappings and events, never
	 * what sequences hold. The file takes about 16 bytes a page of the budget, all of them from the
	 * beginning, and goes with the cache; what a killed process leaves, the user's next cache that
	 * is shared removes. It doesn't grow: of slabs that a budget raised later brings beyond its
	 * room it tells the bytes, but no mappings. A step with nothing to map makes no system call for
	 * it. */
	uint32_t share; /* enum vmkv_share */
	uint32_t reserved; /* 0 */
};

/* Create a cache on a device, which must outlive it. Reserves addresses; takes no physical memory.
 * The caller owns *ret and destroys it with vmkv_cache_destroy.
 * -EINVAL: an option out of its range. -EOVERFLOW: sizes whose product passes 64 bits, or more
 * addresses than the device has. Of a shared cache: -EACCES, its directory isn't the user's alone;
 * -ENOSPC and -EFBIG, no room for its file; or another errno. */
VMKV_API int vmkv_cache_create(vmkv_device *device, const struct vmkv_cache_options *options,
                               vmkv_cache **ret);

/* Destroy a cache with all its sequences and give everything back; NULL does nothing. It is the
 * caller's word that nothing on the device uses the cache's memory any more. */
VMKV_API void vmkv_cache_destroy(vmkv_cache *cache);

struct vmkv_cache_info {
	size_t struct_size;
	uint64_t page_bytes, slab_bytes;
	uint64_t bytes_per_token; /* live bytes of one token, over all full and window groups */
	uint64_t fixed_bytes;     /* live bytes of a sequence's state groups */
	uint64_t reserved_bytes;  /* address space of all slots: virtual, not memory */
	uint32_t slot_count, max_slots, max_tokens, read_align_tokens, layout, group_count;
};

VMKV_API int vmkv_cache_info(const vmkv_cache *cache, struct vmkv_cache_info *ret);

/* The cache's last error, as vmkv_device_error. */
VMKV_API size_t vmkv_cache_error(const vmkv_cache *cache, char *text, size_t text_bytes);

/* Physical bytes that a sequence needs at most on its way to a length of tokens, if it grows by at
 * most chunk_tokens a step (0: in one step; it matters only to window groups).
 * -ERANGE: tokens is past max_tokens. */
VMKV_API int vmkv_cache_need_bytes(const vmkv_cache *cache, uint32_t tokens, uint32_t chunk_tokens,
                                   uint64_t *ret);

/* Bound the cache's physical memory anew. Lowering it gives back what is free at once, warm slots
 * first; what sequences hold stays, and no new memory is taken until enough of it was closed.
 * -EINVAL: less than one page for every span of a sequence. -EOVERFLOW: more than 2^31 pages. */
VMKV_API int vmkv_cache_set_budget(vmkv_cache *cache, uint64_t budget_bytes);

/* Give physical memory that no sequence uses back to the system until the cache holds at most
 * keep_bytes, or there is nothing more to give: warm slots are unmapped, then slabs that are wholly
 * free are returned. *released_bytes (may be NULL) is what was returned. */
VMKV_API int vmkv_cache_shrink(vmkv_cache *cache, uint64_t keep_bytes, uint64_t *released_bytes);

/* ---- sequences ------------------------------------------------------------------------------ */

/* What a vmkv_step or vmkv_seq_open that failed lacked. */
enum vmkv_shortage_kind {
	VMKV_SHORTAGE_NONE = 0,
	VMKV_SHORTAGE_BYTES = 1,    /* physical memory, within the budget or in the device */
	VMKV_SHORTAGE_MAPPINGS = 2, /* the device's bound on mappings */
	VMKV_SHORTAGE_SLOTS = 3     /* sequences within max_slots, or address slots that are free */
};

struct vmkv_shortage {
	uint32_t kind;     /* enum vmkv_shortage_kind */
	uint32_t reserved;
	uint64_t needed;   /* bytes or mappings that the whole step would newly take; 1 slot */
	uint64_t missing;  /* how many of those there are too few */
	uint64_t retiring_bytes;  /* given back by the engine, waiting for vmkv_retire ... */
	uint64_t retiring_until;  /* ... to pass this value; slots: one may be free then */
	uint64_t transit_bytes;   /* on their way through the device ... */
	uint64_t transit_point;   /* ... free once it has reached this point; slots: so
	                             is one, 0: none is on its way */
};

enum vmkv_prefer {
	VMKV_PREFER_LOWEST = 0, /* the lowest free slot: dense batches */
	VMKV_PREFER_WARM = 1,   /* a slot that still has memory, the best fit to expected_tokens; else
	                           the lowest */
	VMKV_PREFER_SLOT = 2    /* exactly the slot in .slot; -EBUSY if it isn't free */
};

struct vmkv_open_options {
	size_t struct_size;
	uint32_t prefer; /* enum vmkv_prefer */
	uint32_t slot;
	uint32_t expected_tokens; /* how long it will get; 0: unknown. If the slot has more memory
	                             kept warm than that takes, the rest is given back first */
	uint32_t reserved; /* 0 */
	/* Written on -ENOSPC, unless NULL: what could free a slot. */
	struct vmkv_shortage *shortage;
};

/* Open a sequence of length 0. Takes an address slot, no memory (a state group's fixed memory comes
 * with the first step). options may be NULL.
 * -ENOSPC: max_slots sequences are open, or every slot still waits to be retired, or was used
 * already and the device never reuses addresses; options->shortage tells. Once its transit_point is
 * reached an open succeeds, with no call between. */
VMKV_API int vmkv_seq_open(vmkv_cache *cache, const struct vmkv_open_options *options, vmkv_seq *ret);

/* Close a sequence: its memory is retired, and becomes another's once vmkv_retire has passed the
 * greatest busy_until that was given for it (at once, if that is already so).
 * -ESTALE: it is not open in this cache. -EBUSY: a call is at work on it. Never fails for the
 * driver's sake: what cannot be unmapped now is tried again at each vmkv_retire. */
VMKV_API int vmkv_seq_close(vmkv_cache *cache, vmkv_seq seq, uint64_t busy_until);

struct vmkv_step_request {
	size_t struct_size;
	const vmkv_seq *seqs;   /* n of them, none twice */
	const uint32_t *tokens; /* n absolute lengths: not below the sequence's present length */
	uint32_t n;             /* 0 is allowed and does nothing */
	uint32_t reserved;      /* 0 */
	/* "My queues may use this memory until I tell you, by vmkv_retire, that I passed this": covers
	 * all that was submitted so far and what this step prepares. 0: nothing on a queue uses it.
	 * With several queues, number all submissions in one order and retire the least. */
	uint64_t busy_until;
	/* Written on -ENOSPC, unless NULL: n byte counts, what each sequence would newly need. */
	uint64_t *seq_needed_bytes;
};

struct vmkv_step_result {
	size_t struct_size;
	uint64_t ready; /* the newest point that these sequences' memory depends on; 0: use it now */
	struct vmkv_shortage shortage; /* all zero unless the call returns -ENOSPC */
};

/* The one hot call: make the given lengths usable. All or nothing: either every sequence has its
 * length, to be used once result->ready is reached, or nothing changed (memory kept warm may have
 * become free). With nothing new to map it makes no system call. result may be NULL.
 * A window group gives back what lies below (length before this step) - window - slack.
 * -EINVAL: a sequence twice, a length below the present one. -ERANGE: a length past max_tokens.
 * -ESTALE: not open in this cache. -EBUSY: another call is at work on one of them, or memory behind
 * the addresses that it grows into is still being unmapped after an earlier shortage.
 * -ENOSPC: a shortage, told in result->shortage. */
VMKV_API int vmkv_step(vmkv_cache *cache, const struct vmkv_step_request *request,
                       struct vmkv_step_result *result);

/* "All my queues have passed `completed`." Values may come in any order; one that is below an earlier
 * one is ignored, and one beyond anything given is fine. Frees what waited for it, zeroes it, and
 * tries again what failed before. Never fails for the driver's sake. */
VMKV_API int vmkv_retire(vmkv_cache *cache, uint64_t completed);

struct vmkv_span {
	size_t struct_size;
	uint64_t address;      /* of token 0 in this sequence's slot */
	uint64_t token_stride; /* bytes; 0 for a state */
	uint64_t slot_stride;  /* bytes, the same for all slots */
	uint64_t row_bytes;
	uint32_t slot;
	uint32_t first_token;     /* tokens below were trimmed from the window: no memory is there */
	uint32_t live_tokens;     /* the sequence's length */
	uint32_t mapped_tokens;   /* whole tokens from 0 that have memory (from first_token, if that is
	                             more); usable once ready. 1 for a state that has memory */
	uint32_t reserved_tokens; /* tokens that there are addresses for; 1 for a state */
	uint32_t reserved;
};

/* Where a tensor of a sequence lies: group and tensor count from 0, layer from 0 within the group.
 * -ERANGE: no such group, layer or tensor. -ESTALE: not open in this cache. */
VMKV_API int vmkv_span(vmkv_cache *cache, vmkv_seq seq, uint32_t group, uint32_t layer,
                       uint32_t tensor, struct vmkv_span *ret);

struct vmkv_mapping {
	uint64_t address;     /* where it begins */
	uint64_t bytes;       /* a whole number of pages */
	uint64_t slab;        /* which slab it is a piece of ... */
	uint64_t slab_offset; /* ... and where in it */
};

/* The mappings behind a span (in the token layout and in state groups: behind the range that it
 * shares with the group's other tensors), in order of address, those included that are warm: mapped
 * beyond what the sequence has asked for. Writes at most n of them to mappings
 * and sets *ret to how many there are. Errors as in vmkv_span; -EBUSY: a call is at work on seq. */
VMKV_API int vmkv_seq_mappings(vmkv_cache *cache, vmkv_seq seq, uint32_t group, uint32_t layer,
                               uint32_t tensor, struct vmkv_mapping *mappings, size_t n, size_t *ret);

/* What each slot may use right now: slot_count numbers, to be read with an atomic load (acquire). A
 * length of up to that many tokens needs no vmkv_step for memory's sake, so an engine can compare and
 * skip the call until it must tell a new length. 0 for slots with no open sequence. Lives as long as
 * the cache. Points count as reached here once any call has seen them reached. In a window group
 * the trimmed part is not told here. */
VMKV_API const uint32_t *vmkv_ready_tokens(const vmkv_cache *cache);

/* ---- statistics ----------------------------------------------------------------------------- */

struct vmkv_stats {
	size_t struct_size;
	/* Physical bytes. budget >= slab (unless the budget was lowered), and
	 * slab = mapped + warm + retiring + unmapping + zeroing + held + free_clean + free_dirty. */
	uint64_t budget_bytes;
	uint64_t slab_bytes;      /* held from the device */
	uint64_t mapped_bytes;    /* behind open sequences' addresses */
	uint64_t warm_bytes;      /* behind closed slots', zeroed, for whoever opens them next; or ahead
	                             of a sequence */
	uint64_t retiring_bytes;  /* closed or trimmed, waiting for vmkv_retire */
	uint64_t unmapping_bytes; /* on their way out of the page tables */
	uint64_t zeroing_bytes;   /* being zeroed */
	uint64_t held_bytes;      /* taken by a call that is at work */
	uint64_t free_clean_bytes;
	uint64_t free_dirty_bytes; /* free, and zeroed before the next use */
	/* Live bytes are those of the tokens that the engine said exist: waste = 1 - live / mapped. */
	uint64_t live_bytes;
	/* Virtual bytes. */
	uint64_t reserved_bytes;
	/* Bookkeeping in host memory, all of the cache's tables together. */
	uint64_t table_bytes;
	/* Counts of things that exist. */
	uint64_t sequences;
	uint64_t mappings; /* those included that are being unmapped, until a call sees it done */
	uint64_t slabs;
	/* Counts since the cache was created. */
	uint64_t steps;          /* vmkv_step that succeeded ... */
	uint64_t growing_steps;  /* ... and had something to map */
	uint64_t shortages;      /* vmkv_step that returned -ENOSPC */
	uint64_t mapped_pages;   /* pages mapped, and mapped again */
	uint64_t map_calls;      /* driver calls by kind; each maps one piece, ... */
	uint64_t unmap_calls;    /* ... unmaps one range of addresses, ... */
	uint64_t fill_calls;     /* ... fills one range of a slab, ... */
	uint64_t slab_calls;     /* ... creates or destroys one slab */
	uint64_t failed_calls;   /* those of them that the driver refused */
	/* Greatest values since creation. */
	uint64_t mapped_bytes_peak;
	uint64_t live_bytes_peak;
	uint64_t slab_bytes_peak;
	uint64_t mappings_peak;
};

VMKV_API int vmkv_cache_stats(vmkv_cache *cache, struct vmkv_stats *ret);

#ifdef __cplusplus
}
#endif

#endif
