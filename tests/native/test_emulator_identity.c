/* SPDX-License-Identifier: MIT
 *
 * identity=1: mappings in the window appear at their own addresses in the process.
 */
#include <setjmp.h>
#include <signal.h>

#include "vm_fixture.h"

static const char *kernel;
static struct card card;
static int fd;
static uint64_t window; /* its first address */

static sigjmp_buf fault_jump;

static void fault_caught(int signal_number)
{
	(void)signal_number;
	siglongjmp(fault_jump, 1);
}

/* Whether the CPU may read (or write) there. */
static bool access_works(uint64_t address, bool write)
{
	struct sigaction action = { .sa_handler = fault_caught }, segv, bus;
	volatile uint8_t *at = (volatile uint8_t *)(uintptr_t)address;
	volatile bool works = false;

	sigaction(SIGSEGV, &action, &segv);
	sigaction(SIGBUS, &action, &bus);
	if (!sigsetjmp(fault_jump, 1)) {
		uint8_t value = *at;

		if (write)
			*at = value;
		works = true;
	}
	sigaction(SIGSEGV, &segv, NULL);
	sigaction(SIGBUS, &bus, NULL);
	return works;
}

static uint32_t *at(uint64_t address)
{
	return (uint32_t *)(uintptr_t)address;
}

static void there_is_a_window_only_when_asked_for(void)
{
	struct card plain = card_open(kernel, "");
	uint64_t begin, end;

	CHECK_EQ(vmkv_emulator_window(plain.gpu, &begin, &end), -ENOENT);
	card_close(&plain);
	CHECK_EQ(vmkv_emulator_window(card.gpu, &begin, &end), 0);
	CHECK_EQ(end - begin, 16 * GIB);
	CHECK_EQ(begin % GIB, 0);
}

static void a_mapping_in_the_window_is_there_for_the_cpu(void)
{
	uint32_t bo = bo_create(fd, HUGE, ALWAYS), value;
	uint32_t *view = bo_view(fd, bo, HUGE);

	CHECK(!access_works(window, false));
	CHECK_EQ(va_map(fd, bo, 0, window, 64 * KIB, 64 * KIB), 0);
	settle(fd);
	view[64 * KIB / 4] = 11;
	CHECK_EQ(at(window)[0], 11);
	at(window)[1] = 22;
	CHECK_EQ(view[64 * KIB / 4 + 1], 22);
	CHECK_EQ(gpu_read(&card, window + 4, &value), 0);
	CHECK_EQ(value, 22);
	CHECK(!access_works(window + 64 * KIB, false));
	CHECK_EQ(va_unmap(fd, bo, 0, window), 0);
	settle(fd);
	CHECK(!access_works(window, false));
	munmap(view, HUGE);
	CHECK_EQ(bo_close(fd, bo), 0);
}

static void a_read_only_mapping_is_read_only_for_the_cpu(void)
{
	uint32_t bo = bo_create(fd, HUGE, ALWAYS);

	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_MAP, bo, AMDGPU_VM_PAGE_READABLE, window, 0, PAGE), 0);
	settle(fd);
	CHECK(access_works(window, false));
	CHECK(!access_works(window, true));
	CHECK_EQ(bo_close(fd, bo), 0);
	settle(fd);
	CHECK(!access_works(window, false));
}

static void one_page_may_appear_twice(void)
{
	uint32_t bo = bo_create(fd, HUGE, ALWAYS);

	CHECK_EQ(va_map(fd, bo, 0, window, 0, PAGE), 0);
	CHECK_EQ(va_map(fd, bo, 0, window + GIB, 0, PAGE), 0);
	settle(fd);
	at(window)[3] = 33;
	CHECK_EQ(at(window + GIB)[3], 33);
	CHECK_EQ(bo_close(fd, bo), 0);
}

static void the_window_shows_what_the_tables_say_not_what_the_lists_say(void)
{
	uint32_t bo = bo_create(fd, HUGE, ALWAYS);

	CHECK_EQ(va_map(fd, bo, DELAY, window, 0, HUGE), 0);
	settle(fd);
	CHECK(!access_works(window, false));
	CHECK_EQ(cs_nop(&card, NULL, 0), 0);
	CHECK(access_works(window + MIB, true));
	/* The rest of a split huge page vanishes until it is written again. */
	CHECK_EQ(va_clear(fd, 0, window, 64 * KIB), 0);
	settle(fd);
	CHECK(!access_works(window + MIB, false));
	CHECK_EQ(cs_nop(&card, NULL, 0), 0);
	CHECK(access_works(window + MIB, false));
	CHECK(!access_works(window, false));
	CHECK_EQ(bo_close(fd, bo), 0);
}

