#include "windows/text.h"

#include <windows.h>

#include <algorithm>
#include <cerrno>

namespace aotforge {
namespace {

constexpr wchar_t kLong[] = L"\\\\?\\", kLongShare[] = L"\\\\?\\UNC";

bool starts_with(const std::wstring& text, const wchar_t* start) { return text.rfind(start, 0) == 0; }

}  // namespace

std::wstring to_wide(const std::string& utf8) {
  const int size = static_cast<int>(utf8.size());
  std::wstring wide(utf8.size(), L'\0');
  wide.resize(static_cast<size_t>(::MultiByteToWideChar(CP_UTF8, 0, utf8.c_str(), size, wide.data(), size)));
  return wide;
}

std::string to_utf8(const std::wstring& wide) {
  const int size = static_cast<int>(wide.size());
  std::string utf8(wide.size() * 3, '\0');
  const int used = ::WideCharToMultiByte(CP_UTF8, 0, wide.c_str(), size, utf8.data(), size * 3, nullptr, nullptr);
  utf8.resize(static_cast<size_t>(used));
  return utf8;
}

std::wstring full_path(const std::string& utf8) {
  const std::wstring path = to_wide(utf8);
  for (DWORD capacity = 512;;) {
    std::wstring full(capacity, L'\0');
    const DWORD size = ::GetFullPathNameW(path.c_str(), capacity, full.data(), nullptr);
    if (size == 0) return path;
    full.resize(size < capacity ? size : 0);
    if (size < capacity) return full;
    capacity = size + 1;
  }
}

std::wstring long_path(const std::string& utf8) {
  std::wstring path = to_wide(utf8);
  if (starts_with(path, kLong)) {  // taken as it is: only its separators are made Windows'
    std::replace(path.begin(), path.end(), L'/', L'\\');
    return path;
  }
  const std::wstring full = full_path(utf8);
  if (starts_with(full, L"\\\\.\\")) return full;  // a device
  return starts_with(full, L"\\\\") ? kLongShare + full.substr(1) : kLong + full;
}

int errno_of(unsigned long error) {
  switch (error) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
    case ERROR_INVALID_DRIVE:
    case ERROR_INVALID_NAME:
    case ERROR_BAD_PATHNAME:
    case ERROR_BAD_NETPATH:
    case ERROR_BAD_NET_NAME: return ENOENT;
    case ERROR_DIRECTORY: return ENOTDIR;
    case ERROR_ACCESS_DENIED:
    case ERROR_SHARING_VIOLATION:
    case ERROR_LOCK_VIOLATION: return EACCES;
    case ERROR_TOO_MANY_OPEN_FILES: return EMFILE;
    case ERROR_NOT_ENOUGH_MEMORY:
    case ERROR_OUTOFMEMORY:
    case ERROR_NO_SYSTEM_RESOURCES: return ENOMEM;
    default: return EIO;
  }
}

}  // namespace aotforge
