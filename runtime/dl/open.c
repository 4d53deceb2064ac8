/* dlopen, dlclose, dlsym. */
#include "internal.h"

#include <wchar.h>

/* No message box for a damaged module or a missing drive; per thread, so that other threads keep their mode. */
static DWORD silence(void) {
  DWORD before = GetThreadErrorMode();
  SetThreadErrorMode(before | SEM_FAILCRITICALERRORS, NULL);
  return before;
}

static BOOL not_found(DWORD code) {
  return code == ERROR_MOD_NOT_FOUND || code == ERROR_FILE_NOT_FOUND || code == ERROR_PATH_NOT_FOUND ||
         code == ERROR_INVALID_NAME || code == ERROR_FILENAME_EXCED_RANGE || code == ERROR_BAD_PATHNAME;
}

static HMODULE load_once(const wchar_t *path, DWORD *code) {
  HMODULE module = LoadLibraryExW(path, NULL, LOAD_WITH_ALTERED_SEARCH_PATH);
  *code = module == NULL ? GetLastError() : ERROR_SUCCESS;
  return module;
}

/* A path with a folder that does not load unchanged is tried in its \\?\ form, if that is longer than MAX_PATH. */
static HMODULE load(const wchar_t *path, DWORD *code) {
  if (wcslen(path) > DL_PATH_LIMIT) {
    *code = ERROR_FILENAME_EXCED_RANGE;
    return NULL;
  }
  HMODULE module = load_once(path, code);
  if (module != NULL || !not_found(*code) || !dl_has_folder(path)) return module;
  wchar_t *extended = dl_extended_path(path);
  if (extended != NULL) {
    size_t length = wcslen(extended);
    if (length > MAX_PATH && length <= DL_PATH_LIMIT) module = load_once(extended, code);
    dl_free(extended);
  }
  return module;
}

/* Loads `file` read in `code_page`. The error names the path as it was understood, in UTF-8. */
static HMODULE load_as(const char *file, UINT code_page, DWORD *code) {
  wchar_t *path = dl_widen(file, code_page);
  if (path == NULL) {
    *code = GetLastError();
    if (*code != ERROR_NO_UNICODE_TRANSLATION) dl_fail(file, *code);
    return NULL;
  }
  dl_use_backslashes(path);
  HMODULE module = load(path, code);
  if (module == NULL) {
    char *shown = dl_narrow(path);
    dl_fail(shown == NULL ? file : shown, *code);
    dl_free(shown);
  }
  dl_free(path);
  return module;
}

/* Bytes that are not UTF-8 are in the process' code page; so may be some that are, when no such file is found. */
static HMODULE load_file(const char *file) {
  DWORD code, again;
  HMODULE module = load_as(file, CP_UTF8, &code);
  if (module != NULL || dl_is_ascii(file)) return module;
  if (code == ERROR_NO_UNICODE_TRANSLATION) return load_as(file, CP_ACP, &code);
  if (!not_found(code) || GetACP() == CP_UTF8) return NULL;
  wchar_t *path = dl_widen(file, CP_ACP);
  if (path == NULL) return NULL;
  dl_use_backslashes(path);
  module = load(path, &again);
  dl_free(path);
  if (module != NULL) dl_clear_error();
  return module;
}

void *dlopen(const char *file, int mode) {
  dl_clear_error();
  if (file == NULL) {
    HMODULE program = GetModuleHandleW(NULL);
    if (program == NULL) dl_fail("(null)", GetLastError());
    return program;
  }
  DWORD shown = silence();
  dl_moment before;
  dl_before_open(&before);
  HMODULE module = load_file(file);
  if (module == NULL) {
    dl_free(before.modules);
  } else if (!dl_after_open(&before, module, (mode & RTLD_LOCAL) != 0)) {
    dl_fail(file, ERROR_NOT_ENOUGH_MEMORY);
    FreeLibrary(module);
    module = NULL;
  }
  SetThreadErrorMode(shown, NULL);
  return module;
}

int dlclose(void *handle) {
  dl_clear_error();
  HMODULE module = handle;
  if (module == GetModuleHandleW(NULL)) return 0; /* dlopen(NULL) took no reference */
  ULONGLONG stamp = dl_before_close(module);
  BOOL closed = FreeLibrary(module);
  if (!closed) dl_fail_address(handle, GetLastError());
  dl_after_close(module, stamp);
  return closed ? 0 : 1;
}

/* The first global module in load order that exports `name`; only those after `caller`, if it is given. */
static FARPROC search_global(HMODULE caller, const char *name, DWORD *code) {
  HMODULE *modules;
  size_t count = dl_loaded_modules(&modules);
  if (modules == NULL) *code = ERROR_NOT_ENOUGH_MEMORY;
  FARPROC found = NULL;
  BOOL reached = caller == NULL;
  for (size_t i = 0; i < count && found == NULL; i++) {
    if (reached && !dl_is_local(modules[i])) found = GetProcAddress(modules[i], name);
    reached = reached || modules[i] == caller;
  }
  dl_free(modules);
  return found;
}

/* Names below 64 Ki are ordinals. */
static void fail_symbol(const char *name, DWORD code) {
  char ordinal[1 + DL_DIGITS] = "#";
  if ((ULONG_PTR)name > 0xFFFF) {
    dl_fail(name, code);
    return;
  }
  dl_digits(ordinal + 1, (ULONG_PTR)name, 10, 1);
  dl_fail(name == NULL ? "(null)" : ordinal, code);
}

/* Not inlined: the return address identifies the module that uses RTLD_NEXT. */
__attribute__((noinline)) void *dlsym(void *handle, const char *name) {
  dl_clear_error();
  HMODULE program = GetModuleHandleW(NULL), module = handle == RTLD_DEFAULT ? program : handle, caller = NULL;
  DWORD code = ERROR_PROC_NOT_FOUND;
  FARPROC found = NULL;
  if (handle == RTLD_NEXT) {
    DWORD flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
    const wchar_t *from = __builtin_extract_return_addr(__builtin_return_address(0));
    if (GetModuleHandleExW(flags, from, &caller))
      found = search_global(caller, name, &code);
    else
      code = ERROR_INVALID_PARAMETER;
  } else {
    found = GetProcAddress(module, name);
    if (found == NULL && module == program) found = search_global(NULL, name, &code);
  }
  if (found == NULL) fail_symbol(name, code);
  return (void *)(ULONG_PTR)found;
}
