"""Platform tags of libraries that a real compiler made."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.errors import ReleaseError
from aotforge.release.platform_tag import measure_platform_tag
from tests.integration.release.standin import library

# needs symbol versions of chosen age, whatever glibc this machine has
OLD = '__asm__(".symver memcpy, memcpy@GLIBC_2.2.5"); void *memcpy(void *, const void *, unsigned long);'
CODE = OLD + " void *copy(void *to, const void *from) { return memcpy(to, from, 8); }"


def test_library_without_symbol_versions_reaches_every_platform(tmp_path: Path) -> None:
    tag = measure_platform_tag(library(tmp_path / "l.so"), promised="manylinux_2_28")
    assert (tag.tag, tag.reaches, tag.reasons) == ("manylinux_2_28_x86_64", True, ())
    assert tag.measured == "manylinux_2_5_x86_64"


def test_old_symbols_reach_the_promise(tmp_path: Path) -> None:
    tag = measure_platform_tag(library(tmp_path / "l.so", code=CODE, flags="-lc"), promised="manylinux_2_28")
    assert (tag.tag, tag.reaches) == ("manylinux_2_28_x86_64", True)


def test_new_symbols_do_not(tmp_path: Path) -> None:
    # dlopen moved into libc with glibc 2.34
    code = "void *dlopen(const char *, int); void *open_it(void) { return dlopen(0, 2); }"
    tag = measure_platform_tag(library(tmp_path / "l.so", code=code, flags="-lc"), promised="manylinux_2_28")
    assert (tag.measured, tag.tag, tag.reaches) == ("manylinux_2_34_x86_64", "manylinux_2_34_x86_64", False)
    assert tag.reasons == ("GLIBC_2.34 of libc.so.6",)
    assert measure_platform_tag(tmp_path / "l.so", promised="manylinux_2_34").reaches


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
