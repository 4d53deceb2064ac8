"""Checks of the libraries' files: names, links, platform, dependencies, hardening, build paths."""

import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from aotforge.conformance.candidate import files_below
from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.findings import Finding, finding_from, passed
from aotforge.errors import listed
from aotforge.formats.shared_library import SharedLibrary, read_shared_library
from aotforge.library.build_linux import OPERATOR_LIBRARY
from aotforge.release.layout import TOP
from aotforge.release.model import PlatformTag
from aotforge.release.platform_tag import measure_platform_tag, read_soname
from vgpu.cache import user_home

NEEDED = re.compile(r"(libc|libm|libdl|libpthread|librt|ld-linux-x86-64|libgcc_s)\.so\.\d+")
"""Libraries of every glibc system. Not libstdc++: it is linked statically, so that PyTorch's cannot
conflict."""

PLAIN_NAME = "libaotriton_v2.so"
UPSTREAM_PROVIDED = r"(libamdhip64|liblzma)\.so\.\d+"
"""ROCm has the one, and PyTorch's wheels bring the other."""
UPSTREAM_NEEDED = re.compile(r"(libamdhip64|liblzma|libstdc\+\+)\.so\.\d+")
"""What AMD's own library needs besides."""
DEVELOPMENT_FILES = (
    "include/aotriton/flash.h",
    "include/aotriton/config.h",
    "lib/cmake/aotriton/aotritonConfig.cmake",
)
"""What PyTorch's CMake and find_package look for, besides the library."""

_MUST_EXIST = (f"lib/{PLAIN_NAME}", *DEVELOPMENT_FILES, "share/licenses/aotriton/LICENSE")


def check_sonames(context: CheckContext) -> Iterator[Finding]:
    """SONAME, links of older point releases, and the files that PyTorch's CMake and find_package look for."""
    names, needed = (PLAIN_NAME, *context.compat.names[1:]), "what PyTorch's CMake and find_package look for"
    known = {PLAIN_NAME, OPERATOR_LIBRARY, *context.compat.names}
    others = sorted({path.name for path in (context.prefix / "lib").glob("*.so*")} - known)
    files = [path for path in _MUST_EXIST if not context.upstream or not path.endswith("Config.cmake")]
    files += ["lib/cmake/aotriton/aotriton-config.cmake"] * context.upstream
    missing = [f"{name} is missing" for name in files if not (context.prefix / name).is_file()]
    for name in names:
        yield from _link(context, name)
    yield finding_from("sonames", needed, missing)
    yield finding_from("sonames", "no other library", others)
    for pack, folder in context.candidate.packs().items():
        absent = [] if (folder / "__signature__").is_file() else ["is missing"]
        yield finding_from("sonames", f"lib/aotriton.images/{pack}/__signature__", absent)
    sonames = {wanted: read_soname(path) for wanted, path in context.libraries.items()}
    violations = [f"is {soname}, not {wanted}" for wanted, soname in sonames.items() if soname != wanted]
    yield finding_from("sonames", "SONAME", violations, ", ".join(sonames.values()))


def _link(context: CheckContext, name: str) -> list[Finding]:
    """One finding per row that needs the link, else one for the release."""
    path, target = context.prefix / "lib" / name, context.compat.names[0]
    violations = []
    if not path.is_symlink():
        violations.append("is a copy, not a link" if path.exists() else "is missing")
    elif path.readlink() != Path(target):
        violations.append(f"points to {path.readlink()}, not {target}")
    rows = [row.name for row in context.compat.rows if name in context.compat.service(row).links]
    return [
        finding_from("sonames", f"link {name}", violations, f"to {target}", row=row) for row in rows or [""]
    ]


def check_platform(context: CheckContext) -> Iterator[Finding]:
    """glibc and libstdc++ versions by auditwheel's policies; file names contain the measured platform."""
    promised = context.compat.release.manylinux
    provided = UPSTREAM_PROVIDED if context.upstream else ""
    tag = measure_platform_tag(*context.libraries.values(), promised=promised, provided=provided)
    named = sorted({archive.platform for archive in context.candidate.runtimes})
    differing = f"files are named {', '.join(named)}, the libraries are {tag.tag}"
    what = "the file names' platform is the measured one"
    yield finding_from("platform", what, [] if named == [tag.tag] else [differing], tag.tag)
    what = f"runs on {tag.promised} (glibc and libstdc++ of that platform)"
    if not context.development:
        reasons = f"needs {listed(tag.reasons, 4)}"
        yield finding_from("platform", what, [] if tag.reaches else [reasons], tag.measured)
        yield from _row_platforms(context, tag, promised)
    elif tag.reaches:
        yield passed("platform", what, tag.measured)
    else:
        yield passed("platform", "development build", f"{tag.measured} only, as requested")


