/* SPDX-License-Identifier: MIT
 *
 * Starting programs: one that gets an environment of its own sees the card all the same.
 *
 * A child of vfork, or of fork in a program with threads, may call these: they allocate nothing,
 * and what they call was looked up before.
 */
#include <alloca.h>
#include <dlfcn.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload.h"

#define CARD "VMKV_EMULATE="
#define PRELOAD "LD_PRELOAD="
#define VARIABLE_BYTES 512

static char card[VARIABLE_BYTES]; /* "": there is none */
static char library[VARIABLE_BYTES];
static __typeof__(&execvpe) next_execvpe;
static __typeof__(&fexecve) next_fexecve;
static __typeof__(&posix_spawn) next_spawn;
static __typeof__(&posix_spawnp) next_spawnp;

static bool starts_with(const char *text, const char *with)
{
	return !strncmp(text, with, strlen(with));
}

__attribute__((constructor)) static void exec_init(void)
{
	Dl_info info;

	next_execvpe = (__typeof__(&execvpe))dlsym(RTLD_NEXT, "execvpe");
	next_fexecve = (__typeof__(&fexecve))dlsym(RTLD_NEXT, "fexecve");
	next_spawn = (__typeof__(&posix_spawn))dlsym(RTLD_NEXT, "posix_spawn");
	next_spawnp = (__typeof__(&posix_spawnp))dlsym(RTLD_NEXT, "posix_spawnp");
	if (!dladdr(card, &info) || strlen(info.dli_fname) >= sizeof(library))
		return;
	strcpy(library, info.dli_fname);
	for (char **at = environ; at && *at; at++)
		if (starts_with(*at, CARD) && strlen(*at) < sizeof(card))
			strcpy(card, *at);
}

/* ---- the environment ------------------------------------------------------------------------- */

struct room {
	char preload[PATH_BYTES];
	char **variables; /* for all that there are, two more, and the end */
};

static size_t count(char *const environment[])
{
	size_t n = 0;

	while (environment && environment[n])
		n++;
	return n;
}

/* Ours comes first, as it did when this program was started. */
static char *preload_variable(char to[PATH_BYTES], char *variable)
{
	const char *others = variable ? variable + strlen(PRELOAD) : "";
	int n;

	if (strstr(others, library))
		return variable;
	n = snprintf(to, PATH_BYTES, PRELOAD "%s%s%s", library, *others ? ":" : "", others);
	return n < PATH_BYTES ? to : variable;
}

static char *const *environment_fill(struct room *room, char *const environment[], size_t n)
{
	char **to = room->variables, *preload = NULL, *variable;
	bool has_card = false;

	if (!preload_settings.server[0] || !card[0])
		return environment;
	for (size_t i = 0; i < n; i++) {
		has_card |= starts_with(environment[i], CARD);
		if (starts_with(environment[i], PRELOAD))
			preload = environment[i];
		else
			*to++ = environment[i];
	}
	if (!has_card)
		*to++ = card;
	variable = preload_variable(room->preload, preload);
	if (variable)
		*to++ = variable;
	*to = NULL;
	return room->variables;
}

/* It lives as long as the function in which it is used. */
#define ENVIRONMENT(room, environment)                                                             \
	((room)->variables = alloca((count(environment) + 3) * sizeof(char *)),                    \
	 environment_fill(room, environment, count(environment)))

/* ---- exec ------------------------------------------------------------------------------------ */

HOOK int execve(const char *path, char *const arguments[], char *const environment[])
{
	struct room room;

	return (int)syscall(SYS_execve, path, arguments, ENVIRONMENT(&room, environment));
}

HOOK int execv(const char *path, char *const arguments[])
{
	return execve(path, arguments, environ);
}

HOOK int execvpe(const char *file, char *const arguments[], char *const environment[])
{
	struct room room;

	return next_execvpe(file, arguments, ENVIRONMENT(&room, environment));
}

HOOK int execvp(const char *file, char *const arguments[])
{
	return execvpe(file, arguments, environ);
}

HOOK int execveat(int dirfd, const char *path, char *const arguments[], char *const environment[],
                  int flags)
{
	struct room room;

	return (int)syscall(SYS_execveat, dirfd, path, arguments, ENVIRONMENT(&room, environment),
	                    flags);
}

HOOK int fexecve(int fd, char *const arguments[], char *const environment[])
{
	struct room room;

	return next_fexecve(fd, arguments, ENVIRONMENT(&room, environment));
}

/* ---- exec with its arguments one by one ----------------------------------------------------- */

/* Up to and with NULL, of which `list` begins behind the first. */
static size_t list_count(const char *first, va_list *list)
{
	size_t n = 1;

	for (const char *at = first; at; at = va_arg(*list, const char *))
		n++;
	return n;
}

static void list_fill(char **to, const char *first, va_list *list)
{
	for (const char *at = first; at; at = va_arg(*list, const char *))
		*to++ = (char *)at;
	*to = NULL;
}

/* An array of them, which lives as long as the function in which it is used. `list` then
 * is behind the NULL. */
#define ARGUMENTS(arguments, first, list)                                                          \
	do {                                                                                       \
		va_start(list, first);                                                             \
		(arguments) = alloca(list_count(first, &(list)) * sizeof(char *));                 \
		va_end(list);                                                                      \
		va_start(list, first);                                                             \
		list_fill(arguments, first, &(list));                                              \
	} while (0)

HOOK int execl(const char *path, const char *first, ...)
{
	char **arguments;
	va_list list;

	ARGUMENTS(arguments, first, list);
	va_end(list);
	return execve(path, arguments, environ);
}

HOOK int execlp(const char *file, const char *first, ...)
{
	char **arguments;
	va_list list;

	ARGUMENTS(arguments, first, list);
	va_end(list);
	return execvpe(file, arguments, environ);
}

HOOK int execle(const char *path, const char *first, ...)
{
	char **arguments, *const *environment;
	va_list list;

	ARGUMENTS(arguments, first, list);
	environment = va_arg(list, char *const *);
	va_end(list);
	return execve(path, arguments, environment);
}

/* ---- spawn ----------------------------------------------------------------------------------- */

HOOK int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                     const posix_spawnattr_t *attributes, char *const arguments[],
                     char *const environment[])
{
	struct room room;

	return next_spawn(pid, path, actions, attributes, arguments, ENVIRONMENT(&room, environment));
}

HOOK int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                      const posix_spawnattr_t *attributes, char *const arguments[],
                      char *const environment[])
{
	struct room room;

	return next_spawnp(pid, file, actions, attributes, arguments, ENVIRONMENT(&room, environment));
}
