"""The build for Windows: the library and images of Linux as one zip file, and a wheel."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from aotforge.base.files import output_errors, output_lock, write_atomic
from aotforge.base.progress import Observer
from aotforge.errors import ReleaseError, RulesError
from aotforge.formats.archive import sha256_file
from aotforge.formats.artifact_names import ArtifactName
from aotforge.formats.sums import SUMS, sums_bytes
from aotforge.formats.tar_reader import Entry, UnsafeArchiveError, read_archive
from aotforge.formats.zip_archive import digest_members, write_zip
from aotforge.library.build_windows import build_windows_runtime
from aotforge.library.interface import DEFINITION, library_operators
from aotforge.library.library_build import LibraryBuild
from aotforge.pack.model import DISPATCH_FILE, ImagePack
from aotforge.pack.reader import open_files, read_pack
from aotforge.pipeline.build_release import executions_of, library_request
from aotforge.pipeline.requests import WindowsRequest
from aotforge.plan.checkout import Checkout
from aotforge.release.layout import TOP
from aotforge.release.model import ReleaseManifest, load_release_manifest, member_time
from aotforge.release.release import Release
from aotforge.release.wheels import write_windows_wheel
from aotforge.run.step import WINDOWS, rootfs_digests

_LICENCES = f"{TOP}/share/licenses/aotriton"
_NOTES = f"{TOP}/share/doc/aotriton/windows.txt"
_IMAGES = f"{TOP}/lib/aotriton.images"
_LISTED = (".zip", ".whl")


@dataclass(frozen=True, kw_only=True)
class WindowsReport:
    """The zip file and the wheel of a build. `contents`: SHA-256 of its list of members.

    `images` are the pack files in it as (pack/file, bytes). `fresh` is False when the same file existed.
    """

    release: str
    file: Path
    wheel: Path
    size: int
    sha256: str
    contents: str
    images: tuple[tuple[str, int], ...]
    runtime: LibraryBuild
    roots: tuple[tuple[str, str], ...]
    fresh: bool

    def fields(self) -> dict[str, object]:
        """JSON values."""
        return {
            "release": self.release,
            "platform": "win_amd64",
            "file": str(self.file),
            "wheel": str(self.wheel),
            "size": self.size,
            "sha256": self.sha256,
            "contents_sha256": self.contents,
            "fresh": self.fresh,
            "compiler": self.runtime.compiler,
            "images": [{"name": name, "size": size} for name, size in self.images],
        }

    def lines(self) -> list[str]:
        """Lines of text."""
        file = f"{self.size:>12,}  {self.file}" if self.fresh else f"{self.file} is up to date"
        images = [f"{size:>12,}  of it: lib/aotriton.images/{name}" for name, size in self.images]
        hint = "without images: ./dev build.windows --images TARBALL-OR-RELEASE adds them"
        return [file, *(images or [hint]), f"{self.wheel.stat().st_size:>12,}  {self.wheel}"]


def build_windows(request: WindowsRequest, *, observer: Observer) -> WindowsReport:
    """The library for Windows as a zip file, with the images of `request.images`, unchanged."""
    manifest = load_release_manifest(request.root / "manifests" / "release.yaml", request.version)
    epoch = member_time(manifest, request.environment)
    folder = (request.output or request.root / "releases" / "dist" / "windows") / manifest.name
    packs = _packs(request)
    executions = executions_of(request, (WINDOWS,), observer=observer)
    with output_lock(folder):
        observer.stage("runtime library for Windows")
        runtime = build_windows_runtime(library_request(request, executions[WINDOWS]))
        members = _members(request.root, manifest, runtime, packs)
        observer.stage("zip file")
        # the packs are in the name: different contents have different names
        name = ArtifactName(release=manifest.name, kind="windows", pack="+".join(p.name for p in packs))
        path = folder / str(name)
        with output_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        wheel = _wheel(folder, request.checkout, manifest, members, epoch)
        fresh, sha256 = _put(path, members, epoch)
    return WindowsReport(
        release=manifest.name,
        file=path,
        wheel=wheel,
        size=path.stat().st_size,
        sha256=sha256,
        contents=digest_members(members),
        images=tuple(
            (f"{pack.name}/{name}", len(data)) for pack in packs for name, data in sorted(pack.files.items())
        ),
        runtime=runtime,
        roots=rootfs_digests(executions),
        fresh=fresh,
    )


def _members(
    root: Path, manifest: ReleaseManifest, runtime: LibraryBuild, packs: Sequence[ImagePack]
) -> dict[str, bytes]:
    own = resources.files("aotforge.release")
    members = {f"{TOP}/{name}": (runtime.prefix / name).read_bytes() for name in runtime.digests}
    notes = own.joinpath("windows_notes.txt").read_text(encoding="utf-8")
    members[_NOTES] = notes.replace("@release@", manifest.name).encode()
    members[f"{_LICENCES}/LICENSE"] = (root / "LICENSE").read_bytes()
    for name in ("zstd", "mingw-w64"):
        members[f"{_LICENCES}/LICENSE.{name}"] = own.joinpath(f"licences/{name}.txt").read_bytes()
    for pack in packs:
        members |= {f"{_IMAGES}/{pack.name}/{name}": data for name, data in pack.files.items()}
    return members


def _wheel(
    folder: Path, checkout: Checkout, manifest: ReleaseManifest, members: Mapping[str, bytes], epoch: int
) -> Path:
    """Writes the library's wheel beside the zip: for the images of any arch."""
    archs: dict[str, list[str]] = {}
    for arch, architecture in checkout.architectures.amd.items():
        archs.setdefault(architecture.pack, []).append(arch)
    files = {name.removeprefix(f"{TOP}/"): data for name, data in members.items()}
    with output_errors(folder), tempfile.TemporaryDirectory(prefix=".aotforge-wheel-", dir=folder) as work:
        staged = write_windows_wheel(Path(work), manifest, archs, files, epoch=epoch)
        return staged.replace(folder / staged.name)


