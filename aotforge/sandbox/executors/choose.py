"""Choice of an executor by its name, and of the rootfs images that it runs steps in."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from aotforge.base.progress import Observer
from aotforge.errors import ExecutorError, UnknownNameError, suggest
from aotforge.sandbox.executors.bubblewrap import BubblewrapExecutor
from aotforge.sandbox.executors.executor import ExecutionTarget, ExecutionTargets, Executor
from aotforge.sandbox.executors.local import LocalExecutor
from aotforge.sandbox.executors.podman import PodmanExecutor
from aotforge.sandbox.executors.step import EXECUTORS, KERNELS, RUNTIME, RootFS

ORDER = ("docker", "podman", "bubblewrap")
"""Executors tried by `--executor auto`, in order, before local."""


def make_executor(name: str, *, cache: Path, keep: bool = False) -> Executor:
    """An executor that works on this machine. Raises UnknownNameError, ExecutorError."""
    if name not in EXECUTORS[1:]:
        raise UnknownNameError(f"unknown executor {name}", hint=suggest(name, EXECUTORS))
    if name == "docker":
        from aotforge.sandbox.executors.docker import DockerExecutor  # noqa: PLC0415 - the docker SDK

        return DockerExecutor(cache / "executors" / name, keep=keep)
    if name == "podman":
        return PodmanExecutor(cache / "executors" / name, keep=keep)
    kind = BubblewrapExecutor if name == "bubblewrap" else LocalExecutor
    return kind(cache / "executors" / "work", keep=keep)


def choose_executor(name: str, *, cache: Path, keep: bool = False, observer: Observer) -> Executor:
    """An executor that works here, after it removed what killed processes left. `auto`: the first of docker, podman and bubblewrap
    that works, else local; the observer receives why. Raises UnknownNameError, ExecutorError."""
    reasons = []
    for candidate in (*ORDER, "local") if name == "auto" else (name,):
        try:
            executor = make_executor(candidate, cache=cache, keep=keep)
            break
        except ExecutorError as error:
            if name != "auto":
                raise
            reasons.append(f"not {candidate}: {error.what}")
    if name == "auto":
        observer.note("; ".join([f"executor: {executor.name}", *reasons]))
    for left in executor.reap():
        observer.note(f"{executor.name}: removed what a killed process left: {left}")
    return executor


def resolve_rootfs(
    checkout: Path, name: str, *, cache: Path, environment: Mapping[str, str], observer: Observer
) -> RootFS:
    """The rootfs `name` of the checkout, built if the cache lacks it. Raises what `ensure_rootfs` raises."""
    from aotforge.sandbox.rootfs.image import docker_archive, image_id, image_tag  # noqa: PLC0415 - 46 ms of a no-op build
    from aotforge.sandbox.rootfs.rootfs_cache import ensure_rootfs, unpack_rootfs  # noqa: PLC0415 - as above

    image = ensure_rootfs(checkout, name, cache=cache, environment=environment, observer=observer)
    return RootFS(
        name=image.name,
        identity=image.digest,
        python=image.python,
        environment=image.environment,
        image=image_tag(image),
        image_id=image_id(image),
        unpacked=lambda: unpack_rootfs(image, cache=cache),
        archive=lambda: docker_archive(image, cache=cache),
    )


def choose_execution_targets(
    name: str,
    checkout: Path,
    *,
    roots: Sequence[str] = (KERNELS, RUNTIME),
    cache: Path,
    keep: bool = False,
    environment: Mapping[str, str],
    observer: Observer,
) -> ExecutionTargets:
    """An executor with the rootfs images `roots` of the checkout; local has none. Raises what `choose_executor` and `resolve_rootfs`
    raise."""
    executor = choose_executor(name, cache=cache, keep=keep, observer=observer)

    def rootfs(root: str) -> RootFS | None:
        if executor.name == "local":
            return None
        return resolve_rootfs(checkout, root, cache=cache, environment=environment, observer=observer)

    targets = {root: ExecutionTarget(executor=executor, rootfs=rootfs(root)) for root in roots}
    return ExecutionTargets(executor=executor.name, by_rootfs=targets)


def reap_all(*, cache: Path, kept: bool = False) -> dict[str, list[str]]:
    """Names of the containers, folders and cgroups that each working executor removed, by executor."""
    removed = {}
    for name in EXECUTORS[1:]:
        try:
            removed[name] = make_executor(name, cache=cache).reap(kept=kept)
        except ExecutorError:
            continue
    return removed
