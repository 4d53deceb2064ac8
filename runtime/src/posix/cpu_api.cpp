#include "cpu_api.h"

#include <dlfcn.h>
#include <link.h>
#include <sched.h>

#include <atomic>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "log.h"
#include "posix/cpu_image.h"
#include "posix/cpu_level.h"
#include "posix/cpu_pool.h"
#include "process.h"

namespace aotforge {
namespace {

constexpr const char* kPrefix = "cpu-";
constexpr size_t kMostArguments = 256;
constexpr size_t kOnStack = 2048;
constexpr unsigned kMostThreads = 4096;

thread_local unsigned t_threads = 0;  // set_cpu_threads

unsigned positive(const std::string& text) {
  if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != std::string::npos) return 0;
  return static_cast<unsigned>(std::strtoul(text.c_str(), nullptr, 10));
}

unsigned processors() {
  cpu_set_t* set = nullptr;
  unsigned count = 0;
  for (int most = 1024; most <= 1 << 18 && count == 0; most *= 4) {  // larger where the kernel has more
    set = CPU_ALLOC(most);
    if (set == nullptr) break;
    const size_t size = CPU_ALLOC_SIZE(most);
    if (::sched_getaffinity(0, size, set) == 0) count = static_cast<unsigned>(CPU_COUNT_S(size, set));
    CPU_FREE(set);
  }
  return count != 0 ? count : 1;
}

// OpenMP of the process, if it has one: PyTorch's number of threads is its. Looked up again only when a library was loaded since.
struct OpenMp {
  int (*in_parallel)() = nullptr;
  int (*max_threads)() = nullptr;
};

template <typename Function>
void look_up(const char* name, Function& out) {
  void* found = ::dlsym(RTLD_DEFAULT, name);
  std::memcpy(&out, &found, sizeof out);
}

OpenMp open_mp() {
  unsigned long long loaded = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        *static_cast<unsigned long long*>(out) = info->dlpi_adds + info->dlpi_subs;
        return 1;
      },
      &loaded);
  thread_local OpenMp known;
  thread_local unsigned long long known_at = 0;
  if (known_at != loaded) {
    look_up("omp_in_parallel", known.in_parallel);
    look_up("omp_get_max_threads", known.max_threads);
    known_at = loaded;
  }
  return known;
}

unsigned default_threads() {
  static const unsigned count = [] {
    const unsigned wanted = positive(trusted_variable("OMP_NUM_THREADS"));
    return wanted != 0 ? wanted : processors();
  }();
  return count;
}

unsigned thread_count() {
  if (t_threads != 0) return t_threads;
  const OpenMp found = open_mp();
  if (found.in_parallel != nullptr && found.in_parallel() != 0) return 1;  // the program's threads are busy already
  const int most = found.max_threads != nullptr ? found.max_threads() : 0;
  return most > 0 ? static_cast<unsigned>(most) : default_threads();
}

const CpuImage* image_of(const void* handle) { return static_cast<const CpuImage*>(handle); }

// A launch's programs.
class Launch final : public CpuPool::Work {
 public:
  Launch(CpuPool& pool, const CpuImage& image, const uint32_t* grid, const uint64_t* arguments)
      : pool_(pool), image_(image), grid_(grid), arguments_(arguments) {}

  void run(uint64_t begin, uint64_t end) override {
    if (image_.memory_bytes() <= kOnStack) {
      alignas(64) char memory[kOnStack];
      return programs(begin, end, memory);
    }
    const CpuPool::Memory memory(pool_, image_.memory_bytes());
    if (memory.data() == nullptr) return no_memory_.store(true);
    programs(begin, end, memory.data());
  }

  hipError_t result() const {
    if (no_memory_.load()) {
      log(Level::error, "%s: there is no memory for the %zu bytes that each thread needs", image_.symbol(), image_.memory_bytes());
      return hipErrorOutOfMemory;
    }
    if (status_ == 0) return hipSuccess;
    log(Level::error, "%s: device_assert failed: %s", image_.symbol(), image_.message(static_cast<size_t>(status_) - 1));
    return hipErrorAssert;
  }

 private:
  void programs(uint64_t begin, uint64_t end, void* memory) {
    const CpuImage::Range range{{grid_[0], grid_[1], grid_[2]}, 0, begin, end, memory, &status_};
    image_.function()(arguments_, &range);
  }

  CpuPool& pool_;
  const CpuImage& image_;
  const uint32_t* const grid_;
  const uint64_t* const arguments_;
  int32_t status_ = 0;  // of the assertion that failed last, written by programs
  std::atomic<bool> no_memory_{false};
};

void write_name(size_t level, char* name) { std::snprintf(name, kArchNameSize, "%s%s", kPrefix, kCpuLevels[level]); }

}  // namespace

CpuApi::CpuApi() = default;
CpuApi::~CpuApi() { delete pool_; }

