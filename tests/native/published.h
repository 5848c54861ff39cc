/* SPDX-License-Identifier: MIT
 *
 * A reader of what caches publish, written from the format's description alone: it finds the versions
 * that count, and says what is wrong with the state that they make.
 */
#ifndef PUBLISHED_H
#define PUBLISHED_H

#include <stdbool.h>
#include <stddef.h>

#include "publish_format.h"

/* A mapping, as its entry tells it; pages is 0 if there is none. */
struct published_piece {
	uint32_t slot, region, page, pages;
	uint32_t phys; /* number of its first physical page: slab * slab_pages + page in the slab */
	uint32_t state;
};

/* The file as it was copied, and of each entry the version that counts. */
struct published {
	unsigned char *bytes;
	size_t size;
	const struct vmkv_published_header *header;
	uint64_t epoch;
	struct vmkv_published_state state;
	struct vmkv_published_live *lives;
	struct vmkv_published_slot *slots;
	struct published_piece *pieces;
	struct vmkv_published_slab *slabs;
	const struct vmkv_published_event *ring;
	const struct vmkv_published_times *times;
	const struct vmkv_published_group *groups;
	const struct vmkv_published_region *regions;
	const struct vmkv_published_place *places;
	uint64_t slot_count, piece_count, slab_count, group_count, region_count, place_count;
	uint32_t *by_phys; /* index of the piece that begins at a page, + 1 */
	uint64_t attempts; /* copies that it took */
	char wrong[256];   /* what is, if anything */
};

/* Copy a file that may be written meanwhile. Returns false, with `wrong`, if it isn't one, or no quiet
 * moment came. The caller frees it in both cases. */
bool published_read(int fd, struct published *ret);
/* Take a copy of a whole file, which has been made already. */
bool published_take(const unsigned char *bytes, size_t size, struct published *ret);
void published_free(struct published *p);

/* Say what is wrong; returns false. */
bool published_wrong(struct published *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Whether the state is whole: all that the format says about such. */
bool published_check(struct published *p);
/* The piece that begins at a physical page, by its number in the file; NULL: there is none. */
const struct published_piece *published_piece(const struct published *p, uint64_t phys);
/* Whether two states are the same, epochs and times apart. */
bool published_same(const struct published *a, struct published *b);

/* Whether anything belongs to a change that was never made whole. */
bool published_is_torn(const struct published *p);

/* The only published file of this process, open; fails the test if there is none, or another. */
int published_open(void);
/* Publish in a new directory of the test's own, by XDG_RUNTIME_DIR. Returns its path; removed at exit. */
const char *published_directory(void);

#endif
