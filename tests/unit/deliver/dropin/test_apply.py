"""The drop-in on small files: the selected release after every step and after undoing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aotforge.base import files
from aotforge.base.files import output_lock
from aotforge.deliver.dropin import apply
from aotforge.deliver.dropin.apply import STORE, drop_in, undo
from aotforge.deliver.dropin.inputs import TorchLib
from aotforge.errors import DropInError, OutputBusyError, OutputError
from tests.support.other_user import as_other_user
from tests.support.torch_lib import NEW, OLD, make_release, make_torch, state, tree


def test_in_and_out_again(tmp_path: Path) -> None:
    torch, source = make_torch(tmp_path), make_release(tmp_path)
    before = tree(torch.folder)
    report = drop_in(source, torch)
    assert state(torch) == source.release
    assert any("original is kept" in change for change in report.changes)
    assert (torch.folder / "libaotriton_v2.so.0.11.1").read_text() == f"library {source.release}"
    assert undo(torch.folder).changes
    assert tree(torch.folder) == before
    assert undo(torch.folder).changes == ()
    with pytest.raises(DropInError, match="not a folder"):
        undo(torch.folder / "mistyped")


def test_again_changes_nothing_and_another_release_takes_over(tmp_path: Path) -> None:
    torch, first, second = make_torch(tmp_path), make_release(tmp_path), make_release(tmp_path, "0.11.2b-r2")
    before = tree(torch.folder)
    drop_in(first, torch)
    once = tree(torch.folder)
    assert drop_in(first, torch).changes == ()
    assert tree(torch.folder) == once
    drop_in(second, torch)
    assert state(torch) == second.release
    assert not (torch.folder / STORE / first.release).exists()
    undo(torch.folder)
    assert tree(torch.folder) == before


def test_dry_run_reports_the_same_and_changes_nothing(tmp_path: Path) -> None:
    torch, source = make_torch(tmp_path), make_release(tmp_path)
    before = tree(torch.folder)
    planned = drop_in(source, torch, dry_run=True)
    assert tree(torch.folder) == before
    assert drop_in(source, torch).changes == planned.changes
    done = tree(torch.folder)
    assert undo(torch.folder, dry_run=True).changes
    assert tree(torch.folder) == done


def test_a_damaged_copy_is_replaced(tmp_path: Path) -> None:
    torch, source = make_torch(tmp_path), make_release(tmp_path)
    drop_in(source, torch)
    (torch.folder / STORE / source.release / NEW).write_text("library damaged")
    assert drop_in(source, torch).changes
    assert state(torch) == source.release


def test_after_a_reinstalled_pytorch_its_files_are_the_originals(tmp_path: Path) -> None:
    torch, source = make_torch(tmp_path), make_release(tmp_path)
    drop_in(source, torch)
    (torch.folder / OLD).unlink()
    (torch.folder / OLD).write_text("library reinstalled")
    drop_in(source, torch)
    assert state(torch) == source.release
    undo(torch.folder)
    assert (torch.folder / OLD).read_text() == "library reinstalled"


def upgrade(torch: TorchLib) -> dict[str, str]:
    """What pip does for another version: what it installed goes, what it brings is written through folders'
    links. Returns the new files."""
    for name in ("libaotriton_v2.so", OLD):
        (torch.folder / name).unlink()
    (torch.folder / "aotriton.images" / "amd-gfx90a" / "__signature__").unlink(missing_ok=True)
    new = {
        "libaotriton_v2.so": "library upgraded",
        NEW: "library upgraded",
        "aotriton.images/amd-gfx90a/__signature__": "images upgraded",
        "aotriton.images/amd-gfx908/__signature__": "images upgraded",
        "aotriton.images/amd-gfx942/__signature__": "images upgraded",
    }
    for name, text in new.items():
        (torch.folder / name).parent.mkdir(exist_ok=True)
        (torch.folder / name).unlink(missing_ok=True)
        (torch.folder / name).write_text(text)
    return new


def contents(torch: TorchLib) -> dict[str, str]:
    """Of AOTriton in torch/lib, without links of the drop-in that are broken."""
    return {
        path.relative_to(torch.folder).as_posix(): path.read_text()
        for path in torch.folder.rglob("*")
        if path.is_file() and STORE not in path.parts and path.name != "libtorch_hip.so"
    }


@pytest.mark.parametrize("again", ["", "0.11.2b-r1", "0.11.2b-r2"])
@pytest.mark.parametrize("had_images", [True, False])
def test_an_upgraded_pytorch_keeps_its_own_library_and_images(
    tmp_path: Path, again: str, had_images: bool
) -> None:
    """An upgrade goes through the link to our images; undoing must not restore the old PyTorch's images."""
    torch, source = make_torch(tmp_path), make_release(tmp_path)
    if not had_images:
        shutil.rmtree(torch.folder / "aotriton.images")
    drop_in(source, torch)
    new = upgrade(torch)
    if again:
        source = source if again == source.release else make_release(tmp_path, again)
        drop_in(source, TorchLib(folder=torch.folder, version="2.11.0", needed=(NEW,)))
        assert state(torch) == again
    undo(torch.folder)
    assert contents(torch) == new


