/* SPDX-License-Identifier: MIT
 *
 * What the tests of submissions share: a buffer that holds IBs and data, packets, chunks, waits, syncobjs.
 */
#ifndef CS_FIXTURE_H
#define CS_FIXTURE_H

#include <fcntl.h>
#include <sys/ioctl.h>
#include <time.h>

#include "vm_fixture.h"

/* One always-valid buffer, mapped here, and in the process: IB slots of a page each, and data behind. */
#define WORK_VA (IB_VA + 16 * MIB)
#define WORK_BYTES MIB
#define SLOT_DWORDS 1024
#define SLOT_VA(slot) (WORK_VA + (slot) * PAGE)
#define DATA (64 * SLOT_DWORDS) /* where data begins, in words of the view ... */
#define DATA_VA (WORK_VA + 4 * DATA) /* ... and in addresses */
#define UNMAPPED_VA (WORK_VA + 64 * MIB)

struct bench {
	struct card card;
	int fd;
	uint32_t work, context;
	uint32_t *words;
};

static inline struct bench bench_on(struct card card)
{
	struct bench bench = { .card = card };

	bench.fd = bench.card.fd;
	bench.work = bo_create_in(bench.fd, WORK_BYTES, GTT, ALWAYS);
	bench.words = bo_view(bench.fd, bench.work, WORK_BYTES);
	CHECK_EQ(va_map(bench.fd, bench.work, 0, WORK_VA, 0, WORK_BYTES), 0);
	bench.context = context_create(bench.fd);
	settle(bench.fd);
	return bench;
}

static inline struct bench bench_open(const char *kernel, const char *more)
{
	return bench_on(card_open(kernel, more));
}

static inline void bench_close(struct bench *bench)
{
	munmap(bench->words, WORK_BYTES);
	card_close(&bench->card);
}

static inline const char *error_text(const struct bench *bench)
{
	static char text[256];

	vmkv_emulator_error(bench->card.gpu, text, sizeof(text));
	return text;
}

static inline int64_t time_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#define SOON (time_ns() + 20 * 1000000)

/* ---- packets: each writes itself into a slot, and returns where the next one goes ------------------ */

static inline uint32_t *slot(struct bench *bench, uint32_t i)
{
	return bench->words + i * SLOT_DWORDS;
}

static inline uint32_t *put(uint32_t *at, const uint32_t *dwords, uint32_t n)
{
	memcpy(at, dwords, n * 4);
	return at + n;
}

#define PUT(at, ...)                                                                               \
	put(at, (const uint32_t[]){ __VA_ARGS__ }, sizeof((const uint32_t[]){ __VA_ARGS__ }) / 4)
#define LO(address) (uint32_t)(address)
#define HI(address) (uint32_t)((uint64_t)(address) >> 32)

static inline uint32_t *put_copy(uint32_t *at, uint64_t to, uint64_t from, uint32_t bytes)
{
	return PUT(at, 1, bytes - 1, 0, LO(from), HI(from), LO(to), HI(to));
}

static inline uint32_t *put_write(uint32_t *at, uint64_t to, uint32_t value)
{
	return PUT(at, 2, LO(to), HI(to), 0, value);
}

static inline uint32_t *put_fill(uint32_t *at, uint64_t to, uint32_t value, uint32_t bytes)
{
	return PUT(at, 11 | 2u << 30, LO(to), HI(to), value, bytes - 1);
}

/* ---- chunks ---------------------------------------------------------------------------------------- */

struct chunks {
	struct drm_amdgpu_cs_chunk items[16];
	uint64_t pointers[16];
	uint32_t n, flags, list;
};

static inline void chunk_add(struct chunks *chunks, uint32_t id, const void *data, size_t bytes)
{
	chunks->items[chunks->n] = (struct drm_amdgpu_cs_chunk){ id, (uint32_t)(bytes / 4),
		                                                 (uintptr_t)data };
	chunks->pointers[chunks->n] = 0;
	chunks->n++;
}

static inline int chunks_submit(struct bench *bench, struct chunks *chunks, uint64_t *number)
{
	union drm_amdgpu_cs args = { .in = { .ctx_id = bench->context, .num_chunks = chunks->n,
		                             .bo_list_handle = chunks->list, .flags = chunks->flags,
		                             .chunks = (uintptr_t)chunks->pointers } };
	int error;

	for (uint32_t i = 0; i < chunks->n; i++)
		chunks->pointers[i] = (uintptr_t)&chunks->items[i];
	error = call(bench->fd, DRM_IOCTL_AMDGPU_CS, &args);
	if (!error && number)
		*number = args.out.handle;
	return error;
}

static inline struct drm_amdgpu_cs_chunk_ib ib_of(uint32_t ip, uint32_t ring, uint64_t address,
                                                  uint32_t dwords)
{
	return (struct drm_amdgpu_cs_chunk_ib){ .va_start = address, .ib_bytes = 4 * dwords,
		                                .ip_type = ip, .ring = ring };
}

