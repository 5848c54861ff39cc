/* What ioctls on an emulated card take from another process, and what its parts take anyway: microseconds,
 * the median and the best of many rounds. `vmkv emulate -- PROGRAM`. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "abi/amdgpu.h"
#include "abi/drm.h"

#define ROUNDS 200
#define CALLS 50    /* of a round */
#define MOST_US 3e5 /* on a busy machine there are fewer rounds */

static int node;
static uint32_t syncobj, buffer;

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void must(int result, const char *what)
{
	if (result >= 0)
		return;
	perror(what);
	exit(1);
}

/* ---- what is measured ------------------------------------------------------------------------ */

static void info_kept(void)
{
	uint32_t works = 0;
	struct drm_amdgpu_info args = { .return_pointer = (uintptr_t)&works, .return_size = sizeof(works),
		                        .query = AMDGPU_INFO_ACCEL_WORKING };

	must(ioctl(node, DRM_IOCTL_AMDGPU_INFO, &args), "INFO ACCEL_WORKING");
}

static void version_kept(void)
{
	struct drm_version args = { 0 };

	must(ioctl(node, DRM_IOCTL_VERSION, &args), "VERSION");
}

static void info_asked(void)
{
	uint64_t used = 0;
	struct drm_amdgpu_info args = { .return_pointer = (uintptr_t)&used, .return_size = sizeof(used),
		                        .query = AMDGPU_INFO_VRAM_USAGE };

	must(ioctl(node, DRM_IOCTL_AMDGPU_INFO, &args), "INFO VRAM_USAGE");
}

static void syncobj_reset(void)
{
	struct drm_syncobj_array args = { .handles = (uintptr_t)&syncobj, .count_handles = 1 };

	must(ioctl(node, DRM_IOCTL_SYNCOBJ_RESET, &args), "SYNCOBJ_RESET");
}

static void offset_asked(void)
{
	union drm_amdgpu_gem_mmap args = { .in = { .handle = buffer } };

	must(ioctl(node, DRM_IOCTL_AMDGPU_GEM_MMAP, &args), "GEM_MMAP");
}

static void map_delayed(void)
{
	struct drm_amdgpu_gem_va args = { .handle = buffer, .operation = AMDGPU_VA_OP_MAP,
		                          .flags = AMDGPU_VM_DELAY_UPDATE | AMDGPU_VM_PAGE_READABLE,
		                          .va_address = 1 << 30, .map_size = 4096 };

	must(ioctl(node, DRM_IOCTL_AMDGPU_GEM_VA, &args), "GEM_VA MAP");
	args.operation = AMDGPU_VA_OP_UNMAP;
	must(ioctl(node, DRM_IOCTL_AMDGPU_GEM_VA, &args), "GEM_VA UNMAP");
}

static void refused(void)
{
	struct drm_gem_close args = { .handle = 12345 };

	if (ioctl(node, DRM_IOCTL_GEM_CLOSE, &args) != -1 || errno != EINVAL)
		must(-1, "GEM_CLOSE of no handle");
}

static void unknown(void)
{
	if (ioctl(node, DRM_IO(0x9f), NULL) != -1 || errno != EINVAL)
		must(-1, "an unknown ioctl");
}

/* ---- what two processors need to talk at all ------------------------------------------------- */

static uint32_t ball;
static int there, back;

static void *ball_return(void *argument)
{
	(void)argument;
	for (;;) {
		uint32_t seen = __atomic_load_n(&ball, __ATOMIC_ACQUIRE);

		if (seen == 2)
			return NULL;
		if (seen == 1)
			__atomic_store_n(&ball, 0, __ATOMIC_RELEASE);
	}
}

static void ball_throw(void)
{
	__atomic_store_n(&ball, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&ball, __ATOMIC_ACQUIRE))
		;
}

static void *event_return(void *argument)
{
	uint64_t count;

	while (read(there, &count, sizeof(count)) > 0 && count < 100)
		must((int)write(back, &count, sizeof(count)), "eventfd");
	return argument;
}

static void event_throw(void)
{
	uint64_t count = 1;

	must((int)write(there, &count, sizeof(count)), "eventfd");
	must((int)read(back, &count, sizeof(count)), "eventfd");
}

static void cheapest_call(void)
{
	(void)lseek(node, 0, SEEK_CUR);
}

/* ---- measuring ------------------------------------------------------------------------------- */

static int later(const void *a, const void *b)
{
	double first = *(const double *)a, second = *(const double *)b;

	return (first > second) - (first < second);
}

static void measure(const char *name, void (*call)(void), int calls_each)
{
	double us[ROUNDS], first = now_us();
	int n = 0;

	while (n < ROUNDS && now_us() - first < MOST_US) {
		double began = now_us();

		for (int j = 0; j < CALLS; j++)
			call();
		us[n++] = (now_us() - began) / CALLS / calls_each;
	}
	qsort(us, (size_t)n, sizeof(us[0]), later);
	printf("%-44s %7.2f %7.2f\n", name, us[n / 2], us[0]);
}

static void measure_with(const char *name, void (*call)(void), void *(*other)(void *))
{
	uint64_t end = 100;
	pthread_t thread;

	must(-pthread_create(&thread, NULL, other, NULL), "thread");
	measure(name, call, 1);
	if (other == ball_return)
		__atomic_store_n(&ball, 2, __ATOMIC_RELEASE);
	else
		must((int)write(there, &end, sizeof(end)), "eventfd");
	(void)pthread_join(thread, NULL);
}

int main(void)
{
	union drm_amdgpu_gem_create made = { .in = { .bo_size = 1 << 20,
		                                     .domains = AMDGPU_GEM_DOMAIN_GTT } };
	struct drm_syncobj_create created = { 0 };

	node = open("/dev/dri/renderD128", O_RDWR | O_CLOEXEC);
	must(node, "/dev/dri/renderD128");
	must(ioctl(node, DRM_IOCTL_SYNCOBJ_CREATE, &created), "SYNCOBJ_CREATE");
	must(ioctl(node, DRM_IOCTL_AMDGPU_GEM_CREATE, &made), "GEM_CREATE");
	syncobj = created.handle;
	buffer = made.out.handle;
	there = eventfd(0, EFD_CLOEXEC);
	back = eventfd(0, EFD_CLOEXEC);
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("%-44s %7s %7s\n", "us", "median", "best");
	measure("a system call (lseek)", cheapest_call, 1);
	measure_with("to another processor and back", ball_throw, ball_return);
	measure_with("to another thread by eventfd and back", event_throw, event_return);
	measure("INFO ACCEL_WORKING, kept", info_kept, 1);
	measure("VERSION, kept", version_kept, 1);
	measure("INFO VRAM_USAGE", info_asked, 1);
	measure("SYNCOBJ_RESET", syncobj_reset, 1);
	measure("GEM_MMAP", offset_asked, 1);
	measure("GEM_VA, delayed", map_delayed, 2);
	measure("GEM_CLOSE of no handle: EINVAL", refused, 1);
	measure("an unknown ioctl: EINVAL", unknown, 1);
	return 0;
}
