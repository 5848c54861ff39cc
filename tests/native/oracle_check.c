/* SPDX-License-Identifier: MIT
 *
 * After each operation: whether all that the cache tells is what the model has.
 */
#include "oracle.h"

#include <inttypes.h>
#include <string.h>

#include "check.h"

#define MAPPINGS_MAX 1024
#define SLABS_MAX 256

void oracle_verify(struct oracle *o, const struct oracle_allowed *allowed)
{
	struct checking_report report;

	checking_report(o->device, &report);
	if (report.violations != 0)
		oracle_fail(o, "the device saw %" PRIu64 " violations, first: %s", report.violations,
		            report.violation);
	oracle_read_record(o);
	oracle_follow(o, allowed);
	oracle_check_stats(o, allowed);
	oracle_check_spans(o);
	oracle_check_ready(o, allowed);
	oracle_check_contents(o);
	o->operation++;
}

/* ---- statistics ------------------------------------------------------------------------------ */

static void expect(const struct oracle *o, const char *what, uint64_t actual, uint64_t expected)
{
	if (actual != expected)
		oracle_fail(o, "%s is %" PRIu64 ", not %" PRIu64, what, actual, expected);
}

static void expect_at_least(const struct oracle *o, const char *what, uint64_t actual,
                            uint64_t least)
{
	if (actual < least)
		oracle_fail(o, "%s is %" PRIu64 ", less than %" PRIu64, what, actual, least);
}

static void check_states(struct oracle *o, const struct vmkv_stats *now)
{
	uint64_t page = o->info.page_bytes;
	uint64_t way_back = now->warm_bytes + now->retiring_bytes;
	uint64_t model_way_back = (o->count[ORACLE_KEPT] + o->count[ORACLE_RETIRING]) * page;

	expect(o, "the sum of all states", now->slab_bytes,
	       now->mapped_bytes + now->warm_bytes + now->retiring_bytes + now->unmapping_bytes +
	           now->zeroing_bytes + now->held_bytes + now->free_clean_bytes +
	           now->free_dirty_bytes);
	expect(o, "held_bytes", now->held_bytes, 0);
	o->seen.unmapping += now->unmapping_bytes > 0 && !o->faults;
	o->seen.zeroing += now->zeroing_bytes > 0;
	expect(o, "mapped_bytes", now->mapped_bytes, o->count[ORACLE_USED] * page);
	if (o->faults) {
		/* What was unmapped counts as unmapping until all of its batch was. */
		if (!o->lag)
			expect_at_least(o, "what is on its way back",
			                way_back + now->unmapping_bytes, model_way_back);
		expect_at_least(o, "what is on its way back", model_way_back, way_back);
		return;
	}
	expect(o, "warm_bytes", now->warm_bytes, o->count[ORACLE_KEPT] * page);
	expect(o, "retiring_bytes", now->retiring_bytes, o->count[ORACLE_RETIRING] * page);
	if (o->lag)
		return;
	expect(o, "unmapping_bytes", now->unmapping_bytes, 0);
	expect(o, "zeroing_bytes", now->zeroing_bytes, 0);
	if (o->zero && !o->no_alias && (o->device->info.features & VMKV_FEATURE_ZEROED_SLABS) != 0)
		expect(o, "free_dirty_bytes", now->free_dirty_bytes, 0);
}

static void check_live(struct oracle *o, const struct vmkv_stats *now)
{
	expect(o, "live_bytes", now->live_bytes, oracle_live_bytes(o));
	expect_at_least(o, "mapped_bytes", now->mapped_bytes, now->live_bytes);
	expect(o, "sequences", now->sequences, o->open_count);
	if (now->live_bytes > o->live_peak)
		o->live_peak = now->live_bytes;
	if (now->mapped_bytes > o->mapped_peak)
		o->mapped_peak = now->mapped_bytes;
	expect(o, "live_bytes_peak", now->live_bytes_peak, o->live_peak);
	expect(o, "mapped_bytes_peak", now->mapped_bytes_peak, o->mapped_peak);
	expect_at_least(o, "slab_bytes_peak", now->slab_bytes_peak, now->slab_bytes);
	expect_at_least(o, "mappings_peak", now->mappings_peak, o->stats.mappings_peak);
}

static void check_slabs(struct oracle *o, const struct oracle_allowed *allowed,
                        const struct vmkv_stats *now)
{
	const struct vmkv_stats *before = &o->stats;
	uint64_t bytes = 0, n = 0;

	for (struct checking_slab *slab = checking_of(o->device)->slabs; slab; slab = slab->next) {
		bytes += slab->base.bytes;
		n++;
	}
	expect(o, "slabs", now->slabs, n);
	expect(o, "slab_bytes", now->slab_bytes, bytes);
	expect(o, "budget_bytes", now->budget_bytes, o->budget_bytes);
	if (now->slab_bytes > before->slab_bytes && now->slab_bytes > o->budget_bytes)
		oracle_fail(o, "slabs grew to %" PRIu64 " bytes, past the budget of %" PRIu64,
		            now->slab_bytes, o->budget_bytes);
	if (now->slab_bytes > before->slab_bytes && !allowed->new_slabs)
		oracle_fail(o, "a slab was created");
	o->seen.drained += now->slab_bytes < before->slab_bytes;
	o->seen.over_budget += now->slab_bytes > o->budget_bytes;
}

