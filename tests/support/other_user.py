"""Permission tests as another user: root may write everywhere, so a fork of it gives up its user first."""

from __future__ import annotations

import os
import shutil
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

USER = 64042


def as_other_user(check: Callable[[Path], None], *, prepare: Callable[[Path], None] = lambda _: None) -> None:
    """Calls `check` with a folder of its user, which `prepare` fills first. Root becomes user 64042 in a
    fork, others stay
    what they are."""
    folder = Path(tempfile.mkdtemp(prefix="aotforge-test-", dir="/tmp"))
    try:
        folder.chmod(0o755)
        prepare(folder)
        if os.geteuid() != 0:
            check(folder)
            return
        os.chown(folder, USER, USER)
        as_user(lambda: check(folder), user=USER, group=USER)
    finally:
        for inner in (folder, *folder.rglob("*")):
            inner.chmod(0o755)  # a test may have made it read-only, and this user may not be root
        shutil.rmtree(folder)


def as_user(check: Callable[[], object], *, user: int, group: int, umask: int = 0o022) -> None:
    """Calls `check` in a fork of root with this user, group and umask."""
    if text := _forked(check, user, group, umask):
        pytest.fail(text)


def _forked(check: Callable[[], object], user: int, group: int, umask: int) -> str:
    """The traceback of `check`, empty when it returns."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        text = ""
        try:
            os.setgroups([])
            os.setresgid(group, group, group)
            os.setresuid(user, user, user)
            os.umask(umask)
            check()
        except BaseException:  # noqa: BLE001 - a child of pytest must not return
            text = traceback.format_exc()
        os.write(writer, text.encode()[-4000:])
        os._exit(bool(text))
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return text or (f"the test exited with {status}" if status else "")
