"""What to install for a PyTorch, a chip, a ROCm and a platform, and how."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.architectures import load_architectures
from aotforge.conformance.matrix import Compatibility
from aotforge.conformance.matrix_models import Row, version_key
from aotforge.errors import UnknownNameError, UnsupportedError, suggest
from aotforge.formats.artifact_names import ArtifactName
from aotforge.release.release_manifest import ReleaseManifest, load_release_manifest

_PLATFORM = re.compile(r"manylinux_2_(?P<minor>[0-9]+)(_x86_64)?")


@dataclass(frozen=True, kw_only=True)
class InstallOption:
    """One option to get there: `commands` in order; `text` says what it gives."""

    text: str
    commands: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """`official`: the AOTriton release whose own packs serve the chip with that PyTorch, or why none does. `ours` is None when our release
    does not serve the row, with `reason`; `options` are ordered, the simplest first. `pack` is our image pack.
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
) -> Recommendation:
    """Raises UnknownNameError for a PyTorch or chip that nobody knows, UnsupportedError for a platform that is none."""
    row = compat.find(pytorch, fork=fork)
    ours = {
        name: entry.pack for name, entry in load_architectures(checkout / "manifests").architectures.items()
    }
    chip = arch.split(":", maxsplit=1)[0]
    if chip not in ours and chip not in compat.matrix.official_archs:
        raise UnknownNameError(
            f"chip {arch} is not known", cause=suggest(chip, {*ours, *compat.matrix.official_archs})
        )
    if rocm and not re.fullmatch(r"[0-9]+\.[0-9]+(\.[0-9]+)?", rocm):
        raise UnsupportedError(f"--rocm {rocm} is no version", hint="as in --rocm 7.0")
    rocm = ".".join(rocm.split(".")[:2])
    manifest = load_release_manifest(checkout / "manifests" / "release.yaml")
    warnings = _platform_warnings(manifest, platform)
    official, official_reason = _official(compat.matrix.official_archs, row, chip, rocm, platform)
    service = compat.service(row)
    reason = service.reason
    options: tuple[InstallOption, ...] = ()
    if chip not in ours:
        reason = f"this project has no settings for {chip}"
    elif service.build or service.links:
        options = _options(manifest, row, chip, windows=platform == "windows", links=service.links)
        warnings += _rocm_warnings(manifest, row, rocm)
    return Recommendation(
        row=row.name, arch=chip, rocm=rocm, platform=platform, official=official, official_reason=official_reason,
        ours=manifest.name if options else None, pack=ours.get(chip, ""), reason=reason, options=options, warnings=warnings,
    )  # fmt: skip


def pack_serves(pack: str, arch: str) -> bool:
    """The rule of PyTorch's CMake: `amd-gfx` taken off, x stands for any character, and the rest is looked for in the chip's name."""
    return re.search(pack.removeprefix("amd-gfx").replace("x", "."), arch.removeprefix("gfx")) is not None


def _official(
    first: Mapping[str, str], row: Row, arch: str, rocm: str, platform: str
) -> tuple[str | None, str]:
    """The pinned release where its packs serve the chip, and what is to be said of it."""
    pins = sorted(row.releases("pins"), key=version_key)
    obstacle = _obstacle(first, row, arch, platform, pins)
    if obstacle:
        return None, obstacle
    delivery = row.delivery
    if delivery and rocm and delivery.rocm_choice == "exact" and rocm not in delivery.rocm:
        listed = " ".join(delivery.rocm)
        return pins[-1], (
            f"its pin lists ROCm {listed}, not {rocm}: PyTorch's build would clone and build the library itself"
        )
    return pins[-1], ""


def _obstacle(first: Mapping[str, str], row: Row, arch: str, platform: str, pins: list[str]) -> str:
    if not pins:
        return row.remarks[0]
    if platform == "windows":
        return "official releases have no library for Windows; PyTorch builds one from source, without images"
    begin = first.get(arch, "never")
    if begin == "never":
        return f"no official release has an image pack for {arch}"
    if version_key(begin) > version_key(pins[-1]):
        return f"{arch} comes with {begin}, this PyTorch pins {pins[-1]}"
    packs = row.delivery.images if row.delivery else None
    if packs is not None and not any(pack_serves(pack, arch) for pack in packs):
        return f"no image pack that this PyTorch downloads serves {arch}"
    return ""


