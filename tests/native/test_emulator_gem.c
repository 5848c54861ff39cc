/* SPDX-License-Identifier: MIT
 *
 * Buffers of the emulated card: what GEM_CREATE takes and refuses, and where buffers come to lie.
 */
#include <sys/stat.h>

#include "memory_fixture.h"
#include "memory_parts.h"

#define ANY_FLAGS                                                                                  \
	(AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED | AMDGPU_GEM_CREATE_CPU_GTT_USWC |                  \
	 AMDGPU_GEM_CREATE_VRAM_CLEARED | AMDGPU_GEM_CREATE_EXPLICIT_SYNC |                        \
	 AMDGPU_GEM_CREATE_DISCARDABLE | ALWAYS)
#define FLAGS_7_2                                                                                  \
	(AMDGPU_GEM_CREATE_VRAM_WIPE_ON_RELEASE | AMDGPU_GEM_CREATE_COHERENT |                     \
	 AMDGPU_GEM_CREATE_UNCACHED | AMDGPU_GEM_CREATE_EXT_COHERENT)

/* ---- GEM_CREATE: flags and domains ----------------------------------------------------------- */

static void each_kernel_takes_its_flags_and_no_others(void)
{
	FOR_EACH_KERNEL(kernel) {
		struct card card = card_open(kernel, "");
		bool is_6_1 = !strcmp(kernel, "6.1"), is_7_2 = !strcmp(kernel, "7.2");

		CHECK_EQ(bo_create_error(card.fd, PAGE, 0, VRAM, ANY_FLAGS), 0);
		CHECK_EQ(bo_create_error(card.fd, PAGE, 0, VRAM, AMDGPU_GEM_CREATE_NO_CPU_ACCESS),
		         0);
		CHECK_EQ(bo_create_error(card.fd, PAGE, 0, VRAM, AMDGPU_GEM_CREATE_GFX12_DCC),
		         is_6_1 ? -EINVAL : 0);
		for (uint64_t flag = 1; flag < 1 << 17; flag <<= 1)
			if (flag & FLAGS_7_2)
				CHECK_EQ(bo_create_error(card.fd, PAGE, 0, VRAM, flag),
				         is_7_2 ? 0 : -EINVAL);
		CHECK_EQ(bo_create_error(card.fd, PAGE, 0, VRAM, 1 << 4), -EINVAL);
		CHECK_EQ(bo_create_error(card.fd, PAGE, 0, VRAM, 1ULL << 40), -EINVAL);
		CHECK_EQ(stats(&card).refused, is_7_2 ? 2 : is_6_1 ? 7 : 6);
		card_close(&card);
	}
}

static void contiguous_vram_is_refused_everywhere(void)
{
	FOR_EACH_KERNEL(kernel) {
		struct card card = card_open(kernel, "");

		CHECK_EQ(bo_create_error(card.fd, PAGE, 0, VRAM, AMDGPU_GEM_CREATE_VRAM_CONTIGUOUS),
		         -EINVAL);
		card_close(&card);
	}
}

static void encrypted_buffers_need_a_card_with_tmz(void)
{
	struct card card = card_open("6.12", "");

	CHECK_EQ(bo_create_error(card.fd, PAGE, 0, VRAM, AMDGPU_GEM_CREATE_ENCRYPTED), -EINVAL);
	CHECK_EQ(stats(&card).refused, 0); /* it is known, and refused as the kernel does */
	card_close(&card);
}

static void onchip_domains_are_exclusive(void)
{
	static const uint32_t domains[] = { AMDGPU_GEM_DOMAIN_GDS, AMDGPU_GEM_DOMAIN_GWS,
		                            AMDGPU_GEM_DOMAIN_OA };
	struct card card = card_open("6.12", "");

	for (int i = 0; i < 3; i++) {
		CHECK_EQ(bo_create_error(card.fd, 1, 1, domains[i] | GTT, 0), -EINVAL);
		CHECK_EQ(bo_create_error(card.fd, 1, 1, domains[i] | domains[(i + 1) % 3], 0),
		         -EINVAL);
		CHECK_EQ(bo_create_error(card.fd, 1, 1, domains[i], ALWAYS), -EINVAL);
	}
	card_close(&card);
}

