"""The library's file and its neighbours: names, links, platform, dependencies, hardening, and paths of the machine that built it."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from aotforge.conformance.candidate import files_below
from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.findings import Finding, failed, finding_from, passed
from aotforge.errors import AotforgeError
from aotforge.release.layout import TOP
from aotforge.release.platform_tag import measure_platform_tag, read_soname

NEEDED = re.compile(r"(libc|libm|libdl|libpthread|librt|ld-linux-x86-64|libgcc_s)\.so\.\d+")
"""Libraries that every glibc system has. Not libstdc++: ours is inside, so that PyTorch's never meets another version of it."""

_NOW, _FLAGS_NOW = 0x8, 0x1
_MUST_EXIST = (
    "lib/libaotriton_v2.so",
    "include/aotriton/flash.h",
    "include/aotriton/config.h",
    "lib/cmake/aotriton/aotritonConfig.cmake",
    "share/licenses/aotriton/LICENSE",
)


def check_names(context: CheckContext) -> list[Finding]:
    """SONAME, links of older point releases, and what PyTorch's CMake and find_package look for."""
    lib, names = context.prefix / "lib", context.compat.names
    try:
        soname = read_soname(context.library)
        findings = [
            finding_from(
                "names", "SONAME", [f"is {soname}, not {names[0]}"] if soname != names[0] else [], soname
            )
        ]
    except AotforgeError as error:
        findings = [failed("names", "SONAME", error.what)]
    for name in ("libaotriton_v2.so", *names[1:]):
        rows = [row.name for row in context.compat.rows if name in context.compat.service(row).links]
        path = lib / name
        wrong = []
        if not path.is_symlink():
            wrong.append("is a copy, not a link" if path.exists() else "is missing")
        elif path.readlink() != Path(names[0]):
            wrong.append(f"leads to {path.readlink()}, not {names[0]}")
        for row in rows or [""]:
            findings.append(finding_from("names", f"link {name}", wrong, f"to {names[0]}", row=row))
    missing = [name for name in _MUST_EXIST if not (context.prefix / name).is_file()]
    findings.append(
        finding_from(
            "names", "what PyTorch's CMake and find_package look for", [f"{m} is missing" for m in missing]
        )
    )
    strange = [p.name for p in lib.glob("*.so*") if p.name not in {*names, "libaotriton_v2.so"}]
    findings.append(finding_from("names", "no other library", strange))
    for pack, folder in context.candidate.packs().items():
        there = (folder / "__signature__").is_file()
        findings.append(
            finding_from(
                "names", f"lib/aotriton.images/{pack}/__signature__", [] if there else ["is missing"]
            )
        )
    return findings


def check_platform(context: CheckContext) -> list[Finding]:
    """glibc and libstdc++ floor by auditwheel's policies; file names say what was measured."""
    promised = sorted(_promised(context))[-1]
    try:
        tag = measure_platform_tag(context.library, promised=promised)
    except AotforgeError as error:
        return [failed("platform", f"runs on {promised}", error.what)]
    named = sorted({a.platform for a in context.candidate.runtimes})
    wrong = [f"files are named {', '.join(named)}, the library is {tag.tag}"] if named != [tag.tag] else []
    findings = [finding_from("platform", "the file names' platform is the measured one", wrong, tag.tag)]
    what = f"runs on {tag.promised} (glibc and libstdc++ of that platform)"
    if context.development and not tag.reaches:
        findings.append(passed("platform", "development build", f"{tag.measured} only, as was asked for"))
    else:
        short = ", ".join(tag.reasons[:4]) + (", ..." if len(tag.reasons) > 4 else "")
        findings.append(
            finding_from("platform", what, [] if tag.reaches else [f"needs {short}"], tag.measured)
        )
    for row in context.compat.rows:
        wanted = row.delivery.manylinux if row.delivery else None
        if wanted and context.compat.service(row).build and not context.development:
            wrong = (
                []
                if wanted == promised and tag.reaches
                else [f"this PyTorch asks for {wanted}, this is {tag.tag}"]
            )
            findings.append(
                finding_from(
                    "platform", "the platform that this PyTorch downloads for", wrong, wanted, row=row.name
                )
            )
    return findings


