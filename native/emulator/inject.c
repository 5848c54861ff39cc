/* SPDX-License-Identifier: MIT
 *
 * inject=a,b: from text to struct emu_inject_options.
 */
#include <errno.h>
#include <string.h>

#include "entry.h"
#include "util.h"

#define LATE_US 2000
#define ERRNO_MOST 4095
#define ITEM_BYTES 128

struct parsing {
	struct emu_options *options;
	char *error;
	size_t error_bytes;
};

static const struct fault {
	const char *name;
	uint32_t bit;
	size_t number_offset; /* in struct emu_inject_options, of what name:N sets; 0: it takes none */
	uint64_t number;      /* unless said */
} faults[] = {
#define NUMBER(field) offsetof(struct emu_inject_options, field)
	{ "stale-translation", EMU_INJECT_STALE_TRANSLATION, 0, 0 },
	{ "late-visibility", EMU_INJECT_LATE_VISIBILITY, 0, 0 },
	{ "alias-diverges", EMU_INJECT_ALIAS_DIVERGES, 0, 0 },
	{ "vram-stolen", EMU_INJECT_VRAM_STOLEN, NUMBER(stolen_at), 16 },
	{ "silent-gtt", EMU_INJECT_SILENT_GTT, NUMBER(spill_every), 2 },
	{ "unmap-ignored", EMU_INJECT_UNMAP_IGNORED, 0, 0 },
	{ "timeline-ignored", EMU_INJECT_TIMELINE_IGNORED, 0, 0 },
	{ "device-lost", EMU_INJECT_DEVICE_LOST, NUMBER(lost_at), 16 },
	{ "transient-enomem", EMU_INJECT_TRANSIENT_ENOMEM, NUMBER(enomem_every), 8 },
#undef NUMBER
};

#define FAULTS (sizeof(faults) / sizeof(faults[0]))

/* Those that drivers return, and those that tests are likely to want. */
static const struct {
	const char *name;
	int value;
} errors[] = {
#define ERROR(name) { #name, name }
	ERROR(EPERM),  ERROR(ENOENT),    ERROR(EINTR),     ERROR(EIO),       ERROR(ENXIO),
	ERROR(E2BIG),  ERROR(EBADF),     ERROR(EAGAIN),    ERROR(ENOMEM),    ERROR(EACCES),
	ERROR(EFAULT), ERROR(EBUSY),     ERROR(EEXIST),    ERROR(ENODEV),    ERROR(EINVAL),
	ERROR(EMFILE), ERROR(ENOTTY),    ERROR(EFBIG),     ERROR(ENOSPC),    ERROR(ERANGE),
	ERROR(EDEADLK), ERROR(ENOSYS),   ERROR(ETIME),     ERROR(EPROTO),    ERROR(EOVERFLOW),
	ERROR(EALREADY), ERROR(ECANCELED), ERROR(EOPNOTSUPP), ERROR(ETIMEDOUT), ERROR(EINPROGRESS),
#undef ERROR
};

static bool error_parse(const char *text, int *ret)
{
	uint64_t number;

	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		if (strcmp(errors[i].name, text))
			continue;
		*ret = errors[i].value;
		return true;
	}
	if (!emu_number_parse(text, &number) || !number || number > ERRNO_MOST)
		return false;
	*ret = (int)number;
	return true;
}

/* ---- ioctl:NAME:N:ERRNO ---------------------------------------------------------------------- */

/* A piece up to the next colon, which ends it; NULL: there is none. */
static char *piece_take(char **text)
{
	char *piece = *text, *colon;

	if (!piece)
		return NULL;
	colon = strchr(piece, ':');
	if (colon)
		*colon++ = '\0';
	*text = colon;
	return piece;
}

static int ioctl_refuse(const struct parsing *parsing, const char *item, const char *why)
{
	vmkv_text(parsing->error, parsing->error_bytes,
	          "emulated card: inject=%s: %s; right is ioctl:NAME:N:ERRNO, such as "
	          "ioctl:GEM_VA:3:ENOMEM", item, why);
	return -EINVAL;
}