static void onchip_memory_is_counted(void)
{
	struct card card = card_open("6.12", "");
	uint32_t gws, more;

	CHECK_EQ(bo_try_create(card.fd, 40, 1, AMDGPU_GEM_DOMAIN_GWS, 0, &gws), 0);
	CHECK_EQ(bo_try_create(card.fd, 40, 1, AMDGPU_GEM_DOMAIN_GWS, 0, &more), -ENOMEM);
	CHECK_EQ(bo_create_error(card.fd, 16, 1, AMDGPU_GEM_DOMAIN_OA, 0), 0);
	CHECK_EQ(bo_close(card.fd, gws), 0);
	CHECK_EQ(bo_create_error(card.fd, 40, 1, AMDGPU_GEM_DOMAIN_GWS, 0), 0);
	card_close(&card);
}

static void unknown_domains_are_refused_and_counted(void)
{
	FOR_EACH_KERNEL(kernel) {
		struct card card = card_open(kernel, "");

		CHECK_EQ(bo_create_error(card.fd, PAGE, 0, AMDGPU_GEM_DOMAIN_DOORBELL, 0), -EINVAL);
		CHECK_EQ(bo_create_error(card.fd, PAGE, 0, VRAM | 0x100, 0), -EINVAL);
		CHECK_EQ(bo_create_error(card.fd, PAGE, 0, VRAM | 1ULL << 35, 0), -EINVAL);
		CHECK_EQ(stats(&card).refused, 3);
		card_close(&card);
	}
}

/* ---- GEM_CREATE: size and alignment ---------------------------------------------------------- */

static void nothing_has_no_room_for_itself(void)
{
	static const uint32_t domains[] = { VRAM, GTT, VRAM | GTT, AMDGPU_GEM_DOMAIN_CPU, 0,
		                            AMDGPU_GEM_DOMAIN_GDS };
	struct card card = card_open("6.12", "");

	for (size_t i = 0; i < sizeof(domains) / sizeof(*domains); i++)
		CHECK_EQ(bo_create_error(card.fd, 0, 0, domains[i], 0), -ENOSPC);
	card_close(&card);
}

static void a_buffer_is_smaller_than_its_heap(void)
{
	struct card card = card_sized("6.12", 64, 32, "");

	CHECK_EQ(bo_create_error(card.fd, 64 * MIB, 0, VRAM, 0), -ENOMEM);
	CHECK_EQ(bo_create_error(card.fd, 32 * MIB, 0, GTT, 0), -ENOMEM);
	/* GTT is what counts where it is an alternative. */
	CHECK_EQ(bo_create_error(card.fd, 48 * MIB, 0, VRAM | GTT, 0), -ENOMEM);
	CHECK_EQ(bo_create_error(card.fd, 32 * MIB - PAGE, 0, GTT, 0), 0);
	CHECK_EQ(bo_create_error(card.fd, 48 * MIB, 0, VRAM, 0), 0);
	card_close(&card);
}

static void a_vram_buffer_may_be_as_large_as_gtt(void)
{
	struct card card = card_sized("6.12", 32, 64, "");
	uint32_t handle;

	CHECK_EQ(bo_try_create(card.fd, 48 * MIB, 0, VRAM, 0, &handle), 0);
	CHECK_EQ(bo_heap(card.fd, handle), EMU_HEAP_GTT);
	CHECK_EQ(bo_info(card.fd, handle).domains, VRAM);
	card_close(&card);
}

