// An image for a processor, loaded: an ELF shared library of one kernel, whose functions come from the C library.
//
// It is not loaded with dlopen, which needs a file: its segments are copied into memory of the process and relocated here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace aotforge {

class CpuImage {
 public:
  // Programs `begin` to `end - 1` of a launch; `arguments` are 8 bytes each. The result is the number of a failed assertion, or 0.
  struct Range {
    uint32_t grid[3];
    uint32_t unused;
    uint64_t begin, end;
    void* memory;
    int32_t* status;
  };
  using Function = int32_t (*)(const uint64_t* arguments, const Range* range);

  CpuImage() = default;
  ~CpuImage();
  CpuImage(const CpuImage&) = delete;
  CpuImage& operator=(const CpuImage&) = delete;

  // Null, or why the bytes cannot be loaded; the text is valid until the object ends. Throws std::bad_alloc only.
  const char* load(const uint8_t* bytes, size_t size);

  // What the image's description states (ttcpu/image.py).
  Function function() const { return function_; }
  const char* symbol() const { return texts_[0]; }
  const char* level() const { return texts_[1]; }
  const char* message(size_t assertion) const { return assertion < texts_.size() - 2 ? texts_[assertion + 2] : ""; }
  size_t memory_bytes() const { return memory_bytes_; }
  size_t parameter_count() const { return kinds_.size(); }
  bool needs_pointer(size_t parameter) const { return kinds_[parameter] == 0x80; }  // kind 0, never null

 private:
  const char* map(const uint8_t* bytes, size_t size);
  const char* relocate();
  const char* apply(uint64_t table, uint64_t size);
  const char* resolve(const char* name, uint64_t* out);
  const char* protect();
  const char* describe();
  const void* find(const char* name) const;
  bool has(uint64_t address, uint64_t size) const { return address <= length_ && size <= length_ - address; }
  const char* text(uint64_t offset) const;  // of the string table, null when it does not end there
  template <typename Value>
  Value read(uint64_t address) const;

  struct Segment {
    uint64_t begin, end;
    int access;
  };
  uint8_t* base_ = nullptr;
  uint64_t length_ = 0;
  std::vector<Segment> segments_;
  uint64_t symbols_ = 0, symbol_count_ = 0, strings_ = 0, strings_size_ = 0;
  Function function_ = nullptr;
  size_t memory_bytes_ = 0;
  std::vector<uint8_t> kinds_;
  std::vector<const char*> texts_;  // symbol, level, messages of assertions
  char trouble_[160] = {};
};

}  // namespace aotforge
