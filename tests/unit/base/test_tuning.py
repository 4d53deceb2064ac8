"""manifests/tuning: every arch has settings, from one file; a row that the rules do not know is named."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from aotforge.base.architectures import load_architectures
from aotforge.base.tuning import TuningFiles, load_tuning, tuning
from aotforge.errors import RulesError
from aotforge.plan.families import load_families
from kernels.flash.forward_settings import Tuned

FILE = "schema: 1\narchs: [{arch}]\nsource: a test\n{more}kernels:\n  flash.attn_fwd:\n    - {row}\n"
KERNELS = Path(__file__).parents[3] / "kernels"
OPTIONS = ("num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim", "kpack")
ROW = "{max_width: 64, block_m: 16, block_n: 32, dtypes: [fp16], few: true}"


def files(folder: Path, **texts: str) -> TuningFiles:
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    return load_tuning(folder)


def test_every_arch_of_the_manifest_or_one_that_it_extends_is_named_by_one_file() -> None:
    named = [arch for one in tuning().files.values() for arch in one.archs]
    known = load_architectures()
    assert len(set(named)) == len(named)
    assert all(set(known.lineage(arch)) & set(named) for arch in known.architectures)
    assert all(one.source for one in tuning().files.values())


def test_every_kernel_has_rows_for_every_arch() -> None:
    loaded = load_families(KERNELS)
    names = {f"{one.family.name}.{kernel.name}" for one in loaded for kernel in one.family.kernels}
    names -= {"gemm.gemm_nt", "gemm.gemm_strided"}  # they have the rows of gemm_nn
    names = {name for name in names if not name.startswith("flash_atomic.")}  # only for archs with rows
    for arch in load_architectures().architectures:
        lacking = [name for name in names if not tuning().rows(name, arch, 0, dict)]
        assert not lacking, (arch, lacking)


def test_no_setting_is_written_in_rules() -> None:
    """Blocks and options of a Setting come from rows: neither is a number in Python."""
    found = []
    for path in KERNELS.glob("*/*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or ast.unparse(call.func) not in ("Setting", "TimedSetting"):
                continue
            constants = [one.value for one in call.keywords if one.arg == "constants"]
            blocks = [value for one in constants if isinstance(one, ast.Dict) for value in one.values]
            options = [one.value for one in call.keywords if one.arg in OPTIONS]
            written = [one for one in (*blocks, *options) if isinstance(one, ast.Constant)]
            found += [f"{path.parent.name}/{path.name}:{one.lineno}" for one in written]
    assert not found


def test_rows_for_every_arch_count_where_an_archs_file_has_none(tmp_path: Path) -> None:
    every = "schema: 1\nevery_arch: true\nsource: a test\nkernels:\n"
    rows = "  flash.attn_fwd:\n    - {max_width: 16}\n  flash.other:\n    - {max_width: 32}\n"
    found = files(
        tmp_path,
        every=every + rows,
        own=FILE.format(arch="gfx908", more="default_warp_size: 64\n", row="{max_width: 64}"),
    )
    for arch in ("gfx908", "gfx90a"):
        assert found.rows("flash.attn_fwd", arch, 64, dict) == ({"max_width": 64},)
        assert found.rows("flash.other", arch, 64, dict) == ({"max_width": 32},)


def test_rows_are_values_of_the_family_and_others_have_its_defaults(tmp_path: Path) -> None:
    found = files(tmp_path, a=FILE.format(arch="gfx908", more="default_warp_size: 64\n", row=ROW))
    (row,) = found.rows("flash.attn_fwd", "gfx908", 64, Tuned)
    assert row == Tuned(max_width=64, block_m=16, block_n=32, dtypes=("fp16",), few=True)
    assert found.rows("flash.attn_fwd", "gfx90a", 64, Tuned) == (row,)
    assert found.rows("flash.other", "gfx908", 64, Tuned) == ()
    with pytest.raises(RulesError, match="no settings for gfx1100"):
        found.of("gfx1100", 32)


def test_an_unknown_cell_is_named_with_file_and_row(tmp_path: Path) -> None:
    found = files(tmp_path, a=FILE.format(arch="gfx908", more="", row="{max_width: 64, blockm: 16}"))
    with pytest.raises(RulesError, match=r"a\.yaml: flash\.attn_fwd: row 1: .*blockm"):
        found.rows("flash.attn_fwd", "gfx908", 64, Tuned)
