// Bytes that can be read at any offset: a file, or memory in tests and fuzzers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace aotforge {

class Source {
 public:
  virtual ~Source() = default;
  virtual uint64_t size() const = 0;
  // All of [offset, offset + size) or false. The caller keeps within size(); a file may still have shrunk.
  virtual bool read(uint64_t offset, void* out, size_t size) const = 0;
};

class MemorySource final : public Source {
 public:
  MemorySource(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint64_t size() const override { return size_; }
  bool read(uint64_t offset, void* out, size_t size) const override {
    if (offset > size_ || size > size_ - offset) return false;
    if (size != 0) std::memcpy(out, data_ + offset, size);
    return true;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

// A regular file, open for reading while the object lives.
class FileSource final : public Source {
 public:
  explicit FileSource(const char* path);
  // `name` in the folder that the descriptor `folder` is open on.
  FileSource(int folder, const char* name);
  ~FileSource() override;
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  // 0, or the errno of the failed open; EISDIR and the like for what is not a regular file.
  int error() const { return error_; }
  uint64_t size() const override { return size_; }
  bool read(uint64_t offset, void* out, size_t size) const override;

 private:
  int descriptor_ = -1;
  int error_ = 0;
  uint64_t size_ = 0;
};

}  // namespace aotforge
