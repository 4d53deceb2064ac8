// Checks a launch against the kernel's metadata and writes it down with decoded arguments.
#pragma once

#include <cstddef>
#include <string>

#include "world.h"

namespace hip_double {

struct Launch {
  unsigned grid[3], block[3], lds;
  int device;
  void** parameters;
  void** extra;
};

std::string fingerprint(const void* bytes, size_t size);
std::string describe_load(const Module& module);

// 0, or the error that HIP would give. The world's lock is held.
int check_and_record(const Function& function, const Launch& launch);

int count_quiet_launch();

}  // namespace hip_double
