/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <signal.h>
#include <time.h>

#include "entry.h"

int emu_thread_start(pthread_t *ret, void *(*run)(void *), void *argument)
{
	static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL };
	sigset_t all, before;
	int error;

	/* The card isn't one of the program's threads: no signal is for it to handle. But a fault of its
	 * own, blocked, would end the process without a word to the program's handler. */
	sigfillset(&all);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		sigdelset(&all, faults[i]);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(ret, NULL, run, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error ? -ENOMEM : 0;
}

int emu_condition_init(pthread_cond_t *condition)
{
	pthread_condattr_t attributes;
	int error = pthread_condattr_init(&attributes);

	if (error)
		return -error;
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	error = pthread_cond_init(condition, &attributes);
	pthread_condattr_destroy(&attributes);
	return -error;
}
