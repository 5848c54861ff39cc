/* SPDX-License-Identifier: MIT
 *
 * Buffers that several files of the emulated card share: by descriptor (PRIME) and by name (FLINK).
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "memory_fixture.h"

static int prime_export(int fd, uint32_t handle, int *ret)
{
	struct drm_prime_handle args = { .handle = handle, .flags = DRM_CLOEXEC | DRM_RDWR };
	int error = call(fd, DRM_IOCTL_PRIME_HANDLE_TO_FD, &args);

	*ret = error ? -1 : args.fd;
	return error;
}

static int prime_import(int fd, int dmabuf, uint32_t *handle)
{
	struct drm_prime_handle args = { .fd = dmabuf };
	int error = call(fd, DRM_IOCTL_PRIME_FD_TO_HANDLE, &args);

	*handle = error ? 0 : args.handle;
	return error;
}

static int exported(const struct card *card, uint32_t handle)
{
	int dmabuf;

	CHECK_EQ(prime_export(card->fd, handle, &dmabuf), 0);
	return dmabuf;
}

static int another_file(const struct card *card)
{
	int fd;

	CHECK_EQ(vmkv_emulator_open(card->gpu, &fd), 0);
	return fd;
}

/* ---- PRIME ----------------------------------------------------------------------------------- */

static void the_end_of_a_dma_buf_is_its_size(void)
{
	struct card card = card_open("6.12", "");
	int dmabuf = exported(&card, bo_create(card.fd, 5 * PAGE - 1, 0));

	CHECK_EQ(lseek(dmabuf, 0, SEEK_END), 5 * PAGE);
	CHECK_EQ(close(dmabuf), 0);
	card_close(&card);
}

static void mmap_of_a_dma_buf_fails_rather_than_showing_other_bytes(void)
{
	struct card card = card_open("6.12", "");
	int dmabuf = exported(&card, bo_create(card.fd, PAGE, 0));

	errno = 0;
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, dmabuf, 0) == MAP_FAILED);
	CHECK_EQ(errno, EACCES);
	CHECK(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, dmabuf, 0) == MAP_FAILED);
	CHECK_EQ(close(dmabuf), 0);
	card_close(&card);
}

static void another_file_gets_the_same_buffer(void)
{
	struct card card = card_open("6.12", "");
	int other = another_file(&card), dmabuf;
	uint32_t handle = bo_create(card.fd, PAGE, 0), theirs;
	uint32_t *view = bo_view(card.fd, handle, PAGE), *their_view;

	dmabuf = exported(&card, handle);
	CHECK_EQ(prime_import(other, dmabuf, &theirs), 0);
	their_view = bo_view(other, theirs, PAGE);
	view[5] = 55;
	CHECK_EQ(their_view[5], 55);
	CHECK_EQ(stats(&card).buffers, 1);
	CHECK_EQ(stats(&card).handles, 2);
	CHECK_EQ(va_map(other, theirs, 0, VA, 0, PAGE), 0);
	CHECK_MAPPED(other, VA, theirs, 0);
	CHECK_EQ(munmap(view, PAGE) | munmap(their_view, PAGE) | close(dmabuf), 0);
	CHECK_EQ(vmkv_emulator_close(other), 0);
	card_close(&card);
}

/* The kernel doesn't count: one close takes it. */
static void the_same_file_gets_the_same_handle_uncounted(void)
{
	struct card card = card_open("6.12", "");
	uint32_t handle = bo_create(card.fd, PAGE, 0), again;
	int dmabuf = exported(&card, handle), other = another_file(&card);

	CHECK_EQ(prime_import(card.fd, dmabuf, &again), 0);
	CHECK_EQ(again, handle);
	CHECK_EQ(prime_import(other, dmabuf, &handle), 0);
	CHECK_EQ(prime_import(other, dmabuf, &again), 0);
	CHECK_EQ(again, handle);
	CHECK_EQ(bo_close(other, handle), 0);
	CHECK_EQ(bo_close(other, handle), -EINVAL);
	CHECK_EQ(prime_import(other, dmabuf, &again), 0); /* still there, by the descriptor */
	CHECK_EQ(close(dmabuf), 0);
	CHECK_EQ(vmkv_emulator_close(other), 0);
	card_close(&card);
}

static void exporting_twice_gives_the_same_dma_buf(void)
{
	struct card card = card_open("6.12", "");
	uint32_t handle = bo_create(card.fd, PAGE, 0);
	int a = exported(&card, handle), b = exported(&card, handle), other = another_file(&card);
	uint32_t from_a, from_b;
	struct stat a_status, b_status;

	CHECK_EQ(fstat(a, &a_status) | fstat(b, &b_status), 0);
	CHECK_EQ(a_status.st_ino, b_status.st_ino);
	CHECK_EQ(prime_import(other, a, &from_a), 0);
	CHECK_EQ(prime_import(other, b, &from_b), 0);
	CHECK_EQ(from_a, from_b);
	CHECK_EQ(close(a) | close(b), 0);
	CHECK_EQ(vmkv_emulator_close(other), 0);
	card_close(&card);
}

