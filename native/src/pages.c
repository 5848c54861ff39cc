/* SPDX-License-Identifier: MIT */
#include "pages.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"

#define EDGE(to) (1u << VMKV_PAGE_##to)

bool vmkv_page_may(enum vmkv_page_state from, enum vmkv_page_state to)
{
	static const unsigned edges[VMKV_PAGE_STATES] = {
		[VMKV_PAGE_FREE_CLEAN] = EDGE(HELD),
		[VMKV_PAGE_FREE_DIRTY] = EDGE(HELD) | EDGE(ZEROING),
		[VMKV_PAGE_ZEROING] = EDGE(FREE_CLEAN) | EDGE(FREE_DIRTY),
		[VMKV_PAGE_HELD] =
		    EDGE(MAPPED) | EDGE(UNMAPPING) | EDGE(WARM) | EDGE(FREE_CLEAN) | EDGE(FREE_DIRTY),
		[VMKV_PAGE_MAPPED] = EDGE(RETIRING),
		[VMKV_PAGE_RETIRING] = EDGE(UNMAPPING) | EDGE(WARM),
		[VMKV_PAGE_UNMAPPING] = EDGE(FREE_DIRTY) | EDGE(FREE_CLEAN),
		[VMKV_PAGE_WARM] = EDGE(MAPPED) | EDGE(UNMAPPING),
	};

	return (edges[from] & (1u << to)) != 0;
}

/* ---- lists in buckets, with a bitmap of those that aren't empty ------------------------------- */

static uint32_t stretch_slab(const struct vmkv_pages *pages, uint32_t stretch)
{
	return stretch >> (pages->slab_shift - pages->stretch_shift);
}

static uint32_t stretch_number(const struct vmkv_pages *pages, uint32_t slab, uint32_t place)
{
	return (slab << (pages->slab_shift - pages->stretch_shift)) + place;
}

static uint32_t stretch_place(const struct vmkv_pages *pages, uint32_t stretch)
{
	return stretch - stretch_number(pages, stretch_slab(pages, stretch), 0);
}

static uint64_t *stretch_bits(const struct vmkv_pages *pages, uint32_t stretch)
{
	return pages->slabs[stretch_slab(pages, stretch)].free_bits +
	       stretch_place(pages, stretch) * pages->words_per_stretch;
}

static struct vmkv_stretch *stretch_at(const struct vmkv_pages *pages, uint32_t stretch)
{
	return &pages->slabs[stretch_slab(pages, stretch)]
	            .stretches[stretch_place(pages, stretch)];
}

static void partial_insert(struct vmkv_pages *pages, uint32_t stretch)
{
	struct vmkv_stretch *s = stretch_at(pages, stretch);
	uint32_t *head = &pages->partial_heads[s->free];

	s->previous = VMKV_PAGE_NONE;
	s->next = *head;
	if (*head != VMKV_PAGE_NONE)
		stretch_at(pages, *head)->previous = stretch;
	*head = stretch;
	vmkv_bits_set(pages->partial_bits, s->free);
}

static void partial_remove(struct vmkv_pages *pages, uint32_t stretch)
{
	struct vmkv_stretch *s = stretch_at(pages, stretch);

	if (s->next != VMKV_PAGE_NONE)
		stretch_at(pages, s->next)->previous = s->previous;
	if (s->previous != VMKV_PAGE_NONE)
		stretch_at(pages, s->previous)->next = s->next;
	else
		pages->partial_heads[s->free] = s->next;
	if (pages->partial_heads[s->free] == VMKV_PAGE_NONE)
		vmkv_bits_clear(pages->partial_bits, s->free);
}

static void whole_insert(struct vmkv_pages *pages, uint32_t slab)
{
	struct vmkv_slab_table *t = &pages->slabs[slab];
	uint32_t *head = &pages->whole_heads[t->whole];

	t->previous = VMKV_PAGE_NONE;
	t->next = *head;
	if (*head != VMKV_PAGE_NONE)
		pages->slabs[*head].previous = slab;
	*head = slab;
	vmkv_bits_set(pages->whole_bits, t->whole);
}

