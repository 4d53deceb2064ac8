"""Conversions in Triton's GPU IR: those with a hazard become two, all else stays."""

from __future__ import annotations

import pytest

from aotforge.targets.conversions import NARROWING, UNSIGNED, WIDENING, exact_conversions

EVERY = (WIDENING, NARROWING, UNSIGNED)


def conversion(operation: str, source: str, target: str, rounding: str = "") -> str:
    arrow = "to" if operation.startswith("arith") else "->"
    return f"    %x_1 = {operation} %0{rounding} : {source} {arrow} {target}"


@pytest.mark.parametrize(
    ("line", "hazard", "first", "second"),
    [
        (
            conversion("tt.fp_to_fp", "tensor<16x32xf8E5M2, #blocked>", "tensor<16x32xbf16, #blocked>"),
            WIDENING,
            "tt.fp_to_fp %0 : tensor<16x32xf8E5M2, #blocked> -> tensor<16x32xf32, #blocked>",
            "arith.truncf %exact_x_1 : tensor<16x32xf32, #blocked> to tensor<16x32xbf16, #blocked>",
        ),
        (
            conversion("tt.fp_to_fp", "f8E4M3FN", "bf16"),
            WIDENING,
            "tt.fp_to_fp %0 : f8E4M3FN -> f32",
            "arith.truncf %exact_x_1 : f32 to bf16",
        ),
        (
            conversion("tt.fp_to_fp", "tensor<8xf16, #ttg.slice<{dim = 0, parent = #b}>>",
                "tensor<8xf8E4M3FN, #ttg.slice<{dim = 0, parent = #b}>>", ", rounding = rtne"),
            NARROWING,
            "arith.extf %0 : tensor<8xf16, #ttg.slice<{dim = 0, parent = #b}>> to "
            "tensor<8xf32, #ttg.slice<{dim = 0, parent = #b}>>",
            "tt.fp_to_fp %exact_x_1, rounding = rtne : tensor<8xf32, #ttg.slice<{dim = 0, parent = #b}>> "
            "-> tensor<8xf8E4M3FN, #ttg.slice<{dim = 0, parent = #b}>>",
        ),
        (
            conversion("arith.fptoui", "tensor<4xf64, #b>", "tensor<4xi8, #b>"),
            UNSIGNED,
            "arith.fptoui %0 : tensor<4xf64, #b> to tensor<4xi32, #b>",
            "arith.trunci %exact_x_1 : tensor<4xi32, #b> to tensor<4xi8, #b>",
        ),
    ],
)  # fmt: skip
def test_a_conversion_becomes_two(line: str, hazard: str, first: str, second: str) -> None:
    text = f"module {{\n{line} loc(#loc3)\n}}\n"
    assert exact_conversions(text, [hazard]) == (
        f"module {{\n    %exact_x_1 = {first} loc(#loc3)\n    %x_1 = {second} loc(#loc3)\n}}\n"
    )
    assert exact_conversions(line, [one for one in EVERY if one != hazard]) == line


@pytest.mark.parametrize(
    "line",
    [
        conversion("tt.fp_to_fp", "tensor<4xf8E5M2, #b>", "tensor<4xf16, #b>"),
        conversion("tt.fp_to_fp", "tensor<4xf32, #b>", "tensor<4xf8E4M3FN, #b>", ", rounding = rtne"),
        conversion("arith.fptoui", "tensor<4xf32, #b>", "tensor<4xi16, #b>"),
        conversion("arith.fptosi", "tensor<4xf32, #b>", "tensor<4xi8, #b>"),
    ],
)
def test_others_stay(line: str) -> None:
    assert exact_conversions(line, EVERY) == line
