/* SPDX-License-Identifier: MIT
 *
 * Queues of jobs, and the card's thread that runs them: one job at a time, the head of any queue that waits
 * for nothing.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "entry.h"

#define POLL_NS 100000
#define FLUSH_NS 1000000000 /* that jobs have to run in once nobody has their file any more */

/* ---- jobs ---------------------------------------------------------------------------------------- */

int emu_job_create(struct emu_gpu *gpu, enum emu_job_kind kind, struct emu_vm *owner,
                   struct emu_job **ret)
{
	struct emu_job *job = calloc(1, sizeof(*job));

	if (!job || emu_fence_create(gpu, owner, &job->done)) {
		free(job);
		return -ENOMEM;
	}
	job->kind = kind;
	emu_list_init(&job->link);
	*ret = job;
	return 0;
}

int emu_job_wait_for(struct emu_job *job, struct emu_fence *fence)
{
	struct emu_fence **waits;
	uint32_t room;

	if (!fence || fence->signalled)
		return 0;
	for (uint32_t i = 0; i < job->wait_count; i++)
		if (job->waits[i] == fence)
			return 0;
	if (job->wait_count == job->wait_room) {
		room = job->wait_room ? job->wait_room * 2 : 4;
		waits = realloc(job->waits, room * sizeof(struct emu_fence *));
		if (!waits)
			return -ENOMEM;
		job->waits = waits;
		job->wait_room = room;
	}
	emu_fence_get(fence);
	job->waits[job->wait_count++] = fence;
	return 0;
}

int emu_job_wait_for_resv(struct emu_job *job, struct emu_resv *resv, enum emu_usage up_to,
                          const struct emu_vm *not_of, const struct emu_vm *only_of)
{
	for (uint32_t i = 0; i < resv->count; i++) {
		const struct emu_resv_fence *item = &resv->fences[i];
		int error;

		if (item->usage > up_to || (not_of && item->fence->owner == not_of) ||
		    (only_of && item->fence->owner != only_of))
			continue;
		error = emu_job_wait_for(job, item->fence);
		if (error)
			return error;
	}
	return 0;
}

void emu_job_destroy(struct emu_job *job)
{
	emu_fence_signal(job->done, -ECANCELED);
	emu_fence_put(job->done);
	for (uint32_t i = 0; i < job->wait_count; i++)
		emu_fence_put(job->waits[i]);
	free(job->waits);
	free(job->ibs);
	free(job->writes);
	if (job->user_fence_bo)
		emu_bo_put(job->user_fence_bo);
	if (job->context)
		emu_context_put(job->context);
	free(job);
}

void emu_job_push(struct emu_job *job, struct emu_entity *entity)
{
	struct emu_gpu *gpu = job->done->gpu;

	job->entity = entity;
	job->order = ++gpu->jobs.pushed;
	if (emu_list_is_empty(&entity->jobs))
		emu_list_append(&gpu->jobs.entities, &entity->link);
	emu_list_append(&entity->jobs, &job->link);
	pthread_cond_broadcast(&gpu->changed);
}

/* ---- running ------------------------------------------------------------------------------------- */

/* From where the job is. */
static int ibs_run(struct emu_gpu *gpu, struct emu_job *job)
{
	for (; job->ib_at < job->ib_count; job->ib_at++) {
		const struct emu_ib *ib = &job->ibs[job->ib_at];
		int error;

		if (!job->stream_count)
			job->streams[job->stream_count++] =
			    (struct emu_stream){ .address = ib->address, .left = ib->dwords };
		error = ib->ip == AMDGPU_HW_IP_DMA ? emu_sdma_run(gpu, job) : emu_pm4_run(gpu, job);
		if (error)
			return error;
	}
	return 0;
}

static void user_fence_write(struct emu_gpu *gpu, const struct emu_job *job)
{
	uint8_t *memory = gpu->memory.view + job->user_fence_bo->storage + job->user_fence_offset;

	memcpy(memory, &job->done->number, sizeof(job->done->number));
}

/* Whether nobody wants a job to go on waiting for memory. */
static bool job_is_forsaken(struct emu_gpu *gpu, struct emu_job *job)
{
	if (gpu->going || gpu->jobs.ending || job->context->file->closing)
		return true;
	if (!job->polls_since_ns)
		job->polls_since_ns = emu_now_ns();
	if (emu_now_ns() - job->polls_since_ns < EMU_HANG_NS)
		return false;
	emu_error_set(gpu, "a job hung: its packet at 0x%llx waited for memory for 10 s",
	              (unsigned long long)job->streams[job->stream_count - 1].address);
	return true;
}

