#include "cubin.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

namespace cuda_double {
namespace {

constexpr uint16_t kCudaMachine = 190;
constexpr unsigned char kOldAbi = 0x33, kSized = 4, kParameter = 0x17;
constexpr char kInfo[] = ".nv.info.";

template <typename T>
T at(const unsigned char* place) {
  T value;
  std::memcpy(&value, place, sizeof value);
  return value;
}

std::vector<Parameter> parameters(const unsigned char* data, size_t size) {
  std::vector<Parameter> found;
  for (size_t i = 0; i + 4 <= size;) {
    const unsigned char form = data[i], attribute = data[i + 1];
    const size_t length = form == kSized ? at<uint16_t>(data + i + 2) : 0;
    const unsigned char* value = data + i + 4;
    if (form == kSized && attribute == kParameter && length == 12)
      found.push_back({at<uint16_t>(value + 4), at<uint16_t>(value + 6), static_cast<uint16_t>(at<uint32_t>(value + 8) >> 18)});
    i += 4 + length;
  }
  std::sort(found.begin(), found.end(), [](const Parameter& a, const Parameter& b) { return a.number < b.number; });
  return found;
}

}  // namespace

bool read_cubin(const void* image, Cubin& out) {
  const auto* bytes = static_cast<const unsigned char*>(image);
  const auto header = at<Elf64_Ehdr>(bytes);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_machine != kCudaMachine) return false;
  const bool old = header.e_ident[EI_OSABI] == kOldAbi;
  out.capability = static_cast<int>(old ? header.e_flags & 255 : header.e_flags >> 8 & 255);
  const auto section = [&](size_t i) { return at<Elf64_Shdr>(bytes + header.e_shoff + i * sizeof(Elf64_Shdr)); };
  const auto* names = reinterpret_cast<const char*>(bytes) + section(header.e_shstrndx).sh_offset;
  for (size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr one = section(i);
    const std::string name = names + one.sh_name;
    if (name.rfind(kInfo, 0) == 0) out.kernels[name.substr(sizeof kInfo - 1)] = parameters(bytes + one.sh_offset, one.sh_size);
  }
  return true;
}

}  // namespace cuda_double
