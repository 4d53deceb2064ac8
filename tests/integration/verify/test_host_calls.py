"""Families whose kernels print and assert: texts and failed assertions are part of the verdict, and releases
refuse such images."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from aotforge.errors import PackError
from aotforge.pipeline.images import check_no_host_calls
from aotforge.plan.model import Plan
from aotforge.verify.report import VerifyReport
from aotforge.verify.verify_plan import verify_images
from tests.integration.release.real import CACHE
from tests.integration.verify.test_verify import Images
from tests.support.families import PROJECT, plan_of
from tests.support.verified import compiled_images

pytestmark = pytest.mark.compiler
LOADED = "    right = tl.load(y + start + lane, mask=mask).to(tl.float32)\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The family `add`, for fp32 and with assertions."""
    root = tmp_path / "kernels"
    shutil.copytree(PROJECT / "kernels" / "add", root / "add")
    cases = root / "add" / "cases.py"
    cases.write_text(
        cases.read_text().replace("(1, 8, 37, 1000, 1003, 2048, 2056, 5000)", "(37, 1000, 2056)")
    )
    rules = root / "add" / "rules.py"
    text = rules.read_text().replace('dtypes("fp16", "bf16", "fp32")', 'dtypes("fp32")')
    assert text.count("num_stages=self.num_stages)") == 1
    rules.write_text(text.replace("=self.num_stages)", '=self.num_stages, options={"debug": True})'))
    return root


def add_lines(root: Path, lines: str) -> None:
    kernel = root / "add" / "add.py"
    text = kernel.read_text()
    assert LOADED in text
    kernel.write_text(text.replace(LOADED, LOADED + lines))


def verified(root: Path, cache: Path = CACHE) -> tuple[VerifyReport, Plan, Images]:
    plan = plan_of(root)
    images = compiled_images(plan, root, cache)
    report = verify_images(plan, images, kernels_root=root, cache=cache, jobs=1)
    return report, plan, images


def test_texts_are_part_of_the_verdict_with_program_and_lane(root: Path) -> None:
    add_lines(
        root,
        '    tl.device_print("sum of two", left + right)\n    tl.device_assert(n > 0, "nothing to add")\n',
    )
    report, _, images = verified(root)
    assert report.counts == {"passed": 2}
    verdict = report.verdicts[0]
    pattern = (
        r"(.+): program \((\d+), 0, 0\), wave (\d), lane (\d+): pid \(\2, 0, 0\) idx \( *(\d+)\) "
        r"sum of two: (-?[\d.]+|nan|-nan)"
    )
    found = [re.fullmatch(pattern, text) for text in verdict.printed]
    assert len(found) == 64 and all(found)
    first = found[0]
    assert first and first[1] in verdict.cases
    assert verdict.texts % 1024 == 0 and verdict.texts > 64  # blocks of 1024 elements, each printed once
    (text,) = [one for one in report.lines() if one.startswith(f"printed     {verdict.label}:\n")]
    assert text.splitlines()[1] == f"    {verdict.printed[0]}"
    assert text.splitlines()[-1] == f"    and {verdict.texts - 64} more texts"
    again, *_ = verified(root)
    assert again.verdicts[0].cached and again.verdicts[0].printed == verdict.printed
    with pytest.raises(PackError, match="the kernel add prints or asserts"):
        check_no_host_calls(images.values())


def test_an_assertion_that_fails_is_a_verdict(root: Path) -> None:
    add_lines(root, '    tl.device_assert(left < 3, "left is too large", mask=mask)\n')
    report, *_ = verified(root)
    line = next(
        n
        for n, text in enumerate((root / "add" / "add.py").read_text().splitlines(), 1)
        if "device_assert" in text
    )
    for verdict in report.verdicts:
        assert verdict.outcome == "failed" and not verdict.unsupported
        assert f"add: device assertion failed: 'left is too large', at add/add.py:{line}" in verdict.failure
        assert re.search(r"workgroup \(\d+, 0, 0\), wave \d, lane \d+, line \d+: s_", verdict.failure)
        assert (
            not verdict.printed and str(root) not in verdict.failure
        )  # the image names the file as on any machine


def test_an_image_that_neither_prints_nor_asserts_is_packed(root: Path) -> None:
    _, _, images = verified(root)
    check_no_host_calls(images.values())