def _platform_warnings(manifest: ReleaseManifest, platform: str) -> tuple[str, ...]:
    if platform in {"linux", "windows"}:
        return ()
    match = _PLATFORM.fullmatch(platform)
    if match is None:
        raise UnsupportedError(
            f"--platform {platform} is not known", hint="linux, windows, or a tag such as manylinux_2_28"
        )
    if int(match["minor"]) < int(manifest.manylinux.rpartition("_")[2]):
        return (f"the library promises {manifest.manylinux}; a system of {platform} is too old for it",)
    return ()


def _rocm_warnings(manifest: ReleaseManifest, row: Row, rocm: str) -> tuple[str, ...]:
    if not rocm:
        return ()
    found = []
    if rocm not in manifest.rocm:
        found.append(
            f"no tarball is named for ROCm {rocm} (there are {' '.join(manifest.rocm)}); all hold the same library, which finds HIP of ROCm 5 to 7 "
            "at run time"
        )
    delivery = row.delivery
    if delivery and delivery.rocm and rocm not in delivery.rocm:
        found.append(f"this PyTorch's own pin lists ROCm {' '.join(delivery.rocm)}, not {rocm}")
    return tuple(found)


def _options(
    manifest: ReleaseManifest, row: Row, arch: str, *, windows: bool, links: tuple[str, ...]
) -> tuple[InstallOption, ...]:
    prefix = InstallOption(
        text=f"build PyTorch {row.pytorch} with it, without an edit of PyTorch's sources",
        commands=(
            f"./dev install --prefix PREFIX --arch {arch}",
            "AOTRITON_INSTALLED_PREFIX=PREFIX python setup.py develop     # in PyTorch's checkout",
        ),
    )
    if windows:
        return (
            InstallOption(
                text=f"build PyTorch {row.pytorch} with the archive {ArtifactName(release=manifest.name, kind='windows')}, unpacked to PREFIX",
                commands=("set AOTRITON_INSTALLED_PREFIX=PREFIX", "python setup.py develop"),
            ),
        )
    into = InstallOption(
        text=f"into an installed PyTorch {row.pytorch} wheel, whose libtorch_hip needs {' or '.join(links)}",
        commands=(
            f"./dev install --pytorch-lib SITE-PACKAGES/torch/lib --arch {arch}",
            "./dev release.dropin --pytorch-lib SITE-PACKAGES/torch/lib     # the same from a built release; --undo takes it back",
        ),
    )
    pins = InstallOption(
        text="or have PyTorch's build download it: the lines for cmake/External/aotriton.cmake",
        commands=(f"./dev release.pins --pytorch {row.pytorch}",),
    )
    download = row.delivery is not None and row.delivery.from_ == "download"
    return (*((into,) if links else ()), prefix, *((pins,) if download else ()))


def recommendation_text(recommendation: Recommendation) -> str:
    """For people."""
    asked = f"{recommendation.row}, {recommendation.arch}" + (
        f", ROCm {recommendation.rocm}" if recommendation.rocm else ""
    )
    official = f"AOTriton {recommendation.official}" if recommendation.official else "none"
    lines = [
        f"{asked}, {recommendation.platform}",
        f"official: {official}"
        + (f" ({recommendation.official_reason})" if recommendation.official_reason else ""),
    ]
    if recommendation.ours:
        lines.append(f"ours: {recommendation.ours}, image pack {recommendation.pack}")
        lines += [f"  limit: {recommendation.reason}"] if recommendation.reason else []
        for option in recommendation.options:
            lines += [f"  {option.text}:", *(f"    {command}" for command in option.commands)]
    else:
        lines.append(f"ours: none ({recommendation.reason})")
    if not recommendation.ours and not recommendation.official:
        lines.append(
            "nothing serves this: keep PyTorch on its math path (torch.nn.attention.sdpa_kernel), or take another PyTorch"
        )
    lines += [f"note: {warning}" for warning in recommendation.warnings]
    return "\n".join(lines)
