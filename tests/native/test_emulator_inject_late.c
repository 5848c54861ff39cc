/* SPDX-License-Identifier: MIT
 *
 * inject=late-visibility: what is mapped is seen only some time later.
 */
#include "inject_fixture.h"

static const char *kernel;

/* What is found of a new mapping at once: by the process, by the GPU, and of what both store. Returns
 * whether that took less time than it is hidden for, which a busy machine may fail at. */
static bool look_at_once(struct card *card, uint32_t bo, uint64_t address, uint32_t *cpu, uint32_t *gpu)
{
	uint64_t began = now_us();

	CHECK_EQ(va_map(card->fd, bo, 0, address, 0, 4 * MIB), 0);
	settle(card->fd);
	CHECK_MAPPED(card->fd, address + PAGE, bo, PAGE);
	*cpu = cpu_sees(address + MIB);
	*(volatile uint32_t *)(uintptr_t)(address + 2 * PAGE) = 888;
	*gpu = gpu_sees(card, address);
	CHECK_EQ(gpu_write(card, address + PAGE, 777), 0);
	return now_us() < began + LATE_US / 2;
}

static void late_visibility_shows_zeros_and_loses_stores(void)
{
	struct card broken = card_with(kernel, "late-visibility", LATE), sound = card_with(kernel, "", "");
	struct card *cards[] = { &sound, &broken };

	sleep_us(LATE_US);
	for (int i = 0, late = 0; i < 2; late = ++i) {
		struct card *card = cards[i];
		uint64_t window = card_window(card);
		uint32_t bo, cpu, gpu, *view;
		int tries = 0;

		do {
			CHECK(++tries < 100);
			window += 4 * MIB;
			bo = bo_numbered(card->fd, 4 * MIB, 10);
		} while (!look_at_once(card, bo, window, &cpu, &gpu) && late);
		CHECK_EQ(cpu, late ? 0u : 266u);
		CHECK_EQ(gpu, late ? 0u : 10u);
		sleep_us(LATE_US);
		view = bo_view(card->fd, bo, 4 * MIB);
		CHECK_EQ(gpu_sees(card, window), 10u);
		CHECK_EQ(gpu_sees(card, window + PAGE), late ? 11u : 777u);
		CHECK_EQ(cpu_sees(window + 2 * PAGE), late ? 12u : 888u);
		CHECK_EQ(view[2 * PAGE / 4], late ? 12u : 888u);
		CHECK_EQ(gpu_write(card, window + PAGE, 999), 0);
		CHECK_EQ(cpu_sees(window + PAGE), 999u);
		munmap(view, 4 * MIB);
	}
	card_close(&broken);
	card_close(&sound);
}

/* Who waits as long as was said after the fence sees everything, time and again. */
static void late_visibility_is_over_in_time(void)
{
	struct card card = card_with(kernel, "late-visibility", "&late_us=20000");
	uint64_t window = card_window(&card);

	sleep_us(20000);
	for (uint32_t i = 0; i < 12; i++) {
		uint64_t bytes = i % 3 == 2 ? 2 * MIB : 64 * KIB, address = window + i % 5 * 2 * MIB;
		uint32_t bo = bo_numbered(card.fd, bytes, 10 * i);

		CHECK_EQ(va_map(card.fd, bo, 0, address, 0, bytes), 0);
		settle(card.fd);
		sleep_us(20000);
		CHECK_EQ(gpu_sees(&card, address + PAGE), 10 * i + 1); /* an ioctl shows what is due */
		CHECK_EQ(cpu_sees(address + bytes - PAGE), 10 * i + bytes / PAGE - 1);
		CHECK_EQ(va_unmap(card.fd, bo, 0, address), 0);
	}
	card_close(&card);
}

/* What was taken away before it was seen is never shown. */
static void late_visibility_forgets_what_is_unmapped(void)
{
	struct card card = card_with(kernel, "late-visibility", "&late_us=50000");
	uint64_t window = card_window(&card);
	uint32_t one = bo_numbered(card.fd, 64 * KIB, 10), two = bo_numbered(card.fd, 64 * KIB, 90), value;

	CHECK_EQ(va_map(card.fd, one, 0, window, 0, 64 * KIB), 0);
	CHECK_EQ(va_map(card.fd, one, 0, window + MIB, 0, 64 * KIB), 0);
	CHECK_EQ(va_unmap(card.fd, one, 0, window), 0);
	CHECK_EQ(va_unmap(card.fd, one, 0, window + MIB), 0);
	CHECK_EQ(va_map(card.fd, two, 0, window + MIB, 0, 64 * KIB), 0);
	settle(card.fd);
	sleep_us(50000);
	CHECK_EQ(gpu_sees(&card, window + MIB), 90u);
	CHECK_EQ(cpu_sees(window + MIB + PAGE), 91u);
	CHECK_EQ(gpu_read(&card, window, &value), -ECANCELED);
	card_close(&card);
}

/* Half the time for the process, of which a slow machine may have spent more by then. */
static void late_visibility_counts_from_the_last_mapping(void)
{
	struct card card = card_with(kernel, "late-visibility", LATE);
	uint64_t window = card_window(&card);
	uint32_t bo = bo_numbered(card.fd, 64 * KIB, 10), seen;
	uint64_t began;

	CHECK_EQ(va_map(card.fd, bo, 0, window, 0, 64 * KIB), 0);
	settle(card.fd);
	sleep_us(LATE_US * 2 / 5);
	began = now_us();
	CHECK_EQ(va_unmap(card.fd, bo, 0, window), 0);
	CHECK_EQ(va_map(card.fd, bo, 0, window, 0, 64 * KIB), 0);
	settle(card.fd);
	sleep_us(LATE_US / 5);
	seen = cpu_sees(window);
	if (now_us() < began + LATE_US * 2 / 5)
		CHECK_EQ(seen, 0u);
	sleep_us(LATE_US);
	CHECK_EQ(gpu_sees(&card, window), 10u);
	CHECK_EQ(cpu_sees(window), 10u);
	card_close(&card);
}

/* By the thread alone, with no ioctl to help it. */
static void late_visibility_ends_by_itself(void)
{
	struct card card = card_with(kernel, "late-visibility", "&late_us=10000");
	uint64_t window = card_window(&card);
	uint32_t bo = bo_numbered(card.fd, 64 * KIB, 10);

	CHECK_EQ(va_map(card.fd, bo, 0, window, 0, 64 * KIB), 0);
	settle(card.fd);
	for (int i = 0; i < 1000 && cpu_sees(window) == 0; i++)
		sleep_us(10000);
	CHECK_EQ(cpu_sees(window), 10u);
	card_close(&card);
}

int main(void)
{
	FOR_EACH_KERNEL(name) {
		kernel = name;
		RUN(late_visibility_shows_zeros_and_loses_stores);
		RUN(late_visibility_is_over_in_time);
		RUN(late_visibility_forgets_what_is_unmapped);
		RUN(late_visibility_ends_by_itself);
		RUN(late_visibility_counts_from_the_last_mapping);
	}
	return 0;
}
