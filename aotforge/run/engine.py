"""Steps in containers, and images, of docker or of podman's docker-compatible API, by the docker SDK.

Nothing is mounted: files travel as tar archives, so that the engine may be on another machine.
"""

import io
import platform
import resource
import shutil
import socket
import subprocess
import tarfile
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from copy import copy
from pathlib import Path
from typing import Any

from docker.errors import BuildError, DockerException, ImageNotFound, NotFound
from docker.types import Ulimit
from requests.exceptions import RequestException

import docker
from aotforge.base.child_processes import child_environment, start_child
from aotforge.base.files import errors_as, remove_unlocked
from aotforge.errors import CacheError, ExecutorError
from aotforge.formats.archive import unpack
from aotforge.run.processes import find_program, work_folder
from aotforge.run.step import OnOutput, RootFS, Step, StepRunner

ENGINES = ("docker", "podman")

OWNER = "aotforge.owner"
"""Label of every container of this project: machine and work folder of its step, locked while that runs."""

UID = 64042
"""UID of steps inside a container. Unique, so that per-user limits are not shared."""

_WORK = "/work"
_ERRORS = (DockerException, RequestException, OSError)
_REQUEST_SECONDS = 600
_START_SECONDS = 60.0
_IDLE_SECONDS = 60
_SPARE_PROCESSES = 8
"""Processes of the engine and `timeout`, beyond those of a step."""


class EngineRunner(StepRunner):
    """Steps in containers of docker or podman. Work folders are locked and else empty."""

    def __init__(self, name: str, folder: Path) -> None:
        """Raises ExecutorError for an engine that does not respond."""
        super().__init__(folder)
        self.name = name
        with _client(name):
            pass

    def capacity(self) -> tuple[int, int]:
        """Resources of the engine's machine."""
        with _client(self.name) as client, self._errors("reading its resources"):
            info = client.info()
        return int(info["NCPU"]), int(info["MemTotal"])

    def run(self, step: Step, rootfs: RootFS | None) -> int:
        """Runs a step in a new container."""
        assert rootfs is not None
        with work_folder(self._folder) as work, _client(self.name) as client, self._errors(step.name):
            container = self._create(client, step, rootfs, work)
            try:
                start, status = time.monotonic(), _run(container, step.on_output)
                seconds = time.monotonic() - start
                # podman does not report it where the container's first process survives
                killed = container.attrs["State"].get("OOMKilled") or (
                    status == 137 and seconds < step.limits.seconds
                )
                step.checked(status, seconds=seconds, oom_killed=bool(killed))
                if step.outputs is not None and not status:
                    _receive(container, step.outputs)
                return status
            finally:
                with suppress(*_ERRORS):  # `prune` removes what cannot be removed now
                    container.remove(force=True, v=True)

    def _create(self, client: Any, step: Step, rootfs: RootFS, work: Path) -> Any:
        """A container with the step's files, not started. Its output goes to the client alone."""
        container = client.containers.create(
            self._image(client, rootfs),
            command=step.words(_WORK),
            entrypoint=[],
            user=f"{UID}:{UID}",
            working_dir="/",
            name=f"aotforge-{work.name}",
            labels={OWNER: f"{platform.node()}:{work}"},
            network_mode="none",
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            mem_limit=step.limits.memory_bytes,
            memswap_limit=step.limits.memory_bytes,
            pids_limit=step.limits.processes + _SPARE_PROCESSES,
            ulimits=_ulimits(),
            log_config={"Type": "none"},
            # the settings of the docker command may name a proxy, with a password
            use_config_proxy=False,
        )
        container.put_archive("/", _work_tar(step))
        return container

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

    def prune(self) -> list[str]:
        """Removes containers whose work folder is gone, or not locked any more."""
        removed = []
        with _client(self.name) as client, self._errors("looking for abandoned containers"):
            for container in client.containers.list(all=True, filters={"label": OWNER}, ignore_removed=True):
                machine, _, place = container.labels[OWNER].partition(":")
                folder = Path(place)
                if machine == platform.node() and folder.parent == self._folder:
                    remove_unlocked(folder)
                    if not folder.exists():
                        container.remove(force=True, v=True)
                        removed.append(str(container.name))
        return removed

    def _errors(self, doing: str) -> AbstractContextManager[None]:
        return _engine_errors(self.name, doing)


