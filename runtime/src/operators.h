// The operators that the library serves itself: their interface, and the positions of their values.
#pragma once

#include <hip/hip_runtime.h>

#include "dispatch.h"
#include "operators.def"

namespace aotforge {

#define AOTFORGE_POSITION(op, type, value) value,
struct Fwd {
  enum : uint16_t { AOTFORGE_ATTN_FWD(AOTFORGE_POSITION, attn_fwd) kCount };
};
struct Bwd {
  enum : uint16_t { AOTFORGE_ATTN_BWD(AOTFORGE_POSITION, attn_bwd) kCount };
};
struct Mask {
  enum : uint16_t { AOTFORGE_ATTN_DROPOUT_MASK(AOTFORGE_POSITION, attn_dropout_mask) kCount };
};
#undef AOTFORGE_POSITION

enum class Served : uint8_t { attn_fwd, attn_bwd, attn_dropout_mask };
constexpr unsigned kServedCount = 3;

// `attn_fwd(Q:ptr,...)` as this library was compiled.
const char* interface_text(Served which);
const char* operator_name(Served which);
Digest interface_hash(Served which);

}  // namespace aotforge
