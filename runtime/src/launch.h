// Turn an operator call into kernel launches.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device.h"
#include "state.h"

namespace aotforge {

// An operator value. i32 is kept sign-extended, so that an integer of any width can be read from the same address.
union Cell {
  int64_t i;
  uint64_t u;
  const void* p;
  float f;
};
static_assert(sizeof(Cell) == 8, "kernel parameters point at cells");

// Values that are made only when a kernel that will be launched looks at one of them.
class Lazy {
 public:
  virtual ~Lazy() = default;
  virtual bool wanted(const ValueSet& used) const = 0;
  virtual hipError_t fill(Cell* cells) = 0;
};

struct Call {
  int operator_index;
  Cell* cells;                 // one per value of the operator
  const uint16_t* required;    // values that some kernel must look at, else the call is not covered
  size_t required_count;
  Lazy* const* lazies;
  size_t lazy_count;
};

// Choose, load and launch every step of the calls on `stream`, in their order. Nothing is launched, and no lazy value made, unless all
// calls have images; nothing is launched unless all steps are covered and loaded.
hipError_t launch(Device& device, int ordinal, const Call* calls, size_t count, StreamHandle stream);

}  // namespace aotforge
