// Packs of strangers, copied from folders and tarballs into a folder of this user, and checked there.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "files.h"

namespace aotforge {

// What was written of a pack's file, as the checks need it.
struct Written {
  Digest digest;
  std::string begin;
};

// Writes the files of packs; a name that no pack has, or that is there already, is refused.
class PackWriter {
 public:
  PackWriter(int folder, const std::string& pack);
  void begin(const std::string& file);
  void content(const uint8_t* data, size_t size);
  void end();
  const std::map<std::string, Written>& files() const { return files_; }
  int folder() const { return folder_.get(); }

 private:
  Fd folder_, file_;
  std::string pack_, name_, begin_;
  size_t most_ = 0;  // of begin_
  Sha256 hash_;
  std::map<std::string, Written> files_;
};

// The sums beside a tarball: in `folder`, it has the name `name`.
struct Listed {
  Sums sums;
  std::string name, folder;
};

struct Settings {
  std::string output;
  std::vector<std::string> archs, ready;
};

// Takes packs into `staged`.
class Taker {
 public:
  // `unpacked` is the name of a folder for what a tarball has.
  Taker(const Settings& settings, Fd staged, const std::string& unpacked) : settings_(settings), staged_(std::move(staged)), unpacked_(unpacked) {}

  void take(const std::string& path);
  // Prints a warning for archs without images; stops when nothing was taken.
  void finish();

 private:
  enum class Choice { always, of_archs };

  bool wanted(const std::vector<std::string>& archs, Choice choice) const;
  void add(const std::string& pack, const std::vector<std::string>& archs);
  void take_pack(int folder, const std::string& name, const std::string& shown, Choice choice);
  void take_packs(int folder, const std::string& shown, const std::vector<std::string>& names);
  void take_tarballs(int folder, const std::string& shown, const std::vector<std::string>& tarballs);
  void take_named_tarball(const Fd& file, const std::string& path);
  void take_tarball(const Fd& file, const std::vector<Listed>& listed, const std::string& shown, Choice choice);

  const Settings& settings_;
  const Fd staged_;
  const std::string unpacked_;
  Budget budget_;
  std::set<std::string> taken_, served_;
};

// gfx names in `archs` of a pack's signature.
std::vector<std::string> read_archs(const std::string& signature);

}  // namespace aotforge
