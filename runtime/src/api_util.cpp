// Questions about the device behind a stream.
#include <aotriton/util.h>

#include <cstring>

#include "state.h"

namespace aotriton {
namespace {

// Architectures that programs must query before they use them, at every API level.
constexpr const char* kExperimental[] = {"gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151",
                                         "gfx1152", "gfx1153", "gfx1200", "gfx1250"};

#if AOTRITON_VERSION_MINOR >= 12
constexpr const char* kTechPreview[] = {"gfx1250"};
#endif

// Run `body(state, hip, device)` for the stream's device.
template <typename Body>
hipError_t with_device(hipStream_t stream, Body&& body) {
  return aotforge::guarded([&](aotforge::State& state) {
    const aotforge::HipApi* hip = nullptr;
    if (const hipError_t error = state.hip(&hip); error != hipSuccess) return error;
    int device = -1;
    if (const hipError_t error = hip->device_of(stream, &device); error != hipSuccess) return error;
    return body(state, *hip, device);
  });
}

hipError_t arch_of(hipStream_t stream, char* name) {
  return with_device(stream, [&](const aotforge::State& state, const aotforge::HipApi& hip, int device) {
    const aotforge::Device* known = state.known_device(device);
    if (known == nullptr) return hip.arch_name(device, name);
    std::memcpy(name, known->arch().c_str(), known->arch().size() + 1);  // it came from such a buffer
    return hipSuccess;
  });
}

// The hexadecimal number in "gfx90a", or 0.
uint64_t arch_number(const char* name) {
  if (std::strncmp(name, "gfx", 3) != 0 || std::strlen(name) > 7) return 0;
  uint64_t number = 0;
  for (const char* c = name + 3; *c != 0; ++c) {
    if (*c >= '0' && *c <= '9') {
      number = number * 16 + static_cast<uint64_t>(*c - '0');
    } else if (*c >= 'a' && *c <= 'f') {
      number = number * 16 + static_cast<uint64_t>(*c - 'a' + 10);
    } else {
      return 0;
    }
  }
  return number;
}

template <size_t Count>
bool arch_is_one_of(hipStream_t stream, const char* const (&archs)[Count]) {
  char name[aotforge::kArchNameSize];
  if (arch_of(stream, name) != hipSuccess) return false;
  for (const char* arch : archs)
    if (std::strcmp(name, arch) == 0) return true;
  return false;
}

}  // namespace

Gpu getGpuFromStream(hipStream_t stream) {
  char name[aotforge::kArchNameSize];
  if (arch_of(stream, name) != hipSuccess) return GPU_ARCH_UNKNOWN;
  const uint64_t number = arch_number(name);
  return number == 0 ? GPU_ARCH_UNKNOWN : static_cast<Gpu>(TRICAT(kAMD, number, 0));
}

bool isArchExperimentallySupported(hipStream_t stream) { return arch_is_one_of(stream, kExperimental); }

#if AOTRITON_VERSION_MINOR >= 12
bool isArchTechPreview(hipStream_t stream) { return arch_is_one_of(stream, kTechPreview); }
#endif

int getMultiProcessorCount(hipStream_t stream) {
  int count = 0;
  const hipError_t error = with_device(
      stream, [&](const aotforge::State&, const aotforge::HipApi& hip, int device) { return hip.compute_units(device, &count); });
  return error == hipSuccess ? count : 0;
}

}  // namespace aotriton
