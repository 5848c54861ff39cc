/* SPDX-License-Identifier: MIT */
#include "layout.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "pages.h"
#include "util.h"

#define SPAN_ALIGN VMKV_STRETCH_BYTES
#define STATE_ALIGN 256u /* what every GPU API accepts as a buffer offset */
#define SLOTS_MAX (1u << 20)
#define REGIONS_MAX (1u << 16)
#define ROW_MAX (UINT64_C(1) << 40)

#define TOKEN_MAPPING_BYTES ((uint64_t)32 << 20)
#define WINDOW_MAPPING_BYTES ((uint64_t)256 << 10)

struct text {
	char *error;
	size_t bytes;
};

#define FAIL(text, rc, ...) (vmkv_text((text)->error, (text)->bytes, __VA_ARGS__), (rc))

static uint64_t round_up(uint64_t n, uint64_t multiple)
{
	return (n + multiple - 1) / multiple * multiple;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* What a row takes by its elements; 0 if it has none. at: its group, and its place there. */
static int elements_bytes(const struct vmkv_tensor *tensor, const uint32_t at[2],
                          const struct text *text, uint64_t *ret)
{
	uint64_t elements = (uint64_t)tensor->heads * tensor->head_dim;

	if (elements > ROW_MAX)
		return FAIL(text, -EOVERFLOW,
		            "group %u, tensor %u: a row of %u heads x %u elements is more than 2^40",
		            at[0], at[1], tensor->heads, tensor->head_dim);
	switch (tensor->dtype) {
	case VMKV_DTYPE_NONE:
		*ret = 0;
		return 0;
	case VMKV_DTYPE_F32:
		*ret = elements * 4;
		return 0;
	case VMKV_DTYPE_F16:
	case VMKV_DTYPE_BF16:
		*ret = elements * 2;
		return 0;
	case VMKV_DTYPE_F8:
		*ret = elements;
		return 0;
	case VMKV_DTYPE_Q8_0:
		*ret = elements / 32 * 34;
		if (elements % 32 == 0)
			return 0;
		return FAIL(text, -EINVAL,
		            "group %u, tensor %u: q8_0 rows have a multiple of 32 elements, not %" PRIu64,
		            at[0], at[1], elements);
	default:
		return FAIL(text, -EINVAL,
		            "group %u, tensor %u: dtype %u is not one of enum vmkv_dtype", at[0],
		            at[1], tensor->dtype);
	}
}

static int row_bytes(const struct vmkv_tensor *tensor, const uint32_t at[2],
                     const struct text *text, uint64_t *ret)
{
	uint64_t bytes = 0;
	int rc;

	if (tensor->reserved != 0)
		return FAIL(text, -E2BIG,
		            "group %u, tensor %u: sets a field that this library doesn't know", at[0],
		            at[1]);
	rc = elements_bytes(tensor, at, text, &bytes);
	if (rc != 0)
		return rc;
	if (tensor->row_bytes != 0 && tensor->row_bytes < bytes)
		return FAIL(text, -EINVAL,
		            "group %u, tensor %u: row_bytes %" PRIu64 " is less than the %" PRIu64
		            " bytes that heads, head_dim and dtype need",
		            at[0], at[1], tensor->row_bytes, bytes);
	*ret = tensor->row_bytes != 0 ? tensor->row_bytes : bytes;
	if (*ret == 0)
		return FAIL(text, -EINVAL,
		            "group %u, tensor %u: needs heads, head_dim and dtype, or row_bytes",
		            at[0], at[1]);
	if (*ret > ROW_MAX)
		return FAIL(text, -EOVERFLOW,
		            "group %u, tensor %u: a row of %" PRIu64 " bytes is more than 2^40",
		            at[0], at[1], *ret);
	return 0;
}

/* ---- groups ---------------------------------------------------------------------------------- */

static int group_check(const struct vmkv_group *group, uint32_t index, const struct text *text)
{
	if (group->reserved != 0)
		return FAIL(text, -E2BIG, "group %u: sets a field that this library doesn't know",
		            index);
	if (group->policy > VMKV_POLICY_STATE)
		return FAIL(text, -EINVAL, "group %u: policy %u is not one of enum vmkv_policy",
		            index, group->policy);
	if (group->layers == 0 || group->tensor_count == 0 || group->tensors == NULL)
		return FAIL(text, -EINVAL, "group %u: needs at least one layer and one tensor",
		            index);
	if ((uint64_t)group->layers * group->tensor_count > REGIONS_MAX)
		return FAIL(text, -EOVERFLOW, "group %u: more than %u layers x tensors", index,
		            REGIONS_MAX);
	if (group->policy == VMKV_POLICY_WINDOW && group->window_tokens == 0)
		return FAIL(text, -EINVAL, "group %u: a window needs window_tokens of at least 1",
		            index);
	if (group->policy != VMKV_POLICY_WINDOW &&
	    (group->window_tokens != 0 || group->slack_tokens != 0))
		return FAIL(text, -EINVAL,
		            "group %u: window_tokens and slack_tokens go with VMKV_POLICY_WINDOW",
		            index);
	return 0;
}

/* Copy group `index` of the caller's array, whose stride is the struct_size of its elements. */
static int group_read(const struct vmkv_geometry *geometry, uint32_t index, struct vmkv_group *ret,
                      const struct text *text)
{
	size_t stride = geometry->groups[0].struct_size;
	const char *at = (const char *)geometry->groups + index * stride;
	int rc = vmkv_element_in(ret, sizeof(*ret), at, stride);

	if (rc != 0)
		return FAIL(text, rc, "group %u: %s", index,
		            rc == -E2BIG ? "sets a field that this library doesn't know"
		                         : "struct_size is not that of struct vmkv_group");
	return group_check(ret, index, text);
}

static uint32_t mapping_pages(uint64_t bytes, uint32_t page_shift)
{
	uint64_t pages = bytes >> page_shift;

	return pages == 0 ? 1 : pages > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)pages;
}

