// The virtual devices of a process: settings from the environment, memory, streams, modules, injected failures.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "serve_abi.h"

namespace virtual_hip {

// hipError_t, as in HIP's public headers (the same numbers in releases 5 to 7).
enum Error : int {
  kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kInvalidConfiguration = 9, kInvalidDevicePointer = 17, kInvalidMemcpyDirection = 21,
  kInvalidDeviceFunction = 98, kNoDevice = 100, kInvalidDevice = 101, kInvalidImage = 200, kNoBinary = 209, kFileNotFound = 301,
  kInitFailed = 303, kOperatingSystem = 304, kInvalidHandle = 400, kNotFound = 500, kNotReady = 600, kIllegalAddress = 700,
  kLaunchTimeOut = 702, kAlreadyRegistered = 712, kNotRegistered = 713, kLaunchFailure = 719, kNotSupported = 801, kUnknown = 999
};

// A row of targets.def, which the build generates from manifests/architectures.yaml.
struct Target {
  const char *arch, *features, *name;
  const char* products;  // " mi210 mi250 ": lower case, without the maker and spaces
  int compute_units;
  uint64_t memory_gib;
  int lanes;
  unsigned lds_bytes;
  int major, minor;
};

struct Device {
  const Target* target;
  std::string arch_name;  // as gcnArchName
  int number;             // of all devices, also of those that the process does not see
  int compute_units;
  uint64_t used = 0;           // bytes allocated; the world's lock
  std::atomic<int> failed{0};  // a kernel's fault: what every later call returns
  std::atomic<uint64_t> executed{0};  // wave-instructions of all launches
};

enum class Kind { device, host, managed, registered };

struct Allocation {
  uint64_t base, size;
  int device;
  Kind kind;
  unsigned flags;
  uint64_t number;  // the how manyth allocation, for messages
  std::shared_ptr<std::vector<uint8_t>> unset;  // with checks on: by byte, SERVE_UNSET until something has been stored there
};

struct Stream {
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  std::mutex order;                                                // one operation at a time
  std::deque<std::pair<uint64_t, std::function<void()>>> waiting;  // in lazy order: what has been submitted, with its number
};

struct Event {
  bool recorded = false, done = false;
  Stream* stream = nullptr;
  uint64_t number = 0;  // of its record in the stream
  std::chrono::steady_clock::time_point when;
};

class Program;

struct Module {
  int device;
  std::shared_ptr<Program> program;
};

struct Function {
  Module* module;
};

struct Failure {
  std::string call;
  long nth;  // the nth call from now on fails, 1 is the next; 0: every one
  int error;
};

struct Settings {
  int log = 1;  // 0 off, 1 errors, 2 loads and launches
  unsigned threads = 1;
  uint64_t seed = 1, schedule = 0, limit = 0;  // limit 0: the emulator's default
  bool lazy = false;                           // queue.h
  bool counted = false;                        // times of events are wave-instructions of the device, a nanosecond each
  bool checks = false;                         // beside bounds: waits, races, barriers, uninitialised data
  std::string record;
};

class World {
 public:
  World();
  std::mutex lock;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<Stream>> null_streams;  // one per device
  std::set<Stream*> streams;
  std::set<Event*> events;
  std::map<Module*, std::unique_ptr<Module>> modules;
  std::map<Function*, std::unique_ptr<Function>> functions;
  std::map<uint64_t, Allocation> allocations;  // by base
  uint64_t allocated = 0;                      // ever, for Allocation::number
  std::vector<Failure> failures;
  Settings settings;

  // The error to inject into `call`, or 0.
  int injected(const char* call);
  void fail_from(const std::string& specification);
  bool has(int device) const { return device >= 0 && static_cast<size_t>(device) < devices.size(); }
  // What kernels of a device may touch. The lock is not held by the caller.
  std::vector<Allocation> visible(int device);
  const Allocation* find(uint64_t address) const;  // the lock is held

 private:
  void add_devices(const std::string& list);
  void keep_visible_devices();
};

World& world();
std::string uuid_of(int number);   // "GPU-" and 16 hexadecimal digits
int& current_device();       // of this thread
int& last_error();           // of this thread
Stream* resolve(Stream* stream);  // null, hipStreamLegacy and hipStreamPerThread become streams of their own; nullptr: unknown

// The value of `name` in AOTFORGE_VIRTUAL=name=value,...; the last one counts.
std::string setting(const char* name, const char* otherwise);
void print_log(int level, const std::string& text);        // one line or more on stderr, at this level of `log`
void report(const std::string& text);                // an error: kept for aotforge_virtual_report, and logged
std::string last_report();
void note(const std::string& json);                  // a line of the record

// The frame of an entry point: injected failures, the last error, exceptions.
template <typename Body>
int entry(const char* name, Body body) noexcept {
  int result = kUnknown;
  try {
    result = world().injected(name);
    if (result == kSuccess) result = body();
  } catch (const std::bad_alloc&) {
    result = kOutOfMemory;
  } catch (...) {
  }
  if (VIRTUAL_HIP_MAJOR < 6 || result != kSuccess) last_error() = result;
  return result;
}

// The same for calls that need the current device: without one kNoDevice, after a kernel's fault that error.
template <typename Body>
int device_entry(const char* name, Body body) noexcept {
  return entry(name, [&]() -> int {
    if (world().devices.empty()) return kNoDevice;
    const int failed = world().devices[static_cast<size_t>(current_device())]->failed;
    return failed != kSuccess ? failed : body();
  });
}

}  // namespace virtual_hip

#define HIP_API extern "C" __attribute__((visibility("default")))
