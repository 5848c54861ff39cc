/* SPDX-License-Identifier: MIT
 *
 * Emulated cards from the outside: descriptors and their lifetimes, and the way from ioctl(2) to a
 * handler and back, which follows drm_ioctl().
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "emulator_fixture.h"

#define CARD "gfx1201?vram=256MiB&gtt=256MiB"
#define CARD_7_2 CARD "&kernel=7.2"

static int version(int fd)
{
	struct drm_version args = { 0 };

	return emulated_call(fd, DRM_IOCTL_VERSION, &args);
}

static uint32_t create_buffer(int fd)
{
	union drm_amdgpu_gem_create args = { .in = { .bo_size = EMU_PAGE_BYTES,
		                                     .domains = AMDGPU_GEM_DOMAIN_VRAM } };

	CHECK_EQ(emulated_call(fd, DRM_IOCTL_AMDGPU_GEM_CREATE, &args), 0);
	return args.out.handle;
}

/* ---- descriptors ----------------------------------------------------------------------------- */

static void a_duplicate_is_the_same_file(void)
{
	struct emulated card = emulated_open(CARD);
	int twin = dup(card.fd);
	struct drm_gem_close args = { .handle = create_buffer(card.fd) };

	CHECK_EQ(emulated_call(twin, DRM_IOCTL_GEM_CLOSE, &args), 0);
	CHECK_EQ(emulated_stats(card.gpu).files, 1);
	close(twin);
	CHECK_EQ(version(card.fd), 0);
	emulated_close(&card);
}

static void two_files_have_handles_of_their_own(void)
{
	struct emulated card = emulated_open(CARD);
	struct drm_gem_close args = { .handle = create_buffer(card.fd) };
	int other;

	CHECK_EQ(vmkv_emulator_open(card.gpu, &other), 0);
	CHECK_EQ(emulated_call(other, DRM_IOCTL_GEM_CLOSE, &args), -EINVAL);
	CHECK_EQ(emulated_stats(card.gpu).files, 2);
	CHECK_EQ(vmkv_emulator_close(other), 0);
	emulated_close(&card);
}

static uint64_t gtt_used(int fd)
{
	uint64_t used = 0;

	CHECK_EQ(emulated_info(fd, (struct drm_amdgpu_info){ 0 }, AMDGPU_INFO_GTT_USAGE, &used,
	                       sizeof(used)), 0);
	return used;
}

static void the_last_plain_close_takes_a_file_along(void)
{
	struct emulated card = emulated_open("gfx1201?vram=64MiB");
	union drm_amdgpu_gem_create made = { .in = { .bo_size = 1 << 20,
		                                     .domains = AMDGPU_GEM_DOMAIN_GTT } };
	union drm_amdgpu_gem_mmap map;
	int other, twin;
	void *view;

	CHECK_EQ(vmkv_emulator_open(card.gpu, &other), 0);
	CHECK_EQ(emulated_call(other, DRM_IOCTL_AMDGPU_GEM_CREATE, &made), 0);
	map.in.handle = made.out.handle;
	CHECK_EQ(emulated_call(other, DRM_IOCTL_AMDGPU_GEM_MMAP, &map), 0);
	view = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, other, (off_t)map.out.addr_ptr);
	CHECK(view != MAP_FAILED);
	twin = dup(other);
	close(other);
	CHECK_EQ(gtt_used(card.fd), 1 << 20);
	close(twin);
	/* A mapping counts as a descriptor. */
	CHECK_EQ(gtt_used(card.fd), 1 << 20);
	munmap(view, 4096);
	CHECK_EQ(gtt_used(card.fd), 0);
	CHECK_EQ(emulated_stats(card.gpu).files, 1);
	emulated_close(&card);
}

static void a_closed_file_is_gone_for_its_duplicates(void)
{
	struct emulated card = emulated_open(CARD);
	int twin = dup(card.fd);

	create_buffer(card.fd);
	CHECK_EQ(vmkv_emulator_close(card.fd), 0);
	CHECK_EQ(version(twin), -ENODEV);
	CHECK_EQ(emulated_stats(card.gpu).files, 0);
	CHECK_EQ(emulated_stats(card.gpu).handles, 0);
	CHECK_EQ(vmkv_emulator_close(twin), 0);
	CHECK_EQ(fcntl(twin, F_GETFD), -1);
	vmkv_emulator_destroy(card.gpu);
}

