/* SPDX-License-Identifier: MIT
 *
 * Random operations on a cache that is shared: after each, what a reader finds is what there is.
 */
#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

#include "cache.h"
#include "check.h"
#include "model_ops.h"
#include "published.h"
#include "target.h"

#define OPERATIONS 1500 /* of each configuration */
#define LIFE 300        /* of one cache */

/* What must have happened. */
static struct {
	uint64_t pieces, warm, retiring, unmapping, trims, steps, quiet_steps, left_out;
} seen;

/* Every piece of the tables is told as it is; since the sums agree too, nothing else is. */
static void pieces_compare(const struct vmkv_cache *cache, const struct published *p, uint32_t slot)
{
	for (uint32_t r = 0; cache->cold[slot].spans != NULL && r < cache->layout.region_count; r++) {
		const struct vmkv_span_table *table = &cache->cold[slot].spans[r];

		for (uint32_t i = table->first; i < table->count; i++) {
			const struct vmkv_piece *piece = &table->pieces[i];
			uint64_t phys = (uint64_t)vmkv_pages_slab_index(&cache->pages, piece->phys) *
			                    cache->pages.slab_pages +
			                vmkv_pages_place(&cache->pages, piece->phys);
			const struct published_piece *told;

			if (phys >= p->piece_count) {
				seen.left_out++;
				continue;
			}
			told = published_piece(p, phys);
			CHECK(told != NULL);
			CHECK_EQ(told->slot, slot);
			CHECK_EQ(told->region, r);
			CHECK_EQ(told->page, piece->page);
			CHECK_EQ(told->pages, piece->n);
			CHECK_EQ(told->state, i < table->used
			                          ? (cache->slots[slot].state == VMKV_SLOT_OPEN
			                                 ? VMKV_PUBLISHED_PIECE_MAPPED
			                                 : VMKV_PUBLISHED_PIECE_RETIRING)
			                          : VMKV_PUBLISHED_PIECE_WARM);
			seen.pieces++;
		}
	}
}

static void slots_compare(const struct vmkv_cache *cache, const struct published *p)
{
	for (uint32_t i = 0; i < cache->layout.slot_count; i++) {
		const struct vmkv_slot *s = &cache->slots[i];

		CHECK_EQ(p->slots[i].state, s->state);
		CHECK_EQ(p->slots[i].ready_tokens, atomic_load(&cache->ready_tokens[i]));
		pieces_compare(cache, p, i);
		if (s->state != VMKV_SLOT_OPEN)
			continue;
		CHECK_EQ(p->slots[i].seq, s->seq);
		CHECK_EQ(p->slots[i].mapped_tokens, s->mapped);
		CHECK_EQ(p->slots[i].generation, s->generation);
		CHECK_EQ(p->lives[i].tokens, s->live);
		CHECK_EQ(p->lives[i].previous, s->previous);
	}
}

/* All figures that only change with the state. */
static void state_compare(vmkv_cache *cache, const struct published *p)
{
	struct vmkv_stats s = { .struct_size = sizeof(s) };
	const struct vmkv_published_state *told = &p->state;

	CHECK_EQ(vmkv_cache_stats(cache, &s), 0);
	CHECK_EQ(told->budget_bytes, s.budget_bytes);
	CHECK_EQ(told->slab_bytes, s.slab_bytes);
	CHECK_EQ(told->mapped_bytes, s.mapped_bytes);
	CHECK_EQ(told->warm_bytes, s.warm_bytes);
	CHECK_EQ(told->retiring_bytes, s.retiring_bytes);
	CHECK_EQ(told->unmapping_bytes, s.unmapping_bytes);
	CHECK_EQ(told->zeroing_bytes, s.zeroing_bytes);
	CHECK_EQ(told->held_bytes, s.held_bytes);
	CHECK_EQ(told->free_clean_bytes, s.free_clean_bytes);
	CHECK_EQ(told->free_dirty_bytes, s.free_dirty_bytes);
	CHECK_EQ(told->sequences, s.sequences);
	CHECK_EQ(told->mappings, s.mappings);
	CHECK_EQ(told->slabs, s.slabs);
	CHECK_EQ(told->steps + (p->epoch - told->epoch), s.steps);
	CHECK_EQ(told->growing_steps, s.growing_steps);
	CHECK_EQ(told->shortages, s.shortages);
	CHECK_EQ(told->map_calls, s.map_calls);
	CHECK_EQ(told->unmap_calls, s.unmap_calls);
	CHECK_EQ(told->fill_calls, s.fill_calls);
	CHECK_EQ(told->slab_calls, s.slab_calls);
	CHECK_EQ(told->failed_calls, s.failed_calls);
	CHECK_EQ(told->mapped_bytes_peak, s.mapped_bytes_peak);
	CHECK_EQ(told->mappings_peak, s.mappings_peak);
	seen.warm += s.warm_bytes > 0;
	seen.retiring += s.retiring_bytes > 0;
	seen.unmapping += s.unmapping_bytes > 0;
	seen.steps = s.steps;
	seen.quiet_steps += p->epoch - told->epoch;
}

