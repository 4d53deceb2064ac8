#include "source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace aotforge {

FileSource::FileSource(const char* path) : FileSource(AT_FDCWD, path) {}

FileSource::FileSource(int folder, const char* name) {
  do {
    descriptor_ = ::openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // O_NONBLOCK: a FIFO of that name must not hang us
  } while (descriptor_ < 0 && errno == EINTR);
  struct stat status;
  if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) {
    error_ = errno;
  } else if (!S_ISREG(status.st_mode)) {
    error_ = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
  } else {
    size_ = static_cast<uint64_t>(status.st_size);
  }
}

FileSource::~FileSource() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool FileSource::read(uint64_t offset, void* out, size_t size) const {
  char* at = static_cast<char*>(out);
  while (size != 0) {
    const ssize_t got = ::pread(descriptor_, at, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace aotforge
