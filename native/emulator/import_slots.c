/* SPDX-License-Identifier: MIT
 *
 * The places where a loaded shared object keeps the addresses of what it imports, and how to change
 * them.
 */
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "entry.h"

#if defined(__x86_64__)
#define SLOT_JUMP R_X86_64_JUMP_SLOT
#define SLOT_DATA R_X86_64_GLOB_DAT
#define SLOT_POINTER R_X86_64_64
#elif defined(__aarch64__)
#define SLOT_JUMP R_AARCH64_JUMP_SLOT
#define SLOT_DATA R_AARCH64_GLOB_DAT
#define SLOT_POINTER R_AARCH64_ABS64
#else
#error "import slots: no relocation kinds for this machine"
#endif

/* The tables of an object's dynamic section. */
struct tables {
	const Elf64_Sym *symbols;
	const char *strings;
	const Elf64_Rela *jumps, *data;
	size_t jump_bytes, data_bytes;
	uint64_t soname;
};

/* Most loaders put addresses into the dynamic section as they load, some leave offsets. */
static const void *dynamic_pointer(uint64_t base, uint64_t value)
{
	return (const void *)(uintptr_t)(value < base ? base + value : value);
}

static bool tables_read(uint64_t base, const void *dynamic, struct tables *tables)
{
	memset(tables, 0, sizeof(*tables));
	for (const Elf64_Dyn *entry = dynamic; entry->d_tag != DT_NULL; entry++) {
		const void *pointer = dynamic_pointer(base, entry->d_un.d_ptr);

		switch (entry->d_tag) {
		case DT_SYMTAB:
			tables->symbols = pointer;
			break;
		case DT_STRTAB:
			tables->strings = pointer;
			break;
		case DT_JMPREL:
			tables->jumps = pointer;
			break;
		case DT_PLTRELSZ:
			tables->jump_bytes = entry->d_un.d_val;
			break;
		case DT_RELA:
			tables->data = pointer;
			break;
		case DT_RELASZ:
			tables->data_bytes = entry->d_un.d_val;
			break;
		case DT_SONAME:
			tables->soname = entry->d_un.d_val;
			break;
		}
	}
	return tables->symbols && tables->strings;
}

/* ---- finding objects ------------------------------------------------------------------------- */

struct finding {
	const char *stem;
	struct emu_object *objects;
	uint32_t count, room;
};

static bool soname_fits(const char *soname, const char *stem)
{
	size_t length = strlen(stem);

	return !strncmp(soname, stem, length) && (soname[length] == '.' || soname[length] == '-') &&
	       strstr(soname + length, ".so");
}

static int object_visit(struct dl_phdr_info *info, size_t bytes, void *data)
{
	struct finding *finding = data;
	struct emu_object object = { .base = info->dlpi_addr };
	struct tables tables;

	(void)bytes;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const Elf64_Phdr *header = &info->dlpi_phdr[i];
		uint64_t begin = object.base + header->p_vaddr;

		if (header->p_type == PT_DYNAMIC) {
			object.dynamic = (const void *)(uintptr_t)begin;
		} else if (header->p_type == PT_GNU_RELRO) {
			object.relro_begin = begin;
			object.relro_end = begin + header->p_memsz;
		}
	}
	if (!object.dynamic || !tables_read(object.base, object.dynamic, &tables) ||
	    !tables.soname || !soname_fits(tables.strings + tables.soname, finding->stem) ||
	    strlen(info->dlpi_name) >= sizeof(object.path) || finding->count == finding->room)
		return 0;
	strcpy(object.path, info->dlpi_name);
	finding->objects[finding->count++] = object;
	return 0;
}

uint32_t emu_objects_find(const char *stem, struct emu_object *ret, uint32_t room)
{
	struct finding finding = { stem, ret, 0, room };

	dl_iterate_phdr(object_visit, &finding);
	return finding.count;
}

/* ---- redirecting ----------------------------------------------------------------------------- */

/* The loader made these pages read-only after it was done with them. */
static int relro_protect(const struct emu_object *object, int protection)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t begin = object->relro_begin & -page, end = object->relro_end & -page;

	if (begin >= end)
		return 0;
	return mprotect((void *)(uintptr_t)begin, end - begin, protection) ? -errno : 0;
}

static void **slot_find(const struct emu_object *object, const struct tables *tables,
                        const Elf64_Rela *relocation, const struct emu_import *import)
{
	const Elf64_Sym *symbol = &tables->symbols[ELF64_R_SYM(relocation->r_info)];
	const char *name = tables->strings + symbol->st_name;

	switch (ELF64_R_TYPE(relocation->r_info)) {
	case SLOT_JUMP:
	case SLOT_DATA:
	case SLOT_POINTER:
		if (!strcmp(name, import->name))
			return (void **)(uintptr_t)(object->base + relocation->r_offset);
		return NULL;
	default:
		return NULL;
	}
}

/* How many slots of that import still point elsewhere; set: change them. */
static uint32_t slots_visit(const struct emu_object *object, const struct tables *tables,
                            const struct emu_import *import, bool set)
{
	const struct {
		const Elf64_Rela *relocations;
		size_t count;
	} parts[] = {
		{ tables->jumps, tables->jump_bytes / sizeof(Elf64_Rela) },
		{ tables->data, tables->data_bytes / sizeof(Elf64_Rela) },
	};
	uint32_t count = 0;

	for (size_t part = 0; part < sizeof(parts) / sizeof(parts[0]); part++) {
		for (size_t i = 0; parts[part].relocations && i < parts[part].count; i++) {
			const Elf64_Rela *relocation = &parts[part].relocations[i];
			void **slot = slot_find(object, tables, relocation, import);

			if (!slot || __atomic_load_n(slot, __ATOMIC_RELAXED) == import->function)
				continue;
			count++;
			if (set)
				__atomic_store_n(slot, import->function, __ATOMIC_RELEASE);
		}
	}
	return count;
}

int emu_object_redirect(const struct emu_object *object, const struct emu_import *imports,
                        uint32_t n)
{
	struct tables tables;
	uint32_t left = 0;
	int err;

	if (!tables_read(object->base, object->dynamic, &tables))
		return 0;
	for (uint32_t i = 0; i < n; i++)
		left += slots_visit(object, &tables, &imports[i], false);
	if (!left)
		return 0;
	err = relro_protect(object, PROT_READ | PROT_WRITE);
	if (err)
		return err;
	for (uint32_t i = 0; i < n; i++)
		slots_visit(object, &tables, &imports[i], true);
	return relro_protect(object, PROT_READ);
}
