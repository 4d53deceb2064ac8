// Variable length: one decoding for all API levels, checked before anything is launched. Arrays are device memory: only their sizes are
// known here.
#include "attention.h"

namespace aotforge {
namespace {

enum : uint32_t { kMax, kCumulative, kIndividual };           // length
enum : uint32_t { kImplied, kReuse, kArray };                 // position
constexpr uint32_t kLseHeadRow = 0, kLseRowHead = 1;          // lse_layout
constexpr int8_t kTypeNone = 0, kTypePadded = 2, kTypeStrided = 3;

// One side of the word, with the names of its fields in messages.
struct Side {
  uint32_t stacked, length, position;
  const T1& info0;
  const T1& info1;
  const char *name0, *name1, *longest_name, *tensor;
  int32_t longest;
  uint64_t planes, rows;
  bool dense;

  bool reads_longest() const { return length == kMax || (stacked && position == kImplied); }
};

Side side_of(uint32_t mode, const T1& info0, const T1& info1, int32_t longest, uint64_t planes, uint64_t rows, bool query) {
  return {mode & 1,
          mode >> 1 & 3,
          mode >> 3 & 3,
          info0,
          info1,
          query ? "seqinfo_q0 (cu_seqlens_q)" : "seqinfo_k0 (cu_seqlens_k)",
          query ? "seqinfo_q1 (seq_strides_q)" : "seqinfo_k1 (seq_strides_k)",
          query ? "Max_seqlen_q" : "Max_seqlen_k",
          query ? "Q" : "K",
          longest,
          planes,
          rows,
          mode == 0};
}

void check_modes(Verdict& verdict, const Side& side) {
  if (side.length > kIndividual) verdict.malformed("varlen_bits", "length is none that this interface has");
  if (side.position > kArray) verdict.malformed("varlen_bits", "position is none that this interface has");
  if (side.position == kReuse && side.length != kCumulative)
    verdict.malformed("varlen_bits", "position REUSE needs cumulative lengths");
  if (side.length == kMax && side.info0) verdict.malformed(side.name0, "is given, and lengths are Max_seqlen");
  if (side.position != kArray && side.length == kMax && side.info1)
    verdict.malformed(side.name1, "is given, and neither lengths nor positions are in arrays");
}

void check_array(Verdict& verdict, const char* name, const T1& t, uint64_t least) {
  if (!t) return verdict.malformed(name, "is null");
  if (t.dtype() != aotriton::kInt32) verdict.malformed(name, "is not int32");
  if (t.size(0) < least) verdict.malformed(name, "is shorter than the number of sequences needs");
  if (t.size(0) > 1 && t.stride(0) != 1) verdict.malformed(name, "is not contiguous");
}

// Sequences of the query side, which decides.
uint64_t sequences(Verdict& verdict, const Side& q) {
  if (!q.stacked) return q.planes;
  if (q.length == kMax) {
    if (q.longest <= 0) return 0;  // refused by check_longest
    if (q.rows % static_cast<uint64_t>(q.longest) != 0) verdict.malformed(q.longest_name, "does not divide the tokens of Q");
    return q.rows / static_cast<uint64_t>(q.longest);
  }
  const uint64_t size = q.info0 ? q.info0.size(0) : 0;
  if (q.length == kIndividual) return size;
  if (size == 0) verdict.malformed(q.name0, "is null or empty");
  return size == 0 ? 0 : size - 1;
}

void check_longest(Verdict& verdict, const Side& side) {
  if (side.dense) return;  // it is the tensor's
  if (side.longest < 0 || (side.reads_longest() && side.longest == 0))
    return verdict.malformed(side.longest_name, "is not a length");
  const auto longest = static_cast<uint64_t>(side.longest);
  if (!side.stacked && side.length == kMax && longest > side.rows)
    verdict.malformed(side.longest_name, "is more than the tensor's rows");
}

void check_side(Verdict& verdict, const Side& side, uint64_t batch, bool query) {
  check_longest(verdict, side);
  if (side.stacked && side.planes != 1) verdict.malformed(side.tensor, "packed sequences need a first dimension of 1");
  if (!side.stacked && side.planes < batch) verdict.malformed(side.tensor, "has fewer planes than there are sequences");
  if (side.stacked && side.position == kImplied && side.longest > 0 && side.rows / static_cast<uint64_t>(side.longest) < batch)
    verdict.malformed(side.tensor, "has fewer tokens than sequences of Max_seqlen need");
  if (side.length == kCumulative) check_array(verdict, side.name0, side.info0, batch + 1);
  if (side.length == kIndividual) check_array(verdict, side.name0, side.info0, batch);
  if (side.position == kArray) check_array(verdict, side.name1, side.info1, batch + query);  // Q's last element is L's pitch
}

// The bound of all lengths. Where kernels do not compute with Max_seqlen it may be larger than the tensor, or 0 for K: PyTorch passes
// 0 where it does not know.
uint64_t bound(const Side& side, bool query) {
  const auto longest = static_cast<uint64_t>(side.longest < 0 ? 0 : side.longest);
  if (side.reads_longest()) return longest;
  if (longest == 0 && !query) return side.rows;
  return longest < side.rows ? longest : side.rows;
}

}  // namespace

Varlen older_varlen(Verdict& verdict, int8_t type, int8_t last_type, const T1& cu_seqlens_q, const T1& cu_seqlens_k,
                    const T1& seq_strides_q, const T1& seq_strides_k) {
  Varlen out;
  if (type < kTypeNone || type > last_type) verdict.malformed("varlen_type", "is none that this interface has");
  if (!cu_seqlens_q) {
    if (type != kTypeNone) verdict.malformed("cu_seqlens_q", "is null");
    if (cu_seqlens_k) verdict.malformed("cu_seqlens_k", "is given without cu_seqlens_q");
    return out;
  }
  out.q0 = cu_seqlens_q;
  out.k0 = cu_seqlens_k;
  out.bits = type == kTypePadded ? kPadded : seq_strides_q || type == kTypeStrided ? kStrided : kCompact;
  if (out.bits != kStrided) return out;
  out.q1 = seq_strides_q;
  out.k1 = seq_strides_k;
  return out;
}

void apply_varlen(Verdict& verdict, Problem& p, const Varlen& varlen) {
  const uint32_t layout = varlen.bits >> 16 & 3;
  p.varlen = varlen.bits & 0xffff;
  p.rows_by_head = layout == kLseHeadRow;
  if (varlen.bits >> 18 != 0 || (p.varlen & 0xe0e0) != 0) verdict.malformed("varlen_bits", "reserved bits are set");
  if (layout > kLseRowHead) verdict.malformed("varlen_bits", "lse_layout is none that this interface has");
  if (p.varlen == 0) {
    p.lse_rows = p.seqlen_q;
    if (varlen.q0 || varlen.q1) verdict.malformed("seqinfo_q0, seqinfo_q1", "are given, and Q is dense");
    if (varlen.k0 || varlen.k1) verdict.malformed("seqinfo_k0, seqinfo_k1", "are given, and K is dense");
    if (p.planes_k != p.planes_q) verdict.malformed("K", "sizes do not agree");
    return;
  }
  const uint32_t q_mode = p.varlen & 0xff, k_mode = p.varlen >> 8;
  // a side that is dense altogether takes its length from the tensor
  const auto longest = [](uint32_t mode, int32_t given, uint64_t rows) { return mode == 0 ? static_cast<int32_t>(rows) : given; };
  const Side q = side_of(q_mode, varlen.q0, varlen.q1, longest(q_mode, varlen.longest_q, p.rows_q), p.planes_q, p.rows_q, true);
  const Side k = side_of(k_mode, varlen.k0, varlen.k1, longest(k_mode, varlen.longest_k, p.rows_k), p.planes_k, p.rows_k, false);
  check_modes(verdict, q);
  check_modes(verdict, k);
  p.batch = sequences(verdict, q);
  if (p.batch > kSizeMax) verdict.uncovered(q.name0, "more than 2^31 - 1 sequences");
  check_side(verdict, q, p.batch, true);
  check_side(verdict, k, p.batch, false);
  p.seqlen_q = bound(q, true);
  p.seqlen_k = bound(k, false);
  p.rows_packed = q.stacked && !varlen.lse_by_sequence;
  p.lse_rows = p.rows_by_head ? p.seqlen_q : static_cast<uint64_t>(q.longest < 0 ? 0 : q.longest);
}

}  // namespace aotforge
