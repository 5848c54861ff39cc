/* SPDX-License-Identifier: MIT
 *
 * What the files of the fuzzer share: an input, which says what a program does, and the program.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include "entry.h"
#include "vm.h"

#define FUZZ_FILES 3
#define FUZZ_FDS 64
#define FUZZ_WORK_VA 0x1000000000ULL /* where each file begins with a buffer ... */
#define FUZZ_WORK_BYTES (1u << 20)   /* ... of that size, and a context */
#define FUZZ_SLOTS 4                 /* of a page each, for IBs; data follows */
#define FUZZ_ARENA_BYTES (1u << 16)  /* behind it nothing is mapped */
#define FUZZ_USER_BYTES (1u << 16)   /* of memory for USERPTR, the same */

struct fuzz_file {
	int fd; /* -1: not open */
	bool primary;
	uint32_t *words; /* the buffer; NULL: it wasn't made */
};

struct fuzz {
	/* What is left of the input; what comes after its end looks random, and follows from it. */
	const uint8_t *input;
	size_t left;
	uint64_t random;
	struct emu_gpu *gpu;
	struct vmkv_emulator_stats fresh;
	uint64_t window; /* where the process sees mappings, if it does */
	struct fuzz_file files[FUZZ_FILES];
	int fds[FUZZ_FDS]; /* buffers, syncobjs and fences as descriptors */
	uint32_t fd_count;
	bool fds_lost; /* there may be others, which the program wasn't told of */
	uint8_t *arena;
	uint32_t arena_used;
	uint8_t *user;
};

/* ---- the input ------------------------------------------------------------------------------- */

static inline uint8_t fuzz_byte(struct fuzz *fuzz)
{
	if (!fuzz->left)
		return (uint8_t)emu_mix(fuzz->random += EMU_MIX_STEP);
	fuzz->left--;
	fuzz->random = fuzz->random * 31 + *fuzz->input;
	return *fuzz->input++;
}

static inline uint32_t fuzz_u32(struct fuzz *fuzz)
{
	uint32_t value = fuzz_byte(fuzz);

	value |= (uint32_t)fuzz_byte(fuzz) << 8;
	value |= (uint32_t)fuzz_byte(fuzz) << 16;
	return value | (uint32_t)fuzz_byte(fuzz) << 24;
}

static inline uint64_t fuzz_u64(struct fuzz *fuzz)
{
	uint64_t low = fuzz_u32(fuzz);

	return low | (uint64_t)fuzz_u32(fuzz) << 32;
}

/* Once in n times. */
static inline bool fuzz_once_in(struct fuzz *fuzz, uint32_t n)
{
	return fuzz_byte(fuzz) % n == n - 1;
}

/* ---- fuzz_arguments.c ------------------------------------------------------------------------ */

/* An address for packets; most are in that buffer. */
uint64_t fuzz_address(struct fuzz *fuzz);
/* A number that no rule is for. */
uint64_t fuzz_garbage(struct fuzz *fuzz);
/* Room in the arena, which is the program's memory: of an ioctl. */
void *fuzz_room(struct fuzz *fuzz, uint32_t bytes);
/* A pointer that leads to what isn't there, or not all of it. */
uint64_t fuzz_nowhere(struct fuzz *fuzz);
/* Fill an ioctl's argument as its grammar says, in part with garbage. Pointers in it never lead to
 * memory but the arena and the user's. */
void fuzz_argument(struct fuzz *fuzz, const char *ioctl, void *data, uint32_t bytes);
/* A number such as handles, points and the like have. */
uint32_t fuzz_small(struct fuzz *fuzz);
/* A pointer to entries of a list of buffers. */
uint64_t fuzz_entries(struct fuzz *fuzz);

/* ---- fuzz_submit.c --------------------------------------------------------------------------- */

/* Packets into a slot of the file's buffer. */
void fuzz_packets(struct fuzz *fuzz, struct fuzz_file *file);
/* CS's argument, with chunks. */
void fuzz_submission(struct fuzz *fuzz, union drm_amdgpu_cs *args);

/* ---- fuzz_oracle.c: what may not be; each ends the program if it is ---------------------------- */

struct fuzz_call {
	struct fuzz_file *file;
	const struct emu_ioctl *ioctl; /* NULL: there is none */
	unsigned long request;
	uint8_t before[512], after[512]; /* the argument */
	int result; /* or the negative errno */
	struct vmkv_emulator_stats was;
	bool was_ready; /* to write page tables */
};

void fuzz_fail(const struct fuzz *fuzz, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));
struct vmkv_emulator_stats fuzz_stats(const struct fuzz *fuzz);
/* An ioctl that failed changed nothing, and one that succeeded had a right to. */
void fuzz_call_check(struct fuzz *fuzz, const struct fuzz_call *call);
/* All is closed: the card is as it was. */
void fuzz_end_check(struct fuzz *fuzz);

#endif
