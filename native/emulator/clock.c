/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <time.h>

#include "entry.h"

/* How much later than asked clock_nanosleep may return. */
#define OVERSLEEP_NS 120000

uint64_t emu_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void emu_wait_until_ns(uint64_t when)
{
	uint64_t now = emu_now_ns();

	if (now + 2 * OVERSLEEP_NS < when) {
		uint64_t until = when - OVERSLEEP_NS;
		struct timespec time = { .tv_sec = (time_t)(until / 1000000000),
			                 .tv_nsec = (long)(until % 1000000000) };

		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
			;
	}
	while (emu_now_ns() < when)
		;
}
