/* SPDX-License-Identifier: MIT
 *
 * What the model test runs: geometries with few, odd pages, so that everything happens often.
 */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include <stdbool.h>

#include "seeded.h"
#include "vmkv.h"

struct model_config {
	const char *name;
	const char *device; /* bounds, as options of the host device, or NULL */
	uint32_t layout, max_tokens, read_align_tokens, max_slots, slot_count;
	uint64_t page_bytes, slab_bytes;
	uint64_t mapping_max_bytes, window_mapping_max_bytes;
	const struct vmkv_group *groups;
	uint32_t group_count;
};

extern const struct model_config model_configs[];
extern const uint32_t model_config_count;

/* The config's options, with what it leaves open drawn at random. geometry is filled in. */
struct vmkv_cache_options model_config_draw(const struct model_config *config, struct seeded *random,
                                            struct vmkv_geometry *geometry);
/* A budget between less than what one sequence needs and more than all can use. */
uint64_t model_budget_draw(const struct model_config *config, struct seeded *random);
/* Whether it happens that has so many chances in a hundred. */
static inline bool model_chance(struct seeded *random, uint32_t percent)
{
	return seeded_next(random) % 100 < percent;
}

#endif
