// What dlfcn-win32's documentation and POSIX promise, checked in one process; with any argument, also what only aotforge's dl
// does (the original is wrong there, or crashes). Runs in a folder with plug_a.dll, plug_b.dll, plug_init.dll, and bad.dll (a text).
#include <stddef.h>
#include <windows.h>

#include "check.h"
#include "dlfcn.h"

_Static_assert(RTLD_NOW == 0 && RTLD_LAZY == 0 && RTLD_GLOBAL == 2 && RTLD_LOCAL == 4, "modes");
_Static_assert(sizeof(Dl_info) == 32 && offsetof(Dl_info, dli_fbase) == 8 && offsetof(Dl_info, dli_sname) == 16 &&
                   offsetof(Dl_info, dli_saddr) == 24, "Dl_info");
static void *(*const open_type)(const char *, int) = dlopen;
static int (*const close_type)(void *) = dlclose;
static void *(*const sym_type)(void *, const char *) = dlsym;
static char *(*const error_type)(void) = dlerror;
static int (*const addr_type)(const void *, Dl_info *) = dladdr;

typedef int (*number)(void);
typedef void *(*finder)(const char *);

__declspec(dllexport) int prefer(void) { return 100; }

static int call(void *function) { return function == NULL ? -1 : ((number)(ULONG_PTR)function)(); }

static void errors(void) {
  check_that("no_error_at_first", dlerror() == NULL, "an error");
  void *handle = dlopen("no/such file.dll", RTLD_NOW);
  char *error = dlerror();
  check_that("missing_file", handle == NULL && starts(error, "\"no\\such file.dll\": "), error);
  size_t length = error == NULL ? 0 : strlen(error);
  check_that("explained", length > strlen("\"no\\such file.dll\": ") && error[length - 1] != '\n' && error[length - 1] != '\r',
             error);
  check_that("error_once", dlerror() == NULL, "the error again");
  dlopen("no such file.dll", RTLD_NOW);
  handle = dlopen("kernel32.dll", RTLD_GLOBAL);
  error = dlerror();
  check_that("success_clears", handle != NULL && error == NULL, error);
  void *symbol = dlsym(handle, "no such function");
  error = dlerror();
  check_that("missing_symbol", symbol == NULL && starts(error, "\"no such function\": "), error);
  check_that("symbol_found", dlsym(handle, "Sleep") != NULL && dlerror() == NULL, "none, or an error");
  check_that("close", dlclose(handle) == 0 && dlerror() == NULL, "failed");
  int closed = dlclose((void *)0x1234560000);
  error = dlerror();
  check_that("close_nonsense", closed != 0 && starts(error, "\"0x0000001234560000\": "), error);
  symbol = dlsym((void *)0x1234560000, "Sleep");
  error = dlerror();
  check_that("symbol_of_nonsense", symbol == NULL && starts(error, "\"Sleep\": "), error);
  DWORD mode = GetThreadErrorMode(), process = GetErrorMode();
  handle = dlopen("./bad.dll", RTLD_NOW);
  error = dlerror();
  check_that("bad_image", handle == NULL && starts(error, "\".\\bad.dll\": "), error);
  check_that("error_mode_restored", GetThreadErrorMode() == mode && GetErrorMode() == process, "changed");
  dlsym(NULL, "nothing has this name");
  Dl_info info;
  dladdr((void *)(ULONG_PTR)errors, &info);
  check_that("dladdr_leaves_error", dlerror() != NULL, "no error");
  static char longest[40000];
  memset(longest, 'x', sizeof longest - 5);
  memcpy(longest + sizeof longest - 5, ".dll", 5);
  handle = dlopen(longest, RTLD_NOW);
  error = dlerror();
  check_that("name_too_long", handle == NULL && starts(error, "\"xxxx") && strlen(error) > 40000, error == NULL ? error : "cut");
}

static void program(void) {
  void *self = dlopen(NULL, RTLD_NOW);
  check_that("program", self == GetModuleHandleW(NULL), "another handle");
  check_that("program_symbol", call(dlsym(self, "prefer")) == 100, "not found");
  check_that("program_imports", dlsym(self, "malloc") != NULL, "not found");
  check_that("default_handle", dlsym(RTLD_DEFAULT, "GetModuleHandleW") == dlsym(self, "GetModuleHandleW"), "differs");
  check_that("program_closes", dlclose(self) == 0 && dlclose(self) == 0 && dlerror() == NULL, "failed");
  check_that("program_stays", call(dlsym(dlopen(NULL, 0), "prefer")) == 100, "gone");
}

