/* Memory and conversion between UTF-8, the process' code page and Windows' wide text. */
#include "internal.h"

void *dl_alloc(size_t size) {
  return HeapAlloc(GetProcessHeap(), 0, size);
}

void dl_free(void *memory) {
  if (memory != NULL) HeapFree(GetProcessHeap(), 0, memory);
}

wchar_t *dl_widen(const char *text, UINT code_page) {
  DWORD flags = code_page == CP_UTF8 ? MB_ERR_INVALID_CHARS : 0;
  int length = MultiByteToWideChar(code_page, flags, text, -1, NULL, 0);
  if (length <= 0) return NULL;
  wchar_t *wide = dl_alloc((size_t)length * sizeof(wchar_t));
  if (wide == NULL) {
    SetLastError(ERROR_NOT_ENOUGH_MEMORY);
    return NULL;
  }
  MultiByteToWideChar(code_page, flags, text, -1, wide, length);
  return wide;
}

char *dl_narrow(const wchar_t *text) {
  int length = WideCharToMultiByte(CP_UTF8, 0, text, -1, NULL, 0, NULL, NULL);
  if (length <= 0) return NULL;
  char *narrow = dl_alloc((size_t)length);
  if (narrow != NULL) WideCharToMultiByte(CP_UTF8, 0, text, -1, narrow, length, NULL, NULL);
  return narrow;
}

BOOL dl_is_ascii(const char *text) {
  while (*text != '\0')
    if ((unsigned char)*text++ >= 0x80) return FALSE;
  return TRUE;
}

void dl_digits(char *text, ULONGLONG number, unsigned base, size_t at_least) {
  char reversed[DL_DIGITS];
  size_t count = 0;
  while (number != 0 || count < at_least) {
    reversed[count++] = "0123456789ABCDEF"[number % base];
    number /= base;
  }
  while (count > 0) *text++ = reversed[--count];
  *text = '\0';
}
