#include "log.h"

#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "system.h"

namespace aotforge {
namespace {

constexpr const char* kLevelNames[] = {"off", "error", "warn", "info", "debug"};

constexpr int kBrief = -1;

// Read every time (only failures and first loads log), so that a debugger or a test may change it.
int threshold() {
  char wanted[kShortVariable];
  short_variable("AOTRITON_LOG", wanted);
  for (int i = 0; i <= 4; ++i)
    if (std::strcmp(wanted, kLevelNames[i]) == 0) return i;
  return kBrief;
}

// Hashes of the reasons that were written while no level was selected. Constant-initialised, so there is no order to get wrong.
constexpr int kReasons = 16;
std::atomic<uint64_t> g_reasons[kReasons];

bool all_reasons_written() { return g_reasons[kReasons - 1].load(std::memory_order_relaxed) != 0; }

// The place of a reason that this process has not written yet; kReasons of one that is known or too many.
int new_reason(const char* text) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (; *text != 0; ++text) hash = (hash ^ static_cast<unsigned char>(*text)) * 0x100000001b3;
  for (int at = 0; at < kReasons; ++at) {
    uint64_t known = 0;
    if (g_reasons[at].compare_exchange_strong(known, hash | 1)) return at;
    if (known == (hash | 1)) return kReasons;
  }
  return kReasons;
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

bool log_is_brief() { return threshold() == kBrief; }

bool log_enabled(Level level) {
  if (LogCapture::wants(level)) return true;
  const int most = threshold();
  return most == kBrief ? level <= Level::warn && !all_reasons_written() : static_cast<int>(level) <= most;
}

// A message on its way to stderr.
struct Line {
  char text[2048];
  size_t size;
  static constexpr size_t kCapacity = sizeof text - 1;  // less the newline

  explicit Line(Level level) : size(0) { add("aotriton: %s: ", kLevelNames[static_cast<int>(level)]); }

  __attribute__((format(AOTFORGE_PRINTF, 2, 3))) void add(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    add_list(format, arguments);
    va_end(arguments);
  }
  void add_list(const char* format, va_list arguments) {
    const int written = std::vsnprintf(text + size, kCapacity - size, format, arguments);
    if (written > 0) size = static_cast<size_t>(written) < kCapacity - size ? size + static_cast<size_t>(written) : kCapacity - 1;
  }
  void write() {
    make_printable(text, size);
    text[size++] = '\n';
    write_error(text, size);
  }
  static bool captured() { return t_capture != nullptr; }
  static void keep(const char* format, va_list arguments) {
    std::vsnprintf(t_capture->text_, sizeof t_capture->text_, format, arguments);
    make_printable(t_capture->text_, std::strlen(t_capture->text_));
  }
};

namespace {

void write_log(Level level, const char* advice, const char* format, va_list arguments) {
  if (LogCapture::wants(level)) {
    va_list again;
    va_copy(again, arguments);
    Line::keep(format, again);
    va_end(again);
  }
  const int most = threshold();
  const bool brief = most == kBrief;
  if (brief ? level > Level::warn || Line::captured() || all_reasons_written() : static_cast<int>(level) > most) return;
  Line line(level);
  line.add_list(format, arguments);
  if (brief) {
    const int at = new_reason(line.text);
    if (at == kReasons) return;
    if (advice[0] != 0) line.add("; %s", advice);
    if (at == 0) line.add(" (AOTRITON_LOG=off hides such lines)");
    if (at == kReasons - 1) line.add(" (further reasons are not shown: AOTRITON_LOG=warn shows all)");
  }
  line.write();
}

}  // namespace

void log(Level level, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  write_log(level, "", format, arguments);
  va_end(arguments);
}

void log_advice(Level level, const char* advice, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  write_log(level, advice, format, arguments);
  va_end(arguments);
}

}  // namespace aotforge
