// What one process can do to the library besides calling it in order. Each mode exits 0 on success, else prints the reason.
//   threads N      N threads make the first call at once: every image loads once per device
//   memory         every allocation of a first call fails once, in turn: an error, and the next call succeeds
//   stateless HIP  no memory for the library's state while HIP is loaded: an error, also the thread's last one
//   fork           a child of a process that has used the library uses it too, while another thread is inside
//   race           two threads make the library's state at once: one of them is kept
//   forkinside LIB   fork while another thread is inside, holding locks: the child calls, and unloading frees what it made
//   unloadinside LIB dlclose while another thread is inside: its state is not freed
//   reload LIB N   dlopen, call, dlclose N times: no growth, and unloading calls no HIP
//   twice A B      two copies of the library in one process, each with its own images
#include <aotforge/launch.h>
#include <hip/hip_runtime.h>
#include <dirent.h>
#include <dlfcn.h>
#include <malloc.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

extern "C" void* __libc_malloc(size_t);

namespace {

std::atomic<long> g_fail_at{-1};
std::atomic<bool> g_armed{false};
thread_local bool t_counting = false;
constexpr int kNoState = -2;
std::atomic<int> g_racing{-1};                 // threads that allocate a state, while >= 0; kNoState: none may
constexpr size_t kStateLeast = 8192;           // the library's state is larger, all else that a first call makes first is smaller

using Launch = int(const char*, const aotforge_value*, size_t, int32_t, void*);

template <typename Signature>
Signature* symbol(void* library, const char* name) {
  void* address = dlsym(library, name);
  if (address == nullptr) {
    std::printf("no %s\n", name);
    std::exit(2);
  }
  return reinterpret_cast<Signature*>(address);
}

int add(Launch* launch, int n = 5000, hipStream_t stream = nullptr) {
  aotforge_value values[4] = {};
  const char* names[] = {"x", "y", "out", "n"};
  for (int i = 0; i < 4; ++i) values[i].name = names[i];
  for (int i = 0; i < 3; ++i) values[i].as.ptr = reinterpret_cast<void*>(static_cast<uintptr_t>(0x10000 * (i + 1)));
  values[3].type = AOTFORGE_I32;
  values[3].as.i32 = n;
  return launch("add", values, 4, AOTFORGE_HIP, stream);
}

int wrong(const char* what, long got) {
  std::printf("%s: %ld\n", what, got);
  return 1;
}

void* loaded_hip() {
  for (const char* file : {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"})
    if (void* hip = dlopen(file, RTLD_LAZY | RTLD_NOLOAD)) return hip;
  return nullptr;
}

long calls(const char* name) {
  void* hip = loaded_hip();
  return hip != nullptr ? symbol<long(const char*)>(hip, "hip_double_calls")(name) : -1;
}

int threads(int count) {
  std::atomic<int> ready{0}, failed{0};
  std::vector<std::thread> all;
  for (int i = 0; i < count; ++i)
    all.emplace_back([&] {
      ++ready;
      while (ready != count) std::this_thread::yield();
      for (int j = 0; j < 50; ++j)
        if (add(aotforge_launch) != hipSuccess) ++failed;
    });
  for (auto& one : all) one.join();
  if (failed != 0) return wrong("failed calls", failed);
  if (calls("hipModuleLoadData") != 1) return wrong("loads", calls("hipModuleLoadData"));
  if (calls("hipModuleLaunchKernel") != 50L * count) return wrong("launches", calls("hipModuleLaunchKernel"));
  return 0;
}

int memory(Launch* launch) {
  for (long at = 0; at < 10000; ++at) {
    g_fail_at = at;
    t_counting = true;
    g_armed = true;
    const int error = add(launch);
    g_armed = false;
    t_counting = false;
    if (g_fail_at >= 0) {
      std::printf("allocations %ld\n", at - g_fail_at);
      return at == 0 || error != hipSuccess ? wrong("last result", error) : 0;  // fewer allocations than `at`: all were tried
    }
    if (error == hipSuccess) continue;  // a spare allocation, as for a log line
    if (error != hipErrorOutOfMemory && error != hipErrorOperatingSystem && error != hipErrorSharedObjectInitFailed)
      return wrong("unexpected error", error);
  }
  return wrong("never ended", 0);
}

int stateless(const char* file) {
  void* hip = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
  if (hip == nullptr || calls("none") != 0) return wrong("no double", 0);
  g_racing = kNoState;
  const int error = add(aotforge_launch);
  g_racing = -1;
  if (error != hipErrorOutOfMemory) return wrong("unexpected error", error);
  if (symbol<int()>(hip, "hipGetLastError")() == hipSuccess) return wrong("no last error", error);
  return add(aotforge_launch) == hipSuccess ? 0 : wrong("afterwards", 0);
}

int fork_while_busy() {
  if (add(aotforge_launch) != hipSuccess) return wrong("before", 0);
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) add(aotforge_launch);
  });
  int bad = 0;
  for (int i = 0; i < 20 && bad == 0; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      _exit(add(aotforge_launch) == hipSuccess && add(aotforge_launch) == hipSuccess ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    bad = status;
  }
  stop = true;
  busy.join();
  return bad == 0 && add(aotforge_launch) == hipSuccess ? 0 : wrong("child", bad);
}

int race() {
  alarm(60);
  g_racing = 0;
  std::atomic<int> failed{0};
  std::vector<std::thread> both;
  for (int i = 0; i < 2; ++i)
    both.emplace_back([&] {
      if (add(aotforge_launch) != hipSuccess) ++failed;
    });
  for (auto& one : both) one.join();
  if (g_racing < 2) return wrong("states made", g_racing);
  if (failed != 0) return wrong("failed calls", failed);
  return calls("hipModuleLoadData") == 1 ? 0 : wrong("loads", calls("hipModuleLoadData"));
}

size_t in_use() { return mallinfo2().uordblks; }

// A thread inside `launch`: HIP_DOUBLE_DELAY keeps it in hipModuleLoadData, with the device's lock held.
void enter_and_stay(Launch* launch) {
  std::thread([launch] { add(launch); }).detach();
  while (calls("hipModuleLoadData") <= 0) std::this_thread::yield();
}

int fork_inside(const char* file) {
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return wrong(dlerror(), 0);
  auto* launch = symbol<Launch>(library, "aotforge_launch");
  enter_and_stay(launch);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a lock of the parent's is never released here
    if (launch("nothing", nullptr, 0, AOTFORGE_HIP, nullptr) != hipErrorNotSupported) _exit(2);
    const size_t before = in_use();
    if (dlclose(library) != 0) _exit(3);
    _exit(in_use() + kStateLeast <= before ? 0 : 4);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) wrong("child", status);
  std::fflush(stdout);
  _exit(status == 0 ? 0 : 1);  // the other thread is inside still
}

