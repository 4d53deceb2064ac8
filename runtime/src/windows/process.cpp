#include "process.h"

#include <windows.h>

#include "state.h"
#include "windows/text.h"

namespace aotforge {
namespace {

constexpr const wchar_t* kNames[] = {L"amdhip64_7.dll", L"amdhip64_6.dll", L"amdhip64.dll"};
constexpr size_t kCount = sizeof kNames / sizeof kNames[0];

std::wstring variable(const wchar_t* name) {
  for (DWORD capacity = 256;;) {
    std::wstring value(capacity, L'\0');
    const DWORD size = ::GetEnvironmentVariableW(name, value.data(), capacity);
    value.resize(size < capacity ? size : 0);
    if (size < capacity) return value;
    capacity = size;
  }
}

// The file of that name in a folder of PATH; empty when there is none. The current folder is not searched: its files are not trusted.
std::wstring on_path(const wchar_t* name) {
  const std::wstring path = variable(L"PATH");
  if (path.empty()) return {};
  for (DWORD capacity = 512;;) {
    std::wstring file(capacity, L'\0');
    const DWORD size = ::SearchPathW(path.c_str(), name, nullptr, capacity, file.data(), nullptr);
    file.resize(size < capacity ? size : 0);
    if (size < capacity) return file;
    capacity = size + 1;
  }
}

// The program's folder, the system's, those that were added with AddDllDirectory (Python: os.add_dll_directory), then PATH.
HMODULE load(const wchar_t* name) {
  if (HMODULE library = ::LoadLibraryExW(name, nullptr, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS)) return library;
  const DWORD error = ::GetLastError();
  const std::wstring file = on_path(name);
  if (!file.empty()) return ::LoadLibraryExW(file.c_str(), nullptr, LOAD_WITH_ALTERED_SEARCH_PATH);
  ::SetLastError(error);
  return nullptr;
}

}  // namespace

std::string library_file() {
  static const char anchor = 0;
  constexpr DWORD flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
  HMODULE library = nullptr;
  if (!::GetModuleHandleExW(flags, reinterpret_cast<LPCWSTR>(&anchor), &library)) return {};
  for (DWORD capacity = 512;; capacity *= 2) {
    std::wstring file(capacity, L'\0');
    const DWORD size = ::GetModuleFileNameW(library, file.data(), capacity);
    file.resize(size < capacity ? size : 0);
    if (size < capacity) return to_utf8(file);
  }
}

std::string trusted_variable(const char* name) { return to_utf8(variable(to_wide(name).c_str())); }

bool in_forked_child(void (*)()) { return true; }  // Windows has no fork

void* DriverLibrary::symbol(const char* name) const {
  return reinterpret_cast<void*>(::GetProcAddress(static_cast<HMODULE>(handle), name));
}

const size_t kLoadedHips = kCount, kInstalledHips = kCount;

bool loaded_hip(size_t which, DriverLibrary& out) {
  HMODULE library = nullptr;
  ::GetModuleHandleExW(0, kNames[which], &library);  // counted, so that it stays as long as we use it
  out = {library, false, true};
  return library != nullptr;
}

bool installed_hip(size_t which, DriverLibrary& out) {
  out = {load(kNames[which]), false, true};
  return out.handle != nullptr;
}

bool cuda_library(DriverLibrary& out) {
  out = {load(L"nvcuda.dll"), false, true};
  return out.handle != nullptr;
}

std::string hip_trouble() { return library_trouble("amdhip64_7.dll, amdhip64_6.dll and amdhip64.dll"); }

std::string library_trouble(const char* name) {
  const DWORD error = ::GetLastError();
  const bool missing = error == ERROR_MOD_NOT_FOUND;
  return std::string(name) + ": " +
         (missing ? "not found, or a library that they need is missing (error " : "cannot be loaded (error ") +
         std::to_string(error) + ")";
}

}  // namespace aotforge

extern "C" BOOL WINAPI DllMain(HINSTANCE, DWORD reason, LPVOID ending) {
  // at the end of the process other threads are gone, perhaps with locks of the heap in their hands: nothing is freed then
  if (reason == DLL_PROCESS_DETACH && ending == nullptr) aotforge::unload();
  return TRUE;
}
