#include "code_object.h"

#include <algorithm>
#include <cstring>

#include "elf_types.h"
#include "msgpack.h"

namespace hip_double {
namespace {

constexpr unsigned kMachineAmdgpu = 224;   // EM_AMDGPU
constexpr unsigned char kAbiAmdhsa = 64;   // ELFOSABI_AMDGPU_HSA
constexpr uint32_t kNoteMetadata = 32;     // NT_AMDGPU_METADATA

size_t aligned4(size_t n) { return (n + 3) & ~size_t{3}; }

KernelInfo kernel_of(const Node& node) {
  KernelInfo info;
  info.symbol = node.at(".name").string;
  info.lds_bytes = static_cast<unsigned>(node.at(".group_segment_fixed_size").value);
  info.max_threads = static_cast<unsigned>(node.at(".max_flat_workgroup_size").value);
  info.wavefront = static_cast<unsigned>(node.at(".wavefront_size").value);
  for (const Node& argument : node.at(".args").items)
    info.arguments.push_back({static_cast<size_t>(argument.at(".offset").value),
                              static_cast<size_t>(argument.at(".size").value), argument.at(".value_kind").string});
  return info;
}

void read_notes(const uint8_t* notes, size_t size, CodeObject& out) {
  for (size_t at = 0; at + sizeof(Elf64_Nhdr) <= size;) {
    Elf64_Nhdr note;
    std::memcpy(&note, notes + at, sizeof note);
    const size_t name = at + sizeof note, payload = name + aligned4(note.n_namesz);
    if (payload + note.n_descsz > size) throw std::runtime_error("note is truncated");
    if (note.n_type == kNoteMetadata && note.n_namesz >= 6 && std::memcmp(notes + name, "AMDGPU", 6) == 0) {
      const Node root = Unpacker(notes + payload, note.n_descsz).next();
      out.target = root.at("amdhsa.target").string;
      for (const Node& kernel : root.at("amdhsa.kernels").items) {
        KernelInfo info = kernel_of(kernel);
        const std::string name_of = info.symbol;
        out.kernels[name_of] = std::move(info);
      }
    }
    at = payload + aligned4(note.n_descsz);
  }
}

}  // namespace

std::string read_code_object(const void* image, CodeObject& out) {
  const uint8_t* bytes = static_cast<const uint8_t*>(image);
  Elf64_Ehdr elf;
  std::memcpy(&elf, bytes, sizeof elf);
  if (std::memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0 || elf.e_ident[EI_CLASS] != ELFCLASS64) return "not a 64-bit ELF file";
  if (elf.e_machine != kMachineAmdgpu || elf.e_ident[EI_OSABI] != kAbiAmdhsa) return "not an AMDGPU code object";
  out.size = elf.e_shoff + size_t{elf.e_shnum} * elf.e_shentsize;
  try {
    for (unsigned i = 0; i < elf.e_phnum; ++i) {
      Elf64_Phdr segment;
      std::memcpy(&segment, bytes + elf.e_phoff + size_t{i} * elf.e_phentsize, sizeof segment);
      out.size = std::max<size_t>(out.size, segment.p_offset + segment.p_filesz);
      if (segment.p_type == PT_NOTE) read_notes(bytes + segment.p_offset, segment.p_filesz, out);
    }
  } catch (const std::exception& error) {
    return error.what();
  }
  if (out.kernels.empty() || out.target.empty()) return "no kernel metadata";
  return {};
}

}  // namespace hip_double
