/* SPDX-License-Identifier: MIT
 *
 * Sparse buffers: pages bound, aliased, rebound and unbound at random, and written and copied through,
 * compared with a model of it.
 *
 *     vk_sparse gfx|compute|transfer SEED
 */
#include "vk_fixture.h"

#define PAGES 48          /* of a sparse buffer */
#define MEMORY_PAGES 16   /* fewer, so that aliases are usual */
#define PAGE_WORDS 16384  /* 64 KiB */
#define PAGE_BYTES (4 * PAGE_WORDS)
#define UNBOUND -1
#define ROUNDS 40         /* after each all is looked at */
#define ROUND_OPERATIONS 6
#define RUN_MOST 6 /* pages */

/* Two buffers, as two views of the same memory; each page of the first memory and of the second. */
#define BUFFERS 2
#define MEMORIES 2

static struct vk vk;
static struct vk_buffer sparse[BUFFERS], source, seen;
static VkDeviceMemory memories[MEMORIES];

static uint32_t model[MEMORIES * MEMORY_PAGES][PAGE_WORDS];
static int bound[BUFFERS][PAGES]; /* to which of the model's pages */
static uint64_t random_state;
static unsigned counts[5];

static uint32_t draw(uint32_t below)
{
	random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(random_state >> 33) % below;
}

/* ---- operations, each on the card and on the model ------------------------------------------------ */

struct run {
	uint32_t buffer, page, pages;
};

static struct run run_draw(void)
{
	struct run run = { .buffer = draw(BUFFERS), .pages = 1 + draw(RUN_MOST) };

	run.page = draw(PAGES - run.pages + 1);
	return run;
}

/* Bind a run of pages to a run of memory, or to none; what was bound there before goes. */
static void bind_run(bool unbind)
{
	struct run run = run_draw();
	uint32_t memory = draw(MEMORIES), first = draw(MEMORY_PAGES - run.pages + 1);
	VkSparseMemoryBind bind = {
		.resourceOffset = (VkDeviceSize)run.page * PAGE_BYTES,
		.size = (VkDeviceSize)run.pages * PAGE_BYTES,
		.memory = unbind ? VK_NULL_HANDLE : memories[memory],
		.memoryOffset = unbind ? 0 : (VkDeviceSize)first * PAGE_BYTES,
	};

	vk_bind(&vk, &sparse[run.buffer], &bind, 1);
	for (uint32_t i = 0; i < run.pages; i++)
		bound[run.buffer][run.page + i] =
		    unbind ? UNBOUND : (int)(memory * MEMORY_PAGES + first + i);
}

/* Single pages, in one call, in no order. */
static void bind_pages(void)
{
	VkSparseMemoryBind binds[RUN_MOST];
	uint32_t buffer = draw(BUFFERS), first = draw(PAGES);

	for (uint32_t i = 0; i < RUN_MOST; i++) {
		uint32_t page = (first + 7 * i) % PAGES, memory = draw(MEMORIES);
		uint32_t to = draw(MEMORY_PAGES);

		binds[i] = (VkSparseMemoryBind){ .resourceOffset = (VkDeviceSize)page * PAGE_BYTES,
			                         .size = PAGE_BYTES, .memory = memories[memory],
			                         .memoryOffset = (VkDeviceSize)to * PAGE_BYTES };
		bound[buffer][page] = (int)(memory * MEMORY_PAGES + to);
	}
	vk_bind(&vk, &sparse[buffer], binds, RUN_MOST);
}

static void word_write(const struct run *run, uint32_t word, uint32_t value)
{
	int page = bound[run->buffer][run->page + word / PAGE_WORDS];

	if (page != UNBOUND)
		model[page][word % PAGE_WORDS] = value;
}

/* Whether pages of a run are the same memory: then a copy to it has no order. */
static bool has_twins(const struct run *run)
{
	const int *pages = bound[run->buffer] + run->page;

	for (uint32_t i = 0; i < run->pages; i++)
		for (uint32_t j = 0; j < i; j++)
			if (pages[i] == pages[j] && pages[i] != UNBOUND)
				return true;
	return false;
}

/* Through unbound pages, too: what is written there is nowhere. */
static void copy_in(void)
{
	struct run run = run_draw();
	uint32_t *words = (uint32_t *)source.view, n = run.pages * PAGE_WORDS;

	while (has_twins(&run))
		run = run_draw();
	n = run.pages * PAGE_WORDS;
	VK_OK(vk_try_wait(&vk)); /* or a copy before may read what is written here */
	for (uint32_t i = 0; i < n; i++) {
		words[i] = draw(UINT32_MAX);
		word_write(&run, i, words[i]);
	}
	vk_copy(&vk, &source, 0, &sparse[run.buffer], (VkDeviceSize)run.page * PAGE_BYTES, 4ull * n);
	vk_submit(&vk);
}

