/* SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util.h"

/* ---- steps ---------------------------------------------------------------------------------- */

static int step_run(const struct vmkv_bench_load *load, const struct vmkv_bench_step *step)
{
	struct vmkv_step_request request = {
		.struct_size = sizeof(request),
		.seqs = load->seqs + step->first,
		.tokens = load->tokens + step->first,
		.n = step->n,
	};
	uint32_t *tokens = load->tokens + step->first;

	for (uint32_t i = 0; i < step->n; i++)
		tokens[i] = step->tokens;
	return vmkv_step(load->cache, &request, NULL);
}

int vmkv_bench_run(const struct vmkv_bench_load *load, const struct vmkv_bench_step *steps,
                   size_t count, size_t batch, uint64_t *ret_ns)
{
	if (batch == 0)
		return -EINVAL;
	for (size_t first = 0; first < count; first += batch) {
		size_t end = count - first > batch ? first + batch : count;
		uint64_t begin_ns = vmkv_clock_ns(CLOCK_MONOTONIC);

		for (size_t i = first; i < end; i++) {
			int error = step_run(load, &steps[i]);

			if (error)
				return error;
		}
		ret_ns[first / batch] = vmkv_clock_ns(CLOCK_MONOTONIC) - begin_ns;
	}
	return 0;
}

/* ---- looking at mappings -------------------------------------------------------------------- */

struct mapping_list {
	struct vmkv_mapping *items;
	size_t count, room;
};

/* The mappings of span number `span` (layer by layer, tensor by tensor) of one sequence. */
static int mapping_list_read(struct mapping_list *list, const struct vmkv_bench_load *load,
                             uint32_t seq, uint32_t span)
{
	for (;;) {
		int error = vmkv_seq_mappings(load->cache, load->seqs[seq], 0, span / load->tensors,
		                              span % load->tensors, list->items, list->room,
		                              &list->count);
		if (error || list->count <= list->room)
			return error;

		void *items = realloc(list->items, 2 * list->count * sizeof(*list->items));
		if (!items)
			return -ENOMEM;
		list->items = items;
		list->room = 2 * list->count;
	}
}

static int mapping_list_init(struct mapping_list *list)
{
	list->room = 64;
	list->items = malloc(list->room * sizeof(*list->items));
	return list->items ? 0 : -ENOMEM;
}

static void layout_add_span(struct vmkv_bench_layout *layout, const struct mapping_list *list)
{
	const struct vmkv_mapping *last = NULL;
	uint64_t runs = 0;

	for (size_t i = 0; i < list->count; i++) {
		const struct vmkv_mapping *next = &list->items[i];

		if (!last || next->address != last->address + last->bytes ||
		    next->slab != last->slab ||
		    next->slab_offset != last->slab_offset + last->bytes)
			runs++;
		layout->bytes += next->bytes;
		last = next;
	}
	layout->spans++;
	layout->mappings += list->count;
	layout->runs += runs;
	if (list->count > layout->mappings_max)
		layout->mappings_max = list->count;
	if (runs > layout->runs_max)
		layout->runs_max = runs;
}

int vmkv_bench_look(const struct vmkv_bench_load *load, struct vmkv_bench_layout *ret)
{
	struct vmkv_bench_layout layout = { 0 };
	struct mapping_list list;
	int error = mapping_list_init(&list);

	for (uint32_t seq = 0; !error && seq < load->n; seq++)
		for (uint32_t span = 0; !error && span < load->layers * load->tensors; span++) {
			error = mapping_list_read(&list, load, seq, span);
			if (!error)
				layout_add_span(&layout, &list);
		}
	free(list.items);
	if (!error)
		*ret = layout;
	return error;
}

/* ---- recording a growth --------------------------------------------------------------------- */

struct recorder {
	struct mapping_list list;
	size_t *known; /* how many mappings of each span were listed before */
	struct vmkv_bench_piece *pieces;
	size_t count, room;
};

