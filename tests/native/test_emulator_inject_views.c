/* SPDX-License-Identifier: MIT
 *
 * inject=: faults in which the GPU, and the process in the identity window, see something else than what
 * the page tables say.
 */
#include "inject_fixture.h"

static const char *kernel, *more;

/* ---- stale-translation ----------------------------------------------------------------------- */

/* Map `first`, take it away, map `second`; what is seen of pages on either end. */
static void remap(struct card *card, uint64_t address, uint64_t bytes, uint32_t *gpu, uint32_t *cpu)
{
	uint32_t first = bo_numbered(card->fd, bytes, 1000), second = bo_numbered(card->fd, bytes, 5000);
	uint64_t last = address + bytes - PAGE;

	CHECK_EQ(va_map(card->fd, first, 0, address, 0, bytes), 0);
	settle(card->fd);
	CHECK_EQ(gpu_sees(card, address), 1000u);
	CHECK_EQ(cpu_sees(last), 1000u + bytes / PAGE - 1);
	CHECK_EQ(va_unmap(card->fd, first, 0, address), 0);
	CHECK_EQ(va_map(card->fd, second, 0, address, 0, bytes), 0);
	settle(card->fd);
	CHECK_MAPPED(card->fd, last, second, bytes - PAGE);
	*gpu = gpu_sees(card, address);
	*cpu = cpu_sees(last) - (uint32_t)(bytes / PAGE) + 1;
	CHECK_EQ(gpu_write(card, address, 77), 0);
	CHECK_EQ(cpu_sees(address), 77u);
	*(uint32_t *)(uintptr_t)(last + 8) = 88;
	CHECK_EQ(gpu_sees(card, last + 8), 88u);
	CHECK_EQ(*(uint32_t *)bo_view(card->fd, *gpu == 1000 ? first : second, PAGE), 77u);
	CHECK_EQ(va_unmap(card->fd, second, 0, address), 0);
	settle(card->fd);
}

static void stale_translation_keeps_the_first_page(void)
{
	static const uint64_t sizes[] = { PAGE, 64 * KIB, 2 * MIB, 4 * MIB };
	struct card broken = card_with(kernel, "stale-translation", more),
	            sound = card_with(kernel, "", more);
	uint32_t gpu, cpu;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		remap(&broken, card_window(&broken) + i * 8 * MIB, sizes[i], &gpu, &cpu);
		CHECK_EQ(gpu, 1000u);
		CHECK_EQ(cpu, 1000u);
		remap(&sound, card_window(&sound) + i * 8 * MIB, sizes[i], &gpu, &cpu);
		CHECK_EQ(gpu, 5000u);
		CHECK_EQ(cpu, 5000u);
	}
	card_close(&broken);
	card_close(&sound);
}

/* Unmapped it faults; an address that is new is sound, and so is a page that had another address. */
static void stale_translation_harms_no_new_address(void)
{
	struct card card = card_with(kernel, "stale-translation", more);
	uint64_t window = card_window(&card);
	uint32_t bo = bo_numbered(card.fd, 64 * KIB, 10), value;

	CHECK_EQ(va_map(card.fd, bo, 0, window, 0, 64 * KIB), 0);
	settle(card.fd);
	CHECK_EQ(gpu_sees(&card, window + PAGE), 11u);
	CHECK_EQ(va_unmap(card.fd, bo, 0, window), 0);
	settle(card.fd);
	CHECK_EQ(gpu_read(&card, window, &value), -ECANCELED);
	for (uint32_t i = 1; i < 4; i++) {
		uint64_t address = window + i * 64 * KIB;

		CHECK_EQ(va_map(card.fd, bo, 0, address, 0, 64 * KIB), 0);
		settle(card.fd);
		CHECK_EQ(gpu_sees(&card, address + PAGE), 11u);
		CHECK_EQ(cpu_sees(address + 2 * PAGE), 12u);
	}
	card_close(&card);
}

/* Part of what was mapped before is enough; the rest of the new mapping is sound. */
static void stale_translation_is_by_page(void)
{
	struct card card = card_with(kernel, "stale-translation", more);
	uint64_t window = card_window(&card);
	uint32_t old = bo_numbered(card.fd, 64 * KIB, 100), new = bo_numbered(card.fd, 64 * KIB, 500);

	CHECK_EQ(va_map(card.fd, old, 0, window + 4 * PAGE, 0, 2 * PAGE), 0);
	CHECK_EQ(va_clear(card.fd, 0, window, 64 * KIB), 0);
	CHECK_EQ(va_map(card.fd, new, 0, window, 0, 64 * KIB), 0);
	settle(card.fd);
	for (uint32_t page = 0; page < 16; page++) {
		uint32_t right = page == 4 || page == 5 ? 96 + page : 500 + page;

		CHECK_EQ(gpu_sees(&card, window + page * PAGE), right);
		CHECK_EQ(cpu_sees(window + page * PAGE), right);
	}
	card_close(&card);
}

