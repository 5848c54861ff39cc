/* SPDX-License-Identifier: MIT
 *
 * What the tests of the layout share.
 */
#ifndef LAYOUT_FIXTURE_H
#define LAYOUT_FIXTURE_H

#include "layout.h"
#include "model.h"
#include "pages.h"

/* Options as vmkv_layout_init wants them, with all defaults filled in. */
static inline struct vmkv_cache_options layout_options(const struct model *m,
                                                       enum vmkv_layout layout,
                                                       uint32_t max_tokens)
{
	return (struct vmkv_cache_options){ .geometry = &m->geometry,
		                            .page_bytes = 64 * KIB,
		                            .slab_bytes = 64 * MIB,
		                            .layout = layout,
		                            .max_slots = 8,
		                            .slot_count = 16,
		                            .max_tokens = max_tokens,
		                            .read_align_tokens = 1 };
}

static inline void layout_make(struct vmkv_addresses *layout,
                               const struct vmkv_cache_options *options)
{
	char text[256] = "";

	if (vmkv_layout_init(layout, options, text, sizeof(text)) != 0)
		CHECK_FAIL("vmkv_layout_init: %s", text);
}

static inline const struct vmkv_place *place_of(const struct vmkv_addresses *layout, uint32_t group,
                                                uint32_t layer, uint32_t tensor)
{
	const struct vmkv_group_layout *g = &layout->groups[group];

	return &layout->places[g->first_place + layer * g->tensor_count + tensor];
}

static inline const struct vmkv_region *region_of(const struct vmkv_addresses *layout,
                                                  uint32_t group, uint32_t layer, uint32_t tensor)
{
	return &layout->regions[place_of(layout, group, layer, tensor)->region];
}

#endif
