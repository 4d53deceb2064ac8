// Attention calls of every interface version and API level in one form, and what both front ends share: checking tensors against one
// another, and filling an operator's values. api_v2.cpp and api_v3.cpp translate the public structs to it.
#pragma once

#include <aotriton/dtypes.h>
#include <aotriton/util.h>

#include "launch.h"
#include "operators.h"

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

// In window_left and window_right: the causal mask's alignment.
constexpr int32_t kTopLeft = -2147483647, kBottomRight = -2147483646;
constexpr int8_t kNoMask = 0, kWindowed = 3;  // causal_type
constexpr uint64_t kSizeMax = INT32_MAX;

// How sequences are stored: the word of API level 0.14, to which older levels are translated. 0: dense.
constexpr uint32_t kCompact = 0x0b0b, kPadded = 0x0202, kStrided = 0x1313;

struct Varlen {
  uint32_t bits = 0;
  T1 q0, k0, q1, k1;  // seqinfo_*
  int32_t longest_q = 0, longest_k = 0;
  bool lse_by_sequence = false;  // level 0.11: L of packed sequences is (sequences * heads, longest)
};

struct Philox {
  float dropout_p = 0;
  T0 seed, offset1;
  uint64_t offset2 = 0;
};

// A buffer that the caller makes on request: LazyTensor of the public interface.
template <int Rank>
class Lender {
 public:
  virtual ~Lender() = default;
  virtual bool given() const = 0;
  virtual TensorView<Rank> acquire() = 0;  // throws what the caller's callback throws
  virtual void dispose() = 0;
};

struct Attention {
  const char* function = "";
  Verdict verdict;  // of the translation
  T4 Q, K, V, B, Out;
  T2 L;
  float sm_scale = 0;
  Varlen varlen;
  Philox philox;
  int8_t causal_type = 0;
  int32_t window_left = 0, window_right = 0;
  int backend = -1;
};

struct Forward : Attention {
  bool alibi = false;
  T0 philox_seed_output, philox_offset_output;
  T4 encoded_softmax;
  T0 persistent_atomic_counter;
};

struct Backward : Attention {
  T4 DO, DK, DV, DQ, DB;
  Lender<2>* D = nullptr;
  Lender<4>* DQ_ACC = nullptr;
  bool served = true;  // false: arguments are only checked, valid ones get hipErrorNotSupported
};

// The varlen_type, cu_seqlens and seq_strides of levels 0.11 to 0.13 as the word of 0.14.
Varlen older_varlen(Verdict& verdict, int8_t type, int8_t last_type, const T1& cu_seqlens_q, const T1& cu_seqlens_k,
                    const T1& seq_strides_q, const T1& seq_strides_k);

// Sizes of one attention problem. `batch` counts sequences, `seqlen_q` and `seqlen_k` are the longest ones, `planes` and `rows`
// the sizes of the tensors' first and third dimension.
struct Problem {
  uint64_t batch, heads_q, heads_k, seqlen_q, seqlen_k, head_dim, head_dim_v;
  uint64_t planes_q, planes_k, rows_q, rows_k;
  DType dtype;
  uint32_t varlen;      // the word's two bytes of modes; 0 is dense
  bool rows_by_head;    // L and D: rows of a head together (else heads of a row)
  bool rows_packed;     // L and D have a row per token of all sequences (else per sequence and row)
  uint64_t lse_rows;    // rows per sequence in L and D that are not packed
};

// Sizes from Q, K and V, which are checked against one another.
Problem measure(Verdict& verdict, const Attention& call);
void apply_varlen(Verdict& verdict, Problem& problem, const Varlen& varlen);  // varlen.cpp

// A tensor that must have these sizes and dtype, and memory unless it is empty.
void check_shape(Verdict& verdict, const char* name, const T4& t, uint64_t a, uint64_t b, uint64_t c, uint64_t d, DType dtype);
// The same with a unit last stride.
void check4(Verdict& verdict, const char* name, const T4& t, uint64_t a, uint64_t b, uint64_t c, uint64_t d, DType dtype);
void check_output(Verdict& verdict, const char* name, const T4& t);  // no two elements at one address

// L or D: that it holds an element for each row, and the strides between sequences, heads and rows.
struct RowStrides {
  uint64_t z = 0, h = 0, m = 0;
};
RowStrides check_rows(Verdict& verdict, const char* name, const T2& t, const Problem& problem);

// `bounded` sides are those that hide a key of some row.
struct Window {
  bool active = false, bounded_left = false, bounded_right = false;
  int32_t left = 0, right = 0;
};
Window resolve_window(Verdict& verdict, const Attention& call, const Problem& problem);

void check_dropout(Verdict& verdict, const Philox& philox);
void check_backend(Verdict& verdict, int index);
bool is_empty(const T4& t);  // null, or without elements

void put(Verdict& verdict, Cell& cell, uint64_t stride);
void put_rows(Verdict& verdict, Cell* first, const RowStrides& rows);

