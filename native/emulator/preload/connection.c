/* SPDX-License-Identifier: MIT
 *
 * The program's side of connections.
 *
 * They are kept for the next ioctl, in a pool that takes no lock: an ioctl may come from a signal handler.
 * A child of fork has none of its parent's. One of vfork has its parent's memory, but descriptors of its
 * own: it makes a connection for each request.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "futex.h"
#include "kept.h"
#include "message.h"
#include "preload.h"

#define CONNECTIONS 128
#define SOCKETS_ABOVE 1023 /* programs that count descriptors from 0 don't meet them */

enum { NONE, FREE, BUSY };

struct connection {
	uint32_t state;
	int socket;
	struct emu_channel *channel;
	struct emu_spin spin;
	bool broken; /* the other end has gone, or somebody closed ours */
};

static struct connection pool[CONNECTIONS];
static uint32_t *not_forked; /* a page that fork leaves empty */
static pid_t owner; /* of the pool */
static bool is_alone; /* on one processor */

/* ---- life ------------------------------------------------------------------------------------ */

static void pool_forget(void)
{
	for (int i = 0; i < CONNECTIONS; i++) {
		if (pool[i].channel)
			(void)syscall(SYS_close, pool[i].socket);
		pool[i] = (struct connection){ .socket = -1 };
	}
	owner = getpid();
	if (not_forked)
		*not_forked = 1;
}

static void pool_check(void)
{
	if (not_forked && !*not_forked)
		pool_forget();
}

__attribute__((constructor)) static void pool_init(void)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cpu_set_t set;

	is_alone = sched_getaffinity(0, sizeof(set), &set) || CPU_COUNT(&set) < 2;
	if (page != MAP_FAILED && !madvise(page, 4096, MADV_WIPEONFORK))
		not_forked = page;
	pool_forget();
	(void)pthread_atfork(NULL, NULL, pool_forget);
}

static int server_connect(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	size_t length = strlen(preload_settings.server);
	struct rlimit limit = { .rlim_cur = 0 };
	int fd, high;

	memcpy(address.sun_path + 1, preload_settings.server, length);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&address,
	            (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length))) {
		(void)syscall(SYS_close, fd);
		return -ENODEV;
	}
	(void)getrlimit(RLIMIT_NOFILE, &limit);
	high = limit.rlim_cur > SOCKETS_ABOVE + CONNECTIONS ? SOCKETS_ABOVE : (int)limit.rlim_cur / 2;
	high = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, high);
	if (high < 0)
		return fd;
	(void)syscall(SYS_close, fd);
	return high;
}

/* Where only ancestors may read a process's memory, the server may have become none. */
static void server_allow(int socket)
{
	struct ucred peer;
	socklen_t bytes = sizeof(peer);

	if (!getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes))
		(void)prctl(PR_SET_PTRACER, (unsigned long)peer.pid, 0, 0, 0);
}

