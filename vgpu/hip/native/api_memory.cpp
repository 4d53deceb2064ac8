// Memory. A device's memory is the process's own: one address space, as with HIP's unified addressing. Allocations have the requested size and not a byte
// more to kernels, and start as bytes 0xff, which are NaN in every floating-point type.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "queue.h"
#include "serve_abi.h"

using namespace virtual_hip;

namespace {

constexpr uint64_t kAlignment = 256, kFilled = uint64_t{1} << 28;  // larger allocations are left as the system gives them: zeros
constexpr int kKinds = 5;                                           // hipMemcpyHostToHost 0 to hipMemcpyDefault 4
constexpr unsigned kMemoryManaged = 3;

int allocate(void** out, uint64_t size, Kind kind, unsigned flags) {
  if (out == nullptr) return kInvalidValue;
  *out = nullptr;
  if (size == 0) return kSuccess;
  World& w = world();
  const int number = current_device();
  Device& device = *w.devices[static_cast<size_t>(number)];
  const uint64_t limit = device.target->memory_gib << 30;
  if (size > limit) return kOutOfMemory;
  void* memory = std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment);
  if (memory == nullptr) return kOutOfMemory;
  const std::lock_guard<std::mutex> guard(w.lock);
  if (kind == Kind::device && (device.used + size > limit)) {
    std::free(memory);
    return kOutOfMemory;
  }
  if (size <= kFilled) std::memset(memory, 0xff, size);
  if (kind == Kind::device) device.used += size;
  const auto base = reinterpret_cast<uint64_t>(memory);
  std::shared_ptr<std::vector<uint8_t>> unset;  // the host writes into its own memory unseen: only the device's is watched
  if (w.settings.checks && kind == Kind::device) unset = std::make_shared<std::vector<uint8_t>>(size, SERVE_UNSET);
  w.allocations[base] = {base, size, number, kind, flags, w.allocated++, std::move(unset)};
  *out = memory;
  return kSuccess;
}

int release(void* memory, bool host) {
  if (memory == nullptr) return kSuccess;
  World& w = world();
  const std::lock_guard<std::mutex> guard(w.lock);
  const auto found = w.allocations.find(reinterpret_cast<uint64_t>(memory));
  if (found == w.allocations.end() || found->second.kind == Kind::registered) return kInvalidValue;
  if (host != (found->second.kind == Kind::host)) return kInvalidValue;
  if (found->second.kind == Kind::device) w.devices[static_cast<size_t>(found->second.device)]->used -= found->second.size;
  w.allocations.erase(found);
  std::free(memory);
  return kSuccess;
}

// Whether `size` bytes at `at` are one allocation's, when the pointer is known at all; memory that HIP does not know is the host's.
bool inside(const void* at, uint64_t size, bool must_be_known) {
  World& w = world();
  const std::lock_guard<std::mutex> guard(w.lock);
  const auto address = reinterpret_cast<uint64_t>(at);
  const Allocation* found = w.find(address);
  if (found == nullptr) return !must_be_known;
  return size <= found->size - (address - found->base);
}

// Whether the host may not touch this memory before it waits: all but pageable memory, which HIP copies to and from before it returns.
bool known(const void* at) {
  const std::lock_guard<std::mutex> guard(world().lock);
  return world().find(reinterpret_cast<uint64_t>(at)) != nullptr;
}

// The state of `size` bytes at an address that checks know, or null.
uint8_t* state_of(const void* at) {
  const auto address = reinterpret_cast<uint64_t>(at);
  const Allocation* found = world().find(address);
  return found != nullptr && found->unset ? found->unset->data() + (address - found->base) : nullptr;
}

// What a copy (`from`) or a fill (no `from`) stores has the state of where it comes from.
void mark(void* to, const void* from, uint64_t size) {
  if (!world().settings.checks) return;
  const std::lock_guard<std::mutex> guard(world().lock);
  uint8_t* target = state_of(to);
  if (target == nullptr) return;
  const uint8_t* source = from != nullptr ? state_of(from) : nullptr;
  if (source != nullptr) {
    std::memmove(target, source, size);
  } else {
    std::memset(target, 0, size);
  }
}

