"""Generated programs: every use on a line of its own, and complaints translated back to uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.base.manifest_reader import load
from aotforge.conformance.checks.calls import explain_failure, make_program
from aotforge.conformance.matrix_models import Calls

CALLS = load(Path(__file__).parents[3] / "compat" / "pytorch_calls.yaml", Calls)


@pytest.mark.parametrize("name", CALLS.sets)
def test_every_use_has_its_line(name: str) -> None:
    program = make_program(CALLS, name)
    lines = program.source.splitlines()
    used = CALLS.sets[name]
    assert program.uses and CALLS.dtypes
    for number, use in program.uses.items():
        assert program.use_at(number) == use
        last = use.rsplit(".", 1)[-1].rsplit("::", 1)[-1].split("(")[0].split(" ")[0]
        assert last in lines[number - 1] or " and " in use or use.startswith(("the ", "header", "TensorView"))
    for call in used.v2:
        assert f"v2::flash::{CALLS.v2[call].function}" in program.uses.values()
    if used.v3:
        for way, own in (("fwd", CALLS.v3_fields.fwd), ("bwd", CALLS.v3_fields.bwd)):
            fields = list(CALLS.v3_fields.both | own)
            if used.v3.varlen_bits:  # fields that level 0.14 has in their place
                older = {
                    "cu_seqlens_q": "seqinfo_q0",
                    "cu_seqlens_k": "seqinfo_k0",
                    "varlen_type": "varlen_bits",
                }
                fields = [older.get(field, field) for field in fields]
            for field in fields:
                assert f"  params.{field} = " in program.source
                assert any(use.startswith(f"attn_{way}_params.{field}") for use in program.uses.values())
    for dtype in CALLS.dtypes:
        assert f"case DType::{dtype}:" in program.source


def test_what_the_releases_differ_in() -> None:
    source = {name: make_program(CALLS, name).source for name in CALLS.sets}
    assert "params.D = t2;" in source["2.8"] and "DQ_ACC" not in source["2.8"]
    assert (
        "acquire(void* cookie)" in source["2.9-2.12"]
        and "params.DQ_ACC = make_lazy<4>(&owner4);" in source["2.9-2.12"]
    )
    assert "acquire(aotriton::LazyTensor<2>* self)" in source["2.13"]
    assert "options.deterministic = true;" in source["2.13"] and "seq_strides_q" in source["2.13"]
    assert source["2.13"].startswith("#define AOTRITON_V2_API_FLASH_ATTN_H\n")
    assert "v2::flash::attn_fwd" not in source["2.13"]
    assert "attn_fwd_compact_varlen" in source["2.6"] and "attn_fwd_compact_varlen" not in source["2.5"]
    assert "#if !(AOTRITON_VERSION_MINOR == 9)" in source["2.7"]
    assert "isArchExperimentallySupported" not in source["2.6"]
    assert "params.varlen_bits = VarlenBits{" in source["main"] and "varlen_type" not in source["main"]


def test_complaints_name_uses() -> None:
    program = make_program(CALLS, "2.9-2.12")
    line = next(n for n, use in program.uses.items() if use == "attn_fwd_params.philox_seed_output")
    gcc = (
        f"program.cpp: In function 'hipError_t fwd(aotriton::Stream)':\n"
        f"program.cpp:{line}:10: error: 'struct x' has no member named 'y'\n"
    )
    clang = f"program.cpp:{line}:10: error: no member named 'y' in 'x'\n1 error generated.\n"
    for output in (gcc, clang):
        (text,) = explain_failure(program, output)
        assert text.startswith("attn_fwd_params.philox_seed_output: ") and "'y'" in text
    ld = (
        "ld: c.o: in function `bwd()':\n"
        "program.cpp:(.text+0x1): undefined reference to `aotriton::v3::flash::attn_bwd(int)'\n"
    )
    assert explain_failure(program, ld) == ("aotriton::v3::flash::attn_bwd(int): not in the library",)
    assert explain_failure(program, "") == ("no message",)
    assert explain_failure(program, "x.h:1:1: fatal error: hip.h: No such file") == ("hip.h: No such file",)
