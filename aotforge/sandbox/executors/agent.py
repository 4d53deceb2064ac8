"""The one program that every executor starts: standard library only, Python 3.9 or newer, sent as text, so that a root needs nothing of ours.

It talks over its three standard streams, so neither mounts nor volumes are needed, and a remote engine works as a local one:

- stdin: u32 size and a JSON header, u64 size and a tar of inputs, and then a byte now and then: stdin is the life line. When it ends
  (the client is gone, however it went), or is silent for too long, everything that was started here is killed, and so is the agent.
- stdout: frames of a kind (one byte), a u32 size and a payload. `1` and `2`: what the step wrote to its stdout and stderr, as it comes;
  `R`: JSON, the step runs; `O`: a piece of the tar of outputs; `X`: JSON, how the step ended. `X` is the last one.
- stderr: only what goes wrong with the agent itself.

Header: `command`, `environment`, `outputs` (paths that are sent back when the step ends with 0), `seconds`, `folder` (where `in/` and
`out/` are made; `{work}` stands for it in the other fields), `uid` (to become when started as root, or null), `memory_bytes` and
`processes` (to be watched here because nothing else bounds them, or null), `contained` (whether there are walls), `silence` (seconds
without a byte of stdin that mean that the client is gone, or 0), `linger` (seconds to stay after a failure, for people to look).
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import selectors
import signal
import struct
import subprocess
import sys
import tarfile
import threading
import time
from typing import Any

FRAME = struct.Struct("<cI")
CHUNK = 1 << 16
POLL_SECONDS = 0.1
PATIENCE_SECONDS = 60.0
DRAIN_SECONDS = 2.0
SPARE_TASKS = 1024
PR_SET_CHILD_SUBREAPER = 36
COUNTERS = {
    # control group version 2, then 1, as engines show them to a container
    "oom_kill": ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"),
    "max": ("/sys/fs/cgroup/pids.events", "/sys/fs/cgroup/pids/pids.events"),
}


def send(kind: bytes, payload: bytes) -> None:
    """One frame; a client that is gone ends the agent."""
    data = memoryview(FRAME.pack(kind, len(payload)) + payload)
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError:
        leave(1)


def read(size: int) -> bytes:
    """Exactly so many bytes of stdin; its end before that, or silence, ends the agent."""
    pieces = []
    while size:
        ready = select.select([0], [], [], PATIENCE_SECONDS)[0]
        piece = os.read(0, min(size, 1 << 20)) if ready else b""
        if not piece:
            leave(1)
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


class Pieces:
    """A file that sends what is written to it as frames."""

    def write(self, data: bytes) -> int:
        """Send."""
        for start in range(0, len(data), CHUNK):
            send(b"O", bytes(data[start : start + CHUNK]))
        return len(data)


def descendants() -> list[int]:
    """Every process that came from this one; orphans are adopted here."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/" + name + "/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields[0] != b"Z":
                children.setdefault(int(fields[1]), []).append(int(name))
    found, waiting = [], [os.getpid()]
    while waiting:
        for pid in children.get(waiting.pop(), []):
            found.append(pid)
            waiting.append(pid)
    return found


def kill_all() -> None:
    """No process that came from this one is left."""
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


def leave(code: int) -> None:
    """End at once, and everything with it."""
    kill_all()
    os._exit(code)


def counter(name: str) -> int:
    """A number of this container's control group, 0 where it cannot be seen."""
    for path in COUNTERS[name]:
        try:
            with open(path, encoding="ascii") as file:
                for line in file:
                    words = line.split()
                    if words[:1] == [name]:
                        return int(words[1])
        except (OSError, ValueError):
            continue
    return 0


def resident(pids: list[int]) -> int:
    """Bytes of memory that processes do not share with others, and what they share once."""
    total = shared = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm", encoding="ascii") as file:
                fields = file.read().split()
        except OSError:
            continue
        total += int(fields[1]) - int(fields[2])
        shared = max(shared, int(fields[2]))
    return (total + shared) * resource.getpagesize()


