/* SPDX-License-Identifier: MIT
 *
 * fdinfo: each kernel's keys, what counts as whose memory, and the engines' time.
 */
#include "cs_fixture.h"

static char text[4096];

static const char *fdinfo(int fd)
{
	size_t length;

	CHECK_EQ(vmkv_emulator_fdinfo(fd, text, sizeof(text), &length), 0);
	CHECK_EQ(length, strlen(text));
	return text;
}

/* The number behind a key, in KiB or as it is; -1: there is no such key. */
static long long number(int fd, const char *key)
{
	const char *at = fdinfo(fd);
	size_t length = strlen(key);

	for (; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
		if (!strncmp(at, key, length) && at[length] == ':')
			return atoll(at + length + 1);
	return -1;
}

static void each_kernel_has_its_keys(void)
{
	static const struct {
		const char *key;
		bool on[3];
	} keys[] = {
		{ "drm-driver", { true, true, true } },
		{ "drm-pdev", { true, true, true } },
		{ "drm-client-id", { true, true, true } },
		{ "pasid", { true, true, true } },
		{ "drm-memory-vram", { true, true, true } },
		{ "drm-memory-gtt", { true, true, true } },
		{ "drm-memory-cpu", { true, true, true } },
		{ "drm-shared-vram", { false, true, true } },
		{ "amd-memory-visible-vram", { false, true, false } },
		{ "amd-evicted-vram", { false, true, true } },
		{ "amd-requested-gtt", { false, true, true } },
		{ "amd-requested-visible-vram", { false, true, false } },
		{ "drm-total-vram", { false, false, true } },
		{ "drm-resident-gtt", { false, false, true } },
		{ "drm-purgeable-cpu", { false, false, true } },
		{ "drm-total-doorbell", { false, false, true } },
		{ "drm-client-name", { false, false, false } },
		{ "drm-engine-gfx", { false, false, false } },
	};

	for (int k = 0; k < 3; k++) {
		struct card card = card_open(all_kernels[k], "");

		for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
			if ((number(card.fd, keys[i].key) >= 0) != keys[i].on[k])
				CHECK_FAIL("%s: %s is %sthere", all_kernels[k], keys[i].key,
				           keys[i].on[k] ? "not " : "");
		CHECK_CONTAINS(text, "drm-driver:\tamdgpu\n");
		CHECK_CONTAINS(text, "drm-pdev:\t" VMKV_EMULATOR_PCI "\n");
		CHECK_CONTAINS(text, "drm-memory-gtt: \t0 KiB\n");
		card_close(&card);
	}
}

static void buffers_count_where_they_are(void)
{
	FOR_EACH_KERNEL(kernel) {
		struct card card = card_open(kernel, "");
		long long tables = number(card.fd, "drm-memory-vram");
		uint32_t vram = bo_create(card.fd, 3 * MIB, 0), gtt = bo_create_in(card.fd, MIB, GTT, 0);

		CHECK_EQ(number(card.fd, "drm-memory-vram"), tables + 3072);
		CHECK_EQ(number(card.fd, "drm-memory-gtt"), 1024);
		if (strcmp(kernel, "6.1"))
			CHECK_EQ(number(card.fd, "amd-requested-gtt"), 1024);
		if (!strcmp(kernel, "7.2"))
			CHECK_CONTAINS(fdinfo(card.fd), "drm-total-gtt:\t1 MiB\n");
		CHECK_EQ(bo_close(card.fd, vram), 0);
		CHECK_EQ(bo_close(card.fd, gtt), 0);
		CHECK_EQ(number(card.fd, "drm-memory-vram"), tables);
		card_close(&card);
	}
}

static void page_tables_are_the_file_s_memory(void)
{
	struct card card = card_open("7.2", "");
	uint32_t bo = bo_create_in(card.fd, MIB, GTT, 0);
	long long before = number(card.fd, "drm-memory-vram");

	CHECK_EQ(va_map(card.fd, bo, 0, VA, 0, MIB), 0);
	CHECK_EQ(number(card.fd, "drm-memory-vram"), before + 3 * 4);
	card_close(&card);
}

static void a_buffer_counts_once_and_is_shared_by_two(void)
{
	struct card card = card_open("6.12", "");
	uint32_t bo = bo_create_in(card.fd, MIB, GTT, 0);
	struct drm_prime_handle prime = { .handle = bo, .flags = DRM_CLOEXEC };
	int other;

	CHECK_EQ(number(card.fd, "drm-shared-gtt"), 0);
	CHECK_EQ(call(card.fd, DRM_IOCTL_PRIME_HANDLE_TO_FD, &prime), 0);
	CHECK_EQ(vmkv_emulator_open(card.gpu, &other), 0);
	CHECK_EQ(call(other, DRM_IOCTL_PRIME_FD_TO_HANDLE, &prime), 0);
	CHECK_EQ(number(card.fd, "drm-shared-gtt"), 1024);
	CHECK_EQ(number(card.fd, "drm-memory-gtt"), 1024);
	CHECK_EQ(number(other, "drm-memory-gtt"), 1024);
	CHECK(number(other, "drm-client-id") != number(card.fd, "drm-client-id"));
	close(prime.fd);
	CHECK_EQ(vmkv_emulator_close(other), 0);
	card_close(&card);
}

static void two_handles_of_a_buffer_are_one_buffer(void)
{
	struct card card = card_open("6.12", "");
	struct drm_gem_flink flink = { 0 };
	struct drm_gem_open again = { 0 };
	int fd;

	CHECK_EQ(vmkv_emulator_open_primary(card.gpu, &fd), 0);
	flink.handle = bo_create_in(fd, MIB, GTT, 0);
	CHECK_EQ(call(fd, DRM_IOCTL_GEM_FLINK, &flink), 0);
	again.name = flink.name;
	CHECK_EQ(call(fd, DRM_IOCTL_GEM_OPEN, &again), 0);
	CHECK(again.handle != flink.handle);
	CHECK_EQ(number(fd, "drm-memory-gtt"), 1024);
	CHECK_EQ(vmkv_emulator_close(fd), 0);
	card_close(&card);
}

static void engines_have_a_time_once_they_ran(void)
{
	struct bench bench = bench_open("6.12", "");

	CHECK_EQ(number(bench.fd, "drm-engine-dma"), -1);
	memset(slot(&bench, 0), 0, PAGE);
	CHECK_EQ(slot_run(&bench, 0), 0);
	CHECK(number(bench.fd, "drm-engine-dma") > 0);
	CHECK_EQ(number(bench.fd, "drm-engine-gfx"), -1);
	bench_close(&bench);
}

static void a_name_is_told(void)
{
	struct card card = card_open("7.2", "");
	struct drm_set_client_name args = { .name_len = 5, .name = (uintptr_t)"agent" };

	CHECK_EQ(call(card.fd, DRM_IOCTL_SET_CLIENT_NAME, &args), 0);
	CHECK_CONTAINS(fdinfo(card.fd), "drm-client-name:\tagent\n");
	card_close(&card);
}

static void a_text_is_cut_to_its_room(void)
{
	struct card card = card_open("6.12", "");
	size_t length = 0, again = 0;
	char small[8];

	CHECK_EQ(vmkv_emulator_fdinfo(card.fd, small, sizeof(small), &length), 0);
	CHECK_STR(small, "drm-dri");
	CHECK_EQ(vmkv_emulator_fdinfo(card.fd, NULL, 0, &again), 0);
	CHECK_EQ(again, length);
	CHECK_EQ(vmkv_emulator_fdinfo(0, small, sizeof(small), &length), -EBADF);
	card_close(&card);
}

int main(void)
{
	RUN(each_kernel_has_its_keys);
	RUN(buffers_count_where_they_are);
	RUN(page_tables_are_the_file_s_memory);
	RUN(a_buffer_counts_once_and_is_shared_by_two);
	RUN(two_handles_of_a_buffer_are_one_buffer);
	RUN(engines_have_a_time_once_they_ran);
	RUN(a_name_is_told);
	RUN(a_text_is_cut_to_its_room);
	return 0;
}
