/* SPDX-License-Identifier: MIT
 *
 * The host device's memory: one memfd. A slab is a range of it with a shared mapping of its own,
 * the alias; a slab's range is punched out of the file when it is given back, so that its memory
 * returns to the system, and used again for later slabs.
 */
#include "device_host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- the file ------------------------------------------------------------------------------- */

int host_memory_init(struct host_device *host)
{
	int error = pthread_mutex_init(&host->file_lock, NULL);

	if (error)
		return -error;
	host->fd = memfd_create("vmkv", MFD_CLOEXEC);
	if (host->fd < 0) {
		error = errno;
		pthread_mutex_destroy(&host->file_lock);
		return -error;
	}
	return 0;
}

void host_memory_fini(struct host_device *host)
{
	struct host_range *range, *next;

	for (range = host->free_ranges; range; range = next) {
		next = range->next;
		free(range);
	}
	close(host->fd);
	pthread_mutex_destroy(&host->file_lock);
}

/* The file has no memory where nothing was written, so it grows by much at a time: a slab then costs
 * one system call, the mmap of its alias. */
static int file_extend(struct host_device *host, uint64_t bytes, uint64_t *offset)
{
	const uint64_t much = UINT64_C(1) << 30;
	struct rlimit limit = { .rlim_cur = RLIM_INFINITY };
	uint64_t end, size;

	if (__builtin_add_overflow(host->file_bytes, bytes, &end) || end > INT64_MAX - much)
		return -EFBIG;
	if (end > host->file_size) {
		size = (end + much - 1) / much * much;
		/* Past this limit the kernel would send a signal that ends the process. */
		getrlimit(RLIMIT_FSIZE, &limit);
		if (size > limit.rlim_cur)
			size = end;
		if (end > limit.rlim_cur)
			return -EFBIG;
		if (ftruncate(host->fd, (off_t)size))
			return -errno;
		host->file_size = size;
	}
	*offset = host->file_bytes;
	host->file_bytes = end;
	return 0;
}

/* Find bytes in the file, first among the free ranges. pre: file_lock is held. */
static int file_take(struct host_device *host, uint64_t bytes, uint64_t *offset)
{
	struct host_range **link = &host->free_ranges, *range;

	while (*link && (*link)->slab.bytes < bytes)
		link = &(*link)->next;
	range = *link;
	if (!range)
		return file_extend(host, bytes, offset);
	*offset = range->offset;
	range->offset += bytes;
	range->slab.bytes -= bytes;
	if (range->slab.bytes == 0) {
		*link = range->next;
		free(range);
	}
	return 0;
}

/* Put a range among the free ones, joined with those that it touches. pre: file_lock is held. */
static void file_give(struct host_device *host, struct host_range *range)
{
	struct host_range *before = NULL, *after = host->free_ranges;

	while (after && after->offset < range->offset) {
		before = after;
		after = after->next;
	}
	range->next = after;
	if (after && range->offset + range->slab.bytes == after->offset) {
		range->slab.bytes += after->slab.bytes;
		range->next = after->next;
		free(after);
	}
	if (!before) {
		host->free_ranges = range;
		return;
	}
	before->next = range;
	if (before->offset + before->slab.bytes == range->offset) {
		before->slab.bytes += range->slab.bytes;
		before->next = range->next;
		free(range);
	}
}

/* ---- slabs ---------------------------------------------------------------------------------- */

