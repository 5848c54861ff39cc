/* SPDX-License-Identifier: MIT
 *
 * Reading and writing the caller's memory, wherever a pointer leads, without a fault: the kernel
 * does the access, and tells.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "emu.h"
#include "preload/protocol.h"

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

_Thread_local struct emu_caller *emu_caller;

pid_t emu_caller_process(void)
{
	return emu_caller ? emu_caller->process : getpid();
}

bool emu_wait_is_vain(const struct emu_gpu *gpu)
{
	return gpu->going || (emu_caller && __atomic_load_n(&emu_caller->gone, __ATOMIC_SEQ_CST));
}

/* Where the bytes are in the copy of the argument that came with the request; NULL: not in it. */
static uint8_t *carried(uint64_t address, size_t n)
{
	const struct emu_caller *caller = emu_caller;

	if (!caller || address < caller->argument || n > caller->bytes ||
	    address - caller->argument > caller->bytes - n)
		return NULL;
	return caller->data + (address - caller->argument);
}

int emu_process_copy_in(pid_t process, void *to, uint64_t from, size_t n)
{
	void *address = (void *)(uintptr_t)from;
	struct iovec local = { to, n }, remote = { address, n };
	ssize_t done;

	if (!n)
		return 0;
	done = process_vm_readv(process, &local, 1, &remote, 1, 0);
	if (done == (ssize_t)n)
		return 0;
	if (done < 0 && (errno == EPERM || errno == ENOSYS) && process == getpid())
		return copy_by_pipe(to, address, n);
	return -EFAULT;
}

int emu_process_copy_out(pid_t process, uint64_t to, const void *from, size_t n)
{
	void *address = (void *)(uintptr_t)to;
	struct iovec local = { (void *)(uintptr_t)from, n }, remote = { address, n };
	ssize_t done;

	if (!n)
		return 0;
	done = process_vm_writev(process, &local, 1, &remote, 1, 0);
	if (done == (ssize_t)n)
		return 0;
	if (done < 0 && (errno == EPERM || errno == ENOSYS) && process == getpid())
		return copy_by_pipe(address, from, n);
	return -EFAULT;
}

int emu_copy_in(void *to, uint64_t from, size_t n)
{
	const uint8_t *data = carried(from, n);

	if (!data)
		return emu_process_copy_in(emu_caller_process(), to, from, n);
	memcpy(to, data, n);
	return 0;
}

static bool output_collect(uint64_t to, const void *from, size_t n)
{
	struct emu_caller *caller = emu_caller;
	struct emu_output output = { .address = to, .bytes = (uint32_t)n };

	if (!caller || !caller->outputs ||
	    sizeof(output) + n > caller->outputs_room - caller->outputs_bytes)
		return false;
	memcpy(caller->outputs + caller->outputs_bytes, &output, sizeof(output));
	memcpy(caller->outputs + caller->outputs_bytes + sizeof(output), from, n);
	caller->outputs_bytes += sizeof(output) + n;
	return true;
}

int emu_copy_out(uint64_t to, const void *from, size_t n)
{
	uint8_t *data = carried(to, n);

	if (!data && output_collect(to, from, n))
		return 0;
	if (!data)
		return emu_process_copy_out(emu_caller_process(), to, from, n);
	memcpy(data, from, n);
	emu_caller->written = true;
	return 0;
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
