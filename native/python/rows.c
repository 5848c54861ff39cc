/* SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "rows.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "util.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* since Linux 5.14 */
#endif

/* What is written while the pages that the kernel has just made are still in the cache. */
#define BLOCK_BYTES ((uint64_t)128 << 10)

static uint64_t align_up(uint64_t value, uint64_t align)
{
	return (value + align - 1) / align * align;
}

static void *pointer(uint64_t address)
{
	return (void *)(uintptr_t)address;
}

static const char *line_content(const struct vmkv_rows_line *line, uint64_t token)
{
	uint64_t position = line->start + token * line->row_bytes;

	return (const char *)pointer(line->bank) + position % line->period_bytes;
}

/* ---- through spans -------------------------------------------------------------------------- */

static void line_write(const struct vmkv_rows_line *line, uint64_t token_bytes, uint64_t first,
                       uint64_t last)
{
	const char *content = line_content(line, first);
	char *row = pointer(line->address + first * token_bytes);

	if (token_bytes == line->row_bytes) {
		memcpy(row, content, (last - first) * line->row_bytes);
		return;
	}
	for (uint64_t token = first; token < last; token++) {
		memcpy(row, content, line->row_bytes);
		row += token_bytes;
		content += line->row_bytes;
	}
}

/* Where it fails (an old kernel, another kind of memory), the writes fault as they would anyway. */
static void area_populate(const struct vmkv_rows_area *area, uint64_t first, uint64_t last,
                          uint64_t page_bytes)
{
	uint64_t begin = align_up(area->address + first * area->token_bytes, page_bytes);
	uint64_t end = align_up(area->address + last * area->token_bytes, page_bytes);

	if (begin < end)
		madvise(pointer(begin), end - begin, MADV_POPULATE_WRITE);
}

static void area_write(const struct vmkv_rows_area *area, const struct vmkv_rows_line *lines,
                       uint64_t first, uint64_t last, uint64_t page_bytes, uint64_t warm_tokens)
{
	uint64_t most = area->token_bytes ? BLOCK_BYTES / area->token_bytes : 0;

	if (most == 0)
		most = 1;
	for (uint64_t end; first < last; first = end) {
		end = last - first < most ? last : first + most;
		if (end > warm_tokens)
			area_populate(area, first > warm_tokens ? first : warm_tokens, end, page_bytes);
		for (uint64_t i = 0; i < area->line_count; i++)
			line_write(&lines[area->line_first + i], area->token_bytes, first, end);
	}
}

void vmkv_rows_write(const struct vmkv_rows_area *areas, size_t area_count,
                     const struct vmkv_rows_line *lines, uint64_t first, uint64_t last,
                     uint64_t page_bytes, uint64_t warm_tokens)
{
	for (size_t i = 0; i < area_count; i++)
		area_write(&areas[i], lines, first, last, page_bytes, warm_tokens);
}

/* ---- the plain loop ------------------------------------------------------------------------- */

static bool floor_fits(const struct vmkv_rows_written *written, size_t count, uint64_t bytes)
{
	for (size_t i = 0; i < count; i++) {
		const struct vmkv_rows_line *lines = pointer(written[i].lines);

		for (uint64_t k = 0; k < written[i].line_count; k++)
			if (lines[k].row_bytes > bytes)
				return false;
	}
	return true;
}

static uint64_t floor_write(const struct vmkv_rows_written *written, size_t count, char *memory,
                            uint64_t bytes, uint64_t at)
{
	for (size_t i = 0; i < count; i++) {
		const struct vmkv_rows_line *line = pointer(written[i].lines);
		const struct vmkv_rows_line *end = line + written[i].line_count;

		for (; line < end; line++) {
			const char *content = line_content(line, written[i].first);

			for (uint64_t token = written[i].first; token < written[i].last; token++) {
				if (at + line->row_bytes > bytes)
					at = 0;
				memcpy(memory + at, content, line->row_bytes);
				at += line->row_bytes;
				content += line->row_bytes;
			}
		}
	}
	return at;
}

int vmkv_rows_floor(const struct vmkv_rows_written *written, size_t count, uint64_t memory,
                    uint64_t bytes, uint64_t *at, uint64_t *ret_ns)
{
	uint64_t begin_ns;

	if (!floor_fits(written, count, bytes))
		return -EINVAL;
	begin_ns = vmkv_clock_ns(CLOCK_MONOTONIC);
	*at = floor_write(written, count, pointer(memory), bytes, *at);
	*ret_ns = vmkv_clock_ns(CLOCK_MONOTONIC) - begin_ns;
	return 0;
}
