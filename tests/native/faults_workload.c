/* SPDX-License-Identifier: MIT */
#include "faults_workload.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "check.h"

#define PAGE UINT64_C(4096)
#define BUDGET (150 * PAGE)

enum kind { OPEN, OPEN_WARM, STEP, CLOSE, RETIRE, BUDGET_SET, SHRINK };

struct op {
	enum kind kind;
	uint32_t seq;                     /* OPEN, CLOSE */
	uint32_t tokens[WORKLOAD_SEQS];   /* STEP: lengths, 0 for those that aren't in it;
	                                     OPEN: [0] is expected */
	uint64_t value;                   /* busy_until, completed, pages */
	int expected;
};

static const struct op ops[] = {
	{ OPEN, 0, { 0 }, 0, 0 },
	{ STEP, 0, { 40 }, 1, 0 },
	{ OPEN, 1, { 0 }, 0, 0 },
	{ STEP, 0, { 60, 20 }, 2, 0 },
	{ OPEN, 2, { 0 }, 0, 0 },
	{ STEP, 0, { 61, 40, 12 }, 3, 0 },
	{ STEP, 0, { 62, 41, 13 }, 4, 0 },
	{ STEP, 0, { 80, 60, 0 }, 5, 0 },   /* the windows move on */
	{ STEP, 0, { 100, 61, 14 }, 6, 0 },
	{ RETIRE, 0, { 0 }, 4, 0 },
	{ STEP, 0, { 110, 70, 0 }, 7, 0 },
	{ STEP, 0, { 200, 200, 200 }, 8, -ENOSPC },
	{ RETIRE, 0, { 0 }, 7, 0 },
	{ CLOSE, 2, { 0 }, 3, 0 },          /* completed already: kept warm at once */
	{ OPEN_WARM, 3, { 10 }, 0, 0 },
	{ STEP, 0, { 0, 0, 0, 11 }, 9, 0 },
	{ CLOSE, 1, { 0 }, 10, 0 },
	{ STEP, 0, { 111, 0, 0, 12 }, 10, 0 },
	{ RETIRE, 0, { 0 }, 10, 0 },
	{ OPEN, 1, { 0 }, 0, 0 },
	{ STEP, 0, { 0, 3 }, 11, 0 },       /* beyond it much stays warm ... */
	{ STEP, 0, { 130, 0, 0, 60 }, 12, 0 }, /* ... and is needed elsewhere */
	{ STEP, 0, { 0, 30 }, 13, 0 },
	{ RETIRE, 0, { 0 }, 13, 0 },
	{ CLOSE, 0, { 0 }, 15, 0 },
	{ BUDGET_SET, 0, { 0 }, 90, 0 },    /* less than is held */
	{ STEP, 0, { 0, 60, 0, 61 }, 14, -ENOSPC },
	{ RETIRE, 0, { 0 }, 20, 0 },
	{ STEP, 0, { 0, 31, 0, 61 }, 14, 0 },
	{ BUDGET_SET, 0, { 0 }, 700, 0 },
	{ OPEN, 0, { 0 }, 0, 0 },
	{ STEP, 0, { 200, 200, 0, 200 }, 21, 0 },
	{ CLOSE, 0, { 0 }, 22, 0 },
	{ RETIRE, 0, { 0 }, 22, 0 },
	{ SHRINK, 0, { 0 }, 300, 0 },
	{ OPEN, 2, { 50 }, 0, 0 },
	{ STEP, 0, { 0, 0, 100, 0 }, 23, 0 },
	{ CLOSE, 1, { 0 }, 0, 0 },
	{ CLOSE, 3, { 0 }, 0, 0 },
	{ RETIRE, 0, { 0 }, 30, 0 },
	{ CLOSE, 2, { 0 }, 0, 0 },
	{ SHRINK, 0, { 0 }, 0, 0 },
};
#define OPS (sizeof(ops) / sizeof(ops[0]))

