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
	struct vmkv_published_live *live = &versions[versions[0].epoch > versions[1].epoch];

	live->epoch = epoch;
	live->tokens = s->live;
	live->previous = s->previous;
	live->step = step;
}

void vmkv_mirror_step(struct vmkv_cache *cache, const struct vmkv_step_request *request)
{
	struct vmkv_mirror *mirror = cache->mirror;
	struct vmkv_published_live *lives = mirror->lives;
	const struct vmkv_slot *slots = cache->slots;
	const vmkv_seq *seqs = request->seqs;
	uint64_t step = cache->counters.steps, epoch = mirror->epoch + 1;

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

/* The number of a page without the gaps between slabs. */
static uint32_t phys_number(const struct vmkv_pages *pages, uint32_t page)
{
	return vmkv_pages_slab_index(pages, page) * pages->slab_pages + vmkv_pages_place(pages, page);
}

/* Which entry a piece has that begins at this page. Spans that grow together take pages at the same
 * place of neighbouring stretches: their entries are neighbours, which is what keeps the cost
 * down. */
static uint64_t piece_entry(const struct vmkv_pages *pages, uint32_t page)
{
	uint64_t slab = vmkv_pages_slab_index(pages, page);
	uint32_t place = vmkv_pages_place(pages, page);
	uint32_t in_stretch = place & (pages->stretch_pages - 1);

	return slab * pages->slab_pages + in_stretch * pages->slab_stretches +
	       (place >> pages->stretch_shift);
}

/* As version_write, but reads nothing from far memory for a piece that came to be: its pages were
 * held through a driver call, so this change has not written the entry yet. */
static void piece_write(struct vmkv_cache *cache, const struct vmkv_gone *gone,
                        enum vmkv_published_piece_state state, bool created)
{
	struct vmkv_mirror *mirror = cache->mirror;
	uint64_t entry = piece_entry(&cache->pages, gone->phys), next = mirror->epoch + 1;
	uint64_t *word = &mirror->piece_newest[entry / 64];
	struct vmkv_published_piece *at = &mirror->pieces[2 * entry];

	if (created || epoch_load(&at[*word >> (entry % 64) & 1]) != next)
		*word ^= UINT64_C(1) << (entry % 64);
	at += *word >> (entry % 64) & 1;
	__atomic_store_n(&at->epoch, VMKV_PUBLISHED_WRITING, __ATOMIC_RELAXED);
	vmkv_mirror_fence();
	at->slot = gone->slot;
	at->region = gone->region;
	at->page = gone->page;
	at->phys = phys_number(&cache->pages, gone->phys);
	at->pages = state != VMKV_PUBLISHED_PIECE_NONE ? gone->n : 0;
	at->state = (uint16_t)state;
	at->refcount = state != VMKV_PUBLISHED_PIECE_NONE;
	__atomic_store_n(&at->epoch, next, __ATOMIC_RELEASE);
}

void vmkv_mirror_expect(const struct vmkv_cache *cache, uint32_t page)
{
	if (vmkv_pages_slab_index(&cache->pages, page) < cache->mirror->slab_capacity)
		__builtin_prefetch(
		    &cache->mirror->pieces[2 * piece_entry(&cache->pages, page)], 1);
}

static void tally_move(struct vmkv_mirror_tally *tally, uint32_t n,
                       enum vmkv_published_piece_state was, enum vmkv_published_piece_state is)
{
	/* Pages without an address are counted too, but never told. */
	tally->pages[was] -= n;
	tally->pages[is] += n;
	tally->pieces += (uint32_t)(is != VMKV_PUBLISHED_PIECE_NONE) -
	                 (uint32_t)(was != VMKV_PUBLISHED_PIECE_NONE);
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
	tally_move(&mirror->slot_tally[gone->slot], gone->n, was, is);
	vmkv_mirror_slot(cache, gone->slot);
	if (was == VMKV_PUBLISHED_PIECE_NONE) {
		vmkv_mirror_piece_event(cache, gone, VMKV_PUBLISHED_EVENT_MAP);
		mirror->slot_now[gone->slot].grown_ns = vmkv_mirror_now(mirror);
		mirror->slot_now[gone->slot].grown_step = cache->counters.steps + 1;
	}
	if (!slab_mark(mirror, index))
		return;
	tally_move(&mirror->slab_tally[index], gone->n, was, is);
	piece_write(cache, gone, is, was == VMKV_PUBLISHED_PIECE_NONE);
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

void vmkv_mirror_commit(struct vmkv_cache *cache)
{
	struct vmkv_mirror *mirror = cache->mirror;

	if (!mirror->lost && vmkv_device_is_lost(cache->device)) {
		mirror->lost = true;
		vmkv_mirror_event(cache, VMKV_PUBLISHED_EVENT_LOST,
		          (struct vmkv_published_event){ .slot = UINT32_MAX,
		                                         .region = UINT32_MAX });
	}
	if (!mirror->stepped && !mirror->changed)
		return;
	if (mirror->changed) {
		vmkv_mirror_flush(cache);
		slots_write(cache);
		slabs_write(mirror);
		state_write(cache);
	}
	__atomic_store_n(&mirror->header->epoch, ++mirror->epoch, __ATOMIC_RELEASE);
	__atomic_store_n(&mirror->header->beat_ns, vmkv_clock_ns(CLOCK_MONOTONIC_COARSE),
	                 __ATOMIC_RELAXED);
	mirror->now_ns = 0;
	mirror->call_ns = 0;
	mirror->stepped = false;
	mirror->changed = false;
}
