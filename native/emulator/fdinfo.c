/* SPDX-License-Identifier: MIT
 *
 * What /proc/PID/fdinfo/FD says of a DRM file, as far as it is the driver's: each kernel in its own way.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "entry.h"

#define KIB 1024

enum region { VRAM, GTT, CPU, GDS, GWS, OA, DOORBELL, REGIONS };

static const char *const region_names[REGIONS] = { "vram", "gtt", "cpu", "gds", "gws", "oa", "doorbell" };

struct usage {
	/* Of buffers that want to be there ... */
	uint64_t total[REGIONS], shared[REGIONS];
	/* ... and of those that are. */
	uint64_t resident[REGIONS], resident_shared[REGIONS], purgeable[REGIONS];
	uint64_t evicted; /* that want to be in VRAM and aren't */
};

/* ---- counting -------------------------------------------------------------------------------- */

static enum region region_of(uint32_t domains)
{
	if (domains & AMDGPU_GEM_DOMAIN_VRAM)
		return VRAM;
	if (domains & AMDGPU_GEM_DOMAIN_GTT)
		return GTT;
	if (domains & AMDGPU_GEM_DOMAIN_GDS)
		return GDS;
	if (domains & AMDGPU_GEM_DOMAIN_GWS)
		return GWS;
	return domains & AMDGPU_GEM_DOMAIN_OA ? OA : CPU;
}

static enum region place_of(const struct emu_bo *bo)
{
	if (bo->heap == EMU_HEAP_VRAM)
		return VRAM;
	if (bo->heap == EMU_HEAP_GTT)
		return GTT;
	return bo->onchip ? region_of(bo->preferred_domains) : CPU;
}

static void usage_add(struct usage *usage, const struct emu_bo *bo)
{
	bool is_shared = bo->handle_count > 1 || bo->dmabuf;
	enum region wanted = region_of(emu_bo_told_domains(bo)), is = place_of(bo);

	usage->total[wanted] += bo->bytes;
	usage->resident[is] += bo->bytes;
	if (is_shared) {
		usage->shared[wanted] += bo->bytes;
		usage->resident_shared[is] += bo->bytes;
	}
	if (bo->flags & AMDGPU_GEM_CREATE_DISCARDABLE)
		usage->purgeable[is] += bo->bytes;
	if (wanted == VRAM && is != VRAM)
		usage->evicted += bo->bytes;
}

/* Each buffer once, however many handles it has here; and the page tables. */
static void usage_count(struct emu_file *file, struct usage *usage)
{
	const struct emu_handle *handle;
	uint64_t telling = ++file->vm->tellings;

	memset(usage, 0, sizeof(*usage));
	for (uint32_t id = 1; (handle = emu_ids_next(&file->handles, &id)); id++) {
		if (handle->bo_va->told == telling)
			continue;
		handle->bo_va->told = telling;
		usage_add(usage, handle->bo);
	}
	usage->total[VRAM] += file->vm->page_table_bytes;
	usage->resident[VRAM] += file->vm->page_table_bytes;
}

/* ---- text ------------------------------------------------------------------------------------ */

struct text {
	char *at;
	size_t bytes, length;
};

static void add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct text *text, const char *format, ...)
{
	size_t room = text->length < text->bytes ? text->bytes - text->length : 0;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(room ? text->at + text->length : NULL, room, format, args);
	va_end(args);
	if (n > 0)
		text->length += (size_t)n;
}

static void kib_add(struct text *text, const char *key, uint64_t bytes)
{
	add(text, "%s\t%llu KiB\n", key, (unsigned long long)bytes / KIB);
}

static void memory_add(struct text *text, const struct usage *usage)
{
	kib_add(text, "drm-memory-vram:", usage->resident[VRAM]);
	kib_add(text, "drm-memory-gtt: ", usage->resident[GTT]);
	kib_add(text, "drm-memory-cpu: ", usage->resident[CPU]);
}

