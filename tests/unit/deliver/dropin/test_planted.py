"""Planted links, strangers' folders and removed originals: nothing outside of the store is deleted or written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from aotforge.base import cache_trust
from aotforge.deliver.dropin.apply import drop_in, undo
from aotforge.deliver.dropin.inputs import TorchLib, UnpackedRelease, torch_version
from aotforge.deliver.dropin.store import STORE
from aotforge.errors import AotforgeError, DropInError
from tests.support.torch_lib import OLD, allowed, make_release, make_torch, state, tree


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
        drop_in(source, torch, check=allowed)
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
        drop_in(source, torch, check=allowed)
    with pytest.raises(DropInError, match="planted"):
        undo(torch.folder)
    assert tree(victim) == before and state(torch) == "original"


def test_folders_that_the_record_does_not_name_stay(tmp_path: Path) -> None:
    torch = make_torch(tmp_path)
    drop_in(make_release(tmp_path, "0.11.2b-r1"), torch, check=allowed)
    (torch.folder / STORE / "Documents").mkdir()
    (torch.folder / STORE / "Documents" / "file").write_text("mine")
    drop_in(make_release(tmp_path, "0.11.2b-r2"), torch, check=allowed)
    assert not (torch.folder / STORE / "0.11.2b-r1").exists()
    undo(torch.folder)
    assert state(torch) == "original"
    assert tree(torch.folder / STORE) == {"Documents": "folder", "Documents/file": "644 mine"}


def test_a_store_that_others_may_write_is_refused(tmp_path: Path) -> None:
    torch, source = make_torch(tmp_path), make_release(tmp_path)
    (torch.folder / STORE).mkdir()
    (torch.folder / STORE).chmod(0o777)
    with pytest.raises(DropInError, match="777: other users"):
        drop_in(source, torch, check=allowed)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_store_of_another_user_is_refused(tmp_path: Path) -> None:
    torch, source = make_torch(tmp_path), make_release(tmp_path)
    (torch.folder / STORE).mkdir(mode=0o755)
    os.chown(torch.folder / STORE, 64042, 64042)
    with pytest.raises(DropInError, match="belongs to user 64042, not to user 0"):
        drop_in(source, torch, check=allowed)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_the_store_is_readable_by_all_and_writable_by_its_user_under_any_umask(
    tmp_path: Path, mask: int
) -> None:
    torch, source = make_torch(tmp_path), make_release(tmp_path)
    before = os.umask(mask)
    try:
        drop_in(source, torch, check=allowed)
    finally:
        os.umask(before)
    assert (torch.folder / STORE / "originals").stat().st_mode & 0o777 == 0o755
    for path in (torch.folder / STORE).rglob("*"):
        if not path.is_symlink() and "originals" not in path.parts and not path.name.startswith("."):
            assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() or ".so" in path.name else 0o644), (
                path
            )


def test_undoing_without_the_originals_is_refused(tmp_path: Path) -> None:
    torch, source = make_torch(tmp_path), make_release(tmp_path)
    drop_in(source, torch, check=allowed)
    shutil.rmtree(torch.folder / STORE / "originals")
    before = tree(torch.folder)
    with pytest.raises(DropInError, match=f"own .*{OLD} cannot be restored") as error:
        undo(torch.folder)
    assert "reinstall PyTorch" in error.value.hint and tree(torch.folder) == before
    # a repeated drop-in does not forget what PyTorch had
    drop_in(make_release(tmp_path, "0.11.2b-r2"), torch, check=allowed)
    with pytest.raises(DropInError, match="cannot be restored"):
        undo(torch.folder)


def test_links_without_their_store_are_reported(tmp_path: Path) -> None:
    torch, source = make_torch(tmp_path), make_release(tmp_path)
    drop_in(source, torch, check=allowed)
    shutil.rmtree(torch.folder / STORE)
    with pytest.raises(DropInError, match="links of a drop-in without its record") as error:
        undo(torch.folder)
    assert "reinstall PyTorch" in error.value.hint and OLD in error.value.what


def test_messages_have_the_callers_path(tmp_path: Path) -> None:
    torch, source = make_torch(tmp_path), make_release(tmp_path)
    drop_in(source, torch, check=allowed)
    (torch.folder / STORE / "record.json").write_text("{")
    with pytest.raises(AotforgeError) as error:
        undo(torch.folder)
    assert str(torch.folder / STORE) in str(error.value) and "/proc/" not in str(error.value)


def test_a_store_that_is_exchanged_after_it_was_looked_at(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was opened is checked, not only the name: also where another user can put a folder there between two calls."""
    torch, source, before = make_torch(tmp_path), make_release(tmp_path), tree(victim)
    drop_in(source, torch, check=allowed)
    planted = tmp_path / "planted"
    planted.mkdir()
    planted.chmod(0o777)
    (planted / "0.11.2b-r1").symlink_to(victim)
    plain = os.open

    def exchange_first(path: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == STORE and planted.exists():
            (torch.folder / STORE).rename(tmp_path / "checked")
            planted.rename(torch.folder / STORE)
        return plain(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", exchange_first)
    with pytest.raises(DropInError, match="777: other users"):
        drop_in(make_release(tmp_path, "0.11.2b-r2"), torch, check=allowed)
    assert not planted.exists() and tree(victim) == before


ACTIONS: dict[str, Callable[[TorchLib, UnpackedRelease], object]] = {
    "drop-in": lambda torch, source: drop_in(source, torch, check=allowed),
    "dry run": lambda torch, source: drop_in(source, torch, check=allowed, dry_run=True),
    "undo": lambda torch, source: undo(torch.folder),
}
every_action = pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")


def test_a_folder_that_is_exchanged_while_it_is_backed_up(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listed folder was exchanged by a link: files of a closed folder became links that all can read."""
    torch, source = make_torch(tmp_path), make_release(tmp_path)
    images, plain = torch.folder / "aotriton.images", os.makedirs
    images.chmod(0o777)

    def exchange(path: Any, *arguments: Any, **named: Any) -> None:
        """copytree has listed a folder when it makes the copy's, and enters what it listed afterwards."""
        plain(path, *arguments, **named)
        if Path(path).name == f"{images.name}.new":
            (images / "amd-gfx90a").rename(tmp_path / "aside")
            (images / "amd-gfx90a").symlink_to(victim)

    with monkeypatch.context() as patch, suppress(DropInError):
        patch.setattr(os, "makedirs", exchange)
        drop_in(source, torch, check=allowed)
    assert "of the victim" not in str(tree(torch.folder))


@root_only
@every_action
@pytest.mark.parametrize("dropped_in", [False, True])
def test_a_torch_lib_of_another_user_is_refused(
    tmp_path: Path, action: Callable[[TorchLib, UnpackedRelease], object], dropped_in: bool
) -> None:
    torch, source = make_torch(tmp_path), make_release(tmp_path)
    if dropped_in:
        drop_in(make_release(tmp_path, "0.11.2b-r2"), torch, check=allowed)
    before = tree(torch.folder)
    os.chown(torch.folder, 64042, 64042)
    with pytest.raises(DropInError, match="torch/lib belongs to user 64042, not to user 0") as error:
        action(torch, source)
    assert error.value.hint == "run this as user 64042" and tree(torch.folder) == before


@root_only
@every_action
@pytest.mark.parametrize("place", ["aotriton.images", "aotriton.images/amd-gfx90a", ".."])
def test_folders_of_another_user_in_and_above_torch_lib_are_refused(
    tmp_path: Path, action: Callable[[TorchLib, UnpackedRelease], object], place: str
) -> None:
    torch, source = make_torch(tmp_path), make_release(tmp_path)
    os.chown(torch.folder / place, 64042, 64042)
    with pytest.raises(DropInError, match="belongs to user 64042"):
        action(torch, source)
    assert state(torch) == "original" and not (torch.folder / STORE).exists()


@every_action
@pytest.mark.parametrize("mode", [0o777, 0o1777])
@pytest.mark.parametrize("place", [".", "aotriton.images", "aotriton.images/amd-gfx90a"])
def test_folders_of_torch_lib_that_others_can_write_are_refused(
    tmp_path: Path, action: Callable[[TorchLib, UnpackedRelease], object], place: str, mode: int
) -> None:
    (tmp_path / "a b").mkdir()
    torch, source = make_torch(tmp_path / "a b"), make_release(tmp_path)
    (torch.folder / place).chmod(mode)
    with pytest.raises(DropInError, match=f"mode {mode:o}: others") as error:
        action(torch, source)
    assert f"chmod -R go-w '{torch.folder}'" in error.value.hint
    assert state(torch) == "original" and not (torch.folder / STORE).exists()


@every_action
def test_a_folder_of_the_store_that_others_can_write_is_refused(
    tmp_path: Path, action: Callable[[TorchLib, UnpackedRelease], object]
) -> None:
    """An installer that replaces PyTorch makes folders there with its caller's umask, through the link."""
    torch, source = make_torch(tmp_path), make_release(tmp_path)
    drop_in(source, torch, check=allowed)
    (torch.folder / "aotriton.images" / "amd-gfx90a").mkdir()
    (torch.folder / "aotriton.images" / "amd-gfx90a").chmod(0o777)
    with pytest.raises(DropInError, match="amd-gfx90a has mode 777: others"):
        action(torch, source)


def test_a_group_of_the_user_alone_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As umask 002 makes folders where every user has a group."""
    torch, source = make_torch(tmp_path), make_release(tmp_path)
    for path in (torch.folder, *torch.folder.rglob("*")):
        path.chmod(path.stat().st_mode | 0o020)
    before = tree(torch.folder)
    monkeypatch.setattr(cache_trust, "_is_private", lambda group, user: True)
    drop_in(source, torch, check=allowed)
    undo(torch.folder)
    assert tree(torch.folder) == before
    monkeypatch.setattr(cache_trust, "_is_private", lambda group, user: False)
    with pytest.raises(DropInError, match="mode 775: others"):
        drop_in(source, torch, check=allowed)


def test_a_version_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    torch = make_torch(tmp_path)
    os.mkfifo(torch.folder.parent / "version.py")
    assert torch_version(torch.folder) == ""
