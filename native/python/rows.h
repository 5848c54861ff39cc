/* SPDX-License-Identifier: MIT
 *
 * The rows that `vmkv replay` writes, and the same rows written by a plain loop: what that costs
 * with nothing around it. Compiled into the extension module, so that it doesn't pay for Python.
 */
#ifndef VMKV_ROWS_H
#define VMKV_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* One tensor of one layer of a sequence. Rows are cut out of a bank of numbers one after the other;
 * it begins anew after period_bytes, and goes on for a write's length beyond. */
struct vmkv_rows_line {
	uint64_t address; /* of token 0 */
	uint64_t bank;    /* an address, too */
	uint64_t period_bytes;
	uint64_t start; /* where in the bank token 0 begins */
	uint64_t row_bytes;
};

/* Memory that grows as its sequence does: that of one line, or of interleaved ones. */
struct vmkv_rows_area {
	uint64_t address;     /* of token 0 */
	uint64_t token_bytes; /* from one token to the next */
	uint64_t line_first, line_count;
};

/* Write tokens [first, last) of all lines. Pages of the size that the cache maps by are filled into
 * the page tables when a write enters them, which costs less than a fault for each of the system's;
 * but not those that end at or below warm_tokens, which are there already. */
void vmkv_rows_write(const struct vmkv_rows_area *areas, size_t area_count,
                     const struct vmkv_rows_line *lines, uint64_t first, uint64_t last,
                     uint64_t page_bytes, uint64_t warm_tokens);

/* Tokens that were written by one call of the above, or all at once for a state. */
struct vmkv_rows_written {
	uint64_t lines; /* the address of the first vmkv_rows_line */
	uint64_t line_count;
	uint64_t first, last;
};

/* Write the same rows to plain memory of that size, one behind the other from byte *at on, and over
 * it again from the beginning when its end is reached. Only the loop is timed. Returns 0, or
 * -EINVAL if a row doesn't fit. */
int vmkv_rows_floor(const struct vmkv_rows_written *written, size_t count, uint64_t memory,
                    uint64_t bytes, uint64_t *at, uint64_t *ret_ns);

#endif
