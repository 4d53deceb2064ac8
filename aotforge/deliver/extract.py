"""Extracts a release folder: runtime and image packs into one prefix, as in PyTorch."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from aotforge.errors import ReleaseError
from aotforge.formats.artifact_names import ArtifactName, parse_artifact_name
from aotforge.formats.folder_sink import FolderSink
from aotforge.formats.untrusted_tar import UnsafeArchiveError, file_chunks, read_archive
from aotforge.pack.model import SIGNATURE_FILE
from aotforge.release.layout import TOP, check_names


@dataclass(frozen=True, kw_only=True)
class ExtractedRelease:
    """`prefix` holds include/ and lib/ with aotriton.images; `texts` are the asm archives; `names` all
    archives."""

    prefix: Path
    texts: tuple[Path, ...]
    names: tuple[str, ...]


def extract_release(release: Path, packs: Sequence[str], folder: Path) -> ExtractedRelease:
    """Unpacks the newest runtime and the packs' images of a release folder into `folder`. Raises
    ReleaseError."""
    archives = {path: name for path in sorted(release.iterdir()) if (name := parse_artifact_name(path.name))}
    runtimes = [path for path, name in archives.items() if name.kind == "runtime"]
    runtimes.sort(key=lambda path: archives[path].rocm_version)
    if not runtimes:
        raise ReleaseError(
            f"{release} holds no runtime tarball",
            cause="it is not a release folder",
            hint="name the folder that `./dev build` printed",
        )
    images = [_one(release, ArtifactName(release="*", kind="images", pack=pack)) for pack in packs]
    texts = tuple(_one(release, ArtifactName(release="*", kind="asm", pack=pack)) for pack in packs)
    prefix = unpack([runtimes[-1], *images], folder)
    names = tuple(path.name for path in (runtimes[-1], *images, *texts))
    return ExtractedRelease(prefix=prefix, texts=texts, names=names)


def unpack(tarballs: Sequence[Path], folder: Path) -> Path:
    """Unpacks tarballs of a release into one top folder, which must not exist. Links point to files next to
    them.

    Returns the top folder. Raises ReleaseError.
    """
    sink = FolderSink(root=folder / TOP, neighbours=True)
    for tarball in tarballs:
        try:
            sink.root.mkdir(parents=True, exist_ok=bool(sink.made))
            read_archive(file_chunks(tarball), sink, top=TOP, on_entry=check_names(tarball.name))
        except (OSError, UnsafeArchiveError) as error:
            raise ReleaseError(f"{tarball} cannot be unpacked: {error}") from error
    return sink.root


@contextmanager
def image_packs(path: Path) -> Iterator[tuple[Path, ...]]:
    """Folders of the packs in `path`: a pack, a folder of packs, a release folder, or a tarball of images.

    Raises ReleaseError for a tarball that cannot be unpacked or has no pack; a folder without packs is
    taken for one.
    """
    if path.is_dir():
        packs = sorted(found.parent for found in path.glob(f"*/{SIGNATURE_FILE}"))
        tarballs = sorted(path.glob(str(ArtifactName(release="*", kind="images", pack="*"))))
        if (path / SIGNATURE_FILE).exists() or packs or not tarballs:
            yield tuple(packs) or (path,)
            return
    elif path.is_file():
        tarballs = [path]
    else:
        raise ReleaseError(
            f"{path} does not exist",
            hint="name a folder below aotriton.images, a release folder, or its tarball of images",
        )
    with TemporaryDirectory() as scratch:
        prefix = unpack(tarballs, Path(scratch) / "unpacked")
        packs = sorted(found.parent for found in prefix.rglob(SIGNATURE_FILE))
        if not packs:
            raise ReleaseError(
                f"{path} holds no image pack",
                cause="it is another archive of the release",
                hint="name *-images-*.tar.gz",
            )
        yield tuple(packs)


def _one(release: Path, pattern: ArtifactName) -> Path:
    found = sorted(release.glob(str(pattern)))
    if len(found) != 1:
        raise ReleaseError(
            f"{release} holds {len(found)} files {pattern}",
            cause="the release was built for other archs, or several releases share the folder",
            hint="`./dev build --arch ARCH` builds the missing packs",
        )
    return found[0]
