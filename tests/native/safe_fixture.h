/* SPDX-License-Identifier: MIT
 *
 * What the tests of safe modes share: a cache on a checking device, which tells if an address is mapped
 * twice or a page at two addresses, and sequences that hold what was written to them.
 */
#ifndef SAFE_FIXTURE_H
#define SAFE_FIXTURE_H

#include "cache_fixture.h"
#include "device_checking.h"

static inline vmkv_device *device_in(const char *device, const char *modes)
{
	vmkv_device *opened = NULL;
	char name[200], text[256] = "";

	snprintf(name, sizeof(name), "%s%c%s", device, strchr(device, '?') ? '&' : '?', modes);
	if (open_name(name, text, sizeof(text), &opened))
		CHECK_FAIL("%s: %s", name, text);
	return opened;
}

/* A cache on a checking device. */
static inline void safe_begin(struct rig *r, const char *device, const char *modes,
                              const struct checking_options *checking)
{
	vmkv_device *outer = NULL;

	CHECK_EQ(vmkv_device_checking_wrap(device_in(device, modes), checking, &outer), 0);
	rig_prepare(r, outer);
	r->options.slot_count = 512;
}

static inline void safe_end(struct rig *r)
{
	struct checking_report report;

	checking_report(r->device, &report);
	if (report.violations)
		CHECK_FAIL("%s: %s", r->device->info.name, report.violation);
	vmkv_cache_destroy(r->cache);
	CHECK_EQ(vmkv_device_close(r->device), 0);
}

/* The first and last word of each row of what a sequence has, which must be zero, becomes `mark`. */
static inline void fill_span(struct rig *r, vmkv_seq seq, uint32_t from, uint32_t tokens, uint32_t mark)
{
	for (uint32_t layer = 0; layer < 2; layer++) {
		struct vmkv_span span = span_of(r, seq, 0, layer, 0);

		for (uint32_t t = from; t < tokens; t++) {
			volatile uint32_t *row = words(span.address + t * span.token_stride);

			CHECK_EQ(row[0], 0);
			CHECK_EQ(row[span.row_bytes / 4 - 1], 0);
			row[0] = row[span.row_bytes / 4 - 1] = mark + t;
		}
	}
}

static inline void check_span(struct rig *r, vmkv_seq seq, uint32_t tokens, uint32_t mark)
{
	for (uint32_t layer = 0; layer < 2; layer++) {
		struct vmkv_span span = span_of(r, seq, 0, layer, 0);

		for (uint32_t t = 0; t < tokens; t++) {
			volatile uint32_t *row = words(span.address + t * span.token_stride);

			CHECK_EQ(row[0], mark + t);
			CHECK_EQ(row[span.row_bytes / 4 - 1], mark + t);
		}
	}
}

static inline void fail_call(struct rig *r, enum checking_kind kind, uint64_t call, bool forever)
{
	struct checking_fault fault = { .kinds = 1u << kind, .call = call, .forever = forever };

	checking_fault_set(r->device, &fault);
}

/* Dirty memory that a sequence before had, and a new one. */
static inline vmkv_seq second_life(struct rig *r)
{
	vmkv_seq seq = seq_of(r, 1024);

	fill_span(r, seq, 0, 1024, 77);
	seq_close(r, seq, 0);
	retire(r, 0);
	return seq_open(r);
}

#endif
