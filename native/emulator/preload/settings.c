/* SPDX-License-Identifier: MIT
 *
 * VMKV_EMULATE=SERVER;TREE;SLOT
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload.h"

struct preload_settings preload_settings;

static bool node_find(const char *name, ino_t *inode)
{
	char path[PATH_BYTES];
	struct stat status;

	snprintf(path, sizeof(path), "%s/dev/dri/%s", preload_settings.tree, name);
	if (syscall(SYS_newfstatat, AT_FDCWD, path, &status, 0))
		return false;
	preload_settings.device = status.st_dev;
	*inode = status.st_ino;
	return true;
}

static bool text_take(const char **from, char *to, size_t bytes)
{
	size_t length = strcspn(*from, ";");

	if (!length || length >= bytes)
		return false;
	memcpy(to, *from, length);
	to[length] = '\0';
	*from += length + ((*from)[length] == ';');
	return true;
}

static bool cwd_is_in_tree(void)
{
	char cwd[PATH_BYTES];
	long n = syscall(SYS_getcwd, cwd, sizeof(cwd));

	return n > 0 && !strncmp(cwd, preload_settings.tree, preload_settings.tree_length);
}

__attribute__((constructor)) static void settings_read(void)
{
	struct preload_settings *settings = &preload_settings;
	const char *text = getenv("VMKV_EMULATE");
	char server[sizeof(settings->server)];

	if (!text || !text_take(&text, server, sizeof(server)) ||
	    !text_take(&text, settings->tree, sizeof(settings->tree)) ||
	    !text_take(&text, settings->slot, sizeof(settings->slot)))
		return;
	settings->tree_length = strlen(settings->tree);
	if (!node_find("renderD128", &settings->render) || !node_find("card0", &settings->primary))
		return;
	settings->cwd_in_tree = cwd_is_in_tree();
	strcpy(settings->server, server); /* from here on there is a card */
}
