"""Drop-ins where PyTorch belongs to others, to a group or to any user: they work, and undoing restores
owners and modes too."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from aotforge.deliver.dropin import apply
from aotforge.deliver.dropin.apply import STORE, drop_in, undo
from aotforge.deliver.dropin.inputs import TorchLib
from tests.support.other_user import as_user
from tests.support.torch_lib import make_release, make_torch, state

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")


@dataclass(frozen=True, kw_only=True)
class SetUp:
    """Who owns a PyTorch with these modes, who owns the folder above, and who drops a release in."""

    owner: tuple[int, int] = (1000, 1000)
    folders: int = 0o755
    files: int = 0o644
    above: tuple[int, int, int] = (0, 0, 0o755)
    user: tuple[int, int] = (1000, 1000)
    umask: int = 0o022


SET_UPS = {
    "root in a Jupyter container": SetUp(owner=(1000, 100), folders=0o2775, files=0o664, user=(0, 0)),
    "a colleague of the same group": SetUp(
        owner=(1000, 2000), folders=0o2775, files=0o664, user=(1001, 2000), umask=0o002
    ),
    "Debian's /usr/local": SetUp(
        owner=(0, 50), folders=0o2775, files=0o664, above=(0, 50, 0o2775), user=(0, 0)
    ),
    "below a folder of another user": SetUp(above=(1001, 1001, 0o755)),
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user can enter; pytest's own are for this user alone."""
    made = Path(tempfile.mkdtemp(prefix="aotforge-test-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def prepare(folder: Path, set_up: SetUp) -> TorchLib:
    (folder / "above").mkdir()
    torch = make_torch(folder / "above")
    for path in (torch.folder.parent, *torch.folder.parent.rglob("*")):
        os.chown(path, *set_up.owner)
        path.chmod(set_up.folders if path.is_dir() else set_up.files)
    os.chown(folder / "above", *set_up.above[:2])
    (folder / "above").chmod(set_up.above[2])
    return torch


def rights(folder: Path) -> dict[str, tuple[int | str, ...]]:
    """Owner, mode, group and content of everything below a folder."""
    return {
        str(path.relative_to(folder)): (
            *((status := path.lstat()).st_uid, status.st_mode, status.st_gid),
            path.read_text() if path.is_file() else "",
        )
        for path in folder.rglob("*")
    }


@root_only
@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("name", SET_UPS)
def test_in_and_out_again(folder: Path, name: str, links: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without hard links, which are copies where a file system has none."""
    set_up = SET_UPS[name]
    torch, source = prepare(folder, set_up), make_release(folder)
    before = rights(torch.folder.parent)
    if not links:
        monkeypatch.setattr(apply, "link_or_copy", shutil.copy2)

    def use() -> None:
        report = drop_in(source, torch)
        assert report.changes and not report.warnings
        assert state(torch) == source.release
        assert not drop_in(source, torch).changes
        undo(torch.folder)

    as_user(use, user=set_up.user[0], group=set_up.user[1], umask=set_up.umask)
    after = rights(torch.folder.parent)
    if set_up.user[0] not in {0, set_up.owner[0]}:  # only root can give a folder back to its owner
        before, after = ({name: entry[1:] for name, entry in all_.items()} for all_ in (before, after))
    assert after == before


def test_copies_have_the_modes_of_their_sources(tmp_path: Path) -> None:
    """A private file among PyTorch's images stays private; the release's library is executable as it was."""
    torch, source = make_torch(tmp_path), make_release(tmp_path)
    library = source.prefix / "lib" / source.soname
    library.chmod(0o751)
    private = torch.folder / "aotriton.images" / "amd-gfx90a" / "__signature__"
    private.chmod(0o600)
    private.parent.chmod(0o710)
    drop_in(source, torch)
    store = torch.folder / STORE
    assert (store / source.release / source.soname).stat().st_mode & 0o777 == 0o751
    kept = store / "originals" / "aotriton.images" / "amd-gfx90a"
    assert kept.stat().st_mode & 0o777 == 0o710
    assert (kept / "__signature__").stat().st_mode & 0o777 == 0o600
    undo(torch.folder)
    assert private.stat().st_mode & 0o777 == 0o600 and private.parent.stat().st_mode & 0o777 == 0o710
