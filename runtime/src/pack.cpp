#include "pack.h"

#include <algorithm>
#include <cerrno>

#include "log.h"
#include "process.h"
#include "system.h"

namespace aotforge {
namespace {

constexpr const char* kDispatchFile = "dispatch.aotd";
constexpr int kFoldersDeep = 3;  // PACK/flash/attn_fwd/FONLY__....aks2

// Names below `path` that can be packs, sorted so that every machine takes the same one.
hipError_t list_packs(const std::string& path, std::vector<std::string>& names) {
  if (const int error = list_folder(path, names)) return unreadable(path, error);
  names.erase(std::remove_if(names.begin(), names.end(), [](const std::string& name) { return name[0] == '.'; }), names.end());
  std::sort(names.begin(), names.end());
  return hipSuccess;
}

// The archs that a pack names; none for what is not a pack of this format. `error` is set when that is unknown.
std::vector<std::string> served_archs(const std::string& path, hipError_t* error) {
  const FileSource file(path.c_str());
  if (file.error() == ENOENT || file.error() == ENOTDIR) return {};
  if (file.error() != 0) {
    *error = unreadable(path, file.error());
    return {};
  }
  std::vector<uint8_t> head(static_cast<size_t>(std::min<uint64_t>(file.size(), kArchsMax)));
  if (!file.read(0, head.data(), head.size())) {
    *error = unreadable(path, EIO);
    return {};
  }
  std::vector<std::string_view> archs;
  if (const Refusal refusal = peek_archs(head, file.size(), archs)) {
    *error = refused(path, refusal);
    return {};
  }
  return {archs.begin(), archs.end()};
}

bool contains(const std::vector<std::string>& sorted, const std::string& name) {
  return std::binary_search(sorted.begin(), sorted.end(), name);
}

// Of a device that executes images of several archs: those of its kind that packs have. It executes none of them.
std::string other_levels(const std::vector<std::string>& archs, const std::vector<std::string>& names,
                         const std::vector<std::vector<std::string>>& served) {
  std::string text;
  const std::string kind = archs[0].substr(0, archs[0].find('-') + 1);  // "cpu-"; GPUs' names have no '-'
  for (size_t at = 0; at < names.size() && !kind.empty(); ++at)
    for (const std::string& arch : served[at])
      if (arch.compare(0, kind.size(), kind) == 0) text += (text.empty() ? ": " : ", ") + names[at] + " is for " + arch;
  return text;
}

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// The ending of a container of AOTriton below a folder; "" without one.
std::string_view aotriton_container(const std::string& path, int depth = kFoldersDeep) {
  std::vector<std::string> names;
  if (depth == 0 || list_folder(path, names) != 0) return {};
  for (const std::string& name : names)
    for (const std::string_view ending : {std::string_view(".aks2"), std::string_view(".zip")})
      if (ends_with(name, ending)) return ending;
  for (const std::string& name : names)
    if (const std::string_view ending = aotriton_container(joined(path, name.c_str()), depth - 1); !ending.empty()) return ending;
  return {};
}

// Folders that are no packs of this library, and the format of those that are packs of AOTriton.
std::string other_formats(const std::string& images, const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    const std::string folder = joined(images, name.c_str());
    if (FileSource(joined(folder, kDispatchFile).c_str()).error() != ENOENT) continue;
    const std::string_view ending = aotriton_container(folder);
    if (ending.empty()) continue;
    text += (text.empty() ? "; of AOTriton's format, which this library does not read: " : ", ") + name + " (";
    text.append(ending).append(")");
  }
  return text;
}

}  // namespace

hipError_t refused(const std::string& path, const Refusal& refusal) {
  const auto offset = static_cast<unsigned long long>(refusal.offset);
  if (refusal.reason == kOtherFormat) {
    log(Level::error, "%s: is of format %u, this library reads format %u", path.c_str(), refusal.found, kFormat);
    return hipErrorInvalidKernelFile;
  }
  log(Level::error, "%s: %s (offset %llu)", path.c_str(), refusal.reason, offset);
  return hipErrorInvalidImage;
}

hipError_t unreadable(const std::string& path, int error) {
  log(Level::error, "%s: %s", path.c_str(), error_text(error).c_str());
  if (error == ENOMEM) return hipErrorOutOfMemory;
  return error == ENOENT || error == ENOTDIR ? hipErrorFileNotFound : hipErrorOperatingSystem;
}

hipError_t Pack::verify() { return read_dispatch(FileSource(joined(directory_, kDispatchFile).c_str())); }

