/* SPDX-License-Identifier: MIT */
#include "pick.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "publish_format.h"

static uint64_t number_64(const char *at)
{
	uint64_t number;

	memcpy(&number, at, sizeof(number));
	return number;
}

static uint32_t number_32(const char *at)
{
	uint32_t number;

	memcpy(&number, at, sizeof(number));
	return number;
}

/* The version of an entry that counts. *none is one more if neither does. */
static const char *version_pick(const struct vmkv_pick_entries *entries, uint64_t index,
                                uint64_t epoch, uint64_t *none)
{
	const char *first = (const char *)entries->first + index * entries->stride;
	const char *second = (const char *)entries->second + index * entries->stride;
	uint64_t one = number_64(first), other = number_64(second);

	if (other <= epoch && (one > epoch || other > one))
		return second;
	*none += one > epoch;
	return first;
}

uint64_t vmkv_pick_newest(const struct vmkv_pick_entries *entries, uint64_t epoch, void *ret)
{
	uint64_t none = 0, bytes = entries->entry_bytes;

	for (uint64_t i = 0; i < entries->count; i++)
		memcpy((char *)ret + i * bytes, version_pick(entries, i, epoch, &none), bytes);
	return none;
}

/* The lowest bits of a word, which loses them. */
static uint32_t bits_take(uint64_t *word, uint32_t bits)
{
	uint32_t ret = (uint32_t)(*word & ((UINT64_C(1) << bits) - 1));

	*word >>= bits;
	return ret;
}

/* The state at an epoch. *none is one more if it isn't known any more. */
static uint32_t state_pick(uint64_t stamp, uint64_t epoch, uint64_t *none)
{
	uint32_t state = bits_take(&stamp, VMKV_PUBLISHED_STATE_BITS);
	uint32_t before = bits_take(&stamp, VMKV_PUBLISHED_STATE_BITS);
	uint32_t age = bits_take(&stamp, VMKV_PUBLISHED_AGE_BITS);

	if (stamp <= epoch)
		return state;
	*none += stamp - epoch > age;
	return before;
}

uint64_t vmkv_pick_mappings(const struct vmkv_pick_pieces *pieces, uint64_t epoch,
                            struct vmkv_pick_piece *ret, uint64_t *ret_count)
{
	uint64_t none = 0, count = 0, stretch = pieces->stretch_pages;
	uint64_t stretches = pieces->slab_pages / stretch;

	for (uint64_t i = 0; i < pieces->count; i++) {
		uint64_t page = i % pieces->slab_pages;
		const char *at = (const char *)pieces->entries +
		                 (i - page + page % stretch * stretches + page / stretch) *
		                     pieces->entry_bytes;
		uint32_t state = state_pick(number_64(at), epoch, &none);
		uint64_t place = number_64(at + sizeof(uint64_t));

		if (state == VMKV_PUBLISHED_PIECE_NONE)
			continue;
		ret[count] = (struct vmkv_pick_piece){
			.pages = bits_take(&place, pieces->pages_bits),
			.phys = (uint32_t)(pieces->first + i),
			.state = (uint16_t)state,
			.refcount = 1,
		};
		ret[count].page = bits_take(&place, pieces->page_bits);
		ret[count].region = bits_take(&place, pieces->region_bits);
		ret[count].slot = bits_take(&place, pieces->slot_bits);
		count++;
	}
	*ret_count = count;
	return none;
}

static void column_add_up(struct vmkv_pick_column *column)
{
	const char *begin = (const char *)column->rows + column->offset;
	uint64_t sum = 0, most = 0, bits = 0, nonzero = 0;

	for (uint64_t i = 0; i < column->count; i++) {
		uint64_t row = column->index != NULL ? (uint64_t)column->index[i] : i;
		const char *at = begin + row * column->entry_bytes;
		uint64_t number = column->number_bytes == 8 ? number_64(at) : number_32(at);

		sum += number;
		most = number > most ? number : most;
		bits |= number;
		nonzero += number != 0;
	}
	column->sum = sum;
	column->most = most;
	column->bits = bits;
	column->nonzero = nonzero;
}

void vmkv_pick_add_up(struct vmkv_pick_column *columns, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		column_add_up(&columns[i]);
}

uint64_t vmkv_pick_equal(const struct vmkv_pick_column *column, uint32_t number,
                         int64_t *ret_index)
{
	const char *begin = (const char *)column->rows + column->offset;
	uint64_t found = 0;

	for (uint64_t i = 0; i < column->count; i++) {
		if (number_32(begin + i * column->entry_bytes) == number)
			ret_index[found++] = (int64_t)i;
	}
	return found;
}

/* ---- a whole look ---------------------------------------------------------------------------- */

static bool file_read(const struct vmkv_pick_look *look, uint64_t offset, void *ret, uint64_t bytes)
{
	return pread(look->fd, ret, bytes, (off_t)offset) == (ssize_t)bytes;
}

/* Copy a section's versions that count to where they are wanted; false if one has none. */
static bool section_read(const struct vmkv_pick_look *look, const struct vmkv_pick_section *section)
{
	const struct vmkv_pick_entries entries = {
		.first = look->room,
		.second = (const char *)look->room + section->entry_bytes,
		.stride = 2 * section->entry_bytes,
		.count = section->count,
		.entry_bytes = section->entry_bytes,
	};

	return file_read(look, section->offset, look->room, section->count * entries.stride) &&
	       vmkv_pick_newest(&entries, look->epoch, section->ret) == 0;
}

int vmkv_pick_look_live(struct vmkv_pick_look *look, const struct vmkv_pick_section *state,
                        const struct vmkv_pick_section *lives)
{
	uint64_t header[2];

	if (!file_read(look, look->header_offset, header, sizeof(header)))
		return -EAGAIN;
	look->epoch = header[0];
	look->beat_ns = header[1];
	if (!section_read(look, state) || !section_read(look, lives) ||
	    !file_read(look, look->header_offset, header, sizeof(header)))
		return -EAGAIN;
	return header[0] == look->epoch ? 0 : -EAGAIN;
}

int vmkv_pick_look_grown(struct vmkv_pick_look *look, const struct vmkv_pick_section *state,
                         const struct vmkv_pick_section sections[2])
{
	uint64_t epoch = number_64(state->ret), first, second;
	const char *versions = look->room;

	if (!section_read(look, &sections[0]) || !section_read(look, &sections[1]) ||
	    !file_read(look, state->offset, look->room, 2 * state->entry_bytes))
		return -EAGAIN;
	first = number_64(versions);
	second = number_64(versions + state->entry_bytes);
	return (first == epoch && (second < epoch || second == VMKV_PUBLISHED_WRITING)) ||
	               (second == epoch && (first < epoch || first == VMKV_PUBLISHED_WRITING))
	           ? 0
	           : -EAGAIN;
}
