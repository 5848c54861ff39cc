/* SPDX-License-Identifier: MIT
 *
 * The file that a cache publishes itself in, for `vmkv stats` and whoever else wants to look: a
 * mirror of its private tables. Read-only for all but the cache; nothing in it is ever believed by
 * it.
 *
 * Where: $XDG_RUNTIME_DIR/vmkv/PID-TAG.kv (TAG: 5 hexadecimal digits), or without that directory,
 * /dev/shm/vmkv-UID/PID-TAG.kv. The directory is of mode 0700 and the user's own, the file of mode
 * 0600. It is complete before its name appears, never changes its size, and goes when the cache is
 * destroyed.
 *
 * Layout: the header; at header_bytes a table of section_count struct vmkv_published_section;
 * sections, each at a multiple of 64. All numbers are little-endian, as the machine's own. A reader
 * skips sections with an id that it doesn't know, takes of an entry no more than entry_bytes, and
 * refuses another version_major: within one, structs only get longer.
 *
 * Whole states. `epoch` counts the changes that were published; the file shows the state after each
 * of them, and a process that dies anywhere leaves the last one. Where a section has two versions,
 * entry i has its version v (0 or 1) at offset + (2 * i + v) * entry_bytes, and each begins with
 * the epoch of the change that wrote it (0: never written; UINT64_MAX: being written). A change
 * overwrites the older version of each entry that it touches, and stores the header's epoch last.
 *
 * Pieces are too many for two versions. An entry has one, with a stamp that tells the epoch of the
 * change that wrote it, the piece's state since, the state before, and how many epochs earlier that
 * one began, or a later moment that it was in force. The rest of the entry is written after the
 * stamp with which a piece comes to be where none was, and is the same until another one does.
 *
 * Reading. Take E = header.epoch; copy; of each entry the version that counts is the one with the
 * greatest epoch that is not beyond E. Of a piece it is the state since the stamp's epoch if that
 * is not beyond E, else the state before if that was in force at E. If there is none, look again at
 * a newer E. The copy is whole
 *   a) if header.epoch is still E after it was made; or
 *   b) but for VMKV_PUBLISHED_LIVES, if a second copy of the entry is equal, byte for byte; or
 *   c) but for VMKV_PUBLISHED_LIVES, if state.epoch (the version that counts of the state's only
 *      entry) is after it what it was before: all other changes since then were steps that mapped
 *      nothing, and those write lives alone.
 * So the large sections are copied while c) holds, lives (small) and the state while a) holds and
 * state.epoch is the same. An entry of pieces changes only together with its slab's entry: a slab
 * with an epoch not beyond that of an earlier copy has the same pieces still.
 *
 * What holds in every whole state:
 * - No physical page belongs to two pieces. A piece lies within its slab, and within its slot's
 *   addresses.
 * - Sums of pieces by state are state.mapped_bytes, retiring_bytes, unmapping_bytes and warm_bytes;
 *   they are those of the slots' and the slabs' entries, too (unless state.left_out is not 0).
 * - An open slot has memory for its live tokens, but for what its window has passed.
 * - state.steps + (epoch - state.epoch) steps have succeeded: the heartbeat.
 *
 * The page tables can't be seen from here: a piece is told from the time when its mapping succeeded
 * until its pages are free for others, which may be before or after its addresses have nothing
 * behind them any more: state.mappings, which counts those, may be less or more than there are
 * pieces.
 */
#ifndef VMKV_PUBLISH_FORMAT_H
#define VMKV_PUBLISH_FORMAT_H

#include <stdint.h>

#define VMKV_PUBLISHED_MAGIC 0x31627570766b6d76ull /* "vmkvpub1" */
#define VMKV_PUBLISHED_MAJOR 2
#define VMKV_PUBLISHED_MINOR 0
#define VMKV_PUBLISHED_EVENTS 4096  /* entries of the ring */
#define VMKV_PUBLISHED_BUCKETS 48   /* of a histogram */
#define VMKV_PUBLISHED_WRITING UINT64_MAX /* the epoch of a version that is being written */

