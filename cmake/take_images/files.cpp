#include "files.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <sstream>

#ifndef MOST_BYTES  // tests have smaller limits
#define MOST_BYTES (8ull << 30)
#endif

namespace aotforge {
namespace {

constexpr uint64_t kMostBytes = MOST_BYTES;
constexpr uint64_t kMostEntries = 20000;
constexpr uint64_t kMostPacks = 200;
constexpr size_t kPiece = 1 << 18;

std::string printable(std::string text) {
  for (char& letter : text) {
    if ((static_cast<unsigned char>(letter) < ' ' && letter != '\n') || letter == '\x7f') letter = '?';
  }
  return text;
}

std::string reason() { return std::strerror(errno); }

Fd open_kind(int folder, const std::string& name, Links links, int flags, mode_t kind) {
  const int nofollow = links == Links::refuse ? O_NOFOLLOW : 0;
  Fd opened(::openat(folder, name.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | nofollow | flags));
  struct stat found;
  if (opened && ::fstat(opened.get(), &found) == 0 && (found.st_mode & S_IFMT) == kind) return opened;
  if (!opened && errno == EACCES) throw Stop(of_others(name) + " in AOTRITON_IMAGES cannot be read: " + reason());
  return Fd();
}

}  // namespace

std::string of_others(std::string name) {
  constexpr const char* kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-+/ @,=~";
  for (char& letter : name) {
    if (letter == '\0' || std::strchr(kPlain, letter) == nullptr) letter = '?';
  }
  return name;
}

void print(const std::string& text) {
  std::printf("%s\n", printable(text).c_str());
  std::fflush(stdout);
}

void warn(const std::string& text) { std::fprintf(stderr, "%s\n", printable(text).c_str()); }

Fd& Fd::operator=(Fd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

void Budget::add_bytes(uint64_t count) {
  if (count > left()) throw Stop("AOTRITON_IMAGES has, with what its tarballs unpack to, more than " + std::to_string(kMostBytes) + " bytes, as no images have");
  bytes_ += count;
}

void Budget::add_entry() {
  if (++entries_ > kMostEntries) throw Stop("AOTRITON_IMAGES has more than " + std::to_string(kMostEntries) + " files, as no images have");
}

void Budget::add_pack() {
  if (++packs_ > kMostPacks) throw Stop("AOTRITON_IMAGES has more than " + std::to_string(kMostPacks) + " packs and tarballs, as no release has");
}

uint64_t Budget::left() const { return kMostBytes - bytes_; }

Fd open_file(int folder, const std::string& name, Links links) {
  // a device may act when it is opened
  struct stat found;
  if (::fstatat(folder, name.c_str(), &found, links == Links::refuse ? AT_SYMLINK_NOFOLLOW : 0) != 0 || !S_ISREG(found.st_mode)) return Fd();
  return open_kind(folder, name, links, 0, S_IFREG);
}

Fd open_folder(int folder, const std::string& name, Links links) { return open_kind(folder, name, links, O_DIRECTORY, S_IFDIR); }

bool exists(int folder, const std::string& name) {
  struct stat found;
  return ::fstatat(folder, name.c_str(), &found, 0) == 0 || ::fstatat(folder, name.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0;
}

std::vector<std::string> list_folder(int folder, Budget& budget) {
  const int again = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> opened(again >= 0 ? ::fdopendir(again) : nullptr, ::closedir);
  if (!opened) throw Stop("a folder in AOTRITON_IMAGES cannot be read: " + reason());
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(opened.get())) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    budget.add_entry();
    names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void refuse_holes(int fd, const std::string& shown) {
  off_t holes = 0;
  const off_t end = ::lseek(fd, 0, SEEK_END);
  for (off_t at = 0; at < end;) {
    const off_t hole = ::lseek(fd, at, SEEK_HOLE);  // the end where the file system reports none
    if (hole < at || hole >= end) break;
    at = ::lseek(fd, hole, SEEK_DATA);
    if (at < hole) at = end;
    holes += at - hole;
    if (holes > 1 << 20) throw Stop(shown + " is sparse: more than 1 MiB of it is holes.\nNext step: copy it with cp --sparse=never, and name the copy");
  }
  if (::lseek(fd, 0, SEEK_SET) != 0) throw Stop(shown + " cannot be read: " + reason());
}

void read_all(int fd, const std::string& shown, Budget& budget, const std::function<void(const uint8_t*, size_t)>& take) {
  std::vector<uint8_t> piece(kPiece);
  for (;;) {
    const ssize_t count = ::read(fd, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Stop(shown + " cannot be read: " + reason());
    if (count == 0) return;
    budget.add_bytes(static_cast<uint64_t>(count));
    take(piece.data(), static_cast<size_t>(count));
  }
}

void write_all(int fd, const uint8_t* data, size_t size, const std::string& shown) {
  while (size > 0) {
    const ssize_t count = ::write(fd, data, size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Stop(shown + " cannot be written: " + reason());
    data += count;
    size -= static_cast<size_t>(count);
  }
}

std::string read_begin(int fd, size_t most, const std::string& shown, Budget& budget) {
  std::string text(most, '\0');
  size_t have = 0;
  while (have < most) {
    const ssize_t count = ::read(fd, &text[have], most - have);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Stop(shown + " cannot be read: " + reason());
    if (count == 0) break;
    have += static_cast<size_t>(count);
  }
  budget.add_bytes(have);
  text.resize(have);
  return text;
}

Sums parse_sums(const std::string& text) {
  Sums sums;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const bool form = line.size() > 66 && line[64] == ' ' && (line[65] == ' ' || line[65] == '*');
    if (form && line.find_first_not_of("0123456789abcdef") == 64) sums.emplace(line.substr(66), line.substr(0, 64));
  }
  return sums;
}

void check_sum(const Sums& sums, const std::string& name, const Digest& found, const std::string& folder) {
  const auto expected = sums.find(name);
  if (expected == sums.end()) {
    throw Stop(folder + "/SHA256SUMS does not name " + of_others(name) + ": the two are not of one release.\n"
      "Next step: put the file into a folder of its own, or fetch the SHA256SUMS that belongs to it");
  }
  if (expected->second != hexadecimal(found)) {
    throw Stop(folder + "/" + of_others(name) + " is damaged: its SHA-256 is " + hexadecimal(found) + ", and SHA256SUMS lists " + expected->second +
      ".\nNext step: fetch it again");
  }
}

std::string hexadecimal(const Digest& digest) {
  char text[65];
  to_hex(digest.data(), digest.size(), text);
  return text;
}

Fd make_private_folder(int folder, const std::string& name, const std::string& shown) {
  if (::mkdirat(folder, name.c_str(), 0700) != 0) throw Stop(shown + " cannot be made: " + reason());
  Fd made = open_folder(folder, name, Links::refuse);
  if (!made || ::fchmod(made.get(), 0700) != 0) throw Stop(shown + " cannot be made: " + reason());
  return made;
}

}  // namespace aotforge