static int ioctl_take(const struct parsing *parsing, const char *item, char *rest)
{
	struct emu_inject_options *inject = &parsing->options->inject;
	struct emu_inject_ioctl *ioctl = &inject->ioctls[inject->ioctl_count];
	const char *name = piece_take(&rest), *n = piece_take(&rest), *error = piece_take(&rest);
	const struct emu_ioctl *found;

	if (!name || !n || !error || rest)
		return ioctl_refuse(parsing, item, "it has not three parts");
	if (inject->ioctl_count == EMU_INJECT_IOCTLS)
		return ioctl_refuse(parsing, item, "that is more than 16 ioctls");
	found = emu_ioctl_find_name(name);
	if (!found)
		return ioctl_refuse(parsing, item, "no such ioctl (names are as in a trace)");
	if (!emu_number_parse(n, &ioctl->n) || !ioctl->n)
		return ioctl_refuse(parsing, item, "calls are counted from 1");
	if (!error_parse(error, &ioctl->error))
		return ioctl_refuse(parsing, item, "no such error; a number from 1 to 4095 will do");
	ioctl->index = emu_ioctl_index(found);
	for (uint32_t i = 0; i < inject->ioctl_count; i++)
		if (inject->ioctls[i].index == ioctl->index)
			return ioctl_refuse(parsing, item, "that ioctl has its order already");
	inject->ioctl_count++;
	return 0;
}

/* ---- the others ------------------------------------------------------------------------------ */

static int name_refuse(const struct parsing *parsing, const char *item)
{
	char names[256];
	size_t used = 0;

	for (size_t i = 0; i < FAULTS && used < sizeof(names); i++)
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s, ", faults[i].name);
	vmkv_text(parsing->error, parsing->error_bytes,
	          "emulated card: inject=%s: no such fault; there are %sioctl:NAME:N:ERRNO", item,
	          names);
	return -EINVAL;
}

static int number_take(const struct parsing *parsing, const struct fault *fault, const char *item,
                       const char *number)
{
	struct emu_inject_options *inject = &parsing->options->inject;
	uint64_t *place = (uint64_t *)((char *)inject + fault->number_offset);

	if (!fault->number_offset && !number)
		return 0;
	if (!fault->number_offset) {
		vmkv_text(parsing->error, parsing->error_bytes,
		          "emulated card: inject=%s: %s takes no number", item, fault->name);
		return -EINVAL;
	}
	*place = fault->number;
	if (!number || (emu_number_parse(number, place) && *place))
		return 0;
	vmkv_text(parsing->error, parsing->error_bytes,
	          "emulated card: inject=%s: right is %s or %s:N with a whole number from 1", item,
	          fault->name, fault->name);
	return -EINVAL;
}

static int fault_take(const struct parsing *parsing, const struct fault *fault, const char *item,
                      const char *number)
{
	struct emu_options *options = parsing->options;

	if (options->inject.faults & fault->bit) {
		vmkv_text(parsing->error, parsing->error_bytes,
		          "emulated card: inject: %s is given twice", fault->name);
		return -EINVAL;
	}
	if (fault->bit == EMU_INJECT_TIMELINE_IGNORED && !options->kernel->has_timeline) {
		vmkv_text(parsing->error, parsing->error_bytes,
		          "emulated card: inject=%s: Linux %s has no timeline that it could ignore; it "
		          "takes kernel=7.2", fault->name, options->kernel->name);
		return -EINVAL;
	}
	options->inject.faults |= fault->bit;
	return number_take(parsing, fault, item, number);
}

static int item_take(const struct parsing *parsing, const char *item)
{
	char text[ITEM_BYTES], *rest = text;
	const char *name;

	if (strlen(item) >= sizeof(text))
		return name_refuse(parsing, "...");
	strcpy(text, item);
	name = piece_take(&rest);
	if (!strcmp(name, "ioctl"))
		return ioctl_take(parsing, item, rest);
	for (size_t i = 0; i < FAULTS; i++)
		if (!strcmp(faults[i].name, name))
			return fault_take(parsing, &faults[i], item, rest);
	return name_refuse(parsing, item);
}

int emu_inject_parse(const char *list, struct emu_options *options, char *error, size_t n)
{
	const struct parsing parsing = { options, error, n };
	char text[1024];
	char *item = text, *next;
	int err = 0;

	if (options->inject.late_us <= 0)
		options->inject.late_us = LATE_US;
	if (!list)
		return 0;
	if (strlen(list) >= sizeof(text))
		return name_refuse(&parsing, "...");
	strcpy(text, list);
	for (; !err && item; item = next) {
		next = strchr(item, ',');
		if (next)
			*next++ = '\0';
		err = item_take(&parsing, item);
	}
	return err;
}
