// Functions of the process that the library is loaded into: posix/process.cpp or windows/process.cpp. Each also sees to it that
// unload() (state.h) runs when the process lets go of the library.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>

namespace aotforge {

// UTF-8 path of this library's file as the loader found it (its symbolic link's path if it is one); empty when the loader does not report it.
std::string library_file();

// An environment variable as it is now, in UTF-8; empty when it is unset, or when its author may have fewer rights than the process.
std::string trusted_variable(const char* name);

// Have `act` called in children that are forked from now on, where there are such. False: no memory.
bool in_forked_child(void (*act)());

// A library of a GPU's driver.
struct DriverLibrary {
  void* handle = nullptr;
  bool in_scope = false;  // what it lacks may come from the process' own lookup scope
  bool by_name = false;   // it was found by its name

  // The address, or null.
  void* symbol(const char* name) const;
};

// An entry point of a library into `out`, null when the library lacks it. False: it does.
template <typename Function>
bool resolve(const DriverLibrary& library, const char* name, Function& out) {
  void* address = library.symbol(name);
  static_assert(sizeof address == sizeof out, "function pointers are pointers");
  std::memcpy(&out, &address, sizeof out);
  return address != nullptr;
}

// The places to look, best first: libraries that the process has already, then installed ones, which are loaded. False: nothing there.
extern const size_t kLoadedHips, kInstalledHips;
bool loaded_hip(size_t which, DriverLibrary& out);
bool installed_hip(size_t which, DriverLibrary& out);

// The library of NVIDIA's driver, which a process has once. False: it is not installed.
bool cuda_library(DriverLibrary& out);

// Why the last of these found nothing; `name` is part of the text when the system does not give one.
std::string hip_trouble();
std::string library_trouble(const char* name);

}  // namespace aotforge
