"""The library's test programs, built once and shared by test processes, and a driver that calls the
library."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from aotforge.formats.api_level import library_name
from aotforge.library.build_tools import Tools, find_tools, run_tool
from aotforge.library.cmake_build import cmake_commands
from aotforge.library.sources import load_runtime_manifest, unpack_zstd

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_LEVEL = load_runtime_manifest(ROOT / "manifests").api_level
CACHE = Path(os.environ.get("AOTFORGE_HOME") or ROOT / ".aotforge") / "cache"


@dataclass(frozen=True)
class Objects:
    """A build folder of runtime/ with AOTFORGE_BUILD_TESTS, and the unpacked zstd sources beside it."""

    folder: Path
    zstd: Path
    tools: Tools
    level: str = DEFAULT_LEVEL

    def at(self, level: str) -> Objects:
        """The same build's library of another API level, such as 0.13b, and its driver; no other program has
        one."""
        return replace(self, level=level)

    @property
    def level_folder(self) -> Path:
        return self.folder if self.level == DEFAULT_LEVEL else self.folder / "levels" / self.level

    @property
    def library(self) -> Path:
        return self.level_folder / library_name(self.level)

    def program(self, name: str) -> Path:
        return self.folder / "tests" / (name if self.level == DEFAULT_LEVEL else f"{name}_{self.level}")

    def hip(self, major: int) -> Path:
        return self.folder / f"hip{major}"


def tree_digest(folder: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and "corpus" not in p.parts):
        total.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
    return total.hexdigest()


def source_digest() -> str:
    """Of what the programs of tests are compiled from."""
    return tree_digest(ROOT / "runtime")


def build_objects(
    environment: Mapping[str, str] | None = None, *, targets: Sequence[str] = (), **settings: str
) -> Objects:
    """Build library and test programs (or `targets` alone) for the present sources, or find them built.
    `settings` go to cmake."""
    env = dict(os.environ) | dict(environment or {})
    tools = find_tools(env)
    facts = source_digest() + tools.compiler + json.dumps([settings, targets], sort_keys=True)
    folder = CACHE / "runtime-tests" / hashlib.sha256(facts.encode()).hexdigest()[:24]
    pin = load_runtime_manifest(ROOT / "manifests").zstd
    with alone(folder):
        zstd = folder / "zstd"
        if not (folder / "done").exists():
            unpack_zstd(pin, cache=CACHE, folder=zstd, environment=env)
            once = f"{sys.executable};{Path(__file__).with_name('compile_once.py')};{CACHE}"
            launchers = {f"CMAKE_{language}_COMPILER_LAUNCHER": once for language in ("C", "CXX")}
            wanted = {"AOTFORGE_ZSTD_DIR": str(zstd), "AOTFORGE_BUILD_TESTS": "ON"} | launchers | settings
            commands = cmake_commands(
                cmake=str(tools.cmake),
                source=str(ROOT / "runtime"),
                objects=str(folder / "objects"),
                settings=tools.settings | wanted,
                jobs=2,
                install=None,
            )
            commands[-1] += [word for name in targets for word in ("--target", name)]
            for command in commands:
                done = run_tool(command, env, seconds=1800)
                assert done.returncode == 0, done.stdout + done.stderr
            (folder / "done").touch()
    return Objects(folder / "objects", zstd, tools)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One process at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Driver:
    """The driver program as a context; `send` sends one line and returns the reply, `rc` its number."""

    def __init__(
        self,
        objects: Objects,
        images: Path | None,
        *,
        hip: int | Path = 7,
        log: str = "",
        folder: Path | None = None,
        **environment: str,
    ) -> None:
        env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HIP_DOUBLE", "AOTRITON"))
        }
        env |= {"LD_LIBRARY_PATH": str(hip if isinstance(hip, Path) else objects.hip(hip))} | environment
        if images is not None:
            env["AOTRITON_IMAGES_DIR"] = str(images)
        if log:
            env["AOTRITON_LOG"] = log
        self._process = subprocess.Popen(
            [objects.program("driver")],
            env=env,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log = ""

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            _, self.log = self._process.communicate(timeout=300)
        finally:
            self._process.kill()
        if kind is None:
            assert self._process.returncode == 0, (self._process.returncode, self.log)

    def send(self, line: str) -> str:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().rstrip("\n")
        assert answer, f"no answer to {line}: {self._process.poll()}"
        return answer

    def rc(self, line: str) -> int:
        answer = self.send(line)
        assert answer.startswith("rc "), answer
        return int(answer.removeprefix("rc "))

    def record(self) -> list[dict[str, Any]]:
        """Events of the HIP double since the last `clear`."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write("record\n")
        self._process.stdin.flush()
        events = []
        while (line := self._process.stdout.readline().rstrip("\n")) != ".":
            assert line, "no answer"
            events.append(json.loads(line))
        return events

    def launches(self) -> list[dict[str, Any]]:
        return [event for event in self.record() if event["event"] == "launch"]