def _promised(context: CheckContext) -> set[str]:
    from aotforge.release.release_manifest import load_release_manifest  # noqa: PLC0415

    return {load_release_manifest(context.checkout / "manifests" / "release.yaml").manylinux}


def check_elf(context: CheckContext) -> list[Finding]:
    """Dependencies, hardening, stripping, read from the ELF structure."""
    try:
        with context.library.open("rb") as file:
            elf = ELFFile(file)
            return _elf(elf)
    except (OSError, ELFError) as error:
        return [failed("elf", "the library is a shared library", str(error))]


def _elf(elf: Any) -> list[Finding]:
    tags: dict[str, list[Any]] = {}
    section = elf.get_section_by_name(".dynamic")
    for tag in section.iter_tags() if isinstance(section, DynamicSection) else []:
        value = getattr(tag, "needed", None) or tag.entry.d_val
        tags.setdefault(tag.entry.d_tag, []).append(value)
    segments = {segment["p_type"]: segment["p_flags"] for segment in elf.iter_segments()}
    sections = [section.name for section in elf.iter_sections()]
    needed = [str(name) for name in tags.get("DT_NEEDED", [])]
    now = (
        tags.get("DT_FLAGS", [0])[0] & _NOW
        or tags.get("DT_FLAGS_1", [0])[0] & _FLAGS_NOW
        or "DT_BIND_NOW" in tags
    )
    debug = [name for name in sections if name == ".symtab" or name.startswith((".debug_", ".zdebug_"))]
    writable = [
        f"segment {number} is writable and executable"
        for number, segment in enumerate(elf.iter_segments())
        if segment["p_type"] == "PT_LOAD" and segment["p_flags"] & 3 == 3
    ]
    stack = segments.get("PT_GNU_STACK")
    return [
        finding_from("elf", "depends on nothing but glibc and libgcc", [f"needs {n}" for n in needed if not NEEDED.fullmatch(n)], ", ".join(needed)),
        finding_from("elf", "no RPATH, no RUNPATH", [t for t in ("DT_RPATH", "DT_RUNPATH") if t in tags]),
        finding_from("elf", "RELRO", [] if "PT_GNU_RELRO" in segments else ["relocations stay writable"]),
        finding_from("elf", "BIND_NOW", [] if now else ["symbols are bound lazily"]),
        finding_from("elf", "no executable stack, no writable code", writable + (["the stack is executable"] if stack is None or stack & 1 else [])),
        finding_from("elf", "no text relocations", ["DT_TEXTREL"] if "DT_TEXTREL" in tags else []),
        finding_from("elf", "stripped", [f"has {name}" for name in debug]),
        finding_from("elf", "a build ID, for debuggers and crash reports", [] if ".note.gnu.build-id" in sections else ["has none"]),
    ]  # fmt: skip


_FOREIGN = re.compile(
    rb"(?<![\w.$}>)-])/(?:home|root|tmp|work|workspace|builds?|mnt|srv|Users|__w|github|var/tmp|var/lib|usr/src|usr/local/src)/[\w.+-][\w.+/-]*"
)
_HOST_LENGTH = 6


def check_paths(context: CheckContext) -> list[Finding]:
    """No file holds a path, or the name, of the machine that built it. Compressed images are looked into by `check_pack`."""
    wrong = []
    count = 0
    for archive in {a.root: a for a in context.candidate.archives}.values():
        for path in files_below(archive.root / TOP):
            count += 1
            found = build_machine_traces(path.read_bytes(), context.checkout)
            wrong += [f"{path.relative_to(archive.root)}: {text}" for text in found]
    return [
        finding_from("paths", "no path or name of the build machine in any file", wrong, f"{count} files")
    ]


def build_machine_traces(data: bytes, checkout: Path) -> list[str]:
    """Paths of a build machine in a file, and this machine's name; each once."""
    found = dict.fromkeys(match.group(0).decode("ascii", "replace") for match in _FOREIGN.finditer(data))
    for text in _own(checkout):
        if text.encode() in data:
            found[text] = None
    return list(found)


def _own(checkout: Path) -> Iterator[str]:
    for text in (str(checkout), str(Path.home())):
        if text.count("/") > 1:
            yield text
    host = socket.gethostname()
    # a machine called debian or localhost would be found everywhere
    if len(host) >= _HOST_LENGTH and not host.isalpha():
        yield host
