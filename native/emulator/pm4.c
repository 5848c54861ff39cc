/* SPDX-License-Identifier: MIT
 *
 * The command processor of GFX and COMPUTE rings: going through IBs, packet by packet. Every address goes
 * through the page tables of the process, those of the packets too. Nothing runs shaders.
 */
#include <errno.h>
#include <inttypes.h>

#include "pm4.h"

#define TYPE_2 2u /* filler */
#define TYPE_3 3u
#define OP_NOP 0x10u
#define NOP_ALONE 0x3fffu /* a count that stands for no dword at all */
#define JUMPS_MOST 1000000u /* more are a loop without an end */

/* ---- refusing ------------------------------------------------------------------------------------ */

static uint32_t op_of(const struct emu_pm4 *pm4)
{
	return pm4->header >> 8 & 0xff;
}

int emu_pm4_refuse(const struct emu_pm4 *pm4, const char *why)
{
	const char *name = emu_pm4_kind(op_of(pm4))->name;

	return emu_refuse(pm4->gpu, -EINVAL, "PM4 packet %s (0x%08x) at 0x%" PRIx64 ": %s",
	                  name ? name : "unknown", pm4->header, pm4->address, why);
}

static int type_refuse(const struct emu_pm4 *pm4)
{
	return emu_refuse(pm4->gpu, -EINVAL, "PM4 packet of type %u (0x%08x) at 0x%" PRIx64
	                  " isn't emulated", pm4->header >> 30, pm4->header, pm4->address);
}

/* ---- moving about -------------------------------------------------------------------------------- */

static struct emu_stream *stream_of(const struct emu_pm4 *pm4)
{
	return &pm4->job->streams[pm4->job->stream_count - 1];
}

int emu_pm4_jump(struct emu_pm4 *pm4, uint64_t address, uint32_t dwords, bool chain)
{
	struct emu_job *job = pm4->job;

	if (++job->jumps > JUMPS_MOST)
		return emu_pm4_refuse(pm4, "IBs lead to one another without an end");
	if (!chain) {
		if (job->stream_count == EMU_STREAMS || pm4->ip == AMDGPU_HW_IP_COMPUTE)
			return emu_pm4_refuse(pm4, pm4->ip == AMDGPU_HW_IP_COMPUTE
			                               ? "COMPUTE rings only chain IBs"
			                               : "IBs call one another too deeply");
		job->stream_count++;
	}
	*stream_of(pm4) = (struct emu_stream){ .address = address, .left = dwords };
	return 0;
}

int emu_pm4_skip(struct emu_pm4 *pm4, uint32_t dwords)
{
	struct emu_stream *stream = stream_of(pm4);

	if (dwords > stream->left)
		return emu_pm4_refuse(pm4, "the IB ends within what it skips");
	stream->address += 4ULL * dwords;
	stream->left -= dwords;
	return 0;
}

/* ---- packets ------------------------------------------------------------------------------------- */

static int body_check(const struct emu_pm4 *pm4, const struct emu_pm4_kind *kind)
{
	uint32_t most = kind->most ? kind->most : kind->least;

	if (kind->flags & EMU_PM4_SHADERS)
		return emu_pm4_refuse(pm4, "it needs shaders, which aren't emulated");
	if (!kind->run)
		return emu_pm4_refuse(pm4, "it isn't emulated");
	if (kind->flags & EMU_PM4_GFX && pm4->ip == AMDGPU_HW_IP_COMPUTE)
		return emu_pm4_refuse(pm4, "COMPUTE rings don't have it");
	if (pm4->count < kind->least || pm4->count > most)
		return emu_pm4_refuse(pm4, "its length is wrong");
	return 0;
}

/* The header, and the dwords of the body. */
static int packet_read(struct emu_pm4 *pm4, uint32_t left)
{
	uint32_t n;
	int error = emu_gpu_read(pm4->vm, &pm4->header, pm4->address, sizeof(pm4->header));

	if (error)
		return error;
	pm4->count = (pm4->header >> 16 & 0x3fff) + 1;
	if (pm4->header >> 30 == TYPE_2 || (op_of(pm4) == OP_NOP && pm4->count == NOP_ALONE + 1))
		pm4->count = 0;
	else if (pm4->header >> 30 != TYPE_3)
		return type_refuse(pm4);
	if (pm4->count >= left)
		return emu_pm4_refuse(pm4, "the IB ends within it");
	n = pm4->count < EMU_PM4_DWORDS ? pm4->count : EMU_PM4_DWORDS;
	if (pm4->header >> 30 == TYPE_2 || op_of(pm4) == OP_NOP)
		return 0;
	return emu_gpu_read(pm4->vm, pm4->body, pm4->address + 4, n * 4ULL);
}

/* The packet at the job's place. If it is to be run again, the job stays there. */
static int packet_step(struct emu_pm4 *pm4)
{
	struct emu_stream *stream = stream_of(pm4), before = *stream;
	const struct emu_pm4_kind *kind;
	int error;

	pm4->address = stream->address;
	error = packet_read(pm4, stream->left);
	if (error)
		return error;
	stream->address += 4ULL * (pm4->count + 1);
	stream->left -= pm4->count + 1;
	if (pm4->header >> 30 == TYPE_2)
		return 0;
	kind = emu_pm4_kind(op_of(pm4));
	error = body_check(pm4, kind);
	if (!error)
		error = kind->run(pm4);
	if (error)
		*stream = before;
	return error;
}

int emu_pm4_run(struct emu_gpu *gpu, struct emu_job *job)
{
	struct emu_pm4 pm4 = { .gpu = gpu, .vm = job->vm, .job = job,
		               .ip = job->ibs[job->ib_at].ip };
	uint64_t packets = 0;
	int error = 0;

	while (job->stream_count && !error) {
		if (!stream_of(&pm4)->left) {
			job->stream_count--;
			continue;
		}
		error = packet_step(&pm4);
		if (error)
			break;
		packets++;
		job->polls_since_ns = 0;
	}
	pthread_mutex_lock(&gpu->lock);
	gpu->counts.packets += packets;
	pthread_mutex_unlock(&gpu->lock);
	return error;
}
