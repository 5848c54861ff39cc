/* SPDX-License-Identifier: MIT
 *
 * Accesses of the card's engines: by GPU address, piece by piece, each piece translated when its turn comes.
 */
#include <string.h>

#include "emu.h"

/* What an engine reads before it writes, where a copy overlaps itself. */
#define BURST_BYTES 64
#define BOUNCE_BYTES 4096

int emu_piece_find(struct emu_vm *vm, uint64_t address, bool write, uint64_t bytes,
                   struct emu_piece *ret)
{
	int error;

	*ret = (struct emu_piece){ .bytes = bytes };
	pthread_mutex_lock(&vm->gpu->lock);
	error = emu_vm_access(vm, address, write, ret);
	pthread_mutex_unlock(&vm->gpu->lock);
	return error;
}

int emu_piece_read(const struct emu_piece *piece, void *to, uint64_t bytes)
{
	if (!piece->memory)
		memset(to, 0, bytes);
	else if (piece->foreign)
		return emu_process_copy_in(piece->process, to,
		                           (uint64_t)(uintptr_t)piece->memory, bytes);
	else
		memcpy(to, piece->memory, bytes);
	return 0;
}

int emu_piece_write(const struct emu_piece *piece, const void *from, uint64_t bytes)
{
	if (!piece->memory)
		return 0;
	if (piece->foreign)
		return emu_process_copy_out(piece->process, (uint64_t)(uintptr_t)piece->memory,
		                            from, bytes);
	memcpy(piece->memory, from, bytes);
	return 0;
}

int emu_gpu_read(struct emu_vm *vm, void *to, uint64_t from, uint64_t bytes)
{
	struct emu_piece piece;

	for (uint64_t done = 0; done < bytes; done += piece.bytes) {
		int error = emu_piece_find(vm, from + done, false, bytes - done, &piece);

		if (!error)
			error = emu_piece_read(&piece, (uint8_t *)to + done, piece.bytes);
		if (error)
			return error;
	}
	return 0;
}

int emu_gpu_write(struct emu_vm *vm, uint64_t to, const void *from, uint64_t bytes)
{
	struct emu_piece piece;

	for (uint64_t done = 0; done < bytes; done += piece.bytes) {
		int error = emu_piece_find(vm, to + done, true, bytes - done, &piece);

		if (!error)
			error = emu_piece_write(&piece, (const uint8_t *)from + done, piece.bytes);
		if (error)
			return error;
	}
	return 0;
}

static int pieces_bounce(struct emu_piece to, struct emu_piece from, uint64_t bytes)
{
	uint8_t bounce[BOUNCE_BYTES];
	uint64_t part;

	for (uint64_t done = 0; done < bytes; done += part) {
		int error;

		part = bytes - done < BOUNCE_BYTES ? bytes - done : BOUNCE_BYTES;
		error = emu_piece_read(&from, bounce, part);
		if (!error)
			error = emu_piece_write(&to, bounce, part);
		if (error)
			return error;
		if (from.memory)
			from.memory += part;
		if (to.memory)
			to.memory += part;
	}
	return 0;
}

/* Memory that appears at several addresses overlaps as memory, whatever the addresses say. */
static void memory_copy(uint8_t *to, const uint8_t *from, uint64_t bytes)
{
	uint64_t part;

	if (to + bytes <= from || from + bytes <= to) {
		memcpy(to, from, bytes);
		return;
	}
	for (uint64_t done = 0; done < bytes; done += part) {
		part = bytes - done < BURST_BYTES ? bytes - done : BURST_BYTES;
		memmove(to + done, from + done, part);
	}
}

int emu_gpu_copy(struct emu_vm *vm, uint64_t to, uint64_t from, uint64_t bytes)
{
	struct emu_piece source, target;

	for (uint64_t done = 0; done < bytes; done += target.bytes) {
		int error = emu_piece_find(vm, from + done, false, bytes - done, &source);

		if (!error)
			error = emu_piece_find(vm, to + done, true, source.bytes, &target);
		if (error)
			return error;
		if (source.memory && target.memory && !source.foreign && !target.foreign)
			memory_copy(target.memory, source.memory, target.bytes);
		else
			error = pieces_bounce(target, source, target.bytes);
		if (error)
			return error;
	}
	return 0;
}

/* phase: how many bytes of the pattern came before. */
static int piece_fill(const struct emu_piece *piece, uint32_t pattern, uint64_t phase)
{
	uint8_t bytes[BOUNCE_BYTES];
	uint64_t part;

	if (!piece->memory)
		return 0;
	for (uint64_t i = 0; i < BOUNCE_BYTES; i++)
		bytes[i] = (uint8_t)(pattern >> (8 * ((phase + i) & 3)));
	for (uint64_t done = 0; done < piece->bytes; done += part) {
		struct emu_piece at = *piece;
		int error;

		part = piece->bytes - done < BOUNCE_BYTES ? piece->bytes - done : BOUNCE_BYTES;
		at.memory += done;
		error = emu_piece_write(&at, bytes, part);
		if (error)
			return error;
	}
	return 0;
}

int emu_gpu_fill(struct emu_vm *vm, uint64_t to, uint32_t pattern, uint64_t bytes)
{
	struct emu_piece piece;

	for (uint64_t done = 0; done < bytes; done += piece.bytes) {
		int error = emu_piece_find(vm, to + done, true, bytes - done, &piece);

		if (!error)
			error = piece_fill(&piece, pattern, done);
		if (error)
			return error;
	}
	return 0;
}