static void far_too_much_is_no_memory(void)
{
	FOR_EACH_KERNEL(kernel) {
		struct card card = card_open(kernel, "");

		CHECK_EQ(bo_create_error(card.fd, 1000000000000, 0, VRAM, 0), -ENOMEM);
		CHECK_EQ(bo_create_error(card.fd, 1000000000000, 0, GTT, 0), -ENOMEM);
		CHECK_EQ(bo_create_error(card.fd, 1000000000000, 0, AMDGPU_GEM_DOMAIN_CPU, 0),
		         -ENOMEM);
		CHECK_EQ(bo_create_error(card.fd, 1ULL << 63, 0, VRAM, 0), -ENOMEM);
		CHECK_EQ(stats(&card).buffers, 0);
		card_close(&card);
	}
}

static void size_and_alignment_are_whole_pages(void)
{
	struct card card = card_open("6.12", "");
	struct drm_amdgpu_gem_create_in info;
	uint32_t handle;

	CHECK_EQ(bo_try_create(card.fd, 4097, 1, VRAM, ALWAYS, &handle), 0);
	info = bo_info(card.fd, handle);
	CHECK_EQ(info.bo_size, 8192);
	CHECK_EQ(info.alignment, 4096);
	CHECK_EQ(info.domains, VRAM);
	CHECK_EQ(info.domain_flags, ALWAYS | AMDGPU_GEM_CREATE_VRAM_CLEARED);
	CHECK_EQ(bo_close(card.fd, handle), 0);
	CHECK_EQ(bo_try_create(card.fd, 1, 0, GTT, 0, &handle), 0);
	CHECK_EQ(bo_info(card.fd, handle).bo_size, 4096);
	CHECK_EQ(bo_info(card.fd, handle).alignment, 0);
	card_close(&card);
}

static void vram_is_aligned_to_powers_of_two_only(void)
{
	FOR_EACH_KERNEL(kernel) {
		struct card card = card_open(kernel, "");

		CHECK_EQ(bo_create_error(card.fd, 64 * KIB, 3 * PAGE, VRAM, 0), -EINVAL);
		CHECK_EQ(bo_create_error(card.fd, 64 * KIB, 3 * PAGE, VRAM | GTT, 0), -EINVAL);
		CHECK_EQ(bo_create_error(card.fd, 64 * KIB, 3 * PAGE, GTT, 0), 0);
		CHECK_EQ(bo_create_error(card.fd, 64 * KIB, 16 * PAGE, VRAM, 0), 0);
		card_close(&card);
	}
}

/* ---- where they lie -------------------------------------------------------------------------- */

static void used_vram(const struct card *card, uint64_t *used)
{
	*used = stats(card).vram_used_bytes;
}

static void heaps_count_what_is_taken_from_them(void)
{
	struct card card = card_open("6.12", "");
	uint64_t before, after;
	uint32_t vram, gtt, cpu;

	used_vram(&card, &before);
	vram = bo_create_in(card.fd, 5 * MIB, VRAM, 0);
	gtt = bo_create_in(card.fd, 3 * MIB, GTT, 0);
	cpu = bo_create_in(card.fd, 7 * MIB, AMDGPU_GEM_DOMAIN_CPU, 0);
	used_vram(&card, &after);
	CHECK_EQ(after - before, 5 * MIB);
	CHECK_EQ(stats(&card).gtt_used_bytes, 3 * MIB);
	CHECK_EQ(stats(&card).buffers, 3);
	CHECK_EQ(bo_heap(card.fd, cpu), EMU_HEAP_NONE);
	CHECK_EQ(bo_wait(card.fd, vram), 0);
	CHECK_EQ(bo_close(card.fd, vram), 0);
	CHECK_EQ(bo_close(card.fd, gtt), 0);
	CHECK_EQ(bo_close(card.fd, cpu), 0);
	used_vram(&card, &after);
	CHECK_EQ(after, before);
	CHECK_EQ(stats(&card).gtt_used_bytes, 0);
	CHECK_EQ(stats(&card).buffers, 0);
	card_close(&card);
}

