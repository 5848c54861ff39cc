/* SPDX-License-Identifier: MIT
 *
 * inject=: faults that happen at some time, or to some buffers.
 */
#include "cs_fixture.h"
#include "entry.h"
#include "inject_fixture.h"

static const char *kernel;

static struct drm_amdgpu_memory_info memory_of(int fd)
{
	struct drm_amdgpu_memory_info memory;
	struct drm_amdgpu_info request = { .return_pointer = (uintptr_t)&memory,
		                           .return_size = sizeof(memory),
		                           .query = AMDGPU_INFO_MEMORY };

	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_INFO, &request), 0);
	return memory;
}

/* ---- silent-gtt ------------------------------------------------------------------------------ */

static uint64_t domains_told(int fd, uint32_t handle)
{
	struct drm_amdgpu_gem_create_in info;
	struct drm_amdgpu_gem_op args = { .handle = handle, .op = AMDGPU_GEM_OP_GET_GEM_CREATE_INFO,
		                          .value = (uintptr_t)&info };

	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_GEM_OP, &args), 0);
	return info.domains;
}

/* As LIST_HANDLES, which is new in 7.2, tells it. */
static uint64_t domains_listed(int fd, uint32_t handle)
{
	struct drm_amdgpu_gem_list_handles_entry entries[64];
	struct drm_amdgpu_gem_list_handles args = { .entries = (uintptr_t)entries, .num_entries = 64 };

	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_GEM_LIST_HANDLES, &args), 0);
	for (uint32_t i = 0; i < args.num_entries; i++)
		if (entries[i].gem_handle == handle)
			return entries[i].preferred_domains;
	return 0;
}

