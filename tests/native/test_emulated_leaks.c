/* SPDX-License-Identifier: MIT
 *
 * Random work of caches and devices that come and go on one emulated card, after which
 * no buffer, mapping, context, syncobj or descriptor is there that wasn't before, and the addresses are
 * all free again.
 */
#include <errno.h>
#include <inttypes.h>

#include "cache_fixture.h"
#include "card_fixture.h"
#include "seeded.h"

#define OPERATIONS 10000 /* unless the first argument tells another number */
#define SEQUENCES 6
#define CACHES 2
#define MAX_TOKENS 300
/* A device lives for so many operations, a cache for so many. */
#define DEVICE_OPERATIONS 5000
#define CACHE_OPERATIONS 700

struct tenant {
	struct rig r; /* cache NULL: there is none */
	vmkv_seq seqs[SEQUENCES];
	uint32_t tokens[SEQUENCES];
	uint64_t submitted;
};

struct work {
	struct card card;
	struct seeded random;
	vmkv_device *device;
	struct tenant tenants[CACHES];
	uint64_t first_address; /* that the device's first reservation got */
	uint64_t calls[8];      /* by kind, to see that all came by */
};

/* ---- what comes and goes --------------------------------------------------------------------- */

static void device_begin(struct work *w)
{
	char text[256] = "";
	uint64_t address;

	if (card_device_open(&w->card, &w->device, text, sizeof(text)))
		CHECK_FAIL("%s", text);
	address = reserve(w->device, GIB);
	w->device->ops->release(w->device, address, GIB);
	if (w->first_address == 0)
		w->first_address = address;
	CHECK_EQ(address, w->first_address);
}

static void cache_begin(struct work *w, struct tenant *t)
{
	struct rig *r = &t->r;

	memset(t, 0, sizeof(*t));
	rig_prepare(r, w->device);
	model_begin(&r->m);
	model_plain(&r->m, VMKV_POLICY_FULL, 2, 4 * KIB);
	model_plain(&r->m, VMKV_POLICY_WINDOW, 1, 8 * KIB)->window_tokens = 24;
	model_plain(&r->m, VMKV_POLICY_STATE, 1, 20 * KIB);
	r->options.layout = seeded_from(&w->random, 0, 1);
	r->options.page_bytes = 4 * KIB << 2 * seeded_from(&w->random, 0, 2);
	r->options.window_mapping_max_bytes = 64 * KIB;
	r->options.slab_bytes = 2 * MIB;
	r->options.budget_bytes = seeded_from(&w->random, 2, 12) * MIB;
	r->options.max_slots = SEQUENCES;
	r->options.max_tokens = MAX_TOKENS;
	rig_create(r);
}

static void cache_end(struct tenant *t)
{
	vmkv_cache_destroy(t->r.cache);
	t->r.cache = NULL;
}

/* The addresses are all free again: the first reservation gets what it got at first. */
static void device_end(struct work *w)
{
	uint64_t address;

	for (size_t i = 0; i < CACHES; i++)
		cache_end(&w->tenants[i]);
	address = reserve(w->device, GIB);
	w->device->ops->release(w->device, address, GIB);
	CHECK_EQ(address, w->first_address);
	CHECK_EQ(vmkv_device_close(w->device), 0);
	w->device = NULL;
	card_check_empty(&w->card, "after a device");
}

/* ---- one operation --------------------------------------------------------------------------- */

static void step_some(struct work *w, struct tenant *t)
{
	struct vmkv_step_result result = { .struct_size = sizeof(result) };
	uint32_t tokens[SEQUENCES], which[SEQUENCES], n = 0;
	vmkv_seq seqs[SEQUENCES];
	int rc, fd = -1;

	for (uint32_t i = 0; i < SEQUENCES; i++) {
		if (t->seqs[i] == 0 || seeded_from(&w->random, 0, 2) == 0)
			continue;
		which[n] = i;
		seqs[n] = t->seqs[i];
		tokens[n] = t->tokens[i] + seeded_from(&w->random, 0, 40);
		tokens[n] = tokens[n] < MAX_TOKENS ? tokens[n] : MAX_TOKENS;
		n++;
	}
	rc = try_steps(&t->r, seqs, tokens, n, ++t->submitted, &result);
	if (rc != 0 && rc != -ENOSPC && rc != -EBUSY)
		CHECK_FAIL("a step: %d: %s", rc, cache_text(&t->r));
	for (uint32_t i = 0; i < n && rc == 0; i++)
		t->tokens[which[i]] = tokens[i];
	if (rc == 0 && result.ready > 0 && seeded_from(&w->random, 0, 3) == 0) {
		CHECK_EQ(vmkv_point_export(w->device, result.ready, &fd), 0);
		CHECK_EQ(close(fd), 0);
		w->calls[6]++;
	}
	w->calls[0] += rc == 0;
	w->calls[1] += rc == -ENOSPC;
}

