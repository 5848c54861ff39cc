/* SPDX-License-Identifier: MIT
 *
 * The k-th ioctl of each kind fails, for every k, in the whole life of a device: opening it, a cache,
 * growth, windows that move on, closing, retiring, shrinking, the end. What a call then returns is an
 * error that the manager knows; all that is given back is given back; and when the device is closed
 * nothing of it is left on the card or in the process.
 */
#include <errno.h>
#include <inttypes.h>

#include "cache_fixture.h"
#include "card_fixture.h"
#include "seeded.h"

#define TRIES 3

/* The life that is going on. */
struct life {
	struct card card;
	const char *what;
	struct rig r;
	uint64_t point; /* exported */
	int error;      /* what the ioctl is made to fail with; 0: none is */
};

static void rig_of_windows(struct rig *r, vmkv_device *device)
{
	rig_prepare(r, device);
	model_begin(&r->m);
	model_plain(&r->m, VMKV_POLICY_FULL, 2, 4 * KIB);
	model_plain(&r->m, VMKV_POLICY_WINDOW, 1, 4 * KIB)->window_tokens = 16;
	model_plain(&r->m, VMKV_POLICY_STATE, 1, 10 * KIB);
	r->options.page_bytes = 4 * KIB;
	r->options.window_mapping_max_bytes = 16 * KIB;
	r->options.mapping_max_bytes = 64 * KIB;
	r->options.slab_bytes = 2 * MIB;
	r->options.budget_bytes = 6 * MIB;
	r->options.max_tokens = 512;
}

/* The driver's word, or what follows from it: memory that it doesn't give is a shortage, a sequence in
 * between is busy. */
static void check_answer(const struct life *life, const char *call, int rc)
{
	/* By ECANCELED a wait tells of work that met an address without memory. */
	if (rc == -EFAULT && life->error == ECANCELED)
		return;
	if (rc != 0 && rc != -life->error && rc != -ENOSPC && rc != -EBUSY && rc != -ENODEV)
		CHECK_FAIL("%s: %s returned %d", life->what, call, rc);
}

static void check_sums(struct life *life)
{
	struct vmkv_stats s = stats_of(&life->r);

	if (s.mapped_bytes + s.retiring_bytes + s.warm_bytes > s.slab_bytes)
		CHECK_FAIL("%s: more is mapped than there is", life->what);
}

/* Until it works; a device that was lost stays so. Returns whether it worked. */
static bool grow(struct life *life, const vmkv_seq *seqs, const uint32_t *tokens, uint32_t n,
                 uint64_t busy_until)
{
	struct vmkv_step_result result = { .struct_size = sizeof(result) };

	for (int i = 0; i < TRIES; i++) {
		int rc = try_steps(&life->r, seqs, tokens, n, busy_until, &result);

		check_answer(life, "step", rc);
		check_sums(life);
		if (rc == -ENODEV)
			return false;
		if (rc == 0) {
			rc = vmkv_wait(life->r.device, result.ready, UINT64_MAX);
			check_answer(life, "wait", rc);
			life->point = result.ready ? result.ready : life->point;
			return rc != -ENODEV;
		}
		vmkv_wait(life->r.device, result.shortage.transit_point, UINT64_MAX);
		check_answer(life, "retire", vmkv_retire(life->r.cache, 0));
	}
	CHECK_FAIL("%s: a step never worked: %s", life->what, cache_text(&life->r));
}

/* The first and last rows of layer 1, filled and copied by the card's copy engine. */
static void use(struct life *life, vmkv_seq seq, uint32_t tokens)
{
	struct vmkv_span span = span_of(&life->r, seq, 0, 1, 0);
	uint64_t last = span.address + (tokens - 1) * span.token_stride;
	int rc = vmkv_fill(life->r.device, span.address, ROW / 4, 7, NULL);

	check_answer(life, "fill", rc);
	rc = vmkv_copy(life->r.device, last, span.address, ROW / 4, NULL);
	check_answer(life, "copy", rc);
}

static void export_point(struct life *life)
{
	int fd = -1, rc = life->point ? vmkv_point_export(life->r.device, life->point, &fd) : -EBUSY;

	check_answer(life, "export", rc);
	if (rc == 0)
		CHECK_EQ(close(fd), 0);
}

static void settle(struct life *life, uint64_t completed)
{
	for (int i = 0; i < 2000; i++) {
		struct vmkv_stats s;

		check_answer(life, "retire", vmkv_retire(life->r.cache, completed));
		s = stats_of(&life->r);
		if (s.unmapping_bytes + s.zeroing_bytes == 0 || vmkv_device_is_lost(life->r.device))
			return;
		usleep(500);
	}
	CHECK_FAIL("%s: what was given back never came", life->what);
}

