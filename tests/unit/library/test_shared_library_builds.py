"""Builds of the library in a shared cache: fetched, offered, and refused when they are not what they should
be."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from aotforge.library.library_build import LibraryBuild, LibraryRequest
from tests.unit.base.test_object_cache import Shared

ROOT = Path(__file__).parents[3]
INPUTS = "ab" * 32


def made(cache: Path, shared: Shared, *, built: list[Path]) -> LibraryBuild:
    def build(staged: Path) -> str:
        built.append(staged)
        (staged / "prefix" / "lib").mkdir(parents=True)
        (staged / "prefix" / "lib" / "lib.so.1").write_text("library")
        (staged / "prefix" / "lib" / "lib.so.1").chmod(0o755)
        (staged / "prefix" / "lib" / "lib.so").symlink_to("lib.so.1")
        return "g++"

    return LibraryRequest(root=ROOT, cache=cache, shared=shared).cached("lib/lib.so.1", INPUTS, build)


def packed(folder: Path) -> bytes:
    shared = Shared()
    made(folder, shared, built=[])
    return shared.offered[INPUTS]


def test_a_build_of_another_machine_is_used(tmp_path: Path) -> None:
    built: list[Path] = []
    shared = Shared(objects={INPUTS: packed(tmp_path / "one")})
    found = made(tmp_path / "two", shared, built=built)
    assert not built
    assert not found.fresh
    assert found.compiler == "g++"
    assert found.library.stat().st_mode & 0o777 == 0o755
    assert (found.prefix / "lib" / "lib.so").readlink() == Path("lib.so.1")
    assert found.digests == made(tmp_path / "one", Shared(), built=[]).digests


def test_equal_builds_are_equal_objects(tmp_path: Path) -> None:
    assert packed(tmp_path / "one") == packed(tmp_path / "two")


def archive(name: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz", format=tarfile.USTAR_FORMAT) as tar:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return file.getvalue()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[: len(data) // 2], "truncated"),
        (lambda data: b"no archive", "gzip"),
        (lambda data: archive("../outside", b"x"), "outside its folder"),
        (lambda data: archive("prefix/lib/lib.so.1", b"library"), "not an intact library"),
        (
            lambda data: archive("build.json", b'{"files": {}, "notes": {"surprise": 1}}'),
            "not an intact library",
        ),
    ],
    ids=["truncated", "other bytes", "upwards", "no stamp", "other notes"],
)
def test_what_is_not_a_build_is_rejected_and_built(
    tmp_path: Path, damage: Callable[[bytes], bytes], reason: str
) -> None:
    built: list[Path] = []
    shared = Shared(objects={INPUTS: damage(packed(tmp_path / "one"))})
    found = made(tmp_path / "two", shared, built=built)
    assert found.fresh
    assert len(built) == 1
    assert [key for _, key, _ in shared.rejected] == [INPUTS]
    assert reason in shared.rejected[0][2]
    assert not (tmp_path / "outside").exists()
    assert shared.offered[INPUTS] == packed(tmp_path / "one")
