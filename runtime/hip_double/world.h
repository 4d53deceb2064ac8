// The double's devices, streams, modules and record. One per process; every HIP call takes its lock.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "code_object.h"

namespace hip_double {

struct FakeDevice {
  std::string name;  // as gcnArchName: "gfx908:sramecc+:xnack-"
  int compute_units = 120;
};

struct Stream {
  int device;
};

struct Module {
  int device;
  CodeObject object;
  std::string digest;  // FNV-1a over the image, to distinguish images in the record
};

struct Function {
  const Module* module;
  const KernelInfo* kernel;
};

struct Failure {
  std::string call;
  long nth;  // the nth call from now on fails, 1 is the next; 0: every one
  int error;
};

struct World {
  std::mutex lock;
  std::vector<FakeDevice> devices;
  std::set<Stream*> streams;
  std::map<Module*, std::unique_ptr<Module>> modules;
  std::map<Function*, std::unique_ptr<Function>> functions;
  std::map<std::string, long> calls;
  std::map<std::string, long> delays;  // call to microseconds
  std::vector<Failure> failures;
  std::vector<std::string> record;     // JSON lines
  std::string record_path, modules_path;
  bool recording = true;
  bool fixed_stream_device = false;    // every stream is on device `stream_device`
  int stream_device = 0;
  std::atomic<bool> quiet{false};      // benchmarks: count launches only

  World();
  // Count a call of `name`; the requested error, or 0. Sleeps when a delay was requested.
  int enter(const char* name);
  void note(const std::string& line);
  void keep_module(const std::string& digest, const void* image, size_t size);
  void fail_from(const std::string& specification);
};

World& world();
int& current_device();  // of this thread
int& last_error();      // of this thread

}  // namespace hip_double
