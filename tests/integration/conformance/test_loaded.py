"""Libraries that the loader reads otherwise than tools, made from one that a real linker made; the loader itself is the peer."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aotforge.conformance.checks.abi import dynamic_symbols
from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.checks.library import check_elf
from aotforge.formats import loaded_library
from aotforge.formats.loaded_library import loader_differences
from aotforge.formats.shared_library import LibraryFileError, open_elf, read_shared_library

pytestmark = pytest.mark.compiler
NAMES = ("first", "second", "third", "getpid", "absent")
CODE = 'int first = 1, second = 2; int third(void) { return 3; } int getpid(void) { return 4; } int puts(const char *); \
int show(void) { return puts("x"); } char name[4096] = "/dev/shm/other.so"; int *places[] = {&first, &second}; char good[4096] = "libm.so.6";'
FLAGS = [
    "-shared",
    "-fPIC",
    "-nostdlib",
    "-s",
    "-Wl,-z,relro,-z,now,-soname,libx.so",
    "-Wl,--no-as-needed",
    "-lm",
    "-lc",
]
PEER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
static int show(struct dl_phdr_info *info, size_t size, void *base) {
  if (strchr(info->dlpi_name, '/')) printf("%s\n", strrchr(info->dlpi_name, '/'));
  return 0;
}
int main(int count, char **arguments) {
  void *library = dlopen(arguments[1], RTLD_NOW);
  if (!library) return 1;
  struct link_map *map = library;
  for (int i = 2; i < count; i++) {
    char *found = dlsym(library, arguments[i]);
    Dl_info info;
    int own = found && dladdr(found, &info) && info.dli_fbase == (void *)map->l_addr;
    printf("%s %ld\n", arguments[i], own ? (long)(found - (char *)map->l_addr) : -1);
  }
  dl_iterate_phdr(show, 0);
  char line[4096];
  for (FILE *maps = fopen("/proc/self/maps", "r"); fgets(line, sizeof line, maps);)
    if (strstr(line, "[stack]")) printf("%.4s\n", strchr(line, ' ') + 1);
  fflush(stdout);
  return 0;
}
"""


