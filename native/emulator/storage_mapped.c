/* SPDX-License-Identifier: MIT
 *
 * Ranges of the memory file whose buffers are gone, but which a process may still have mapped: a mapping
 * keeps a buffer's bytes, as the kernel's does. Nobody tells when it goes; so such ranges stay as they are
 * until there are many of them, or room is short, and then processes' mappings are looked through.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "memory_parts.h"

/* What may lie about that nobody has mapped; of bytes also no more than that part of both heaps. */
#define IDLE_RANGES 256
#define IDLE_BYTES (64ULL << 20)
#define IDLE_PART 16

struct left_range {
	uint64_t offset, bytes;
	bool keep, is_mapped;
};

struct emu_left {
	struct left_range *ranges;
	size_t count, room;
	uint64_t bytes;
	/* When to look next. */
	size_t count_due;
	uint64_t bytes_due;
};

static uint64_t idle_bytes(const struct emu_gpu *gpu)
{
	uint64_t bytes = (gpu->options.vram_bytes + gpu->options.gtt_bytes) / IDLE_PART;

	return bytes < IDLE_BYTES ? bytes : IDLE_BYTES;
}

static void range_mark(struct emu_left *left, uint64_t begin, uint64_t end)
{
	for (size_t i = 0; i < left->count; i++) {
		struct left_range *range = &left->ranges[i];

		if (range->offset < end && begin < range->offset + range->bytes)
			range->is_mapped = true;
	}
}

/* The card's own views of the file. */
static bool is_own(const struct emu_gpu *gpu, uint64_t address)
{
	uint64_t view = (uintptr_t)gpu->memory.view;

	return (address >= view && address < view + gpu->memory.view_bytes) ||
	       (address >= gpu->window_begin && address < gpu->window_end);
}

static void process_look(struct emu_gpu *gpu, const char *process, uint64_t inode)
{
	bool is_self = !strcmp(process, "self");
	uint64_t begin, end, offset, found;
	char line[512];
	FILE *maps;

	snprintf(line, sizeof(line), "/proc/%.20s/maps", process);
	maps = fopen(line, "re");
	if (!maps)
		return;
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %*x:%*x %" SCNu64, &begin, &end,
		           &offset, &found) != 4 ||
		    found != inode || !strstr(line, "/memfd:") || (is_self && is_own(gpu, begin)))
			continue;
		range_mark(gpu->memory.left, offset, offset + (end - begin));
	}
	(void)fclose(maps);
}

/* Programs that a server has may be any, and have children. */
static void processes_look(struct emu_gpu *gpu, uint64_t inode)
{
	const struct dirent *entry;
	DIR *directory;

	process_look(gpu, "self", inode);
	directory = gpu->served ? opendir("/proc") : NULL;
	while (directory && (entry = readdir(directory)))
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && atoi(entry->d_name) != gpu->process)
			process_look(gpu, entry->d_name, inode);
	if (directory)
		(void)closedir(directory);
}

void emu_left_review(struct emu_gpu *gpu)
{
	struct emu_left *left = gpu->memory.left;
	const struct emu_heap *vram = &gpu->memory.heaps[EMU_HEAP_VRAM];
	struct stat status;
	size_t kept = 0;

	if (!left->count || fstat(gpu->memory.fd, &status))
		return;
	processes_look(gpu, status.st_ino);
	left->bytes = 0;
	for (size_t i = 0; i < left->count; i++) {
		struct left_range range = left->ranges[i];

		if (!range.is_mapped) {
			emu_storage_give(gpu, range.offset, range.bytes, range.keep,
			                 vram->bytes - vram->used_bytes);
			continue;
		}
		range.is_mapped = false;
		left->bytes += range.bytes;
		left->ranges[kept++] = range;
	}
	left->count = kept;
	left->count_due = 2 * kept + IDLE_RANGES;
	left->bytes_due = 2 * left->bytes + idle_bytes(gpu);
}

void emu_left_add(struct emu_gpu *gpu, uint64_t offset, uint64_t bytes, bool keep)
{
	struct emu_left *left = gpu->memory.left;
	size_t room = left->room ? 2 * left->room : 16;

	if (left->count == left->room) {
		struct left_range *ranges = realloc(left->ranges, room * sizeof(*ranges));

		if (!ranges) {
			emu_storage_give(gpu, offset, bytes, false, 0);
			return;
		}
		left->ranges = ranges;
		left->room = room;
	}
	left->ranges[left->count++] = (struct left_range){ offset, bytes, keep, false };
	left->bytes += bytes;
	if (left->count > left->count_due || left->bytes > left->bytes_due)
		emu_left_review(gpu);
}

int emu_left_init(struct emu_gpu *gpu)
{
	struct emu_left *left = calloc(1, sizeof(*left));

	if (!left)
		return -ENOMEM;
	left->count_due = IDLE_RANGES;
	left->bytes_due = idle_bytes(gpu);
	gpu->memory.left = left;
	return 0;
}

void emu_left_fini(struct emu_gpu *gpu)
{
	if (gpu->memory.left)
		free(gpu->memory.left->ranges);
	free(gpu->memory.left);
	gpu->memory.left = NULL;
}
