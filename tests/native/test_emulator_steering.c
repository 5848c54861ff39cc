/* SPDX-License-Identifier: MIT
 *
 * What tests ask of an emulated card: specs, counts, calls that fail to order, the trace, the
 * latency, and the safety of closing while others call.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "emulator_fixture.h"

#define CARD "gfx1201?vram=256MiB&gtt=256MiB"

static int version(int fd)
{
	struct drm_version args = { 0 };

	return emulated_call(fd, DRM_IOCTL_VERSION, &args);
}

static int clear(int fd, uint32_t operation)
{
	struct drm_amdgpu_gem_va args = { .operation = operation, .va_address = 1 << 20,
		                          .map_size = EMU_PAGE_BYTES };

	return emulated_call(fd, DRM_IOCTL_AMDGPU_GEM_VA, &args);
}

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* ---- specs ----------------------------------------------------------------------------------- */

static void a_spec_s_words_are_taken(void)
{
	struct emu_options options;
	char error[200] = "";

	CHECK_EQ(emu_options_parse("gfx942", &options, error, sizeof(error)), 0);
	CHECK_STR(options.model->name, "gfx942");
	CHECK_STR(options.kernel->name, "6.12");
	CHECK_EQ(options.vram_bytes, 192ULL << 30);
	CHECK_EQ(options.gtt_bytes, 192ULL << 30);
	CHECK_EQ(options.window_bytes, 64ULL << 30);
	CHECK(!options.identity && !options.cpu_update && !options.seed && !options.trace[0]);
	CHECK_EQ(emu_options_parse("gfx1100?kernel=7.2&vram=1GiB&gtt=32MiB&identity=1&window=1GiB&"
	                           "vm_update=cpu&seed=9&ioctl_us=2.5&pte_us=0&trace=/x/y&"
	                           "break=clean-split",
	                           &options, error, sizeof(error)), 0);
	CHECK_STR(options.kernel->name, "7.2");
	CHECK_EQ(options.vram_bytes, 1 << 30);
	CHECK_EQ(options.gtt_bytes, 32 << 20);
	CHECK_EQ(options.window_bytes, 1 << 30);
	CHECK(options.identity && options.cpu_update && options.break_clean_split);
	CHECK(!options.break_flush_all && !options.break_ignore_delay);
	CHECK_EQ(options.seed, 9);
	CHECK(options.ioctl_us == 2.5 && options.pte_us == 0);
	CHECK_STR(options.trace, "/x/y");
	CHECK_STR(error, "");
}

static void a_bad_spec_is_one_line(void)
{
	static const struct {
		const char *spec, *part;
	} bad[] = {
		{ "", "no model \"\"; there are gfx1030, gfx1100, gfx1201, gfx942" },
		{ "gfx906", "no model \"gfx906\"" },
		{ "gfx1201?speed=1", "no option \"speed\"; there are kernel, vram" },
		{ "gfx1201?vram", "\"vram\" lacks a value" },
		{ "gfx1201?vram=1GiB&vram=2GiB", "\"vram\" is given twice" },
		{ "gfx1201?vram=1", "vram=1: it takes a size" },
		{ "gfx1201?vram=16777217", "whole pages" },
		{ "gfx1201?gtt=2TiB", "gtt=2TiB" },
		{ "gfx1201?window=512GiB", "256GiB" },
		{ "gfx1201?kernel=5.10", "6.1, 6.12 or 7.2" },
		{ "gfx1201?identity=yes", "0 or 1" },
		{ "gfx1201?vm_update=gpu", "sdma or cpu" },
		{ "gfx1201?seed=-1", "a whole number" },
		{ "gfx1201?seed=99999999999999999999", "a whole number" },
		{ "gfx1201?ioctl_us=1e3", "a number from 0" },
		{ "gfx1201?ioctl_us=-1", "a number from 0" },
		{ "gfx1201?pte_us=.", "a number from 0" },
		{ "gfx1201?pte_us=1000001", "to 1000000" },
		{ "gfx1201?trace=", "the path of a file" },
		{ "gfx1201?break=all", "flush-all, clean-split or ignore-delay" },
	};
	char error[256];
	vmkv_emulator *gpu = NULL;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		error[0] = '\0';
		CHECK_EQ(vmkv_emulator_create(bad[i].spec, error, sizeof(error), &gpu), -EINVAL);
		CHECK_CONTAINS(error, bad[i].part);
		CHECK(!strchr(error, '\n') && !gpu);
	}
	CHECK_EQ(vmkv_emulator_create(NULL, error, sizeof(error), &gpu), -EINVAL);
	CHECK_EQ(vmkv_emulator_create("gfx906", NULL, 0, &gpu), -EINVAL);
	CHECK_EQ(vmkv_emulator_create(CARD "&trace=/no/such/place", error, sizeof(error), &gpu),
	         -ENOENT);
	CHECK_CONTAINS(error, "/no/such/place");
}