def linked(folder: Path, *flags: str, code: str = CODE) -> Path:
    path = folder / "libx.so"
    subprocess.run(
        ["gcc", "-x", "c", "-", "-x", "none", "-o", path, *FLAGS, *flags], input=code.encode(), check=True
    )
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return linked(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("peer") / "peer"
    subprocess.run(["gcc", "-x", "c", "-", "-o", path, "-ldl"], input=PEER.encode(), check=True)
    return path


def loaded(peer: Path, path: Path) -> str | None:
    """What the loader finds; None where it refuses the library, or the library breaks it."""
    done = subprocess.run([peer, path, *NAMES], capture_output=True, check=False, timeout=60)
    return None if done.returncode else done.stdout.decode()


def headers(path: Path) -> dict[str, tuple[int, int, int, int]]:
    """Of each section: place of its header, address, offset, size."""
    with open_elf(path) as elf:
        start = elf["e_shoff"]
        return {
            one.name: (start + 64 * n, one["sh_addr"], one["sh_offset"], one["sh_size"])
            for n, one in enumerate(elf.iter_sections())
        }


def tag_place(data: bytearray, path: Path, tag: int) -> int:
    _, _, offset, size = headers(path)[".dynamic"]
    return next(at for at in range(offset, offset + size, 16) if struct.unpack_from("<Q", data, at)[0] == tag)


def many_segments(data: bytearray, path: Path) -> None:
    """Tools read the number in a section's header; the loader reads 65,535 of them, one with an executable stack."""
    (first, sections), (count,) = struct.unpack_from("<QQ", data, 32), struct.unpack_from("<H", data, 56)
    table = bytes(data[first : first + 56 * count])
    struct.pack_into("<I", data, sections + 44, count)
    data += bytes(-len(data) % 8)
    struct.pack_into("<Q", data, 32, len(data))
    struct.pack_into("<H", data, 56, 0xFFFF)
    data += (
        table + struct.pack("<IIQQQQQQ", 0x6474E551, 7, 0, 0, 0, 0, 0, 16) + bytes(56 * (0xFFFF - count - 1))
    )


def name_elsewhere(data: bytearray, path: Path) -> None:
    """The name of a needed library is behind .dynstr: another one in memory than in the file."""
    found = headers(path)
    shift = found[".data"][1] - found[".data"][2]
    value = data.index(b"/dev/shm/other.so", found[".data"][2]) + shift - found[".dynstr"][1]
    struct.pack_into("<Q", data, tag_place(data, path, 1) + 8, value)
    seen = found[".dynstr"][2] + value
    data += bytes(max(0, seen + 16 - len(data)))
    data[seen : seen + 10] = b"libm.so.6\0"


def fewer_symbols(data: bytearray, path: Path) -> None:
    at, _, _, size = headers(path)[".dynsym"]
    struct.pack_into("<Q", data, at + 32, size - 24)


def other_hash(data: bytearray, path: Path) -> None:
    """A bucket that leads to no symbol: tools list them, the loader finds none."""
    _, _, offset, _ = headers(path)[".gnu.hash"]
    buckets, _, blooms, _ = struct.unpack_from("<4I", data, offset)
    struct.pack_into(f"<{buckets}I", data, offset + 16 + 8 * blooms, *[0] * buckets)


def undefined_symbol(data: bytearray, path: Path) -> None:
    """Tools list it as one that others define; the loader finds it by its value."""
    _, _, offset, size = headers(path)[".dynsym"]
    struct.pack_into("<H", data, offset + size - 24 + 6, 0)


def changed_table(data: bytearray, path: Path, kind: int = 1, place: int = 0) -> None:
    """A relocation whose place is the address of the table of names, in the dynamic section."""
    found = headers(path)
    _, _, offset, _ = found[".rela.dyn"]
    place = place or tag_place(data, path, 5) + 8 - found[".dynamic"][2] + found[".dynamic"][1]
    struct.pack_into("<Q", data, offset, place)
    struct.pack_into("<I", data, offset + 8, kind)


def descriptor_before_a_table(data: bytearray, path: Path) -> None:
    changed_table(data, path, 36, headers(path)[".dynamic"][1] - 8)


def copied_symbol(data: bytearray, path: Path) -> None:
    changed_table(data, path, 5, headers(path)[".data"][1])


def fewer_versions(data: bytearray, path: Path) -> None:
    struct.pack_into("<I", data, headers(path)[".gnu.version_r"][0] + 44, 0)


def hidden_version(data: bytearray, path: Path) -> None:
    """The list continues behind the count that tools use."""
    _, _, offset, _ = headers(path)[".gnu.version_r"]
    struct.pack_into("<I", data, offset + 16 + 12, 16)


def longer_in_the_file(data: bytearray, path: Path) -> None:
    (first,), (count,) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<H", data, 56)
    load = next(
        at for at in range(first + 56 * (count - 1), 0, -56) if struct.unpack_from("<I", data, at)[0] == 1
    )
    struct.pack_into("<Q", data, load + 40, 16)


def unaligned(data: bytearray, path: Path) -> None:
    """The loader maps complete pages, whatever the segment's alignment is."""
    (first,), (count,) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<H", data, 56)
    loads = [at for at in range(first, first + 56 * count, 56) if struct.unpack_from("<I", data, at)[0] == 1]
    (offset,) = struct.unpack_from("<Q", data, loads[-1] + 8)
    struct.pack_into("<Q", data, loads[-1] + 8, offset + 16)
    struct.pack_into("<Q", data, loads[-1] + 48, 16)


def unlisted(data: bytearray, path: Path) -> None:
    """Without its flag a section need not be loaded; tools read it all the same."""
    at, _, offset, size = headers(path)[".dynsym"]
    struct.pack_into("<Q", data, at + 8, 0)
    struct.pack_into("<Q", data, at + 24, len(data))
    data += data[offset : offset + size]


def other_type(data: bytearray, path: Path) -> None:
    struct.pack_into("<I", data, headers(path)[".gnu.version_r"][0] + 4, 1)


def no_end(data: bytearray, path: Path) -> None:
    _, _, offset, size = headers(path)[".dynamic"]
    for at in range(offset, offset + size, 16):
        if struct.unpack_from("<Q", data, at)[0] == 0:
            struct.pack_into("<Q", data, at, 0x6FFFFFF9)  # DT_RELACOUNT


def local_symbol(data: bytearray, path: Path) -> None:
    """Of a binding that tools list and the loader passes over."""
    _, _, offset, size = headers(path)[".dynsym"]
    data[offset + size - 24 + 4] = 3 << 4 | 1


def a_version(data: bytearray, path: Path) -> None:
    _, _, offset, size = headers(path)[".gnu.version"]
    struct.pack_into("<H", data, offset + size - 2, 0x8001)


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (many_segments, "65535 segments"),
        (name_elsewhere, "a name is behind .dynstr"),
        (fewer_symbols, "behind .dynsym"),
        (other_hash, "a symbol is not in .gnu.hash"),
        (undefined_symbol, "a symbol that is not defined is in .gnu.hash"),
        (changed_table, "changes tables of the loader"),
        (descriptor_before_a_table, "changes tables of the loader"),
        (copied_symbol, "changes tables of the loader"),
        (fewer_versions, "DT_VERNEEDNUM is not the number"),
        (hidden_version, "does not end where its count does"),
        (longer_in_the_file, "more bytes in the file than in memory"),
        (unaligned, "not at this place of a page"),
        (unlisted, ".dynsym is loaded from other bytes"),
        (other_type, ".gnu.version_r is of type"),
        (no_end, "DT_0x6ffffff9|has no end"),
        (local_symbol, "is passed over"),
        (a_version, "a symbol has a version"),
    ],
)
def test_what_the_loader_reads_otherwise(
    made: Path, tmp_path: Path, change: Callable[[bytearray, Path], None], difference: str
) -> None:
    data = bytearray(made.read_bytes())
    change(data, made)
    path = tmp_path / "libx.so"
    path.write_bytes(data)
    found = loader_differences(path)
    assert found and any(part in text for text in found for part in difference.split("|")), found


