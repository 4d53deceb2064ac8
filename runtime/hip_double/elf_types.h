// What the double reads of ELF-64 (System V ABI, chapters 4 and 5): the system's header, or the same where there is none.
#pragma once

#if __has_include(<elf.h>)
#include <elf.h>
#else
#include <cstdint>

constexpr int EI_CLASS = 4, EI_OSABI = 7, SELFMAG = 4, ELFCLASS64 = 2;
constexpr char ELFMAG[] = "\177ELF";
constexpr uint32_t PT_NOTE = 4;

struct Elf64_Ehdr {
  unsigned char e_ident[16];
  uint16_t e_type, e_machine;
  uint32_t e_version;
  uint64_t e_entry, e_phoff, e_shoff;
  uint32_t e_flags;
  uint16_t e_ehsize, e_phentsize, e_phnum, e_shentsize, e_shnum, e_shstrndx;
};

struct Elf64_Phdr {
  uint32_t p_type, p_flags;
  uint64_t p_offset, p_vaddr, p_paddr, p_filesz, p_memsz, p_align;
};

struct Elf64_Nhdr {
  uint32_t n_namesz, n_descsz, n_type;
};
#endif
