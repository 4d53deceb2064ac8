"""Steps in containers of docker, or of podman's docker-compatible API, by the docker SDK.

Nothing is mounted: files travel as tar archives, so that the engine may be on another machine.
"""

import io
import platform
import resource
import shutil
import subprocess
import tarfile
import tempfile
import textwrap
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from docker.errors import DockerException, ImageNotFound
from docker.types import Ulimit
from requests.exceptions import RequestException

import docker
from aotforge.base.child_processes import child_environment, start_child
from aotforge.base.files import errors_as, remove_unlocked
from aotforge.errors import CacheError, ExecutorError
from aotforge.run.processes import find_program, work_folder
from aotforge.run.step import Capacity, OnOutput, RootFS, Step, StepResult, StepRunner, finished

OWNER = "aotforge.owner"
"""Label of every container of this project: machine and work folder of its step, locked while that runs."""

KEEP = "aotforge.keep"
"""Label of containers that stay for inspection when their step fails."""

UID = 64042
"""UID of steps inside a container. Unique, so that per-user limits are not shared."""

_WORK = "/work"
_ERRORS = (DockerException, RequestException, OSError)
_REQUEST_SECONDS = 600
_START_SECONDS = 60.0
_IDLE_SECONDS = 60
_SPARE_PROCESSES = 8
"""Processes of the engine and `timeout`, beyond those of a step."""

_shortened = partial(textwrap.shorten, width=300, placeholder=" ...")


class EngineRunner(StepRunner):
    """Steps in containers of an engine. `folder` has the work folders, which are locked and else empty."""

    def __init__(self, folder: Path, *, keep: bool = False) -> None:
        self._folder, self._keep = folder, keep

    @abstractmethod
    def connect(self) -> AbstractContextManager[Any]:
        """A client of an engine that responds. Raises ExecutorError."""

    def options(self) -> Mapping[str, Any]:
        """Further options of containers."""
        return {}

    def run(
        self,
        step: Step,
        rootfs: RootFS | None,
        *,
        outputs: Path | None = None,
        on_output: OnOutput = lambda stream, data: None,
    ) -> StepResult:
        """Runs a step in a new container."""
        assert rootfs is not None
        with work_folder(self._folder) as work, self.connect() as client, self._errors(step.name):
            container, kept = self._create(client, step, rootfs, work), ""
            try:
                start, status = time.monotonic(), self._run(container, step, on_output)
                seconds = time.monotonic() - start
                if status and self._keep:
                    kept = f"{self.name} cp {container.name}:{_WORK} FOLDER"
                # podman does not report it where the container's first process survives
                killed = container.attrs["State"].get("OOMKilled") or (
                    status == 137 and seconds < step.limits.seconds
                )
                result = finished(step, status, seconds=seconds, oom_killed=bool(killed), kept=kept)
                if outputs is not None and not status:
                    _receive(container, outputs)
                return result
            finally:
                if not kept:
                    with suppress(*_ERRORS):  # `prune` removes what cannot be removed now
                        container.remove(force=True, v=True)

    def _create(self, client: Any, step: Step, rootfs: RootFS, work: Path) -> Any:
        """A container with the step's files, not started. It has no log on the engine's machine."""
        labels = {OWNER: f"{platform.node()}:{work}"} | ({KEEP: "1"} if self._keep else {})
        container = client.containers.create(
            self._image(client, rootfs),
            command=step.words(_WORK),
            entrypoint=[],
            user=f"{UID}:{UID}",
            working_dir="/",
            name=f"aotforge-{work.name}",
            labels=labels,
            network_mode="none",
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            mem_limit=step.limits.memory_bytes,
            memswap_limit=step.limits.memory_bytes,
            pids_limit=step.limits.processes + _SPARE_PROCESSES,
            # the settings of the docker command may name a proxy, with a password
            use_config_proxy=False,
            **self.options(),
        )
        container.put_archive("/", _work_tar(step))
        return container

    def _run(self, container: Any, step: Step, on_output: OnOutput) -> int:
        streams = container.attach(stdout=True, stderr=True, stream=True, demux=True)
        container.start()
        for out, err in streams:
            if out:
                on_output("stdout", out)
            if err:
                on_output("stderr", err)
        status = int(container.wait()["StatusCode"])
        container.reload()
        return status

    def _image(self, client: Any, rootfs: RootFS) -> str:
        """Name of the rootfs' image, imported if the engine lacks it."""
        name = f"localhost/aotforge/{rootfs.name}:{rootfs.identity[:16]}"
        try:
            client.images.get(name)
        except ImageNotFound:
            with rootfs.packed() as tar, tar.open("rb") as content:
                pieces = iter(lambda: content.read(1 << 20), b"")  # a file would get two lengths
                client.api.import_image_from_stream(pieces, repository=name)  # podman ignores `tag`
        return name

    def prune(self, *, kept: bool = False) -> list[str]:
        """Removes containers whose work folder is gone, or not locked any more."""
        removed = []
        with self.connect() as client, self._errors("looking for abandoned containers"):
            for container in client.containers.list(all=True, filters={"label": OWNER}, ignore_removed=True):
                machine, _, place = container.labels[OWNER].partition(":")
                folder = Path(place)
                if machine != platform.node() or folder.parent != self._folder:
                    continue
                remove_unlocked(folder, folder=True)
                if not folder.exists() and (kept or KEEP not in container.labels):
                    container.remove(force=True, v=True)
                    removed.append(str(container.name))
        return removed

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (DockerException, RequestException) as error:
            cause = _shortened(str(error))
            full = "no space left" in cause.lower()
            raise ExecutorError(
                f"{self.name} failed: {doing}",
                cause=cause,
                hint=f"free some space where it stores its images ({self.name} system df)"
                if full
                else f"check `{self.name} info`, then build again: finished images are in the cache",
            ) from error