int copy(void* to, const void* from, uint64_t size, int kind, Stream* stream, bool wait) {
  if (size == 0) return kSuccess;
  if (to == nullptr || from == nullptr) return kInvalidValue;
  if (kind < 0 || kind >= kKinds) return kInvalidMemcpyDirection;
  const bool to_device = kind == 1 || kind == 3, from_device = kind == 2 || kind == 3;
  if (!inside(to, size, to_device) || !inside(from, size, from_device)) {
    report("a copy of " + std::to_string(size) + " bytes leaves its allocation, or a device pointer of it is none");
    return kInvalidValue;
  }
  Stream* order = resolve(stream);
  if (order == nullptr) return kInvalidHandle;
  submit(order, [=] {
    std::memmove(to, from, size);
    mark(to, from, size);
  });
  if (wait || !known(to) || !known(from)) drain(order);
  return world().devices[static_cast<size_t>(order->device)]->failed;
}

int fill(void* to, int value, uint64_t size, Stream* stream, bool wait) {
  if (size == 0) return kSuccess;
  if (to == nullptr || !inside(to, size, true)) return kInvalidValue;
  Stream* order = resolve(stream);
  if (order == nullptr) return kInvalidHandle;
  submit(order, [=] {
    std::memset(to, value, size);
    mark(to, nullptr, size);
  });
  if (wait) drain(order);
  return world().devices[static_cast<size_t>(order->device)]->failed;
}

// Frees once no work of any stream can touch it.
int release_after_all(void* memory, bool host) {
  for (size_t device = 0; device < world().devices.size(); ++device) drain_device(static_cast<int>(device));
  return release(memory, host);
}

int release_in_order(void* memory, Stream* stream) {
  if (memory == nullptr) return kSuccess;
  Stream* order = resolve(stream);
  if (order == nullptr) return kInvalidHandle;
  if (!known(memory)) return kInvalidValue;
  submit(order, [=] { (void)release(memory, false); });
  return kSuccess;
}

struct PointerAttributes {  // hipPointerAttribute_t
  int type, device;
  void *device_pointer, *host_pointer;
  int managed;
  unsigned flags;
};

int pointer_attributes(PointerAttributes* out, const void* pointer) {
  if (out == nullptr || pointer == nullptr) return kInvalidValue;
  World& w = world();
  const std::lock_guard<std::mutex> guard(w.lock);
  const Allocation* found = w.find(reinterpret_cast<uint64_t>(pointer));
  *out = {};
  if (found == nullptr) return kInvalidValue;
  const bool device = found->kind == Kind::device, managed = found->kind == Kind::managed;
#if VIRTUAL_HIP_MAJOR >= 6
  out->type = managed ? static_cast<int>(kMemoryManaged) : device ? 2 : 1;
#else
  out->type = device || managed ? 1 : 0;
#endif
  out->device = found->device;
  out->device_pointer = const_cast<void*>(pointer);
  out->host_pointer = device ? nullptr : const_cast<void*>(pointer);
  out->managed = managed;
  out->flags = found->flags;
  return kSuccess;
}

}  // namespace

HIP_API int hipMalloc(void** out, size_t size) {
  return device_entry("hipMalloc", [&] { return allocate(out, size, Kind::device, 0); });
}
HIP_API int hipMallocAsync(void** out, size_t size, Stream*) {
  return device_entry("hipMallocAsync", [&] { return allocate(out, size, Kind::device, 0); });
}
HIP_API int hipMallocManaged(void** out, size_t size, unsigned flags) {
  return device_entry("hipMallocManaged", [&] { return allocate(out, size, Kind::managed, flags); });
}
HIP_API int hipHostMalloc(void** out, size_t size, unsigned flags) {
  return device_entry("hipHostMalloc", [&] { return allocate(out, size, Kind::host, flags); });
}
HIP_API int hipFree(void* memory) {
  return entry("hipFree", [&] { return release_after_all(memory, false); });
}
HIP_API int hipFreeAsync(void* memory, Stream* stream) {
  return entry("hipFreeAsync", [&] { return release_in_order(memory, stream); });
}
HIP_API int hipHostFree(void* memory) {
  return entry("hipHostFree", [&] { return release_after_all(memory, true); });
}