static void whole_remove(struct vmkv_pages *pages, uint32_t slab)
{
	struct vmkv_slab_table *t = &pages->slabs[slab];

	if (t->next != VMKV_PAGE_NONE)
		pages->slabs[t->next].previous = t->previous;
	if (t->previous != VMKV_PAGE_NONE)
		pages->slabs[t->previous].next = t->next;
	else
		pages->whole_heads[t->whole] = t->next;
	if (pages->whole_heads[t->whole] == VMKV_PAGE_NONE)
		vmkv_bits_clear(pages->whole_bits, t->whole);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static uint32_t *heads_create(uint32_t n, uint64_t **bits)
{
	uint32_t *heads = malloc(n * sizeof(*heads));

	*bits = calloc((n + 63) / 64, sizeof(**bits));
	if (heads == NULL || *bits == NULL) {
		free(heads);
		free(*bits);
		*bits = NULL;
		return NULL;
	}
	memset(heads, 0xff, n * sizeof(*heads));
	return heads;
}

int vmkv_pages_init(struct vmkv_pages *pages, uint64_t page_bytes, uint64_t slab_bytes)
{
	memset(pages, 0, sizeof(*pages));
	pages->page_bytes = page_bytes;
	pages->page_shift = (uint32_t)__builtin_ctzll(page_bytes);
	pages->slab_pages = (uint32_t)(slab_bytes >> pages->page_shift);
	pages->stretch_pages = (uint32_t)(VMKV_STRETCH_BYTES >> pages->page_shift);
	pages->stretch_shift = (uint32_t)__builtin_ctz(pages->stretch_pages);
	while (UINT32_C(1) << pages->slab_shift < pages->slab_pages)
		pages->slab_shift++;
	pages->slab_stretches = pages->slab_pages >> pages->stretch_shift;
	pages->words_per_stretch = (pages->stretch_pages + 63) / 64;
	pages->partial_heads = heads_create(pages->stretch_pages + 1, &pages->partial_bits);
	pages->whole_heads = heads_create(pages->slab_stretches + 1, &pages->whole_bits);
	if (pages->partial_heads == NULL || pages->whole_heads == NULL) {
		vmkv_pages_fini(pages);
		return -ENOMEM;
	}
	pages->table_bytes = (pages->stretch_pages + pages->slab_stretches + 2) * 4ull;
	return 0;
}

void vmkv_pages_fini(struct vmkv_pages *pages)
{
	for (uint32_t i = 0; i < pages->slab_count; i++)
		free(pages->slabs[i].free_bits); /* the block */
	free(pages->slabs);
	free(pages->partial_heads);
	free(pages->partial_bits);
	free(pages->whole_heads);
	free(pages->whole_bits);
	memset(pages, 0, sizeof(*pages));
}

static size_t whole_map_words(const struct vmkv_pages *pages)
{
	return (pages->slab_stretches + 63) / 64;
}

static size_t slab_table_bytes(const struct vmkv_pages *pages)
{
	return pages->slab_stretches *
	           (sizeof(struct vmkv_stretch) + pages->words_per_stretch * sizeof(uint64_t)) +
	       whole_map_words(pages) * sizeof(uint64_t) + pages->slab_pages;
}

/* An unused index of the slab array, which grows if there is none. */
static int slab_index(struct vmkv_pages *pages, uint32_t *ret)
{
	/* So many slabs have page numbers below VMKV_PAGE_NONE. */
	uint32_t most = VMKV_PAGE_NONE >> pages->slab_shift;

	if (pages->slabs_in_use < pages->slab_count) {
		for (*ret = 0; pages->slabs[*ret].slab != NULL;)
			++*ret;
		return 0;
	}
	if (pages->slab_count >= most)
		return -EOVERFLOW;

	uint32_t n = pages->slab_count + pages->slab_count / 2 + 8;

	if (n > most)
		n = most;

	struct vmkv_slab_table *grown = realloc(pages->slabs, n * sizeof(*grown));

	if (grown == NULL)
		return -ENOMEM;
	memset(grown + pages->slab_count, 0, (n - pages->slab_count) * sizeof(*grown));
	pages->table_bytes += (n - pages->slab_count) * sizeof(*grown);
	*ret = pages->slab_count;
	pages->slabs = grown;
	pages->slab_count = n;
	return 0;
}

int vmkv_pages_add_slab(struct vmkv_pages *pages, struct vmkv_slab *slab, bool clean)
{
	uint32_t index;
	int rc = slab_index(pages, &index);

	if (rc != 0)
		return rc;
	/* One block, in order of alignment: bits, stretches, states. */
	size_t bits = pages->slab_stretches * pages->words_per_stretch;
	char *block = calloc(1, slab_table_bytes(pages));

	if (block == NULL)
		return -ENOMEM;

	struct vmkv_slab_table *t = &pages->slabs[index];

	t->slab = slab;
	t->pages = (uint32_t)(slab->bytes >> pages->page_shift);
	t->free = t->pages;
	t->whole = t->pages >> pages->stretch_shift;
	t->free_bits = (uint64_t *)(void *)block;
	t->whole_map = t->free_bits + bits;
	t->stretches = (struct vmkv_stretch *)(void *)(t->whole_map + whole_map_words(pages));
	t->states = (uint8_t *)(t->stretches + pages->slab_stretches);
	memset(t->states, clean ? VMKV_PAGE_FREE_CLEAN : VMKV_PAGE_FREE_DIRTY, t->pages);
	for (uint32_t i = 0; i * pages->stretch_pages < t->pages; i++) {
		uint32_t left = t->pages - i * pages->stretch_pages;
		uint32_t n = left < pages->stretch_pages ? left : pages->stretch_pages;

		t->stretches[i].free = n;
		vmkv_bits_write(t->free_bits + i * pages->words_per_stretch, 0, n, true);
		if (n < pages->stretch_pages)
			partial_insert(pages, stretch_number(pages, index, i));
	}
	vmkv_bits_write(t->whole_map, 0, t->whole, true);
	if (t->whole > 0)
		whole_insert(pages, index);
	pages->count[clean ? VMKV_PAGE_FREE_CLEAN : VMKV_PAGE_FREE_DIRTY] += t->pages;
	pages->total += t->pages;
	pages->slabs_in_use++;
	pages->table_bytes += slab_table_bytes(pages);
	return 0;
}

struct vmkv_slab *vmkv_pages_remove_free_slab(struct vmkv_pages *pages, uint32_t *from)
{
	for (uint32_t i = *from; i < pages->slab_count; i++) {
		struct vmkv_slab_table *t = &pages->slabs[i];
		struct vmkv_slab *slab = t->slab;

		if (slab == NULL || t->free < t->pages)
			continue;
		if (t->whole > 0)
			whole_remove(pages, i);
		if (t->pages % pages->stretch_pages != 0)
			partial_remove(pages, stretch_number(pages, i, t->whole));
		for (uint32_t page = 0; page < t->pages; page++)
			pages->count[t->states[page]]--;
		pages->total -= t->pages;
		pages->slabs_in_use--;
		pages->table_bytes -= slab_table_bytes(pages);
		free(t->free_bits);
		memset(t, 0, sizeof(*t));
		*from = i + 1;
		return slab;
	}
	*from = pages->slab_count;
	return NULL;
}

uint64_t vmkv_pages_whole_stretches(const struct vmkv_pages *pages)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < pages->slab_count; i++)
		sum += pages->slabs[i].whole;
	return sum;
}

