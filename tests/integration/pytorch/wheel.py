"""The installed PyTorch: its headers, which are those of a ROCm build as well, and libraries that are
compiled with them."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.support.runtime import CACHE, ROOT
from vgpu.hip.build_hip import find_compiler

FIXTURES = ROOT / "tests" / "fixtures" / "pytorch"


@cache
def installed(package: str) -> Path:
    """The folder of an installed package, which is not imported."""
    spec = importlib.util.find_spec(package)
    assert spec and spec.submodule_search_locations, f"{package} is not installed"
    return Path(spec.submodule_search_locations[0])


def flags() -> list[str]:
    """Of a compiler for sources of PyTorch's ROCm build. HIP's headers are those that Triton brings."""
    include = installed("torch") / "include"
    folders = (
        include,
        include / "torch" / "csrc" / "api" / "include",
        installed("triton") / "backends" / "amd" / "include",
    )
    defines = ("-DUSE_ROCM", "-D__HIP_PLATFORM_AMD__", "-DAT_PER_OPERATOR_HEADERS")
    return [
        "-std=c++20",
        "-O0",
        "-fPIC",
        *defines,
        *(word for path in folders for word in ("-isystem", str(path))),
    ]


def compile_with_pytorch(sources: Sequence[Path], out: Path, more: Sequence[str]) -> Path:
    """A shared library for the installed PyTorch. Objects of the same preprocessed text are compiled once."""
    compiler = find_compiler(os.environ)
    libraries = installed("torch") / "lib"
    options = [word for word in more if word.startswith(("-D", "-I", "-isystem"))]
    objects = [
        _object([*compiler, *flags(), "-Wall", "-Wextra", "-Werror", *options], path) for path in sources
    ]
    link = [
        *compiler, "-shared", "-Wl,-z,defs", "-o", str(out), *map(str, objects),
            *(word for word in more if word not in options),
        f"-L{libraries}", "-ltorch_cpu", "-ltorch", "-lc10", f"-Wl,-rpath,{libraries}",
    ]  # fmt: skip
    done = subprocess.run(link, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


def _object(command: Sequence[str], source: Path) -> Path:
    done = subprocess.run([*command, "-E", "-P", str(source)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    words = [word for word in command if not word.startswith("-I")]
    key = hashlib.sha256("\0".join(words).encode() + done.stdout).hexdigest()
    kept = CACHE / "pytorch-objects" / f"{key[:32]}.o"
    if kept.exists():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        made = Path(folder) / "made.o"
        compiled = subprocess.run(
            [*command, "-c", str(source), "-o", str(made)], capture_output=True, text=True, check=False
        )
        assert compiled.returncode == 0, compiled.stderr[-6000:]
        shutil.move(made, kept)
    return kept
