// libFuzzer: params of the attention calls with any numbers in any field. There is no device: calls end where a launch would begin.
//
// An input is a list of changes to valid params: which word, and what is written there.
#include <aotriton/flash.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "device_api.h"

using namespace aotriton;
using namespace aotriton::v3::flash;

// Found by the library in the program itself, so that no HIP of the machine is loaded. There is no device.
using aotforge::FunctionHandle;
using aotforge::ModuleHandle;
extern "C" {
#define ABSENT __attribute__((visibility("default"))) hipError_t
ABSENT hipGetDevice(int*) { return hipErrorNoDevice; }
ABSENT hipSetDevice(int) { return hipErrorNoDevice; }
ABSENT hipGetDevicePropertiesR0600(void*, int) { return hipErrorNoDevice; }
ABSENT hipDeviceGetAttribute(int*, int, int) { return hipErrorNoDevice; }
ABSENT hipModuleLoadData(ModuleHandle*, const void*) { return hipErrorNoDevice; }
ABSENT hipModuleUnload(ModuleHandle) { return hipErrorNoDevice; }
ABSENT hipModuleGetFunction(FunctionHandle*, ModuleHandle, const char*) { return hipErrorNoDevice; }
ABSENT hipModuleLaunchKernel(FunctionHandle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, hipStream_t, void**,
                             void**) {
  std::abort();
}
}

namespace {

constexpr uint64_t kNumbers[] = {0, 1, 2, 3, 16, 64, 65536, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000, 0x7fffffffffffffff,
                                 0x8000000000000000, 0xffffffffffffffff, 0x80000001, 0x80000002};
constexpr size_t kChange = 4;  // bytes

template <int Rank>
TensorView<Rank> dense(std::array<uint64_t, Rank> sizes, DType dtype) {
  std::array<uint64_t, Rank> strides;
  uint64_t stride = 1;
  for (int i = Rank - 1; i >= 0; --i) {
    strides[static_cast<size_t>(i)] = stride;
    stride *= sizes[static_cast<size_t>(i)];
  }
  return TensorView<Rank>(0x1000, sizes, strides, dtype);
}

template <class Params>
void fill(Params& p) {
  const auto q = dense<4>({2, 4, 64, 32}, kFloat16), k = dense<4>({2, 2, 48, 32}, kFloat16);
  p.Q = p.Out = q;
  p.K = p.V = k;
  p.L = dense<2>({8, 64}, kFloat32);
  p.Sm_scale = 0.5f;
  p.philox_seed_ptr = p.philox_offset1 = TensorView<0>(0x2000, kUInt64);
}

// Writes numbers over words of the params, 4 or 8 bytes each; true when there were no more.
template <class Params>
void change(Params& p, const uint8_t* data, size_t size) {
  auto* bytes = reinterpret_cast<uint8_t*>(&p);
  for (; size >= kChange; data += kChange, size -= kChange) {
    const size_t wide = data[2] & 0x80 ? 8 : 4, count = sizeof p / wide;
    const size_t word = (static_cast<size_t>(data[1]) << 8 | data[0]) % count;
    uint64_t value = kNumbers[data[3] % 16];
    if (data[2] & 0x40) value = data[3];
    if (data[2] & 0x20) std::memcpy(&value, bytes + (data[3] % count) * wide, wide);
    if (data[2] & 0x10) value = 0 - value;
    std::memcpy(bytes + word * wide, &value, wide);
  }
}

void call(const attn_fwd_params& p, int32_t version) {
  if (attn_fwd(p, version, Stream(nullptr)) == hipSuccess) std::abort();  // nothing can have been launched
}

void call(const attn_bwd_params& p, int32_t version) {
  if (attn_bwd(p, version, Stream(nullptr)) == hipSuccess) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const int32_t older = data[0] & 2;
  if ((data[0] & 1) == 0) {
    attn_fwd_params p;
    fill(p);
    change(p, data + 1, size - 1);
    call(p, older ? 3 : attn_fwd_params::kVersion);
    return 0;
  }
  attn_bwd_params p;
  fill(p);
  p.DO = p.DQ = p.Out;
  p.DK = p.DV = p.K;
  change(p, data + 1, size - 1);
  // callbacks are the caller's code, not data; the older params have these fields at the same words or inside of them
  p.D = {};
  p.DQ_ACC = {};
  call(p, older ? 6 : attn_bwd_params::kVersion);
  return 0;
}
