// Bytes that can be read at any offset: a file, or memory in tests and fuzzers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

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

class FileSource;

// A folder that is the same one during the object's lifetime, also when another takes its place.
class Folder {
 public:
  explicit Folder(const char* path);
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  // 0, or the errno of the failed open.
  int error() const { return error_; }

 private:
  friend class FileSource;
  intptr_t handle_ = -1;
  int error_ = 0;
#ifdef _WIN32
  std::string path_;
#endif
};

// A regular file, open for reading during the object's lifetime.
class FileSource final : public Source {
 public:
  explicit FileSource(const char* path);
  FileSource(const Folder& folder, const char* name);
  ~FileSource() override;
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  // 0, or the errno of the failed open; EISDIR and the like for what is not a regular file.
  int error() const { return error_; }
  uint64_t size() const override { return size_; }
  bool read(uint64_t offset, void* out, size_t size) const override;

  // Whether the descriptor is still this file: a program may close all descriptors (daemons do) and open its own, which get the same
  // numbers. Then nothing is read from it, and it is not closed.
  bool held() const;

 private:
#ifdef _WIN32
  void open(const std::string& path);
#else
  void open(intptr_t folder, const char* name);
  uint64_t device_ = 0, inode_ = 0;
#endif

  intptr_t handle_ = -1;  // a descriptor, or a Windows handle: -1 is neither
  int error_ = 0;
  uint64_t size_ = 0;
};

}  // namespace aotforge
