"""The Windows archive, where the release has one: layout, imports, exports, reproducible form. Read here, never run."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.checks.library import build_machine_traces
from aotforge.conformance.findings import Finding, failed, finding_from, not_run
from aotforge.conformance.interface import function_name
from aotforge.errors import RuntimeBuildError
from aotforge.formats import pe
from aotforge.release.layout import TOP

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
_IMAGES = f"{TOP}/lib/aotriton.images/"


@dataclass(frozen=True, kw_only=True)
class PortableExecutable:
    """What the loader sees of a DLL: imported libraries, exported names, the time of linking, security bits."""

    imports: tuple[str, ...]
    exports: tuple[str, ...]
    timestamp: int
    characteristics: int


def read_pe(data: bytes) -> PortableExecutable:
    """A 64-bit DLL. Raises RuntimeBuildError for anything else."""
    return PortableExecutable(
        imports=tuple(pe.imports(data)),
        exports=tuple(entry.name for entry in pe.exports(data) if entry.name),
        timestamp=pe.link_time(data),
        characteristics=pe.characteristics(data),
    )


def check_windows(context: CheckContext) -> list[Finding]:
    """Layout, imports, exports and images of each aotriton-<release>-win_amd64-shared*.zip."""
    if not context.candidate.windows:
        return [not_run("windows", "the Windows archive", "the release has none")]
    return [finding for path in context.candidate.windows for finding in _check_archive(context, path)]


def _check_archive(context: CheckContext, path: Path) -> list[Finding]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            broken = archive.testzip()
            wrong = [f"{broken} is damaged"] if broken else []
            contents = {name: archive.read(name) for name in dict.fromkeys(names)}
            times = {info.date_time for info in archive.infolist()}
    except (OSError, zipfile.BadZipFile, NotImplementedError, EOFError, zlib.error) as error:
        return [failed("windows", f"{path.name} can be read", str(error))]
    traces = [
        f"{name}: {text}"
        for name, data in contents.items()
        for text in build_machine_traces(data, context.checkout)
    ]
    findings = [
        _layout(path, names, wrong, times),
        finding_from("windows", f"no path or name of the build machine in {path.name}", traces),
        *_images(context, contents),
    ]
    for name in (name for name in contents if name.endswith(".dll")):
        try:
            module = read_pe(contents[name])
        except RuntimeBuildError as error:
            findings.append(failed("windows", f"{name} is a 64-bit DLL", error.what))
            continue
        findings += _hardening(name, module)
        findings += [_interface(context, module)] if name == _DLL else []
    return findings


def _images(context: CheckContext, contents: dict[str, bytes]) -> list[Finding]:
    """Packs in the archive are the Linux archives' packs, file for file."""
    inside: dict[str, dict[str, bytes]] = {}
    for name, data in contents.items():
        if name.startswith(_IMAGES) and name.count("/") == _IMAGES.count("/") + 1 and not name.endswith("/"):
            pack, _, file = name.removeprefix(_IMAGES).partition("/")
            inside.setdefault(pack, {})[file] = data
    packs, findings = context.candidate.packs(), []
    for pack, files in inside.items():
        here = {path.name: path.read_bytes() for path in packs[pack].iterdir()} if pack in packs else {}
        odd = sorted(name for name in here.keys() | files.keys() if here.get(name) != files.get(name))
        what = f"{pack} in the Windows archive is the pack of the Linux archive"
        findings.append(
            finding_from("windows", what, [f"{name} differs" for name in odd], f"{len(files)} files")
        )
    return findings


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
    return finding_from("windows", "layout that PyTorch expects, one top folder", found, path.name)


def _hardening(name: str, module: PortableExecutable) -> list[Finding]:
    strange = [
        found
        for found in module.imports
        if found.lower() not in ALLOWED and not found.lower().startswith("api-ms-win-")
    ]
    bits = {
        0x20: "64-bit address randomisation",
        0x40: "address randomisation",
        0x100: "no execution of data",
    }
    missing = [text for bit, text in bits.items() if not module.characteristics & bit]
    return [
        finding_from(
            "windows",
            f"{name} imports nothing but Windows' own libraries",
            strange,
            ", ".join(module.imports),
        ),
        finding_from("windows", f"{name} is hardened", [f"without {text}" for text in missing]),
        finding_from(
            "windows",
            f"{name} holds no time of linking",
            [f"timestamp {module.timestamp:#x}"] if module.timestamp else [],
        ),
    ]


def _interface(context: CheckContext, module: PortableExecutable) -> Finding:
    """Every function and constructor of the API level by the name that MSVC links to."""
    wanted: dict[str, str] = {}
    level = context.compat.interface.levels[context.compat.level]
    for space, functions in level.functions.items():
        scope = "".join(f"{part}@" for part in reversed(space.split("::")) if part)
        for declaration in functions:
            name = function_name(declaration)
            # the arguments' part of the name follows
            wanted[f"?{name}@{scope}aotriton@@"] = f"{space + '::' if space else ''}{name}"
    for struct_name, entry in level.structs.items():
        if entry.version is not None:
            parts = struct_name.split("::")
            wanted[f"??0{'@'.join(reversed(parts))}@aotriton@@"] = f"{struct_name}'s constructor"
    lacking = [
        f"{text} is not exported under a name that MSVC links to"
        for begin, text in wanted.items()
        if not any(export.startswith(begin) for export in module.exports)
    ]
    what = f"exports the functions and constructors of API level {context.compat.level} for MSVC"
    return finding_from("windows", what, lacking, f"{len(wanted)} of {len(module.exports)} exports")
