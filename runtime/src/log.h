// Messages for people. AOTRITON_LOG=off, error, warn, info or debug selects them; without it each distinct error or warning is written
// once, at most 16 in a process. One line, one write to stderr, never stdout.
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

// The same; where each reason is written once, what helps against it follows.
__attribute__((format(AOTFORGE_PRINTF, 3, 4))) void log_advice(Level level, const char* advice, const char* format, ...);

constexpr char kWhichLibrary[] = "./dev compat --pytorch VERSION names the library that this PyTorch needs";

// No level was selected: each reason is written once.
bool log_is_brief();

// Keeps the first message of an error or a warning that this thread logs during its lifetime, also where the log is off. Unless a level
// was selected these messages are not written: its owner reports the reason.
class LogCapture {
 public:
  LogCapture();
  ~LogCapture();
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;
  const char* text() const { return text_; }  // "" without one
  static bool wants(Level level);             // this thread's one has no message yet

 private:
  friend struct Line;
  LogCapture* before_;
  char text_[512] = {};
};

}  // namespace aotforge
