#include "image_tar.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace aotforge {
namespace {

constexpr uint64_t kMostZeros = 20480;  // two records of 20 blocks: programs fill the last one

bool all_zeros(const uint8_t* data, size_t size) {
  return std::all_of(data, data + size, [](uint8_t byte) { return byte == 0; });
}

std::string_view field(const uint8_t* header, size_t at, size_t size) {
  return {reinterpret_cast<const char*>(header) + at, size};
}

// Text, then zeros to the end.
bool read_text(std::string_view field, std::string& out) {
  const size_t length = std::min(field.find('\0'), field.size());
  out = field.substr(0, length);
  return field.find_first_not_of('\0', length) == std::string_view::npos;
}

// At least one octal digit, then zeros or spaces. 12 digits at most, which are less than 2^36.
bool read_number(std::string_view field, uint64_t& out) {
  size_t at = 0;
  for (out = 0; at < field.size() && field[at] >= '0' && field[at] <= '7'; ++at) out = out * 8 + static_cast<uint64_t>(field[at] - '0');
  return at > 0 && field.find_first_not_of(std::string_view("\0 ", 2), at) == std::string_view::npos;
}

bool sum_agrees(const uint8_t* header) {
  uint64_t expected = 0, sum = 0;
  for (size_t at = 0; at < 512; ++at) sum += at >= 148 && at < 156 ? ' ' : header[at];
  return read_number(field(header, 148, 8), expected) && sum == expected;
}

bool split(const std::string& text, std::vector<std::string>& out) {
  out.clear();
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('/', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    if (!is_plain_name(out.back())) return false;
    begin = end + 1;
  }
  return out.front() == "aotriton";
}

bool parse(const uint8_t* header, Member& out) {
  std::string name, prefix;
  const char type = static_cast<char>(header[156]);
  const bool valid = (type == '0' || type == '5') && field(header, 257, 8) == std::string_view("ustar\0" "00", 8) &&
                     all_zeros(header + 157, 100) && all_zeros(header + 500, 12) && sum_agrees(header) &&
                     read_number(field(header, 124, 12), out.size) && read_text(field(header, 0, 100), name) &&
                     read_text(field(header, 345, 155), prefix);
  if (!valid) return false;
  out.folder = type == '5';
  if (out.folder && out.size != 0) return false;
  if (out.folder && !name.empty() && name.back() == '/') name.pop_back();
  return split(prefix.empty() ? name : prefix + "/" + name, out.path);
}

}  // namespace

bool is_plain_name(const std::string& name) {
  if (name.empty() || name == "." || name == "..") return false;
  return name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-._") == std::string::npos;
}

bool ImageTar::take_header() {
  filled_ = 0;
  if (all_zeros(header_, sizeof header_)) {
    ended_ = true;
    return true;
  }
  Member member;
  if (!parse(header_, member)) return false;
  begin(member);
  left_ = member.size;
  padding_ = (512 - left_ % 512) % 512;
  if (!member.folder && left_ == 0) end();
  return true;
}

bool ImageTar::feed(const uint8_t* data, size_t size) {
  while (size > 0 && !failed_) {
    size_t used = size;
    if (ended_) {
      zeros_ += used;
      failed_ = zeros_ > kMostZeros || !all_zeros(data, used);
    } else if (left_ > 0) {
      used = static_cast<size_t>(std::min<uint64_t>(size, left_));
      left_ -= used;
      content(data, used);
      if (left_ == 0) end();
    } else if (padding_ > 0) {
      used = static_cast<size_t>(std::min<uint64_t>(size, padding_));
      padding_ -= used;
      failed_ = !all_zeros(data, used);
    } else {
      used = std::min(size, sizeof header_ - filled_);
      std::memcpy(header_ + filled_, data, used);
      filled_ += used;
      if (filled_ == sizeof header_) failed_ = !take_header();
    }
    data += used;
    size -= used;
  }
  return !failed_;
}

}  // namespace aotforge
