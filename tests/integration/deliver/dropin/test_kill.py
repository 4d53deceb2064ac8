"""The drop-in killed at every one of its steps: one state is selected, and the next run completes or undoes
it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Self

import pytest

from aotforge.deliver.dropin import apply
from aotforge.deliver.dropin.apply import STORE, drop_in, undo
from aotforge.deliver.dropin.inputs import TorchLib
from tests.support.torch_lib import OLD, make_release, make_torch, state, tree

_scandir = os.scandir


class FilesFirst(Iterator["os.DirEntry[str]"]):
    """os.scandir in an order that file systems may have: a folder's files go before its folders."""

    def __init__(self, path: str | int = ".") -> None:
        with _scandir(path) as found:
            order = sorted(found, key=lambda one: (one.is_dir(follow_symlinks=False), one.name))
        self._entries = iter(order)

    def __next__(self) -> os.DirEntry[str]:
        return next(self._entries)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


def steps(action: Callable[[], object], kill_at: int) -> bool:
    """Runs `action` in a fork that exits at its file system operation number `kill_at`; True when it was
    killed."""
    child = os.fork()
    if child == 0:
        left = kill_at
        names = ("rename", "link", "symlink", "remove", "rmdir", "mkdir")
        changing = {"shutil.copyfile", *(f"os.{name}" for name in names)}

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal left
            if event in changing or (event == "open" and arguments[1] not in {"r", "rb"}):
                left -= 1
                if left < 0:
                    os._exit(9)

        sys.addaudithook(hook)
        os.scandir = FilesFirst  # type: ignore[assignment]
        try:
            action()
        except BaseException:  # noqa: BLE001 - a child of pytest must not return
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in {0, 9}
    return status == 9


def kill_at_every_step(
    tmp_path: Path,
    prepare: Callable[[Path], tuple[TorchLib, Callable[[], object]]],
    *,
    can_exchange: bool = True,
) -> int:
    """Kills the action at every one of its steps in turn, in new folders each time; returns the number of
    steps."""
    for number in range(1000):
        folder = tmp_path / str(number)
        folder.mkdir()
        torch, action = prepare(folder)
        if not steps(action, number):
            return number
        # one complete state is selected, and both next actions end in a complete state
        if can_exchange:
            assert state(torch) in {"original", "0.11.2b-r1", "0.11.2b-r2"}
        again = folder / "again"
        again.mkdir()
        if number % 2 and can_exchange:
            drop_in(make_release(again), torch)
            assert state(torch) == "0.11.2b-r1"
        undo(torch.folder)
        if (torch.folder / STORE).exists():  # it was killed before there was a record: nothing was linked
            assert not (torch.folder / STORE / "record.json").exists()
            assert not list((torch.folder / STORE).glob("*.old"))
            drop_in(make_release(folder / "third"), torch)
            undo(torch.folder)
        found = tree(torch.folder)
        expected = folder / "expected"
        expected.mkdir()
        assert found == tree(make_torch(expected).folder)
    raise AssertionError("the action does not end")


def test_links_among_the_originals_are_valid_at_every_moment(tmp_path: Path) -> None:
    source, number, killed = make_release(tmp_path), 0, True
    while killed:
        torch = make_torch(tmp_path / str(number))
        (torch.folder / "libaotriton_v2.so").unlink()
        (torch.folder / "libaotriton_v2.so").symlink_to(OLD)
        before = tree(torch.folder)
        killed = steps(partial(drop_in, source, torch), number)
        assert (torch.folder / "libaotriton_v2.so").read_text().startswith("library ")
        undo(torch.folder)
        if (torch.folder / STORE).exists():  # it was killed before its record
            shutil.rmtree(torch.folder / STORE)
        assert tree(torch.folder) == before
        number += 1
    assert number > 20


@pytest.fixture(params=[True, False])
def can_exchange(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether two entries can be exchanged in one step; on NFS they cannot."""
    if not request.param:
        monkeypatch.setattr(apply, "swap", lambda *_: False)
    return bool(request.param)


def test_a_kill_at_any_step_of_the_first_drop_in(tmp_path: Path, can_exchange: bool) -> None:
    def prepare(folder: Path) -> tuple[TorchLib, Callable[[], object]]:
        torch, source = make_torch(folder), make_release(folder)
        return torch, lambda: drop_in(source, torch)

    assert kill_at_every_step(tmp_path, prepare, can_exchange=can_exchange) > 20


def test_a_kill_at_any_step_of_a_change_of_release(tmp_path: Path) -> None:
    def prepare(folder: Path) -> tuple[TorchLib, Callable[[], object]]:
        torch, source = make_torch(folder), make_release(folder, "0.11.2b-r2")
        drop_in(make_release(folder), torch)
        return torch, lambda: drop_in(source, torch)

    assert kill_at_every_step(tmp_path, prepare) > 5


def test_a_kill_at_any_step_of_undoing(tmp_path: Path, can_exchange: bool) -> None:
    def prepare(folder: Path) -> tuple[TorchLib, Callable[[], object]]:
        torch = make_torch(folder)
        drop_in(make_release(folder), torch)
        return torch, lambda: undo(torch.folder)

    assert kill_at_every_step(tmp_path, prepare, can_exchange=can_exchange) > 10
