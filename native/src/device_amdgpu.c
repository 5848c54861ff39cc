/* SPDX-License-Identifier: MIT
 *
 * Opening an amdgpu device: its node, options, and what the card must have.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "amdgpu.h"
#include "util.h"

#define NODES "/dev/dri"
/* The oldest interface that has what is used here: timeline syncobjs in submissions. */
#define DRM_MAJOR 3
#define DRM_MINOR_MIN 33

static void device_destroy(struct vmkv_device *device)
{
	struct vmkv_amdgpu *gpu = amdgpu_of(device);

	amdgpu_submit_fini(gpu);
	amdgpu_window_fini(gpu);
	if (gpu->handle && !gpu->adopted_handle)
		gpu->drm.amdgpu_device_deinitialize(gpu->handle);
	if (gpu->on_destroy)
		gpu->on_destroy(gpu->owner);
	vmkv_libdrm_unload(&gpu->drm);
	pthread_mutex_destroy(&gpu->submit_lock);
	pthread_mutex_destroy(&gpu->flush_lock);
	pthread_mutex_destroy(&gpu->lists_lock);
	vmkv_device_fini(device);
	free(gpu);
}

static const struct vmkv_device_ops amdgpu_ops = {
	.destroy = device_destroy,
	.reserve = amdgpu_reserve,
	.release = amdgpu_release,
	.slab_create = amdgpu_slab_create,
	.slab_destroy = amdgpu_slab_destroy,
	.map = amdgpu_map,
	.unmap = amdgpu_unmap,
	.fill = amdgpu_fill,
	.copy = amdgpu_copy,
	.wait = amdgpu_wait,
	.outcome = amdgpu_outcome,
	.health = amdgpu_health,
};

/* ---- options --------------------------------------------------------------------------------- */

static int window_parse(const char *text, struct vmkv_amdgpu *gpu, uint64_t *begin, uint64_t *end)
{
	char *rest;

	*begin = strtoull(text, &rest, 0);
	if (*text >= '0' && *text <= '9' && *rest == '-' && rest[1] >= '0' && rest[1] <= '9') {
		*end = strtoull(rest + 1, &rest, 0);
		if (!*rest && *begin < *end)
			return 0;
	}
	return vmkv_device_fail(&gpu->base, -EINVAL,
	                        "window=%.60s is no range of addresses: write "
	                        "window=0x200000000000-0x300000000000", text);
}

static int option_set(struct vmkv_amdgpu *gpu, const char *name, const char *value,
                      struct amdgpu_open *request)
{
	static const char *const commits[] = { "cs", "engine", "bo" };
	bool known;
	int rc = vmkv_safe_option(&gpu->base.info, name, value, &known, gpu->base.error,
	                          sizeof(gpu->base.error));

	if (known)
		return rc;
	if (!strcmp(name, "window"))
		return window_parse(value, gpu, &request->window_begin, &request->window_end);
	if (!strcmp(name, "slabs")) {
		gpu->listed = !strcmp(value, "listed");
		if (gpu->listed || !strcmp(value, "always-valid"))
			return 0;
		return vmkv_device_fail(&gpu->base, -EINVAL,
		                        "slabs=%.40s is none of always-valid and listed", value);
	}
	if (strcmp(name, "commit"))
		return vmkv_device_fail(&gpu->base, -EINVAL,
		                        "unknown option \"%.40s\" of device amdgpu: it has commit, slabs, "
		                        "window, safe and wait_us", name);
	for (uint32_t i = 0; i < 3; i++) {
		if (!strcmp(value, commits[i])) {
			gpu->commit = i;
			return 0;
		}
	}
	return vmkv_device_fail(&gpu->base, -EINVAL, "commit=%.40s is none of cs, engine and bo",
	                        value);
}

