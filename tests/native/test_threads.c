/* SPDX-License-Identifier: MIT
 *
 * Threads that use the same caches and the same sequences at once. To be run under a race detector
 * too. Each thread also has a sequence of its own, whose memory nobody else may touch.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "cache_fixture.h"
#include "device_checking_record.h"
#include "memory_access.h"
#include "seeded.h"

#define THREADS 4
#define SHARED 10
#define ROUNDS 4000
#define MAX_TOKENS 256
#define DEADLOCK_SECONDS 240

/* What all threads share. */
struct arena {
	struct rig rigs[2]; /* two caches on one device */
	_Atomic vmkv_seq shared[2][SHARED];
	_Atomic uint64_t busy; /* the last number of a queue */
	struct memory_access *memory;
};

struct worker {
	pthread_t thread;
	struct arena *arena;
	struct seeded random;
	uint32_t number;
	uint64_t done; /* calls that succeeded */
};

/* One of these is an answer that a call may give when others are at work. */
#define CHECK_LEGAL(rc, legal)                                                                     \
	do {                                                                                       \
		static const int legal_[] = legal;                                                 \
		bool found_ = false;                                                               \
		for (size_t i_ = 0; i_ < sizeof(legal_) / sizeof(*legal_); i_++)                   \
			found_ |= (rc) == legal_[i_];                                              \
		if (!found_)                                                                       \
			CHECK_FAIL("the answer is %d", rc);                                        \
	} while (0)
#define ANY(...) { __VA_ARGS__ }

/* inner: the device with no checking one around it. */
static void arena_begin(struct arena *a, vmkv_device *device, vmkv_device *inner,
                        uint64_t budget_bytes)
{
	memset(a, 0, sizeof(*a));
	a->memory = memory_access_create(inner);
	for (int i = 0; i < 2; i++) {
		struct rig *r = &a->rigs[i];

		rig_prepare(r, device);
		model_begin(&r->m);
		model_plain(&r->m, VMKV_POLICY_FULL, 2, 4 * KIB);
		model_plain(&r->m, VMKV_POLICY_WINDOW, 1, 4 * KIB)->window_tokens = 24;
		model_plain(&r->m, VMKV_POLICY_STATE, 1, 10 * KIB);
		r->options.page_bytes = 16 * KIB;
		r->options.window_mapping_max_bytes = 32 * KIB;
		r->options.slab_bytes = 2 * MIB;
		r->options.budget_bytes = budget_bytes;
		r->options.max_tokens = 256;
		r->options.max_slots = SHARED + THREADS + 2;
		r->options.layout = i == 0 ? VMKV_LAYOUT_LAYER : VMKV_LAYOUT_TOKEN;
		rig_create(r);
	}
}

/* ---- calls on what is shared ---------------------------------------------------------------- */

static void open_one(struct worker *w, struct rig *r, _Atomic vmkv_seq *shared)
{
	struct vmkv_open_options options = { .struct_size = sizeof(options) };
	vmkv_seq seq = 0;
	int rc;

	options.prefer = seeded_from(&w->random, 0, 2);
	options.slot = seeded_from(&w->random, 0, SHARED);
	options.expected_tokens = seeded_from(&w->random, 0, 256);
	rc = vmkv_seq_open(r->cache, &options, &seq);
	CHECK_LEGAL(rc, ANY(0, -ENOSPC, -EBUSY));
	if (rc != 0)
		return;
	seq = atomic_exchange(&shared[seeded_from(&w->random, 0, SHARED - 1)], seq);
	w->done++;
	/* Whoever was there has to go; if a call is at work on it, when that is done. */
	while (seq != 0) {
		rc = vmkv_seq_close(r->cache, seq, atomic_load(&w->arena->busy));
		CHECK_LEGAL(rc, ANY(0, -EBUSY, -ESTALE));
		if (rc != -EBUSY)
			break;
	}
}

static void close_one(struct worker *w, struct rig *r, _Atomic vmkv_seq *shared)
{
	vmkv_seq seq = atomic_load(&shared[seeded_from(&w->random, 0, SHARED - 1)]);
	int rc = vmkv_seq_close(r->cache, seq, atomic_load(&w->arena->busy));

	CHECK_LEGAL(rc, ANY(0, -EBUSY, -ESTALE));
	w->done += rc == 0;
}

