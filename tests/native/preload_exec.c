/* SPDX-License-Identifier: MIT
 *
 * Start this program again in every way, with an environment that has nothing of the card. Each child prints
 * whether it sees it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char *program;

static void child_run(const char *how)
{
	const char *preload = getenv("LD_PRELOAD"), *kept = getenv("KEPT");

	printf("%s: %d, preload %s, kept %s\n", how, open("/dev/dri/renderD128", O_RDWR) >= 0,
	       preload && strstr(preload, ":/nowhere/lib.so") ? "both" : preload ? "ours" : "none",
	       kept ? kept : "none");
}

static void start(const char *how)
{
	char *arguments[] = { program, (char *)how, NULL }, *nothing[] = { NULL };
	char *others[] = { "LD_PRELOAD=/nowhere/lib.so", "KEPT=1", NULL };
	pid_t child = 0;

	if (!strcmp(how, "spawn"))
		(void)!posix_spawn(&child, program, NULL, NULL, arguments, NULL);
	else if (!strcmp(how, "spawnp"))
		(void)!posix_spawnp(&child, program, NULL, NULL, arguments, nothing);
	else
		child = vfork();
	if (child) {
		waitpid(child, NULL, 0);
		return;
	}
	if (!strcmp(how, "execve"))
		execve(program, arguments, nothing);
	if (!strcmp(how, "execvpe"))
		execvpe(program, arguments, others);
	if (!strcmp(how, "fexecve"))
		fexecve(open(program, O_RDONLY | O_CLOEXEC), arguments, nothing);
	if (!strcmp(how, "execveat"))
		execveat(AT_FDCWD, program, arguments, nothing, 0);
	if (!strcmp(how, "execle"))
		execle(program, program, how, NULL, nothing);
	_exit(1);
}

int main(int argc, char **argv)
{
	static const char *const ways[] = { "spawn", "spawnp", "execve", "execvpe",
		                            "fexecve", "execveat", "execle" };

	program = argv[0];
	if (argc == 2) {
		child_run(argv[1]);
		return 0;
	}
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		start(ways[i]);
	clearenv();
	if (!fork())
		execv(program, (char *[]){ program, "execv", NULL });
	wait(NULL);
	if (!fork())
		execl(program, program, "execl", NULL);
	wait(NULL);
	if (!fork())
		execlp(program, program, "execlp", NULL);
	wait(NULL);
	return 0;
}
