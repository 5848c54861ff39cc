/* SPDX-License-Identifier: MIT
 *
 * What a shared cache tells of itself, where, and when it refuses to.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache_fixture.h"
#include "published.h"

/* posix_fallocate, by its name in the library, fails with this unless it is 0: see the program's link arguments. */
static int no_room;
int __real_posix_fallocate64(int fd, off_t offset, off_t bytes);
int __wrap_posix_fallocate64(int fd, off_t offset, off_t bytes);
int __wrap_posix_fallocate64(int fd, off_t offset, off_t bytes)
{
	return no_room != 0 ? no_room : __real_posix_fallocate64(fd, offset, bytes);
}

static void shared_begin(struct rig *r)
{
	rig_prepare(r, open_host("host"));
	r->options.share = VMKV_SHARE_ON;
	rig_create(r);
}

/* The file's state now, which must be whole. */
static struct published now(void)
{
	struct published p;
	int fd = published_open();

	if (!published_read(fd, &p) || !published_check(&p))
		CHECK_FAIL("%s", p.wrong);
	close(fd);
	return p;
}

/* How many files there are, hidden ones too. */
static int files(const char *directory)
{
	const struct dirent *entry;
	DIR *open = opendir(directory);
	int n = 0;

	while (open != NULL && (entry = readdir(open)) != NULL)
		n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
	if (open != NULL)
		closedir(open);
	return n;
}

static const char *in_directory(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", published_directory(), name);
	return path;
}

/* ---- whether --------------------------------------------------------------------------------- */

