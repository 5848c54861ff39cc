/* SPDX-License-Identifier: MIT
 *
 * Answers that never change.
 */
#ifndef EMU_KEPT_H
#define EMU_KEPT_H

#include <sys/uio.h>

#include "preload.h"

#define KEPT_ARGUMENT 64
#define KEPT_POINTERS 3

struct kept_question {
	uint32_t kind; /* enum emu_constant */
	unsigned long request;
	uint8_t argument[KEPT_ARGUMENT];
	uint64_t pointers[KEPT_POINTERS];
};

struct kept;

/* False: its answer may change, or the argument can't be read. */
bool kept_question(unsigned long request, void *argument, struct kept_question *ret);
const struct kept *kept_find(const struct kept_question *question); /* NULL: none yet */
/* What the ioctl returns, or -EFAULT. */
int kept_answer(const struct kept *answer, const struct kept_question *question, void *argument);
/* The answer that has come, with its outputs. */
void kept_add(const struct kept_question *question, const struct emu_channel *channel);

/* connection.c: 0, or -EFAULT. */
int preload_self_copy(void *local_bytes, void *remote_bytes, size_t n, bool in);
int preload_self_write(struct iovec *from, struct iovec *to, int n);

#endif
