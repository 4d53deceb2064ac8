#include "ops/tvm_ffi.h"

#include <dlfcn.h>
#include <hip/hip_runtime.h>

#include <cstring>
#include <string>

#include "ops/call.h"
#include "ops/error.h"

namespace aotforge::ops {
namespace {

// TVMFFITypeIndex, and the size of TVMFFIObject, which a tensor object's DLTensor follows, and a string's TVMFFIByteArray.
constexpr int32_t kNone = 0, kInt = 1, kBool = 2, kFloat = 3, kTensorPointer = 7, kRawString = 8, kSmallString = 11, kString = 65,
                  kTensorObject = 70;
constexpr size_t kObjectHeader = 24;

// Of the TVM-FFI that called: the process has loaded it.
void* tvm_symbol(const char* name) {
  if (void* found = ::dlsym(RTLD_DEFAULT, name)) return found;
  void* library = ::dlopen("libtvm_ffi.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  void* found = ::dlsym(library, name);
  ::dlclose(library);
  return found;
}

template <typename Signature>
Signature* tvm_function(const char* name) {
  void* address = tvm_symbol(name);
  Signature* out;
  static_assert(sizeof out == sizeof address, "function pointers are pointers");
  std::memcpy(&out, &address, sizeof out);
  return out;
}

int raise(const char* kind) {
  static auto* const set = tvm_function<void(const char*, const char*)>("TVMFFIErrorSetRaisedFromCStr");
  if (set != nullptr) set(kind, last_error());
  return -1;
}

// A string of any of TVM-FFI's three kinds.
bool to_string(const TvmAny& value, std::string* out) {
  struct Bytes {
    const char* data;
    size_t size;
  } bytes;
  switch (value.type_index) {
    case kRawString: bytes = {static_cast<const char*>(value.as.pointer), std::strlen(static_cast<const char*>(value.as.pointer))}; break;
    case kSmallString: bytes = {value.as.characters, value.small_length}; break;
    case kString: std::memcpy(&bytes, static_cast<const char*>(value.as.pointer) + kObjectHeader, sizeof bytes); break;
    default: return false;
  }
  out->assign(bytes.data, bytes.size);
  return true;
}

// An option's place or name.
bool convert_option(const TvmAny& value, const Parameter& parameter, Argument* out) {
  std::string name;
  *out = of_integer(value.as.integer);
  if (!to_string(value, &name)) return value.type_index == kInt;
  for (size_t i = 0; i < parameter.option_count; ++i)
    if (name == parameter.options[i]) {
      *out = of_integer(static_cast<int64_t>(i));
      return true;
    }
  return false;
}

bool convert(const TvmAny& value, const Parameter& parameter, Argument* out) {
  const Kind kind = parameter.kind;
  if (kind == Kind::option) return convert_option(value, parameter, out);
  if (parameter.optional && value.type_index == kNone) {
    *out = of_tensor(nullptr);
    return true;
  }
  if (kind == Kind::axis) {
    *out = of_integer(value.as.integer);
    return value.type_index == kInt;
  }
  if (kind == Kind::number) {
    if (value.type_index == kInt || value.type_index == kBool) *out = of_integer(value.as.integer);
    if (value.type_index == kFloat) *out = of_number(value.as.number);
    return value.type_index == kInt || value.type_index == kBool || value.type_index == kFloat;
  }
  if (value.type_index != kTensorPointer && value.type_index != kTensorObject) return false;
  const size_t header = value.type_index == kTensorObject ? kObjectHeader : 0;
  *out = of_tensor(reinterpret_cast<const aotforge_tensor*>(static_cast<const char*>(value.as.pointer) + header));
  return value.as.pointer != nullptr;
}

const char* kind_name(const Parameter& parameter) {
  switch (parameter.kind) {
    case Kind::input:
    case Kind::output: return "a tensor";
    case Kind::axis: return "an integer";
    case Kind::option: return "the place or the name of an option";
    case Kind::number: break;
  }
  return "a number";
}

void* current_stream(const aotforge_tensor& tensor) {
  static auto* const get = tvm_function<void*(int32_t, int32_t)>("TVMFFIEnvGetStream");
  const bool has_streams = tensor.device_type == AOTFORGE_DEVICE_CUDA || tensor.device_type == AOTFORGE_DEVICE_ROCM;
  return get != nullptr && has_streams ? get(tensor.device_type, tensor.device_id) : nullptr;
}

const char* error_kind(int error) {
  return error == hipErrorInvalidValue || error == hipErrorInvalidDevice ? "ValueError" : "RuntimeError";
}

}  // namespace

int call_tvm(const Function& function, const TvmAny* arguments, int32_t count, TvmAny* result) {
  if (count < 0 || static_cast<size_t>(count) != function.parameter_count) {
    refuse(hipErrorInvalidValue, "%s: takes %zu arguments, %d were given", function.name, function.parameter_count, count);
    return raise("TypeError");
  }
  Argument given[kMaxParameters];
  const aotforge_tensor* output = nullptr;
  for (size_t i = 0; i < function.parameter_count; ++i) {
    const Parameter& parameter = function.parameters[i];
    if (!convert(arguments[i], parameter, &given[i])) {
      refuse(hipErrorInvalidValue, "%s: %s: %s is not %s", function.name, parameter.name,
             arguments[i].type_index == kNone ? "None" : "the argument", kind_name(parameter));
      return raise("TypeError");
    }
    if (parameter.kind == Kind::output) output = given[i].tensor;
  }
  if (const int error = call(function, given, current_stream(*output))) return raise(error_kind(error));
  *result = {};
  return 0;
}

}  // namespace aotforge::ops