/* What fdinfo says that the file's buffers want of VRAM; 0 with 6.1, which doesn't say. */
static uint64_t vram_requested_kib(int fd)
{
	static const char key[] = "amd-requested-vram:";
	char text[4096];
	const char *at;
	size_t length;

	CHECK_EQ(vmkv_emulator_fdinfo(fd, text, sizeof(text), &length), 0);
	at = strstr(text, key);
	return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

/* Where a new buffer of 4 MiB is by the counters: 'v' or 'g'. Submissions that list it don't move it. */
static char placed(struct card *card, uint64_t flags, uint32_t *ret)
{
	struct drm_amdgpu_memory_info before = memory_of(card->fd), after;
	uint64_t requested = vram_requested_kib(card->fd);
	uint32_t bo = bo_create(card->fd, 4 * MIB, flags);
	bool vram;

	CHECK_EQ(domains_told(card->fd, bo), VRAM);
	if (!strcmp(kernel, "7.2"))
		CHECK_EQ(domains_listed(card->fd, bo), VRAM);
	if (strcmp(kernel, "6.1"))
		CHECK_EQ(vram_requested_kib(card->fd), requested + 4096);
	after = memory_of(card->fd);
	vram = after.vram.heap_usage > before.vram.heap_usage;
	CHECK_EQ(after.vram.heap_usage - before.vram.heap_usage, vram ? 4 * MIB : 0);
	CHECK_EQ(after.gtt.heap_usage - before.gtt.heap_usage, vram ? 0 : 4 * MIB);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(cs_nop(card, &bo, 1), 0);
	CHECK_EQ(memory_of(card->fd).gtt.heap_usage, after.gtt.heap_usage);
	CHECK_EQ(info_u64(card->fd, AMDGPU_INFO_GTT_USAGE), after.gtt.heap_usage);
	*ret = bo;
	return vram ? 'v' : 'g';
}

static void silent_gtt_is_told_by_counters_only(void)
{
	static const struct {
		const char *inject, *places;
	} cases[] = { { "", "vvvvv" }, { "silent-gtt", "gvgvg" }, { "silent-gtt:1", "ggggg" },
		      { "silent-gtt:3", "gvvgv" } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct card card = card_with(kernel, cases[i].inject, "");
		uint64_t window = card_window(&card);

		for (uint32_t n = 0; n < 5; n++) {
			uint64_t address = window + n * 4 * MIB;
			uint32_t bo;

			bo_create(card.fd, MIB, 0); /* too small to count */
			bo_create_in(card.fd, 4 * MIB, GTT, 0);
			CHECK_EQ(placed(&card, n % 2 ? ALWAYS : 0, &bo), cases[i].places[n]);
			CHECK_EQ(va_map(card.fd, bo, 0, address, 0, 4 * MIB), 0);
			CHECK_EQ(cs_nop(&card, &bo, 1), 0);
			CHECK_EQ(cpu_sees(address), 0u);
			CHECK_EQ(gpu_write(&card, address + MIB, 7 + n), 0);
			CHECK_EQ(cpu_sees(address + MIB), 7 + n);
			CHECK_MAPPED(card.fd, address + MIB, bo, MIB);
			CHECK_EQ(walk(card.fd, address).physical >= GIB, cases[i].places[n] == 'g');
		}
		card_close(&card);
	}
}

/* ---- vram-stolen ----------------------------------------------------------------------------- */

static void vram_is_stolen_with_the_nth_submission(void)
{
	for (int stolen = 0; stolen < 2; stolen++) {
		struct card card = card_with(kernel, stolen ? "vram-stolen:3" : "", "");
		uint32_t bos[6], *views[6];
		struct drm_amdgpu_memory_info before, after;
		uint64_t buffers;

		for (uint32_t i = 0; i < 6; i++) {
			bos[i] = bo_create(card.fd, 64 * MIB, i % 2 ? ALWAYS : 0);
			views[i] = bo_view(card.fd, bos[i], 64 * MIB);
			views[i][100 + i] = 5 + i;
			CHECK_EQ(va_map(card.fd, bos[i], 0, VA + i * 64 * MIB, 0, 64 * MIB), 0);
		}
		CHECK_EQ(cs_nop(&card, bos, 6), 0);
		CHECK_EQ(cs_nop(&card, bos, 6), 0);
		before = memory_of(card.fd);
		buffers = stats(&card).buffers;
		CHECK_EQ(stats(&card).evictions, 0);
		CHECK_EQ(cs_nop(&card, bos, 6), 0);
		CHECK_EQ(cs_nop(&card, bos, 6), 0);
		after = memory_of(card.fd);
		CHECK_EQ(stats(&card).buffers, buffers);
		if (stolen) {
			CHECK(after.vram.heap_usage + 16 * MIB >= GIB);
			CHECK(after.gtt.heap_usage >= before.gtt.heap_usage + 192 * MIB);
			CHECK(info_u64(card.fd, AMDGPU_INFO_NUM_EVICTIONS) >= 3);
		} else {
			CHECK_EQ(after.vram.heap_usage, before.vram.heap_usage);
			CHECK_EQ(after.gtt.heap_usage, before.gtt.heap_usage);
			CHECK_EQ(info_u64(card.fd, AMDGPU_INFO_NUM_EVICTIONS), 0);
		}
		for (uint32_t i = 0; i < 6; i++) {
			CHECK_EQ(views[i][100 + i], 5 + i);
			CHECK_EQ(gpu_write(&card, VA + i * 64 * MIB, 9 + i), 0);
			CHECK_EQ(views[i][0], 9 + i);
			munmap(views[i], 64 * MIB);
		}
		card_close(&card);
	}
}

/* Without anything to evict it takes what is free; what is made then is in GTT. */
static void an_empty_card_is_stolen_too(void)
{
	struct card card = card_with(kernel, "silent-gtt:1,vram-stolen:1", "");
	uint64_t gtt;

	CHECK_EQ(cs_nop(&card, NULL, 0), 0);
	CHECK(info_u64(card.fd, AMDGPU_INFO_VRAM_USAGE) + 16 * MIB >= GIB);
	gtt = info_u64(card.fd, AMDGPU_INFO_GTT_USAGE);
	bo_create(card.fd, 64 * MIB, 0);
	CHECK_EQ(info_u64(card.fd, AMDGPU_INFO_GTT_USAGE), gtt + 64 * MIB);
	card_close(&card);
}

/* ---- device-lost ----------------------------------------------------------------------------- */

static uint64_t context_state(int fd, uint32_t context)
{
	union drm_amdgpu_ctx args = { .in = { .op = AMDGPU_CTX_OP_QUERY_STATE2, .ctx_id = context } };

	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_CTX, &args), 0);
	return args.out.state.flags;
}

