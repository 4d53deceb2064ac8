#include "posix/cpu_image.h"

#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstring>

namespace aotforge {
namespace {

constexpr uint64_t kImagePage = 4096, kMostBytes = 256u << 20;
constexpr unsigned kMostSegments = 16, kMostParameters = 256, kMostMessages = 4096;
constexpr const char* kDescription = "aotforge_cpu_kernel";
constexpr const char* kDamaged = "the file is damaged";

// The data at kDescription: this, a byte per parameter, then zero-terminated texts.
struct Description {
  uint32_t version, size;
  uint64_t memory_bytes;
  uint32_t parameters, messages;
};
static_assert(sizeof(Description) == 24, "as the compiler writes it");

uint64_t page_of(uint64_t address) { return address / kImagePage * kImagePage; }

template <typename Value>
Value value_at(const uint8_t* bytes, uint64_t offset) {
  Value out;
  std::memcpy(&out, bytes + offset, sizeof out);
  return out;
}

}  // namespace

CpuImage::~CpuImage() {
  if (base_ != nullptr) ::munmap(base_, length_);
}

template <typename Value>
Value CpuImage::read(uint64_t address) const {
  return value_at<Value>(base_, address);
}

const char* CpuImage::load(const uint8_t* bytes, size_t size) {
  const char* trouble = map(bytes, size);
  if (trouble == nullptr) trouble = relocate();
  if (trouble == nullptr) trouble = protect();
  return trouble == nullptr ? describe() : trouble;
}

// Copies the loadable segments to their places. No page belongs to two of them.
const char* CpuImage::map(const uint8_t* bytes, size_t size) {
  if (size < sizeof(Elf64_Ehdr) || std::memcmp(bytes, ELFMAG, SELFMAG) != 0) return "it is not an ELF file";
  const auto header = value_at<Elf64_Ehdr>(bytes, 0);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64 || header.e_type != ET_DYN)
    return "it is not a shared library for x86-64";
  if (header.e_phnum > kMostSegments || header.e_phoff > size || size - header.e_phoff < header.e_phnum * sizeof(Elf64_Phdr))
    return kDamaged;
  uint64_t dynamic = 0;
  std::vector<Elf64_Phdr> loads;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    const auto part = value_at<Elf64_Phdr>(bytes, header.e_phoff + i * sizeof(Elf64_Phdr));
    if (part.p_type == PT_TLS || part.p_type == PT_INTERP) return "it has thread-local data or an interpreter, which kernels have not";
    if (part.p_type == PT_DYNAMIC) dynamic = part.p_vaddr;
    if (part.p_type != PT_LOAD) continue;
    const bool fits = part.p_offset <= size && part.p_filesz <= size - part.p_offset && part.p_filesz <= part.p_memsz &&
                      part.p_vaddr < kMostBytes && part.p_memsz < kMostBytes && page_of(part.p_vaddr) >= length_;
    if (!fits) return kDamaged;
    length_ = page_of(part.p_vaddr + part.p_memsz + kImagePage - 1);
    loads.push_back(part);
  }
  if (dynamic == 0 || loads.empty()) return kDamaged;
  void* memory = ::mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    length_ = 0;
    return "there is no memory for it";
  }
  base_ = static_cast<uint8_t*>(memory);
  for (const Elf64_Phdr& part : loads) {
    std::memcpy(base_ + part.p_vaddr, bytes + part.p_offset, part.p_filesz);
    const int access = ((part.p_flags & PF_R) != 0 ? PROT_READ : 0) | ((part.p_flags & PF_W) != 0 ? PROT_WRITE : 0) |
                       ((part.p_flags & PF_X) != 0 ? PROT_EXEC : 0);
    segments_.push_back({page_of(part.p_vaddr), page_of(part.p_vaddr + part.p_memsz + kImagePage - 1), access});
  }
  symbols_ = dynamic;  // until relocate() has read it
  return nullptr;
}

const char* CpuImage::relocate() {
  uint64_t values[DT_NUM] = {}, at = symbols_, gnu_hash = 0;
  for (;; at += sizeof(Elf64_Dyn)) {
    if (!has(at, sizeof(Elf64_Dyn))) return kDamaged;
    const auto entry = read<Elf64_Dyn>(at);
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag > 0 && entry.d_tag < DT_NUM) values[entry.d_tag] = entry.d_un.d_val;
    if (entry.d_tag == DT_GNU_HASH) gnu_hash = entry.d_un.d_val;
  }
  if (values[DT_INIT] != 0 || values[DT_INIT_ARRAY] != 0 || values[DT_FINI_ARRAY] != 0 || values[DT_REL] != 0 || values[DT_TEXTREL] != 0)
    return "it has code that runs when it is loaded, or other relocations than kernels have";
  symbols_ = values[DT_SYMTAB];
  strings_ = values[DT_STRTAB];
  strings_size_ = values[DT_STRSZ];
  if (values[DT_HASH] == 0 || !has(values[DT_HASH], 8)) return gnu_hash != 0 ? "it has no table of symbols of the first kind" : kDamaged;
  symbol_count_ = read<uint32_t>(values[DT_HASH] + 4);
  if (!has(strings_, strings_size_) || symbol_count_ > length_ / sizeof(Elf64_Sym) || !has(symbols_, symbol_count_ * sizeof(Elf64_Sym)))
    return kDamaged;
  if (const char* trouble = apply(values[DT_RELA], values[DT_RELASZ])) return trouble;
  return apply(values[DT_JMPREL], values[DT_PLTRELSZ]);
}

