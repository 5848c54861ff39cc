/* SPDX-License-Identifier: MIT
 *
 * INFO of the chip: registers, sensors, the video BIOS, and what protects memory.
 */
#include "emulator_fixture.h"

#define SMALL "vram=256MiB&gtt=128MiB"

static const struct drm_amdgpu_info none;

static struct emulated card_open(const char *model, const char *kernel)
{
	char spec[100];

	snprintf(spec, sizeof(spec), "%s?" SMALL "&kernel=%s", model, kernel);
	return emulated_open(spec);
}

static int registers(int fd, uint32_t offset, uint32_t count, uint32_t instance, uint32_t *value)
{
	struct drm_amdgpu_info request = { .read_mmr_reg = { offset, count, instance, 0 } };

	return emulated_info(fd, request, AMDGPU_INFO_READ_MMR_REG, value, 4);
}

static void only_some_registers_can_be_read(void)
{
	struct emulated card = card_open("gfx1100", "6.12");
	uint32_t value = 0, values[6] = { 1, 1, 1, 1, 1, 1 };
	struct drm_amdgpu_info six = { .read_mmr_reg = { 0x2084, 6, UINT32_MAX, 0 } };

	CHECK_EQ(registers(card.fd, 0x263e, 1, UINT32_MAX, &value), 0);
	CHECK_EQ(value, 0x545);
	CHECK_EQ(registers(card.fd, 0x2004, 1, UINT32_MAX, &value), 0); /* GRBM_STATUS */
	CHECK_EQ(value, 0);
	CHECK_EQ(registers(card.fd, 0x1285, 1, UINT32_MAX, &value), 0); /* SDMA0_STATUS_REG: idle */
	CHECK_EQ(value, 1);
	CHECK_EQ(emulated_info(card.fd, six, AMDGPU_INFO_READ_MMR_REG, values, sizeof(values)), 0);
	CHECK_EQ(values[5], 0);
	CHECK_EQ(registers(card.fd, 0x263d, 1, UINT32_MAX, &value), -EFAULT);
	CHECK_EQ(registers(card.fd, 0x263e, 2, UINT32_MAX, &value), -EFAULT);
	CHECK_EQ(registers(card.fd, 0x263e, 129, UINT32_MAX, &value), -EINVAL);
	CHECK_EQ(registers(card.fd, 0x263e, 1, 4, &value), -EINVAL);    /* shader engine 4 */
	CHECK_EQ(registers(card.fd, 0x263e, 1, 2 << 8, &value), -EINVAL); /* array 2 */
	CHECK_EQ(registers(card.fd, 0x263e, 1, 1 << 8 | 3, &value), 0);
	emulated_close(&card);
}

static int vbios(int fd, uint32_t type, uint32_t offset, void *to, uint32_t bytes)
{
	struct drm_amdgpu_info request = { .vbios_info = { type, offset } };

	return emulated_info(fd, request, AMDGPU_INFO_VBIOS, to, bytes);
}

static void the_video_bios_is_a_rom_of_512_bytes(void)
{
	struct emulated card = card_open("gfx1201", "6.12");
	struct drm_amdgpu_info_vbios info;
	uint8_t image[512] = { 0 }, rest[512] = { 0 };
	uint32_t bytes = 0;

	CHECK_EQ(vbios(card.fd, AMDGPU_INFO_VBIOS_SIZE, 0, &bytes, 4), 0);
	CHECK_EQ(bytes, 512);
	CHECK_EQ(vbios(card.fd, AMDGPU_INFO_VBIOS_IMAGE, 0, image, 512), 0);
	CHECK(image[0] == 0x55 && image[1] == 0xaa && image[2] == 1);
	CHECK_EQ(vbios(card.fd, AMDGPU_INFO_VBIOS_IMAGE, 0x40, rest, 512), 0);
	CHECK(!memcmp(rest, image + 0x40, 64));
	CHECK_EQ(vbios(card.fd, AMDGPU_INFO_VBIOS_IMAGE, 512, image, 512), -EINVAL);
	CHECK_EQ(vbios(card.fd, AMDGPU_INFO_VBIOS_INFO, 0, &info, sizeof(info)), 0);
	CHECK_STR((char *)info.name, "emulated gfx1201");
	CHECK_EQ(vbios(card.fd, 9, 0, image, 512), -EINVAL);
	CHECK_EQ(emulated_stats(card.gpu).refused, 0);
	emulated_close(&card);
}

