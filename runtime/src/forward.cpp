#include "attention.h"

namespace aotforge {
namespace {

using Params = aotriton::v3::flash::attn_fwd_params;

void check_optional(Verdict& verdict, Required& required, const Params& in, const Problem& p) {
  if (in.L) check_rows(verdict, "L", in.L, p);  // a null one: the caller does not need it, as in PyTorch's inference
  check_bias<Fwd>(verdict, required, in.B, p);
  if (in.A) verdict.uncovered("A", "ALiBi is not supported");
  if (in.encoded_softmax) {
    const T4& r = in.encoded_softmax;
    check4(verdict, "encoded_softmax", r, p.batch, p.heads_q, p.seqlen_q, p.seqlen_k, r.dtype());
    check_output(verdict, "encoded_softmax", r);
    verdict.uncovered("encoded_softmax", "the dropout mask is not written");
  }
}

void put_tensors(Verdict& verdict, Cell* cells, const Params& in) {
  cells[Fwd::Q].p = in.Q.data_ptr();
  cells[Fwd::K].p = in.K.data_ptr();
  cells[Fwd::V].p = in.V.data_ptr();
  cells[Fwd::B].p = in.B.data_ptr();
  cells[Fwd::L].p = in.L.data_ptr();
  cells[Fwd::Out].p = in.Out.data_ptr();
  put_strides(verdict, cells + Fwd::stride_qz, in.Q, 3);
  put_strides(verdict, cells + Fwd::stride_kz, in.K, 3);
  put_strides(verdict, cells + Fwd::stride_vz, in.V, 3);
  put_strides(verdict, cells + Fwd::stride_bz, in.B, 4);
  put_rows(verdict, cells + Fwd::stride_lz, in.L, in.Q.size(1));
  put_strides(verdict, cells + Fwd::stride_oz, in.Out, 3);
  cells[Fwd::philox_seed_output].p = in.philox_seed_output.data_ptr();
  cells[Fwd::philox_offset_output].p = in.philox_offset_output.data_ptr();
  cells[Fwd::persistent_atomic_counter].p = in.persistent_atomic_counter.data_ptr();
}

hipError_t check_and_serve(const Params& in, hipStream_t stream, const aotriton::v3::flash::attn_options* options,
                           const char* function) {
  Verdict verdict;
  Required required;
  Cell cells[Fwd::kCount] = {};
  const Lengths lengths{in.cu_seqlens_q, in.cu_seqlens_k, in.Max_seqlen_q, in.Max_seqlen_k, in.varlen_type};
  const Philox philox{in.dropout_p, in.philox_seed_ptr, in.philox_offset1, in.philox_offset2};
  const Problem p = measure(verdict, in.Q, in.K, in.V, lengths);
  check4(verdict, "Out", in.Out, p.planes, p.heads_q, p.rows_q, p.head_dim_v, p.dtype);
  check_output(verdict, "Out", in.Out);
  check_dropout(verdict, philox);
  check_options(verdict, options);
  check_optional(verdict, required, in, p);
  const Window window = resolve_window(verdict, in.causal_type, in.window_left, in.window_right, p);
  put_tensors(verdict, cells, in);
  put_common<Fwd>(verdict, cells, required, p, window, philox, in.Sm_scale, lengths, static_cast<bool>(in.B));
  if (!verdict.ok()) return verdict.report(function);
  return guarded([&](State& state) { return serve(state, Served::attn_fwd, cells, required, nullptr, 0, stream); });
}

}  // namespace

hipError_t forward(const Params& in, hipStream_t stream, const aotriton::v3::flash::attn_options* options,
                   const char* function) {
  return announced(check_and_serve(in, stream, options, function));
}

}  // namespace aotforge
