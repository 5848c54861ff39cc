/* SPDX-License-Identifier: MIT
 *
 * The ioctls of the emulated card that take a buffer's handle: mapping, closing, waiting, asking.
 */
#include <time.h>

#include "memory_fixture.h"

static void handles_are_the_lowest_free_numbers(void)
{
	struct card card = card_open("6.12", "");

	CHECK_EQ(bo_create(card.fd, PAGE, 0), 1);
	CHECK_EQ(bo_create(card.fd, PAGE, 0), 2);
	CHECK_EQ(bo_close(card.fd, 1), 0);
	CHECK_EQ(bo_create(card.fd, PAGE, 0), 1);
	card_close(&card);
}

static void each_file_has_handles_of_its_own(void)
{
	struct card card = card_open("6.12", "");
	int other;

	CHECK_EQ(vmkv_emulator_open(card.gpu, &other), 0);
	CHECK_EQ(bo_create(card.fd, PAGE, 0), 1);
	CHECK_EQ(bo_close(other, 1), -EINVAL);
	CHECK_EQ(bo_create(other, PAGE, 0), 1);
	CHECK_EQ(stats(&card).handles, 2);
	CHECK_EQ(bo_wait(other, 1), 0);
	CHECK_EQ(vmkv_emulator_close(other), 0);
	CHECK_EQ(stats(&card).handles, 1);
	CHECK_EQ(stats(&card).buffers, 1);
	card_close(&card);
}

static void who_closes_no_handle_is_invalid_who_uses_none_finds_none(void)
{
	struct card card = card_open("7.2", "");
	union drm_amdgpu_gem_mmap mmap_args = { .in = { .handle = 9 } };
	struct drm_amdgpu_gem_metadata metadata = { .handle = 9, .op = 2 };
	struct drm_amdgpu_gem_op op = { .handle = 9 };

	CHECK_EQ(bo_close(card.fd, 9), -EINVAL);
	CHECK_EQ(bo_close(card.fd, 0), -EINVAL);
	CHECK_EQ(call(card.fd, DRM_IOCTL_AMDGPU_GEM_MMAP, &mmap_args), -ENOENT);
	CHECK_EQ(call(card.fd, DRM_IOCTL_AMDGPU_GEM_METADATA, &metadata), -ENOENT);
	CHECK_EQ(call(card.fd, DRM_IOCTL_AMDGPU_GEM_OP, &op), -ENOENT);
	CHECK_EQ(bo_wait(card.fd, 9), -ENOENT);
	card_close(&card);
}

/* ---- GEM_MMAP -------------------------------------------------------------------------------- */

static void a_buffer_is_mapped_where_mmap_says(void)
{
	struct card card = card_open("6.12", "");
	uint32_t a = bo_create(card.fd, 64 * KIB, 0), b = bo_create_in(card.fd, 64 * KIB, GTT, 0);
	uint8_t *a_view = bo_view(card.fd, a, 64 * KIB), *b_view = bo_view(card.fd, b, 64 * KIB);
	uint8_t *again = bo_view(card.fd, a, 64 * KIB);

	memset(a_view, 1, 64 * KIB);
	memset(b_view, 2, 64 * KIB);
	CHECK_EQ(again[64 * KIB - 1], 1);
	CHECK_EQ(munmap(a_view, 64 * KIB) | munmap(b_view, 64 * KIB) | munmap(again, 64 * KIB), 0);
	card_close(&card);
}

static void who_asked_for_no_access_gets_none(void)
{
	struct card card = card_open("6.12", "");
	union drm_amdgpu_gem_mmap args = { .in = { 0 } };

	args.in.handle = bo_create(card.fd, PAGE, AMDGPU_GEM_CREATE_NO_CPU_ACCESS);
	CHECK_EQ(call(card.fd, DRM_IOCTL_AMDGPU_GEM_MMAP, &args), -EPERM);
	args.in.handle = bo_create_in(card.fd, 1, AMDGPU_GEM_DOMAIN_GWS, 0);
	CHECK_EQ(call(card.fd, DRM_IOCTL_AMDGPU_GEM_MMAP, &args), -EPERM);
	card_close(&card);
}

/* ---- GEM_WAIT_IDLE --------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void waiting_ends_at_an_absolute_time(void)
{
	struct card card = card_open("6.12", "");
	uint32_t handle = bo_create_in(card.fd, PAGE, GTT, 0);
	struct emu_fence *fence = hold(card.fd, MOVE_OF_BUFFER, handle);
	uint64_t until = now_ns() + 20000000;

	CHECK_EQ(bo_wait_until(card.fd, handle, 0), 1);
	CHECK_EQ(bo_wait_until(card.fd, handle, until), 1);
	CHECK(now_ns() >= until);
	let_go(fence);
	CHECK_EQ(bo_wait_until(card.fd, handle, 0), 0);
	CHECK_EQ(bo_wait_until(card.fd, handle, UINT64_MAX), 0); /* negative: no end */
	card_close(&card);
}

