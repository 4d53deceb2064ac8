// InfiniOps' tensors as those of the operator library, and its errors as exceptions.
#ifndef INFINI_OPS_AOTFORGE_PROVIDER_VIEW_H_
#define INFINI_OPS_AOTFORGE_PROVIDER_VIEW_H_

#include <aotforge/ops.h>

#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "data_type.h"
#include "device.h"
#include "tensor.h"

namespace infini::ops::aotforge {

// The device's number in DLPack. A device without one has no provider here.
template <Device::Type kDev>
struct DeviceCode;

template <>
struct DeviceCode<Device::Type::kNvidia> {
  static constexpr int32_t value = AOTFORGE_DEVICE_CUDA;
};

template <>
struct DeviceCode<Device::Type::kCpu> {
  static constexpr int32_t value = AOTFORGE_DEVICE_CPU;
};

inline aotforge_element_type ElementType(DataType type) {
  const auto made = [](uint8_t code, uint8_t bits) { return aotforge_element_type{code, bits, 1}; };
  switch (type) {
    case DataType::kInt8: return made(AOTFORGE_INT, 8);
    case DataType::kInt16: return made(AOTFORGE_INT, 16);
    case DataType::kInt32: return made(AOTFORGE_INT, 32);
    case DataType::kInt64: return made(AOTFORGE_INT, 64);
    case DataType::kUInt8: return made(AOTFORGE_UINT, 8);
    case DataType::kUInt16: return made(AOTFORGE_UINT, 16);
    case DataType::kUInt32: return made(AOTFORGE_UINT, 32);
    case DataType::kUInt64: return made(AOTFORGE_UINT, 64);
    case DataType::kFloat16: return made(AOTFORGE_FLOAT, 16);
    case DataType::kBFloat16: return made(AOTFORGE_BFLOAT, 16);
    case DataType::kFloat32: return made(AOTFORGE_FLOAT, 32);
    case DataType::kFloat64: return made(AOTFORGE_FLOAT, 64);
  }
  throw std::invalid_argument("aotforge: a data type that DLPack does not have");
}

// A view: sizes and strides are those of `tensor`, which must outlive it.
template <Device::Type kDev>
aotforge_tensor View(const Tensor& tensor) {
  static_assert(sizeof(Tensor::Size) == sizeof(int64_t) && std::is_unsigned_v<Tensor::Size>);
  static_assert(std::is_same_v<std::make_signed_t<Tensor::Size>, Tensor::Stride> && sizeof(Tensor::Stride) == sizeof(int64_t));
  aotforge_tensor view{};
  view.data = const_cast<void*>(tensor.data());
  view.device_type = DeviceCode<kDev>::value;
  view.device_id = tensor.device().index();
  view.ndim = static_cast<int32_t>(tensor.ndim());
  view.dtype = ElementType(tensor.dtype());
  view.shape = reinterpret_cast<int64_t*>(const_cast<Tensor::Size*>(tensor.shape().data()));
  view.strides = reinterpret_cast<int64_t*>(const_cast<Tensor::Stride*>(tensor.strides().data()));
  return view;
}

inline void Check(int status) {
  if (status != 0) throw std::runtime_error(aotforge_ops_error());
}

}  // namespace infini::ops::aotforge

#endif
