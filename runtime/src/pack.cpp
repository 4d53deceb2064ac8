#include "pack.h"

#include <dirent.h>
#include <dlfcn.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "log.h"

namespace aotforge {
namespace {

struct Directory {
  DIR* handle;
  explicit Directory(const char* path) : handle(::opendir(path)) {}
  ~Directory() {
    if (handle != nullptr) ::closedir(handle);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
};

// Names below `path` that can be packs, sorted so that every machine takes the same one.
hipError_t list_packs(const std::string& path, std::vector<std::string>& names) {
  const Directory directory(path.c_str());
  if (directory.handle == nullptr) return unreadable(path, errno);
  errno = 0;
  while (const dirent* entry = ::readdir(directory.handle)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
    errno = 0;
  }
  if (errno != 0) return unreadable(path, errno);
  std::sort(names.begin(), names.end());
  return hipSuccess;
}

// Whether the pack's names include `arch`. `error` is set when that cannot be told.
bool serves(const std::string& path, std::string_view arch, hipError_t* error) {
  const FileSource file(path.c_str());
  if (file.error() == ENOENT || file.error() == ENOTDIR) return false;  // not a pack of this format
  if (file.error() != 0) {
    *error = unreadable(path, file.error());
    return false;
  }
  std::vector<uint8_t> head(static_cast<size_t>(std::min<uint64_t>(file.size(), kArchsMax)));
  if (!file.read(0, head.data(), head.size())) {
    *error = unreadable(path, EIO);
    return false;
  }
  std::vector<std::string_view> archs;
  if (const Refusal refusal = peek_archs(head, file.size(), archs)) {
    *error = refused(path, refusal);
    return false;
  }
  return std::binary_search(archs.begin(), archs.end(), arch);
}

}  // namespace

hipError_t refused(const std::string& path, const Refusal& refusal) {
  const auto offset = static_cast<unsigned long long>(refusal.offset);
  log(Level::error, "%s: %s (offset %llu)", path.c_str(), refusal.reason, offset);
  return refusal.reason == kOtherFormat ? hipErrorInvalidKernelFile : hipErrorInvalidImage;
}

hipError_t unreadable(const std::string& path, int error) {
  char room[128];
  log(Level::error, "%s: %s", path.c_str(), ::strerror_r(error, room, sizeof room));
  if (error == ENOMEM) return hipErrorOutOfMemory;
  return error == ENOENT || error == ENOTDIR ? hipErrorFileNotFound : hipErrorOperatingSystem;
}

hipError_t Pack::load() {
  const std::string path = directory_ + "/dispatch.aotd";
  const FileSource file(path.c_str());
  if (file.error() != 0) return unreadable(path, file.error());
  if (file.size() > kDispatchMax) return refused(path, {"larger than 64 MiB", 16});
  dispatch_.bytes.resize(static_cast<size_t>(file.size()));
  if (!file.read(0, dispatch_.bytes.data(), dispatch_.bytes.size())) return unreadable(path, EIO);
  if (const Refusal refusal = parse_dispatch(dispatch_)) return refused(path, refusal);
  containers_.resize(dispatch_.containers.size());
  log(Level::info, "%s: %zu kernels, %zu images in use", path.c_str(), dispatch_.kernels.size(), dispatch_.slots.size());
  return hipSuccess;
}

hipError_t Pack::image(const Slot& slot, std::vector<uint8_t>& out) {
  std::string path = directory_ + '/';
  path += dispatch_.containers[slot.container].file;
  const FileSource file(path.c_str());
  if (file.error() != 0) return unreadable(path, file.error());
  const Images* images = nullptr;
  if (const hipError_t error = container(slot.container, path, file, &images); error != hipSuccess) return error;
  if (const Refusal refusal = images->decode(file, slot.image, out)) return refused(path, refusal);
  return hipSuccess;
}

hipError_t Pack::container(uint16_t number, const std::string& path, const Source& source, const Images** out) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<Images>& kept = containers_[number];
  if (kept == nullptr) {
    auto opened = std::make_unique<Images>();
    if (const Refusal refusal = opened->open(source, &dispatch_.containers[number].id)) return refused(path, refusal);
    kept = std::move(opened);
  }
  *out = kept.get();
  return hipSuccess;
}

std::string images_directory() {
  const char* chosen = ::secure_getenv("AOTRITON_IMAGES_DIR");
  if (chosen != nullptr && chosen[0] != 0) return chosen;
  Dl_info info;
  static const char anchor = 0;
  if (::dladdr(&anchor, &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string file = info.dli_fname;
  const size_t slash = file.rfind('/');
  return (slash == std::string::npos ? std::string(".") : file.substr(0, slash)) + "/aotriton.images";
}

hipError_t find_pack(const std::string& images, std::string_view arch, std::unique_ptr<Pack>& out) {
  std::vector<std::string> names;
  if (const hipError_t error = list_packs(images, names); error != hipSuccess) return error;
  hipError_t trouble = hipSuccess;
  for (const std::string& name : names) {
    const std::string directory = images + '/' + name;
    if (!serves(directory + "/dispatch.aotd", arch, &trouble)) continue;
    auto pack = std::make_unique<Pack>(directory);
    if (const hipError_t error = pack->load(); error != hipSuccess) return error;
    if (pack->dispatch().find_arch(arch) < 0) continue;  // replaced while we looked
    out = std::move(pack);
    return hipSuccess;
  }
  if (trouble != hipSuccess) return trouble;
  // a damaged name could hide the pack that was meant: verify them all before saying that none serves
  for (const std::string& name : names) {
    Pack pack(images + '/' + name);
    const FileSource file((pack.directory() + "/dispatch.aotd").c_str());
    if (file.error() != 0) continue;
    if (const hipError_t error = pack.load(); error != hipSuccess) return error;
  }
  log(Level::error, "%s: no image pack serves %.*s", images.c_str(), static_cast<int>(arch.size()), arch.data());
  return hipErrorNoBinaryForGpu;
}

}  // namespace aotforge
