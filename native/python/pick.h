/* SPDX-License-Identifier: MIT
 *
 * Which of two versions counts of each entry of a published file, see publish_format.h: what a
 * reader does ten times a second. Compiled into the extension module: numpy takes a pass over all
 * entries for each of a dozen steps of it.
 */
#ifndef VMKV_PICK_H
#define VMKV_PICK_H

#include <stdint.h>

/* Entries in memory, each with two versions that begin with their epoch. */
struct vmkv_pick_entries {
	const void *first, *second; /* the versions of entry 0 */
	uint64_t stride;            /* from an entry to the next one, of both */
	uint64_t count;
	uint64_t entry_bytes;       /* of one version */
};

/* Copy the version of each entry that counts at an epoch to ret, one behind the other; of one that
 * has none the first. Returns how many have none. */
uint64_t vmkv_pick_newest(const struct vmkv_pick_entries *entries, uint64_t epoch, void *ret);

/* Entries of the section of pieces in memory, of whole slabs. */
struct vmkv_pick_pieces {
	const void *entries;
	uint64_t count;
	uint64_t entry_bytes;
	uint64_t first;          /* index of the first in the section */
	uint32_t slab_pages, stretch_pages; /* these as in the header of the file, where stretch_pages
	                                       divides slab_pages */
	uint32_t pages_bits, page_bits, region_bits, slot_bits;
};

/* A mapping, unpacked. */
struct vmkv_pick_piece {
	uint32_t slot, region, page, pages;
	uint32_t phys;     /* slab * slab_pages + page in the slab */
	uint16_t state;    /* enum vmkv_published_piece_state */
	uint16_t refcount;
};

/* Unpack what there is at an epoch, in order of phys; *ret_count: how much. ret has room for all
 * entries. Returns how many have no state that counts. */
uint64_t vmkv_pick_mappings(const struct vmkv_pick_pieces *pieces, uint64_t epoch,
                            struct vmkv_pick_piece *ret, uint64_t *ret_count);

/* Numbers of 4 or 8 bytes in entries that lie one behind the other. */
struct vmkv_pick_column {
	const void *rows;
	uint64_t entry_bytes;
	uint64_t offset; /* in an entry */
	uint32_t number_bytes;
	uint32_t reserved;
	const int64_t *index; /* only of these entries, if it isn't NULL */
	uint64_t count;       /* of entries, or of indexes */
	/* Out: the sum and the greatest, which bits are set in any, and how many aren't 0. */
	uint64_t sum, most, bits, nonzero;
};

void vmkv_pick_add_up(struct vmkv_pick_column *columns, uint32_t count);

/* Indexes of entries with such a number of 4 bytes; returns how many. */
uint64_t vmkv_pick_equal(const struct vmkv_pick_column *column, uint32_t number,
                         int64_t *ret_index);

/* A section of a file with two versions of each entry, interleaved, and where to. */
struct vmkv_pick_section {
	uint64_t offset, count, entry_bytes;
	void *ret; /* count entries, as by vmkv_pick_newest */
};

/* A look into an open file: nothing in it is believed but for its size, which is checked. */
struct vmkv_pick_look {
	int fd;
	uint32_t reserved;
	uint64_t header_offset; /* of the header's epoch and beat_ns */
	void *room;             /* for the largest of the sections as it lies in the file */
	uint64_t epoch, beat_ns; /* out */
};

/* The state and the lives as of one moment, as most looks find them at the first go. Returns 0, or
 * -EAGAIN if they changed meanwhile or can't be read. */
int vmkv_pick_look_live(struct vmkv_pick_look *look, const struct vmkv_pick_section *state,
                        const struct vmkv_pick_section *lives);

/* What changes only with the state, as of the look before this: of two sections, as long as the
 * state has the same epoch still. */
int vmkv_pick_look_grown(struct vmkv_pick_look *look, const struct vmkv_pick_section *state,
                         const struct vmkv_pick_section sections[2]);

#endif
