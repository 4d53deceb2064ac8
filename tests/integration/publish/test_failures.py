"""Publishers that are killed, servers that fail at every call, full disks: nothing half published, and the
same command again completes it."""

from __future__ import annotations

import os
import random
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aotforge.errors import OutputError, PublishError, TrustError
from aotforge.publish.keys import KeySet
from aotforge.publish.stores.directory import DirectoryStore
from aotforge.publish.stores.store import MissingError, ObjectStore, StoreError
from aotforge.publish.trust import trusted_index
from tests.support.publishing import make_release, publish, released_names
from tests.support.s3 import FAULTS, Server, Trouble, strike

MIB = 1 << 20


def _in_child(act: Callable[[], None]) -> int:
    """Exit status of a forked process that runs `act`; negative when a signal ended it."""
    child = os.fork()
    if not child:
        try:
            act()
        except BaseException:  # noqa: BLE001 - a child must never return into pytest
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _is_below(folder: str, event: str, arguments: tuple[object, ...]) -> bool:
    """Whether a system call is about a path below `folder`, also through a descriptor."""
    paths = [str(one) for one in arguments if isinstance(one, str | Path)]
    if event == "os.mkdir" and isinstance(arguments[-1], int) and arguments[-1] >= 0:
        paths = [f"/proc/self/fd/{arguments[-1]}/{paths[0]}"]
    return any(folder in os.path.realpath(Path(path).parent) for path in paths)


def _kill_at(store: ObjectStore, number: int, *, after: bool) -> None:
    """The process is killed at request `number` of S3, before or after the server has it; at system call
    `number` of a folder."""

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if isinstance(store, DirectoryStore):
        count = iter(range(1, 10**9))
        names = {"os.link", "os.rename", "os.remove", "os.mkdir", "tempfile.mkstemp", "os.chmod"}

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            if event in names and _is_below(store.url, event, arguments) and next(count) == number:
                die()

        sys.addaudithook(hook)
        return

    def act(call: int, request: object) -> None:
        if call == number:
            if after:
                store._client._endpoint.http_session.send(request)  # type: ignore[attr-defined]
            die()

    Trouble(store, act)  # type: ignore[arg-type]


def _survives_kills(
    make_store: Callable[[], ObjectStore],
    keys: KeySet,
    scratch: Path,
    release: Path,
    points: list[tuple[int, bool]],
) -> int:
    """Kills a publisher at each point, one after the other, in the same place; returns how many were
    killed."""
    killed = 0
    for number, after in points:

        def run(number: int = number, after: bool = after) -> None:
            store = make_store()
            _kill_at(store, number, after=after)
            publish(release, store, keys)

        status = _in_child(run)
        assert status in {0, -signal.SIGKILL}
        killed += status != 0
        names = released_names(make_store(), keys.roots[0], scratch / "trust")  # every byte of what is listed
        assert names in {("0.11.2b-r1",), ("0.11.2b-r1", "0.11.2b-r2")}
        if status == 0:
            break
    return killed


def _places(kind: str, server: Server | None, scratch: Path) -> Callable[[], ObjectStore]:
    if kind == "directory" or server is None:
        return lambda: DirectoryStore(scratch / "store")
    bucket = server.bucket()
    return lambda: server.store(bucket, attempts=3)


@pytest.mark.parametrize("kind", ["directory", "s3"])
@pytest.mark.parametrize("rounds", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_killed_publishers(
    kind: str,
    rounds: int,
    request: pytest.FixtureRequest,
    keys: KeySet,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """Each round is a new place: five publishers in a row are killed at random points, the last one
    completes the release."""
    noise = random.Random(int(os.environ.get("AOTFORGE_TEST_SEED", "1")))
    killed = 0
    for turn in range(rounds):
        scratch = tmp_path / str(turn)
        make_store = _places(kind, request.getfixturevalue("server") if kind == "s3" else None, scratch)
        size = 6 * MIB if kind == "s3" and not turn else 3000
        release = make_release(scratch / "r2", "0.11.2b-r2", size=size, rocm=("7.0",), packs=("amd-gfx908",))
        publish(make_release(scratch / "r1"), make_store(), keys)
        points = sorted(
            (noise.randint(2, 40 if kind == "s3" else 20), noise.random() < 0.5) for _ in range(5)
        )
        killed += _survives_kills(make_store, keys, scratch, release, points)
        publish(release, make_store(), keys)
        assert released_names(make_store(), keys.roots[0], scratch / "trust") == ("0.11.2b-r1", "0.11.2b-r2")
    assert killed >= 3 * rounds
    record_property("killed", killed)


def _calls(server: Server, keys: KeySet, release: Path, first: Path) -> int:
    store = server.store(server.bucket(), attempts=1)
    publish(first, store, keys)
    trouble = Trouble(store, lambda call, request: None)
    publish(release, store, keys)
    return trouble.calls


def _faults(total: int, step: int) -> Iterator[tuple[str, int]]:
    """Every fault at every call, or, by `step`, an even sample of them that has every fault."""
    everything = [(kind, number) for number in range(1, total + 1) for kind in FAULTS]
    yield from everything[::step]


@pytest.mark.parametrize("step", [61, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("no_pauses")
def test_every_call_fails(step: int, server: Server, keys: KeySet, tmp_path: Path) -> None:
    """From some call on nothing works any more: one clear error, what was published is as it was, and the
    same again completes it."""
    first = make_release(tmp_path / "r1", rocm=("7.0",), packs=("amd-gfx908",))
    release = make_release(tmp_path / "r2", "0.11.2b-r2", rocm=("7.0",), packs=("amd-gfx908",))
    total = _calls(server, keys, release, first)
    bucket = server.bucket()
    both = ("0.11.2b-r1", "0.11.2b-r2")
    for kind, number in _faults(total, step):
        prefix = f"{kind}-{number}"
        publish(first, server.store(bucket, prefix=prefix), keys)
        store = server.store(bucket, prefix=prefix, attempts=2)
        strike(store, kind, number, 10**9)
        try:
            publish(release, store, keys)
        except (PublishError, TrustError) as error:
            assert error.what and "\n" not in error.what, (kind, number)
        else:
            # the last calls only confirm; but a reported success must be one
            assert number > total - 8, (kind, number, total)
        working = server.store(bucket, prefix=prefix)
        names = released_names(working, keys.roots[0], tmp_path / "trust" / prefix)
        assert names in {both[:1], both}, (kind, number)
        publish(release, working, keys)
        assert released_names(working, keys.roots[0], tmp_path / "trust" / prefix) == both, (kind, number)


def test_a_folder_that_may_not_be_written(keys: KeySet, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises((PublishError, OutputError), match=r"file.*\n?"):
        publish(make_release(tmp_path / "r1"), DirectoryStore(tmp_path / "file"), keys)
    assert (tmp_path / "file").read_text() == "x"


def test_nothing_is_published_yet(server: Server, keys: KeySet, tmp_path: Path) -> None:
    for place in (DirectoryStore(tmp_path / "none"), server.store(server.bucket())):
        with pytest.raises(StoreError) as caught:
            trusted_index(place, keys.roots[0], tmp_path / "trust")
        assert type(caught.value) is MissingError
        assert "timestamp.json" in caught.value.what