static void sequences_live(struct life *life)
{
	struct rig *r = &life->r;
	vmkv_seq seqs[3];
	bool works;

	for (int i = 0; i < 3; i++)
		CHECK_EQ(vmkv_seq_open(r->cache, NULL, &seqs[i]), 0);
	works = grow(life, seqs, (uint32_t[]){ 40, 20, 60 }, 3, 1) &&
	        grow(life, seqs, (uint32_t[]){ 60, 40, 90 }, 3, 2);
	if (works) {
		use(life, seqs[0], 60);
		export_point(life);
		settle(life, 1);
	}
	works = works && grow(life, seqs, (uint32_t[]){ 90, 60, 120 }, 3, 3);
	CHECK_EQ(vmkv_seq_close(r->cache, seqs[1], 4), 0);
	settle(life, 4);
	works = works && grow(life, seqs, (uint32_t[]){ 200 }, 1, 5);
	CHECK_EQ(vmkv_seq_close(r->cache, seqs[2], 6), 0);
	check_answer(life, "shrink", vmkv_cache_shrink(r->cache, 0, NULL));
	settle(life, 6);
	CHECK_EQ(vmkv_seq_close(r->cache, seqs[0], 6), 0);
	settle(life, 6);
	check_sums(life);
}

/* Everything comes back, whatever failed: at once, or when it is asked for again. */
static void give_all_back(struct life *life)
{
	struct rig *r = &life->r;

	check_answer(life, "shrink", vmkv_cache_shrink(r->cache, 0, NULL));
	for (int i = 0; i < TRIES && stats_of(r).slab_bytes > 0; i++) {
		settle(life, 6);
		check_answer(life, "shrink", vmkv_cache_shrink(r->cache, 0, NULL));
	}
	if (!vmkv_device_is_lost(r->device) && stats_of(r).slab_bytes + stats_of(r).mappings > 0)
		CHECK_FAIL("%s: %" PRIu64 " bytes and %" PRIu64 " mappings never came back", life->what,
		           stats_of(r).slab_bytes, stats_of(r).mappings);
}

/* Returns whether the device could be opened. */
static bool device_lives(struct life *life)
{
	vmkv_device *device;
	char text[256] = "";
	int rc = card_device_open(&life->card, &device, text, sizeof(text));

	if (rc) {
		if (!life->error || !*text || device)
			CHECK_FAIL("%s: open returned %d: \"%s\"", life->what, rc, text);
		return false;
	}
	rig_of_windows(&life->r, device);
	rig_create(&life->r);
	sequences_live(life);
	give_all_back(life);
	vmkv_cache_destroy(life->r.cache);
	CHECK_EQ(vmkv_device_close(device), 0);
	return true;
}

/* Returns how many of the kind there were. */
static uint64_t live(struct life *life, const char *ioctl, uint64_t k, int error)
{
	uint64_t before = card_calls(&life->card, ioctl);
	char what[96];

	snprintf(what, sizeof(what), "%s %" PRIu64 " fails with %s", ioctl, k,
	         error ? strerrorname_np(error) : "nothing");
	life->what = what;
	life->error = error;
	CHECK_EQ(vmkv_emulator_fail(life->card.emulator, ioctl, error ? k : 0, error), 0);
	device_lives(life);
	CHECK_EQ(vmkv_emulator_fail(life->card.emulator, ioctl, 0, 0), 0);
	card_check_empty(&life->card, what);
	return card_calls(&life->card, ioctl) - before;
}

/* How many of so many calls can fail and be told: giving back can't, and a context is given back last. */
static uint64_t calls_that_may_fail(const char *ioctl, uint64_t calls)
{
	if (!strcmp(ioctl, "GEM_CLOSE") || !strcmp(ioctl, "SYNCOBJ_DESTROY"))
		return 0;
	/* Of the first one vmkv makes sure; libdrm takes those after it for granted. */
	if (!strcmp(ioctl, "VERSION"))
		return 1;
	return !strcmp(ioctl, "CTX") && calls > 0 ? calls - 1 : calls;
}

int main(void)
{
	static const int errors[] = { EIO, ENOMEM, EINTR, ECANCELED, ENODEV };
	static struct life life;
	struct seeded random = seeded_begin("test_emulated_lives");
	uint64_t lives = 0;
	const char *ioctl;

	life.card = card_create();
	for (uint32_t i = 0; (ioctl = vmkv_emulator_ioctl_name(i)); i++) {
		uint64_t calls = calls_that_may_fail(ioctl, live(&life, ioctl, 0, 0));
		uint64_t stride = target_stride_of(calls, 16);

		for (size_t e = 0; e < sizeof(errors) / sizeof(errors[0]); e++) {
			uint64_t first = 1 + seeded_next(&random) % stride;

			for (uint64_t k = first; k <= calls; k += stride, lives++)
				live(&life, ioctl, k, errors[e]);
		}
		if (calls > 0)
			printf("%-24s %4" PRIu64 " calls\n", ioctl, calls);
	}
	printf("%" PRIu64 " lives with a failure\n", lives);
	CHECK(lives > 0);
	card_destroy(&life.card);
	return 0;
}
