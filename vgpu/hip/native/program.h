// A loaded image: its program file, the interpreter that opens it, and launches of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "world.h"

namespace virtual_hip {

struct LaunchShape {
  unsigned grid[3], block[3], lds;
};

class Program {
 public:
  // Prepares and opens an image of at most `available` bytes for a device. `error` is HIP's result for a refusal; the reason is
  // reported.
  static std::shared_ptr<Program> load(const void* image, size_t available, const Device& device, int* error);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  const char* kernel() const { return file_->kernel; }
  // Whether the device and the emulator can run this shape: kSuccess, or HIP's error, with the reason reported.
  int check(const Device& device, const LaunchShape& shape) const;
  // The kernarg segment from HIP's array of pointers, or from its packed buffer, with hidden arguments. False: too few bytes, or
  // null pointers.
  bool arguments(void** parameters, void** extra, const LaunchShape& shape, std::vector<uint64_t>& segment) const;
  // Executes the complete grid now. A fault becomes the device's error.
  void run(Device& device, int number, const LaunchShape& shape, std::vector<uint64_t> segment);

 private:
  Program() = default;
  // The buffer of host calls in `memory`, with its address in the segment; nullptr when the kernel has none.
  void* start_host_calls(std::vector<uint64_t>& segment, std::vector<uint64_t>& memory) const;
  bool open(const std::string& interpreter, const std::string& program);
  std::vector<int> spread(std::vector<ServeLaunch>& shares) const;
  void report_launch(const Device& device, int number, const LaunchShape& shape, uint64_t executed, const std::string& took, bool ok) const;
  void faulted(Device& device, const ServeLaunch& share, const std::vector<Allocation>& allocations) const;

  const ServeFile* file_ = nullptr;
  uint64_t bytes_ = 0;
  void* library_ = nullptr;
  void* opened_ = nullptr;
  std::string lines_;
  int (*run_)(const void*, ServeLaunch*) = nullptr;
  void (*close_)(void*) = nullptr;
  uint64_t (*host_bytes_)() = nullptr;
  void (*host_start_)(void*, uint64_t) = nullptr;
};

// One run of the Python side: `prepare` beside this library, or `prepare` of AOTFORGE_VIRTUAL. False: it did not run; `output` has the reason.
bool run_python(const std::vector<std::string>& arguments, const void* input, size_t bytes, std::string* output);

}  // namespace virtual_hip