/* ---- moving ---------------------------------------------------------------------------------- */

/* Keep the lists right when the pages [at, at + n) of a stretch become free or cease to be. */
static void stretch_change(struct vmkv_pages *pages, uint32_t stretch, uint32_t at, uint32_t n,
                           bool to_free)
{
	uint32_t slab = stretch_slab(pages, stretch);
	struct vmkv_slab_table *t = &pages->slabs[slab];
	struct vmkv_stretch *s = stretch_at(pages, stretch);
	uint32_t after = to_free ? s->free + n : s->free - n;

	if (s->free == pages->stretch_pages) {
		whole_remove(pages, slab);
		vmkv_bits_clear(t->whole_map, stretch_place(pages, stretch));
		if (--t->whole > 0)
			whole_insert(pages, slab);
	} else if (s->free > 0) {
		partial_remove(pages, stretch);
	}
	s->free = after;
	if (after == pages->stretch_pages) {
		if (t->whole > 0)
			whole_remove(pages, slab);
		vmkv_bits_set(t->whole_map, stretch_place(pages, stretch));
		t->whole++;
		whole_insert(pages, slab);
	} else if (after > 0) {
		partial_insert(pages, stretch);
	}
	t->free = to_free ? t->free + n : t->free - n;
	vmkv_bits_write(stretch_bits(pages, stretch), at, n, to_free);
}

