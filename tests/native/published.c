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

bool published_wrong(struct published *p, const char *format, ...)
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
		return published_wrong(p, "no magic");
	if (h->version_major != 2 || h->header_bytes != sizeof(*h) || h->file_bytes != p->size)
		return published_wrong(p, "version %u, header of %u bytes, file of %" PRIu64 ", not %zu",
		                       h->version_major, h->header_bytes, h->file_bytes, p->size);
	end = h->header_bytes + h->section_count * h->section_bytes;
	for (uint32_t i = 0; i < h->section_count; i++) {
		const struct vmkv_published_section *s =
		    (const void *)(p->bytes + h->header_bytes + i * h->section_bytes);

		if (s->offset < end || s->offset % 64 != 0)
			return published_wrong(p, "section %u is at %" PRIu64, s->id, s->offset);
		end = s->offset + s->versions * s->entry_bytes * s->count;
	}
	return end == p->size || published_wrong(p, "the sections end at %" PRIu64, end);
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

static uint32_t bits_take(uint64_t *word, uint32_t bits)
{
	uint32_t ret = (uint32_t)(*word & ((UINT64_C(1) << bits) - 1));

	*word >>= bits;
	return ret;
}

/* A piece at the state's epoch. Returns false if it can't be told. */
static bool piece_take(const struct published *p, uint64_t entry, struct vmkv_published_piece from,
                       struct published_piece *ret)
{
	const struct vmkv_published_header *h = p->header;
	uint32_t state = bits_take(&from.stamp, VMKV_PUBLISHED_STATE_BITS);
	uint32_t before = bits_take(&from.stamp, VMKV_PUBLISHED_STATE_BITS);
	uint32_t age = bits_take(&from.stamp, VMKV_PUBLISHED_AGE_BITS);
	uint64_t stretches = h->slab_pages / h->stretch_pages, i = entry % h->slab_pages;

	if (from.stamp > p->epoch) {
		if (from.stamp - age > p->epoch)
			return false;
		state = before;
	}
	if (state == VMKV_PUBLISHED_PIECE_NONE)
		return true;
	ret->pages = bits_take(&from.place, h->pages_bits);
	ret->page = bits_take(&from.place, h->page_bits);
	ret->region = bits_take(&from.place, h->region_bits);
	ret->slot = bits_take(&from.place, h->slot_bits);
	ret->state = state;
	ret->phys = (uint32_t)(entry - i + i % stretches * h->stretch_pages + i / stretches);
	return ret->pages > 0 && from.place == 0;
}

static bool pieces_take(struct published *p)
{
	const struct vmkv_published_section *s = section(p, VMKV_PUBLISHED_PIECES);
	const struct vmkv_published_piece *from = (const void *)(p->bytes + s->offset);

	p->piece_count = s->count;
	p->pieces = calloc(s->count, sizeof(*p->pieces));
	p->by_phys = calloc(s->count, sizeof(*p->by_phys));
	CHECK(p->pieces != NULL && p->by_phys != NULL && s->versions == 1);
	for (uint64_t i = 0; i < s->count; i++) {
		if (!piece_take(p, i, from[i], &p->pieces[i]))
			return published_wrong(p, "entry %" PRIu64 " of pieces: stamp %#" PRIx64 ", place %#" PRIx64
			                       " at epoch %" PRIu64, i, from[i].stamp, from[i].place, p->epoch);
		if (p->pieces[i].pages > 0)
			p->by_phys[p->pieces[i].phys] = (uint32_t)i + 1;
	}
	return true;
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
	p->slabs = entries(p, VMKV_PUBLISHED_SLABS, &p->slab_count);
	p->ring = (const void *)(p->bytes + section(p, VMKV_PUBLISHED_RING)->offset);
	p->times = (const void *)(p->bytes + section(p, VMKV_PUBLISHED_TIMES)->offset);
	p->groups = (const void *)(p->bytes + section(p, VMKV_PUBLISHED_GROUPS)->offset);
	p->regions = (const void *)(p->bytes + section(p, VMKV_PUBLISHED_REGIONS)->offset);
	p->places = (const void *)(p->bytes + section(p, VMKV_PUBLISHED_PLACES)->offset);
	p->group_count = section(p, VMKV_PUBLISHED_GROUPS)->count;
	p->region_count = section(p, VMKV_PUBLISHED_REGIONS)->count;
	p->place_count = section(p, VMKV_PUBLISHED_PLACES)->count;
	if (n != p->slot_count || n != p->header->slot_count)
		return published_wrong(p, "%" PRIu64 " slots, and %" PRIu64, n, p->slot_count);
	return pieces_take(p);
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
	return published_wrong(ret, "no quiet moment");
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

const struct published_piece *published_piece(const struct published *p, uint64_t phys)
{
	uint32_t i = phys < p->piece_count ? p->by_phys[phys] : 0;

	return i > 0 ? &p->pieces[i - 1] : NULL;
}

bool published_is_torn(const struct published *p)
{
	for (uint32_t id = VMKV_PUBLISHED_STATE; id <= VMKV_PUBLISHED_SLABS; id++) {
		const struct vmkv_published_section *s = section(p, id);

		for (uint64_t i = 0; i < s->versions * s->count; i++) {
			uint64_t epoch;

			memcpy(&epoch, p->bytes + s->offset + i * s->entry_bytes, sizeof(epoch));
			if (id == VMKV_PUBLISHED_PIECES)
				epoch >>= VMKV_PUBLISHED_EPOCH_SHIFT;
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
