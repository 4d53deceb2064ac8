// The text of a thread's last failed call.
#pragma once

#include <cstddef>

namespace aotforge::ops {

// Sets this thread's text and returns `code`.
__attribute__((format(printf, 2, 3))) int refuse(int code, const char* format, ...);

void clear_error();
const char* last_error();

}  // namespace aotforge::ops