/* The least block of a buffer, in pages. */
static uint64_t block_least(const struct card *card, uint32_t handle)
{
	struct emu_file *file = emu_file_get(card->fd);
	const struct emu_bo *bo = emu_handle_find(file, handle)->bo;
	uint64_t least = UINT64_MAX;

	for (uint32_t i = 0; i < bo->block_count; i++)
		if (bo->blocks[i].pages < least)
			least = bo->blocks[i].pages;
	emu_file_put(file);
	return least;
}

static void fragment_vram(const struct card *card, uint32_t *handles, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		handles[i] = bo_create(card->fd, PAGE, 0);
	for (uint32_t i = 0; i < n; i += 2) {
		CHECK_EQ(bo_wait(card->fd, handles[i]), 0);
		CHECK_EQ(bo_close(card->fd, handles[i]), 0);
	}
}

/* before:   VRAM is free in pieces of 1 MiB only
 * request:  3 MiB         after: three of them
 * request:  4 MiB         after: others had to go, although 4 MiB were free */
static void whole_multiples_of_2_mib_get_blocks_of_2_mib(void)
{
	struct card card = card_sized("6.12", 32, 64, "");
	uint32_t handles[24];

	for (int i = 0; i < 24; i++)
		handles[i] = bo_create(card.fd, MIB, 0);
	(void)bo_create(card.fd, 4 * MIB, 0);
	(void)bo_create(card.fd, 2 * MIB, 0);
	for (int i = 0; i < 24; i += 2) {
		CHECK_EQ(bo_wait(card.fd, handles[i]), 0);
		CHECK_EQ(bo_close(card.fd, handles[i]), 0);
	}
	(void)bo_create(card.fd, 3 * MIB, 0);
	CHECK_EQ(stats(&card).evictions, 0);
	CHECK(block_least(&card, bo_create(card.fd, 4 * MIB, 0)) >= 512);
	CHECK(stats(&card).evictions > 0);
	card_close(&card);
}

static void others_get_blocks_of_their_alignment(void)
{
	struct card card = card_sized("6.12", 64, 64, "");
	uint32_t handles[512], handle;

	fragment_vram(&card, handles, 512);
	CHECK_EQ(bo_try_create(card.fd, MIB, 64 * KIB, VRAM, 0, &handle), 0);
	CHECK(block_least(&card, handle) >= 16);
	CHECK_EQ(bo_try_create(card.fd, PAGE, 64 * KIB, VRAM, 0, &handle), 0);
	CHECK_EQ(block_least(&card, handle), 16);
	card_close(&card);
}

static void system_pages_come_in_runs_of_at_most_4_mib(void)
{
	struct card card = card_open("6.12", "");
	struct emu_file *file = emu_file_get(card.fd);
	const struct emu_bo *bo;
	uint64_t run;

	bo = emu_handle_find(file, bo_create_in(card.fd, 64 * MIB, GTT, 0))->bo;
	CHECK_EQ(bo->block_count, 16);
	/* Those that follow one another are mapped as one. */
	(void)emu_bo_physical(bo, MIB, &run);
	CHECK_EQ(run, 63 * MIB);
	emu_file_put(file);
	card_close(&card);
}

/* ---- what is in them ------------------------------------------------------------------------- */

static uint64_t bytes_other_than(const uint8_t *view, uint64_t bytes, uint8_t value)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < bytes; i++)
		n += view[i] != value;
	return n;
}

/* How many bytes of a new buffer aren't zero after one in VRAM, all 0xa5, was freed. */
static uint64_t stale_bytes(const char *kernel, uint32_t domain, uint64_t flags)
{
	struct card card = card_open(kernel, "");
	uint32_t old = bo_create(card.fd, MIB, 0), new;
	uint8_t *view = bo_view(card.fd, old, MIB);
	uint64_t stale;

	memset(view, 0xa5, MIB);
	CHECK_EQ(munmap(view, MIB), 0);
	CHECK_EQ(bo_wait(card.fd, old), 0);
	CHECK_EQ(bo_close(card.fd, old), 0);
	new = bo_create_in(card.fd, MIB, domain, flags);
	CHECK_EQ(bo_wait(card.fd, new), 0);
	view = bo_view(card.fd, new, MIB);
	stale = bytes_other_than(view, MIB, 0);
	CHECK_EQ(munmap(view, MIB), 0);
	card_close(&card);
	return stale;
}

