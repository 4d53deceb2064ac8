"""AOTriton's kernels as data: every case once, within its bounds; numbers of another model are named."""

from __future__ import annotations

from itertools import product

import pytest
import yaml

from benchmarks import reference_kernels
from benchmarks.reference_kernels import DATA, PRODUCTS, main, model_digest, needed

FILE = yaml.safe_load(DATA.read_text(encoding="utf-8"))
ARCHS = ("gfx908", "gfx90a", "gfx942", "gfx1100")


def test_a_case_has_one_row() -> None:
    cases = [(row["arch"], row["kernel"], row["width"], row["mask"]) for row in FILE["kernels"]]
    assert cases == list(product(ARCHS, PRODUCTS, (64, 128), ("full", "window")))


def test_no_kernel_is_faster_than_its_longest_pipe_or_does_less_than_is_needed() -> None:
    assert all(0 < row["pipe"] <= row["estimate"] and row["flops"] >= 1 for row in FILE["kernels"])


def test_needed_flops_are_two_of_each_product_and_half_under_a_causal_mask() -> None:
    assert needed("attn_fwd", "full", 64, 512) == 2 * 2 * 512 * 512 * 64
    assert needed("bwd_dk_dv", "full", 64, 512) == 2 * needed("attn_fwd", "full", 64, 512)
    assert needed("bwd_dq", "window", 64, 3) == 2 * 3 * 6 * 64


@pytest.mark.parametrize("changed", [False, True])
def test_numbers_of_another_model_are_named(
    changed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = "another" if changed else FILE["model"]
    monkeypatch.setattr(reference_kernels, "model_digest", lambda: now)
    main("no arch")
    assert capsys.readouterr().out.startswith("Not comparable: ") == changed


def test_the_model_has_a_digest_of_the_same_form() -> None:
    assert len(model_digest()) == len(FILE["model"])
