"""Every instruction of the table has the class of the unit that executes it."""

from __future__ import annotations

import re

import pytest

from vgpu.emulator.classes import InstructionClass, instruction_class, instruction_mix
from vgpu.emulator.isa import INSTRUCTIONS, approximations, memory, vector, wave_ops

C = InstructionClass


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("v_mfma_f32_32x32x8f16", C.MATRIX),
        ("v_mfma_f32_16x16x32_bf16", C.MATRIX),
        ("v_wmma_f32_16x16x16_bf16", C.MATRIX),
        ("v_accvgpr_read_b32", C.VALU),
        ("v_readfirstlane_b32", C.VALU),
        ("v_exp_f32", C.VALU),
        ("v_s_exp_f32", C.VALU),
        ("v_cmp_lt_i32", C.VALU),
        ("s_add_u32", C.SALU),
        ("s_and_saveexec_b64", C.SALU),
        ("s_getpc_b64", C.SALU),
        ("s_load_dwordx4", C.SCALAR_MEMORY),
        ("s_buffer_load_b128", C.SCALAR_MEMORY),
        ("ds_read_b128", C.LDS),
        ("ds_bpermute_b32", C.LDS),
        ("global_load_dwordx4", C.MEMORY),
        ("buffer_store_b64", C.MEMORY),
        ("scratch_load_b32", C.MEMORY),
        ("global_atomic_add_f32", C.MEMORY),
        ("s_cbranch_scc1", C.CONTROL),
        ("s_barrier", C.CONTROL),
        ("s_waitcnt", C.CONTROL),
        ("s_wait_loadcnt_dscnt", C.CONTROL),
        ("s_endpgm", C.CONTROL),
        ("s_nop", C.OTHER),
        ("v_nop", C.OTHER),
        ("buffer_wbinvl1", C.OTHER),
        ("global_wb", C.OTHER),
        ("not_an_instruction", C.OTHER),
    ],
)
def test_examples(name: str, kind: InstructionClass) -> None:
    assert instruction_class(name) is kind


def test_only_what_does_no_work_is_other() -> None:
    other = {name for name in INSTRUCTIONS if instruction_class(name) is C.OTHER}
    assert other and other <= wave_ops.UNPARSED
    assert {instruction_class(name) for name in wave_ops.NO_OPS.keys() - other} == {C.CONTROL}  # waits


def test_all_of_a_table_is_of_its_unit() -> None:
    assert {instruction_class(name) for name in wave_ops.MATRIX} == {C.MATRIX}
    assert {instruction_class(name) for name in vector.TABLE} == {C.VALU}
    assert {instruction_class(name) for name in memory.TABLE} == {C.LDS, C.MEMORY, C.SCALAR_MEMORY}
    assert {instruction_class(name) for name in wave_ops.LANES} == {C.LDS, C.VALU}


def test_a_mix_has_every_class_and_loses_nothing() -> None:
    mix = instruction_mix({"v_add_f32": 3, "v_mul_f32": 4, "s_nop": 1, "ds_read_b32": 2})
    assert list(mix) == list(C)
    assert mix[C.VALU] == 7
    assert mix[C.OTHER] == 1
    assert sum(mix.values()) == 10
    assert all(kind.label for kind in C)


def test_approximated_instructions_are_inexact_functions_and_sums_of_floats() -> None:
    functions = re.compile(r"v_(s_)?(exp|log|rcp|rcp_iflag|rsq|sqrt|sin|cos)_f\d+$")
    sums = re.compile(r"v_(mfma_(scale_)?f(32|64)|wmma_f32|dot2(c|acc)?_f32|dot2_f16|dot2_bf16)_")
    found = approximations(INSTRUCTIONS)
    assert {name for name, why in found.items() if why == "last place"} == {
        n for n in INSTRUCTIONS if functions.match(n)
    }
    assert {name for name, why in found.items() if why == "order of sums"} == {
        n for n in INSTRUCTIONS if sums.match(n)
    }
    assert approximations(["v_add_f32", "v_mfma_i32_4x4x4i8", "v_exp_f32", "v_exp_f32"]) == {
        "v_exp_f32": "last place"
    }
