// Files and folders that another user may write: opened once, never through a link that was not named, counted, and read by their descriptor.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "sha256.h"

namespace aotforge {

// Ends the program: what is wrong and the next step.
struct Stop : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A name that another user has chosen, to be shown: a runner of CI executes commands that it finds in logs, and a terminal those of its own.
std::string of_others(std::string name);

// Lines of standard output and of standard error, without control characters.
void print(const std::string& text);
void warn(const std::string& text);

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Fd& operator=(Fd&& other) noexcept;
  ~Fd();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

// What is read from strangers, all together. A file may have holes, and a link to a file costs nothing.
class Budget {
 public:
  void add_bytes(uint64_t count);
  void add_entry();  // of a folder or tarball
  void add_pack();  // a pack or tarball, taken or not
  uint64_t left() const;

 private:
  uint64_t bytes_ = 0, entries_ = 0, packs_ = 0;
};

enum class Links { refuse, follow };  // for the last part of a name

// Without a file or folder of that name, or with another kind of file there, the result is none. A pipe is not waited for.
Fd open_file(int folder, const std::string& name, Links links);
Fd open_folder(int folder, const std::string& name, Links links);
bool exists(int folder, const std::string& name);

// Names in a folder but "." and "..", in order.
std::vector<std::string> list_folder(int folder, Budget& budget);

// Stops when more than 1 MiB of a file is holes: their author stores none of these bytes.
void refuse_holes(int fd, const std::string& shown);

// Passes on all that `fd` has, in pieces.
void read_all(int fd, const std::string& shown, Budget& budget, const std::function<void(const uint8_t*, size_t)>& take);
void write_all(int fd, const uint8_t* data, size_t size, const std::string& shown);
std::string read_begin(int fd, size_t most, const std::string& shown, Budget& budget);

using Sums = std::map<std::string, std::string>;  // digest in hexadecimal by name
Sums parse_sums(const std::string& text);
void check_sum(const Sums& sums, const std::string& name, const Digest& found, const std::string& folder);

std::string hexadecimal(const Digest& digest);

// A new folder that only this user can enter: files copied into it have the modes of another user's files for a moment.
Fd make_private_folder(int folder, const std::string& name, const std::string& shown);

}  // namespace aotforge