/* A new region for the group; its sizes are filled in by the caller. */
static struct vmkv_region *region_add(struct vmkv_addresses *layout,
                                      const struct vmkv_cache_options *options, uint32_t g)
{
	struct vmkv_region *region = &layout->regions[layout->region_count++];
	bool by_token = options->layout == VMKV_LAYOUT_TOKEN;
	uint64_t most = options->mapping_max_bytes;

	if (most == 0)
		most = by_token ? TOKEN_MAPPING_BYTES : VMKV_STRETCH_BYTES;
	region->group = g;
	region->window = layout->groups[g].policy == VMKV_POLICY_WINDOW;
	region->window_tokens = layout->groups[g].window_tokens;
	if (region->window) {
		most = options->window_mapping_max_bytes;
		if (most == 0)
			most = WINDOW_MAPPING_BYTES;
	}
	region->mapping_max_pages = mapping_pages(most, layout->page_shift);
	region->mapping_aligned = !by_token || layout->groups[g].policy != VMKV_POLICY_FULL;
	return region;
}

static int region_close(struct vmkv_addresses *layout, struct vmkv_region *region,
                        const struct text *text)
{
	uint64_t bytes = region->fixed_bytes;
	uint64_t all;

	if (bytes == 0 &&
	    __builtin_mul_overflow(region->token_bytes, (uint64_t)layout->reserved_tokens, &bytes))
		bytes = UINT64_MAX;
	/* Places in a span are 32-bit page numbers. */
	if (bytes > (uint64_t)(UINT32_MAX / 2) << layout->page_shift) {
		if (region->fixed_bytes != 0)
			return FAIL(text, -EOVERFLOW,
			            "a state of %" PRIu64 " bytes is more than 2^31 pages: raise "
			            "page_bytes",
			            bytes);
		return FAIL(text, -EOVERFLOW,
		            "a span of %u tokens x %" PRIu64
		            " bytes is more than 2^31 pages: lower max_tokens or raise page_bytes",
		            layout->reserved_tokens, region->token_bytes);
	}
	region->slot_stride = round_up(bytes, SPAN_ALIGN);
	if (__builtin_mul_overflow(region->slot_stride, (uint64_t)layout->slot_count, &all) ||
	    __builtin_add_overflow(layout->reserved_bytes, all, &layout->reserved_bytes))
		return FAIL(text, -EOVERFLOW,
		            "addresses for %u slots of %u tokens pass 64 bits: lower max_tokens or "
		            "slot_count",
		            layout->slot_count, layout->max_tokens);
	return 0;
}

