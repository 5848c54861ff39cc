/* SPDX-License-Identifier: MIT */
#include "model_config.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct vmkv_tensor f16[] = {
	{ .dtype = VMKV_DTYPE_F16, .heads = 2, .head_dim = 64 },
	{ .dtype = VMKV_DTYPE_F16, .heads = 2, .head_dim = 64 },
};
static const struct vmkv_tensor uneven[] = {
	{ .dtype = VMKV_DTYPE_BF16, .heads = 2, .head_dim = 96 },
	{ .dtype = VMKV_DTYPE_F8, .heads = 2, .head_dim = 64 },
};
static const struct vmkv_tensor latent_q8_0[] = {
	{ .dtype = VMKV_DTYPE_Q8_0, .heads = 1, .head_dim = 576 },
};
static const struct vmkv_tensor odd[] = { { .row_bytes = 5000 }, { .row_bytes = 3000 } };
static const struct vmkv_tensor huge[] = { { .row_bytes = 300000 }, { .row_bytes = 200004 } };
static const struct vmkv_tensor state[] = { { .row_bytes = 3000 }, { .row_bytes = 70000 } };

#define GROUP(policy_, layers_, tensors_, window_, slack_)                                         \
	{ .struct_size = sizeof(struct vmkv_group), .policy = VMKV_POLICY_##policy_,              \
	  .layers = layers_, .tensors = tensors_, .tensor_count = COUNT(tensors_),                \
	  .window_tokens = window_, .slack_tokens = slack_ }

static const struct vmkv_group full_f16[] = { GROUP(FULL, 2, f16, 0, 0) };
static const struct vmkv_group mixed_small[] = {
	GROUP(FULL, 2, uneven, 0, 0),
	GROUP(WINDOW, 2, f16, 20, 5),
	GROUP(STATE, 1, state, 0, 0),
};
static const struct vmkv_group mixed_odd[] = {
	GROUP(WINDOW, 2, odd, 30, 0),
	GROUP(FULL, 1, odd, 0, 0),
	GROUP(STATE, 2, state, 0, 0),
};
static const struct vmkv_group full_odd[] = { GROUP(FULL, 1, odd, 0, 0) };
static const struct vmkv_group full_latent[] = { GROUP(FULL, 4, latent_q8_0, 0, 0) };
static const struct vmkv_group full_huge[] = { GROUP(FULL, 1, huge, 0, 0) };
static const struct vmkv_group windows[] = {
	GROUP(WINDOW, 2, f16, 40, 10),
	GROUP(WINDOW, 1, latent_q8_0, 100, 0),
};
static const struct vmkv_group states[] = { GROUP(STATE, 3, state, 0, 0) };
static const struct vmkv_group mixed_huge[] = {
	GROUP(FULL, 1, huge, 0, 0),
	GROUP(WINDOW, 1, huge, 8, 2),
};

