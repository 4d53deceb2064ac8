/* Declarations shared by the parts of dl. No function here keeps a lock while it calls Windows' loader: a DllMain that
 * runs under the loader's lock may call dl, and would deadlock. */
#ifndef AOTFORGE_DL_INTERNAL_H
#define AOTFORGE_DL_INTERNAL_H

#define WIN32_LEAN_AND_MEAN
#ifndef _WIN32_WINNT
#define _WIN32_WINNT 0x0601 /* K32EnumProcessModules, SetThreadErrorMode */
#endif
#include <stddef.h>
#include <windows.h>

#ifdef DLFCN_WIN32_SHARED
#define DLFCN_WIN32_EXPORTS
#endif
#include "dlfcn.h"

/* Windows counts the bytes of a path in 16 bits. */
#define DL_PATH_LIMIT 32766

/* text.c; memory is from dl_alloc, NULL means that there is none (or, where documented, that the text does not convert) */
void *dl_alloc(size_t size);
void dl_free(void *memory);
wchar_t *dl_widen(const char *text, UINT code_page); /* strict for UTF-8: NULL with ERROR_NO_UNICODE_TRANSLATION */
char *dl_narrow(const wchar_t *text);                /* to UTF-8 */
BOOL dl_is_ascii(const char *text);

#define DL_DIGITS 21 /* what dl_digits writes at most, for base 10 and 16 */
void dl_digits(char *text, ULONGLONG number, unsigned base, size_t at_least);

/* error.c */
void dl_clear_error(void);
void dl_fail(const char *subject, DWORD code);
void dl_fail_address(const void *subject, DWORD code);

/* path.c */
void dl_use_backslashes(wchar_t *path);
BOOL dl_has_folder(const wchar_t *path);
wchar_t *dl_extended_path(const wchar_t *path); /* \\?\ form of the full path; NULL if it has none or is one already */
char *dl_module_path(HMODULE module);           /* UTF-8; interned, never freed while dl is loaded */

/* modules.c: which modules dlopen has opened, and which of them are local */
typedef struct dl_moment {
  ULONGLONG stamp;
  HMODULE *modules;
  size_t count;
} dl_moment;

size_t dl_loaded_modules(HMODULE **modules); /* in load order; 0 and NULL where memory is short */
void dl_before_open(dl_moment *before);
BOOL dl_after_open(dl_moment *before, HMODULE module, BOOL local); /* FALSE: no memory */
ULONGLONG dl_before_close(HMODULE module);
void dl_after_close(HMODULE module, ULONGLONG stamp);
BOOL dl_is_local(HMODULE module);

#endif
