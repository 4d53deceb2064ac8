"""Real kernels, compiled and packed by the project, through the real library; the double reads their
metadata."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from aotforge.compile.model import KernelImage
from tests.support.attention import FP16, Problem, Tensor
from tests.support.runtime import Driver, Objects

pytestmark = pytest.mark.compiler
NOT_SUPPORTED = 801
Images = tuple[Path, list[KernelImage]]


def arguments(launch: dict[str, Any]) -> list[int]:
    return [int.from_bytes(bytes.fromhex(a["bytes"]), "little") for a in launch["arguments"]]


def test_forward(objects: Objects, real_images: Images) -> None:
    folder, made = real_images
    problem = Problem(head_dim=32, extra={"causal_type": 3, "window_left": 48, "window_right": 16})
    with Driver(objects, folder, log="warn") as driver:
        assert driver.rc("check") == 0
        assert driver.rc(problem.line("fwd")) == 0
        load, launch = driver.record()
    image = next(i for i in made if len(i.binary) == load["size"] and i.symbol == launch["kernel"])
    assert launch["kernel"] == "attn_fwd" and load["target"].endswith("gfx908")
    assert len(launch["arguments"]) == len(image.arguments)
    fields = problem.fields(backward=False)
    values = arguments(launch)
    assert values[:6] == [
        0 if name == "B" else fields[name].base for name in ("Q", "K", "V", "B", "L", "Out")
    ]
    assert values[-2:] == [0, 0]  # Triton's scratch pointers
    assert 16 in values and struct.unpack("<I", struct.pack("<f", 0.125))[0] in values
    assert launch["block"][0] == image.resources.threads
    assert launch["grid"][1:] == [4, 2]


def test_backward_runs_its_steps_in_order(objects: Objects, real_images: Images) -> None:
    with Driver(objects, real_images[0]) as driver:
        assert driver.rc(Problem(head_dim=32).line("bwd")) == 0
        assert [e["kernel"] for e in driver.launches()] == ["bwd_preprocess", "bwd_dk_dv", "bwd_dq"]
        assert driver.send("events") == "events +D -D"
        driver.send("clear")
        assert driver.rc(Problem(head_dim=32, seqlen_q=0).line("bwd")) == 0
        assert [e["kernel"] for e in driver.launches()] == [
            "bwd_dk_dv"
        ]  # gradients of keys without queries are zeros
        driver.send("clear")
        assert driver.rc(Problem(head_dim=32, seqlen_k=0).line("bwd")) == 0
        assert [e["kernel"] for e in driver.launches()] == ["bwd_preprocess", "bwd_dq"]


def test_unaligned_tensors_get_an_image_without_hints(objects: Objects, real_images: Images) -> None:
    odd = Tensor(0x100002, (2, 4, 48, 32), FP16)
    with Driver(objects, real_images[0]) as driver:
        assert driver.rc(Problem(head_dim=32).line("fwd")) == 0
        assert driver.rc(Problem(head_dim=32, extra={"Q": odd}).line("fwd")) == 0
        aligned, unaligned = driver.launches()
    assert aligned["image"] != unaligned["image"] and aligned["kernel"] == unaligned["kernel"]


def test_what_the_profile_leaves_out_is_not_supported(objects: Objects, real_images: Images) -> None:
    with Driver(objects, real_images[0]) as driver:
        for problem in (Problem(head_dim=64), Problem(head_dim=32, dtype=3)):
            assert driver.rc(problem.line("fwd")) == NOT_SUPPORTED
