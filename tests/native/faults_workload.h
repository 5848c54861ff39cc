/* SPDX-License-Identifier: MIT
 *
 * A mixed workload of some hundred driver calls that comes by all that a manager does, followed by the
 * model. A call that fails is made once more, and all must come to the same as without the failure.
 */
#ifndef FAULTS_WORKLOAD_H
#define FAULTS_WORKLOAD_H

#include "oracle.h"

#define WORKLOAD_SEQS 4
#define WORKLOAD_OPS_MAX 64

/* What can be seen after an operation and must not depend on a failure in between. */
struct workload_mark {
	uint64_t live_bytes, sequences;
	/* Mapped and retiring: which of them depends on where mappings end. With memory kept warm it
	 * may be more, since mappings are used whole, and if points lag, what is warm when depends on
	 * them. */
	uint64_t held_bytes;
};

struct workload {
	struct oracle oracle;
	struct vmkv_geometry geometry;
	vmkv_seq seqs[WORKLOAD_SEQS];
	uint32_t slots[WORKLOAD_SEQS];
	/* What a failure returns, and whether one was caused so far. */
	int error;
	uint64_t (*failures)(struct workload *w);
	/* Called before and after each call of the manager, unless NULL. */
	void (*begin)(struct workload *w);
	void (*end)(struct workload *w);
	struct workload_mark marks[WORKLOAD_OPS_MAX];
	const struct workload *plain; /* the same without a failure; NULL: this is it */
	bool lost;
};

/* w->oracle.device, w->oracle.what and the fields from error to plain are set. Runs it all with a cache
 * of its own on the device, which is closed then. */
void workload_run(struct workload *w, uint32_t layout, bool lag);

#endif
