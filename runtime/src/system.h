// Services of the operating system for readers and messages: posix/system.cpp or windows/system.cpp. Paths and texts are UTF-8 on every
// system; errors are errno's numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace aotforge {

#ifdef _WIN32
constexpr char kSeparator = '\\';
#else
constexpr char kSeparator = '/';
#endif

inline std::string joined(const std::string& folder, const char* name) { return folder + kSeparator + name; }

// For log lines.
std::string error_text(int error);

// Names of everything below a folder but "." and "..", in no order. 0 or the error.
int list_folder(const std::string& path, std::vector<std::string>& names);

// When a folder's list of names was last changed.
struct FolderTime {
  int64_t coarse = 0, fine = 0;
  bool operator==(const FolderTime& other) const { return coarse == other.coarse && fine == other.fine; }
};
bool folder_time(const std::string& path, FolderTime* out);

// `path` without symbolic links and relative parts, so that it stays right when the process changes its folder; `path` itself
// when that is unknown.
std::string absolute(const std::string& path);

// An environment variable of few characters as it is now; empty when it is unset or longer. Allocates nothing.
constexpr size_t kShortVariable = 16;
void short_variable(const char* name, char (&out)[kShortVariable]);

// One write to standard error, nowhere when there is none.
void write_error(const char* text, size_t size);

}  // namespace aotforge
