"""Engine failures: missing, not permitted, killed during a step, at a TCP address, orphaned containers; and --keep."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aotforge.base.progress import LineObserver
from aotforge.errors import ExecutorError, LimitError, UnknownNameError
from aotforge.sandbox.executors.agent import unpack_inputs
from aotforge.sandbox.executors.choose import choose_executor, make_executor
from aotforge.sandbox.executors.owner import (
    DEADLINE,
    KEEP,
    LABEL,
    Owner,
    abandoned,
    labels,
    machine,
    new_name,
    parse,
    this_process,
)
from aotforge.sandbox.executors.step import RootFS, Step, StepLimits
from tests.support.engines import Daemon, private_daemon
from tests.support.rootfs import ROOT, SANDBOXED, executor, small_rootfs

SOURCES = [str(ROOT), sysconfig.get_paths()["purelib"]]
"""Where the system's Python, which any user can execute, finds this project and what it imports."""

LIMITS = StepLimits(memory_bytes=256 << 20, processes=64, seconds=600, scratch_bytes=64 << 20)


@pytest.fixture(scope="session")
def rootfs(tmp_path_factory: pytest.TempPathFactory) -> RootFS:
    return small_rootfs(tmp_path_factory.mktemp("small-root"))


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with private_daemon() as started:
        yield started


def step(script: str) -> Step:
    return Step(
        name="test step", command=("/bin/sh", "-c", script), environment={"PATH": "/usr/bin:/bin"}, inputs=b"", limits=LIMITS
    )  # fmt: skip


