/* SPDX-License-Identifier: MIT
 *
 * A submission on its way through the CS ioctl.
 */
#ifndef EMU_CS_H
#define EMU_CS_H

#include "emu.h"

struct emu_cs_chunk {
	uint32_t id;
	size_t bytes;
	void *data; /* a copy of the caller's */
};

/* What is to get the submission's fence. */
struct emu_cs_post {
	struct emu_syncobj *syncobj; /* a reference */
	uint64_t point;              /* 0: binary */
};

/* The IBs for one ring. */
struct emu_cs_member {
	struct emu_ring *ring;
	uint32_t ip, ib_count;
	struct emu_job *job; /* until it is pushed */
};

#define EMU_GANG 4 /* rings that one submission may have IBs for */

struct emu_cs {
	struct emu_gpu *gpu;
	struct emu_file *file;
	struct emu_context *context; /* a reference */
	struct emu_cs_chunk *chunks;
	uint32_t chunk_count;
	struct emu_cs_member members[EMU_GANG];
	uint32_t member_count;
	uint32_t leader; /* whose fence is the submission's: that of the last IB */
	struct emu_bo_list *list;  /* a reference, or NULL */
	struct emu_bo *fence_bo;   /* a reference, or NULL */
	uint32_t fence_offset;
	struct emu_cs_post *posts;
	uint32_t post_count;
	bool has_posts;
};

static inline struct emu_job *emu_cs_job(const struct emu_cs *cs)
{
	return cs->members[cs->leader].job;
}

/* cs_chunks.c, all with gpu->lock held. Copy the chunks, and look at them the first time: what each needs
 * to be at all, which ring, how many IBs, which buffers. */
int emu_cs_chunks_get(struct emu_cs *cs, const struct drm_amdgpu_cs_in *in);
/* The second time: IBs become their jobs', and dependencies the leader's. May give up the lock while
 * waiting. */
int emu_cs_chunks_apply(struct emu_cs *cs);
void emu_cs_chunks_put(struct emu_cs *cs);

#endif