static void fill(void)
{
	struct run run = run_draw();
	uint32_t first = draw(PAGE_WORDS), n = 1 + draw(run.pages * PAGE_WORDS - first);
	uint32_t value = draw(UINT32_MAX), little[16];
	VkDeviceSize at = (VkDeviceSize)run.page * PAGE_BYTES + 4ull * first;

	vkCmdFillBuffer(vk_commands(&vk), sparse[run.buffer].buffer, at, 4ull * n, value);
	vk_barrier(&vk);
	for (uint32_t i = 0; i < n; i++)
		word_write(&run, first + i, value);
	for (uint32_t i = 0; i < 16; i++)
		little[i] = draw(UINT32_MAX);
	n = n < 16 ? n : 16;
	vkCmdUpdateBuffer(vk_commands(&vk), sparse[run.buffer].buffer, at, 4ull * n, little);
	vk_barrier(&vk);
	for (uint32_t i = 0; i < n; i++)
		word_write(&run, first + i, little[i]);
	vk_submit(&vk);
}

/* ---- looking -------------------------------------------------------------------------------------- */

static void page_check(uint32_t buffer, uint32_t page, unsigned round)
{
	const uint32_t *words = (const uint32_t *)(seen.view + (size_t)page * PAGE_BYTES);
	int to = bound[buffer][page];

	for (uint32_t i = 0; i < PAGE_WORDS; i++) {
		uint32_t expected = to == UNBOUND ? 0 : model[to][i];

		if (words[i] != expected)
			CHECK_FAIL("round %u, buffer %u, page %u (%d), word %u: 0x%x, not 0x%x", round,
			           buffer, page, to, i, words[i], expected);
	}
}

static void all_check(unsigned round)
{
	for (uint32_t buffer = 0; buffer < BUFFERS; buffer++) {
		memset(seen.view, 0xee, seen.bytes);
		vk_copy(&vk, &sparse[buffer], 0, &seen, 0, seen.bytes);
		vk_run(&vk);
		for (uint32_t page = 0; page < PAGES; page++)
			page_check(buffer, page, round);
	}
}

static void operate(void)
{
	uint32_t what = draw(5);

	counts[what]++;
	switch (what) {
	case 0:
	case 1:
		bind_run(what == 1);
		break;
	case 2:
		bind_pages();
		break;
	case 3:
		copy_in();
		break;
	default:
		fill();
	}
}

/* ---- beginning and end ---------------------------------------------------------------------------- */

static void memory_zero(uint32_t memory)
{
	VkSparseMemoryBind bind = { .size = (VkDeviceSize)MEMORY_PAGES * PAGE_BYTES,
		                    .memory = memories[memory] };

	vk_bind(&vk, &sparse[0], &bind, 1);
	vkCmdFillBuffer(vk_commands(&vk), sparse[0].buffer, 0, bind.size, 0);
	vk_barrier(&vk);
	vk_submit(&vk);
	for (int i = 0; i < MEMORY_PAGES; i++)
		bound[0][i] = (int)memory * MEMORY_PAGES + i;
}

static void buffers_create(void)
{
	VkMemoryRequirements needs;

	source = vk_host_buffer(&vk, (VkDeviceSize)RUN_MOST * PAGE_BYTES);
	seen = vk_host_buffer(&vk, (VkDeviceSize)PAGES * PAGE_BYTES);
	for (int i = 0; i < BUFFERS; i++) {
		sparse[i] = vk_sparse_buffer(&vk, (VkDeviceSize)PAGES * PAGE_BYTES);
		for (int page = 0; page < PAGES; page++)
			bound[i][page] = UNBOUND;
	}
	vkGetBufferMemoryRequirements(vk.device, sparse[0].buffer, &needs);
	CHECK(PAGE_BYTES % needs.alignment == 0);
	for (int i = 0; i < MEMORIES; i++) {
		memories[i] = vk_memory(&vk, (VkDeviceSize)MEMORY_PAGES * PAGE_BYTES,
		                        needs.memoryTypeBits, false);
		memory_zero(i);
	}
}

int main(int argc, char **argv)
{
	CHECK_EQ(argc, 3);
	random_state = strtoull(argv[2], NULL, 10);
	vk_begin(&vk, argv[1], NULL, 0);
	buffers_create();
	all_check(0);
	for (unsigned round = 1; round <= ROUNDS; round++) {
		for (int i = 0; i < ROUND_OPERATIONS; i++)
			operate();
		all_check(round);
	}
	printf("%u runs bound, %u unbound, %u times single pages, %u copies in, %u fills: right\n",
	       counts[0], counts[1], counts[2], counts[3], counts[4]);
	for (int i = 0; i < BUFFERS; i++)
		vk_buffer_destroy(&vk, &sparse[i]);
	for (int i = 0; i < MEMORIES; i++)
		vkFreeMemory(vk.device, memories[i], NULL);
	vk_buffer_destroy(&vk, &source);
	vk_buffer_destroy(&vk, &seen);
	vk_end(&vk);
	return 0;
}