static void always_valid_and_userptr_buffers_cant_be_exported(void)
{
	struct card card = card_open("6.12", "");
	void *room = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct drm_amdgpu_gem_userptr args = { .addr = (uintptr_t)room, .size = PAGE,
		                               .flags = AMDGPU_GEM_USERPTR_REGISTER };
	int dmabuf;

	CHECK_EQ(prime_export(card.fd, bo_create(card.fd, PAGE, ALWAYS), &dmabuf), -EPERM);
	CHECK_EQ(call(card.fd, DRM_IOCTL_AMDGPU_GEM_USERPTR, &args), 0);
	CHECK_EQ(prime_export(card.fd, args.handle, &dmabuf), -EPERM);
	CHECK_EQ(munmap(room, PAGE), 0);
	card_close(&card);
}

static void what_is_no_dma_buf_or_flag_is_refused(void)
{
	struct card card = card_open("6.12", "");
	struct drm_prime_handle args = { .handle = bo_create(card.fd, PAGE, 0), .flags = 1 << 30 };
	int file = memfd_create("other", MFD_CLOEXEC), one = exported(&card, args.handle), dmabuf;
	uint32_t handle;

	CHECK_EQ(prime_import(card.fd, file, &handle), -EINVAL);
	CHECK_EQ(stats(&card).refused, 0);
	CHECK_EQ(close(one) | close(file), 0);
	CHECK_EQ(prime_import(card.fd, file, &handle), -EBADF);
	CHECK_EQ(prime_import(card.fd, -1, &handle), -EBADF);
	CHECK_EQ(prime_export(card.fd, 99, &dmabuf), -ENOENT);
	CHECK_EQ(call(card.fd, DRM_IOCTL_PRIME_HANDLE_TO_FD, &args), -EINVAL);
	card_close(&card);
}

static void another_card_refuses_and_counts(void)
{
	struct card card = card_open("6.12", ""), other = card_open("6.12", "");
	int dmabuf = exported(&card, bo_create(card.fd, PAGE, 0));
	uint32_t handle;

	CHECK_EQ(prime_import(other.fd, dmabuf, &handle), -EINVAL);
	CHECK_EQ(stats(&other).refused, 1);
	CHECK_EQ(close(dmabuf), 0);
	card_close(&other);
	card_close(&card);
}

/* ---- how long a dma-buf keeps its buffer ----------------------------------------------------- */

static uint32_t idle_buffer(const struct card *card)
{
	uint32_t handle = bo_create(card->fd, PAGE, 0);

	CHECK_EQ(bo_wait(card->fd, handle), 0);
	return handle;
}

static void a_buffer_lives_as_long_as_a_descriptor(void)
{
	struct card card = card_open("6.12", "");
	uint32_t handle = idle_buffer(&card);
	int a = exported(&card, handle), b = exported(&card, handle), copy = dup(b);

	CHECK_EQ(bo_close(card.fd, handle), 0);
	CHECK_EQ(close(a), 0);
	CHECK_EQ(stats(&card).buffers, 1);
	CHECK_EQ(close(b), 0);
	CHECK_EQ(stats(&card).buffers, 1);
	CHECK_EQ(prime_import(card.fd, copy, &handle), 0);
	CHECK_EQ(bo_close(card.fd, handle), 0);
	CHECK_EQ(stats(&card).buffers, 1);
	CHECK_EQ(close(copy), 0);
	CHECK_EQ(stats(&card).buffers, 0);
	card_close(&card);
}

static void another_process_can_be_the_last(void)
{
	struct card card = card_open("6.12", "");
	uint32_t handle = idle_buffer(&card);
	int dmabuf = exported(&card, handle), ends[2], status;
	char byte = 0;
	pid_t child;

	CHECK_EQ(pipe(ends), 0);
	child = fork();
	if (!child) {
		close(ends[1]);
		_exit(read(ends[0], &byte, 1) != 0);
	}
	CHECK(child > 0);
	CHECK_EQ(bo_close(card.fd, handle) | close(dmabuf) | close(ends[0]), 0);
	CHECK_EQ(stats(&card).buffers, 1);
	CHECK_EQ(close(ends[1]), 0);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	CHECK_EQ(stats(&card).buffers, 0);
	card_close(&card);
}

static void a_descriptor_outlives_its_file_and_its_card(void)
{
	struct card card = card_open("6.12", "");
	int other = another_file(&card);
	uint32_t handle = bo_create(other, PAGE, 0), mine;
	int dmabuf;

	CHECK_EQ(prime_export(other, handle, &dmabuf), 0);
	CHECK_EQ(vmkv_emulator_close(other), 0);
	CHECK_EQ(prime_import(card.fd, dmabuf, &mine), 0);
	card_close(&card);
	card = card_open("6.12", "");
	CHECK_EQ(prime_import(card.fd, dmabuf, &mine), -EINVAL);
	CHECK_EQ(close(dmabuf), 0);
	card_close(&card);
}

