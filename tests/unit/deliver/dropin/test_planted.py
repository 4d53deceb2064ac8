"""Planted links and removed originals: nothing outside of the store is deleted or written."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from aotforge.deliver.dropin.apply import STORE, drop_in, undo
from aotforge.deliver.dropin.inputs import torch_version
from aotforge.errors import DropInError
from tests.support.torch_lib import OLD, make_release, make_torch, state, tree


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder of another program, with what the attack of the review removed."""
    folder = tmp_path / "victim"
    for name in (".ssh", "Documents", "aotriton.images", "0.11.2b-r1"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_text("of the victim")
    (folder / "libaotriton_v2.so.0.11.0").write_text("of the victim")
    return folder


def test_a_planted_link_in_place_of_the_store(tmp_path: Path, victim: Path) -> None:
    torch, source, before = make_torch(tmp_path), make_release(tmp_path), tree(victim)
    (torch.folder / STORE).symlink_to(victim)
    with pytest.raises(DropInError, match=r"\.aotforge-dropin is a link"):
        drop_in(source, torch)
    with pytest.raises(DropInError, match=r"\.aotforge-dropin is a link"):
        undo(torch.folder)
    assert tree(victim) == before and state(torch) == "original"


@pytest.mark.parametrize(
    "name", ["originals", "record.json", "current", ".dropin.lock", "0.11.2b-r1", "images.json"]
)
def test_planted_links_in_the_store(tmp_path: Path, victim: Path, name: str) -> None:
    torch, source, before = make_torch(tmp_path), make_release(tmp_path), tree(victim)
    (torch.folder / STORE).mkdir(mode=0o755)
    (torch.folder / STORE / name).symlink_to(victim / "new" if name == ".dropin.lock" else victim)
    with pytest.raises(DropInError, match="planted"):
        drop_in(source, torch)
    with pytest.raises(DropInError, match="planted"):
        undo(torch.folder)
    assert tree(victim) == before and state(torch) == "original"


def test_folders_that_the_record_does_not_name_stay(tmp_path: Path) -> None:
    torch = make_torch(tmp_path)
    drop_in(make_release(tmp_path, "0.11.2b-r1"), torch)
    (torch.folder / STORE / "Documents").mkdir()
    (torch.folder / STORE / "Documents" / "file").write_text("mine")
    drop_in(make_release(tmp_path, "0.11.2b-r2"), torch)
    assert not (torch.folder / STORE / "0.11.2b-r1").exists()
    undo(torch.folder)
    assert state(torch) == "original"
    assert tree(torch.folder / STORE) == {"Documents": "folder", "Documents/file": "644 mine"}


def test_undoing_without_the_originals_is_refused(tmp_path: Path) -> None:
    torch, source = make_torch(tmp_path), make_release(tmp_path)
    drop_in(source, torch)
    shutil.rmtree(torch.folder / STORE / "originals")
    before = tree(torch.folder)
    with pytest.raises(DropInError, match=f"own .*{OLD}.* cannot be restored") as error:
        undo(torch.folder)
    assert "reinstall PyTorch" in error.value.hint and tree(torch.folder) == before
    with pytest.raises(DropInError, match="cannot be restored"):
        drop_in(make_release(tmp_path, "0.11.2b-r2"), torch)


def test_links_without_their_store_are_reported(tmp_path: Path) -> None:
    torch, source = make_torch(tmp_path), make_release(tmp_path)
    drop_in(source, torch)
    shutil.rmtree(torch.folder / STORE)
    with pytest.raises(DropInError, match=r"cannot be restored: .* does not have its record") as error:
        undo(torch.folder)
    assert "reinstall PyTorch" in error.value.hint and OLD in error.value.what


def test_a_version_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    torch = make_torch(tmp_path)
    os.mkfifo(torch.folder.parent / "version.py")
    assert torch_version(torch.folder) == ""
