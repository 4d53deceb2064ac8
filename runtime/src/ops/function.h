// Functions of the operator library as tables, which aotforge/library/operator_functions.py generates from the families' rules.
#pragma once

#include <aotforge/tensor.h>

#include <cstddef>
#include <cstdint>

#include "sha256.h"

namespace aotforge::ops {

constexpr size_t kMaxParameters = 8, kMaxAxes = 64, kMaxCores = 4, kMaxSources = 128;

enum class Kind : uint8_t { input, output, number, axis, option };

// A tensor has core axes, by their places in Function::cores and the innermost last. `reused`: the output may be this input. `optional`: an
// input that may be a null pointer. `options`: the names of an option's values.
struct Parameter {
  const char* name;
  Kind kind;
  bool reused, optional;
  uint8_t cores[kMaxCores];
  uint8_t core_count;
  const char* const* options;
  size_t option_count;

  bool is_tensor() const { return kind == Kind::input || kind == Kind::output; }
  bool has_core(size_t core) const {
    for (size_t i = 0; i < core_count; ++i)
      if (cores[i] == core) return true;
    return false;
  }
};

// DLPack's code and bits, the number in operator values, the name for messages.
struct ElementType {
  uint8_t code, bits;
  int32_t number;
  const char* name;
};

enum class From : uint8_t { pointer, number, single, size, stride, core_size, core_stride, count, rank, dtype, present };

// Where an operator value comes from: a parameter's pointer, number or option (as 64 bits, or as a float), stride, or whether it is there;
// the size of a batch or core axis.
struct Source {
  From from;
  uint8_t parameter, axis;
};

// An operator and the calls that it serves, as rules.Form has them. `strides`, `core_strides`: by parameter the axes whose strides are values.
struct Form {
  const char* name;
  Digest interface;
  size_t rank;
  bool dense;
  int64_t least, least_area, most;
  uint8_t strides[kMaxParameters], core_strides[kMaxParameters];
  const Source* sources;
  size_t source_count;
};

struct Function {
  const char* name;
  const Parameter* parameters;
  size_t parameter_count;
  const ElementType* dtypes;
  size_t dtype_count;
  const Form* forms;
  size_t form_count;
  const char* cores[kMaxCores];
  size_t core_count;
  uint8_t independent;  // bits of core axes that take in batch axes, as IndependentAxes in aotforge/rules.py has them
};

// A number is kept as an integer too where the caller gave one: a double does not have all of 64 bits.
struct Argument {
  const aotforge_tensor* tensor;
  double number;
  int64_t integer;
  bool is_integer;
};

inline Argument of_tensor(const aotforge_tensor* tensor) { return {tensor, 0, 0, false}; }
inline Argument of_number(double number) { return {nullptr, number, 0, false}; }
inline Argument of_integer(int64_t integer) { return {nullptr, static_cast<double>(integer), integer, true}; }

}  // namespace aotforge::ops