static int options_parse(struct vmkv_amdgpu *gpu, struct amdgpu_open *request)
{
	const char *text = request->options;
	struct vmkv_option option;
	char *error = gpu->base.error;
	size_t n = sizeof(gpu->base.error);
	int rc = vmkv_option_next(&text, "amdgpu", &option, error, n);

	while (rc > 0) {
		rc = option_set(gpu, option.name, option.value, request);
		if (!rc)
			rc = vmkv_option_next(&text, "amdgpu", &option, error, n);
	}
	if (!rc)
		rc = vmkv_safe_options_end(&gpu->base.info, error, n);
	if (!rc && gpu->commit == VMKV_COMMIT_ENGINE &&
	    vmkv_device_is_safe(&gpu->base, VMKV_SAFE_WAIT_AFTER_MAP))
		return vmkv_device_fail(&gpu->base, -EINVAL,
		                        "safe=wait-after-map can't be kept with commit=engine, where the "
		                        "engine's submission maps: use commit=cs or commit=bo");
	return rc;
}

/* ---- the card -------------------------------------------------------------------------------- */

/* A DRM file that isn't amdgpu's would crash libdrm_amdgpu, which takes the driver's name for
 * granted. */
static int check_driver(struct vmkv_amdgpu *gpu, int fd, const char *what)
{
	drmVersionPtr version = gpu->drm.drmGetVersion(fd);
	int major, minor;
	char name[32] = "";

	if (!version)
		return vmkv_device_fail(&gpu->base, -ENODEV, "%s is no DRM node", what);
	vmkv_text(name, sizeof(name), "%s", version->name);
	major = version->version_major;
	minor = version->version_minor;
	gpu->drm.drmFreeVersion(version);
	if (strcmp(name, "amdgpu"))
		return vmkv_device_fail(&gpu->base, -ENODEV,
		                        "%s is a node of driver %s, not of amdgpu", what, name);
	if (major != DRM_MAJOR || minor < DRM_MINOR_MIN)
		return vmkv_device_fail(&gpu->base, -ENOTSUP,
		                        "the kernel's amdgpu interface is %d.%d: %d.%d or newer (Linux "
		                        "5.2) is needed, for timeline syncobjs", major, minor, DRM_MAJOR,
		                        DRM_MINOR_MIN);
	gpu->drm_minor = (uint32_t)minor;
	return 0;
}

static int fail_initialize(struct vmkv_amdgpu *gpu, int rc)
{
	/* What libdrm makes of the answer to ACCEL_WORKING. */
	if (rc == -EBADF)
		return vmkv_device_fail(&gpu->base, -ENOTSUP,
		                        "the amdgpu driver says that acceleration doesn't work on this "
		                        "card: dmesg tells why");
	return vmkv_device_fail(&gpu->base, -ENODEV, "libdrm_amdgpu can't drive the card: %s",
	                        strerror(-rc));
}

static int handle_open(struct vmkv_amdgpu *gpu, const struct amdgpu_open *request)
{
	uint32_t major, minor;
	int rc;

	if (request->handle) {
		gpu->handle = request->handle;
		gpu->adopted_handle = true;
		rc = vmkv_libdrm_check_device(&gpu->drm, gpu->handle);
		if (rc)
			return vmkv_device_fail(&gpu->base, rc == -EXDEV ? rc : -EINVAL,
			                        rc == -EXDEV
			                            ? "the engine's amdgpu device is of another copy of "
			                              "libdrm_amdgpu: link the system's, or give the DRM "
			                              "descriptor and a window instead"
			                            : "the engine's amdgpu device has no open DRM node");
	} else {
		rc = request->private_device && gpu->drm.amdgpu_device_initialize2
		         ? gpu->drm.amdgpu_device_initialize2(request->fd, false, &major, &minor,
		                                              &gpu->handle)
		         : gpu->drm.amdgpu_device_initialize(request->fd, &major, &minor, &gpu->handle);
		if (rc) {
			gpu->handle = NULL;
			return fail_initialize(gpu, rc);
		}
	}
	gpu->fd = gpu->drm.amdgpu_device_get_fd(gpu->handle);
	return request->handle ? check_driver(gpu, gpu->fd, "the engine's device") : 0;
}

