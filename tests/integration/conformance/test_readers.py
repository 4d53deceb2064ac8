"""Readers of binaries: libraries linked with one fault each, a DLL against objdump's listing."""

from __future__ import annotations

import shutil
import socket
import subprocess
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.checks.library import build_machine_traces, check_elf
from aotforge.conformance.checks.windows import _hardening, check_windows
from aotforge.conformance.compilers import find_compilers
from aotforge.conformance.matrix import load_matrix
from aotforge.errors import RuntimeBuildError
from aotforge.formats.pe import Module, read_module
from aotforge.formats.shared_library import LibraryFileError, dynamic_symbols
from aotforge.formats.zip_archive import write_zip
from tests.support.runtime import ROOT

MINGW = "x86_64-w64-mingw32-g++"
GOOD = ["-Wl,-z,relro,-z,now,-z,noexecstack,--build-id=sha1", "-s"]


def elf(folder: Path, flags: list[str], *, code: str = "int zero() { return 0; }") -> CheckContext:
    path = folder / "libx.so"
    command = ["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(path), *flags]
    done = subprocess.run(command, input=code, text=True, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"this linker does not make such a library: {done.stderr[:200]}")
    return context_of(path)


def context_of(path: Path) -> CheckContext:
    return cast(CheckContext, SimpleNamespace(library=path, libraries={path.name: path}, upstream=False))


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        (["-Wl,-rpath,/opt/somewhere"], "no RPATH"),
        (["-Wl,-rpath,$ORIGIN,--disable-new-dtags"], "no RPATH"),
        (["-Wl,-z,norelro"], "RELRO"),
        (["-Wl,-z,lazy"], "BIND_NOW"),
        (["-Wl,-z,execstack"], "no executable stack"),
        (["-Wl,-N", "-Wl,-z,norelro"], "no executable stack"),
        (["-lstdc++", "-Wl,--no-as-needed"], "depends on nothing"),
        (["-Wl,--build-id=none"], "a build ID"),
    ],
)
def test_one_thing_wrong(tmp_path: Path, flags: list[str], what: str) -> None:
    code = (
        "#include <string>\nstd::string* make(const char* t) { return new std::string(t); }"
        if "-lstdc++" in flags
        else "int zero;"
    )
    base = ["-static-libstdc++", *GOOD] if "-lstdc++" not in flags else GOOD
    failed = {f.what for f in check_elf(elf(tmp_path, [*base, *flags], code=code)) if f.status == "failed"}
    assert any(text.startswith(what) for text in failed), failed


def test_nothing_wrong_and_not_stripped(tmp_path: Path) -> None:
    findings = list(check_elf(elf(tmp_path, ["-nostdlib", *GOOD])))
    assert {f.status for f in findings} == {"passed"}
    unstripped = elf(tmp_path, ["-g", "-nostdlib", *(flag for flag in GOOD if flag != "-s")])
    (failed,) = [f for f in check_elf(unstripped) if f.status == "failed"]
    assert failed.what == "stripped" and ".debug_info" in failed.evidence
    (tmp_path / "libx.so").write_bytes(b"text")
    with pytest.raises(LibraryFileError, match=r"libx\.so is not a readable library"):
        list(check_elf(context_of(tmp_path / "libx.so")))


def test_symbols_as_nm_has_them(tmp_path: Path) -> None:
    context = elf(tmp_path, [], code='extern "C" { int here; int away(); int call() { return away(); } }')
    listed = subprocess.run(
        ["nm", "-D", str(context.library)], capture_output=True, text=True, check=True
    ).stdout
    for undefined, kinds in ((False, "TDBRVW"), (True, "U")):
        wanted = {line.split()[-1] for line in listed.splitlines() if line.split()[-2] in kinds}
        assert wanted and wanted <= dynamic_symbols(context.library, undefined=undefined)


def test_paths_of_a_builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = "/home/me/x.cpp /tmp/abc/y x=/root/.cache /build/aotriton-1/src /usr/src/pkg/a.c"
    for text in (*found.split(), f"{tmp_path}/z"):
        assert build_machine_traces(text.encode(), tmp_path), text
    others = "${_IMPORT_PREFIX}/lib share/tmp/x /aotriton.images https://example.org/home/x /opt/rocm/lib"
    for text in (*others.split(), "a/build/b"):
        assert not build_machine_traces(text.encode(), tmp_path), text
    for host, named in (("build-07", True), ("localhost", False), ("x1", False)):
        monkeypatch.setattr(socket, "gethostname", lambda host=host: host)
        assert bool(build_machine_traces(f"built on {host}.".encode(), tmp_path)) == named


