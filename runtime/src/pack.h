// An image pack on disk: its dispatch data, read once, and its containers, opened at once and read when first needed.
#pragma once

#include <hip/hip_runtime.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "container.h"
#include "dispatch.h"

namespace aotforge {

// A result with its own code for each kind of trouble: hipErrorOperatingSystem (a file cannot be read), hipErrorInvalidImage
// (damaged), hipErrorInvalidKernelFile (other format version), hipErrorFileNotFound (missing). Logs one line.
hipError_t refused(const std::string& path, const Refusal& refusal);
hipError_t unreadable(const std::string& path, int error);

class Pack {
 public:
  explicit Pack(std::string directory) : directory_(std::move(directory)) {}

  // Read and verify dispatch.aotd. Throws std::bad_alloc only.
  hipError_t verify();

  // The same, and open the containers, so that this process keeps the files that belong together when the folder is replaced.
  // Those that cannot be opened now, and all after the first kHeldMax, are opened by their path when needed.
  hipError_t load();

  const Dispatch& dispatch() const { return dispatch_; }
  const std::string& directory() const { return directory_; }

  // The image of a slot, decoded and verified.
  hipError_t image(const Slot& slot, std::vector<uint8_t>& out);

 private:
  static constexpr size_t kHeldMax = 64;  // descriptors are few: many programs may open 1024

  // What is known of one container. Devices share packs: a call keeps the file and the index that it began with.
  struct Container {
    std::shared_ptr<const FileSource> file;  // null: open it by path
    std::shared_ptr<const Images> images;    // null until read
  };

  hipError_t read_dispatch(const FileSource& file);
  hipError_t container(uint16_t number, const std::string& path, Container& out);
  void forget(uint16_t number, const Container& damaged);

  std::string directory_;
  Dispatch dispatch_;
  std::mutex mutex_;  // guards containers_
  std::vector<Container> containers_;
};

// Where images are: AOTRITON_IMAGES_DIR, else aotriton.images beside this library's file as the loader found it (its symbolic
// link's path if it is one). Empty when the loader does not report it.
std::string images_directory();

// Load the pack whose arch list has the first of `archs` that one has, the first pack by name; `arch` becomes that one.
// hipErrorNoBinaryForGpu when there is none; a pack that cannot be read or is damaged is an error of its own when no other one serves.
hipError_t find_pack(const std::string& images, const std::vector<std::string>& archs, std::unique_ptr<Pack>& out, std::string& arch);

}  // namespace aotforge
