// libFuzzer: any bytes as dispatch data. The digest over the body is put right first, else no fuzzer gets past it.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "dispatch.h"

using namespace aotforge;

namespace {

// What the launcher relies on without looking again.
void check_promises(const Dispatch& d) {
  for (const Kernel& kernel : d.kernels) {
    const Operator& op = d.operators.at(kernel.operator_index);
    if (kernel.container >= d.containers.size()) std::abort();
    for (const Parameter& parameter : kernel.parameters)
      if (parameter.value >= op.values.size()) std::abort();
    if (kernel.key_values.size() != kernel.functionals.size() * kernel.keys.size()) std::abort();
    for (const Functional& f : kernel.functionals) {
      if (f.arch >= d.archs.size() || f.first_choice + f.choice_count > d.choices.size() || f.choice_count == 0) std::abort();
      for (uint32_t i = f.first_choice; i < f.first_choice + f.choice_count; ++i) {
        const Choice& c = d.choices[i];
        size_t terms = 0;
        for (const uint8_t n : c.term_counts) terms += n;
        if (c.first_term + terms > d.terms.size() || c.slot >= d.slots.size() || c.threads == 0) std::abort();
        if (c.first_predicate + c.predicate_count > d.predicates.size()) std::abort();
        if (d.slots[c.slot].symbol != c.symbol || d.slots[c.slot].image != c.image) std::abort();
      }
    }
  }
  for (const Predicate& predicate : d.predicates) {
    if (predicate.count < 1 || predicate.count > kMaxFactors) std::abort();
    if (predicate.test != Test::range && predicate.test != Test::range_unsigned && predicate.test != Test::product_range &&
        predicate.low < (predicate.test == Test::multiple_of_power ? 0 : 1))
      std::abort();
  }
  for (const Term& term : d.terms)
    if (term.divisor == 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Dispatch as_it_is;
  as_it_is.bytes.assign(data, data + size);
  if (!parse_dispatch(as_it_is)) check_promises(as_it_is);
  std::vector<std::string_view> archs;
  peek_archs(as_it_is.bytes, size, archs);
  if (size < kDispatchHeader) return 0;
  Dispatch sealed;
  sealed.bytes.assign(data, data + size);
  const uint64_t length = size;
  std::memcpy(sealed.bytes.data() + 16, &length, 8);
  const Digest digest = sha256(data + kDispatchHeader, size - kDispatchHeader);
  std::copy(digest.begin(), digest.end(), sealed.bytes.begin() + 32);
  if (!parse_dispatch(sealed)) check_promises(sealed);
  return 0;
}
