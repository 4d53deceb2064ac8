// Image tarballs after gzip: files and folders of the format ustar with plain names below aotriton/, as a release's are, and nothing else.
// Links, devices, pipes, extended headers, names that lead elsewhere, wrong sums and bytes behind the end are refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace aotforge {

// Letters, digits and + - . _, other than "." and "..".
bool is_plain_name(const std::string& name);

struct Member {
  std::vector<std::string> path;  // plain names, the first one is aotriton
  bool folder = false;
  uint64_t size = 0;  // 0 for folders
};

// Takes the bytes in pieces of any length. Each function is false from the first error on.
class ImageTar {
 public:
  virtual ~ImageTar() = default;
  bool feed(const uint8_t* data, size_t size);
  bool complete() const { return ended_ && !failed_; }

 protected:
  virtual void begin(const Member& member) = 0;
  virtual void content(const uint8_t* data, size_t size) = 0;  // of a file, in pieces, never empty
  virtual void end() = 0;  // of a file

 private:
  bool take_header();

  uint8_t header_[512];
  size_t filled_ = 0;
  uint64_t left_ = 0;  // of the file's content
  uint64_t padding_ = 0;
  uint64_t zeros_ = 0;  // behind the first block of zeros
  bool ended_ = false, failed_ = false;
};

}  // namespace aotforge