// A stride to pass on: 0 where it cannot matter, so that leftovers do not spoil alignment. Sizes over 2^31 - 1 were refused.
template <int Rank>
void put_stride(Verdict& verdict, Cell& cell, const TensorView<Rank>& t, int dimension) {
  put(verdict, cell, t && t.size(dimension) > 1 ? t.stride(dimension) : 0);
}

inline void put_strides(Verdict& verdict, Cell* first, const T4& t, int count) {
  for (int i = 0; i < count; ++i) put_stride(verdict, first[i], t, i);
}

// Values that kernels must use when they are not neutral.
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
void check_bias(Verdict& verdict, Required& required, const Attention& call, const Problem& p) {
  const T4& bias = call.B;
  if (!bias) return;
  check_shape(verdict, "B", bias, p.planes_q, p.heads_q, p.rows_q, p.rows_k, p.dtype);
  if (bias.size(3) > 1 && bias.stride(3) != 1) required.add(Op::stride_bn);
  if (p.varlen != 0) verdict.uncovered("B", "bias with variable length");
  if (call.causal_type != kNoMask) verdict.uncovered("B", "bias together with a causal mask or window");
}

constexpr int32_t kMaskNone = 0, kMaskWindow = 1, kMaskBias = 2;  // of the operators' `mask`

// Fill the values that both operators have; `Op` is Fwd or Bwd.
template <class Op>
void put_common(Cell* cells, Required& required, const Problem& p, const Window& window, const Attention& call) {
  const bool dropout = call.philox.dropout_p > 0.0f, bias = static_cast<bool>(call.B);
  cells[Op::batch].i = static_cast<int64_t>(p.batch);
  cells[Op::num_head_q].i = static_cast<int64_t>(p.heads_q);
  cells[Op::num_head_k].i = static_cast<int64_t>(p.heads_k);
  cells[Op::group].i = p.heads_k == 0 ? 1 : static_cast<int64_t>(p.heads_q / p.heads_k);
  cells[Op::seqlen_q].i = static_cast<int64_t>(p.seqlen_q);
  cells[Op::seqlen_k].i = static_cast<int64_t>(p.seqlen_k);
  cells[Op::head_dim].i = static_cast<int64_t>(p.head_dim);
  cells[Op::head_dim_v].i = static_cast<int64_t>(p.head_dim_v);
  cells[Op::width].i = static_cast<int64_t>(p.head_dim > p.head_dim_v ? p.head_dim : p.head_dim_v);
  cells[Op::seqinfo_q0].p = call.varlen.q0.data_ptr();
  cells[Op::seqinfo_q1].p = call.varlen.q1.data_ptr();
  cells[Op::seqinfo_k0].p = call.varlen.k0.data_ptr();
  cells[Op::seqinfo_k1].p = call.varlen.k1.data_ptr();
  cells[Op::varlen_bits].i = p.varlen;
  cells[Op::lse_packed].i = p.rows_packed;
  cells[Op::sm_scale].f = call.sm_scale;
  cells[Op::dropout_p].f = call.philox.dropout_p;
  cells[Op::philox_seed].p = dropout ? call.philox.seed.data_ptr() : nullptr;  // not to be read without dropout: it may be host memory
  cells[Op::philox_offset1].p = dropout ? call.philox.offset1.data_ptr() : nullptr;
  cells[Op::philox_offset2].u = call.philox.offset2;
  cells[Op::dtype].i = p.dtype;
  cells[Op::mask].i = bias ? kMaskBias : window.active ? kMaskWindow : kMaskNone;
  cells[Op::window_left].i = window.left;
  cells[Op::window_right].i = window.right;
  cells[Op::dropout].i = dropout;
  required.add(Op::dtype);
  required.add(Op::head_dim);
  if (p.head_dim_v != p.head_dim) required.add(Op::head_dim_v);
  if (bias || window.active) required.add(Op::mask);
  if (window.bounded_left) required.add(Op::window_left);
  if (window.bounded_right) required.add(Op::window_right);
  if (dropout) required.add(Op::dropout);
  if (p.varlen != 0) required.add(Op::varlen_bits);
  if (p.rows_packed) required.add(Op::lse_packed);
  if (!p.rows_by_head) required.add(Op::stride_lm);
}

// One operator of a call.
struct Part {
  Served which;
  Cell* cells;
  const Required& required;
  Lazy* const* lazies = nullptr;
  size_t lazy_count = 0;
};

// Find the device, bind the operators, launch them in their order; nothing unless all of it is served.
constexpr size_t kMaxParts = 2;
hipError_t serve(State& state, const Part* parts, size_t count, hipStream_t stream);

// The calls behind the public interface.
hipError_t forward(const Forward& call, hipStream_t stream);
hipError_t backward(const Backward& call, hipStream_t stream);
hipError_t dropout_mask(const T4& r, const Philox& philox, hipStream_t stream);
// hipSuccess when the pack of the stream's device serves the gate (kernels/flash/gates.py), or the user permits less.
hipError_t check_gpu(hipStream_t stream, const char* gate);

}  // namespace aotforge
