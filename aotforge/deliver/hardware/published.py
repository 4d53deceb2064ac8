"""Archives of one pack of a published release, downloaded and verified, as a release folder."""

from __future__ import annotations

from pathlib import Path

from aotforge.base.files import link_or_copy, make_folders, output_errors
from aotforge.base.progress import OnProgress, byte_counter
from aotforge.deliver.install.choose import InstallRequest, choose_release
from aotforge.deliver.install.install_release import install_errors
from aotforge.errors import InstallError
from aotforge.formats.artifact_names import ArtifactName
from aotforge.formats.sums import SUMS
from aotforge.publish.fetch import fetch_file
from aotforge.publish.index import Index
from aotforge.publish.stores.store import Reader
from aotforge.release.model import MANIFEST


def fetch_pack(
    reader: Reader,
    index: Index,
    *,
    version: str | None,
    arch: str,
    pack: str,
    downloads: Path,
    folder: Path,
    on_progress: OnProgress = lambda stage, done, total: None,
) -> tuple[Path, tuple[str, ...]]:
    """`folder`/<release> with the pack's images and texts, MANIFEST.json and SHA256SUMS, and notes on the
    release.

    `index` must have been checked. Raises UnknownNameError, InstallError, TrustError, OutputError.
    """
    release, notes = choose_release(index, InstallRequest(packs={arch: pack}, version=version))
    files = []
    archives = [ArtifactName(release=release.name, kind=kind, pack=pack) for kind in ("images", "asm")]
    for name in (SUMS, MANIFEST, *map(str, archives)):
        if (file := release.file(name)) is None:
            raise InstallError(
                f"{release.name} has no file {name}",
                cause=f"it has no images for {arch}, or was published without assembly texts",
                hint="./dev release.list shows the packs of every release; --version names one",
            )
        files.append(file)
    count = byte_counter(on_progress, "downloading", sum(file.size for file in files))
    target = folder / release.name
    make_folders(target)
    with install_errors():
        for file in files:
            path = fetch_file(reader, f"{release.name}/{file.name}", file, downloads, on_bytes=count)
            with output_errors(target):
                link_or_copy(path, target / file.name)
    return target, notes