static void check_counts(struct oracle *o, const struct vmkv_stats *now)
{
	struct vmkv_device_info device = { .struct_size = sizeof(device) };
	struct checking_report report;

	checking_report(o->device, &report);
	CHECK_EQ(vmkv_device_info(o->device, &device), 0);
	expect(o, "steps", now->steps, o->steps);
	expect(o, "shortages", now->shortages, o->shortages);
	expect_at_least(o, "steps", now->steps, now->growing_steps);
	o->seen.faults += now->failed_calls - o->stats.failed_calls;
	expect_at_least(o, "mapped_pages", now->mapped_pages,
	                now->mapped_bytes / o->info.page_bytes);
	expect(o, "reserved_bytes", now->reserved_bytes, o->info.reserved_bytes);
	if (!device.lost) {
		expect(o, "map_calls", now->map_calls, report.calls[CHECKING_MAP]);
		expect(o, "unmap_calls", now->unmap_calls, report.calls[CHECKING_UNMAP]);
		expect(o, "slab_calls", now->slab_calls,
		       report.calls[CHECKING_SLAB_CREATE] + report.slab_destroys);
		expect_at_least(o, "fill_calls", now->fill_calls, report.calls[CHECKING_FILL]);
		expect_at_least(o, "failed_calls", now->failed_calls,
		                report.failed[CHECKING_SLAB_CREATE] + report.failed[CHECKING_MAP] +
		                    report.failed[CHECKING_UNMAP] + report.failed[CHECKING_FILL]);
	}
	if (o->lag || device.lost) {
		expect_at_least(o, "mappings", now->mappings, device.lost ? 0 : o->record_mappings);
		return;
	}
	expect(o, "mappings", now->mappings, o->record_mappings);
	/* Neighbours may have gone in another order than they came in. */
	if (!o->faults)
		expect(o, "the device's mappings", device.mappings, o->record_runs);
	if (device.mappings > device.max_mappings)
		oracle_fail(o, "%" PRIu64 " mappings are past the bound", device.mappings);
}

void oracle_check_stats(struct oracle *o, const struct oracle_allowed *allowed)
{
	struct vmkv_stats now = { .struct_size = sizeof(now) };

	CHECK_EQ(vmkv_cache_stats(o->cache, &now), 0);
	check_states(o, &now);
	check_live(o, &now);
	check_slabs(o, allowed, &now);
	check_counts(o, &now);
	o->seen.grown += now.growing_steps > o->stats.growing_steps;
	o->stats = now;
}

/* ---- spans ----------------------------------------------------------------------------------- */

static uint32_t used_end(const struct oracle *o, uint32_t s, uint32_t r, uint32_t *begin)
{
	const struct oracle_page *pages = o->slots[s].pages[r];
	uint32_t end = 0;

	*begin = UINT32_MAX;
	for (uint32_t p = 0; p < o->regions[r].pages; p++) {
		if (pages[p].state != ORACLE_USED)
			continue;
		*begin = *begin < p ? *begin : p;
		end = p + 1;
	}
	*begin = end > 0 ? *begin : 0;
	return end;
}

/* Tokens that are wholly in the first `pages` pages. */
static uint32_t whole_tokens(const struct oracle *o, const struct oracle_region *region,
                             uint32_t pages)
{
	uint64_t align = o->info.read_align_tokens;
	uint64_t most = (o->info.max_tokens + align - 1) / align * align;
	uint64_t bytes = pages * o->info.page_bytes;

	if (region->fixed_bytes > 0)
		return bytes >= region->fixed_bytes;
	return (uint32_t)(bytes / region->token_bytes < most ? bytes / region->token_bytes : most);
}

