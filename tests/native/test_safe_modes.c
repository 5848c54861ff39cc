/* SPDX-License-Identifier: MIT
 *
 * The rules of each safe mode, on any device: the checking one around it tells if an address is mapped
 * twice, or a page at two addresses. What the modes are good for is test_safe_faults.c's.
 */
#include <time.h>

#include "emulator/vmkv_emulator.h"
#include "device_checking_record.h"
#include "safe_fixture.h"
#include "seeded.h"

static const char *const mode_sets[] = {
	"safe=never-reuse-addresses",
	"safe=no-alias",
	"safe=wait-after-map&wait_us=50",
	"safe=never-reuse-addresses,wait-after-map,no-alias&wait_us=50",
};
#define MODE_SETS (sizeof(mode_sets) / sizeof(mode_sets[0]))

static const char *const devices[] = { "host", "emulated:gfx1201?vram=1GiB&identity=1&window=64GiB" };
#define DEVICES (sizeof(devices) / sizeof(devices[0]))

/* ---- names --------------------------------------------------------------------------------------- */

static void check_name(const char *name, uint32_t safe, uint32_t wait_us, const char *again)
{
	struct vmkv_device_info info = { .struct_size = sizeof(info) };
	vmkv_device *device = NULL;
	char text[256] = "";

	if (open_name(name, text, sizeof(text), &device))
		CHECK_FAIL("%s: %s", name, text);
	CHECK_EQ(vmkv_device_info(device, &info), 0);
	CHECK_EQ(info.safe, safe);
	CHECK_EQ(info.wait_after_map_us, wait_us);
	CHECK_STR(info.name, again);
	CHECK_EQ(vmkv_device_close(device), 0);
}

static void a_device_says_which_modes_are_in_force(void)
{
	check_name("host", 0, 0, "host");
	check_name("host?safe=no-alias", VMKV_SAFE_NO_ALIAS, 0, "host?safe=no-alias");
	check_name("host?safe=wait-after-map,never-reuse-addresses",
	           VMKV_SAFE_WAIT_AFTER_MAP | VMKV_SAFE_NEVER_REUSE_ADDRESSES, 4000,
	           "host?safe=never-reuse-addresses,wait-after-map");
	check_name("host?wait_us=7&memory=1MiB&safe=wait-after-map", VMKV_SAFE_WAIT_AFTER_MAP, 7,
	           "host?memory=1048576&safe=wait-after-map&wait_us=7");
	check_name("emulated:gfx1201?safe=no-alias&vram=1GiB&commit=engine", VMKV_SAFE_NO_ALIAS, 0,
	           "emulated:gfx1201?safe=no-alias&vram=1GiB&commit=engine");
}

static void check_refused(const char *name, const char *why)
{
	vmkv_device *device = NULL;
	char text[256] = "";

	CHECK_EQ(open_name(name, text, sizeof(text), &device), -EINVAL);
	CHECK(device == NULL);
	CHECK_CONTAINS(text, why);
}

static void modes_that_mean_nothing_are_refused(void)
{
	check_refused("host?safe=", "safe= is none of never-reuse-addresses, wait-after-map and no-alias");
	check_refused("host?safe=no-alias,", "safe= is none of");
	check_refused("host?safe=no-alias,never", "safe=never is none of");
	check_refused("emulated:gfx1201?safe=no-aliases", "safe=no-aliases is none of");
	check_refused("host?wait_us=10", "safe=wait-after-map");
	check_refused("host?safe=no-alias&wait_us=10", "safe=wait-after-map");
	check_refused("host?safe=wait-after-map&wait_us=0", "1 to 1000000 microseconds");
	check_refused("host?safe=wait-after-map&wait_us=4ms", "wait_us=4ms is no wait");
	check_refused("emulated:gfx1201?safe=wait-after-map&wait_us=1000001", "1 to 1000000");
	check_refused("emulated:gfx1201?commit=engine&safe=wait-after-map", "use commit=cs or commit=bo");
	check_refused("emulated:gfx1201?safe=wait-after-map&commit=engine", "use commit=cs or commit=bo");
}

/* ---- any number of caches ------------------------------------------------------------------------- */

struct lives {
	struct rig *r;
	struct seeded random;
	vmkv_seq seqs[4];
	uint32_t tokens[4], marks[4], mark;
};

