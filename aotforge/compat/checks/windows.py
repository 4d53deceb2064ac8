"""The Windows archive, where the release has one: layout, imports, exports, reproducible form. Read here, never run."""

from __future__ import annotations

import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from aotforge.compat.checks.library import foreign
from aotforge.compat.checks.values import Setting
from aotforge.compat.findings import Finding, failed, judged, not_run
from aotforge.compat.interface import function_name
from aotforge.release.tree import TOP

ALLOWED = frozenset({"kernel32.dll", "msvcrt.dll", "ucrtbase.dll", "ntdll.dll", "advapi32.dll", "user32.dll"})
"""Imports that every Windows has; `api-ms-win-*` besides. HIP is looked up at run time, never imported."""

_MUST_EXIST = (
    "lib/aotriton_v2.dll",
    "lib/aotriton_v2.lib",
    "include/aotriton/flash.h",
    "include/aotriton/config.h",
    "lib/cmake/aotriton/aotritonConfig.cmake",
)
_DLL = f"{TOP}/lib/aotriton_v2.dll"


@dataclass(frozen=True, kw_only=True)
class PortableExecutable:
    """What the loader sees of a DLL: imported libraries, exported names, the time of linking, security bits."""

    imports: tuple[str, ...]
    exports: tuple[str, ...]
    timestamp: int
    characteristics: int


def read_pe(data: bytes) -> PortableExecutable:
    """An x86-64 DLL (PE32+). Raises ValueError for anything else. Source: Microsoft's PE Format specification."""
    try:
        return _read_pe(data)
    except (struct.error, IndexError) as error:
        raise ValueError(f"is cut short: {error}") from error


def _read_pe(data: bytes) -> PortableExecutable:
    if data[:2] != b"MZ":
        raise ValueError("is no PE file")
    (start,) = struct.unpack_from("<I", data, 0x3C)
    if data[start : start + 4] != b"PE\0\0":
        raise ValueError("is no PE file")
    machine, sections, timestamp = struct.unpack_from("<HHI", data, start + 4)
    (optional_size,) = struct.unpack_from("<H", data, start + 20)
    optional = start + 24
    (magic,) = struct.unpack_from("<H", data, optional)
    if machine != 0x8664 or magic != 0x20B:
        raise ValueError("is not for x86-64")
    (characteristics,) = struct.unpack_from("<H", data, optional + 70)
    directories = [struct.unpack_from("<II", data, optional + 112 + 8 * n) for n in range(2)]
    table = [
        struct.unpack_from("<IIII", data, optional + optional_size + 40 * n + 8) for n in range(sections)
    ]

    def at(address: int) -> int:
        for virtual_size, virtual, raw_size, raw in table:
            if virtual <= address < virtual + max(virtual_size, raw_size):
                return int(raw + address - virtual)
        raise ValueError(f"refers to the address {address:#x}, which no section has")

    def text(address: int) -> str:
        offset = at(address)
        return data[offset : data.index(b"\0", offset)].decode("ascii", "replace")

    exports: list[str] = []
    if directories[0][0]:
        offset = at(directories[0][0])
        count, _, names = struct.unpack_from("<III", data, offset + 24)
        exports = [text(struct.unpack_from("<I", data, at(names) + 4 * n)[0]) for n in range(count)]
    imports: list[str] = []
    if directories[1][0]:
        offset = at(directories[1][0])
        while (name := struct.unpack_from("<5I", data, offset)[3]) != 0:
            imports.append(text(name))
            offset += 20
    return PortableExecutable(
        imports=tuple(imports), exports=tuple(exports), timestamp=timestamp, characteristics=characteristics
    )


def check_windows(setting: Setting) -> list[Finding]:
    """Layout, imports and exports of aotriton-<release>-win_amd64-shared.zip."""
    path = setting.candidate.windows
    if path is None:
        return [not_run("windows", "the Windows archive", "the release has none")]
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            broken = archive.testzip()
            wrong = [f"{broken} is damaged"] if broken else []
            dll = archive.read(_DLL) if _DLL in names else b""
            times = {info.date_time for info in archive.infolist()}
            traces = [
                f"{name}: {text}" for name in names for text in foreign(archive.read(name), setting.checkout)
            ]
    except (OSError, zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        return [failed("windows", "the Windows archive can be read", str(error))]
    findings = [_layout(path, names, wrong, times)]
    findings.append(judged("windows", "no path or name of the build machine", traces))
    try:
        pe = read_pe(dll)
    except ValueError as error:
        return [*findings, failed("windows", "lib/aotriton_v2.dll is a DLL for x86-64", str(error))]
    return findings + _dll(setting, pe)


def _layout(
    path: Path, names: list[str], wrong: list[str], times: set[tuple[int, int, int, int, int, int]]
) -> Finding:
    tops = sorted({name.split("/", 1)[0] for name in names})
    found = list(wrong)
    found += [] if tops == [TOP] else [f"top entries {', '.join(tops)}; on Windows it must be {TOP}"]
    found += [f"{name} is missing" for name in _MUST_EXIST if f"{TOP}/{name}" not in names]
    found += [
        f"{name!r} leads out of the archive"
        for name in names
        if ".." in PurePosixPath(name).parts or name.startswith("/") or "\\" in name or ":" in name
    ]
    found += [f"{name} is there twice" for name in sorted({n for n in names if names.count(n) > 1})]
    found += ["its members have several times"] if len(times) > 1 else []
    return judged("windows", "layout that PyTorch expects, one top folder", found, path.name)


def _dll(setting: Setting, pe: PortableExecutable) -> list[Finding]:
    strange = [
        name
        for name in pe.imports
        if name.lower() not in ALLOWED and not name.lower().startswith("api-ms-win-")
    ]
    lacking = []
    for space, functions in setting.compat.interface.levels[setting.compat.level].functions.items():
        for declaration in functions:
            name = function_name(declaration)
            scope = "".join(f"{part}@" for part in reversed(space.split("::")) if part)
            # MSVC's mangling begins so; arguments follow
            if not any(export.startswith(f"?{name}@{scope}aotriton@@") for export in pe.exports):
                lacking.append(
                    f"{space + '::' if space else ''}{name} is not exported under a name that MSVC links to"
                )
    bits = {
        0x20: "64-bit address randomisation",
        0x40: "address randomisation",
        0x100: "no execution of data",
    }
    missing = [text for bit, text in bits.items() if not pe.characteristics & bit]
    return [
        judged("windows", "imports nothing but Windows' own libraries", strange, ", ".join(pe.imports)),
        judged(
            "windows", "exports the interface's functions for MSVC", lacking, f"{len(pe.exports)} exports"
        ),
        judged("windows", "hardened", [f"without {text}" for text in missing]),
        judged(
            "windows", "no time of linking", [] if pe.timestamp == 0 else [f"timestamp {pe.timestamp:#x}"]
        ),
    ]
