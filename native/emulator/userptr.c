/* SPDX-License-Identifier: MIT
 *
 * What the process has mapped where a USERPTR buffer lies.
 */
#include <errno.h>
#include <stdio.h>

#include "memory_parts.h"

/* One line of /proc/self/maps. */
struct area {
	unsigned long long begin, end, inode;
	char permissions[5];
};

static int area_check(const struct emu_bo *bo, const struct area *area)
{
	if (area->permissions[0] != 'r' || (area->permissions[1] != 'w' && !bo->user_readonly))
		return -EFAULT;
	return bo->user_anonymous && area->inode ? -EPERM : 0;
}

/* Areas come in order of their addresses; those that matter must follow one another. */
int emu_user_memory_check(const struct emu_bo *bo)
{
	uint64_t at = (uintptr_t)bo->user_pointer, end = at + bo->bytes;
	struct area area;
	char line[512];
	int error = 0;
	FILE *maps;

	snprintf(line, sizeof(line), "/proc/%d/maps", (int)bo->user_process);
	maps = fopen(line, "re");
	if (!maps)
		return -EFAULT;
	while (at < end && !error && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%llx-%llx %4s %*x %*x:%*x %llu", &area.begin, &area.end,
		           area.permissions, &area.inode) != 4 ||
		    area.end <= at)
			continue;
		error = area.begin > at ? -EFAULT : area_check(bo, &area);
		at = area.end;
	}
	(void)fclose(maps);
	return !error && at < end ? -EFAULT : error;
}
