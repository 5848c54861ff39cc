/* SPDX-License-Identifier: MIT
 *
 * inject=late-visibility in the identity window. The GPU looks at the clock with each access, which the
 * process's own accesses can't: what is mapped anew shows zeros until a thread puts the memory there. It
 * does so well before the GPU sees it, and each ioctl does it too, so that a late thread does no harm.
 */
#include <errno.h>
#include <stdlib.h>

#include "entry.h"
#include "vm_parts.h"

/* A range that is shown at once. */
struct late {
	struct emu_list link;
	struct emu_vm *vm;
	uint64_t begin, end;
	uint64_t due_ns; /* of the page that is due first */
};

static uint64_t late_ns(const struct emu_gpu *gpu)
{
	return (uint64_t)(gpu->options.inject.late_us * 1e3);
}

uint64_t emu_late_ahead_ns(const struct emu_gpu *gpu)
{
	return late_ns(gpu) / 2;
}

/* How much earlier than due a page may be shown, to go with its neighbours. */
static uint64_t together_ns(const struct emu_gpu *gpu)
{
	return late_ns(gpu) / 8;
}

static struct late *late_first(const struct emu_gpu *gpu)
{
	const struct emu_list *list = &gpu->inject.late;

	return emu_list_is_empty(list) ? NULL : EMU_ENTRY(list->next, struct late, link);
}

int emu_late_add(struct emu_vm *vm, uint64_t address, uint64_t due_ns)
{
	struct emu_gpu *gpu = vm->gpu;
	struct emu_list *list = &gpu->inject.late;
	struct late *late = emu_list_is_empty(list)
	                        ? NULL
	                        : EMU_ENTRY(list->previous, struct late, link);

	if (late && late->vm == vm && late->end == address &&
	    due_ns <= late->due_ns + together_ns(gpu)) {
		late->end += EMU_PAGE_BYTES;
		return 0;
	}
	late = calloc(1, sizeof(*late));
	if (!late)
		return -ENOMEM;
	late->vm = vm;
	late->begin = address;
	late->end = address + EMU_PAGE_BYTES;
	late->due_ns = due_ns;
	emu_list_init(&late->link);
	if (emu_list_is_empty(list))
		pthread_cond_signal(&gpu->inject.late_changed);
	emu_list_append(list, &late->link);
	return 0;
}

void emu_late_show(struct emu_gpu *gpu)
{
	uint64_t now = emu_now_ns();
	struct late *late;

	while ((late = late_first(gpu)) && late->due_ns <= now) {
		struct emu_identity_run run = { .vm = late->vm };

		emu_list_remove(&late->link);
		emu_tlb_show_late(&run, late->begin, late->end, now + together_ns(gpu));
		(void)emu_identity_finish(&run); /* the card's text tells */
		free(late);
	}
}

void emu_late_forget(struct emu_vm *vm)
{
	EMU_FOR_EACH(item, &vm->gpu->inject.late) {
		struct late *late = EMU_ENTRY(item, struct late, link);

		if (late->vm != vm)
			continue;
		emu_list_remove(item);
		free(late);
	}
}

static void *thread_main(void *argument)
{
	struct emu_gpu *gpu = argument;
	struct emu_inject *inject = &gpu->inject;

	pthread_mutex_lock(&gpu->lock);
	while (!inject->thread_ending) {
		const struct late *late = late_first(gpu);
		struct timespec until;

		if (!late) {
			pthread_cond_wait(&inject->late_changed, &gpu->lock);
			continue;
		}
		until.tv_sec = (time_t)(late->due_ns / 1000000000);
		until.tv_nsec = (long)(late->due_ns % 1000000000);
		(void)pthread_cond_timedwait(&inject->late_changed, &gpu->lock, &until);
		emu_late_show(gpu);
	}
	pthread_mutex_unlock(&gpu->lock);
	return NULL;
}

int emu_late_init(struct emu_gpu *gpu)
{
	struct emu_inject *inject = &gpu->inject;
	int error;

	emu_list_init(&inject->late);
	if (!(gpu->options.inject.faults & EMU_INJECT_LATE_VISIBILITY) || !gpu->options.identity)
		return 0;
	error = emu_condition_init(&inject->late_changed);
	if (error)
		return error;
	error = emu_thread_start(&inject->thread, thread_main, gpu);
	if (error) {
		pthread_cond_destroy(&inject->late_changed);
		return error;
	}
	inject->thread_started = true;
	return 0;
}

void emu_late_fini(struct emu_gpu *gpu)
{
	struct emu_inject *inject = &gpu->inject;

	if (!inject->thread_started)
		return;
	inject->thread_ending = true;
	pthread_cond_signal(&inject->late_changed);
	pthread_mutex_unlock(&gpu->lock);
	pthread_join(inject->thread, NULL);
	pthread_mutex_lock(&gpu->lock);
	inject->thread_started = false;
	pthread_cond_destroy(&inject->late_changed);
}
