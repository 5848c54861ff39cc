/* SPDX-License-Identifier: MIT
 *
 * What a shared cache tells of itself.
 */
#include "publish_fixture.h"

/* ---- what ------------------------------------------------------------------------------------ */

static void test_the_header_says_who_and_what(void)
{
	struct vmkv_cache_info info = { .struct_size = sizeof(info) };
	struct vmkv_device_info device = { .struct_size = sizeof(device) };
	struct published p;
	struct rig r;
	FILE *stat;
	char text[1024];

	shared_begin(&r);
	p = now();
	CHECK_EQ(vmkv_cache_info(r.cache, &info), 0);
	CHECK_EQ(p.header->pid, getpid());
	CHECK_EQ(p.header->uid, geteuid());
	CHECK_EQ(vmkv_device_info(r.device, &device), 0);
	CHECK_STR(p.header->device, device.name);
	CHECK(p.header->driver[0] != 0 && strchr(p.header->driver, ':') == NULL);
	CHECK(strncmp(device.name, p.header->driver, strlen(p.header->driver)) == 0);
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
			const struct published_piece *piece = published_piece(
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

int main(void)
{
	published_directory();
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
	return 0;
}
