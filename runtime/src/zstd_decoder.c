// zstd's decoder: the functions that zstd_frame.cpp calls. With -fwhole-program the compiler drops every other function before it optimises
// any, which takes a sixth of the time that all of zstd takes; a compiler without that option compiles all of them, and the linker drops them.
#define _GNU_SOURCE  // zstd.c calls qsort_r; clang refuses functions without a declaration
#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>
#include <zstd_errors.h>

#define AOTFORGE_CALLED __attribute__((externally_visible))

AOTFORGE_CALLED ZSTD_DCtx* ZSTD_createDCtx(void);
AOTFORGE_CALLED size_t ZSTD_freeDCtx(ZSTD_DCtx*);
AOTFORGE_CALLED size_t ZSTD_getFrameHeader(ZSTD_frameHeader*, const void*, size_t);
AOTFORGE_CALLED size_t ZSTD_findFrameCompressedSize(const void*, size_t);
AOTFORGE_CALLED size_t ZSTD_DCtx_refPrefix_advanced(ZSTD_DCtx*, const void*, size_t, ZSTD_dictContentType_e);
AOTFORGE_CALLED size_t ZSTD_decompressDCtx(ZSTD_DCtx*, void*, size_t, const void*, size_t);
AOTFORGE_CALLED unsigned ZSTD_isError(size_t);
AOTFORGE_CALLED ZSTD_ErrorCode ZSTD_getErrorCode(size_t);

#include <zstd.c>
