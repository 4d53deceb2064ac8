"""Wheels of a release: the library with its loader for PyTorch, and one wheel of images per pack.

`aotforge-attention` has the library, an alias for each older name, and the package that loads it first.
`aotforge-flash` has flash-attn's functions, which call the library.
`aotforge-images-<pack>` puts its images beside the library. An extra per arch selects images.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

from aotforge.base.html import render
from aotforge.formats.api_level import level_of, library_version
from aotforge.formats.library_alias import library_alias
from aotforge.formats.wheel import ATTENTION, FLASH, WheelName, write_wheel
from aotforge.release.attestations import wheel_sbom_json
from aotforge.release.model import Origin, ReleaseManifest
from aotforge.release.release import Release, read_windows

PACKAGE = "aotforge_attention"
FRONT_END = "aotforge_flash"
LIBRARIES = f"{PACKAGE}/lib"
FACTS = f"{PACKAGE}/release_facts.py"
LICENCES = "share/licenses/aotriton/"
WINDOWS, WINDOWS_LIBRARY = "win_amd64", "aotriton_v2.dll"
_STARTERS = {
    f"{PACKAGE}.pth": f"import {PACKAGE}; {PACKAGE}.start()\n",
    f"{PACKAGE}.start": f"{PACKAGE}:start\n",
}
"""What Python executes when it starts: from 3.15 on the `.start` file (PEP 829), earlier the `.pth` file."""

_SHARED = {"device_wheels.py": "aotforge.targets.amd", "library_alias.py": "aotforge.formats"}
"""Modules that the package has too, and the packages that have them here."""


def wheel_version(release: str) -> str:
    """The version of a release's wheels, a final one: 0.11.2.1 of 0.11.2b-r1, 0.13.0.1 of 0.13b-r1."""
    level = level_of(release)
    revision = release.removeprefix(level).removeprefix("-r")
    return f"{library_version(level)}.{revision or 0}"


def images_project(pack: str) -> str:
    """The project that has a pack: aotforge-images-gfx908 of amd-gfx908."""
    return f"aotforge-images-{pack.removeprefix('amd-')}".replace("_", "-")


def make_wheels(
    build: Path,
    manifest: ReleaseManifest,
    origin: Origin,
    packs: Mapping[str, Sequence[str]],
    folder: Path,
    *,
    windows: Path | None = None,
) -> list[Path]:
    """Writes the wheels of the build in `build` into `folder`. Raises ReleaseError.

    `packs`: archs of each image pack; `windows`: the zip for Windows. Equal arguments give equal bytes.
    """
    release = Release.open(build)
    runtime, platform = release.members(release.runtime), release.runtime.platform
    images = ((released.pack.name, released.pack.files) for released in release.packs(packs))
    zipped = read_windows(windows) if windows else None
    made = []
    for content in wheel_contents(manifest, packs, runtime, images, platform, windows=zipped):
        name = content.name
        bill = {f"sboms/{name.name}.cdx.json": wheel_sbom_json(origin, name, content.members)}
        made.append(write_wheel(folder, name, content.members, {**content.info, **bill}, epoch=origin.epoch))
    return made


@dataclass(frozen=True, kw_only=True)
class WheelContent:
    """A wheel without its bill of materials: files that are installed, and those of its metadata folder."""

    name: WheelName
    members: Mapping[str, bytes]
    info: Mapping[str, bytes]


def wheel_contents(
    manifest: ReleaseManifest,
    packs: Mapping[str, Sequence[str]],
    runtime: Mapping[str, bytes],
    images: Iterable[tuple[str, Mapping[str, bytes]]],
    platform: str,
    *,
    windows: Mapping[str, bytes] | None = None,
) -> Iterator[WheelContent]:
    """The wheels of the library archive, the zip for Windows and each pack. `packs`: their archs."""
    libraries = {
        manifest.soname: runtime[f"lib/{manifest.soname}"],
        **{old: library_alias(old, manifest.soname) for old in manifest.other_names},
    }
    yield _attention_wheel(manifest, packs, runtime, libraries, platform)
    if windows is not None:
        libraries = {WINDOWS_LIBRARY: windows[f"lib/{WINDOWS_LIBRARY}"]}
        yield _attention_wheel(manifest, packs, windows, libraries, WINDOWS)
    yield _flash_wheel(manifest, packs, runtime)
    licences = {"LICENSE": runtime[f"{LICENCES}LICENSE"]}
    for pack, files in images:
        name = WheelName(name=images_project(pack), version=wheel_version(manifest.name))
        members = {f"{LIBRARIES}/aotriton.images/{pack}/{file}": data for file, data in files.items()}
        summary = f"GPU images of {manifest.name} for {', '.join(sorted(packs[pack]))}, for {ATTENTION}"
        yield _content(name, members, summary, _IMAGES_TEXT, licences)