def test_only_wanted_compilers(tmp_path: Path) -> None:
    for name, reported in (
        ("g++", "g++ (Debian 13.2.0-1) 13.2.0"),
        ("g++-10", "g++-10 (Debian 10.2.1-6) 10.2.1"),
        ("g++-11", "g++-11 (Debian 11.3.0-12) 11.3.0"),
        ("clang++", "Debian clang version 14.0.6"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{reported}'\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "g++-9").write_text("#!/nonexistent\n")
    (tmp_path / "g++-9").chmod(0o755)
    found = find_compilers(str(tmp_path), every=True)
    assert [one.name for one in found] == ["gcc 10", "gcc 11", "clang 14"]
    assert [one.name for one in find_compilers(str(tmp_path))] == ["gcc 11", "clang 14"]


CODE = (
    'extern "C" __declspec(dllexport) int one() { return 1; }\n'
    'extern "C" __declspec(dllexport) int two() { return 2; }\n'
)


def require_mingw() -> None:
    if shutil.which(MINGW) is None:
        pytest.skip(f"{MINGW} is not installed")


def dll(folder: Path, *more: str, code: str = CODE) -> bytes:
    """`more`: other inputs of the linker, in `folder`."""
    require_mingw()
    subprocess.run(
        [MINGW, "-shared", "-s", "-static", "-Wl,--no-insert-timestamp", "-x", "c++", "-", "-x", "none",
            *more, "-o", "x.dll"],
        input=code, text=True, check=True, cwd=folder,
    )  # fmt: skip
    return (folder / "x.dll").read_bytes()


def test_a_dll_as_objdump_reads_it(tmp_path: Path) -> None:
    data = dll(tmp_path)
    pe = read_module(data)
    dump = ["x86_64-w64-mingw32-objdump", "-p", str(tmp_path / "x.dll")]
    listed = subprocess.run(dump, capture_output=True, text=True, check=True).stdout
    named = {line.split()[-1].lower() for line in listed.splitlines() if "DLL Name:" in line}
    assert {name.lower() for name in pe.imports} == named
    assert pe.exports == ("one", "two") and pe.link_time == 0
    for cut in (0, 1, 64, 200, 600, len(data) // 2):
        with pytest.raises(RuntimeBuildError):
            read_module(data[:cut] if cut != len(data) // 2 else b"MZ" + bytes(cut))
    flipped = bytearray(data)
    flipped[0x3C:0x40] = b"\xff\xff\xff\x7f"
    with pytest.raises(RuntimeBuildError):
        read_module(bytes(flipped))


def forwarding(folder: Path) -> bytes:
    (folder / "x.def").write_text("EXPORTS\n one\n other = evil.func\n")
    return dll(folder, "x.def")


def test_libraries_that_a_windows_library_loads_besides_its_imports(tmp_path: Path) -> None:
    for make, reported in ((dll, []), (forwarding, ["evil.dll"])):
        found = _hardening("x.dll", read_module(make(tmp_path)))
        assert [one.evidence for one in found if one.status == "failed"] == reported


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("API-MS-WIN-CRT-HEAP-L1-1-0.DLL", "passed"),
        ("API-MS-WIN-EVIL.DLL", "failed"),
        ("API-MS-WIN-CORE-X/../../EVIL-L1-1-0.DLL", "failed"),
    ],
)
def test_names_like_those_of_windows_libraries(name: str, status: str) -> None:
    module = Module(imports=(name,), exports=(), tables=(), link_time=0, characteristics=0xFFFF)
    assert [one.status for one in _hardening("x.dll", module)] == [status, *["passed"] * 2]


def test_a_windows_archive_with_much_wrong(tmp_path: Path) -> None:
    path = tmp_path / "aotriton-0.11.2b-r1-win_amd64-shared.zip"
    members = {"aotriton/lib/aotriton_v2.dll": dll(tmp_path), "readme.txt": b"built in /home/me/src"}
    write_zip(path, members, epoch=0)
    candidate = SimpleNamespace(release=SimpleNamespace(name="0.11.2b-r1"), windows=(path,), packs=dict)
    context = SimpleNamespace(candidate=candidate, compat=load_matrix(ROOT), checkout=ROOT)
    findings = check_windows(cast(CheckContext, context))
    reported = "\n".join(f.evidence for f in findings if f.status == "failed")
    for text in (
        "top entries aotriton, readme.txt",
        "aotriton_v2.lib is missing",
        "/home/me/src",
        "v3::flash::attn_fwd is not exported",
    ):
        assert text in reported, reported
    path.write_bytes(b"no zip")
    with pytest.raises(zipfile.BadZipFile):
        list(check_windows(cast(CheckContext, context)))
