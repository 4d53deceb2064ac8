// Version 2 of the interface: check_gpu and the dropout mask at every API level, and up to level 0.12 calls with one argument per value.
#include <aotriton/flash.h>

#include "attention.h"

namespace aotriton::v2::flash {

#if AOTRITON_VERSION_MINOR >= 14
constexpr char kGate[] = "0.14";
#elif AOTRITON_VERSION_MINOR >= 13
constexpr char kGate[] = "0.13";
#elif AOTRITON_VERSION_MINOR >= 12
constexpr char kGate[] = "0.12";
#else
constexpr char kGate[] = "0.11";
#endif

hipError_t check_gpu(Stream stream) { return aotforge::check_gpu(stream.native(), kGate); }

hipError_t debug_simulate_encoded_softmax(TensorView<4> r, float dropout_p, TensorView<0> philox_seed,
                                          TensorView<0> philox_offset1, uint64_t philox_offset2, Stream stream) {
  return aotforge::dropout_mask(r, {dropout_p, philox_seed, philox_offset1, philox_offset2}, stream.native());
}

#if AOTRITON_VERSION_MINOR < 13

namespace {

struct Lengths {
  T1 q, k;
  int32_t longest_q = 0, longest_k = 0;
};

void set_common(aotforge::Attention& call, float sm_scale, float dropout_p, T0 seed, T0 offset1, int64_t offset2, bool is_causal) {
  call.sm_scale = sm_scale;
  call.philox = {dropout_p, seed, offset1, static_cast<uint64_t>(offset2)};
  if (!is_causal) return;
  call.causal_type = aotforge::kWindowed;
  call.window_left = call.window_right = aotforge::kTopLeft;
}

void set_lengths(aotforge::Attention& call, const Lengths& lengths) {
  call.varlen = aotforge::older_varlen(call.verdict, v3::flash::VarlenType::CompactVarlen, v3::flash::VarlenType::CompactVarlen,
                                       lengths.q, lengths.k, {}, {});
  call.varlen.longest_q = lengths.longest_q;
  call.varlen.longest_k = lengths.longest_k;
  call.varlen.lse_by_sequence = AOTRITON_VERSION_MINOR < 12;
}

aotforge::Forward forward_call(const char* function, const T4& q, const T4& k, const T4& v, const T4& b, const T2& lse,
                               const T4& out, T0 seed_output, T0 offset_output, const T4& softmax, T0 counter) {
  aotforge::Forward call;
  call.function = function;
  call.Q = q;
  call.K = k;
  call.V = v;
  call.B = b;
  call.L = lse;
  call.Out = out;
  call.philox_seed_output = seed_output;
  call.philox_offset_output = offset_output;
  call.encoded_softmax = softmax;
  call.persistent_atomic_counter = counter;
  return call;
}

aotforge::Backward backward_call(const char* function, const T4& q, const T4& k, const T4& v, const T4& b, const T4& out,
                                 const T4& dout, const T4& dq, const T4& dk, const T4& dv, const T4& db, const T2& lse) {
  aotforge::Backward call;
  call.function = function;
  call.Q = q;
  call.K = k;
  call.V = v;
  call.B = b;
  call.Out = out;
  call.DO = dout;
  call.DQ = dq;
  call.DK = dk;
  call.DV = dv;
  call.DB = db;
  call.L = lse;
  return call;
}

// Version 2 hands the buffer over at once.
class Given final : public aotforge::Lender<2> {
 public:
  explicit Given(const T2& tensor) : tensor_(tensor) {}
  bool given() const override { return true; }
  T2 acquire() override { return tensor_; }
  void dispose() override {}

