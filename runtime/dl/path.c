/* Paths of any length: the \\?\ form on the way in, growing buffers on the way out. */
#include "internal.h"

#include <string.h>
#include <wchar.h>

typedef struct known_path {
  struct known_path *next;
  char text[];
} known_path;

static SRWLOCK known_lock = SRWLOCK_INIT;
static known_path *known;

__attribute__((destructor)) static void forget_paths(void) {
  while (known != NULL) {
    known_path *next = known->next;
    dl_free(known);
    known = next;
  }
}

void dl_use_backslashes(wchar_t *path) {
  for (; *path != L'\0'; path++)
    if (*path == L'/') *path = L'\\';
}

BOOL dl_has_folder(const wchar_t *path) {
  return wcschr(path, L'\\') != NULL || (path[0] != L'\0' && path[1] == L':');
}

static BOOL is_verbatim(const wchar_t *path) {
  return wcsncmp(path, L"\\\\?\\", 4) == 0 || wcsncmp(path, L"\\\\.\\", 4) == 0;
}

static BOOL has_drive(const wchar_t *path) {
  return path[0] != L'\0' && path[1] == L':' && path[2] == L'\\';
}

wchar_t *dl_extended_path(const wchar_t *path) {
  static const wchar_t drive[] = L"\\\\?\\", share[] = L"\\\\?\\UNC\\";
  if (is_verbatim(path)) return NULL;
  DWORD size = GetFullPathNameW(path, 0, NULL, NULL);
  if (size == 0) return NULL;
  size_t space = wcslen(share);
  wchar_t *extended = dl_alloc((space + size) * sizeof(wchar_t));
  if (extended == NULL) return NULL;
  wchar_t *full = extended + space;
  DWORD written = GetFullPathNameW(path, size, full, NULL); /* another thread may have changed the folder meanwhile */
  const wchar_t *prefix = written > 0 && written < size && has_drive(full) ? drive : NULL;
  if (written > 0 && written < size && full[0] == L'\\' && full[1] == L'\\' && !is_verbatim(full)) {
    prefix = share;
    full += 2;
  }
  if (prefix == NULL) {
    dl_free(extended);
    return NULL;
  }
  size_t length = wcslen(prefix);
  memmove(extended + length, full, (wcslen(full) + 1) * sizeof(wchar_t));
  memcpy(extended, prefix, length * sizeof(wchar_t));
  return extended;
}

/* As other programs spell it, where that spelling is short enough for them. */
static const wchar_t *plain_spelling(wchar_t *path) {
  if (wcsncmp(path, L"\\\\?\\UNC\\", 8) == 0 && wcslen(path + 6) < MAX_PATH) {
    path[6] = L'\\';
    return path + 6;
  }
  if (wcsncmp(path, L"UNC\\", 4) == 0) { /* so Wine names modules on a share */
    path[2] = L'\\';
    return path + 2;
  }
  if (wcsncmp(path, L"\\\\?\\", 4) == 0 && has_drive(path + 4) && wcslen(path + 4) < MAX_PATH) return path + 4;
  return path;
}

static char *intern(const char *text) {
  AcquireSRWLockExclusive(&known_lock);
  known_path *entry = known;
  while (entry != NULL && strcmp(entry->text, text) != 0) entry = entry->next;
  if (entry == NULL) {
    size_t size = strlen(text) + 1;
    entry = dl_alloc(sizeof *entry + size);
    if (entry != NULL) {
      memcpy(entry->text, text, size);
      entry->next = known;
      known = entry;
    }
  }
  ReleaseSRWLockExclusive(&known_lock);
  return entry == NULL ? NULL : entry->text;
}

char *dl_module_path(HMODULE module) {
  for (DWORD size = MAX_PATH;; size *= 2) {
    wchar_t *wide = dl_alloc(size * sizeof(wchar_t));
    if (wide == NULL) return NULL;
    DWORD length = GetModuleFileNameW(module, wide, size);
    if (length > 0 && length < size) {
      char *narrow = dl_narrow(plain_spelling(wide));
      char *kept = narrow == NULL ? NULL : intern(narrow);
      dl_free(narrow);
      dl_free(wide);
      return kept;
    }
    dl_free(wide);
    if (length == 0 || size > 2 * DL_PATH_LIMIT) return NULL;
  }
}
