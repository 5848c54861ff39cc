/* SPDX-License-Identifier: MIT
 *
 * Preloaded into amdgpu_stress, which looks at nothing that it copies: gives each of its buffers a content
 * of its own as it is allocated, and tells at the end whose content each has.
 */
#define _GNU_SOURCE
#include <amdgpu.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define BUFFERS 16

typedef int bo_alloc(amdgpu_device_handle device, struct amdgpu_bo_alloc_request *request,
                     amdgpu_bo_handle *ret);

static struct {
	amdgpu_bo_handle handle;
	uint32_t *words;
	uint64_t count;
} buffers[BUFFERS];
static unsigned n;

static uint32_t word_of(unsigned buffer, uint64_t i)
{
	return (uint32_t)(i * 0x9e3779b9u) ^ (buffer << 28);
}

__attribute__((visibility("default"))) int amdgpu_bo_alloc(amdgpu_device_handle device,
                                                           struct amdgpu_bo_alloc_request *request,
                                                           amdgpu_bo_handle *ret)
{
	bo_alloc *alloc = (bo_alloc *)dlsym(RTLD_NEXT, "amdgpu_bo_alloc");
	int rc = alloc(device, request, ret);
	void *view;

	if (rc || n == BUFFERS || amdgpu_bo_cpu_map(*ret, &view))
		return rc;
	buffers[n].handle = *ret;
	buffers[n].words = view;
	buffers[n].count = request->alloc_size / 4;
	for (uint64_t i = 0; i < buffers[n].count; i++)
		buffers[n].words[i] = word_of(n, i);
	n++;
	return 0;
}

/* How many of its first words are those that another one had. */
static uint64_t words_of(unsigned buffer, unsigned other)
{
	uint64_t i;

	for (i = 0; i < buffers[buffer].count; i++)
		if (buffers[buffer].words[i] != word_of(other, i))
			break;
	return i;
}

__attribute__((destructor)) static void tell(void)
{
	for (unsigned buffer = 1; buffer < n; buffer++) /* the first is for packets */
		for (unsigned other = 1; other < n; other++)
			if (words_of(buffer, other))
				printf("buffer %u has %llu bytes of buffer %u\n", buffer,
				       4ull * words_of(buffer, other), other);
}
