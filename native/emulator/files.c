/* SPDX-License-Identifier: MIT
 *
 * DRM files and their descriptors.
 *
 * A descriptor is a new open file description of the card's memory file, so that mmap of it at the
 * offsets of GEM_MMAP needs nothing else. Which DRM file it stands for is its position: duplicates
 * share it, and nobody reads, writes or seeks a DRM file.
 *
 * Nobody tells when the last duplicate is closed, here or in another process; but each file's descriptors
 * have a lock on one byte of the memory file, which goes with the last of them. Who is to see the card as
 * it is now has such files released first.
 *
 * A card belongs to the process that made it. A child of fork gets a copy of the state, but shares the
 * memory file, which two copies would divide each in its own way: so a child knows no files.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "entry.h"
#include "preload/protocol.h"

/* Protects the list of cards, and all references of files; with the card's lock also the cards'
 * lists of files. Taken before a card's lock. */
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t registry_changed = PTHREAD_COND_INITIALIZER;
static struct emu_list registry = { &registry, &registry };
static uint64_t last_id; /* of files and cards */

/* Another thread may have held the lock as the process forked. */
static void registry_forget(void)
{
	pthread_mutex_init(&registry_lock, NULL);
	pthread_cond_init(&registry_changed, NULL);
	emu_list_init(&registry);
}

static void fork_watch(void)
{
	(void)pthread_atfork(NULL, NULL, registry_forget);
}

void emu_gpu_register(struct emu_gpu *gpu)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, fork_watch);
	pthread_mutex_lock(&registry_lock);
	gpu->id = ++last_id;
	gpu->process = getpid();
	emu_list_append(&registry, &gpu->link);
	pthread_mutex_unlock(&registry_lock);
}

static struct emu_file *registry_find(uint64_t id)
{
	EMU_FOR_EACH(card, &registry) {
		struct emu_gpu *gpu = EMU_ENTRY(card, struct emu_gpu, link);

		EMU_FOR_EACH(item, &gpu->files) {
			struct emu_file *file = EMU_ENTRY(item, struct emu_file, link);

			if (file->id == id)
				return file;
		}
	}
	return NULL;
}

struct emu_file *emu_file_get(int fd)
{
	off_t position = lseek(fd, 0, SEEK_CUR);

	return emu_file_get_at(position < 0 ? 0 : (uint64_t)position);
}

struct emu_file *emu_file_get_at(uint64_t position)
{
	struct emu_file *file;

	if (!EMU_POSITION_IS_MARKED(position)) {
		errno = ENOTTY;
		return NULL;
	}
	pthread_mutex_lock(&registry_lock);
	file = registry_find(position & EMU_POSITION_ID);
	if (file && file->is_open)
		file->references++;
	else
		file = NULL;
	pthread_mutex_unlock(&registry_lock);
	if (!file)
		errno = ENODEV;
	return file;
}

static void file_fini(struct emu_file *file)
{
	struct emu_gpu *gpu = file->gpu;

	pthread_mutex_lock(&gpu->lock);
	emu_auth_close(file);
	emu_file_jobs_fini(file);
	emu_file_memory_fini(file);
	emu_vm_destroy(file->vm);
	file->vm = NULL;
	emu_ids_fini(&file->handles);
	emu_ids_fini(&file->syncobjs);
	emu_ids_fini(&file->contexts);
	emu_ids_fini(&file->bo_lists);
	pthread_mutex_unlock(&gpu->lock);
}

static void file_unlink(struct emu_file *file)
{
	struct emu_gpu *gpu = file->gpu;

	pthread_mutex_lock(&registry_lock);
	pthread_mutex_lock(&gpu->lock);
	emu_list_remove(&file->link);
	pthread_mutex_unlock(&gpu->lock);
	pthread_cond_broadcast(&registry_changed);
	pthread_mutex_unlock(&registry_lock);
	free(file);
}

void emu_file_put(struct emu_file *file)
{
	bool last;

	pthread_mutex_lock(&registry_lock);
	last = --file->references == 0;
	pthread_mutex_unlock(&registry_lock);
	if (!last)
		return;
	file_fini(file);
	file_unlink(file);
}

void emu_file_retire(struct emu_file *file)
{
	bool was_open;

	pthread_mutex_lock(&registry_lock);
	was_open = file->is_open;
	file->is_open = false;
	pthread_mutex_unlock(&registry_lock);
	if (was_open)
		emu_file_put(file);
}

/* ---- files that nobody has any more ---------------------------------------------------------- */

/* As long as any of a file's descriptors is open, this lock is there. */
static struct flock file_lock(const struct emu_file *file)
{
	return (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET,
		               .l_start = (off_t)(EMU_POSITION_MARK | file->id), .l_len = 1 };
}