static void step_some(struct worker *w, struct rig *r, _Atomic vmkv_seq *shared)
{
	struct vmkv_step_request request = { .struct_size = sizeof(request) };
	struct vmkv_step_result result = { .struct_size = sizeof(result) };
	uint64_t needed[3], sum = 0;
	uint32_t tokens[3];
	vmkv_seq seqs[3];
	int rc;

	request.seqs = seqs;
	request.tokens = tokens;
	request.seq_needed_bytes = needed;
	request.n = seeded_from(&w->random, 1, 3);
	request.busy_until = atomic_fetch_add(&w->arena->busy, 1) + 1;
	for (uint32_t i = 0; i < request.n; i++) {
		seqs[i] = atomic_load(&shared[seeded_from(&w->random, 0, SHARED - 1)]);
		tokens[i] = seeded_from(&w->random, 0, seeded_from(&w->random, 1, 256));
	}
	rc = vmkv_step(r->cache, &request, &result);
	CHECK_LEGAL(rc, ANY(0, -EBUSY, -ESTALE, -EINVAL, -ENOSPC));
	w->done += rc == 0;
	if (rc != -ENOSPC)
		return;
	for (uint32_t i = 0; i < request.n; i++)
		sum += needed[i];
	CHECK_EQ(result.shortage.kind, VMKV_SHORTAGE_BYTES);
	CHECK_EQ(result.shortage.needed, sum);
	CHECK(result.shortage.missing <= sum);
	vmkv_wait(r->device, result.shortage.transit_point, UINT64_MAX);
}

static void look_at_one(struct worker *w, struct rig *r, _Atomic vmkv_seq *shared)
{
	struct vmkv_span span = { .struct_size = sizeof(span) };
	vmkv_seq seq = atomic_load(&shared[seeded_from(&w->random, 0, SHARED - 1)]);
	struct vmkv_mapping mappings[4];
	size_t n = 0;
	int rc = vmkv_span(r->cache, seq, seeded_from(&w->random, 0, 2), 0, 0, &span);

	CHECK_LEGAL(rc, ANY(0, -EBUSY, -ESTALE));
	if (rc == 0)
		CHECK(span.live_tokens <= 256);
	rc = vmkv_seq_mappings(r->cache, seq, 0, 1, 0, mappings, 4, &n);
	CHECK_LEGAL(rc, ANY(0, -EBUSY, -ESTALE));
	w->done += rc == 0;
}

static void look_at_all(struct worker *w, struct rig *r)
{
	struct vmkv_cache_info info = { .struct_size = sizeof(info) };
	struct vmkv_device_info device = { .struct_size = sizeof(device) };
	struct vmkv_stats s = { .struct_size = sizeof(s) };
	uint64_t bytes = 0;
	char text[64];

	CHECK_EQ(vmkv_cache_stats(r->cache, &s), 0);
	CHECK_EQ(s.slab_bytes, s.mapped_bytes + s.warm_bytes + s.retiring_bytes +
	                           s.unmapping_bytes + s.zeroing_bytes + s.held_bytes +
	                           s.free_clean_bytes + s.free_dirty_bytes);
	CHECK(s.live_bytes <= s.mapped_bytes);
	CHECK_EQ(vmkv_cache_info(r->cache, &info), 0);
	CHECK_EQ(vmkv_device_info(r->device, &device), 0);
	CHECK_EQ(vmkv_cache_need_bytes(r->cache, 256, 0, &bytes), 0);
	vmkv_cache_error(r->cache, text, sizeof(text));
	vmkv_device_error(r->device, text, sizeof(text));
	for (uint32_t i = 0; i < info.slot_count; i++) {
		const uint32_t *ready = vmkv_ready_tokens(r->cache) + i;

		CHECK(__atomic_load_n(ready, __ATOMIC_ACQUIRE) <= 256);
	}
	w->done++;
}

static void give_back(struct worker *w, struct rig *r)
{
	uint64_t released = 0, bytes;

	switch (seeded_from(&w->random, 0, 5)) {
	case 0:
		bytes = seeded_from(&w->random, 0, 8 * MIB);
		CHECK_EQ(vmkv_cache_shrink(r->cache, bytes, &released), 0);
		break;
	case 1:
		bytes = seeded_from(&w->random, MIB, 16 * MIB);
		CHECK_EQ(vmkv_cache_set_budget(r->cache, bytes), 0);
		break;
	default: /* a little behind */
		CHECK_EQ(vmkv_retire(r->cache, atomic_load(&w->arena->busy) -
		                                   seeded_from(&w->random, 0, 3)),
		         0);
	}
	w->done++;
}

