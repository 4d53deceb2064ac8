#include "operators.h"

#include <cstring>

namespace aotforge {
namespace {

// every value brings its comma; the first one is left out when hashing
#define AOTFORGE_TEXT(op, type, value) "," #value ":" #type
constexpr const char* kFwd = AOTFORGE_ATTN_FWD(AOTFORGE_TEXT, attn_fwd);
constexpr const char* kBwd = AOTFORGE_ATTN_BWD(AOTFORGE_TEXT, attn_bwd);
#undef AOTFORGE_TEXT

}  // namespace

const char* interface_text(Served which) { return (which == Served::attn_fwd ? kFwd : kBwd) + 1; }

const char* operator_name(Served which) { return which == Served::attn_fwd ? "attn_fwd" : "attn_bwd"; }

Digest interface_hash(Served which) {
  Sha256 hash;
  hash.update(operator_name(which), std::strlen(operator_name(which)));
  hash.update("(", 1);
  hash.update(interface_text(which), std::strlen(interface_text(which)));
  hash.update(")", 1);
  return hash.finish();
}

}  // namespace aotforge
