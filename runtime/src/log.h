// Messages for people, off unless AOTRITON_LOG is error, warn, info or debug. One line, one write(2) to stderr, never stdout.
#pragma once

#include <cstddef>

namespace aotforge {

enum class Level { error = 1, warn = 2, info = 3, debug = 4 };

bool log_enabled(Level level);

__attribute__((format(printf, 2, 3))) void log(Level level, const char* format, ...);

}  // namespace aotforge
