/* SPDX-License-Identifier: MIT
 *
 * vmkv on an engine's own amdgpu device: whose submissions make memory appear, and what they have to list.
 */
#include "engine_fixture.h"

#define CARD "gfx1201?vram=256MiB"
#define TOKENS 256 /* 4 MiB a span */
#define WORDS 1024 /* copied there and back */

/* The last bytes of a sequence's span. */
static uint64_t tail_of(struct rig *r, vmkv_seq seq, uint32_t layer)
{
	struct vmkv_span span = span_of(r, seq, 0, layer, 0);

	return span.address + TOKENS * span.token_stride - 4 * WORDS;
}

static void data_fill(struct engine *e, uint32_t seed)
{
	for (uint32_t i = 0; i < WORDS; i++) {
		e->words[ENGINE_DATA + i] = seed + i;
		e->words[ENGINE_DATA + WORDS + i] = 0;
	}
}

/* The engine's packets: its data to an address, and from there back to behind them. */
static void there_and_back(struct engine *e, uint64_t address, uint32_t seed)
{
	data_fill(e, seed);
	engine_copy(e, address, engine_data(e, 0), 4 * WORDS);
	engine_copy(e, engine_data(e, WORDS), address, 4 * WORDS);
}

static void check_back(struct engine *e, uint32_t seed)
{
	for (uint32_t i = 0; i < WORDS; i++)
		CHECK_EQ(e->words[ENGINE_DATA + WORDS + i], seed + i);
}

/* A cache on the engine's device with one sequence; the step told that it is ready at once. */
static vmkv_seq engine_rig(struct rig *r, vmkv_device *device)
{
	struct vmkv_step_result result = { .struct_size = sizeof(result) };
	uint32_t tokens = TOKENS;
	vmkv_seq seq;

	rig_prepare(r, device);
	r->options.warm_max_bytes = VMKV_WARM_OFF;
	r->options.zero = VMKV_ZERO_OFF; /* or a fill would make the page tables follow */
	rig_create(r);
	seq = seq_open(r);
	CHECK_EQ(try_steps(r, &seq, &tokens, 1, 1, &result), 0);
	CHECK_EQ(result.ready, 0);
	return seq;
}

static void rig_finish(struct rig *r)
{
	vmkv_cache_destroy(r->cache);
	CHECK_EQ(vmkv_device_close(r->device), 0);
}

/* DELAY only lists: until somebody submits, nothing is mapped. Then it is the engine's own packets, in
 * that very submission, that find it. */
static void a_span_is_there_with_the_engines_submission(const char *kernel)
{
	struct engine e;
	struct rig r;
	vmkv_seq seq;
	char spec[64];
	uint64_t submissions;

	snprintf(spec, sizeof(spec), CARD "&kernel=%s", kernel);
	engine_begin(&e, spec);
	submissions = engine_count(&e, "CS", UINT32_MAX);
	seq = engine_rig(&r, engine_adopted(&e, "amdgpu?commit=engine"));
	for (uint32_t layer = 0; layer < 2; layer++) {
		CHECK(!engine_walk(&e, span_of(&r, seq, 0, layer, 0).address).valid);
		CHECK(!engine_walk(&e, tail_of(&r, seq, layer)).valid);
	}
	CHECK_EQ(engine_count(&e, "CS", UINT32_MAX), submissions);
	there_and_back(&e, tail_of(&r, seq, 1), 100);
	CHECK_EQ(engine_run(&e, NULL, 0), 0);
	check_back(&e, 100);
	CHECK_EQ(engine_count(&e, "CS", UINT32_MAX), submissions + 1);
	for (uint32_t layer = 0; layer < 2; layer++) {
		CHECK(engine_walk(&e, span_of(&r, seq, 0, layer, 0).address).valid);
		CHECK(engine_walk(&e, tail_of(&r, seq, layer)).writable);
	}
	rig_finish(&r);
	engine_end(&e);
}

/* What is given back goes by vmkv's own submission, without the engine's help. */
static void what_is_given_back_goes_without_the_engine(void)
{
	struct vmkv_stats stats;
	struct engine e;
	struct rig r;
	uint64_t address, submissions;
	vmkv_seq seq;

	engine_begin(&e, CARD);
	seq = engine_rig(&r, engine_adopted(&e, "amdgpu?commit=engine"));
	address = span_of(&r, seq, 0, 0, 0).address;
	CHECK_EQ(engine_run(&e, NULL, 0), 0);
	CHECK(engine_walk(&e, address).valid);
	seq_close(&r, seq, 1);
	CHECK(engine_walk(&e, address).valid); /* submission 1 may still use it */
	submissions = engine_count(&e, "CS", UINT32_MAX);
	retire(&r, 1);
	CHECK(engine_count(&e, "CS", UINT32_MAX) > submissions);
	do {
		retire(&r, 1);
		stats = stats_of(&r);
	} while (stats.unmapping_bytes || stats.zeroing_bytes);
	CHECK(!engine_walk(&e, address).valid);
	rig_finish(&r);
	engine_end(&e);
}

static size_t slabs_of(vmkv_device *device, uint32_t *handles, size_t n)
{
	size_t count;

	CHECK_EQ(vmkv_amdgpu_slabs(device, handles, n, &count), 0);
	CHECK(count <= n);
	return count;
}