static void check_span(struct oracle *o, uint32_t s, const struct oracle_place *place)
{
	const struct oracle_region *region = &o->regions[place->region];
	struct vmkv_span span = { .struct_size = sizeof(span) };
	uint64_t align = o->info.read_align_tokens;
	uint32_t begin, end = used_end(o, s, place->region, &begin);
	uint64_t first = begin * o->info.page_bytes;

	CHECK_EQ(vmkv_span(o->cache, o->slots[s].seq, place->group, place->layer, place->tensor,
	                   &span), 0);
	expect(o, "span.address", span.address,
	       region->base + s * region->slot_stride + place->offset);
	expect(o, "span.slot", span.slot, s);
	expect(o, "span.slot_stride", span.slot_stride, region->slot_stride);
	expect(o, "span.slot_stride % 2 MiB", span.slot_stride % (2 << 20), 0);
	expect(o, "span.token_stride", span.token_stride, region->token_bytes);
	expect(o, "span.row_bytes", span.row_bytes, place->row_bytes);
	expect(o, "span.live_tokens", span.live_tokens, o->slots[s].live);
	expect(o, "span.mapped_tokens", span.mapped_tokens, whole_tokens(o, region, end));
	expect(o, "span.reserved_tokens", span.reserved_tokens,
	       region->fixed_bytes > 0 ? 1 : (o->info.max_tokens + align - 1) / align * align);
	if (region->fixed_bytes == 0)
		first = (first + region->token_bytes - 1) / region->token_bytes;
	expect(o, "span.first_token", span.first_token, first);
	if (span.first_token > oracle_dead_tokens(region, o->slots[s].previous))
		oracle_fail(o, "slot %u: tokens from %u on are in the window, and begin at %u", s,
		            oracle_dead_tokens(region, o->slots[s].previous), span.first_token);
}

/* Which slab an index means must be the same in all of one look. */
struct slab_names {
	uint64_t begin[SLABS_MAX];
};

static void check_mapping(const struct oracle *o, uint32_t s, uint32_t r,
                          const struct vmkv_mapping *mapping, struct slab_names *names)
{
	uint64_t at = mapping->address - oracle_address(o, s, r, 0);
	const struct oracle_page *page = &o->slots[s].pages[r][at / o->info.page_bytes];
	uint64_t begin = page->phys - mapping->slab_offset;

	if (at % o->info.page_bytes != 0 || at / o->info.page_bytes != page->first ||
	    mapping->bytes != page->n * o->info.page_bytes ||
	    (page->state != ORACLE_USED && page->state != ORACLE_KEPT))
		oracle_fail(o,
		            "slot %u, region %u: told of a mapping at offset 0x%" PRIx64
		            " of 0x%" PRIx64 " bytes that isn't there",
		            s, r, at, mapping->bytes);
	CHECK(mapping->slab < SLABS_MAX);
	if (names->begin[mapping->slab] == 0)
		names->begin[mapping->slab] = begin;
	expect(o, "a mapping's slab", begin, names->begin[mapping->slab]);
}

static void check_mappings(struct oracle *o, uint32_t s, uint32_t r, struct slab_names *names)
{
	static struct vmkv_mapping mappings[MAPPINGS_MAX];
	const struct oracle_region *region = &o->regions[r];
	const struct oracle_page *pages = o->slots[s].pages[r];
	size_t n, model_n = 0, room = o->operation % 7 == 0 ? 1 : MAPPINGS_MAX;

	mappings[room - (room == MAPPINGS_MAX)].bytes = 1;
	CHECK_EQ(vmkv_seq_mappings(o->cache, o->slots[s].seq, region->group, region->layer,
	                           region->tensor, mappings, room, &n), 0);
	CHECK(n < MAPPINGS_MAX && mappings[room - (room == MAPPINGS_MAX)].bytes == 1);
	for (size_t i = 0; i < n && i < room; i++) {
		check_mapping(o, s, r, &mappings[i], names);
		if (i > 0 && mappings[i].address != mappings[i - 1].address + mappings[i - 1].bytes)
			oracle_fail(o, "slot %u, region %u: mappings are told with a gap", s, r);
	}
	for (uint32_t p = 0; p < region->pages; p++)
		model_n += pages[p].first == p &&
		           (pages[p].state == ORACLE_USED ||
		            (pages[p].state == ORACLE_KEPT && !o->faults));
	if (o->faults ? n < model_n : n != model_n)
		oracle_fail(o, "slot %u, region %u: told of %zu mappings, not %zu", s, r, n, model_n);
}

/* What it holds at most is foreseen, unless it began with longer mappings than it needed. */
static void check_foreseen(const struct oracle *o, uint32_t s)
{
	const struct oracle_slot *slot = &o->slots[s];
	uint64_t pages = 0, need;

	for (uint32_t r = 0; r < o->region_count; r++) {
		for (uint32_t p = 0; p < o->regions[r].pages; p++)
			pages += slot->pages[r][p].state == ORACLE_USED;
	}
	CHECK_EQ(vmkv_cache_need_bytes(o->cache, slot->live, slot->chunk, &need), 0);
	if (!slot->reused && pages * o->info.page_bytes > need)
		oracle_fail(o, "slot %u: has %" PRIu64 " pages, and was to need %" PRIu64 " bytes", s,
		            pages, need);
}

void oracle_check_spans(struct oracle *o)
{
	struct slab_names names = { { 0 } };

	for (uint32_t s = 0; s < o->slot_count; s++) {
		if (o->slots[s].state != ORACLE_OPEN)
			continue;
		for (uint32_t i = 0; i < o->place_count; i++)
			check_span(o, s, &o->places[i]);
		for (uint32_t r = 0; r < o->region_count; r++)
			check_mappings(o, s, r, &names);
		check_foreseen(o, s);
	}
}
