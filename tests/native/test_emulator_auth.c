/* SPDX-License-Identifier: MIT
 *
 * The primary node: masters, authentication, and what a card without displays answers; names of files.
 */
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "emulator_fixture.h"

static vmkv_emulator *gpu;

static int primary_open(void)
{
	int fd;

	CHECK_EQ(vmkv_emulator_open_primary(gpu, &fd), 0);
	return fd;
}

/* Whether this process has CAP_SYS_ADMIN from now on; false: it never had. */
static bool admin_set(bool on)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];
	uint32_t admin = CAP_TO_MASK(CAP_SYS_ADMIN);

	CHECK(!syscall(SYS_capget, &header, data));
	if (!(data[0].permitted & admin))
		return false;
	data[0].effective = on ? data[0].effective | admin : data[0].effective & ~admin;
	CHECK(!syscall(SYS_capset, &header, data));
	return true;
}

static int authenticated(int fd)
{
	struct drm_client client = { 0 };

	CHECK_EQ(emulated_call(fd, DRM_IOCTL_GET_CLIENT, &client), 0);
	return client.auth;
}

static int context_alloc(int fd, int32_t priority)
{
	union drm_amdgpu_ctx args = { .in = { .op = AMDGPU_CTX_OP_ALLOC_CTX, .priority = priority } };

	return emulated_call(fd, DRM_IOCTL_AMDGPU_CTX, &args);
}

static void the_first_file_is_the_master(void)
{
	int a = primary_open(), b = primary_open();
	struct drm_auth auth = { 0 };

	CHECK_EQ(authenticated(a), 1);
	CHECK_EQ(emulated_call(b, DRM_IOCTL_AUTH_MAGIC, &auth), -EACCES);
	CHECK_EQ(emulated_call(a, DRM_IOCTL_AUTH_MAGIC, &auth), -EINVAL);
	CHECK_EQ(vmkv_emulator_close(a), 0);
	/* It went without a successor: there is one when somebody opens, or asks. */
	a = primary_open();
	CHECK_EQ(emulated_call(a, DRM_IOCTL_AUTH_MAGIC, &auth), -EINVAL);
	CHECK_EQ(vmkv_emulator_close(a), 0);
	CHECK_EQ(vmkv_emulator_close(b), 0);
}

static void the_master_lets_others_be_authenticated_once(void)
{
	bool could = admin_set(false);
	int master = primary_open(), other = primary_open();
	struct drm_auth auth = { 0 }, again = { 0 };

	CHECK_EQ(authenticated(other), 0);
	CHECK_EQ(context_alloc(other, 0), -EACCES);
	CHECK_EQ(emulated_call(other, DRM_IOCTL_GET_MAGIC, &auth), 0);
	CHECK_EQ(emulated_call(other, DRM_IOCTL_GET_MAGIC, &again), 0);
	CHECK_EQ(auth.magic, again.magic);
	CHECK_EQ(emulated_call(master, DRM_IOCTL_AUTH_MAGIC, &auth), 0);
	CHECK_EQ(authenticated(other), 1);
	CHECK_EQ(context_alloc(other, 0), 0);
	CHECK_EQ(emulated_call(master, DRM_IOCTL_AUTH_MAGIC, &auth), -EINVAL);
	CHECK_EQ(vmkv_emulator_close(master), 0);
	CHECK_EQ(vmkv_emulator_close(other), 0);
	if (could)
		admin_set(true);
}

static void who_was_master_may_drop_it_and_take_it_again(void)
{
	bool could = admin_set(false);
	int a = primary_open(), b = primary_open();

	CHECK_EQ(emulated_call(b, DRM_IOCTL_SET_MASTER, NULL), -EACCES);
	CHECK_EQ(emulated_call(b, DRM_IOCTL_DROP_MASTER, NULL), -EACCES);
	CHECK_EQ(emulated_call(a, DRM_IOCTL_SET_MASTER, NULL), 0);
	CHECK_EQ(emulated_call(a, DRM_IOCTL_DROP_MASTER, NULL), 0);
	CHECK_EQ(emulated_call(a, DRM_IOCTL_DROP_MASTER, NULL), -EINVAL);
	CHECK_EQ(emulated_call(b, DRM_IOCTL_SET_MASTER, NULL), -EACCES);
	CHECK_EQ(emulated_call(a, DRM_IOCTL_SET_MASTER, NULL), 0);
	if (could) {
		admin_set(true);
		CHECK_EQ(emulated_call(b, DRM_IOCTL_SET_MASTER, NULL), -EBUSY);
		CHECK_EQ(emulated_call(a, DRM_IOCTL_DROP_MASTER, NULL), 0);
		CHECK_EQ(emulated_call(b, DRM_IOCTL_SET_MASTER, NULL), 0);
	}
	CHECK_EQ(vmkv_emulator_close(a), 0);
	CHECK_EQ(vmkv_emulator_close(b), 0);
}

