// Attention for AMD GPUs. Shapes, in elements: Q, Out (batch, heads_q, seqlen_q, head_dim); K, V (batch, heads_k, seqlen_k, head_dim),
// heads_q a multiple of heads_k; last strides 1; L and D float32 (batch * heads_q, seqlen_q), natural logarithm.
//
// Results: hipSuccess: queued on the stream. hipErrorInvalidValue: arguments contradict each other. hipErrorInvalidSymbol: params of
// another interface version. hipErrorNotSupported: valid, but no installed kernel covers it. hipErrorNoBinaryForGpu: no
// installed image pack serves this GPU. docs/runtime.md lists the rest.
#pragma once

#include <aotriton/config.h>
#include <aotriton/cpp_tune.h>
#include <aotriton/dtypes.h>
#include <aotriton/runtime.h>
#include <aotriton/util.h>
#if AOTRITON_VERSION_MINOR < 13
#include <aotriton/v2/flash.h>
#endif

namespace AOTRITON_NS::v2::flash {

// hipSuccess when the installed image packs serve all attention that PyTorch requests on the stream's device (docs/runtime.md).
AOTRITON_API hipError_t check_gpu(Stream stream);

// Fills `r` (batch, heads_q, seqlen_q, seqlen_k) with +0.5 where dropout keeps an element and -0.5 where it drops it.
AOTRITON_API hipError_t debug_simulate_encoded_softmax(TensorView<4> r, float dropout_p, TensorView<0> philox_seed,
                                                       TensorView<0> philox_offset1, uint64_t philox_offset2, Stream stream);

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

#if AOTRITON_VERSION_MINOR < 14
struct VarlenType {
  static constexpr int8_t None = 0;
  static constexpr int8_t CompactVarlen = 1;
  static constexpr int8_t PaddedVarlen = 2;
#if AOTRITON_VERSION_MINOR >= 12
  static constexpr int8_t StridedVarlen = 3;
#endif
};
#else
// One plane per sequence, or all tokens in one plane (whose first dimension is 1).
struct VarlenStacked {
  static constexpr uint32_t BHSD = 0;
  static constexpr uint32_t THD = 1;
};

// Length of sequence z: Max_seqlen; seqinfo_0[z + 1] - seqinfo_0[z]; seqinfo_0[z].
struct VarlenLength {
  static constexpr uint32_t MAX = 0;
  static constexpr uint32_t CUMULATIVE = 1;
  static constexpr uint32_t INDIVIDUAL = 2;
};

// First row of sequence z: 0 (BHSD) or z * Max_seqlen (THD); seqinfo_0[z]; seqinfo_1[z].
struct VarlenPosition {
  static constexpr uint32_t IMPLIED = 0;
  static constexpr uint32_t REUSE = 1;
  static constexpr uint32_t ARRAY = 2;
};

// Order of the elements of L and D: rows of a head together, or heads of a row together.
struct VarlenLseLayout {
  static constexpr uint32_t HT = 0;
  static constexpr uint32_t TH = 1;
};

struct VarlenMode {
  uint8_t stacked : 1;
  uint8_t length : 2;
  uint8_t position : 2;
  uint8_t reserved : 3;
};

// How sequences are stored, for queries and keys on their own. All zero: dense tensors.
struct alignas(uint32_t) VarlenBits {
  VarlenMode qmode;
  VarlenMode kmode;
  uint16_t lse_layout : 2;
  uint16_t reserved : 14;
};
#endif

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
#if AOTRITON_VERSION_MINOR >= 12
  bool deterministic = false;  // every kernel is
#endif
};

struct AOTRITON_CLASS_API attn_fwd_params {
#if AOTRITON_VERSION_MINOR >= 14
  static constexpr int32_t kVersion = 4;
#elif AOTRITON_VERSION_MINOR >= 12
  static constexpr int32_t kVersion = 3;
#else
  static constexpr int32_t kVersion = 1;
#endif

  T4 Q, K, V, B;
  T2 A;
  float Sm_scale;
  T2 L;
  T4 Out;
#if AOTRITON_VERSION_MINOR >= 14
  T1 seqinfo_q0, seqinfo_k0;
#else
  T1 cu_seqlens_q, cu_seqlens_k;
#endif
  int32_t Max_seqlen_q = 0;
  int32_t Max_seqlen_k = 0;
#if AOTRITON_VERSION_MINOR >= 14
  T1 seqinfo_q1, seqinfo_k1;
#elif AOTRITON_VERSION_MINOR >= 12
  T1 seq_strides_q, seq_strides_k;
#endif
  float dropout_p;
  T0 philox_seed_ptr, philox_offset1;
  uint64_t philox_offset2;
  T0 philox_seed_output, philox_offset_output;
  T4 encoded_softmax;
  T0 persistent_atomic_counter;
  int8_t causal_type;
#if AOTRITON_VERSION_MINOR < 14
  int8_t varlen_type = 0;
#endif
  int32_t window_left, window_right;
#if AOTRITON_VERSION_MINOR >= 14
  VarlenBits varlen_bits = {};
#endif

  AOTRITON_API attn_fwd_params();
};

struct AOTRITON_CLASS_API attn_bwd_params {
#if AOTRITON_VERSION_MINOR >= 14
  static constexpr int32_t kVersion = 7;
#elif AOTRITON_VERSION_MINOR >= 12
  static constexpr int32_t kVersion = 6;
#else
  static constexpr int32_t kVersion = 3;
#endif

  T4 Q, K, V, B;
  float Sm_scale;
  T4 Out, DO, DK, DV, DQ, DB;
  T2 L;
  mutable LT2 D;
#if AOTRITON_VERSION_MINOR >= 14
  T1 seqinfo_q0, seqinfo_k0;
#else
  T1 cu_seqlens_q, cu_seqlens_k;
#endif
  int32_t Max_seqlen_q = 0;
  int32_t Max_seqlen_k = 0;
#if AOTRITON_VERSION_MINOR >= 14
  T1 seqinfo_q1, seqinfo_k1;
#elif AOTRITON_VERSION_MINOR >= 12
  T1 seq_strides_q, seq_strides_k;
#endif
  float dropout_p;
  T0 philox_seed_ptr, philox_offset1;
  uint64_t philox_offset2;
  int8_t causal_type;
#if AOTRITON_VERSION_MINOR < 14
  int8_t varlen_type = 0;
#endif
  int32_t window_left, window_right;
  mutable LT4 DQ_ACC;
#if AOTRITON_VERSION_MINOR >= 14
  VarlenBits varlen_bits = {};
#endif

  AOTRITON_API attn_bwd_params();
};

AOTRITON_API hipError_t attn_fwd(const attn_fwd_params& params, int32_t params_version, Stream stream,
                                 const attn_options* options = nullptr);

AOTRITON_API hipError_t attn_bwd(const attn_bwd_params& params, int32_t params_version, Stream stream,
                                 const attn_options* options = nullptr);

#if AOTRITON_VERSION_MINOR < 12
// The backward pass by AITER's assembly kernels, which no image pack holds: hipErrorNotSupported for valid arguments.
AOTRITON_API hipError_t aiter_bwd(const attn_bwd_params& params, int32_t params_version, Stream stream,
                                  const attn_options* options = nullptr);
#endif

}  // namespace AOTRITON_NS::v3::flash
