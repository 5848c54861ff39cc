/* SPDX-License-Identifier: MIT
 *
 * The mirror: what a cache tells of itself in a file, if it is shared. publish_format.h says how
 * the file is laid out and what makes its states whole; here is when they are written.
 *
 * All but create and destroy are called under the cache's lock, fail never, and make no system
 * call. They note or write what changed; vmkv_mirror_commit, when the lock is given up, makes that
 * one change. So whoever holds the lock must leave the tables whole when he drops it, as for
 * everybody else.
 */
#ifndef VMKV_PUBLISH_H
#define VMKV_PUBLISH_H

#include "pages.h"
#include "publish_format.h"

struct vmkv_cache;
struct vmkv_gone;

/* publish_file.c: the file itself, all zero, without a name yet. */
struct vmkv_mirror_file {
	int directory;  /* descriptor of where it is */
	int pid;        /* a child of fork() must leave it alone */
	char path[192]; /* of the directory, for messages */
	char name[32];  /* in there; hidden at first */
	unsigned char *bytes; /* mapped */
	size_t size;
};

/* Whether a cache with enum vmkv_share `share` is to be shared, by VMKV_STATS too. -EINVAL: that
 * means nothing. */
int vmkv_mirror_wanted(uint32_t share, bool *ret, char *error, size_t error_bytes);
/* Find or make the directory, remove what dead processes left there, and preallocate the file.
 * -EACCES: the directory isn't ours alone. -ENOSPC, -EFBIG: no room; or another errno. With a line
 * in error. */
int vmkv_mirror_file_create(struct vmkv_mirror_file *file, uint32_t tag, size_t size, char *error,
                            size_t error_bytes);
/* It is filled in: give it its name. */
int vmkv_mirror_file_show(struct vmkv_mirror_file *file, char *error, size_t error_bytes);
void vmkv_mirror_file_destroy(struct vmkv_mirror_file *file);

/* Pages and pieces at a slot's addresses, or in a slab: by enum vmkv_published_piece_state. */
struct vmkv_mirror_tally {
	uint32_t pages[VMKV_PUBLISHED_PIECE_UNMAPPING + 1];
	uint32_t pieces;
};

/* publish_create.c */
struct vmkv_mirror {
	struct vmkv_mirror_file file;
	/* Where the sections are. */
	struct vmkv_published_header *header;
	struct vmkv_published_state *state;
	struct vmkv_published_live *lives;
	struct vmkv_published_slot *slots;
	struct vmkv_published_piece *pieces;
	struct vmkv_published_slab *slabs;
	struct vmkv_published_event *ring;
	struct vmkv_published_times *times;
	/* What is told of slots and slabs, and which of them changed. */
	struct vmkv_published_slot *slot_now;
	struct vmkv_published_slab *slab_now;
	struct vmkv_mirror_tally *slot_tally, *slab_tally;
	uint8_t page_shift, region_shift, slot_shift, place_bits; /* of their places */
	uint32_t *slots_changed, *slabs_changed;
	uint8_t *slot_marked, *slab_marked;
	uint32_t slots_changed_count, slabs_changed_count;
	uint32_t slab_capacity; /* slabs from that index on are left out */
	uint64_t left_out;
	struct vmkv_published_event pieces_event; /* not written yet, unless its kind is NONE */
	uint32_t pieces_page, pieces_n;           /* of its pieces */
	uint64_t epoch;   /* of the last change */
	uint64_t serial;  /* of the last event */
	uint64_t now_ns;  /* time of this change, 0: not asked for yet */
	uint64_t last_ns; /* time of the last one */
	uint64_t call_ns; /* how long the driver call took that this change is about */
	bool stepped;     /* lives were written */
	bool changed;     /* there is more than that */
	bool lost;        /* the device's end was told */
	size_t table_bytes; /* of the private tables */
};

/* Begin to publish the cache. Errors as vmkv_mirror_file_create, and -ENOMEM. */
int vmkv_mirror_create(struct vmkv_cache *cache, char *error, size_t error_bytes);
/* The name goes with it. */
void vmkv_mirror_destroy(struct vmkv_cache *cache);

/* publish.c. Those below, but for the first four, do nothing without a mirror. */