static void only_what_lies_in_the_window_appears(void)
{
	uint32_t bo = bo_create(fd, HUGE, ALWAYS);
	uint64_t end = window + 16 * GIB;
	bool below = access_works(window - PAGE, false), above = access_works(end, false);

	CHECK_EQ(va_map(fd, bo, 0, window - 64 * KIB, 0, 128 * KIB), 0);
	CHECK_EQ(va_map(fd, bo, 0, end - 64 * KIB, 0, 128 * KIB), 0);
	settle(fd);
	at(window)[0] = 44;
	CHECK_EQ(at(end - 64 * KIB)[64 * KIB / 4 - 1], 0);
	CHECK_EQ(access_works(window - PAGE, false), below);
	CHECK_EQ(access_works(end, false), above);
	CHECK_EQ(va_map(fd, bo, 0, window + GIB, 64 * KIB, PAGE), 0);
	settle(fd);
	CHECK_EQ(at(window + GIB)[0], 44);
	CHECK_EQ(bo_close(fd, bo), 0);
}

/* Entries of 512 GiB, far larger than the window. */
static void large_unbacked_ranges_appear_only_in_the_window(void)
{
	uint64_t size = 512 * GIB, begin = window & ~(size - 1);
	uint64_t bytes = window + 16 * GIB > begin + size ? 2 * size : size;

	bool below = access_works(window - 2 * GIB, false);

	if (begin + bytes > UINT64_C(1) << 47)
		bytes = size;
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_MAP, 0, PRT, begin, 0, bytes), 0);
	settle(fd);
	CHECK_EQ(walk_now(fd, window).bytes, size);
	CHECK_EQ(at(window)[5], 0);
	CHECK(!access_works(window, true));
	CHECK_EQ(access_works(window - 2 * GIB, false), below);
	CHECK_EQ(va_clear(fd, 0, begin, bytes), 0);
	settle(fd);
	CHECK(!access_works(window, false));
}

static void an_entry_is_cut_off_where_the_window_ends(void)
{
	struct card other = card_open(kernel, "&identity=1&window=17MiB");
	uint64_t begin, end;
	uint32_t bo = bo_create(other.fd, 4 * MIB, 0);
	bool above;

	CHECK_EQ(vmkv_emulator_window(other.gpu, &begin, &end), 0);
	CHECK_EQ(end - begin, 17 * MIB);
	above = access_works(end, false);
	CHECK_EQ(va_map(other.fd, bo, 0, begin + 14 * MIB, 0, 4 * MIB), 0);
	CHECK_EQ(walk(other.fd, end).bytes, HUGE);
	at(end)[-1] = 5;
	CHECK_EQ(access_works(end, false), above);
	card_close(&other);
}

static void mappings_outside_the_window_stay_outside_the_process(void)
{
	uint32_t bo = bo_create(fd, HUGE, ALWAYS), value;

	CHECK_EQ(va_map(fd, bo, 0, VA, 0, HUGE), 0);
	CHECK_EQ(gpu_write(&card, VA, 5), 0);
	CHECK_EQ(gpu_read(&card, VA, &value), 0);
	CHECK_EQ(value, 5);
	CHECK(!access_works(VA, false));
	CHECK_EQ(bo_close(fd, bo), 0);
}

static void unbacked_ranges_read_zeros(void)
{
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_MAP, 0, PRT, window, 0, HUGE), 0);
	settle(fd);
	CHECK_EQ(at(window)[MIB / 4], 0);
	CHECK(!access_works(window, true));
	CHECK_EQ(va_clear(fd, 0, window, HUGE), 0);
	settle(fd);
	CHECK(!access_works(window, false));
}

static void the_window_belongs_to_the_first_file_that_maps_there(void)
{
	int second;
	uint32_t bo = bo_create(fd, HUGE, 0), other;
	char text[256];

	CHECK_EQ(va_map(fd, bo, 0, window, 0, PAGE), 0);
	CHECK_EQ(vmkv_emulator_open(card.gpu, &second), 0);
	other = bo_create(second, HUGE, 0);
	CHECK_EQ(va_map(second, other, 0, window + HUGE, 0, PAGE), -EINVAL);
	vmkv_emulator_error(card.gpu, text, sizeof(text));
	CHECK_CONTAINS(text, "identity window");
	CHECK_EQ(va_map(second, other, 0, VA, 0, PAGE), 0);
	CHECK_EQ(vmkv_emulator_close(second), 0);
	settle(fd);
	CHECK(access_works(window, true));
	CHECK_EQ(bo_close(fd, bo), 0);
}

static void a_closed_file_leaves_an_empty_window_to_the_next(void)
{
	uint32_t bo = bo_create(fd, HUGE, 0);
	int second;

	CHECK_EQ(va_map(fd, bo, 0, window, 0, 4 * PAGE), 0);
	CHECK_EQ(va_clear(fd, 0, window + PAGE, PAGE), 0); /* leaves entries that nobody clears */
	settle(fd);
	CHECK(access_works(window, false));
	CHECK_EQ(vmkv_emulator_close(fd), 0);
	CHECK(!access_works(window, false));
	CHECK_EQ(vmkv_emulator_open(card.gpu, &second), 0);
	card.fd = fd = second;
	bo = bo_create(fd, HUGE, 0);
	CHECK_EQ(va_map(fd, bo, 0, window + HUGE, 0, PAGE), 0);
	settle(fd);
	CHECK(access_works(window + HUGE, true));
	CHECK_EQ(bo_close(fd, bo), 0);
}

