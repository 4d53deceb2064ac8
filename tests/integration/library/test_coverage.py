"""`./dev coverage` against the library: the log of calls, and its verdict on each, agree with what the
library does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aotforge.base.general_costs import GeneralCost, GeneralCosts
from aotforge.devtools.coverage import Call, coverage, coverage_lines, read_calls, reason_without_image
from aotforge.errors import UsageError
from aotforge.pack.coverage import FirstCall, KernelCoverage
from aotforge.pack.dispatch import decode_dispatch
from tests.support.attention import FP32, Problem, Tensor, spy_pack
from tests.support.runtime import Driver, Objects
from tests.support.small_pack import Choice, Kernel, SmallPack, files, write

WINDOW = {"causal_type": 3, "window_left": 4, "window_right": 4}
CALLS = (
    Problem(),
    Problem(head_dim=72),
    Problem(dtype=FP32),
    Problem(extra=WINDOW),
    Problem(extra={"B": Tensor(4096, (2, 4, 48, 64), 2)}),
    Problem(extra={"dropout_p": 0.5, "philox_seed": 8, "philox_offset1": 8}),
    Problem(extra={"Q": Tensor(0x100002, (2, 4, 48, 64), 2)}),
)


def test_the_log_of_a_program(objects: Objects, tmp_path: Path) -> None:
    pack = spy_pack(widths=(16, 64))
    kernels = [  # images for aligned tensors only, as the first choice of a setting is
        replace(
            kernel,
            ladder=True,
            functionals={
                row: [replace(choice, predicates=[(0, ["Q"], 16, 0)]) for choice in choices]
                for row, choices in kernel.functionals.items()
            },
        )
        for kernel in pack.kernels
    ]
    pack = replace(pack, kernels=kernels)
    write(pack, tmp_path / "images" / "amd-gfx908")
    with Driver(objects, tmp_path / "images", log="debug") as driver:
        codes = [driver.rc(problem.line(verb)) for problem in CALLS for verb in ("fwd", "bwd")]
        driver.rc(Problem(extra={"A": Tensor(8, (8, 48), FP32)}).line("fwd"))
    (tmp_path / "log").write_text("unrelated\n" + driver.log, encoding="utf-8")
    calls, refusals = read_calls(tmp_path / "log")
    table = decode_dispatch(files(pack)["dispatch.aotd"], file="pack")
    reasons = [reason_without_image(call, table, "gfx908") for call in calls]
    assert [bool(reason) for reason in reasons] == [code != 0 for code in codes]
    assert {code for code in codes if code} == {801}
    assert sum("conditions that do not hold" in reason for reason in reasons) == 2
    assert "no image for dtype 2, dropout 0, mask 0, width 72" in reasons[2]
    assert all(call.arch == "gfx908" for call in calls)
    assert list(refusals) == ["attn_fwd: A: there are no kernels with ALiBi slopes"]


def test_calls_of_a_log_without_images(tmp_path: Path) -> None:
    table = decode_dispatch(files(spy_pack())["dispatch.aotd"], file="pack")
    bf16 = "dtype=3 head_dim=64 head_dim_v=96 width=96"
    lines = ["dtype=2 head_dim=64 mask=1 width=64"] * 2 + [
        bf16,
        "dtype=2 head_dim=64 varlen_bits=2827 width=64",
    ]
    (tmp_path / "log").write_text("".join(f"aotriton: call attn_fwd on gfx908: {line}\n" for line in lines))
    calls, refusals = read_calls(tmp_path / "log")
    assert not refusals and list(calls.values()) == [2, 1, 1]
    reasons = [reason_without_image(call, table, "gfx908") for call in calls]
    assert reasons[0] == reasons[2] == "" and "width 96" in reasons[1]
    without = decode_dispatch(files(spy_pack(without=("varlen_bits",)))["dispatch.aotd"], file="pack")
    assert "uses varlen_bits, which is 2827" in reason_without_image(list(calls)[2], without, "gfx908")
    assert "no operator matmul" in reason_without_image(Call(operator="matmul", values=()), table, "gfx908")
    with pytest.raises(UsageError):
        read_calls(tmp_path / "nowhere")


def test_a_reason_quotes_the_beginning_of_long_keys() -> None:
    """It is made for each call and arch."""
    names = [f"k{number}" + "x" * 240 for number in range(32)]
    choice = Choice(image=b"image", symbol="s")
    kernel = Kernel(name="f.k", operator="op", keys=names, functionals={("gfx908", (1,) * 32): [choice]})
    pack = SmallPack(archs=["gfx908"], operators={"op": [(name, "i64") for name in names]}, kernels=[kernel])
    table = decode_dispatch(files(pack)["dispatch.aotd"], file="pack")
    reason = reason_without_image(Call(operator="op", values=()), table, "gfx908")
    assert reason.startswith("f.k has no image for k0x") and len(reason) <= 400


def test_general_images_are_distinguished_from_special_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    special, general = (Choice(image=name.encode(), symbol=name) for name in ("attn_fwd", "attn_fwd_general"))
    aligned = replace(special, predicates=[(0, ["Q"], 16, 0)])
    kernel = Kernel(
        name="flash.attn_fwd",
        operator="attn_fwd",
        keys=["dtype", "dropout", "mask", "width"],
        ladder=True,
        functionals={
            ("gfx908", (2, 0, 0, 64)): [special],
            ("gfx908", (2, 0, 0, 512)): [aligned, general],
            ("gfx908", (2, 1, 0, 512)): [general],
        },
    )
    values = [("Q", "ptr"), *((name, "i32") for name in ("dtype", "dropout", "mask", "width"))]
    pack = SmallPack(archs=["gfx908"], operators={"attn_fwd": values}, kernels=[kernel])
    table = decode_dispatch(files(pack)["dispatch.aotd"], file="pack")
    opened: Any = SimpleNamespace(dispatch=table)
    row = GeneralCost(
        arch="gfx908", operator="attn_fwd", dtype="fp16", mask="full", dropout=True, head_dim=64, multiple=2.5
    )
    costs = GeneralCosts(schema=1, costs=(row, row.model_copy(update={"head_dim": 512, "multiple": 9.0})))
    monkeypatch.setattr("aotforge.devtools.coverage.general_costs", lambda: costs)

    def call(dropout: int, width: int, **more: int) -> Call:
        named = {"dtype": 2, "dropout": dropout, "width": width, **more}
        return Call(operator="attn_fwd", values=tuple(sorted(named.items())))

    calls = [call(0, 64), call(0, 96, Q=8), call(0, 96), call(1, 40), call(1, 600)]
    found = {one.call: one for one in coverage(dict.fromkeys(calls, 1), [opened])}
    assert [found[one].general for one in calls] == [
        (),
        (("gfx908", row.text()),),
        (),
        (("gfx908", "gfx908: attn_fwd fp16, full, dropout, head_dim 64: 2.5 x"),),
        (),
    ]
    lines = coverage_lines([], [found[one] for one in calls], {})
    assert lines[0].endswith(": yes, special images")
    assert lines[3].endswith(": yes, general images; estimated cycles beside special ones, " + row.text())
    assert "no: flash.attn_fwd has no image for dtype 2, dropout 1, mask 0, width 600" in lines[4]


def test_a_kernels_values_with_special_and_with_general_images() -> None:
    special = (("dtype", (2, 3)), ("mask", (0,)), ("width", (32, 64)))
    general = (("dtype", (1, 2, 3)), ("mask", (0, 1, 2)), ("width", (256, 512)))
    first = FirstCall(read=1, decoded=1, image=1)
    one = KernelCoverage(kernel="k", arch="gfx908", keys=special, served=3, first_call=first, general=general)
    text = "dtype fp16 bf16; mask full; width 32 64 (3 of 4)"
    every = "general images: dtype fp32 fp16 bf16; mask full window bias; width to 512"
    assert one.text() == f"{text}; {every}"
    assert replace(one, served=0).text() == every
    assert replace(one, general=()).text() == text
