#include "ops/problem.h"

#include <hip/hip_runtime.h>

#include <string>

#include "ops/error.h"

namespace aotforge::ops {
namespace {

const char* type_name(const Function& function, const aotforge_element_type& type, char* buffer, size_t size) {
  for (size_t i = 0; i < function.dtype_count && type.lanes == 1; ++i)
    if (function.dtypes[i].code == type.code && function.dtypes[i].bits == type.bits) return function.dtypes[i].name;
  static const char* const codes[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  const char* code = type.code < 7 ? codes[type.code] : "type";
  if (type.code >= 7) {
    std::snprintf(buffer, size, "DLPack type %u of %u bits", type.code, type.bits);
  } else {
    std::snprintf(buffer, size, type.lanes == 1 ? "%s%u" : "%s%ux%u", code, type.bits, type.lanes);
  }
  return buffer;
}

const ElementType* find_type(const Function& function, const aotforge_element_type& type) {
  for (size_t i = 0; i < function.dtype_count; ++i) {
    const ElementType& known = function.dtypes[i];
    if (known.code == type.code && known.bits == type.bits && type.lanes == 1) return &known;
  }
  return nullptr;
}

// Of sizes with the innermost first.
std::string shape_text(const int64_t* sizes, size_t rank) {
  std::string text = "(";
  for (size_t axis = rank; axis-- > 0;) text += std::to_string(sizes[axis]) + (axis != 0 ? ", " : "");
  return text + ")";
}

const char* device_name(int32_t type) {
  switch (type) {
    case 1: return "cpu";
    case 2: return "cuda";
    case 3: return "cuda_host";
    case 7: return "vulkan";
    case 8: return "metal";
    case 10: return "rocm";
    case 11: return "rocm_host";
    case 13: return "cuda_managed";
    case 14: return "oneapi";
    default: return "of another type";
  }
}

// Of sizes. Only those of an empty tensor exceed 64 bits (check_extent): 0 stays 0, and no other product of them is used.
int64_t product(int64_t one, int64_t other) {
  return static_cast<int64_t>(static_cast<uint64_t>(one) * static_cast<uint64_t>(other));
}

// Rank, sizes and strides of one tensor; its addresses fit 64 bits.
int check_extent(const Function& function, const char* name, const aotforge_tensor& tensor) {
  if (tensor.ndim < 0 || static_cast<size_t>(tensor.ndim) > kMaxAxes)
    return refuse(hipErrorInvalidValue, "%s: %s: %d axes: a tensor has 0 to %zu", function.name, name, tensor.ndim, kMaxAxes);
  if (tensor.ndim > 0 && tensor.shape == nullptr)
    return refuse(hipErrorInvalidValue, "%s: %s: shape is a null pointer", function.name, name);
  int64_t elements = 1, low = 0, high = 0;
  bool empty = false, over = false;
  for (int32_t axis = 0; axis < tensor.ndim; ++axis) {
    const int64_t size = tensor.shape[axis];
    if (size < 0)
      return refuse(hipErrorInvalidValue, "%s: %s: size %lld of axis %d is negative", function.name, name,
                    static_cast<long long>(size), axis);
    empty = empty || size == 0;
    if (size != 0) over = __builtin_mul_overflow(elements, size, &elements) || over;
    int64_t reach = 0;
    if (tensor.strides == nullptr || size == 0) continue;
    over = __builtin_mul_overflow(size - 1, tensor.strides[axis], &reach) || over;
    over = __builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high) || over;
  }
  constexpr int64_t kMost = INT64_MAX / 64;  // bytes of elements and sums of two tensors fit as well
  if (!empty && (over || elements > kMost || low < -kMost || high > kMost))
    return refuse(hipErrorInvalidValue, "%s: %s: the tensor is larger than the address space", function.name, name);
  if (tensor.byte_offset > static_cast<uint64_t>(kMost))
    return refuse(hipErrorInvalidValue, "%s: %s: byte_offset %llu is not in the address space", function.name, name,
                  static_cast<unsigned long long>(tensor.byte_offset));
  return hipSuccess;
}

int check_type(const Function& function, const char* name, const aotforge_tensor& tensor, const char* first, Problem& out) {
  char buffer[64];
  const ElementType* type = find_type(function, tensor.dtype);
  if (type == nullptr) {
    std::string known;
    for (size_t i = 0; i < function.dtype_count; ++i) known += std::string(i == 0 ? "" : ", ") + function.dtypes[i].name;
    return refuse(hipErrorInvalidValue, "%s: %s: dtype %s is not supported; supported are %s", function.name, name,
                  type_name(function, tensor.dtype, buffer, sizeof buffer), known.c_str());
  }
  if (out.dtype == nullptr) out.dtype = type;
  if (type != out.dtype)
    return refuse(hipErrorInvalidValue, "%s: %s: dtype %s differs from %s of %s", function.name, name, type->name, out.dtype->name, first);
  return hipSuccess;
}

int check_device(const Function& function, const char* name, const aotforge_tensor& tensor, const char* first, const Problem& out) {
  const int32_t type = tensor.device_type;
  if (type != AOTFORGE_DEVICE_CPU && type != AOTFORGE_DEVICE_CUDA && type != AOTFORGE_DEVICE_ROCM)
    return refuse(hipErrorInvalidDevice, "%s: %s: device %s (%d) is not supported; supported are cpu (%d), cuda (%d) and rocm (%d)",
                  function.name, name, device_name(type), type, AOTFORGE_DEVICE_CPU, AOTFORGE_DEVICE_CUDA, AOTFORGE_DEVICE_ROCM);
  if (tensor.device_type != out.device_type || tensor.device_id != out.device_id)
    return refuse(hipErrorInvalidDevice, "%s: %s: device %s:%d differs from %s:%d of %s", function.name, name,
                  device_name(tensor.device_type), tensor.device_id, device_name(out.device_type), out.device_id, first);
  return hipSuccess;
}

// Batch axes of a tensor, the innermost first.
struct Batch {
  size_t rank;
  int64_t sizes[kMaxAxes], strides[kMaxAxes];
};

// Place of the core axis, counted from the last axis: that of the function's axis parameter, or 0.
int core_place(const Function& function, const Argument* arguments, const Problem& problem, int64_t* out) {
  *out = 0;
  for (size_t i = 0; i < function.parameter_count; ++i) {
    if (function.parameters[i].kind != Kind::axis) continue;
    const int64_t rank = arguments[problem.output].tensor->ndim, given = arguments[i].integer;
    if (given < -rank || given >= rank)
      return refuse(hipErrorInvalidValue, "%s: %s: %lld is not an axis of %s, which has %lld", function.name, function.parameters[i].name,
                    static_cast<long long>(given), function.parameters[problem.output].name, static_cast<long long>(rank));
    *out = given < 0 ? -given - 1 : rank - 1 - given;
  }
  return hipSuccess;
}

// Divides a tensor's axes into those of `batch` and the core axes in `out`, whose sizes are -1 while unknown.
int split_axes(const Function& function, size_t at, const aotforge_tensor& tensor, int64_t place, Problem& out, Batch& batch) {
  const Parameter& parameter = function.parameters[at];
  const int64_t last = parameter.core_count == 0 ? -1 : place + parameter.core_count - 1;
  if (tensor.ndim <= last)
    return refuse(hipErrorInvalidValue, "%s: %s: %d axes: it has at least %lld, with %s", function.name, parameter.name, tensor.ndim,
                  static_cast<long long>(last + 1), function.cores[parameter.cores[0]]);
  batch.rank = 0;
  int64_t contiguous = 1;
  for (int32_t axis = 0; axis < tensor.ndim; ++axis) {
    const int32_t index = tensor.ndim - 1 - axis;
    const int64_t size = tensor.shape[index];
    const int64_t stride = size == 1 ? 0 : tensor.strides != nullptr ? tensor.strides[index] : contiguous;
    contiguous = product(contiguous, size);
    if (axis < place || axis > last) {
      batch.sizes[batch.rank] = size;
      batch.strides[batch.rank++] = stride;
      continue;
    }
    const size_t core = parameter.cores[last - axis];
    if (out.cores[core].size >= 0 && out.cores[core].size != size)
      return refuse(hipErrorInvalidValue, "%s: %s: size %lld of axis %d (%s) differs from %lld of the tensors before it", function.name,
                    parameter.name, static_cast<long long>(size), index, function.cores[core], static_cast<long long>(out.cores[core].size));
    out.cores[core].size = size;
    out.cores[core].strides[at] = stride;
  }
  return hipSuccess;
}

// The output's batch axes are what those of the inputs broadcast to.
int check_shapes(const Function& function, const Batch* batches, const Problem& problem) {
  const Batch& out = batches[problem.output];
  const char* axes = function.core_count == 0 ? "shape" : "batch shape";
  size_t rank = 0;
  int64_t wanted[kMaxAxes];
  for (size_t i = 0; i < function.parameter_count; ++i) {
    if (function.parameters[i].kind != Kind::input || !problem.present[i]) continue;
    const Batch& tensor = batches[i];
    for (; rank < tensor.rank; ++rank) wanted[rank] = 1;
    for (size_t axis = 0; axis < tensor.rank; ++axis) {
      const int64_t size = tensor.sizes[axis];
      if (size == 1 || size == wanted[axis]) continue;
      if (wanted[axis] != 1)
        return refuse(hipErrorInvalidValue, "%s: %s: %s %s does not broadcast with the inputs before it (%lld and %lld)", function.name,
                      function.parameters[i].name, axes, shape_text(tensor.sizes, tensor.rank).c_str(), static_cast<long long>(size),
                      static_cast<long long>(wanted[axis]));
      wanted[axis] = size;
    }
  }
  bool same = rank == out.rank;
  for (size_t axis = 0; same && axis < rank; ++axis) same = wanted[axis] == out.sizes[axis];
  if (same) return hipSuccess;
  return refuse(hipErrorInvalidValue, "%s: %s: %s %s is not %s, to which the inputs broadcast", function.name,
                function.parameters[problem.output].name, axes, shape_text(out.sizes, out.rank).c_str(), shape_text(wanted, rank).c_str());
}

int check_tensors(const Function& function, const Argument* arguments, Problem& out) {
  const char* first = nullptr;
  for (size_t i = 0; i < function.parameter_count; ++i) {
    const Parameter& parameter = function.parameters[i];
    out.present[i] = false;
    out.data[i] = nullptr;
    if (!parameter.is_tensor()) continue;
    if (parameter.kind == Kind::output) out.output = i;
    out.present[i] = arguments[i].tensor != nullptr;
    if (!out.present[i] && parameter.optional) continue;
    if (!out.present[i]) return refuse(hipErrorInvalidValue, "%s: %s is a null pointer", function.name, parameter.name);
    const aotforge_tensor& tensor = *arguments[i].tensor;
    if (first == nullptr) {
      first = parameter.name;
      out.device_type = tensor.device_type;
      out.device_id = tensor.device_id;
    }
    if (const int error = check_device(function, parameter.name, tensor, first, out)) return error;
    if (const int error = check_type(function, parameter.name, tensor, first, out)) return error;
    if (const int error = check_extent(function, parameter.name, tensor)) return error;
  }
  return hipSuccess;
}

// Batch axes of the output's shape, an input's strides 0 where it is broadcast.
void set_axes(const Function& function, const Argument* arguments, const Batch* batches, Problem& out) {
  const Batch& result = batches[out.output];
  out.rank = result.rank;
  out.elements = 1;
  for (size_t axis = 0; axis < out.rank; ++axis) {
    out.axes[axis] = {};
    out.axes[axis].size = result.sizes[axis];
    out.elements = product(out.elements, result.sizes[axis]);
  }
  out.is_empty = out.elements == 0;
  for (size_t i = 0; i < function.parameters[out.output].core_count; ++i)
    if (out.cores[function.parameters[out.output].cores[i]].size == 0) out.is_empty = true;
  for (size_t i = 0; i < function.parameter_count; ++i) {
    if (!out.is_tensor(i)) continue;
    const aotforge_tensor& tensor = *arguments[i].tensor;
    out.data[i] = static_cast<char*>(tensor.data) + (tensor.data != nullptr ? tensor.byte_offset : 0);
    for (size_t axis = 0; axis < batches[i].rank; ++axis) out.axes[axis].strides[i] = batches[i].strides[axis];
  }
}

int read_axes(const Function& function, const Argument* arguments, Problem& out) {
  Batch batches[kMaxParameters];
  int64_t place = 0;
  if (const int error = core_place(function, arguments, out, &place)) return error;
  for (size_t core = 0; core < function.core_count; ++core) out.cores[core] = {-1, {}};
  for (size_t i = 0; i < function.parameter_count; ++i)
    if (out.is_tensor(i))
      if (const int error = split_axes(function, i, *arguments[i].tensor, place, out, batches[i])) return error;
  if (const int error = check_shapes(function, batches, out)) return error;
  set_axes(function, arguments, batches, out);
  return hipSuccess;
}

}  // namespace

int make_problem(const Function& function, const Argument* arguments, Problem& out) {
  out.function = &function;
  out.dtype = nullptr;
  out.output = 0;
  if (const int error = check_tensors(function, arguments, out)) return error;
  if (const int error = read_axes(function, arguments, out)) return error;
  for (size_t i = 0; i < function.parameter_count; ++i)
    if (!out.is_empty && out.is_tensor(i) && !out.has_no_elements(i) && arguments[i].tensor->data == nullptr)
      return refuse(hipErrorInvalidValue, "%s: %s: data is a null pointer", function.name, function.parameters[i].name);
  return hipSuccess;
}

}  // namespace aotforge::ops
