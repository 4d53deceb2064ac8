// What the attention front ends share: checking tensors against one another, and filling an operator's values.
#pragma once

#include <aotriton/flash.h>

#include "launch.h"

namespace aotforge {

using aotriton::DType;
using aotriton::TensorView;
using T4 = TensorView<4>;
using T2 = TensorView<2>;
using T1 = TensorView<1>;
using T0 = TensorView<0>;

// The first complaint about a call; "malformed" (hipErrorInvalidValue) outranks "not covered" (hipErrorNotSupported).
class Verdict {
 public:
  void malformed(const char* what, const char* reason) { note(hipErrorInvalidValue, what, reason); }
  void uncovered(const char* what, const char* reason) {
    if (error_ == hipSuccess) note(hipErrorNotSupported, what, reason);
  }
  bool ok() const { return error_ == hipSuccess; }
  // The result, logged in one line unless it is hipSuccess.
  hipError_t report(const char* function) const;

 private:
  void note(hipError_t error, const char* what, const char* reason) {
    if (error_ == hipErrorInvalidValue) return;
    error_ = error;
    what_ = what;
    reason_ = reason;
  }
  hipError_t error_ = hipSuccess;
  const char* what_ = "";
  const char* reason_ = "";
};

// Sizes of one attention problem. In compact variable length, `rows_q` and `rows_k` are tokens of all sequences together and
// `batch` counts sequences; else they equal the sequence lengths.
struct Problem {
  uint64_t batch, heads_q, heads_k, seqlen_q, seqlen_k, head_dim, head_dim_v;
  uint64_t planes, rows_q, rows_k;  // sizes of the tensors' first and third dimension
  DType dtype;
  int8_t varlen;
};

// `bounded` sides are those that hide a key of some row.
struct Window {
  bool given = false, bounded_left = false, bounded_right = false;
  int32_t left = 0, right = 0;
};

struct Lengths {
  const T1& cu_seqlens_q;
  const T1& cu_seqlens_k;
  int32_t max_q, max_k;
  int8_t varlen;
};

// Sizes from Q, K and V, which are checked against one another.
Problem measure(Verdict& verdict, const T4& q, const T4& k, const T4& v, const Lengths& lengths);

// A tensor that must have these sizes and dtype, and memory unless it is empty.
void check_shape(Verdict& verdict, const char* name, const T4& t, uint64_t a, uint64_t b, uint64_t c, uint64_t d, DType dtype);
// The same with a unit last stride.
void check4(Verdict& verdict, const char* name, const T4& t, uint64_t a, uint64_t b, uint64_t c, uint64_t d, DType dtype);
void check_rows(Verdict& verdict, const char* name, const T2& t, const Problem& problem);  // L and D
void check_output(Verdict& verdict, const char* name, const T4& t);                        // no two elements at one address

// The window in the operators' terms (kernels/flash/operators.py).
Window resolve_window(Verdict& verdict, int8_t causal_type, int32_t left, int32_t right, const Problem& problem);

struct Philox {
  float dropout_p;
  const T0& seed;
  const T0& offset1;
  uint64_t offset2;
};
void check_dropout(Verdict& verdict, const Philox& philox);
void check_options(Verdict& verdict, const aotriton::v3::flash::attn_options* options);

// A stride to pass on: 0 where it cannot matter, so that leftovers do not spoil alignment. Sizes over 2^31 - 1 were refused.
template <int Rank>
void put_stride(Verdict& verdict, Cell& cell, const TensorView<Rank>& t, int dimension) {
  const uint64_t stride = t && t.size(dimension) > 1 ? t.stride(dimension) : 0;
  if (stride > INT64_MAX) verdict.malformed("stride", "over 2^63 - 1");
  cell.i = static_cast<int64_t>(stride);
}

inline void put_strides(Verdict& verdict, Cell* first, const T4& t, int count) {
  for (int i = 0; i < count; ++i) put_stride(verdict, first[i], t, i);
}

// Strides of L or D by sequence, head and row; the tensor is (batch * heads, rows).
void put_rows(Verdict& verdict, Cell* first, const T2& t, uint64_t heads);

// Values that kernels must heed when they are not neutral.
class Required {
 public:
  void add(uint16_t value) { values_[count_++] = value; }
  const uint16_t* data() const { return values_; }
  size_t size() const { return count_; }

