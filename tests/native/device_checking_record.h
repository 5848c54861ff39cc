/* SPDX-License-Identifier: MIT
 *
 * The checking device's record of what exists, and the rules that it checks against it. Its lock is
 * held in all of these.
 */
#ifndef DEVICE_CHECKING_RECORD_H
#define DEVICE_CHECKING_RECORD_H

#include "device_checking.h"

struct checking_op;

/* What is known of one granule of a slab. */
struct checking_page {
	uint64_t until; /* a queue may use it until then */
	uint32_t maps;  /* how often it is mapped */
	uint32_t fills; /* fills of it that are not reached */
	bool mapping;   /* a map call is at work on it */
};

struct checking_slab {
	struct vmkv_slab base;
	struct vmkv_slab *inner;
	struct checking_slab *next;
	struct checking_page *pages;
	uint32_t number; /* from 1, never used again */
};

/* What a mapping in the record is doing. */
enum checking_state {
	MAPPING,  /* a map call is at work */
	MAPPED,   /* issued; to be used once its point is reached */
	UNMAPPING /* unmapped, not yet reached */
};

/* What the trees hold: ranges of addresses that never overlap. */
struct range {
	uint64_t begin, end;
};

struct mapping {
	struct range range;
	struct checking_slab *slab;
	uint64_t offset;
	uint64_t point; /* when it can be used */
	uint64_t until; /* a queue may use it until then */
	enum checking_state state;
};

struct checking_device {
	struct vmkv_device base;
	struct vmkv_device *inner;
	struct checking_options options;
	pthread_mutex_t lock; /* for all below, and options.fault */
	struct checking_report report;
	uint64_t fault_calls, fault_random;
	struct checking_op *ops, **ops_tail; /* oldest first */
	uint64_t last_point, lag_random;
	uint64_t completed;  /* by the test's queues */
	void *reservations;  /* trees of tsearch, of struct range ... */
	void *mappings;      /* ... and of struct mapping */
	void *ever;          /* the same of ranges that were ever mapped, if none may be again */
	uint32_t slab_number; /* of the last slab */
	struct checking_slab *slabs;
	uint64_t slab_bytes; /* of all of them */
};

static inline struct checking_device *checking_of(struct vmkv_device *device)
{
	return (struct checking_device *)device;
}

static inline struct checking_slab *checking_slab_of(struct vmkv_slab *slab)
{
	return (struct checking_slab *)slab;
}

/* Zeroed memory; ends the test if there is none. */
void *checking_alloc(size_t n, size_t bytes);

/* Of a sequence of random numbers. */
uint64_t checking_random(uint64_t *state);
/* Count a call; an error if it is to fail. */
int call_count(struct checking_device *c, enum checking_kind kind);
/* Of calls that were counted before they were made together, only so many were: the last one failed. */
void calls_recount(struct checking_device *c, enum checking_kind kind, size_t counted, size_t issued);
/* Pass on what the inner device says. The lock needn't be held. */
int inner_failed(struct checking_device *c, int error);
/* A call that was to be carried out late can't be refused any more. */
void inner_failed_late(struct checking_device *c, const char *what);

/* Note a violation; refuse also returns -EINVAL, with the text for the device's error. */
void violate(struct checking_device *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int refuse(struct checking_device *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

void record_reserve(struct checking_device *c, uint64_t address, uint64_t bytes, uint64_t align);
/* Whether the inner device may be told to release it. */
bool record_release(struct checking_device *c, uint64_t address, uint64_t bytes);

struct vmkv_slab *record_slab_create(struct checking_device *c, struct vmkv_slab *inner);
/* Returns the inner slab, or NULL if that must not be destroyed. */
struct vmkv_slab *record_slab_destroy(struct checking_device *c, struct vmkv_slab *slab);

int record_map_begin(struct checking_device *c, const struct vmkv_map *map);
void record_map_end(struct checking_device *c, const struct vmkv_map *map, bool mapped,
                    uint64_t point);
int record_unmap_begin(struct checking_device *c, const struct vmkv_unmap *unmap);
void record_unmap_undo(struct checking_device *c, const struct vmkv_unmap *unmap);
void record_unmapped(struct checking_device *c, uint64_t address, uint64_t bytes);

int record_fill_check(struct checking_device *c, const struct vmkv_fill *fill);
/* A fill is issued (1) or reached (-1). */
void record_fill(struct checking_device *c, const struct vmkv_fill *fill, int change);

/* A fill by address is issued, and reached at that point: what is there can be used only then. */
void record_fill_address(struct checking_device *c, const struct vmkv_fill *fill, uint64_t point);

/* Ranges that overlap are one to a tree; what is found is in it. */
void *range_find(void *const *root, uint64_t begin, uint64_t end);
void range_insert(void **root, void *range);
void range_remove(void **root, void *range); /* and free it */

/* device_checking_safe.c: a map begins, or came to nothing. */
int record_safe_map(struct checking_device *c, const struct vmkv_map *map,
                    const struct checking_page *pages);
/* A slab came, with its alias. */
void record_safe_slab(struct checking_device *c, const struct vmkv_slab *slab);
void record_safe_unmapped(struct checking_device *c, const struct vmkv_map *map);
void record_safe_fini(struct checking_device *c);
/* Fill all of a new slab of the inner device. */
int checking_dirty(struct vmkv_device *inner, const struct vmkv_fill *fill);

/* Free the record, and the inner slabs and addresses that were leaked. */
void record_fini(struct checking_device *c);

#endif