def _put(path: Path, members: Mapping[str, bytes], epoch: int) -> tuple[bool, str]:
    """Whether `path` is new, and its SHA-256. SHA256SUMS lists every zip file and wheel of the folder."""
    with output_errors(path), tempfile.TemporaryDirectory(prefix=".aotforge-zip-", dir=path.parent) as work:
        staged = Path(work) / path.name
        sha256 = write_zip(staged, members, epoch=epoch)
        fresh = path.is_symlink() or not path.is_file() or sha256_file(path) != sha256
        if fresh:
            staged.replace(path)
        sums = {
            file.name: sha256_file(file)
            for file in path.parent.glob("*.*")
            if file.suffix in _LISTED and file.is_file()
        }
    write_atomic(path.parent / SUMS, sums_bytes(sums))
    return fresh, sha256


def _packs(request: WindowsRequest) -> tuple[ImagePack, ...]:
    """Every pack of every source, by name, checked. Raises PackError, ReleaseError, RulesError."""
    packs: dict[str, ImagePack] = {}
    for source in request.images:
        for pack in read_packs(source):
            if pack.name in packs and packs[pack.name] != pack:
                raise ReleaseError(
                    f"there are two image packs named {pack.name}", hint="pass one of them with --images"
                )
            open_files(pack).check_images()
            _check_interface(request.root, pack)
            packs[pack.name] = pack
    return tuple(packs[name] for name in sorted(packs))


def read_packs(source: Path) -> tuple[ImagePack, ...]:
    """The image packs of a release folder, a pack's folder, or a tarball of images. Raises ReleaseError."""
    if (source / SUMS).is_file():
        return tuple(released.pack for released in Release.open(source).packs())
    if (source / DISPATCH_FILE).is_file():
        return (read_pack(source.resolve()),)
    if source.is_file():
        return _from_tarball(source)
    raise ReleaseError(
        f"{source} has no images" if source.exists() else f"{source} does not exist",
        cause="--images takes an image tarball, a pack folder or a release folder",
        hint="build one: ./dev build --arch gfx908",
    )


def _from_tarball(source: Path) -> tuple[ImagePack, ...]:
    packs: dict[str, dict[str, bytes]] = {}

    def keep(entry: Entry) -> None:
        path = entry.path
        if entry.content is not None and f"{TOP}/{path.parent.parent}" == _IMAGES:
            packs.setdefault(path.parent.name, {})[path.name] = entry.content.read()

    try:
        read_archive(source, keep, top=TOP)
    except (OSError, UnsafeArchiveError) as error:
        raise ReleaseError(f"{source}: {error}", cause="it is damaged, or not a tarball of images") from error
    if not packs:
        raise ReleaseError(
            f"{source} has no images",
            cause=f"no member is below {_IMAGES}",
            hint="pass a tarball aotriton-...-images-...",
        )
    return tuple(ImagePack(name=name, files=files) for name, files in packs.items())


def _check_interface(root: Path, pack: ImagePack) -> None:
    """Checks that library and pack have the same operator interfaces. Raises RulesError."""
    served = library_operators(root / DEFINITION)
    for operator in open_files(pack).dispatch.operators:
        ours = served.get(operator.name)
        if ours is not None and ours.interface() != operator.interface():
            raise RulesError(
                f"operator {operator.name}: {pack.name} has another interface than {root / DEFINITION}",
                cause="the images were built from another commit of this repository",
                hint="build them again: ./dev build --arch ...",
            )
