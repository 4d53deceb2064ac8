// Attention for AMD GPUs. Shapes, in elements: Q, Out (batch, heads_q, seqlen_q, head_dim); K, V (batch, heads_k, seqlen_k, head_dim),
// heads_q a multiple of heads_k; last strides 1; L and D float32 (batch * heads_q, seqlen_q), natural logarithm.
//
// Results: hipSuccess: queued on the stream. hipErrorInvalidValue: arguments contradict each other. hipErrorInvalidSymbol: params of
// another interface version. hipErrorNotSupported: valid, but no installed kernel covers it. hipErrorNoBinaryForGpu: no
// installed image pack serves this GPU. docs/runtime.md lists the rest.
#pragma once

#include <aotriton/config.h>
#include <aotriton/dtypes.h>
#include <aotriton/runtime.h>
#include <aotriton/util.h>
#include <aotriton/v2/flash.h>

namespace AOTRITON_NS::v2::flash {

using T4 = TensorView<4>;
using T2 = TensorView<2>;
using T1 = TensorView<1>;
using T0 = TensorView<0>;

// Whether the installed image packs hold attention kernels for the stream's device.
AOTRITON_API hipError_t check_gpu(Stream stream);

AOTRITON_API hipError_t debug_simulate_encoded_softmax(T4 r, float dropout_p, T0 philox_seed, T0 philox_offset1,
                                                       uint64_t philox_offset2, Stream stream);

}  // namespace AOTRITON_NS::v2::flash

namespace AOTRITON_NS::v3::flash {

using T4 = TensorView<4>;
using T2 = TensorView<2>;
using T1 = TensorView<1>;
using T0 = TensorView<0>;

struct CausalType {
  static constexpr int8_t None = 0;
  static constexpr int8_t WindowedAttention = 3;
};

struct VarlenType {
  static constexpr int8_t None = 0;
  static constexpr int8_t CompactVarlen = 1;
  static constexpr int8_t PaddedVarlen = 2;
};

// In window_left or window_right: the causal mask's alignment, resolved for every sequence on its own.
struct WindowValue {
  static constexpr int32_t TopLeftAligned = -2147483647;
  static constexpr int32_t BottomRightAligned = -2147483646;
};

using LT2 = LazyTensor<2>;
using LT4 = LazyTensor<4>;

// -1: whatever serves; 0: the kernels of the image packs; there is no other back end.
struct attn_options {
  int force_backend_index = -1;
};

struct AOTRITON_CLASS_API attn_fwd_params {
  static constexpr int32_t kVersion = 1;

  T4 Q, K, V, B;
  T2 A;
  float Sm_scale;
  T2 L;
  T4 Out;
  T1 cu_seqlens_q, cu_seqlens_k;
  int32_t Max_seqlen_q = 0;
  int32_t Max_seqlen_k = 0;
  float dropout_p;
  T0 philox_seed_ptr, philox_offset1;
  uint64_t philox_offset2;
  T0 philox_seed_output, philox_offset_output;
  T4 encoded_softmax;
  T0 persistent_atomic_counter;
  int8_t causal_type;
  int8_t varlen_type = 0;
  int32_t window_left, window_right;

  AOTRITON_API attn_fwd_params();
};

struct AOTRITON_CLASS_API attn_bwd_params {
  static constexpr int32_t kVersion = 3;

  T4 Q, K, V, B;
  float Sm_scale;
  T4 Out, DO, DK, DV, DQ, DB;
  T2 L;
  mutable LT2 D;
  T1 cu_seqlens_q, cu_seqlens_k;
  int32_t Max_seqlen_q = 0;
  int32_t Max_seqlen_k = 0;
  float dropout_p;
  T0 philox_seed_ptr, philox_offset1;
  uint64_t philox_offset2;
  int8_t causal_type;
  int8_t varlen_type = 0;
  int32_t window_left, window_right;
  mutable LT4 DQ_ACC;

  AOTRITON_API attn_bwd_params();
};

AOTRITON_API hipError_t attn_fwd(const attn_fwd_params& params, int32_t params_version, Stream stream,
                                 const attn_options* options = nullptr);

AOTRITON_API hipError_t attn_bwd(const attn_bwd_params& params, int32_t params_version, Stream stream,
                                 const attn_options* options = nullptr);

// The backward pass by AITER's assembly kernels, which no image pack holds: hipErrorNotSupported for valid arguments.
AOTRITON_API hipError_t aiter_bwd(const attn_bwd_params& params, int32_t params_version, Stream stream,
                                  const attn_options* options = nullptr);

}  // namespace AOTRITON_NS::v3::flash
