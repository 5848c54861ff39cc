/* SPDX-License-Identifier: MIT
 *
 * Small things that every part needs: structs versioned by struct_size, one-line texts, sizes,
 * times.
 */
#ifndef VMKV_UTIL_H
#define VMKV_UTIL_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Take a caller's struct, which begins with its struct_size, into dst of the library's size. What
 * the caller's lacks becomes zero.
 * -EINVAL: src is NULL or its struct_size below sizeof(size_t); dst is all zero.
 * -E2BIG: src sets something beyond dst_size; dst holds the part that is known, so that the
 * caller's error buffer can be found in it. */
int vmkv_struct_in(void *dst, size_t dst_size, const void *src);

/* The same for an element of an array with a stride of src_size, which its own struct_size must
 * equal (-EINVAL). */
int vmkv_element_in(void *dst, size_t dst_size, const void *src, size_t src_size);

/* Fill a caller's struct as far as its struct_size reaches, which stays; what the library's lacks
 * becomes zero. -EINVAL: dst is NULL or its struct_size below sizeof(size_t). */
int vmkv_struct_out(void *dst, const void *src, size_t src_size);

/* Write one line, cut off at n bytes: control characters become '?'. NULL or n == 0: nothing. */
void vmkv_text(char *buf, size_t n, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void vmkv_text_v(char *buf, size_t n, const char *fmt, va_list args)
    __attribute__((format(printf, 3, 0)));

/* Read a whole number of bytes, plain or with KiB, MiB, GiB, TiB, kB, MB, GB or TB, that takes all
 * of text. -EINVAL: it is none. -ERANGE: it doesn't fit. */
int vmkv_size_parse(const char *text, uint64_t *ret);

/* The time by CLOCK_MONOTONIC or another clock, in ns. */
uint64_t vmkv_clock_ns(clockid_t clock);

#endif
