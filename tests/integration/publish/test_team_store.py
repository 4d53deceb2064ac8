"""Several publishers of one group in one folder store: in turn and at once."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aotforge.publish.keys import KeySet
from aotforge.publish.stores.directory import DirectoryStore
from aotforge.publish.stores.store import ErrorKind, StoreError
from tests.support.other_user import as_user
from tests.support.publishing import make_release, publish, released_names

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become two users of one group")

ALICE, BOB, DEVS = 64142, 64143, 64150


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can enter, with `store`, which is Alice's and has mode 2775 and the group."""
    made = Path(tempfile.mkdtemp(prefix="aotforge-test-", dir="/tmp"))
    made.chmod(0o755)
    (made / "store").mkdir()
    os.chown(made / "store", ALICE, DEVS)
    (made / "store").chmod(0o2775)
    yield made
    shutil.rmtree(made)


def act(user: int, action: Callable[[], object]) -> None:
    as_user(action, user=user, group=DEVS, umask=0o002)


def at_once(one: Callable[[], object], other: Callable[[], object]) -> None:
    """Alice does the one while Bob does the other; neither begins before both are ready."""
    ends = os.pipe(), os.pipe()

    def started(action: Callable[[], object], number: int) -> Callable[[], object]:
        def run() -> None:
            os.write(ends[number][1], b"x")
            os.read(ends[1 - number][0], 1)
            action()

        return run

    child = os.fork()
    if child == 0:
        status = 1
        try:
            act(ALICE, started(one, 0))
            status = 0
        finally:
            os._exit(status)
    try:
        act(BOB, started(other, 1))
    finally:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        for end in (*ends[0], *ends[1]):
            os.close(end)
    assert status == 0


def test_two_users_publish_in_turn_and_at_once(place: Path, keys: KeySet) -> None:
    releases = [make_release(place / f"r{number}", f"0.11.2b-r{number}") for number in range(1, 5)]
    # imports what the others may not read in root's environment
    publish(releases[0], DirectoryStore(place / "other"), keys)
    store = DirectoryStore(place / "store")
    act(ALICE, lambda: publish(releases[0], store, keys))
    act(BOB, lambda: publish(releases[1], store, keys))
    at_once(lambda: publish(releases[2], store, keys), lambda: publish(releases[3], store, keys))
    assert released_names(store, keys.roots[0], place / "trust") == tuple(
        f"0.11.2b-r{number}" for number in range(1, 5)
    )
    made = {path: path.stat() for path in (place / "store").rglob("*")}
    assert {status.st_uid for status in made.values()} == {ALICE, BOB}
    assert {status.st_gid for status in made.values()} == {DEVS}
    for path, status in made.items():
        assert stat.S_IMODE(status.st_mode) == (0o2775 if path.is_dir() else 0o664), path


def test_without_the_umask_of_a_team_the_error_names_it(place: Path) -> None:
    store = DirectoryStore(place / "store")
    as_user(lambda: store.put_if_absent("tuf/a", b"x"), user=ALICE, group=DEVS, umask=0o022)

    def write() -> None:
        with pytest.raises(StoreError) as caught:
            store.put_if_absent("tuf/b", b"x")
        assert caught.value.kind is ErrorKind.DENIED and str(place / "store" / "tuf") in caught.value.what
        assert "umask 002" in caught.value.hint

    act(BOB, write)