/* Take bytes of what the device may use, with a range of the file for them. */
static int memory_take(struct host_device *host, uint64_t bytes, uint64_t *offset)
{
	uint64_t left;
	int error;

	pthread_mutex_lock(&host->file_lock);
	left = host->memory_max_bytes - host->slab_bytes;
	error = bytes > left ? -ENOSPC : file_take(host, bytes, offset);
	if (!error)
		host->slab_bytes += bytes;
	pthread_mutex_unlock(&host->file_lock);
	if (!error)
		return 0;
	if (bytes > left)
		return vmkv_device_fail(&host->base, -ENOSPC,
		                        "no memory for a slab of %llu bytes: %llu of memory=%llu are left",
		                        (unsigned long long)bytes, (unsigned long long)left,
		                        (unsigned long long)host->memory_max_bytes);
	errno = -error;
	return vmkv_device_fail(&host->base, error == -EFBIG ? -ENOSPC : error,
	                        "no memory for a slab of %llu bytes: cannot extend the memory file: %m",
	                        (unsigned long long)bytes);
}

static void memory_give(struct host_device *host, struct host_range *range)
{
	pthread_mutex_lock(&host->file_lock);
	host->slab_bytes -= range->slab.bytes;
	file_give(host, range);
	pthread_mutex_unlock(&host->file_lock);
}

/* pre: slab.bytes and offset are set. */
static int alias_create(struct host_device *host, struct host_range *range)
{
	uint64_t bytes = range->slab.bytes;
	void *alias;
	int error;

	if (vmkv_device_is_safe(&host->base, VMKV_SAFE_NO_ALIAS))
		return 0;
	if (vmkv_device_take_shared(&host->base, 1))
		return vmkv_device_fail(&host->base, -EMLINK,
		                        "no mapping is left for a slab's alias: the process is near "
		                        "the kernel's bound, vm.max_map_count");
	alias = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, host->fd, (off_t)range->offset);
	if (alias == MAP_FAILED) {
		error = host_fail_mmap(host, "map a slab's alias", 0, bytes);
		vmkv_device_give_shared(&host->base, 1);
		return error == -ENOSPC ? -EMLINK : error;
	}
	range->slab.alias = (uint64_t)(uintptr_t)alias;
	error = host_addresses_note(host, range->slab.alias, bytes);
	if (error) {
		munmap(alias, bytes);
		vmkv_device_give_shared(&host->base, 1);
		return error;
	}
	vmkv_device_wait_after_map(&host->base);
	return 0;
}

int host_slab_create(struct vmkv_device *device, uint64_t bytes, struct vmkv_slab **ret)
{
	struct host_device *host = host_of(device);
	struct host_range *range = calloc(1, sizeof(*range));
	int error;

	if (!range)
		return vmkv_device_fail(device, -ENOMEM, "no host memory for a slab's bookkeeping");
	error = memory_take(host, bytes, &range->offset);
	if (error) {
		free(range);
		return error;
	}
	range->slab.bytes = bytes;
	error = alias_create(host, range);
	if (error) {
		memory_give(host, range);
		return error;
	}
	*ret = &range->slab;
	return 0;
}

void host_slab_destroy(struct vmkv_device *device, struct vmkv_slab *slab)
{
	struct host_device *host = host_of(device);
	struct host_range *range = host_range_of(slab);

	/* If it fails (at the kernel's bound), addresses are lost, but no memory. */
	if (slab->alias) {
		host_addresses_give(host, slab->alias, slab->bytes);
		vmkv_device_give_shared(device, 1);
	}
	if (!fallocate(host->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)range->offset,
	               (off_t)slab->bytes)) {
		memory_give(host, range);
		return;
	}
	/* The range isn't zero then, as a new slab's must be: don't use it again. */
	pthread_mutex_lock(&host->file_lock);
	host->slab_bytes -= slab->bytes;
	pthread_mutex_unlock(&host->file_lock);
	free(range);
}

/* ---- fill ----------------------------------------------------------------------------------- */

static void fill_words(uint32_t *words, uint64_t bytes, uint32_t value)
{
	for (uint64_t i = 0; i < bytes / 4; i++)
		words[i] = value;
}

/* Zero a slab's range, but for blocks that were never touched: those are zero, and writing to them
 * would take memory. SEEK_HOLE would tell how far the data goes, but walks all of it, however far
 * beyond the range; so zero a block where data begins, and ask again. */
