// One GPU: its arch, the pack that serves it, and the kernels loaded so far.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "device_api.h"
#include "operators.h"
#include "pack.h"

namespace aotforge {

class Device {
 public:
  // `pack` serves `arch`, which is that of `api`'s device `ordinal`. Throws std::bad_alloc only.
  Device(const DeviceApi& api, int ordinal, std::string arch, Pack& pack);
  // Frees our memory, never calls the driver: at exit or dlclose it may be gone already. Modules stay loaded, with the images they
  // were made from, because the driver may still refer to those.
  ~Device();

  const DeviceApi& api() const { return api_; }
  // AOTRITON_LOG was debug when the device was first used: launches are too frequent to read it each time.
  bool logs_calls() const { return logs_calls_; }
  const std::string& arch() const { return arch_; }
  uint16_t arch_index() const { return arch_index_; }
  const Dispatch& dispatch() const { return pack_.dispatch(); }

  // Index of a served operator in the pack. hipErrorNotSupported: the pack has none; hipErrorInvalidSource: its interface is not
  // this library's (one log line with both hashes).
  hipError_t served(Served which, int* index) const;

  // The kernel of a slot, loaded on first use; this device is current. Concurrent first calls load once; failures are not kept.
  hipError_t function(uint32_t slot, FunctionHandle* out) {
    *out = functions_[slot].load(std::memory_order_acquire);
    return *out != nullptr ? hipSuccess : load(slot, out);
  }

 private:
  struct Module {
    ModuleHandle handle = nullptr;
    std::vector<uint8_t> image;
  };

  hipError_t load(uint32_t slot, FunctionHandle* out);
  hipError_t module(const Slot& slot, ModuleHandle* out);

  const DeviceApi& api_;
  const int ordinal_;
  const bool logs_calls_;
  std::string arch_;
  Pack& pack_;
  uint16_t arch_index_;
  int served_[kServedCount];  // index, -1: absent, -2: another interface
  std::unique_ptr<std::atomic<FunctionHandle>[]> functions_;
  std::mutex mutex_;  // guards modules_
  std::map<std::pair<uint16_t, uint32_t>, std::unique_ptr<Module>> modules_;
};

}  // namespace aotforge