static int ibs_begin(struct emu_gpu *gpu, struct emu_job *job)
{
	const struct emu_file *file = job->context->file;

	if (file->closing && emu_now_ns() - file->closing_ns > FLUSH_NS)
		return -ESRCH;
	if (job->context->guilty)
		return -ECANCELED;
	if (!job->begun && gpu->options.inject.faults && emu_inject_run(gpu, job))
		return -ECANCELED;
	job->begun = true;
	return 0;
}

static int ibs_run_unlocked(struct emu_gpu *gpu, struct emu_job *job)
{
	uint64_t began_ns = emu_now_ns();
	int error = ibs_begin(gpu, job);

	if (error)
		return error;
	pthread_mutex_unlock(&gpu->lock);
	error = ibs_run(gpu, job);
	pthread_mutex_lock(&gpu->lock);
	job->context->file->engine_ns[job->ibs[0].ip] += emu_now_ns() - began_ns;
	if (error == -EAGAIN && !job_is_forsaken(gpu, job))
		return -EAGAIN;
	if (error) {
		job->context->guilty = true;
		gpu->jobs.reset_count++;
		return error == -EFAULT || error == -EAGAIN ? -ECANCELED : error;
	}
	if (job->user_fence_bo)
		user_fence_write(gpu, job);
	return 0;
}

static int ptes_run(struct emu_gpu *gpu, const struct emu_job *job)
{
	double us = gpu->options.pte_us;

	if (us > 0) {
		pthread_mutex_unlock(&gpu->lock);
		emu_wait_until_ns(emu_now_ns() + (uint64_t)(us * 1e3));
		pthread_mutex_lock(&gpu->lock);
	}
	return emu_page_table_write(job->vm, job->writes, job->write_count);
}

static int job_run(struct emu_gpu *gpu, struct emu_job *job)
{
	switch (job->kind) {
	case EMU_JOB_IBS:
		return ibs_run_unlocked(gpu, job);
	case EMU_JOB_PTES:
		return ptes_run(gpu, job);
	case EMU_JOB_CLEAR:
		emu_bo_clear(job->bo);
		return 0;
	case EMU_JOB_MOVE:
		return 0;
	}
	return -EINVAL;
}

/* ---- choosing ------------------------------------------------------------------------------------ */

static bool job_is_ready(struct emu_job *job)
{
	while (job->wait_count && job->waits[job->wait_count - 1]->signalled)
		emu_fence_put(job->waits[--job->wait_count]);
	return !job->wait_count;
}

static uint64_t random_next(struct emu_jobs *jobs)
{
	return emu_mix(jobs->random += EMU_MIX_STEP);
}

static struct emu_job *job_choose(struct emu_gpu *gpu)
{
	struct emu_job *chosen = NULL;
	uint64_t seen = 0;

	EMU_FOR_EACH(item, &gpu->jobs.entities) {
		struct emu_entity *entity = EMU_ENTRY(item, struct emu_entity, link);
		struct emu_job *job = EMU_ENTRY(entity->jobs.next, struct emu_job, link);

		if (job->polls || !job_is_ready(job))
			continue;
		seen++;
		if (!chosen || (gpu->options.seed ? random_next(&gpu->jobs) % seen == 0
		                                  : job->order < chosen->order))
			chosen = job;
	}
	return chosen;
}

/* Something ran, or time has passed: what jobs wait for may have come. */
static void polls_end(struct emu_jobs *jobs)
{
	EMU_FOR_EACH(item, &jobs->entities) {
		struct emu_entity *entity = EMU_ENTRY(item, struct emu_entity, link);

		EMU_ENTRY(entity->jobs.next, struct emu_job, link)->polls = false;
	}
	jobs->polling = 0;
}

static void job_finish(struct emu_gpu *gpu, struct emu_job *job, int error)
{
	emu_list_remove(&job->link);
	if (emu_list_is_empty(&job->entity->jobs))
		emu_list_remove(&job->entity->link);
	emu_fence_signal(job->done, error);
	emu_job_destroy(job);
	emu_memory_sweep(gpu);
}

static void job_take(struct emu_gpu *gpu, struct emu_job *job)
{
	int error = job_run(gpu, job);

	if (error == -EAGAIN) {
		job->polls = true;
		gpu->jobs.polling++;
		return;
	}
	job_finish(gpu, job, error);
	if (gpu->jobs.polling)
		polls_end(&gpu->jobs);
}

