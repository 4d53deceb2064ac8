"""Executor for podman through its command line: no daemon; root is not required."""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from aotforge.base.child_processes import ENGINE, child_environment
from aotforge.errors import ExecutorError
from aotforge.sandbox.executors.containers import SPARE_PROCESSES, ContainerExecutor, engine_error
from aotforge.sandbox.executors.local import ProcessChannel, find_program, run_program
from aotforge.sandbox.executors.owner import LABEL
from aotforge.sandbox.executors.session import UID, AgentExit, agent_command
from aotforge.sandbox.executors.step import RootFS, Step

_COMMAND_SECONDS = 120
_LOAD_SECONDS = 1800

_RLIMITS = (("nofile", resource.RLIMIT_NOFILE, 16384), ("nproc", resource.RLIMIT_NPROC, 16384))
"""Podman would raise these to its own values, which not every root user may; they limit the user, not the step."""
_HYBRID = Path("/sys/fs/cgroup/unified")


class PodmanChannel(ProcessChannel):
    """`podman run` in the foreground: its streams are the container's, and it exits when they close."""

    executor: PodmanExecutor
    container: str

    def ended(self) -> AgentExit:
        """State of the container, else exit status and stderr."""
        state = self.executor.state(self.container)
        return AgentExit(limit="memory") if state.get("OOMKilled") else super().ended()


class PodmanExecutor(ContainerExecutor):
    """Steps in containers of podman."""

    name = "podman"

    def __init__(self, folder: Path, *, keep: bool = False) -> None:
        super().__init__(folder, keep=keep)
        self._program = find_program("podman", "podman")
        self._runtime = self._find_runtime()

    def _find_runtime(self) -> list[str]:
        """Options for the OCI runtime: crun refuses machines with both cgroup versions mounted, runc does not."""
        host = json.loads(self._command("reading podman's settings", "info", "--format", "json"))["host"]
        hybrid = host.get("cgroupVersion") == "v1" and _HYBRID.is_dir()
        runc = shutil.which("runc") if hybrid and host["ociRuntime"]["name"] == "crun" else None
        return ["--runtime", runc] if runc else []

    def start_container(self, name: str, step: Step, rootfs: RootFS) -> PodmanChannel:
        """Starts `podman run`."""
        words = self._run_words(name, step, rootfs)
        channel = PodmanChannel(words, environment=child_environment(keep=ENGINE), what="podman")
        channel.executor, channel.container = self, name
        return channel

    def _run_words(self, name: str, step: Step, rootfs: RootFS) -> list[str]:
        limits = step.limits
        words = [self._program, *self._runtime, "run", "--name", name, "--interactive", "--pull", "never"]
        for key, value in self.labels(step).items():
            words += ["--label", f"{key}={value}"]
        # podman would pass this machine's proxy settings, which may contain a password; there is no network to use them on
        words += ["--http-proxy=false", "--network", "none"]
        words += ["--read-only", "--read-only-tmpfs=false", "--user", f"{UID}:{UID}"]
        words += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--log-driver", "none"]
        words += ["--memory", str(limits.memory_bytes), "--memory-swap", str(limits.memory_bytes)]
        words += ["--pids-limit", str(limits.processes + SPARE_PROCESSES), "--workdir", "/"]
        scratch = f"rw,exec,nosuid,nodev,mode=1777,size={limits.scratch_bytes}"
        words += ["--tmpfs", f"/tmp:{scratch}", "--env", "PATH=/usr/bin:/bin", "--entrypoint", "[]"]
        for limit, number, most in _RLIMITS:
            bound = resource.getrlimit(number)[1]
            least = most if bound == resource.RLIM_INFINITY else min(most, bound)
            words += ["--ulimit", f"{limit}={least}:{least}"]
        return [*words, rootfs.image_id, *agent_command(rootfs.python)]

    def require_image(self, rootfs: RootFS) -> None:
        """Loads the image if podman lacks it."""
        if self._run("image", "exists", rootfs.image_id)[1]:
            words = ("load", "--quiet", "--input", str(rootfs.archive()))
            self._command(f"loading {rootfs.image}", *words, seconds=_LOAD_SECONDS)

    def state(self, name: str) -> dict[str, Any]:
        """State of a container; empty when it does not exist."""
        with suppress(ExecutorError, ValueError, LookupError):
            text = self._command("inspecting a container", "inspect", "--type", "container", name)
            state = json.loads(text)[0]["State"]
            if isinstance(state, dict):
                return state
        return {}

    def remove(self, name: str) -> bool:
        """Removes a container; podman prints its name or ID if it existed."""
        words = ("rm", "--force", "--ignore", "--volumes", "--time", "0", name)
        with suppress(ExecutorError):
            return bool(self._command("removing a container", *words).strip())
        return False

    def is_created(self, name: str) -> bool:
        """Removal during a creation takes the storage away, and the creation then adds a container without storage."""
        return not self._run("container", "exists", name)[1]

    def _run(self, *words: str, seconds: float = _COMMAND_SECONDS) -> tuple[str, str]:
        own = child_environment(keep=ENGINE)
        return run_program([self._program, *words], environment=own, seconds=seconds)

    def _command(self, doing: str, *words: str, seconds: float = _COMMAND_SECONDS) -> str:
        output, trouble = self._run(*words, seconds=seconds)
        if not trouble:
            return output
        hint = "check podman info for this user; or choose another --executor"
        raise engine_error("podman", doing, trouble, otherwise=hint)

    def labelled(self) -> list[tuple[str, Mapping[str, str]]]:
        """Containers of this project."""
        words = ("ps", "--all", "--filter", f"label={LABEL}", "--format", "json")
        found = json.loads(self._command("looking for abandoned containers", *words) or "[]") or []
        return [(container["Names"][0], container.get("Labels") or {}) for container in found]
