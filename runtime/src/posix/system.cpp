#include "system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "source.h"

namespace aotforge {
namespace {

struct Directory {
  DIR* handle;
  explicit Directory(const char* path) : handle(::opendir(path)) {}
  ~Directory() {
    if (handle != nullptr) ::closedir(handle);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
};

int descriptor(intptr_t handle) { return static_cast<int>(handle); }

}  // namespace

std::string error_text(int error) {
  char buffer[128];
  return ::strerror_r(error, buffer, sizeof buffer);
}

int list_folder(const std::string& path, std::vector<std::string>& names) {
  const Directory directory(path.c_str());
  if (directory.handle == nullptr) return errno;
  errno = 0;
  while (const dirent* entry = ::readdir(directory.handle)) {
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) names.emplace_back(entry->d_name);
    errno = 0;
  }
  return errno;
}

bool folder_time(const std::string& path, FolderTime* out) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return false;
  *out = {status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
  return true;
}

std::string absolute(const std::string& path) {
  char buffer[PATH_MAX];
  return ::realpath(path.c_str(), buffer) != nullptr ? buffer : path;
}

void short_variable(const char* name, char (&out)[kShortVariable]) {
  const char* value = std::getenv(name);
  const size_t size = value != nullptr ? std::strlen(value) : 0;
  const bool fits = size != 0 && size < kShortVariable;
  if (fits) std::memcpy(out, value, size);
  out[fits ? size : 0] = 0;
}

void write_error(const char* text, size_t size) {
  if (::write(STDERR_FILENO, text, size) < 0) return;  // nowhere left to complain to
}

Folder::Folder(const char* path) : handle_(::open(path, O_PATH | O_DIRECTORY | O_CLOEXEC)), error_(handle_ < 0 ? errno : 0) {}

Folder::~Folder() {
  if (handle_ >= 0) ::close(descriptor(handle_));
}

FileSource::FileSource(const char* path) { open(AT_FDCWD, path); }

FileSource::FileSource(const Folder& folder, const char* name) { open(folder.handle_, name); }

void FileSource::open(intptr_t folder, const char* name) {
  do {
    // O_NONBLOCK: a FIFO of that name must not hang us
    handle_ = ::openat(descriptor(folder), name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (handle_ < 0 && errno == EINTR);
  struct stat status;
  if (handle_ < 0 || ::fstat(descriptor(handle_), &status) != 0) {
    error_ = errno;
  } else if (!S_ISREG(status.st_mode)) {
    error_ = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
  } else {
    size_ = static_cast<uint64_t>(status.st_size);
  }
  if (handle_ >= 0 && error_ == 0) {
    device_ = status.st_dev;
    inode_ = status.st_ino;
  } else if (handle_ >= 0) {
    ::close(descriptor(handle_));
    handle_ = -1;
  }
}

FileSource::~FileSource() {
  if (held()) ::close(descriptor(handle_));
}

bool FileSource::held() const {
  struct stat status;
  return handle_ >= 0 && ::fstat(descriptor(handle_), &status) == 0 && S_ISREG(status.st_mode) && status.st_dev == device_ &&
         status.st_ino == inode_;
}

bool FileSource::read(uint64_t offset, void* out, size_t size) const {
  if (!held()) return false;
  char* at = static_cast<char*>(out);
  while (size != 0) {
    const ssize_t got = ::pread(descriptor(handle_), at, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace aotforge