def _attention_wheel(
    manifest: ReleaseManifest,
    packs: Mapping[str, Sequence[str]],
    runtime: Mapping[str, bytes],
    libraries: Mapping[str, bytes],
    platform: str,
) -> WheelContent:
    """`libraries`: by name, the one that has the code first."""
    name = WheelName(name=ATTENTION, version=wheel_version(manifest.name), platform=platform)
    archs = {arch: pack for pack in packs for arch in packs[pack]}
    sources = resources.files("aotforge.release").joinpath("attention_package")
    facts = (
        f'"""Constants of release {manifest.name}."""\n\n'
        f"RELEASE = {manifest.name!r}\nVERSION = {name.version!r}\n"
        f"NAMES = {tuple(libraries)!r}\nPACKS = {dict(sorted(archs.items()))!r}\n"
    )
    members = {
        **{f"{PACKAGE}/{own}": sources.joinpath(own).read_bytes() for own in ("__init__.py", "__main__.py")},
        **{
            f"{PACKAGE}/{name}": resources.files(own).joinpath(name).read_bytes()
            for name, own in _SHARED.items()
        },
        FACTS: facts.encode("ascii"),
        **{f"{LIBRARIES}/{library}": data for library, data in libraries.items()},
        **{file: text.encode("ascii") for file, text in _STARTERS.items()},
    }
    licences = {
        path.removeprefix(LICENCES): data for path, data in runtime.items() if path.startswith(LICENCES)
    }
    text, level = render("wheel_attention.md.jinja"), manifest.api_level
    summary = f"Attention of AOTriton {level} for an installed PyTorch with ROCm, release {manifest.name}"
    return _content(name, members, summary, f"{text}\n", licences, extras=_extras(packs))


def _extras(packs: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Projects with images by arch, and those of `all`."""
    archs = {arch: pack for pack in packs for arch in packs[pack]}
    extras = {arch: [images_project(pack)] for arch, pack in sorted(archs.items())}
    return {**extras, "all": sorted({project for projects in extras.values() for project in projects})}


def _flash_wheel(
    manifest: ReleaseManifest, packs: Mapping[str, Sequence[str]], runtime: Mapping[str, bytes]
) -> WheelContent:
    """Python alone: the library is that of the other wheel."""
    name = WheelName(name=FLASH, version=wheel_version(manifest.name))
    # found without being imported, as it needs PyTorch, which a machine that makes releases may lack
    package = find_spec(FRONT_END)
    assert package is not None and package.origin is not None
    sources = sorted(Path(package.origin).parent.glob("*.py"))
    members = {f"{FRONT_END}/{file.name}": file.read_bytes() for file in sources}
    text = render("wheel_flash.md.jinja")
    summary = f"The functions of flash-attn on the images of release {manifest.name}"
    licences = {"LICENSE": runtime[f"{LICENCES}LICENSE"]}
    return _content(
        name,
        members,
        summary,
        f"{text}\n",
        licences,
        extras=_extras(packs),
        needed=(ATTENTION,),
        python="3.10",
    )


def write_windows_wheel(
    folder: Path,
    manifest: ReleaseManifest,
    packs: Mapping[str, Sequence[str]],
    runtime: Mapping[str, bytes],
    *,
    epoch: int,
) -> Path:
    """The library's wheel for Windows, of its zip's files, with an extra for each arch of `packs`."""
    libraries = {WINDOWS_LIBRARY: runtime[f"lib/{WINDOWS_LIBRARY}"]}
    made = _attention_wheel(manifest, packs, runtime, libraries, WINDOWS)
    return write_wheel(folder, made.name, made.members, made.info, epoch=epoch)


def _content(
    name: WheelName,
    members: Mapping[str, bytes],
    summary: str,
    text: str,
    licences: Mapping[str, bytes],
    *,
    extras: Mapping[str, Sequence[str]] | None = None,
    needed: Sequence[str] = (),
    python: str = "3.9",
) -> WheelContent:
    """A wheel with core metadata 2.4. `needed`: projects of the same version."""
    fields = {
        "name": name, "summary": summary, "licences": licences, "extras": extras or {},
        "needed": needed, "python": python,
    }  # fmt: skip
    metadata = (render("wheel_metadata.jinja", **fields) + text).encode("ascii")
    info = {"METADATA": metadata, **{f"licenses/{file}": data for file, data in licences.items()}}
    return WheelContent(name=name, members=members, info=info)


_IMAGES_TEXT = f"""# Images

GPU code that {ATTENTION} loads. Install it by an extra of that package.
"""


def build_package(project: Path, folder: Path) -> Path:
    """The wheel of the folder `project` with its pyproject.toml; equal sources give equal bytes."""
    from hatchling.builders.wheel import WheelBuilder  # noqa: PLC0415 - a package of releases only

    (made,) = WheelBuilder(str(project)).build(directory=str(folder), versions=["standard"])
    return Path(made)
