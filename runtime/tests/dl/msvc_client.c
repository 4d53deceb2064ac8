// A program for x86_64-pc-windows-msvc without Microsoft's headers or run-time library: it opens argv-less "plug_a.dll" through
// dl.lib and answers by its exit code, each bit a thing that did not hold.
#include "dlfcn.h"

__declspec(dllimport) void ExitProcess(unsigned code);
int _fltused = 0;

static int same(const char *a, const char *b) {
  while (a != 0 && b != 0 && *a != 0 && *a == *b) a++, b++;
  return a != 0 && b != 0 && *a == *b;
}

void start(void) {
  unsigned wrong = 0;
  Dl_info info;
  void *module = dlopen("plug_a.dll", RTLD_NOW | RTLD_LOCAL);
  int (*which)(void) = (int (*)(void))dlsym(module, "which");
  if (module == 0 || which == 0 || which() != 1) wrong |= 1;
  if (dlopen("no such.dll", RTLD_NOW) != 0 || dlerror() == 0 || dlerror() != 0) wrong |= 2;
  if (!dladdr((void *)which, &info) || info.dli_fbase != module || !same(info.dli_sname, "which")) wrong |= 4;
  if (dlsym(RTLD_DEFAULT, "a_only") != 0) wrong |= 8;
  // a thunk of lld-link unless dlopen is declared dllimport
  if (!dladdr((void *)dlopen, &info) || !same(info.dli_sname, "dlopen")) wrong |= 16;
  if (dlclose(module) != 0) wrong |= 32;
  ExitProcess(wrong);
}