/* What a section's entries are. */
enum vmkv_published_id {
	VMKV_PUBLISHED_NONE = 0,
	VMKV_PUBLISHED_STATE = 1,   /* struct vmkv_published_state: one entry, two versions */
	VMKV_PUBLISHED_LIVES = 2,   /* ..._live: by slot, two versions */
	VMKV_PUBLISHED_SLOTS = 3,   /* ..._slot: by slot, two versions */
	VMKV_PUBLISHED_PIECES = 4,  /* ..._piece: see there, one version */
	VMKV_PUBLISHED_SLABS = 5,   /* ..._slab: by slab, two versions */
	VMKV_PUBLISHED_RING = 6,    /* ..._event: by (serial - 1) % VMKV_PUBLISHED_EVENTS, one
	                               version */
	VMKV_PUBLISHED_TIMES = 7,   /* ..._times: by enum vmkv_published_call, one version */
	VMKV_PUBLISHED_GROUPS = 8,  /* ..._group, constant, one version */
	VMKV_PUBLISHED_REGIONS = 9, /* ..._region, constant, one version */
	VMKV_PUBLISHED_PLACES = 10  /* ..._place, constant, one version */
};

/* All times are CLOCK_MONOTONIC unless they say otherwise. Texts end with a 0. */
struct vmkv_published_header {
	uint64_t magic;         /* VMKV_PUBLISHED_MAGIC */
	uint32_t version_major, version_minor; /* of the format */
	uint32_t header_bytes;  /* of this struct, as its writer knew it */
	uint32_t section_count;
	uint32_t section_bytes; /* of an entry of the table of sections */
	uint32_t library;       /* vmkv_version() */
	uint64_t file_bytes;
	uint64_t reserved[3];
	/* Byte 64. What changes: the rest is constant. */
	uint64_t epoch;         /* of the last change that is whole */
	uint64_t beat_ns;       /* about when that was (some ms); after the change, by itself */
	uint64_t reserved_beat[6];
	/* Byte 128. Who. */
	uint32_t pid;           /* in its own pid namespace ... */
	uint32_t uid;
	uint64_t pid_namespace; /* ... which is this inode of /proc/self/ns/pid; 0: unknown */
	uint64_t start_ticks;   /* field 22 of /proc/PID/stat; 0: unknown */
	uint64_t created_ns;
	uint64_t created_realtime_ns; /* the same moment by CLOCK_REALTIME */
	char boot_id[40];       /* /proc/sys/kernel/random/boot_id, "" if unknown */
	char program[64];       /* its name, as the kernel has it */
	/* Where its memory is. */
	char device[256];       /* as in vmkv_device_info */
	char driver[32];        /* "host", "amdgpu" or "emulated" */
	char pci_id[32];        /* of the card, as in 0000:03:00.0; "": none, or unknown */
	uint32_t safe;          /* VMKV_SAFE_* in force */
	uint32_t wait_after_map_us;
	/* The cache, as in vmkv_cache_info; physical unless said otherwise. */
	uint32_t tag;           /* the top 20 bits of its sequences */
	uint32_t layout;        /* enum vmkv_layout */
	uint64_t page_bytes, slab_bytes;
	uint64_t reserved_bytes; /* virtual */
	uint64_t bytes_per_token, fixed_bytes;
	uint32_t slot_count, max_slots, max_tokens, read_align_tokens;
	uint32_t slab_pages;    /* pages of a whole slab ... */
	uint32_t stretch_pages; /* ... and of its parts: a power of two that divides it */
	uint32_t zero;          /* 1: memory from another sequence reads as zero */
	/* How many bits the numbers in vmkv_published_piece.place have; at most 63 in all. */
	uint8_t pages_bits, page_bits, region_bits, slot_bits;
};

struct vmkv_published_section {
	uint32_t id;       /* enum vmkv_published_id */
	uint32_t versions; /* 1 or 2 */
	uint64_t offset;   /* from the beginning of the file */
	uint64_t entry_bytes; /* of one version */
	uint64_t count;    /* of entries */
};

