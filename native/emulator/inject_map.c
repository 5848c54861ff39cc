/* SPDX-License-Identifier: MIT
 *
 * Records of pages, by binary search among chunks.
 */
#include <stdlib.h>
#include <string.h>

#include "inject_map.h"

void emu_page_map_fini(struct emu_page_map *map)
{
	for (uint64_t i = 0; i < map->count; i++)
		free(map->chunks[i]);
	free(map->chunks);
	map->chunks = NULL;
	map->count = map->room = 0;
}

/* The place of the chunk, or where it would be. */
static uint64_t place_of(const struct emu_page_map *map, uint64_t number)
{
	uint64_t low = 0, high = map->count;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (map->chunks[middle]->number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int room_make(struct emu_page_map *map)
{
	uint64_t room = map->room ? 2 * map->room : 16;
	struct emu_page_chunk **grown;

	if (map->count < map->room)
		return 0;
	grown = realloc(map->chunks, room * sizeof(*grown));
	if (!grown)
		return -1;
	map->chunks = grown;
	map->room = room;
	return 0;
}

struct emu_page_chunk *emu_page_map_make(struct emu_page_map *map, uint64_t page)
{
	uint64_t number = page / EMU_MAP_PAGES, i = place_of(map, number);
	struct emu_page_chunk *chunk;

	if (i < map->count && map->chunks[i]->number == number)
		return map->chunks[i];
	if (room_make(map))
		return NULL;
	chunk = calloc(1, sizeof(*chunk) + EMU_MAP_PAGES * map->item_bytes);
	if (!chunk)
		return NULL;
	chunk->number = number;
	memmove(&map->chunks[i + 1], &map->chunks[i], (map->count - i) * sizeof(map->chunks[0]));
	map->chunks[i] = chunk;
	map->count++;
	return chunk;
}

struct emu_page_chunk *emu_page_map_from(const struct emu_page_map *map, uint64_t page)
{
	uint64_t i = place_of(map, page / EMU_MAP_PAGES);

	return i < map->count ? map->chunks[i] : NULL;
}

void *emu_page_chunk_item(const struct emu_page_map *map, struct emu_page_chunk *chunk, uint64_t page)
{
	return (char *)chunk->items + page % EMU_MAP_PAGES * map->item_bytes;
}

void *emu_page_map_find(const struct emu_page_map *map, uint64_t page, struct emu_page_chunk **chunk)
{
	struct emu_page_chunk *found = emu_page_map_from(map, page);

	if (!found || found->number != page / EMU_MAP_PAGES)
		return NULL;
	if (chunk)
		*chunk = found;
	return emu_page_chunk_item(map, found, page);
}
