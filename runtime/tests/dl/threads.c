// Threads that open, look up, fail and close at the same time; then nothing may be left. Runs in a folder with plug_a.dll,
// plug_b.dll and plug_init.dll.
#include <stdlib.h>
#include <windows.h>

#include "check.h"
#include "dlfcn.h"

enum { THREADS = 8, ROUNDS = 60, SHORT_RUNS = 200 };

static volatile LONG wrong;
static char first_wrong[512];

static void require(int holds, const char *what, const char *seen) {
  if (holds || InterlockedIncrement(&wrong) > 1) return;
  snprintf(first_wrong, sizeof first_wrong, "%s: %s", what, seen == NULL ? "(null)" : seen);
}

static void one_round(int number, int round) {
  char missing[64], expected[80];
  snprintf(missing, sizeof missing, "missing-%d-%d.dll", number, round);
  snprintf(expected, sizeof expected, "\"%s\": ", missing);
  void *a = dlopen("plug_a.dll", RTLD_NOW | RTLD_GLOBAL), *b = dlopen("plug_b.dll", RTLD_NOW | RTLD_LOCAL);
  require(a != NULL && b != NULL, "open", a != NULL && b != NULL ? "" : dlerror());
  void *which = dlsym(a, "which");
  Dl_info first = {0}, second = {0};
  require(dladdr(which, &first) && dladdr(dlsym(b, "which"), &second), "dladdr", "failed");
  require(first.dli_fbase == a && second.dli_fbase == b, "base", "another");
  require(strstr(first.dli_fname, "plug_a.dll") != NULL, "first file", first.dli_fname);
  require(strstr(second.dli_fname, "plug_b.dll") != NULL, "second file", second.dli_fname);
  require(dlopen(missing, RTLD_NOW) == NULL, "missing file", "opened");
  SwitchToThread();
  char *error = dlerror();
  require(starts(error, expected), expected, error);
  require(dlerror() == NULL, "second dlerror", "an error");
  require(dlsym(RTLD_DEFAULT, "a_only") != NULL, "global", "not found");
  if (round % 8 == number) {
    void *init = dlopen("plug_init.dll", RTLD_LOCAL);
    require(init != NULL && ((int (*)(void))(ULONG_PTR)dlsym(init, "good_start"))() == 1, "DllMain", "failed");
    require(dlclose(init) == 0, "close init", "failed");
  }
  require(dlclose(b) == 0 && dlclose(a) == 0, "close", "failed");
}

static DWORD WINAPI work(void *number) {
  for (int round = 0; round < ROUNDS; round++) one_round((int)(ULONG_PTR)number, round);
  return 0;
}

static DWORD WINAPI fail_once(void *text) {
  dlopen(text, RTLD_NOW);
  return dlerror() == NULL;
}

static void run(int count, LPTHREAD_START_ROUTINE function, void *argument) {
  HANDLE threads[THREADS] = {0};
  for (int i = 0; i < count; i++)
    threads[i] = CreateThread(NULL, 0, function, argument != NULL ? argument : (void *)(ULONG_PTR)i, 0, NULL);
  WaitForMultipleObjects(count, threads, TRUE, INFINITE);
  for (int i = 0; i < count; i++) CloseHandle(threads[i]);
}

static size_t heap_in_use(void) {
  PROCESS_HEAP_ENTRY entry = {0};
  size_t total = 0;
  HeapLock(GetProcessHeap());
  while (HeapWalk(GetProcessHeap(), &entry))
    if (entry.wFlags & PROCESS_HEAP_ENTRY_BUSY) total += entry.cbData;
  HeapUnlock(GetProcessHeap());
  return total;
}

// dl.dll loaded and unloaded again and again, while another thread keeps an error of it.
static HANDLE failed, unloaded;

static DWORD WINAPI outlive(void *function) {
  void *(*open)(const char *, int) = (void *(*)(const char *, int))(ULONG_PTR)function;
  open("no such.dll", RTLD_NOW);
  SetEvent(failed);
  WaitForSingleObject(unloaded, INFINITE);
  return 0;
}

static void reload(void) {
  int good = 1;
  failed = CreateEventW(NULL, FALSE, FALSE, NULL), unloaded = CreateEventW(NULL, FALSE, FALSE, NULL);
  for (int i = 0; i < ROUNDS; i++) {
    HMODULE library = LoadLibraryA("dl.dll");
    FARPROC open = GetProcAddress(library, "dlopen");
    char *(*error)(void) = (char *(*)(void))(ULONG_PTR)GetProcAddress(library, "dlerror");
    HANDLE thread = CreateThread(NULL, 0, outlive, (void *)(ULONG_PTR)open, 0, NULL);
    WaitForSingleObject(failed, INFINITE);
    ((void *(*)(const char *, int))(ULONG_PTR)open)("mine.dll", RTLD_NOW);
    good = good && starts(error(), "\"mine.dll\": ");
    good = good && FreeLibrary(library) && GetModuleHandleA("dl.dll") == NULL;
    SetEvent(unloaded);
    WaitForSingleObject(thread, INFINITE);
    CloseHandle(thread);
  }
  check_that("unloaded_and_loaded_again", good, "not");
}

int main(void) {
  char seen[128];
  static char text[20000];
  memset(text, 'y', sizeof text - 1);
  run(THREADS, work, NULL);
  check_that("threads", wrong == 0, first_wrong);
  check_that("all_closed", GetModuleHandleA("plug_a.dll") == NULL && GetModuleHandleA("plug_b.dll") == NULL, "still loaded");

  run(THREADS, fail_once, text);
  DWORD handles_before, handles_after;
  size_t heap_before = heap_in_use();
  GetProcessHandleCount(GetCurrentProcess(), &handles_before);
  for (int i = 0; i < SHORT_RUNS / THREADS; i++) run(THREADS, fail_once, text);
  for (int i = 0; i < ROUNDS; i++) one_round(0, i);
  GetProcessHandleCount(GetCurrentProcess(), &handles_after);
  size_t heap_after = heap_in_use();
  snprintf(seen, sizeof seen, "%lu instead of %lu", handles_after, handles_before);
  check_that("handles", handles_after <= handles_before + 2, seen);
  snprintf(seen, sizeof seen, "%zu instead of %zu bytes", heap_after, heap_before);
  check_that("memory_of_ended_threads", heap_after < heap_before + 400000, seen);
  check_that("rounds_alone", wrong == 0, first_wrong);
  if (GetModuleHandleA("dl.dll") == NULL) reload(); /* where this program itself needs none */
  puts("finished");
  return 0;
}