static int zero_slab(struct host_device *host, const struct vmkv_fill *fill)
{
	const off_t block = 64 << 10;
	char *alias = host_pointer(fill->slab->alias);
	off_t base = (off_t)host_range_of(fill->slab)->offset;
	off_t at = base + (off_t)fill->offset, end = at + (off_t)fill->bytes;

	while (at < end) {
		/* lseek's results count, not the file's position, which threads share. */
		at = lseek(host->fd, at, SEEK_DATA);
		if (at < 0 && errno == ENXIO)
			break;
		if (at < 0)
			return vmkv_device_fail(&host->base, -errno, "cannot look for data in a slab: %m");
		if (at >= end)
			break;

		off_t next = at - at % block + block < end ? at - at % block + block : end;

		memset(alias + (at - base), 0, (size_t)(next - at));
		at = next;
	}
	return 0;
}

/* process_vm_writev reports an address with nothing behind it, where a plain store would end the
 * process. A transfer that meets one stops short, and the next one fails. */
static int fill_address(struct host_device *host, const struct vmkv_fill *fill)
{
	uint32_t pattern[4096];
	struct iovec local[64], remote;
	uint64_t bytes = fill->bytes < sizeof(pattern) ? fill->bytes : sizeof(pattern);
	uint64_t at = 0;
	pid_t self = getpid();

	fill_words(pattern, bytes, fill->value);
	for (size_t i = 0; i < 64; i++)
		local[i] = (struct iovec){ .iov_base = pattern, .iov_len = bytes };
	while (at < fill->bytes) {
		uint64_t left = fill->bytes - at;
		ssize_t done;

		remote.iov_base = host_pointer(fill->offset + at);
		remote.iov_len = left < 64 * bytes ? left : 64 * bytes;
		/* It stops short only at pages' ends, so the pattern stays in step. */
		done = process_vm_writev(self, local, 64, &remote, 1, 0);
		if (done <= 0) {
			errno = done ? errno : EFAULT;
			return vmkv_device_fail(&host->base, -errno, "cannot fill at 0x%llx: %m",
			                        (unsigned long long)(fill->offset + at));
		}
		at += (uint64_t)done;
	}
	return 0;
}

int host_fill(struct vmkv_device *device, const struct vmkv_fill *fills, size_t n, uint64_t *point)
{
	for (size_t i = 0; i < n; i++) {
		const struct vmkv_fill *fill = &fills[i];
		int error = 0;

		if (!fill->slab)
			error = fill_address(host_of(device), fill);
		else if (!fill->slab->alias)
			error = vmkv_device_fail(device, -EINVAL,
			                         "a slab without an alias is filled by address alone");
		else if (fill->value == 0)
			error = zero_slab(host_of(device), fill);
		else
			fill_words(host_pointer(fill->slab->alias + fill->offset), fill->bytes,
			           fill->value);
		if (error)
			return error;
	}
	*point = 0;
	return 0;
}

/* ---- copy ----------------------------------------------------------------------------------- */

int host_copy(struct vmkv_device *device, uint64_t destination, uint64_t source, uint64_t bytes,
              uint64_t *point)
{
	const uint64_t most = UINT64_C(1) << 30; /* the kernel refuses lengths beyond a signed size */
	pid_t self = getpid();
	uint64_t at = 0;

	while (at < bytes) {
		uint64_t length = bytes - at < most ? bytes - at : most;
		struct iovec local = { host_pointer(destination + at), length };
		struct iovec remote = { host_pointer(source + at), length };
		ssize_t done = process_vm_readv(self, &local, 1, &remote, 1, 0);

		if (done <= 0) {
			errno = done ? errno : EFAULT;
			return vmkv_device_fail(device, -errno, "cannot copy from 0x%llx to 0x%llx: %m",
			                        (unsigned long long)(source + at),
			                        (unsigned long long)(destination + at));
		}
		at += (uint64_t)done;
	}
	*point = 0;
	return 0;
}