class Engine:
    """Images of an engine that responds. Methods raise ExecutorError."""

    def __init__(self, name: str, client: Any) -> None:
        self.name, self._client = name, client

    def output(self, image: str, *words: str) -> str:
        """Standard output of a program in a container without network; a missing image is pulled."""
        outputs = {"stdout": bytearray(), "stderr": bytearray()}
        with self._container(image, words) as container:
            status = _run(container, lambda stream, data: outputs[stream].extend(data))
        out, err = (data.decode("utf-8", "replace").strip() for data in outputs.values())
        if status:
            raise ExecutorError(f"{words[0]} in {image} exited with {status}", cause=(err or out)[-300:])
        return out

    def copy(self, image: str, path: str, folder: Path) -> bool:
        """Copies a file of an image into `folder`; False where the image has none."""
        with self._container(image, ["true"]) as container, tempfile.TemporaryFile(dir=folder) as packed:
            try:
                packed.writelines(container.get_archive(path)[0])
            except NotFound:
                return False
            packed.seek(0)
            with tarfile.open(fileobj=packed) as tar:
                unpack(tar, folder)
        return True

    def build(
        self, context: Path, dockerfile: str, *, tag: str, target: str, arguments: Mapping[str, str]
    ) -> int:
        """Builds the image `tag` of the files below `context`, without network; returns its bytes."""
        words = {"path": str(context), "dockerfile": dockerfile, "tag": tag, "target": target}
        with _engine_errors(self.name, f"building {tag}"):
            try:
                self._client.images.build(
                    **words,
                    buildargs=dict(arguments),
                    network_mode="none",
                    forcerm=True,
                    use_config_proxy=False,
                )
            except BuildError as error:
                log = "".join(str(line.get("stream", "")) for line in error.build_log)
                raise ExecutorError(
                    f"{self.name} does not build {tag}:\n{log.strip()[-3000:]}", cause=_short(error)
                ) from error
            return int(self._client.images.get(tag).attrs["Size"])

    @contextmanager
    def _container(self, image: str, words: Sequence[str]) -> Iterator[Any]:
        with _engine_errors(self.name, f"a container of {image}"):
            try:
                self._client.images.get(image)
            except ImageNotFound:
                self._client.images.pull(image)
            container = self._client.containers.create(
                image,
                command=list(words),
                entrypoint=[],
                network_mode="none",
                ulimits=_ulimits(),
                log_config={"Type": "none"},
                use_config_proxy=False,
            )
            try:
                yield container
            finally:
                with suppress(*_ERRORS):
                    container.remove(force=True, v=True)


@contextmanager
def open_engine(name: str | None) -> Iterator[Engine]:
    """The engine of that name, or the first that responds. Raises ExecutorError."""
    reasons = []
    with ExitStack() as stack:
        for candidate in [name] if name else ENGINES:
            try:
                engine = Engine(candidate, stack.enter_context(_client(candidate)))
                break
            except ExecutorError as error:
                if name:
                    raise
                reasons.append(error.what)
        else:
            raise ExecutorError(
                f"no response from {' or '.join(ENGINES)}",
                cause="; ".join(reasons),
                hint="apt-get install podman, or start docker: systemctl start docker",
            )
        yield engine


@contextmanager
def _engine_errors(name: str, doing: str) -> Iterator[None]:
    try:
        yield
    except (DockerException, RequestException) as error:
        raise ExecutorError(
            f"{name} failed: {doing}",
            cause=_short(error),
            hint=f"check `{name} info` and the free space (`{name} system df`), then build again: finished "
            "images are in the cache",
        ) from error


