/* SPDX-License-Identifier: MIT
 *
 * What safe modes are for: cards with a fault, emulated. Sequences find zeros in new memory and later what
 * they wrote, each with the fault and its mode; and don't without the mode, or this would prove nothing.
 */
#include <time.h>

#include "emulator/vmkv_emulator.h"
#include "memory_access.h"
#include "safe_fixture.h"
#include "seeded.h"

#define SEQUENCES 4
#define OPERATIONS 60
#define CARD "emulated:gfx1201?vram=1GiB&"

/* How often something else was there than should be. */
struct losses {
	uint64_t not_zero, not_kept;
};

struct life {
	struct rig r;
	struct memory_access *memory;
	struct seeded random;
	vmkv_seq seqs[SEQUENCES];
	uint32_t tokens[SEQUENCES];
	struct losses losses;
};

/* A word at the beginning or the end of each row of a sequence. */
static size_t words_list(struct life *l, uint32_t i, uint32_t from, struct memory_word *list)
{
	size_t n = 0;

	for (uint32_t layer = 0; layer < 2; layer++) {
		struct vmkv_span span = span_of(&l->r, l->seqs[i], 0, layer, 0);

		for (uint32_t t = from; t < l->tokens[i]; t++) {
			uint64_t row = span.address + t * span.token_stride;

			list[n++].address = t % 2 ? row : row + span.row_bytes - 8;
		}
	}
	return n;
}

static void look_kept(struct life *l, uint32_t i)
{
	static struct memory_word list[2 * 256];
	size_t n = words_list(l, i, 0, list);

	memory_words_read(l->memory, list, n);
	for (size_t w = 0; w < n; w++)
		l->losses.not_kept += list[w].value != (l->seqs[i] ^ list[w].address);
}

static void grow(struct life *l, uint32_t i)
{
	static struct memory_word list[2 * 256];
	struct vmkv_step_result result = { .struct_size = sizeof(result) };
	uint32_t from = l->tokens[i], tokens = from + seeded_from(&l->random, 1, 60);
	size_t n;

	if (tokens > 250 || try_steps(&l->r, &l->seqs[i], &tokens, 1, 0, &result))
		return;
	CHECK_EQ(vmkv_wait(l->r.device, result.ready, UINT64_MAX), 0);
	l->tokens[i] = tokens;
	n = words_list(l, i, from, list);
	memory_words_read(l->memory, list, n);
	for (size_t w = 0; w < n; w++) {
		l->losses.not_zero += list[w].value != 0;
		list[w].value = l->seqs[i] ^ list[w].address;
	}
	memory_words_write(l->memory, list, n);
}

static void operate(struct life *l)
{
	uint32_t i = seeded_from(&l->random, 0, SEQUENCES - 1), what = seeded_from(&l->random, 0, 9);

	if (!l->seqs[i]) {
		l->seqs[i] = seq_open(&l->r);
		l->tokens[i] = 0;
	}
	if (what < 7) {
		grow(l, i);
	} else if (what < 9) {
		look_kept(l, i);
		seq_close(&l->r, l->seqs[i], 0);
		l->seqs[i] = 0;
	} else {
		vmkv_cache_shrink(l->r.cache, 0, NULL);
	}
	retire(&l->r, 0);
}

/* The card itself saw no access to an address without memory. */
static void check_no_fault(vmkv_device *device)
{
	struct vmkv_emulator_stats stats = { .struct_size = sizeof(stats) };

	CHECK_EQ(vmkv_emulator_stats(vmkv_emulator_of(info_of(device).drm_fd), &stats), 0);
	CHECK_EQ(stats.faults, 0);
}

static struct losses live(const char *options, uint64_t warm_max_bytes, uint64_t seed)
{
	static struct life l;
	struct timespec long_enough = { .tv_nsec = 20000000 };
	char text[256] = "", name[200];
	vmkv_device *device = NULL;

	memset(&l, 0, sizeof(l));
	snprintf(name, sizeof(name), CARD "%s", options);
	if (open_name(name, text, sizeof(text), &device))
		CHECK_FAIL("%s: %s", name, text);
	rig_prepare(&l.r, device);
	l.random.state = seed;
	l.r.options.budget_bytes = 24 * MIB;
	l.r.options.warm_max_bytes = warm_max_bytes;
	rig_create(&l.r);
	l.memory = memory_access_create(device);
	/* Its own buffer is no part of what is tested. */
	nanosleep(&long_enough, NULL);
	for (int n = 0; n < OPERATIONS; n++)
		operate(&l);
	for (uint32_t i = 0; i < SEQUENCES; i++)
		if (l.seqs[i])
			look_kept(&l, i);
	check_no_fault(device);
	memory_access_destroy(l.memory);
	rig_end(&l.r);
	return l.losses;
}

static struct losses lives(const char *options)
{
	struct seeded random = { 7 };
	struct losses sum = { 0 };

	for (int i = 0; i < 2; i++) {
		struct losses one = live(options, i % 2 ? VMKV_WARM_OFF : 0, seeded_next(&random));

		sum.not_zero += one.not_zero;
		sum.not_kept += one.not_kept;
	}
	printf("%s: %llu not zero, %llu not kept\n", options, (unsigned long long)sum.not_zero,
	       (unsigned long long)sum.not_kept);
	fflush(stdout);
	return sum;
}

/* With the fault alone something is lost, and nothing with the mode, nor with all modes. */
static void check_mode(const char *fault, const char *mode)
{
	static const char *const more[] = { "", "&commit=bo", "&commit=bo&slabs=listed&kernel=7.2",
		                            "&slabs=listed&kernel=6.1" };
	char options[200];
	struct losses losses;

	snprintf(options, sizeof(options), "inject=%s", fault);
	losses = lives(options);
	CHECK(losses.not_zero + losses.not_kept > 0);
	for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
		snprintf(options, sizeof(options), "inject=%s&safe=%s%s", fault, mode, more[i]);
		losses = lives(options);
		CHECK_EQ(losses.not_zero, 0);
		CHECK_EQ(losses.not_kept, 0);
	}
}

static void stale_translations_are_never_met(void)
{
	check_mode("stale-translation", "never-reuse-addresses");
}

static void what_is_seen_late_is_waited_for(void)
{
	check_mode("late-visibility", "wait-after-map");
}

static void aliases_that_diverge_are_not_made(void)
{
	check_mode("alias-diverges", "no-alias");
}

static void modes_work_together(void)
{
	check_mode("stale-translation,late-visibility,alias-diverges",
	           "never-reuse-addresses,wait-after-map,no-alias");
	check_mode("alias-diverges,late-visibility,transient-enomem",
	           "no-alias,wait-after-map");
}

/* These need no mode. */
static void other_faults_lose_nothing(void)
{
	static const char *const options[] = { "inject=transient-enomem", "inject=silent-gtt",
		                               "inject=transient-enomem,silent-gtt&commit=bo" };

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		struct losses losses = lives(options[i]);

		CHECK_EQ(losses.not_zero, 0);
		CHECK_EQ(losses.not_kept, 0);
	}
}

int main(void)
{
	RUN(stale_translations_are_never_met);
	RUN(what_is_seen_late_is_waited_for);
	RUN(aliases_that_diverge_are_not_made);
	RUN(modes_work_together);
	RUN(other_faults_lose_nothing);
	return 0;
}
