"""The rootfs as an image of Docker and podman, with an ID of the cache; the shell in a rootfs.

Format: the archive of `docker save` (manifest.json, one config, one layer), written here because `docker import` puts the time into
the ID. Image specification v1.2 of Docker; the config's digest is the image's ID.
"""

import hashlib
import json
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path

from aotforge.base.child_processes import ENGINE, child_environment, run_child
from aotforge.errors import ContainerError
from aotforge.formats.archive import Member, entry, write_tar
from aotforge.sandbox.rootfs.cache_files import CachePaths, create_once, staged_file, storage_errors
from aotforge.sandbox.rootfs.definitions import RootfsImage
from aotforge.sandbox.rootfs.rootfs_cache import unpack_rootfs

_TIME = "1970-01-01T00:00:00Z"


def image_tag(image: RootfsImage) -> str:
    """Name of the image in an engine."""
    return f"aotforge/{image.name}:{image.digest[:16]}"


def image_id(image: RootfsImage) -> str:
    """`sha256:...`, as engines report it."""
    return f"sha256:{hashlib.sha256(_config(image)).hexdigest()}"


def docker_archive(image: RootfsImage, *, cache: Path) -> Path:
    """An archive for `docker load` and `podman load`, written once. Raises ContainerError."""
    paths = CachePaths(cache=cache)
    path = paths.archive(image_id(image).removeprefix("sha256:"))
    with storage_errors(path):
        create_once(paths.lock(f"{path.stem}.archive"), path.is_file, lambda: _write(image, path))
    return path


def _write(image: RootfsImage, path: Path) -> None:
    config = _config(image)
    name, layer = f"{hashlib.sha256(config).hexdigest()}.json", f"{image.digest}/layer.tar"
    manifest = [{"Config": name, "RepoTags": [image_tag(image)], "Layers": [layer]}]
    layer_info = tarfile.TarInfo(layer)
    layer_info.size = image.tar.stat().st_size
    with staged_file(path) as staged, staged.open("wb") as file, image.tar.open("rb") as content:
        documents = {name: config, "manifest.json": json.dumps(manifest).encode()}
        entries = [entry(member, Member(content=data)) for member, data in documents.items()]
        write_tar(file, [*entries, (layer_info, content)], layout=tarfile.GNU_FORMAT)


def _config(image: RootfsImage) -> bytes:
    assert image.value, "the rootfs is not built"
    fields = {
        "architecture": "amd64",
        "os": "linux",
        "created": _TIME,
        "config": {
            "Env": [f"{name}={value}" for name, value in image.environment],
            "Cmd": ["/bin/sh"],
            # podman does not compare the layers that it pulls with the configuration, whose digest is the ID: an image of
            # others must not have ours
            "Labels": {"aotforge.cache": image.value},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{image.digest}"]},
        "history": [{"created": _TIME, "created_by": f"aotforge {image.name}"}],
    }
    return json.dumps(fields, sort_keys=True).encode()


def shell_command(image: RootfsImage, *, cache: Path, run: str, terminal: bool) -> Sequence[str]:
    """A command of this machine that enters the rootfs: no network, read-only, an empty /tmp. `run` is a line for /bin/sh, empty for
    an interactive shell. Raises ContainerError."""
    inside = ["/bin/sh", "-c", run] if run else ["/bin/bash"]
    if bubblewrap := shutil.which("bwrap"):
        return bubblewrap_command(
            bubblewrap, image, unpack_rootfs(image, cache=cache), inside, terminal=terminal
        )
    engine = shutil.which("docker") or shutil.which("podman")
    if not engine:
        raise ContainerError(
            f"no program on this machine can enter {image.name}",
            cause="neither bubblewrap, docker nor podman is on PATH",
            hint="apt-get install bubblewrap",
        )
    _load(engine, image, cache)
    words = [engine, "run", "--rm", "--interactive", *(["--tty"] if terminal else []), "--network", "none"]
    words += [
        "--pull",
        "never",
    ]  # where the image has gone meanwhile, its name would be looked for in registries
    words += ["--read-only", "--tmpfs", "/tmp:exec", "--cap-drop", "ALL", "--user", "1000:1000"]
    words += ["--security-opt", "no-new-privileges", "--pids-limit", "4096"]
    # podman would pass this machine's proxy settings, which may contain a password
    words += ["--http-proxy=false"] if Path(engine).name == "podman" else []
    return [*words, image_id(image), *inside]


def bubblewrap_command(
    program: str, image: RootfsImage, tree: Path, inside: Sequence[str], *, terminal: bool = False
) -> list[str]:
    """bubblewrap's command line for a command in the unpacked rootfs. Only an interactive shell stays in the terminal's session."""
    words = [program, "--ro-bind", str(tree), "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    # where root calls, user 1000 is the kernel's user 0, which may write /proc/sys
    words += ["--remount-ro", "/proc"]
    words += ["--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000", "--die-with-parent"]
    words += ["--hostname", image.name, "--clearenv", *([] if terminal else ["--new-session"])]
    words += [part for name, value in image.environment for part in ("--setenv", name, value)]
    return [*words, "--chdir", "/tmp", *inside]


def _load(engine: str, image: RootfsImage, cache: Path) -> None:
    command = [engine, "load", "--input", str(docker_archive(image, cache=cache))]
    done = run_child(command, environment=child_environment(keep=ENGINE), capture_output=True)
    if done.returncode:
        raise ContainerError(
            f"{Path(engine).name} does not load {image_tag(image)}",
            cause=done.stderr.strip()[-400:],
            hint="start the engine, or permit this user to use it",
        )
