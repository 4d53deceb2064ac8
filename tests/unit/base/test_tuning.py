"""manifests/tuning: every arch has settings, from one file; a row that the rules do not know is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.base.architectures import load_architectures
from aotforge.base.tuning import TuningFiles, load_tuning, tuning
from aotforge.errors import ManifestError, RulesError
from kernels.flash.forward_settings import Tuned

FILE = "schema: 1\narchs: [{arch}]\nsource: a test\n{more}kernels:\n  flash.attn_fwd:\n    - {row}\n"
ROW = "{max_width: 64, block_m: 16, block_n: 32, dtypes: [fp16], few: true}"


def files(folder: Path, **texts: str) -> TuningFiles:
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    return load_tuning(folder)


def test_every_arch_of_the_manifest_is_named_by_one_file() -> None:
    named = [arch for one in tuning().files.values() for arch in one.archs]
    assert sorted(named) == sorted(load_architectures().architectures)
    kernels = {"flash.attn_fwd", "flash.bwd_preprocess", "flash.bwd_dk_dv", "flash.bwd_dq"}
    assert all(kernels <= set(one.kernels) and one.source for one in tuning().files.values())


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


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (("gfx908", ""), ("gfx908", ""), "the arch gfx908 is in a.yaml, too"),
        (
            ("gfx908", "default_warp_size: 64\n"),
            ("gfx90a", "default_warp_size: 64\n"),
            "the warp size 64 is in a.yaml, too",
        ),
    ],
)
def test_two_files_do_not_claim_the_same(
    tmp_path: Path, first: tuple[str, str], second: tuple[str, str], expected: str
) -> None:
    texts = {
        name: FILE.format(arch=arch, more=more, row=ROW)
        for name, (arch, more) in (("a", first), ("b", second))
    }
    with pytest.raises(ManifestError, match=expected):
        files(tmp_path, **texts)
