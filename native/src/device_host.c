/* SPDX-License-Identifier: MIT
 *
 * The process's own address space as a device: memory is a memfd, a mapping is an mmap of a piece
 * of it, and an address with nothing behind it is PROT_NONE. All calls take effect at once, so all
 * points are 0.
 */
#include "device_host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "util.h"

/* Mappings that are left to the rest of the process: libraries, thread stacks. At the kernel's bound
 * even unmapping fails. */
#define RESERVE_VMAS 4096

/* The kernel's default, where /proc doesn't tell. */
#define DEFAULT_MAX_MAP_COUNT 65530

/* ---- the kernel's bound on mappings --------------------------------------------------------- */

static uint64_t max_map_count(void)
{
	unsigned long long count = DEFAULT_MAX_MAP_COUNT;
	FILE *file = fopen("/proc/sys/vm/max_map_count", "re");

	if (file) {
		if (fscanf(file, "%llu", &count) != 1)
			count = DEFAULT_MAX_MAP_COUNT;
		fclose(file);
	}
	return count;
}

static uint64_t count_vmas(void)
{
	char text[8192];
	uint64_t lines = 0;
	ssize_t got;
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	while ((got = read(fd, text, sizeof(text))) > 0)
		for (ssize_t i = 0; i < got; i++)
			lines += text[i] == '\n';
	close(fd);
	return lines;
}

/* The kernel's bound is the process's, so is this count: of the mappings of all host devices, and of
 * their slabs' aliases. */
static _Atomic uint64_t process_mappings;

/* How many more mappings there may be: each can cost two of the kernel's, itself and the gap that it
 * leaves behind it. */
static uint64_t bound_mappings(void)
{
	uint64_t max = max_map_count(), used = count_vmas();
	uint64_t left = max > used ? max - used : 0;
	uint64_t reserve = left / 4 < RESERVE_VMAS ? left / 4 : RESERVE_VMAS;

	return (left - reserve) / 2;
}

void host_share_bound(struct vmkv_device *device)
{
	device->shared_mappings = &process_mappings;
	device->shared_max_mappings = atomic_load(&process_mappings) + bound_mappings();
	device->mappings_hint = "raise it with sysctl vm.max_map_count";
}

__attribute__((cold)) int host_fail_mmap(struct host_device *host, const char *what,
                                         uint64_t address, uint64_t bytes)
{
	int error = errno;
	uint64_t max = max_map_count();

	/* One mmap can need two more than there are. */
	if (error == ENOMEM && count_vmas() + 2 >= max)
		return vmkv_device_fail(&host->base, -ENOSPC,
		                        "cannot %s: the process is at the kernel's bound on mappings, "
		                        "vm.max_map_count=%llu; raise it with: "
		                        "sysctl -w vm.max_map_count=%llu",
		                        what, (unsigned long long)max, 4ULL * max);
	errno = error;
	return vmkv_device_fail(&host->base, -error, "cannot %s: %llu bytes at 0x%llx: %m", what,
	                        (unsigned long long)bytes, (unsigned long long)address);
}

/* ---- addresses and mappings ----------------------------------------------------------------- */

static int host_reserve(struct vmkv_device *device, uint64_t bytes, uint64_t align,
                        uint64_t *address)
{
	uint64_t slack = align > device->info.granule_bytes ? align : 0;
	uint64_t whole, start, begin, end;
	void *mapped;

	if (__builtin_add_overflow(bytes, slack, &whole))
		return vmkv_device_fail(device, -ENOSPC, "cannot reserve %llu bytes of addresses",
		                        (unsigned long long)bytes);
	mapped = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mapped == MAP_FAILED) {
		if (errno == ENOMEM && count_vmas() + 2 < max_map_count())
			return vmkv_device_fail(device, -ENOSPC,
			                        "the process has no %llu bytes of addresses in one piece",
			                        (unsigned long long)whole);
		return host_fail_mmap(host_of(device), "reserve addresses", 0, whole);
	}
	start = (uint64_t)(uintptr_t)mapped;
	begin = slack ? (start + align - 1) & ~(align - 1) : start;
	end = begin + bytes;
	/* What can't be trimmed (at the kernel's bound) stays reserved: addresses, not memory. */
	if (begin > start)
		munmap(mapped, begin - start);
	if (start + whole > end)
		munmap(host_pointer(end), start + whole - end);
	if (host_addresses_note(host_of(device), begin, bytes)) {
		munmap(host_pointer(begin), bytes);
		return -ENOMEM;
	}
	*address = begin;
	return 0;
}