#define LOST (AMDGPU_CTX_QUERY2_FLAGS_RESET | AMDGPU_CTX_QUERY2_FLAGS_VRAMLOST)

static uint32_t lost_count(int fd)
{
	uint32_t value = 0;
	struct drm_amdgpu_info request = { .return_pointer = (uintptr_t)&value,
		                           .return_size = sizeof(value),
		                           .query = AMDGPU_INFO_VRAM_LOST_COUNTER };

	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_INFO, &request), 0);
	return value;
}

/* Three submissions, the last two at once; the second loses the card if any does. */
static void device_is_lost_with_the_nth_submission(void)
{
	for (int lost = 0; lost < 2; lost++) {
		struct card card = card_with(kernel, lost ? "device-lost:2" : "", "");
		uint32_t guilty = context_create(card.fd), other = context_create(card.fd), fresh;
		uint32_t vram = bo_create(card.fd, 4 * MIB, ALWAYS), *view, *gtt_view;
		uint32_t gtt = bo_create_in(card.fd, 4 * MIB, GTT, ALWAYS);
		uint64_t first = 0, second = 0, third = 0;

		view = bo_view(card.fd, vram, 4 * MIB);
		gtt_view = bo_view(card.fd, gtt, 4 * MIB);
		view[MIB / 4] = 5;
		gtt_view[MIB / 4] = 6;
		CHECK_EQ(va_map(card.fd, vram, 0, VA, 0, 4 * MIB), 0);
		memset(card.ib_view, 0, 8 * 4);
		CHECK_EQ(cs_submit(&card, guilty, 8, NULL, 0, &first), 0);
		CHECK_EQ(cs_wait(card.fd, guilty, first), 0);
		CHECK_EQ(lost_count(card.fd), 0);
		vmkv_emulator_pause(card.gpu);
		CHECK_EQ(cs_submit(&card, guilty, 8, NULL, 0, &second), 0);
		CHECK_EQ(cs_submit(&card, other, 8, NULL, 0, &third), 0);
		vmkv_emulator_resume(card.gpu);
		CHECK_EQ(cs_wait(card.fd, guilty, second), lost ? -ECANCELED : 0);
		CHECK_EQ(cs_wait(card.fd, other, third), lost ? -ECANCELED : 0);
		CHECK_EQ(lost_count(card.fd), lost ? 1u : 0u);
		CHECK_EQ(view[MIB / 4], lost ? 0u : 5u);
		CHECK_EQ(gtt_view[MIB / 4], 6u);
		CHECK_EQ(context_state(card.fd, guilty),
		         lost ? LOST | AMDGPU_CTX_QUERY2_FLAGS_GUILTY : 0);
		CHECK_EQ(context_state(card.fd, other), lost ? LOST : 0);
		CHECK_EQ(cs_submit(&card, guilty, 8, NULL, 0, &first), lost ? -ECANCELED : 0);
		CHECK_EQ(cs_submit(&card, other, 8, NULL, 0, &first), lost ? -ECANCELED : 0);
		fresh = context_create(card.fd);
		CHECK_EQ(context_state(card.fd, fresh), 0);
		CHECK_EQ(cs_submit(&card, fresh, 8, NULL, 0, &first), 0);
		CHECK_EQ(cs_wait(card.fd, fresh, first), 0);
		CHECK_EQ(gpu_write(&card, VA, 9), 0);
		CHECK_EQ(view[0], 9u);
		CHECK_EQ(lost_count(card.fd), lost ? 1u : 0u);
		munmap(view, 4 * MIB);
		munmap(gtt_view, 4 * MIB);
		card_close(&card);
	}
}

/* A gang is one submission, on however many rings it runs. */
static void a_gang_counts_once(void)
{
	struct bench bench = bench_open(kernel, "&inject=device-lost:2");
	struct drm_amdgpu_cs_chunk_ib ibs[] = { ib_of(AMDGPU_HW_IP_DMA, 1, SLOT_VA(0), 8), ib_slot(0) };
	struct chunks gang = { 0 };
	uint64_t number = 0;

	chunk_add(&gang, AMDGPU_CHUNK_ID_IB, &ibs[0], sizeof(ibs[0]));
	chunk_add(&gang, AMDGPU_CHUNK_ID_IB, &ibs[1], sizeof(ibs[1]));
	CHECK_EQ(chunks_submit(&bench, &gang, &number), 0);
	CHECK_EQ(wait_for(&bench, number), 0);
	CHECK_EQ(lost_count(bench.fd), 0u);
	CHECK_EQ(slot_run(&bench, 0), -ECANCELED);
	CHECK_EQ(lost_count(bench.fd), 1u);
	bench_close(&bench);
}

