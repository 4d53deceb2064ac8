#include "program.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>

namespace virtual_hip {
namespace {

constexpr uint64_t kDefaultLimit = 200'000'000;  // vgpu.emulator.DEFAULT_LIMIT
constexpr uint64_t kAllChecks = ~uint64_t{0};
constexpr size_t kLargestImage = size_t{1} << 28;
constexpr unsigned kGlobalRead = 1, kGlobalWrite = 2, kWatchdog = 6;  // FaultReport.code of machine.h
constexpr unsigned kGridMax = 65536;                                   // along y and z

// Bytes that the headers of an ELF file span, none of them at or behind `available`; 0: no code object. HIP gets no length either.
size_t image_size(const void* image, size_t available) {
  Elf64_Ehdr elf;
  if (available < sizeof elf) return 0;
  std::memcpy(&elf, image, sizeof elf);
  if (std::memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0 || elf.e_ident[EI_CLASS] != ELFCLASS64) return 0;
  const uint64_t table = uint64_t{elf.e_phnum} * sizeof(Elf64_Phdr), limit = std::min<uint64_t>(available, kLargestImage);
  if (elf.e_phentsize != sizeof(Elf64_Phdr) || elf.e_phoff > limit || table > limit - elf.e_phoff || elf.e_shoff > limit) return 0;
  uint64_t size = std::max<uint64_t>(sizeof elf, elf.e_shoff + uint64_t{elf.e_shnum} * elf.e_shentsize);
  for (unsigned i = 0; i < elf.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, static_cast<const char*>(image) + elf.e_phoff + i * sizeof segment, sizeof segment);
    if (segment.p_offset > limit || segment.p_filesz > limit - segment.p_offset) return 0;
    size = std::max<uint64_t>(size, segment.p_offset + segment.p_filesz);
  }
  return size > limit ? 0 : size;
}

template <typename Function>
bool symbol(void* library, const char* name, Function& out) {
  void* address = ::dlsym(library, name);
  std::memcpy(&out, &address, sizeof address);
  return address != nullptr;
}

std::string hexadecimal(const unsigned char* bytes, size_t size) {
  std::string text;
  char pair[3];
  for (size_t i = 0; i < size; ++i) {
    std::snprintf(pair, sizeof pair, "%02x", bytes[i]);
    text += pair;
  }
  return text;
}

std::string numbers(const unsigned* values) {
  return std::to_string(values[0]) + "," + std::to_string(values[1]) + "," + std::to_string(values[2]);
}

// A launch by settings and shape.
ServeLaunch plan_of(const LaunchShape& shape) {
  const Settings& settings = world().settings;
  ServeLaunch plan{};
  std::copy(shape.grid, shape.grid + 3, plan.grid);
  plan.lds_bytes = shape.lds;
  plan.seed = settings.seed;
  plan.schedule = settings.schedule;
  plan.limit = settings.limit != 0 ? settings.limit : kDefaultLimit;
  plan.checks = settings.checks ? kAllChecks : 0;
  return plan;
}

// HIP fills hidden arguments by the code object's metadata. Grids have three dimensions and start at 0; every workgroup is full.
uint64_t hidden_argument(const ServeParameter& parameter, const LaunchShape& shape) {
  const uint32_t source = parameter.source;
  if (source < SERVE_GROUP_SIZE) return shape.grid[source - SERVE_BLOCK_COUNT];
  if (source < SERVE_GROUP_SIZE + 3) return shape.block[source - SERVE_GROUP_SIZE];
  if (source == SERVE_GRID_DIMS) return 3;
  if (source == SERVE_DYNAMIC_LDS) return shape.lds;
  if (source < SERVE_ABSENT) return 0;
  const uint64_t high = SERVE_ABSENT_TAG | parameter.offset;
  return parameter.size == 8 ? high << 32 : high;
}

void print(const ServePrinted* printed) {
  std::FILE* to = printed->error != 0 ? stderr : stdout;
  std::fwrite(printed->text, 1, printed->bytes, to);
  std::fflush(to);
}

std::string seconds_since(std::chrono::steady_clock::time_point start) {
  char text[32];
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::snprintf(text, sizeof text, "%.6f", seconds);
  return text;
}

}  // namespace

std::shared_ptr<Program> Program::load(const void* image, size_t available, const Device& device, int* error) {
  const auto start = std::chrono::steady_clock::now();
  const size_t size = image_size(image, available);
  *error = kInvalidImage;
  if (size == 0) {
    report("an image is not a valid ELF code object (compressed and bundled ones are not supported)");
    return nullptr;
  }
  std::string answer;
  const bool ran = run_python({"prepare", device.arch_name, world().settings.checks ? "checks" : "plain"}, image, size, &answer);
  std::istringstream lines(answer);
  std::string status, program, interpreter, text;
  std::getline(lines, status);
  if (!ran || status != "ok") {
    std::string code, words;
    if (ran && status == "error" && std::getline(lines, code)) {
      *error = std::atoi(code.c_str());
      std::getline(lines, words, '\0');
    } else {
      *error = kInitFailed;
      words = answer;
    }
    words.erase(words.find_last_not_of('\n') + 1);
    report(std::string("an image is not loaded on ") + device.target->arch + ": " + words);
    return nullptr;
  }
  std::getline(lines, program);
  std::getline(lines, interpreter);
  std::shared_ptr<Program> made(new Program);
  std::getline(lines, made->lines_);
  if (!made->open(interpreter, program)) {
    *error = kOperatingSystem;
    return nullptr;
  }
  *error = kSuccess;
  const std::string took = seconds_since(start);
  print_log(2, std::string(device.target->arch) + ": loaded " + made->kernel() + ", image " + made->file_->digest + ", " + took + " s");
  note(std::string("{\"event\":\"load\",\"arch\":\"") + device.target->arch + "\",\"kernel\":\"" + made->kernel() + "\",\"image\":\"" +
       made->file_->digest + "\",\"seconds\":" + took + "}");
  return made;
}

