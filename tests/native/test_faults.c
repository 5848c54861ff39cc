/* SPDX-License-Identifier: MIT
 *
 * The k-th driver call fails, for every k of a mixed workload: the state that a caller can see is the
 * same as before, the same call works when it is made again, and all comes to the same in the end. What
 * may differ: memory kept warm may have become free, and a slab may be held that wasn't.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "faults_workload.h"
#include "seeded.h"
#include "target.h"

struct setting {
	const char *name;
	uint32_t layout;
	bool lag, dirty;
};

static const struct setting settings[] = {
	{ "layer, dirty slabs", VMKV_LAYOUT_LAYER, false, true },
	{ "layer, lags, dirty slabs", VMKV_LAYOUT_LAYER, true, true },
	{ "token, dirty slabs", VMKV_LAYOUT_TOKEN, false, true },
	{ "token, lags", VMKV_LAYOUT_TOKEN, true, false },
};

static uint64_t failures(struct workload *w)
{
	struct checking_report report;
	uint64_t sum = 0;

	checking_report(w->oracle.device, &report);
	for (int i = 0; i < CHECKING_KINDS; i++)
		sum += report.failed[i];
	return sum;
}

/* Returns how many calls failed; none: the workload has fewer than k. */
static uint64_t run(const struct setting *setting, struct workload *w, const struct workload *plain,
                    uint64_t k, int error)
{
	struct checking_report end;
	struct checking_options options = {
		.lag_seed = setting->lag ? 7 + k : 0,
		.dirty_slabs = setting->dirty,
		.fault = { .call = k, .error = error },
		.report = &end,
	};
	char what[128];
	uint64_t failed = 0;

	memset(w, 0, sizeof(*w));
	/* The first call reserves addresses; without them there is no cache. */
	options.fault.kinds = ~(UINT32_C(1) << CHECKING_RESERVE);
	snprintf(what, sizeof(what), "%s, call %" PRIu64 " fails with %d", setting->name, k, error);
	w->oracle.what = what;
	w->error = error;
	w->failures = failures;
	w->plain = plain;
	w->oracle.device = target_open_checking("host", &options);
	workload_run(w, setting->layout, setting->lag);
	for (int i = 0; i < CHECKING_KINDS; i++)
		failed += end.failed[i];
	if (end.violations + end.calls_after_loss > 0)
		oracle_fail(&w->oracle, "%" PRIu64 " violations, %" PRIu64
		            " calls after the loss: %s", end.violations, end.calls_after_loss,
		            end.violation);
	if (end.mappings + end.slabs + end.reservations > 0)
		oracle_fail(&w->oracle, "leaked %" PRIu64 " mappings, %" PRIu64 " slabs, %" PRIu64
		            " reservations", end.mappings, end.slabs, end.reservations);
	return failed;
}

static void run_all(const struct setting *setting, int error, struct seeded *random)
{
	static struct workload plain, w;
	uint64_t stride = target_stride(target_is_host() ? 1 : 16);
	uint64_t k = 1 + seeded_next(random) % stride;

	CHECK_EQ(run(setting, &plain, NULL, 0, error), 0);
	while (run(setting, &w, &plain, k, error) > 0)
		k += stride;
	printf("%-26s %5d: about %" PRIu64 " calls, %" PRIu64 " pages kept, %" PRIu64 " reclaimed, %" PRIu64
	       " trimmed, %" PRIu64 " warm opens\n", setting->name, error, k - 1,
	       plain.oracle.seen.kept, plain.oracle.seen.reclaimed, plain.oracle.seen.trims,
	       plain.oracle.seen.warm_opens);
	if (k < 100 || plain.oracle.seen.kept == 0 || plain.oracle.seen.reclaimed == 0 ||
	    plain.oracle.seen.trims == 0 || plain.oracle.seen.warm_opens == 0)
		CHECK_FAIL("the workload doesn't come by everything");
}

int main(void)
{
	static const int errors[] = { -EIO, -ENOMEM, -ENOSPC, -ENODEV };
	struct seeded random = seeded_begin("test_faults");

	for (size_t s = 0; s < sizeof(settings) / sizeof(settings[0]); s++) {
		for (size_t e = 0; e < sizeof(errors) / sizeof(errors[0]); e++)
			run_all(&settings[s], errors[e], &random);
	}
	return 0;
}
