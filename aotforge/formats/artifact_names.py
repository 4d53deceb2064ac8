"""Names of a release's archives, as PyTorch's CMake requests them: made and parsed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["runtime", "images", "asm", "windows"]

# no other characters: names are in shell and CMake commands that users copy
_NAME = re.compile(
    r"""aotriton-(?P<release>[0-9A-Za-z._-]+?)-(?:
    (?P<kind>images|asm)-(?P<pack>[0-9A-Za-z._-]+)\.tar\.gz
    |(?P<platform>(?:manylinux_2_\d{1,4}|linux)_[a-z]\w*)-rocm(?P<rocm>\d{1,4}(?:\.\d{1,4})*)-shared\.tar\.gz
    |(?P<windows>win_amd64)-shared(?:-(?P<packs>[0-9A-Za-z._+-]+))?\.zip
    )""",
    re.VERBOSE | re.ASCII,
)
_MANYLINUX = re.compile(r"(manylinux_(\d{1,4})_(\d{1,4}))_(\w+)")


@dataclass(frozen=True, kw_only=True)
class ArtifactName:
    """An archive of a release. `pack`: its image pack; those of a Windows archive, joined by `+`.

    `platform` is a runtime's platform tag, e.g. manylinux_2_28_x86_64, `rocm` its ROCm version.
    """

    release: str
    kind: Kind
    pack: str = ""
    platform: str = ""
    rocm: str = ""

    def __str__(self) -> str:
        start = f"aotriton-{self.release}-"
        if self.kind == "runtime":
            return f"{start}{self.platform}-rocm{self.rocm}-shared.tar.gz"
        if self.kind == "windows":
            return f"{start}win_amd64-shared{f'-{self.pack}' if self.pack else ''}.zip"
        return f"{start}{self.kind}-{self.pack}.tar.gz"

    @property
    def rocm_version(self) -> tuple[int, ...]:
        """The ROCm version as numbers, for ordering; empty for other kinds."""
        return tuple(int(part) for part in self.rocm.split(".") if part)

    @property
    def packs(self) -> frozenset[str]:
        """Names of its image packs."""
        return frozenset(filter(None, self.pack.split("+")))

    @property
    def manylinux(self) -> Manylinux | None:
        """What the platform tag of a manylinux runtime requires."""
        return parse_manylinux(self.platform)


@dataclass(frozen=True, kw_only=True)
class Manylinux:
    """A manylinux platform tag: policy without the machine, oldest glibc, machine as in `uname -m`."""

    policy: str
    glibc: tuple[int, int]
    machine: str

    @property
    def version(self) -> str:
        """The oldest glibc as text."""
        return ".".join(map(str, self.glibc))


def parse_manylinux(tag: str) -> Manylinux | None:
    """None for another platform's tag."""
    match = _MANYLINUX.fullmatch(tag)
    return match and Manylinux(policy=match[1], glibc=(int(match[2]), int(match[3])), machine=match[4])


def parse_artifact_name(name: str) -> ArtifactName | None:
    """None for a file name that is not an archive of a release."""
    match = _NAME.fullmatch(name)
    if not match:
        return None
    kind: Any = "windows" if match["windows"] else match["kind"] or "runtime"
    return ArtifactName(
        release=match["release"],
        kind=kind,
        pack=match["pack"] or match["packs"] or "",
        platform=match["platform"] or "",
        rocm=match["rocm"] or "",
    )