static const struct vmkv_tensor uneven[] = {
	{ .dtype = VMKV_DTYPE_F16, .heads = 2, .head_dim = 96 },
	{ .dtype = VMKV_DTYPE_F8, .heads = 2, .head_dim = 64 },
};
static const struct vmkv_tensor latent[] = {
	{ .dtype = VMKV_DTYPE_Q8_0, .heads = 1, .head_dim = 576 },
};
static const struct vmkv_tensor state[] = { { .row_bytes = 30000 } };
static const struct vmkv_group groups[] = {
	{ .struct_size = sizeof(struct vmkv_group), .policy = VMKV_POLICY_FULL, .layers = 2,
	  .tensors = uneven, .tensor_count = 2 },
	{ .struct_size = sizeof(struct vmkv_group), .policy = VMKV_POLICY_WINDOW, .layers = 2,
	  .tensors = latent, .tensor_count = 1, .window_tokens = 20, .slack_tokens = 4 },
	{ .struct_size = sizeof(struct vmkv_group), .policy = VMKV_POLICY_STATE, .layers = 1,
	  .tensors = state, .tensor_count = 1 },
};

/* ---- one call -------------------------------------------------------------------------------- */

static void step_request(struct workload *w, const struct op *op, struct vmkv_step_request *request,
                         vmkv_seq *seqs, uint32_t *tokens)
{
	*request = (struct vmkv_step_request){ .struct_size = sizeof(*request), .seqs = seqs,
		                               .tokens = tokens, .busy_until = op->value };
	for (uint32_t i = 0; i < WORKLOAD_SEQS; i++) {
		if (op->tokens[i] == 0)
			continue;
		seqs[request->n] = w->seqs[i];
		tokens[request->n++] = op->tokens[i];
	}
}

static int call(struct workload *w, const struct op *op, vmkv_seq *opened,
                struct vmkv_step_result *result)
{
	struct vmkv_open_options options = { .struct_size = sizeof(options),
		                             .expected_tokens = op->tokens[0] };
	struct vmkv_step_request request;
	vmkv_seq seqs[WORKLOAD_SEQS];
	uint32_t tokens[WORKLOAD_SEQS];
	vmkv_cache *cache = w->oracle.cache;

	switch (op->kind) {
	case OPEN:
	case OPEN_WARM:
		options.prefer = op->kind == OPEN ? VMKV_PREFER_LOWEST : VMKV_PREFER_WARM;
		return vmkv_seq_open(cache, &options, opened);
	case STEP:
		step_request(w, op, &request, seqs, tokens);
		return vmkv_step(cache, &request, result);
	case CLOSE:
		return vmkv_seq_close(cache, w->seqs[op->seq], op->value);
	case RETIRE:
		return vmkv_retire(cache, op->value);
	case BUDGET_SET:
		return vmkv_cache_set_budget(cache, op->value * PAGE);
	default:
		return vmkv_cache_shrink(cache, op->value * PAGE, NULL);
	}
}

/* Tell the model of a call that did what it was to do. */
static void follow(struct workload *w, const struct op *op, vmkv_seq opened,
                   const struct vmkv_step_result *result, struct oracle_allowed *allowed)
{
	struct vmkv_step_request request;
	struct vmkv_span span = { .struct_size = sizeof(span) };
	vmkv_seq seqs[WORKLOAD_SEQS];
	uint32_t tokens[WORKLOAD_SEQS];
	struct oracle *o = &w->oracle;

	switch (op->kind) {
	case OPEN:
	case OPEN_WARM:
		oracle_opened(o, opened);
		w->seqs[op->seq] = opened;
		CHECK_EQ(vmkv_span(o->cache, opened, 0, 0, 0, &span), 0);
		w->slots[op->seq] = span.slot;
		allowed->open_tokens = op->tokens[0];
		allowed->opened = opened;
		break;
	case STEP:
		step_request(w, op, &request, seqs, tokens);
		oracle_stepped(o, &request, result->ready, allowed);
		break;
	case CLOSE:
		oracle_closed(o, w->slots[op->seq], op->value);
		w->seqs[op->seq] = 0;
		break;
	case RETIRE:
		oracle_retired(o, op->value);
		break;
	case BUDGET_SET:
		o->budget_bytes = op->value * PAGE;
		break;
	default:
		break;
	}
}

/* Before a call: what the queues are at. */
static void engine(struct workload *w, const struct op *op)
{
	if (op->kind == RETIRE)
		checking_complete(w->oracle.device, op->value);
	if (op->kind == CLOSE && !w->lost)
		oracle_use(&w->oracle, w->slots[op->seq], op->value);
}

static int call_guarded(struct workload *w, const struct op *op, vmkv_seq *opened,
                        struct vmkv_step_result *result)
{
	int rc;

