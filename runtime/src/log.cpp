#include "log.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "system.h"

namespace aotforge {
namespace {

constexpr const char* kLevelNames[] = {"off", "error", "warn", "info", "debug"};

// Read every time (only failures and first loads log), so that a debugger or a test may change it.
int threshold() {
  char wanted[kShortVariable];
  short_variable("AOTRITON_LOG", wanted);
  for (int i = 1; i <= 4; ++i)
    if (std::strcmp(wanted, kLevelNames[i]) == 0) return i;
  return 0;
}

// Names come from files: control characters (C0, DEL, C1 in UTF-8) and marks of writing direction would change the terminal.
void make_printable(char* text, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    const auto at = [&](size_t next) { return i + next < size ? static_cast<unsigned char>(text[i + next]) : 0u; };
    const bool c1 = at(0) == 0xC2 && at(1) >= 0x80 && at(1) <= 0x9F;
    const bool direction = at(0) == 0xE2 && ((at(1) == 0x80 && ((at(2) >= 0x8B && at(2) <= 0x8F) || (at(2) >= 0xA8 && at(2) <= 0xAE))) ||
                                             (at(1) == 0x81 && at(2) >= 0xA0 && at(2) <= 0xAF));
    if (at(0) < 0x20 || at(0) == 0x7F) text[i] = '?';
    for (size_t byte = 0; byte < (c1 ? 2u : direction ? 3u : 0u); ++byte) text[i + byte] = '?';
  }
}

}  // namespace

namespace {
thread_local LogCapture* t_capture = nullptr;
}  // namespace

LogCapture::LogCapture() : before_(t_capture) { t_capture = this; }
LogCapture::~LogCapture() { t_capture = before_; }

bool LogCapture::wants(Level level) { return t_capture != nullptr && level <= Level::warn && t_capture->text_[0] == '\0'; }

bool log_enabled(Level level) { return LogCapture::wants(level) || static_cast<int>(level) <= threshold(); }

void log(Level level, const char* format, ...) {
  if (LogCapture::wants(level)) {
    char* text = t_capture->text_;
    va_list words;
    va_start(words, format);
    std::vsnprintf(text, sizeof t_capture->text_, format, words);
    va_end(words);
    make_printable(text, std::strlen(text));
  }
  if (static_cast<int>(level) > threshold()) return;
  char line[2048];
  const int head = std::snprintf(line, sizeof line, "aotriton: %s: ", kLevelNames[static_cast<int>(level)]);
  va_list arguments;
  va_start(arguments, format);
  const size_t capacity = sizeof line - static_cast<size_t>(head) - 1;
  const int body = std::vsnprintf(line + head, capacity, format, arguments);
  va_end(arguments);
  if (body < 0) return;
  size_t size = static_cast<size_t>(head) + (static_cast<size_t>(body) < capacity ? static_cast<size_t>(body) : capacity - 1);
  make_printable(line, size);
  line[size++] = '\n';
  write_error(line, size);
}

}  // namespace aotforge