def _row_platforms(context: CheckContext, tag: PlatformTag, promised: str) -> Iterator[Finding]:
    for row in context.compat.rows:
        wanted = row.delivery.manylinux if row.delivery else None
        if wanted and context.compat.service(row).build:
            fits = wanted == promised and tag.reaches
            violations = [] if fits else [f"this PyTorch requires {wanted}, this is {tag.tag}"]
            what = "the platform that this PyTorch downloads for"
            yield finding_from("platform", what, violations, wanted, row=row.name)


def _lazy_binding(elf: SharedLibrary) -> list[str]:
    now = elf.flag("DT_FLAGS", 0x8) or elf.flag("DT_FLAGS_1", 0x1) or "DT_BIND_NOW" in elf.tags
    return [] if now else ["symbols are bound lazily"]


def _executable_data(elf: SharedLibrary) -> list[str]:
    violations = [
        f"segment {number} is writable and executable"
        for number, (kind, flags) in enumerate(elf.segments)
        if kind == "PT_LOAD" and flags & 3 == 3
    ]
    stack = dict(elf.segments).get("PT_GNU_STACK")
    return violations + (["the stack is executable"] if stack is None or stack & 1 else [])


def _debug_sections(elf: SharedLibrary) -> list[str]:
    debug = (".debug_", ".zdebug_")
    return [f"has {name}" for name in elf.sections if name == ".symtab" or name.startswith(debug)]


_ELF_CHECKS: dict[str, Callable[[SharedLibrary], list[str]]] = {
    "depends on nothing but glibc and libgcc": lambda elf: [
        f"needs {name}" for name in elf.needed if not NEEDED.fullmatch(name)
    ],
    "no RPATH, no RUNPATH": lambda elf: [tag for tag in ("DT_RPATH", "DT_RUNPATH") if tag in elf.tags],
    "RELRO": lambda elf: [] if "PT_GNU_RELRO" in dict(elf.segments) else ["relocations stay writable"],
    "BIND_NOW": _lazy_binding,
    "no executable stack, no writable code": _executable_data,
    "no text relocations": lambda elf: (
        ["DT_TEXTREL"] if "DT_TEXTREL" in elf.tags or elf.flag("DT_FLAGS", 0x4) else []
    ),
    "stripped": _debug_sections,
    "a build ID, for debuggers and crash reports": lambda elf: (
        [] if ".note.gnu.build-id" in elf.sections else ["has none"]
    ),
}
"""Statement -> its violations."""


def check_elf(context: CheckContext) -> Iterator[Finding]:
    """Dependencies, hardening, stripping, read from the ELF structure."""
    libraries = {name: read_shared_library(path) for name, path in context.libraries.items()}
    needed = ", ".join(dict.fromkeys(name for elf in libraries.values() for name in elf.needed))
    for what, check in _ELF_CHECKS.items():
        violations = [
            f"{name}: {text}"
            for name, elf in libraries.items()
            for text in check(elf)
            if not (context.upstream and UPSTREAM_NEEDED.fullmatch(text.removeprefix("needs ")))
        ]
        yield finding_from("elf", what, violations, needed if what.startswith("depends") else "")


_BUILD_PATH = re.compile(
    rb"(?<![\w.$}>)-])/(?:home|root|tmp|work|workspace|builds?|mnt|srv|Users|__w|github"
    rb"|var/tmp|var/lib|usr/src|usr/local/src)/[\w.+-][\w.+/-]*"
)
_HOST_LENGTH = 6


def check_paths(context: CheckContext) -> Iterator[Finding]:
    """No file contains a path or the name of the machine that built it; `check_pack` reads images."""
    roots = {archive.root for archive in context.candidate.archives}
    files = {path: root for root in sorted(roots) for path in files_below(root / TOP)}
    violations = (
        f"{path.relative_to(root)}: {text}"
        for path, root in files.items()
        for text in build_machine_traces(path.read_bytes(), context.checkout)
    )
    what = "no path or name of the build machine in any file"
    yield finding_from("paths", what, violations, f"{len(files)} files")


def build_machine_traces(data: bytes, checkout: Path) -> list[str]:
    """Paths of a build machine in a file, and this machine's name; each once."""
    traces = {text: None for text in _own_names(checkout) if text.encode() in data}
    traces |= dict.fromkeys(match.group().decode("ascii", "replace") for match in _BUILD_PATH.finditer(data))
    return list(traces)


def _own_names(checkout: Path) -> Iterator[str]:
    for text in (str(checkout), str(user_home())):
        if text.count("/") > 1:
            yield text
    host = socket.gethostname()
    # a machine called debian or localhost would be found everywhere
    if len(host) >= _HOST_LENGTH and not host.isalpha():
        yield host
