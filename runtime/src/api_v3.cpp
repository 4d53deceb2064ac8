// Version 3 of the interface: the params of this library's API level, field by field, as calls.
#include <aotriton/flash.h>

#include <cstring>

#include "attention.h"
#include "log.h"
#if AOTRITON_VERSION_MINOR >= 14
#include "api_older.h"
#endif

namespace aotriton {

template class TensorView<1>;
template class TensorView<2>;
template class TensorView<3>;
template class TensorView<4>;

namespace v3::flash {
namespace {

template <int Rank>
class Lent final : public aotforge::Lender<Rank> {
 public:
  explicit Lent(LazyTensor<Rank>& lazy) : lazy_(lazy) {}
#if AOTRITON_VERSION_MINOR >= 12
  bool given() const override { return lazy_.eager || lazy_.acquire != nullptr; }
  TensorView<Rank> acquire() override { return lazy_.eager ? lazy_.eager : lazy_.acquire(&lazy_); }
  void dispose() override {
    if (!lazy_.eager && lazy_.dispose != nullptr) lazy_.dispose(&lazy_);
  }
#else
  bool given() const override { return lazy_.acquire != nullptr; }
  TensorView<Rank> acquire() override { return lazy_.acquire(lazy_.cookie); }
  void dispose() override {
    if (lazy_.dispose != nullptr) lazy_.dispose(lazy_.cookie);
  }
#endif

 private:
  LazyTensor<Rank>& lazy_;
};

#if AOTRITON_VERSION_MINOR >= 14
template <class Params>
void set_varlen(aotforge::Attention& call, const Params& p) {
  uint32_t bits;
  static_assert(sizeof bits == sizeof p.varlen_bits, "the word that kernels see");
  std::memcpy(&bits, &p.varlen_bits, sizeof bits);
  call.varlen = {bits, p.seqinfo_q0, p.seqinfo_k0, p.seqinfo_q1, p.seqinfo_k1};
}

template <class Params>
void set_older_varlen(aotforge::Attention& call, const Params& p) {
  constexpr int8_t strided = 3;
  call.varlen = aotforge::older_varlen(call.verdict, p.varlen_type, strided, p.cu_seqlens_q, p.cu_seqlens_k, p.seq_strides_q,
                                       p.seq_strides_k);
}
void set_varlen(aotforge::Attention& call, const aotforge::older::attn_fwd_params& p) { set_older_varlen(call, p); }
void set_varlen(aotforge::Attention& call, const aotforge::older::attn_bwd_params& p) { set_older_varlen(call, p); }
#elif AOTRITON_VERSION_MINOR >= 12
template <class Params>
void set_varlen(aotforge::Attention& call, const Params& p) {
  call.varlen = aotforge::older_varlen(call.verdict, p.varlen_type, VarlenType::StridedVarlen, p.cu_seqlens_q, p.cu_seqlens_k,
                                       p.seq_strides_q, p.seq_strides_k);
}
#else
template <class Params>
void set_varlen(aotforge::Attention& call, const Params& p) {
  call.varlen =
      aotforge::older_varlen(call.verdict, p.varlen_type, VarlenType::PaddedVarlen, p.cu_seqlens_q, p.cu_seqlens_k, {}, {});
  call.varlen.lse_by_sequence = true;
}
#endif

template <class Params>
void set_common(aotforge::Attention& call, const char* function, const Params& p, const attn_options* options) {
  call.function = function;
  call.Q = p.Q;
  call.K = p.K;
  call.V = p.V;
  call.B = p.B;
  call.L = p.L;
  call.Out = p.Out;
  call.sm_scale = p.Sm_scale;
  set_varlen(call, p);
  call.varlen.longest_q = p.Max_seqlen_q;
  call.varlen.longest_k = p.Max_seqlen_k;
  call.philox = {p.dropout_p, p.philox_seed_ptr, p.philox_offset1, p.philox_offset2};
  call.causal_type = p.causal_type;
  call.window_left = p.window_left;
  call.window_right = p.window_right;
  if (options != nullptr) call.backend = options->force_backend_index;  // `deterministic` needs nothing: every kernel is
}

template <class Params>
hipError_t serve_forward(const Params& p, Stream stream, const attn_options* options) {
  aotforge::Forward call;
  set_common(call, "attn_fwd", p, options);
  call.alibi = static_cast<bool>(p.A);
  call.philox_seed_output = p.philox_seed_output;
  call.philox_offset_output = p.philox_offset_output;
  call.encoded_softmax = p.encoded_softmax;
  call.persistent_atomic_counter = p.persistent_atomic_counter;
  return aotforge::forward(call, stream.native());
}

template <class Params>
hipError_t serve_backward(const Params& p, Stream stream, const attn_options* options, const char* function, bool served) {
  aotforge::Backward call;
  set_common(call, function, p, options);
  call.DO = p.DO;
  call.DK = p.DK;
  call.DV = p.DV;
  call.DQ = p.DQ;
  call.DB = p.DB;
  Lent<2> delta(p.D);
  Lent<4> accumulator(p.DQ_ACC);
  call.D = &delta;
  call.DQ_ACC = &accumulator;
  call.served = served;
  return aotforge::backward(call, stream.native());
}

hipError_t other_version(const char* function, int32_t version, int32_t ours) {
  aotforge::log_advice(aotforge::Level::error, aotforge::kWhichLibrary, "%s: params of version %d, this library's is %d", function, version, ours);
  return aotforge::announced(hipErrorInvalidSymbol);
}

}  // namespace

attn_fwd_params::attn_fwd_params()
    : Sm_scale(0), dropout_p(0), philox_offset2(0), causal_type(CausalType::None), window_left(0), window_right(0) {}

attn_bwd_params::attn_bwd_params()
    : Sm_scale(0), dropout_p(0), philox_offset2(0), causal_type(CausalType::None), window_left(0), window_right(0) {}

hipError_t attn_fwd(const attn_fwd_params& params, int32_t params_version, Stream stream, const attn_options* options) {
  if (params_version == attn_fwd_params::kVersion) return serve_forward(params, stream, options);
#if AOTRITON_VERSION_MINOR >= 14
  using Older = aotforge::older::attn_fwd_params;
  if (params_version == Older::kVersion) return serve_forward(reinterpret_cast<const Older&>(params), stream, options);
#endif
  return other_version("attn_fwd", params_version, attn_fwd_params::kVersion);
}

hipError_t attn_bwd(const attn_bwd_params& params, int32_t params_version, Stream stream, const attn_options* options) {
  if (params_version == attn_bwd_params::kVersion) return serve_backward(params, stream, options, "attn_bwd", true);
#if AOTRITON_VERSION_MINOR >= 14
  using Older = aotforge::older::attn_bwd_params;
  if (params_version == Older::kVersion)
    return serve_backward(reinterpret_cast<const Older&>(params), stream, options, "attn_bwd", true);
#endif
  return other_version("attn_bwd", params_version, attn_bwd_params::kVersion);
}

#if AOTRITON_VERSION_MINOR < 12
hipError_t aiter_bwd(const attn_bwd_params& params, int32_t params_version, Stream stream, const attn_options* options) {
  if (params_version == attn_bwd_params::kVersion) return serve_backward(params, stream, options, "aiter_bwd", false);
  return other_version("aiter_bwd", params_version, attn_bwd_params::kVersion);
}
#endif

}  // namespace v3::flash
}  // namespace aotriton
