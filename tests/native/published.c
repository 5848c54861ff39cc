/* SPDX-License-Identifier: MIT */
#include "published.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

#define ATTEMPTS 100000

static bool wrong(struct published *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static bool wrong(struct published *p, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(p->wrong, sizeof(p->wrong), format, args);
	va_end(args);
	return false;
}

/* ---- sections -------------------------------------------------------------------------------- */

static const struct vmkv_published_section *section(const struct published *p, uint32_t id)
{
	for (uint32_t i = 0; i < p->header->section_count; i++) {
		const struct vmkv_published_section *s =
		    (const void *)(p->bytes + p->header->header_bytes + i * p->header->section_bytes);

		if (s->id == id)
			return s;
	}
	CHECK_FAIL("there is no section %u", id);
}

static bool header_check(struct published *p)
{
	const struct vmkv_published_header *h = p->header;
	uint64_t end;

	if (p->size < sizeof(*h) || h->magic != VMKV_PUBLISHED_MAGIC)
		return wrong(p, "no magic");
	if (h->version_major != 1 || h->header_bytes != sizeof(*h) || h->file_bytes != p->size)
		return wrong(p, "version %u, header of %u bytes, file of %" PRIu64 ", not %zu",
		             h->version_major, h->header_bytes, h->file_bytes, p->size);
	end = h->header_bytes + h->section_count * h->section_bytes;
	for (uint32_t id = 1; id <= 10; id++) {
		const struct vmkv_published_section *s = section(p, id);

		if (s->offset < end || s->offset % 64 != 0)
			return wrong(p, "section %u is at %" PRIu64, id, s->offset);
		end = s->offset + s->versions * s->entry_bytes * s->count;
	}
	return end == p->size || wrong(p, "the sections end at %" PRIu64, end);
}

/* The versions that count. */
static void *entries(const struct published *p, uint32_t id, uint64_t *count)
{
	const struct vmkv_published_section *s = section(p, id);
	const unsigned char *at = p->bytes + s->offset;
	unsigned char *ret = calloc(s->count, s->entry_bytes);

	CHECK(ret != NULL && s->versions == 2);
	*count = s->count;
	for (uint64_t i = 0; i < 2 * s->count; i++, at += s->entry_bytes) {
		unsigned char *to = ret + i / 2 * s->entry_bytes;
		uint64_t epoch, best;

		memcpy(&epoch, at, sizeof(epoch));
		memcpy(&best, to, sizeof(best));
		if (epoch <= p->epoch && epoch > best)
			memcpy(to, at, s->entry_bytes);
	}
	return ret;
}

static bool parts_take(struct published *p)
{
	void *state;
	uint64_t n;

	p->header = (const void *)p->bytes;
	if (!header_check(p))
		return false;
	p->epoch = p->header->epoch;
	state = entries(p, VMKV_PUBLISHED_STATE, &n);
	memcpy(&p->state, state, sizeof(p->state));
	free(state);
	p->lives = entries(p, VMKV_PUBLISHED_LIVES, &n);
	p->slots = entries(p, VMKV_PUBLISHED_SLOTS, &p->slot_count);
	p->pieces = entries(p, VMKV_PUBLISHED_PIECES, &p->piece_count);
	p->slabs = entries(p, VMKV_PUBLISHED_SLABS, &p->slab_count);
	p->ring = (const void *)(p->bytes + section(p, VMKV_PUBLISHED_RING)->offset);
	p->times = (const void *)(p->bytes + section(p, VMKV_PUBLISHED_TIMES)->offset);
	p->groups = (const void *)(p->bytes + section(p, VMKV_PUBLISHED_GROUPS)->offset);
	p->regions = (const void *)(p->bytes + section(p, VMKV_PUBLISHED_REGIONS)->offset);
	p->places = (const void *)(p->bytes + section(p, VMKV_PUBLISHED_PLACES)->offset);
	p->group_count = section(p, VMKV_PUBLISHED_GROUPS)->count;
	p->region_count = section(p, VMKV_PUBLISHED_REGIONS)->count;
	p->place_count = section(p, VMKV_PUBLISHED_PLACES)->count;
	p->by_phys = calloc(p->piece_count, sizeof(*p->by_phys));
	CHECK(p->by_phys != NULL);
	for (uint64_t i = 0; i < p->piece_count; i++) {
		if (p->pieces[i].pages > 0 && p->pieces[i].phys < p->piece_count)
			p->by_phys[p->pieces[i].phys] = (uint32_t)i + 1;
	}
	if (n != p->slot_count || n != p->header->slot_count)
		return wrong(p, "%" PRIu64 " slots, and %" PRIu64, n, p->slot_count);
	return true;
}

bool published_take(const unsigned char *bytes, size_t size, struct published *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->bytes = malloc(size);
	CHECK(ret->bytes != NULL);
	memcpy(ret->bytes, bytes, size);
	ret->size = size;
	return parts_take(ret);
}

static uint64_t epoch_read(int fd)
{
	uint64_t epoch = 0;

	CHECK_EQ(pread(fd, &epoch, sizeof(epoch), offsetof(struct vmkv_published_header, epoch)),
	         sizeof(epoch));
	return epoch;
}

static void part_read(const struct published *p, int fd, uint64_t offset, uint64_t bytes)
{
	CHECK_EQ(pread(fd, p->bytes + offset, bytes, (off_t)offset), bytes);
}

/* The epoch of the state's version that counts at `epoch`; 0: none does. */
static uint64_t state_epoch(const struct published *p, int fd, uint64_t epoch)
{
	const struct vmkv_published_section *s = section(p, VMKV_PUBLISHED_STATE);
	uint64_t best = 0, found;

	part_read(p, fd, s->offset, 2 * s->entry_bytes);
	for (int v = 0; v < 2; v++) {
		memcpy(&found, p->bytes + s->offset + (size_t)v * s->entry_bytes, sizeof(found));
		if (found <= epoch && found > best)
			best = found;
	}
	return best;
}

/* The large part, then what steps write: until both are of one moment. */
static bool copy_once(const struct published *p, int fd)
{
	const struct vmkv_published_section *lives = section(p, VMKV_PUBLISHED_LIVES);
	uint64_t before = state_epoch(p, fd, epoch_read(fd));

	part_read(p, fd, 0, p->size);
	for (int i = 0; i < 100; i++) {
		uint64_t epoch = epoch_read(fd);

		if (state_epoch(p, fd, epoch) != before)
			return false;
		part_read(p, fd, 0, sizeof(*p->header));
		part_read(p, fd, lives->offset, 2 * lives->entry_bytes * lives->count);
		if (epoch_read(fd) == epoch && p->header->epoch == epoch)
			return true;
	}
	return false;
}

bool published_read(int fd, struct published *ret)
{
	struct stat found;

	memset(ret, 0, sizeof(*ret));
	CHECK_EQ(fstat(fd, &found), 0);
	ret->size = (size_t)found.st_size;
	ret->bytes = malloc(ret->size + 1);
	CHECK(ret->bytes != NULL);
	part_read(ret, fd, 0, ret->size);
	ret->header = (const void *)ret->bytes;
	if (!header_check(ret))
		return false;
	while (ret->attempts++ < ATTEMPTS) {
		if (copy_once(ret, fd))
			return parts_take(ret);
	}
	return wrong(ret, "no quiet moment");
}

void published_free(struct published *p)
{
	free(p->bytes);
	free(p->lives);
	free(p->slots);
	free(p->pieces);
	free(p->slabs);
	free(p->by_phys);
}

const struct vmkv_published_piece *published_piece(const struct published *p, uint64_t phys)
{
	uint32_t i = phys < p->piece_count ? p->by_phys[phys] : 0;

	return i > 0 ? &p->pieces[i - 1] : NULL;
}

/* ---- whether it is whole --------------------------------------------------------------------- */

/* Pages by state, and pieces. */
struct tally {
	uint64_t pages[5], pieces;
};

static bool tally_same(struct published *p, const char *what, uint64_t i, const struct tally *t,
                       struct tally told)
{
	for (int state = 1; state <= 4; state++) {
		if (t->pages[state] != told.pages[state])
			return wrong(p, "%s %" PRIu64 ": %" PRIu64 " pages in state %d, told are %"
			             PRIu64, what, i, t->pages[state], state, told.pages[state]);
	}
	return t->pieces == told.pieces ||
	       wrong(p, "%s %" PRIu64 ": %" PRIu64 " pieces, told are %" PRIu64, what, i, t->pieces,
	             told.pieces);
}

/* What an entry of slots or slabs tells. */
#define TOLD(of)                                                                                   \
	(struct tally)                                                                             \
	{                                                                                          \
		{ 0, (of).mapped_pages, (of).warm_pages, (of).retiring_pages, (of).unmapping_pages }, \
		    (of).pieces                                                                    \
	}

static bool piece_check(struct published *p, uint64_t i, uint8_t *taken)
{
	const struct vmkv_published_piece *piece = &p->pieces[i];
	uint64_t slab = i / p->header->slab_pages, place = piece->phys % p->header->slab_pages;
	uint64_t page_bytes = p->header->page_bytes;

	if (piece->state < 1 || piece->state > 4 || piece->refcount != 1)
		return wrong(p, "piece %" PRIu64 ": state %u, %u references", i, piece->state,
		             piece->refcount);
	if (piece->phys / p->header->slab_pages != slab)
		return wrong(p, "piece %" PRIu64 " begins at page %u", i, piece->phys);
	if ((place + piece->pages) * page_bytes > p->slabs[slab].bytes)
		return wrong(p, "piece %" PRIu64 " ends behind its slab", i);
	if (piece->slot >= p->slot_count || piece->region >= p->region_count)
		return wrong(p, "piece %" PRIu64 ": slot %u, region %u", i, piece->slot, piece->region);
	if ((uint64_t)(piece->page + piece->pages) * page_bytes >
	    p->regions[piece->region].slot_stride)
		return wrong(p, "piece %" PRIu64 " ends behind its slot", i);
	for (uint64_t n = 0; n < piece->pages; n++) {
		if (taken[piece->phys + n]++)
			return wrong(p, "page %" PRIu64 " belongs to two pieces", piece->phys + n);
	}
	if (piece->state == VMKV_PUBLISHED_PIECE_MAPPED &&
	    p->slots[piece->slot].state != VMKV_PUBLISHED_SLOT_OPEN)
		return wrong(p, "piece %" PRIu64 " is mapped, and slot %u not open", i, piece->slot);
	return true;
}

/* Pages that tokens of a region take. */
static uint64_t region_need(const struct published *p, const struct vmkv_published_region *r,
                            uint32_t tokens)
{
	uint64_t bytes = r->token_bytes != 0 ? tokens * r->token_bytes : tokens > 0 ? r->fixed_bytes : 0;

	return (bytes + p->header->page_bytes - 1) / p->header->page_bytes;
}

/* An open slot's spans have no hole, and reach as far as its tokens. */
static bool spans_check(struct published *p, const uint64_t *ends, const uint64_t *starts,
                        const uint64_t *mapped)
{
	for (uint64_t i = 0; i < p->slot_count * p->region_count; i++) {
		uint64_t slot = i / p->region_count;
		const struct vmkv_published_region *r = &p->regions[i % p->region_count];
		const struct vmkv_published_group *g = &p->groups[r->group];
		const struct vmkv_published_live *live = &p->lives[slot];
		uint64_t need = region_need(p, r, live->tokens), dead = 0;

		if (p->slots[slot].state != VMKV_PUBLISHED_SLOT_OPEN || live->tokens == 0)
			continue;
		if (g->window_tokens != 0 && live->previous > g->window_tokens)
			dead = (live->previous - g->window_tokens) * r->token_bytes / p->header->page_bytes;
		if (ends[i] < need)
			return wrong(p, "slot %" PRIu64 ", region %" PRIu64 ": %u tokens need %" PRIu64
			             " pages, and %" PRIu64 " are mapped", slot, i % p->region_count,
			             live->tokens, need, ends[i]);
		if (need > dead && (starts[i] > dead || mapped[i] != ends[i] - starts[i]))
			return wrong(p, "slot %" PRIu64 ", region %" PRIu64 ": pages %" PRIu64 " to %"
			             PRIu64 " with %" PRIu64 " mapped, and %" PRIu64 " are dead", slot,
			             i % p->region_count, starts[i], ends[i], mapped[i], dead);
	}
	return true;
}

static bool pieces_check(struct published *p, struct tally *slots, struct tally *slabs,
                         struct tally *all)
{
	size_t spans = p->slot_count * p->region_count;
	uint8_t *taken = calloc(p->piece_count + p->header->slab_pages, 1);
	uint64_t *ends = calloc(spans, 8), *starts = calloc(spans, 8), *mapped = calloc(spans, 8);
	bool good = true;

	CHECK(taken != NULL && ends != NULL && starts != NULL && mapped != NULL);
	for (uint64_t i = 0; i < p->piece_count && good; i++) {
		const struct vmkv_published_piece *piece = &p->pieces[i];
		size_t span = (size_t)piece->slot * p->region_count + piece->region;

		if (piece->pages == 0)
			continue;
		good = piece_check(p, i, taken);
		if (!good)
			break;
		slots[piece->slot].pages[piece->state] += piece->pages;
		slots[piece->slot].pieces++;
		slabs[i / p->header->slab_pages].pages[piece->state] += piece->pages;
		slabs[i / p->header->slab_pages].pieces++;
		all->pages[piece->state] += piece->pages;
		if (piece->state != VMKV_PUBLISHED_PIECE_MAPPED)
			continue;
		if (ends[span] == 0 || piece->page < starts[span])
			starts[span] = piece->page;
		if (piece->page + piece->pages > ends[span])
			ends[span] = piece->page + piece->pages;
		mapped[span] += piece->pages;
	}
	good = good && (p->state.left_out > 0 || spans_check(p, ends, starts, mapped));
	free(taken);
	free(ends);
	free(starts);
	free(mapped);
	return good;
}

static bool sums_check(struct published *p, const struct tally *slots, const struct tally *slabs,
                       const struct tally *all)
{
	const struct vmkv_published_state *s = &p->state;
	const uint64_t told[4] = { s->mapped_bytes, s->warm_bytes, s->retiring_bytes, s->unmapping_bytes };
	uint64_t open = 0, there = 0, bytes = 0;

	for (uint64_t i = 0; i < p->slot_count; i++) {
		open += p->slots[i].state == VMKV_PUBLISHED_SLOT_OPEN;
		if (!tally_same(p, "slot", i, &slots[i], TOLD(p->slots[i])))
			return false;
	}
	for (uint64_t i = 0; i < p->slab_count; i++) {
		there += p->slabs[i].bytes != 0;
		bytes += p->slabs[i].bytes;
		if (!tally_same(p, "slab", i, &slabs[i], TOLD(p->slabs[i])))
			return false;
	}
	for (int state = 1; state <= 4; state++) {
		if (all->pages[state] * p->header->page_bytes != told[state - 1])
			return wrong(p, "%" PRIu64 " pages in state %d, and %" PRIu64 " bytes told",
			             all->pages[state], state, told[state - 1]);
	}
	if (open != s->sequences || there != s->slabs)
		return wrong(p, "%" PRIu64 " open, %" PRIu64 " slabs; told are %" PRIu64 ", %" PRIu64,
		             open, there, s->sequences, s->slabs);
	if (bytes != s->slab_bytes ||
	    bytes != s->mapped_bytes + s->warm_bytes + s->retiring_bytes + s->unmapping_bytes +
	                 s->zeroing_bytes + s->held_bytes + s->free_clean_bytes + s->free_dirty_bytes)
		return wrong(p, "slabs of %" PRIu64 " bytes, and %" PRIu64 " told, or another sum", bytes,
		             s->slab_bytes);
	return true;
}

static bool slots_check(struct published *p)
{
	for (uint64_t i = 0; i < p->slot_count; i++) {
		const struct vmkv_published_slot *slot = &p->slots[i];

		if (slot->state > VMKV_PUBLISHED_SLOT_RETIRING ||
		    (slot->seq != 0 && ((slot->seq & 0xfffff) != i ||
		                        slot->seq >> 44 != p->header->tag)))
			return wrong(p, "slot %" PRIu64 ": state %u, sequence %#" PRIx64, i, slot->state,
			             slot->seq);
		if (slot->state != VMKV_PUBLISHED_SLOT_OPEN)
			continue;
		if (slot->seq == 0 || p->lives[i].tokens > slot->mapped_tokens ||
		    slot->ready_tokens > slot->mapped_tokens ||
		    p->lives[i].step > p->state.steps + (p->epoch - p->state.epoch))
			return wrong(p, "slot %" PRIu64 ": %u tokens, %u mapped, %u ready, step %" PRIu64,
			             i, p->lives[i].tokens, slot->mapped_tokens, slot->ready_tokens,
			             p->lives[i].step);
	}
	return true;
}

/* All events of the state that the ring still holds. */
static bool events_check(struct published *p)
{
	uint64_t held = 0, last = p->state.events, newest = 0;

	for (uint64_t i = 0; i < VMKV_PUBLISHED_EVENTS; i++) {
		uint64_t serial = p->ring[i].serial;

		if (serial == 0)
			continue;
		if ((serial - 1) % VMKV_PUBLISHED_EVENTS != i || p->ring[i].kind == 0 ||
		    p->ring[i].kind > VMKV_PUBLISHED_EVENT_LOST)
			return wrong(p, "entry %" PRIu64 " of the ring holds %" PRIu64 " of kind %u", i,
			             serial, p->ring[i].kind);
		held += serial <= last;
		newest = serial > newest ? serial : newest;
	}
	/* What goes beyond it, and one that is being written, took the place of old ones. */
	uint64_t lost = newest > last ? newest - last + 1 : 1;
	uint64_t kept = last < VMKV_PUBLISHED_EVENTS ? last : VMKV_PUBLISHED_EVENTS;

	return held + lost >= kept ||
	       wrong(p, "the ring holds %" PRIu64 " events of %" PRIu64, held, last);
}

bool published_check(struct published *p)
{
	struct tally *slots = calloc(p->slot_count, sizeof(*slots));
	struct tally *slabs = calloc(p->slab_count, sizeof(*slabs)), all = { 0 };
	bool good;

	CHECK(slots != NULL && slabs != NULL);
	good = p->state.epoch != 0 || wrong(p, "there is no state");
	good = good && pieces_check(p, slots, slabs, &all) && slots_check(p) && events_check(p);
	good = good && (p->state.left_out > 0 || sums_check(p, slots, slabs, &all));
	free(slots);
	free(slabs);
	return good;
}

bool published_same(const struct published *a, struct published *b)
{
	if (a->epoch != b->epoch)
		return wrong(b, "epoch %" PRIu64 " after %" PRIu64, b->epoch, a->epoch);
	if (memcmp(&a->state, &b->state, sizeof(a->state)) != 0)
		return wrong(b, "another state");
	if (memcmp(a->lives, b->lives, a->slot_count * sizeof(*a->lives)) != 0)
		return wrong(b, "other lives");
	if (memcmp(a->slots, b->slots, a->slot_count * sizeof(*a->slots)) != 0)
		return wrong(b, "other slots");
	if (memcmp(a->pieces, b->pieces, a->piece_count * sizeof(*a->pieces)) != 0)
		return wrong(b, "other pieces");
	if (memcmp(a->slabs, b->slabs, a->slab_count * sizeof(*a->slabs)) != 0)
		return wrong(b, "other slabs");
	return true;
}

bool published_is_torn(const struct published *p)
{
	for (uint32_t id = VMKV_PUBLISHED_STATE; id <= VMKV_PUBLISHED_SLABS; id++) {
		const struct vmkv_published_section *s = section(p, id);

		for (uint64_t i = 0; i < 2 * s->count; i++) {
			uint64_t epoch;

			memcpy(&epoch, p->bytes + s->offset + i * s->entry_bytes, sizeof(epoch));
			if (epoch > p->epoch)
				return true;
		}
	}
	return false;
}

/* ---- where it is ----------------------------------------------------------------------------- */

static char directory[64];

static void directory_remove(void)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -rf %s", directory);
	if (system(command) != 0)
		fprintf(stderr, "%s is left\n", directory);
}

const char *published_directory(void)
{
	if (directory[0] == 0) {
		snprintf(directory, sizeof(directory), P_tmpdir "/vmkv-test-%d", (int)getpid());
		CHECK_EQ(mkdir(directory, 0700), 0);
		atexit(directory_remove);
	}
	CHECK_EQ(setenv("XDG_RUNTIME_DIR", directory, 1), 0);
	CHECK_EQ(unsetenv("VMKV_STATS"), 0);
	return directory;
}

int published_open(void)
{
	char path[96], prefix[16];
	const struct dirent *entry;
	int fd = -1;
	DIR *files;

	snprintf(path, sizeof(path), "%s/vmkv", directory);
	snprintf(prefix, sizeof(prefix), "%d-", getpid());
	files = opendir(path);
	CHECK(files != NULL);
	while ((entry = readdir(files)) != NULL) {
		if (entry->d_name[0] == '.' && strlen(entry->d_name) < 3)
			continue;
		if (fd >= 0 || strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
			CHECK_FAIL("there is %s", entry->d_name);
		fd = openat(dirfd(files), entry->d_name, O_RDONLY | O_CLOEXEC);
		CHECK(fd >= 0);
	}
	closedir(files);
	CHECK(fd >= 0);
	return fd;
}