static inline struct drm_amdgpu_cs_chunk_ib ib_slot(uint32_t i)
{
	return ib_of(AMDGPU_HW_IP_DMA, 0, SLOT_VA(i), SLOT_DWORDS);
}

/* The IB of a slot, which does nothing behind what was put there. */
static inline int slot_submit(struct bench *bench, uint32_t i, uint64_t *number)
{
	struct drm_amdgpu_cs_chunk_ib ib = ib_slot(i);
	struct chunks chunks = { 0 };

	chunk_add(&chunks, AMDGPU_CHUNK_ID_IB, &ib, sizeof(ib));
	return chunks_submit(bench, &chunks, number);
}

/* With one more chunk. */
static inline int slot_submit_with(struct bench *bench, uint32_t i, uint32_t id, const void *data,
                                   size_t bytes, uint64_t *number)
{
	struct drm_amdgpu_cs_chunk_ib ib = ib_slot(i);
	struct chunks chunks = { 0 };

	chunk_add(&chunks, AMDGPU_CHUNK_ID_IB, &ib, sizeof(ib));
	chunk_add(&chunks, id, data, bytes);
	return chunks_submit(bench, &chunks, number);
}

/* ---- waiting --------------------------------------------------------------------------------------- */

static inline int wait_until(struct bench *bench, uint64_t number, int64_t deadline, uint64_t *status)
{
	union drm_amdgpu_wait_cs args = { .in = { .handle = number, .timeout = (uint64_t)deadline,
		                                  .ip_type = AMDGPU_HW_IP_DMA,
		                                  .ctx_id = bench->context } };
	int error = call(bench->fd, DRM_IOCTL_AMDGPU_WAIT_CS, &args);

	if (!error)
		*status = args.out.status;
	return error;
}

static inline int wait_for(struct bench *bench, uint64_t number)
{
	uint64_t status;

	return wait_until(bench, number, -1, &status);
}

static inline bool is_busy(struct bench *bench, uint64_t number)
{
	uint64_t status;

	CHECK_EQ(wait_until(bench, number, 0, &status), 0);
	return status == 1;
}

static inline int slot_run(struct bench *bench, uint32_t i)
{
	uint64_t number;
	int error = slot_submit(bench, i, &number);

	return error ? error : wait_for(bench, number);
}

/* ---- syncobjs -------------------------------------------------------------------------------------- */

static inline uint32_t syncobj_make(int fd, uint32_t flags)
{
	struct drm_syncobj_create args = { .flags = flags };

	CHECK_EQ(call(fd, DRM_IOCTL_SYNCOBJ_CREATE, &args), 0);
	return args.handle;
}

static inline int syncobj_end(int fd, uint32_t handle)
{
	struct drm_syncobj_destroy args = { .handle = handle };

	return call(fd, DRM_IOCTL_SYNCOBJ_DESTROY, &args);
}

static inline int syncobjs_wait(int fd, const uint32_t *handles, uint32_t n, uint32_t flags,
                                int64_t deadline, uint32_t *first)
{
	struct drm_syncobj_wait args = { .handles = (uintptr_t)handles, .timeout_nsec = deadline,
		                         .count_handles = n, .flags = flags };
	int error = call(fd, DRM_IOCTL_SYNCOBJ_WAIT, &args);

	if (!error && first)
		*first = args.first_signaled;
	return error;
}

static inline int syncobj_wait_one(int fd, uint32_t handle, int64_t deadline)
{
	return syncobjs_wait(fd, &handle, 1, 0, deadline, NULL);
}

static inline int points_wait(int fd, const uint32_t *handles, const uint64_t *points, uint32_t n,
                              uint32_t flags, int64_t deadline)
{
	struct drm_syncobj_timeline_wait args = { .handles = (uintptr_t)handles,
		                                  .points = (uintptr_t)points,
		                                  .timeout_nsec = deadline, .count_handles = n,
		                                  .flags = flags };

	return call(fd, DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT, &args);
}

static inline int point_wait(int fd, uint32_t handle, uint64_t point, uint32_t flags, int64_t deadline)
{
	return points_wait(fd, &handle, &point, 1, flags, deadline);
}

static inline int point_signal(int fd, uint32_t handle, uint64_t point)
{
	struct drm_syncobj_timeline_array args = { .handles = (uintptr_t)&handle,
		                                   .points = (uintptr_t)&point,
		                                   .count_handles = 1 };

	return call(fd, DRM_IOCTL_SYNCOBJ_TIMELINE_SIGNAL, &args);
}

static inline uint64_t point_query(int fd, uint32_t handle, uint32_t flags)
{
	uint64_t point = 12345;
	struct drm_syncobj_timeline_array args = { .handles = (uintptr_t)&handle,
		                                   .points = (uintptr_t)&point,
		                                   .count_handles = 1, .flags = flags };

	CHECK_EQ(call(fd, DRM_IOCTL_SYNCOBJ_QUERY, &args), 0);
	return point;
}

#endif
