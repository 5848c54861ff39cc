/* SPDX-License-Identifier: MIT
 *
 * Eventfds that are told when a syncobj's point is submitted, or reached.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "emu.h"

struct emu_eventfd {
	struct emu_list link; /* the syncobj's, until there is a fence; then the card's */
	struct emu_fence *fence; /* a reference */
	uint64_t point;
	uint32_t flags;
	int fd;
};

static void eventfd_free(struct emu_eventfd *eventfd)
{
	emu_list_remove(&eventfd->link);
	emu_fence_put(eventfd->fence);
	close(eventfd->fd);
	free(eventfd);
}

/* A counter that is full stays so; nobody waits for it here. */
static void eventfd_tell(struct emu_eventfd *eventfd)
{
	struct pollfd room = { .fd = eventfd->fd, .events = POLLOUT };
	uint64_t one = 1;

	if (poll(&room, 1, 0) == 1 && room.revents & POLLOUT)
		(void)!write(eventfd->fd, &one, sizeof(one));
	eventfd_free(eventfd);
}

static void eventfd_look(struct emu_syncobj *syncobj, struct emu_eventfd *eventfd)
{
	struct emu_fence *fence;

	if (emu_syncobj_fence(syncobj, eventfd->point, &fence))
		return;
	if (!fence || fence->signalled || eventfd->flags & DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE) {
		emu_fence_put(fence);
		eventfd_tell(eventfd);
		return;
	}
	eventfd->fence = fence;
	emu_list_remove(&eventfd->link);
	emu_list_append(&syncobj->gpu->jobs.eventfds, &eventfd->link);
}

void emu_eventfds_submitted(struct emu_syncobj *syncobj)
{
	EMU_FOR_EACH(item, &syncobj->eventfds)
		eventfd_look(syncobj, EMU_ENTRY(item, struct emu_eventfd, link));
}

void emu_eventfds_signal(struct emu_gpu *gpu, const struct emu_fence *fence)
{
	EMU_FOR_EACH(item, &gpu->jobs.eventfds) {
		struct emu_eventfd *eventfd = EMU_ENTRY(item, struct emu_eventfd, link);

		if (eventfd->fence == fence)
			eventfd_tell(eventfd);
	}
}

void emu_eventfds_drop(struct emu_list *list)
{
	EMU_FOR_EACH(item, list)
		eventfd_free(EMU_ENTRY(item, struct emu_eventfd, link));
}

/* ---- the ioctl ----------------------------------------------------------------------------------- */

/* A duplicate; -EBADF, or -EINVAL if it is something else. */
static int eventfd_get(int fd, int *ret)
{
	char path[40], name[40] = "";
	int duplicate = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	if (duplicate < 0)
		return errno == EBADF ? -EBADF : -EMFILE;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", duplicate);
	if (readlink(path, name, sizeof(name) - 1) < 0 || strcmp(name, "anon_inode:[eventfd]")) {
		close(duplicate);
		return -EINVAL;
	}
	*ret = duplicate;
	return 0;
}

static int eventfd_add(struct emu_syncobj *syncobj, const struct drm_syncobj_eventfd *args)
{
	struct emu_eventfd *eventfd = calloc(1, sizeof(*eventfd));
	int error;

	if (!eventfd)
		return -ENOMEM;
	error = eventfd_get(args->fd, &eventfd->fd);
	if (error) {
		free(eventfd);
		return error;
	}
	eventfd->point = args->point;
	eventfd->flags = args->flags;
	emu_list_append(&syncobj->eventfds, &eventfd->link);
	eventfd_look(syncobj, eventfd);
	return 0;
}

int emu_syncobj_eventfd(struct emu_file *file, void *data)
{
	const struct drm_syncobj_eventfd *args = data;
	struct emu_syncobj *syncobj;
	int error = -ENOENT;

	if (args->flags & ~DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE)
		return emu_refuse(file->gpu, -EINVAL, "SYNCOBJ_EVENTFD: unknown flags 0x%x",
		                  args->flags);
	if (args->pad)
		return -EINVAL;
	pthread_mutex_lock(&file->gpu->lock);
	syncobj = emu_syncobj_find(file, args->handle);
	if (syncobj)
		error = eventfd_add(syncobj, args);
	pthread_mutex_unlock(&file->gpu->lock);
	return error;
}
