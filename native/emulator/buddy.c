/* SPDX-License-Identifier: MIT
 *
 * A buddy allocator of pages: blocks are powers of two, each at a multiple of its size, and halves
 * of one another. A range that is no power of two has several trees, the greatest first. Leaves
 * know who owns them, so that finding out what lies at a page is a walk down one tree.
 */
#include <errno.h>
#include <stdlib.h>

#include "memory_parts.h"

#define ORDERS 64

enum node_state { NODE_FREE, NODE_USED, NODE_SPLIT };

struct node {
	uint64_t page;
	uint32_t order; /* log2 of its pages */
	enum node_state state;
	struct node *parent, *halves[2];
	struct emu_list link; /* in free[order] */
	void *owner;
	uint64_t owner_page;
};

struct emu_buddy {
	uint64_t pages, used;
	struct node *roots[ORDERS];
	uint32_t root_count;
	struct emu_list free[ORDERS];
};

static uint64_t node_pages(const struct node *node)
{
	return 1ULL << node->order;
}

static uint32_t order_of(uint64_t pages)
{
	return 63 - (uint32_t)__builtin_clzll(pages);
}

static struct node *node_create(uint64_t page, uint32_t order, struct node *parent)
{
	struct node *node = calloc(1, sizeof(*node));

	if (!node)
		return NULL;
	node->page = page;
	node->order = order;
	node->parent = parent;
	emu_list_init(&node->link);
	return node;
}

/* Newest first: what was freed last is what is taken next, as in the kernel. */
static void node_set_free(struct emu_buddy *buddy, struct node *node)
{
	node->state = NODE_FREE;
	node->owner = NULL;
	emu_list_append(buddy->free[node->order].next, &node->link);
}

/* ---- life ------------------------------------------------------------------------------------ */

struct emu_buddy *emu_buddy_create(uint64_t pages)
{
	struct emu_buddy *buddy = calloc(1, sizeof(*buddy));
	uint64_t page = 0;

	if (!buddy)
		return NULL;
	for (uint32_t i = 0; i < ORDERS; i++)
		emu_list_init(&buddy->free[i]);
	buddy->pages = pages;
	while (page < pages) {
		struct node *root = node_create(page, order_of(pages - page), NULL);

		if (!root) {
			emu_buddy_destroy(buddy);
			return NULL;
		}
		buddy->roots[buddy->root_count++] = root;
		node_set_free(buddy, root);
		page += node_pages(root);
	}
	return buddy;
}

static void node_destroy(struct node *node)
{
	if (node->state == NODE_SPLIT) {
		node_destroy(node->halves[0]);
		node_destroy(node->halves[1]);
	}
	free(node);
}

void emu_buddy_destroy(struct emu_buddy *buddy)
{
	if (!buddy)
		return;
	for (uint32_t i = 0; i < buddy->root_count; i++)
		node_destroy(buddy->roots[i]);
	free(buddy);
}

uint64_t emu_buddy_used(const struct emu_buddy *buddy)
{
	return buddy->used;
}

/* ---- splitting and merging ------------------------------------------------------------------- */

static bool node_split(struct emu_buddy *buddy, struct node *node)
{
	struct node *low = node_create(node->page, node->order - 1, node);
	struct node *high = node_create(node->page + node_pages(node) / 2, node->order - 1, node);

	if (!low || !high) {
		free(low);
		free(high);
		return false;
	}
	if (node->state == NODE_FREE) {
		emu_list_remove(&node->link);
		node_set_free(buddy, high);
		node_set_free(buddy, low);
	} else {
		low->state = high->state = NODE_USED;
		low->owner = high->owner = node->owner;
		low->owner_page = node->owner_page;
		high->owner_page = node->owner_page + node_pages(low);
	}
	node->state = NODE_SPLIT;
	node->halves[0] = low;
	node->halves[1] = high;
	return true;
}

static void node_release(struct emu_buddy *buddy, struct node *node)
{
	struct node *parent;

	buddy->used -= node_pages(node);
	node_set_free(buddy, node);
	while ((parent = node->parent) && parent->halves[0]->state == NODE_FREE &&
	       parent->halves[1]->state == NODE_FREE) {
		emu_list_remove(&parent->halves[0]->link);
		emu_list_remove(&parent->halves[1]->link);
		free(parent->halves[0]);
		free(parent->halves[1]);
		node_set_free(buddy, parent);
		node = parent;
	}
}