	if (w->begin)
		w->begin(w);
	rc = call(w, op, opened, result);
	if (w->end)
		w->end(w);
	return rc;
}

/* ---- one operation, with its recovery -------------------------------------------------------- */

static void retire_again(struct workload *w)
{
	struct oracle *o = &w->oracle;
	struct oracle_allowed allowed = { .drop_kept = true };

	int rc = vmkv_wait(o->device, checking_of(o->device)->last_point, UINT64_MAX);

	if (rc == 0)
		rc = vmkv_retire(o->cache, o->completed);
	w->lost = vmkv_device_is_lost(o->device);
	if (w->lost)
		return;
	if (rc != 0)
		oracle_fail(o, "the device works, and retire returned %d", rc);
	oracle_verify(o, &allowed);
}

/* Nothing has changed, and once more it works: at once, or when what was undone has come back. */
static int try_again(struct workload *w, const struct op *op, int rc, vmkv_seq *opened,
                     struct vmkv_step_result *result)
{
	struct oracle *o = &w->oracle;
	struct oracle_allowed allowed = { .drop_kept = true, .new_slabs = op->kind == STEP };

	if (rc != w->error && !(op->kind == STEP && rc == -ENOSPC))
		oracle_fail(o, "returned %d after a failure with %d", rc, w->error);
	o->shortages += op->kind == STEP && rc == -ENOSPC;
	oracle_verify(o, &allowed);
	rc = call_guarded(w, op, opened, result);
	if (rc == -ENOSPC && op->expected == 0 && result->shortage.transit_bytes > 0) {
		o->shortages++;
		for (int i = 0; i < 4 && !w->lost; i++)
			retire_again(w);
		rc = call_guarded(w, op, opened, result);
	}
	if (rc != op->expected && !vmkv_device_is_lost(o->device))
		oracle_fail(o, "returned %d when it was tried again", rc);
	return rc;
}

static void operate(struct workload *w, const struct op *op)
{
	struct oracle *o = &w->oracle;
	struct oracle_allowed allowed = { .drop_kept = true, .new_slabs = op->kind == STEP };
	struct vmkv_step_result result = { .struct_size = sizeof(result) };
	uint64_t failures = w->failures(w);
	vmkv_seq opened = 0;
	int rc;

	engine(w, op);
	rc = call_guarded(w, op, &opened, &result);
	if (rc != op->expected && w->failures(w) == failures)
		oracle_fail(o, "returned %d with nothing made to fail", rc);
	if (rc == -ENODEV && vmkv_device_is_lost(o->device)) {
		w->lost = true;
		return;
	}
	if (rc != op->expected)
		rc = try_again(w, op, rc, &opened, &result);
	o->shortages += rc == -ENOSPC;
	if (rc == 0)
		follow(w, op, opened, &result, &allowed);
	if (vmkv_device_is_lost(o->device)) {
		w->lost = true;
		return;
	}
	oracle_verify(o, &allowed);
	for (uint32_t i = 0; rc == 0 && op->kind == STEP && i < WORKLOAD_SEQS; i++) {
		if (op->tokens[i] > 0)
			oracle_use(o, w->slots[i], op->value);
	}
	/* What could not be given back then is given back now. */
	for (int i = 0; i < (o->lag ? 4 : 1) && !w->lost; i++) {
		if (o->lag || w->failures(w) > failures)
			retire_again(w);
	}
}

static void mark(struct workload *w, size_t i)
{
	const struct vmkv_stats *stats = &w->oracle.stats;
	const struct workload_mark *plain;
	const struct oracle *o = &w->oracle;

	w->marks[i] = (struct workload_mark){ .live_bytes = stats->live_bytes,
		                              .sequences = stats->sequences,
		                              .held_bytes = stats->mapped_bytes +
		                                            stats->retiring_bytes };
	if (stats->unmapping_bytes + stats->zeroing_bytes > 0)
		oracle_fail(o, "%" PRIu64 " bytes are still on their way",
		            stats->unmapping_bytes + stats->zeroing_bytes);
	if (w->plain == NULL)
		return;
	plain = &w->plain->marks[i];
	if (plain->live_bytes != stats->live_bytes || plain->sequences != stats->sequences ||
	    (!o->lag && plain->held_bytes < w->marks[i].held_bytes))
		oracle_fail(o, "operation %zu: %" PRIu64 " bytes are live and %" PRIu64
		            " mapped or retiring, where they are %" PRIu64 " and %" PRIu64
		            " without a failure", i, stats->live_bytes, w->marks[i].held_bytes,
		            plain->live_bytes, plain->held_bytes);
}