static bool is_given_up(const struct emu_file *file)
{
	struct flock lock = file_lock(file);

	return __atomic_load_n(&file->locked, __ATOMIC_SEQ_CST) &&
	       !fcntl(file->gpu->memory.fd, F_OFD_GETLK, &lock) && lock.l_type == F_UNLCK;
}

/* The position of such a file, which is not found again; 0: there is none. */
static uint64_t given_up_take(struct emu_gpu *gpu)
{
	uint64_t position = 0;

	pthread_mutex_lock(&gpu->lock);
	EMU_FOR_EACH(item, &gpu->files) {
		struct emu_file *file = EMU_ENTRY(item, struct emu_file, link);

		if (!is_given_up(file))
			continue;
		__atomic_store_n(&file->locked, false, __ATOMIC_SEQ_CST);
		position = EMU_POSITION_MARK | file->id;
		break;
	}
	pthread_mutex_unlock(&gpu->lock);
	return position;
}

void emu_files_sweep(struct emu_gpu *gpu)
{
	uint64_t position;

	while ((position = given_up_take(gpu))) {
		struct emu_file *file = emu_file_get_at(position);

		if (!file)
			continue;
		emu_file_retire(file);
		emu_file_put(file);
	}
}

/* ---- cards go, files are opened -------------------------------------------------------------- */

static struct emu_file *open_file_get(struct emu_gpu *gpu)
{
	struct emu_file *ret = NULL;

	pthread_mutex_lock(&registry_lock);
	EMU_FOR_EACH(item, &gpu->files) {
		struct emu_file *file = EMU_ENTRY(item, struct emu_file, link);

		if (file->is_open) {
			file->references++;
			ret = file;
			break;
		}
	}
	pthread_mutex_unlock(&registry_lock);
	return ret;
}

void emu_gpu_unregister(struct emu_gpu *gpu)
{
	struct emu_file *file;

	pthread_mutex_lock(&gpu->lock);
	gpu->going = true;
	pthread_cond_broadcast(&gpu->changed);
	pthread_mutex_unlock(&gpu->lock);
	while ((file = open_file_get(gpu))) {
		emu_file_retire(file);
		emu_file_put(file);
	}
	pthread_mutex_lock(&registry_lock);
	while (!emu_list_is_empty(&gpu->files))
		pthread_cond_wait(&registry_changed, &registry_lock);
	emu_list_remove(&gpu->link);
	pthread_mutex_unlock(&registry_lock);
}

static int descriptor_open(struct emu_file *file, int *ret)
{
	uint64_t position = EMU_POSITION_MARK | (file->primary ? EMU_POSITION_PRIMARY : 0) |
	                    (file->served ? EMU_POSITION_SERVED : 0) | file->id;
	struct flock lock = file_lock(file);
	char path[40];
	int fd, err;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file->gpu->memory.fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (lseek(fd, (off_t)position, SEEK_SET) < 0) {
		err = -errno;
		close(fd);
		return err;
	}
	/* Without it, the file stays until it is closed by name, or the card goes. */
	if (!fcntl(fd, F_OFD_SETLK, &lock))
		__atomic_store_n(&file->locked, true, __ATOMIC_SEQ_CST);
	*ret = fd;
	return 0;
}

static int file_init(struct emu_gpu *gpu, struct emu_file *file)
{
	int err;

	pthread_mutex_lock(&gpu->lock);
	err = emu_vm_create(file, &file->vm);
	if (!err)
		emu_auth_open(file);
	pthread_mutex_unlock(&gpu->lock);
	return err;
}

/* From here on descriptors find it. */
static void file_link(struct emu_gpu *gpu, struct emu_file *file)
{
	pthread_mutex_lock(&registry_lock);
	pthread_mutex_lock(&gpu->lock);
	file->id = ++last_id;
	file->served = gpu->served;
	file->is_open = true;
	file->references = 1;
	emu_list_append(&gpu->files, &file->link);
	pthread_mutex_unlock(&gpu->lock);
	pthread_mutex_unlock(&registry_lock);
}

int emu_file_open(struct emu_gpu *gpu, bool primary, int *fd)
{
	struct emu_file *file;
	int err;

	if (gpu->process != getpid())
		return -ENODEV;
	emu_files_sweep(gpu);
	file = calloc(1, sizeof(*file));
	if (!file)
		return -ENOMEM;
	file->gpu = gpu;
	file->primary = primary;
	emu_list_init(&file->link);
	err = file_init(gpu, file);
	if (err) {
		free(file);
		return err;
	}
	file_link(gpu, file);
	err = descriptor_open(file, fd);
	if (err)
		emu_file_retire(file);
	return err;
}
