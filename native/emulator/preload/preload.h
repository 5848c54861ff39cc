/* SPDX-License-Identifier: MIT
 *
 * What the parts of the preload library share. It shows a program the card of `vmkv emulate`: device
 * nodes, whose ioctls it sends there, and a tree of files that stand for those of /dev and /sys.
 *
 * Hooks take system calls' arguments, and make the calls themselves, but for what libc does by more than
 * one. They keep errno unless they fail.
 */
#ifndef EMU_PRELOAD_H
#define EMU_PRELOAD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "protocol.h"

#define HOOK __attribute__((visibility("default")))
#define PATH_BYTES 4096
#define DRM_MAJOR 226
#define RENDER_MINOR 128
#define PRIMARY_MINOR 0

/* ---- connection.c ---------------------------------------------------------------------------- */

/* Each returns 0 or more, or a negative errno. */
int preload_open(bool primary, int flags); /* a new descriptor */
int preload_ioctl(uint64_t position, unsigned long request, void *argument);
int preload_map_check(uint64_t position, uint64_t offset, uint64_t bytes);
void preload_closed(void); /* a DRM file's descriptor was closed */
/* A text of the server's, such as EMU_REQUEST_FDINFO; its length. */
int preload_text(enum emu_request kind, uint64_t position, char *text, size_t bytes);

/* The position of a DRM file's descriptor; 0: it is none. */
uint64_t preload_position(int fd);
/* One of our own sockets, which a program may not close: it doesn't know of them. */
bool preload_is_ours(int fd);
/* Those from `from` on: the least, or -1. */
int preload_ours_next(int from);

/* ---- settings.c: from the environment, as the program starts --------------------------------- */

struct preload_settings {
	char server[108]; /* the socket's name; "": there is no card, and nothing is changed */
	char tree[256];   /* the directory */
	char slot[16];    /* where the card is: "0000:03:00.0" */
	size_t tree_length;
	dev_t device; /* of the placeholders of the nodes in the tree ... */
	ino_t render, primary;
	bool cwd_in_tree;
};

extern struct preload_settings preload_settings;

/* ---- views.c: which paths show something else ------------------------------------------------- */

enum preload_view {
	PRELOAD_REAL,   /* nothing of ours */
	PRELOAD_TREE,   /* a file or directory in the tree; what it is, its inode says */
	PRELOAD_RENDER, /* the nodes */
	PRELOAD_PRIMARY,
	PRELOAD_FDINFO, /* of a process's DRM file */
	PRELOAD_VRAM_USED, /* files of the card's that change */
	PRELOAD_GTT_USED,
};

/* The path to use instead: `path` itself, or one in `buffer`. */
const char *preload_view(int dirfd, const char *path, char buffer[PATH_BYTES], enum preload_view *ret);
/* The same where a node needs no attention. */
const char *preload_path(const char *path, char buffer[PATH_BYTES]);
const char *preload_path_at(int dirfd, const char *path, char buffer[PATH_BYTES]);
/* The same of a directory whose names are read. */
const char *preload_listing(const char *path, char buffer[PATH_BYTES]);
/* Whether what is open belongs to the tree's part of /sys. */
bool preload_fd_is_sys(int fd);
/* Take the tree off a path that the system tells, in place. */
void preload_path_hide(char *path);
/* Whether the placeholder of a node is meant. */
bool preload_is_node(dev_t device, ino_t inode, bool *primary);
/* The position of the DRM file whose fd or fdinfo entry in /proc that is; 0: none's. */
uint64_t preload_proc_position(const char *path);

/* hook_open.c */
int preload_open_at(int dirfd, const char *path, int flags, mode_t mode);

#endif
