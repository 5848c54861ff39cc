/* SPDX-License-Identifier: MIT
 *
 * Cards, from the outside: making and taking away, opening and closing, and what tests ask of them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "entry.h"
#include "util.h"

/* ---- texts ----------------------------------------------------------------------------------- */

/* Not the card's lock, which who refuses something may hold or not. */
static pthread_mutex_t error_lock = PTHREAD_MUTEX_INITIALIZER;

static void error_set(struct emu_gpu *gpu, const char *format, va_list args)
{
	pthread_mutex_lock(&error_lock);
	vmkv_text_v(gpu->error, sizeof(gpu->error), format, args);
	pthread_mutex_unlock(&error_lock);
}

void emu_error_set(struct emu_gpu *gpu, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	error_set(gpu, format, args);
	va_end(args);
}

int emu_refuse(struct emu_gpu *gpu, int error, const char *format, ...)
{
	va_list args;

	__atomic_fetch_add(&gpu->refused, 1, __ATOMIC_RELAXED);
	va_start(args, format);
	error_set(gpu, format, args);
	va_end(args);
	return error;
}

VMKV_API size_t vmkv_emulator_error(vmkv_emulator *emulator, char *text, size_t text_bytes)
{
	struct emu_gpu *gpu = (struct emu_gpu *)emulator;
	size_t length;

	pthread_mutex_lock(&error_lock);
	length = strlen(gpu->error);
	if (text && text_bytes)
		snprintf(text, text_bytes, "%s", gpu->error);
	pthread_mutex_unlock(&error_lock);
	return length;
}

/* ---- making a card --------------------------------------------------------------------------- */

static int lock_init(struct emu_gpu *gpu)
{
	int err = emu_condition_init(&gpu->changed);

	if (err)
		return err;
	err = pthread_mutex_init(&gpu->lock, NULL);
	if (err)
		pthread_cond_destroy(&gpu->changed);
	return -err;
}

static void lock_fini(struct emu_gpu *gpu)
{
	pthread_mutex_destroy(&gpu->lock);
	pthread_cond_destroy(&gpu->changed);
}