/* ---- after the device was lost --------------------------------------------------------------- */

static void operate_lost(struct workload *w, const struct op *op)
{
	struct oracle *o = &w->oracle;
	struct vmkv_step_result result = { .struct_size = sizeof(result) };
	struct vmkv_stats stats = { .struct_size = sizeof(stats) };
	bool open = op->kind == CLOSE && w->seqs[op->seq] != 0;
	vmkv_seq opened = 0;
	int rc;

	engine(w, op);
	rc = call(w, op, &opened, &result);
	if (op->kind == CLOSE && rc != (open ? 0 : -ESTALE))
		oracle_fail(o, "close returned %d on a lost device", rc);
	if (op->kind != CLOSE && rc != -ENODEV)
		oracle_fail(o, "operation kind %d returned %d on a lost device", op->kind, rc);
	if (op->kind == CLOSE)
		w->seqs[op->seq] = 0;
	CHECK_EQ(vmkv_cache_stats(o->cache, &stats), 0);
	CHECK_EQ(stats.slab_bytes, stats.mapped_bytes + stats.warm_bytes + stats.retiring_bytes +
	                               stats.unmapping_bytes + stats.zeroing_bytes +
	                               stats.free_clean_bytes + stats.free_dirty_bytes);
	/* All points count as reached, and all queues as stopped. */
	CHECK_EQ(stats.retiring_bytes * (op->kind == CLOSE), 0);
}

static void finish_lost(struct workload *w)
{
	struct vmkv_stats stats = { .struct_size = sizeof(stats) };

	for (uint32_t i = 0; i < WORKLOAD_SEQS; i++) {
		if (w->seqs[i] != 0)
			vmkv_seq_close(w->oracle.cache, w->seqs[i], 99);
	}
	CHECK_EQ(vmkv_cache_stats(w->oracle.cache, &stats), 0);
	CHECK_EQ(stats.sequences + stats.mapped_bytes + stats.live_bytes, 0);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void finish(struct workload *w)
{
	struct oracle *o = &w->oracle;
	struct oracle_allowed allowed = { .drop_kept = true };

	/* What a failed shrink had to leave. */
	CHECK_EQ(vmkv_cache_shrink(o->cache, 0, NULL), 0);
	oracle_verify(o, &allowed);
	if (o->stats.slab_bytes + o->stats.mappings + o->stats.sequences != 0)
		oracle_fail(o, "%" PRIu64 " bytes and %" PRIu64 " mappings are left in the end",
		            o->stats.slab_bytes, o->stats.mappings);
}

void workload_run(struct workload *w, uint32_t layout, bool lag)
{
	struct vmkv_cache_options options = {
		.struct_size = sizeof(options),
		.geometry = &w->geometry,
		.budget_bytes = BUDGET,
		.page_bytes = PAGE,
		.slab_bytes = 2 << 20,
		.layout = layout,
		.max_slots = 4,
		.slot_count = 5,
		.max_tokens = 200,
		.mapping_max_bytes = 8 * PAGE,
		.window_mapping_max_bytes = 2 * PAGE,
		.warm_max_bytes = BUDGET,
	};

	_Static_assert(OPS <= WORKLOAD_OPS_MAX, "room for the marks");
	w->geometry = (struct vmkv_geometry){ .struct_size = sizeof(w->geometry), .groups = groups,
		                              .group_count = 3 };
	w->oracle.faults = w->plain != NULL;
	oracle_create(&w->oracle, &options, lag);
	for (size_t i = 0; i < OPS; i++) {
		if (w->lost) {
			operate_lost(w, &ops[i]);
			continue;
		}
		operate(w, &ops[i]);
		if (!w->lost)
			mark(w, i);
	}
	if (w->lost)
		finish_lost(w);
	else
		finish(w);
	checking_complete(w->oracle.device, UINT64_MAX);
	oracle_destroy(&w->oracle);
	CHECK_EQ(vmkv_device_close(w->oracle.device), 0);
}
