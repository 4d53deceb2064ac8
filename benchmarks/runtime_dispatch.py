"""First launch and repeat dispatch of the library against the HIP double, with the floors of both in the same
run.

    python -m benchmarks.runtime_dispatch [--profile core] [--cache .aotforge/cache] [--runs 20]
    python -m benchmarks.runtime_dispatch --release releases/dist/0.11.2b-r1

Without --release the profile's images are compiled. First launch: a new process calls attn_fwd once (find and
verify the pack, decode
one image, hand it to the double). Its floor reads, hashes and decodes the same files with the same readers,
plus the double's own module
load. First backward: attn_bwd after it, per kernel of the call. Repeat: the same calls again; their floor is
the double's launch call
alone. Processor time, medians over the runs, for every arch of the packs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

from aotforge.base.architectures import load_architectures
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.pack.reader import open_pack
from aotforge.pack.writer import write_pack
from aotforge.plan.checkout import Checkout
from aotforge.plan.planner import plan_project
from aotforge.release.model import load_release_manifest
from aotforge.release.release import Release
from tests.support.runtime import Objects, build_objects

ROOT = Path(__file__).parents[1]
REPEATS = 300_000
HEAD_DIM = 32  # in every profile
FIRST_TARGET_MS, REPEAT_TARGET_NS = 2.0, 1000.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", default="core")
    cache = Path(os.environ.get("AOTFORGE_CACHE") or ROOT / ".aotforge" / "cache")
    parser.add_argument("--cache", type=Path, default=cache)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--release", type=Path, help="a release folder instead of a profile")
    options = parser.parse_args()
    objects = build_objects()
    with tempfile.TemporaryDirectory() as folder:
        if options.release:
            release = Release.open(options.release.absolute())
            prefix = release.unpack(release.of("images"), Path(folder))
            packs = sorted((prefix / "lib" / "aotriton.images").iterdir())
        else:
            packs = [real_pack(Path(folder), options.profile, options.cache)]
        rows = [
            {"pack": path.name, "arch": arch, **measured(objects, path, arch, options.runs)}
            for path in packs
            for arch in open_pack(path).dispatch.archs
            if arch.startswith("gfx")
        ]
    print(json.dumps(rows, indent=1))


def measured(objects: Objects, pack: Path, arch: str, runs: int) -> dict[str, object]:
    """The report of a pack on one of its archs, with the sizes of its files."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / pack.name).symlink_to(
            pack
        )  # alone: other packs of a release are not read by the call
        rows = [run(objects, Path(folder) / pack.name, arch) for _ in range(runs)]
    return report(rows) | {"files": {path.name: path.stat().st_size for path in sorted(pack.iterdir())}}


def real_pack(images: Path, profile: str, cache_folder: Path) -> Path:
    """The profile's pack for gfx908, its images from the cache or compiled into it."""
    plan = plan_project(Checkout(ROOT), archs=["gfx908"], profile=profile)
    with Cache(cache_folder) as cache:
        compiled = compile_plan(
            plan,
            kernels_root=ROOT / "kernels",
            architectures=load_architectures(ROOT / "manifests"),
            cache=cache,
            jobs=2,
        )
        manifest = load_release_manifest(ROOT / "manifests" / "release.yaml")
        pack = write_pack(
            plan, list(compiled.values()), release=manifest.name, compressor=manifest.compressor
        )
    folder = images / pack.name
    folder.mkdir()
    for name, content in pack.files.items():
        (folder / name).write_bytes(content)
    return folder


def run(objects: Objects, pack: Path, arch: str) -> dict[str, float]:
    env = os.environ | {
        "LD_LIBRARY_PATH": str(objects.hip(7)), "AOTRITON_IMAGES_DIR": str(pack.parent),
        "HIP_DOUBLE_DEVICES": f"{arch}@120",
    }  # fmt: skip
    command = [str(objects.program("bench_dispatch")), str(pack), str(REPEATS), str(HEAD_DIM)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    row: dict[str, float] = json.loads(done.stdout)
    return row


def report(rows: list[dict[str, float]]) -> dict[str, object]:
    middle = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    floor = middle["files_ms"] + middle["load_ms"]
    steps = middle["backward_steps"]
    own = middle["repeat_ns"] - middle["launch_ns"]
    backward = middle["repeat_backward_ns"] - steps * middle["launch_ns"]
    return {
        "first launch": {
            "ms": round(middle["first_ms"], 3),
            "worst ms": round(max(row["first_ms"] for row in rows), 3),
            "floor ms": round(floor, 3),
            "ratio to floor": round(middle["first_ms"] / floor, 2),
            "image bytes": int(middle["image_bytes"]),
            "target ms": FIRST_TARGET_MS,
        },
        "first backward": {
            "ms per kernel": round(middle["backward_ms"] / steps, 3),
            "kernels": int(steps),
            "target ms": FIRST_TARGET_MS,
        },
        "repeat dispatch": {
            "ns without the launch call": round(own, 1),
            "ns of a backward call without its launches": round(backward, 1),
            "launch call ns": round(middle["launch_ns"], 1),
            "target ns": REPEAT_TARGET_NS,
        },
    }


if __name__ == "__main__":
    main()
