"""Agent that runs one step: the program that every executor starts.

Standard library only, Python 3.9 or newer, sent as text, so that a rootfs needs nothing of this project. It uses its three
standard streams only, so neither mounts nor volumes are needed, and a remote engine works as a local one:

- stdin: u32 size and a JSON header, u64 size and a tar of inputs, then heartbeats of one byte. The agent kills everything that it
  started and exits when stdin closes (the client is gone), or after `heartbeat_timeout` seconds without a byte.
- stdout: frames of a kind (one byte), a u32 size and a payload. `1` and `2`: output of the step on stdout and stderr;
  `R`: JSON, the step runs; `O`: a part of the tar of outputs; `X`: JSON, the result of the step. `X` is the last one.
- stderr: errors of the agent itself.

Header: `command`, `environment`, `outputs` (paths that are sent back when the step exits with 0), `seconds`, `folder` (parent of
`in/` and `out/`; it replaces `{work}` in the command and the environment), `uid` (user to become when started as root, or null),
`memory_bytes` and `processes` (limits to be enforced here because nothing else does, or null), `sandboxed` (an engine isolates the
step), `heartbeat_timeout` (0: none), `keep_alive` (seconds to stay after a failure, for inspection).
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import selectors
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterable
from typing import Any

FRAME = struct.Struct("<cI")
CHUNK = 1 << 16
POLL_SECONDS = 0.1
PATIENCE_SECONDS = 60.0
DRAIN_SECONDS = 2.0
SPARE_TASKS = 1024
PR_SET_CHILD_SUBREAPER = 36
PR_CAPBSET_DROP = 24
CGROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids")
"""Cgroups of a container as engines show them to it: version 2, then 1."""
COUNTERS = (
    ("oom_kills", "memory.events", "oom_kill"),
    ("oom_kills", "memory.oom_control", "oom_kill"),
    ("refused_forks", "pids.events", "max"),
)
"""Name of a counter, file of a cgroup, word before the number."""


def send(kind: bytes, payload: bytes) -> None:
    """Sends one frame; exits when the client is gone."""
    data = memoryview(FRAME.pack(kind, len(payload)) + payload)
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError:
        exit_all(1)


def read(size: int) -> bytes:
    """Reads exactly `size` bytes of stdin; exits when it closes before that or pauses for too long."""
    pieces = []
    while size:
        ready = select.select([0], [], [], PATIENCE_SECONDS)[0]
        piece = os.read(0, min(size, 1 << 20)) if ready else b""
        if not piece:
            exit_all(1)
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


class OutputStream:
    """A file that sends what is written to it as frames."""

    def write(self, data: bytes) -> int:
        """Sends `data`."""
        for start in range(0, len(data), CHUNK):
            send(b"O", bytes(data[start : start + CHUNK]))
        return len(data)


def processes() -> list[int]:
    """PIDs of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def proc_fields(pid: int, file: str) -> list[bytes]:
    """Fields of a file of /proc/PID, in stat those after the name; none for a process that is gone."""
    try:
        with open(f"/proc/{pid}/{file}", "rb") as content:
            return content.read().rpartition(b")")[2].split()
    except OSError:
        return []


def descendants() -> list[int]:
    """PIDs of all descendants; the agent is the subreaper, so orphans count."""
    children: dict[int, list[int]] = {}
    for pid in processes():
        fields = proc_fields(pid, "stat")
        if fields and fields[0] != b"Z":
            children.setdefault(int(fields[1]), []).append(pid)
    found, waiting = [], [os.getpid()]
    while waiting:
        for pid in children.get(waiting.pop(), []):
            found.append(pid)
            waiting.append(pid)
    return found


def kill_all() -> None:
    """Kills all descendants, also those that appear meanwhile."""
    for _ in range(200):
        left = descendants()
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(0.005)


def exit_all(code: int) -> None:
    """Kills all descendants and exits."""
    kill_all()
    os._exit(code)


def counters(folders: Iterable[str] = CGROUPS) -> dict[str, int]:
    """Processes killed for memory and forks refused so far in cgroups; 0 where it cannot be read."""
    found = {"oom_kills": 0, "refused_forks": 0}
    for folder in folders:
        for name, file, word in COUNTERS:
            try:
                with open(folder + "/" + file, encoding="ascii") as lines:
                    values = [int(line.split()[1]) for line in lines if line.split()[:1] == [word]]
            except (OSError, ValueError, IndexError):
                continue
            found[name] = max([found[name], *values])
    return found


