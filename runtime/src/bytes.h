// A bounds-checked little-endian reader. The first failure sticks: later reads give zeros, so callers check once per record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace aotforge {

// Why bytes were refused, and at which offset. `reason` is a literal; null means accepted.
struct Refusal {
  const char* reason = nullptr;
  uint64_t offset = 0;
  uint32_t found = 0;  // of another format only: its version
  explicit operator bool() const { return reason != nullptr; }
};

inline uint16_t load_u16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }
inline uint32_t load_u32(const uint8_t* p) { return load_u16(p) | static_cast<uint32_t>(load_u16(p + 2)) << 16; }
inline uint64_t load_u64(const uint8_t* p) { return load_u32(p) | static_cast<uint64_t>(load_u32(p + 4)) << 32; }

class Reader {
 public:
  Reader(const uint8_t* data, size_t size, size_t at = 0) : data_(data), size_(size), at_(at) {}

  uint8_t u8() { const uint8_t* p = take(1); return p ? *p : 0; }
  uint16_t u16() { const uint8_t* p = take(2); return p ? load_u16(p) : 0; }
  uint32_t u32() { const uint8_t* p = take(4); return p ? load_u32(p) : 0; }
  int64_t i64() { const uint8_t* p = take(8); return p ? static_cast<int64_t>(load_u64(p)) : 0; }
  const uint8_t* bytes(size_t n) { return take(n); }

  // u8 length (1 to 255) and that many characters 0x21 to 0x7E; a view into the data.
  std::string_view str() {
    const size_t n = u8();
    if (n == 0) fail("empty name");
    const uint8_t* p = take(n);
    if (!p) return {};
    for (size_t i = 0; i < n; ++i)
      if (p[i] < 0x21 || p[i] > 0x7e) { fail("name is not printable ASCII"); return {}; }
    return {reinterpret_cast<const char*>(p), n};
  }

  // A count within [low, high] whose records of `least` bytes each can still follow; so it is safe to allocate for.
  uint32_t count(uint32_t value, uint32_t low, uint32_t high, size_t least, const char* reason) {
    if (value < low || value > high || value > (size_ - at_) / least) fail(reason);
    return ok() ? value : 0;
  }

  // Keeps the first reason.
  void fail(const char* reason) { if (!refusal_) refusal_ = {reason, at_}; }
  bool require(bool condition, const char* reason) { if (!condition) fail(reason); return ok(); }
  bool ok() const { return !refusal_; }
  bool at_end() const { return at_ == size_; }
  size_t at() const { return at_; }
  const Refusal& refusal() const { return refusal_; }

 private:
  const uint8_t* take(size_t n) {
    if (!ok()) return nullptr;
    if (n > size_ - at_) { fail("truncated"); return nullptr; }
    const uint8_t* p = data_ + at_;
    at_ += n;
    return p;
  }

  const uint8_t* data_;
  size_t size_;
  size_t at_;
  Refusal refusal_;
};

}  // namespace aotforge
