/* SPDX-License-Identifier: MIT
 *
 * The shape of the public structs on 64-bit machines, checked while compiling: programs that were
 * built against an earlier header rely on it. Fields are only ever added at the end, which changes a size
 * here; a line that changes otherwise breaks them.
 */
#include <stddef.h>

#include "vmkv.h"

#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)
#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field)
#define VALUE(name, value) _Static_assert((int)(name) == (value), #name)

_Static_assert(sizeof(size_t) == 8 && sizeof(void *) == 8, "a 64-bit machine");

SIZE(vmkv_seq, 8);

SIZE(struct vmkv_device_options, 64);
AT(struct vmkv_device_options, struct_size, 0);
AT(struct vmkv_device_options, name, 8);
AT(struct vmkv_device_options, error, 16);
AT(struct vmkv_device_options, error_bytes, 24);
AT(struct vmkv_device_options, adopt, 32);
AT(struct vmkv_device_options, drm_fd, 36);
AT(struct vmkv_device_options, amdgpu_device, 40);
AT(struct vmkv_device_options, window_begin, 48);
AT(struct vmkv_device_options, window_end, 56);

SIZE(struct vmkv_device_info, 312);
AT(struct vmkv_device_info, name, 8);
AT(struct vmkv_device_info, granule_bytes, 264);
AT(struct vmkv_device_info, memory_bytes, 272);
AT(struct vmkv_device_info, max_mappings, 280);
AT(struct vmkv_device_info, mappings, 288);
AT(struct vmkv_device_info, features, 296);
AT(struct vmkv_device_info, lost, 300);
AT(struct vmkv_device_info, safe, 304);
AT(struct vmkv_device_info, wait_after_map_us, 308);

SIZE(struct vmkv_amdgpu_info, 72);
AT(struct vmkv_amdgpu_info, drm_fd, 8);
AT(struct vmkv_amdgpu_info, syncobj, 12);
AT(struct vmkv_amdgpu_info, amdgpu_device, 16);
AT(struct vmkv_amdgpu_info, commit, 24);
AT(struct vmkv_amdgpu_info, listed, 28);
AT(struct vmkv_amdgpu_info, slab_changes, 32);
AT(struct vmkv_amdgpu_info, window_begin, 40);
AT(struct vmkv_amdgpu_info, window_end, 48);
AT(struct vmkv_amdgpu_info, drm_minor, 56);
AT(struct vmkv_amdgpu_info, family, 60);
AT(struct vmkv_amdgpu_info, external_rev, 64);
AT(struct vmkv_amdgpu_info, device_id, 68);

SIZE(struct vmkv_device_health, 72);
AT(struct vmkv_device_health, slab_bytes, 8);
AT(struct vmkv_device_health, slabs_refused, 16);
AT(struct vmkv_device_health, vram_bytes, 24);
AT(struct vmkv_device_health, vram_used_bytes, 32);
AT(struct vmkv_device_health, evictions, 40);
AT(struct vmkv_device_health, moved_bytes, 48);
AT(struct vmkv_device_health, fault_address, 56);
AT(struct vmkv_device_health, fault_status, 64);
AT(struct vmkv_device_health, lost, 68);

SIZE(struct vmkv_tensor, 24);
AT(struct vmkv_tensor, dtype, 0);
AT(struct vmkv_tensor, heads, 4);
AT(struct vmkv_tensor, head_dim, 8);
AT(struct vmkv_tensor, reserved, 12);
AT(struct vmkv_tensor, row_bytes, 16);

SIZE(struct vmkv_group, 40);
AT(struct vmkv_group, policy, 8);
AT(struct vmkv_group, layers, 12);
AT(struct vmkv_group, tensors, 16);
AT(struct vmkv_group, tensor_count, 24);
AT(struct vmkv_group, window_tokens, 28);
AT(struct vmkv_group, slack_tokens, 32);
AT(struct vmkv_group, reserved, 36);

SIZE(struct vmkv_geometry, 24);
AT(struct vmkv_geometry, groups, 8);
AT(struct vmkv_geometry, group_count, 16);
AT(struct vmkv_geometry, reserved, 20);

SIZE(struct vmkv_cache_options, 112);
AT(struct vmkv_cache_options, geometry, 8);
AT(struct vmkv_cache_options, budget_bytes, 16);
AT(struct vmkv_cache_options, page_bytes, 24);
AT(struct vmkv_cache_options, slab_bytes, 32);
AT(struct vmkv_cache_options, layout, 40);
AT(struct vmkv_cache_options, max_slots, 44);
AT(struct vmkv_cache_options, slot_count, 48);
AT(struct vmkv_cache_options, max_tokens, 52);
AT(struct vmkv_cache_options, read_align_tokens, 56);
AT(struct vmkv_cache_options, zero, 60);
AT(struct vmkv_cache_options, mapping_max_bytes, 64);
AT(struct vmkv_cache_options, window_mapping_max_bytes, 72);
AT(struct vmkv_cache_options, warm_max_bytes, 80);
AT(struct vmkv_cache_options, error, 88);
AT(struct vmkv_cache_options, error_bytes, 96);
AT(struct vmkv_cache_options, share, 104);
AT(struct vmkv_cache_options, reserved, 108);

