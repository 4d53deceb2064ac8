#include "system.h"

#include <windows.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "source.h"
#include "windows/text.h"

namespace aotforge {
namespace {

HANDLE handle_of(intptr_t handle) { return reinterpret_cast<HANDLE>(handle); }

intptr_t opened(const std::wstring& path, DWORD sharing, DWORD flags, DWORD access, int* error) {
  const HANDLE handle = ::CreateFileW(path.c_str(), access, sharing, nullptr, OPEN_EXISTING, flags, nullptr);
  *error = handle == INVALID_HANDLE_VALUE ? errno_of(::GetLastError()) : 0;
  return reinterpret_cast<intptr_t>(handle);
}

struct Search {
  HANDLE handle;
  WIN32_FIND_DATAW found;
  explicit Search(const std::wstring& pattern) : handle(::FindFirstFileW(pattern.c_str(), &found)) {}
  ~Search() {
    if (handle != INVALID_HANDLE_VALUE) ::FindClose(handle);
  }
  Search(const Search&) = delete;
  Search& operator=(const Search&) = delete;
};

void write_console(HANDLE console, const char* text, size_t size) {
  wchar_t wide[2048];
  const int count = ::MultiByteToWideChar(CP_UTF8, 0, text, static_cast<int>(size), wide, 2048);
  DWORD written = 0;
  ::WriteConsoleW(console, wide, static_cast<DWORD>(count), &written, nullptr);
}

}  // namespace

std::string error_text(int error) { return std::strerror(error); }  // msvcrt: a buffer per thread

int list_folder(const std::string& path, std::vector<std::string>& names) {
  const std::wstring folder = long_path(path);
  Search search(folder + L"\\*");
  if (search.handle == INVALID_HANDLE_VALUE) return errno_of(::GetLastError());
  do {
    std::string name = to_utf8(search.found.cFileName);
    if (name != "." && name != "..") names.push_back(std::move(name));
  } while (::FindNextFileW(search.handle, &search.found));
  const DWORD error = ::GetLastError();
  return error == ERROR_NO_MORE_FILES ? 0 : errno_of(error);
}

bool folder_time(const std::string& path, FolderTime* out) {
  WIN32_FILE_ATTRIBUTE_DATA data;
  if (!::GetFileAttributesExW(long_path(path).c_str(), GetFileExInfoStandard, &data)) return false;
  *out = {data.ftLastWriteTime.dwHighDateTime, data.ftLastWriteTime.dwLowDateTime};
  return true;
}

std::string absolute(const std::string& path) { return path.empty() ? path : to_utf8(full_path(path)); }

void short_variable(const char* name, char (&out)[kShortVariable]) {
  // the process' variables, not the C library's copy: Python and others use a C library of their own
  const DWORD size = ::GetEnvironmentVariableA(name, out, kShortVariable);
  if (size >= kShortVariable) out[0] = 0;
  if (size == 0) out[0] = 0;
}

void write_error(const char* text, size_t size) {
  const HANDLE out = ::GetStdHandle(STD_ERROR_HANDLE);
  if (out == nullptr || out == INVALID_HANDLE_VALUE) return;
  DWORD mode = 0, written = 0;
  if (::GetConsoleMode(out, &mode)) return write_console(out, text, size);
  ::WriteFile(out, text, static_cast<DWORD>(size), &written, nullptr);
}

// Without FILE_SHARE_DELETE no process moves the folder while it is open, so its path stays its name.
Folder::Folder(const char* path) : path_(path) {
  constexpr DWORD sharing = FILE_SHARE_READ | FILE_SHARE_WRITE;
  handle_ = opened(long_path(path_), sharing, FILE_FLAG_BACKUP_SEMANTICS, FILE_LIST_DIRECTORY, &error_);
}

Folder::~Folder() {
  if (handle_ != -1) ::CloseHandle(handle_of(handle_));
}

FileSource::FileSource(const char* path) { open(path); }

FileSource::FileSource(const Folder& folder, const char* name) { open(joined(folder.path_, name)); }

void FileSource::open(const std::string& path) {
  constexpr DWORD sharing = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
  const std::wstring wide = long_path(path);
  handle_ = opened(wide, sharing, FILE_FLAG_RANDOM_ACCESS, GENERIC_READ, &error_);
  if (error_ != 0) {
    const DWORD attributes = error_ == EACCES ? ::GetFileAttributesW(wide.c_str()) : INVALID_FILE_ATTRIBUTES;
    if (attributes != INVALID_FILE_ATTRIBUTES && (attributes & FILE_ATTRIBUTE_DIRECTORY) != 0) error_ = EISDIR;
    return;
  }
  LARGE_INTEGER size;
  if (::GetFileType(handle_of(handle_)) != FILE_TYPE_DISK) {
    error_ = EINVAL;
  } else if (!::GetFileSizeEx(handle_of(handle_), &size)) {
    error_ = errno_of(::GetLastError());
  } else {
    size_ = static_cast<uint64_t>(size.QuadPart);
  }
}

FileSource::~FileSource() {
  if (handle_ != -1) ::CloseHandle(handle_of(handle_));
}

bool FileSource::held() const { return handle_ != -1; }  // nothing closes the handles of others

bool FileSource::read(uint64_t offset, void* out, size_t size) const {
  constexpr size_t kMost = 1u << 30;
  char* at = static_cast<char*>(out);
  while (size != 0) {
    OVERLAPPED where = {};
    where.Offset = static_cast<DWORD>(offset);
    where.OffsetHigh = static_cast<DWORD>(offset >> 32);
    DWORD got = 0;
    if (!::ReadFile(handle_of(handle_), at, static_cast<DWORD>(std::min(size, kMost)), &got, &where) || got == 0) return false;
    at += got;
    offset += got;
    size -= got;
  }
  return true;
}

}  // namespace aotforge
