"""Bytes, files and packs of ready images of others: what costs more than its author gave is refused."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest

from tests.integration.source_route.ready_images import IMAGES, pack, release, take, take_images

pytestmark = pytest.mark.compiler


def test_a_tarball_that_unpacks_to_a_disk_of_zeros_is_refused(tmp_path: Path) -> None:
    """A text of mtree's format in a gzip file, and a gzip file of zeros."""
    path = tmp_path / "aotriton-0.11.2b-images-amd-gfx908.tar.gz"
    path.write_bytes(gzip.compress(b"#mtree\n./x.aoti type=file size=20000000000 mode=644\n"))
    done, _ = take(tmp_path, [path])
    assert done.returncode and "is not a complete tarball" in done.stderr
    with tarfile.open(path, "w:gz", format=tarfile.USTAR_FORMAT) as tar:
        zeros = tarfile.TarInfo("aotriton/zeros")
        zeros.size = 5_000_000
        tar.addfile(zeros, io.BytesIO(bytes(zeros.size)))
    done, _ = take(tmp_path, [path])
    assert done.returncode and "more than a hundred times its size" in " ".join(done.stderr.split())


def test_all_ready_images_together_are_bounded(tmp_path: Path) -> None:
    """Also those that are not taken; a hard link or a hole costs their author nothing."""
    made = release(tmp_path / "release", {"amd-gfx908": "gfx908"})
    (path,) = made.glob("*.tar.gz")
    (made / "SHA256SUMS").unlink()
    size = len(gzip.decompress(path.read_bytes())) + path.stat().st_size
    for number in range(3):
        os.link(path, made / f"{number}-{path.name}")
    program = take_images(f"-DMOST_BYTES={3 * size + size // 2}")
    done, output = take(tmp_path, [made], "gfx90a", program=program)
    assert done.returncode and "with what its tarballs unpack to, more than" in done.stderr
    assert not output.exists()
    assert "has no images for gfx90a" in take(tmp_path, [made], "gfx90a")[0].stderr, "without that limit"


def test_tarballs_with_holes_are_refused(tmp_path: Path) -> None:
    """Zeros behind a gzip file are nothing to gzip."""
    made = release(tmp_path / "release", {"amd-gfx908": "gfx908"})
    (path,) = made.glob("*.tar.gz")
    (made / "SHA256SUMS").unlink()
    with path.open("r+b") as file:
        file.truncate(3 << 30)
    for number in range(2):
        os.link(path, made / f"{number}-{path.name}")
    done, output = take(tmp_path, [made])
    assert done.returncode and "more than 8589934592 bytes" in done.stderr and not output.exists()


def test_tarballs_whose_compressed_data_have_holes(tmp_path: Path) -> None:
    """They cost their author nothing, and unpack to many times what is on the disk before any limit ends that."""
    made = pack(tmp_path / "packs", "amd-gfx908", "gfx908")
    next(made.glob("*.aoti")).write_bytes(b"AOTFIMG\n" + bytes(4 << 20))
    data = io.BytesIO()
    with tarfile.open(
        fileobj=data, mode="w:gz", compresslevel=0, format=tarfile.USTAR_FORMAT
    ) as tar:  # stored
        tar.add(made, f"aotriton/{IMAGES}/{made.name}")
    path, block = tmp_path / "aotriton-0.11.2b-images-amd-gfx908.tar.gz", 4096
    with path.open("wb") as file:
        for start in range(0, len(data.getvalue()), block):
            piece = data.getvalue()[start : start + block]
            if any(piece):
                file.seek(start)
                file.write(piece)
    if path.stat().st_blocks * 512 > 1 << 20:
        pytest.skip("the file system of the test folder has no holes")
    assert path.read_bytes() == data.getvalue()
    done, output = take(tmp_path, [path])
    assert done.returncode and "is sparse" in done.stderr and not output.exists()
    path.write_bytes(data.getvalue())
    assert take(tmp_path, [path])[0].returncode == 0


@pytest.mark.parametrize("size", [5 << 30, 15 << 40])
def test_packs_with_holes_are_refused(size: int, tmp_path: Path) -> None:
    made = pack(tmp_path / "packs", "amd-gfx908", "gfx908")
    for number in (1, 2):
        with (made / f"{number}.aoti").open("wb") as file:
            file.truncate(size)
    done, output = take(tmp_path, [made])
    assert done.returncode and "more than 8589934592 bytes" in done.stderr and not output.exists()


def test_names_of_one_file_are_refused(tmp_path: Path) -> None:
    """400 kB under 19,000 names were 7.6 GB."""
    made = pack(tmp_path / "packs", "amd-gfx908", "gfx908")
    path = next(made.glob("*.aoti"))
    path.with_name("z.aoti").hardlink_to(path)
    done, output = take(tmp_path, [made])
    assert done.returncode and "z.aoti is the same file as another one" in done.stderr and not output.exists()


def test_an_image_with_a_hole_is_refused(tmp_path: Path) -> None:
    """Its copy would have all of its bytes: 24 kB were 3 GB."""
    made = pack(tmp_path / "packs", "amd-gfx908", "gfx908")
    path = next(made.glob("*.aoti"))
    with path.open("r+b") as file:
        file.truncate(2 << 20)
    done, output = take(tmp_path, [made])
    assert done.returncode and f"{path.name} is sparse" in done.stderr and not output.exists()


def test_thousands_of_files_or_packs_are_refused(tmp_path: Path) -> None:
    made = pack(tmp_path / "packs", "amd-gfx908", "gfx908")
    for number in range(200):
        other = tmp_path / "packs" / f"cpu-{number}"
        other.mkdir()
        (other / "__signature__").hardlink_to(made / "__signature__")
    done, output = take(tmp_path, [tmp_path / "packs"], "gfx90a")
    assert done.returncode and "more than 200 packs and tarballs" in done.stderr and not output.exists()
    for number in range(20001):
        (made / f"{number}.aoti").touch()
    done, output = take(tmp_path, [made])
    assert done.returncode and "more than 20000 files" in done.stderr and not output.exists()
    path = tmp_path / "aotriton-0.11.2b-images-amd-gfx908.tar.gz"
    with tarfile.open(path, "w:gz", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(20001):
            folder = tarfile.TarInfo(f"aotriton/{number}")
            folder.type = tarfile.DIRTYPE
            tar.addfile(folder)
    done, output = take(tmp_path, [path])
    assert done.returncode and "more than 20000 files" in done.stderr and not output.exists()
