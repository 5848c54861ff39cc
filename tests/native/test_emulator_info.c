/* SPDX-License-Identifier: MIT
 *
 * INFO, VERSION and the like: what an emulated card says of itself, per model and per kernel.
 */
#include <time.h>

#include "emulator_fixture.h"

#define SMALL "vram=256MiB&gtt=128MiB"
#define MIB (1ULL << 20)

static const struct drm_amdgpu_info none;

static struct emulated card_open(const char *model, const char *kernel)
{
	char spec[100];

	snprintf(spec, sizeof(spec), "%s?" SMALL "&kernel=%s", model, kernel);
	return emulated_open(spec);
}

static uint64_t number_of(int fd, uint32_t query)
{
	uint64_t value = 0;

	CHECK_EQ(emulated_info(fd, none, query, &value, sizeof(value)), 0);
	return value;
}

/* ---- the form of the ioctl ------------------------------------------------------------------- */

static void no_room_is_einval(void)
{
	struct emulated card = card_open("gfx1201", "6.12");
	uint32_t value;

	CHECK_EQ(emulated_info(card.fd, none, AMDGPU_INFO_ACCEL_WORKING, &value, 0), -EINVAL);
	CHECK_EQ(emulated_info(card.fd, none, AMDGPU_INFO_ACCEL_WORKING, NULL, 4), -EINVAL);
	CHECK_EQ(emulated_info(card.fd, none, AMDGPU_INFO_ACCEL_WORKING, (void *)16, 4), -EFAULT);
	CHECK_EQ(emulated_info(card.fd, none, AMDGPU_INFO_ACCEL_WORKING, &value, 4), 0);
	CHECK_EQ(value, 1);
	emulated_close(&card);
}

static void an_answer_is_as_long_as_the_room_or_the_struct(void)
{
	static const struct {
		const char *kernel;
		uint32_t device, ip;
	} sizes[] = { { "6.1", 368, 32 }, { "6.12", 440, 32 }, { "7.2", 440, 40 } };

	for (size_t i = 0; i < 3; i++) {
		struct emulated card = card_open("gfx1201", sizes[i].kernel);
		uint8_t bytes[600];

		memset(bytes, 0xee, sizeof(bytes));
		CHECK_EQ(emulated_info(card.fd, none, AMDGPU_INFO_DEV_INFO, bytes, 600), 0);
		CHECK_EQ(bytes[sizes[i].device], 0xee);
		CHECK(bytes[sizes[i].device - 1] != 0xee);
		memset(bytes, 0xee, sizeof(bytes));
		CHECK_EQ(emulated_info(card.fd, none, AMDGPU_INFO_HW_IP_INFO, bytes, 600), 0);
		CHECK_EQ(bytes[sizes[i].ip], 0xee);
		CHECK(bytes[sizes[i].ip - 1] != 0xee);
		memset(bytes, 0xee, sizeof(bytes));
		CHECK_EQ(emulated_info(card.fd, none, AMDGPU_INFO_DEV_INFO, bytes, 3), 0);
		CHECK(bytes[0] == 0x50 && bytes[1] == 0x75 && bytes[3] == 0xee);
		emulated_close(&card);
	}
}

static void unknown_queries_are_refused_and_counted(void)
{
	struct emulated card = card_open("gfx1201", "6.12");
	static const uint32_t queries[] = { AMDGPU_INFO_UQ_FW_AREAS, 0x04, 0x99, UINT32_MAX };
	uint64_t value[64];

	for (uint32_t i = 0; i < 4; i++) {
		CHECK_EQ(emulated_info(card.fd, none, queries[i], value, sizeof(value)), -EINVAL);
		CHECK_EQ(emulated_stats(card.gpu).refused, i + 1);
	}
	CHECK_EQ(emulated_info(card.fd, none, AMDGPU_INFO_CRTC_FROM_ID, value, 4), -EINVAL);
	emulated_close(&card);
}