hipError_t Pack::load() {
  // through one handle, so that all files are of one folder even while another takes its place
  const Folder folder(directory_.c_str());
  if (folder.error() != 0) return unreadable(joined(directory_, kDispatchFile), folder.error());
  if (const hipError_t error = read_dispatch(FileSource(folder, kDispatchFile)); error != hipSuccess) return error;
  for (size_t i = 0; i < containers_.size() && i < kHeldMax; ++i) {
    auto file = std::make_shared<const FileSource>(folder, std::string(dispatch_.containers[i].file).c_str());
    if (file->error() == 0) containers_[i].file = std::move(file);
  }
  return hipSuccess;
}

hipError_t Pack::read_dispatch(const FileSource& file) {
  const std::string path = joined(directory_, kDispatchFile);
  if (file.error() != 0) return unreadable(path, file.error());
  if (file.size() > kDispatchMax) return refused(path, {"larger than 4 MiB", 16});
  dispatch_.bytes.resize(static_cast<size_t>(file.size()));
  if (!file.read(0, dispatch_.bytes.data(), dispatch_.bytes.size())) return unreadable(path, EIO);
  if (const Refusal refusal = parse_dispatch(dispatch_)) return refused(path, refusal);
  containers_.resize(dispatch_.containers.size());
  log(Level::info, "%s: %zu kernels, %zu images in use", path.c_str(), dispatch_.kernels.size(), dispatch_.slots.size());
  return hipSuccess;
}

hipError_t Pack::image(const Slot& slot, std::vector<uint8_t>& out) {
  std::string path = directory_ + kSeparator;
  path += dispatch_.containers[slot.container].file;
  Container from;
  if (const hipError_t error = container(slot.container, path, from); error != hipSuccess) return error;
  if (const Refusal refusal = from.images->decode(*from.file, slot.image, out)) {
    forget(slot.container, from);
    return refused(path, refusal);
  }
  return hipSuccess;
}

hipError_t Pack::container(uint16_t number, const std::string& path, Container& out) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Container& kept = containers_[number];
  if (kept.file != nullptr && !kept.file->held()) kept = {};  // the program has closed our descriptor: begin again, by path
  out = kept;
  if (out.file == nullptr) out.file = std::make_shared<const FileSource>(path.c_str());
  if (out.file->error() != 0) return unreadable(path, out.file->error());
  if (out.images != nullptr) return hipSuccess;
  auto read = std::make_shared<Images>();
  if (const Refusal refusal = read->open(*out.file, &dispatch_.containers[number].id)) {
    kept = {};  // a repaired file has the next try
    return refused(path, refusal);
  }
  out.images = std::move(read);
  kept.images = out.images;
  if (number < kHeldMax) kept.file = out.file;
  return hipSuccess;
}

void Pack::forget(uint16_t number, const Container& damaged) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (containers_[number].images == damaged.images) containers_[number] = {};
}

std::string images_directory() {
  const std::string chosen = trusted_variable("AOTRITON_IMAGES_DIR");
  if (!chosen.empty()) return chosen;
  const std::string file = library_file();
  if (file.empty()) return {};
  const size_t separator = file.rfind(kSeparator);
  return joined(separator == std::string::npos ? std::string(".") : file.substr(0, separator), "aotriton.images");
}

hipError_t find_pack(const std::string& images, const std::vector<std::string>& archs, std::unique_ptr<Pack>& out, std::string& arch) {
  std::vector<std::string> names;
  if (const hipError_t error = list_packs(images, names); error != hipSuccess) return error;
  hipError_t trouble = hipSuccess;
  std::vector<std::vector<std::string>> served;
  for (const std::string& name : names) served.push_back(served_archs(joined(joined(images, name.c_str()), kDispatchFile), &trouble));
  for (const std::string& wanted : archs)
    for (size_t at = 0; at < names.size(); ++at) {
      if (!contains(served[at], wanted)) continue;
      auto pack = std::make_unique<Pack>(joined(images, names[at].c_str()));
      if (const hipError_t error = pack->load(); error != hipSuccess) return error;
      if (pack->dispatch().find_arch(wanted) < 0) continue;  // replaced while we looked
      out = std::move(pack);
      arch = wanted;
      return hipSuccess;
    }
  if (trouble != hipSuccess) return trouble;
  // a damaged name could hide the pack that was meant: verify them all before saying that none serves
  for (const std::string& name : names) {
    Pack pack(joined(images, name.c_str()));
    const FileSource file(joined(pack.directory(), kDispatchFile).c_str());
    if (file.error() != 0) continue;
    if (const hipError_t error = pack.verify(); error != hipSuccess) return error;
  }
  const std::string others = other_levels(archs, names, served) + other_formats(images, names);
  log(Level::error, "%s: no image pack serves %s%s", images.c_str(), archs[0].c_str(), others.c_str());
  return hipErrorNoBinaryForGpu;
}

}  // namespace aotforge
