/* SPDX-License-Identifier: MIT
 *
 * Geometries for the tests, put together group by group.
 */
#ifndef MODEL_H
#define MODEL_H

#include "check.h"
#include "vmkv.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

#define MODEL_GROUPS 3
#define MODEL_TENSORS 3

/* Points into itself: begin it where it stays. */
struct model {
	struct vmkv_geometry geometry;
	struct vmkv_group groups[MODEL_GROUPS];
	struct vmkv_tensor tensors[MODEL_GROUPS][MODEL_TENSORS];
};

static inline void model_begin(struct model *m)
{
	memset(m, 0, sizeof(*m));
	m->geometry.struct_size = sizeof(m->geometry);
	m->geometry.groups = m->groups;
}

static inline struct vmkv_group *model_group(struct model *m, enum vmkv_policy policy,
                                             uint32_t layers)
{
	uint32_t g = m->geometry.group_count++;

	CHECK(g < MODEL_GROUPS);
	m->groups[g] = (struct vmkv_group){ .struct_size = sizeof(m->groups[g]),
		                            .policy = policy,
		                            .layers = layers,
		                            .tensors = m->tensors[g] };
	return &m->groups[g];
}

/* A further tensor of the last group. */
static inline struct vmkv_tensor *model_tensor(struct model *m, enum vmkv_dtype dtype,
                                               uint32_t heads, uint32_t head_dim)
{
	uint32_t g = m->geometry.group_count - 1, t = m->groups[g].tensor_count++;

	CHECK(t < MODEL_TENSORS);
	m->tensors[g][t] =
	    (struct vmkv_tensor){ .dtype = dtype, .heads = heads, .head_dim = head_dim };
	return &m->tensors[g][t];
}

/* One whose row is only known by its bytes. */
static inline void model_rows(struct model *m, uint64_t row_bytes)
{
	model_tensor(m, VMKV_DTYPE_NONE, 0, 0)->row_bytes = row_bytes;
}

/* A group whose only tensor has rows of so many bytes. */
static inline struct vmkv_group *model_plain(struct model *m, enum vmkv_policy policy,
                                             uint32_t layers, uint64_t row_bytes)
{
	struct vmkv_group *group = model_group(m, policy, layers);

	model_rows(m, row_bytes);
	return group;
}

/* K and V of f16 in every layer. */
static inline void model_f16(struct model *m, uint32_t layers, uint32_t heads, uint32_t head_dim)
{
	model_begin(m);
	model_group(m, VMKV_POLICY_FULL, layers);
	model_tensor(m, VMKV_DTYPE_F16, heads, head_dim);
	model_tensor(m, VMKV_DTYPE_F16, heads, head_dim);
}

static inline void model_qwen3_8b(struct model *m)
{
	model_f16(m, 36, 8, 128);
}

#endif
