/* Memory that processes and the card share, or that one has after the other let go of it. */
#include "preload_check.h"

/* ---- what /sys tells ------------------------------------------------------------------------- */

static uint64_t told(const char *name)
{
	char path[100], text[40] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/drm/renderD128/device/mem_info_%s", name);
	file = fopen(path, "re");
	REQUIRE(file && fgets(text, sizeof(text), file));
	fclose(file);
	return strtoull(text, NULL, 10);
}

/* What /sys says of the card's memory is so at that time, by whichever way it is opened. */
static void used(void)
{
	int fd = node_open(), directory;
	uint64_t gtt = told("gtt_used");
	union drm_amdgpu_gem_create args = { .in = { .bo_size = 2 * BUFFER_BYTES,
		                                     .domains = AMDGPU_GEM_DOMAIN_GTT } };
	char text[40] = "";

	buffer_create(fd);
	REQUIRE(told("vram_used") == vram_used(fd) && vram_used(fd) >= BUFFER_BYTES);
	REQUIRE(told("vis_vram_used") == vram_used(fd));
	REQUIRE(!ioctl(fd, DRM_IOCTL_AMDGPU_GEM_CREATE, &args));
	REQUIRE(told("gtt_used") == gtt + 2 * BUFFER_BYTES);
	directory = open("/sys/bus/pci/devices/0000:03:00.0", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fd = openat(directory, "mem_info_gtt_used", O_RDONLY | O_CLOEXEC);
	REQUIRE(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
	REQUIRE(strtoull(text, NULL, 10) == gtt + 2 * BUFFER_BYTES && strchr(text, '\n'));
	REQUIRE(openat(directory, "mem_info_gtt_used", O_RDWR) == -1 && errno == EACCES);
}

/* ---- mappings -------------------------------------------------------------------------------- */

static void buffer_close(int fd, uint32_t handle)
{
	struct drm_gem_close args = { .handle = handle };

	REQUIRE(!ioctl(fd, DRM_IOCTL_GEM_CLOSE, &args));
}

/* A mapping keeps what a closed buffer held, in whatever process it is. */
static void closed_mapped(void)
{
	int fd = node_open(), end_pipe[2];
	uint32_t handles[2] = { buffer_create(fd), buffer_create(fd) };
	volatile uint32_t *own = buffer_map(fd, handles[0]), *childs = buffer_map(fd, handles[1]);
	char byte;
	pid_t child;

	own[0] = 11;
	childs[0] = 22;
	REQUIRE(!pipe(end_pipe));
	child = fork();
	if (!child) {
		close(end_pipe[1]);
		REQUIRE(!read(end_pipe[0], &byte, 1));
		REQUIRE(childs[0] == 22);
		_exit(0);
	}
	close(end_pipe[0]);
	munmap((void *)(uintptr_t)childs, BUFFER_BYTES);
	buffer_close(fd, handles[0]);
	buffer_close(fd, handles[1]);
	for (uint32_t i = 0; i < 200; i++) {
		uint32_t handle = buffer_create(fd);
		volatile uint32_t *words = buffer_map(fd, handle);

		words[0] = 33;
		munmap((void *)(uintptr_t)words, BUFFER_BYTES);
		buffer_close(fd, handle);
	}
	REQUIRE(own[0] == 11);
	close(end_pipe[1]);
	child_wait(child, 0);
}

/* ---- processes' own memory ------------------------------------------------------------------- */

/* Memory of the process's own, seen by the card. */
static void userptr(void)
{
	int fd = node_open();
	void *memory = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct drm_amdgpu_gem_userptr args = { .addr = (uintptr_t)memory, .size = 65536,
		                               .flags = AMDGPU_GEM_USERPTR_ANONONLY |
		                                        AMDGPU_GEM_USERPTR_REGISTER |
		                                        AMDGPU_GEM_USERPTR_VALIDATE };

	REQUIRE(!ioctl(fd, DRM_IOCTL_AMDGPU_GEM_USERPTR, &args));
	REQUIRE(args.handle);
	munmap(memory, 65536);
	REQUIRE(ioctl(fd, DRM_IOCTL_AMDGPU_GEM_USERPTR, &args) == -1 && errno == EFAULT);
}

#define USER_BYTES 4096
#define IB_VA (1ULL << 32)

static uint32_t user_buffer(int fd, void *memory)
{
	struct drm_amdgpu_gem_userptr args = { .addr = (uintptr_t)memory, .size = USER_BYTES,
		                               .flags = AMDGPU_GEM_USERPTR_ANONONLY |
		                                        AMDGPU_GEM_USERPTR_REGISTER |
		                                        AMDGPU_GEM_USERPTR_VALIDATE };

	REQUIRE(!ioctl(fd, DRM_IOCTL_AMDGPU_GEM_USERPTR, &args));
	return args.handle;
}

static void va_map(int fd, uint32_t handle, uint64_t address, uint64_t bytes)
{
	struct drm_amdgpu_gem_va args = { .handle = handle, .operation = AMDGPU_VA_OP_MAP, .flags = 0xe,
		                          .va_address = address, .map_size = bytes };

	REQUIRE(!ioctl(fd, DRM_IOCTL_AMDGPU_GEM_VA, &args));
}

/* Run what is at IB_VA on an SDMA engine. */
static void ib_run(int fd, uint32_t dwords, const struct drm_amdgpu_bo_list_entry *buffers, uint32_t n)
{
	union drm_amdgpu_ctx context = { .in = { .op = AMDGPU_CTX_OP_ALLOC_CTX } };
	struct drm_amdgpu_cs_chunk_ib ib = { .va_start = IB_VA, .ib_bytes = 4 * dwords,
		                             .ip_type = AMDGPU_HW_IP_DMA };
	struct drm_amdgpu_bo_list_in list = { .operation = ~0U, .list_handle = ~0U, .bo_number = n,
		                              .bo_info_size = sizeof(*buffers),
		                              .bo_info_ptr = (uintptr_t)buffers };
	struct drm_amdgpu_cs_chunk chunks[] = {
		{ AMDGPU_CHUNK_ID_IB, sizeof(ib) / 4, (uintptr_t)&ib },
		{ AMDGPU_CHUNK_ID_BO_HANDLES, sizeof(list) / 4, (uintptr_t)&list },
	};
	uint64_t pointers[] = { (uintptr_t)&chunks[0], (uintptr_t)&chunks[1] };
	union drm_amdgpu_cs cs = { .in = { .num_chunks = 2, .chunks = (uintptr_t)pointers } };
	union drm_amdgpu_wait_cs wait = { .in = { .timeout = UINT64_MAX, .ip_type = AMDGPU_HW_IP_DMA } };

	REQUIRE(!ioctl(fd, DRM_IOCTL_AMDGPU_CTX, &context));
	cs.in.ctx_id = wait.in.ctx_id = context.out.alloc.ctx_id;
	REQUIRE(!ioctl(fd, DRM_IOCTL_AMDGPU_CS, &cs));
	wait.in.handle = cs.out.handle;
	REQUIRE(!ioctl(fd, DRM_IOCTL_AMDGPU_WAIT_CS, &wait));
	REQUIRE(!wait.out.status);
}

/* Each is the memory of the process that made it, though another one has something else there. */
static void userptr_of_two(void)
{
	int fd = node_open(), told_pipe[2], end_pipe[2];
	volatile uint32_t *memory = mmap(NULL, USER_BYTES, PROT_READ | PROT_WRITE,
	                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct drm_amdgpu_bo_list_entry buffers[3] = { { 0 } };
	volatile uint32_t *ib;
	pid_t child;

	buffers[0].bo_handle = buffer_create(fd);
	ib = buffer_map(fd, buffers[0].bo_handle);
	va_map(fd, buffers[0].bo_handle, IB_VA, BUFFER_BYTES);
	memory[0] = 11;
	buffers[1].bo_handle = user_buffer(fd, (void *)(uintptr_t)memory);
	REQUIRE(!pipe(told_pipe) && !pipe(end_pipe));
	child = fork();
	if (!child) {
		uint32_t handle = user_buffer(fd, (void *)(uintptr_t)memory);

		memory[0] = 22;
		close(end_pipe[1]);
		REQUIRE(write(told_pipe[1], &handle, sizeof(handle)) == sizeof(handle));
		REQUIRE(!read(end_pipe[0], &handle, 1));
		REQUIRE(memory[1] == 22);
		_exit(0);
	}
	close(end_pipe[0]);
	REQUIRE(read(told_pipe[0], &buffers[2].bo_handle, sizeof(uint32_t)) == sizeof(uint32_t));
	for (uint32_t i = 0; i < 2; i++) {
		uint64_t user = IB_VA + (i + 1) * BUFFER_BYTES;
		const uint32_t copy[7] = { 1, 3, 0, (uint32_t)user, (uint32_t)(user >> 32),
			                   (uint32_t)user + 4, (uint32_t)(user >> 32) };

		va_map(fd, buffers[i + 1].bo_handle, user, USER_BYTES);
		for (int j = 0; j < 7; j++)
			ib[7 * i + (uint32_t)j] = copy[j];
	}
	ib_run(fd, 16, buffers, 3);
	REQUIRE(memory[1] == 11);
	close(end_pipe[1]);
	child_wait(child, 0);
}

int main(int argc, char **argv)
{
	static const struct check checks[] = {
		{ "used", used },
		{ "closed-mapped", closed_mapped },
		{ "userptr", userptr },
		{ "userptr-of-two", userptr_of_two },
	};

	return check_run(checks, sizeof(checks) / sizeof(checks[0]), argc == 2 ? argv[1] : NULL);
}
