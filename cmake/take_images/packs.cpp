#include "packs.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <set>
#include <utility>

#include "image_tar.h"

extern char** environ;

namespace aotforge {
namespace {

constexpr const char* kTarballs = "*-images-*.tar.*";
constexpr const char* kInstalled = "lib/aotriton.images";
constexpr size_t kMostSignature = 65536;
constexpr size_t kMostSums = 1 << 20;
constexpr const char* kOddPack =
  "an image pack in AOTRITON_IMAGES has another name or other entries than packs have: files *.aoti, dispatch.aotd and __signature__";
constexpr const char* kOddName = "a folder in AOTRITON_IMAGES has image packs or tarballs with other names than releases have";
constexpr const char* kOddFile = " in an image pack in AOTRITON_IMAGES is not of the format of image packs";
constexpr const char* kNameTarball = "Next step: name a file aotriton-<version>-images-<pack>.tar.gz";

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

bool is_pack_file(const std::string& name) {
  return is_plain_name(name) && (ends_with(name, ".aoti") || name == "dispatch.aotd" || name == "__signature__" || name == "SHA256SUMS");
}

// A file that was a link for a moment may be a private one.
bool has_format(const std::string& name, const std::string& begin) {
  if (name == "SHA256SUMS") return true;
  if (name == "__signature__") return begin.rfind('{', 0) == 0 && begin.find("\"archs\":") != std::string::npos;
  return begin == (name == "dispatch.aotd" ? "AOTFDSP\n" : "AOTFIMG\n");
}

// The archs of the pack that was written; stops when it is none.
std::vector<std::string> check_pack(const PackWriter& pack, const std::string& shown) {
  const auto& files = pack.files();
  for (const char* name : {"__signature__", "dispatch.aotd"}) {
    if (files.count(name) == 0) {
      throw Stop(shown + " is not an image pack of this library's format: it has no " + name +
        ".\nNext step: docs/image-pack-format.md describes a pack");
    }
  }
  const auto listed = files.find("SHA256SUMS");
  const Sums sums = listed != files.end() ? parse_sums(listed->second.begin) : Sums();
  for (const auto& [name, written] : files) {
    if (!has_format(name, written.begin)) throw Stop(name + kOddFile);
    if (listed != files.end() && name != "SHA256SUMS") check_sum(sums, name, written.digest, shown);
  }
  if (listed != files.end() && ::unlinkat(pack.folder(), "SHA256SUMS", 0) != 0) throw Stop(shown + "/SHA256SUMS cannot be removed");
  if (::fchmod(pack.folder(), 0755) != 0) throw Stop(shown + ": its copy cannot be given the mode 755");
  return read_archs(files.at("__signature__").begin);
}

// The packs of a tarball, written below `folder`.
class PacksOfTar : public ImageTar {
 public:
  PacksOfTar(int folder, Budget& budget) : folder_(folder), budget_(budget) {}
  std::map<std::string, PackWriter>& packs() { return packs_; }

 protected:
  void begin(const Member& member) override {
    budget_.add_entry();
    const auto& path = member.path;
    const bool inside = path.size() > 4 && path[1] == "lib" && path[2] == "aotriton.images";
    writer_ = nullptr;
    if (!inside) return;
    if (member.folder || path.size() > 5) throw Stop(kOddPack);
    auto found = packs_.find(path[3]);
    if (found == packs_.end()) {
      budget_.add_pack();
      found = packs_.emplace(path[3], PackWriter(folder_, path[3])).first;
    }
    writer_ = &found->second;
    writer_->begin(path[4]);
  }

  void content(const uint8_t* data, size_t size) override {
    if (writer_ != nullptr) writer_->content(data, size);
  }

  void end() override {
    if (writer_ != nullptr) writer_->end();
  }

 private:
  const int folder_;
  Budget& budget_;
  std::map<std::string, PackWriter> packs_;
  PackWriter* writer_ = nullptr;
};

// SHA256SUMS in the open folder, if it is there, for the file `name` in it.
void add_sums(int opened, const std::string& folder, const std::string& name, Links links, Budget& budget, std::vector<Listed>& out) {
  if (!exists(opened, "SHA256SUMS")) return;
  const Fd file = open_file(opened, "SHA256SUMS", links);
  if (!file) throw Stop(folder + "/SHA256SUMS is not a file");
  out.push_back({parse_sums(read_begin(file.get(), kMostSums, folder + "/SHA256SUMS", budget)), name, folder});
}

// `gzip -dc`, reading a file and writing to a pipe.
class Gzip {
 public:
  Gzip(int packed, const std::string& shown) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw Stop(shown + " cannot be unpacked: " + std::strerror(errno));
    output_ = Fd(ends[0]);
    const Fd input(ends[1]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, packed, 0);
    ::posix_spawn_file_actions_adddup2(&actions, input.get(), 1);
    char name[] = "gzip", option[] = "-dc";
    char* words[] = {name, option, nullptr};
    const int failed = ::posix_spawnp(&child_, name, &actions, nullptr, words, environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (failed) {
      child_ = -1;
      throw Stop(shown + " cannot be unpacked: gzip cannot be executed.\nNext step: install gzip, or unpack the file, and name lib/aotriton.images in it");
    }
  }