/* The old page's memory was freed: nothing is read there, and it doesn't crash. */
static void stale_translation_of_freed_memory_is_zeros(void)
{
	struct card card = card_with(kernel, "stale-translation", more);
	uint64_t window = card_window(&card);
	uint32_t old = bo_numbered(card.fd, 64 * KIB, 100), new = bo_numbered(card.fd, 64 * KIB, 500);

	CHECK_EQ(va_map(card.fd, old, 0, window, 0, 64 * KIB), 0);
	settle(card.fd);
	CHECK_EQ(bo_close(card.fd, old), 0);
	settle(card.fd);
	CHECK_EQ(va_map(card.fd, new, 0, window, 0, 64 * KIB), 0);
	settle(card.fd);
	CHECK_EQ(gpu_sees(&card, window), 0u);
	CHECK_EQ(cpu_sees(window), 0u);
	card_close(&card);
}

/* Another file begins anew. */
static void stale_translation_is_a_files(void)
{
	struct card card = card_with(kernel, "stale-translation", more);
	struct card other = { .gpu = card.gpu };
	uint32_t gpu, old = bo_numbered(card.fd, PAGE, 100), new;

	CHECK_EQ(va_map(card.fd, old, 0, VA, 0, PAGE), 0);
	CHECK_EQ(va_unmap(card.fd, old, 0, VA), 0);
	settle(card.fd);
	CHECK_EQ(vmkv_emulator_open(other.gpu, &other.fd), 0);
	new = bo_numbered(other.fd, PAGE, 500);
	CHECK_EQ(va_map(other.fd, new, 0, VA, 0, PAGE), 0);
	settle(other.fd);
	CHECK_EQ(gpu_read(&other, VA, &gpu), 0);
	CHECK_EQ(gpu, 500u);
	CHECK_EQ(vmkv_emulator_close(other.fd), 0);
	munmap(other.ib_view, PAGE);
	munmap(other.result_view, PAGE);
	card_close(&card);
}

/* ---- unmap-ignored --------------------------------------------------------------------------- */

static void unmap_ignored_leaves_the_page_in_reach(void)
{
	for (int op = 0; op < 3; op++) {
		struct card broken = card_with(kernel, "unmap-ignored", more),
		            sound = card_with(kernel, "", more);
		struct card *cards[] = { &broken, &sound };

		for (int i = 0; i < 2; i++) {
			struct card *card = cards[i];
			uint64_t window = card_window(card);
			uint32_t bo = bo_numbered(card->fd, 64 * KIB, 10), value = 0;
			uint32_t next = bo_numbered(card->fd, 64 * KIB, 90);

			CHECK_EQ(va_map(card->fd, bo, 0, window, 0, 64 * KIB), 0);
			if (op == 0)
				CHECK_EQ(va_unmap(card->fd, bo, 0, window), 0);
			else if (op == 1)
				CHECK_EQ(va_clear(card->fd, 0, window, 64 * KIB), 0);
			else
				CHECK_EQ(va_op(card->fd, AMDGPU_VA_OP_REPLACE, 0, PRT, window, 0,
				               64 * KIB), 0);
			settle(card->fd);
			CHECK_UNMAPPED(card->fd, window + PAGE);
			CHECK_EQ(gpu_read(card, window + PAGE, &value),
			         op == 2 || card == &broken ? 0 : -ECANCELED);
			CHECK_EQ(value, card == &broken ? 11u : 0u);
			if (card == &broken) {
				CHECK_EQ(cpu_sees(window + 2 * PAGE), 12u);
				CHECK_EQ(gpu_write(card, window, 33), 0);
				CHECK_EQ(*(uint32_t *)bo_view(card->fd, bo, PAGE), 33u);
			}
			CHECK_EQ(va_clear(card->fd, 0, window, 64 * KIB), 0);
			CHECK_EQ(va_map(card->fd, next, 0, window, 0, 64 * KIB), 0);
			settle(card->fd);
			CHECK_EQ(gpu_sees(card, window + PAGE), 91u);
			CHECK_EQ(cpu_sees(window + PAGE), 91u);
		}
		card_close(&broken);
		card_close(&sound);
	}
}

