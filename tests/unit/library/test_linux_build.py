"""Build of the library without a compiler: pins, tools, sources, and the error of each failure."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from aotforge.errors import ManifestError, RuntimeBuildError, ToolchainError
from aotforge.library.build_linux import check_library
from aotforge.library.build_tools import find_tools
from aotforge.library.library_build import LibraryRequest, source_digest
from aotforge.library.sources import ZstdPin, load_runtime_manifest, unpack_zstd
from aotforge.run.pip_download import SOURCES

ROOT = Path(__file__).parents[3]


def archive(content: bytes = b"int zstd;") -> tuple[ZstdPin, bytes]:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        info = tarfile.TarInfo("zstandard-1.2.3/zstd/zstd.c")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    data = buffer.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    name = "zstandard-1.2.3.tar.gz"
    pin = ZstdPin(package="zstandard", version="1.2.3", file=name, sha256=digest, members=("zstd/zstd.c",))
    return pin, data


@pytest.fixture
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("aotforge.library.sources.pip_download")


def test_the_manifest_is_that_of_the_release() -> None:
    manifest = load_runtime_manifest(ROOT / "manifests")
    levels = (ROOT / "runtime" / "api_levels.txt").read_text().splitlines()
    assert next(line.split()[0] for line in levels if line[:1].isdigit()) == manifest.api_level
    locked = (ROOT / "requirements" / "build.txt").read_text()
    assert f"zstandard=={manifest.zstd.version}" in locked and manifest.zstd.sha256 in locked


def test_a_malformed_api_level_is_refused(tmp_path: Path) -> None:
    text = (ROOT / "manifests" / "runtime.yaml").read_text()
    (tmp_path / "runtime.yaml").write_text(text.replace("0.11.2b", "v0.11.2"))
    with pytest.raises(ManifestError, match="api_level"):
        load_runtime_manifest(tmp_path)


def test_sources_are_fetched_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin, data = archive()
    fetched = []

    def download(wanted: ZstdPin, folder: Path) -> None:
        fetched.append(wanted.file)
        (folder / wanted.file).write_bytes(data)

    monkeypatch.setattr("aotforge.library.sources.pip_download", download)
    for number in range(2):
        folder = unpack_zstd(pin, cache=tmp_path, folder=tmp_path / str(number), environment={})
        assert (folder / "zstd.c").read_bytes() == b"int zstd;"
    assert fetched == [pin.file]
    kept = tmp_path / "sources" / pin.sha256 / pin.file
    kept.write_bytes(b"damaged")
    unpack_zstd(pin, cache=tmp_path, folder=tmp_path / "again", environment={})
    assert len(fetched) == 2 and kept.read_bytes() == data


@pytest.mark.usefixtures("_no_network")
def test_a_named_file_needs_no_network(tmp_path: Path) -> None:
    pin, data = archive()
    (tmp_path / pin.file).write_bytes(data)
    env = {SOURCES: str(tmp_path)}
    unpack_zstd(pin, cache=tmp_path / "cache", folder=tmp_path / "out", environment=env)
    (tmp_path / pin.file).unlink()
    unpack_zstd(pin, cache=tmp_path / "cache", folder=tmp_path / "out2", environment=env)


@pytest.mark.usefixtures("_no_network")
def test_other_bytes_than_the_pinned_are_refused(tmp_path: Path) -> None:
    pin, _ = archive()
    (tmp_path / pin.file).write_bytes(archive(b"other")[1])
    env = {SOURCES: str(tmp_path)}
    with pytest.raises(RuntimeBuildError, match="is not the pinned"):
        unpack_zstd(pin, cache=tmp_path, folder=tmp_path / "out", environment=env)


def test_missing_tools_name_the_command_that_installs_them(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError) as missing:
        find_tools({"PATH": str(tmp_path)})
    assert missing.value.hint == "apt-get install g++ cmake ninja-build" and missing.value.exit_code == 3
    for name in ("g++", "gcc"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    with pytest.raises(ToolchainError) as broken:
        find_tools({"PATH": str(tmp_path), "CXX": "nonsense-compiler"})
    assert "nonsense-compiler" in broken.value.what


def test_source_digest_sees_names_and_contents_but_no_tests(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.cpp").write_text("1")
    first = source_digest(tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "t.cpp").write_text("t")
    assert source_digest(tmp_path) == first
    (tmp_path / "src" / "a.cpp").write_text("2")
    second = source_digest(tmp_path)
    (tmp_path / "src" / "a.cpp").rename(tmp_path / "src" / "b.cpp")
    assert len({first, second, source_digest(tmp_path)}) == 3


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    with pytest.raises(RuntimeBuildError, match="not a library"):
        check_library(tmp_path / "text", "libx.so")
    with pytest.raises(RuntimeBuildError, match="SONAME"):
        check_library(Path("/bin/sh").resolve(), "libx.so")


def _append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"//")


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "prefix" / "lib" / "lib.so").unlink(),
        lambda folder: _append(folder / "prefix" / "lib" / "lib.so"),
        lambda folder: _append(folder / "prefix" / "include" / "flash.h"),
        lambda folder: (folder / "prefix" / "include" / "more.h").touch(),
        lambda folder: (folder / "build.json").write_text("{"),
        lambda folder: (folder / "build.json").unlink(),
    ],
    ids=["removed", "library", "header", "added", "stamp", "no stamp"],
)
def test_a_build_is_made_once_and_again_after_any_damage(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    request, made = LibraryRequest(root=ROOT, cache=tmp_path / "cache"), []

    def build(staged: Path) -> str:
        for name in ("lib/lib.so", "include/flash.h"):
            path = staged / "prefix" / name
            path.parent.mkdir(parents=True)
            path.write_text(name)
        made.append(staged)
        return "g++"

    first, second = (request.cached("lib/lib.so", "inputs", build) for _ in range(2))
    assert (first.fresh, second.fresh, len(made)) == (True, False, 1)
    damage(first.prefix.parent)
    repaired = request.cached("lib/lib.so", "inputs", build)
    assert repaired.fresh and len(made) == 2
    assert repaired.digests == first.digests and repaired.library.read_text() == "lib/lib.so"
    assert sorted(path.name for path in repaired.prefix.rglob("*.*")) == ["flash.h", "lib.so"]