static void test_only_caches_that_ask_are_shared(void)
{
	static const struct {
		const char *environment;
		uint32_t share;
		bool shared;
	} cases[] = {
		{ NULL, VMKV_SHARE_DEFAULT, false }, { NULL, VMKV_SHARE_ON, true },
		{ NULL, VMKV_SHARE_OFF, false },     { "", VMKV_SHARE_DEFAULT, false },
		{ "1", VMKV_SHARE_DEFAULT, true },   { "1", VMKV_SHARE_ON, true },
		{ "1", VMKV_SHARE_OFF, false },      { "0", VMKV_SHARE_DEFAULT, false },
		{ "0", VMKV_SHARE_ON, false },       { "0", VMKV_SHARE_OFF, false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rig r;

		rig_prepare(&r, open_host("host"));
		if (cases[i].environment != NULL)
			CHECK_EQ(setenv("VMKV_STATS", cases[i].environment, 1), 0);
		r.options.share = cases[i].share;
		rig_create(&r);
		CHECK_EQ(files(in_directory("vmkv")), cases[i].shared);
		rig_end(&r);
		CHECK_EQ(files(in_directory("vmkv")), 0);
		CHECK_EQ(unsetenv("VMKV_STATS"), 0);
	}
}

static void test_what_means_nothing_is_refused(void)
{
	struct rig r;

	rig_prepare(&r, open_host("host"));
	r.options.share = 3;
	CHECK_EQ(rig_try_create(&r), -EINVAL);
	CHECK_CONTAINS(r.text, "share 3 is not one of enum vmkv_share");
	r.options.share = VMKV_SHARE_DEFAULT;
	CHECK_EQ(setenv("VMKV_STATS", "yes", 1), 0);
	CHECK_EQ(rig_try_create(&r), -EINVAL);
	CHECK_CONTAINS(r.text, "VMKV_STATS is \"yes\": it must be 0 or 1");
	CHECK_EQ(unsetenv("VMKV_STATS"), 0);
	r.options.reserved = 1;
	CHECK_EQ(rig_try_create(&r), -E2BIG);
	rig_end(&r);
}

/* ---- what ------------------------------------------------------------------------------------ */

static void test_the_header_says_who_and_what(void)
{
	struct vmkv_cache_info info = { .struct_size = sizeof(info) };
	struct published p;
	struct rig r;
	FILE *stat;
	char text[1024];

	shared_begin(&r);
	p = now();
	CHECK_EQ(vmkv_cache_info(r.cache, &info), 0);
	CHECK_EQ(p.header->pid, getpid());
	CHECK_EQ(p.header->uid, geteuid());
	CHECK_STR(p.header->device, "host");
	CHECK_STR(p.header->driver, "host");
	CHECK_STR(p.header->pci_id, "");
	CHECK_CONTAINS("test_publish", p.header->program);
	CHECK(p.header->program[0] != 0);
	CHECK_EQ(p.header->library, vmkv_version());
	CHECK_EQ(p.header->page_bytes, info.page_bytes);
	CHECK_EQ(p.header->slab_bytes, info.slab_bytes);
	CHECK_EQ(p.header->reserved_bytes, info.reserved_bytes);
	CHECK_EQ(p.header->bytes_per_token, info.bytes_per_token);
	CHECK_EQ(p.header->slot_count, info.slot_count);
	CHECK_EQ(p.header->max_slots, info.max_slots);
	CHECK_EQ(p.header->max_tokens, info.max_tokens);
	/* Field 22 of a name with no blanks in it. */
	stat = fopen("/proc/self/stat", "r");
	CHECK(stat != NULL && fgets(text, sizeof(text), stat) != NULL);
	fclose(stat);
	char *at = text;
	for (int field = 1; field < 22; field++)
		at = strchr(at, ' ') + 1;
	CHECK_EQ(p.header->start_ticks, strtoull(at, NULL, 10));
	CHECK_EQ(strlen(p.header->boot_id), 36);
	published_free(&p);
	rig_end(&r);
}

static void test_places_lead_to_the_addresses_of_spans(void)
{
	struct published p;
	vmkv_seq seq;
	struct rig r;

	rig_prepare(&r, open_host("host"));
	model_begin(&r.m);
	model_f16(&r.m, 3, 2, 64);
	model_plain(&r.m, VMKV_POLICY_WINDOW, 2, 1024)->window_tokens = 32;
	r.options.share = VMKV_SHARE_ON;
	r.options.layout = VMKV_LAYOUT_TOKEN;
	rig_create(&r);
	seq_open(&r);
	seq = seq_of(&r, 10); /* in slot 1 */
	p = now();
	CHECK_EQ(p.place_count, 8);
	for (uint64_t i = 0; i < p.place_count; i++) {
		const struct vmkv_published_place *place = &p.places[i];
		const struct vmkv_published_region *region = &p.regions[place->region];
		struct vmkv_span span = span_of(&r, seq, place->group, place->layer, place->tensor);

		CHECK_EQ(region->base + region->slot_stride + place->offset, span.address);
		CHECK_EQ(region->token_bytes, span.token_stride);
		CHECK_EQ(place->row_bytes, span.row_bytes);
	}
	CHECK_EQ(p.groups[1].window_tokens, 32);
	CHECK_EQ(p.groups[1].first_place, 6);
	published_free(&p);
	rig_end(&r);
}

static void test_pieces_are_the_mappings_of_spans(void)
{
	struct vmkv_mapping mappings[16];
	uint64_t found = 0;
	struct published p;
	vmkv_seq seq;
	struct rig r;

	shared_begin(&r);
	seq_of(&r, 5);
	seq = seq_of(&r, 300);
	p = now();
	for (uint32_t layer = 0; layer < 2; layer++) {
		size_t n = mappings_of(&r, seq, 0, layer, mappings, 16);

		for (size_t i = 0; i < n; i++) {
			const struct vmkv_published_piece *piece = published_piece(
			    &p, mappings[i].slab * p.header->slab_pages + mappings[i].slab_offset / PAGE);
			const struct vmkv_published_region *region = &p.regions[layer];

			CHECK(piece != NULL);
			CHECK_EQ(piece->slot, 1);
			CHECK_EQ(piece->region, layer);
			CHECK_EQ(region->base + region->slot_stride + piece->page * PAGE,
			         mappings[i].address);
			CHECK_EQ(piece->pages * PAGE, mappings[i].bytes);
			CHECK_EQ(piece->state, VMKV_PUBLISHED_PIECE_MAPPED);
			found++;
		}
	}
	CHECK(found >= 2);
	CHECK_EQ(p.slots[1].seq, seq);
	CHECK_EQ(p.slots[1].pieces, found);
	CHECK_EQ(p.slots[1].mapped_pages * PAGE, mapped_by(300));
	published_free(&p);
	rig_end(&r);
}

static void test_a_step_that_maps_nothing_writes_lives_alone(void)
{
	struct published before, after;
	vmkv_seq seq;
	struct rig r;

	shared_begin(&r);
	seq = seq_of(&r, 1);
	before = now();
	step(&r, seq, 2);
	step(&r, seq, 4);
	after = now();
	CHECK_EQ(after.epoch, before.epoch + 2);
	CHECK_EQ(after.state.epoch, before.state.epoch);
	CHECK_EQ(after.state.steps + (after.epoch - after.state.epoch), 3);
	CHECK_EQ(after.lives[0].tokens, 4);
	CHECK_EQ(after.lives[0].previous, 2);
	CHECK_EQ(after.lives[0].step, 3);
	CHECK(after.header->beat_ns >= before.header->beat_ns);
	CHECK(memcmp(before.slots, after.slots, before.slot_count * sizeof(*before.slots)) == 0);
	published_free(&before);
	published_free(&after);
	rig_end(&r);
}

static void test_a_closed_sequence_retires_and_is_gone(void)
{
	struct published p;
	vmkv_seq seq;
	struct rig r;

	shared_begin(&r);
	seq = seq_of(&r, 8);
	seq_close(&r, seq, 5);
	p = now();
	CHECK_EQ(p.slots[0].state, VMKV_PUBLISHED_SLOT_RETIRING);
	CHECK_EQ(p.slots[0].seq, seq); /* the last one */
	CHECK_EQ(p.slots[0].retiring_pages, 4);
	CHECK(p.slots[0].closed_ns >= p.slots[0].opened_ns && p.slots[0].opened_ns > 0);
	published_free(&p);
	retire(&r, 5);
	p = now();
	CHECK_EQ(p.slots[0].state, VMKV_PUBLISHED_SLOT_FREE);
	CHECK_EQ(p.slots[0].warm_pages, 4);
	CHECK_EQ(p.state.completed, 5);
	published_free(&p);
	CHECK_EQ(vmkv_cache_shrink(r.cache, 0, NULL), 0);
	p = now();
	CHECK_EQ(p.slots[0].pieces, 0);
	CHECK_EQ(p.state.slabs, 0);
	published_free(&p);
	rig_end(&r);
}

/* The events of a kind. Returns how many there are. */
static uint32_t events_of(const struct published *p, uint32_t kind,
                          struct vmkv_published_event *last)
{
	uint32_t n = 0;

	for (uint64_t serial = 1; serial <= p->state.events; serial++) {
		const struct vmkv_published_event *e =
		    &p->ring[(serial - 1) % VMKV_PUBLISHED_EVENTS];

		if (e->serial != serial || e->kind != kind)
			continue;
		*last = *e;
		n++;
	}
	return n;
}

static void test_events_tell_what_happened(void)
{
	struct vmkv_published_event e;
	struct published p;
	vmkv_seq seq, big;
	struct rig r;

	shared_begin(&r);
	seq = seq_of(&r, 5);
	big = seq_open(&r);
	r.options.budget_bytes = 1 * MIB;
	CHECK_EQ(vmkv_cache_set_budget(r.cache, 1 * MIB), 0);
	CHECK_EQ(try_step(&r, big, 1000, 0), -ENOSPC);
	seq_close(&r, seq, 0);
	retire(&r, 0);
	CHECK_EQ(vmkv_cache_shrink(r.cache, 0, NULL), 0);
	p = now();
	CHECK_EQ(events_of(&p, VMKV_PUBLISHED_EVENT_MAP, &e), 1);
	CHECK_EQ(e.seq, seq);
	CHECK_EQ(e.slot, 0);
	CHECK_EQ(e.region, 0);
	CHECK_EQ(e.regions, 2); /* the same in both layers */
	CHECK_EQ(e.address, p.regions[0].base);
	CHECK_EQ(e.bytes, 2 * PAGE);
	CHECK(e.duration_ns > 0 && e.time_ns > 0);
	CHECK_EQ(events_of(&p, VMKV_PUBLISHED_EVENT_UNMAP, &e), 1);
	CHECK_EQ(e.seq, seq);
	CHECK_EQ(e.regions, 2);
	CHECK_EQ(e.bytes, 2 * PAGE);
	CHECK_EQ(events_of(&p, VMKV_PUBLISHED_EVENT_OPEN, &e), 2);
	CHECK_EQ(e.seq, big);
	CHECK_EQ(events_of(&p, VMKV_PUBLISHED_EVENT_CLOSE, &e), 1);
	CHECK_EQ(e.bytes, mapped_by(5));
	CHECK_EQ(events_of(&p, VMKV_PUBLISHED_EVENT_SHORTAGE, &e), 1);
	CHECK_EQ(e.seq, big);
	CHECK_EQ(e.region, VMKV_SHORTAGE_BYTES);
	CHECK(e.bytes > 0);
	CHECK_EQ(events_of(&p, VMKV_PUBLISHED_EVENT_RETIRE, &e), 1);
	CHECK_EQ(e.region, UINT32_MAX);
	CHECK_EQ(events_of(&p, VMKV_PUBLISHED_EVENT_SLAB, &e), 1);
	CHECK_EQ(e.bytes, 16 * MIB);
	CHECK_EQ(events_of(&p, VMKV_PUBLISHED_EVENT_SLAB_GONE, &e), 1);
	CHECK_EQ(events_of(&p, VMKV_PUBLISHED_EVENT_BUDGET, &e), 1);
	CHECK_EQ(e.bytes, 1 * MIB);
	published_free(&p);
	rig_end(&r);
}

static void test_a_window_tells_what_it_trims(void)
{
	struct vmkv_published_event e;
	struct published p;
	vmkv_seq seq;
	struct rig r;

	rig_prepare(&r, open_host("host"));
	model_begin(&r.m);
	model_plain(&r.m, VMKV_POLICY_WINDOW, 2, ROW)->window_tokens = 8;
	r.options.window_mapping_max_bytes = PAGE;
	r.options.share = VMKV_SHARE_ON;
	rig_create(&r);
	seq = seq_of(&r, 12);
	step_until(&r, seq, 13, 3);
	p = now();
	CHECK_EQ(events_of(&p, VMKV_PUBLISHED_EVENT_TRIM, &e), 1);
	CHECK_EQ(e.regions, 2);
	CHECK_EQ(e.bytes, PAGE);
	CHECK_EQ(e.address, p.regions[0].base);
	CHECK_EQ(p.slots[0].retiring_pages, 2);
	published_free(&p);
	retire(&r, 3);
	p = now();
	CHECK_EQ(events_of(&p, VMKV_PUBLISHED_EVENT_RETIRE, &e), 1);
	CHECK_EQ(e.regions, 2);
	CHECK_EQ(events_of(&p, VMKV_PUBLISHED_EVENT_UNMAP, &e), 1);
	CHECK_EQ(p.slots[0].retiring_pages, 0);
	published_free(&p);
	rig_end(&r);
}

static void test_the_ring_keeps_the_last_events(void)
{
	struct published p;
	struct rig r;
	int held = 0;

	shared_begin(&r);
	for (int i = 0; i < 3000; i++)
		seq_close(&r, seq_open(&r), 0); /* OPEN, CLOSE, RETIRE */
	p = now();
	CHECK_EQ(p.state.events, 9000);
	for (uint64_t i = 0; i < VMKV_PUBLISHED_EVENTS; i++)
		held += p.ring[i].serial > 9000 - VMKV_PUBLISHED_EVENTS && p.ring[i].serial <= 9000;
	CHECK_EQ(held, VMKV_PUBLISHED_EVENTS);
	published_free(&p);
	rig_end(&r);
}

static void test_driver_calls_are_timed(void)
{
	struct published p;
	uint64_t calls = 0;
	vmkv_seq seq;
	struct rig r;

	shared_begin(&r);
	seq = seq_of(&r, 4);
	step(&r, seq, 8);
	step(&r, seq, 9);
	p = now();
	for (int i = 0; i < VMKV_PUBLISHED_BUCKETS; i++)
		calls += p.times[VMKV_PUBLISHED_CALL_MAP].buckets[i];
	CHECK_EQ(calls, 3);
	CHECK_EQ(p.times[VMKV_PUBLISHED_CALL_MAP].ranges, 6);
	CHECK(p.times[VMKV_PUBLISHED_CALL_MAP].sum_ns >= p.times[VMKV_PUBLISHED_CALL_MAP].max_ns);
	CHECK(p.times[VMKV_PUBLISHED_CALL_MAP].max_ns > 0);
	CHECK_EQ(p.times[VMKV_PUBLISHED_CALL_UNMAP].sum_ns, 0);
	published_free(&p);
	rig_end(&r);
}

static void test_slabs_beyond_a_raised_budget_are_left_out(void)
{
	struct published p;
	struct rig r;

	rig_prepare(&r, open_host("host"));
	r.options.slab_bytes = 2 * MIB;
	r.options.budget_bytes = 2 * MIB;
	r.options.share = VMKV_SHARE_ON;
	rig_create(&r);
	CHECK_EQ(vmkv_cache_set_budget(r.cache, 32 * MIB), 0);
	seq_of(&r, 1000);
	p = now();
	CHECK(p.state.left_out > 0);
	CHECK_EQ(p.state.mapped_bytes, mapped_by(1000));
	CHECK_EQ(p.slots[0].mapped_pages * PAGE, mapped_by(1000));
	published_free(&p);
	rig_end(&r);
}

/* ---- where ----------------------------------------------------------------------------------- */

static void test_the_file_is_the_users_alone(void)
{
	struct stat found;
	mode_t mask = umask(0);
	struct rig r;
	int fd;

	CHECK_EQ(rmdir(in_directory("vmkv")), 0);
	shared_begin(&r);
	umask(mask);
	fd = published_open();
	CHECK_EQ(fstat(fd, &found), 0);
	CHECK_EQ(found.st_mode & 07777, 0600);
	CHECK(found.st_blocks * 512 >= found.st_size); /* there is memory behind all of it */
	CHECK_EQ(stat(in_directory("vmkv"), &found), 0);
	CHECK_EQ(found.st_mode & 07777, 0700);
	close(fd);
	rig_end(&r);
}

static void refused(int error, const char *text)
{
	struct rig r;

	rig_prepare(&r, open_host("host"));
	r.options.share = VMKV_SHARE_ON;
	CHECK_EQ(rig_try_create(&r), error);
	CHECK_CONTAINS(r.text, text);
	rig_end(&r);
}

static void test_a_directory_that_others_reach_is_refused(void)
{
	char elsewhere[128];

	CHECK_EQ(chmod(in_directory("vmkv"), 0755), 0);
	refused(-EACCES, "/vmkv has mode 755: it must be 700");
	CHECK_EQ(chmod(in_directory("vmkv"), 0700), 0);

	snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", published_directory());
	CHECK_EQ(rename(in_directory("vmkv"), elsewhere), 0);
	CHECK_EQ(symlink(elsewhere, in_directory("vmkv")), 0);
	refused(-EACCES, "/vmkv is a link or no directory");
	CHECK_EQ(unlink(in_directory("vmkv")), 0);
	fclose(fopen(in_directory("vmkv"), "w"));
	refused(-EACCES, "/vmkv is a link or no directory");
	CHECK_EQ(unlink(in_directory("vmkv")), 0);
	CHECK_EQ(rename(elsewhere, in_directory("vmkv")), 0);
	if (geteuid() == 0) {
		CHECK_EQ(chown(in_directory("vmkv"), 4321, 4321), 0);
		refused(-EACCES, "belongs to user 4321, not 0");
		CHECK_EQ(chown(in_directory("vmkv"), 0, 0), 0);
	} else {
		printf("skipped: another user's directory takes root\n");
	}
}

static void test_without_a_runtime_directory_it_is_in_shared_memory(void)
{
	static const char *const values[] = { NULL, "", "relative", "/nowhere/at/all" };
	char path[64];

	snprintf(path, sizeof(path), "/dev/shm/vmkv-%u", geteuid());
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		int before = files(path);
		struct rig r;

		CHECK_EQ(values[i] != NULL ? setenv("XDG_RUNTIME_DIR", values[i], 1)
		                           : unsetenv("XDG_RUNTIME_DIR"), 0);
		shared_begin(&r);
		CHECK_EQ(files(path), before + 1);
		rig_end(&r);
		CHECK_EQ(files(path), before);
	}
	published_directory();
}