/* The request's lengths were told. pre: there is a mirror, as for the next three. */
void vmkv_mirror_step(struct vmkv_cache *cache, const struct vmkv_step_request *request);
/* The pages of a mapping changed their state: it came to be, changed, or is no more. */
void vmkv_mirror_piece(struct vmkv_cache *cache, const struct vmkv_gone *gone,
                       enum vmkv_page_state from, enum vmkv_page_state to);
/* Pieces of a step, whose mapping succeeded. */
void vmkv_mirror_mapped(struct vmkv_cache *cache, const struct vmkv_gone *gone, uint32_t n);
/* All that was noted since the last one is one change. */
void vmkv_mirror_commit(struct vmkv_cache *cache);

/* Something about the slot changed. */
void vmkv_mirror_slot(struct vmkv_cache *cache, uint32_t slot);
void vmkv_mirror_opened(struct vmkv_cache *cache, uint32_t slot);
/* Before its sequence is forgotten. */
void vmkv_mirror_closed(struct vmkv_cache *cache, uint32_t slot);
/* A piece was trimmed or is due, or with region VMKV_REGION_ALL what a closed slot had. */
void vmkv_mirror_given(struct vmkv_cache *cache, const struct vmkv_gone *gone,
                       enum vmkv_published_event_kind kind);
/* Pieces were handed to the driver to be unmapped. */
void vmkv_mirror_unmapped(struct vmkv_cache *cache, const struct vmkv_gone *gone, uint32_t n);
void vmkv_mirror_shortage(struct vmkv_cache *cache, const struct vmkv_shortage *shortage,
                          vmkv_seq first);
/* A slab came, or the one with this index went. */
void vmkv_mirror_slab(struct vmkv_cache *cache, const struct vmkv_slab *slab);
void vmkv_mirror_slab_gone(struct vmkv_cache *cache, uint32_t index);
void vmkv_mirror_budget(struct vmkv_cache *cache);
/* A figure changed that nothing else tells. */
void vmkv_mirror_touch(struct vmkv_cache *cache);
/* A driver call with so many ranges began and ended then. */
void vmkv_mirror_called(struct vmkv_cache *cache, enum vmkv_published_call call, uint64_t ranges,
                        uint64_t began_ns, uint64_t ended_ns);
/* The time in ns, for the above; 0 without a mirror. Needs no lock. */
uint64_t vmkv_mirror_clock(const struct vmkv_cache *cache);

/* publish_events.c, for the above. */
/* One time for all of a change: most of them come close together. */
uint64_t vmkv_mirror_now(struct vmkv_mirror *mirror);
/* Write an event down. */
void vmkv_mirror_event(struct vmkv_cache *cache, enum vmkv_published_event_kind kind,
                       struct vmkv_published_event event);
/* What happened to a piece, or to n that are alike in as many regions one after the other: the same
 * as to the last one, in the next region, or something else. */
void vmkv_mirror_piece_events(struct vmkv_cache *cache, const struct vmkv_gone *gone, uint32_t n,
                              enum vmkv_published_event_kind kind);
/* What was collected of pieces is written down now. */
void vmkv_mirror_flush(struct vmkv_cache *cache);

/* Which entry a piece has that begins at this page. Spans that grow together take pages at the same
 * place of neighbouring stretches: their entries are neighbours, which is what keeps the cost
 * down. */
static inline uint64_t vmkv_mirror_entry(const struct vmkv_pages *pages, uint32_t page)
{
	uint64_t slab = vmkv_pages_slab_index(pages, page);
	uint32_t place = vmkv_pages_place(pages, page);
	uint32_t in_stretch = place & (pages->stretch_pages - 1);

	return slab * pages->slab_pages + in_stretch * pages->slab_stretches +
	       (place >> pages->stretch_shift);
}

/* Where that is: a piece that begins at this page will come to be soon, and what is far away in
 * memory had better come near meanwhile. (That is the caller's to ask for: compilers take a function
 * that does nothing but prefetch for one that does nothing.) */
static inline const void *vmkv_mirror_expect(const struct vmkv_mirror *mirror,
                                             const struct vmkv_pages *pages, uint32_t page)
{
	bool room = vmkv_pages_slab_index(pages, page) < mirror->slab_capacity;

	return room ? &mirror->pieces[vmkv_mirror_entry(pages, page)] : mirror->pieces;
}

/* What is marked as being written is so before any of it is. */
static inline void vmkv_mirror_fence(void)
{
#ifndef __SANITIZE_THREAD__ /* it knows no fences, and sees none of the readers */
	__atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}

#endif
