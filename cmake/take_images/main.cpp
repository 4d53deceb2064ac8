// take_images SETTINGS: ready image packs, checked and copied unchanged to the folder `output`.
//
// SETTINGS has lines "output PATH", "arch ARCH" and "ready PATH". Ready may be image tarballs, pack folders, folders of packs, installed prefixes
// and release folders. Where a SHA256SUMS is next to a tarball or in a pack, it must have every file that is taken, with its digest.
// From folders that hold several packs, those for the archs are taken, all without archs.
// A folder may be another user's, who can change it meanwhile: the copy is checked, and the copy is installed.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "packs.h"

using namespace aotforge;

namespace {

constexpr int kPacks = 2;  // levels of a folder of packs

Settings read_settings(const char* path) {
  Settings settings;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t space = line.find(' ');
    const std::string key = line.substr(0, space), value = space == std::string::npos ? "" : line.substr(space + 1);
    if (key == "output") settings.output = value;
    if (key == "arch") settings.archs.push_back(value);
    if (key == "ready") settings.ready.push_back(value);
  }
  bool absolute = !settings.ready.empty() && settings.output.rfind('/', 0) == 0;
  for (const std::string& ready : settings.ready) absolute = absolute && ready.rfind('/', 0) == 0;
  if (!absolute) throw Stop(std::string(path) + " is not a file of settings that CMake wrote.\nNext step: configure again");
  return settings;
}

bool newer(const timespec& one, const timespec& other) {
  return one.tv_sec != other.tv_sec ? one.tv_sec > other.tv_sec : one.tv_nsec >= other.tv_nsec;
}

// What READY is like: a file that was replaced has another number, one that was written or renamed has another time of change, which no program can
// choose.
class Listing {
 public:
  explicit Listing(const timespec& since) : since_(since) {}

  // `levels`: of folders whose entries are listed.
  void add(int folder, const std::string& name, int levels, Links links = Links::follow) {
    struct stat found;
    if (!add_stat(folder, name, AT_SYMLINK_NOFOLLOW, found)) return;
    if (S_ISLNK(found.st_mode)) add_stat(folder, name, 0, found);
    if (S_ISDIR(found.st_mode) && levels > 0) {
      const Fd opened = open_folder(folder, name, links);
      if (!opened) return;
      for (const std::string& below : list_folder(opened.get(), budget_)) add(opened.get(), below, levels - 1, Links::refuse);
    }
  }

  void add_text(const std::string& text) { hash_.update(text.c_str(), text.size() + 1); }
  std::string digest() { return hexadecimal(hash_.finish()); }
  bool has_newer() const { return newer_; }

 private:
  bool add_stat(int folder, const std::string& name, int flags, struct stat& found) {
    if (::fstatat(folder, name.c_str(), &found, flags) != 0) return false;
    add_text(name);
    const uint64_t numbers[] = {
      static_cast<uint64_t>(found.st_dev), static_cast<uint64_t>(found.st_ino), static_cast<uint64_t>(found.st_mode),
      static_cast<uint64_t>(found.st_size), static_cast<uint64_t>(found.st_ctim.tv_sec), static_cast<uint64_t>(found.st_ctim.tv_nsec)};
    hash_.update(numbers, sizeof numbers);
    newer_ = newer_ || newer(found.st_ctim, since_);
    return true;
  }

  const timespec since_;
  bool newer_ = false;
  Budget budget_;
  Sha256 hash_;
};

// Whether the images in the output are those that READY has. `state` becomes a digest of both.
bool unchanged(const Settings& settings, const char* settings_path, const char* program, std::string& state) {
  struct stat last = {};
  const std::string path = settings.output + ".state";
  const bool known = ::stat(path.c_str(), &last) == 0 && std::filesystem::is_directory(settings.output);
  Listing listing(last.st_mtim);
  for (const char* file : {settings_path, program}) {
    std::ifstream stream(file, std::ios::binary);
    listing.add_text(std::string(std::istreambuf_iterator<char>(stream), {}));
  }
  for (const std::string& ready : settings.ready) {
    const std::string inner = ready + "/lib/aotriton.images";
    const bool prefix = std::filesystem::is_directory(inner);
    listing.add(AT_FDCWD, ready, prefix ? 1 : kPacks);  // a prefix has many other files
    if (prefix) listing.add(AT_FDCWD, inner, kPacks);
    std::error_code none;
    const std::filesystem::path real = std::filesystem::canonical(ready, none);
    for (const std::filesystem::path& path_of : {std::filesystem::path(ready), real}) listing.add(AT_FDCWD, path_of.parent_path() / "SHA256SUMS", 0);
  }
  state = listing.digest();
  std::string text;
  std::ifstream stream(path);
  return known && std::getline(stream, text) && text == state && !listing.has_newer();
}

void take(const Settings& settings, const std::string& state) {
  const std::string &output = settings.output, staged = output + ".new", unpacked = output + ".unpacked", next = output + ".state.new";
  const auto clean = [&] {
    for (const std::string& path : {staged, unpacked, next}) std::filesystem::remove_all(path);
  };
  clean();  // what an ended build left
  std::filesystem::remove(output + ".state");
  try {
    std::ofstream stream(next);  // older than what changes from here on
    stream << state << '\n' << std::flush;
    if (!stream) throw Stop(next + " cannot be written");
    Taker taker(settings, make_private_folder(AT_FDCWD, staged, staged), unpacked);
    for (const std::string& path : settings.ready) taker.take(path);
    taker.finish();
    std::filesystem::remove_all(output);
    std::filesystem::rename(staged, output);
    std::filesystem::rename(next, output + ".state");
  } catch (...) {
    clean();
    throw;
  }
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) {
    std::fprintf(stderr, "usage: take_images SETTINGS\n");
    return 2;
  }
  ::umask(::umask(022) | 022);  // another user could write what is installed later
  try {
    const Settings settings = read_settings(words[1]);
    const std::string lock = settings.output + ".lock";
    const Fd locked(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));  // two builds in one folder
    if (!locked) throw Stop(lock + " cannot be opened: " + std::strerror(errno));
    // Lustre and NFS may have no locks
    if (::flock(locked.get(), LOCK_EX) != 0 && errno != ENOSYS && errno != ENOLCK && errno != EOPNOTSUPP) {
      throw Stop(lock + " cannot be locked: " + std::strerror(errno));
    }
    std::string state;
    if (!unchanged(settings, words[1], words[0], state)) take(settings, state);
  } catch (const std::exception& error) {
    warn(std::string("error: ") + error.what());
    return 1;
  }
  return 0;
}
