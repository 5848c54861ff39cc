/* SPDX-License-Identifier: MIT
 *
 * GEM_USERPTR: the process's own memory as a buffer.
 */
#include "cs_fixture.h"

#define READONLY AMDGPU_GEM_USERPTR_READONLY
#define ANONONLY AMDGPU_GEM_USERPTR_ANONONLY
#define VALIDATE AMDGPU_GEM_USERPTR_VALIDATE
#define REGISTER AMDGPU_GEM_USERPTR_REGISTER
#define USER_BYTES (16 * PAGE)

static struct bench bench;
static int fd;

static void *memory_make(void)
{
	void *memory = mmap(NULL, USER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	return memory;
}

static int userptr(const void *memory, uint64_t bytes, uint32_t flags, uint32_t *handle)
{
	struct drm_amdgpu_gem_userptr args = { .addr = (uintptr_t)memory, .size = bytes, .flags = flags };
	int error = call(fd, DRM_IOCTL_AMDGPU_GEM_USERPTR, &args);

	*handle = args.handle;
	return error;
}

/* One that is neither validated nor in a submission's list has no pages that the card could reach. */
static uint32_t buffer_of(void *memory, uint32_t flags)
{
	uint32_t handle;

	CHECK_EQ(userptr(memory, USER_BYTES, flags, &handle), 0);
	CHECK_EQ(va_map(fd, handle, 0, VA, 0, USER_BYTES), 0);
	settle(fd);
	return handle;
}

static void buffer_end(void *memory, uint32_t handle)
{
	CHECK_EQ(bo_close(fd, handle), 0);
	settle(fd);
	munmap(memory, USER_BYTES);
}

/* What a job of one packet returns; its context goes with it if it fails. */
static int run(void)
{
	int error = slot_run(&bench, 0);

	if (error) {
		context_destroy(fd, bench.context);
		bench.context = context_create(fd);
	}
	return error;
}

static uint32_t *empty(void)
{
	memset(slot(&bench, 0), 0, PAGE);
	return slot(&bench, 0);
}

static void what_the_process_writes_the_card_reads(void)
{
	uint32_t *memory = memory_make(), handle = buffer_of(memory, REGISTER | VALIDATE);

	for (uint32_t i = 0; i < USER_BYTES / 4; i++)
		memory[i] = i * 3;
	put_copy(empty(), DATA_VA, VA + PAGE, 8 * PAGE);
	CHECK_EQ(run(), 0);
	CHECK(!memcmp(bench.words + DATA, (char *)memory + PAGE, 8 * PAGE));
	buffer_end(memory, handle);
}

static void what_the_card_writes_the_process_reads(void)
{
	uint32_t *memory = memory_make(), handle = buffer_of(memory, REGISTER | VALIDATE);
	uint32_t *at = put_fill(empty(), VA + PAGE - 8, 0x5a5a5a5a, 16); /* over the end of a page */

	PUT(at, 10u | 0x0fu << 25, LO(VA), HI(VA), 5, 0, 0, 0, 0); /* an atomic add */
	memory[0] = 37;
	CHECK_EQ(run(), 0);
	CHECK_EQ(memory[0], 42);
	CHECK_EQ(memory[1021], 0);
	CHECK_EQ(memory[1022], 0x5a5a5a5a);
	CHECK_EQ(memory[1025], 0x5a5a5a5a);
	CHECK_EQ(memory[1026], 0);
	buffer_end(memory, handle);
}

/* It needs no notifier, but isn't written whatever the mapping says. */
static void a_read_only_buffer_is_read_only(void)
{
	uint32_t *memory = memory_make(), handle;

	memory[0] = 7;
	CHECK_EQ(mprotect(memory, USER_BYTES, PROT_READ), 0);
	CHECK_EQ(userptr(memory, USER_BYTES, VALIDATE | REGISTER, &handle), -EFAULT);
	handle = buffer_of(memory, READONLY | VALIDATE);
	put_copy(empty(), DATA_VA, VA, 4);
	CHECK_EQ(run(), 0);
	CHECK_EQ(bench.words[DATA], 7);
	put_write(empty(), VA, 8);
	CHECK_EQ(run(), -ECANCELED);
	CHECK_CONTAINS(error_text(&bench), "not writable");
	CHECK_EQ(memory[0], 7);
	buffer_end(memory, handle);
}

static void flags_and_addresses_are_checked(void)
{
	char *memory = memory_make();
	uint32_t handle;

	CHECK_EQ(userptr(memory + 1, USER_BYTES, REGISTER, &handle), -EINVAL);
	CHECK_EQ(userptr(memory, USER_BYTES - 1, REGISTER, &handle), -EINVAL);
	CHECK_EQ(userptr(memory, USER_BYTES, 1u << 4, &handle), -EINVAL);
	CHECK_EQ(userptr(memory, USER_BYTES, 0, &handle), -EACCES);
	CHECK_EQ(userptr(memory, USER_BYTES, ANONONLY | VALIDATE, &handle), -EACCES);
	CHECK(userptr((void *)0xffffffffffff0000, 0x80000000, 7, &handle) < 0);
	munmap(memory, USER_BYTES);
}

static void validating_finds_what_is_missing(void)
{
	char *memory = memory_make();
	uint32_t handle;

	munmap(memory + 4 * PAGE, PAGE);
	CHECK_EQ(userptr(memory, USER_BYTES, REGISTER | VALIDATE, &handle), -EFAULT);
	CHECK_EQ(userptr(memory, 4 * PAGE, REGISTER | VALIDATE, &handle), 0);
	CHECK_EQ(bo_close(fd, handle), 0);
	CHECK_EQ(userptr(memory, USER_BYTES, REGISTER, &handle), 0); /* not looked at yet */
	CHECK_EQ(bo_close(fd, handle), 0);
	munmap(memory, USER_BYTES);
}

static void anonymous_memory_only_refuses_files(void)
{
	int file = memfd_create("file", 0);
	void *memory;
	uint32_t handle;

	CHECK_EQ(ftruncate(file, USER_BYTES), 0);
	memory = mmap(NULL, USER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK_EQ(userptr(memory, USER_BYTES, REGISTER | ANONONLY | VALIDATE, &handle), -EPERM);
	CHECK_EQ(userptr(memory, USER_BYTES, REGISTER | VALIDATE, &handle), 0);
	CHECK_EQ(bo_close(fd, handle), 0);
	munmap(memory, USER_BYTES);
	close(file);
}

static void memory_that_the_process_took_away_fails_the_job(void)
{
	void *memory = memory_make();
	uint32_t handle = buffer_of(memory, REGISTER | VALIDATE);

	munmap(memory, USER_BYTES);
	put_copy(empty(), DATA_VA, VA, 4);
	CHECK_EQ(run(), -ECANCELED);
	CHECK_EQ(bo_close(fd, handle), 0);
	settle(fd);
}

static void a_submission_that_lists_it_validates_it(void)
{
	uint32_t *memory = memory_make(), handle = buffer_of(memory, REGISTER);
	struct drm_amdgpu_bo_list_entry entry = { .bo_handle = handle };
	struct drm_amdgpu_bo_list_in list = { .operation = ~0u, .list_handle = ~0u, .bo_number = 1,
		                              .bo_info_size = sizeof(entry),
		                              .bo_info_ptr = (uintptr_t)&entry };
	uint64_t number = 0;

	memory[0] = 77;
	put_copy(empty(), DATA_VA, VA, 4);
	CHECK_EQ(slot_submit_with(&bench, 0, AMDGPU_CHUNK_ID_BO_HANDLES, &list, sizeof(list), &number), 0);
	CHECK_EQ(wait_for(&bench, number), 0);
	CHECK_EQ(bench.words[DATA], 77);
	buffer_end(memory, handle);
}

static void it_is_nobody_else_s(void)
{
	void *memory = memory_make();
	uint32_t handle = buffer_of(memory, REGISTER | VALIDATE);
	struct drm_prime_handle prime = { .handle = handle };
	union drm_amdgpu_gem_mmap map = { .in = { .handle = handle } };
	struct drm_amdgpu_gem_op op = { .handle = handle, .op = AMDGPU_GEM_OP_SET_PLACEMENT, .value = VRAM };

	CHECK_EQ(call(fd, DRM_IOCTL_PRIME_HANDLE_TO_FD, &prime), -EPERM);
	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_GEM_MMAP, &map), -EPERM);
	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_GEM_OP, &op), -EPERM);
	buffer_end(memory, handle);
}

int main(void)
{
	bench = bench_open("6.12", "");
	fd = bench.fd;
	RUN(what_the_process_writes_the_card_reads);
	RUN(what_the_card_writes_the_process_reads);
	RUN(a_read_only_buffer_is_read_only);
	RUN(flags_and_addresses_are_checked);
	RUN(validating_finds_what_is_missing);
	RUN(anonymous_memory_only_refuses_files);
	RUN(memory_that_the_process_took_away_fails_the_job);
	RUN(a_submission_that_lists_it_validates_it);
	RUN(it_is_nobody_else_s);
	bench_close(&bench);
	return 0;
}