static void an_always_valid_buffer_is_idle_when_the_vm_is(void)
{
	struct card card = card_open("6.12", "");
	uint32_t own = bo_create_in(card.fd, PAGE, GTT, 0);
	uint32_t always = bo_create_in(card.fd, PAGE, GTT, ALWAYS);
	struct emu_fence *fence = hold(card.fd, SUBMISSION_OF_THIS_VM, 0);

	CHECK_EQ(bo_wait_until(card.fd, always, 0), 1);
	CHECK_EQ(bo_wait_until(card.fd, own, 0), 0);
	let_go(fence);
	CHECK_EQ(bo_wait_until(card.fd, always, 0), 0);
	card_close(&card);
}

/* ---- GEM_METADATA, GEM_OP -------------------------------------------------------------------- */

static void metadata_is_kept(void)
{
	struct card card = card_open("6.12", "");
	struct drm_amdgpu_gem_metadata set = { .handle = bo_create(card.fd, PAGE, 0), .op = 1 };
	struct drm_amdgpu_gem_metadata get = { .handle = set.handle, .op = 2 };

	set.data.flags = 5;
	set.data.tiling_info = 7;
	set.data.data_size_bytes = 256;
	set.data.data[63] = 99;
	CHECK_EQ(call(card.fd, DRM_IOCTL_AMDGPU_GEM_METADATA, &set), 0);
	CHECK_EQ(call(card.fd, DRM_IOCTL_AMDGPU_GEM_METADATA, &get), 0);
	CHECK_EQ(get.data.flags, 5);
	CHECK_EQ(get.data.tiling_info, 7);
	CHECK_EQ(get.data.data_size_bytes, 256);
	CHECK_EQ(get.data.data[63], 99);
	set.data.data_size_bytes = 257;
	CHECK_EQ(call(card.fd, DRM_IOCTL_AMDGPU_GEM_METADATA, &set), -EINVAL);
	set.op = 3;
	CHECK_EQ(call(card.fd, DRM_IOCTL_AMDGPU_GEM_METADATA, &set), -EINVAL);
	card_close(&card);
}

static int op_call(int fd, uint32_t handle, uint32_t op, uint64_t value)
{
	struct drm_amdgpu_gem_op args = { .handle = handle, .op = op, .value = value };

	return call(fd, DRM_IOCTL_AMDGPU_GEM_OP, &args);
}

static void a_placement_is_for_the_next_submission(void)
{
	struct card card = card_open("6.12", "");
	uint32_t handle = bo_create(card.fd, PAGE, 0);
	uint64_t budget = 0; /* it has to move, or it would be where it may not be */

	CHECK_EQ(op_call(card.fd, handle, AMDGPU_GEM_OP_SET_PLACEMENT, GTT), 0);
	CHECK_EQ(bo_heap(card.fd, handle), EMU_HEAP_VRAM);
	CHECK_EQ(bo_info(card.fd, handle).domains, GTT);
	CHECK_EQ(bo_validate(card.fd, handle, &budget), 0);
	CHECK_EQ(bo_heap(card.fd, handle), EMU_HEAP_GTT);
	CHECK_EQ(op_call(card.fd, handle, AMDGPU_GEM_OP_SET_PLACEMENT, VRAM | 0xff00), 0);
	CHECK_EQ(bo_info(card.fd, handle).domains, VRAM);
	card_close(&card);
}

static void an_operation_that_is_not_known_is_refused(void)
{
	FOR_EACH_KERNEL(kernel) {
		struct card card = card_open(kernel, "");
		uint32_t handle = bo_create(card.fd, PAGE, 0);
		bool known = !strcmp(kernel, "7.2");

		CHECK_EQ(op_call(card.fd, handle, AMDGPU_GEM_OP_GET_MAPPING_INFO, 0),
		         known ? 0 : -EINVAL);
		CHECK_EQ(op_call(card.fd, handle, 3, 0), -EINVAL);
		CHECK_EQ(stats(&card).refused, known ? 1 : 2);
		CHECK_EQ(op_call(card.fd, handle, AMDGPU_GEM_OP_GET_GEM_CREATE_INFO, 8), -EFAULT);
		card_close(&card);
	}
}

