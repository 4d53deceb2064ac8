#include "log.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "system.h"

namespace aotforge {
namespace {

constexpr const char* kNames[] = {"off", "error", "warn", "info", "debug"};

// Read every time (only failures and first loads log), so that a debugger or a test may change it.
int threshold() {
  char wanted[kShortVariable];
  short_variable("AOTRITON_LOG", wanted);
  for (int i = 1; i <= 4; ++i)
    if (std::strcmp(wanted, kNames[i]) == 0) return i;
  return 0;
}

}  // namespace

bool log_enabled(Level level) { return static_cast<int>(level) <= threshold(); }

void log(Level level, const char* format, ...) {
  if (!log_enabled(level)) return;
  char line[2048];
  const int head = std::snprintf(line, sizeof line, "aotriton: %s: ", kNames[static_cast<int>(level)]);
  va_list arguments;
  va_start(arguments, format);
  const size_t capacity = sizeof line - static_cast<size_t>(head) - 1;
  const int body = std::vsnprintf(line + head, capacity, format, arguments);
  va_end(arguments);
  if (body < 0) return;
  size_t size = static_cast<size_t>(head) + (static_cast<size_t>(body) < capacity ? static_cast<size_t>(body) : capacity - 1);
  for (size_t i = 0; i < size; ++i)
    if (static_cast<unsigned char>(line[i]) < 0x20) line[i] = '?';  // names come from files: keep it one line
  line[size++] = '\n';
  write_error(line, size);
}

}  // namespace aotforge