static void only_instinct_cards_protect_memory(void)
{
	struct emulated card = card_open("gfx1201", "6.12"), instinct = card_open("gfx942", "6.12");
	uint64_t mask = 0;

	CHECK_EQ(emulated_info(card.fd, none, AMDGPU_INFO_RAS_ENABLED_FEATURES, &mask, 8), -EINVAL);
	CHECK_EQ(emulated_stats(card.gpu).refused, 0);
	CHECK_EQ(emulated_info(instinct.fd, none, AMDGPU_INFO_RAS_ENABLED_FEATURES, &mask, 8), 0);
	CHECK_EQ(mask, 0xf0000000f);
	emulated_close(&card);
	emulated_close(&instinct);
}

static void kernel_7_2_knows_of_gangs_and_of_queues(void)
{
	static const char *const kernels[] = { "6.1", "6.12", "7.2" };

	for (int i = 0; i < 3; i++) {
		const char *kernel = kernels[i];
		bool new = !strcmp(kernel, "7.2");
		struct emulated card = card_open("gfx1201", kernel);
		struct drm_amdgpu_info_device device = { 0 };
		uint64_t value[8];

		CHECK_EQ(emulated_info(card.fd, none, AMDGPU_INFO_UQ_FW_AREAS, value, sizeof(value)),
		         new ? -EOPNOTSUPP : -EINVAL);
		CHECK_EQ(emulated_info(card.fd, none, AMDGPU_INFO_DEV_INFO, &device, sizeof(device)), 0);
		CHECK_EQ(!!(device.ids_flags & AMDGPU_IDS_FLAGS_GANG_SUBMIT), new);
		emulated_close(&card);
	}
}

static int sensor(int fd, uint32_t type, uint32_t *value)
{
	struct drm_amdgpu_info request = { .sensor_info = { type } };

	return emulated_info(fd, request, AMDGPU_INFO_SENSOR, value, 4);
}

static void sensors_tell_of_an_idle_card(void)
{
	struct emulated card = card_open("gfx1201", "6.12"), old = card_open("gfx1201", "6.1");
	uint32_t value = 1;

	CHECK_EQ(sensor(card.fd, AMDGPU_INFO_SENSOR_GFX_SCLK, &value), 0);
	CHECK_EQ(value, 500);
	CHECK_EQ(sensor(card.fd, AMDGPU_INFO_SENSOR_GPU_LOAD, &value), 0);
	CHECK_EQ(value, 0);
	CHECK_EQ(sensor(card.fd, AMDGPU_INFO_SENSOR_PEAK_PSTATE_GFX_MCLK, &value), 0);
	CHECK_EQ(value, 1258);
	CHECK_EQ(sensor(old.fd, AMDGPU_INFO_SENSOR_PEAK_PSTATE_GFX_MCLK, &value), -EINVAL);
	CHECK_EQ(sensor(card.fd, AMDGPU_INFO_SENSOR_GPU_TEMP, &value), 0);
	CHECK_EQ(value, 40000);
	CHECK_EQ(sensor(card.fd, AMDGPU_INFO_SENSOR_VDDNB, &value), -EINVAL);
	CHECK_EQ(emulated_stats(card.gpu).refused, 0);
	CHECK_EQ(sensor(card.fd, 77, &value), -EINVAL);
	CHECK_EQ(emulated_stats(card.gpu).refused, 1);
	emulated_close(&card);
	emulated_close(&old);
}

int main(void)
{
	RUN(only_some_registers_can_be_read);
	RUN(the_video_bios_is_a_rom_of_512_bytes);
	RUN(only_instinct_cards_protect_memory);
	RUN(kernel_7_2_knows_of_gangs_and_of_queues);
	RUN(sensors_tell_of_an_idle_card);
	return 0;
}
