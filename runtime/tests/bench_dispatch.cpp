// Times of the library against the HIP double, one JSON line, in processor time of the process: other processes do not count, and nothing here
// waits but for files. "first": milliseconds until the first launch of a process returned, and what of
// that is the floor: reading, hashing and decoding the same image with the same readers, and the double's own module load. "backward": the first
// backward call after it, of `backward_steps` kernels with an image each. "repeat": nanoseconds a call, and the bare launch call of the double
// that is part of each.
//   bench_dispatch PACK REPEATS HEAD_DIM
#include <aotriton/flash.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "container.h"
#include "dispatch.h"

namespace {

using namespace aotriton;

double now() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double seconds(double from) { return now() - from; }

template <typename Signature>
Signature* hip(const char* name) {
  static void* const library = dlopen("libamdhip64.so.7", RTLD_LAZY);
  return reinterpret_cast<Signature*>(dlsym(library, name));
}

template <class Params>
Params problem(uint64_t head_dim) {
  Params p;
  const uint64_t d = head_dim;
  const std::array<uint64_t, 4> sizes{2, 8, 1024, d}, strides{8 * 1024 * d, 1024 * d, d, 1};
  p.Q = p.K = p.V = p.Out = TensorView<4>(0x100000, sizes, strides, kFloat16);
  p.L = TensorView<2>(0x900000, {16, 1024}, {1024, 1}, kFloat32);
  p.Sm_scale = 0.125f;
  p.causal_type = v3::flash::CausalType::WindowedAttention;
  p.window_left = 1024;
  return p;
}

v3::flash::attn_bwd_params backward_problem(uint64_t head_dim) {
  auto p = problem<v3::flash::attn_bwd_params>(head_dim);
  p.DO = p.DQ = p.DK = p.DV = p.Q;
  p.D.acquire = [](void*) { return TensorView<2>(0xA00000, {16, 1024}, {1024, 1}, kFloat32); };
  p.D.dispose = [](void*) {};
  return p;
}

template <class Call>
double nanoseconds(long repeats, Call call) {
  const auto start = now();
  for (long i = 0; i < repeats; ++i)
    if (call() != hipSuccess) std::exit(1);
  return seconds(start) / static_cast<double>(repeats) * 1e9;
}

// What a first launch must do at least: dispatch data and one image, read, hashed, decoded. Also the image itself.
double floor_of_files(const std::string& pack, std::vector<uint8_t>& image, int& backward_steps) {
  const auto start = now();
  aotforge::FileSource file((pack + "/dispatch.aotd").c_str());
  aotforge::Dispatch dispatch;
  dispatch.bytes.resize(file.size());
  if (!file.read(0, dispatch.bytes.data(), file.size()) || aotforge::parse_dispatch(dispatch)) std::exit(2);
  const int op = dispatch.find_operator("attn_fwd");
  const aotforge::Kernel& kernel = dispatch.kernels[dispatch.operators[static_cast<size_t>(op)].first_kernel];
  const aotforge::Container& container = dispatch.containers[kernel.container];
  aotforge::FileSource source((pack + "/" + std::string(container.file)).c_str());
  aotforge::Images images;
  if (images.open(source, &container.id) || images.decode(source, 0, image)) std::exit(2);
  const double needed = seconds(start);
  backward_steps = static_cast<int>(dispatch.operators[static_cast<size_t>(dispatch.find_operator("attn_bwd"))].kernel_count);
  return needed;
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) return 2;
  const std::string pack = words[1];
  const long repeats = std::atol(words[2]);
  hip<int(int*)>("hipGetDevice");  // the double is loaded in every real process before we are called
  int device = 0;
  hip<int(int*)>("hipGetDevice")(&device);
  const auto head_dim = static_cast<uint64_t>(std::atol(words[3]));
  const auto params = problem<v3::flash::attn_fwd_params>(head_dim);
  const auto gradients = backward_problem(head_dim);
  const Stream stream(nullptr);
  const auto forward = [&] { return v3::flash::attn_fwd(params, params.kVersion, stream); };
  const auto backward = [&] { return v3::flash::attn_bwd(gradients, gradients.kVersion, stream); };
  const auto start = now();
  if (forward() != hipSuccess) return 1;
  const double first = seconds(start);
  const auto backward_start = now();
  if (backward() != hipSuccess) return 1;
  const double first_backward = seconds(backward_start);

  std::vector<uint8_t> image;
  int steps = 0;
  const double files = floor_of_files(pack, image, steps);
  void* module = nullptr;
  const auto before_load = now();
  if (hip<int(void**, const void*)>("hipModuleLoadData")(&module, image.data()) != 0) return 1;
  const double load = seconds(before_load);

  hip<void(int)>("hip_double_quiet")(1);
  const double repeat = nanoseconds(repeats, forward), repeat_backward = nanoseconds(repeats, backward);
  auto* launch = hip<int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**)>(
      "hipModuleLaunchKernel");
  const auto bare = now();
  for (long i = 0; i < repeats; ++i) launch(nullptr, 1, 1, 1, 64, 1, 1, 0, nullptr, nullptr, nullptr);
  const double call = seconds(bare) / static_cast<double>(repeats) * 1e9;
  std::printf("{\"first_ms\": %.4f, \"backward_ms\": %.4f, \"files_ms\": %.4f, \"load_ms\": %.4f, \"image_bytes\": %zu, \"backward_steps\": %d, "
              "\"repeat_ns\": %.1f, \"repeat_backward_ns\": %.1f, \"launch_ns\": %.1f}\n",
              first * 1e3, first_backward * 1e3, files * 1e3, load * 1e3, image.size(), steps, repeat, repeat_backward, call);
}
