// SHA-256 (FIPS 180-4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace aotforge {

using Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  Sha256();
  void update(const void* data, size_t size);
  Digest finish();

  // For tests: false forces the portable code where the CPU has SHA instructions.
  static void use_instructions(bool enabled);

 private:
  uint32_t state_[8];
  uint64_t total_ = 0;
  uint8_t buffer_[64];
};

Digest sha256(const void* data, size_t size);

// `size` bytes as hexadecimal into `out`, which holds 2 * size + 1 characters.
void to_hex(const uint8_t* bytes, size_t size, char* out);

}  // namespace aotforge