static int connection_make(struct connection *connection)
{
	int socket = server_connect(), fd;
	void *place;

	if (socket < 0)
		return socket;
	fd = emu_message_receive(socket);
	if (fd < 0) {
		(void)syscall(SYS_close, socket);
		return fd == -EMFILE ? fd : -ENODEV;
	}
	place = mmap(NULL, sizeof(struct emu_channel), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	(void)syscall(SYS_close, fd);
	if (place == MAP_FAILED) {
		(void)syscall(SYS_close, socket);
		return -ENOMEM;
	}
	(void)madvise(place, sizeof(struct emu_channel), MADV_DONTFORK);
	server_allow(socket);
	connection->socket = socket;
	connection->channel = place;
	connection->spin = (struct emu_spin){ .never = is_alone };
	connection->broken = false;
	return 0;
}

static bool state_change(struct connection *connection, uint32_t from, uint32_t to)
{
	return __atomic_compare_exchange_n(&connection->state, &from, to, false, __ATOMIC_SEQ_CST,
	                                   __ATOMIC_SEQ_CST);
}

static struct connection *connection_take(uint32_t state)
{
	for (int i = 0; i < CONNECTIONS; i++)
		if (state_change(&pool[i], state, BUSY))
			return &pool[i];
	return NULL;
}

/* The caller has room for one that is for a single request. */
static int connection_get(struct connection *single, struct connection **ret)
{
	struct connection *connection;
	int error;

	pool_check();
	*single = (struct connection){ .state = NONE };
	*ret = single;
	if (getpid() != owner)
		return connection_make(single);
	while (!(connection = connection_take(FREE))) {
		connection = connection_take(NONE);
		if (connection) {
			error = connection_make(connection);
			if (!error)
				break;
			__atomic_store_n(&connection->state, NONE, __ATOMIC_SEQ_CST);
			return error;
		}
		/* All are at work, and may be for as long as nobody asks for what they wait for. */
		if (!connection_make(single))
			return 0;
		(void)poll(NULL, 0, 1);
	}
	*ret = connection;
	return 0;
}

static void connection_put(struct connection *connection)
{
	bool is_single = connection->state == NONE;

	if (!is_single && !connection->broken) {
		__atomic_store_n(&connection->state, FREE, __ATOMIC_SEQ_CST);
		return;
	}
	(void)munmap(connection->channel, sizeof(struct emu_channel));
	(void)syscall(SYS_close, connection->socket);
	connection->channel = NULL;
	__atomic_store_n(&connection->state, NONE, __ATOMIC_SEQ_CST);
}

/* ---- one request ----------------------------------------------------------------------------- */

static bool server_has_gone(void *what)
{
	const struct connection *connection = what;
	struct pollfd look = { .fd = connection->socket };

	return poll(&look, 1, 0) == 1 && look.revents & (POLLHUP | POLLERR | POLLNVAL);
}

static int connection_run(struct connection *connection)
{
	struct emu_channel *channel = connection->channel;

	emu_channel_set(channel, EMU_CHANNEL_REQUESTED, &channel->server_sleeps);
	if (!emu_channel_await(channel, EMU_CHANNEL_ANSWERED, &channel->client_sleeps,
	                       &connection->spin, server_has_gone, connection) ||
	    __atomic_load_n(&channel->state, __ATOMIC_SEQ_CST) == EMU_CHANNEL_GONE) {
		connection->broken = true;
		return -ENODEV;
	}
	return channel->result;
}

/* The descriptor that came with the answer. */
static int fd_receive(struct connection *connection)
{
	int fd = emu_message_receive(connection->socket);

	if (fd >= 0 && !connection->channel->fd_cloexec)
		(void)syscall(SYS_fcntl, fd, F_SETFD, 0);
	return fd;
}

int preload_open(bool primary, int flags)
{
	struct connection single, *connection;
	int saved = errno, result = connection_get(&single, &connection);

	if (result)
		return result;
	connection->channel->kind = primary ? EMU_REQUEST_OPEN_PRIMARY : EMU_REQUEST_OPEN_RENDER;
	result = connection_run(connection);
	if (!result) {
		connection->channel->fd_cloexec = !!(flags & O_CLOEXEC);
		result = fd_receive(connection);
	}
	connection_put(connection);
	errno = saved;
	return result;
}

/* The owner of the pool has the same memory, also in a child of vfork. */
int preload_self_copy(void *local_bytes, void *remote_bytes, size_t n, bool in)
{
	struct iovec local = { local_bytes, n }, remote = { remote_bytes, n };
	ssize_t done;

	if (!in)
		return preload_self_write(&local, &remote, 1);
	done = syscall(SYS_process_vm_readv, owner, &local, 1L, &remote, 1L, 0L);
	if (done == (ssize_t)n)
		return 0;
	if (done >= 0 || (errno != EPERM && errno != ENOSYS))
		return -EFAULT;
	memcpy(local_bytes, remote_bytes, n);
	return 0;
}

int preload_self_write(struct iovec *from, struct iovec *to, int n)
{
	ssize_t all = 0, done;

	for (int i = 0; i < n; i++)
		all += (ssize_t)from[i].iov_len;
	if (!all)
		return 0;
	done = syscall(SYS_process_vm_writev, owner, from, (long)n, to, (long)n, 0L);
	if (done == all)
		return 0;
	if (done >= 0 || (errno != EPERM && errno != ENOSYS))
		return -EFAULT;
	for (int i = 0; i < n; i++)
		memcpy(to[i].iov_base, from[i].iov_base, from[i].iov_len);
	return 0;
}

static void argument_send(struct connection *connection, const struct emu_fd_field *field)
{
	struct emu_channel *channel = connection->channel;
	size_t bytes = _IOC_SIZE(channel->request);
	int fd;

	/* What can't be read is left to the server, which then finds the same. */
	channel->bytes = 0;
	channel->sends_fd = 0;
	if (!bytes || preload_self_copy(channel->data, (void *)(uintptr_t)channel->argument, bytes, true))
		return;
	channel->bytes = (uint32_t)bytes;
	if (!field || !field->sends || field->offset + sizeof(fd) > bytes)
		return;
	memcpy(&fd, channel->data + field->offset, sizeof(fd));
	channel->sends_fd = fd >= 0 && !emu_message_send(connection->socket, fd);
}

static int argument_receive(struct connection *connection, const struct emu_fd_field *field)
{
	struct emu_channel *channel = connection->channel;
	int fd = -1, error;

	if (channel->answers_fd) {
		fd = fd_receive(connection);
		if (fd < 0)
			return fd;
		memcpy(channel->data + field->offset, &fd, sizeof(fd));
	}
	if (!channel->written)
		return 0;
	error = preload_self_copy(channel->data, (void *)(uintptr_t)channel->argument, channel->bytes, false);
	if (error && channel->answers_fd)
		(void)syscall(SYS_close, fd);
	return error;
}

static void ioctl_prepare(struct emu_channel *channel, uint64_t position, unsigned long request,
                          void *argument)
{
	channel->kind = EMU_REQUEST_IOCTL;
	channel->position = position;
	channel->request = request;
	channel->argument = (uint64_t)(uintptr_t)argument;
	channel->answers_fd = channel->written = channel->outputs_bytes = 0;
	/* To write here is cheaper for this process than for the server. */
	channel->collects = EMU_IS_SAME_IOCTL(request, DRM_IOCTL_AMDGPU_INFO);
}

/* What the answer writes besides the argument. */
static int outputs_receive(const struct emu_channel *channel)
{
	const uint8_t *at = channel->data + channel->bytes, *end = at + channel->outputs_bytes;

	while (at < end) {
		struct emu_output output;
		int error;

		memcpy(&output, at, sizeof(output));
		at += sizeof(output);
		error = preload_self_copy((void *)(uintptr_t)at, (void *)(uintptr_t)output.address,
		                          output.bytes, false);
		if (error)
			return error;
		at += output.bytes;
	}
	return 0;
}

static int ioctl_run(struct connection *connection)
{
	struct emu_channel *channel = connection->channel;
	const struct emu_fd_field *field = emu_fd_field_find(channel->request);
	int result, error;

	argument_send(connection, field);
	result = connection_run(connection);
	if (connection->broken)
		return result;
	error = outputs_receive(channel);
	if (!error)
		error = argument_receive(connection, field);
	return error ? error : result;
}

/* A question whose answer is kept from here on. */
static int question_run(struct connection *connection, const struct kept_question *question,
                        void *argument)
{
	struct emu_channel *channel = connection->channel;
	const struct kept *answer;
	int result, error;

	if (!channel->may_keep)
		return ioctl_run(connection);
	answer = kept_find(question);
	if (answer) {
		__atomic_fetch_add(&channel->kept_uses[question->kind], 1, __ATOMIC_RELAXED);
		return kept_answer(answer, question, argument);
	}
	channel->collects = 1;
	argument_send(connection, NULL);
	result = connection_run(connection);
	if (connection->broken)
		return result;
	if (result >= 0)
		kept_add(question, channel);
	error = outputs_receive(channel);
	if (!error)
		error = argument_receive(connection, NULL);
	return error ? error : result;
}

int preload_ioctl(uint64_t position, unsigned long request, void *argument)
{
	struct kept_question question;
	struct connection single, *connection;
	int saved = errno, result = connection_get(&single, &connection);

	if (result)
		return result;
	ioctl_prepare(connection->channel, position, request, argument);
	/* On a primary node it is up to the server who may ask. */
	if (!(position & EMU_POSITION_PRIMARY) && kept_question(request, argument, &question))
		result = question_run(connection, &question, argument);
	else
		result = ioctl_run(connection);
	connection_put(connection);
	errno = saved;
	return result;
}

int preload_map_check(uint64_t position, uint64_t offset, uint64_t bytes)
{
	struct connection single, *connection;
	int result = connection_get(&single, &connection);

	if (result)
		return result;
	connection->channel->kind = EMU_REQUEST_MAP;
	connection->channel->position = position;
	connection->channel->request = offset;
	connection->channel->argument = bytes;
	result = connection_run(connection);
	connection_put(connection);
	return result;
}

void preload_closed(void)
{
	struct connection single, *connection;
	int saved = errno;

	/* The server notices anyhow, a little later. */
	if (getpid() != owner)
		return;
	if (!connection_get(&single, &connection)) {
		connection->channel->kind = EMU_REQUEST_CLOSED;
		(void)connection_run(connection);
		connection_put(connection);
	}
	errno = saved;
}

int preload_text(enum emu_request kind, uint64_t position, char *text, size_t bytes)
{
	struct connection single, *connection;
	int result = connection_get(&single, &connection);

	if (result)
		return result;
	connection->channel->kind = kind;
	connection->channel->position = position;
	result = connection_run(connection);
	if (result > 0 && (size_t)result >= bytes)
		result = -EFBIG;
	if (result >= 0) {
		memcpy(text, connection->channel->data, (size_t)result);
		text[result] = '\0';
	}
	connection_put(connection);
	return result;
}

/* ---- descriptors ----------------------------------------------------------------------------- */

uint64_t preload_position(int fd)
{
	int saved = errno;
	off_t position = preload_settings.server[0] ? syscall(SYS_lseek, fd, 0, SEEK_CUR) : 0;

	errno = saved;
	return position > 0 && EMU_POSITION_IS_SERVED((uint64_t)position) ? (uint64_t)position : 0;
}

bool preload_is_ours(int fd)
{
	return preload_ours_next(fd) == fd;
}

int preload_ours_next(int from)
{
	int least = -1;

	if (!preload_settings.server[0])
		return -1;
	for (int i = 0; i < CONNECTIONS; i++) {
		int fd = pool[i].socket;

		if (__atomic_load_n(&pool[i].state, __ATOMIC_SEQ_CST) == NONE || fd < from)
			continue;
		if (least < 0 || fd < least)
			least = fd;
	}
	return least;
}