static void open_or_close(struct work *w, struct tenant *t)
{
	uint32_t i = seeded_from(&w->random, 0, SEQUENCES - 1);
	struct vmkv_open_options options = { .struct_size = sizeof(options),
		                             .prefer = seeded_from(&w->random, 0, 1),
		                             .expected_tokens = seeded_from(&w->random, 0, MAX_TOKENS) };
	int rc;

	if (t->seqs[i] != 0) {
		seq_close(&t->r, t->seqs[i], seeded_from(&w->random, 0, 1) * t->submitted);
		t->seqs[i] = 0;
		w->calls[2]++;
		return;
	}
	rc = vmkv_seq_open(t->r.cache, &options, &t->seqs[i]);
	t->tokens[i] = 0;
	if (rc != 0 && rc != -ENOSPC)
		CHECK_FAIL("open: %d: %s", rc, cache_text(&t->r));
	w->calls[3] += rc == 0;
}

static void give_back(struct work *w, struct tenant *t)
{
	uint64_t least = 4 * MIB / 4;

	switch (seeded_from(&w->random, 0, 9)) {
	case 0:
		CHECK_EQ(vmkv_cache_shrink(t->r.cache, seeded_from(&w->random, 0, 8) * MIB, NULL), 0);
		w->calls[4]++;
		break;
	case 1:
		CHECK_EQ(vmkv_cache_set_budget(t->r.cache, least * seeded_from(&w->random, 1, 12)), 0);
		break;
	default:
		retire(&t->r, t->submitted - seeded_from(&w->random, 0, 2) % (t->submitted + 1));
		w->calls[5]++;
	}
}

/* Rows by GPU address: with the copy engine, which waits, or leaves a point. */
static void rows_use(struct work *w, struct tenant *t)
{
	uint32_t i = seeded_from(&w->random, 0, SEQUENCES - 1);
	struct vmkv_span span;
	uint64_t point;

	if (t->seqs[i] == 0 || t->tokens[i] < 2)
		return;
	span = span_of(&t->r, t->seqs[i], 0, 1, 0);
	CHECK_EQ(vmkv_fill(w->device, span.address, span.row_bytes, 7, &point), 0);
	CHECK_EQ(vmkv_copy(w->device, span.address + span.token_stride, span.address, span.row_bytes,
	                   seeded_from(&w->random, 0, 1) ? &point : NULL), 0);
	w->calls[7]++;
}

static void operate(struct work *w, uint64_t i)
{
	struct tenant *t = &w->tenants[seeded_from(&w->random, 0, CACHES - 1)];
	uint32_t draw = seeded_from(&w->random, 0, 99);

	if (i % DEVICE_OPERATIONS == 0) {
		if (w->device)
			device_end(w);
		device_begin(w);
	}
	if (t->r.cache && draw < 100 * CACHES / CACHE_OPERATIONS + 1)
		cache_end(t);
	if (!t->r.cache)
		cache_begin(w, t);
	if (draw < 50)
		step_some(w, t);
	else if (draw < 70)
		open_or_close(w, t);
	else if (draw < 95)
		give_back(w, t);
	else
		rows_use(w, t);
}

int main(int argc, char **argv)
{
	static const char *const names[] = { "steps", "shortages", "closes", "opens", "shrinks",
		                             "retires", "points exported", "rows used" };
	uint64_t operations = argc > 1 ? strtoull(argv[1], NULL, 10) : OPERATIONS;
	static struct work w;
	uint64_t descriptors, vram;

	w.random = seeded_begin("test_emulated_leaks");
	descriptors = descriptors_count();
	w.card = card_create();
	vram = card_stats(&w.card).vram_used_bytes;
	for (uint64_t i = 0; i < operations; i++)
		operate(&w, i);
	device_end(&w);
	CHECK(card_stats(&w.card).page_table_bytes + vram >= card_stats(&w.card).vram_used_bytes);
	CHECK_EQ(card_stats(&w.card).faults + card_stats(&w.card).stale_accesses, 0);
	CHECK_EQ(card_stats(&w.card).refused, 0);
	/* The file's address space keeps those of its last changes. */
	CHECK(card_stats(&w.card).fences < 1000);
	card_destroy(&w.card);
	CHECK_EQ(descriptors_count(), descriptors);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		printf("%10" PRIu64 " %s\n", w.calls[i], names[i]);
		CHECK(w.calls[i] > 0);
	}
	return 0;
}
