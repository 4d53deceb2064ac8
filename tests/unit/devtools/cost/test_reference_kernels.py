"""Ratios to AOTriton's kernels: each is of one case, and the former setting that it is a ratio to is one of the kernel's."""

from __future__ import annotations

import pytest
import yaml

from benchmarks.reference_kernels import DATA, NAMES, former, needed, shape_of

ROWS = yaml.safe_load(DATA.read_text(encoding="utf-8"))["kernels"]
SHAPE = {"seqlen_q": 512, "seqlen_k": 512}


def test_a_case_has_one_row() -> None:
    cases = [(row["arch"], row["kernel"], row["width"], row["mask"]) for row in ROWS]
    assert len(cases) == len(set(cases)) == 44
    assert all(row[name] > 0 for row in ROWS for name in ("instructions", "pipe", "estimate", "flops"))


@pytest.mark.parametrize(("kernel", "held"), [("attn_fwd", {"STEP": "0"}), ("bwd_dq", {"HOLD": "1"})])
def test_the_former_programs_held_their_block(kernel: str, held: dict[str, str]) -> None:
    row = next(row for row in ROWS if row["kernel"] == kernel)
    setting = former(row)
    assert held.items() <= setting.items() and setting["PART"] == str(row["width"])
    assert [int(setting[name]) for name in NAMES] == row["former"]


def test_needed_flops_are_two_of_each_product_and_half_under_a_causal_mask() -> None:
    assert needed("attn_fwd", "full", 64, 512) == 2 * 2 * 512 * 512 * 64
    assert needed("bwd_dk_dv", "full", 64, 512) == 2 * needed("attn_fwd", "full", 64, 512)
    assert needed("bwd_dq", "window", 64, 3) == 2 * 3 * 6 * 64


def test_a_causal_call_has_a_window() -> None:
    assert shape_of({"mask": "full"}, SHAPE) == {"seqlen_q": "512", "seqlen_k": "512"}
    assert shape_of({"mask": "window"}, SHAPE)["window_right"] == "0"