/* Of two masters in turn, each has magic numbers from 1 on. */
static void a_magic_is_for_the_master_of_its_file(void)
{
	bool is_admin = admin_set(true);
	int first = primary_open(), its = primary_open(), second = primary_open(), later;
	struct drm_auth auth = { 0 }, other = { 0 };

	CHECK_EQ(emulated_call(its, DRM_IOCTL_GET_MAGIC, &auth), 0);
	CHECK_EQ(auth.magic, 1);
	if (is_admin) {
		CHECK_EQ(emulated_call(first, DRM_IOCTL_DROP_MASTER, NULL), 0);
		CHECK_EQ(emulated_call(second, DRM_IOCTL_SET_MASTER, NULL), 0);
		CHECK_EQ(emulated_call(second, DRM_IOCTL_AUTH_MAGIC, &auth), -EINVAL);
		later = primary_open();
		CHECK_EQ(emulated_call(later, DRM_IOCTL_GET_MAGIC, &other), 0);
		CHECK_EQ(other.magic, 1);
		CHECK_EQ(emulated_call(second, DRM_IOCTL_AUTH_MAGIC, &other), 0);
		CHECK_EQ(emulated_call(second, DRM_IOCTL_AUTH_MAGIC, &auth), -EINVAL);
		CHECK_EQ(vmkv_emulator_close(later), 0);
		/* Who was master has its own again. */
		CHECK_EQ(emulated_call(second, DRM_IOCTL_DROP_MASTER, NULL), 0);
		CHECK_EQ(emulated_call(first, DRM_IOCTL_SET_MASTER, NULL), 0);
	}
	CHECK_EQ(emulated_call(first, DRM_IOCTL_AUTH_MAGIC, &auth), 0);
	CHECK_EQ(vmkv_emulator_close(first), 0);
	CHECK_EQ(vmkv_emulator_close(its), 0);
	CHECK_EQ(vmkv_emulator_close(second), 0);
}

static void a_magic_is_given_again_when_its_file_is_closed(void)
{
	int master = primary_open(), fds[3];
	struct drm_auth auth = { 0 };

	for (uint32_t i = 0; i < 3; i++) {
		fds[i] = primary_open();
		CHECK_EQ(emulated_call(fds[i], DRM_IOCTL_GET_MAGIC, &auth), 0);
		CHECK_EQ(auth.magic, i + 1);
	}
	CHECK_EQ(vmkv_emulator_close(fds[1]), 0);
	CHECK_EQ(emulated_call(master, DRM_IOCTL_GET_MAGIC, &auth), 0);
	CHECK_EQ(auth.magic, 2);
	CHECK_EQ(vmkv_emulator_close(fds[0]), 0);
	CHECK_EQ(vmkv_emulator_close(fds[2]), 0);
	CHECK_EQ(vmkv_emulator_close(master), 0);
}

static void render_nodes_know_nothing_of_masters(void)
{
	static const unsigned long requests[] = { DRM_IOCTL_SET_MASTER, DRM_IOCTL_DROP_MASTER,
		                                  DRM_IOCTL_GET_MAGIC, DRM_IOCTL_AUTH_MAGIC,
		                                  DRM_IOCTL_GET_UNIQUE, DRM_IO(0xa0) };
	uint64_t argument[8] = { 0 };
	int fd;

	CHECK_EQ(vmkv_emulator_open(gpu, &fd), 0);
	for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++)
		CHECK_EQ(emulated_call(fd, requests[i], argument), -EACCES);
	CHECK_EQ(vmkv_emulator_close(fd), 0);
}

/* Modesetting isn't supported, and that isn't counted as something unknown. */
static void there_are_no_displays(void)
{
	uint64_t argument[16] = { 0 }, refused = emulated_stats(gpu).refused;
	int master = primary_open(), other = primary_open();

	for (uint32_t number = 0xa0; number <= 0xd0; number++) {
		bool ours = number < 0xbf && (number < 0xb2 || number > 0xb4);
		int error;

		if (!ours && number != 0xce && (number < 0xc6 || number > 0xc9))
			continue;
		error = emulated_call(master, _IOWR('d', number, argument), argument);
		CHECK_EQ(error, number == 0xa8 || number == 0xa9 ? 0 : -EOPNOTSUPP);
	}
	CHECK_EQ(emulated_call(other, _IOWR('d', 0xa0, argument), argument), -EOPNOTSUPP);
	CHECK_EQ(emulated_call(other, _IOWR('d', 0xbc, argument), argument), -EACCES); /* ATOMIC */
	CHECK_EQ(emulated_stats(gpu).refused, refused);
	CHECK_EQ(vmkv_emulator_close(master), 0);
	CHECK_EQ(vmkv_emulator_close(other), 0);
}