/* ---- transient-enomem ------------------------------------------------------------------------ */

/* How many of 60 maps and unmaps, and of 30 submissions, had to be made again. */
static void retries_count(struct card *card, uint32_t *maps, uint32_t *submissions)
{
	uint32_t bo = bo_create(card->fd, MIB, 0);

	*maps = *submissions = 0;
	for (int i = 0; i < 30; i++) {
		int error = va_map(card->fd, bo, 0, VA, 0, MIB);

		if (error) {
			CHECK_EQ(error, -ENOMEM);
			CHECK_UNMAPPED(card->fd, VA);
			sleep_us(1000);
			CHECK_EQ(va_map(card->fd, bo, 0, VA, 0, MIB), 0);
			++*maps;
		}
		error = cs_nop(card, NULL, 0);
		if (error) {
			CHECK_EQ(error, -ENOMEM);
			sleep_us(1000);
			CHECK_EQ(cs_nop(card, NULL, 0), 0);
			++*submissions;
		}
		error = va_unmap(card->fd, bo, 0, VA);
		if (error) {
			CHECK_EQ(error, -ENOMEM);
			CHECK_MAPPED(card->fd, VA, bo, 0);
			sleep_us(1000);
			CHECK_EQ(va_unmap(card->fd, bo, 0, VA), 0);
			++*maps;
		}
	}
}

static void transient_enomem_is_gone_a_millisecond_later(void)
{
	struct card broken = card_with(kernel, "transient-enomem", ""), sound = card_with(kernel, "", "");
	uint32_t maps, submissions;

	retries_count(&broken, &maps, &submissions);
	CHECK(maps >= 5);
	CHECK(submissions >= 2);
	CHECK(maps + submissions <= 90 / 7 + 1);
	retries_count(&sound, &maps, &submissions);
	CHECK_EQ(maps + submissions, 0u);
	card_close(&broken);
	card_close(&sound);
}

/* The nth call: here the fourth, the fixture's own two and the first map being good; and those right after
 * it, which don't count, if the machine is fast enough. */
static void transient_enomem_counts_calls(void)
{
	struct card card = card_with(kernel, "transient-enomem:4", "");
	uint32_t bo = bo_create(card.fd, MIB, 0);
	uint64_t began;
	int error;

	CHECK_EQ(va_map(card.fd, bo, 0, VA, 0, PAGE), 0);
	began = emu_now_ns();
	CHECK_EQ(va_map(card.fd, bo, 0, VA + PAGE, 0, PAGE), -ENOMEM);
	error = va_map(card.fd, bo, 0, VA + PAGE, 0, PAGE);
	if (emu_now_ns() < began + 1000000)
		CHECK_EQ(error, -ENOMEM);
	sleep_us(1000);
	CHECK_EQ(va_clear(card.fd, 0, VA + PAGE, PAGE), 0);
	for (int i = 2; i < (error ? 4 : 3); i++)
		CHECK_EQ(va_map(card.fd, bo, 0, VA + i * PAGE, 0, PAGE), 0);
	CHECK_EQ(va_map(card.fd, bo, 0, VA + 5 * PAGE, 0, PAGE), -ENOMEM);
	card_close(&card);
}

int main(void)
{
	FOR_EACH_KERNEL(name) {
		kernel = name;
		RUN(silent_gtt_is_told_by_counters_only);
		RUN(vram_is_stolen_with_the_nth_submission);
		RUN(an_empty_card_is_stolen_too);
		RUN(device_is_lost_with_the_nth_submission);
		RUN(a_gang_counts_once);
		RUN(transient_enomem_is_gone_a_millisecond_later);
		RUN(transient_enomem_counts_calls);
	}
	return 0;
}