static void old_kernels_lack_newer_queries(void)
{
	struct emulated old = card_open("gfx1201", "6.1"), new = card_open("gfx1201", "6.12");
	uint32_t most[AMDGPU_HW_IP_NUM];
	struct drm_amdgpu_info_gpuvm_fault fault = { .addr = 1 };

	CHECK_EQ(emulated_info(old.fd, none, AMDGPU_INFO_GPUVM_FAULT, &fault, 16), -EINVAL);
	CHECK_EQ(emulated_info(new.fd, none, AMDGPU_INFO_GPUVM_FAULT, &fault, 16), 0);
	CHECK(!fault.addr && !fault.status && !fault.vmhub);
	CHECK_EQ(emulated_info(old.fd, none, AMDGPU_INFO_MAX_IBS, most, sizeof(most)), -EINVAL);
	CHECK_EQ(emulated_info(new.fd, none, AMDGPU_INFO_MAX_IBS, most, sizeof(most)), 0);
	CHECK_EQ(most[AMDGPU_HW_IP_GFX], 192);
	CHECK_EQ(most[AMDGPU_HW_IP_COMPUTE], 125);
	CHECK_EQ(most[AMDGPU_HW_IP_DMA], 49);
	emulated_close(&old);
	emulated_close(&new);
}

/* ---- the device ------------------------------------------------------------------------------ */

static struct drm_amdgpu_info_device device_of(int fd)
{
	struct drm_amdgpu_info_device device = { 0 };

	CHECK_EQ(emulated_info(fd, none, AMDGPU_INFO_DEV_INFO, &device, sizeof(device)), 0);
	return device;
}

static void each_model_has_its_ids(void)
{
	static const struct {
		const char *model;
		uint32_t device, revision, family, external, wave, cus;
	} models[] = {
		{ "gfx1030", 0x73bf, 0xc3, 143, 0x29, 32, 60 },
		{ "gfx1100", 0x744c, 0xc8, 145, 0x01, 32, 96 },
		{ "gfx1201", 0x7550, 0xc0, 152, 0x51, 32, 64 },
		{ "gfx942", 0x74a1, 0x00, 141, 0x47, 64, 304 },
	};

	for (size_t i = 0; i < 4; i++) {
		struct emulated card = card_open(models[i].model, "6.12");
		struct drm_amdgpu_info_device device = device_of(card.fd);

		CHECK_EQ(device.device_id, models[i].device);
		CHECK_EQ(device.pci_rev, models[i].revision);
		CHECK_EQ(device.family, models[i].family);
		CHECK_EQ(device.external_rev, models[i].external);
		CHECK_EQ(device.wave_front_size, models[i].wave);
		CHECK_EQ(device.cu_active_number, models[i].cus);
		CHECK_EQ(device.virtual_address_alignment, 4096);
		CHECK_EQ(device.gart_page_size, 4096);
		CHECK_EQ(device.pte_fragment_size, 2 * MIB);
		CHECK(device.max_engine_clock > device.min_engine_clock);
		emulated_close(&card);
	}
}

/* gfx942's bitmap is of one die of eight. */
static void the_bitmap_has_as_many_units_as_are_told(void)
{
	static const char *const names[] = { "gfx1030", "gfx1100", "gfx1201" };

	for (size_t i = 0; i < 3; i++) {
		struct emulated card = card_open(names[i], "6.12");
		struct drm_amdgpu_info_device device = device_of(card.fd);
		uint32_t units = 0;

		for (int j = 0; j < 16; j++)
			units += (uint32_t)__builtin_popcount(device.cu_bitmap[j / 4][j % 4]);
		CHECK_EQ(units, device.cu_active_number);
		emulated_close(&card);
	}
}

static void addresses_are_the_kernel_s(void)
{
	static const struct {
		const char *kernel;
		uint64_t bottom, top;
	} kernels[] = {
		{ "6.1", 2 * MIB, 0xffffffffffe00000 },
		{ "6.12", 64 << 10, 0xffffffffffbf0000 },
		{ "7.2", 64 << 10, 0xffffffffffbf0000 },
	};

	for (size_t i = 0; i < 3; i++) {
		struct emulated card = card_open("gfx1201", kernels[i].kernel);
		struct drm_amdgpu_info_device device = device_of(card.fd);

		CHECK_EQ(device.virtual_address_offset, kernels[i].bottom);
		CHECK_EQ(device.virtual_address_max, 0x800000000000);
		CHECK_EQ(device.high_va_offset, 0xffff800000000000);
		CHECK_EQ(device.high_va_max, kernels[i].top);
		emulated_close(&card);
	}
}

static struct drm_amdgpu_info_hw_ip ip_of(int fd, uint32_t type)
{
	struct drm_amdgpu_info request = { .query_hw_ip = { .type = type } };
	struct drm_amdgpu_info_hw_ip ip = { 0 };

	CHECK_EQ(emulated_info(fd, request, AMDGPU_INFO_HW_IP_INFO, &ip, sizeof(ip)), 0);
	return ip;
}