/* Jobs wait for memory that others, or the process, are to write. */
static void thread_nap(struct emu_gpu *gpu)
{
	uint64_t until = emu_now_ns() + POLL_NS;
	struct timespec time = { .tv_sec = (time_t)(until / 1000000000),
		                 .tv_nsec = (long)(until % 1000000000) };

	(void)pthread_cond_timedwait(&gpu->changed, &gpu->lock, &time);
	polls_end(&gpu->jobs);
}

static void *thread_main(void *argument)
{
	struct emu_gpu *gpu = argument;
	struct emu_jobs *jobs = &gpu->jobs;

	pthread_mutex_lock(&gpu->lock);
	while (!jobs->ending || !emu_list_is_empty(&jobs->entities)) {
		bool held = jobs->paused && !jobs->draining && !jobs->ending;
		struct emu_job *job = held ? NULL : job_choose(gpu);

		jobs->running = job || jobs->polling;
		if (job)
			job_take(gpu, job);
		else if (!held && jobs->polling)
			thread_nap(gpu);
		else
			pthread_cond_wait(&gpu->changed, &gpu->lock);
	}
	pthread_mutex_unlock(&gpu->lock);
	return NULL;
}

/* ---- queues -------------------------------------------------------------------------------------- */

void emu_entity_init(struct emu_entity *entity)
{
	emu_list_init(&entity->jobs);
	emu_list_init(&entity->link);
}

void emu_entity_fini(struct emu_gpu *gpu, struct emu_entity *entity)
{
	gpu->jobs.draining++;
	pthread_cond_broadcast(&gpu->changed);
	while (!emu_list_is_empty(&entity->jobs))
		pthread_cond_wait(&gpu->changed, &gpu->lock);
	gpu->jobs.draining--;
}

static bool file_has_jobs(const struct emu_file *file)
{
	EMU_FOR_EACH(item, &file->gpu->jobs.entities) {
		const struct emu_entity *entity = EMU_ENTRY(item, struct emu_entity, link);
		const struct emu_job *job = EMU_ENTRY(entity->jobs.next, struct emu_job, link);

		if (job->context && job->context->file == file)
			return true;
	}
	return false;
}

static void file_drop_objects(struct emu_file *file)
{
	void *item;

	for (uint32_t id = 1; (item = emu_ids_next(&file->contexts, &id)); id++) {
		emu_ids_remove(&file->contexts, id);
		emu_context_put(item);
	}
	for (uint32_t id = 1; (item = emu_ids_next(&file->bo_lists, &id)); id++) {
		emu_ids_remove(&file->bo_lists, id);
		emu_bo_list_put(item);
	}
	for (uint32_t id = 1; (item = emu_ids_next(&file->syncobjs, &id)); id++) {
		emu_ids_remove(&file->syncobjs, id);
		emu_syncobj_put(item);
	}
}

void emu_file_jobs_fini(struct emu_file *file)
{
	struct emu_gpu *gpu = file->gpu;

	file->closing_ns = emu_now_ns();
	file->closing = true;
	gpu->jobs.draining++;
	pthread_cond_broadcast(&gpu->changed);
	while (file_has_jobs(file))
		pthread_cond_wait(&gpu->changed, &gpu->lock);
	gpu->jobs.draining--;
	file_drop_objects(file);
	emu_exports_sweep(gpu);
}

/* ---- life ---------------------------------------------------------------------------------------- */

int emu_jobs_init(struct emu_gpu *gpu)
{
	struct emu_jobs *jobs = &gpu->jobs;
	int error;

	emu_list_init(&jobs->entities);
	emu_list_init(&jobs->exports);
	emu_list_init(&jobs->eventfds);
	emu_list_init(&jobs->waits);
	emu_entity_init(&jobs->kernel);
	jobs->random = gpu->options.seed;
	(void)emu_fence_signalled(gpu);
	error = emu_thread_start(&jobs->thread, thread_main, gpu);
	jobs->started = !error;
	return error;
}

void emu_jobs_fini(struct emu_gpu *gpu)
{
	struct emu_jobs *jobs = &gpu->jobs;

	if (!jobs->started)
		return;
	jobs->ending = true;
	pthread_cond_broadcast(&gpu->changed);
	pthread_mutex_unlock(&gpu->lock);
	pthread_join(jobs->thread, NULL);
	pthread_mutex_lock(&gpu->lock);
	jobs->started = false;
	free(jobs->registers);
	jobs->registers = NULL;
	emu_exports_fini(gpu);
	emu_eventfds_drop(&jobs->eventfds);
}