/* ---- alias-diverges -------------------------------------------------------------------------- */

static void alias_diverges_while_there_are_two(void)
{
	struct card broken = card_with(kernel, "alias-diverges", more), sound = card_with(kernel, "", more);
	struct card *cards[] = { &broken, &sound };

	for (int i = 0; i < 2; i++) {
		struct card *card = cards[i];
		uint64_t one = card_window(card), two = one + 16 * MIB;
		uint32_t bo = bo_numbered(card->fd, 4 * MIB, 10), *view = bo_view(card->fd, bo, 4 * MIB);
		bool broken_one = card == &broken;

		CHECK_EQ(va_map(card->fd, bo, 0, one, 0, 4 * MIB), 0);
		CHECK_EQ(va_map(card->fd, bo, 0, two, 0, 4 * MIB), 0);
		settle(card->fd);
		CHECK_EQ(gpu_sees(card, two + MIB), 266u);
		CHECK_EQ(cpu_sees(two + MIB + PAGE), 267u);
		CHECK_EQ(gpu_write(card, one, 1), 0);
		CHECK_EQ(gpu_write(card, two + PAGE, 2), 0);
		*(volatile uint32_t *)(uintptr_t)(two + 2 * PAGE) = 3;
		CHECK_EQ(gpu_sees(card, two), broken_one ? 10u : 1u);
		CHECK_EQ(cpu_sees(two), broken_one ? 10u : 1u);
		CHECK_EQ(gpu_sees(card, one + PAGE), broken_one ? 11u : 2u);
		CHECK_EQ(cpu_sees(one + 2 * PAGE), broken_one ? 12u : 3u);
		CHECK_EQ(gpu_sees(card, two + 2 * PAGE), 3u);
		CHECK_EQ(view[0], 1u);
		CHECK_EQ(view[PAGE / 4], broken_one ? 11u : 2u);
		munmap(view, 4 * MIB);
	}
	card_close(&broken);
	card_close(&sound);
}

/* The second goes: what was written through it is lost. The first goes: it becomes what the page has. */
static void alias_agrees_again_with_itself(void)
{
	struct card card = card_with(kernel, "alias-diverges", more);
	uint64_t one = card_window(&card), two = one + 16 * MIB, three = one + 32 * MIB;
	uint32_t bo = bo_numbered(card.fd, 64 * KIB, 10), *view = bo_view(card.fd, bo, 64 * KIB);

	CHECK_EQ(va_map(card.fd, bo, 0, one, 0, 64 * KIB), 0);
	CHECK_EQ(va_map(card.fd, bo, 0, two, 0, 64 * KIB), 0);
	settle(card.fd);
	CHECK_EQ(gpu_write(&card, two, 2), 0);
	CHECK_EQ(va_unmap(card.fd, bo, 0, two), 0);
	CHECK_EQ(va_map(card.fd, bo, 0, two, 0, 64 * KIB), 0);
	settle(card.fd);
	CHECK_EQ(gpu_sees(&card, two), 10u);
	CHECK_EQ(gpu_write(&card, two, 3), 0);
	CHECK_EQ(va_map(card.fd, bo, 0, three, 0, 64 * KIB), 0);
	settle(card.fd);
	CHECK_EQ(gpu_write(&card, three, 4), 0);
	CHECK_EQ(va_unmap(card.fd, bo, 0, one), 0);
	settle(card.fd);
	CHECK_EQ(view[0], 3u);
	CHECK_EQ(gpu_sees(&card, three), 4u);
	CHECK_EQ(gpu_write(&card, two + PAGE, 5), 0);
	CHECK_EQ(view[PAGE / 4], 5u);
	CHECK_EQ(cpu_sees(two + PAGE), 5u);
	CHECK_EQ(va_unmap(card.fd, bo, 0, three), 0);
	settle(card.fd);
	view[2 * PAGE / 4] = 6;
	CHECK_EQ(cpu_sees(two + 2 * PAGE), 6u);
	CHECK_EQ(gpu_sees(&card, two + 2 * PAGE), 6u);
	munmap(view, 64 * KIB);
	card_close(&card);
}

