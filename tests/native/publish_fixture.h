/* SPDX-License-Identifier: MIT
 *
 * A cache that is shared, and its file.
 */
#ifndef VMKV_TESTS_PUBLISH_FIXTURE_H
#define VMKV_TESTS_PUBLISH_FIXTURE_H

#include <unistd.h>

#include "cache_fixture.h"
#include "published.h"

static inline void shared_begin(struct rig *r)
{
	rig_prepare(r, open_host("host"));
	r->options.share = VMKV_SHARE_ON;
	rig_create(r);
}

/* The file's state now, which must be whole. */
static inline struct published now(void)
{
	struct published p;
	int fd = published_open();

	if (!published_read(fd, &p) || !published_check(&p))
		CHECK_FAIL("%s", p.wrong);
	close(fd);
	return p;
}

#endif
