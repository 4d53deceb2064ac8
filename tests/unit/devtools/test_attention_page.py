"""The generated page of attention."""

from __future__ import annotations

from pathlib import Path

from tests.support.attention_page import PAGE, attention_page, page_archs

ROOT = Path(__file__).parents[3]


def test_the_page_is_that_of_the_rules() -> None:
    """After a change of rules or settings: python -m tests.support.attention_page"""
    assert (ROOT / PAGE).read_text(encoding="utf-8") == attention_page(ROOT)


def test_no_arch_lacks_a_call() -> None:
    """A hole in the table needs its reason there, and a change of this test."""
    tables = (ROOT / PAGE).read_text(encoding="utf-8").split("\n## ")
    rows = {}
    for title, *lines in (table.splitlines() for table in tables):
        rows[title] = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")][1:]
    widths = "16 32 48 64 80 96 128 160 192 224 256 512"
    served = {(kernel, call): (found, less) for kernel, call, found, less in rows["Head dims by arch"]}
    kernels = ("attn_fwd", "bwd_dk_dv", "bwd_dq", "bwd_preprocess")
    expected = {(kernel, "all"): (widths, "-") for kernel in kernels}
    assert served == expected | {("attn_dropout_mask", "all"): ("any", "-")}
    assert {"gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1150", "gfx1200"} <= set(page_archs())
    images = {arch: tuple(map(int, counts)) for arch, *counts in rows["Images by arch"]}
    assert list(images) == list(page_archs())
    assert all(0 < general < special < full for special, general, full in images.values())
    gates = rows["PyTorch's gates by arch"]
    assert [(level, archs, state) for level, archs, state in gates] == [
        (level, " ".join(page_archs()), "yes") for level in ("0.11", "0.12", "0.13", "0.14")
    ]