static int recorder_add_span(struct recorder *recorder, const struct vmkv_bench_load *load,
                             uint32_t seq, uint32_t span, size_t step)
{
	size_t *known = &recorder->known[(size_t)seq * load->layers * load->tensors + span];
	int error = mapping_list_read(&recorder->list, load, seq, span);

	if (error)
		return error;
	for (; *known < recorder->list.count; ++*known) {
		const struct vmkv_mapping *mapping = &recorder->list.items[*known];

		if (recorder->count == recorder->room)
			return -ENOSPC;
		recorder->pieces[recorder->count++] = (struct vmkv_bench_piece){
			.address = mapping->address,
			.bytes = mapping->bytes,
			.slab = mapping->slab,
			.slab_offset = mapping->slab_offset,
			.step = step,
		};
	}
	return 0;
}

int vmkv_bench_record(const struct vmkv_bench_load *load, const struct vmkv_bench_step *steps,
                      size_t count, struct vmkv_bench_piece *pieces, size_t max_pieces, size_t *ret)
{
	uint32_t spans = load->layers * load->tensors;
	struct recorder recorder = { .pieces = pieces, .room = max_pieces };
	int error = mapping_list_init(&recorder.list);

	recorder.known = calloc((size_t)load->n * spans, sizeof(*recorder.known));
	if (!recorder.known)
		error = -ENOMEM;
	for (size_t i = 0; !error && i < count; i++) {
		error = step_run(load, &steps[i]);
		for (uint32_t k = 0; !error && k < steps[i].n * spans; k++)
			error = recorder_add_span(&recorder, load, steps[i].first + k / spans,
			                          k % spans, i);
	}
	free(recorder.list.items);
	free(recorder.known);
	if (!error)
		*ret = recorder.count;
	return error;
}

/* ---- the floor of the host device ----------------------------------------------------------- */

/* Addresses keep their place within this, as reservations do. */
#define FLOOR_ALIGN ((uint64_t)2 << 20)

struct floor {
	const struct vmkv_bench_plan *plan;
	int fd;         /* all slabs, one behind the other */
	char **bases;   /* what was reserved for each range, and ... */
	char **starts;  /* ... where in it the range begins */
	char **targets; /* where each piece goes */
	void **aliases; /* of each slab; NULL: not used yet */
};

