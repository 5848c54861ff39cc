/* SPDX-License-Identifier: MIT
 *
 * Which process a shared file is of, and whether it lives.
 */
#ifndef VMKV_PUBLISH_PROCESS_H
#define VMKV_PUBLISH_PROCESS_H

#include <stdbool.h>

#include "publish_format.h"

/* Who this process is. */
void vmkv_mirror_identify(struct vmkv_published_header *header);
/* Remove the files of dead processes from a directory that is ours. What can't be told, or isn't a
 * file of ours, stays. */
void vmkv_mirror_reap(int directory);

#endif
