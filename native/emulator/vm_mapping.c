/* SPDX-License-Identifier: MIT
 *
 * Mappings as the kernel lists them: MAP, UNMAP, CLEAR and REPLACE. Nothing here touches page
 * tables; what the lists lead to is in vm_update.c.
 */
#include <errno.h>
#include <stdlib.h>

#include "vm_parts.h"

static void mapping_insert(struct emu_vm *vm, struct emu_mapping *mapping, struct emu_mapping *after)
{
	emu_mapping_insert(&vm->mappings, mapping, after);
	vm->mapping_count++;
}

static void mapping_remove(struct emu_vm *vm, struct emu_mapping *mapping)
{
	emu_mapping_remove(&vm->mappings, mapping);
	vm->mapping_count--;
}

/* The kernel puts new list entries first, so the newest is written and cleared first. */
static void list_prepend(struct emu_list *list, struct emu_list *item)
{
	emu_list_append(list->next, item);
}

/* An always-valid buffer's new mapping is written by the next submission, whoever asks for it. If
 * it was evicted, that will do it. */
static void bo_va_has_invalids(struct emu_bo_va *bo_va)
{
	struct emu_vm *vm = bo_va->vm;

	if (!bo_va->bo || bo_va->bo->owner != vm || bo_va->moved)
		return;
	emu_list_remove(&bo_va->status);
	emu_list_append(&vm->moved, &bo_va->status);
}

static int range_check(const struct emu_bo *bo, uint64_t address, uint64_t offset, uint64_t bytes)
{
	if ((address | offset | bytes) & (EMU_PAGE_BYTES - 1))
		return -EINVAL;
	if (!bytes || address + bytes < address || offset + bytes < offset)
		return -EINVAL;
	if (bo && offset + bytes > bo->bytes)
		return -EINVAL;
	if (address + bytes > 1ULL << EMU_ADDRESS_BITS)
		return -EINVAL;
	return 0;
}

static struct emu_mapping *mapping_create(const struct emu_map_request *request)
{
	struct emu_mapping *mapping = calloc(1, sizeof(*mapping));

	if (!mapping)
		return NULL;
	mapping->start = request->address >> EMU_PAGE_SHIFT;
	mapping->last = (request->address + request->bytes - 1) >> EMU_PAGE_SHIFT;
	mapping->offset = request->offset;
	mapping->flags = request->flags;
	emu_list_init(&mapping->link);
	return mapping;
}

static void mapping_enter(struct emu_bo_va *bo_va, struct emu_mapping *mapping,
                          struct emu_mapping *after)
{
	mapping->bo_va = bo_va;
	list_prepend(&bo_va->invalids, &mapping->link);
	mapping_insert(bo_va->vm, mapping, after);
	bo_va_has_invalids(bo_va);
}

int emu_vm_map(struct emu_bo_va *bo_va, const struct emu_map_request *request)
{
	struct emu_vm *vm = bo_va->vm;
	int error = range_check(bo_va->bo, request->address, request->offset, request->bytes);
	struct emu_mapping *mapping, *after;
	uint64_t last;

	if (error)
		return error;
	last = (request->address + request->bytes - 1) >> EMU_PAGE_SHIFT;
	after = emu_mapping_at_or_after(&vm->mappings, request->address >> EMU_PAGE_SHIFT);
	if (after && after->start <= last)
		return -EINVAL;
	mapping = mapping_create(request);
	if (!mapping)
		return -ENOMEM;
	mapping_enter(bo_va, mapping, after);
	return 0;
}

int emu_vm_unmap(struct emu_bo_va *bo_va, uint64_t address)
{
	struct emu_vm *vm = bo_va->vm;
	uint64_t page = address >> EMU_PAGE_SHIFT;
	struct emu_mapping *mapping = emu_mapping_at_or_after(&vm->mappings, page);

	if (!mapping || mapping->start != page || mapping->bo_va != bo_va)
		return -ENOENT;
	mapping_remove(vm, mapping);
	emu_list_remove(&mapping->link);
	mapping->bo_va = NULL;
	if (mapping->valid)
		list_prepend(&vm->freed, &mapping->link);
	else
		free(mapping); /* entries that a split left it stay: the hazard of splitting */
	return 0;
}