class Guard(threading.Thread):
    """Watches the life line, the clock, and what nothing else bounds. `reason` says what it killed the step for."""

    def __init__(self, header: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.header = header
        self.end = time.monotonic() + header["seconds"]
        self.heard = time.monotonic()
        self.reason = ""
        self.over = False

    def run(self) -> None:
        """Until the step is over."""
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
                    leave(1)
                self.heard = time.monotonic()
            silence = self.header["silence"]
            if silence and time.monotonic() - self.heard > silence:
                leave(1)
            reason = "seconds" if left <= 0 else self.exceeded()
            if reason:
                self.reason = reason
                kill_all()
                return

    def exceeded(self) -> str:
        """The limit that the step's processes are over now."""
        memory, processes = self.header["memory_bytes"], self.header["processes"]
        if memory or processes:
            pids = descendants()
            if processes and len(pids) > processes:
                return "processes"
            if memory and resident(pids) > memory:
                return "memory"
        return ""


def unpack(folder: str, size: int) -> None:
    """Inputs into `folder`/in: folders and files by relative names, nothing else."""
    os.makedirs(folder + "/in")
    os.makedirs(folder + "/out")

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
                with open(path, "wb") as file:
                    while content is not None:
                        piece = content.read(CHUNK)
                        if not piece:
                            break
                        file.write(piece)
                os.chmod(path, member.mode & 0o777)
    while source.left:  # the tar's padding
        source.read(min(source.left, CHUNK))


def prepare(contained: bool) -> None:
    """In the step's process, before its program."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if contained:
        # when memory is short, the step goes first and the agent can still say so
        try:
            with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
                file.write("500")
        except OSError:
            pass


def start(header: dict[str, Any]) -> subprocess.Popen[bytes]:
    """The step's process, in a session of its own."""
    return subprocess.Popen(
        header["command"],
        env=header["environment"],
        cwd=header["folder"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: prepare(header["contained"]),
    )


def bury(own: int) -> None:
    """Take note of adopted orphans that ended, so that they do not count as processes any more. The step's process is left to its Popen."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None or found.si_pid == own:
                return
            os.waitpid(found.si_pid, os.WNOHANG)
        except ChildProcessError:
            return


def forward(process: subprocess.Popen[bytes]) -> None:
    """Both streams to the client until they end; those of processes that outlive the step are cut off."""
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
        bury(process.pid)
        if not ended and process.poll() is not None:
            kill_all()
            ended = time.monotonic()
        if ended and time.monotonic() - ended > DRAIN_SECONDS:
            return


def give(header: dict[str, Any]) -> None:
    """The outputs, with names relative to `out/`; all of them must be there."""
    for name in header["outputs"]:
        if not os.path.lexists(os.path.join(header["folder"], "out", name)):
            raise FileNotFoundError("it ended well without making " + name)
    with tarfile.open(fileobj=Pieces(), mode="w|", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
        for name in header["outputs"]:
            tar.add(os.path.join(header["folder"], "out", name), name)


def become(uid: int) -> None:
    """Give up being root."""
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


def bound_tasks(processes: int) -> None:
    """A ceiling for what forks faster than the guard looks. The kernel counts every thread of the user, wherever it was started
    (getrlimit(2)), so those that are there already, and some that come, are none of the step's."""
    there = 0
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.stat("/proc/" + name).st_uid == os.getuid():
                there += len(os.listdir("/proc/" + name + "/task"))
        except OSError:
            continue
    ceiling, hard = there + processes + SPARE_TASKS, resource.getrlimit(resource.RLIMIT_NPROC)[1]
    if hard != resource.RLIM_INFINITY:
        ceiling = min(ceiling, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (ceiling, ceiling))


def serve() -> None:
    """One step."""
    header = json.loads(read(struct.unpack("<I", read(4))[0]))
    if header["uid"] is not None and os.getuid() == 0:
        become(header["uid"])
    if header["processes"] and os.getuid() != 0:
        bound_tasks(header["processes"])
    # orphans come to the agent, so that none is missed
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = {name: counter(name) for name in COUNTERS}
    folder = header["folder"]
    header["command"] = [word.replace("{work}", folder) for word in header["command"]]
    header["environment"] = {
        name: value.replace("{work}", folder) for name, value in header["environment"].items()
    }
    ended: dict[str, Any] = {"status": 0, "signal": 0, "reason": "", "trouble": ""}
    guard = Guard(header)
    try:
        unpack(folder, struct.unpack("<Q", read(8))[0])
        process = start(header)
    except (OSError, ValueError, tarfile.TarError) as error:
        ended["status"], ended["trouble"] = 126, str(error)
    else:
        send(b"R", json.dumps({"uid": os.getuid()}).encode())
        guard.start()
        forward(process)
        kill_all()
        code = process.wait()
        ended["status"], ended["signal"] = (code, 0) if code >= 0 else (128 - code, -code)
        ended["reason"] = guard.reason
        if code == 0 and not guard.reason and header["outputs"]:
            try:
                give(header)
            except OSError as error:
                ended["status"], ended["trouble"] = 126, str(error)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended["cpu_seconds"] = used.ru_utime + used.ru_stime
    ended["peak_bytes"] = used.ru_maxrss * 1024
    ended["oom_kills"] = counter("oom_kill") - before["oom_kill"]
    ended["refused_forks"] = counter("max") - before["max"]
    stay = header["linger"] if ended["status"] or ended["reason"] else 0
    guard.over = True
    send(b"X", json.dumps(ended).encode())
    if stay:
        os.close(0)
        time.sleep(stay)
    leave(0)


def main() -> None:
    """Serve, and end with everything that was started."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: leave(143))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        serve()
    except BaseException as error:  # noqa: BLE001 - whatever it is, nothing may be left running
        sys.stderr.write(f"agent: {type(error).__name__}: {error}\n")
        sys.stderr.flush()
        leave(1)


if __name__ in ("__main__", "aotforge_agent"):
    main()
