/* SPDX-License-Identifier: MIT
 *
 * Who waits for a syncobj's submission gets the fence that is submitted, whatever comes after it.
 */
#include <pthread.h>

#include "cs_fixture.h"

#define ROUNDS 50

static struct bench bench;

struct waiting {
	uint32_t handle;
	uint64_t point; /* 0: none, it is a binary one */
	pid_t thread; /* once it is about to wait */
	int result;
};

static int64_t a_second_from_now(void)
{
	return time_ns() + 1000000000;
}

static void *wait_run(void *argument)
{
	struct waiting *waiting = argument;
	const uint32_t flags = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT;

	__atomic_store_n(&waiting->thread, gettid(), __ATOMIC_SEQ_CST);
	waiting->result = waiting->point
	                      ? point_wait(bench.fd, waiting->handle, waiting->point, flags,
	                                   a_second_from_now())
	                      : syncobjs_wait(bench.fd, &waiting->handle, 1, flags,
	                                      a_second_from_now(), NULL);
	return NULL;
}

static bool is_asleep(const struct waiting *waiting)
{
	pid_t thread = __atomic_load_n(&waiting->thread, __ATOMIC_SEQ_CST);
	char path[64], state = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
	file = thread ? fopen(path, "r") : NULL;
	if (!file)
		return false;
	if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		state = 0;
	(void)fclose(file);
	return state == 'S';
}

static int handle_call(unsigned long request, uint32_t handle)
{
	struct drm_syncobj_array args = { .handles = (uintptr_t)&handle, .count_handles = 1 };

	return call(bench.fd, request, &args);
}

/* It is reset at once: hardly ever does the thread run in between. */
static void round_run(uint64_t point)
{
	struct waiting waiting = { .handle = syncobj_make(bench.fd, 0), .point = point };
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, wait_run, &waiting), 0);
	do
		let_threads_run();
	while (!is_asleep(&waiting));
	CHECK_EQ(point ? point_signal(bench.fd, waiting.handle, point)
	               : handle_call(DRM_IOCTL_SYNCOBJ_SIGNAL, waiting.handle), 0);
	CHECK_EQ(handle_call(DRM_IOCTL_SYNCOBJ_RESET, waiting.handle), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(waiting.result, 0);
	CHECK_EQ(syncobj_end(bench.fd, waiting.handle), 0);
}

static void a_fence_that_is_taken_back_was_there(void)
{
	for (int i = 0; i < ROUNDS; i++)
		round_run(0);
}

static void so_was_a_point(void)
{
	for (int i = 0; i < ROUNDS; i++)
		round_run(7);
}

int main(void)
{
	bench = bench_open("6.12", "");
	RUN(a_fence_that_is_taken_back_was_there);
	RUN(so_was_a_point);
	bench_close(&bench);
	return 0;
}
