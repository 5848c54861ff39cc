/* SPDX-License-Identifier: MIT
 *
 * One connection: a thread that answers what a program asks, one request after another.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "preload/futex.h"
#include "preload/message.h"
#include "serve.h"

/* ---- descriptors ----------------------------------------------------------------------------- */

static void answer_fd(struct emu_connection *connection, int fd)
{
	struct emu_channel *channel = connection->channel;
	int flags = fcntl(fd, F_GETFD);

	channel->fd_cloexec = flags >= 0 && flags & FD_CLOEXEC;
	channel->answers_fd = !emu_message_send(connection->socket, fd);
	if (!channel->answers_fd)
		channel->result = -EMFILE;
	close(fd);
}

/* ---- requests -------------------------------------------------------------------------------- */

static int file_open(struct emu_connection *connection, bool primary)
{
	int fd, error = emu_file_open(connection->server->gpu, primary, &fd);

	if (error)
		return error;
	answer_fd(connection, fd);
	return 0;
}

/* If the argument is long enough to have one. */
static const struct emu_fd_field *fd_field_find(const struct emu_channel *channel)
{
	const struct emu_fd_field *field = emu_fd_field_find(channel->request);

	return field && field->offset + sizeof(int) <= channel->bytes ? field : NULL;
}

/* FENCE_TO_HANDLE's answer is a descriptor unless a syncobj's handle was asked for. */
static bool fd_is_answered(const struct emu_channel *channel, const struct emu_fd_field *field)
{
	const union drm_amdgpu_fence_to_handle *args = (const void *)channel->data;

	if (!field || !field->answers)
		return false;
	return !EMU_IS_SAME_IOCTL(channel->request, DRM_IOCTL_AMDGPU_FENCE_TO_HANDLE) ||
	       channel->bytes < sizeof(*args) ||
	       args->in.what != AMDGPU_FENCE_TO_HANDLE_GET_SYNCOBJ;
}

static int ioctl_run(struct emu_connection *connection, struct emu_file *file)
{
	struct emu_channel *channel = connection->channel;
	const struct emu_fd_field *field = fd_field_find(channel);
	bool answers = fd_is_answered(channel, field);
	int theirs = -1, ours = -1, result;

	if (field && field->sends) {
		memcpy(&theirs, channel->data + field->offset, sizeof(theirs));
		if (channel->sends_fd)
			ours = emu_message_receive(connection->socket);
		memcpy(channel->data + field->offset, &ours, sizeof(ours));
	}
	result = emu_ioctl_run(file, channel->request, (void *)(uintptr_t)channel->argument);
	if (field && field->sends)
		memcpy(channel->data + field->offset, &theirs, sizeof(theirs));
	if (ours >= 0)
		close(ours);
	if (result >= 0 && answers) {
		memcpy(&ours, channel->data + field->offset, sizeof(ours));
		answer_fd(connection, ours);
	}
	return result;
}

static int ioctl_answer(struct emu_connection *connection)
{
	struct emu_channel *channel = connection->channel;
	struct emu_caller *caller = &connection->caller;
	struct emu_file *file = emu_file_get_at(channel->position);
	int result;

	if (!file)
		return -errno;
	caller->argument = channel->argument;
	caller->bytes = channel->bytes <= EMU_CHANNEL_DATA ? channel->bytes : 0;
	caller->data = channel->data;
	caller->written = false;
	caller->outputs = channel->collects ? channel->data + caller->bytes : NULL;
	caller->outputs_room = EMU_CHANNEL_DATA - caller->bytes;
	caller->outputs_bytes = 0;
	result = ioctl_run(connection, file);
	channel->written = caller->written;
	channel->outputs_bytes = (uint32_t)caller->outputs_bytes;
	emu_file_put(file);
	return result;
}

static int map_answer(const struct emu_connection *connection)
{
	const struct emu_channel *channel = connection->channel;
	struct emu_file *file = emu_file_get_at(channel->position);
	int result;

	if (!file)
		return -errno;
	result = emu_gem_map_check(file, channel->request, channel->argument);
	emu_file_put(file);
	return result;
}

static int fdinfo_answer(const struct emu_connection *connection)
{
	struct emu_channel *channel = connection->channel;
	struct emu_file *file = emu_file_get_at(channel->position);
	size_t length;

	if (!file)
		return -errno;
	length = emu_fdinfo(file, (char *)channel->data, sizeof(channel->data));
	emu_file_put(file);
	return (int)length;
}

/* All VRAM is within the CPU's reach, so there is one number for both. */
static int used_answer(const struct emu_connection *connection, enum emu_heap_kind kind)
{
	struct emu_channel *channel = connection->channel;
	struct emu_gpu *gpu = connection->server->gpu;
	uint64_t used;

	pthread_mutex_lock(&gpu->lock);
	emu_memory_sweep(gpu);
	used = gpu->memory.heaps[kind].used_bytes;
	pthread_mutex_unlock(&gpu->lock);
	return snprintf((char *)channel->data, sizeof(channel->data), "%" PRIu64 "\n", used);
}

