"""Network namespaces as hosts: a hub with a bridge, and hosts with one link each that can be taken down."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

HUB_ADDRESS = "10.231.7.1"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Hosts:
    """Hosts `1` to `count`, host 0 is the hub. Processes of a host end with it."""

    def __init__(self, count: int) -> None:
        self._names = [f"aotf{os.getpid()}-{number}" for number in range(count + 1)]
        self._processes: dict[int, list[subprocess.Popen[bytes]]] = {}

    def set_up(self) -> None:
        hub = self._names[0]
        for name in self._names:
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", hub, "address", "add", f"{HUB_ADDRESS}/24", "dev", "bridge")
        _ip("-n", hub, "link", "set", "bridge", "up")
        for number, name in enumerate(self._names[1:], 1):
            link = f"host{number}"
            _ip("-n", hub, "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("-n", hub, "link", "set", link, "master", "bridge", "up")
            _ip("-n", name, "address", "add", f"10.231.7.{10 + number}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")

    def tear_down(self) -> None:
        for number in list(self._processes):
            self.kill(number)
        for name in self._names:
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", name)

    def connect(self, number: int, *, up: bool) -> None:
        """Connects a host, or cuts it off without a word to the other side."""
        _ip("-n", self._names[0], "link", "set", f"host{number}", "up" if up else "down")

    def start(
        self,
        number: int,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str],
        **options: Any,
    ) -> subprocess.Popen[bytes]:
        """A process on a host, in a session of its own."""
        with log.open("ab") as file:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self._names[number], *command],
                stdout=options.pop("stdout", file),
                stderr=file,
                stdin=subprocess.DEVNULL,
                env=dict(environment),
                start_new_session=True,
                **options,
            )
        self._processes.setdefault(number, []).append(process)
        return process

    def kill(self, number: int) -> None:
        """Kills every process in a host's network namespace at once, as a power failure does."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self._names[number]], capture_output=True, text=True, check=False
        )
        for pid in listed.stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        for process in self._processes.pop(number, ()):
            process.kill()
            process.wait()


@contextmanager
def network_hosts(count: int) -> Iterator[Hosts]:
    """`count` hosts and a hub. Needs root and ip(8)."""
    hosts = Hosts(count)
    try:
        hosts.set_up()
        yield hosts
    finally:
        hosts.tear_down()
