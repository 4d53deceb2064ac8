"""From `--executor NAME` to an executor that works here, and from a root's name to the rootfs that it runs steps in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from aotforge.base.progress import Observer
from aotforge.errors import ExecutorError, UnknownNameError, suggest
from aotforge.sandbox.executors.executor import Executor
from aotforge.sandbox.executors.pending import PendingContainers
from aotforge.sandbox.executors.step import (
    EXECUTORS,
    KERNELS,
    RUNTIME,
    ExecutionTarget,
    ExecutionTargets,
    RootFS,
)

ORDER = ("docker", "podman", "bubblewrap")
"""What `auto` tries before it falls back to this machine as it is."""


def work_parent(cache: Path) -> Path:
    """The folder of steps' work folders."""
    return cache / "executors" / "work"


def make_executor(name: str, *, cache: Path, keep: bool = False) -> Executor:
    """An executor by name, after asking whether it works here. Raises UnknownNameError, ExecutorError."""
    # imported where used: each brings what only it needs
    if name == "local":
        from aotforge.sandbox.executors.local import LocalExecutor  # noqa: PLC0415

        return LocalExecutor(work_parent(cache), keep=keep)
    if name == "bubblewrap":
        from aotforge.sandbox.executors.bubblewrap import BubblewrapExecutor  # noqa: PLC0415

        return BubblewrapExecutor(work_parent(cache), keep=keep)
    if name == "docker":
        from aotforge.sandbox.executors.docker import DockerExecutor  # noqa: PLC0415

        return DockerExecutor(PendingContainers(cache / "executors" / "docker"), keep=keep)
    if name == "podman":
        from aotforge.sandbox.executors.podman import PodmanExecutor  # noqa: PLC0415

        return PodmanExecutor(PendingContainers(cache / "executors" / "podman"), keep=keep)
    raise UnknownNameError(f"unknown executor {name}", hint=suggest(name, EXECUTORS))


def choose_executor(name: str, *, cache: Path, keep: bool = False, observer: Observer) -> Executor:
    """An executor that works here and has swept up after earlier ones. `auto` takes the first of docker, podman and bubblewrap that
    works, else local, and says why not another. Raises UnknownNameError, ExecutorError."""
    automatic = name == "auto"
    executor = _first(cache, keep, observer) if automatic else make_executor(name, cache=cache, keep=keep)
    for left in executor.reap():
        observer.note(f"{executor.name}: removed what a dead process had left: {left}")
    return executor


def _first(cache: Path, keep: bool, observer: Observer) -> Executor:
    reasons = []
    for name in ORDER:
        try:
            executor = make_executor(name, cache=cache, keep=keep)
        except ExecutorError as error:
            reasons.append(f"not {name}: {error.what}")
            continue
        observer.note("; ".join([f"executor: {name}", *reasons]))
        return executor
    observer.note("; ".join(["executor: local", *reasons]))
    return make_executor("local", cache=cache, keep=keep)


def resolve_rootfs(
    checkout: Path,
    name: str,
    *,
    cache: Path,
    environment: Mapping[str, str],
    observer: Observer,
) -> RootFS:
    """The root `name` of the checkout, made if the cache lacks it. Raises what `aotforge.sandbox.rootfs.ensure_rootfs` raises."""
    # locks are validated models: only builds in containers load them
    from aotforge.sandbox.rootfs import docker_image, rootfs_cache  # noqa: PLC0415

    root = rootfs_cache.ensure_rootfs(checkout, name, cache=cache, environment=environment, observer=observer)
    return RootFS(
        name=root.name,
        identity=root.digest,
        python=root.python,
        environment=root.environment,
        image=docker_image.image_tag(root),
        image_id=docker_image.image_id(root),
        unpacked=lambda: rootfs_cache.unpack_rootfs(root, cache=cache),
        archive=lambda: docker_image.docker_archive(root, cache=cache),
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
    """An executor, and the `roots` of the checkout that are needed, none on this machine as it is. Raises what `choose_executor` and
    `resolve_rootfs` raise."""
    executor = choose_executor(name, cache=cache, keep=keep, observer=observer)
    made = {
        root: _execution(executor, checkout, root, cache=cache, environment=environment, observer=observer)
        for root in roots
    }
    return ExecutionTargets(executor=executor.name, made=made)


def kernel_execution_target(
    name: str,
    checkout: Path,
    *,
    cache: Path,
    keep: bool = False,
    environment: Mapping[str, str],
    observer: Observer,
) -> ExecutionTarget | None:
    """Where kernels alone are compiled; None is this machine as it is. Raises as `choose_execution_targets`."""
    if name == "local":
        return None
    executor = choose_executor(name, cache=cache, keep=keep, observer=observer)
    return _execution(executor, checkout, KERNELS, cache=cache, environment=environment, observer=observer)


def _execution(
    executor: Executor,
    checkout: Path,
    root: str,
    *,
    cache: Path,
    environment: Mapping[str, str],
    observer: Observer,
) -> ExecutionTarget:
    if executor.name == "local":
        return ExecutionTarget(executor=executor, rootfs=None)
    rootfs = resolve_rootfs(checkout, root, cache=cache, environment=environment, observer=observer)
    return ExecutionTarget(executor=executor, rootfs=rootfs)


def reap_all(*, cache: Path, kept: bool = False) -> dict[str, list[str]]:
    """What every executor that works here could remove: containers, folders and groups whose processes are gone."""
    removed = {}
    for name in EXECUTORS[1:]:
        try:
            removed[name] = make_executor(name, cache=cache).reap(kept=kept)
        except ExecutorError:
            continue
    return removed
