/* SPDX-License-Identifier: MIT
 *
 * Page tables: four levels of 512 entries, as the hardware walks them. There are two views of which
 * table lies below an entry. The kernel's (children) changes as jobs are made; the hardware's
 * (entries and named) as they run.
 */
#include <errno.h>
#include <stdlib.h>

#include "vm_parts.h"

/* ---- tables ---------------------------------------------------------------------------------- */

static void table_destroy(struct emu_vm *vm, struct emu_page_table *table)
{
	emu_list_remove(&table->link);
	if (table->bo) {
		emu_bo_put(table->bo);
		vm->page_table_bytes -= EMU_PAGE_BYTES;
		vm->gpu->memory.page_table_bytes -= EMU_PAGE_BYTES;
	}
	free(table->children);
	free(table->named);
	free(table);
}

int emu_page_table_create(struct emu_vm *vm, struct emu_page_table *parent, uint32_t slot,
                          struct emu_page_table **ret)
{
	struct emu_bo_request request = { .bytes = EMU_PAGE_BYTES, .alignment = EMU_PAGE_BYTES,
		                          .domains = AMDGPU_GEM_DOMAIN_VRAM, .owner = vm,
		                          .pinned = true };
	struct emu_page_table *table = calloc(1, sizeof(*table));
	int error = -ENOMEM;

	if (!table)
		return -ENOMEM;
	emu_list_init(&table->link);
	table->parent = parent;
	table->slot = slot;
	table->level = parent ? parent->level - 1 : EMU_TABLE_ROOT_LEVEL;
	if (parent)
		table->first_page =
		    parent->first_page + ((uint64_t)slot << emu_table_shift(parent->level));
	if (table->level) {
		table->children = calloc(EMU_TABLE_ENTRIES, sizeof(*table->children));
		table->named = calloc(EMU_TABLE_ENTRIES, sizeof(*table->named));
		if (!table->children || !table->named)
			goto failed;
	}
	error = emu_bo_create(vm->gpu, &request, &table->bo);
	if (error)
		goto failed;
	vm->page_table_bytes += EMU_PAGE_BYTES;
	vm->gpu->memory.page_table_bytes += EMU_PAGE_BYTES;
	if (parent) {
		parent->children[slot] = table;
		emu_list_append(&vm->relocated, &table->link);
	}
	*ret = table;
	return 0;
failed:
	table_destroy(vm, table);
	return error;
}

/* The table and all below it go once the job that is being made has run. */
static void table_free_later(struct emu_vm *vm, struct emu_page_table *table)
{
	if (table->level)
		for (uint32_t i = 0; i < EMU_TABLE_ENTRIES; i++)
			if (table->children[i])
				table_free_later(vm, table->children[i]);
	table->free_after = vm->jobs_pushed + 1;
	emu_list_remove(&table->link);
	emu_list_append(&vm->tables_freed, &table->link);
}

static void table_destroy_tree(struct emu_vm *vm, struct emu_page_table *table)
{
	if (table->level)
		for (uint32_t i = 0; i < EMU_TABLE_ENTRIES; i++)
			if (table->children[i])
				table_destroy_tree(vm, table->children[i]);
	table_destroy(vm, table);
}

void emu_page_table_reap(struct emu_vm *vm, bool all)
{
	EMU_FOR_EACH(item, &vm->tables_freed) {
		struct emu_page_table *table = EMU_ENTRY(item, struct emu_page_table, link);

		if (all || table->free_after <= vm->jobs_run)
			table_destroy(vm, table);
	}
	if (all && vm->root) {
		table_destroy_tree(vm, vm->root);
		vm->root = NULL;
	}
}

/* ---- planning what a job writes -------------------------------------------------------------- */

