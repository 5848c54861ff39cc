/* SPDX-License-Identifier: MIT
 *
 * Specs: MODEL[?name=value&...] to struct emu_options.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "emu.h"
#include "util.h"

#define WINDOW_DEFAULT (64ULL << 30)
#define WINDOW_MOST (256ULL << 30)
#define HEAP_LEAST (16ULL << 20) /* 8 MiB of VRAM are the kernel's */
#define HEAP_MOST (1ULL << 40)
#define US_MOST 1e6

struct parsing {
	struct emu_options *options;
	char *error;
	size_t error_bytes;
	const char *inject; /* NULL: nothing; for the end, when all else is known */
};

static int parse_flag(const char *value, bool *ret)
{
	if (strcmp(value, "0") && strcmp(value, "1"))
		return -EINVAL;
	*ret = *value == '1';
	return 0;
}

static int parse_bytes(const char *value, uint64_t least, uint64_t most, uint64_t *ret)
{
	uint64_t bytes;

	if (vmkv_size_parse(value, &bytes) || bytes < least || bytes > most ||
	    bytes % EMU_PAGE_BYTES)
		return -EINVAL;
	*ret = bytes;
	return 0;
}

bool emu_number_parse(const char *text, uint64_t *ret)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*ret = strtoull(text, &end, 10);
	return !errno && !*end;
}

/* Not strtod: its decimal point is the locale's. */
static int parse_us(const char *value, double *ret)
{
	double us = 0, place = 1;
	bool point = false, digit = false;

	for (; *value; value++) {
		if (*value == '.' && !point) {
			point = true;
			continue;
		}
		if (*value < '0' || *value > '9')
			return -EINVAL;
		digit = true;
		us = us * 10 + (*value - '0');
		if (point)
			place *= 10;
	}
	if (!digit || !(us / place <= US_MOST)) /* neither infinite nor NaN */
		return -EINVAL;
	*ret = us / place;
	return 0;
}

static int take_identity(struct parsing *parsing, const char *value)
{
	return parse_flag(value, &parsing->options->identity);
}

static int take_vram(struct parsing *parsing, const char *value)
{
	return parse_bytes(value, HEAP_LEAST, HEAP_MOST, &parsing->options->vram_bytes);
}

static int take_gtt(struct parsing *parsing, const char *value)
{
	return parse_bytes(value, HEAP_LEAST, HEAP_MOST, &parsing->options->gtt_bytes);
}

static int take_window(struct parsing *parsing, const char *value)
{
	return parse_bytes(value, EMU_PAGE_BYTES * EMU_HUGE_PAGES, WINDOW_MOST,
	                   &parsing->options->window_bytes);
}

static int take_seed(struct parsing *parsing, const char *value)
{
	return emu_number_parse(value, &parsing->options->seed) ? 0 : -EINVAL;
}

static int take_ioctl_us(struct parsing *parsing, const char *value)
{
	return parse_us(value, &parsing->options->ioctl_us);
}

static int take_pte_us(struct parsing *parsing, const char *value)
{
	return parse_us(value, &parsing->options->pte_us);
}

static int take_trace(struct parsing *parsing, const char *value)
{
	if (!*value || strlen(value) >= sizeof(parsing->options->trace))
		return -EINVAL;
	strcpy(parsing->options->trace, value);
	return 0;
}

static int take_kernel(struct parsing *parsing, const char *value)
{
	parsing->options->kernel = emu_kernel_find(value);
	return parsing->options->kernel ? 0 : -EINVAL;
}

static int take_vm_update(struct parsing *parsing, const char *value)
{
	if (strcmp(value, "sdma") && strcmp(value, "cpu"))
		return -EINVAL;
	parsing->options->cpu_update = *value == 'c';
	return 0;
}

static int take_break(struct parsing *parsing, const char *value)
{
	struct emu_options *options = parsing->options;

	if (!strcmp(value, "flush-all"))
		options->break_flush_all = true;
	else if (!strcmp(value, "clean-split"))
		options->break_clean_split = true;
	else if (!strcmp(value, "ignore-delay"))
		options->break_ignore_delay = true;
	else
		return -EINVAL;
	return 0;
}

static int take_inject(struct parsing *parsing, const char *value)
{
	parsing->inject = value;
	return 0;
}

static int take_late_us(struct parsing *parsing, const char *value)
{
	double *us = &parsing->options->inject.late_us;

	return parse_us(value, us) || *us <= 0 ? -EINVAL : 0;
}

