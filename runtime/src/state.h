// What the library keeps between calls, and the gate that every public call goes through.
#pragma once

#include <chrono>
#include <exception>
#include <new>
#include <utility>

#include "cpu_api.h"
#include "cuda_api.h"
#include "device.h"
#include "hip_api.h"
#include "system.h"

namespace aotforge {

constexpr int kMaxDevices = 1024;

class State {
 public:
  // HIP, looked up on first use. hipErrorSharedObjectInitFailed and the like when it is not there (tried again next time).
  hipError_t hip(const HipApi** out);

  // HIP when it is known or loaded already, else null. Logs nothing.
  const HipApi* hip_if_loaded();

  // What an earlier call found out about a HIP device, else null.
  const Device* known_device(int ordinal) const {
    const auto& devices = devices_[static_cast<unsigned>(Api::hip)];
    return ordinal < 0 || ordinal >= kMaxDevices ? nullptr : devices[ordinal].load(std::memory_order_acquire);
  }

  // The device that `stream` of `api` runs on, with a pack that serves it. `ordinal` may be null.
  hipError_t device(Api api, StreamHandle stream, Device** out, int* ordinal = nullptr);
  hipError_t device(hipStream_t stream, Device** out, int* ordinal = nullptr) {
    return device(Api::hip, static_cast<StreamHandle>(stream), out, ordinal);
  }

 private:
  // Remembers for a moment that no pack serves an arch, so that programs may query often.
  struct Absence {
    std::string arch, images;
    FolderTime changed;
    std::chrono::steady_clock::time_point noticed;
  };

  const HipApi* keep(const HipApi& found);
  hipError_t cuda(const CudaApi** out);
  hipError_t cpu(const CpuApi** out);
  hipError_t find_api(Api api, const DeviceApi** out);
  hipError_t make_device(Api which, const DeviceApi& api, int ordinal, Device** out);
  hipError_t pack_for(const std::vector<std::string>& archs, Pack** out, std::string* arch);
  bool still_absent(const std::string& arch, const std::string& images, const FolderTime& changed) const;

  std::mutex mutex_;  // guards what follows; the atomics publish what it guarded
  HipApi hip_;
  std::atomic<const HipApi*> hip_ready_{nullptr};
  CudaApi cuda_;
  std::atomic<const CudaApi*> cuda_ready_{nullptr};
  CpuApi cpu_;
  std::atomic<const CpuApi*> cpu_ready_{nullptr};
  std::vector<std::unique_ptr<Pack>> packs_;
  std::vector<std::unique_ptr<Device>> owned_;
  Absence absence_;
  std::atomic<Device*> devices_[kApiCount][kMaxDevices] = {};
};

// Frees everything but what calls in other threads still use: the process lets go of the library.
void unload();

// Marks a call as inside the library during its lifetime: dlclose frees the state only when no call is inside. A forked child gets a
// state of its own, because locks and handles of the parent mean nothing there.
class Entry {
 public:
  Entry();
  ~Entry();
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
  State& state() { return *state_; }

 private:
  State* state_ = nullptr;
};

// Run `body(State&)`. Nothing of ours is thrown further: no memory becomes hipErrorOutOfMemory. What a caller's own callback
// throws (LazyTensor) passes through.
template <typename Body>
hipError_t guarded(Body&& body) {
  try {
    Entry entry;
    return body(entry.state());
  } catch (const std::bad_alloc&) {
    return hipErrorOutOfMemory;
  }
}

// The result of an entry point that does something. HIP's convention: a failed call leaves the thread's last error set, so that
// callers who drop the result (PyTorch 2.9 to 2.12 do) throw at their next launch check instead of using what was never written.
hipError_t announced(hipError_t result);

}  // namespace aotforge
