"""Size of an image pack against the reference project's scheme, same kernels, same run.

The scheme: one xz stream per functional (kernel, dtype, head_dim, causal: all its settings together), the
code objects compiled with line info. Ours: the complete pack directory, dispatch data and signature included,
every image decodable alone. Images with line info are compiled once and kept beside the cache; all others
come from the cache.

    python -m benchmarks.pack_size [--arch gfx908] [--profile core] [--cache .aotforge/cache]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from aotforge.base.architectures import load_architectures
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.compile.image_set import ImageSet
from aotforge.pack.container import read_images
from aotforge.pack.model import Compressor, ImagePack
from aotforge.pack.reader import open_files
from aotforge.pack.writer import write_pack
from aotforge.plan.checkout import Checkout
from aotforge.plan.model import Plan
from aotforge.plan.planner import plan_project
from aotforge.release.model import load_release_manifest

ROOT = Path(__file__).parents[1]
PRESETS = {"xz -6": 6, "xz -9e": 9 | lzma.PRESET_EXTREME}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", default="gfx908")
    parser.add_argument("--profile", default="core")
    parser.add_argument(
        "--cache", type=Path, default=os.environ.get("AOTFORGE_CACHE") or ROOT / ".aotforge" / "cache"
    )
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--line-info", type=Path, help=argparse.SUPPRESS)  # the worker's mode
    options = parser.parse_args()
    plan = plan_project(Checkout(ROOT), archs=[options.arch], profile=options.profile)
    if options.line_info:
        compile_line_info(plan, options.line_info)
        return
    with Cache(options.cache) as cache:
        images = compile_plan(
            plan,
            kernels_root=ROOT / "kernels",
            architectures=load_architectures(ROOT / "manifests"),
            cache=cache,
            jobs=options.jobs,
        )
        print(json.dumps(measure(plan, images, line_info_images(plan, options)), indent=1))


def line_info_images(plan: Plan, options: argparse.Namespace) -> dict[str, bytes]:
    """The plan's code objects with line info, by job key; compiled by a process that requests it."""
    folder = options.cache.parent / "line-info"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
    environment |= dict(plan.toolchain.environment)
    environment |= {"TRITON_DISABLE_LINE_INFO": "0", "PYTHONPATH": str(ROOT)}
    command = [
        sys.executable,
        "-m",
        "benchmarks.pack_size",
        "--arch",
        options.arch,
        "--profile",
        options.profile,
    ]
    subprocess.run([*command, "--line-info", str(folder.absolute())], env=environment, cwd=ROOT, check=True)
    return {job.key: (folder / job.key).read_bytes() for job in plan.jobs}


def compile_line_info(plan: Plan, folder: Path) -> None:
    from aotforge.compile.triton_compiler import Compiler, run_stages  # noqa: PLC0415 (loads Triton)

    compiler = Compiler(ROOT / "kernels")
    folder.mkdir(parents=True, exist_ok=True)
    for job in plan.jobs:
        if not (folder / job.key).exists():
            image, _, _ = run_stages(compiler._function(job), job)
            temporary = folder / f"{job.key}.new"
            temporary.write_bytes(image)
            temporary.rename(folder / job.key)


def measure(plan: Plan, images: ImageSet, with_lines: dict[str, bytes]) -> dict[str, object]:
    manifest = load_release_manifest(ROOT / "manifests" / "release.yaml")
    compressor = manifest.compressor
    values = list(images.values())
    start = time.perf_counter()
    pack = write_pack(plan, values, release=manifest.name, compressor=compressor)
    seconds = time.perf_counter() - start
    ours = size(pack)
    functionals = [
        [choice.job for choice in functional.choices]
        for kernel in plan.kernels
        for functional in kernel.functionals
    ]
    peers = {name: xz(functionals, with_lines, preset) for name, preset in PRESETS.items()}
    best = min(peers, key=lambda name: peers[name])
    without = {image.key: image.binary for image in values}
    return {
        "images": len(values),
        "mean image": sum(len(image.binary) for image in values) // len(values),
        "mean image with line info": sum(map(len, with_lines.values())) // len(with_lines),
        "pack": ours,
        "files": {name: len(data) for name, data in pack.files.items()},
        "peers": peers,
        "ratio": {name: round(ours / peer, 3) for name, peer in peers.items()},
        "ratio to the smaller peer": round(ours / peers[best], 3),
        "peer without line info": xz(functionals, without, PRESETS[best]),
        "packing seconds": round(seconds, 2),
        "first image": first_image(pack),
        "other dictionaries": {
            kib: size(write_pack(plan, values, release="x", compressor=with_dictionary(compressor, kib)))
            for kib in (0, 64, 128, 256, 512, 1024)
        },
    }


def xz(functionals: Iterable[list[str]], images: dict[str, bytes], preset: int) -> int:
    return sum(
        len(lzma.compress(b"".join(images[key] for key in keys), preset=preset)) for keys in functionals
    )


def size(pack: ImagePack) -> int:
    return sum(map(len, pack.files.values()))


def with_dictionary(compressor: Compressor, kib: int) -> Compressor:
    return Compressor(level=compressor.level, dictionary_bytes=kib * 1024)


def first_image(pack: ImagePack) -> dict[str, dict[str, float]]:
    """Per container, milliseconds to decode and verify the dictionary and its largest image, best of ten.

    The floor is hashing those bytes alone.
    """
    opened = open_files(pack)
    times = {}
    for name, index in opened.indexes.items():
        source, entry = opened.sources[name], max(index.images, key=lambda entry: entry.size)
        raw = bytes(index.dictionary_size + entry.size)
        decode = best_of(lambda: read_images(source, index, [entry]))  # noqa: B023
        floor = best_of(lambda: hashlib.sha256(raw).digest())  # noqa: B023
        times[name] = {"milliseconds": decode, "times the hash alone": round(decode / floor, 2)}
    return times


def best_of(work: object, repetitions: int = 10) -> float:
    assert callable(work)
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return round(min(times) * 1000, 3)


if __name__ == "__main__":
    main()
