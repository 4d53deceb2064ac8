"""Recommends what to install for a PyTorch, an arch, a ROCm and a platform (`./dev compat`)."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from aotforge.base.architectures import find_arch, load_architectures
from aotforge.base.html import render
from aotforge.conformance.matrix import Compatibility, serving_levels
from aotforge.conformance.matrix_models import Row
from aotforge.errors import UnsupportedError
from aotforge.formats.api_level import feature_level, library_level, version_key
from aotforge.formats.artifact_names import ArtifactName
from aotforge.release.model import ReleaseManifest, load_release_manifest

_DROP_IN = "./dev dropin --pytorch-lib SITE-PACKAGES/torch/lib     # --undo restores"
_PLATFORM = re.compile(r"manylinux_2_(?P<minor>[0-9]+)(_x86_64)?")


@dataclass(frozen=True, kw_only=True)
class InstallOption:
    """One way to install: the result as a text, and `commands` in order."""

    text: str
    commands: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """`official`: the AOTriton release whose own packs serve the arch with that PyTorch, None with a reason.

    `ours` is None when our release does not serve the row, with `reason`; `pack` is our image pack. `options`: the
    simplest first.
    """

    row: str
    arch: str
    rocm: str
    platform: str
    official: str | None
    official_reason: str
    ours: str | None
    pack: str
    reason: str
    options: tuple[InstallOption, ...]
    warnings: tuple[str, ...]


def recommend(
    compat: Compatibility,
    checkout: Path,
    *,
    pytorch: str,
    arch: str,
    rocm: str = "",
    platform: str = "linux",
    fork: bool = False,
    any_level: bool = False,
) -> Recommendation:
    """By the API level of `compat`, or with `any_level` the one that suits the PyTorch best.

    Raises UnknownNameError for an unknown PyTorch or arch, UnsupportedError for an invalid ROCm or platform.
    """
    row = compat.find(pytorch, fork=fork)
    if any_level and (levels := serving_levels(compat, row)):
        compat = replace(compat, release=compat.release.at(levels[0]))
    manifest = load_architectures(checkout / "manifests")
    architectures = manifest.amd
    named = find_arch(arch, manifest, also=compat.matrix.official_archs)
    arch = named.arch
    if rocm and not re.fullmatch(r"[0-9]+\.[0-9]+(\.[0-9]+)?", rocm):
        raise UnsupportedError(f"--rocm {rocm} is not a valid version", hint="as in --rocm 7.0")
    rocm = ".".join(rocm.split(".")[:2])
    warnings = ((named.note,) if named.note else ()) + _platform_warnings(compat.release, platform)
    warnings += tuple(
        f"run on hardware: {run.line}" for run in compat.hardware if run.device.arch == named.arch
    )
    obstacle = _official_obstacle(compat, row, arch, platform)
    service = compat.service(row)
    reason = service.reason
    options: tuple[InstallOption, ...] = ()
    if arch in manifest.architectures and arch not in architectures:
        reason = f"PyTorch takes these images on AMD GPUs only, and {arch} is another vendor's"
    elif arch not in architectures:
        reason = f"this project has no settings for {arch}"
    elif service.build or service.links:
        options = _options(
            compat.release, row, arch, windows=platform == "windows", level=_level_flag(compat, checkout)
        )
        warnings += _rocm_warnings(compat.release, row, rocm)
    elif row.status == "not-established" and platform != "windows":
        options = (_by_needed_name(row),)
    return Recommendation(
        row=row.name,
        arch=arch,
        rocm=rocm,
        platform=platform,
        official=None if obstacle else _newest_pin(row),
        official_reason=obstacle or _official_limit(row, rocm),
        ours=compat.release.name if service.build or service.links else None,
        pack=architectures[arch].pack if arch in architectures else "",
        reason=reason,
        options=options,
        warnings=warnings,
    )


def pack_serves(pack: str, arch: str) -> bool:
    """The rule of PyTorch's CMake: the pack's name without `amd-gfx`, x for any character, occurs in the arch's name."""
    return re.search(pack.removeprefix("amd-gfx").replace("x", "."), arch.removeprefix("gfx")) is not None


def _newest_pin(row: Row) -> str:
    return max(row.releases("pins") or row.releases("compiles"), key=version_key)


