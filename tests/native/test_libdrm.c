/* SPDX-License-Identifier: MIT
 *
 * The table of libdrm's functions: loading it, and telling whose devices are its own.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <unistd.h>

#include "check.h"
#include "emulator/vmkv_emulator.h"
#include "libdrm.h"

static void a_table_is_loaded_more_than_once(void)
{
	struct vmkv_libdrm one, two;
	char error[128] = "";

	CHECK_EQ(vmkv_libdrm_load(&one, error, sizeof(error)), 0);
	CHECK_STR(error, "");
	CHECK_EQ(vmkv_libdrm_load(&two, NULL, 0), 0);
	CHECK(one.amdgpu_bo_alloc == two.amdgpu_bo_alloc);
	CHECK((void *)one.drmIoctl == dlsym(one.drm_library, "drmIoctl"));
	vmkv_libdrm_unload(&two);
	CHECK(!two.amdgpu_bo_alloc && !two.drm_library);
	CHECK(!one.drmGetVersion(-1));
	vmkv_libdrm_unload(&one);
	vmkv_libdrm_unload(&one); /* of zeros by now */
}

static void functions_have_their_first_release(void)
{
	CHECK_STR(vmkv_libdrm_release("drmIoctl"), "2.4.114");
	CHECK_STR(vmkv_libdrm_release("amdgpu_device_initialize2"), "2.4.121");
	CHECK(!vmkv_libdrm_release("amdgpu_bo_paint"));
}

static void minus_one_stands_for_errno(void)
{
	errno = EACCES;
	CHECK_EQ(vmkv_libdrm_result(-1), -EACCES);
	errno = EPERM;
	CHECK_EQ(vmkv_libdrm_result(-1), -EPERM);
	CHECK_EQ(vmkv_libdrm_result(-ENOENT), -ENOENT);
	CHECK_EQ(vmkv_libdrm_result(3), 3);
	errno = 0;
	CHECK_EQ(vmkv_libdrm_result(-1), -1);
}

static void a_device_of_the_only_copy_is_its_own(void)
{
	struct vmkv_libdrm libdrm;
	vmkv_emulator *card;
	amdgpu_device_handle device;
	uint32_t major, minor;
	int fd;

	CHECK_EQ(vmkv_libdrm_load(&libdrm, NULL, 0), 0);
	CHECK_EQ(vmkv_emulator_create("gfx1201?vram=64MiB&gtt=64MiB", NULL, 0, &card), 0);
	CHECK_EQ(vmkv_emulator_attach(), 0);
	CHECK_EQ(vmkv_emulator_open(card, &fd), 0);
	CHECK_EQ(libdrm.amdgpu_device_initialize(fd, &major, &minor, &device), 0);
	CHECK_EQ(vmkv_libdrm_check_device(&libdrm, device), 0);
	vmkv_emulator_close(fd);
	CHECK_EQ(vmkv_libdrm_check_device(&libdrm, device), -EBADF);
	libdrm.amdgpu_device_deinitialize(device);
	vmkv_emulator_destroy(card);
	vmkv_libdrm_unload(&libdrm);
}

int main(void)
{
	RUN(a_table_is_loaded_more_than_once);
	RUN(functions_have_their_first_release);
	RUN(minus_one_stands_for_errno);
	RUN(a_device_of_the_only_copy_is_its_own);
	return 0;
}
