"""pip compares the pinned bytes before it runs any code of the source distribution or of its build backend,
and takes no other."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from aotforge.errors import RuntimeBuildError
from aotforge.library import sources
from aotforge.library.sources import ZstdPin, pip_download

NAME = "zstandard-1.2.3"
# it marks that it was run
_BACKEND = """
import pathlib
pathlib.Path({marker!r}).touch()

def get_requires_for_build_wheel(settings=None):
    return []

def prepare_metadata_for_build_wheel(folder, settings=None):
    info = pathlib.Path(folder, "zstandard-1.2.3.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: zstandard\\nVersion: 1.2.3\\n")
    return info.name

def build_wheel(*_):
    raise NotImplementedError
"""


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source distribution, and pip set to find it and nothing else."""
    members = {
        "pyproject.toml": '[build-system]\nrequires = ["stranger"]\nbuild-backend = "backend"\n',
        "PKG-INFO": "Metadata-Version: 2.1\nName: zstandard\nVersion: 1.2.3\n",
    }
    (tmp_path / "index").mkdir()
    path = tmp_path / "index" / f"{NAME}.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, text in members.items():
            info = tarfile.TarInfo(f"{NAME}/{name}")
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    for name, version, module in (("setuptools", "84.2.1", "backend"), ("stranger", "1", "stranger")):
        wheel = path.parent / f"{name}-{version}-py3-none-any.whl"
        about = f"{name}-{version}.dist-info"
        with zipfile.ZipFile(wheel, "w") as written:
            written.writestr(f"{module}.py", _BACKEND.format(marker=str(tmp_path / "ran")))
            written.writestr(
                f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            )
            written.writestr(
                f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            written.writestr(f"{about}/RECORD", "")
        if name == "setuptools":
            monkeypatch.setattr(sources, "_BACKEND_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
        else:
            wheel.write_bytes(b"not a wheel, which pip would notice")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(path.parent))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    return path


def pin(digest: str) -> ZstdPin:
    return ZstdPin(
        package="zstandard", version="1.2.3", file=f"{NAME}.tar.gz", sha256=digest, members=("zstd/zstd.c",)
    )


def test_the_pinned_file_is_fetched(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    pip_download(pin(hashlib.sha256(archive.read_bytes()).hexdigest()), tmp_path / "out")
    assert (tmp_path / "out" / archive.name).read_bytes() == archive.read_bytes()
    assert (tmp_path / "ran").exists()  # what the other test relies on


def test_code_of_another_file_does_not_run(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(RuntimeBuildError, match=r"another zstandard-1\.2\.3\.tar\.gz than the pinned one"):
        pip_download(pin("0" * 64), tmp_path / "out")
    assert not (tmp_path / "ran").exists()


def test_a_build_backend_other_than_the_pinned_one_does_not_run(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_BACKEND_SHA256", "0" * 64)
    (tmp_path / "out").mkdir()
    with pytest.raises(RuntimeBuildError, match=r"another setuptools==84\.2\.1 than the pinned one"):
        pip_download(pin(hashlib.sha256(archive.read_bytes()).hexdigest()), tmp_path / "out")
    assert not (tmp_path / "ran").exists()
