// A stand-in for libcuda.so.1 that needs no GPU: plays the devices of CUDA_DOUBLE_DEVICES ("sm_90,sm_80"), each with one context, reads
// cubins, records loads and launches. Nothing is executed. Numbers are those of CUDA's public header cuda.h. CUDA_DOUBLE_FAIL="NAME:CODE"
// makes every call of one entry point fail. Tests use the functions cuda_double_* to make streams, to choose contexts and to read the record.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cubin.h"

struct CUctx_st {
  int device;
};

namespace {

constexpr int kSuccess = 0, kInvalidValue = 1, kNotInitialized = 3, kNoDevice = 100, kInvalidDevice = 101;
constexpr int kInvalidImage = 200, kInvalidContext = 201, kNoBinary = 209, kInvalidHandle = 400, kNotFound = 500;
constexpr int kMajor = 75, kMinor = 76, kOptIn = 97, kStaticShared = 1, kMaxDynamicShared = 8;
constexpr int kMemoryType = 2, kIsManaged = 8, kDeviceOrdinal = 9;
constexpr int kSharedOptIn = 232448, kSharedDefault = 49152;

struct Stream {
  CUctx_st* context;
};

struct Library {
  cuda_double::Cubin cubin;
  std::string digest;
};

struct Kernel {
  const Library* library;
  std::string name;
  int max_dynamic_shared = kSharedDefault;
};

struct World {
  std::mutex lock;
  bool initialised = false;
  std::vector<int> capabilities;
  std::vector<std::unique_ptr<CUctx_st>> contexts;
  std::vector<std::unique_ptr<Library>> libraries;
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::set<Stream*> streams;
  std::string record, fail_name;
  int fail_code = 0;