bool Program::open(const std::string& interpreter, const std::string& program) {
  const int file = ::open(program.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat found {};
  if (file >= 0 && ::fstat(file, &found) == 0 && found.st_size >= static_cast<off_t>(sizeof(ServeFile))) {
    bytes_ = static_cast<uint64_t>(found.st_size);
    void* mapped = ::mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file, 0);
    file_ = mapped != MAP_FAILED ? static_cast<const ServeFile*>(mapped) : nullptr;
  }
  if (file >= 0) ::close(file);
  if (file_ == nullptr) {
    report(program + " cannot be read; remove it and load the image again");
    return false;
  }
  library_ = ::dlopen(interpreter.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* (*serve)(const void*, uint64_t) = nullptr;
  const bool complete = library_ != nullptr && symbol(library_, "serve_open", serve) && symbol(library_, "serve_run", run_) &&
                     symbol(library_, "serve_close", close_) && symbol(library_, "host_buffer_bytes", host_bytes_) &&
                     symbol(library_, "host_buffer_start", host_start_);
  opened_ = complete ? serve(file_, bytes_) : nullptr;
  if (opened_ != nullptr) return true;
  const char* reason = library_ == nullptr ? ::dlerror() : nullptr;
  report(reason != nullptr ? std::string(reason) : program + " does not fit " + interpreter + "; remove both and load the image again");
  return false;
}

Program::~Program() {
  if (opened_ != nullptr) close_(opened_);
  if (file_ != nullptr) ::munmap(const_cast<ServeFile*>(file_), bytes_);
  if (library_ != nullptr) ::dlclose(library_);
}

int Program::check(const Device& device, const LaunchShape& shape) const {
  for (int i = 0; i < 3; ++i)
    if (shape.grid[i] == 0 || shape.block[i] == 0 || uint64_t{shape.grid[i]} * shape.block[i] > UINT32_MAX) return kInvalidConfiguration;
  if (shape.grid[1] > kGridMax || shape.grid[2] > kGridMax) return kInvalidConfiguration;
  const uint64_t threads = uint64_t{shape.block[0]} * shape.block[1] * shape.block[2];
  if (threads > file_->threads || uint64_t{file_->fixed_lds} + shape.lds > device.target->lds_bytes) return kInvalidConfiguration;
  if (threads != file_->threads || shape.block[0] != threads) {
    report(std::string(kernel()) + " is compiled for workgroups of " + std::to_string(file_->threads) + " by 1 by 1; " +
           std::to_string(shape.block[0]) + " by " + std::to_string(shape.block[1]) + " by " + std::to_string(shape.block[2]) +
           " is not supported");
    return kNotSupported;
  }
  return kSuccess;
}

bool Program::arguments(void** parameters, void** extra, const LaunchShape& shape, std::vector<uint64_t>& segment) const {
  segment.assign((file_->kernarg_bytes + 7) / 8 + 1, 0);
  auto* bytes = reinterpret_cast<unsigned char*>(segment.data());
  const auto* known = reinterpret_cast<const ServeParameter*>(reinterpret_cast<const char*>(file_) + file_->parameters_at);
  const auto* known_end = known + file_->parameter_count;
  const auto explicit_count = static_cast<uint32_t>(std::count_if(known, known_end, [](const ServeParameter& one) { return one.source == SERVE_EXPLICIT; }));
  if (parameters == nullptr && extra == nullptr && explicit_count != 0) return false;
  if (extra != nullptr) {  // HIP_LAUNCH_PARAM_BUFFER_POINTER 1, _SIZE 2, _END 3
    const void* buffer = nullptr;
    size_t size = 0;
    for (void** at = extra; *at != reinterpret_cast<void*>(3); at += 2) {
      if (*at == reinterpret_cast<void*>(1)) buffer = at[1];
      else if (*at == reinterpret_cast<void*>(2)) std::memcpy(&size, at[1], sizeof size);
      else return false;
    }
    if (buffer == nullptr || parameters != nullptr) return false;
    std::memcpy(bytes, buffer, std::min<size_t>(size, file_->kernarg_bytes));
  }
  void** next = parameters;
  for (const auto* one = known; one != known_end; ++one) {
    if (uint64_t{one->offset} + one->size > file_->kernarg_bytes) return false;
    if (one->source != SERVE_EXPLICIT) {
      const uint64_t value = hidden_argument(*one, shape);
      std::memcpy(bytes + one->offset, &value, std::min<size_t>(one->size, sizeof value));
    } else if (extra == nullptr) {
      if (*next == nullptr) return false;
      std::memcpy(bytes + one->offset, *next++, one->size);
    }
  }
  return true;
}

void* Program::start_host_calls(std::vector<uint64_t>& segment, std::vector<uint64_t>& memory) const {
  const auto* known = reinterpret_cast<const ServeParameter*>(reinterpret_cast<const char*>(file_) + file_->parameters_at);
  for (uint32_t i = 0; i < file_->parameter_count; ++i) {
    if (known[i].source != SERVE_HOSTCALL || known[i].size != sizeof(void*)) continue;
    memory.assign(host_bytes_() / sizeof(uint64_t) + 1, 0);
    void* const buffer = memory.data();
    host_start_(buffer, reinterpret_cast<uintptr_t>(buffer));
    std::memcpy(reinterpret_cast<char*>(segment.data()) + known[i].offset, &buffer, sizeof buffer);
    return buffer;
  }
  return nullptr;
}

void Program::run(Device& device, int number, const LaunchShape& shape, std::vector<uint64_t> segment) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Allocation> allocations = world().visible(number);
  std::vector<ServeRange> ranges;
  for (const Allocation& one : allocations) ranges.push_back({one.base, one.base + one.size, 1, 0, one.unset ? one.unset->data() : nullptr});
  uint64_t next = 0;
  uint32_t stop = 0;
  std::vector<uint64_t> host_memory;
  ServeLaunch plan = plan_of(shape);
  plan.host_buffer = start_host_calls(segment, host_memory);
  plan.print = print;
  plan.kernarg = segment.data();
  plan.ranges = ranges.data();
  plan.range_count = ranges.size();
  plan.next = &next;
  plan.stop = &stop;
  const uint64_t groups = uint64_t{shape.grid[0]} * shape.grid[1] * shape.grid[2];
  const uint64_t threads = plan.host_buffer != nullptr ? 1 : world().settings.threads;
  std::vector<ServeLaunch> shares(std::min<uint64_t>(threads, groups), plan);
  const std::vector<int> results = spread(shares);
  uint64_t executed = 0;
  for (const ServeLaunch& share : shares) executed += share.executed;
  device.executed += executed;
  const auto failed = std::find_if(results.begin(), results.end(), [](int result) { return result != 0; });
  report_launch(device, number, shape, executed, seconds_since(start), failed == results.end());
  if (failed == results.end()) return;
  if (*failed > 0) return faulted(device, shares[static_cast<size_t>(failed - results.begin())], allocations);
  report(std::string(kernel()) + ": no memory for the waves of a workgroup");
  device.failed = kLaunchFailure;
}

