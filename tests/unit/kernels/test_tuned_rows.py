"""Rows of manifests/tuning that are for one of a functional's images, and options that a row may set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aotforge.base.tuning import load_tuning
from aotforge.rules import Between, Functional, Setting, Target
from aotforge.timed_rules import TimedSetting
from kernels.flash import backward_settings, forward_settings

TARGET = Target(arch="gfx908", vendor="amd", warp_size=64, matrix="MFMA", shared_bytes=65536)
HEAD = "schema: 1\narchs: [gfx908]\nsource: a test\nkernels:\n"
FIRST = "    - {max_width: 64, block_m: 128, block_n: 32, mfma: 16, kpack: 2, hinted: true}\n"
SECOND = "    - {max_width: 128, block_m: 64, block_n: 16}\n"


@pytest.fixture(autouse=True)
def _own_rows() -> Iterator[None]:
    """The tables are read once per process: neither this file's rows nor the project's may stay."""
    yield
    for module in (forward_settings, backward_settings):
        module._table.cache_clear()


def settings(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kernel: str, rows: str, width: int, mask: str = "full"
) -> tuple[Setting, ...]:
    (folder / "a.yaml").write_text(f"{HEAD}  flash.{kernel}:\n{rows}")
    module = forward_settings if kernel == "attn_fwd" else backward_settings
    monkeypatch.setattr(module, "tuning", lambda: load_tuning(folder))
    module._table.cache_clear()
    functional: Functional = {"dtype": "fp16", "mask": mask, "dropout": False, "width": width}
    if kernel == "attn_fwd":
        return forward_settings.forward_settings(TARGET, functional)
    return backward_settings.backward_settings(kernel, TARGET, functional)


@pytest.mark.parametrize("kernel", ["attn_fwd", "bwd_dk_dv", "bwd_dq"])
def test_a_row_for_the_image_with_hints_leaves_the_general_one_to_the_next(
    kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hinted, general = settings(tmp_path, monkeypatch, kernel, FIRST + SECOND, 64)
    assert (hinted.hinted, hinted.constants["BLOCK_M"], hinted.kpack) == (True, 128, 2)
    assert (general.hinted, general.constants["BLOCK_M"], general.kpack) == (False, 64, 1)
    wider = settings(tmp_path, monkeypatch, kernel, FIRST + SECOND, 128)
    assert [one.constants["BLOCK_M"] for one in wider] == [64, 64]


@pytest.mark.parametrize("kernel", ["attn_fwd", "bwd_dk_dv", "bwd_dq"])
def test_rows_for_the_image_with_hints_alone_serve_nothing(
    kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings(tmp_path, monkeypatch, kernel, FIRST, 64) == ()


@pytest.mark.parametrize("kernel", ["attn_fwd", "bwd_dk_dv", "bwd_dq"])
def test_a_row_for_some_masks_leaves_the_others_to_the_next(
    kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = FIRST.replace("hinted: true", "masks: [window]") + SECOND
    blocks = {
        mask: [
            one.constants["BLOCK_M"] for one in settings(tmp_path, monkeypatch, kernel, rows, 64, mask=mask)
        ]
        for mask in ("full", "window", "bias")
    }
    assert blocks == {"full": [64, 64], "window": [128, 128], "bias": [64, 64]}


def test_a_row_of_groups_is_tried_before_the_others_for_calls_of_enough_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = "max_width: 96, block_m: 192, block_n: 64, groups: true, first: 64, least_q: 100, spills: true"
    groups = f"    - {{{cells}}}\n"
    image, other, _ = settings(tmp_path, monkeypatch, "attn_fwd", groups + SECOND, 96)
    assert isinstance(image, TimedSetting) and image.source and image.spills
    assert (image.constants["FIRST"], image.constants["PART"], image.options["maxnreg"]) == (64, 96, 128)
    assert [one.low for one in image.when if isinstance(one, Between) and one.value == "seqlen_q"] == [100]
    assert isinstance(other, TimedSetting) and not other.source and not other.spills
    assert len(settings(tmp_path, monkeypatch, "attn_fwd", groups + SECOND, 64)) == 2  # of another width


def test_a_row_that_reads_ahead_is_tried_before_the_others_for_dense_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = "    - {max_width: 64, block_m: 128, block_n: 64, waves_per_eu: 2, ahead: 1, features: 0}\n"
    image, other, _ = settings(tmp_path, monkeypatch, "attn_fwd", ahead + SECOND, 64)
    assert isinstance(image, TimedSetting) and image.source and image.constants["VERSION"] == 1
    assert {one.value: one.low for one in image.when if isinstance(one, Between)}["stride_kn"] == 0
    assert isinstance(other, TimedSetting) and not other.source
    assert len(settings(tmp_path, monkeypatch, "attn_fwd", ahead + SECOND, 32)) == 2  # of another width