/* ---- counts and failures --------------------------------------------------------------------- */

static void calls_are_counted_by_name_and_operation(void)
{
	struct emulated card = emulated_open(CARD);

	CHECK_EQ(clear(card.fd, AMDGPU_VA_OP_CLEAR), 0);
	CHECK_EQ(clear(card.fd, AMDGPU_VA_OP_CLEAR), 0);
	CHECK_EQ(clear(card.fd, 99), -EINVAL); /* refused ones too */
	CHECK_EQ(emulated_count(card.gpu, "GEM_VA", UINT32_MAX), 3);
	CHECK_EQ(emulated_count(card.gpu, "GEM_VA", AMDGPU_VA_OP_CLEAR), 2);
	CHECK_EQ(emulated_count(card.gpu, "GEM_VA", AMDGPU_VA_OP_MAP), 0);
	CHECK_EQ(emulated_count(card.gpu, "GEM_VA", 99), 0);
	CHECK_EQ(emulated_count(card.gpu, "CS", UINT32_MAX), 0);
	CHECK_EQ(emulated_stats(card.gpu).ioctls, 3);
	emulated_close(&card);
}

static void every_name_can_be_counted(void)
{
	struct emulated card = emulated_open(CARD);
	uint64_t count;
	uint32_t index = 0;

	for (const char *name; (name = vmkv_emulator_ioctl_name(index)); index++)
		CHECK_EQ(emulated_count(card.gpu, name, UINT32_MAX), 0);
	CHECK(index > 30);
	CHECK_EQ(vmkv_emulator_count(card.gpu, "NOTHING", UINT32_MAX, &count), -EINVAL);
	CHECK_EQ(vmkv_emulator_count(card.gpu, NULL, UINT32_MAX, &count), -EINVAL);
	emulated_close(&card);
}

static void the_nth_call_fails_to_order(void)
{
	struct emulated card = emulated_open(CARD);

	CHECK_EQ(version(card.fd), 0);
	CHECK_EQ(vmkv_emulator_fail(card.gpu, "VERSION", 2, ENOMEM), 0);
	CHECK_EQ(version(card.fd), 0);
	CHECK_EQ(version(card.fd), -ENOMEM);
	CHECK_EQ(version(card.fd), 0);
	CHECK_EQ(vmkv_emulator_fail(card.gpu, "VERSION", 1, EINTR), 0);
	CHECK_EQ(vmkv_emulator_fail(card.gpu, "VERSION", 0, 0), 0); /* taken back */
	CHECK_EQ(version(card.fd), 0);
	CHECK_EQ(vmkv_emulator_fail(card.gpu, "NOTHING", 1, ENOMEM), -EINVAL);
	CHECK_EQ(vmkv_emulator_fail(card.gpu, "VERSION", 1, -ENOMEM), -EINVAL);
	CHECK_EQ(emulated_count(card.gpu, "VERSION", UINT32_MAX), 5);
	emulated_close(&card);
}

static void a_call_that_fails_to_order_does_nothing(void)
{
	struct emulated card = emulated_open(CARD);
	union drm_amdgpu_gem_create args = { .in = { .bo_size = EMU_PAGE_BYTES,
		                                     .domains = AMDGPU_GEM_DOMAIN_VRAM } };

	CHECK_EQ(vmkv_emulator_fail(card.gpu, "GEM_CREATE", 1, ENOMEM), 0);
	CHECK_EQ(emulated_call(card.fd, DRM_IOCTL_AMDGPU_GEM_CREATE, &args), -ENOMEM);
	CHECK_EQ(emulated_stats(card.gpu).handles, 0);
	CHECK_EQ(args.in.bo_size, EMU_PAGE_BYTES);
	emulated_close(&card);
}

