/* dladdr: the module that holds an address, and its nearest exported name, read from the image in memory. */
#include "internal.h"

#include <string.h>

/* TRUE if `size` bytes at `address` can be read, all in one region of memory. */
static BOOL readable(const void *address, size_t size) {
  MEMORY_BASIC_INFORMATION region;
  const DWORD kinds = PAGE_READONLY | PAGE_READWRITE | PAGE_WRITECOPY | PAGE_EXECUTE_READ | PAGE_EXECUTE_READWRITE |
            PAGE_EXECUTE_WRITECOPY;
  if (VirtualQuery(address, &region, sizeof region) != sizeof region || region.State != MEM_COMMIT) return FALSE;
  if ((region.Protect & kinds) == 0 || (region.Protect & PAGE_GUARD) != 0) return FALSE;
  return (const BYTE *)address + size <= (const BYTE *)region.BaseAddress + region.RegionSize;
}

static const IMAGE_NT_HEADERS *headers_of(HMODULE module) {
  const IMAGE_DOS_HEADER *dos = (const IMAGE_DOS_HEADER *)module;
  if (!readable(dos, sizeof *dos) || dos->e_magic != IMAGE_DOS_SIGNATURE) return NULL;
  const IMAGE_NT_HEADERS *nt = (const IMAGE_NT_HEADERS *)((const BYTE *)module + dos->e_lfanew);
  if (!readable(nt, sizeof *nt) || nt->Signature != IMAGE_NT_SIGNATURE) return NULL;
  return nt->OptionalHeader.Magic == IMAGE_NT_OPTIONAL_HDR_MAGIC ? nt : NULL;
}

/* Start and size of one of the image's tables; NULL if it has none. */
static const BYTE *table_of(HMODULE module, unsigned index, DWORD *size) {
  const IMAGE_NT_HEADERS *nt = headers_of(module);
  if (nt == NULL || index >= nt->OptionalHeader.NumberOfRvaAndSizes) return NULL;
  const IMAGE_DATA_DIRECTORY *table = &nt->OptionalHeader.DataDirectory[index];
  if (table->VirtualAddress == 0 || table->Size == 0) return NULL;
  const BYTE *start = (const BYTE *)module + table->VirtualAddress;
  *size = table->Size;
  return readable(start, 1) ? start : NULL;
}

/* TRUE if `slot` is one of the pointers that the loader fills in for imports: in the table of them, or, in an image without
 * that table, in one of the import descriptors' lists. */
static BOOL is_import_slot(HMODULE module, const BYTE *slot) {
  DWORD size;
  const BYTE *table = table_of(module, IMAGE_DIRECTORY_ENTRY_IAT, &size);
  if (table != NULL) return slot >= table && slot + sizeof(void *) <= table + size;
  const BYTE *imports = table_of(module, IMAGE_DIRECTORY_ENTRY_IMPORT, &size);
  if (imports == NULL) return FALSE;
  for (const IMAGE_IMPORT_DESCRIPTOR *from = (const IMAGE_IMPORT_DESCRIPTOR *)imports; from->FirstThunk != 0; from++) {
    const BYTE *first = (const BYTE *)module + from->FirstThunk, *last = first;
    while (*(void *const *)last != NULL) last += sizeof(void *);
    if (slot >= first && slot < last) return TRUE;
  }
  return FALSE;
}

/* The function behind `address` if a thunk (jmp [rip + offset]) to an import is there, else `address`; NULL for a thunk
 * that leads nowhere. */
static const void *through_thunk(const void *address) {
  const BYTE *code = address;
  LONG offset;
  if (!readable(code, 2 + sizeof offset) || code[0] != 0xFF || code[1] != 0x25) return address;
  memcpy(&offset, code + 2, sizeof offset);
  const BYTE *slot = code + 2 + sizeof offset + offset;
  HMODULE module;
  DWORD flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
  if (!GetModuleHandleExW(flags, address, &module) || !is_import_slot(module, slot)) return NULL;
  return readable(slot, sizeof(void *)) ? *(void *const *)slot : NULL;
}

/* Index into the table of functions of the nearest one at or below `address`; -1 if there is none. Entries in the
 * export table itself name other modules' functions. */
static LONG nearest(const BYTE *base, const IMAGE_EXPORT_DIRECTORY *exports, DWORD size, const void *address) {
  const DWORD *functions = (const DWORD *)(base + exports->AddressOfFunctions);
  DWORD wanted = (DWORD)((const BYTE *)address - base), table = (DWORD)((const BYTE *)exports - base), best = 0;
  LONG index = -1;
  for (DWORD i = 0; i < exports->NumberOfFunctions; i++) {
    DWORD at = functions[i];
    if (at == 0 || at > wanted || (at >= table && at < table + size) || (index >= 0 && at <= best)) continue;
    best = at;
    index = (LONG)i;
  }
  return index;
}

static void name_symbol(HMODULE module, const void *address, Dl_info *info) {
  DWORD size;
  const BYTE *base = (const BYTE *)module;
  const IMAGE_EXPORT_DIRECTORY *exports =
    (const IMAGE_EXPORT_DIRECTORY *)table_of(module, IMAGE_DIRECTORY_ENTRY_EXPORT, &size);
  if (exports == NULL || !readable(exports, sizeof *exports)) return;
  LONG index = nearest(base, exports, size, address);
  if (index < 0) return;
  const DWORD *names = (const DWORD *)(base + exports->AddressOfNames);
  const WORD *indices = (const WORD *)(base + exports->AddressOfNameOrdinals);
  for (DWORD i = 0; i < exports->NumberOfNames; i++) {
    if (indices[i] != index) continue;
    info->dli_sname = (const char *)(base + names[i]);
    info->dli_saddr = (void *)(base + ((const DWORD *)(base + exports->AddressOfFunctions))[index]);
    return;
  }
}

int dladdr(const void *addr, Dl_info *info) {
  MEMORY_BASIC_INFORMATION region;
  HMODULE module;
  if (info == NULL || addr == NULL) return 0;
  if (VirtualQuery(addr, &region, sizeof region) != sizeof region || region.State != MEM_COMMIT) return 0;
  const void *target = through_thunk(addr);
  /* the reference keeps another thread from unloading the module meanwhile */
  if (target == NULL || !GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, target, &module)) return 0;
  Dl_info found = {dl_module_path(module), module, NULL, NULL};
  if (found.dli_fname != NULL) {
    name_symbol(module, target, &found);
    *info = found;
  }
  FreeLibrary(module);
  return found.dli_fname != NULL;
}
