// dropin.exe: puts this folder's library and images into an installed PyTorch for Windows, and out again.
//
// The library is switched by one rename; before it, images are added under names of their own, beside
// PyTorch's: each library ignores the other's. So a run that is killed leaves PyTorch's library or ours with
// its images, and the next run completes it.
// torch\lib\aotforge-dropin is the record of what to restore: original.dll, a copy of PyTorch's library.
#include <windows.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#define PATH_LENGTH 4096
#define LIBRARY L"aotriton_v2.dll"
#define PREFIX L"aotforge-"  // of our packs among PyTorch's
static const char kOurs[] = "dispatch.aotd";  // what our library opens in a pack, and no other one

static wchar_t source[PATH_LENGTH], lib[PATH_LENGTH], images[PATH_LENGTH], store[PATH_LENGTH];

static void write_line(FILE* file, const wchar_t* format, va_list words) {
  static wchar_t text[2 * PATH_LENGTH];
  static char bytes[6 * PATH_LENGTH];
  _vsnwprintf(text, 2 * PATH_LENGTH - 1, format, words);
  WideCharToMultiByte(CP_UTF8, 0, text, -1, bytes, sizeof bytes, NULL, NULL);
  fprintf(file, "%s\n", bytes);
}

static void print(const wchar_t* format, ...) {
  va_list words;
  va_start(words, format);
  write_line(stdout, format, words);
  va_end(words);
}

__attribute__((noreturn)) static void leave(int code) {
  DWORD process;
  if (GetConsoleProcessList(&process, 1) == 1) {  // double-clicked: the window closes with the program
    puts("Press Enter to close this window.");
    getchar();
  }
  exit(code);
}

__attribute__((noreturn)) static void fail(const wchar_t* format, ...) {
  va_list words;
  va_start(words, format);
  write_line(stderr, format, words);
  va_end(words);
  leave(1);
}

// Another buffer at each call, of eight: to be used at once.
static wchar_t* joined(const wchar_t* folder, const wchar_t* name) {
  static wchar_t paths[8][PATH_LENGTH];
  static int next;
  wchar_t* path = paths[next++ % 8];
  if (wcslen(folder) + wcslen(name) + 2 > PATH_LENGTH) fail(L"%ls\\%ls: the path is too long", folder, name);
  return wcscat(wcscat(wcscpy(path, folder), L"\\"), name);
}

static int is_there(const wchar_t* path) { return GetFileAttributesW(path) != INVALID_FILE_ATTRIBUTES; }

static void must(BOOL done, const wchar_t* what, const wchar_t* path) {
  const DWORD error = GetLastError();
  if (done) return;
  if (error == ERROR_ACCESS_DENIED || error == ERROR_SHARING_VIOLATION)
    fail(L"error: cannot %ls %ls (error %lu)\nlikely cause: a program uses PyTorch, or this user may not write there\n"
         L"next step: close Python and run this again, or run it as administrator", what, path, error);
  fail(L"error: cannot %ls %ls (error %lu)\nnext step: free disk space, check the path, and run this again", what, path, error);
}

static void make_folder(const wchar_t* path) { must(is_there(path) || CreateDirectoryW(path, NULL), L"create", path); }

// The file's bytes and a zero; NULL when it cannot be read.
static char* content(const wchar_t* path, size_t* size) {
  FILE* file = _wfopen(path, L"rb");
  char* bytes = NULL;
  if (file == NULL) return NULL;
  if (fseek(file, 0, SEEK_END) == 0 && (bytes = calloc(1, (size_t)ftell(file) + 1)) != NULL) {
    rewind(file);
    *size = fread(bytes, 1, _msize(bytes) - 1, file);
  }
  fclose(file);
  return bytes;
}

static int is_ours(const wchar_t* path) {
  size_t size = 0, at = 0;
  char* bytes = content(path, &size);
  if (bytes == NULL) return 0;
  while (at + sizeof kOurs <= size && memcmp(bytes + at, kOurs, sizeof kOurs) != 0) ++at;
  free(bytes);
  return at + sizeof kOurs <= size;
}

// A number that the AOTriton headers of this PyTorch define; -1 without them.
static int header_number(const char* name) {
  size_t size = 0;
  char* text = content(joined(lib, L"..\\include\\aotriton\\config.h"), &size);
  const char* found = text == NULL ? NULL : strstr(text, name);
  const int number = found == NULL ? -1 : atoi(found + strlen(name));
  free(text);
  return number;
}

// Removes a folder with its files; one with folders in it, which we do not make, stays.
static void remove_folder(const wchar_t* folder) {
  wchar_t path[PATH_LENGTH];
  WIN32_FIND_DATAW found;
  const HANDLE search = FindFirstFileW(joined(wcscpy(path, folder), L"*"), &found);
  if (search == INVALID_HANDLE_VALUE) return;
  do {
    if (!(found.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY)) DeleteFileW(joined(path, found.cFileName));
  } while (FindNextFileW(search, &found));
  FindClose(search);
  RemoveDirectoryW(path);
}

// Calls `use` for every folder in `folder`, `kept` or not.
static int each_folder(const wchar_t* folder, const wchar_t* kept, void (*use)(const wchar_t*, const wchar_t*)) {
  WIN32_FIND_DATAW found;
  const HANDLE search = FindFirstFileW(joined(folder, L"*"), &found);
  int count = 0;
  if (search == INVALID_HANDLE_VALUE) return 0;
  do {
    if (!(found.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) || found.cFileName[0] == L'.') continue;
    use(found.cFileName, kept);
    ++count;
  } while (FindNextFileW(search, &found));
  FindClose(search);
  return count;
}