// Every share in a thread of its own, the first in this one; they take workgroups until none is left.
std::vector<int> Program::spread(std::vector<ServeLaunch>& shares) const {
  std::vector<int> results(shares.size(), 0);
  std::vector<std::thread> helpers;
  for (size_t i = 1; i < shares.size(); ++i) {
    try {
      helpers.emplace_back([&, i] { results[i] = run_(opened_, &shares[i]); });
    } catch (const std::system_error&) {  // no more threads: those that run take all workgroups
      break;
    }
  }
  results[0] = run_(opened_, &shares[0]);
  for (std::thread& helper : helpers) helper.join();
  return results;
}

void Program::report_launch(const Device& device, int number, const LaunchShape& shape, uint64_t executed, const std::string& took, bool ok) const {
  print_log(2, std::string(device.target->arch) + ": " + kernel() + " grid " + numbers(shape.grid) + ": " + std::to_string(executed) +
             " wave-instructions, " + took + " s");
  note("{\"event\":\"launch\",\"device\":" + std::to_string(number) + ",\"arch\":\"" + device.target->arch + "\",\"kernel\":\"" + kernel() +
       "\",\"image\":\"" + file_->digest + "\",\"grid\":[" + numbers(shape.grid) + "],\"instructions\":" + std::to_string(executed) +
       ",\"seconds\":" + took + ",\"ok\":" + (ok ? "true" : "false") + "}");
}

void Program::faulted(Device& device, const ServeLaunch& share, const std::vector<Allocation>& allocations) const {
  const unsigned code = share.fault_code;
  device.failed = code == kGlobalRead || code == kGlobalWrite ? kIllegalAddress : code == kWatchdog ? kLaunchTimeOut : kLaunchFailure;
  std::string spans, words;
  for (const Allocation& one : allocations)
    spans += "allocation #" + std::to_string(one.number) + " " + std::to_string(one.base) + " " + std::to_string(one.base + one.size) + " 1\n";
  const bool explained = run_python({"explain", lines_, hexadecimal(share.fault, share.fault_bytes)}, spans.data(), spans.size(), &words);
  words.erase(words.find_last_not_of('\n') + 1);
  report(std::string(device.target->arch) + ": " + (explained ? words : std::string(kernel()) + " failed with code " + std::to_string(code)));
}

}  // namespace virtual_hip