static void dumb_buffers_can_be_made_all_the_same(void)
{
	struct drm_mode_create_dumb make = { .width = 100, .height = 10, .bpp = 32 };
	struct drm_mode_map_dumb map = { 0 };
	struct drm_mode_destroy_dumb end = { 0 };
	int fd = primary_open();
	void *view;

	CHECK_EQ(emulated_call(fd, DRM_IOCTL_MODE_CREATE_DUMB, &make), 0);
	CHECK_EQ(make.pitch, 128 * 4);
	CHECK_EQ(make.size, 8192);
	map.handle = end.handle = make.handle;
	CHECK_EQ(emulated_call(fd, DRM_IOCTL_MODE_MAP_DUMB, &map), 0);
	view = mmap(NULL, make.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)map.offset);
	CHECK(view != MAP_FAILED);
	munmap(view, make.size);
	CHECK_EQ(emulated_call(fd, DRM_IOCTL_MODE_DESTROY_DUMB, &end), 0);
	CHECK_EQ(emulated_call(fd, DRM_IOCTL_MODE_MAP_DUMB, &map), -ENOENT);
	make = (struct drm_mode_create_dumb){ .width = 65536, .height = 65536, .bpp = 32 };
	CHECK_EQ(emulated_call(fd, DRM_IOCTL_MODE_CREATE_DUMB, &make), -EINVAL);
	CHECK_EQ(vmkv_emulator_close(fd), 0);
}

static void the_bus_id_comes_with_the_interface_s_version(void)
{
	struct drm_set_version version = { .drm_di_major = 1, .drm_di_minor = 4, .drm_dd_major = -1,
		                           .drm_dd_minor = -1 };
	char text[32] = "";
	struct drm_unique unique = { .unique_len = sizeof(text), .unique = text };
	int fd = primary_open();

	CHECK_EQ(emulated_call(fd, DRM_IOCTL_GET_UNIQUE, &unique), 0);
	CHECK_EQ(unique.unique_len, 0);
	CHECK_EQ(emulated_call(fd, DRM_IOCTL_SET_VERSION, &version), 0);
	unique.unique_len = sizeof(text);
	CHECK_EQ(emulated_call(fd, DRM_IOCTL_GET_UNIQUE, &unique), 0);
	CHECK_EQ(unique.unique_len, strlen("pci:" VMKV_EMULATOR_PCI));
	CHECK_STR(text, "pci:" VMKV_EMULATOR_PCI);
	CHECK_EQ(vmkv_emulator_close(fd), 0);
}

static int name_set(int fd, const char *name, size_t bytes)
{
	struct drm_set_client_name args = { .name_len = bytes, .name = (uintptr_t)name };

	return emulated_call(fd, DRM_IOCTL_SET_CLIENT_NAME, &args);
}

static void files_have_names_from_7_2_on(void)
{
	struct emulated new = emulated_open("gfx1201?vram=64MiB&kernel=7.2"), old;
	char name[80];

	memset(name, 'n', sizeof(name));
	CHECK_EQ(name_set(new.fd, name, 64), 0);
	CHECK_EQ(name_set(new.fd, name, 65), -EINVAL);
	CHECK_EQ(name_set(new.fd, "two words", 9), -EINVAL);
	CHECK_EQ(name_set(new.fd, "end", 4), -EINVAL); /* with its zero */
	CHECK_EQ(name_set(new.fd, (const char *)8, 3), -EFAULT);
	CHECK_EQ(name_set(new.fd, NULL, 0), 0);
	emulated_close(&new);
	old = emulated_open("gfx1201?vram=64MiB&kernel=6.12");
	CHECK_EQ(name_set(old.fd, "name", 4), -EINVAL);
	CHECK_EQ(emulated_stats(old.gpu).refused, 1);
	emulated_close(&old);
}

static void stats_are_zero(void)
{
	struct drm_stats stats = { .count = 7 };
	int fd = primary_open();

	CHECK_EQ(emulated_call(fd, DRM_IOCTL_GET_STATS, &stats), 0);
	CHECK_EQ(stats.count, 0);
	CHECK_EQ(vmkv_emulator_close(fd), 0);
}

int main(void)
{
	gpu = emulated_create("gfx1201?vram=64MiB");
	RUN(the_first_file_is_the_master);
	RUN(the_master_lets_others_be_authenticated_once);
	RUN(who_was_master_may_drop_it_and_take_it_again);
	RUN(a_magic_is_for_the_master_of_its_file);
	RUN(a_magic_is_given_again_when_its_file_is_closed);
	RUN(render_nodes_know_nothing_of_masters);
	RUN(there_are_no_displays);
	RUN(dumb_buffers_can_be_made_all_the_same);
	RUN(the_bus_id_comes_with_the_interface_s_version);
	RUN(files_have_names_from_7_2_on);
	RUN(stats_are_zero);
	vmkv_emulator_destroy(gpu);
	return 0;
}