SIZE(struct vmkv_cache_info, 72);
AT(struct vmkv_cache_info, page_bytes, 8);
AT(struct vmkv_cache_info, slab_bytes, 16);
AT(struct vmkv_cache_info, bytes_per_token, 24);
AT(struct vmkv_cache_info, fixed_bytes, 32);
AT(struct vmkv_cache_info, reserved_bytes, 40);
AT(struct vmkv_cache_info, slot_count, 48);
AT(struct vmkv_cache_info, max_slots, 52);
AT(struct vmkv_cache_info, max_tokens, 56);
AT(struct vmkv_cache_info, read_align_tokens, 60);
AT(struct vmkv_cache_info, layout, 64);
AT(struct vmkv_cache_info, group_count, 68);

SIZE(struct vmkv_open_options, 32);
AT(struct vmkv_open_options, prefer, 8);
AT(struct vmkv_open_options, slot, 12);
AT(struct vmkv_open_options, expected_tokens, 16);
AT(struct vmkv_open_options, reserved, 20);
AT(struct vmkv_open_options, shortage, 24);

SIZE(struct vmkv_shortage, 56);
AT(struct vmkv_shortage, kind, 0);
AT(struct vmkv_shortage, needed, 8);
AT(struct vmkv_shortage, missing, 16);
AT(struct vmkv_shortage, retiring_bytes, 24);
AT(struct vmkv_shortage, retiring_until, 32);
AT(struct vmkv_shortage, transit_bytes, 40);
AT(struct vmkv_shortage, transit_point, 48);

SIZE(struct vmkv_step_request, 48);
AT(struct vmkv_step_request, seqs, 8);
AT(struct vmkv_step_request, tokens, 16);
AT(struct vmkv_step_request, n, 24);
AT(struct vmkv_step_request, reserved, 28);
AT(struct vmkv_step_request, busy_until, 32);
AT(struct vmkv_step_request, seq_needed_bytes, 40);

SIZE(struct vmkv_step_result, 72);
AT(struct vmkv_step_result, ready, 8);
AT(struct vmkv_step_result, shortage, 16);

SIZE(struct vmkv_span, 64);
AT(struct vmkv_span, address, 8);
AT(struct vmkv_span, token_stride, 16);
AT(struct vmkv_span, slot_stride, 24);
AT(struct vmkv_span, row_bytes, 32);
AT(struct vmkv_span, slot, 40);
AT(struct vmkv_span, first_token, 44);
AT(struct vmkv_span, live_tokens, 48);
AT(struct vmkv_span, mapped_tokens, 52);
AT(struct vmkv_span, reserved_tokens, 56);
AT(struct vmkv_span, reserved, 60);

SIZE(struct vmkv_mapping, 32);
AT(struct vmkv_mapping, address, 0);
AT(struct vmkv_mapping, bytes, 8);
AT(struct vmkv_mapping, slab, 16);
AT(struct vmkv_mapping, slab_offset, 24);

SIZE(struct vmkv_stats, 240);
AT(struct vmkv_stats, budget_bytes, 8);
AT(struct vmkv_stats, slab_bytes, 16);
AT(struct vmkv_stats, mapped_bytes, 24);
AT(struct vmkv_stats, warm_bytes, 32);
AT(struct vmkv_stats, retiring_bytes, 40);
AT(struct vmkv_stats, unmapping_bytes, 48);
AT(struct vmkv_stats, zeroing_bytes, 56);
AT(struct vmkv_stats, held_bytes, 64);
AT(struct vmkv_stats, free_clean_bytes, 72);
AT(struct vmkv_stats, free_dirty_bytes, 80);
AT(struct vmkv_stats, live_bytes, 88);
AT(struct vmkv_stats, reserved_bytes, 96);
AT(struct vmkv_stats, table_bytes, 104);
AT(struct vmkv_stats, sequences, 112);
AT(struct vmkv_stats, mappings, 120);
AT(struct vmkv_stats, slabs, 128);
AT(struct vmkv_stats, steps, 136);
AT(struct vmkv_stats, growing_steps, 144);
AT(struct vmkv_stats, shortages, 152);
AT(struct vmkv_stats, mapped_pages, 160);
AT(struct vmkv_stats, map_calls, 168);
AT(struct vmkv_stats, unmap_calls, 176);
AT(struct vmkv_stats, fill_calls, 184);
AT(struct vmkv_stats, slab_calls, 192);
AT(struct vmkv_stats, failed_calls, 200);
AT(struct vmkv_stats, mapped_bytes_peak, 208);
AT(struct vmkv_stats, live_bytes_peak, 216);
AT(struct vmkv_stats, slab_bytes_peak, 224);
AT(struct vmkv_stats, mappings_peak, 232);

