"""Ready images of tests, and the program that takes them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.integration.source_route.routes import Finished
from tests.support.attention import spy_pack
from tests.support.runtime import CACHE, ROOT, tree_digest
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


SOURCES = ROOT / "cmake" / "take_images"


@cache
def take_images(*options: str) -> Path:
    """The program that takes ready images, of the present sources."""
    sources = [*sorted(SOURCES.glob("*.cpp")), ROOT / "runtime" / "src" / "sha256.cpp"]
    words = [
        "c++",
        "-std=c++17",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Wshadow",
        "-Werror",
        f"-I{ROOT / 'runtime' / 'src'}",
        *options,
    ]
    facts = [
        *words,
        tree_digest(SOURCES),
        *(path.read_text() for path in (ROOT / "runtime" / "src").glob("sha256.*")),
    ]
    program = CACHE / "source-route" / f"take-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]}"
    if not program.is_file():
        program.parent.mkdir(parents=True, exist_ok=True)
        made = program.with_name(f"{program.name}.{os.getpid()}")
        subprocess.run([*words, *sources, "-o", made], check=True)
        made.rename(program)
    return program


def take(
    tmp_path: Path, ready: Sequence[Path], archs: str = "", *, program: Path | None = None, **extra: str
) -> tuple[Finished, Path]:
    """The program, as a build executes it."""
    output = tmp_path / "taken é"
    settings = tmp_path / "settings"
    lines = [
        f"output {output}",
        *(f"arch {arch}" for arch in archs.split(";") if arch),
        *(f"ready {path}" for path in ready),
    ]
    settings.write_text("".join(f"{line}\n" for line in lines))
    done = subprocess.run(
        [program or take_images(), settings], env=dict(os.environ) | extra, capture_output=True, text=True, check=False
    )  # fmt: skip
    return done, output
