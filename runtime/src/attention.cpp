#include "attention.h"

#include <algorithm>

#include "log.h"

namespace aotforge {
namespace {

using aotriton::v3::flash::CausalType;
using aotriton::v3::flash::VarlenType;
using aotriton::v3::flash::WindowValue;

constexpr uint64_t kSizeMax = INT32_MAX;
constexpr uint64_t kRowsMax = uint64_t{1} << 30;  // kernels add two positions, or a position and a tile, in 32 bits

bool is_sentinel(int32_t value) { return value == WindowValue::TopLeftAligned || value == WindowValue::BottomRightAligned; }

void check_lengths(Verdict& verdict, const char* name, const T1& t, uint64_t batch, int32_t longest, uint64_t rows) {
  if (!t) verdict.malformed(name, "is null");
  if (t.dtype() != aotriton::kInt32) verdict.malformed(name, "is not int32");
  if (t.size(0) != batch + 1) verdict.malformed(name, "does not have batch + 1 elements");
  if (t.size(0) > 1 && t.stride(0) != 1) verdict.malformed(name, "is not contiguous");
  if (longest < 0 || static_cast<uint64_t>(longest) > rows) verdict.malformed(name, "longest sequence is out of bounds");
}

void apply_lengths(Verdict& verdict, Problem& p, const Lengths& lengths) {
  p.varlen = lengths.varlen;
  if (p.varlen == VarlenType::None) return;
  if (p.varlen != VarlenType::CompactVarlen && p.varlen != VarlenType::PaddedVarlen)
    return verdict.malformed("varlen_type", "is none that this interface has");
  if (p.varlen == VarlenType::CompactVarlen) {
    if (p.planes != 1) verdict.malformed("Q", "compact variable length wants a first dimension of 1");
    if (lengths.cu_seqlens_q.size(0) < 1) return verdict.malformed("cu_seqlens_q", "is empty");
    p.batch = lengths.cu_seqlens_q.size(0) - 1;
    if (p.batch > kSizeMax) verdict.uncovered("cu_seqlens_q", "more than 2^31 - 1 sequences");
  }
  check_lengths(verdict, "cu_seqlens_q", lengths.cu_seqlens_q, p.batch, lengths.max_q, p.rows_q);
  check_lengths(verdict, "cu_seqlens_k", lengths.cu_seqlens_k, p.batch, lengths.max_k, p.rows_k);
  p.seqlen_q = static_cast<uint64_t>(std::max(lengths.max_q, 0));
  p.seqlen_k = static_cast<uint64_t>(std::max(lengths.max_k, 0));
  // PyTorch passes 0 where it does not know; the rows of all sequences bound each one's
  if (p.varlen == VarlenType::CompactVarlen && p.seqlen_k == 0) p.seqlen_k = p.rows_k;
}

int32_t clamp(int64_t value, int64_t low, int64_t high) { return static_cast<int32_t>(std::clamp(value, low, high)); }

}  // namespace

hipError_t Verdict::report(const char* function) const {
  if (error_ != hipSuccess) log(Level::warn, "%s: %s: %s", function, what_, reason_);
  return error_;
}

Problem measure(Verdict& verdict, const T4& q, const T4& k, const T4& v, const Lengths& lengths) {
  Problem p{};
  p.planes = p.batch = q.size(0);
  p.heads_q = q.size(1);
  p.heads_k = k.size(1);
  p.rows_q = p.seqlen_q = q.size(2);
  p.rows_k = p.seqlen_k = k.size(2);
  p.head_dim = q.size(3);
  p.head_dim_v = v.size(3);
  p.dtype = q.dtype();
  if (p.dtype == aotriton::kUnknown) verdict.malformed("Q", "has no dtype");
  for (const uint64_t size : {p.planes, p.heads_q, p.heads_k, p.rows_q, p.rows_k, p.head_dim, p.head_dim_v})
    if (size > kSizeMax) {
      verdict.uncovered("Q, K, V", "a size is over 2^31 - 1");
      return p;
    }
  if (p.rows_q > kRowsMax || p.rows_k > kRowsMax) verdict.uncovered("Q, K, V", "more than 2^30 rows");
  if (p.heads_k == 0 ? p.heads_q != 0 : p.heads_q % p.heads_k != 0)
    verdict.malformed("Q", "heads are not a multiple of K's");
  if (p.head_dim == 0) verdict.malformed("Q", "head_dim is zero");
  check4(verdict, "Q", q, p.planes, p.heads_q, p.rows_q, p.head_dim, p.dtype);
  check4(verdict, "K", k, p.planes, p.heads_k, p.rows_k, p.head_dim, p.dtype);
  check4(verdict, "V", v, p.planes, p.heads_k, p.rows_k, p.head_dim_v, p.dtype);
  apply_lengths(verdict, p, lengths);
  return p;
}

void check_shape(Verdict& verdict, const char* name, const T4& t, uint64_t a, uint64_t b, uint64_t c, uint64_t d, DType dtype) {
  if (t.size(0) != a || t.size(1) != b || t.size(2) != c || t.size(3) != d) verdict.malformed(name, "sizes do not agree");
  if (t.dtype() != dtype) verdict.malformed(name, "dtype does not agree");
  if (!t && a != 0 && b != 0 && c != 0 && d != 0) verdict.malformed(name, "is null");
}

void check4(Verdict& verdict, const char* name, const T4& t, uint64_t a, uint64_t b, uint64_t c, uint64_t d, DType dtype) {
  check_shape(verdict, name, t, a, b, c, d, dtype);
  if (d > 1 && t.stride(3) != 1) verdict.malformed(name, "last stride is not 1");
}

void check_rows(Verdict& verdict, const char* name, const T2& t, const Problem& p) {
  if (t.dtype() != aotriton::kFloat32) verdict.malformed(name, "is not float32");
  if (t.size(1) > 1 && t.stride(1) != 1) verdict.malformed(name, "last stride is not 1");
  // the variable-length layouts of these are a matter between caller and kernel
  if (p.varlen == VarlenType::None && (t.size(0) != p.batch * p.heads_q || t.size(1) != p.seqlen_q))
    verdict.malformed(name, "sizes are not (batch * heads, seqlen_q)");
  if (t.size(0) > 1 && t.size(1) > 0 && t.stride(0) < t.size(1)) verdict.malformed(name, "rows overlap");
  if (!t && p.planes != 0 && p.heads_q != 0 && p.rows_q != 0) verdict.malformed(name, "is null");
}

void check_output(Verdict& verdict, const char* name, const T4& t) {
  for (int i = 0; i < 4; ++i)
    if (t.size(i) > 1 && t.stride(i) == 0) verdict.malformed(name, "is an output with a zero stride");
}

Window resolve_window(Verdict& verdict, int8_t causal_type, int32_t left, int32_t right, const Problem& p) {
  Window window;
  if (causal_type == CausalType::None) return window;
  if (causal_type != CausalType::WindowedAttention) {
    verdict.malformed("causal_type", "is none that this interface has");
    return window;
  }
  const auto q = static_cast<int64_t>(p.seqlen_q), k = static_cast<int64_t>(p.seqlen_k);
  window.given = true;
  window.bounded_left = !is_sentinel(left) && left < q - 1;
  window.bounded_right = is_sentinel(right) || right < k - 1;
  if (p.varlen != VarlenType::None) {  // sequences differ: the kernel resolves each one's
    window.left = left;
    window.right = right;
    return window;
  }
  window.left = is_sentinel(left) ? static_cast<int32_t>(q) : clamp(left, -k, q);
  window.right = clamp(!is_sentinel(right) ? right : right == WindowValue::TopLeftAligned ? 0 : k - q, -q, k);
  return window;
}

void put_rows(Verdict& verdict, Cell* first, const T2& t, uint64_t heads) {
  put_stride(verdict, first[1], t, 0);
  if (first[1].i != 0 && heads > static_cast<uint64_t>(INT64_MAX / first[1].i)) verdict.malformed("stride", "over 2^63 - 1");
  first[0].i = first[1].i * static_cast<int64_t>(heads);
  first[2].i = 1;
}

int32_t varlen_bits(int8_t type) {
  if (type == VarlenType::CompactVarlen) return 0x0b0b;
  return type == VarlenType::PaddedVarlen ? 0x0202 : 0;
}

void check_dropout(Verdict& verdict, const Philox& philox) {
  if (!(philox.dropout_p >= 0.0f && philox.dropout_p <= 1.0f)) verdict.malformed("dropout_p", "is not within 0 and 1");
  if (philox.dropout_p > 0.0f && (!philox.seed || !philox.offset1))
    verdict.malformed("philox_seed, philox_offset1", "dropout without a seed");
}

void check_options(Verdict& verdict, const aotriton::v3::flash::attn_options* options) {
  if (options != nullptr && options->force_backend_index != -1 && options->force_backend_index != 0)
    verdict.uncovered("force_backend_index", "there is no such back end");
}

hipError_t serve(State& state, Served which, Cell* cells, const Required& required, Lazy* const* lazies, size_t lazy_count,
                 hipStream_t stream) {
  Device* device = nullptr;
  int ordinal = -1;
  if (const hipError_t error = state.device(stream, &device, &ordinal); error != hipSuccess) return error;
  int index = -1;
  if (const hipError_t error = device->served(which, &index); error != hipSuccess) return error;
  const Call call{index, cells, required.data(), required.size(), lazies, lazy_count};
  return launch(*device, ordinal, call, stream);
}

}  // namespace aotforge