static void new_vram_of_6_1_has_what_others_left(void)
{
	CHECK_EQ(stale_bytes("6.1", VRAM, 0), MIB);
	CHECK_EQ(stale_bytes("6.1", VRAM, AMDGPU_GEM_CREATE_VRAM_CLEARED), 0);
	CHECK_EQ(stale_bytes("6.1", GTT, 0), 0);
}

static void new_vram_of_later_kernels_is_zero(void)
{
	CHECK_EQ(stale_bytes("6.12", VRAM, 0), 0);
	CHECK_EQ(stale_bytes("7.2", VRAM, 0), 0);
}

/* Bytes of the machine's memory that the card takes, once it has looked what nobody has mapped. */
static uint64_t machine_bytes(struct emu_gpu *gpu)
{
	struct stat status;

	pthread_mutex_lock(&gpu->lock);
	emu_left_review(gpu);
	pthread_mutex_unlock(&gpu->lock);
	CHECK_EQ(fstat(gpu->memory.fd, &status), 0);
	return (uint64_t)status.st_blocks * 512;
}

static void what_others_left_is_bounded_by_the_heap(void)
{
	struct card card = card_sized("6.1", 32, 32, "");
	struct emu_file *file = emu_file_get(card.fd);

	for (int i = 0; i < 40; i++) {
		uint64_t bytes = (i % 8 + 1) * MIB + (uint64_t)i * PAGE;
		uint64_t flags = i % 3 ? 0 : AMDGPU_GEM_CREATE_VRAM_CLEARED;
		uint32_t handle = bo_create(card.fd, bytes, flags);
		uint8_t *view = bo_view(card.fd, handle, bytes);

		memset(view, 0xa5, bytes);
		CHECK_EQ(munmap(view, bytes), 0);
		CHECK_EQ(bo_wait(card.fd, handle), 0);
		CHECK_EQ(bo_close(card.fd, handle), 0);
	}
	CHECK(machine_bytes(file->gpu) <= 32 * MIB);
	emu_file_put(file);
	card_close(&card);
}

static void freed_memory_goes_back_to_the_machine(void)
{
	struct card card = card_open("6.12", "");
	uint32_t handle = bo_create(card.fd, 8 * MIB, 0);
	uint8_t *view = bo_view(card.fd, handle, 8 * MIB);
	struct emu_file *file = emu_file_get(card.fd);

	memset(view, 1, 8 * MIB);
	CHECK_EQ(munmap(view, 8 * MIB), 0);
	CHECK_EQ(bo_wait(card.fd, handle), 0);
	CHECK_EQ(bo_close(card.fd, handle), 0);
	CHECK_EQ(machine_bytes(file->gpu), 0);
	emu_file_put(file);
	card_close(&card);
}

/* The clear job runs later than the process may write. */
static void clearing_never_undoes_what_the_process_wrote(void)
{
	FOR_EACH_KERNEL(kernel) {
		struct card card = card_open(kernel, "");
		uint32_t handle;
		uint8_t *view;

		vmkv_emulator_pause(card.gpu);
		handle = bo_create(card.fd, PAGE, AMDGPU_GEM_CREATE_VRAM_CLEARED);
		view = bo_view(card.fd, handle, PAGE);
		memset(view, 0x5a, PAGE);
		CHECK_EQ(bo_wait_until(card.fd, handle, 0), 1); /* it is still to be cleared */
		vmkv_emulator_resume(card.gpu);
		CHECK_EQ(bo_wait(card.fd, handle), 0);
		CHECK_EQ(bytes_other_than(view, PAGE, 0x5a), 0);
		CHECK_EQ(munmap(view, PAGE), 0);
		card_close(&card);
	}
}