static int floor_reserve(struct floor *floor)
{
	for (size_t i = 0; i < floor->plan->range_count; i++) {
		const struct vmkv_bench_range *range = &floor->plan->ranges[i];
		void *base = mmap(NULL, range->bytes + FLOOR_ALIGN, PROT_NONE,
		                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (base == MAP_FAILED)
			return -errno;
		floor->bases[i] = base;
		floor->starts[i] = floor->bases[i] +
		                   (range->address - (uintptr_t)base) % FLOOR_ALIGN;
	}
	floor->fd = memfd_create("vmkv-bench", MFD_CLOEXEC);
	if (floor->fd < 0 ||
	    ftruncate(floor->fd, (off_t)(floor->plan->slab_count * floor->plan->slab_bytes)))
		return -errno;
	return 0;
}

static int floor_place(struct floor *floor)
{
	const struct vmkv_bench_plan *plan = floor->plan;

	for (size_t i = 0; i < plan->piece_count; i++) {
		const struct vmkv_bench_piece *piece = &plan->pieces[i];
		size_t k = 0;

		while (k < plan->range_count &&
		       (piece->address < plan->ranges[k].address ||
		        piece->address - plan->ranges[k].address >= plan->ranges[k].bytes))
			k++;
		if (k == plan->range_count || piece->slab >= plan->slab_count ||
		    piece->step >= plan->step_count ||
		    (i > 0 && piece->step < plan->pieces[i - 1].step))
			return -EINVAL;
		floor->targets[i] = floor->starts[k] + (piece->address - plan->ranges[k].address);
	}
	return 0;
}

static int floor_map(struct floor *floor, const struct vmkv_bench_piece *piece, char *target)
{
	uint64_t base = piece->slab * floor->plan->slab_bytes;
	void **alias = &floor->aliases[piece->slab];

	if (!*alias) {
		void *mapped = mmap(NULL, floor->plan->slab_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
		                    floor->fd, (off_t)base);

		if (mapped == MAP_FAILED)
			return -errno;
		*alias = mapped;
	}
	if (mmap(target, piece->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, floor->fd,
	         (off_t)(base + piece->slab_offset)) == MAP_FAILED)
		return -errno;
	return 0;
}

static int floor_run(struct floor *floor, uint64_t *ret_ns)
{
	const struct vmkv_bench_plan *plan = floor->plan;
	size_t i = 0;

	for (size_t step = 0; step < plan->step_count; step++) {
		uint64_t begin_ns = vmkv_clock_ns(CLOCK_MONOTONIC);

		for (; i < plan->piece_count && plan->pieces[i].step == step; i++) {
			int error = floor_map(floor, &plan->pieces[i], floor->targets[i]);

			if (error)
				return error;
		}
		ret_ns[step] = vmkv_clock_ns(CLOCK_MONOTONIC) - begin_ns;
	}
	return 0;
}

static void floor_release(struct floor *floor)
{
	const struct vmkv_bench_plan *plan = floor->plan;

	for (size_t i = 0; floor->bases && i < plan->range_count; i++)
		if (floor->bases[i])
			munmap(floor->bases[i], plan->ranges[i].bytes + FLOOR_ALIGN);
	for (size_t i = 0; floor->aliases && i < plan->slab_count; i++)
		if (floor->aliases[i])
			munmap(floor->aliases[i], plan->slab_bytes);
	if (floor->fd >= 0)
		close(floor->fd);
	free(floor->bases);
	free(floor->starts);
	free(floor->targets);
	free(floor->aliases);
}

int vmkv_bench_floor_host(const struct vmkv_bench_plan *plan, uint64_t *ret_ns)
{
	struct floor floor = {
		.plan = plan,
		.fd = -1,
		.bases = calloc(plan->range_count + 1, sizeof(char *)),
		.starts = calloc(plan->range_count + 1, sizeof(char *)),
		.targets = calloc(plan->piece_count + 1, sizeof(char *)),
		.aliases = calloc(plan->slab_count + 1, sizeof(void *)),
	};
	int error = 0;

	if (!floor.bases || !floor.starts || !floor.targets || !floor.aliases)
		error = -ENOMEM;
	if (!error)
		error = floor_reserve(&floor);
	if (!error)
		error = floor_place(&floor);
	if (!error)
		error = floor_run(&floor, ret_ns);
	floor_release(&floor);
	return error;
}

/* ---- counting system calls ------------------------------------------------------------------ */

/* Written by the thread that is counted, read by the tracer at the entry of each system call. */
enum watch_phase {
	WATCH_BEFORE,
	WATCH_CONTROL, /* known calls, which prove that calls are seen at all */
	WATCH_SCRIPT,
	WATCH_AFTER,
	WATCH_PHASES
};

enum watch_state {
	WATCH_WAITING, /* for leave to attach */
	WATCH_ALLOWED,
	WATCH_ATTACHED
};

#define WATCH_CONTROL_CALLS 3
/* A tracer that neither comes up nor ends in this time never will. */
#define WATCH_PATIENCE_US 5000000

struct watch {
	_Atomic int phase;
	_Atomic int state;
	uint64_t calls[WATCH_PHASES];
};

/* In the tracer: let the thread run up to its next stop, and count it if it enters a call. Returns
 * false when there is nothing more to count. */
static bool tracer_next(struct watch *watch, pid_t thread, int *signal)
{
	struct __ptrace_syscall_info info;
	int status;

	if (ptrace(PTRACE_SYSCALL, thread, NULL, (void *)(intptr_t)*signal))
		return false;
	if (waitpid(thread, &status, __WALL) != thread || !WIFSTOPPED(status))
		return false;
	*signal = 0;
	if (WSTOPSIG(status) != (SIGTRAP | 0x80)) {
		if (status >> 16 == 0)
			*signal = WSTOPSIG(status);
		return true;
	}
	if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, (void *)sizeof(info), &info) <= 0)
		return false;
	if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
		int phase = atomic_load(&watch->phase);

		watch->calls[phase]++;
		return phase != WATCH_AFTER;
	}
	return true;
}

