"""Reads what a release folder packs: image packs, or runtime and packs in one prefix, as in PyTorch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aotforge.errors import ReleaseError
from aotforge.formats.artifact_names import ArtifactName
from aotforge.formats.tar_reader import Entry, UnsafeArchiveError, read_archive
from aotforge.pack.model import SIGNATURE_FILE, ImagePack
from aotforge.pack.reader import OpenPack, open_files, open_pack
from aotforge.release.layout import TOP
from aotforge.release.release import IMAGES, Release


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


def open_packs(path: Path) -> tuple[OpenPack, ...]:
    """The packs in `path`: a pack, a folder of packs, a release folder, or a tarball of images.

    A folder without packs is taken for one. Raises ReleaseError, PackError.
    """
    tarballs = sorted(path.glob(str(ArtifactName(release="*", kind="images", pack="*"))))
    folders = sorted(file.parent for file in path.glob(f"*/{SIGNATURE_FILE}"))
    if path.is_dir() and ((path / SIGNATURE_FILE).exists() or folders or not tarballs):
        return tuple(map(open_pack, folders or [path]))
    packs: dict[str, dict[str, bytes]] = {}

    def keep(entry: Entry) -> None:
        if entry.content is not None and str(entry.path).startswith(f"{IMAGES}/"):
            packs.setdefault(entry.path.parent.name, {})[entry.path.name] = entry.content.read()

    for tarball in tarballs or [path]:
        try:
            read_archive(tarball, keep, top=TOP)
        except (OSError, UnsafeArchiveError) as error:
            raise ReleaseError(
                f"{tarball} cannot be unpacked: {getattr(error, 'strerror', None) or error}",
                hint="name a folder below aotriton.images, a release folder, or its tarball of images",
            ) from error
    if not packs:
        raise ReleaseError(
            f"{path} holds no image pack",
            cause="it is another archive of the release",
            hint="name *-images-*.tar.gz",
        )
    return tuple(open_files(ImagePack(name=name, files=packs[name])) for name in sorted(packs))