static void scopes(void) {
  void *a = dlopen("plug_a.dll", RTLD_NOW);
  check_that("global_by_default", call(dlsym(RTLD_DEFAULT, "a_only")) == 1, "not found");
  void *b = dlopen("plug_b", RTLD_NOW | RTLD_LOCAL);
  check_that("extension_added", b != NULL, dlerror());
  check_that("local_hidden", dlsym(RTLD_DEFAULT, "b_only") == NULL && dlsym(dlopen(NULL, 0), "b_only") == NULL, "found");
  check_that("local_by_handle", call(dlsym(b, "b_only")) == 2, "not found");
  check_that("handle_searches_alone", dlsym(a, "b_only") == NULL && dlsym(b, "a_only") == NULL, "found");
  check_that("load_order", call(dlsym(RTLD_DEFAULT, "which")) == 1, "another");
  check_that("program_first", call(dlsym(RTLD_DEFAULT, "prefer")) == 100, "another");
  check_that("next_after_program", call(dlsym(RTLD_NEXT, "prefer")) == 1, "another");
  finder next = (finder)(ULONG_PTR)dlsym(a, "next_of");
  check_that("next_skips_local", next("which") == NULL, "found");
  check_that("same_handle_again", dlopen("plug_b.dll", RTLD_NOW | RTLD_GLOBAL) == b, "another");
  check_that("local_becomes_global", call(dlsym(RTLD_DEFAULT, "b_only")) == 2, "not found");
  check_that("next_after_module", call(next("which")) == 2, "another");
  check_that("next_of_last", next("a_only") == NULL && starts(dlerror(), "\"a_only\": "), "found");
  check_that("local_again", dlopen("plug_b.dll", RTLD_NOW | RTLD_LOCAL) == b, "another");
  check_that("once_global_always", call(dlsym(RTLD_DEFAULT, "b_only")) == 2, "not found");
  check_that("counted", dlclose(b) == 0 && dlclose(b) == 0 && call(dlsym(b, "b_only")) == 2, "gone early");
  check_that("gone", dlclose(b) == 0 && GetModuleHandleA("plug_b.dll") == NULL, "still there");
  check_that("gone_symbol", dlsym(RTLD_DEFAULT, "b_only") == NULL, "found");
  check_that("closed_twice", dlclose(b) != 0 && dlerror() != NULL, "no error");

  HMODULE direct = LoadLibraryA("plug_b.dll");
  check_that("loaded_by_windows_is_global", call(dlsym(RTLD_DEFAULT, "b_only")) == 2, "not found");
  check_that("global_before_local", dlopen("plug_b.dll", RTLD_LOCAL) == direct && dlsym(RTLD_DEFAULT, "b_only") != NULL,
             "not found");
  dlclose(direct);
  FreeLibrary(direct);
  check_that("ordinal", call(dlsym(a, (const char *)(ULONG_PTR)(WORD)40)) == 1, "not found");
  dlclose(a);
  void *init = dlopen("plug_init.dll", RTLD_LOCAL);
  check_that("dl_inside_DllMain", init != NULL && call(dlsym(init, "good_start")) == 1, "failed");
  dlclose(init);
}

static int ends(const char *text, const char *end) {
  size_t size = text == NULL ? 0 : strlen(text);
  return size >= strlen(end) && _stricmp(text + size - strlen(end), end) == 0;
}

static void unexported(void) { Sleep(0); }