/* ---- a sequence of one's own ---------------------------------------------------------------- */

/* Both ends of each row of layer 1 of group 0 hold a number that only this thread writes; memory that is
 * new reads zero. */
struct own {
	vmkv_seq seq;
	uint32_t live;
	uint64_t mark;
};

static size_t own_words(const struct own *own, struct rig *r, uint32_t from, uint32_t to,
                        struct memory_word *words)
{
	struct vmkv_span span = span_of(r, own->seq, 0, 1, 0);
	size_t n = 0;

	for (uint32_t token = from; token < to; token++) {
		uint64_t row = span.address + token * span.token_stride;

		words[n++] = (struct memory_word){ row, own->mark };
		words[n++] = (struct memory_word){ row + span.row_bytes - 8, own->mark };
	}
	return n;
}

static void own_check(struct worker *w, const struct own *own, struct rig *r, uint32_t from,
                      uint32_t to, uint64_t value)
{
	struct memory_word words[2 * MAX_TOKENS];
	size_t n = own_words(own, r, from, to, words);

	memory_words_read(w->arena->memory, words, n);
	for (size_t i = 0; i < n; i++)
		CHECK_EQ(words[i].value, value);
}

static void own_mark(struct worker *w, const struct own *own, struct rig *r, uint32_t from,
                     uint32_t to)
{
	struct memory_word words[2 * MAX_TOKENS];

	memory_words_write(w->arena->memory, words, own_words(own, r, from, to, words));
}

static void own_step(struct worker *w, struct rig *r, struct own *own)
{
	struct vmkv_step_result result = { .struct_size = sizeof(result) };
	uint32_t tokens = own->live + seeded_from(&w->random, 0, 24);
	int rc;

	if (own->seq == 0) {
		rc = vmkv_seq_open(r->cache, NULL, &own->seq);
		CHECK_LEGAL(rc, ANY(0, -ENOSPC));
		own->live = 0;
		own->mark = (uint64_t)w->number << 32 | ((own->mark + 1) & 0xffffffff);
		if (rc != 0)
			return;
	}
	if (tokens > 256) {
		own_check(w, own, r, 0, own->live, own->mark);
		CHECK_EQ(vmkv_seq_close(r->cache, own->seq, 0), 0);
		own->seq = 0;
		return;
	}
	rc = try_steps(r, &own->seq, &tokens, 1, 0, &result);
	CHECK_LEGAL(rc, ANY(0, -ENOSPC, -EBUSY)); /* busy: its next addresses are being unmapped */
	if (rc != 0)
		return;
	CHECK_EQ(vmkv_wait(r->device, result.ready, UINT64_MAX), 0);
	own_check(w, own, r, own->live, tokens, 0);
	own_mark(w, own, r, own->live, tokens);
	own_check(w, own, r, 0, own->live, own->mark);
	own->live = tokens;
	w->done++;
}

/* ---- all at once ---------------------------------------------------------------------------- */

static void *work(void *argument)
{
	struct worker *w = argument;
	struct own own[2] = { { .mark = 0 }, { .mark = 0 } };

	for (int round = 0; round < ROUNDS; round++) {
		uint32_t i = seeded_from(&w->random, 0, 1), what = seeded_from(&w->random, 0, 99);
		struct rig *r = &w->arena->rigs[i];
		_Atomic vmkv_seq *shared = w->arena->shared[i];

		if (what < 15)
			open_one(w, r, shared);
		else if (what < 22)
			close_one(w, r, shared);
		else if (what < 52)
			step_some(w, r, shared);
		else if (what < 60)
			look_at_one(w, r, shared);
		else if (what < 65)
			look_at_all(w, r);
		else if (what < 85)
			give_back(w, r);
		else
			own_step(w, r, &own[i]);
	}
	for (int i = 0; i < 2; i++) {
		if (own[i].seq == 0)
			continue;
		own_check(w, &own[i], &w->arena->rigs[i], 0, own[i].live, own[i].mark);
		CHECK_EQ(vmkv_seq_close(w->arena->rigs[i].cache, own[i].seq, 0), 0);
	}
	return NULL;
}