def _work_tar(step: Step) -> bytes:
    """The step's folder and files. Without a tar's last padding, which podman does not read: its API fails."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in ("work", "work/in", "work/out"):
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.uid, info.gid = tarfile.DIRTYPE, 0o755, UID, UID
            tar.addfile(info)
        if step.inputs:
            with tarfile.open(fileobj=io.BytesIO(step.inputs)) as inputs:
                for member in inputs:
                    named = member.replace(name=f"work/in/{member.name}", deep=False)
                    named.pax_headers = {}  # has the former name, if that is not ASCII
                    tar.addfile(named, inputs.extractfile(member) if member.isreg() else None)
        end = tar.offset + 2 * tarfile.BLOCKSIZE
    return packed.getvalue()[:end]


def _receive(container: Any, outputs: Path) -> None:
    """Unpacks the step's `out/` to `outputs`. Raises CacheError."""
    stream, _ = container.get_archive(f"{_WORK}/out")
    with (
        errors_as(CacheError, outputs, hint="free some space, then build again"),
        tempfile.TemporaryDirectory(dir=outputs.parent, prefix=f".{outputs.name}.") as staged,
    ):
        with tarfile.open(fileobj=_Stream(stream), mode="r|") as tar:  # type: ignore[call-overload]
            tar.extractall(staged, filter="data")
        (Path(staged) / "out").rename(outputs)


class _Stream:
    """Pieces of bytes as a file, for `tarfile`."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces, self._rest = iter(pieces), b""

    def read(self, size: int) -> bytes:
        """At most `size` bytes; empty at the end."""
        while not self._rest and (piece := next(self._pieces, None)) is not None:
            self._rest = piece
        data, self._rest = self._rest[:size], self._rest[size:]
        return data


class DockerRunner(EngineRunner):
    """Steps in containers of the engine that docker's environment variables select."""

    name = "docker"

    def __init__(self, folder: Path, *, keep: bool = False) -> None:
        super().__init__(folder, keep=keep)
        try:
            self._client = docker.from_env(timeout=_REQUEST_SECONDS)
            self._client.ping()
        except _ERRORS as error:
            text = _shortened(str(error))
            denied = "Permission denied" in text or "PermissionError" in text
            raise ExecutorError(
                f"{'this user may not use' if denied else 'no response from'} the Docker daemon",
                cause=text,
                hint="add the user to the group docker and log in again, or another --executor"
                if denied
                else "start it (systemctl start docker), correct DOCKER_HOST, or choose another --executor",
            ) from error

    @contextmanager
    def connect(self) -> Iterator[Any]:
        """The one client."""
        yield self._client

    def options(self) -> Mapping[str, Any]:
        """Output goes to the client alone."""
        return {"log_config": {"Type": "none"}}

    def capacity(self) -> Capacity:
        """Resources of the engine's machine."""
        with self._errors("reading its resources"):
            info = self._client.info()
        return Capacity(cpus=int(info["NCPU"]), memory_bytes=int(info["MemTotal"]))


class PodmanRunner(EngineRunner):
    """Steps in containers of podman, whose API serves a private socket while a step runs."""

    name = "podman"

    def __init__(self, folder: Path, *, keep: bool = False) -> None:
        super().__init__(folder, keep=keep)
        self._program = find_program("podman", "podman")
        with self.connect():
            pass

    def options(self) -> Mapping[str, Any]:
        """Limits that not every user may raise to podman's own values."""
        limits = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
        hard = {name: resource.getrlimit(number)[1] for name, number in limits.items()}
        most = {n: 16384 if h == resource.RLIM_INFINITY else min(16384, h) for n, h in hard.items()}
        return {
            "ulimits": [Ulimit(name=name, soft=limit, hard=limit) for name, limit in most.items()],
            "log_config": {"Type": "none"},
        }

    @contextmanager
    def connect(self) -> Iterator[Any]:
        """A client of a service that this process started; an abandoned service ends by itself."""
        folder = Path(tempfile.mkdtemp(prefix="aotforge-podman-"))
        address = f"unix://{folder}/api"
        words = [self._program, "system", "service", f"--time={_IDLE_SECONDS}", address]
        own = child_environment({"DOCKER_HOST": ""})
        with (folder / "log").open("wb") as log:
            service = start_child(
                words,
                environment=own,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            client = docker.DockerClient(base_url=address, version="1.40", timeout=_REQUEST_SECONDS)
            self._wait(client, service, folder)
            with client.api:
                yield client
        finally:
            service.terminate()
            service.wait()
            shutil.rmtree(folder, ignore_errors=True)

    def _wait(self, client: Any, service: subprocess.Popen[bytes], folder: Path) -> None:
        end = time.monotonic() + _START_SECONDS
        while True:
            with suppress(*_ERRORS):
                client.ping()
                return
            if service.poll() is not None or time.monotonic() > end:
                raise ExecutorError(
                    "podman's API service does not start",
                    cause=(folder / "log").read_text("utf-8", "replace").strip()[-300:],
                    hint="check `podman info` for this user; or choose another --executor",
                )
            time.sleep(0.05)