static const struct {
	const char *name, *takes;
	int (*take)(struct parsing *parsing, const char *value);
} known[] = {
	{ "kernel", "6.1, 6.12 or 7.2", take_kernel },
	{ "vram", "a size from 16MiB to 1TiB in whole pages", take_vram },
	{ "gtt", "a size from 16MiB to 1TiB in whole pages", take_gtt },
	{ "identity", "0 or 1", take_identity },
	{ "window", "a size from 2MiB to 256GiB in whole pages", take_window },
	{ "vm_update", "sdma or cpu", take_vm_update },
	{ "seed", "a whole number", take_seed },
	{ "ioctl_us", "a number from 0 to 1000000", take_ioctl_us },
	{ "pte_us", "a number from 0 to 1000000", take_pte_us },
	{ "trace", "the path of a file", take_trace },
	{ "break", "flush-all, clean-split or ignore-delay", take_break },
	{ "inject", "faults, separated by commas", take_inject },
	{ "late_us", "a number above 0, to 1000000", take_late_us },
};

#define KNOWN (sizeof(known) / sizeof(known[0]))

static int refuse_name(const struct parsing *parsing, const char *name)
{
	char names[200];
	size_t used = 0;

	for (size_t i = 0; i < KNOWN && used < sizeof(names); i++)
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "",
		                         known[i].name);
	/* In the name of a device those are taken out before it comes here: device_emulated.c. */
	vmkv_text(parsing->error, parsing->error_bytes,
	          "emulated card: no option \"%.40s\"; there are %s, and in the name of a device also "
	          "commit, slabs, safe and wait_us", name, names);
	return -EINVAL;
}

static int take_option(struct parsing *parsing, char *option, uint32_t *given)
{
	char *value = strchr(option, '=');

	if (!value) {
		vmkv_text(parsing->error, parsing->error_bytes,
		          "emulated card: option \"%s\" lacks a value", option);
		return -EINVAL;
	}
	*value++ = '\0';
	for (size_t i = 0; i < KNOWN; i++) {
		if (strcmp(known[i].name, option))
			continue;
		if (*given & 1u << i) {
			vmkv_text(parsing->error, parsing->error_bytes,
			          "emulated card: option \"%s\" is given twice", option);
			return -EINVAL;
		}
		*given |= 1u << i;
		if (!known[i].take(parsing, value))
			return 0;
		vmkv_text(parsing->error, parsing->error_bytes,
		          "emulated card: %s=%s: it takes %s", option, value, known[i].takes);
		return -EINVAL;
	}
	return refuse_name(parsing, option);
}

static int parse_model(const struct parsing *parsing, const char *name)
{
	char names[100];

	parsing->options->model = emu_model_find(name);
	if (parsing->options->model)
		return 0;
	emu_model_names(names, sizeof(names));
	vmkv_text(parsing->error, parsing->error_bytes,
	          "emulated card: no model \"%s\"; there are %s", name, names);
	return -EINVAL;
}

static int parse_text(struct parsing *parsing, char *text)
{
	char *options = strchr(text, '?'), *next;
	uint32_t given = 0;
	int err;

	if (options)
		*options++ = '\0';
	err = parse_model(parsing, text);
	for (; !err && options && *options; options = next) {
		next = strchr(options, '&');
		if (next)
			*next++ = '\0';
		err = take_option(parsing, options, &given);
	}
	return err;
}

static void defaults_fill(struct emu_options *options)
{
	if (!options->kernel)
		options->kernel = emu_kernel_find("6.12");
	if (!options->vram_bytes)
		options->vram_bytes = options->model->vram_bytes;
	if (!options->gtt_bytes)
		options->gtt_bytes = options->vram_bytes;
	if (!options->window_bytes)
		options->window_bytes = WINDOW_DEFAULT;
}

int emu_options_parse(const char *spec, struct emu_options *options, char *error, size_t n)
{
	struct parsing parsing = { options, error, n, NULL };
	char text[1024];
	int err;

	memset(options, 0, sizeof(*options));
	if (!spec || strlen(spec) >= sizeof(text)) {
		vmkv_text(error, n, "emulated card: the spec is %s", spec ? "too long" : "NULL");
		return -EINVAL;
	}
	strcpy(text, spec);
	err = parse_text(&parsing, text);
	if (err)
		return err;
	defaults_fill(options);
	return emu_inject_parse(parsing.inject, options, error, n);
}
