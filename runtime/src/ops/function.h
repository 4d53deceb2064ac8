// Functions of the operator library as tables, which aotforge/library/operator_functions.py generates from the families' rules.
#pragma once

#include <aotforge/tensor.h>

#include <cstddef>
#include <cstdint>

#include "sha256.h"

namespace aotforge::ops {

constexpr size_t kMaxParameters = 8, kMaxAxes = 64, kMaxSources = 128;

enum class Kind : uint8_t { input, output, number };

struct Parameter {
  const char* name;
  Kind kind;
};

// DLPack's code and bits, the number in operator values, the name for messages.
struct ElementType {
  uint8_t code, bits;
  int32_t number;
  const char* name;
};

enum class From : uint8_t { pointer, number, size, stride, count, rows, rank, dtype };

// Where an operator value comes from: a parameter's pointer, number or stride; an axis' size.
struct Source {
  From from;
  uint8_t parameter, axis;
};

// An operator and the calls that it serves, as rules.Form has them.
struct Form {
  const char* name;
  Digest interface;
  size_t rank;
  bool dense;
  int64_t least, most;
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