def resident(pids: list[int]) -> int:
    """Memory of processes in bytes: private pages of each, and the largest shared part once."""
    total = shared = 0
    for fields in filter(None, [proc_fields(pid, "statm") for pid in pids]):
        total += int(fields[1]) - int(fields[2])
        shared = max(shared, int(fields[2]))
    return (total + shared) * resource.getpagesize()


class Watchdog(threading.Thread):
    """Enforces the heartbeat, the time limit and the limits that nothing else enforces. `reason`: the limit that was exceeded."""

    def __init__(self, header: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.header = header
        self.end = time.monotonic() + header["seconds"]
        self.last_heartbeat = time.monotonic()
        self.reason = ""
        self.over = False

    def run(self) -> None:
        """Runs until the step is over."""
        watched = selectors.DefaultSelector()
        watched.register(0, selectors.EVENT_READ)
        wait = POLL_SECONDS if self.header["memory_bytes"] or self.header["processes"] else 1.0
        while True:
            left = self.end - time.monotonic()
            ready = watched.select(max(0.0, min(wait, left)))
            if self.over:
                return
            if ready:
                if not os.read(0, CHUNK):
                    exit_all(1)
                self.last_heartbeat = time.monotonic()
            timeout = self.header["heartbeat_timeout"]
            if timeout and time.monotonic() - self.last_heartbeat > timeout:
                exit_all(1)
            reason = "seconds" if left <= 0 else self.exceeded()
            if reason:
                self.reason = reason
                kill_all()
                return

    def exceeded(self) -> str:
        """The limit that the step's processes exceed now, or an empty string."""
        memory, tasks = self.header["memory_bytes"], self.header["processes"]
        if memory or tasks:
            pids = descendants()
            if tasks and len(pids) > tasks:
                return "processes"
            if memory and resident(pids) > memory:
                return "memory"
        return ""


def unpack_inputs(folder: str, size: int) -> None:
    """Unpacks the tar of `size` bytes on stdin into `folder`/in: folders and regular files with relative names, nothing else."""
    for path in (folder, folder + "/in", folder + "/out"):
        os.mkdir(path)  # one that exists is not this step's
    if not size:
        return

    class Source:
        left = size

        def read(self, wanted: int = -1) -> bytes:
            data = read(min(self.left, wanted if wanted >= 0 else self.left))
            self.left -= len(data)
            return data

    source = Source()
    with tarfile.open(fileobj=source, mode="r|") as tar:  # type: ignore[call-overload]
        for member in tar:
            if member.name.startswith("/") or ".." in member.name.split("/"):
                raise ValueError("input outside its folder: " + member.name)
            path = os.path.join(folder, "in", member.name)
            if member.isdir():
                os.makedirs(path, exist_ok=True)
            elif member.isfile():
                os.makedirs(os.path.dirname(path), exist_ok=True)
                content = tar.extractfile(member)
                assert content is not None
                with open(path, "wb") as file:
                    shutil.copyfileobj(content, file)
                os.chmod(path, member.mode & 0o777)
    while source.left:  # the tar's padding
        source.read(min(source.left, CHUNK))


def prepare_process(sandboxed: bool) -> None:
    """Runs in the step's process before its program."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sandboxed:
        # when memory is short, the kernel kills the step first and the agent can report it
        try:
            with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
                file.write("500")
        except OSError:
            pass


def start(header: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Starts the step in a session of its own."""
    return subprocess.Popen(
        header["command"],
        env=header["environment"],
        cwd=header["folder"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: prepare_process(header["sandboxed"]),
    )


def reap_zombies(own: int) -> None:
    """Collects adopted orphans that exited, so that they no longer count as processes. The step's own process `own` is left to its Popen."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None or found.si_pid == own:
                return
            os.waitpid(found.si_pid, os.WNOHANG)
        except ChildProcessError:
            return


def forward(process: subprocess.Popen[bytes]) -> None:
    """Sends both streams to the client until they close; streams of processes that outlive the step are cut off."""
    watched = selectors.DefaultSelector()
    for kind, stream in ((b"1", process.stdout), (b"2", process.stderr)):
        assert stream is not None
        watched.register(stream, selectors.EVENT_READ, kind)
    ended = 0.0
    while watched.get_map():
        for key, _ in watched.select(POLL_SECONDS):
            data = os.read(key.fd, CHUNK)
            if data:
                send(key.data, data)
            else:
                watched.unregister(key.fileobj)
        reap_zombies(process.pid)
        if not ended and process.poll() is not None:
            kill_all()
            ended = time.monotonic()
        if ended and time.monotonic() - ended > DRAIN_SECONDS:
            return


def send_outputs(header: dict[str, Any]) -> None:
    """Sends a tar of the outputs, with names relative to `out/`. Raises FileNotFoundError for a missing one."""
    for name in header["outputs"]:
        if not os.path.lexists(os.path.join(header["folder"], "out", name)):
            raise FileNotFoundError("the step succeeded without creating " + name)
    with tarfile.open(fileobj=OutputStream(), mode="w|", format=tarfile.USTAR_FORMAT) as tar:  # type: ignore[call-overload]
        for name in header["outputs"]:
            tar.add(os.path.join(header["folder"], "out", name), name, filter=without_origin)


def without_origin(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """A member without owner and time: plain ustar cannot store large user IDs and fractions of seconds."""
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


def own_tasks() -> int:
    """Threads of this user."""
    existing = 0
    for pid in processes():
        try:
            if os.stat(f"/proc/{pid}").st_uid == os.getuid():
                existing += len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            continue
    return existing


def limit_tasks(limit: int) -> None:
    """Sets a ceiling for forks that are faster than the watchdog. The kernel counts every thread of the user, wherever it was
    started (getrlimit(2)), so threads that exist already, and some spare ones, are added."""
    ceiling, hard = own_tasks() + limit + SPARE_TASKS, resource.getrlimit(resource.RLIMIT_NPROC)[1]
    if hard != resource.RLIM_INFINITY:
        ceiling = min(ceiling, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (ceiling, ceiling))


def read_header() -> dict[str, Any]:
    """Reads the header and replaces `{work}` in it."""
    header: dict[str, Any] = json.loads(read(struct.unpack("<I", read(4))[0]))
    folder = header["folder"]
    header["command"] = [word.replace("{work}", folder) for word in header["command"]]
    header["environment"] = {
        name: value.replace("{work}", folder) for name, value in header["environment"].items()
    }
    return header


def drop_capabilities() -> None:
    """Empties the bounding set, so that no program of the step can gain a capability; stops at the first number that does not exist."""
    prctl = ctypes.CDLL(None).prctl
    for number in range(64):
        if prctl(PR_CAPBSET_DROP, number, 0, 0, 0) != 0:
            return


def confine(header: dict[str, Any]) -> None:
    """Applies the user and the task limit of the header to this process."""
    if header["uid"] is not None and os.getuid() == 0:
        drop_capabilities()
        os.setgroups([])
        os.setgid(header["uid"])
        os.setuid(header["uid"])
    if header["processes"] and os.getuid() != 0:
        limit_tasks(header["processes"])
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans become children of the agent


def run_step(header: dict[str, Any], watchdog: Watchdog) -> dict[str, Any]:
    """Unpacks the inputs, runs the command, sends the outputs. Returns exit status and signal. Raises OSError, ValueError, TarError."""
    unpack_inputs(header["folder"], struct.unpack("<Q", read(8))[0])
    process = start(header)
    send(b"R", json.dumps({"uid": os.getuid()}).encode())
    try:
        watchdog.start()
    except RuntimeError:  # no thread can be made: the step has as many processes already as the limit allows
        watchdog.reason = "processes"
        kill_all()
    forward(process)
    kill_all()
    code = process.wait()
    if code == 0 and not watchdog.reason and header["outputs"]:
        send_outputs(header)
    return {"status": code, "signal": 0} if code >= 0 else {"status": 128 - code, "signal": -code}


def serve() -> None:
    """Runs one step and reports its result."""
    os.umask(0o022)  # whatever the client's is: no other user may write to inputs and outputs
    header = read_header()
    confine(header)
    before = counters()
    watchdog = Watchdog(header)
    result: dict[str, Any] = {"status": 126, "signal": 0, "trouble": ""}
    try:
        result.update(run_step(header, watchdog))
    except (OSError, ValueError, tarfile.TarError) as error:
        kill_all()
        result["trouble"] = str(error) or type(error).__name__
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    result.update({name: value - before[name] for name, value in counters().items()})
    result.update(
        reason=watchdog.reason, cpu_seconds=used.ru_utime + used.ru_stime, peak_bytes=used.ru_maxrss * 1024
    )
    watchdog.over = True
    send(b"X", json.dumps(result).encode())
    if header["keep_alive"] and (result["status"] or result["reason"]):
        os.close(0)
        time.sleep(header["keep_alive"])
    exit_all(0)


def main() -> None:
    """Serves one step; nothing that it started survives."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: exit_all(143))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        serve()
    except BaseException as error:  # noqa: BLE001 - whatever it is, nothing may be left running
        try:
            sys.stderr.write(f"agent: {type(error).__name__}: {error}\n")
            sys.stderr.flush()
        finally:  # the step may have filled it
            exit_all(1)


if __name__ in ("__main__", "aotforge_agent"):
    main()
