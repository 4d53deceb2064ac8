"""Rootfs images and step runners for tests: the project's, or a small one of this machine's programs."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from aotforge.base.progress import SILENT
from aotforge.errors import ContainerError, ExecutorError
from aotforge.run.choose import make_runner
from aotforge.run.rootfs.cache import find_rootfs
from aotforge.run.step import ExecutionTarget, RootFS, StepRunner

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("AOTFORGE_HOME") or ROOT / ".aotforge") / "cache"
SANDBOXED = ("docker", "podman", "bubblewrap")
NAMES = ("local", *SANDBOXED)


def cache() -> Path:
    """The cache folder that has the rootfs images."""
    return Path(os.environ.get("AOTFORGE_CACHE") or CACHE)


@functools.cache
def project_rootfs(name: str) -> RootFS:
    """A rootfs of the checkout, from the shared cache."""
    return find_rootfs(ROOT, name, cache=cache(), environment=dict(os.environ), observer=SILENT)


@contextlib.contextmanager
def or_skipped() -> Iterator[None]:
    """Skips the test where a rootfs is not in the cache and no mirror is reachable."""
    try:
        yield
    except ContainerError as error:
        if "cannot be fetched" not in error.what:
            raise
        pytest.skip(error.what)


def runner(name: str, folder: Path) -> StepRunner:
    """A runner, or a skipped test and its reason."""
    try:
        return make_runner(name, cache=folder)
    except ExecutorError as error:
        pytest.skip(error.what)


def target(name: str, folder: Path, root: str) -> ExecutionTarget:
    """A runner with a rootfs of the checkout, which is fetched first."""
    execution_target = ExecutionTarget(runner=runner(name, folder), rootfs=project_rootfs(root))
    with or_skipped():
        if name == "bubblewrap":
            project_rootfs(root).unpacked()
    return execution_target


@functools.cache
def small_rootfs(folder: Path) -> RootFS:
    """This machine's Python, shell and tools as a rootfs of a few tens of megabytes, made in a second."""
    tree = folder / "tree"
    for name in ("proc", "dev", "tmp", "sys", "etc", "run", "work", "usr/bin", "bin", "lib64"):
        (tree / name).mkdir(parents=True, exist_ok=True)
    (tree / "tmp").chmod(0o1777)
    python = Path("/usr/bin/python3").resolve()
    if not python.exists():
        pytest.skip("no /usr/bin/python3 to make a rootfs of")
    script = "import sysconfig; print(sysconfig.get_path('stdlib'))"
    library = Path(subprocess.check_output([python, "-I", "-c", script], text=True).strip())
    tools = ("sleep", "cat", "touch", "id", "env", "mkdir", "timeout")
    wanted = [python, Path("/bin/sh"), *(Path(tool) for name in tools if (tool := shutil.which(name)))]
    modules = [path for path in library.rglob("*") if path.is_file() and _needed(path.relative_to(library))]
    for path in {*wanted, *modules, *libraries_of([*wanted, *(m for m in modules if m.suffix == ".so")])}:
        target = tree / str(path).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    packed = folder / "root.tar"
    with tarfile.open(packed, "w") as tar:
        tar.add(tree, ".", filter=_same)  # one image in the engine, however often tests run
    return RootFS(
        name="small",
        identity=hashlib.sha256(packed.read_bytes()).hexdigest(),
        python=str(python),
        environment=(),
        packed=lambda: contextlib.nullcontext(packed),
        unpacked=lambda: tree,
    )


def _needed(name: Path) -> bool:
    heavy = {"test", "idlelib", "lib2to3", "distutils", "pydoc_data", "ensurepip", "tkinter", "__pycache__"}
    packages = {"dist-packages", "site-packages"}
    return not (heavy | packages) & set(name.parts) and not name.parts[0].startswith("config-")


def libraries_of(files: list[Path]) -> set[Path]:
    libraries = set()
    for file in files:
        listed = subprocess.run(["ldd", str(file)], capture_output=True, text=True, check=False).stdout
        libraries |= {Path(word) for word in listed.split() if word.startswith("/")}
    return libraries


def _same(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
