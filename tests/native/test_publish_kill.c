/* SPDX-License-Identifier: MIT
 *
 * Engines that share their cache are killed at random moments, and leave a whole state each time.
 * Usage: test_publish_kill [N], how many; 500 if it isn't said.
 */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cache_fixture.h"
#include "published.h"
#include "seeded.h"

#define KILLS 500
#define SEQUENCES 6
#define DELAY_US 3000

/* An engine that opens, grows and closes sequences until the end of its days. */
static void engine(uint64_t seed, int ready)
{
	struct seeded random = { seed };
	uint32_t tokens[SEQUENCES] = { 0 };
	vmkv_seq seqs[SEQUENCES] = { 0 };
	uint64_t busy = 0;
	struct rig r;

	rig_prepare(&r, open_host("host"));
	model_begin(&r.m);
	model_plain(&r.m, VMKV_POLICY_FULL, 3, 4 * KIB);
	model_plain(&r.m, VMKV_POLICY_WINDOW, 2, 4 * KIB)->window_tokens = 40;
	r.options.page_bytes = 16 * KIB;
	r.options.slab_bytes = 2 * MIB;
	r.options.budget_bytes = 6 * MIB;
	r.options.max_slots = SEQUENCES;
	r.options.max_tokens = 256;
	r.options.share = VMKV_SHARE_ON;
	rig_create(&r);
	CHECK_EQ(write(ready, "r", 1), 1);
	for (;;) {
		uint32_t i = seeded_from(&random, 0, SEQUENCES - 1);

		busy++;
		if (seqs[i] == 0 && vmkv_seq_open(r.cache, NULL, &seqs[i]) != 0)
			seqs[i] = 0;
		if (seqs[i] != 0 && tokens[i] < 250 && seeded_from(&random, 0, 9) > 0) {
			uint32_t to = tokens[i] + seeded_from(&random, 0, 5);

			tokens[i] = try_step(&r, seqs[i], to, busy) == 0 ? to : tokens[i];
		} else if (seqs[i] != 0) {
			seq_close(&r, seqs[i], busy);
			seqs[i] = 0;
			tokens[i] = 0;
		}
		if (busy % 3 == 0)
			retire(&r, busy - 2);
	}
}

static int file_open(pid_t pid)
{
	char path[96], prefix[16];
	const struct dirent *entry;
	int fd = -1;
	DIR *files;

	snprintf(path, sizeof(path), "%s/vmkv", published_directory());
	snprintf(prefix, sizeof(prefix), "%d-", pid);
	files = opendir(path);
	CHECK(files != NULL);
	while ((entry = readdir(files)) != NULL) {
		if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
			fd = openat(dirfd(files), entry->d_name, O_RDONLY | O_CLOEXEC);
	}
	closedir(files);
	CHECK(fd >= 0);
	return fd;
}

int main(int argc, char **argv)
{
	struct seeded random = seeded_begin("test_publish_kill");
	int kills = argc > 1 ? atoi(argv[1]) : KILLS;
	uint64_t states = 0, pieces = 0, torn = 0;

	published_directory();
	for (int i = 0; i < kills; i++) {
		uint64_t seed = seeded_next(&random);
		struct timespec delay = { 0, seeded_from(&random, 0, DELAY_US * 1000) };
		struct published p;
		int ready[2], fd, status;
		char byte;
		pid_t pid;

		CHECK_EQ(pipe(ready), 0);
		fflush(stdout);
		pid = fork();
		if (pid == 0)
			engine(seed, ready[1]);
		CHECK(pid > 0);
		close(ready[1]);
		CHECK_EQ(read(ready[0], &byte, 1), 1);
		nanosleep(&delay, NULL);
		CHECK_EQ(kill(pid, SIGKILL), 0);
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		close(ready[0]);
		fd = file_open(pid);
		if (!published_read(fd, &p) || !published_check(&p))
			CHECK_FAIL("kill %d: %s", i, p.wrong);
		CHECK_EQ(p.attempts, 1);
		states += p.epoch;
		for (uint64_t k = 0; k < p.piece_count; k++)
			pieces += p.pieces[k].pages > 0;
		torn += published_is_torn(&p);
		published_free(&p);
		close(fd);
	}
	printf("%d kills after %llu changes, with %llu pieces; %llu within one\n", kills,
	       (unsigned long long)states, (unsigned long long)pieces, (unsigned long long)torn);
	CHECK(pieces > 0);
	return 0;
}
