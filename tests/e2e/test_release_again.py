"""A release made again from a clone of its repository and an empty cache, in minutes."""

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
