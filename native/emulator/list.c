/* SPDX-License-Identifier: MIT */
#include "emu.h"

void emu_list_init(struct emu_list *list)
{
	list->previous = list;
	list->next = list;
}

bool emu_list_is_empty(const struct emu_list *list)
{
	return list->next == list;
}

void emu_list_append(struct emu_list *list, struct emu_list *item)
{
	item->previous = list->previous;
	item->next = list;
	list->previous->next = item;
	list->previous = item;
}

void emu_list_remove(struct emu_list *item)
{
	item->previous->next = item->next;
	item->next->previous = item->previous;
	emu_list_init(item);
}

void emu_list_splice(struct emu_list *list, struct emu_list *from)
{
	if (emu_list_is_empty(from))
		return;
	from->next->previous = list->previous;
	list->previous->next = from->next;
	from->previous->next = list;
	list->previous = from->previous;
	emu_list_init(from);
}
