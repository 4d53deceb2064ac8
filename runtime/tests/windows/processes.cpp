// What one Windows process can do to the library. Every path is UTF-8 and may have any length. Exits 0 on success, else prints the reason.
//   open LIB [N]    load the library, call it: prints "rc N" and the double's record
//   twice A B       two copies in one process, each with its own images; the first is unloaded while the second is used
//   threads LIB N   N threads make the first call at once: every image loads once
//   reload LIB N    load, call, unload N times: nothing grows, no handle stays
//   busy LIB        unload at the end of a process whose other threads are still inside
#include <aotforge/launch.h>
#include <hip/hip_runtime.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "../system.h"

#include <psapi.h>

namespace {

using Launch = int(const char*, const aotforge_value*, size_t, int32_t, void*);

int wrong(const char* what, long got) {
  std::printf("%s: %ld (error %lu)\n", what, got, GetLastError());
  return 1;
}

template <typename Signature>
Signature* symbol(void* library, const char* name) {
  return reinterpret_cast<Signature*>(symbol_address(library, name));
}

Launch* launch_of(void* library) { return library == nullptr ? nullptr : symbol<Launch>(library, "aotforge_launch"); }

void* hip() {
  for (const char* name : kHipNames)
    if (void* found = loaded_library(name)) return found;
  return nullptr;
}

long calls(const char* name) { return hip() == nullptr ? -1 : symbol<long(const char*)>(hip(), "hip_double_calls")(name); }

int add(Launch* launch) {
  aotforge_value values[4] = {};
  const char* names[] = {"x", "y", "out", "n"};
  for (int i = 0; i < 4; ++i) values[i].name = names[i];
  for (int i = 0; i < 3; ++i) values[i].as.ptr = reinterpret_cast<void*>(static_cast<uintptr_t>(0x10000 * (i + 1)));
  values[3].type = AOTFORGE_I32;
  values[3].as.i32 = 5000;
  return launch("add", values, 4, AOTFORGE_HIP, nullptr);
}

int open(const std::string& file, int count) {
  Launch* launch = launch_of(open_library(file));
  if (launch == nullptr) return wrong("not loaded", 0);
  for (int i = 0; i < count; ++i) std::printf("rc %d\n", add(launch));
  if (hip() == nullptr) return 0;
  std::string text(symbol<size_t(char*, size_t)>(hip(), "hip_double_record")(nullptr, 0), 0);
  symbol<size_t(char*, size_t)>(hip(), "hip_double_record")(text.data(), text.size());
  std::printf("major %d\n%s", symbol<int()>(hip(), "hip_double_major")(), text.c_str());
  return 0;
}

int twice(const std::string& first, const std::string& second) {
  void* a = open_library(first);
  Launch *one = launch_of(a), *two = launch_of(open_library(second));
  if (one == nullptr || two == nullptr || one == two) return wrong("copies", 0);
  if (add(one) != hipSuccess || add(two) != hipSuccess) return wrong("calls", 0);
  if (calls("hipModuleLoadData") != 2) return wrong("loads", calls("hipModuleLoadData"));
  close_library(a);
  if (loaded_library(first.c_str()) != nullptr) return wrong("still loaded", 0);
  return add(two) == hipSuccess ? 0 : wrong("after the first is gone", 0);
}

int threads(Launch* launch, int count) {
  std::atomic<int> ready{0}, failed{0};
  std::vector<std::thread> all;
  for (int i = 0; i < count; ++i)
    all.emplace_back([&] {
      ++ready;
      while (ready != count) std::this_thread::yield();
      for (int j = 0; j < 50; ++j)
        if (add(launch) != hipSuccess) ++failed;
    });
  for (auto& one : all) one.join();
  if (failed != 0) return wrong("failed calls", failed);
  if (calls("hipModuleLoadData") != 1) return wrong("loads", calls("hipModuleLoadData"));
  return calls("hipModuleLaunchKernel") == 50L * count ? 0 : wrong("launches", calls("hipModuleLaunchKernel"));
}

// Wine counts neither handles nor memory; there the Linux process reports them.
unsigned long handles() {
  DWORD count = 0;
  GetProcessHandleCount(GetCurrentProcess(), &count);
  if (count != 0) return count;
  WIN32_FIND_DATAW found;
  const HANDLE search = FindFirstFileW(L"Z:\\proc\\self\\fd\\*", &found);
  if (search == INVALID_HANDLE_VALUE) return 0;
  do ++count;
  while (FindNextFileW(search, &found));
  FindClose(search);
  return count;
}

size_t in_use() {
  PROCESS_MEMORY_COUNTERS_EX counters = {};
  GetProcessMemoryInfo(GetCurrentProcess(), reinterpret_cast<PROCESS_MEMORY_COUNTERS*>(&counters), sizeof counters);
  if (counters.PrivateUsage != 0) return counters.PrivateUsage;
  size_t pages[6] = {};
  if (std::FILE* file = std::fopen("Z:\\proc\\self\\statm", "r")) {
    for (size_t& one : pages)
      if (std::fscanf(file, "%zu", &one) != 1) break;
    std::fclose(file);
  }
  return (pages[1] - pages[2]) * 4096;  // resident and not shared
}

int reload(const std::string& file, int count) {
  unsigned long early = 0;
  size_t memory = 0;
  for (int i = 0; i < count; ++i) {
    void* library = open_library(file);
    if (library == nullptr) return wrong("not loaded", i);
    // no launch: a launched kernel's module outlives the library by design
    if (launch_of(library)("nothing", nullptr, 0, AOTFORGE_HIP, nullptr) != hipErrorNotSupported) return wrong("call", i);
    const long before = calls("hipModuleUnload") + calls("hipSetDevice") + calls("hipGetDevice");
    if (!close_library(library) || loaded_library(file.c_str()) != nullptr) return wrong("still loaded", i);
    if (calls("hipModuleUnload") + calls("hipSetDevice") + calls("hipGetDevice") != before) return wrong("HIP at unload", i);
    if (i == 9) {
      early = handles();
      memory = in_use();
    }
  }
  std::printf("handles %lu then %lu, bytes %zu then %zu\n", early, handles(), memory, in_use());
  if (early == 0 || memory == 0) return wrong("nothing counts", 0);
  // Wine keeps some for later, a few more or less; a leak is one for each load
  if (handles() > early + static_cast<unsigned long>(count) / 4) return wrong("handles", static_cast<long>(handles() - early));
  return in_use() > memory + (768u << 10) ? wrong("growth", static_cast<long>(in_use() - memory)) : 0;
}

// Never joined: ExitProcess ends them wherever they are.
int busy(Launch* launch) {
  if (launch == nullptr || add(launch) != hipSuccess) return wrong("call", 0);
  for (int i = 0; i < 4; ++i)
    std::thread([launch] {
      for (;;) add(launch);
    }).detach();
  Sleep(50);
  return 0;
}

}  // namespace

int wmain(int count, wchar_t** words) {
  std::vector<std::string> all;
  for (int i = 1; i < count; ++i) all.push_back(narrow(words[i]));
  all.resize(3);
  const int number = all[2].empty() ? 1 : std::atoi(all[2].c_str());
  if (all[0] == "open") return open(all[1], number);
  if (all[0] == "twice") return twice(all[1], all[2]);
  if (all[0] == "threads") return threads(launch_of(open_library(all[1])), number);
  if (all[0] == "reload") return reload(all[1], number);
  if (all[0] == "busy") return busy(launch_of(open_library(all[1])));
  return wrong("no such mode", count);
}
