"""Which release, and which of its files: pure functions of the index and the machine.

File names are those that PyTorch's cmake/External/aotriton.cmake asks for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from aotforge.deliver.install.model import InstallRequest, Machine
from aotforge.errors import InstallError, UnknownNameError, suggest
from aotforge.formats.artifact_names import ArtifactName, parse_artifact_name
from aotforge.publish.index_model import Index, IndexedFile, IndexedRelease

_NAME = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?b(?:-r(\d+))?")


def choose_release(index: Index, request: InstallRequest) -> tuple[IndexedRelease, tuple[str, ...]]:
    """The release with notes on it. Raises UnknownNameError, InstallError."""
    wanted = request.version
    found = [r for r in index.releases if wanted in {None, r.name, r.name.partition("-r")[0]}]
    if not found:
        names = [release.name for release in index.releases]
        raise UnknownNameError(
            f"there is no release {wanted}" if wanted else "there is no release yet",
            cause=suggest(wanted, names) if wanted and names else "",
        )
    # for one that is yanked, or is a development build, only if there is no other
    found.sort(
        key=lambda r: (not r.yanked or request.allow_yanked, not r.development and r.verified, _order(r.name))
    )
    release = found[-1]
    notes = []
    if release.yanked:
        if not request.allow_yanked:
            raise InstallError(
                f"{release.name} was yanked: {release.yanked.reason}",
                cause=f"its publisher took it back on {release.yanked.time[:10]}",
                hint="install another version (release.list shows them), or insist with --allow-yanked",
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
    """The runtime's archive and one per image pack, with notes. Raises InstallError naming what there is instead."""
    runtime, notes = _runtime(release, request.rocm, machine)
    images = []
    for chip, pack in request.packs.items():
        file = release.file(str(ArtifactName(release=release.name, kind="images", pack=pack)))
        if file is None:
            names = [parse_artifact_name(f.name) for f in release.files]
            there = [name.pack for name in names if name and name.kind == "images"]
            raise InstallError(
                f"{release.name} has no images for {chip} ({pack})",
                cause=f"it has {_listed(there)}",
                hint="choose another release or chip",
            )
        if file not in images:
            images.append(file)
    return [runtime, *images], notes


def _runtime(
    release: IndexedRelease, asked: str | None, machine: Machine
) -> tuple[IndexedFile, tuple[str, ...]]:
    names = [(file, parse_artifact_name(file.name)) for file in release.files]
    there = [
        (file, name.manylinux, name.rocm)
        for file, name in names
        if name and name.release == release.name and name.manylinux
    ]
    fitting = [one for one in there if one[1].machine == machine.processor]
    if not fitting:
        others = _listed({platform.machine for _, platform, _ in there})
        raise InstallError(
            f"{release.name} has no library for {machine.processor}", cause=f"it has some for {others}"
        )
    glibc = [one for one in fitting if machine.glibc and one[1].glibc <= machine.glibc]
    if not glibc:
        have = "{}.{}".format(*machine.glibc) if machine.glibc else "none"
        least = "{}.{}".format(*min(platform.glibc for _, platform, _ in fitting))
        raise InstallError(
            f"{release.name} needs glibc {least}, this machine has {have}",
            hint="use a newer system, or an image of one",
        )
    by_rocm = {rocm: file for file, _, rocm in sorted(glibc, key=lambda entry: entry[0].name)}
    return _by_rocm(release, by_rocm, asked or machine.rocm, asked=bool(asked))


def _by_rocm(
    release: IndexedRelease, by_rocm: dict[str, IndexedFile], rocm: str, *, asked: bool
) -> tuple[IndexedFile, tuple[str, ...]]:
    if rocm in by_rocm:
        return by_rocm[rocm], ()
    listed = _listed(by_rocm)
    newest = max(by_rocm, key=lambda version: tuple(map(int, version.split("."))))
    same = len({file.tar.sha256 if file.tar else file.sha256 for file in by_rocm.values()}) == 1
    if rocm and (asked or not same):
        raise InstallError(
            f"{release.name} has no library for ROCm {rocm}",
            cause=f"it has {listed}",
            hint="--rocm names another one",
        )
    if not same:
        raise InstallError("no ROCm was found on this machine", hint=f"--rocm names one: {listed}")
    why = f"ROCm {rocm} is not among {listed}" if rocm else "no ROCm was found here"
    return by_rocm[newest], (f"{why}; took the library for {newest}: all of them are the same",)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