/* Until all that is on its way through the device has arrived: unmapped, then zeroed. */
static void settle(struct rig *r)
{
	for (int n = 0; n < 10000; n++) {
		retire(r, UINT64_MAX);
		if (stats_of(r).unmapping_bytes + stats_of(r).zeroing_bytes == 0)
			return;
		usleep(1000);
	}
	CHECK_FAIL("%llu bytes never came out of the page tables, %llu were never zeroed",
	           (unsigned long long)stats_of(r).unmapping_bytes,
	           (unsigned long long)stats_of(r).zeroing_bytes);
}

/* Nothing is left of it all. */
static void arena_end(struct arena *a)
{
	struct vmkv_device_info info = { .struct_size = sizeof(info) };
	vmkv_device *device = a->rigs[0].device;

	for (int i = 0; i < 2; i++) {
		struct rig *r = &a->rigs[i];
		struct vmkv_stats s;

		for (int n = 0; n < SHARED; n++)
			vmkv_seq_close(r->cache, atomic_load(&a->shared[i][n]), UINT64_MAX);
		settle(r);
		CHECK_EQ(vmkv_cache_shrink(r->cache, 0, NULL), 0);
		settle(r);
		CHECK_EQ(vmkv_cache_shrink(r->cache, 0, NULL), 0);
		s = stats_of(r);
		CHECK_EQ(s.sequences, 0);
		CHECK_EQ(s.live_bytes, 0);
		CHECK_EQ(s.mappings, 0);
		CHECK_EQ(s.slab_bytes, 0);
		CHECK_EQ(s.slabs, 0);
	}
	CHECK_EQ(vmkv_device_info(device, &info), 0);
	CHECK_EQ(info.mappings, 0);
	for (int i = 0; i < 2; i++)
		vmkv_cache_destroy(a->rigs[i].cache);
	memory_access_destroy(a->memory);
	CHECK_EQ(vmkv_device_close(device), 0);
}

static void run_all(struct arena *a, struct seeded random)
{
	struct worker workers[THREADS];

	for (uint32_t i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ .arena = a, .number = i + 1,
			                      .random = { seeded_next(&random) } };
		CHECK_EQ(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (uint32_t i = 0; i < THREADS; i++) {
		CHECK_EQ(pthread_join(workers[i].thread, NULL), 0);
		CHECK(workers[i].done > ROUNDS / 8);
	}
}

static void threads_on_the_device(void)
{
	struct seeded random = seeded_begin(__func__);
	vmkv_device *device = target_open(NULL, NULL);
	static struct arena a;

	arena_begin(&a, device, device, 16 * MIB);
	run_all(&a, random);
	arena_end(&a);
}

/* One that takes its time, and checks what is done with it. */
static void threads_on_a_lagging_device(void)
{
	struct seeded random = seeded_begin(__func__);
	static struct checking_report report;
	struct checking_options options = { .lag_seed = seeded_next(&random) | 1,
		                            .dirty_slabs = true,
		                            .report = &report };
	vmkv_device *device = target_open_checking("host", &options);
	static struct arena a;

	arena_begin(&a, device, checking_of(device)->inner, 8 * MIB);
	run_all(&a, random);
	arena_end(&a);
	if (report.violations > 0)
		CHECK_FAIL("%s", report.violation);
	CHECK_EQ(report.reservations + report.slabs + report.mappings, 0);
}

/* Many want the one lock; the one who is too much to be served must not stop the others. */
static void threads_that_are_short(void)
{
	struct seeded random = seeded_begin(__func__);
	struct checking_options bounds = { 0 };
	vmkv_device *inner = target_open("memory=6MiB", &bounds), *device = inner;
	static struct arena a;

	if (bounds.memory_bytes)
		CHECK_EQ(vmkv_device_checking_wrap(inner, &bounds, &device), 0);
	arena_begin(&a, device, inner, 16 * MIB);
	run_all(&a, random);
	arena_end(&a);
}

int main(void)
{
	alarm(DEADLOCK_SECONDS);
	RUN(threads_on_the_device);
	RUN(threads_on_a_lagging_device);
	RUN(threads_that_are_short);
	return 0;
}
