// Attention calls through AOTriton 0.13's interface, forward and backward, on whatever HIP there is.
//   client IN OUT RECORD < PROBLEMS
// PROBLEMS: one after another, in one process because each one would load the same images. A problem is a line "DTYPE HEADS_Q HEADS_K
// HEAD_DIM CAUSAL SM_SCALE DROPOUT_P SEED OFFSET1 OFFSET2 SEQUENCES BIAS_ROW CELLS" and CELLS lines "MAX_Q MAX_K BACKEND": the maxima that
// a call declares and the index of its backward (negative: none). With 0 for MAX_Q the call of the one sequence is dense.
// IN, for each problem: cumulative lengths of queries and of keys (int32, SEQUENCES + 1 each), then Q, K, V and DO, (tokens, heads, head_dim). Unless
// BIAS_ROW is 0 then B, (heads, queries, keys) of one sequence, whose rows begin at multiples of BIAS_ROW elements.
// OUT gets Out, L (float32, (heads, tokens)), DQ, DK, DV and with a bias DB, stored as B, of each cell. After each a line
// "FORWARD BACKWARD SIZE": both error codes of HIP, and the size of the file RECORD, to which virtual HIP writes.
#include <aotriton/flash.h>
#include <hip/hip_runtime.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <vector>
#include <sys/stat.h>

extern "C" {  // the header above has HIP's types only where HIP itself is not installed
hipError_t hipMalloc(void**, size_t);
hipError_t hipFree(void*);
hipError_t hipMemcpy(void*, const void*, size_t, int);
hipError_t hipMemset(void*, int, size_t);
hipError_t hipDeviceSynchronize(void);
const char* hipGetErrorString(hipError_t);
}

