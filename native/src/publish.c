/* SPDX-License-Identifier: MIT
 *
 * What happens to a cache, written down as it happens. Tables of slots and slabs are told once a
 * change, pieces each time.
 */
#include "publish.h"

#include <string.h>

#include "cache.h"

/* ---- versions -------------------------------------------------------------------------------- */

static uint64_t epoch_load(const void *version)
{
	return __atomic_load_n((const uint64_t *)version, __ATOMIC_RELAXED);
}

/* Write a record over the older one of an entry's two versions. Once a change: slots, slabs and the
 * state. */
static void version_write(struct vmkv_mirror *mirror, void *versions, const void *record,
                          size_t bytes)
{
	uint64_t next = mirror->epoch + 1;
	char *first = versions, *second = first + bytes;
	uint64_t a = epoch_load(first), b = epoch_load(second);
	char *target = a < b ? first : second;

	__atomic_store_n((uint64_t *)(void *)target, VMKV_PUBLISHED_WRITING, __ATOMIC_RELAXED);
	vmkv_mirror_fence();
	memcpy(target + sizeof(next), (const char *)record + sizeof(next), bytes - sizeof(next));
	__atomic_store_n((uint64_t *)(void *)target, next, __ATOMIC_RELEASE);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* The version that is newest stays as it is. The older one doesn't count any more; nor does it,
 * half written, before the header's epoch says so. */
static inline void live_write(struct vmkv_published_live *versions, const struct vmkv_slot *s,
                              uint64_t step, uint64_t epoch)
{
	/* Without a branch, which would be guessed wrong. */
	uint64_t second = versions[0].epoch > versions[1].epoch;
	struct vmkv_published_live *live =
	    (void *)((char *)versions + (-second & sizeof(*versions)));

	live->epoch = epoch;
	live->step = step;
	live->tokens = s->live;
	live->previous = s->previous;
}

void vmkv_mirror_step(struct vmkv_cache *cache, const struct vmkv_step_request *request)
{
	struct vmkv_mirror *mirror = cache->mirror;
	struct vmkv_published_live *lives = mirror->lives;
	const struct vmkv_slot *slots = cache->slots;
	const vmkv_seq *seqs = request->seqs;
	uint64_t step = cache->counters.steps, epoch = mirror->epoch + 1;

#ifndef __clang__ /* which unrolls by itself */
#pragma GCC unroll 4 /* a third less time: a round is a dozen instructions */
#endif
	for (uint32_t i = 0, n = request->n; i < n; i++) {
		uint32_t slot = vmkv_slot_of(seqs[i]);

		live_write(&lives[2 * (size_t)slot], &slots[slot], step, epoch);
	}
	mirror->stepped = true;
}

/* ---- slots ----------------------------------------------------------------------------------- */

void vmkv_mirror_slot(struct vmkv_cache *cache, uint32_t slot)
{
	struct vmkv_mirror *mirror = cache->mirror;

	if (mirror == NULL || mirror->slot_marked[slot])
		return;
	mirror->slot_marked[slot] = 1;
	mirror->slots_changed[mirror->slots_changed_count++] = slot;
	mirror->changed = true;
}

void vmkv_mirror_opened(struct vmkv_cache *cache, uint32_t slot)
{
	struct vmkv_mirror *mirror = cache->mirror;
	const struct vmkv_slot *s = &cache->slots[slot];
	struct vmkv_published_slot *now;

	if (mirror == NULL)
		return;
	now = &mirror->slot_now[slot];
	now->seq = s->seq;
	now->opened_ns = vmkv_mirror_now(mirror);
	now->closed_ns = 0;
	now->grown_ns = 0;
	now->grown_step = 0;
	live_write(&mirror->lives[2 * (size_t)slot], s, cache->counters.steps, mirror->epoch + 1);
	vmkv_mirror_slot(cache, slot);
	vmkv_mirror_event(cache, VMKV_PUBLISHED_EVENT_OPEN,
	          (struct vmkv_published_event){
	              .seq = s->seq, .slot = slot, .region = UINT32_MAX });
}

void vmkv_mirror_closed(struct vmkv_cache *cache, uint32_t slot)
{
	struct vmkv_mirror *mirror = cache->mirror;
	struct vmkv_published_slot *now;

	if (mirror == NULL)
		return;
	now = &mirror->slot_now[slot];
	now->closed_ns = vmkv_mirror_now(mirror);
	vmkv_mirror_slot(cache, slot);
	vmkv_mirror_event(cache, VMKV_PUBLISHED_EVENT_CLOSE,
	          (struct vmkv_published_event){
	              .seq = now->seq,
	              .bytes =
	                  (uint64_t)mirror->slot_tally[slot].pages[VMKV_PUBLISHED_PIECE_MAPPED]
	                  << cache->pages.page_shift,
	              .slot = slot,
	              .region = UINT32_MAX,
	          });
}

#define TALLY_TELL(record, tally)                                                          \
	do {                                                                               \
		(record)->mapped_pages = (tally)->pages[VMKV_PUBLISHED_PIECE_MAPPED];       \
		(record)->warm_pages = (tally)->pages[VMKV_PUBLISHED_PIECE_WARM];           \
		(record)->retiring_pages = (tally)->pages[VMKV_PUBLISHED_PIECE_RETIRING];   \
		(record)->unmapping_pages = (tally)->pages[VMKV_PUBLISHED_PIECE_UNMAPPING]; \
		(record)->pieces = (tally)->pieces;                                        \
	} while (0)

static void slots_write(struct vmkv_cache *cache)
{
	struct vmkv_mirror *mirror = cache->mirror;

	for (uint32_t i = 0; i < mirror->slots_changed_count; i++) {
		uint32_t slot = mirror->slots_changed[i];
		const struct vmkv_slot *s = &cache->slots[slot];
		struct vmkv_published_slot *now = &mirror->slot_now[slot];

		now->busy_until = s->busy_until;
		now->state = s->state;
		now->generation = s->generation;
		now->mapped_tokens = s->state == VMKV_SLOT_OPEN ? s->mapped : 0;
		now->ready_tokens = atomic_load_explicit(&cache->ready_tokens[slot],
		                                         memory_order_relaxed);
		TALLY_TELL(now, &mirror->slot_tally[slot]);
		version_write(mirror, &mirror->slots[2 * slot], now, sizeof(*now));
		mirror->slot_marked[slot] = 0;
	}
	mirror->slots_changed_count = 0;
}

/* ---- slabs and pieces ------------------------------------------------------------------------ */

/* Returns whether there is room for it. */
static bool slab_mark(struct vmkv_mirror *mirror, uint32_t index)
{
	mirror->changed = true;
	if (index >= mirror->slab_capacity)
		return false;
	if (!mirror->slab_marked[index]) {
		mirror->slab_marked[index] = 1;
		mirror->slabs_changed[mirror->slabs_changed_count++] = index;
	}
	return true;
}

void vmkv_mirror_slab(struct vmkv_cache *cache, const struct vmkv_slab *slab)
{
	uint32_t index = 0;

	if (cache->mirror == NULL)
		return;
	while (cache->pages.slabs[index].slab != slab)
		index++;
	if (slab_mark(cache->mirror, index)) {
		cache->mirror->slab_now[index].bytes = slab->bytes;
		cache->mirror->slab_now[index].alias = slab->alias;
	} else {
		cache->mirror->left_out++;
	}
	vmkv_mirror_event(cache, VMKV_PUBLISHED_EVENT_SLAB,
	          (struct vmkv_published_event){ .address = slab->alias,
	                                         .bytes = slab->bytes,
	                                         .slot = UINT32_MAX,
	                                         .region = index });
}

void vmkv_mirror_slab_gone(struct vmkv_cache *cache, uint32_t index)
{
	struct vmkv_published_event event = { .slot = UINT32_MAX, .region = index };

	if (cache->mirror == NULL)
		return;
	if (slab_mark(cache->mirror, index)) {
		event.address = cache->mirror->slab_now[index].alias;
		event.bytes = cache->mirror->slab_now[index].bytes;
		cache->mirror->slab_now[index].bytes = 0;
		cache->mirror->slab_now[index].alias = 0;
	} else {
		cache->mirror->left_out--;
	}
	vmkv_mirror_event(cache, VMKV_PUBLISHED_EVENT_SLAB_GONE, event);
}

static void slabs_write(struct vmkv_mirror *mirror)
{
	for (uint32_t i = 0; i < mirror->slabs_changed_count; i++) {
		uint32_t index = mirror->slabs_changed[i];

		TALLY_TELL(&mirror->slab_now[index], &mirror->slab_tally[index]);
		version_write(mirror, &mirror->slabs[2 * index], &mirror->slab_now[index],
		              sizeof(*mirror->slab_now));
		mirror->slab_marked[index] = 0;
	}
	mirror->slabs_changed_count = 0;
}

static enum vmkv_published_piece_state piece_state(enum vmkv_page_state state)
{
	static const uint8_t states[VMKV_PAGE_STATES] = {
		[VMKV_PAGE_MAPPED] = VMKV_PUBLISHED_PIECE_MAPPED,
		[VMKV_PAGE_WARM] = VMKV_PUBLISHED_PIECE_WARM,
		[VMKV_PAGE_RETIRING] = VMKV_PUBLISHED_PIECE_RETIRING,
		[VMKV_PAGE_UNMAPPING] = VMKV_PUBLISHED_PIECE_UNMAPPING,
	};

	return (enum vmkv_published_piece_state)states[state];
}

#define STAMP_STATE(stamp) ((stamp) & ((1u << VMKV_PUBLISHED_STATE_BITS) - 1))
#define AGE_MAX ((UINT64_C(1) << VMKV_PUBLISHED_AGE_BITS) - 1)

/* What is written over an entry's stamp: a state since the change that is being made. One that is
 * told twice in a change keeps what was before it. */
static uint64_t stamp_after(uint64_t stamp, uint64_t epoch, enum vmkv_published_piece_state state)
{
	uint64_t age = epoch - (stamp >> VMKV_PUBLISHED_EPOCH_SHIFT);

	if (age == 0)
		return (stamp ^ STAMP_STATE(stamp)) | (uint64_t)state;
	return epoch << VMKV_PUBLISHED_EPOCH_SHIFT |
	       (age < AGE_MAX ? age : AGE_MAX) << VMKV_PUBLISHED_AGE_SHIFT |
	       STAMP_STATE(stamp) << VMKV_PUBLISHED_STATE_BITS | (uint64_t)state;
}

static inline void piece_write(struct vmkv_mirror *mirror, struct vmkv_published_piece *at,
                               enum vmkv_published_piece_state state)
{
	__atomic_store_n(&at->stamp, stamp_after(at->stamp, mirror->epoch + 1, state),
	                 __ATOMIC_RELAXED);
}

/* The place of a piece, as its entry tells it. */
static uint64_t place_of(const struct vmkv_mirror *mirror, const struct vmkv_gone *gone)
{
	return gone->n | (uint64_t)gone->page << mirror->page_shift |
	       (uint64_t)gone->region << mirror->region_shift |
	       (uint64_t)gone->slot << mirror->slot_shift;
}

/* Pages without an address are counted too, but never told. */
static void tally_move(struct vmkv_mirror_tally *tally, uint32_t pages, uint32_t pieces,
                       enum vmkv_published_piece_state was, enum vmkv_published_piece_state is)
{
	tally->pages[was] -= pages;
	tally->pages[is] += pages;
	tally->pieces += is != VMKV_PUBLISHED_PIECE_NONE ? pieces : 0;
	tally->pieces -= was != VMKV_PUBLISHED_PIECE_NONE ? pieces : 0;
}

/* How many of n pieces have the same slab, slot, pages and length, in one region after another:
 * what a step maps comes so. */
static uint32_t alike_count(const struct vmkv_pages *pages, const struct vmkv_gone *gone,
                            uint32_t n)
{
	uint32_t slab = vmkv_pages_slab_index(pages, gone->phys), i = 1;

	while (i < n && gone[i].region == gone->region + i && gone[i].slot == gone->slot &&
	       gone[i].page == gone->page && gone[i].n == gone->n &&
	       vmkv_pages_slab_index(pages, gone[i].phys) == slab)
		i++;
	return i;
}

/* Write entries of such pieces. Their pages were held through a driver call: so it was another
 * change, if any, that left the entries without a piece. */
static void alike_create(struct vmkv_cache *cache, const struct vmkv_gone *gone, uint32_t n,
                         enum vmkv_published_piece_state state)
{
	struct vmkv_mirror *mirror = cache->mirror;
	uint64_t place = place_of(mirror, gone), epoch = mirror->epoch + 1;

	for (uint32_t i = 0; i < n; i++) {
		struct vmkv_published_piece *at =
		    &mirror->pieces[vmkv_mirror_entry(&cache->pages, gone[i].phys)];

		__atomic_store_n(&at->stamp, stamp_after(at->stamp, epoch, state),
		                 __ATOMIC_RELAXED);
		vmkv_mirror_fence();
		at->place = place;
		place += UINT64_C(1) << mirror->region_shift;
	}
}

/* Pieces that are alike come to be. */
static void alike_begin(struct vmkv_cache *cache, const struct vmkv_gone *gone, uint32_t n,
                        enum vmkv_published_piece_state state)
{
	struct vmkv_mirror *mirror = cache->mirror;
	struct vmkv_published_slot *now = &mirror->slot_now[gone->slot];
	uint32_t index = vmkv_pages_slab_index(&cache->pages, gone->phys);

	now->grown_ns = vmkv_mirror_now(mirror);
	now->grown_step = cache->counters.steps + 1;
	tally_move(&mirror->slot_tally[gone->slot], n * gone->n, n, VMKV_PUBLISHED_PIECE_NONE, state);
	vmkv_mirror_slot(cache, gone->slot);
	vmkv_mirror_piece_events(cache, gone, n, VMKV_PUBLISHED_EVENT_MAP);
	if (!slab_mark(mirror, index))
		return;
	tally_move(&mirror->slab_tally[index], n * gone->n, n, VMKV_PUBLISHED_PIECE_NONE, state);
	alike_create(cache, gone, n, state);
}

void vmkv_mirror_mapped(struct vmkv_cache *cache, const struct vmkv_gone *gone, uint32_t n)
{
	for (uint32_t i = 0, alike; i < n; i += alike) {
		alike = alike_count(&cache->pages, &gone[i], n - i);
		alike_begin(cache, &gone[i], alike, VMKV_PUBLISHED_PIECE_MAPPED);
	}
}

void vmkv_mirror_piece(struct vmkv_cache *cache, const struct vmkv_gone *gone,
                       enum vmkv_page_state from, enum vmkv_page_state to)
{
	struct vmkv_mirror *mirror = cache->mirror;
	enum vmkv_published_piece_state was = piece_state(from), is = piece_state(to);
	uint32_t index = vmkv_pages_slab_index(&cache->pages, gone->phys);

	mirror->changed = true; /* the state's sums did in any case */
	if (was == is)
		return;
	if (was == VMKV_PUBLISHED_PIECE_NONE) {
		alike_begin(cache, gone, 1, is);
		return;
	}
	tally_move(&mirror->slot_tally[gone->slot], gone->n, 1, was, is);
	vmkv_mirror_slot(cache, gone->slot);
	if (!slab_mark(mirror, index))
		return;
	tally_move(&mirror->slab_tally[index], gone->n, 1, was, is);
	piece_write(mirror, &mirror->pieces[vmkv_mirror_entry(&cache->pages, gone->phys)], is);
}

/* ---- changes --------------------------------------------------------------------------------- */

static void state_write(struct vmkv_cache *cache)
{
	struct vmkv_mirror *mirror = cache->mirror;
	struct vmkv_stats s;

	vmkv_cache_count(cache, &s);
	const struct vmkv_published_state state = {
		.time_ns = vmkv_mirror_now(mirror),
		.budget_bytes = s.budget_bytes,
		.slab_bytes = s.slab_bytes,
		.mapped_bytes = s.mapped_bytes,
		.warm_bytes = s.warm_bytes,
		.retiring_bytes = s.retiring_bytes,
		.unmapping_bytes = s.unmapping_bytes,
		.zeroing_bytes = s.zeroing_bytes,
		.held_bytes = s.held_bytes,
		.free_clean_bytes = s.free_clean_bytes,
		.free_dirty_bytes = s.free_dirty_bytes,
		.live_bytes = s.live_bytes,
		.table_bytes = s.table_bytes,
		.sequences = s.sequences,
		.mappings = s.mappings,
		.slabs = s.slabs,
		.steps = s.steps,
		.growing_steps = s.growing_steps,
		.shortages = s.shortages,
		.mapped_pages = s.mapped_pages,
		.map_calls = s.map_calls,
		.unmap_calls = s.unmap_calls,
		.fill_calls = s.fill_calls,
		.slab_calls = s.slab_calls,
		.failed_calls = s.failed_calls,
		.mapped_bytes_peak = s.mapped_bytes_peak,
		.live_bytes_peak = s.live_bytes_peak,
		.slab_bytes_peak = s.slab_bytes_peak,
		.mappings_peak = s.mappings_peak,
		.completed = cache->completed,
		.events = mirror->serial,
		.left_out = mirror->left_out,
		.lost = mirror->lost,
	};
	version_write(mirror, mirror->state, &state, sizeof(state));
}

/* What steps that map nothing have no need of. */
static __attribute__((noinline)) void tables_write(struct vmkv_cache *cache)
{
	struct vmkv_mirror *mirror = cache->mirror;

	vmkv_mirror_flush(cache);
	slots_write(cache);
	slabs_write(mirror);
	state_write(cache);
	mirror->last_ns = mirror->now_ns;
	mirror->now_ns = 0;
	mirror->call_ns = 0;
	mirror->changed = false;
}

void vmkv_mirror_commit(struct vmkv_cache *cache)
{
	struct vmkv_mirror *mirror = cache->mirror;

	if (!mirror->lost && vmkv_device_is_lost(cache->device)) {
		mirror->lost = true;
		vmkv_mirror_event(cache, VMKV_PUBLISHED_EVENT_LOST,
		          (struct vmkv_published_event){ .slot = UINT32_MAX,
		                                         .region = UINT32_MAX });
	}
	if (mirror->changed)
		tables_write(cache);
	else if (!mirror->stepped)
		return;
	__atomic_store_n(&mirror->header->epoch, ++mirror->epoch, __ATOMIC_RELEASE);
	__atomic_store_n(&mirror->header->beat_ns, vmkv_clock_ns(CLOCK_MONOTONIC_COARSE),
	                 __ATOMIC_RELAXED);
	mirror->stepped = false;
}