/* Answers that the program kept count as calls. */
static void kept_uses_count(struct emu_connection *connection)
{
	static const char *const names[] = { [EMU_CONSTANT_GET_CAP] = "GET_CAP",
		                             [EMU_CONSTANT_VERSION] = "VERSION",
		                             [EMU_CONSTANT_INFO] = "INFO" };
	struct emu_gpu *gpu = connection->server->gpu;

	for (int i = 0; i < EMU_CONSTANTS; i++) {
		uint64_t *kept = &connection->channel->kept_uses[i], uses;
		uint32_t ioctl;

		if (!__atomic_load_n(kept, __ATOMIC_RELAXED))
			continue;
		uses = __atomic_exchange_n(kept, 0, __ATOMIC_SEQ_CST);
		ioctl = emu_ioctl_index(emu_ioctl_find_name(names[i]));
		pthread_mutex_lock(&gpu->lock);
		gpu->counts.ioctls += uses;
		gpu->ioctls[ioctl].calls += uses;
		pthread_mutex_unlock(&gpu->lock);
	}
}

static int request_answer(struct emu_connection *connection)
{
	switch (connection->channel->kind) {
	case EMU_REQUEST_OPEN_RENDER:
		return file_open(connection, false);
	case EMU_REQUEST_OPEN_PRIMARY:
		return file_open(connection, true);
	case EMU_REQUEST_IOCTL:
		return ioctl_answer(connection);
	case EMU_REQUEST_MAP:
		return map_answer(connection);
	case EMU_REQUEST_FDINFO:
		return fdinfo_answer(connection);
	case EMU_REQUEST_VRAM_USED:
		return used_answer(connection, EMU_HEAP_VRAM);
	case EMU_REQUEST_GTT_USED:
		return used_answer(connection, EMU_HEAP_GTT);
	case EMU_REQUEST_CLOSED:
		return 0;
	default:
		return -EINVAL;
	}
}

static void *thread_main(void *argument)
{
	struct emu_connection *connection = argument;
	struct emu_server *server = connection->server;
	struct emu_channel *channel = connection->channel;
	struct emu_spin spin = { .never = !server->may_spin };
	int result;

	emu_caller = &connection->caller;
	while (!__atomic_load_n(&connection->caller.gone, __ATOMIC_SEQ_CST)) {
		emu_channel_await(channel, EMU_CHANNEL_REQUESTED, &channel->server_sleeps, &spin, NULL,
		                  NULL);
		if (__atomic_load_n(&connection->caller.gone, __ATOMIC_SEQ_CST))
			break;
		emu_server_sweep(server, channel->kind == EMU_REQUEST_CLOSED);
		kept_uses_count(connection);
		channel->result = 0;
		channel->written = channel->answers_fd = channel->outputs_bytes = 0;
		result = request_answer(connection);
		if (!channel->result)
			channel->result = result;
		emu_channel_set(channel, EMU_CHANNEL_ANSWERED, &channel->client_sleeps);
	}
	kept_uses_count(connection);
	pthread_mutex_lock(&server->lock);
	emu_list_remove(&connection->link);
	(void)munmap(channel, sizeof(*channel));
	close(connection->socket);
	pthread_cond_broadcast(&server->changed);
	pthread_mutex_unlock(&server->lock);
	free(connection);
	return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

/* Calls that are to be seen, or that are to take their time, have to come here. */
static bool may_keep(const struct emu_options *options)
{
	return !options->trace[0] && !options->inject.faults && !options->inject.ioctl_count &&
	       options->ioctl_us <= 0;
}

/* The client gets the channel's file with the first message. */
static int channel_make(struct emu_connection *connection)
{
	int fd = memfd_create("vmkv-channel", MFD_CLOEXEC), error = 0;
	void *place;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, sizeof(struct emu_channel)))
		error = -errno;
	place = error ? MAP_FAILED : mmap(NULL, sizeof(struct emu_channel), PROT_READ | PROT_WRITE,
	                                  MAP_SHARED, fd, 0);
	if (place == MAP_FAILED)
		error = -ENOMEM;
	else
		connection->channel = place;
	if (!error)
		connection->channel->may_keep = may_keep(&connection->server->gpu->options);
	if (!error)
		error = emu_message_send(connection->socket, fd);
	close(fd);
	return error;
}

int emu_connection_start(struct emu_server *server, int socket, pid_t process)
{
	struct emu_connection *connection = calloc(1, sizeof(*connection));
	struct epoll_event event = { .data.ptr = connection }; /* its end is always told */
	pthread_t thread;
	int error;

	if (!connection)
		return -ENOMEM;
	connection->server = server;
	connection->socket = socket;
	connection->caller.process = process;
	error = channel_make(connection);
	pthread_mutex_lock(&server->lock);
	if (!error)
		error = emu_thread_start(&thread, thread_main, connection);
	if (!error) {
		(void)pthread_detach(thread);
		emu_list_append(&server->connections, &connection->link);
		(void)epoll_ctl(server->events, EPOLL_CTL_ADD, socket, &event);
	}
	pthread_mutex_unlock(&server->lock);
	if (error) {
		if (connection->channel)
			(void)munmap(connection->channel, sizeof(*connection->channel));
		free(connection);
	}
	return error;
}

void emu_connection_end(struct emu_connection *connection)
{
	struct emu_gpu *gpu = connection->server->gpu;
	struct emu_channel *channel = connection->channel;

	/* Its ioctl may be one that waits. */
	pthread_mutex_lock(&gpu->lock);
	__atomic_store_n(&connection->caller.gone, true, __ATOMIC_SEQ_CST);
	pthread_cond_broadcast(&gpu->changed);
	pthread_mutex_unlock(&gpu->lock);
	emu_channel_set(channel, EMU_CHANNEL_GONE, &channel->server_sleeps);
}
