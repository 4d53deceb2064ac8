// paths utf8|acp PATH [FOLDER]: opens PATH (from FOLDER), calls into it and finds its path again. Answers in UTF-8.
#include <stdio.h>
#include <stdlib.h>
#include <windows.h>

#include "dlfcn.h"

static char *narrow(const wchar_t *text, UINT page) {
  int size = WideCharToMultiByte(page, 0, text, -1, NULL, 0, NULL, NULL);
  char *result = malloc(size);
  WideCharToMultiByte(page, 0, text, -1, result, size, NULL, NULL);
  return result;
}

int wmain(int count, wchar_t **words) {
  if (count < 3) return 2;
  if (count > 3 && !SetCurrentDirectoryW(words[3])) return 3;
  char *path = narrow(words[2], wcscmp(words[1], L"acp") == 0 ? CP_ACP : CP_UTF8);
  void *module = dlopen(path, RTLD_NOW);
  if (module == NULL) {
    printf("error %s\n", dlerror());
    return 1;
  }
  int (*which)(void) = (int (*)(void))(ULONG_PTR)dlsym(module, "which");
  printf("which %d\n", which == NULL ? -1 : which());
  Dl_info info = {0};
  if (dladdr((void *)(ULONG_PTR)which, &info))
    printf("file %s\n", info.dli_fname);
  else
    printf("file of the function unknown\n");
  // the path that dladdr gives opens the same module
  void *again = dlopen(info.dli_fname, RTLD_NOW);
  printf("again %s\n", again == module ? "same" : "not");
  printf("closed %d %d\n", dlclose(again), dlclose(module));
  return 0;
}
