/* SPDX-License-Identifier: MIT
 *
 * The ring of what happened last, and how long driver calls took.
 */
#include <string.h>

#include "cache.h"
#include "publish.h"

uint64_t vmkv_mirror_clock(const struct vmkv_cache *cache)
{
	return cache->mirror != NULL ? vmkv_clock_ns(CLOCK_MONOTONIC) : 0;
}

uint64_t vmkv_mirror_now(struct vmkv_mirror *mirror)
{
	if (mirror->now_ns == 0)
		mirror->now_ns = vmkv_clock_ns(CLOCK_MONOTONIC);
	return mirror->now_ns;
}

/* Write an event down, and leave the next one empty. */
static void event_write(struct vmkv_cache *cache, struct vmkv_published_event *event)
{
	struct vmkv_mirror *mirror = cache->mirror;
	struct vmkv_published_event *entry = &mirror->ring[mirror->serial % VMKV_PUBLISHED_EVENTS];

	event->time_ns = vmkv_mirror_now(mirror);
	event->step = cache->counters.steps;
	__atomic_store_n(&entry->serial, 0, __ATOMIC_RELAXED);
	vmkv_mirror_fence();
	memcpy((char *)entry + sizeof(entry->serial), (const char *)event + sizeof(entry->serial),
	       sizeof(*entry) - sizeof(entry->serial));
	__atomic_store_n(&entry->serial, ++mirror->serial, __ATOMIC_RELEASE);
	*event = (struct vmkv_published_event){ 0 };
	mirror->changed = true;
}

/* What happened to pieces is collected as long as it is the same. */
void vmkv_mirror_flush(struct vmkv_cache *cache)
{
	if (cache->mirror->pieces_event.kind != VMKV_PUBLISHED_EVENT_NONE)
		event_write(cache, &cache->mirror->pieces_event);
}

void vmkv_mirror_event(struct vmkv_cache *cache, enum vmkv_published_event_kind kind,
                      struct vmkv_published_event event)
{
	vmkv_mirror_flush(cache);
	event.kind = (uint16_t)kind;
	event_write(cache, &event);
}

void vmkv_mirror_piece_events(struct vmkv_cache *cache, const struct vmkv_gone *gone, uint32_t n,
                              enum vmkv_published_event_kind kind)
{
	struct vmkv_mirror *mirror = cache->mirror;
	struct vmkv_published_event *event = &mirror->pieces_event;

	if (event->kind == kind && event->slot == gone->slot &&
	    event->region + event->regions == gone->region && mirror->pieces_page == gone->page &&
	    mirror->pieces_n == gone->n && event->regions + n <= UINT16_MAX) {
		event->regions += (uint16_t)n;
		return;
	}
	vmkv_mirror_flush(cache);
	mirror->pieces_page = gone->page;
	mirror->pieces_n = gone->n;
	event->kind = (uint16_t)kind;
	event->seq = mirror->slot_now[gone->slot].seq;
	event->slot = gone->slot;
	event->region = gone->region;
	event->regions = (uint16_t)n;
	event->address = vmkv_page_address(cache, gone->slot, gone->region, gone->page);
	event->bytes = (uint64_t)gone->n << cache->pages.page_shift;
	event->duration_ns = mirror->call_ns < UINT32_MAX ? (uint32_t)mirror->call_ns : UINT32_MAX;
}

void vmkv_mirror_given(struct vmkv_cache *cache, const struct vmkv_gone *gone,
                       enum vmkv_published_event_kind kind)
{
	if (cache->mirror == NULL)
		return;
	if (gone->region != VMKV_REGION_ALL) {
		cache->mirror->call_ns = 0;
		vmkv_mirror_piece_events(cache, gone, 1, kind);
		return;
	}
	vmkv_mirror_event(cache, kind,
	          (struct vmkv_published_event){ .seq = cache->mirror->slot_now[gone->slot].seq,
	                                         .slot = gone->slot,
	                                         .region = UINT32_MAX });
}

void vmkv_mirror_unmapped(struct vmkv_cache *cache, const struct vmkv_gone *gone, uint32_t n)
{
	for (uint32_t i = 0; cache->mirror != NULL && i < n; i++)
		vmkv_mirror_piece_events(cache, &gone[i], 1, VMKV_PUBLISHED_EVENT_UNMAP);
}

void vmkv_mirror_shortage(struct vmkv_cache *cache, const struct vmkv_shortage *shortage,
                          vmkv_seq first)
{
	if (cache->mirror != NULL)
		vmkv_mirror_event(cache, VMKV_PUBLISHED_EVENT_SHORTAGE,
		          (struct vmkv_published_event){
		              .seq = first,
		              .bytes = shortage->missing,
		              .slot = first != 0 ? vmkv_slot_of(first) : UINT32_MAX,
		              .region = shortage->kind,
		          });
}

void vmkv_mirror_budget(struct vmkv_cache *cache)
{
	if (cache->mirror != NULL)
		vmkv_mirror_event(cache, VMKV_PUBLISHED_EVENT_BUDGET,
		          (struct vmkv_published_event){ .bytes = cache->budget_bytes,
		                                         .slot = UINT32_MAX,
		                                         .region = UINT32_MAX });
}

void vmkv_mirror_touch(struct vmkv_cache *cache)
{
	if (cache->mirror != NULL)
		cache->mirror->changed = true;
}

void vmkv_mirror_called(struct vmkv_cache *cache, enum vmkv_published_call call, uint64_t ranges,
                        uint64_t began_ns, uint64_t ended_ns)
{
	struct vmkv_mirror *mirror = cache->mirror;
	uint64_t ns = ended_ns - began_ns;
	struct vmkv_published_times *times;
	uint32_t bucket;

	if (mirror == NULL)
		return;
	times = &mirror->times[call];
	bucket = ns > 1 ? 63 - (uint32_t)__builtin_clzll(ns) : 0;
	if (bucket >= VMKV_PUBLISHED_BUCKETS)
		bucket = VMKV_PUBLISHED_BUCKETS - 1;
	/* Readers may look at any time. */
	__atomic_store_n(&times->buckets[bucket], times->buckets[bucket] + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&times->sum_ns, times->sum_ns + ns, __ATOMIC_RELAXED);
	__atomic_store_n(&times->ranges, times->ranges + ranges, __ATOMIC_RELAXED);
	if (ns > times->max_ns)
		__atomic_store_n(&times->max_ns, ns, __ATOMIC_RELAXED);
	vmkv_mirror_flush(cache);
	/* Another change may have been made since. */
	mirror->now_ns = ended_ns > mirror->last_ns ? ended_ns : mirror->last_ns;
	mirror->call_ns = ns;
	mirror->changed = true;
}
