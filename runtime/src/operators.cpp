#include "operators.h"

#include <cstring>

namespace aotforge {
namespace {

// every value brings its comma; the first one is left out when hashing
#define AOTFORGE_TEXT(op, type, value) "," #value ":" #type
constexpr const char* kTexts[kServedCount] = {
    AOTFORGE_ATTN_FWD(AOTFORGE_TEXT, attn_fwd),
    AOTFORGE_ATTN_BWD(AOTFORGE_TEXT, attn_bwd),
    AOTFORGE_ATTN_DROPOUT_MASK(AOTFORGE_TEXT, attn_dropout_mask),
};
#undef AOTFORGE_TEXT
constexpr const char* kOperatorNames[kServedCount] = {"attn_fwd", "attn_bwd", "attn_dropout_mask"};

}  // namespace

const char* interface_text(Served which) { return kTexts[static_cast<unsigned>(which)] + 1; }

const char* operator_name(Served which) { return kOperatorNames[static_cast<unsigned>(which)]; }

Digest interface_hash(Served which) {
  Sha256 hash;
  hash.update(operator_name(which), std::strlen(operator_name(which)));
  hash.update("(", 1);
  hash.update(interface_text(which), std::strlen(interface_text(which)));
  hash.update(")", 1);
  return hash.finish();
}

}  // namespace aotforge