static void engines_have_their_versions_and_rings(void)
{
	struct emulated card = card_open("gfx1201", "6.12"), instinct = card_open("gfx942", "6.12");
	struct drm_amdgpu_info_hw_ip ip = ip_of(card.fd, AMDGPU_HW_IP_DMA);

	CHECK_EQ(ip.hw_ip_version_major, 7);
	CHECK_EQ(ip.ip_discovery_version, 0x70001);
	CHECK_EQ(ip.available_rings, 3);
	CHECK_EQ(ip.ib_start_alignment, 256);
	CHECK_EQ(ip.ib_size_alignment, 4);
	ip = ip_of(card.fd, AMDGPU_HW_IP_GFX);
	CHECK_EQ(ip.hw_ip_version_major, 12);
	CHECK_EQ(ip.ip_discovery_version, 0xc0001);
	CHECK_EQ(ip.available_rings, 1);
	CHECK_EQ(ip_of(card.fd, AMDGPU_HW_IP_COMPUTE).available_rings, 0xf);
	CHECK_EQ(ip_of(card.fd, AMDGPU_HW_IP_VCN_DEC).available_rings, 0); /* no video */
	CHECK_EQ(ip_of(instinct.fd, AMDGPU_HW_IP_GFX).available_rings, 0);
	CHECK_EQ(ip_of(instinct.fd, AMDGPU_HW_IP_DMA).ip_discovery_version, 0x40402);
	emulated_close(&card);
	emulated_close(&instinct);
}

/* 6.1 counts what others call blocks. */
static void there_is_one_instance_of_an_ip(void)
{
	static const char *const kernels[] = { "6.1", "6.12", "7.2" };

	for (int i = 0; i < 3; i++) {
		const char *kernel = kernels[i];
		bool old = !strcmp(kernel, "6.1");
		struct emulated card = card_open("gfx1201", kernel);
		struct drm_amdgpu_info request = { .query_hw_ip = { AMDGPU_HW_IP_DMA, 1 } };
		struct drm_amdgpu_info_hw_ip ip;
		uint32_t count = 7;

		CHECK_EQ(emulated_info(card.fd, request, AMDGPU_INFO_HW_IP_INFO, &ip, sizeof(ip)), -EINVAL);
		CHECK_EQ(emulated_info(card.fd, request, AMDGPU_INFO_HW_IP_COUNT, &count, 4), 0);
		CHECK_EQ(count, old ? 1 : 2);
		request.query_hw_ip.type = AMDGPU_HW_IP_VCN_DEC;
		CHECK_EQ(emulated_info(card.fd, request, AMDGPU_INFO_HW_IP_COUNT, &count, 4),
		         old ? 0 : -EINVAL);
		request.query_hw_ip.ip_instance = 0;
		request.query_hw_ip.type = AMDGPU_HW_IP_VPE; /* not on 6.1 */
		CHECK_EQ(emulated_info(card.fd, request, AMDGPU_INFO_HW_IP_INFO, &ip, sizeof(ip)),
		         old ? -EINVAL : 0);
		emulated_close(&card);
	}
}

static int firmware(int fd, uint32_t type, uint32_t instance, uint32_t index, uint32_t *version)
{
	struct drm_amdgpu_info request = { .query_fw = { type, instance, index, 0 } };
	struct drm_amdgpu_info_firmware ret = { 0 };
	int err = emulated_info(fd, request, AMDGPU_INFO_FW_VERSION, &ret, sizeof(ret));

	*version = ret.ver;
	return err;
}

static void firmware_has_versions(void)
{
	struct emulated card = card_open("gfx1201", "6.12");
	uint32_t version;

	CHECK_EQ(firmware(card.fd, AMDGPU_INFO_FW_GFX_ME, 0, 0, &version), 0);
	CHECK_EQ(version, 2590);
	CHECK_EQ(firmware(card.fd, AMDGPU_INFO_FW_UVD, 0, 0, &version), 0);
	CHECK_EQ(version, 0);
	CHECK_EQ(firmware(card.fd, AMDGPU_INFO_FW_SDMA, 0, 1, &version), 0);
	CHECK_EQ(firmware(card.fd, AMDGPU_INFO_FW_SDMA, 0, 2, &version), -EINVAL);
	CHECK_EQ(firmware(card.fd, AMDGPU_INFO_FW_GFX_MEC, 0, 2, &version), -EINVAL);
	CHECK_EQ(firmware(card.fd, AMDGPU_INFO_FW_GFX_ME, 1, 0, &version), -EINVAL);
	CHECK_EQ(firmware(card.fd, 0x09, 0, 0, &version), -EINVAL);
	CHECK_EQ(firmware(card.fd, 0x99, 0, 0, &version), -EINVAL);
	emulated_close(&card);
}