static void test_no_room_is_told_at_once(void)
{
	struct rlimit limit, before;

	no_room = ENOSPC;
	refused(-ENOSPC, "No space left on device");
	no_room = 0;
	CHECK_EQ(files(in_directory("vmkv")), 0);
	CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
	limit = before;
	limit.rlim_cur = 100000;
	CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
	refused(-EFBIG, "RLIMIT_FSIZE allows 100000");
	CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
	CHECK_EQ(files(in_directory("vmkv")), 0);
}

/* ---- what the dead left ---------------------------------------------------------------------- */

static void file_make(const char *name, const void *bytes, size_t n)
{
	char path[160];
	FILE *file;

	snprintf(path, sizeof(path), "%s/vmkv/%s", published_directory(), name);
	file = fopen(path, "w");
	CHECK(file != NULL && fwrite(bytes, 1, n, file) == n);
	fclose(file);
}

/* A process makes a cache and dies at once; or lives until *alive is closed. */
static pid_t engine(int *alive)
{
	int ready[2], end[2];
	char byte;
	pid_t pid;

	CHECK_EQ(pipe(ready), 0);
	CHECK_EQ(pipe(end), 0);
	pid = fork();
	if (pid == 0) {
		struct rig r;

		close(end[1]);
		shared_begin(&r);
		CHECK_EQ(write(ready[1], "r", 1), 1);
		if (alive != NULL)
			(void)!read(end[0], &byte, 1);
		_exit(0);
	}
	close(ready[1]);
	close(end[0]);
	CHECK_EQ(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	if (alive != NULL) {
		*alive = end[1];
		return pid;
	}
	close(end[1]);
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	return pid;
}

static void test_files_of_the_dead_go_when_the_next_cache_comes(void)
{
	struct rig r;
	int alive;
	pid_t pid;

	engine(NULL);
	engine(NULL);
	CHECK_EQ(files(in_directory("vmkv")), 1); /* the second removed what the first left */
	pid = engine(&alive);
	CHECK_EQ(files(in_directory("vmkv")), 1);
	shared_begin(&r);
	CHECK_EQ(files(in_directory("vmkv")), 2); /* whoever lives keeps his */
	close(alive);
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	rig_end(&r);
	CHECK_EQ(files(in_directory("vmkv")), 1);
	shared_begin(&r);
	CHECK_EQ(files(in_directory("vmkv")), 1);
	rig_end(&r);
}

static void test_a_file_that_is_not_known_stays(void)
{
	struct vmkv_published_header header = { .magic = VMKV_PUBLISHED_MAGIC,
		                                .version_major = VMKV_PUBLISHED_MAJOR + 1,
		                                .start_ticks = 1, .pid = 1 };
	struct rig r;

	file_make("notes.txt", "mine", 4);
	file_make("12-abcde.kv", "short", 5);
	file_make("13-abcde.kv", &header, sizeof(header)); /* of a newer version */
	header.version_major = VMKV_PUBLISHED_MAJOR;
	header.pid_namespace = 1;
	file_make("14-abcde.kv", &header, sizeof(header)); /* of other processes than we see */
	CHECK_EQ(mkfifo(in_directory("vmkv/15-abcde.kv"), 0600), 0);
	CHECK_EQ(symlink("/dev/null", in_directory("vmkv/16-abcde.kv")), 0);
	shared_begin(&r);
	CHECK_EQ(files(in_directory("vmkv")), 7);
	rig_end(&r);
	CHECK_EQ(files(in_directory("vmkv")), 6);
	strcpy(header.boot_id, "another boot's");
	file_make("14-abcde.kv", &header, sizeof(header));
	shared_begin(&r);
	CHECK_EQ(files(in_directory("vmkv")), 6);
	rig_end(&r);
}

int main(void)
{
	published_directory();
	RUN(test_only_caches_that_ask_are_shared);
	RUN(test_what_means_nothing_is_refused);
	RUN(test_the_header_says_who_and_what);
	RUN(test_places_lead_to_the_addresses_of_spans);
	RUN(test_pieces_are_the_mappings_of_spans);
	RUN(test_a_step_that_maps_nothing_writes_lives_alone);
	RUN(test_a_closed_sequence_retires_and_is_gone);
	RUN(test_events_tell_what_happened);
	RUN(test_a_window_tells_what_it_trims);
	RUN(test_the_ring_keeps_the_last_events);
	RUN(test_driver_calls_are_timed);
	RUN(test_slabs_beyond_a_raised_budget_are_left_out);
	RUN(test_the_file_is_the_users_alone);
	RUN(test_a_directory_that_others_reach_is_refused);
	RUN(test_without_a_runtime_directory_it_is_in_shared_memory);
	RUN(test_no_room_is_told_at_once);
	RUN(test_files_of_the_dead_go_when_the_next_cache_comes);
	RUN(test_a_file_that_is_not_known_stays);
	return 0;
}
