/* Look at the card's files in every way that libc has, and print what each says. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define RENDER "/dev/dri/renderD128"
#define CARD "/sys/dev/char/226:128"

static void status_print(const char *how, int result, const struct stat *status)
{
	if (result)
		printf("%s fails\n", how);
	else
		printf("%s %c %u:%u\n", how, S_ISCHR(status->st_mode) ? 'c' : '-', major(status->st_rdev),
		       minor(status->st_rdev));
}

static void look_at_status(int fd)
{
	struct stat status;
	struct stat64 status64;
	struct statx x;
	int directory = open("/dev/dri", O_RDONLY | O_DIRECTORY);

	status_print("stat", stat(RENDER, &status), &status);
	status_print("lstat", lstat("/dev//dri/./renderD128", &status), &status);
	status_print("link", stat("/dev/dri/by-path/pci-0000:03:00.0-render", &status), &status);
	status_print("fstat", fstat(fd, &status), &status);
	status_print("stat64", stat64("/dev/dri/card0", &status64), (struct stat *)&status64);
	status_print("fstat64", fstat64(fd, &status64), (struct stat *)&status64);
	status_print("fstatat", fstatat(directory, "card0", &status, 0), &status);
	if (!statx(AT_FDCWD, RENDER, 0, STATX_BASIC_STATS, &x))
		printf("statx %c %u:%u\n", S_ISCHR(x.stx_mode) ? 'c' : '-', x.stx_rdev_major,
		       x.stx_rdev_minor);
	if (!statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &x))
		printf("statx fd %c %u:%u\n", S_ISCHR(x.stx_mode) ? 'c' : '-', x.stx_rdev_major,
		       x.stx_rdev_minor);
	close(directory);
}

static int compare(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static void look_at_directories(void)
{
	struct dirent **names;
	int n = scandir("/sys/class/drm", &names, NULL, compare), entries = 0;
	DIR *directory = opendir("/dev/dri");

	for (int i = 0; i < n; i++)
		if (names[i]->d_name[0] != '.')
			printf("scandir %s\n", names[i]->d_name);
	while (directory && readdir(directory))
		entries++;
	printf("opendir %d\n", entries);
	closedir(directory);
}

static void look_at_links(int fd)
{
	char path[64], text[PATH_MAX] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	text[readlink(path, text, sizeof(text) - 1)] = '\0';
	printf("readlink fd %s\n", text);
	printf("realpath fd %s\n", realpath(path, text));
	memset(text, 0, sizeof(text));
	(void)!readlink(CARD "/device/subsystem", text, sizeof(text) - 1);
	printf("readlink %s\n", text);
	printf("realpath %s\n", realpath(CARD "/device", text));
	printf("realpath /tmp %d\n", !strcmp(realpath("/tmp/.", text), realpath("/tmp", NULL)));
}

static void look_at_texts(int fd)
{
	char text[256];
	FILE *file = fopen(CARD "/device/vendor", "r");
	int directory = open(CARD "/device", O_RDONLY | O_DIRECTORY), device;
	char path[64];

	printf("vendor %s", file && fgets(text, sizeof(text), file) ? text : "none\n");
	if (file)
		fclose(file);
	device = openat(directory, "device", O_RDONLY);
	printf("device %.*s", (int)read(device, text, sizeof(text)), text);
	close(device);
	close(directory);
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	file = fopen(path, "r");
	while (file && fgets(text, sizeof(text), file))
		if (!strncmp(text, "pos:", 4) || !strncmp(text, "drm-driver:", 11))
			printf("fdinfo %s", text);
	if (file)
		fclose(file);
}

static long client_of(int fd)
{
	char path[64], text[256];
	long client = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	file = fopen(path, "r");
	while (file && fgets(text, sizeof(text), file))
		(void)sscanf(text, "drm-client-id: %ld", &client);
	if (file)
		fclose(file);
	return client;
}

/* Through its entry in /proc a file's node is opened once more. */
static void look_at_nodes_again(int fd)
{
	struct stat status;
	char path[64];
	int again;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR);
	status_print("again", fstat(again, &status), &status);
	printf("another client %d\n", client_of(again) > 0 && client_of(again) != client_of(fd));
	close(again);
	printf("chmod %d %d\n", chmod(RENDER, 0666), chmod("/dev/dri/renderD129", 0666));
}

static void look_at_working_directory(void)
{
	char text[PATH_MAX];
	int fd;

	if (chdir("/dev/dri"))
		return;
	fd = open("renderD128", O_RDWR);
	printf("getcwd %s, open %d\n", getcwd(text, sizeof(text)), fd >= 0);
	close(fd);
	if (!chdir("/"))
		printf("getcwd %s\n", getcwd(text, sizeof(text)));
}

/* It is neither a file with a position, nor one whose pages somebody could take away. */
static void change(int fd)
{
	int moved = lseek(fd, 0, SEEK_SET) == -1 && lseek(fd, 0, SEEK_END) == -1 ? 0 : 1;
	int cut = ftruncate(fd, 0) ? 0 : 1, written = write(fd, "", 1) == -1 ? 0 : 1;

	printf("moved %d, cut %d, written %d, client %d\n", moved, cut, written, client_of(fd) > 0);
}

int main(void)
{
	int fd = open(RENDER, O_RDWR | O_CLOEXEC);

	if (fd < 0) {
		perror(RENDER);
		return 1;
	}
	printf("cloexec %d\n", fcntl(fd, F_GETFD));
	printf("access %d %d\n", access(RENDER, R_OK | W_OK), access("/dev/dri/renderD129", F_OK));
	printf("O_DIRECTORY %d\n", open(RENDER, O_RDONLY | O_DIRECTORY));
	look_at_status(fd);
	look_at_directories();
	look_at_links(fd);
	look_at_texts(fd);
	look_at_nodes_again(fd);
	change(fd);
	look_at_working_directory();
	return 0;
}
