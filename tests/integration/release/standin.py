"""A stand-in for the runtime: a tiny shared library with the right SONAME, one header, one CMake file."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable
from pathlib import Path

from aotforge.compile.model import KernelImage
from aotforge.pack.writer import write_pack
from aotforge.plan.model import Plan
from aotforge.release.assemble import assemble_release
from aotforge.release.model import (
    ImageRecord,
    PackInput,
    ReleaseManifest,
    load_release_manifest,
)
from aotforge.release.release import Release
from aotforge.verify.verdict import Verdict
from tests.unit.pack.samples import sample

ROOT = Path(__file__).parents[3]
MANIFEST: ReleaseManifest = load_release_manifest(ROOT / "manifests" / "release.yaml")
LICENCE = (ROOT / "LICENSE").read_bytes()
PLAN, IMAGES = sample()


def library(
    path: Path, *, soname: str = MANIFEST.soname, code: str = "int zero(void) { return 0; }", flags: str = ""
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            *["gcc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-", "-x", "none"],
            f"-Wl,-soname,{soname}",
            "-o",
            path,
            *flags.split(),
        ],
        input=code.encode(),
        check=True,
    )
    return path


def prefix(path: Path) -> Path:
    library(path / "lib" / MANIFEST.soname)
    for name in ("include/aotriton/runtime.h", "lib/cmake/aotriton/aotritonConfig.cmake"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(f"// {name}\n")
    return path


def records(plan: Plan, images: Iterable[KernelImage]) -> tuple[ImageRecord, ...]:
    """With verdicts as if every image had been executed."""
    labels = {job.key: job.label for job in plan.jobs}
    return tuple(
        ImageRecord(
            label=labels[one.key],
            key=one.key,
            digest=one.digest,
            resources=one.resources,
            verdict=Verdict(
                key=one.key,
                label=labels[one.key],
                digest=one.digest,
                outcome="passed",
                resources=one.resources,
                verifier_digest="t" * 64,
                cases=("ragged",),
                runs=2,
            ),
        )
        for one in images
    )


def packed() -> PackInput:
    return PackInput(
        pack=write_pack(PLAN, IMAGES, release=MANIFEST.name),
        assembly={one.digest: one.asm for one in IMAGES},
        records=records(PLAN, IMAGES),
    )


def assemble(
    runtime: Path, output: Path, *packs: PackInput, inputs: str = "1", unverified: bool = False
) -> Release:
    return assemble_release(
        MANIFEST, packs, runtime, output=output, licence=LICENCE, epoch=MANIFEST.epoch, inputs=inputs,
        unverified=unverified,
    )  # fmt: skip


def content(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