const struct model_config model_configs[] = {
	{ "layer, 4 KiB, full", NULL, VMKV_LAYOUT_LAYER, 500, 1, 5, 8, 4 * KIB, 2 * MIB, 0, 0,
	  full_f16, COUNT(full_f16) },
	{ "token, 4 KiB, full, window and state", NULL, VMKV_LAYOUT_TOKEN, 200, 8, 5, 9, 4 * KIB,
	  2 * MIB, 24 * KIB, 12 * KIB, mixed_small, COUNT(mixed_small) },
	{ "layer, 64 KiB, window, full and state", NULL, VMKV_LAYOUT_LAYER, 300, 1, 4, 6, 64 * KIB,
	  4 * MIB, 0, 128 * KIB, mixed_odd, COUNT(mixed_odd) },
	{ "token, 64 KiB, q8_0 latents", NULL, VMKV_LAYOUT_TOKEN, 700, 256, 6, 8, 64 * KIB, 2 * MIB,
	  0, 0, full_latent, COUNT(full_latent) },
	{ "layer, 2 MiB, full", NULL, VMKV_LAYOUT_LAYER, 40, 1, 5, 6, 2 * MIB, 6 * MIB, 0, 0,
	  full_huge, COUNT(full_huge) },
	{ "layer, 4 KiB, windows", NULL, VMKV_LAYOUT_LAYER, 1500, 4, 4, 7, 4 * KIB, 2 * MIB, 0,
	  16 * KIB, windows, COUNT(windows) },
	{ "layer, 64 KiB, states", NULL, VMKV_LAYOUT_LAYER, 90, 1, 5, 8, 64 * KIB, 2 * MIB, 0, 0,
	  states, COUNT(states) },
	{ "token, 2 MiB, full and window", NULL, VMKV_LAYOUT_TOKEN, 60, 1, 4, 6, 2 * MIB, 4 * MIB,
	  4 * MIB, 0, mixed_huge, COUNT(mixed_huge) },
	{ "layer, 4 KiB, few mappings", "max_mappings=22", VMKV_LAYOUT_LAYER, 500, 1, 6, 8, 4 * KIB,
	  2 * MIB, 8 * KIB, 0, full_f16, COUNT(full_f16) },
	{ "token, 64 KiB, many slots", NULL, VMKV_LAYOUT_TOKEN, 20, 1, 66, 72, 64 * KIB, 2 * MIB, 0,
	  0, full_odd, COUNT(full_odd) },
	{ "layer, 64 KiB, little memory", "memory=5MiB", VMKV_LAYOUT_LAYER, 300, 32, 4, 4, 64 * KIB,
	  2 * MIB, 0, 0, mixed_odd, COUNT(mixed_odd) },
};
const uint32_t model_config_count = COUNT(model_configs);

/* Roughly what a sequence of the greatest length needs, and how many spans it has. */
static uint64_t full_bytes(const struct model_config *config, uint64_t *spans)
{
	uint64_t bytes = 0;

	*spans = 0;
	for (uint32_t g = 0; g < config->group_count; g++) {
		const struct vmkv_group *group = &config->groups[g];
		bool state_group = group->policy == VMKV_POLICY_STATE;

		*spans += state_group || config->layout == VMKV_LAYOUT_TOKEN
		              ? 1
		              : group->layers * group->tensor_count;
		for (uint32_t t = 0; t < group->tensor_count; t++) {
			uint64_t row = group->tensors[t].row_bytes;

			if (row == 0)
				row = UINT64_C(2) * group->tensors[t].heads *
				      group->tensors[t].head_dim;
			bytes += group->layers * row * (state_group ? 1 : config->max_tokens);
		}
	}
	return bytes + *spans * config->page_bytes;
}

uint64_t model_budget_draw(const struct model_config *config, struct seeded *random)
{
	uint64_t spans, most = full_bytes(config, &spans) * config->max_slots;
	uint64_t budget = most / 100 * seeded_from(random, 5, 110);

	/* Mostly no whole number of pages. */
	budget += seeded_next(random) % config->page_bytes;
	return budget > spans * config->page_bytes ? budget : spans * config->page_bytes;
}

struct vmkv_cache_options model_config_draw(const struct model_config *config, struct seeded *random,
                                            struct vmkv_geometry *geometry)
{
	const uint64_t warm[] = { 0, 0, VMKV_WARM_OFF, UINT64_MAX - 1 };

	*geometry = (struct vmkv_geometry){ .struct_size = sizeof(*geometry),
		                            .groups = config->groups,
		                            .group_count = config->group_count };
	return (struct vmkv_cache_options){
		.struct_size = sizeof(struct vmkv_cache_options),
		.geometry = geometry,
		.budget_bytes = model_budget_draw(config, random),
		.page_bytes = config->page_bytes,
		.slab_bytes = config->slab_bytes * seeded_from(random, 1, 2),
		.layout = config->layout,
		.max_slots = config->max_slots,
		.slot_count = config->slot_count,
		.max_tokens = config->max_tokens,
		.read_align_tokens = config->read_align_tokens,
		.zero = model_chance(random, 75) ? VMKV_ZERO_ON : VMKV_ZERO_OFF,
		.mapping_max_bytes = config->mapping_max_bytes,
		.window_mapping_max_bytes = config->window_mapping_max_bytes,
		.warm_max_bytes = warm[seeded_from(random, 0, 3)],
	};
}
