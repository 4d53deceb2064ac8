"""Installing from a folder on this machine against decompressing the same archives into nothing, turn about,
in one run.

    python -m benchmarks.install [MIB] [ROUNDS]

Two archives of MIB each before compression: a library's (compresses as code does) and a pack's
(incompressible, as zstd containers are).
`zlib` is the floor: one pass of zlib over both, nothing hashed, nothing written; `zlib and write` writes what
comes out as well. Installing checks
the SHA-256 of archives and tars and notes that of every file.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from aotforge.deliver.install.choose import InstallRequest
from aotforge.deliver.install.prefix import uninstall
from aotforge.formats.archive import Member, sha256_file, write_tar_gz
from aotforge.formats.tar_reader import file_chunks
from aotforge.publish.stores.directory import DirectoryStore
from tests.support.publishing import PACKS, make_keys, publish, try_install, write_sums

NAME = "0.11.2b-r1"


def main() -> None:
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 128
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        keys, store = make_keys(scratch / "keys"), DirectoryStore(scratch / "store")
        archives = make(scratch / "release", mib)
        publish(scratch / "release", store, keys)
        request = InstallRequest(packs=PACKS, prefix=scratch / "prefix")
        results = []
        for _ in range(rounds):
            results.append(
                {
                    "zlib": timed(lambda: inflate(archives, None)),
                    "zlib and write": timed(lambda: inflate(archives, scratch / "out")),
                    "install": timed(lambda: try_install(store, keys.roots[0], scratch, request)),
                }
            )
            uninstall(scratch / "prefix")
    print(
        json.dumps(
            {
                "mib": 2 * mib,
                "elapsed": summary(results, 0),
                "cpu": summary(results, 1),
                "load": os.getloadavg()[0],
            },
            indent=1,
        )
    )


def summary(results: list[dict[str, tuple[float, float]]], which: int) -> dict[str, float]:
    """Median seconds, and medians of installing's ratio to each floor."""
    medians = {f"{key}, s": statistics.median(r[key][which] for r in results) for key in results[0]}
    medians |= {
        f"install / {key}": statistics.median(r["install"][which] / r[key][which] for r in results)
        for key in ("zlib", "zlib and write")
    }
    return {key: round(value, 2) for key, value in medians.items()}


def make(folder: Path, mib: int) -> list[Path]:
    """A release of two archives; returns them."""
    folder.mkdir()
    noise = random.Random(1)
    # words of a small vocabulary compress as code does
    words = [noise.randbytes(noise.randint(4, 24)) for _ in range(4096)]
    library = b"".join(noise.choices(words, k=(mib << 20) // 14))[: mib << 20]
    images = {
        f"aotriton/lib/aotriton.images/amd-gfx908/{n}.aoti": Member(content=noise.randbytes(1 << 20))
        for n in range(mib)
    }
    runtime = f"aotriton-{NAME}-manylinux_2_28_x86_64-rocm7.1-shared.tar.gz"
    pack = f"aotriton-{NAME}-images-amd-gfx908.tar.gz"
    runtime_tar = write_tar_gz(
        folder / runtime, {"aotriton/lib/libaotriton_v2.so.0.11.2": Member(content=library)}, epoch=0
    )
    pack_tar = write_tar_gz(folder / pack, images, epoch=0)
    tars = {runtime[:-3]: runtime_tar, pack[:-3]: pack_tar}
    (folder / "MANIFEST.json").write_text(json.dumps({"release": NAME, "verified": True, "development": []}))
    write_sums(folder, {name: sha256_file(folder / name) for name in (runtime, pack)}, tars)
    return [folder / runtime, folder / pack]


def inflate(archives: list[Path], out: Path | None) -> None:
    for path in archives:
        stream = zlib.decompressobj(31)
        with (out or Path("/dev/null")).open("wb", buffering=0) as file:
            for chunk in file_chunks(path):
                data = stream.decompress(chunk, 1 << 20)
                while data:
                    file.write(data)
                    data = stream.decompress(stream.unconsumed_tail, 1 << 20)


def timed(act: Callable[[], object]) -> tuple[float, float]:
    """Elapsed and CPU seconds."""
    elapsed, cpu = time.monotonic(), time.process_time()
    act()
    return time.monotonic() - elapsed, time.process_time() - cpu


if __name__ == "__main__":
    main()
