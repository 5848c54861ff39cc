/* SPDX-License-Identifier: MIT
 *
 * The k-th ioctl of each kind fails within a call of the manager, for every k of the mixed workload that
 * the model follows: nothing that a caller can see has changed, or what was asked for is done; contents
 * are read by the card's copy engine.
 */
#include <errno.h>
#include <inttypes.h>

#include "card_fixture.h"
#include "faults_workload.h"
#include "seeded.h"

/* What is to fail, and how it went. */
static struct {
	struct card card;
	const char *ioctl;
	uint64_t left; /* calls until the one that fails; 0: none does any more */
	uint64_t before, calls, hits;
	int error;
} order;

static void order_begin(struct workload *w)
{
	(void)w;
	order.before = card_calls(&order.card, order.ioctl);
	CHECK_EQ(vmkv_emulator_fail(order.card.emulator, order.ioctl, order.left, order.error), 0);
}

static void order_end(struct workload *w)
{
	uint64_t calls = card_calls(&order.card, order.ioctl) - order.before;

	(void)w;
	CHECK_EQ(vmkv_emulator_fail(order.card.emulator, order.ioctl, 0, 0), 0);
	order.calls += calls;
	if (order.left > 0 && calls >= order.left) {
		order.hits++;
		order.left = 0;
	} else if (order.left > 0) {
		order.left -= calls;
	}
}

static uint64_t failures(struct workload *w)
{
	(void)w;
	return order.hits;
}

/* Returns how many calls of the kind there were. */
static uint64_t run(struct workload *w, const struct workload *plain, const char *ioctl, uint64_t k,
                    int error, uint32_t layout)
{
	struct checking_report end;
	struct checking_options options = { .report = &end, .dirty_slabs = true };
	vmkv_device *inner;
	char what[128], text[256];

	memset(w, 0, sizeof(*w));
	order.ioctl = ioctl;
	order.left = k;
	order.error = error;
	order.calls = order.hits = 0;
	snprintf(what, sizeof(what), "layout %u, %s %" PRIu64 " fails with %s", layout, ioctl, k,
	         error ? strerrorname_np(error) : "nothing");
	w->oracle.what = what;
	w->error = -error;
	w->failures = failures;
	w->begin = order_begin;
	w->end = order_end;
	w->plain = plain;
	if (card_device_open(&order.card, &inner, text, sizeof(text)))
		CHECK_FAIL("%s: %s", what, text);
	CHECK_EQ(vmkv_device_checking_wrap(inner, &options, &w->oracle.device), 0);
	workload_run(w, layout, false);
	if (end.violations + end.calls_after_loss > 0)
		oracle_fail(&w->oracle, "%" PRIu64 " violations, %" PRIu64 " calls after the loss: %s",
		            end.violations, end.calls_after_loss, end.violation);
	if (end.mappings + end.slabs + end.reservations > 0)
		oracle_fail(&w->oracle, "leaked %" PRIu64 " mappings, %" PRIu64 " slabs, %" PRIu64
		            " reservations", end.mappings, end.slabs, end.reservations);
	card_check_empty(&order.card, what);
	return order.calls;
}

static uint64_t run_all(const char *ioctl, uint32_t layout, struct seeded *random)
{
	static const int errors[] = { EIO, ENOMEM, EINTR, ECANCELED, ENODEV };
	static struct workload plain, w;
	uint64_t calls = run(&plain, NULL, ioctl, 0, 0, layout), runs = 0;
	uint64_t stride = target_stride_of(calls, 64);

	for (size_t e = 0; e < sizeof(errors) / sizeof(errors[0]); e++) {
		uint64_t k = 1 + seeded_next(random) % stride;

		for (; k <= calls && strcmp(ioctl, "GEM_CLOSE") != 0; k += stride, runs++)
			run(&w, &plain, ioctl, k, errors[e], layout);
	}
	if (calls > 0)
		printf("layout %u: %-24s %4" PRIu64 " calls, %" PRIu64 " runs\n", layout, ioctl, calls,
		       runs);
	return runs;
}

int main(void)
{
	struct seeded random = seeded_begin("test_emulated_faults");
	const char *ioctl;
	uint64_t runs = 0;

	order.card = card_create();
	for (uint32_t i = 0; (ioctl = vmkv_emulator_ioctl_name(i)); i++) {
		runs += run_all(ioctl, VMKV_LAYOUT_LAYER, &random);
		runs += run_all(ioctl, VMKV_LAYOUT_TOKEN, &random);
	}
	CHECK(runs > 0);
	card_destroy(&order.card);
	return 0;
}