/* All VRAM can be reached by the CPU. */
static void extra_add(struct text *text, const struct usage *usage)
{
	kib_add(text, "amd-memory-visible-vram:", usage->resident[VRAM]);
	kib_add(text, "amd-evicted-vram:", usage->evicted);
	kib_add(text, "amd-evicted-visible-vram:", 0);
	kib_add(text, "amd-requested-vram:", usage->total[VRAM]);
	kib_add(text, "amd-requested-visible-vram:", 0);
	kib_add(text, "amd-requested-gtt:", usage->total[GTT]);
	kib_add(text, "drm-shared-vram:", usage->resident_shared[VRAM]);
	kib_add(text, "drm-shared-gtt:", usage->resident_shared[GTT]);
	kib_add(text, "drm-shared-cpu:", usage->resident_shared[CPU]);
}

/* In the largest unit that divides it. */
static void size_add(struct text *text, const char *what, enum region region, uint64_t bytes)
{
	static const char *const units[] = { "", " KiB", " MiB" };
	uint32_t unit = 0;

	for (; unit < 2 && bytes && bytes % KIB == 0; unit++)
		bytes /= KIB;
	add(text, "drm-%s-%s:\t%llu%s\n", what, region_names[region], (unsigned long long)bytes,
	    units[unit]);
}

static void regions_add(struct text *text, const struct usage *usage)
{
	for (enum region i = 0; i < REGIONS; i++) {
		size_add(text, "total", i, usage->total[i]);
		size_add(text, "shared", i, usage->shared[i]);
		size_add(text, "resident", i, usage->resident[i]);
		size_add(text, "purgeable", i, usage->purgeable[i]);
	}
	memory_add(text, usage);
	kib_add(text, "amd-evicted-vram:", usage->evicted);
	kib_add(text, "amd-requested-vram:", usage->total[VRAM]);
	kib_add(text, "amd-requested-gtt:", usage->total[GTT]);
}

static void engines_add(struct text *text, const struct emu_file *file)
{
	static const char *const names[] = { "gfx", "compute", "dma" };

	for (uint32_t ip = 0; ip < sizeof(names) / sizeof(names[0]); ip++)
		if (file->engine_ns[ip])
			add(text, "drm-engine-%s:\t%llu ns\n", names[ip],
			    (unsigned long long)file->engine_ns[ip]);
}

static void head_add(struct text *text, const struct emu_file *file)
{
	unsigned long long id = file->id;

	if (file->gpu->kernel->fdinfo == EMU_FDINFO_6_1) {
		add(text, "pasid:\t%llu\ndrm-driver:\tamdgpu\ndrm-pdev:\t" VMKV_EMULATOR_PCI
		    "\ndrm-client-id:\t%llu\n", id, id);
		return;
	}
	add(text, "drm-driver:\tamdgpu\ndrm-client-id:\t%llu\ndrm-pdev:\t" VMKV_EMULATOR_PCI "\n", id);
	if (file->client_name)
		add(text, "drm-client-name:\t%s\n", file->client_name);
	add(text, "pasid:\t%llu\n", id);
}

size_t emu_fdinfo(struct emu_file *file, char *to, size_t bytes)
{
	struct text text = { to, bytes, 0 };
	struct usage usage;

	if (to && bytes)
		*to = '\0';
	pthread_mutex_lock(&file->gpu->lock);
	emu_memory_sweep(file->gpu);
	usage_count(file, &usage);
	head_add(&text, file);
	if (file->gpu->kernel->fdinfo == EMU_FDINFO_7_2) {
		regions_add(&text, &usage);
	} else {
		memory_add(&text, &usage);
		if (file->gpu->kernel->fdinfo == EMU_FDINFO_6_12)
			extra_add(&text, &usage);
	}
	engines_add(&text, file);
	pthread_mutex_unlock(&file->gpu->lock);
	return text.length;
}

VMKV_API int vmkv_emulator_fdinfo(int fd, char *text, size_t text_bytes, size_t *length)
{
	struct emu_file *file = emu_file_get(fd);

	if (!file)
		return -EBADF;
	*length = emu_fdinfo(file, text, text_bytes);
	emu_file_put(file);
	return 0;
}