/* The kernel updates the page tables for listed buffers alone, so packets that use others fault. */
static void listed_slabs_are_there_for_who_lists_them(void)
{
	struct vmkv_emulator_stats stats = { .struct_size = sizeof(stats) };
	struct engine e;
	struct rig r;
	uint32_t handles[8];
	size_t n;
	vmkv_seq seq;
	uint64_t address;

	engine_begin(&e, CARD);
	seq = engine_rig(&r, engine_adopted(&e, "amdgpu?commit=engine&slabs=listed"));
	CHECK_EQ(info_of(r.device).listed, 1);
	address = tail_of(&r, seq, 0);
	n = slabs_of(r.device, handles, 8);
	CHECK(n > 0);
	there_and_back(&e, address, 7);
	CHECK_EQ(engine_run(&e, NULL, 0), -ECANCELED);
	CHECK_EQ(e.words[ENGINE_DATA + WORDS], 0);
	CHECK(!engine_walk(&e, address).valid);
	CHECK_EQ(vmkv_emulator_stats(e.emulator, &stats), 0);
	CHECK_EQ(stats.faults, 1);
	engine_begin_context(&e); /* after its fault the old one is of no use */
	there_and_back(&e, address, 8);
	CHECK_EQ(engine_run(&e, handles, n), 0);
	check_back(&e, 8);
	CHECK(engine_walk(&e, address).valid);
	rig_finish(&r);
	engine_end(&e);
}

/* A list is made again when slab_changes has moved, and only then. */
static void a_list_of_slabs_follows_them(void)
{
	struct engine e;
	struct rig r;
	uint32_t handles[8];
	uint64_t changes;
	vmkv_seq seq, other;
	size_t n, count;

	engine_begin(&e, CARD);
	seq = engine_rig(&r, engine_adopted(&e, "amdgpu?commit=engine&slabs=listed"));
	changes = info_of(r.device).slab_changes;
	n = slabs_of(r.device, handles, 8);
	CHECK_EQ(n, stats_of(&r).slabs);
	step_until(&r, seq, TOKENS + 4, 2); /* within the slab */
	CHECK_EQ(info_of(r.device).slab_changes, changes);
	other = seq_of(&r, 1000);
	CHECK(info_of(r.device).slab_changes > changes);
	CHECK_EQ(vmkv_amdgpu_slabs(r.device, handles, 1, &count), 0); /* room for one: it tells all */
	CHECK_EQ(count, stats_of(&r).slabs);
	CHECK(count > n);
	n = slabs_of(r.device, handles, 8);
	there_and_back(&e, span_of(&r, other, 0, 1, 0).address + 900 * ROW, 9);
	CHECK_EQ(engine_run(&e, handles, n), 0);
	check_back(&e, 9);
	rig_finish(&r);
	engine_end(&e);
}

/* A handle that the kernel doesn't know, as one of a slab that went: the whole submission is refused. */
static void a_list_that_is_out_of_date_is_refused(void)
{
	struct engine e;
	struct rig r;
	uint32_t handles[8];
	size_t n;
	vmkv_seq seq;

	engine_begin(&e, CARD);
	seq = engine_rig(&r, engine_adopted(&e, "amdgpu?commit=engine&slabs=listed"));
	n = slabs_of(r.device, handles, 8);
	seq_close(&r, seq, 0);
	do {
		retire(&r, 1); /* sees what has arrived */
		CHECK_EQ(vmkv_cache_shrink(r.cache, 0, NULL), 0);
	} while (stats_of(&r).slabs > 0);
	CHECK_EQ(slabs_of(r.device, (uint32_t[8]){ 0 }, 8), 0);
	CHECK_EQ(engine_run(&e, handles, n), -ENOENT);
	CHECK_EQ(engine_run(&e, NULL, 0), 0);
	rig_finish(&r);
	engine_end(&e);
}

/* vmkv on a device leaves it as it found it. */
static void the_engines_device_stays_the_engines(void)
{
	struct vmkv_emulator_stats before = { .struct_size = sizeof(before) }, after = before;
	struct engine e;
	struct rig r;

	engine_begin(&e, CARD);
	CHECK_EQ(vmkv_emulator_stats(e.emulator, &before), 0);
	engine_rig(&r, engine_adopted(&e, "amdgpu?commit=engine"));
	CHECK(info_of(r.device).amdgpu_device == e.handle);
	CHECK_EQ(info_of(r.device).drm_fd, e.fd);
	rig_finish(&r);
	CHECK_EQ(vmkv_emulator_stats(e.emulator, &after), 0);
	CHECK_EQ(after.files, before.files);
	CHECK_EQ(after.handles, before.handles);
	CHECK_EQ(after.mappings, before.mappings);
	CHECK_EQ(after.contexts, before.contexts);
	CHECK_EQ(after.syncobjs, before.syncobjs);
	there_and_back(&e, engine_data(&e, 4 * WORDS), 3);
	CHECK_EQ(engine_run(&e, NULL, 0), 0);
	check_back(&e, 3);
	engine_end(&e);
}

int main(void)
{
	static const char *const kernels[] = { "6.1", "6.12", "7.2" };

	target_need_libdrm();
	for (int i = 0; i < 3; i++)
		a_span_is_there_with_the_engines_submission(kernels[i]);
	RUN(what_is_given_back_goes_without_the_engine);
	RUN(listed_slabs_are_there_for_who_lists_them);
	RUN(a_list_of_slabs_follows_them);
	RUN(a_list_that_is_out_of_date_is_refused);
	RUN(the_engines_device_stays_the_engines);
	return 0;
}
