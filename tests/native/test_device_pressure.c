/* SPDX-License-Identifier: MIT
 *
 * The amdgpu device in trouble: the kernel refuses submissions, others take the VRAM or lose the card,
 * and all of it while work is under way.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "abi/amdgpu.h"
#include "abi/drm.h"
#include "check.h"
#include "device.h"
#include "emulator/vmkv_emulator.h"
#include "vmkv.h"

#define PIECE (UINT64_C(2) << 20)
#define PIECES 4
#define IN_FLIGHT 16 /* chunks of the device's ring */

struct card {
	vmkv_emulator *emulator; /* borrowed */
	vmkv_device *device;
	int fd;
	struct vmkv_slab *slab;
	uint64_t address;
};

static struct card card_open(const char *name)
{
	char error[256] = "";
	struct vmkv_device_options options = {
		.struct_size = sizeof(options), .name = name, .error = error, .error_bytes = sizeof(error),
	};
	struct vmkv_amdgpu_info info = { .struct_size = sizeof(info) };
	struct card card;

	if (vmkv_device_open(&options, &card.device))
		CHECK_FAIL("%s: %s", name, error);
	CHECK_EQ(vmkv_amdgpu_info(card.device, &info), 0);
	card.fd = info.drm_fd;
	card.emulator = vmkv_emulator_of(card.fd);
	CHECK_EQ(card.device->ops->slab_create(card.device, PIECES * PIECE, &card.slab), 0);
	CHECK_EQ(card.device->ops->reserve(card.device, PIECES * PIECE, PIECE, &card.address), 0);
	return card;
}

static void card_close(struct card *card)
{
	card->device->ops->release(card->device, card->address, PIECES * PIECE);
	card->device->ops->slab_destroy(card->device, card->slab);
	CHECK_EQ(vmkv_device_close(card->device), 0);
}

static int map_piece(struct card *card, uint32_t i, uint64_t *point)
{
	struct vmkv_map map = { card->address + i * PIECE, PIECE, card->slab, i * PIECE };
	size_t issued;

	return card->device->ops->map(card->device, &map, 1, &issued, point);
}

static int unmap_piece(struct card *card, uint32_t i, uint64_t *point)
{
	struct vmkv_unmap unmap = { card->address + i * PIECE, PIECE, 1, card->slab };
	size_t issued;

	return card->device->ops->unmap(card->device, &unmap, 1, &issued, point);
}

static int fill_slab(struct card *card, uint64_t *point)
{
	struct vmkv_fill fill = { .slab = card->slab, .bytes = 64, .value = 7 };

	return card->device->ops->fill(card->device, &fill, 1, point);
}

static void *resume_later(void *card)
{
	usleep(20000);
	vmkv_emulator_resume(((struct card *)card)->emulator);
	return NULL;
}

/* The fill waits for a place in the ring while an unmap's submission, which was refused, is still to be
 * made up for. */
static void a_full_ring_is_waited_for_though_a_submission_is_owed(void)
{
	struct card card = card_open("emulated:gfx1201?vram=256MiB");
	uint64_t point, owed;
	pthread_t thread;

	CHECK_EQ(map_piece(&card, 0, &point), 0);
	CHECK_EQ(card.device->ops->wait(card.device, point, UINT64_MAX), 0);
	vmkv_emulator_pause(card.emulator);
	for (uint32_t i = 0; i < IN_FLIGHT; i++)
		CHECK_EQ(fill_slab(&card, &point), 0);
	CHECK_EQ(vmkv_emulator_fail(card.emulator, "CS", 1, EINVAL), 0);
	CHECK_EQ(unmap_piece(&card, 0, &owed), 0);
	CHECK_EQ(owed, point + 1);
	CHECK_EQ(pthread_create(&thread, NULL, resume_later, &card), 0);
	alarm(60);
	CHECK_EQ(fill_slab(&card, &point), 0);
	alarm(0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(card.device->ops->wait(card.device, owed, UINT64_MAX), 0);
	card_close(&card);
}

/* Maps only list what is to change: an emulated kernel that didn't honour DELAY would be seen here. */
static void with_engine_commits_nothing_is_mapped_before_the_engine_submits(void)
{
	static const char *const names[] = {
		"emulated:gfx1201?vram=256MiB&commit=engine",
		"emulated:gfx1201?vram=256MiB&commit=engine&break=ignore-delay",
	};

	for (int broken = 0; broken < 2; broken++) {
		struct vmkv_emulator_entry entry = { .struct_size = sizeof(entry) };
		struct card card = card_open(names[broken]);
		uint64_t point = 1;

		CHECK_EQ(map_piece(&card, 0, &point), 0);
		CHECK_EQ(point, 0);
		usleep(1000); /* what isn't to happen has had the time to */
		do
			CHECK_EQ(vmkv_emulator_walk(card.fd, card.address, &entry), 0);
		while (broken && !entry.valid);
		CHECK_EQ(entry.valid, broken);
		card_close(&card);
	}
}

/* ---- others on the card -------------------------------------------------------------------------- */

#define OTHER_VA (UINT64_C(0x7000) << 32) /* where nobody else maps */

static int call(int fd, unsigned long request, void *argument)
{
	return vmkv_emulator_ioctl(fd, request, argument) < 0 ? -errno : 0;
}

/* A buffer that is always valid, mapped at an address. */
static uint32_t buffer_map(int fd, uint64_t bytes, uint64_t domain, uint64_t address)
{
	union drm_amdgpu_gem_create create = { .in = { .bo_size = bytes, .alignment = 4096,
		                                       .domains = domain } };
	struct drm_amdgpu_gem_va va = { .operation = AMDGPU_VA_OP_MAP, .va_address = address,
		                        .map_size = bytes };

	create.in.domain_flags = AMDGPU_GEM_CREATE_VM_ALWAYS_VALID;
	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_GEM_CREATE, &create), 0);
	va.handle = create.out.handle;
	va.flags = AMDGPU_VM_PAGE_READABLE | AMDGPU_VM_PAGE_WRITEABLE | AMDGPU_VM_PAGE_EXECUTABLE;
	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_GEM_VA, &va), 0);
	return create.out.handle;
}

