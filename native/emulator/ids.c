/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "emu.h"

/* items[id - 1] is the item of id. No number below `lowest`, counted from 0, is free. */

static int ids_grow(struct emu_ids *ids)
{
	uint32_t size = ids->size ? ids->size * 2 : 16;
	void **items;

	if (size < ids->size)
		return -ENOMEM;
	items = realloc(ids->items, size * sizeof(*items));
	if (!items)
		return -ENOMEM;
	memset(items + ids->size, 0, (size - ids->size) * sizeof(*items));
	ids->items = items;
	ids->size = size;
	return 0;
}

int emu_ids_add(struct emu_ids *ids, void *item, uint32_t *id)
{
	uint32_t i = ids->lowest;
	int err;

	if (ids->used == ids->size) {
		err = ids_grow(ids);
		if (err)
			return err;
	}
	while (ids->items[i])
		i++;
	ids->items[i] = item;
	ids->used++;
	ids->lowest = i + 1;
	*id = i + 1;
	return 0;
}

void *emu_ids_find(const struct emu_ids *ids, uint32_t id)
{
	return id && id <= ids->size ? ids->items[id - 1] : NULL;
}

void *emu_ids_remove(struct emu_ids *ids, uint32_t id)
{
	void *item = emu_ids_find(ids, id);

	if (!item)
		return NULL;
	ids->items[id - 1] = NULL;
	ids->used--;
	if (id - 1 < ids->lowest)
		ids->lowest = id - 1;
	return item;
}

void *emu_ids_next(const struct emu_ids *ids, uint32_t *id)
{
	for (uint32_t i = *id ? *id - 1 : 0; i < ids->size; i++) {
		if (ids->items[i]) {
			*id = i + 1;
			return ids->items[i];
		}
	}
	return NULL;
}

void emu_ids_fini(struct emu_ids *ids)
{
	free(ids->items);
	memset(ids, 0, sizeof(*ids));
}