def test_libraries_as_compilers_make_them(made: Path, tmp_path: Path) -> None:
    assert loader_differences(made) == []
    styles = ["-Wl,--hash-style=both", "-Wl,-z,separate-code", "-Wl,-z,noseparate-code"]
    for number, flags in enumerate([*styles, *(["-fuse-ld=gold"] if shutil.which("ld.gold") else [])]):
        (folder := tmp_path / str(number)).mkdir()
        assert loader_differences(linked(folder, flags)) == [], flags
    assert loader_differences(linked(tmp_path, "-Wl,--hash-style=sysv")) == ["it has no .gnu.hash"]


def test_packed_relocations_of_tables(tmp_path: Path) -> None:
    """Those of DT_RELR have no table of symbols: places, and bits for the places behind."""
    path = linked(tmp_path, "-Wl,-z,pack-relative-relocs", "-Wl,-Bsymbolic")
    found = headers(path)
    if ".relr.dyn" not in found:
        pytest.skip("this linker does not pack relocations")
    assert loader_differences(path) == []
    data = bytearray(path.read_bytes())
    _, _, offset, size = found[".relr.dyn"]
    for entries in ([found[".dynamic"][1] + 8], [found[".dynamic"][1] - 16, 0b1001]):
        changed = data.copy()
        struct.pack_into(f"<{size // 8}Q", changed, offset, *(entries * size)[: size // 8])
        path.write_bytes(changed)
        assert size // 8 < len(entries) or loader_differences(path) == [
            "a relocation changes tables of the loader"
        ]


def test_an_empty_name_of_a_needed_library(made: Path, tmp_path: Path) -> None:
    data = bytearray(made.read_bytes())
    struct.pack_into("<Q", data, tag_place(data, made, 1) + 8, 0)
    path = tmp_path / "libx.so"
    path.write_bytes(data)
    assert "" in read_shared_library(path).needed
    context = cast(CheckContext, SimpleNamespace(libraries={"libx.so": path}))
    assert any(one.status == "failed" and "libx.so: needs " in one.evidence for one in check_elf(context))


def test_libraries_of_this_machine() -> None:
    """None is read otherwise; many have versions of their own, which no release has."""
    checked = 0
    for path in sorted(Path("/usr/lib/x86_64-linux-gnu").glob("lib*.so.*")):
        if not path.is_symlink() and path.stat().st_size < 4 << 20 and checked < 100:
            assert loader_differences(path) in ([], ["a symbol has a version"]), path
            checked += 1
    assert checked


def test_names_that_are_one_long_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = linked(tmp_path)
    monkeypatch.setattr(loaded_library, "_NAMES_LIMIT", 8)
    with pytest.raises(LibraryFileError, match="names do not end"):
        loader_differences(path)


def facts(path: Path) -> object:
    """As tools that use sections read them."""
    with open_elf(path) as file:
        symbols = [
            (one.name, one["st_info"], one["st_value"], one["st_shndx"])
            for one in file.get_section_by_name(".dynsym").iter_symbols()
        ]
    return read_shared_library(path), dynamic_symbols(path), symbols


def test_a_changed_library_loads_as_the_checks_read_it(made: Path, peer: Path, tmp_path: Path) -> None:
    """Bytes of headers and tables are changed; where the checks see no change, the loader sees none either."""
    data, found = made.read_bytes(), headers(made)
    tables = (".dynamic", ".dynsym", ".dynstr", ".gnu.hash", ".gnu.version", ".gnu.version_r")
    (first,), (count,) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<H", data, 56)
    places = [*range(64), *range(first, first + 56 * count)]
    for name in tables:
        at, _, offset, size = found[name]
        places += [*range(at, at + 64), *range(offset, offset + size)]
    before, wanted = facts(made), loaded(peer, made)
    assert wanted and "first -1" not in wanted and "absent -1" in wanted
    (folder := tmp_path / "changed").mkdir()
    path = folder / "libx.so"

    @settings(max_examples=400, deadline=None)
    @given(st.lists(st.tuples(st.sampled_from(places), st.integers(0, 255)), min_size=1, max_size=2))
    def one(changes: list[tuple[int, int]]) -> None:
        changed = bytearray(data)
        for at, value in changes:
            changed[at] = value
        assume(changed != data)
        path.write_bytes(changed)
        try:
            same = not loader_differences(path) and facts(path) == before
        except (OSError, LibraryFileError):
            same = False
        if same:
            assert loaded(peer, path) in {wanted, None}, changes

    one()
