"""The tarballs of a release of thousands of images: packing, writing, reading back, against gzip -9 of the
same bytes.

    python -m benchmarks.assemble_many [IMAGES]

The plan is real (`rebuild_noop`'s family with this many functionals), the library is the one that this
machine builds. The images
are made up: code objects and assembly texts of `core` for gfx908 (compiled first, where the cache lacks
them), in each copy of which
one word of code in fifty and one line of text in fifty are others. The floor is `gzip -9`, one process, over
the pack's files and the texts.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from aotforge.base.architectures import load_architectures
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.compile.model import KernelImage
from aotforge.library.build_linux import build_runtime
from aotforge.library.library_build import LibraryRequest
from aotforge.pack.model import ImagePack
from aotforge.pack.reader import open_files
from aotforge.pack.verify_pack import verify_pack
from aotforge.pack.writer import write_pack
from aotforge.plan.checkout import Checkout
from aotforge.plan.model import Plan
from aotforge.plan.planner import plan_project
from aotforge.release.assemble import assemble_release
from aotforge.release.model import (
    ImageRecord,
    PackInput,
    ReleaseManifest,
    load_release_manifest,
)
from aotforge.release.release import Release
from aotforge.verify.verdict import Verdict
from benchmarks.rebuild_noop import KERNEL, RULES, make

ROOT = Path(__file__).parents[1]
CACHE = Path(os.environ.get("AOTFORGE_CACHE") or ROOT / ".aotforge" / "cache")
TARGET_SECONDS = 60.0
SHARE = 50


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        kernels = base / "kernels"
        (kernels / "many").mkdir(parents=True)
        (kernels / "many" / "rules.py").write_text(RULES.format(count=count // 2))
        (kernels / "many" / "many.py").write_text(KERNEL)
        plan = make(kernels)
        images = made_up(plan, kernels)
        prefix = build_runtime(LibraryRequest(root=ROOT, cache=CACHE)).prefix
        began, used = time.monotonic(), time.process_time()
        pack = write_pack(plan, images, release=manifest().name, compressor=manifest().compressor)
        verify_pack(open_files(pack), plan, images)
        packed = time.monotonic()
        release = assemble(plan, pack, images, prefix, base / "dist")
        took, used = time.monotonic() - began, time.process_time() - used
        packing = packed - began
        floor, size = gzip(base, pack, images)
    tars = sum(file.size for file in release.files)
    print(
        f"images                   {len(images)}, {size / 2**20:.0f} MiB of pack and texts, load "
        f"{os.getloadavg()[0]:.1f}"
    )
    print(
        f"packed, written, checked {took:.1f} s (target {TARGET_SECONDS:.0f}), {used:.1f} s of CPU; packing "
        f"{packing:.1f} s of it"
    )
    print(f"tarballs                 {tars / 2**20:.0f} MiB in {len(release.files)} files")
    print(f"gzip -9 of the same      {floor:.1f} s: {took / floor:.2f} x")


def manifest() -> ReleaseManifest:
    return load_release_manifest(ROOT / "manifests" / "release.yaml")


def compiled(plan: Plan, kernels: Path, jobs: int) -> list[KernelImage]:
    """The first images of a plan, from the cache where it has them."""
    part = replace(plan, jobs=plan.jobs[:jobs])
    with Cache(CACHE) as cache:
        images = compile_plan(
            part, kernels_root=kernels, architectures=load_architectures(ROOT / "manifests"), cache=cache
        )
        return list(images.values())


def made_up(plan: Plan, kernels: Path) -> list[KernelImage]:
    """An image for every job: the interface of the family's first, the contents of an altered attention
    image."""
    (interface,) = compiled(plan, kernels, 1)
    core = plan_project(Checkout(ROOT), archs=["gfx908"], profile="core")
    real = compiled(core, ROOT / "kernels", len(core.jobs))
    made = []
    for number, job in enumerate(plan.jobs):
        noise = random.Random(number)
        original = real[number % len(real)]
        code = bytearray(original.binary)
        for _ in range(len(code) // 4 // SHARE):
            at = noise.randrange(64, len(code) - 4)
            code[at : at + 4] = noise.randbytes(4)
        lines = original.asm.splitlines()
        for _ in range(len(lines) // SHARE):
            lines[noise.randrange(len(lines))] = lines[noise.randrange(len(lines))]
        text = "\n".join([*lines, f"; {number}\n"])
        digest = hashlib.sha256(code).hexdigest()
        made.append(replace(interface, key=job.key, digest=digest, binary=bytes(code), asm=text))
    return made


def assemble(plan: Plan, pack: ImagePack, images: list[KernelImage], prefix: Path, output: Path) -> Release:
    """The release, with verdicts as if every image had been executed."""
    labels = {job.key: job.label for job in plan.jobs}
    records = tuple(
        ImageRecord(
            label=labels[image.key], key=image.key, digest=image.digest, resources=image.resources,
            verdict=Verdict(
                key=image.key, label=labels[image.key], digest=image.digest, outcome="passed",
                resources=image.resources,
                verifier_digest="t" * 64, cases=("ragged",), runs=2,
            ),
        )
        for image in images
    )  # fmt: skip
    wanted = PackInput(pack=pack, assembly={image.digest: image.asm for image in images}, records=records)
    return assemble_release(
        manifest(), [wanted], prefix, output=output, licence=(ROOT / "LICENSE").read_bytes(),
        epoch=manifest().epoch,
        inputs="benchmark",
    )  # fmt: skip


def gzip(base: Path, pack: ImagePack, images: list[KernelImage]) -> tuple[float, int]:
    """Seconds of gzip -9 and bytes that it read: what a script with tar and gzip would take at least."""
    plain = base / "plain"
    size = 0
    with plain.open("wb") as file:
        for data in (*pack.files.values(), *(image.asm.encode() for image in images)):
            size += file.write(data)
    began = time.monotonic()
    with (base / "plain.gz").open("wb") as file:
        subprocess.run(["gzip", "-9", "--stdout", plain], stdout=file, check=True)
    return time.monotonic() - began, size


if __name__ == "__main__":
    main()