static struct node *leaf_find(const struct emu_buddy *buddy, uint64_t page)
{
	struct node *node;
	uint32_t i = 0;

	while (page >= buddy->roots[i]->page + node_pages(buddy->roots[i]))
		i++;
	node = buddy->roots[i];
	while (node->state == NODE_SPLIT)
		node = node->halves[page >= node->halves[1]->page];
	return node;
}

/* ---- taking and giving back ------------------------------------------------------------------ */

/* One block of 2^order pages from the smallest free one that has it. */
static int block_take(struct emu_buddy *buddy, uint32_t order, struct node **ret)
{
	uint32_t from = order;
	struct node *node;

	while (from < ORDERS && emu_list_is_empty(&buddy->free[from]))
		from++;
	if (from == ORDERS)
		return -ENOSPC;
	node = EMU_ENTRY(buddy->free[from].next, struct node, link);
	while (node->order > order) {
		if (!node_split(buddy, node))
			return -ENOMEM;
		node = node->halves[0];
	}
	emu_list_remove(&node->link);
	node->state = NODE_USED;
	buddy->used += node_pages(node);
	*ret = node;
	return 0;
}

struct taking {
	struct emu_block *blocks;
	uint32_t count, room;
};

static int taking_add(struct taking *taking, const struct node *node)
{
	if (taking->count == taking->room) {
		uint32_t room = taking->room ? 2 * taking->room : 1;
		struct emu_block *grown = realloc(taking->blocks, room * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		taking->blocks = grown;
		taking->room = room;
	}
	taking->blocks[taking->count++] =
	    (struct emu_block){ .page = node->page, .pages = node_pages(node) };
	return 0;
}

int emu_buddy_allocate(struct emu_buddy *buddy, uint64_t pages, uint64_t least, uint64_t most,
                       struct emu_block **blocks, uint32_t *count)
{
	struct taking taking = { 0 };
	uint32_t order = order_of(most);
	int error = pages <= buddy->pages - buddy->used ? 0 : -ENOSPC;

	for (uint64_t left = pages; left && !error;) {
		struct node *node;

		if (order > order_of(left))
			order = order_of(left);
		error = block_take(buddy, order, &node);
		if (error == -ENOSPC && 1ULL << order > least) {
			order--;
			error = 0;
			continue;
		}
		if (error)
			break;
		error = taking_add(&taking, node);
		if (error)
			node_release(buddy, node);
		left -= 1ULL << order;
	}
	if (!error) {
		*blocks = taking.blocks;
		*count = taking.count;
		return 0;
	}
	for (uint32_t i = 0; i < taking.count; i++)
		emu_buddy_free(buddy, taking.blocks[i].page, taking.blocks[i].pages);
	free(taking.blocks);
	return error;
}

int emu_buddy_allocate_run(struct emu_buddy *buddy, uint64_t pages, uint64_t *page)
{
	uint32_t order = order_of(pages);
	struct node *node;
	int error;

	if (pages > 1ULL << order)
		order++;
	error = block_take(buddy, order, &node);
	if (error)
		return error;
	*page = node->page;
	if (pages < node_pages(node))
		emu_buddy_free(buddy, node->page + pages, node_pages(node) - pages);
	return 0;
}

void emu_buddy_free(struct emu_buddy *buddy, uint64_t page, uint64_t pages)
{
	uint64_t end = page + pages;

	while (page < end) {
		struct node *node = leaf_find(buddy, page);

		while (node->page < page || node->page + node_pages(node) > end) {
			/* Out of memory: what can't be cut off stays taken until the card ends. */
			if (!node_split(buddy, node))
				return;
			node = leaf_find(buddy, page);
		}
		page += node_pages(node);
		node_release(buddy, node);
	}
}

/* ---- owners ---------------------------------------------------------------------------------- */

void emu_buddy_own(struct emu_buddy *buddy, uint64_t page, void *owner, uint64_t owner_page)
{
	struct node *node = leaf_find(buddy, page);

	node->owner = owner;
	node->owner_page = owner_page;
}

void *emu_buddy_find(const struct emu_buddy *buddy, uint64_t page, uint64_t *owner_page,
                     uint64_t *pages)
{
	const struct node *node;

	if (page >= buddy->pages)
		return NULL;
	node = leaf_find(buddy, page);
	*pages = node->page + node_pages(node) - page;
	*owner_page = node->owner_page + (page - node->page);
	return node->owner;
}
