/* SPDX-License-Identifier: MIT
 *
 * Whether a cache is shared, where, and when it refuses to.
 */
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "publish_fixture.h"

/* posix_fallocate, by its name in the library, fails with this unless it is 0: see the program's link arguments. */
static int no_room;
int __real_posix_fallocate64(int fd, off_t offset, off_t bytes);
int __wrap_posix_fallocate64(int fd, off_t offset, off_t bytes);
int __wrap_posix_fallocate64(int fd, off_t offset, off_t bytes)
{
	return no_room != 0 ? no_room : __real_posix_fallocate64(fd, offset, bytes);
}

/* How many files there are, hidden ones too. */
static int files(const char *directory)
{
	const struct dirent *entry;
	DIR *open = opendir(directory);
	int n = 0;

	while (open != NULL && (entry = readdir(open)) != NULL)
		n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
	if (open != NULL)
		closedir(open);
	return n;
}

static const char *in_directory(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", published_directory(), name);
	return path;
}

/* ---- whether --------------------------------------------------------------------------------- */

static void test_only_caches_that_ask_are_shared(void)
{
	static const struct {
		const char *environment;
		uint32_t share;
		bool shared;
	} cases[] = {
		{ NULL, VMKV_SHARE_DEFAULT, false }, { NULL, VMKV_SHARE_ON, true },
		{ NULL, VMKV_SHARE_OFF, false },     { "", VMKV_SHARE_DEFAULT, false },
		{ "1", VMKV_SHARE_DEFAULT, true },   { "1", VMKV_SHARE_ON, true },
		{ "1", VMKV_SHARE_OFF, false },      { "0", VMKV_SHARE_DEFAULT, false },
		{ "0", VMKV_SHARE_ON, false },       { "0", VMKV_SHARE_OFF, false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rig r;

		rig_prepare(&r, open_host("host"));
		if (cases[i].environment != NULL)
			CHECK_EQ(setenv("VMKV_STATS", cases[i].environment, 1), 0);
		r.options.share = cases[i].share;
		rig_create(&r);
		CHECK_EQ(files(in_directory("vmkv")), cases[i].shared);
		rig_end(&r);
		CHECK_EQ(files(in_directory("vmkv")), 0);
		CHECK_EQ(unsetenv("VMKV_STATS"), 0);
	}
}

static void test_what_means_nothing_is_refused(void)
{
	struct rig r;

	rig_prepare(&r, open_host("host"));
	r.options.share = 3;
	CHECK_EQ(rig_try_create(&r), -EINVAL);
	CHECK_CONTAINS(r.text, "share 3 is not one of enum vmkv_share");
	r.options.share = VMKV_SHARE_DEFAULT;
	CHECK_EQ(setenv("VMKV_STATS", "yes", 1), 0);
	CHECK_EQ(rig_try_create(&r), -EINVAL);
	CHECK_CONTAINS(r.text, "VMKV_STATS is \"yes\": it must be 0 or 1");
	CHECK_EQ(unsetenv("VMKV_STATS"), 0);
	r.options.reserved = 1;
	CHECK_EQ(rig_try_create(&r), -E2BIG);
	rig_end(&r);
}

/* ---- where ----------------------------------------------------------------------------------- */

static void test_the_file_is_the_users_alone(void)
{
	struct stat found;
	mode_t mask = umask(0);
	struct rig r;
	int fd;

	CHECK_EQ(rmdir(in_directory("vmkv")), 0);
	shared_begin(&r);
	umask(mask);
	fd = published_open();
	CHECK_EQ(fstat(fd, &found), 0);
	CHECK_EQ(found.st_mode & 07777, 0600);
	CHECK(found.st_blocks * 512 >= found.st_size); /* there is memory behind all of it */
	CHECK_EQ(stat(in_directory("vmkv"), &found), 0);
	CHECK_EQ(found.st_mode & 07777, 0700);
	close(fd);
	rig_end(&r);
}

static void refused(int error, const char *text)
{
	struct rig r;

	rig_prepare(&r, open_host("host"));
	r.options.share = VMKV_SHARE_ON;
	CHECK_EQ(rig_try_create(&r), error);
	CHECK_CONTAINS(r.text, text);
	rig_end(&r);
}

static void test_a_directory_that_others_reach_is_refused(void)
{
	char elsewhere[128];

	CHECK_EQ(chmod(in_directory("vmkv"), 0755), 0);
	refused(-EACCES, "/vmkv has mode 755: it must be 700");
	CHECK_EQ(chmod(in_directory("vmkv"), 0700), 0);

	snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", published_directory());
	CHECK_EQ(rename(in_directory("vmkv"), elsewhere), 0);
	CHECK_EQ(symlink(elsewhere, in_directory("vmkv")), 0);
	refused(-EACCES, "/vmkv is a link or no directory");
	CHECK_EQ(unlink(in_directory("vmkv")), 0);
	fclose(fopen(in_directory("vmkv"), "w"));
	refused(-EACCES, "/vmkv is a link or no directory");
	CHECK_EQ(unlink(in_directory("vmkv")), 0);
	CHECK_EQ(rename(elsewhere, in_directory("vmkv")), 0);
	if (geteuid() == 0) {
		CHECK_EQ(chown(in_directory("vmkv"), 4321, 4321), 0);
		refused(-EACCES, "belongs to user 4321, not 0");
		CHECK_EQ(chown(in_directory("vmkv"), 0, 0), 0);
	} else {
		printf("skipped: another user's directory takes root\n");
	}
}

/* In shared memory, where other engines of this user have theirs too. */
static size_t shared_memory_files(void)
{
	char pattern[64];
	glob_t found;
	size_t n;

	snprintf(pattern, sizeof(pattern), "/dev/shm/vmkv-%u/%d-*.kv", geteuid(), (int)getpid());
	CHECK(glob(pattern, 0, NULL, &found) != GLOB_NOSPACE);
	n = found.gl_pathc;
	globfree(&found);
	return n;
}

static void test_without_a_runtime_directory_it_is_in_shared_memory(void)
{
	static const char *const values[] = { NULL, "", "relative", "/nowhere/at/all" };

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		struct rig r;

		CHECK_EQ(values[i] != NULL ? setenv("XDG_RUNTIME_DIR", values[i], 1)
		                           : unsetenv("XDG_RUNTIME_DIR"), 0);
		shared_begin(&r);
		CHECK_EQ(shared_memory_files(), 1);
		rig_end(&r);
		CHECK_EQ(shared_memory_files(), 0);
	}
	published_directory();
}

