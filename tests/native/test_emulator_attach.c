/* SPDX-License-Identifier: MIT
 *
 * The system's own libdrm and libdrm_amdgpu on emulated cards.
 */
#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "emulator_fixture.h"
#include "entry.h"

#define SKIPPED 77
#define CARD "gfx1201?vram=256MiB&gtt=256MiB"

static void *libdrm, *libdrm_amdgpu;
static int (*drm_ioctl)(int fd, unsigned long request, void *argument);
static int (*device_initialize)(int fd, uint32_t *major, uint32_t *minor, void **ret);
static int (*device_deinitialize)(void *device);
static int (*query_info)(void *device, unsigned query, unsigned bytes, void *ret);

static void *symbol(void *library, const char *name)
{
	void *found = dlsym(library, name);

	if (!found)
		CHECK_FAIL("no symbol %s", name);
	return found;
}

static void without_libdrm_it_is_enoent(void)
{
	if (!dlopen("libdrm.so.2", RTLD_LAZY | RTLD_NOLOAD))
		CHECK_EQ(vmkv_emulator_attach(), -ENOENT);
}

static void libdrm_reaches_the_emulator(void)
{
	struct emulated card = emulated_open(CARD);
	struct drm_get_cap cap = { .capability = DRM_CAP_PRIME };

	CHECK_EQ(drm_ioctl(card.fd, DRM_IOCTL_GET_CAP, &cap), -1); /* not yet */
	CHECK_EQ(vmkv_emulator_attach(), 0);
	CHECK_EQ(drm_ioctl(card.fd, DRM_IOCTL_GET_CAP, &cap), 0);
	CHECK_EQ(cap.value, 3);
	CHECK_EQ(vmkv_emulator_attach(), 0);
	CHECK_EQ(drm_ioctl(card.fd, DRM_IOCTL_GET_CAP, &cap), 0);
	CHECK_EQ(emulated_count(card.gpu, "GET_CAP", UINT32_MAX), 2);
	emulated_close(&card);
}

static void other_descriptors_reach_the_kernel(void)
{
	int ends[2], waiting = 0;

	CHECK_EQ(pipe(ends), 0);
	CHECK_EQ(write(ends[1], "abc", 3), 3);
	errno = 0;
	CHECK_EQ(drm_ioctl(ends[0], FIONREAD, &waiting), 0);
	CHECK_EQ(waiting, 3);
	CHECK_EQ(errno, 0);
	close(ends[0]);
	close(ends[1]);
	CHECK_EQ(drm_ioctl(ends[0], FIONREAD, &waiting), -1);
	CHECK_EQ(errno, EBADF);
}

static void a_released_file_is_enodev(void)
{
	struct emulated card = emulated_open(CARD);
	struct drm_get_cap cap = { .capability = DRM_CAP_PRIME };
	int twin = dup(card.fd);

	emulated_close(&card);
	CHECK_EQ(drm_ioctl(twin, DRM_IOCTL_GET_CAP, &cap), -1);
	CHECK_EQ(errno, ENODEV);
	close(twin);
}

/* drmIoctl tries again after EINTR. */
static void an_interrupted_call_is_tried_again(void)
{
	struct emulated card = emulated_open(CARD);
	struct drm_get_cap cap = { .capability = DRM_CAP_PRIME };

	CHECK_EQ(vmkv_emulator_fail(card.gpu, "GET_CAP", 1, EINTR), 0);
	CHECK_EQ(drm_ioctl(card.fd, DRM_IOCTL_GET_CAP, &cap), 0);
	CHECK_EQ(emulated_count(card.gpu, "GET_CAP", UINT32_MAX), 2);
	CHECK_EQ(vmkv_emulator_fail(card.gpu, "GET_CAP", 1, ENOMEM), 0);
	CHECK_EQ(drm_ioctl(card.fd, DRM_IOCTL_GET_CAP, &cap), -1);
	CHECK_EQ(errno, ENOMEM);
	emulated_close(&card);
}

/* Loaded only now: after the first call of attach. */
static void a_library_that_is_loaded_later_is_found(void)
{
	libdrm_amdgpu = dlopen("libdrm_amdgpu.so.1", RTLD_LAZY | RTLD_LOCAL);
	CHECK(libdrm_amdgpu);
	device_initialize = symbol(libdrm_amdgpu, "amdgpu_device_initialize");
	device_deinitialize = symbol(libdrm_amdgpu, "amdgpu_device_deinitialize");
	query_info = symbol(libdrm_amdgpu, "amdgpu_query_info");
	CHECK_EQ(vmkv_emulator_attach(), 0);
}

static void *device_of(int fd)
{
	uint32_t major = 0, minor = 0;
	void *device = NULL;

	CHECK_EQ(device_initialize(fd, &major, &minor, &device), 0);
	CHECK_EQ(major, 3);
	CHECK(device);
	return device;
}

static void libdrm_amdgpu_takes_every_model_and_kernel(void)
{
	static const char *const models[] = { "gfx1030", "gfx1100", "gfx1201", "gfx942" };
	static const char *const kernels[] = { "6.1", "6.12", "7.2" };

	for (int i = 0; i < 12; i++) {
		struct drm_amdgpu_info_device info = { 0 };
		struct emulated card;
		char spec[100];
		void *device;

		snprintf(spec, sizeof(spec), "%s?vram=256MiB&gtt=256MiB&kernel=%s", models[i / 3],
		         kernels[i % 3]);
		card = emulated_open(spec);
		device = device_of(card.fd);
		CHECK_EQ(query_info(device, AMDGPU_INFO_DEV_INFO, sizeof(info), &info), 0);
		CHECK_EQ(info.family, emu_model_find(models[i / 3])->family);
		CHECK_EQ(emulated_stats(card.gpu).refused, 0);
		CHECK_EQ(device_deinitialize(device), 0);
		emulated_close(&card);
	}
}