static void buffer_close(int fd, uint32_t handle)
{
	struct drm_gem_close args = { .handle = handle };

	CHECK_EQ(call(fd, DRM_IOCTL_GEM_CLOSE, &args), 0);
}

/* NOPs on another file; what becomes of them. */
static int other_submits(int fd)
{
	union drm_amdgpu_ctx context = { .in = { .op = AMDGPU_CTX_OP_ALLOC_CTX } };
	struct drm_amdgpu_cs_chunk_ib ib = { .va_start = OTHER_VA, .ib_bytes = 32,
		                             .ip_type = AMDGPU_HW_IP_DMA };
	struct drm_amdgpu_cs_chunk chunk = { AMDGPU_CHUNK_ID_IB, sizeof(ib) / 4, (uintptr_t)&ib };
	uint64_t pointer = (uintptr_t)&chunk;
	union drm_amdgpu_cs cs = { .in = { .num_chunks = 1, .chunks = (uintptr_t)&pointer } };
	union drm_amdgpu_wait_cs wait = { .in = { .timeout = INT64_MAX,
		                                  .ip_type = AMDGPU_HW_IP_DMA } };

	buffer_map(fd, 4096, AMDGPU_GEM_DOMAIN_GTT, OTHER_VA);
	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_CTX, &context), 0);
	cs.in.ctx_id = wait.in.ctx_id = context.out.alloc.ctx_id;
	CHECK_EQ(call(fd, DRM_IOCTL_AMDGPU_CS, &cs), 0);
	wait.in.handle = cs.out.handle;
	return call(fd, DRM_IOCTL_AMDGPU_WAIT_CS, &wait);
}

/* The device's own context hung on nothing, and yet its memory is gone: work that went on would find
 * zeros where rows were. */
static void a_card_that_another_file_lost_takes_no_more(void)
{
	struct card card = card_open("emulated:gfx1201?vram=256MiB&inject=device-lost:3");
	struct vmkv_device_health health = { .struct_size = sizeof(health) };
	uint64_t point;
	int other;

	CHECK_EQ(vmkv_emulator_open(card.emulator, &other), 0);
	CHECK_EQ(map_piece(&card, 0, &point), 0);
	CHECK_EQ(card.device->ops->wait(card.device, point, UINT64_MAX), 0);
	CHECK_EQ(fill_slab(&card, &point), 0);
	CHECK_EQ(card.device->ops->wait(card.device, point, UINT64_MAX), 0);
	CHECK_EQ(other_submits(other), -ECANCELED);
	CHECK_EQ(map_piece(&card, 1, &point), -ENODEV);
	CHECK_EQ(fill_slab(&card, &point), -ENODEV);
	CHECK_EQ(vmkv_device_health(card.device, &health), 0);
	CHECK_EQ(health.lost, 1);
	CHECK_EQ(vmkv_emulator_close(other), 0);
	card_close(&card);
}