hipError_t CpuApi::load() {
  while (level_ < kCpuLevelCount && !has_cpu_level(level_)) ++level_;
  if (level_ == kCpuLevelCount) {
    log(Level::error, "this processor is below %s%s, the lowest level with images", kPrefix, kCpuLevels[kCpuLevelCount - 1]);
    return hipErrorNotSupported;
  }
  if (const std::string wanted = trusted_variable("AOTFORGE_CPU_LEVEL"); !wanted.empty()) {
    unsigned chosen = 0;
    while (chosen < kCpuLevelCount && wanted != kCpuLevels[chosen]) ++chosen;
    if (chosen == kCpuLevelCount || !has_cpu_level(chosen)) {
      log(Level::error, "AOTFORGE_CPU_LEVEL=%s is not a level of this processor, which has %s", wanted.c_str(), kCpuLevels[level_]);
      return hipErrorNoBinaryForGpu;
    }
    level_ = chosen;
  }
  pool_ = new CpuPool;
  return hipSuccess;
}

hipError_t CpuApi::device_of(StreamHandle stream, int* device) const {
  *device = 0;
  return stream == nullptr ? hipSuccess : hipErrorInvalidValue;
}

hipError_t CpuApi::arch_name(int, char* name) const {
  write_name(level_, name);
  return hipSuccess;
}

bool CpuApi::lower_arch(char* name) const {
  size_t level = level_;
  while (level < kCpuLevelCount && std::strcmp(name + std::strlen(kPrefix), kCpuLevels[level]) != 0) ++level;
  while (++level < kCpuLevelCount)
    if (has_cpu_level(level)) {
      write_name(level, name);
      return true;
    }
  return false;
}

hipError_t CpuApi::make_current(int, StreamHandle, int64_t*) const { return hipSuccess; }
void CpuApi::restore(int64_t) const {}

hipError_t CpuApi::load_module(ModuleHandle* module, const void* image, size_t size) const {
  auto made = std::make_unique<CpuImage>();
  if (const char* trouble = made->load(static_cast<const uint8_t*>(image), size)) {
    log(Level::error, "an image for processors cannot be loaded: %s", trouble);
    return hipErrorInvalidImage;
  }
  *module = reinterpret_cast<ModuleHandle>(made.release());
  return hipSuccess;
}

hipError_t CpuApi::function(FunctionHandle* out, ModuleHandle module, const char* symbol, int) const {
  const CpuImage* image = image_of(module);
  if (std::strcmp(image->symbol(), symbol) != 0) return hipErrorNotFound;
  size_t level = level_;
  while (level < kCpuLevelCount && (std::strcmp(image->level(), kCpuLevels[level]) != 0 || !has_cpu_level(level))) ++level;
  if (level == kCpuLevelCount) {
    log(Level::error, "the image of %s is for %s%s, which this processor does not have", symbol, kPrefix, image->level());
    return hipErrorNoBinaryForGpu;
  }
  *out = reinterpret_cast<FunctionHandle>(module);
  return hipSuccess;
}

hipError_t CpuApi::pointer_device(const void* pointer, int* device) const {
  *device = -1;
  return pointer != nullptr ? hipSuccess : hipErrorInvalidValue;
}

int CpuApi::null_argument(FunctionHandle function, void* const* arguments, size_t count) const {
  const CpuImage* image = image_of(function);
  for (size_t i = 0; i < image->parameter_count() && i < count; ++i)
    if (image->needs_pointer(i) && *static_cast<const void* const*>(arguments[i]) == nullptr) return static_cast<int>(i);
  return -1;
}

// Their product is below 2^63.
GridLimits CpuApi::grid_limits(unsigned) const { return {INT32_MAX, UINT16_MAX}; }

hipError_t CpuApi::launch(FunctionHandle function, const LaunchShape& shape, StreamHandle, void** arguments) const {
  const CpuImage* image = image_of(function);
  if (shape.argument_count != image->parameter_count()) {
    log(Level::error, "the image of %s takes %zu arguments, the pack passes %zu", image->symbol(), image->parameter_count(),
        shape.argument_count);
    return hipErrorInvalidImage;
  }
  uint64_t values[kMostArguments];
  for (size_t i = 0; i < image->parameter_count(); ++i) std::memcpy(&values[i], arguments[i], sizeof values[i]);
  Launch work(*pool_, *image, shape.grid, values);
  const uint64_t count = uint64_t{shape.grid[0]} * shape.grid[1] * shape.grid[2];
  const unsigned threads = thread_count();
  pool_->run(count, threads < kMostThreads ? threads : kMostThreads, work);
  return work.result();
}

const char* CpuApi::describe(hipError_t error) const {
  switch (error) {
    case hipErrorInvalidValue: return "the stream is not null";
    case hipErrorOutOfMemory: return "no memory";
    case hipErrorInvalidImage: return "the image cannot be loaded";
    case hipErrorNoBinaryForGpu: return "the image is for another level";
    case hipErrorNotFound: return "the image has no such kernel";
    case hipErrorAssert: return "an assertion failed";
    default: return "unknown error";
  }
}

unsigned set_cpu_threads(unsigned threads) {
  const unsigned before = t_threads;
  t_threads = threads;
  return before;
}

}  // namespace aotforge