def test_a_remote_engine_works_and_its_exit_is_reported(
    daemon: Daemon, rootfs: RootFS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", daemon.url)
    runner = make_executor("docker", cache=tmp_path)
    assert runner.run(step("exit 5"), rootfs).status == 5
    monkeypatch.setattr("aotforge.sandbox.executors.session.HEARTBEAT_TIMEOUT", 4.0)

    def kill(stream: str, data: bytes) -> None:
        daemon.process.send_signal(signal.SIGKILL)

    with pytest.raises(ExecutorError, match="the Docker daemon exited while a step ran") as caught:
        runner.run(step("echo now; sleep 601"), rootfs, on_output=kill)
    assert "build again" in caught.value.hint
    end = time.monotonic() + 120
    while _sleeping("601") and time.monotonic() < end:
        time.sleep(0.1)
    assert not _sleeping("601")  # no heartbeat arrived any more


def test_no_engine_and_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(ExecutorError, match="does not respond") as caught:
        make_executor("docker", cache=tmp_path)
    assert "start it" in caught.value.hint
    monkeypatch.setattr("docker.from_env", lambda **_: _refuse())
    with pytest.raises(ExecutorError, match="this user may not use the Docker daemon") as caught:
        make_executor("docker", cache=tmp_path)
    assert "group docker" in caught.value.hint
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("podman", "bubblewrap"):
        with pytest.raises(ExecutorError, match="is not installed"):
            make_executor(name, cache=tmp_path)
    notes: list[str] = []
    assert choose_executor("auto", cache=tmp_path, observer=LineObserver(notes.append)).name == "local"
    assert notes[0].startswith("executor: local; not docker: this user may not") and "bubblewrap" in notes[0]
    with pytest.raises(UnknownNameError, match="unknown executor dokcer") as unknown:
        make_executor("dokcer", cache=tmp_path)
    assert "docker" in unknown.value.hint


def _refuse() -> object:
    raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize("name", SANDBOXED)
@pytest.mark.parametrize("end", ["exit 9", "sleep 600"])
def test_what_failed_is_kept_and_can_be_entered(name: str, end: str, rootfs: RootFS, tmp_path: Path) -> None:
    runner = executor(name, tmp_path, keep=True)
    assert runner.run(step("true"), rootfs).kept == ""
    failing = step(f"echo left > /tmp/work/out/trace; {end}")
    if end == "exit 9":
        done = runner.run(failing, rootfs)
        assert done.status == 9 and done.kept
        kept = done.kept
    else:
        with pytest.raises(LimitError) as limit:
            runner.run(replace(failing, limits=replace(LIMITS, seconds=2)), rootfs)
        kept = limit.value.hint.partition("to inspect it: ")[2]
    words = [word for word in shlex.split(kept) if word not in {"-it", "--new-session"}]
    words = [*words[:-1], "/bin/sh", "-c", "cat /tmp/work/out/trace"]
    entered = subprocess.run(words, capture_output=True, text=True, check=False)
    assert entered.stdout == "left\n", entered.stderr
    other = executor(name, tmp_path)
    mine = f"-{os.getpid()}-"
    assert not [
        left for left in other.reap() if mine in left
    ]  # kept from builds, and their process is running
    if name == "bubblewrap":
        shutil.rmtree(next((tmp_path / "executors" / "work").glob("aotforge-*")))
    else:
        container = next(word for word in words if word.startswith("aotforge-"))
        subprocess.run([name, "rm", "--force", container], capture_output=True, check=True)


def test_a_work_folder_that_exists_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    with pytest.raises(FileExistsError):
        unpack_inputs(str(tmp_path / "work"), 0)


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_no_proxys_password_enters_a_container(
    name: str, rootfs: RootFS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"proxies": {"default": {"httpsProxy": "http://me:hush@proxy.test:1"}}}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://me:hush@proxy.test:1")
    received: list[bytes] = []
    done = executor(name, tmp_path).run(
        step("cat /proc/[0-9]*/environ"), rootfs, on_output=lambda stream, data: received.append(data)
    )
    assert b"PATH=" in b"".join(received) and b"hush" not in b"".join(received), done


_CROWDED = """
import os, sys, threading, time
sys.path[:0] = {path!r}
from pathlib import Path
from aotforge.sandbox.executors.local import LocalExecutor
from aotforge.sandbox.executors.step import Step, StepLimits
os.setgroups([])
os.setgid({uid})
os.setuid({uid})
for _ in range(120):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
step = Step(name="s", command=("/bin/sh", "-c", "(true); /bin/echo fine"), inputs=b"", environment={{}}, limits=StepLimits(processes=64))
print(LocalExecutor(Path({folder!r})).run(step, None).status)
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become a user without rights")
def test_other_processes_of_the_user_are_not_counted() -> None:
    folder = tempfile.mkdtemp(prefix="crowd-")  # pytest's own folders are closed to others
    try:
        Path(folder).chmod(0o1777)
        python = shutil.which("python3", path="/usr/bin") or sys.executable
        code = _CROWDED.format(path=SOURCES, uid=64041, folder=folder)
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=300, check=False)
        assert done.stdout == "0\n", done.stderr
    finally:
        shutil.rmtree(folder)


_UNPRIVILEGED = """
import os, sys
sys.path[:0] = {path!r}
from pathlib import Path
from aotforge.sandbox.executors.bubblewrap import BubblewrapExecutor
from aotforge.sandbox.executors.step import RootFS, Step, StepLimits
os.setgroups([])
os.setgid({uid})
os.setuid({uid})
tree = Path({tree!r})
rootfs = RootFS(name="s", identity="s", python={python!r}, environment=(), image="", image_id="", unpacked=lambda: tree, archive=lambda: tree)
script = "echo x > /dev/null; echo x > /tmp/y; for f in /dev/x /dev/shm/x /x; do (echo x > $f) 2>/dev/null && echo $f; done; id -u"
step = Step(name="s", command=("/bin/sh", "-c", script), inputs=b"", environment={{"PATH": "/usr/bin:/bin"}}, limits=StepLimits(seconds=60))
BubblewrapExecutor(Path({folder!r})).run(step, rootfs, on_output=lambda stream, data: print(data.decode(), end=""))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become a user without rights")
def test_a_users_sandbox_can_write_to_tmp_alone(tmp_path: Path) -> None:
    executor("bubblewrap", tmp_path)
    folder = Path(tempfile.mkdtemp(prefix="user-"))
    try:
        folder.chmod(0o755)
        (folder / "work").mkdir()
        (folder / "work").chmod(0o1777)
        rootfs = small_rootfs(folder)
        code = _UNPRIVILEGED.format(
            path=SOURCES,
            uid=64041,
            tree=str(rootfs.unpacked()),
            python=rootfs.python,
            folder=str(folder / "work"),
        )
        done = subprocess.run(
            [rootfs.python, "-c", code], capture_output=True, text=True, timeout=300, check=False
        )
        if "cannot create a sandbox" in done.stderr:
            pytest.skip("this kernel gives users no namespaces")
        assert done.stdout == "64042\n", done.stderr
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_a_container_created_after_its_client_was_killed_is_removed(
    name: str, rootfs: RootFS, tmp_path: Path
) -> None:
    runner = executor(name, tmp_path)
    assert runner.run(step("true"), rootfs).status == 0  # the engine has the image now
    folder = tmp_path / "executors" / name
    assert not list(folder.iterdir())
    me = this_process()
    late, never = new_name(Owner(me.machine, me.pid, me.started + 1)), new_name(me)
    for pending in (late, never):
        (folder / pending).touch()
    words = [name, "create", "--name", late, rootfs.image_id, "/bin/sh"]
    maker = threading.Timer(1, lambda: subprocess.run(words, capture_output=True, check=True))
    maker.start()
    assert runner.reap() == [late]
    maker.join()
    assert [path.name for path in folder.iterdir()] == [never]  # its client is running
    listed = subprocess.run(
        [name, "ps", "--all", "--quiet", "--filter", f"name={late}"], capture_output=True, check=True
    )
    assert listed.stdout == b""


def test_owners_on_other_machines_are_not_declared_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    me = this_process()
    assert parse(str(me)) == me and me.alive() is True
    gone = Owner(machine(), me.pid, me.started + 1)  # the number is another process' now
    assert gone.alive() is False
    hidden = Owner(machine(), 1, 0)
    monkeypatch.setattr("aotforge.sandbox.executors.owner.started", lambda pid: -1)
    monkeypatch.setattr(os, "kill", refuse)
    assert hidden.alive() is True  # another user's, where /proc is mounted with hidepid
    monkeypatch.undo()
    far = Owner("elsewhere.1", me.pid, me.started)
    assert far.alive() is None
    marks = labels(gone, seconds=60, keep=False)
    assert abandoned(marks, now=0) and not abandoned(labels(me, seconds=0, keep=False), now=1e12)
    remote = {LABEL: str(far), DEADLINE: "1000"}
    assert not abandoned(remote, now=1000 + 3599) and abandoned(remote, now=1000 + 3601)
    kept = marks | {KEEP: "1"}
    assert not abandoned(kept, now=0) and abandoned(kept, now=1e12)
    for strange in ({}, {LABEL: "x"}, {LABEL: str(gone)}, {LABEL: str(gone), DEADLINE: "soon"}):
        assert not abandoned(strange, now=1e12)


def _sleeping(seconds: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().split(b"\0")[:2] == [b"sleep", seconds.encode()]:
                return True
        except OSError:
            continue
    return False
