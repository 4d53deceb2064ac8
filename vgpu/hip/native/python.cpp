// Running the Python side as a process: nothing of Python is in the program's own process.
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "program.h"
#include "world.h"

extern char** environ;

namespace virtual_hip {
namespace {

std::string command() {
  if (const std::string named = setting("prepare", ""); !named.empty()) return named;
  Dl_info info;
  if (::dladdr(reinterpret_cast<void*>(&command), &info) == 0 || info.dli_fname == nullptr) return "prepare";
  const std::string self = info.dli_fname;
  const size_t slash = self.rfind('/');
  return slash == std::string::npos ? "./prepare" : self.substr(0, slash + 1) + "prepare";
}

// The caller's environment, but for a preloaded library, which is the program's and not Python's.
std::vector<char*> environment() {
  std::vector<char*> kept;
  for (char** one = environ; one != nullptr && *one != nullptr; ++one)
    if (std::strncmp(*one, "LD_PRELOAD=", 11) != 0) kept.push_back(*one);
  kept.push_back(nullptr);
  return kept;
}

// A file in memory; where a sandbox permits none, one without a name in TMPDIR.
int anonymous_file(const char* name) {
  const int fd = ::memfd_create(name, MFD_CLOEXEC);
  if (fd >= 0 || errno != ENOSYS) return fd;
  const char* folder = std::getenv("TMPDIR");
  return ::open(folder != nullptr && *folder != 0 ? folder : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

class Buffer {  // no pipe that could fill up, no signal when the other side ends early
 public:
  explicit Buffer(const char* name) : fd(anonymous_file(name)) {}
  ~Buffer() {
    if (fd >= 0) ::close(fd);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  bool fill(const void* data, size_t size) const {
    const char* at = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t done = ::write(fd, at, size);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) return false;
      at += done;
      size -= static_cast<size_t>(done);
    }
    return ::lseek(fd, 0, SEEK_SET) == 0;
  }
  std::string text() const {
    std::string all;
    char part[4096];
    off_t at = 0;
    for (ssize_t got; (got = ::pread(fd, part, sizeof part, at)) > 0; at += got) all.append(part, static_cast<size_t>(got));
    return all;
  }
  const int fd;
};

}  // namespace

bool run_python(const std::vector<std::string>& arguments, const void* input, size_t bytes, std::string* output) {
  const std::string program = command();
  const Buffer in("image"), out("answer"), noise("stderr");
  if (in.fd < 0 || out.fd < 0 || noise.fd < 0 || !in.fill(input, bytes)) {
    *output = std::string("no memory for files: ") + std::strerror(errno);
    return false;
  }
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& one : arguments) argv.push_back(const_cast<char*>(one.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.fd, 0);
  posix_spawn_file_actions_adddup2(&actions, out.fd, 1);
  posix_spawn_file_actions_adddup2(&actions, noise.fd, 2);
  pid_t child = -1;
  const int failed = ::posix_spawn(&child, program.c_str(), &actions, nullptr, argv.data(), environment().data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    *output = program + " does not run: " + std::strerror(failed) +
              "\nNext step: use the library that `./dev python -m vgpu env` installs, or add prepare=PATH of its `prepare` to AOTFORGE_VIRTUAL";
    return false;
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  *output = out.text();
  if (!output->empty()) return true;
  *output = program + " gave no answer:\n" + noise.text();
  return false;
}

}  // namespace virtual_hip