static void mappings_are_listed_if_there_is_room_for_all(void)
{
	struct card card = card_open("7.2", "");
	uint32_t handle = bo_create(card.fd, MIB, 0);
	struct drm_amdgpu_gem_vm_entry entries[3] = { { .size = 1 } };
	struct drm_amdgpu_gem_op args = { .handle = handle, .op = AMDGPU_GEM_OP_GET_MAPPING_INFO,
		                          .value = (uintptr_t)entries, .num_entries = 1 };

	CHECK_EQ(va_map(card.fd, handle, DELAY, VA, 0, PAGE), 0);
	CHECK_EQ(va_map(card.fd, handle, 0, VA + MIB, 64 * KIB, 2 * PAGE), 0);
	CHECK_EQ(va_map(card.fd, handle, DELAY, VA + 2 * MIB, 0, PAGE), 0);
	CHECK_EQ(call(card.fd, DRM_IOCTL_AMDGPU_GEM_OP, &args), 0);
	CHECK_EQ(args.num_entries, 3);
	CHECK_EQ(entries[0].size, 1);
	CHECK_EQ(call(card.fd, DRM_IOCTL_AMDGPU_GEM_OP, &args), 0);
	CHECK_EQ(args.num_entries, 3);
	for (int i = 0; i < 3; i++) {
		if (entries[i].addr != VA + MIB)
			continue;
		CHECK_EQ(entries[i].size, 2 * PAGE);
		CHECK_EQ(entries[i].offset, 64 * KIB);
		CHECK_EQ(entries[i].flags & RW, RW);
		card_close(&card);
		return;
	}
	CHECK_FAIL("the mapping isn't listed");
}

static void handles_are_listed_if_there_is_room_for_all(void)
{
	struct card card = card_open("7.2", "");
	struct drm_amdgpu_gem_list_handles_entry entries[2] = { { 0 } };
	struct drm_amdgpu_gem_list_handles args = { .entries = (uintptr_t)entries,
		                                    .num_entries = 1 };
	uint32_t a = bo_create(card.fd, MIB, ALWAYS), b = bo_create_in(card.fd, PAGE, GTT, 0);

	CHECK_EQ(call(card.fd, DRM_IOCTL_AMDGPU_GEM_LIST_HANDLES, &args), 0);
	CHECK_EQ(args.num_entries, 2);
	CHECK_EQ(entries[0].gem_handle, 0);
	CHECK_EQ(call(card.fd, DRM_IOCTL_AMDGPU_GEM_LIST_HANDLES, &args), 0);
	CHECK_EQ(entries[0].gem_handle, a);
	CHECK_EQ(entries[0].size, MIB);
	CHECK_EQ(entries[0].preferred_domains, VRAM);
	CHECK_EQ(entries[0].alloc_flags & ALWAYS, ALWAYS);
	CHECK_EQ(entries[1].gem_handle, b);
	CHECK_EQ(entries[1].preferred_domains, GTT);
	args.padding = 1;
	CHECK_EQ(call(card.fd, DRM_IOCTL_AMDGPU_GEM_LIST_HANDLES, &args), -EINVAL);
	card_close(&card);
}

/* ---- GEM_USERPTR ----------------------------------------------------------------------------- */

#define WRITES AMDGPU_GEM_USERPTR_REGISTER
#define READS AMDGPU_GEM_USERPTR_READONLY
#define NOW AMDGPU_GEM_USERPTR_VALIDATE
#define ANONYMOUS AMDGPU_GEM_USERPTR_ANONONLY

static void *room_map(uint64_t bytes, int protection)
{
	void *room = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(room != MAP_FAILED);
	return room;
}

static int userptr(int fd, const void *address, uint64_t bytes, uint32_t flags, uint32_t *handle)
{
	struct drm_amdgpu_gem_userptr args = { .addr = (uintptr_t)address, .size = bytes,
		                               .flags = flags };
	int error = call(fd, DRM_IOCTL_AMDGPU_GEM_USERPTR, &args);

	*handle = args.handle;
	return error;
}

