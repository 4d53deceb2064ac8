// libFuzzer: any bytes as a container of images. As they are, and with the index digest and file size put right.
#include <algorithm>
#include <cstring>

#include "container.h"

using namespace aotforge;

namespace {

void read_all(const std::vector<uint8_t>& bytes) {
  const MemorySource source(bytes.data(), bytes.size());
  Images images;
  if (images.open(source, nullptr)) return;
  std::vector<uint8_t> image;
  for (uint32_t i = 0; i < images.count() && i < 16; ++i) images.decode(source, i, image);
  images.decode(source, images.count(), image);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint8_t> bytes(data, data + size);
  read_all(bytes);
  if (size < 128) return 0;
  const uint64_t length = size, index = 64 * static_cast<uint64_t>(load_u32(data + 24));
  std::memcpy(bytes.data() + 16, &length, 8);
  if (index <= size - 128) {
    const Digest digest = sha256(data + 128, index);
    std::copy(digest.begin(), digest.end(), bytes.begin() + 96);
  }
  read_all(bytes);
  return 0;
}
