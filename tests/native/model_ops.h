/* SPDX-License-Identifier: MIT
 *
 * Random operations on a cache and its model at once.
 */
#ifndef MODEL_OPS_H
#define MODEL_OPS_H

#include "model_config.h"
#include "oracle.h"

struct model_run {
	struct oracle oracle;
	const struct model_config *config;
	struct checking_fault fault; /* error 0: none */
	uint64_t submitted;   /* the greatest busy_until so far */
	bool idle;            /* nothing is submitted at the moment */
	uint64_t last_closed; /* a sequence that is not open any more, or 0 */
};

/* One operation drawn at random, with all checks. */
void model_operate(struct model_run *run);
/* Wait until all that is on its way has arrived, and check that. */
void model_quiesce(struct model_run *run);

/* For the operations. */
void model_step(struct model_run *run);
uint64_t model_busy_draw(struct model_run *run);

#endif