/* ---- latency and trace ----------------------------------------------------------------------- */

static void an_ioctl_takes_as_long_as_was_asked(void)
{
	struct emulated slow = emulated_open(CARD "&ioctl_us=2000");
	struct emulated quick = emulated_open(CARD "&ioctl_us=20");
	double before = now_us();

	for (int i = 0; i < 5; i++)
		CHECK_EQ(version(slow.fd), 0);
	CHECK(now_us() - before >= 10000);
	before = now_us();
	for (int i = 0; i < 100; i++)
		CHECK_EQ(version(quick.fd), 0);
	CHECK(now_us() - before >= 2000);
	emulated_close(&slow);
	emulated_close(&quick);
}

/* A file for a trace, and the card that writes it. */
static struct emulated traced_open(int file)
{
	char spec[200];

	CHECK(file >= 0);
	snprintf(spec, sizeof(spec), CARD "&trace=/proc/self/fd/%d", file);
	return emulated_open(spec);
}

static const char *trace_read(int file)
{
	static char text[8192];
	ssize_t got = pread(file, text, sizeof(text) - 1, 0);

	CHECK(got >= 0);
	text[got] = '\0';
	return text;
}

static void the_trace_tells_of_each_ioctl(void)
{
	int file = memfd_create("trace", MFD_CLOEXEC);
	struct emulated card = traced_open(file);
	uint64_t args = 0;
	const char *text;

	CHECK_EQ(clear(card.fd, AMDGPU_VA_OP_CLEAR), 0);
	CHECK_EQ(clear(card.fd, 77), -EINVAL);
	CHECK_EQ(emulated_call(card.fd, DRM_IOWR(0x9f, uint64_t), &args), -EINVAL);
	text = trace_read(file); /* while the card lives */
	CHECK_CONTAINS(text, "\"ioctl\":\"GEM_VA\",\"args\":{\"handle\":0,\"operation\":3,"
	                     "\"flags\":0,"
	                     "\"va_address\":\"0x100000\",\"offset_in_bo\":0,\"map_size\":4096}");
	CHECK_CONTAINS(text, "\"out\":{},\"result\":0,");
	CHECK_CONTAINS(text, "\"operation\":77");
	CHECK_CONTAINS(text, "\"result\":-22,");
	CHECK_CONTAINS(text, "\"ioctl\":\"0xc008649f\"");
	emulated_close(&card);
	close(file);
}

static void the_trace_tells_what_a_submission_holds(void)
{
	struct drm_amdgpu_cs_chunk_ib ib = { .va_start = 0x200000, .ib_bytes = 32,
		                             .ip_type = AMDGPU_HW_IP_DMA };
	struct drm_amdgpu_bo_list_entry entry = { .bo_handle = 5 };
	struct drm_amdgpu_bo_list_in list = { .operation = ~0u, .list_handle = ~0u, .bo_number = 1,
		                              .bo_info_size = sizeof(entry),
		                              .bo_info_ptr = (uint64_t)(uintptr_t)&entry };
	struct drm_amdgpu_cs_chunk chunks[] = {
		{ AMDGPU_CHUNK_ID_IB, sizeof(ib) / 4, (uint64_t)(uintptr_t)&ib },
		{ AMDGPU_CHUNK_ID_BO_HANDLES, sizeof(list) / 4, (uint64_t)(uintptr_t)&list },
	};
	uint64_t pointers[] = { (uint64_t)(uintptr_t)&chunks[0], (uint64_t)(uintptr_t)&chunks[1] };
	union drm_amdgpu_cs args = { .in = { .ctx_id = 42, .num_chunks = 2,
		                             .chunks = (uint64_t)(uintptr_t)pointers } };
	int file = memfd_create("trace", MFD_CLOEXEC);
	struct emulated card = traced_open(file);
	const char *text;

	CHECK_EQ(emulated_call(card.fd, DRM_IOCTL_AMDGPU_CS, &args), -EINVAL); /* no context 42 */
	args.in.chunks = 16; /* leads nowhere */
	CHECK(emulated_call(card.fd, DRM_IOCTL_AMDGPU_CS, &args) < 0);
	emulated_close(&card);
	text = trace_read(file);
	CHECK_CONTAINS(text, "\"ioctl\":\"CS\",\"args\":{\"ctx_id\":42,");
	CHECK_CONTAINS(text, "\"chunks\":[{\"id\":\"IB\",\"data\":[{\"va_start\":\"0x200000\",");
	CHECK_CONTAINS(text, "{\"id\":\"BO_HANDLES\",\"bo_number\":1,\"entries\":[5]}]");
	CHECK_CONTAINS(text, "\"chunks\":[]");
	close(file);
}