 private:
  uint16_t values_[24];
  size_t count_ = 0;
};

// The optional bias. Its last stride is a value of the operator: kernels that ignore it serve unit strides only.
template <class Op>
void check_bias(Verdict& verdict, Required& required, const T4& bias, const Problem& p) {
  if (!bias) return;
  check_shape(verdict, "B", bias, p.planes, p.heads_q, p.rows_q, p.rows_k, p.dtype);
  if (bias.size(3) > 1 && bias.stride(3) != 1) required.add(Op::stride_bn);
  if (p.varlen != 0) verdict.uncovered("B", "bias with variable length");
}

constexpr int32_t kMaskNone = 0, kMaskWindow = 1, kMaskBias = 2;  // of the operators' `mask`

// The operators' `varlen_bits` of a VarlenType.
int32_t varlen_bits(int8_t type);

// Fill the values that both operators have; `Op` is Fwd or Bwd.
template <class Op>
void put_common(Verdict& verdict, Cell* cells, Required& required, const Problem& p, const Window& window, const Philox& philox, float sm_scale,
                const Lengths& lengths, bool bias) {
  const bool dropout = philox.dropout_p > 0.0f;
  if (bias && window.given) verdict.uncovered("B", "bias together with a window");
  cells[Op::batch].i = static_cast<int64_t>(p.batch);
  cells[Op::num_head_q].i = static_cast<int64_t>(p.heads_q);
  cells[Op::num_head_k].i = static_cast<int64_t>(p.heads_k);
  cells[Op::group].i = p.heads_k == 0 ? 1 : static_cast<int64_t>(p.heads_q / p.heads_k);
  cells[Op::seqlen_q].i = static_cast<int64_t>(p.seqlen_q);
  cells[Op::seqlen_k].i = static_cast<int64_t>(p.seqlen_k);
  cells[Op::head_dim].i = static_cast<int64_t>(p.head_dim);
  cells[Op::head_dim_v].i = static_cast<int64_t>(p.head_dim_v);
  cells[Op::width].i = static_cast<int64_t>(p.head_dim > p.head_dim_v ? p.head_dim : p.head_dim_v);
  cells[Op::seqinfo_q0].p = p.varlen != 0 ? lengths.cu_seqlens_q.data_ptr() : nullptr;
  cells[Op::seqinfo_k0].p = p.varlen != 0 ? lengths.cu_seqlens_k.data_ptr() : nullptr;
  cells[Op::varlen_bits].i = varlen_bits(p.varlen);
  cells[Op::sm_scale].f = sm_scale;
  cells[Op::dropout_p].f = philox.dropout_p;
  cells[Op::philox_seed].p = philox.seed.data_ptr();
  cells[Op::philox_offset1].p = philox.offset1.data_ptr();
  cells[Op::philox_offset2].u = philox.offset2;
  cells[Op::dtype].i = p.dtype;
  cells[Op::mask].i = bias ? kMaskBias : window.given ? kMaskWindow : kMaskNone;
  cells[Op::window_left].i = window.left;
  cells[Op::window_right].i = window.right;
  cells[Op::dropout].i = dropout;
  required.add(Op::dtype);
  required.add(Op::head_dim);
  if (p.head_dim_v != p.head_dim) required.add(Op::head_dim_v);
  if (bias || window.given) required.add(Op::mask);
  if (window.bounded_left) required.add(Op::window_left);
  if (window.bounded_right) required.add(Op::window_right);
  if (dropout) required.add(Op::dropout);
  if (p.varlen != 0) required.add(Op::varlen_bits);
}

// Find the device, bind the operator, launch.
hipError_t serve(State& state, Served which, Cell* cells, const Required& required, Lazy* const* lazies, size_t lazy_count,
                 hipStream_t stream);

// The calls behind the public interface. `serve_it` false: arguments are only checked, valid ones get hipErrorNotSupported.
hipError_t forward(const aotriton::v3::flash::attn_fwd_params& params, hipStream_t stream,
                   const aotriton::v3::flash::attn_options* options, const char* function);
hipError_t backward(const aotriton::v3::flash::attn_bwd_params& params, hipStream_t stream,
                    const aotriton::v3::flash::attn_options* options, const char* function, bool serve_it = true);

}  // namespace aotforge
