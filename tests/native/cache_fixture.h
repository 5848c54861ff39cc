/* SPDX-License-Identifier: MIT
 *
 * What the tests of caches share: a small cache on a device, and its calls in their usual forms,
 * checked.
 */
#ifndef CACHE_FIXTURE_H
#define CACHE_FIXTURE_H

#include <errno.h>

#include "device_fixture.h"
#include "model.h"

/* Unless a test says otherwise: two layers of one tensor with rows of 16 KiB. So 4 tokens are a
 * page of 64 KiB in each of 2 spans, and 128 tokens are 2 MiB. */
#define ROW (16 * KIB)
#define PAGE (64 * KIB)

struct rig {
	vmkv_device *device;
	vmkv_cache *cache;
	struct model m;
	struct vmkv_cache_options options;
	char text[256];
};

/* Options and a device, but no cache yet. */
static inline void rig_prepare(struct rig *r, vmkv_device *device)
{
	memset(r, 0, sizeof(*r));
	model_begin(&r->m);
	model_plain(&r->m, VMKV_POLICY_FULL, 2, ROW);
	r->device = device;
	r->options = (struct vmkv_cache_options){ .struct_size = sizeof(r->options),
		                                  .geometry = &r->m.geometry,
		                                  .budget_bytes = 64 * MIB,
		                                  .slab_bytes = 16 * MIB,
		                                  .max_slots = 4,
		                                  .max_tokens = 1024,
		                                  .error = r->text,
		                                  .error_bytes = sizeof(r->text) };
}

static inline int rig_try_create(struct rig *r)
{
	r->text[0] = 0;
	r->cache = NULL;
	return vmkv_cache_create(r->device, &r->options, &r->cache);
}

static inline void rig_create(struct rig *r)
{
	int rc = rig_try_create(r);

	if (rc != 0)
		CHECK_FAIL("vmkv_cache_create: %d: %s", rc, r->text);
}

static inline void rig_begin(struct rig *r)
{
	rig_prepare(r, open_host("host"));
	rig_create(r);
}

static inline void rig_end(struct rig *r)
{
	struct vmkv_device_info info = { .struct_size = sizeof(info) };

	vmkv_cache_destroy(r->cache);
	CHECK_EQ(vmkv_device_info(r->device, &info), 0);
	CHECK_EQ(info.mappings, 0);
	CHECK_EQ(vmkv_device_close(r->device), 0);
}

static inline const char *cache_text(struct rig *r)
{
	vmkv_cache_error(r->cache, r->text, sizeof(r->text));
	return r->text;
}

#define CHECK_TEXT(rig, part) CHECK_CONTAINS(cache_text(rig), part)

/* ---- sequences ------------------------------------------------------------------------------ */

static inline vmkv_seq seq_open_with(struct rig *r, enum vmkv_prefer prefer, uint32_t slot,
                                     uint32_t expected_tokens)
{
	struct vmkv_open_options options = { .struct_size = sizeof(options), .prefer = prefer,
		                             .slot = slot, .expected_tokens = expected_tokens };
	vmkv_seq seq = 0;
	int rc = vmkv_seq_open(r->cache, &options, &seq);

	if (rc != 0)
		CHECK_FAIL("vmkv_seq_open: %d: %s", rc, cache_text(r));
	CHECK(seq != 0);
	return seq;
}

static inline vmkv_seq seq_open(struct rig *r)
{
	return seq_open_with(r, VMKV_PREFER_LOWEST, 0, 0);
}

static inline void seq_close(struct rig *r, vmkv_seq seq, uint64_t busy_until)
{
	CHECK_EQ(vmkv_seq_close(r->cache, seq, busy_until), 0);
}

static inline void retire(struct rig *r, uint64_t completed)
{
	CHECK_EQ(vmkv_retire(r->cache, completed), 0);
}

static inline int try_steps(struct rig *r, const vmkv_seq *seqs, const uint32_t *tokens, uint32_t n,
                            uint64_t busy_until, struct vmkv_step_result *result)
{
	struct vmkv_step_request request = { .struct_size = sizeof(request),
		                             .seqs = seqs,
		                             .tokens = tokens,
		                             .n = n,
		                             .busy_until = busy_until };

	return vmkv_step(r->cache, &request, result);
}

static inline int try_step(struct rig *r, vmkv_seq seq, uint32_t tokens, uint64_t busy_until)
{
	return try_steps(r, &seq, &tokens, 1, busy_until, NULL);
}

static inline void step_until(struct rig *r, vmkv_seq seq, uint32_t tokens, uint64_t busy_until)
{
	int rc = try_step(r, seq, tokens, busy_until);

	if (rc != 0)
		CHECK_FAIL("a step to %u tokens: %d: %s", tokens, rc, cache_text(r));
}

static inline void step(struct rig *r, vmkv_seq seq, uint32_t tokens)
{
	step_until(r, seq, tokens, 0);
}

static inline vmkv_seq seq_of(struct rig *r, uint32_t tokens)
{
	vmkv_seq seq = seq_open(r);

	step(r, seq, tokens);
	return seq;
}

static inline struct vmkv_span span_of(struct rig *r, vmkv_seq seq, uint32_t group, uint32_t layer,
                                       uint32_t tensor)
{
	struct vmkv_span span = { .struct_size = sizeof(span) };

	CHECK_EQ(vmkv_span(r->cache, seq, group, layer, tensor, &span), 0);
	return span;
}

/* The mappings of a span; returns how many of them there are. */
static inline size_t mappings_of(struct rig *r, vmkv_seq seq, uint32_t group, uint32_t layer,
                                 struct vmkv_mapping *mappings, size_t n)
{
	size_t count = 0;

	CHECK_EQ(vmkv_seq_mappings(r->cache, seq, group, layer, 0, mappings, n, &count), 0);
	return count;
}

/* ---- statistics ----------------------------------------------------------------------------- */

static inline struct vmkv_stats stats_of(struct rig *r)
{
	struct vmkv_stats s = { .struct_size = sizeof(s) };

	CHECK_EQ(vmkv_cache_stats(r->cache, &s), 0);
	CHECK_EQ(s.slab_bytes, s.mapped_bytes + s.warm_bytes + s.retiring_bytes +
	                           s.unmapping_bytes + s.zeroing_bytes + s.held_bytes +
	                           s.free_clean_bytes + s.free_dirty_bytes);
	CHECK_EQ(s.held_bytes, 0); /* no other call is at work */
	CHECK(s.live_bytes <= s.mapped_bytes);
	CHECK(s.mapped_bytes <= s.mapped_bytes_peak);
	CHECK(s.live_bytes <= s.live_bytes_peak);
	CHECK(s.slab_bytes <= s.slab_bytes_peak);
	CHECK(s.mappings <= s.mappings_peak);
	CHECK(s.growing_steps <= s.steps);
	return s;
}

/* What a sequence of so many tokens maps in the usual geometry. */
static inline uint64_t mapped_by(uint32_t tokens)
{
	return 2 * PAGE * ((tokens + 3) / 4);
}

#endif
