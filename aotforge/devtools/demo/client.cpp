// Attention forward and backward through API level 0.11, as a program would call it: HIP for memory, libaotriton_v2.so for the kernels.
//   client IN OUT DEVICE DTYPE BATCH HEADS_Q HEADS_K SEQLEN_Q SEQLEN_K HEAD_DIM CAUSAL SM_SCALE
// IN holds Q, K, V and DO, dense, one behind another; OUT gets Out, L (float32), DQ, DK and DV. CAUSAL is 0, or 1 for a top-left mask. Prints
// "forward SECONDS" and "backward SECONDS".
#include <aotriton/flash.h>
#include <hip/hip_runtime.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

extern "C" {  // the header above has HIP's types only where HIP itself is not installed
hipError_t hipSetDevice(int);
hipError_t hipMalloc(void**, size_t);
hipError_t hipFree(void*);
hipError_t hipMemcpy(void*, const void*, size_t, int);
hipError_t hipDeviceSynchronize(void);
hipError_t hipGetLastError(void);
const char* hipGetErrorString(hipError_t);
}

namespace {

namespace flash = aotriton::v3::flash;
using aotriton::DType;
using aotriton::TensorView;
constexpr int kToDevice = 1, kToHost = 2;

void check(hipError_t error, const char* what) {
  if (error == hipSuccess) return;
  std::fprintf(stderr, "client: %s: %s (%d)\n", what, hipGetErrorString(error), static_cast<int>(error));
  std::exit(1);
}

struct Buffer {
  explicit Buffer(size_t bytes) : size(bytes) { check(hipMalloc(&at, bytes), "hipMalloc"); }
  ~Buffer() { (void)hipFree(at); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* at = nullptr;
  size_t size;
};

struct Shape {
  uint64_t batch, heads, rows, columns;
  uint64_t elements() const { return batch * heads * rows * columns; }
};

TensorView<4> view(const Buffer& buffer, const Shape& s, DType dtype) {
  return {reinterpret_cast<std::intptr_t>(buffer.at),
          std::array<uint64_t, 4>{s.batch, s.heads, s.rows, s.columns},
          std::array<uint64_t, 4>{s.heads * s.rows * s.columns, s.rows * s.columns, s.columns, 1},
          dtype};
}

TensorView<2> rows(const Buffer& buffer, const Shape& s) {
  return {reinterpret_cast<std::intptr_t>(buffer.at), {s.batch * s.heads, s.rows}, {s.rows, 1}, DType::kFloat32};
}

void read(std::ifstream& file, const Buffer& to) {
  std::vector<char> bytes(to.size);
  if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
    std::fprintf(stderr, "client: the input is too short\n");
    std::exit(2);
  }
  check(hipMemcpy(to.at, bytes.data(), bytes.size(), kToDevice), "hipMemcpy");
}

void write(std::ofstream& file, const Buffer& from) {
  std::vector<char> bytes(from.size);
  check(hipMemcpy(bytes.data(), from.at, bytes.size(), kToHost), "hipMemcpy");
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

template <typename Call>
void timed(const char* name, Call call) {
  const auto start = std::chrono::steady_clock::now();
  check(call(), name);
  check(hipDeviceSynchronize(), name);
  std::printf("%s %.6f\n", name, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

}  // namespace

int main(int count, char** words) {
  if (count != 13) return 2;
  const auto number = [&](int i) { return static_cast<uint64_t>(std::atoll(words[i])); };
  const auto dtype = static_cast<DType>(number(4));
  const Shape query{number(5), number(6), number(8), number(10)}, key{number(5), number(7), number(9), number(10)};
  const Shape row{query.batch, query.heads, query.rows, 1};
  const size_t element = dtype == DType::kFloat32 ? 4 : 2;
  check(hipSetDevice(static_cast<int>(number(3))), "hipSetDevice");
  Buffer q(query.elements() * element), k(key.elements() * element), v(key.elements() * element), out(q.size), lse(row.elements() * 4);
  Buffer d_out(q.size), dq(q.size), dk(k.size), dv(v.size), delta(lse.size);
  std::ifstream in(words[1], std::ios::binary);
  for (const Buffer* one : {&q, &k, &v, &d_out}) read(in, *one);

  const bool causal = number(11) != 0;
  const auto mask = [&](auto& params) {
    params.Sm_scale = std::strtof(words[12], nullptr);
    params.dropout_p = 0.0f;
    params.philox_offset2 = 0;
    params.causal_type = causal ? flash::CausalType::WindowedAttention : flash::CausalType::None;
    params.window_left = causal ? static_cast<int32_t>(query.rows) : 0;
    params.window_right = 0;
    params.Q = view(q, query, dtype);
    params.K = view(k, key, dtype);
    params.V = view(v, key, dtype);
    params.Out = view(out, query, dtype);
    params.L = rows(lse, query);
  };
  check(aotriton::v2::flash::check_gpu(aotriton::Stream(nullptr)), "check_gpu");
  flash::attn_fwd_params forward;
  mask(forward);
  timed("forward", [&] { return flash::attn_fwd(forward, flash::attn_fwd_params::kVersion, aotriton::Stream(nullptr)); });
  flash::attn_bwd_params backward;
  mask(backward);
  backward.DO = view(d_out, query, dtype);
  backward.DQ = view(dq, query, dtype);
  backward.DK = view(dk, key, dtype);
  backward.DV = view(dv, key, dtype);
  auto delta_view = rows(delta, query);
  backward.D.cookie = &delta_view;
  backward.D.acquire = [](void* cookie) { return *static_cast<TensorView<2>*>(cookie); };
  backward.D.dispose = [](void*) {};
  timed("backward", [&] { return flash::attn_bwd(backward, flash::attn_bwd_params::kVersion, aotriton::Stream(nullptr)); });
  check(hipGetLastError(), "hipGetLastError");

  std::ofstream results(words[2], std::ios::binary);
  for (const Buffer* one : {&out, &lse, &dq, &dk, &dv}) write(results, *one);
  results.flush();
  return results ? 0 : 2;
}
