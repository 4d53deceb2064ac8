"""CMake builds of a source tree as users run them, sharing compiled objects."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aotforge.library.sources import load_runtime_manifest, unpack_zstd
from tests.support.runtime import CACHE, ROOT

LAUNCHER = f"{sys.executable};{ROOT / 'tests' / 'support' / 'compile_once.py'};{CACHE}"
PYTORCH = (
    *("-DAOTRITON_NOIMAGE_MODE=ON", "-DAOTRITON_TARGET_ARCH=gfx908;gfx90a", "-DAOTRITON_GPU_BUILD_TIMEOUT=0"),
    *("-DAOTRITON_NO_PYTHON=ON", "-DHIP_PLATFORM=amd", "-DCMAKE_BUILD_TYPE=Release"),
)
"""What PyTorch's own build passes (besides the prefix) when it builds the library without images."""

Finished = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Route:
    """A build folder of a source tree and the prefix that it installs to."""

    source: Path
    build: Path
    prefix: Path
    environment: Mapping[str, str]

    def configure(
        self, *options: str, check: bool = True, generator: str = "Ninja", share: bool = True
    ) -> Finished:
        shared = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={LAUNCHER}", f"-DCMAKE_C_COMPILER_LAUNCHER={LAUNCHER}"]
        prefix = f"-DCMAKE_INSTALL_PREFIX={self.prefix}"
        self.build.mkdir(parents=True, exist_ok=True)
        return self.run(
            "cmake",
            str(self.source),
            "-G",
            generator,
            *options,
            prefix,
            *(shared if share else []),
            check=check,
        )

    def ninja(self, *targets: str, check: bool = True, **environment: str) -> Finished:
        return self.run("ninja", *targets, check=check, **environment)

    def run(self, *command: str, check: bool = True, **environment: str) -> Finished:
        done = subprocess.run(
            command, cwd=self.build, env=dict(self.environment) | environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if check and done.returncode:
            raise AssertionError(f"{command} exited {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def output(self, done: Finished) -> str:
        """Both outputs as one line: CMake wraps its messages."""
        return " ".join((done.stdout + done.stderr).split())


def environment(**extra: str) -> dict[str, str]:
    """The caller's, without settings of ours, with the one download of a build at hand."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AOTFORGE_", "AOTRITON_", "CMAKE_"))}
    return kept | {"AOTFORGE_SOURCES": str(zstd_archive().parent)} | extra


def zstd_archive() -> Path:
    """The pinned archive in the project's cache, fetched if it is not there."""
    pin = load_runtime_manifest(ROOT / "manifests").zstd
    path = CACHE / "sources" / pin.sha256 / pin.file
    if not path.is_file():
        unpack_zstd(pin, cache=CACHE, folder=CACHE / "source-route" / "zstd", environment=os.environ)
    return path


def files(prefix: Path) -> dict[str, bytes | str]:
    """Every file below a prefix by its relative path: bytes, or a link's target."""
    return {
        path.relative_to(prefix).as_posix(): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in sorted(prefix.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def times(folder: Path) -> dict[str, int]:
    return {str(p.relative_to(folder)): p.lstat().st_mtime_ns for p in folder.rglob("*") if not p.is_dir()}