static void test_no_room_is_told_at_once(void)
{
	struct rlimit limit, before;

	no_room = ENOSPC;
	refused(-ENOSPC, "No space left on device");
	no_room = 0;
	CHECK_EQ(files(in_directory("vmkv")), 0);
	CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
	limit = before;
	limit.rlim_cur = 100000;
	CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
	refused(-EFBIG, "RLIMIT_FSIZE allows 100000");
	CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
	CHECK_EQ(files(in_directory("vmkv")), 0);
}

/* ---- what the dead left ---------------------------------------------------------------------- */

static void file_make(const char *name, const void *bytes, size_t n)
{
	char path[160];
	FILE *file;

	snprintf(path, sizeof(path), "%s/vmkv/%s", published_directory(), name);
	file = fopen(path, "w");
	CHECK(file != NULL && fwrite(bytes, 1, n, file) == n);
	fclose(file);
}

/* A process makes a cache and dies at once; or lives until *alive is closed. */
static pid_t engine(int *alive)
{
	int ready[2], end[2];
	char byte;
	pid_t pid;

	CHECK_EQ(pipe(ready), 0);
	CHECK_EQ(pipe(end), 0);
	pid = fork();
	if (pid == 0) {
		struct rig r;

		close(end[1]);
		shared_begin(&r);
		CHECK_EQ(write(ready[1], "r", 1), 1);
		if (alive != NULL)
			(void)!read(end[0], &byte, 1);
		_exit(0);
	}
	close(ready[1]);
	close(end[0]);
	CHECK_EQ(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	if (alive != NULL) {
		*alive = end[1];
		return pid;
	}
	close(end[1]);
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	return pid;
}

static void test_files_of_the_dead_go_when_the_next_cache_comes(void)
{
	struct rig r;
	int alive;
	pid_t pid;

	engine(NULL);
	engine(NULL);
	CHECK_EQ(files(in_directory("vmkv")), 1); /* the second removed what the first left */
	pid = engine(&alive);
	CHECK_EQ(files(in_directory("vmkv")), 1);
	shared_begin(&r);
	CHECK_EQ(files(in_directory("vmkv")), 2); /* whoever lives keeps his */
	close(alive);
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	rig_end(&r);
	CHECK_EQ(files(in_directory("vmkv")), 1);
	shared_begin(&r);
	CHECK_EQ(files(in_directory("vmkv")), 1);
	rig_end(&r);
}

static void test_a_file_that_is_not_known_stays(void)
{
	struct vmkv_published_header header = { .magic = VMKV_PUBLISHED_MAGIC,
		                                .version_major = VMKV_PUBLISHED_MAJOR + 1,
		                                .start_ticks = 1, .pid = 1 };
	struct rig r;

	file_make("notes.txt", "mine", 4);
	file_make("12-abcde.kv", "short", 5);
	file_make("13-abcde.kv", &header, sizeof(header)); /* of a newer version */
	header.version_major = VMKV_PUBLISHED_MAJOR;
	header.pid_namespace = 1;
	file_make("14-abcde.kv", &header, sizeof(header)); /* of other processes than we see */
	CHECK_EQ(mkfifo(in_directory("vmkv/15-abcde.kv"), 0600), 0);
	CHECK_EQ(symlink("/dev/null", in_directory("vmkv/16-abcde.kv")), 0);
	shared_begin(&r);
	CHECK_EQ(files(in_directory("vmkv")), 7);
	rig_end(&r);
	CHECK_EQ(files(in_directory("vmkv")), 6);
	strcpy(header.boot_id, "another boot's");
	file_make("14-abcde.kv", &header, sizeof(header));
	shared_begin(&r);
	CHECK_EQ(files(in_directory("vmkv")), 6);
	rig_end(&r);
}

int main(void)
{
	published_directory();
	RUN(test_only_caches_that_ask_are_shared);
	RUN(test_what_means_nothing_is_refused);
	RUN(test_the_file_is_the_users_alone);
	RUN(test_a_directory_that_others_reach_is_refused);
	RUN(test_without_a_runtime_directory_it_is_in_shared_memory);
	RUN(test_no_room_is_told_at_once);
	RUN(test_files_of_the_dead_go_when_the_next_cache_comes);
	RUN(test_a_file_that_is_not_known_stays);
	return 0;
}
