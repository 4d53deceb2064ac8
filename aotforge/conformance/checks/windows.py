"""Checks of the Windows archive: layout, imports, exports, reproducible form. Read, never run."""

import re
import zipfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from aotforge.conformance.checks.abi import function_name
from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.checks.library import DEVELOPMENT_FILES, build_machine_traces
from aotforge.conformance.findings import Finding, failed, finding_from, not_run
from aotforge.errors import RuntimeBuildError
from aotforge.formats.artifact_names import parse_artifact_name
from aotforge.formats.pe import DYNAMIC_BASE, HIGH_ENTROPY, NX_COMPATIBLE, Module, read_module
from aotforge.formats.zip_archive import zip_members
from aotforge.release.layout import TOP

ALLOWED = frozenset({"kernel32.dll", "msvcrt.dll", "ucrtbase.dll", "ntdll.dll", "advapi32.dll", "user32.dll"})
"""Imports that every Windows has, besides `_API_SET`. HIP is loaded at run time, never imported."""

_API_SET = re.compile(r"api-ms-win-(core|crt)-[a-z0-9-]+-l\d+-\d+-\d+\.dll")
_MUST_EXIST = ("lib/aotriton_v2.dll", "lib/aotriton_v2.lib", *DEVELOPMENT_FILES)
_DLL = f"{TOP}/lib/aotriton_v2.dll"
_IMAGES = f"{TOP}/lib/aotriton.images/"
_CHARACTERISTICS = {
    HIGH_ENTROPY: "64-bit address randomisation",
    DYNAMIC_BASE: "address randomisation",
    NX_COMPATIBLE: "no execution of data",
}


def check_windows(context: CheckContext) -> Iterator[Finding]:
    """Layout, imports, exports and images of each aotriton-<release>-win_amd64-shared*.zip."""
    if not context.candidate.windows:
        yield not_run("windows", "the Windows archive", "the release has none")
    for path in context.candidate.windows:
        yield from _check_archive(context, path)


def _check_archive(context: CheckContext, path: Path) -> Iterator[Finding]:
    entries = list(zip_members(path))
    members, contents = [info for info, _ in entries], {info.filename: data for info, data in entries}
    what = "layout that PyTorch expects, one top folder"
    yield finding_from("windows", what, _layout_violations(members), path.name)
    packs = _packs(contents)
    yield _naming(context, path.name, packs)
    traces = (
        f"{name}: {text}"
        for name, data in contents.items()
        for text in build_machine_traces(data, context.checkout)
    )
    yield finding_from("windows", f"no path or name of the build machine in {path.name}", traces)
    yield from _images(context, packs)
    for name in (name for name in contents if name.lower().endswith((".dll", ".exe"))):
        try:
            module = read_module(contents[name])
        except RuntimeBuildError as error:
            yield failed("windows", f"{name} is a 64-bit module", error.what)
            continue
        yield from _hardening(name, module)
        if name == _DLL:
            yield _exports(context, module)


def _layout_violations(members: list[zipfile.ZipInfo]) -> Iterator[str]:
    names = [info.filename for info in members]
    tops = sorted({name.split("/", 1)[0] for name in names})
    if tops != [TOP]:
        yield f"top entries {', '.join(tops)}; on Windows it must be {TOP}"
    yield from (f"{name} is missing" for name in _MUST_EXIST if f"{TOP}/{name}" not in names)
    if len({info.date_time for info in members}) > 1:
        yield "its members have several times"


def _packs(contents: Mapping[str, bytes]) -> dict[str, dict[str, bytes]]:
    """The files of each pack."""
    packs: dict[str, dict[str, bytes]] = {}
    for name, data in contents.items():
        pack, _, file = name.removeprefix(_IMAGES).partition("/")
        if name.startswith(_IMAGES) and file:
            packs.setdefault(pack, {})[file] = data
    return packs


def _naming(context: CheckContext, file: str, packs: Collection[str]) -> Finding:
    """The layout has no other packs than the name."""
    release, archive = context.candidate.release.name, parse_artifact_name(file)
    wrong = [] if archive and archive.release == release else [f"{file} is not of {release}"]
    wrong += [f"{pack} is not in it" for pack in sorted(archive.packs.difference(packs) if archive else ())]
    return finding_from("windows", "the archive's name states its release and its packs", wrong, file)


def _images(context: CheckContext, packs: Mapping[str, Mapping[str, bytes]]) -> Iterator[Finding]:
    """Packs in the archive are the Linux archives' packs, file for file."""
    ours = context.candidate.packs()
    for pack, files in packs.items():
        linux = {path.name: path.read_bytes() for path in ours[pack].iterdir()} if pack in ours else {}
        names = sorted(linux.keys() | files.keys())
        differing = [f"{name} differs" for name in names if linux.get(name) != files.get(name)]
        what = f"{pack} in the Windows archive is the pack of the Linux archive"
        yield finding_from("windows", what, differing, f"{len(files)} files")


def _hardening(name: str, module: Module) -> list[Finding]:
    libraries = [library.lower() for library in module.imports]
    others = [library for library in libraries if library not in ALLOWED and not _API_SET.fullmatch(library)]
    missing = [
        f"without {text}" for bit, text in _CHARACTERISTICS.items() if not module.characteristics & bit
    ]
    time = [f"timestamp {module.link_time:#x}"] if module.link_time else []
    what = f"{name} imports nothing but Windows' own libraries and forwards to no others"
    return [
        finding_from("windows", what, others, ", ".join(module.imports)),
        finding_from("windows", f"{name} is hardened", missing),
        finding_from("windows", f"{name} holds no time of linking", time),
    ]


def _exports(context: CheckContext, module: Module) -> Finding:
    """Every function and constructor of the API level under the name that MSVC links to."""
    level = context.compat.interface.levels[context.compat.level]
    wanted: dict[str, str] = {}
    for space, functions in level.functions.items():
        scope = "".join(f"{part}@" for part in reversed(space.split("::")) if part)
        for name in map(function_name, functions):
            # the arguments' part of the name follows
            wanted[f"?{name}@{scope}aotriton@@"] = f"{space}::{name}" if space else name
    for name, entry in level.structs.items():
        if entry.version is not None:
            wanted[f"??0{'@'.join(reversed(name.split('::')))}@aotriton@@"] = f"{name}'s constructor"
    missing = [
        f"{text} is not exported under a name that MSVC links to"
        for begin, text in wanted.items()
        if not any(export.startswith(begin) for export in module.exports)
    ]
    what = f"exports the functions and constructors of API level {context.compat.level} for MSVC"
    return finding_from("windows", what, missing, f"{len(wanted)} of {len(module.exports)} exports")
