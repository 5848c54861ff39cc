/* SPDX-License-Identifier: MIT
 *
 * A small engine: eight agents with prompts of their own, prefilled in chunks, then decoded token by
 * token. Its attention takes pointers, strides and lengths and knows nothing of vmkv: the same function
 * over plain arrays must give the same outputs, bit for bit.
 *
 *     engine [DEVICE]        prints a checksum of the outputs; exits 1 on a difference or an error
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vmkv.h>

enum { AGENTS = 8, LAYERS = 2, HEADS = 2, DIM = 64, ROW = HEADS * DIM, CHUNK = 64, MAX_TOKENS = 512 };
enum { TENSORS = LAYERS * 2, SUBMISSIONS = 40 };

/* One tensor of one layer in all slots; strides in bytes. */
struct view {
	char *base;
	size_t slot_stride, token_stride;
};

static float *row(struct view view, uint32_t slot, uint32_t token)
{
	return (float *)(view.base + slot * view.slot_stride + token * view.token_stride);
}

/* An ordinary decode kernel: one query a slot, over the slot's first lengths[slot] tokens. */
void attention(struct view k, struct view v, const float *query, float *out,
               const uint32_t *lengths, uint32_t slots)
{
	for (uint32_t i = 0; i < slots * HEADS; i++, query += DIM, out += DIM) {
		uint32_t slot = i / HEADS, head = i % HEADS;
		float top = -INFINITY, sum = 0;

		memset(out, 0, DIM * sizeof(float));
		for (uint32_t token = 0; token < lengths[slot]; token++) {
			const float *key = row(k, slot, token) + head * DIM;
			const float *value = row(v, slot, token) + head * DIM;
			float score = 0, before = top;

			for (int d = 0; d < DIM; d++)
				score += query[d] * key[d];
			top = fmaxf(top, score);
			sum = sum * expf(before - top) + expf(score - top);
			for (int d = 0; d < DIM; d++)
				out[d] = out[d] * expf(before - top) + value[d] * expf(score - top);
		}
		for (int d = 0; d < DIM && sum > 0; d++)
			out[d] /= sum;
	}
}

/* What a model would compute: numbers in [-1, 1) that depend on all that they should. */
static void compute(float *ret, uint32_t agent, uint32_t token, uint32_t what)
{
	uint64_t x = ((uint64_t)what << 40 | (uint64_t)agent << 32 | token) + 1;

	for (uint32_t i = 0; i < ROW; i++) {
		x = (x ^ x >> 29) * 0x9e3779b97f4a7c15u + i;
		ret[i] = (float)(int32_t)(x >> 32) / 2147483648.0f;
	}
}

static void check(int error, const char *text)
{
	if (!error)
		return;
	fprintf(stderr, "engine: %s: %s\n", text, error < 0 ? strerror(-error) : "failed");
	exit(1);
}

static vmkv_cache *create_cache(const char *name, vmkv_device **device)
{
	char text[256] = "";
	struct vmkv_device_options open = {.struct_size = sizeof(open), .name = name, .error = text,
	                                   .error_bytes = sizeof(text)};
	struct vmkv_device_info info = {.struct_size = sizeof(info)};
	struct vmkv_tensor kv = {.dtype = VMKV_DTYPE_F32, .heads = HEADS, .head_dim = DIM};
	struct vmkv_group group = {.struct_size = sizeof(group), .layers = LAYERS, .tensor_count = 2,
	                           .tensors = (struct vmkv_tensor[]){kv, kv}};
	struct vmkv_geometry geometry = {.struct_size = sizeof(geometry), .groups = &group,
	                                 .group_count = 1};
	struct vmkv_cache_options options = {
		.struct_size = sizeof(options), .geometry = &geometry, .budget_bytes = 16 << 20,
		.slab_bytes = 2 << 20, .max_slots = AGENTS, .max_tokens = MAX_TOKENS,
		.error = text, .error_bytes = sizeof(text)};
	vmkv_cache *cache;

	check(vmkv_device_open(&open, device), text);
	check(vmkv_device_info(*device, &info), "device info");
	check(!(info.features & VMKV_FEATURE_CPU_ADDRESSES), "reach the device's memory by CPU");
	check(vmkv_cache_create(*device, &options, &cache), text);
	return cache;
}

