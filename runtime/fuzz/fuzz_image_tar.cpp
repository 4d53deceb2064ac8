// libFuzzer: any bytes as an image tarball after gzip, at once and in pieces. As they are, and with the sums of the headers put right.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../../cmake/take_images/image_tar.h"

using namespace aotforge;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

// What the reader found, as text. Members begin and end in pairs, with as many bytes as their headers have.
class Found : public ImageTar {
 public:
  std::string text;

 protected:
  void begin(const Member& member) override {
    require(!open_ && !member.path.empty() && member.path.front() == "aotriton");
    for (const std::string& name : member.path) {
      require(is_plain_name(name) && name != ".." && name.find('/') == std::string::npos);
      text += "/" + name;
    }
    text += " " + std::to_string(member.size) + "\n";
    require(!member.folder || member.size == 0);
    open_ = !member.folder;
    left_ = member.size;
  }

  void content(const uint8_t* data, size_t size) override {
    require(open_ && size > 0 && size <= left_);
    left_ -= size;
    text.append(reinterpret_cast<const char*>(data), size);
  }

  void end() override {
    require(open_ && left_ == 0);
    open_ = false;
  }

 private:
  bool open_ = false;
  uint64_t left_ = 0;
};

void read_all(const std::vector<uint8_t>& bytes) {
  Found at_once, in_pieces;
  const bool read = at_once.feed(bytes.data(), bytes.size());
  bool read_pieces = true;
  size_t length = 1;
  for (size_t at = 0; at < bytes.size() && read_pieces; at += length, length = length * 3 % 701 + 1) {
    length = std::min(length, bytes.size() - at);
    read_pieces = in_pieces.feed(bytes.data() + at, length);
  }
  require(read == read_pieces && at_once.complete() == in_pieces.complete() && at_once.text == in_pieces.text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint8_t> bytes(data, data + size);
  read_all(bytes);
  for (size_t at = 0; at + 512 <= size; at += 512) {
    if (std::memcmp(bytes.data() + at + 257, "ustar", 5) != 0) continue;
    uint64_t sum = 8 * ' ';
    for (size_t i = 0; i < 512; ++i) sum += i >= 148 && i < 156 ? 0 : bytes[at + i];
    char text[9];
    std::snprintf(text, sizeof text, "%06o", static_cast<unsigned>(sum));
    text[7] = ' ';
    std::memcpy(bytes.data() + at + 148, text, 8);
  }
  read_all(bytes);
  return 0;
}
