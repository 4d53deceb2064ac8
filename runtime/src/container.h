// A container of images (`<family>.<kernel>.aoti`, docs/image-pack-format.md). One image is read and decoded without the others.
#pragma once

#include <cstdint>
#include <vector>

#include "bytes.h"
#include "sha256.h"
#include "source.h"

namespace aotforge {

class Images {
 public:
  // Read header, index and dictionary. `id`, unless null, is the container ID that the dispatch data names; with it the dictionary's digest
  // is checked only where an image differs from its own, which is what names the cause. Throws std::bad_alloc only.
  Refusal open(const Source& source, const Digest* id);

  uint32_t count() const { return static_cast<uint32_t>(index_.size() / 64); }

  // Decode image `number` into `out` and verify its SHA-256. `source` holds the same file as at open().
  Refusal decode(const Source& source, uint32_t number, std::vector<uint8_t>& out) const;

  const uint8_t* digest(uint32_t number) const { return index_.data() + 64 * static_cast<size_t>(number); }

 private:
  Refusal check_header(const uint8_t* header, uint64_t file_size);
  Refusal check_index() const;
  Digest identity(const uint8_t* header) const;
  Refusal read_dictionary(const Source& source, const uint8_t* header);
  Refusal check_dictionary() const;

  std::vector<uint8_t> index_;
  std::vector<uint8_t> dictionary_;
  Digest dictionary_digest_{};
  bool identified_ = false;
  uint64_t file_size_ = 0, dictionary_at_ = 0, data_at_ = 0;
};

}  // namespace aotforge