/* Of the process, that reach into the window. */
static uint64_t ranges_count(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	unsigned long long begin, end, n = 0;
	char line[512];

	CHECK(file != NULL);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "%llx-%llx", &begin, &end) == 2)
			n += end > window && begin < window + 16 * GIB;
	fclose(file);
	return n;
}

static void neighbours_in_address_and_buffer_are_one_range(void)
{
	uint32_t bo = bo_create(fd, 4 * HUGE, 0);

	settle(fd);
	CHECK_EQ(ranges_count(), 1);
	for (uint64_t i = 0; i < 64; i++)
		CHECK_EQ(va_map(fd, bo, 0, window + i * 64 * KIB, i * 64 * KIB, 64 * KIB), 0);
	settle(fd);
	CHECK_EQ(ranges_count(), 2);
	CHECK_EQ(bo_close(fd, bo), 0);
	settle(fd);
	CHECK_EQ(ranges_count(), 1);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static void the_process_running_out_of_ranges_is_told(void)
{
	fprintf(stderr, "skipped: the sanitizer needs ranges of its own\n");
}
#else
/* One range a page, until the process may have no more. */
static void the_process_running_out_of_ranges_is_told(void)
{
	FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
	uint32_t bo = bo_create(fd, PAGE, 0);
	uint64_t most = 0, refused = stats(&card).refused, i;
	char text[256];

	if (!file || fscanf(file, "%llu", (unsigned long long *)&most) != 1 || most > 200000) {
		fprintf(stderr, "skipped: vm.max_map_count is unknown or large\n");
		most = 0;
	}
	if (file)
		fclose(file);
	for (i = 0; i < most && stats(&card).refused == refused; i++) {
		CHECK_EQ(va_map(fd, bo, DELAY, window + 2 * i * PAGE, 0, PAGE), 0);
		if (i % 1024 == 1023) {
			CHECK_EQ(va_map(fd, bo, 0, window + 8 * GIB + i * PAGE, 0, PAGE), 0);
			settle(fd);
		}
	}
	if (most) {
		CHECK(i < most);
		CHECK(vmkv_emulator_error(card.gpu, text, sizeof(text)) > 0);
		CHECK_CONTAINS(text, "identity window");
		/* What is taken away is gone, also when nothing can take its place. */
		CHECK(access_works(window, true));
		CHECK_EQ(va_replace(fd, bo, 0, window, 0, PAGE), 0);
		settle(fd);
		CHECK(!access_works(window, false));
	}
	CHECK_EQ(bo_close(fd, bo), 0);
	settle(fd);
	/* And it recovers once they are given back. */
	CHECK(!access_works(window, false));
	CHECK_EQ(ranges_count(), 1);
	bo = bo_create(fd, PAGE, 0);
	CHECK_EQ(va_map(fd, bo, 0, window, 0, PAGE), 0);
	settle(fd);
	CHECK(access_works(window, true));
	CHECK_EQ(bo_close(fd, bo), 0);
}
#endif

int main(void)
{
	FOR_EACH_KERNEL(name) {
		uint64_t end;

		kernel = name;
		card = card_open(kernel, "&identity=1&window=16GiB");
		fd = card.fd;
		CHECK_EQ(vmkv_emulator_window(card.gpu, &window, &end), 0);
		RUN(there_is_a_window_only_when_asked_for);
		RUN(a_mapping_in_the_window_is_there_for_the_cpu);
		RUN(a_read_only_mapping_is_read_only_for_the_cpu);
		RUN(one_page_may_appear_twice);
		RUN(the_window_shows_what_the_tables_say_not_what_the_lists_say);
		RUN(only_what_lies_in_the_window_appears);
		RUN(large_unbacked_ranges_appear_only_in_the_window);
		RUN(an_entry_is_cut_off_where_the_window_ends);
		RUN(mappings_outside_the_window_stay_outside_the_process);
		RUN(unbacked_ranges_read_zeros);
		RUN(the_window_belongs_to_the_first_file_that_maps_there);
		RUN(neighbours_in_address_and_buffer_are_one_range);
		card_close(&card);
		card = card_open(kernel, "&identity=1&window=16GiB");
		fd = card.fd;
		CHECK_EQ(vmkv_emulator_window(card.gpu, &window, &end), 0);
		RUN(a_closed_file_leaves_an_empty_window_to_the_next);
		if (!strcmp(kernel, "6.12"))
			RUN(the_process_running_out_of_ranges_is_told);
		card_close(&card);
	}
	return 0;
}
