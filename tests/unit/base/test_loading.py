"""Manifests that are wrong name file, line, key and the nearest known key."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aotforge.base.architectures import Architectures, load_profiles
from aotforge.base.manifest_reader import load
from aotforge.errors import ManifestError
from tests.support.families import PROJECT

_GOOD = (PROJECT / "manifests" / "architectures.yaml").read_text()


def _load(tmp_path: Path, text: str) -> Architectures:
    path = tmp_path / "architectures.yaml"
    path.write_text(text)
    return load(path, Architectures)


def _line(text: str, fragment: str) -> int:
    return text[: text.index(fragment)].count("\n") + 1


@pytest.mark.parametrize(
    ("old", "new", "message", "nearest"),
    [
        ("wavefront: 64", "wavefrnt: 64", "amd.gfx908.wavefrnt: unknown key", "wavefront"),
        ("wavefront: 64", "wavefront: 48", "amd.gfx908.wavefront", "found 48"),
        ("wavefront: 64", "wavefront: '64'", "amd.gfx908.wavefront", "found '64'"),
        ("lds_bytes: 65536", "lds_bytes: -1", "amd.gfx908.lds_bytes", "found -1"),
        ("lds_bytes: 65536", "lds_bytes: 65536.5", "amd.gfx908.lds_bytes", "found 65536.5"),
        ("vgprs: 256", "vgprs: true", "amd.gfx908.vgprs", "found True"),
        ("matrix: MFMA", "matrix: [MFMA]", "amd.gfx908.matrix", "MFMA"),
        ("schema: 1", "schema: 2", "schema", "found 2"),
        ("amd:", "adm:", "adm: unknown key", "amd"),
        ("pack: amd-gfx908", "pack: ../../etc", "amd.gfx908.pack", "found"),
        ("simds_per_cu: 4", "simds_per_cu: 4\n    simds_per_cu: 4", "duplicate key", ""),
    ],
)
def test_complaints_are_precise(tmp_path: Path, old: str, new: str, message: str, nearest: str) -> None:
    text = _GOOD.replace(old, new, 1)
    line = _line(text, new) + new.count("\n")
    with pytest.raises(ManifestError) as caught:
        _load(tmp_path, text)
    assert caught.value.what.startswith(f"{tmp_path / 'architectures.yaml'}:{line}: ")
    assert message in caught.value.what
    assert nearest in str(caught.value)
    assert caught.value.exit_code == 4


def test_a_missing_key_points_at_its_mapping(tmp_path: Path) -> None:
    text = _GOOD.replace("    wavefront: 64\n", "", 1)
    with pytest.raises(ManifestError) as caught:
        _load(tmp_path, text)
    assert caught.value.what.startswith(f"{tmp_path / 'architectures.yaml'}:{_line(text, 'gfx908:')}: ")
    assert "amd.gfx908.wavefront: required key is missing" in caught.value.what


@pytest.mark.parametrize(
    ("text", "line"),
    [("schema: 1\na: [", 2), ("a: b: c\n", 1), ("\tx: 1\n", 1), ("a: 1\n\x01", 2), ("- 1\n", 1), ("", 1)],
)
def test_malformed_yaml_names_the_line(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(ManifestError, match=rf"architectures\.yaml:{line}: "):
        _load(tmp_path, text)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="No such file"):
        load_profiles(tmp_path)
    (tmp_path / "profiles.yaml").write_bytes(b"schema: \xff\n")
    with pytest.raises(ManifestError, match="not UTF-8"):
        load_profiles(tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(st.data())
def test_whatever_is_in_the_file_the_answer_is_a_model_or_a_manifest_error(
    tmp_path: Path, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(_GOOD)))
    end = data.draw(st.integers(start, min(len(_GOOD), start + 60)))
    text = _GOOD[:start] + data.draw(st.text(max_size=20)) + _GOOD[end:]
    path = tmp_path / "architectures.yaml"
    path.write_bytes(text.encode("utf-8", "replace"))
    try:
        load(path, Architectures)
    except ManifestError as error:
        assert error.what.startswith(str(path))