/* One address after the other is harmless, in the same job too; nor do other pages of a buffer matter. */
static void alias_needs_both_at_once(void)
{
	struct card card = card_with(kernel, "alias-diverges", more);
	uint64_t window = card_window(&card);
	uint32_t bo = bo_numbered(card.fd, 2 * MIB, 10);

	for (uint32_t i = 0; i < 4; i++) {
		uint64_t address = window + i * 2 * MIB;

		CHECK_EQ(va_map(card.fd, bo, DELAY, address, 0, 64 * KIB), 0);
		CHECK_EQ(va_map(card.fd, bo, DELAY, address + MIB, MIB, 64 * KIB), 0);
		CHECK_EQ(cs_nop(&card, &bo, 1), 0);
		CHECK_EQ(gpu_sees(&card, address), 10 + i);
		CHECK_EQ(gpu_write(&card, address, 11 + i), 0);
		CHECK_EQ(cpu_sees(address), 11 + i);
		CHECK_EQ(va_unmap(card.fd, bo, DELAY, address), 0);
		CHECK_EQ(va_unmap(card.fd, bo, DELAY, address + MIB), 0);
	}
	card_close(&card);
}

/* ---- moves ----------------------------------------------------------------------------------- */

/* A buffer that is evicted keeps its copies apart, goes stale nowhere and isn't new anywhere. */
static void moves_change_nothing(void)
{
	static const char *const faults[] = {
		"", "alias-diverges", "stale-translation", "late-visibility",
		"stale-translation,late-visibility,alias-diverges,unmap-ignored",
	};

	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		struct card card = card_with(kernel, faults[i], more);
		uint64_t one = card_window(&card), two = one + 16 * MIB;
		bool diverges = strstr(faults[i], "alias"), late = strstr(faults[i], "late");
		uint32_t bo = bo_numbered(card.fd, 16 * MIB, 10);

		CHECK_EQ(va_map(card.fd, bo, 0, one, 0, 16 * MIB), 0);
		CHECK_EQ(va_map(card.fd, bo, 0, two, 0, 16 * MIB), 0);
		settle(card.fd);
		sleep_us(late ? LATE_US : 0);
		CHECK_EQ(gpu_write(&card, two, 5), 0);
		bo_create(card.fd, 1012 * MIB, 0);
		CHECK(stats(&card).evictions > 0);
		CHECK_EQ(gpu_sees(&card, one), diverges ? 10u : 5u);
		CHECK(walk(card.fd, one).physical >= GIB);
		CHECK_EQ(gpu_sees(&card, two), 5u);
		CHECK_EQ(cpu_sees(two), 5u);
		CHECK_EQ(gpu_sees(&card, one + 8 * MIB), 2058u);
		CHECK_EQ(cpu_sees(one + 8 * MIB), 2058u);
		card_close(&card);
	}
}

/* What is stale stays so when the buffer that should be there moves. */
static void stale_stays_stale(void)
{
	struct card card = card_with(kernel, "stale-translation", more);
	uint64_t window = card_window(&card);
	uint32_t old = bo_create_in(card.fd, MIB, GTT, 0), new = bo_numbered(card.fd, 16 * MIB, 500);
	uint32_t *view = bo_view(card.fd, old, MIB);

	view[0] = 100;
	CHECK_EQ(va_map(card.fd, old, 0, window, 0, MIB), 0);
	CHECK_EQ(va_unmap(card.fd, old, 0, window), 0);
	CHECK_EQ(va_map(card.fd, new, 0, window, 0, 16 * MIB), 0);
	settle(card.fd);
	bo_create(card.fd, 1012 * MIB, 0);
	CHECK_EQ(gpu_sees(&card, window + MIB), 756u);
	CHECK(walk(card.fd, window).physical >= GIB);
	CHECK_EQ(gpu_sees(&card, window), 100u);
	CHECK_EQ(cpu_sees(window), 100u);
	munmap(view, MIB);
	card_close(&card);
}

int main(void)
{
	for (int cpu = 0; cpu < 2; cpu++) {
		more = cpu ? "&vm_update=cpu" LATE : LATE;
		FOR_EACH_KERNEL(name) {
			kernel = name;
			RUN(stale_translation_keeps_the_first_page);
			RUN(stale_translation_harms_no_new_address);
			RUN(stale_translation_is_by_page);
			RUN(stale_translation_of_freed_memory_is_zeros);
			RUN(stale_translation_is_a_files);
			RUN(unmap_ignored_leaves_the_page_in_reach);
			RUN(alias_diverges_while_there_are_two);
			RUN(alias_agrees_again_with_itself);
			RUN(alias_needs_both_at_once);
			RUN(moves_change_nothing);
			RUN(stale_stays_stale);
		}
	}
	return 0;
}