VALUE(VMKV_FEATURE_CPU_ADDRESSES, 1);
VALUE(VMKV_FEATURE_ZEROED_SLABS, 2);
VALUE(VMKV_FEATURE_ASYNCHRONOUS, 4);
VALUE(VMKV_DTYPE_NONE, 0);
VALUE(VMKV_DTYPE_F32, 1);
VALUE(VMKV_DTYPE_F16, 2);
VALUE(VMKV_DTYPE_BF16, 3);
VALUE(VMKV_DTYPE_F8, 4);
VALUE(VMKV_DTYPE_Q8_0, 5);
VALUE(VMKV_POLICY_FULL, 0);
VALUE(VMKV_POLICY_WINDOW, 1);
VALUE(VMKV_POLICY_STATE, 2);
VALUE(VMKV_LAYOUT_LAYER, 0);
VALUE(VMKV_LAYOUT_TOKEN, 1);
VALUE(VMKV_ZERO_ON, 0);
VALUE(VMKV_ZERO_OFF, 1);
VALUE(VMKV_PREFER_LOWEST, 0);
VALUE(VMKV_PREFER_WARM, 1);
VALUE(VMKV_PREFER_SLOT, 2);
VALUE(VMKV_SHORTAGE_NONE, 0);
VALUE(VMKV_SHORTAGE_BYTES, 1);
VALUE(VMKV_SHORTAGE_MAPPINGS, 2);
VALUE(VMKV_SHORTAGE_SLOTS, 3);

/* The functions' types: a changed parameter doesn't compile. */
static const struct {
	uint32_t (*version)(void);
	int (*device_open)(const struct vmkv_device_options *, vmkv_device **);
	int (*device_close)(vmkv_device *);
	int (*device_info)(const vmkv_device *, struct vmkv_device_info *);
	size_t (*device_error)(const vmkv_device *, char *, size_t);
	int (*wait)(vmkv_device *, uint64_t, uint64_t);
	int (*copy)(vmkv_device *, uint64_t, uint64_t, uint64_t, uint64_t *);
	int (*fill)(vmkv_device *, uint64_t, uint64_t, uint32_t, uint64_t *);
	int (*cache_create)(vmkv_device *, const struct vmkv_cache_options *, vmkv_cache **);
	void (*cache_destroy)(vmkv_cache *);
	int (*cache_info)(const vmkv_cache *, struct vmkv_cache_info *);
	size_t (*cache_error)(const vmkv_cache *, char *, size_t);
	int (*cache_need_bytes)(const vmkv_cache *, uint32_t, uint32_t, uint64_t *);
	int (*cache_set_budget)(vmkv_cache *, uint64_t);
	int (*cache_shrink)(vmkv_cache *, uint64_t, uint64_t *);
	int (*seq_open)(vmkv_cache *, const struct vmkv_open_options *, vmkv_seq *);
	int (*seq_close)(vmkv_cache *, vmkv_seq, uint64_t);
	int (*step)(vmkv_cache *, const struct vmkv_step_request *, struct vmkv_step_result *);
	int (*retire)(vmkv_cache *, uint64_t);
	int (*span)(vmkv_cache *, vmkv_seq, uint32_t, uint32_t, uint32_t, struct vmkv_span *);
	int (*seq_mappings)(vmkv_cache *, vmkv_seq, uint32_t, uint32_t, uint32_t,
	                    struct vmkv_mapping *, size_t, size_t *);
	const uint32_t *(*ready_tokens)(const vmkv_cache *);
	int (*cache_stats)(vmkv_cache *, struct vmkv_stats *);
} functions = {
	vmkv_version,      vmkv_device_open,      vmkv_device_close,   vmkv_device_info,
	vmkv_device_error, vmkv_wait,             vmkv_copy,           vmkv_fill,
	vmkv_cache_create, vmkv_cache_destroy,    vmkv_cache_info,     vmkv_cache_error,
	vmkv_cache_need_bytes, vmkv_cache_set_budget, vmkv_cache_shrink, vmkv_seq_open,
	vmkv_seq_close,    vmkv_step,             vmkv_retire,         vmkv_span,
	vmkv_seq_mappings, vmkv_ready_tokens,     vmkv_cache_stats,
};

int main(void)
{
	uint32_t version = VMKV_VERSION_MAJOR << 16 | VMKV_VERSION_MINOR << 8 | VMKV_VERSION_PATCH;

	return functions.version() == version ? 0 : 1;
}
