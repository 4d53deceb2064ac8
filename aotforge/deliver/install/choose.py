"""Choice of a release and of its files by the index, the request and the properties of this machine."""

import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aotforge.errors import InstallError, UnknownNameError, suggest
from aotforge.formats.api_level import level_of
from aotforge.formats.artifact_names import ArtifactName, parse_artifact_name
from aotforge.publish.index import Index, IndexedFile, IndexedRelease
from aotforge.targets.amd.installed import installed_rocm

_NAME = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?b(?:-r(\d+))?")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Processor as in `uname -m`, glibc as (2, 36) or None without one, the installed ROCm as "7.0" or
    empty."""

    processor: str
    glibc: tuple[int, int] | None
    rocm: str


@dataclass(frozen=True, kw_only=True)
class InstallRequest:
    """`packs`: image pack of each requested arch. One of `prefix` and `torch_lib` is given.

    `version`: a release (0.11.2b-r1), an API level (0.11.2b, its newest revision) or None (the newest).
    `levels`: API levels to choose from, the preferred one first, when no version is named (default: any).
    `rocm`: default is the machine's.
    """

    packs: Mapping[str, str]
    version: str | None = None
    levels: tuple[str, ...] = ()
    rocm: str | None = None
    prefix: Path | None = None
    torch_lib: Path | None = None
    allow_yanked: bool = False


def choose_release(index: Index, request: InstallRequest) -> tuple[IndexedRelease, tuple[str, ...]]:
    """The release with notes on it. Raises UnknownNameError, InstallError."""
    wanted = request.version
    levels = request.levels if wanted is None else ()
    matching = [r for r in index.releases if wanted in {None, r.name, level_of(r.name)}]
    matching = [r for r in matching if not levels or level_of(r.name) in levels]
    if not matching:
        names = [release.name for release in index.releases]
        what = wanted or (f"of API level {' or '.join(levels)}" if levels else "yet")
        raise UnknownNameError(
            f"there is no release {what}",
            cause=suggest(wanted, names) if wanted and names else "",
        )

    def preference(release: IndexedRelease) -> tuple[bool, bool, int, tuple[int, ...]]:
        """A yanked release or a development build only if there is no other."""
        good = not release.development and release.verified
        rank = -levels.index(level_of(release.name)) if levels else 0
        return not release.yanked or request.allow_yanked, good, rank, _order(release.name)

    release = max(matching, key=preference)
    notes = []
    if release.yanked:
        if not request.allow_yanked:
            raise InstallError(
                f"{release.name} was yanked: {release.yanked.reason}",
                cause=f"its publisher withdrew it on {release.yanked.time[:10]}",
                hint="install another version (`./dev release.list` lists them), or use --allow-yanked",
            )
        notes.append(f"{release.name} was yanked: {release.yanked.reason}")
    notes += [f"development build: {reason}" for reason in release.development]
    if not release.verified:
        notes.append("not every image of this release was executed and compared")
    return release, tuple(notes)


def _order(name: str) -> tuple[int, ...]:
    match = _NAME.fullmatch(name)
    return tuple(int(part or 0) for part in match.groups()) if match else ()


def choose_files(
    release: IndexedRelease, request: InstallRequest, machine: Machine
) -> tuple[list[IndexedFile], tuple[str, ...]]:
    """The runtime's archive and one per image pack, with notes. Raises InstallError naming the available
    ones."""
    runtime, notes = _choose_rocm(release, _fitting_runtimes(release, machine), request.rocm, machine.rocm)
    images = {}
    for arch, pack in request.packs.items():
        file = release.file(str(ArtifactName(release=release.name, kind="images", pack=pack)))
        if file is None:
            names = [parse_artifact_name(f.name) for f in release.files]
            packs = [name.pack for name in names if name and name.kind == "images"]
            raise InstallError(
                f"{release.name} has no images for {arch} ({pack})",
                cause=f"it has {_listed(packs)}",
                hint="choose another release or arch",
            )
        images[pack] = file
    return [runtime, *images.values()], notes


def _fitting_runtimes(release: IndexedRelease, machine: Machine) -> dict[str, IndexedFile]:
    """Runtimes for the machine's processor and glibc, by ROCm."""
    names = [(file, parse_artifact_name(file.name)) for file in release.files]
    runtimes = [
        (file, name.manylinux, name.rocm)
        for file, name in names
        if name and name.release == release.name and name.manylinux
    ]
    for_processor = [runtime for runtime in runtimes if runtime[1].machine == machine.processor]
    if not for_processor:
        others = _listed({platform.machine for _, platform, _ in runtimes})
        raise InstallError(
            f"{release.name} has no library for {machine.processor}", cause=f"it has libraries for {others}"
        )
    fitting = [runtime for runtime in for_processor if machine.glibc and runtime[1].glibc <= machine.glibc]
    if not fitting:
        present = "{}.{}".format(*machine.glibc) if machine.glibc else "none"
        oldest = "{}.{}".format(*min(platform.glibc for _, platform, _ in for_processor))
        raise InstallError(
            f"{release.name} needs glibc {oldest}, this machine has {present}",
            hint="use a newer system, or a container of one",
        )
    return {rocm: file for file, _, rocm in sorted(fitting, key=lambda runtime: runtime[0].name)}


def _choose_rocm(
    release: IndexedRelease, by_rocm: dict[str, IndexedFile], requested: str | None, installed: str
) -> tuple[IndexedFile, tuple[str, ...]]:
    rocm = requested or installed
    if rocm in by_rocm:
        return by_rocm[rocm], ()
    listed = _listed(by_rocm)
    same = len({file.tar.sha256 if file.tar else file.sha256 for file in by_rocm.values()}) == 1
    if rocm and (requested or not same):
        raise InstallError(
            f"{release.name} has no library for ROCm {rocm}",
            cause=f"it has {listed}",
            hint="--rocm names another one",
        )
    if not same:
        raise InstallError("no ROCm was found on this machine", hint=f"--rocm names one: {listed}")
    newest = max(by_rocm, key=lambda version: tuple(map(int, version.split("."))))
    why = f"ROCm {rocm} is not among {listed}" if rocm else "no ROCm was found here"
    return by_rocm[newest], (f"{why}; using the library for {newest}: all of them are the same",)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def this_machine(environment: Mapping[str, str]) -> Machine:
    """Reads the processor, glibc, and the ROCm in ROCM_PATH or /opt/rocm."""
    return Machine(processor=platform.machine(), glibc=_glibc(), rocm=installed_rocm(environment))


def _glibc() -> tuple[int, int] | None:
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return None
    match = re.search(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None