static void a_card_taken_away_leaves_dead_descriptors(void)
{
	struct emulated card = emulated_open(CARD);

	create_buffer(card.fd);
	vmkv_emulator_destroy(card.gpu);
	CHECK_EQ(version(card.fd), -ENODEV);
	CHECK_EQ(vmkv_emulator_close(card.fd), 0);
	vmkv_emulator_destroy(NULL);
}

static void cards_do_not_mix(void)
{
	struct emulated one = emulated_open(CARD), two = emulated_open(CARD);

	create_buffer(one.fd);
	CHECK_EQ(emulated_stats(one.gpu).handles, 1);
	CHECK_EQ(emulated_stats(two.gpu).handles, 0);
	emulated_close(&one);
	CHECK_EQ(version(two.fd), 0);
	emulated_close(&two);
}

static void other_descriptors_are_not_emulated(void)
{
	int fd = memfd_create("other", MFD_CLOEXEC), ends[2];

	CHECK_EQ(version(fd), -ENOTTY);
	CHECK_EQ(vmkv_emulator_close(fd), -EBADF);
	CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC); /* still open */
	close(fd);
	CHECK_EQ(version(fd), -ENOTTY);
	CHECK_EQ(vmkv_emulator_close(-1), -EBADF);
	CHECK_EQ(pipe(ends), 0);
	CHECK_EQ(version(ends[0]), -ENOTTY);
	close(ends[0]);
	close(ends[1]);
}

static void mmap_needs_only_the_offset_of_gem_mmap(void)
{
	struct emulated card = emulated_open(CARD);
	union drm_amdgpu_gem_mmap args = { .in = { .handle = create_buffer(card.fd) } };
	char *view;

	CHECK_EQ(emulated_call(card.fd, DRM_IOCTL_AMDGPU_GEM_MMAP, &args), 0);
	view = mmap(NULL, EMU_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, card.fd,
	            (off_t)args.out.addr_ptr);
	CHECK(view != MAP_FAILED);
	view[0] = 1;
	munmap(view, EMU_PAGE_BYTES);
	CHECK_EQ(version(card.fd), 0); /* nothing moved its position */
	emulated_close(&card);
}

/* ---- dispatch -------------------------------------------------------------------------------- */

static void another_type_is_enotty(void)
{
	struct emulated card = emulated_open(CARD);
	struct drm_version args = { 0 };

	CHECK_EQ(emulated_call(card.fd, _IOWR('e', 0, struct drm_version), &args), -ENOTTY);
	emulated_close(&card);
}

static void an_unknown_number_is_einval_and_counted(void)
{
	struct emulated card = emulated_open(CARD);
	uint64_t args = 0;
	char text[256];

	CHECK_EQ(emulated_call(card.fd, DRM_IOWR(0x9f, uint64_t), &args), -EINVAL);
	CHECK_EQ(emulated_call(card.fd, DRM_IOWR(0xff, uint64_t), &args), -EINVAL);
	CHECK_EQ(emulated_stats(card.gpu).refused, 2);
	CHECK_EQ(emulated_stats(card.gpu).ioctls, 2);
	CHECK_EQ(vmkv_emulator_error(card.gpu, text, sizeof(text)), strlen(text));
	CHECK_CONTAINS(text, "0xff");
	emulated_close(&card);
}

static void only_the_number_counts(void)
{
	struct emulated card = emulated_open(CARD);
	struct drm_get_cap cap = { .capability = DRM_CAP_PRIME, .value = 5 };

	/* Without a direction nothing comes in, so that a capability 0 is asked for, or goes out. */
	CHECK_EQ(emulated_call(card.fd, DRM_IO(0x0c), &cap), -EOPNOTSUPP);
	CHECK_EQ(cap.value, 5);
	CHECK_EQ(emulated_count(card.gpu, "GET_CAP", UINT32_MAX), 1);
	emulated_close(&card);
}

