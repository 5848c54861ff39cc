/* SPDX-License-Identifier: MIT
 *
 * Where the emulated kernel ends: counts that no kernel takes, contexts that are done for, waits that
 * would never end, and the process that it lives in.
 */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "cs_fixture.h"

static const char *kernel;
static struct bench bench;
static int fd;

/* ---- counts -------------------------------------------------------------------------------------- */

/* The kernel asks kmalloc for 4 MiB at most, and kvmalloc for 2 GiB: with more it doesn't look at what
 * the caller has. */
static void more_handles_than_the_kernel_allocates_are_enomem(void)
{
	static const unsigned long requests[] = { DRM_IOCTL_SYNCOBJ_RESET, DRM_IOCTL_SYNCOBJ_SIGNAL };
	struct drm_syncobj_wait wait = { .handles = 8, .count_handles = UINT32_MAX };
	struct drm_syncobj_timeline_array points = { .handles = 8, .points = 8,
		                                     .count_handles = UINT32_MAX };

	for (int i = 0; i < 2; i++) {
		struct drm_syncobj_array array = { .handles = 8, .count_handles = UINT32_MAX };

		CHECK_EQ(call(fd, requests[i], &array), -ENOMEM);
		array.count_handles = (4 << 20) / 4 + 1;
		CHECK_EQ(call(fd, requests[i], &array), -ENOMEM);
		array.count_handles--;
		CHECK_EQ(call(fd, requests[i], &array), -EFAULT);
	}
	CHECK_EQ(call(fd, DRM_IOCTL_SYNCOBJ_WAIT, &wait), -ENOMEM);
	CHECK_EQ(call(fd, DRM_IOCTL_SYNCOBJ_QUERY, &points), -ENOMEM);
	CHECK_EQ(call(fd, DRM_IOCTL_SYNCOBJ_TIMELINE_SIGNAL, &points), -ENOMEM);
}

static void more_fences_than_the_kernel_allocates_are_enomem(void)
{
	union drm_amdgpu_wait_fences wait = { .in = { .fences = 8, .fence_count = UINT32_MAX } };

	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_WAIT_FENCES, &wait), -ENOMEM);
	wait.in.fence_count = 1;
	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_WAIT_FENCES, &wait), -EFAULT);
}

static void more_chunks_than_the_kernel_allocates_are_enomem(void)
{
	struct drm_amdgpu_cs_chunk chunk = { AMDGPU_CHUNK_ID_SYNCOBJ_IN, UINT32_MAX, 8 };
	uint64_t pointer = (uintptr_t)&chunk;
	union drm_amdgpu_cs cs = { .in = { .ctx_id = bench.context, .num_chunks = UINT32_MAX,
		                           .chunks = (uintptr_t)&pointer } };

	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_CS, &cs), -ENOMEM);
	cs.in.num_chunks = 1;
	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_CS, &cs), -ENOMEM);
	chunk.length_dw = 1;
	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_CS, &cs), -EFAULT);
}

static void more_inputs_than_the_kernel_allocates_are_enomem_on_7_2(void)
{
	struct drm_amdgpu_gem_va va = { .handle = bench.work, .operation = AMDGPU_VA_OP_MAP,
		                        .flags = RW, .va_address = VA, .map_size = PAGE,
		                        .num_syncobj_handles = UINT32_MAX,
		                        .input_fence_syncobj_handles = 8 };

	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_GEM_VA, &va), strcmp(kernel, "7.2") ? 0 : -ENOMEM);
	CHECK_EQ(va_clear(fd, 0, VA, PAGE), 0);
}

/* ---- contexts ------------------------------------------------------------------------------------ */

static void a_guilty_context_is_refused_before_its_chunks_are_looked_at(void)
{
	uint32_t kept = bench.context;
	union drm_amdgpu_cs cs = { .in = { .num_chunks = 1, .chunks = 8 } };
	uint64_t number = 0;

	bench.context = context_create(fd);
	cs.in.ctx_id = bench.context;
	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_CS, &cs), -EFAULT);
	memset(slot(&bench, 0), 0, PAGE);
	put_write(slot(&bench, 0), UNMAPPED_VA, 1);
	CHECK_EQ(slot_submit(&bench, 0, &number), 0);
	CHECK_EQ(wait_for(&bench, number), -ECANCELED);
	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_CS, &cs), -ECANCELED);
	cs.in.num_chunks = 0;
	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_CS, &cs), -EINVAL);
	context_destroy(fd, bench.context);
	bench.context = kept;
}

/* ---- waiting ------------------------------------------------------------------------------------- */

static uint32_t never; /* a syncobj for which nobody submits */
static int wait_error;

static void *never_wait(void *unused)
{
	struct drm_syncobj_wait args = { .handles = (uintptr_t)&never, .count_handles = 1,
		                         .timeout_nsec = INT64_MAX,
		                         .flags = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT };

	wait_error = call(fd, DRM_IOCTL_SYNCOBJ_WAIT, &args);
	return unused;
}