def _official_obstacle(compat: Compatibility, row: Row, arch: str, platform: str) -> str:
    """Why no official release serves the arch with that PyTorch; empty when one does."""
    if row.status != "supported":
        return row.remarks[0]
    if platform == "windows":
        return "official releases have no library for Windows; PyTorch builds one from source, without images"
    first = compat.matrix.official_archs.get(arch, "never")
    if first == "never":
        return f"no official release has an image pack for {arch}"
    if version_key(first) > version_key(_newest_pin(row)):
        return f"{arch} comes with {first}, this PyTorch pins {_newest_pin(row)}"
    packs = row.delivery.images if row.delivery else None
    if packs is not None and not any(pack_serves(pack, arch) for pack in packs):
        return f"no image pack that this PyTorch downloads serves {arch}"
    return ""


def _official_limit(row: Row, rocm: str) -> str:
    """What differs for a ROCm that the pin does not list."""
    delivery = row.delivery
    if not delivery or not rocm or delivery.rocm_choice != "exact" or rocm in delivery.rocm:
        return ""
    listed = " ".join(delivery.rocm)
    return (
        f"its pin lists ROCm {listed}, not {rocm}: PyTorch's build would clone and build the library itself"
    )


def _platform_warnings(manifest: ReleaseManifest, platform: str) -> tuple[str, ...]:
    if platform in {"linux", "windows"}:
        return ()
    match = _PLATFORM.fullmatch(platform)
    if match is None:
        raise UnsupportedError(
            f"unknown --platform {platform}", hint="linux, windows, or a tag such as manylinux_2_28"
        )
    if int(match["minor"]) < int(manifest.manylinux.rpartition("_")[2]):
        return (f"the library promises {manifest.manylinux}; a system of {platform} is too old for it",)
    return ()


def _rocm_warnings(manifest: ReleaseManifest, row: Row, rocm: str) -> tuple[str, ...]:
    warnings = []
    if rocm and rocm not in manifest.rocm:
        warnings.append(
            f"no tarball is named for ROCm {rocm} (there are {' '.join(manifest.rocm)}); all hold the same library, "
            "which loads HIP of ROCm 5 to 7 at run time"
        )
    if rocm and row.delivery and row.delivery.rocm and rocm not in row.delivery.rocm:
        warnings.append(f"this PyTorch's own pin lists ROCm {' '.join(row.delivery.rocm)}, not {rocm}")
    return tuple(warnings)


def _options(
    manifest: ReleaseManifest, row: Row, arch: str, *, windows: bool, level: str
) -> tuple[InstallOption, ...]:
    if windows:
        archive = ArtifactName(release=manifest.name, kind="windows")
        return (
            InstallOption(
                text=f"build PyTorch {row.pytorch} with the archive {archive}, unpacked to PREFIX",
                commands=("set AOTRITON_INSTALLED_PREFIX=PREFIX", "python setup.py develop"),
            ),
        )
    feature = feature_level(manifest.api_level)
    names = [name for name in row.library_names if library_level(name) == feature]
    needed = " or ".join(names) or f"libaotriton_v2.so.{feature}.*"
    installed = InstallOption(
        text=f"into an installed PyTorch {row.pytorch} wheel, whose libtorch_hip.so needs {needed}",
        commands=(f"./dev build --arch {arch}{level}", _DROP_IN),
    )
    built = InstallOption(
        text=f"build PyTorch {row.pytorch} with it, without an edit of PyTorch's sources",
        commands=(
            f"./dev install --prefix PREFIX --arch {arch}{level} --from PLACE --root ROOT     # of a publisher",
            "AOTRITON_INSTALLED_PREFIX=PREFIX python setup.py develop     # in PyTorch's checkout",
        ),
    )
    downloaded = InstallOption(
        text="or have PyTorch's build download it: the lines for cmake/External/aotriton.cmake",
        commands=(f"./dev compat --pytorch {row.pytorch} --pins newest",),
    )
    download = row.delivery is not None and row.delivery.from_ == "download"
    return (installed, built, *((downloaded,) if download else ()))


def _by_needed_name(row: Row) -> InstallOption:
    return InstallOption(
        text=f"into an installed PyTorch {row.pytorch} wheel: what its libtorch_hip.so needs decides",
        commands=("./dev dropin --pytorch-lib auto --dry-run     # names the API level to build",),
    )


def _level_flag(compat: Compatibility, checkout: Path) -> str:
    """` --version 0.13b` where `build` and `install` would otherwise take another API level."""
    default = load_release_manifest(checkout / "manifests" / "release.yaml").api_level
    return "" if compat.release.api_level == default else f" --version {compat.release.api_level}"


def recommendation_text(found: Recommendation) -> str:
    """The recommendation for a terminal."""
    return render("recommendation.txt.jinja", found=found).rstrip()
