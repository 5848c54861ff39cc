/* SPDX-License-Identifier: MIT
 *
 * Random operations on the whole manager against a model of it. Every seed can be run again.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "model_ops.h"
#include "target.h"

#define LIFE_OPERATIONS 500 /* of one cache */

struct arguments {
	uint64_t seed, operations;
	uint32_t configuration; /* UINT32_MAX: all */
	bool lag, dirty, faults; /* always; else in some of the lives */
};

static void usage(void)
{
	fprintf(stderr, "usage: test_model [--device NAME] [--seed N] [--operations N] "
	                "[--configuration N] [--lag] [--dirty] [--faults]\n");
	exit(2);
}

static uint64_t number(const char *text)
{
	char *end;
	uint64_t n = strtoull(text, &end, 10);

	if (*text == 0 || *end != 0)
		usage();
	return n;
}

static struct arguments arguments_read(int argc, char **argv)
{
	static const struct option options[] = {
		{ "device", required_argument, NULL, 'd' },
		{ "seed", required_argument, NULL, 's' },
		{ "operations", required_argument, NULL, 'o' },
		{ "configuration", required_argument, NULL, 'c' },
		{ "lag", no_argument, NULL, 'l' },
		{ "dirty", no_argument, NULL, 'y' },
		{ "faults", no_argument, NULL, 'f' },
		{ 0 },
	};
	struct arguments a = { .seed = 1, .operations = 100000, .configuration = UINT32_MAX };
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'd': target_name_set(optarg); break;
		case 's': a.seed = number(optarg); break;
		case 'o': a.operations = number(optarg); break;
		case 'c': a.configuration = (uint32_t)number(optarg); break;
		case 'l': a.lag = true; break;
		case 'y': a.dirty = true; break;
		case 'f': a.faults = true; break;
		default: usage();
		}
	}
	if (optind < argc)
		usage();
	return a;
}

static void seen_add(struct model_run *all, const struct model_run *one)
{
	const uint64_t *from = (const uint64_t *)&one->oracle.seen;
	uint64_t *to = (uint64_t *)&all->oracle.seen;

	for (size_t i = 0; i < sizeof(all->oracle.seen) / sizeof(*to); i++)
		to[i] += from[i];
	all->oracle.never_reuse = one->oracle.never_reuse;
	all->oracle.no_alias = one->oracle.no_alias;
}

/* What a safe mode rules out. */
static bool is_ruled_out(const struct model_run *all, const char *name)
{
	if (!strcmp(name, "warm opens"))
		return all->oracle.never_reuse;
	return !strcmp(name, "looks at zeroing") && all->oracle.no_alias;
}

static void faults_draw(struct model_run *run, bool faults)
{
	static const int errors[] = { -EIO, -ENOMEM, -ENOSPC };
	struct seeded *random = &run->oracle.random;

	run->oracle.faults = faults;
	if (faults)
		run->fault = (struct checking_fault){
			.per_million = seeded_from(random, 500, 50000),
			.seed = seeded_next(random),
			.error = errors[seeded_from(random, 0, 2)],
		};
}

/* A cache from its creation to its end. */
static void live(const struct arguments *a, uint32_t c, uint64_t life, uint64_t operations,
                 struct model_run *all)
{
	static struct model_run run;
	struct checking_report end;
	struct checking_options checking = { .report = &end };
	struct vmkv_cache_options options;
	struct vmkv_geometry geometry;
	struct target_things before;
	vmkv_device *inner;
	char what[160];

	memset(&run, 0, sizeof(run));
	run.config = &model_configs[c];
	run.oracle.random.state = (a->seed * 1000 + c) * 1000000 + life;
	if (a->lag || model_chance(&run.oracle.random, 40))
		checking.lag_seed = seeded_next(&run.oracle.random) | 1;
	checking.dirty_slabs = a->dirty || model_chance(&run.oracle.random, 25);
	options = model_config_draw(run.config, &run.oracle.random, &geometry);
	faults_draw(&run, a->faults || model_chance(&run.oracle.random, 20));
	snprintf(what, sizeof(what), "--seed %" PRIu64 " --configuration %u (%s%s%s%s), life %" PRIu64,
	         a->seed, c, run.config->name, checking.lag_seed ? ", lags" : "",
	         checking.dirty_slabs ? ", dirty slabs" : "", run.oracle.faults ? ", faults" : "",
	         life);
	run.oracle.what = what;
	inner = target_open(run.config->device, &checking);
	target_look(inner, &before);
	CHECK_EQ(vmkv_device_checking_wrap(inner, &checking, &run.oracle.device), 0);
	if (vmkv_device_is_safe(inner, VMKV_SAFE_NEVER_REUSE_ADDRESSES))
		options.slot_count = ORACLE_SLOTS;
	oracle_create(&run.oracle, &options, checking.lag_seed != 0);
	checking_fault_set(run.oracle.device, &run.fault);
	for (uint64_t i = 0; i < operations; i++)
		model_operate(&run);
	if (life % 2 == 0)
		model_quiesce(&run);
	/* To destroy it is the engine's word that no queue uses it. */
	checking_complete(run.oracle.device, UINT64_MAX);
	oracle_destroy(&run.oracle);
	target_check_same(inner, &before, what);
	CHECK_EQ(vmkv_device_close(run.oracle.device), 0);
	if (end.violations + end.mappings + end.slabs + end.reservations > 0)
		oracle_fail(&run.oracle, "leaked %" PRIu64 " mappings, %" PRIu64 " slabs, %" PRIu64
		            " reservations; %" PRIu64 " violations: %s", end.mappings, end.slabs,
		            end.reservations, end.violations, end.violation);
	seen_add(all, &run);
}

/* A test that never sees a thing doesn't test it. */
static void check_seen(const struct model_run *all, bool complete)
{
	static const char *const names[] = {
		"opens", "warm opens", "steps", "steps that grew", "shortages of bytes",
		"shortages of mappings", "pages trimmed", "closes", "pages kept", "pages reclaimed",
		"errors", "pages begun zero", "stamps checked", "drains", "late points",
		"broken runs", "looks over budget",
		"driver calls failed", "looks at unmapping", "looks at zeroing",
	};
	const uint64_t *seen = (const uint64_t *)&all->oracle.seen;

	_Static_assert(sizeof(all->oracle.seen) == sizeof(names) / sizeof(names[0]) * sizeof(*seen),
	               "a name for each");
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		printf("%12" PRIu64 " %s\n", seen[i], names[i]);
		if (is_ruled_out(all, names[i]))
			CHECK_EQ(seen[i], 0);
		else if (complete && seen[i] == 0)
			CHECK_FAIL("the test came by no %s", names[i]);
	}
}

int main(int argc, char **argv)
{
	static struct model_run all;
	struct arguments a = arguments_read(argc, argv);
	bool one = a.configuration < model_config_count;
	uint64_t each = a.operations / (one ? 1 : model_config_count);

	printf("test_model: --seed %" PRIu64 " --operations %" PRIu64 "\n", a.seed, a.operations);
	fflush(stdout);
	for (uint32_t c = 0; c < model_config_count; c++) {
		if (one && c != a.configuration)
			continue;
		for (uint64_t done = 0, life = 0; done < each; done += LIFE_OPERATIONS, life++)
			live(&a, c, life,
			     each - done < LIFE_OPERATIONS ? each - done : LIFE_OPERATIONS, &all);
	}
	check_seen(&all, !one && !a.faults && a.operations >= 20000);
	return 0;
}
