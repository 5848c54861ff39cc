/* SPDX-License-Identifier: MIT
 *
 * Reading and changing a word of memory at once, by GPU address, as the engines' packets do it.
 */
#include <errno.h>
#include <time.h>

#include "emu.h"

/* Bits of an operation, and the low ones of those that there are. */
#define WIDE 0x20u
#define NO_RETURN 0x40u
#define SWAP 0x07u
#define COMPARE_SWAP 0x08u
#define ADD 0x0fu
#define SUB 0x10u
#define SIGNED_MIN 0x11u
#define UNSIGNED_MIN 0x12u
#define SIGNED_MAX 0x13u
#define UNSIGNED_MAX 0x14u
#define AND 0x15u
#define OR 0x16u
#define XOR 0x17u
#define INCREMENT 0x18u
#define DECREMENT 0x19u

static bool is_shared(const struct emu_piece *word)
{
	return word->memory && !word->foreign;
}

static int word_load(const struct emu_piece *word, uint64_t *ret)
{
	uint64_t value = 0;
	int error = 0;

	if (!is_shared(word))
		error = emu_piece_read(word, &value, word->bytes);
	else if (word->bytes == 8)
		value = __atomic_load_n((uint64_t *)(void *)word->memory, __ATOMIC_SEQ_CST);
	else
		value = __atomic_load_n((uint32_t *)(void *)word->memory, __ATOMIC_SEQ_CST);
	if (!error)
		*ret = value;
	return error;
}

int emu_gpu_load(struct emu_vm *vm, uint64_t address, uint32_t bytes, uint64_t *ret)
{
	struct emu_piece word;
	int error = emu_piece_find(vm, address, false, bytes, &word);

	return error ? error : word_load(&word, ret);
}

uint32_t emu_atomic_bytes(uint32_t operation)
{
	uint32_t low = operation & ~(WIDE | NO_RETURN);

	if (low != SWAP && low != COMPARE_SWAP && (low < ADD || low > DECREMENT))
		return 0;
	return operation & WIDE ? 8 : 4;
}

static bool is_less(uint32_t operation, uint64_t a, uint64_t b)
{
	return operation & WIDE ? (int64_t)a < (int64_t)b : (int32_t)a < (int32_t)b;
}

static uint64_t result_of(uint32_t operation, uint64_t old, uint64_t source, uint64_t compare)
{
	switch (operation & ~(WIDE | NO_RETURN)) {
	case SWAP:
		return source;
	case COMPARE_SWAP:
		return old == compare ? source : old;
	case ADD:
		return old + source;
	case SUB:
		return old - source;
	case SIGNED_MIN:
		return is_less(operation, source, old) ? source : old;
	case UNSIGNED_MIN:
		return source < old ? source : old;
	case SIGNED_MAX:
		return is_less(operation, old, source) ? source : old;
	case UNSIGNED_MAX:
		return old < source ? source : old;
	case AND:
		return old & source;
	case OR:
		return old | source;
	case XOR:
		return old ^ source;
	case INCREMENT:
		return old >= source ? 0 : old + 1;
	default: /* DECREMENT */
		return !old || old > source ? source : old - 1;
	}
}

/* Put `value` there if it is still `old`. 0, -EAGAIN with what it is in *old, or an error. */
static int word_exchange(const struct emu_piece *word, uint64_t *old, uint64_t value)
{
	uint32_t narrow = (uint32_t)*old;
	bool done;

	/* The process's own memory can be written from outside, but not together with the reading. */
	if (!is_shared(word))
		return emu_piece_write(word, &value, word->bytes);
	if (word->bytes == 8)
		return __atomic_compare_exchange_n((uint64_t *)(void *)word->memory, old, value, false,
		                                   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) ? 0 : -EAGAIN;
	done = __atomic_compare_exchange_n((uint32_t *)(void *)word->memory, &narrow, (uint32_t)value,
	                                   false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	*old = narrow;
	return done ? 0 : -EAGAIN;
}

static uint64_t narrowed(uint32_t operation, uint64_t value)
{
	return operation & WIDE ? value : (uint32_t)value;
}

int emu_gpu_atomic(struct emu_vm *vm, uint64_t address, uint32_t operation, uint64_t source,
                   uint64_t compare, uint64_t *old)
{
	struct emu_piece word;
	uint64_t was = 0, value;
	int error = emu_piece_find(vm, address, true, emu_atomic_bytes(operation), &word);

	source = narrowed(operation, source);
	compare = narrowed(operation, compare);
	if (!error)
		error = word_load(&word, &was);
	if (error)
		return error;
	do {
		value = narrowed(operation, result_of(operation, was, source, compare));
		error = word_exchange(&word, &was, value);
	} while (error == -EAGAIN);
	if (!error)
		*old = was;
	return error;
}

bool emu_atomic_failed(uint32_t operation, uint64_t compare, uint64_t old)
{
	return (operation & ~(WIDE | NO_RETURN)) == COMPARE_SWAP && old != narrowed(operation, compare);
}

bool emu_wait_is_over(uint32_t function, uint32_t value, uint32_t reference)
{
	switch (function) {
	case 0:
		return true;
	case 1:
		return value < reference;
	case 2:
		return value <= reference;
	case 3:
		return value == reference;
	case 4:
		return value != reference;
	case 5:
		return value >= reference;
	default:
		return value > reference;
	}
}

/* It counts with counter_khz. */
uint64_t emu_gpu_clock(const struct emu_gpu *gpu)
{
	uint64_t khz = gpu->model->counter_khz;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * khz * 1000 + (uint64_t)now.tv_nsec * khz / 1000000;
}