static void addresses(void) {
  Dl_info info = {0};
  void *a = dlopen("plug_a.dll", RTLD_NOW), *which = dlsym(a, "which");
  int found = dladdr(which, &info);
  check_that("address", found != 0 && info.dli_fbase == a && info.dli_saddr == which && !strcmp(info.dli_sname, "which"), info.dli_sname);
  check_that("address_file", ends(info.dli_fname, "\\plug_a.dll") && info.dli_fname[1] == ':', info.dli_fname);
  found = dladdr((char *)which + 1, &info);
  check_that("address_inside", found != 0 && info.dli_saddr == which && !strcmp(info.dli_sname, "which"), info.dli_sname);
  void *data = dlsym(a, "value_of_data");
  found = dladdr(data, &info);
  check_that("address_of_data", found != 0 && info.dli_saddr == data && *(int *)data == 1, info.dli_sname);
  found = dladdr(a, &info);
  check_that("address_below_symbols", found != 0 && info.dli_sname == NULL && info.dli_saddr == NULL, info.dli_sname);
  found = dladdr((void *)(ULONG_PTR)prefer, &info);
  check_that("address_in_program", found != 0 && ends(info.dli_fname, ".exe") && !strcmp(info.dli_sname, "prefer"), info.dli_fname);
  found = dladdr((void *)(ULONG_PTR)unexported, &info);
  check_that("address_without_name", found != 0 && info.dli_saddr != (void *)(ULONG_PTR)unexported, "a name");
  check_that("address_null", dladdr(NULL, &info) == 0, "found");
  check_that("address_nonsense", dladdr((void *)0x125, &info) == 0, "found");
  int here;
  check_that("address_of_stack", dladdr(&here, &info) == 0, "found");
  check_that("no_info", dladdr(which, NULL) == 0, "found");
  void *page = VirtualAlloc(NULL, 8192, MEM_RESERVE, PAGE_NOACCESS);
  check_that("address_reserved", dladdr(page, &info) == 0, "found");
  VirtualAlloc(page, 4096, MEM_COMMIT, PAGE_READWRITE);
  memcpy(page, "\xFF\x25\0\0\0\0", 6);
  check_that("thunk_outside_modules", dladdr(page, &info) == 0, "found");
  dlclose(a);
}

// Linked against a function's name without dllimport, its address is that of a thunk in this program.
__attribute__((naked, noinline)) static void thunk_to_sleep(void) { __asm__("jmp *__imp_Sleep(%rip)"); }
__attribute__((naked, noinline)) static void thunk_to_data(void) { __asm__("jmp *thunk_target(%rip)"); }
void *thunk_target __attribute__((used)) = (void *)0x125;

static void thunks(void) {
  Dl_info info = {0};
  void *sleep = (void *)(ULONG_PTR)GetProcAddress(GetModuleHandleA("kernel32.dll"), "Sleep");
  int found = dladdr((void *)(ULONG_PTR)thunk_to_sleep, &info);
  check_that("import_thunk", found != 0 && info.dli_saddr == sleep && !strcmp(info.dli_sname, "Sleep"), info.dli_sname);
  check_that("thunk_to_nothing", dladdr((void *)(ULONG_PTR)thunk_to_data, &info) == 0, info.dli_sname);
  found = dladdr((void *)(ULONG_PTR)dlopen, &info);
  check_that("itself", found != 0 && (ends(info.dli_fname, "\\dl.dll") ? !strcmp(info.dli_sname, "dlopen") : ends(info.dli_fname, ".exe")),
             info.dli_fname);
}

static void beyond_the_original(void) {
  void *a = dlopen("plug_a.dll", RTLD_NOW), *b = dlopen("plug_b.dll", RTLD_LOCAL);
  dlopen("plug_b.dll", RTLD_LOCAL);
  dlclose(b);
  check_that("local_until_last_close", dlsym(RTLD_DEFAULT, "b_only") == NULL, "found");
  check_that("no_ordinal", dlsym(a, (const char *)(ULONG_PTR)(WORD)999) == NULL && starts(dlerror(), "\"#999\": "), "another");
  check_that("no_name", dlsym(a, NULL) == NULL && dlerror() != NULL, "no error");
  Dl_info first = {0}, second = {0};
  dladdr(dlsym(a, "which"), &first), dladdr(dlsym(b, "which"), &second);
  check_that("file_names_stay", ends(first.dli_fname, "\\plug_a.dll") && ends(second.dli_fname, "\\plug_b.dll"), first.dli_fname);
  char *page = VirtualAlloc(NULL, 8192, MEM_RESERVE, PAGE_NOACCESS);
  VirtualAlloc(page, 4096, MEM_COMMIT, PAGE_READWRITE);
  memcpy(page + 4094, "\xFF\x25", 2);
  check_that("thunk_cut_off", dladdr(page + 4094, &first) == 0, "found");
  dlclose(b), dlclose(a);
}

int main(int count, char **words) {
  (void)words;
  (void)open_type, (void)close_type, (void)sym_type, (void)error_type, (void)addr_type;
  errors();
  program();
  scopes();
  addresses();
  thunks();
  if (count > 1) beyond_the_original();
  puts("finished");
  return 0;
}