static void a_userptr_is_checked(void)
{
	struct card card = card_open("6.12", "");
	int memory = memfd_create("test", 0);
	uint8_t *room = room_map(4 * PAGE, PROT_READ | PROT_WRITE);
	uint8_t *file;
	uint32_t h;

	CHECK_EQ(ftruncate(memory, PAGE), 0);
	file = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	CHECK(file != MAP_FAILED);
	CHECK_EQ(munmap(room + 2 * PAGE, 2 * PAGE), 0);
	CHECK_EQ(userptr(card.fd, room + 1, PAGE, WRITES, &h), -EINVAL);
	CHECK_EQ(userptr(card.fd, room, 100, WRITES, &h), -EINVAL);
	CHECK_EQ(userptr(card.fd, room, PAGE, WRITES | 0x10, &h), -EINVAL);
	CHECK_EQ(userptr(card.fd, room, PAGE, 0, &h), -EACCES);
	CHECK_EQ(userptr(card.fd, room, 0, WRITES, &h), -ENOSPC);
	CHECK_EQ(userptr(card.fd, room, 3 * PAGE, WRITES | NOW, &h), -EFAULT);
	CHECK_EQ(userptr(card.fd, room, 3 * PAGE, WRITES, &h), 0); /* nobody looked yet */
	CHECK_EQ(bo_validate(card.fd, h, NULL), -EFAULT);
	CHECK_EQ(userptr(card.fd, file, PAGE, WRITES | NOW | ANONYMOUS, &h), -EPERM);
	CHECK_EQ(userptr(card.fd, file, PAGE, WRITES | NOW, &h), 0);
	CHECK_EQ(mprotect(room, PAGE, PROT_READ), 0);
	CHECK_EQ(userptr(card.fd, room, PAGE, WRITES | NOW, &h), -EFAULT);
	CHECK_EQ(userptr(card.fd, room, PAGE, READS | NOW | ANONYMOUS, &h), 0);
	CHECK_EQ(munmap(room, 2 * PAGE) | munmap(file, PAGE) | close(memory), 0);
	card_close(&card);
}

static void a_userptr_is_the_processes_memory(void)
{
	struct card card = card_open("6.12", "");
	uint32_t *room = room_map(2 * PAGE, PROT_READ | PROT_WRITE);
	union drm_amdgpu_gem_mmap args = { .in = { 0 } };
	uint32_t handle, value;

	CHECK_EQ(userptr(card.fd, room, 2 * PAGE, WRITES | NOW, &handle), 0);
	CHECK_EQ(bo_heap(card.fd, handle), EMU_HEAP_GTT);
	CHECK_EQ(stats(&card).gtt_used_bytes, 2 * PAGE);
	CHECK_EQ(va_map(card.fd, handle, 0, VA, PAGE, PAGE), 0);
	room[PAGE / 4 + 3] = 77;
	CHECK_EQ(gpu_read(&card, VA + 12, &value), 0);
	CHECK_EQ(value, 77);
	CHECK_EQ(gpu_write(&card, VA + 16, 78), 0);
	CHECK_EQ(room[PAGE / 4 + 4], 78);
	args.in.handle = handle;
	CHECK_EQ(call(card.fd, DRM_IOCTL_AMDGPU_GEM_MMAP, &args), -EPERM);
	CHECK_EQ(op_call(card.fd, handle, AMDGPU_GEM_OP_SET_PLACEMENT, VRAM), -EPERM);
	CHECK_EQ(munmap(room, 2 * PAGE), 0);
	card_close(&card);
}

static void a_userptr_to_read_has_no_writable_entries(void)
{
	struct card card = card_open("6.12", "");
	void *room = room_map(PAGE, PROT_READ);
	uint32_t handle;

	CHECK_EQ(userptr(card.fd, room, PAGE, READS | NOW, &handle), 0);
	CHECK_EQ(va_map(card.fd, handle, 0, VA, 0, PAGE), 0);
	CHECK_EQ(walk(card.fd, VA).readable, 1);
	CHECK_EQ(walk(card.fd, VA).writable, 0);
	CHECK_EQ(munmap(room, PAGE), 0);
	card_close(&card);
}

int main(void)
{
	RUN(handles_are_the_lowest_free_numbers);
	RUN(each_file_has_handles_of_its_own);
	RUN(who_closes_no_handle_is_invalid_who_uses_none_finds_none);
	RUN(a_buffer_is_mapped_where_mmap_says);
	RUN(who_asked_for_no_access_gets_none);
	RUN(waiting_ends_at_an_absolute_time);
	RUN(an_always_valid_buffer_is_idle_when_the_vm_is);
	RUN(metadata_is_kept);
	RUN(a_placement_is_for_the_next_submission);
	RUN(an_operation_that_is_not_known_is_refused);
	RUN(mappings_are_listed_if_there_is_room_for_all);
	RUN(handles_are_listed_if_there_is_room_for_all);
	RUN(a_userptr_is_checked);
	RUN(a_userptr_is_the_processes_memory);
	RUN(a_userptr_to_read_has_no_writable_entries);
	return 0;
}
