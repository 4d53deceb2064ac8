// TVM-FFI's calling convention (C ABI of 0.1): functions `__tvm_ffi_<name>` of packed arguments. Its library is looked up at run time.
#pragma once

#include "ops/function.h"

namespace aotforge::ops {

// TVMFFIAny: a tagged value of 16 bytes.
struct TvmAny {
  int32_t type_index;
  uint32_t small_length;
  union {
    int64_t integer;
    double number;
    void* pointer;
    char characters[8];
  } as;
};
static_assert(sizeof(TvmAny) == 16, "TVM-FFI's layout");

// Calls `function` on the stream that TVM-FFI has for the tensors' device. 0, or -1 with an error raised in TVM-FFI.
int call_tvm(const Function& function, const TvmAny* arguments, int32_t count, TvmAny* result);

}  // namespace aotforge::ops
