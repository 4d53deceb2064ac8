"""Small releases, signing keys, stores and clients for tests of publication and installation."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from aotforge.deliver.install.choose import InstallRequest, Machine
from aotforge.deliver.install.install_release import Installation, install
from aotforge.formats.archive import Link, Member, Members, sha256_file, write_tar_gz
from aotforge.publish.index import Publication
from aotforge.publish.keys import KeySet, create_keys, load_keys
from aotforge.publish.stores.store import ObjectStore, Reader
from aotforge.publish.trust import trusted_index
from aotforge.publish.upload import publish_release
from aotforge.release.contents import ReleaseContents

ROOT = Path(__file__).parents[2]
NOW = datetime.now(UTC)
MACHINE = Machine(processor="x86_64", glibc=(2, 36), rocm="7.1")
PACKS = {"gfx908": "amd-gfx908"}


def make_keys(folder: Path) -> KeySet:
    """Keys of an index of its own: two root keys, both of which must sign."""
    create_keys(folder, now=NOW, repository=ROOT, root_keys=2, threshold=2)
    return load_keys(folder, {})


def make_release(
    folder: Path,
    name: str = "0.11.2b-r1",
    *,
    seed: int = 0,
    size: int = 2000,
    rocm: tuple[str, ...] = ("7.0", "7.1"),
    packs: tuple[str, ...] = ("amd-gfx908", "amd-gfx90a"),
    development: tuple[str, ...] = (),
) -> Path:
    """A release folder in the build's layout; `size` incompressible bytes in every archive, all drawn from
    `seed`."""
    folder.mkdir(parents=True)
    noise = random.Random(f"{name} {seed}")
    library = noise.randbytes(size)
    tars, sums = {}, {}
    archives: dict[str, Members] = {
        f"aotriton-{name}-manylinux_2_28_x86_64-rocm{version}-shared.tar.gz": {
            "aotriton/lib/libaotriton_v2.so.0.11.2": Member(content=library, executable=True),
            "aotriton/lib/libaotriton_v2.so": Link(target="libaotriton_v2.so.0.11.2"),
            "aotriton/include/aotriton/config.h": Member(content=b"#pragma once\n"),
            "aotriton/share/licenses/aotriton/LICENSE": Member(content=b"MIT\n"),
        }
        for version in rocm
    }
    for pack in packs:
        archives[f"aotriton-{name}-images-{pack}.tar.gz"] = {
            f"aotriton/lib/aotriton.images/{pack}/__signature__": Member(content=name.encode()),
            f"aotriton/lib/aotriton.images/{pack}/flash.aoti": Member(content=noise.randbytes(size)),
            "aotriton/share/licenses/aotriton/LICENSE": Member(content=b"MIT\n"),
        }
    for archive, members in archives.items():
        tars[archive.removesuffix(".gz")] = write_tar_gz(folder / archive, members, epoch=0)
        sums[archive] = sha256_file(folder / archive)
    contents = ReleaseContents(
        release=name,
        verified=True,
        development=development,
        platform="manylinux_2_28_x86_64",
        tarballs=tars,
        packs=(),
    )
    (folder / "MANIFEST.json").write_bytes(contents.encoded())
    write_sums(folder, sums, tars)
    return folder


def write_sums(folder: Path, sums: dict[str, str], tars: dict[str, str]) -> None:
    """SHA256SUMS and SHA256SUMS.uncompressed."""
    (folder / "SHA256SUMS.uncompressed").write_text("".join(f"{d}  {n}\n" for n, d in sorted(tars.items())))
    for name in ("MANIFEST.json", "SHA256SUMS.uncompressed"):
        sums[name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    (folder / "SHA256SUMS").write_text("".join(f"{d}  {n}\n" for n, d in sorted(sums.items())))


def publish(folder: Path, store: ObjectStore, keys: KeySet, now: datetime = NOW) -> Publication:
    """As `release.publish` does."""
    return publish_release(folder, store, keys, now=now)


def try_install(
    reader: Reader,
    root: bytes,
    scratch: Path,
    request: InstallRequest | None = None,
    machine: Machine = MACHINE,
) -> Installation:
    """As `install --prefix` does: `scratch`/prefix is the place, `scratch`/trust what was seen,
    `scratch`/downloads what was got."""
    request = request or InstallRequest(packs=PACKS)
    request = replace(request, prefix=request.prefix or scratch / "prefix")
    trusted = trusted_index(reader, root, scratch / "trust")
    return install(reader, trusted.index, request, machine, downloads=scratch / "downloads")


def released_names(reader: Reader, root: bytes, memory: Path) -> tuple[str, ...]:
    """What a client sees; every file of every release is there, to the last byte, or the assertion fails."""
    index = trusted_index(reader, root, memory).index
    for release in index.releases:
        for file in release.files:
            data = b"".join(reader.read(f"{release.name}/{file.name}"))
            assert hashlib.sha256(data).hexdigest() == file.sha256, (release.name, file.name)
    return tuple(release.name for release in index.releases)