def _client(name: str) -> AbstractContextManager[Any]:
    return _docker() if name == "docker" else _podman()


@contextmanager
def _docker() -> Iterator[Any]:
    """A client of the engine that docker's environment variables select. Raises ExecutorError."""
    try:
        client = docker.from_env(timeout=_REQUEST_SECONDS)
        client.ping()
    except _ERRORS as error:
        raise ExecutorError(
            "no response from the Docker daemon",
            cause=_short(error),
            hint="start it (systemctl start docker), add this user to the group docker, correct "
            "DOCKER_HOST, or choose another --executor",
        ) from error
    with client.api:
        yield client


@contextmanager
def _podman() -> Iterator[Any]:
    """A client of an API service that this process starts; an abandoned one ends by itself. ExecutorError."""
    program, folder = find_program("podman", "podman"), Path(tempfile.mkdtemp(prefix="aotforge-podman-"))
    api, log, end = folder / "api", folder / "log", time.monotonic() + _START_SECONDS
    words = [program, "system", "service", f"--time={_IDLE_SECONDS}", f"unix://{api}"]
    with log.open("wb") as out:
        service = start_child(
            words,
            environment=child_environment(),
            cwd=folder,  # where conmon leaves a file `oom`
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        with socket.socket(socket.AF_UNIX) as probe:  # its file is there before anything listens
            while probe.connect_ex(str(api)) and service.poll() is None and time.monotonic() < end:
                time.sleep(0.02)
        try:
            client = docker.DockerClient(f"unix://{api}", version="1.40", timeout=_REQUEST_SECONDS)
            client.ping()
        except _ERRORS as error:
            raise ExecutorError(
                "podman's API service does not start",
                cause=log.read_text("utf-8", "replace").strip()[-300:] or _short(error),
                hint="check `podman info` for this user; or choose another --executor",
            ) from error
        with client.api:
            yield client
    finally:
        service.terminate()
        service.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _ulimits() -> list[Ulimit]:
    """Limits that this user may set: podman's own values may be higher."""
    limits = []
    for name, number in {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}.items():
        hard = resource.getrlimit(number)[1]
        most = 16384 if hard == resource.RLIM_INFINITY else min(16384, hard)
        limits.append(Ulimit(name=name, soft=most, hard=most))
    return limits


def _run(container: Any, on_output: OnOutput) -> int:
    """The exit status."""
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


def _work_tar(step: Step) -> bytes:
    """The step's folder and files. Without a tar's last padding: podman does not read it and fails."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in ("work", "work/in", "work/out"):
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.uid, info.gid = tarfile.DIRTYPE, 0o755, UID, UID
            tar.addfile(info)
        if step.inputs:
            with tarfile.open(fileobj=io.BytesIO(step.inputs)) as inputs:
                for member in inputs:
                    named = copy(member)  # Debian 12's Python 3.11.2 has no TarInfo.replace
                    # pax_headers has the former name, if that is not ASCII
                    named.name, named.pax_headers = f"work/in/{member.name}", {}
                    tar.addfile(named, inputs.extractfile(member) if member.isreg() else None)
        end = tar.offset + 2 * tarfile.BLOCKSIZE
    return packed.getvalue()[:end]


def _receive(container: Any, outputs: Path) -> None:
    """Unpacks the step's `out/` to `outputs`. Raises CacheError."""
    pieces, _ = container.get_archive(f"{_WORK}/out")
    with (
        errors_as(CacheError, outputs, hint="free some space, then build again"),
        tempfile.TemporaryDirectory(dir=outputs.parent, prefix=f".{outputs.name}.") as staged,
        tempfile.TemporaryFile(dir=outputs.parent) as packed,
    ):
        packed.writelines(pieces)
        packed.seek(0)
        with tarfile.open(fileobj=packed) as tar:
            unpack(tar, Path(staged))
        (Path(staged) / "out").rename(outputs)


def _short(error: Exception) -> str:
    return textwrap.shorten(str(error), width=300, placeholder=" ...")
