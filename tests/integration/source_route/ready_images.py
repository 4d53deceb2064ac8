"""Ready images of tests, and the script that takes them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from tests.integration.source_route.routes import Finished
from tests.support.attention import spy_pack
from tests.support.runtime import ROOT
from tests.support.small_pack import write

IMAGES = "lib/aotriton.images"


def pack(folder: Path, name: str, arch: str) -> Path:
    """A pack of the format, without code that a GPU could run."""
    write(spy_pack(arch), folder / name)
    (folder / name / "__signature__").write_text(f'{{\n "archs": [\n  "{arch}"\n ],\n "pack": "{name}"\n}}\n')
    return folder / name


def release(folder: Path, packs: dict[str, str]) -> Path:
    """A release folder with an image tarball for every pack, and SHA256SUMS."""
    folder.mkdir(parents=True)
    for name, arch in packs.items():
        source = pack(folder / "work", name, arch)
        path = folder / f"aotriton-0.11.2b-r1-images-{name}.tar.gz"
        with tarfile.open(path, "w:gz", format=tarfile.USTAR_FORMAT) as tar:
            tar.add(source, f"aotriton/{IMAGES}/{name}")
    shutil.rmtree(folder / "work")
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir())
    ]
    (folder / "SHA256SUMS").write_text("".join(lines))
    return folder


def take(tmp_path: Path, ready: Sequence[Path], archs: str = "", **extra: str) -> tuple[Finished, Path]:
    """Finished script and its output folder, as a build executes it."""
    output = tmp_path / "taken é"
    settings = tmp_path / "settings.cmake"
    values = {"ARCHS": archs, "OUTPUT": str(output), "READY": ";".join(map(str, ready))}
    settings.write_text("".join(f"set({name} [==[{value}]==])\n" for name, value in values.items()))
    done = subprocess.run(
        ["cmake", f"-DSETTINGS={settings}", "-P", ROOT / "cmake" / "take_images.cmake"],
        env=dict(os.environ) | extra, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done, output
