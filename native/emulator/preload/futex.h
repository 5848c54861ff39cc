/* SPDX-License-Identifier: MIT
 *
 * Waiting for the other side of a channel. Each side first looks for a while: a wake-up takes longer than
 * most requests.
 */
#ifndef EMU_FUTEX_H
#define EMU_FUTEX_H

#include <errno.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "protocol.h"

/* Longer than a wake-up takes: or two sides that sleep by turns, after some delay, would go on like that. */
#define EMU_SPIN_NS 100000
#define EMU_LOOKS 32 /* between two looks at the clock */
#define EMU_SKIPS_MOST 64

/* Looking is worth it while the other side has a processor of its own. Each time that it was in vain, it is
 * left out for longer: on a busy machine it would keep the other side from running. */
struct emu_spin {
	uint32_t skips, skips_next;
	bool never; /* there is one processor */
};

static inline uint64_t emu_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline void emu_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static inline bool emu_channel_is(struct emu_channel *channel, uint32_t state)
{
	uint32_t now = __atomic_load_n(&channel->state, __ATOMIC_SEQ_CST);

	return now == state || now == EMU_CHANNEL_GONE;
}

static inline bool emu_channel_look(struct emu_channel *channel, uint32_t state)
{
	uint64_t began = emu_clock_ns();

	do {
		for (int i = 0; i < EMU_LOOKS; i++) {
			if (emu_channel_is(channel, state))
				return true;
			emu_pause();
		}
	} while (emu_clock_ns() - began < EMU_SPIN_NS);
	return false;
}

static inline bool emu_channel_spin(struct emu_channel *channel, uint32_t state, struct emu_spin *spin)
{
	if (spin->never || spin->skips) {
		spin->skips -= !spin->never;
		return emu_channel_is(channel, state);
	}
	if (emu_channel_look(channel, state)) {
		spin->skips_next /= 2;
		return true;
	}
	if (spin->skips_next < EMU_SKIPS_MOST)
		spin->skips_next = 2 * spin->skips_next + 1;
	spin->skips = spin->skips_next;
	return false;
}

/* Wait until the channel has that state, or until it is told to have gone, or `may_stop` says so, which is
 * asked each second. */
static inline bool emu_channel_await(struct emu_channel *channel, uint32_t state, uint32_t *sleeps,
                                     struct emu_spin *spin, bool (*may_stop)(void *),
                                     void *what)
{
	struct timespec second = { .tv_sec = 1 };

	if (emu_channel_spin(channel, state, spin))
		return true;
	for (;;) {
		uint32_t now;

		__atomic_store_n(sleeps, 1, __ATOMIC_SEQ_CST);
		now = __atomic_load_n(&channel->state, __ATOMIC_SEQ_CST);
		if (now != state && now != EMU_CHANNEL_GONE &&
		    syscall(SYS_futex, &channel->state, FUTEX_WAIT, now, may_stop ? &second : NULL,
		            NULL, 0) &&
		    errno == ETIMEDOUT && may_stop(what))
			return false;
		__atomic_store_n(sleeps, 0, __ATOMIC_SEQ_CST);
		if (emu_channel_is(channel, state))
			return true;
	}
}

static inline void emu_channel_set(struct emu_channel *channel, uint32_t state, uint32_t *sleeps)
{
	__atomic_store_n(&channel->state, state, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(sleeps, __ATOMIC_SEQ_CST))
		(void)syscall(SYS_futex, &channel->state, FUTEX_WAKE, 1, NULL, NULL, 0);
}

#endif
