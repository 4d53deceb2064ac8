// Times of the library against the HIP double, one JSON line. "first": seconds until the first launch of a process returned, and what of that
// is the floor: reading, hashing and decoding the same image with the same readers, and the double's own module load. "repeat": nanoseconds
// a call, and the bare launch call of the double that is part of each.
//   bench_dispatch PACK REPEATS HEAD_DIM
#include <aotriton/flash.h>
#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "container.h"
#include "dispatch.h"

namespace {

using namespace aotriton;
using Clock = std::chrono::steady_clock;

double seconds(Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); }

template <typename Signature>
Signature* hip(const char* name) {
  static void* const library = dlopen("libamdhip64.so.7", RTLD_LAZY);
  return reinterpret_cast<Signature*>(dlsym(library, name));
}

v3::flash::attn_fwd_params problem(uint64_t head_dim) {
  v3::flash::attn_fwd_params p;
  const uint64_t d = head_dim;
  const std::array<uint64_t, 4> sizes{2, 8, 1024, d}, strides{8 * 1024 * d, 1024 * d, d, 1};
  p.Q = p.K = p.V = p.Out = TensorView<4>(0x100000, sizes, strides, kFloat16);
  p.L = TensorView<2>(0x900000, {16, 1024}, {1024, 1}, kFloat32);
  p.Sm_scale = 0.125f;
  p.causal_type = v3::flash::CausalType::WindowedAttention;
  p.window_left = 1024;
  return p;
}

// What a first launch must do at least: dispatch data and one image, read, hashed, decoded. Also the image itself.
double floor_of_files(const std::string& pack, std::vector<uint8_t>& image) {
  const auto start = Clock::now();
  aotforge::FileSource file((pack + "/dispatch.aotd").c_str());
  aotforge::Dispatch dispatch;
  dispatch.bytes.resize(file.size());
  if (!file.read(0, dispatch.bytes.data(), file.size()) || aotforge::parse_dispatch(dispatch)) std::exit(2);
  const int op = dispatch.find_operator("attn_fwd");
  const aotforge::Kernel& kernel = dispatch.kernels[dispatch.operators[static_cast<size_t>(op)].first_kernel];
  aotforge::FileSource source((pack + "/" + std::string(dispatch.containers[kernel.container].file)).c_str());
  aotforge::Images images;
  if (images.open(source, nullptr) || images.decode(source, 0, image)) std::exit(2);
  return seconds(start);
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) return 2;
  const std::string pack = words[1];
  const long repeats = std::atol(words[2]);
  hip<int(int*)>("hipGetDevice");  // the double is loaded in every real process before we are called
  int device = 0;
  hip<int(int*)>("hipGetDevice")(&device);
  const auto params = problem(static_cast<uint64_t>(std::atol(words[3])));
  const Stream stream(nullptr);
  const auto start = Clock::now();
  if (v3::flash::attn_fwd(params, params.kVersion, stream) != hipSuccess) return 1;
  const double first = seconds(start);

  std::vector<uint8_t> image;
  const double files = floor_of_files(pack, image);
  void* module = nullptr;
  const auto before_load = Clock::now();
  if (hip<int(void**, const void*)>("hipModuleLoadData")(&module, image.data()) != 0) return 1;
  const double load = seconds(before_load);

  hip<void(int)>("hip_double_quiet")(1);
  const auto loop = Clock::now();
  for (long i = 0; i < repeats; ++i)
    if (v3::flash::attn_fwd(params, params.kVersion, stream) != hipSuccess) return 1;
  const double repeat = seconds(loop) / static_cast<double>(repeats);

  auto* launch = hip<int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**)>(
      "hipModuleLaunchKernel");
  const auto bare = Clock::now();
  for (long i = 0; i < repeats; ++i) launch(nullptr, 1, 1, 1, 64, 1, 1, 0, nullptr, nullptr, nullptr);
  const double call = seconds(bare) / static_cast<double>(repeats);
  std::printf("{\"first_ms\": %.4f, \"files_ms\": %.4f, \"load_ms\": %.4f, \"image_bytes\": %zu, \"repeat_ns\": %.1f, \"launch_ns\": %.1f}\n",
              first * 1e3, files * 1e3, load * 1e3, image.size(), repeat * 1e9, call * 1e9);
}