/* What must be there, asked of the card and its kernel. */
static int card_check(struct vmkv_amdgpu *gpu)
{
	struct drm_amdgpu_info_hw_ip dma = { 0 };
	struct drm_amdgpu_memory_info memory = { 0 };
	uint32_t lost = 0;

	if (gpu->drm.amdgpu_query_info(gpu->handle, AMDGPU_INFO_DEV_INFO, sizeof(gpu->card),
	                               &gpu->card) ||
	    gpu->drm.amdgpu_query_info(gpu->handle, AMDGPU_INFO_MEMORY, sizeof(memory), &memory))
		return vmkv_device_fail(&gpu->base, -ENOTSUP, "the kernel tells nothing of the card");
	if (gpu->drm.amdgpu_query_hw_ip_info(gpu->handle, AMDGPU_HW_IP_DMA, 0, &dma) ||
	    !dma.available_rings)
		return vmkv_device_fail(&gpu->base, -ENOTSUP,
		                        "the card offers no SDMA ring, which commits and fills need");
	gpu->drm.amdgpu_query_info(gpu->handle, AMDGPU_INFO_VRAM_LOST_COUNTER, sizeof(lost), &lost);
	gpu->vram_lost_count = lost;
	/* SDMA 5.2 widened the count of a packet from 22 to 30 bits. */
	gpu->sdma_packet_bytes = dma.hw_ip_version_major > 5 || (dma.hw_ip_version_major == 5 &&
	                                                         dma.hw_ip_version_minor >= 2)
	                             ? 0x3fffff00
	                             : 0x3fff00;
	gpu->base.info.memory_bytes = memory.vram.usable_heap_size;
	gpu->base.info.granule_bytes = gpu->card.virtual_address_alignment;
	gpu->base.info.features = VMKV_FEATURE_ZEROED_SLABS | VMKV_FEATURE_ASYNCHRONOUS;
	return 0;
}

/* ---- open ------------------------------------------------------------------------------------ */

static struct vmkv_amdgpu *device_alloc(void)
{
	struct vmkv_amdgpu *gpu = calloc(1, sizeof(*gpu));

	if (!gpu)
		return NULL;
	if (vmkv_device_init(&gpu->base, &amdgpu_ops)) {
		free(gpu);
		return NULL;
	}
	pthread_mutex_init(&gpu->submit_lock, NULL);
	pthread_mutex_init(&gpu->flush_lock, NULL);
	pthread_mutex_init(&gpu->lists_lock, NULL);
	return gpu;
}

int amdgpu_device_open(const struct amdgpu_open *given, char *error, size_t error_bytes,
                       struct vmkv_amdgpu **ret)
{
	struct amdgpu_open request = *given;
	struct vmkv_amdgpu *gpu = device_alloc();
	int rc;