HIP_API int hipHostRegister(void* memory, size_t size, unsigned flags) {
  return device_entry("hipHostRegister", [&] {
    if (memory == nullptr || size == 0) return kInvalidValue;
    World& w = world();
    const std::lock_guard<std::mutex> guard(w.lock);
    const auto base = reinterpret_cast<uint64_t>(memory);
    if (w.find(base) != nullptr || w.find(base + size - 1) != nullptr) return kAlreadyRegistered;
    w.allocations[base] = {base, size, current_device(), Kind::registered, flags, w.allocated++, nullptr};
    return kSuccess;
  });
}
HIP_API int hipHostUnregister(void* memory) {
  return entry("hipHostUnregister", [&] {
    World& w = world();
    for (size_t device = 0; device < w.devices.size(); ++device) drain_device(static_cast<int>(device));
    const std::lock_guard<std::mutex> guard(w.lock);
    const auto found = w.allocations.find(reinterpret_cast<uint64_t>(memory));
    if (found == w.allocations.end() || found->second.kind != Kind::registered) return kNotRegistered;
    w.allocations.erase(found);
    return kSuccess;
  });
}
HIP_API int hipHostGetDevicePointer(void** out, void* memory, unsigned) {
  return entry("hipHostGetDevicePointer", [&] {
    if (out == nullptr || !inside(memory, 1, true)) return kInvalidValue;
    *out = memory;
    return kSuccess;
  });
}

HIP_API int hipMemcpy(void* to, const void* from, size_t size, int kind) {
  return device_entry("hipMemcpy", [&] { return copy(to, from, size, kind, nullptr, true); });
}
HIP_API int hipMemcpyAsync(void* to, const void* from, size_t size, int kind, Stream* stream) {
  return device_entry("hipMemcpyAsync", [&] { return copy(to, from, size, kind, stream, false); });
}
HIP_API int hipMemcpyWithStream(void* to, const void* from, size_t size, int kind, Stream* stream) {
  return device_entry("hipMemcpyWithStream", [&] { return copy(to, from, size, kind, stream, true); });
}
HIP_API int hipMemcpyHtoD(void* to, void* from, size_t size) {
  return device_entry("hipMemcpyHtoD", [&] { return copy(to, from, size, 1, nullptr, true); });
}
HIP_API int hipMemcpyDtoH(void* to, void* from, size_t size) {
  return device_entry("hipMemcpyDtoH", [&] { return copy(to, from, size, 2, nullptr, true); });
}
HIP_API int hipMemcpyDtoD(void* to, void* from, size_t size) {
  return device_entry("hipMemcpyDtoD", [&] { return copy(to, from, size, 3, nullptr, true); });
}
HIP_API int hipMemset(void* to, int value, size_t size) {
  return device_entry("hipMemset", [&] { return fill(to, value, size, nullptr, true); });
}
HIP_API int hipMemsetAsync(void* to, int value, size_t size, Stream* stream) {
  return device_entry("hipMemsetAsync", [&] { return fill(to, value, size, stream, false); });
}

HIP_API int hipMemGetInfo(size_t* available, size_t* total) {
  return device_entry("hipMemGetInfo", [&] {
    if (available == nullptr || total == nullptr) return kInvalidValue;
    World& w = world();
    const std::lock_guard<std::mutex> guard(w.lock);
    const Device& device = *w.devices[static_cast<size_t>(current_device())];
    *total = device.target->memory_gib << 30;
    *available = *total - device.used;
    return kSuccess;
  });
}

HIP_API int hipPointerGetAttributes(PointerAttributes* out, const void* pointer) {
  return entry("hipPointerGetAttributes", [&] { return pointer_attributes(out, pointer); });
}
