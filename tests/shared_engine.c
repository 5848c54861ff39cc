/* SPDX-License-Identifier: MIT
 *
 * An engine that shares its cache and never rests: random steps, closes and retires, until it is
 * ended. For tests that look at it from outside.
 *
 * Usage: shared_engine DEVICE LAYOUT SEED [STEPS]. Prints a line once its file is there. After
 * STEPS steps it goes on with such that grow nothing (none given: never).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vmkv.h>

#define SLOTS 6u
#define MAX_TOKENS 3000u

struct engine {
	vmkv_device *device;
	vmkv_cache *cache;
	vmkv_seq seqs[SLOTS];
	uint32_t tokens[SLOTS];
	uint64_t submitted; /* the newest number given as busy_until */
	uint64_t random;
};

static uint32_t draw(struct engine *e, uint32_t below)
{
	e->random = e->random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((e->random >> 33) % below);
}

static void fail(const char *what, int rc, const char *text)
{
	fprintf(stderr, "%s: %d %s\n", what, rc, text);
	exit(1);
}

static void create(struct engine *e, const char *device, const char *layout)
{
	const struct vmkv_tensor rows[] = {
		{ VMKV_DTYPE_F16, 2, 64, 0, 0 },
		{ VMKV_DTYPE_F16, 2, 64, 0, 0 },
	};
	const struct vmkv_group groups[] = {
		{ .struct_size = sizeof(struct vmkv_group), .policy = VMKV_POLICY_FULL, .layers = 2,
		  .tensors = rows, .tensor_count = 2 },
		{ .struct_size = sizeof(struct vmkv_group), .policy = VMKV_POLICY_WINDOW,
		  .layers = 2, .tensors = rows, .tensor_count = 2, .window_tokens = 200,
		  .slack_tokens = 10 },
	};
	const struct vmkv_geometry geometry = { sizeof(geometry), groups, 2, 0 };
	char text[256] = "";
	const struct vmkv_device_options chosen = { .struct_size = sizeof(chosen), .name = device,
		                                    .error = text, .error_bytes = sizeof(text) };
	const struct vmkv_cache_options options = {
		.struct_size = sizeof(options), .geometry = &geometry, .budget_bytes = 12u << 20,
		.page_bytes = 4096, .slab_bytes = 2u << 20, .max_slots = SLOTS,
		.max_tokens = MAX_TOKENS,
		.layout = strcmp(layout, "token") == 0 ? VMKV_LAYOUT_TOKEN : VMKV_LAYOUT_LAYER,
		.share = VMKV_SHARE_ON, .error = text, .error_bytes = sizeof(text)
	};
	int rc = vmkv_device_open(&chosen, &e->device);

	if (rc != 0)
		fail("vmkv_device_open", rc, text);
	rc = vmkv_cache_create(e->device, &options, &e->cache);
	if (rc != 0)
		fail("vmkv_cache_create", rc, text);
}

/* A step of some of the sequences; a shortage is as good as any other outcome. */
static void step(struct engine *e, uint32_t most)
{
	vmkv_seq seqs[SLOTS];
	uint32_t tokens[SLOTS], n = 0;
	struct vmkv_step_request request = { .struct_size = sizeof(request) };

	for (uint32_t i = 0; i < SLOTS; i++) {
		uint32_t wanted = e->tokens[i] + (most > 0 ? draw(e, most) : 0);

		if (e->seqs[i] == 0 || draw(e, 3) == 0)
			continue;
		seqs[n] = e->seqs[i];
		tokens[n++] = wanted < MAX_TOKENS ? wanted : MAX_TOKENS;
	}
	request.seqs = seqs;
	request.tokens = tokens;
	request.n = n;
	request.busy_until = ++e->submitted;
	if (vmkv_step(e->cache, &request, NULL) != 0)
		return;
	for (uint32_t i = 0; i < SLOTS; i++) {
		for (uint32_t k = 0; k < n; k++) {
			if (seqs[k] == e->seqs[i])
				e->tokens[i] = tokens[k];
		}
	}
}

static void change(struct engine *e)
{
	uint32_t i = draw(e, SLOTS);

	if (e->seqs[i] == 0) {
		e->tokens[i] = 0;
		if (vmkv_seq_open(e->cache, NULL, &e->seqs[i]) != 0)
			e->seqs[i] = 0;
	} else if (draw(e, 20) == 0 && vmkv_seq_close(e->cache, e->seqs[i], e->submitted) == 0) {
		e->seqs[i] = 0;
	}
	if (draw(e, 3) == 0)
		vmkv_retire(e->cache, e->submitted - draw(e, 4));
	if (draw(e, 500) == 0)
		vmkv_cache_shrink(e->cache, 0, NULL);
}

int main(int argc, char **argv)
{
	struct engine e = { .submitted = 4 };
	uint64_t steps = argc > 4 ? strtoull(argv[4], NULL, 10) : UINT64_MAX;

	if (argc < 4)
		return 2;
	e.random = strtoull(argv[3], NULL, 10);
	create(&e, argv[1], argv[2]);
	puts("ready");
	fflush(stdout);
	for (uint64_t i = 0;; i++) {
		if (i < steps)
			change(&e);
		step(&e, i < steps ? 60 : 0);
	}
}
