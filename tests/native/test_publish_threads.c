/* SPDX-License-Identifier: MIT
 *
 * Threads at work on a shared cache, and one that reads what is published meanwhile: it finds whole
 * states alone, and always one in the end. To be run under a race detector too.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "cache_fixture.h"
#include "published.h"
#include "seeded.h"

#define THREADS 3
#define STATES 150 /* to be read */
#define TOKENS 200

struct worker {
	pthread_t thread;
	struct rig *rig;
	struct seeded random;
	_Atomic bool *end;
	uint64_t steps;
};

static void *work(void *argument)
{
	struct worker *w = argument;
	uint32_t tokens = 0;
	vmkv_seq seq = 0;

	while (!atomic_load(w->end)) {
		if (seq == 0 && vmkv_seq_open(w->rig->cache, NULL, &seq) != 0)
			continue;
		if (tokens >= TOKENS || seeded_from(&w->random, 0, 99) == 0) {
			seq_close(w->rig, seq, 0);
			seq = 0;
			tokens = 0;
			continue;
		}
		tokens += seeded_from(&w->random, 0, 2);
		if (try_step(w->rig, seq, tokens, 0) == 0)
			w->steps++;
		else
			tokens = span_of(w->rig, seq, 0, 0, 0).live_tokens;
	}
	if (seq != 0)
		seq_close(w->rig, seq, 0);
	return NULL;
}

int main(void)
{
	struct seeded random = seeded_begin("test_publish_threads");
	struct worker workers[THREADS];
	uint64_t attempts = 0, steps = 0, last = 0, different = 0;
	_Atomic bool end = false;
	struct published p;
	struct rig r;
	int fd;

	published_directory();
	rig_prepare(&r, open_host("host"));
	r.options.slab_bytes = 2 * MIB;
	r.options.budget_bytes = 16 * MIB;
	r.options.share = VMKV_SHARE_ON;
	rig_create(&r);
	fd = published_open();
	for (int i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ .rig = &r, .random = { seeded_next(&random) }, .end = &end };
		CHECK_EQ(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	while (different < STATES) {
		if (!published_read(fd, &p) || !published_check(&p))
			CHECK_FAIL("after %llu states: %s", (unsigned long long)different, p.wrong);
		CHECK(p.epoch >= last);
		different += p.epoch > last;
		last = p.epoch;
		attempts += p.attempts;
		published_free(&p);
	}
	atomic_store(&end, true);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		steps += workers[i].steps;
	}
	CHECK(published_read(fd, &p));
	CHECK_EQ(p.state.steps + (p.epoch - p.state.epoch), steps);
	published_free(&p);
	printf("%llu states in %llu attempts, %llu steps meanwhile\n",
	       (unsigned long long)different, (unsigned long long)attempts,
	       (unsigned long long)steps);
	close(fd);
	rig_end(&r);
	return 0;
}
