// paths (utf8|acp PATH FOLDER)...: from FOLDER ("-": wherever it is) opens PATH in that encoding, calls into it and finds
// its path again. Answers in UTF-8, as far as dl does.
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

static void open_one(const wchar_t *encoding, const wchar_t *wide, const wchar_t *folder) {
  if (wcscmp(folder, L"-") != 0 && !SetCurrentDirectoryW(folder)) {
    printf("error the folder cannot be entered\n");
    return;
  }
  char *path = narrow(wide, wcscmp(encoding, L"acp") == 0 ? CP_ACP : CP_UTF8);
  void *module = dlopen(path, RTLD_NOW);
  free(path);
  if (module == NULL) {
    printf("error %s\n", dlerror());
    return;
  }
  int (*which)(void) = (int (*)(void))(ULONG_PTR)dlsym(module, "which");
  printf("which %d\n", which == NULL ? -1 : which());
  Dl_info info = {0};
  if (!dladdr((void *)(ULONG_PTR)which, &info)) {
    printf("error the function's module is unknown\n");
    return;
  }
  printf("file %s\n", info.dli_fname);
  // the path that dladdr gives opens the same module
  void *again = dlopen(info.dli_fname, RTLD_NOW);
  printf("again %s\n", again == module ? "same" : dlerror());
  if (again != NULL) dlclose(again);
  printf("closed %d\n", dlclose(module));
  printf("left %d\n", GetModuleHandleW(L"plug_a.dll") != NULL);
}

int wmain(int count, wchar_t **words) {
  for (int i = 1; i + 2 < count; i += 3) {
    puts("case");
    open_one(words[i], words[i + 1], words[i + 2]);
    fflush(stdout);
  }
  return 0;
}
