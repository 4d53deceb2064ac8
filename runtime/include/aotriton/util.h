// Tensors by reference, GPU names, and questions about the device behind a stream.
#pragma once

#include <aotriton/config.h>
#include <aotriton/dtypes.h>
#include <aotriton/runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace AOTRITON_NS {

constexpr uint64_t CAT64(uint64_t high, uint64_t low) { return (high << 32) | low; }
constexpr uint64_t CAT32(uint64_t high, uint64_t low) { return (high << 16) | low; }
constexpr uint64_t TRICAT(uint64_t vendor, uint64_t arch, uint64_t mod) { return CAT64(vendor, CAT32(arch, mod)); }

enum GpuVendor : uint16_t {
  kAMD = 0x1002,
  kNVIDIA = 0x10de,
  kINTEL = 0x8086,
};

// vendor << 32 | architecture << 16 | variant; the architecture is the hexadecimal number in its name. getGpuFromStream also
// returns values of this form for architectures that have no enumerator here.
enum Gpu : uint64_t {
  GPU_ARCH_UNKNOWN = 0,
  GPU_AMD_ARCH_GFX908_MOD0 = TRICAT(kAMD, 0x908, 0),
  GPU_AMD_ARCH_GFX90A_MOD0 = TRICAT(kAMD, 0x90a, 0),
  GPU_AMD_ARCH_GFX942_MOD0 = TRICAT(kAMD, 0x942, 0),
  GPU_AMD_ARCH_GFX950_MOD0 = TRICAT(kAMD, 0x950, 0),
  GPU_AMD_ARCH_GFX1030_MOD0 = TRICAT(kAMD, 0x1030, 0),
  GPU_AMD_ARCH_GFX1100_MOD0 = TRICAT(kAMD, 0x1100, 0),
  GPU_AMD_ARCH_GFX1101_MOD0 = TRICAT(kAMD, 0x1101, 0),
  GPU_AMD_ARCH_GFX1102_MOD0 = TRICAT(kAMD, 0x1102, 0),
  GPU_AMD_ARCH_GFX1103_MOD0 = TRICAT(kAMD, 0x1103, 0),
  GPU_AMD_ARCH_GFX1150_MOD0 = TRICAT(kAMD, 0x1150, 0),
  GPU_AMD_ARCH_GFX1151_MOD0 = TRICAT(kAMD, 0x1151, 0),
  GPU_AMD_ARCH_GFX1152_MOD0 = TRICAT(kAMD, 0x1152, 0),
  GPU_AMD_ARCH_GFX1153_MOD0 = TRICAT(kAMD, 0x1153, 0),
  GPU_AMD_ARCH_GFX1200_MOD0 = TRICAT(kAMD, 0x1200, 0),
  GPU_AMD_ARCH_GFX1201_MOD0 = TRICAT(kAMD, 0x1201, 0),
  GPU_AMD_ARCH_GFX1250_MOD0 = TRICAT(kAMD, 0x1250, 0),
};

// vendor << 16 | architecture: the part of a Gpu value that does not depend on the variant.
constexpr uint64_t Gpu2VendorArch(uint64_t gpu) { return gpu >> 16; }

template <typename T>
constexpr T cdiv(T numerator, T denominator) {
  return (numerator + (denominator - 1)) / denominator;
}

// A tensor of `Rank` dimensions in device memory, not owned. Sizes and strides count elements, outermost first.
template <int Rank>
class AOTRITON_CLASS_API TensorView {
 public:
  TensorView() : sizes_(), strides_() {}
  TensorView(intptr_t base, std::array<uint64_t, Rank> sizes, std::array<uint64_t, Rank> strides, DType dtype)
      : base_(reinterpret_cast<void*>(base)), sizes_(sizes), strides_(strides), dtype_(dtype) {}

  operator bool() const { return base_ != nullptr; }

  uint64_t size(int i) const { return sizes_[static_cast<size_t>(i)]; }
  uint64_t stride(int i) const { return strides_[static_cast<size_t>(i)]; }
  std::array<uint64_t, Rank> sizes() const { return sizes_; }
  std::array<uint64_t, Rank> strides() const { return strides_; }
  const uint64_t* size_ptr() const { return sizes_.data(); }
  const uint64_t* stride_ptr() const { return strides_.data(); }
  const void* data_ptr() const { return base_; }
  DType dtype() const { return dtype_; }

  // Addresses of the fields themselves, in the form that a kernel-parameter array takes.
  void* kparam_data_ptr() const { return const_cast<void**>(&base_); }
  void* kparam_stride(int i) const { return const_cast<uint64_t*>(&strides_[static_cast<size_t>(i)]); }

  static TensorView<Rank> get_null_tensor(DType dtype) {
    return TensorView<Rank>(0, std::array<uint64_t, Rank>(), std::array<uint64_t, Rank>(), dtype);
  }

 private:
  void* base_ = nullptr;
  std::array<uint64_t, Rank> sizes_;
  std::array<uint64_t, Rank> strides_;
  DType dtype_ = kUnknown;
};

// One element.
template <>
class AOTRITON_CLASS_API TensorView<0> {
 public:
  TensorView() {}
  TensorView(intptr_t base, DType dtype) : base_(reinterpret_cast<void*>(base)), dtype_(dtype) {}

  operator bool() const { return base_ != nullptr; }

  uint64_t size(int i) const { return i == 0 ? 1 : 0; }
  uint64_t stride(int i) const { return i == 0 ? 1 : 0; }
  std::array<uint64_t, 0> sizes() const { return {}; }
  std::array<uint64_t, 0> strides() const { return {}; }
  const void* data_ptr() const { return base_; }
  DType dtype() const { return dtype_; }
  void* kparam_data_ptr() const { return const_cast<void**>(&base_); }

  static TensorView<0> get_null_tensor(DType dtype) { return TensorView<0>(0, dtype); }

 private:
  void* base_ = nullptr;
  DType dtype_ = kUnknown;
};

#ifndef _MSC_VER
extern template class TensorView<1>;
extern template class TensorView<2>;
extern template class TensorView<3>;
extern template class TensorView<4>;
#endif

// The architecture of the stream's device; GPU_ARCH_UNKNOWN when it cannot be told.
AOTRITON_API Gpu getGpuFromStream(hipStream_t stream);

// True for architectures whose kernels are published as experimental; false also when the device cannot be told.
AOTRITON_API bool isArchExperimentallySupported(hipStream_t stream);

// Compute units of the stream's device; 0 when it cannot be told.
AOTRITON_API int getMultiProcessorCount(hipStream_t stream);

}  // namespace AOTRITON_NS
