// Levels of x86-64 that images are compiled for, and what this processor has of them.
#pragma once

#include <cstddef>

namespace aotforge {

// Names as in packs, without "cpu-", the highest first. ttcpu/levels.py has the same list.
extern const char* const kCpuLevels[];
extern const size_t kCpuLevelCount;

// Whether processor and operating system have a level, by its position.
bool has_cpu_level(size_t level);

}  // namespace aotforge
