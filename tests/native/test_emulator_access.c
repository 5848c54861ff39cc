/* SPDX-License-Identifier: MIT
 *
 * Accesses of the emulated card by address: through the page tables, with faults and what is told
 * of them.
 */
#include "vm_fixture.h"

static const char *kernel;
static struct card card;
static int fd;

static void the_card_reads_and_writes_through_the_tables(void)
{
	uint32_t bo = bo_create(fd, HUGE, ALWAYS), value;
	uint32_t *view = bo_view(fd, bo, HUGE);

	CHECK_EQ(va_map(fd, bo, 0, VA, 0, 64 * KIB), 0);
	CHECK_EQ(va_map(fd, bo, 0, VA + 64 * KIB, MIB, 64 * KIB), 0);
	CHECK_EQ(gpu_write(&card, VA + 64 * KIB + 8, 0xdeadbeef), 0);
	CHECK_EQ(view[MIB / 4 + 2], 0xdeadbeef);
	/* Across the border of two mappings, in one copy. */
	for (uint32_t i = 0; i < 64 * KIB / 4; i++)
		view[i] = i;
	CHECK_EQ(gpu_copy(&card, VA + 96 * KIB, VA, 32 * KIB), 0);
	CHECK_EQ(view[(MIB + 32 * KIB) / 4 + 1000], 1000);
	CHECK_EQ(gpu_copy(&card, VA + 4 * KIB, VA + 60 * KIB, 8 * KIB), 0);
	CHECK_EQ(view[4 * KIB / 4], 60 * KIB / 4);
	CHECK_EQ(view[8 * KIB / 4 + 2], 0xdeadbeef);
	CHECK_EQ(gpu_read(&card, VA + 60 * KIB, &value), 0);
	CHECK_EQ(value, 60 * KIB / 4);
	munmap(view, HUGE);
	CHECK_EQ(bo_close(fd, bo), 0);
}

static void an_unmapped_access_is_a_fault(void)
{
	uint64_t before = stats(&card).faults;
	char text[256];
	uint32_t value;

	CHECK(gpu_read(&card, VA + 5 * HUGE, &value) < 0);
	CHECK_EQ(stats(&card).faults, before + 1);
	vmkv_emulator_error(card.gpu, text, sizeof(text));
	CHECK_CONTAINS(text, "fault");
	CHECK_CONTAINS(text, "not mapped");
}

static void high_addresses_are_reached_with_their_sign(void)
{
	uint64_t high = UINT64_C(0xffff800000000000) + 16 * MIB;
	uint32_t bo = bo_create(fd, HUGE, ALWAYS), value;

	CHECK_EQ(va_map(fd, bo, 0, high, 0, PAGE), 0);
	CHECK_EQ(gpu_write(&card, high + 4, 9), 0);
	CHECK_EQ(gpu_read(&card, high + 4, &value), 0);
	CHECK_EQ(value, 9);
	CHECK(gpu_read(&card, (high & VA_BITS) + 4, &value) < 0); /* that is in the hole */
	CHECK_EQ(bo_close(fd, bo), 0);
}

static void a_write_to_a_read_only_page_is_a_fault_and_writes_nothing(void)
{
	uint32_t bo = bo_create(fd, HUGE, ALWAYS), value;
	uint32_t *view = bo_view(fd, bo, HUGE);
	uint64_t before;

	view[0] = 77;
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_MAP, bo, AMDGPU_VM_PAGE_READABLE, VA, 0, PAGE), 0);
	CHECK_EQ(gpu_read(&card, VA, &value), 0);
	CHECK_EQ(value, 77);
	before = stats(&card).faults;
	CHECK(gpu_write(&card, VA, 1) < 0);
	CHECK_EQ(stats(&card).faults, before + 1);
	CHECK_EQ(view[0], 77);
	munmap(view, HUGE);
	CHECK_EQ(bo_close(fd, bo), 0);
}

static int fault_query(int of, struct drm_amdgpu_info_gpuvm_fault *ret)
{
	struct drm_amdgpu_info args = { .return_pointer = (uintptr_t)ret,
		                        .return_size = sizeof(*ret),
		                        .query = AMDGPU_INFO_GPUVM_FAULT };

	return call(of, DRM_IOCTL_AMDGPU_INFO, &args);
}

static void a_fault_is_told_by_gpuvm_fault_from_612_on(void)
{
	struct drm_amdgpu_info_gpuvm_fault fault = { 0 };
	uint32_t bo = bo_create(fd, HUGE, ALWAYS), value;

	CHECK(gpu_read(&card, VA + 9 * HUGE + 256, &value) < 0);
	if (!strcmp(kernel, "6.1")) {
		CHECK_EQ(fault_query(fd, &fault), -EINVAL);
		CHECK_EQ(bo_close(fd, bo), 0);
		return;
	}
	CHECK_EQ(fault_query(fd, &fault), 0);
	CHECK_EQ(fault.addr, VA + 9 * HUGE);
	CHECK_EQ(fault.status >> 18 & 1, 0); /* a read */
	CHECK(fault.status != 0);
	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_MAP, bo, AMDGPU_VM_PAGE_READABLE, VA, 0, PAGE), 0);
	CHECK(gpu_write(&card, VA + 12, 1) < 0);
	CHECK_EQ(fault_query(fd, &fault), 0);
	CHECK_EQ(fault.addr, VA);
	CHECK_EQ(fault.status >> 18 & 1, 1);
	CHECK_EQ(fault_query(fd, &fault), 0); /* reading it doesn't clear it */
	CHECK_EQ(fault.addr, VA);
	CHECK_EQ(bo_close(fd, bo), 0);
}

