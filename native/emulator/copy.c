/* SPDX-License-Identifier: MIT
 *
 * Reading and writing the caller's memory, wherever a pointer leads, without a fault: the kernel
 * does the access, and tells.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "emu.h"

#define PIPE_BYTES 4096 /* what a pipe takes for certain */

/* Where process_vm_* are forbidden, as in some sandboxes: through a pipe, bit by bit. */
static int copy_by_pipe(void *to, const void *from, size_t n)
{
	int ends[2], err = 0;

	if (pipe2(ends, O_CLOEXEC))
		return -EFAULT;
	for (size_t done = 0; done < n && !err;) {
		size_t part = n - done < PIPE_BYTES ? n - done : PIPE_BYTES;

		if (write(ends[1], (const char *)from + done, part) != (ssize_t)part ||
		    read(ends[0], (char *)to + done, part) != (ssize_t)part)
			err = -EFAULT;
		done += part;
	}
	close(ends[0]);
	close(ends[1]);
	return err;
}

int emu_copy_in(void *to, uint64_t from, size_t n)
{
	void *address = (void *)(uintptr_t)from;
	struct iovec local = { to, n }, remote = { address, n };
	ssize_t done;

	if (!n)
		return 0;
	done = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
	if (done == (ssize_t)n)
		return 0;
	if (done < 0 && (errno == EPERM || errno == ENOSYS))
		return copy_by_pipe(to, address, n);
	return -EFAULT;
}

int emu_array_in(uint64_t from, uint64_t n, size_t bytes_each, size_t most, void **ret)
{
	void *copy;
	int error;

	if (n > most / bytes_each)
		return -ENOMEM;
	copy = calloc(n ? n : 1, bytes_each);
	if (!copy)
		return -ENOMEM;
	error = emu_copy_in(copy, from, n * bytes_each);
	if (error)
		free(copy);
	else
		*ret = copy;
	return error;
}

int emu_copy_out(uint64_t to, const void *from, size_t n)
{
	void *address = (void *)(uintptr_t)to;
	struct iovec local = { (void *)(uintptr_t)from, n }, remote = { address, n };
	ssize_t done;

	if (!n)
		return 0;
	done = process_vm_writev(getpid(), &local, 1, &remote, 1, 0);
	if (done == (ssize_t)n)
		return 0;
	if (done < 0 && (errno == EPERM || errno == ENOSYS))
		return copy_by_pipe(address, from, n);
	return -EFAULT;
}