static uint32_t dword_at(struct card *card, uint64_t address)
{
	union drm_amdgpu_gem_mmap map = { .in = { 0 } };
	uint32_t handle = buffer_map(card->fd, 4096, AMDGPU_GEM_DOMAIN_GTT, OTHER_VA);
	uint32_t value, *view;
	uint64_t point;

	map.in.handle = handle;
	CHECK_EQ(call(card->fd, DRM_IOCTL_AMDGPU_GEM_MMAP, &map), 0);
	view = mmap(NULL, 4096, PROT_READ, MAP_SHARED, card->fd, (off_t)map.out.addr_ptr);
	CHECK(view != MAP_FAILED);
	CHECK_EQ(card->device->ops->copy(card->device, OTHER_VA, address, 4, &point), 0);
	CHECK_EQ(card->device->ops->wait(card->device, point, UINT64_MAX), 0);
	CHECK_EQ(card->device->ops->outcome(card->device, point), 0);
	value = *view;
	munmap(view, 4096);
	buffer_close(card->fd, handle);
	return value;
}

static void rows_outlive_an_eviction_by_another_file(void)
{
	struct card card = card_open("emulated:gfx1201?vram=64MiB");
	struct vmkv_emulator_stats stats = { .struct_size = sizeof(stats) };
	struct vmkv_slab *slab;
	uint64_t point;
	uint32_t taken;
	int other;

	CHECK_EQ(vmkv_emulator_open(card.emulator, &other), 0);
	CHECK_EQ(map_piece(&card, 0, &point), 0);
	CHECK_EQ(fill_slab(&card, &point), 0);
	CHECK_EQ(card.device->ops->wait(card.device, point, UINT64_MAX), 0);
	taken = buffer_map(other, UINT64_C(60) << 20, AMDGPU_GEM_DOMAIN_VRAM, OTHER_VA);
	CHECK_EQ(vmkv_emulator_stats(card.emulator, &stats), 0);
	CHECK(stats.evictions > 0);
	/* There is no room for more, and none is made. */
	CHECK_EQ(card.device->ops->slab_create(card.device, PIECES * PIECE, &slab), -ENOSPC);
	CHECK_EQ(dword_at(&card, card.address), 7);
	CHECK_EQ(map_piece(&card, 1, &point), 0);
	buffer_close(other, taken);
	CHECK_EQ(dword_at(&card, card.address), 7);
	CHECK_EQ(dword_at(&card, card.address + PIECE), 0);
	CHECK_EQ(card.device->ops->slab_create(card.device, PIECES * PIECE, &slab), 0);
	card.device->ops->slab_destroy(card.device, slab);
	CHECK_EQ(vmkv_emulator_close(other), 0);
	card_close(&card);
}

static void slabs_in_system_memory_are_given_back_for_others(void)
{
	struct card card = card_open("emulated:gfx1201?vram=256MiB&inject=silent-gtt");
	struct vmkv_device_health health = { .struct_size = sizeof(health) };
	struct vmkv_emulator_entry entry = { .struct_size = sizeof(entry) };
	uint64_t point;

	CHECK_EQ(map_piece(&card, 0, &point), 0);
	CHECK_EQ(card.device->ops->wait(card.device, point, UINT64_MAX), 0);
	CHECK_EQ(vmkv_emulator_walk(card.fd, card.address, &entry), 0);
	CHECK_EQ(entry.valid, 1);
	CHECK(entry.physical < UINT64_C(256) << 20);
	CHECK_EQ(vmkv_device_health(card.device, &health), 0);
	CHECK_EQ(health.slabs_refused, 1);
	CHECK_EQ(health.slab_bytes, PIECES * PIECE);
	card_close(&card);
}

static void a_card_that_gives_only_system_memory_has_none(void)
{
	char error[256] = "";
	struct vmkv_device_options options = {
		.struct_size = sizeof(options), .error = error, .error_bytes = sizeof(error),
		.name = "emulated:gfx1201?vram=256MiB&inject=silent-gtt:1",
	};
	struct vmkv_device_health health = { .struct_size = sizeof(health) };
	struct vmkv_device *device;
	struct vmkv_slab *slab;

	CHECK_EQ(vmkv_device_open(&options, &device), 0);
	CHECK_EQ(device->ops->slab_create(device, PIECE, &slab), -ENOSPC);
	CHECK(vmkv_device_error(device, error, sizeof(error)) > 0);
	CHECK(strstr(error, "into system memory 3 times") != NULL);
	CHECK_EQ(vmkv_device_health(device, &health), 0);
	CHECK_EQ(health.slabs_refused, 3);
	CHECK_EQ(health.slab_bytes, 0);
	CHECK_EQ(vmkv_device_close(device), 0);
}

int main(void)
{
	RUN(slabs_in_system_memory_are_given_back_for_others);
	RUN(a_card_that_gives_only_system_memory_has_none);
	RUN(a_card_that_another_file_lost_takes_no_more);
	RUN(rows_outlive_an_eviction_by_another_file);
	RUN(with_engine_commits_nothing_is_mapped_before_the_engine_submits);
	RUN(a_full_ring_is_waited_for_though_a_submission_is_owed);
	return 0;
}