/* As in struct vmkv_stats: see there. */
struct vmkv_published_state {
	uint64_t epoch;
	uint64_t time_ns;       /* of the last change but for steps that mapped nothing */
	uint64_t budget_bytes, slab_bytes;
	uint64_t mapped_bytes, warm_bytes, retiring_bytes, unmapping_bytes, zeroing_bytes, held_bytes;
	uint64_t free_clean_bytes, free_dirty_bytes;
	uint64_t live_bytes;    /* at state.epoch; later by the lives */
	uint64_t table_bytes;
	uint64_t sequences, mappings, slabs;
	uint64_t steps;         /* at state.epoch: each later epoch is one more */
	uint64_t growing_steps, shortages, mapped_pages;
	uint64_t map_calls, unmap_calls, fill_calls, slab_calls, failed_calls;
	uint64_t mapped_bytes_peak, live_bytes_peak, slab_bytes_peak, mappings_peak;
	uint64_t completed;     /* greatest value that was retired */
	uint64_t shared_bytes;  /* of pages with more than one reference, each once */
	uint64_t events;        /* serial of the last event: greater ones belong to no state yet */
	uint64_t left_out;      /* slabs that have no entry, nor the pieces in them: the budget was
	                           raised beyond what there is room for */
	uint32_t lost;          /* 1: the device is lost */
	uint32_t reserved;
};

/* How long a sequence is: written by steps, and when the slot is opened. Means nothing unless the
 * slot is open. */
struct vmkv_published_live {
	uint64_t epoch;
	uint64_t step;     /* number of the step that named it last; or of the last one before it was
	                      opened */
	uint32_t tokens;   /* its length */
	uint32_t previous; /* before its last step: windows are trimmed by this */
	uint64_t reserved;
};

enum vmkv_published_slot_state {
	VMKV_PUBLISHED_SLOT_FREE = 0,
	VMKV_PUBLISHED_SLOT_OPEN = 1,
	VMKV_PUBLISHED_SLOT_RETIRING = 2 /* closed, waiting for vmkv_retire */
};

struct vmkv_published_slot {
	uint64_t epoch;
	uint64_t seq;        /* the open sequence; of a closed slot the last one, or 0 */
	uint64_t busy_until; /* greatest value given for it when this was written */
	uint64_t opened_ns;
	uint64_t closed_ns;  /* 0: open */
	uint64_t grown_ns;   /* when memory was last mapped for it; 0: never */
	uint64_t grown_step; /* number of that step */
	uint32_t state;      /* enum vmkv_published_slot_state */
	uint32_t generation; /* how many sequences it has served */
	uint32_t mapped_tokens; /* a length that needs nothing mapped */
	uint32_t ready_tokens;  /* a length that can be used now */
	/* Pages and pieces at its addresses, by state. */
	uint32_t mapped_pages, warm_pages, retiring_pages, unmapping_pages;
	uint32_t pieces;
	uint32_t reserved;
};

/* The states of a page that has an address: those of pages.h. */
enum vmkv_published_piece_state {
	VMKV_PUBLISHED_PIECE_NONE = 0,
	VMKV_PUBLISHED_PIECE_MAPPED = 1,    /* behind an open sequence */
	VMKV_PUBLISHED_PIECE_WARM = 2,      /* zeroed, behind a closed slot or ahead of a sequence */
	VMKV_PUBLISHED_PIECE_RETIRING = 3,  /* given back, waiting for vmkv_retire */
	VMKV_PUBLISHED_PIECE_UNMAPPING = 4  /* on its way out of the page tables */
};

/* A piece's stamp, from its lowest bit on: */
#define VMKV_PUBLISHED_STATE_BITS 3 /* its state, enum vmkv_published_piece_state ... */
                                    /* ... as many: the state before */
#define VMKV_PUBLISHED_AGE_BITS 12  /* how many epochs earlier that was its state, too */
#define VMKV_PUBLISHED_AGE_SHIFT 6
#define VMKV_PUBLISHED_EPOCH_SHIFT 18 /* the rest: the epoch */

/* One mapping: pages [page, page + pages) of a span's addresses, which begin at
 * region.base + slot * region.slot_stride; behind them as many pages of a slab. Where the entry is
 * says which: one whose first page is page p of slab s is entry
 *   s * slab_pages + p % stretch_pages * (slab_pages / stretch_pages) + p / stretch_pages
 * (spans that grow together take pages at the same place of neighbouring stretches: so what a step
 * writes lies together). One sequence uses it. */
struct vmkv_published_piece {
	uint64_t stamp; /* 0: there never was one */
	uint64_t place; /* pages, page, region, slot, from the lowest bit on; bits as in the header.
	                   Means nothing while the state is NONE. */
};

struct vmkv_published_slab {
	uint64_t epoch;
	uint64_t bytes;    /* 0: there is none with this index */
	uint64_t alias;    /* where its private mapping lies; 0: none */
	uint32_t pieces;   /* that begin in it */
	uint32_t mapped_pages, warm_pages, retiring_pages, unmapping_pages;
	uint32_t reserved;
};

