"""Platform tags of libraries that a real compiler made."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from aotforge.errors import ReleaseError
from aotforge.formats import shared_library
from aotforge.release.platform_tag import measure_platform_tag
from tests.integration.release.standin import library

# needs symbol versions of chosen age, whatever glibc this machine has
OLD = '__asm__(".symver memcpy, memcpy@GLIBC_2.2.5"); void *memcpy(void *, const void *, unsigned long);'
CODE = OLD + " void *copy(void *to, const void *from) { return memcpy(to, from, 8); }"

# dlopen moved into libc with glibc 2.34
NEW = "void *dlopen(const char *, int); void *open_it(void) { return dlopen(0, 2); }"


@pytest.mark.parametrize(
    ("code", "flags", "measured", "tag", "reasons"),
    [
        ("", "", "manylinux_2_5", "manylinux_2_28", ()),
        (CODE, "-lc", "manylinux_2_5", "manylinux_2_28", ()),
        (NEW, "-lc", "manylinux_2_34", "manylinux_2_34", ("GLIBC_2.34 of libc.so.6",)),
    ],
    ids=["no versions", "old", "new"],
)
def test_symbols_decide(
    tmp_path: Path, code: str, flags: str, measured: str, tag: str, reasons: tuple[str, ...]
) -> None:
    found = measure_platform_tag(
        library(tmp_path / "l.so", code=code, flags=flags), promised="manylinux_2_28"
    )
    assert (found.measured, found.tag) == (f"{measured}_x86_64", f"{tag}_x86_64")
    assert (found.reaches, found.reasons) == (not reasons, reasons)
    assert measure_platform_tag(tmp_path / "l.so", promised="manylinux_2_34").reaches


def test_the_newest_of_several_libraries(tmp_path: Path) -> None:
    old = library(tmp_path / "old.so", code=CODE, flags="-lc")
    new = library(tmp_path / "new.so", code=NEW, flags="-lc")
    for order in ((old, new), (new, old)):
        tag = measure_platform_tag(*order, promised="manylinux_2_28")
        assert (tag.tag, tag.reasons) == ("manylinux_2_34_x86_64", ("GLIBC_2.34 of libc.so.6",))
    with pytest.raises(ReleaseError, match="nowhere cannot be measured"):
        measure_platform_tag(old, tmp_path / "nowhere", promised="manylinux_2_28")


def test_versions_of_the_loader_count(tmp_path: Path) -> None:
    """It is part of glibc."""
    code = (
        '__asm__(".symver __rseq_offset, __rseq_offset@GLIBC_2.35"); extern int __rseq_offset; '
        "int *offset(void) { return &__rseq_offset; }"
    )
    loader, script = tmp_path / "ld-linux-x86-64.so.2", tmp_path / "versions"
    script.write_text("GLIBC_2.35 { global: __rseq_offset; };")
    library(loader, soname=loader.name, code="int __rseq_offset;", flags=f"-Wl,--version-script={script}")
    path = library(tmp_path / "l.so", code=code, flags=f"{loader}")
    tag = measure_platform_tag(path, promised="manylinux_2_28")
    assert (tag.tag, tag.reasons) == ("manylinux_2_35_x86_64", (f"GLIBC_2.35 of {loader.name}",))


def test_unknown_dependency_is_generic_linux(tmp_path: Path) -> None:
    library(tmp_path / "libother.so.3", soname="libother.so.3")
    built = library(tmp_path / "l.so", flags=f"-Wl,--no-as-needed {tmp_path}/libother.so.3")
    tag = measure_platform_tag(built, promised="manylinux_2_28")
    assert (tag.tag, tag.reasons) == ("linux_x86_64", ("dependency on libother.so.3",))


def test_anything_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no library")
    for path in (tmp_path / "text", tmp_path / "nowhere", tmp_path):
        with pytest.raises(ReleaseError, match="cannot be measured"):
            measure_platform_tag(path, promised="manylinux_2_28")
    with pytest.raises(ReleaseError, match="auditwheel does not know the platform"):
        measure_platform_tag(library(tmp_path / "l.so"), promised="manylinux_2_999")


def test_damaged_tables_are_a_named_error(tmp_path: Path) -> None:
    path = library(tmp_path / "l.so")
    data = bytearray(path.read_bytes())
    (start,), (names,) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<H", data, 62)
    struct.pack_into("<Q", data, start + 64 * names + 24, (1 << 64) - 1)  # where the sections' names are
    path.write_bytes(data)
    with pytest.raises(shared_library.LibraryFileError):
        shared_library.read_shared_library(path)