static void there_is_no_video(void)
{
	struct emulated card = card_open("gfx1201", "6.12");
	struct drm_amdgpu_info request = { .video_cap = { AMDGPU_INFO_VIDEO_CAPS_ENCODE } };
	struct drm_amdgpu_info_video_caps caps = { .codec_info[1].valid = 1 };
	struct drm_amdgpu_info_vce_clock_table clocks = { .num_valid_entries = 1 };
	struct drm_amdgpu_info_num_handles handles;

	CHECK_EQ(emulated_info(card.fd, request, AMDGPU_INFO_VIDEO_CAPS, &caps, sizeof(caps)), 0);
	CHECK_EQ(caps.codec_info[1].valid, 0);
	request.video_cap.type = 2;
	CHECK_EQ(emulated_info(card.fd, request, AMDGPU_INFO_VIDEO_CAPS, &caps, sizeof(caps)),
	         -EINVAL);
	CHECK_EQ(emulated_info(card.fd, none, AMDGPU_INFO_VCE_CLOCK_TABLE, &clocks, sizeof(clocks)),
	         0);
	CHECK_EQ(clocks.num_valid_entries, 0);
	request.query_hw_ip.type = AMDGPU_HW_IP_UVD;
	CHECK_EQ(emulated_info(card.fd, request, AMDGPU_INFO_NUM_HANDLES, &handles, 8), -ENODATA);
	request.query_hw_ip.type = AMDGPU_HW_IP_GFX;
	CHECK_EQ(emulated_info(card.fd, request, AMDGPU_INFO_NUM_HANDLES, &handles, 8), -EINVAL);
	emulated_close(&card);
}

/* ---- state ----------------------------------------------------------------------------------- */

static void the_clock_runs_with_its_frequency(void)
{
	struct emulated card = card_open("gfx1201", "6.12");
	struct timespec time = { .tv_nsec = 20000000 };
	uint64_t before = number_of(card.fd, AMDGPU_INFO_TIMESTAMP), ticks;

	nanosleep(&time, NULL);
	ticks = number_of(card.fd, AMDGPU_INFO_TIMESTAMP) - before;
	CHECK(ticks >= 2000000 && ticks < 200000000); /* 100 MHz: at least 20 ms, less than 2 s */
	emulated_close(&card);
}

static void memory_is_what_is_there_and_in_use(void)
{
	struct emulated card = card_open("gfx1201", "6.12");
	union drm_amdgpu_gem_create args = { .in = { .bo_size = 4 * MIB,
		                                     .domains = AMDGPU_GEM_DOMAIN_VRAM } };
	struct drm_amdgpu_memory_info before, after;
	struct drm_amdgpu_info_vram_gtt sizes;
	uint64_t usage = number_of(card.fd, AMDGPU_INFO_VRAM_USAGE);

	CHECK_EQ(emulated_info(card.fd, none, AMDGPU_INFO_MEMORY, &before, sizeof(before)), 0);
	CHECK_EQ(emulated_call(card.fd, DRM_IOCTL_AMDGPU_GEM_CREATE, &args), 0);
	CHECK_EQ(emulated_info(card.fd, none, AMDGPU_INFO_MEMORY, &after, sizeof(after)), 0);
	CHECK_EQ(before.vram.total_heap_size, 256 * MIB);
	CHECK_EQ(before.gtt.total_heap_size, 128 * MIB);
	CHECK_EQ(before.vram.heap_usage, usage);
	CHECK_EQ(after.vram.heap_usage - usage, 4 * MIB);
	CHECK_EQ(number_of(card.fd, AMDGPU_INFO_VRAM_USAGE) - usage, 4 * MIB);
	CHECK_EQ(number_of(card.fd, AMDGPU_INFO_VIS_VRAM_USAGE) - usage, 4 * MIB);
	CHECK_EQ(after.vram.max_allocation, after.vram.usable_heap_size * 3 / 4);
	CHECK(!memcmp(&after.vram, &after.cpu_accessible_vram, sizeof(after.vram)));
	CHECK_EQ(emulated_info(card.fd, none, AMDGPU_INFO_VRAM_GTT, &sizes, sizeof(sizes)), 0);
	CHECK_EQ(sizes.vram_size, after.vram.usable_heap_size);
	CHECK_EQ(sizes.gtt_size, after.gtt.usable_heap_size);
	emulated_close(&card);
}

