/* SPDX-License-Identifier: MIT
 *
 * How a test reads and writes memory by GPU addresses: as the CPU does, where they are addresses of the
 * process; else by the device's own copy engine, to and from a buffer that both reach.
 */
#ifndef MEMORY_ACCESS_H
#define MEMORY_ACCESS_H

#include "device.h"

struct memory_word {
	uint64_t address; /* of 8 bytes */
	uint64_t value;
};

struct memory_access;

/* device: the one that gives the memory, with no checking one around it; ends the test if it has neither
 * way. Of several threads one call runs after the other. */
struct memory_access *memory_access_create(struct vmkv_device *device);
void memory_access_destroy(struct memory_access *access);

/* All addresses must have memory behind them: the test ends at one that hasn't. */
void memory_words_read(struct memory_access *access, struct memory_word *words, size_t n);
void memory_words_write(struct memory_access *access, const struct memory_word *words, size_t n);

#endif
