"""A release made again from a clone of its repository and an empty cache; minutes, because every image is compiled and verified."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.checkouts import HOME, invoke
from tests.e2e.released import RELEASE, User, make_user
from tests.support.rootfs import cache, target
from tests.support.s3 import Server

pytestmark = [pytest.mark.compiler, pytest.mark.slow]


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """Who has released 0.11.2b-r1 and committed its record."""
    folder = tmp_path_factory.mktemp("user")
    for root in ("rocm-kernels", "rocm-runtime"):
        target("bubblewrap", folder, root)
    made = make_user(folder, Server(url="http://127.0.0.1:1"), bucket="none")
    made.release()
    made.commit("the record of 0.11.2b-r1")
    yield made


def again(user: User, clone: Path, *arguments: str) -> tuple[int, str, str]:
    """`release.reproduce` in a clone, with an empty cache but for the roots of containers."""
    if not clone.exists():
        user.git("clone", "--quiet", str(user.checkout), str(clone))
    folder = clone.parent / "cache"
    folder.mkdir(exist_ok=True)
    if not (folder / "containers").is_symlink():
        (folder / "containers").symlink_to(cache() / "containers")
    settings = {"AOTFORGE_HOME": str(HOME), "AOTFORGE_CACHE": str(folder)}
    done = invoke(clone, "release.reproduce", RELEASE, *arguments, env=settings, check=False)
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["containers"]
    return done.returncode, done.stdout, done.stderr


def test_the_same_digests(user: User, tmp_path: Path) -> None:
    status, out, err = again(user, tmp_path / "clone", "--json")
    assert status == 0, err
    done = json.loads(out)
    assert (done["compiled"], len(done["archives"])) == (18, 8)


def test_another_source_is_found_and_listed_by_member(user: User, tmp_path: Path) -> None:
    """The record names a commit whose licence has a line more."""
    clone = tmp_path / "clone"
    user.git("clone", "--quiet", str(user.checkout), str(clone))
    other = User(checkout=clone, folder=user.folder, server=user.server, bucket=user.bucket)
    (clone / "LICENSE").write_text((clone / "LICENSE").read_text() + "\nOne line more.\n")
    commit = other.commit("another licence")
    path = clone / "releases" / f"{RELEASE}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"commit": commit}))
    status, _, err = again(user, clone, "--published", str(user.finished))
    assert status == 38, err
    assert "was not reproduced" in err and "LICENSE" in err
    assert "libaotriton_v2.so.0.11.2:" not in err  # the library is the same