/* The same for a run, which may lie in several stretches of one slab. */
static void run_change(struct vmkv_pages *pages, struct vmkv_run run, bool to_free)
{
	while (run.n > 0) {
		uint32_t at = run.page & (pages->stretch_pages - 1);
		uint32_t n = pages->stretch_pages - at;

		if (n > run.n)
			n = run.n;
		stretch_change(pages, run.page >> pages->stretch_shift, at, n, to_free);
		run.page += n;
		run.n -= n;
	}
}

static bool state_is_free(enum vmkv_page_state state)
{
	return state == VMKV_PAGE_FREE_CLEAN || state == VMKV_PAGE_FREE_DIRTY;
}

static uint8_t *run_states(const struct vmkv_pages *pages, struct vmkv_run run)
{
	return pages->slabs[vmkv_pages_slab_index(pages, run.page)].states +
	       vmkv_pages_place(pages, run.page);
}

void vmkv_pages_move(struct vmkv_pages *pages, struct vmkv_run run, enum vmkv_page_state from,
                     enum vmkv_page_state to)
{
	uint8_t *states = run_states(pages, run);

#ifdef VMKV_CHECKS
	assert(vmkv_page_may(from, to));
	for (uint32_t i = 0; i < run.n; i++)
		assert(states[i] == from);
#endif
	memset(states, to, run.n);
	pages->count[from] -= run.n;
	pages->count[to] += run.n;
	if (state_is_free(from) != state_is_free(to))
		run_change(pages, run, state_is_free(to));
}

void vmkv_pages_put_back(struct vmkv_pages *pages, struct vmkv_run run)
{
	uint8_t *states = run_states(pages, run);

	for (uint32_t i = 0, n; i < run.n; i += n) {
		bool dirty = (states[i] & VMKV_PAGE_DIRTY_MARK) != 0;
		uint8_t byte = states[i];

		for (n = 0; i + n < run.n && states[i + n] == byte; n++)
			states[i + n] = VMKV_PAGE_HELD;
		vmkv_pages_move(pages, (struct vmkv_run){ run.page + i, n }, VMKV_PAGE_HELD,
		                dirty ? VMKV_PAGE_FREE_DIRTY : VMKV_PAGE_FREE_CLEAN);
	}
}

bool vmkv_pages_held_dirty(const struct vmkv_pages *pages, struct vmkv_run run, uint32_t *at,
                           struct vmkv_run *ret)
{
	const uint8_t *states = run_states(pages, run);
	uint32_t i = *at;

	while (i < run.n && (states[i] & VMKV_PAGE_DIRTY_MARK) == 0)
		i++;
	ret->page = run.page + i;
	ret->n = 0;
	while (i + ret->n < run.n && (states[i + ret->n] & VMKV_PAGE_DIRTY_MARK) != 0)
		ret->n++;
	*at = i + ret->n;
	return ret->n > 0;
}

void vmkv_pages_held_clean(struct vmkv_pages *pages, struct vmkv_run run)
{
	memset(run_states(pages, run), VMKV_PAGE_HELD, run.n);
}

/* ---- placement ------------------------------------------------------------------------------- */

static bool page_is_free(const struct vmkv_pages *pages, uint32_t page)
{
	uint32_t at = page & (pages->stretch_pages - 1);

	return (stretch_bits(pages, page >> pages->stretch_shift)[at / 64] >> (at % 64) & 1) != 0;
}

/* Make [page, page + up to n) held, as far as it is free within its stretch. */
static void hold(struct vmkv_pages *pages, uint32_t page, uint32_t n, struct vmkv_run *ret)
{
	uint32_t stretch = page >> pages->stretch_shift;
	uint32_t at = page & (pages->stretch_pages - 1);
	uint32_t limit = n < pages->stretch_pages - at ? at + n : pages->stretch_pages;

	ret->page = page;
	ret->n = vmkv_bits_run(stretch_bits(pages, stretch), at, limit);

	uint8_t *states = run_states(pages, *ret);
	uint32_t dirty = 0;

	if (pages->count[VMKV_PAGE_FREE_DIRTY] > 0) {
		for (uint32_t i = 0; i < ret->n; i++)
			dirty += states[i] == VMKV_PAGE_FREE_DIRTY;
	}
	if (dirty == 0) {
		memset(states, VMKV_PAGE_HELD, ret->n);
	} else {
		for (uint32_t i = 0; i < ret->n; i++)
			states[i] = VMKV_PAGE_HELD |
			            (states[i] == VMKV_PAGE_FREE_DIRTY ? VMKV_PAGE_DIRTY_MARK : 0);
	}
	pages->count[VMKV_PAGE_FREE_DIRTY] -= dirty;
	pages->count[VMKV_PAGE_FREE_CLEAN] -= ret->n - dirty;
	pages->count[VMKV_PAGE_HELD] += ret->n;
	stretch_change(pages, stretch, at, ret->n, false);
}