int emu_page_table_add_write(struct emu_job *job, const struct emu_pte_write *write)
{
	if (job->write_count == job->write_room) {
		uint32_t room = job->write_room ? 2 * job->write_room : 4;
		struct emu_pte_write *grown = realloc(job->writes, room * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		job->writes = grown;
		job->write_room = room;
	}
	job->writes[job->write_count++] = *write;
	return 0;
}

/* log2 of how many pages from `start` on one fragment may cover, as the kernel reckons it: by the
 * address and what remains, never by where the memory lies. */
static uint32_t fragment_of(uint64_t start, uint64_t end)
{
	uint32_t fragment = 63 - (uint32_t)__builtin_clzll(end - start);

	if (start && (uint32_t)__builtin_ctzll(start) < fragment)
		fragment = (uint32_t)__builtin_ctzll(start);
	return fragment < 31 ? fragment : 31;
}

static uint32_t level_of_fragment(uint32_t fragment)
{
	uint32_t level = fragment / EMU_TABLE_BITS;

	return level < EMU_TABLE_ROOT_LEVEL ? level : EMU_TABLE_ROOT_LEVEL;
}

/* The table of a level that covers a page; missing ones are made. */
static int table_get(struct emu_vm *vm, uint64_t page, uint32_t level, struct emu_page_table **ret)
{
	struct emu_page_table *table = vm->root;

	while (table->level > level) {
		uint32_t slot = (page >> emu_table_shift(table->level)) & (EMU_TABLE_ENTRIES - 1);
		struct emu_page_table *child = table->children[slot];

		if (!child) {
			int error = emu_page_table_create(vm, table, slot, &child);

			if (!error)
				error = emu_vm_push_table_clear(vm);
			if (error)
				return error;
		}
		table = child;
	}
	*ret = table;
	return 0;
}

int emu_page_table_plan(struct emu_vm *vm, struct emu_job *job, uint64_t start, uint64_t end,
                        uint64_t physical, uint64_t flags)
{
	while (start < end) {
		uint32_t fragment = fragment_of(start, end), level = level_of_fragment(fragment);
		uint32_t shift = emu_table_shift(level);
		uint64_t step = flags & EMU_PTE_VALID ? EMU_PAGE_BYTES << shift : 0;
		struct emu_pte_write write = { .step = step };
		uint64_t left, n = 1ULL << (fragment - shift);
		int error = table_get(vm, start, level, &write.table);

		if (error)
			return error;
		write.first = (start >> shift) & (EMU_TABLE_ENTRIES - 1);
		left = EMU_TABLE_ENTRIES - write.first;
		write.count = (uint32_t)(n < left ? n : left);
		write.value = physical | flags;
		if (flags)
			write.value |= (uint64_t)fragment << 7;
		if (level && flags)
			write.value |= EMU_PTE_HUGE;
		error = emu_page_table_add_write(job, &write);
		if (error)
			return error;
		for (uint32_t i = write.first; level && i < write.first + write.count; i++) {
			if (!write.table->children[i])
				continue;
			table_free_later(vm, write.table->children[i]);
			write.table->children[i] = NULL;
		}
		start += (uint64_t)write.count << shift;
		physical += write.step * write.count;
	}
	return 0;
}

/* ---- what the hardware sees ------------------------------------------------------------------ */

/* Whether a walk gets to this table: every directory above names the next. */
static bool table_is_reached(const struct emu_page_table *table)
{
	for (; table->parent; table = table->parent)
		if (table->parent->named[table->slot] != table)
			return false;
	return true;
}

static uint64_t entry_address(const struct emu_page_table *table, uint32_t i)
{
	uint64_t page = table->first_page + ((uint64_t)i << emu_table_shift(table->level));

	return page << EMU_PAGE_SHIFT;
}

static bool entry_is_leaf(uint32_t level, uint64_t entry)
{
	return !level || entry & EMU_PTE_HUGE;
}

/* The identity window follows all leaves at and below a table that has just come into reach. */
static void table_show(const struct emu_page_table *table, struct emu_identity_run *run)
{
	uint64_t bytes = EMU_PAGE_BYTES << emu_table_shift(table->level);

	for (uint32_t i = 0; i < EMU_TABLE_ENTRIES; i++) {
		if (entry_is_leaf(table->level, table->entries[i])) {
			if (table->entries[i])
				emu_identity_set(run, entry_address(table, i), bytes,
				                 table->entries[i]);
		} else if (table->named[i]) {
			table_show(table->named[i], run);
		}
	}
}

static void child_name(const struct emu_pte_write *write, struct emu_identity_run *run)
{
	struct emu_page_table *table = write->table;
	uint64_t bytes = EMU_PAGE_BYTES << emu_table_shift(table->level);
	uint64_t old = table->entries[write->first];

	table->named[write->first] = write->child;
	table->entries[write->first] = write->value;
	if (!table_is_reached(table))
		return;
	/* A huge page that gives way to a table vanishes at once; the table may hold less. */
	if (old & EMU_PTE_HUGE)
		emu_identity_set(run, entry_address(table, write->first), bytes, 0);
	table_show(write->child, run);
}

static void entries_write(const struct emu_pte_write *write, struct emu_identity_run *run)
{
	struct emu_page_table *table = write->table;
	uint64_t bytes = EMU_PAGE_BYTES << emu_table_shift(table->level), value = write->value;
	bool reached = table_is_reached(table);

	for (uint32_t i = write->first; i < write->first + write->count; i++) {
		table->entries[i] = value;
		if (table->level)
			table->named[i] = NULL;
		if (reached)
			emu_identity_set(run, entry_address(table, i), bytes, value);
		value += write->step;
	}
}

int emu_page_table_write(struct emu_vm *vm, const struct emu_pte_write *writes, uint32_t n)
{
	struct emu_identity_run run = { .vm = vm };
	int error;

	for (uint32_t i = 0; i < n; i++) {
		if (writes[i].child)
			child_name(&writes[i], &run);
		else
			entries_write(&writes[i], &run);
		vm->gpu->counts.ptes_written += writes[i].count;
	}
	error = emu_identity_finish(&run);
	vm->gpu->counts.pte_jobs++;
	vm->jobs_run++;
	emu_page_table_reap(vm, false);
	return error;
}

void emu_page_table_walk(struct emu_vm *vm, uint64_t address, struct emu_walk *ret)
{
	uint64_t page = (address & ((1ULL << EMU_ADDRESS_BITS) - 1)) >> EMU_PAGE_SHIFT;
	const struct emu_page_table *table = vm->root;

	for (;;) {
		uint32_t shift = emu_table_shift(table->level);
		uint32_t i = (page >> shift) & (EMU_TABLE_ENTRIES - 1);
		uint64_t entry = table->entries[i];

		if (!entry_is_leaf(table->level, entry) && table->named[i]) {
			table = table->named[i];
			continue;
		}
		ret->entry = entry_is_leaf(table->level, entry) ? entry : 0;
		ret->address = entry_address(table, i);
		ret->bytes = EMU_PAGE_BYTES << shift;
		ret->physical = ret->entry & EMU_PTE_ADDRESS;
		return;
	}
}
