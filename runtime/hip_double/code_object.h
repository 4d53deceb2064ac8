// What the double reads of an AMDGPU code object (HSACO): the metadata note that the compiler wrote, nothing from the runtime.
// Format: LLVM's AMDGPU usage guide, "Code Object V3 and above"; the note's payload is msgpack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace hip_double {

struct Argument {
  size_t offset = 0, size = 0;
  std::string kind;  // "by_value", "global_buffer", "hidden_..."
};

struct KernelInfo {
  std::string symbol;
  std::vector<Argument> arguments;
  unsigned lds_bytes = 0, max_threads = 0, wavefront = 0;
};

struct CodeObject {
  std::string target;  // "amdgcn-amd-amdhsa--gfx908"
  std::map<std::string, KernelInfo> kernels;
  size_t size = 0;     // bytes that the ELF headers span
};

// Empty reason on success. `image` has no length, as in HIP: the headers have its size.
std::string read_code_object(const void* image, CodeObject& out);

}  // namespace hip_double
