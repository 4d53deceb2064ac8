// Services of the operating system for test programs. Texts are UTF-8.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#ifdef _WIN32
#include <windows.h>

inline std::wstring wide(const std::string& text) {
  std::wstring out(text.size(), L'\0');
  const int size = static_cast<int>(text.size());
  out.resize(static_cast<size_t>(MultiByteToWideChar(CP_UTF8, 0, text.c_str(), size, out.data(), size)));
  return out;
}
inline std::string narrow(const std::wstring& text) {
  std::string out(text.size() * 3, '\0');
  const int size = static_cast<int>(text.size());
  out.resize(static_cast<size_t>(WideCharToMultiByte(CP_UTF8, 0, text.c_str(), size, out.data(), size * 3, nullptr, nullptr)));
  return out;
}

constexpr const char* kHipNames[] = {"amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"};

// A library that the process has already, or null.
inline void* loaded_library(const char* name) { return GetModuleHandleW(wide(name).c_str()); }
inline void* open_library(const std::string& path) {
  return LoadLibraryExW(wide(path).c_str(), nullptr, LOAD_WITH_ALTERED_SEARCH_PATH);
}
inline bool close_library(void* library) { return FreeLibrary(static_cast<HMODULE>(library)) != 0; }
inline void* symbol_address(void* library, const char* name) {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}
inline bool change_folder(const std::string& path) { return SetCurrentDirectoryW(wide(path).c_str()) != 0; }
inline void set_variable(const std::string& name, const std::string& value) {
  SetEnvironmentVariableW(wide(name).c_str(), wide(value).c_str());
}
inline void limit_descriptors(unsigned long) { std::exit(3); }  // Windows has no such limit
inline void advance_clock(long) { std::exit(3); }               // nothing can come before the system's clock
inline int replace_descriptors(const std::string&) { std::exit(3); }
inline int open_descriptors() { std::exit(3); }
#else
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

constexpr const char* kHipNames[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"};

inline void* loaded_library(const char* name) { return dlopen(name, RTLD_LAZY | RTLD_NOLOAD); }
inline void* open_library(const std::string& path) { return dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL); }
inline void* symbol_address(void* library, const char* name) { return dlsym(library, name); }
inline bool change_folder(const std::string& path) { return chdir(path.c_str()) == 0; }
inline void set_variable(const std::string& name, const std::string& value) { setenv(name.c_str(), value.c_str(), 1); }
inline void limit_descriptors(unsigned long most) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = most;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// The program's definition comes before libc's, in the library too: what expires after seconds is tested without waiting for it.
inline long g_clock_ahead = 0;
inline void advance_clock(long seconds) { g_clock_ahead += seconds; }
extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t clock, timespec* out) noexcept {
  const int result = static_cast<int>(syscall(SYS_clock_gettime, clock, out));
  if (result == 0) out->tv_sec += g_clock_ahead;
  return result;
}

inline std::vector<int> g_replaced;

// Closes every descriptor of a container, as closefrom() would, and opens `path` under the same numbers. Returns how many.
inline int replace_descriptors(const std::string& path) {
  for (int descriptor = 3; descriptor < 256; ++descriptor) {
    char name[4096];
    const ssize_t size = readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), name, sizeof name);
    const std::string file(name, size > 0 ? static_cast<size_t>(size) : 0);
    if (file.size() < 5 || file.compare(file.size() - 5, 5, ".aoti") != 0) continue;
    const int other = open(path.c_str(), O_RDONLY);
    if (other < 0 || dup2(other, descriptor) != descriptor || close(other) != 0) std::exit(3);
    g_replaced.push_back(descriptor);
  }
  return static_cast<int>(g_replaced.size());
}

// How many of those are still open.
inline int open_descriptors() {
  int count = 0;
  for (const int descriptor : g_replaced) count += fcntl(descriptor, F_GETFD) >= 0;
  return count;
}
#endif
