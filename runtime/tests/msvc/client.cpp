// A program as MSVC would build it: clang for x86_64-pc-windows-msvc, the public headers, lld-link with aotriton_v2.lib. Calls every
// exported entry point, prints a line each and what the HIP double recorded. No C library: what Microsoft's would give is in system.h.
#include <aotforge/launch.h>
#include <aotriton/flash.h>

#include "system.h"

namespace {

using namespace aotriton;
using T4 = TensorView<4>;
using T2 = TensorView<2>;
using T1 = TensorView<1>;
using T0 = TensorView<0>;
using A4 = std::array<uint64_t, 4>;
using A2 = std::array<uint64_t, 2>;

constexpr uint64_t kBatch = 2, kHeadsQ = 4, kHeadsK = 2, kRowsQ = 48, kRowsK = 64, kWidth = 64;

T4 rows(intptr_t base, uint64_t heads, uint64_t rows, DType dtype = kFloat16) {
  return {base, A4{kBatch, heads, rows, kWidth}, A4{heads * rows * kWidth, rows * kWidth, kWidth, 1}, dtype};
}
T4 of_queries(intptr_t base) { return rows(base, kHeadsQ, kRowsQ); }
T4 of_keys(intptr_t base) { return rows(base, kHeadsK, kRowsK); }
T2 per_row(intptr_t base) { return {base, A2{kBatch * kHeadsQ, kRowsQ}, A2{kRowsQ, 1}, kFloat32}; }

const T4 Q = of_queries(0x100000), K = of_keys(0x110000), V = of_keys(0x120000), Out = of_queries(0x130000);
const T2 L = per_row(0x140000);
const T4 DO = of_queries(0x150000), DQ = of_queries(0x160000), DK = of_keys(0x170000), DV = of_keys(0x180000);
const T2 D = per_row(0x190000);
const T4 DQ_ACC = rows(0x1a0000, kHeadsQ, kRowsQ, kFloat32);
const T0 seed(0x1b0000, kUInt64), offset(0x1c0000, kUInt64);
constexpr float kScale = 0.125f, kDropout = 0.25f;

// three sequences, 48 tokens together
const T1 lengths(0x1d0000, std::array<uint64_t, 1>{4}, std::array<uint64_t, 1>{1}, kInt32);
// of API level 0.11: (sequences * heads, longest sequence)
const T2 packed_lse(0x140000, A2{3 * kHeadsQ, 20}, A2{20, 1}, kFloat32), packed_delta(0x190000, A2{3 * kHeadsQ, 20}, A2{20, 1}, kFloat32);
T4 packed(intptr_t base, uint64_t heads) { return {base, A4{1, heads, 48, kWidth}, A4{heads * 48 * kWidth, 48 * kWidth, kWidth, 1}, kFloat16}; }

template <class Tensor>
struct Cookie {
  Tensor view;
  const char* name;
};

template <int Rank>
LazyTensor<Rank> lazy(Cookie<TensorView<Rank>>& cookie) {
  using Made = Cookie<TensorView<Rank>>;
  LazyTensor<Rank> made;
  made.cookie = &cookie;
  made.acquire = [](void* c) {
    print("acquire ", static_cast<Made*>(c)->name);
    return static_cast<Made*>(c)->view;
  };
  made.dispose = [](void* c) { print("dispose ", static_cast<Made*>(c)->name); };
  return made;
}

template <class Params>
void fill(Params& p) {
  p.Q = Q;
  p.K = K;
  p.V = V;
  p.Out = Out;
  p.L = L;
  p.Sm_scale = kScale;
  p.dropout_p = kDropout;
  p.philox_seed_ptr = seed;
  p.philox_offset1 = offset;
  p.philox_offset2 = 77;
  p.causal_type = v3::flash::CausalType::WindowedAttention;
  p.window_left = 48;
  p.window_right = -3;
}

void version3(Stream stream) {
  v3::flash::attn_fwd_params forward;
  // the library's constructor made it: nothing else sets these
  if (forward.window_left != 0 || forward.philox_offset2 != 0 || forward.Sm_scale != 0 || forward.Q) print("bad", "constructor");
  fill(forward);
  const v3::flash::attn_options options{-1};
  print("v3 fwd ", v3::flash::attn_fwd(forward, forward.kVersion, stream, &options));
  print("v3 version ", v3::flash::attn_fwd(forward, 99, stream, &options));
  v3::flash::attn_bwd_params backward;
  fill(backward);
  backward.DO = DO;
  backward.DQ = DQ;
  backward.DK = DK;
  backward.DV = DV;
  Cookie<T2> delta{D, "D"};
  Cookie<T4> accumulator{DQ_ACC, "DQ_ACC"};
  backward.D = lazy<2>(delta);
  backward.DQ_ACC = lazy<4>(accumulator);
  print("v3 bwd ", v3::flash::attn_bwd(backward, backward.kVersion, stream));
  print("v3 aiter ", v3::flash::aiter_bwd(backward, backward.kVersion, stream));
}

void version2(Stream stream) {
  const T4 none;
  const T0 null;
  print("v2 fwd ", v2::flash::attn_fwd(Q, K, V, none, kScale, L, Out, kDropout, seed, offset, 77, null, null, none, true, null, stream));
  print("v2 bwd ", v2::flash::attn_bwd(Q, K, V, none, kScale, Out, DO, DQ, DK, DV, none, L, D, kDropout, seed, offset, 77, true, stream));
  print("v2 fused ",
        v2::flash::attn_bwd_fused(Q, K, V, none, kScale, Out, DO, DQ, DK, DV, none, L, kDropout, seed, offset, 77, true, stream));
  print("v2 var fwd ", v2::flash::attn_fwd_compact_varlen(packed(0x100000, kHeadsQ), packed(0x110000, kHeadsK), packed(0x120000, kHeadsK),
                                                          none, lengths, lengths, 20, 30, kScale, packed_lse, packed(0x130000, kHeadsQ), 0,
                                                          null, null, 77, null, null, none, false, null, stream));
  print("v2 var bwd ", v2::flash::attn_bwd_compact_varlen(
                           packed(0x100000, kHeadsQ), packed(0x110000, kHeadsK), packed(0x120000, kHeadsK), lengths, lengths, 20, 30, none,
                           kScale, packed(0x130000, kHeadsQ), packed(0x150000, kHeadsQ), packed(0x160000, kHeadsQ),
                           packed(0x170000, kHeadsK), packed(0x180000, kHeadsK), none, packed_lse, packed_delta, 0, null, null, 77, false, stream));
  print("softmax ", v2::flash::debug_simulate_encoded_softmax(Q, kDropout, seed, offset, 77, stream));
}

}  // namespace

extern "C" void start() {
  const Stream stream;
  print("check ", v2::flash::check_gpu(stream));
  print("arch ", static_cast<int>(getGpuFromStream(stream.native()) >> 16 & 0xffff));
  print("experimental ", isArchExperimentallySupported(stream.native()));
  print("cus ", getMultiProcessorCount(stream.native()));
  print("launch ", aotforge_launch("nothing", nullptr, 0, AOTFORGE_HIP, nullptr));
  version3(stream);
  version2(stream);
  print_record();
  ExitProcess(0);
}