int main(int argc, char **argv)
{
	static float query[AGENTS * ROW], out[AGENTS * ROW], expected[AGENTS * ROW];
	const char *name = argc > 1 ? argv[1] : "host";
	vmkv_device *device;
	vmkv_cache *cache = create_cache(name, &device);
	struct view spans[TENSORS], plain[TENSORS];
	uint32_t lengths[AGENTS] = {0}, next[AGENTS];
	vmkv_seq seqs[AGENTS];
	uint64_t checksum = 0xcbf29ce484222325u;

	for (uint32_t a = 0; a < AGENTS; a++) /* agent a gets slot a: the lowest that is free */
		check(vmkv_seq_open(cache, NULL, &seqs[a]), "open");
	for (uint32_t i = 0; i < TENSORS; i++) { /* base and strides never change: one look is enough */
		struct vmkv_span span = {.struct_size = sizeof(span)};

		check(vmkv_span(cache, seqs[0], 0, i / 2, i % 2, &span), "span");
		spans[i] = (struct view){(char *)(uintptr_t)span.address, span.slot_stride,
		                         span.token_stride};
		plain[i] = (struct view){calloc(AGENTS * MAX_TOKENS, ROW * 4), MAX_TOKENS * ROW * 4, ROW * 4};
		check(!plain[i].base, "plain arrays");
	}
	for (uint64_t submission = 1; submission <= SUBMISSIONS; submission++) {
		for (uint32_t a = 0; a < AGENTS; a++) {
			uint32_t prompt = 60 + 37 * a, left = prompt > lengths[a] ? prompt - lengths[a] : 1;

			next[a] = lengths[a] + (left < CHUNK ? left : CHUNK);
		}
		/* Room for all of them, in one call: all or nothing. */
		struct vmkv_step_request request = {.struct_size = sizeof(request), .seqs = seqs,
		                                    .tokens = next, .n = AGENTS,
		                                    .busy_until = submission};
		struct vmkv_step_result result = {.struct_size = sizeof(result)};

		check(vmkv_step(cache, &request, &result), "step");
		check(vmkv_wait(device, result.ready, UINT64_MAX), "wait");
		for (uint32_t i = 0; i < TENSORS * AGENTS; i++) {
			uint32_t t = i / AGENTS, a = i % AGENTS;

			for (uint32_t token = lengths[a]; token < next[a]; token++) {
				compute(row(plain[t], a, token), a, token, t);
				memcpy(row(spans[t], a, token), row(plain[t], a, token), ROW * 4);
			}
		}
		memcpy(lengths, next, sizeof(lengths));
		for (uint32_t t = 0; t < TENSORS; t += 2) {
			for (uint32_t a = 0; a < AGENTS; a++)
				compute(query + a * ROW, a, lengths[a], TENSORS + t);
			attention(spans[t], spans[t + 1], query, out, lengths, AGENTS);
			attention(plain[t], plain[t + 1], query, expected, lengths, AGENTS);
			check(memcmp(out, expected, sizeof(out)) != 0, "same outputs as over plain arrays");
			for (size_t byte = 0; byte < sizeof(out); byte++)
				checksum = (checksum ^ ((unsigned char *)out)[byte]) * 0x100000001b3u;
		}
		check(vmkv_retire(cache, submission - 1), "retire"); /* a GPU would be one behind */
	}
	for (uint32_t a = 0; a < AGENTS; a++)
		check(vmkv_seq_close(cache, seqs[a], SUBMISSIONS), "close");
	check(vmkv_retire(cache, SUBMISSIONS), "retire");
	printf("%s: checksum %016llx\n", name, (unsigned long long)checksum);
	for (uint32_t i = 0; i < TENSORS; i++)
		free(plain[i].base);
	vmkv_cache_destroy(cache);
	check(vmkv_device_close(device), "device");
	return 0;
}
