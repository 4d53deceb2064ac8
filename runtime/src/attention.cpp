#include "attention.h"

#include <algorithm>

#include "log.h"

namespace aotforge {
namespace {

constexpr uint64_t kRowsMax = uint64_t{1} << 30;  // kernels add two positions, or a position and a tile, in 32 bits

bool is_sentinel(int32_t value) { return value == kTopLeft || value == kBottomRight; }

int32_t clamp(int64_t value, int64_t low, int64_t high) { return static_cast<int32_t>(std::clamp(value, low, high)); }

bool is_seed(DType dtype) { return dtype == aotriton::kInt64 || dtype == aotriton::kUInt64; }

}  // namespace

hipError_t Verdict::report(const char* function) const {
  const char* advice = error_ == hipErrorNotSupported
                           ? "torch.nn.attention.sdpa_kernel(SDPBackend.MATH) computes it without this library"
                           : kWhichLibrary;
  if (error_ != hipSuccess) log_advice(Level::warn, advice, "%s: %s: %s", function, what_, reason_);
  return error_;
}

bool is_empty(const T4& t) { return !t || t.size(0) == 0 || t.size(1) == 0 || t.size(2) == 0 || t.size(3) == 0; }

Problem measure(Verdict& verdict, const Attention& call) {
  const T4 &q = call.Q, &k = call.K, &v = call.V;
  Problem p{};
  p.rows_by_head = true;
  p.lse_rows = q.size(2);
  p.planes_q = p.batch = q.size(0);
  p.planes_k = k.size(0);
  p.heads_q = q.size(1);
  p.heads_k = k.size(1);
  p.rows_q = p.seqlen_q = q.size(2);
  p.rows_k = p.seqlen_k = k.size(2);
  p.head_dim = q.size(3);
  p.head_dim_v = v.size(3);
  p.dtype = q.dtype();
  if (p.dtype == aotriton::kUnknown) verdict.malformed("Q", "has no dtype");
  for (const uint64_t size : {p.planes_q, p.planes_k, p.heads_q, p.heads_k, p.rows_q, p.rows_k, p.head_dim, p.head_dim_v})
    if (size > kSizeMax) {
      verdict.uncovered("Q, K, V", "a size is over 2^31 - 1");
      return p;
    }
  if (p.rows_q > kRowsMax || p.rows_k > kRowsMax) verdict.uncovered("Q, K, V", "more than 2^30 rows");
  if (p.heads_k == 0 ? p.heads_q != 0 : p.heads_q % p.heads_k != 0)
    verdict.malformed("Q", "heads are not a multiple of K's");
  if (p.head_dim == 0) verdict.malformed("Q", "head_dim is zero");
  if (p.head_dim_v == 0) verdict.malformed("V", "head_dim is zero");
  check4(verdict, "Q", q, p.planes_q, p.heads_q, p.rows_q, p.head_dim, p.dtype);
  check4(verdict, "K", k, p.planes_k, p.heads_k, p.rows_k, p.head_dim, p.dtype);
  check4(verdict, "V", v, p.planes_k, p.heads_k, p.rows_k, p.head_dim_v, p.dtype);
  apply_varlen(verdict, p, call.varlen);
  return p;
}

void check_shape(Verdict& verdict, const char* name, const T4& t, uint64_t a, uint64_t b, uint64_t c, uint64_t d, DType dtype) {
  const bool needed = a != 0 && b != 0 && c != 0 && d != 0;
  if (!t && needed) return verdict.malformed(name, "is null");  // the other fields of a null view may be unset
  if (!t) return;
  if (t.size(0) != a || t.size(1) != b || t.size(2) != c || t.size(3) != d) verdict.malformed(name, "sizes do not agree");
  if (t.dtype() != dtype) verdict.malformed(name, "dtype does not agree");
}

void check4(Verdict& verdict, const char* name, const T4& t, uint64_t a, uint64_t b, uint64_t c, uint64_t d, DType dtype) {
  check_shape(verdict, name, t, a, b, c, d, dtype);
  if (t && d > 1 && t.stride(3) != 1) verdict.malformed(name, "last stride is not 1");
}

namespace {

// L as PyTorch's memory-efficient path hands it with packed sequences, (sequences * heads, longest query): contiguous memory in which
// (heads, tokens) has room, which is how it is used.
bool is_flat_memory(const T2& t, const Problem& p) {
  const bool contiguous = t.size(0) <= 1 || t.stride(0) == t.size(1);
  if (!contiguous || t.size(1) == 0 || t.size(0) != p.batch * p.heads_q) return false;
  const uint64_t needed = p.heads_q * p.rows_q;  // below 2^62, or the call was refused
  return t.size(0) >= needed / t.size(1) + (needed % t.size(1) != 0);
}

}  // namespace

RowStrides check_rows(Verdict& verdict, const char* name, const T2& t, const Problem& p) {
  if (!t && p.batch != 0 && p.heads_q != 0 && p.rows_q != 0) verdict.malformed(name, "is null");
  if (!t) return {};
  if (t.dtype() != aotriton::kFloat32) verdict.malformed(name, "is not float32");
  if (t.size(1) > 1 && t.stride(1) != 1) verdict.malformed(name, "last stride is not 1");
  if (t.size(0) > 1 && t.size(1) > 0 && t.stride(0) < t.size(1)) verdict.malformed(name, "rows overlap");
  const uint64_t pitch = t.size(0) > 1 ? t.stride(0) : t.size(1);
  if (pitch > INT64_MAX >> 31) {  // products below stay in 64 bits: more than 2^31 - 1 heads or rows are uncovered anyway
    verdict.uncovered(name, "the pitch of its rows is over 2^32");
    return {};
  }
  const uint64_t lines = p.rows_packed ? p.heads_q : p.batch * p.heads_q;
  const uint64_t rows = p.rows_packed ? p.rows_q : p.lse_rows;
  if (p.rows_by_head) {
    if (p.rows_packed && is_flat_memory(t, p)) return {0, rows, 1};
    const bool fits = p.varlen == 0 ? t.size(1) == rows : t.size(1) >= rows;
    if (t.size(0) != lines || !fits)
      verdict.malformed(name, p.rows_packed ? "sizes are not (heads, tokens)" : "sizes are not (sequences * heads, longest sequence)");
    return {p.rows_packed ? 0 : p.heads_q * pitch, pitch, 1};
  }
  const uint64_t sequences = p.rows_packed ? 1 : p.batch;
  if (t.size(1) != p.heads_q || t.size(0) < sequences * rows)
    verdict.malformed(name, p.rows_packed ? "sizes are not (tokens, heads)" : "sizes are not (sequences * longest sequence, heads)");
  return {p.rows_packed ? 0 : rows * pitch, 1, pitch};
}

void check_output(Verdict& verdict, const char* name, const T4& t) {
  if (!t) return;
  for (int i = 0; i < 4; ++i)
    if (t.size(i) > 1 && t.stride(i) == 0) verdict.malformed(name, "is an output with a zero stride");
}

Window resolve_window(Verdict& verdict, const Attention& call, const Problem& p) {
  Window window;
  if (call.causal_type == kNoMask) return window;  // the numbers may be unset
  if (call.causal_type != kWindowed) {
    verdict.malformed("causal_type", "is none that this interface has");
    return window;
  }
  if (!verdict.ok()) return window;  // sizes that were refused may be larger than what follows can compute with
  const auto q = static_cast<int64_t>(p.seqlen_q), k = static_cast<int64_t>(p.seqlen_k);
  window.active = true;
  window.left = call.window_left;
  window.right = call.window_right;
  window.bounded_left = !is_sentinel(window.left) && window.left < q - 1;
  window.bounded_right = is_sentinel(window.right) || window.right < k - 1;
  if (p.varlen != 0) return window;  // lengths differ from sequence to sequence: the kernel's to resolve
  window.left = is_sentinel(window.left) ? static_cast<int32_t>(q) : clamp(window.left, -k, q);
  const int64_t aligned = window.right == kTopLeft ? 0 : k - q;
  window.right = clamp(is_sentinel(window.right) ? aligned : window.right, -q, k);
  return window;
}

void check_dropout(Verdict& verdict, const Philox& philox) {
  if (!(philox.dropout_p >= 0.0f && philox.dropout_p <= 1.0f)) verdict.malformed("dropout_p", "is not within 0 and 1");
  if (!(philox.dropout_p > 0.0f)) return;  // without dropout they may be null, unset or host memory
  if (!philox.seed || !philox.offset1) return verdict.malformed("philox_seed, philox_offset1", "dropout without a seed");
  if (!is_seed(philox.seed.dtype()) || !is_seed(philox.offset1.dtype()))
    verdict.malformed("philox_seed, philox_offset1", "is neither int64 nor uint64");
}

void check_backend(Verdict& verdict, int index) {
  if (index != -1 && index != 0) verdict.uncovered("force_backend_index", "there is no such back end");
}

void put(Verdict& verdict, Cell& cell, uint64_t stride) {
  if (stride > INT64_MAX) verdict.malformed("stride", "over 2^63 - 1");
  cell.i = static_cast<int64_t>(stride);
}

void put_rows(Verdict& verdict, Cell* first, const RowStrides& rows) {
  put(verdict, first[0], rows.z);
  put(verdict, first[1], rows.h);
  put(verdict, first[2], rows.m);
}

hipError_t serve(State& state, const Part* parts, size_t count, hipStream_t stream) {
  Device* device = nullptr;
  int ordinal = -1;
  if (const hipError_t error = state.device(stream, &device, &ordinal); error != hipSuccess) return error;
  Call calls[kMaxParts];
  for (size_t i = 0; i < count; ++i) {
    const Part& part = parts[i];
    int index = -1;
    if (const hipError_t error = device->served(part.which, &index); error != hipSuccess) return error;
    calls[i] = {index, part.cells, part.required.data(), part.required.size(), part.lazies, part.lazy_count};
  }
  return launch(*device, ordinal, calls, count, stream);
}

}  // namespace aotforge
