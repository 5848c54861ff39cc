/* SPDX-License-Identifier: MIT
 *
 * Records of pages by their number, in chunks that are made when the first of their pages is asked for,
 * and stay.
 */
#ifndef EMU_INJECT_MAP_H
#define EMU_INJECT_MAP_H

#include <stddef.h>
#include <stdint.h>

#define EMU_MAP_PAGES 512

struct emu_page_chunk {
	uint64_t number; /* of its pages' numbers, divided by EMU_MAP_PAGES */
	uint64_t extra;  /* the user's */
	uint64_t items[]; /* zeros at first */
};

struct emu_page_map {
	struct emu_page_chunk **chunks; /* in order */
	uint64_t count, room;
	size_t item_bytes;
};

void emu_page_map_fini(struct emu_page_map *map);
/* The chunk of a page; made if there is none. NULL: no memory. */
struct emu_page_chunk *emu_page_map_make(struct emu_page_map *map, uint64_t page);
/* The chunk of a page, or the first of later ones; NULL: none. */
struct emu_page_chunk *emu_page_map_from(const struct emu_page_map *map, uint64_t page);
/* A page's record, and its chunk (chunk may be NULL); NULL: none. */
void *emu_page_map_find(const struct emu_page_map *map, uint64_t page, struct emu_page_chunk **chunk);
/* The record of a page of that chunk. */
void *emu_page_chunk_item(const struct emu_page_map *map, struct emu_page_chunk *chunk, uint64_t page);

#endif
