// UTF-8 and UTF-16, and paths that Windows takes at any length.
#pragma once

#include <string>

namespace aotforge {

std::wstring to_wide(const std::string& utf8);
std::string to_utf8(const std::wstring& wide);

// The path without relative parts, with Windows' separators; the path itself when the system cannot complete it.
std::wstring full_path(const std::string& utf8);

// The path without relative parts, in the form (\\?\...) that has no limit of 260 characters.
std::wstring long_path(const std::string& utf8);

// errno's number for a Windows error.
int errno_of(unsigned long error);

}  // namespace aotforge
