"""The command that enters a rootfs: no network, read-only, an empty /tmp."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from aotforge.errors import ContainerError
from aotforge.sandbox.rootfs.definitions import RootfsImage
from aotforge.sandbox.rootfs.docker_image import docker_archive, image_tag
from aotforge.sandbox.rootfs.rootfs_cache import unpack_rootfs


def shell_command(image: RootfsImage, *, cache: Path, run: str, terminal: bool) -> Sequence[str]:
    """A command for this machine; `run` is a line for /bin/sh, empty for an interactive shell. Raises ContainerError."""
    inside = ["/bin/sh", "-c", run] if run else ["/bin/bash"]
    if bubblewrap := shutil.which("bwrap"):
        return bubblewrap_command(bubblewrap, image, unpack_rootfs(image, cache=cache), inside)
    engine = shutil.which("docker") or shutil.which("podman")
    if not engine:
        raise ContainerError(
            f"no program on this machine can enter {image.name}",
            cause="neither bubblewrap, docker nor podman is on PATH",
            hint="apt-get install bubblewrap",
        )
    _load(engine, image, cache)
    words = [engine, "run", "--rm", "--interactive", *(["--tty"] if terminal else []), "--network", "none"]
    words += ["--read-only", "--tmpfs", "/tmp:exec", "--cap-drop", "ALL", "--user", "1000:1000"]
    return [*words, image_tag(image), *inside]


def bubblewrap_command(program: str, image: RootfsImage, tree: Path, inside: Sequence[str]) -> list[str]:
    """bubblewrap's command line for a command in the unpacked rootfs."""
    words = [program, "--ro-bind", str(tree), "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    words += ["--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000", "--die-with-parent"]
    words += ["--hostname", image.name, "--clearenv"]
    words += [part for name, value in image.environment for part in ("--setenv", name, value)]
    return [*words, "--chdir", "/tmp", *inside]


def _load(engine: str, image: RootfsImage, cache: Path) -> None:
    command = [engine, "load", "--input", str(docker_archive(image, cache=cache))]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise ContainerError(
            f"{Path(engine).name} does not load {image_tag(image)}",
            cause=done.stderr.strip()[-400:],
            hint="start the engine, or permit this user to use it",
        )