/* ---- buffers that go before their mappings --------------------------------------------------- */

#define GONE 1000 /* more than may lie about */

/* A buffer that is closed while mapped: what it held stays in the mapping, and is nobody else's. */
static uint32_t *closed_map(int fd, uint32_t domains, uint32_t value)
{
	uint32_t bo = bo_create_in(fd, 4 * PAGE, domains, 0);
	uint32_t *words = bo_view(fd, bo, 4 * PAGE);

	words[0] = value;
	words[4 * PAGE / 4 - 1] = value;
	CHECK_EQ(bo_close(fd, bo), 0);
	return words;
}

static void a_mapping_keeps_what_a_closed_buffer_held(void)
{
	FOR_EACH_KERNEL(kernel) {
		struct card card = card_sized(kernel, 16, 16, "");
		uint32_t *words[20];

		for (uint32_t i = 0; i < 20; i++)
			words[i] = closed_map(card.fd, i & 1 ? VRAM : GTT, i + 1);
		/* More than the file has room for, so that what nobody has mapped is used again. */
		for (uint32_t i = 0; i < GONE; i++) {
			uint32_t bo = bo_create_in(card.fd, MIB, i & 1 ? VRAM : GTT, 0);
			uint32_t *view = bo_view(card.fd, bo, MIB);

			view[i] = ~0U;
			munmap(view, MIB);
			CHECK_EQ(bo_close(card.fd, bo), 0);
		}
		for (uint32_t i = 0; i < 20; i++) {
			CHECK_EQ(words[i][0], i + 1);
			CHECK_EQ(words[i][4 * PAGE / 4 - 1], i + 1);
			munmap(words[i], 4 * PAGE);
		}
		card_close(&card);
	}
}

/* What was mapped is given back after all. */
static void memory_that_was_mapped_comes_back(void)
{
	struct card card = card_sized("6.12", 16, 16, "");
	struct emu_file *file = emu_file_get(card.fd);
	struct stat status;

	for (uint32_t i = 0; i < GONE; i++) {
		uint32_t *words = closed_map(card.fd, GTT, 1);

		munmap(words, 4 * PAGE);
	}
	CHECK_EQ(fstat(file->gpu->memory.fd, &status), 0);
	CHECK((uint64_t)status.st_blocks * 512 < GONE * 2 * PAGE);
	CHECK_EQ(machine_bytes(file->gpu), 0);
	emu_file_put(file);
	card_close(&card);
}

int main(void)
{
	RUN(a_mapping_keeps_what_a_closed_buffer_held);
	RUN(memory_that_was_mapped_comes_back);
	RUN(each_kernel_takes_its_flags_and_no_others);
	RUN(contiguous_vram_is_refused_everywhere);
	RUN(encrypted_buffers_need_a_card_with_tmz);
	RUN(onchip_domains_are_exclusive);
	RUN(onchip_memory_is_counted);
	RUN(unknown_domains_are_refused_and_counted);
	RUN(nothing_has_no_room_for_itself);
	RUN(a_buffer_is_smaller_than_its_heap);
	RUN(a_vram_buffer_may_be_as_large_as_gtt);
	RUN(far_too_much_is_no_memory);
	RUN(size_and_alignment_are_whole_pages);
	RUN(vram_is_aligned_to_powers_of_two_only);
	RUN(heaps_count_what_is_taken_from_them);
	RUN(whole_multiples_of_2_mib_get_blocks_of_2_mib);
	RUN(others_get_blocks_of_their_alignment);
	RUN(system_pages_come_in_runs_of_at_most_4_mib);
	RUN(new_vram_of_6_1_has_what_others_left);
	RUN(new_vram_of_later_kernels_is_zero);
	RUN(what_others_left_is_bounded_by_the_heap);
	RUN(freed_memory_goes_back_to_the_machine);
	RUN(clearing_never_undoes_what_the_process_wrote);
	return 0;
}