static void files_of_a_card_are_one_device_and_cards_are_two(void)
{
	struct emulated one = emulated_open(CARD), two = emulated_open(CARD);
	void *devices[3];
	int again;

	CHECK_EQ(vmkv_emulator_open(one.gpu, &again), 0);
	devices[0] = device_of(one.fd);
	devices[1] = device_of(again);
	devices[2] = device_of(two.fd);
	CHECK(devices[0] == devices[1]);
	CHECK(devices[0] != devices[2]);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(device_deinitialize(devices[i]), 0);
	CHECK_EQ(vmkv_emulator_close(again), 0);
	emulated_close(&one);
	emulated_close(&two);
}

/* An object as a loader leaves it: what it imports lies on a page that is read-only by then. */
struct object {
	Elf64_Sym symbols[3];
	char strings[16];
	Elf64_Rela jumps[2];
	Elf64_Dyn dynamic[6];
	_Alignas(EMU_PAGE_BYTES) void *slots[2];
};

static void a_read_only_slot_is_changed_and_is_read_only_again(void)
{
#ifdef __aarch64__
	const uint64_t kind = R_AARCH64_JUMP_SLOT;
#else
	const uint64_t kind = R_X86_64_JUMP_SLOT;
#endif
	struct object *made = mmap(NULL, sizeof(*made), PROT_READ | PROT_WRITE,
	                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const struct emu_import import = { "ioctl", (void *)symbol };
	struct emu_object object = { .base = (uint64_t)(uintptr_t)made, .dynamic = made->dynamic };
	void *nothing = NULL;

	made->symbols[1].st_name = 1;
	made->symbols[2].st_name = 7;
	memcpy(made->strings, "\0open\0\0ioctl", 12);
	for (uint64_t i = 0; i < 2; i++) {
		made->jumps[i].r_offset = offsetof(struct object, slots) + i * sizeof(void *);
		made->jumps[i].r_info = ELF64_R_INFO(i + 1, kind);
	}
	made->dynamic[0] = (Elf64_Dyn){ DT_SYMTAB, { (uintptr_t)made->symbols } };
	made->dynamic[1] = (Elf64_Dyn){ DT_STRTAB, { (uintptr_t)made->strings } };
	made->dynamic[2] = (Elf64_Dyn){ DT_JMPREL, { offsetof(struct object, jumps) } };
	made->dynamic[3] = (Elf64_Dyn){ DT_PLTRELSZ, { sizeof(made->jumps) } };
	object.relro_begin = (uint64_t)(uintptr_t)made->slots;
	object.relro_end = object.relro_begin + EMU_PAGE_BYTES;
	mprotect(made->slots, EMU_PAGE_BYTES, PROT_READ);
	CHECK_EQ(emu_object_redirect(&object, &import, 1), 0);
	CHECK(made->slots[1] == import.function);
	CHECK(!made->slots[0]); /* open's */
	CHECK_EQ(emu_copy_out(object.relro_begin, &nothing, sizeof(nothing)), -EFAULT);
	munmap(made, sizeof(*made));
}

static void *attach_often(void *data)
{
	for (int i = 0; i < 200; i++)
		CHECK_EQ(vmkv_emulator_attach(), 0);
	return data;
}

static void threads_may_attach_at_once(void)
{
	struct emulated card = emulated_open(CARD);
	struct drm_get_cap cap = { .capability = DRM_CAP_PRIME };
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, attach_often, NULL), 0);
	for (int i = 0; i < 2000; i++)
		CHECK_EQ(drm_ioctl(card.fd, DRM_IOCTL_GET_CAP, &cap), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	emulated_close(&card);
}

int main(void)
{
	RUN(a_read_only_slot_is_changed_and_is_read_only_again);
	RUN(without_libdrm_it_is_enoent);
	libdrm = dlopen("libdrm.so.2", RTLD_LAZY | RTLD_LOCAL);
	if (!libdrm || access("/proc/self/fd", X_OK)) {
		fprintf(stderr, "skipped: needs libdrm.so.2 and /proc\n");
		return SKIPPED;
	}
	drm_ioctl = symbol(libdrm, "drmIoctl");
	RUN(libdrm_reaches_the_emulator);
	RUN(other_descriptors_reach_the_kernel);
	RUN(a_released_file_is_enodev);
	RUN(an_interrupted_call_is_tried_again);
	if (!(libdrm_amdgpu = dlopen("libdrm_amdgpu.so.1", RTLD_LAZY | RTLD_LOCAL))) {
		fprintf(stderr, "skipped: needs libdrm_amdgpu.so.1\n");
		return SKIPPED;
	}
	dlclose(libdrm_amdgpu);
	RUN(a_library_that_is_loaded_later_is_found);
	RUN(libdrm_amdgpu_takes_every_model_and_kernel);
	RUN(files_of_a_card_are_one_device_and_cards_are_two);
	RUN(threads_may_attach_at_once);
	return 0;
}
