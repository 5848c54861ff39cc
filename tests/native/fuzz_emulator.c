/* SPDX-License-Identifier: MIT
 *
 * A fuzzer of the emulated kernel (libFuzzer's entry): an input is what a program does with a card: files,
 * ioctls by their grammar, submissions and packets. Afterwards all is closed, and nothing may be left.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "vm_parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define STEPS 64 /* of an input, at most */
#define OFTEN 42 /* the ioctls that do something are the first of the table */

/* ---- the card -------------------------------------------------------------------------------- */

static void card_make(struct fuzz *fuzz)
{
	static const char *const models[] = { "gfx1201", "gfx1100", "gfx1030", "gfx942" };
	static const char *const kernels[] = { "6.1", "6.12", "7.2" };
	static const char *const more[] = { "", "", "", "&vm_update=cpu", "&seed=7",
		                            "&inject=transient-enomem:3", "&inject=device-lost:2",
		                            "&inject=vram-stolen:1,silent-gtt",
		                            "&inject=stale-translation,alias-diverges",
		                            "&inject=late-visibility,unmap-ignored&late_us=5",
		                            "&inject=timeline-ignored&kernel=7.2", "&break=clean-split",
		                            "&identity=1&window=64MiB" };
	uint8_t which = fuzz_byte(fuzz), extra = fuzz_byte(fuzz) % 13;
	char spec[200], error[256] = "";
	vmkv_emulator *gpu;
	uint64_t end;

	snprintf(spec, sizeof(spec), "%s?vram=64MiB&gtt=64MiB%s%s%s", models[which % 4],
	         strstr(more[extra], "kernel") ? "" : "&kernel=",
	         strstr(more[extra], "kernel") ? "" : kernels[which / 4 % 3], more[extra]);
	if (vmkv_emulator_create(spec, error, sizeof(error), &gpu))
		fuzz_fail(fuzz, "%s", error);
	fuzz->gpu = (struct emu_gpu *)gpu;
	fuzz->fresh = fuzz_stats(fuzz);
	if (vmkv_emulator_window(gpu, &fuzz->window, &end))
		fuzz->window = FUZZ_WORK_VA;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int plain_call(int fd, unsigned long request, void *argument)
{
	return vmkv_emulator_ioctl(fd, request, argument) < 0 ? -errno : 0;
}

static uint32_t buffer_make(int fd, uint64_t bytes, uint64_t domains, uint64_t flags)
{
	union drm_amdgpu_gem_create args = { .in = { .bo_size = bytes, .domains = domains,
		                                     .domain_flags = flags } };

	return plain_call(fd, DRM_IOCTL_AMDGPU_GEM_CREATE, &args) ? 0 : args.out.handle;
}

static void context_make(int fd)
{
	union drm_amdgpu_ctx args = { .in = { .op = AMDGPU_CTX_OP_ALLOC_CTX } };

	(void)plain_call(fd, DRM_IOCTL_AMDGPU_CTX, &args);
}

/* The buffer of the packets; without it if a fault is injected there. */
static void words_make(struct fuzz_file *file)
{
	union drm_amdgpu_gem_mmap map;
	struct drm_amdgpu_gem_va va = { .operation = AMDGPU_VA_OP_MAP, .va_address = FUZZ_WORK_VA,
		                        .map_size = FUZZ_WORK_BYTES, .flags = 0xe };
	void *words;

	va.handle = buffer_make(file->fd, FUZZ_WORK_BYTES, AMDGPU_GEM_DOMAIN_GTT,
	                        AMDGPU_GEM_CREATE_VM_ALWAYS_VALID);
	map.in.handle = va.handle;
	(void)plain_call(file->fd, DRM_IOCTL_AMDGPU_GEM_VA, &va);
	if (plain_call(file->fd, DRM_IOCTL_AMDGPU_GEM_MMAP, &map))
		return;
	words = mmap(NULL, FUZZ_WORK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd,
	             (off_t)map.out.addr_ptr);
	if (words != MAP_FAILED)
		file->words = words;
}

/* Something of everything, so that small numbers mean something. */
static void file_begin(struct fuzz_file *file)
{
	struct drm_syncobj_create signalled = { .flags = DRM_SYNCOBJ_CREATE_SIGNALED }, fresh = { 0 };

	words_make(file);
	(void)buffer_make(file->fd, 2 << 20, AMDGPU_GEM_DOMAIN_VRAM, 0);
	(void)buffer_make(file->fd, 4096, AMDGPU_GEM_DOMAIN_GTT, 0);
	context_make(file->fd);
	context_make(file->fd);
	(void)plain_call(file->fd, DRM_IOCTL_SYNCOBJ_CREATE, &signalled);
	(void)plain_call(file->fd, DRM_IOCTL_SYNCOBJ_CREATE, &fresh);
	(void)plain_call(file->fd, DRM_IOCTL_SYNCOBJ_CREATE, &fresh);
}

static void file_open(struct fuzz *fuzz, uint32_t i)
{
	struct fuzz_file *file = &fuzz->files[i];
	vmkv_emulator *gpu = (vmkv_emulator *)fuzz->gpu;

	file->primary = fuzz_once_in(fuzz, 3);
	if ((file->primary ? vmkv_emulator_open_primary : vmkv_emulator_open)(gpu, &file->fd))
		fuzz_fail(fuzz, "a file can't be opened");
	file_begin(file);
}

static void file_close(struct fuzz *fuzz, uint32_t i)
{
	struct fuzz_file *file = &fuzz->files[i];

	if (file->words)
		(void)munmap(file->words, FUZZ_WORK_BYTES);
	if (file->fd >= 0 && vmkv_emulator_close(file->fd))
		fuzz_fail(fuzz, "a file can't be closed");
	*file = (struct fuzz_file){ .fd = -1 };
}

/* ---- ioctls ---------------------------------------------------------------------------------- */

static const char *ioctl_choose(struct fuzz *fuzz)
{
	uint32_t which = fuzz_byte(fuzz), count = OFTEN;

	if (which < 200)
		return vmkv_emulator_ioctl_name(which % OFTEN);
	while (vmkv_emulator_ioctl_name(count))
		count++;
	return vmkv_emulator_ioctl_name(fuzz_byte(fuzz) % count);
}

static bool gives_fd(const struct emu_ioctl *ioctl)
{
	return ioctl->handler == emu_prime_handle_to_fd || ioctl->handler == emu_syncobj_handle_to_fd ||
	       ioctl->handler == emu_fence_to_handle;
}

static void fd_keep(struct fuzz *fuzz, int fd)
{
	if (fuzz->fd_count == FUZZ_FDS)
		close(fd);
	else
		fuzz->fds[fuzz->fd_count++] = fd;
}

static void fd_note(struct fuzz *fuzz, const struct fuzz_call *call)
{
	const struct drm_prime_handle *prime = (const void *)call->after;
	const struct drm_syncobj_handle *syncobj = (const void *)call->after;
	const uint32_t *fence = (const void *)call->after, *what = (const uint32_t *)call->before + 6;

	if (call->result < 0)
		fuzz->fds_lost |= call->result == -EFAULT;
	else if (call->ioctl->handler == emu_prime_handle_to_fd)
		fd_keep(fuzz, prime->fd);
	else if (call->ioctl->handler == emu_syncobj_handle_to_fd)
		fd_keep(fuzz, syncobj->fd);
	else if (*what)
		fd_keep(fuzz, (int)*fence);
}

/* Of another size, direction, number or type. */
static unsigned long request_bend(struct fuzz *fuzz, const struct emu_ioctl *ioctl)
{
	unsigned long request = ioctl->request;
	uint32_t how = fuzz_byte(fuzz);

	if (how < 200)
		return request;
	if (how < 216)
		return _IOC(_IOC_DIR(request), 'd', _IOC_NR(request), emu_ioctl_bytes(ioctl, fuzz->gpu->kernel));
	if (how < 232)
		return _IOC(_IOC_DIR(request), 'd', _IOC_NR(request), fuzz_byte(fuzz));
	if (how < 240)
		return _IOC((unsigned)fuzz_byte(fuzz) & 3, 'd', _IOC_NR(request), _IOC_SIZE(request));
	if (how < 248)
		return _IOC(3u, 'd', fuzz_byte(fuzz), fuzz_u32(fuzz) & 0x1ff);
	return fuzz_u32(fuzz);
}

static bool vm_is_ready(const struct fuzz *fuzz, int fd)
{
	struct emu_file *file = emu_file_get(fd);
	bool ready;

	pthread_mutex_lock(&fuzz->gpu->lock);
	ready = emu_vm_is_ready(file->vm);
	pthread_mutex_unlock(&fuzz->gpu->lock);
	emu_file_put(file);
	return ready;
}

/* What of the argument the kernel is told: the rest it takes for zeros. */
static void before_note(struct fuzz_call *call, const void *data)
{
	size_t bytes = _IOC_SIZE(call->request);

	if (call->request & call->ioctl->request & IOC_IN)
		memcpy(call->before, data, bytes < sizeof(call->before) ? bytes : sizeof(call->before));
}

static void ioctl_do(struct fuzz *fuzz, struct fuzz_file *file, const char *name)
{
	const struct emu_ioctl *chosen = emu_ioctl_find_name(name);
	struct fuzz_call call = { .file = file, .request = request_bend(fuzz, chosen) };
	uint32_t room = sizeof(call.after);
	void *data = fuzz_room(fuzz, room);
	bool is_there = !fuzz_once_in(fuzz, 48);

	if (_IOC_TYPE(call.request) == 'd')
		call.ioctl = emu_ioctl_find(fuzz->gpu->kernel, call.request);
	if (_IOC_TYPE(call.request) != 'd' && (call.request & 0xff) > 0x90)
		return; /* all of one kind */
	memset(data, 0, room);
	if (call.ioctl) {
		fuzz_argument(fuzz, call.ioctl->name, data, _IOC_SIZE(call.ioctl->request));
		if (is_there)
			before_note(&call, data);
	}
	call.was = fuzz_stats(fuzz);
	call.was_ready = vm_is_ready(fuzz, file->fd);
	if (vmkv_emulator_ioctl(file->fd, call.request,
	                        is_there ? data : (void *)(uintptr_t)fuzz_nowhere(fuzz)) < 0)
		call.result = -errno;
	memcpy(call.after, data, room);
	if (call.ioctl && gives_fd(call.ioctl)) {
		bool told = is_there && call.request & IOC_OUT && _IOC_SIZE(call.request) >= 12;

		if (told)
			fd_note(fuzz, &call);
		fuzz->fds_lost |= !told;
	}
	/* What lay elsewhere may have been right by chance. */
	if (call.ioctl ? is_there || call.result < 0 : call.result >= 0)
		fuzz_call_check(fuzz, &call);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void fd_close(struct fuzz *fuzz)
{
	uint32_t i;

	if (!fuzz->fd_count)
		return;
	i = fuzz_byte(fuzz) % fuzz->fd_count;
	close(fuzz->fds[i]);
	fuzz->fds[i] = fuzz->fds[--fuzz->fd_count];
}

static void ask(struct fuzz *fuzz, const struct fuzz_file *file)
{
	struct vmkv_emulator_entry entry = { .struct_size = sizeof(entry) };
	char text[4096];
	size_t length;

	switch (fuzz_byte(fuzz) % 4) {
	case 0:
		(void)vmkv_emulator_walk(file->fd, fuzz_address(fuzz), &entry);
		break;
	case 1:
		(void)vmkv_emulator_fdinfo(file->fd, text, sizeof(text), &length);
		break;
	case 2:
		(void)vmkv_emulator_fail((vmkv_emulator *)fuzz->gpu, ioctl_choose(fuzz),
		                         fuzz_byte(fuzz) % 4, ENOMEM);
		break;
	default:
		fd_keep(fuzz, eventfd(0, EFD_CLOEXEC));
	}
}

static void step(struct fuzz *fuzz)
{
	uint8_t what = fuzz_byte(fuzz);
	uint32_t i = (what >> 6) % FUZZ_FILES;
	struct fuzz_file *file = &fuzz->files[i];

	if (file->fd < 0) {
		file_open(fuzz, i);
		return;
	}
	switch (what & 31) {
	case 0:
		file_close(fuzz, i);
		break;
	case 1:
		fd_close(fuzz);
		break;
	case 2:
	case 3:
		ask(fuzz, file);
		break;
	case 4:
	case 5:
	case 6:
	case 7:
	case 8:
	case 9:
		fuzz_packets(fuzz, file);
		break;
	case 10:
		/* A context that had a fault takes no more. */
		(void)plain_call(file->fd, DRM_IOCTL_AMDGPU_CTX,
		                 &(union drm_amdgpu_ctx){ .in = { .op = AMDGPU_CTX_OP_FREE_CTX,
		                                                  .ctx_id = 1 } });
		context_make(file->fd);
		break;
	case 11:
	case 12:
	case 13:
	case 14:
		ioctl_do(fuzz, file, "CS");
		break;
	default:
		ioctl_do(fuzz, file, ioctl_choose(fuzz));
	}
}

/* ---- one input ------------------------------------------------------------------------------- */

/* Memory whose end is that of what can be reached. */
static uint8_t *memory_make(size_t bytes)
{
	uint8_t *memory = mmap(NULL, bytes + 4096, PROT_READ | PROT_WRITE,
	                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED || mprotect(memory + bytes, 4096, PROT_NONE))
		abort();
	return memory;
}

static uint64_t fds_open(void)
{
	uint64_t open = 0;

	for (int fd = 0; fd < 64; fd++)
		open |= (uint64_t)(fcntl(fd, F_GETFD) >= 0) << fd;
	return open;
}

static void fds_check(const struct fuzz *fuzz, uint64_t before)
{
	uint64_t now = fds_open();

	if (now != before && !fuzz->fds_lost)
		fuzz_fail(fuzz, "descriptors are left open: 0x%llx", (unsigned long long)(now & ~before));
	for (int fd = 0; now != before && fd < 256; fd++)
		if (fd >= 64 || !(before >> fd & 1))
			close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static uint8_t *arena, *user;
	struct fuzz fuzz = { .input = data, .left = bytes };
	uint64_t before;

	if (!arena) {
		arena = memory_make(FUZZ_ARENA_BYTES);
		user = memory_make(FUZZ_USER_BYTES);
	}
	before = fds_open();
	fuzz.arena = arena;
	fuzz.user = user;
	for (uint32_t i = 0; i < FUZZ_FILES; i++)
		fuzz.files[i].fd = -1;
	card_make(&fuzz);
	for (uint32_t left = fuzz_byte(&fuzz) % STEPS + 1; left; left--)
		step(&fuzz);
	while (fuzz.fd_count)
		close(fuzz.fds[--fuzz.fd_count]);
	for (uint32_t i = 0; i < FUZZ_FILES; i++)
		file_close(&fuzz, i);
	fuzz_end_check(&fuzz);
	vmkv_emulator_destroy((vmkv_emulator *)fuzz.gpu);
	fuzz.gpu = NULL;
	fds_check(&fuzz, before);
	return 0;
}
