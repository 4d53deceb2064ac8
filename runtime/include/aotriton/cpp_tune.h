// Controls of tuning builds. A release library has none of them: it neither reads nor sets these values.
#pragma once

#include <aotriton/config.h>

#if AOTRITON_VERSION_MINOR < 13
namespace AOTRITON_NS::v2 {

// Kernel indices with a meaning of their own in tuning builds.
enum CppTuneSpecialKernelIndex : int {
  kDefault = -1,
  kSkipGPUCall = -2,
};

struct CppTune {};

}  // namespace AOTRITON_NS::v2
#endif

#if AOTRITON_VERSION_MINOR >= 12
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace AOTRITON_NS::v3 {

// Wishes for one kernel, and what a tuning build reports about it.
struct KernelControl {
  enum KernelControlBits : uint16_t {
    IgnoreBit = 0,
    ManualBit = 1,
    SkipBit = 2,
    QueryBit = 3,
    ExtractImageBit = 4,
  };
  static constexpr uint16_t Default = 0;
  static constexpr uint16_t Ignore = 1 << IgnoreBit;
  static constexpr uint16_t Manual = 1 << ManualBit;
  static constexpr uint16_t Skip = 1 << SkipBit;
  static constexpr uint16_t Query = 1 << QueryBit;
  static constexpr uint16_t ExtractImage = 1 << ExtractImageBit;

  uint16_t control_bits = Default;
  uint16_t hsaco_index = 0;
  mutable int32_t total_hsacos = -1;
  mutable const char* kernel_psels = nullptr;
  mutable const char* kernel_copts = nullptr;
  mutable const void* kernel_image = nullptr;
  mutable size_t image_size = 0;
};

// One control per kernel, made when it is first looked at.
class KernelFineControl {
 public:
  explicit KernelFineControl(size_t size) : controls_(size) {}
  size_t size() const { return controls_.size(); }
  // Null beyond the end.
  std::shared_ptr<KernelControl> operator[](size_t index) const {
    if (index >= controls_.size()) return nullptr;
    ensure_initialized(index);
    return controls_[index];
  }
  // Throws std::out_of_range beyond the end.
  std::shared_ptr<KernelControl> at(size_t index) const {
    (void)controls_.at(index);
    ensure_initialized(index);
    return controls_[index];
  }

 private:
  void ensure_initialized(size_t index) const {
    if (!controls_[index]) controls_[index] = std::make_shared<KernelControl>();
  }
  mutable std::vector<std::shared_ptr<KernelControl>> controls_;
};

}  // namespace AOTRITON_NS::v3
#endif
