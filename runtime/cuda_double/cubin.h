// What the double reads of a cubin: its compute capability, and sizes of each kernel's parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cuda_double {

struct Parameter {
  uint16_t number, offset, size;
};

struct Cubin {
  int capability = 0;
  std::map<std::string, std::vector<Parameter>> kernels;  // parameters in order
};

// False: not a cubin. The image has no size: only what its headers lead to is read.
bool read_cubin(const void* image, Cubin& out);

}  // namespace cuda_double
