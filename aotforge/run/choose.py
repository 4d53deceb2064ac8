"""Choice of a step runner by its name, and of the rootfs images that it runs steps in."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from aotforge.base.progress import Observer
from aotforge.errors import ExecutorError, UnknownNameError, suggest
from aotforge.run.processes import BubblewrapRunner, LocalRunner
from aotforge.run.step import KERNELS, RUNTIME, ExecutionTarget, ExecutionTargets, RootFS, StepRunner

ORDER = ("docker", "podman", "bubblewrap")
"""Runners tried by `--executor auto`, in order, before local."""

EXECUTORS = ("auto", "local", *ORDER)
"""Values of `--executor`."""


def make_runner(name: str, *, cache: Path, keep: bool = False) -> StepRunner:
    """A runner that works on this machine. Raises UnknownNameError, ExecutorError."""
    if name not in EXECUTORS[1:]:
        raise UnknownNameError(f"unknown executor {name}", hint=suggest(name, EXECUTORS))
    folder = cache.absolute() / "executors" / name
    if name in {"docker", "podman"}:
        from aotforge.run.engine import DockerRunner, PodmanRunner  # noqa: PLC0415 - the docker SDK

        return (DockerRunner if name == "docker" else PodmanRunner)(folder, keep=keep)
    return (BubblewrapRunner if name == "bubblewrap" else LocalRunner)(folder, keep=keep)


def choose_runner(name: str, *, cache: Path, keep: bool = False, observer: Observer) -> StepRunner:
    """A runner that works here, after it removed what killed processes left.

    `auto`: the first of docker, podman and bubblewrap that works, else local; the observer receives why.
    Raises UnknownNameError, ExecutorError.
    """
    reasons = []
    for candidate in (*ORDER, "local") if name == "auto" else (name,):
        try:
            runner = make_runner(candidate, cache=cache, keep=keep)
            break
        except ExecutorError as error:
            if name != "auto":
                raise
            reasons.append(f"not {candidate}: {error.what}")
    if name == "auto":
        observer.note("; ".join([f"executor: {runner.name}", *reasons]))
    for left in runner.prune():
        observer.note(f"{runner.name}: removed what a killed process left: {left}")
    return runner


def resolve_rootfs(
    checkout: Path, name: str, *, cache: Path, environment: Mapping[str, str], observer: Observer
) -> RootFS:
    """The rootfs `name` of the checkout; its files are made on demand. Raises what `find_rootfs` raises."""
    from aotforge.run.rootfs.cache import find_rootfs  # noqa: PLC0415 - 46 ms of a no-op build

    return find_rootfs(checkout, name, cache=cache, environment=environment, observer=observer)


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
    """A runner with the rootfs images `roots` of the checkout; local has none.

    Raises what `choose_runner` and `resolve_rootfs` raise.
    """
    runner = choose_runner(name, cache=cache, keep=keep, observer=observer)

    def rootfs(root: str) -> RootFS | None:
        if runner.name == "local":
            return None
        return resolve_rootfs(checkout, root, cache=cache, environment=environment, observer=observer)

    targets = {root: ExecutionTarget(runner=runner, rootfs=rootfs(root)) for root in roots}
    return ExecutionTargets(executor=runner.name, by_rootfs=targets)


def prune_all(*, cache: Path, kept: bool = False) -> dict[str, list[str]]:
    """Names of the containers and folders that each working runner removed, by runner."""
    removed = {}
    for name in EXECUTORS[1:]:
        try:
            removed[name] = make_runner(name, cache=cache).prune(kept=kept)
        except ExecutorError:
            continue
    return removed