static void look(struct model_run *run, int fd)
{
	struct published p;

	if (!published_read(fd, &p) || !published_check(&p))
		oracle_fail(&run->oracle, "what is published: %s", p.wrong);
	state_compare(run->oracle.cache, &p);
	slots_compare(run->oracle.cache, &p);
	published_free(&p);
}

static void live(uint32_t c, uint64_t seed, bool lag, bool faults)
{
	static struct model_run run;
	struct checking_options checking = { .lag_seed = lag ? seed | 1 : 0 };
	struct vmkv_cache_options options;
	struct vmkv_geometry geometry;
	char what[96];
	int fd;

	memset(&run, 0, sizeof(run));
	run.config = &model_configs[c];
	run.oracle.random.state = seed;
	options = model_config_draw(run.config, &run.oracle.random, &geometry);
	options.share = VMKV_SHARE_ON;
	snprintf(what, sizeof(what), "configuration %s, seed %" PRIu64 "%s%s", run.config->name, seed,
	         lag ? ", lags" : "", faults ? ", faults" : "");
	run.oracle.what = what;
	run.oracle.faults = faults;
	if (faults)
		run.fault = (struct checking_fault){ .per_million = 20000, .seed = seed, .error = -EIO };
	CHECK_EQ(vmkv_device_checking_wrap(target_open(run.config->device, &checking), &checking,
	                                   &run.oracle.device), 0);
	if (vmkv_device_is_safe(run.oracle.device, VMKV_SAFE_NEVER_REUSE_ADDRESSES))
		options.slot_count = ORACLE_SLOTS;
	oracle_create(&run.oracle, &options, lag);
	checking_fault_set(run.oracle.device, &run.fault);
	fd = published_open();
	look(&run, fd);
	for (int i = 0; i < LIFE; i++) {
		model_operate(&run);
		look(&run, fd);
	}
	seen.trims += run.oracle.seen.trims;
	close(fd);
	checking_complete(run.oracle.device, UINT64_MAX);
	oracle_destroy(&run.oracle);
	CHECK_EQ(vmkv_device_close(run.oracle.device), 0);
}

int main(void)
{
	struct seeded random = seeded_begin("test_publish_model");

	published_directory();
	for (uint32_t c = 0; c < model_config_count; c++) {
		for (int i = 0; i < OPERATIONS / LIFE; i++)
			live(c, seeded_next(&random) >> 1, i % 2 == 1, i % 3 == 2);
	}
	printf("%" PRIu64 " pieces; states with warm %" PRIu64 ", retiring %" PRIu64
	       ", unmapping %" PRIu64 "; trims %" PRIu64 "; quiet steps %" PRIu64
	       "; left out %" PRIu64 "\n",
	       seen.pieces, seen.warm, seen.retiring, seen.unmapping, seen.trims, seen.quiet_steps,
	       seen.left_out);
	CHECK(seen.pieces > 0 && seen.warm > 0 && seen.retiring > 0 && seen.unmapping > 0);
	CHECK(seen.trims > 0 && seen.quiet_steps > 0);
	return 0;
}
