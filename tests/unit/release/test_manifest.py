"""The release manifest: the committed one is sound, and a wrong one is refused with file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.errors import ManifestError, UnknownNameError
from aotforge.release.model import load_release_manifest, member_time

MANIFEST = Path(__file__).parents[3] / "manifests" / "release.yaml"


def changed(tmp_path: Path, old: str, new: str) -> Path:
    text = MANIFEST.read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "release.yaml"
    path.write_text(text.replace(old, new), encoding="utf-8")
    return path


def test_committed_manifest() -> None:
    manifest = load_release_manifest(MANIFEST)
    assert manifest.name == "0.11.2b-r1"
    assert manifest.soname == "libaotriton_v2.so.0.11.2"
    # versions that PyTorch 2.9 to 2.12 may request
    assert {"6.2", "6.3", "6.4", "7.0", "7.1", "7.2"} <= set(manifest.rocm)


def test_other_levels() -> None:
    manifest = load_release_manifest(MANIFEST)
    assert manifest.at(None) is manifest is manifest.at("0.11.2b") is manifest.at("0.11.2b-r1")
    later = load_release_manifest(MANIFEST, "0.13b")
    assert (later.name, later.soname) == ("0.13b-r1", "libaotriton_v2.so.0.13.0")
    assert later.other_names == ("libaotriton_v2.so.0.13.1", "libaotriton_v2.so.0.13.50")
    assert later == manifest.at("0.13b-r1")
    assert later.compressor == manifest.compressor
    for unknown in ("0.13b-r2", "0.10b", "../x"):
        with pytest.raises(UnknownNameError, match=r"cannot be made[^$]*0\.14\.2b"):
            manifest.at(unknown)


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("\nrevision: 1", "\nrevision: 0", "revision"),
        ("\nrevision: 1", "\nrevisoin: 1", "revisoin: unknown key"),
        ("soname: libaotriton_v2.so.0.11.2", "soname: libaotriton_v2.so.0.11.3", "not that of 0.11.2b"),
        ("api_level: 0.11.2b", "api_level: ../0.11.2b", "api_level"),
        ("soname: libaotriton_v2.so.0.11.2", "soname: libaotriton_v2.so", "soname"),
        ("libaotriton_v2.so.0.11.0, ", "libaotriton_v2.so.0.11.2, ", "listed twice"),
        ("manylinux: manylinux_2_28", "manylinux: linux", "manylinux"),
        ('"6.2", ', '"6.2.1", ', "rocm.0"),
        ("level: 19 ", "level: 23 ", "compressor.level"),
        ("dictionary_bytes: ", "dictionary_bytes: 99", "compressor.dictionary_bytes"),
    ],
)
def test_wrong_manifest_is_refused(tmp_path: Path, old: str, new: str, key: str) -> None:
    path = changed(tmp_path, old, new)
    with pytest.raises(ManifestError, match=rf"release\.yaml:\d+: .*{key}"):
        load_release_manifest(path)


def test_source_date_epoch() -> None:
    manifest = load_release_manifest(MANIFEST)
    assert member_time(manifest, {}) == manifest.epoch
    assert member_time(manifest, {"SOURCE_DATE_EPOCH": "12"}) == 12
    for wrong in ("-1", "soon", "1.5", "8589934592", "٣"):
        with pytest.raises(ManifestError, match="SOURCE_DATE_EPOCH"):
            member_time(manifest, {"SOURCE_DATE_EPOCH": wrong})
