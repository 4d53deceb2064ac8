"""Docker Engine, here or at DOCKER_HOST, through its SDK: nothing is mounted, all goes through the attached streams."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from aotforge.errors import ExecutorError
from aotforge.sandbox.executors import owner, session
from aotforge.sandbox.executors.executor import Executor, Run
from aotforge.sandbox.executors.pending import PendingContainers
from aotforge.sandbox.executors.session import (
    KEEP_ALIVE_SECONDS,
    UID,
    WORK,
    AgentConfig,
    AgentExit,
    agent_command,
)
from aotforge.sandbox.executors.step import Capacity, RootFS, Step

_HEAD = struct.Struct(">BxxxI")
_STDOUT = 1
_SPARE_PROCESSES = 8
_SPARE_SECONDS = 600
"""For what comes before and after a step: the deadline on a container's label must not come too early."""


class DockerChannel:
    """The attached streams of a container: frames of stream number, three zeros, big-endian u32 size (Docker Engine API, "Attach to a
    container", stream format)."""

    def __init__(self, engine: Any, container: str, attached: Any) -> None:
        self._engine, self._container = engine, container
        self._attached = attached
        # the SDK hands out a read-only file around a Unix or TCP socket, and a TLS or SSH one as it is
        self._socket = getattr(attached, "_sock", attached)
        with suppress(AttributeError):
            self._socket.settimeout(None)
        self._buffer = bytearray()
        self._errors = bytearray()

    def send(self, data: bytes) -> None:
        """All of it."""
        self._socket.sendall(data)

    def receive(self) -> bytes:
        """Some of stdout; stderr is kept for `ended`."""
        while True:
            while len(self._buffer) >= _HEAD.size:
                stream, size = _HEAD.unpack_from(self._buffer)
                if len(self._buffer) < _HEAD.size + size:
                    break
                data = bytes(self._buffer[_HEAD.size : _HEAD.size + size])
                del self._buffer[: _HEAD.size + size]
                if stream == _STDOUT:
                    return data
                self._errors += data
            piece = self._socket.recv(1 << 18)
            if not piece:
                return b""
            self._buffer += piece

    def ended(self) -> AgentExit:
        """What the engine says about the container."""
        from docker.errors import DockerException  # noqa: PLC0415
        from requests.exceptions import RequestException  # noqa: PLC0415

        state: Mapping[str, Any] = {}
        try:
            for _ in range(20):  # the end of the streams is told before the end of the container
                state = self._engine.inspect_container(self._container)["State"]
                if not state["Running"]:
                    break
                time.sleep(0.1)
        except (DockerException, RequestException, OSError) as error:
            raise ExecutorError(
                "the Docker daemon went away while a step ran",
                cause=_short(error),
                hint="see the daemon's log (journalctl -u docker), start it, build again: what was finished is kept",
            ) from error
        if state.get("OOMKilled"):
            return AgentExit(limit="memory")
        text = bytes(self._errors[-2000:]).decode("utf-8", "replace").strip()
        if state.get("Running"):
            return AgentExit(text="the connection to the daemon was lost")
        return AgentExit(
            text=f"its container ended with {state.get('ExitCode')} {state.get('Error')} {text}".strip()
        )

    def counters(self) -> Mapping[str, int]:
        """None: the agent sees its own control group."""
        return {}

    def close(self) -> None:
        """Cut the life line."""
        with suppress(OSError, AttributeError):
            self._attached.close()
        with suppress(OSError, AttributeError):
            self._socket.close()


class DockerRun(Run):
    """A container."""

    def __init__(self, channel: DockerChannel, name: str, *, keep: bool) -> None:
        self.channel = channel
        self.setting = AgentConfig(
            folder=WORK,
            contained=True,
            silence=session.HEARTBEAT_TIMEOUT,
            linger=KEEP_ALIVE_SECONDS if keep else 0,
        )
        self.kept = False
        self._name, self._keep = name, keep

    def keep(self) -> str:
        """The container, in which the agent stays."""
        self.kept = self._keep
        return f"docker exec -it -w {WORK} {self._name} /bin/sh" if self._keep else ""


