"""Rootfs images and executors for tests: the project's, or a small one of this machine's Python."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from aotforge.base.progress import SILENT
from aotforge.errors import ContainerError, ExecutorError
from aotforge.sandbox.executors.choose import make_executor, resolve_rootfs
from aotforge.sandbox.executors.executor import Executor
from aotforge.sandbox.executors.step import RootFS

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("AOTFORGE_HOME") or ROOT / ".aotforge") / "cache"
SANDBOXED = ("docker", "podman", "bubblewrap")
NAMES = ("local", *SANDBOXED)


@functools.cache
def project_rootfs(name: str) -> RootFS:
    """A root of the checkout, from the shared cache; skips the test where it is not there and no mirror is reachable."""
    try:
        return resolve_rootfs(ROOT, name, cache=cache(), environment=dict(os.environ), observer=SILENT)
    except ContainerError as error:
        if "cannot be fetched" not in error.what:  # such as a damaged lock or root
            raise
        pytest.skip(f"root {name}: {error.what}")


def cache() -> Path:
    """The cache folder that holds roots."""
    return Path(os.environ.get("AOTFORGE_CACHE") or CACHE)


def executor(name: str, folder: Path, *, keep: bool = False) -> Executor:
    """An executor, or a skipped test and its reason."""
    try:
        return make_executor(name, cache=folder, keep=keep)
    except ExecutorError as error:
        pytest.skip(error.what)


@functools.cache
def small_rootfs(folder: Path) -> RootFS:
    """This machine's Python, shell and tools as a root of a few tens of megabytes: made in a second, without packages."""
    tree = folder / "tree"
    for name in ("proc", "dev", "tmp", "sys", "etc", "run", "usr/bin", "bin", "lib64"):
        (tree / name).mkdir(parents=True, exist_ok=True)
    (tree / "tmp").chmod(0o1777)
    python = Path("/usr/bin/python3").resolve()
    if not python.exists():
        pytest.skip("no /usr/bin/python3 to make a root of")
    script = "import sys, sysconfig; print(sysconfig.get_path('stdlib'))"
    library = Path(subprocess.check_output([python, "-I", "-c", script], text=True).strip())
    wanted = [python, Path("/bin/sh")]
    wanted += [
        Path(found)
        for name in ("sleep", "cat", "touch", "id", "env", "mkdir")
        if (found := shutil.which(name))
    ]
    modules = [path for path in library.rglob("*") if path.is_file() and _needed(path.relative_to(library))]
    for path in {*wanted, *modules, *_libraries([*wanted, *(m for m in modules if m.suffix == ".so")])}:
        target = tree / str(path).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    archive, image = _archive(tree, folder)
    return RootFS(
        name="small", identity=image, python=str(python), environment=(), image=f"aotforge/small:{image[7:19]}",
        image_id=image, unpacked=lambda: tree, archive=lambda: archive,
    )  # fmt: skip


def _needed(name: Path) -> bool:
    heavy = {"test", "idlelib", "lib2to3", "distutils", "pydoc_data", "ensurepip", "tkinter", "__pycache__"}
    return (
        not heavy & set(name.parts)
        and "dist-packages" not in name.parts
        and not name.parts[0].startswith("config-")
    )


def _libraries(files: list[Path]) -> set[Path]:
    found = set()
    for file in files:
        listed = subprocess.run(["ldd", str(file)], capture_output=True, text=True, check=False).stdout
        found |= {Path(word) for word in listed.split() if word.startswith("/")}
    return found


def _same(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _archive(tree: Path, folder: Path) -> tuple[Path, str]:
    layer = folder / "layer.tar"
    with tarfile.open(layer, "w") as tar:
        tar.add(tree, ".", filter=_same)  # one image in the engine, however often tests run
    digest = hashlib.sha256(layer.read_bytes()).hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64", "os": "linux", "config": {},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()  # fmt: skip
    image = hashlib.sha256(config).hexdigest()
    tag = f"aotforge/small:{image[:12]}"
    manifest = json.dumps([{"Config": f"{image}.json", "RepoTags": [tag], "Layers": ["layer.tar"]}]).encode()
    path = folder / "image.tar"
    with tarfile.open(path, "w") as tar:
        for name, data in (("manifest.json", manifest), (f"{image}.json", config)):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        tar.add(layer, "layer.tar")
    return path, f"sha256:{image}"
