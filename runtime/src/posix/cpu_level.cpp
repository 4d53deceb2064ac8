#include "posix/cpu_level.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include <cstdint>
#include <initializer_list>

namespace aotforge {
namespace {

// The registers that CPUID reports features in.
struct Features {
  uint32_t ecx1 = 0, ebx7 = 0, eax71 = 0, ecx_extended = 0;
  uint64_t saved = 0;  // XCR0: the registers that the operating system saves

  static constexpr uint32_t all(std::initializer_list<int> bits) {
    uint32_t mask = 0;
    for (const int bit : bits) mask |= 1u << bit;
    return mask;
  }
};

// What a level needs: SSE3 to SSE4.2, CMPXCHG16B, POPCNT; then FMA, MOVBE, OSXSAVE, AVX, F16C with BMI, AVX2, LZCNT; then AVX-512.
constexpr uint32_t kLeaf1V2 = Features::all({0, 9, 13, 19, 20, 23}), kExtendedV2 = Features::all({0});
constexpr uint32_t kLeaf1V3 = kLeaf1V2 | Features::all({12, 22, 27, 28, 29}), kExtendedV3 = kExtendedV2 | Features::all({5});
constexpr uint32_t kLeaf7V3 = Features::all({3, 5, 8}), kLeaf7V4 = kLeaf7V3 | Features::all({16, 17, 28, 30, 31});
constexpr uint32_t kBf16 = Features::all({5});
constexpr uint64_t kAvxState = 0x6, kAvx512State = 0xe6;

struct Needs {
  uint32_t ecx1, ebx7, eax71, ecx_extended;
  uint64_t saved;
};
constexpr Needs kNeeds[] = {
    {kLeaf1V3, kLeaf7V4, kBf16, kExtendedV3, kAvx512State},
    {kLeaf1V3, kLeaf7V4, 0, kExtendedV3, kAvx512State},
    {kLeaf1V3, kLeaf7V3, 0, kExtendedV3, kAvxState},
    {kLeaf1V2, 0, 0, kExtendedV2, 0},
};

Features read_features() {
  Features found;
#ifdef __x86_64__
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0, highest = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) found.ecx1 = ecx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    highest = eax;
    found.ebx7 = ebx;
  }
  if (highest >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) found.eax71 = eax;
  if (__get_cpuid(0x80000001, &eax, &ebx, &ecx, &edx) != 0) found.ecx_extended = ecx;
  if ((found.ecx1 & Features::all({27})) != 0) {  // OSXSAVE: XGETBV exists
    uint32_t low = 0, high = 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    found.saved = static_cast<uint64_t>(high) << 32 | low;
  }
#endif
  return found;
}

}  // namespace

const char* const kCpuLevels[] = {"x86-64-v4-bf16", "x86-64-v4", "x86-64-v3", "x86-64-v2"};
const size_t kCpuLevelCount = sizeof kCpuLevels / sizeof kCpuLevels[0];
static_assert(sizeof kCpuLevels / sizeof kCpuLevels[0] == sizeof kNeeds / sizeof kNeeds[0], "one row of needs for each level");

bool has_cpu_level(size_t level) {
  const Features has = read_features();
  const Needs& needs = kNeeds[level];
  return (has.ecx1 & needs.ecx1) == needs.ecx1 && (has.ebx7 & needs.ebx7) == needs.ebx7 && (has.eax71 & needs.eax71) == needs.eax71 &&
         (has.ecx_extended & needs.ecx_extended) == needs.ecx_extended && (has.saved & needs.saved) == needs.saved;
}

}  // namespace aotforge
