"""The platform tag of shared libraries, measured over their symbol versions and dependencies."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from auditwheel.architecture import Architecture
from auditwheel.elfutils import elf_find_versioned_symbols
from auditwheel.libc import Libc
from auditwheel.policy import Policy, WheelPolicies
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from aotforge.errors import ReleaseError
from aotforge.formats.shared_library import dynamic_symbols, open_elf, read_shared_library
from aotforge.release.model import PlatformTag

MACHINE = "x86_64"
_LOADER = "ld-linux"


def measure_platform_tag(*libraries: Path, promised: str, provided: str = "") -> PlatformTag:
    """Compares libraries with auditwheel's policies, oldest first. `promised` is e.g. manylinux_2_28;
    `provided`: a regular expression for libraries that do not count.

    A policy fits when it has every symbol version and library that these need, and forbids none of their
    symbols. Raises ReleaseError for anything but x86-64 shared libraries.
    """
    policies = WheelPolicies(libc=Libc.GLIBC, arch=Architecture.x86_64)
    wanted = f"{promised}_{MACHINE}"
    try:
        target = policies.get_policy_by_name(wanted)
    except LookupError as error:
        raise ReleaseError(
            f"auditwheel does not know the platform {promised}",
            hint="correct `manylinux` in manifests/release.yaml",
        ) from error
    versions: dict[str, set[str]] = {}  # library name to symbol versions, e.g. libc.so.6 to {GLIBC_2.34}
    needed: dict[str, None] = {}
    for library in libraries:
        try:
            _add_needs(library, versions, needed)
        except (ValueError, OSError) as error:
            raise ReleaseError(
                f"{library} cannot be measured: {error}", cause="it is not a shared library"
            ) from error
    for name in [name for name in {*needed, *versions} if re.fullmatch(provided, name)]:
        needed.pop(name, None)
        versions.pop(name, None)
    measured = next(
        policy.name
        for policy in sorted(policies, key=lambda policy: -policy.priority)
        if not _obstacles(policy, libraries, versions, needed)
    )
    reasons = tuple(_obstacles(target, libraries, versions, needed))
    tag = measured if reasons else wanted
    return PlatformTag(measured=measured, promised=wanted, tag=tag, reaches=not reasons, reasons=reasons)


def _add_needs(library: Path, versions: dict[str, set[str]], needed: dict[str, None]) -> None:
    """Raises OSError, ValueError."""
    elf_facts = read_shared_library(library)
    if not elf_facts.tags:
        raise ValueError("it has no dynamic section")
    with open_elf(library) as elf:
        for name, version in (*elf_find_versioned_symbols(elf), *_loader_versions(elf)):
            versions.setdefault(name, set()).add(version)
    needed |= dict.fromkeys(name for name in elf_facts.needed if not name.startswith(_LOADER))


def _loader_versions(elf: ELFFile) -> Iterator[tuple[str, str]]:
    """Of glibc's loader, which auditwheel passes over: it is of the version of the system's glibc."""
    section = elf.get_section_by_name(".gnu.version_r")
    for library, versions in section.iter_versions() if isinstance(section, GNUVerNeedSection) else ():
        if library.name.startswith(_LOADER):
            yield from ((library.name, version.name) for version in versions)


def read_soname(library: Path) -> str:
    """DT_SONAME of an x86-64 shared library. Raises ReleaseError for any other file, and without a SONAME."""
    try:
        elf_facts = read_shared_library(library)
    except (OSError, ValueError) as error:
        raise ReleaseError(f"{library} cannot be read as a shared library: {error}") from error
    if elf_facts.machine != "EM_X86_64" or not elf_facts.tags:
        raise ReleaseError(f"{library} is not an x86-64 shared library")
    names = [str(name) for name in elf_facts.sonames]
    if len(names) != 1:
        raise ReleaseError(f"{library} has {len(names)} SONAMEs, one is needed")
    return names[0]


def _newest_first(version: str) -> tuple[str, list[int]]:
    """Sorts GLIBC_2.35 before GLIBC_2.4: the newest version explains best."""
    family, _, number = version.partition("_")
    return family, [-int(part) for part in number.split(".") if part.isdigit()]


def _obstacles(
    policy: Policy, libraries: Sequence[Path], versions: Mapping[str, set[str]], needed: Collection[str]
) -> list[str]:
    """What the policy does not allow; generic linux allows everything."""
    if policy.name == f"linux_{MACHINE}":
        return []
    obstacles = [
        f"{version} of {name}"
        for name, wanted in sorted(versions.items())
        for version in sorted(wanted, key=_newest_first)
        for family, _, number in [version.partition("_")]
        if number not in policy.symbol_versions.get(family, [number])
    ]
    obstacles += [f"dependency on {name}" for name in needed if name not in policy.whitelist]
    forbidden = {name: symbols for name, symbols in policy.blacklist.items() if name in needed}
    # "*": any use of the library
    used = (
        frozenset({"*"}).union(*(dynamic_symbols(path, undefined=True) for path in libraries))
        if forbidden
        else frozenset[str]()
    )
    for name, symbols in sorted(forbidden.items()):
        obstacles += [f"{symbol} of {name}" for symbol in sorted(symbols & used)]
    return obstacles