static void a_short_argument_is_filled_with_zeros(void)
{
	struct emulated card = emulated_open(CARD_7_2);
	struct {
		struct drm_amdgpu_gem_va va;
	} args = { { .operation = AMDGPU_VA_OP_CLEAR, .va_address = 1 << 20,
		     .map_size = EMU_PAGE_BYTES } };
	unsigned long request = _IOC(_IOC_WRITE, 'd', DRM_COMMAND_BASE + DRM_AMDGPU_GEM_VA, 40);

	args.va.vm_timeline_syncobj_out = 77; /* no such syncobj, beyond the 40 bytes */
	CHECK_EQ(emulated_call(card.fd, request, &args), 0);
	CHECK_EQ(emulated_call(card.fd, DRM_IOCTL_AMDGPU_GEM_VA, &args), -ENOENT);
	emulated_close(&card);
}

static void an_old_kernel_ignores_the_tail(void)
{
	struct emulated card = emulated_open(CARD "&kernel=6.12");
	struct drm_amdgpu_gem_va args = { .operation = AMDGPU_VA_OP_CLEAR, .va_address = 1 << 20,
		                          .map_size = EMU_PAGE_BYTES };

	args.vm_timeline_syncobj_out = 77;
	CHECK_EQ(emulated_call(card.fd, DRM_IOCTL_AMDGPU_GEM_VA, &args), 0);
	emulated_close(&card);
}

static void what_is_longer_than_the_kernel_s_comes_back_unchanged(void)
{
	struct emulated card = emulated_open(CARD);
	struct {
		struct drm_get_cap cap;
		uint64_t tail[100];
	} args = { { .capability = DRM_CAP_PRIME }, { 1, 2, 3 } };
	unsigned long request = _IOC(_IOC_READ | _IOC_WRITE, 'd', 0x0c, sizeof(args));

	CHECK_EQ(emulated_call(card.fd, request, &args), 0);
	CHECK_EQ(args.cap.value, DRM_PRIME_CAP_IMPORT | DRM_PRIME_CAP_EXPORT);
	CHECK_EQ(args.tail[2], 3);
	emulated_close(&card);
}

static void what_only_goes_out_comes_from_zeros(void)
{
	struct emulated card = emulated_open(CARD);
	struct {
		struct drm_get_cap cap;
		uint64_t tail[100];
	} args = { { .capability = DRM_CAP_PRIME }, { 1, 2, 3 } };
	unsigned long request = _IOC(_IOC_READ, 'd', 0x0c, sizeof(args));

	CHECK_EQ(emulated_call(card.fd, request, &args), -EOPNOTSUPP); /* it asked for 0 */
	CHECK_EQ(args.cap.capability, 0);
	for (int i = 0; i < 100; i++)
		CHECK_EQ(args.tail[i], 0);
	emulated_close(&card);
}

static void an_ioctl_declared_iow_copies_nothing_out(void)
{
	struct emulated card = emulated_open(CARD);
	struct drm_get_cap cap = { .capability = DRM_CAP_PRIME };
	unsigned long in_only = _IOC(_IOC_WRITE, 'd', 0x0c, sizeof(cap));

	CHECK_EQ(emulated_call(card.fd, in_only, &cap), 0);
	CHECK_EQ(cap.value, 0);
	emulated_close(&card);
}

/* GET_CAP zeroes the value before it finds that it doesn't know the capability. */
static void an_error_copies_out_too(void)
{
	struct emulated card = emulated_open(CARD);
	struct drm_get_cap cap = { .capability = DRM_CAP_DUMB_BUFFER, .value = 5 };

	CHECK_EQ(emulated_call(card.fd, DRM_IOCTL_GET_CAP, &cap), -EOPNOTSUPP);
	CHECK_EQ(cap.value, 0);
	emulated_close(&card);
}

