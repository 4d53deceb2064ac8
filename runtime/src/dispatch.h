// Dispatch data of a pack (`dispatch.aotd`, docs/image-pack-format.md): which image serves which call.
#pragma once

#include <bitset>
#include <cstdint>
#include <string_view>
#include <vector>

#include "bytes.h"
#include "sha256.h"

namespace aotforge {

enum class Type : uint8_t { ptr, i32, i64, u64, f32 };
constexpr unsigned kTypeCount = 5;
constexpr unsigned kMaxValues = 512;
constexpr size_t kDispatchHeader = 64;
constexpr uint64_t kDispatchMax = 4u << 20;

using ValueSet = std::bitset<kMaxValues>;

struct Value {
  std::string_view name;
  Type type;
};

struct Operator {
  std::string_view name;
  std::vector<Value> values;
  uint32_t first_kernel = 0, kernel_count = 0;  // in Dispatch::kernels, by step
  ValueSet consulted;                           // values that any of its kernels looks at

  // The digest that library and pack must agree on.
  Digest interface_hash() const;
};

struct Parameter {
  uint16_t value;
  Type from, to;  // the value's type and the kernel's; integers convert into one another when they fit
};

enum class Test : uint8_t {
  multiple_of_power,
  multiple,
  multiple_unsigned,
  range,
  range_unsigned,
  product_multiple,
  product_range
};
constexpr unsigned kMaxFactors = 4;

struct Predicate {
  Test test;
  uint8_t count;          // of `values`; 1 except for products
  uint8_t unsigned_mask;  // bit i: values[i] is unsigned
  uint16_t values[kMaxFactors];
  int64_t low, high;  // multiple_of_power: low is the mask
};

struct Term {
  uint16_t value;
  Type type;
  uint32_t divisor;
};

struct Choice {
  uint32_t image, shared_bytes;
  uint32_t first_predicate, first_term;  // in Dispatch::predicates and Dispatch::terms
  uint32_t slot;                         // number of its (container, image, symbol) among those of the pack
  uint16_t threads;
  uint8_t predicate_count;
  uint8_t term_counts[3];
  std::string_view symbol;
};

struct Functional {
  uint16_t arch, choice_count;
  uint32_t first_choice;  // in Dispatch::choices
};

struct Kernel {
  std::string_view name;
  uint16_t operator_index, container;
  uint8_t step, null_pointers;
  bool ladder;  // the last key selects the smallest functional at or above the value
  std::vector<uint16_t> keys;
  std::vector<Parameter> parameters;
  std::vector<Functional> functionals;  // sorted by (arch, key)
  std::vector<int64_t> key_values;      // keys.size() for each functional
  ValueSet uses;                        // values in keys, parameters, predicates and grids
};

struct Container {
  std::string_view file;
  Digest id;
};

// One (container, image, symbol): what a device loads once.
struct Slot {
  uint16_t container;
  uint32_t image;
  std::string_view symbol;
};

// All calls that a client may make once check_gpu has succeeded are served on this arch.
struct Gate {
  std::string_view name;
  uint16_t arch;
};

// Views point into `bytes`, so a Dispatch is neither copied nor moved after parsing.
struct Dispatch {
  std::vector<uint8_t> bytes;
  std::vector<std::string_view> archs;
  std::vector<Container> containers;
  std::vector<Operator> operators;
  std::vector<Kernel> kernels;
  std::vector<Choice> choices;
  std::vector<Predicate> predicates;
  std::vector<Term> terms;
  std::vector<Slot> slots;
  std::vector<Gate> gates;  // sorted

  Dispatch() = default;
  Dispatch(const Dispatch&) = delete;
  Dispatch& operator=(const Dispatch&) = delete;

  // Index of `name`, or -1.
  int find_operator(std::string_view name) const;
  int find_arch(std::string_view name) const;
  bool serves(std::string_view gate, uint16_t arch) const;
};

// Parse `out.bytes`. On refusal `out` holds nothing usable. Throws std::bad_alloc only.
Refusal parse_dispatch(Dispatch& out);

// The arch names from the first bytes of a file of `file_size` bytes, not yet verified by digest: enough to pass over packs of
// other archs without reading them. Views point into `head`.
Refusal peek_archs(const std::vector<uint8_t>& head, uint64_t file_size, std::vector<std::string_view>& archs);
constexpr size_t kArchsMax = kDispatchHeader + 2 + 64 * 256;  // the names end before this offset

// "other format": a magic that is right and a version that is not 1.
extern const char kOtherFormat[];
inline constexpr uint32_t kFormat = 1;  // of dispatch data and containers

}  // namespace aotforge
