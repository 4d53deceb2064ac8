"""Extracts a release folder: runtime and image packs into one prefix, as in PyTorch."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from aotforge.errors import ReleaseError
from aotforge.formats.artifact_names import ArtifactName
from aotforge.formats.tar_reader import UnsafeArchiveError, read_archive
from aotforge.pack.model import SIGNATURE_FILE
from aotforge.release.layout import TOP
from aotforge.release.release import Release, new_prefix


@dataclass(frozen=True, kw_only=True)
class ExtractedRelease:
    """`prefix` holds include/ and lib/ with aotriton.images; `texts` are the asm archives; `names` all."""

    prefix: Path
    texts: tuple[Path, ...]
    names: tuple[str, ...]


def extract_release(release: Path, packs: Sequence[str], folder: Path) -> ExtractedRelease:
    """Unpacks the newest runtime and the packs' images of a release into `folder`. Raises ReleaseError."""
    opened = Release.open(release)
    images = [opened.archive("images", pack) for pack in packs]
    texts = [opened.archive("asm", pack) for pack in packs]
    prefix = opened.unpack([opened.runtime, *images], folder)
    return ExtractedRelease(
        prefix=prefix,
        texts=tuple(release / str(name) for name in texts),
        names=tuple(map(str, (opened.runtime, *images, *texts))),
    )


def unpack(tarballs: Sequence[Path], folder: Path) -> Path:
    """Unpacks tarballs into a new prefix below `folder` and returns it. Raises ReleaseError."""
    writer = new_prefix(folder)
    for tarball in tarballs:
        try:
            read_archive(tarball, writer, top=TOP)
        except (OSError, UnsafeArchiveError) as error:
            raise ReleaseError(f"{tarball} cannot be unpacked: {error}") from error
    return writer.root


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
