"""The parser of MLIR's generic form."""

from __future__ import annotations

import pytest

from ttcpu.element_types import F32, I1, parse_type
from ttcpu.errors import CompileError, UnsupportedError
from ttcpu.mlir import parse

MODULE = """#loc1 = loc("unused")
"builtin.module"() ({
  "tt.func"() <{function_type = (!tt.ptr<f32>, i1) -> (), sym_name = "a \\22b\\22"}> ({
  ^bb0(%x: !tt.ptr<f32> loc("x"("/k.py":2:1)), %c: i1 loc(unknown)):
    %0:2 = "scf.if"(%c) ({
      "scf.yield"(%c, %c) : (i1, i1) -> () loc("/k.py":4:1)
    }, {
    }) {note = {inner = "}"}} : (i1) -> (i1, tensor<4x!tt.ptr<f32>>) loc(callsite("/k.py":3:5 at "/m.py":9:9))
    "cf.cond_br"(%0#0, %x)[^bb1, ^bb2] <{operandSegmentSizes = array<i32: 1, 1, 0>}>
      : (i1, !tt.ptr<f32>) -> ()
  ^bb1(%y: !tt.ptr<f32>):  // pred: ^bb0
    "tt.return"() : () -> ()
  ^bb2:  // 2 preds: ^bb0, ^bb1
    "tt.return"() : () -> ()
  }) : () -> ()
}) : () -> ()
"""


def test_operations_regions_blocks_and_lines() -> None:
    module = parse(MODULE)
    (function,) = module.regions[0].entry.operations
    assert function.string("sym_name") == 'a "b"'
    first, second, third = function.regions[0].blocks
    assert [argument.name for argument in first.arguments] == ["%x", "%c"]
    assert (second.label, [argument.type for argument in second.arguments]) == ("^bb1", ["!tt.ptr<f32>"])
    condition, jump = first.operations
    assert [result.name for result in condition.results] == ["%0#0", "%0#1"]
    assert condition.results[1].type == "tensor<4x!tt.ptr<f32>>"
    assert condition.attributes["note"] == '{inner = "}"}'
    assert condition.line == "/k.py:3"
    assert condition.regions[1].entry.operations == []
    assert jump.successors == ("^bb1", "^bb2")
    assert jump.integers("operandSegmentSizes") == [1, 1, 0]
    assert [operand.name for operand in jump.operands] == ["%0#0", "%x"]
    ends = [block.operations[-1].name for block in function.regions[0].blocks]
    assert ends.count("tt.return") == 2
    assert third.operations[0].name == "tt.return"


@pytest.mark.parametrize("text", ["", '"a"(', '"a"() : () -> (', "%0 = a : i32", '"a"() <{x = "> : () -> ()'])
def test_text_that_is_not_the_generic_form(text: str) -> None:
    with pytest.raises(CompileError, match="line 1 of the module"):
        parse(text)


def test_a_missing_attribute_is_named() -> None:
    operation = parse('"tt.reduce"() : () -> () loc("/k.py":7:3)')
    with pytest.raises(CompileError, match=r"tt\.reduce at /k\.py:7 has no attribute axis"):
        operation.integer("axis")


def test_types() -> None:
    assert parse_type("tensor<4x8xf32>").shape == (4, 8)
    assert parse_type("i1").element == I1
    pointers = parse_type("tensor<2x!tt.ptr<f32, 1>>")
    assert pointers.shape == (2,)
    assert pointers.element.pointee == F32
    assert parse_type("bf16").element.stored == "i16"
    with pytest.raises(UnsupportedError, match=r"values of type !tt\.tensordesc<f32>"):
        parse_type("!tt.tensordesc<f32>")


@pytest.mark.parametrize(
    "text",
    [
        MODULE.replace("(%c, %c) : (i1, i1)", "(%c, %c) : (i1)"),
        MODULE.replace("%0:2 =", "%0:3 ="),
        MODULE.replace("%0:2 =", f"%0:{'9' * 5000} ="),
        MODULE[: MODULE.index(' loc("/k.py":4') + 8],
        MODULE[: MODULE.index('("/k.py"') + 3],
        "#loc",
        '"a"() ({' * 20_000,
    ],
)
def test_damaged_text_is_refused_by_name(text: str) -> None:
    """Found by the campaign on MLIR texts."""
    with pytest.raises(CompileError):
        parse(text)