static int descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void no_descriptor_is_left_of_many_exports(void)
{
	struct card card = card_open("6.12", "");
	int before = descriptors();

	for (int i = 0; i < 2000; i++) {
		uint32_t handle = bo_create(card.fd, PAGE, 0);
		int dmabuf = exported(&card, handle);

		CHECK_EQ(bo_close(card.fd, handle) | close(dmabuf), 0);
	}
	(void)stats(&card);
	CHECK_EQ(descriptors(), before);
	card_close(&card);
}

/* ---- FLINK ----------------------------------------------------------------------------------- */

static int flink(int fd, uint32_t handle, uint32_t *name)
{
	struct drm_gem_flink args = { .handle = handle };
	int error = call(fd, DRM_IOCTL_GEM_FLINK, &args);

	*name = args.name;
	return error;
}

static int open_by_name(int fd, uint32_t name, struct drm_gem_open *args)
{
	*args = (struct drm_gem_open){ .name = name };
	return call(fd, DRM_IOCTL_GEM_OPEN, args);
}

static void names_are_for_primary_nodes(void)
{
	struct card card = card_open("6.12", "");
	struct drm_gem_open args;
	uint32_t name;

	CHECK_EQ(flink(card.fd, bo_create(card.fd, PAGE, 0), &name), -EACCES);
	CHECK_EQ(open_by_name(card.fd, 1, &args), -EACCES);
	card_close(&card);
}

static void a_name_opens_the_buffer_with_a_new_handle(void)
{
	struct card card = card_open("6.12", "");
	int a = primary_open(&card), b = primary_open(&card);
	uint32_t handle = bo_create(a, 3 * PAGE, 0), name, again;
	struct drm_gem_open first, second;

	CHECK_EQ(flink(a, handle, &name), 0);
	CHECK_EQ(flink(a, handle, &again), 0);
	CHECK_EQ(name, again);
	CHECK_EQ(open_by_name(b, name, &first), 0);
	CHECK_EQ(open_by_name(b, name, &second), 0);
	CHECK(first.handle != second.handle);
	CHECK_EQ(first.size, 3 * PAGE);
	CHECK_EQ(stats(&card).buffers, 1);
	/* Both are one member of the VM: it leaves with the last. */
	CHECK_EQ(va_map(b, first.handle, 0, VA, 0, PAGE), 0);
	CHECK_EQ(bo_close(b, first.handle), 0);
	CHECK_MAPPED(b, VA, second.handle, 0);
	CHECK_EQ(bo_close(b, second.handle), 0);
	CHECK_UNMAPPED(b, VA);
	CHECK_EQ(vmkv_emulator_close(a) | vmkv_emulator_close(b), 0);
	card_close(&card);
}

static void a_name_goes_with_the_last_handle(void)
{
	struct card card = card_open("6.12", "");
	int a = primary_open(&card), b = primary_open(&card);
	uint32_t handle = bo_create(a, PAGE, 0), name;
	struct drm_gem_open opened, again;

	CHECK_EQ(flink(a, 77, &name), -ENOENT);
	CHECK_EQ(open_by_name(b, 77, &opened), -ENOENT);
	CHECK_EQ(flink(a, handle, &name), 0);
	CHECK_EQ(open_by_name(b, name, &opened), 0);
	CHECK_EQ(bo_close(a, handle), 0);
	CHECK_EQ(open_by_name(b, name, &again), 0);
	CHECK_EQ(bo_close(b, opened.handle) | bo_close(b, again.handle), 0);
	CHECK_EQ(open_by_name(b, name, &again), -ENOENT);
	CHECK_EQ(vmkv_emulator_close(a) | vmkv_emulator_close(b), 0);
	card_close(&card);
}

static void an_always_valid_buffer_is_opened_in_no_other_vm(void)
{
	struct card card = card_open("6.12", "");
	int a = primary_open(&card), b = primary_open(&card);
	struct drm_gem_open opened;
	uint32_t name;

	CHECK_EQ(flink(a, bo_create(a, PAGE, ALWAYS), &name), 0);
	CHECK_EQ(open_by_name(b, name, &opened), -EPERM);
	CHECK_EQ(open_by_name(a, name, &opened), 0);
	CHECK_EQ(vmkv_emulator_close(a) | vmkv_emulator_close(b), 0);
	card_close(&card);
}

int main(void)
{
	RUN(the_end_of_a_dma_buf_is_its_size);
	RUN(mmap_of_a_dma_buf_fails_rather_than_showing_other_bytes);
	RUN(another_file_gets_the_same_buffer);
	RUN(the_same_file_gets_the_same_handle_uncounted);
	RUN(exporting_twice_gives_the_same_dma_buf);
	RUN(always_valid_and_userptr_buffers_cant_be_exported);
	RUN(what_is_no_dma_buf_or_flag_is_refused);
	RUN(another_card_refuses_and_counts);
	RUN(a_buffer_lives_as_long_as_a_descriptor);
	RUN(another_process_can_be_the_last);
	RUN(a_descriptor_outlives_its_file_and_its_card);
	RUN(no_descriptor_is_left_of_many_exports);
	RUN(names_are_for_primary_nodes);
	RUN(a_name_opens_the_buffer_with_a_new_handle);
	RUN(a_name_goes_with_the_last_handle);
	RUN(an_always_valid_buffer_is_opened_in_no_other_vm);
	return 0;
}
