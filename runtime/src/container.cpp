#include "container.h"

#include <cstring>

#include "dispatch.h"
#include "zstd_frame.h"

namespace aotforge {
namespace {

constexpr uint8_t kContainerMagic[8] = {'A', 'O', 'T', 'F', 'I', 'M', 'G', '\n'};
constexpr size_t kHeader = 128, kEntry = 64;
constexpr uint32_t kDictionaryMax = 4u << 20, kImageMax = 64u << 20;

bool all_zero(const uint8_t* bytes, size_t size) {
  for (size_t i = 0; i < size; ++i)
    if (bytes[i] != 0) return false;
  return true;
}

bool same(const Digest& digest, const uint8_t* stored) { return std::memcmp(digest.data(), stored, 32) == 0; }

}  // namespace

Refusal Images::open(const Source& source, const Digest* id) {
  uint8_t header[kHeader];
  if (source.size() < kHeader || !source.read(0, header, kHeader)) return {"truncated", source.size()};
  if (const Refusal refusal = check_header(header, source.size())) return refusal;
  index_.resize(load_u32(header + 24) * kEntry);
  if (!source.read(kHeader, index_.data(), index_.size())) return {"cannot be read", kHeader};
  // an ID is of header and index: with the right one both are what was packed
  identified_ = id != nullptr && identity(header) == *id;
  if (!identified_ && !same(sha256(index_.data(), index_.size()), header + 96)) return {"SHA-256 of the index differs", 96};
  if (!identified_ && id != nullptr) return {"not the container that the dispatch data names", 0};
  if (const Refusal refusal = check_index()) return refusal;
  return read_dictionary(source, header);
}

Digest Images::identity(const uint8_t* header) const {
  Sha256 hash;
  hash.update(header, kHeader);
  hash.update(index_.data(), index_.size());
  return hash.finish();
}

Refusal Images::check_header(const uint8_t* header, uint64_t file_size) {
  if (std::memcmp(header, kContainerMagic, sizeof kContainerMagic) != 0) return {"magic is not that of a container", 0};
  if (const uint32_t format = load_u32(header + 8); format != kFormat) return {kOtherFormat, 8, format};
  if (load_u32(header + 12) != kHeader) return {"header size is not 128", 12};
  if (load_u64(header + 16) != file_size) return {"file size differs from the header's", 16};
  const uint64_t n = load_u32(header + 24);
  if (n < 1 || n > 65536) return {"image count out of bounds", 24};
  if (load_u32(header + 28) != 0) return {"reserved field is not zero", 28};
  if (load_u64(header + 32) != kHeader) return {"index offset is not 128", 32};
  dictionary_at_ = kHeader + kEntry * n;
  if (load_u64(header + 40) != dictionary_at_ || dictionary_at_ > file_size) return {"dictionary offset", 40};
  const uint32_t stored = load_u32(header + 48), decoded = load_u32(header + 52);
  if (stored > kDictionaryMax) return {"stored dictionary over 4 MiB", 48};
  if (decoded > kDictionaryMax || (stored == 0) != (decoded == 0)) return {"dictionary size", 52};
  data_at_ = dictionary_at_ + stored;
  if (load_u64(header + 56) != data_at_ || data_at_ > file_size) return {"data offset", 56};
  if (stored == 0 && !all_zero(header + 64, 32)) return {"digest of a dictionary that is not there", 64};
  file_size_ = file_size;
  return {};
}

Refusal Images::check_index() const {
  uint64_t next = data_at_;
  for (size_t at = 0; at < index_.size(); at += kEntry) {
    const uint8_t* entry = index_.data() + at;
    const uint64_t where = kHeader + at;
    if (at != 0 && std::memcmp(entry - kEntry, entry, 32) >= 0) return {"index is not sorted or not unique", where};
    const uint32_t stored = load_u32(entry + 40), decoded = load_u32(entry + 44);
    if (stored < 1 || stored > kImageMax) return {"frame size out of bounds", where + 40};
    if (decoded < 1 || decoded > kImageMax) return {"image size out of bounds", where + 44};
    if (!all_zero(entry + 48, 16)) return {"reserved field is not zero", where + 48};
    if (load_u64(entry + 32) != next || stored > file_size_ - next) return {"frame is not where it belongs", where + 32};
    next += stored;
  }
  if (next != file_size_) return {"bytes after the last frame", next};
  return {};
}

Refusal Images::read_dictionary(const Source& source, const uint8_t* header) {
  const uint32_t stored = load_u32(header + 48), decoded = load_u32(header + 52);
  if (stored == 0) return {};
  std::vector<uint8_t> frame(stored);
  if (!source.read(dictionary_at_, frame.data(), stored)) return {"cannot be read", dictionary_at_};
  if (const char* reason = check_frame(frame.data(), stored, decoded)) return {reason, dictionary_at_};
  dictionary_.resize(decoded);
  if (const char* reason = decode_frame(frame.data(), stored, nullptr, 0, dictionary_.data(), decoded))
    return {reason, dictionary_at_};
  std::memcpy(dictionary_digest_.data(), header + 64, dictionary_digest_.size());
  return identified_ ? Refusal{} : check_dictionary();
}

Refusal Images::check_dictionary() const {
  if (dictionary_.empty() || sha256(dictionary_.data(), dictionary_.size()) == dictionary_digest_) return {};
  return {"SHA-256 of the dictionary differs", 64};
}

Refusal Images::decode(const Source& source, uint32_t number, std::vector<uint8_t>& out) const {
  if (number >= count()) return {"image index out of bounds", 24};
  if (source.size() != file_size_) return {"file changed while in use", 16};
  const uint8_t* entry = digest(number);
  const uint64_t at = load_u64(entry + 32);
  const uint32_t stored = load_u32(entry + 40), decoded = load_u32(entry + 44);
  std::vector<uint8_t> frame(stored);
  if (!source.read(at, frame.data(), stored)) return {"cannot be read", at};
  if (const char* reason = check_frame(frame.data(), stored, decoded)) return {reason, at};
  out.resize(decoded);
  const char* reason = decode_frame(frame.data(), stored, dictionary_.data(), dictionary_.size(), out.data(), decoded);
  if (reason == nullptr && !same(sha256(out.data(), decoded), entry)) reason = "SHA-256 of the image differs";
  if (reason == nullptr) return {};
  if (const Refusal refusal = check_dictionary()) return refusal;
  return {reason, at};
}

}  // namespace aotforge