	if (!gpu) {
		vmkv_text(error, error_bytes, "no host memory for the device");
		return -ENOMEM;
	}
	rc = vmkv_libdrm_load(&gpu->drm, gpu->base.error, sizeof(gpu->base.error));
	if (!rc)
		rc = options_parse(gpu, &request);
	if (!rc && request.before)
		rc = request.before(gpu, &request);
	if (!rc && request.fd >= 0)
		rc = check_driver(gpu, request.fd, request.what ? request.what : request.name);
	if (!rc)
		rc = handle_open(gpu, &request);
	if (!rc)
		rc = card_check(gpu);
	if (!rc)
		rc = amdgpu_window_init(gpu, request.window_begin, request.window_end);
	if (!rc)
		rc = amdgpu_submit_init(gpu);
	if (rc) {
		vmkv_text(error, error_bytes, "%s", gpu->base.error);
		device_destroy(&gpu->base);
		return rc;
	}
	vmkv_text(gpu->base.info.name, sizeof(gpu->base.info.name), "%s", request.name);
	*ret = gpu;
	return 0;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static int fail_permission(const char *path, char *error, size_t error_bytes)
{
	struct stat status;
	struct group *group;

	if (stat(path, &status)) {
		vmkv_text(error, error_bytes, "no permission to open %.80s, nor to see whose it is", path);
		return -EACCES;
	}
	group = getgrgid(status.st_gid);
	if (!group)
		vmkv_text(error, error_bytes,
		          "no permission to open %.80s: it is for group %u, which has no name here (in a "
		          "container: run it with --group-add %u)", path, status.st_gid, status.st_gid);
	else if (status.st_gid == 0)
		vmkv_text(error, error_bytes,
		          "no permission to open %.80s: it is root's and of group %s; give it to the group "
		          "of such nodes with: sudo chgrp render %.80s", path, group->gr_name, path);
	else if (!(status.st_mode & S_IRGRP) || !(status.st_mode & S_IWGRP))
		vmkv_text(error, error_bytes,
		          "no permission to open %.80s, not for its group %s either: allow it with: sudo "
		          "chmod g+rw %.80s", path, group->gr_name, path);
	else
		vmkv_text(error, error_bytes,
		          "no permission to open %.80s: its group is %s; join it with: sudo usermod -aG %s "
		          "$USER, then log in anew", path, group->gr_name, group->gr_name);
	return -EACCES;
}

/* Open the node, or the first render node that is amdgpu's. *fd is the caller's. */
static int node_open(const char *path, char *error, size_t error_bytes, int *fd)
{
	*fd = open(path, O_RDWR | O_CLOEXEC);
	if (*fd >= 0)
		return 0;
	if (errno == EACCES || errno == EPERM)
		return fail_permission(path, error, error_bytes);
	vmkv_text(error, error_bytes, "cannot open %.80s: %s", path, strerror(errno));
	return -ENODEV;
}

static int node_find(char *path, size_t n, char *error, size_t error_bytes)
{
	char driver[128], link[160];
	const char *base;

	for (int minor = 128; minor < 192; minor++) {
		ssize_t length;

		vmkv_text(path, n, NODES "/renderD%d", minor);
		if (access(path, F_OK))
			continue;
		vmkv_text(link, sizeof(link), "/sys/class/drm/renderD%d/device/driver", minor);
		length = readlink(link, driver, sizeof(driver) - 1);
		driver[length > 0 ? length : 0] = 0;
		base = strrchr(driver, '/');
		/* Where sysfs doesn't tell, opening it will. */
		if (!base || !strcmp(base + 1, "amdgpu"))
			return 0;
	}
	vmkv_text(error, error_bytes,
	          "no render node of an amdgpu card in " NODES ": is there a Radeon, and is the amdgpu "
	          "driver loaded? \"emulated:gfx1201\" needs none");
	return -ENODEV;
}

int vmkv_device_amdgpu_open(const char *path, const char *options,
                            const struct vmkv_device_options *given, char *error,
                            size_t error_bytes, struct vmkv_device **ret)
{
	struct amdgpu_open request = {
		.fd = -1,
		.options = options,
		.window_begin = given->window_begin,
		.window_end = given->window_end,
	};
	char node[160] = "", name[256], what[32];
	struct vmkv_amdgpu *gpu;
	int rc = 0, opened = -1;

	if (given->adopt > VMKV_ADOPT_AMDGPU ||
	    (given->adopt == VMKV_ADOPT_AMDGPU && !given->amdgpu_device) ||
	    (given->adopt == VMKV_ADOPT_FD && given->drm_fd < 0) || (given->adopt && *path)) {
		vmkv_text(error, error_bytes,
		          "adopt takes a DRM descriptor or an amdgpu_device_handle, and no path besides");
		return -EINVAL;
	}
	if (given->adopt == VMKV_ADOPT_AMDGPU) {
		request.handle = given->amdgpu_device;
	} else if (given->adopt == VMKV_ADOPT_FD) {
		request.fd = given->drm_fd;
		vmkv_text(what, sizeof(what), "descriptor %d", given->drm_fd);
		request.what = what;
		if (fcntl(given->drm_fd, F_GETFD) < 0) {
			vmkv_text(error, error_bytes, "%s isn't open", what);
			return -EINVAL;
		}
	} else {
		request.what = node;
		vmkv_text(node, sizeof(node), "%s", path);
		if (!*path)
			rc = node_find(node, sizeof(node), error, error_bytes);
		if (!rc)
			rc = node_open(node, error, error_bytes, &opened);
		request.fd = opened;
	}
	if (rc)
		return rc;
	vmkv_text(name, sizeof(name), "amdgpu%s%s%s%s", *node ? ":" : "", node, *options ? "?" : "",
	          options);
	request.name = name;
	rc = amdgpu_device_open(&request, error, error_bytes, &gpu);
	if (opened >= 0)
		close(opened); /* libdrm has a duplicate */
	if (!rc)
		*ret = &gpu->base;
	return rc;
}
