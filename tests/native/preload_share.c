/* Several processes on one card. */
#include "preload_check.h"

static const char *program;

/* ---- checks ---------------------------------------------------------------------------------- */

/* A child of fork has the parent's file: its handles, and what it maps. */
static void inherit(void)
{
	int fd = node_open();
	uint32_t handle = buffer_create(fd);
	volatile uint32_t *words = buffer_map(fd, handle);
	pid_t child;

	words[0] = 1;
	child = fork();
	if (!child) {
		REQUIRE(words[0] == 1);
		buffer_map(fd, handle)[1] = 2;
		REQUIRE(buffer_create(fd) == handle + 1);
		_exit(0);
	}
	child_wait(child, 0);
	REQUIRE(words[1] == 2);
	REQUIRE(vram_used(fd) >= 2 * BUFFER_BYTES);
}

/* All files are of one card, and what a process leaves is given back, however it ends. */
static void account(void)
{
	int fd = node_open();
	uint64_t before = vram_used(fd);

	for (int how = 0; how < 3; how++) {
		pid_t child = fork();

		if (!child) {
			int own = node_open();
			volatile uint32_t *words = buffer_map(own, buffer_create(own));

			words[0] = 1;
			REQUIRE(vram_used(own) >= before + BUFFER_BYTES);
			if (how == 1)
				raise(SIGKILL);
			if (how == 2)
				execl("/bin/true", "true", (char *)NULL);
			_exit(0);
		}
		child_wait(child, how == 1 ? SIGKILL : 0);
		vram_used_await(fd, before);
	}
}

/* A file goes with the last of its descriptors and mappings. */
static void last_close(void)
{
	int watch = node_open(), fd, copy;
	uint64_t before = vram_used(watch);
	volatile uint32_t *words;

	fd = node_open();
	words = buffer_map(fd, buffer_create(fd));
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 100);
	close(fd);
	REQUIRE(vram_used(copy) >= before + BUFFER_BYTES);
	dup2(watch, copy);
	REQUIRE(vram_used(watch) >= before + BUFFER_BYTES);
	munmap((void *)(uintptr_t)words, BUFFER_BYTES);
	vram_used_await(watch, before);
}

static void fd_send(int socket, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec text = { "", 1 };
	struct msghdr message = { .msg_iov = &text, .msg_iovlen = 1, .msg_control = control,
		                  .msg_controllen = sizeof(control) };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	REQUIRE(sendmsg(socket, &message, 0) == 1);
}

