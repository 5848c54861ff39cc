/* SPDX-License-Identifier: MIT
 *
 * What the files between ioctl(2) and the handlers share among themselves.
 */
#ifndef EMU_ENTRY_H
#define EMU_ENTRY_H

#include "emu.h"

/* ---- ioctl_table.c --------------------------------------------------------------------------- */

/* The kernel lets a render node have only those that are marked so. */
#define EMU_IOCTL_RENDER 1u
/* On primary nodes only authenticated files, or only the master, may have these. */
#define EMU_IOCTL_AUTH 2u
#define EMU_IOCTL_MASTER 4u

struct emu_ioctl {
	const char *name;
	unsigned long request; /* as the newest kernel declares it */
	emu_ioctl_handler *handler;
	uint32_t flags;
	/* Offsets in struct emu_kernel, 0: none. Of the argument's size, and of a bool that says
	 * whether that kernel has the ioctl at all. */
	uint32_t bytes_field, has_field;
};

/* By number alone. NULL: that kernel has none, or it isn't emulated. */
const struct emu_ioctl *emu_ioctl_find(const struct emu_kernel *kernel, unsigned long request);
const struct emu_ioctl *emu_ioctl_find_name(const char *name);
uint32_t emu_ioctl_index(const struct emu_ioctl *ioctl);
uint32_t emu_ioctl_bytes(const struct emu_ioctl *ioctl, const struct emu_kernel *kernel);

/* ---- drm_auth.c ------------------------------------------------------------------------------ */

/* A file opens or closes. With gpu->lock, both. */
void emu_auth_open(struct emu_file *file);
void emu_auth_close(struct emu_file *file);
/* May it have an ioctl with those flags? 0 or -EACCES. Without gpu->lock. */
int emu_auth_check(struct emu_file *file, uint32_t flags);

/* ---- files.c: the process's cards and their files -------------------------------------------- */

/* The registry of cards. */
void emu_gpu_register(struct emu_gpu *gpu);
void emu_gpu_unregister(struct emu_gpu *gpu); /* releases its files, and waits for ioctls at work */
/* The reference of an open file is dropped; nobody finds it any more. The caller has one of its
 * own. */
void emu_file_retire(struct emu_file *file);

/* ---- ioctl.c --------------------------------------------------------------------------------- */

/* vmkv_emulator_ioctl, but with the negative errno as its result. */
int emu_ioctl_run(struct emu_file *file, unsigned long request, void *argument);

/* ---- import_slots.c -------------------------------------------------------------------------- */

/* A loaded shared object. */
struct emu_object {
	char path[512];
	uint64_t base;
	const void *dynamic;
	uint64_t relro_begin, relro_end;
};

/* What an object calls by a name. */
struct emu_import {
	const char *name;
	void *function;
};

/* The loaded objects whose soname is `stem` with any tag and ending: "libdrm" is libdrm.so.2 and
 * libdrm-1a2b.so.2, not libdrm_amdgpu.so.1. Returns how many were put into ret. */
uint32_t emu_objects_find(const char *stem, struct emu_object *ret, uint32_t room);
/* Point the object's imports there. 0, or -EACCES if its pages can't be made writable. */
int emu_object_redirect(const struct emu_object *object, const struct emu_import *imports,
                        uint32_t n);

/* ---- trace.c --------------------------------------------------------------------------------- */

struct emu_trace_line;

/* NULL if the card has no trace, or no memory for it. ioctl may be NULL. */
struct emu_trace_line *emu_trace_begin(struct emu_file *file, unsigned long request,
                                       const struct emu_ioctl *ioctl, const void *data);
void emu_trace_end(struct emu_trace_line *line, const void *data, int result);

/* trace_cs.c: the arrays that an argument points to, as JSON. */
void emu_trace_chunks(FILE *out, const struct drm_amdgpu_cs_in *cs);
void emu_trace_entries(FILE *out, const struct drm_amdgpu_bo_list_in *list);

/* ---- clock.c --------------------------------------------------------------------------------- */

uint64_t emu_now_ns(void); /* CLOCK_MONOTONIC */
void emu_wait_until_ns(uint64_t when); /* exact: spins for the last stretch */

/* ---- thread.c -------------------------------------------------------------------------------- */

/* A thread of the card's own, which gets no signals but those of its faults. 0 or -ENOMEM. */
int emu_thread_start(pthread_t *ret, void *(*run)(void *), void *argument);
int emu_condition_init(pthread_cond_t *condition); /* its times are CLOCK_MONOTONIC's */

#endif