enum vmkv_published_event_kind {
	VMKV_PUBLISHED_EVENT_NONE = 0,
	VMKV_PUBLISHED_EVENT_MAP = 1,       /* one piece; duration: of the whole driver call */
	VMKV_PUBLISHED_EVENT_UNMAP = 2,     /* the same */
	VMKV_PUBLISHED_EVENT_SHORTAGE = 3,  /* bytes: missing, or mappings that are; region: enum
	                                       vmkv_shortage_kind; slot and seq: the step's first, none
	                                       if it was slots that an open lacked */
	VMKV_PUBLISHED_EVENT_RETIRE = 4,    /* a piece that was trimmed, or a closed slot's memory
	                                       (region UINT32_MAX), goes back or becomes warm */
	VMKV_PUBLISHED_EVENT_OPEN = 5,
	VMKV_PUBLISHED_EVENT_CLOSE = 6,     /* bytes: mapped then */
	VMKV_PUBLISHED_EVENT_TRIM = 7,      /* one piece that a window has passed */
	VMKV_PUBLISHED_EVENT_SLAB = 8,      /* created: address is its alias; region: its index */
	VMKV_PUBLISHED_EVENT_SLAB_GONE = 9, /* returned to the device */
	VMKV_PUBLISHED_EVENT_BUDGET = 10,   /* set anew, to bytes */
	VMKV_PUBLISHED_EVENT_LOST = 11      /* the device is lost */
};

/* Written one after the other: the entry with serial s was overwritten if it holds another. serial
 * is 0 while it is being written. An entry beyond state.events is not part of a state yet. */
struct vmkv_published_event {
	uint64_t serial;  /* from 1 */
	uint64_t time_ns;
	uint64_t step;    /* number of the last step that had succeeded */
	uint64_t seq;     /* that it happened for, or 0 */
	uint64_t address; /* first address, 0: none; of the first region's piece */
	uint64_t bytes;   /* of one piece, or of what it is about */
	uint16_t kind;    /* enum vmkv_published_event_kind */
	uint16_t regions; /* of what happens to a piece: it happened to so many, each at the same
	                     pages of the next region's addresses, as long; 0: not to pieces */
	uint32_t slot;    /* UINT32_MAX: none */
	uint32_t region;  /* UINT32_MAX: none, or all of the slot */
	uint32_t duration_ns; /* 0: not measured; UINT32_MAX: that or longer */
};

enum vmkv_published_call {
	VMKV_PUBLISHED_CALL_MAP = 0,
	VMKV_PUBLISHED_CALL_UNMAP = 1,
	VMKV_PUBLISHED_CALL_FILL = 2,
	VMKV_PUBLISHED_CALLS = 3
};

/* How long driver calls took, each with everything that went in it. Each number is right by itself;
 * read while one is added they may differ by that. buckets[i] counts calls of [2^i, 2^(i+1)) ns,
 * the first also 0, the last also longer ones. */
struct vmkv_published_times {
	uint64_t sum_ns;
	uint64_t max_ns;
	uint64_t ranges;   /* pieces, ranges or fills in all calls together */
	uint64_t reserved;
	uint64_t buckets[VMKV_PUBLISHED_BUCKETS];
};

/* A group of layers. */
struct vmkv_published_group {
	uint32_t policy;        /* enum vmkv_policy */
	uint32_t layers, tensors;
	uint32_t first_place;   /* places of [layer][tensor] */
	uint64_t token_bytes;   /* live bytes of a token, all layers; 0 for a state */
	uint64_t window_tokens; /* window + slack: tokens below previous - this are dead; or 0 */
};

/* What is backed together: a range of addresses for each slot, as in layout.h. */
struct vmkv_published_region {
	uint64_t base;        /* address of slot 0 */
	uint64_t slot_stride; /* bytes */
	uint64_t token_bytes; /* from one token to the next; 0 for a state */
	uint64_t fixed_bytes; /* a state's bytes; 0 otherwise */
	uint32_t group;
	uint32_t reserved;
};

/* Where the rows of a tensor of a layer lie in its region. */
struct vmkv_published_place {
	uint64_t offset;    /* of token 0, from the slot's first address in the region */
	uint64_t row_bytes;
	uint32_t region, group, layer, tensor;
};

#endif
