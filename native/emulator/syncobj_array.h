/* SPDX-License-Identifier: MIT
 *
 * Arrays of syncobjs and points, as ioctls take them.
 */
#ifndef EMU_SYNCOBJ_ARRAY_H
#define EMU_SYNCOBJ_ARRAY_H

#include "emu.h"

/* References; -EINVAL: n is 0, -EFAULT, -ENOENT, -ENOMEM. */
int emu_syncobj_array_get(struct emu_file *file, uint64_t handles, uint32_t n,
                          struct emu_syncobj ***ret);
void emu_syncobj_array_put(struct emu_syncobj **syncobjs, uint32_t n);
/* To be freed by the caller; zeros if points is NULL. */
int emu_syncobj_points_get(uint64_t points, uint32_t n, uint64_t **ret);

#endif