static void a_bad_pointer_is_efault(void)
{
	struct emulated card = emulated_open(CARD);
	void *page = mmap(NULL, EMU_PAGE_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char none[8];

	CHECK_EQ(emulated_call(card.fd, DRM_IOCTL_GET_CAP, NULL), -EFAULT);
	CHECK_EQ(emulated_call(card.fd, DRM_IOCTL_GET_CAP, (void *)-16L), -EFAULT);
	CHECK_EQ(emulated_call(card.fd, DRM_IOCTL_VERSION, page), -EFAULT); /* can't come out */
	mprotect(page, EMU_PAGE_BYTES, PROT_NONE);
	CHECK_EQ(emulated_call(card.fd, DRM_IOCTL_VERSION, page), -EFAULT);
	CHECK_EQ(emu_copy_in(none, (uint64_t)(uintptr_t)page, 1), -EFAULT);
	CHECK_EQ(emu_copy_out((uint64_t)(uintptr_t)page, none, 1), -EFAULT);
	CHECK_EQ(emulated_count(card.gpu, "GET_CAP", UINT32_MAX), 2);
	munmap(page, EMU_PAGE_BYTES);
	emulated_close(&card);
}

static void a_kernel_lacks_what_came_later(void)
{
	struct drm_amdgpu_gem_list_handles args = { 0 };
	struct emulated old = emulated_open(CARD), new = emulated_open(CARD_7_2);

	CHECK_EQ(emulated_call(old.fd, DRM_IOCTL_AMDGPU_GEM_LIST_HANDLES, &args), -EINVAL);
	CHECK_EQ(emulated_stats(old.gpu).refused, 1);
	CHECK_EQ(emulated_call(new.fd, DRM_IOCTL_AMDGPU_GEM_LIST_HANDLES, &args), 0);
	emulated_close(&old);
	emulated_close(&new);
}

static void a_render_node_may_not_do_all(void)
{
	struct emulated card = emulated_open(CARD);
	struct drm_gem_flink flink = { .handle = create_buffer(card.fd) };
	struct drm_auth auth;
	int primary;

	CHECK_EQ(emulated_call(card.fd, DRM_IOCTL_GEM_FLINK, &flink), -EACCES);
	CHECK_EQ(emulated_call(card.fd, DRM_IOCTL_GET_MAGIC, &auth), -EACCES);
	CHECK_EQ(vmkv_emulator_open_primary(card.gpu, &primary), 0);
	flink.handle = create_buffer(primary);
	CHECK_EQ(emulated_call(primary, DRM_IOCTL_GEM_FLINK, &flink), 0);
	CHECK_EQ(emulated_call(primary, DRM_IOCTL_GET_MAGIC, &auth), 0);
	CHECK_EQ(emulated_call(primary, DRM_IOCTL_AUTH_MAGIC, &auth), 0);
	auth.magic = 0;
	CHECK_EQ(emulated_call(primary, DRM_IOCTL_AUTH_MAGIC, &auth), -EINVAL);
	CHECK_EQ(vmkv_emulator_close(primary), 0);
	emulated_close(&card);
}

int main(void)
{
	RUN(a_duplicate_is_the_same_file);
	RUN(two_files_have_handles_of_their_own);
	RUN(the_last_plain_close_takes_a_file_along);
	RUN(a_closed_file_is_gone_for_its_duplicates);
	RUN(a_card_taken_away_leaves_dead_descriptors);
	RUN(cards_do_not_mix);
	RUN(other_descriptors_are_not_emulated);
	RUN(mmap_needs_only_the_offset_of_gem_mmap);
	RUN(another_type_is_enotty);
	RUN(an_unknown_number_is_einval_and_counted);
	RUN(only_the_number_counts);
	RUN(a_short_argument_is_filled_with_zeros);
	RUN(an_old_kernel_ignores_the_tail);
	RUN(what_is_longer_than_the_kernel_s_comes_back_unchanged);
	RUN(what_only_goes_out_comes_from_zeros);
	RUN(an_ioctl_declared_iow_copies_nothing_out);
	RUN(an_error_copies_out_too);
	RUN(a_bad_pointer_is_efault);
	RUN(a_kernel_lacks_what_came_later);
	RUN(a_render_node_may_not_do_all);
	return 0;
}