/* What a CLEAR leaves of a mapping on one side of the range. */
static void remainder_enter(const struct emu_mapping *whole, struct emu_mapping *part,
                            uint64_t start, uint64_t last)
{
	struct emu_bo_va *bo_va = whole->bo_va;
	struct emu_vm *vm = bo_va->vm;

	part->start = start;
	part->last = last;
	part->offset = whole->offset + ((start - whole->start) << EMU_PAGE_SHIFT);
	part->flags = whole->flags;
	part->bo_va = bo_va;
	emu_list_init(&part->link);
	if (vm->gpu->options.break_clean_split) {
		/* The deliberate error: known to be valid, and written again unasked. */
		list_prepend(&bo_va->valids, &part->link);
		part->valid = true;
		bo_va->moved = true;
		emu_list_remove(&bo_va->status);
		emu_list_append(&vm->invalidated, &bo_va->status);
		return;
	}
	list_prepend(&bo_va->invalids, &part->link);
}

/* Take the mappings in [first, last] out, to freed, trimmed to the range. */
static void range_free(struct emu_vm *vm, uint64_t first, uint64_t last)
{
	struct emu_mapping *mapping = emu_mapping_at_or_after(&vm->mappings, first), *next;

	for (; mapping && mapping->start <= last; mapping = next) {
		next = emu_mapping_next(&vm->mappings, mapping);
		mapping_remove(vm, mapping);
		if (mapping->start < first)
			mapping->start = first;
		if (mapping->last > last)
			mapping->last = last;
		mapping->bo_va = NULL;
		emu_list_remove(&mapping->link);
		list_prepend(&vm->freed, &mapping->link);
	}
}

/* Pre: the range is checked. */
static int range_clear(struct emu_vm *vm, uint64_t first, uint64_t last)
{
	struct emu_mapping *before = calloc(1, sizeof(*before)), *after = calloc(1, sizeof(*after));
	const struct emu_mapping *mapping = emu_mapping_at_or_after(&vm->mappings, first);

	if (!before || !after) {
		free(before);
		free(after);
		return -ENOMEM;
	}
	for (; mapping && mapping->start <= last;
	     mapping = emu_mapping_next(&vm->mappings, mapping)) {
		if (mapping->start < first)
			remainder_enter(mapping, before, mapping->start, first - 1);
		if (mapping->last > last)
			remainder_enter(mapping, after, last + 1, mapping->last);
	}
	range_free(vm, first, last);
	for (int side = 0; side < 2; side++) {
		struct emu_mapping *part = side ? after : before;

		if (!part->bo_va) {
			free(part);
			continue;
		}
		mapping_insert(vm, part, emu_mapping_at_or_after(&vm->mappings, part->start));
		bo_va_has_invalids(part->bo_va);
	}
	return 0;
}

int emu_vm_clear(struct emu_vm *vm, uint64_t address, uint64_t bytes)
{
	int error = range_check(NULL, address, 0, bytes);

	if (error)
		return error;
	return range_clear(vm, address >> EMU_PAGE_SHIFT, (address + bytes - 1) >> EMU_PAGE_SHIFT);
}

int emu_vm_replace(struct emu_bo_va *bo_va, const struct emu_map_request *request)
{
	struct emu_vm *vm = bo_va->vm;
	int error = range_check(bo_va->bo, request->address, request->offset, request->bytes);
	struct emu_mapping *mapping;

	if (error)
		return error;
	mapping = mapping_create(request);
	if (!mapping)
		return -ENOMEM;
	error = range_clear(vm, mapping->start, mapping->last);
	if (error) {
		free(mapping);
		return error;
	}
	mapping_enter(bo_va, mapping, emu_mapping_at_or_after(&vm->mappings, mapping->start));
	return 0;
}

static void mapping_leave(struct emu_vm *vm, struct emu_mapping *mapping)
{
	mapping_remove(vm, mapping);
	emu_list_remove(&mapping->link);
	mapping->bo_va = NULL;
}

void emu_vm_forget(struct emu_bo_va *bo_va)
{
	struct emu_vm *vm = bo_va->vm;

	EMU_FOR_EACH(item, &bo_va->valids) {
		struct emu_mapping *mapping = EMU_ENTRY(item, struct emu_mapping, link);

		mapping_leave(vm, mapping);
		list_prepend(&vm->freed, &mapping->link);
	}
	EMU_FOR_EACH(item, &bo_va->invalids) {
		struct emu_mapping *mapping = EMU_ENTRY(item, struct emu_mapping, link);

		mapping_leave(vm, mapping);
		free(mapping);
	}
}
