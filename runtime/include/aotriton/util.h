// Tensors by reference, GPU names, and questions about the device behind a stream.
#pragma once

#include <aotriton/config.h>
#include <aotriton/dtypes.h>
#include <aotriton/runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace AOTRITON_NS {

constexpr uint64_t CAT64(uint32_t high, uint32_t low) { return (static_cast<uint64_t>(high) << 32) | low; }
constexpr uint32_t CAT32(uint16_t high, uint16_t low) { return (static_cast<uint32_t>(high) << 16) | low; }
constexpr uint64_t TRICAT(uint16_t vendor, uint16_t arch, uint16_t mod) { return CAT64(vendor, CAT32(arch, mod)); }

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
  GPU_AMD_ARCH_GFX942_MOD1 = TRICAT(kAMD, 0x942, 1),
  GPU_AMD_ARCH_GFX942_MOD2 = TRICAT(kAMD, 0x942, 2),
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
constexpr uint32_t Gpu2VendorArch(uint64_t gpu) { return static_cast<uint32_t>(gpu >> 16); }

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
  // From any tensor class with data_ptr(), size(i) and stride(i); `dtype_of` gives its element type.
  template <typename Tensor>
  TensorView(const Tensor& tensor, std::function<DType(const Tensor&)> dtype_of)
      : base_(const_cast<void*>(static_cast<const void*>(tensor.data_ptr()))), dtype_(dtype_of(tensor)) {
    for (int i = 0; i < Rank; ++i) {
      sizes_[static_cast<size_t>(i)] = static_cast<uint64_t>(tensor.size(i));
      strides_[static_cast<size_t>(i)] = static_cast<uint64_t>(tensor.stride(i));
    }
  }

  operator bool() const { return base_ != nullptr; }

  uint64_t size(int i) const { return sizes_[static_cast<size_t>(i)]; }
  uint64_t stride(int i) const { return strides_[static_cast<size_t>(i)]; }
  std::array<uint64_t, Rank> sizes() const { return sizes_; }
  std::array<uint64_t, Rank> strides() const { return strides_; }
  const uint64_t* size_ptr() const { return sizes_.data(); }
  const uint64_t* stride_ptr() const { return strides_.data(); }
  void* data_ptr() const { return base_; }
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
  void* data_ptr() const { return base_; }
  DType dtype() const { return dtype_; }
  void* kparam_data_ptr() const { return const_cast<void**>(&base_); }

  static TensorView<0> get_null_tensor(DType dtype) { return TensorView<0>(0, dtype); }

 private:
  void* base_ = nullptr;
  DType dtype_ = kUnknown;
};

// A buffer that the caller makes only when a chosen kernel needs it. Every acquire() is followed by one dispose().
#if AOTRITON_VERSION_MINOR >= 12
// A non-null `eager` is used as it is, and nothing is acquired.
template <int Rank>
struct LazyTensor {
  void* cookie = nullptr;
  TensorView<Rank> (*acquire)(LazyTensor<Rank>* self) = nullptr;
  void (*dispose)(LazyTensor<Rank>* self) = nullptr;
  TensorView<Rank> eager = {};

  operator bool() const { return acquire != nullptr || eager; }
  void free() {
    if (dispose != nullptr) dispose(this);
  }
};
#else
template <int Rank>
struct LazyTensor {
  void* cookie = nullptr;
  TensorView<Rank> (*acquire)(void* cookie) = nullptr;
  void (*dispose)(void* cookie) = nullptr;

  operator bool() const { return acquire != nullptr; }
  void free() {
    if (dispose != nullptr) dispose(cookie);
  }
};
#endif

#ifndef _MSC_VER
extern template class TensorView<1>;
extern template class TensorView<2>;
extern template class TensorView<3>;
extern template class TensorView<4>;
#endif

// The architecture of the stream's device; GPU_ARCH_UNKNOWN when it is unknown.
AOTRITON_API Gpu getGpuFromStream(hipStream_t stream);

// True for architectures whose kernels are published as experimental; false also when the device is unknown.
AOTRITON_API bool isArchExperimentallySupported(hipStream_t stream);

#if AOTRITON_VERSION_MINOR >= 12
// True for architectures whose support is a preview; false also when the device is unknown.
AOTRITON_API bool isArchTechPreview(hipStream_t stream);
#endif

// Compute units of the stream's device; 0 when it is unknown.
AOTRITON_API int getMultiProcessorCount(hipStream_t stream);

}  // namespace AOTRITON_NS