const char* CpuImage::apply(uint64_t table, uint64_t size) {
  if (!has(table, size)) return kDamaged;
  for (uint64_t at = table; at + sizeof(Elf64_Rela) <= table + size; at += sizeof(Elf64_Rela)) {
    const auto entry = read<Elf64_Rela>(at);
    const auto kind = ELF64_R_TYPE(entry.r_info), number = ELF64_R_SYM(entry.r_info);
    if (!has(entry.r_offset, 8) || number >= symbol_count_) return kDamaged;
    uint64_t value = reinterpret_cast<uint64_t>(base_);
    if (kind != R_X86_64_RELATIVE) {
      const auto symbol = read<Elf64_Sym>(symbols_ + number * sizeof(Elf64_Sym));
      const char* name = text(symbol.st_name);
      if (name == nullptr) return kDamaged;
      value += symbol.st_value;
      if (symbol.st_shndx == SHN_UNDEF)
        if (const char* trouble = resolve(name, &value)) return trouble;
    }
    switch (kind) {
      case R_X86_64_RELATIVE:
      case R_X86_64_64: value += static_cast<uint64_t>(entry.r_addend); break;
      case R_X86_64_GLOB_DAT:
      case R_X86_64_JUMP_SLOT: break;
      default: return "it has other relocations than kernels have";
    }
    std::memcpy(base_ + entry.r_offset, &value, sizeof value);
  }
  return nullptr;
}

// A function of the C library, or of the compiler's, which converts float16 for processors that cannot.
const char* CpuImage::resolve(const char* name, uint64_t* out) {
  void* found = nullptr;
  for (const char* library : {"libm.so.6", "libgcc_s.so.1"}) {
    if (found != nullptr) break;
    // it stays open: the image calls it
    if (void* handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL)) found = ::dlsym(handle, name);
  }
  if (found == nullptr) found = ::dlsym(RTLD_DEFAULT, name);
  *out = reinterpret_cast<uint64_t>(found);
  if (found != nullptr) return nullptr;
  std::snprintf(trouble_, sizeof trouble_, "it needs the function %.80s, which this system's C library lacks", name);
  return trouble_;
}

const char* CpuImage::protect() {
  for (const Segment& part : segments_)
    if (::mprotect(base_ + part.begin, part.end - part.begin, part.access) != 0)
      return "this system allows no memory to be executed that was written";
  return nullptr;
}

const char* CpuImage::text(uint64_t offset) const {
  if (offset >= strings_size_) return nullptr;
  const char* found = reinterpret_cast<const char*>(base_ + strings_ + offset);
  return std::memchr(found, 0, strings_size_ - offset) != nullptr ? found : nullptr;
}

const void* CpuImage::find(const char* name) const {
  for (uint64_t number = 1; number < symbol_count_; ++number) {
    const auto symbol = read<Elf64_Sym>(symbols_ + number * sizeof(Elf64_Sym));
    const char* known = text(symbol.st_name);
    if (symbol.st_shndx != SHN_UNDEF && known != nullptr && std::strcmp(known, name) == 0 && symbol.st_value < length_)
      return base_ + symbol.st_value;
  }
  return nullptr;
}

const char* CpuImage::describe() {
  const auto* data = static_cast<const uint8_t*>(find(kDescription));
  if (data == nullptr) return "it has no description";
  const auto left = length_ - static_cast<uint64_t>(data - base_);
  if (left < sizeof(Description)) return kDamaged;
  const auto found = value_at<Description>(data, 0);
  if (found.version != 1) return "its description is of another version";
  const bool fits = found.size <= left && found.parameters <= kMostParameters && found.messages <= kMostMessages &&
                    found.size >= sizeof found + found.parameters && found.memory_bytes <= kMostBytes;
  if (!fits) return kDamaged;
  kinds_.assign(data + sizeof found, data + sizeof found + found.parameters);
  const char* at = reinterpret_cast<const char*>(data + sizeof found + found.parameters);
  const char* end = reinterpret_cast<const char*>(data + found.size);
  for (uint32_t i = 0; i < found.messages + 2; ++i) {
    const void* zero = at < end ? std::memchr(at, 0, static_cast<size_t>(end - at)) : nullptr;
    if (zero == nullptr) return kDamaged;
    texts_.push_back(at);
    at = static_cast<const char*>(zero) + 1;
  }
  memory_bytes_ = static_cast<size_t>(found.memory_bytes);
  const void* function = find(symbol());
  if (function == nullptr) return "it lacks its kernel's function";
  std::memcpy(&function_, &function, sizeof function_);
  return nullptr;
}

}  // namespace aotforge
