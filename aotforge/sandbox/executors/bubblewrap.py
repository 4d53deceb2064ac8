"""Executor for bubblewrap: read-only rootfs folder, namespaces, no daemon; also without root."""

import os
import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from aotforge.base.child_processes import ChildEnvironment, fixed_environment
from aotforge.errors import ExecutorError
from aotforge.sandbox.executors.cgroups import ControlGroups, reap_groups
from aotforge.sandbox.executors.executor import AgentRun, Executor
from aotforge.sandbox.executors.local import ProcessChannel, find_program, run_program
from aotforge.sandbox.executors.owner import cache_errors, reap_folders, work_folder
from aotforge.sandbox.executors.session import UID, WORK, AgentConfig, agent_command
from aotforge.sandbox.executors.step import RootFS, Step

_PROBE_SECONDS = 30


class BubblewrapExecutor(Executor):
    """Steps in bubblewrap sandboxes. `folder` is the parent of work folders that are kept."""

    name = "bubblewrap"

    def __init__(self, folder: Path, *, keep: bool = False) -> None:
        self._program, self._folder, self._keep = find_program("bubblewrap", "bwrap"), folder, keep
        self._probe()

    @contextmanager
    def start_agent(self, step: Step, rootfs: RootFS | None) -> Iterator[AgentRun]:
        """Starts the agent in a sandbox."""
        assert rootfs is not None
        tree, limits = rootfs.unpacked(), step.limits
        group_limits = {"memory_bytes": limits.memory_bytes, "processes": limits.processes + 8}
        with work_folder(self._folder) as folder, closing(ControlGroups(**group_limits)) as groups:
            words = self._words(tree, step, folder.path if self._keep else None)
            command = [*words, *agent_command(rootfs.python)]
            config = AgentConfig(
                folder=WORK,
                sandboxed=True,
                uid=UID,
                memory_bytes=None if groups.folders else limits.memory_bytes,
                processes=None if groups.folders else limits.processes,
            )
            enter = shlex.join([*words, "/bin/sh"]) if self._keep else ""
            channel = ProcessChannel(command, environment=_environment(), what="bubblewrap", groups=groups)
            with closing(channel):
                run = AgentRun(channel=channel, config=config, enter=enter)
                try:
                    yield run
                finally:
                    folder.kept = run.kept

    def _words(self, tree: Path, step: Step, kept: Path | None) -> list[str]:
        words = [self._program, *_namespaces(), "--die-with-parent", "--new-session", "--clearenv"]
        # its /dev is a tmpfs without a limit, which a user without root could write to
        words += ["--ro-bind", str(tree), "/", "--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
        if kept is None:
            words += ["--perms", "1777", "--size", str(step.limits.scratch_bytes), "--tmpfs", "/tmp"]
        else:
            # inside a folder of mode 0700: every user could put files beside those of the step otherwise
            scratch = kept / "tmp"
            with cache_errors(kept):
                scratch.mkdir()
                scratch.chmod(0o1777)
            words += ["--bind", str(scratch), "/tmp"]
        return [*words, "--chdir", "/", "--setenv", "PATH", "/usr/bin:/bin"]

    def _probe(self) -> None:
        """Raises ExecutorError when the kernel does not let this user create namespaces."""
        command = [self._program, *_namespaces(), "--die-with-parent", "--ro-bind", "/", "/", "true"]
        if trouble := run_program(command, environment=_environment(), seconds=_PROBE_SECONDS)[1]:
            raise ExecutorError(
                f"bubblewrap cannot create a sandbox here: {trouble}",
                cause="the kernel does not let this user create namespaces, as inside many containers",
                hint="allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1), or another --executor",
            )

    def reap(self, *, kept: bool = False) -> list[str]:
        """Removes orphaned work folders and cgroups."""
        return reap_folders(self._folder, kept=kept) + reap_groups()


def _environment() -> ChildEnvironment:
    """Of bwrap itself, whose process 1 shares the sandbox's PID namespace."""
    return fixed_environment({"PATH": os.defpath})


def _namespaces() -> list[str]:
    """All namespaces for a user. For root all but the user namespace, because the step's user could write to files of the rootfs'
    owner that are mapped to it: the agent drops its privileges instead."""
    if os.geteuid() != 0:
        return ["--unshare-all", "--unshare-user", "--uid", str(UID), "--gid", str(UID)]
    own = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    kept = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")  # SETPCAP: the agent empties the bounding set
    return [*own, "--cap-drop", "ALL", *(word for name in kept for word in ("--cap-add", name))]