/* Lay out one group: its regions, and the place of each of its layers' tensors. */
static int group_lay(struct vmkv_addresses *layout, const struct vmkv_cache_options *options,
                     const struct vmkv_group *group, uint32_t g, const struct text *text)
{
	struct vmkv_group_layout *out = &layout->groups[g];
	bool state = group->policy == VMKV_POLICY_STATE;
	bool shared = state || options->layout == VMKV_LAYOUT_TOKEN;
	struct vmkv_region *region = shared ? region_add(layout, options, g) : NULL;
	uint64_t offset = 0;
	int rc;

	for (uint32_t i = 0; i < group->layers * group->tensor_count; i++) {
		struct vmkv_place *place = &layout->places[out->first_place + i];
		const uint32_t at[2] = { g, i % group->tensor_count };

		rc = row_bytes(&group->tensors[at[1]], at, text, &place->row_bytes);
		if (rc != 0)
			return rc;
		if (!shared) {
			region = region_add(layout, options, g);
			region->token_bytes = place->row_bytes;
			rc = region_close(layout, region, text);
			if (rc != 0)
				return rc;
		}
		place->region = layout->region_count - 1;
		place->offset = shared ? offset : 0;
		out->token_bytes += place->row_bytes;
		offset += state ? round_up(place->row_bytes, STATE_ALIGN) : place->row_bytes;
	}
	if (!shared)
		return 0;
	region->fixed_bytes = state ? offset : 0;
	region->token_bytes = state ? 0 : offset;
	return region_close(layout, region, text);
}

static int groups_allocate(struct vmkv_addresses *layout, const struct vmkv_cache_options *options,
                           const struct text *text)
{
	const struct vmkv_geometry *geometry = options->geometry;
	uint64_t places = 0;

	layout->groups = calloc(geometry->group_count, sizeof(*layout->groups));
	if (layout->groups == NULL)
		return FAIL(text, -ENOMEM, "no memory for %u groups", geometry->group_count);
	for (uint32_t g = 0; g < geometry->group_count; g++) {
		struct vmkv_group group;
		int rc = group_read(geometry, g, &group, text);

		if (rc != 0)
			return rc;
		layout->groups[g] = (struct vmkv_group_layout){
			.policy = group.policy,
			.layers = group.layers,
			.tensor_count = group.tensor_count,
			.first_place = (uint32_t)places,
			.window_tokens = (uint64_t)group.window_tokens + group.slack_tokens,
		};
		layout->window_groups += group.policy == VMKV_POLICY_WINDOW;
		places += (uint64_t)group.layers * group.tensor_count;
		if (places > REGIONS_MAX)
			return FAIL(text, -EOVERFLOW, "more than %u layers x tensors in all",
			            REGIONS_MAX);
	}
	layout->places = calloc(places, sizeof(*layout->places));
	layout->regions = calloc(places, sizeof(*layout->regions));
	layout->table_bytes = places * (sizeof(*layout->places) + sizeof(*layout->regions)) +
	                      geometry->group_count * sizeof(*layout->groups);
	return layout->places != NULL && layout->regions != NULL
	           ? 0
	           : FAIL(text, -ENOMEM, "no memory for %" PRIu64 " tensors", places);
}

int vmkv_layout_init(struct vmkv_addresses *layout, const struct vmkv_cache_options *options,
                     char *error, size_t error_bytes)
{
	const struct text text = { error, error_bytes };
	const struct vmkv_geometry *geometry = options->geometry;
	int rc;

	memset(layout, 0, sizeof(*layout));
	layout->page_bytes = options->page_bytes;
	layout->page_shift = (uint32_t)__builtin_ctzll(options->page_bytes);
	layout->layout = options->layout;
	layout->slot_count = options->slot_count;
	layout->max_tokens = options->max_tokens;
	layout->read_align_tokens = options->read_align_tokens;
	layout->group_count = geometry->group_count;
	if (layout->slot_count > SLOTS_MAX)
		return FAIL(&text, -EINVAL, "slot_count %u is more than %u", layout->slot_count,
		            SLOTS_MAX);
	if (round_up(options->max_tokens, options->read_align_tokens) > UINT32_MAX - 1)
		return FAIL(&text, -EOVERFLOW,
		            "max_tokens %u, rounded up to a multiple of read_align_tokens %u, is more "
		            "than 4294967294",
		            options->max_tokens, options->read_align_tokens);
	layout->reserved_tokens =
	    (uint32_t)round_up(options->max_tokens, options->read_align_tokens);
	rc = groups_allocate(layout, options, &text);
	for (uint32_t g = 0; rc == 0 && g < geometry->group_count; g++) {
		struct vmkv_group group;

		rc = group_read(geometry, g, &group, &text);
		if (rc == 0)
			rc = group_lay(layout, options, &group, g, &text);
		if (rc != 0)
			break;
		if (group.policy == VMKV_POLICY_STATE) {
			layout->fixed_bytes += layout->groups[g].token_bytes;
			layout->groups[g].token_bytes = 0;
			continue;
		}
		layout->token_bytes += layout->groups[g].token_bytes;
		if (group.policy == VMKV_POLICY_FULL)
			layout->full_token_bytes += layout->groups[g].token_bytes;
	}
	if (rc != 0)
		vmkv_layout_fini(layout);
	return rc;
}