  ~Gzip() {
    if (child_ < 0) return;
    ::kill(child_, SIGKILL);
    wait();
  }

  int output() const { return output_.get(); }

  bool wait() {  // whether it ended without an error
    int status = 0;
    while (::waitpid(child_, &status, 0) < 0 && errno == EINTR) {
    }
    child_ = -1;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  Fd output_;
  pid_t child_ = -1;
};

// A private copy of the tarball, whose sum is checked, at its beginning.
Fd copy_tarball(int source, int folder, const std::vector<Listed>& listed, const std::string& shown, uint64_t& size, Budget& budget) {
  Fd copy(::openat(folder, ".packed", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));  // no pack has this name
  if (!copy || ::unlinkat(folder, ".packed", 0) != 0) throw Stop("the copy of " + shown + " cannot be made: " + std::strerror(errno));
  Sha256 hash;
  size = 0;
  read_all(source, shown, budget, [&](const uint8_t* data, size_t count) {
    if (size == 0 && (count < 3 || std::memcmp(data, "\x1f\x8b\x08", 3) != 0)) {
      throw Stop(shown + " is not a gzip file, as image tarballs are.\n" + kNameTarball);
    }
    size += count;
    hash.update(data, count);
    write_all(copy.get(), data, count, "the copy of " + shown);
  });
  if (size == 0) throw Stop(shown + " is empty.\nNext step: fetch it again");
  const Digest digest = hash.finish();
  for (const Listed& one : listed) check_sum(one.sums, one.name, digest, one.folder);
  if (::lseek(copy.get(), 0, SEEK_SET) != 0) throw Stop("the copy of " + shown + " cannot be read");
  return copy;
}

void unpack(int packed, uint64_t size, const std::string& shown, PacksOfTar& tar, Budget& budget) {
  const uint64_t most = size * 100 + (1 << 20);
  uint64_t count = 0;
  Gzip gzip(packed, shown);
  read_all(gzip.output(), shown, budget, [&](const uint8_t* data, size_t piece) {
    count += piece;
    if (count > most) throw Stop(shown + " would unpack to more than a hundred times its size");
    if (!tar.feed(data, piece)) {
      throw Stop(shown + " has members other than files and folders of the format ustar with plain names below aotriton/, as image tarballs have");
    }
  });
  if (!gzip.wait()) throw Stop(shown + " is damaged: gzip cannot read it to its end.\nNext step: fetch it again");
  if (!tar.complete()) throw Stop(shown + " is not a complete tarball.\nNext step: fetch it again");
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

PackWriter::PackWriter(int folder, const std::string& pack) : pack_(pack) {
  if (!is_plain_name(pack) || pack.front() == '.') throw Stop(kOddName);
  folder_ = make_private_folder(folder, pack, "the copy of the pack " + pack);
}

void PackWriter::begin(const std::string& file) {
  if (!is_pack_file(file)) throw Stop(kOddPack);
  name_ = file;
  begin_.clear();
  most_ = file == "SHA256SUMS" ? kMostSums : file == "__signature__" ? kMostSignature : 8;
  hash_ = Sha256();
  file_ = Fd(::openat(folder_.get(), file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file_) throw Stop("the copy of " + pack_ + "/" + file + " cannot be made: " + std::strerror(errno));
}

void PackWriter::content(const uint8_t* data, size_t size) {
  begin_.append(reinterpret_cast<const char*>(data), std::min(size, most_ - begin_.size()));
  hash_.update(data, size);
  write_all(file_.get(), data, size, "the copy of " + pack_ + "/" + name_);
}

void PackWriter::end() {
  // set, not copied: a program of another user would be a program with this user's rights
  if (::fchmod(file_.get(), 0644) != 0) throw Stop("the copy of " + pack_ + "/" + name_ + " cannot be given the mode 644");
  file_ = Fd();
  files_[name_] = {hash_.finish(), begin_};
}

std::vector<std::string> read_archs(const std::string& signature) {
  constexpr const char* kKey = "\"archs\":";
  std::vector<std::string> archs;
  size_t at = signature.find(kKey);
  if (at == std::string::npos) return archs;
  at = signature.find_first_not_of(" \n\t\r", at + std::strlen(kKey));
  if (at == std::string::npos || signature[at] != '[') return archs;
  const std::string list = signature.substr(at, signature.find(']', at) - at);
  for (size_t begin = list.find("gfx"); begin != std::string::npos; begin = list.find("gfx", begin + 3)) {
    const size_t end = std::min(list.find_first_not_of("0123456789abcdef", begin + 3), list.size());
    if (end > begin + 3) archs.push_back(list.substr(begin, end - begin));
  }
  return archs;
}

bool Taker::wanted(const std::vector<std::string>& archs, Choice choice) const {
  if (choice == Choice::always || settings_.archs.empty()) return true;
  return std::any_of(archs.begin(), archs.end(), [&](const std::string& arch) {
    return std::find(settings_.archs.begin(), settings_.archs.end(), arch) != settings_.archs.end();
  });
}

void Taker::add(const std::string& pack, const std::vector<std::string>& archs) {
  served_.insert(archs.begin(), archs.end());
  print("images: " + pack + " (" + joined(archs) + ")");
}

void Taker::take_pack(int folder, const std::string& name, const std::string& shown, Choice choice) {
  budget_.add_pack();
  if (choice == Choice::of_archs) {
    const Fd file = open_file(folder, "__signature__", Links::refuse);
    if (!file) throw Stop(kOddPack);
    if (!wanted(read_archs(read_begin(file.get(), kMostSignature, shown, budget_)), choice)) return;
  }
  if (!taken_.insert(name).second) {
    throw Stop("AOTRITON_IMAGES has the pack " + name + " twice, the second time in " + shown + ".\nNext step: leave one of them out");
  }
  PackWriter writer(staged_.get(), name);
  const std::vector<std::string> names = list_folder(folder, budget_);
  uint64_t bytes = 0;
  for (const std::string& file : names) {  // holes are cheap to name and expensive to copy
    struct stat found;
    if (::fstatat(folder, file.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(found.st_mode)) {
      bytes += std::min(static_cast<uint64_t>(found.st_size), budget_.left() + 1);
    }
    if (bytes > budget_.left()) budget_.add_bytes(bytes);
  }
  std::set<std::pair<dev_t, ino_t>> copied;
  for (const std::string& file : names) {
    const Fd opened = is_pack_file(file) ? open_file(folder, file, Links::refuse) : Fd();
    struct stat found;
    if (!opened || ::fstat(opened.get(), &found) != 0) throw Stop(kOddPack);
    if (!copied.emplace(found.st_dev, found.st_ino).second) throw Stop(shown + "/" + file + " is the same file as another one of the pack");
    refuse_holes(opened.get(), shown + "/" + file);
    writer.begin(file);
    read_all(opened.get(), shown + "/" + file, budget_, [&](const uint8_t* data, size_t size) { writer.content(data, size); });
    writer.end();
  }
  add(name, check_pack(writer, shown));
}

void Taker::take_packs(int folder, const std::string& shown, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (!exists(folder, name + "/__signature__")) continue;
    if (!is_plain_name(name)) throw Stop(kOddName);
    const Fd pack = open_folder(folder, name, Links::refuse);
    if (!pack) throw Stop(kOddPack);
    take_pack(pack.get(), name, shown + "/" + name, Choice::of_archs);
  }
}

void Taker::take_tarball(const Fd& file, const std::vector<Listed>& listed, const std::string& shown, Choice choice) {
  budget_.add_pack();
  struct stat found;
  if (::fstat(file.get(), &found) != 0) throw Stop(shown + " cannot be read: " + std::strerror(errno));
  if (static_cast<uint64_t>(found.st_size) > budget_.left()) budget_.add_bytes(static_cast<uint64_t>(found.st_size));
  refuse_holes(file.get(), shown);
  const Fd unpacked = make_private_folder(AT_FDCWD, unpacked_, "the folder for what " + shown + " unpacks to");
  uint64_t size = 0;
  PacksOfTar tar(unpacked.get(), budget_);
  {
    const Fd packed = copy_tarball(file.get(), unpacked.get(), listed, shown, size, budget_);
    unpack(packed.get(), size, shown, tar, budget_);
  }
  if (tar.packs().empty()) throw Stop(shown + " holds no aotriton/lib/aotriton.images, as image tarballs do.\n" + kNameTarball);
  for (const auto& [pack, writer] : tar.packs()) {
    const std::vector<std::string> archs = check_pack(writer, shown + "/" + pack);
    if (!wanted(archs, choice)) continue;
    if (!taken_.insert(pack).second) {
      throw Stop("AOTRITON_IMAGES has the pack " + pack + " twice, the second time in " + shown + ".\nNext step: leave one of them out");
    }
    if (::renameat(unpacked.get(), pack.c_str(), staged_.get(), pack.c_str()) != 0) throw Stop(shown + ": " + std::strerror(errno));
    add(pack, archs);
  }
  std::filesystem::remove_all(unpacked_);
}

void Taker::take_tarballs(int folder, const std::string& shown, const std::vector<std::string>& tarballs) {
  uint64_t bytes = 0;
  for (const std::string& name : tarballs) {
    if (!is_plain_name(name)) throw Stop(kOddName);
    // programs that compare a release's archives know them by their names
    if (!ends_with(name, ".tar.gz")) throw Stop(shown + "/" + name + " has another name than image tarballs have.\n" + kNameTarball + ", or remove this one");
    struct stat found;
    if (::fstatat(folder, name.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0) bytes += std::min(static_cast<uint64_t>(found.st_size), budget_.left() + 1);
    if (bytes > budget_.left()) budget_.add_bytes(bytes);
  }
  for (const std::string& name : tarballs) {
    const Fd file = open_file(folder, name, Links::refuse);
    if (!file) throw Stop(shown + "/" + name + " is not a file");
    std::vector<Listed> listed;
    add_sums(folder, shown, name, Links::refuse, budget_, listed);
    take_tarball(file, listed, shown + "/" + name, Choice::of_archs);
  }
}

void Taker::take_named_tarball(const Fd& file, const std::string& path) {
  const std::filesystem::path real = std::filesystem::canonical(path);
  std::vector<Listed> listed;
  for (const std::filesystem::path& name : {std::filesystem::path(path), real}) {  // beside a link, and beside what it leads to
    if (name == real && !listed.empty() && listed.back().folder == real.parent_path()) break;
    const Fd folder = open_folder(AT_FDCWD, name.parent_path(), Links::follow);
    if (!folder) throw Stop(of_others(name.parent_path()) + " cannot be read");
    add_sums(folder.get(), of_others(name.parent_path()), name.filename(), Links::follow, budget_, listed);
  }
  take_tarball(file, listed, path, Choice::always);
}

void Taker::take(const std::string& path) {
  if (const Fd file = open_file(AT_FDCWD, path, Links::follow)) {
    take_named_tarball(file, path);
    return;
  }
  const Fd folder = open_folder(AT_FDCWD, path, Links::follow);
  if (!folder) throw Stop("AOTRITON_IMAGES: " + path + " is neither a file nor a folder");
  if (exists(folder.get(), "__signature__")) {
    const std::string name = std::filesystem::canonical(path).filename();
    if (!is_plain_name(name)) throw Stop(kOddName);
    take_pack(folder.get(), name, path, Choice::always);
    return;
  }
  const std::vector<std::string> names = list_folder(folder.get(), budget_);
  const auto select = [&names](auto condition) {
    std::vector<std::string> selected;
    std::copy_if(names.begin(), names.end(), std::back_inserter(selected), condition);
    return selected;
  };
  const auto packs = select([&](const std::string& name) { return exists(folder.get(), name + "/__signature__"); });
  const auto tarballs = select([](const std::string& name) { return ::fnmatch(kTarballs, name.c_str(), 0) == 0; });
  const Fd inner = open_folder(folder.get(), kInstalled, Links::follow);
  if (!packs.empty() && inner) {
    throw Stop("AOTRITON_IMAGES: " + path + " has image packs beside lib/aotriton.images, so that it is not clear which are meant.\n"
      "Next step: name the folder of packs");
  }
  // who may add a folder, and not change SHA256SUMS, would add images that it does not have
  if ((!packs.empty() || inner) && (!tarballs.empty() || exists(folder.get(), "SHA256SUMS"))) {
    throw Stop("AOTRITON_IMAGES: " + path + " has image packs beside image tarballs or SHA256SUMS, as no release has.\n"
      "Next step: name the tarballs or the folder of packs");
  }
  if (!packs.empty()) {
    take_packs(folder.get(), path, packs);
  } else if (inner) {
    const std::string shown = path + "/" + kInstalled;
    take_packs(inner.get(), shown, list_folder(inner.get(), budget_));
  } else if (!tarballs.empty()) {
    take_tarballs(folder.get(), path, tarballs);
  } else {
    throw Stop("AOTRITON_IMAGES: " + path + " holds no images: neither a pack (__signature__), nor packs, nor lib/aotriton.images, nor image tarballs");
  }
}

void Taker::finish() {
  std::vector<std::string> missing;
  for (const std::string& arch : settings_.archs) {
    if (served_.count(arch) == 0) missing.push_back(arch);
  }
  const std::string text = joined(settings_.ready) + " has no images" + (missing.empty() ? "" : " for " + joined(missing));
  if (taken_.empty()) throw Stop("AOTRITON_IMAGES: " + text);
  if (!missing.empty()) warn("warning: AOTRITON_IMAGES: " + text);
  if (::fchmod(staged_.get(), 0755) != 0) throw Stop("the folder of images cannot be given the mode 755");
}

}  // namespace aotforge