  World() {
    const char* devices = std::getenv("CUDA_DOUBLE_DEVICES");
    std::istringstream names(devices != nullptr ? devices : "sm_90");
    for (std::string name; std::getline(names, name, ',');) {
      contexts.push_back(std::make_unique<CUctx_st>(CUctx_st{static_cast<int>(capabilities.size())}));
      capabilities.push_back(std::atoi(name.c_str() + 3));
    }
    const char* failure = std::getenv("CUDA_DOUBLE_FAIL");
    const std::string text = failure != nullptr ? failure : "";
    fail_name = text.substr(0, text.find(':'));
    if (const size_t colon = text.find(':'); colon != std::string::npos) fail_code = std::atoi(text.c_str() + colon + 1);
  }
};

World& world() {
  static World* const one = new World;
  return *one;
}

thread_local std::vector<CUctx_st*> t_contexts;

CUctx_st* current() { return t_contexts.empty() ? nullptr : t_contexts.back(); }

// The error that a call has before it does anything.
int enter(const char* name) {
  if (world().fail_code != 0 && world().fail_name == name) return world().fail_code;
  return world().initialised ? kSuccess : kNotInitialized;
}

std::string fingerprint(const void* bytes, size_t size) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (size_t i = 0; i < size; ++i) hash = (hash ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001b3ULL;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::string hexadecimal(const void* bytes, size_t size) {
  std::string text;
  char digits[3];
  for (size_t i = 0; i < size; ++i) {
    std::snprintf(digits, sizeof digits, "%02x", static_cast<const unsigned char*>(bytes)[i]);
    text += digits;
  }
  return text;
}

void note_launch(const Kernel& kernel, const unsigned (&sizes)[6], unsigned shared, void** parameters) {
  std::ostringstream line;
  line << "{\"event\":\"launch\",\"device\":" << current()->device << ",\"kernel\":\"" << kernel.name << "\",\"image\":\""
       << kernel.library->digest << "\",\"grid\":[" << sizes[0] << ',' << sizes[1] << ',' << sizes[2] << "],\"block\":[" << sizes[3]
       << ',' << sizes[4] << ',' << sizes[5] << "],\"shared\":" << shared << ",\"arguments\":[";
  const char* comma = "";
  for (const cuda_double::Parameter& one : kernel.library->cubin.kernels.at(kernel.name)) {
    line << comma << '"' << hexadecimal(parameters[one.number], one.size) << '"';
    comma = ",";
  }
  line << "]}\n";
  world().record += line.str();
}

}  // namespace

extern "C" {

#define CUDA_DOUBLE __attribute__((visibility("default")))

CUDA_DOUBLE int cuInit(unsigned) {
  if (world().fail_code != 0 && world().fail_name == "cuInit") return world().fail_code;
  if (world().capabilities.empty()) return kNoDevice;
  world().initialised = true;
  return kSuccess;
}

CUDA_DOUBLE int cuGetErrorString(int code, const char** text) {
  *text = code == kNoBinary ? "no kernel image is available for execution on the device" : "error of the double";
  return kSuccess;
}

CUDA_DOUBLE int cuDeviceGetAttribute(int* out, int attribute, int device) {
  if (const int error = enter("cuDeviceGetAttribute")) return error;
  if (device < 0 || static_cast<size_t>(device) >= world().capabilities.size()) return kInvalidDevice;
  const int capability = world().capabilities[static_cast<size_t>(device)];
  switch (attribute) {
    case kMajor: *out = capability / 10; return kSuccess;
    case kMinor: *out = capability % 10; return kSuccess;
    case kOptIn: *out = kSharedOptIn; return kSuccess;
    default: return kInvalidValue;
  }
}

// The upper bits of an address name its device: (device + 1) << 56, 0x70 << 56 managed, 0x7f << 56 unknown; without any, device 0's.
// As the driver: every attribute has 32 bits, and success with device -2 is the answer for memory that is not known.
CUDA_DOUBLE int cuPointerGetAttributes(unsigned count, const int* attributes, void** out, uint64_t address) {
  if (const int error = enter("cuPointerGetAttributes")) return error;
  const unsigned owner = static_cast<unsigned>(address >> 56);
  const bool known = owner != 0x7f;
  const unsigned type = known ? 2 : 0, managed = owner == 0x70;
  const int device = !known ? -2 : owner == 0 || managed != 0 ? 0 : static_cast<int>(owner) - 1;
  for (unsigned i = 0; i < count; ++i) switch (attributes[i]) {
      case kMemoryType: std::memcpy(out[i], &type, sizeof type); break;
      case kIsManaged: std::memcpy(out[i], &managed, sizeof managed); break;
      case kDeviceOrdinal: std::memcpy(out[i], &device, sizeof device); break;
      default: return kInvalidValue;
    }
  return kSuccess;
}

CUDA_DOUBLE int cuCtxGetCurrent(CUctx_st** out) {
  if (const int error = enter("cuCtxGetCurrent")) return error;
  *out = current();
  return kSuccess;
}

CUDA_DOUBLE int cuCtxPushCurrent_v2(CUctx_st* context) {
  if (const int error = enter("cuCtxPushCurrent_v2")) return error;
  t_contexts.push_back(context);
  return kSuccess;
}

CUDA_DOUBLE int cuCtxPopCurrent_v2(CUctx_st** out) {
  if (t_contexts.empty()) return kInvalidContext;
  *out = t_contexts.back();
  t_contexts.pop_back();
  return kSuccess;
}

CUDA_DOUBLE int cuCtxGetDevice(int* device) {
  if (const int error = enter("cuCtxGetDevice")) return error;
  if (current() == nullptr) return kInvalidContext;
  *device = current()->device;
  return kSuccess;
}

CUDA_DOUBLE int cuStreamGetCtx(Stream* stream, CUctx_st** out) {
  if (const int error = enter("cuStreamGetCtx")) return error;
  if (stream == nullptr) {
    *out = current();
    return current() != nullptr ? kSuccess : kInvalidContext;
  }
  const std::lock_guard<std::mutex> guard(world().lock);
  if (world().streams.count(stream) == 0) return kInvalidHandle;
  *out = stream->context;
  return kSuccess;
}

CUDA_DOUBLE int cuLibraryLoadData(Library** out, const void* image, int*, void**, unsigned, int*, void**, unsigned) {
  if (const int error = enter("cuLibraryLoadData")) return error;
  auto library = std::make_unique<Library>();
  if (!cuda_double::read_cubin(image, library->cubin)) return kInvalidImage;
  library->digest = fingerprint(image, 64);
  const std::lock_guard<std::mutex> guard(world().lock);
  *out = library.get();
  world().record += "{\"event\":\"load\",\"capability\":" + std::to_string(library->cubin.capability) + "}\n";
  world().libraries.push_back(std::move(library));
  return kSuccess;
}

CUDA_DOUBLE int cuLibraryGetKernel(Kernel** out, Library* library, const char* name) {
  if (const int error = enter("cuLibraryGetKernel")) return error;
  if (library->cubin.kernels.count(name) == 0) return kNotFound;
  const std::lock_guard<std::mutex> guard(world().lock);
  world().kernels.push_back(std::make_unique<Kernel>(Kernel{library, name}));
  *out = world().kernels.back().get();
  return kSuccess;
}

CUDA_DOUBLE int cuKernelGetFunction(void** out, Kernel* kernel) {
  if (const int error = enter("cuKernelGetFunction")) return error;
  if (current() == nullptr) return kInvalidContext;
  // an image for one capability runs on no other: Triton compiles for sm_90a
  if (kernel->library->cubin.capability != world().capabilities[static_cast<size_t>(current()->device)]) return kNoBinary;
  *out = kernel;
  return kSuccess;
}

CUDA_DOUBLE int cuKernelGetAttribute(int* out, int attribute, Kernel*, int) {
  if (const int error = enter("cuKernelGetAttribute")) return error;
  *out = 0;
  return attribute == kStaticShared ? kSuccess : kInvalidValue;
}

CUDA_DOUBLE int cuKernelSetAttribute(int attribute, int value, Kernel* kernel, int) {
  if (const int error = enter("cuKernelSetAttribute")) return error;
  if (attribute != kMaxDynamicShared || value > kSharedOptIn) return kInvalidValue;
  kernel->max_dynamic_shared = value;
  return kSuccess;
}

CUDA_DOUBLE int cuLaunchKernel(Kernel* kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                               unsigned shared, Stream* stream, void** parameters, void** extra) {
  if (const int error = enter("cuLaunchKernel")) return error;
  if (current() == nullptr || (stream != nullptr && stream->context != current())) return kInvalidContext;
  if (extra != nullptr || gx == 0 || gy == 0 || gz == 0 || gx > 0x7fffffffu || gy > 65535 || gz > 65535) return kInvalidValue;
  if (static_cast<int>(shared) > kernel->max_dynamic_shared) return kInvalidValue;
  const std::lock_guard<std::mutex> guard(world().lock);
  note_launch(*kernel, {gx, gy, gz, bx, by, bz}, shared, parameters);
  return kSuccess;
}

// For tests in the same process.
CUDA_DOUBLE Stream* cuda_double_stream(int device) {
  auto* stream = new Stream{world().contexts[static_cast<size_t>(device)].get()};
  world().streams.insert(stream);
  return stream;
}

// The depth of this thread's stack of contexts, with the context of `device` on it; -1 leaves it as it is.
CUDA_DOUBLE int cuda_double_push(int device) {
  if (device >= 0) t_contexts.push_back(world().contexts[static_cast<size_t>(device)].get());
  return static_cast<int>(t_contexts.size());
}

CUDA_DOUBLE const char* cuda_double_record() {
  static thread_local std::string text;
  const std::lock_guard<std::mutex> guard(world().lock);
  text = world().record;
  return text.c_str();
}

}  // extern "C"
