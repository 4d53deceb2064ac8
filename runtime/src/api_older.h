// The params of levels 0.12 and 0.13 (versions 3 and 6), which a library of level 0.14 takes too. Layouts: compat/api_levels.yaml.
#pragma once

#include <aotriton/util.h>

#include <cstddef>

namespace aotforge::older {

using aotriton::LazyTensor;
using aotriton::TensorView;
using T4 = TensorView<4>;
using T2 = TensorView<2>;
using T1 = TensorView<1>;
using T0 = TensorView<0>;

struct attn_fwd_params {
  static constexpr int32_t kVersion = 3;
  T4 Q, K, V, B;
  T2 A;
  float Sm_scale;
  T2 L;
  T4 Out;
  T1 cu_seqlens_q, cu_seqlens_k;
  int32_t Max_seqlen_q, Max_seqlen_k;
  T1 seq_strides_q, seq_strides_k;
  float dropout_p;
  T0 philox_seed_ptr, philox_offset1;
  uint64_t philox_offset2;
  T0 philox_seed_output, philox_offset_output;
  T4 encoded_softmax;
  T0 persistent_atomic_counter;
  int8_t causal_type, varlen_type;
  int32_t window_left, window_right;
};
static_assert(sizeof(attn_fwd_params) == 832 && offsetof(attn_fwd_params, window_right) == 824, "version 3");

struct attn_bwd_params {
  static constexpr int32_t kVersion = 6;
  T4 Q, K, V, B;
  float Sm_scale;
  T4 Out, DO, DK, DV, DQ, DB;
  T2 L;
  mutable LazyTensor<2> D;
  T1 cu_seqlens_q, cu_seqlens_k;
  int32_t Max_seqlen_q, Max_seqlen_k;
  T1 seq_strides_q, seq_strides_k;
  float dropout_p;
  T0 philox_seed_ptr, philox_offset1;
  uint64_t philox_offset2;
  int8_t causal_type, varlen_type;
  int32_t window_left, window_right;
  mutable LazyTensor<4> DQ_ACC;
};
static_assert(sizeof(attn_bwd_params) == 1232 && offsetof(attn_bwd_params, DQ_ACC) == 1128, "version 6");

}  // namespace aotforge::older
