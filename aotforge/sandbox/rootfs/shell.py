"""The command that enters a root: bubblewrap where it is, else an engine. No network, read-only, an empty /tmp."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from aotforge.errors import ContainerError
from aotforge.sandbox.rootfs.docker_image import docker_archive, image_tag
from aotforge.sandbox.rootfs.rootfs import RootfsImage
from aotforge.sandbox.rootfs.rootfs_cache import unpack_rootfs

_ENGINES = ("docker", "podman")


def shell_command(root: RootfsImage, *, cache: Path, run: str, terminal: bool) -> Sequence[str]:
    """A command for this machine; `run` is a line for /bin/sh, empty for an interactive shell. Raises ContainerError."""
    inside = ["/bin/sh", "-c", run] if run else ["/bin/bash"]
    if bubblewrap := shutil.which("bwrap"):
        return bubblewrap_command(bubblewrap, root, unpack_rootfs(root, cache=cache), inside)
    for engine in _ENGINES:
        if found := shutil.which(engine):
            _load(found, root, cache)
            flags = ["--interactive", *(["--tty"] if terminal else [])]
            return [
                found, "run", "--rm", *flags, "--network", "none", "--read-only", "--tmpfs", "/tmp:exec",
                "--cap-drop", "ALL", "--user", "1000:1000", image_tag(root), *inside,
            ]  # fmt: skip
    raise ContainerError(
        f"nothing on this machine can enter {root.name}",
        cause="neither bubblewrap, docker nor podman is on PATH",
        hint="apt-get install bubblewrap",
    )


def bubblewrap_command(program: str, root: RootfsImage, tree: Path, inside: Sequence[str]) -> list[str]:
    """bubblewrap's command line for a command in the unpacked root."""
    settings = [part for name, value in root.environment for part in ("--setenv", name, value)]
    return [
        program, "--ro-bind", str(tree), "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
        "--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000", "--die-with-parent", "--hostname", root.name,
        "--clearenv", *settings, "--chdir", "/tmp", *inside,
    ]  # fmt: skip


def _load(engine: str, root: RootfsImage, cache: Path) -> None:
    command = [engine, "load", "--input", str(docker_archive(root, cache=cache))]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise ContainerError(
            f"{Path(engine).name} does not load {image_tag(root)}",
            cause=done.stderr.strip()[-400:],
            hint="start the engine, or allow this user to use it",
        )