namespace {

namespace flash = aotriton::v3::flash;
using aotriton::DType;
constexpr int kToDevice = 1, kToHost = 2;
using Dims = std::array<uint64_t, 4>;

void check(hipError_t error, const char* what) {
  if (error == hipSuccess) return;
  std::fprintf(stderr, "client: %s: %s (%d)\n", what, hipGetErrorString(error), static_cast<int>(error));
  std::exit(1);
}

struct Buffer {
  explicit Buffer(size_t bytes) : size(bytes) { check(hipMalloc(&at, bytes ? bytes : 1), "hipMalloc"); }
  ~Buffer() { (void)hipFree(at); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::intptr_t address() const { return reinterpret_cast<std::intptr_t>(at); }
  void fill(const void* bytes) { check(hipMemcpy(at, bytes, size, kToDevice), "hipMemcpy"); }
  void clear(int byte) { check(hipMemset(at, byte, size), "hipMemset"); }
  void* at = nullptr;
  size_t size;
};

using Owned = std::unique_ptr<Buffer>;

template <typename T>
Owned scalar(T value) {
  auto made = std::make_unique<Buffer>(sizeof value);
  made->fill(&value);
  return made;
}

struct Tensor {
  Tensor(uint64_t tokens, uint64_t heads, uint64_t width, DType dtype)
      : buffer(tokens * heads * width * (dtype == DType::kFloat32 ? 4 : 2)),
        view(buffer.address(), Dims{1, heads, tokens, width}, Dims{tokens * heads * width, width, heads * width, 1}, dtype) {}
  Buffer buffer;
  flash::T4 view;
};

void read(std::ifstream& file, Buffer& to) {
  std::vector<char> bytes(to.size);
  if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
    std::fprintf(stderr, "client: the input is too short\n");
    std::exit(2);
  }
  to.fill(bytes.data());
}

void write(std::ofstream& file, const Buffer& from) {
  std::vector<char> bytes(from.size);
  check(hipMemcpy(bytes.data(), from.at, bytes.size(), kToHost), "hipMemcpy");
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

flash::T2 rows(const Buffer& buffer, uint64_t heads, uint64_t tokens) {
  return {buffer.address(), {heads, tokens}, {tokens, 1}, DType::kFloat32};
}

// The calls of the next problem of standard input. False: there is none.
bool next_problem(std::ifstream& in, std::ofstream& results, const char* record) {
  int type = 0, causal = 0;
  uint64_t heads_q = 0, heads_k = 0, width = 0, seed_value = 0, offset_value = 0, offset2 = 0, sequences = 0, bias_row = 0, cells = 0;
  float scale = 0, dropout = 0;
  if (!(std::cin >> type >> heads_q >> heads_k >> width >> causal >> scale >> dropout >> seed_value >> offset_value >> offset2 >>
        sequences >> bias_row >> cells))
    return false;
  const auto dtype = static_cast<DType>(type);

  const auto cumulative = [&] {
    std::vector<int32_t> lengths(sequences + 1);
    in.read(reinterpret_cast<char*>(lengths.data()), static_cast<std::streamsize>(lengths.size() * sizeof(int32_t)));
    return lengths;
  };
  const auto ends_q = cumulative(), ends_k = cumulative();
  const uint64_t tokens_q = ends_q.back(), tokens_k = ends_k.back();
  Buffer starts_q(ends_q.size() * 4), starts_k(ends_k.size() * 4);
  starts_q.fill(ends_q.data());
  starts_k.fill(ends_k.data());
  Tensor q(tokens_q, heads_q, width, dtype), k(tokens_k, heads_k, width, dtype), v(tokens_k, heads_k, width, dtype),
      d_out(tokens_q, heads_q, width, dtype);
  for (Tensor* one : {&q, &k, &v, &d_out}) read(in, one->buffer);
  const uint64_t row = bias_row ? (tokens_k + bias_row - 1) / bias_row * bias_row : 0;
  const auto bias_view = [&](const Buffer& of) {
    return flash::T4(of.address(), Dims{1, heads_q, tokens_q, tokens_k}, Dims{heads_q * tokens_q * row, tokens_q * row, row, 1}, dtype);
  };
  Buffer bias(heads_q * tokens_q * row * (dtype == DType::kFloat32 ? 4 : 2));
  if (row) read(in, bias);
  const auto seed = scalar<uint64_t>(seed_value), offset = scalar<uint64_t>(offset_value);
  const auto seed_out = scalar<uint64_t>(0), offset_out = scalar<uint64_t>(0);

  const auto common = [&](auto& call, int32_t max_q, int32_t max_k) {
    call.Q = q.view;
    call.K = k.view;
    call.V = v.view;
    call.Sm_scale = scale;
    if (row) call.B = bias_view(bias);
    if (max_q) {
      call.cu_seqlens_q = flash::T1(starts_q.address(), {sequences + 1}, {1}, DType::kInt32);
      call.cu_seqlens_k = flash::T1(starts_k.address(), {sequences + 1}, {1}, DType::kInt32);
      call.Max_seqlen_q = max_q;
      call.Max_seqlen_k = max_k;
      call.varlen_type = flash::VarlenType::CompactVarlen;
    }
    call.dropout_p = dropout;
    call.philox_seed_ptr = flash::T0(seed->address(), DType::kUInt64);
    call.philox_offset1 = flash::T0(offset->address(), DType::kUInt64);
    call.philox_offset2 = offset2;
    call.causal_type = causal ? flash::CausalType::WindowedAttention : flash::CausalType::None;
    call.window_left = max_q ? flash::WindowValue::TopLeftAligned : static_cast<int32_t>(tokens_q);
    call.window_right = max_q ? flash::WindowValue::TopLeftAligned : 0;
  };

  const aotriton::Stream stream(nullptr);
  for (int32_t max_q = 0, max_k = 0, backend = 0; cells && std::cin >> max_q >> max_k >> backend; --cells) {
    Tensor out(tokens_q, heads_q, width, dtype), dq(tokens_q, heads_q, width, dtype), dk(tokens_k, heads_k, width, dtype),
        dv(tokens_k, heads_k, width, dtype), sums(tokens_q, heads_q, width, DType::kFloat32);
    Buffer lse(heads_q * tokens_q * 4), delta(lse.size), d_bias(bias.size);
    for (Buffer* one : {&out.buffer, &dq.buffer, &dk.buffer, &dv.buffer, &lse, &delta, &d_bias}) one->clear(0xff);  // not a number
    sums.buffer.clear(0);
    const auto ticket = scalar<int32_t>(0);

    flash::attn_fwd_params forward;
    common(forward, max_q, max_k);
    forward.Out = out.view;
    forward.L = rows(lse, heads_q, tokens_q);
    forward.philox_seed_output = flash::T0(seed_out->address(), DType::kUInt64);
    forward.philox_offset_output = flash::T0(offset_out->address(), DType::kUInt64);
    forward.persistent_atomic_counter = flash::T0(ticket->address(), DType::kInt32);
    hipError_t first = flash::attn_fwd(forward, flash::attn_fwd_params::kVersion, stream, nullptr);
    if (first == hipSuccess) first = hipDeviceSynchronize();

    flash::attn_bwd_params backward;
    common(backward, max_q, max_k);
    backward.Out = out.view;
    backward.L = rows(lse, heads_q, tokens_q);
    backward.DO = d_out.view;
    backward.DQ = dq.view;
    backward.DK = dk.view;
    backward.DV = dv.view;
    if (row) backward.DB = bias_view(d_bias);
    backward.D.eager = rows(delta, heads_q, tokens_q);
    backward.DQ_ACC.eager = sums.view;
    flash::attn_options options;
    options.force_backend_index = backend;
    hipError_t second = hipSuccess;
    if (backend >= 0) second = flash::attn_bwd(backward, flash::attn_bwd_params::kVersion, stream, &options);
    if (second == hipSuccess) second = hipDeviceSynchronize();

    for (const Buffer* one : {&out.buffer, &lse, &dq.buffer, &dk.buffer, &dv.buffer, &d_bias}) write(results, *one);
    results.flush();
    struct stat state = {};
    (void)stat(record, &state);
    std::cout << static_cast<int>(first) << ' ' << static_cast<int>(second) << ' ' << state.st_size << std::endl;
  }
  return true;
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) return 2;
  std::ifstream in(words[1], std::ios::binary);
  std::ofstream results(words[2], std::ios::binary);
  while (next_problem(in, results, words[3])) {
  }
  return results ? 0 : 2;
}
