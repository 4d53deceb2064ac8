#include "launch_record.h"

#include <cstdint>
#include <cstdio>
#include <cstring>

namespace hip_double {
namespace {

constexpr int kInvalidValue = 1, kInvalidConfiguration = 9;

std::string quoted(const std::string& text) { return '"' + text + '"'; }  // names of kernels and archs: nothing to escape

std::string numbers(const unsigned* values) {
  return '[' + std::to_string(values[0]) + ',' + std::to_string(values[1]) + ',' + std::to_string(values[2]) + ']';
}

// Little-endian bytes as hexadecimal, first byte first.
std::string hexadecimal(const void* bytes, size_t size) {
  std::string text;
  char pair[3];
  for (size_t i = 0; i < size; ++i) {
    std::snprintf(pair, sizeof pair, "%02x", static_cast<const unsigned char*>(bytes)[i]);
    text += pair;
  }
  return text;
}

unsigned lds_limit(const std::string& target) { return target.find("gfx950") != std::string::npos ? 160 * 1024 : 64 * 1024; }

bool fits_device(const Function& function, const Launch& launch) {
  const uint64_t threads = uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];
  if (threads == 0 || threads > function.kernel->max_threads) return false;
  for (int i = 0; i < 3; ++i)
    if (launch.grid[i] == 0 || uint64_t{launch.grid[i]} * launch.block[i] > UINT32_MAX) return false;
  if (launch.grid[1] > 65536 || launch.grid[2] > 65536) return false;
  return function.kernel->lds_bytes + launch.lds <= lds_limit(function.module->object.target);
}

}  // namespace

std::string fingerprint(const void* bytes, size_t size) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (size_t i = 0; i < size; ++i) hash = (hash ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001b3ULL;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::string describe_load(const Module& module) {
  return "{\"event\":\"load\",\"device\":" + std::to_string(module.device) + ",\"target\":" + quoted(module.object.target) +
         ",\"image\":" + quoted(module.digest) + ",\"size\":" + std::to_string(module.object.size) + "}";
}

int check_and_record(const Function& function, const Launch& launch) {
  if (!fits_device(function, launch)) return kInvalidConfiguration;
  if (launch.extra != nullptr) return kInvalidValue;
  std::string arguments;
  size_t index = 0;
  for (const Argument& argument : function.kernel->arguments) {
    if (argument.kind.rfind("hidden_", 0) == 0) continue;
    const void* value = launch.parameters != nullptr ? launch.parameters[index++] : nullptr;
    if (value == nullptr) return kInvalidValue;
    if (!arguments.empty()) arguments += ',';
    arguments += "{\"kind\":" + quoted(argument.kind) + ",\"offset\":" + std::to_string(argument.offset) +
                 ",\"bytes\":" + quoted(hexadecimal(value, argument.size)) + "}";
  }
  world().note("{\"event\":\"launch\",\"device\":" + std::to_string(launch.device) + ",\"kernel\":" +
               quoted(function.kernel->symbol) + ",\"image\":" + quoted(function.module->digest) + ",\"grid\":" +
               numbers(launch.grid) + ",\"block\":" + numbers(launch.block) + ",\"dynamic_lds\":" +
               std::to_string(launch.lds) + ",\"static_lds\":" + std::to_string(function.kernel->lds_bytes) +
               ",\"arguments\":[" + arguments + "]}");
  return 0;
}

int count_quiet_launch() {
  static std::atomic<long> launches{0};
  launches.fetch_add(1, std::memory_order_relaxed);
  return 0;
}

}  // namespace hip_double
