// One zstd frame (RFC 8878) of known decoded size.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aotforge {

// Null when `data` is exactly one frame as the pack format wants it: content size `decoded`, no checksum, no dictionary ID,
// window at most 8 MiB. Else the reason. Checked before anything of size `decoded` is allocated.
const char* check_frame(const uint8_t* data, size_t size, size_t decoded);

// Decode a checked frame into `out`, `decoded` bytes, with a raw content dictionary (size 0: none). Null or the reason.
// Throws std::bad_alloc when there is no memory for the decoder.
const char* decode_frame(const uint8_t* data, size_t size, const uint8_t* dictionary, size_t dictionary_size, uint8_t* out,
                         size_t decoded);

}  // namespace aotforge
