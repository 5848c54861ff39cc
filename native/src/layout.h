/* SPDX-License-Identifier: MIT
 *
 * Layout: from a geometry to addresses. Pure arithmetic: no driver, no lock, no state.
 *
 * A region is what is backed together: one contiguous range of addresses for every slot. In the
 * `layer` layout each layer and tensor has a region of its own; in the `token` layout each group has
 * one, in which a token's rows of all layers lie side by side; a state group has one in both.
 */
#ifndef VMKV_LAYOUT_H
#define VMKV_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmkv.h"

struct vmkv_region {
	uint64_t base;        /* address of slot 0; set once addresses are reserved */
	uint64_t slot_stride; /* bytes, a multiple of 2 MiB */
	uint64_t token_bytes; /* from one token to the next; 0 for a state */
	uint64_t fixed_bytes; /* a state's bytes; 0 otherwise */
	uint32_t group;
	uint32_t mapping_max_pages; /* no mapping is longer ... */
	bool mapping_aligned;       /* ... or crosses a multiple of it */
	bool window;
	uint64_t window_tokens; /* window + slack: tokens below length - this are dead */
};

/* Where a tensor's rows lie within its region. */
struct vmkv_place {
	uint32_t region;
	uint64_t offset;
	uint64_t row_bytes;
};

struct vmkv_group_layout {
	uint32_t policy, layers, tensor_count;
	uint32_t first_place;  /* places of [layer][tensor] */
	uint64_t token_bytes;  /* live bytes of a token, all layers; 0 for a state */
	uint64_t window_tokens;
};

struct vmkv_addresses {
	struct vmkv_region *regions;
	uint32_t region_count;
	uint32_t layout; /* enum vmkv_layout */
	struct vmkv_place *places;
	struct vmkv_group_layout *groups;
	uint32_t group_count;
	uint32_t window_groups;
	uint64_t page_bytes;
	uint32_t page_shift;
	uint32_t slot_count;
	uint32_t max_tokens;
	uint32_t read_align_tokens;
	uint32_t reserved_tokens; /* max_tokens rounded up to read_align_tokens */
	uint64_t token_bytes;     /* live bytes of a token in all full and window groups */
	uint64_t full_token_bytes; /* ... in the full groups */
	uint64_t fixed_bytes;     /* live bytes of the state groups */
	uint64_t reserved_bytes;
	size_t table_bytes;
};

/* Check the options and compute everything but the bases. options holds no defaults any more but for
 * the mapping bounds. On failure one line goes to error.
 * -EINVAL, -EOVERFLOW, -E2BIG, -ENOMEM as vmkv_cache_create. */
int vmkv_layout_init(struct vmkv_addresses *layout, const struct vmkv_cache_options *options,
                     char *error, size_t error_bytes);
void vmkv_layout_fini(struct vmkv_addresses *layout);

/* Pages from 0 that must be behind a span of the region so that `tokens` tokens can be used. */
uint32_t vmkv_region_pages(const struct vmkv_addresses *layout, const struct vmkv_region *region,
                           uint32_t tokens);
/* Whole tokens that fit into so many pages; for a state reserved_tokens if all does, else 0. */
uint32_t vmkv_region_tokens(const struct vmkv_addresses *layout, const struct vmkv_region *region,
                            uint32_t pages);
/* Pages from 0 that are wholly dead when the length before the step is `tokens`. */
uint32_t vmkv_region_dead_pages(const struct vmkv_addresses *layout,
                                const struct vmkv_region *region, uint32_t tokens);
/* The least length at which the first `pages` pages are wholly dead (UINT32_MAX: never). */
uint32_t vmkv_region_dead_at(const struct vmkv_addresses *layout, const struct vmkv_region *region,
                             uint32_t pages);
/* Tokens that are dead when the length before the step is `tokens`. */
static inline uint32_t vmkv_window_dead(uint64_t window_tokens, uint32_t tokens)
{
	return tokens > window_tokens ? (uint32_t)(tokens - window_tokens) : 0;
}

/* vmkv_cache_need_bytes, without the check of its arguments. */
uint64_t vmkv_layout_need_pages(const struct vmkv_addresses *layout, uint32_t tokens,
                                uint32_t chunk_tokens);

#endif
