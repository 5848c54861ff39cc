/* SPDX-License-Identifier: MIT
 *
 * The model's arithmetic, and what the calls do to it.
 */
#include "oracle.h"

#include <inttypes.h>
#include <stdarg.h>

#include "check.h"

void oracle_fail(const struct oracle *o, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s, operation %" PRIu64 ": ", o->what, o->operation);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

static uint64_t round_up(uint64_t n, uint64_t multiple)
{
	return (n + multiple - 1) / multiple * multiple;
}

uint32_t oracle_region_pages(const struct oracle *o, const struct oracle_region *region,
                             uint32_t tokens)
{
	uint64_t bytes = region->fixed_bytes;

	if (tokens == 0)
		return 0;
	if (region->fixed_bytes == 0)
		bytes = round_up(tokens, o->info.read_align_tokens) * region->token_bytes;
	return (uint32_t)(round_up(bytes, o->info.page_bytes) / o->info.page_bytes);
}

uint32_t oracle_dead_tokens(const struct oracle_region *region, uint32_t previous)
{
	if (region->window_tokens == 0 || previous <= region->window_tokens)
		return 0;
	return (uint32_t)(previous - region->window_tokens);
}

uint32_t oracle_dead_pages(const struct oracle *o, const struct oracle_region *region,
                           uint32_t previous)
{
	return (uint32_t)(oracle_dead_tokens(region, previous) * region->token_bytes /
	                  o->info.page_bytes);
}

uint32_t oracle_span_end(const struct oracle *o, uint32_t slot, uint32_t region)
{
	const struct oracle_page *pages = o->slots[slot].pages[region];
	uint32_t end = o->regions[region].pages;

	while (end > 0 && pages[end - 1].state != ORACLE_USED &&
	       pages[end - 1].state != ORACLE_KEPT)
		end--;
	return end;
}

uint64_t oracle_live_bytes(const struct oracle *o)
{
	uint64_t bytes = 0;

	for (uint32_t s = 0; s < o->slot_count; s++) {
		const struct oracle_slot *slot = &o->slots[s];

		for (uint32_t r = 0; slot->state == ORACLE_OPEN && r < o->place_count; r++) {
			const struct oracle_place *place = &o->places[r];
			const struct oracle_region *region = &o->regions[place->region];
			uint32_t dead = oracle_dead_tokens(region, slot->previous);

			if (region->fixed_bytes > 0)
				bytes += slot->live > 0 ? place->row_bytes : 0;
			else
				bytes += (slot->live - dead) * place->row_bytes;
		}
	}
	return bytes;
}

uint64_t oracle_need_bytes(const struct oracle *o, uint32_t slot, uint32_t tokens)
{
	uint64_t pages = 0;

	for (uint32_t r = 0; r < o->region_count; r++) {
		uint32_t need = oracle_region_pages(o, &o->regions[r], tokens);
		uint32_t end = oracle_span_end(o, slot, r);

		pages += need > end ? need - end : 0;
	}
	return pages * o->info.page_bytes;
}

uint64_t oracle_kept_bytes(const struct oracle *o, const bool but[ORACLE_SLOTS])
{
	uint64_t pages = 0;

	for (uint32_t s = 0; s < o->slot_count; s++) {
		for (uint32_t r = 0; (but == NULL || !but[s]) && r < o->region_count; r++) {
			for (uint32_t p = 0; p < o->regions[r].pages; p++)
				pages += o->slots[s].pages[r][p].state == ORACLE_KEPT;
		}
	}
	return pages * o->info.page_bytes;
}

/* ---- where the addresses are ----------------------------------------------------------------- */

static struct vmkv_span span_of(struct oracle *o, vmkv_seq seq, const struct oracle_place *place)
{
	struct vmkv_span span = { .struct_size = sizeof(span) };

	if (vmkv_span(o->cache, seq, place->group, place->layer, place->tensor, &span) != 0)
		oracle_fail(o, "no span for group %u, layer %u, tensor %u", place->group,
		            place->layer, place->tensor);
	return span;
}

static void region_add(struct oracle *o, const struct vmkv_group *group,
                       const struct oracle_place *place, const struct vmkv_span *span)
{
	struct oracle_region *region = &o->regions[o->region_count++];
	bool by_token = o->options.layout == VMKV_LAYOUT_TOKEN;
	uint64_t most = o->options.mapping_max_bytes;

	CHECK(o->region_count <= ORACLE_REGIONS);
	*region = (struct oracle_region){
		.group = place->group,
		.layer = place->layer,
		.tensor = place->tensor,
		.base = span->address - span->slot * span->slot_stride,
		.slot_stride = span->slot_stride,
	};
	if (most == 0)
		most = by_token ? 32 << 20 : 2 << 20;
	if (group->policy == VMKV_POLICY_WINDOW) {
		region->window_tokens = (uint64_t)group->window_tokens + group->slack_tokens;
		most = o->options.window_mapping_max_bytes;
		if (most == 0)
			most = o->info.page_bytes > 256 << 10 ? o->info.page_bytes : 256 << 10;
	}
	region->mapping_max_pages = (uint32_t)(most / o->info.page_bytes);
	region->mapping_aligned = !by_token || group->policy != VMKV_POLICY_FULL;
}

static void place_add(struct oracle *o, vmkv_seq seq, const uint32_t at[3], bool shared)
{
	const struct vmkv_group *group = &o->options.geometry->groups[at[0]];
	struct oracle_place *place = &o->places[o->place_count++];
	struct oracle_region *region;
	struct vmkv_span span;

	CHECK(o->place_count <= ORACLE_PLACES);
	*place = (struct oracle_place){ .group = at[0], .layer = at[1], .tensor = at[2] };
	span = span_of(o, seq, place);
	if (!shared || at[1] + at[2] == 0)
		region_add(o, group, place, &span);
	place->region = o->region_count - 1;
	place->row_bytes = span.row_bytes;
	region = &o->regions[place->region];
	place->offset = span.address - span.slot * span.slot_stride - region->base;
	if (group->policy == VMKV_POLICY_STATE)
		region->fixed_bytes = round_up(place->offset + span.row_bytes, 256);
	else
		region->token_bytes += span.row_bytes;
}

/* Two tensors that share a region lie side by side. */
static void places_check(const struct oracle *o)
{
	for (uint32_t i = 0; i < o->place_count; i++) {
		const struct oracle_place *a = &o->places[i], *b = &o->places[i - (i > 0)];

		if (i > 0 && a->region == b->region && a->offset < b->offset + b->row_bytes)
			oracle_fail(o, "group %u: tensor %u of layer %u overlaps the one before",
			            a->group, a->tensor, a->layer);
	}
}

static void places_create(struct oracle *o, vmkv_seq seq)
{
	const struct vmkv_geometry *geometry = o->options.geometry;

	for (uint32_t g = 0; g < geometry->group_count; g++) {
		const struct vmkv_group *group = &geometry->groups[g];
		bool shared = o->options.layout == VMKV_LAYOUT_TOKEN ||
		              group->policy == VMKV_POLICY_STATE;

		for (uint32_t l = 0; l < group->layers; l++) {
			for (uint32_t t = 0; t < group->tensor_count; t++)
				place_add(o, seq, (const uint32_t[]){ g, l, t }, shared);
		}
	}
	places_check(o);
	for (uint32_t r = 0; r < o->region_count; r++) {
		struct oracle_region *region = &o->regions[r];

		region->pages = oracle_region_pages(o, region, o->info.max_tokens);
		for (uint32_t s = 0; s < o->slot_count; s++)
			o->slots[s].pages[r] =
			    checking_alloc(region->pages, sizeof(struct oracle_page));
		o->phys_capacity += (size_t)region->pages * o->slot_count;
	}
}

void oracle_create(struct oracle *o, const struct vmkv_cache_options *options, bool lag)
{
	char text[256] = "";
	vmkv_seq seq;

	o->options = *options;
	o->options.error = text;
	o->options.error_bytes = sizeof(text);
	if (vmkv_cache_create(o->device, &o->options, &o->cache) != 0)
		oracle_fail(o, "vmkv_cache_create: %s", text);
	o->info.struct_size = sizeof(o->info);
	CHECK_EQ(vmkv_cache_info(o->cache, &o->info), 0);
	o->memory = memory_access_create(checking_of(o->device)->inner);
	o->lag = lag;
	o->zero = options->zero == VMKV_ZERO_ON;
	o->budget_bytes = options->budget_bytes;
	o->slot_count = o->info.slot_count;
	CHECK(o->slot_count <= ORACLE_SLOTS);
	CHECK_EQ(vmkv_seq_open(o->cache, NULL, &seq), 0);
	places_create(o, seq);
	CHECK_EQ(vmkv_seq_close(o->cache, seq, 0), 0);
	o->never_reuse = vmkv_device_is_safe(o->device, VMKV_SAFE_NEVER_REUSE_ADDRESSES);
	o->no_alias = vmkv_device_is_safe(o->device, VMKV_SAFE_NO_ALIAS);
	o->slots[0].used_up = o->never_reuse;
	/* At most half full. */
	o->phys_capacity = round_up(2 * o->phys_capacity + 64, 64);
	o->phys_seen = checking_alloc(o->phys_capacity, sizeof(*o->phys_seen));
	o->stats.struct_size = sizeof(o->stats);
	CHECK_EQ(vmkv_cache_stats(o->cache, &o->stats), 0);
}

void oracle_destroy(struct oracle *o)
{
	vmkv_cache_destroy(o->cache);
	for (uint32_t s = 0; s < o->slot_count; s++) {
		for (uint32_t r = 0; r < o->region_count; r++)
			free(o->slots[s].pages[r]);
	}
	free(o->phys_seen);
	free(o->words);
	free(o->looks);
	memory_access_destroy(o->memory);
}

/* ---- what calls do --------------------------------------------------------------------------- */

void oracle_opened(struct oracle *o, vmkv_seq seq)
{
	struct vmkv_span span = span_of(o, seq, &o->places[0]);
	struct oracle_slot *slot = &o->slots[span.slot];

	if (span.slot >= o->slot_count || slot->state != ORACLE_FREE || slot->used_up)
		oracle_fail(o, "open gave slot %u, which isn't free", span.slot);
	slot->state = ORACLE_OPEN;
	slot->seq = seq;
	slot->live = slot->previous = slot->chunk = 0;
	slot->busy_until = slot->ready = 0;
	slot->serial = ++o->serial;
	slot->reused = false;
	slot->used_up = o->never_reuse;
	for (uint32_t r = 0; r < o->region_count; r++)
		slot->reused |= oracle_span_end(o, span.slot, r) > 0;
	o->seen.warm_opens += slot->reused;
	o->open_count++;
	o->seen.opens++;
}

static void pages_retire(struct oracle *o, struct oracle_slot *slot, uint32_t region, uint32_t dead,
                         bool trimmed)
{
	for (uint32_t p = 0; p < o->regions[region].pages; p++) {
		struct oracle_page *page = &slot->pages[region][p];

		if (page->state != ORACLE_USED || (trimmed && page->first + page->n > dead))
			continue;
		page->state = ORACLE_RETIRING;
		page->until = slot->busy_until;
		page->trimmed = trimmed;
		o->seen.trims += trimmed;
	}
}

void oracle_stepped(struct oracle *o, const struct vmkv_step_request *request, uint64_t ready,
                    struct oracle_allowed *allowed)
{
	for (uint32_t i = 0; i < request->n; i++) {
		uint32_t s = 0;

		while (o->slots[s].state != ORACLE_OPEN || o->slots[s].seq != request->seqs[i])
			s++;

		struct oracle_slot *slot = &o->slots[s];

		if (request->tokens[i] - slot->live > slot->chunk)
			slot->chunk = request->tokens[i] - slot->live;
		slot->previous = slot->live;
		slot->live = request->tokens[i];
		if (request->busy_until > slot->busy_until)
			slot->busy_until = request->busy_until;
		if (ready > slot->ready)
			slot->ready = ready;
		allowed->grow[s] = true;
		for (uint32_t r = 0; r < o->region_count; r++) {
			const struct oracle_region *region = &o->regions[r];

			pages_retire(o, slot, r, oracle_dead_pages(o, region, slot->previous), true);
		}
	}
	o->steps++;
}

void oracle_closed(struct oracle *o, uint32_t s, uint64_t busy_until)
{
	struct oracle_slot *slot = &o->slots[s];

	if (busy_until > slot->busy_until)
		slot->busy_until = busy_until;
	for (uint32_t r = 0; r < o->region_count; r++)
		pages_retire(o, slot, r, 0, false);
	slot->state = ORACLE_CLOSED;
	slot->live = 0;
	o->open_count--;
	o->seen.closes++;
}

void oracle_retired(struct oracle *o, uint64_t completed)
{
	if (completed > o->completed)
		o->completed = completed;
}

/* One granule tells for the page: memory is handed on in whole pages. */
void oracle_use(struct oracle *o, uint32_t s, uint64_t busy_until)
{
	const struct oracle_slot *slot = &o->slots[s];

	for (uint32_t r = 0; r < o->region_count; r++) {
		for (uint32_t p = 0; p < o->regions[r].pages; p++) {
			const struct oracle_page *page = &slot->pages[r][p];

			if (page->state == ORACLE_USED ||
			    (page->state == ORACLE_RETIRING && page->until >= busy_until &&
			     busy_until > o->completed))
				checking_use(o->device, oracle_address(o, s, r, p), 1, busy_until);
		}
	}
}