/* Lines are appended whole, so that cards may share a file; the last card made empties it. */
static int trace_open(struct emu_gpu *gpu)
{
	int fd, err;

	if (!gpu->options.trace[0])
		return 0;
	fd = open(gpu->options.trace, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
	if (fd < 0)
		return -errno;
	gpu->trace = fdopen(fd, "w");
	if (!gpu->trace) {
		err = -errno;
		close(fd);
		return err;
	}
	setvbuf(gpu->trace, NULL, _IOLBF, 1 << 16);
	return 0;
}

static void trace_close(struct emu_gpu *gpu)
{
	if (gpu->trace)
		fclose(gpu->trace);
}

static int state_init(struct emu_gpu *gpu)
{
	int err;

	pthread_mutex_lock(&gpu->lock);
	err = emu_memory_init(gpu);
	if (err)
		goto out;
	err = emu_jobs_init(gpu);
	if (err)
		goto memory;
	err = emu_identity_init(gpu);
	if (err)
		goto jobs;
	err = emu_inject_init(gpu);
	if (!err)
		goto out;
	emu_identity_fini(gpu);
jobs:
	emu_jobs_fini(gpu);
memory:
	emu_memory_fini(gpu);
out:
	pthread_mutex_unlock(&gpu->lock);
	return err;
}

static void state_fini(struct emu_gpu *gpu)
{
	pthread_mutex_lock(&gpu->lock);
	emu_identity_fini(gpu);
	emu_jobs_fini(gpu);
	emu_inject_fini(gpu);
	emu_memory_fini(gpu);
	pthread_mutex_unlock(&gpu->lock);
}

static int gpu_init(struct emu_gpu *gpu, char *error, size_t error_bytes)
{
	int err = lock_init(gpu);

	if (err)
		return err;
	err = trace_open(gpu);
	if (err) {
		vmkv_text(error, error_bytes, "emulated card: can't write the trace %s: %s",
		          gpu->options.trace, strerror(-err));
		lock_fini(gpu);
		return err;
	}
	err = state_init(gpu);
	if (!err)
		return 0;
	vmkv_text(error, error_bytes,
	          "emulated card: no memory file of %llu + %llu bytes%s on this machine: %s",
	          (unsigned long long)gpu->options.vram_bytes,
	          (unsigned long long)gpu->options.gtt_bytes,
	          gpu->options.identity ? ", or no identity window," : "", strerror(-err));
	trace_close(gpu);
	lock_fini(gpu);
	return err;
}

VMKV_API int vmkv_emulator_create(const char *spec, char *error, size_t error_bytes,
                                  vmkv_emulator **ret)
{
	struct emu_gpu *gpu = calloc(1, sizeof(*gpu));
	int err;

	if (!gpu)
		return -ENOMEM;
	err = emu_options_parse(spec, &gpu->options, error, error_bytes);
	if (!err) {
		gpu->model = gpu->options.model;
		gpu->kernel = gpu->options.kernel;
		emu_list_init(&gpu->link);
		emu_list_init(&gpu->files);
		err = gpu_init(gpu, error, error_bytes);
	}
	if (err) {
		free(gpu);
		return err;
	}
	emu_gpu_register(gpu);
	*ret = (vmkv_emulator *)gpu;
	return 0;
}

VMKV_API void vmkv_emulator_destroy(vmkv_emulator *emulator)
{
	struct emu_gpu *gpu = (struct emu_gpu *)emulator;

	if (!gpu || gpu->process != getpid())
		return;
	vmkv_emulator_resume(emulator); /* files wait for their jobs */
	emu_gpu_unregister(gpu);
	state_fini(gpu);
	trace_close(gpu);
	lock_fini(gpu);
	free(gpu);
}

/* ---- files ----------------------------------------------------------------------------------- */

VMKV_API int vmkv_emulator_open(vmkv_emulator *emulator, int *fd)
{
	return emu_file_open((struct emu_gpu *)emulator, false, fd);
}

VMKV_API int vmkv_emulator_open_primary(vmkv_emulator *emulator, int *fd)
{
	return emu_file_open((struct emu_gpu *)emulator, true, fd);
}

VMKV_API int vmkv_emulator_close(int fd)
{
	struct emu_file *file = emu_file_get(fd);

	if (!file && errno == ENOTTY)
		return -EBADF;
	close(fd);
	if (!file)
		return 0;
	emu_file_retire(file);
	emu_file_put(file);
	return 0;
}

VMKV_API vmkv_emulator *vmkv_emulator_of(int fd)
{
	struct emu_file *file = emu_file_get(fd);
	struct emu_gpu *gpu = file ? file->gpu : NULL;

	if (file)
		emu_file_put(file);
	return (vmkv_emulator *)gpu;
}

/* ---- asking and steering --------------------------------------------------------------------- */

VMKV_API int vmkv_emulator_window(const vmkv_emulator *emulator, uint64_t *begin, uint64_t *end)
{
	const struct emu_gpu *gpu = (const struct emu_gpu *)emulator;

	if (gpu->window_begin == gpu->window_end)
		return -ENOENT;
	*begin = gpu->window_begin;
	*end = gpu->window_end;
	return 0;
}

#define AMD_VENDOR_ID 0x1002

/* The board is AMD's own, whose numbers are the card's. */
VMKV_API int vmkv_emulator_identify(const vmkv_emulator *emulator,
                                    struct vmkv_emulator_identity *ret)
{
	const struct emu_gpu *gpu = (const struct emu_gpu *)emulator;
	struct vmkv_emulator_identity identity = {
		.struct_size = sizeof(identity),
		.vendor_id = AMD_VENDOR_ID,
		.device_id = gpu->model->device_id,
		.subsystem_vendor_id = AMD_VENDOR_ID,
		.subsystem_device_id = gpu->model->device_id,
		.revision = gpu->model->revision,
		.drm_minor = gpu->kernel->drm_minor,
		.vram_bytes = gpu->options.vram_bytes,
		.gtt_bytes = gpu->options.gtt_bytes,
		.pci_slot = VMKV_EMULATOR_PCI,
	};

	return vmkv_struct_out(ret, &identity, sizeof(identity));
}

static void paused_set(struct emu_gpu *gpu, bool paused)
{
	pthread_mutex_lock(&gpu->lock);
	gpu->jobs.paused = paused;
	pthread_cond_broadcast(&gpu->changed);
	pthread_mutex_unlock(&gpu->lock);
}

VMKV_API void vmkv_emulator_pause(vmkv_emulator *emulator)
{
	paused_set((struct emu_gpu *)emulator, true);
}

VMKV_API void vmkv_emulator_resume(vmkv_emulator *emulator)
{
	paused_set((struct emu_gpu *)emulator, false);
}

VMKV_API int vmkv_emulator_fail(vmkv_emulator *emulator, const char *ioctl, uint64_t n, int error)
{
	struct emu_gpu *gpu = (struct emu_gpu *)emulator;
	const struct emu_ioctl *found = emu_ioctl_find_name(ioctl);
	struct emu_ioctl_count *count;

	if (!found || (n && error <= 0))
		return -EINVAL;
	pthread_mutex_lock(&gpu->lock);
	count = &gpu->ioctls[emu_ioctl_index(found)];
	count->fail_at = n ? count->calls + n : 0;
	count->fail_error = error;
	pthread_mutex_unlock(&gpu->lock);
	return 0;
}

VMKV_API int vmkv_emulator_count(vmkv_emulator *emulator, const char *ioctl, uint32_t operation,
                                 uint64_t *ret)
{
	struct emu_gpu *gpu = (struct emu_gpu *)emulator;
	const struct emu_ioctl *found = emu_ioctl_find_name(ioctl);
	const struct emu_ioctl_count *count;

	if (!found)
		return -EINVAL;
	pthread_mutex_lock(&gpu->lock);
	count = &gpu->ioctls[emu_ioctl_index(found)];
	if (operation == UINT32_MAX)
		*ret = count->calls;
	else if (operation < sizeof(count->by_operation) / sizeof(count->by_operation[0]))
		*ret = count->by_operation[operation];
	else
		*ret = 0;
	pthread_mutex_unlock(&gpu->lock);
	return 0;
}

static void stats_add_file(struct vmkv_emulator_stats *stats, const struct emu_file *file)
{
	stats->files++;
	stats->handles += file->handles.used;
	stats->syncobjs += file->syncobjs.used;
	stats->contexts += file->contexts.used;
	stats->buffer_lists += file->bo_lists.used;
	if (file->vm) /* it isn't being released */
		stats->mappings += file->vm->mapping_count;
}

VMKV_API int vmkv_emulator_stats(vmkv_emulator *emulator, struct vmkv_emulator_stats *ret)
{
	struct emu_gpu *gpu = (struct emu_gpu *)emulator;
	struct vmkv_emulator_stats stats;

	emu_files_sweep(gpu);
	pthread_mutex_lock(&gpu->lock);
	emu_memory_sweep(gpu);
	stats = gpu->counts;
	stats.refused = __atomic_load_n(&gpu->refused, __ATOMIC_RELAXED);
	stats.struct_size = sizeof(stats);
	stats.buffers = gpu->memory.buffer_count;
	stats.fences = gpu->jobs.fence_count;
	stats.page_table_bytes = gpu->memory.page_table_bytes;
	stats.vram_bytes = gpu->memory.heaps[EMU_HEAP_VRAM].bytes;
	stats.vram_used_bytes = gpu->memory.heaps[EMU_HEAP_VRAM].used_bytes;
	stats.gtt_bytes = gpu->memory.heaps[EMU_HEAP_GTT].bytes;
	stats.gtt_used_bytes = gpu->memory.heaps[EMU_HEAP_GTT].used_bytes;
	EMU_FOR_EACH(item, &gpu->files)
		stats_add_file(&stats, EMU_ENTRY(item, struct emu_file, link));
	pthread_mutex_unlock(&gpu->lock);
	return vmkv_struct_out(ret, &stats, sizeof(stats));
}