int unload_inside(const char* file) {
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return wrong(dlerror(), 0);
  enter_and_stay(symbol<Launch>(library, "aotforge_launch"));
  const size_t before = in_use();
  if (dlclose(library) != 0) return wrong("dlclose", 0);
  const bool freed = in_use() + kStateLeast <= before;
  if (freed) wrong("freed", static_cast<long>(before - in_use()));
  std::fflush(stdout);
  _exit(freed ? 1 : 0);
}

int open_files() {
  int count = 0;
  if (DIR* folder = opendir("/proc/self/fd")) {
    while (readdir(folder) != nullptr) ++count;
    closedir(folder);
  }
  return count;
}

int reload(const char* file, int count) {
  size_t early = 0;
  int files = 0;
  for (int i = 0; i < count; ++i) {
    void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return wrong(dlerror(), i);
    // no launch: a launched kernel's module outlives the library by design
    if (symbol<Launch>(library, "aotforge_launch")("nothing", nullptr, 0, AOTFORGE_HIP, nullptr) != hipErrorNotSupported) return wrong("call", i);
    const long before = calls("hipModuleUnload") + calls("hipSetDevice") + calls("hipGetDevice");
    if (dlclose(library) != 0) return wrong("dlclose", i);
    if (calls("hipModuleUnload") + calls("hipSetDevice") + calls("hipGetDevice") != before) return wrong("HIP at unload", i);
    if (dlopen(file, RTLD_NOW | RTLD_NOLOAD) != nullptr) return wrong("still loaded", i);
    if (i == 9) {
      early = in_use();
      files = open_files();
    }
  }
  const size_t late = in_use();
  std::printf("bytes %zu then %zu\n", early, late);
  if (open_files() != files) return wrong("open files", open_files() - files);
  return late > early + 4096 ? wrong("growth", static_cast<long>(late - early)) : 0;
}

int twice(const char* first, const char* second) {
  void* a = dlopen(first, RTLD_NOW | RTLD_GLOBAL);
  void* b = dlopen(second, RTLD_NOW | RTLD_GLOBAL);
  if (a == nullptr || b == nullptr || a == b) return wrong("copies", 0);
  auto* one = symbol<Launch>(a, "aotforge_launch");
  auto* two = symbol<Launch>(b, "aotforge_launch");
  if (one == two || add(one) != hipSuccess || add(two) != hipSuccess) return wrong("calls", 0);
  if (calls("hipModuleLoadData") != 2) return wrong("loads", calls("hipModuleLoadData"));
  dlclose(a);
  return add(two) == hipSuccess ? 0 : wrong("after the first is gone", 0);
}

}  // namespace

// The library's allocations come through here: its libstdc++ is its own, malloc is the process'.
extern "C" void* malloc(size_t size) {
  if (t_counting && g_armed && g_fail_at >= 0 && g_fail_at-- == 0) return nullptr;
  if (size >= kStateLeast && g_racing == kNoState) return nullptr;
  if (size >= kStateLeast && g_racing >= 0) {
    ++g_racing;
    while (g_racing < 2) sched_yield();
  }
  return __libc_malloc(size);
}

int main(int count, char** words) {
  const std::string mode = count > 1 ? words[1] : "";
  if (mode == "threads") return threads(std::atoi(words[2]));
  if (mode == "memory") return memory(aotforge_launch);
  if (mode == "stateless") return stateless(words[2]);
  if (mode == "fork") return fork_while_busy();
  if (mode == "race") return race();
  if (mode == "forkinside") return fork_inside(words[2]);
  if (mode == "unloadinside") return unload_inside(words[2]);
  if (mode == "reload") return reload(words[2], std::atoi(words[3]));
  if (mode == "twice") return twice(words[2], words[3]);
  return wrong("no such mode", 0);
}
