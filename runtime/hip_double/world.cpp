#include "world.h"

#ifndef _WIN32
#include <pthread.h>
#endif

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <thread>

namespace hip_double {
namespace {

std::string environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

// Several processes may write to one file: each piece is one write.
void append(const std::string& path, const void* bytes, size_t size) {
  std::FILE* file = std::fopen(path.c_str(), "ab");
  if (file == nullptr) return;
  // a test must not pass on a record it cannot read
  if (std::setvbuf(file, nullptr, _IOFBF, size) != 0 || std::fwrite(bytes, 1, size, file) != size || std::fclose(file) != 0) std::abort();
}

}  // namespace

// HIP_DOUBLE_DEVICES   "gfx908:sramecc+:xnack-@120,gfx90a@104", "none" for no device
// HIP_DOUBLE_RECORD    file that a JSON line per module load and launch is appended to
// HIP_DOUBLE_MODULES   folder that gets the bytes of every loaded module, under its fingerprint
// HIP_DOUBLE_FAIL      "hipModuleLoadData:2:719,hipGetDevice:0:101": call, which one (0: all), error
// HIP_DOUBLE_STREAM_DEVICE  device number of every stream, valid or not
// HIP_DOUBLE_DELAY     "hipModuleLoadData:50000": call, microseconds
World::World() {
  const std::string list = environment("HIP_DOUBLE_DEVICES", "gfx908:sramecc+:xnack-@120");
  if (list != "none")
    for (const std::string& entry : split(list, ',')) {
      const size_t at = entry.find('@');
      FakeDevice device;
      device.name = entry.substr(0, at);
      if (at != std::string::npos) device.compute_units = std::atoi(entry.c_str() + at + 1);
      devices.push_back(device);
    }
  record_path = environment("HIP_DOUBLE_RECORD", "");
  modules_path = environment("HIP_DOUBLE_MODULES", "");
  if (const std::string number = environment("HIP_DOUBLE_STREAM_DEVICE", ""); !number.empty()) {
    fixed_stream_device = true;
    stream_device = std::atoi(number.c_str());
  }
  fail_from(environment("HIP_DOUBLE_FAIL", ""));
  for (const std::string& entry : split(environment("HIP_DOUBLE_DELAY", ""), ',')) {
    const auto parts = split(entry, ':');
    if (parts.size() == 2) delays[parts[0]] = std::atol(parts[1].c_str());
  }
}

void World::fail_from(const std::string& specification) {
  for (const std::string& entry : split(specification, ',')) {
    const auto parts = split(entry, ':');
    if (parts.size() == 3) failures.push_back({parts[0], std::atol(parts[1].c_str()), std::atoi(parts[2].c_str())});
  }
}

int World::enter(const char* name) {
  long delay = 0;
  int error = 0;
  {
    const std::lock_guard<std::mutex> guard(lock);
    ++calls[name];
    if (const auto found = delays.find(name); found != delays.end()) delay = found->second;
    for (Failure& failure : failures) {
      if (failure.call != name) continue;
      if (failure.nth == 0) error = failure.error;
      if (failure.nth > 0 && --failure.nth == 0) {
        error = failure.error;
        failure.nth = -1;  // happened
      }
    }
  }
  if (delay > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay));
  return error;
}

void World::note(const std::string& line) {
  if (!recording) return;
  record.push_back(line);
  if (record_path.empty()) return;
  append(record_path, (line + "\n").data(), line.size() + 1);
}

void World::keep_module(const std::string& digest, const void* image, size_t size) {
  if (!modules_path.empty()) append(modules_path + "/" + digest, image, size);
}

World& world() {
  // never destroyed: calls may come while the process ends. A fork waits for calls in other threads, so that the child's copy
  // is complete.
  static World* const instance = [] {
    auto* made = new World;
#ifndef _WIN32
    pthread_atfork([] { world().lock.lock(); }, [] { world().lock.unlock(); }, [] { world().lock.unlock(); });
#endif
    return made;
  }();
  return *instance;
}

int& current_device() {
  thread_local int device = 0;
  return device;
}

int& last_error() {
  thread_local int error = 0;
  return error;
}

}  // namespace hip_double