 private:
  const T2& tensor_;
};

}  // namespace

hipError_t attn_fwd(T4 q, T4 k, T4 v, T4 b, float sm_scale, T2 softmax_lse, T4 Out, float dropout_p, T0 philox_seed,
                    T0 philox_offset1, int64_t philox_offset2, T0 philox_seed_output, T0 philox_offset_output,
                    T4 encoded_softmax, bool is_causal, T0 atomic_for_causal, Stream stream, FwdExtraArguments*) {
  auto call = forward_call("v2 attn_fwd", q, k, v, b, softmax_lse, Out, philox_seed_output, philox_offset_output,
                           encoded_softmax, atomic_for_causal);
  set_common(call, sm_scale, dropout_p, philox_seed, philox_offset1, philox_offset2, is_causal);
  return aotforge::forward(call, stream.native());
}

hipError_t attn_fwd_compact_varlen(T4 q, T4 k, T4 v, T4 b, T1 cu_seqlens_q, T1 cu_seqlens_k, int32_t max_seqlen_q,
                                   int32_t max_seqlen_k, float sm_scale, T2 softmax_lse, T4 Out, float dropout_p,
                                   T0 philox_seed, T0 philox_offset1, int64_t philox_offset2, T0 philox_seed_output,
                                   T0 philox_offset_output, T4 encoded_softmax, bool is_causal, T0 atomic_for_causal,
                                   Stream stream, FwdExtraArguments*) {
  auto call = forward_call("attn_fwd_compact_varlen", q, k, v, b, softmax_lse, Out, philox_seed_output, philox_offset_output,
                           encoded_softmax, atomic_for_causal);
  set_common(call, sm_scale, dropout_p, philox_seed, philox_offset1, philox_offset2, is_causal);
  set_lengths(call, {cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k});
  return aotforge::forward(call, stream.native());
}

hipError_t attn_bwd(T4 q, T4 k, T4 v, T4 b, float sm_scale, T4 out, T4 dout, T4 dq, T4 dk, T4 dv, T4 db, T2 softmax_lse,
                    T2 delta, float dropout_p, T0 philox_seed, T0 philox_offset1, int64_t philox_offset2, bool is_causal,
                    Stream stream, BwdExtraArguments*) {
  auto call = backward_call("v2 attn_bwd", q, k, v, b, out, dout, dq, dk, dv, db, softmax_lse);
  Given given(delta);
  call.D = &given;
  set_common(call, sm_scale, dropout_p, philox_seed, philox_offset1, philox_offset2, is_causal);
  return aotforge::backward(call, stream.native());
}

hipError_t attn_bwd_fused(T4 q, T4 k, T4 v, T4 b, float sm_scale, T4 out, T4 dout, T4 dq, T4 dk, T4 dv, T4 db,
                          T2 softmax_lse, float dropout_p, T0 philox_seed, T0 philox_offset1, int64_t philox_offset2,
                          bool is_causal, Stream stream, FusedBwdExtraArguments*) {
  auto call = backward_call("attn_bwd_fused", q, k, v, b, out, dout, dq, dk, dv, db, softmax_lse);
  call.served = false;
  set_common(call, sm_scale, dropout_p, philox_seed, philox_offset1, philox_offset2, is_causal);
  return aotforge::backward(call, stream.native());
}

hipError_t attn_bwd_compact_varlen(T4 q, T4 k, T4 v, T1 cu_seqlens_q, T1 cu_seqlens_k, int32_t max_seqlen_q,
                                   int32_t max_seqlen_k, T4 b, float sm_scale, T4 out, T4 dout, T4 dq, T4 dk, T4 dv,
                                   T4 db, T2 softmax_lse, T2 delta, float dropout_p, T0 philox_seed, T0 philox_offset1,
                                   int64_t philox_offset2, bool is_causal, Stream stream, BwdExtraArguments*) {
  auto call = backward_call("attn_bwd_compact_varlen", q, k, v, b, out, dout, dq, dk, dv, db, softmax_lse);
  Given given(delta);
  call.D = &given;
  set_common(call, sm_scale, dropout_p, philox_seed, philox_offset1, philox_offset2, is_causal);
  set_lengths(call, {cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k});
  return aotforge::backward(call, stream.native());
}

#endif

}  // namespace aotriton::v2::flash