static void lives_step(struct lives *l, uint32_t i)
{
	struct vmkv_step_result result = { .struct_size = sizeof(result) };
	uint32_t tokens = l->tokens[i] + seeded_from(&l->random, 0, 60);

	if (tokens > 300)
		tokens = 300;
	if (!l->seqs[i]) {
		l->seqs[i] = seq_open(l->r);
		l->tokens[i] = tokens = 0;
		l->marks[i] = l->mark += 1000;
	}
	if (try_steps(l->r, &l->seqs[i], &tokens, 1, 0, &result))
		return; /* a fault, or too little memory */
	CHECK_EQ(vmkv_wait(l->r->device, result.ready, UINT64_MAX), 0);
	fill_span(l->r, l->seqs[i], l->tokens[i], tokens, l->marks[i]);
	l->tokens[i] = tokens;
}

/* The card's own page tables: what each page of the open sequences lies at, and that nothing else is
 * mapped but the ring. */
static void check_page_tables(struct lives *l)
{
	struct vmkv_emulator_stats stats = { .struct_size = sizeof(stats) };
	struct vmkv_emulator_entry entry = { .struct_size = sizeof(entry) };
	struct vmkv_amdgpu_info info = { .struct_size = sizeof(info) };
	static uint64_t seen[4 * 2 * 1024 / 4];
	size_t n = 0;

	if (!vmkv_device_is_safe(l->r->device, VMKV_SAFE_NO_ALIAS) ||
	    vmkv_amdgpu_info(checking_of(l->r->device)->inner, &info))
		return;
	for (uint32_t i = 0; i < 4; i++) {
		for (uint32_t page = 0; l->seqs[i] && page < 2 * ((l->tokens[i] + 3) / 4); page++) {
			uint64_t address = span_of(l->r, l->seqs[i], 0, page % 2, 0).address;

			CHECK_EQ(vmkv_emulator_walk(info.drm_fd, address + page / 2 * PAGE, &entry), 0);
			CHECK(entry.valid);
			seen[n++] = entry.physical;
			for (size_t j = 0; j + 1 < n; j++)
				CHECK(seen[j] + PAGE <= entry.physical || entry.physical + PAGE <= seen[j]);
		}
	}
	CHECK_EQ(vmkv_emulator_stats(vmkv_emulator_of(info.drm_fd), &stats), 0);
	CHECK_EQ(stats.mappings, checking_of(l->r->device)->report.mappings + 1);
}

/* Sequences come, grow, hold what they wrote, and go; calls fail now and then. */
static void live(struct rig *r, uint64_t seed)
{
	struct lives l = { .r = r, .random = { seed } };

	for (int operation = 0; operation < 150; operation++) {
		uint32_t i = seeded_from(&l.random, 0, 3), what = seeded_from(&l.random, 0, 19);

		if (what < 15) {
			lives_step(&l, i);
		} else if (what < 17 && l.seqs[i]) {
			check_span(r, l.seqs[i], l.tokens[i], l.marks[i]);
			seq_close(r, l.seqs[i], 0);
			l.seqs[i] = 0;
			l.tokens[i] = 0;
		} else if (what < 19) {
			retire(r, 0);
		} else {
			vmkv_cache_shrink(r->cache, 0, NULL);
		}
	}
	for (uint32_t i = 0; i < 4; i++)
		if (l.seqs[i])
			check_span(r, l.seqs[i], l.tokens[i], l.marks[i]);
	check_page_tables(&l);
}

static void caches_come_and_go_by_the_rules(void)
{
	struct seeded random = seeded_begin(__func__);
	struct checking_options checking = { .dirty_slabs = true };
	struct rig r;

	for (size_t d = 0; d < DEVICES; d++) {
		for (size_t m = 0; m < MODE_SETS; m++) {
			safe_begin(&r, devices[d], mode_sets[m], &checking);
			r.options.budget_bytes = 24 * MIB;
			r.options.slot_count = 64;
			for (int i = 0; i < 8; i++) {
				struct checking_fault fault = { .per_million = i % 2 ? 30000 : 0,
					                        .seed = seeded_next(&random),
					                        .error = i % 4 == 1 ? -ENOSPC : -EIO };

				rig_create(&r);
				checking_fault_set(r.device, &fault);
				live(&r, seeded_next(&random));
				fault = (struct checking_fault){ 0 };
				checking_fault_set(r.device, &fault);
				if (i < 7)
					vmkv_cache_destroy(r.cache);
			}
			safe_end(&r);
		}
	}
}

