"""Sources of dl, and the error of each failure."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from aotforge.errors import ManifestError, RuntimeBuildError, ToolchainError
from aotforge.library.sources import DLFCN_VARIABLE, DlManifest, dl_source, load_dl_manifest
from tests.support.dl import original_manifest
from tests.support.slow_servers import slow_server

ROOT = Path(__file__).parents[3]
TOP = "dlfcn-win32-1.4.2"


def archive(path: Path, *names: str) -> DlManifest:
    """A pinned archive of small files at `path`."""
    with tarfile.open(path, "w:gz") as tar:
        for name in names or ("src/dlfcn.c", "src/dlfcn.h", "COPYING"):
            info = tarfile.TarInfo(f"{TOP}/{name}")
            info.size = len(name)
            tar.addfile(info, io.BytesIO(name.encode()))
    return manifest(str(path), hashlib.sha256(path.read_bytes()).hexdigest())


def manifest(source: str, sha256: str) -> DlManifest:
    pin = {"version": "1.4.2", "source": source, "sha256": sha256}
    return DlManifest.model_validate({"schema": 1, "dlfcn_win32": pin})


def source(tmp_path: Path, chosen: DlManifest, **environment: str) -> Any:
    return dl_source(
        tmp_path, cache=tmp_path / "cache", folder=tmp_path / "out", environment=environment, manifest=chosen
    )


def test_our_own_unless_the_user_chooses(tmp_path: Path) -> None:
    assert load_dl_manifest(ROOT / "manifests").dlfcn_win32 is None
    chosen = dl_source(ROOT, cache=tmp_path, folder=tmp_path / "out", environment={})
    assert chosen.original is None and not (tmp_path / "out").exists()


def test_the_pin_of_the_page_is_that_of_the_manifest() -> None:
    pin = original_manifest().dlfcn_win32
    assert pin is not None
    assert f"sha256: {pin.sha256}\n" in (ROOT / "docs" / "windows.md").read_text(encoding="utf-8")


def test_the_commented_pin_is_a_valid_choice(tmp_path: Path) -> None:
    text = (ROOT / "manifests" / "dl.yaml").read_text()
    example = text[text.index("# dlfcn_win32:") :].replace("# ", "").replace("#", "")
    (tmp_path / "dl.yaml").write_text(f"schema: 1\n{example}")
    pin = load_dl_manifest(tmp_path).dlfcn_win32
    assert pin is not None and pin.version == "1.4.2"
    (tmp_path / "dl.yaml").write_text(f"schema: 1\n{example.replace('sha256', 'sha1')}")
    with pytest.raises(ManifestError, match="sha1"):
        load_dl_manifest(tmp_path)


@pytest.mark.parametrize("spelling", ["absolute", "relative", "URL", "variable"])
def test_a_pinned_archive_is_unpacked_from_anywhere(tmp_path: Path, spelling: str) -> None:
    file = tmp_path / "with space.tar.gz"
    digest = archive(file).dlfcn_win32.sha256  # type: ignore[union-attr]
    named = {
        "absolute": str(file),
        "relative": file.name,
        "URL": file.as_uri(),
        "variable": "https://nowhere.invalid/x",
    }
    environment = {DLFCN_VARIABLE: str(file)} if spelling == "variable" else {}
    chosen = source(tmp_path, manifest(named[spelling], digest), **environment)
    assert chosen.name == "dlfcn-win32 1.4.2"
    assert {path.name: path.read_text() for path in chosen.original.iterdir()} == {
        "dlfcn.c": "src/dlfcn.c", "dlfcn.h": "src/dlfcn.h", "COPYING": "COPYING",
    }  # fmt: skip
    file.unlink()
    source(tmp_path, manifest(named[spelling], digest))  # kept in the cache


def test_other_bytes_and_missing_files_are_refused(tmp_path: Path) -> None:
    good = archive(tmp_path / "good.tar.gz", "src/dlfcn.c", "src/dlfcn.h")
    assert not (source(tmp_path, good).original / "COPYING").exists()
    with pytest.raises(RuntimeBuildError, match=r"is not the pinned dlfcn-win32-1\.4\.2\.tar\.gz") as wrong:
        source(tmp_path, manifest("good.tar.gz", "0" * 64))
    assert "manifests/dl.yaml" in wrong.value.hint
    with pytest.raises(ToolchainError, match="cannot be fetched") as missing:
        source(tmp_path, manifest("nowhere.tar.gz", "1" * 64))
    assert DLFCN_VARIABLE in missing.value.hint
    with pytest.raises(RuntimeBuildError, match=r"src/dlfcn\.h"):
        source(tmp_path, archive(tmp_path / "half.tar.gz", "src/dlfcn.c"))
    (tmp_path / "text.tar.gz").write_text("no archive")
    text = hashlib.sha256(b"no archive").hexdigest()
    with pytest.raises(RuntimeBuildError, match="cannot be unpacked"):
        source(tmp_path, manifest("text.tar.gz", text))


def test_a_server_that_answers_garbage(tmp_path: Path) -> None:
    with (
        slow_server(b"garbage not http\r\n\r\n", b"", cut=0) as bad,
        pytest.raises(ToolchainError, match="cannot be fetched: garbage not http"),
    ):
        source(tmp_path, manifest(f"{bad}/x.tar.gz", "0" * 64))