void vmkv_layout_fini(struct vmkv_addresses *layout)
{
	free(layout->regions);
	free(layout->places);
	free(layout->groups);
	memset(layout, 0, sizeof(*layout));
}

/* ---- tokens and pages ------------------------------------------------------------------------ */

static uint32_t pages_up(const struct vmkv_addresses *layout, uint64_t bytes)
{
	return (uint32_t)((bytes + layout->page_bytes - 1) >> layout->page_shift);
}

uint32_t vmkv_region_pages(const struct vmkv_addresses *layout, const struct vmkv_region *region,
                           uint32_t tokens)
{
	if (region->fixed_bytes != 0)
		return tokens == 0 ? 0 : pages_up(layout, region->fixed_bytes);
	if (layout->read_align_tokens > 1)
		tokens = (uint32_t)round_up(tokens, layout->read_align_tokens);
	return pages_up(layout, tokens * region->token_bytes);
}

uint32_t vmkv_region_tokens(const struct vmkv_addresses *layout, const struct vmkv_region *region,
                            uint32_t pages)
{
	uint64_t bytes = (uint64_t)pages << layout->page_shift;

	if (region->fixed_bytes != 0)
		return bytes >= region->fixed_bytes ? layout->reserved_tokens : 0;

	uint64_t tokens = bytes / region->token_bytes;

	/* A length is usable only with all of what may be read beyond it. */
	tokens -= tokens % layout->read_align_tokens;
	return tokens < layout->reserved_tokens ? (uint32_t)tokens : layout->reserved_tokens;
}

uint32_t vmkv_region_dead_pages(const struct vmkv_addresses *layout,
                                const struct vmkv_region *region, uint32_t tokens)
{
	if (!region->window)
		return 0;
	return (uint32_t)(vmkv_window_dead(region->window_tokens, tokens) * region->token_bytes >>
	                  layout->page_shift);
}

uint32_t vmkv_region_dead_at(const struct vmkv_addresses *layout, const struct vmkv_region *region,
                             uint32_t pages)
{
	uint64_t bytes = (uint64_t)pages << layout->page_shift;

	if (!region->window)
		return UINT32_MAX;

	uint64_t tokens =
	    region->window_tokens + (bytes + region->token_bytes - 1) / region->token_bytes;

	return tokens < UINT32_MAX ? (uint32_t)tokens : UINT32_MAX;
}

uint64_t vmkv_layout_need_pages(const struct vmkv_addresses *layout, uint32_t tokens,
                                uint32_t chunk_tokens)
{
	uint32_t chunk = chunk_tokens == 0 || chunk_tokens > tokens ? tokens : chunk_tokens;
	uint64_t sum = 0;

	for (uint32_t i = 0; tokens > 0 && i < layout->region_count; i++) {
		const struct vmkv_region *region = &layout->regions[i];
		uint64_t pages = vmkv_region_pages(layout, region, tokens);

		if (region->window) {
			/* When a step maps its chunk, the step before has trimmed by the length before
			 * itself (a second chunk), and what it trimmed may wait to be retired (a third).
			 * What reaches into the trimmed part is at most a mapping less a page. */
			uint64_t kept = region->window_tokens + 3ull * chunk +
			                layout->read_align_tokens;
			uint64_t bytes;

			if (!__builtin_mul_overflow(kept, region->token_bytes, &bytes)) {
				uint64_t most = (bytes >> layout->page_shift) + 1 +
				                region->mapping_max_pages;

				pages = most < pages ? most : pages;
			}
		}
		sum += pages;
	}
	return sum;
}
