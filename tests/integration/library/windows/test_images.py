"""Images built on Linux by real compilers: Windows decodes them and passes them to HIP as the Linux library
does."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from aotforge.compile.model import KernelImage
from tests.support.attention import FP16, Problem, Tensor
from tests.support.runtime import build_objects
from tests.support.windows import WindowsObjects, linux_run, missing_mingw, run
from tests.support.wine import Wine, windows_path

pytestmark = [pytest.mark.compiler, pytest.mark.skipif(bool(missing_mingw()), reason=missing_mingw())]


CALLS = (
    Problem(head_dim=32).line("fwd"),
    Problem(head_dim=32, extra={"causal_type": 3, "window_left": 48, "window_right": 16}).line("fwd"),
    Problem(head_dim=32, extra={"Q": Tensor(0x100002, (2, 4, 48, 32), FP16)}).line("fwd"),
    Problem(head_dim=32, seqlen_q=50, seqlen_k=70).line("bwd"),
    Problem(head_dim=32, seqlen_q=0).line("bwd"),
    Problem(head_dim=32, extra={"is_causal": 1}).line("v2fwd"),
    Problem(head_dim=32).line("v2bwd"),
    Problem(head_dim=64).line("fwd"),
)


def test_the_same_launches_as_on_linux(
    wine: Wine, windows: WindowsObjects, real_images: tuple[Path, list[KernelImage]], tmp_path: Path
) -> None:
    """Kernel, grid, block, shared memory and every argument; the modules' bytes are the compiler's."""
    packs, made = real_images
    compiled = {hashlib.sha256(image.binary).hexdigest() for image in made}
    lines = ["check", *CALLS, "record"]
    kept = {name: tmp_path / name for name in ("linux", "windows")}
    for folder in kept.values():
        folder.mkdir()
    linux = build_objects()
    wanted = linux_run(
        linux.program("driver"), linux.hip(7), lines,
        {"AOTRITON_IMAGES_DIR": str(packs), "HIP_DOUBLE_MODULES": str(kept["linux"])},
    )  # fmt: skip
    place = windows.place(tmp_path / "lib", "driver")
    done = run(
        wine, place / "driver.exe", hip=windows.hip(7), lines=lines,
        AOTRITON_IMAGES_DIR=windows_path(packs), HIP_DOUBLE_MODULES=windows_path(kept["windows"]),
    )  # fmt: skip
    assert done.stdout == wanted
    assert wanted.count('"event":"launch"') > 10 and wanted.startswith("rc 0\n" * 8 + "rc 801\n")
    modules = {
        system: {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
        for system, folder in kept.items()
    }
    assert modules["windows"] == modules["linux"]
    assert len(modules["windows"]) > 3 and set(modules["windows"].values()) <= compiled
