#include "world.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "queue.h"
#include "visible.h"

namespace virtual_hip {
namespace {

const Target kTargets[] = {
#define TARGET(arch, features, name, products, cus, gib, lanes, lds, major, minor) \
  {arch, features, name, products, cus, gib, lanes, lds, major, minor},
#include "targets.def"
#undef TARGET
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

uint64_t number(const char* name, uint64_t otherwise) {
  const std::string value = setting(name, "");
  return value.empty() ? otherwise : std::strtoull(value.c_str(), nullptr, 0);
}

// A list in a setting, whose parts are separated by semicolons.
std::string list(const char* name, const char* otherwise) {
  std::string text = setting(name, otherwise);
  std::replace(text.begin(), text.end(), ';', ',');
  return text;
}

// "GFX908", "MI100", "AMD Radeon RX 7900 XTX": as Python's find_arch.
const Target* target_of(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const char* ignored : {"amd", "radeon", "instinct", "graphics", " ", "-", "_"})
    for (size_t at; (at = name.find(ignored)) != std::string::npos;) name.erase(at, std::strlen(ignored));
  if (name.empty()) return nullptr;
  for (const Target& target : kTargets)
    if (name == target.arch || std::strstr(target.products, (" " + name + " ").c_str()) != nullptr ||
        std::strstr(target.products, (" rx" + name + " ").c_str()) != nullptr)
      return &target;
  return nullptr;
}

int log_level(const std::string& name) {
  return name == "off" ? 0 : name == "info" || name == "debug" ? 2 : 1;
}

unsigned processors() {
  cpu_set_t set;
  const int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return count > 0 ? static_cast<unsigned>(count) : 1;
}

}  // namespace

std::string setting(const char* name, const char* otherwise) {
  const char* text = std::getenv("AOTFORGE_VIRTUAL");
  std::string value = otherwise;
  const std::string key = std::string(name) + "=";
  for (const std::string& part : split(text != nullptr ? text : "", ','))
    if (part.compare(0, key.size(), key) == 0) value = part.substr(key.size());
  return value;
}

World::World() {
  settings.log = log_level(setting("log", "error"));
  settings.threads = static_cast<unsigned>(number("threads", processors()));
  if (settings.threads == 0) settings.threads = 1;
  settings.seed = number("seed", 1);
  settings.schedule = number("schedule", 0);
  settings.limit = number("limit", 0);
  settings.lazy = setting("order", "eager") == "lazy";
  settings.counted = setting("clock", "machine") == "instructions";
  settings.checks = number("checks", 0) != 0;
  settings.record = setting("record", "");
  add_devices(list("devices", "gfx908"));
  keep_visible_devices();
  fail_from(list("fail", ""));
}

// "gfx908,gfx942@40,gfx90a:xnack+": arch or product, features and compute units if not the product's; "none" for no device.
void World::add_devices(const std::string& list) {
  if (list == "none") return;
  for (const std::string& text : split(list, ',')) {
    const std::string full = text.substr(0, text.find('@')), arch = full.substr(0, full.find(':'));
    const Target* target = target_of(arch);
    if (target == nullptr) {
      std::string known;
      for (const Target& one : kTargets) known += std::string(" ") + one.arch;
      if (settings.log > 0)
        std::fprintf(stderr, "virtual HIP: AOTFORGE_VIRTUAL=devices=...: unknown arch %s; known:%s\n", arch.c_str(), known.c_str());
      continue;
    }
    auto device = std::make_unique<Device>();
    device->target = target;
    device->number = static_cast<int>(devices.size());
    device->arch_name = target->arch + (full == arch ? target->features : full.substr(arch.size()));
    const size_t at = text.find('@');
    device->compute_units = at != std::string::npos ? std::atoi(text.c_str() + at + 1) : target->compute_units;
    devices.push_back(std::move(device));
  }
}

void World::keep_visible_devices() {
  std::vector<std::string> uuids;
  for (const auto& device : devices) uuids.push_back(uuid_of(device->number));
  std::vector<std::unique_ptr<Device>> visible;
  for (const size_t number : visible_devices(uuids)) {
    null_streams.push_back(std::make_unique<Stream>());
    null_streams.back()->device = static_cast<int>(visible.size());
    visible.push_back(std::move(devices[number]));
  }
  devices = std::move(visible);
}

// "hipModuleLoadData:2:719,hipMalloc:0:2": call, which one (0: all), error
void World::fail_from(const std::string& specification) {
  for (const std::string& one : split(specification, ',')) {
    const auto parts = split(one, ':');
    if (parts.size() == 3) failures.push_back({parts[0], std::atol(parts[1].c_str()), std::atoi(parts[2].c_str())});
  }
}

int World::injected(const char* call) {
  const std::lock_guard<std::mutex> guard(lock);
  int error = kSuccess;
  for (Failure& failure : failures) {
    if (failure.call != call) continue;
    if (failure.nth == 0) error = failure.error;
    if (failure.nth > 0 && --failure.nth == 0) {
      error = failure.error;
      failure.nth = -1;  // happened
    }
  }
  return error;
}

std::vector<Allocation> World::visible(int device) {
  const std::lock_guard<std::mutex> guard(lock);
  std::vector<Allocation> found;
  for (const auto& [base, one] : allocations)
    if (one.kind != Kind::device || one.device == device) found.push_back(one);
  return found;
}

const Allocation* World::find(uint64_t address) const {
  auto after = allocations.upper_bound(address);
  if (after == allocations.begin()) return nullptr;
  const Allocation& one = std::prev(after)->second;
  return address - one.base < one.size ? &one : nullptr;
}

World& world() {
  // never destroyed: calls may come while the process ends
  static World* const instance = [] {
    auto* made = new World;
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
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

Stream* resolve(Stream* stream) {
  World& w = world();
  const auto legacy = reinterpret_cast<Stream*>(uintptr_t{1}), per_thread = reinterpret_cast<Stream*>(uintptr_t{2});
  if (stream == per_thread && !w.settings.lazy) {
    thread_local Stream own;
    own.device = current_device();
    return w.devices.empty() ? nullptr : &own;
  }
  if (stream == nullptr || stream == legacy || stream == per_thread) {
    const auto device = static_cast<size_t>(current_device());
    return device < w.null_streams.size() ? w.null_streams[device].get() : nullptr;
  }
  const std::lock_guard<std::mutex> guard(w.lock);
  return w.streams.count(stream) != 0 ? stream : nullptr;
}

std::string uuid_of(int number) {
  char text[24];
  std::snprintf(text, sizeof text, "GPU-76677075%08x", static_cast<unsigned>(number));
  return text;
}

namespace {
std::mutex report_lock;
std::string& kept_report() {
  static auto* const text = new std::string;
  return *text;
}
}  // namespace

void print_log(int level, const std::string& text) {
  if (world().settings.log < level) return;
  const std::string line = "virtual HIP: " + text + "\n";
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

void report(const std::string& text) {
  {
    const std::lock_guard<std::mutex> guard(report_lock);
    kept_report() = text;
  }
  print_log(1, text);
}

std::string last_report() {
  const std::lock_guard<std::mutex> guard(report_lock);
  return kept_report();
}

void note(const std::string& json) {
  const std::string& path = world().settings.record;
  if (path.empty()) return;
  const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  const std::string line = json + "\n";
  if (file < 0 || ::write(file, line.data(), line.size()) < 0) print_log(1, "cannot write record=" + path + ": " + std::strerror(errno));
  if (file >= 0) ::close(file);
}

}  // namespace virtual_hip
