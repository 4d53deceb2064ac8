"""Files of a checkout that the console wheel has."""

from pathlib import Path

from aotforge.release.console_wheel import _data, _package


def test_hidden_files_and_folders_are_left_out(tmp_path: Path) -> None:
    for name in (
        "aotforge/module.py",
        "aotforge/.editor/key.pem",
        "aotforge/.hidden",
        "manifests/one.yaml",
        "compat/.old/key.pem",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    found = [name for name, _ in (*_package(tmp_path), *_data(tmp_path))]
    assert found == ["aotforge/module.py", "aotforge/data/manifests/one.yaml"]
