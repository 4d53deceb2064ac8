#include "ops/error.h"

#include <aotforge/tensor.h>

#include <cstdarg>
#include <cstdio>

namespace aotforge::ops {
namespace {

thread_local char t_text[1024];

}  // namespace

int refuse(int code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(t_text, sizeof t_text, format, arguments);
  va_end(arguments);
  return code;
}

void clear_error() { t_text[0] = '\0'; }

const char* last_error() { return t_text; }

}  // namespace aotforge::ops

extern "C" const char* aotforge_ops_error(void) { return aotforge::ops::last_error(); }