static void add_pack(const wchar_t* name, const wchar_t* prefix) {
  wchar_t pack[PATH_LENGTH], staged[PATH_LENGTH], target[PATH_LENGTH];
  WIN32_FIND_DATAW found;
  wcscpy(pack, joined(joined(source, L"aotriton.images"), name));
  remove_folder(wcscpy(staged, joined(store, L"pack")));
  make_folder(staged);
  const HANDLE search = FindFirstFileW(joined(pack, L"*"), &found);
  must(search != INVALID_HANDLE_VALUE, L"read", pack);
  do {
    if (found.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) continue;
    wcscpy(target, joined(staged, found.cFileName));
    must(CopyFileW(joined(pack, found.cFileName), target, FALSE), L"write", target);
  } while (FindNextFileW(search, &found));
  FindClose(search);
  wcscpy(target, joined(images, prefix));
  wcscat(target, name);
  must(MoveFileExW(staged, target, MOVEFILE_WRITE_THROUGH), L"make", target);
  print(L"added    %ls", target);
}

static void remove_pack(const wchar_t* name, const wchar_t* kept) {
  if (wcsncmp(name, PREFIX, wcslen(PREFIX)) != 0 || (kept != NULL && wcsncmp(name, kept, wcslen(kept)) == 0)) return;
  remove_folder(joined(images, name));
  print(L"removed  %ls", joined(images, name));
}

// Replaces `target` in one step.
static void put(const wchar_t* from, const wchar_t* target) {
  wchar_t* next = joined(store, L"next.dll");
  must(CopyFileW(from, next, FALSE), L"write", next);
  must(MoveFileExW(next, target, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH), L"replace", target);
}

static int find_lib(const wchar_t* folder) {
  static const wchar_t* const kPlaces[] = {L".", L"torch\\lib", L"Lib\\site-packages\\torch\\lib"};
  for (int i = 0; folder != NULL && i < 3; ++i) {
    wcscpy(lib, i == 0 ? folder : joined(folder, kPlaces[i]));
    if (is_there(joined(lib, L"torch_hip.dll"))) return 1;
  }
  return 0;
}

static void install(wchar_t* current, wchar_t* original) {
  const int major = header_number("AOTRITON_VERSION_MAJOR "), minor = header_number("AOTRITON_VERSION_MINOR ");
  SYSTEMTIME now;
  wchar_t prefix[64];
  if (major != AOTFORGE_MAJOR || minor != AOTFORGE_MINOR)
    fail(L"error: this PyTorch needs AOTriton %d.%d, and this library is %d.%d\nlikely cause: %ls\n"
         L"next step: use the zip file of the level that this PyTorch needs", major, minor, AOTFORGE_MAJOR, AOTFORGE_MINOR,
         major < 0 ? L"torch\\include\\aotriton\\config.h, which states it, is missing" : L"the zip file is of another API level");
  make_folder(store);
  if (is_there(current) && !is_ours(current)) put(current, original);  // also after PyTorch was installed again
  make_folder(images);
  GetSystemTime(&now);
  swprintf(prefix, 64, PREFIX L"%04d%02d%02d%02d%02d%02d%03d-", now.wYear, now.wMonth, now.wDay, now.wHour, now.wMinute,
           now.wSecond, now.wMilliseconds);
  if (each_folder(joined(source, L"aotriton.images"), prefix, add_pack) == 0)
    fail(L"error: this folder has no images\nnext step: use the zip file with the images of your GPU");
  put(joined(source, LIBRARY), current);
  print(L"replaced %ls (PyTorch's is %ls)", current, original);
  each_folder(images, prefix, remove_pack);
}

static void undo(wchar_t* current, wchar_t* original) {
  if (!is_there(store)) fail(L"error: nothing was dropped into %ls", lib);
  if (is_there(current) && !is_ours(current)) {
    print(L"kept     %ls, which is PyTorch's", current);
  } else if (is_there(original)) {
    put(original, current);
    print(L"restored %ls", current);
  } else {
    fail(L"error: PyTorch's library is gone from %ls\nnext step: install PyTorch again", store);
  }
  each_folder(images, NULL, remove_pack);
  RemoveDirectoryW(images);  // unless it has PyTorch's
  remove_folder(joined(store, L"pack"));
  remove_folder(store);
}

int wmain(int count, wchar_t** words) {
  const int undoes = count > 1 && wcscmp(words[1], L"--undo") == 0;
  const wchar_t* folder = count > 1 + undoes ? words[1 + undoes] : NULL;
  GetModuleFileNameW(NULL, source, PATH_LENGTH - 16);
  wcscpy(wcsrchr(source, L'\\') + 1, L"..\\lib");
  if (count > 2 + undoes || (folder ? !find_lib(folder) : !find_lib(_wgetenv(L"VIRTUAL_ENV")) && !find_lib(_wgetenv(L"CONDA_PREFIX"))))
    fail(L"error: no PyTorch for ROCm (torch_hip.dll) in %ls\n"
         L"next step: dropin.exe [--undo] FOLDER, with torch\\lib or the folder of the environment that has PyTorch,\n"
         L"or drop that folder onto this program", folder ? folder : L"the active environment");
  wcscpy(images, joined(lib, L"aotriton.images"));
  wcscpy(store, joined(lib, L"aotforge-dropin"));
  wchar_t current[PATH_LENGTH], original[PATH_LENGTH];
  wcscpy(current, joined(lib, LIBRARY));
  wcscpy(original, joined(store, L"original.dll"));
  (undoes ? undo : install)(current, original);
  leave(0);
}