@pytest.mark.parametrize("again", ["", "0.11.2b-r1", "0.11.2b-r2"])
@pytest.mark.parametrize(
    "removed", [("aotriton.images", OLD), ("aotriton.images", OLD, NEW, "libaotriton_v2.so")]
)
def test_originals_whose_links_were_removed_by_hand_are_restored(
    tmp_path: Path, again: str, removed: tuple[str, ...]
) -> None:
    """Their kept copies are the only ones."""
    torch = make_torch(tmp_path)
    before = tree(torch.folder)
    drop_in(make_release(tmp_path), torch)
    for name in removed:
        (torch.folder / name).unlink(missing_ok=True)
    if again:
        drop_in(make_release(tmp_path / "again", again), torch)
        assert state(torch) == again
    report = undo(torch.folder)
    assert f"{OLD}: the original" in report.changes
    assert tree(torch.folder) == before


def test_copies_that_a_killed_run_left_are_removed(tmp_path: Path) -> None:
    torch = make_torch(tmp_path)
    before = tree(torch.folder)
    drop_in(make_release(tmp_path), torch)
    for end in (".new", ".new.old"):
        left = torch.folder / STORE / f"0.11.2b-r1{end}"
        left.mkdir()
        (left / NEW).write_text("a copy of a release")
    undo(torch.folder)
    assert tree(torch.folder) == before


def test_refusals_leave_everything(tmp_path: Path) -> None:
    torch, source = make_torch(tmp_path), make_release(tmp_path)
    before = tree(torch.folder)
    other = TorchLib(folder=torch.folder, version="2.8.0", needed=("libaotriton_v2.so.0.10.0",))
    with pytest.raises(DropInError, match=r"0\.10\.0"):
        drop_in(source, other)
    with output_lock(torch.folder / STORE / "dropin"), pytest.raises(OutputBusyError):
        drop_in(source, torch)
    (torch.folder / STORE / ".dropin.lock").unlink()
    (torch.folder / STORE).rmdir()
    assert tree(torch.folder) == before


def test_a_folder_that_cannot_be_written() -> None:
    def check(folder: Path) -> None:
        torch, source = make_torch(folder), make_release(folder)
        torch.folder.chmod(0o555)
        try:
            with pytest.raises(OutputError):
                drop_in(source, torch)
        finally:
            torch.folder.chmod(0o755)
        assert state(torch) == "original"

    as_other_user(check)


def _make(path: Path, kind: str, text: str) -> None:
    if kind == "file":
        path.write_text(text)
    elif kind == "link":
        path.symlink_to(text)
    elif kind == "folder":
        path.mkdir()
        (path / "inside").write_text(text)


@pytest.mark.parametrize("old", ["nothing", "file", "link", "folder"])
@pytest.mark.parametrize("new", ["file", "link", "folder"])
@pytest.mark.parametrize("can_exchange", [True, False])
def test_anything_is_replaced_by_anything(
    tmp_path: Path, old: str, new: str, can_exchange: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link to a folder is not followed, and nothing is left beside it."""
    monkeypatch.setattr(apply, "swap", lambda *paths: can_exchange and files.swap(*paths))
    _make(tmp_path / "victim", "folder", "kept")
    _make(tmp_path / "it", old, "victim")
    _make(tmp_path / "it.new", new, "new")
    (tmp_path / "expected").mkdir()
    _make(tmp_path / "expected" / "it", new, "new")
    _make(tmp_path / "expected" / "victim", "folder", "kept")
    expected = tree(tmp_path / "expected")
    shutil.rmtree(tmp_path / "expected")
    apply._replace(tmp_path / "it.new", tmp_path / "it")
    assert tree(tmp_path) == expected


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"format": 9}',
        '{"format": 2, "release": "x", "names": ["../passwd"], "staged": []}',
        '{"format": 2, "release": "x", "names": [], "staged": ["../../victim"]}',
        '{"format": 2, "release": "..", "names": [], "staged": []}',
    ],
)
def test_a_damaged_record_is_refused(tmp_path: Path, text: str) -> None:
    torch, source = make_torch(tmp_path), make_release(tmp_path)
    drop_in(source, torch)
    (torch.folder / STORE / "record.json").write_text(text)
    with pytest.raises(DropInError, match="record"):
        undo(torch.folder)
    assert state(torch) == source.release
