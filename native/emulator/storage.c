/* SPDX-License-Identifier: MIT
 *
 * The memory file: a sparse file, mapped once, of which each buffer has a range. Ranges that nobody
 * has are holes, which read as zeros and cost nothing; except that a kernel which doesn't clear
 * VRAM lets a new buffer see what a freed one left there, so some freed ranges are kept as they
 * are, and used again first.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory_parts.h"

/* Addresses are cheap, memory isn't: room enough that ranges of any size can be found. */
#define ROOM_FACTOR 4
#define FIRST_PAGE EMU_HUGE_PAGES /* no buffer is at offset 0 of the file, as with the kernel's */
#define KEPT_MOST 1024

struct range {
	uint64_t offset, bytes;
};

struct emu_storage {
	struct emu_buddy *buddy; /* of the file's pages from FIRST_PAGE on */
	struct range kept[KEPT_MOST]; /* oldest first */
	uint32_t kept_count;
	uint64_t kept_bytes;
};

static int file_open(struct emu_memory *memory)
{
	void *view;

	memory->fd = memfd_create("vmkv-emulated-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (memory->fd < 0)
		return -errno;
	if (ftruncate(memory->fd, (off_t)memory->view_bytes))
		return -ENOMEM;
	/* Who has a DRM file's descriptor can't take the view's pages away. */
	if (fcntl(memory->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -errno;
	view = mmap(NULL, memory->view_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
	            memory->fd, 0);
	if (view == MAP_FAILED)
		return -ENOMEM;
	memory->view = view;
	return 0;
}

int emu_storage_init(struct emu_gpu *gpu)
{
	struct emu_memory *memory = &gpu->memory;
	uint64_t pages = ROOM_FACTOR * (gpu->options.vram_bytes + gpu->options.gtt_bytes) >>
	                 EMU_PAGE_SHIFT;
	int error = -ENOMEM;

	memory->fd = -1;
	memory->view_bytes = (pages + FIRST_PAGE) << EMU_PAGE_SHIFT;
	memory->storage = calloc(1, sizeof(*memory->storage));
	if (memory->storage)
		memory->storage->buddy = emu_buddy_create(pages);
	if (memory->storage && memory->storage->buddy)
		error = emu_left_init(gpu);
	if (!error)
		error = file_open(memory);
	if (error)
		emu_storage_fini(gpu);
	return error;
}

void emu_storage_fini(struct emu_gpu *gpu)
{
	struct emu_memory *memory = &gpu->memory;

	if (memory->view)
		(void)munmap(memory->view, memory->view_bytes);
	if (memory->fd >= 0)
		close(memory->fd);
	emu_left_fini(gpu);
	if (memory->storage)
		emu_buddy_destroy(memory->storage->buddy);
	free(memory->storage);
	memory->storage = NULL;
	memory->view = NULL;
	memory->fd = -1;
}

void emu_storage_zero(struct emu_gpu *gpu, uint64_t offset, uint64_t bytes)
{
	if (fallocate(gpu->memory.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
	              (off_t)bytes))
		memset(gpu->memory.view + offset, 0, bytes);
}

/* ---- what freed buffers left ----------------------------------------------------------------- */

static void range_free(struct emu_gpu *gpu, uint64_t offset, uint64_t bytes)
{
	emu_storage_zero(gpu, offset, bytes);
	emu_buddy_free(gpu->memory.storage->buddy, (offset >> EMU_PAGE_SHIFT) - FIRST_PAGE,
	               bytes >> EMU_PAGE_SHIFT);
}

static void kept_remove(struct emu_storage *storage, uint32_t i)
{
	storage->kept_bytes -= storage->kept[i].bytes;
	storage->kept_count--;
	memmove(&storage->kept[i], &storage->kept[i + 1],
	        (storage->kept_count - i) * sizeof(storage->kept[0]));
}

/* Oldest first, until at most so many bytes are kept. */
static void kept_drop(struct emu_gpu *gpu, uint64_t most)
{
	struct emu_storage *storage = gpu->memory.storage;

	while (storage->kept_count && storage->kept_bytes > most) {
		struct range range = storage->kept[0];

		kept_remove(storage, 0);
		range_free(gpu, range.offset, range.bytes);
	}
}

/* The newest that is large enough; the rest of it stays. */
static bool kept_take(struct emu_storage *storage, uint64_t bytes, uint64_t *offset)
{
	for (uint32_t i = storage->kept_count; i-- > 0;) {
		struct range *range = &storage->kept[i];

		if (range->bytes < bytes)
			continue;
		*offset = range->offset;
		range->offset += bytes;
		range->bytes -= bytes;
		storage->kept_bytes -= bytes;
		if (!range->bytes)
			kept_remove(storage, i);
		return true;
	}
	return false;
}

/* ---- taking and giving back ------------------------------------------------------------------ */

int emu_storage_take(struct emu_gpu *gpu, uint64_t bytes, bool dirty, uint64_t *offset)
{
	struct emu_storage *storage = gpu->memory.storage;
	uint64_t page;
	int error;

	if (dirty && kept_take(storage, bytes, offset))
		return 0;
	if (dirty)
		emu_left_review(gpu);
	if (dirty && kept_take(storage, bytes, offset))
		return 0;
	error = emu_buddy_allocate_run(storage->buddy, bytes >> EMU_PAGE_SHIFT, &page);
	if (error == -ENOSPC) {
		emu_left_review(gpu);
		error = emu_buddy_allocate_run(storage->buddy, bytes >> EMU_PAGE_SHIFT, &page);
	}
	if (error == -ENOSPC && storage->kept_count) {
		kept_drop(gpu, 0);
		error = emu_buddy_allocate_run(storage->buddy, bytes >> EMU_PAGE_SHIFT, &page);
	}
	if (error)
		return -ENOMEM;
	*offset = (page + FIRST_PAGE) << EMU_PAGE_SHIFT;
	/* It is a hole, unless a process found where it is and maps it, though the buffer is gone. */
	emu_storage_zero(gpu, *offset, bytes);
	return 0;
}

void emu_storage_give(struct emu_gpu *gpu, uint64_t offset, uint64_t bytes, bool keep,
                      uint64_t most)
{
	struct emu_storage *storage = gpu->memory.storage;

	if (!keep || bytes > most || !bytes) {
		if (bytes)
			range_free(gpu, offset, bytes);
		return;
	}
	kept_drop(gpu, most - bytes);
	if (storage->kept_count == KEPT_MOST)
		kept_drop(gpu, storage->kept_bytes - 1);
	storage->kept[storage->kept_count++] = (struct range){ offset, bytes };
	storage->kept_bytes += bytes;
}
