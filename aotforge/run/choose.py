"""Choice of a step runner by its name, and of the rootfs images that it runs steps in."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from aotforge.base.progress import Observer
from aotforge.errors import ExecutorError, UnknownNameError, suggest
from aotforge.run.processes import BubblewrapRunner, LocalRunner
from aotforge.run.step import Executions, ExecutionTarget, StepRunner

ORDER = ("docker", "podman", "bubblewrap")
"""Runners tried by `--executor auto`, in order, before local."""

EXECUTORS = ("auto", "local", *ORDER)
"""Values of `--executor`."""


def make_runner(name: str, *, cache: Path) -> StepRunner:
    """A runner that works on this machine. Raises UnknownNameError, ExecutorError."""
    if name not in EXECUTORS[1:]:
        raise UnknownNameError(f"unknown executor {name}", hint=suggest(name, EXECUTORS))
    folder = cache.absolute() / "executors" / name
    if name in {"docker", "podman"}:
        from aotforge.run.engine import EngineRunner  # noqa: PLC0415 - the docker SDK

        return EngineRunner(name, folder)
    return BubblewrapRunner(folder) if name == "bubblewrap" else LocalRunner(folder)


def choose_runner(name: str, *, cache: Path, observer: Observer) -> StepRunner:
    """A runner that works here, pruned; `auto`: the first of `ORDER`, else local. Raises as `make_runner`."""
    reasons = []
    for candidate in (*ORDER, "local") if name == "auto" else (name,):
        try:
            runner = make_runner(candidate, cache=cache)
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


def choose_executions(
    name: str,
    checkout: Path,
    *,
    roots: Sequence[str],
    cache: Path,
    environment: Mapping[str, str],
    observer: Observer,
) -> Executions:
    """A runner with the rootfs images `roots`; local has none. Raises as `choose_runner`, `find_rootfs`."""
    runner = choose_runner(name, cache=cache, observer=observer)
    if runner.name == "local":
        return dict.fromkeys(roots, ExecutionTarget(runner=runner, rootfs=None))
    from aotforge.run.rootfs.cache import find_rootfs  # noqa: PLC0415 - 46 ms of a no-op build

    return {
        root: ExecutionTarget(
            runner=runner,
            rootfs=find_rootfs(checkout, root, cache=cache, environment=environment, observer=observer),
        )
        for root in roots
    }
