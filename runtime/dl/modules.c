/* Modules that dlopen opened: how often, and whether only through its own handle (local).
 *
 * Windows does not report that a module was unloaded, and may load another one at its address. Entries therefore have a stamp: an
 * entry that is older than a list of loaded modules without it belongs to a module that has been unloaded. */
#include "internal.h"

#include <psapi.h>
#include <string.h>

typedef struct opened {
  HMODULE module;
  ULONGLONG stamp;
  unsigned long count;
  BOOL local;
  struct opened *next;
} opened;

static SRWLOCK lock = SRWLOCK_INIT;
static ULONGLONG last_stamp;
static opened *first;

__attribute__((destructor)) static void forget_modules(void) {
  while (first != NULL) {
    opened *next = first->next;
    dl_free(first);
    first = next;
  }
}

static opened **place_of(HMODULE module) {
  opened **place = &first;
  while (*place != NULL && (*place)->module != module) place = &(*place)->next;
  return place;
}

size_t dl_loaded_modules(HMODULE **modules) {
  *modules = NULL;
  for (DWORD size = 128 * sizeof(HMODULE), needed = 0;; size = needed + 16 * sizeof(HMODULE)) {
    HMODULE *list = dl_alloc(size);
    if (list == NULL) return 0;
    if (K32EnumProcessModules(GetCurrentProcess(), list, size, &needed) && needed <= size) {
      *modules = list;
      return needed / sizeof(HMODULE);
    }
    dl_free(list);
    if (needed <= size) return 0;
  }
}

void dl_before_open(dl_moment *before) {
  AcquireSRWLockShared(&lock);
  before->stamp = last_stamp;
  ReleaseSRWLockShared(&lock);
  before->count = dl_loaded_modules(&before->modules);
}

static BOOL was_loaded(const dl_moment *before, HMODULE module) {
  for (size_t i = 0; i < before->count; i++)
    if (before->modules[i] == module) return TRUE;
  return FALSE;
}

BOOL dl_after_open(dl_moment *before, HMODULE module, BOOL local) {
  BOOL fresh = !was_loaded(before, module), kept = TRUE;
  AcquireSRWLockExclusive(&lock);
  opened *entry = *place_of(module);
  if (entry == NULL) {
    entry = dl_alloc(sizeof *entry);
    if (entry != NULL) {
      *entry = (opened){module, ++last_stamp, 1, local && fresh, first};
      first = entry;
    } else {
      kept = !local; /* a global module works without an entry */
    }
  } else if (fresh && entry->stamp <= before->stamp) {
    *entry = (opened){module, ++last_stamp, 1, local, entry->next};
  } else {
    entry->count++;
    entry->local = entry->local && local; /* once global, always global */
  }
  ReleaseSRWLockExclusive(&lock);
  dl_free(before->modules);
  return kept;
}

ULONGLONG dl_before_close(HMODULE module) {
  ULONGLONG stamp = 0;
  AcquireSRWLockExclusive(&lock);
  opened *entry = *place_of(module);
  if (entry != NULL) {
    stamp = entry->stamp;
    if (entry->count > 0) entry->count--;
  }
  ReleaseSRWLockExclusive(&lock);
  return stamp;
}

void dl_after_close(HMODULE module, ULONGLONG stamp) {
  AcquireSRWLockExclusive(&lock);
  opened **place = place_of(module);
  opened *entry = *place;
  if (entry != NULL && entry->stamp == stamp && entry->count == 0) {
    *place = entry->next;
    dl_free(entry);
  }
  ReleaseSRWLockExclusive(&lock);
}

BOOL dl_is_local(HMODULE module) {
  AcquireSRWLockShared(&lock);
  opened *entry = *place_of(module);
  BOOL local = entry != NULL && entry->local;
  ReleaseSRWLockShared(&lock);
  return local;
}
