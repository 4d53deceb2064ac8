// Messages for people, off unless AOTRITON_LOG is error, warn, info or debug. One line, one write to stderr, never stdout.
#pragma once

#include <cstddef>
#include <cstdio>

namespace aotforge {

enum class Level { error = 1, warn = 2, info = 3, debug = 4 };

bool log_enabled(Level level);

#ifdef __MINGW_PRINTF_FORMAT
#define AOTFORGE_PRINTF __MINGW_PRINTF_FORMAT  // of the printf family that this build uses
#else
#define AOTFORGE_PRINTF printf
#endif
__attribute__((format(AOTFORGE_PRINTF, 2, 3))) void log(Level level, const char* format, ...);

// Keeps the first message of an error or a warning that this thread logs during its lifetime, also where the log is off.
class LogCapture {
 public:
  LogCapture();
  ~LogCapture();
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;
  const char* text() const { return text_; }  // "" without one
  static bool wants(Level level);             // this thread's one has no message yet

 private:
  friend void log(Level level, const char* format, ...);
  LogCapture* before_;
  char text_[512] = {};
};

}  // namespace aotforge
