"""The library and images of processors for tests of aotforge_flash."""

from __future__ import annotations

import shutil
from pathlib import Path

from aotforge.base.architectures import Profile
from aotforge.library.build_linux import build_runtime
from aotforge.library.library_build import LibraryRequest
from aotforge.pack.writer import write_pack
from tests.integration.release.standin import MANIFEST
from tests.support.families import PROJECT, plan_of, profiles
from tests.support.runtime import CACHE
from tests.support.verified import compiled_images

KERNELS = PROJECT / "kernels"
LIBRARY = "libaotriton_v2.so"


def write_library(
    folder: Path,
    *,
    caches: tuple[str, ...] = (),
    arch: str = "cpu-x86-64-v3",
    general: bool = False,
    **keep: tuple[int | str, ...],
) -> Path:
    """A library in `folder` of float16 images of `serving`, dense ones up to head_dim 64; `general`: of all.

    `keep`: values of choices as `flash_paged__width`. Images of virtual GPUs have texts in folder/texts.
    Returns the library's path.
    """
    serving = profiles().profiles["serving"]
    kept = {
        **serving.keep,
        "flash.dtype": ("fp16",), "flash.width": (64,), "flash_paged.dtype": ("fp16",),
        "flash_paged.cache": caches, "flash_paged.width": (64, 128),
        **{name.replace("__", "."): values for name, values in keep.items()},
    }  # fmt: skip
    own = serving if general else Profile(description="of tests", complete=False, keep=kept)
    plan = plan_of(KERNELS, arch=arch, own=own)
    images = list(compiled_images(plan, KERNELS).values())
    if arch.startswith("gfx"):
        (folder / "texts").mkdir()
        for image in images:
            (folder / "texts" / f"{image.digest}.s").write_text(image.asm)
    pack = write_pack(plan, images, release=MANIFEST.name, compressor=MANIFEST.compressor)
    place = folder / "aotriton.images" / pack.name
    place.mkdir(parents=True)
    for name, data in pack.files.items():
        (place / name).write_bytes(data)
    built = build_runtime(LibraryRequest(root=PROJECT, cache=CACHE)).prefix / "lib" / LIBRARY
    return Path(shutil.copyfile(built, folder / LIBRARY))