static void cards_may_share_a_trace(void)
{
	int file = memfd_create("trace", MFD_CLOEXEC), lines = 0;
	struct emulated one = traced_open(file), two = traced_open(file);

	for (int i = 0; i < 3; i++) {
		CHECK_EQ(version(one.fd), 0);
		CHECK_EQ(version(two.fd), 0);
	}
	for (const char *at = trace_read(file); *at; at++, lines++) {
		CHECK(*at == '{');
		at = strchr(at, '\n');
		CHECK(at && at[-1] == '}');
	}
	CHECK_EQ(lines, 6);
	emulated_close(&one);
	emulated_close(&two);
	close(file);
}

/* ---- closing --------------------------------------------------------------------------------- */

struct caller {
	pthread_t thread;
	int fd;
	uint64_t calls;
};

static void *call_until_gone(void *data)
{
	struct caller *caller = data;
	int result;

	while ((result = clear(caller->fd, AMDGPU_VA_OP_CLEAR)) == 0)
		caller->calls++;
	CHECK_EQ(result, -ENODEV);
	return NULL;
}

/* The callers have duplicates: the number of a closed descriptor may soon be another's. */
static void closing_while_others_call_is_safe(void)
{
	for (int round = 0; round < 20; round++) {
		struct emulated card = emulated_open(CARD);
		struct caller callers[3] = { 0 };

		for (int i = 0; i < 3; i++) {
			callers[i].fd = dup(card.fd);
			CHECK_EQ(pthread_create(&callers[i].thread, NULL, call_until_gone,
			                        &callers[i]), 0);
		}
		usleep(2000);
		if (round % 2)
			CHECK_EQ(vmkv_emulator_close(card.fd), 0);
		else
			vmkv_emulator_destroy(card.gpu);
		for (int i = 0; i < 3; i++) {
			pthread_join(callers[i].thread, NULL);
			close(callers[i].fd);
		}
		if (round % 2)
			vmkv_emulator_destroy(card.gpu);
		else
			close(card.fd);
	}
}

static void stats_fill_as_much_as_the_caller_knows(void)
{
	struct emulated card = emulated_open(CARD);
	struct vmkv_emulator_stats stats = { .buffers = 99 };

	stats.struct_size = offsetof(struct vmkv_emulator_stats, buffers);
	CHECK_EQ(vmkv_emulator_stats(card.gpu, &stats), 0);
	CHECK_EQ(stats.files, 1);
	CHECK_EQ(stats.buffers, 99);
	stats.struct_size = 0;
	CHECK_EQ(vmkv_emulator_stats(card.gpu, &stats), -EINVAL);
	CHECK_EQ(vmkv_emulator_stats(card.gpu, NULL), -EINVAL);
	CHECK_EQ(emulated_stats(card.gpu).vram_bytes, 256 << 20);
	emulated_close(&card);
}

int main(void)
{
	RUN(a_spec_s_words_are_taken);
	RUN(a_bad_spec_is_one_line);
	RUN(calls_are_counted_by_name_and_operation);
	RUN(every_name_can_be_counted);
	RUN(the_nth_call_fails_to_order);
	RUN(a_call_that_fails_to_order_does_nothing);
	RUN(an_ioctl_takes_as_long_as_was_asked);
	RUN(the_trace_tells_of_each_ioctl);
	RUN(the_trace_tells_what_a_submission_holds);
	RUN(cards_may_share_a_trace);
	RUN(closing_while_others_call_is_safe);
	RUN(stats_fill_as_much_as_the_caller_knows);
	return 0;
}