/* Nothing is behind the addresses any more, and they stay ours. */
static bool addresses_clear(uint64_t address, uint64_t bytes)
{
	return mmap(host_pointer(address), bytes, PROT_NONE,
	            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

int host_addresses_note(struct host_device *host, uint64_t address, uint64_t bytes)
{
	struct host_range *range;

	if (!vmkv_device_is_safe(&host->base, VMKV_SAFE_NEVER_REUSE_ADDRESSES))
		return 0;
	range = calloc(1, sizeof(*range));
	if (!range)
		return vmkv_device_fail(&host->base, -ENOMEM, "no host memory for a range's bookkeeping");
	range->offset = address;
	range->slab.bytes = bytes;
	pthread_mutex_lock(&host->file_lock);
	range->next = host->addresses;
	host->addresses = range;
	pthread_mutex_unlock(&host->file_lock);
	return 0;
}

void host_addresses_give(struct host_device *host, uint64_t address, uint64_t bytes)
{
	if (vmkv_device_is_safe(&host->base, VMKV_SAFE_NEVER_REUSE_ADDRESSES))
		addresses_clear(address, bytes);
	else
		munmap(host_pointer(address), bytes);
}

/* Those that were kept from being used again. */
static void addresses_fini(struct host_device *host)
{
	struct host_range *range, *next;

	for (range = host->addresses; range; range = next) {
		next = range->next;
		munmap(host_pointer(range->offset), range->slab.bytes);
		free(range);
	}
}

static void host_release(struct vmkv_device *device, uint64_t address, uint64_t bytes)
{
	host_addresses_give(host_of(device), address, bytes);
}

static int host_map(struct vmkv_device *device, const struct vmkv_map *maps, size_t n,
                    size_t *issued, uint64_t *point)
{
	struct host_device *host = host_of(device);
	size_t i;

	for (i = 0; i < n; i++) {
		uint64_t offset = host_range_of(maps[i].slab)->offset + maps[i].offset;

		if (mmap(host_pointer(maps[i].address), maps[i].bytes, PROT_READ | PROT_WRITE,
		         MAP_SHARED | MAP_FIXED, host->fd, (off_t)offset) == MAP_FAILED)
			break;
	}
	*issued = i;
	if (i == n || (i > 0 && vmkv_device_is_safe(device, VMKV_SAFE_NEVER_REUSE_ADDRESSES)))
		*point = 0;
	if (i < n)
		return host_fail_mmap(host, "map memory", maps[i].address, maps[i].bytes);
	vmkv_device_wait_after_map(device);
	return 0;
}

static int host_unmap(struct vmkv_device *device, const struct vmkv_unmap *unmaps, size_t n,
                      size_t *issued, uint64_t *point)
{
	size_t i;

	/* Not munmap: the addresses would be anybody's. */
	for (i = 0; i < n; i++)
		if (!addresses_clear(unmaps[i].address, unmaps[i].bytes))
			break;
	*issued = i;
	if (i > 0)
		*point = 0;
	if (i < n)
		return host_fail_mmap(host_of(device), "unmap memory", unmaps[i].address,
		                      unmaps[i].bytes);
	*point = 0;
	return 0;
}

static void host_destroy(struct vmkv_device *device)
{
	struct host_device *host = host_of(device);

	addresses_fini(host);
	host_memory_fini(host);
	vmkv_device_fini(device);
	free(host);
}

static int host_health(struct vmkv_device *device, struct vmkv_device_health *ret)
{
	struct host_device *host = host_of(device);

	pthread_mutex_lock(&host->file_lock);
	ret->slab_bytes = host->slab_bytes;
	pthread_mutex_unlock(&host->file_lock);
	return 0;
}

static const struct vmkv_device_ops host_ops = {
	.destroy = host_destroy,
	.reserve = host_reserve,
	.release = host_release,
	.slab_create = host_slab_create,
	.slab_destroy = host_slab_destroy,
	.map = host_map,
	.unmap = host_unmap,
	.fill = host_fill,
	.copy = host_copy,
	.wait = NULL,
	.health = host_health,
};

/* ---- options -------------------------------------------------------------------------------- */

struct host_options {
	uint64_t max_mappings; /* 0: not given */
	uint64_t memory_bytes; /* 0: not given */
	struct vmkv_device_info info; /* the safe modes in it */
};

static int option_set(const char *name, const char *value, struct host_options *options,
                      char *error, size_t error_bytes)
{
	bool memory = !strcmp(name, "memory"), known;
	uint64_t *field = memory ? &options->memory_bytes : &options->max_mappings;
	int rc = vmkv_safe_option(&options->info, name, value, &known, error, error_bytes);

	if (known)
		return rc;
	if (!memory && strcmp(name, "max_mappings"))
		vmkv_text(error, error_bytes,
		          "unknown option \"%.40s\" of device host: it has max_mappings, memory, safe and "
		          "wait_us", name);
	else if (memory && (vmkv_size_parse(value, field) || !*field))
		vmkv_text(error, error_bytes,
		          "memory=%.40s is no size: write bytes, or a number with KiB, MiB, GiB, TiB, kB, "
		          "MB, GB or TB, as in memory=8GiB", value);
	else if (!memory && (value[strspn(value, "0123456789")] || vmkv_size_parse(value, field) ||
	                     !*field))
		vmkv_text(error, error_bytes,
		          "max_mappings=%.40s is no count: write a whole number of at least 1", value);
	else
		return 0;
	return -EINVAL;
}

/* Read "name=value&name=value". */
static int options_parse(const char *text, struct host_options *options, char *error,
                         size_t error_bytes)
{
	struct vmkv_option option;
	int rc = vmkv_option_next(&text, "host", &option, error, error_bytes);

	while (rc > 0) {
		rc = option_set(option.name, option.value, options, error, error_bytes);
		if (!rc)
			rc = vmkv_option_next(&text, "host", &option, error, error_bytes);
	}
	return rc ? rc : vmkv_safe_options_end(&options->info, error, error_bytes);
}

/* Settle the bound on mappings: what the kernel leaves, or less if the options say so. */
static int bound_settle(struct host_options *options, uint64_t *bound, char *error,
                        size_t error_bytes)
{
	uint64_t left = bound_mappings();

	if (left == 0) {
		vmkv_text(error, error_bytes,
		          "no mapping is left to this process: raise the kernel's bound with: "
		          "sysctl -w vm.max_map_count=%llu", 4ULL * max_map_count());
		return -ENODEV;
	}
	if (options->max_mappings > left) {
		vmkv_text(error, error_bytes,
		          "max_mappings=%llu is more than the %llu that vm.max_map_count=%llu leaves",
		          (unsigned long long)options->max_mappings, (unsigned long long)left,
		          (unsigned long long)max_map_count());
		return -EINVAL;
	}
	*bound = options->max_mappings ? options->max_mappings : left;
	return 0;
}

/* ---- open ----------------------------------------------------------------------------------- */

/* A name that opens the same again; it fits, since the numbers have at most 10 and 20 digits. */
static void name_write(char *name, size_t n, const struct host_options *options)
{
	char mappings[48] = "", memory[48] = "", safe[120];

	vmkv_safe_text(&options->info, safe, sizeof(safe));
	if (options->max_mappings)
		vmkv_text(mappings, sizeof(mappings), "&max_mappings=%llu",
		          (unsigned long long)options->max_mappings);
	if (options->memory_bytes)
		vmkv_text(memory, sizeof(memory), "&memory=%llu",
		          (unsigned long long)options->memory_bytes);
	vmkv_text(name, n, "host%s%s%s%s", mappings, memory, *safe ? "&" : "", safe);
	if (name[4])
		name[4] = '?';
}

static void info_write(struct host_device *host, const struct host_options *options, uint64_t bound)
{
	struct vmkv_device_info *info = &host->base.info;
	uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);

	name_write(info->name, sizeof(info->name), options);
	info->granule_bytes = page_bytes;
	info->memory_bytes = options->memory_bytes ? options->memory_bytes
	                                           : page_bytes * (uint64_t)sysconf(_SC_PHYS_PAGES);
	info->max_mappings = bound;
	info->features = VMKV_FEATURE_CPU_ADDRESSES | VMKV_FEATURE_ZEROED_SLABS;
	info->safe = options->info.safe;
	info->wait_after_map_us = options->info.wait_after_map_us;
	host->memory_max_bytes = options->memory_bytes ? options->memory_bytes : UINT64_MAX;
}

int vmkv_device_host_open(const char *options, char *error, size_t error_bytes,
                          struct vmkv_device **ret)
{
	struct host_options given = { 0 };
	struct host_device *host;
	uint64_t bound;
	int rc = options_parse(options, &given, error, error_bytes);

	if (!rc)
		rc = bound_settle(&given, &bound, error, error_bytes);
	if (rc)
		return rc;
	host = calloc(1, sizeof(*host));
	rc = host ? vmkv_device_init(&host->base, &host_ops) : -ENOMEM;
	if (!rc) {
		rc = host_memory_init(host);
		if (rc)
			vmkv_device_fini(&host->base);
	}
	if (rc) {
		free(host);
		errno = -rc;
		vmkv_text(error, error_bytes, "cannot create the host device's memory file: %m");
		return rc;
	}
	info_write(host, &given, bound);
	host_share_bound(&host->base);
	if (given.max_mappings)
		host->base.mappings_hint = NULL;
	*ret = &host->base;
	return 0;
}
