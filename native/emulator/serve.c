/* SPDX-License-Identifier: MIT
 *
 * One card for many programs: this process has it, as the kernel would, and programs send their ioctls.
 *
 * A program's DRM descriptors are this card's own, passed to it: it maps buffers through them, and they
 * are inherited and passed on as any. files.c finds out which have no descriptor any more; inotify says
 * when to look.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "serve.h"

#define BACKLOG 64
#define EVENTS 16
/* inotify tells a moment before the lock goes, and who closes may be kept from running in between: looks
 * are repeated, each after twice the time. */
#define AGAIN_MS 2
#define AGAIN_MOST_MS 512

/* ---- files that nobody has any more ---------------------------------------------------------- */

/* Something was closed, of which nobody has made sure what it means. */
static bool is_uncertain(const struct emu_server *server)
{
	struct pollfd closes = { .fd = server->closes, .events = POLLIN };

	return __atomic_load_n(&server->uncertain, __ATOMIC_SEQ_CST) || poll(&closes, 1, 0) > 0;
}

void emu_server_sweep(struct emu_server *server, bool asked)
{
	if (!asked && !is_uncertain(server))
		return;
	/* Who comes while others are at it waits until they are done. */
	pthread_mutex_lock(&server->sweeping);
	emu_files_sweep(server->gpu);
	pthread_mutex_unlock(&server->sweeping);
}

/* ---- who comes and goes ---------------------------------------------------------------------- */

static void client_accept(struct emu_server *server)
{
	struct ucred peer = { 0 };
	socklen_t bytes = sizeof(peer);
	int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) ||
	    (geteuid() && peer.uid != geteuid()) || emu_connection_start(server, fd, peer.pid))
		close(fd);
}

static void client_leave(struct emu_server *server, struct emu_connection *connection)
{
	(void)epoll_ctl(server->events, EPOLL_CTL_DEL, connection->socket, NULL);
	pthread_mutex_lock(&server->lock);
	emu_connection_end(connection);
	pthread_mutex_unlock(&server->lock);
}

/* Events' data are connections, or these. */
static void *const listener_event = NULL;
static char closes_event, ending_event;

static void closes_read(struct emu_server *server)
{
	char events[4096];

	while (read(server->closes, events, sizeof(events)) > 0)
		;
}

static bool event_handle(struct emu_server *server, const struct epoll_event *event)
{
	void *what = event->data.ptr;

	if (what == &ending_event)
		return false;
	if (what == &closes_event)
		closes_read(server);
	else if (what == listener_event)
		client_accept(server);
	else if (event->events & (EPOLLHUP | EPOLLERR))
		client_leave(server, what);
	return true;
}

/* When to look again after a look; -1: there is no need. */
static int delay_next(int delay_ms, bool something_happened)
{
	if (something_happened)
		return AGAIN_MS;
	return delay_ms < AGAIN_MOST_MS ? 2 * delay_ms : -1;
}

static void *thread_main(void *argument)
{
	struct emu_server *server = argument;
	struct epoll_event events[EVENTS];
	bool goes_on = true;
	int delay_ms = -1;

	while (goes_on) {
		int n = epoll_wait(server->events, events, EVENTS, delay_ms);

		delay_ms = delay_next(delay_ms, n > 0);
		if (n > 0)
			__atomic_store_n(&server->uncertain, true, __ATOMIC_SEQ_CST);
		for (int i = 0; i < n && goes_on; i++)
			goes_on = event_handle(server, &events[i]);
		emu_server_sweep(server, true);
		if (delay_ms < 0)
			__atomic_store_n(&server->uncertain, false, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

static int listener_open(const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	size_t length = strlen(name);
	int fd, error;

	if (!length || length >= sizeof(address.sun_path))
		return -EINVAL;
	memcpy(address.sun_path + 1, name, length);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&address,
	         (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) ||
	    listen(fd, BACKLOG)) {
		error = -errno;
		close(fd);
		return error;
	}
	return fd;
}

static int event_add(const struct emu_server *server, int fd, void *what)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = what };

	return epoll_ctl(server->events, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static int closes_watch(struct emu_server *server)
{
	char path[40];

	server->closes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (server->closes < 0)
		return -errno;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", server->gpu->memory.fd);
	return inotify_add_watch(server->closes, path, IN_CLOSE_WRITE) < 0 ? -errno : 0;
}

static int events_open(struct emu_server *server)
{
	int error = closes_watch(server);

	if (error)
		return error;
	server->events = epoll_create1(EPOLL_CLOEXEC);
	server->ending = eventfd(0, EFD_CLOEXEC);
	if (server->events < 0 || server->ending < 0)
		return -EMFILE;
	error = event_add(server, server->listener, listener_event);
	if (!error)
		error = event_add(server, server->closes, &closes_event);
	return error ? error : event_add(server, server->ending, &ending_event);
}

static void descriptors_close(const struct emu_server *server)
{
	const int all[] = { server->listener, server->events, server->closes, server->ending };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i] >= 0)
			close(all[i]);
}

static bool processors_are_several(void)
{
	cpu_set_t set;

	return !sched_getaffinity(0, sizeof(set), &set) && CPU_COUNT(&set) > 1;
}

VMKV_API int vmkv_emulator_serve(vmkv_emulator *emulator, const char *name, vmkv_emulator_server **ret)
{
	struct emu_server *server = calloc(1, sizeof(*server));
	int error;

	if (!server)
		return -ENOMEM;
	server->gpu = (struct emu_gpu *)emulator;
	server->events = server->closes = server->ending = -1;
	server->may_spin = processors_are_several();
	pthread_mutex_lock(&server->gpu->lock);
	server->gpu->served = true;
	pthread_mutex_unlock(&server->gpu->lock);
	pthread_mutex_init(&server->lock, NULL);
	pthread_mutex_init(&server->sweeping, NULL);
	pthread_cond_init(&server->changed, NULL);
	emu_list_init(&server->connections);
	server->listener = listener_open(name);
	error = server->listener < 0 ? server->listener : events_open(server);
	if (!error)
		error = emu_thread_start(&server->thread, thread_main, server);
	if (error) {
		descriptors_close(server);
		free(server);
		return error;
	}
	*ret = (vmkv_emulator_server *)server;
	return 0;
}

VMKV_API void vmkv_emulator_serve_end(vmkv_emulator_server *handle)
{
	struct emu_server *server = (struct emu_server *)handle;
	const uint64_t one = 1;

	if (!server || server->gpu->process != getpid())
		return;
	(void)!write(server->ending, &one, sizeof(one));
	pthread_join(server->thread, NULL);
	pthread_mutex_lock(&server->lock);
	EMU_FOR_EACH(item, &server->connections)
		emu_connection_end(EMU_ENTRY(item, struct emu_connection, link));
	while (!emu_list_is_empty(&server->connections))
		pthread_cond_wait(&server->changed, &server->lock);
	pthread_mutex_unlock(&server->lock);
	descriptors_close(server);
	pthread_mutex_destroy(&server->lock);
	pthread_mutex_destroy(&server->sweeping);
	pthread_cond_destroy(&server->changed);
	free(server);
}
