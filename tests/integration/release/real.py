"""The real things that a client needs: the library with its HIP double, and a handful of compiled attention
kernels."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.architectures import Profile, Profiles, load_architectures
from aotforge.base.hazards import load_hazards
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.compile.model import KernelImage
from aotforge.library.build_linux import build_runtime
from aotforge.library.build_tools import find_tools
from aotforge.library.library_build import LibraryRequest
from aotforge.plan.closure import SourceTree
from aotforge.plan.families import load_families
from aotforge.plan.model import Plan
from aotforge.plan.planner import make_plan
from aotforge.toolchain.triton import pinned_triton, read_toolchain

ROOT = Path(__file__).parents[3]
# the project's own cache: it is content-addressed, and with it these tests need no network after the first
# build
CACHE = Path(os.environ.get("AOTFORGE_HOME") or ROOT / ".aotforge") / "cache"


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """An install prefix, the folder of a libamdhip64.so.7 that plays devices, and HIP's headers."""

    prefix: Path
    hip_double: Path
    hip_headers: Path


Keep = Mapping[str, tuple[bool | int | str, ...]]


def images_of(arch: str, keep: Keep) -> tuple[Plan, list[KernelImage]]:
    """The plan and images of the project's kernels with these values of choices, as a profile has them."""
    profile = Profile(description="of a test", complete=False, keep=dict(keep))
    architectures = load_architectures(ROOT / "manifests")
    plan = make_plan(
        load_families(ROOT / "kernels"),
        SourceTree(root=ROOT / "kernels"),
        archs=[arch],
        architectures=architectures,
        profiles=Profiles(schema=1, default="one", profiles={"one": profile}),
        profile="one",
        toolchain=read_toolchain(pinned_triton(ROOT / "requirements" / "build.in")),
        hazards=load_hazards(ROOT / "manifests"),
    )
    with Cache(CACHE) as cache:
        images = compile_plan(plan, kernels_root=ROOT / "kernels", architectures=architectures, cache=cache)
        return plan, list(images.values())


def small_attention(arch: str = "gfx908") -> tuple[Plan, list[KernelImage]]:
    """fp16 attention with head_dim 32, without causal masks, and fp16 `add`: a part of profile `smoke`, which
    other tests compile too."""
    keep: Keep = {"dtype": ("fp16",), "width": (32,), "mask": ("full",), "dropout": (False,)}
    others = {path.parent.name for path in ROOT.glob("kernels/*/rules.py")} - {"add", "flash"}
    return images_of(arch, {**keep, **{f"{family}.dtype": () for family in others}})


def runtime_and_double(folder: Path) -> Runtime:
    """The library as a build makes it, and of its test programs the double of ROCm 7's HIP, built in
    `folder`."""
    built = build_runtime(LibraryRequest(root=ROOT, cache=CACHE))
    tools = find_tools(os.environ)
    objects = folder
    (objects / "zstd").mkdir(parents=True)
    # the project requires zstd's sources, which the double does not use
    (objects / "zstd" / "zstd.c").touch()
    settings = {
        "AOTFORGE_ZSTD_DIR": objects / "zstd",
        "AOTFORGE_BUILD_TESTS": "ON",
        "CMAKE_CXX_COMPILER": tools.cxx,
    }
    flags = [
        f"-DCMAKE_MAKE_PROGRAM={tools.ninja}",
        *(f"-D{name}={value}" for name, value in settings.items()),
    ]
    configure = ["-S", str(ROOT / "runtime"), "-B", str(objects), "-G", "Ninja", *flags]
    for command in (configure, ["--build", str(objects), "--target", "hip_double_7"]):
        subprocess.run([str(tools.cmake), *command], check=True, capture_output=True)
    return Runtime(
        prefix=built.prefix, hip_double=objects / "hip7", hip_headers=ROOT / "runtime" / "src" / "standin"
    )


def unpack(archive: Path, folder: Path) -> None:
    """As CMake does it, with the system's tar: Python's extraction filters are missing in 3.11.0 to
    3.11.3."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-xf", str(archive), "-C", str(folder)], check=True)
