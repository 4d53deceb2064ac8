// A module whose DllMain calls dl while Windows holds the loader's lock.
#include <windows.h>

#include "dlfcn.h"

static int good;

__declspec(dllexport) int good_start(void) { return good; }

BOOL WINAPI DllMain(HINSTANCE module, DWORD reason, void *reserved) {
  (void)module, (void)reserved;
  if (reason != DLL_PROCESS_ATTACH) return TRUE;
  void *system = dlopen("kernel32.dll", RTLD_LOCAL);
  Dl_info info;
  good = system != NULL && dlsym(system, "Sleep") != NULL && dladdr(dlsym(system, "Sleep"), &info) != 0;
  good = good && dlsym(system, "no such function") == NULL && dlerror() != NULL && dlclose(system) == 0;
  return TRUE;
}