static int fd_receive(int socket)
{
	char control[CMSG_SPACE(sizeof(int))], byte;
	struct iovec text = { &byte, 1 };
	struct msghdr message = { .msg_iov = &text, .msg_iovlen = 1, .msg_control = control,
		                  .msg_controllen = sizeof(control) };
	int fd;

	REQUIRE(recvmsg(socket, &message, 0) == 1);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

static void prime_import(int socket)
{
	int fd = node_open();
	struct drm_prime_handle args = { .fd = fd_receive(socket) };
	volatile uint32_t *words;

	REQUIRE(!ioctl(fd, DRM_IOCTL_PRIME_FD_TO_HANDLE, &args));
	words = buffer_map(fd, args.handle);
	REQUIRE(words[5] == 55);
	words[6] = 66;
}

/* A buffer through a dma-buf, to a process that a program of its own runs. */
static void prime(void)
{
	int fd = node_open(), sockets[2];
	struct drm_prime_handle args = { .handle = buffer_create(fd), .flags = DRM_CLOEXEC | DRM_RDWR };
	volatile uint32_t *words = buffer_map(fd, args.handle);
	pid_t child;

	words[5] = 55;
	REQUIRE(!ioctl(fd, DRM_IOCTL_PRIME_HANDLE_TO_FD, &args));
	REQUIRE(fcntl(args.fd, F_GETFD) == FD_CLOEXEC);
	REQUIRE(lseek(args.fd, 0, SEEK_END) == (off_t)BUFFER_BYTES);
	REQUIRE(!socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
	child = fork();
	if (!child) {
		dup2(sockets[1], 0);
		execl(program, program, "prime-import", (char *)NULL);
		_exit(127);
	}
	fd_send(sockets[0], args.fd);
	child_wait(child, 0);
	REQUIRE(words[6] == 66);
}

/* A syncobj through its descriptor: one process waits until the other signals. */
static void syncobj(void)
{
	int fd = node_open();
	struct drm_syncobj_create made = { 0 };
	struct drm_syncobj_handle shared = { 0 };
	struct drm_syncobj_wait wait = { .timeout_nsec = INT64_MAX, .count_handles = 1,
		                         .flags = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT };
	pid_t child;

	REQUIRE(!ioctl(fd, DRM_IOCTL_SYNCOBJ_CREATE, &made));
	shared.handle = made.handle;
	REQUIRE(!ioctl(fd, DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD, &shared));
	child = fork();
	if (!child) {
		int own = node_open();
		struct drm_syncobj_array signal = { .count_handles = 1 };

		REQUIRE(!ioctl(own, DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE, &shared));
		signal.handles = (uintptr_t)&shared.handle;
		usleep(20000);
		REQUIRE(!ioctl(own, DRM_IOCTL_SYNCOBJ_SIGNAL, &signal));
		_exit(0);
	}
	wait.handles = (uintptr_t)&made.handle;
	REQUIRE(!ioctl(fd, DRM_IOCTL_SYNCOBJ_WAIT, &wait));
	child_wait(child, 0);
}

/* One that waits for what never comes can be killed, and leaves nothing. */
static void killed_waiting(void)
{
	int fd = node_open();
	uint64_t before = vram_used(fd);
	pid_t child = fork();

	if (!child) {
		int own = node_open();
		struct drm_syncobj_create made = { 0 };
		struct drm_syncobj_wait wait = { .timeout_nsec = INT64_MAX, .count_handles = 1,
			                         .flags = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT };

		buffer_create(own);
		REQUIRE(!ioctl(own, DRM_IOCTL_SYNCOBJ_CREATE, &made));
		wait.handles = (uintptr_t)&made.handle;
		ioctl(own, DRM_IOCTL_SYNCOBJ_WAIT, &wait);
		_exit(1);
	}
	while (vram_used(fd) == before)
		usleep(1000);
	usleep(20000);
	kill(child, SIGKILL);
	child_wait(child, SIGKILL);
	vram_used_await(fd, before);
}

/* Bad pointers are errors, not signals. */
static void bad_pointers(void)
{
	int fd = node_open();
	struct drm_amdgpu_info info = { .return_pointer = 8, .return_size = 4,
		                        .query = AMDGPU_INFO_ACCEL_WORKING };

	REQUIRE(ioctl(fd, DRM_IOCTL_GET_CAP, (void *)8) == -1 && errno == EFAULT);
	for (int i = 0; i < 3; i++)
		REQUIRE(ioctl(fd, DRM_IOCTL_AMDGPU_INFO, &info) == -1 && errno == EFAULT);
	info.query = AMDGPU_INFO_VRAM_USAGE;
	REQUIRE(ioctl(fd, DRM_IOCTL_AMDGPU_INFO, &info) == -1 && errno == EFAULT);
	REQUIRE(ioctl(fd, 0x64ff, NULL) == -1 && errno == EINVAL);
	REQUIRE(ioctl(-1, DRM_IOCTL_GET_CAP, &info) == -1 && errno == EBADF);
}

/* Answers that never change, asked often: each is right, and each counts. */
static void constants(void)
{
	int fd = node_open();

	for (int i = 0; i < 1000; i++) {
		char name[8] = "";
		uint32_t works = 0, size;
		struct drm_get_cap cap = { .capability = DRM_CAP_PRIME }, none = { .capability = 99 };
		struct drm_version version = { .name = name, .name_len = sizeof(name) - 1 };
		struct drm_amdgpu_info info = { .return_pointer = (uintptr_t)&works,
			                        .return_size = sizeof(works),
			                        .query = AMDGPU_INFO_ACCEL_WORKING };

		REQUIRE(!ioctl(fd, DRM_IOCTL_GET_CAP, &cap) && cap.value == 3);
		REQUIRE(ioctl(fd, DRM_IOCTL_GET_CAP, &none) == -1);
		REQUIRE(!ioctl(fd, DRM_IOCTL_VERSION, &version));
		REQUIRE(version.name == name && !strcmp(name, "amdgpu") && version.name_len == 6);
		REQUIRE(!version.desc && version.desc_len);
		REQUIRE(!ioctl(fd, DRM_IOCTL_AMDGPU_INFO, &info) && works == 1);
		/* More different questions than there is room for. */
		for (size = 1; size <= 40; size++) {
			uint8_t out[40] = { 0 };

			info = (struct drm_amdgpu_info){ .return_pointer = (uintptr_t)out,
				                         .return_size = size,
				                         .query = AMDGPU_INFO_DEV_INFO };
			if (i < 5)
				REQUIRE(!ioctl(fd, DRM_IOCTL_AMDGPU_INFO, &info) && out[0] == 0x50);
			REQUIRE(size == 40 || !out[size]);
		}
	}
}

static void *thread_main(void *argument)
{
	int fd = *(int *)argument;

	for (int i = 0; i < 200; i++) {
		struct drm_gem_close args = { .handle = buffer_create(fd) };

		REQUIRE(!ioctl(fd, DRM_IOCTL_GEM_CLOSE, &args));
	}
	return NULL;
}

/* The card clears a new buffer even if it is closed meanwhile. */
static void clears_await(int fd)
{
	for (int i = 0; i < 5000 && vram_used(fd) >= BUFFER_BYTES; i++)
		usleep(1000);
	REQUIRE(vram_used(fd) < BUFFER_BYTES);
}

static void threads(void)
{
	pthread_t all[8];
	int fd = node_open();

	for (int i = 0; i < 8; i++)
		REQUIRE(!pthread_create(&all[i], NULL, thread_main, &fd));
	for (int i = 0; i < 4; i++) {
		pid_t child = fork();

		if (!child) {
			thread_main(&fd);
			_exit(0);
		}
		child_wait(child, 0);
	}
	for (int i = 0; i < 8; i++)
		pthread_join(all[i], NULL);
	clears_await(fd);
}

#define CROWD 200

static struct drm_syncobj_create awaited;
static uint32_t waiting;

static void *crowd_main(void *argument)
{
	struct drm_syncobj_wait wait = { .handles = (uintptr_t)&awaited.handle, .count_handles = 1,
		                         .timeout_nsec = INT64_MAX,
		                         .flags = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT };

	__atomic_fetch_add(&waiting, 1, __ATOMIC_SEQ_CST);
	REQUIRE(!ioctl(*(int *)argument, DRM_IOCTL_SYNCOBJ_WAIT, &wait));
	return NULL;
}

/* However many threads wait, one more can signal what they wait for. */
static void crowd(void)
{
	struct drm_syncobj_array signal = { .handles = (uintptr_t)&awaited.handle, .count_handles = 1 };
	pthread_t all[CROWD];
	int fd = node_open();

	REQUIRE(!ioctl(fd, DRM_IOCTL_SYNCOBJ_CREATE, &awaited));
	for (int i = 0; i < CROWD; i++)
		REQUIRE(!pthread_create(&all[i], NULL, crowd_main, &fd));
	while (__atomic_load_n(&waiting, __ATOMIC_SEQ_CST) < CROWD)
		usleep(1000);
	usleep(200000);
	alarm(30);
	REQUIRE(!ioctl(fd, DRM_IOCTL_SYNCOBJ_SIGNAL, &signal));
	for (int i = 0; i < CROWD; i++)
		pthread_join(all[i], NULL);
}

/* A program that closes all that it doesn't know goes on. */
static void close_all(void)
{
	int fd = node_open();

	for (int i = 3; i < 2000; i++)
		if (i != fd)
			close(i);
	REQUIRE(vram_used(fd) < BUFFER_BYTES);
	close_range(3, ~0U, 0);
	REQUIRE(fcntl(fd, F_GETFD) == -1);
	fd = node_open();
	closefrom(3);
	fd = node_open();
	REQUIRE(vram_used(fd) < BUFFER_BYTES);
}

/* A child of vfork has its parent's memory, but descriptors of its own. */
static void vfork_with(int fd)
{
	for (int i = 0; i < 2; i++) {
		pid_t child = vfork();

		if (!child) {
			struct drm_gem_close args = { .handle = 77 };

			if (!ioctl(fd, DRM_IOCTL_GEM_CLOSE, &args) || errno != EINVAL)
				_exit(1);
			close(fd);
			close_range(3, ~0U, 0);
			execl("/bin/true", "true", (char *)NULL);
			_exit(127);
		}
		child_wait(child, 0);
		REQUIRE(vram_used(fd) >= BUFFER_BYTES);
	}
}

#define INHERITED 50

/* Also in a program whose first ioctl is the child's. */
static void forked_by_vfork(void)
{
	int fd = node_open();
	pid_t child;

	buffer_create(fd);
	vfork_with(fd);
	REQUIRE(dup2(fd, INHERITED) == INHERITED);
	child = fork();
	if (!child) {
		execl(program, program, "vfork-first", (char *)NULL);
		_exit(127);
	}
	child_wait(child, 0);
}

/* The card goes, and what is asked of it fails. */
static void orphan(void)
{
	int fd = node_open();
	struct drm_amdgpu_info args = { .return_size = 8, .query = AMDGPU_INFO_VRAM_USAGE };
	uint64_t used;

	args.return_pointer = (uintptr_t)&used;
	kill(getppid(), SIGKILL);
	while (!ioctl(fd, DRM_IOCTL_AMDGPU_INFO, &args))
		usleep(1000);
	REQUIRE(errno == ENODEV);
	REQUIRE(open(RENDER, O_RDWR) == -1);
	puts("gone");
}

int main(int argc, char **argv)
{
	static const struct check checks[] = {
		{ "inherit", inherit },   { "account", account },     { "last-close", last_close },
		{ "prime", prime },       { "syncobj", syncobj },     { "killed-waiting", killed_waiting },
		{ "threads", threads },   { "close-all", close_all }, { "bad-pointers", bad_pointers },
		{ "vfork", forked_by_vfork }, { "orphan", orphan },
		{ "constants", constants }, { "crowd", crowd },
	};

	program = argv[0];
	if (argc == 2 && !strcmp(argv[1], "prime-import")) {
		prime_import(0);
		return 0;
	}
	if (argc == 2 && !strcmp(argv[1], "vfork-first")) {
		vfork_with(INHERITED);
		return 0;
	}
	return check_run(checks, sizeof(checks) / sizeof(checks[0]), argc == 2 ? argv[1] : NULL);
}