class DockerExecutor(Executor):
    """Steps in containers of the engine that the Docker CLI's variables name. `pending` has those that are being made."""

    name = "docker"

    def __init__(self, pending: PendingContainers, *, keep: bool = False) -> None:
        self._pending, self._keep = pending, keep
        self._client = _connect()
        self._engine = self._client.api

    @contextmanager
    def start_agent(self, step: Step, rootfs: RootFS | None) -> Iterator[Run]:
        """Create, attach, start."""
        assert rootfs is not None
        name = owner.new_name(owner.this_process())
        with _engine_errors(step.name):
            self._require_image(rootfs)
        run: DockerRun | None = None
        try:
            with _engine_errors(step.name):
                self._pending.add(name)
                self._create(name, step, rootfs)
                self._pending.drop(name)
                attached = self._engine.attach_socket(
                    name, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
                )
                channel = DockerChannel(self._engine, name, attached)
                self._engine.start(name)
            run = DockerRun(channel, name, keep=self._keep)
            try:
                yield run
            finally:
                channel.close()
        except BaseException:
            if run is None or not run.kept:
                self._remove(name)
            raise
        if not run.kept:
            self._remove(name)

    def _create(self, name: str, step: Step, rootfs: RootFS) -> None:
        engine, limits = self._engine, step.limits
        scratch = f"rw,exec,nosuid,nodev,mode=1777,size={limits.scratch_bytes}"
        host = engine.create_host_config(
            network_mode="none",
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            mem_limit=limits.memory_bytes,
            memswap_limit=limits.memory_bytes,
            pids_limit=limits.processes + _SPARE_PROCESSES,
            init=True,
            tmpfs={"/tmp": scratch},
            log_config={"Type": "none"},
        )
        seconds = (KEEP_ALIVE_SECONDS if self._keep else 0) + limits.seconds + _SPARE_SECONDS
        engine.create_container(
            rootfs.image_id,
            command=list(agent_command(rootfs.python)),
            entrypoint=[],
            user=f"{UID}:{UID}",
            environment={"PATH": "/usr/bin:/bin"},
            working_dir="/",
            stdin_open=True,  # once: the engine closes stdin when its one client is gone
            network_disabled=True,
            labels=owner.labels(owner.this_process(), seconds=seconds, keep=self._keep),
            name=name,
            host_config=host,
            # the Docker CLI's settings may name a proxy, with a password; there is no network to use it on
            use_config_proxy=False,
        )

    def _require_image(self, rootfs: RootFS) -> None:
        from docker.errors import ImageNotFound  # noqa: PLC0415

        try:
            self._engine.inspect_image(rootfs.image_id)
        except ImageNotFound:
            with rootfs.archive().open("rb") as archive:
                # an archive of hundreds of megabytes takes longer than any other request
                answers = list(self._client.images.load(archive))
            if rootfs.image_id not in {image.id for image in answers}:
                raise ExecutorError(
                    f"the engine loaded {rootfs.image} as another image than {rootfs.image_id}",
                    hint="remove the image there, then build again",
                ) from None

    def _remove(self, name: str) -> bool:
        """Whether there was such a container."""
        from docker.errors import DockerException  # noqa: PLC0415
        from requests.exceptions import RequestException  # noqa: PLC0415

        # what cannot be removed now, the next command's reaper finds by its labels
        with suppress(DockerException, RequestException, OSError):
            self._engine.remove_container(name, force=True, v=True)
            return True
        return False

    def capacity(self) -> Capacity:
        """The engine's machine."""
        with _engine_errors("asking the Docker daemon what it has"):
            info = self._engine.info()
        return Capacity(cpus=int(info["NCPU"]), memory_bytes=int(info["MemTotal"]))

    def reap(self, *, kept: bool = False) -> list[str]:
        """Containers of processes that are gone."""
        removed = []
        with _engine_errors("looking for abandoned containers"):
            for container in self._engine.containers(all=True, filters={"label": owner.LABEL}):
                marks = container["Labels"]
                if owner.abandoned(marks, now=time.time()) or (kept and owner.releasable(marks)):
                    self._remove(container["Id"])
                    removed.append(container["Names"][0].lstrip("/"))
        return removed + self._pending.reap(removed, self._remove)


def _connect() -> Any:
    """A client whose daemon answers. Raises ExecutorError."""
    from docker.errors import DockerException  # noqa: PLC0415
    from requests.exceptions import RequestException  # noqa: PLC0415

    import docker  # noqa: PLC0415

    try:
        client = docker.from_env(timeout=600)
        client.ping()
    except (DockerException, RequestException, OSError) as error:
        text = _short(error)
        if "Permission denied" in text or "PermissionError" in text:
            raise ExecutorError(
                "this user may not use the Docker daemon",
                cause=text,
                hint="add the user to the group docker and log in again, or --executor podman or bubblewrap",
            ) from error
        raise ExecutorError(
            "the Docker daemon does not answer",
            cause=text,
            hint="start it (systemctl start docker), correct DOCKER_HOST, or choose another --executor",
        ) from error
    return client


@contextmanager
def _engine_errors(doing: str) -> Iterator[None]:
    from docker.errors import DockerException  # noqa: PLC0415
    from requests.exceptions import RequestException  # noqa: PLC0415

    try:
        yield
    except (DockerException, RequestException) as error:
        text = _short(error)
        full = "no space left" in text.lower()
        raise ExecutorError(
            f"Docker failed: {doing}",
            cause=text,
            hint="make room where the daemon keeps its images (docker system df)"
            if full
            else "see the daemon's log (journalctl -u docker); what was finished is kept",
        ) from error


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else text[:300] + " ..."
