/* SPDX-License-Identifier: MIT
 *
 * A VM's mappings by address: a treap, whose shape follows from the addresses alone, and a list of them in
 * order. All is inside the mappings, so that nothing here can fail.
 */
#include "vm_parts.h"

/* Addresses that follow one another get priorities that don't. */
static uint64_t priority_of(uint64_t start)
{
	return emu_mix(start + EMU_MIX_STEP);
}

void emu_mappings_init(struct emu_mappings *mappings)
{
	mappings->root = NULL;
	emu_list_init(&mappings->order);
}

struct emu_mapping *emu_mapping_at_or_after(const struct emu_mappings *mappings, uint64_t page)
{
	struct emu_mapping *at = mappings->root, *found = NULL;

	while (at) {
		if (at->last < page) {
			at = at->right;
		} else {
			found = at;
			at = at->left;
		}
	}
	return found;
}

struct emu_mapping *emu_mapping_next(const struct emu_mappings *mappings,
                                     const struct emu_mapping *mapping)
{
	struct emu_list *next = mapping ? mapping->order.next : mappings->order.next;

	return next == &mappings->order ? NULL : EMU_ENTRY(next, struct emu_mapping, order);
}

static void subtree_split(struct emu_mapping *at, uint64_t start, struct emu_mapping **left,
                          struct emu_mapping **right)
{
	while (at) {
		if (at->start < start) {
			*left = at;
			left = &at->right;
			at = *left;
		} else {
			*right = at;
			right = &at->left;
			at = *right;
		}
	}
	*left = *right = NULL;
}

static void subtrees_merge(struct emu_mapping **to, struct emu_mapping *left, struct emu_mapping *right)
{
	while (left && right) {
		if (left->priority > right->priority) {
			*to = left;
			to = &left->right;
			left = *to;
		} else {
			*to = right;
			to = &right->left;
			right = *to;
		}
	}
	*to = left ? left : right;
}

static struct emu_mapping **place_of(struct emu_mappings *mappings, const struct emu_mapping *mapping)
{
	struct emu_mapping **place = &mappings->root;

	while (*place && *place != mapping)
		place = (*place)->start < mapping->start ? &(*place)->right : &(*place)->left;
	return place;
}

void emu_mapping_insert(struct emu_mappings *mappings, struct emu_mapping *mapping,
                        struct emu_mapping *after)
{
	struct emu_mapping **place = &mappings->root;

	emu_list_append(after ? &after->order : &mappings->order, &mapping->order);
	mapping->priority = priority_of(mapping->start);
	while (*place && (*place)->priority > mapping->priority)
		place = (*place)->start < mapping->start ? &(*place)->right : &(*place)->left;
	subtree_split(*place, mapping->start, &mapping->left, &mapping->right);
	*place = mapping;
}

void emu_mapping_remove(struct emu_mappings *mappings, struct emu_mapping *mapping)
{
	subtrees_merge(place_of(mappings, mapping), mapping->left, mapping->right);
	emu_list_remove(&mapping->order);
}
