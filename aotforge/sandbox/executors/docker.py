"""Executor for Docker Engine, on this machine or at DOCKER_HOST, through its SDK."""

import struct
import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from docker.errors import DockerException, ImageNotFound
from requests.exceptions import RequestException

import docker
from aotforge.errors import ExecutorError
from aotforge.sandbox.executors import session
from aotforge.sandbox.executors.containers import SPARE_PROCESSES, ContainerExecutor, engine_error
from aotforge.sandbox.executors.executor import Capacity
from aotforge.sandbox.executors.owner import LABEL
from aotforge.sandbox.executors.session import UID, AgentExit, agent_command
from aotforge.sandbox.executors.step import OutputTail, RootFS, Step

_ERRORS = (DockerException, RequestException, OSError)
_HEAD = struct.Struct(">BxxxI")
_STDOUT = 1
_REQUEST_SECONDS = 600
_LOG_TAIL = 2000
_shortened = partial(textwrap.shorten, width=300, placeholder=" ...")
_DENIED = (
    "this user may not use the Docker daemon",
    "add the user to the group docker and log in again, or --executor podman or bubblewrap",
)
_NO_RESPONSE = (
    "the Docker daemon does not respond",
    "start it (systemctl start docker), correct DOCKER_HOST, or choose another --executor",
)


class DockerChannel:
    """The attached streams of a container: frames of stream number, three zeros, big-endian u32 size (Docker Engine API, "Attach to a
    container", stream format)."""

    def __init__(self, engine: Any, container: str, attached: Any) -> None:
        self._engine, self._container = engine, container
        self._attached = attached
        # the SDK returns a read-only file around a Unix or TCP socket, and a TLS or SSH one as it is
        self._socket = getattr(attached, "_sock", attached)
        with suppress(AttributeError):
            self._socket.settimeout(None)
        self._buffer = bytearray()
        self._errors = OutputTail(_LOG_TAIL)

    def send(self, data: bytes) -> None:
        """Writes all of `data`."""
        self._socket.sendall(data)

    def receive(self) -> bytes:
        """Some bytes of stdout; stderr is kept for `ended`."""
        while True:
            while len(self._buffer) >= _HEAD.size:
                stream, size = _HEAD.unpack_from(self._buffer)
                end = _HEAD.size + size
                if len(self._buffer) < end:
                    break
                data = bytes(self._buffer[_HEAD.size : end])
                del self._buffer[:end]
                if stream == _STDOUT:
                    return data
                self._errors.add(data)
            piece = self._socket.recv(1 << 18)
            if not piece:
                return b""
            self._buffer += piece

    def ended(self) -> AgentExit:
        """State of the container."""
        state: Mapping[str, Any] = {}
        try:
            for _ in range(20):  # the streams close before the container stops
                state = self._engine.inspect_container(self._container)["State"]
                if not state["Running"]:
                    break
                time.sleep(0.1)
        except _ERRORS as error:
            raise ExecutorError(
                "the Docker daemon exited while a step ran",
                cause=_shortened(str(error)),
                hint="see the daemon's log (journalctl -u docker), start it, build again: finished images are in the cache",
            ) from error
        if state.get("OOMKilled"):
            return AgentExit(limit="memory")
        if state.get("Running"):
            return AgentExit(text="the connection to the daemon was lost")
        text = self._errors.text()
        status = f"its container exited with {state.get('ExitCode')} {state.get('Error')} {text}"
        return AgentExit(text=status.strip())

    def counters(self) -> Mapping[str, int]:
        """None: the agent reads its own cgroup."""
        return {}

    def close(self) -> None:
        """Closes stdin."""
        for stream in (self._attached, self._socket):
            with suppress(OSError, AttributeError):
                stream.close()


class DockerExecutor(ContainerExecutor):
    """Steps in containers of the engine that the Docker CLI's variables select."""

    name = "docker"

    def __init__(self, folder: Path, *, keep: bool = False) -> None:
        super().__init__(folder, keep=keep)
        self._client = _connect()
        self._engine = self._client.api

    @property
    def heartbeat_timeout(self) -> float:
        """An engine that is killed may leave a container's stdin open."""
        return session.HEARTBEAT_TIMEOUT

    def start_container(self, name: str, step: Step, rootfs: RootFS) -> DockerChannel:
        """Creates, attaches, starts."""
        with _engine_errors(step.name):
            self._create(name, step, rootfs)
            self._pending.drop(name)
            attached = self._engine.attach_socket(
                name, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            )
            channel = DockerChannel(self._engine, name, attached)
            self._engine.start(name)
        return channel

    def _create(self, name: str, step: Step, rootfs: RootFS) -> None:
        engine, limits = self._engine, step.limits
        host = engine.create_host_config(
            network_mode="none",
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            mem_limit=limits.memory_bytes,
            memswap_limit=limits.memory_bytes,
            pids_limit=limits.processes + SPARE_PROCESSES,
            init=True,
            tmpfs={"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={limits.scratch_bytes}"},
            log_config={"Type": "none"},
        )
        engine.create_container(
            rootfs.image_id,
            command=list(agent_command(rootfs.python)),
            entrypoint=[],
            user=f"{UID}:{UID}",
            environment={"PATH": "/usr/bin:/bin"},
            working_dir="/",
            stdin_open=True,  # once: the engine closes stdin when its one client is gone
            network_disabled=True,
            labels=self.labels(step),
            name=name,
            host_config=host,
            # the Docker CLI's settings may name a proxy, with a password; there is no network to use it on
            use_config_proxy=False,
        )

    def require_image(self, rootfs: RootFS) -> None:
        """Loads the image if the engine lacks it."""
        with _engine_errors(f"loading {rootfs.image}"):
            try:
                self._engine.inspect_image(rootfs.image_id)
                return
            except ImageNotFound:
                with rootfs.archive().open("rb") as archive:
                    loaded = {image.id for image in self._client.images.load(archive)}
        if rootfs.image_id not in loaded:
            raise ExecutorError(
                f"the engine loaded {rootfs.image} as another image than {rootfs.image_id}",
                hint="remove the image there, then build again",
            )

    def remove(self, name: str) -> bool:
        """Removes a container."""
        with suppress(*_ERRORS):
            self._engine.remove_container(name, force=True, v=True)
            return True
        return False

    def capacity(self) -> Capacity:
        """Resources of the engine's machine."""
        with _engine_errors("reading the resources of the Docker daemon"):
            info = self._engine.info()
        return Capacity(cpus=int(info["NCPU"]), memory_bytes=int(info["MemTotal"]))

    def labelled(self) -> list[tuple[str, Mapping[str, str]]]:
        """Containers of this project."""
        with _engine_errors("looking for abandoned containers"):
            found = self._engine.containers(all=True, filters={"label": LABEL})
        return [(container["Names"][0].lstrip("/"), container["Labels"]) for container in found]


def _connect() -> Any:
    """A client whose daemon responds. Raises ExecutorError."""
    try:
        client = docker.from_env(timeout=_REQUEST_SECONDS)
        client.ping()
    except _ERRORS as error:
        text = _shortened(str(error))
        denied = "Permission denied" in text or "PermissionError" in text
        what, hint = _DENIED if denied else _NO_RESPONSE
        raise ExecutorError(what, cause=text, hint=hint) from error
    return client


@contextmanager
def _engine_errors(doing: str) -> Iterator[None]:
    try:
        yield
    except (DockerException, RequestException) as error:
        hint = "see the daemon's log (journalctl -u docker); finished images are in the cache"
        raise engine_error("Docker", doing, _shortened(str(error)), otherwise=hint) from error