/* ---- addresses that are used once ----------------------------------------------------------------- */

static uint32_t slots_given(vmkv_device *device, uint32_t max_slots, uint32_t max_tokens)
{
	struct vmkv_cache_info info = { .struct_size = sizeof(info) };
	struct rig r;

	rig_prepare(&r, device);
	r.options.max_slots = max_slots;
	r.options.max_tokens = max_tokens;
	rig_create(&r);
	CHECK_EQ(vmkv_cache_info(r.cache, &info), 0);
	vmkv_cache_destroy(r.cache);
	return info.slot_count;
}

static void there_are_as_many_slots_as_the_window_holds(void)
{
	vmkv_device *device = device_in("emulated:gfx1201?identity=1&window=16GiB", "safe=never-reuse-addresses");

	/* 2 spans of 1024 tokens are 32 MiB: half of 16 GiB holds 256, less a ring; then half of the rest. */
	CHECK_EQ(slots_given(device, 4, 1024), 255);
	CHECK_EQ(slots_given(device, 4, 1024), 128);
	CHECK_EQ(vmkv_device_close(device), 0);
	device = device_in("emulated:gfx1201", "safe=never-reuse-addresses");
	CHECK_EQ(slots_given(device, 4, 64), 65536);
	CHECK_EQ(vmkv_device_close(device), 0);
	device = device_in("emulated:gfx1201?identity=1&window=16GiB", "safe=no-alias");
	CHECK_EQ(slots_given(device, 4, 1024), 8);
	CHECK_EQ(slots_given(device, 4, 1024), 8);
	CHECK_EQ(vmkv_device_close(device), 0);
}

static void addresses_of_a_device_are_used_up_one_day(void)
{
	struct rig r;
	int made = 0;

	rig_prepare(&r, device_in("emulated:gfx1201?vram=1GiB&identity=1&window=1GiB", "safe=never-reuse-addresses"));
	r.options.slot_count = 8; /* 256 MiB */
	for (; rig_try_create(&r) == 0; made++)
		vmkv_cache_destroy(r.cache);
	CHECK_EQ(made, 3);
	CHECK_CONTAINS(r.text, "used ones come back when the device is opened anew");
	CHECK_EQ(vmkv_device_close(r.device), 0);
}

/* ---- wait-after-map --------------------------------------------------------------------------------- */

static uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* No upper bound: a loaded machine may take any time. */
static void memory_is_ready_no_sooner(const char *name)
{
	vmkv_device *device = device_in(name, "safe=wait-after-map&wait_us=3000");
	uint64_t address = 0, point = 0, begin = now_us();
	struct vmkv_map map = { .bytes = 2 * MIB };
	size_t issued;

	CHECK_EQ(device->ops->slab_create(device, 2 * MIB, &map.slab), 0);
	CHECK(now_us() - begin >= 3000); /* it has an alias */
	CHECK_EQ(device->ops->reserve(device, 2 * MIB, 2 * MIB, &address), 0);
	map.address = address;
	begin = now_us();
	CHECK_EQ(device->ops->map(device, &map, 1, &issued, &point), 0);
	CHECK(now_us() - begin >= 3000);
	CHECK(vmkv_device_reached(device, point));
	device->ops->release(device, address, 2 * MIB);
	device->ops->slab_destroy(device, map.slab);
	CHECK_EQ(vmkv_device_close(device), 0);
}

static void maps_and_aliases_are_waited_for(void)
{
	memory_is_ready_no_sooner("host");
	memory_is_ready_no_sooner("emulated:gfx1201?vram=1GiB");
	memory_is_ready_no_sooner("emulated:gfx1201?vram=1GiB&commit=bo");
	memory_is_ready_no_sooner("emulated:gfx1201?vram=1GiB&kernel=7.2&commit=bo&slabs=listed");
}

int main(void)
{
	RUN(a_device_says_which_modes_are_in_force);
	RUN(modes_that_mean_nothing_are_refused);
	RUN(caches_come_and_go_by_the_rules);
	RUN(there_are_as_many_slots_as_the_window_holds);
	RUN(addresses_of_a_device_are_used_up_one_day);
	RUN(maps_and_aliases_are_waited_for);
	return 0;
}