/* The child: it shares nothing with its parent but *watch, and calls nothing that takes a lock. */
static void tracer_run(struct watch *watch, pid_t thread)
{
	int status, signal = 0;

	for (uint32_t us = 0; atomic_load(&watch->state) == WATCH_WAITING; us += 50) {
		if (us > WATCH_PATIENCE_US)
			_exit(1);
		usleep(50);
	}
	if (ptrace(PTRACE_SEIZE, thread, NULL, (void *)(intptr_t)PTRACE_O_TRACESYSGOOD))
		_exit(1);
	if (ptrace(PTRACE_INTERRUPT, thread, NULL, NULL) ||
	    waitpid(thread, &status, __WALL) != thread || !WIFSTOPPED(status))
		_exit(1);
	if (status >> 16 == 0)
		signal = WSTOPSIG(status);
	atomic_store(&watch->state, WATCH_ATTACHED);
	while (tracer_next(watch, thread, &signal))
		;
	/* Fails if the thread is not stopped; it is let go all the same when this process ends. */
	ptrace(PTRACE_DETACH, thread, NULL, (void *)(intptr_t)signal);
	_exit(0);
}

/* Wait for the tracer to attach (*status is written if it ends instead) or, with until_end, to end.
 * Returns whether it did; if not, it is gone now. */
static bool tracer_wait(struct watch *watch, pid_t tracer, bool until_end, int *status)
{
	for (uint32_t us = 0; us < WATCH_PATIENCE_US; us += 50) {
		pid_t gone;

		if (!until_end && atomic_load(&watch->state) == WATCH_ATTACHED)
			return true;
		gone = waitpid(tracer, status, WNOHANG);
		if (gone == tracer || (gone < 0 && errno != EINTR))
			return until_end && gone == tracer;
		usleep(50);
	}
	kill(tracer, SIGKILL);
	waitpid(tracer, status, 0);
	return false;
}

/* Whether the tracer is there and counts. */
static bool tracer_attach(struct watch *watch, pid_t tracer)
{
	int status;

	/* Where only parents may trace (Yama), this names the child; elsewhere it does nothing. */
	prctl(PR_SET_PTRACER, (unsigned long)tracer, 0, 0, 0);
	atomic_store(&watch->state, WATCH_ALLOWED);
	return tracer_wait(watch, tracer, false, &status);
}

/* Whether the tracer ended well, having seen the calls that are known. */
static bool tracer_detach(struct watch *watch, pid_t tracer)
{
	int status = 0;
	bool ended;

	atomic_store(&watch->phase, WATCH_AFTER);
	ended = tracer_wait(watch, tracer, true, &status);
	prctl(PR_SET_PTRACER, 0, 0, 0, 0);
	return ended && WIFEXITED(status) && WEXITSTATUS(status) == 0 &&
	       watch->calls[WATCH_CONTROL] == WATCH_CONTROL_CALLS &&
	       watch->calls[WATCH_AFTER] == 1;
}

static int script_run(const struct vmkv_bench_load *load, const struct vmkv_bench_step *steps,
                      size_t count)
{
	int error = 0;

	for (size_t i = 0; !error && i < count; i++)
		error = step_run(load, &steps[i]);
	return error;
}

int vmkv_bench_count_syscalls(const struct vmkv_bench_load *load,
                              const struct vmkv_bench_step *steps, size_t count, int64_t *ret)
{
	struct watch *watch = mmap(NULL, sizeof(*watch), PROT_READ | PROT_WRITE,
	                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t thread = (pid_t)syscall(SYS_gettid);
	pid_t tracer;
	bool counted;
	int error;

	if (watch == MAP_FAILED)
		return -ENOMEM;
	tracer = fork();
	if (tracer == 0)
		tracer_run(watch, thread);
	counted = tracer > 0 && tracer_attach(watch, tracer);
	if (counted) {
		atomic_store(&watch->phase, WATCH_CONTROL);
		for (int i = 0; i < WATCH_CONTROL_CALLS; i++)
			syscall(SYS_getppid);
	}
	atomic_store(&watch->phase, WATCH_SCRIPT);
	error = script_run(load, steps, count);
	if (counted)
		counted = tracer_detach(watch, tracer);
	if (!error)
		*ret = counted ? (int64_t)watch->calls[WATCH_SCRIPT] : -1;
	munmap(watch, sizeof(*watch));
	return error;
}