static void counters_begin_at_zero(void)
{
	struct emulated card = card_open("gfx1201", "6.12");

	CHECK_EQ(number_of(card.fd, AMDGPU_INFO_NUM_EVICTIONS), 0);
	CHECK_EQ(number_of(card.fd, AMDGPU_INFO_NUM_BYTES_MOVED), 0);
	CHECK_EQ(number_of(card.fd, AMDGPU_INFO_NUM_VRAM_CPU_PAGE_FAULTS), 0);
	CHECK_EQ(number_of(card.fd, AMDGPU_INFO_VRAM_LOST_COUNTER), 0);
	emulated_close(&card);
}

/* ---- the DRM core ---------------------------------------------------------------------------- */

static void version_tells_the_kernel(void)
{
	static const struct {
		const char *kernel, *date;
		int minor;
	} kernels[] = { { "6.1", "20150101", 49 }, { "6.12", "20150101", 61 }, { "7.2", "0", 64 } };

	for (size_t i = 0; i < 3; i++) {
		struct emulated card = card_open("gfx1201", kernels[i].kernel);
		char name[7] = "", date[16] = "", description[4] = "###";
		struct drm_version args = { .name = name, .name_len = 6, .date = date, .date_len = 15,
			                    .desc = description, .desc_len = 2 };

		CHECK_EQ(emulated_call(card.fd, DRM_IOCTL_VERSION, &args), 0);
		CHECK_EQ(args.version_major, 3);
		CHECK_EQ(args.version_minor, kernels[i].minor);
		CHECK_STR(name, "amdgpu");
		CHECK_STR(date, kernels[i].date);
		CHECK_EQ(args.date_len, strlen(kernels[i].date));
		CHECK_STR(description, "AM#"); /* as much as there is room for */
		CHECK_EQ(args.desc_len, 7);
		args.name = (char *)16;
		args.name_len = 6;
		CHECK_EQ(emulated_call(card.fd, DRM_IOCTL_VERSION, &args), -EFAULT);
		emulated_close(&card);
	}
}

static void a_render_node_isn_t_authenticated(void)
{
	struct emulated card = card_open("gfx1201", "6.12");
	struct drm_client client = { .auth = 1 };

	CHECK_EQ(emulated_call(card.fd, DRM_IOCTL_GET_CLIENT, &client), 0);
	CHECK_EQ(client.auth, 0);
	client.idx = 1;
	CHECK_EQ(emulated_call(card.fd, DRM_IOCTL_GET_CLIENT, &client), -EINVAL);
	emulated_close(&card);
}

static void capabilities_are_those_of_a_card_without_displays(void)
{
	struct emulated card = card_open("gfx1201", "6.12");
	struct drm_get_cap cap = { .capability = DRM_CAP_SYNCOBJ_TIMELINE };

	CHECK_EQ(emulated_call(card.fd, DRM_IOCTL_GET_CAP, &cap), 0);
	CHECK_EQ(cap.value, 1);
	cap.capability = DRM_CAP_DUMB_BUFFER;
	CHECK_EQ(emulated_call(card.fd, DRM_IOCTL_GET_CAP, &cap), -EOPNOTSUPP);
	emulated_close(&card);
}

int main(void)
{
	RUN(no_room_is_einval);
	RUN(an_answer_is_as_long_as_the_room_or_the_struct);
	RUN(unknown_queries_are_refused_and_counted);
	RUN(old_kernels_lack_newer_queries);
	RUN(each_model_has_its_ids);
	RUN(the_bitmap_has_as_many_units_as_are_told);
	RUN(addresses_are_the_kernel_s);
	RUN(engines_have_their_versions_and_rings);
	RUN(there_is_one_instance_of_an_ip);
	RUN(firmware_has_versions);
	RUN(there_is_no_video);
	RUN(the_clock_runs_with_its_frequency);
	RUN(memory_is_what_is_there_and_in_use);
	RUN(counters_begin_at_zero);
	RUN(version_tells_the_kernel);
	RUN(a_render_node_isn_t_authenticated);
	RUN(capabilities_are_those_of_a_card_without_displays);
	return 0;
}
