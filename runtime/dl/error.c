/* dlerror: one growing text per thread, as `"subject": message of Windows`.
 *
 * It is in fiber-local storage: unlike _Thread_local it needs no run-time library under mingw, and its callback frees the
 * text of a thread that ends. */
#include "internal.h"

#include <string.h>

typedef struct thread_error {
  BOOL pending;
  size_t capacity;
  char *text;
} thread_error;

static char no_memory[] = "dl: not enough memory for the error's text";
static INIT_ONCE once = INIT_ONCE_STATIC_INIT;
static volatile DWORD slot = FLS_OUT_OF_INDEXES;

static void WINAPI forget(void *value) {
  thread_error *error = value;
  if (error == NULL) return;
  dl_free(error->text);
  dl_free(error);
}

static BOOL CALLBACK take_slot(INIT_ONCE *control, void *parameter, void **context) {
  (void)control, (void)parameter, (void)context;
  slot = FlsAlloc(forget);
  return TRUE;
}

/* The callback is in this module, so it must be removed before the module is unloaded. */
__attribute__((destructor)) static void give_slot_back(void) {
  DWORD taken = slot;
  slot = FLS_OUT_OF_INDEXES;
  if (taken != FLS_OUT_OF_INDEXES) FlsFree(taken);
}

static thread_error *this_thread(BOOL create) {
  InitOnceExecuteOnce(&once, take_slot, NULL, NULL);
  if (slot == FLS_OUT_OF_INDEXES) return NULL;
  thread_error *error = FlsGetValue(slot);
  if (error != NULL || !create) return error;
  error = dl_alloc(sizeof *error);
  if (error == NULL) return NULL;
  memset(error, 0, sizeof *error);
  if (FlsSetValue(slot, error)) return error;
  dl_free(error);
  return NULL;
}

/* Windows' message for `code` in UTF-8, without the line end. */
static char *explanation(DWORD code) {
  wchar_t *wide = NULL;
  DWORD flags = FORMAT_MESSAGE_ALLOCATE_BUFFER | FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS;
  DWORD length = FormatMessageW(flags, NULL, code, MAKELANGID(LANG_NEUTRAL, SUBLANG_DEFAULT), (wchar_t *)&wide, 0, NULL);
  if (length == 0) {
    static const char words[] = "Windows error ";
    char *number = dl_alloc(sizeof words + DL_DIGITS);
    if (number == NULL) return NULL;
    memcpy(number, words, sizeof words);
    dl_digits(number + sizeof words - 1, code, 10, 1);
    return number;
  }
  while (length > 0 && (wide[length - 1] == L'\r' || wide[length - 1] == L'\n')) wide[--length] = L'\0';
  char *text = dl_narrow(wide);
  LocalFree(wide);
  return text;
}

static BOOL reserve(thread_error *error, size_t size) {
  if (size <= error->capacity) return TRUE;
  char *text = dl_alloc(size);
  if (text == NULL) return FALSE;
  dl_free(error->text);
  error->text = text;
  error->capacity = size;
  return TRUE;
}

void dl_clear_error(void) {
  thread_error *error = this_thread(FALSE);
  if (error != NULL) error->pending = FALSE;
}

void dl_fail(const char *subject, DWORD code) {
  char *reason = explanation(code);
  thread_error *error = this_thread(TRUE);
  if (error != NULL) {
    size_t named = strlen(subject), length = reason == NULL ? 0 : strlen(reason);
    if (reserve(error, named + length + sizeof "\"\": ")) {
      char *end = error->text;
      *end++ = '"';
      memcpy(end, subject, named), end += named;
      memcpy(end, "\": ", 3), end += 3;
      if (length > 0) memcpy(end, reason, length), end += length;
      *end = '\0';
    } else if (error->capacity > 0) {
      error->text[0] = '\0';
    }
    error->pending = TRUE;
  }
  dl_free(reason);
}

void dl_fail_address(const void *subject, DWORD code) {
  char shown[DL_DIGITS + 2] = "0x";
  dl_digits(shown + 2, (ULONG_PTR)subject, 16, 2 * sizeof subject);
  dl_fail(shown, code);
}

char *dlerror(void) {
  thread_error *error = this_thread(FALSE);
  if (error == NULL || !error->pending) return NULL;
  error->pending = FALSE;
  return error->text != NULL && error->text[0] != '\0' ? error->text : no_memory;
}
