// Version 2 of the interface, in terms of version 3's parameters.
#include "attention.h"

namespace aotriton::v2::flash {
namespace {

using Fwd = v3::flash::attn_fwd_params;
using Bwd = v3::flash::attn_bwd_params;

template <class Params>
void set_causal(Params& p, bool is_causal) {
  if (!is_causal) return;
  p.causal_type = v3::flash::CausalType::WindowedAttention;
  p.window_left = p.window_right = v3::flash::WindowValue::TopLeftAligned;
}

template <class Params>
void set_lengths(Params& p, T1 cu_seqlens_q, T1 cu_seqlens_k, int32_t max_seqlen_q, int32_t max_seqlen_k) {
  p.cu_seqlens_q = cu_seqlens_q;
  p.cu_seqlens_k = cu_seqlens_k;
  p.Max_seqlen_q = max_seqlen_q;
  p.Max_seqlen_k = max_seqlen_k;
  p.varlen_type = v3::flash::VarlenType::CompactVarlen;
}

template <class Params>
void set_philox(Params& p, float dropout_p, T0 seed, T0 offset1, int64_t offset2) {
  p.dropout_p = dropout_p;
  p.philox_seed_ptr = seed;
  p.philox_offset1 = offset1;
  p.philox_offset2 = static_cast<uint64_t>(offset2);
}

Fwd forward_params(T4 q, T4 k, T4 v, T4 b, float sm_scale, T2 lse, T4 out, T0 seed_output, T0 offset_output, T4 softmax,
                   T0 counter) {
  Fwd p;
  p.Q = q;
  p.K = k;
  p.V = v;
  p.B = b;
  p.Sm_scale = sm_scale;
  p.L = lse;
  p.Out = out;
  p.philox_seed_output = seed_output;
  p.philox_offset_output = offset_output;
  p.encoded_softmax = softmax;
  p.persistent_atomic_counter = counter;
  return p;
}

Bwd backward_params(T4 q, T4 k, T4 v, T4 b, float sm_scale, T4 out, T4 dout, T4 dq, T4 dk, T4 dv, T4 db, T2 lse) {
  Bwd p;
  p.Q = q;
  p.K = k;
  p.V = v;
  p.B = b;
  p.Sm_scale = sm_scale;
  p.Out = out;
  p.DO = dout;
  p.DQ = dq;
  p.DK = dk;
  p.DV = dv;
  p.DB = db;
  p.L = lse;
  return p;
}

// Version 2 hands the buffer over at once.
void set_delta(Bwd& p, T2& delta) {
  p.D.cookie = &delta;
  p.D.acquire = [](void* cookie) { return *static_cast<T2*>(cookie); };
  p.D.dispose = [](void*) {};
}

}  // namespace

hipError_t attn_fwd(T4 q, T4 k, T4 v, T4 b, float sm_scale, T2 softmax_lse, T4 Out, float dropout_p, T0 philox_seed,
                    T0 philox_offset1, int64_t philox_offset2, T0 philox_seed_output, T0 philox_offset_output,
                    T4 encoded_softmax, bool is_causal, T0 atomic_for_causal, Stream stream, FwdExtraArguments*) {
  Fwd p = forward_params(q, k, v, b, sm_scale, softmax_lse, Out, philox_seed_output, philox_offset_output,
                         encoded_softmax, atomic_for_causal);
  set_philox(p, dropout_p, philox_seed, philox_offset1, philox_offset2);
  set_causal(p, is_causal);
  return aotforge::forward(p, stream.native(), nullptr, "v2 attn_fwd");
}

hipError_t attn_fwd_compact_varlen(T4 q, T4 k, T4 v, T4 b, T1 cu_seqlens_q, T1 cu_seqlens_k, int32_t max_seqlen_q,
                                   int32_t max_seqlen_k, float sm_scale, T2 softmax_lse, T4 Out, float dropout_p,
                                   T0 philox_seed, T0 philox_offset1, int64_t philox_offset2, T0 philox_seed_output,
                                   T0 philox_offset_output, T4 encoded_softmax, bool is_causal, T0 atomic_for_causal,
                                   Stream stream, FwdExtraArguments*) {
  Fwd p = forward_params(q, k, v, b, sm_scale, softmax_lse, Out, philox_seed_output, philox_offset_output,
                         encoded_softmax, atomic_for_causal);
  set_lengths(p, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k);
  set_philox(p, dropout_p, philox_seed, philox_offset1, philox_offset2);
  set_causal(p, is_causal);
  return aotforge::forward(p, stream.native(), nullptr, "attn_fwd_compact_varlen");
}

hipError_t attn_bwd(T4 q, T4 k, T4 v, T4 b, float sm_scale, T4 out, T4 dout, T4 dq, T4 dk, T4 dv, T4 db, T2 softmax_lse,
                    T2 delta, float dropout_p, T0 philox_seed, T0 philox_offset1, int64_t philox_offset2, bool is_causal,
                    Stream stream, BwdExtraArguments*) {
  Bwd p = backward_params(q, k, v, b, sm_scale, out, dout, dq, dk, dv, db, softmax_lse);
  set_delta(p, delta);
  set_philox(p, dropout_p, philox_seed, philox_offset1, philox_offset2);
  set_causal(p, is_causal);
  return aotforge::backward(p, stream.native(), nullptr, "v2 attn_bwd");
}

hipError_t attn_bwd_fused(T4 q, T4 k, T4 v, T4 b, float sm_scale, T4 out, T4 dout, T4 dq, T4 dk, T4 dv, T4 db,
                          T2 softmax_lse, float dropout_p, T0 philox_seed, T0 philox_offset1, int64_t philox_offset2,
                          bool is_causal, Stream stream, FusedBwdExtraArguments*) {
  Bwd p = backward_params(q, k, v, b, sm_scale, out, dout, dq, dk, dv, db, softmax_lse);
  set_philox(p, dropout_p, philox_seed, philox_offset1, philox_offset2);
  set_causal(p, is_causal);
  return aotforge::backward(p, stream.native(), nullptr, "attn_bwd_fused", false);
}

hipError_t attn_bwd_compact_varlen(T4 q, T4 k, T4 v, T1 cu_seqlens_q, T1 cu_seqlens_k, int32_t max_seqlen_q,
                                   int32_t max_seqlen_k, T4 b, float sm_scale, T4 out, T4 dout, T4 dq, T4 dk, T4 dv,
                                   T4 db, T2 softmax_lse, T2 delta, float dropout_p, T0 philox_seed, T0 philox_offset1,
                                   int64_t philox_offset2, bool is_causal, Stream stream, BwdExtraArguments*) {
  Bwd p = backward_params(q, k, v, b, sm_scale, out, dout, dq, dk, dv, db, softmax_lse);
  set_delta(p, delta);
  set_lengths(p, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k);
  set_philox(p, dropout_p, philox_seed, philox_offset1, philox_offset2);
  set_causal(p, is_causal);
  return aotforge::backward(p, stream.native(), nullptr, "attn_bwd_compact_varlen");
}

hipError_t check_gpu(Stream stream) {
  return aotforge::guarded([&](aotforge::State& state) {
    aotforge::Device* device = nullptr;
    if (const hipError_t error = state.device(stream.native(), &device); error != hipSuccess) return error;
    for (const auto which : {aotforge::Served::attn_fwd, aotforge::Served::attn_bwd}) {
      int index = -1;
      const hipError_t error = device->served(which, &index);
      // a pack without attention is none for these entry points; one without the backward pass serves inference
      if (error == hipErrorInvalidSource) return error;
      if (error != hipSuccess && which == aotforge::Served::attn_fwd) return hipErrorNoBinaryForGpu;
    }
    return hipSuccess;
  });
}

hipError_t debug_simulate_encoded_softmax(T4 r, float dropout_p, T0 philox_seed, T0 philox_offset1,
                                          uint64_t philox_offset2, Stream) {
  aotforge::Verdict verdict;
  aotforge::check4(verdict, "r", r, r.size(0), r.size(1), r.size(2), r.size(3), r.dtype());
  aotforge::check_output(verdict, "r", r);
  aotforge::check_dropout(verdict, {dropout_p, philox_seed, philox_offset1, philox_offset2});
  if (r.dtype() == kUnknown) verdict.malformed("r", "has no dtype");
  verdict.uncovered("arguments", "there are no kernels for this entry point");
  return aotforge::announced(verdict.report("debug_simulate_encoded_softmax"));
}

}  // namespace aotriton::v2::flash
