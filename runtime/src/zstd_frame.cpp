#include "zstd_frame.h"

#include <new>

#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>
#include <zstd_errors.h>

namespace aotforge {
namespace {

constexpr unsigned long long kWindowMax = 8u << 20;

struct Context {
  ZSTD_DCtx* handle = ZSTD_createDCtx();
  Context() {
    if (handle == nullptr) throw std::bad_alloc();
  }
  ~Context() { ZSTD_freeDCtx(handle); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
};

}  // namespace

const char* check_frame(const uint8_t* data, size_t size, size_t decoded) {
  ZSTD_frameHeader header;
  if (ZSTD_getFrameHeader(&header, data, size) != 0) return "not a zstd frame";
  if (header.frameType != ZSTD_frame) return "not a zstd data frame";
  if (header.frameContentSize != decoded) return "frame's content size differs from the index";
  if (header.windowSize > kWindowMax) return "frame's window is over 8 MiB";
  if (header.checksumFlag != 0 || header.dictID != 0) return "frame has a checksum or dictionary ID";
  if (ZSTD_findFrameCompressedSize(data, size) != size) return "not exactly one zstd frame";
  return nullptr;
}

const char* decode_frame(const uint8_t* data, size_t size, const uint8_t* dictionary, size_t dictionary_size, uint8_t* out,
                         size_t decoded) {
  const Context context;
  if (dictionary_size != 0) {
    const size_t result = ZSTD_DCtx_refPrefix_advanced(context.handle, dictionary, dictionary_size, ZSTD_dct_rawContent);
    if (ZSTD_isError(result)) {
      if (ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation) throw std::bad_alloc();
      return "dictionary is refused";
    }
  }
  const size_t result = ZSTD_decompressDCtx(context.handle, out, decoded, data, size);
  if (ZSTD_isError(result)) return "zstd data is damaged";
  return result == decoded ? nullptr : "decoded size differs";
}

}  // namespace aotforge