static void a_card_can_go_while_somebody_waits_for_ever(void)
{
	struct card going = card_open(kernel, "");
	int kept = fd;
	pthread_t thread;

	fd = going.fd;
	never = syncobj_make(fd, 0);
	CHECK_EQ(pthread_create(&thread, NULL, never_wait, NULL), 0);
	let_threads_run();
	vmkv_emulator_destroy(going.gpu);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(wait_error, -ENODEV);
	close(going.fd);
	fd = kept;
}

/* ---- counting ------------------------------------------------------------------------------------ */

#define REFUSALS 1000

static void *refused_call(void *unused)
{
	for (int i = 0; i < REFUSALS; i++)
		CHECK_EQ(call(fd, DRM_IO(0x3e), NULL), -EINVAL);
	return unused;
}

/* Refusals are counted without the card's lock: for the sanitizer of threads. */
static void refusals_are_counted_while_others_ask(void)
{
	uint64_t before = stats(&bench.card).refused;
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, refused_call, NULL), 0);
	while (stats(&bench.card).refused < before + REFUSALS)
		;
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(stats(&bench.card).refused, before + REFUSALS);
}

/* ---- the process --------------------------------------------------------------------------------- */

static uint64_t signals_blocked(const char *thread)
{
	char path[300], line[256];
	unsigned long long blocked = 0;
	FILE *status;

	snprintf(path, sizeof(path), "/proc/self/task/%s/status", thread);
	status = fopen(path, "r");
	CHECK(status);
	while (fgets(line, sizeof(line), status))
		sscanf(line, "SigBlk: %llx", &blocked);
	fclose(status);
	return blocked;
}

/* Sanitizers have threads of their own, which block all there is. So: none has what only ours has. */
static void the_cards_thread_blocks_signals_but_those_of_its_own_faults(void)
{
	uint64_t faults = 1u << (SIGSEGV - 1) | 1u << (SIGBUS - 1) | 1u << (SIGFPE - 1) |
	                  1u << (SIGILL - 1);
	DIR *threads = opendir("/proc/self/task");
	uint32_t found = 0;
	const struct dirent *entry;

	CHECK(threads);
	while ((entry = readdir(threads))) {
		uint64_t blocked = *entry->d_name == '.' ? 0 : signals_blocked(entry->d_name);

		found += blocked & 1u << (SIGTERM - 1) && !(blocked & faults);
	}
	closedir(threads);
	CHECK(found);
}

static void own_card_run(void)
{
#ifndef __SANITIZE_THREAD__ /* which lets no such child start a thread */
	struct card own = card_open(kernel, "");

	CHECK_EQ(va_map(own.fd, bo_create(own.fd, HUGE, 0), 0, VA, 0, HUGE), 0);
	card_close(&own);
#endif
}

static void child_run(void)
{
	struct drm_gem_close args = { .handle = bench.work };
	int another;

	CHECK_EQ(call(fd, DRM_IOCTL_GEM_CLOSE, &args), -ENODEV);
	CHECK_EQ(vmkv_emulator_open(bench.card.gpu, &another), -ENODEV);
	CHECK_EQ(vmkv_emulator_close(fd), 0);
	vmkv_emulator_destroy(bench.card.gpu);
	own_card_run();
}

static void a_child_of_fork_touches_nothing_of_its_parents(void)
{
	pid_t child;
	int status = 1;

	bench.words[DATA] = 0x5eed;
	child = fork();
	if (!child) {
		child_run();
		_exit(0);
	}
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	CHECK_EQ(bench.words[DATA], 0x5eed);
	memset(slot(&bench, 0), 0, PAGE);
	put_write(slot(&bench, 0), DATA_VA, 77);
	CHECK_EQ(slot_run(&bench, 0), 0);
	CHECK_EQ(bench.words[DATA], 77);
}

int main(void)
{
	FOR_EACH_KERNEL(name) {
		kernel = name;
		bench = bench_open(kernel, "");
		fd = bench.fd;
		RUN(more_handles_than_the_kernel_allocates_are_enomem);
		RUN(more_fences_than_the_kernel_allocates_are_enomem);
		RUN(more_chunks_than_the_kernel_allocates_are_enomem);
		RUN(more_inputs_than_the_kernel_allocates_are_enomem_on_7_2);
		RUN(a_guilty_context_is_refused_before_its_chunks_are_looked_at);
		RUN(a_card_can_go_while_somebody_waits_for_ever);
		RUN(refusals_are_counted_while_others_ask);
		RUN(the_cards_thread_blocks_signals_but_those_of_its_own_faults);
		RUN(a_child_of_fork_touches_nothing_of_its_parents);
		bench_close(&bench);
	}
	return 0;
}