static void prt_reads_zero_and_drops_writes(void)
{
	uint64_t before = stats(&card).faults;
	uint32_t value = 1;

	CHECK_EQ(va_op(fd, AMDGPU_VA_OP_MAP, 0, PRT, VA, 0, HUGE), 0);
	CHECK_EQ(gpu_write(&card, VA + 64, 0x1111), 0);
	CHECK_EQ(gpu_read(&card, VA + 64, &value), 0);
	CHECK_EQ(value, 0);
	CHECK_EQ(stats(&card).faults, before);
	CHECK_EQ(va_clear(fd, 0, VA, HUGE), 0);
	CHECK(gpu_read(&card, VA + 64, &value) < 0);
}

/* The hazard of splitting, to its end: entries of memory that is nobody's. */
static void an_access_to_freed_memory_is_counted_and_harmless(void)
{
	uint32_t bo = bo_create(fd, HUGE, 0), value = 1;
	uint64_t before = stats(&card).stale_accesses;

	CHECK_EQ(va_map(fd, bo, 0, VA, 0, 8 * PAGE), 0);
	CHECK_EQ(va_clear(fd, 0, VA + 2 * PAGE, 2 * PAGE), 0);
	CHECK_EQ(bo_close(fd, bo), 0);
	CHECK_EQ(gpu_read(&card, VA, &value), 0);
	CHECK_EQ(value, 0);
	CHECK_EQ(stats(&card).stale_accesses, before + 1);
	CHECK_EQ(gpu_write(&card, VA, 5), 0);
	CHECK_EQ(stats(&card).stale_accesses, before + 2);
	bo = bo_create(fd, HUGE, 0);
	CHECK_EQ(va_map(fd, bo, 0, VA, 0, HUGE), 0);
	CHECK_EQ(bo_close(fd, bo), 0);
}

/* As after a close while the VM isn't ready. */
static void stale_memory_is_told_page_by_page(void)
{
	uint32_t bo = bo_create(fd, HUGE, 0), always = bo_create(fd, PAGE, ALWAYS);
	struct emu_file *file = emu_file_get(fd);
	struct emu_piece piece = { .memory = (uint8_t *)file, .bytes = HUGE };

	CHECK_EQ(va_map(fd, bo, 0, VA, 0, HUGE), 0);
	settle(fd);
	pthread_mutex_lock(&file->gpu->lock);
	emu_vm_bo_invalidate(emu_handle_find(file, always)->bo, true);
	pthread_mutex_unlock(&file->gpu->lock);
	CHECK_EQ(bo_close(fd, bo), 0);
	pthread_mutex_lock(&file->gpu->lock);
	CHECK_EQ(emu_vm_access(file->vm, VA + 100, false, &piece), 0);
	pthread_mutex_unlock(&file->gpu->lock);
	CHECK_EQ(piece.bytes, PAGE - 100);
	CHECK(piece.memory == NULL);
	emu_file_put(file);
	CHECK_EQ(cs_nop(&card, NULL, 0), 0);
	CHECK_UNMAPPED(fd, VA);
	CHECK_EQ(bo_close(fd, always), 0);
}

static void gfx9_translates_for_sdma_in_the_multimedia_hub(void)
{
	struct drm_amdgpu_info_gpuvm_fault fault = { 0 };
	struct card gfx9 = { 0 };
	uint32_t value;

	CHECK_EQ(vmkv_emulator_create("gfx942?vram=1GiB&gtt=1GiB", NULL, 0, &gfx9.gpu), 0);
	CHECK_EQ(vmkv_emulator_open(gfx9.gpu, &gfx9.fd), 0);
	CHECK(gpu_read(&gfx9, VA, &value) < 0);
	CHECK_EQ(fault_query(gfx9.fd, &fault), 0);
	CHECK_EQ(fault.addr, VA);
	CHECK_EQ(fault.vmhub, 1);
	card_close(&gfx9);
	if (strcmp(kernel, "6.1")) {
		CHECK(gpu_read(&card, VA, &value) < 0);
		CHECK_EQ(fault_query(fd, &fault), 0);
		CHECK_EQ(fault.vmhub, 0);
	}
}

static void walk_refuses_what_is_no_emulated_file(void)
{
	struct vmkv_emulator_entry entry = { .struct_size = sizeof(entry) };

	CHECK_EQ(vmkv_emulator_walk(-1, VA, &entry), -EBADF);
	CHECK_EQ(vmkv_emulator_walk(0, VA, &entry), -EBADF);
	entry.struct_size = 0;
	CHECK_EQ(vmkv_emulator_walk(fd, VA, &entry), -EINVAL);
}

static void run_all(void)
{
	RUN(the_card_reads_and_writes_through_the_tables);
	RUN(an_unmapped_access_is_a_fault);
	RUN(high_addresses_are_reached_with_their_sign);
	RUN(a_write_to_a_read_only_page_is_a_fault_and_writes_nothing);
	RUN(a_fault_is_told_by_gpuvm_fault_from_612_on);
	RUN(prt_reads_zero_and_drops_writes);
	RUN(an_access_to_freed_memory_is_counted_and_harmless);
	RUN(stale_memory_is_told_page_by_page);
	RUN(gfx9_translates_for_sdma_in_the_multimedia_hub);
	RUN(walk_refuses_what_is_no_emulated_file);
}

int main(void)
{
	FOR_EACH_KERNEL(name) {
		kernel = name;
		card = card_open(kernel, "");
		fd = card.fd;
		run_all();
		card_close(&card);
	}
	return 0;
}
