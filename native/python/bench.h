/* SPDX-License-Identifier: MIT
 *
 * Loops of `vmkv bench` that must not pay for Python. They call the library as an engine does,
 * through vmkv.h alone, and are compiled into the extension module. Each returns 0 or a negative
 * errno.
 */
#ifndef VMKV_BENCH_H
#define VMKV_BENCH_H

#include <stddef.h>
#include <stdint.h>

#include "vmkv.h"

/* What a loop works on: n sequences of one cache and their present lengths, which it keeps. */
struct vmkv_bench_load {
	vmkv_cache *cache;
	const vmkv_seq *seqs;
	uint32_t *tokens;
	uint32_t n;
	uint32_t layers; /* of group 0: which spans are looked at */
	uint32_t tensors;
	uint32_t reserved;
};

/* One vmkv_step of a script: sequences first to first + n - 1 get this length. */
struct vmkv_bench_step {
	uint32_t first;
	uint32_t n;
	uint32_t tokens;
};

/* Run a script of steps, taking the time of every `batch` steps together. ret_ns has one element
 * for every begun batch. On an error the steps before it have been done. */
int vmkv_bench_run(const struct vmkv_bench_load *load, const struct vmkv_bench_step *steps,
                   size_t count, size_t batch, uint64_t *ret_ns);

/* One piece that a step mapped. */
struct vmkv_bench_piece {
	uint64_t address;
	uint64_t bytes;
	uint64_t slab;
	uint64_t slab_offset;
	uint64_t step; /* its number in the script */
};

/* Run a script and list what each step newly maps behind the load's spans, in order of sequence,
 * span and address. *ret is how many pieces there were. -ENOSPC: more than max_pieces. */
int vmkv_bench_record(const struct vmkv_bench_load *load, const struct vmkv_bench_step *steps,
                      size_t count, struct vmkv_bench_piece *pieces, size_t max_pieces,
                      size_t *ret);

struct vmkv_bench_range {
	uint64_t address;
	uint64_t bytes;
};

/* The recorded growth as raw driver calls. Addresses are those of the record, which a floor moves
 * to a place of its own. */
struct vmkv_bench_plan {
	const struct vmkv_bench_range *ranges; /* reservations that hold all pieces */
	const struct vmkv_bench_piece *pieces; /* in order of step; slabs numbered from 0 */
	size_t range_count, piece_count;
	uint64_t slab_bytes;
	size_t slab_count;
	size_t step_count;
};

/* The floor of the host device: one mmap a piece, and one for the alias of a slab when it is first
 * used. ret_ns has the time of each step. Making the memory file, reserving addresses and giving
 * back are not timed, nor are they for vmkv. */
int vmkv_bench_floor_host(const struct vmkv_bench_plan *plan, uint64_t *ret_ns);

/* The floor of the amdgpu device, an emulated one or not: a GEM_VA a piece, with DELAY and at the
 * plan's own addresses, a buffer and its alias for a slab when it is first used, and one submission
 * a step that maps anything, unless the device is commit=engine. It works in the device's own
 * address space, in which the recorded cache must be gone. Plan and device outlive it.
 * -ENOTSUP: there is none for slabs=listed and commit=bo. */
struct vmkv_bench_amdgpu;
int vmkv_bench_amdgpu_create(const vmkv_device *device, const struct vmkv_bench_plan *plan,
                             struct vmkv_bench_amdgpu **ret);
void vmkv_bench_amdgpu_destroy(struct vmkv_bench_amdgpu *floor);
/* To be called once. ret_ns has the time of each step. */
int vmkv_bench_amdgpu_run(struct vmkv_bench_amdgpu *floor, uint64_t *ret_ns);

/* How the memory behind spans lies. A run is a row of neighbouring mappings, each of which goes on
 * in address and in slab where the one before it ends. */
struct vmkv_bench_layout {
	uint64_t spans;
	uint64_t bytes;
	uint64_t mappings, runs;
	uint64_t mappings_max, runs_max; /* of one span */
};

int vmkv_bench_look(const struct vmkv_bench_load *load, struct vmkv_bench_layout *ret);

/* Run a script and count the system calls that this thread makes meanwhile: a child process looks
 * on by ptrace. *ret is -1 if they could not be counted (no ptrace here, another tracer, or known
 * calls that did not show); the script has run all the same. */
int vmkv_bench_count_syscalls(const struct vmkv_bench_load *load,
                              const struct vmkv_bench_step *steps, size_t count, int64_t *ret);

#endif
