#include "attention.h"
#include "log.h"

namespace aotriton {

template class TensorView<1>;
template class TensorView<2>;
template class TensorView<3>;
template class TensorView<4>;

namespace v3::flash {
namespace {

template <class Params>
bool version_agrees(const char* function, int32_t version) {
  if (version == Params::kVersion) return true;
  aotforge::log(aotforge::Level::error, "%s: params of version %d, this library's is %d", function, version, Params::kVersion);
  return false;
}

}  // namespace

attn_fwd_params::attn_fwd_params()
    : Sm_scale(0), dropout_p(0), philox_offset2(0), causal_type(CausalType::None), window_left(0), window_right(0) {}

attn_bwd_params::attn_bwd_params()
    : Sm_scale(0), dropout_p(0), philox_offset2(0), causal_type(CausalType::None), window_left(0), window_right(0) {}

hipError_t attn_fwd(const attn_fwd_params& params, int32_t params_version, Stream stream, const attn_options* options) {
  if (!version_agrees<attn_fwd_params>("attn_fwd", params_version)) return aotforge::announced(hipErrorInvalidSymbol);
  return aotforge::forward(params, stream.native(), options, "attn_fwd");
}

hipError_t attn_bwd(const attn_bwd_params& params, int32_t params_version, Stream stream, const attn_options* options) {
  if (!version_agrees<attn_bwd_params>("attn_bwd", params_version)) return aotforge::announced(hipErrorInvalidSymbol);
  return aotforge::backward(params, stream.native(), options, "attn_bwd");
}

hipError_t aiter_bwd(const attn_bwd_params& params, int32_t params_version, Stream stream, const attn_options* options) {
  if (!version_agrees<attn_bwd_params>("aiter_bwd", params_version)) return aotforge::announced(hipErrorInvalidSymbol);
  return aotforge::backward(params, stream.native(), options, "aiter_bwd", false);
}

}  // namespace v3::flash
}  // namespace aotriton
