/* SPDX-License-Identifier: MIT
 *
 * break=: the deliberate errors of the emulated kernel, each of which other tests would notice.
 */
#include "vm_fixture.h"

static const char *kernel;

static void break_flush_all_is_seen(void)
{
	struct card broken = card_open(kernel, "&break=flush-all");
	uint32_t one = bo_create(broken.fd, HUGE, 0), two = bo_create(broken.fd, HUGE, 0);

	CHECK_EQ(va_map(broken.fd, one, DELAY, VA, 0, PAGE), 0);
	CHECK_EQ(va_map(broken.fd, two, 0, VA + HUGE, 0, PAGE), 0);
	CHECK_MAPPED(broken.fd, VA, one, 0);
	card_close(&broken);
}

static void break_clean_split_is_seen(void)
{
	struct card broken = card_open(kernel, "&break=clean-split");
	uint32_t bo = bo_create(broken.fd, HUGE, 0);

	CHECK_EQ(va_map(broken.fd, bo, 0, VA, 0, HUGE), 0);
	CHECK_EQ(va_clear(broken.fd, 0, VA + 64 * KIB, 64 * KIB), 0);
	CHECK_MAPPED(broken.fd, VA, bo, 0);
	CHECK_MAPPED(broken.fd, VA + MIB, bo, MIB);
	CHECK_EQ(va_clear(broken.fd, DELAY, VA + 256 * KIB, 64 * KIB), 0);
	CHECK_EQ(va_unmap(broken.fd, bo, 0, VA), 0);
	CHECK_UNMAPPED(broken.fd, VA);
	card_close(&broken);
}

static void break_ignore_delay_is_seen(void)
{
	struct card broken = card_open(kernel, "&break=ignore-delay");
	uint32_t bo = bo_create(broken.fd, HUGE, 0);

	CHECK_EQ(va_map(broken.fd, bo, DELAY, VA, 0, PAGE), 0);
	CHECK_MAPPED(broken.fd, VA, bo, 0);
	card_close(&broken);
}

int main(void)
{
	FOR_EACH_KERNEL(name) {
		kernel = name;
		RUN(break_flush_all_is_seen);
		RUN(break_clean_split_is_seen);
		RUN(break_ignore_delay_is_seen);
	}
	return 0;
}