/* Behind the pages that the span already has: the next page of the same stretch, or, at a stretch's
 * end, the next stretch if nobody has begun it (longer pieces for spans that grow by many). */
static bool take_after(struct vmkv_pages *pages, const struct vmkv_want *want, struct vmkv_run *ret)
{
	uint32_t page = want->after + 1;

	if (want->after == VMKV_PAGE_NONE || vmkv_pages_place(pages, page) == 0 ||
	    vmkv_pages_place(pages, page) >=
	        pages->slabs[vmkv_pages_slab_index(pages, page)].pages)
		return false;
	if ((page & (pages->stretch_pages - 1)) == 0) {
		bool aligned = (want->span_page & (pages->stretch_pages - 1)) == 0;

		if (!aligned ||
		    stretch_at(pages, page >> pages->stretch_shift)->free < pages->stretch_pages)
			return false;
	} else if (!page_is_free(pages, page)) {
		return false;
	}
	hold(pages, page, want->n, ret);
	return true;
}

/* Where in the slab the first run of at least n whole stretches begins, else the longest run. */
static uint32_t whole_run(const struct vmkv_pages *pages, uint32_t slab, uint32_t n)
{
	const uint64_t *map = pages->slabs[slab].whole_map;
	uint32_t stretches = pages->slab_stretches, best = 0, best_n = 0;

	for (uint32_t i = vmkv_bits_first(map, 0, stretches); i != VMKV_BITS_NONE && best_n < n;) {
		uint32_t run = vmkv_bits_run(map, i, n < stretches - i ? i + n : stretches);

		if (run > best_n) {
			best = i;
			best_n = run;
		}
		i = vmkv_bits_first(map, i + run, stretches);
	}
	return best;
}

static bool take_whole(struct vmkv_pages *pages, const struct vmkv_want *want, struct vmkv_run *ret)
{
	uint32_t at = want->span_page & (pages->stretch_pages - 1);
	uint64_t need = ((uint64_t)at + want->n + pages->stretch_pages - 1) >> pages->stretch_shift;
	uint32_t n = need < pages->slab_stretches ? (uint32_t)need : pages->slab_stretches;
	uint32_t bucket = vmkv_bits_first(pages->whole_bits, n, pages->slab_stretches + 1);

	if (bucket == VMKV_BITS_NONE)
		bucket = vmkv_bits_last(pages->whole_bits, pages->slab_stretches + 1);
	if (bucket == VMKV_BITS_NONE)
		return false;

	uint32_t slab = pages->whole_heads[bucket];
	uint32_t stretch = stretch_number(pages, slab, whole_run(pages, slab, n));

	hold(pages, (stretch << pages->stretch_shift) + at, want->n, ret);
	return true;
}

static bool take_partial(struct vmkv_pages *pages, const struct vmkv_want *want,
                         struct vmkv_run *ret)
{
	uint32_t bucket = vmkv_bits_last(pages->partial_bits, pages->stretch_pages + 1);

	if (bucket == VMKV_BITS_NONE)
		return false;

	uint32_t stretch = pages->partial_heads[bucket];
	const uint64_t *words = stretch_bits(pages, stretch);
	uint32_t best = 0, best_n = 0;

	for (uint32_t i = 0; i < pages->stretch_pages && best_n < pages->stretch_pages - i;) {
		uint32_t n = vmkv_bits_run(words, i, pages->stretch_pages);

		if (n > best_n) {
			best = i;
			best_n = n;
		}
		i += n > 0 ? n : 1;
	}
	/* Somebody may grow into the run from below: leave him the lower half. */
	uint32_t skip = best > 0 ? best_n / 2 : 0;

	hold(pages, (stretch << pages->stretch_shift) + best + skip, want->n, ret);
	return true;
}

bool vmkv_pages_take(struct vmkv_pages *pages, const struct vmkv_want *want, struct vmkv_run *ret)
{
	return take_after(pages, want, ret) || take_whole(pages, want, ret) ||
	       (want->may_split && take_partial(pages, want, ret));
}
