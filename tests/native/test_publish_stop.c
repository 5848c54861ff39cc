/* SPDX-License-Identifier: MIT
 *
 * A cache that is shared, stopped after every single instruction that publishes anything: what a reader
 * would find then, if the process went no further, is the last state that was whole, or the next one.
 *
 * The processor's trap flag does it: each instruction between single_begin and single_end ends in a
 * signal, in which the file is looked at if it has changed.
 */
#include <signal.h>
#include <unistd.h>

#include "cache_fixture.h"
#include "published.h"
#include "publish.h"
#include "cache.h"
#include "seeded.h"

#ifndef __x86_64__
int main(void)
{
	printf("skipped: there is no trap flag but on x86-64\n");
	return 77;
}
#else

#define OPERATIONS 60

static struct {
	vmkv_cache *cache;
	unsigned char *last;   /* the file as it was looked at last */
	struct published before; /* the state that was whole last */
	uint64_t instructions, looks, states;
} watch;

/* In the signal: whether the file shows a whole state. */
static void look(void)
{
	const struct vmkv_mirror_file *file = &watch.cache->mirror->file;
	struct published now;

	if (memcmp(watch.last, file->bytes, file->size) == 0)
		return;
	memcpy(watch.last, file->bytes, file->size);
	watch.looks++;
	if (!published_take(watch.last, file->size, &now) || !published_check(&now))
		CHECK_FAIL("after %llu instructions: %s", (unsigned long long)watch.instructions,
		           now.wrong);
	if (now.epoch == watch.before.epoch) {
		if (!published_same(&watch.before, &now))
			CHECK_FAIL("while epoch %llu is being left: %s",
			           (unsigned long long)now.epoch, now.wrong);
		published_free(&now);
		return;
	}
	CHECK_EQ(now.epoch, watch.before.epoch + 1);
	published_free(&watch.before);
	watch.before = now;
	watch.states++;
}

static void trapped(int signal)
{
	(void)signal;
	watch.instructions++;
	look();
}

static inline void single_begin(void)
{
	__asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
}

static inline void single_end(void)
{
	__asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
}

/* What publishes is called through these: see the program's link arguments. */
#define WATCHED(ret, name, parameters, ...)  \
	ret __real_##name parameters;        \
	ret __wrap_##name parameters;        \
	ret __wrap_##name parameters         \
	{                                    \
		bool on = watch.last != NULL; \
		if (on)                      \
			single_begin();      \
		__real_##name(__VA_ARGS__);  \
		if (on)                      \
			single_end();        \
	}

WATCHED(void, vmkv_mirror_step, (struct vmkv_cache *c, const struct vmkv_step_request *r), c, r)
WATCHED(void, vmkv_mirror_piece, (struct vmkv_cache *c, const struct vmkv_gone *g,
                                  enum vmkv_page_state from, enum vmkv_page_state to), c, g, from, to)
WATCHED(void, vmkv_mirror_commit, (struct vmkv_cache *c), c)
WATCHED(void, vmkv_mirror_opened, (struct vmkv_cache *c, uint32_t slot), c, slot)
WATCHED(void, vmkv_mirror_closed, (struct vmkv_cache *c, uint32_t slot), c, slot)
WATCHED(void, vmkv_mirror_unmapped, (struct vmkv_cache *c, const struct vmkv_gone *g, uint32_t n), c, g, n)
WATCHED(void, vmkv_mirror_called, (struct vmkv_cache *c, enum vmkv_published_call call, uint64_t n,
                                   uint64_t began_ns, uint64_t ended_ns), c, call, n, began_ns, ended_ns)
WATCHED(void, vmkv_mirror_mapped, (struct vmkv_cache *c, const struct vmkv_gone *g, uint32_t n), c, g, n)

static void operate(struct rig *r, struct seeded *random, vmkv_seq *seqs, uint32_t *tokens)
{
	uint32_t i = seeded_from(random, 0, 2);

	switch (seeded_from(random, 0, 5)) {
	case 0:
		if (seqs[i] != 0)
			seq_close(r, seqs[i], seeded_from(random, 0, 1));
		seqs[i] = 0;
		break;
	case 1:
		retire(r, 1);
		break;
	default:
		if (seqs[i] == 0) {
			if (r->cache->open_count >= 3 ||
			    vmkv_seq_open(r->cache, NULL, &seqs[i]) != 0)
				break;
			tokens[i] = 0;
		}
		tokens[i] += seeded_from(random, 0, 6);
		if (tokens[i] > 64)
			tokens[i] = 64;
		if (try_step(r, seqs[i], tokens[i], 0) != 0)
			tokens[i] = r->cache->slots[vmkv_slot_of(seqs[i])].live;
	}
}

int main(void)
{
	struct seeded random = seeded_begin("test_publish_stop");
	struct sigaction action = { .sa_handler = trapped };
	uint32_t tokens[3] = { 0 };
	vmkv_seq seqs[3] = { 0 };
	struct rig r;
	size_t size;

	published_directory();
	rig_prepare(&r, open_host("host"));
	model_begin(&r.m);
	model_plain(&r.m, VMKV_POLICY_FULL, 1, ROW);
	model_plain(&r.m, VMKV_POLICY_WINDOW, 1, ROW)->window_tokens = 8;
	r.options.max_slots = 3;
	r.options.max_tokens = 64;
	r.options.slab_bytes = 2 * MIB;
	r.options.budget_bytes = 2 * MIB;
	r.options.share = VMKV_SHARE_ON;
	rig_create(&r);
	watch.cache = r.cache;
	size = r.cache->mirror->file.size;
	CHECK(published_take(r.cache->mirror->file.bytes, size, &watch.before));
	CHECK_EQ(sigaction(SIGTRAP, &action, NULL), 0);
	watch.last = malloc(size);
	CHECK(watch.last != NULL);
	memcpy(watch.last, r.cache->mirror->file.bytes, size);
	for (int i = 0; i < OPERATIONS; i++)
		operate(&r, &random, seqs, tokens);
	free(watch.last);
	watch.last = NULL;
	published_free(&watch.before);
	printf("%llu instructions, %llu of which changed the file, through %llu states\n",
	       (unsigned long long)watch.instructions, (unsigned long long)watch.looks,
	       (unsigned long long)watch.states);
	CHECK(watch.looks > 1000 && watch.states > OPERATIONS);
	rig_end(&r);
	return 0;
}
#endif
